/* run: one rendered thing, a MIME bundle, as a Result. Values are copied once, in canonical form,
 * and stay where they are: choosing what to keep, the type and the text only picks among them. */
#include <errno.h>
#include <string.h>

#include "gateway/run/mapper_int.h"

enum {
    CHUNK = 64 * 1024,
    JSON_SLACK = 4 /* JSON as received may be so much longer than compact before it is not copied */
};

static const char *const default_order[] = {"application/vnd.plotly.v1+json",
                                            "application/vnd.*+json",
                                            "text/html",
                                            "image/svg+xml",
                                            "image/png",
                                            "image/jpeg",
                                            "image/*",
                                            "application/pdf",
                                            "text/markdown",
                                            "text/latex",
                                            "application/json",
                                            "application/javascript",
                                            "text/plain"};

/* --- names of formats ----------------------------------------------------------------------------
 */

static bool name_is(kg_slice_t name, const char *text)
{
    return kg_slice_eq_cstr(name, text);
}

static bool name_starts(kg_slice_t name, const char *prefix)
{
    size_t n = strlen(prefix);
    return name.len >= n && memcmp(name.data, prefix, n) == 0;
}

static bool name_ends(kg_slice_t name, const char *suffix)
{
    size_t n = strlen(suffix);
    return name.len >= n && memcmp(name.data + name.len - n, suffix, n) == 0;
}

static bool name_matches(kg_slice_t name, const char *pattern)
{
    const char *star = strchr(pattern, '*');
    if (!star) {
        return name_is(name, pattern);
    }
    size_t before = (size_t)(star - pattern);
    return name.len >= strlen(pattern) - 1 && memcmp(name.data, pattern, before) == 0 &&
           name_ends(name, star + 1);
}

/* Place in the order, twice as wide so that unlisted types come just before text/plain. Our own
 * typed columns never decide. */
static unsigned rank_of(const kg_mapper_opts_t *opts, kg_slice_t name)
{
    const char *const *order = opts->order ? opts->order : default_order;
    size_t len = opts->order ? opts->order_len : KG_ARRAY_LEN(default_order);
    unsigned unlisted = (unsigned)len * 2 + 1;
    if (name_is(name, "application/vnd.dataframe+json")) {
        return unlisted + 2;
    }
    for (size_t i = 0; i < len; i++) {
        if (name_matches(name, order[i])) {
            return (unsigned)i * 2 + 1;
        }
        unlisted = strcmp(order[i], "text/plain") == 0 ? (unsigned)i * 2 : unlisted;
    }
    return unlisted;
}

static bool is_json(kg_slice_t name)
{
    return name_is(name, "application/json") || name_ends(name, "+json");
}

static bool is_base64(kg_slice_t name)
{
    return (name_starts(name, "image/") && !name_is(name, "image/svg+xml")) ||
           name_is(name, "application/pdf") || name_starts(name, "audio/") ||
           name_starts(name, "video/");
}

/* --- values --------------------------------------------------------------------------------------
 */

/* Takes the white space out of a canonical escaped text: kernels break base64 into lines. */
static void squeeze(kg_buf_t *buf, size_t from)
{
    char *to = buf->data + from;
    for (const char *p = to, *end = buf->data + buf->len; p < end;) {
        if (*p == ' ') {
            p++;
        } else if (*p == '\\' && end - p >= 2) { /* an escape goes, or stays, as a whole */
            bool space = p[1] == 'n' || p[1] == 'r' || p[1] == 't';
            to[0] = p[0];
            to[1] = p[1];
            to += space ? 0 : 2;
            p += 2;
        } else {
            *to++ = *p++;
        }
    }
    buf->len = (size_t)(to - buf->data);
    *to = '\0';
}

/* Decoded size of a JSON string as received, in chunks, without keeping it. */
static int measure(kg_json_value_t string, uint64_t *ret_units)
{
    KG_AUTO_BUF kg_buf_t chunk = {0};
    const char *p = string.raw.data + 1;
    size_t left = string.raw.len - 2;
    *ret_units = 0;
    while (left > 0) {
        size_t n = kg_text_raw_floor(p, left, CHUNK);
        kg_buf_clear(&chunk);
        kg_json_value_t part = {KG_JSON_STRING, kg_slice(p - 1, n + 2)};
        int rc = kg_json_copy_string_body(&chunk, part);
        if (rc < 0) {
            return rc;
        }
        *ret_units += kg_text_units(chunk.data ? chunk.data : "", chunk.len);
        p += n;
        left -= n;
    }
    return 0;
}

