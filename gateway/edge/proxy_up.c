/* The connection into the sandbox: brought by the handler, tried again while a server may be
 * starting, kept for the client's next request to the same place. One client's connection has at
 * most one, and never shares it: what one client sends can't be taken for another's. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/edge/proxy_priv.h"

#define AGAIN_NS (100 * KG_NS_PER_MS)

static void connect_now(proxy_conn_t *conn);
static void nobody_listens(proxy_conn_t *conn);

static void up_closed(uv_handle_t *handle)
{
    proxy_up_t *up = handle->data;
    free(up);
}

void proxy_up_drop(proxy_conn_t *conn)
{
    proxy_up_t *up = conn->up;
    if (up) {
        conn->up = NULL;
        up->conn = NULL;
        uv_close((uv_handle_t *)&up->tcp, up_closed);
    }
}

void proxy_up_forget(proxy_conn_t *conn)
{
    const kg_proxy_handler_t *h = &conn->proxy->handler;
    if (conn->asked) {
        conn->asked = false;
        h->forget(h->user, conn);
    }
    kg_timer_close(&conn->again);
}

/* A body of a length that was told is on its way to the client. */
static bool answer_in_bulk(const proxy_conn_t *conn)
{
    return conn->state == PROXY_RELAY && conn->answer_begun && !conn->answer_done &&
           !(conn->answer.flags & F_CHUNKED) && !conn->no_body;
}

static void alloc_read(uv_handle_t *handle, size_t hint, uv_buf_t *ret)
{
    proxy_up_t *up = handle->data;
    (void)hint;
    if (!up->conn) {
        *ret = uv_buf_init(NULL, 0);
        return;
    }
    proxy_conn_t *conn = up->conn;
    proxy_bulk_t bulk = PROXY_BULK_READ;
    if (answer_in_bulk(conn)) {
        bulk = proxy_bulk_move(conn, (uv_stream_t *)handle, (uv_stream_t *)&conn->client,
                               &conn->answer.content_length);
    }
    conn->broken = bulk == PROXY_BULK_LOST;
    if (bulk != PROXY_BULK_READ) {
        *ret = uv_buf_init(NULL, 0); /* on_up hears UV_ENOBUFS */
        return;
    }
    *ret = uv_buf_init(conn->proxy->read, conn->answer_begun ? PROXY_READ : PROXY_READ_HEAD);
}

/* A kept connection may have been closed by the server at the moment that it was used again. */
static bool ask_anew(proxy_conn_t *conn)
{
    bool anew = conn->up->used && conn->state == PROXY_RELAY && !conn->answer_begun &&
                conn->answer_head.count == 0 && !conn->body_sent;
    if (anew) {
        proxy_up_drop(conn);
        connect_now(conn);
    }
    return anew;
}

static void shut(uv_shutdown_t *req, int status)
{
    (void)status;
    free(req);
}

/* A busy system may refuse a connection later than at once, when the head is on its way already. */
static bool refused_late(proxy_conn_t *conn, ssize_t status)
{
    bool refused = status == UV_ECONNREFUSED && !conn->up->used && !conn->answer_begun;
    if (refused && !conn->body_sent) {
        proxy_up_drop(conn);
        conn->state = PROXY_CONNECT;
        nobody_listens(conn);
    } else if (refused) {
        proxy_conn_refuse(conn, 502, NULL);
    }
    return refused;
}

static void up_ended(proxy_conn_t *conn, ssize_t status)
{
    bool error = status != UV_EOF;
    conn->up->ended = true;
    proxy_up_read(conn->up, false);
    switch (conn->state) {
    case PROXY_RELAY:
        if (!refused_late(conn, status) && !ask_anew(conn)) {
            proxy_answer_eof(conn);
        }
        return;
    case PROXY_TUNNEL:
        if (conn->eof || error) {
            conn->state = PROXY_LAST; /* when what is queued is out */
            (void)proxy_flush_client(conn);
        } else {
            uv_shutdown_t *req = malloc(sizeof(*req));
            if (!req || uv_shutdown(req, (uv_stream_t *)&conn->client, shut) < 0) {
                free(req);
                proxy_conn_end(conn);
            }
        }
        return;
    case PROXY_HEAD:
    case PROXY_CONNECT:
    case PROXY_LAST:
    case PROXY_GONE:
        proxy_up_drop(conn);
        return;
    }
}

static void on_up(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    proxy_up_t *up = stream->data;
    proxy_conn_t *conn = up->conn;
    if (!conn) {
        return;
    }
    if (conn->broken) {
        proxy_conn_end(conn);
        return;
    }
    if (n == UV_ENOBUFS && answer_in_bulk(conn) && conn->answer.content_length == 0) {
        proxy_answer_moved(conn);
        return;
    }
    if (n == 0 || n == UV_ENOBUFS) { /* nothing, or it was moved instead, or has to wait */
        if (uv_stream_get_write_queue_size((uv_stream_t *)&conn->client) > 0) {
            proxy_up_read(up, false);
        }
        return;
    }
    if (n < 0) {
        up_ended(conn, n);
        return;
    }
    proxy_conn_moved(conn);
    proxy_answer_feed(conn, buf->base, (size_t)n);
}

