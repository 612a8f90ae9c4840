/* gateway/compat: large messages for servers that are clients. */
#include "gateway/compat/fit.h"

#include "proto/json_scan.h"

enum {
    HEADER,
    PARENT,
    METADATA,
    CONTENT,
    METADATA_MAX = 32768, /* more of it is left out too */
    KEPT_MAX = 4096,      /* bytes of a display's transient that its note keeps */
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
    fitted.held[CONTENT] = false;
    if (fitted.parts[METADATA].len > METADATA_MAX) {
        fitted.parts[METADATA] = kg_slice_cstr("{}");
    }
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
static int keep_member(kg_buf_t *out, kg_json_value_t object, const char *name)
{
    kg_json_value_t value = kg_json_get(object, name);
    if (value.type == KG_JSON_ABSENT || value.raw.len > KEPT_MAX) {
        return 0;
    }
    int rc = kg_buf_printf(out, "%s\"%s\":", out->len > 1 ? "," : "", name);
    return rc < 0 ? rc : kg_buf_append_slice(out, value.raw);
}

static int keep_members(kg_buf_t *out, kg_json_value_t object, const char *const *names)
{
    int rc = 0;
    for (size_t i = 0; names[i] && rc == 0; i++) {
        rc = keep_member(out, object, names[i]);
    }
    return rc;
}

static int write_left_out(kg_buf_t *out, const char *what, kg_slice_t content)
{
    return kg_buf_printf(out,
                         "[%s of %.1f MB is not shown: through a gateway one may have %zu MiB.]",
                         what, (double)content.len / 1e6, KG_FIT_MAX >> 20);
}

/* In its place on iopub, or before its reply: a line on stderr. */
static int send_line(const kg_ws_msg_t *msg, const char *what, kg_fit_fn *send, void *user)
{
    static const char *const names[] = {"msg_id", "username", "session", "date", "version", NULL};
    KG_AUTO_BUF kg_buf_t header = {0};
    KG_AUTO_BUF kg_buf_t content = {0};
    kg_ws_msg_t line = {.channel = KG_CHANNEL_IOPUB};
    int rc = kg_buf_append_cstr(&header, "{\"msg_type\":\"stream\"");
    rc = rc < 0 ? rc : keep_members(&header, object_of(msg->parts[HEADER]), names);
    rc = rc < 0 ? rc : kg_buf_append_char(&header, '}');
    rc = rc < 0 ? rc : kg_buf_append_cstr(&content, "{\"name\":\"stderr\",\"text\":\"");
    rc = rc < 0 ? rc : write_left_out(&content, what, msg->parts[CONTENT]);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&content, "\\n\"}");
    if (rc < 0) {
        return rc;
    }
    line.parts[HEADER] = kg_buf_slice(&header);
    line.parts[PARENT] = msg->parts[PARENT];
    line.parts[METADATA] = kg_slice_cstr("{}");
    line.parts[CONTENT] = kg_buf_slice(&content);
    return send(user, &line);
}

/* An error or a reply: how it ended stays, and a client sees that the rest is missing. */
static int send_short(const kg_ws_msg_t *msg, bool ok, kg_fit_fn *send, void *user)
{
    static const char *const names[] = {"status", "execution_count", "ename", NULL};
    KG_AUTO_BUF kg_buf_t content = {0};
    kg_json_value_t whole = object_of(msg->parts[CONTENT]);
    int rc = kg_buf_append_char(&content, '{');
    rc = rc < 0 ? rc : keep_members(&content, whole, names);
    if (ok) {
        rc = rc < 0 ? rc : send_line(msg, "A reply", send, user);
        rc = rc < 0 ? rc : kg_buf_append_cstr(&content, ",\"user_expressions\":{},\"payload\":[]}");
        return rc < 0 ? rc : send_content(msg, &content, send, user);
    }
    rc = rc < 0
             ? rc
             : kg_buf_append_cstr(&content, content.len > 1 ? ",\"evalue\":\"" : "\"evalue\":\"");
    rc = rc < 0 ? rc : write_left_out(&content, "An error", whole.raw);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&content, "\",\"traceback\":[\"");
    rc = rc < 0 ? rc : write_left_out(&content, "A traceback", whole.raw);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&content, "\"]}");
    return rc < 0 ? rc : send_content(msg, &content, send, user);
}

/* Of another kind than an execute_reply: a failed one, for it would be of no use without the rest.
 */
static int send_failed(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    int rc = kg_buf_append_cstr(
        &content, "{\"status\":\"error\",\"ename\":\"too_large\",\"traceback\":[],\"evalue\":\"");
    rc = rc < 0 ? rc : write_left_out(&content, "A reply", msg->parts[CONTENT]);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&content, "\"}");
    return rc < 0 ? rc : send_content(msg, &content, send, user);
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

static int fit_reply(const kg_ws_msg_t *msg, kg_json_value_t type, kg_fit_fn *send, void *user)
{
    if (!is_type(type, "execute_reply")) {
        return send_failed(msg, send, user);
    }
    kg_json_value_t status = kg_json_get(object_of(msg->parts[CONTENT]), "status");
    return send_short(msg, is_type(status, "ok"), send, user);
}

int kg_fit_each(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user)
{
    size_t bytes = 0;
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        bytes += msg->parts[i].len;
    }
    kg_json_value_t type = {0};
    if (bytes > KG_FIT_MAX) {
        type = kg_json_get(object_of(msg->parts[HEADER]), "msg_type");
    }
    if (type.type != KG_JSON_STRING) {
        return send(user, msg);
    }
    if (msg->channel != KG_CHANNEL_IOPUB) {
        return fit_reply(msg, type, send, user);
    }
    if (is_type(type, "stream")) {
        return send_stream(msg, send, user);
    }
    if (is_type(type, "error")) {
        return send_short(msg, false, send, user);
    }
    bool display = is_type(type, "display_data") || is_type(type, "update_display_data") ||
                   is_type(type, "execute_result");
    return display ? send_note(msg, send, user) : send_line(msg, "A message", send, user);
}
