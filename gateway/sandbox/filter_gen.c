/* Runs when sandald is built: turns the container engines' default profile (profile/seccomp.json)
 * into BPF for one machine, as a C header of arrays, with a list of our own for the DNS forwarder.
 * `filter_gen PROFILE CPU_FAMILY`.
 *
 * What Sandal takes away is in the tables below; everything else is the profile's. A rule of the
 * profile that asks for a capability holds where the program's capabilities (caps.h) have it.
 * System calls that neither names answer ENOSYS (the profile's default), so that libraries fall
 * back. */
#include <errno.h>
#include <jansson.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/caps.h"

#define NEW_NAMESPACES                                                                             \
    UINT64_C(0x7e020000) /* CLONE_NEW* but NEWTIME, which clone() has no bit for */
#define NEW_TIME UINT64_C(0x80)
#define WORD                                                                                       \
    UINT64_C(0xffffffff) /* the kernel reads an int: compare no more, or high bits fool us */

typedef struct kg_gen {
    scmp_filter_ctx ctx;
    const json_t *rules;
    uint64_t caps;
    const char *arch; /* as the profile calls it */
    bool joins;       /* a zygote's: setns is let through */
} kg_gen_t;

/* EPERM, whatever the profile says. */
static const char *const denied[] = {
    "bpf",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    /* new user namespaces give rights over these; none is left without them */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "setns",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsmount",
    "fsconfig",
    "fspick",
    "mount_setattr",
    "reboot",
    /* the host's kernel log, where dmesg_restrict is off */
    "syslog",
};
/* ENOSYS: flags of clone3 can't be looked at, and libc falls back to clone. */
static const char *const absent[] = {"clone3", "io_uring_setup", "io_uring_enter",
                                     "io_uring_register"};
/* Rules of our own instead of the profile's. */
static const char *const own[] = {"clone", "unshare", "socket", "ioctl"};

