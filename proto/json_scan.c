/* proto: reading JSON without a tree. The tokenizer is a state machine with one bit for each open
 * container instead of recursion, so depth costs nothing and cannot overflow a stack. It is lenient
 * where kernels are (bad UTF-8 and raw controls in strings, NaN, Infinity) and strict elsewhere.
 * Everything here yields slices of the text it was given; json_copy.c writes what may leave. */
#include "proto/json_scan.h"

#include <errno.h>

#include "proto/json_lex.h"

enum {
    WANT_VALUE,
    WANT_VALUE_OR_END,
    WANT_KEY,
    WANT_KEY_OR_END,
    AFTER_VALUE
};

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) {
        p++;
    }
    return p;
}

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static const char *skip_digits(const char *p, const char *end)
{
    while (is_digit(p, end)) {
        p++;
    }
    return p;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int kg_json_hex4(const char *p, const char *end)
{
    int value = 0;
    if (end - p < 4) {
        return -1;
    }
    for (unsigned i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Behind the escape at p (a backslash), or NULL. */
static const char *escape_end(const char *p, const char *end)
{
    if (end - p < 2) {
        return NULL;
    }
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return p + 2;
    case 'u':
        return kg_json_hex4(p + 2, end) < 0 ? NULL : p + 6;
    default:
        return NULL;
    }
}

const char *kg_json_string_end(const char *p, const char *end)
{
    for (;;) {
        uint64_t word;
        while (end - p >= (ptrdiff_t)sizeof word) {
            memcpy(&word, p, sizeof word);
            if (kg_json_has_byte(word, '"') | kg_json_has_byte(word, '\\')) {
                break;
            }
            p += sizeof word;
        }
        while (p < end && *p != '"' && *p != '\\') {
            p++;
        }
        if (p == end) {
            return NULL;
        }
        if (*p == '"') {
            return p + 1;
        }
        p = escape_end(p, end);
        if (!p) {
            return NULL;
        }
    }
}

static const char *literal_end(const char *p, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - p) >= len && memcmp(p, word, len) == 0 ? p + len : NULL;
}

/* -?(0|[1-9]D*)(.D+)?([eE][+-]?D+)? or -Infinity */
static const char *number_end(const char *p, const char *end)
{
    if (*p == '-') {
        p++;
        if (p < end && *p == 'I') {
            return literal_end(p, end, "Infinity");
        }
    }
    if (!is_digit(p, end)) {
        return NULL;
    }
    p = *p == '0' ? p + 1 : skip_digits(p, end);
    if (p < end && *p == '.') {
        if (!is_digit(p + 1, end)) {
            return NULL;
        }
        p = skip_digits(p + 1, end);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) {
            p++;
        }
        if (!is_digit(p, end)) {
            return NULL;
        }
        p = skip_digits(p, end);
    }
    return p;
}

/* The type that a first byte announces; ABSENT when no value begins so. */
static kg_json_type_t type_of(char c)
{
    switch (c) {
    case '"':
        return KG_JSON_STRING;
    case '{':
        return KG_JSON_OBJECT;
    case '[':
        return KG_JSON_ARRAY;
    case 't':
        return KG_JSON_TRUE;
    case 'f':
        return KG_JSON_FALSE;
    case 'n':
        return KG_JSON_NULL;
    case 'N':
    case 'I':
    case '-':
        return KG_JSON_NUMBER;
    default:
        return c >= '0' && c <= '9' ? KG_JSON_NUMBER : KG_JSON_ABSENT;
    }
}

static const char *scalar_end(const char *p, const char *end)
{
    switch (*p) {
    case '"':
        return kg_json_string_end(p + 1, end);
    case 't':
        return literal_end(p, end, "true");
    case 'f':
        return literal_end(p, end, "false");
    case 'n':
        return literal_end(p, end, "null");
    case 'N':
        return literal_end(p, end, "NaN");
    case 'I':
        return literal_end(p, end, "Infinity");
    default:
        return number_end(p, end);
    }
}

void kg_json_lex_init(kg_json_lex_t *lex, kg_slice_t text, unsigned max_depth)
{
    lex->p = text.len > 0 ? text.data : "";
    lex->end = lex->p + text.len;
    lex->depth = 0;
    lex->max_depth = max_depth < KG_JSON_DEPTH_HARD ? max_depth : KG_JSON_DEPTH_HARD;
    lex->state = WANT_VALUE;
}

static bool in_object(const kg_json_lex_t *lex)
{
    unsigned top = lex->depth - 1;
    return lex->depth > 0 && (lex->is_object[top / 64] >> (top % 64) & 1);
}

