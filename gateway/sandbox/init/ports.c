/* Connections to what listens on the sandbox's loopback. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

#define GUEST_MS 100
#define UNPACED "reno" /* no timer for each segment, as of BBR, where there is no network */

/* A connected socket, or one on its way, or -errno. A refusal is known at once: the answer of the
 * own loopback comes before connect returns; in gVisor it takes a moment. */
static int try_connect(int family, uint16_t port, int wait_ms)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(port),
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
    };
    const struct sockaddr *addr =
        family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    int error = 0;
    socklen_t error_len = sizeof(error);
    KG_AUTO_CLOSE int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, UNPACED, sizeof(UNPACED) - 1);
    if (connect(fd, addr, len) < 0 && errno != EINPROGRESS) {
        return -errno;
    }
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, wait_ms) == 1 &&
        (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) < 0 || error != 0)) {
        return error != 0 ? -error : -errno;
    }
    return kg_take_fd(&fd);
}

void init_connect(kg_init_t *in, const kg_ip_connect_t *request)
{
    kg_ip_reply_t reply;
    uint16_t port = (uint16_t)request->port;
    const int wait_ms = in->flags & KG_INIT_FLAG_INNER ? GUEST_MS : 0;
    int fd = try_connect(AF_INET, port, wait_ms);

    if (fd < 0) {
        int v6 = try_connect(AF_INET6, port, wait_ms);
        fd = v6 >= 0 ? v6 : fd;
    }
    (void)kg_ip_reply_init(&reply, KG_IP_CONNECT, request->head.seq);
    if (fd >= 0 && (in->flags & KG_INIT_FLAG_INNER)) { /* it can't leave: its bytes do */
        int r = in->given[0] < 0 ? -EBADF : init_relay_start(fd, in->given[0]);
        kg_closep(&fd);
        reply.files.error = r;
        init_send(in, &reply, NULL, 0);
        return;
    }
    reply.files.error = fd < 0 ? fd : 0;
    init_send(in, &reply, &fd, fd >= 0);
}
