/* The gateway's end of a sandbox: the socket of its sandal-init. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/client_private.h"
#include "gateway/sandbox/seqsock.h"

static void on_readable(void *user);

/* The keeper has only connected; who we are is the first thing that sandal-init is told. */
static void say_hello(kg_sbx_t *sbx)
{
    kg_ip_request_t request;
    size_t fixed = kg_ip_request_init(&request, KG_IP_HELLO, 0, 0);
    request.hello.role = KG_IP_ROLE_GATEWAY;
    (void)kg_sbx_request(sbx, &request, fixed, NULL, 0, NULL);
}

kg_sbx_t *
kg_sbx_new(kg_keeper_t *keeper, const char *id, const kg_kp_create_reply_t *reply, int fds_take[2])
{
    kg_sbx_t *sbx = calloc(1, sizeof(*sbx));

    if (!sbx) {
        return NULL;
    }
    if (kg_chan_init(&sbx->chan, keeper->loop, kg_take_fd(&fds_take[0]), on_readable, sbx) < 0) {
        free(sbx);
        return NULL;
    }
    sbx->refs = 1;
    sbx->oom_fd = kg_take_fd(&fds_take[1]);
    sbx->keeper = keeper;
    sbx->loop = keeper->loop;
    sbx->tokens = kg_proc_first_token();
    (void)snprintf(sbx->info.id, sizeof(sbx->info.id), "%s", id);
    (void)snprintf(sbx->info.isolation, sizeof(sbx->info.isolation), "%s", reply->isolation.kind);
    (void)snprintf(sbx->info.workspace, sizeof(sbx->info.workspace), "%s", reply->workspace);
    (void)snprintf(sbx->info.home, sizeof(sbx->info.home), "%s", reply->home);
    (void)snprintf(sbx->info.run_dir, sizeof(sbx->info.run_dir), "%s", reply->run_dir);
    sbx->info.uid = reply->uid;
    sbx->info.gid = reply->gid;
    sbx->info.init_pid = reply->init_pid;
    sbx->info.own_root = (reply->flags & KG_KP_OWN_ROOT) != 0;
    sbx->info.has_root = (reply->flags & KG_KP_HAS_ROOT) != 0;
    sbx->info.children = reply->children;
    sbx->info.isolation_info = reply->isolation;
    sbx->next = keeper->sandboxes;
    keeper->sandboxes = sbx;
    say_hello(sbx);
    return sbx;
}

void kg_sbx_unref(kg_sbx_t *sbx)
{
    if (--sbx->refs == 0) {
        kg_chan_fini(&sbx->chan);
        kg_closep(&sbx->oom_fd);
        free(sbx);
    }
}

const kg_sbx_info_t *kg_sbx_info(const kg_sbx_t *sbx)
{
    return &sbx->info;
}

bool kg_sbx_is_lost(const kg_sbx_t *sbx)
{
    return sbx->lost;
}

void kg_sbx_on_lost(kg_sbx_t *sbx, kg_sbx_lost_fn *fn, void *user)
{
    sbx->on_lost = fn;
    sbx->on_lost_user = user;
}

/* Calls and processes hear of it first, then the owner, who may destroy it then. */
static void tell_lost(kg_sbx_t *sbx)
{
    const kg_exit_t gone = {.lost = true};
    sbx->refs++;
    kg_calls_fail(&sbx->calls, &sbx->lost_err);
    for (;;) {
        kg_proc_t *proc = sbx->procs;
        while (proc && proc->ended) {
            proc = proc->next;
        }
        if (!proc) {
            break;
        }
        kg_proc_set_exit(proc, &gone); /* may close any of them: start over */
    }
    if (sbx->on_lost && !sbx->destroyed) {
        sbx->on_lost(sbx->on_lost_user, &sbx->lost_err);
    }
    kg_sbx_unref(sbx);
}

