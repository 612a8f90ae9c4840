/* proto: every request that the gateway sends. Complete ones only: stock kernels hang or exit on a
 * missing field. Each takes a fresh number of the session, so the same bytes never go out twice
 * (two stock kernels would run them twice). */
#include "proto/request.h"

#include <errno.h>
#include <inttypes.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"

#define PROTOCOL_VERSION "5.3"

void kg_out_fini(kg_out_t *out)
{
    if (!out) {
        return;
    }
    kg_buf_fini(&out->sig);
    kg_buf_fini(&out->header);
    kg_buf_fini(&out->parent);
    kg_buf_fini(&out->metadata);
    kg_buf_fini(&out->content);
    for (size_t i = 0; i < out->buffer_count; i++) {
        kg_buf_fini(&out->buffers[i]);
    }
    free(out->buffers);
    out->buffers = NULL;
    out->buffer_count = 0;
    out->msg_id[0] = '\0';
}

int kg_out_add_buffers(kg_out_t *out, const kg_slice_t *buffers, size_t count)
{
    if (count == 0) {
        return 0;
    }
    if (count > KG_WIRE_FRAMES_MAX - KG_OUT_FRAMES) {
        return -E2BIG;
    }
    out->buffers = calloc(count, sizeof(*out->buffers));
    if (!out->buffers) {
        return -ENOMEM;
    }
    out->buffer_count = count;
    for (size_t i = 0; i < count; i++) {
        int rc = kg_buf_append_slice(&out->buffers[i], buffers[i]);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void kg_out_frames(const kg_out_t *out, kg_slice_t ret_frames[KG_OUT_FRAMES])
{
    ret_frames[0] = kg_slice_cstr("<IDS|MSG>");
    ret_frames[1] = kg_buf_slice(&out->sig);
    ret_frames[2] = kg_buf_slice(&out->header);
    ret_frames[3] = kg_buf_slice(&out->parent);
    ret_frames[4] = kg_buf_slice(&out->metadata);
    ret_frames[5] = kg_buf_slice(&out->content);
}

/* `"name":"text"` with what stands before it. */
static int put_string(kg_buf_t *out, const char *before, const char *name, kg_slice_t text)
{
    int rc = kg_buf_printf(out, "%s\"%s\":", before, name);
    return rc < 0 ? rc : kg_json_quote(out, text.data, text.len);
}

static int put_bool(kg_buf_t *out, const char *name, bool value)
{
    return kg_buf_printf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

/* An object of somebody else's making; absent = {}. */
static int put_object(kg_buf_t *out, kg_slice_t raw)
{
    kg_json_value_t value;
    if (!raw.data) {
        return kg_buf_append_cstr(out, "{}");
    }
    int rc = kg_json_check(raw, KG_JSON_DEPTH_MAX, &value);
    if (rc < 0 || value.type != KG_JSON_OBJECT) {
        return rc < 0 ? rc : -EINVAL;
    }
    return kg_json_copy(out, value);
}

static int
put_header(kg_buf_t *out, const kg_session_t *s, const char *msg_id, const kg_forward_args_t *what)
{
    const char *subshell = what->subshell_id;
    char date[KG_TIME_LEN];
    kg_time_format(kg_wall_ns(), date);
    int rc = put_string(out, "{", "msg_id", kg_slice_cstr(msg_id));
    rc = rc < 0 ? rc : put_string(out, ",", "username", kg_slice_cstr(s->username));
    rc = rc < 0 ? rc : put_string(out, ",", "session", kg_slice_cstr(s->id));
    rc = rc < 0 ? rc : put_string(out, ",", "date", kg_slice_cstr(date));
    rc = rc < 0 ? rc : put_string(out, ",", "msg_type", kg_slice_cstr(what->msg_type));
    if (subshell && subshell[0]) {
        rc = rc < 0 ? rc : put_string(out, ",", "subshell_id", kg_slice_cstr(subshell));
    }
    return rc < 0 ? rc : kg_buf_append_cstr(out, ",\"version\":\"" PROTOCOL_VERSION "\"}");
}

/* Header, parent, metadata (unless it is there) and signature around the content that is in `msg`;
 * hands it over. */
static int finish_for(
    kg_session_t *s, const kg_forward_args_t *what, kg_slice_t parent, kg_out_t *msg, kg_out_t *ret)
{
    int rc = kg_format(msg->msg_id, sizeof msg->msg_id, "%s_%" PRIu64, s->id, s->counter + 1);
    rc = rc < 0 ? rc : put_header(&msg->header, s, msg->msg_id, what);
    rc = rc < 0 ? rc : put_object(&msg->parent, parent);
    rc = rc < 0 || msg->metadata.len > 0 ? rc : kg_buf_append_cstr(&msg->metadata, "{}");
    if (rc < 0) {
        return rc;
    }
    const kg_slice_t parts[4] = {kg_buf_slice(&msg->header), kg_buf_slice(&msg->parent),
                                 kg_buf_slice(&msg->metadata), kg_buf_slice(&msg->content)};
    char sig[KG_WIRE_SIG_LEN + 1];
    kg_wire_sign(&s->key, parts, sig);
    rc = kg_buf_append_cstr(&msg->sig, sig);
    if (rc < 0) {
        return rc;
    }
    s->counter++;
    *ret = *msg;
    *msg = (kg_out_t){0};
    return 0;
}

static int
finish(kg_session_t *s, const char *msg_type, kg_slice_t parent, kg_out_t *msg, kg_out_t *ret)
{
    return finish_for(s, &(kg_forward_args_t){.msg_type = msg_type}, parent, msg, ret);
}

static int request_plain(kg_session_t *s, const char *msg_type, const char *content, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = kg_buf_append_cstr(&msg.content, content);
    return rc < 0 ? rc : finish(s, msg_type, (kg_slice_t){0}, &msg, ret);
}

int kg_request_execute(kg_session_t *s, const kg_execute_args_t *args, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    kg_buf_t *out = &msg.content;
    int rc = put_string(out, "{", "code", args->code);
    rc = rc < 0 ? rc : put_bool(out, "silent", args->silent);
    rc = rc < 0 ? rc : put_bool(out, "store_history", args->store_history);
    rc = rc < 0 ? rc : put_bool(out, "allow_stdin", args->allow_stdin);
    rc = rc < 0 ? rc : put_bool(out, "stop_on_error", args->stop_on_error);
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, ",\"user_expressions\":");
    rc = rc < 0 ? rc : put_object(out, args->user_expressions);
    rc = rc < 0 ? rc : kg_buf_append_char(out, '}');
    rc = rc < 0 ? rc : put_object(&msg.metadata, args->metadata);
    return rc < 0 ? rc : finish(s, "execute_request", (kg_slice_t){0}, &msg, ret);
}

int kg_request_kernel_info(kg_session_t *s, kg_out_t *ret)
{
    return request_plain(s, "kernel_info_request", "{}", ret);
}

int kg_request_complete(kg_session_t *s, kg_slice_t code, size_t cursor_cp, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = put_string(&msg.content, "{", "code", code);
    rc = rc < 0 ? rc : kg_buf_printf(&msg.content, ",\"cursor_pos\":%zu}", cursor_cp);
    return rc < 0 ? rc : finish(s, "complete_request", (kg_slice_t){0}, &msg, ret);
}

int kg_request_inspect(
    kg_session_t *s, kg_slice_t code, size_t cursor_cp, unsigned detail, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = put_string(&msg.content, "{", "code", code);
    rc = rc < 0 ? rc
                : kg_buf_printf(&msg.content, ",\"cursor_pos\":%zu,\"detail_level\":%u}", cursor_cp,
                                detail);
    return rc < 0 ? rc : finish(s, "inspect_request", (kg_slice_t){0}, &msg, ret);
}

int kg_request_is_complete(kg_session_t *s, kg_slice_t code, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = put_string(&msg.content, "{", "code", code);
    rc = rc < 0 ? rc : kg_buf_append_char(&msg.content, '}');
    return rc < 0 ? rc : finish(s, "is_complete_request", (kg_slice_t){0}, &msg, ret);
}

int kg_request_history(kg_session_t *s, unsigned n, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = kg_buf_printf(&msg.content,
                           "{\"output\":false,\"raw\":true,\"hist_access_type\":\"tail\","
                           "\"session\":0,\"start\":0,\"stop\":0,\"n\":%u,\"pattern\":\"*\","
                           "\"unique\":false}",
                           n);
    return rc < 0 ? rc : finish(s, "history_request", (kg_slice_t){0}, &msg, ret);
}

int kg_request_comm_info(kg_session_t *s, kg_out_t *ret)
{
    return request_plain(s, "comm_info_request", "{}", ret);
}

int kg_request_interrupt(kg_session_t *s, kg_out_t *ret)
{
    return request_plain(s, "interrupt_request", "{}", ret);
}

int kg_request_shutdown(kg_session_t *s, bool restart, kg_out_t *ret)
{
    return request_plain(s, "shutdown_request",
                         restart ? "{\"restart\":true}" : "{\"restart\":false}", ret);
}

int kg_reply_input(kg_session_t *s, kg_slice_t value_utf8, kg_slice_t parent_header, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = put_string(&msg.content, "{", "value", value_utf8);
    rc = rc < 0 ? rc : kg_buf_append_char(&msg.content, '}');
    return rc < 0 ? rc : finish(s, "input_reply", parent_header, &msg, ret);
}

int kg_request_forward(kg_session_t *s, const kg_forward_args_t *args, kg_out_t *ret)
{
    KG_AUTO(kg_out_fini) kg_out_t msg = {0};
    int rc = kg_buf_append_slice(&msg.metadata, args->metadata);
    rc = rc < 0 ? rc : kg_buf_append_slice(&msg.content, args->content);
    return rc < 0 ? rc : finish_for(s, args, (kg_slice_t){0}, &msg, ret);
}
