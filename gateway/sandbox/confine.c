/* sandbox: seccomp filter of the gateway, by libseccomp. A list of what is denied: an allow-list
 * would break with each new libc or library, and the gateway has neither rights nor other user ids
 * to lose. */
#include "gateway/sandbox/confine.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>

static const char *const DENIED[] = {
    /* programs and other processes */
    "execve",
    "execveat",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "fork",
    "vfork",
    /* file systems and namespaces */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "unshare",
    "setns",
    "mknod",
    "mknodat",
    "open_by_handle_at",
    "name_to_handle_at",
    /* rights */
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "setfsgid",
    "capset",
    /* the kernel */
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "add_key",
    "request_key",
    "keyctl",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "swapon",
    "swapoff",
    "syslog",
    "acct",
    "quotactl",
    "iopl",
    "ioperm",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "sethostname",
    "setdomainname",
    "lookup_dcookie",
    "personality",
    "uselib",
    "vmsplice",
};

static int deny(scmp_filter_ctx filter, const char *name)
{
    int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) {
        return 0; /* not of this architecture */
    }
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
}

/* Characters pushed into a terminal's input would be typed into the operator's shell. */
static int deny_tiocsti(scmp_filter_ctx filter)
{
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                            SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffU, TIOCSTI));
}

int kg_confine_gateway(kg_err_t *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < KG_ARRAY_LEN(DENIED); i++) {
        r = deny(filter, DENIED[i]);
    }
    if (r == 0) {
        r = deny_tiocsti(filter);
    }
    if (r == 0) {
        r = seccomp_load(filter); /* sets no_new_privs, libseccomp's default */
    }
    if (filter) {
        seccomp_release(filter);
    }
    return r < 0 ? kg_err_set(err, KG_ERR_INTERNAL,
                              "the gateway's seccomp filter cannot be loaded: %s",
                              strerror(-r)) /* NOLINT(concurrency-mt-unsafe): one thread */
                 : 0;
}
