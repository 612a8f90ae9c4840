/* Whose request it is: from the Host header or from the path. Ids and ports are taken in their one
 * form alone, so that no two spellings mean the same. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include "gateway/base/credential.h"
#include "gateway/base/str.h"
#include "gateway/edge/proxy_head.h"

void proxy_route_fini(proxy_route_t *route)
{
    kg_buf_fini(&route->own);
    memset(route, 0, sizeof(*route));
}

static bool take_port(kg_slice_t text, uint16_t *ret)
{
    char copy[8];
    uint64_t port;
    if (text.len == 0 || text.len > 5 || text.data[0] == '0') {
        return false;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    if (kg_parse_u64(copy, 1, 65535, &port) < 0) {
        return false;
    }
    *ret = (uint16_t)port;
    return true;
}

static bool take_sandbox(kg_slice_t text, char ret[KG_PROXY_NAME_MAX])
{
    if (text.len == 0 || text.len >= KG_PROXY_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
            return false;
        }
    }
    memcpy(ret, text.data, text.len);
    ret[text.len] = '\0';
    return true;
}

static bool ends_with(kg_slice_t host, const char *domain)
{
    size_t len = domain ? strlen(domain) : 0;
    return len > 0 && host.len > len + 1 && host.data[host.len - len - 1] == '.' &&
           strncasecmp(host.data + host.len - len, domain, len) == 0;
}

/* "8000-sbx-….DOMAIN:8718". Host names don't care for case, ids are lower case. */
static int by_host(kg_slice_t host, const char *domain, proxy_route_t *ret)
{
    char name[KG_PROXY_NAME_MAX];
    const char *colon = host.len > 0 ? memchr(host.data, ':', host.len) : NULL;
    if (colon) {
        host.len = (size_t)(colon - host.data);
    }
    const char *end = ends_with(host, "localhost") ? "localhost"
                      : ends_with(host, domain)    ? domain
                                                   : NULL;
    if (!end) {
        return -ENOENT;
    }
    host.len -= strlen(end) + 1;
    const char *dash = memchr(host.data, '-', host.len);
    size_t len = dash ? host.len - (size_t)(dash + 1 - host.data) : 0;
    if (!dash || len >= sizeof(name) ||
        !take_port(kg_slice(host.data, (size_t)(dash - host.data)), &ret->port)) {
        return -ENOENT;
    }
    for (size_t i = 0; i < len; i++) {
        char c = dash[1 + i];
        name[i] = (char)tolower((unsigned char)c);
    }
    return take_sandbox(kg_slice(name, len), ret->sandbox) ? 0 : -ENOENT;
}

/* "/s/SANDBOX/PORT/…"; moves url behind it. */
static int by_path(kg_slice_t *url, proxy_route_t *ret)
{
    if (url->len < 3 || memcmp(url->data, "/s/", 3) != 0) {
        return -ENOENT;
    }
    const char *begin = url->data;
    kg_slice_t rest = kg_slice(url->data + 3, url->len - 3);
    const char *slash = memchr(rest.data, '/', rest.len);
    if (!slash || !take_sandbox(kg_slice(rest.data, (size_t)(slash - rest.data)), ret->sandbox)) {
        return -ENOENT;
    }
    rest = kg_slice(slash + 1, rest.len - (size_t)(slash + 1 - rest.data));
    size_t len = 0;
    while (len < rest.len && rest.data[len] != '/' && rest.data[len] != '?') {
        len++;
    }
    if (!take_port(kg_slice(rest.data, len), &ret->port)) {
        return -ENOENT;
    }
    ret->path_form = true;
    ret->add_slash = len == rest.len || rest.data[len] == '?';
    size_t prefix_len = (size_t)(rest.data + len - begin); /* ids and ports have one form alone */
    memcpy(ret->prefix, begin, prefix_len);
    ret->prefix[prefix_len] = '\0';
    *url = kg_slice(rest.data + len, rest.len - len);
    return 0;
}

static int add_pair(kg_buf_t *out, bool *any, kg_slice_t pair)
{
    int r = kg_buf_append_char(out, *any ? '&' : '?');
    *any = true;
    return r < 0 ? r : kg_buf_append_slice(out, pair);
}

