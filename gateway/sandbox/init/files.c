/* File requests, each in a process of its own with the rights that it is to have. The sandbox may
 * change anything at any moment: descriptors first, then checks on them, and nothing is waited for.
 */
#include "gateway/sandbox/init/init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"

#define WATCH_MASK                                                                                 \
    (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM |              \
     IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK)
#define TEMP_TRIES 16
#define TEMP_NAME_MAX 40

/* ---- open ---- */

/* Files and directories alone: -ENXIO for what else there is. Files of /proc are read at most: some
 * belong to the process that opens them. */
static int check_opened(int fd, uint32_t flags)
{
    struct stat st;
    struct statfs fs;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        return -ENXIO;
    }
    if (!(flags & KG_IP_FS_WRITE)) {
        return 0;
    }
    if (fstatfs(fd, &fs) < 0) {
        return -errno;
    }
    return fs.f_type == PROC_SUPER_MAGIC ? -EACCES : 0;
}

static int open_flags(uint32_t flags)
{
    int access = O_RDONLY;
    if (flags & KG_IP_FS_WRITE) {
        access = flags & KG_IP_FS_READ ? O_RDWR : O_WRONLY;
    }
    return access | O_NONBLOCK | O_NOCTTY | (flags & KG_IP_FS_CREATE ? O_CREAT : 0) |
           (flags & KG_IP_FS_EXCLUSIVE ? O_EXCL : 0) |
           (flags & KG_IP_FS_DIRECTORY ? O_DIRECTORY : 0) |
           (flags & KG_IP_FS_NOFOLLOW ? O_NOFOLLOW : 0);
}

static int open_file(kg_ifiles_t *f)
{
    uint32_t flags = f->request->flags;
    int nofollow = flags & KG_IP_FS_NOFOLLOW ? O_NOFOLLOW : 0;

    /* A look first: opening a device may do something by itself. */
    KG_AUTO_CLOSE int look = init_path_open(f->in, f->path, O_PATH | nofollow, 0);
    int r = look >= 0 ? check_opened(look, flags) : 0;
    if (r < 0) {
        return r == -ENXIO && nofollow ? -ELOOP : r;
    }
    KG_AUTO_CLOSE int fd = init_path_open(f->in, f->path, open_flags(flags), f->request->mode);
    if (fd < 0) {
        return fd == -EAGAIN ? -EBUSY : fd; /* somebody holds a lease on it */
    }
    r = check_opened(fd, flags);
    if (r == 0) {
        f->fd = kg_take_fd(&fd);
    }
    return r;
}

static int check_replaceable(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (S_ISDIR(st.st_mode)) {
        return -EISDIR;
    }
    return S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) ? 0 : -ENXIO;
}

static int temp_name(char ret_name[TEMP_NAME_MAX])
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) < 0) {
        return -errno;
    }
    (void)snprintf(ret_name, TEMP_NAME_MAX, ".sandal-%016llx", (unsigned long long)number);
    return 0;
}

static int open_temporary(kg_ifiles_t *f)
{
    char target[KG_IP_PATH_MAX];
    char dir_path[KG_IP_PATH_MAX];
    char name[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int dir = -1;

    int r = init_path_final(f->in, f->path, target);
    if (r == 0) {
        r = init_path_parent(f->in, target, &dir, name);
    }
    if (r == 0) {
        r = check_replaceable(dir, name);
    }
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < TEMP_TRIES; i++) {
        char temp[TEMP_NAME_MAX];
        r = temp_name(temp);
        if (r < 0) {
            return r;
        }
        (void)init_path_dir(target, dir_path, name);
        r = kg_format(f->tail, KG_IP_PATH_MAX, "%s%s", dir_path, temp);
        if (r < 0) {
            return r;
        }
        KG_AUTO_CLOSE int fd = openat(
            dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd >= 0) {
            (void)fchmod(fd, f->request->mode);
            f->tail_len = strlen(f->tail) + 1;
            f->fd = kg_take_fd(&fd);
            return 0;
        }
        if (errno != EEXIST) {
            return -errno;
        }
    }
    return -EEXIST;
}

static int do_open(kg_ifiles_t *f)
{
    bool temporary = (f->request->flags & KG_IP_FS_TEMPORARY) != 0;
    int r = temporary ? open_temporary(f) : open_file(f);

    if (r == -ENOENT && (f->request->flags & KG_IP_FS_PARENTS)) {
        r = init_path_make_parents(f->in, f->path);
        if (r == 0) {
            r = temporary ? open_temporary(f) : open_file(f);
        }
    }
    return r;
}

/* ---- what there is ---- */

static uint32_t type_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return KG_IP_TYPE_FILE;
    case S_IFDIR:
        return KG_IP_TYPE_DIR;
    case S_IFLNK:
        return KG_IP_TYPE_SYMLINK;
    default:
        return KG_IP_TYPE_OTHER;
    }
}