static const struct {
    const char *name;
    int cap;
} cap_names[] = {
    {"CAP_SYS_CHROOT", CAP_SYS_CHROOT},   {"CAP_SYS_ADMIN", CAP_SYS_ADMIN},
    {"CAP_AUDIT_WRITE", CAP_AUDIT_WRITE}, {"CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH},
    {"CAP_SYS_MODULE", CAP_SYS_MODULE},   {"CAP_SYS_PACCT", CAP_SYS_PACCT},
    {"CAP_SYS_PTRACE", CAP_SYS_PTRACE},   {"CAP_SYS_RAWIO", CAP_SYS_RAWIO},
    {"CAP_SYS_TIME", CAP_SYS_TIME},       {"CAP_SYS_TTY_CONFIG", CAP_SYS_TTY_CONFIG},
};

static bool listed(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_ours(const char *name)
{
    return listed(name, denied, KG_ARRAY_LEN(denied)) ||
           listed(name, absent, KG_ARRAY_LEN(absent)) || listed(name, own, KG_ARRAY_LEN(own));
}

/* -1: a capability that is not in the table, so that a new profile can't pass unseen. */
static int has_cap(const kg_gen_t *g, const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(cap_names); i++) {
        if (strcmp(name, cap_names[i].name) == 0) {
            return (g->caps & KG_CAP_BIT(cap_names[i].cap)) != 0;
        }
    }
    fprintf(stderr, "filter_gen: the profile has an unknown capability: %s\n", name);
    return -1;
}

/* Whether a rule's `includes` and `excludes` let it hold here: 1, 0, -1. */
static int applies(const kg_gen_t *g, const json_t *rule)
{
    size_t i;
    const json_t *item;
    const json_t *arches = json_object_get(json_object_get(rule, "includes"), "arches");
    const json_t *with = json_object_get(json_object_get(rule, "includes"), "caps");
    const json_t *without = json_object_get(json_object_get(rule, "excludes"), "caps");
    bool arch_fits = json_array_size(arches) == 0;

    json_array_foreach (arches, i, item) {
        arch_fits = arch_fits || strcmp(json_string_value(item), g->arch) == 0;
    }
    json_array_foreach (with, i, item) {
        int has = has_cap(g, json_string_value(item));
        if (has <= 0) {
            return has;
        }
    }
    json_array_foreach (without, i, item) {
        int has = has_cap(g, json_string_value(item));
        if (has != 0) {
            return has < 0 ? -1 : 0;
        }
    }
    return arch_fits;
}

static bool allows(const json_t *rule)
{
    return strcmp(json_string_value(json_object_get(rule, "action")), "SCMP_ACT_ALLOW") == 0;
}

static bool names(const json_t *rule, const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach (json_object_get(rule, "names"), i, item) {
        if (strcmp(json_string_value(item), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Refused by a rule that holds. The profile allows setns and others to all and refuses them to
 * those without CAP_SYS_ADMIN; the refusal counts. */
static bool refused(const kg_gen_t *g, const char *name)
{
    size_t i;
    const json_t *rule;
    json_array_foreach (g->rules, i, rule) {
        if (!allows(rule) && applies(g, rule) == 1 && names(rule, name)) {
            return true;
        }
    }
    return false;
}

static int add(const kg_gen_t *g, uint32_t action, const char *name, const struct scmp_arg_cmp *arg)
{
    int nr = seccomp_syscall_resolve_name(name);
    if (nr == __NR_SCMP_ERROR) {
        return 0; /* not known to this libseccomp: stays ENOSYS */
    }
    int r = seccomp_rule_add_array(g->ctx, action, nr, arg ? 1 : 0, arg);
    if (r == -EACCES || r == -EDOM) {
        return 0; /* the default action, or not on this machine */
    }
    if (r < 0) {
        fprintf(stderr, "filter_gen: %s: %s\n", name, strerrordesc_np(-r));
    }
    return r;
}

static int add_rule(const kg_gen_t *g, const json_t *rule)
{
    size_t i;
    const json_t *item;
    const json_t *args = json_object_get(rule, "args");
    struct scmp_arg_cmp arg = {0};

    if (json_array_size(args) > 0) {
        const json_t *first = json_array_get(args, 0);
        if (json_array_size(args) != 1 ||
            strcmp(json_string_value(json_object_get(first, "op")), "SCMP_CMP_EQ") != 0) {
            fprintf(stderr, "filter_gen: a rule with arguments of another kind than expected\n");
            return -EINVAL;
        }
        arg = SCMP_CMP64((unsigned)json_integer_value(json_object_get(first, "index")), SCMP_CMP_EQ,
                         (scmp_datum_t)json_integer_value(json_object_get(first, "value")), 0);
    }
    uint32_t errno_ret = (uint32_t)json_integer_value(json_object_get(rule, "errnoRet"));
    json_array_foreach (json_object_get(rule, "names"), i, item) {
        const char *name = json_string_value(item);
        if (is_ours(name) || (allows(rule) && refused(g, name))) {
            continue;
        }
        int r = add(g, allows(rule) ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(errno_ret), name,
                    json_array_size(args) > 0 ? &arg : NULL);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int add_profile(const kg_gen_t *g)
{
    size_t i;
    const json_t *rule;
    json_array_foreach (g->rules, i, rule) {
        const json_t *list = json_object_get(rule, "names");
        if (json_array_size(list) == 1 && is_ours(json_string_value(json_array_get(list, 0)))) {
            continue; /* socket, whose rules have two arguments */
        }
        int r = applies(g, rule);
        if (r == 1) {
            r = add_rule(g, rule);
        }
        if (r < 0) {
            return -EINVAL;
        }
    }
    return 0;
}

/* No new namespace of any kind; threads and processes as ever. */
static int add_no_namespaces(const kg_gen_t *g, const char *name, uint64_t mask)
{
    const struct scmp_arg_cmp none = SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, mask, 0);
    int r = add(g, SCMP_ACT_ALLOW, name, &none);

    for (unsigned bit = 0; bit < 32 && r == 0; bit++) {
        const uint64_t one = UINT64_C(1) << bit;
        if (mask & one) {
            const struct scmp_arg_cmp set = SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, one, one);
            r = add(g, SCMP_ACT_ERRNO(EPERM), name, &set);
        }
    }
    return r;
}

/* The families that programs use. Others (vsock, which reaches a virtual machine's host past every
 * network namespace, among them) answer ENOSYS. */
static int add_sockets(const kg_gen_t *g)
{
    static const uint64_t families[] = {AF_UNIX, AF_INET, AF_INET6};
    static const uint64_t netlink[] = {0 /* route */, 4 /* sock_diag */, 15 /* uevent */,
                                       16 /* generic */};
    int nr = seccomp_syscall_resolve_name("socket");
    int r = 0;

    for (size_t i = 0; i < KG_ARRAY_LEN(families) && r == 0; i++) {
        const struct scmp_arg_cmp family = SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, WORD, families[i]);
        r = add(g, SCMP_ACT_ALLOW, "socket", &family);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(netlink) && r == 0; i++) {
        const struct scmp_arg_cmp both[] = {
            SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, WORD, AF_NETLINK),
            SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, WORD, netlink[i]),
        };
        r = seccomp_rule_add_array(g->ctx, SCMP_ACT_ALLOW, nr, 2, both);
    }
    const struct scmp_arg_cmp audit[] = {
        /* as the profile does without CAP_AUDIT_WRITE */
        SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, WORD, AF_NETLINK),
        SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, WORD, 9),
    };
    return r < 0 ? r : seccomp_rule_add_array(g->ctx, SCMP_ACT_ERRNO(EINVAL), nr, 2, audit);
}

