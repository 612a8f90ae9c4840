/* The gateway's end of the keeper's socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/client_private.h"
#include "gateway/sandbox/seqsock.h"

int kg_keeper_request(kg_keeper_t *keeper, kg_kp_request_t *r, size_t size, kg_call_t *call)
{
    r->head.seq = ++keeper->seq;
    int result = kg_chan_send(&keeper->chan, r, size, NULL, 0);
    if (result == 0 && call) {
        call->seq = r->head.seq;
        call->verb = r->head.verb;
        call->next = keeper->calls;
        keeper->calls = call;
    }
    return result;
}

bool kg_keeper_reply_error(const kg_kp_status_t *status, kg_err_t *ret_err)
{
    *ret_err = (kg_err_t){0};
    if (status->code == 0) {
        return false;
    }
    (void)kg_err_set(ret_err, (kg_err_code_t)status->code, "%s", status->message);
    if (status->hint[0] != '\0') {
        kg_err_hint(ret_err, "%s", status->hint);
    }
    return true;
}

static void fail_calls(kg_keeper_t *keeper, const kg_err_t *err)
{
    while (keeper->calls) {
        kg_call_t *call = keeper->calls;
        keeper->calls = call->next;
        if (!call->forgotten && (call->verb == KG_KP_CREATE || call->verb == KG_KP_ATTACH)) {
            call->fn.created(call->user, NULL, err);
        } else if (!call->forgotten) {
            kg_box_fail_call(call, err);
        }
        kg_list_free(call);
        free(call);
    }
}

static void lose(kg_keeper_t *keeper, const char *why)
{
    kg_err_t err = {0};

    if (keeper->lost) {
        return;
    }
    keeper->lost = true;
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "the keeper is gone: %s", why);
    kg_chan_fini(&keeper->chan);
    if (!keeper->closed) {
        keeper->on_event(keeper->user, KG_KEEPER_LOST, &err);
    }
    while (keeper->sandboxes && !keeper->closed) {
        kg_sbx_t *sbx = keeper->sandboxes;
        kg_keeper_unlink_sbx(keeper, sbx);
        kg_sbx_set_lost(sbx, &err);
    }
    fail_calls(keeper, &err);
}

static void take_launchers(kg_keeper_t *keeper, const kg_kp_launchers_reply_t *reply)
{
    for (uint32_t i = 0; i < reply->count; i++) {
        kg_launcher_info_t *info = &keeper->launchers[i];
        (void)snprintf(info->name, sizeof(info->name), "%s", reply->rows[i].name);
        (void)snprintf(info->reason, sizeof(info->reason), "%s", reply->rows[i].reason);
        info->rank = reply->rows[i].rank;
        info->available = reply->rows[i].available != 0;
        info->pauses = reply->rows[i].pauses != 0;
        (void)snprintf(info->pauses_not, sizeof(info->pauses_not), "%s", reply->rows[i].pauses_not);
    }
    keeper->launcher_count = reply->count;
    keeper->on_event(keeper->user, KG_KEEPER_READY, NULL);
}

static void take_created(kg_keeper_t *keeper, const kg_kp_create_reply_t *reply, int fds[2])
{
    kg_err_t err;
    bool attach = reply->head.verb == KG_KP_ATTACH;
    kg_call_t *call = kg_call_take(&keeper->calls, reply->head.seq, reply->head.verb);
    kg_sbx_t *sbx = NULL;

    if (!call) {
        return;
    }
    if (!kg_keeper_reply_error(&reply->status, &err)) {
        sbx = fds[0] >= 0 ? kg_sbx_new(keeper, call->what, reply, fds) : NULL;
        if (!sbx) { /* nobody will own it */
            (void)kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "no memory or descriptor for the sandbox");
            if (!attach) {
                (void)kg_keeper_kill(keeper, call->what, call->keep_files, NULL, NULL);
            }
        }
    }
    if (!call->forgotten) {
        call->fn.created(call->user, sbx, sbx ? NULL : &err);
    } else if (sbx) {
        kg_sbx_destroy(&sbx, call->keep_files, NULL, NULL);
    }
    free(call);
}

