/* What a rename can't do: a file or a tree goes to another file system by a copy. Links are copied,
 * not followed; owners only by root; sockets and devices stay where they are (-EXDEV). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/init.h"

#define DEPTH_MAX 128
#define CHUNK ((size_t)1 << 20)

static int copy_bytes(int from, int to, uint64_t deadline_ns)
{
    char buf[16384];
    ssize_t n;

    while ((n = copy_file_range(from, NULL, to, NULL, CHUNK, 0)) > 0) {
        if (kg_now_ns() > deadline_ns) {
            return -ETIME;
        }
    }
    if (n == 0) {
        return 0;
    }
    if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS) {
        return -errno;
    }
    while ((n = read(from, buf, sizeof(buf))) > 0) { /* both stand where the other way stopped */
        for (ssize_t at = 0; at < n;) {
            ssize_t put = write(to, buf + at, (size_t)(n - at));
            if (put < 0) {
                return -errno;
            }
            at += put;
        }
        if (kg_now_ns() > deadline_ns) {
            return -ETIME;
        }
    }
    return n < 0 ? -errno : 0;
}

/* Times, mode, and as root the owner. */
static int copy_marks(int fd, const struct stat *st)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (geteuid() == 0 && fchown(fd, st->st_uid, st->st_gid) < 0) {
        return -errno;
    }
    if (fchmod(fd, st->st_mode & 07777) < 0 || futimens(fd, times) < 0) {
        return -errno;
    }
    return 0;
}

static int
copy_file(int from_dir, const char *from, int to_dir, const char *to, uint64_t deadline_ns)
{
    struct stat st;
    KG_AUTO_CLOSE int in =
        openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EXDEV;
    }
    KG_AUTO_CLOSE int out =
        openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0) {
        return -errno;
    }
    int r = copy_bytes(in, out, deadline_ns);
    return r == 0 ? copy_marks(out, &st) : r;
}

static int copy_link(int from_dir, const char *from, int to_dir, const char *to)
{
    char target[KG_IP_PATH_MAX];
    ssize_t n = readlinkat(from_dir, from, target, sizeof(target) - 1);
    if (n < 0) {
        return -errno;
    }
    target[n] = '\0';
    return symlinkat(target, to_dir, to) < 0 ? -errno : 0;
}

static int copy_any(int from_dir,
                    const char *from,
                    int to_dir,
                    const char *to,
                    unsigned depth,
                    uint64_t deadline_ns);

static int copy_entries(int from, int to, unsigned depth, uint64_t deadline_ns)
{
    int r = 0;
    int again = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again >= 0 ? fdopendir(again) : NULL;

    if (!dir) {
        r = -errno;
        kg_closep(&again);
        return r;
    }
    while (r == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
        if (!entry) {
            r = -errno;
            break;
        }
        const char *name = entry->d_name;
        if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))) {
            continue;
        }
        r = kg_now_ns() > deadline_ns ? -ETIME : copy_any(from, name, to, name, depth, deadline_ns);
    }
    closedir(dir);
    return r;
}

static int copy_dir(int from_dir,
                    const char *from,
                    int to_dir,
                    const char *to,
                    unsigned depth,
                    uint64_t deadline_ns)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;

    if (depth == DEPTH_MAX) {
        return -ELOOP;
    }
    KG_AUTO_CLOSE int in = openat(from_dir, from, flags);
    if (in < 0 || fstat(in, &st) < 0 || mkdirat(to_dir, to, 0700) < 0) {
        return -errno;
    }
    KG_AUTO_CLOSE int out = openat(to_dir, to, flags);
    if (out < 0) {
        return -errno;
    }
    int r = copy_entries(in, out, depth + 1, deadline_ns);
    return r == 0 ? copy_marks(out, &st) : r;
}

static int copy_any(int from_dir,
                    const char *from,
                    int to_dir,
                    const char *to,
                    unsigned depth,
                    uint64_t deadline_ns)
{
    struct stat st;

    if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return copy_file(from_dir, from, to_dir, to, deadline_ns);
    case S_IFDIR:
        return copy_dir(from_dir, from, to_dir, to, depth, deadline_ns);
    case S_IFLNK:
        return copy_link(from_dir, from, to_dir, to);
    case S_IFIFO:
        return mkfifoat(to_dir, to, st.st_mode & 07777) < 0 ? -errno : 0;
    default:
        return -EXDEV;
    }
}

int init_copy(int from_dir, const char *from, int to_dir, const char *to, uint64_t deadline_ns)
{
    return copy_any(from_dir, from, to_dir, to, 0, deadline_ns);
}
