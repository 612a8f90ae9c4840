/* `bubblewrap`: bwrap makes the namespaces and the root, with one user id in it and nothing that is
 * root; it works for ordinary users. Under a root keeper it is started as the sandbox's own uid, so
 * that not even its user namespace belongs to root. Its first process, which only waits, is ended
 * as soon as sandal-init answers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/bwrap_args.h"
#include "gateway/sandbox/bwrap_probe.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/launcher_plain.h"
#include "gateway/sandbox/ns.h"

#define RANK 20
#define START_MS 15000
#define KILL_TRIES 200
#define KILL_NAP_NS 5000000
#define FREEZE_MS 500

typedef struct kg_bw_start {
    kg_launched_t launched;
    kg_bw_args_t args;
    int args_fd;
    int info[2];      /* pipe: bwrap tells the pid of its child */
    bool in_cgroup;   /* groups are made */
    rlim_t as, nproc; /* where there are none; RLIM_INFINITY = not set */
    pid_t net_holder; /* rootless with egress: is in the sandbox's network namespace before it */
    int net_ns;
} kg_bw_start_t;

/* --- bwrap itself ---------------------------------------------------------------------------- */

/* All words as a file for --args, so that they don't show in lists of processes. */
static int make_args_file(const kg_bw_args_t *args)
{
    int fd = memfd_create("sandal", MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int high = fcntl(fd, F_DUPFD_CLOEXEC, KG_INIT_FD_RUN_DIR + 1);
    close(fd);
    if (high < 0) {
        return -errno;
    }
    if (write(high, args->text.data, args->text.len) != (ssize_t)args->text.len ||
        lseek(high, 0, SEEK_SET) < 0) {
        close(high);
        return -EIO;
    }
    return high;
}

static int let_through(int fd)
{
    return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
}

static int let_all_through(const kg_bw_start_t *start)
{
    int r = let_through(start->args_fd);
    if (r == 0) {
        r = let_through(start->info[1]);
    }
    for (size_t i = 0; r == 0 && i < start->args.fd_count; i++) {
        r = let_through(start->args.fds[i]);
    }
    return r;
}

static int exec_words(const kg_host_t *host, const kg_launch_t *l, int args_fd)
{
    char words[4][16];
    char *env[] = {NULL};

    (void)snprintf(words[0], sizeof(words[0]), "%d", args_fd);
    (void)snprintf(words[1], sizeof(words[1]), "%u", KG_BW_UID);
    (void)snprintf(words[2], sizeof(words[2]), "%u",
                   KG_INIT_FLAG_PIDNS | KG_INIT_FLAG_FILTER | KG_INIT_FLAG_OWN_ROOT);
    (void)snprintf(words[3], sizeof(words[3]), "%u", host->orphan_s);
    const char *const args[] = {"bwrap",  "--args", words[0], "--",     KG_BW_INIT, l->id,
                                words[1], words[1], "0",      words[2], words[3],   NULL};
    char *argv[KG_ARRAY_LEN(args)];
    memcpy(argv, args, sizeof(args));                                 /* exec only reads them */
    (void)kg_ns_take_cpus(0, l->slot, l->request->limits.cpu_millis); /* a view: without it more */
    execve(KG_BW_PROGRAM, argv, env);
    return -errno;
}

/* In the child, its listening socket in place. Comes back only when it fails. */
static int exec_bwrap(const kg_host_t *host, const kg_launch_t *l, const kg_launched_t *launched)
{
    const kg_bw_start_t *start =
        (const void *)((const char *)launched - offsetof(kg_bw_start_t, launched));

    (void)close(KG_INIT_FD_RUN_DIR); /* a directory of the host's is a way out */
    int r = start->in_cgroup ? kg_cgroup_enter(&host->cgroups, l->id) : 0;
    if (r == 0 && l->request->limits.nofile > 0) {
        const struct rlimit files = {l->request->limits.nofile, l->request->limits.nofile};
        r = setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0;
    }
    if (r == 0) {
        r = kg_bw_become_user(host, l);
    }
    if (r == 0) {
        r = let_all_through(start);
    }
    if (r == 0 && start->net_ns >= 0) {
        r = kg_net_join(&host->nets, start->net_ns);
    }
    return r < 0 ? r : exec_words(host, l, start->args_fd);
}

/* --- Limits ---------------------------------------------------------------------------------- */

static bool on_volume(const kg_host_t *host)
{
    return host->is_root && host->volumes.backend != KG_VOL_NONE;
}

static int refuse(const kg_host_t *host, const kg_launch_t *l, kg_err_t *err)
{
    if (l->request->limits.disk_bytes > 0 && !on_volume(host)) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "isolation bubblewrap can't hold a limit of the disk here");
    }
    if (l->request->network.mode == KG_NET_HOST) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "isolation bubblewrap doesn't give the host's network");
    }
    return 0;
}

