/* The gateway as a child of the keeper: started without rights, started again after a crash,
 * stopped in order. It ends by a signal = crash; it ends by a code = it meant to, and the keeper
 * ends with the same code. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/seqsock.h"

#define GATEWAY_FD 3
#define RESTART_WINDOW_NS (UINT64_C(60) * KG_NS_PER_S)
#define RESTART_FIRST_NS (UINT64_C(100) * KG_NS_PER_MS)
#define RESTARTS_MAX KG_ARRAY_LEN(((kg_keeper_t *)NULL)->restarts)

static bool has_no_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    if (syscall(SYS_capget, &head, data) < 0) {
        return false;
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(data); i++) {
        if (data[i].effective || data[i].permitted || data[i].inheritable) {
            return false;
        }
    }
    return true;
}

static int drop_rights(const kg_keeper_t *k)
{
    if (k->gateway_uid != 0) {
        for (unsigned long cap = 0; cap <= 63; cap++) {
            if (prctl(PR_CAPBSET_READ, cap) == 1 && prctl(PR_CAPBSET_DROP, cap) < 0) {
                return -errno;
            }
        }
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if (setgroups(0, NULL) < 0 ||
            setresgid(k->gateway_gid, k->gateway_gid, k->gateway_gid) < 0 ||
            setresuid(k->gateway_uid, k->gateway_uid, k->gateway_uid) < 0) {
            return -errno;
        }
        if (!has_no_capabilities()) {
            return -EPERM;
        }
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* In the child, until exec. */
static int become_gateway(const kg_keeper_t *k, int sock)
{
    sigset_t none;
    if (dup2(sock, GATEWAY_FD) < 0 ||
        fcntl(GATEWAY_FD, F_SETFD, 0) < 0) { /* dup2 to itself keeps the flag */
        return -errno;
    }
    if (k->host.is_root) {
        (void)setpriority(PRIO_PROCESS, 0, 0);
    }
    int r = drop_rights(k);
    if (r < 0) {
        return r;
    }
    (void)close_range(GATEWAY_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    execv(k->opts.gateway_exe, k->opts.gateway_argv);
    return -errno;
}

int keeper_gateway_start(kg_keeper_t *k)
{
    int pair[2];
    int r = kg_seq_pair(pair);
    if (r < 0) {
        return r;
    }
    k->restart_ns = KEEPER_NEVER;
    k->hello_done = false;
    pid_t pid = fork();
    if (pid == 0) {
        r = become_gateway(k, pair[1]);
        (void)dprintf(2, "sandal-keeper: cannot start %s: %s\n", k->opts.gateway_exe,
                      strerrordesc_np(-r));
        _exit(127);
    }
    close(pair[1]);
    if (pid < 0) {
        r = -errno;
        close(pair[0]);
        return r;
    }
    k->gateway_sock = pair[0];
    k->gateway_pid = pid;
    kg_log(KG_LOG_INFO, "gateway.started", "pid=%d uid=%u", pid,
           k->gateway_uid ? k->gateway_uid : getuid());
    return 0;
}

/* Nobody waits for answers any more; what is being ended is ended all the same. */
static void drop_socket(kg_keeper_t *k)
{
    keeper_out_clear(k);
    kg_closep(&k->gateway_sock);
    keeper_errands_mute(k);
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        sb->replied = sb->replied || sb->kill_asked;
        sb->make_failed = false;
        if (sb->state == KG_KP_DEAD || sb->state == KG_KP_ENDING) {
            sb->orphaned = true;
        }
        if (sb->state == KG_KP_DEAD) {
            keeper_end_sandbox(k, sb);
        }
    }
}

void keeper_gateway_lost(kg_keeper_t *k)
{
    drop_socket(k);
    if (k->opts.serve_fd3) {
        keeper_end_all(k);
        k->stopping = true;
        k->gateway_done = true;
    } else if (k->gateway_pid > 0 && !k->stopping) {
        /* It has closed the socket but lives: it can't do anything any more, and is about to go, or
         * mad. */
        k->kill_gateway_ns = kg_now_ns() + 5 * KG_NS_PER_S;
    }
}

