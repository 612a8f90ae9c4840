/* Any bytes as a frame of v1.kernel.websocket.jupyter.org: what is accepted comes out again to the
 * byte, and every segment lies in the frame, behind the one before it. */
#include <errno.h>
#include <stdint.h>

#include "fuzz_json.h"
#include "proto/ws_v1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static kg_slice_t store[KG_WS_BUFFERS_MAX];
    kg_slice_t frame = kg_slice((const char *)data, size);
    kg_ws_msg_t msg;
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    int rc = kg_ws_v1_decode(frame, store, &msg, &err);
    must((rc == 0) == (err.code == KG_ERR_NONE));
    if (rc < 0) {
        must(rc == -EBADMSG || rc == -E2BIG);
        return 0;
    }
    must(kg_ws_v1_encode(&msg, &out) == 0);
    must(kg_slice_eq(kg_buf_slice(&out), frame));
    return 0;
}