static int refuse_network(const kg_host_t *host, const kg_launch_t *l, kg_err_t *err)
{
    if (l->request->network.mode != KG_NET_EGRESS || host->nets.available) {
        return 0;
    }
    (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED, "there is no way out of a sandbox here: %s",
                     host->nets.reason[0] ? host->nets.reason : "the daemon doesn't run as root");
    kg_err_hint(err, "ask for the network \"none\"");
    return -kg_err_errno(KG_ERR_NOT_SUPPORTED);
}

/* By groups where they can be had; else memory and processes by rlimits, of which memory's is each
 * process's own. isolation.cgroup says so. */
static int
hold_limits(const kg_host_t *host, const kg_launch_t *l, kg_bw_start_t *start, kg_err_t *err)
{
    const kg_limits_t *limits = &l->request->limits;
    const kg_cgroups_t *cg = &host->cgroups;
    kg_isolation_info_t *info = &start->launched.isolation;
    kg_limits_t by_group = *limits;

    start->as = start->nproc = RLIM_INFINITY;
    if (limits->memory_bytes > 0 && cg->version[KG_CG_MEMORY] == KG_CG_NONE && !host->is_root) {
        start->as = limits->memory_bytes;
        by_group.memory_bytes = 0;
    }
    if (limits->pids > 0 && cg->version[KG_CG_PIDS] == KG_CG_NONE && !host->is_root) {
        start->nproc = limits->pids;
        by_group.pids = 0;
    }
    int r = kg_cgroup_make(cg, l->id, &by_group, err);
    start->in_cgroup = r == 0;
    bool by_rlimits = start->as != RLIM_INFINITY || start->nproc != RLIM_INFINITY;
    (void)snprintf(info->cgroup, sizeof(info->cgroup), "%s",
                   by_rlimits ? "rlimits" : kg_cgroups_word(cg));
    return r;
}

/* Counted in the sandbox's user namespace alone, so not before it is there. */
static int set_rlimits(const kg_bw_start_t *start)
{
    const struct rlimit as = {start->as, start->as};
    const struct rlimit nproc = {start->nproc, start->nproc};
    pid_t pid = start->launched.init_pid;

    if (start->as != RLIM_INFINITY && prlimit(pid, RLIMIT_AS, &as, NULL) < 0) {
        return -errno;
    }
    if (start->nproc != RLIM_INFINITY && prlimit(pid, RLIMIT_NPROC, &nproc, NULL) < 0) {
        return -errno;
    }
    return 0;
}

/* --- Create ---------------------------------------------------------------------------------- */

static int make_info_pipe(kg_bw_start_t *start)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0) {
        return -errno;
    }
    for (int i = 0; i < 2; i++) {
        start->info[i] = fcntl(pair[i], F_DUPFD_CLOEXEC, KG_INIT_FD_RUN_DIR + 1);
        close(pair[i]);
    }
    return start->info[0] < 0 || start->info[1] < 0 ? -EMFILE : 0;
}

