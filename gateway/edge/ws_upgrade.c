/* The WebSocket handshake. lws wants a fixed list of subprotocols per server, picks by itself, and
 * drops without a word whom it cannot serve. Here the handler picks, and every refusal is a JSON
 * answer:
 * - All that lws would stumble over is checked first, in LWS_CALLBACK_HTTP_CONFIRM_UPGRADE.
 * - Whatever is offered, lws finds our one protocol (lws_vhost_name_to_protocol in lws.c); its line
 * in the 101 is then replaced in LWS_CALLBACK_ADD_HEADERS. */
#include <errno.h>
#include <string.h>

#include "gateway/edge/edge_priv.h"

static int write_answer(kg_conn_t *conn, const kg_buf_t *out)
{
    conn->phase = KG_PHASE_DEAD;
    (void)lws_write(conn->wsi, (unsigned char *)out->data, out->len, LWS_WRITE_HTTP);
    return -1; /* hang up once it is out */
}

static int refuse(kg_conn_t *conn, kg_err_code_t code, const char *message)
{
    kg_conn_write_error(conn, code, message);
    return -1;
}

static int refuse_version(kg_conn_t *conn)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    KG_AUTO_BUF kg_buf_t body = {0};
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_UPGRADE_REQUIRED, "WebSocket version 13 is spoken here.");
    const kg_header_t headers[] = {
        {"Sec-WebSocket-Version", "13"},
        {"Upgrade", "websocket"},
        {"Connection", "Upgrade"},
    };
    int rc = kg_edge_error_body(&err, &body);
    kg_answer_t answer = {
        .status = 426,
        .headers = headers,
        .header_count = KG_ARRAY_LEN(headers),
        .length = (int64_t)body.len,
        .close_after = true,
    };
    rc |= kg_answer_head(conn->edge, &out, &answer);
    rc |= kg_buf_append_slice(&out, kg_buf_slice(&body));
    return rc ? -1 : write_answer(conn, &out);
}

/* What lws itself would refuse in silence. NULL when all is well. */
static const char *fault_of(const kg_http_head_t *head, kg_slice_t offered)
{
    if (!kg_slice_eq_cstr(head->method, "GET")) {
        return "An upgrade to WebSocket is a GET.";
    }
    const char *host = kg_head_host_fault(head, false);
    if (host) {
        return host;
    }
    if (!kg_http_head_get(head, "host").len) {
        return "Host is empty.";
    }
    if (kg_http_head_get(head, "sec-websocket-key").len != 24) {
        return "Sec-WebSocket-Key is missing or not 16 bytes in base64.";
    }
    if (!kg_head_has_token(head, "connection", "upgrade") ||
        kg_http_head_get(head, "connection").len > KG_EDGE_LWS_TOKENS_MAX) {
        return "Connection does not say \"upgrade\".";
    }
    if (lws_hdr_total_length(head->priv->wsi, WSI_TOKEN_PROTOCOL) > KG_EDGE_LWS_TOKENS_MAX) {
        return "Sec-WebSocket-Protocol is longer than 126 bytes.";
    }
    if (offered.data && lws_hdr_fragment_length(head->priv->wsi, WSI_TOKEN_PROTOCOL, 0) == 0) {
        return "Sec-WebSocket-Protocol is empty.";
    }
    return NULL;
}

static int answer_refusal(kg_conn_t *conn, kg_upgrade_reply_t *reply)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_header_t headers[2];
    size_t count = 0;
    if (reply->allow_origin[0]) {
        headers[count++] = (kg_header_t){"Access-Control-Allow-Origin", reply->allow_origin};
    }
    if (reply->authenticate) {
        headers[count++] = (kg_header_t){"WWW-Authenticate", reply->authenticate};
    }
    kg_answer_t answer = {
        .status = reply->status ? reply->status : 403,
        .headers = headers,
        .header_count = count,
        .length = (int64_t)reply->body.len,
        .close_after = true,
    };
    int rc = kg_answer_head(conn->edge, &out, &answer);
    rc |= kg_buf_append_slice(&out, kg_buf_slice(&reply->body));
    return rc ? -1 : write_answer(conn, &out);
}

static int ask_handler(kg_conn_t *conn, kg_http_head_t *head, kg_slice_t offered)
{
    kg_edge_handler_t *handler = &conn->edge->handler;
    kg_upgrade_reply_t reply = {0};
    int rc = 0;
    if (handler->on_upgrade(head, offered, &reply, handler->user) != 0) {
        rc = answer_refusal(conn, &reply);
    } else {
        memcpy(conn->protocol, reply.protocol, sizeof(conn->protocol));
        conn->protocol[sizeof(conn->protocol) - 1] = '\0';
        conn->ws_user = reply.ws_user;
        conn->phase = KG_PHASE_UPGRADE;
    }
    kg_buf_fini(&reply.body);
    return rc;
}

static int confirm(kg_conn_t *conn, kg_http_head_t *head)
{
    if (conn->edge->draining || conn->over_limit) {
        return refuse(conn, KG_ERR_DRAINING,
                      conn->over_limit ? "Too many connections." : "Shutting down.");
    }
    if (!conn->edge->handler.on_upgrade) {
        return refuse(conn, KG_ERR_NOT_SUPPORTED, "There is no WebSocket here.");
    }
    if (!kg_slice_eq_cstr(kg_http_head_get(head, "sec-websocket-version"), "13")) {
        return refuse_version(conn);
    }
    kg_slice_t offered = kg_http_head_get(head, "sec-websocket-protocol");
    const char *fault = fault_of(head, offered);
    if (fault) {
        return refuse(conn, KG_ERR_INVALID_REQUEST, fault);
    }
    head->upgrade = true;
    return ask_handler(conn, head, offered);
}

int kg_ws_on_confirm(kg_conn_t *conn, char *upgrade)
{
    if (strcasecmp(upgrade, "websocket") != 0) {
        upgrade[0] =
            '-'; /* h2c: an offer that may be passed over; lws then goes on with HTTP/1.1 */
        return 0;
    }
    kg_http_head_t head;
    struct kg_http_head_priv priv;
    if (kg_head_init(conn, &head, &priv) < 0) {
        return refuse(conn, KG_ERR_INVALID_REQUEST, "The request is malformed.");
    }
    int rc = confirm(conn, &head);
    kg_head_fini(&head);
    return rc;
}

int kg_ws_on_add_headers(kg_conn_t *conn, struct lws_process_html_args *args)
{
    static const char line[] = "Sec-WebSocket-Protocol: " KG_EDGE_PROTOCOL "\r\n";
    size_t len = sizeof(line) - 1;
    if (lws_hdr_total_length(conn->wsi, WSI_TOKEN_PROTOCOL) == 0) {
        return 0; /* nothing was offered: nothing may be named */
    }
    if (memcmp(args->p - len, line, len) != 0) {
        return -1;
    }
    args->p -= len;
    if (conn->protocol[0]) {
        args->p += lws_snprintf(args->p, (size_t)args->max_len, "Sec-WebSocket-Protocol: %s\r\n",
                                conn->protocol);
    }
    return 0;
}