static bool mark_lost(kg_sbx_t *sbx, const kg_err_t *err)
{
    if (sbx->lost) {
        return false;
    }
    sbx->lost = true;
    sbx->lost_err = *err;
    kg_chan_fini(&sbx->chan);
    return true;
}

void kg_sbx_set_lost(kg_sbx_t *sbx, const kg_err_t *err)
{
    if (mark_lost(sbx, err)) {
        tell_lost(sbx);
    }
}

static void tell_lost_later(void *user)
{
    kg_sbx_t *sbx = user;
    tell_lost(sbx);
    kg_sbx_unref(sbx);
}

void kg_sbx_set_lost_later(kg_sbx_t *sbx, const kg_err_t *err)
{
    if (mark_lost(sbx, err)) {
        sbx->refs++;
        (void)kg_loop_later(sbx->loop, tell_lost_later, sbx);
    }
}

static void broken(kg_sbx_t *sbx, const char *why)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "sandbox %s is lost: %s", sbx->info.id, why);
    kg_sbx_set_lost(sbx, &err);
}

/* ---- replies ---- */

static void take_usage(kg_sbx_t *sbx, const kg_ip_usage_t *reply)
{
    kg_err_t err = {0};
    kg_usage_t usage = {
        .cpu_ns = reply->cpu_ns,
        .rss_bytes = reply->rss_bytes,
        .peak_bytes = reply->peak_bytes,
        .processes = reply->processes,
    };
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, KG_IP_USAGE);

    if (call && !call->forgotten) {
        if (reply->error != 0) {
            (void)kg_err_set(&err, KG_ERR_NOT_FOUND, "the process is gone");
        }
        call->fn.usage(call->user, reply->error != 0 ? NULL : &usage,
                       reply->error != 0 ? &err : NULL);
    }
    free(call);
}

static void take_exit(kg_sbx_t *sbx, const kg_ip_exit_t *event, int *words)
{
    kg_proc_t *proc = kg_proc_find(sbx, event->token);
    kg_exit_t exit = {.cpu_ns = event->cpu_ns, .maxrss_bytes = event->maxrss_bytes};

    if (!proc) {
        return; /* closed meanwhile: the acknowledgement is on its way */
    }
    if (WIFSIGNALED(event->status)) {
        exit.signaled = true;
        exit.signal = WTERMSIG(event->status);
    } else {
        exit.exited = true;
        exit.code = WEXITSTATUS(event->status);
    }
    if (proc->words < 0) {
        proc->words = kg_take_fd(words);
    }
    kg_proc_set_exit(proc, &exit);
}

static void take_socket(kg_sbx_t *sbx, const kg_ip_result_t *reply, int *fd)
{
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, KG_IP_SOCKET_OPEN);
    if (call && !call->forgotten) {
        int result = reply->error != 0 ? reply->error : kg_take_fd(fd);
        call->fn.socket(call->user, result < 0 && reply->error == 0 ? -EIO : result);
    }
    free(call);
}

static void take_result(kg_sbx_t *sbx, const kg_ip_result_t *reply)
{
    kg_err_t err = {0};
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, reply->head.verb);

    if (call && call->fn.done && !call->forgotten) {
        if (reply->error != 0) {
            kg_err_code_t code = reply->error == -ENOSPC || reply->error == -EDQUOT
                                     ? KG_ERR_STORAGE_FULL
                                     : KG_ERR_INTERNAL;
            (void)kg_err_set(&err, code, "%s: %s", call->what, strerrordesc_np(-reply->error));
        }
        call->fn.done(call->user, reply->error != 0 ? &err : NULL);
    }
    free(call);
}

