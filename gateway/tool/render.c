/* gateway/tool: what a model reads of a run. The transcript first, as a person would read it, then
 * the value of the last expression, what was displayed, the error, and notes on what is missing.
 * Each has a fair share of the tokens: what is short is whole, what is long shares the rest. */
#include "gateway/tool/render.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PIECES_MAX = 24,     /* texts that are shown one by one; displays beyond are counted */
    RESULTS_READ = 256,  /* results whose text is looked at */
    KIND_COUNT = 4,      /* of pictures */
    REASON_COUNT = 5,    /* why a picture is not shown */
    MESSAGE_MAX = 65536, /* bytes of an error's message that the traceback is searched for */
};

typedef enum reason {
    WHY_VENDOR,
    WHY_FAILED,
    WHY_MANY,
    WHY_LARGE,
    WHY_BROKEN
} reason_t;

typedef struct piece {
    kg_buf_t text;
    kg_tool_cut_t how;
    uint64_t size; /* quarters */
    uint64_t grant;
} piece_t;

typedef struct render {
    const kg_tool_call_t *call;
    const kg_tool_limits_t *limits;
    kg_tool_view_t *view;
    piece_t pieces[PIECES_MAX];
    size_t count;
    size_t read; /* results */
    size_t more; /* of them: those that have no piece */
    size_t unseen[REASON_COUNT];
    bool cut;
} render_t;

void kg_tool_view_fini(kg_tool_view_t *view)
{
    kg_buf_fini(&view->text);
    for (size_t i = 0; i < view->image_count; i++) {
        kg_buf_fini(&view->pixels[i]);
    }
    view->image_count = 0;
}

/* --- Text ----------------------------------------------------------------------------------- */

/* A line as a terminal would show it at last: what a carriage return wrote over is gone. */
static int put_line(kg_buf_t *out, const char *line, size_t len)
{
    while (len > 0 && line[len - 1] == '\r') {
        len--;
    }
    const char *back = memrchr(line, '\r', len);
    const char *from = back ? back + 1 : line;
    const char *end = line + len;
    int rc = 0;
    while (rc == 0 && from < end) { /* U+0000 is in no vendor's text */
        const char *nul = memchr(from, '\0', (size_t)(end - from));
        const char *stop = nul ? nul : end;
        rc = kg_buf_append(out, from, (size_t)(stop - from));
        rc = rc < 0 || !nul ? rc : kg_buf_append_cstr(out, "\xEF\xBF\xBD");
        from = nul ? nul + 1 : end;
    }
    return rc;
}

static int put_lines(kg_buf_t *out, kg_slice_t text)
{
    const char *end = text.data + text.len;
    int rc = 0;
    for (const char *p = text.data; rc == 0 && p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        rc = put_line(out, p, (size_t)(stop - p));
        rc = rc < 0 || !nl ? rc : kg_buf_append_char(out, '\n');
        p = nl ? nl + 1 : end;
    }
    return rc;
}

/* A string of the Execution as text: no colours, no U+0000. */
static int read_text(kg_json_value_t string, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t plain = {0};
    KG_AUTO_BUF kg_buf_t decoded = {0};
    kg_ansi_strip_t strip = {0};
    if (string.type != KG_JSON_STRING) {
        return 0;
    }
    int rc = kg_buf_append_char(&plain, '"');
    rc = rc < 0 ? rc
                : kg_ansi_strip_escaped(&strip, &plain, string.raw.data + 1, string.raw.len - 2);
    rc = rc < 0 ? rc : kg_buf_append_char(&plain, '"');
    rc = rc < 0 ? rc
                : kg_json_decode_string(&decoded,
                                        (kg_json_value_t){KG_JSON_STRING, kg_buf_slice(&plain)});
    return rc < 0 ? rc : put_lines(out, kg_buf_slice(&decoded));
}

static void trim(kg_buf_t *text)
{
    while (text->len > 0 && text->data[text->len - 1] == '\n') {
        text->len--;
    }
}

static bool ends_with(const kg_buf_t *text, const kg_buf_t *end)
{
    return end->len > 0 && text->len >= end->len &&
           memcmp(text->data + text->len - end->len, end->data, end->len) == 0;
}

