/* Sockets and small files in the run directory. The sandbox owns it and may put anything there at
 * any time, so nothing is followed and nothing believed: descriptors first, then checks on them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

/* 0 when somebody listens, by a connection that is closed at once. */
static int check_listens(const char *path, int type)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    KG_AUTO_CLOSE int sock = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (sock < 0) {
        return -errno;
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    if (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EAGAIN) {
        return 0; /* EAGAIN: it listens, its queue is full */
    }
    return -errno;
}

int init_socket_open(const kg_init_t *in, const char *name, int *ret_fd)
{
    char path[32];
    struct stat st;
    KG_AUTO_CLOSE int fd = openat(in->run_dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISSOCK(st.st_mode) || st.st_uid != in->uid) {
        /* A guest kernel gives a new one to its owner a moment after it is bound. */
        bool young = (in->flags & KG_INIT_FLAG_GUEST) && S_ISSOCK(st.st_mode) && st.st_uid == 0;
        return young ? -ENOENT : -EPERM;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if ((st.st_mode & 0666) != 0666 &&
        chmod(path, 0666) < 0) { /* by the descriptor: it can't be another file */
        return -errno;
    }
    int r = check_listens(path, SOCK_STREAM);
    if (r == -EPROTOTYPE) { /* a zygote's */
        r = check_listens(path, SOCK_SEQPACKET);
    }
    if (r < 0) {
        return r == -EPROTOTYPE ? -EPERM : r;
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

int init_file_write(kg_init_t *in, const char *name, const char *bytes, size_t len)
{
    char tmp[32];
    (void)snprintf(tmp, sizeof(tmp), ".tmp-%d-%u", (int)getpid(), in->tmp_count++);
    KG_AUTO_CLOSE int fd =
        openat(in->run_dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0) {
        return -errno;
    }
    int r = write_all(fd, bytes, len);
    if (r == 0 && in->is_root && fchown(fd, in->uid, in->gid) < 0) {
        r = -errno;
    }
    if (r == 0 && renameat(in->run_dir, tmp, in->run_dir, name) < 0) {
        r = -errno;
    }
    if (r < 0) {
        (void)unlinkat(in->run_dir, tmp, 0);
    }
    return r;
}

int init_file_unlink(const kg_init_t *in, const char *name)
{
    return unlinkat(in->run_dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}
