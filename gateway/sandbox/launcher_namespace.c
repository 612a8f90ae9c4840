/* `namespace`: user, mount, pid, network, ipc, uts and cgroup namespaces of its own, a range of
 * ids, an overlay as its root, control groups, seccomp. Needs root on the host. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/launcher.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"

#define RANK 100
#define CONNECT_MS 5000
#define TRIAL_ID "sbx-trial"

/* --- Create ----------------------------------------------------------------------------------- */

typedef struct kg_ns_box {
    const kg_host_t *host;
    const kg_launch_t *launch;
    bool trial; /* no groups, no volume of the store, no network */
    int link;
    pid_t pid;
    int go[2];
    int report[2];
    int cgroup;
    int entries[KG_CG_FEATURES]; /* below a zygote */
    size_t entry_count;
    bool cgroup_made;
    bool volume_made;
    bool net_made;
} kg_ns_box_t;

static int fail(kg_err_t *err, int r, const char *what)
{
    (void)kg_err_set(err, kg_err_from_errno(-r), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

static void box_close(kg_ns_box_t *box)
{
    kg_closep(&box->go[0]);
    kg_closep(&box->go[1]);
    kg_closep(&box->report[0]);
    kg_closep(&box->report[1]);
    kg_closep(&box->cgroup);
    for (size_t i = 0; i < box->entry_count; i++) {
        kg_closep(&box->entries[i]);
    }
}

static unsigned slots_of(const kg_launch_t *launch)
{
    return launch->slots > 1 ? launch->slots : 1; /* of trials it is not said */
}

typedef struct kg_ns_start {
    kg_ns_box_t *box;
    kg_ns_inside_t *in;
} kg_ns_start_t;

static void run_inside(void *arg)
{
    const kg_ns_start_t *start = arg;
    close(start->box->go[1]);
    close(start->box->report[0]);
    start->in->go = start->box->go[0];
    start->in->report = start->box->report[1];
    kg_ns_inside(start->in);
}

/* What its maker may have is what the owner of a user namespace may have in it: below a zygote that
 * is one for all. Sandboxes have limits of their own (init/child.c). Root may lack the right to go
 * beyond what it has. */
static void lift_tasks_max(void)
{
    struct rlimit tasks = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_NPROC, &tasks) < 0 && getrlimit(RLIMIT_NPROC, &tasks) == 0) {
        tasks.rlim_cur = tasks.rlim_max;
        (void)setrlimit(RLIMIT_NPROC, &tasks);
    }
}

/* Its process, and the maps of its ids. All other namespaces come later, by itself: a new network
 * takes as long as all mounts of the worker do meanwhile; its own mounts begin when its root is
 * there, its groups when it is in them. */
static int clone_child(kg_ns_box_t *box, kg_ns_inside_t *in, kg_err_t *err)
{
    kg_ns_start_t start = {box, in};

    lift_tasks_max();
    if (box->launch->zygote != 0) {
        int r = kg_ns_clone_below(box->launch, run_inside, &start, &box->pid);
        return r < 0 ? fail(err, r, "new namespaces below the zygote's") : 0;
    }
    box->pid = kg_ns_clone(CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWPID, box->cgroup);
    if (box->pid < 0) {
        return fail(err, (int)box->pid, "new namespaces");
    }
    if (box->pid == 0) {
        run_inside(&start);
    }
    int r = kg_ns_write_maps(box->pid, 0, box->launch->base, KG_UID_RANGE * slots_of(box->launch));
    return r < 0 ? fail(err, r, "the sandbox's range of ids can't be mapped") : 0;
}

static int start_child(kg_ns_box_t *box, kg_err_t *err)
{
    kg_ns_inside_t in = {
        .host = box->host,
        .launch = box->launch,
        .cgroup_id = box->trial || box->launch->zygote ? NULL : box->launch->id,
        .entry_count = box->entry_count,
        .link = box->link,
        .oom = -1,
    };
    memcpy(in.entries, box->entries, sizeof(in.entries));

    if (pipe2(box->go, O_CLOEXEC) < 0 || pipe2(box->report, O_CLOEXEC) < 0) {
        return fail(err, -errno, "a pipe");
    }
    if (box->launch->request->network.mode == KG_NET_EGRESS && !box->trial) {
        int n = kg_net_resolv_conf(&box->host->nets, box->launch->slot, in.resolv_conf,
                                   sizeof(in.resolv_conf));
        if (n < 0) {
            return fail(err, n, "the network's resolv.conf");
        }
    }
    if (box->link >= 0 && !box->trial) {
        in.oom = kg_cgroup_oom_fd(&box->host->cgroups, box->launch->id);
    }
    int r = clone_child(box, &in, err);
    kg_closep(&in.oom);
    kg_closep(&box->go[0]);
    kg_closep(&box->report[1]);
    return r;
}

