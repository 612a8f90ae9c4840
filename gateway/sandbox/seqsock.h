/* One message, with descriptors, over a SOCK_SEQPACKET socket. Shared by keeper, sandal-init and
 * the gateway's client. */
#ifndef KG_SANDBOX_SEQSOCK_H
#define KG_SANDBOX_SEQSOCK_H

#include <stddef.h>

#define KG_SEQ_FDS_MAX 4

/* Non-blocking, whole or not at all. 0, -EAGAIN, -EPIPE …; the descriptors stay the caller's. */
int kg_seq_send(int sock, const void *data, size_t len, const int *fds, size_t fd_count);
/* Non-blocking. Length in ret_len; 0 is the end of the stream. fds NULL: descriptors that came
 * along are dropped by the kernel. -EAGAIN, -EMSGSIZE (longer than cap; the message is gone),
 * -EBADMSG (too many descriptors). Descriptors are close-on-exec, and the caller's on success only.
 */
int kg_seq_recv(
    int sock, void *data, size_t cap, size_t *ret_len, int fds[KG_SEQ_FDS_MAX], size_t *ret_fds);
/* A connected pair: close-on-exec, blocking unless the calls above are used, with room for the
 * biggest frames. */
int kg_seq_pair(int ret_fds[2]);

#endif
