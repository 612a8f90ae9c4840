/* One WebSocket. Frames are made here (and in ws_queue.c) and handed to lws as raw bytes, many in
 * one write: one lws_write and one turn of the loop per frame would cost ten times as much. Every
 * write holds whole frames, so lws can put its own control frames between any two of ours. Long
 * messages are cut into fragments for the same reason. */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "gateway/base/utf8.h"
#include "gateway/edge/edge_priv.h"

#define OP_CONTINUATION 0x0u
#define OP_TEXT 0x1u
#define OP_BINARY 0x2u
#define OP_PING 0x9u
#define FIN 0x80u
#define MASKED 0x80u
#define KEY_LEN 4u

size_t kg_ws_queued(const kg_ws_t *ws)
{
    return ws->queue.bytes;
}

/* What is to be sent goes out before the loop sleeps: what comes in one turn in few writes, and
 * without a look at whether the socket has room, which it mostly has. */
static void want_flush(kg_ws_t *ws)
{
    kg_edge_t *edge = ws->conn->edge;
    if (ws->asked || ws->to_flush) {
        return;
    }
    if (edge->asleep) { /* or about to be: that was before */
        ws->asked = true;
        lws_callback_on_writable(ws->conn->wsi);
        return;
    }
    ws->to_flush = true;
    DL_APPEND2(edge->to_flush, ws, flush_prev, flush_next);
}

static int after_add(kg_ws_t *ws, int rc)
{
    if (rc == 0) {
        want_flush(ws);
    }
    return rc;
}

int kg_ws_send(kg_ws_t *ws, kg_slice_t text)
{
    return ws->closing ? -EPIPE : after_add(ws, kg_ws_queue_add(&ws->queue, OP_TEXT, text));
}

int kg_ws_send_binary(kg_ws_t *ws, kg_slice_t data)
{
    return ws->closing ? -EPIPE : after_add(ws, kg_ws_queue_add(&ws->queue, OP_BINARY, data));
}

int kg_ws_send_held(
    kg_ws_t *ws, bool binary, const kg_slice_t *pieces, size_t count, const kg_hold_t *hold)
{
    unsigned op = binary ? OP_BINARY : OP_TEXT;
    return ws->closing ? -EPIPE
                       : after_add(ws, kg_ws_queue_add_held(&ws->queue, op, pieces, count, hold));
}

void kg_ws_take_bytes(kg_ws_t *ws)
{
    ws->takes_bytes = true;
}

void kg_ws_take_unsent(kg_ws_t *ws, kg_ws_unsent_fn *fn, void *user)
{
    kg_ws_queue_take(&ws->queue, fn, user);
}

void kg_ws_set_queue_max(kg_ws_t *ws, size_t bytes)
{
    ws->queue.max = bytes;
}

void kg_ws_set_source(kg_ws_t *ws, kg_ws_pull_fn *fill, void *user)
{
    ws->fill = fill;
    ws->fill_user = user;
    kg_ws_wake(ws);
}

void kg_ws_wake(kg_ws_t *ws)
{
    if (ws->fill && !ws->src_ready) {
        ws->src_ready = true;
        want_flush(ws);
    }
}

void kg_ws_pause(kg_ws_t *ws, bool paused)
{
    if (ws->paused != paused) {
        ws->paused = paused;
        ws->last_rx_ns = kg_now_ns();
        lws_rx_flow_control(ws->conn->wsi, paused ? 0 : 1);
    }
}

void kg_ws_close(kg_ws_t *ws, unsigned code, const char *reason)
{
    if (ws->closing) {
        return;
    }
    ws->closing = true;
    ws->close_code = code;
    strncpy(ws->close_reason, reason ? reason : "", sizeof(ws->close_reason) - 1);
    ws->close_deadline_ns = kg_now_ns() + KG_EDGE_WS_CLOSE_NS;
    kg_ws_pause(ws, false); /* or the client's own close would not be read */
    lws_callback_on_writable(ws->conn->wsi);
}

void kg_ws_set_user(kg_ws_t *ws, void *user)
{
    ws->user = user;
}

