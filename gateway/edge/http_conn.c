/* One exchange: head, body, answer. What lws 4.1.6 does to it, and what is done about that here:
 * - Between head and answer lws does not read (so pipelined requests wait), yet leaves the socket
 * in the poll set: a second request, or a client that hung up, would spin the loop. So a waiting
 * exchange is parked: lws looks away, and a watch on a dup of the socket tells of hang-up and,
 * while sending, of room.
 * - It takes a POST, PUT or PATCH without Content-Length for one of 100 MiB. Such a request has no
 * body (RFC 9112), so it is answered and its connection closed. Chunked bodies it cannot read at
 * all: 411 (trap 8).
 * - It never answers Expect: 100-continue (trap 8).
 * - Its own way to send a body of unknown length closes the connection; chunks are made here (trap
 * 9). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "gateway/edge/edge_priv.h"

static void conn_next(kg_conn_t *conn);

static void on_shadow(void *user, bool hangup, bool writable)
{
    kg_http_t *http = user;
    kg_conn_t *conn = http->conn;
    if (hangup) {
        kg_conn_kill(conn);
        return;
    }
    if (writable && http->parked) {
        http->parked = false;
        (void)kg_fdwatch_set_hangup(http->shadow, false);
        lws_rx_flow_control(conn->wsi, 1);
        lws_callback_on_writable(conn->wsi);
    }
}

static int shadow_open(kg_http_t *http)
{
    if (http->shadow) {
        return 0;
    }
    http->shadow_fd = fcntl(lws_get_socket_fd(http->conn->wsi), F_DUPFD_CLOEXEC, 3);
    if (http->shadow_fd < 0) {
        return -errno;
    }
    int rc =
        kg_fdwatch_create(http->conn->edge->loop, http->shadow_fd, on_shadow, http, &http->shadow);
    if (rc < 0) {
        close(http->shadow_fd);
        http->shadow_fd = -1;
    }
    return rc;
}

/* lws looks away until room (for_room) or kg_http_wake. Where no descriptor is left for the watch,
 * lws keeps looking. */
static void park(kg_http_t *http, bool for_room)
{
    if (shadow_open(http) < 0 || kg_fdwatch_set_hangup(http->shadow, for_room) < 0) {
        if (for_room) {
            lws_callback_on_writable(http->conn->wsi);
        }
        return;
    }
    http->parked = true;
    kg_lws_look_away(http->conn->wsi);
}

static void unpark(kg_http_t *http)
{
    if (http->parked) {
        http->parked = false;
        (void)kg_fdwatch_set_hangup(http->shadow, false);
        lws_rx_flow_control(http->conn->wsi, 1);
    } else if (http->held) {
        lws_rx_flow_control(http->conn->wsi, 1);
    }
    http->held = false;
    lws_callback_on_writable(http->conn->wsi);
}

void kg_http_over(kg_http_t *http)
{
    kg_conn_t *conn = http->conn;
    conn->http = NULL;
    if (http->seen) {
        conn->edge->handler.on_http_close(http, conn->edge->handler.user);
    }
    if (http->shadow) {
        kg_fdwatch_close(&http->shadow);
        close(http->shadow_fd);
    }
    kg_buf_fini(&http->body);
    kg_buf_fini(&http->tx);
    free(http);
}

/* --- Request
 * ---------------------------------------------------------------------------------------------------------
 */

static int refuse(kg_http_t *http, kg_err_code_t code, const char *message)
{
    kg_err_t err = {0};
    kg_err_set(&err, code, "%s", message);
    if (code == KG_ERR_DRAINING) {
        err.retry_after_s = 1;
    }
    http->close_after = true;
    return kg_http_reply_error(http, &err, NULL, 0);
}

static bool wants_length(kg_slice_t method)
{
    return kg_slice_eq_cstr(method, "POST") || kg_slice_eq_cstr(method, "PUT") ||
           kg_slice_eq_cstr(method, "PATCH");
}

/* Whether lws takes what follows the head for a body; as in its lws_http_action, faults included.
 */
static bool lws_expects_body(struct lws *wsi, kg_slice_t method)
{
    char text[31];
    int len = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH);
    if (len <= 0 || lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0) {
        return wants_length(method);
    }
    return atoll(text) != 0; // NOLINT(cert-err34-c): what lws does is the question
}

