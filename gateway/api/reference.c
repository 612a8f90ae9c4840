/* gateway/api: the reference for people, out of the tables of operations and of objects: one walk,
 * written as Markdown (docs/api.md) or as a page of HTML without scripts (/docs). */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gateway/api/api.h"
#include "gateway/api/op.h"
#include "gateway/api/schemas.h"

/* --- The pen: all that differs between the two --------------------------------------------- */

typedef struct pen {
    kg_buf_t *out;
    bool html;
    int rc; /* of the first write that failed; nothing is written after it */
} pen_t;

static void raw(pen_t *p, const char *format, ...) KG_PRINTF(2, 3);
static void raw(pen_t *p, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    p->rc = p->rc ? p->rc : kg_buf_vprintf(p->out, format, ap);
    va_end(ap);
}

static void mark(pen_t *p, const char *html, const char *markdown)
{
    raw(p, "%s", p->html ? html : markdown);
}

static void escape(pen_t *p, char c)
{
    if (p->html && strchr("<>&\"", c)) {
        raw(p, "%s", c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : "&quot;");
    } else {
        raw(p, !p->html && strchr("|<*", c) ? "\\%c" : "%c", c);
    }
}

/* Prose of our own tables; what stands in backticks is code. */
static void text(pen_t *p, const char *s)
{
    bool in_code = false;
    for (; *s; s++) {
        if (*s != '`') {
            escape(p, *s);
            continue;
        }
        in_code = !in_code;
        mark(p, in_code ? "<code>" : "</code>", "`");
    }
}

static void code(pen_t *p, const char *s)
{
    mark(p, "<code>", "`");
    for (; *s; s++) {
        if (p->html) {
            escape(p, *s);
        } else {
            raw(p, *s == '|' ? "\\|" : "%c", *s);
        }
    }
    mark(p, "</code>", "`");
}

/* As GitHub makes anchors of headings: small letters, no dots. */
static void anchor(pen_t *p, const char *title)
{
    for (; *title; title++) {
        if (*title != '.' && *title != ':') {
            raw(p, "%c", *title == ' ' ? '-' : tolower((unsigned char)*title));
        }
    }
}

static void head(pen_t *p, unsigned level, const char *before, const char *title)
{
    if (p->html) {
        raw(p, "<h%u id=\"", level);
        anchor(p, before);
        anchor(p, title);
        raw(p, "\">%s%s</h%u>\n", before, title, level);
    } else {
        raw(p, "\n%.*s %s%s\n", (int)level, "######", before, title);
    }
}

static void link_to(pen_t *p, const char *before, const char *title)
{
    mark(p, "<a href=\"#", "[");
    if (p->html) {
        anchor(p, before);
        anchor(p, title);
        raw(p, "\">%s</a>", title);
    } else {
        raw(p, "%s](#", title);
        anchor(p, before);
        anchor(p, title);
        raw(p, ")");
    }
}

static void table(pen_t *p, const char *const *columns, size_t count)
{
    mark(p, "<table><tr>", "\n|");
    for (size_t i = 0; i < count; i++) {
        raw(p, p->html ? "<th>%s</th>" : " %s |", columns[i]);
    }
    mark(p, "</tr>\n", "\n|");
    for (size_t i = 0; i < count && !p->html; i++) {
        raw(p, "---|");
    }
    mark(p, "", "\n");
}

static void row(pen_t *p)
{
    mark(p, "<tr><td>", "| ");
}
static void cell(pen_t *p)
{
    mark(p, "</td><td>", " | ");
}
static void row_end(pen_t *p)
{
    mark(p, "</td></tr>\n", " |\n");
}
static void table_end(pen_t *p)
{
    mark(p, "</table>\n", "");
}

static void words(pen_t *p, const char *const *values)
{
    for (size_t i = 0; values[i]; i++) {
        raw(p, i ? ", " : "");
        code(p, values[i]);
    }
}

/* --- Objects --------------------------------------------------------------------------------- */

#define OBJECT "Object: "

