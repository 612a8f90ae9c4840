/* One client's connection: its exchanges one after the other, its output, its deadlines. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/edge/proxy_priv.h"

#define LINGER_NS (2 * KG_NS_PER_S)
#define MOVING_MS 1500 /* something moved since the timer last looked */

/* ---- life ---- */

void proxy_conn_handle_closed(proxy_conn_t *conn)
{
    if (--conn->handles > 0) {
        return;
    }
    kg_proxy_t *proxy = conn->proxy;
    if (conn->prev) {
        conn->prev->next = conn->next;
    } else {
        proxy->conns = conn->next;
    }
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    proxy->conn_count--;
    proxy_head_fini(&conn->request_head);
    proxy_head_fini(&conn->answer_head);
    proxy_route_fini(&conn->route);
    kg_buf_fini(&conn->ahead);
    free(conn);
}

static void client_closed(uv_handle_t *handle)
{
    proxy_conn_handle_closed(handle->data);
}

/* What was written for a connection and is not to be sent: the next one must not find it. */
static void forget_output(kg_proxy_t *proxy)
{
    kg_buf_clear(&proxy->to_client);
    kg_buf_clear(&proxy->to_up);
    proxy->client_tail = (kg_slice_t){NULL, 0};
    proxy->up_tail = (kg_slice_t){NULL, 0};
}

void proxy_conn_end(proxy_conn_t *conn)
{
    if (conn->state == PROXY_GONE) {
        return;
    }
    conn->state = PROXY_GONE;
    forget_output(conn->proxy);
    proxy_up_forget(conn);
    proxy_up_drop(conn);
    uv_close((uv_handle_t *)&conn->client, client_closed);
}

/* A body of a length that was told is on its way to the sandbox. */
static bool request_in_bulk(const proxy_conn_t *conn)
{
    return conn->state == PROXY_RELAY && conn->body_sent && !conn->request_done &&
           !conn->request_chunked;
}

static void alloc_read(uv_handle_t *handle, size_t hint, uv_buf_t *ret)
{
    proxy_conn_t *conn = handle->data;
    (void)hint;
    proxy_bulk_t bulk = PROXY_BULK_READ;
    if (request_in_bulk(conn)) {
        uint64_t before = conn->request.content_length;
        bulk = proxy_bulk_move(conn, (uv_stream_t *)handle, (uv_stream_t *)&conn->up->tcp,
                               &conn->request.content_length);
        conn->client_moved = conn->client_moved || conn->request.content_length < before;
    }
    conn->broken = bulk == PROXY_BULK_LOST;
    if (bulk != PROXY_BULK_READ) {
        *ret = uv_buf_init(NULL, 0); /* on_client hears UV_ENOBUFS */
        return;
    }
    *ret = uv_buf_init(conn->proxy->read, conn->head_done ? PROXY_READ : PROXY_READ_HEAD);
}

static void shut(uv_shutdown_t *req, int status)
{
    (void)status;
    free(req);
}

/* The client says no more: in a tunnel that is passed on, elsewhere it has gone. */
static void client_ended(proxy_conn_t *conn)
{
    if (conn->state != PROXY_TUNNEL || !conn->up || conn->up->ended) {
        proxy_conn_end(conn);
        return;
    }
    conn->eof = true;
    proxy_conn_read(conn, false);
    uv_shutdown_t *req = malloc(sizeof(*req));
    if (!req || uv_shutdown(req, (uv_stream_t *)&conn->up->tcp, shut) < 0) {
        free(req);
        proxy_conn_end(conn);
    }
}

static void on_client(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    proxy_conn_t *conn = stream->data;
    if (conn->broken) {
        proxy_conn_end(conn);
        return;
    }
    if (n == UV_ENOBUFS && request_in_bulk(conn) && conn->request.content_length == 0) {
        conn->request_done = true;
    }
    if (n == 0 || n == UV_ENOBUFS) { /* nothing, or it was moved instead, or has to wait */
        if (conn->up && uv_stream_get_write_queue_size((uv_stream_t *)&conn->up->tcp) > 0) {
            proxy_conn_read(conn, false);
        }
        return;
    }
    if (n < 0) {
        client_ended(conn);
        return;
    }
    conn->client_moved = true;
    proxy_conn_moved(conn);
    proxy_conn_feed(conn, buf->base, (size_t)n);
}

void proxy_conn_read(proxy_conn_t *conn, bool on)
{
    if (on == conn->reading || conn->state == PROXY_GONE || (on && conn->eof)) {
        return;
    }
    conn->reading = on;
    if (on) {
        (void)uv_read_start((uv_stream_t *)&conn->client, alloc_read, on_client);
    } else {
        (void)uv_read_stop((uv_stream_t *)&conn->client);
    }
}

