/* gateway/tool: a model's call, as its vendor's API gave it to the program. The envelope is the
 * program's business, name and arguments are the model's: what is wrong with those is told to the
 * model, which can do better. */
#include <errno.h>
#include <math.h>

#include "gateway/base/str.h"
#include "gateway/base/utf8.h"
#include "gateway/tool/tool.h"

enum {
    DEPTH_MAX = 64,
    SHOWN_MAX = 80,    /* bytes of the model's own words in what it is told */
    IGNORED_MAX = 200, /* bytes of the list of ignored arguments */
    NUMBER_MAX = 40    /* characters of a number */
};

void kg_tool_call_fini(kg_tool_call_t *call)
{
    kg_buf_fini(&call->id);
    kg_buf_fini(&call->name);
    kg_buf_fini(&call->code);
    kg_buf_fini(&call->context);
    kg_buf_fini(&call->language);
    kg_buf_fini(&call->problem);
    kg_buf_fini(&call->ignored);
}

/* --- Envelopes ------------------------------------------------------------------------------ */

/* Where a vendor has what. NULL = it has no such member. */
typedef struct envelope {
    const char *type;  /* value of `type` */
    const char *inner; /* member that holds name and arguments */
    const char *id;
    const char *arguments;
    const char *what; /* for the program that sent something else */
    bool type_needed;
    bool id_needed;
} envelope_t;

static const envelope_t envelopes[KG_TOOL_FORMAT_COUNT] = {
    [KG_TOOL_ANTHROPIC] = {"tool_use", NULL, "id", "input", "a tool_use block", true, true},
    [KG_TOOL_OPENAI] = {"function_call", NULL, "call_id", "arguments", "a function_call item", true,
                        true},
    /* Servers that speak this dialect leave `type` out now and then. */
    [KG_TOOL_OPENAI_CHAT] = {"function", "function", "id", "arguments", "an element of tool_calls",
                             false, true},
    [KG_TOOL_GEMINI] = {NULL, NULL, "id", "args", "a functionCall", false, false},
    [KG_TOOL_MCP] = {NULL, NULL, NULL, "arguments", "the params of tools/call", false, false},
};

static int refuse(kg_tool_format_t format, const char *pointer, const char *why, kg_err_t *err)
{
    int rc =
        kg_err_set(err, KG_ERR_INVALID_REQUEST, "This is not %s: %s.", envelopes[format].what, why);
    kg_err_pointer(err, "%s", pointer);
    kg_err_hint(err, "Send one call as the model's answer has it, with ?format= of its vendor.");
    return rc;
}

static bool string_is(kg_json_value_t value, const char *word)
{
    return value.type == KG_JSON_STRING && kg_json_key_eq(value.raw, word);
}

static bool given(kg_json_value_t value)
{
    return value.type != KG_JSON_ABSENT && value.type != KG_JSON_NULL;
}

static int check_type(kg_tool_format_t format, kg_json_value_t call, kg_err_t *err)
{
    const envelope_t *e = &envelopes[format];
    kg_json_value_t type = e->type ? kg_json_get(call, "type") : (kg_json_value_t){0};
    if (!e->type || (!e->type_needed && !given(type)) || string_is(type, e->type)) {
        return 0;
    }
    char why[64];
    (void)kg_format(why, sizeof why, "its type is not \"%s\"", e->type);
    return refuse(format, "/type", why, err);
}

/* Gemini's call is a part of the answer ({"functionCall":…}, from the Python SDK's model_dump
 * {"function_call":…}), or what is in there. */
static kg_json_value_t unwrap(kg_tool_format_t format, kg_json_value_t call)
{
    const char *const names[] = {"functionCall", "function_call"};
    for (size_t i = 0; format == KG_TOOL_GEMINI && i < KG_ARRAY_LEN(names); i++) {
        kg_json_value_t inner = kg_json_get(call, names[i]);
        if (given(inner)) {
            return inner;
        }
    }
    return call;
}

static int take_id(kg_tool_call_t *c, kg_json_value_t call, kg_err_t *err)
{
    const envelope_t *e = &envelopes[c->format];
    kg_json_value_t id = e->id ? kg_json_get(call, e->id) : (kg_json_value_t){0};
    char pointer[32] = "";
    (void)kg_format(pointer, sizeof pointer, "/%s", e->id ? e->id : "");
    if (!given(id)) {
        return e->id_needed ? refuse(c->format, pointer, "it has no id", err) : 0;
    }
    if (id.type != KG_JSON_STRING) {
        return refuse(c->format, pointer, "its id is not a string", err);
    }
    if (id.raw.len > KG_TOOL_ID_MAX) {
        int rc =
            kg_err_set(err, KG_ERR_INVALID_REQUEST, "The call's id has %zu bytes; %u are the most.",
                       id.raw.len, KG_TOOL_ID_MAX);
        kg_err_pointer(err, "%s", pointer);
        return rc;
    }
    return kg_json_copy(&c->id, id);
}

