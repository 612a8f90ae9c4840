/* What one WebSocket has to send. Short messages lie framed one after the other in a buffer, many
 * to a write; long ones stay where they are, held, between any two of these, and are framed when
 * they are written: however many clients get such a message, it is there once. Every write ends
 * with a frame, or lws has the rest of it, so its own control frames can go between any two. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "gateway/edge/edge_priv.h"

#define OP_CONTINUATION 0x0u
#define OP_BINARY 0x2u
#define FIN 0x80u
#define HELD_FRAGMENT (KG_EDGE_PIECE - KG_EDGE_WS_HEADER_MAX)

size_t kg_ws_put_header(unsigned char *at, unsigned op_fin, size_t len)
{
    at[0] = (unsigned char)op_fin;
    if (len < 126) {
        at[1] = (unsigned char)len;
        return 2;
    }
    if (len < 65536) {
        at[1] = 126;
        at[2] = (unsigned char)(len >> 8);
        at[3] = (unsigned char)len;
        return 4;
    }
    at[1] = 127;
    for (unsigned i = 0; i < 8; i++) {
        at[2 + i] = (unsigned char)((uint64_t)len >> (56 - 8 * i));
    }
    return 10;
}

/* Length of the header of the frame that begins at data (one of ours, whole). */
static size_t header_len(const char *data)
{
    unsigned char code = (unsigned char)data[1];
    return code < 126 ? 2 : code == 126 ? 4 : KG_EDGE_WS_HEADER_MAX;
}

/* Length of all of it. */
static size_t frame_len(const char *data)
{
    const unsigned char *at = (const unsigned char *)data;
    size_t header = header_len(data);
    size_t len = header == 2 ? at[1] : 0;
    for (size_t i = 2; i < header; i++) {
        len = len << 8 | at[i];
    }
    return header + len;
}

static bool is_last(const char *frame)
{
    return (unsigned char)frame[0] & FIN;
}

/* ---- what is there ---- */

/* What is still queued of its largest message. */
static size_t big_left(const kg_ws_queue_t *q)
{
    uint64_t left = q->big_end > q->gone ? q->big_end - q->gone : 0;
    return left < q->big_len ? (size_t)left : q->big_len;
}

/* One big message makes no slow client: it is not held against what comes behind it. */
static bool is_behind(const kg_ws_queue_t *q, size_t need)
{
    size_t big = big_left(q);
    size_t beside = need > big ? q->bytes : q->bytes - big + need;
    return beside > q->max;
}

static void added(kg_ws_queue_t *q, size_t len)
{
    q->bytes += len;
    if (len >= big_left(q)) {
        q->big_len = len;
        q->big_end = q->gone + q->bytes;
    }
}

static void went(kg_ws_queue_t *q, size_t len)
{
    q->bytes -= len;
    q->gone += len;
}

static void held_free(kg_ws_queue_t *q, kg_ws_held_t *held)
{
    DL_DELETE(q->held, held);
    held->hold.drop(held->hold.owner);
    kg_buf_fini(&held->own);
    free(held);
}

void kg_ws_queue_fini(kg_ws_queue_t *q)
{
    while (q->held) {
        held_free(q, q->held);
    }
    q->out_gone += q->out.len - q->out_off;
    kg_buf_fini(&q->out);
    q->out_off = 0;
    q->msg_off = 0;
    went(q, q->bytes);
}

/* ---- in ---- */

int kg_ws_queue_add(kg_ws_queue_t *q, unsigned op, kg_slice_t data)
{
    size_t fragments = data.len / KG_EDGE_WS_FRAGMENT + 1;
    size_t need = 0;
    if (!kg_add_size(data.len, fragments * KG_EDGE_WS_HEADER_MAX, &need) || is_behind(q, need)) {
        return -ENOBUFS;
    }
    if (kg_buf_reserve(&q->out, need) < 0) {
        return -ENOMEM;
    }
    size_t before = q->out.len;
    size_t at = 0;
    do {
        unsigned char header[KG_EDGE_WS_HEADER_MAX];
        size_t n = data.len - at;
        n = n < KG_EDGE_WS_FRAGMENT ? n : KG_EDGE_WS_FRAGMENT;
        unsigned op_fin = (at ? OP_CONTINUATION : op) | (at + n == data.len ? FIN : 0);
        (void)kg_buf_append(&q->out, header, kg_ws_put_header(header, op_fin, n));
        (void)kg_buf_append(&q->out, data.data + at, n); /* there is room */
        at += n;
    } while (at < data.len);
    added(q, q->out.len - before);
    return 0;
}