void *kg_ws_user(const kg_ws_t *ws)
{
    return ws->user;
}

/* --- Writing
 * ---------------------------------------------------------------------------------------------------------
 */

/* Asks the source once and frames what it gave, in place. False when it has nothing now. */
static bool pull_frame(kg_ws_t *ws)
{
    size_t begin = ws->src.len;
    char room[KG_EDGE_WS_HEADER_MAX] = {0};
    if (kg_buf_append(&ws->src, room, sizeof(room)) < 0) {
        return false;
    }
    bool end = false;
    kg_pull_t result = ws->fill(ws->fill_user, &ws->src, KG_EDGE_WS_FRAGMENT, &end);
    size_t len = ws->src.len - begin - KG_EDGE_WS_HEADER_MAX;
    if (result == KG_PULL_ABORT || result == KG_PULL_END) {
        ws->fill = NULL;
        end = true;
    }
    if (len == 0 && !(end && ws->src_mid)) {
        ws->src.len = begin;
        ws->src_ready = false;
        return false;
    }
    unsigned char header[KG_EDGE_WS_HEADER_MAX];
    size_t n =
        kg_ws_put_header(header, (ws->src_mid ? OP_CONTINUATION : OP_TEXT) | (end ? FIN : 0), len);
    memcpy(ws->src.data + begin, header, n);
    memmove(ws->src.data + begin + n, ws->src.data + begin + KG_EDGE_WS_HEADER_MAX, len);
    ws->src.len -= KG_EDGE_WS_HEADER_MAX - n;
    ws->src_mid = !end;
    ws->src_ready = ws->fill && result == KG_PULL_MORE;
    if (result == KG_PULL_ABORT) {
        kg_ws_close(ws, 1011, "internal error");
    }
    return ws->src_ready;
}

static void fill_from_source(kg_ws_t *ws)
{
    kg_buf_clear(&ws->src);
    if (!ws->fill || !ws->src_ready) {
        return;
    }
    uint64_t begin_ns = kg_now_ns();
    while (ws->src.len < KG_EDGE_PIECE - KG_EDGE_WS_FRAGMENT && pull_frame(ws) &&
           kg_now_ns() - begin_ns < KG_EDGE_SOURCE_NS) {
    }
}

static int write_raw(kg_ws_t *ws, char *data, size_t len)
{
    if (lws_write(ws->conn->wsi, (unsigned char *)data, len, LWS_WRITE_HTTP) < 0) { /* as it is */
        return -1;
    }
    return 0;
}

/* 1 wrote something, 0 nothing to write, -1 dead. */
static int write_some(kg_ws_t *ws)
{
    if (ws->ping_due) {
        char ping[3] = {(char)(OP_PING | FIN), 1,
                        '.'}; /* lws does not tell of a pong without payload */
        ws->ping_due = false;
        ws->ping_ns = kg_now_ns();
        return write_raw(ws, ping, sizeof(ping)) < 0 ? -1 : 1;
    }
    if (ws->queue.bytes > 0 && !ws->src_mid) {
        return kg_ws_queue_write(&ws->queue, ws->conn);
    }
    if (ws->closing && !ws->src_mid) {
        return 0;
    }
    fill_from_source(ws);
    if (ws->src.len > 0) {
        return write_raw(ws, ws->src.data, ws->src.len) < 0 ? -1 : 1;
    }
    if (ws->src.cap > 0 && !ws->src_ready) {
        kg_buf_fini(&ws->src);
    }
    return 0;
}

static bool has_output(const kg_ws_t *ws)
{
    return ws->ping_due || ws->queue.bytes > 0 || (ws->fill && ws->src_ready);
}

/* As much as the socket takes, but not past a turn's share. 1 wrote something, 0 nothing to write,
 * -1 dead. */
static int write_turn(kg_ws_t *ws)
{
    int wrote = 0;
    for (unsigned i = 0; i < KG_EDGE_WS_WRITES; i++) {
        int rc = write_some(ws);
        if (rc <= 0) {
            return rc < 0 ? rc : wrote;
        }
        wrote = rc;
        if (lws_partial_buffered(ws->conn->wsi)) {
            break;
        }
    }
    return wrote;
}

