/* Paths of requests. The sandbox's own rights decide what they reach; beyond that, links of /proc
 * are never followed (they would lead into sandal-init's own process), and without an own root the
 * kernel keeps the walk below workspace or home (RESOLVE_BENEATH). */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

#define LINKS_MAX 40
#define SWAPPED_TRIES 16 /* RESOLVE_BENEATH gives EAGAIN while somebody renames above */

/* The rest of path below prefix, "." for the prefix itself; NULL when it isn't below. */
static const char *below(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(path, prefix, len) != 0 || (path[len] != '/' && path[len] != '\0')) {
        return NULL;
    }
    path += len;
    while (*path == '/') {
        path++;
    }
    return *path == '\0' ? "." : path;
}

static int find_base(const kg_init_t *in, const char *path, int *ret_base, const char **ret_rest)
{
    if (in->flags & KG_INIT_FLAG_OWN_ROOT) {
        *ret_base = AT_FDCWD;
        *ret_rest = path;
        return 0;
    }
    const struct {
        const char *prefix;
        int fd;
    } bases[] = {
        {in->workspace, in->workspace_fd},
        {in->home, in->home_fd},
        {"/workspace", in->workspace_fd},
        {"/home/user", in->home_fd},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bases); i++) {
        *ret_rest = below(path, bases[i].prefix);
        if (*ret_rest) {
            *ret_base = bases[i].fd;
            return 0;
        }
    }
    return -EACCES;
}

int init_path_open(const kg_init_t *in, const char *path, int flags, mode_t mode)
{
    bool own_root = (in->flags & KG_INIT_FLAG_OWN_ROOT) != 0;
    const char *rest;
    int base;
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_NO_MAGICLINKS | (own_root ? 0 : RESOLVE_BENEATH),
    };
    int r = find_base(in, path, &base, &rest);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < SWAPPED_TRIES; i++) {
        long fd = syscall(SYS_openat2, base, rest, &how, sizeof(how));
        if (fd >= 0) {
            return (int)fd;
        }
        if (errno != EAGAIN) {
            break;
        }
    }
    if (errno == ENOSYS && own_root) { /* kernels of another make */
        int fd = openat(base, rest, flags | O_CLOEXEC, mode);
        return fd < 0 ? -errno : fd;
    }
    return errno == EXDEV ? -EACCES : -errno;
}

bool init_path_dir(const char *path, char ret_dir[KG_IP_PATH_MAX], char ret_name[KG_IP_PATH_MAX])
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    if (begin == end || end >= KG_IP_PATH_MAX) {
        return false; /* the root itself */
    }
    memcpy(ret_name, path + begin, end - begin);
    ret_name[end - begin] = '\0';
    memcpy(ret_dir, path, begin);
    ret_dir[begin] = '\0';
    return true;
}

int init_path_parent(const kg_init_t *in,
                     const char *path,
                     int *ret_dir,
                     char ret_name[KG_IP_PATH_MAX])
{
    char dir[KG_IP_PATH_MAX];

    if (!init_path_dir(path, dir, ret_name)) {
        return -EBUSY;
    }
    if (strcmp(ret_name, ".") == 0 || strcmp(ret_name, "..") == 0) {
        return -EINVAL;
    }
    int fd = init_path_open(in, dir, O_PATH | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    *ret_dir = fd;
    return 0;
}

static int make_one(const kg_init_t *in, const char *path)
{
    char name[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int dir = -1;
    KG_AUTO_CLOSE int there = init_path_open(in, path, O_PATH | O_DIRECTORY, 0);

    if (there != -ENOENT) {
        return there < 0 ? there : 0;
    }
    int r = init_path_parent(in, path, &dir, name);
    if (r < 0) {
        return r;
    }
    return mkdirat(dir, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

int init_path_make_parents(const kg_init_t *in, const char *path)
{
    char dir[KG_IP_PATH_MAX];
    char name[KG_IP_PATH_MAX];
    char part[KG_IP_PATH_MAX];

    if (!init_path_dir(path, dir, name)) {
        return 0;
    }
    KG_AUTO_CLOSE int whole = init_path_open(in, dir, O_PATH | O_DIRECTORY, 0);
    if (whole != -ENOENT) {
        return whole < 0 ? whole : 0;
    }
    memcpy(part, dir, sizeof(part));
    for (size_t i = 1; part[i] != '\0'; i++) {
        if (part[i] != '/' || part[i - 1] == '/') {
            continue;
        }
        part[i] = '\0';
        int base;
        const char *rest; /* what lies above workspace and home is not ours to make */
        int r = find_base(in, part, &base, &rest) == 0 ? make_one(in, part) : 0;
        if (r < 0) {
            return r;
        }
        part[i] = '/';
    }
    return 0;
}

/* path becomes what the link names, seen from dir. */
static int follow(char path[KG_IP_PATH_MAX], const char *dir, const char *target)
{
    if (target[0] == '/') {
        return kg_format(path, KG_IP_PATH_MAX, "%s", target);
    }
    return kg_format(path, KG_IP_PATH_MAX, "%s%s", dir, target);
}

int init_path_final(const kg_init_t *in, const char *path, char ret_path[KG_IP_PATH_MAX])
{
    char at[KG_IP_PATH_MAX];
    char dir[KG_IP_PATH_MAX];
    char name[KG_IP_PATH_MAX];
    char target[KG_IP_PATH_MAX];

    int r = kg_format(at, sizeof(at), "%s", path);
    for (int i = 0; r == 0 && i < LINKS_MAX; i++) {
        KG_AUTO_CLOSE int fd = -1;
        r = init_path_parent(in, at, &fd, name);
        if (r < 0) {
            return r;
        }
        ssize_t n = readlinkat(fd, name, target, sizeof(target) - 1);
        if (n < 0) { /* no link, or nothing there */
            return errno == EINVAL || errno == ENOENT
                       ? kg_format(ret_path, KG_IP_PATH_MAX, "%s", at)
                       : -errno;
        }
        target[n] = '\0';
        (void)init_path_dir(at, dir, name);
        r = follow(at, dir, target);
    }
    return r < 0 ? r : -ELOOP;
}
