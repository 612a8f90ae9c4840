/* A request's head: its target as it was sent (target.c), the rest out of libwebsockets' tables. */
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

/* What an URL may hold as it stands; all else that came is encoded, so that no control character
 * gets further. */
static int append_target(kg_buf_t *out, kg_slice_t text)
{
    int rc = kg_buf_reserve(out, text.len);
    for (size_t i = 0; i < text.len && !rc; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = c && c < 0x80 && (isalnum(c) || strchr("%/?-._~!$&'()*+,;=:@", c));
        rc = plain ? kg_buf_append_char(out, (char)c) : kg_buf_printf(out, "%%%02X", c);
    }
    return rc;
}

static int read_target(const kg_target_t *target, struct kg_http_head_priv *priv)
{
    if (target->at < KG_TARGET_LINES || target->text.len == 0) {
        return -EINVAL; /* lws read past target.c */
    }
    kg_slice_t path = kg_buf_slice(&target->text);
    kg_slice_t query = {0};
    const char *mark = memchr(path.data, '?', path.len);
    if (mark) {
        size_t len = (size_t)(mark - path.data);
        query = kg_slice(mark + 1, path.len - len - 1);
        path.len = len;
    }
    int rc = append_target(&priv->path, path);
    return rc < 0 ? rc : append_target(&priv->query, query);
}

static int read_method(struct lws *wsi, kg_http_head_t *head)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        if (lws_hdr_total_length(wsi, methods[i].token) > 0) {
            head->method = kg_slice_cstr(methods[i].name);
            return 0;
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
    int rc = read_method(conn->wsi, head);
    if (rc == 0) {
        rc = read_target(&conn->target, priv);
    }
    if (rc < 0) {
        kg_head_fini(head);
        return rc;
    }
    kg_target_reset(&conn->target);
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

const char *kg_head_host_fault(const kg_http_head_t *head, bool http10)
{
    struct lws *wsi = head->priv->wsi;
    char none[1];
    int all = lws_hdr_total_length(wsi, WSI_TOKEN_HOST);
    if (all == 0 && lws_hdr_copy_fragment(wsi, none, sizeof(none), WSI_TOKEN_HOST, 0) < 0) {
        return http10 ? NULL : "Host is missing.";
    }
    if (lws_hdr_fragment_length(wsi, WSI_TOKEN_HOST, 0) != all) { /* the first is not all */
        return "There are several Hosts.";
    }
    kg_slice_t host = kg_http_head_get(head, "host");
    for (size_t i = 0; i < host.len; i++) {
        unsigned char c = (unsigned char)host.data[i];
        if (!isalnum(c) && (c >= 0x80 || c == 0 || !strchr("-._~%!$&'()*+,;=:[]", c))) {
            return "Host is neither a name nor an address.";
        }
    }
    return NULL;
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
