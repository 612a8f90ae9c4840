/* The proxy's heads: whose request it is, what is refused, what is passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/edge/proxy_head.h"

typedef struct fixture {
    http_parser parser;
    proxy_head_t head;
    bool done;
} fixture_t;

static int on_url(http_parser *p, const char *at, size_t len)
{
    return proxy_head_url(&((fixture_t *)p->data)->head, at, len);
}

static int on_name(http_parser *p, const char *at, size_t len)
{
    return proxy_head_name(&((fixture_t *)p->data)->head, at, len);
}

static int on_value(http_parser *p, const char *at, size_t len)
{
    return proxy_head_value(&((fixture_t *)p->data)->head, at, len);
}

static int on_done(http_parser *p)
{
    ((fixture_t *)p->data)->done = true;
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_done,
};

/* In pieces of one byte, as hard as it gets. False: the parser refused by itself. */
static bool parse(fixture_t *f, enum http_parser_type type, const char *text)
{
    memset(f, 0, sizeof(*f));
    http_parser_init(&f->parser, type);
    f->parser.data = f;
    for (size_t i = 0; text[i] && !f->done; i++) {
        if (http_parser_execute(&f->parser, &settings, text + i, 1) != 1 && !f->parser.upgrade) {
            return false;
        }
    }
    return f->done;
}

/* The route's texts may be the head's. */
static int route_of(fixture_t *f, const char *host, const char *url, proxy_route_t *ret)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: x=1; sandal_token=c; y=2\r\n\r\n", url,
                   host);
    assert_true(parse(f, HTTP_REQUEST, text));
    return proxy_route_find(&f->head, "box.example", ret);
}

static void routes_by_path_and_host(void **state)
{
    (void)state;
    static const struct {
        const char *host, *url, *path;
        bool path_form;
    } rows[] = {
        {"x", "/s/sbx-a/80/", "/", true},
        {"x", "/s/sbx-a/80/a/../b?c=d", "/a/../b?c=d", true},
        {"x", "/s/sbx-a/80/a%2f..;b%zz?x=a;b&&%2B", "/a%2f..;b%zz?x=a;b&&%2B", true},
        {"x", "/s/sbx-a/80", "/", true},
        {"x", "/s/sbx-a/80?q=1", "/?q=1", true},
        {"80-sbx-a.localhost", "/s/sbx-b/81/", "/s/sbx-b/81/", false},
        {"80-SBX-A.Box.Example:8718", "/?sandal_token=t&a=1&sandal_token=u", "/?a=1", false},
        {"80-sbx-a.localhost", "/?sandal_tokens=1&", "/?sandal_tokens=1&", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fixture_t f;
        proxy_route_t route;
        assert_int_equal(route_of(&f, rows[i].host, rows[i].url, &route), 0);
        assert_string_equal(route.sandbox, "sbx-a");
        assert_int_equal(route.port, 80);
        assert_int_equal(route.path_form, rows[i].path_form);
        assert_true(kg_slice_eq_cstr(route.path, rows[i].path));
        proxy_route_fini(&route);
        proxy_head_fini(&f.head);
    }
}

static void routes_that_are_none(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"x", "/"},
        {"x", "/s/"},
        {"x", "/s/sbx-a"},
        {"x", "/s/sbx-a/"},
        {"x", "/s/sbx-a/0/"},
        {"x", "/s/sbx-a/080/"},
        {"x", "/s/sbx-a/65536/"},
        {"x", "/s/sbx-a/80x/"},
        {"x", "/s/SBX-A/80/"},
        {"x", "/s/sbx%2da/80/"},
        {"x", "/s//80/"},
        {"80-sbx-a.localhost.", "/"},
        {"80-sbx-a.notlocalhost", "/"},
        {"80-.localhost", "/"},
        {"-sbx-a.localhost", "/"},
        {"80-sbx_a.localhost", "/"},
        {"a.80-sbx-a.localhost", "/"},
        {"localhost", "/"},
        {"80-0123456789012345678901234567890123456789012345678901234567890123.localhost", "/"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fixture_t f;
        proxy_route_t route;
        if (route_of(&f, rows[i][0], rows[i][1], &route) != -ENOENT) {
            fail_msg("%s %s", rows[i][0], rows[i][1]);
        }
        proxy_head_fini(&f.head);
    }
    fixture_t f;
    proxy_route_t route;
    assert_int_equal(route_of(&f, "x", "http://x/", &route), -EINVAL);
    proxy_head_fini(&f.head);
}