static void value_done(kg_bundle_t *b, kg_format_t *f, size_t start, bool string)
{
    f->value_off = start;
    f->value_len = b->values.len - start;
    f->string = string;
    f->units = string ? kg_text_units(b->values.data + start + 1, f->value_len - 2) : f->value_len;
}

/* A string: "…" in canonical form; base64 without white space. */
static int put_string(kg_bundle_t *b, kg_format_t *f, kg_json_value_t value)
{
    size_t start = b->values.len;
    int rc = kg_buf_append_char(&b->values, '"');
    rc = rc < 0 ? rc : kg_json_copy_string_body(&b->values, value);
    if (rc == 0 && is_base64(f->name)) {
        squeeze(&b->values, start + 1);
    }
    rc = rc < 0 ? rc : kg_buf_append_char(&b->values, '"');
    if (rc == 0) {
        value_done(b, f, start, true);
    }
    return rc;
}

/* A JSON type given as a string that holds an object or an array: its JSON. 1 when it was one. */
static int put_inner_json(kg_bundle_t *b, kg_format_t *f, kg_json_value_t value)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_json_value_t inner;
    int rc = kg_json_decode_string(&text, value);
    if (rc < 0) {
        return rc;
    }
    if (kg_json_check(kg_buf_slice(&text), KG_JSON_DEPTH_MAX, &inner) < 0 ||
        (inner.type != KG_JSON_OBJECT && inner.type != KG_JSON_ARRAY)) {
        return 0;
    }
    size_t start = b->values.len;
    rc = kg_json_copy(&b->values, inner);
    if (rc < 0) {
        return rc;
    }
    value_done(b, f, start, false);
    return 1;
}

/* The value is so big, or so deep, that it cannot be kept: only its size counts. */
static int put_nothing(kg_format_t *f, kg_json_value_t value)
{
    f->gone = true;
    f->units = value.raw.len;
    return value.type == KG_JSON_STRING ? measure(value, &f->units) : 0;
}

/* What a copy refuses for its form alone: nested too deep, or broken below where it was checked. */
static bool unfit(int rc)
{
    return rc == -E2BIG || rc == -EBADMSG;
}

static int put_json(kg_bundle_t *b, kg_format_t *f, kg_json_value_t value)
{
    size_t start = b->values.len;
    int rc = kg_json_copy(&b->values, value);
    if (rc == 0) {
        value_done(b, f, start, false);
    }
    return unfit(rc) ? put_nothing(f, value) : rc;
}

/* The text of a list of strings (as the notebook format has them), one behind the other. */
static int put_lines(kg_bundle_t *b, kg_format_t *f, kg_json_value_t list)
{
    size_t start = b->values.len;
    kg_json_iter_t it;
    kg_json_value_t line;
    int rc = kg_buf_append_char(&b->values, '"');
    kg_json_iter_init(&it, list);
    while (rc == 0 && kg_json_iter_next(&it, NULL, &line)) {
        if (line.type != KG_JSON_STRING) {
            b->values.len = start;
            return 0;
        }
        rc = kg_json_copy_string_body(&b->values, line);
    }
    if (rc == 0 && is_base64(f->name)) {
        squeeze(&b->values, start + 1);
    }
    rc = rc < 0 ? rc : kg_buf_append_char(&b->values, '"');
    if (rc < 0) {
        return rc;
    }
    value_done(b, f, start, true);
    return 1;
}

/* Something else where a string belongs: its JSON as text (a number stays its digits). */
static int put_as_text(kg_bundle_t *b, kg_format_t *f, kg_json_value_t value)
{
    KG_AUTO_BUF kg_buf_t json = {0};
    size_t start = b->values.len;
    int rc = value.type == KG_JSON_ARRAY ? put_lines(b, f, value) : 0;
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = kg_json_copy(&json, value);
    if (unfit(rc)) {
        return put_nothing(f, value);
    }
    rc = rc < 0 ? rc : kg_json_quote(&b->values, json.data, json.len);
    if (rc == 0) {
        value_done(b, f, start, true);
    }
    return rc;
}

