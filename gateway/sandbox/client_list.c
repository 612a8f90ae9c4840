/* Which sandboxes live: the keeper's list, some rows a frame. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/client_private.h"

void kg_list_free(kg_call_t *call)
{
    free(call->ids);
    call->ids = NULL;
}

static int add_rows(kg_call_t *call, const kg_kp_list_reply_t *reply)
{
    if (reply->count == 0) {
        return 0;
    }
    char(*ids)[KG_KP_ID_MAX] = realloc(call->ids, (call->id_count + reply->count) * sizeof(*ids));
    if (!ids) {
        return -ENOMEM;
    }
    call->ids = ids;
    for (uint32_t i = 0; i < reply->count; i++) {
        if (reply->rows[i].state == KG_KP_RUNNING) {
            memcpy(ids[call->id_count++], reply->rows[i].id, KG_KP_ID_MAX);
        }
    }
    return 0;
}

static int ask(kg_keeper_t *keeper, kg_call_t *call)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_LIST, 0);
    r.list.from = call->list_from;
    return kg_keeper_request(keeper, &r, size, call);
}

static void tell(const kg_call_t *call)
{
    const char **ids = calloc(call->id_count + 1, sizeof(*ids));
    kg_err_t err = {0};

    if (!ids) {
        (void)kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "out of memory");
        call->fn.ids(call->user, NULL, 0, &err);
        return;
    }
    for (size_t i = 0; i < call->id_count; i++) {
        ids[i] = call->ids[i];
    }
    call->fn.ids(call->user, ids, call->id_count, NULL);
    free((void *)ids);
}

int kg_list_take(kg_keeper_t *keeper, kg_call_t *call, const kg_kp_list_reply_t *reply)
{
    kg_err_t err = {0};
    int r = add_rows(call, reply);

    call->list_from += reply->count;
    if (r == 0 && reply->count > 0 && call->list_from < reply->total) {
        r = ask(keeper, call);
        if (r == 0) {
            return 1;
        }
    }
    if (call->forgotten) {
        return r;
    }
    if (r < 0) {
        (void)kg_err_set(&err, kg_err_from_errno(r), "cannot list the sandboxes: %s",
                         strerrordesc_np(-r));
        call->fn.ids(call->user, NULL, 0, &err);
    } else {
        tell(call);
    }
    return r;
}

int kg_keeper_list(kg_keeper_t *keeper, kg_ids_fn *fn, void *user)
{
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return -ENOMEM;
    }
    call->fn.ids = fn;
    call->user = user;
    int r = ask(keeper, call);
    if (r < 0) {
        free(call);
    }
    return r;
}
