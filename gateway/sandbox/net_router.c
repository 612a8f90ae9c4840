/* The router of an ordinary user: one process that holds a user and a network namespace, one above
 * it that keeps slirp4netns running, which carries what the rules let through by sockets of the
 * user's. Both outlive the keeper as its sandboxes do; the next keeper finds them by RUNTIME/net/
 * router (locked, with both numbers), and they end when RUNTIME/net/keeper stays unlocked. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/net_private.h"
#include "gateway/sandbox/priority.h"

#define LOCK_NAME "router"
#define KEEPER_NAME "keeper"
#define ORPHAN_S 3600
#define LOOK_S 1
#define START_S 15    /* the first time */
#define AGAIN_S 4     /* later, with all tries: the keeper stands still meanwhile */
#define SPARE_S 1     /* that the keeper waits longer for the router to say so */
#define END_TRIES 500 /* of 10 ms */
#define TUN "/dev/net/tun"
#define SAID_MAX 120

typedef struct router {
    const kg_nets_t *nets;
    int lock, keeper; /* files */
    pid_t pinned;     /* is in the namespaces and does nothing */
    pid_t slirp;
} router_t;

typedef struct ready {
    int error;
    char said[SAID_MAX];
} ready_t;

static void nap(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&pause, NULL);
}

static uint64_t in_seconds(unsigned seconds)
{
    return kg_now_ns() + seconds * KG_NS_PER_S;
}

/* Is it there to be read until then? */
static bool comes(int fd, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    uint64_t now_ns = kg_now_ns();
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    return poll(&poll_fd, 1, (int)(left_ns / KG_NS_PER_MS)) > 0;
}

/* ---- the namespaces ---- */

static int write_file(const char *path, const char *text)
{
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* They must be seen by others of this user, and its own maps by itself. */
static int make_namespaces(uid_t uid, gid_t gid)
{
    char map[32];
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return -errno;
    }
    (void)snprintf(map, sizeof(map), "0 %u 1\n", gid);
    int r = write_file("/proc/self/setgroups", "deny");
    if (r == 0) {
        r = write_file("/proc/self/gid_map", map);
    }
    (void)snprintf(map, sizeof(map), "0 %u 1\n", uid);
    return r == 0 ? write_file("/proc/self/uid_map", map) : r;
}

/* Those that a router has left behind, which its keeper holds open. */
static int enter_namespaces(const kg_nets_t *nets)
{
    int r = kg_net_join(nets, nets->net_ns);
    return r < 0                                  ? r
           : prctl(PR_SET_DUMPABLE, 1) < 0        ? -errno
           : prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno
                                                  : 0;
}

/* A process in them that lives as long as the caller. */
static int pin(const kg_nets_t *nets, pid_t *ret_pid)
{
    int ready[2];
    int result = -EIO;
    pid_t above = getpid();
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (pipe2(ready, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        result = nets->user_ns < 0 ? make_namespaces(uid, gid) : enter_namespaces(nets);
        (void)prctl(PR_SET_NAME, "sandal-router-0");
        (void)!write(ready[1], &result, sizeof(result));
        (void)close_range(0, ~0U, 0);
        while (result == 0 && getppid() == above) {
            (void)pause();
        }
        _exit(0);
    }
    int r = pid < 0 ? -errno : 0;
    close(ready[1]);
    if (r == 0) {
        r = read(ready[0], &result, sizeof(result)) == (ssize_t)sizeof(result) ? result : -EIO;
    }
    close(ready[0]);
    if (r == 0) {
        *ret_pid = pid;
    }
    return r;
}

/* ---- slirp4netns ---- */

static const char *slirp_program(void)
{
    static const char *const places[] = {"/usr/bin/slirp4netns", "/bin/slirp4netns",
                                         "/usr/local/bin/slirp4netns"};
    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++) {
        if (access(places[i], X_OK) == 0) {
            return places[i];
        }
    }
    return NULL;
}

