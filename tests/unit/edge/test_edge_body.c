/* Bodies in pieces and answers of a known length: long ones cost no memory, slow ones hold the
 * other side back, broken ones are seen as broken. */
#include "edge_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define HASTY_MS 1500 /* for clients that stand still */

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

static void send_head(client_t *c, const char *path, size_t length, const char *extra)
{
    char head[256];
    snprintf(head, sizeof(head), "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n",
             path, length, extra);
    client_send(c, head);
}

/* Byte i of every body here. */
static void send_body(client_t *c, size_t from, size_t to)
{
    static char block[65521];
    while (from < to) {
        size_t n = to - from < sizeof(block) ? to - from : sizeof(block);
        for (size_t i = 0; i < n; i++) {
            block[i] = (char)((from + i) * 7);
        }
        client_send_bytes(c, block, n);
        from += n;
    }
}

static void expect_whole(client_t *c, size_t length)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < length; i++) {
        sum += (unsigned char)(i * 7);
    }
    char want[64];
    snprintf(want, sizeof(want), "%zu %lu", length, sum);
    response_t r = client_read(c, false);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, want);
    response_free(&r);
}

static void bodies_of_all_sizes_come_whole_on_one_connection(void **state)
{
    edge_fixture_t *f = *state;
    static const size_t sizes[] = {0,      1,          100,         65535,        65536,
                                   200000, 262144 - 1, 262144 + 64, 3 * MIB + 17, 5};
    client_t c = client_connect(f->ports[0]);
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        send_head(&c, "/sink", sizes[i], "");
        send_body(&c, 0, sizes[i]);
        expect_whole(&c, sizes[i]);
    }
    client_close(&c);
    assert_int_equal(atomic_load(&f->bodies), 0);
}

static void a_body_larger_than_the_cap_of_others_costs_no_memory(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    send_head(&c, "/sink", MIB, "");
    send_body(&c, 0, MIB);
    expect_whole(&c, MIB);
    size_t before = own_rss_kib();
    send_head(&c, "/sink", 256 * MIB, "");
    send_body(&c, 0, 256 * MIB);
    expect_whole(&c, 256 * MIB);
    assert_in_range(own_rss_kib(), 0, before + 4096);
    assert_in_range(atomic_load(&f->most), 1, KG_EDGE_BODY_HELD + 131072);
    client_close(&c);
}

static void a_sink_that_does_not_take_holds_the_client_back(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.body_timeout_ms = HASTY_MS;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    int small = 65536;
    assert_int_equal(setsockopt(c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    send_head(&c, "/sink-held", 64 * MIB, "");
    size_t sent = 0;
    char block[4096];
    for (int quiet = 0; quiet < 30;) { /* 300 ms without room: held back */
        for (size_t i = 0; i < sizeof(block); i++) {
            block[i] = (char)((sent + i) * 7);
        }
        ssize_t n = send(c.fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            quiet = 0;
            continue;
        }
        assert_int_equal(errno, EAGAIN);
        usleep(10000);
        quiet++;
    }
    assert_in_range(sent, KG_EDGE_BODY_HELD, 32 * MIB);
    assert_int_equal(atomic_load(&f->readies), 1); /* told once while nothing was taken */
    int turns = atomic_load(&f->turns);
    usleep(300000);
    assert_in_range(atomic_load(&f->turns) - turns, 0, 200); /* nothing spins */
    usleep(HASTY_MS *
           1000); /* the clock of the body stands still while it is not the client's turn */
    edge_order(f, 't');
    send_body(&c, sent, 64 * MIB);
    expect_whole(&c, 64 * MIB);
    client_close(&c);
    edge_finish(f);
}

static void a_half_sent_body_ends_the_exchange(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    send_head(&c, "/sink", 4 * MIB, "");
    send_body(&c, 0, MIB);
    for (int i = 0; i < PATIENCE_MS && atomic_load(&f->taken) < MIB; i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&f->taken), MIB);
    assert_int_equal(atomic_load(&f->http_closed), 0);
    client_close(&c);
    for (int i = 0; i < PATIENCE_MS && !atomic_load(&f->http_closed); i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&f->http_closed), 1);
}

static void a_silent_sender_is_408(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.body_timeout_ms = HASTY_MS;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    send_head(&c, "/sink", 4 * MIB, "");
    send_body(&c, 0, 1000);
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 408);
    response_free(&r);
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
    edge_finish(f);
}

static void a_refusal_in_the_middle_is_told(void **state)
{
    edge_fixture_t *f = *state;
    /* A short rest does not cost the connection, a long one does. */
    client_t c = client_connect(f->ports[0]);
    send_head(&c, "/sink-refuse", 200000, "");
    send_body(&c, 0, 200000);
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 409);
    assert_null(strstr(r.head, "Connection: close"));
    response_free(&r);
    send_head(&c, "/sink", 3, "");
    send_body(&c, 0, 3);
    expect_whole(&c, 3);
    send_head(&c, "/sink-refuse", 64 * MIB, "");
    send_body(&c, 0, 500000);
    r = client_read(&c, false);
    assert_int_equal(r.status, 409);
    assert_non_null(strstr(r.head, "Connection: close"));
    response_free(&r);
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void expect_continue_is_answered_first(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    send_head(&c, "/sink", 300000, "Expect: 100-continue\r\n");
    response_t r = client_read(&c, true);
    assert_int_equal(r.status, 100);
    response_free(&r);
    send_body(&c, 0, 300000);
    expect_whole(&c, 300000);
    client_close(&c);
}

