/* WebSocket: handshake, messages in every cut, caps, close codes, liveness, sources and queues. */
#include "edge_fixture.h"
#include "gateway/edge/edge_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

static void expect_frame(client_t *c, unsigned op_fin, const char *text)
{
    frame_t frame = ws_read(c);
    assert_int_equal(frame.op_fin, op_fin);
    assert_int_equal(frame.len, strlen(text));
    assert_memory_equal(frame.data, text, frame.len);
    free(frame.data);
}

static void expect_close(client_t *c, unsigned code, const char *reason)
{
    frame_t frame = ws_read(c);
    assert_int_equal(frame.op_fin, 0x88);
    assert_int_equal(frame.code, code);
    if (reason) {
        assert_string_equal(frame.data + 2, reason);
    }
    free(frame.data);
}

static void
expect_refusal(edge_fixture_t *f, const char *request, int status, const char *in_answer)
{
    client_t c = client_connect(f->ports[0]);
    client_send(&c, request);
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, status);
    assert_non_null(strstr(r.head, "Content-Type: application/json"));
    assert_true(strstr(r.body, in_answer) || strstr(r.head, in_answer));
    response_free(&r);
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
}

static void subprotocol_is_the_handlers_choice(void **state)
{
    edge_fixture_t *f = *state;
    static const struct {
        const char *offer;
        const char *line; /* NULL: none named */
    } cases[] = {
        {"Sec-WebSocket-Protocol: sandal.v1\r\n", "\r\nSec-WebSocket-Protocol: sandal.v1\r\n"},
        {"Sec-WebSocket-Protocol: bearer.abc, sandal.v1\r\n",
         "\r\nSec-WebSocket-Protocol: sandal.v1\r\n"},
        {"Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: sandal.v1\r\n",
         "\r\nSec-WebSocket-Protocol: sandal.v1\r\n"},
        {"Sec-WebSocket-Protocol: mqtt\r\n", NULL},
        {"Sec-WebSocket-Protocol: x\r\n", NULL},
        {"", NULL},
        {"Sec-WebSocket-Extensions: permessage-deflate\r\n", NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        client_t c = client_connect(f->ports[0]);
        ws_handshake(&c, "/ws", cases[i].offer);
        response_t r = client_read(&c, true);
        assert_int_equal(r.status, 101);
        if (cases[i].line) {
            assert_non_null(strstr(r.head, cases[i].line));
        } else {
            assert_null(strstr(r.head, "Sec-WebSocket-Protocol"));
        }
        assert_null(strstr(r.head, "Extensions"));
        ws_send_text(&c, "hi");
        expect_frame(&c, 0x81, "hi");
        client_close(&c);
    }
}

#define HANDSHAKE                                                                                  \
    "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static void bad_handshakes_are_told_why(void **state)
{
    edge_fixture_t *f = *state;
    expect_refusal(f, "GET /ws-no HTTP/1.1\r\n" HANDSHAKE KEY "\r\n", 403, "forbidden");
    expect_refusal(f, "GET /ws HTTP/1.1\r\n" HANDSHAKE "\r\n", 400, "Sec-WebSocket-Key");
    expect_refusal(f, "GET /ws HTTP/1.1\r\n" HANDSHAKE "Sec-WebSocket-Key: short\r\n\r\n", 400,
                   "Sec-WebSocket-Key");
    expect_refusal(f, "POST /ws HTTP/1.1\r\n" HANDSHAKE KEY "\r\n", 400, "GET");
    expect_refusal(f,
                   "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: "
                   "Upgrade\r\nSec-WebSocket-Version: 13\r\n" KEY "\r\n",
                   400, "Host");
    expect_refusal(f, "GET /ws HTTP/1.1\r\nHost: y\r\n" HANDSHAKE KEY "\r\n", 400, "several Hosts");
    expect_refusal(
        f,
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" KEY
        "\r\n",
        400, "Connection");
    expect_refusal(f,
                   "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Version: 8\r\n" KEY "\r\n",
                   426, "Sec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nConnection: Upgrade");
    char text[512];
    snprintf(text, sizeof(text),
             "GET /ws HTTP/1.1\r\n" HANDSHAKE KEY "Sec-WebSocket-Protocol: %0130d\r\n\r\n", 1);
    expect_refusal(f, text, 400, "126 bytes");
    assert_int_equal(f->ws_open, 0);
    assert_int_equal(f->upgrade_failed, 0);
}

static void upgrade_after_a_request_on_the_same_connection(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = client_connect(f->ports[0]);
    client_send(&c, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    response_t r = client_read(&c, false);
    assert_int_equal(r.status, 200);
    response_free(&r);
    ws_handshake(&c, "/ws", "");
    r = client_read(&c, true);
    assert_int_equal(r.status, 101);
    ws_send_text(&c, "late");
    expect_frame(&c, 0x81, "late");
    client_close(&c);
}

static void sizes_around_the_header_forms_are_echoed(void **state)
{
    edge_fixture_t *f = *state;
    static const size_t sizes[] = {0,     1,     125,   126,   127,   8191,  8192,  8193,
                                   32767, 32768, 32769, 65535, 65536, 65537, 200000};
    client_t c = ws_connect(f->ports[0], "/ws", "sandal.v1");
    char *data = malloc(200000);
    memset(data, 'd', 200000);
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        for (unsigned op = 1; op <= 2; op++) {
            ws_send(&c, 0x80 | op, data, sizes[i]);
            size_t got = 0;
            unsigned want = op;
            for (bool fin = false; !fin;) { /* long messages come in fragments */
                frame_t frame = ws_read(&c);
                assert_int_equal(frame.op_fin & 0x7f, want);
                assert_memory_equal(frame.data, data, frame.len);
                want = 0;
                got += frame.len;
                fin = frame.op_fin & 0x80;
                free(frame.data);
            }
            assert_int_equal(got, sizes[i]);
        }
    }
    free(data);
    client_close(&c);
}

/* Every way to cut a message into three fragments, a ping between two of them, all sent in every
 * small size of write. */
static void fragments_at_every_boundary_are_joined(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    const char *text = "h\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80!"; /* cuts fall inside code points */
    size_t len = strlen(text);
    for (size_t a = 0; a <= len; a++) {
        for (size_t b = a; b <= len; b++) {
            ws_send(&c, 0x01, text, a);
            ws_send(&c, 0x89, "p", 1);
            ws_send(&c, 0x00, text + a, b - a);
            ws_send(&c, 0x80, text + b, len - b);
            bool pong = false;
            bool echo = false;
            while (!pong || !echo) {
                frame_t frame = ws_read(&c);
                if (frame.op_fin == 0x8a) {
                    pong = true;
                } else {
                    assert_int_equal(frame.op_fin, 0x81);
                    assert_int_equal(frame.len, len);
                    assert_memory_equal(frame.data, text, len);
                    echo = true;
                }
                free(frame.data);
            }
        }
    }
    client_close(&c);
}

static void byte_by_byte_is_whole(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    unsigned char frame[] = {0x81, 0x85, 1, 2, 3, 4, 'h' ^ 1, 'e' ^ 2, 'l' ^ 3, 'l' ^ 4, 'o' ^ 1};
    for (size_t i = 0; i < sizeof(frame); i++) {
        client_send_bytes(&c, frame + i, 1);
        usleep(500);
    }
    expect_frame(&c, 0x81, "hello");
    client_close(&c);
}

static void faults_close_with_their_codes(void **state)
{
    edge_fixture_t *f = *state;
    static const struct {
        unsigned op_fin;
        const char *data;
        size_t len;
        unsigned code;
    } cases[] = {
        {0x81, "\xff", 1, 1007},         /* not UTF-8 */
        {0x81, "\xed\xa0\x80", 3, 1007}, /* a surrogate */
        {0x81, "\xc3", 1, 1007},         /* cut off */
        {0x83, "x", 1, 1002},            /* reserved opcode */
        {0xc1, "x", 1, 1002},            /* reserved bit */
        {0x80, "x", 1, 1002},            /* continuation of nothing */
        {0x09, "x", 1, 1002},            /* fragmented ping */
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        client_t c = ws_connect(f->ports[0], "/ws", NULL);
        ws_send(&c, cases[i].op_fin, cases[i].data, cases[i].len);
        expect_close(&c, cases[i].code, NULL);
        client_close(&c);
    }
    client_t half = ws_connect(f->ports[0], "/ws", NULL); /* a character that never ends */
    ws_send(&half, 0x01, "h\xc3", 2);
    ws_send(&half, 0x80, "", 0);
    expect_close(&half, 1007, "text is not UTF-8");
    client_close(&half);
    client_t c = ws_connect(f->ports[0], "/ws", NULL); /* binary may be anything */
    ws_send(&c, 0x82, "\xff", 1);
    expect_frame(&c, 0x82, "\xff");
    ws_send(&c, 0x81, "bytes", 5); /* from here on text too, and comes as binary */
    ws_send(&c, 0x81, "\xfe", 1);
    expect_frame(&c, 0x82, "\xfe");
    ws_send(&c, 0x81, "text", 4);
    expect_frame(&c, 0x81, "text");
    client_close(&c);
}

/* RFC 6455, 5.1; after frames of each form of length, whole and byte by byte. */
static void frames_that_are_not_masked_end_it(void **state)
{
    edge_fixture_t *f = *state;
    static const struct {
        const char *bytes;
        size_t len;
    } bare[] = {
        {"\x81\x01x", 3},        {"\x81\x00", 2},  {"\x89\x00", 2},
        {"\x82\x7e\x00\x80", 4}, {"\x01\x01x", 3},
    };
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536};
    for (size_t i = 0; i < KG_ARRAY_LEN(bare); i++) {
        client_t c = ws_connect(f->ports[0], "/ws", NULL);
        ws_send_text(&c, "masked");
        expect_frame(&c, 0x81, "masked");
        client_send_bytes(&c, bare[i].bytes, bare[i].len);
        if (bare[i].bytes[0] == (char)0x89) {
            expect_frame(&c, 0x8a, ""); /* lws has answered it by then */
        }
        expect_close(&c, 1002, "a client's frames are masked");
        client_close(&c);
    }
    kg_frames_t frames = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        size_t size = sizes[i];
        size_t head = size < 126 ? 2 : size < 65536 ? 4 : 10;
        char *bytes = calloc(1, head + 4 + size);
        bytes[0] = (char)0x81;
        bytes[1] = (char)(0x80 | (size < 126 ? size : size < 65536 ? 126 : 127));
        for (size_t at = head; at-- > 2; size >>= 8) {
            bytes[at] = (char)(unsigned char)size;
        }
        size_t len = head + 4 + sizes[i];
        assert_true(kg_frames_masked(&frames, bytes, len));
        for (size_t at = 0; at < len; at++) {
            assert_true(kg_frames_masked(&frames, bytes + at, 1));
        }
        kg_frames_t copy = frames;
        assert_false(kg_frames_masked(&copy, "\x81\x01x", 3));
        free(bytes);
    }
}