/* --- What the model wrote ------------------------------------------------------------------- */

static int append_shown(kg_buf_t *out, kg_json_value_t text)
{
    KG_AUTO_BUF kg_buf_t plain = {0};
    kg_slice_t raw = text.raw;
    if (raw.len > (size_t)SHOWN_MAX * 6) { /* decoded it is too long in any case */
        return kg_buf_append_cstr(out, "…");
    }
    int rc = kg_json_decode_string(&plain, text);
    size_t keep = plain.len;
    if (keep > SHOWN_MAX) {
        keep = kg_utf8_floor(plain.data, plain.len, SHOWN_MAX);
    }
    for (size_t i = 0; i < keep; i++) {
        if ((unsigned char)plain.data[i] < 0x20) {
            plain.data[i] = '?';
        }
    }
    rc = rc < 0 || keep == 0 ? rc : kg_buf_append(out, plain.data, keep);
    return rc < 0 || keep == plain.len ? rc : kg_buf_append_cstr(out, "…");
}

static int check_name(kg_tool_call_t *c, kg_json_value_t name)
{
    if (string_is(name, KG_TOOL_RUN_CODE)) {
        return 0;
    }
    int rc = kg_buf_append_cstr(&c->problem, "There is no tool \"");
    rc = rc < 0 ? rc : append_shown(&c->problem, name);
    return rc < 0
               ? rc
               : kg_buf_append_cstr(&c->problem, "\" here. The only one is " KG_TOOL_RUN_CODE ".");
}

static int blame(kg_tool_call_t *c, const char *name, const char *why)
{
    return kg_buf_printf(&c->problem, "The argument %s %s.", name, why);
}

/* An id or a name: short, and one line. */
static int take_ref(kg_tool_call_t *c, const char *name, kg_json_value_t value, kg_buf_t *ret_text)
{
    if (!given(value)) {
        return 0;
    }
    if (value.type != KG_JSON_STRING) {
        return blame(c, name, "must be a string");
    }
    if (value.raw.len > KG_TOOL_REF_MAX + 2) {
        return blame(c, name, "is too long");
    }
    int rc = kg_json_decode_string(ret_text, value);
    for (size_t i = 0; rc == 0 && i < ret_text->len; i++) {
        if ((unsigned char)ret_text->data[i] < 0x20) {
            return blame(c, name, "must not hold control characters");
        }
    }
    return rc;
}

static int take_timeout(kg_tool_call_t *c, kg_json_value_t value)
{
    char digits[NUMBER_MAX + 1];
    double seconds = 0;
    if (!given(value)) {
        return 0;
    }
    if (value.type != KG_JSON_NUMBER || value.raw.len > NUMBER_MAX) {
        return blame(c, "timeout", "must be a number of seconds");
    }
    memcpy(digits, value.raw.data, value.raw.len);
    digits[value.raw.len] = '\0';
    if (kg_parse_double(digits, &seconds) < 0 || !isfinite(seconds) || seconds <= 0) {
        return blame(c, "timeout", "must be a number of seconds above 0");
    }
    c->timeout_s = seconds;
    return 0;
}

static int take_code(kg_tool_call_t *c, kg_json_value_t code)
{
    if (!given(code)) {
        return blame(c, "code", "is missing: it is the code to run, a string");
    }
    if (code.type != KG_JSON_STRING) {
        return blame(c, "code", "must be a string");
    }
    return kg_json_decode_string(&c->code, code);
}

enum {
    ARG_CODE,
    ARG_LANGUAGE,
    ARG_CONTEXT,
    ARG_TIMEOUT,
    ARG_COUNT
};

static const char *const arg_names[ARG_COUNT] = {"code", "language", "context", "timeout"};

static int note_ignored(kg_tool_call_t *c, kg_json_value_t arguments)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    int rc = 0;
    kg_json_iter_init(&it, arguments);
    while (rc == 0 && c->ignored.len < IGNORED_MAX && kg_json_iter_next(&it, &key, &value)) {
        bool known = false;
        for (size_t i = 0; i < ARG_COUNT; i++) {
            known |= kg_json_key_eq(key, arg_names[i]);
        }
        if (!known) {
            rc = c->ignored.len ? kg_buf_append_cstr(&c->ignored, ", ") : 0;
            rc = rc < 0 ? rc : append_shown(&c->ignored, (kg_json_value_t){KG_JSON_STRING, key});
        }
    }
    return rc;
}