/* What the protocol itself demands. Nonzero when the request was refused. */
static int check_head(kg_http_t *http, kg_http_head_t *head)
{
    struct lws *wsi = http->conn->wsi;
    char version[16] = "";
    bool known = lws_hdr_copy(wsi, version, sizeof(version), WSI_TOKEN_HTTP) > 0;
    http->http10 = strcmp(version, "HTTP/1.0") == 0;
    http->is_head = kg_slice_eq_cstr(head->method, "HEAD");
    http->lws_reads = lws_expects_body(wsi, head->method);
    http->close_after = http->http10 || http->conn->edge->draining ||
                        kg_head_has_token(head, "connection", "close");
    if (!known) {
        refuse(http, KG_ERR_INVALID_REQUEST, "The request line ends before its HTTP version.");
        return 1;
    }
    if (!http->http10 && strcmp(version, "HTTP/1.1") != 0) {
        refuse(http, KG_ERR_INVALID_REQUEST, "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
        return 1;
    }
    const char *fault = kg_head_host_fault(head, http->http10);
    if (fault) {
        http->more_unread = http->lws_reads;
        refuse(http, KG_ERR_INVALID_REQUEST, fault);
        return 1;
    }
    bool present = false;
    if (kg_head_content_length(head, &present, &http->declared) < 0) {
        http->more_unread = true;
        refuse(http, KG_ERR_INVALID_REQUEST,
               "Content-Length is not a number, or there are several.");
        return 1;
    }
    if (kg_http_head_get(head, "transfer-encoding").data) {
        http->more_unread = true;
        refuse(http, KG_ERR_LENGTH_REQUIRED,
               "Transfer-Encoding is not supported; send a Content-Length.");
        return 1;
    }
    if (!present && http->lws_reads) {
        http->close_after = true;
    }
    if (http->conn->over_limit) {
        refuse(http, KG_ERR_DRAINING, "Too many connections.");
        return 1;
    }
    head->content_length = http->declared;
    head->has_body = http->declared > 0;
    return 0;
}

/* All of the body is here. */
static void dispatch(kg_http_t *http)
{
    kg_conn_t *conn = http->conn;
    http->dispatched = true;
    http->held = false; /* parked instead */
    conn->phase = KG_PHASE_WAIT;
    if (http->ready) {
        http->due = true;
        http->ready(http->ready_user);
    } else {
        conn->edge->handler.on_body(http, kg_buf_slice(&http->body), conn->edge->handler.user);
    }
    if (!http->answered) {
        park(http, false);
    }
}

static void body_clock(kg_conn_t *conn)
{
    conn->deadline_ns = kg_now_ns() + conn->edge->opts.body_timeout_ms * KG_NS_PER_MS;
}

static void expect_body(kg_http_t *http, const kg_http_head_t *head)
{
    kg_conn_t *conn = http->conn;
    conn->phase = KG_PHASE_BODY;
    body_clock(conn);
    if (!http->http10 && kg_head_has_token(head, "expect", "100-continue")) {
        char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        (void)lws_write(conn->wsi, (unsigned char *)go_on, sizeof(go_on) - 1, LWS_WRITE_HTTP);
    }
}

static void take_head(kg_http_t *http, kg_http_head_t *head)
{
    kg_edge_t *edge = http->conn->edge;
    if (check_head(http, head)) {
        return;
    }
    http->seen = true;
    edge->handler.on_request(http, head, &http->body_max, edge->handler.user);
    if (!http->answered && http->declared > http->body_max) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_TOO_LARGE, "The body has %llu bytes, %zu are allowed.",
                   (unsigned long long)http->declared, http->body_max);
        http->close_after = http->close_after || http->declared > KG_EDGE_KEEP_BODY;
        if (kg_http_reply_error(http, &err, NULL, 0) < 0) {
            http->aborted = true;
        }
    }
    if (http->answered) {
        http->close_after = http->close_after || http->declared > KG_EDGE_KEEP_BODY;
    } else if (http->declared > 0) {
        expect_body(http, head);
    } else {
        dispatch(http);
    }
}

int kg_http_on_head(kg_conn_t *conn)
{
    lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
    kg_http_t *http = calloc(1, sizeof(*http));
    if (!http) {
        conn->phase = KG_PHASE_DEAD;
        return -1;
    }
    http->conn = conn;
    http->shadow_fd = -1;
    http->body_max = conn->edge->opts.body_max;
    kg_http_head_t head;
    struct kg_http_head_priv priv;
    if (kg_head_init(conn, &head, &priv) < 0) {
        free(http);
        return -1;
    }
    conn->reused = true;
    conn->http = http;
    take_head(http, &head);
    kg_head_fini(&head);
    if (conn->phase == KG_PHASE_DEAD) {
        return -1;
    }
    kg_lws_hide_next_segment(http->lws_reads); /* the call that comes next */
    return 0;
}

