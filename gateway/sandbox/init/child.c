/* The last steps of a process before it is the sandbox's own: session, limits, user, directory,
 * exec. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/last_words.h"

int init_child_limits(const kg_init_t *in, uint64_t nofile, uint64_t nofile_max, uint64_t tasks_max)
{
    struct rlimit files;
    const struct rlimit core = {0, 0};
    const struct rlimit tasks = {tasks_max, tasks_max};

    (void)setpriority(PRIO_PROCESS, 0, 0); /* keeper, init and minders go before the sandbox */
    if (in->is_root && tasks_max != 0 &&
        setrlimit(RLIMIT_NPROC, &tasks) < 0) { /* its uid is its own, so it counts it alone */
        return -errno;
    }

    if (setrlimit(RLIMIT_CORE, &core) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0) {
        return -errno;
    }
    if (nofile_max != 0 && nofile_max < files.rlim_max) {
        files.rlim_max = nofile_max;
    }
    rlim_t soft = nofile ? nofile : INIT_NOFILE_SOFT;
    files.rlim_cur = soft < files.rlim_max ? soft : files.rlim_max;
    if (nofile) {
        files.rlim_max = files.rlim_cur;
    }
    return setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0;
}

/* Whatever was ignored or blocked when the daemon was started (nohup, a shell's &) must not reach
 * the sandbox. By the system call: signal(3) refuses 32 and 33, which posix_spawn(3) leaves
 * ignored.
 */
static void reset_signals(void)
{
    const unsigned long usual[8] = {0}; /* struct sigaction of the kernel, or longer: SIG_DFL */
    sigset_t none;
    for (int signo = 1; signo <= 64; signo++) {
        (void)syscall(SYS_rt_sigaction, signo, usual, NULL, 64 / 8);
    }
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static int run_program(const kg_ip_spawn_t *spawn, char *strings, uint32_t *ret_step)
{
    char *cwd;
    char words[32];
    bool has_words = (spawn->flags & KG_IP_SPAWN_LAST_WORDS) != 0;
    char **argv = calloc((size_t)spawn->argc + 1 + 1 + spawn->envc + 1, sizeof(*argv));

    if (!argv) {
        return -ENOMEM;
    }
    char **env = argv + spawn->argc + 1;
    kg_ip_spawn_strings(spawn, strings, argv, env + has_words, &cwd);
    if (has_words) { /* before any other of that name */
        (void)kg_format(words, sizeof(words), "%s=%d", KG_LAST_WORDS_ENV, KG_LAST_WORDS_FD);
        env[0] = words;
    }
    *ret_step = KG_IP_STEP_CHDIR;
    if (cwd[0] != '\0' && chdir(cwd) < 0) {
        return -errno;
    }
    *ret_step = KG_IP_STEP_EXEC;
    environ = env; /* execvp looks for the program in this PATH */
    execvp(argv[0], argv);
    return -errno;
}

int init_child_exec(const kg_init_t *in,
                    const kg_ip_spawn_t *spawn,
                    char *strings,
                    pid_t minder,
                    uint32_t *ret_step)
{
    *ret_step = KG_IP_STEP_SETUP;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* until it has its uid: see keeper_end.c */
    if (getppid() != minder) {
        return -ECHILD;
    }
    if (setsid() < 0 || close_range(3, INIT_FD_LAST, CLOSE_RANGE_CLOEXEC) < 0) {
        return -errno;
    }
    if ((spawn->flags & KG_IP_SPAWN_PTY) && ioctl(0, TIOCSCTTY, 0) < 0) {
        return -errno;
    }
    if ((spawn->flags & KG_IP_SPAWN_LAST_WORDS) && fcntl(KG_LAST_WORDS_FD, F_SETFD, 0) < 0) {
        return -errno;
    }
    /* The owner of user namespaces is charged for all that is in them: for a zygote's uid this
     * would count the tasks of all sandboxes below it. */
    bool zygote = (spawn->flags & KG_IP_SPAWN_ZYGOTE) != 0;
    int r = init_child_limits(in, spawn->nofile, 0, zygote ? 0 : INIT_TASKS_MAX);
    if (r < 0) {
        return r;
    }
    reset_signals();
    (void)umask(spawn->umask_bits ? (mode_t)spawn->umask_bits : 022);
    *ret_step = KG_IP_STEP_USER;
    r = init_become_for_exec(in, (spawn->flags & KG_IP_SPAWN_ROOT) != 0, zygote);
    if (r < 0) {
        return r;
    }
    (void)prctl(PR_SET_PDEATHSIG, 0);
    return run_program(spawn, strings, ret_step);
}
