/* proto: messages of clients. One table says what there is: on which channels, for which kernels,
 * and of which fields the content is made. What is not in the table does not reach a kernel. */
#include "proto/client_msg.h"

#include <errno.h>
#include <inttypes.h>

#include "gateway/base/utf8.h"

enum {
    FIELDS_MAX = 9,
};

#define ON_SHELL (1U << KG_CHANNEL_SHELL)
#define ON_CONTROL (1U << KG_CHANNEL_CONTROL)
#define ON_STDIN (1U << KG_CHANNEL_STDIN)

typedef enum shape {
    SHAPE_CODE,   /* string without U+0000, within code_max */
    SHAPE_CURSOR, /* integer, cut to what the code before it has in code points */
    SHAPE_TEXT,
    SHAPE_BOOL,
    SHAPE_INT, /* cut to 0 … max */
    SHAPE_OBJECT,
} shape_t;

typedef struct field {
    const char *name;
    shape_t shape;
    const char *missing; /* JSON for absent and null; NULL: it is needed; "": it is left out */
    int64_t max;
} field_t;

typedef struct entry {
    const char *msg_type;
    kg_client_kind_t kind;
    unsigned channels;
    unsigned feature;
    bool own; /* the gateway carries it out itself: no content is written */
    bool buffers;
    field_t fields[FIELDS_MAX];
} entry_t;

#define CODE                                                                                       \
    {                                                                                              \
        "code", SHAPE_CODE, "\"\"", 0                                                              \
    }
#define CURSOR                                                                                     \
    {                                                                                              \
        "cursor_pos", SHAPE_CURSOR, "", 0                                                          \
    }
#define COMM_ID                                                                                    \
    {                                                                                              \
        "comm_id", SHAPE_TEXT, NULL, 0                                                             \
    }
#define COMM_DATA                                                                                  \
    {                                                                                              \
        "data", SHAPE_OBJECT, "{}", 0                                                              \
    }

static const entry_t entries[] = {
    {.msg_type = "execute_request", .kind = KG_CLIENT_EXECUTE, .channels = ON_SHELL, .own = true},
    {.msg_type = "kernel_info_request",
     .kind = KG_CLIENT_KERNEL_INFO,
     .channels = ON_SHELL | ON_CONTROL},
    {.msg_type = "complete_request",
     .kind = KG_CLIENT_COMPLETE,
     .channels = ON_SHELL,
     .fields = {CODE, CURSOR}},
    {.msg_type = "inspect_request",
     .kind = KG_CLIENT_INSPECT,
     .channels = ON_SHELL,
     .fields = {CODE, CURSOR, {"detail_level", SHAPE_INT, "0", 1}}},
    {.msg_type = "is_complete_request",
     .kind = KG_CLIENT_IS_COMPLETE,
     .channels = ON_SHELL,
     .fields = {CODE}},
    {.msg_type = "history_request",
     .kind = KG_CLIENT_HISTORY,
     .channels = ON_SHELL,
     .fields = {{"output", SHAPE_BOOL, "false", 0},
                {"raw", SHAPE_BOOL, "true", 0},
                {"hist_access_type", SHAPE_TEXT, "\"tail\"", 0},
                {"session", SHAPE_INT, "0", INT32_MAX},
                {"start", SHAPE_INT, "0", INT32_MAX},
                {"stop", SHAPE_INT, "null", INT32_MAX},
                {"n", SHAPE_INT, "10", KG_CLIENT_HISTORY_MAX},
                {"pattern", SHAPE_TEXT, "\"*\"", 0},
                {"unique", SHAPE_BOOL, "false", 0}}},
    {.msg_type = "comm_info_request",
     .kind = KG_CLIENT_COMM_INFO,
     .channels = ON_SHELL | ON_CONTROL,
     .fields = {{"target_name", SHAPE_TEXT, "", 0}}},
    {.msg_type = "comm_open",
     .kind = KG_CLIENT_COMM_OPEN,
     .channels = ON_SHELL,
     .buffers = true,
     .fields = {COMM_ID,
                {"target_name", SHAPE_TEXT, NULL, 0},
                {"target_module", SHAPE_TEXT, "", 0},
                COMM_DATA}},
    {.msg_type = "comm_msg",
     .kind = KG_CLIENT_COMM_MSG,
     .channels = ON_SHELL,
     .buffers = true,
     .fields = {COMM_ID, COMM_DATA}},
    {.msg_type = "comm_close",
     .kind = KG_CLIENT_COMM_CLOSE,
     .channels = ON_SHELL,
     .buffers = true,
     .fields = {COMM_ID, COMM_DATA}},
    {.msg_type = "input_reply", .kind = KG_CLIENT_INPUT_REPLY, .channels = ON_STDIN, .own = true},
    {.msg_type = "interrupt_request",
     .kind = KG_CLIENT_INTERRUPT,
     .channels = ON_CONTROL | ON_SHELL,
     .own = true},
    {.msg_type = "shutdown_request",
     .kind = KG_CLIENT_SHUTDOWN,
     .channels = ON_CONTROL | ON_SHELL,
     .own = true},
    {.msg_type = "debug_request",
     .kind = KG_CLIENT_DEBUG,
     .channels = ON_CONTROL,
     .feature = KG_CLIENT_DEBUGGER,
     .fields = {{"seq", SHAPE_INT, "0", INT32_MAX},
                {"type", SHAPE_TEXT, "\"request\"", 0},
                {"command", SHAPE_TEXT, NULL, 0},
                {"arguments", SHAPE_OBJECT, "{}", 0}}},
    {.msg_type = "create_subshell_request",
     .kind = KG_CLIENT_CREATE_SUBSHELL,
     .channels = ON_CONTROL,
     .feature = KG_CLIENT_SUBSHELLS},
    {.msg_type = "delete_subshell_request",
     .kind = KG_CLIENT_DELETE_SUBSHELL,
     .channels = ON_CONTROL,
     .feature = KG_CLIENT_SUBSHELLS,
     .fields = {{"subshell_id", SHAPE_TEXT, NULL, 0}}},
    {.msg_type = "list_subshell_request",
     .kind = KG_CLIENT_LIST_SUBSHELL,
     .channels = ON_CONTROL,
     .feature = KG_CLIENT_SUBSHELLS},
};

