/* bench_ws HOST PORT KEY SANDBOX CONTEXT ROUNDS STALL_S FIELDS CHECK CODE: the rounds of
 * bench_direct over sandal.v1: run_code until its `result` frame. FIELDS is JSON text put into the
 * request (`"limits":{…},` or empty). With STALL_S > 0 the client stops reading for so long after
 * the third event. Checks that seq has no gap; CHECK says what the outputs must hold besides:
 * lines:N (the numbers from 0 to N-1, in order, one a line or one a display), bytes:N (so many
 * bytes of stdout without an escape) or none. `output_s` is the time until the last output of the
 * last round, `total_s` includes `result`, which repeats what was printed. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/json_scan.h"
#include "tests/bench/bench.h"
#include "tests/bench/ws_client.h"

typedef struct client {
    ws_client_t ws;
    uint64_t messages;
    uint64_t output_ns; /* when the last output came */
    char check;         /* 'l', 'b' or 0 */
    uint64_t want;      /* of lines or bytes */
    uint64_t bytes;
    bench_lines_t lines;
} client_t;

static long long number_after(const kg_buf_t *text, const char *key)
{
    const char *at = memmem(text->data, text->len < 400 ? text->len : 400, key, strlen(key));
    return at ? atoll(at + strlen(key)) : -1;
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
    kg_slice_t text = kg_slice(at, (size_t)(quote - at));
    if (c->check == 'b') {
        c->bytes += text.len;
    } else {
        bench_lines_take(&c->lines, text, display);
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
    c->bytes = 0;
    c->lines = (bench_lines_t){0};
    ws_client_send(&c->ws, WS_TEXT, kg_buf_slice(request));
    while (more) {
        ws_client_receive(&c->ws, &frame);
        c->messages++;
        more = take_event(c, &frame);
        if (number_after(&frame, "\"seq\":") != want++) {
            bench_fail("a gap in seq");
        }
        if (stall_s > 0 && want == 3) {
            sleep(stall_s); /* the stall itself is what is measured */
        }
    }
    uint64_t got = c->check == 'b' ? c->bytes : c->lines.got;
    if (c->check && got != c->want) {
        fprintf(stderr, "wanted %llu, got %llu\n", (unsigned long long)c->want,
                (unsigned long long)got);
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
    KG_AUTO_BUF kg_buf_t key = {0};
    read_check(&c, argv[9]);
    kg_buf_printf(&key, "Bearer %s", argv[3]);
    ws_client_open(&c.ws, argv[1], argv[2], "/v1/ws", key.data, "sandal.v1");
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
    c.messages = c.ws.bytes = 0;
    uint64_t begin = bench_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        bench_pause();
        uint64_t start = bench_now_ns();
        run(&c, &request, stall);
        ns[i] = bench_now_ns() - start;
    }
    uint64_t end = bench_now_ns();
    bench_report(ns, rounds, end - begin, (c.output_ns ? c.output_ns : end) - begin, c.messages,
                 c.ws.bytes);
    ws_client_close(&c.ws);
    free(ns);
    return 0;
}