void proxy_conn_moved(proxy_conn_t *conn)
{
    conn->moved_ns = uv_now(conn->client.loop) * KG_NS_PER_MS;
}

static void note_peer(proxy_conn_t *conn, int fd)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(peer);
    (void)getpeername(fd, (struct sockaddr *)&peer, &len);
    if (peer.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&peer)->sin_addr, conn->peer,
                        sizeof(conn->peer));
    } else if (peer.ss_family == AF_INET6) {
        const struct in6_addr *a = &((struct sockaddr_in6 *)(void *)&peer)->sin6_addr;
        bool v4 = IN6_IS_ADDR_V4MAPPED(a);
        (void)inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? (const void *)&a->s6_addr[12] : a, conn->peer,
                        sizeof(conn->peer));
    } else {
        memcpy(conn->peer, "unknown", sizeof("unknown"));
    }
}

int proxy_conn_start(kg_proxy_t *proxy, int fd)
{
    proxy_conn_t *conn = calloc(1, sizeof(*conn));
    if (!conn || uv_tcp_init(kg_loop_uv(proxy->loop), &conn->client) < 0) {
        free(conn);
        (void)close(fd);
        return -ENOMEM;
    }
    conn->proxy = proxy;
    conn->client.data = conn;
    conn->handles = 1;
    conn->next = proxy->conns;
    if (conn->next) {
        conn->next->prev = conn;
    }
    proxy->conns = conn;
    if (proxy->conn_count++ == 0) {
        kg_timer_start(proxy->timer, KG_NS_PER_S, KG_NS_PER_S);
    }
    note_peer(conn, fd);
    proxy_conn_moved(conn);
    int r = uv_tcp_open(&conn->client, fd);
    if (r < 0) {
        (void)close(fd);
        proxy_conn_end(conn);
        return r;
    }
    (void)uv_tcp_nodelay(&conn->client, 1);
    proxy_request_begin(conn);
    proxy_conn_read(conn, true);
    return 0;
}

/* ---- output ---- */

typedef struct proxy_out {
    uv_write_t req;
    bool up;
    bool last; /* the connection ends when it is out */
    char data[];
} proxy_out_t;

static proxy_conn_t *owner_of(const proxy_out_t *out)
{
    return out->up ? ((proxy_up_t *)out->req.handle->data)->conn : out->req.handle->data;
}

/* The last has gone out. The client may still be sending: to close now would reset the connection
 * and take from it what it hasn't read yet. */
static void linger(proxy_conn_t *conn)
{
    uv_shutdown_t *req = malloc(sizeof(*req));
    conn->lingers = true;
    conn->deadline_ns = kg_now_ns() + LINGER_NS;
    if (!req || uv_shutdown(req, (uv_stream_t *)&conn->client, shut) < 0) {
        free(req);
        proxy_conn_end(conn);
        return;
    }
    proxy_conn_read(conn, true);
}

static void on_written(uv_write_t *req, int status)
{
    proxy_out_t *out = kg_container_of(req, proxy_out_t, req);
    proxy_conn_t *conn = status == UV_ECANCELED ? NULL : owner_of(out);
    bool up = out->up;
    bool last = out->last;
    size_t left = uv_stream_get_write_queue_size(req->handle);
    free(out);
    if (!conn || conn->state == PROXY_GONE) {
        return;
    }
    if (status < 0 && up && conn->state == PROXY_RELAY) {
        return; /* it may have answered and left without reading all: what it said comes yet */
    }
    if (status < 0) {
        proxy_conn_end(conn);
        return;
    }
    proxy_conn_moved(conn);
    if (last) {
        linger(conn);
        return;
    }
    if (left > PROXY_LOW) {
        return;
    }
    if (up) {
        proxy_conn_read(conn, true);
    } else if (conn->up) {
        proxy_up_read(conn->up, true);
    }
}

