/* Processes in a sandbox, as the gateway sees them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/client_private.h"

/* ---- spawn ---- */

static int append_strings(kg_buf_t *buf, const char *const *strings, uint32_t *ret_count)
{
    uint32_t count = 0;
    for (; strings && strings[count]; count++) {
        size_t len = strlen(strings[count]) + 1;
        if (count == KG_IP_ARGS_MAX || len > KG_SBX_STRINGS_MAX - buf->len) {
            return -E2BIG;
        }
        if (kg_buf_append(buf, strings[count], len) < 0) {
            return -ENOMEM;
        }
    }
    *ret_count = count;
    return 0;
}

static int pack(const kg_spawn_opts_t *opts, kg_buf_t *buf, kg_ip_spawn_t *spawn)
{
    uint32_t one = 0;
    const char *cwd[] = {opts->cwd ? opts->cwd : "", NULL};

    int r = append_strings(buf, opts->argv, &spawn->argc);
    if (r == 0) {
        r = append_strings(buf, opts->env, &spawn->envc);
    }
    if (r == 0) {
        r = append_strings(buf, cwd, &one);
    }
    return r;
}

static int pack_error(int r, kg_err_t *err)
{
    if (r == -E2BIG) {
        return kg_err_set(err, KG_ERR_TOO_LARGE,
                          "arguments and environment are more than %d bytes or %d strings",
                          KG_SBX_STRINGS_MAX, KG_IP_ARGS_MAX);
    }
    if (r == -EPIPE) {
        return kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "the sandbox is gone");
    }
    return kg_err_set(err, kg_err_from_errno(r), "cannot start a process: %s", strerrordesc_np(-r));
}

int kg_sbx_spawn(
    kg_sbx_t *sbx, const kg_spawn_opts_t *opts, kg_spawned_fn *done, void *user, kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t buf = {0};
    kg_ip_request_t request;
    kg_ip_request_t packed = {0};

    if (!opts->argv || !opts->argv[0] || opts->argv[0][0] == '\0' || opts->umask_bits > 0777) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "a process needs a program");
    }
    if (opts->forked && (opts->root || opts->pty || opts->zygote)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "a zygote forks the user's processes alone");
    }
    if (opts->root && !sbx->info.has_root) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "a sandbox with isolation %s has no root user of its own",
                          sbx->info.isolation);
    }
    int r = pack(opts, &buf, &packed.spawn);
    if (r < 0) {
        return pack_error(r, err);
    }
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return pack_error(-ENOMEM, err);
    }
    size_t fixed = kg_ip_request_init(&request, KG_IP_SPAWN, 0, buf.len);
    request.spawn.argc = packed.spawn.argc;
    request.spawn.envc = packed.spawn.envc;
    request.spawn.token = ++sbx->tokens;
    request.spawn.nofile = opts->nofile;
    request.spawn.umask_bits = opts->umask_bits;
    request.spawn.flags = (opts->stdin_pipe ? KG_IP_SPAWN_STDIN_PIPE : 0) |
                          (opts->merge_stderr ? KG_IP_SPAWN_MERGE_STDERR : 0) |
                          (opts->last_words ? KG_IP_SPAWN_LAST_WORDS : 0) |
                          (opts->root ? KG_IP_SPAWN_ROOT : 0) | (opts->pty ? KG_IP_SPAWN_PTY : 0) |
                          (opts->zygote ? KG_IP_SPAWN_ZYGOTE : 0) |
                          (opts->forked ? KG_IP_SPAWN_FORKED : 0);
    request.spawn.columns = opts->columns;
    request.spawn.rows = opts->rows;
    call->fn.spawned = done;
    call->user = user;
    call->token = request.spawn.token;
    (void)snprintf(call->what, sizeof(call->what), "%s", opts->argv[0]);
    (void)snprintf(call->where, sizeof(call->where), "%s", opts->cwd ? opts->cwd : "");
    r = kg_sbx_request_fd(sbx, &request, fixed, kg_buf_slice(&buf),
                          opts->forked ? opts->zygote_sock : -1, call);
    if (r < 0) {
        free(call);
        return pack_error(r, err);
    }
    return 0;
}