/* A gateway that cannot start, as for a port that another program has, or that keeps crashing, is
 * no reason to end what lives: it is left as a keeper that is killed leaves it, until the next one
 * adopts it or its time as an orphan is over. Where nothing lives all is given back as at any stop:
 * what was being made is nobody's yet, and a helper that stays would have the network's addresses.
 */
static void leave(kg_keeper_t *k, const char *reason)
{
    unsigned running = 0;
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        running += sb->state == KG_KP_RUNNING;
    }
    if (running == 0) {
        keeper_end_all(k);
        return;
    }
    k->leaving = true;
    kg_log(KG_LOG_WARN, "keeper.left_sandboxes", "sandboxes=%u reason=\"%s\" orphan_timeout_s=%llu",
           running, reason, (unsigned long long)k->opts.orphan_timeout_s);
}

static void plan_restart(kg_keeper_t *k)
{
    uint64_t now_ns = kg_now_ns();
    unsigned recent = 0;

    for (size_t i = 0; i < RESTARTS_MAX; i++) {
        recent += k->restarts[i] != 0 && now_ns - k->restarts[i] < RESTART_WINDOW_NS;
    }
    if (recent == RESTARTS_MAX) {
        kg_log(KG_LOG_ERROR, "gateway.given_up", "restarts=%u window_s=60", recent);
        k->gateway_done = true;
        k->stopping = true;
        k->exit_code = 1;
        leave(k, "the gateway keeps crashing");
        return;
    }
    k->restarts[k->restart_count++ % RESTARTS_MAX] = now_ns;
    k->restart_ns = now_ns + (RESTART_FIRST_NS << recent);
}

void keeper_gateway_exited(kg_keeper_t *k, int wait_status)
{
    bool crashed = WIFSIGNALED(wait_status);
    int code = crashed ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

    k->gateway_pid = 0;
    k->kill_gateway_ns = KEEPER_NEVER;
    drop_socket(k);
    kg_log(crashed || code != 0 ? KG_LOG_ERROR : KG_LOG_INFO,
           crashed ? "gateway.crashed" : "gateway.exited", "code=%d signal=%d", code,
           crashed ? WTERMSIG(wait_status) : 0);
    if (crashed && !k->stopping) { /* the next one finds the sandboxes as they are */
        plan_restart(k);
        return;
    }
    if (code != 0 && !k->stopping) {
        leave(k, "the gateway did not start");
    } else {
        keeper_end_all(k);
    }
    k->exit_code = code;
    k->gateway_done = true;
    k->stopping = true;
}

void keeper_stop(kg_keeper_t *k)
{
    if (k->stopping) {
        return;
    }
    k->stopping = true;
    if (k->gateway_pid > 0) {
        (void)kill(k->gateway_pid, SIGTERM);
        k->kill_gateway_ns = kg_now_ns() + k->opts.stop_timeout_s * KG_NS_PER_S;
        return;
    }
    k->restart_ns = KEEPER_NEVER;
    k->gateway_done = true;
    keeper_end_all(k);
}

/* Nothing of an earlier keeper is in between: a gateway that lists and attaches sees how it is. */
static bool keeper_settled(const kg_keeper_t *k)
{
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->orphaned && (sb->state == KG_KP_ENDING || sb->state == KG_KP_REMOVING)) {
            return false;
        }
    }
    return !keeper_adopting(k);
}

uint64_t keeper_gateway_step(kg_keeper_t *k, uint64_t now_ns)
{
    if (k->gateway_pid > 0 && k->kill_gateway_ns <= now_ns) {
        kg_log(KG_LOG_WARN, "gateway.killed", "reason=%s",
               k->stopping ? "stop_timeout" : "socket_closed");
        (void)kill(k->gateway_pid, SIGKILL);
        k->kill_gateway_ns = KEEPER_NEVER;
    }
    if (k->restart_ns <= now_ns && keeper_settled(k)) { /* what ends wakes the loop for it */
        if (keeper_gateway_start(k) < 0) {
            k->restart_ns = now_ns + KG_NS_PER_S;
        }
    }
    uint64_t next = k->restart_ns < k->kill_gateway_ns ? k->restart_ns : k->kill_gateway_ns;
    return next <= now_ns ? KEEPER_NEVER : next;
}
