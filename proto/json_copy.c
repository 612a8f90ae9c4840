/* proto: writing JSON. What leaves here is strict: valid UTF-8, controls escaped, no NaN, compact.
 *
 * Canonical strings: the short escapes \" \\ \b \f \n \r \t, \u00xx (lower case) for the other
 * controls, and everything else as UTF-8. So equal text has equal bytes, which is what makes the
 * test for duplicate keys, kg_ansi_strip_escaped and kg_json_escaped_floor simple.
 *
 * Duplicate keys: members are written as they come, and each open object remembers where its own
 * begin. At its end, if a key is there twice, the earlier members are cut out again (the last one
 * wins and keeps its place). Up to 64 members are compared with each other; more go through a hash
 * set keyed at random, so that nobody can make it slow on purpose. At most MEMBERS_MAX members of
 * all open objects are remembered, to bound memory: an object that goes beyond keeps all of its
 * members, which is still JSON. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>

#include "gateway/base/utf8.h"
#include "proto/json_lex.h"
#include "proto/json_scan.h"

#define REPLACEMENT 0xFFFD

enum {
    MEMBERS_MAX = 1 << 20,
    COMPARE_MAX = 64,
    ESC_LEN = 6, /* of \u00xx */
};

/* --- strings ------------------------------------------------------------------------------------
 */

/* What `transcode` reads and writes. */
typedef enum text_mode {
    MODE_CANONICAL, /* escaped text -> canonical escaped text */
    MODE_DECODE,    /* escaped text -> bytes */
    MODE_ESCAPE,    /* bytes -> canonical escaped text */
} text_mode_t;

/* First byte from p on that is not printable ASCII, or is a backslash, or (with quote) a quote. */
static const char *clean_end(const char *p, const char *end, bool quote)
{
    uint64_t word;
    while (end - p >= (ptrdiff_t)sizeof word) {
        memcpy(&word, p, sizeof word);
        uint64_t hit =
            kg_json_has_less(word, 0x20) | kg_json_has_byte(word, '\\') | (word & KG_JSON_HIGHS);
        if (hit | (quote ? kg_json_has_byte(word, '"') : 0)) {
            break;
        }
        p += sizeof word;
    }
    while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '\\' &&
           !(quote && *p == '"')) {
        p++;
    }
    return p;
}

static const char *high_end(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p >= 0x80) {
        p++;
    }
    return p;
}

/* Behind the well-formed sequences of more than one byte at p. */
static const char *good_end(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p >= 0x80) {
        size_t n = kg_utf8_step(p, (size_t)(end - p));
        if (n == 0) {
            break;
        }
        p += n;
    }
    return p;
}

static size_t encode_utf8(unsigned cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Canonical escape of a character that needs one; 0 when it needs none. */
static size_t canonical_escape(unsigned cp, char out[ESC_LEN])
{
    static const char hex[] = "0123456789abcdef";
    static const char shorts[] = "btn\0fr"; /* 8..13; 11 has none */
    char name = '\0';
    if (cp == '"' || cp == '\\') {
        name = (char)cp;
    } else if (cp >= 0x20) {
        return 0;
    } else if (cp >= 8 && cp <= 13) {
        name = shorts[cp - 8];
    }
    out[0] = '\\';
    if (name) {
        out[1] = name;
        return 2;
    }
    out[1] = 'u';
    out[2] = '0';
    out[3] = '0';
    out[4] = hex[cp >> 4];
    out[5] = hex[cp & 0x0F];
    return ESC_LEN;
}

static int put_char(kg_buf_t *out, unsigned cp, text_mode_t mode)
{
    char text[ESC_LEN];
    size_t len = mode == MODE_DECODE ? 0 : canonical_escape(cp, text);
    if (len == 0) {
        len = encode_utf8(cp, text);
    }
    return kg_buf_append(out, text, len);
}

/* The character of the escape at *p (checked: a backslash and what belongs to it); moves *p on. */
static unsigned read_escape(const char **p, const char *end)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    const char *at = *p;
    if (end - at < 2) { /* only when the text was never checked */
        *p = end;
        return REPLACEMENT;
    }
    if (at[1] != 'u') {
        const char *hit = at[1] ? strchr(from, at[1]) : NULL;
        *p = at + 2;
        return hit ? (unsigned char)to[hit - from] : (unsigned char)at[1] & 0x7F;
    }
    int unit = kg_json_hex4(at + 2, end);
    if (unit < 0) {
        *p = at + 2;
        return REPLACEMENT;
    }
    *p = at + ESC_LEN;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return (unsigned)unit;
    }
    if (unit < 0xDC00 && end - *p >= ESC_LEN && (*p)[0] == '\\' && (*p)[1] == 'u') {
        int low = kg_json_hex4(*p + 2, end);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *p += ESC_LEN;
            return 0x10000 + (((unsigned)unit - 0xD800) << 10) + ((unsigned)low - 0xDC00);
        }
    }
    return REPLACEMENT;
}

