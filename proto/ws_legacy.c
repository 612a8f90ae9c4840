/* proto: the default WebSocket protocol. To the client the parts of the kernel are spliced into one
 * object, and nothing is written anew; from the client they are slices of its object. */
#include "proto/ws_legacy.h"

#include <errno.h>

enum {
    WORD = 4,
};

static uint32_t read_word(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void write_word(char *p, uint32_t value)
{
    for (size_t i = 0; i < WORD; i++) {
        p[i] = (char)(unsigned char)(value >> (8 * (WORD - 1 - i)));
    }
}

static int refuse(kg_err_t *err, int rc, const char *what, const char *why)
{
    (void)kg_err_set(err, KG_ERR_INVALID_FRAME, "frame refused: %s %s", what, why);
    return rc;
}

/* ---- from the client ---- */

static int take_channel(kg_json_value_t value, kg_channel_t *ret, kg_err_t *err)
{
    if (value.type == KG_JSON_ABSENT || value.type == KG_JSON_NULL) {
        *ret = KG_CHANNEL_SHELL;
        return 0;
    }
    if (value.type != KG_JSON_STRING) {
        return refuse(err, -EBADMSG, "channel", "is not a string");
    }
    if (kg_channel_parse(kg_slice(value.raw.data + 1, value.raw.len - 2), ret) < 0) {
        return refuse(err, -ENOENT, "channel", "is unknown");
    }
    return 0;
}

/* Buffers travel behind the object; in it there is at most an empty list. */
static int check_no_buffers(kg_json_value_t value, kg_err_t *err)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t item;
    if (value.type == KG_JSON_ABSENT || value.type == KG_JSON_NULL) {
        return 0;
    }
    kg_json_iter_init(&it, value);
    if (value.type != KG_JSON_ARRAY || kg_json_iter_next(&it, &key, &item)) {
        return refuse(err, -EBADMSG, "buffers", "in JSON must be an empty list");
    }
    return 0;
}

static int read_object(kg_slice_t text, kg_ws_msg_t *msg, kg_err_t *err)
{
    static const char *const names[] = {"header",  "parent_header", "metadata",
                                        "content", "channel",       "buffers"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_value_t object;
    int rc = kg_json_check(text, KG_WS_LEGACY_DEPTH_MAX, &object);
    if (rc < 0) {
        return refuse(err, rc, "it", rc == -E2BIG ? "is nested too deep" : "is not valid JSON");
    }
    if (object.type != KG_JSON_OBJECT) {
        return refuse(err, -EBADMSG, "it", "is not a JSON object");
    }
    kg_json_get_many(object, names, v, KG_ARRAY_LEN(names));
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        bool missing = v[i].type == KG_JSON_ABSENT || v[i].type == KG_JSON_NULL;
        if (v[i].type != KG_JSON_OBJECT && (i == 0 || !missing)) {
            return refuse(err, -EBADMSG, names[i], "is not a JSON object");
        }
        msg->parts[i] = missing ? kg_slice_cstr("{}") : v[i].raw;
    }
    rc = take_channel(v[4], &msg->channel, err);
    return rc < 0 ? rc : check_no_buffers(v[5], err);
}

/* Offsets are taken by the letter: some clients write more between two of them than they meant. */
static int
cut(kg_slice_t frame, kg_slice_t *store, size_t *ret_count, kg_slice_t *ret_json, kg_err_t *err)
{
    uint64_t count = frame.len >= WORD ? read_word(frame.data) : 0;
    if (count < 1 || count > frame.len / WORD - 1) {
        return refuse(err, -EBADMSG, "its table of offsets", "is no such table");
    }
    if (count > 1 + KG_WS_BUFFERS_MAX) {
        return refuse(err, -E2BIG, "it", "has too many buffers");
    }
    uint64_t at = WORD * (1 + count);
    for (size_t i = 0; i < count; i++) {
        uint64_t from = read_word(frame.data + WORD * (1 + i));
        uint64_t to = i + 1 < count ? read_word(frame.data + WORD * (2 + i)) : frame.len;
        if (from < at || to < from || to > frame.len) {
            return refuse(err, -EBADMSG, "its offsets", "do not follow each other");
        }
        kg_slice_t segment = kg_slice(frame.data + from, (size_t)(to - from));
        *(i == 0 ? ret_json : &store[i - 1]) = segment;
        at = to;
    }
    *ret_count = (size_t)count - 1;
    return 0;
}

