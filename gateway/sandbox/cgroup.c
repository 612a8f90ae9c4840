/* A sandbox has one group in each hierarchy that some feature is taken from: with v2 alone that is
 * one, on a hybrid host v2's (freeze, kill, account) and one a v1 controller. */
#include "gateway/sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/cgroup_private.h"

#define CPU_PERIOD_US 100000U
#define CPU_PERIOD_LONG_US 1000000U /* the kernel takes quotas of a millisecond and more */
#define CPU_MILLIS_SHORT 10U        /* from here on the usual period will do */
#define DEPTH_MAX 8                 /* of groups in a sandbox's */
#define KILL_FREEZE_MS 50
#define FREEZE_POLL_MS 1

/* --- Files ----------------------------------------------------------------------------------- */

static int file_path(char ret[CG_PATH_MAX], const char *dir, const char *file)
{
    return kg_format(ret, CG_PATH_MAX, "%s/%s", dir, file);
}

int cg_read(const char *dir, const char *file, char *ret_text, size_t cap)
{
    char path[CG_PATH_MAX];
    size_t len = 0;
    int r = file_path(path, dir, file);

    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    while (len < cap - 1) {
        ssize_t n = read(fd, ret_text + len, cap - 1 - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    ret_text[len] = '\0';
    return 0;
}

int cg_write(const char *dir, const char *file, const char *text)
{
    char path[CG_PATH_MAX];
    int r = file_path(path, dir, file);

    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

bool cg_has(const char *dir, const char *file)
{
    char path[CG_PATH_MAX];
    return file_path(path, dir, file) == 0 && access(path, F_OK) == 0;
}

int cg_each_pid(const char *dir, void (*fn)(void *user, pid_t pid), void *user)
{
    char path[CG_PATH_MAX];
    int count = 0;
    int pid;
    int r = file_path(path, dir, "cgroup.procs");
    FILE *file = r == 0 ? fopen(path, "re") : NULL;

    if (!file) {
        return r < 0 ? r : -errno;
    }
    while (fscanf(file, "%d", &pid) == 1) { // NOLINT(cert-err34-c): the kernel's numbers
        if (pid > 0) {
            fn(user, (pid_t)pid);
            count++;
        }
    }
    (void)fclose(file);
    return count;
}

/* The number behind key in a file of "key number" lines, or the file's only number (key NULL). */
static uint64_t read_number(const char *dir, const char *file, const char *key)
{
    char text[8192] = "";
    const char *at = text;
    char *end = NULL;

    if (cg_read(dir, file, text, sizeof(text)) < 0) {
        return UINT64_MAX;
    }
    size_t len = key ? strlen(key) : 0;
    while (key && (strncmp(at, key, len) != 0 || at[len] != ' ')) {
        at = strchr(at, '\n');
        if (!at) {
            return UINT64_MAX;
        }
        at++;
    }
    at += len;
    uint64_t value = strtoull(at, &end, 10);
    return end == at ? UINT64_MAX : value;
}

/* --- Which groups ---------------------------------------------------------------------------- */

static int
group_dir(const kg_cgroups_t *cg, kg_cg_feature_t f, const char *id, char ret[CG_PATH_MAX])
{
    if (cg->version[f] == KG_CG_NONE) {
        return -ENOTSUP;
    }
    return kg_format(ret, CG_PATH_MAX, "%s/%s%s", cg->base[f], cg->prefix, id);
}

/* Several features may share a hierarchy; true for the first of each. */
static bool leads(const kg_cgroups_t *cg, kg_cg_feature_t f)
{
    if (cg->version[f] == KG_CG_NONE) {
        return false;
    }
    for (kg_cg_feature_t g = 0; g < f; g++) {
        if (cg->version[g] != KG_CG_NONE && strcmp(cg->base[g], cg->base[f]) == 0) {
            return false;
        }
    }
    return true;
}

const char *kg_cgroups_word(const kg_cgroups_t *cg)
{
    bool v1 = false;
    bool v2 = false;
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        v1 = v1 || cg->version[f] == KG_CG_V1;
        v2 = v2 || cg->version[f] == KG_CG_V2;
    }
    if (v1 && v2) {
        return "mixed";
    }
    if (v1) {
        return "v1";
    }
    return v2 ? "v2" : "none";
}

/* --- Making ---------------------------------------------------------------------------------- */

static int set_memory(const kg_cgroups_t *cg, const char *dir, uint64_t bytes)
{
    char text[32];
    bool v2 = cg->version[KG_CG_MEMORY] == KG_CG_V2;
    const char *file = v2 ? "memory.max" : "memory.limit_in_bytes";

    (void)snprintf(text, sizeof(text), "%" PRIu64, bytes);
    int first = cg_write(dir, file, text);
    if (first < 0 && (v2 || first != -EINVAL)) {
        return first;
    }
    /* Swap would be a second helping. Hosts without swap accounting have no such file. */
    int r = v2 ? cg_write(dir, "memory.swap.max", "0")
               : cg_write(dir, "memory.memsw.limit_in_bytes", text);
    if (first < 0 && r == 0) {
        return cg_write(dir, file, text); /* the limit with swap is never below the one without */
    }
    return r == -ENOENT ? first : r;
}

static int set_pids(const char *dir, uint32_t pids)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%" PRIu32, pids);
    return cg_write(dir, "pids.max", text);
}

static int set_cpu(const kg_cgroups_t *cg, const char *dir, uint32_t millis)
{
    char text[48];
    uint64_t period = millis < CPU_MILLIS_SHORT ? CPU_PERIOD_LONG_US : CPU_PERIOD_US;
    uint64_t quota = millis * period / 1000;

    if (cg->version[KG_CG_CPU] == KG_CG_V2) {
        (void)snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, quota, period);
        return cg_write(dir, "cpu.max", text);
    }
    (void)snprintf(text, sizeof(text), "%" PRIu64, period);
    int r = cg_write(dir, "cpu.cfs_period_us", text);
    (void)snprintf(text, sizeof(text), "%" PRIu64, quota);
    return r < 0 ? r : cg_write(dir, "cpu.cfs_quota_us", text);
}

