/* gateway/api: headers and parameters about files. */
#include "gateway/api/fs_parse.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Range ---------------------------------------------------------------------------------- */

/* Digits at *p; false when there are none. A position has no bound (RFC 9110, 14.1.2), and no file
 * is as long as those that do not fit: they become UINT64_MAX. */
static bool number(const char **p, uint64_t *ret)
{
    const char *begin = *p;
    uint64_t n = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        uint64_t digit = (uint64_t)(**p - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    *ret = n;
    return *p > begin;
}

static const char *skip_spaces(const char *p)
{
    return p + strspn(p, " \t");
}

int kg_range_parse(const char *text, uint64_t size, uint64_t *ret_first, uint64_t *ret_length)
{
    if (strncasecmp(text, "bytes=", 6) != 0) {
        return 0;
    }
    const char *p = skip_spaces(text + 6);
    uint64_t first = 0;
    uint64_t last = size ? size - 1 : 0;
    if (*p == '-') {
        uint64_t tail;
        p++;
        if (!number(&p, &tail) || *skip_spaces(p)) {
            return 0;
        }
        if (tail == 0 || size == 0) {
            return -ERANGE;
        }
        first = tail < size ? size - tail : 0;
    } else {
        if (!number(&p, &first) || *p++ != '-') {
            return 0;
        }
        uint64_t end;
        if (*p >= '0' && *p <= '9') {
            if (!number(&p, &end) || end < first) {
                return 0;
            }
            last = end < last ? end : last;
        }
        if (*skip_spaces(p)) {
            return 0;
        }
        if (first >= size) {
            return -ERANGE;
        }
    }
    *ret_first = first;
    *ret_length = last - first + 1;
    return 1;
}

/* --- Tags and dates ------------------------------------------------------------------------- */

static const char *opaque(const char *tag)
{
    return strncmp(tag, "W/", 2) == 0 ? tag + 2 : tag;
}

static bool listed(const char *list, const char *etag, bool weak_too)
{
    const char *want = opaque(etag);
    size_t want_len = strlen(want);
    const char *p = list;
    while (*p) {
        p += strspn(p, " \t,");
        if (*p == '*') {
            return true;
        }
        const char *tag = p;
        p = opaque(p);
        if (*p != '"') {
            return false;
        }
        const char *end = strchr(p + 1, '"');
        if (!end) {
            return false;
        }
        size_t len = (size_t)(end + 1 - p);
        if (len == want_len && memcmp(p, want, len) == 0 && (weak_too || tag == p)) {
            return true;
        }
        p = end + 1;
    }
    return false;
}

bool kg_etag_listed(const char *list, const char *etag)
{
    return listed(list, etag, true);
}

bool kg_etag_listed_strong(const char *list, const char *etag)
{
    return listed(list, etag, false);
}

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* Index of three letters in a list of such, or -1. */
static int letters(const char *list, const char *p)
{
    for (size_t i = 0; list[i * 3]; i++) {
        if (strncmp(list + i * 3, p, 3) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool digits(const char *p, int count, int *ret)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return false;
        }
        n = n * 10 + (p[i] - '0');
    }
    *ret = n;
    return true;
}

int kg_http_date_parse(const char *text, int64_t *ret_s)
{
    struct tm tm = {0};
    if (strlen(text) != 29 || letters(days, text) < 0 || strncmp(text + 3, ", ", 2) != 0 ||
        text[7] != ' ' || text[11] != ' ' || text[16] != ' ' || text[19] != ':' ||
        text[22] != ':' || strcmp(text + 25, " GMT") != 0) {
        return -EINVAL;
    }
    tm.tm_mon = letters(months, text + 8);
    if (tm.tm_mon < 0 || !digits(text + 5, 2, &tm.tm_mday) || !digits(text + 12, 4, &tm.tm_year) ||
        !digits(text + 17, 2, &tm.tm_hour) || !digits(text + 20, 2, &tm.tm_min) ||
        !digits(text + 23, 2, &tm.tm_sec) || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60) {
        return -EINVAL;
    }
    tm.tm_year -= 1900;
    *ret_s = (int64_t)timegm(&tm);
    return 0;
}

void kg_http_date_format(int64_t s, char ret[KG_HTTP_DATE_MAX])
{
    time_t t = (time_t)s;
    struct tm tm;
    ret[0] = '\0';
    if (gmtime_r(&t, &tm) && tm.tm_year > -1900 && tm.tm_year < 8100) {
        (void)snprintf(ret, KG_HTTP_DATE_MAX, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
                       days + (ptrdiff_t)tm.tm_wday * 3, tm.tm_mday,
                       months + (ptrdiff_t)tm.tm_mon * 3, tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                       tm.tm_sec);
    }
}

int kg_mode_parse(const char *text, uint32_t *ret_mode)
{
    const char *p = strncmp(text, "0o", 2) == 0 ? text + 2 : text;
    uint32_t mode = 0;
    size_t n = 0;
    for (; p[n] >= '0' && p[n] <= '7' && n < 5; n++) {
        mode = mode * 8 + (uint32_t)(p[n] - '0');
    }
    if (n == 0 || n > 4 || p[n]) {
        return -EINVAL;
    }
    *ret_mode = mode;
    return 0;
}

/* --- Base64 --------------------------------------------------------------------------------- */

int kg_base64_decode(const char *text, size_t len, kg_buf_t *out)
{
    bool url = memchr(text, '-', len) || memchr(text, '_', len);
    bool padded = len > 0 && text[len - 1] == '=';
    int variant =
        url ? (padded ? sodium_base64_VARIANT_URLSAFE : sodium_base64_VARIANT_URLSAFE_NO_PADDING)
            : (padded ? sodium_base64_VARIANT_ORIGINAL : sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
    size_t cap = len / 4 * 3 + 3;
    size_t got = 0;
    if (kg_buf_reserve(out, cap) < 0) {
        return -ENOMEM;
    }
    const char *end = NULL;
    int rc = sodium_base642bin((unsigned char *)out->data + out->len, cap, text, len, NULL, &got,
                               &end, variant);
    if (rc != 0 || end != text + len) {
        return -EINVAL;
    }
    out->len += got;
    out->data[out->len] = '\0';
    return 0;
}

int kg_base64_encode(const void *data, size_t len, kg_buf_t *out)
{
    size_t cap = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    if (kg_buf_reserve(out, cap) < 0) {
        return -ENOMEM;
    }
    sodium_bin2base64(out->data + out->len, cap, data, len, sodium_base64_VARIANT_ORIGINAL);
    out->len += cap - 1;
    return 0;
}

/* --- Upload-Metadata ------------------------------------------------------------------------ */

/* The next pair of *p, which moves behind it and its comma. false at the end. */
static bool next_pair(const char **p, kg_slice_t *ret_key, kg_slice_t *ret_value)
{
    const char *s = skip_spaces(*p);
    if (!*s) {
        return false;
    }
    size_t len = strcspn(s, ",");
    *p = s + len + (s[len] == ',');
    while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\t')) {
        len--;
    }
    size_t key = 0;
    while (key < len && s[key] != ' ' && s[key] != '\t') {
        key++;
    }
    size_t at = key;
    while (at < len && (s[at] == ' ' || s[at] == '\t')) {
        at++;
    }
    *ret_key = kg_slice(s, key);
    *ret_value = kg_slice(s + at, len - at);
    return true;
}

static int refuse(kg_err_t *err, const char *what)
{
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "Upload-Metadata: %s.", what);
    kg_err_pointer(err, "/upload_metadata");
    kg_err_hint(err, "It is a list of pairs: KEY BASE64,KEY BASE64.");
    return rc;
}