static kg_ip_entry_t entry_of(const struct stat *st)
{
    return (kg_ip_entry_t){
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .dev = st->st_dev,
        .ino = st->st_ino,
        .type = type_of(st->st_mode),
        .mode = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
    };
}

static int
add_entry(kg_ifiles_t *f, const struct stat *st, int dir, const char *link, const char *name)
{
    kg_ip_entry_t entry = entry_of(st);
    char target[KG_IP_PATH_MAX] = "";

    if (S_ISLNK(st->st_mode)) {
        ssize_t n = readlinkat(dir, link, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
    }
    int r = kg_ip_entry_put(f->tail, sizeof(f->tail), &f->tail_len, &entry, name, target);
    f->reply.count += r == 0;
    return r;
}

static int do_stat(kg_ifiles_t *f)
{
    struct stat st;
    char dir[KG_IP_PATH_MAX];
    char name[KG_IP_PATH_MAX];
    int nofollow = f->request->flags & KG_IP_FS_NOFOLLOW ? O_NOFOLLOW : 0;
    KG_AUTO_CLOSE int fd = init_path_open(f->in, f->path, O_PATH | nofollow, 0);

    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    bool named = init_path_dir(f->path, dir, name);
    return add_entry(f, &st, fd, "", named ? name : "/");
}

typedef struct kg_dirent64 {
    uint64_t ino;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
} kg_dirent64_t;

static mode_t mode_of(uint8_t type)
{
    return (mode_t)type << 12; /* DTTOIF, without its int */
}

/* 0, or -ENOBUFS when it must wait for the next reply. */
static int list_one(kg_ifiles_t *f, int dir, const kg_dirent64_t *row)
{
    struct stat st;
    if (strcmp(row->name, ".") == 0 || strcmp(row->name, "..") == 0) {
        return 0;
    }
    if (f->reply.count == KG_IP_LIST_ROWS) {
        return -ENOBUFS;
    }
    if (fstatat(dir, row->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT) {
            return 0; /* gone meanwhile */
        }
        st = (struct stat){.st_mode = mode_of(row->type), .st_ino = row->ino};
    }
    return add_entry(f, &st, dir, row->name, row->name);
}

static int do_list(kg_ifiles_t *f)
{
    union {
        kg_dirent64_t align;
        char bytes[16384];
    } buf;
    uint64_t cursor = f->request->cursor;
    KG_AUTO_CLOSE int fd =
        init_path_open(f->in, f->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY, 0);

    if (fd < 0) {
        return fd;
    }
    if (cursor != 0 && lseek(fd, (off_t)cursor, SEEK_SET) < 0) {
        return -errno;
    }
    for (;;) {
        long n = syscall(SYS_getdents64, fd, &buf, sizeof(buf));
        if (n <= 0) {
            return n < 0 ? -errno : 0;
        }
        for (long at = 0; at < n;) {
            const kg_dirent64_t *row = (const void *)(buf.bytes + at);
            if (list_one(f, fd, row) < 0) {
                f->reply.next = cursor;
                return 0;
            }
            cursor = (uint64_t)row->next;
            at += row->size;
        }
    }
}

/* ---- changes ---- */

static int do_mkdir(kg_ifiles_t *f)
{
    char name[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int dir = -1;
    bool parents = (f->request->flags & KG_IP_FS_PARENTS) != 0;

    KG_AUTO_CLOSE int there = init_path_open(f->in, f->path, O_PATH | O_DIRECTORY, 0);
    if (there >= 0) {
        return parents ? 0 : -EEXIST;
    }
    int r = parents ? init_path_make_parents(f->in, f->path) : 0;
    if (r == 0) {
        r = init_path_parent(f->in, f->path, &dir, name);
    }
    if (r < 0) {
        return r;
    }
    if (mkdirat(dir, name, f->request->mode) < 0) {
        return -errno;
    }
    f->reply.created = 1;
    return 0;
}

/* 1 when the name is new, 0 when something was replaced. */
static int rename_over(int from_dir, const char *from, int to_dir, const char *to, bool overwrite)
{
    struct stat st;

    if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0) {
        return 1;
    }
    bool unknown = errno == EINVAL; /* to this file system, or a directory into itself */
    if (errno != EEXIST && !unknown) {
        return -errno;
    }
    bool exists = fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !overwrite) {
        return -EEXIST;
    }
    return renameat(from_dir, from, to_dir, to) < 0 ? -errno : !exists;
}

