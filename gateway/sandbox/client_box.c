/* The whole of a sandbox: paused, measured, its network; asked of the keeper. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/client_private.h"
#include "gateway/sandbox/oom.h"

static int ask(kg_sbx_t *sbx, kg_kp_request_t *r, size_t size, kg_call_t fill)
{
    if (sbx->lost || !sbx->keeper) {
        return -EPIPE;
    }
    kg_call_t *call = malloc(sizeof(*call));
    if (!call) {
        return -ENOMEM;
    }
    *call = fill;
    memcpy(call->what, sbx->info.id, sizeof(sbx->info.id));
    memcpy(r->one.id, sbx->info.id, sizeof(r->one.id)); /* the same place in all of them */
    int result = kg_keeper_request(sbx->keeper, r, size, call);
    if (result < 0) {
        free(call);
    }
    return result;
}

static int ask_plain(kg_sbx_t *sbx, kg_kp_verb_t verb, kg_done_fn *fn, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, verb, 0);
    return ask(sbx, &r, size, (kg_call_t){.user = user, .fn.done = fn});
}

int kg_sbx_pause(kg_sbx_t *sbx, kg_done_fn *fn, void *user)
{
    return ask_plain(sbx, KG_KP_PAUSE, fn, user);
}

int kg_sbx_resume(kg_sbx_t *sbx, kg_done_fn *fn, void *user)
{
    return ask_plain(sbx, KG_KP_RESUME, fn, user);
}

const char *kg_sbx_memory_stays(const kg_sbx_t *sbx)
{
    return sbx->memory_stays;
}

int kg_sbx_network(kg_sbx_t *sbx, const kg_net_wish_t *wish, kg_done_fn *fn, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_NETWORK, 0);
    r.network.network = *wish;
    return ask(sbx, &r, size, (kg_call_t){.user = user, .fn.done = fn});
}

int kg_sbx_hold(
    kg_sbx_t *sbx, const kg_limits_t *limits, uint32_t share, kg_done_fn *fn, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_HOLD, 0);
    r.hold.limits = *limits;
    r.hold.limits.disk_bytes = 0; /* those stay as they are */
    r.hold.limits.nofile = 0;
    r.hold.share = share;
    return ask(sbx, &r, size, (kg_call_t){.user = user, .fn.done = fn});
}

int kg_sbx_network_log(kg_sbx_t *sbx, uint64_t cursor, kg_net_log_fn *fn, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_NET_LOG, 0);
    r.net_log.cursor = cursor;
    return ask(sbx, &r, size, (kg_call_t){.user = user, .fn.net_log = fn});
}

int kg_sbx_box_usage(kg_sbx_t *sbx, kg_box_usage_fn *fn, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_USAGE, 0);
    return ask(sbx, &r, size, (kg_call_t){.user = user, .fn.box_usage = fn});
}

void kg_box_take_usage(kg_call_t *call, const kg_kp_usage_reply_t *reply)
{
    kg_err_t err;
    if (call && !call->forgotten) {
        bool failed = kg_keeper_reply_error(&reply->status, &err);
        call->fn.box_usage(call->user, failed ? NULL : &reply->usage, failed ? &err : NULL);
    }
    free(call);
}

void kg_box_take_net_log(kg_call_t *call, const kg_kp_net_log_reply_t *reply)
{
    kg_err_t err;
    if (call && !call->forgotten) {
        bool failed = kg_keeper_reply_error(&reply->status, &err);
        call->fn.net_log(call->user, reply->rows, failed ? 0 : reply->count, reply->cursor,
                         reply->lost, failed ? &err : NULL);
    }
    free(call);
}

void kg_box_fail_call(const kg_call_t *call, const kg_err_t *err)
{
    switch (call->verb) {
    case KG_KP_USAGE:
        call->fn.box_usage(call->user, NULL, err);
        return;
    case KG_KP_NET_LOG:
        call->fn.net_log(call->user, NULL, 0, 0, 0, err);
        return;
    case KG_KP_LIST:
        call->fn.ids(call->user, NULL, 0, err);
        return;
    default:
        if (call->fn.done) {
            call->fn.done(call->user, err);
        }
        return;
    }
}

void kg_box_forget(kg_keeper_t *keeper, const void *user)
{
    for (kg_call_t *call = keeper->calls; call; call = call->next) {
        bool of_box = call->verb == KG_KP_PAUSE || call->verb == KG_KP_RESUME ||
                      call->verb == KG_KP_USAGE || call->verb == KG_KP_NETWORK ||
                      call->verb == KG_KP_HOLD || call->verb == KG_KP_NET_LOG;
        if (of_box && call->user == user) {
            call->forgotten = true;
        }
    }
}

/* ---- memory that ran out ---- */

uint64_t kg_sbx_oom_kills(const kg_sbx_t *sbx)
{
    return kg_oom_kills(sbx->oom_fd);
}