static bool key_fits(kg_slice_t key)
{
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] <= 0x20 || key.data[i] >= 0x7f) {
            return false;
        }
    }
    return key.len > 0;
}

static bool seen_before(const char *text, const char *until, kg_slice_t key)
{
    kg_slice_t other, value;
    while (text < until && next_pair(&text, &other, &value)) {
        if (text < until && kg_slice_eq(other, key)) {
            return true;
        }
    }
    return false;
}

int kg_tus_metadata_check(const char *text, kg_err_t *err)
{
    const char *p = text;
    kg_slice_t key, value;
    while (next_pair(&p, &key, &value)) {
        KG_AUTO_BUF kg_buf_t bytes = {0};
        if (!key_fits(key)) {
            return refuse(err, "a key is empty or not printable ASCII");
        }
        if (seen_before(text, p, key)) {
            return refuse(err, "a key is there twice");
        }
        int rc = kg_base64_decode(value.data, value.len, &bytes);
        if (rc == -ENOMEM) {
            return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        }
        if (rc < 0) {
            return refuse(err, "a value is not base64");
        }
    }
    return 0;
}

bool kg_tus_metadata_get(const char *text, const char *key, kg_buf_t *out)
{
    kg_slice_t name, value;
    while (next_pair(&text, &name, &value)) {
        if (kg_slice_eq_cstr(name, key)) {
            return kg_base64_decode(value.data, value.len, out) == 0;
        }
    }
    return false;
}