void proxy_up_read(proxy_up_t *up, bool on)
{
    if (on == up->reading || (on && up->ended)) {
        return;
    }
    up->reading = on;
    if (on) {
        (void)uv_read_start((uv_stream_t *)&up->tcp, alloc_read, on_up);
    } else {
        (void)uv_read_stop((uv_stream_t *)&up->tcp);
    }
}

/* Sends the head, and what has come of the body. */
static void send_request(proxy_conn_t *conn)
{
    kg_buf_t *out = &conn->proxy->to_up;
    proxy_forward_t how = {
        .peer = kg_slice_cstr(conn->peer),
        .https = conn->proxy->opts.https,
        .upgrade = conn->upgrade,
        .chunked = conn->request_chunked,
        .http10 = conn->request.http_minor == 0,
    };
    kg_buf_clear(out);
    if (proxy_write_request(&conn->request_head, &conn->request, &conn->route, &how, out) < 0) {
        proxy_conn_end(conn);
        return;
    }
    conn->state = PROXY_RELAY;
    proxy_answer_begin(conn);
    proxy_up_read(conn->up, true);
    if (conn->request_done) { /* asked anew */
        (void)proxy_flush_up(conn);
        return;
    }
    kg_buf_t ahead = conn->ahead;
    memset(&conn->ahead, 0, sizeof(conn->ahead));
    proxy_conn_feed(conn, ahead.data ? ahead.data : "", ahead.len); /* head and body in one */
    kg_buf_fini(&ahead);
    if (conn->state == PROXY_RELAY) {
        proxy_conn_read(conn, true);
    }
}

static bool refused_already(int fd)
{
    int code = 0;
    socklen_t len = sizeof(code);
    struct pollfd now = {.fd = fd, .events = POLLOUT};
    return poll(&now, 1, 0) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0 &&
           code != 0;
}

static void again(void *user)
{
    proxy_conn_t *conn = user;
    connect_now(conn);
}

static void nobody_listens(proxy_conn_t *conn)
{
    if (kg_now_ns() < conn->retry_until_ns &&
        (conn->again || kg_timer_create(conn->proxy->loop, again, conn, &conn->again) == 0)) {
        kg_timer_start(conn->again, AGAIN_NS, 0);
        return;
    }
    proxy_conn_refuse(conn, 502, NULL);
}

static void connected(void *user, int fd, const kg_err_t *err)
{
    proxy_conn_t *conn = user;
    conn->asked = false;
    if (fd < 0 || refused_already(fd)) {
        if (fd >= 0) {
            (void)close(fd);
        }
        if (fd >= 0 || err->code == KG_ERR_CONFLICT) {
            nobody_listens(conn);
        } else {
            proxy_conn_refuse(conn, err->code == KG_ERR_SANDBOX_NOT_FOUND ? 404 : 503,
                              "The sandbox cannot be reached.");
        }
        return;
    }
    proxy_up_t *up = calloc(1, sizeof(*up));
    if (!up || uv_tcp_init(kg_loop_uv(conn->proxy->loop), &up->tcp) < 0) {
        free(up);
        (void)close(fd);
        proxy_conn_end(conn);
        return;
    }
    up->tcp.data = up;
    up->conn = conn;
    up->port = conn->route.port;
    memcpy(up->sandbox, conn->route.sandbox, sizeof(up->sandbox));
    conn->up = up;
    if (uv_tcp_open(&up->tcp, fd) < 0) {
        (void)close(fd);
        proxy_conn_end(conn);
        return;
    }
    (void)uv_tcp_nodelay(&up->tcp, 1);
    kg_timer_close(&conn->again);
    send_request(conn);
}

static void connect_now(proxy_conn_t *conn)
{
    const kg_proxy_handler_t *h = &conn->proxy->handler;
    kg_err_t err = {0};
    conn->state = PROXY_CONNECT;
    conn->asked = true;
    if (h->connect(h->user, conn->route.sandbox, conn->route.port, connected, conn, &err) < 0) {
        conn->asked = false;
        proxy_conn_refuse(conn, err.code == KG_ERR_SANDBOX_NOT_FOUND ? 404 : 503,
                          "The sandbox cannot be reached.");
    }
}

void proxy_up_get(proxy_conn_t *conn)
{
    const kg_proxy_handler_t *h = &conn->proxy->handler;
    const kg_proxy_opts_t *o = &conn->proxy->opts;
    proxy_up_t *up = conn->up;
    if (up && !up->ended && up->port == conn->route.port &&
        strcmp(up->sandbox, conn->route.sandbox) == 0 &&
        h->ready(h->user, conn->route.sandbox, conn->route.port)) {
        send_request(conn);
        return;
    }
    proxy_up_drop(conn);
    uint64_t now_ns = kg_now_ns();
    conn->retry_until_ns = now_ns + o->start_timeout_ms * KG_NS_PER_MS;
    conn->deadline_ns = now_ns + o->connect_timeout_ms * KG_NS_PER_MS;
    connect_now(conn);
}
