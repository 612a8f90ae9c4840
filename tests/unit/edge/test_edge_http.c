/* HTTP: heads, bodies, caps, errors, keep-alive, streams, draining. */
#include "edge_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int setup(void **state)
{
    edge_fixture_t *f = edge_prepare();
    edge_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    edge_finish(*state);
    return 0;
}

static void expect_error(response_t *r, int status, const char *code)
{
    char member[64];
    snprintf(member, sizeof(member), "\"code\":\"%s\"", code);
    assert_int_equal(r->status, status);
    assert_true(r->complete);
    assert_non_null(strstr(r->head, "Content-Type: application/json"));
    assert_null(strstr(r->body, "<html"));
    assert_non_null(strstr(r->body, "{\"error\":{"));
    assert_non_null(strstr(r->body, member));
    response_free(r);
}

static void expect_text(response_t *r, const char *text)
{
    assert_int_equal(r->status, 200);
    assert_true(r->complete);
    assert_string_equal(r->body, text);
    response_free(r);
}

/* Sends raw text on a fresh connection and reads one answer. */
static response_t ask(edge_fixture_t *f, const char *text)
{
    client_t c = client_connect(f->ports[0]);
    client_send(&c, text);
    response_t r = client_read(&c, false);
    client_close(&c);
    return r;
}

static void head_is_told_in_full(void **state)
{
    response_t r = ask(*state, "GET /head/a%20b/%C3%A4%25?k=v%26w&x=1+2&%3d=%3d;z "
                               "HTTP/1.1\r\nHost: x\r\nX-Test:  two words \t\r\n"
                               "User-Agent: me\r\nUser-Agent: you\r\n\r\n");
    assert_non_null(strstr(r.head, "X-One: 1\r\n"));
    assert_null(strstr(r.head, "Set-Cookie"));
    assert_non_null(strstr(r.head, "Date: "));
    expect_text(
        &r, "GET|/head/a%20b/%C3%A4%25|k=v%26w&x=1+2&%3d=%3d;z|two words|me,  you|127.0.0.1|100");
}

/* Every byte arrives as it was sent, in however many pieces; what no URL may hold is encoded. */
static void targets_are_told_as_sent(void **state)
{
    static const char *const rows[][2] = {
        {"/head/x%2fy/..%2F..%2fz", "/head/x%2fy/..%2F..%2fz|"},
        {"/head//a/./b/../../c", "/head//a/./b/../../c|"},
        {"/head/a;b,c?path=a;b.txt&x=%0A%00", "/head/a;b,c|path=a;b.txt&x=%0A%00"},
        {"/head/%zz%4?%&?=", "/head/%zz%4|%&?="},
        {"/head/\xc3\xa4\x01\"?\t|", "/head/%C3%A4%01%22|%09%7C"},
    };
    edge_fixture_t *f = *state;
    for (size_t i = 0; i < 2 * KG_ARRAY_LEN(rows); i++) {
        char text[256], want[256];
        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", rows[i / 2][0]);
        snprintf(want, sizeof(want), "GET|%s|||127.0.0.1|100", rows[i / 2][1]);
        client_t c = client_connect(f->ports[0]);
        for (size_t at = 0; i % 2 && text[at]; at++) {
            client_send_bytes(&c, text + at, 1);
        }
        client_send(&c, i % 2 ? "" : text);
        response_t r = client_read(&c, false);
        client_close(&c);
        expect_text(&r, want);
    }
}

