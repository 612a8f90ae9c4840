/* bench_ws HOST PORT KEY SANDBOX CONTEXT ROUNDS STALL_S FIELDS CHECK CODE: the rounds of
 * bench_direct over sandal.v1: run_code until its `result` frame. FIELDS is JSON text put into the
 * request (`"limits":{…},` or empty). With STALL_S > 0 the client stops reading for so long after
 * the third event. Checks that seq has no gap; CHECK says what the outputs must hold besides:
 * lines:N (the numbers from 0 to N-1, in order, one a line or one a display), bytes:N (so many
 * bytes of stdout without an escape) or none. `output_s` is the time until the last output of the
 * last round, `total_s` includes `result`, which repeats what was printed. A plain socket: no
 * library's cost is measured. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/json_scan.h"
#include "tests/bench/bench.h"

typedef struct client {
    int fd;
    kg_buf_t in;
    size_t at; /* consumed bytes of in */
    uint64_t messages;
    uint64_t bytes;
    uint64_t output_ns; /* when the last output came */
    char check;         /* 'l', 'b' or 0 */
    uint64_t want;      /* of lines or bytes */
    uint64_t got;
    uint64_t number; /* the digits of a line so far */
    bool digits;
} client_t;

static void send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0) {
            bench_fail("write");
        }
        data += n;
        len -= (size_t)n;
    }
}

static void fill(client_t *c, size_t need)
{
    if (c->at > 0 && (c->at == c->in.len || c->at > (1U << 20))) {
        kg_buf_consume(&c->in, c->at);
        c->at = 0;
    }
    while (c->in.len - c->at < need) {
        if (kg_buf_reserve(&c->in, 1U << 18) < 0) {
            bench_fail("memory");
        }
        ssize_t n = read(c->fd, c->in.data + c->in.len, c->in.cap - c->in.len - 1);
        if (n <= 0) {
            bench_fail("the gateway closed the connection");
        }
        c->in.len += (size_t)n;
    }
}

static void open_ws(client_t *c, const char *host, const char *port, const char *key)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    inet_pton(AF_INET, host, &to.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        bench_fail("connect");
    }
    KG_AUTO_BUF kg_buf_t head = {0};
    kg_buf_printf(
        &head,
        "GET /v1/ws HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: Bearer %s\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: sandal.v1\r\n\r\n",
        host, port, key);
    send_all(c->fd, head.data, head.len);
    for (;;) {
        fill(c, 4);
        char *end = memmem(c->in.data, c->in.len, "\r\n\r\n", 4);
        if (end) {
            if (strncmp(c->in.data, "HTTP/1.1 101", 12) != 0) {
                fprintf(stderr, "%.*s\n", (int)c->in.len, c->in.data);
                bench_fail("no upgrade");
            }
            c->at = (size_t)(end + 4 - c->in.data);
            return;
        }
        fill(c, c->in.len + 1);
    }
}

/* A masked text frame; the mask is zero, which the protocol allows. */
static void send_text(client_t *c, const char *text, size_t len)
{
    unsigned char head[14] = {0x81};
    size_t n = 2;
    if (len < 126) {
        head[1] = (unsigned char)(0x80 | len);
    } else if (len < 65536) {
        head[1] = 0x80 | 126;
        head[2] = (unsigned char)(len >> 8);
        head[3] = (unsigned char)len;
        n = 4;
    } else {
        head[1] = 0x80 | 127;
        for (int i = 0; i < 8; i++) {
            head[2 + i] = (unsigned char)(len >> (56 - 8 * i));
        }
        n = 10;
    }
    n += 4;
    KG_AUTO_BUF kg_buf_t frame = {0};
    kg_buf_append(&frame, head, n);
    kg_buf_append(&frame, text, len);
    send_all(c->fd, frame.data, frame.len);
}

/* One whole message; fragments are joined into out. Pings are left unanswered: no bench lasts that
 * long in silence. */
static void receive(client_t *c, kg_buf_t *out)
{
    kg_buf_clear(out);
    for (;;) {
        fill(c, 2);
        const unsigned char *p = (const unsigned char *)c->in.data + c->at;
        bool fin = p[0] & 0x80;
        unsigned op = p[0] & 0x0f;
        uint64_t len = p[1] & 0x7f;
        size_t head = len == 126 ? 4 : len == 127 ? 10 : 2;
        fill(c, head);
        p = (const unsigned char *)c->in.data + c->at;
        if (head > 2) {
            len = 0;
            for (size_t i = 2; i < head; i++) {
                len = len << 8 | p[i];
            }
        }
        c->at += head;
        fill(c, len);
        if (op == 8) {
            bench_fail("closed by the gateway");
        }
        if (op < 8) {
            kg_buf_append(out, c->in.data + c->at, len);
        }
        c->at += len;
        c->bytes += len;
        if (op < 8 && fin) {
            return;
        }
    }
}

