/* Every trap of libwebsockets 4.1.6 on libuv that was met, each with a test that shows it when it
 * snaps again. Those that are not here, by their numbers:
 *  5 room before payloads     test_edge_ws: sizes_around_the_header_forms_are_echoed, under ASan
 *  6 pieces and flow control  test_edge_ws: fragments_at_every_boundary_are_joined,
 *                             too_large_is_1009_at_the_sum, paused_socket_reads_nothing_more
 *  7 permessage-deflate       test_edge_ws: subprotocol_is_the_handlers_choice (none is agreed to),
 *                             faults_close_with_their_codes (a reserved bit)
 * 11 one port                 test_edge_ws: upgrade_after_a_request_on_the_same_connection
 * 12 state of a connection    test_edge_http: five_pipelined_are_answered_in_order; test_edge_ws:
 *                             bad_handshakes_are_told_why (before the upgrade)
 * 13 timeouts                 test_edge_http: slow_head_is_408_and_silence_is_closed,
 *                             slow_body_is_408; test_edge_ws: silent_client_is_pinged_…
 * 14 descriptors              test_edge_ws: two_thousand_idle_sockets; e2e, test_serve.py:
 *                             test_connections_are_not_bounded_by_the_soft_limit_of_descriptors
 * 15 TLS                      the ones here
 * 16 addresses                test_edge_http: unix_and_inet6_listeners_serve
 * 18 ZeroMQ                   loop/test_zchan: as_many_sockets_as_kernels_need,
 *                             close_inside_callback_is_the_last, sends_wait_for_a_peer
 * and of the loop: loop/test_zchan, flood_arrives_whole_and_in_order, big_messages_few_a_turn. */
#include "edge_fixture.h"
#include "gateway/edge/edge_priv.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char tls_dir[] = "/tmp/edge-tls-XXXXXX";
static char cert[64];
static char key[64];

static int make_certificate(void **state)
{
    (void)state;
    char command[512];
    if (!mkdtemp(tls_dir)) {
        return -1;
    }
    snprintf(cert, sizeof(cert), "%s/cert.pem", tls_dir);
    snprintf(key, sizeof(key), "%s/key.pem", tls_dir);
    snprintf(command, sizeof(command),
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
             "-subj /CN=localhost "
             "-keyout %s -out %s 2>/dev/null",
             key, cert);
    return system(command); // NOLINT(cert-env33-c,concurrency-mt-unsafe)
}

static int remove_certificate(void **state)
{
    (void)state;
    unlink(cert);
    unlink(key);
    return rmdir(tls_dir);
}

static int setup(void **state)
{
    edge_fixture_t *f = edge_prepare();
    f->listeners[1] =
        (kg_edge_listener_t){.address = "127.0.0.1:0", .tls_cert = cert, .tls_key = key};
    f->opts.listener_count = 2;
    edge_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    edge_finish(*state);
    return 0;
}

/* An edge that cannot replace what it must does not start; here the look itself is looked at. */
static void replaced_functions_are_in_force(void **state)
{
    (void)state;
    kg_err_t err = {0};
    assert_int_equal(kg_lws_check(&err), 0);
    assert_true(kg_lws_replaced("lws_close_free_wsi"));
    assert_false(kg_lws_replaced("lws_write"));
    assert_false(kg_lws_replaced("kg_no_such_function"));
}

/* --- A TLS client
 * --------------------------------------------------------------------------------------------------------
 */

typedef struct tls {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
} tls_t;

static tls_t tls_connect(unsigned port)
{
    client_t c = client_connect(port);
    static const unsigned char alpn[] = "\x02h2\x08http/1.1";
    tls_t t = {.fd = c.fd, .context = SSL_CTX_new(TLS_client_method())};
    t.ssl = SSL_new(t.context);
    SSL_set_alpn_protos(t.ssl, alpn, sizeof(alpn) - 1);
    SSL_set_fd(t.ssl, t.fd);
    assert_int_equal(SSL_connect(t.ssl), 1);
    return t;
}

static void tls_close(tls_t *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->context);
    close(t->fd);
}

static void tls_write(tls_t *t, const char *data, size_t len)
{
    while (len > 0) {
        int n = SSL_write(t->ssl, data, len > 1u << 20 ? 1 << 20 : (int)len);
        assert_true(n > 0);
        data += n;
        len -= (size_t)n;
    }
}

