/* Four JSON parts under a right signature: the deep part of kg_jmsg_parse, and an answer to what
 * was received built from its header. */
#include <errno.h>
#include <stdlib.h>

#include "fuzz_frames.h"
#include "proto/request.h"

enum {
    PARTS = 4,
    FRAMES = 12
};

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void answer(const kg_wire_key_t *key, const kg_jmsg_t *msg)
{
    kg_session_t session = {.id = "s", .username = "u", .key = *key};
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_slice_t frames[KG_OUT_FRAMES];
    kg_jmsg_t back;
    must(kg_reply_input(&session, msg->content.raw, msg->header.raw, &out) == 0);
    kg_out_frames(&out, frames);
    int rc = kg_jmsg_parse(frames, KG_OUT_FRAMES, key, &back, NULL);
    /* A header of bad bytes grows when they are repaired: then it may be over the cap. */
    must(rc == 0 || rc == -E2BIG);
    if (rc == 0) {
        must(strcmp(back.parent_id, msg->msg_id) == 0);
        must(strcmp(back.parent_type, msg->msg_type) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_wire_key_t key = {0};
    must(kg_wire_key_set(&key, "secret", 6) == 0);
    kg_slice_t frames[2 + FRAMES] = {kg_slice_cstr("<IDS|MSG>")};
    char sig[KG_WIRE_SIG_LEN + 1];
    kg_jmsg_t msg;
    kg_err_t err = {0};
    size_t count = fuzz_cut(data, size, frames + 2, FRAMES);
    if (count < PARTS) {
        return 0;
    }
    kg_wire_sign(&key, &frames[2], sig);
    frames[1] = kg_slice_cstr(sig);
    int rc = kg_jmsg_parse(frames, 2 + count, &key, &msg, &err);
    must((rc == 0) == (err.code == KG_ERR_NONE));
    must(rc == 0 || rc == -EBADMSG || rc == -E2BIG);
    if (rc == 0) {
        must(msg.buffer_count == count - PARTS);
        answer(&key, &msg);
    }
    return 0;
}
