/* Large bodies whose length was told go from socket to socket by splice(2), through one pipe and
 * without being read: a proxy that copies them twice costs as much as the server. It happens where
 * libuv is about to read, instead of it. The parser sees neither those bytes nor the body's end,
 * which is where its count of them has come to 0. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "gateway/edge/proxy_priv.h"

#define BULK_MIN ((size_t)16 * 1024) /* less is quicker copied */
#define SPLICES_A_TURN 16

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
    bool up = to != (uv_stream_t *)&conn->client;
    kg_buf_t rest = {0};
    bool ok = kg_buf_reserve(&rest, len) == 0;
    while (ok && rest.len < len) {
        ssize_t n = read(proxy->pipe[0], rest.data + rest.len, len - rest.len);
        ok = n > 0;
        rest.len += n > 0 ? (size_t)n : 0;
    }
    if (!ok) { /* it may hold bytes of this connection: nobody else's may follow them */
        proxy_bulk_close(proxy);
        proxy_bulk_open(proxy);
    } else if (proxy_put(to, &rest, up) < 0) {
        ok = up; /* it may have answered and left without reading all: what it said comes yet */
    }
    kg_buf_fini(&rest);
    return ok;
}

/* As far as the receiver takes it. */
static size_t send_on(kg_proxy_t *proxy, int out, size_t len)
{
    size_t sent = 0;
    while (sent < len) {
        ssize_t n = splice(proxy->pipe[0], NULL, out, NULL, len - sent, SPLICE_F_NONBLOCK);
        if (n <= 0) {
            break;
        }
        sent += (size_t)n;
    }
    return sent;
}

proxy_bulk_t proxy_bulk_move(proxy_conn_t *conn, uv_stream_t *from, uv_stream_t *to, uint64_t *left)
{
    kg_proxy_t *proxy = conn->proxy;
    uv_os_fd_t in;
    uv_os_fd_t out;
    if (proxy->pipe[0] < 0 || *left == UINT64_MAX || uv_fileno((uv_handle_t *)from, &in) < 0 ||
        uv_fileno((uv_handle_t *)to, &out) < 0) {
        return PROXY_BULK_READ;
    }
    for (int i = 0; i < SPLICES_A_TURN && uv_stream_get_write_queue_size(to) == 0; i++) {
        if (*left <= BULK_MIN) {
            return *left > 0 ? PROXY_BULK_READ : PROXY_BULK_MOVED;
        }
        size_t want = *left < PROXY_HIGH ? (size_t)*left : PROXY_HIGH;
        ssize_t got = splice(in, NULL, proxy->pipe[1], NULL, want, SPLICE_F_NONBLOCK);
        if (got <= 0) { /* the end, or an error: libuv's read tells */
            return got < 0 && errno == EAGAIN ? PROXY_BULK_MOVED : PROXY_BULK_READ;
        }
        *left -= (uint64_t)got;
        proxy_conn_moved(conn);
        size_t sent = send_on(proxy, out, (size_t)got);
        if (sent < (size_t)got && !take_back(conn, to, (size_t)got - sent)) {
            return PROXY_BULK_LOST;
        }
    }
    return PROXY_BULK_MOVED;
}