static void too_large_is_1009_at_the_sum(void **state)
{
    edge_fixture_t *f = *state;
    size_t max = f->opts.ws_message_max;
    char *data = calloc(1, max + 1);
    memset(data, 'm', max + 1);
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send(&c, 0x02, data, max / 2);
    ws_send(&c, 0x80, data, max - max / 2); /* exactly the cap */
    size_t got = 0;
    for (bool fin = false; !fin;) {
        frame_t frame = ws_read(&c);
        assert_non_null(frame.data);
        got += frame.len;
        fin = frame.op_fin & 0x80;
        free(frame.data);
    }
    assert_int_equal(got, max);
    ws_send(&c, 0x02, data, max / 2);
    ws_send(&c, 0x80, data, max - max / 2 + 1);
    expect_close(&c, 1009, "message too large");
    client_close(&c);
    c = ws_connect(f->ports[0], "/ws", NULL);
    unsigned char huge[] = {0x82, 0xff, 0, 0, 1, 0, 0,  0,
                            0,    0,    1, 2, 3, 4, 'x'}; /* only announced */
    client_send_bytes(&c, huge, sizeof(huge));
    expect_close(&c, 1009, NULL);
    client_close(&c);
    free(data);
}

static void handler_closes_after_what_was_queued(void **state)
{
    edge_fixture_t *f = *state;
    static const char *const orders[] = {"close 1000", "close 1008", "close 1011", "close 1013",
                                         "close 4001"};
    for (size_t i = 0; i < KG_ARRAY_LEN(orders); i++) {
        client_t c = ws_connect(f->ports[0], "/ws", NULL);
        ws_send_text(&c, orders[i]);
        expect_frame(&c, 0x81, "before");
        expect_close(&c, (unsigned)atoi(orders[i] + 6), "because");
        ws_send(&c, 0x88, "\x03\xe8", 2);
        assert_true(client_closed_within(&c, PATIENCE_MS));
        client_close(&c);
    }
}