/* All but those of btrfs, whose subvolumes would lie outside a volume's limit; of its letter only
 * what other file systems have too: sharing the blocks of a file. */
static int add_ioctls(const kg_gen_t *g)
{
    static const uint64_t shared[] = {0x40049409 /* FICLONE */, 0x4020940d /* FICLONERANGE */};
    const uint64_t btrfs = UINT64_C(0x94) << 8;
    int r = 0;

    for (unsigned bit = 8; bit < 16 && r == 0; bit++) { /* another letter: one bit differs */
        const uint64_t one = UINT64_C(1) << bit;
        const struct scmp_arg_cmp other = SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, one, ~btrfs & one);
        r = add(g, SCMP_ACT_ALLOW, "ioctl", &other);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(shared) && r == 0; i++) {
        const struct scmp_arg_cmp exact = SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, WORD, shared[i]);
        r = add(g, SCMP_ACT_ALLOW, "ioctl", &exact);
    }
    return r;
}

static int begin(const kg_gen_t *g, uint32_t machine)
{
    uint32_t native = seccomp_arch_native();
    if (machine != native &&
        (seccomp_arch_add(g->ctx, machine) < 0 || seccomp_arch_remove(g->ctx, native) < 0)) {
        return -EINVAL;
    }
    /* System calls of another machine (i386 and x32 on x86-64): their numbers mean other things, so
     * nothing of them is let through. */
    int r = seccomp_attr_set(g->ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    return r < 0 ? r : seccomp_attr_set(g->ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree */
}

static int fill(const kg_gen_t *g, uint32_t machine)
{
    int r = begin(g, machine);
    for (size_t i = 0; i < KG_ARRAY_LEN(denied) && r == 0; i++) {
        bool let = g->joins && strcmp(denied[i], "setns") == 0;
        r = add(g, let ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), denied[i], NULL);
    }
    if (r == 0) {
        r = add_no_namespaces(g, "clone", NEW_NAMESPACES);
    }
    if (r == 0) {
        r = add_no_namespaces(g, "unshare", NEW_NAMESPACES | NEW_TIME);
    }
    if (r == 0) {
        r = add_sockets(g);
    }
    if (r == 0) {
        r = add_ioctls(g);
    }
    return r < 0 ? r : add_profile(g);
}

static int print_program(const kg_gen_t *g, const char *name)
{
    struct sock_filter one;
    int fd = memfd_create("bpf", MFD_CLOEXEC);

    if (fd < 0 || seccomp_export_bpf(g->ctx, fd) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        fprintf(stderr, "filter_gen: %s cannot be compiled\n", name);
        if (fd >= 0) {
            close(fd);
        }
        return -EIO;
    }
    printf("static const struct sock_filter %s[] = {\n", name);
    while (read(fd, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
        printf("    {0x%x, %u, %u, 0x%x},\n", one.code, one.jt, one.jf, one.k);
    }
    printf("};\n\n");
    close(fd);
    return 0;
}

static int
one_program(const json_t *rules, uint64_t caps, bool joins, uint32_t machine, const char *name)
{
    kg_gen_t g = {
        .ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS)),
        .rules = rules,
        .caps = caps,
        .joins = joins,
        .arch = machine == SCMP_ARCH_X86_64 ? "amd64" : "arm64",
    };
    if (!g.ctx) {
        return -ENOMEM;
    }
    int r = fill(&g, machine);
    if (r == 0) {
        r = print_program(&g, name);
    }
    seccomp_release(g.ctx);
    return r;
}

