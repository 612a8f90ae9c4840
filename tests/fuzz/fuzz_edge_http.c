/* HTTP against the real edge. Holds: no HTML, every answer begins with a status line, exchanges are
 * closed once each. */
#include "tests/fuzz/edge/fuzz_edge.h"

static fuzz_edge_t fuzz;
static int open_exchanges;

static kg_pull_t pull(void *user, kg_buf_t *out, size_t max)
{
    (void)user;
    (void)max;
    kg_buf_append_cstr(out, "some text");
    return KG_PULL_END;
}

/* A body in pieces, answered with a length that is kept. */
static void on_ready(void *user)
{
    kg_http_t *http = user;
    KG_AUTO_BUF kg_buf_t piece = {0};
    bool end = false;
    kg_http_body_take(http, &piece, &end);
    if (end) {
        kg_http_announce(http, 9);
        kg_http_stream(http, 200, NULL, 0, "text/plain", pull, NULL);
    }
}

static void
on_request(kg_http_t *http, const kg_http_head_t *head, size_t *ret_body_max, void *user)
{
    (void)user;
    open_exchanges++;
    fuzz_must(head->path.len > 0 && head->path.data[0] == '/');
    fuzz_must(!memchr(head->path.data, ' ', head->path.len));
    (void)kg_http_head_get(head, "authorization");
    (void)kg_http_head_get(head, "x-api-key");
    size_t kind = head->path.len % 4;
    kg_http_set_user(http, (void *)(uintptr_t)kind);
    if (kind == 1) {
        kg_http_reply(http, 404, NULL, 0, NULL, head->path);
    }
    *ret_body_max = head->query.len ? 16 : 4096;
    if (kg_slice_eq_cstr(head->method, "PUT") && kind != 1) {
        kg_http_body_stream(http, on_ready, http);
    }
}

static void on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    (void)user;
    uintptr_t kind = (uintptr_t)kg_http_user(http);
    if (kind == 2) {
        kg_http_stream(http, 200, NULL, 0, "text/plain", pull, NULL);
    } else if (kind != 3 || body.len > 0) { /* else never answered */
        kg_http_reply(http, 200, NULL, 0, "text/plain", body);
    }
}

static void on_http_close(kg_http_t *http, void *user)
{
    (void)http;
    (void)user;
    open_exchanges--;
    fuzz_must(open_exchanges >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_edge_handler_t handler = {
        .on_request = on_request, .on_body = on_body, .on_http_close = on_http_close};
    fuzz_start(&fuzz, &handler);
    fuzz_connect(&fuzz);
    fuzz_feed(&fuzz, data, size);
    fuzz_hang_up(&fuzz);
    if (fuzz.out.len > 0) {
        fuzz_must(fuzz.out.len >= 9 && memcmp(fuzz.out.data, "HTTP/1.1 ", 9) == 0);
        fuzz_must(!memmem(fuzz.out.data, fuzz.out.len, "<html", 5) ||
                  memmem(data, size, "<html", 5));
    }
    return 0;
}