static int take_arguments(kg_tool_call_t *c, kg_json_value_t arguments)
{
    kg_json_value_t values[ARG_COUNT];
    if (arguments.type != KG_JSON_OBJECT) {
        return kg_buf_append_cstr(
            &c->problem, "The arguments are not a JSON object. Call it with {\"code\": \"…\"}.");
    }
    kg_json_get_many(arguments, arg_names, values, ARG_COUNT);
    int rc = take_code(c, values[ARG_CODE]);
    if (rc == 0 && c->problem.len == 0) {
        rc = take_ref(c, arg_names[ARG_LANGUAGE], values[ARG_LANGUAGE], &c->language);
    }
    if (rc == 0 && c->problem.len == 0) {
        rc = take_ref(c, arg_names[ARG_CONTEXT], values[ARG_CONTEXT], &c->context);
    }
    if (rc == 0 && c->problem.len == 0) {
        rc = take_timeout(c, values[ARG_TIMEOUT]);
    }
    return rc < 0 || c->problem.len ? rc : note_ignored(c, arguments);
}

/* OpenAI's are JSON in a string, the others' an object; each may come as the other, from servers
 * that only look like the vendor's, and from streams that were put together by hand. */
static int read_arguments(kg_tool_call_t *c, kg_json_value_t arguments)
{
    if (arguments.type != KG_JSON_STRING) {
        return take_arguments(c, arguments);
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_json_value_t object = {0};
    int rc = kg_json_decode_string(&text, arguments);
    if (rc < 0) {
        return rc;
    }
    rc = kg_json_check(kg_buf_slice(&text), DEPTH_MAX, &object);
    if (rc < 0) {
        return kg_buf_printf(&c->problem,
                             "The arguments are not JSON (%s). Call it again with "
                             "{\"code\": \"…\"}; in the string, write \\n for a line's end and "
                             "\\\" for a quote.",
                             rc == -E2BIG    ? "they nest too deep"
                             : text.len == 0 ? "they are empty"
                                             : "they are malformed, or end too early");
    }
    return take_arguments(c, object);
}

/* --- The whole ------------------------------------------------------------------------------ */

static int parse(kg_tool_call_t *c, kg_slice_t text, kg_err_t *err)
{
    const envelope_t *e = &envelopes[c->format];
    kg_json_value_t whole = {0};
    int rc = kg_json_check(text, DEPTH_MAX, &whole);
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_INVALID_JSON,
                          rc == -E2BIG ? "The JSON nests deeper than %d levels."
                                       : "The body is not JSON (or nests deeper than %d levels).",
                          DEPTH_MAX);
    }
    kg_json_value_t call = unwrap(c->format, whole);
    if (call.type != KG_JSON_OBJECT) {
        return refuse(c->format, "", "it is not an object", err);
    }
    rc = check_type(c->format, call, err);
    rc = rc < 0 ? rc : take_id(c, call, err);
    if (rc < 0) {
        return rc;
    }
    kg_json_value_t holder = e->inner ? kg_json_get(call, e->inner) : call;
    kg_json_value_t name = kg_json_get(holder, "name");
    if (name.type != KG_JSON_STRING) {
        return refuse(c->format, e->inner ? "/function/name" : "/name", "it names no tool", err);
    }
    if (name.raw.len > KG_TOOL_ID_MAX) {
        return refuse(c->format, "/name", "its tool's name is too long", err);
    }
    rc = kg_json_copy(&c->name, name);
    rc = rc < 0 ? rc : check_name(c, name);
    return rc < 0 || c->problem.len ? rc : read_arguments(c, kg_json_get(holder, e->arguments));
}

int kg_tool_call_parse(kg_tool_format_t format,
                       kg_slice_t text,
                       kg_tool_call_t *ret_call,
                       kg_err_t *err)
{
    kg_tool_call_t c = {.format = format};
    int rc = parse(&c, text, err);
    if (rc < 0) {
        kg_tool_call_fini(&c);
        if (err && err->code == KG_ERR_NONE) {
            kg_err_set(err, kg_err_from_errno(rc), "No memory for this call.");
        }
        return rc;
    }
    *ret_call = c;
    return 0;
}