static const char *wrong(const char *lines)
{
    static fixture_t f;
    char text[512];
    (void)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n%s\r\n", lines);
    bool parsed = parse(&f, HTTP_REQUEST, text);
    const char *why = parsed ? proxy_request_wrong(&f.head, &f.parser) : "parser";
    proxy_head_fini(&f.head);
    return why;
}

static void requests_that_can_be_read_in_two_ways(void **state)
{
    (void)state;
    assert_null(wrong("Host: x\r\nContent-Length: 3\r\n"));
    assert_null(wrong("Host: x\r\nTransfer-Encoding: Chunked\r\n"));
    assert_non_null(wrong("Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"));
    assert_non_null(wrong("Host: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n"));
    assert_non_null(wrong("Host: x\r\nTransfer-Encoding: chunked, identity\r\n"));
    assert_non_null(wrong("Host: x\r\nTransfer-Encoding : chunked\r\n"));
    assert_non_null(wrong("Host: x\r\nTransfer-Encoding: xchunked\r\n"));
    assert_non_null(wrong("Host: x\r\nHost: y\r\n"));
    assert_non_null(wrong("X: y\r\n"));
    assert_non_null(wrong("Host: x\r\nA\x01: y\r\n"));
}

static void limits_of_a_head(void **state)
{
    (void)state;
    proxy_head_t head = {.count = 0};
    char block[1024];
    memset(block, 'a', sizeof(block));
    assert_int_equal(proxy_head_name(&head, "n", 1), 0);
    for (unsigned i = 0; i < 31; i++) {
        assert_int_equal(proxy_head_value(&head, block, sizeof(block)), 0);
    }
    assert_int_equal(proxy_head_value(&head, block, sizeof(block) - 1), 0);
    assert_false(head.too_large);
    assert_int_equal(proxy_head_value(&head, "b", 1), -E2BIG);
    assert_true(head.too_large);
    proxy_head_clear(&head);
    for (unsigned i = 0; i < PROXY_ROWS_MAX; i++) {
        assert_int_equal(proxy_head_name(&head, "n", 1), 0);
        assert_int_equal(proxy_head_value(&head, "v", 1), 0);
    }
    assert_int_equal(proxy_head_name(&head, "n", 1), -E2BIG);
    proxy_head_fini(&head);
}