/* Takes what has a piece of its own out of the transcript, where it is at the end of it (else it is
 * somewhere inside: late output came behind it). false: it is not in there. */
static bool take_out(kg_buf_t *transcript, const kg_buf_t *what)
{
    trim(transcript);
    if (ends_with(transcript, what)) {
        transcript->len -= what->len;
        trim(transcript);
        return true;
    }
    char *at = what->len && transcript->len
                   ? memmem(transcript->data, transcript->len, what->data, what->len)
                   : NULL;
    if (at) {
        size_t from = (size_t)(at - transcript->data);
        memmove(at, at + what->len, transcript->len - from - what->len);
        transcript->len -= what->len;
    }
    return at != NULL;
}

/* Takes text, which is then empty. */
static void add_piece(render_t *r, kg_buf_t *text, kg_tool_cut_t how)
{
    trim(text);
    if (text->len > 0 && r->count == PIECES_MAX) {
        r->more++;
    } else if (text->len > 0) {
        r->pieces[r->count++] =
            (piece_t){.text = *text, .how = how, .size = kg_tool_quarters(text->data, text->len)};
        *text = (kg_buf_t){0};
    }
}

/* --- Pictures ------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    const char *begin; /* in base64: vendors refuse a picture that is not what it says */
} kinds[KIND_COUNT] = {
    {"image/png", "iVBORw0KGgo"},
    {"image/jpeg", "/9j/"},
    {"image/webp", "UklGR"},
    {"image/gif", "R0lGOD"},
};

/* Base64 with no line ends in it; false: it is not. */
static bool tidy_base64(kg_buf_t *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++) {
        char c = text->data[i];
        bool digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (c == '\n' || c == '\r') {
            continue;
        }
        if (!digit && c != '+' && c != '/' && c != '=') {
            return false;
        }
        text->data[n++] = c;
    }
    text->len = n;
    return n > 0 && n % 4 == 0;
}

static int add_image(render_t *r, size_t kind, kg_json_value_t data)
{
    kg_tool_view_t *v = r->view;
    KG_AUTO_BUF kg_buf_t base64 = {0};
    int rc = kg_json_decode_string(&base64, data);
    if (rc < 0) {
        return rc;
    }
    size_t begin = strlen(kinds[kind].begin);
    if (!tidy_base64(&base64) || base64.len < begin ||
        memcmp(base64.data, kinds[kind].begin, begin) != 0) {
        r->unseen[WHY_BROKEN]++;
        return 0;
    }
    v->pixels[v->image_count] = base64;
    v->images[v->image_count] =
        (kg_tool_image_t){.type = kinds[kind].type, .base64 = kg_buf_slice(&base64)};
    v->image_count++;
    base64 = (kg_buf_t){0};
    return 0;
}

/* The picture that is shown of a result, or told of: its first format in the order above. */
static int show_image(render_t *r, size_t kind, kg_json_value_t data)
{
    kg_tool_format_t to = r->call->format;
    unsigned most = r->limits->images_max < KG_TOOL_IMAGES_CEILING ? r->limits->images_max
                                                                   : KG_TOOL_IMAGES_CEILING;
    if (most == 0 || !kg_tool_takes_image(to, kinds[kind].type)) {
        r->unseen[WHY_VENDOR]++;
    } else if (r->view->failed && to == KG_TOOL_ANTHROPIC) {
        r->unseen[WHY_FAILED]++; /* the API refuses them beside is_error */
    } else if (r->view->image_count >= most) {
        r->unseen[WHY_MANY]++;
    } else if (data.raw.len > r->limits->image_bytes + 2) {
        r->unseen[WHY_LARGE]++;
    } else {
        return add_image(r, kind, data);
    }
    return 0;
}

/* --- Parts of an Execution ------------------------------------------------------------------ */

enum {
    E_STATUS,
    E_OUTPUT,
    E_RESULTS,
    E_ERROR,
    E_TRUNCATED,
    E_COUNT
};

enum {
    F_FRAME = KIND_COUNT, /* our typed columns of a data frame, behind the kinds of pictures */
    F_COUNT
};