/* {"child-pid": N, …}; the pipe's end comes when bwrap has told all, or is gone. */
static int read_child_pid(int fd, pid_t *ret_pid)
{
    char text[1024];
    size_t len = 0;
    ssize_t n = 1;
    uint64_t until_ns = kg_now_ns() + START_MS * KG_NS_PER_MS;

    while (n > 0 && len < sizeof(text) - 1) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 1000) < 0 && errno != EINTR) {
            return -errno;
        }
        if (poll_fd.revents == 0) {
            if (kg_now_ns() >= until_ns) {
                return -ETIMEDOUT;
            }
            continue;
        }
        n = read(fd, text + len, sizeof(text) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
    const char *at = strstr(text, "\"child-pid\":");
    int pid = 0;
    if (!at || sscanf(at, "\"child-pid\": %d", &pid) != 1 || pid <= 1) { // NOLINT(cert-err34-c)
        return -ECHILD;
    }
    *ret_pid = (pid_t)pid;
    return 0;
}

/* From bwrap's start to a sandal-init that answers. */
static int
wait_ready(const kg_host_t *host, const kg_launch_t *l, kg_bw_start_t *start, kg_err_t *err)
{
    pid_t outer = start->launched.init_pid;
    pid_t init = 0;

    kg_closep(&start->info[1]);
    int r = read_child_pid(start->info[0], &init);
    if (r == 0) {
        start->launched.init_pid = init;
        int fd = kg_plain_connect(host, l->id, init);
        r = fd < 0 ? fd : 0;
        kg_closep(&fd);
    }
    if (r == 0) {
        r = set_rlimits(start);
    }
    if (r < 0 && init > 0) {
        (void)kill(init, SIGKILL);
    }
    (void)kill(outer, SIGKILL); /* init is the keeper's now */
    (void)waitpid(outer, NULL, 0);
    return r < 0 ? kg_err_set(err, KG_ERR_INTERNAL,
                              "bwrap made no sandbox (its reason is in the keeper's log): %s",
                              strerrordesc_np(-r))
                 : 0;
}

/* An ordinary user's network is made before the sandbox: over what bwrap makes, nobody has rights
 * but bwrap. */
static int
make_network(const kg_host_t *host, const kg_launch_t *l, kg_bw_start_t *start, kg_err_t *err)
{
    char path[48];

    if (l->request->network.mode != KG_NET_EGRESS || !host->nets.routed) {
        return 0;
    }
    int r = kg_net_hold(&host->nets, &start->net_holder);
    if (r == 0) {
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)start->net_holder);
        KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        start->net_ns = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, KG_INIT_FD_RUN_DIR + 1);
        r = start->net_ns < 0 ? -errno : 0;
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_INTERNAL, "a network namespace for the sandbox: %s",
                          strerrordesc_np(-r));
    }
    return kg_net_attach(&host->nets, l->slot, start->net_holder, &l->request->network, err);
}

static int make_resolv_conf(const kg_host_t *host, const kg_launch_t *l, char *ret, size_t cap)
{
    ret[0] = '\0';
    if (l->request->network.mode != KG_NET_EGRESS) {
        return 0;
    }
    int n = kg_net_resolv_conf(&host->nets, l->slot, ret, cap - 1);
    if (n >= 0) {
        ret[n] = '\0';
    }
    return n < 0 ? n : 0;
}

/* Both directories on a volume of the user's, instead of those that kg_plain_create makes. Mounts
 * of it are seen by bwrap alone, and from there in the sandbox. */
static int
make_volume(const kg_host_t *host, const kg_launch_t *l, kg_launched_t *ret, kg_err_t *err)
{
    char volume[256];
    char path[320];

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
        return kg_err_set(err, KG_ERR_INTERNAL, "a mount namespace for the volume: %s",
                          strerrordesc_np(errno));
    }
    int r = kg_volume_make(&host->volumes, l->id, l->request->limits.disk_bytes, l->uid, l->gid,
                           volume, err);
    if (r < 0) {
        return r;
    }
    (void)snprintf(path, sizeof(path), "%s/upper", volume);
    KG_AUTO_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    static const char *const leaves[] = {"workspace", "home"};
    for (size_t i = 0; r == 0 && i < KG_ARRAY_LEN(leaves); i++) {
        r = dir < 0 ? -errno : kg_fs_make_dir(dir, leaves[i], 0700, l->uid, l->gid);
        r = r == -EEXIST ? 0 : r;
    }
    if (r == 0) {
        r = kg_format(ret->workspace, sizeof(ret->workspace), "%s/workspace", path);
    }
    if (r == 0) {
        r = kg_format(ret->home, sizeof(ret->home), "%s/home", path);
    }
    return r < 0 ? kg_err_set(err, kg_err_from_errno(r), "the sandbox's directories: %s",
                              strerrordesc_np(-r))
                 : 0;
}

