/* Any bytes as a frame of the default WebSocket protocol. What is accepted and cleaned goes out
 * again as a frame that is read as the same message; as text it is strict UTF-8 without control
 * characters. */
#include <errno.h>
#include <stdint.h>

#include "fuzz_json.h"
#include "proto/ws_legacy.h"

static void clean(kg_ws_msg_t *msg, kg_buf_t stores[KG_WS_PARTS])
{
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        kg_json_value_t part = {KG_JSON_OBJECT, msg->parts[i]};
        must(kg_ws_clean_part(part, i >= 2, &stores[i], &msg->parts[i]) == 0);
        must(kg_json_check(msg->parts[i], KG_JSON_DEPTH_MAX, NULL) == 0);
    }
}

static void same(const kg_ws_msg_t *a, const kg_ws_msg_t *b)
{
    must(a->channel == b->channel && a->buffer_count == b->buffer_count);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        must(kg_slice_eq(a->parts[i], b->parts[i]));
    }
    for (size_t i = 0; i < a->buffer_count; i++) {
        must(kg_slice_eq(a->buffers[i], b->buffers[i]));
    }
}

static void encode_and_back(kg_ws_msg_t *msg)
{
    static kg_slice_t store[KG_WS_BUFFERS_MAX];
    kg_buf_t stores[KG_WS_PARTS] = {0};
    kg_buf_t out = {0};
    kg_ws_msg_t back;
    clean(msg, stores);
    int rc = kg_ws_legacy_encode(msg, &out);
    must(rc == 0 || (rc == -EBADMSG && out.len == 0)); /* a header without ids */
    if (rc == 0) {
        must(kg_ws_legacy_decode(kg_buf_slice(&out), store, &back, NULL) == 0);
        same(msg, &back);
        if (msg->buffer_count == 0) {
            must_be_clean(&out);
        }
    }
    kg_buf_fini(&out);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        kg_buf_fini(&stores[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static kg_slice_t store[KG_WS_BUFFERS_MAX];
    kg_ws_msg_t msg;
    kg_err_t err = {0};
    int rc = kg_ws_legacy_decode(kg_slice((const char *)data, size), store, &msg, &err);
    must((rc == 0) == (err.code == KG_ERR_NONE));
    if (rc < 0) {
        must(rc == -EBADMSG || rc == -E2BIG || rc == -ENOENT);
        return 0;
    }
    encode_and_back(&msg);
    return 0;
}