/* True when the escape from `at` to `stop` is the canonical one and can stay as it is. */
static bool escape_stays(const char *at, const char *stop, unsigned cp)
{
    char text[ESC_LEN];
    size_t len = canonical_escape(cp, text);
    return len > 0 && len == (size_t)(stop - at) && memcmp(text, at, len) == 0;
}

/* One character at p that `clean_end` stopped at. With *ret_keep it can be copied with the run
 * around it; else `start`..p is flushed and the character written here. Returns what is behind. */
static const char *transcode_one(
    kg_buf_t *out, const char **start, const char *p, const char *end, text_mode_t mode, int *rc)
{
    unsigned char c = (unsigned char)*p;
    if (c >= 0x80) {
        const char *stop = good_end(p, end);
        if (stop == p) {
            stop = high_end(p, end);
            *rc = kg_buf_append(out, *start, (size_t)(p - *start));
            *rc = *rc < 0 ? *rc : kg_utf8_repair(out, p, (size_t)(stop - p));
            *start = stop;
        }
        return stop;
    }
    const char *stop = p + 1;
    unsigned cp = c;
    if (c == '\\' && mode != MODE_ESCAPE) {
        stop = p;
        cp = read_escape(&stop, end);
        if (mode == MODE_CANONICAL && escape_stays(p, stop, cp)) {
            return stop;
        }
    }
    *rc = kg_buf_append(out, *start, (size_t)(p - *start));
    *rc = *rc < 0 ? *rc : put_char(out, cp, mode);
    *start = stop;
    return stop;
}

static int transcode(kg_buf_t *out, const char *data, size_t len, text_mode_t mode)
{
    size_t before = out->len;
    const char *p = len > 0 ? data : "";
    const char *end = p + len;
    const char *start = p;
    int rc = kg_buf_reserve(out, len);
    while (rc == 0) {
        p = clean_end(p, end, mode == MODE_ESCAPE);
        if (p == end) {
            rc = kg_buf_append(out, start, (size_t)(p - start));
            break;
        }
        p = transcode_one(out, &start, p, end, mode, &rc);
    }
    if (rc < 0) {
        out->len = before;
    }
    return rc;
}

static kg_slice_t string_body(kg_json_value_t string)
{
    bool quoted = string.type == KG_JSON_STRING && string.raw.len >= 2;
    return quoted ? kg_slice(string.raw.data + 1, string.raw.len - 2) : (kg_slice_t){0};
}

int kg_json_copy_string_body(kg_buf_t *out, kg_json_value_t string)
{
    kg_slice_t body = string_body(string);
    return transcode(out, body.data, body.len, MODE_CANONICAL);
}

int kg_json_decode_string(kg_buf_t *out, kg_json_value_t string)
{
    kg_slice_t body = string_body(string);
    return transcode(out, body.data, body.len, MODE_DECODE);
}

int kg_json_escape(kg_buf_t *out, const char *data, size_t len)
{
    return transcode(out, data, len, MODE_ESCAPE);
}

