/* The way of a fresh process into its sandbox, until it is sandal-init. A failed step is told to
 * the worker; nothing of ours runs on. The order matters: see the comments. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"

#define FIRST_SPARE_FD 16
#define NOFILE_LEAST 1024 /* for sandal-init itself */
#define PLAIN (MS_NOSUID | MS_NODEV)

#define VIEW(name) KG_MASK_VIEW "/" name

/* --- Root ------------------------------------------------------------------------------------- */

static int enter_root(void)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return -errno;
    }
    /* Still as the host's root: the parents of this directory are closed to the range. */
    if (mount(NS_ROOT "/" KG_MASK_ROOT, NS_ROOT, NULL, MS_BIND | MS_REC, NULL) < 0 ||
        chdir(NS_ROOT) < 0) {
        return -errno;
    }
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ||
        setsid() < 0) {
        return -errno;
    }
    /* While a full proc is still in sight; later the kernel refuses a new one. */
    if (mount("proc", "proc", "proc", PLAIN | MS_NOEXEC, NULL) < 0) {
        return -errno;
    }
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) {
        return -errno;
    }
    return 0;
}

static int mount_tmpfs(const char *where, uint64_t bytes, unsigned inodes, const char *mode)
{
    char options[96];
    (void)kg_format(options, sizeof(options), "size=%llu,nr_inodes=%u,mode=%s",
                    (unsigned long long)bytes, inodes, mode);
    return mount("tmpfs", where, "tmpfs", PLAIN, options) < 0 ? -errno : 0;
}

static int mount_own(const kg_limits_t *limits)
{
    uint64_t half = kg_ns_tmpfs_bytes(limits);

    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620") < 0) {
        return -errno;
    }
    int r = mount_tmpfs("/dev/shm", half, 65536, "1777");
    if (r == 0) {
        r = mount_tmpfs("/tmp", half, 262144, "1777");
    }
    return r < 0 ? r : mount_tmpfs("/run", NS_RUN_BYTES, 16384, "755");
}

/* --- /proc ------------------------------------------------------------------------------------ */

