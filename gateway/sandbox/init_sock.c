/* sandal-init's socket. SO_PEERCRED of a connecting side is what called listen, and that is
 * sandal-init itself, never the launcher; so until it has, connecting fails and is tried again. */
#include "gateway/sandbox/init_sock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"

#define NAP_NS 300000

static int make_addr(const char *path, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
    bool abstract = !path || path[0] != '/';
    const char *name = path ? path : KG_INIT_ABSTRACT;
    size_t at = abstract ? 1 : 0;
    size_t len = strlen(name);

    *ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len == 0 || at + len >= sizeof(ret_addr->sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(ret_addr->sun_path + at, name, len);
    *ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at + len + (abstract ? 0 : 1));
    return 0;
}

int kg_init_sock_bind(const char *path)
{
    struct sockaddr_un addr;
    socklen_t len;
    int r = make_addr(path, &addr, &len);
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    if (path && path[0] == '/' && unlink(path) < 0 && errno != ENOENT) {
        return -errno;
    }
    if (fchmod(fd, 0600) < 0) { /* its mode when bound, less the umask: never open for a moment */
        return -errno;
    }
    return bind(fd, (struct sockaddr *)&addr, len) < 0 ? -errno : kg_take_fd(&fd);
}

static int connect_once(const struct sockaddr_un *addr, socklen_t len, pid_t init_pid)
{
    const struct timeval limit = {.tv_sec = 1};
    struct ucred peer = {0};
    socklen_t peer_len = sizeof(peer);
    KG_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0) {
        return -errno;
    }
    if (connect(fd, (const struct sockaddr *)addr, len) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) < 0) {
        return -errno;
    }
    return peer.pid == init_pid ? kg_take_fd(&fd) : -EPERM;
}

int kg_init_sock_connect(const char *path, pid_t init_pid, unsigned wait_ms)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t until_ns = kg_now_ns() + (uint64_t)wait_ms * KG_NS_PER_MS;
    struct sockaddr_un addr;
    socklen_t len;
    int r = make_addr(path, &addr, &len);

    while (r == 0) {
        int fd = connect_once(&addr, len, init_pid);
        if (fd >= 0 || (fd != -ECONNREFUSED && fd != -ENOENT && fd != -EAGAIN && fd != -EPERM)) {
            return fd;
        }
        if (kill(init_pid, 0) < 0 && errno == ESRCH) {
            return -ESRCH;
        }
        if (kg_now_ns() >= until_ns) {
            return fd == -EPERM ? fd : -ETIMEDOUT;
        }
        nanosleep(&nap, NULL);
    }
    return r;
}
