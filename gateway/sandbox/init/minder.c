/* A minder stands between sandal-init and each process that it starts: a subreaper, so that
 * whatever the process leaves behind falls to it and stays findable as its descendants; it ends
 * when the last of them has. It runs with init's rights, out of reach of the sandbox, and knows
 * nothing but its socket to init. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/last_words.h"

#define SOCK_FD 3
#define STDIO_FD 4 /* 4, 5, 6: the child's 0, 1, 2 */
#define LAST_FD 6
#define SPARE_FD 16
#define STATUS_MAX 4096

/* By way of high numbers, so that none overwrites another; everything else is closed. */
static int place_fds(const int stdio[3], int sock)
{
    int from[4] = {sock, stdio[0], stdio[1], stdio[2] >= 0 ? stdio[2] : stdio[1]};

    if (from[1] < 0) {
        from[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    for (int i = 0; i < 4; i++) {
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, SPARE_FD);
        if (from[i] < 0) {
            return -errno;
        }
    }
    for (int i = 0; i < 4; i++) {
        if (dup3(from[i], SOCK_FD + i, O_CLOEXEC) < 0) {
            return -errno;
        }
    }
    return close_range(LAST_FD + 1, INIT_FD_LAST, 0) < 0 ? -errno : 0;
}

static void say(const kg_minder_msg_t *msg, int fd)
{
    /* The socket has room for all the three messages that there ever are. */
    (void)kg_seq_send(SOCK_FD, msg, sizeof(*msg), &fd, fd >= 0);
}

static _Noreturn void give_up(int error, uint32_t step)
{
    kg_minder_msg_t msg = {.kind = KG_MINDER_FAILED, .error = error, .step = step};
    say(&msg, -1);
    _exit(1);
}

static _Noreturn void run_child(const kg_init_t *in,
                                const kg_ip_spawn_t *spawn,
                                char *strings,
                                pid_t minder,
                                int report,
                                int words)
{
    kg_start_error_t e = {.step = KG_IP_STEP_SETUP};

    report = fcntl(report, F_DUPFD_CLOEXEC, SPARE_FD);
    for (int i = 0; i < 3 && e.error == 0; i++) {
        e.error = dup2(STDIO_FD + i, i) < 0 ? -errno : 0;
    }
    if (e.error == 0 && words >= 0) { /* in the place of the minder's socket */
        e.error = dup2(words, KG_LAST_WORDS_FD) < 0 ? -errno : 0;
    }
    if (e.error == 0) {
        e.error = init_child_exec(in, spawn, strings, minder, &e.step);
    }
    (void)!write(report, &e, sizeof(e));
    _exit(127);
}

static pid_t start_child(const kg_init_t *in, const kg_ip_spawn_t *spawn, char *strings, int words)
{
    int report[2];
    pid_t minder = getpid();
    kg_start_error_t e = {0};

    if (pipe2(report, O_CLOEXEC) < 0) {
        give_up(-errno, KG_IP_STEP_PIPE);
    }
    pid_t pid = fork();
    if (pid < 0) {
        give_up(-errno, KG_IP_STEP_FORK);
    }
    if (pid == 0) {
        run_child(in, spawn, strings, minder, report[1], words);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    (void)close_range(STDIO_FD, LAST_FD, 0);
    close(report[1]);
    ssize_t n;
    do {
        n = read(report[0], &e, sizeof(e));
    } while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n == (ssize_t)sizeof(e)) {
        (void)waitpid(pid, NULL, 0);
        give_up(e.error, e.step);
    }
    kg_minder_msg_t msg = {.kind = KG_MINDER_STARTED, .pid = pid};
    say(&msg, pidfd);
    kg_closep(&pidfd);
    return pid;
}

static uint64_t timeval_ns(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * KG_NS_PER_S + (uint64_t)tv.tv_usec * 1000;
}

/* Until the last descendant has ended; words are ours. */
static _Noreturn void mind(pid_t pid, int words)
{
    pid_t got;
    int status;
    struct rusage usage;

    while ((got = wait4(-1, &status, 0, &usage)) > 0 || errno == EINTR) {
        if (got != pid) {
            continue;
        }
        kg_minder_msg_t msg = {
            .kind = KG_MINDER_EXITED,
            .pid = pid,
            .status = status,
            .cpu_ns = timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime),
            .maxrss_bytes = (uint64_t)usage.ru_maxrss * 1024,
        };
        say(&msg, words >= 0 && kg_last_words_any(words) ? words : -1);
        kg_closep(&words);
    }
    _exit(0);
}

