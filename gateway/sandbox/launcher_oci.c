/* `runc`: a sandbox as of `namespace`, but that an OCI runtime makes the namespaces and the mounts
 * in them. The root is the same overlay; sandal-init is the container's only process, its socket
 * lies on the host. The runtime's own control groups hold nothing: as soon as sandal-init answers
 * it is moved into those that the keeper made. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/launcher_plain.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"
#include "gateway/sandbox/oci.h"

#define RUNC_RANK 19 /* as bubblewrap, which goes first */
#define TRIAL_ID "sbx-trial"

static const char *const none[] = {NULL};
static const char *const runc_words[] = {"--preserve-fds", "1", NULL};
static const kg_oci_t runc = {.kind = "runc",
                              .program = "runc",
                              .flags = none,
                              .run_words = runc_words,
                              .fd = KG_INIT_FD_LISTEN};

typedef struct kg_oci_box {
    const kg_host_t *host;
    const kg_oci_t *oci;
    const kg_launch_t *launch;
    bool trial; /* no groups, no volume of the store, no network */
    char place[OCI_PLACE_MAX];
    pid_t holder;
    pid_t pid;
    int socket;
    bool volume_made;
} kg_oci_box_t;

static int fail(kg_err_t *err, int r, const char *what)
{
    (void)kg_err_set(err, kg_err_from_errno(-r), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

/* --- Root ------------------------------------------------------------------------------------- */

static int place_run(const kg_oci_box_t *box, const char *path)
{
    char options[96];
    char resolv[1024] = "";
    const kg_launch_t *l = box->launch;

    (void)kg_format(options, sizeof(options), "size=%llu,nr_inodes=16384,mode=755,uid=%u,gid=%u",
                    (unsigned long long)NS_RUN_BYTES, l->base, l->base);
    if (mkdir(path, 0755) < 0 || mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0) {
        return -errno;
    }
    if (l->request->network.mode == KG_NET_EGRESS && !box->trial) {
        int n = kg_net_resolv_conf(&box->host->nets, l->slot, resolv, sizeof(resolv));
        if (n < 0) {
            return n;
        }
    }
    return kg_ns_show(l, path, l->base, resolv);
}

static int make_root(kg_oci_box_t *box, kg_err_t *err)
{
    char path[OCI_PLACE_MAX];
    const kg_launch_t *l = box->launch;
    KG_AUTO_CLOSE int userns = kg_ns_mapping(0, l->base, KG_UID_RANGE);

    if (userns < 0) {
        return fail(err, userns, "the sandbox's range of ids can't be mapped");
    }
    int r = kg_ns_root(box->host, l, box->trial, userns, &box->volume_made, err);
    if (r < 0) {
        return r;
    }
    r = kg_oci_place(box->place);
    if (r == 0) {
        r = kg_format(path, sizeof(path), "%s/run", box->place);
    }
    if (r == 0) {
        r = place_run(box, path);
    }
    return r < 0 ? fail(err, r, "the sandbox's root can't be laid out") : 0;
}

/* --- Bundle ----------------------------------------------------------------------------------- */

/* A process whose cgroup namespace begins at the sandbox's groups, for the container to join: the
 * runtime would make one that begins at its own. */
static int start_holder(kg_oci_box_t *box)
{
    int ready[2];
    char byte = 0;

    if (pipe2(ready, O_CLOEXEC) < 0) {
        return -errno;
    }
    box->holder = fork();
    if (box->holder == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (kg_cgroup_enter(&box->host->cgroups, box->launch->id) < 0 ||
            unshare(CLONE_NEWCGROUP) < 0 || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    int r = box->holder < 0 ? -errno : 0;
    close(ready[1]);
    if (r == 0 && read(ready[0], &byte, 1) != 1) {
        r = -EIO;
    }
    close(ready[0]);
    return r;
}

static void end_holder(kg_oci_box_t *box)
{
    if (box->holder > 0) {
        (void)kill(box->holder, SIGKILL);
        (void)waitpid(box->holder, NULL, 0);
        box->holder = 0;
    }
}

static int make_bundle(kg_oci_box_t *box, kg_err_t *err)
{
    char path[108];
    char root[OCI_PLACE_MAX];
    char run[OCI_PLACE_MAX];
    char cgroup[160];
    const kg_host_t *host = box->host;
    const kg_launch_t *l = box->launch;
    kg_oci_spec_t spec = {
        .id = l->id,
        .base = l->base,
        .limits = &l->request->limits,
        .root = root,
        .run = run,
        .cgroup = cgroup,
        .orphan_s = host->orphan_s,
    };

    (void)kg_format(root, sizeof(root), "%s/root", box->place);
    (void)kg_format(run, sizeof(run), "%s/run", box->place);
    /* Not a name that begins as those of sandboxes' groups. */
    int r = kg_format(cgroup, sizeof(cgroup), "/oci-%s%s", host->cgroups.prefix, l->id);
    if (r == 0 && !box->trial) {
        r = start_holder(box);
        spec.cgroup_holder = box->holder;
    }
    if (r == 0) {
        r = kg_oci_bundle(host, box->oci, &spec);
    }
    if (r == 0) {
        r = kg_plain_socket_path(host, l->id, path, sizeof(path));
    }
    if (r == 0) {
        box->socket = kg_init_sock_bind(path);
        r = box->socket < 0 ? box->socket : 0;
    }
    return r < 0 ? fail(err, r, "the bundle") : 0;
}

/* --- Create ----------------------------------------------------------------------------------- */

/* It has started nothing yet, so nothing gets away from the groups or the network's rules. */
static int settle(kg_oci_box_t *box, kg_err_t *err)
{
    const kg_launch_t *l = box->launch;
    KG_AUTO_CLOSE int fd = kg_plain_connect(box->host, l->id, box->pid);

    if (fd < 0) {
        return fail(err, fd, "sandal-init doesn't answer");
    }
    if (box->trial) {
        return 0;
    }
    int r = kg_ns_take_cpus(box->pid, l->slot, l->request->limits.cpu_millis);
    if (r == 0) {
        r = kg_cgroup_put(&box->host->cgroups, l->id, box->pid);
    }
    if (r < 0) {
        return fail(err, r, "the sandbox's control group");
    }
    return l->request->network.mode == KG_NET_EGRESS
               ? kg_net_attach(&box->host->nets, l->slot, box->pid, &l->request->network, err)
               : 0;
}

static int make(kg_oci_box_t *box, kg_err_t *err)
{
    const kg_launch_t *l = box->launch;

    int r = kg_ns_enter_place(box->host, err);
    if (r == 0 && !box->trial) {
        r = kg_cgroup_make(&box->host->cgroups, l->id, &l->request->limits, err);
    }
    if (r == 0) {
        r = make_root(box, err);
    }
    if (r == 0) {
        r = make_bundle(box, err);
    }
    if (r == 0) {
        r = kg_oci_start(box->host, box->oci, l->id, box->socket, false, &box->pid, err);
    }
    return r == 0 ? settle(box, err) : r;
}

static int oci_cleanup(
    const kg_oci_t *oci, const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    char path[108];

    int forgotten = kg_oci_forget(host, oci, id);
    if (kg_plain_socket_path(host, id, path, sizeof(path)) == 0) {
        (void)unlink(path);
    }
    int r = kg_ns_cleanup(host, id, slot, keep_files);
    return r < 0 ? r : forgotten;
}

static int oci_make(kg_oci_box_t *box, kg_err_t *err)
{
    int r = make(box, err);

    kg_closep(&box->socket);
    end_holder(box);
    if (r < 0 || box->trial) {
        kg_oci_end(box->pid);
    }
    if (box->trial) {
        char path[108];
        (void)kg_oci_forget(box->host, box->oci, box->launch->id);
        if (kg_plain_socket_path(box->host, box->launch->id, path, sizeof(path)) == 0) {
            (void)unlink(path);
        }
    } else if (r < 0) {
        bool keep = box->launch->dirs_exist || !box->volume_made;
        (void)oci_cleanup(box->oci, box->host, box->launch->id, box->launch->slot, keep);
    }
    return r;
}

static int refuse(const kg_oci_t *oci, const kg_host_t *host, const kg_launch_t *l, kg_err_t *err)
{
    const uint32_t mode = l->request->network.mode;

    if (mode == KG_NET_HOST) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "isolation %s has no network \"host\"",
                          oci->kind);
    }
    if (mode == KG_NET_EGRESS && !host->nets.available) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "egress does not work here: %s",
                          host->nets.reason);
    }
    return 0;
}