static bool is_object(const char *name, size_t len)
{
    size_t count;
    const kg_schema_row_t *rows = kg_schema_rows(&count);
    bool found = len == 5 && strncmp(name, "Event", len) == 0;
    for (size_t i = 0; i < count && !found; i++) {
        found = rows[i].schema && strlen(rows[i].schema) == len &&
                strncmp(rows[i].schema, name, len) == 0;
    }
    return found;
}

static void object_name(pen_t *p, const char *name, size_t len)
{
    char copy[64];
    (void)snprintf(copy, sizeof copy, "%.*s", (int)len, name);
    if (is_object(name, len)) {
        link_to(p, OBJECT, copy);
    } else {
        raw(p, "%s", copy);
    }
}

/* The notation of schemas.c, without its trailing marks. */
static void object_type(pen_t *p, const char *type, size_t len)
{
    if (*type == '[' || *type == '{') {
        raw(p, *type == '[' ? "list of " : "object whose values are ");
        object_name(p, type + 1, len - 2);
    } else if (*type == '=' || memchr(type, '|', len)) {
        for (size_t i = *type == '='; i < len;) {
            char word[64];
            size_t n = strcspn(type + i, "|?~");
            (void)snprintf(word, sizeof word, "%.*s", (int)n, type + i);
            code(p, word);
            i += n + 1;
            raw(p, i < len ? ", " : "");
        }
    } else {
        object_name(p, type, len);
    }
}

static void member(pen_t *p, const kg_schema_row_t *m)
{
    size_t len = strlen(m->type);
    bool optional = m->type[len - 1] == '~';
    len -= optional;
    bool nullable = m->type[len - 1] == '?';
    len -= nullable;
    row(p);
    code(p, m->name);
    cell(p);
    object_type(p, m->type, len);
    raw(p, nullable ? " or null" : "");
    raw(p, optional ? "; may be absent" : "");
    cell(p);
    text(p, m->doc);
    row_end(p);
}

static void objects(pen_t *p)
{
    static const char *const columns[] = {"member", "type", "meaning"};
    size_t count;
    const kg_schema_row_t *rows = kg_schema_rows(&count);
    head(p, 2, "", "Objects");
    mark(p, "<p>", "\n");
    text(p, "Times are RFC 3339 in UTC. What tool calls answer (ToolList, ToolResult) is as the "
            "vendor's API has it.");
    mark(p, "</p>\n", "\n");
    for (size_t i = 0; i < count; i++) {
        if (rows[i].schema) {
            mark(p, i ? "</table>\n" : "", "");
            head(p, 3, OBJECT, rows[i].schema);
            table(p, columns, KG_ARRAY_LEN(columns));
        }
        member(p, &rows[i]);
    }
    table_end(p);
    head(p, 3, OBJECT, "Event");
    mark(p, "<p>One of ", "\nOne of ");
    const char *const *events = kg_schema_events(&count);
    for (size_t i = 0; i < count; i++) {
        raw(p, i ? ", " : "");
        object_name(p, events[i], strlen(events[i]));
    }
    mark(p, ".</p>\n", ".\n");
}

/* --- Operations ------------------------------------------------------------------------------ */

static const char *field_type(const kg_field_t *f)
{
    switch (f->type) {
    case KG_FIELD_STRING:
        return "string";
    case KG_FIELD_INTEGER:
        return "integer";
    case KG_FIELD_NUMBER:
        return "number";
    case KG_FIELD_BOOLEAN:
        return "boolean";
    case KG_FIELD_STRINGS:
        return "list of strings";
    case KG_FIELD_STRING_MAP:
        return "object whose values are strings";
    case KG_FIELD_OBJECT:
        return "object";
    case KG_FIELD_LINES:
        return "string or list of strings";
    case KG_FIELD_NAME_OR_OBJECT:
        return "object";
    case KG_FIELD_TEXT_OR_OBJECT:
        return "object, or its JSON text";
    }
    return "";
}

static void field_range(pen_t *p, const kg_field_t *f)
{
    bool number = f->type == KG_FIELD_INTEGER || f->type == KG_FIELD_NUMBER;
    if (number && f->max) {
        raw(p, ", %" PRId64 " to %" PRId64, f->min, f->max);
    } else if (number) {
        raw(p, ", from %" PRId64, f->min);
    } else if (f->type == KG_FIELD_STRING && f->max && !f->values) {
        raw(p, ", at most %" PRId64 " bytes", f->max);
    }
}

