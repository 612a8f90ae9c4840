/* The system calls by hand: the C library has none, and its kernel headers may be older than the
 * kernel. */
#include "gateway/sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/limits.h"

/* The newest form that this file knows; an older kernel is given the part that it knows. */
typedef struct kg_ll_attr {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
} kg_ll_attr_t;

#define FS_EXECUTE (UINT64_C(1) << 0)
#define FS_WRITE_FILE (UINT64_C(1) << 1)
#define FS_READ_FILE (UINT64_C(1) << 2)
#define FS_READ_DIR (UINT64_C(1) << 3)
#define FS_ABI1 ((UINT64_C(1) << 13) - 1)
#define FS_REFER (UINT64_C(1) << 13)
#define FS_TRUNCATE (UINT64_C(1) << 14)
#define FS_IOCTL_DEV (UINT64_C(1) << 15)
#define FS_OF_FILES (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define NET_CONNECT_TCP UINT64_C(2)
#define NET_BIND_AND_CONNECT_TCP UINT64_C(3)
#define RULE_NET_PORT 2
#define SCOPE_ABSTRACT_AND_SIGNAL UINT64_C(3)

int kg_ll_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi < 0 ? 0 : (int)abi;
}

/* Under root each sandbox has a user id of its own, which keeps them apart without Landlock's
 * scopes. */
void kg_ll_remark(int abi, bool is_root, char ret[160])
{
    const char *more = "";
    if (!is_root) {
        more = abi < KG_LL_ABI_SCOPES ? "; " KG_LAUNCHER_NOT_APART
                                        " (one user, Landlock without scopes)"
                                      : "; same user as the daemon";
    }
    (void)snprintf(ret, 160,
                   "host files by Landlock (ABI %d), no sockets but unix ones; the host's process "
                   "list is seen%s",
                   abi, more);
}

static uint64_t known_fs(int abi)
{
    return FS_ABI1 | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
           (abi >= 5 ? FS_IOCTL_DEV : 0);
}

int kg_ll_begin(void)
{
    int abi = kg_ll_abi();
    kg_ll_attr_t attr = {
        .fs = known_fs(abi),
        .net = abi >= 4 ? NET_BIND_AND_CONNECT_TCP : 0,
        .scoped = abi >= KG_LL_ABI_SCOPES ? SCOPE_ABSTRACT_AND_SIGNAL : 0,
    };
    size_t size = abi >= KG_LL_ABI_SCOPES ? sizeof(attr)
                  : abi >= 4              ? offsetof(kg_ll_attr_t, scoped)
                                          : offsetof(kg_ll_attr_t, net);
    if (abi == 0) {
        return -ENOSYS;
    }
    long fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    return fd < 0 ? -errno : (int)fd;
}

static uint64_t rights_of(kg_ll_grant_t grant)
{
    switch (grant) {
    case KG_LL_READ:
        return FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    case KG_LL_DEVICE:
        return FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR | FS_TRUNCATE | FS_IOCTL_DEV;
    case KG_LL_WRITE:
    default:
        return UINT64_MAX;
    }
}

int kg_ll_allow_fd(int rules, int fd, kg_ll_grant_t grant)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    struct landlock_path_beneath_attr rule = {
        .allowed_access = rights_of(grant) & known_fs(kg_ll_abi()) &
                          (S_ISDIR(st.st_mode) ? UINT64_MAX : FS_OF_FILES),
        .parent_fd = fd,
    };
    return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno
                                                                                           : 0;
}

int kg_ll_allow(int rules, const char *path, kg_ll_grant_t grant)
{
    KG_AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
    }
    return kg_ll_allow_fd(rules, fd, grant);
}

int kg_ll_allow_connect(int rules, uint16_t port)
{
    const struct {
        uint64_t access, port;
    } rule = {NET_CONNECT_TCP, port};
    if (kg_ll_abi() < 4) {
        return 0;
    }
    return syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) < 0 ? -errno : 0;
}

int kg_ll_enter(int rules)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0) {
        return -errno;
    }
    return 0;
}