static void programs_get_no_key(void **state)
{
    (void)state;
#define KEY "sk-sandal-0123456789"
    static const struct {
        const char *url, *rows, *path, *out;
    } rows[] = {
        {"/?token=" KEY, "", "/", ""},
        {"/a?x=1&token=" KEY "&y=2", "", "/a?x=1&y=2", ""},
        {"/?token=%73k-sandal-1&token=own&sandal_token=t", "", "/?token=own", ""},
        {"/?&token=own&a=b;c&", "", "/?&token=own&a=b;c&", ""},
        {"/token=" KEY "?mytoken=1", "", "/token=" KEY "?mytoken=1", ""}, /* not where one is */
        {"/", "Authorization: Bearer  " KEY "\r\n", "/", ""},
        {"/", "authorization: bearer \t" KEY "\r\n", "/", ""},
        {"/", "Authorization: token " KEY "\r\n", "/", ""},
        {"/", "Authorization: TOKEN   " KEY "\r\n", "/", ""},
        {"/", "Authorization: a\r\nAuthorization: Bearer " KEY "\r\n", "/", "Authorization: a\r\n"},
        {"/", "Authorization: token own\r\n", "/", "Authorization: token own\r\n"},
        {"/", "Authorization: Bearer  own\r\n", "/", "Authorization: Bearer  own\r\n"},
        {"/", "X-API-Key: " KEY "\r\nX-Api-Key: own\r\n", "/", "X-Api-Key: own\r\n"},
        {"/", "Sec-WebSocket-Protocol: a, bearer." KEY ",b\r\n", "/",
         "Sec-WebSocket-Protocol: a, b\r\n"},
        {"/", "Sec-WebSocket-Protocol: bearer." KEY "\r\nSec-WebSocket-Protocol: a\r\n", "/",
         "Sec-WebSocket-Protocol: a\r\n"},
        {"/", "Sec-WebSocket-Protocol: \tbearer." KEY " , bearer." KEY ",\r\n", "/", ""},
        {"/", "Sec-WebSocket-Protocol: a,bearer.own ,b\r\n", "/",
         "Sec-WebSocket-Protocol: a,bearer.own ,b\r\n"},
        {"/", "Referer: http://h/a?token=" KEY "\r\n", "/", ""},
        {"/", "Referer: http://h/a?b&sandal_token=c\r\n", "/", ""},
        {"/", "Referer: http://h/a?b&token=c\r\n", "/", "Referer: http://h/a?b&token=c\r\n"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fixture_t f;
        proxy_route_t route;
        proxy_forward_t how = {.peer = kg_slice_cstr("p")};
        char text[512], want[512];
        KG_AUTO_BUF kg_buf_t out = {0};
        (void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: 80-sbx-a.localhost\r\n%s\r\n",
                       rows[i].url, rows[i].rows);
        (void)snprintf(want, sizeof(want),
                       "GET %s HTTP/1.1\r\nHost: 80-sbx-a.localhost\r\n%sX-Forwarded-For: p\r\n"
                       "X-Forwarded-Proto: http\r\nX-Forwarded-Host: 80-sbx-a.localhost\r\n"
                       "Connection: keep-alive\r\n\r\n",
                       rows[i].path, rows[i].out);
        assert_true(parse(&f, HTTP_REQUEST, text));
        assert_int_equal(proxy_route_find(&f.head, NULL, &route), 0);
        assert_int_equal(proxy_write_request(&f.head, &f.parser, &route, &how, &out), 0);
        assert_string_equal(out.data, want);
        proxy_route_fini(&route);
        proxy_head_fini(&f.head);
    }
#undef KEY
}

static void answers_without_a_body_tell_no_wrong_length(void **state)
{
    (void)state;
    fixture_t f;
    proxy_route_t route = {.port = 80};
    proxy_answer_t how = {.no_length = true};
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_true(parse(&f, HTTP_RESPONSE, "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n"));
    assert_int_equal(proxy_write_answer(&f.head, &f.parser, &route, &how, &out), 0);
    assert_string_equal(out.data, "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n");
    proxy_head_fini(&f.head);
    static const unsigned bare[] = {100, 103, 199, 204, 304};
    static const unsigned full[] = {200, 201, 205, 206, 303, 305, 404, 500};
    for (size_t i = 0; i < KG_ARRAY_LEN(bare); i++) {
        assert_true(proxy_status_bare(bare[i]));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(full); i++) {
        assert_false(proxy_status_bare(full[i]));
    }
}

static void answers_lose_what_is_not_theirs_to_say(void **state)
{
    (void)state;
    fixture_t f;
    proxy_route_t route = {.path_form = true, .prefix = "/s/sbx-a/80"};
    proxy_answer_t how = {.close = true};
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_true(parse(&f, HTTP_RESPONSE,
                      "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nLocation: /x\r\nKeep-Alive: 1\r\n"
                      "Service-Worker-Allowed: /\r\nX: y\r\nContent-Length: 0\r\n\r\n"));
    assert_int_equal(proxy_write_answer(&f.head, &f.parser, &route, &how, &out), 0);
    assert_string_equal(out.data, "HTTP/1.1 200 OK\r\nLocation: /s/sbx-a/80/x\r\nX: y\r\n"
                                  "Content-Length: 0\r\nContent-Security-Policy: sandbox "
                                  "allow-scripts allow-forms\r\nConnection: close\r\n\r\n");
    kg_buf_clear(&out);
    proxy_head_fini(&f.head);
    memset(&route, 0, sizeof(route));
    assert_true(parse(&f, HTTP_RESPONSE,
                      "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; DOMAIN=x.y; Secure\r\n"
                      "Set-Cookie: domain=1; Path=/\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"));
    assert_int_equal(proxy_write_answer(&f.head, &f.parser, &route, &how, &out), 0);
    assert_string_equal(out.data, "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Secure\r\n"
                                  "Set-Cookie: domain=1; Path=/\r\nLocation: /x\r\n"
                                  "Content-Length: 0\r\nConnection: close\r\n\r\n");
    proxy_head_fini(&f.head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_by_path_and_host),
        cmocka_unit_test(routes_that_are_none),
        cmocka_unit_test(requests_that_can_be_read_in_two_ways),
        cmocka_unit_test(limits_of_a_head),
        cmocka_unit_test(programs_get_no_key),
        cmocka_unit_test(answers_without_a_body_tell_no_wrong_length),
        cmocka_unit_test(answers_lose_what_is_not_theirs_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
