/* SEQPACKET messages with SCM_RIGHTS. Never blocks, never raises SIGPIPE, never leaks a descriptor
 * that a peer sent along unasked. */
#include "gateway/sandbox/seqsock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEQ_SNDBUF (512 * 1024)

typedef union kg_seq_control {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(int) * KG_SEQ_FDS_MAX)];
} kg_seq_control_t;

int kg_seq_send(int sock, const void *data, size_t len, const int *fds, size_t fd_count)
{
    struct iovec iov = {.iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    kg_seq_control_t control;

    if (fd_count > KG_SEQ_FDS_MAX) {
        return -EINVAL;
    }
    memcpy(&iov.iov_base, &data, sizeof(data)); /* sendmsg only reads; iovec has no const */
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * fd_count);
    }
    for (;;) {
        ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            return 0;
        }
        if (errno != EINTR) {
            return errno == ECONNRESET ? -EPIPE : -errno;
        }
    }
}

static size_t collect_fds(struct msghdr *msg, int fds[KG_SEQ_FDS_MAX])
{
    size_t count = 0;
    struct cmsghdr *cmsg;

    for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t bytes = cmsg->cmsg_len - CMSG_LEN(0);
        size_t n = bytes / sizeof(int);
        if (n > KG_SEQ_FDS_MAX - count) {
            n = KG_SEQ_FDS_MAX - count;
        }
        memcpy(fds + count, CMSG_DATA(cmsg), n * sizeof(int));
        count += n;
    }
    return count;
}

int kg_seq_recv(
    int sock, void *data, size_t cap, size_t *ret_len, int fds[KG_SEQ_FDS_MAX], size_t *ret_fds)
{
    struct iovec iov = {.iov_base = data, .iov_len = cap};
    kg_seq_control_t control;
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    size_t count = 0;

    if (fds) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
    }
    do {
        n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 &&
        errno == ECONNRESET) { /* the peer died with frames of ours unread: it has ended, no more */
        n = 0;
    }
    if (n < 0) {
        return -errno;
    }
    if (fds) {
        count = collect_fds(&msg, fds);
    }
    if ((msg.msg_flags & MSG_TRUNC) || (fds && (msg.msg_flags & MSG_CTRUNC))) {
        for (size_t i = 0; i < count; i++) {
            close(fds[i]);
        }
        return (msg.msg_flags & MSG_TRUNC) ? -EMSGSIZE : -EBADMSG;
    }
    if (ret_fds) {
        *ret_fds = count;
    }
    *ret_len = (size_t)n;
    return 0;
}

int kg_seq_pair(int ret_fds[2])
{
    int fds[2];
    int size = SEQ_SNDBUF;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        return -errno;
    }
    for (int i = 0; i < 2; i++) { /* capped by wmem_max; the default is enough for one frame */
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }
    ret_fds[0] = fds[0];
    ret_fds[1] = fds[1];
    return 0;
}
