/* `gvisor`: a sandbox as of `namespace` in which nothing runs but sandal-init; what is started is
 * started in a kernel of its own, gVisor's, by a second sandal-init that is runsc's only process.
 * Both see the same root, /tmp and /run, so files, and the sockets that kernels make there, are
 * reached without the other kernel; processes and ports are asked of it (init/guest.c). */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/oci.h"
#include "gateway/sandbox/proctree.h"
#include "gateway/sandbox/seqsock.h"

#define RANK 200
#define LEAST_PIDS 128U
#define LEAST_BYTES (UINT64_C(64) << 20)
#define TRIAL_ID "sbx-trial"
#define REAP_MS 5000
#define VERSION_MS 5000
/* As tried. Debian 12's own of 2022 knows too few flags of statx: `ls -l` finds nothing. */
#define OLDEST 20240729U

/* Its own groups are left alone: it runs in the sandbox's. No network but its own loopback. Files
 * are the host's, seen by both, and so are sockets that it makes among them. */
static const char *const flags[] = {"--network=none",  "--ignore-cgroups", "--file-access=shared",
                                    "--overlay2=none", "--host-uds=all",   NULL};
static const char *const none[] = {NULL};
static const kg_oci_t runsc = {
    .kind = "gvisor", .program = "runsc", .flags = flags, .run_words = none, .fd = KG_INIT_FD_LINK};

typedef struct kg_gv_box {
    const kg_host_t *host;
    const kg_launch_t *launch;
    bool trial;
    char place[OCI_PLACE_MAX];
    int link[2]; /* of the outer sandal-init, of the inner one */
    pid_t pid;   /* of the outer one */
    pid_t guest; /* as runsc names it */
} kg_gv_box_t;