static void a_request_behind_a_streamed_body_is_answered(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    for (int i = 0; i < 3; i++) {
        send_head(&c, "/sink", 100000, "");
        send_body(&c, 0, 100000);
    }
    client_send(&c, "GET /head HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        expect_whole(&c, 100000);
    }
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 200);
    response_free(&r);
    client_close(&c);
}

static void sized_answers_have_their_length(void **state)
{
    edge_fixture_t *f = *state;
    static const size_t sizes[] = {1, 65472, 65536, 5 * MIB};
    client_t c = client_connect(f->ports[0]);
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        char text[128];
        char want[64];
        snprintf(text, sizeof(text), "GET /sized?%zu HTTP/1.1\r\nHost: x\r\n\r\n", sizes[i]);
        client_send(&c, text);
        response_t r = client_read(&c, false);
        snprintf(want, sizeof(want), "Content-Length: %zu\r\n", sizes[i]);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.head, want));
        assert_null(strstr(r.head, "chunked"));
        assert_int_equal(r.body_len, sizes[i]);
        response_free(&r);
    }
    client_send(&c, "HEAD /sized?77 HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, true);
    assert_non_null(strstr(r.head, "Content-Length: 77\r\n"));
    response_free(&r);
    client_send(&c, "GET /sized?9 HTTP/1.1\r\nHost: x\r\n\r\n");
    r = client_read(&c, false);
    assert_int_equal(r.body_len, 9);
    response_free(&r);
    client_close(&c);
}

static void a_sized_answer_that_errs_is_cut(void **state)
{
    edge_fixture_t *f = *state;
    static const char *const routes[] = {"/sized-short?100000", "/sized-long?100000"};
    for (size_t i = 0; i < KG_ARRAY_LEN(routes); i++) {
        client_t c = client_connect(f->ports[0]);
        char text[128];
        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", routes[i]);
        client_send(&c, text);
        response_t r = client_read(&c, false);
        assert_false(r.complete);
        response_free(&r);
        client_close(&c);
    }
}

/* Asks for 64 MiB that are poured, and waits until the socket takes no more of them. */
static client_t begin_poured(edge_fixture_t *f)
{
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /pour?67108864 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_in_range(edge_settled(&f->poured), 1, 64 * MIB - 1);
    assert_int_equal(atomic_load(&f->http_closed), 0);
    return c;
}

static void wait_closed(edge_fixture_t *f)
{
    for (int i = 0; i < PATIENCE_MS && !atomic_load(&f->http_closed); i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&f->http_closed), 1);
    assert_in_range(atomic_load(&f->poured), 1, 64 * MIB - 1);
}

static void what_is_poured_waits_for_a_client_that_stalls(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = begin_poured(f);
    int turns = atomic_load(&f->turns);
    usleep(300000);
    assert_in_range(atomic_load(&f->turns) - turns, 0, 200); /* nothing spins */
    response_t r = client_get(f, "/head");                   /* others are served */
    assert_int_equal(r.status, 200);
    response_free(&r);
    r = client_read(&c, false);
    assert_true(r.complete);
    assert_int_equal(r.body_len, 64 * MIB);
    assert_int_equal(atomic_load(&f->poured), 64 * MIB);
    response_free(&r);
    client_close(&c);
}

static void a_client_that_leaves_ends_what_is_poured(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = begin_poured(f);
    client_close(&c);
    wait_closed(f);
}

static void a_client_that_stalls_for_good_ends_what_is_poured(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.stall_timeout_ms = HASTY_MS;
    edge_start(f);
    client_t c = begin_poured(f);
    wait_closed(f);
    response_t r = client_read(&c, false);
    assert_false(r.complete);
    response_free(&r);
    client_close(&c);
    edge_finish(f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(bodies_of_all_sizes_come_whole_on_one_connection),
        T(a_body_larger_than_the_cap_of_others_costs_no_memory),
        T(a_sink_that_does_not_take_holds_the_client_back),
        T(a_half_sent_body_ends_the_exchange),
        T(a_silent_sender_is_408),
        T(a_refusal_in_the_middle_is_told),
        T(expect_continue_is_answered_first),
        T(a_request_behind_a_streamed_body_is_answered),
        T(sized_answers_have_their_length),
        T(a_sized_answer_that_errs_is_cut),
        T(what_is_poured_waits_for_a_client_that_stalls),
        T(a_client_that_leaves_ends_what_is_poured),
        T(a_client_that_stalls_for_good_ends_what_is_poured),
    };
    cmocka_set_test_filter(getenv("EDGE_TEST")); /* one test by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