static int mount_root(kg_ns_box_t *box, kg_err_t *err)
{
    char path[64];

    (void)kg_format(path, sizeof(path), "/proc/%d/ns/user", (int)box->pid);
    KG_AUTO_CLOSE int userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0) {
        return fail(err, -errno, "its user namespace");
    }
    return kg_ns_root(box->host, box->launch, box->trial, userns, &box->volume_made, err);
}

/* What it has to say: 1, it has got so far; 0, nothing any more: it is sandal-init, or it died,
 * which connecting finds out. */
static int hear(kg_ns_box_t *box, kg_err_t *err)
{
    kg_ns_report_t report = {0};

    ssize_t n = read(box->report[0], &report, sizeof(report));
    if (n == 0) {
        return 0;
    }
    if (n != (ssize_t)sizeof(report)) {
        return fail(err, n < 0 ? -errno : -EIO, "the sandbox's first process");
    }
    report.step[sizeof(report.step) - 1] = '\0';
    return report.error < 0 ? fail(err, report.error, report.step) : 1;
}

/* Until it has its namespaces. */
static int await_namespaces(kg_ns_box_t *box, kg_err_t *err)
{
    int r = hear(box, err);
    return r == 0 ? fail(err, -ESRCH, "the sandbox's first process") : r < 0 ? r : 0;
}

/* Lets it go on, and waits until it is sandal-init. */
static int release(kg_ns_box_t *box, kg_err_t *err)
{
    if (write(box->go[1], "x", 1) != 1) {
        return fail(err, -errno, "the sandbox's first process");
    }
    return hear(box, err);
}

static int make(kg_ns_box_t *box, kg_err_t *err)
{
    const kg_host_t *host = box->host;
    const kg_launch_t *l = box->launch;

    int r = kg_ns_enter_place(host, err);
    if (r == 0 && !box->trial) {
        r = kg_cgroup_make(&host->cgroups, l->id, &l->request->limits, err);
        box->cgroup_made = r == 0;
        box->cgroup = r == 0 && !l->zygote ? kg_cgroup_fd(&host->cgroups, l->id) : -1;
    }
    if (r == 0 && l->zygote) {
        r = kg_cgroup_entries(&host->cgroups, l->id, box->entries, &box->entry_count);
        r = r < 0 ? fail(err, r, "the sandbox's control groups") : 0;
    }
    if (r == 0) {
        r = start_child(box, err);
    }
    if (r == 0) {
        r = mount_root(box, err);
    }
    if (r == 0) {
        r = await_namespaces(box, err);
    }
    if (r == 0 && l->request->network.mode == KG_NET_EGRESS && !box->trial) {
        r = kg_net_attach(&host->nets, l->slot, box->pid, &l->request->network, err);
        box->net_made = r == 0;
    }
    return r < 0 ? r : release(box, err);
}

static void take_back(kg_ns_box_t *box)
{
    if (box->pid > 0) {
        (void)kill(box->pid, SIGKILL);
    }
    if (box->net_made) {
        (void)kg_net_detach(&box->host->nets, box->launch->slot);
    }
    if (box->cgroup_made) {
        kg_ns_remove_groups(box->host, box->launch->id);
    }
    if (box->volume_made && !box->trial && !box->launch->dirs_exist) {
        (void)kg_volume_remove(&box->host->volumes, box->launch->id);
    }
}

int kg_ns_make(const kg_host_t *host,
               const kg_launch_t *launch,
               bool trial,
               int link,
               pid_t *ret_pid,
               kg_err_t *err)
{
    kg_ns_box_t box = {
        .host = host,
        .launch = launch,
        .trial = trial,
        .link = link,
        .go = {-1, -1},
        .report = {-1, -1},
        .cgroup = -1,
    };
    int r = make(&box, err);
    box_close(&box);
    if (r < 0) {
        take_back(&box);
        return r;
    }
    *ret_pid = box.pid;
    return 0;
}

