/* Frames between gateway and keeper, both ways. The first byte says whether the head is mended, so
 * that the fuzzer gets past magic and size. What is accepted must be one of ours to the last byte.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/keeper_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_request(const char *frame, size_t len)
{
    kg_kp_request_t r;
    kg_kp_request_t fresh;
    uint32_t seq = 0;

    if (kg_kp_request_decode(frame, len, &r, &seq) < 0) {
        return;
    }
    must(seq == r.head.seq && memcmp(&r, frame, len) == 0);
    must(kg_kp_request_init(&fresh, (kg_kp_verb_t)r.head.verb, seq) == len);
    if (r.head.verb == KG_KP_CREATE) {
        must(kg_kp_id_valid(r.create.id) && !strchr(r.create.id, '/') &&
             !strchr(r.create.launcher, '/') && !strchr(r.create.template_name, '/'));
        must(r.create.network.rule_count <= KG_NET_RULES_MAX);
    }
    if (r.head.verb == KG_KP_ATTACH || r.head.verb == KG_KP_PAUSE || r.head.verb == KG_KP_RESUME ||
        r.head.verb == KG_KP_USAGE || r.head.verb == KG_KP_NETWORK ||
        r.head.verb == KG_KP_NET_LOG) {
        must(kg_kp_id_valid(r.one.id) && !strchr(r.one.id, '/'));
    }
    if (r.head.verb == KG_KP_KILL) {
        must(kg_kp_id_valid(r.kill.id) && !strchr(r.kill.id, '.'));
    }
}

static void check_reply(const char *frame, size_t len)
{
    kg_kp_reply_t r;
    if (kg_kp_reply_decode(frame, len, &r) < 0) {
        return;
    }
    const kg_kp_status_t *status = kg_kp_reply_status(&r);
    if (status) {
        must(strlen(status->message) < sizeof(status->message));
        must(strlen(status->hint) < sizeof(status->hint));
    }
    if (r.head.verb == KG_KP_NET_LOG) {
        for (uint32_t i = 0; i < r.net_log.count; i++) {
            must(strlen(r.net_log.rows[i].domain) < KG_NET_DOMAIN_MAX);
        }
    }
    if (r.head.verb == KG_KP_FEATURE_TABLE) {
        for (uint32_t i = 0; i < r.features.count; i++) {
            must(strlen(r.features.rows[i].reason) < sizeof(r.features.rows[i].reason));
        }
    }
    if (r.head.verb == KG_KP_LIST) {
        for (uint32_t i = 0; i < r.list.count; i++) {
            must(strlen(r.list.rows[i].id) < KG_KP_ID_MAX);
            must(strlen(r.list.rows[i].launcher) < KG_KP_LAUNCHER_MAX);
            must(strlen(r.list.rows[i].template_name) < KG_KP_TEMPLATE_MAX);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char frame[sizeof(kg_kp_reply_t) + 64] = {0};
    if (size < 1) {
        return 0;
    }
    bool mend = (data[0] & 1) != 0;
    bool pad = (data[0] & 2) != 0; /* to the size that the verb wants */
    size_t len = size - 1 < sizeof(frame) ? size - 1 : sizeof(frame);
    memcpy(frame, data + 1, len);
    if (mend && len >= sizeof(kg_kp_head_t)) {
        kg_kp_head_t head;
        kg_kp_request_t request;
        kg_kp_reply_t reply;
        memcpy(&head, frame, sizeof(head));
        if (pad) {
            size_t want = (data[0] & 4) ? kg_kp_request_init(&request, (kg_kp_verb_t)head.verb, 0)
                                        : kg_kp_reply_init(&reply, (kg_kp_verb_t)head.verb, 0);
            len = want ? want : len;
        }
        head.magic = KG_KP_MAGIC;
        head.version = KG_KP_VERSION;
        head.size = (uint32_t)len;
        memcpy(frame, &head, sizeof(head));
    }
    check_request(frame, len);
    check_reply(frame, len);
    return 0;
}