void kg_client_msg_fini(kg_client_msg_t *msg)
{
    if (!msg) {
        return;
    }
    kg_buf_fini(&msg->header);
    kg_buf_fini(&msg->metadata);
    kg_buf_fini(&msg->content);
    kg_buf_fini(&msg->text);
    kg_buf_fini(&msg->execute.user_expressions);
    *msg = (kg_client_msg_t){0};
}

static bool is_missing(kg_json_value_t value)
{
    return value.type == KG_JSON_ABSENT || value.type == KG_JSON_NULL;
}

/* ---- the header ---- */

static int refuse_header(kg_err_t *err, int rc, const char *what, const char *why)
{
    if (rc == -ENOMEM) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory for a message");
    }
    (void)kg_err_set(err, KG_ERR_INVALID_FRAME, "message refused: %s %s", what, why);
    return rc;
}

static int
read_object(kg_slice_t text, size_t max, const char *name, kg_json_value_t *ret, kg_err_t *err)
{
    if (text.len > max) {
        return refuse_header(err, -E2BIG, name, "is too large");
    }
    int rc = kg_json_check(text, KG_JSON_DEPTH_MAX, ret);
    if (rc < 0) {
        return refuse_header(err, rc, name,
                             rc == -E2BIG ? "is nested too deep" : "is not valid JSON");
    }
    return ret->type == KG_JSON_OBJECT ? 0 : refuse_header(err, -EBADMSG, name, "is not an object");
}

/* Missing is "". */
static int
take_string(kg_json_value_t value, const char *name, char *ret, size_t cap, kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    if (is_missing(value)) {
        ret[0] = '\0';
        return 0;
    }
    if (value.type != KG_JSON_STRING) {
        return refuse_header(err, -EBADMSG, name, "is not a string");
    }
    int rc = kg_json_decode_string(&text, value);
    if (rc < 0) {
        return refuse_header(err, rc, name, "is not a string");
    }
    if (text.len >= cap || (text.len > 0 && memchr(text.data, 0, text.len))) {
        return refuse_header(err, -EBADMSG, name, "is too long or holds U+0000");
    }
    if (text.len > 0) {
        memcpy(ret, text.data, text.len);
    }
    ret[text.len] = '\0';
    return 0;
}

/* The strings that no answer quotes by themselves must be strings all the same: clients that get
 * the header back read them. But jupyter_server's own gateway client (nbclient, papermill) writes
 * its date as seconds, and nobody trips over that. */