/* lws hands over what it had read already all the same: a piece or two. */
static void hold(kg_http_t *http)
{
    if (http->body.len >= KG_EDGE_BODY_HELD && !http->held) {
        http->held = true;
        kg_lws_look_away(http->conn->wsi);
    }
}

void kg_http_body_stream(kg_http_t *http, kg_fn *ready, void *user)
{
    http->ready = ready;
    http->ready_user = user;
}

void kg_http_body_due(kg_http_t *http)
{
    if (http->ready && !http->due && !http->answered && http->body.len > 0) {
        http->due = true;
        http->ready(http->ready_user);
    }
}

void kg_http_body_take(kg_http_t *http, kg_buf_t *out, bool *ret_end)
{
    *ret_end = false;
    kg_buf_clear(out);
    if (!http->due && http->body.len < KG_EDGE_BODY_READY) {
        return;
    }
    http->due = false;
    kg_buf_t had = *out;
    *out = http->body;
    http->body = had;
    *ret_end = http->got == http->declared;
    if (http->held) {
        http->held = false;
        body_clock(http->conn);
        lws_rx_flow_control(http->conn->wsi, 1);
    }
}

int kg_http_on_body(kg_conn_t *conn, const char *data, size_t len)
{
    kg_http_t *http = conn->http;
    lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
    if (!http || conn->phase == KG_PHASE_LINGER || len == 0) {
        return 0;
    }
    http->got += len;
    if (!http->answered && !http->dispatched) {
        if (http->ready && !http->body.data) {
            uint64_t left = http->declared - http->got + len;
            size_t most = KG_EDGE_BODY_HELD + KG_EDGE_PIECE;
            (void)kg_buf_reserve(&http->body, left < most ? (size_t)left : most);
        }
        if (!http->ready && !http->body.data &&
            kg_buf_reserve(&http->body, (size_t)http->declared) < 0) {
            refuse(http, KG_ERR_OUT_OF_MEMORY, "No memory for the body.");
        } else if (http->got > http->declared || kg_buf_append(&http->body, data, len) < 0) {
            return -1;
        }
        body_clock(conn);
    }
    if (http->got == http->declared && !http->answered && !http->dispatched) {
        dispatch(http);
    } else if (http->ready && !http->answered) {
        hold(http);
        if (http->body.len >= KG_EDGE_BODY_READY) {
            kg_http_body_due(http);
        }
    } else if (http->got >= http->declared && http->ended) {
        lws_callback_on_writable(conn->wsi); /* answered early: now the connection can go on */
    }
    return 0;
}

int kg_http_on_body_end(kg_conn_t *conn)
{
    lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
    return conn->phase == KG_PHASE_LINGER ? -1 : 0;
}

/* --- Answer
 * ----------------------------------------------------------------------------------------------------------
 */

static int begin_answer(kg_http_t *http)
{
    if (http->answered) {
        return -EALREADY;
    }
    bool long_rest = http->ready && http->declared - http->got > KG_EDGE_KEEP_BODY;
    http->close_after = http->close_after || http->conn->edge->draining || long_rest;
    return 0;
}

static void answer_ready(kg_http_t *http)
{
    http->answered = true;
    kg_buf_fini(&http->body);
    http->conn->phase = KG_PHASE_SEND;
    unpark(http);
}

int kg_http_reply(kg_http_t *http,
                  int status,
                  const kg_header_t *headers,
                  size_t header_count,
                  const char *content_type,
                  kg_slice_t body)
{
    int rc = begin_answer(http);
    if (rc < 0) {
        return rc;
    }
    kg_answer_t answer = {status,       headers,           header_count,
                          content_type, (int64_t)body.len, http->close_after};
    rc = kg_answer_head(http->conn->edge, &http->tx, &answer);
    if (rc == 0 && !http->is_head && status != 204 && status != 304) {
        rc = kg_buf_append_slice(&http->tx, body);
    }
    if (rc < 0) {
        kg_buf_clear(&http->tx);
        return -ENOMEM;
    }
    http->ended = true;
    answer_ready(http);
    return 0;
}