/* It came to nothing before the program: for want of what the sandbox may have, or of files that
 * every process of it needs (its own hands may have removed them), or by our fault. */
static void
unstarted(const kg_call_t *call, unsigned step, int num, const char *why, kg_err_t *ret_err)
{
    switch (num) {
    case EAGAIN:
        (void)kg_err_set(ret_err, KG_ERR_QUOTA_EXCEEDED,
                         "cannot start \"%s\": the sandbox has no room for another process",
                         call->what);
        kg_err_hint(ret_err, KG_PIDS_HINT);
        ret_err->retry_after_s = 1;
        return;
    case ENOMEM:
        (void)kg_err_set(ret_err, KG_ERR_QUOTA_EXCEEDED,
                         "cannot start \"%s\": no memory is left for it", call->what);
        kg_err_hint(ret_err,
                    "End some of its processes, or make it with higher limits.memory_mib.");
        ret_err->retry_after_s = 1;
        return;
    case ENOENT:
    case ENOTDIR:
        (void)kg_err_set(ret_err, KG_ERR_CONFLICT,
                         "cannot start \"%s\": a file that every process needs (/dev/null and the "
                         "like) is missing in the sandbox",
                         call->what);
        kg_err_hint(ret_err, "Was it removed there? Make a new sandbox.");
        return;
    default:
        kg_log(KG_LOG_WARN, "process.unstarted", "step=%u error=%d", step, num);
        (void)kg_err_set(ret_err, KG_ERR_INTERNAL, "cannot start \"%s\": %s", call->what, why);
        return;
    }
}

static void spawn_error(const kg_call_t *call, const kg_ip_spawned_t *spawned, kg_err_t *ret_err)
{
    int num = -spawned->error;
    const char *why = strerrordesc_np(num);
    kg_err_code_t code = KG_ERR_INTERNAL;

    if (num == ENOENT || num == ENOTDIR) {
        code = KG_ERR_NOT_FOUND;
    } else if (num == EACCES || num == EPERM) {
        code = KG_ERR_FORBIDDEN;
    } else if (num == E2BIG) {
        code = KG_ERR_TOO_LARGE;
    } else if (num == EAGAIN) {
        code = KG_ERR_QUOTA_EXCEEDED;
    }
    why = why ? why : "unknown error";
    switch (spawned->step) {
    case KG_IP_STEP_CHDIR:
        (void)kg_err_set(ret_err, code, "cannot enter directory \"%s\": %s", call->where, why);
        kg_err_pointer(ret_err, "/cwd");
        return;
    case KG_IP_STEP_EXEC:
        (void)kg_err_set(ret_err, code, "cannot execute \"%s\": %s", call->what, why);
        return;
    case KG_IP_STEP_TIMEOUT:
        (void)kg_err_set(ret_err, KG_ERR_INTERNAL, "\"%s\" did not start in time", call->what);
        return;
    default:
        if (num == ENOTSUP && spawned->step == KG_IP_STEP_PIPE) {
            (void)kg_err_set(ret_err, KG_ERR_NOT_SUPPORTED,
                             "isolation gvisor gives programs no terminal");
            kg_err_pointer(ret_err, "/pty");
            return;
        }
        unstarted(call, spawned->step, num, why, ret_err);
        return;
    }
}

/* The host's number of the process that a pidfd stands for, as our own /proc has it; 0 when it is
 * not told. */
static pid_t pid_of(int pidfd)
{
    char path[48];
    char text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "\nPid:");
    long pid = at ? strtol(at + strlen("\nPid:"), NULL, 10) : 0;
    return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

kg_proc_t *kg_proc_new(kg_sbx_t *sbx, const kg_ip_spawned_t *spawned, int *fds, size_t fd_count)
{
    size_t at = 0;
    kg_proc_t *proc = calloc(1, sizeof(*proc));

    if (!proc) {
        return NULL;
    }
    proc->refs = 1;
    proc->sbx = sbx;
    proc->loop = sbx->loop;
    proc->token = spawned->token;
    proc->inner_pid = spawned->pid;
    proc->words = -1;
    for (int i = 0; i < 3; i++) {
        bool there = (spawned->fds & (1U << i)) && at < fd_count;
        proc->ends[i] = there ? kg_take_fd(&fds[at++]) : -1;
    }
    if (!sbx->info.own_root) { /* and so the host's pid namespace */
        proc->pid = spawned->pid;
    } else if ((spawned->fds & KG_IP_FD_PIDFD) && at < fd_count) {
        proc->pid = pid_of(fds[at]);
    }
    proc->next = sbx->procs;
    sbx->procs = proc;
    return proc;
}

