/* A kernel that an earlier gateway started, found again: its process by the token, its channels by
 * the names, under the identity and the key that it knows. Then as a start: sockets, proof, ready.
 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

int kg_kernel_memo(const kg_kernel_t *k, kg_kernel_memo_t *ret_memo)
{
    if (!k->proc || k->life != KG_LIFE_RUNNING || k->failed || k->closing) {
        return -EPIPE;
    }
    *ret_memo = (kg_kernel_memo_t){.token = kg_proc_token(k->proc)};
    (void)kg_format(ret_memo->name, sizeof(ret_memo->name), "%s", k->name);
    (void)kg_format(ret_memo->session, sizeof(ret_memo->session), "%s", k->session.id);
    memcpy(ret_memo->key, k->key, sizeof(ret_memo->key));
    return 0;
}

void kg_kernel_memo_wipe(kg_kernel_memo_t *memo)
{
    sodium_memzero(memo, sizeof(*memo));
}

/* What stands in a record of ours goes into names of files and of messages. */
static bool is_plain(const char *text, size_t least)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t len = strlen(text);
    return len >= least && strspn(text, plain) == len;
}

bool kg_kernel_memo_valid(const kg_kernel_memo_t *memo)
{
    return memo->token != 0 && strlen(memo->name) == KG_KERNEL_NAME_LEN - 1 &&
           is_plain(memo->name, 1) && is_plain(memo->session, 8) &&
           strlen(memo->key) == sizeof(memo->key) - 1 && is_plain(memo->key, 1);
}

bool kg_kernel_is_earlier(const kg_kernel_t *k, const char *msg_id)
{
    size_t len = strlen(k->session.id);
    uint64_t number = 0;
    return k->adopted && kg_kernel_is_ours(k, msg_id) &&
           kg_parse_u64(msg_id + len + 1, 0, UINT64_MAX, &number) == 0 &&
           number <= k->number_before;
}

static void not_there(kg_kernel_t *k, kg_err_code_t code, const char *why)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, code, "the kernel cannot be taken over: %s", why);
    kg_kernel_start_failed(k, &err);
}

static void on_attached(void *user, kg_proc_t *proc, const kg_err_t *why)
{
    kg_kernel_t *k = user;
    k->proc = proc;
    k->life = proc ? KG_LIFE_RUNNING : KG_LIFE_ENDED;
    if (proc) {
        k->pid = kg_proc_pid(proc);
        kg_proc_on_exit(proc, kg_kernel_on_proc_exit, k);
    }
    if (k->closing) {
        kg_kernel_close_goes_on(k);
        return;
    }
    if (!proc) {
        not_there(k, KG_ERR_KERNEL_START_FAILED, why->message);
        return;
    }
    int rc = kg_output_open(k);
    if (k->closing) {
        kg_kernel_close_goes_on(k);
    } else if (k->failed) { /* the deadline passed meanwhile */
        (void)kg_kernel_kill_tree(k);
    } else if (rc < 0 || k->pipes[0].fd < 0 ||
               k->pipes[1].fd < 0) { /* sandal-init could keep none */
        not_there(k, KG_ERR_KERNEL_START_FAILED, "what it prints cannot be read");
    } else {
        kg_link_begin(k, 0);
    }
}

int kg_kernel_adopt_begin(kg_kernel_t *k, const kg_kernel_opts_t *opts, kg_err_t *err)
{
    const kg_kernel_memo_t *memo = opts->memo;
    int rc = kg_format(k->session.username, sizeof(k->session.username), "%s",
                       opts->username ? opts->username : "sandal");
    if (rc < 0 || !kg_kernel_memo_valid(memo)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "this is no record of a kernel");
    }
    memcpy(k->name, memo->name, sizeof(k->name));
    memcpy(k->session.id, memo->session, sizeof(k->session.id));
    memcpy(k->key, memo->key, sizeof(k->key));
    /* Numbers of messages that the gateways before have not given: the time since the machine's
     * start, in nanoseconds, is ahead of any count. */
    k->number_before = kg_boot_ns();
    k->session.counter = k->number_before;
    /* A router without handover (IJavaScript's) takes no second peer of a name while it has not
     * noticed the end of the first one, which one that was frozen has not. A cell that is left may
     * ask for input by the name that it knows. */
    if (opts->left_cell) {
        (void)kg_format(k->identity, sizeof(k->identity), "%s", k->session.id);
    } else {
        (void)kg_format(k->identity, sizeof(k->identity), "%s-%" PRIu64, k->session.id,
                        k->number_before);
    }
    rc = kg_wire_key_set(&k->session.key, memo->key, strlen(memo->key));
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "the key is too long");
    }
    rc = kg_sbx_proc_attach(k->sbx, memo->token, on_attached, k, err);
    if (rc < 0) {
        return rc;
    }
    k->adopted = true;
    k->left_cell = opts->left_cell;
    k->started_ns = kg_now_ns();
    kg_timer_start(k->link.deadline, k->limits.start_ns, 0);
    return 0;
}