static int put_value(kg_bundle_t *b, kg_format_t *f, kg_json_value_t value, uint64_t limit)
{
    if (value.type == KG_JSON_NULL) {
        f->gone = true; /* as good as absent */
        return 0;
    }
    if (value.raw.len > limit) {
        int rc = 0;
        uint64_t units = value.raw.len / JSON_SLACK;
        if (value.type == KG_JSON_STRING) {
            rc = measure(value, &units);
        }
        if (rc < 0 || units > limit) {
            return rc < 0 ? rc : put_nothing(f, value);
        }
    }
    if (value.type == KG_JSON_STRING) {
        int rc = is_json(f->name) ? put_inner_json(b, f, value) : 0;
        return rc != 0 ? (rc < 0 ? rc : 0) : put_string(b, f, value);
    }
    return is_json(f->name) ? put_json(b, f, value) : put_as_text(b, f, value);
}

/* --- building ------------------------------------------------------------------------------------
 */

void kg_bundle_fini(kg_bundle_t *bundle)
{
    kg_buf_fini(&bundle->names);
    kg_buf_fini(&bundle->values);
    kg_buf_fini(&bundle->text);
    kg_buf_fini(&bundle->display_id);
    free(bundle->formats);
    *bundle = (kg_bundle_t){0};
}

static kg_slice_t name_at(const kg_bundle_t *b, const kg_format_t *f)
{
    return kg_slice(b->names.data + f->name_off, f->name.len);
}

/* Decodes key into a format of its own, or the one that has the name already. */
static int add_format(kg_bundle_t *b, kg_slice_t key, kg_format_t **ret)
{
    size_t off = b->names.len;
    kg_json_value_t name = {KG_JSON_STRING, key};
    int rc = kg_json_decode_string(&b->names, name);
    if (rc < 0) {
        return rc;
    }
    size_t len = b->names.len - off;
    for (size_t i = 0; i < b->count; i++) {
        kg_format_t *f = &b->formats[i];
        if (f->name.len == len &&
            memcmp(b->names.data + f->name_off, b->names.data + off, len) == 0) {
            b->names.len = off;
            *f = (kg_format_t){.name = f->name, .name_off = f->name_off};
            f->name = name_at(b, f);
            *ret = f;
            return 0;
        }
    }
    kg_format_t *f = &b->formats[b->count++];
    *f = (kg_format_t){.name = {NULL, len}, .name_off = off};
    f->name = name_at(b, f);
    *ret = f;
    return 0;
}

static int put_metadata(kg_bundle_t *b, kg_json_value_t metadata, uint64_t limit)
{
    b->meta_off = b->values.len;
    if (metadata.type != KG_JSON_OBJECT || metadata.raw.len <= 2) {
        return 0;
    }
    if (metadata.raw.len / JSON_SLACK > limit) {
        b->meta_units = metadata.raw.len;
        return 0;
    }
    int rc = kg_json_copy(&b->values, metadata);
    b->meta_len = b->values.len - b->meta_off;
    b->meta_units = unfit(rc) ? metadata.raw.len : b->meta_len;
    return unfit(rc) ? 0 : rc;
}

/* Richest first; names get their final places. */
static void sort(kg_bundle_t *b, const kg_mapper_opts_t *opts)
{
    for (size_t i = 0; i < b->count; i++) {
        kg_format_t f = b->formats[i];
        f.name = name_at(b, &f);
        f.rank = rank_of(opts, f.name);
        size_t j = i;
        for (; j > 0 && b->formats[j - 1].rank > f.rank; j--) {
            b->formats[j] = b->formats[j - 1];
        }
        b->formats[j] = f;
    }
}

