/* The processes of a sandbox as sandal-init keeps them: started through a minder each, their ends
 * held until acknowledged. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

kg_iproc_t *init_find(kg_init_t *in, uint64_t token)
{
    for (kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        if (proc->token == token && proc->state != KG_IPROC_FAILED) {
            return proc;
        }
    }
    return NULL;
}

static void close_ends(int ends[3])
{
    for (int i = 0; i < 3; i++) {
        kg_closep(&ends[i]);
    }
}

/* With its descriptors, those of them that are still here, and a pidfd by which the host's number
 * of it can be seen. How many. -errno in error where one could not be copied: it is not among them.
 */
static size_t give_ends(kg_iproc_t *proc, uint32_t *ret_mask, int fds[4], int *ret_error)
{
    size_t count = 0;
    for (int i = 0; i < 3; i++) {
        bool copied = proc->keep && proc->ends[i] >= 0;
        int fd = copied ? fcntl(proc->ends[i], F_DUPFD_CLOEXEC, 0) : kg_take_fd(&proc->ends[i]);
        if (copied && fd < 0) {
            *ret_error = -errno;
        }
        if (fd >= 0) {
            *ret_mask |= 1U << i;
            fds[count++] = fd;
        }
    }
    int pidfd = proc->pidfd >= 0 ? fcntl(proc->pidfd, F_DUPFD_CLOEXEC, 0) : -1;
    if (pidfd >= 0) {
        *ret_mask |= KG_IP_FD_PIDFD;
        fds[count++] = pidfd;
    }
    return count;
}

static void reply_spawn(kg_init_t *in, kg_iproc_t *proc, int error, uint32_t step)
{
    kg_ip_reply_t reply;
    int fds[4];
    size_t count = 0;

    (void)kg_ip_reply_init(&reply, KG_IP_SPAWN, proc->spawn_seq);
    reply.spawned.token = proc->token;
    reply.spawned.error = error;
    reply.spawned.step = step;
    reply.spawned.pid = proc->pid;
    if (error == 0) { /* it runs: who misses an end sees it by the mask */
        int missing = 0;
        count = give_ends(proc, &reply.spawned.fds, fds, &missing);
    }
    if (error != 0 || !proc->keep) {
        close_ends(proc->ends);
    }
    proc->deadline_ns = INIT_NEVER;
    init_send(in, &reply, fds, count);
}

void init_attach(kg_init_t *in, const kg_ip_token_t *request)
{
    kg_ip_reply_t reply;
    kg_iproc_t *proc = init_find(in, request->token);
    int fds[4];
    size_t count = 0;

    (void)kg_ip_reply_init(&reply, KG_IP_ATTACH, request->head.seq);
    reply.spawned.token = request->token;
    if (!proc || proc->state == KG_IPROC_STARTING || proc->acked) {
        reply.spawned.error = -ESRCH;
    } else {
        reply.spawned.pid = proc->pid;
        proc->exit_sent = false;
        count = give_ends(proc, &reply.spawned.fds, fds, &reply.spawned.error);
    }
    if (reply.spawned.error != 0) {
        reply.spawned.pid = 0;
        reply.spawned.fds = 0;
        while (count > 0) {
            kg_closep(&fds[--count]);
        }
    }
    init_send(in, &reply, fds, count);
}

static int make_pipe(int *ret_inner, int *ret_outer, bool inner_reads)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return -errno;
    }
    *ret_inner = inner_reads ? fds[0] : fds[1];
    *ret_outer = inner_reads ? fds[1] : fds[0];
    return fcntl(*ret_outer, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0; /* of this end alone */
}

int init_make_pipes(const kg_ip_spawn_t *spawn, int inner[3], int outer[3])
{
    int r = 0;
    if (spawn->flags & KG_IP_SPAWN_STDIN_PIPE) {
        r = make_pipe(&inner[0], &outer[0], true);
    }
    if (r == 0) {
        r = make_pipe(&inner[1], &outer[1], false);
    }
    if (r == 0 && !(spawn->flags & KG_IP_SPAWN_MERGE_STDERR)) {
        r = make_pipe(&inner[2], &outer[2], false);
    }
    return r;
}

