/* Heads written anew. What concerns one hop alone stays with it; what is the daemon's never gets
 * into a sandbox; what a sandbox must not say to the other origin of all sandboxes goes too. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "gateway/base/credential.h"
#include "gateway/edge/proxy_head.h"

#define POLICY "sandbox allow-scripts allow-forms"

static bool begins(kg_slice_t text, const char *with)
{
    return proxy_may_be(text, with) && text.len >= strlen(with) &&
           strncasecmp(text.data, with, strlen(with)) == 0;
}

/* Of one hop: the known ones, and those that Connection names. */
static bool of_one_hop(const proxy_head_t *head, kg_slice_t name)
{
    static const char *const names[] = {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        if (proxy_is(name, names[i])) {
            return true;
        }
    }
    /* A list must not take away what says how long a body is, or where it goes. */
    return !proxy_is(name, "content-length") && !proxy_is(name, "host") &&
           proxy_head_lists(head, "connection", name);
}

/* A line of pieces. No printf, and room is made once: both show in what a small exchange costs. */
static int put_pieces(kg_buf_t *out, const kg_slice_t *pieces, size_t count)
{
    size_t len = 2;
    for (size_t i = 0; i < count; i++) {
        len += pieces[i].len; /* of heads, which have a bound */
    }
    if (kg_buf_reserve(out, len) < 0) {
        return -ENOMEM;
    }
    char *at = out->data + out->len;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].len > 0) {
            memcpy(at, pieces[i].data, pieces[i].len);
            at += pieces[i].len;
        }
    }
    memcpy(at, "\r\n", 3);
    out->len += len;
    return 0;
}

static int put_row(kg_buf_t *out, kg_slice_t name, kg_slice_t value)
{
    const kg_slice_t pieces[] = {name, kg_slice(": ", 2), value};
    return put_pieces(out, pieces, KG_ARRAY_LEN(pieces));
}

static int put(kg_buf_t *out, const char *name, kg_slice_t value)
{
    return put_row(out, kg_slice_cstr(name), value);
}

/* "GET /path HTTP/1.1", "HTTP/1.1 200 OK". */
static int put_line(kg_buf_t *out, kg_slice_t a, kg_slice_t b, kg_slice_t c)
{
    const kg_slice_t blank = kg_slice(" ", 1);
    const kg_slice_t pieces[] = {a, blank, b, blank, c};
    return put_pieces(out, pieces, KG_ARRAY_LEN(pieces));
}

/* All cookies but ours. */
static int put_cookies(kg_buf_t *out, kg_slice_t cookies)
{
    bool any = false;
    int r = 0;
    while (r == 0 && cookies.len > 0) {
        const char *semi = memchr(cookies.data, ';', cookies.len);
        size_t len = semi ? (size_t)(semi - cookies.data) : cookies.len;
        kg_slice_t one = kg_slice(cookies.data, len);
        while (one.len > 0 && one.data[0] == ' ') {
            one.data++;
            one.len--;
        }
        if (one.len > 0 && !begins(one, PROXY_TOKEN_NAME "=")) {
            r = kg_buf_append_cstr(out, any ? "; " : "Cookie: ");
            r = r < 0 ? r : kg_buf_append_slice(out, one);
            any = true;
        }
        size_t step = semi ? len + 1 : len;
        cookies.data += step;
        cookies.len -= step;
    }
    return r < 0 || !any ? r : kg_buf_append(out, "\r\n", 2);
}

