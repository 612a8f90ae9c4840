/* Requests and how each ends: an execute request with reply and idle, in either order; any other
 * with its reply. Every step that may be missing has a deadline. */
#include <errno.h>

#include "gateway/base/log.h"
#include "gateway/kernel/internal.h"

#define OVERDUE_NS (20 * KG_NS_PER_MS) /* second look at a deadline that passed */

/* ---- the list ---- */

kg_request_t *kg_request_find(const kg_kernel_t *k, const char *msg_id)
{
    for (kg_request_t *req = msg_id[0] ? k->requests : NULL; req; req = req->next) {
        if (strcmp(req->msg_id, msg_id) == 0) {
            return req;
        }
    }
    return NULL;
}

static void link_request(kg_kernel_t *k, kg_request_t *req)
{
    req->next = k->requests;
    if (req->next) {
        req->next->prev = req;
    }
    k->requests = req;
    k->stats.requests++;
}

static void unlink_request(kg_request_t *req)
{
    kg_kernel_t *k = req->kernel;
    *(req->prev ? &req->prev->next : &k->requests) = req->next;
    if (req->next) {
        req->next->prev = req->prev;
    }
    k->stats.requests--;
    req->kernel = NULL;
}

void kg_request_hold(kg_request_t *req)
{
    req->hold++;
}

static void free_if_over(kg_request_t *req)
{
    if (!req->released || req->hold > 0 || (req->kernel && !req->ended && req->execute)) {
        return;
    }
    if (req->kernel) {
        unlink_request(req);
    }
    kg_out_fini(&req->out);
    if (req->sink.prepare_arg_free) {
        req->sink.prepare_arg_free(req->sink.prepare_arg);
    }
    free(req);
}

void kg_request_drop(kg_request_t *req)
{
    req->hold--;
    free_if_over(req);
}

void kg_request_release(kg_request_t **request)
{
    kg_request_t *req = *request;
    if (!req) {
        return;
    }
    *request = NULL;
    req->released = true;
    free_if_over(req);
}

const char *kg_request_msg_id(const kg_request_t *request)
{
    return request->msg_id;
}

bool kg_request_is_sent(const kg_request_t *request)
{
    return !request->unsent;
}

/* ---- deadlines ---- */

static void arm_timer(kg_kernel_t *k, uint64_t at_ns)
{
    if (k->request_timer_ns != 0 && k->request_timer_ns <= at_ns) {
        return;
    }
    uint64_t now = kg_now_ns();
    k->request_timer_ns = at_ns;
    kg_timer_start(k->request_timer, at_ns > now ? at_ns - now : 1, 0);
}

void kg_request_set_deadline(kg_request_t *req, uint64_t at_ns)
{
    req->deadline_ns = at_ns;
    req->overdue = false;
    arm_timer(req->kernel, at_ns);
}

/* When the request is to end, from what is known now. A missing idle is waited for as long as
 * output comes. */
static uint64_t due_at(const kg_request_t *req)
{
    const kg_kernel_limits_t *limits = &req->kernel->limits;
    if (!req->execute || !req->replied || req->idled || req->gap) {
        return req->deadline_ns;
    }
    uint64_t last = req->iopub_ns > req->replied_ns ? req->iopub_ns : req->replied_ns;
    uint64_t quiet = last + limits->no_idle_ns;
    uint64_t max = req->replied_ns + limits->no_idle_max_ns;
    return quiet < max ? quiet : max;
}

static kg_request_how_t how_missing(const kg_request_t *req)
{
    if (!req->execute) {
        return kg_forward_missing(req);
    }
    return req->replied ? KG_REQUEST_NO_IDLE : KG_REQUEST_NO_REPLY;
}

/* true when it ended. */
static bool look_at(kg_request_t *req, uint64_t now)
{
    kg_kernel_t *k = req->kernel;
    uint64_t due = due_at(req);
    if (now < due) {
        req->overdue = false;
        arm_timer(k, due);
        return false;
    }
    if (!req->overdue || !kg_inbox_empty(k)) { /* what it waits for may lie here unread */
        req->overdue = true;
        arm_timer(k, now + OVERDUE_NS);
        return false;
    }
    if (req->forward && kg_forward_goes_on(req, now)) {
        return false;
    }
    kg_request_end(req, how_missing(req));
    return true;
}