/* Made by who asks: nothing can be handed out of here. */
static int take_pipes(kg_init_t *in, const kg_ip_spawn_t *spawn, int inner[3])
{
    const bool wanted[3] = {(spawn->flags & KG_IP_SPAWN_STDIN_PIPE) != 0, true,
                            !(spawn->flags & KG_IP_SPAWN_MERGE_STDERR)};
    size_t at = 0;

    for (int i = 0; i < 3; i++) {
        if (wanted[i] && (inner[i] = kg_take_fd(&in->given[at++])) < 0) {
            return -EBADF;
        }
    }
    return 0;
}

static int get_pipes(kg_init_t *in, const kg_ip_spawn_t *spawn, kg_iproc_t *proc, int inner[3])
{
    if (in->flags & KG_INIT_FLAG_INNER) {
        return spawn->flags & KG_IP_SPAWN_PTY ? -ENOTSUP : take_pipes(in, spawn, inner);
    }
    return spawn->flags & KG_IP_SPAWN_PTY ? init_pty_open(in, spawn, inner, &proc->ends[1])
                                          : init_make_pipes(spawn, inner, proc->ends);
}

/* What was asked for; borrowed. */
typedef struct kg_order {
    const kg_ip_spawn_t *spawn;
    char *strings;
    size_t len;
    int zygote;
} kg_order_t;