/* On the host; kg_plain_create makes them. */
static int make_paths(const kg_host_t *host, const kg_launch_t *l, kg_launched_t *ret)
{
    int r = kg_format(ret->workspace, sizeof(ret->workspace), "%s/sandboxes/%s/workspace",
                      host->state_dir, l->id);
    if (r == 0) {
        r = kg_format(ret->home, sizeof(ret->home), "%s/sandboxes/%s/home", host->state_dir, l->id);
    }
    return r < 0 ? r
                 : kg_format(ret->run_dir, sizeof(ret->run_dir), "%s/%s", host->runtime_dir, l->id);
}

static int prepare(const kg_host_t *host, const kg_launch_t *l, kg_bw_start_t *start, kg_err_t *err)
{
    char resolv[1024];
    kg_bw_spec_t spec = {.host = host,
                         .launch = l,
                         .paths = &start->launched,
                         .network_is_there = start->net_ns >= 0};

    int r = make_resolv_conf(host, l, resolv, sizeof(resolv));
    spec.resolv_conf = resolv;
    if (r == 0) {
        r = make_info_pipe(start);
    }
    if (r == 0) {
        r = make_paths(host, l, &start->launched);
    }
    if (r == 0 && on_volume(host) && make_volume(host, l, &start->launched, err) < 0) {
        return -EIO;
    }
    if (r == 0 && kg_bw_build(&start->args, &spec, err) < 0) {
        return -EIO;
    }
    if (r == 0) {
        char info[16];
        (void)snprintf(info, sizeof(info), "%d", start->info[1]);
        kg_bw_add(&start->args, "--info-fd", info, NULL);
        r = start->args.error;
    }
    if (r == 0) {
        start->args_fd = make_args_file(&start->args);
        r = start->args_fd < 0 ? start->args_fd : 0;
    }
    return r < 0 ? kg_err_set(err, kg_err_from_errno(r), "bwrap can't be started: %s",
                              strerrordesc_np(-r))
                 : 0;
}

static int
bubblewrap_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files);

static int run(const kg_host_t *host, const kg_launch_t *l, kg_bw_start_t *start, kg_err_t *err)
{
    int r = kg_plain_create(host, l, 0, exec_bwrap, &start->launched, err);
    if (r == 0) {
        r = wait_ready(host, l, start, err);
        if (r == 0 && l->request->network.mode == KG_NET_EGRESS && !host->nets.routed) {
            r = kg_net_attach(&host->nets, l->slot, start->launched.init_pid, &l->request->network,
                              err);
        }
        if (r < 0 && start->launched.init_pid > 0) {
            (void)kill(start->launched.init_pid, SIGKILL);
            (void)bubblewrap_cleanup(host, l->id, l->slot, l->dirs_exist);
        }
    }
    return r;
}