static int oci_create(const kg_oci_t *oci,
                      const kg_host_t *host,
                      const kg_launch_t *launch,
                      kg_launched_t *ret_launched,
                      kg_err_t *err)
{
    kg_oci_box_t box = {.host = host, .oci = oci, .launch = launch, .socket = -1};
    kg_launched_t made = {
        .own_root = true,
        .has_root = true,
        .isolation = {.userns = "own", .seccomp = "filter"},
        .workspace = "/workspace",
        .home = "/home/user",
        .run_dir = "/run/sandal",
    };
    kg_isolation_info_t *info = &made.isolation;

    int r = refuse(oci, host, launch, err);
    if (r == 0) {
        r = oci_make(&box, err);
    }
    if (r < 0) {
        return r;
    }
    made.init_pid = box.pid;
    (void)kg_format(info->kind, sizeof(info->kind), "%s", oci->kind);
    (void)kg_format(info->cgroup, sizeof(info->cgroup), "%s", kg_cgroups_word(&host->cgroups));
    (void)kg_format(info->network, sizeof(info->network), "%s",
                    launch->request->network.mode == KG_NET_EGRESS ? "egress" : "none");
    (void)kg_format(info->disk, sizeof(info->disk), "%s",
                    kg_vol_backend_name(host->volumes.backend));
    *ret_launched = made;
    return 0;
}

/* --- Probe ------------------------------------------------------------------------------------ */

static int runc_try(const kg_host_t *host, kg_err_t *err)
{
    const kg_kp_create_t request = {.id = TRIAL_ID};
    const kg_launch_t launch = kg_ns_trial_launch(host, &request);
    kg_oci_box_t box = {.host = host, .oci = &runc, .launch = &launch, .trial = true, .socket = -1};
    return oci_make(&box, err);
}

/* --- runc ------------------------------------------------------------------------------------- */

static int runc_probe(const kg_host_t *host, char ret_reason[160])
{
    return kg_oci_probe(&runc, host, runc_try, ret_reason);
}

static int runc_create(const kg_host_t *host,
                       const kg_launch_t *launch,
                       kg_launched_t *ret_launched,
                       kg_err_t *err)
{
    return oci_create(&runc, host, launch, ret_launched, err);
}

static int runc_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    return oci_cleanup(&runc, host, id, slot, keep_files);
}

const kg_launcher_t kg_launcher_runc = {
    .name = "runc",
    .rank = RUNC_RANK,
    .holds = true,
    .volumes = true,
    .egress = true,
    .probe = runc_probe,
    .create = runc_create,
    .connect = kg_plain_connect,
    .destroy = kg_plain_destroy,
    .cleanup = runc_cleanup,
    .pause = kg_ns_pause,
    .usage = kg_ns_usage,
    .close = kg_oci_close,
};