static size_t picture_of(const kg_json_value_t *formats)
{
    size_t kind = 0;
    while (kind < KIND_COUNT && formats[kind].type != KG_JSON_STRING) {
        kind++;
    }
    return kind;
}

static bool contains(const kg_buf_t *text, const kg_buf_t *part)
{
    return part->len && text->len && memmem(text->data, text->len, part->data, part->len);
}

/* A value has been taken out of the transcript; what is displayed, R's values but the last, may be
 * there to be read, and a picture to be seen. */
static int add_text(render_t *r,
                    kg_json_value_t string,
                    bool value,
                    bool picture,
                    kg_tool_cut_t how,
                    kg_buf_t *transcript)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    if (picture && !value) {
        return 0;
    }
    if (r->read++ >= RESULTS_READ) {
        r->more++;
        return 0;
    }
    int rc = read_text(string, &text);
    trim(&text);
    if (value) {
        (void)take_out(transcript, &text);
    }
    if (rc == 0 && (value || !contains(transcript, &text))) {
        add_piece(r, &text, how);
    }
    return rc;
}

static int add_result(render_t *r, kg_json_value_t result, kg_buf_t *transcript, bool ok)
{
    static const char *const names[] = {"text", "formats", "main"};
    const char *types[F_COUNT];
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_value_t formats[F_COUNT];
    for (size_t i = 0; i < KIND_COUNT; i++) {
        types[i] = kinds[i].type;
    }
    types[F_FRAME] = "application/vnd.dataframe+json";
    kg_json_get_many(result, names, v, KG_ARRAY_LEN(names));
    kg_json_get_many(v[1], types, formats, F_COUNT);
    size_t kind = picture_of(formats);
    int rc = kind < KIND_COUNT ? show_image(r, kind, formats[kind]) : 0;
    kg_tool_cut_t how =
        formats[F_FRAME].type != KG_JSON_ABSENT ? KG_TOOL_CUT_END : KG_TOOL_CUT_MIDDLE;
    return rc < 0 ? rc
                  : add_text(r, v[0], ok && v[2].type == KG_JSON_TRUE, kind < KIND_COUNT, how,
                             transcript);
}

static int add_results(render_t *r, kg_json_value_t results, kg_buf_t *transcript, bool ok)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t result;
    int rc = 0;
    if (results.type != KG_JSON_ARRAY) {
        return 0;
    }
    kg_json_iter_init(&it, results);
    while (rc == 0 && kg_json_iter_next(&it, &key, &result)) {
        rc = add_result(r, result, transcript, ok);
    }
    return rc;
}

/* "Name: message", as far as there is. */
static int error_line(kg_json_value_t name, kg_json_value_t message, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = read_text(name, out);
    rc = rc < 0 ? rc : read_text(message, &text);
    if (rc == 0 && text.len > 0) {
        rc = out->len ? kg_buf_append_cstr(out, ": ") : 0;
        rc = rc < 0 ? rc : kg_buf_append(out, text.data, text.len);
    }
    return rc;
}

/* *ret_last: bytes of the last element. */
static int join_traceback(kg_json_value_t traceback, kg_buf_t *out, size_t *ret_last)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t line;
    int rc = 0;
    if (traceback.type != KG_JSON_ARRAY) {
        return 0;
    }
    kg_json_iter_init(&it, traceback);
    for (bool first = true; rc == 0 && kg_json_iter_next(&it, &key, &line); first = false) {
        rc = first ? 0 : kg_buf_append_char(out, '\n');
        size_t from = out->len;
        rc = rc < 0 ? rc : read_text(line, out);
        *ret_last = out->len - from;
    }
    return rc;
}

/* What a model has to know of the state after an end that is not the code's own doing. */
static int note_state(kg_json_value_t error, kg_buf_t *out)
{
    kg_json_value_t state = kg_json_get(error, "state");
    kg_json_value_t started = kg_json_get(error, "started");
    if (started.type == KG_JSON_FALSE) {
        return kg_buf_append_cstr(out, "\n[The code was not started.]");
    }
    if (state.type == KG_JSON_STRING && kg_json_key_eq(state.raw, "lost")) {
        return kg_buf_append_cstr(out, "\n[All variables and imports are lost; files are still "
                                       "there.]");
    }
    return 0;
}