static int ns_create(const kg_host_t *host,
                     const kg_launch_t *launch,
                     kg_launched_t *ret_launched,
                     kg_err_t *err)
{
    kg_launched_t made = {
        .own_root = true,
        .has_root = true,
        .isolation = {.kind = "namespace", .userns = "own", .seccomp = "filter"},
        .workspace = "/workspace",
        .home = "/home/user",
        .run_dir = "/run/sandal",
    };
    const uint32_t mode = launch->request->network.mode;

    if (mode == KG_NET_HOST) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "the launcher namespace has no network \"host\"");
    }
    if (mode == KG_NET_EGRESS && !host->nets.available) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "egress does not work here: %s",
                          host->nets.reason);
    }
    int r = kg_ns_make(host, launch, false, -1, &made.init_pid, err);
    if (r < 0) {
        return r;
    }
    (void)kg_format(made.isolation.cgroup, sizeof(made.isolation.cgroup), "%s",
                    kg_cgroups_word(&host->cgroups));
    (void)kg_format(made.isolation.network, sizeof(made.isolation.network), "%s",
                    mode == KG_NET_EGRESS ? "egress" : "none");
    (void)kg_format(made.isolation.disk, sizeof(made.isolation.disk), "%s",
                    kg_vol_backend_name(host->volumes.backend));
    *ret_launched = made;
    return 0;
}

/* --- Probe ------------------------------------------------------------------------------------ */

/* In a child of its own: makes one and ends it. */
static int try_one(const kg_host_t *host, kg_err_t *err)
{
    const kg_kp_create_t request = {.id = TRIAL_ID};
    const kg_launch_t launch = kg_ns_trial_launch(host, &request);
    pid_t pid = 0;

    int r = kg_ns_make(host, &launch, true, -1, &pid, err);
    if (r == 0) {
        (void)kill(pid, SIGKILL);
    }
    return r;
}

static int ns_probe(const kg_host_t *host, char ret_reason[160])
{
    int r = 0;
    kg_err_t err = {0};

    if (!host->is_root) {
        (void)snprintf(ret_reason, 160, "needs a daemon that runs as root");
        return -EPERM;
    }
    if (kg_ns_verdict(host, &r, ret_reason)) {
        return r;
    }
    r = kg_ns_prepare(host, &err);
    if (r == 0) {
        r = kg_ns_trial(host, try_one, &err);
    }
    (void)snprintf(ret_reason, 160, "%.159s", r < 0 ? err.message : "");
    kg_ns_verdict_set(host, r, ret_reason);
    return r;
}

/* --- Life ------------------------------------------------------------------------------------- */

int kg_ns_connect(const kg_host_t *host, const char *id, pid_t init_pid)
{
    char path[64];
    (void)host;
    (void)id;
    (void)kg_format(path, sizeof(path), "/proc/%d/ns/net", (int)init_pid);
    KG_AUTO_CLOSE int net = open(path, O_RDONLY | O_CLOEXEC);
    KG_AUTO_CLOSE int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (net < 0 || own < 0 || setns(net, CLONE_NEWNET) < 0) {
        return errno == ENOENT ? -ESRCH : -errno;
    }
    int fd = kg_init_sock_connect(NULL, init_pid, CONNECT_MS);
    if (setns(own, CLONE_NEWNET) < 0) {
        kg_closep(&fd);
        return -errno;
    }
    return fd;
}

void kg_ns_destroy(const kg_host_t *host, const char *id, pid_t init_pid)
{
    (void)host;
    (void)id;
    if (init_pid > 0) {
        (void)kill(init_pid, SIGKILL); /* with it all of its pid namespace */
    }
}

const kg_launcher_t kg_launcher_namespace = {
    .name = "namespace",
    .rank = RANK,
    .holds = true,
    .volumes = true,
    .egress = true,
    .zygotes = true,
    .probe = ns_probe,
    .create = ns_create,
    .connect = kg_ns_connect,
    .destroy = kg_ns_destroy,
    .cleanup = kg_ns_cleanup,
    .pause = kg_ns_pause,
    .usage = kg_ns_usage,
    .close = kg_ns_close,
};
