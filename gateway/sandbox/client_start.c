/* A keeper of one's own, for tests and tools. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/sandbox/client.h"
#include "gateway/sandbox/seqsock.h"

#define SERVE_FD 3

static void run_keeper(const kg_keeper_private_t *opts, int sock)
{
    char base[32];
    char count[32];
    char orphan[32];
    char create[32];
    const char *args[22] = {
        "sandal-keeper",     "--serve-fd3",
        "--log-level",       "warn",
        "--init-exe",        opts->init_exe,
        "--state-dir",       opts->state_dir,
        "--runtime-dir",     opts->runtime_dir,
        "--orphan-timeout",  orphan,
        "--volumes-backend", opts->volumes ? opts->volumes : "none",
    };
    char *argv[KG_ARRAY_LEN(args)];
    size_t at = 14;

    (void)snprintf(orphan, sizeof(orphan), "%u", opts->orphan_s);

    if (opts->prepare) {
        args[at++] = "--prepare";
    }
    if (opts->uid_base != 0) {
        (void)snprintf(base, sizeof(base), "%u", opts->uid_base);
        (void)snprintf(count, sizeof(count), "%u", opts->uid_count);
        args[at++] = "--uid-base";
        args[at++] = base;
        args[at++] = "--uid-count";
        args[at++] = count;
    }
    if (opts->create_timeout_s != 0) {
        (void)snprintf(create, sizeof(create), "%u", opts->create_timeout_s);
        args[at++] = "--create-timeout";
        args[at++] = create;
    }
    if (dup2(sock, SERVE_FD) < 0 || fcntl(SERVE_FD, F_SETFD, 0) < 0) {
        return;
    }
    (void)close_range(SERVE_FD + 1, ~0U, 0);
    memcpy(argv, args, sizeof(args)); /* exec only reads them */
    execv(opts->keeper_exe, argv);
}

int kg_keeper_start_private(const kg_keeper_private_t *opts, pid_t *ret_pid, int *ret_fd)
{
    int pair[2];
    int r = kg_seq_pair(pair);
    if (r < 0) {
        return r;
    }
    pid_t pid = fork();
    if (pid == 0) {
        run_keeper(opts, pair[1]);
        _exit(127);
    }
    close(pair[1]);
    if (pid < 0) {
        r = -errno;
        close(pair[0]);
        return r;
    }
    *ret_pid = pid;
    *ret_fd = pair[0];
    return 0;
}
