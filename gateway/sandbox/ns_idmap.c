/* User namespaces and idmapped mounts. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/ns.h"

pid_t kg_ns_clone(uint64_t flags, int cgroup_fd)
{
    struct clone_args args = {.flags = flags};

    if (!(flags & CLONE_PARENT)) {
        args.exit_signal = SIGCHLD;
    }
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)(unsigned)cgroup_fd;
    }
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    return pid < 0 ? -errno : (pid_t)pid;
}

static int write_map(pid_t pid, const char *file, const char *text)
{
    char path[64];
    (void)kg_format(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int kg_ns_write_maps(pid_t pid, uid_t inside_first, uid_t outside_first, unsigned count)
{
    char text[48];
    (void)kg_format(text, sizeof(text), "%u %u %u\n", inside_first, outside_first, count);
    int r = write_map(pid, "uid_map", text);
    return r < 0 ? r : write_map(pid, "gid_map", text);
}

/* Until the other end of the pipe is closed. */
static int hold_namespace(void *arg)
{
    const int *hold = arg;
    char byte;
    close(hold[1]);
    return read(hold[0], &byte, 1) != 0;
}

int kg_ns_mapping(uid_t inside_first, uid_t outside_first, unsigned count)
{
    int hold[2];
    char path[64];
    _Alignas(16) char stack[16384];

    if (pipe2(hold, O_CLOEXEC) < 0) {
        return -errno;
    }
    /* In our memory: nothing has to be copied for a process that does nothing. */
    pid_t pid =
        clone(hold_namespace, stack + sizeof(stack), CLONE_NEWUSER | CLONE_VM | SIGCHLD, hold);
    pid = pid < 0 ? -errno : pid;
    close(hold[0]);
    int r = pid < 0 ? (int)pid : kg_ns_write_maps(pid, inside_first, outside_first, count);
    if (r == 0) {
        (void)kg_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        r = open(path, O_RDONLY | O_CLOEXEC);
        r = r < 0 ? -errno : r;
    }
    close(hold[1]);
    if (pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
    return r;
}

int kg_ns_clone_mount(const char *from, const char *to, int userns, bool *ret_mapped)
{
    /* Not AT_RECURSIVE: never /proc, /sys or what else is mounted below. */
    long tree = syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) {
        return -errno;
    }
    KG_AUTO_CLOSE int fd = (int)tree;
    *ret_mapped = false;
    if (userns >= 0) {
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP,
                                  .userns_fd = (uint64_t)(unsigned)userns};
        long r = syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr));
        if (r < 0 && errno != EINVAL && errno != EPERM && errno != ENOSYS) {
            return -errno;
        }
        *ret_mapped = r == 0;
    }
    return syscall(SYS_move_mount, fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}