int kg_ws_queue_add_held(
    kg_ws_queue_t *q, unsigned op, const kg_slice_t *pieces, size_t count, const kg_hold_t *hold)
{
    size_t len = 0;
    size_t copied = 0;
    for (size_t i = 0; i < count; i++) {
        if (!kg_add_size(len, pieces[i].len, &len)) {
            return -ENOBUFS;
        }
        copied += pieces[i].len < KG_EDGE_HELD_MIN ? pieces[i].len : 0;
    }
    if (is_behind(q, len)) {
        return -ENOBUFS;
    }
    kg_ws_held_t *held = calloc(1, sizeof(*held) + count * sizeof(held->pieces[0]));
    if (!held || kg_buf_reserve(&held->own, copied) < 0) {
        free(held);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        held->pieces[i] = pieces[i];
        if (pieces[i].len < KG_EDGE_HELD_MIN) {
            held->pieces[i].data = held->own.data + held->own.len;
            (void)kg_buf_append_slice(&held->own, pieces[i]); /* there is room: it stays in place */
        }
    }
    held->count = count;
    held->len = len;
    held->op = op;
    held->after = q->out_gone + (q->out.len - q->out_off);
    held->hold = *hold;
    hold->keep(hold->owner);
    DL_APPEND(q->held, held);
    added(q, len);
    return 0;
}

/* ---- out ---- */

static int write_plain(kg_conn_t *conn, const char *data, size_t len)
{
    unsigned char *bytes;
    memcpy(&bytes, &data,
           sizeof(bytes)); /* lws writes into what it is given only where it frames */
    return lws_write(conn->wsi, bytes, len, LWS_WRITE_HTTP) < 0 ? -1 : 0; /* as it is */
}

/* The message that is under way stays whole, for kg_ws_queue_take. */
static void compact(kg_ws_queue_t *q)
{
    if (q->out_off == q->out.len) {
        if (q->out.cap > KG_EDGE_BUFFER_KEPT) {
            kg_buf_fini(&q->out); /* an idle connection keeps no big buffer */
        }
        kg_buf_clear(&q->out);
        q->out_off = 0;
        q->msg_off = 0;
    } else if (q->msg_off > KG_EDGE_PIECE && q->msg_off > q->out.len / 2) {
        kg_buf_consume(&q->out, q->msg_off);
        q->out_off -= q->msg_off;
        q->msg_off = 0;
    }
}

/* Whole frames of the buffer, up to a piece, and to the next held message. ret_msg: where the
 * message begins that they end in. */
static size_t next_piece(const kg_ws_queue_t *q, size_t *ret_msg)
{
    size_t at = q->out_off;
    *ret_msg = q->msg_off;
    size_t end = q->out.len;
    if (q->held && q->held->after - q->out_gone < end - at) {
        end = at + (size_t)(q->held->after - q->out_gone);
    }
    while (at < end) {
        size_t len = frame_len(q->out.data + at);
        if (at > q->out_off && at + len - q->out_off > KG_EDGE_PIECE) {
            break;
        }
        bool last = is_last(q->out.data + at);
        at += len;
        *ret_msg = last ? at : *ret_msg;
    }
    return at - q->out_off;
}

/* The bytes from `from` on, as many as len. */
static int gather(const kg_ws_held_t *held, size_t from, size_t len, struct iovec *iov, int max)
{
    int n = 0;
    for (size_t i = 0; i < held->count && len > 0 && n < max; i++) {
        kg_slice_t piece = held->pieces[i];
        if (from >= piece.len) {
            from -= piece.len;
            continue;
        }
        size_t take = piece.len - from < len ? piece.len - from : len;
        iov[n].iov_len = take;
        const char *data = piece.data + from;
        memcpy(&iov[n].iov_base, &data, sizeof(data)); /* writev takes no const */
        n++;
        len -= take;
        from = 0;
    }
    return n;
}