void kg_request_timer_fired(void *user)
{
    kg_kernel_t *k = user;
    k->request_timer_ns = 0;
    uint64_t now = kg_now_ns();
    kg_request_t *req = k->requests;
    while (req && !k->closing) {
        bool pending = !req->ended && req->deadline_ns != 0;
        /* the callbacks of an end may change the list: begin again */
        req = pending && look_at(req, now) ? k->requests : req->next;
    }
}

/* ---- ends ---- */

static void running_ended(kg_kernel_t *k, const kg_request_t *req)
{
    bool alive = k->life == KG_LIFE_RUNNING && !k->closing;
    if (alive && k->barrier.up && !req->unsent) {
        kg_output_drain(k); /* what was written up to now is this request's */
        alive = !k->closing;
    }
    k->running = NULL;
    k->gap_probe[0] = '\0';
    if (!alive) {
        return;
    }
    kg_interrupt_over(k);
    if (!req->unsent) {
        kg_barrier_request_over(k);
    }
    if (k->sink.on_state) {
        k->sink.on_state(k->user, KG_KERNEL_IDLE);
    }
}

void kg_request_end(kg_request_t *req, kg_request_how_t how)
{
    kg_kernel_t *k = req->kernel;
    if (req->ended) {
        return;
    }
    req->ended = true;
    req->deadline_ns = 0;
    kg_request_hold(req);
    if (k->running == req) {
        running_ended(k, req);
    }
    if (!req->released && req->sink.on_done) {
        const kg_request_end_t end = {
            .how = how, .gap = req->gap, .exit = how == KG_REQUEST_DEAD ? &k->exit : NULL};
        req->sink.on_done(req->user, &end);
    }
    kg_request_drop(req);
}

void kg_request_end_all(kg_kernel_t *k, kg_request_how_t how)
{
    kg_request_t *req = k->requests;
    while (req) {
        bool pending = !req->ended;
        if (pending) {
            kg_request_end(req, how);
        }
        req = pending ? k->requests : req->next;
    }
}

void kg_request_on_reply(kg_request_t *req)
{
    if (req->ended || req->replied || req->kernel->closing) {
        return;
    }
    req->replied = true;
    req->replied_ns = kg_now_ns();
    if (req->idled || (!req->execute && !req->forward)) {
        kg_request_end(req, KG_REQUEST_DONE);
        return;
    }
    if (req->forward) {
        kg_forward_on_reply(req);
        return;
    }
    kg_request_set_deadline(req, req->replied_ns + req->kernel->limits.no_idle_ns);
}

void kg_request_on_idle(kg_request_t *req)
{
    if (req->forward) {
        kg_forward_on_idle(req);
    }
    if (!req->execute || req->ended || req->idled || req->kernel->closing) {
        return;
    }
    req->idled = true;
    if (req->replied) {
        kg_request_end(req, KG_REQUEST_DONE);
        return;
    }
    kg_request_set_deadline(req, kg_now_ns() + req->kernel->limits.no_reply_ns);
}

void kg_request_gap_closed(kg_kernel_t *k)
{
    kg_request_t *req = k->running;
    if (req && !req->ended) {
        req->gap = true;
        kg_request_set_deadline(req, kg_now_ns() + k->limits.no_reply_ns);
    }
}

/* ---- sending ---- */

int kg_request_sendable(const kg_kernel_t *k, kg_err_t *err)
{
    kg_kernel_state_t state = kg_kernel_state(k);
    if (state == KG_KERNEL_STARTING) {
        return kg_err_set(err, KG_ERR_STARTING, "the kernel is starting");
    }
    if (state == KG_KERNEL_DEAD || k->killed) {
        return kg_err_set(err, KG_ERR_CONFLICT, "the kernel has ended");
    }
    if (k->link.state != KG_LINK_UP) {
        return kg_err_set(err, KG_ERR_CONFLICT, "the kernel is suspended");
    }
    return 0;
}

int kg_request_askable(const kg_kernel_t *k, kg_err_t *err)
{
    int rc = kg_request_sendable(k, err);
    if (rc == 0 && k->stats.requests >= KG_KERNEL_REQUESTS_MAX) {
        rc = kg_err_set(err, KG_ERR_QUEUE_FULL, "%d requests wait for this kernel already",
                        KG_KERNEL_REQUESTS_MAX);
    }
    return rc;
}

