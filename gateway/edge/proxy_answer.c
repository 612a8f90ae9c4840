/* The way of an answer back to the client. */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "gateway/edge/proxy_priv.h"

void proxy_answer_begin(proxy_conn_t *conn)
{
    http_parser_init(&conn->answer, HTTP_RESPONSE);
    conn->answer.data = conn;
    proxy_head_clear(&conn->answer_head);
    conn->answer_done = false;
    conn->answer_chunked = false;
    conn->interim = 0;
}

static int on_name(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    return proxy_head_name(&conn->answer_head, at, len);
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    return proxy_head_value(&conn->answer_head, at, len);
}

/* Whether nothing but the end of the connection tells where the body ends. */
static bool until_close(const proxy_conn_t *conn, const http_parser *parser)
{
    return !conn->no_body && !proxy_status_bare(parser->status_code) &&
           !(parser->flags & F_CHUNKED) && parser->content_length == UINT64_MAX;
}

static int on_head(http_parser *parser)
{
    proxy_conn_t *conn = parser->data;
    bool interim = parser->status_code < 200;
    conn->switched = parser->status_code == 101 && conn->upgrade;
    if (parser->status_code == 101 && !conn->upgrade) {
        return -1;
    }
    if (interim && !conn->switched && ++conn->interim > PROXY_INTERIM_MAX) {
        return -1; /* each of them counts as life: they would never end */
    }
    kg_slice_t encoding = proxy_head_get(&conn->answer_head, "transfer-encoding");
    if (encoding.data && !(encoding.len == 7 && strncasecmp(encoding.data, "chunked", 7) == 0)) {
        return -1; /* encodings that are of one hop: not ours to undo */
    }
    bool http10 = conn->request.http_minor == 0;
    /* What its head says of a body is what another request would have got. */
    bool bare = conn->no_body || proxy_status_bare(parser->status_code);
    conn->answer_chunked = !bare && (parser->flags & F_CHUNKED) && !http10;
    if (!interim) {
        conn->keep = conn->keep && !until_close(conn, parser) && conn->request_done &&
                     !(http10 && (parser->flags & F_CHUNKED));
        conn->answer_begun = true;
    }
    proxy_answer_t how = {
        .chunked = conn->answer_chunked,
        .no_length = interim || parser->status_code == 204,
        .close = !conn->keep,
        .upgrade = conn->switched,
        .https = conn->proxy->opts.https,
    };
    if (conn->route.token_in_query && !conn->route.path_form) {
        how.cookie = conn->route.token;
    }
    conn->answer_begun = conn->answer_begun || conn->switched;
    int r =
        proxy_write_answer(&conn->answer_head, parser, &conn->route, &how, &conn->proxy->to_client);
    return r < 0 ? -1 : bare ? 1 : 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
    proxy_conn_t *conn = parser->data;
    kg_buf_t *out = &conn->proxy->to_client;
    kg_slice_t *tail = &conn->proxy->client_tail;
    if (!conn->answer_chunked && tail->len == 0 && len > PROXY_JOIN) {
        *tail = kg_slice(at, len); /* sent from where it was read */
        return 0;
    }
    if (kg_buf_append_slice(out, *tail) < 0) {
        return -1;
    }
    *tail = (kg_slice_t){NULL, 0};
    int r = conn->answer_chunked ? kg_buf_printf(out, "%zx\r\n", len) : 0;
    r = r < 0 ? r : kg_buf_append(out, at, len);
    return r < 0 || !conn->answer_chunked ? r : kg_buf_append(out, "\r\n", 2);
}

static int on_end(http_parser *parser)
{
    proxy_conn_t *conn = parser->data;
    if (parser->status_code < 200 && !conn->switched) {
        proxy_head_clear(&conn->answer_head); /* the true one follows */
        return 0;
    }
    conn->answer_done = true;
    http_parser_pause(parser, 1);
    return conn->answer_chunked ? kg_buf_append_cstr(&conn->proxy->to_client, "0\r\n\r\n") : 0;
}

static const http_parser_settings settings = {
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_end,
};

/* From here on bytes are bytes. */
static void become_tunnel(proxy_conn_t *conn, const char *rest, size_t len)
{
    kg_buf_t ahead = conn->ahead;
    memset(&conn->ahead, 0, sizeof(conn->ahead));
    conn->state = PROXY_TUNNEL;
    if (len > 0 && kg_buf_append(&conn->proxy->to_client, rest, len) < 0) {
        proxy_conn_end(conn);
    }
    if (proxy_flush_client(conn) && ahead.len > 0) {
        proxy_conn_feed(conn, ahead.data, ahead.len);
    }
    kg_buf_fini(&ahead);
    proxy_conn_read(conn, true);
}

static void bad_answer(proxy_conn_t *conn)
{
    kg_buf_clear(&conn->proxy->to_client);
    proxy_conn_refuse(conn, 502,
                      conn->interim > PROXY_INTERIM_MAX
                          ? "The server in the sandbox sent too many interim answers (1xx)."
                          : "The server in the sandbox answered with something that is no "
                            "HTTP.");
}

void proxy_answer_feed(proxy_conn_t *conn, const char *data, size_t len)
{
    http_parser *parser = &conn->answer;
    if (conn->state == PROXY_TUNNEL) {
        conn->proxy->client_tail = kg_slice(data, len);
        (void)proxy_flush_client(conn);
        return;
    }
    if (conn->state != PROXY_RELAY) {
        proxy_up_drop(conn); /* it speaks without being asked */
        return;
    }
    size_t used = http_parser_execute(parser, &settings, data, len);
    enum http_errno code = HTTP_PARSER_ERRNO(parser);
    if (code != HPE_OK && code != HPE_PAUSED) {
        bad_answer(conn);
        return;
    }
    if (conn->switched) {
        become_tunnel(conn, data + used, len - used);
        return;
    }
    if (!proxy_flush_client(conn)) {
        return;
    }
    if (conn->answer_done) {
        if (used < len) {
            proxy_up_drop(conn); /* more than was asked for: nothing of it is believed */
        }
        proxy_conn_next(conn);
    }
}

void proxy_answer_moved(proxy_conn_t *conn)
{
    char more;
    uv_os_fd_t fd;
    conn->answer_done = true;
    if (uv_fileno((uv_handle_t *)&conn->up->tcp, &fd) == 0 &&
        recv(fd, &more, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        proxy_up_drop(conn); /* as below: nothing of it is believed */
    }
    proxy_conn_next(conn);
}

void proxy_answer_eof(proxy_conn_t *conn)
{
    http_parser *parser = &conn->answer;
    (void)http_parser_execute(parser, &settings, NULL, 0);
    if (conn->answer_done) {
        conn->keep = false;
        proxy_conn_next(conn);
        return;
    }
    proxy_conn_refuse(conn, 502,
                      "The server in the sandbox closed the connection without an "
                      "answer.");
}
