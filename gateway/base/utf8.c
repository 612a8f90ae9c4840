/* gateway/base: UTF-8 by RFC 3629. Good text is walked by kg_utf8_step, eight ASCII bytes at a time
 * where there are such; only where that stops, `classify` finds out what is wrong. Repair follows
 * Unicode chapter 3.9: one U+FFFD for each maximal subpart. */
#include "gateway/base/utf8.h"

#include <stdint.h>

#define REPLACEMENT "\xEF\xBF\xBD"

typedef enum seq_kind {
    SEQ_GOOD,
    SEQ_BAD,
    SEQ_CUT
} seq_kind_t;

/* Length that a lead byte announces; 0 for bytes that lead nothing. */
static size_t lead_length(unsigned char b)
{
    if (b < 0x80) {
        return 1;
    }
    if (b < 0xC2) {
        return 0;
    }
    if (b < 0xE0) {
        return 2;
    }
    if (b < 0xF0) {
        return 3;
    }
    return b < 0xF5 ? 4 : 0;
}

/* Surrogates, overlong forms and what lies above U+10FFFF show in the second byte. */
static bool second_ok(unsigned char lead, unsigned char b)
{
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    switch (lead) {
    case 0xE0:
        low = 0xA0;
        break;
    case 0xED:
        high = 0x9F;
        break;
    case 0xF0:
        low = 0x90;
        break;
    case 0xF4:
        high = 0x8F;
        break;
    default:
        break;
    }
    return b >= low && b <= high;
}

/* The sequence at p (n >= 1): GOOD with its length, BAD with the length of its maximal subpart, or
 * CUT when all n bytes are the beginning of a good one. */
static seq_kind_t classify(const unsigned char *p, size_t n, size_t *ret_len)
{
    size_t want = lead_length(p[0]);
    size_t i = 1;
    if (want >= 2) {
        if (n >= 2 && !second_ok(p[0], p[1])) {
            want = 0;
        }
        while (want && i < want && i < n && (p[i] & 0xC0) == 0x80) {
            i++;
        }
    }
    *ret_len = i;
    if (want == i) {
        return SEQ_GOOD;
    }
    return want && i == n ? SEQ_CUT : SEQ_BAD;
}

static size_t ascii_run(const char *data, size_t len)
{
    size_t i = 0;
    uint64_t word;
    while (len - i >= sizeof word) {
        memcpy(&word, data + i, sizeof word);
        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }
        i += sizeof word;
    }
    while (i < len && (unsigned char)data[i] < 0x80) {
        i++;
    }
    return i;
}

size_t kg_utf8_valid_prefix(const char *data, size_t len)
{
    size_t i = 0;
    while (i < len) {
        if ((unsigned char)data[i] < 0x80) {
            i += ascii_run(data + i, len - i);
            continue;
        }
        size_t n = kg_utf8_step(data + i, len - i);
        if (n == 0) {
            return i;
        }
        i += n;
    }
    return i;
}

bool kg_utf8_valid(const char *data, size_t len)
{
    return kg_utf8_valid_prefix(data, len) == len;
}

/* Repairs; with hold, an unfinished sequence at the end is left (its length in *ret_cut). */
static int repair(kg_buf_t *out, const char *data, size_t len, bool hold, size_t *ret_cut)
{
    size_t i = 0;
    *ret_cut = 0;
    while (i < len) {
        size_t good = kg_utf8_valid_prefix(data + i, len - i);
        int rc = kg_buf_append(out, data + i, good);
        if (rc < 0) {
            return rc;
        }
        i += good;
        if (i == len) {
            break;
        }
        size_t bad;
        seq_kind_t kind = classify((const unsigned char *)data + i, len - i, &bad);
        if (kind == SEQ_CUT && hold) {
            *ret_cut = bad;
            return 0;
        }
        rc = kg_buf_append_cstr(out, REPLACEMENT);
        if (rc < 0) {
            return rc;
        }
        i += bad;
    }
    return 0;
}

int kg_utf8_repair(kg_buf_t *out, const char *data, size_t len)
{
    size_t before = out->len;
    size_t cut;
    int rc = repair(out, data, len, false, &cut);
    if (rc < 0) {
        out->len = before;
    }
    return rc;
}

size_t kg_utf8_floor(const char *data, size_t len, size_t max)
{
    if (max >= len) {
        return len;
    }
    size_t n = max;
    for (unsigned back = 0; back < 3 && n > 0 && ((unsigned char)data[n] & 0xC0) == 0x80; back++) {
        n--;
    }
    /* Four continuation bytes in a row are no code point: nothing there to protect. */
    return ((unsigned char)data[n] & 0xC0) == 0x80 ? max : n;
}

size_t kg_utf8_count(const char *data, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        count += ((unsigned char)data[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t kg_utf8_offset(const char *data, size_t len, size_t cp)
{
    for (size_t i = 0; i < len; i++) {
        if (((unsigned char)data[i] & 0xC0) != 0x80 && cp-- == 0) {
            return i;
        }
    }
    return len;
}

/* Feeds bytes to the held beginning until it is whole or broken; returns the bytes used or -errno.
 */
static ssize_t finish_held(kg_utf8_stream_t *s, kg_buf_t *out, const char *data, size_t len)
{
    size_t used = 0;
    while (s->held_len > 0 && used < len) {
        s->held[s->held_len] = (unsigned char)data[used];
        size_t n;
        int rc = 0;
        switch (classify(s->held, s->held_len + 1, &n)) {
        case SEQ_GOOD:
            rc = kg_buf_append(out, s->held, n);
            s->held_len = 0;
            used++;
            break;
        case SEQ_BAD: /* the new byte broke it and stands for itself */
            rc = kg_buf_append_cstr(out, REPLACEMENT);
            s->held_len = 0;
            break;
        case SEQ_CUT:
            s->held_len++;
            used++;
            break;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return (ssize_t)used;
}

int kg_utf8_stream_push(kg_utf8_stream_t *s, kg_buf_t *out, const char *data, size_t len)
{
    ssize_t used = finish_held(s, out, data, len);
    if (used < 0) {
        return (int)used;
    }
    if ((size_t)used == len) {
        return 0;
    }
    size_t cut;
    int rc = repair(out, data + used, len - (size_t)used, true, &cut);
    if (rc < 0) {
        return rc;
    }
    memcpy(s->held, data + len - cut, cut);
    s->held_len = (unsigned)cut;
    return 0;
}

int kg_utf8_stream_end(kg_utf8_stream_t *s, kg_buf_t *out)
{
    if (s->held_len == 0) {
        return 0;
    }
    s->held_len = 0;
    return kg_buf_append_cstr(out, REPLACEMENT);
}