static int add_error(render_t *r, kg_json_value_t error, kg_buf_t *transcript)
{
    static const char *const names[] = {"name", "message", "traceback"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    KG_AUTO_BUF kg_buf_t line = {0};
    KG_AUTO_BUF kg_buf_t text = {0};
    size_t last = 0;
    kg_json_get_many(error, names, v, KG_ARRAY_LEN(names));
    int rc = error_line(v[0], v[1], &line);
    rc = rc < 0 ? rc : join_traceback(v[2], &text, &last);
    if (rc < 0) {
        return rc;
    }
    /* A kernel whose traceback is none, or says less than the message. */
    bool told =
        line.len == 0 || (text.len && memmem(text.data, text.len, line.data,
                                             line.len < MESSAGE_MAX ? line.len : MESSAGE_MAX));
    (void)take_out(transcript, text.len ? &text : &line);
    if (!told) {
        rc = text.len ? kg_buf_append_char(&text, '\n') : 0;
        rc = rc < 0 ? rc : kg_buf_append(&text, line.data, line.len);
        last = line.len;
    }
    /* Python's innermost frames and its message are at the end. Others begin with them; and of a
     * message that is very long its beginning must not be lost. */
    bool at_end =
        last > 0 && last < text.len / 2 && line.len >= last / 2 &&
        memcmp(text.data + text.len - last, line.data, last < line.len ? last : line.len) == 0;
    rc = rc < 0 ? rc : note_state(error, &text);
    if (rc == 0) {
        add_piece(r, &text, at_end ? KG_TOOL_CUT_START : KG_TOOL_CUT_MIDDLE);
    }
    return rc;
}

/* --- Notes ---------------------------------------------------------------------------------- */

static int put_note(kg_buf_t *out, const char *text)
{
    int rc = out->len && out->data[out->len - 1] != '\n' ? kg_buf_append_char(out, '\n') : 0;
    return rc < 0 ? rc : kg_buf_printf(out, "[%s]", text);
}

static int note_images(const render_t *r, kg_buf_t *out)
{
    static const char *const why[REASON_COUNT] = {
        [WHY_VENDOR] = "this API takes none of its kind in tool results",
        [WHY_FAILED] = "this API takes none beside an error",
        [WHY_MANY] = "there are too many",
        [WHY_LARGE] = "too large; make it smaller, with a lower dpi or figsize",
        [WHY_BROKEN] = "its data is not of its type",
    };
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < REASON_COUNT; i++) {
        char text[128];
        if (r->unseen[i]) {
            snprintf(text, sizeof text, "%zu image%s not shown: %s", r->unseen[i],
                     r->unseen[i] == 1 ? "" : "s", why[i]);
            rc = put_note(out, text);
        }
    }
    return rc;
}

/* What went over the limits of the run itself: it is nowhere any more. */
static int note_truncated(kg_json_value_t truncated, kg_buf_t *out)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    int rc = 0;
    if (truncated.type != KG_JSON_OBJECT) {
        return 0;
    }
    kg_json_iter_init(&it, truncated);
    while (rc == 0 && kg_json_iter_next(&it, &key, &value)) {
        char text[160];
        int64_t n = 0;
        if (key.len < 2 || key.len > 32 || kg_json_int(value, &n) < 0) {
            continue;
        }
        snprintf(text, sizeof text, "%.*s: %lld %s went over a limit and are lost",
                 (int)(key.len - 2), key.data + 1, (long long)n,
                 memcmp(key.data, "\"events", 7) == 0 ? "of them" : "bytes");
        rc = put_note(out, text);
    }
    return rc;
}

static int put_notes(const render_t *r, kg_json_value_t truncated, kg_buf_t *out)
{
    char text[320];
    int rc = note_images(r, out);
    if (rc == 0 && r->more) {
        snprintf(text, sizeof text, "%zu more displays are not shown", r->more);
        rc = put_note(out, text);
    }
    rc = rc < 0 ? rc : note_truncated(truncated, out);
    if (rc == 0 && r->call->ignored.len) {
        snprintf(text, sizeof text, "Arguments that " KG_TOOL_RUN_CODE " does not have: %.240s",
                 r->call->ignored.data);
        rc = put_note(out, text);
    }
    if (rc == 0 && r->cut) {
        snprintf(text, sizeof text,
                 "The output was cut to %u tokens. To see the rest, run code that prints a part of "
                 "it (a slice, a search), or write it to a file and read that piece by piece.",
                 r->limits->max_tokens);
        rc = put_note(out, text);
    }
    if (rc == 0 && out->len == 0) {
        rc = kg_buf_append_cstr(out, r->view->image_count ? "[image]" : "[no output]");
    }
    return rc;
}