int kg_bundle_build(kg_bundle_t *bundle,
                    const kg_mapper_opts_t *opts,
                    kg_json_value_t data,
                    kg_json_value_t metadata)
{
    uint64_t limit = opts->limits.result_bytes;
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    *bundle = (kg_bundle_t){0};
    bundle->formats = calloc(KG_RUN_FORMATS_MAX, sizeof *bundle->formats);
    if (!bundle->formats) {
        return -ENOMEM;
    }
    if (data.type == KG_JSON_OBJECT) {
        kg_json_iter_init(&it, data);
        while (kg_json_iter_next(&it, &key, &value)) {
            kg_format_t none = {0};
            kg_format_t *f = &none;
            int rc;
            if (bundle->count == KG_RUN_FORMATS_MAX || key.len - 2 > KG_RUN_MIME_MAX) {
                rc = put_nothing(f, value);
                bundle->over += f->units;
            } else {
                rc = add_format(bundle, key, &f);
                rc = rc < 0 ? rc : put_value(bundle, f, value, limit);
            }
            if (rc < 0) {
                return rc;
            }
        }
    }
    if (data.type != KG_JSON_OBJECT && data.type != KG_JSON_NULL) {
        bundle->over += data.raw.len; /* no bundle at all */
    }
    int rc = put_metadata(bundle, metadata, limit);
    if (rc < 0) {
        return rc;
    }
    sort(bundle, opts);
    return kg_bundle_select(bundle, opts, limit);
}

int kg_bundle_build_plain(kg_bundle_t *bundle, const kg_mapper_opts_t *opts, kg_json_value_t text)
{
    static const char key[] = "\"text/plain\"";
    *bundle = (kg_bundle_t){0};
    bundle->formats = calloc(1, sizeof *bundle->formats);
    if (!bundle->formats) {
        return -ENOMEM;
    }
    kg_format_t *f;
    int rc = add_format(bundle, kg_slice(key, sizeof key - 1), &f);
    rc = rc < 0 ? rc : put_value(bundle, f, text, opts->limits.result_bytes);
    if (rc < 0) {
        return rc;
    }
    sort(bundle, opts);
    return kg_bundle_select(bundle, opts, opts->limits.result_bytes);
}

/* --- choosing ------------------------------------------------------------------------------------
 */

static size_t find(const kg_bundle_t *b, const char *name)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->formats[i].kept && name_is(b->formats[i].name, name)) {
            return i;
        }
    }
    return SIZE_MAX;
}

static kg_slice_t body_of(const kg_bundle_t *b, size_t i)
{
    const kg_format_t *f = &b->formats[i];
    size_t quote = f->string ? 1 : 0;
    return kg_slice(b->values.data + f->value_off + quote, f->value_len - 2 * quote);
}

/* <IPython.core.display.JSON object>: says nothing. */
static bool is_useless(kg_slice_t s)
{
    static const char *const heads[] = {"<IPython.core.display.", "<IPython.lib.display."};
    static const char tail[] = " object>";
    for (size_t h = 0; h < KG_ARRAY_LEN(heads); h++) {
        size_t head = strlen(heads[h]);
        if (!name_starts(s, heads[h]) || !name_ends(s, tail) || s.len <= head + sizeof tail - 1) {
            continue;
        }
        bool word = true;
        for (size_t i = head; i < s.len - (sizeof tail - 1); i++) {
            char c = s.data[i];
            word = word && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '_');
        }
        return word;
    }
    return false;
}