/* upload_length is the header upload-length; metadata of a query is metadata.NAME. */
static void field_name(pen_t *p, const char *prefix, const kg_field_t *f)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s%s", prefix, f->name,
                   f->in == KG_IN_QUERY && f->type == KG_FIELD_STRING_MAP ? ".NAME" : "");
    for (char *c = name; f->in == KG_IN_HEADER && *c; c++) {
        *c = (char)(*c == '_' ? '-' : *c);
    }
    code(p, name);
}

static void field_row(pen_t *p, const char *prefix, const kg_field_t *f)
{
    static const char *const places[] = {"path", "query", "body", "header", "frame"};
    row(p);
    field_name(p, prefix, f);
    cell(p);
    raw(p, "%s", places[f->in]);
    cell(p);
    if (f->values) {
        words(p, f->values);
        raw(p, f->type == KG_FIELD_NAME_OR_OBJECT ? ", or an object" : "");
    } else {
        bool of_query = f->in == KG_IN_QUERY && f->type == KG_FIELD_STRING_MAP;
        raw(p, "%s", of_query ? "string" : field_type(f));
    }
    field_range(p, f);
    cell(p);
    raw(p, f->required ? "Required. " : "");
    text(p, f->doc ? f->doc : "");
    if (f->standard) {
        raw(p, " Default: ");
        code(p, f->standard);
        raw(p, ".");
    }
    row_end(p);
}

static void fields(pen_t *p, const kg_field_t *list)
{
    static const char *const columns[] = {"field", "in", "type", "meaning"};
    if (!list || !list->name) {
        return;
    }
    table(p, columns, KG_ARRAY_LEN(columns));
    for (const kg_field_t *f = list; f->name; f++) {
        field_row(p, "", f);
        char prefix[64];
        (void)snprintf(prefix, sizeof prefix, "%s.", f->name);
        for (const kg_field_t *inner = f->fields; inner && inner->name; inner++) {
            kg_field_t shown = *inner;
            shown.in = f->in;
            field_row(p, prefix, &shown);
        }
    }
    table_end(p);
}

static void rights(pen_t *p, kg_right_t right)
{
    static const char *const needs[] = {
        [KG_RIGHT_NONE] = "Open to everybody.",
        [KG_RIGHT_USE] = "Needs `use`.",
        [KG_RIGHT_SANDBOX] = "Needs `use`, or `attach` of the sandbox.",
        [KG_RIGHT_HANDLER] = "Needs a key for the sandbox that is named.",
        [KG_RIGHT_ADMIN] = "Needs `admin`.",
    };
    text(p, needs[right]);
}

static void answer(pen_t *p, const kg_op_t *op)
{
    const char *name = op->response;
    bool only_events = strcmp(name, "Event") == 0 || op->flags & KG_OP_EVENTS;
    text(p, op->flags & KG_OP_NO_BODY   ? " Answers 204"
            : op->flags & KG_OP_CREATES ? " Answers 201 with `Location`"
                                        : " Answers 200");
    if (op->flags & KG_OP_TEXT) {
        raw(p, " ");
        code(p, name);
    } else if (op->flags & KG_OP_RAW_OUT) {
        raw(p, " and the bytes; over the WebSocket ");
        object_name(p, name, strlen(name));
    } else if (only_events) {
        raw(p, " and a stream of ");
        object_name(p, name, strlen(name));
    } else if (name[0]) {
        raw(p, op->flags & KG_OP_NO_BODY   ? "; over the WebSocket "
               : op->flags & KG_OP_CREATES ? " and "
                                           : " ");
        object_name(p, name, strlen(name));
    }
    if (op->flags & KG_OP_STREAMS && !only_events) {
        raw(p, ", or a stream of ");
        object_name(p, "Event", 5);
    }
    raw(p, ".");
}