_Noreturn void init_minder_run(
    const kg_init_t *in, const kg_ip_spawn_t *spawn, char *strings, const int stdio[3], int sock)
{
    pid_t parent = getppid();

    (void)prctl(PR_SET_NAME, "sandal-minder");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (getppid() != parent || place_fds(stdio, sock) < 0) {
        _exit(1);
    }
    int words = -1;
    int r = spawn->flags & KG_IP_SPAWN_LAST_WORDS ? kg_last_words_create(&words) : 0;
    if (r < 0) {
        give_up(r, KG_IP_STEP_PIPE);
    }
    mind(start_child(in, spawn, strings, words), words);
}

static void read_status(pid_t pid, char ret_text[STATUS_MAX])
{
    char path[48];
    (void)kg_format(path, sizeof(path), "/proc/%d/status", (int)pid);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret_text, STATUS_MAX - 1);
    ret_text[n > 0 ? n : 0] = '\0';
}

static bool filter_count(const char *status, uint64_t *ret_count)
{
    static const char name[] = "\nSeccomp_filters:\t";
    char number[16];
    const char *at = strstr(status, name);
    return at &&
           kg_format(number, sizeof(number), "%.*s", (int)strcspn(at + strlen(name), "\n"),
                     at + strlen(name)) == 0 &&
           kg_parse_u64(number, 0, UINT32_MAX, ret_count) == 0;
}

/* What it says must be so: by our own eyes, whatever forked it. */
static bool is_tame(pid_t pid, const char *ids)
{
    const char *const lines[] = {
        ids,
        "\nNoNewPrivs:\t1\n",
        "\nSeccomp:\t2\n",
        "\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
        "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n",
    };
    char text[STATUS_MAX];
    char own[STATUS_MAX];
    uint64_t mine = 0;
    uint64_t its = 0;

    read_status(pid, text);
    read_status(getpid(), own);
    for (size_t i = 0; i < KG_ARRAY_LEN(lines); i++) {
        if (!strstr(text, lines[i])) {
            return false;
        }
    }
    /* One filter more than we have, who got the zygote's. Kernels before 5.9 don't count them. */
    return !filter_count(own, &mine) || (filter_count(text, &its) && its == mine + 1);
}

/* Waits until it has got as far as it gets by itself. */
static void check_foster(pid_t pid, const char *ids, kg_start_error_t *ret_error)
{
    kg_start_error_t e = {.error = -ECHILD, .step = KG_IP_STEP_FORK};
    ssize_t n;

    do {
        n = read(INIT_FOSTER_LINK, &e, sizeof(e));
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(e)) {
        e = (kg_start_error_t){.error = -ECHILD, .step = KG_IP_STEP_FORK};
    }
    if (e.error == 0 && !is_tame(pid, ids)) {
        e = (kg_start_error_t){.error = -EPERM, .step = KG_IP_STEP_USER};
    }
    *ret_error = e;
}

_Noreturn void init_minder_foster(pid_t pid, uid_t uid, gid_t gid)
{
    kg_start_error_t e;
    char ids[160];
    bool words = fcntl(INIT_FOSTER_WORDS, F_SETFD, FD_CLOEXEC) == 0;

    (void)prctl(PR_SET_NAME, "sandal-minder");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)kg_format(ids, sizeof(ids), "\nUid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", uid, uid,
                    uid, uid, gid, gid, gid, gid);
    check_foster(pid, ids, &e);
    int pidfd = e.error == 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    kg_minder_msg_t msg = {.kind = KG_MINDER_STARTED, .pid = pid, .minder = getpid()};
    if (e.error == 0 && (pidfd < 0 || kg_seq_send(SOCK_FD, &msg, sizeof(msg), &pidfd, 1) < 0 ||
                         write(INIT_FOSTER_LINK, "", 1) != 1)) {
        e = (kg_start_error_t){.error = -ECHILD, .step = KG_IP_STEP_FORK};
    }
    if (e.error != 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        give_up(e.error, e.step);
    }
    kg_closep(&pidfd);
    (void)close(INIT_FOSTER_LINK);
    mind(pid, words ? INIT_FOSTER_WORDS : -1);
}
