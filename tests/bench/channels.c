/* bench: a client of channels. */
#include "tests/bench/channels.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/ws_legacy.h"
#include "proto/ws_v1.h"
#include "tests/bench/bench.h"

void channels_open(channels_t *c,
                   const char *host,
                   const char *port,
                   const char *token,
                   const char *kernel,
                   const char *protocol)
{
    KG_AUTO_BUF kg_buf_t target = {0};
    KG_AUTO_BUF kg_buf_t key = {0};
    *c = (channels_t){.v1 = strcmp(protocol, "v1") == 0};
    kg_buf_printf(&target, "/api/kernels/%s/channels", kernel);
    kg_buf_printf(&key, "token %s", token);
    ws_client_open(&c->ws, host, port, target.data, key.data, c->v1 ? KG_WS_V1_PROTOCOL : NULL);
}

void channels_close(channels_t *c)
{
    ws_client_close(&c->ws);
    kg_buf_fini(&c->frame);
}

void channels_execute(channels_t *c, const char *code, char ret_id[CHANNELS_ID_MAX])
{
    KG_AUTO_BUF kg_buf_t header = {0};
    KG_AUTO_BUF kg_buf_t content = {0};
    KG_AUTO_BUF kg_buf_t frame = {0};
    snprintf(ret_id, CHANNELS_ID_MAX, "\"bench-%d-%d-%u\"", getpid(), c->ws.fd, ++c->asked);
    kg_buf_printf(&header,
                  "{\"msg_id\":%s,\"msg_type\":\"execute_request\",\"session\":\"bench-%d\","
                  "\"username\":\"bench\",\"date\":\"2026-01-02T03:04:05.678901Z\",\"version\":"
                  "\"5.3\"}",
                  ret_id, c->ws.fd);
    kg_buf_append_cstr(&content, "{\"code\":");
    kg_json_quote_cstr(&content, code);
    kg_buf_append_cstr(&content, ",\"silent\":false,\"store_history\":true,\"user_expressions\":{},"
                                 "\"allow_stdin\":false,\"stop_on_error\":true}");
    const kg_ws_msg_t msg = {.channel = KG_CHANNEL_SHELL,
                             .parts = {kg_buf_slice(&header), kg_slice_cstr("{}"),
                                       kg_slice_cstr("{}"), kg_buf_slice(&content)}};
    int rc = c->v1 ? kg_ws_v1_encode(&msg, &frame) : kg_ws_legacy_encode(&msg, &frame);
    if (rc < 0) {
        bench_fail("encode");
    }
    ws_client_send(&c->ws, c->v1 ? WS_BINARY : WS_TEXT, kg_buf_slice(&frame));
}

void channels_receive(channels_t *c, heard_t *ret)
{
    kg_err_t err = {0};
    kg_json_value_t parts[KG_WS_PARTS] = {0};
    *ret = (heard_t){0};
    ws_client_receive(&c->ws, &c->frame);
    kg_slice_t frame = kg_buf_slice(&c->frame);
    int rc = c->v1 ? kg_ws_v1_decode(frame, c->store, &ret->msg, &err)
                   : kg_ws_legacy_decode(frame, c->store, &ret->msg, &err);
    for (size_t i = 0; i < KG_WS_PARTS && rc == 0; i++) {
        rc = kg_json_check(ret->msg.parts[i], KG_JSON_DEPTH_MAX, &parts[i]);
    }
    if (rc < 0) {
        bench_fail("a frame that is no message");
    }
    ret->content = parts[3];
    ret->parent_id = kg_json_get(parts[1], "msg_id").raw;
    ret->type = kg_json_get(parts[0], "msg_type").raw;
}

bool heard_reply(const heard_t *heard)
{
    return heard->msg.channel == KG_CHANNEL_SHELL &&
           kg_slice_eq_cstr(heard->type, "\"execute_reply\"");
}

bool heard_idle(const heard_t *heard)
{
    kg_slice_t state = kg_json_get(heard->content, "execution_state").raw;
    return heard->msg.channel == KG_CHANNEL_IOPUB && kg_slice_eq_cstr(state, "\"idle\"");
}