/* In the child. What it says goes to said, or nowhere when nobody reads that any more. The host's
 * loopback and its own DNS are closed; the sandboxes' forwarder answers names. */
static void become_slirp(const char *program, pid_t pinned, int ready, int said)
{
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    char pid[16];
    char fd[16];
    sigset_t none;
    (void)snprintf(pid, sizeof(pid), "%d", (int)pinned);
    (void)snprintf(fd, sizeof(fd), "%d", ready);
    const char *argv[] = {program,
                          "--configure",
                          "--mtu=1500",
                          "--disable-host-loopback",
                          "--disable-dns",
                          "--enable-sandbox",
                          "--enable-seccomp",
                          "--ready-fd",
                          fd,
                          pid,
                          "tap0",
                          NULL};
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); // NOLINT(concurrency-mt-unsafe): one thread
    (void)signal(SIGPIPE, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        dup2(said, 1) < 0 || dup2(said, 2) < 0 || fcntl(ready, F_SETFD, 0) < 0) {
        _exit(127);
    }
    (void)execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
    _exit(127);
}

/* One byte when the interface is there; the end of the pipe when it has failed. */
static bool came_up(int ready, uint64_t until_ns)
{
    char byte;
    return comes(ready, until_ns) && read(ready, &byte, 1) == 1;
}

/* Its last line that is not empty. */
static void last_line(int fd, char ret[SAID_MAX])
{
    char text[2048];
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\r")] = '\0';
    for (char *end = text + strlen(text); end > text && end[-1] == '\n';) {
        *--end = '\0';
    }
    const char *line = strrchr(text, '\n');
    (void)snprintf(ret, SAID_MAX, "%.*s", SAID_MAX - 1, line ? line + 1 : text);
}

static int start_slirp(router_t *r, uint64_t until_ns, char ret_said[SAID_MAX])
{
    int ready[2];
    int said[2];
    const char *program = slirp_program();
    ret_said[0] = '\0';
    if (!program) {
        (void)snprintf(ret_said, SAID_MAX, "the program slirp4netns is not there");
        return -ENOENT;
    }
    if (pipe2(ready, O_CLOEXEC) < 0) {
        return -errno;
    }
    if (pipe2(said, O_CLOEXEC | O_NONBLOCK) < 0) {
        close(ready[0]);
        close(ready[1]);
        return -errno;
    }
    r->slirp = fork();
    if (r->slirp == 0) {
        become_slirp(program, r->pinned, ready[1], said[1]);
    }
    close(ready[1]);
    close(said[1]);
    bool up = r->slirp > 0 && came_up(ready[0], until_ns);
    if (!up && r->slirp > 0) {
        (void)kill(r->slirp, SIGKILL);
        (void)waitpid(r->slirp, NULL, 0);
        r->slirp = 0;
        last_line(said[0], ret_said);
    }
    close(ready[0]);
    close(said[0]);
    return up ? 0 : -EIO;
}

/* ---- the process above both ---- */

static int start_both(router_t *r, char ret_said[SAID_MAX])
{
    KG_AUTO_CLOSE int tun = open(TUN, O_RDWR | O_CLOEXEC);
    if (tun < 0) {
        int error = -errno;
        (void)snprintf(ret_said, SAID_MAX, "cannot open " TUN ": %s", strerrordesc_np(-error));
        return error;
    }
    int error = pin(r->nets, &r->pinned);
    if (error < 0) {
        (void)snprintf(ret_said, SAID_MAX, "no user namespace with a network of its own: %s",
                       strerrordesc_np(-error));
        return error;
    }
    bool again = r->nets->user_ns >= 0;
    uint64_t until_ns = in_seconds(again ? AGAIN_S : START_S);
    error = start_slirp(r, until_ns, ret_said);
    /* In namespaces that were there before, the one of a router that was killed may not be quite
     * gone. */
    while (error < 0 && again && kg_now_ns() < until_ns) {
        nap(100);
        error = start_slirp(r, until_ns, ret_said);
    }
    if (error < 0 && ret_said[0] == '\0') {
        (void)snprintf(ret_said, SAID_MAX, "slirp4netns does not start");
    }
    return error;
}

