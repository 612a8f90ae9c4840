/* The way of a request: its head is checked, routed and written anew, its body follows in the form
 * that its head says. */
#include <errno.h>
#include <string.h>

#include "gateway/edge/proxy_priv.h"

void proxy_request_begin(proxy_conn_t *conn)
{
    http_parser_init(&conn->request, HTTP_REQUEST);
    conn->request.data = conn;
    proxy_head_clear(&conn->request_head);
    proxy_route_fini(&conn->route);
    conn->head_done = false;
    conn->request_done = false;
    conn->answer_begun = false;
    conn->answer_done = false;
    conn->upgrade = false;
    conn->switched = false;
    conn->body_sent = false;
    conn->request_chunked = false;
    conn->refused = 0;
}

static int on_begin(http_parser *parser)
{
    proxy_conn_t *conn = parser->data;
    conn->deadline_ns =
        kg_now_ns() + conn->proxy->opts.header_timeout_ms * KG_NS_PER_MS; /* for all of the head */
    return 0;
}

static int on_url(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    return proxy_head_url(&conn->request_head, at, len);
}

static int on_name(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    return conn->head_done ? 0 : proxy_head_name(&conn->request_head, at, len);
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    return conn->head_done ? 0 : proxy_head_value(&conn->request_head, at, len); /* trailers go */
}

static int refuse(proxy_conn_t *conn, int status, const char *why)
{
    conn->refused = status;
    conn->refused_why = why;
    return -1;
}

static bool asks_for_page(const proxy_conn_t *conn)
{
    kg_slice_t accept = proxy_head_get(&conn->request_head, "accept");
    return conn->request.method == HTTP_GET && accept.data &&
           memmem(accept.data, accept.len, "text/html", 9);
}

static int route(proxy_conn_t *conn)
{
    const kg_proxy_handler_t *h = &conn->proxy->handler;
    int r = proxy_route_find(&conn->request_head,
                             conn->proxy->opts.domain ? conn->proxy->domain : NULL, &conn->route);
    if (r == -EINVAL) {
        return refuse(conn, 400, "The request names no path.");
    }
    if (r < 0) {
        return refuse(conn, r == -ENOENT ? 404 : 503, "There is nothing exposed at this address.");
    }
    switch (h->look(h->user, conn->route.sandbox, conn->route.port, conn->route.token)) {
    case KG_PROXY_NOT_FOUND:
        return refuse(conn, 404, "There is nothing exposed at this address.");
    case KG_PROXY_LOCKED:
        return refuse(conn, 401,
                      "This port wants its token: ?" PROXY_TOKEN_NAME
                      "=… or the header X-Sandal-Token.");
    case KG_PROXY_OPEN:
        break;
    }
    if (conn->route.add_slash) {
        return refuse(conn, 308, "");
    }
    if (conn->route.token_in_query && !conn->route.path_form && asks_for_page(conn)) {
        return refuse(conn, 302, ""); /* the token becomes a cookie and leaves the address */
    }
    return 0;
}

static int on_head(http_parser *parser)
{
    proxy_conn_t *conn = parser->data;
    const char *wrong = proxy_request_wrong(&conn->request_head, parser);
    if (wrong) {
        return refuse(conn, 400, wrong);
    }
    conn->head_done = true;
    conn->keep = http_should_keep_alive(parser);
    conn->request_chunked = (parser->flags & F_CHUNKED) != 0;
    bool body = conn->request_chunked ||
                (parser->content_length > 0 && parser->content_length != UINT64_MAX);
    conn->upgrade = parser->upgrade && !body;
    parser->upgrade = 0; /* what follows is parsed until a 101 says otherwise */
    conn->no_body = parser->method == HTTP_HEAD;
    if (route(conn) < 0) {
        return -1;
    }
    http_parser_pause(parser, 1); /* its body waits for the sandbox */
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    kg_buf_t *out = &conn->proxy->to_up;
    kg_slice_t *tail = &conn->proxy->up_tail;
    conn->body_sent = true;
    if (!conn->request_chunked && tail->len == 0) {
        *tail = kg_slice(at, len); /* sent from where it was read */
        return 0;
    }
    if (kg_buf_append_slice(out, *tail) < 0) {
        return -1;
    }
    *tail = (kg_slice_t){NULL, 0};
    int r = conn->request_chunked ? kg_buf_printf(out, "%zx\r\n", len) : 0;
    r = r < 0 ? r : kg_buf_append(out, at, len);
    return r < 0 || !conn->request_chunked ? r : kg_buf_append(out, "\r\n", 2);
}

static int on_end(http_parser *parser)
{
    proxy_conn_t *conn = parser->data;
    conn->request_done = true;
    conn->body_sent = conn->body_sent || conn->request_chunked;
    http_parser_pause(parser, 1); /* one after the other */
    return conn->request_chunked ? kg_buf_append_cstr(&conn->proxy->to_up, "0\r\n\r\n") : 0;
}

const http_parser_settings proxy_request_settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_end,
};
