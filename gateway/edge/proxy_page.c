/* Answers of the proxy's own: pages for people, JSON for programs, redirects. */
#include <stdio.h>
#include <string.h>

#include "gateway/edge/proxy_priv.h"

static const char *code_of(int status)
{
    switch (status) {
    case 400:
        return "invalid_request";
    case 401:
        return "unauthorized";
    case 404:
        return "not_found";
    case 431:
        return "headers_too_large";
    case 502:
        return "nothing_listens";
    case 504:
        return "request_timeout";
    default:
        return "internal";
    }
}

static bool wants_page(const proxy_conn_t *conn)
{
    kg_slice_t accept = proxy_head_get(&conn->request_head, "accept");
    return accept.data && memmem(accept.data, accept.len, "text/html", 9);
}

/* All that goes in is ours or checked: ids, numbers, fixed text. */
static int body(const proxy_conn_t *conn, int status, const char *why, bool page, kg_buf_t *out)
{
    const proxy_route_t *r = &conn->route;
    char text[320];
    bool nobody = status == 502 && !why;
    if (nobody) {
        (void)snprintf(text, sizeof(text), "Nothing listens on port %u of sandbox %s.", r->port,
                       r->sandbox);
        why = text;
    }
    const char *hint = nobody ? "Start a server there that listens on 127.0.0.1, ::1 or 0.0.0.0, "
                                "then load this again. A server that is starting is waited for "
                                "some seconds."
                              : "";
    if (!page) {
        return kg_buf_printf(out, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"%s%s%s}}\n",
                             code_of(status), why, hint[0] ? ",\"hint\":\"" : "", hint,
                             hint[0] ? "\"" : "");
    }
    int n = kg_buf_printf(out,
                          "<!doctype html><meta charset=utf-8><title>%d</title>"
                          "<style>body{font:16px/1.5 sans-serif;max-width:40em;margin:15vh auto;"
                          "padding:0 1em}code{background:#eee;padding:.1em .3em}</style>"
                          "<h1>%s</h1><p>%s</p>",
                          status, why, hint);
    if (n == 0 && nobody) {
        n = kg_buf_printf(out, "<p>For example: <code>python3 -m http.server %u</code></p>",
                          r->port);
    }
    return n;
}

int proxy_page_write(const proxy_conn_t *conn, int status, const char *why, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    if (status == 302 || status == 308) {
        return proxy_redirect_write(conn, status == 302, out);
    }
    bool page = wants_page(conn);
    int r = body(conn, status, why, page, &text);
    r = r < 0 ? r
              : kg_buf_printf(out,
                              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                              "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                              "Content-Security-Policy: default-src 'none'; style-src "
                              "'unsafe-inline'; sandbox\r\n%sConnection: close\r\n\r\n",
                              status, http_status_str((enum http_status)status),
                              page ? "text/html; charset=utf-8" : "application/json", text.len,
                              status == 502 ? "Retry-After: 1\r\n" : "");
    return r < 0 || conn->request.method == HTTP_HEAD ? r : kg_buf_append(out, text.data, text.len);
}

/* To the same place with a slash, or with the token as a cookie instead of in the address. */
int proxy_redirect_write(const proxy_conn_t *conn, bool cookie, kg_buf_t *out)
{
    const proxy_route_t *r = &conn->route;
    kg_slice_t path = r->path;
    /* "//host" would be somewhere else */
    while (!r->path_form && path.len > 1 && (path.data[1] == '/' || path.data[1] == '\\')) {
        path.data++;
        path.len--;
    }
    int n = kg_buf_printf(out,
                          "HTTP/1.1 %s\r\nContent-Length: 0\r\nCache-Control: no-store\r\n"
                          "Referrer-Policy: no-referrer\r\nLocation: %s%.*s",
                          cookie ? "302 Found" : "308 Permanent Redirect", r->prefix, (int)path.len,
                          path.data);
    if (n == 0 && !cookie && r->token_in_query) { /* goes along */
        n = kg_buf_printf(out, "%c" PROXY_TOKEN_NAME "=%.*s",
                          memchr(path.data, '?', path.len) ? '&' : '?', (int)r->token.len,
                          r->token.data);
    }
    n = n < 0 ? n : kg_buf_append(out, "\r\n", 2);
    if (n == 0 && cookie) {
        proxy_write_cookie(r->token, conn->proxy->opts.https, out);
    }
    return n < 0 ? n : kg_buf_append_cstr(out, "Connection: close\r\n\r\n");
}
