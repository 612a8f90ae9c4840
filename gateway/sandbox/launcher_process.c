/* `process`: the host's root, held by Landlock: own directories, a list of the host's system to
 * read, nothing else; no sockets but unix ones, no signals to others, a seccomp filter on what is
 * started. Under a root keeper an own uid, and control groups where there are some. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/landlock.h"
#include "gateway/sandbox/launcher_plain.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask_list.h"

#define RANK 10
#define FREEZE_MS 500
#define PATTERN_MAX 300

static int process_probe(const kg_host_t *host, char ret_reason[160])
{
    int r = kg_plain_probe(host, ret_reason);
    if (r < 0) {
        return r;
    }
    int abi = kg_ll_abi();
    if (abi == 0) {
        (void)snprintf(ret_reason, 160,
                       "the kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and "
                       "landlock among lsm=)");
        return -ENOTSUP;
    }
    kg_ll_remark(abi, host->is_root, ret_reason);
    return 0;
}

/* ---- in the child that becomes sandal-init ---- */

static int allow_pattern(int rules, const char *pattern)
{
    char path[PATTERN_MAX];
    glob_t found = {0};
    int r = kg_format(path, sizeof(path), "/%s", pattern);

    if (r < 0 || strchr(pattern, '*') == NULL) {
        return r < 0 ? r : kg_ll_allow(rules, path, KG_LL_READ);
    }
    if (glob(path, GLOB_NOSORT, NULL, &found) == 0) { // NOLINT(concurrency-mt-unsafe): one thread
        for (size_t i = 0; r == 0 && i < found.gl_pathc; i++) {
            r = kg_ll_allow(rules, found.gl_pathv[i], KG_LL_READ);
        }
    }
    globfree(&found);
    return r;
}

static int allow_host(int rules)
{
    static const char *const devices[] = {"/dev/null",    "/dev/zero", "/dev/full", "/dev/random",
                                          "/dev/urandom", "/dev/tty",  "/dev/ptmx", "/dev/pts"};
    size_t count;
    const kg_mask_row_t *rows = kg_mask_host_rows(&count);
    int r = kg_ll_allow(rules, "/proc", KG_LL_READ);

    for (size_t i = 0; r == 0 && i < count; i++) {
        r = rows[i].op == KG_MASK_SHOW ? allow_pattern(rules, rows[i].path) : 0;
    }
    for (size_t i = 0; r == 0 && i < KG_ARRAY_LEN(devices); i++) {
        r = kg_ll_allow(rules, devices[i], KG_LL_DEVICE);
    }
    return r == 0 ? kg_ll_allow(rules, "/sys/devices/system/cpu", KG_LL_READ) : r;
}

static int allow_own(int rules, const kg_host_t *host, const kg_launched_t *launched)
{
    int r = kg_ll_allow(rules, launched->workspace, KG_LL_WRITE);
    r = r < 0 ? r : kg_ll_allow(rules, launched->home, KG_LL_WRITE);
    r = r < 0 ? r : kg_ll_allow(rules, launched->run_dir, KG_LL_WRITE);
    r = r < 0 ? r : kg_ll_allow(rules, host->init_exe, KG_LL_READ);
    for (size_t i = 0; r == 0 && i < host->root_count; i++) {
        r = host->roots[i].prefix[0] ? kg_ll_allow(rules, host->roots[i].prefix, KG_LL_READ) : 0;
    }
    for (size_t i = 0; r == 0 && i < host->shown_count; i++) {
        r = kg_ll_allow(rules, host->shown[i], KG_LL_READ);
    }
    return r;
}

/* The host's loopback and all that it reaches are closed: Landlock knows TCP alone. */
static int close_network(void)
{
#if defined(__x86_64__)
    const uint32_t native = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    const uint32_t native = AUDIT_ARCH_AARCH64;
#else
#error "its AUDIT_ARCH is needed here"
#endif
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, native, 0, 6), /* other calls by other numbers */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = KG_ARRAY_LEN(code), .filter = code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

static int limit(__rlimit_resource_t what, uint64_t value)
{
    const struct rlimit both = {value, value};
    return setrlimit(what, &both) < 0 ? -errno : 0;
}

