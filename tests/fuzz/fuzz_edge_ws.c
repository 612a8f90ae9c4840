/* WebSocket frames against the real edge, after a good handshake. Holds: text handed on is UTF-8
 * and within the cap; what comes back is a sequence of well-formed server frames. */
#include "tests/fuzz/edge/fuzz_edge.h"

static fuzz_edge_t fuzz;
static int open_sockets;

static void
on_request(kg_http_t *http, const kg_http_head_t *head, size_t *ret_body_max, void *user)
{
    (void)head;
    (void)ret_body_max;
    (void)user;
    kg_http_reply(http, 404, NULL, 0, NULL, (kg_slice_t){0});
}

static void on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    (void)http;
    (void)body;
    (void)user;
}

static void on_http_close(kg_http_t *http, void *user)
{
    (void)http;
    (void)user;
}

static int
on_upgrade(const kg_http_head_t *head, kg_slice_t offered, kg_upgrade_reply_t *reply, void *user)
{
    (void)head;
    (void)offered;
    (void)reply;
    (void)user;
    return 0;
}

static void on_ws_open(kg_ws_t *ws, void *user)
{
    (void)ws;
    (void)user;
    open_sockets++;
}

static kg_pull_t pull(void *user, kg_buf_t *out, size_t max, bool *ret_message_end)
{
    (void)user;
    (void)max;
    kg_buf_append_cstr(out, "from the source");
    *ret_message_end = true;
    return KG_PULL_END;
}

static void on_ws_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user)
{
    (void)user;
    fuzz_must(data.len <= 4096);
    fuzz_must(binary || kg_utf8_valid(data.data, data.len));
    if (data.len == 3) {
        kg_ws_close(ws, 1008, "three");
    } else if (data.len == 4) {
        kg_ws_set_source(ws, pull, NULL);
    } else if (binary) {
        kg_ws_send_binary(ws, data);
    } else {
        kg_ws_send(ws, data);
    }
}

static void on_ws_close(kg_ws_t *ws, void *user)
{
    (void)ws;
    (void)user;
    open_sockets--;
    fuzz_must(open_sockets >= 0);
}

static void check_frames(const unsigned char *at, size_t len)
{
    while (len >= 2) {
        unsigned op = at[0] & 15u;
        fuzz_must((at[0] & 0x70) == 0 && (op <= 2 || (op >= 8 && op <= 10)));
        fuzz_must((at[1] & 0x80) == 0);
        size_t header = 2;
        size_t body = at[1];
        if (body == 126) {
            if (len < 4) {
                return;
            }
            header = 4;
            body = (size_t)at[2] << 8 | at[3];
        }
        fuzz_must(body != 127);
        if (len < header + body) {
            return; /* cut by the hang-up */
        }
        at += header + body;
        len -= header + body;
    }
}

static const char handshake[] =
    "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_edge_handler_t handler = {
        .on_request = on_request,
        .on_body = on_body,
        .on_http_close = on_http_close,
        .on_upgrade = on_upgrade,
        .on_ws_open = on_ws_open,
        .on_ws_message = on_ws_message,
        .on_ws_close = on_ws_close,
    };
    fuzz_start(&fuzz, &handler);
    fuzz_connect(&fuzz);
    fuzz_feed(&fuzz, (const uint8_t *)handshake, sizeof(handshake) - 1);
    fuzz_must(fuzz.out.len > 12 && memcmp(fuzz.out.data, "HTTP/1.1 101", 12) == 0);
    kg_buf_clear(&fuzz.out);
    fuzz_feed(&fuzz, data, size);
    check_frames((const unsigned char *)(fuzz.out.data ? fuzz.out.data : ""), fuzz.out.len);
    fuzz_hang_up(&fuzz);
    return 0;
}
