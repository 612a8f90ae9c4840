/* Messages of clients, which a kernel may take long to come to, or have no answer for: some kernels
 * say nothing at all on what they don't know. */
#include <errno.h>

#include "gateway/kernel/internal.h"

#define GRACE_NS (2 * KG_NS_PER_S)     /* to the first word; and to idle, behind the reply */
#define PATIENCE_NS (60 * KG_NS_PER_S) /* from then on */

int kg_kernel_forward(kg_kernel_t *k,
                      const kg_kernel_forward_t *forward,
                      const kg_request_sink_t *sink,
                      void *user,
                      kg_request_t **ret_request,
                      kg_err_t *err)
{
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    int rc = kg_request_askable(k, err);
    if (rc < 0) {
        return rc;
    }
    const kg_forward_args_t args = {
        .msg_type = forward->msg_type,
        .subshell_id = forward->subshell_id,
        .metadata = forward->metadata,
        .content = forward->content,
    };
    rc = kg_request_forward(&k->session, &args, &out);
    rc = rc < 0 ? rc : kg_out_add_buffers(&out, forward->buffers, forward->buffer_count);
    if (rc < 0) {
        return kg_err_set(err, kg_err_from_errno(rc), "the message could not be built");
    }
    rc = kg_request_new(k, forward->channel, &out, sink, user, ret_request, err);
    if (rc == 0) {
        (*ret_request)->forward = true;
        (*ret_request)->no_reply = forward->no_reply;
        kg_request_set_deadline(*ret_request, kg_now_ns() + GRACE_NS);
    }
    return rc;
}

void kg_forward_on_idle(kg_request_t *req)
{
    if (req->ended || req->idled || req->kernel->closing) {
        return;
    }
    req->idled = true;
    if (req->no_reply || req->replied) {
        kg_request_end(req, KG_REQUEST_DONE);
    } else {
        kg_request_set_deadline(req, kg_now_ns() + req->kernel->limits.no_reply_ns);
    }
}

void kg_forward_on_reply(kg_request_t *req)
{
    kg_request_set_deadline(req, req->replied_ns + GRACE_NS);
}

kg_request_how_t kg_forward_missing(const kg_request_t *req)
{
    if (!req->replied) {
        return req->idled ? KG_REQUEST_NO_REPLY : KG_REQUEST_SILENT;
    }
    return req->iopub_ns > 0 ? KG_REQUEST_NO_IDLE : KG_REQUEST_DONE;
}

/* Kernels take what is on shell one after the other, whoever asks it. */
static bool another_is_before(const kg_request_t *req)
{
    for (const kg_request_t *other = req->next; other; other = other->next) {
        if (other->shell && !other->execute && !other->replied && !other->ended) {
            return true;
        }
    }
    return false;
}

bool kg_forward_goes_on(kg_request_t *req, uint64_t now)
{
    const kg_kernel_t *k = req->kernel;
    if (req->idled || req->replied) {
        return false;
    }
    bool waits = req->unsent || (req->shell && (kg_kernel_cell_runs(k) || another_is_before(req)));
    if (waits || (req->iopub_ns > 0 && now - req->iopub_ns < PATIENCE_NS)) {
        kg_request_set_deadline(req, now + GRACE_NS);
        return true;
    }
    return false;
}

bool kg_kernel_is_ours(const kg_kernel_t *k, const char *msg_id)
{
    size_t len = strlen(k->session.id);
    return strncmp(msg_id, k->session.id, len) == 0 && msg_id[len] == '_';
}
