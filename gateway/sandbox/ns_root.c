/* What launchers that mount a root have in common around that: its volume, trials, what is left of
 * it at the end. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/proctree.h"

#define FREEZE_MS 500
#define REMOVE_TRIES 200
#define TRIAL_MS 60000
#define TRIAL_BYTES "size=16m,mode=700"

static int fail(kg_err_t *err, int r, const char *what)
{
    (void)kg_err_set(err, kg_err_from_errno(-r), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

int kg_ns_enter_place(const kg_host_t *host, kg_err_t *err)
{
    char place[4096];

    if (kg_format(place, sizeof(place), "%s/" NS_DIR, host->runtime_dir) < 0 || chdir(place) < 0 ||
        unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return fail(err, -errno, "a mount namespace for the sandbox's root");
    }
    return 0;
}

static int open_volume(const kg_host_t *host,
                       const kg_launch_t *l,
                       bool trial,
                       uint64_t bytes,
                       char ret_path[256],
                       kg_err_t *err)
{
    if (!trial) {
        return kg_volume_make(&host->volumes, l->id, bytes, l->base, l->base, ret_path, err);
    }
    /* A file system of its own, gone with this mount namespace. */
    if (mount("sandal", NS_VOLUME, "tmpfs", MS_NOSUID | MS_NODEV, TRIAL_BYTES) < 0 ||
        mkdir(NS_VOLUME "/upper", 0755) < 0 || mkdir(NS_VOLUME "/work", 0755) < 0 ||
        chown(NS_VOLUME "/upper", l->base, l->base) < 0 ||
        chown(NS_VOLUME "/work", l->base, l->base) < 0) {
        return fail(err, -errno, "a volume to try with");
    }
    return kg_format(ret_path, 256, NS_VOLUME);
}

int kg_ns_root(const kg_host_t *host,
               const kg_launch_t *l,
               bool trial,
               int userns,
               bool *ret_volume,
               kg_err_t *err)
{
    char volume[256];
    const uint64_t bytes = l->request->limits.disk_bytes;

    int r = open_volume(host, l, trial, bytes, volume, err);
    if (r < 0) {
        return r;
    }
    *ret_volume = true;
    r = kg_ns_mounts(host, l, volume, userns, err);
    if (r == -EDQUOT && l->dirs_exist) { /* full: mount it without a limit, then set that */
        r = open_volume(host, l, trial, 0, volume, err);
        if (r == 0) {
            r = kg_ns_mounts(host, l, volume, userns, err);
        }
        if (r == 0) {
            r = open_volume(host, l, trial, bytes, volume, err);
        }
    }
    return r;
}

void kg_ns_remove_groups(const kg_host_t *host, const char *id)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < REMOVE_TRIES && kg_cgroup_remove(&host->cgroups, id) == -EBUSY; i++) {
        nanosleep(&nap, NULL);
    }
}

kg_launch_t kg_ns_trial_launch(const kg_host_t *host, const kg_kp_create_t *request)
{
    return (kg_launch_t){
        .id = request->id,
        .base = host->uid_base,
        .uid = host->uid_base + KG_UID_USER,
        .gid = host->uid_base + KG_UID_USER,
        .killer_uid = host->uid_base + KG_UID_KILLER,
        .request = request,
    };
}

int kg_ns_trial(const kg_host_t *host, kg_ns_trial_fn *fn, kg_err_t *err)
{
    int answer[2];
    int status = 0;

    if (pipe2(answer, O_CLOEXEC | O_NONBLOCK) < 0) {
        return fail(err, -errno, "a pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        kg_err_t own = {0};
        _exit(fn(host, &own) < 0 && write(answer[1], &own, sizeof(own)) > 0);
    }
    close(answer[1]);
    int r = pid < 0 ? -errno : kg_child_wait(pid, TRIAL_MS, &status);
    ssize_t n = r < 0 ? -1 : read(answer[0], err, sizeof(*err)); /* it fits into the pipe */
    close(answer[0]);
    if (r < 0) {
        return fail(err, r, r == -ETIMEDOUT ? "the trial" : "a process to try with");
    }
    if (n == (ssize_t)sizeof(*err)) {
        return -kg_err_errno(err->code);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : fail(err, -EIO, "the trial died");
}

int kg_ns_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    (void)kg_cgroup_kill(&host->cgroups, id); /* a first process that never became sandal-init */
    kg_ns_remove_groups(host, id);
    int r = kg_cgroup_remove(&host->cgroups, id);
    int net = kg_net_detach(&host->nets, slot);
    r = r < 0 ? r : net;
    if (!keep_files || !kg_volumes_keep(&host->volumes)) {
        int volume = kg_volume_remove(&host->volumes, id);
        r = r < 0 ? r : volume;
    }
    return r;
}

int kg_ns_pause(const kg_host_t *host, const char *id, bool frozen, kg_err_t *err)
{
    int r = kg_cgroup_freeze(&host->cgroups, id, frozen, FREEZE_MS);
    if (r < 0) {
        return kg_err_set(err, r == -ENOTSUP ? KG_ERR_NOT_SUPPORTED : KG_ERR_BUSY,
                          frozen ? "the sandbox can't be frozen: %s" : "it can't be thawed: %s",
                          strerrordesc_np(-r));
    }
    return 0;
}

int kg_ns_usage(const kg_host_t *host, const char *id, kg_box_usage_t *ret)
{
    kg_box_usage_t usage;
    int r = kg_cgroup_usage(&host->cgroups, id, &usage);
    if (r < 0) {
        return r;
    }
    if (kg_volume_usage(&host->volumes, id, &usage.disk_bytes) < 0) {
        usage.disk_bytes = UINT64_MAX;
    }
    *ret = usage;
    return 0;
}