static void dispatch(kg_sbx_t *sbx,
                     const kg_ip_reply_t *reply,
                     const char *tail,
                     size_t tail_len,
                     int *fds,
                     size_t fd_count)
{
    if (kg_ip_verb_is_files(reply->head.verb)) {
        kg_files_take(sbx, &reply->files, tail, tail_len, &fds[0]);
        return;
    }
    switch (reply->head.verb) {
    case KG_IP_SPAWN:
    case KG_IP_ATTACH:
        kg_proc_take_spawned(sbx, &reply->spawned, fds, fd_count);
        return;
    case KG_IP_CONNECT:
        kg_files_take(sbx, &reply->files, tail, tail_len, &fds[0]);
        return;
    case KG_IP_EXIT:
        take_exit(sbx, &reply->exit, &fds[0]);
        return;
    case KG_IP_USAGE:
        take_usage(sbx, &reply->usage);
        return;
    case KG_IP_SOCKET_OPEN:
        take_socket(sbx, &reply->result, &fds[0]);
        return;
    case KG_IP_REPORT:
        kg_report_take(sbx, &reply->report);
        return;
    case KG_IP_REFUSED:
        broken(sbx, "its sandal-init refused a frame");
        return;
    default:
        take_result(sbx, &reply->result);
        return;
    }
}

static void on_readable(void *user)
{
    kg_sbx_t *sbx = user;

    sbx->refs++;
    for (int i = 0; i < KG_CHAN_BUDGET && !sbx->lost && !sbx->destroyed; i++) {
        char raw[KG_IP_REPLY_MAX];
        kg_ip_reply_t reply;
        const char *tail = NULL;
        size_t tail_len = 0;
        int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
        size_t fd_count = 0;
        size_t len = 0;
        int r = kg_seq_recv(sbx->chan.fd, raw, sizeof(raw), &len, fds, &fd_count);
        if (r == -EAGAIN) {
            break;
        }
        if (r == 0 && len == 0) {
            broken(sbx, "its first process is gone");
            break;
        }
        if (r == 0) {
            r = kg_ip_reply_decode_tail(raw, len, &reply, &tail, &tail_len);
        }
        if (r == 0) {
            dispatch(sbx, &reply, tail, tail_len, fds, fd_count);
        }
        for (size_t n = 0; n < fd_count; n++) {
            kg_closep(&fds[n]);
        }
        if (r < 0) {
            kg_log(KG_LOG_ERROR, "sandbox.protocol", "id=%s reason=%s", sbx->info.id,
                   strerrorname_np(-r));
            broken(sbx, "its sandal-init broke the protocol");
        }
    }
    kg_sbx_unref(sbx);
}

/* ---- requests ---- */

int kg_sbx_request(kg_sbx_t *sbx,
                   kg_ip_request_t *request,
                   size_t fixed,
                   const void *tail,
                   size_t tail_len,
                   kg_call_t *call)
{
    return kg_sbx_request_fd(sbx, request, fixed, (kg_slice_t){tail, tail_len}, -1, call);
}

int kg_sbx_request_fd(
    kg_sbx_t *sbx, kg_ip_request_t *request, size_t fixed, kg_slice_t tail, int fd, kg_call_t *call)
{
    if (sbx->lost) {
        return -EPIPE;
    }
    request->head.seq = ++sbx->seq;
    int r = kg_chan_send_fd(&sbx->chan, request, fixed, tail.data, tail.len, fd);
    if (r == 0 && call) {
        call->seq = request->head.seq;
        call->verb = request->head.verb;
        call->next = sbx->calls;
        sbx->calls = call;
    }
    return r;
}

static int
name_request(kg_sbx_t *sbx, kg_ip_verb_t verb, const char *name, kg_slice_t tail, kg_call_t call)
{
    kg_ip_request_t request;

    if (!kg_ip_name_valid(name)) {
        return -EINVAL;
    }
    if (tail.len > KG_IP_FILE_MAX) {
        return -E2BIG;
    }
    kg_call_t *copy = malloc(sizeof(*copy));
    if (!copy) {
        return -ENOMEM;
    }
    *copy = call;
    (void)snprintf(copy->what, sizeof(copy->what), "%s", name);
    size_t fixed = kg_ip_request_init(&request, verb, 0, tail.len);
    memcpy(request.name.name, name, strlen(name) + 1);
    int r = kg_sbx_request(sbx, &request, fixed, tail.data, tail.len, copy);
    if (r < 0) {
        free(copy);
    }
    return r;
}