static void note_pause(kg_keeper_t *keeper, const char *id, const char *stays)
{
    for (kg_sbx_t *sbx = keeper->sandboxes; sbx; sbx = sbx->next) {
        if (strcmp(sbx->info.id, id) == 0) {
            (void)kg_format(sbx->memory_stays, sizeof(sbx->memory_stays), "%s", stays);
        }
    }
}

/* KILL, PAUSE, RESUME, NETWORK, HOLD */
static void take_done(kg_keeper_t *keeper, const kg_kp_kill_reply_t *reply)
{
    kg_err_t err;
    kg_call_t *call = kg_call_take(&keeper->calls, reply->head.seq, reply->head.verb);
    bool failed = kg_keeper_reply_error(&reply->status, &err);

    if (call && !failed && reply->head.verb == KG_KP_PAUSE) {
        note_pause(keeper, call->what, reply->status.message);
    }
    if (call && call->fn.done && !call->forgotten) {
        call->fn.done(call->user, failed ? &err : NULL);
    }
    free(call);
}

/* Collects ids over as many frames as it takes. */
static void take_list(kg_keeper_t *keeper, const kg_kp_list_reply_t *reply)
{
    kg_call_t *call = kg_call_take(&keeper->calls, reply->head.seq, KG_KP_LIST);
    if (!call) {
        return;
    }
    int r = kg_list_take(keeper, call, reply);
    if (r <= 0) { /* over, or failed; else it goes on */
        kg_list_free(call);
        free(call);
    }
}

static void take_exit(kg_keeper_t *keeper, const kg_kp_exit_event_t *event)
{
    kg_err_t err = {0};
    for (kg_sbx_t *sbx = keeper->sandboxes; sbx; sbx = sbx->next) {
        if (strcmp(sbx->info.id, event->id) == 0) {
            (void)kg_err_set(&err, KG_ERR_INTERNAL, "the first process of sandbox %s is gone",
                             event->id);
            kg_sbx_set_lost(sbx, &err);
            return;
        }
    }
}

static void take_refused(kg_keeper_t *keeper, const kg_kp_kill_reply_t *reply)
{
    kg_log(KG_LOG_ERROR, "keeper.refused", "seq=%u reason=\"%s\"", reply->head.seq,
           reply->status.message);
    lose(keeper, reply->status.message); /* two builds that don't understand each other */
}

static void dispatch(kg_keeper_t *keeper, const kg_kp_reply_t *reply, int fds[2])
{
    switch (reply->head.verb) {
    case KG_KP_HELLO:
        keeper->pid = reply->hello.keeper_pid;
        return;
    case KG_KP_LAUNCHER_TABLE:
        take_launchers(keeper, &reply->launchers);
        return;
    case KG_KP_CREATE:
    case KG_KP_ATTACH:
        take_created(keeper, &reply->create, fds);
        return;
    case KG_KP_KILL:
    case KG_KP_PAUSE:
    case KG_KP_RESUME:
    case KG_KP_NETWORK:
    case KG_KP_HOLD:
        take_done(keeper, &reply->kill);
        return;
    case KG_KP_USAGE:
        kg_box_take_usage(kg_call_take(&keeper->calls, reply->head.seq, KG_KP_USAGE),
                          &reply->usage);
        return;
    case KG_KP_NET_LOG:
        kg_box_take_net_log(kg_call_take(&keeper->calls, reply->head.seq, KG_KP_NET_LOG),
                            &reply->net_log);
        return;
    case KG_KP_LIST:
        take_list(keeper, &reply->list);
        return;
    case KG_KP_EXIT:
        take_exit(keeper, &reply->exit);
        return;
    default:
        take_refused(keeper, &reply->refused);
        return;
    }
}