/* A token that no other gateway of this sandbox has given: time since the machine's start, which
 * goes on while a sandbox lives. */
uint64_t kg_proc_first_token(void)
{
    return kg_boot_ns();
}

static void attach_error(const kg_ip_spawned_t *reply, kg_err_t *ret_err)
{
    if (reply->error == -ESRCH) {
        (void)kg_err_set(ret_err, KG_ERR_NOT_FOUND, "the sandbox knows no such process");
    } else {
        (void)kg_err_set(ret_err, KG_ERR_INTERNAL, "the sandbox cannot give its descriptors: %s",
                         strerrordesc_np(-reply->error));
    }
}

void kg_proc_take_spawned(kg_sbx_t *sbx, const kg_ip_spawned_t *reply, int *fds, size_t fd_count)
{
    kg_err_t err = {0};
    kg_proc_t *proc = NULL;
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, reply->head.verb);

    if (!call) {
        return;
    }
    bool spawned = call->verb == KG_IP_SPAWN;
    if (reply->error != 0 && spawned) {
        spawn_error(call, reply, &err);
    } else if (reply->error != 0) {
        attach_error(reply, &err);
    } else if (!call->forgotten) {
        kg_ip_spawned_t own = *reply;
        own.token = call->token; /* whatever it says */
        proc = kg_proc_new(sbx, &own, fds, fd_count);
        if (!proc) {
            (void)kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "out of memory");
        }
    }
    if (reply->error == 0 && !proc && spawned) { /* nobody will own it */
        kg_proc_send_token(sbx, KG_IP_KILL_TREE, call->token);
        kg_proc_send_token(sbx, KG_IP_ACK, call->token);
    }
    if (!call->forgotten) {
        call->fn.spawned(call->user, proc, proc ? NULL : &err);
    }
    free(call);
}

int kg_sbx_proc_attach(
    kg_sbx_t *sbx, uint64_t token, kg_spawned_fn *done, void *user, kg_err_t *err)
{
    kg_ip_request_t request;

    if (token == 0) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "no process has the token 0");
    }
    if (kg_proc_find(sbx, token)) {
        return kg_err_set(err, KG_ERR_CONFLICT, "the process is attached already");
    }
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return pack_error(-ENOMEM, err);
    }
    call->fn.spawned = done;
    call->user = user;
    call->token = token;
    size_t fixed = kg_ip_request_init(&request, KG_IP_ATTACH, 0, 0);
    request.token.token = token;
    int r = kg_sbx_request(sbx, &request, fixed, NULL, 0, call);
    if (r < 0) {
        free(call);
        return pack_error(r, err);
    }
    return 0;
}

kg_proc_t *kg_proc_find(kg_sbx_t *sbx, uint64_t token)
{
    kg_proc_t *proc = sbx->procs;
    while (proc && proc->token != token) {
        proc = proc->next;
    }
    return proc;
}

/* ---- a process ---- */

uint64_t kg_proc_token(const kg_proc_t *proc)
{
    return proc->token;
}

pid_t kg_proc_inner_pid(const kg_proc_t *proc)
{
    return proc->inner_pid;
}

pid_t kg_proc_pid(const kg_proc_t *proc)
{
    return proc->pid;
}

int kg_proc_take_stdin(kg_proc_t *proc)
{
    return kg_take_fd(&proc->ends[0]);
}

int kg_proc_take_stdout(kg_proc_t *proc)
{
    return kg_take_fd(&proc->ends[1]);
}

int kg_proc_take_stderr(kg_proc_t *proc)
{
    return kg_take_fd(&proc->ends[2]);
}

int kg_proc_take_last_words(kg_proc_t *proc)
{
    return kg_take_fd(&proc->words);
}