static bool has_keeper(const router_t *r)
{
    if (flock(r->keeper, LOCK_EX | LOCK_NB) < 0) {
        return true;
    }
    (void)flock(r->keeper, LOCK_UN);
    return false;
}

/* Until the namespaces or all keepers are gone. */
static void serve(router_t *r)
{
    char said[SAID_MAX];
    sigset_t child;
    uint64_t grace_ns = (r->nets->orphan_s ? r->nets->orphan_s : ORPHAN_S) * KG_NS_PER_S;
    uint64_t seen_ns = kg_now_ns();
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    for (;;) {
        struct timespec look = {.tv_sec = LOOK_S};
        pid_t pid;
        (void)sigtimedwait(&child, NULL, &look);
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
            if (pid == r->pinned) {
                return;
            }
            r->slirp = pid == r->slirp ? 0 : r->slirp;
        }
        if (r->slirp == 0) {
            nap(200); /* never a busy loop of crashes */
            (void)start_slirp(r, in_seconds(START_S), said);
        }
        uint64_t now_ns = kg_now_ns();
        seen_ns = has_keeper(r) ? now_ns : seen_ns;
        if (now_ns - seen_ns > grace_ns) {
            return; /* its sandboxes have ended */
        }
    }
}

static void become_router(const kg_nets_t *nets, int lock, int keeper, int ready)
{
    router_t r = {.nets = nets, .lock = lock, .keeper = keeper};
    ready_t answer = {.error = 0};
    char numbers[48];
    sigset_t child;
    for (int signo = 1; signo < 32; signo++) {
        (void)signal(signo, SIG_DFL);
    }
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &child, NULL); // NOLINT(concurrency-mt-unsafe): one thread
    (void)setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++) {
        (void)dup2(null, fd);
    }
    (void)prctl(PR_SET_NAME, "sandal-router");
    kg_priority_usual();
    (void)!chdir("/");
    answer.error = start_both(&r, answer.said);
    (void)snprintf(numbers, sizeof(numbers), "%d %d\n", (int)getpid(), (int)r.pinned);
    if (answer.error == 0 &&
        (ftruncate(lock, 0) < 0 || pwrite(lock, numbers, strlen(numbers), 0) < 0)) {
        answer.error = -errno;
    }
    (void)!write(ready, &answer, sizeof(answer));
    close(ready);
    if (answer.error == 0) {
        serve(&r);
    }
}

