/* The sandbox client's verbs done in this process: same contract, no keeper, no isolation. */
#include "tests/integ/box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"

/* An answer on its way: one of the three kinds. */
typedef struct op {
    struct op *next;
    kg_sbx_t *sbx;
    void *user; /* NULLed by forget together with the functions */
    kg_spawned_fn *spawned;
    kg_socket_fn *socket;
    kg_done_fn *done;
    kg_proc_t *proc;
    int fd;
    bool over;
} op_t;

struct kg_sbx {
    kg_loop_t *loop;
    kg_sbx_info_t info;
    op_t *ops;
    kg_proc_t *procs;
    bool lost;
};

struct kg_proc {
    kg_proc_t *next;
    kg_sbx_t *sbx;
    kg_timer_t *timer;
    pid_t pid;
    int fds[3];
    kg_exit_fn *on_exit;
    void *user;
    kg_exit_t exit;
    bool reaped;
};

struct box {
    kg_sbx_t *sbx;
};

const kg_sbx_info_t *kg_sbx_info(const kg_sbx_t *sbx)
{
    return &sbx->info;
}

/* ---- answers ---- */

static void op_run(void *user)
{
    op_t *op = user;
    op->over = true;
    if (op->spawned) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_NOT_FOUND, "cannot execute");
        op->spawned(op->user, op->proc, op->proc ? NULL : &err);
    } else if (op->socket) {
        op->socket(op->user, kg_take_fd(&op->fd));
    } else if (op->done) {
        op->done(op->user, NULL);
    }
    op_t **at = &op->sbx->ops;
    while (*at != op) {
        at = &(*at)->next;
    }
    *at = op->next;
    free(op);
}

static op_t *op_add(kg_sbx_t *sbx, void *user)
{
    op_t *op = calloc(1, sizeof(*op));
    op->sbx = sbx;
    op->user = user;
    op->fd = -1;
    op->next = sbx->ops;
    sbx->ops = op;
    kg_loop_later(sbx->loop, op_run, op);
    return op;
}

void kg_sbx_forget(kg_sbx_t *sbx, const void *user)
{
    for (op_t *op = sbx->ops; op; op = op->next) {
        if (op->user != user || op->over) {
            continue;
        }
        if (op->proc) {
            kg_proc_kill_tree(op->proc);
            kg_proc_close(&op->proc);
        }
        if (op->fd >= 0) {
            close(kg_take_fd(&op->fd));
        }
        op->spawned = NULL;
        op->socket = NULL;
        op->done = NULL;
    }
}

/* ---- processes ---- */

static void tell_exit(kg_proc_t *proc)
{
    proc->reaped = true;
    kg_timer_stop(proc->timer);
    if (proc->on_exit) {
        proc->on_exit(proc->user, &proc->exit);
    }
}

static void look(void *user)
{
    kg_proc_t *proc = user;
    int status = 0;
    struct rusage usage;
    if (proc->sbx->lost) {
        proc->exit = (kg_exit_t){.lost = true};
        tell_exit(proc);
    } else if (wait4(proc->pid, &status, WNOHANG, &usage) == proc->pid) {
        proc->exit = (kg_exit_t){.exited = WIFEXITED(status),
                                 .signaled = WIFSIGNALED(status),
                                 .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                 .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                 .maxrss_bytes = (uint64_t)usage.ru_maxrss * 1024};
        tell_exit(proc);
    }
}

static _Noreturn void child(const kg_spawn_opts_t *opts, const char *cwd, int out, int err)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that aborts leaves no kernel */
    dup2(open("/dev/null", O_RDWR), 0);
    dup2(out, 1);
    dup2(err, 2);
    if (chdir(cwd) == 0) {
        execve(opts->argv[0], (char *const *)(uintptr_t)opts->argv,
               (char *const *)(uintptr_t)opts->env);
    }
    _exit(127);
}

