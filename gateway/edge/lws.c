/* Where libwebsockets calls us: its context on our loop, one callback for everything, its log, and
 * some of its functions replaced (three in target.c). The traps of version 4.1.6 that shape this
 * file are named where they are met. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/edge/edge_priv.h"

/* See lws_buflist_next_segment_len below. That function has no argument that leads to an edge, and
 * each loop has its thread: hence the one thread-local flag of the program. */
static _Thread_local bool hide_next_segment;

static int on_new_client(kg_edge_t *edge, struct lws *wsi)
{
    kg_conn_t *conn = edge->adopting;
    if (!conn) {
        return -1; /* nobody but kg_conn_adopt_take brings sockets */
    }
    conn->wsi = wsi;
    lws_set_opaque_user_data(wsi, conn);
    lws_set_wsi_user(wsi, conn);
    return 0;
}

static int on_raw_rx(kg_conn_t *conn, const char *data, size_t len)
{
    if (conn->phase == KG_PHASE_LINGER) {
        return 0;
    }
    /* lws gives up on HTTP where the method is none that it knows. Upper-case letters may still be
     * one. */
    bool word = len >= 3;
    for (size_t i = 0; i < 3 && i < len; i++) {
        word = word && data[i] >= 'A' && data[i] <= 'Z';
    }
    if (word) {
        kg_conn_write_error(conn, KG_ERR_NOT_SUPPORTED,
                            "This method is not known here; GET, HEAD, POST, PUT, PATCH, DELETE "
                            "and OPTIONS are.");
    } else {
        kg_conn_write_error(conn, KG_ERR_INVALID_REQUEST, "This is not an HTTP/1.1 request.");
    }
    conn->phase = KG_PHASE_LINGER;
    conn->deadline_ns = kg_now_ns() + KG_EDGE_LINGER_NS;
    return 0;
}

static int on_destroy(kg_edge_t *edge, struct lws *wsi)
{
    kg_conn_t *conn = lws_get_opaque_user_data(wsi);
    if (!conn && edge->adopting && !edge->adopting->wsi) {
        conn = edge->adopting;
        edge->adopting = NULL;
    }
    if (conn) {
        kg_conn_over(conn);
        kg_conn_free(conn);
    }
    return 0;
}

static int on_ws_reason(kg_conn_t *conn, enum lws_callback_reasons reason, void *in, size_t len)
{
    switch ((int)reason) {
    case LWS_CALLBACK_ESTABLISHED:
        return kg_ws_on_open(conn);
    case LWS_CALLBACK_RECEIVE:
        return kg_ws_on_receive(conn, in, len);
    case LWS_CALLBACK_RECEIVE_PONG:
        return kg_ws_on_pong(conn);
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return kg_ws_on_writeable(conn);
    case LWS_CALLBACK_TIMER:
        return kg_ws_on_timer(conn);
    default:
        return 0;
    }
}

static int on_conn_reason(kg_conn_t *conn, enum lws_callback_reasons reason, void *in, size_t len)
{
    conn->edge->forced_turns = 0;
    conn->edge->asleep = false;
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        return kg_ws_on_confirm(conn, in);
    case LWS_CALLBACK_ADD_HEADERS:
        return conn->phase == KG_PHASE_UPGRADE ? kg_ws_on_add_headers(conn, in) : 0;
    case LWS_CALLBACK_HTTP:
        return kg_http_on_head(conn);
    case LWS_CALLBACK_HTTP_BODY:
        return kg_http_on_body(conn, in, len);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        return kg_http_on_body_end(conn);
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return kg_http_on_writeable(conn);
    case LWS_CALLBACK_RAW_RX:
        return on_raw_rx(conn, in, len);
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_CLOSED:
    case LWS_CALLBACK_RAW_CLOSE:
        kg_conn_over(conn);
        return 0;
    default:
        return on_ws_reason(conn, reason, in, len);
    }
}

static int
on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    (void)user;
    hide_next_segment = false;
    struct lws_context *context = lws_get_context(wsi);
    kg_edge_t *edge = context ? lws_context_user(context) : NULL;
    if (!edge) {
        return 0; /* while the context is being made */
    }
    switch ((int)reason) {
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        return on_new_client(edge, wsi);
    case LWS_CALLBACK_WSI_DESTROY:
        return on_destroy(edge, wsi);
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
    case LWS_CALLBACK_ADD_HEADERS:
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE:
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_RECEIVE_PONG:
    case LWS_CALLBACK_SERVER_WRITEABLE:
    case LWS_CALLBACK_CLOSED:
    case LWS_CALLBACK_TIMER:
    case LWS_CALLBACK_RAW_RX:
    case LWS_CALLBACK_RAW_CLOSE: {
        kg_conn_t *conn = lws_get_opaque_user_data(wsi);
        return conn ? on_conn_reason(conn, reason, in, len) : 0;
    }
    default:
        return 0;
    }
}

