/* What a sandbox is shown of itself: the files in its /run that take the place of the machine's
 * own, and what of /proc is covered. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_view.h"

#define TMPFS_LEAST (UINT64_C(16) << 20)
#define TMPFS_MOST (UINT64_C(16) << 30)
#define TMPFS_ANY (UINT64_C(1) << 30) /* where memory has no limit */
#define PATH_CAP 512

typedef struct kg_show {
    int dir; /* the view */
    uid_t owner;
} kg_show_t;

uint64_t kg_ns_tmpfs_bytes(const kg_limits_t *limits)
{
    uint64_t half = limits->memory_bytes ? limits->memory_bytes / 2 : TMPFS_ANY;
    half = half < TMPFS_LEAST ? TMPFS_LEAST : half;
    return half > TMPFS_MOST ? TMPFS_MOST : half;
}

/* --- Files ------------------------------------------------------------------------------------ */

static int put(const kg_show_t *show, const char *name, const char *text)
{
    if (!text) {
        return -ENOMEM;
    }
    KG_AUTO_CLOSE int fd = openat(show->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || fchmod(fd, 0644) < 0 || fchown(fd, show->owner, show->owner) < 0) {
        return -errno;
    }
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static char *get(const char *path)
{
    size_t len = 0;
    const size_t cap = 1U << 20;
    KG_AUTO_FREE char *text = malloc(cap);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (text && fd >= 0 && len < cap - 1) {
        ssize_t n = read(fd, text + len, cap - 1 - len);
        if (n <= 0) {
            break;
        }
        len += (size_t)n;
    }
    if (!text || fd < 0) {
        return NULL;
    }
    text[len] = '\0';
    return KG_TAKE(text);
}

static int make_dirs(const char *run, uid_t first)
{
    static const struct {
        const char *name;
        mode_t mode;
        uid_t uid;
    } dirs[] = {{"sandal", 0711, KG_UID_USER},
                {"lock", 01777, 0},
                {".view", 0755, 0},
                {".view/empty", 0555, 0}};
    char path[PATH_CAP];

    for (size_t i = 0; i < KG_ARRAY_LEN(dirs); i++) {
        uid_t uid = first + dirs[i].uid;
        int r = kg_format(path, sizeof(path), "%s/%s", run, dirs[i].name);
        if (r < 0) {
            return r;
        }
        if (mkdir(path, dirs[i].mode) < 0 || chmod(path, dirs[i].mode) < 0 ||
            chown(path, uid, uid) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int show_names(const kg_show_t *show, const char *id, const char *resolv_conf)
{
    char text[256];

    (void)kg_format(text, sizeof(text), "%s\n", id);
    int r = put(show, "hostname", text);
    if (r == 0) {
        (void)kg_format(text, sizeof(text),
                        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
                        "127.0.1.1 %s\n",
                        id);
        r = put(show, "hosts", text);
    }
    return r < 0 ? r : put(show, "resolv.conf", resolv_conf);
}

static int show_cpus(const kg_show_t *show, uint32_t cpu_millis)
{
    cpu_set_t all;
    char list[32];

    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        return -errno;
    }
    unsigned host_cpus = (unsigned)CPU_COUNT(&all);
    unsigned cpus = kg_view_cpus(cpu_millis, host_cpus);
    (void)kg_format(list, sizeof(list), cpus > 1 ? "0-%u\n" : "%u\n", cpus - 1);
    int r = put(show, "cpus", list);
    if (r < 0 || cpus == host_cpus) {
        return r;
    }
    KG_AUTO_FREE char *info = get("/proc/cpuinfo");
    KG_AUTO_FREE char *stat_text = get("/proc/stat");
    KG_AUTO_FREE char *info_view = info ? kg_view_cpuinfo(info, cpus) : NULL;
    KG_AUTO_FREE char *stat_view = stat_text ? kg_view_stat(stat_text, cpus) : NULL;
    r = put(show, "cpuinfo", info_view);
    return r < 0 ? r : put(show, "stat", stat_view);
}

static int show_memory(const kg_show_t *show, uint64_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    KG_AUTO_FREE char *text = kg_view_meminfo(bytes);
    return put(show, "meminfo", text);
}

int kg_ns_show(const kg_launch_t *l, const char *run, uid_t first, const char *resolv_conf)
{
    char path[PATH_CAP];
    const kg_limits_t *limits = &l->request->limits;

    int r = make_dirs(run, first);
    if (r == 0) {
        r = kg_format(path, sizeof(path), "%s/.view", run);
    }
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const kg_show_t show = {.dir = dir, .owner = first};
    r = dir < 0 ? -errno : show_names(&show, l->id, resolv_conf);
    if (r == 0) {
        r = show_cpus(&show, limits->cpu_millis);
    }
    return r < 0 ? r : show_memory(&show, limits->memory_bytes);
}

int kg_ns_take_cpus(pid_t pid, uint32_t slot, uint32_t cpu_millis)
{
    cpu_set_t all;
    cpu_set_t set;
    unsigned seen = 0;

    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        return -errno;
    }
    unsigned host_cpus = (unsigned)CPU_COUNT(&all);
    unsigned cpus = kg_view_cpus(cpu_millis, host_cpus);
    if (cpus == host_cpus) {
        return 0;
    }
    unsigned first = slot * cpus % host_cpus;
    CPU_ZERO(&set);
    for (unsigned i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            if ((seen + host_cpus - first) % host_cpus < cpus) {
                CPU_SET(i, &set);
            }
            seen++;
        }
    }
    return sched_setaffinity(pid, sizeof(set), &set) < 0 ? -errno : 0;
}

/* --- /proc ------------------------------------------------------------------------------------ */

const char *const *kg_ns_proc_views(size_t *ret_count)
{
    static const char *const names[] = {"cpuinfo", "stat", "meminfo"};
    *ret_count = KG_ARRAY_LEN(names);
    return names;
}

const char *const *kg_ns_proc_masked(size_t *ret_count)
{
    static const char *const masked[] = {
        "/proc/acpi",          "/proc/asound",      "/proc/fs",
        "/proc/interrupts",    "/proc/kcore",       "/proc/keys",
        "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
        "/proc/timer_list",    "/proc/timer_stats",
    };
    *ret_count = KG_ARRAY_LEN(masked);
    return masked;
}

const char *const *kg_ns_proc_fixed(size_t *ret_count)
{
    static const char *const fixed[] = {"/proc/bus", "/proc/irq", "/proc/sys",
                                        "/proc/sysrq-trigger"};
    *ret_count = KG_ARRAY_LEN(fixed);
    return fixed;
}