/* What doesn't go out at once is copied and waits. 0, or -errno: the stream is of no use. */
static int put(uv_stream_t *stream, const kg_buf_t *bytes, kg_slice_t tail, bool up, bool last)
{
    size_t sent = 0;
    size_t all = bytes->len + tail.len;
    if (uv_stream_get_write_queue_size(stream) == 0 && all > 0) {
        uv_buf_t now[2] = {
            {.base = bytes->data, .len = bytes->len},
            {.base = (char *)(uintptr_t)tail.data, .len = tail.len}, /* only read from */
        };
        bool front = bytes->len > 0;
        int n = uv_try_write(stream, front ? now : now + 1, front && tail.len > 0 ? 2 : 1);
        if (n < 0 && n != UV_EAGAIN) {
            return n;
        }
        sent = n > 0 ? (size_t)n : 0;
    }
    if (sent == all && !last) {
        return 0;
    }
    proxy_out_t *out = malloc(sizeof(*out) + (all - sent) + 1);
    if (!out) {
        return -ENOMEM;
    }
    out->up = up;
    out->last = last;
    size_t head = sent < bytes->len ? bytes->len - sent : 0;
    if (head > 0) {
        memcpy(out->data, bytes->data + sent, head);
    }
    if (all - sent > head) {
        memcpy(out->data + head, tail.data + (tail.len - (all - sent - head)), all - sent - head);
    }
    uv_buf_t later = uv_buf_init(out->data, (unsigned)(all - sent));
    int r = uv_write(&out->req, stream, &later, 1, on_written);
    if (r < 0) {
        free(out);
    }
    return r;
}

int proxy_put(uv_stream_t *stream, const kg_buf_t *bytes, bool up)
{
    return put(stream, bytes, (kg_slice_t){NULL, 0}, up, false);
}

static kg_slice_t take_tail(kg_slice_t *tail)
{
    kg_slice_t out = *tail;
    *tail = (kg_slice_t){NULL, 0};
    return out;
}

bool proxy_flush_client(proxy_conn_t *conn)
{
    kg_buf_t *bytes = &conn->proxy->to_client;
    kg_slice_t tail = take_tail(&conn->proxy->client_tail);
    bool last = conn->state == PROXY_LAST;
    if (conn->state == PROXY_GONE || (bytes->len + tail.len == 0 && !last)) {
        kg_buf_clear(bytes);
        return conn->state != PROXY_GONE;
    }
    int r = put((uv_stream_t *)&conn->client, bytes, tail, false, last);
    kg_buf_clear(bytes);
    if (r < 0) {
        proxy_conn_end(conn);
        return false;
    }
    if (conn->up && uv_stream_get_write_queue_size((uv_stream_t *)&conn->client) > PROXY_HIGH) {
        proxy_up_read(conn->up, false);
    }
    return true;
}

bool proxy_flush_up(proxy_conn_t *conn)
{
    kg_buf_t *bytes = &conn->proxy->to_up;
    kg_slice_t tail = take_tail(&conn->proxy->up_tail);
    if (conn->state == PROXY_GONE || !conn->up || bytes->len + tail.len == 0) {
        kg_buf_clear(bytes);
        return conn->state != PROXY_GONE;
    }
    uv_stream_t *stream = (uv_stream_t *)&conn->up->tcp;
    int r = put(stream, bytes, tail, true, false);
    kg_buf_clear(bytes);
    if (r < 0 && conn->state == PROXY_TUNNEL) {
        proxy_conn_end(conn);
        return false;
    }
    /* Else: it may have answered and left without reading all: what it said comes yet. */
    if (uv_stream_get_write_queue_size(stream) > PROXY_HIGH) {
        proxy_conn_read(conn, false);
    }
    return true;
}

/* ---- exchanges ---- */

void proxy_conn_refuse(proxy_conn_t *conn, int status, const char *why)
{
    if (conn->state == PROXY_GONE || conn->state == PROXY_LAST) {
        return;
    }
    if (conn->answer_begun) { /* too late to say it */
        proxy_conn_end(conn);
        return;
    }
    proxy_up_forget(conn);
    proxy_up_drop(conn);
    proxy_conn_read(conn, false);
    forget_output(conn->proxy);
    conn->state = PROXY_LAST;
    if (proxy_page_write(conn, status, why, &conn->proxy->to_client) < 0) {
        proxy_conn_end(conn);
        return;
    }
    (void)proxy_flush_client(conn);
}

/* Takes the parser up to the end of the request; what is behind it waits. */
static void feed_request(proxy_conn_t *conn, const char *data, size_t len)
{
    http_parser *parser = &conn->request;
    if (HTTP_PARSER_ERRNO(parser) == HPE_PAUSED) {
        http_parser_pause(parser, 0);
    }
    size_t used = http_parser_execute(parser, &proxy_request_settings, data, len);
    enum http_errno code = HTTP_PARSER_ERRNO(parser);
    if (conn->refused != 0) {
        proxy_conn_refuse(conn, conn->refused, conn->refused_why);
        return;
    }
    if (conn->request_head.too_large) {
        proxy_conn_refuse(conn, 431, "The request's headers are too large.");
        return;
    }
    if (code != HPE_OK && code != HPE_PAUSED) {
        proxy_conn_refuse(conn, 400, http_errno_description(code));
        return;
    }
    bool head_now = conn->head_done && conn->state == PROXY_HEAD;
    if (used < len && kg_buf_append(&conn->ahead, data + used, len - used) < 0) {
        proxy_conn_end(conn);
        return;
    }
    if (!proxy_flush_up(conn)) {
        return;
    }
    if (head_now) {
        proxy_up_get(conn);
    }
}