int kg_sbx_spawn(
    kg_sbx_t *sbx, const kg_spawn_opts_t *opts, kg_spawned_fn *done, void *user, kg_err_t *err)
{
    if (sbx->lost) {
        return kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "lost");
    }
    op_t *op = op_add(sbx, user);
    op->spawned = done;
    if (access(opts->argv[0], X_OK) < 0) {
        return 0;
    }
    int out[2];
    int errs[2];
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errs, O_CLOEXEC) < 0) {
        abort();
    }
    kg_proc_t *proc = calloc(1, sizeof(*proc));
    proc->sbx = sbx;
    proc->pid = fork();
    if (proc->pid == 0) {
        child(opts, opts->cwd ? opts->cwd : sbx->info.workspace, out[1], errs[1]);
    }
    close(out[1]);
    close(errs[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(errs[0], F_SETFL, O_NONBLOCK);
    proc->fds[0] = -1;
    proc->fds[1] = out[0];
    proc->fds[2] = errs[0];
    proc->next = sbx->procs;
    sbx->procs = proc;
    kg_timer_create(sbx->loop, look, proc, &proc->timer);
    kg_timer_start(proc->timer, KG_NS_PER_MS, KG_NS_PER_MS);
    op->proc = proc;
    return 0;
}

/* No gateway comes after this one: nobody can be found. */
int kg_sbx_proc_attach(
    kg_sbx_t *sbx, uint64_t token, kg_spawned_fn *done, void *user, kg_err_t *err)
{
    (void)token;
    (void)err;
    op_add(sbx, user)->spawned = done;
    return 0;
}

uint64_t kg_proc_token(const kg_proc_t *proc)
{
    return (uint64_t)proc->pid;
}

pid_t kg_proc_pid(const kg_proc_t *proc)
{
    return proc->pid;
}

int kg_proc_take_stdout(kg_proc_t *proc)
{
    return kg_take_fd(&proc->fds[1]);
}

int kg_proc_take_stderr(kg_proc_t *proc)
{
    return kg_take_fd(&proc->fds[2]);
}

int kg_proc_take_last_words(kg_proc_t *proc)
{
    (void)proc;
    return -1;
}

void kg_proc_on_exit(kg_proc_t *proc, kg_exit_fn *fn, void *user)
{
    proc->on_exit = fn;
    proc->user = user;
}

int kg_proc_signal(kg_proc_t *proc, int signo, bool group)
{
    return proc->reaped || kill(group ? -proc->pid : proc->pid, signo) < 0 ? -ESRCH : 0;
}

int kg_proc_kill_tree(kg_proc_t *proc)
{
    if (proc->sbx->lost) {
        return -ESRCH;
    }
    (void)kill(-proc->pid, SIGKILL);
    if (!proc->reaped) {
        (void)kill(proc->pid, SIGKILL); /* it may not be the group's leader yet */
    }
    return 0;
}

int kg_proc_usage(kg_proc_t *proc, kg_usage_fn *fn, void *user)
{
    (void)fn;
    (void)user;
    return proc->reaped ? -ESRCH : -ENOSYS;
}

void kg_proc_close(kg_proc_t **proc_ptr)
{
    kg_proc_t *proc = *proc_ptr;
    if (!proc) {
        return;
    }
    *proc_ptr = NULL;
    if (!proc->reaped) {
        waitpid(proc->pid, NULL, 0);
    }
    kg_timer_close(&proc->timer);
    kg_closep(&proc->fds[1]);
    kg_closep(&proc->fds[2]);
    kg_proc_t **at = &proc->sbx->procs;
    while (*at != proc) {
        at = &(*at)->next;
    }
    *at = proc->next;
    free(proc);
}

/* ---- the run directory ---- */

static int open_socket(const char *path)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        close(fd);
        return -EPERM;
    }
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)kg_format(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d", fd);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(probe, (struct sockaddr *)&to, sizeof to) < 0 ? -errno : 0;
    close(probe);
    if (rc < 0) {
        close(fd);
    }
    return rc < 0 ? rc : fd;
}

int kg_sbx_socket_open(kg_sbx_t *sbx, const char *name, kg_socket_fn *fn, void *user)
{
    if (sbx->lost) {
        return -EPIPE;
    }
    char path[KG_SBX_PATH_MAX * 2];
    (void)kg_format(path, sizeof path, "%s/%s", sbx->info.run_dir, name);
    op_t *op = op_add(sbx, user);
    op->socket = fn;
    op->fd = open_socket(path);
    return 0;
}

int kg_sbx_file_write(kg_sbx_t *sbx, const char *name, kg_slice_t bytes, kg_done_fn *fn, void *user)
{
    if (sbx->lost) {
        return -EPIPE;
    }
    char path[KG_SBX_PATH_MAX * 2];
    (void)kg_format(path, sizeof path, "%s/%s", sbx->info.run_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes.data, bytes.len) != (ssize_t)bytes.len) {
        abort();
    }
    close(fd);
    op_add(sbx, user)->done = fn;
    return 0;
}

int kg_sbx_file_unlink(kg_sbx_t *sbx, const char *name, kg_done_fn *fn, void *user)
{
    char path[KG_SBX_PATH_MAX * 2];
    (void)kg_format(path, sizeof path, "%s/%s", sbx->info.run_dir, name);
    unlink(path);
    if (fn) {
        op_add(sbx, user)->done = fn;
    }
    return 0;
}

/* ---- the box ---- */

box_t *box_open(kg_loop_t *loop)
{
    box_t *box = calloc(1, sizeof(*box));
    kg_sbx_t *sbx = calloc(1, sizeof(*sbx));
    sbx->loop = loop;
    char dir[] = "/tmp/sandal-box-XXXXXX";
    if (!mkdtemp(dir)) {
        abort();
    }
    (void)kg_format(sbx->info.run_dir, sizeof sbx->info.run_dir, "%s", dir);
    (void)kg_format(sbx->info.workspace, sizeof sbx->info.workspace, "%s", dir);
    (void)kg_format(sbx->info.home, sizeof sbx->info.home, "%s", dir);
    (void)kg_format(sbx->info.isolation, sizeof sbx->info.isolation, "double");
    box->sbx = sbx;
    return box;
}

kg_sbx_t *box_sbx(const box_t *box)
{
    return box->sbx;
}

static unsigned each_file(const char *dir, bool remove_it)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) { /* NOLINT(concurrency-mt-unsafe) */
        if (e->d_name[0] != '.') {
            n++;
            if (remove_it) {
                (void)unlinkat(dirfd(d), e->d_name, 0);
            }
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

unsigned box_run_files(const box_t *box)
{
    return each_file(box->sbx->info.run_dir, false);
}

void box_lose(box_t *box)
{
    for (kg_proc_t *p = box->sbx->procs; p; p = p->next) {
        kill(-p->pid, SIGKILL);
    }
    box->sbx->lost = true;
}

void box_close(box_t **box_ptr)
{
    box_t *box = *box_ptr;
    *box_ptr = NULL;
    (void)each_file(box->sbx->info.run_dir, true);
    rmdir(box->sbx->info.run_dir);
    free(box->sbx);
    free(box);
}
