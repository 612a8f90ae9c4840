/* gateway/compat: large messages for servers that are clients. */
#include "gateway/compat/fit.h"

#include "proto/json_scan.h"

enum {
    HEADER,
    CONTENT = KG_WS_PARTS - 1,
    KEPT_MAX = 4096, /* bytes of a display's transient that its note keeps */
};

static kg_json_value_t object_of(kg_slice_t part)
{
    return (kg_json_value_t){.type = KG_JSON_OBJECT, .raw = part};
}

static int
send_content(const kg_ws_msg_t *msg, const kg_buf_t *content, kg_fit_fn *send, void *user)
{
    kg_ws_msg_t fitted = *msg;
    fitted.parts[CONTENT] = kg_buf_slice(content);
    return send(user, &fitted);
}

static int write_piece(kg_buf_t *out, kg_slice_t name, kg_slice_t text)
{
    kg_buf_clear(out);
    int rc = kg_buf_append_cstr(out, "{\"name\":");
    rc = rc < 0 ? rc : kg_buf_append_slice(out, name);
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, ",\"text\":\"");
    rc = rc < 0 ? rc : kg_buf_append_slice(out, text);
    return rc < 0 ? rc : kg_buf_append_cstr(out, "\"}");
}

static int send_stream(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user)
{
    kg_json_value_t content = object_of(msg->parts[CONTENT]);
    kg_json_value_t name = kg_json_get(content, "name");
    kg_json_value_t text = kg_json_get(content, "text");
    KG_AUTO_BUF kg_buf_t body = {0};
    KG_AUTO_BUF kg_buf_t piece = {0};
    if (name.type != KG_JSON_STRING || text.type != KG_JSON_STRING) {
        return send(user, msg);
    }
    int rc = kg_json_copy_string_body(&body, text);
    for (size_t at = 0; rc == 0 && at < body.len;) {
        size_t len = kg_json_escaped_floor(body.data + at, body.len - at, KG_FIT_PIECE);
        rc = write_piece(&piece, name.raw, kg_slice(body.data + at, len));
        rc = rc < 0 ? rc : send_content(msg, &piece, send, user);
        at += len;
    }
    return rc;
}

/* What a client finds the output by stays. */
static int keep_member(kg_buf_t *out, kg_json_value_t content, const char *name)
{
    kg_json_value_t value = kg_json_get(content, name);
    if (value.type == KG_JSON_ABSENT || value.raw.len > KEPT_MAX) {
        return 0;
    }
    int rc = kg_buf_printf(out, ",\"%s\":", name);
    return rc < 0 ? rc : kg_buf_append_slice(out, value.raw);
}

static int send_note(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user)
{
    KG_AUTO_BUF kg_buf_t note = {0};
    kg_json_value_t content = object_of(msg->parts[CONTENT]);
    int rc = kg_buf_printf(&note,
                           "{\"data\":{\"text/plain\":\"[An output of %.1f MB is not shown: "
                           "through a gateway one may have %zu MiB.]\"},\"metadata\":{}",
                           (double)content.raw.len / 1e6, KG_FIT_MAX >> 20);
    rc = rc < 0 ? rc : keep_member(&note, content, "transient");
    rc = rc < 0 ? rc : keep_member(&note, content, "execution_count");
    rc = rc < 0 ? rc : kg_buf_append_char(&note, '}');
    return rc < 0 ? rc : send_content(msg, &note, send, user);
}

static bool is_type(kg_json_value_t type, const char *name)
{
    return kg_json_key_eq(type.raw, name);
}

int kg_fit_each(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user)
{
    size_t bytes = 0;
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        bytes += msg->parts[i].len;
    }
    kg_json_value_t type = {0};
    if (bytes > KG_FIT_MAX && msg->channel == KG_CHANNEL_IOPUB) {
        type = kg_json_get(object_of(msg->parts[HEADER]), "msg_type");
    }
    if (type.type != KG_JSON_STRING) {
        return send(user, msg);
    }
    if (is_type(type, "stream")) {
        return send_stream(msg, send, user);
    }
    bool display = is_type(type, "display_data") || is_type(type, "update_display_data") ||
                   is_type(type, "execute_result");
    return display ? send_note(msg, send, user) : send(user, msg);
}