static void methods_are_told(void **state)
{
    static const char *const methods[] = {"PUT", "PATCH", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        char text[128];
        char want[128];
        snprintf(text, sizeof(text), "%s /head HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                 methods[i]);
        snprintf(want, sizeof(want), "%s|/head||||127.0.0.1|100", methods[i]);
        response_t r = ask(*state, text);
        expect_text(&r, want);
    }
}

static void head_request_gets_no_body(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c,
                "HEAD /head HTTP/1.1\r\nHost: x\r\n\r\nHEAD /stream?5 HTTP/1.1\r\nHost: x\r\n\r\n"
                "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, true);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.head, "Content-Length: 0"));
    r = client_read(&c, true);
    assert_non_null(strstr(r.head, "chunked"));
    r = client_read(&c, false);
    expect_text(&r, "");
    client_close(&c);
}

static void body_is_echoed(void **state)
{
    response_t r = ask(*state, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    expect_text(&r, "hello");
    r = ask(*state, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    expect_text(&r, "");
    r = ask(*state, "DELETE /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nbye");
    expect_text(&r, "bye");
    r = ask(*state, "GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nget");
    expect_text(&r, "get");
}

static void body_in_single_bytes_is_whole(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    const char *text = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world";
    for (const char *p = text; *p; p++) {
        client_send_bytes(&c, p, 1);
        usleep(300);
    }
    response_t r = client_read(&c, false);
    expect_text(&r, "hello world");
    client_close(&c);
}

/* curl -X POST without -d sends neither length nor body. */
static void post_without_length_has_no_body(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    assert_non_null(strstr(r.head, "Connection: close"));
    expect_text(&r, "");
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void big_body_comes_whole(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    size_t len = 20u << 20;
    char *body = malloc(len);
    for (size_t i = 0; i < len; i++) {
        body[i] = (char)('a' + i % 23);
    }
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20971520\r\n\r\n");
    uint64_t begin = kg_now_ns();
    client_send_bytes(&c, body, len);
    response_t r = client_read(&c, false);
    print_message("20 MiB there and back in %.0f ms\n", (double)(kg_now_ns() - begin) / 1e6);
    assert_int_equal(r.body_len, len);
    assert_memory_equal(r.body, body, len);
    response_free(&r);
    free(body);
    client_close(&c);
}

static void five_pipelined_are_answered_in_order(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\none"
                    "GET /stream?100000 HTTP/1.1\r\nHost: x\r\n\r\n"
                    "GET /none HTTP/1.1\r\nHost: x\r\n\r\n"
                    "GET /trickle HTTP/1.1\r\nHost: x\r\n\r\n"
                    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nfive");
    response_t r = client_read(&c, false);
    expect_text(&r, "one");
    r = client_read(&c, false);
    assert_true(r.complete);
    assert_int_equal(r.body_len, 100000);
    response_free(&r);
    r = client_read(&c, false);
    assert_int_equal(r.status, 204);
    r = client_read(&c, false);
    expect_text(&r, "1\n2\n3\n4\n5\n");
    r = client_read(&c, false);
    expect_text(&r, "five");
    client_close(&c);
}

static void refused_at_head_keeps_the_connection(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nwhat"
                    "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    assert_non_null(strstr(r.body, "A key is needed, \\\"really\\\"."));
    expect_error(&r, 401, "unauthorized");
    r = client_read(&c, false);
    expect_text(&r, "");
    assert_int_equal(f->bodies, 1);
    client_close(&c);
}

static void refused_before_its_body_came_goes_on_after_it(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
    response_t r = client_read(&c, false);
    expect_error(&r, 401, "unauthorized");
    client_send(&c, "what");
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    r = client_read(&c, false);
    expect_text(&r, "");
    client_close(&c);
}

static void declared_length_over_the_cap_is_413(void **state)
{
    response_t r =
        ask(*state, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789");
    expect_text(&r, "0123456789");
    r = ask(*state, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n0123456789a");
    expect_error(&r, 413, "too_large");
    r = ask(*state, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
    expect_error(&r, 413, "too_large");
}

static void answer_413_reaches_a_client_that_goes_on_sending(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n");
    char *piece = calloc(1, 1000000);
    for (int i = 0; i < 8; i++) {
        client_send_bytes(&c, piece, 1000000);
    }
    free(piece);
    response_t r = client_read(&c, false);
    expect_error(&r, 413, "too_large");
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void bad_lengths_are_400(void **state)
{
    static const char *const lengths[] = {
        "abc", "-1", "+5", "5 5", "5\r\nContent-Length: 5", "0x10", "9999999999999999999999",
        "1e3", "5;"};
    for (size_t i = 0; i < KG_ARRAY_LEN(lengths); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\nhello", lengths[i]);
        response_t r = ask(*state, text);
        expect_error(&r, 400, "invalid_request");
    }
}

/* RFC 9112, 3.2: exactly one Host, which may be empty, and need not be there in HTTP/1.0. */
static void one_host_is_needed(void **state)
{
    static const struct {
        const char *lines;
        int status;
    } cases[] = {
        {"1.1\r\nHost: x\r\n", 200},
        {"1.1\r\nHost: [::1]:8717\r\n", 200},
        {"1.1\r\nHost: %2Frun%2Fsandal.sock\r\n", 200},
        {"1.1\r\nHost:\r\n", 200},
        {"1.0\r\n", 200},
        {"1.0\r\nHost: x\r\n", 200},
        {"1.1\r\nAccept: */*\r\n", 400},
        {"1.1\r\nHost: x\r\nHost: x\r\n", 400},
        {"1.1\r\nHost: x\r\nAccept: */*\r\nhost: y\r\n", 400},
        {"1.1\r\nHost: x\r\nHost:\r\n", 400},
        {"1.1\r\nHost:\r\nHost: x\r\n", 400},
        {"1.0\r\nHost: x\r\nHost: x\r\n", 400},
        {"1.1\r\nHost: x y\r\n", 400},
        {"1.1\r\nHost: x/y\r\n", 400},
        {"1.1\r\nHost: a@x\r\n", 400},
        {"1.1\r\nHost: \303\244\r\n", 400},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        char text[128];
        (void)snprintf(text, sizeof(text), "GET /echo HTTP/%s\r\n", cases[i].lines);
        response_t r = ask(*state, text);
        if (r.status != cases[i].status) {
            print_message("case %zu: %d\n", i, r.status);
        }
        if (cases[i].status == 200) {
            expect_text(&r, "");
        } else {
            expect_error(&r, 400, "invalid_request");
        }
    }
    client_t c = client_connect(((edge_fixture_t *)*state)->ports[0]);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
                    "hello");
    response_t r = client_read(&c, false);
    expect_error(&r, 400, "invalid_request");
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void malformed_requests_get_json_or_nothing(void **state)
{
    static const struct {
        const char *text;
        int status;
        const char *code;
    } cases[] = {
        {"GET %2Fa HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"GET / FTP\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: gopher\r\nConnection: upgrade\r\n\r\n", 400,
         "invalid_request"},
        {"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", 501, "not_supported"},
        {"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 501, "not_supported"},
        {"\x16\x03\x01\x02hello tls", 400, "invalid_request"},
        {"GET / HTTP/1.1\r\nGET / HTTP/1.1\r\n\r\n", 400, "invalid_request"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        response_t r = ask(*state, cases[i].text);
        if (r.status != cases[i].status) {
            print_message("case %zu: %d\n", i, r.status);
        }
        expect_error(&r, cases[i].status, cases[i].code);
    }
    response_t r = client_get(*state, "/echo"); /* and the server lives */
    expect_text(&r, "");
}

static void malformed_second_request_is_answered_too(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    expect_text(&r, "");
    client_send(&c, "GET a HTTP/1.1\r\n\r\n");
    r = client_read(&c, false);
    expect_error(&r, 400, "invalid_request");
    client_close(&c);
}

static void large_heads_are_431_and_many_headers_are_fine(void **state)
{
    edge_fixture_t *f = *state;
    size_t cap = 40000;
    char *text = calloc(1, cap);
    size_t n = (size_t)snprintf(text, cap, "GET /head HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 200; i++) {
        n += (size_t)snprintf(text + n, cap - n, "X-H%d: value-%d\r\n", i, i);
    }
    n += (size_t)snprintf(text + n, cap - n, "X-Test: last\r\n\r\n");
    response_t r = ask(f, text);
    expect_text(&r, "GET|/head||last||127.0.0.1|100");
    n = (size_t)snprintf(text, cap, "GET /head HTTP/1.1\r\nHost: x\r\nX-Long: ");
    memset(text + n, 'l', 20000);
    memcpy(text + n + 20000, "\r\n\r\n", 5);
    r = ask(f, text);
    expect_error(&r, 431, "headers_too_large");
    free(text);
}

static void slow_head_is_408_and_silence_is_closed(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.header_timeout_ms = 1500;
    edge_start(f);
    client_t half = client_connect(f->ports[0]);
    client_t silent = client_connect(f->ports[0]);
    client_t second = client_connect(f->ports[0]);
    client_send(&half, "GET /head HTTP/1.1\r\nHos");
    client_send(&second, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&second, false);
    expect_text(&r, "");
    client_send(&second, "GET /head HTTP/1.1\r\nHos");
    r = client_read(&half, false);
    expect_error(&r, 408, "request_timeout");
    r = client_read(&silent, false);
    assert_int_equal(r.status, 0);
    r = client_read(&second, false);
    expect_error(&r, 408, "request_timeout");
    client_close(&half);
    client_close(&silent);
    client_close(&second);
    edge_finish(f);
}

static void slow_body_is_408(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.body_timeout_ms = 1500;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
    for (int i = 0; i < 3; i++) { /* each piece buys time */
        usleep(700000);
        client_send(&c, "x");
    }
    response_t r = client_read(&c, false);
    expect_error(&r, 408, "request_timeout");
    client_close(&c);
    edge_finish(f);
}

static void stream_that_aborts_is_seen_as_cut(void **state)
{
    response_t r = client_get(*state, "/abort");
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "some");
    assert_false(r.complete);
    response_free(&r);
}

static void what_is_poured_keeps_the_connection(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    for (int i = 0; i < 2; i++) { /* more than a socket holds, with a request behind it */
        client_send(&c, "GET /pour?20000000 HTTP/1.1\r\nHost: x\r\n\r\n"
                        "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        response_t r = client_read(&c, false);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.head, "Content-Length: 20000000"));
        assert_int_equal(r.body_len, 20000000);
        assert_int_equal(r.body[10000000], '\0');
        response_free(&r);
        r = client_read(&c, false);
        expect_text(&r, "");
    }
    assert_int_equal(f->poured, 40000000);
    client_send(&c, "HEAD /pour?1000 HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, true);
    assert_non_null(strstr(r.head, "Content-Length: 1000"));
    response_free(&r);
    assert_int_equal(f->poured, 40000000);
    client_close(&c);
}

static void what_is_poured_short_is_seen_as_cut(void **state)
{
    response_t r = client_get(*state, "/pour-short?3501");
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 3500);
    assert_false(r.complete);
    response_free(&r);
}

static void http10_gets_a_plain_stream_and_a_close(void **state)
{
    response_t r = ask(*state, "GET /stream?200000 HTTP/1.0\r\n\r\n");
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.head, "chunked"));
    assert_non_null(strstr(r.head, "Connection: close"));
    assert_int_equal(r.body_len, 200000);
    response_free(&r);
}

static void connection_close_is_honoured(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: TE, close\r\n\r\n");
    response_t r = client_read(&c, false);
    assert_non_null(strstr(r.head, "Connection: close"));
    expect_text(&r, "");
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void h2c_offer_is_passed_over(void **state)
{
    response_t r = ask(
        *state,
        "GET /head HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
    expect_text(&r, "GET|/head||||127.0.0.1|100");
}

static void idle_keep_alive_is_closed_in_time(void **state)
{
    edge_fixture_t *f = edge_prepare();
    (void)state;
    f->opts.idle_timeout_ms = 400;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    expect_text(&r, "");
    uint64_t begin = kg_now_ns();
    r = client_read(&c, false);
    assert_int_equal(r.status, 0);
    assert_true(kg_now_ns() - begin > 300 * KG_NS_PER_MS);
    client_close(&c);
    edge_finish(f);
}

static void one_connection_too_many_gets_503(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.max_connections = 2;
    edge_start(f);
    client_t a = client_connect(f->ports[0]);
    client_t b = client_connect(f->ports[0]);
    response_t r = client_get(f, "/echo"); /* they are taken in the order in which they came */
    assert_non_null(strstr(r.head, "Retry-After: 1"));
    expect_error(&r, 503, "draining");
    client_close(&a);
    client_close(&b);
    r = client_get(f, "/echo");
    for (int i = 0; i < PATIENCE_MS / 10 && r.status == 503; i++) {
        usleep(10000);
        response_free(&r);
        r = client_get(f, "/echo");
    }
    expect_text(&r, "");
    edge_finish(f);
}

static void drain_finishes_exchanges_and_refuses_new_ones(void **state)
{
    edge_fixture_t *f = *state;
    client_t busy = client_connect(f->ports[0]);
    client_t idle = client_connect(f->ports[0]);
    client_send(&idle, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&idle, false);
    expect_text(&r, "");
    client_send(&busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    while (f->bodies < 2) {
        usleep(1000);
    }
    edge_order(f, 'd');
    assert_true(client_closed_within(&idle, PATIENCE_MS));
    edge_order(f, 'a');
    r = client_read(&busy, false);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Connection: close"));
    response_free(&r);
    assert_true(client_closed_within(&busy, PATIENCE_MS));
    client_close(&busy);
    client_close(&idle);
}

static int connect_unix(const char *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void unix_and_inet6_listeners_serve(void **state)
{
    (void)state;
    char dir[] = "/tmp/edge-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char path[64];
    char address[80];
    snprintf(path, sizeof(path), "%s/sock", dir);
    snprintf(address, sizeof(address), "unix:%s", path);
    int left = socket(AF_UNIX, SOCK_STREAM, 0); /* a socket file that nobody serves any more */
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(bind(left, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(left);
    edge_fixture_t *f = edge_prepare();
    f->listeners[1].address = address;
    f->listeners[2].address = "*:0";
    f->opts.listener_count = 3;
    edge_start(f);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    client_t c = client_wrap(connect_unix(path));
    client_send(&c, "GET /head HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    expect_text(&r, "GET|/head||||unix|010");
    client_close(&c);
    c = client_connect(f->ports[2]); /* IPv4 to a dual-stack socket: told as IPv4 (trap 16) */
    client_send(&c, "GET /head HTTP/1.1\r\nHost: x\r\n\r\n");
    r = client_read(&c, false);
    expect_text(&r, "GET|/head||||127.0.0.1|100");
    client_close(&c);

    /* A second server cannot take the path of a living one. */
    kg_loop_t *loop = NULL;
    kg_edge_t *edge = NULL;
    kg_err_t err = {0};
    kg_edge_handler_t handler = {0};
    kg_edge_listener_t listener = {.address = address};
    kg_edge_opts_t opts = {.listeners = &listener, .listener_count = 1};
    assert_int_equal(kg_loop_create(&loop), 0);
    assert_true(kg_edge_create(loop, &opts, &handler, &edge, &err) < 0);
    assert_non_null(strstr(err.message, path));
    kg_loop_destroy(&loop);
    edge_finish(f);
    assert_int_equal(stat(path, &st), -1);
    rmdir(dir);
}

static void socket_that_may_not_be_made_says_who_would_make_it(void **state)
{
    (void)state;
    char dir[] = "/tmp/kg-closed-XXXXXX";
    char address[64];
    kg_loop_t *loop;
    kg_edge_t *edge = NULL;
    kg_err_t err = {0};
    kg_edge_handler_t handler = {0};
    kg_edge_listener_t listener = {.address = address};
    kg_edge_opts_t opts = {.listeners = &listener, .listener_count = 1};
    uid_t was = geteuid();
    uid_t who = was == 0 ? 65534 : was;
    assert_non_null(mkdtemp(dir));
    snprintf(address, sizeof(address), "unix:%s/s", dir);
    assert_int_equal(0, chmod(dir, 0555));
    assert_int_equal(0, kg_loop_create(&loop));
    assert_int_equal(0, seteuid(who));
    int rc = kg_edge_create(loop, &opts, &handler, &edge, &err);
    assert_int_equal(0, seteuid(was));
    assert_true(rc < 0);
    char user[32];
    snprintf(user, sizeof(user), "as user id %u", (unsigned)who);
    assert_non_null(strstr(err.message, dir));
    assert_non_null(strstr(err.hint, user));
    assert_non_null(strstr(err.hint, dir));
    kg_loop_destroy(&loop);
    assert_int_equal(0, rmdir(dir));
}

static void a_file_where_the_socket_would_be_stays(void **state)
{
    (void)state;
    char path[] = "/tmp/kg-file-XXXXXX";
    char address[64];
    kg_err_t err = {0};
    kg_edge_socket_t opened;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(address, sizeof(address), "unix:%s", path);
    assert_true(kg_edge_socket_open(address, 0, &opened, &err) < 0);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.hint, "--listen"));
    assert_int_equal(0, unlink(path)); /* it is there still */
}

static void a_taken_port_is_told_with_what_to_do(void **state)
{
    (void)state;
    char address[64];
    kg_err_t err = {0};
    kg_edge_socket_t first;
    kg_edge_socket_t second;
    assert_int_equal(kg_edge_socket_open("127.0.0.1:0", 0, &first, &err), 0);
    snprintf(address, sizeof(address), "127.0.0.1:%u", first.port);
    assert_int_equal(kg_edge_socket_open(address, 0, &second, &err), -EADDRINUSE);
    assert_non_null(strstr(err.message, address));
    assert_non_null(strstr(err.hint, "Another program listens there"));
    kg_edge_socket_close(&first);
}

static void bad_addresses_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "127.0.0.1", "127.0.0.1:70000", "nohost:80",
                                      "[::1:80", "unix:",     "1.2.3.4:80x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_loop_t *loop = NULL;
        kg_edge_t *edge = NULL;
        kg_err_t err = {0};
        kg_edge_handler_t handler = {0};
        kg_edge_listener_t listener = {.address = bad[i]};
        kg_edge_opts_t opts = {.listeners = &listener, .listener_count = 1};
        assert_int_equal(kg_loop_create(&loop), 0);
        assert_true(kg_edge_create(loop, &opts, &handler, &edge, &err) < 0);
        assert_true(err.message[0] != '\0');
        assert_null(edge);
        kg_loop_destroy(&loop);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(head_is_told_in_full),
        T(targets_are_told_as_sent),
        T(methods_are_told),
        T(head_request_gets_no_body),
        T(body_is_echoed),
        T(body_in_single_bytes_is_whole),
        T(post_without_length_has_no_body),
        T(big_body_comes_whole),
        T(five_pipelined_are_answered_in_order),
        T(refused_at_head_keeps_the_connection),
        T(refused_before_its_body_came_goes_on_after_it),
        T(declared_length_over_the_cap_is_413),
        T(answer_413_reaches_a_client_that_goes_on_sending),
        T(bad_lengths_are_400),
        T(one_host_is_needed),
        T(malformed_requests_get_json_or_nothing),
        T(malformed_second_request_is_answered_too),
        T(large_heads_are_431_and_many_headers_are_fine),
        T(slow_head_is_408_and_silence_is_closed),
        T(slow_body_is_408),
        T(stream_that_aborts_is_seen_as_cut),
        T(what_is_poured_keeps_the_connection),
        T(what_is_poured_short_is_seen_as_cut),
        T(http10_gets_a_plain_stream_and_a_close),
        T(connection_close_is_honoured),
        T(h2c_offer_is_passed_over),
        cmocka_unit_test(idle_keep_alive_is_closed_in_time),
        cmocka_unit_test(one_connection_too_many_gets_503),
        T(drain_finishes_exchanges_and_refuses_new_ones),
        cmocka_unit_test(unix_and_inet6_listeners_serve),
        cmocka_unit_test(a_file_where_the_socket_would_be_stays),
        cmocka_unit_test(a_taken_port_is_told_with_what_to_do),
        cmocka_unit_test(socket_that_may_not_be_made_says_who_would_make_it),
        cmocka_unit_test(bad_addresses_are_named),
    };
    cmocka_set_test_filter(getenv("EDGE_TEST")); /* one test by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