int kg_http_reply_error(kg_http_t *http,
                        const kg_err_t *err,
                        const kg_header_t *headers,
                        size_t header_count)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    if (kg_edge_error_body(err, &body) < 0) {
        return -ENOMEM;
    }
    int status = kg_err_status(err->code);
    if (!err->retry_after_s && status != 429 && status != 503) {
        return kg_http_reply(http, status, headers, header_count, NULL, kg_buf_slice(&body));
    }
    char seconds[16]; /* what may pass by itself says when to ask again */
    snprintf(seconds, sizeof(seconds), "%u", err->retry_after_s ? err->retry_after_s : 1);
    KG_AUTO_FREE kg_header_t *all = calloc(header_count + 1, sizeof(*all));
    if (!all) {
        return -ENOMEM;
    }
    if (header_count) {
        memcpy(all, headers, header_count * sizeof(*all));
    }
    all[header_count] = (kg_header_t){"Retry-After", seconds};
    return kg_http_reply(http, kg_err_status(err->code), all, header_count + 1, NULL,
                         kg_buf_slice(&body));
}

void kg_http_announce(kg_http_t *http, uint64_t length)
{
    http->sized = true;
    http->left = length;
}

void kg_http_pour(kg_http_t *http, kg_pour_fn *pour)
{
    http->pour = http->sized && !http->conn->tls ? pour : NULL;
}

int kg_http_stream(kg_http_t *http,
                   int status,
                   const kg_header_t *headers,
                   size_t header_count,
                   const char *content_type,
                   kg_pull_fn *fill,
                   void *user)
{
    int rc = begin_answer(http);
    if (rc < 0) {
        return rc;
    }
    http->chunked = !http->http10 && !http->sized;
    http->close_after = http->close_after || (http->http10 && !http->sized);
    int64_t length = http->sized     ? (int64_t)http->left
                     : http->chunked ? KG_LENGTH_CHUNKED
                                     : KG_LENGTH_TO_END;
    kg_answer_t answer = {status, headers, header_count, content_type, length, http->close_after};
    rc = kg_answer_head(http->conn->edge, &http->tx, &answer);
    if (rc < 0) {
        kg_buf_clear(&http->tx);
        return rc;
    }
    http->fill = fill;
    http->fill_user = user;
    http->ended = http->is_head;
    answer_ready(http);
    return 0;
}

void kg_http_wake(kg_http_t *http)
{
    http->woken = true;
    if (http->answered && !http->blocked_ns && !http->writing) {
        unpark(http);
    }
}

/* Asks the source for the next chunk. "%08zx\r\n" in front is filled in once the size is known. */
static kg_pull_t pull(kg_http_t *http)
{
    kg_buf_t *tx = &http->tx;
    size_t begin = tx->len;
    if (http->chunked && kg_buf_append_cstr(tx, "00000000\r\n") < 0) {
        return KG_PULL_ABORT;
    }
    size_t data = tx->len;
    kg_pull_t result = http->fill(http->fill_user, tx, KG_EDGE_PIECE - 64);
    size_t got = tx->len - data;
    if (http->chunked && got > 0) {
        char size[9];
        snprintf(size, sizeof(size), "%08zx", got & 0xffffffffu);
        memcpy(tx->data + begin, size, 8);
        if (kg_buf_append_cstr(tx, "\r\n") < 0) {
            return KG_PULL_ABORT;
        }
    } else if (http->chunked) {
        tx->len = begin;
    }
    if (http->sized) {
        if (got > http->left || (result == KG_PULL_END && got < http->left)) {
            return KG_PULL_ABORT;
        }
        http->left -= got;
        result = http->left == 0 && result == KG_PULL_MORE ? KG_PULL_END : result;
    }
    if (result == KG_PULL_END) {
        http->ended = true;
        if (http->chunked && kg_buf_append_cstr(tx, "0\r\n\r\n") < 0) {
            return KG_PULL_ABORT;
        }
    }
    return result == KG_PULL_MORE && got == 0 ? KG_PULL_WAIT : result;
}

/* Something to write in tx: 1; nothing now: 0; cut the connection: -1. */
static int refill(kg_http_t *http)
{
    if (http->tx_off < http->tx.len) {
        return 1;
    }
    kg_buf_clear(&http->tx);
    http->tx_off = 0;
    if (http->ended || !http->fill) {
        return 0;
    }
    if (pull(http) == KG_PULL_ABORT) {
        http->aborted = true;
        return -1;
    }
    return http->tx.len > 0 ? 1 : 0;
}

/* Closing with unread bytes would reset the connection, which could take the answer from the
 * client. */
