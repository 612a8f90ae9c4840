/* One accepted connection: its place in lws, who is at the other end, its deadlines and its end.
 * All deadlines are ours, looked at by one slow timer: lws arms a timer that is set from outside
 * its callbacks only at its next I/O (trap 1). */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utlist.h>

#include "gateway/base/log.h"
#include "gateway/edge/edge_priv.h"

static void describe_inet(kg_conn_t *conn, const struct in_addr *addr)
{
    inet_ntop(AF_INET, addr, conn->peer, sizeof(conn->peer));
    conn->loopback = (ntohl(addr->s_addr) >> 24) == 127;
}

static void describe_inet6(kg_conn_t *conn, const struct in6_addr *addr)
{
    if (IN6_IS_ADDR_V4MAPPED(addr)) { /* a dual-stack socket's way to say IPv4 (trap 16) */
        struct in_addr v4;
        memcpy(&v4, &addr->s6_addr[12], sizeof(v4));
        describe_inet(conn, &v4);
        return;
    }
    inet_ntop(AF_INET6, addr, conn->peer, sizeof(conn->peer));
    conn->loopback = IN6_IS_ADDR_LOOPBACK(addr);
}

void kg_conn_describe_peer(kg_conn_t *conn, int fd)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_storage storage;
    } addr = {0};
    socklen_t len = sizeof(addr);
    if (getpeername(fd, &addr.sa, &len) < 0) {
        memcpy(conn->peer, "unknown", sizeof("unknown"));
    } else if (addr.sa.sa_family == AF_INET) {
        describe_inet(conn, &addr.in.sin_addr);
    } else if (addr.sa.sa_family == AF_INET6) {
        describe_inet6(conn, &addr.in6.sin6_addr);
    } else {
        memcpy(conn->peer, "unix", sizeof("unix"));
        conn->unix_peer = addr.sa.sa_family == AF_UNIX;
    }
}

static void set_socket_options(const kg_conn_t *conn, int fd)
{
    int one = 1;
    if (!conn->unix_peer) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
}

int kg_conn_adopt_take(kg_edge_t *edge, int fd, unsigned listener)
{
    kg_conn_t *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        close(fd);
        return -ENOMEM;
    }
    conn->edge = edge;
    conn->listener = listener;
    kg_conn_describe_peer(conn, fd);
    set_socket_options(conn, fd);
    struct lws_vhost *vhost = edge->plain;
    if (listener < edge->listener_count && edge->listeners[listener].vhost) {
        vhost = edge->listeners[listener].vhost;
        conn->tls = edge->listeners[listener].tls;
    }
    conn->over_limit = edge->conn_count >= edge->opts.max_connections;
    conn->deadline_ns = kg_now_ns() + edge->opts.header_timeout_ms * KG_NS_PER_MS;
    DL_APPEND(edge->conns, conn);
    edge->conn_count++;
    edge->adopting = conn;
    struct lws *wsi = lws_adopt_socket_vhost(vhost, fd); /* closes fd when it fails */
    bool consumed = edge->adopting == NULL;
    edge->adopting = NULL;
    if (!wsi && !consumed && !conn->wsi) {
        kg_conn_free(conn); /* lws never knew it */
    }
    return wsi ? 0 : -EIO;
}

void kg_conn_over(kg_conn_t *conn)
{
    if (conn->http) {
        kg_http_over(conn->http);
    }
    if (conn->ws) {
        kg_ws_over(conn->ws);
    }
    if (conn->phase == KG_PHASE_UPGRADE && conn->edge->handler.on_upgrade_failed) {
        conn->edge->handler.on_upgrade_failed(conn->ws_user, conn->edge->handler.user);
    }
    conn->phase = KG_PHASE_DEAD;
}

void kg_conn_free(kg_conn_t *conn)
{
    kg_edge_t *edge = conn->edge;
    DL_DELETE(edge->conns, conn);
    edge->conn_count--;
    kg_target_forget(conn);
    kg_target_reset(&conn->target);
    free(conn);
}

