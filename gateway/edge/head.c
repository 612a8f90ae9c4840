/* A request's head out of libwebsockets' tables. lws decodes paths and queries; they are encoded
 * again here, so that those above split first and decode after, as one should. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/edge/edge_priv.h"

typedef struct kg_head_value {
    struct kg_head_value *next;
    char text[];
} kg_head_value_t;

static const struct {
    enum lws_token_indexes token;
    const char *name;
} methods[] = {
    {WSI_TOKEN_GET_URI, "GET"},         {WSI_TOKEN_POST_URI, "POST"},
    {WSI_TOKEN_HEAD_URI, "HEAD"},       {WSI_TOKEN_PUT_URI, "PUT"},
    {WSI_TOKEN_PATCH_URI, "PATCH"},     {WSI_TOKEN_DELETE_URI, "DELETE"},
    {WSI_TOKEN_OPTIONS_URI, "OPTIONS"},
};

static bool plain_in_url(unsigned char c, bool path)
{
    return (c < 0x80 && isalnum(c)) || (c && strchr("-._~!$'()*,:@", c)) ||
           (path && strchr("/&=;", c));
}

static int append_encoded(kg_buf_t *out, const char *data, size_t len, bool path)
{
    int rc = kg_buf_reserve(out, len);
    for (size_t i = 0; i < len && !rc; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c && plain_in_url(c, path)) {
            rc = kg_buf_append_char(out, (char)c);
        } else {
            rc = kg_buf_printf(out, "%%%02X", c);
        }
    }
    return rc;
}

/* name=value with only the first "=" as separator. */
static int append_pair(kg_buf_t *out, const char *pair, size_t len)
{
    const char *eq = memchr(pair, '=', len);
    size_t name_len = eq ? (size_t)(eq - pair) : len;
    int rc = append_encoded(out, pair, name_len, false);
    if (eq) {
        rc |= kg_buf_append_char(out, '=');
        rc |= append_encoded(out, eq + 1, len - name_len - 1, false);
    }
    return rc;
}

static int read_query(struct lws *wsi, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t pair = {0};
    int total = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_URI_ARGS);
    if (total <= 0) {
        return 0;
    }
    if (kg_buf_reserve(&pair, (size_t)total + 1) < 0) {
        return -ENOMEM;
    }
    for (int i = 0;; i++) {
        int len = lws_hdr_copy_fragment(wsi, pair.data, total + 1, WSI_TOKEN_HTTP_URI_ARGS, i);
        if (len < 0) {
            return 0;
        }
        int rc = i ? kg_buf_append_char(out, '&') : 0;
        rc |= append_pair(out, pair.data, (size_t)len);
        if (rc) {
            return -ENOMEM;
        }
    }
}

static int read_path(struct lws *wsi, enum lws_token_indexes token, int len, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t raw = {0};
    if (kg_buf_reserve(&raw, (size_t)len + 1) < 0 ||
        lws_hdr_copy(wsi, raw.data, len + 1, token) < 0) {
        return -ENOMEM;
    }
    if (memchr(raw.data, '\0', (size_t)len)) { /* lws copied no further */
        return -EINVAL;
    }
    return append_encoded(out, raw.data, (size_t)len, true);
}

static int read_method(struct lws *wsi, kg_http_head_t *head, struct kg_http_head_priv *priv)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        int len = lws_hdr_total_length(wsi, methods[i].token);
        if (len > 0) {
            head->method = kg_slice_cstr(methods[i].name);
            return read_path(wsi, methods[i].token, len, &priv->path);
        }
    }
    return -EINVAL;
}

int kg_head_init(kg_conn_t *conn, kg_http_head_t *head, struct kg_http_head_priv *priv)
{
    *priv = (struct kg_http_head_priv){.wsi = conn->wsi};
    *head = (kg_http_head_t){
        .peer = kg_slice_cstr(conn->peer),
        .tls = conn->tls,
        .loopback_peer = conn->loopback,
        .unix_peer = conn->unix_peer,
        .listener = conn->listener,
        .priv = priv,
    };
    int rc = read_method(conn->wsi, head, priv);
    if (rc == 0) {
        rc = read_query(conn->wsi, &priv->query);
    }
    if (rc < 0) {
        kg_head_fini(head);
        return rc;
    }
    head->path = kg_buf_slice(&priv->path);
    head->query = kg_buf_slice(&priv->query);
    return 0;
}

void kg_head_fini(kg_http_head_t *head)
{
    struct kg_http_head_priv *priv = head->priv;
    kg_buf_fini(&priv->path);
    kg_buf_fini(&priv->query);
    while (priv->values) {
        kg_head_value_t *value = priv->values;
        priv->values = value->next;
        free(value);
    }
}

static kg_slice_t keep(struct kg_http_head_priv *priv, kg_head_value_t *value, int len)
{
    if (len < 0) {
        free(value);
        return (kg_slice_t){0};
    }
    value->next = priv->values;
    priv->values = value;
    kg_slice_t s = kg_slice(value->text, (size_t)len);
    while (s.len > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* The index lws keeps a header under, or -1. name ends with ":". */
static int token_of(const char *name)
{
    for (int i = 0; i < WSI_TOKEN_COUNT; i++) {
        const unsigned char *text = lws_token_to_string((enum lws_token_indexes)i);
        if (!text) {
            break;
        }
        if (strcmp((const char *)text, name) == 0) {
            return i;
        }
    }
    return -1;
}

kg_slice_t kg_http_head_get(const kg_http_head_t *head, const char *name)
{
    struct kg_http_head_priv *priv = head->priv;
    char key[128];
    if (kg_format(key, sizeof(key), "%s:", name) < 0) {
        return (kg_slice_t){0};
    }
    int token = token_of(key);
    int key_len = (int)strlen(key);
    int len = token >= 0 ? lws_hdr_total_length(priv->wsi, (enum lws_token_indexes)token)
                         : lws_hdr_custom_length(priv->wsi, key, key_len);
    if (len < 0 || (token >= 0 && len == 0)) {
        return (kg_slice_t){0};
    }
    kg_head_value_t *value = calloc(1, sizeof(*value) + (size_t)len + 2);
    if (!value) {
        return (kg_slice_t){0};
    }
    len = token >= 0 ? lws_hdr_copy(priv->wsi, value->text, len + 1, (enum lws_token_indexes)token)
                     : lws_hdr_custom_copy(priv->wsi, value->text, len + 1, key, key_len);
    return keep(priv, value, len);
}

int kg_head_content_length(const kg_http_head_t *head, bool *ret_present, uint64_t *ret_length)
{
    kg_slice_t s = kg_http_head_get(head, "content-length");
    *ret_present = s.data != NULL;
    *ret_length = 0;
    if (!s.data) {
        return 0;
    }
    if (s.len == 0 || s.len > 18) {
        return -EINVAL;
    }
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9') {
            return -EINVAL;
        }
        n = n * 10 + (uint64_t)(s.data[i] - '0');
    }
    *ret_length = n;
    return 0;
}

bool kg_head_has_token(const kg_http_head_t *head, const char *name, const char *token)
{
    kg_slice_t s = kg_http_head_get(head, name);
    size_t want = strlen(token);
    for (size_t i = 0; i < s.len;) {
        while (i < s.len && (s.data[i] == ' ' || s.data[i] == '\t' || s.data[i] == ',')) {
            i++;
        }
        size_t begin = i;
        while (i < s.len && s.data[i] != ',' && s.data[i] != ' ' && s.data[i] != '\t') {
            i++;
        }
        if (i - begin == want && strncasecmp(s.data + begin, token, want) == 0) {
            return true;
        }
    }
    return false;
}