static void client_close_is_answered(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send(&c, 0x88,
            "\x03\xe8"
            "bye",
            5);
    expect_close(&c, 1000, NULL);
    assert_true(client_closed_within(&c, PATIENCE_MS));
    client_close(&c);
    for (int i = 0; i < PATIENCE_MS && f->ws_closed == 0; i++) {
        usleep(1000);
    }
    assert_int_equal(f->ws_closed, 1);
}

static void queue_over_its_cap_says_so_and_loses_nothing(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "queue");
    int frames = 0;
    for (;;) {
        frame_t frame = ws_read(&c);
        if (frame.op_fin == 0x88) {
            assert_int_equal(frame.code, 1013);
            free(frame.data);
            break;
        }
        assert_int_equal(frame.len, 1000);
        frames++;
        free(frame.data);
    }
    assert_true(frames > 200 && frames < 263); /* 256 KiB of them */
    client_close(&c);
}

static void the_largest_queued_message_is_not_counted(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "pile");
    size_t bytes = 0;
    for (bool end = false; !end;) {
        frame_t frame = ws_read(&c);
        end = frame.op_fin == 0x88;
        if (end) {
            assert_int_equal(frame.code, 1000);
        } else {
            bytes += frame.len;
        }
        free(frame.data);
    }
    assert_int_equal(bytes, 2 + (2u << 20) + (200u << 10));
    client_close(&c);
}