static int bubblewrap_create(const kg_host_t *host,
                             const kg_launch_t *l,
                             kg_launched_t *ret_launched,
                             kg_err_t *err)
{
    kg_bw_start_t start = {
        .launched = {.own_root = true,
                     .isolation = {.kind = "bubblewrap", .userns = "own", .seccomp = "filter"}},
        .args_fd = -1,
        .info = {-1, -1},
        .net_ns = -1,
    };
    int r = refuse(host, l, err);

    r = r == 0 ? refuse_network(host, l, err) : r;
    r = r == 0 ? hold_limits(host, l, &start, err) : r;
    r = r == 0 ? make_network(host, l, &start, err) : r;
    r = r == 0 ? prepare(host, l, &start, err) : r;
    r = r == 0 ? run(host, l, &start, err) : r;
    if (r < 0 && start.net_holder > 0) {
        (void)kg_net_detach(&host->nets, l->slot);
    }
    if (r < 0 && start.in_cgroup) {
        (void)kg_cgroup_remove(&host->cgroups, l->id);
    }
    kg_net_release(&start.net_holder);
    kg_closep(&start.net_ns);
    if (r < 0 && on_volume(host) && !l->dirs_exist) {
        (void)kg_volume_remove(&host->volumes, l->id);
    }
    kg_bw_args_fini(&start.args);
    kg_closep(&start.args_fd);
    kg_closep(&start.info[0]);
    kg_closep(&start.info[1]);
    if (r < 0) {
        return r;
    }
    (void)snprintf(start.launched.isolation.disk, sizeof(start.launched.isolation.disk), "%s",
                   on_volume(host) ? kg_vol_backend_name(host->volumes.backend) : "none");
    bool egress = l->request->network.mode == KG_NET_EGRESS;
    (void)snprintf(start.launched.isolation.network, sizeof(start.launched.isolation.network), "%s",
                   egress ? "egress" : "none");
    (void)strcpy(start.launched.workspace, "/workspace"); // NOLINT: they fit
    (void)strcpy(start.launched.home, "/home/user");      // NOLINT
    (void)strcpy(start.launched.run_dir, "/run/sandal");  // NOLINT
    *ret_launched = start.launched;
    return 0;
}

/* --- The rest -------------------------------------------------------------------------------- */

static int bubblewrap_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    const struct timespec nap = {.tv_nsec = KILL_NAP_NS};
    const kg_cgroups_t *cg = &host->cgroups;
    int r = -EBUSY;

    for (int i = 0; i < KILL_TRIES && r == -EBUSY; i++) { /* of a create that was killed half-way */
        if (kg_cgroup_kill(cg, id) > 0) {
            nanosleep(&nap, NULL);
        }
        r = kg_cgroup_remove(cg, id);
    }
    if (host->nets.available) {
        int net = kg_net_detach(&host->nets, slot);
        r = r == 0 ? net : r;
    }
    int files = kg_plain_cleanup(host, id, slot, keep_files);
    if (on_volume(host) && (!keep_files || !kg_volumes_keep(&host->volumes))) {
        int volume = kg_volume_remove(&host->volumes, id);
        files = files == 0 ? volume : files;
    }
    return r == 0 ? files : r;
}

static int bubblewrap_pause(const kg_host_t *host, const char *id, bool frozen, kg_err_t *err)
{
    int r = kg_cgroup_freeze(&host->cgroups, id, frozen, FREEZE_MS);
    if (r == -ENOTSUP) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "sandboxes can't be paused here: %s",
                          host->cgroups.reason[KG_CG_FREEZE]);
    }
    return r < 0 ? kg_err_set(err, KG_ERR_INTERNAL, "the sandbox can't be %s: %s",
                              frozen ? "paused" : "resumed", strerrordesc_np(-r))
                 : 0;
}

static int bubblewrap_usage(const kg_host_t *host, const char *id, kg_box_usage_t *ret)
{
    if (kg_cgroup_usage(&host->cgroups, id, ret) < 0) { /* it has none: nothing is counted */
        *ret = (kg_box_usage_t){UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                UINT64_MAX, UINT64_MAX, UINT64_MAX};
    }
    if (on_volume(host)) {
        (void)kg_volume_usage(&host->volumes, id, &ret->disk_bytes);
    }
    return 0;
}

const kg_launcher_t kg_launcher_bubblewrap = {
    .name = "bubblewrap",
    .rank = RANK,
    .holds = true,
    .volumes = true,
    .egress = true,
    .probe = kg_bw_probe,
    .create = bubblewrap_create,
    .connect = kg_plain_connect,
    .destroy = kg_plain_destroy,
    .cleanup = bubblewrap_cleanup,
    .pause = bubblewrap_pause,
    .usage = bubblewrap_usage,
};
