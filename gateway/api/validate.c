/* gateway/api: requests become checked arguments here. Bytes are bounded before they are parsed,
 * parsed once, and then walked along the field table of their operation; every refusal names the
 * field by JSON pointer. */
#include "gateway/api/validate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/base/utf8.h"

enum {
    STRING_MAX = 4096,
    LIST_MAX = 10000,
    LIST_STRING_MAX = 1 << 20,
    MAP_MAX = 64,
    MAP_KEY_MAX = 128,
    MAP_VALUE_MAX = 4096,
    ENV_MAX = 256,
    ENV_VALUE_MAX = 128 * 1024 - 1, /* what Linux takes as one environment string */
    SHOWN_MAX = 60                  /* of a client's text in a message */
};

/* A client's text as it stands in messages: short, whole code points. */
typedef struct shown {
    char text[SHOWN_MAX + 8];
} shown_t;

static const char *show(shown_t *s, const char *text)
{
    size_t len = strlen(text);
    size_t keep = kg_utf8_floor(text, len, len < SHOWN_MAX ? len : SHOWN_MAX);
    snprintf(s->text, sizeof s->text, "%.*s%s", (int)keep, text, keep < len ? "…" : "");
    for (char *p = s->text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    return s->text;
}

/* --- Parsing -------------------------------------------------------------------------------- */

/* Bounds of a text without a tree: brackets and commas outside of strings. Malformed text gets some
 * numbers; the parser says what is wrong with it. */
static int check_shape(kg_slice_t text, kg_err_t *err)
{
    unsigned depth = 0;
    unsigned values = 0;
    const char *end = text.data + text.len;
    for (const char *p = text.data; p < end; p++) {
        if (*p == '"') {
            for (p++; p < end && *p != '"'; p++) {
                p += *p == '\\';
            }
        } else if (*p == '{' || *p == '[') {
            depth++;
            values++;
        } else if (*p == '}' || *p == ']') {
            depth -= depth > 0;
        } else if (*p == ',') {
            values++;
        }
        if (depth > KG_JSON_DEPTH_CAP) {
            (void)kg_err_set(err, KG_ERR_INVALID_JSON, "The JSON nests deeper than %d levels.",
                             KG_JSON_DEPTH_CAP);
            kg_err_hint(err, "Nest objects and lists less deeply; no field needs as many levels.");
            return -kg_err_errno(KG_ERR_INVALID_JSON);
        }
        if (values > KG_JSON_VALUES_CAP) {
            (void)kg_err_set(err, KG_ERR_INVALID_JSON, "The JSON has more than %d values.",
                             KG_JSON_VALUES_CAP);
            kg_err_hint(err, "Send fewer values in one request.");
            return -kg_err_errno(KG_ERR_INVALID_JSON);
        }
    }
    return 0;
}

static const char *parse_problem(enum json_error_code code)
{
    switch ((int)code) {
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a string holds U+0000, which no field takes";
    case json_error_duplicate_key:
        return "an object names a member twice";
    case json_error_invalid_utf8:
        return "it is not valid UTF-8";
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "something follows the value";
    case json_error_numeric_overflow:
        return "a number is out of range";
    default:
        return NULL;
    }
}

/* Where the usual hint says nothing of it; else NULL. */
static const char *parse_hint(const json_error_t *e)
{
    switch ((int)json_error_code(e)) {
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "Leave U+0000 out. Bytes that are no text go in base64, where a field takes that.";
    case json_error_numeric_overflow:
        return "A number is a whole one of 64 bits, or at most 1.8e308: send a smaller one.";
    case json_error_end_of_input_expected:
        return "Send one JSON object, and nothing behind it.";
    default:
        return strstr(e->text, "Unicode")
                   ? "A surrogate must be one half of a pair: a lone one is no character."
                   : NULL;
    }
}

static int parse_failed(const json_error_t *e, kg_err_t *err)
{
    if (json_error_code(e) == json_error_out_of_memory) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    const char *known = parse_problem(json_error_code(e));
    shown_t shown;
    if (known) {
        kg_err_set(err, KG_ERR_INVALID_JSON, "Cannot read the JSON: %s (line %d, column %d).",
                   known, e->line, e->column);
    } else {
        kg_err_set(err, KG_ERR_INVALID_JSON, "Cannot read the JSON: %s (line %d, column %d).",
                   show(&shown, e->text), e->line, e->column);
    }
    const char *hint = parse_hint(e);
    if (hint) {
        kg_err_hint(err, "%s", hint);
    }
    return -kg_err_errno(KG_ERR_INVALID_JSON);
}

int kg_json_object_parse(kg_slice_t text, size_t cap, json_t **ret_object, kg_err_t *err)
{
    if (text.len > cap) {
        return kg_err_set(err, KG_ERR_TOO_LARGE, "%zu bytes of JSON are over the cap of %zu.",
                          text.len, cap);
    }
    if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0) {
        int rc = kg_err_set(err, KG_ERR_INVALID_JSON,
                            "Cannot read the JSON: it begins with a byte order mark.");
        kg_err_hint(err, "Leave the byte order mark (EF BB BF) out: RFC 8259, section 8.1.");
        return rc;
    }
    int rc = check_shape(text, err);
    if (rc < 0) {
        return rc;
    }
    json_error_t e;
    json_t *value = json_loadb(text.len ? text.data : "", text.len,
                               JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!value) {
        return parse_failed(&e, err);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "A JSON object is expected here.");
    }
    *ret_object = value;
    return 0;
}