static int open_file(const kg_nets_t *nets, const char *name)
{
    int fd = openat(nets->dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

/* Only what it needs stays open, at numbers from 3 on. The keeper's file is opened again: a lock is
 * the opened file's. */
static void router_child(kg_nets_t *nets, int lock, int ready)
{
    int keeper = open_file(nets, KEEPER_NAME);
    int *const mine[] = {&lock, &keeper, &ready, &nets->user_ns, &nets->net_ns};
    int first = 3;
    for (size_t i = 0; i < KG_ARRAY_LEN(mine); i++) { /* above all others first, then down */
        *mine[i] = *mine[i] < 0 ? -1 : fcntl(*mine[i], F_DUPFD_CLOEXEC, 200);
    }
    (void)close_range(3, 199, 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(mine); i++) {
        *mine[i] = *mine[i] < 0 ? -1 : dup3(*mine[i], first++, O_CLOEXEC);
    }
    (void)close_range((unsigned)first, ~0U, 0);
    if (lock >= 0 && keeper >= 0 && ready >= 0) {
        become_router(nets, lock, keeper, ready);
    }
    _exit(0);
}

/* ---- in the keeper ---- */

static int open_namespace(pid_t pid, const char *kind)
{
    char path[48];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Both numbers of the router that has the lock; false when it has not told them yet. */
static bool read_numbers(int lock, int ret[2])
{
    char text[48] = "";
    ssize_t n = pread(lock, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%d %d", &ret[0], &ret[1]) == 2 && // NOLINT(cert-err34-c): our own
           ret[0] > 1 && ret[1] > 1;
}

static int start_new(kg_nets_t *nets, int lock)
{
    int pair[2];
    ready_t answer = {.error = -EIO};
    if (ftruncate(lock, 0) < 0 || pipe2(pair, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        router_child(nets, lock, pair[1]);
    }
    int r = pid < 0 ? -errno : 0;
    close(pair[1]);
    uint64_t until_ns = in_seconds((nets->user_ns < 0 ? START_S : AGAIN_S) + SPARE_S);
    if (r == 0 && !comes(pair[0], until_ns)) {
        r = -ETIMEDOUT;
    } else if (r == 0 && read(pair[0], &answer, sizeof(answer)) == (ssize_t)sizeof(answer)) {
        r = answer.error;
    } else if (r == 0) {
        r = -EIO;
    }
    close(pair[0]);
    if (r < 0) {
        answer.said[sizeof(answer.said) - 1] = '\0';
        (void)snprintf(nets->reason, sizeof(nets->reason), "%s",
                       answer.said[0] ? answer.said : strerrordesc_np(-r));
        if (pid > 0) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        }
        return r;
    }
    nets->router = pid;
    return 0;
}

/* Its lock is taken while nobody looks whether there is a keeper. */
static int lock_keeper(kg_nets_t *nets)
{
    if (nets->lock_fd >= 0) {
        return 0;
    }
    nets->lock_fd = open_file(nets, KEEPER_NAME);
    if (nets->lock_fd < 0) {
        return nets->lock_fd;
    }
    return flock(nets->lock_fd, LOCK_SH) < 0 ? -errno : 0;
}

int net_router_start(kg_nets_t *nets)
{
    int numbers[2] = {0, 0};
    int r = lock_keeper(nets);
    KG_AUTO_CLOSE int lock = r < 0 ? r : open_file(nets, LOCK_NAME);
    if (lock < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "cannot make RUNTIME/net: %s",
                       strerrordesc_np(-lock));
        return lock;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        r = start_new(nets, lock);
        if (r < 0) {
            return r;
        }
    }
    if (nets->user_ns >= 0) {
        return 0;
    }
    for (unsigned i = 0; i < END_TRIES && !read_numbers(lock, numbers); i++) {
        nap(10);
    }
    nets->user_ns = open_namespace((pid_t)numbers[1], "user");
    nets->net_ns = open_namespace((pid_t)numbers[1], "net");
    r = nets->user_ns < 0 ? nets->user_ns : nets->net_ns < 0 ? nets->net_ns : 0;
    if (r < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "the router cannot be entered: %s",
                       strerrordesc_np(-r));
    }
    return r;
}

bool net_router_lives(const kg_nets_t *nets)
{
    KG_AUTO_CLOSE int lock = openat(nets->dir_fd, LOCK_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0;
}

void net_router_end(kg_nets_t *nets)
{
    int numbers[2];
    KG_AUTO_CLOSE int lock = openat(nets->dir_fd, LOCK_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    kg_closep(&nets->user_ns);
    kg_closep(&nets->net_ns);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0) {
        if (read_numbers(lock, numbers)) {
            (void)kill((pid_t)numbers[0], SIGKILL);
        }
        for (unsigned i = 0; i < END_TRIES && flock(lock, LOCK_EX | LOCK_NB) < 0; i++) {
            nap(10);
        }
    }
    if (nets->router > 0) {
        (void)waitpid(nets->router, NULL, WNOHANG);
    }
    nets->router = 0;
}