/* One protocol for HTTP and WebSocket alike: a client that offers no subprotocol is bound to the
 * first. rx_buffer_size is what each WebSocket allocates; without tx_packet_size it would also
 * bound every write (trap 3). */
static const struct lws_protocols protocols[] = {
    {KG_EDGE_PROTOCOL, on_lws, 0, KG_EDGE_WS_RX, 0, NULL, KG_EDGE_PIECE},
    {KG_EDGE_RAW, on_lws, 0, KG_EDGE_WS_RX, 0, NULL, KG_EDGE_PIECE},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

/* Liveness is ours (ws_conn.c): lws would also cut a client that has merely stalled. */
static const lws_retry_bo_t no_pings = {.secs_since_valid_ping = 0xfffe,
                                        .secs_since_valid_hangup = 0xffff};

static void on_lws_log(int level, const char *line)
{
    size_t len = strcspn(line, "\r\n");
    /* Most of what lws calls an error is a client's doing; it says nothing that an operator could
     * act on. */
    kg_log(level & LLL_ERR ? KG_LOG_INFO : KG_LOG_DEBUG, "lws", "line=\"%.*s\"", (int)len, line);
}

int kg_lws_start(kg_edge_t *edge, bool tls, kg_err_t *err)
{
    int rc = kg_lws_check(err);
    if (rc < 0) {
        return rc;
    }
    lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
    void *loops[1] = {kg_loop_uv(edge->loop)};
    unsigned head_s = edge->opts.header_timeout_ms / 1000;
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .user = edge,
        .foreign_loops = loops,
        .pcontext = &edge->lws,
        .gid = -1,
        .uid = -1,
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME |
                   (tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
        .pt_serv_buf_size = KG_EDGE_PIECE,
        .max_http_header_data = (unsigned short)edge->opts.max_header_bytes,
        .timeout_secs = 2 * head_s + 3600, /* ours come first (conn.c) */
        .retry_and_idle_policy = &no_pings,
    };
    edge->lws = lws_create_context(&info);
    if (!edge->lws) {
        return kg_err_set(err, KG_ERR_INTERNAL,
                          "libwebsockets does not start; is its libuv plugin "
                          "(libwebsockets-evlib-uv) installed?");
    }
    return 0;
}

struct lws_vhost *
kg_lws_vhost(kg_edge_t *edge, const char *name, const char *cert, const char *key, kg_err_t *err)
{
    unsigned idle_s = edge->opts.idle_timeout_ms / 1000 + 60;
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .vhost_name = name,
        .protocols = protocols,
        .user = edge,
        .options = LWS_SERVER_OPTION_FALLBACK_TO_APPLY_LISTEN_ACCEPT_CONFIG |
                   (cert ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
        .listen_accept_role = "raw-skt",
        .listen_accept_protocol = KG_EDGE_RAW,
        .keepalive_timeout = (int)idle_s,
        .timeout_secs_ah_idle = idle_s,
        .ssl_cert_filepath = cert,
        .ssl_private_key_filepath = key,
        .alpn = "http/1.1", /* trap 10: no h2 */
        .retry_and_idle_policy = &no_pings,
    };
    struct lws_vhost *vhost = lws_create_vhost(edge->lws, &info);
    if (!vhost) {
        if (cert) {
            kg_err_set(err, KG_ERR_CONFIG, "tls.cert: cannot use %s with the key %s", cert, key);
            kg_err_hint(err, "both must be PEM, and the key that of the chain's first certificate");
        } else {
            kg_err_set(err, KG_ERR_INTERNAL, "libwebsockets cannot make a server.");
        }
    }
    return vhost;
}

int kg_edge_tls_check(const char *cert, const char *key, kg_err_t *err)
{
    KG_AUTO_FREE kg_edge_t *edge = calloc(1, sizeof(*edge));
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .user = edge,
        .gid = -1,
        .uid = -1,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT |
                   LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME,
    };
    lws_set_log_level(0, NULL);
    struct lws_context *lws = edge ? lws_create_context(&info) : NULL;
    if (!lws) {
        return kg_err_set(err, KG_ERR_INTERNAL, "libwebsockets does not start");
    }
    edge->lws = lws;
    int rc = kg_lws_vhost(edge, "check", cert, key, err) ? 0 : -EINVAL;
    lws_context_destroy(lws);
    return rc;
}