/* After a turn in which something was written. */
static void ask_again(kg_ws_t *ws, bool look)
{
    struct lws *wsi = ws->conn->wsi;
    bool more = has_output(ws) || ws->closing;
    bool partial = lws_partial_buffered(wsi);
    if (partial || (look && more && lws_send_pipe_choked(wsi))) {
        ws->blocked_ns = kg_now_ns();
    }
    if (more || partial) {
        ws->asked = true;
        lws_callback_on_writable(wsi);
    }
}

int kg_ws_on_writeable(kg_conn_t *conn)
{
    kg_ws_t *ws = conn->ws;
    if (!ws) {
        return 0;
    }
    ws->blocked_ns = 0;
    ws->asked = false;
    int wrote = write_turn(ws);
    if (wrote < 0) {
        return -1;
    }
    if (wrote > 0) {
        ask_again(ws, true);
        return 0;
    }
    if (ws->closing && !ws->close_sent) {
        ws->close_sent = true;
        lws_set_timer_usecs(conn->wsi,
                            1); /* a close from here would lose its frame under libuv (trap 2) */
    }
    return 0;
}

static void not_listed(kg_ws_t *ws)
{
    if (ws->to_flush) {
        ws->to_flush = false;
        DL_DELETE2(ws->conn->edge->to_flush, ws, flush_prev, flush_next);
    }
}

void kg_ws_flush_all(kg_edge_t *edge)
{
    while (edge->to_flush) {
        kg_ws_t *ws = edge->to_flush;
        not_listed(ws);
        if (ws->asked || ws->blocked_ns || lws_partial_buffered(ws->conn->wsi)) {
            ws->asked = true;
            lws_callback_on_writable(ws->conn->wsi);
        } else if (write_turn(ws) < 0) {
            kg_conn_kill(ws->conn);
        } else {
            ask_again(ws, false);
        }
    }
}

int kg_ws_on_timer(kg_conn_t *conn)
{
    kg_ws_t *ws = conn->ws;
    if (!ws || !ws->closing) {
        return 0;
    }
    lws_close_reason(conn->wsi, (enum lws_close_status)ws->close_code,
                     (unsigned char *)ws->close_reason, strlen(ws->close_reason));
    return -1;
}

/* --- Reading
 * ---------------------------------------------------------------------------------------------------------
 */

bool kg_frames_masked(kg_frames_t *frames, const char *data, size_t len)
{
    unsigned char *head = frames->head;
    for (size_t at = 0; at < len;) {
        if (frames->skip > 0) {
            size_t n = len - at < frames->skip ? len - at : (size_t)frames->skip;
            at += n;
            frames->skip -= n;
            continue;
        }
        head[frames->have++] = (unsigned char)data[at++];
        if (frames->have < 2) {
            continue;
        }
        if (!(head[1] & MASKED)) {
            return false;
        }
        unsigned code = head[1] & ~MASKED;
        unsigned more = code == 126 ? 2 : code == 127 ? 8 : 0;
        if (frames->have < 2 + more) {
            continue;
        }
        uint64_t size = more ? 0 : code;
        for (unsigned i = 0; i < more; i++) {
            size = size << 8 | head[2 + i];
        }
        frames->skip = size + KEY_LEN; /* lws refuses one of more than 2^63 */
        frames->have = 0;
    }
    return true;
}

void kg_ws_on_bytes(kg_conn_t *conn, const char *data, size_t len)
{
    kg_ws_t *ws = conn->ws;
    if (ws && !ws->closing && !kg_frames_masked(&ws->frames, data, len)) {
        kg_ws_close(ws, 1002, "a client's frames are masked");
    }
}

int kg_ws_on_open(kg_conn_t *conn)
{
    kg_ws_t *ws = calloc(1, sizeof(*ws));
    if (!ws) {
        return -1;
    }
    ws->conn = conn;
    ws->user = conn->ws_user;
    ws->queue.max = conn->edge->opts.ws_queue_max;
    ws->last_rx_ns = kg_now_ns();
    conn->ws = ws;
    conn->phase = KG_PHASE_WS;
    conn->edge->handler.on_ws_open(ws, conn->edge->handler.user);
    return 0;
}

