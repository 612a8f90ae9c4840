/* From a checked message to whom it belongs: the request with that parent, the proof of the link,
 * or the kernel's owner. Bad messages are counted and dropped; they never end anything. */
#include <errno.h>
#include <inttypes.h>

#include "gateway/base/log.h"
#include "gateway/kernel/internal.h"

static bool is_type(const kg_jmsg_t *msg, const char *type)
{
    return strcmp(msg->msg_type, type) == 0;
}

static bool is_reply(const kg_jmsg_t *msg)
{
    size_t len = strlen(msg->msg_type);
    return len > 6 && memcmp(msg->msg_type + len - 6, "_reply", 6) == 0;
}

void kg_router_bad(kg_kernel_t *k, kg_channel_t channel, int rc)
{
    if (rc == -EACCES) {
        k->stats.bad_signature++;
    } else {
        k->stats.malformed++;
    }
    uint64_t bad = k->stats.bad_signature + k->stats.malformed;
    if (bad >= 2 * k->logged_bad) { /* the 1st, 2nd, 4th, 8th … */
        k->logged_bad = bad;
        kg_log(rc == -ENOMEM ? KG_LOG_ERROR : KG_LOG_WARN, "kernel.bad_message",
               "kernel=%s channel=%s errno=%d bad=%" PRIu64, k->name, kg_channel_name(channel), -rc,
               bad);
    }
}

/* To the request's sink, which may release it and close the kernel. Takes prepared. */
static void
to_request(kg_request_t *req, kg_channel_t channel, const kg_jmsg_t *msg, void **prepared)
{
    if (req->released || !req->sink.on_message) {
        return;
    }
    req->sink.on_message(req->user, channel, msg, KG_TAKE(*prepared));
}

static void on_iopub(kg_kernel_t *k, const kg_jmsg_t *msg, void **prepared)
{
    if (k->sink.on_iopub) {
        k->sink.on_iopub(k->user, msg);
    }
    kg_link_on_iopub(k); /* may be what makes it ready */
    if (is_type(msg, "iopub_welcome")) {
        k->stats.welcomes++;
        return;
    }
    bool status = is_type(msg, "status");
    kg_request_t *req = kg_request_find(k, msg->parent_id);
    if (!req || req->released) {
        if (!status && !k->closing && k->sink.on_orphan) {
            k->sink.on_orphan(k->user, msg);
        }
    }
    req = k->closing ? NULL : kg_request_find(k, msg->parent_id);
    if (!req) {
        return;
    }
    kg_slice_t state = status ? kg_json_get(msg->content, "execution_state").raw : (kg_slice_t){0};
    kg_request_hold(req);
    req->iopub_ns = k->last_message_ns;
    if (req == k->running && kg_slice_eq_cstr(state, "\"busy\"") && k->sink.on_state) {
        k->sink.on_state(k->user, KG_KERNEL_BUSY);
    }
    if (req->execute && !req->begun && is_type(msg, "execute_input")) {
        kg_interrupt_begun(req);
    }
    to_request(req, KG_CHANNEL_IOPUB, msg, prepared);
    if (kg_slice_eq_cstr(state, "\"idle\"")) {
        kg_request_on_idle(req);
    }
    kg_request_drop(req);
}

static void on_answer(kg_kernel_t *k, kg_channel_t channel, const kg_jmsg_t *msg, void **prepared)
{
    kg_request_t *req = kg_request_find(k, msg->parent_id);
    if (!req) {
        if (is_type(msg, "kernel_info_reply")) {
            kg_link_on_info(k, msg);
            kg_barrier_on_info(k, msg->parent_id);
        } else if (is_type(msg, "interrupt_reply")) {
            kg_barrier_acked(k);
        } else if (!is_type(msg, "shutdown_reply")) {
            k->stats.unexpected++;
        }
        return;
    }
    if (is_reply(msg) && (req->replied || req->ended)) { /* doubled, or after its deadline */
        k->stats.unexpected++;
        return;
    }
    kg_request_hold(req);
    to_request(req, channel, msg, prepared);
    if (is_reply(msg)) {
        kg_request_on_reply(req);
    }
    kg_request_drop(req);
}

/* A kernel waits for the answer with its only thread: whatever nobody may answer is answered here.
 */
static void on_stdin(kg_kernel_t *k, const kg_jmsg_t *msg, void **prepared)
{
    kg_request_t *req = kg_request_find(k, msg->parent_id);
    if (req && !req->released && !req->ended && req->allow_stdin && req->sink.on_message) {
        kg_request_hold(req);
        to_request(req, KG_CHANNEL_STDIN, msg, prepared);
        kg_request_drop(req);
        return;
    }
    k->stats.unexpected++;
    if (is_type(msg, "input_request")) {
        (void)kg_kernel_input_reply(k, kg_slice("", 0), msg->header.raw);
    }
}

void kg_router_deliver(kg_kernel_t *k,
                       kg_channel_t channel,
                       const kg_jmsg_t *msg,
                       void *prepared,
                       void (*prepared_free)(void *))
{
    if (k->plain_output && channel == KG_CHANNEL_IOPUB) {
        kg_output_drain(k); /* what was printed before this was sent */
    }
    if (!k->closing) {
        switch (channel) {
        case KG_CHANNEL_IOPUB:
            on_iopub(k, msg, &prepared);
            break;
        case KG_CHANNEL_SHELL:
        case KG_CHANNEL_CONTROL:
            on_answer(k, channel, msg, &prepared);
            break;
        case KG_CHANNEL_STDIN:
            on_stdin(k, msg, &prepared);
            break;
        }
    }
    if (prepared && prepared_free) {
        prepared_free(prepared);
    }
}