static int quoted(kg_buf_t *out, const char *data, size_t len, text_mode_t mode)
{
    size_t before = out->len;
    int rc = kg_buf_append_char(out, '"');
    rc = rc < 0 ? rc : transcode(out, data, len, mode);
    rc = rc < 0 ? rc : kg_buf_append_char(out, '"');
    if (rc < 0) {
        out->len = before;
    }
    return rc;
}

int kg_json_quote(kg_buf_t *out, const char *data, size_t len)
{
    return quoted(out, data, len, MODE_ESCAPE);
}

int kg_json_quote_cstr(kg_buf_t *out, const char *s)
{
    return s ? kg_json_quote(out, s, strlen(s)) : kg_buf_append_cstr(out, "null");
}

/* --- values -------------------------------------------------------------------------------------
 */

/* A member of an open object: where its key begins in the output, and how long the key is. */
typedef struct member {
    size_t start;
    size_t key_len; /* with quotes; 0 = superseded by a later one */
} member_t;

typedef struct level {
    size_t first; /* index of the object's first member */
    bool over;    /* more members than are remembered */
} level_t;

typedef struct copier {
    kg_buf_t *out;
    member_t *members;
    size_t count;
    size_t cap;
    level_t levels[KG_JSON_DEPTH_MAX];
} copier_t;

static int remember(copier_t *c, level_t *level, size_t start)
{
    if (c->count == MEMBERS_MAX) {
        level->over = true;
        return 0;
    }
    if (!c->members || c->count == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : COMPARE_MAX;
        member_t *grown = realloc(c->members, cap * sizeof *grown);
        if (!grown) {
            return -ENOMEM;
        }
        c->members = grown;
        c->cap = cap;
    }
    c->members[c->count++] = (member_t){start, c->out->len - start};
    return 0;
}

static bool same_key(const copier_t *c, const member_t *a, const member_t *b)
{
    return a->key_len == b->key_len &&
           memcmp(c->out->data + a->start, c->out->data + b->start, a->key_len) == 0;
}

/* Marks superseded members; returns how many. */
static size_t mark_by_compare(const copier_t *c, member_t *m, size_t n)
{
    size_t dead = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            if (same_key(c, &m[i], &m[j])) {
                m[i].key_len = 0;
                dead++;
                break;
            }
        }
    }
    return dead;
}

/* The same from the end with a hash set of indices + 1. */
static int mark_by_hash(const copier_t *c, member_t *m, size_t n, size_t *ret_dead)
{
    unsigned char key[crypto_shorthash_KEYBYTES];
    size_t slots = COMPARE_MAX;
    while (slots < n * 2) {
        slots *= 2;
    }
    KG_AUTO_FREE uint32_t *set = calloc(slots, sizeof *set);
    if (!set) {
        return -ENOMEM;
    }
    randombytes_buf(key, sizeof key);
    *ret_dead = 0;
    for (size_t i = n; i-- > 0;) {
        uint64_t hash;
        unsigned char digest[crypto_shorthash_BYTES];
        (void)crypto_shorthash(digest, (const unsigned char *)c->out->data + m[i].start,
                               m[i].key_len, key);
        memcpy(&hash, digest, sizeof hash);
        size_t at = (size_t)hash & (slots - 1);
        while (set[at] && !same_key(c, &m[i], &m[set[at] - 1])) {
            at = (at + 1) & (slots - 1);
        }
        if (set[at]) {
            m[i].key_len = 0;
            ++*ret_dead;
        } else {
            set[at] = (uint32_t)i + 1;
        }
    }
    return 0;
}

/* Cuts the marked members out of the object that ends at out->len (its bracket is not there yet).
 * Every member but the last has a comma behind it; the last one is never superseded. */
static void cut_marked(copier_t *c, const member_t *m, size_t n)
{
    char *data = c->out->data;
    size_t to = m[0].start;
    for (size_t i = 0; i < n; i++) {
        size_t stop = i + 1 < n ? m[i + 1].start : c->out->len;
        if (m[i].key_len > 0) {
            memmove(data + to, data + m[i].start, stop - m[i].start);
            to += stop - m[i].start;
        }
    }
    c->out->len = to;
}

