/* What the seccomp programs let through and what they refuse, by system calls made under them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/filter.h"

#ifndef AF_VSOCK
#define AF_VSOCK 40
#endif

/* Runs fn under the filter in a child; its result comes back as the exit status. */
static int under(kg_filter_t which, int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || kg_filter_load(which) < 0) {
            _exit(255);
        }
        _exit(fn());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What a system call with zeros (or bad pointers) answers: its errno, 0 when it did something. */
typedef struct kg_try {
    long nr;
    long args[3];
    int want; /* errno; -1: anything but EPERM and ENOSYS */
    const char *name;
} kg_try_t;

static int run_tries(const kg_try_t *tries, size_t count)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        errno = 0;
        long r =
            syscall(tries[i].nr, tries[i].args[0], tries[i].args[1], tries[i].args[2], 0, 0, 0);
        int got = r < 0 ? errno : 0;
        bool ok = tries[i].want < 0 ? got != EPERM && got != ENOSYS : got == tries[i].want;
        if (!ok) {
            fprintf(stderr, "%s: errno %d, wanted %d\n", tries[i].name, got, tries[i].want);
            bad++;
        }
    }
    return bad;
}

#define T(name, a0, a1, a2, want)                                                                  \
    {                                                                                              \
        SYS_##name, {(long)(a0), (long)(a1), (long)(a2)}, want, #name                              \
    }

static int refused_to_all(void)
{
    static const kg_try_t tries[] = {
        T(bpf, 0, 0, 0, EPERM),
        T(userfaultfd, 0, 0, 0, EPERM),
        T(keyctl, 0, 0, 0, EPERM),
        T(add_key, 0, 0, 0, EPERM),
        T(request_key, 0, 0, 0, EPERM),
        T(mount, 0, 0, 0, EPERM),
        T(umount2, "/nonexistent", 0, 0, EPERM),
        T(pivot_root, 0, 0, 0, EPERM),
        T(setns, -1, 0, 0, EPERM),
        T(open_tree, -1, 0, 0, EPERM),
        T(move_mount, -1, 0, 0, EPERM),
        T(fsopen, 0, 0, 0, EPERM),
        T(syslog, 10, 0, 0, EPERM),
        T(perf_event_open, 0, 0, 0, EPERM),
        T(reboot, 0, 0, 0, EPERM),
        T(swapon, "/nonexistent", 0, 0, EPERM),
        T(init_module, 0, 0, 0, EPERM),
        T(open_by_handle_at, -1, 0, 0, EPERM),
        T(unshare, CLONE_NEWUSER, 0, 0, EPERM),
        T(unshare, CLONE_NEWNS, 0, 0, EPERM),
        T(unshare, CLONE_NEWNET, 0, 0, EPERM),
        T(unshare, CLONE_NEWCGROUP | CLONE_FS, 0, 0, EPERM),
        T(unshare, 0x80 /* CLONE_NEWTIME */, 0, 0, EPERM),
        T(clone, CLONE_NEWUSER | SIGCHLD, 0, 0, EPERM),
        T(clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | SIGCHLD, 0, 0, EPERM),
        T(clone3, 0, 0, 0, ENOSYS),
        T(io_uring_setup, 1, 0, 0, ENOSYS),
        T(io_uring_enter, -1, 0, 0, ENOSYS),
        T(io_uring_register, -1, 0, 0, ENOSYS),
        T(kexec_load, 0, 0, 0, EPERM),
        T(socket, AF_VSOCK, SOCK_STREAM, 0, ENOSYS),
        T(socket, (UINT64_C(1) << 32) | AF_VSOCK, SOCK_STREAM, 0, ENOSYS),
        T(socket, 38 /* AF_ALG */, SOCK_SEQPACKET, 0, ENOSYS),
        T(socket, AF_NETLINK, SOCK_RAW, 9 /* audit */, EINVAL),
        T(ioctl, 0, 0x5000940e /* BTRFS_IOC_SUBVOL_CREATE */, 0, ENOSYS),
        T(ioctl, 0, 0x50009401 /* BTRFS_IOC_SNAP_CREATE */, 0, ENOSYS),
        T(ioctl, 0, 0x50009417 /* BTRFS_IOC_SNAP_CREATE_V2 */, 0, ENOSYS),
        T(ioctl, 0, 0x50009418 /* BTRFS_IOC_SUBVOL_CREATE_V2 */, 0, ENOSYS),
        T(ioctl, 0, (UINT64_C(1) << 32) | 0x5000940e, 0, ENOSYS),
        T(personality, 0x40000 /* ADDR_NO_RANDOMIZE */, 0, 0, ENOSYS),
    };
    return run_tries(tries, KG_ARRAY_LEN(tries));
}

static int let_through(void)
{
    static const kg_try_t tries[] = {
        T(socket, AF_INET, SOCK_STREAM, 0, 0),
        T(socket, AF_INET6, SOCK_STREAM, 0, -1),
        T(socket, AF_UNIX, SOCK_SEQPACKET, 0, 0),
        T(socket, AF_NETLINK, SOCK_RAW, 0, 0),
        T(unshare, CLONE_FS, 0, 0, 0),
        T(ioctl, -1, 0x5401 /* TCGETS */, 0, EBADF),
        T(ioctl, -1, 0x541b /* FIONREAD */, 0, EBADF),
        T(ioctl, -1, 0x8913 /* SIOCGIFFLAGS */, 0, EBADF),
        T(ioctl, -1, 0x40049409 /* FICLONE */, 0, EBADF),
        T(ioctl, -1, 0xc020660b /* FS_IOC_FIEMAP */, 0, EBADF),
        T(ptrace, PTRACE_PEEKDATA, 1, 0, -1),
        T(memfd_create, "x", 0, 0, 0),
        T(sched_getaffinity, 0, 0, 0, EINVAL),
        T(personality, 0xffffffff, 0, 0, 0),
        T(inotify_init1, 0, 0, 0, 0),
        T(process_vm_readv, 0, 0, 0, -1),
        T(landlock_create_ruleset, 0, 0, 1, -1),
        T(capget, 0, 0, 0, EFAULT),
        T(mlock, 0, 0, 0, 0),
        T(sysinfo, 0, 0, 0, EFAULT),
        T(statx, -1, 0, 0, EFAULT),
    };
    return run_tries(tries, KG_ARRAY_LEN(tries));
}

