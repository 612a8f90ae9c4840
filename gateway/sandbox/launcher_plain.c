/* sandal-init runs with the keeper's rights, so that as root the sandbox's processes can't signal,
 * trace or replace it. Rootless they can end it, as they can all of their own: same user. */
#include "gateway/sandbox/launcher_plain.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/landlock.h"

#define RUN_NAME_MAX 24 /* names of sockets in the run directory that must fit sun_path */
#define FIRST_SPARE_FD 10
#define CONNECT_MS 5000
#define SOCKET_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)

typedef struct kg_plain_fds {
    int listen;
    int run_dir;
    int workspace;
} kg_plain_fds_t;

int kg_plain_probe(const kg_host_t *host, char ret_reason[160])
{
    if (access(host->init_exe, X_OK) < 0) {
        int r = -errno;
        (void)snprintf(ret_reason, 160, "cannot run %.80s: %s", host->init_exe,
                       strerrordesc_np(errno));
        return r;
    }
    return 0;
}

static int socket_name(const char *id, char *ret, size_t cap)
{
    return kg_format(ret, cap, "%s.init", id);
}

/* Where all sandboxes have one user id, it does not tell who connects: a named socket is anybody's.
 * An abstract one that was made outside is closed to what Landlock holds, from ABI 6 on. Of these
 * launchers `process` has Landlock, and alone leaves the filter to sandal-init. */
static bool is_abstract(const kg_host_t *host, bool landlock)
{
    return !host->is_root && landlock && kg_ll_abi() >= KG_LL_ABI_SCOPES;
}

static int abstract_name(const kg_host_t *host, const char *id, char *ret, size_t cap)
{
    return kg_format(ret, cap, "sandal%s/%s", host->runtime_dir,
                     id); /* make_paths has looked at its length */
}

int kg_plain_socket_path(const kg_host_t *host, const char *id, char *ret, size_t cap)
{
    return kg_format(ret, cap, "%s/%s.init", host->runtime_dir, id);
}

static int make_paths(const kg_host_t *host, const char *id, kg_launched_t *ret, kg_err_t *err)
{
    int r = kg_format(ret->workspace, sizeof(ret->workspace), "%s/sandboxes/%s/workspace",
                      host->state_dir, id);
    if (r == 0) {
        r = kg_format(ret->home, sizeof(ret->home), "%s/sandboxes/%s/home", host->state_dir, id);
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "the state directory's path is too long (%zu bytes)",
                          strlen(host->state_dir));
    }
    r = kg_format(ret->run_dir, sizeof(ret->run_dir), "%s/%s", host->runtime_dir, id);
    if (r < 0 || strlen(ret->run_dir) + 1 + RUN_NAME_MAX >= SOCKET_PATH_MAX) {
        (void)kg_err_set(err, KG_ERR_CONFIG,
                         "the runtime directory's path is too long (%zu bytes) for the unix "
                         "sockets of kernels below it",
                         strlen(host->runtime_dir));
        kg_err_hint(err, "choose a shorter one with --runtime-dir, 54 bytes at most");
        return -EINVAL;
    }
    return 0;
}

