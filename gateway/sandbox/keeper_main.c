/* sandal-keeper: parent of the gateway and of every sandbox. Small on purpose: libc only, one poll
 * loop, fixed-size requests. It does what needs rights, and believes nothing that the gateway says.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/proctree.h"

#define SERVE_FD 3
#define LEAVE_NS                                                                                   \
    (UINT64_C(15) * KG_NS_PER_S) /* after that the keeper ends though something won't die */

static int die(const char *what, int r)
{
    (void)fprintf(stderr, "sandal-keeper: %s: %s\n", what, strerrordesc_np(-r));
    return r;
}

static int find_user(kg_keeper_t *k)
{
    if (k->opts.serve_fd3 || !k->host.is_root) {
        return 0;
    }
    if (k->opts.gateway_user[0] == '\0') {
        kg_log(KG_LOG_WARN, "gateway.runs_as_root", "reason=\"no --gateway-user\"");
        return 0;
    }
    errno = 0;
    const struct passwd *pw =
        getpwnam(k->opts.gateway_user); // NOLINT(concurrency-mt-unsafe): one thread
    if (!pw) {
        (void)fprintf(stderr, "sandal-keeper: there is no user \"%s\"\n", k->opts.gateway_user);
        return -ENOENT;
    }
    if (pw->pw_uid == 0 ||
        (pw->pw_uid >= k->host.uid_base && pw->pw_uid - k->host.uid_base < k->opts.uid_count)) {
        (void)fprintf(stderr, "sandal-keeper: user \"%s\" is root or in the sandboxes' uid range\n",
                      k->opts.gateway_user);
        return -EINVAL;
    }
    k->gateway_uid = pw->pw_uid;
    k->gateway_gid = pw->pw_gid;
    return 0;
}

static int block_signals(kg_keeper_t *k)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    int r = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (r != 0) {
        return -r;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* the log's reader may go away */
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd < 0 ? -errno : 0;
}

/* A keeper of another state directory that was killed had this range, and its sandboxes live: with
 * their uids a sandbox of ours would share files and signals with them. */
static void leave_to_others(kg_keeper_t *k, uint32_t slot, pid_t pid)
{
    if (k->slot_used[slot] == KG_SLOT_FREE) {
        k->slot_used[slot] = KG_SLOT_FOREIGN;
        kg_log(KG_LOG_WARN, "uids.of_others",
               "slot=%u pid=%d remark=\"not used before the next start: they are a process's that "
               "no sandbox of this daemon knows\"",
               slot, pid);
    }
}

/* Processes that an earlier keeper's sandboxes left behind; their sandal-init is at it too. */
static void end_leftovers(kg_keeper_t *k)
{
    kg_tasks_t tasks = {0};

    if (!k->host.is_root || kg_tasks_scan(&tasks) < 0) {
        return;
    }
    for (size_t i = 0; i < tasks.count; i++) {
        uid_t uid;
        uint32_t slot;
        if (kg_task_is_dead(&tasks.items[i]) || kg_task_uid(tasks.items[i].pid, &uid) < 0 ||
            keeper_slot_of(k, uid, &slot) < 0) {
            continue;
        }
        leave_to_others(k, slot, tasks.items[i].pid);
        for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
            if (sb->slot == slot && sb->state == KG_KP_DORMANT) {
                kg_log(KG_LOG_WARN, "sandbox.leftover", "id=%s pid=%d", sb->id, tasks.items[i].pid);
                sb->state = KG_KP_ENDING;
                sb->orphaned = true;
                sb->ending_since_ns = kg_now_ns();
            }
        }
    }
    kg_tasks_fini(&tasks);
}

