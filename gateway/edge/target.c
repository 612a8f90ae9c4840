/* The request's target as it was sent. lws 4.1.6 decodes it and resolves its dots while it reads,
 * so that "a%2Fb" and "a/b" look alike afterwards; of the raw form nothing is left. So what lws
 * reads goes through here: the target is kept, and lws gets letters in its place. For that every
 * read ends where a head or body ends; what a client sent ahead stays in the socket. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "gateway/edge/edge_priv.h"

/* Whose socket lws is serving. recv has no argument that leads there. */
static _Thread_local kg_conn_t *serving;

/* One byte further. Whether it is part of the target. */
static bool step(kg_target_t *t, char c)
{
    bool eol = c == '\r' || c == '\n';
    switch (t->at) {
    case KG_TARGET_METHOD:
        if (c == ' ' && t->begun) {
            t->at = KG_TARGET_TEXT;
            t->begun = false;
        } else {
            t->begun = t->begun || !eol;
        }
        return false;
    case KG_TARGET_TEXT:
        if (eol || (c == ' ' && t->begun)) {
            t->at = KG_TARGET_LINES;
            t->begun = c != '\n';
            return false;
        }
        t->begun = t->begun || c != ' ';
        return t->begun;
    case KG_TARGET_LINES:
        if (c == '\n') {
            t->at = t->begun ? KG_TARGET_LINES : KG_TARGET_END;
            t->begun = false;
        } else {
            t->begun = t->begun || c != '\r';
        }
        return false;
    case KG_TARGET_END:
        break;
    }
    return false;
}

size_t kg_target_span(const kg_target_t *t, const char *data, size_t len)
{
    kg_target_t ahead = {.at = t->at, .begun = t->begun};
    if (ahead.at == KG_TARGET_END) {
        return len; /* lws sees the end elsewhere: kg_head_init will refuse what this leads to */
    }
    size_t n = 0;
    while (n < len && ahead.at != KG_TARGET_END) {
        (void)step(&ahead, data[n++]);
    }
    return n;
}

int kg_target_take(kg_target_t *t, char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!step(t, data[i])) {
            continue;
        }
        if (kg_buf_append_char(&t->text, data[i]) < 0) {
            return -ENOMEM;
        }
        if (t->text.len > 1) {
            data[i] = 'a';
        }
    }
    return 0;
}

void kg_target_reset(kg_target_t *t)
{
    kg_buf_fini(&t->text);
    *t = (kg_target_t){.at = KG_TARGET_METHOD};
}

/* Either of the two ways to read. */
typedef struct reader {
    int fd;
    SSL *ssl; /* or NULL */
} reader_t;

typedef int ssl_read_fn(SSL *ssl, void *buf, int len);

static ssize_t read_some(const reader_t *reader, void *buf, size_t len, bool peek)
{
    if (!reader->ssl) {
        return recvfrom(reader->fd, buf, len, peek ? MSG_PEEK : 0, NULL, NULL);
    }
    ssl_read_fn *real = NULL;
    kg_lws_real(peek ? "SSL_peek" : "SSL_read", &real);
    return real(reader->ssl, buf, (int)len);
}

static ssize_t read_head(kg_conn_t *conn, const reader_t *reader, char *buf, size_t len)
{
    ssize_t n = read_some(reader, buf, len, true);
    if (n <= 0) {
        return n;
    }
    kg_target_t *t = &conn->target;
    n = read_some(reader, buf, kg_target_span(t, buf, (size_t)n), false);
    if (n > 0 && kg_target_take(t, buf, (size_t)n) < 0) {
        errno = ENOMEM;
        return -1;
    }
    return n;
}

/* lws may read while an answer is on its way: what comes then is the next head. */
static ssize_t read_for(kg_conn_t *conn, const reader_t *reader, char *buf, size_t len)
{
    const kg_http_t *http = conn->http;
    uint64_t body = http && http->got < http->declared ? http->declared - http->got : 0;
    if (conn->phase == KG_PHASE_HEAD || (http && body == 0)) {
        return read_head(conn, reader, buf, len);
    }
    ssize_t n = read_some(reader, buf, body > 0 && body < len ? (size_t)body : len, false);
    if (n > 0) {
        kg_ws_on_bytes(conn, buf, (size_t)n);
    }
    return n;
}