static int check_others(kg_json_value_t header, kg_err_t *err)
{
    static const char *const names[] = {"username", "version", "date"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many(header, names, v, KG_ARRAY_LEN(names));
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        bool seconds = v[i].type == KG_JSON_NUMBER && strcmp(names[i], "date") == 0;
        if (!is_missing(v[i]) && v[i].type != KG_JSON_STRING && !seconds) {
            return refuse_header(err, -EBADMSG, names[i], "is not a string");
        }
    }
    return 0;
}

static int read_header(kg_json_value_t header, kg_client_msg_t *msg, kg_err_t *err)
{
    static const char *const names[] = {"msg_type", "msg_id", "session", "subshell_id"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many(header, names, v, KG_ARRAY_LEN(names));
    int rc = take_string(v[0], "header.msg_type", msg->msg_type, sizeof msg->msg_type, err);
    rc = rc < 0 ? rc : take_string(v[1], "header.msg_id", msg->msg_id, sizeof msg->msg_id, err);
    rc = rc < 0 ? rc : take_string(v[2], "header.session", msg->session, sizeof msg->session, err);
    if (msg->channel == KG_CHANNEL_SHELL) {
        rc = rc < 0 ? rc
                    : take_string(v[3], "header.subshell_id", msg->subshell_id,
                                  sizeof msg->subshell_id, err);
    }
    rc = rc < 0 ? rc : check_others(header, err);
    if (rc == 0 && (!msg->msg_type[0] || !msg->msg_id[0])) {
        return refuse_header(err, -EBADMSG, "header", "has no msg_id or no msg_type");
    }
    return rc;
}

int kg_client_msg_open(const kg_ws_msg_t *frame, kg_client_msg_t *msg, kg_err_t *err)
{
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t out = {.channel = frame->channel};
    kg_json_value_t header = {0};
    kg_json_value_t parent = {0};
    int rc = read_object(frame->parts[0], KG_CLIENT_HEADER_MAX, "header", &header, err);
    rc = rc < 0 ? rc
                : read_object(frame->parts[1], KG_CLIENT_HEADER_MAX, "parent_header", &parent, err);
    rc = rc < 0 ? rc : read_header(header, &out, err);
    rc = rc < 0 ? rc
                : take_string(kg_json_get(parent, "msg_id"), "parent_header.msg_id", out.parent_id,
                              sizeof out.parent_id, err);
    if (rc == 0 && kg_json_copy(&out.header, header) < 0) {
        rc = refuse_header(err, -ENOMEM, "header", "");
    }
    if (rc == 0) {
        *msg = out;
        out = (kg_client_msg_t){0};
    }
    return rc;
}

/* ---- content ---- */

static int
refuse(kg_err_t *err, kg_err_code_t code, const char *type, const char *name, const char *why)
{
    int rc = kg_err_set(err, code, "%s: %s %s", type, name, why);
    return code == KG_ERR_NOT_SUPPORTED ? -ENOTSUP : rc;
}

static int bad(kg_err_t *err, const char *type, const char *name, const char *why)
{
    return refuse(err, KG_ERR_INVALID_REQUEST, type, name, why);
}

static int no_memory(kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory for a message");
}

typedef struct writer {
    const kg_client_limits_t *limits;
    const char *type;
    kg_buf_t *out;
    size_t points; /* of the code that was written last */
    kg_err_t *err;
} writer_t;

/* Repaired on its way: lone surrogates and bad bytes make a kernel say nothing, or exit. */
static int read_code(kg_json_value_t value, const char *name, const writer_t *w, kg_buf_t *ret)
{
    if (value.type != KG_JSON_STRING) {
        return bad(w->err, w->type, name, "is not a string");
    }
    if (kg_json_decode_string(ret, value) < 0) {
        return no_memory(w->err);
    }
    if (ret->len > w->limits->code_max) {
        return refuse(w->err, KG_ERR_TOO_LARGE, w->type, name, "is too large");
    }
    if (ret->len > 0 && memchr(ret->data, 0, ret->len)) {
        return bad(w->err, w->type, name, "holds U+0000, which no language takes");
    }
    return 0;
}

static int put_code(kg_json_value_t value, const field_t *field, writer_t *w)
{
    KG_AUTO_BUF kg_buf_t code = {0};
    int rc = read_code(value, field->name, w, &code);
    if (rc < 0) {
        return rc;
    }
    w->points = code.len > 0 ? kg_utf8_count(code.data, code.len) : 0;
    return kg_json_quote(w->out, code.data, code.len) < 0 ? no_memory(w->err) : 0;
}

/* What is no plain integer is refused; what is out of range is as near as can be. */
static int put_int(kg_json_value_t value, const field_t *field, int64_t max, const writer_t *w)
{
    int64_t n = 0;
    int rc = value.type == KG_JSON_NUMBER ? kg_json_int(value, &n) : -EINVAL;
    if (rc == -ERANGE) {
        n = value.raw.data[0] == '-' ? 0 : max;
    } else if (rc < 0) {
        return bad(w->err, w->type, field->name, "is not an integer");
    }
    n = n < 0 ? 0 : n > max ? max : n;
    return kg_buf_printf(w->out, "%" PRId64, n) < 0 ? no_memory(w->err) : 0;
}

static int put_value(kg_json_value_t value, const field_t *field, writer_t *w)
{
    bool is_bool = value.type == KG_JSON_TRUE || value.type == KG_JSON_FALSE;
    switch (field->shape) {
    case SHAPE_CODE:
        return put_code(value, field, w);
    case SHAPE_CURSOR:
        return put_int(value, field, (int64_t)w->points, w);
    case SHAPE_INT:
        return put_int(value, field, field->max, w);
    case SHAPE_TEXT:
        if (value.type != KG_JSON_STRING) {
            return bad(w->err, w->type, field->name, "is not a string");
        }
        break;
    case SHAPE_BOOL:
        if (!is_bool) {
            return bad(w->err, w->type, field->name, "is not true or false");
        }
        break;
    case SHAPE_OBJECT:
        if (value.type != KG_JSON_OBJECT) {
            return bad(w->err, w->type, field->name, "is not an object");
        }
        break;
    }
    return kg_json_copy(w->out, value) < 0 ? no_memory(w->err) : 0;
}

static int put_missing(const field_t *field, const writer_t *w)
{
    int rc = field->shape == SHAPE_CURSOR ? kg_buf_printf(w->out, "%zu", w->points)
                                          : kg_buf_append_cstr(w->out, field->missing);
    return rc < 0 ? no_memory(w->err) : 0;
}

static int put_field(kg_json_value_t value, const field_t *field, writer_t *w)
{
    bool missing = is_missing(value);
    if (missing && !field->missing) {
        return bad(w->err, w->type, field->name, "is missing");
    }
    if (missing && field->missing[0] == '\0' && field->shape != SHAPE_CURSOR) {
        return 0;
    }
    if (kg_buf_printf(w->out, "%s\"%s\":", w->out->len > 1 ? "," : "", field->name) < 0) {
        return no_memory(w->err);
    }
    return missing ? put_missing(field, w) : put_value(value, field, w);
}

static int write_content(kg_json_value_t content, const entry_t *entry, writer_t *w)
{
    int rc = kg_buf_append_char(w->out, '{') < 0 ? no_memory(w->err) : 0;
    for (size_t i = 0; i < FIELDS_MAX && entry->fields[i].name && rc == 0; i++) {
        const field_t *field = &entry->fields[i];
        rc = put_field(kg_json_get(content, field->name), field, w);
    }
    if (rc < 0) {
        return rc;
    }
    return kg_buf_append_char(w->out, '}') < 0 ? no_memory(w->err) : 0;
}

/* ---- what the gateway carries out itself ---- */

static int
take_bool(kg_json_value_t value, const char *name, bool *in_out, const char *type, kg_err_t *err)
{
    if (value.type == KG_JSON_TRUE || value.type == KG_JSON_FALSE) {
        *in_out = value.type == KG_JSON_TRUE;
        return 0;
    }
    return is_missing(value) ? 0 : bad(err, type, name, "is not true or false");
}

static int read_execute(kg_json_value_t content, const writer_t *w, kg_client_msg_t *msg)
{
    static const char *const names[] = {"code",        "silent",        "store_history",
                                        "allow_stdin", "stop_on_error", "user_expressions"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many(content, names, v, KG_ARRAY_LEN(names));
    int rc = read_code(v[0], names[0], w, &msg->text);
    rc = rc < 0 ? rc : take_bool(v[1], names[1], &msg->execute.silent, w->type, w->err);
    msg->execute.store_history = !msg->execute.silent;
    msg->execute.stop_on_error = true;
    rc = rc < 0 ? rc : take_bool(v[2], names[2], &msg->execute.store_history, w->type, w->err);
    rc = rc < 0 ? rc : take_bool(v[3], names[3], &msg->execute.allow_stdin, w->type, w->err);
    rc = rc < 0 ? rc : take_bool(v[4], names[4], &msg->execute.stop_on_error, w->type, w->err);
    if (rc == 0 && !is_missing(v[5]) && v[5].type != KG_JSON_OBJECT) {
        rc = bad(w->err, w->type, names[5], "is not an object");
    }
    if (rc < 0) {
        return rc;
    }
    kg_buf_t *expressions = &msg->execute.user_expressions;
    rc = is_missing(v[5]) ? kg_buf_append_cstr(expressions, "{}") : kg_json_copy(expressions, v[5]);
    return rc < 0 ? no_memory(w->err) : 0;
}

static int read_input(kg_json_value_t content, const writer_t *w, kg_client_msg_t *msg)
{
    kg_json_value_t value = kg_json_get(content, "value");
    if (is_missing(value)) {
        return 0;
    }
    if (value.type != KG_JSON_STRING) {
        return bad(w->err, w->type, "value", "is not a string");
    }
    return kg_json_decode_string(&msg->text, value) < 0 ? no_memory(w->err) : 0;
}

static int read_own(kg_json_value_t content, const writer_t *w, kg_client_msg_t *msg)
{
    if (msg->kind == KG_CLIENT_EXECUTE) {
        return read_execute(content, w, msg);
    }
    if (msg->kind == KG_CLIENT_INPUT_REPLY) {
        return read_input(content, w, msg);
    }
    if (msg->kind == KG_CLIENT_SHUTDOWN) {
        return take_bool(kg_json_get(content, "restart"), "restart", &msg->restart, w->type,
                         w->err);
    }
    return 0;
}

/* ---- the whole ---- */

static const entry_t *find_entry(const kg_client_msg_t *msg, unsigned features, kg_err_t *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(entries); i++) {
        const entry_t *entry = &entries[i];
        if (strcmp(entry->msg_type, msg->msg_type) != 0) {
            continue;
        }
        if (!(entry->channels & 1U << msg->channel)) {
            break;
        }
        if (entry->feature & ~features) {
            (void)refuse(err, KG_ERR_NOT_SUPPORTED, msg->msg_type, "this kernel",
                         "has nothing of the kind");
            return NULL;
        }
        return entry;
    }
    (void)refuse(err, KG_ERR_NOT_SUPPORTED, msg->msg_type, "no such message goes to",
                 kg_channel_name(msg->channel));
    return NULL;
}

/* An object within its cap. Absent text (a frame's empty part) is none. */
static int check_part(kg_slice_t text,
                      size_t max,
                      const char *type,
                      const char *name,
                      kg_json_value_t *ret,
                      kg_err_t *err)
{
    if (text.len > max) {
        return refuse(err, KG_ERR_TOO_LARGE, type, name, "is too large");
    }
    int rc = kg_json_check(text, KG_JSON_DEPTH_MAX, ret);
    if (rc == -E2BIG) {
        return refuse(err, KG_ERR_TOO_LARGE, type, name, "is nested too deep");
    }
    return rc == 0 && ret->type == KG_JSON_OBJECT ? 0 : bad(err, type, name, "is no JSON object");
}

int kg_client_msg_check(const kg_ws_msg_t *frame,
                        const kg_client_limits_t *limits,
                        kg_client_msg_t *msg,
                        kg_err_t *err)
{
    kg_json_value_t metadata = {0};
    kg_json_value_t content = {0};
    const entry_t *entry = find_entry(msg, limits->features, err);
    if (!entry) {
        return -ENOTSUP;
    }
    int rc = check_part(frame->parts[2], KG_CLIENT_METADATA_MAX, msg->msg_type, "metadata",
                        &metadata, err);
    rc = rc < 0 ? rc
                : check_part(frame->parts[3], limits->content_max, msg->msg_type, "content",
                             &content, err);
    if (rc < 0) {
        return rc;
    }
    msg->kind = entry->kind;
    writer_t w = {.limits = limits, .type = msg->msg_type, .out = &msg->content, .err = err};
    rc = entry->own ? read_own(content, &w, msg) : write_content(content, entry, &w);
    if (rc == 0 && kg_json_copy(&msg->metadata, metadata) < 0) {
        rc = no_memory(err);
    }
    if (msg->kind == KG_CLIENT_DELETE_SUBSHELL) {
        (void)take_string(kg_json_get(content, "subshell_id"), "", msg->subshell_id,
                          sizeof msg->subshell_id, NULL);
    }
    if (rc == 0 && entry->buffers) {
        msg->buffers = frame->buffers;
        msg->buffer_count = frame->buffer_count;
    }
    return rc;
}