static int confine(const kg_host_t *host, const kg_launch_t *l, const kg_launched_t *launched)
{
    KG_AUTO_CLOSE int rules = kg_ll_begin();
    int r = rules < 0 ? rules : 0;

    r = r < 0 ? r : limit(RLIMIT_CORE, 0);
    r = r < 0 || !l->request->limits.nofile ? r : limit(RLIMIT_NOFILE, l->request->limits.nofile);
    if (r == 0 && strcmp(launched->isolation.cgroup, "none") != 0) {
        r = kg_cgroup_enter(&host->cgroups, l->id);
    }
    (void)kg_ns_take_cpus(0, l->slot, l->request->limits.cpu_millis); /* a view: without it more */
    r = r < 0 ? r : allow_host(rules);
    r = r < 0 ? r : allow_own(rules, host, launched);
    r = r < 0 ? r : kg_ll_enter(rules);
    return r < 0 ? r : close_network();
}

/* ---- in the worker ---- */

static int refuse(const kg_kp_create_t *request, kg_err_t *err)
{
    if (request->limits.disk_bytes) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "isolation process can't hold a disk limit");
    }
    if (request->network.mode == KG_NET_EGRESS || request->network.rule_count > 0) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "isolation process has no network");
    }
    return 0;
}

/* Groups hold its limits, and make it one that can be paused and measured. */
static int
make_group(const kg_host_t *host, const kg_launch_t *l, kg_launched_t *made, kg_err_t *err)
{
    const char *word = kg_cgroups_word(&host->cgroups);
    (void)snprintf(made->isolation.cgroup, sizeof(made->isolation.cgroup), "%s", word);
    if (strcmp(word, "none") != 0) {
        return kg_cgroup_make(&host->cgroups, l->id, &l->request->limits, err);
    }
    const kg_limits_t *limits = &l->request->limits;
    return limits->memory_bytes || limits->pids || limits->cpu_millis
               ? kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                            "limits need control groups, and there are none here: %s",
                            host->cgroups.reason[KG_CG_MEMORY])
               : 0;
}

static int
process_create(const kg_host_t *host, const kg_launch_t *l, kg_launched_t *ret, kg_err_t *err)
{
    kg_launched_t made = {
        .isolation = {.kind = "process",
                      .userns = "host",
                      .seccomp = "filter",
                      .network = "none",
                      .disk = "none"},
    };
    int r = refuse(l->request, err);
    r = r < 0 ? r : make_group(host, l, &made, err);
    if (r < 0) {
        return r;
    }
    r = kg_plain_create(host, l, KG_INIT_FLAG_FILTER, confine, &made, err);
    if (r < 0) {
        (void)kg_cgroup_remove(&host->cgroups, l->id);
        return r;
    }
    *ret = made;
    return 0;
}

static int process_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files)
{
    (void)kg_cgroup_kill(&host->cgroups, id);
    int r = kg_cgroup_remove(&host->cgroups, id);
    return r < 0 ? r : kg_plain_cleanup(host, id, slot, keep_files);
}

/* ---- in the keeper ---- */

static int process_pause(const kg_host_t *host, const char *id, bool frozen, kg_err_t *err)
{
    int r = kg_cgroup_freeze(&host->cgroups, id, frozen, FREEZE_MS);
    if (r < 0) {
        return kg_err_set(err, r == -ENOTSUP ? KG_ERR_NOT_SUPPORTED : KG_ERR_BUSY,
                          "the sandbox can't be %s: %s", frozen ? "paused" : "resumed",
                          r == -ENOTSUP ? host->cgroups.reason[KG_CG_FREEZE] : strerrordesc_np(-r));
    }
    return 0;
}

static int process_usage(const kg_host_t *host, const char *id, kg_box_usage_t *ret)
{
    int r = kg_cgroup_usage(&host->cgroups, id, ret);
    ret->disk_bytes = UINT64_MAX;
    return r;
}

const kg_launcher_t kg_launcher_process = {
    .name = "process",
    .rank = RANK,
    .holds = true,
    .probe = process_probe,
    .create = process_create,
    .connect = kg_plain_connect,
    .destroy = kg_plain_destroy,
    .cleanup = process_cleanup,
    .pause = process_pause,
    .usage = process_usage,
};