static int setup(kg_keeper_t *k)
{
    struct rlimit files;

    k->host.init_exe = k->opts.init_exe;
    k->host.orphan_s = (unsigned)k->opts.orphan_timeout_s;
    k->host.roots = k->opts.roots;
    k->host.root_count = k->opts.root_count;
    k->host.shown = k->opts.shown;
    k->host.shown_count = k->opts.shown_count;
    k->host.is_root = geteuid() == 0;
    k->host.asks = k->opts.serve_fd3 && k->opts.prepare;
    k->host.uid_base = (uid_t)k->opts.uid_base;
    k->host.slot_count = (uint32_t)(k->opts.uid_count / KG_UID_RANGE);
    k->slot_used = calloc(k->host.slot_count, 1);
    if (!k->slot_used) {
        return die("start", -ENOMEM);
    }
    (void)umask(022);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (k->host.is_root) { /* what ends a fork bomb must get its turn; the gateway and the sandboxes
                              go back to 0 */
        (void)setpriority(PRIO_PROCESS, 0, KEEPER_NICE);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int r = find_user(k);
    if (r == 0) {
        r = keeper_open_dirs(k); /* before it, nothing is made or touched */
    }
    if (r < 0) {
        return r;
    }
    r = block_signals(k);
    if (r == 0) {
        r = keeper_host_open(k);
    }
    if (r == 0) {
        r = keeper_adopt(k);
    }
    if (r == 0) {
        r = keeper_adopt_dirs(k);
    }
    if (r < 0) {
        return die("start", r);
    }
    keeper_clear_runtime(k);
    end_leftovers(k);
    if (k->opts.serve_fd3) {
        k->gateway_sock = SERVE_FD;
        return fcntl(SERVE_FD, F_SETFD, FD_CLOEXEC) < 0 ? die("fd 3", -errno) : 0;
    }
    k->restart_ns = kg_now_ns(); /* as soon as no leftover lives */
    return 0;
}

static void reap(kg_keeper_t *k)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        kg_sb_t *sb;
        kg_errand_t *errand;
        if (pid == k->gateway_pid) {
            keeper_gateway_exited(k, status);
        } else if ((sb = keeper_find_init(k, pid)) != NULL) {
            keeper_init_exited(k, sb, status);
        } else if ((sb = keeper_find_worker(k, pid)) != NULL) {
            keeper_worker_exited(k, sb, status);
        } else if ((errand = keeper_errand_of(k, pid)) != NULL) {
            keeper_errand_exited(k, errand);
        } else if (k->nets_open && pid == k->host.nets.helper && !k->stopping) {
            keeper_nets_revive(k, status);
        } else if (k->nets_open && pid == k->host.nets.router && !k->stopping) {
            (void)kg_nets_reroute(&k->host.nets);
        } /* else a stray of a sandbox that is ending */
    }
}

static void read_signals(kg_keeper_t *k)
{
    struct signalfd_siginfo info;
    while (read(k->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            reap(k);
        } else if (info.ssi_signo == SIGHUP) {
            if (k->gateway_pid > 0) {
                (void)kill(k->gateway_pid, SIGHUP);
            }
        } else {
            kg_log(KG_LOG_INFO, "keeper.stopping", "signal=%u", info.ssi_signo);
            keeper_stop(k);
        }
    }
}

static int timeout_ms(uint64_t next_ns, uint64_t now_ns)
{
    if (next_ns == KEEPER_NEVER) {
        return -1;
    }
    uint64_t ms = next_ns <= now_ns ? 0 : (next_ns - now_ns + KG_NS_PER_MS - 1) / KG_NS_PER_MS;
    return ms > 60000 ? 60000 : (int)ms;
}

#define FIXED_POLLS 2

/* Room for the fixed ones, a socket an errand and a pidfd a sandbox that was adopted. */
static struct pollfd *make_polls(const kg_keeper_t *k, size_t *ret_count)
{
    size_t count = FIXED_POLLS;
    for (const kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        count++;
    }
    struct pollfd *polls = calloc(count + k->sandbox_count, sizeof(*polls));
    if (!polls) {
        return NULL;
    }
    count = FIXED_POLLS;
    for (const kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        polls[count++] = (struct pollfd){.fd = errand->sock, .events = POLLIN};
    }
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->init_pidfd >= 0) {
            polls[count++] = (struct pollfd){.fd = sb->init_pidfd, .events = POLLIN};
        }
    }
    polls[0] = (struct pollfd){.fd = k->signal_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = k->gateway_sock};
    bool read = k->out_count < KEEPER_OUT_MAX && !keeper_adopting(k);
    polls[1].events = (short)((read ? POLLIN : 0) | (k->out_count > 0 ? POLLOUT : 0));
    *ret_count = count;
    return polls;
}