/* Reads until want bytes came after the head. Returns the head and body, NUL-terminated. */
static char *tls_read(tls_t *t, size_t want, size_t *ret_body)
{
    size_t cap = want + 8192;
    char *buf = calloc(1, cap);
    size_t len = 0;
    for (;;) {
        char *end = len ? memmem(buf, len, "\r\n\r\n", 4) : NULL;
        if (end && len - (size_t)(end + 4 - buf) >= want) {
            *ret_body = (size_t)(end + 4 - buf);
            return buf;
        }
        int n = SSL_read(t->ssl, buf + len, (int)(cap - len - 1));
        assert_true(n > 0);
        len += (size_t)n;
    }
}

static void nothing_is_poured_past_tls(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    size_t at = 0;
    const char *head = "GET /pour?200000 HTTP/1.1\r\nHost: x\r\n\r\n";
    tls_write(&t, head, strlen(head));
    char *all = tls_read(&t, 200000, &at);
    assert_int_equal(strspn(all + at, "x"), 200000); /* what fill gives */
    assert_int_equal(f->poured, 0);
    free(all);
    tls_close(&t);
}

/* Trap of 5.3: the plugin sleeps with bytes left in TLS' buffer; the upload stands still until a
 * timeout. Trap 15. */
static void tls_upload_of_20_mib_does_not_stall(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    size_t len = 20u << 20;
    char *body = malloc(len);
    memset(body, 'b', len);
    const char *head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20971520\r\n\r\n";
    uint64_t begin = kg_now_ns();
    tls_write(&t, head, strlen(head));
    tls_write(&t, body, len);
    size_t at = 0;
    char *answer = tls_read(&t, len, &at);
    uint64_t took = kg_now_ns() - begin;
    print_message("20 MiB over TLS there and back in %.0f ms\n", (double)took / 1e6);
    assert_memory_equal(answer + at, body, len);
    free(answer);
    free(body);
    tls_close(&t);
}

/* One record may hold a head, its body and the next head. */
static void tls_record_with_head_and_body_is_answered(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    static const char one[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
    char many[sizeof(one) * 3];
    (void)snprintf(many, sizeof(many), "%s%s%s", one, one, one);
    const char *what[] = {one, many};
    const size_t answers[] = {1, 3};
    assert_int_equal(
        setsockopt(t.fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){10, 0}, sizeof(struct timeval)),
        0);
    for (size_t i = 0; i < KG_ARRAY_LEN(what); i++) {
        char got[4096];
        size_t len = 0;
        tls_write(&t, what[i], strlen(what[i]));
        for (size_t seen = 0; seen < answers[i];) {
            int n = SSL_read(t.ssl, got + len, (int)(sizeof(got) - 1 - len));
            assert_true(n > 0);
            len += (size_t)n;
            got[len] = '\0';
            seen = 0;
            for (const char *at = got; (at = strstr(at, "\r\n\r\nhello")); at++) {
                seen++;
            }
        }
    }
    tls_close(&t);
}

/* Trap 10: no h2, though the client offers it first. */
static void tls_speaks_http_1_1_and_says_so(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    const unsigned char *chosen = NULL;
    unsigned len = 0;
    SSL_get0_alpn_selected(t.ssl, &chosen, &len);
    assert_int_equal(len, 8);
    assert_memory_equal(chosen, "http/1.1", 8);
    const char *head = "GET /head HTTP/1.1\r\nHost: x\r\n\r\n";
    tls_write(&t, head, strlen(head));
    const char *want = "GET|/head||||127.0.0.1|101";
    size_t at = 0;
    char *answer = tls_read(&t, strlen(want), &at);
    assert_string_equal(answer + at, want);
    free(answer);
    tls_close(&t);
}

static void tls_refuses_malformed_requests_in_json(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    const char *head = "GET a HTTP/1.1\r\nHost: x\r\n\r\n";
    tls_write(&t, head, strlen(head));
    size_t at = 0;
    char *answer = tls_read(&t, 20, &at);
    assert_non_null(strstr(answer, "HTTP/1.1 400"));
    assert_non_null(strstr(answer, "invalid_request"));
    free(answer);
    tls_close(&t);
}

/* Requests that wait in TLS' buffer behind one that waits for its answer must not make the loop
 * spin. */