static int fail_with(kg_ws_t *ws, unsigned code, const char *reason)
{
    unsigned char text[64];
    size_t len = strnlen(reason, sizeof(text));
    for (size_t i = 0; i < len; i++) {
        text[i] = (unsigned char)reason[i];
    }
    lws_close_reason(ws->conn->wsi, (enum lws_close_status)code, text, len);
    return -1;
}

/* Text is checked here and not by lws, which lets half a character pass before an empty last
 * fragment. */
static int deliver(kg_ws_t *ws, kg_slice_t message)
{
    kg_edge_handler_t *handler = &ws->conn->edge->handler;
    bool binary = lws_frame_is_binary(ws->conn->wsi);
    if (!binary && !kg_utf8_valid(message.data, message.len)) {
        if (!ws->takes_bytes) {
            return fail_with(ws, 1007, "text is not UTF-8");
        }
        binary = true;
    }
    if (!ws->closing) {
        handler->on_ws_message(ws, message, binary, handler->user);
    }
    if (ws->rx.cap > KG_EDGE_BUFFER_KEPT) {
        kg_buf_fini(&ws->rx);
    }
    kg_buf_clear(&ws->rx);
    return 0;
}

int kg_ws_on_receive(kg_conn_t *conn, const char *data, size_t len)
{
    kg_ws_t *ws = conn->ws;
    if (!ws) {
        return 0;
    }
    ws->last_rx_ns = kg_now_ns();
    size_t rest = lws_remaining_packet_payload(conn->wsi);
    size_t sum = 0;
    if (!kg_add_size(ws->rx.len + len, rest, &sum) || sum > conn->edge->opts.ws_message_max) {
        return fail_with(ws, 1009, "message too large");
    }
    bool whole = lws_is_final_fragment(conn->wsi) && rest == 0;
    if (whole && ws->rx.len == 0) {
        return deliver(ws, kg_slice(len ? data : "", len));
    }
    if (kg_buf_append(&ws->rx, len ? data : "", len) < 0) {
        return fail_with(ws, 1013, "out of memory");
    }
    return whole ? deliver(ws, kg_buf_slice(&ws->rx)) : 0;
}

int kg_ws_on_pong(kg_conn_t *conn)
{
    if (conn->ws) {
        conn->ws->last_rx_ns = kg_now_ns();
        conn->ws->ping_ns = 0;
    }
    return 0;
}

void kg_ws_scan(kg_ws_t *ws, uint64_t now_ns)
{
    const kg_edge_opts_t *opts = &ws->conn->edge->opts;
    if (ws->closing) {
        if (now_ns > ws->close_deadline_ns) {
            kg_conn_kill(ws->conn);
        }
        return;
    }
    if (ws->paused || ws->blocked_ns) {
        return; /* it cannot answer, or the ping cannot reach it; blocked for long is stalled, see
                   conn.c */
    }
    if (ws->ping_ns && ws->last_rx_ns >= ws->ping_ns) {
        ws->ping_ns = 0;
    }
    if (ws->ping_ns && now_ns - ws->ping_ns > opts->pong_ms * KG_NS_PER_MS) {
        kg_conn_kill(ws->conn);
    } else if (!ws->ping_ns && !ws->ping_due &&
               now_ns - ws->last_rx_ns > opts->ping_ms * KG_NS_PER_MS) {
        ws->ping_due = true;
        lws_callback_on_writable(ws->conn->wsi);
    }
}

void kg_ws_over(kg_ws_t *ws)
{
    kg_conn_t *conn = ws->conn;
    conn->ws = NULL;
    conn->edge->handler.on_ws_close(ws, conn->edge->handler.user);
    not_listed(ws);
    kg_buf_fini(&ws->rx);
    kg_ws_queue_fini(&ws->queue);
    kg_buf_fini(&ws->src);
    free(ws);
}