void proxy_conn_feed(proxy_conn_t *conn, const char *data, size_t len)
{
    switch (conn->state) {
    case PROXY_TUNNEL:
        conn->proxy->up_tail = kg_slice(data, len);
        (void)proxy_flush_up(conn);
        return;
    case PROXY_HEAD:
        feed_request(conn, data, len);
        return;
    case PROXY_RELAY:
        if (!conn->request_done) {
            feed_request(conn, data, len);
            return;
        }
        break;
    case PROXY_CONNECT:
        break;
    case PROXY_LAST:
    case PROXY_GONE:
        return;
    }
    if (kg_buf_append(&conn->ahead, data, len) < 0) {
        proxy_conn_end(conn);
    } else if (conn->ahead.len >= PROXY_AHEAD) {
        proxy_conn_read(conn, false); /* before its turn: it has to wait */
    }
}

void proxy_conn_next(proxy_conn_t *conn)
{
    if (!conn->keep || !conn->request_done) {
        conn->state = PROXY_LAST; /* closes when what is queued is out */
        proxy_conn_read(conn, false);
        (void)proxy_flush_client(conn);
        return;
    }
    if (conn->up && (conn->up->ended || !http_should_keep_alive(&conn->answer))) {
        proxy_up_drop(conn);
    }
    if (conn->up) {
        conn->up->used = true;
    }
    conn->state = PROXY_HEAD;
    proxy_request_begin(conn);
    proxy_conn_moved(conn);
    proxy_conn_read(conn, true);
    if (conn->ahead.len > 0) {
        kg_buf_t ahead = conn->ahead;
        memset(&conn->ahead, 0, sizeof(conn->ahead));
        proxy_conn_feed(conn, ahead.data, ahead.len);
        kg_buf_fini(&ahead);
    }
}

/* ---- deadlines ---- */

/* Traffic counts as use of the sandbox, and what the client sends wakes it. False: the port was
 * taken back, the connection is gone. */
static bool look_after(proxy_conn_t *conn, uint64_t silent_ms)
{
    const kg_proxy_handler_t *h = &conn->proxy->handler;
    const proxy_up_t *up = conn->up;
    if (conn->state != PROXY_TUNNEL && conn->state != PROXY_RELAY) {
        return true;
    }
    if (h->look(h->user, up->sandbox, up->port, kg_slice(NULL, 0)) == KG_PROXY_NOT_FOUND) {
        proxy_conn_end(conn);
        return false;
    }
    if (conn->client_moved) {
        h->touch(h->user, up->sandbox);
    } else if (silent_ms < MOVING_MS) {
        (void)h->ready(h->user, up->sandbox, up->port); /* in use, but not to be woken by itself */
    }
    return true;
}

void proxy_conn_tick(proxy_conn_t *conn, uint64_t now_ns)
{
    const kg_proxy_opts_t *o = &conn->proxy->opts;
    uint64_t silent_ms = now_ns > conn->moved_ns ? (now_ns - conn->moved_ns) / KG_NS_PER_MS : 0;
    if (conn->up && !look_after(conn, silent_ms)) {
        return;
    }
    conn->client_moved = false;
    switch (conn->state) {
    case PROXY_HEAD:
        if (conn->request_head.text.len > 0 ? now_ns > conn->deadline_ns
                                            : silent_ms > o->idle_timeout_ms) {
            proxy_conn_end(conn);
        }
        break;
    case PROXY_CONNECT:
        if (now_ns > conn->deadline_ns) {
            proxy_conn_refuse(conn, 504, "The sandbox did not become ready in time.");
        }
        break;
    case PROXY_RELAY:
        if (silent_ms > o->stall_timeout_ms) {
            proxy_conn_refuse(conn, 504, "The server in the sandbox does not answer.");
        }
        break;
    case PROXY_LAST:
        if (conn->lingers ? now_ns > conn->deadline_ns : silent_ms > o->stall_timeout_ms) {
            proxy_conn_end(conn);
        }
        break;
    case PROXY_TUNNEL:
        if (silent_ms > o->tunnel_timeout_ms) {
            proxy_conn_end(conn);
        }
        break;
    case PROXY_GONE:
        break;
    }
}