static long long number_after(const kg_buf_t *text, const char *key)
{
    const char *at = memmem(text->data, text->len < 400 ? text->len : 400, key, strlen(key));
    return at ? atoll(at + strlen(key)) : -1;
}

static void line_end(client_t *c)
{
    if (!c->digits || c->number != c->got) {
        fprintf(stderr, "wanted %llu, got %llu\n", (unsigned long long)c->got,
                (unsigned long long)c->number);
        bench_fail("lines: one is missing or twice there");
    }
    c->got++;
    c->number = 0;
    c->digits = false;
}

/* Takes the text of one output event into the account. The texts of the benches hold no escape but
 * a line's end. */
static void account(client_t *c, const kg_buf_t *frame, bool display)
{
    static const char key[] = "\"text\":\"";
    const char *at = memmem(frame->data, frame->len, key, sizeof(key) - 1);
    const char *end = frame->data + frame->len;
    at = at ? at + sizeof(key) - 1 : end;
    const char *quote = memchr(at, '"', (size_t)(end - at));
    if (!quote) {
        bench_fail("an output without text");
    }
    if (c->check == 'b') {
        c->got += (uint64_t)(quote - at);
        return;
    }
    for (; at < quote; at++) {
        if (*at == '\\') {
            at++;
            line_end(c);
        } else {
            c->number = c->number * 10 + (uint64_t)(*at - '0');
            c->digits = true;
        }
    }
    if (display) {
        line_end(c);
    }
}

static bool has_type(const kg_buf_t *frame, const char *type)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "\"type\":\"%s\"", type);
    return memmem(frame->data, frame->len < 300 ? frame->len : 300, text, (size_t)n) != NULL;
}

/* Whether the run goes on. */
static bool take_event(client_t *c, const kg_buf_t *frame)
{
    if (has_type(frame, "failure")) {
        fprintf(stderr, "%.*s\n", (int)frame->len, frame->data);
        bench_fail("refused");
    }
    bool display = has_type(frame, "display");
    if (display || has_type(frame, "stdout")) {
        c->output_ns = bench_now_ns();
        if (c->check) {
            account(c, frame, display);
        }
    }
    return !has_type(frame, "result");
}

static void run(client_t *c, const kg_buf_t *request, unsigned stall_s)
{
    KG_AUTO_BUF kg_buf_t frame = {0};
    long long want = 0;
    bool more = true;
    c->got = 0;
    send_text(c, request->data, request->len);
    while (more) {
        receive(c, &frame);
        c->messages++;
        more = take_event(c, &frame);
        if (number_after(&frame, "\"seq\":") != want++) {
            bench_fail("a gap in seq");
        }
        if (stall_s > 0 && want == 3) {
            sleep(stall_s); /* the stall itself is what is measured */
        }
    }
    if (c->check && c->got != c->want) {
        fprintf(stderr, "wanted %llu, got %llu\n", (unsigned long long)c->want,
                (unsigned long long)c->got);
        bench_fail("output was lost");
    }
}

static void read_check(client_t *c, const char *check)
{
    const char *colon = strchr(check, ':');
    if (colon) {
        c->check = check[0];
        c->want = strtoull(colon + 1, NULL, 10);
    }
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fprintf(stderr,
                "usage: bench_ws HOST PORT KEY SANDBOX CONTEXT ROUNDS STALL_S FIELDS CHECK CODE\n");
        return 2;
    }
    client_t c = {0};
    size_t rounds = strtoul(argv[6], NULL, 10);
    unsigned stall = (unsigned)strtoul(argv[7], NULL, 10);
    uint64_t *ns = calloc(rounds + 1, sizeof(*ns));
    KG_AUTO_BUF kg_buf_t request = {0};
    read_check(&c, argv[9]);
    open_ws(&c, argv[1], argv[2], argv[3]);
    kg_buf_printf(
        &request,
        "{\"id\":\"b\",\"op\":\"run_code\",\"sandbox\":\"%s\",\"context\":\"%s\",%s\"code\":",
        argv[4], argv[5], argv[8]);
    kg_json_quote_cstr(&request, argv[10]);
    kg_buf_append_cstr(&request, "}");
    if (rounds > 1) {
        for (size_t i = 0; i < 10; i++) {
            run(&c, &request, 0);
        }
    }
    c.messages = c.bytes = 0;
    uint64_t begin = bench_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        bench_pause();
        uint64_t start = bench_now_ns();
        run(&c, &request, stall);
        ns[i] = bench_now_ns() - start;
    }
    uint64_t end = bench_now_ns();
    bench_report(ns, rounds, end - begin, (c.output_ns ? c.output_ns : end) - begin, c.messages,
                 c.bytes);
    kg_buf_fini(&c.in);
    close(c.fd);
    free(ns);
    return 0;
}
