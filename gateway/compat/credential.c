/* gateway/compat: where a Jupyter client has its key. */
#include "gateway/compat/credential.h"

#include <strings.h>

#include "gateway/view/router.h"

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
    static const char name[] = "token=";
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