int kg_ws_legacy_decode(kg_slice_t frame,
                        kg_slice_t store[KG_WS_BUFFERS_MAX],
                        kg_ws_msg_t *ret_msg,
                        kg_err_t *err)
{
    kg_ws_msg_t msg = {.buffers = store};
    kg_slice_t json = frame;
    int rc = 0;
    /* No JSON begins with a NUL, and every table does. */
    if (frame.len > 0 && frame.data[0] == '\0') {
        rc = cut(frame, store, &msg.buffer_count, &json, err);
    }
    rc = rc < 0 ? rc : read_object(json, &msg, err);
    if (rc == 0) {
        *ret_msg = msg;
    }
    return rc;
}

/* ---- to the client ---- */

static int put_member(kg_buf_t *out, const char *before, kg_slice_t value)
{
    int rc = kg_buf_append_cstr(out, before);
    return rc < 0 ? rc : kg_buf_append_slice(out, value);
}

static int put_before(kg_buf_t *out, const kg_ws_msg_t *msg)
{
    static const char *const before[] = {"{\"header\":", ",\"parent_header\":", ",\"metadata\":"};
    int rc = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(before) && rc == 0; i++) {
        rc = put_member(out, before[i], msg->parts[i]);
    }
    return rc < 0 ? rc : kg_buf_append_cstr(out, ",\"content\":");
}

static int put_behind(kg_buf_t *out, const kg_ws_msg_t *msg)
{
    static const char *const names[] = {"msg_id", "msg_type"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many((kg_json_value_t){KG_JSON_OBJECT, msg->parts[0]}, names, v,
                     KG_ARRAY_LEN(names));
    if (v[0].type != KG_JSON_STRING || v[1].type != KG_JSON_STRING) {
        return -EBADMSG;
    }
    int rc = kg_buf_printf(out, ",\"channel\":\"%s\",\"msg_id\":", kg_channel_name(msg->channel));
    rc = rc < 0 ? rc : kg_buf_append_slice(out, v[0].raw);
    rc = rc < 0 ? rc : put_member(out, ",\"msg_type\":", v[1].raw);
    /* Behind a table the buffers are the list. */
    return rc < 0 ? rc : kg_buf_append_cstr(out, msg->buffer_count > 0 ? "}" : ",\"buffers\":[]}");
}

static int put_object(kg_buf_t *out, const kg_ws_msg_t *msg)
{
    int rc = put_before(out, msg);
    rc = rc < 0 ? rc : kg_buf_append_slice(out, msg->parts[KG_WS_PARTS - 1]);
    return rc < 0 ? rc : put_behind(out, msg);
}

int kg_ws_legacy_around(const kg_ws_msg_t *msg, kg_buf_t *before, kg_buf_t *behind)
{
    int rc = put_before(before, msg);
    return rc < 0 ? rc : put_behind(behind, msg);
}

/* The table's place, the object, then the buffers, each noted in the table. */
static int put_binary(kg_buf_t *out, const kg_ws_msg_t *msg)
{
    size_t start = out->len;
    size_t table = WORD * (2 + msg->buffer_count);
    int rc = kg_buf_reserve(out, table);
    if (rc < 0) {
        return rc;
    }
    memset(out->data + start, 0, table);
    out->len += table;
    write_word(out->data + start, (uint32_t)(1 + msg->buffer_count));
    write_word(out->data + start + WORD, (uint32_t)table);
    rc = put_object(out, msg);
    for (size_t i = 0; i < msg->buffer_count && rc == 0; i++) {
        size_t at = out->len - start;
        if (at > KG_WS_LEGACY_FRAME_MAX || msg->buffers[i].len > KG_WS_LEGACY_FRAME_MAX - at) {
            return -E2BIG;
        }
        write_word(out->data + start + WORD * (2 + i), (uint32_t)at);
        rc = kg_buf_append_slice(out, msg->buffers[i]);
    }
    return rc;
}

int kg_ws_legacy_encode(const kg_ws_msg_t *msg, kg_buf_t *out)
{
    size_t start = out->len;
    int rc = msg->buffer_count > KG_WS_BUFFERS_MAX ? -E2BIG
             : msg->buffer_count > 0               ? put_binary(out, msg)
                                                   : put_object(out, msg);
    if (rc < 0) {
        out->len = start;
    }
    return rc;
}
