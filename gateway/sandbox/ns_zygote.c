/* The first process of a sandbox that lies in a zygote. What the zygote forks joins such a sandbox
 * by setns, for which the kernel wants two things: that the sandbox's pid namespace is below the
 * zygote's, and that its user namespace was made in the zygote's by the user whom the zygote's
 * processes have, for that gives them every right over it. So a helper of ours goes there first, as
 * that user, but for files still as root. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/ns.h"

typedef struct kg_below {
    const kg_launch_t *launch;
    kg_ns_child_fn *fn;
    void *arg;
    int userns; /* the zygote's */
    int answer;
} kg_below_t;

typedef struct kg_below_answer {
    int error; /* -errno */
    pid_t pid; /* as the host sees it */
} kg_below_answer_t;

static int open_ns(pid_t pid, const char *name)
{
    char path[64];
    (void)kg_format(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* The number that /proc, which is the host's, has for a child whose number here is the zygote's. */
static int host_pid(pid_t pid, pid_t *ret_pid)
{
    char path[64];
    char text[512];
    KG_AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0) {
        return -errno;
    }
    (void)kg_format(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0) {
        return -errno;
    }
    text[n] = '\0';
    const char *at = strstr(text, "\nPid:");
    uint64_t number = 0;
    at = at ? at + strlen("\nPid:") : "";
    at += strspn(at, " \t");
    (void)kg_format(path, sizeof(path), "%.*s", (int)strcspn(at, "\n"), at);
    if (kg_parse_u64(path, 1, INT32_MAX, &number) < 0) {
        return -ESRCH;
    }
    *ret_pid = (pid_t)number;
    return 0;
}

/* The zygote's user to the kernel's eyes; the owner of this host's files as before. All
 * capabilities stay: joining a user namespace needs them. */
static int become_owner(uid_t uid)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0) {
        return -errno;
    }
    (void)setfsgid(0);
    (void)setfsuid(0);
    return setfsuid((uid_t)-1) == 0 && setfsgid((gid_t)-1) == 0 ? 0 : -EPERM;
}

static int run_helper(const kg_below_t *below, pid_t *ret_pid)
{
    const kg_launch_t *l = below->launch;

    int r = become_owner(l->zygote_base + KG_UID_USER);
    if (r == 0 && setns(below->userns, CLONE_NEWUSER) < 0) {
        r = -errno;
    }
    if (r < 0) {
        return r;
    }
    /* With CLONE_PARENT: of the process that forked this one, which is of the host's pid namespace.
     */
    pid_t pid = kg_ns_clone(CLONE_NEWUSER | CLONE_NEWPID | CLONE_PARENT, -1);
    if (pid == 0) {
        below->fn(below->arg);
        _exit(1);
    }
    r = pid < 0 ? (int)pid : host_pid(pid, ret_pid);
    return r < 0 ? r
                 : kg_ns_write_maps(*ret_pid, 0, l->base - l->zygote_base,
                                    KG_UID_RANGE); /* in ids of the zygote's */
}

static int ask_helper(kg_below_t *below, pid_t *ret_pid)
{
    int pair[2];
    kg_below_answer_t answer = {.error = -ECHILD};

    if (pipe2(pair, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = fork(); /* in the zygote's pid namespace: see below */
    if (pid == 0) {
        close(pair[0]);
        answer.error = run_helper(below, &answer.pid);
        _exit(write(pair[1], &answer, sizeof(answer)) != (ssize_t)sizeof(answer));
    }
    int r = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (r == 0 && read(pair[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
        r = -ECHILD;
    }
    close(pair[0]);
    if (pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
    *ret_pid = answer.pid;
    return r < 0 ? r : answer.error;
}

int kg_ns_clone_below(const kg_launch_t *launch, kg_ns_child_fn *fn, void *arg, pid_t *ret_pid)
{
    KG_AUTO_CLOSE int own = open_ns(getpid(), "pid");
    KG_AUTO_CLOSE int pidns = open_ns(launch->zygote, "pid");
    kg_below_t below = {.launch = launch, .fn = fn, .arg = arg};
    KG_AUTO_CLOSE int userns = open_ns(launch->zygote, "user");

    if (own < 0 || pidns < 0 || userns < 0) {
        return -ESRCH;
    }
    below.userns = userns;
    if (setns(pidns, CLONE_NEWPID) < 0) { /* of children to come */
        return -errno;
    }
    int r = ask_helper(&below, ret_pid);
    return setns(own, CLONE_NEWPID) < 0 && r == 0 ? -errno : r;
}