/* All protocols but those that carry a key; a line without one stays as it is. */
static int put_protocols(kg_buf_t *out, kg_slice_t name, kg_slice_t list)
{
    KG_AUTO_BUF kg_buf_t kept = {0};
    bool any_key = false;
    int r = 0;
    for (kg_slice_t rest = list; r == 0 && rest.len > 0;) {
        const char *comma = memchr(rest.data, ',', rest.len);
        size_t len = comma ? (size_t)(comma - rest.data) : rest.len;
        kg_slice_t one = proxy_trim(kg_slice(rest.data, len));
        if (kg_credential_is_key(kg_credential_of_protocol(one))) {
            any_key = true;
        } else if (one.len > 0) {
            r = kg_buf_append_cstr(&kept, kept.len > 0 ? ", " : "");
            r = r < 0 ? r : kg_buf_append_slice(&kept, one);
        }
        size_t step = comma ? len + 1 : len;
        rest = kg_slice(rest.data + step, rest.len - step);
    }
    if (r < 0 || (any_key && kept.len == 0)) {
        return r;
    }
    return put_row(out, name, any_key ? kg_buf_slice(&kept) : list);
}

/* What the daemon knows somebody by, wherever a client may have put it. */
static bool stays_here(kg_slice_t name, kg_slice_t value)
{
    return begins(name, "x-sandal-") || begins(name, "x-forwarded-") ||
           proxy_is(name, "forwarded") || proxy_is(name, "x-real-ip") ||
           kg_credential_in_header(name, value) ||
           (proxy_is(name, "referer") && proxy_query_tells(value)); /* of a page opened with one */
}

static int
put_request_row(const proxy_head_t *head, unsigned row, const proxy_route_t *route, kg_buf_t *out)
{
    kg_slice_t name = proxy_head_row_name(head, row);
    kg_slice_t value = proxy_head_row_value(head, row);
    if (of_one_hop(head, name) || stays_here(name, value)) {
        return 0;
    }
    if (proxy_is(name, "cookie")) {
        return route->path_form ? 0 : put_cookies(out, value);
    }
    if (proxy_is(name, "sec-websocket-protocol")) {
        return put_protocols(out, name, value);
    }
    return put_row(out, name, value);
}

int proxy_write_request(const proxy_head_t *head,
                        const http_parser *parser,
                        const proxy_route_t *route,
                        const proxy_forward_t *how,
                        kg_buf_t *out)
{
    int r = put_line(out, kg_slice_cstr(http_method_str((enum http_method)parser->method)),
                     route->path, kg_slice_cstr(how->http10 ? "HTTP/1.0" : "HTTP/1.1"));
    for (unsigned i = 0; r == 0 && i < head->count; i++) {
        r = put_request_row(head, i, route, out);
    }
    r = r < 0 ? r : put(out, "X-Forwarded-For", how->peer);
    r = r < 0 ? r : put(out, "X-Forwarded-Proto", kg_slice_cstr(how->https ? "https" : "http"));
    r = r < 0 ? r : put(out, "X-Forwarded-Host", proxy_head_get(head, "host"));
    if (r == 0 && route->path_form) {
        r = put(out, "X-Forwarded-Prefix", kg_slice_cstr(route->prefix));
    }
    if (r == 0 && how->upgrade) {
        r = put(out, "Connection", kg_slice_cstr("Upgrade"));
        r = r < 0 ? r : put(out, "Upgrade", proxy_head_get(head, "upgrade"));
    } else if (r == 0) {
        r = put(out, "Connection", kg_slice_cstr(how->http10 ? "close" : "keep-alive"));
    }
    if (r == 0 && how->chunked) {
        r = put(out, "Transfer-Encoding", kg_slice_cstr("chunked"));
    }
    return r < 0 ? r : kg_buf_append(out, "\r\n", 2);
}

/* A cookie for a domain would reach the neighbours' origins: it is the host's alone. */
static int put_set_cookie(kg_buf_t *out, kg_slice_t value)
{
    bool any = false;
    int r = kg_buf_append_cstr(out, "Set-Cookie: ");
    while (r == 0 && value.len > 0) {
        const char *semi = memchr(value.data, ';', value.len);
        size_t len = semi ? (size_t)(semi - value.data) : value.len;
        kg_slice_t one = kg_slice(value.data, len);
        while (one.len > 0 && one.data[0] == ' ') {
            one.data++;
            one.len--;
        }
        if (!(any &&
              (begins(one, "domain=") || begins(one, "domain ") || proxy_is(one, "domain")))) {
            r = any ? kg_buf_append(out, "; ", 2) : 0;
            r = r < 0 ? r : kg_buf_append_slice(out, one);
            any = true;
        }
        size_t step = semi ? len + 1 : len;
        value.data += step;
        value.len -= step;
    }
    return r < 0 ? r : kg_buf_append(out, "\r\n", 2);
}