static void tls_pipelined_behind_a_waiting_one_does_not_spin(void **state)
{
    edge_fixture_t *f = *state;
    tls_t t = tls_connect(f->ports[1]);
    const char *heads =
        "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    tls_write(&t, heads, strlen(heads));
    tls_write(&t, heads, strlen(heads));
    while (f->bodies < 1) {
        usleep(1000);
    }
    usleep(200000);
    double before = cpu_seconds();
    usleep(500000);
    assert_true(cpu_seconds() - before < 0.2);
    edge_order(f, 'a');
    size_t at = 0;
    free(tls_read(&t, 2, &at));
    tls_close(&t);
}

/* --- Plain
 * ---------------------------------------------------------------------------------------------------------------
 */

/* lws neither reads nor looks away while an answer is awaited: a pipelined request would spin the
 * loop. */
static void pipelined_behind_a_waiting_one_does_not_spin(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    while (f->bodies < 1) {
        usleep(1000);
    }
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnext");
    usleep(50000);
    int turns = f->turns;
    usleep(400000);
    assert_true(f->turns - turns < 40);
    edge_order(f, 'a');
    response_t r = client_read(&c, false);
    assert_string_equal(r.body, "{}");
    response_free(&r);
    r = client_read(&c, false);
    assert_string_equal(r.body, "next");
    response_free(&r);
    client_close(&c);
}

static void wait_for_close(edge_fixture_t *f)
{
    for (int i = 0; i < PATIENCE_MS && f->http_closed == 0; i++) {
        usleep(1000);
    }
    assert_int_equal(f->http_closed, 1);
}

/* Nor does lws notice a client that goes away meanwhile. */
static void client_that_leaves_a_waiting_exchange_is_noticed(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
    while (f->bodies < 1) {
        usleep(1000);
    }
    client_send(&c, "GET /echo HTTP/1.1\r\n"); /* unread bytes must not hide it */
    client_close(&c);
    wait_for_close(f);
}

static void client_that_leaves_a_silent_stream_is_noticed(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /trickle HTTP/1.1\r\nHost: x\r\n\r\n");
    char head[64];
    assert_true(recv(c.fd, head, sizeof(head), 0) > 0);
    client_close(&c);
    wait_for_close(f);
}

/* Trap 1: deadlines hold though nothing else happens (lws would arm its timer at the next I/O). */
static void deadlines_hold_on_a_quiet_loop(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.header_timeout_ms = 600;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /head HT");
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 408);
    response_free(&r);
    client_close(&c);
    edge_finish(f);
}

/* Trap 2: the close frame of a shutdown arrives, with code and reason, on idle and on busy sockets.
 */
static void shutdown_sends_1001_with_its_reason(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    edge_start(f);
    client_t idle = ws_connect(f->ports[0], "/ws", NULL);
    client_t busy = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&busy, "flood 3000 100");
    usleep(20000);
    edge_order(f, 'q');
    frame_t frame = ws_read(&idle);
    assert_int_equal(frame.op_fin, 0x88);
    assert_int_equal(frame.code, 1001);
    assert_string_equal(frame.data + 2, "shutdown");
    free(frame.data);
    do {
        frame = ws_read(&busy);
        assert_non_null(frame.data);
        free(frame.data);
    } while (frame.op_fin != 0x88);
    assert_int_equal(frame.code, 1001);
    client_close(&idle);
    client_close(&busy);
    pthread_join(f->thread, NULL);
    kg_loop_hook_remove(f->loop, &f->hook);
    kg_loop_destroy(&f->loop); /* trap of 5.3: two steps, then uv_loop_close is 0 */
    assert_int_equal(f->ws_open, f->ws_closed);
    close(f->order[0]);
    close(f->order[1]);
    free(f);
}

/* Stop with everything in the air: half heads, half bodies, waiting and stalled exchanges, sockets,
 * TLS handshakes. */
