/* proto: work on canonical escaped text (see json_copy.c) without decoding it: terminal sequences
 * out, and cuts that leave both halves whole. */
#include <errno.h>

#include "gateway/base/utf8.h"
#include "proto/json_lex.h"
#include "proto/json_scan.h"

enum {
    ESC = 0x1B,
    BEL = 0x07,
    ESCAPE_MAX = 6, /* \u00xx */
};

enum {
    GROUND,
    AFTER_ESC,
    IN_CSI,
    IN_STRING,
    STRING_ESC
};

/* The byte or control at p; *ret_len is what it takes in the text. */
static unsigned unit_at(const char *p, const char *end, size_t *ret_len)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    *ret_len = 1;
    if (*p != '\\' || end - p < 2) {
        return (unsigned char)*p;
    }
    if (p[1] == 'u') {
        int unit = kg_json_hex4(p + 2, end);
        *ret_len = unit < 0 ? 2 : ESCAPE_MAX;
        return unit < 0 ? 'u' : (unsigned)unit;
    }
    *ret_len = 2;
    const char *hit = p[1] ? strchr(from, p[1]) : NULL;
    return hit ? (unsigned char)to[hit - from] : (unsigned char)p[1];
}

static bool between(unsigned unit, unsigned low, unsigned high)
{
    return unit >= low && unit <= high;
}

/* After ESC: [ opens a CSI; ], P, X, ^ and _ open a string; 20-2F are intermediates; 30-7E end a
 * short sequence. Anything else was no sequence: only the ESC goes. */
static unsigned after_esc(unsigned unit, bool *ret_drop)
{
    *ret_drop = between(unit, 0x20, 0x7E);
    if (unit == '[') {
        return IN_CSI;
    }
    if (unit == ']' || unit == 'P' || unit == 'X' || unit == '^' || unit == '_') {
        return IN_STRING;
    }
    return between(unit, 0x20, 0x2F) ? AFTER_ESC : GROUND;
}

/* The state after `unit`, and whether it belongs to a sequence. */
static unsigned strip_step(unsigned state, unsigned unit, bool *ret_drop)
{
    *ret_drop = true;
    if (unit == ESC) {
        return state == IN_STRING ? STRING_ESC : AFTER_ESC;
    }
    switch (state) {
    case STRING_ESC:
        if (unit == '\\') {
            return GROUND;
        }
        return after_esc(unit, ret_drop); /* no terminator: a new sequence began */
    case AFTER_ESC:
        return after_esc(unit, ret_drop);
    case IN_CSI:
        *ret_drop = between(unit, 0x20, 0x7E);
        return between(unit, 0x20, 0x3F) ? IN_CSI : GROUND;
    case IN_STRING:
        /* A control other than BEL ends it too and stays: a lost terminator costs one line. */
        *ret_drop = unit >= 0x20 || unit == BEL;
        return unit >= 0x20 ? IN_STRING : GROUND;
    default:
        *ret_drop = false;
        return GROUND;
    }
}

/* Behind the plain text from p on: at the next \u001b, or the end. */
static const char *ground_end(const char *p, const char *end)
{
    while (p < end) {
        p = memchr(p, '\\', (size_t)(end - p));
        if (!p) {
            return end;
        }
        size_t len;
        if (unit_at(p, end, &len) == ESC) {
            return p;
        }
        p += len;
    }
    return end;
}

int kg_ansi_strip_escaped(kg_ansi_strip_t *s, kg_buf_t *out, const char *data, size_t len)
{
    const char *p = len > 0 ? data : "";
    const char *end = p + len;
    unsigned state = s->state;
    int rc = kg_buf_reserve(out, len); /* nothing below needs more: no failure half-way */
    if (rc < 0) {
        return rc;
    }
    while (p < end) {
        if (state == GROUND) {
            const char *stop = ground_end(p, end);
            (void)kg_buf_append(out, p, (size_t)(stop - p));
            p = stop;
            if (p == end) {
                break;
            }
        }
        size_t n;
        bool drop;
        unsigned unit = unit_at(p, end, &n);
        state = strip_step(state, unit, &drop);
        if (!drop) {
            (void)kg_buf_append(out, p, n);
        }
        p += n;
    }
    s->state = state;
    return 0;
}

size_t kg_json_escaped_floor(const char *data, size_t len, size_t max)
{
    if (max >= len) {
        return len;
    }
    size_t low = max > ESCAPE_MAX - 1 ? max - (ESCAPE_MAX - 1) : 0;
    size_t at = max;
    while (at > low && data[at - 1] != '\\') {
        at--;
    }
    if (at > low) {
        size_t slash = at - 1;
        size_t run = 1;
        while (run <= slash && data[slash - run] == '\\') {
            run++;
        }
        /* In a run of backslashes they pair off from the left: the last of an odd run begins one.
         */
        if (run % 2 == 1 && slash + (data[slash + 1] == 'u' ? ESCAPE_MAX : 2) > max) {
            return slash;
        }
    }
    return kg_utf8_floor(data, len, max);
}