static int close_object(copier_t *c, const level_t *level)
{
    size_t n = c->count - level->first;
    c->count = level->first;
    if (n < 2 || level->over) {
        return 0;
    }
    member_t *m = c->members + level->first;
    size_t dead = 0;
    if (n <= COMPARE_MAX) {
        dead = mark_by_compare(c, m, n);
    } else {
        int rc = mark_by_hash(c, m, n, &dead);
        if (rc < 0) {
            return rc;
        }
    }
    if (dead > 0) {
        cut_marked(c, m, n);
    }
    return 0;
}

static int copy_scalar(kg_buf_t *out, kg_json_type_t type, kg_slice_t raw)
{
    if (type == KG_JSON_STRING) {
        const char *last = raw.data + raw.len - 1;
        if (clean_end(raw.data + 1, last, false) == last) {
            return kg_buf_append_slice(out, raw);
        }
        return quoted(out, raw.data + 1, raw.len - 2, MODE_CANONICAL);
    }
    if (type == KG_JSON_NUMBER) {
        char first = raw.data[raw.data[0] == '-'];
        if (first == 'N' || first == 'I') {
            return kg_buf_append_cstr(out, "null");
        }
    }
    return kg_buf_append_slice(out, raw);
}

static int copy_token(copier_t *c, unsigned depth, const kg_json_token_t *token)
{
    kg_buf_t *out = c->out;
    switch (token->kind) {
    case KG_JSON_TOKEN_SCALAR:
        return copy_scalar(out, token->type, token->raw);
    case KG_JSON_TOKEN_KEY: {
        size_t start = out->len;
        int rc = copy_scalar(out, KG_JSON_STRING, token->raw);
        rc = rc < 0 ? rc : remember(c, &c->levels[depth - 1], start);
        return rc < 0 ? rc : kg_buf_append_char(out, ':');
    }
    case KG_JSON_TOKEN_OPEN:
        c->levels[depth - 1] = (level_t){.first = c->count};
        return kg_buf_append_slice(out, token->raw);
    case KG_JSON_TOKEN_CLOSE: {
        int rc = token->type == KG_JSON_OBJECT ? close_object(c, &c->levels[depth]) : 0;
        return rc < 0 ? rc : kg_buf_append_slice(out, token->raw);
    }
    }
    return -EBADMSG;
}

static int copy_container(kg_buf_t *out, kg_slice_t raw)
{
    kg_json_lex_t lex;
    kg_json_token_t token;
    copier_t c; /* levels are written before they are read */
    c.out = out;
    c.members = NULL;
    c.count = 0;
    c.cap = 0;
    size_t before = out->len;
    int rc = kg_buf_reserve(out, raw.len);
    kg_json_lex_init(&lex, raw, KG_JSON_DEPTH_MAX);
    while (rc == 0) {
        rc = kg_json_lex_next(&lex, &token);
        if (rc <= 0) {
            break;
        }
        /* Between tokens, these three are never the end of a string. */
        bool first = out->len == before || strchr("[{:", out->data[out->len - 1]);
        rc = first || token.kind == KG_JSON_TOKEN_CLOSE ? 0 : kg_buf_append_char(out, ',');
        rc = rc < 0 ? rc : copy_token(&c, lex.depth, &token);
    }
    free(c.members);
    if (rc < 0) {
        out->len = before;
    }
    return rc;
}

int kg_json_copy(kg_buf_t *out, kg_json_value_t value)
{
    switch (value.type) {
    case KG_JSON_ABSENT:
        return -EINVAL;
    case KG_JSON_ARRAY:
    case KG_JSON_OBJECT:
        return copy_container(out, value.raw);
    case KG_JSON_NULL:
    case KG_JSON_TRUE:
    case KG_JSON_FALSE:
    case KG_JSON_NUMBER:
    case KG_JSON_STRING:
        break;
    }
    if (value.raw.len == 0 || (value.type == KG_JSON_STRING && value.raw.len < 2)) {
        return -EINVAL;
    }
    return copy_scalar(out, value.type, value.raw);
}