/* The large message is under way when all is taken: its end never comes. */
static void expect_taken(const edge_fixture_t *f, const char *order, const char *taken)
{
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, order);
    expect_frame(&c, 0x81, "first");
    frame_t frame = ws_read(&c);
    assert_int_equal(frame.op_fin, 0x02);
    free(frame.data);
    ws_send_text(&c, "take");
    size_t bytes = frame.len;
    for (frame = ws_read(&c); frame.op_fin != 0x88; frame = ws_read(&c)) {
        assert_int_equal(frame.op_fin, 0x00);
        bytes += frame.len;
        free(frame.data);
    }
    assert_true(bytes < 32u << 20);
    assert_int_equal(frame.code, 1013);
    assert_string_equal(frame.data + 2, taken);
    free(frame.data);
    client_close(&c);
}

/* Also the one that has gone in part; what has gone is not in it again. */
static void unsent_messages_are_taken_whole(void **state)
{
    expect_taken(*state, "stack", "binary 33554432 l text 4 t ");
}

static void expect_let_go(const edge_fixture_t *f)
{
    for (int i = 0; i < 5000 && f->kept > 0; i++) {
        usleep(1000); /* the loop's thread is at it */
    }
    assert_int_equal(f->kept, 0);
}

static void held_messages_are_taken_in_their_place(void **state)
{
    static const char behind[] = "text 16386 > binary 16385 l text 7 n binary 100000 l "
                                 "text 16386 > text 4 t ";
    char taken[200];
    snprintf(taken, sizeof(taken), "binary 33554433 - %s", behind);
    expect_taken(*state, "shelve held", taken);
    expect_let_go(*state);
    snprintf(taken, sizeof(taken), "binary 33554432 l %s", behind);
    expect_taken(*state, "shelve copied", taken);
    expect_let_go(*state);
}

/* A whole message; pongs that come in between are counted. */
static char *read_message(client_t *c, unsigned op, size_t *ret_len, unsigned *pongs)
{
    KG_AUTO_BUF kg_buf_t all = {0};
    for (bool fin = false, first = true; !fin;) {
        frame_t frame = ws_read(c);
        assert_non_null(frame.data);
        if (frame.op_fin == 0x8a) {
            (*pongs)++;
        } else {
            assert_int_equal(frame.op_fin & 0x0f, first ? op : 0);
            assert_int_equal(kg_buf_append(&all, frame.data, frame.len), 0);
            fin = frame.op_fin & 0x80;
            first = false;
        }
        free(frame.data);
    }
    return kg_buf_steal(&all, ret_len);
}

static void expect_held(client_t *c, size_t len, unsigned *pongs)
{
    static const unsigned ops[] = {2, 1};
    expect_frame(c, 0x81, "s");
    for (size_t i = 0; i < KG_ARRAY_LEN(ops); i++) {
        size_t got = 0;
        char *text = read_message(c, ops[i], &got, pongs);
        assert_int_equal(got, len + 3);
        assert_memory_equal(text, "<<", 2);
        assert_int_equal(strspn(text + 2, "h"), len);
        assert_string_equal(text + 2 + len, ">");
        free(text);
    }
    expect_frame(c, 0x81, "e");
}