static int cover_views(void)
{
    char view[64];
    char path[32];
    size_t count;
    const char *const *names = kg_ns_proc_views(&count);

    for (size_t i = 0; i < count; i++) {
        (void)kg_format(view, sizeof(view), VIEW("%s"), names[i]);
        (void)kg_format(path, sizeof(path), "/proc/%s", names[i]);
        if (access(view, F_OK) == 0 && mount(view, path, NULL, MS_BIND, NULL) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int cover_proc(void)
{
    struct stat st;
    size_t count;
    const char *const *masked = kg_ns_proc_masked(&count);

    for (size_t i = 0; i < count; i++) {
        if (lstat(masked[i], &st) < 0) {
            continue;
        }
        const char *over = S_ISDIR(st.st_mode) ? VIEW("empty") : "/dev/null";
        if (mount(over, masked[i], NULL, MS_BIND, NULL) < 0) {
            return -errno;
        }
    }
    const char *const *fixed = kg_ns_proc_fixed(&count);
    for (size_t i = 0; i < count; i++) {
        if (lstat(fixed[i], &st) < 0) {
            continue;
        }
        if (mount(fixed[i], fixed[i], NULL, MS_BIND | MS_REC, NULL) < 0 ||
            mount(NULL, fixed[i], NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | PLAIN | MS_NOEXEC,
                  NULL) < 0) {
            return -errno;
        }
    }
    return cover_views();
}

/* --- Network ---------------------------------------------------------------------------------- */

static void set_proc(const char *path, const char *text)
{
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)!write(fd, text, strlen(text));
}

static int own_network(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    KG_AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

/* As container engines have it: servers on port 80 without rights, ping. Needs the maps of its ids.
 */
static void open_network(void)
{
    set_proc("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0\n");
    set_proc("/proc/sys/net/ipv4/ping_group_range", "0 65534\n");
}

/* --- Process ---------------------------------------------------------------------------------- */

/* Those of its groups, for what joins it later. */
static int keep_entries(const kg_ns_inside_t *in)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        if (dup2(in->entries[i], KG_INIT_FD_ENTRIES + (int)i) < 0) {
            return -errno;
        }
    }
    return 0;
}

/* Every descriptor that stays is of a file inside, but for those of its groups. */
static int settle_fds(const kg_ns_inside_t *in)
{
    KG_AUTO_CLOSE int sock = -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = open(VIEW("log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int run_dir = open("/run/sandal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (null < 0 || log < 0 || run_dir < 0) {
        return -errno;
    }
    int bound = kg_init_sock_bind(NULL);
    if (bound < 0 || listen(bound, 1) < 0) { /* as sandal-init will: nobody has to try again */
        return bound < 0 ? bound : -errno;
    }
    sock = fcntl(bound, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    run_dir = fcntl(run_dir, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    if (sock < 0 || run_dir < 0 || dup2(in->link >= 0 ? in->link : null, 0) < 0 ||
        dup2(in->oom >= 0 ? in->oom : null, KG_INIT_FD_OOM) < 0 || dup2(log, 2) < 0 ||
        dup2(sock, KG_INIT_FD_LISTEN) < 0 || dup2(run_dir, KG_INIT_FD_RUN_DIR) < 0) {
        return -errno;
    }
    unsigned last = KG_INIT_FD_RUN_DIR;
    if (in->launch->zygote != 0) {
        int r = keep_entries(in);
        if (r < 0) {
            return r;
        }
        last += (unsigned)in->entry_count;
    }
    return close_range(last + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

static int settle_limits(uint32_t nofile)
{
    struct rlimit limit;

    if (nofile == 0) {
        return 0;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return -errno;
    }
    rlim_t wanted = nofile < NOFILE_LEAST ? NOFILE_LEAST : nofile;
    if (wanted < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max = wanted;
    }
    return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? -errno : 0;
}

static int become_init(const kg_ns_inside_t *in)
{
    char flags[16];
    char orphan[16];
    char uid[16];
    char killer[16];
    char entries[16];
    sigset_t none;
    char *env[] = {NULL};

    (void)kg_format(uid, sizeof(uid), "%u", KG_UID_USER);
    (void)kg_format(killer, sizeof(killer), "%u", KG_UID_KILLER);
    (void)kg_format(entries, sizeof(entries), "%zu", in->launch->zygote ? in->entry_count : 0);
    (void)kg_format(flags, sizeof(flags), "%u",
                    KG_INIT_FLAG_PIDNS | KG_INIT_FLAG_HAS_ROOT | KG_INIT_FLAG_FILTER |
                        KG_INIT_FLAG_OWN_ROOT | (in->link >= 0 ? KG_INIT_FLAG_GUEST : 0) |
                        (in->launch->slots > 1 ? KG_INIT_FLAG_ZYGOTE : 0));
    (void)kg_format(orphan, sizeof(orphan), "%u", in->host->orphan_s);
    if (chdir("/workspace") < 0) {
        return -errno;
    }
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setpriority(PRIO_PROCESS, 0, 0);
    const char *const args[] = {"sandal-init", in->launch->id, uid,     uid, killer,
                                flags,         orphan,         entries, NULL};
    char *argv[KG_ARRAY_LEN(args)];
    memcpy(argv, args, sizeof(args)); /* exec only reads them */
    execve("/" KG_MASK_INIT, argv, env);
    return -errno;
}

static int all_steps(const kg_ns_inside_t *in, const char **ret_step)
{
    const kg_limits_t *limits = &in->launch->request->limits;

    *ret_step = "entering its root";
    int r = enter_root();
    if (r == 0) {
        *ret_step = "mounting /dev, /tmp and /run";
        r = mount_own(limits);
    }
    if (r == 0) {
        *ret_step = "showing its limits";
        r = kg_ns_show(in->launch, "/run", 0, in->resolv_conf);
    }
    if (r == 0) {
        r = kg_ns_take_cpus(0, in->launch->slot, limits->cpu_millis);
    }
    if (r == 0) {
        *ret_step = "naming it";
        r = sethostname(in->launch->id, strlen(in->launch->id)) < 0 ? -errno : 0;
    }
    if (r == 0) {
        open_network();
        *ret_step = "covering /proc";
        r = cover_proc();
    }
    if (r == 0) {
        *ret_step = "settling its descriptors";
        r = settle_fds(in);
    }
    if (r == 0) {
        r = settle_limits(limits->nofile);
    }
    if (r == 0) {
        *ret_step = "starting sandal-init";
        r = become_init(in);
    }
    return r;
}

/* Before the namespace of groups, or their paths lead out of it. */
static int enter_groups(const kg_ns_inside_t *in)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        if (write(in->entries[i], "0", 1) < 0) {
            return -errno;
        }
    }
    return in->cgroup_id ? kg_cgroup_enter(&in->host->cgroups, in->cgroup_id) : 0;
}

static int tell(const kg_ns_inside_t *in, int error, const char *step)
{
    kg_ns_report_t report = {.error = error};
    (void)kg_format(report.step, sizeof(report.step), "%s", step);
    return write(in->report, &report, sizeof(report)) < 0 ? -errno : 0;
}

/* What needs neither its ids nor its root, while the worker makes them. */
static int first_steps(const kg_ns_inside_t *in, const char **ret_step)
{
    *ret_step = "new namespaces";
    int r = unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ? -errno : 0;
    if (r == 0) {
        *ret_step = "bringing up its loopback";
        r = own_network();
    }
    if (r == 0) {
        *ret_step = "entering its control groups";
        r = enter_groups(in);
    }
    return r < 0 ? r : tell(in, 0, "");
}

_Noreturn void kg_ns_inside(const kg_ns_inside_t *in)
{
    char byte;
    const char *step = "its first process";
    kg_ns_inside_t own = *in;

    own.report = fcntl(in->report, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    int r = own.report < 0 ? -errno : 0;
    for (size_t i = 0; r == 0 && i < in->entry_count; i++) { /* their numbers will be others' */
        own.entries[i] = fcntl(in->entries[i], F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
        r = own.entries[i] < 0 ? -errno : 0;
    }
    r = r < 0 ? r : first_steps(&own, &step);
    if (r == 0 && read(in->go, &byte, 1) != 1) {
        _exit(1); /* the worker gave up */
    }
    (void)umask(022);
    if (r == 0) {
        r = all_steps(&own, &step);
    }
    (void)!tell(&own, r, step);
    _exit(1);
}
