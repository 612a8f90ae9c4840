/* Which sandboxes there are, and which of them live: the keeper's list, some rows a frame. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/client_private.h"

void kg_list_free(kg_call_t *call)
{
    free(call->rows);
    call->rows = NULL;
}

static int add_rows(kg_call_t *call, const kg_kp_list_reply_t *reply)
{
    if (reply->count == 0) {
        return 0;
    }
    kg_kp_list_row_t *rows = realloc(call->rows, (call->row_count + reply->count) * sizeof(*rows));
    if (!rows) {
        return -ENOMEM;
    }
    memcpy(rows + call->row_count, reply->rows, reply->count * sizeof(*rows));
    call->rows = rows;
    call->row_count += reply->count;
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
    kg_listed_t *rows = calloc(call->row_count + 1, sizeof(*rows));
    kg_err_t err = {0};

    if (!rows) {
        (void)kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "out of memory");
        call->fn.ids(call->user, NULL, 0, &err);
        return;
    }
    for (size_t i = 0; i < call->row_count; i++) {
        const kg_kp_list_row_t *row = &call->rows[i];
        rows[i] = (kg_listed_t){
            .id = row->id,
            .lives = row->state == KG_KP_RUNNING,
            .is_zygote = row->is_zygote != 0,
            .launcher = row->launcher,
            .template_name = row->template_name,
        };
    }
    call->fn.ids(call->user, rows, call->row_count, NULL);
    free(rows);
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