static void held_messages_keep_their_place_and_are_let_go(void **state)
{
    edge_fixture_t *f = *state;
    static const size_t sizes[] = {
        KG_EDGE_HELD_MIN - 1, KG_EDGE_HELD_MIN, 65526 - 3, 65526 - 2, 200000, 20000000};
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        char order[32];
        unsigned pongs = 0;
        snprintf(order, sizeof(order), "held %zu", sizes[i]);
        ws_send_text(&c, order);
        expect_held(&c, sizes[i], &pongs);
        assert_int_equal(pongs, 0);
        expect_let_go(f);
    }
    client_close(&c);
}

/* While the socket is full of such a message its client sends pings: the answers must not come
 * inside a frame. */
static void pongs_go_between_the_frames_of_a_held_message(void **state)
{
    edge_fixture_t *f = *state;
    unsigned pongs = 0;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "held 20000000");
    for (int i = 0; i < 1000 && f->kept < 2; i++) {
        usleep(1000); /* until the message is queued */
    }
    ws_send(&c, 0x89, "ping", 4);
    expect_held(&c, 20000000, &pongs);
    if (pongs == 0) { /* it all went into the socket before */
        frame_t frame = ws_read(&c);
        pongs += frame.op_fin == 0x8a;
        free(frame.data);
    }
    assert_int_equal(pongs, 1);
    expect_let_go(f);
    client_close(&c);
}

static void a_client_that_leaves_lets_go_of_held_messages(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "held 20000000");
    expect_frame(&c, 0x81, "s");
    assert_true(f->kept > 0);
    client_close(&c);
    expect_let_go(f);
}

static void read_flood(client_t *c, size_t frames, size_t size)
{
    for (size_t i = 0; i < frames; i++) {
        size_t got = 0;
        for (bool fin = false; !fin;) {
            frame_t frame = ws_read(c);
            assert_non_null(frame.data);
            if (frame.op_fin == 0x89) {
                ws_send(c, 0x8a, frame.data, frame.len);
                free(frame.data);
                continue;
            }
            if (got == 0) {
                assert_int_equal(strtoul(frame.data, NULL, 10), i);
            }
            got += frame.len;
            fin = frame.op_fin & 0x80;
            free(frame.data);
        }
        assert_int_equal(got, size);
    }
}

static void source_gives_all_frames_in_order(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "flood 20000 100");
    uint64_t begin = kg_now_ns();
    read_flood(&c, 20000, 100);
    print_message("%.0f frames/s\n", 20000 / ((double)(kg_now_ns() - begin) / 1e9));
    ws_send_text(&c, "flood 20 1000000");
    read_flood(&c, 20, 1000000);
    ws_send_text(&c, "still here");
    expect_frame(&c, 0x81, "still here");
    client_close(&c);
}

static void queued_frames_wait_for_a_message_under_way(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "flood 40 500000");
    for (int i = 0; i < 20; i++) {
        ws_send_text(&c, "mixed in");
        ws_send(&c, 0x89, "pi", 2);
        usleep(1000);
    }
    size_t data = 0;
    int echoes = 0;
    bool inside = false;
    while (data < 40u * 500000 || echoes < 20) {
        frame_t frame = ws_read(&c);
        assert_non_null(frame.data);
        if (frame.op_fin & 8) {
            free(frame.data);
            continue;
        }
        assert_int_equal((frame.op_fin & 15) == 0, inside); /* no new message inside another */
        inside = !(frame.op_fin & 0x80);
        if (frame.len == 8 && memcmp(frame.data, "mixed in", 8) == 0) {
            echoes++;
        } else {
            data += frame.len;
        }
        free(frame.data);
    }
    client_close(&c);
}

static void silent_client_is_pinged_and_lives_by_its_pong(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.ping_ms = 150;
    f->opts.pong_ms = 2000;
    edge_start(f);
    client_t good = ws_connect(f->ports[0], "/ws", NULL);
    client_t dead = ws_connect(f->ports[0], "/ws", NULL);
    for (int i = 0; i < 5 || f->ws_closed == 0; i++) {
        assert_true(i < PATIENCE_MS / 150);
        frame_t frame = ws_read(&good);
        assert_int_equal(frame.op_fin, 0x89);
        ws_send(&good, 0x8a, frame.data, frame.len);
        free(frame.data);
    }
    assert_int_equal(f->ws_closed, 1);
    assert_true(client_closed_within(&dead, PATIENCE_MS));
    ws_send_text(&good, "alive");
    expect_frame(&good, 0x81, "alive");
    client_close(&good);
    client_close(&dead);
    edge_finish(f);
}

