/* gateway/compat: where a Jupyter client has its key. */
#include "gateway/compat/credential.h"

#include <strings.h>

#include "gateway/view/router.h"

#define TOKEN "token="

static kg_slice_t after(kg_slice_t text, const char *scheme)
{
    size_t len = strlen(scheme);
    if (text.len <= len || strncasecmp(text.data, scheme, len) != 0 || text.data[len] != ' ') {
        return kg_slice(NULL, 0);
    }
    while (len < text.len && text.data[len] == ' ') {
        len++;
    }
    return kg_slice(text.data + len, text.len - len);
}

kg_slice_t kg_credential_of_header(kg_slice_t authorization)
{
    kg_slice_t key = after(authorization, "token");
    return key.len ? key : after(authorization, "bearer");
}

bool kg_credential_of_query(kg_slice_t query, char *ret, size_t cap)
{
    static const char name[] = TOKEN;
    while (query.len > 0) {
        const char *end = memchr(query.data, '&', query.len);
        size_t len = end ? (size_t)(end - query.data) : query.len;
        if (len > sizeof name - 1 && memcmp(query.data, name, sizeof name - 1) == 0) {
            kg_slice_t text = kg_slice(query.data + sizeof name - 1, len - (sizeof name - 1));
            return kg_percent_decode(text, true, ret, cap);
        }
        len += len < query.len;
        query = kg_slice(query.data + len, query.len - len);
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