/* --- Hints ---------------------------------------------------------------------------------- */

enum {
    EDIT_MAX = 48
};

unsigned kg_edit_distance(const char *a, const char *b, unsigned cap)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > EDIT_MAX || lb > EDIT_MAX || la > lb + cap || lb > la + cap) {
        return cap + 1;
    }
    unsigned row[EDIT_MAX + 1];
    for (unsigned j = 0; j <= lb; j++) {
        row[j] = j;
    }
    for (unsigned i = 1; i <= la; i++) {
        unsigned corner = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= lb; j++) {
            unsigned best = corner + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[lb] > cap ? cap + 1 : row[lb];
}

enum {
    ANYWHERE = -1 /* a field's place: the arguments of all places together */
};

static bool stands(const kg_field_t *f, int in)
{
    return in == ANYWHERE || (int)f->in == in;
}

static const kg_field_t *nearest_field(const kg_field_t *fields, int in, const char *name)
{
    unsigned best = 3;
    const kg_field_t *found = NULL;
    for (const kg_field_t *f = fields; f && f->name; f++) {
        unsigned d = kg_edit_distance(f->name, name, 2);
        if (stands(f, in) && d < best && d < strlen(f->name)) {
            best = d;
            found = f;
        }
    }
    return found;
}

/* "Fields here: code, context, …": what fits of it. */
static void hint_names(kg_err_t *err, const kg_field_t *fields, int in)
{
    char list[200] = "";
    size_t len = 0;
    for (const kg_field_t *f = fields; f && f->name; f++) {
        if (!stands(f, in)) {
            continue;
        }
        int n = snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", f->name);
        if (n < 0 || (size_t)n >= sizeof list - len) {
            list[len] = '\0';
            break;
        }
        len += (size_t)n;
    }
    kg_err_hint(err, len ? "Fields here: %s." : "It takes no fields here.%s", list);
}

/* --- Where a value stands ------------------------------------------------------------------- */

/* A chain of names on the stack: limits -> memory_mib. */
typedef struct where {
    const struct where *up;
    const char *name;
} where_t;

static void put_pointer(const where_t *w, kg_buf_t *out)
{
    if (!w) {
        return;
    }
    put_pointer(w->up, out);
    (void)kg_buf_append_char(out, '/');
    for (const char *p = w->name; *p; p++) {
        if (*p == '~' || *p == '/') {
            (void)kg_buf_append_cstr(out, *p == '~' ? "~0" : "~1");
        } else {
            (void)kg_buf_append_char(out, *p);
        }
    }
}