/* To another file system: beside its new name first, so that it is there whole or not at all. */
static int move_over(int from_dir,
                     const char *from,
                     int to_dir,
                     const char *to,
                     bool overwrite,
                     uint64_t deadline_ns)
{
    char temp[TEMP_NAME_MAX];
    struct stat st;
    struct statx stx;

    if (!overwrite && fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return -EEXIST;
    }
    if (statx(from_dir, from, AT_SYMLINK_NOFOLLOW, 0, &stx) < 0) {
        return -errno;
    }
    if (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
        return -EBUSY; /* it would be emptied, and stay */
    }
    if (faccessat(from_dir, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        return -errno;
    }
    int r = temp_name(temp);
    if (r < 0) {
        return r;
    }
    r = init_copy(from_dir, from, to_dir, temp, deadline_ns);
    if (r == 0) {
        r = rename_over(to_dir, temp, to_dir, to, overwrite);
    }
    if (r < 0) {
        (void)kg_fs_remove_tree_until(to_dir, temp, kg_now_ns() + INIT_JOB_CLEAR_NS);
        return r;
    }
    int left = kg_fs_remove_tree_until(from_dir, from, deadline_ns);
    return left < 0 ? left : r;
}

/* Of a move that failed: is it its target that is at fault? What the source alone can cause is
 * looked for; an error that either can have is the target's then. */
static bool target_at_fault(int error, int from_dir, const char *from, int to_dir)
{
    struct stat st;
    if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0 || error == -EBUSY) {
        return false;
    }
    if (error == -EACCES || error == -EPERM) {
        return faccessat(to_dir, ".", W_OK | X_OK, AT_EACCESS) < 0;
    }
    return error != -EIO;
}

static int do_rename(kg_ifiles_t *f)
{
    char from[KG_IP_PATH_MAX];
    char to[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int from_dir = -1;
    KG_AUTO_CLOSE int to_dir = -1;

    int r = init_path_parent(f->in, f->path, &from_dir, from);
    if (r < 0) {
        return r;
    }
    r = init_path_parent(f->in, f->second, &to_dir, to);
    f->reply.wd = r < 0 ? KG_IP_AT_TARGET : 0;
    if (r == 0) {
        bool overwrite = (f->request->flags & KG_IP_FS_OVERWRITE) != 0;
        r = rename_over(from_dir, from, to_dir, to, overwrite);
        if (r == -EXDEV) {
            r = move_over(from_dir, from, to_dir, to, overwrite, f->deadline_ns);
        }
        f->reply.wd = r < 0 && target_at_fault(r, from_dir, from, to_dir) ? KG_IP_AT_TARGET : 0;
    }
    f->reply.created = r == 1;
    return r < 0 ? r : 0;
}

int init_files_remove(const kg_init_t *in, const char *path, uint64_t deadline_ns)
{
    char name[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int dir = -1;

    int r = init_path_parent(in, path, &dir, name);
    if (r < 0) {
        return r;
    }
    if (unlinkat(dir, name, 0) == 0) {
        return 0;
    }
    if (errno != EISDIR) {
        return -errno;
    }
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        return 0;
    }
    return deadline_ns != 0 && errno == ENOTEMPTY ? kg_fs_remove_tree_until(dir, name, deadline_ns)
                                                  : -errno;
}

static int do_put(kg_ifiles_t *f)
{
    char from[KG_IP_PATH_MAX];
    char to[KG_IP_PATH_MAX];
    char target[KG_IP_PATH_MAX];
    KG_AUTO_CLOSE int from_dir = -1;
    KG_AUTO_CLOSE int to_dir = -1;

    if (f->second[0] == '\0') {
        return init_files_remove(f->in, f->path, 0);
    }
    int r = init_path_parent(f->in, f->path, &from_dir, from);
    if (r == 0) {
        r = init_path_final(f->in, f->second, target);
    }
    if (r == 0) {
        r = init_path_parent(f->in, target, &to_dir, to);
    }
    if (r == 0) {
        r = check_replaceable(to_dir, to);
    }
    if (r == 0) {
        r = rename_over(from_dir, from, to_dir, to, true);
    }
    f->reply.created = r == 1;
    return r < 0 ? r : 0;
}

/* ---- watches ---- */

static int do_watch(kg_ifiles_t *f)
{
    char link[32];
    KG_AUTO_CLOSE int made = -1;
    KG_AUTO_CLOSE int fd = init_path_open(f->in, f->path, O_PATH, 0);

    if (fd < 0) {
        return fd;
    }
    if (f->watch_fd < 0) {
        made = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (made < 0) {
            return -errno;
        }
    }
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    int wd = inotify_add_watch(made >= 0 ? made : f->watch_fd, link, WATCH_MASK);
    if (wd < 0) {
        return -errno;
    }
    f->reply.wd = wd;
    f->fd = kg_take_fd(&made);
    return 0;
}

int init_files_do(kg_ifiles_t *f)
{
    (void)umask(0); /* modes are as asked for */
    switch (f->request->head.verb) {
    case KG_IP_OPEN:
        return do_open(f);
    case KG_IP_PUT_IN_PLACE:
        return do_put(f);
    case KG_IP_STAT:
        return do_stat(f);
    case KG_IP_LIST:
        return do_list(f);
    case KG_IP_MKDIR:
        return do_mkdir(f);
    case KG_IP_RENAME:
        return do_rename(f);
    case KG_IP_REMOVE:
        return init_files_remove(f->in, f->path,
                                 (f->request->flags & KG_IP_FS_RECURSIVE) ? f->deadline_ns : 0);
    case KG_IP_WATCH:
        return do_watch(f);
    default:
        return -ENOSYS;
    }
}
