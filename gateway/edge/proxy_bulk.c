/* Large bodies whose length was told go from socket to socket by splice(2), through one pipe and
 * without being read: a proxy that copies them twice costs as much as the server. It happens where
 * libuv is about to read, before it does. The body's last byte is left to the parser, which so
 * sees the end of each message by itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "gateway/edge/proxy_priv.h"

#define BULK_MIN PROXY_READ /* less than one read is not worth three system calls */

void proxy_bulk_open(kg_proxy_t *proxy)
{
    if (pipe2(proxy->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        proxy->pipe[0] = -1;
        proxy->pipe[1] = -1;
        return;
    }
    (void)fcntl(proxy->pipe[1], F_SETPIPE_SZ, (int)PROXY_HIGH); /* or what it has: 64 KiB */
}

void proxy_bulk_close(kg_proxy_t *proxy)
{
    kg_closep(&proxy->pipe[0]);
    kg_closep(&proxy->pipe[1]);
}

/* What the receiver had no room for waits as any other output: the pipe is everybody's. */
static bool take_back(proxy_conn_t *conn, uv_stream_t *to, size_t len)
{
    kg_proxy_t *proxy = conn->proxy;
    kg_buf_t rest = {0};
    bool ok = kg_buf_reserve(&rest, len) == 0;
    while (ok && rest.len < len) {
        ssize_t n = read(proxy->pipe[0], rest.data + rest.len, len - rest.len);
        ok = n > 0;
        rest.len += n > 0 ? (size_t)n : 0;
    }
    ok = ok && proxy_put(to, &rest, to != (uv_stream_t *)&conn->client) == 0;
    kg_buf_fini(&rest);
    if (!ok) { /* it may hold bytes of this connection: nobody else's may follow them */
        proxy_bulk_close(proxy);
        proxy_bulk_open(proxy);
    }
    return ok;
}

bool proxy_bulk_move(proxy_conn_t *conn, uv_stream_t *from, uv_stream_t *to, uint64_t *left)
{
    kg_proxy_t *proxy = conn->proxy;
    uv_os_fd_t in;
    uv_os_fd_t out;
    if (proxy->pipe[0] < 0 || uv_fileno((uv_handle_t *)from, &in) < 0 ||
        uv_fileno((uv_handle_t *)to, &out) < 0) {
        return true;
    }
    for (int i = 0; i < 16 && *left != UINT64_MAX && *left > BULK_MIN &&
                    uv_stream_get_write_queue_size(to) == 0;
         i++) {
        size_t want = *left - 1 < PROXY_HIGH ? (size_t)(*left - 1) : PROXY_HIGH;
        ssize_t got = splice(in, NULL, proxy->pipe[1], NULL, want, SPLICE_F_NONBLOCK);
        if (got <= 0) {
            return true; /* nothing there, or the end: libuv's read tells */
        }
        *left -= (uint64_t)got;
        proxy_conn_moved(conn);
        size_t sent = 0;
        while (sent < (size_t)got) {
            ssize_t n =
                splice(proxy->pipe[0], NULL, out, NULL, (size_t)got - sent, SPLICE_F_NONBLOCK);
            if (n <= 0) {
                break;
            }
            sent += (size_t)n;
        }
        if (sent < (size_t)got && !take_back(conn, to, (size_t)got - sent)) {
            return false;
        }
    }
    return true;
}