static int fail(kg_err_t *err, int r, const char *what)
{
    (void)kg_err_set(err, kg_err_from_errno(-r), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

/* --- Mounts that both have -------------------------------------------------------------------- */

static int clone_tree(const char *path)
{
    long fd = syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

/* Its own tmpfs, out of its mount namespace. */
static int take_trees(pid_t pid, int *ret_run, int *ret_tmp)
{
    char path[64];
    KG_AUTO_CLOSE int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

    (void)kg_format(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    KG_AUTO_CLOSE int its = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || its < 0 || setns(its, CLONE_NEWNS) < 0) {
        return -errno;
    }
    KG_AUTO_CLOSE int run = clone_tree("/run");
    KG_AUTO_CLOSE int tmp = clone_tree("/tmp");
    if (setns(own, CLONE_NEWNS) < 0) {
        return -errno;
    }
    if (run < 0 || tmp < 0) {
        return run < 0 ? run : tmp;
    }
    *ret_run = kg_take_fd(&run);
    *ret_tmp = kg_take_fd(&tmp);
    return 0;
}

static int show_tree(const char *place, const char *name, int tree)
{
    char path[OCI_PLACE_MAX];

    int r = kg_format(path, sizeof(path), "%s/%s", place, name);
    if (r == 0 && (mkdir(path, 0755) < 0 || syscall(SYS_move_mount, tree, "", AT_FDCWD, path,
                                                    MOVE_MOUNT_F_EMPTY_PATH) < 0)) {
        r = -errno;
    }
    return r;
}

static int make_place(kg_gv_box_t *box)
{
    KG_AUTO_CLOSE int run = -1;
    KG_AUTO_CLOSE int tmp = -1;

    int r = kg_oci_place(box->place);
    if (r == 0) {
        r = take_trees(box->pid, &run, &tmp);
    }
    if (r == 0) {
        r = show_tree(box->place, "run", run);
    }
    return r < 0 ? r : show_tree(box->place, "tmp", tmp);
}

static int make_bundle(const kg_gv_box_t *box)
{
    char root[OCI_PLACE_MAX];
    char run[OCI_PLACE_MAX];
    char tmp[OCI_PLACE_MAX];
    const kg_oci_spec_t spec = {
        .id = box->launch->id,
        .base = box->launch->base,
        .limits = &box->launch->request->limits,
        .root = root,
        .run = run,
        .tmp = tmp,
        .guest = true,
        .orphan_s = box->host->orphan_s,
    };

    (void)kg_format(root, sizeof(root), "%s/root", box->place);
    (void)kg_format(run, sizeof(run), "%s/run", box->place);
    (void)kg_format(tmp, sizeof(tmp), "%s/tmp", box->place);
    return kg_oci_bundle(box->host, &runsc, &spec);
}

/* --- Create ----------------------------------------------------------------------------------- */

static int make(kg_gv_box_t *box, kg_err_t *err)
{
    const kg_host_t *host = box->host;
    const kg_launch_t *l = box->launch;

    int r = kg_seq_pair(box->link);
    if (r < 0) {
        return fail(err, r, "a pair of sockets");
    }
    r = kg_ns_make(host, l, box->trial, box->link[0], &box->pid, err);
    if (r < 0) {
        box->pid = 0;
        return r;
    }
    kg_closep(&box->link[0]); /* so that the end of one is seen by the other */
    r = make_place(box);
    if (r == 0) {
        r = make_bundle(box);
    }
    if (r < 0) {
        return fail(err, r, "the sandbox's root can't be laid out");
    }
    /* Its kernel counts as many as it may use itself. */
    (void)kg_ns_take_cpus(0, l->slot, box->trial ? 0 : l->request->limits.cpu_millis);
    return kg_oci_start(host, &runsc, l->id, box->link[1], !box->trial, &box->guest, err);
}

static int gv_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    (void)kg_cgroup_kill(&host->cgroups, id); /* before runsc is asked: what is dead it forgets */
    int forgotten = kg_oci_forget(host, &runsc, id);
    int r = kg_ns_cleanup(host, id, slot, keep_files);
    return r < 0 ? r : forgotten;
}

/* The guest and its helpers, all of which have been killed or end by themselves. */
static void reap_all(unsigned limit_ms)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t until = kg_now_ns() + limit_ms * KG_NS_PER_MS;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0 || (pid == 0 && kg_now_ns() < until)) {
        if (pid == 0) {
            nanosleep(&nap, NULL);
        }
    }
}

static int gv_make(kg_gv_box_t *box, kg_err_t *err)
{
    int r = make(box, err);

    kg_closep(&box->link[0]);
    kg_closep(&box->link[1]);
    if (r < 0 || box->trial) {
        kg_oci_end(box->pid);
        kg_oci_end(box->guest);
    }
    if (box->trial) {
        reap_all(box->guest > 0 ? REAP_MS : 0);
        (void)kg_oci_forget(box->host, &runsc, box->launch->id);
    } else if (r < 0 && box->pid > 0) {
        (void)gv_cleanup(box->host, box->launch->id, box->launch->slot, box->launch->dirs_exist);
    }
    return r;
}

/* Its kernel is in the sandbox's groups, with some thirty threads and 16 MiB before anything runs.
 * Not said as what gives way: a limit of the operator's that is too tight must not be left out. */
static int check_limits(const kg_limits_t *limits, kg_err_t *err)
{
    if (limits->pids > 0 && limits->pids < LEAST_PIDS) {
        return kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                          "isolation gvisor needs a limit of %u processes at least", LEAST_PIDS);
    }
    if (limits->memory_bytes > 0 && limits->memory_bytes < LEAST_BYTES) {
        return kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                          "isolation gvisor needs a limit of %u MiB of memory at least",
                          (unsigned)(LEAST_BYTES >> 20));
    }
    return 0;
}