static void operation(pen_t *p, const kg_op_t *op)
{
    char request[160];
    (void)snprintf(request, sizeof request, "%s %s", op->method, op->path);
    head(p, 3, "", op->name);
    mark(p, "<p>", "\n");
    code(p, request);
    raw(p, ": ");
    text(p, op->doc);
    raw(p, ". ");
    rights(p, op->right);
    answer(p, op);
    if (op->flags & KG_OP_RAW_IN) {
        raw(p, " The body is the bytes.");
    }
    if (op->flags & KG_OP_TEXT_IN) {
        text(p, " The body is the `call` alone, which a frame has as a field.");
    }
    raw(p, op->flags & KG_OP_HTTP_ONLY ? " Over HTTP only." : "");
    mark(p, "</p>\n", "\n");
    fields(p, op->fields);
}

static void overview(pen_t *p, const kg_op_t *ops, size_t count)
{
    static const char *const columns[] = {"operation", "request", ""};
    head(p, 2, "", "Overview");
    table(p, columns, KG_ARRAY_LEN(columns));
    for (size_t i = 0; i < count; i++) {
        if (ops[i].flags & KG_OP_MISSING) {
            continue;
        }
        char request[160];
        (void)snprintf(request, sizeof request, "%s %s", ops[i].method, ops[i].path);
        row(p);
        link_to(p, "", ops[i].name);
        cell(p);
        code(p, request);
        cell(p);
        text(p, ops[i].doc);
        row_end(p);
    }
    table_end(p);
}

static void errors(pen_t *p)
{
    static const char *const columns[] = {"code", "status", "hint"};
    head(p, 2, "", "Errors");
    table(p, columns, KG_ARRAY_LEN(columns));
    for (unsigned i = 1; i < KG_ERR_COUNT; i++) {
        kg_err_t err = {.code = (kg_err_code_t)i};
        row(p);
        code(p, kg_err_name(err.code));
        cell(p);
        raw(p, "%d", kg_err_status(err.code));
        cell(p);
        text(p, kg_err_hint_of(&err));
        row_end(p);
    }
    table_end(p);
}

static void body(pen_t *p)
{
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    mark(p, "<p>", "");
    text(p, "Every operation is an HTTP request (`Authorization: Bearer KEY` or `X-API-Key: KEY`; "
            "bodies are JSON) and, by its name, a frame `{\"id\":…,\"op\":NAME,…}` with the same "
            "fields on the WebSocket at `/v1/ws` (subprotocol `sandal.v1`). Every POST takes "
            "`Idempotency-Key`. An error is ");
    object_name(p, "Error", 5);
    mark(p,
         ", its codes are <a href=\"#errors\">below</a>. The same for programs is "
         "<a href=\"/v1/openapi.yaml\">/v1/openapi.yaml</a>.</p>\n",
         ", its codes are in [errors.md](errors.md). The same for programs is\n"
         "[openapi.yaml](openapi.yaml), what neither can say is in [api-notes.md](api-notes.md), "
         "and what the words mean in [concepts.md](concepts.md).\n");
    overview(p, ops, count);
    head(p, 2, "", "Operations");
    for (size_t i = 0; i < count; i++) {
        if (!(ops[i].flags & KG_OP_MISSING)) {
            operation(p, &ops[i]);
        }
    }
    objects(p);
}

int kg_reference_markdown(kg_buf_t *out)
{
    pen_t p = {.out = out};
    raw(&p, "# API reference\n\nMade from the tables in `gateway/api`, as the page `/docs` of the "
            "daemon is.\n\n");
    body(&p);
    return p.rc;
}

int kg_docs_html(kg_buf_t *out)
{
    pen_t p = {.out = out, .html = true};
    raw(&p, "%s",
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>Sandal API</title>\n"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;"
        "padding:0 1rem}table{border-collapse:collapse;width:100%;margin:.5rem 0}"
        "th,td{text-align:left;vertical-align:top;padding:.2rem .6rem;border-bottom:1px solid "
        "#ccc;overflow-wrap:break-word}h3{margin:2rem 0 0}"
        "code{font-family:ui-monospace,monospace}</style></head><body>\n"
        "<h1>Sandal " SANDAL_VERSION "</h1>\n");
    body(&p);
    errors(&p);
    raw(&p, "</body></html>\n");
    return p.rc;
}