static void on_readable(void *user)
{
    kg_keeper_t *keeper = user;

    for (int i = 0; i < KG_CHAN_BUDGET && !keeper->lost && !keeper->closed; i++) {
        kg_kp_reply_t reply;
        kg_kp_reply_t raw;
        int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
        size_t fd_count = 0;
        size_t len = 0;
        int r = kg_seq_recv(keeper->chan.fd, &raw, sizeof(raw), &len, fds, &fd_count);
        if (r == -EAGAIN) {
            return;
        }
        if (r == 0 && len == 0) {
            lose(keeper, "its socket was closed");
            return;
        }
        if (r == 0) {
            r = kg_kp_reply_decode(&raw, len, &reply);
        }
        if (r == 0) {
            dispatch(keeper, &reply, fds);
        }
        for (size_t n = 0; n < fd_count; n++) {
            kg_closep(&fds[n]);
        }
        if (r < 0) {
            lose(keeper, r == -EPROTO ? "it speaks another version" : strerrordesc_np(-r));
            return;
        }
    }
}

int kg_keeper_connect(kg_loop_t *loop,
                      int fd_take,
                      kg_keeper_event_fn *on_event,
                      void *user,
                      kg_keeper_t **ret_keeper,
                      kg_err_t *err)
{
    kg_kp_request_t r;
    kg_keeper_t *keeper = calloc(1, sizeof(*keeper));

    if (!keeper) {
        close(fd_take);
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    keeper->loop = loop;
    keeper->on_event = on_event;
    keeper->user = user;
    int result = kg_chan_init(&keeper->chan, loop, fd_take, on_readable, keeper);
    if (result == 0) {
        result = kg_keeper_request(keeper, &r, kg_kp_request_init(&r, KG_KP_HELLO, 0), NULL);
    }
    if (result == 0) {
        result =
            kg_keeper_request(keeper, &r, kg_kp_request_init(&r, KG_KP_LAUNCHER_TABLE, 0), NULL);
    }
    if (result < 0) {
        kg_chan_fini(&keeper->chan);
        free(keeper);
        return kg_err_set(err, kg_err_from_errno(result), "cannot reach the keeper: %s",
                          strerrordesc_np(-result));
    }
    *ret_keeper = keeper;
    return 0;
}

const kg_launcher_info_t *kg_keeper_launchers(const kg_keeper_t *keeper, size_t *ret_count)
{
    *ret_count = keeper->launcher_count;
    return keeper->launchers;
}

pid_t kg_keeper_pid(const kg_keeper_t *keeper)
{
    return keeper->pid;
}

bool kg_keeper_is_lost(const kg_keeper_t *keeper)
{
    return keeper->lost;
}

static void bury(void *user)
{
    kg_keeper_t *keeper = user;
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_DRAINING, "the keeper's client was closed");
    fail_calls(keeper, &err);
    free(keeper);
}

void kg_keeper_close(kg_keeper_t **keeper)
{
    kg_keeper_t *k = KG_TAKE(*keeper);
    kg_err_t err = {0};

    if (!k) {
        return;
    }
    k->closed = true;
    kg_chan_fini(&k->chan);
    (void)kg_err_set(&err, KG_ERR_DRAINING, "the keeper's client was closed");
    while (k->sandboxes) {
        kg_sbx_t *sbx = k->sandboxes;
        kg_keeper_unlink_sbx(k, sbx);
        kg_sbx_set_lost_later(sbx, &err);
    }
    (void)kg_loop_later(k->loop, bury, k); /* without memory it leaks, and says nothing wrong */
}

void kg_keeper_unlink_sbx(kg_keeper_t *keeper, kg_sbx_t *sbx)
{
    for (kg_sbx_t **at = &keeper->sandboxes; *at; at = &(*at)->next) {
        if (*at == sbx) {
            *at = sbx->next;
            break;
        }
    }
    sbx->next = NULL;
    sbx->keeper = NULL;
}