static int
set_limit(const kg_cgroups_t *cg, kg_cg_feature_t f, const char *id, const kg_limits_t *limits)
{
    char dir[CG_PATH_MAX];
    int r = group_dir(cg, f, id, dir);

    if (r < 0) {
        return r;
    }
    if (f == KG_CG_MEMORY) {
        return set_memory(cg, dir, limits->memory_bytes);
    }
    return f == KG_CG_PIDS ? set_pids(dir, limits->pids) : set_cpu(cg, dir, limits->cpu_millis);
}

static int make_groups(const kg_cgroups_t *cg, const char *id, kg_err_t *err)
{
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        char dir[CG_PATH_MAX];
        if (!leads(cg, f)) {
            continue;
        }
        int r = group_dir(cg, f, id, dir);
        if (r == 0 && mkdir(dir, 0755) < 0) {
            r = -errno;
        }
        if (r < 0) {
            (void)kg_err_set(err, r == -EEXIST ? KG_ERR_BUSY : kg_err_from_errno(r),
                             "the sandbox's control group can't be made: %s", strerrordesc_np(-r));
            return r == -EEXIST ? -EBUSY : r;
        }
    }
    return 0;
}

static int held(kg_cg_feature_t f, int r, kg_err_t *err)
{
    if (r < 0) {
        (void)kg_err_set(err, KG_ERR_INVALID_REQUEST, "the limit of %s can't be set: %s",
                         kg_cg_feature_name(f),
                         r == -EBUSY ? "it uses more now" : strerrordesc_np(-r));
    }
    return r;
}

static uint64_t limit_of(const kg_limits_t *limits, kg_cg_feature_t f)
{
    return f == KG_CG_MEMORY ? limits->memory_bytes
           : f == KG_CG_PIDS ? limits->pids
           : f == KG_CG_CPU  ? limits->cpu_millis
                             : 0;
}

static int none_missing(const kg_cgroups_t *cg, const kg_limits_t *limits, kg_err_t *err)
{
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        if (limit_of(limits, f) && cg->version[f] == KG_CG_NONE) {
            (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED, "a limit of %s can't be held here: %s",
                             kg_cg_feature_name(f), cg->reason[f]);
            return -EOPNOTSUPP;
        }
    }
    return 0;
}

int kg_cgroup_make(const kg_cgroups_t *cg, const char *id, const kg_limits_t *limits, kg_err_t *err)
{
    int r = none_missing(cg, limits, err);
    if (r < 0) {
        return r;
    }
    r = kg_cgroup_remove(cg, id);
    if (r < 0) {
        (void)kg_err_set(err, KG_ERR_BUSY, "the sandbox's control group is in use");
        return r;
    }
    r = make_groups(cg, id, err);
    for (kg_cg_feature_t f = 0; r == 0 && f < KG_CG_FEATURES; f++) {
        r = limit_of(limits, f) ? held(f, set_limit(cg, f, id, limits), err) : 0;
    }
    if (r < 0 && r != -EBUSY) {
        (void)kg_cgroup_remove(cg, id);
    }
    return r;
}