static KG_PRINTF(3, 4) int refuse(kg_err_t *err, const where_t *w, const char *fmt, ...)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t pointer = {0};
    va_list ap;
    va_start(ap, fmt);
    (void)kg_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    put_pointer(w, &pointer);
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s", text.data ? text.data : "");
    kg_err_pointer(err, "%s", pointer.data ? pointer.data : "");
    return rc;
}

/* in: where it stands; the hint names fields of that place alone. */
static int
refuse_unknown(kg_err_t *err, const where_t *w, const kg_field_t *fields, int in, const char *what)
{
    shown_t shown;
    int rc = refuse(err, w, "Unknown %s '%s'.", what, show(&shown, w->name));
    const kg_field_t *near = nearest_field(fields, in, w->name);
    if (near) {
        /* Of a map, a query has the members alone. */
        bool member = in == KG_IN_QUERY && near->type == KG_FIELD_STRING_MAP;
        kg_err_hint(err, "Did you mean '%s%s'?", near->name, member ? ".NAME" : "");
    } else {
        hint_names(err, fields, in);
    }
    return rc;
}

static const char *type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "something else";
}

static int refuse_type(kg_err_t *err, const where_t *w, const char *want, const json_t *value)
{
    shown_t shown;
    return refuse(err, w, "'%s' must be %s, not %s.", show(&shown, w->name), want, type_of(value));
}

/* --- One value ------------------------------------------------------------------------------ */

static int64_t max_or(const kg_field_t *f, int64_t standard)
{
    return f->max ? f->max : standard;
}

static bool format_fits(kg_field_format_t format, const char *s)
{
    switch (format) {
    case KG_FORMAT_NAME:
        return kg_name_valid(s, 63);
    case KG_FORMAT_TOKEN:
        for (const char *p = s; *p; p++) {
            if (*p <= 0x20 || *p >= 0x7f) {
                return false;
            }
        }
        return *s != '\0';
    case KG_FORMAT_LINE:
        for (const char *p = s; *p; p++) {
            if ((unsigned char)*p < 0x20 || *p == 0x7f) {
                return false;
            }
        }
        return true;
    case KG_FORMAT_PATH:
        return *s != '\0';
    case KG_FORMAT_ANY:
    case KG_FORMAT_ENV:
        return true;
    }
    return true;
}

static const char *format_words(kg_field_format_t format)
{
    switch (format) {
    case KG_FORMAT_NAME:
        return "must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";
    case KG_FORMAT_TOKEN:
        return "must be printable ASCII without spaces";
    case KG_FORMAT_LINE:
        return "must not hold control characters";
    case KG_FORMAT_PATH:
    case KG_FORMAT_ANY:
    case KG_FORMAT_ENV:
        break;
    }
    return "must not be empty";
}

static int refuse_value(kg_err_t *err, const where_t *w, const kg_field_t *f, const char *s)
{
    char list[200] = "";
    size_t len = 0;
    for (const char *const *v = f->values; *v; v++) {
        int n = snprintf(list + len, sizeof list - len, "%s'%s'", len ? ", " : "", *v);
        if (n < 0 || (size_t)n >= sizeof list - len) {
            break;
        }
        len += (size_t)n;
    }
    shown_t shown;
    return refuse(err, w, "'%s' must be one of %s, not '%s'.", f->name, list, show(&shown, s));
}

static int check_string(const kg_field_t *f, const json_t *value, const where_t *w, kg_err_t *err)
{
    if (!json_is_string(value)) {
        return refuse_type(err, w, "a string", value);
    }
    const char *s = json_string_value(value);
    size_t len = json_string_length(value);
    if (f->values) {
        for (const char *const *v = f->values; *v; v++) {
            if (strcmp(*v, s) == 0) {
                return 0;
            }
        }
        return refuse_value(err, w, f, s);
    }
    int64_t max = max_or(f, STRING_MAX);
    if (len == 0 && f->min > 0) {
        return refuse(err, w, "'%s' must not be empty.", f->name);
    }
    if ((int64_t)len < f->min) {
        return refuse(err, w, "'%s' must have at least %lld bytes.", f->name, (long long)f->min);
    }
    if ((int64_t)len > max) {
        return refuse(err, w, "'%s' has %zu bytes; %lld is the most.", f->name, len,
                      (long long)max);
    }
    if (!format_fits(f->format, s)) {
        return refuse(err, w, "'%s' %s.", f->name, format_words(f->format));
    }
    return 0;
}