static int lex_open(kg_json_lex_t *lex, kg_json_token_t *ret)
{
    bool object = *lex->p == '{';
    if (lex->depth >= lex->max_depth) {
        return -E2BIG;
    }
    uint64_t bit = UINT64_C(1) << (lex->depth % 64);
    uint64_t *word = &lex->is_object[lex->depth / 64];
    /* A fresh word is written whole: the stack needs no clearing at the start. */
    uint64_t rest = lex->depth % 64 == 0 ? 0 : *word & ~bit;
    *word = object ? rest | bit : rest;
    lex->depth++;
    lex->state = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    *ret = (kg_json_token_t){KG_JSON_TOKEN_OPEN, object ? KG_JSON_OBJECT : KG_JSON_ARRAY,
                             kg_slice(lex->p, 1)};
    lex->p++;
    return 1;
}

static int lex_close(kg_json_lex_t *lex, kg_json_token_t *ret)
{
    bool object = in_object(lex);
    if (lex->depth == 0 || *lex->p != (object ? '}' : ']')) {
        return -EBADMSG;
    }
    *ret = (kg_json_token_t){KG_JSON_TOKEN_CLOSE, object ? KG_JSON_OBJECT : KG_JSON_ARRAY,
                             kg_slice(lex->p, 1)};
    lex->p++;
    lex->depth--;
    lex->state = AFTER_VALUE;
    return 1;
}

/* Key and colon. */
static int lex_key(kg_json_lex_t *lex, kg_json_token_t *ret)
{
    const char *start = lex->p;
    if (*start != '"') {
        return -EBADMSG;
    }
    const char *key_end = kg_json_string_end(start + 1, lex->end);
    if (!key_end) {
        return -EBADMSG;
    }
    const char *colon = skip_space(key_end, lex->end);
    if (colon == lex->end || *colon != ':') {
        return -EBADMSG;
    }
    lex->p = colon + 1;
    lex->state = WANT_VALUE;
    *ret = (kg_json_token_t){KG_JSON_TOKEN_KEY, KG_JSON_STRING,
                             kg_slice(start, (size_t)(key_end - start))};
    return 1;
}

static int lex_value(kg_json_lex_t *lex, kg_json_token_t *ret)
{
    const char *start = lex->p;
    kg_json_type_t type = type_of(*start);
    if (type == KG_JSON_OBJECT || type == KG_JSON_ARRAY) {
        return lex_open(lex, ret);
    }
    const char *stop = type == KG_JSON_ABSENT ? NULL : scalar_end(start, lex->end);
    if (!stop) {
        return -EBADMSG;
    }
    lex->p = stop;
    lex->state = AFTER_VALUE;
    *ret = (kg_json_token_t){KG_JSON_TOKEN_SCALAR, type, kg_slice(start, (size_t)(stop - start))};
    return 1;
}

int kg_json_lex_next(kg_json_lex_t *lex, kg_json_token_t *ret_token)
{
    lex->p = skip_space(lex->p, lex->end);
    if (lex->state == AFTER_VALUE && lex->depth == 0) {
        return lex->p == lex->end ? 0 : -EBADMSG;
    }
    if (lex->p == lex->end) {
        return -EBADMSG;
    }
    if (lex->state == AFTER_VALUE) {
        if (*lex->p != ',') {
            return lex_close(lex, ret_token);
        }
        lex->state = in_object(lex) ? WANT_KEY : WANT_VALUE;
        lex->p = skip_space(lex->p + 1, lex->end);
        if (lex->p == lex->end) {
            return -EBADMSG;
        }
    }
    switch (lex->state) {
    case WANT_KEY_OR_END:
        return *lex->p == '}' ? lex_close(lex, ret_token) : lex_key(lex, ret_token);
    case WANT_KEY:
        return lex_key(lex, ret_token);
    case WANT_VALUE_OR_END:
        return *lex->p == ']' ? lex_close(lex, ret_token) : lex_value(lex, ret_token);
    default:
        return lex_value(lex, ret_token);
    }
}

int kg_json_check(kg_slice_t text, unsigned max_depth, kg_json_value_t *ret_value)
{
    kg_json_lex_t lex;
    kg_json_token_t token;
    kg_json_lex_init(&lex, text, max_depth);
    int rc = kg_json_lex_next(&lex, &token);
    if (rc < 0) {
        return rc;
    }
    kg_json_type_t type = token.type;
    const char *start = token.raw.data;
    const char *stop;
    do {
        stop = token.raw.data + token.raw.len;
        rc = kg_json_lex_next(&lex, &token);
    } while (rc > 0);
    if (rc == 0 && ret_value) {
        *ret_value = (kg_json_value_t){type, kg_slice(start, (size_t)(stop - start))};
    }
    return rc;
}

void kg_json_iter_init(kg_json_iter_t *it, kg_json_value_t container)
{
    *it = (kg_json_iter_t){.object = container.type == KG_JSON_OBJECT};
    bool open = it->object || container.type == KG_JSON_ARRAY;
    if (open && container.raw.len >= 2) {
        it->p = container.raw.data + 1;
        it->end = container.raw.data + container.raw.len - 1;
    }
}