static int refused_to_the_forwarder(void)
{
    static const kg_try_t tries[] = {
        T(socket, AF_UNIX, SOCK_STREAM, 0, EPERM),
        T(socket, AF_NETLINK, SOCK_RAW, 12 /* netfilter */, EPERM),
        T(socket, AF_VSOCK, SOCK_STREAM, 0, EPERM),
        T(kill, 1, 0, 0, EPERM),
        T(tgkill, 1, 1, 0, EPERM),
        T(ptrace, PTRACE_TRACEME, 0, 0, EPERM),
        T(process_vm_readv, 0, 0, 0, EPERM),
        T(pidfd_open, 1, 0, 0, EPERM),
        T(execve, "/bin/true", 0, 0, EPERM),
        T(clone, SIGCHLD, 0, 0, EPERM),
        T(clone3, 0, 0, 0, EPERM),
        T(unshare, CLONE_NEWUSER, 0, 0, EPERM),
        T(setns, -1, 0, 0, EPERM),
        T(io_uring_setup, 1, 0, 0, EPERM),
        T(unlinkat, -1, "x", 0, EPERM),
        T(renameat2, -1, "x", -1, EPERM),
        T(prctl, PR_SET_DUMPABLE, 1, 0, EPERM),
        T(ioctl, 0, 0x5412 /* TIOCSTI */, 0, EPERM),
    };
    return run_tries(tries, KG_ARRAY_LEN(tries));
}

static int let_through_to_the_forwarder(void)
{
    static const kg_try_t tries[] = {
        T(socket, AF_INET, SOCK_DGRAM, 0, 0),  T(socket, AF_INET6, SOCK_STREAM, 0, -1),
        T(socket, AF_NETLINK, SOCK_RAW, 0, 0), T(connect, -1, 0, 0, EBADF),
        T(openat, -1, "x", O_RDONLY, EBADF),   T(pread64, -1, 0, 0, EBADF),
        T(accept4, -1, 0, 0, EBADF),           T(getrandom, 0, 0, 0, 0),
    };
    return run_tries(tries, KG_ARRAY_LEN(tries));
}

static void filter_of_the_forwarder(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_FORWARDER, refused_to_the_forwarder), 0);
    assert_int_equal(under(KG_FILTER_FORWARDER, let_through_to_the_forwarder), 0);
}

static void *nothing(void *arg)
{
    return arg;
}

static int starts_threads_and_processes(void)
{
    pthread_t thread;
    int status = 0;

    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        return 1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

/* The two differ by CAP_SYS_CHROOT alone. EFAULT: the kernel itself looked at it. */
static int chroot_errno(void)
{
    return syscall(SYS_chroot, NULL) < 0 ? errno : 0;
}

static void filter_user_refuses(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_USER, refused_to_all), 0);
}

static void filter_root_refuses(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_ROOT, refused_to_all), 0);
}

static void filter_lets_through(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_USER, let_through), 0);
    assert_int_equal(under(KG_FILTER_ROOT, let_through), 0);
}

static void filter_lets_programs_start(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_USER, starts_threads_and_processes), 0);
    assert_int_equal(under(KG_FILTER_ROOT, starts_threads_and_processes), 0);
}

static void filter_chroot_is_roots_alone(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_USER, chroot_errno), EPERM);
    assert_int_equal(under(KG_FILTER_ROOT, chroot_errno), EFAULT);
}

#ifdef __x86_64__
static int other_machines(void)
{
    int bad = 0;
    long r = syscall(0x40000000 | SYS_getpid); /* x32 */
    bad += !(r < 0 && errno == ENOSYS);
    /* getpid of i386 by int 0x80: on x86-64 its number 20 is writev. */
    int got;
    __asm__ volatile("int $0x80" : "=a"(got) : "a"(20) : "memory", "cc", "r8", "r9", "r10", "r11");
    bad += got != -ENOSYS;
    return bad;
}

static void filter_refuses_other_machines(void **state)
{
    (void)state;
    assert_int_equal(under(KG_FILTER_USER, other_machines), 0);
    assert_int_equal(under(KG_FILTER_ROOT, other_machines), 0);
}
#endif

static void filter_fits_the_kernels_limit(void **state)
{
    (void)state;
    for (int which = 0; which < KG_FILTER_COUNT; which++) {
        size_t count = 0;
        assert_non_null(kg_filter_program((kg_filter_t)which, &count));
        assert_in_range(count, 50, BPF_MAXINSNS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_user_refuses),
        cmocka_unit_test(filter_root_refuses),
        cmocka_unit_test(filter_lets_through),
        cmocka_unit_test(filter_of_the_forwarder),
        cmocka_unit_test(filter_lets_programs_start),
        cmocka_unit_test(filter_chroot_is_roots_alone),
#ifdef __x86_64__
        cmocka_unit_test(filter_refuses_other_machines),
#endif
        cmocka_unit_test(filter_fits_the_kernels_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
