/* gateway/context: requests that were carried out already. A client that lost its connection cannot
 * know whether a request has arrived, and sends it again under the same msg_id: what would have an
 * effect twice is not done twice. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"

enum {
    KEY_LEN = 16,
    ROWS_STEP = 64,
};

typedef struct seen_key {
    uint64_t half[2];
} seen_key_t;

typedef struct seen_row {
    char run[KG_ID_SHORT_MAX]; /* "": it was no code */
    uint64_t attach;           /* serial of who asked */
} seen_row_t;

/* A ring: with KG_SEEN_MAX, the oldest make room. The keys are looked through one by one; they lie
 * close together for that. */
struct kg_seen {
    size_t count, cap, oldest;
    seen_key_t *keys;
    seen_row_t *rows; /* by the same number */
};

/* Not of what is public alone: all at the kernel see sessions and msg_ids, and can foretell many.
 * One that sent another's would get its reply, or have its next cell passed over. */
static seen_key_t key_of(const kg_attach_t *attach, const kg_client_msg_t *msg)
{
    unsigned char hash[KEY_LEN];
    seen_key_t key;
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, KEY_LEN);
    (void)crypto_generichash_update(&state, (const unsigned char *)attach->who,
                                    strlen(attach->who) + 1);
    (void)crypto_generichash_update(&state, (const unsigned char *)msg->session,
                                    strlen(msg->session) + 1);
    (void)crypto_generichash_update(&state, (const unsigned char *)msg->msg_id,
                                    strlen(msg->msg_id));
    (void)crypto_generichash_final(&state, hash, KEY_LEN);
    memcpy(&key, hash, sizeof(key));
    return key;
}

void kg_seen_free(kg_bridge_t *bridge)
{
    if (bridge->seen) {
        free(bridge->seen->keys);
        free(bridge->seen->rows);
        free(bridge->seen);
        bridge->seen = NULL;
    }
}

static bool grow(kg_seen_t *seen)
{
    size_t cap = seen->cap + ROWS_STEP;
    seen_key_t *keys = realloc(seen->keys, cap * sizeof(*keys));
    if (keys) {
        seen->keys = keys;
    }
    seen_row_t *rows = keys ? realloc(seen->rows, cap * sizeof(*rows)) : NULL;
    if (rows) {
        seen->rows = rows;
        seen->cap = cap;
    }
    return rows != NULL;
}

/* The place for one more, or NULL. */
static seen_row_t *take_row(kg_seen_t *seen, seen_key_t key)
{
    size_t at = seen->count;
    if (seen->count == KG_SEEN_MAX) {
        at = seen->oldest;
        seen->oldest = (seen->oldest + 1) % KG_SEEN_MAX;
    } else if (seen->count == seen->cap && !grow(seen)) {
        return NULL;
    } else {
        seen->count++;
    }
    seen->keys[at] = key;
    return &seen->rows[at];
}

static seen_row_t *find_row(const kg_seen_t *seen, seen_key_t key)
{
    for (size_t i = 0; seen && i < seen->count; i++) {
        if (seen->keys[i].half[0] == key.half[0] && seen->keys[i].half[1] == key.half[1]) {
            return &seen->rows[i];
        }
    }
    return NULL;
}

void kg_seen_note(const kg_attach_t *attach, const kg_client_msg_t *msg, const kg_run_t *run)
{
    kg_bridge_t *bridge = attach->context->bridge;
    if (!bridge->seen) {
        bridge->seen = calloc(1, sizeof(*bridge->seen));
    }
    seen_row_t *row = bridge->seen ? take_row(bridge->seen, key_of(attach, msg)) : NULL;
    if (row) { /* else it is as if it were long ago */
        row->attach = attach->serial;
        (void)kg_format(row->run, sizeof(row->run), "%s", run ? run->id : "");
    }
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
    kg_run_t *run = NULL;
    seen_row_t *seen = find_row(attach->context->bridge->seen, key_of(attach, msg));
    if (!seen) {
        return false;
    }
    if (seen->run[0]) {
        run = kg_run_table_find(&attach->context->core->runs, seen->run);
    }
    if (run && run->client) {
        kg_run_client_take(run, attach); /* its reply is still to come */
    } else if (seen->run[0] && seen->attach != attach->serial) {
        say_again(attach, msg, run);
    }
    seen->attach = attach->serial;
    return true;
}