/* A client that takes nothing for longer than ping and pong allow is not dead, only slow. */
static void stalled_client_is_not_cut_by_pings(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.ping_ms = 100;
    f->opts.pong_ms = 1000;
    edge_start(f);
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "flood 200 100000");
    usleep(2500000);
    assert_int_equal(f->ws_closed, 0);
    assert_true(atomic_load(&f->pulled) < 20u * 1000 * 1000);
    read_flood(&c, 200, 100000);
    client_close(&c);
    edge_finish(f);
}

static void client_that_stalls_for_good_is_cut(void **state)
{
    (void)state;
    edge_fixture_t *f = edge_prepare();
    f->opts.stall_timeout_ms = 400;
    edge_start(f);
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "flood 1000 100000");
    for (int i = 0; i < PATIENCE_MS && f->ws_closed == 0; i++) {
        usleep(1000);
    }
    assert_int_equal(f->ws_closed, 1);
    client_close(&c);
    edge_finish(f);
}

static void paused_socket_reads_nothing_more(void **state)
{
    edge_fixture_t *f = *state;
    client_t c = ws_connect(f->ports[0], "/ws", NULL);
    ws_send_text(&c, "pause");
    ws_send_text(&c, "unheard");
    frame_t frame = ws_read_within(&c, 200);
    assert_int_equal(frame.op_fin, 0);
    double before = cpu_seconds();
    usleep(300000);
    assert_true(cpu_seconds() - before < 0.15); /* and does not spin */
    client_close(&c);
}

static void two_thousand_idle_sockets(void **state)
{
    edge_fixture_t *f = *state;
    enum {
        COUNT = 2000
    };
    struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) {
        skip();
    }
    (void)f;
    edge_fixture_t *g = edge_prepare(); /* lws sizes its tables from the limit at start */
    edge_start(g);
    client_t *all = calloc(COUNT, sizeof(*all));
    size_t before = own_rss_kib();
    for (int i = 0; i < COUNT; i++) {
        all[i] = ws_connect(g->ports[0], "/ws", NULL);
        free(all[i].buf);
        all[i].buf = NULL;
        all[i].len = all[i].cap = 0;
    }
    for (int i = 0; i < PATIENCE_MS && g->ws_open < COUNT; i++) {
        usleep(1000);
    }
    assert_int_equal(g->ws_open, COUNT);
    size_t with = own_rss_kib();
    print_message("%d idle WebSockets: %zu KiB more (%zu KiB before), both ends in one process\n",
                  COUNT, with - before, before);
    uint64_t begin = kg_now_ns();
    for (int i = 0; i < 1000; i++) {
        ws_send_text(&all[i], "x");
        expect_frame(&all[i], 0x81, "x");
    }
    print_message("round trip %.1f us\n", (double)(kg_now_ns() - begin) / 1e6);
    for (int i = 0; i < COUNT; i++) {
        client_close(&all[i]);
    }
    free(all);
    edge_finish(g);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(subprotocol_is_the_handlers_choice),
        T(frames_that_are_not_masked_end_it),
        T(bad_handshakes_are_told_why),
        T(upgrade_after_a_request_on_the_same_connection),
        T(sizes_around_the_header_forms_are_echoed),
        T(fragments_at_every_boundary_are_joined),
        T(byte_by_byte_is_whole),
        T(faults_close_with_their_codes),
        T(too_large_is_1009_at_the_sum),
        T(handler_closes_after_what_was_queued),
        T(client_close_is_answered),
        T(queue_over_its_cap_says_so_and_loses_nothing),
        T(the_largest_queued_message_is_not_counted),
        T(unsent_messages_are_taken_whole),
        T(held_messages_are_taken_in_their_place),
        T(held_messages_keep_their_place_and_are_let_go),
        T(pongs_go_between_the_frames_of_a_held_message),
        T(a_client_that_leaves_lets_go_of_held_messages),
        T(source_gives_all_frames_in_order),
        T(queued_frames_wait_for_a_message_under_way),
        cmocka_unit_test(silent_client_is_pinged_and_lives_by_its_pong),
        cmocka_unit_test(stalled_client_is_not_cut_by_pings),
        cmocka_unit_test(client_that_stalls_for_good_is_cut),
        T(paused_socket_reads_nothing_more),
        T(two_thousand_idle_sockets),
    };
    cmocka_set_test_filter(getenv("EDGE_TEST")); /* one test by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