void kg_conn_kill(kg_conn_t *conn)
{
    kg_conn_over(conn);
    if (conn->wsi) {
        if (lws_partial_buffered(conn->wsi)) { /* or lws would wait 5 s for it to leave */
            (void)shutdown(lws_get_socket_fd(conn->wsi), SHUT_RDWR);
            lws_rx_flow_control(conn->wsi, 1);
        }
        lws_set_timeout(conn->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
    }
}

uint64_t kg_conn_received(const kg_conn_t *conn)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    int fd = lws_get_socket_fd(conn->wsi);
    if (conn->unix_peer || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) {
        return conn->rx_mark;
    }
    return info.tcpi_bytes_received;
}

bool kg_conn_head_begun(const kg_conn_t *conn)
{
    static const enum lws_token_indexes tokens[] = {
        WSI_TOKEN_GET_URI,   WSI_TOKEN_POST_URI,   WSI_TOKEN_OPTIONS_URI, WSI_TOKEN_PUT_URI,
        WSI_TOKEN_PATCH_URI, WSI_TOKEN_DELETE_URI, WSI_TOKEN_HEAD_URI,
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(tokens); i++) {
        if (lws_hdr_total_length(conn->wsi, tokens[i]) > 0) {
            return true;
        }
    }
    return kg_conn_received(conn) > conn->rx_mark;
}

void kg_conn_write_error(kg_conn_t *conn, kg_err_code_t code, const char *message)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_err_t err = {0};
    kg_err_set(&err, code, "%s", message);
    conn->phase = KG_PHASE_DEAD;
    if (kg_answer_error(conn->edge, &out, &err, NULL) == 0) {
        (void)lws_write(conn->wsi, (unsigned char *)out.data, out.len, LWS_WRITE_HTTP);
    }
}

static void scan_head(kg_conn_t *conn, uint64_t now_ns)
{
    if (!conn->begun && kg_conn_head_begun(conn)) {
        conn->begun = true;
        uint64_t deadline_ns = now_ns + conn->edge->opts.header_timeout_ms * KG_NS_PER_MS;
        if (conn->reused) {
            conn->deadline_ns = deadline_ns;
        }
    }
    if (now_ns < conn->deadline_ns) {
        return;
    }
    if (conn->begun && !conn->tls) {
        kg_conn_write_error(conn, KG_ERR_REQUEST_TIMEOUT,
                            "The request's head did not come in time.");
    }
    kg_conn_kill(conn);
}

static void scan_body(kg_conn_t *conn, uint64_t now_ns)
{
    kg_http_body_due(conn->http);
    if (now_ns < conn->deadline_ns || conn->http->held) {
        return;
    }
    if (conn->http->answered) {
        kg_conn_kill(conn);
        return;
    }
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_REQUEST_TIMEOUT, "The request's body did not come in time.");
    conn->http->close_after = true;
    if (kg_http_reply_error(conn->http, &err, NULL, 0) < 0) {
        kg_conn_kill(conn);
    }
}

static bool stalled(const kg_conn_t *conn, uint64_t blocked_ns, uint64_t now_ns)
{
    return blocked_ns && now_ns - blocked_ns > conn->edge->opts.stall_timeout_ms * KG_NS_PER_MS;
}

void kg_conn_scan(kg_conn_t *conn, uint64_t now_ns)
{
    if (!conn->wsi) {
        return;
    }
    switch (conn->phase) {
    case KG_PHASE_HEAD:
        scan_head(conn, now_ns);
        break;
    case KG_PHASE_BODY:
        scan_body(conn, now_ns);
        break;
    case KG_PHASE_LINGER:
        if (now_ns >= conn->deadline_ns) {
            kg_conn_kill(conn);
        }
        break;
    case KG_PHASE_SEND:
        if (stalled(conn, conn->http->blocked_ns, now_ns)) {
            kg_log(KG_LOG_INFO, "edge.stalled", "peer=%s", conn->peer);
            kg_conn_kill(conn);
        }
        break;
    case KG_PHASE_WS:
        if (stalled(conn, conn->ws->blocked_ns, now_ns)) {
            kg_log(KG_LOG_INFO, "edge.stalled", "peer=%s", conn->peer);
            kg_conn_kill(conn);
        } else {
            kg_ws_scan(conn->ws, now_ns);
        }
        break;
    case KG_PHASE_WAIT:
    case KG_PHASE_UPGRADE:
    case KG_PHASE_DEAD:
        break;
    }
}
