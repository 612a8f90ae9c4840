/* Does bwrap work here? It is tried with all that a sandbox needs, around a program that does
 * nothing. */
#include "gateway/sandbox/bwrap_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/launcher_plain.h"

#define PROBE_MS 10000

int kg_bw_become_user(const kg_host_t *host, const kg_launch_t *l)
{
    if (!host->is_root) {
        return 0;
    }
    if (setgroups(0, NULL) < 0 || setresgid(l->gid, l->gid, l->gid) < 0 ||
        setresuid(l->uid, l->uid, l->uid) < 0) {
        return -errno;
    }
    return 0;
}

/* In the child: all that a sandbox needs, around a program that does nothing. */
static void probe_exec(const kg_host_t *host, int said)
{
    const kg_launch_t l = {.uid = host->uid_base + KG_UID_USER,
                           .gid = host->uid_base + KG_UID_USER};
    char *env[] = {NULL};
    const char *const args[] = {"bwrap",
                                "--unshare-all",
                                "--uid",
                                "1000",
                                "--gid",
                                "1000",
                                "--cap-drop",
                                "ALL",
                                "--as-pid-1",
                                "--ro-bind",
                                "/",
                                "/",
                                "--dev",
                                "/dev",
                                "--proc",
                                "/proc",
                                "--tmpfs",
                                "/tmp",
                                "--ro-bind",
                                host->init_exe,
                                "/tmp/init",
                                "--",
                                "/usr/bin/test",
                                "-x",
                                "/tmp/init",
                                NULL};
    char *argv[KG_ARRAY_LEN(args)];
    sigset_t none;

    memcpy(argv, args, sizeof(args)); /* exec only reads them */
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(said, 2) >= 0 &&
        kg_bw_become_user(host, &l) == 0 && chdir("/") == 0) {
        execve(KG_BW_PROGRAM, argv, env);
    }
    _exit(126);
}

/* What it said, on one line, and when it is gone its wait status. */
static int read_said(int fd, pid_t pid, char *ret_text, size_t cap)
{
    uint64_t until_ns = kg_now_ns() + PROBE_MS * KG_NS_PER_MS;
    size_t len = 0;
    int status = -1;

    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        uint64_t now_ns = kg_now_ns();
        if (now_ns >= until_ns) {
            (void)kill(pid, SIGKILL);
            break;
        }
        (void)poll(&poll_fd, 1, (int)((until_ns - now_ns) / KG_NS_PER_MS + 1));
        char rest[256];
        ssize_t n = read(fd, len < cap - 1 ? ret_text + len : rest,
                         len < cap - 1 ? cap - 1 - len : sizeof(rest));
        if (n <= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR))) {
            break;
        }
        len += n > 0 && len < cap - 1 ? (size_t)n : 0;
    }
    ret_text[len] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        continue;
    }
    return status;
}

int kg_bw_probe(const kg_host_t *host, char ret_reason[160])
{
    char said[200];
    int pair[2];
    int r = kg_plain_probe(host, ret_reason);

    if (r < 0) {
        return r;
    }
    if (access(KG_BW_PROGRAM, X_OK) < 0) {
        (void)snprintf(ret_reason, 160, "no " KG_BW_PROGRAM " (package bubblewrap)");
        return -ENOENT;
    }
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        probe_exec(host, pair[1]);
    }
    close(pair[1]);
    int status = pid < 0 ? -1 : read_said(pair[0], pid, said, sizeof(said));
    close(pair[0]);
    if (status != 0) {
        (void)snprintf(ret_reason, 160, "%.150s",
                       pid < 0 || said[0] == '\0' ? "bwrap failed without a word" : said);
        return -ENOTSUP;
    }
    (void)snprintf(ret_reason, 160, "%s",
                   host->is_root ? "one user id, nothing to install as root"
                                 : "same user as the daemon on the host, one user id inside");
    return 0;
}