/* --- What TLS holds
 * -----------------------------------------------------------------------------------------------------
 * lws asks TLS whether there is more only after a read that filled its buffer, and ours end sooner:
 * a body that came in the record of its head would wait for the client's next word. */

static int held_by_tls(const kg_conn_t *conn)
{
    typedef int pending_fn(const SSL *ssl);
    SSL *ssl = conn->tls && conn->wsi ? lws_get_ssl(conn->wsi) : NULL;
    pending_fn *pending = NULL;
    kg_lws_real("SSL_pending", &pending);
    return ssl ? pending(ssl) : 0;
}

static void set_ahead(kg_conn_t *conn, bool ahead)
{
    if (conn->ahead != ahead) {
        conn->ahead = ahead;
        conn->edge->ahead_count += ahead ? 1 : (size_t)-1;
    }
}

void kg_target_forget(kg_conn_t *conn)
{
    serving = serving == conn ? NULL : serving;
    set_ahead(conn, false);
}

static kg_conn_t *next_ahead(kg_edge_t *edge)
{
    kg_conn_t *conn;
    DL_FOREACH (edge->conns, conn) {
        if (conn->ahead && conn->pass != edge->passes) {
            return conn;
        }
    }
    return NULL;
}

void kg_target_read_ahead(kg_edge_t *edge)
{
    kg_conn_t *conn = NULL;
    edge->passes++;
    edge->ahead_moved = false;
    while (edge->ahead_count > 0 && (conn = next_ahead(edge))) { /* any may go meanwhile */
        struct lws_pollfd p = {
            .fd = lws_get_socket_fd(conn->wsi), .events = LWS_POLLIN, .revents = LWS_POLLIN};
        conn->pass = edge->passes;
        (void)lws_service_fd_tsi(edge->lws, &p, 0);
    }
    if (edge->ahead_moved && edge->ahead_count > 0) { /* from what does not, lws looks away */
        lws_cancel_service(edge->lws);
    }
}

/* --- Three more functions that lws calls through its PLT, replaced; see lws.c
 * -----------------------------------------------------------------------------------------------------
 */

typedef int service_fn(struct lws_context *context, struct lws_pollfd *pollfd, int tsi);

int lws_service_fd_tsi(struct lws_context *context, struct lws_pollfd *pollfd, int tsi)
{
    struct lws *wsi = pollfd ? wsi_from_fd(context, pollfd->fd) : NULL;
    serving = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    int held = serving ? held_by_tls(serving) : 0;
    service_fn *real = NULL;
    kg_lws_real("lws_service_fd_tsi", &real);
    int rc = real(context, pollfd, tsi);
    if (serving) {
        int left = held_by_tls(serving);
        serving->edge->ahead_moved = serving->edge->ahead_moved || left != held;
        set_ahead(serving, left > 0);
    }
    serving = NULL;
    return rc;
}

/* By a name of its own, for the C library's headers have a recv that checks its arguments. */
__attribute__((visibility("default"))) ssize_t
edge_recv(int fd, void *buf, size_t len, int flags) __asm__("recv");

ssize_t edge_recv(int fd, void *buf, size_t len, int flags)
{
    kg_conn_t *conn = serving;
    if (!conn || flags || !conn->wsi || lws_get_socket_fd(conn->wsi) != fd) {
        return recvfrom(fd, buf, len, flags, NULL, NULL);
    }
    return read_for(conn, &(reader_t){.fd = fd}, buf, len);
}

__attribute__((visibility("default"))) int SSL_read(SSL *ssl, void *buf, int num)
{
    const reader_t reader = {.fd = -1, .ssl = ssl};
    kg_conn_t *conn = serving;
    if (!conn || !conn->wsi || lws_get_ssl(conn->wsi) != ssl) {
        return (int)read_some(&reader, buf, (size_t)num, false);
    }
    return (int)read_for(conn, &reader, buf, (size_t)num);
}