/* The format that gives the text; SIZE_MAX when the type's name has to. */
static size_t text_source(const kg_bundle_t *b)
{
    static const char *const fallbacks[] = {"text/markdown", "text/latex", "application/json",
                                            "text/html"};
    size_t plain = find(b, "text/plain");
    if (plain != SIZE_MAX && (b->type == plain || !is_useless(body_of(b, plain)))) {
        return plain;
    }
    for (size_t k = 0; k < KG_ARRAY_LEN(fallbacks); k++) {
        size_t i = find(b, fallbacks[k]);
        if (i != SIZE_MAX) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* Takes the text out of format `from`: its body as it stands, or made from it. */
static int take_text(kg_bundle_t *b, const kg_mapper_opts_t *opts, size_t from)
{
    static const char esc[] = "\\u001b";
    const kg_format_t *f = &b->formats[from];
    kg_slice_t body = body_of(b, from);
    int rc;
    if (name_is(f->name, "application/json")) {
        rc = kg_json_escape(&b->text, b->values.data + f->value_off, f->value_len);
    } else if (name_is(f->name, "text/html")) {
        rc = kg_text_from_html(&b->text, body.data, body.len);
    } else if (opts->ansi || !memmem(body.data, body.len, esc, sizeof esc - 1)) {
        b->text_format = from;
        return 0;
    } else {
        kg_ansi_strip_t strip = {0};
        rc = kg_ansi_strip_escaped(&strip, &b->text, body.data, body.len);
    }
    b->text_from = rc == 0 ? from + 1 : 0;
    return rc;
}

static int choose_text(kg_bundle_t *b, const kg_mapper_opts_t *opts)
{
    size_t from = b->type == SIZE_MAX ? SIZE_MAX : text_source(b);
    b->text_format = SIZE_MAX;
    if (from != SIZE_MAX && b->text_from == from + 1) {
        return 0; /* it was made of the same: not again, it may be long */
    }
    b->text_from = 0;
    kg_buf_clear(&b->text);
    if (b->type == SIZE_MAX) {
        return 0;
    }
    if (from != SIZE_MAX) {
        return take_text(b, opts, from);
    }
    kg_slice_t type = b->formats[b->type].name;
    int rc = kg_buf_append_char(&b->text, '[');
    rc = rc < 0 ? rc : kg_json_escape(&b->text, type.data, type.len);
    return rc < 0 ? rc : kg_buf_append_char(&b->text, ']');
}

/* Marks what fits, smallest first, among equals the plainest. */
static void keep_what_fits(kg_bundle_t *b, uint64_t budget)
{
    bool done[KG_RUN_FORMATS_MAX] = {false};
    for (size_t round = 0; round < b->count; round++) {
        size_t least = SIZE_MAX;
        for (size_t i = 0; i < b->count; i++) {
            if (!done[i] && (least == SIZE_MAX || b->formats[i].units <= b->formats[least].units)) {
                least = i;
            }
        }
        kg_format_t *f = &b->formats[least];
        done[least] = true;
        f->kept = !f->gone && f->units <= budget - b->units;
        if (f->kept) {
            b->units += f->units;
        } else {
            b->cut += f->units;
        }
    }
}

int kg_bundle_select(kg_bundle_t *b, const kg_mapper_opts_t *opts, uint64_t budget)
{
    b->units = 0;
    b->cut = b->over;
    b->meta_kept = b->meta_len > 0 && b->meta_units <= budget;
    if (b->meta_kept) {
        b->units = b->meta_units;
    } else {
        b->cut += b->meta_units;
    }
    keep_what_fits(b, budget);
    b->type = SIZE_MAX;
    bool image = false;
    for (size_t i = b->count; i-- > 0;) {
        if (b->formats[i].kept) {
            b->type = i;
            image = image || name_starts(b->formats[i].name, "image/");
        }
    }
    b->value = !image && find(b, "text/plain") != SIZE_MAX;
    return choose_text(b, opts);
}

/* --- appending -----------------------------------------------------------------------------------
 */

/* The Result as parts; places are counted along. */
typedef struct writer {
    kg_buf_t *small; /* what is made here; parts of it are named by offset until the end */
    kg_slice_t parts[KG_RUN_FORMATS_MAX * 2 + 16];
    size_t offs[KG_RUN_FORMATS_MAX * 2 + 16]; /* of parts in small, SIZE_MAX = elsewhere */
    size_t count;
    size_t from; /* in small: not yet a part */
    uint32_t len;
    int rc;
} writer_t;

static void put(writer_t *w, const char *text)
{
    size_t before = w->small->len;
    w->rc = w->rc < 0 ? w->rc : kg_buf_append_cstr(w->small, text);
    w->len += (uint32_t)(w->small->len - before);
}

static void put_quoted(writer_t *w, kg_slice_t text)
{
    size_t before = w->small->len;
    w->rc = w->rc < 0 ? w->rc : kg_json_quote(w->small, text.data ? text.data : "", text.len);
    w->len += (uint32_t)(w->small->len - before);
}

static void close_small(writer_t *w)
{
    if (w->small->len > w->from) {
        w->offs[w->count] = w->from;
        w->parts[w->count++] = kg_slice(NULL, w->small->len - w->from);
        w->from = w->small->len;
    }
}

static void put_part(writer_t *w, kg_slice_t part)
{
    close_small(w);
    w->offs[w->count] = SIZE_MAX;
    w->parts[w->count++] = part;
    w->len += (uint32_t)part.len;
}

static void put_formats(writer_t *w, const kg_bundle_t *b, kg_rich_t *rich)
{
    bool first = true;
    for (size_t i = 0; i < b->count; i++) {
        const kg_format_t *f = &b->formats[i];
        if (!f->kept) {
            continue;
        }
        put(w, first ? "" : ",");
        put_quoted(w, f->name);
        put(w, ":");
        if (i == b->type) {
            rich->data_src = w->len;
            rich->data_len = (uint32_t)f->value_len;
        }
        if (i == b->text_format) {
            rich->text_src = w->len + (f->string ? 1 : 0);
            rich->text_len = (uint32_t)body_of(b, i).len;
        }
        put_part(w, kg_slice(b->values.data + f->value_off, f->value_len));
        first = false;
    }
}

static void put_result(writer_t *w, const kg_bundle_t *b, kg_rich_t *rich)
{
    static const char plain[] = "text/plain";
    bool none = b->type == SIZE_MAX;
    put(w, "{\"type\":");
    put_quoted(w, none ? kg_slice_cstr(plain) : b->formats[b->type].name);
    put(w, ",\"data\":");
    rich->data_at = w->len;
    put(w, none ? "\"\",\"text\":\"" : ",\"text\":\"");
    rich->text_src = w->len;
    if (b->text_format != SIZE_MAX) {
        rich->text_at = w->len;
    } else {
        rich->text_len = (uint32_t)b->text.len;
        put_part(w, kg_buf_slice(&b->text));
    }
    put(w, "\",\"formats\":{");
    put_formats(w, b, rich);
    put(w, "},\"metadata\":");
    if (b->meta_kept) {
        put_part(w, kg_slice(b->values.data + b->meta_off, b->meta_len));
    } else {
        put(w, "{}");
    }
    put(w, ",\"main\":");
    rich->main_at = w->len;
    put(w, b->main ? "true" : "false");
    put(w, ",\"display_id\":");
    if (b->has_display_id) {
        put_quoted(w, kg_buf_slice(&b->display_id));
    } else {
        put(w, "null");
    }
    put(w, "}");
}

int kg_bundle_append(kg_bundle_t *b, kg_run_log_t *log, kg_event_type_t type)
{
    KG_AUTO_BUF kg_buf_t small = {0};
    writer_t w = {.small = &small};
    kg_rich_t rich = {.did = b->did};
    if (type == KG_EVENT_UPDATE) {
        put(&w, ",\"display_id\":");
        put_quoted(&w, kg_buf_slice(&b->display_id));
    }
    put(&w, ",\"result\":");
    uint32_t start = w.len;
    put_result(&w, b, &rich);
    close_small(&w);
    if (w.rc < 0) {
        return w.rc;
    }
    for (size_t i = 0; i < w.count; i++) {
        if (w.offs[i] != SIZE_MAX) {
            w.parts[i].data = small.data + w.offs[i];
        }
    }
    bool r = strcmp(log->body->meta.language, "r") == 0;
    unsigned flags =
        b->main ? KG_REC_MAIN : (r && b->value && type == KG_EVENT_DISPLAY ? KG_REC_VALUE : 0);
    const kg_log_event_t event = {.type = type,
                                  .flags = flags,
                                  .body_off = start,
                                  .body_len = w.len - start,
                                  .units = (uint32_t)b->units,
                                  .rich = &rich,
                                  .parts = w.parts,
                                  .count = w.count,
                                  .token = b};
    if (w.len > KG_RUN_APPLY_BYTES && kg_log_stage(log, &event, !b->staging) > 0) {
        b->staging = true;
        return 1;
    }
    b->staging = false;
    return kg_log_append(log, &event);
}
