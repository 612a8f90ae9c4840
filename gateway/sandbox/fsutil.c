/* Trees that hostile code has filled: every step is an *at() call on a descriptor opened with
 * O_NOFOLLOW. A tree may be deeper than there are descriptors or stack: below DEPTH_MAX a directory
 * is first moved up to the top ("hoisted"). */
#include "gateway/sandbox/fsutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"

#define DEPTH_MAX 32
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

typedef struct kg_rm {
    int top;        /* the tree's root, where deep directories are hoisted to */
    dev_t dev;      /* of the tree */
    unsigned names; /* for names of hoisted directories */
    uint64_t deadline_ns;
} kg_rm_t;

static bool late(const kg_rm_t *rm)
{
    return rm->deadline_ns != UINT64_MAX && kg_now_ns() > rm->deadline_ns;
}

static int make_parents(const char *path)
{
    char part[4096];
    size_t len = strlen(path);

    if (len >= sizeof(part)) {
        return -ENAMETOOLONG;
    }
    for (size_t i = 1; i < len; i++) {
        if (path[i] != '/') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST) {
            return -errno;
        }
    }
    return 0;
}

int kg_fs_open_dir(const char *path, mode_t mode, int *ret_fd)
{
    bool made = false;
    int r = make_parents(path);
    if (r < 0) {
        return r;
    }
    if (mkdir(path, mode) == 0) {
        made = true;
    } else if (errno != EEXIST) {
        return -errno;
    }
    KG_AUTO_CLOSE int fd = open(path, OPEN_DIR);
    if (fd < 0) {
        return -errno;
    }
    if (made && fchmod(fd, mode) < 0) { /* whatever the umask was */
        return -errno;
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

int kg_fs_make_dir(int parent, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
    if (mkdirat(parent, name, 0700) < 0) {
        return -errno;
    }
    KG_AUTO_CLOSE int fd = openat(parent, name, OPEN_DIR);
    if (fd < 0) {
        return -errno;
    }
    if (uid != (uid_t)-1 && fchown(fd, uid, gid) < 0) {
        return -errno;
    }
    return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int remove_dir(kg_rm_t *rm, int parent, const char *name, unsigned depth);

/* Moves a directory to the top of the tree, under a number that is free there. */
static int hoist(kg_rm_t *rm, int parent, const char *name)
{
    char up[32];
    for (;;) {
        (void)snprintf(up, sizeof(up), ".hoisted-%u", rm->names++);
        if (renameat(parent, name, rm->top, up) == 0) {
            return 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
            return -errno;
        }
        if (late(rm)) {
            return -ETIME;
        }
    }
}

static int remove_entry(kg_rm_t *rm, int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno != EISDIR && errno != EPERM) {
        return -errno;
    }
    if (depth < DEPTH_MAX) {
        return remove_dir(rm, dir, name, depth + 1);
    }
    if (geteuid() != 0 && fchmodat(dir, name, 0700, 0) <
                              0) { /* moving a directory needs the right to write its ".." */
        return -errno;
    }
    return hoist(rm, dir, name);
}

static bool dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

/* One pass over a directory; *ret_seen = entries met. */
static int empty_once(kg_rm_t *rm, int fd, unsigned depth, size_t *ret_seen)
{
    size_t seen = 0;
    int r = 0;
    int again = openat(fd, ".", OPEN_DIR);
    if (again < 0) {
        return -errno;
    }
    DIR *dir = fdopendir(again);
    if (!dir) {
        close(again);
        return -ENOMEM;
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = next_entry(dir);
        if (!entry) {
            r = r == 0 ? -errno : r;
            break;
        }
        if (!dots(entry->d_name)) {
            seen++;
            r = late(rm) ? -ETIME : remove_entry(rm, fd, entry->d_name, depth);
        }
        if (r < 0) {
            break;
        }
    }
    closedir(dir);
    *ret_seen = seen;
    return r;
}

/* Rootless, and the sandbox took its own rights away. Following a link here would reach nothing
 * that the same user's processes couldn't reach by themselves. */
static bool reclaim(int parent, const char *name)
{
    struct stat st;
    return geteuid() != 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode) && fchmodat(parent, name, 0700, 0) == 0;
}

static int open_for_removal(kg_rm_t *rm, int parent, const char *name, int *ret_fd)
{
    struct stat st;
    KG_AUTO_CLOSE int fd = openat(parent, name, OPEN_DIR);
    if (fd < 0 && errno == EACCES && reclaim(parent, name)) {
        fd = openat(parent, name, OPEN_DIR);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return -errno;
    }
    if (st.st_dev != rm->dev) {
        return -EXDEV;
    }
    if ((st.st_mode & 0700) != 0700) {
        (void)fchmod(fd, 0700);
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

static int remove_dir(kg_rm_t *rm, int parent, const char *name, unsigned depth)
{
    size_t seen = 1;
    KG_AUTO_CLOSE int fd = -1;
    int r = open_for_removal(rm, parent, name, &fd);

    if (r == -ENOENT) {
        return 0;
    }
    while (r == 0 && seen > 0) { /* again until empty: hoisted ones come in while the top is read */
        r = empty_once(rm, fd, depth, &seen);
    }
    if (r < 0) {
        return r;
    }
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int kg_fs_remove_tree(int parent, const char *name)
{
    return kg_fs_remove_tree_until(parent, name, UINT64_MAX);
}

int kg_fs_remove_tree_until(int parent, const char *name, uint64_t deadline_ns)
{
    struct stat st;
    kg_rm_t rm = {.top = -1, .deadline_ns = deadline_ns};

    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (!S_ISDIR(st.st_mode)) {
        return unlinkat(parent, name, 0) < 0 ? -errno : 0;
    }
    rm.dev = st.st_dev;
    int r = open_for_removal(&rm, parent, name, &rm.top);
    if (r == 0) {
        r = remove_dir(&rm, parent, name, 0);
    }
    kg_closep(&rm.top);
    return r;
}