static int set_share(const kg_cgroups_t *cg, const char *id, uint32_t share)
{
    char dir[CG_PATH_MAX];
    char text[16];
    bool v2 = cg->version[KG_CG_CPU] == KG_CG_V2;

    if (group_dir(cg, KG_CG_CPU, id, dir) < 0) {
        return 0;
    }
    (void)snprintf(text, sizeof(text), "%" PRIu32, v2 ? share : share * 1024 / 100);
    return cg_write(dir, v2 ? "cpu.weight" : "cpu.shares", text);
}

int kg_cgroup_hold(const kg_cgroups_t *cg,
                   const char *id,
                   const kg_limits_t *limits,
                   uint32_t share,
                   kg_err_t *err)
{
    int r = none_missing(cg, limits, err);
    for (kg_cg_feature_t f = 0; r == 0 && f < KG_CG_FEATURES; f++) {
        r = limit_of(limits, f) ? held(f, set_limit(cg, f, id, limits), err) : 0;
    }
    if (r == 0 && set_share(cg, id, share) < 0) {
        r = kg_err_set(err, KG_ERR_INTERNAL, "the share of the cpu can't be set");
    }
    return r;
}

/* --- Using ----------------------------------------------------------------------------------- */

/* True when the caller was cloned into its group of v2 already; a move takes a lock of the whole
 * system. */
static bool already_in(const kg_cgroups_t *cg, const char *id)
{
    char text[2048];
    char want[160];
    if (cg_read("/proc/self", "cgroup", text, sizeof(text)) < 0 ||
        kg_format(want, sizeof(want), "/%s%s\n", cg->prefix, id) < 0) {
        return false;
    }
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    const char *end = line ? strchr(line + 1, '\n') : NULL;
    size_t len = strlen(want);
    return end && (size_t)(end + 1 - line) > len && strncmp(end + 1 - len, want, len) == 0;
}

