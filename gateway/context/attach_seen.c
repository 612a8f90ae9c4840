/* gateway/context: requests that were carried out already. A client that lost its connection cannot
 * know whether a request has arrived, and sends it again under the same msg_id: what would have an
 * effect twice is not done twice. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"

enum {
    KEY_LEN = 16
};

struct kg_seen {
    unsigned char key[KEY_LEN];
    char run[KG_ID_MAX]; /* "": it was no code */
    uint64_t attach;     /* serial of who asked */
    kg_seen_t *prev, *next;
    UT_hash_handle hh;
};

/* Not of what is public alone: all at the kernel see sessions and msg_ids, and can foretell many.
 * One that sent another's would get its reply, or have its next cell passed over. */
static void
key_of(const kg_attach_t *attach, const kg_client_msg_t *msg, unsigned char ret[KEY_LEN])
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, KEY_LEN);
    (void)crypto_generichash_update(&state, (const unsigned char *)attach->who,
                                    strlen(attach->who) + 1);
    (void)crypto_generichash_update(&state, (const unsigned char *)msg->session,
                                    strlen(msg->session) + 1);
    (void)crypto_generichash_update(&state, (const unsigned char *)msg->msg_id,
                                    strlen(msg->msg_id));
    (void)crypto_generichash_final(&state, ret, KEY_LEN);
}

static void forget_oldest(kg_bridge_t *bridge)
{
    kg_seen_t *oldest = bridge->seen_list;
    if (oldest && bridge->seen) {
        HASH_DEL(bridge->seen, oldest);
        DL_DELETE(bridge->seen_list, oldest);
        free(oldest);
    }
}

void kg_seen_clear(kg_bridge_t *bridge)
{
    while (bridge->seen) {
        forget_oldest(bridge);
    }
}

void kg_seen_note(const kg_attach_t *attach, const kg_client_msg_t *msg, const kg_run_t *run)
{
    kg_bridge_t *bridge = attach->context->bridge;
    kg_seen_t *seen = calloc(1, sizeof(*seen));
    if (!seen) {
        return; /* as if it were long ago */
    }
    if (HASH_COUNT(bridge->seen) >= KG_SEEN_MAX) {
        forget_oldest(bridge);
    }
    key_of(attach, msg, seen->key);
    seen->attach = attach->serial;
    (void)kg_format(seen->run, sizeof(seen->run), "%s", run ? run->id : "");
    HASH_ADD(hh, bridge->seen, key, KEY_LEN, seen);
    DL_APPEND(bridge->seen_list, seen);
}

/* It ended while its client had no connection, and the reply went with that. */
static void say_again(kg_attach_t *attach, const kg_client_msg_t *msg, const kg_run_t *run)
{
    kg_err_t err = {0};
    kg_slice_t header = kg_buf_slice(&msg->header);
    kg_run_status_t status = run ? kg_run_log_status(run->log) : KG_RUN_ERROR;
    if (run && run->published && status == KG_RUN_OK) {
        kg_bridge_answer(attach->context, attach, msg->channel, msg->msg_type, header,
                         kg_slice_cstr("{\"status\":\"ok\",\"execution_count\":null,"
                                       "\"user_expressions\":{},\"payload\":[]}"));
        return;
    }
    (void)kg_err_set(&err, KG_ERR_CONFLICT, "This was run already%s%s%s%s.", run ? ", as run " : "",
                     run ? run->id : "", run ? ", which ended as " : "",
                     run ? kg_run_status_name(status) : "");
    kg_bridge_refuse(attach->context, attach, msg->channel, msg->msg_type, header, &err);
}

bool kg_seen_before(kg_attach_t *attach, const kg_client_msg_t *msg)
{
    unsigned char key[KEY_LEN];
    kg_seen_t *seen = NULL;
    kg_run_t *run = NULL;
    key_of(attach, msg, key);
    HASH_FIND(hh, attach->context->bridge->seen, key, KEY_LEN, seen);
    if (!seen) {
        return false;
    }
    if (seen->run[0]) {
        HASH_FIND_STR(attach->context->core->runs, seen->run, run);
    }
    if (run && run->client) {
        kg_run_client_take(run, attach); /* its reply is still to come */
    } else if (seen->run[0] && seen->attach != attach->serial) {
        say_again(attach, msg, run);
    }
    seen->attach = attach->serial;
    return true;
}