/* What the socket did not take of the frame: lws keeps it, and sends it before all else. */
static int hand_over(kg_conn_t *conn, const struct iovec *iov, int n, size_t sent)
{
    KG_AUTO_BUF kg_buf_t rest = {0};
    for (int i = 0; i < n; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;
        sent -= skip;
        if (kg_buf_append(&rest, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip) < 0) {
            return -1; /* the client has half a frame */
        }
    }
    return rest.len > 0 ? write_plain(conn, rest.data, rest.len) : 0;
}

enum {
    IOV_MAX_HELD = 64
};

/* One fragment. */
static int write_held(kg_ws_queue_t *q, kg_conn_t *conn)
{
    kg_ws_held_t *held = q->held;
    struct iovec iov[IOV_MAX_HELD];
    unsigned char header[KG_EDGE_WS_HEADER_MAX];
    size_t len = held->len - held->gone < HELD_FRAGMENT ? held->len - held->gone : HELD_FRAGMENT;
    int n = 1 + gather(held, held->gone, len, iov + 1, IOV_MAX_HELD - 1);
    len = 0;
    for (int i = 1; i < n; i++) {
        len += iov[i].iov_len; /* less, where there are many pieces */
    }
    bool end = held->gone + len == held->len;
    unsigned op_fin = (held->gone > 0 ? OP_CONTINUATION : held->op) | (end ? FIN : 0);
    iov[0] = (struct iovec){header, kg_ws_put_header(header, op_fin, len)};
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    int fd = lws_get_socket_fd(conn->wsi);
    ssize_t sent = conn->tls ? 0 : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        sent = 0;
    }
    if (sent < 0 || hand_over(conn, iov, n, (size_t)sent) < 0) {
        return -1;
    }
    held->gone += len;
    went(q, len);
    if (end) {
        held_free(q, held);
    }
    return 1;
}

int kg_ws_queue_write(kg_ws_queue_t *q, kg_conn_t *conn)
{
    if (q->held && q->held->after == q->out_gone) {
        return write_held(q, conn);
    }
    size_t msg = 0;
    size_t n = next_piece(q, &msg);
    if (n == 0) {
        return 0;
    }
    if (write_plain(conn, q->out.data + q->out_off, n) < 0) {
        return -1;
    }
    q->msg_off = msg; /* not before: what a dead socket did not take is unsent */
    q->out_off += n;
    q->out_gone += n;
    went(q, n);
    compact(q);
    return 1;
}

/* ---- back ---- */

/* Puts the fragments of the message at `at` behind each other; 0 = OOM, else where it ends. */
static size_t join_frames(const kg_ws_queue_t *q, size_t at, kg_buf_t *message)
{
    const char *frame = NULL;
    do {
        frame = q->out.data + at;
        size_t len = frame_len(frame);
        size_t skip = header_len(frame);
        if (kg_buf_append(message, frame + skip, len - skip) < 0) {
            return 0;
        }
        at += len;
    } while (!is_last(frame));
    return at;
}

static int join_pieces(const kg_ws_held_t *held, kg_buf_t *message)
{
    int rc = kg_buf_reserve(message, held->len);
    for (size_t i = 0; i < held->count && rc == 0; i++) {
        rc = kg_buf_append_slice(message, held->pieces[i]);
    }
    return rc;
}

/* What has gone in part is the first: in the buffer from msg_off on, or held, of which all is there
 * until its end has been written. */
void kg_ws_queue_take(kg_ws_queue_t *q, kg_ws_unsent_fn *fn, void *user)
{
    KG_AUTO_BUF kg_buf_t message = {0};
    uint64_t base = q->out_gone - q->out_off; /* which byte the buffer begins with */
    size_t at = q->msg_off;
    while (q->held || at < q->out.len) {
        kg_ws_held_t *held = q->held && q->held->after <= base + at ? q->held : NULL;
        kg_buf_clear(&message);
        if (held) {
            if (join_pieces(held, &message) == 0) {
                fn(user, kg_buf_slice(&message), held->op == OP_BINARY);
            }
            held_free(q, held);
            continue;
        }
        bool binary = ((unsigned char)q->out.data[at] & ~FIN) == OP_BINARY;
        at = join_frames(q, at, &message);
        if (at == 0) {
            break;
        }
        fn(user, kg_buf_slice(&message), binary);
    }
    kg_ws_queue_fini(q);
}