int kg_request_new(kg_kernel_t *k,
                   kg_channel_t channel,
                   kg_out_t *out,
                   const kg_request_sink_t *sink,
                   void *user,
                   kg_request_t **ret_request,
                   kg_err_t *err)
{
    kg_request_t *req = calloc(1, sizeof(*req));
    bool waits = channel == KG_CHANNEL_SHELL && kg_barrier_holds(k);
    int rc = req ? (waits ? 0 : kg_link_send(k, channel, out)) : -ENOMEM;
    if (rc < 0) {
        free(req);
        return kg_err_set(err, kg_err_from_errno(rc),
                          "the request could not be sent to the kernel");
    }
    req->kernel = k;
    req->sink = *sink;
    req->user = user;
    req->shell = channel == KG_CHANNEL_SHELL;
    memcpy(req->msg_id, out->msg_id, sizeof(req->msg_id));
    if (waits) {
        req->unsent = true;
        req->out = *out;
        *out = (kg_out_t){0};
    }
    link_request(k, req);
    *ret_request = req;
    return 0;
}

int kg_kernel_execute(kg_kernel_t *k,
                      const kg_kernel_execute_t *args,
                      const kg_request_sink_t *sink,
                      void *user,
                      kg_request_t **ret_request,
                      kg_err_t *err)
{
    int rc = kg_request_sendable(k, err);
    if (rc < 0) {
        return rc;
    }
    if (k->running) {
        return kg_err_set(err, KG_ERR_BUSY, "another execution is under way");
    }
    const kg_execute_args_t wire_args = {
        .code = args->code,
        .silent = args->silent,
        .store_history = args->store_history,
        .allow_stdin = args->allow_stdin,
        .stop_on_error = args->stop_on_error,
        .user_expressions = args->user_expressions,
        .metadata = args->metadata,
    };
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    rc = kg_request_execute(&k->session, &wire_args, &out);
    if (rc < 0) {
        return kg_err_set(err, kg_err_from_errno(rc), "the execute request could not be built");
    }
    kg_request_t *req = NULL;
    rc = kg_request_new(k, KG_CHANNEL_SHELL, &out, sink, user, &req, err);
    if (rc == 0 && req) {
        req->execute = true;
        req->allow_stdin = args->allow_stdin;
        k->running = req;
        *ret_request = req;
    }
    return rc;
}

static int build_ask(kg_kernel_t *k, const kg_kernel_ask_t *ask, kg_out_t *out)
{
    switch (ask->what) {
    case KG_ASK_COMPLETE:
        return kg_request_complete(&k->session, ask->code, ask->cursor, out);
    case KG_ASK_INSPECT:
        return kg_request_inspect(&k->session, ask->code, ask->cursor, ask->detail, out);
    case KG_ASK_IS_COMPLETE:
        return kg_request_is_complete(&k->session, ask->code, out);
    case KG_ASK_HISTORY:
        return kg_request_history(&k->session, ask->detail, out);
    case KG_ASK_COMM_INFO:
        return kg_request_comm_info(&k->session, out);
    case KG_ASK_KERNEL_INFO:
        return kg_request_kernel_info(&k->session, out);
    }
    return -EINVAL;
}

int kg_kernel_ask(kg_kernel_t *k,
                  const kg_kernel_ask_t *ask,
                  const kg_request_sink_t *sink,
                  void *user,
                  kg_request_t **ret_request,
                  kg_err_t *err)
{
    int rc = kg_request_askable(k, err);
    if (rc < 0) {
        return rc;
    }
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    rc = build_ask(k, ask, &out);
    if (rc < 0) {
        return kg_err_set(err, kg_err_from_errno(rc), "the request could not be built");
    }
    bool control = ask->what == KG_ASK_KERNEL_INFO && ask->on_control;
    rc = kg_request_new(k, control ? KG_CHANNEL_CONTROL : KG_CHANNEL_SHELL, &out, sink, user,
                        ret_request, err);
    if (rc == 0) {
        kg_request_set_deadline(*ret_request, kg_now_ns() + ask->deadline_ns);
    }
    return rc;
}

int kg_kernel_input_reply(kg_kernel_t *k, kg_slice_t value, kg_slice_t parent_header)
{
    if (k->life != KG_LIFE_RUNNING || k->closing || !k->link.chans[KG_CHANNEL_STDIN].zchan) {
        return -EPIPE;
    }
    kg_json_value_t parent;
    KG_AUTO_BUF kg_buf_t canonical = {0};
    int rc = kg_json_check(parent_header, KG_JSON_DEPTH_MAX, &parent);
    if (rc == 0) {
        rc = kg_json_copy(&canonical, parent);
    }
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    if (rc == 0) {
        rc = kg_reply_input(&k->session, value, kg_buf_slice(&canonical), &out);
    }
    return rc < 0 ? rc : kg_link_send(k, KG_CHANNEL_STDIN, &out);
}