static int check_integer(
    const kg_field_t *f, json_t *parent, const json_t *value, const where_t *w, kg_err_t *err)
{
    json_int_t n = json_integer_value(value);
    if (json_is_real(value)) {
        double d = json_real_value(value);
        if (d < -9007199254740992.0 || d > 9007199254740992.0 || d != floor(d)) {
            return refuse(err, w, "'%s' must be an integer.", f->name);
        }
        n = (json_int_t)d;
        if (json_object_set_new(parent, f->name, json_integer(n)) < 0) {
            return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        }
    } else if (!json_is_integer(value)) {
        return refuse_type(err, w, "an integer", value);
    }
    int64_t max = max_or(f, INT64_MAX);
    if (n < f->min || n > max) {
        return max == INT64_MAX ? refuse(err, w, "'%s' must be at least %lld, not %lld.", f->name,
                                         (long long)f->min, (long long)n)
                                : refuse(err, w, "'%s' must be from %lld to %lld, not %lld.",
                                         f->name, (long long)f->min, (long long)max, (long long)n);
    }
    return 0;
}

static int check_number(const kg_field_t *f, const json_t *value, const where_t *w, kg_err_t *err)
{
    if (!json_is_number(value)) {
        return refuse_type(err, w, "a number", value);
    }
    double d = json_number_value(value);
    double max = (double)max_or(f, INT64_MAX);
    if (!isfinite(d) || d < (double)f->min || d > max) {
        return f->max ? refuse(err, w, "'%s' must be from %lld to %lld, not %.15g.", f->name,
                               (long long)f->min, (long long)f->max, d)
                      : refuse(err, w, "'%s' must be at least %lld, not %.15g.", f->name,
                               (long long)f->min, d);
    }
    return 0;
}

static int check_strings(const kg_field_t *f, const json_t *value, const where_t *w, kg_err_t *err)
{
    size_t count = json_array_size(value);
    if ((int64_t)count > max_or(f, LIST_MAX)) {
        return refuse(err, w, "'%s' has %zu items; %lld is the most.", f->name, count,
                      (long long)max_or(f, LIST_MAX));
    }
    int64_t cap = max_or(f, LIST_STRING_MAX);
    cap = cap > LIST_STRING_MAX ? cap : LIST_STRING_MAX;
    size_t i;
    json_t *item;
    json_array_foreach (value, i, item) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        where_t at = {w, index};
        if (!json_is_string(item)) {
            return refuse(err, &at, "Item %zu of '%s' must be a string, not %s.", i, f->name,
                          type_of(item));
        }
        if ((int64_t)json_string_length(item) > cap) {
            return refuse(err, &at, "Item %zu of '%s' is over %lld bytes.", i, f->name,
                          (long long)cap);
        }
    }
    return 0;
}