static void unref(kg_proc_t *proc)
{
    if (--proc->refs == 0) {
        for (int i = 0; i < 3; i++) {
            kg_closep(&proc->ends[i]);
        }
        kg_closep(&proc->words);
        free(proc);
    }
}

static void deliver(kg_proc_t *proc)
{
    if (proc->ended && !proc->delivered && proc->on_exit && !proc->closed) {
        proc->delivered = true;
        proc->on_exit(proc->on_exit_user, &proc->exit);
    }
}

static void deliver_later(void *user)
{
    kg_proc_t *proc = user;
    deliver(proc);
    unref(proc);
}

static void plan_delivery(kg_proc_t *proc)
{
    proc->refs++;
    if (kg_loop_later(proc->loop, deliver_later, proc) < 0) {
        unref(proc);
    }
}

void kg_proc_set_exit(kg_proc_t *proc, const kg_exit_t *exit)
{
    if (!proc->ended) {
        proc->ended = true;
        proc->exit = *exit;
        proc->refs++;
        deliver(proc);
        unref(proc);
    }
}

void kg_proc_set_exit_later(kg_proc_t *proc, const kg_exit_t *exit)
{
    if (!proc->ended) {
        proc->ended = true;
        proc->exit = *exit;
    }
    if (!proc->delivered) {
        plan_delivery(proc);
    }
}

void kg_proc_on_exit(kg_proc_t *proc, kg_exit_fn *fn, void *user)
{
    proc->on_exit = fn;
    proc->on_exit_user = user;
    if (proc->ended && !proc->delivered) {
        plan_delivery(proc);
    }
}

int kg_proc_signal(kg_proc_t *proc, int signo, bool group)
{
    kg_ip_request_t request;

    if (signo < 1 || signo > 64) {
        return -EINVAL;
    }
    if (proc->ended || !proc->sbx || proc->sbx->lost) {
        return -ESRCH;
    }
    size_t fixed = kg_ip_request_init(&request, KG_IP_SIGNAL, 0, 0);
    request.signal.token = proc->token;
    request.signal.signo = (uint32_t)signo;
    request.signal.group = group;
    return kg_sbx_request(proc->sbx, &request, fixed, NULL, 0, NULL);
}

void kg_proc_send_token(kg_sbx_t *sbx, kg_ip_verb_t verb, uint64_t token)
{
    kg_ip_request_t request;
    size_t fixed = kg_ip_request_init(&request, verb, 0, 0);
    request.token.token = token;
    (void)kg_sbx_request(sbx, &request, fixed, NULL, 0, NULL);
}

int kg_proc_kill_tree(kg_proc_t *proc)
{
    if (!proc->sbx || proc->sbx->lost) {
        return -ESRCH;
    }
    kg_proc_send_token(proc->sbx, KG_IP_KILL_TREE, proc->token);
    return 0;
}

int kg_proc_usage(kg_proc_t *proc, kg_usage_fn *fn, void *user)
{
    kg_ip_request_t request;

    if (!proc->sbx || proc->sbx->lost) {
        return -ESRCH;
    }
    kg_call_t *call = calloc(1, sizeof(*call));
    if (!call) {
        return -ENOMEM;
    }
    call->fn.usage = fn;
    call->user = user;
    call->proc = proc;
    size_t fixed = kg_ip_request_init(&request, KG_IP_USAGE, 0, 0);
    request.token.token = proc->token;
    int r = kg_sbx_request(proc->sbx, &request, fixed, NULL, 0, call);
    if (r < 0) {
        free(call);
    }
    return r;
}

static void unlink_proc(kg_proc_t *proc)
{
    for (kg_proc_t **at = &proc->sbx->procs; *at; at = &(*at)->next) {
        if (*at == proc) {
            *at = proc->next;
            break;
        }
    }
    for (kg_call_t *call = proc->sbx->calls; call; call = call->next) {
        if (call->proc == proc) {
            call->forgotten = true;
        }
    }
    proc->sbx = NULL;
}

void kg_proc_close(kg_proc_t **proc)
{
    kg_proc_t *p = KG_TAKE(*proc);

    if (!p) {
        return;
    }
    if (p->sbx) {
        kg_proc_send_token(p->sbx, KG_IP_ACK, p->token);
        unlink_proc(p);
    }
    p->closed = true;
    unref(p);
}