int kg_sandbox_create(kg_keeper_t *keeper,
                      const kg_sandbox_opts_t *opts,
                      kg_sandbox_created_fn *done,
                      void *user,
                      kg_err_t *err)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_CREATE, 0);

    if (!kg_kp_id_valid(opts->id)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "not the id of a sandbox");
    }
    if (opts->launcher[0] == '\0' ||
        strspn(opts->launcher, "abcdefghijklmnopqrstuvwxyz") != strlen(opts->launcher) ||
        kg_format(r.create.launcher, sizeof(r.create.launcher), "%s", opts->launcher) < 0) {
        return kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "there is no isolation of that name");
    }
    if (opts->template_name && kg_format(r.create.template_name, sizeof(r.create.template_name),
                                         "%s", opts->template_name) < 0) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "the template's name is too long");
    }
    memcpy(r.create.id, opts->id, strlen(opts->id) + 1);
    if (opts->zygote && (!kg_kp_id_valid(opts->zygote) || opts->reuse || opts->is_zygote)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "not the id of a zygote for it");
    }
    if (opts->zygote) {
        memcpy(r.create.zygote, opts->zygote, strlen(opts->zygote) + 1);
    }
    r.create.flags =
        (opts->reuse ? KG_KP_CREATE_REUSE : 0) | (opts->is_zygote ? KG_KP_CREATE_ZYGOTE : 0);
    r.create.limits = opts->limits;
    r.create.network = opts->network;
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    call->fn.created = done;
    call->user = user;
    call->keep_files = opts->reuse;
    (void)snprintf(call->what, sizeof(call->what), "%s", opts->id);
    int result = kg_keeper_request(keeper, &r, size, call);
    if (result < 0) {
        free(call);
        return kg_err_set(err, KG_ERR_INTERNAL, "cannot reach the keeper: %s",
                          strerrordesc_np(-result));
    }
    return 0;
}

int kg_sandbox_attach(
    kg_keeper_t *keeper, const char *id, kg_sandbox_created_fn *done, void *user, kg_err_t *err)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_ATTACH, 0);

    if (!kg_kp_id_valid(id)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "not the id of a sandbox");
    }
    memcpy(r.one.id, id, strlen(id) + 1);
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    call->fn.created = done;
    call->user = user;
    call->keep_files = true;
    (void)snprintf(call->what, sizeof(call->what), "%s", id);
    int result = kg_keeper_request(keeper, &r, size, call);
    if (result < 0) {
        free(call);
        return kg_err_set(err, KG_ERR_INTERNAL, "cannot reach the keeper: %s",
                          strerrordesc_np(-result));
    }
    return 0;
}

void kg_keeper_forget(kg_keeper_t *keeper, const void *user)
{
    for (kg_call_t *call = keeper->calls; call; call = call->next) {
        if (call->user == user) {
            call->forgotten = true;
        }
    }
}

int kg_keeper_kill(
    kg_keeper_t *keeper, const char *id, bool keep_files, kg_done_fn *done, void *user)
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_KILL, 0);
    kg_call_t *call = calloc(1, sizeof(*call));

    if (!call) {
        return -ENOMEM;
    }
    memcpy(r.kill.id, id, strlen(id) + 1);
    r.kill.flags = keep_files ? KG_KP_KILL_KEEP : 0;
    call->fn.done = done;
    call->user = user;
    int result = kg_keeper_request(keeper, &r, size, call);
    if (result < 0) {
        free(call);
    }
    return result;
}

int kg_keeper_end(kg_keeper_t *keeper, const char *id, bool keep_files, kg_done_fn *fn, void *user)
{
    return kg_kp_id_valid(id) ? kg_keeper_kill(keeper, id, keep_files, fn, user) : -EINVAL;
}
