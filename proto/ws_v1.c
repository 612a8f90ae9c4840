/* proto: v1.kernel.websocket.jupyter.org. The table: how many offsets there are, then where each
 * segment begins, and last where the frame ends. All of it is a peer's word and checked. */
#include "proto/ws_v1.h"

#include <errno.h>

enum {
    WORD = 8,
    OFFSETS_MIN = 2 + KG_WS_PARTS, /* of the channel, the parts, and the end */
};

static uint64_t read_word(const char *p)
{
    uint64_t value = 0;
    for (size_t i = WORD; i > 0; i--) {
        value = value << 8 | (unsigned char)p[i - 1];
    }
    return value;
}

static int put_word(kg_buf_t *out, uint64_t value)
{
    char bytes[WORD];
    for (size_t i = 0; i < WORD; i++) {
        bytes[i] = (char)(unsigned char)(value >> (8 * i));
    }
    return kg_buf_append(out, bytes, sizeof bytes);
}

static int refuse(kg_err_t *err, int rc, const char *why)
{
    (void)kg_err_set(err, KG_ERR_INVALID_FRAME, "frame refused: %s", why);
    return rc;
}

/* The table is there, its offsets rise and end with the frame. */
static int check_table(kg_slice_t frame, size_t *ret_count, kg_err_t *err)
{
    uint64_t count = frame.len >= WORD ? read_word(frame.data) : 0;
    if (count < OFFSETS_MIN || count > (frame.len - WORD) / WORD) {
        return refuse(err, -EBADMSG, "its table of offsets is no such table");
    }
    if (count > OFFSETS_MIN + KG_WS_BUFFERS_MAX) {
        return refuse(err, -E2BIG, "it has too many buffers");
    }
    uint64_t at = WORD * (1 + count);
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = read_word(frame.data + WORD * (1 + i));
        if (i == 0 ? offset != at : offset < at) {
            return refuse(err, -EBADMSG, "its offsets do not follow each other");
        }
        at = offset;
    }
    if (at != frame.len) {
        return refuse(err, -EBADMSG, "its last offset is not its end");
    }
    *ret_count = (size_t)count;
    return 0;
}

static kg_slice_t segment(kg_slice_t frame, size_t index)
{
    uint64_t from = read_word(frame.data + WORD * (1 + index));
    uint64_t to = read_word(frame.data + WORD * (2 + index));
    return kg_slice(frame.data + from, (size_t)(to - from));
}

int kg_ws_v1_decode(kg_slice_t frame,
                    kg_slice_t store[KG_WS_BUFFERS_MAX],
                    kg_ws_msg_t *ret_msg,
                    kg_err_t *err)
{
    size_t count = 0;
    kg_ws_msg_t msg = {.buffers = store};
    int rc = check_table(frame, &count, err);
    if (rc < 0) {
        return rc;
    }
    if (kg_channel_parse(segment(frame, 0), &msg.channel) < 0) {
        return refuse(err, -EBADMSG, "its channel is unknown");
    }
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        msg.parts[i] = segment(frame, 1 + i);
    }
    msg.buffer_count = count - OFFSETS_MIN;
    for (size_t i = 0; i < msg.buffer_count; i++) {
        store[i] = segment(frame, 1 + KG_WS_PARTS + i);
    }
    *ret_msg = msg;
    return 0;
}

/* Segment i of the frame to be made. */
static kg_slice_t segment_of(const kg_ws_msg_t *msg, size_t i)
{
    if (i == 0) {
        return kg_slice_cstr(kg_channel_name(msg->channel));
    }
    return i <= KG_WS_PARTS ? msg->parts[i - 1] : msg->buffers[i - 1 - KG_WS_PARTS];
}

static int put_table(kg_buf_t *out, const kg_ws_msg_t *msg)
{
    size_t count = OFFSETS_MIN + msg->buffer_count;
    uint64_t at = WORD * (1 + count);
    int rc = put_word(out, count);
    rc = rc < 0 ? rc : put_word(out, at);
    for (size_t i = 0; i < count - 1 && rc == 0; i++) {
        uint64_t len = segment_of(msg, i).len;
        if (len > KG_WS_V1_FRAME_MAX - at) {
            return -E2BIG;
        }
        at += len;
        rc = put_word(out, at);
    }
    return rc < 0 ? rc : kg_buf_append_slice(out, segment_of(msg, 0));
}

int kg_ws_v1_prefix(const kg_ws_msg_t *msg, kg_buf_t *out)
{
    size_t start = out->len;
    int rc = msg->buffer_count > KG_WS_BUFFERS_MAX ? -E2BIG : put_table(out, msg);
    if (rc < 0) {
        out->len = start;
    }
    return rc;
}

int kg_ws_v1_encode(const kg_ws_msg_t *msg, kg_buf_t *out)
{
    size_t start = out->len;
    int rc = kg_ws_v1_prefix(msg, out);
    for (size_t i = 1; i <= KG_WS_PARTS + msg->buffer_count && rc == 0; i++) {
        rc = kg_buf_append_slice(out, segment_of(msg, i));
    }
    if (rc < 0) {
        out->len = start;
    }
    return rc;
}
