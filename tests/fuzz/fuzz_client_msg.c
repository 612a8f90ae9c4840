/* Any frame of a client, in either protocol, towards a kernel that has everything. Whatever passes
 * is canonical, within the caps, and comes through a kernel's eyes as it was meant; whatever does
 * not has a code and a message. */
#include <errno.h>
#include <stdint.h>

#include "fuzz_json.h"
#include "proto/client_msg.h"
#include "proto/request.h"
#include "proto/ws_legacy.h"
#include "proto/ws_v1.h"

enum {
    CODE_MAX = 64,
    CONTENT_MAX = 2048
};

static void must_be_object(const kg_buf_t *text)
{
    kg_json_value_t value;
    must(kg_json_check(kg_buf_slice(text), KG_JSON_DEPTH_MAX, &value) == 0);
    must(value.type == KG_JSON_OBJECT);
    must_be_clean(text);
}

static void forward(const kg_client_msg_t *msg)
{
    kg_session_t session = {.id = "s", .username = "u"};
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_slice_t frames[KG_OUT_FRAMES];
    kg_jmsg_t back;
    must(kg_wire_key_set(&session.key, "secret", 6) == 0);
    const kg_forward_args_t args = {.msg_type = msg->msg_type,
                                    .subshell_id = msg->subshell_id,
                                    .metadata = kg_buf_slice(&msg->metadata),
                                    .content = kg_buf_slice(&msg->content)};
    must(kg_request_forward(&session, &args, &out) == 0);
    kg_out_frames(&out, frames);
    must(kg_jmsg_parse(frames, KG_OUT_FRAMES, &session.key, &back, NULL) == 0);
    must(strcmp(back.msg_type, msg->msg_type) == 0 && strcmp(back.session, "s") == 0);
}

static void check_good(const kg_client_msg_t *msg)
{
    must(msg->channel != KG_CHANNEL_IOPUB);
    must_be_object(&msg->metadata);
    if (msg->kind == KG_CLIENT_EXECUTE) {
        must(msg->text.len <= CODE_MAX && kg_utf8_valid(msg->text.data, msg->text.len));
        must(msg->text.len == 0 || !memchr(msg->text.data, 0, msg->text.len));
        must_be_object(&msg->execute.user_expressions);
    }
    if (msg->content.len > 0) {
        must_be_object(&msg->content);
        forward(msg);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static kg_slice_t store[KG_WS_BUFFERS_MAX];
    const kg_client_limits_t limits = {.code_max = CODE_MAX,
                                       .content_max = CONTENT_MAX,
                                       .features = KG_CLIENT_DEBUGGER | KG_CLIENT_SUBSHELLS};
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_slice_t text = kg_slice((const char *)data, size);
    kg_ws_msg_t frame;
    kg_err_t err = {0};
    if (kg_ws_v1_decode(text, store, &frame, NULL) < 0 &&
        kg_ws_legacy_decode(text, store, &frame, NULL) < 0) {
        return 0;
    }
    int rc = kg_client_msg_open(&frame, &msg, &err);
    if (rc == 0) {
        must(msg.msg_id[0] && msg.msg_type[0]);
        must_be_object(&msg.header);
        rc = kg_client_msg_check(&frame, &limits, &msg, &err);
    }
    must((rc == 0) == (err.code == KG_ERR_NONE));
    must(rc == 0 || rc == -EBADMSG || rc == -E2BIG || rc == -EINVAL || rc == -ENOTSUP);
    if (rc == 0) {
        check_good(&msg);
    }
    return 0;
}