static int gv_create(const kg_host_t *host,
                     const kg_launch_t *launch,
                     kg_launched_t *ret_launched,
                     kg_err_t *err)
{
    kg_gv_box_t box = {.host = host, .launch = launch, .link = {-1, -1}};
    kg_launched_t made = {
        .own_root = true,
        .has_root = true,
        .isolation = {.kind = "gvisor", .userns = "own", .seccomp = "filter", .network = "none"},
        .workspace = "/workspace",
        .home = "/home/user",
        .run_dir = "/run/sandal",
    };

    if (launch->request->network.mode != KG_NET_NONE) {
        (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                         "isolation gvisor has no network but its own loopback");
        kg_err_hint(err, "ask for the network \"none\"");
        return -kg_err_errno(KG_ERR_NOT_SUPPORTED);
    }
    int r = gv_make(&box, err);
    if (r < 0) {
        return r;
    }
    made.init_pid = box.pid;
    (void)kg_format(made.isolation.cgroup, sizeof(made.isolation.cgroup), "%s",
                    kg_cgroups_word(&host->cgroups));
    (void)kg_format(made.isolation.disk, sizeof(made.isolation.disk), "%s",
                    kg_vol_backend_name(host->volumes.backend));
    *ret_launched = made;
    return 0;
}

/* --- Probe ------------------------------------------------------------------------------------ */

/* "runsc version 0.0~20240729.0" or "release-20240729.0": the date, 0 when there is none. */
static unsigned date_in(const char *text)
{
    for (const char *at = text; *at; at++) {
        size_t digits = strspn(at, "0123456789");
        uint64_t date;
        char word[9];
        if (digits == 8) {
            (void)kg_format(word, sizeof(word), "%.8s", at);
            return kg_parse_u64(word, 20000101, 99991231, &date) == 0 ? (unsigned)date : 0;
        }
        at += digits > 0 ? digits - 1 : 0;
    }
    return 0;
}

static unsigned read_date(const char *program)
{
    char text[256];
    size_t len = 0;
    ssize_t n = 1;
    int pair[2];
    int status;

    if (pipe2(pair, O_CLOEXEC) < 0) {
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char[]){"runsc"}, (char[]){"--version"}, NULL};
        char *env[] = {NULL};
        if (dup2(pair[1], 1) == 1) {
            execve(program, argv, env);
        }
        _exit(127);
    }
    close(pair[1]);
    struct pollfd until = {.fd = pair[0], .events = POLLIN};
    while (pid > 0 && n > 0 && len < sizeof(text) - 1 && poll(&until, 1, VERSION_MS) > 0) {
        n = read(pair[0], text + len, sizeof(text) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    close(pair[0]);
    if (pid > 0) {
        (void)kg_child_wait(pid, VERSION_MS, &status);
    }
    text[len] = '\0';
    return date_in(text);
}

static int gv_try(const kg_host_t *host, kg_err_t *err)
{
    char program[OCI_PATH_MAX];
    const kg_kp_create_t request = {.id = TRIAL_ID};
    const kg_launch_t launch = kg_ns_trial_launch(host, &request);
    kg_gv_box_t box = {.host = host, .launch = &launch, .trial = true, .link = {-1, -1}};

    const char *found = kg_oci_find(&runsc, program);
    unsigned date = found ? read_date(found) : 0;
    if (date < OLDEST) {
        (void)kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                         "runsc is of %u: too old, %u is the oldest that works", date, OLDEST);
        return -kg_err_errno(KG_ERR_ISOLATION_UNAVAILABLE);
    }
    /* The keeper, which waits for the trial, can't reap; what runsc is to delete must be gone. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    return gv_make(&box, err);
}

static int gv_probe(const kg_host_t *host, char ret_reason[160])
{
    return kg_oci_probe(&runsc, host, gv_try, ret_reason);
}

const kg_launcher_t kg_launcher_gvisor = {
    .name = "gvisor",
    .rank = RANK,
    .holds = true,
    .volumes = true,
    .check = check_limits,
    .probe = gv_probe,
    .create = gv_create,
    .connect = kg_ns_connect,
    .destroy = kg_ns_destroy,
    .cleanup = gv_cleanup,
    .pause = kg_ns_pause,
    .usage = kg_ns_usage,
    .close = kg_oci_close,
};