static bool env_name_fits(const char *s)
{
    for (const char *p = s; *p; p++) {
        bool letter = (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_';
        if (!letter && (p == s || *p < '0' || *p > '9')) {
            return false;
        }
    }
    return *s != '\0';
}

static int check_map_member(
    const kg_field_t *f, const char *key, const json_t *value, const where_t *at, kg_err_t *err)
{
    bool env = f->format == KG_FORMAT_ENV;
    shown_t shown;
    if (*key == '\0' || strlen(key) > MAP_KEY_MAX) {
        return refuse(err, at, "Names in '%s' have 1 to %d bytes.", f->name, MAP_KEY_MAX);
    }
    if (env && !env_name_fits(key)) {
        return refuse(err, at,
                      "'%s' is no name of an environment variable ([A-Za-z_][A-Za-z0-9_]*).",
                      show(&shown, key));
    }
    if (!json_is_string(value)) {
        return refuse(err, at, "Values in '%s' must be strings; '%s' is %s.", f->name,
                      show(&shown, key), type_of(value));
    }
    size_t cap = env ? ENV_VALUE_MAX : MAP_VALUE_MAX;
    if (json_string_length(value) > cap) {
        return refuse(err, at, "The value of '%s' is over %zu bytes.", show(&shown, key), cap);
    }
    return 0;
}

static int check_map(const kg_field_t *f, json_t *value, const where_t *w, kg_err_t *err)
{
    if (!json_is_object(value)) {
        return refuse_type(err, w, "an object of strings", value);
    }
    int64_t max = max_or(f, f->format == KG_FORMAT_ENV ? ENV_MAX : MAP_MAX);
    if ((int64_t)json_object_size(value) > max) {
        return refuse(err, w, "'%s' has %zu members; %lld is the most.", f->name,
                      json_object_size(value), (long long)max);
    }
    const char *key;
    json_t *member;
    json_object_foreach (value, key, member) {
        where_t at = {w, key};
        int rc = check_map_member(f, key, member, &at, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int check_object(
    const kg_field_t *fields, const char *what, json_t *object, const where_t *up, kg_err_t *err);

static int
check_value(const kg_field_t *f, json_t *parent, json_t *value, const where_t *w, kg_err_t *err)
{
    switch (f->type) {
    case KG_FIELD_STRING:
        return check_string(f, value, w, err);
    case KG_FIELD_INTEGER:
        return check_integer(f, parent, value, w, err);
    case KG_FIELD_NUMBER:
        return check_number(f, value, w, err);
    case KG_FIELD_BOOLEAN:
        return json_is_boolean(value) ? 0 : refuse_type(err, w, "true or false", value);
    case KG_FIELD_STRINGS:
        return json_is_array(value) ? check_strings(f, value, w, err)
                                    : refuse_type(err, w, "an array of strings", value);
    case KG_FIELD_LINES:
        if (json_is_array(value)) {
            return check_strings(f, value, w, err);
        }
        return json_is_string(value)
                   ? check_string(f, value, w, err)
                   : refuse_type(err, w, "a string or an array of strings", value);
    case KG_FIELD_STRING_MAP:
        return check_map(f, value, w, err);
    case KG_FIELD_OBJECT:
        return json_is_object(value) ? check_object(f->fields, "field", value, w, err)
                                     : refuse_type(err, w, "an object", value);
    case KG_FIELD_NAME_OR_OBJECT:
    case KG_FIELD_TEXT_OR_OBJECT:
        if (json_is_object(value)) {
            return 0;
        }
        return json_is_string(value) ? check_string(f, value, w, err)
                                     : refuse_type(err, w, "a string or an object", value);
    }
    return 0;
}

static const kg_field_t *find_field(const kg_field_t *fields, const char *name)
{
    for (const kg_field_t *f = fields; f && f->name; f++) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

static int
check_required(const kg_field_t *fields, const json_t *object, const where_t *up, kg_err_t *err)
{
    for (const kg_field_t *f = fields; f && f->name; f++) {
        if (f->required && !json_object_get(object, f->name)) {
            where_t at = {up, f->name};
            return refuse(err, &at, "'%s' is missing.", f->name);
        }
    }
    return 0;
}

static int check_object(
    const kg_field_t *fields, const char *what, json_t *object, const where_t *up, kg_err_t *err)
{
    const char *key;
    json_t *value;
    void *tmp;
    json_object_foreach_safe (object, tmp, key, value) {
        where_t at = {up, key};
        const kg_field_t *f = find_field(fields, key);
        if (!f) {
            return refuse_unknown(err, &at, fields, ANYWHERE, what);
        }
        if (json_is_null(value)) {
            json_object_del(object, key);
            continue;
        }
        int rc = check_value(f, object, value, &at, err);
        if (rc < 0) {
            return rc;
        }
    }
    return check_required(fields, object, up, err);
}

/* --- One operation -------------------------------------------------------------------------- */

const kg_field_t *kg_op_field(const kg_op_t *op, const char *name)
{
    return find_field(op->fields, name);
}

int kg_op_check(const kg_op_t *op, json_t *args, kg_err_t *err)
{
    return check_object(op->fields, "field", args, NULL, err);
}

int kg_op_check_body(const kg_op_t *op, json_t *body, kg_err_t *err)
{
    const char *key;
    json_t *value;
    json_object_foreach (body, key, value) {
        const kg_field_t *f = find_field(op->fields, key);
        if (f && f->in == KG_IN_BODY) {
            continue;
        }
        where_t at = {NULL, key};
        if (!f) {
            return refuse_unknown(err, &at, op->fields, KG_IN_BODY, "field");
        }
        const char *where = f->in == KG_IN_PATH     ? "the path of the URL"
                            : f->in == KG_IN_QUERY  ? "the query of the URL"
                            : f->in == KG_IN_HEADER ? "the head of the request"
                                                    : "frames of the WebSocket";
        return refuse(err, &at, "'%s' belongs to %s, not to the body.", f->name, where);
    }
    return 0;
}

static int
param_value(const kg_field_t *f, const char *text, const where_t *w, json_t **ret, kg_err_t *err)
{
    shown_t shown;
    int64_t n;
    double d;
    int rc;
    switch ((int)f->type) {
    case KG_FIELD_INTEGER:
        rc = kg_parse_i64(text, INT64_MIN, INT64_MAX, &n);
        if (rc < 0) {
            return refuse(err, w, "'%s' must be an integer%s, not '%s'.", f->name,
                          rc == -ERANGE ? " of 64 bits" : "", show(&shown, text));
        }
        *ret = json_integer(n);
        break;
    case KG_FIELD_NUMBER:
        if (kg_parse_double(text, &d) < 0 || !isfinite(d)) {
            return refuse(err, w, "'%s' must be a number, not '%s'.", f->name, show(&shown, text));
        }
        *ret = json_real(d);
        break;
    case KG_FIELD_BOOLEAN:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
            return refuse(err, w, "'%s' must be true or false, not '%s'.", f->name,
                          show(&shown, text));
        }
        *ret = json_boolean(text[0] == 't');
        break;
    default:
        *ret = json_string(text);
        break;
    }
    /* jansson refuses strings that are not UTF-8 and numbers that are not finite; else it is
     * memory. */
    if (!*ret) {
        return kg_utf8_valid(text, strlen(text))
                   ? kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.")
                   : refuse(err, w, "'%s' is not valid UTF-8.", f->name);
    }
    return 0;
}

/* "metadata.k=v" */
static int
put_map_param(const kg_op_t *op, const char *name, const char *value, json_t *args, kg_err_t *err)
{
    const char *dot = strchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : 0;
    for (const kg_field_t *f = op->fields; dot && f && f->name; f++) {
        if (f->type != KG_FIELD_STRING_MAP || f->in != KG_IN_QUERY || strlen(f->name) != len ||
            strncmp(f->name, name, len) != 0) {
            continue;
        }
        json_t *map = json_object_get(args, f->name);
        if (!map && json_object_set_new(args, f->name, map = json_object()) < 0) {
            return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        }
        where_t up = {NULL, f->name};
        where_t at = {&up, dot + 1};
        json_t *text = NULL;
        int rc = json_object_get(map, dot + 1)
                     ? refuse(err, &at, "The query names '%s' twice.", name)
                     : param_value(f, value, &at, &text, err);
        if (rc == 0 && json_object_set_new(map, dot + 1, text) < 0) {
            rc = refuse(err, &at, "The query names something that is not valid UTF-8.");
        }
        return rc;
    }
    where_t at = {NULL, name};
    return refuse_unknown(err, &at, op->fields, KG_IN_QUERY, "query parameter");
}

int kg_op_put_param(const kg_op_t *op,
                    kg_field_in_t in,
                    const char *name,
                    const char *value,
                    json_t *args,
                    kg_err_t *err)
{
    const kg_field_t *f = find_field(op->fields, name);
    if (!f || f->in != in || f->type == KG_FIELD_STRING_MAP) {
        return put_map_param(op, name, value, args, err);
    }
    where_t at = {NULL, name};
    if (json_object_get(args, name)) {
        return refuse(err, &at, "The request names '%s' twice.", name);
    }
    json_t *text = NULL;
    int rc = param_value(f, value, &at, &text, err);
    if (rc == 0 && json_object_set_new(args, name, text) < 0) {
        rc = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    return rc;
}