/* --- The whole ------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const piece_t *const *x = a;
    const piece_t *const *y = b;
    return ((*x)->size > (*y)->size) - ((*x)->size < (*y)->size);
}

/* Smallest first: each has what it needs up to an even share of what is left. */
static void share_out(render_t *r)
{
    piece_t *sorted[PIECES_MAX];
    uint64_t left = (uint64_t)r->limits->max_tokens * KG_TOOL_QUARTERS;
    for (size_t i = 0; i < r->count; i++) {
        sorted[i] = &r->pieces[i];
    }
    qsort(sorted, r->count, sizeof(piece_t *), by_size);
    for (size_t i = 0; i < r->count; i++) {
        uint64_t share = left / (r->count - i);
        sorted[i]->grant = sorted[i]->size < share ? sorted[i]->size : share;
        left -= sorted[i]->grant;
    }
}

static int put_pieces(render_t *r)
{
    kg_buf_t *out = &r->view->text;
    int rc = 0;
    share_out(r);
    for (size_t i = 0; rc == 0 && i < r->count; i++) {
        piece_t *p = &r->pieces[i];
        rc = out->len && out->data[out->len - 1] != '\n' ? kg_buf_append_char(out, '\n') : 0;
        rc = rc < 0 ? rc : kg_tool_cut(kg_buf_slice(&p->text), p->how, p->grant, out, &r->cut);
    }
    return rc;
}

static int fill(render_t *r, kg_slice_t execution)
{
    static const char *const names[E_COUNT] = {"status", "output", "results", "error", "truncated"};
    kg_json_value_t e[E_COUNT];
    KG_AUTO_BUF kg_buf_t transcript = {0};
    kg_json_get_many((kg_json_value_t){KG_JSON_OBJECT, execution}, names, e, E_COUNT);
    if (e[E_STATUS].type != KG_JSON_STRING) {
        return -EBADMSG;
    }
    bool ok = kg_json_key_eq(e[E_STATUS].raw, "ok");
    r->view->failed = !ok;
    int rc = read_text(e[E_OUTPUT], &transcript);
    r->count = 1; /* the transcript's place: it is whole when all else has been taken out of it */
    rc = rc < 0 ? rc : add_results(r, e[E_RESULTS], &transcript, ok);
    if (rc == 0 && e[E_ERROR].type == KG_JSON_OBJECT) {
        if (r->count == PIECES_MAX) { /* an error is never left out */
            kg_buf_fini(&r->pieces[--r->count].text);
            r->more++;
        }
        rc = add_error(r, e[E_ERROR], &transcript);
    }
    trim(&transcript);
    r->pieces[0] = (piece_t){.text = transcript,
                             .how = KG_TOOL_CUT_MIDDLE,
                             .size = kg_tool_quarters(transcript.data, transcript.len)};
    transcript = (kg_buf_t){0};
    rc = rc < 0 ? rc : put_pieces(r);
    return rc < 0 ? rc : put_notes(r, e[E_TRUNCATED], &r->view->text);
}

int kg_tool_render(const kg_tool_call_t *call,
                   kg_slice_t execution,
                   const kg_tool_limits_t *limits,
                   kg_tool_view_t *ret_view)
{
    kg_tool_view_t view = {0};
    render_t *r = calloc(1, sizeof *r);
    if (!r) {
        return -ENOMEM;
    }
    r->call = call;
    r->limits = limits;
    r->view = &view;
    int rc = fill(r, execution);
    for (size_t i = 0; i < r->count; i++) {
        kg_buf_fini(&r->pieces[i].text);
    }
    free(r);
    if (rc < 0) {
        kg_tool_view_fini(&view);
        return rc;
    }
    *ret_view = view;
    return 0;
}