int kg_cgroup_enter(const kg_cgroups_t *cg, const char *id)
{
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        char dir[CG_PATH_MAX];
        bool v2 = cg->version[f] == KG_CG_V2;
        if (!leads(cg, f) || (v2 && already_in(cg, id))) {
            continue;
        }
        int r = group_dir(cg, f, id, dir);
        if (r == 0) {
            r = cg_write(dir, v2 ? "cgroup.procs" : "tasks", "0");
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int kg_cgroup_put(const kg_cgroups_t *cg, const char *id, pid_t pid)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        char dir[CG_PATH_MAX];
        if (!leads(cg, f)) {
            continue;
        }
        int r = group_dir(cg, f, id, dir);
        if (r == 0) {
            r = cg_write(dir, "cgroup.procs", text);
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int kg_cgroup_entries(const kg_cgroups_t *cg,
                      const char *id,
                      int ret_fds[KG_CG_FEATURES],
                      size_t *ret_count)
{
    size_t count = 0;
    int r = 0;

    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES && r == 0; f++) {
        char dir[CG_PATH_MAX];
        char path[CG_PATH_MAX];
        if (!leads(cg, f)) {
            continue;
        }
        r = group_dir(cg, f, id, dir);
        if (r == 0) {
            r = file_path(path, dir, cg->version[f] == KG_CG_V2 ? "cgroup.procs" : "tasks");
        }
        int fd = r == 0 ? open(path, O_WRONLY | O_CLOEXEC) : -1;
        if (r == 0 && fd < 0) {
            r = -errno;
        }
        if (r == 0) {
            ret_fds[count++] = fd;
        }
    }
    while (r < 0 && count > 0) {
        kg_closep(&ret_fds[--count]);
    }
    *ret_count = count;
    return r;
}

int kg_cgroup_fd(const kg_cgroups_t *cg, const char *id)
{
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        char dir[CG_PATH_MAX];
        if (cg->version[f] != KG_CG_V2) {
            continue;
        }
        int r = group_dir(cg, f, id, dir);
        if (r < 0) {
            return r;
        }
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    return -ENOTSUP;
}

/* ---- pressing memory out ---- */

static const char *press_file(const kg_cgroups_t *cg)
{
    return cg->version[KG_CG_MEMORY] == KG_CG_V2 ? "memory.reclaim" : "memory.force_empty";
}

/* A line of headings, then one for each. */
static bool has_swap(const kg_cgroups_t *cg)
{
    char text[512];
    const char *line = cg_read(cg->proc, "swaps", text, sizeof(text)) == 0 ? strchr(text, '\n') : 0;
    return line && line[1] != '\0';
}

bool kg_cgroup_presses(const kg_cgroups_t *cg, char ret_reason[120])
{
    const char *why = NULL;
    if (cg->version[KG_CG_MEMORY] == KG_CG_NONE) {
        why = "no control group holds memory";
    } else if (!cg_has(cg->base[KG_CG_MEMORY], press_file(cg))) {
        why = "the kernel presses no group's memory out (v2: since 5.19)";
    } else if (!has_swap(cg)) {
        why = "the host has neither swap nor zram";
    }
    (void)snprintf(ret_reason, 120, "%s", why ? why : "");
    return !why;
}

/* With a limit of memory a group has no swap (set_memory); while it stands still it may. v1 counts
 * both as one and needs no such thing. */
static int allow_swap(const kg_cgroups_t *cg, const char *id, bool allow)
{
    char dir[CG_PATH_MAX];
    char text[32];
    if (cg->version[KG_CG_MEMORY] != KG_CG_V2 || group_dir(cg, KG_CG_MEMORY, id, dir) < 0 ||
        cg_read(dir, "memory.max", text, sizeof(text)) < 0 || strncmp(text, "max", 3) == 0) {
        return 0;
    }
    int r = cg_write(dir, "memory.swap.max", allow ? "max" : "0");
    return r == -ENOENT ? 0 : r;
}

int kg_cgroup_press(const kg_cgroups_t *cg, const char *id)
{
    char dir[CG_PATH_MAX];
    char text[24] = "0";
    int r = group_dir(cg, KG_CG_MEMORY, id, dir);
    r = r < 0 ? r : allow_swap(cg, id, true);
    if (r == 0 && cg->version[KG_CG_MEMORY] == KG_CG_V2) {
        uint64_t used = read_number(dir, "memory.current", NULL);
        (void)snprintf(text, sizeof(text), "%" PRIu64, used == UINT64_MAX ? 0 : used);
    }
    return r < 0 ? r : cg_write(dir, press_file(cg), text);
}

void kg_cgroup_unpress(const kg_cgroups_t *cg, const char *id)
{
    (void)allow_swap(cg, id, false); /* what is there comes back as it is needed */
}

static bool stands(const kg_cgroups_t *cg, const char *dir, bool frozen)
{
    char text[64];
    if (cg->version[KG_CG_FREEZE] == KG_CG_V2) {
        return read_number(dir, "cgroup.events", "frozen") == (frozen ? 1U : 0U);
    }
    /* Reading it also makes the kernel look again. */
    return cg_read(dir, "freezer.state", text, sizeof(text)) == 0 &&
           strcmp(text, frozen ? "FROZEN\n" : "THAWED\n") == 0;
}

static int set_frozen(const kg_cgroups_t *cg, const char *dir, bool frozen)
{
    if (cg->version[KG_CG_FREEZE] == KG_CG_V2) {
        return cg_write(dir, "cgroup.freeze", frozen ? "1" : "0");
    }
    return cg_write(dir, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

int kg_cgroup_freeze(const kg_cgroups_t *cg, const char *id, bool frozen, unsigned deadline_ms)
{
    const struct timespec pause = {.tv_nsec = FREEZE_POLL_MS * 1000000L};
    char dir[CG_PATH_MAX];
    uint64_t until = kg_now_ns() + deadline_ms * KG_NS_PER_MS;

    int r = group_dir(cg, KG_CG_FREEZE, id, dir);
    if (!frozen) {
        kg_cgroup_unpress(cg, id);
    }
    if (r == 0) {
        r = set_frozen(cg, dir, frozen);
    }
    while (r == 0 && !stands(cg, dir, frozen)) {
        if (kg_now_ns() >= until) {
            (void)set_frozen(cg, dir, false);
            return -ETIMEDOUT;
        }
        nanosleep(&pause, NULL);
    }
    return r;
}

static const char *oom_file(const kg_cgroups_t *cg)
{
    return cg->version[KG_CG_MEMORY] == KG_CG_V2 ? "memory.events" : "memory.oom_control";
}

int kg_cgroup_oom_fd(const kg_cgroups_t *cg, const char *id)
{
    char dir[CG_PATH_MAX];
    char path[CG_PATH_MAX];
    int r = group_dir(cg, KG_CG_MEMORY, id, dir);

    r = r < 0 ? r : file_path(path, dir, oom_file(cg));
    if (r < 0) {
        return r;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void memory_usage(const kg_cgroups_t *cg, const char *dir, kg_box_usage_t *ret)
{
    bool v2 = cg->version[KG_CG_MEMORY] == KG_CG_V2;
    uint64_t used = read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", NULL);
    uint64_t cache = read_number(dir, "memory.stat", v2 ? "inactive_file" : "total_inactive_file");

    if (used != UINT64_MAX && cache != UINT64_MAX) { /* what would go if someone needed it */
        used = used > cache ? used - cache : 0;
    }
    ret->memory_bytes = used;
    ret->memory_peak_bytes =
        read_number(dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL);
    ret->oom_kills = read_number(dir, oom_file(cg), "oom_kill");
}

int kg_cgroup_usage(const kg_cgroups_t *cg, const char *id, kg_box_usage_t *ret)
{
    char dir[CG_PATH_MAX];
    kg_box_usage_t out = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

    if (group_dir(cg, KG_CG_KILL, id, dir) < 0 || access(dir, F_OK) < 0) {
        return -ENOENT;
    }
    if (group_dir(cg, KG_CG_MEMORY, id, dir) == 0) {
        memory_usage(cg, dir, &out);
    }
    if (group_dir(cg, KG_CG_PIDS, id, dir) == 0) {
        out.pids = read_number(dir, "pids.current", NULL);
    }
    if (group_dir(cg, KG_CG_ACCOUNT, id, dir) == 0) {
        if (cg->version[KG_CG_ACCOUNT] == KG_CG_V2) {
            uint64_t us = read_number(dir, "cpu.stat", "usage_usec");
            out.cpu_ns = us == UINT64_MAX ? us : us * 1000;
        } else {
            out.cpu_ns = read_number(dir, "cpuacct.usage", NULL);
        }
    }
    *ret = out;
    return 0;
}

/* --- Ending ---------------------------------------------------------------------------------- */

static void kill_pid(void *user, pid_t pid)
{
    (void)user;
    (void)kill(pid, SIGKILL);
}

static void only_count(void *user, pid_t pid)
{
    (void)user;
    (void)pid;
}

int kg_cgroup_kill(const kg_cgroups_t *cg, const char *id)
{
    char dir[CG_PATH_MAX];
    int r = group_dir(cg, KG_CG_KILL, id, dir);

    if (r < 0) {
        return r;
    }
    int count = cg_each_pid(dir, only_count, NULL);
    if (count <= 0) {
        return count == -ENOENT ? 0 : count;
    }
    if (cg->version[KG_CG_KILL] == KG_CG_V2 && cg_write(dir, "cgroup.kill", "1") == 0) {
        return count; /* one go, forks included; frozen ones die too */
    }
    /* Standing still they can't fork while we go through the list. */
    (void)kg_cgroup_freeze(cg, id, true, KILL_FREEZE_MS);
    count = cg_each_pid(dir, kill_pid, NULL);
    (void)kg_cgroup_freeze(cg, id, false, KILL_FREEZE_MS);
    return count;
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

/* A runtime in the sandbox may have made groups of its own. */
static int remove_group(const char *path, unsigned depth)
{
    if (rmdir(path) == 0 || errno == ENOENT) {
        return 0;
    }
    int r = -errno;
    DIR *dir = r == -EBUSY && depth < DEPTH_MAX ? opendir(path) : NULL;
    if (!dir) {
        return r;
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        char below[CG_PATH_MAX];
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
            file_path(below, path, entry->d_name) == 0) {
            (void)remove_group(below, depth + 1);
        }
    }
    closedir(dir);
    return rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
}

int kg_cgroup_remove(const kg_cgroups_t *cg, const char *id)
{
    int result = 0;
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        char dir[CG_PATH_MAX];
        if (!leads(cg, f)) {
            continue;
        }
        int r = group_dir(cg, f, id, dir);
        if (r == 0) {
            r = remove_group(dir, 0);
        }
        result = r < 0 ? r : result;
    }
    return result;
}

/* Was it told of in an earlier hierarchy? */
static bool seen_before(const kg_cgroups_t *cg, kg_cg_feature_t f, const char *name)
{
    for (kg_cg_feature_t g = 0; g < f; g++) {
        if (leads(cg, g) && cg_has(cg->base[g], name)) {
            return true;
        }
    }
    return false;
}

int kg_cgroups_each(const kg_cgroups_t *cg, void (*fn)(void *user, const char *id), void *user)
{
    size_t len = strlen(cg->prefix);

    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        DIR *dir = leads(cg, f) ? opendir(cg->base[f]) : NULL;
        if (!dir) {
            continue;
        }
        for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
            if (strncmp(entry->d_name, cg->prefix, len) == 0 &&
                !seen_before(cg, f, entry->d_name)) {
                fn(user, entry->d_name + len);
            }
        }
        closedir(dir);
    }
    return 0;
}