static int make_leaves(const kg_launch_t *l, int parent)
{
    static const char *const leaves[] = {"workspace", "home"};
    for (size_t i = 0; i < KG_ARRAY_LEN(leaves); i++) {
        int r = kg_fs_make_dir(parent, leaves[i], 0700, l->uid, l->gid);
        if (r == -EEXIST && l->dirs_exist) {
            continue; /* the keeper has checked whose they are */
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int make_dirs(const kg_host_t *host, const kg_launch_t *l, kg_plain_fds_t *fds)
{
    int r = kg_fs_make_dir(host->sandboxes_fd, l->id, 0711, (uid_t)-1, (gid_t)-1);
    if (r < 0 && !(r == -EEXIST && l->dirs_exist)) {
        return r;
    }
    KG_AUTO_CLOSE int dir =
        openat(host->sandboxes_fd, l->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        return -errno;
    }
    r = make_leaves(l, dir);
    if (r < 0) {
        return r;
    }
    fds->workspace = openat(dir, "workspace", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fds->workspace < 0) {
        return -errno;
    }
    r = kg_fs_remove_tree(host->runtime_fd,
                          l->id); /* of an earlier life, sockets and small files at most */
    if (r == 0) {
        r = kg_fs_make_dir(host->runtime_fd, l->id, 0700, l->uid, l->gid);
    }
    if (r < 0) {
        return r;
    }
    fds->run_dir = openat(host->runtime_fd, l->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fds->run_dir < 0 ? -errno : 0;
}

static int
make_socket(const kg_host_t *host, const kg_launch_t *l, bool landlock, kg_plain_fds_t *fds)
{
    char path[SOCKET_PATH_MAX];
    int r = is_abstract(host, landlock) ? abstract_name(host, l->id, path, sizeof(path))
                                        : kg_plain_socket_path(host, l->id, path, sizeof(path));
    if (r < 0) {
        return r;
    }
    fds->listen = kg_init_sock_bind(path);
    return fds->listen < 0 ? fds->listen : 0;
}

static void fds_close(kg_plain_fds_t *fds)
{
    kg_closep(&fds->listen);
    kg_closep(&fds->run_dir);
    kg_closep(&fds->workspace);
}

/* Puts the descriptors at the numbers that sandal-init expects, by way of high ones so that none
 * overwrites another. */
static int place_fds(const kg_plain_fds_t *fds)
{
    const int from[] = {fds->listen, fds->run_dir};
    const int to[] = {KG_INIT_FD_LISTEN, KG_INIT_FD_RUN_DIR};
    int spare[KG_ARRAY_LEN(from)];

    for (size_t i = 0; i < KG_ARRAY_LEN(from); i++) {
        spare[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
        if (spare[i] < 0) {
            return -errno;
        }
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(from); i++) {
        if (dup2(spare[i], to[i]) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int exec_init(const kg_host_t *host, const kg_launch_t *l, unsigned init_flags)
{
    char numbers[5][16];
    char *env[] = {NULL};
    const unsigned values[5] = {l->uid, l->gid, l->killer_uid, init_flags, host->orphan_s};

    for (size_t i = 0; i < KG_ARRAY_LEN(values); i++) {
        (void)snprintf(numbers[i], sizeof(numbers[i]), "%u", values[i]);
    }
    const char *const args[] = {"sandal-init", l->id,      numbers[0], numbers[1],
                                numbers[2],    numbers[3], numbers[4], NULL};
    char *argv[KG_ARRAY_LEN(args)];
    memcpy(argv, args, sizeof(args)); /* exec only reads them */
    execve(host->init_exe, argv, env);
    return -errno;
}

/* In the child, until exec. */
static int become_init(const kg_host_t *host,
                       const kg_launch_t *l,
                       const kg_plain_fds_t *fds,
                       unsigned init_flags,
                       kg_plain_confine_fn *confine,
                       const kg_launched_t *launched)
{
    sigset_t none;

    /* By its path: descriptors may be of the mount namespace that the keeper has left, and a cwd in
     * that has no name for getcwd. */
    if (setsid() < 0 || chdir(launched->workspace) < 0) {
        return -errno;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) {
        return -errno;
    }
    int r = place_fds(fds);
    if (r < 0) {
        return r;
    }
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    r = confine ? confine(host, l, launched) : 0;
    return r < 0 ? r : exec_init(host, l, init_flags);
}

static int start_init(const kg_host_t *host,
                      const kg_launch_t *l,
                      const kg_plain_fds_t *fds,
                      unsigned init_flags,
                      kg_plain_confine_fn *confine,
                      kg_launched_t *launched)
{
    int report[2];
    int error = 0;

    if (pipe2(report, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid < 0) {
        error = -errno;
        close(report[0]);
        close(report[1]);
        return error;
    }
    if (pid == 0) {
        error = fcntl(report[1], F_DUPFD_CLOEXEC,
                      FIRST_SPARE_FD); /* out of the way of the fixed numbers */
        if (error >= 0) {
            report[1] = error;
        }
        error = become_init(host, l, fds, init_flags, confine, launched);
        (void)!write(report[1], &error, sizeof(error));
        _exit(127);
    }
    close(report[1]);
    ssize_t n;
    do {
        n = read(report[0], &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n != 0) {
        (void)waitpid(pid, NULL, 0);
        return n == (ssize_t)sizeof(error) ? error : -EIO;
    }
    launched->init_pid = pid;
    return 0;
}

int kg_plain_create(const kg_host_t *host,
                    const kg_launch_t *l,
                    unsigned init_flags,
                    kg_plain_confine_fn *confine,
                    kg_launched_t *ret,
                    kg_err_t *err)
{
    kg_plain_fds_t fds = {-1, -1, -1};
    const char *step = "make the directories of the sandbox";

    int r = make_paths(host, l->id, ret, err);
    if (r < 0) {
        return r;
    }
    r = make_dirs(host, l, &fds);
    if (r == 0) {
        step = "make the socket of sandal-init";
        r = make_socket(host, l, (init_flags & KG_INIT_FLAG_FILTER) != 0, &fds);
    }
    if (r == 0) {
        step = "start sandal-init";
        r = start_init(host, l, &fds, init_flags, confine, ret);
    }
    fds_close(&fds);
    if (r < 0) {
        kg_err_code_t code =
            r == -ENOSPC || r == -EDQUOT ? KG_ERR_STORAGE_FULL : kg_err_from_errno(r);
        if (r == -EEXIST) { /* somebody else's */
            return kg_err_set(err, KG_ERR_CONFLICT, "cannot %s: %s", step, strerrordesc_np(-r));
        }
        (void)kg_plain_cleanup(host, l->id, l->slot, l->dirs_exist);
        r = kg_err_set(err, code, "cannot %s: %s", step, strerrordesc_np(-r));
    }
    return r;
}

int kg_plain_connect(const kg_host_t *host, const char *id, pid_t init_pid)
{
    char path[SOCKET_PATH_MAX];
    char name[64];
    int r = socket_name(id, name, sizeof(name));
    if (r == 0 && faccessat(host->runtime_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        r = abstract_name(host, id, path, sizeof(path));
    } else if (r == 0) {
        r = kg_plain_socket_path(host, id, path, sizeof(path));
    }
    return r < 0 ? r : kg_init_sock_connect(path, init_pid, CONNECT_MS);
}

void kg_plain_destroy(const kg_host_t *host, const char *id, pid_t init_pid)
{
    (void)host;
    (void)id;
    (void)kill(init_pid, SIGKILL);
}

int kg_plain_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    char name[64];
    (void)slot;
    if (socket_name(id, name, sizeof(name)) == 0) {
        (void)unlinkat(host->runtime_fd, name, 0);
    }
    int r = kg_fs_remove_tree(host->runtime_fd, id);
    if (r == 0 && !keep_files) {
        r = kg_fs_remove_tree(host->sandboxes_fd, id);
    }
    return r;
}