static int linger(kg_conn_t *conn, bool lws_reads)
{
    conn->phase = KG_PHASE_LINGER;
    conn->deadline_ns = kg_now_ns() + KG_EDGE_LINGER_NS;
    if (!lws_reads) {
        kg_lws_look_away(conn->wsi);
        (void)shutdown(lws_get_socket_fd(conn->wsi), SHUT_WR);
    }
    return 0;
}

static int finish(kg_http_t *http)
{
    kg_conn_t *conn = http->conn;
    bool unread = http->got < http->declared;
    bool lws_reads = http->lws_reads;
    if (!http->close_after && unread) {
        conn->phase = KG_PHASE_BODY; /* its rest is thrown away, then comes the next request */
        conn->deadline_ns = kg_now_ns() + conn->edge->opts.body_timeout_ms * KG_NS_PER_MS;
        return 0;
    }
    bool close_now = http->close_after || conn->edge->draining;
    bool rest = unread || http->more_unread;
    kg_http_over(http);
    if (close_now && rest) {
        return linger(conn, lws_reads);
    }
    if (close_now) {
        conn->phase = KG_PHASE_DEAD;
        return -1;
    }
    conn_next(conn);
    return lws_http_transaction_completed(conn->wsi) ? -1 : 0;
}

static void conn_next(kg_conn_t *conn)
{
    conn->phase = KG_PHASE_HEAD;
    conn->begun = false;
    conn->rx_mark = kg_conn_received(conn);
    conn->deadline_ns = kg_now_ns() + conn->edge->opts.idle_timeout_ms * KG_NS_PER_MS;
}

/* One piece. Nonzero when the connection is dead. */
static int write_piece(kg_http_t *http)
{
    size_t n = http->tx.len - http->tx_off;
    n = n < KG_EDGE_PIECE ? n : KG_EDGE_PIECE;
    unsigned char *data = (unsigned char *)http->tx.data + http->tx_off;
    if (lws_write(http->conn->wsi, data, n, LWS_WRITE_HTTP) < 0) {
        return -1;
    }
    http->tx_off += n;
    return 0;
}

static bool has_more(const kg_http_t *http)
{
    return http->tx_off < http->tx.len || (!http->ended && http->fill);
}

/* After a piece: what is to wake us next. */
static int go_on(kg_http_t *http, bool wrote)
{
    struct lws *wsi = http->conn->wsi;
    bool more = has_more(http);
    if (lws_partial_buffered(wsi) || (more && wrote && lws_send_pipe_choked(wsi))) {
        http->blocked_ns = kg_now_ns();
        park(http, true);
    } else if (more && (wrote || http->woken)) {
        lws_callback_on_writable(wsi);
    } else if (http->ended) {
        return finish(http);
    } else {
        park(http, false); /* until the source wakes us */
    }
    return 0;
}

static int cut(kg_http_t *http)
{
    http->conn->phase = KG_PHASE_DEAD;
    kg_http_over(http);
    return -1;
}

/* The head is out, the body goes past lws. */
static int pour(kg_http_t *http)
{
    uint64_t sent = 0;
    http->writing = true;
    int fd = lws_get_socket_fd(http->conn->wsi);
    kg_pull_t result = http->pour(http->fill_user, fd, &sent);
    http->writing = false;
    if (result == KG_PULL_ABORT || sent > http->left ||
        (result == KG_PULL_END && sent < http->left)) {
        return cut(http);
    }
    http->left -= sent;
    if (http->left == 0) {
        http->ended = true;
        return finish(http);
    }
    if (result == KG_PULL_MORE) {
        http->blocked_ns = kg_now_ns();
    }
    park(http, result == KG_PULL_MORE);
    return 0;
}

int kg_http_on_writeable(kg_conn_t *conn)
{
    kg_http_t *http = conn->http;
    if (!http || !http->answered) {
        return conn->phase == KG_PHASE_DEAD ? -1 : 0;
    }
    http->blocked_ns = 0;
    http->woken = false;
    if (http->pour && !http->ended && http->tx_off == http->tx.len) {
        return pour(http);
    }
    http->writing = true;
    int more = refill(http);
    http->writing = false;
    if (more > 0 && write_piece(http) < 0) {
        return -1;
    }
    return more < 0 ? cut(http) : go_on(http, more > 0);
}

void kg_http_set_user(kg_http_t *http, void *user)
{
    http->user = user;
}

void *kg_http_user(const kg_http_t *http)
{
    return http->user;
}

bool kg_http_answered(const kg_http_t *http)
{
    return http->answered;
}