/* All that the DNS forwarder does: a list of what is let through, for it is small. Its sockets are
 * of the internet and netlink's for routes (the C library asks for the host's addresses there). */
static const char *const forwards[] = {
    "accept4",      "bind",        "brk",          "clock_gettime",   "clock_nanosleep",
    "close",        "connect",     "exit",         "exit_group",      "fcntl",
    "fstat",        "futex",       "getpid",       "getrandom",       "getsockname",
    "getsockopt",   "gettid",      "lseek",        "madvise",         "mmap",
    "mprotect",     "mremap",      "munmap",       "newfstatat",      "openat",
    "poll",         "ppoll",       "pread64",      "pwrite64",        "read",
    "recvfrom",     "recvmsg",     "rt_sigaction", "restart_syscall", "rt_sigprocmask",
    "rt_sigreturn", "sched_yield", "sendmsg",      "sendto",          "setsockopt",
    "sigaltstack",  "statx",       "write",
};

static int forwarder_program(uint32_t machine, const char *name)
{
    static const uint64_t families[] = {AF_INET, AF_INET6};
    const struct scmp_arg_cmp route[] = {
        SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, WORD, AF_NETLINK),
        SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, WORD, 0),
    };
    kg_gen_t g = {.ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM))};
    int r = g.ctx ? begin(&g, machine) : -ENOMEM;
    for (size_t i = 0; i < KG_ARRAY_LEN(forwards) && r == 0; i++) {
        r = add(&g, SCMP_ACT_ALLOW, forwards[i], NULL);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(families) && r == 0; i++) {
        const struct scmp_arg_cmp family = SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, WORD, families[i]);
        r = add(&g, SCMP_ACT_ALLOW, "socket", &family);
    }
    if (r == 0) {
        int nr = seccomp_syscall_resolve_name("socket");
        r = seccomp_rule_add_array(g.ctx, SCMP_ACT_ALLOW, nr, 2, route);
    }
    if (r == 0) {
        r = print_program(&g, name);
    }
    seccomp_release(g.ctx);
    return r;
}

int main(int argc, char **argv)
{
    json_error_t error;
    uint32_t machine = 0;

    if (argc == 3 && strcmp(argv[2], "x86_64") == 0) {
        machine = SCMP_ARCH_X86_64;
    } else if (argc == 3 && strcmp(argv[2], "aarch64") == 0) {
        machine = SCMP_ARCH_AARCH64;
    }
    if (machine == 0) {
        fprintf(stderr, "usage: filter_gen PROFILE x86_64|aarch64\n");
        return 2;
    }
    json_t *profile = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error);
    if (!profile || json_integer_value(json_object_get(profile, "defaultErrnoRet")) != ENOSYS) {
        fprintf(stderr, "filter_gen: %s: %s\n", argv[1], profile ? "another default" : error.text);
        json_decref(profile);
        return 1;
    }
    const json_t *rules = json_object_get(profile, "syscalls");
    printf("/* Made by filter_gen.c. */\n");
    int r = one_program(rules, KG_CAPS_NONE, false, machine, "filter_user");
    if (r == 0) {
        r = one_program(rules, KG_CAPS_ROOT, false, machine, "filter_root");
    }
    if (r == 0) {
        r = one_program(rules, KG_CAPS_NONE, true, machine, "filter_zygote");
    }
    if (r == 0) {
        r = forwarder_program(machine, "filter_forwarder");
    }
    json_decref(profile);
    return r < 0;
}