static void stop_in_the_middle_of_everything_is_clean(void **state)
{
    edge_fixture_t *f = *state;
    f->grace_ms = 100;
    client_t c[7];
    for (size_t i = 0; i < 5; i++) {
        c[i] = client_connect(f->ports[0]);
    }
    client_send(&c[0], "GET /he");
    client_send(&c[1], "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
    client_send(&c[2], "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    client_send(&c[3], "GET /stream?100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    c[5] = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c[5], "flood 100000 1000");
    c[6] = client_connect(f->ports[1]);
    client_send(&c[6], "\x16\x03\x01");
    usleep(100000);
    edge_finish(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(c); i++) {
        client_close(&c[i]);
    }
    setup(state);
}

/* Trap 3: a big message must not crawl through in 4 KiB pieces. */
static void one_mib_message_comes_in_few_turns(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    int turns = f->turns;
    ws_send_text(&c, "flood 1 1000000");
    size_t got = 0;
    while (got < 1000000) {
        frame_t frame = ws_read(&c);
        assert_non_null(frame.data);
        got += frame.len;
        free(frame.data);
    }
    assert_true(f->turns - turns < 120);
    client_close(&c);
}

/* Trap 4: a slow reader of a big stream must not make memory grow; lws_write would take and keep
 * everything. */
static void slow_reader_of_a_big_stream_costs_no_memory(void **state)
{
    edge_fixture_t *f = *state;
    client_t http = client_connect(f->ports[0]);
    client_t ws = ws_connect(f->ports[0], "/ws", NULL);
    size_t before = own_rss_kib();
    client_send(&http, "GET /stream?100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    ws_send_text(&ws, "flood 100 1000000");
    unsigned long pulled = edge_settled(&f->pulled);
    assert_true(pulled > 100000);
    assert_true(pulled < 30u * 1000 * 1000); /* what two sockets' buffers hold */
    double cpu = cpu_seconds();
    usleep(300000);
    assert_int_equal(f->pulled, pulled);
    assert_true(cpu_seconds() - cpu < 0.1); /* and waiting costs nothing */
    assert_true(own_rss_kib() - before < 8192);
    size_t got = 0;
    static char buf[65536];
    while (got < 100000000) {
        ssize_t n = recv(http.fd, buf, sizeof(buf), 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    print_message("100 MB read behind: RSS grew by %zu KiB\n", own_rss_kib() - before);
    assert_true(own_rss_kib() - before < 8192);
    client_close(&http);
    client_close(&ws);
}

/* The same with a pipelined request waiting in the socket: that must not spin while the client
 * stalls. */
static void stalled_reader_with_a_pipelined_request_does_not_spin(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /stream?20000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)edge_settled(&f->pulled);
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    usleep(100000); /* long enough to be seen */
    int turns = f->turns;
    usleep(400000);
    assert_true(f->turns - turns < 60);
    response_t r = client_read(&c, false);
    assert_int_equal(r.body_len, 20000000);
    response_free(&r);
    r = client_read(&c, false);
    assert_int_equal(r.status, 200);
    response_free(&r);
    client_close(&c);
}

/* Trap 6: flow control works from outside lws' callbacks, and what was buffered comes after. See
 * paused_socket in ws. */
/* Trap 8: chunked bodies would hang: 411 at once. Expect: 100-continue would hang for a second. */
static void chunked_request_is_411_at_once(void **state)
{
    edge_fixture_t *f = *state;
    static const char *const methods[] = {"POST", "GET", "PUT", "DELETE"};
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        client_t c = client_connect(f->ports[0]);
        char text[256];
        snprintf(text, sizeof(text),
                 "%s /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                 methods[i]);
        client_send(&c, text);
        response_t r = client_read(&c, false);
        assert_int_equal(r.status, 411);
        assert_non_null(strstr(r.body, "length_required"));
        response_free(&r);
        int turns = f->turns;
        assert_true(client_closed_within(&c, PATIENCE_MS));
        assert_true(f->turns - turns < 200);
        client_close(&c);
    }
}

static void expect_continue_is_answered(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(
        &c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 100);
    client_send(&c, "body");
    r = client_read(&c, false);
    assert_string_equal(r.body, "body");
    response_free(&r);
    client_send(
        &c,
        "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n");
    r = client_read(&c, false); /* refused without a 100 */
    assert_int_equal(r.status, 413);
    response_free(&r);
    client_close(&c);
}

/* Trap 9: keep-alive holds after a stream. */
static void streams_keep_the_connection(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    for (int i = 0; i < 20; i++) {
        client_send(&c, "GET /stream?1000 HTTP/1.1\r\nHost: x\r\n\r\n");
        response_t r = client_read(&c, false);
        assert_true(r.complete);
        assert_int_equal(r.body_len, 1000);
        assert_null(strstr(r.head, "close"));
        response_free(&r);
    }
    client_close(&c);
}

/* A body that was pipelined behind another request: lws would hand out the wrong bytes and free
 * what it still reads. */
static void pipelined_bodies_are_whole(void **state)
{
    edge_fixture_t *f = *state;
    for (size_t size = 1; size < 60000; size = size * 3 + 1) {
        client_t c = client_connect(f->ports[0]);
        char *text = calloc(1, 3 * (size + 200));
        char *body = malloc(size + 1);
        memset(body, 'p', size);
        body[size] = '\0';
        size_t len = 0;
        for (int i = 0; i < 3; i++) {
            len += (size_t)sprintf(
                text + len, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", size,
                body);
        }
        client_send_bytes(&c, text, len);
        for (int i = 0; i < 3; i++) {
            response_t r = client_read(&c, false);
            assert_int_equal(r.body_len, size);
            assert_string_equal(r.body, body);
            response_free(&r);
        }
        free(text);
        free(body);
        client_close(&c);
    }
}

static unsigned long long caught_signals(void)
{
    char line[256];
    unsigned long long mask = 0;
    bool found = false;
    FILE *status = fopen("/proc/self/status", "re");
    assert_non_null(status);
    while (!found && fgets(line, sizeof(line), status)) {
        found = sscanf(line, "SigCgt: %llx", &mask) == 1; // NOLINT(cert-err34-c)
    }
    (void)fclose(status);
    assert_true(found);
    return mask & 0x7fffffffU; /* 32 and 33 are for the C library's threads */
}

/* Trap 17: neither lws nor its plugin catches signals, and programs that are started inherit none
 * of the descriptors. */
static void signals_and_descriptors_stay_ours(void **state)
{
    (void)state;
    enum {
        MOST = 1024
    };
    static bool before[MOST];
    for (int fd = 0; fd < MOST; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    unsigned long long caught = caught_signals();
    edge_fixture_t *f = edge_prepare();
    f->listeners[1] =
        (kg_edge_listener_t){.address = "127.0.0.1:0", .tls_cert = cert, .tls_key = key};
    f->opts.listener_count = 2;
    edge_start(f);
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    client_t ws = ws_connect(f->ports[0], "/ws", NULL);
    while (f->bodies < 1) {
        usleep(1000);
    }
    unsigned more = 0;
    for (int fd = 0; fd < MOST; fd++) {
        int flags = before[fd] ? -1 : fcntl(fd, F_GETFD);
        more += flags >= 0;
        if (flags >= 0 && !(flags & FD_CLOEXEC)) {
            char link[64];
            char name[256] = "";
            (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
            ssize_t n = readlink(link, name, sizeof(name) - 1);
            fail_msg("descriptor %d would be inherited: %s", fd, n > 0 ? name : "?");
        }
    }
    assert_true(more >= 6); /* two listeners, both ends of two connections */
    assert_int_equal(caught_signals(), caught);
    client_close(&ws);
    client_close(&c);
    edge_finish(f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaced_functions_are_in_force),
        T(nothing_is_poured_past_tls),
        T(tls_upload_of_20_mib_does_not_stall),
        T(tls_record_with_head_and_body_is_answered),
        T(tls_speaks_http_1_1_and_says_so),
        T(tls_refuses_malformed_requests_in_json),
        T(tls_pipelined_behind_a_waiting_one_does_not_spin),
        T(pipelined_behind_a_waiting_one_does_not_spin),
        T(client_that_leaves_a_waiting_exchange_is_noticed),
        T(client_that_leaves_a_silent_stream_is_noticed),
        T(deadlines_hold_on_a_quiet_loop),
        cmocka_unit_test(shutdown_sends_1001_with_its_reason),
        T(stop_in_the_middle_of_everything_is_clean),
        T(one_mib_message_comes_in_few_turns),
        T(slow_reader_of_a_big_stream_costs_no_memory),
        T(stalled_reader_with_a_pipelined_request_does_not_spin),
        T(chunked_request_is_411_at_once),
        T(expect_continue_is_answered),
        T(streams_keep_the_connection),
        T(pipelined_bodies_are_whole),
        cmocka_unit_test(signals_and_descriptors_stay_ours),
    };
    cmocka_set_test_filter(getenv("EDGE_TEST")); /* one test by name; NULL = all */
    return cmocka_run_group_tests(tests, make_certificate, remove_certificate);
}
