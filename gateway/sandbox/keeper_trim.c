/* The store of volumes gives back to the host's disk what deleted sandboxes had: a worker trims it
 * some time after deletes. */
#include <string.h>
#include <sys/resource.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/keeper.h"

#define TRIM_LIMIT_S 600 /* of a large store on a slow disk */
#define TRIM_NICE 19

void keeper_trim_deleted(kg_keeper_t *k)
{
    if (k->volumes_open && kg_volumes_trims(&k->host.volumes)) {
        kg_trim_deleted(&k->trim, kg_now_ns());
    }
}

/* In the worker. */
static void do_trim(kg_keeper_t *k,
                    kg_sb_t *sb,
                    const kg_kp_request_t *request,
                    kg_answer_t *answer,
                    int fds[KEEPER_ANSWER_FDS]) // NOLINT(readability-non-const-parameter)
{
    (void)sb;
    (void)request;
    (void)fds;
    (void)setpriority(PRIO_PROCESS, 0, TRIM_NICE); /* nobody waits for it */
    int r = kg_volumes_trim(&k->host.volumes, &answer->reply.trimmed);
    if (r < 0) {
        answer->failed = 1;
        kg_err_code_t code = kg_trim_is_refusal(r) ? KG_ERR_NOT_SUPPORTED : KG_ERR_INTERNAL;
        (void)kg_err_set(&answer->err, code, "%s", strerrordesc_np(-r));
    }
}

uint64_t keeper_trim_step(kg_keeper_t *k, uint64_t now_ns)
{
    uint64_t due = k->stopping ? KG_TRIM_NEVER : kg_trim_due(&k->trim);

    if (due > now_ns) {
        return due;
    }
    kg_trim_begun(&k->trim);
    if (keeper_errand_start(k, NULL, KG_ERRAND_TRIM, NULL, TRIM_LIMIT_S, do_trim) < 0) {
        kg_trim_ended(&k->trim, now_ns, true);
    }
    return kg_trim_due(&k->trim);
}

void keeper_trim_answered(kg_keeper_t *k, const kg_answer_t *answer)
{
    const kg_trimmed_t *trimmed = &answer->reply.trimmed;

    if (answer->failed && answer->err.code == KG_ERR_NOT_SUPPORTED) {
        kg_log(KG_LOG_WARN, "keeper.trim", "reason=\"%s\" again=never", answer->err.message);
        kg_trim_refused(&k->trim);
        return;
    }
    if (answer->failed) { /* the next delete asks again */
        kg_log(KG_LOG_WARN, "keeper.trim", "reason=\"%s\"", answer->err.message);
    } else {
        kg_log(KG_LOG_DEBUG, "keeper.trim", "bytes=%lld more=%d", (long long)trimmed->bytes,
               trimmed->more);
    }
    kg_trim_ended(&k->trim, kg_now_ns(), trimmed->more);
}