static int put_answer_row(const proxy_head_t *head,
                          unsigned row,
                          const proxy_route_t *route,
                          const proxy_answer_t *how,
                          kg_buf_t *out)
{
    kg_slice_t name = proxy_head_row_name(head, row);
    kg_slice_t value = proxy_head_row_value(head, row);
    if (!proxy_row_valid(name, value) || of_one_hop(head, name) ||
        ((how->chunked || how->no_length) && proxy_is(name, "content-length"))) {
        return 0;
    }
    if (proxy_is(name, "set-cookie") || proxy_is(name, "set-cookie2")) {
        bool ours = begins(value, PROXY_TOKEN_NAME "=");
        return route->path_form || ours || proxy_is(name, "set-cookie2")
                   ? 0
                   : put_set_cookie(out, value);
    }
    if (route->path_form && proxy_is(name, "location") && value.len > 0 && value.data[0] == '/' &&
        !(value.len > 1 && value.data[1] == '/')) {
        return kg_buf_printf(out, "Location: %s%.*s\r\n", route->prefix, (int)value.len,
                             value.data);
    }
    /* Powers over the origin that all sandboxes share. */
    if (route->path_form &&
        (proxy_is(name, "service-worker-allowed") || proxy_is(name, "clear-site-data") ||
         proxy_is(name, "strict-transport-security"))) {
        return 0;
    }
    return put_row(out, name, value);
}

void proxy_write_cookie(kg_slice_t token, bool https, kg_buf_t *out)
{
    (void)kg_buf_printf(
        out, "Set-Cookie: " PROXY_TOKEN_NAME "=%.*s; Path=/; HttpOnly; SameSite=Lax%s\r\n",
        (int)token.len, token.data, https ? "; Secure" : "");
}

int proxy_write_answer(const proxy_head_t *head,
                       const http_parser *parser,
                       const proxy_route_t *route,
                       const proxy_answer_t *how,
                       kg_buf_t *out)
{
    const char *reason = http_status_str((enum http_status)parser->status_code);
    unsigned status = parser->status_code; /* three digits: the parser takes no more */
    char digits[] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
                     (char)('0' + status % 10)};
    int r = put_line(out, kg_slice_cstr("HTTP/1.1"), kg_slice(digits, sizeof(digits)),
                     kg_slice_cstr(reason));
    for (unsigned i = 0; r == 0 && i < head->count; i++) {
        r = put_answer_row(head, i, route, how, out);
    }
    if (r == 0 && parser->status_code < 200 && !how->upgrade) {
        return kg_buf_append(out, "\r\n", 2);
    }
    if (r == 0 && route->path_form) {
        r = put(out, "Content-Security-Policy", kg_slice_cstr(POLICY));
    }
    if (r == 0 && how->cookie.data) {
        proxy_write_cookie(how->cookie, how->https, out);
    }
    if (r == 0 && how->upgrade) {
        r = put(out, "Upgrade", proxy_head_get(head, "upgrade"));
    }
    if (r == 0 && how->chunked) {
        r = put(out, "Transfer-Encoding", kg_slice_cstr("chunked"));
    }
    const char *connection = how->upgrade ? "Upgrade" : how->close ? "close" : "keep-alive";
    r = r < 0 ? r : put(out, "Connection", kg_slice_cstr(connection));
    return r < 0 ? r : kg_buf_append(out, "\r\n", 2);
}
