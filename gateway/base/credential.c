/* gateway/base: where in a request a key of the daemon can be. */
#include "gateway/base/credential.h"

#include <string.h>
#include <strings.h>

#define TOKEN "token="
#define PROTOCOL "bearer."

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool same_text(kg_slice_t a, const char *b)
{
    return a.len == strlen(b) && strncasecmp(a.data, b, a.len) == 0;
}

/* What is behind prefix, when there is any; exact: case counts. */
static kg_slice_t behind(kg_slice_t text, const char *prefix, bool exact)
{
    size_t len = strlen(prefix);
    if (text.len <= len ||
        (exact ? strncmp(text.data, prefix, len) : strncasecmp(text.data, prefix, len)) != 0) {
        return kg_slice(NULL, 0);
    }
    return kg_slice(text.data + len, text.len - len);
}

kg_slice_t kg_credential_after(kg_slice_t authorization, const char *scheme)
{
    kg_slice_t rest = behind(authorization, scheme, false);
    if (rest.len == 0 || rest.data[0] != ' ') {
        return kg_slice(NULL, 0);
    }
    while (rest.len > 0 && blank(rest.data[0])) {
        rest = kg_slice(rest.data + 1, rest.len - 1);
    }
    while (rest.len > 0 && blank(rest.data[rest.len - 1])) {
        rest.len--;
    }
    return rest.len > 0 ? rest : kg_slice(NULL, 0);
}

kg_slice_t kg_credential_of_header(kg_slice_t authorization)
{
    kg_slice_t key = kg_credential_after(authorization, "token");
    return key.len ? key : kg_credential_after(authorization, "bearer");
}

kg_slice_t kg_credential_of_protocol(kg_slice_t protocol)
{
    return behind(protocol, PROTOCOL, true);
}

/* Cuts the next pair off a query. */
static kg_slice_t next_pair(kg_slice_t *query)
{
    const char *end = memchr(query->data, '&', query->len);
    size_t len = end ? (size_t)(end - query->data) : query->len;
    kg_slice_t pair = kg_slice(query->data, len);
    len += len < query->len;
    *query = kg_slice(query->data + len, query->len - len);
    return pair;
}

bool kg_credential_of_query(kg_slice_t query, char *ret, size_t cap)
{
    while (query.len > 0) {
        kg_slice_t text = behind(next_pair(&query), TOKEN, true);
        if (text.len > 0) {
            return kg_percent_decode(text, true, ret, cap);
        }
    }
    return false;
}

bool kg_credential_before_path(kg_slice_t query,
                               kg_slice_t *ret_credential,
                               kg_slice_t *ret_path,
                               kg_slice_t *ret_query)
{
    const char *path = query.len > 0 ? memchr(query.data, '/', query.len) : NULL;
    size_t before = path ? (size_t)(path - query.data) : 0;
    if (before < strlen(TOKEN) || memcmp(query.data, TOKEN, strlen(TOKEN)) != 0) {
        return false;
    }
    size_t len = query.len - before;
    const char *mark = memchr(path, '?', len);
    size_t path_len = mark ? (size_t)(mark - path) : len;
    size_t skip = path_len + (mark != NULL);
    *ret_credential = kg_slice(query.data, before);
    *ret_path = kg_slice(path, path_len);
    *ret_query = kg_slice(path + skip, len - skip);
    return true;
}

/* ---- to be kept from others ---- */

bool kg_credential_is_key(kg_slice_t text)
{
    return behind(text, KG_KEY_PREFIX, false).len > 0;
}

bool kg_credential_in_header(kg_slice_t name, kg_slice_t value)
{
    bool authorization = same_text(name, "authorization");
    if (!authorization && !same_text(name, "x-api-key")) {
        return false;
    }
    /* Also where somebody has mixed up the two. */
    return kg_credential_is_key(value) || kg_credential_is_key(kg_credential_of_header(value));
}

/* Of the value only as much is decoded as tells: a longer one may be a key with something behind.
 */
bool kg_credential_in_pair(kg_slice_t pair)
{
    char text[sizeof KG_KEY_PREFIX + 1];
    kg_slice_t value = behind(pair, TOKEN, true);
    size_t take = 0;
    for (size_t i = 0; i < sizeof text - 1 && take < value.len; i++) {
        take += value.data[take] == '%' ? 3 : 1;
    }
    value.len = take < value.len ? take : value.len;
    return value.len > 0 && kg_percent_decode(value, true, text, sizeof text) &&
           kg_credential_is_key(kg_slice_cstr(text));
}

/* ---- percent-encoding ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool kg_percent_decode(kg_slice_t text, bool form, char *ret, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        int c = (unsigned char)text.data[i];
        if (c == '%') {
            int hi = i + 2 < text.len ? hex(text.data[i + 1]) : -1;
            int lo = i + 2 < text.len ? hex(text.data[i + 2]) : -1;
            if (hi < 0 || lo < 0) {
                return false;
            }
            c = hi * 16 + lo;
            i += 2;
        } else if (c == '+' && form) {
            c = ' ';
        }
        if (c == 0 || n + 1 >= cap) {
            return false;
        }
        ret[n++] = (char)c;
    }
    ret[n] = '\0';
    return true;
}
