/* gateway/tool: text within a budget. What is left out is told where it is left out. */
#include "gateway/base/utf8.h"
#include "gateway/tool/render.h"

typedef enum kind {
    SMALL,
    CAPITAL,
    DIGIT,
    BLANK,
    LINE_END,
    MARK /* all other, also no ASCII */
} kind_t;

static kind_t kind_of(char c)
{
    if (c >= 'a' && c <= 'z') {
        return SMALL;
    }
    if (c >= 'A' && c <= 'Z') {
        return CAPITAL;
    }
    if (c >= '0' && c <= '9') {
        return DIGIT;
    }
    return c == '\n' ? LINE_END : c == ' ' || c == '\t' ? BLANK : MARK;
}

/* Whether tokenizers begin anew between the two, as base64, identifiers and tables make them. */
static bool parts(kind_t before, kind_t here)
{
    switch (here) {
    case SMALL:
        return before == DIGIT;
    case CAPITAL:
        return before == DIGIT || before == SMALL;
    case DIGIT:
        return before == SMALL || before == CAPITAL || before == BLANK;
    case BLANK:
    case LINE_END:
    case MARK:
    default:
        return false;
    }
}

/* In quarters, of the character whose first byte is at `at`; 0 for its other bytes. Without what is
 * before it, it costs no more: a text that is cut costs no more than it was counted for. */
static unsigned cost(const char *text, size_t at)
{
    static const unsigned char costs[] = {
        [SMALL] = 1, [CAPITAL] = 1, [DIGIT] = 2, [BLANK] = 1, [LINE_END] = 4, [MARK] = 2};
    unsigned char c = (unsigned char)text[at];
    if (c >= 0x80) {
        return c < 0xC0 ? 0 : c < 0xF0 ? KG_TOOL_QUARTERS : 2 * KG_TOOL_QUARTERS;
    }
    kind_t kind = kind_of(text[at]);
    return costs[kind] + (at > 0 && parts(kind_of(text[at - 1]), kind) ? 3U : 0U);
}

uint64_t kg_tool_quarters(const char *data, size_t len)
{
    uint64_t quarters = 0;
    for (size_t i = 0; i < len; i++) {
        quarters += cost(data, i);
    }
    return quarters;
}

/* Bytes of the longest prefix within quarters. */
static size_t prefix(kg_slice_t text, uint64_t quarters)
{
    size_t at = 0;
    while (at < text.len) {
        size_t n = kg_utf8_step(text.data + at, text.len - at);
        unsigned next = cost(text.data, at);
        if (next > quarters) {
            break;
        }
        quarters -= next;
        at += n ? n : 1;
    }
    return at;
}

/* Where the longest suffix within quarters begins. */
static size_t suffix(kg_slice_t text, uint64_t quarters)
{
    size_t at = text.len;
    while (at > 0) {
        size_t start = at - 1;
        while (start > 0 && ((unsigned char)text.data[start] & 0xC0) == 0x80) {
            start--;
        }
        unsigned next = cost(text.data, start);
        if (next > quarters) {
            break;
        }
        quarters -= next;
        at = start;
    }
    return at;
}

/* The end of the last line that ends in the last quarter of the prefix; else the prefix as it is.
 */
static size_t snap_end(kg_slice_t text, size_t end)
{
    const char *low = text.data + end - end / 4;
    for (const char *p = text.data + end; p > low; p--) {
        if (p[-1] == '\n') {
            return (size_t)(p - text.data);
        }
    }
    return end;
}

/* The first line that begins in the first quarter of the suffix; with frames, rather the first
 * paragraph in its first half: tracebacks have an empty line between frames. */
static size_t snap_start(kg_slice_t text, size_t start, bool frames)
{
    size_t len = text.len - start;
    const char *from = text.data + start;
    const char *gap = frames ? memmem(from, len / 2, "\n\n", 2) : NULL;
    if (gap) {
        return (size_t)(gap - text.data) + 2;
    }
    if (start > 0 && text.data[start - 1] == '\n') {
        return start;
    }
    const char *line = memchr(from, '\n', len / 4);
    return line ? (size_t)(line - text.data) + 1 : start;
}

static size_t count_lines(kg_slice_t text)
{
    size_t lines = 0;
    const char *end = text.data + text.len;
    for (const char *p = text.data; p < end; p++) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p) {
            break;
        }
        lines++;
    }
    return lines;
}

static int put_gap(kg_buf_t *out, kg_slice_t gone)
{
    size_t lines = count_lines(gone);
    size_t characters = kg_utf8_count(gone.data, gone.len);
    const char *before = out->len && out->data[out->len - 1] != '\n' ? "\n" : "";
    if (lines > 1) {
        return kg_buf_printf(out, "%s[… %zu lines (%zu characters) left out …]\n", before, lines,
                             characters);
    }
    return kg_buf_printf(out, "%s[… %zu characters left out …]\n", before, characters);
}

/* pandas' "[1000 rows x 5 columns]": the last line, where it is such. */
static size_t shape_line(kg_slice_t text)
{
    size_t end = text.len;
    while (end > 0 && text.data[end - 1] == '\n') {
        end--;
    }
    size_t start = end;
    while (start > 0 && text.data[start - 1] != '\n' && end - start < 80) {
        start--;
    }
    return start < end && text.data[start] == '[' && text.data[end - 1] == ']' ? start : text.len;
}

int kg_tool_cut(kg_slice_t text, kg_tool_cut_t how, uint64_t quarters, kg_buf_t *out, bool *ret_cut)
{
    if (kg_tool_quarters(text.data, text.len) <= quarters) {
        return kg_buf_append_slice(out, text);
    }
    size_t head = 0;
    size_t tail;
    if (how == KG_TOOL_CUT_START) {
        tail = snap_start(text, suffix(text, quarters), true);
    } else if (how == KG_TOOL_CUT_END) {
        tail = shape_line(text);
        uint64_t shape = kg_tool_quarters(text.data + tail, text.len - tail);
        head = snap_end(text, prefix(text, shape < quarters ? quarters - shape : 0));
    } else {
        head = snap_end(text, prefix(text, quarters / 2));
        tail = snap_start(text, suffix(text, quarters / 2), false);
    }
    tail = tail < head ? head : tail;
    *ret_cut = true;
    int rc = kg_buf_append(out, text.data, head);
    rc = rc < 0 ? rc : put_gap(out, kg_slice(text.data + head, tail - head));
    return rc < 0 ? rc : kg_buf_append(out, text.data + tail, text.len - tail);
}