/* Of those that aren't our children: how they ended isn't to be had. */
static void read_pidfds(kg_keeper_t *k, const struct pollfd *polls, size_t count)
{
    for (size_t i = FIXED_POLLS; i < count; i++) {
        kg_sb_t *sb = k->sandboxes;
        while (sb && polls[i].revents && (sb->init_pidfd < 0 || sb->init_pidfd != polls[i].fd)) {
            sb = sb->next;
        }
        if (sb && polls[i].revents) {
            keeper_init_exited(k, sb, SIGKILL);
        }
    }
}

static void poll_once(kg_keeper_t *k, uint64_t next_ns)
{
    size_t count = 0;
    struct pollfd *polls = make_polls(k, &count);

    if (!polls) {
        const struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
        read_signals(k);
        return;
    }
    if (poll(polls, count, timeout_ms(next_ns, kg_now_ns())) < 0) {
        free(polls);
        return; /* EINTR */
    }
    keeper_errands_read(k); /* before their exits */
    read_pidfds(k, polls, count);
    if (polls[0].revents) {
        read_signals(k);
    }
    if (k->gateway_sock == polls[1].fd && (polls[1].revents & POLLOUT)) {
        keeper_flush(k);
    }
    if (k->gateway_sock == polls[1].fd && (polls[1].revents & (POLLIN | POLLHUP | POLLERR))) {
        keeper_read_requests(k);
    }
    free(polls);
}

static int run(kg_keeper_t *k)
{
    uint64_t leave_ns = KEEPER_NEVER;

    for (;;) {
        uint64_t now_ns = kg_now_ns();
        uint64_t next = keeper_end_step(k, now_ns);
        uint64_t errands = keeper_errands_step(k, now_ns);
        uint64_t trim = keeper_trim_step(k, now_ns);
        uint64_t other = keeper_gateway_step(k, now_ns);
        if (k->leaving) {
            return k->exit_code;
        }
        if (k->gateway_done && leave_ns == KEEPER_NEVER) {
            leave_ns = now_ns + LEAVE_NS;
        }
        if (k->gateway_done && keeper_all_ended(k)) {
            return k->exit_code;
        }
        if (now_ns >= leave_ns) {
            kg_log(KG_LOG_ERROR, "keeper.left_processes", "reason=\"they don't die\"");
            return 1;
        }
        next = other < next ? other : next;
        next = errands < next ? errands : next;
        next = trim < next ? trim : next;
        poll_once(k, leave_ns < next ? leave_ns : next);
    }
}

static void keeper_fini(kg_keeper_t *k)
{
    keeper_out_clear(k);
    while (k->sandboxes) {
        keeper_drop(k, k->sandboxes);
    }
    free(k->slot_used);
    if (k->dirs_held &&
        !k->leaving) { /* else they are another keeper's, or of sandboxes that live */
        keeper_host_close(k);
        (void)rmdir(
            k->host.runtime_dir); /* made anew at the next start; stays if anything is in it */
    }
    free((void *)(uintptr_t)k->host.state_dir);
    free((void *)(uintptr_t)k->host.runtime_dir);
}

int main(int argc, char **argv)
{
    kg_keeper_t k = {
        .signal_fd = -1,
        .range_fd = -1,
        .gateway_sock = -1,
        .kill_gateway_ns = KEEPER_NEVER,
        .restart_ns = KEEPER_NEVER,
    };
    k.out_last = &k.out_first;
    int r = keeper_opts_parse(argc, argv, &k.opts);
    if (r != 0) {
        return r > 0 ? 0 : 2;
    }
    r = setup(&k);
    if (r < 0 && k.dirs_held && keeper_others_live(&k)) {
        k.leaving = true; /* their networks are not ours to close */
    }
    r = r < 0 ? 1 : run(&k);
    keeper_fini(&k);
    return r;
}