/* The path and query without our token, which is noted, and without keys of the daemon. */
static int without_token(kg_slice_t url, proxy_route_t *ret)
{
    static const char any_token[] = "token="; /* ends PROXY_TOKEN_NAME= too */
    const char *name = PROXY_TOKEN_NAME "=";
    size_t name_len = strlen(name);
    const char *mark = url.len > 0 ? memchr(url.data, '?', url.len) : NULL;
    size_t path_len = mark ? (size_t)(mark - url.data) : url.len;
    if (path_len > 0 && url.data[0] == '/' &&
        (!mark || !memmem(mark, url.len - path_len, any_token, strlen(any_token)))) {
        ret->path = url; /* most are passed on as they stand in the head */
        return 0;
    }
    int r = kg_buf_reserve(&ret->own, url.len + 2); /* nothing moves below: slices stay true */
    if (r == 0 && (path_len == 0 || url.data[0] != '/')) {
        r = kg_buf_append_char(&ret->own, '/');
    }
    r = r < 0 ? r : kg_buf_append(&ret->own, url.data, path_len);
    bool any = false;
    for (size_t at = path_len + 1; r == 0 && mark && at <= url.len;) {
        const char *amp = memchr(url.data + at, '&', url.len - at);
        size_t len = amp ? (size_t)(amp - url.data) - at : url.len - at;
        kg_slice_t pair = kg_slice(url.data + at, len);
        if (len >= name_len && memcmp(pair.data, name, name_len) == 0) {
            ret->token = kg_slice(pair.data + name_len, len - name_len);
            ret->token_in_query = true;
        } else if (!kg_credential_in_pair(pair)) {
            r = add_pair(&ret->own, &any, pair);
        }
        at += len + 1;
    }
    ret->path = kg_buf_slice(&ret->own);
    return r;
}

bool proxy_query_tells(kg_slice_t url)
{
    const char *name = PROXY_TOKEN_NAME "=";
    size_t name_len = strlen(name);
    const char *mark = url.len > 0 ? memchr(url.data, '?', url.len) : NULL;
    for (size_t at = mark ? (size_t)(mark - url.data) + 1 : url.len; at < url.len;) {
        const char *amp = memchr(url.data + at, '&', url.len - at);
        size_t len = amp ? (size_t)(amp - url.data) - at : url.len - at;
        kg_slice_t pair = kg_slice(url.data + at, len);
        if ((len >= name_len && memcmp(pair.data, name, name_len) == 0) ||
            kg_credential_in_pair(pair)) {
            return true;
        }
        at += len + 1;
    }
    return false;
}

static kg_slice_t cookie_token(kg_slice_t cookies)
{
    const char *name = PROXY_TOKEN_NAME "=";
    size_t name_len = strlen(name);
    while (cookies.len > 0) {
        const char *semi = memchr(cookies.data, ';', cookies.len);
        size_t len = semi ? (size_t)(semi - cookies.data) : cookies.len;
        kg_slice_t one = kg_slice(cookies.data, len);
        while (one.len > 0 && one.data[0] == ' ') {
            one.data++;
            one.len--;
        }
        if (one.len >= name_len && memcmp(one.data, name, name_len) == 0) {
            return kg_slice(one.data + name_len, one.len - name_len);
        }
        size_t step = semi ? len + 1 : len;
        cookies.data += step;
        cookies.len -= step;
    }
    return (kg_slice_t){NULL, 0};
}

int proxy_route_find(const proxy_head_t *head, const char *domain, proxy_route_t *ret)
{
    proxy_route_t route = {.port = 0};
    kg_slice_t url = kg_slice(head->text.data, head->url_len);
    if (url.len == 0 || (url.data[0] != '/' && !kg_slice_eq_cstr(url, "*"))) {
        return -EINVAL; /* "http://…": proxies of the other kind are asked so */
    }
    int r = by_host(proxy_head_get(head, "host"), domain, &route);
    r = r == -ENOENT ? by_path(&url, &route) : r;
    r = r < 0 ? r : without_token(url, &route);
    if (r < 0) {
        proxy_route_fini(&route);
        return r;
    }
    if (!route.token.data) {
        route.token = proxy_head_get(head, "x-sandal-token");
    }
    if (!route.token.data && !route.path_form) {
        route.token = cookie_token(proxy_head_get(head, "cookie"));
    }
    *ret = route;
    return 0;
}