int kg_sbx_socket_open(kg_sbx_t *sbx, const char *name, kg_socket_fn *fn, void *user)
{
    return name_request(sbx, KG_IP_SOCKET_OPEN, name, (kg_slice_t){0},
                        (kg_call_t){.user = user, .fn.socket = fn});
}

int kg_sbx_file_write(kg_sbx_t *sbx, const char *name, kg_slice_t bytes, kg_done_fn *fn, void *user)
{
    return name_request(sbx, KG_IP_FILE_WRITE, name, bytes,
                        (kg_call_t){.user = user, .fn.done = fn});
}

int kg_sbx_file_unlink(kg_sbx_t *sbx, const char *name, kg_done_fn *fn, void *user)
{
    return name_request(sbx, KG_IP_FILE_UNLINK, name, (kg_slice_t){0},
                        (kg_call_t){.user = user, .fn.done = fn});
}

bool kg_sbx_is_asked(const kg_sbx_t *sbx)
{
    for (const kg_call_t *call = sbx->calls; call; call = call->next) {
        bool needs = call->verb == KG_IP_SPAWN || call->verb == KG_IP_CONNECT ||
                     kg_ip_verb_is_files(call->verb);
        if (needs && !call->forgotten) {
            return true;
        }
    }
    return false;
}

void kg_sbx_forget(kg_sbx_t *sbx, const void *user)
{
    kg_call_forget(sbx->calls, user);
    if (sbx->on_lost_user == user) {
        sbx->on_lost = NULL;
    }
    if (sbx->keeper) {
        kg_box_forget(sbx->keeper, user);
    }
}

/* ---- the end ---- */

typedef struct kg_done_later {
    kg_done_fn *done;
    void *user;
} kg_done_later_t;

static void say_done(void *user)
{
    kg_done_later_t *later = user;
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "the keeper is gone; it ends the sandbox by itself");
    later->done(later->user, &err);
    free(later);
}

/* The keeper can't be asked: done hears of it in the next turn. */
static void done_without_keeper(kg_loop_t *loop, kg_done_fn *done, void *user)
{
    kg_done_later_t *later = done ? malloc(sizeof(*later)) : NULL;
    if (later) {
        *later = (kg_done_later_t){done, user};
        if (kg_loop_later(loop, say_done, later) < 0) {
            free(later);
        }
    }
}

static void fail_later(void *user)
{
    kg_sbx_t *sbx = user;
    kg_calls_fail(&sbx->calls, &sbx->lost_err);
    kg_sbx_unref(sbx);
}

void kg_sbx_destroy(kg_sbx_t **sbx, bool keep_files, kg_done_fn *done, void *user)
{
    const kg_exit_t gone = {.lost = true};
    kg_sbx_t *s = KG_TAKE(*sbx);

    if (!s) {
        return;
    }
    kg_keeper_t *keeper = s->keeper;
    s->destroyed = true;
    if (!s->lost) {
        s->lost = true;
        (void)kg_err_set(&s->lost_err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s was deleted",
                         s->info.id);
    }
    kg_chan_fini(&s->chan);
    while (s->procs) {
        kg_proc_t *proc = s->procs;
        s->procs = proc->next;
        proc->sbx = NULL;
        proc->next = NULL;
        kg_proc_set_exit_later(proc, &gone);
    }
    if (keeper) {
        kg_keeper_unlink_sbx(keeper, s);
    }
    if (!keeper || kg_keeper_kill(keeper, s->info.id, keep_files, done, user) < 0) {
        done_without_keeper(s->loop, done, user);
    }
    if (!s->calls || kg_loop_later(s->loop, fail_later, s) < 0) {
        kg_sbx_unref(s);
    }
}