/* --- Four functions of libwebsockets, replaced
 * ----------------------------------------------------------------------- The library calls them
 * through its PLT, so the program's definitions win over its own. Without them it answers some bad
 * requests with HTML, others not at all, lets nobody but itself choose subprotocols, and reads
 * freed memory when a request with a body was pipelined. lws_check.c proves at every start that
 * they are in force. */

static kg_err_code_t code_of_status(unsigned status)
{
    switch (status) {
    case 401:
        return KG_ERR_UNAUTHORIZED;
    case 404:
        return KG_ERR_NOT_FOUND;
    case 413:
        return KG_ERR_TOO_LARGE;
    case 500:
        return KG_ERR_INTERNAL;
    default: /* 403 is what lws says of a malformed target or an unknown upgrade */
        return KG_ERR_INVALID_REQUEST;
    }
}

int lws_return_http_status(struct lws *wsi, unsigned int code, const char *html_body)
{
    (void)html_body;
    kg_conn_t *conn = lws_get_opaque_user_data(wsi);
    if (!conn || conn->phase == KG_PHASE_DEAD) {
        return 1;
    }
    kg_conn_write_error(conn, code_of_status(code), "The request line or a header is malformed.");
    return 1; /* and the connection ends */
}

typedef const struct lws_protocols *name_to_protocol_fn(struct lws_vhost *vhost, const char *name);

/* Any subprotocol that a client may offer is ours; the handler has judged it already. */
const struct lws_protocols *lws_vhost_name_to_protocol(struct lws_vhost *vh, const char *name)
{
    name_to_protocol_fn *real = NULL;
    kg_lws_real("lws_vhost_name_to_protocol", &real);
    return real(vh, strcmp(name, KG_EDGE_RAW) == 0 ? name : KG_EDGE_PROTOCOL);
}

typedef size_t next_segment_fn(struct lws_buflist **head, uint8_t **buf);

/* After LWS_CALLBACK_HTTP of a request with a body, lws 4.1.6 hands all that it has buffered to the
 * body reader, from the request's own first byte on, and may free it under the caller's feet; the
 * caller then does it right. So the first of these two looks into the buffer must find nothing. */
void kg_lws_hide_next_segment(bool hide)
{
    hide_next_segment = hide;
}

size_t lws_buflist_next_segment_len(struct lws_buflist **head, uint8_t **buf)
{
    if (hide_next_segment) {
        hide_next_segment = false;
        if (buf) {
            *buf = NULL;
        }
        return 0;
    }
    next_segment_fn *real = NULL;
    kg_lws_real("lws_buflist_next_segment_len", &real);
    return real(head, buf);
}

/* Flow control that finds something buffered also asks for writability, which h1 then never serves:
 * a spinning loop. */
void kg_lws_look_away(struct lws *wsi)
{
    hide_next_segment = true;
    lws_rx_flow_control(wsi, LWS_RXFLOW_REASON_APPLIES_DISABLE | LWS_RXFLOW_REASON_USER_BOOL |
                                 LWS_RXFLOW_REASON_FLAG_PROCESS_NOW);
    hide_next_segment = false;
}

typedef void close_fn(struct lws *wsi, enum lws_close_status reason, const char *caller);
__attribute__((visibility("default"))) close_fn lws_close_free_wsi;

/* The one way a parser's refusal shows itself: the reader gives up in the middle of a head. */
void lws_close_free_wsi(struct lws *wsi, enum lws_close_status reason, const char *caller)
{
    kg_conn_t *conn = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    if (conn && conn->phase == KG_PHASE_HEAD && caller && strcmp(caller, "lws_read_h1 bail") == 0) {
        bool large = kg_conn_received(conn) - conn->rx_mark >= conn->edge->opts.max_header_bytes;
        if (large) {
            kg_conn_write_error(conn, KG_ERR_HEADERS_TOO_LARGE, "The request's head is too large.");
        } else {
            kg_conn_write_error(conn, KG_ERR_INVALID_REQUEST,
                                "The request's head is malformed or too large.");
        }
    }
    close_fn *real = NULL;
    kg_lws_real("lws_close_free_wsi", &real);
    real(wsi, reason, caller);
}