/* Pipes, the minder's socket and the minder. On failure everything made is closed by the caller. */
static int
start(kg_init_t *in, const kg_order_t *order, kg_iproc_t *proc, int inner[3], uint32_t *ret_step)
{
    const kg_ip_spawn_t *spawn = order->spawn;
    int pair[2] = {-1, -1};

    *ret_step = KG_IP_STEP_PIPE;
    int r = get_pipes(in, spawn, proc, inner);
    if (r == 0) {
        r = kg_seq_pair(pair);
    }
    if (r < 0) {
        return r;
    }
    if (spawn->flags & KG_IP_SPAWN_FORKED) {
        *ret_step = KG_IP_STEP_FORK;
        r = init_order(in, spawn, order->strings, order->len, inner, pair[1], order->zygote);
        close(pair[1]);
        proc->foster = true;
        proc->minder_sock = pair[0]; /* of a zygote that does nothing it reads as ended */
        return r;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        init_minder_run(in, spawn, order->strings, inner, pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        *ret_step = KG_IP_STEP_FORK;
        r = -errno;
        close(pair[0]);
        return r;
    }
    proc->minder = pid;
    proc->minder_sock = pair[0];
    return 0;
}

void init_spawn(kg_init_t *in, const kg_ip_spawn_t *spawn, char *strings, size_t len, int zygote)
{
    kg_order_t order = {.spawn = spawn, .len = len, .zygote = zygote};
    int inner[3] = {-1, -1, -1};
    uint32_t step = KG_IP_STEP_FORK;
    int r = -ENOMEM;
    kg_iproc_t spare = {.token = spawn->token, .spawn_seq = spawn->head.seq, .ends = {-1, -1, -1}};
    kg_iproc_t *proc = in->proc_count < KG_IP_PROCS_MAX ? calloc(1, sizeof(*proc)) : NULL;

    order.strings = strings; /* the minder cuts them up */
    if (init_find(in, spawn->token)) {
        r = -EEXIST;
    } else if ((spawn->flags & KG_IP_SPAWN_ROOT) && !(in->flags & KG_INIT_FLAG_HAS_ROOT)) {
        step = KG_IP_STEP_USER;
        r = -ENOTSUP;
    } else if ((spawn->flags & KG_IP_SPAWN_FORKED) && (in->entry_count == 0 || zygote < 0)) {
        r = -ENOTSUP;
    } else if (in->proc_count >= KG_IP_PROCS_MAX) {
        r = -EAGAIN;
    } else if (proc) {
        *proc = spare;
        proc->state = KG_IPROC_STARTING;
        proc->minder_sock = -1;
        proc->pidfd = -1;
        proc->words = -1;
        proc->keep = (spawn->flags & KG_IP_SPAWN_LAST_WORDS) != 0;
        proc->deadline_ns = kg_now_ns() + INIT_SPAWN_DEADLINE_NS;
        r = start(in, &order, proc, inner, &step);
    }
    close_ends(inner);
    if (r < 0) {
        if (proc) {
            close_ends(proc->ends);
            kg_closep(&proc->minder_sock);
            free(proc);
        }
        reply_spawn(in, &spare, r, step);
        return;
    }
    proc->next = in->procs;
    in->procs = proc;
    in->proc_count++;
}

static void ended(kg_iproc_t *proc, int status)
{
    if (proc->state == KG_IPROC_RUNNING) {
        proc->state = KG_IPROC_ENDED;
        proc->status = status;
    }
}

static void start_failed(kg_init_t *in, kg_iproc_t *proc, int error, uint32_t step)
{
    proc->state = KG_IPROC_FAILED;
    reply_spawn(in, proc, error, step);
}

/* Its numbers get signals: never 1, nor what stands for many. */
static bool started_ok(const kg_iproc_t *proc, const kg_minder_msg_t *msg)
{
    return !proc->foster || (msg->pid > 1 && msg->minder > 1 && msg->pid != msg->minder);
}

/* Of a minder that we don't reap. */
static void foster_gone(kg_init_t *in, kg_iproc_t *proc)
{
    proc->minder = 0;
    if (proc->state == KG_IPROC_STARTING) {
        start_failed(in, proc, -ECHILD, KG_IP_STEP_FORK);
    }
}

static void minder_said(kg_init_t *in, kg_iproc_t *proc, const kg_minder_msg_t *msg)
{
    switch (msg->kind) {
    case KG_MINDER_STARTED:
        if (proc->state == KG_IPROC_STARTING && started_ok(proc, msg)) {
            proc->state = KG_IPROC_RUNNING;
            proc->pid = msg->pid;
            proc->minder = proc->foster ? msg->minder : proc->minder;
            reply_spawn(in, proc, 0, KG_IP_STEP_NONE);
        }
        return;
    case KG_MINDER_FAILED:
        if (proc->state == KG_IPROC_STARTING) {
            start_failed(in, proc, msg->error, msg->step);
        }
        return;
    default:
        proc->cpu_ns = msg->cpu_ns;
        proc->maxrss_bytes = msg->maxrss_bytes;
        ended(proc, msg->status);
        return;
    }
}

void init_read_minder(kg_init_t *in, kg_iproc_t *proc)
{
    for (;;) {
        kg_minder_msg_t msg;
        int fds[KG_SEQ_FDS_MAX];
        size_t count = 0;
        size_t len = 0;
        int r = kg_seq_recv(proc->minder_sock, &msg, sizeof(msg), &len, fds, &count);
        if (r == -EAGAIN) {
            return;
        }
        if (r < 0 || len != sizeof(msg)) {
            kg_closep(&proc->minder_sock); /* its exit comes by SIGCHLD */
            if (proc->foster) {
                foster_gone(in, proc);
            }
            return;
        }
        int *place = msg.kind == KG_MINDER_EXITED ? &proc->words : &proc->pidfd;
        for (size_t i = 0; i < count; i++) {
            if (*place < 0) {
                *place = kg_take_fd(&fds[i]);
            }
            kg_closep(&fds[i]);
        }
        minder_said(in, proc, &msg);
    }
}

void init_child_exited(kg_init_t *in, pid_t pid, int status)
{
    if (init_job_exited(in, pid)) {
        return;
    }
    for (kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        if (proc->minder == pid) {
            if (proc->minder_sock >= 0) {
                init_read_minder(in, proc); /* its last words come first */
            }
            proc->minder = 0;
            if (proc->state == KG_IPROC_STARTING) {
                start_failed(in, proc, -ECHILD, KG_IP_STEP_FORK);
            }
            return;
        }
        if (proc->pid == pid &&
            proc->state == KG_IPROC_RUNNING) { /* its minder was killed, it fell to us */
            ended(proc, status);
            return;
        }
    }
}

/* Nobody will ask again: what lives on of it must not wait for a reader. */
void init_ack(kg_iproc_t *proc)
{
    proc->acked = true;
    close_ends(proc->ends);
}

void init_send_exits(kg_init_t *in)
{
    for (kg_iproc_t *proc = in->procs; proc && in->gateway >= 0; proc = proc->next) {
        kg_ip_reply_t event;
        if (proc->state != KG_IPROC_ENDED || proc->exit_sent || proc->acked || in->out_first) {
            continue;
        }
        (void)kg_ip_reply_init(&event, KG_IP_EXIT, 0);
        event.exit.token = proc->token;
        event.exit.status = proc->status;
        event.exit.cpu_ns = proc->cpu_ns;
        event.exit.maxrss_bytes = proc->maxrss_bytes;
        proc->exit_sent = true;
        int words = proc->words >= 0 ? fcntl(proc->words, F_DUPFD_CLOEXEC, 0) : -1;
        init_send(in, &event, &words, words >= 0); /* ours stays: the next gateway may want it */
    }
}

int init_signal(kg_iproc_t *proc, int signo, bool group)
{
    if (proc->state != KG_IPROC_RUNNING) {
        return -ESRCH;
    }
    if (group) { /* the leader lives, or is a child not yet reaped, so the number is still its
                    group's */
        return kill(-proc->pid, signo) < 0 ? -errno : 0;
    }
    if (proc->pidfd >= 0) {
        return syscall(SYS_pidfd_send_signal, proc->pidfd, signo, NULL, 0) < 0 ? -errno : 0;
    }
    return kill(proc->pid, signo) < 0 ? -errno : 0;
}

static void drop(kg_init_t *in, kg_iproc_t **at)
{
    kg_iproc_t *proc = *at;
    *at = proc->next;
    in->proc_count--;
    kg_closep(&proc->minder_sock);
    kg_closep(&proc->pidfd);
    kg_closep(&proc->words);
    close_ends(proc->ends);
    free(proc);
}

void init_drop_all(kg_init_t *in)
{
    while (in->procs) {
        drop(in, &in->procs);
    }
}

static bool over(const kg_iproc_t *proc)
{
    if (proc->minder != 0) {
        return false; /* descendants live */
    }
    return proc->state == KG_IPROC_FAILED || (proc->state == KG_IPROC_ENDED && proc->acked);
}

static void kill_step(kg_iproc_t *proc, uint64_t now_ns)
{
    size_t left = proc->minder ? init_kill_descendants(proc->minder) : 0;

    if (proc->state == KG_IPROC_RUNNING) { /* also when its minder was killed */
        (void)init_signal(proc, SIGKILL, true);
        (void)init_signal(proc, SIGKILL, false);
    }
    if (left == 0 && proc->state != KG_IPROC_STARTING) {
        proc->killing = false;
        return;
    }
    proc->kill_next_ns = now_ns + proc->kill_gap_ns;
    proc->kill_gap_ns =
        proc->kill_gap_ns * 2 < INIT_KILL_GAP_MAX_NS ? proc->kill_gap_ns * 2 : INIT_KILL_GAP_MAX_NS;
}

uint64_t init_procs_step(kg_init_t *in, uint64_t now_ns)
{
    uint64_t next = INIT_NEVER;
    kg_iproc_t **at = &in->procs;

    while (*at) {
        kg_iproc_t *proc = *at;
        if (over(proc)) {
            drop(in, at);
            continue;
        }
        if (proc->state == KG_IPROC_STARTING && proc->deadline_ns <= now_ns) {
            start_failed(in, proc, -ETIMEDOUT, KG_IP_STEP_TIMEOUT);
            proc->killing = true;
            proc->kill_gap_ns = INIT_KILL_GAP_NS;
        }
        if (proc->killing && proc->kill_next_ns <= now_ns) {
            kill_step(proc, now_ns);
        }
        next = proc->killing && proc->kill_next_ns < next ? proc->kill_next_ns : next;
        next =
            proc->state == KG_IPROC_STARTING && proc->deadline_ns < next ? proc->deadline_ns : next;
        at = &proc->next;
    }
    return next;
}
