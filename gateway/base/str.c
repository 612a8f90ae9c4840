/* gateway/base: checked parsing and formatting of short strings. Parsers take the whole string or
 * nothing: no white space, no sign where none belongs, no hexadecimal, no locale. */
#include "gateway/base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z');
}

/* Digits to a number; -EINVAL for anything else, -ERANGE when over UINT64_MAX. */
static int digits(const char *s, uint64_t *ret)
{
    uint64_t value = 0;
    bool over = false;
    if (!is_digit(*s)) {
        return -EINVAL;
    }
    for (; *s; s++) {
        if (!is_digit(*s)) {
            return -EINVAL;
        }
        over = over || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
               __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value);
    }
    if (over) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}

int kg_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
    uint64_t value;
    int rc = s ? digits(s, &value) : -EINVAL;
    if (rc < 0) {
        return rc;
    }
    if (value < min || value > max) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}

int kg_parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret)
{
    if (!s) {
        return -EINVAL;
    }
    bool negative = *s == '-';
    uint64_t size;
    int rc = digits(negative ? s + 1 : s, &size);
    if (rc < 0) {
        return rc;
    }
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (size > limit) {
        return -ERANGE;
    }
    int64_t value;
    if (negative) {
        value = size > (uint64_t)INT64_MAX ? INT64_MIN : -(int64_t)size;
    } else {
        value = (int64_t)size;
    }
    if (value < min || value > max) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}

static const char *skip_digits(const char *s)
{
    while (is_digit(*s)) {
        s++;
    }
    return s;
}

/* -?D+(.D+)?([eE][+-]?D+)? : what strtod takes beyond this (hex, inf, nan, spaces) is refused. */
static bool double_shaped(const char *s)
{
    s += *s == '-';
    if (!is_digit(*s)) {
        return false;
    }
    s = skip_digits(s);
    if (*s == '.') {
        if (!is_digit(s[1])) {
            return false;
        }
        s = skip_digits(s + 1);
    }
    if (*s == 'e' || *s == 'E') {
        s += (s[1] == '+' || s[1] == '-') ? 2 : 1;
        if (!is_digit(*s)) {
            return false;
        }
        s = skip_digits(s);
    }
    return *s == '\0';
}

int kg_parse_double(const char *s, double *ret)
{
    if (!s || !double_shaped(s)) {
        return -EINVAL;
    }
    double value = strtod(s, NULL);
    if (!isfinite(value)) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}

int kg_format(char *ret, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(ret, cap, fmt, ap);
    va_end(ap);
    if (len >= 0 && (size_t)len < cap) {
        return 0;
    }
    if (cap > 0) {
        ret[0] = '\0';
    }
    return -ENAMETOOLONG;
}

char *kg_strdup_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    return len < 0 ? NULL : text;
}

bool kg_str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool kg_name_valid(const char *s, size_t max)
{
    size_t len = s ? strnlen(s, max + 1) : 0;
    if (len == 0 || len > max || !is_lower_alnum(s[0]) || !is_lower_alnum(s[len - 1])) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!is_lower_alnum(s[i]) && s[i] != '-') {
            return false;
        }
    }
    return true;
}