/* Behind the container at p. Its text is known to be well-formed, so brackets only need counting.
 */
static const char *container_end(const char *p, const char *end)
{
    size_t depth = 0;
    while (p < end) {
        char c = *p++;
        if (c == '"') {
            p = kg_json_string_end(p, end);
            if (!p) {
                return NULL;
            }
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return p;
        }
    }
    return NULL;
}

static bool iter_stop(kg_json_iter_t *it)
{
    it->p = it->end;
    return false;
}

bool kg_json_iter_next(kg_json_iter_t *it, kg_slice_t *ret_key, kg_json_value_t *ret_value)
{
    kg_slice_t key = {0};
    const char *p = skip_space(it->p, it->end);
    if (p < it->end && *p == ',') {
        p = skip_space(p + 1, it->end);
    }
    if (it->object && p < it->end) {
        const char *key_end = *p == '"' ? kg_json_string_end(p + 1, it->end) : NULL;
        if (!key_end) {
            return iter_stop(it);
        }
        key = kg_slice(p, (size_t)(key_end - p));
        p = skip_space(key_end, it->end);
        p = p < it->end && *p == ':' ? skip_space(p + 1, it->end) : it->end;
    }
    if (p >= it->end) {
        return iter_stop(it);
    }
    kg_json_type_t type = type_of(*p);
    const char *stop = NULL;
    if (type == KG_JSON_OBJECT || type == KG_JSON_ARRAY) {
        stop = container_end(p, it->end);
    } else if (type != KG_JSON_ABSENT) {
        stop = scalar_end(p, it->end);
    }
    if (!stop) {
        return iter_stop(it);
    }
    it->p = stop;
    if (ret_key) {
        *ret_key = key;
    }
    *ret_value = (kg_json_value_t){type, kg_slice(p, (size_t)(stop - p))};
    return true;
}

/* The code unit at *p (a byte, or what an escape stands for); moves *p behind it. */
static int key_unit(const char **p, const char *end)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    const char *at = *p;
    if (*at != '\\') {
        *p = at + 1;
        return (unsigned char)*at;
    }
    const char *stop = escape_end(at, end);
    if (!stop) {
        *p = end;
        return -1;
    }
    *p = stop;
    if (at[1] == 'u') {
        return kg_json_hex4(at + 2, end);
    }
    const char *hit = strchr(from, at[1]);
    return hit ? to[hit - from] : at[1];
}

bool kg_json_key_eq(kg_slice_t raw_key, const char *name)
{
    size_t len = strlen(name);
    if (raw_key.len < 2 || raw_key.len - 2 < len) {
        return false;
    }
    const char *p = raw_key.data + 1;
    const char *end = raw_key.data + raw_key.len - 1;
    if (!memchr(p, '\\', (size_t)(end - p))) {
        return (size_t)(end - p) == len && memcmp(p, name, len) == 0;
    }
    while (p < end && *name) {
        /* Names are plain ASCII: any unit from 128 up differs. */
        if (key_unit(&p, end) != (unsigned char)*name++) {
            return false;
        }
    }
    return p == end && *name == '\0';
}

void kg_json_get_many(kg_json_value_t object,
                      const char *const *names,
                      kg_json_value_t *ret_values,
                      size_t n)
{
    memset(ret_values, 0, n * sizeof *ret_values);
    if (object.type != KG_JSON_OBJECT) {
        return;
    }
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    kg_json_iter_init(&it, object);
    while (kg_json_iter_next(&it, &key, &value)) {
        for (size_t i = 0; i < n; i++) {
            if (kg_json_key_eq(key, names[i])) {
                ret_values[i] = value;
            }
        }
    }
}

kg_json_value_t kg_json_get(kg_json_value_t object, const char *name)
{
    kg_json_value_t value;
    kg_json_get_many(object, &name, &value, 1);
    return value;
}

int kg_json_int(kg_json_value_t number, int64_t *ret)
{
    if (number.type != KG_JSON_NUMBER || number.raw.len == 0) {
        return -EINVAL;
    }
    const char *p = number.raw.data;
    const char *end = p + number.raw.len;
    bool negative = *p == '-';
    bool over = false;
    int64_t value = 0;
    p += negative;
    if (!is_digit(p, end)) {
        return -EINVAL;
    }
    for (; is_digit(p, end); p++) {
        int64_t digit = *p - '0';
        over = over || __builtin_mul_overflow(value, INT64_C(10), &value) ||
               __builtin_add_overflow(value, negative ? -digit : digit, &value);
    }
    if (p < end && *p == '.') { /* 3.0 is an integer, 3.5 is none */
        do {
            p++;
        } while (p < end && *p == '0');
    }
    if (p != end) {
        return -EINVAL;
    }
    if (over) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}
