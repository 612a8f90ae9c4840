/* gateway/context: what attached clients say. Their messages go to the kernel when it is there and
 * awake, and wait (a few) when it is not; code becomes a run, an interrupt is the context's, and
 * input answers the client's own run. */
#include "gateway/context/attach.h"

#include <errno.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"

#define CONTENT_MAX ((size_t)64 * 1024 * 1024) /* the front's own limits are lower */

/* ---- attach and leave ---- */

int kg_attach_open(kg_context_t *context,
                   const kg_attach_sink_t *sink,
                   void *user,
                   kg_attach_t **ret_attach,
                   kg_err_t *err)
{
    if (!context->bridge) {
        context->bridge = calloc(1, sizeof(*context->bridge));
    }
    /* Files are bounded by themselves, and who hears for one is no client. */
    bool client = sink->part != KG_ATTACH_HEARS;
    if (client && context->bridge && kg_context_attached(context) >= KG_ATTACH_MAX) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                          "%d clients are attached to context %s, which is the most.",
                          KG_ATTACH_MAX, context->id);
    }
    kg_attach_t *a = context->bridge ? calloc(1, sizeof(*a)) : NULL;
    if (!a) {
        return kg_oom(err);
    }
    a->context = context;
    a->sink = *sink;
    a->sink.who = NULL; /* of the caller's, and copied: */
    (void)kg_format(a->who, sizeof(a->who), "%s", sink->who ? sink->who : "");
    a->user = user;
    a->serial = ++context->bridge->serial;
    DL_APPEND(context->bridge->attaches, a);
    context->bridge->count++;
    context->bridge->hears += sink->part == KG_ATTACH_HEARS;
    *ret_attach = a;
    return 0;
}

static void forget(const kg_context_t *context, const kg_attach_t *a)
{
    kg_forward_t *f = NULL;
    kg_run_t *run = NULL;
    DL_FOREACH (context->bridge->forwards, f) {
        f->attach = f->attach == a ? NULL : f->attach;
    }
    DL_FOREACH (context->sandbox->runs, run) {
        if (run->client && run->client->attach == a) {
            run->client->attach = NULL;
            kg_run_client_waits(run);
        }
    }
}

static void take_off(kg_context_t *context, kg_attach_t *a)
{
    forget(context, a);
    DL_DELETE(context->bridge->attaches, a);
    *(kg_attach_is_left(a) ? &context->bridge->left : &context->bridge->count) -= 1;
    context->bridge->hears -= a->sink.part == KG_ATTACH_HEARS;
    kg_away_destroy(&a->away);
    a->context = NULL;
}

void kg_attach_close(kg_attach_t **attach)
{
    kg_attach_t *a = *attach;
    *attach = NULL;
    if (a && a->context) {
        take_off(a->context, a);
    }
    free(a);
}

void kg_bridge_end(kg_context_t *context, bool deleted)
{
    while (context->bridge && context->bridge->attaches) {
        kg_attach_t *a = context->bridge->attaches;
        if (kg_attach_is_left(a)) {
            kg_attach_close(&a);
            continue;
        }
        if (deleted && a->sink.part != KG_ATTACH_ASKS) {
            kg_bridge_status(context, a, "dead", (kg_slice_t){0});
        }
        take_off(context, a);
        a->sink.on_end(a->user, deleted);
    }
}

unsigned kg_context_attached(const kg_context_t *context)
{
    return context->bridge ? context->bridge->count - context->bridge->hears : 0;
}

bool kg_attach_idle(const kg_attach_t *a)
{
    const kg_forward_t *f = NULL;
    const kg_run_t *run = NULL;
    if (!a->context) {
        return true;
    }
    DL_FOREACH (a->context->bridge->forwards, f) {
        if (f->attach == a) {
            return false;
        }
    }
    DL_FOREACH (a->context->sandbox->runs, run) {
        if (run->client && run->client->attach == a) {
            return false;
        }
    }
    return true;
}

/* ---- runs ---- */

void kg_run_client_destroy(kg_run_client_t **client)
{
    kg_run_client_t *c = *client;
    *client = NULL;
    if (c) {
        kg_buf_fini(&c->header);
        kg_buf_fini(&c->user_expressions);
        kg_buf_fini(&c->metadata);
        kg_buf_fini(&c->question);
        kg_timer_close(&c->nobody);
        free(c);
    }
}

kg_run_client_t *kg_run_client_new(const kg_run_client_opts_t *opts)
{
    kg_run_client_t *c = calloc(1, sizeof(*c));
    if (!c || kg_buf_append_slice(&c->header, opts->header) ||
        kg_buf_append_slice(&c->user_expressions, opts->user_expressions) ||
        kg_buf_append_slice(&c->metadata, opts->metadata)) {
        kg_run_client_destroy(&c);
        return NULL;
    }
    c->attach = opts->attach;
    c->silent = opts->silent;
    c->store_history = opts->store_history;
    c->stop_on_error = opts->stop_on_error;
    return c;
}

static bool kernel_usable(const kg_context_t *context)
{
    return context->state == KG_CTX_READY && context->sandbox->pause == KG_PAUSE_NO;
}

static void nobody_answers(void *user)
{
    kg_run_t *run = user;
    if (run->context && !kernel_usable(run->context)) {
        kg_timer_start(run->client->nobody, kg_ms(KG_INPUT_LEFT_MS), 0);
        return;
    }
    kg_run_input_left(run);
}

/* Only its own client is asked at the notebook: where that has gone, agents would wait behind it
 * for as long as runs may take. */
void kg_run_client_waits(kg_run_t *run)
{
    kg_run_client_t *c = run->client;
    bool left = c && c->attach && kg_attach_is_left(c->attach);
    if (!c || (c->attach && !left) || run->ended || !run->live->input_header.len) {
        if (c && c->nobody) {
            kg_timer_stop(c->nobody);
        }
        return;
    }
    if (!c->nobody && kg_timer_create(run->core->loop, nobody_answers, run, &c->nobody)) {
        kg_run_input_left(run);
        return;
    }
    kg_timer_start(c->nobody, kg_ms(left ? KG_INPUT_AWAY_MS : KG_INPUT_LEFT_MS), 0);
}

static void refuse(kg_attach_t *a, const kg_client_msg_t *msg, const kg_err_t *err)
{
    kg_bridge_refuse(a->context, a, msg->channel, msg->msg_type, kg_buf_slice(&msg->header), err);
}

static void execute(kg_attach_t *a, const kg_client_msg_t *msg)
{
    kg_err_t err = {0};
    kg_run_t *run = NULL;
    const kg_run_client_opts_t client = {
        .attach = a,
        .header = kg_buf_slice(&msg->header),
        .user_expressions = kg_buf_slice(&msg->execute.user_expressions),
        .metadata = kg_buf_slice(&msg->metadata),
        .silent = msg->execute.silent,
        .store_history = msg->execute.store_history,
        .stop_on_error = msg->execute.stop_on_error,
    };
    const kg_run_opts_t opts = {
        .code = kg_buf_slice(&msg->text),
        .context = a->context->id,
        .stream = true,
        .timeout_ms = -1,
        .retain_s = -1,
        .on_input = msg->execute.allow_stdin ? KG_ON_INPUT_WAIT : KG_ON_INPUT_ERROR,
        .silent = msg->execute.silent || !msg->execute.store_history,
        .client = &client,
    };
    if (kg_run_new(a->context->sandbox, &opts, &run, NULL, &err)) {
        refuse(a, msg, &err);
    } else {
        kg_seen_note(a, msg, run);
    }
}

/* Whose run it is, is asked; others' answers are passed over. */
static void give_input(const kg_attach_t *a, const kg_client_msg_t *msg)
{
    const kg_job_t *job = a->context->current;
    if (job && job->run && job->run->client && job->run->client->attach == a) {
        (void)kg_run_input(job->run, kg_buf_slice(&msg->text), NULL);
    }
}

/* ---- messages for the kernel ---- */

/* What was kept of it for the time of its waiting. */
static void drop_kept(kg_forward_t *f)
{
    f->context->bridge->waiting_bytes -= f->kept;
    f->kept = 0;
    f->msg.buffers = NULL;
    kg_buf_fini(&f->msg.metadata);
    kg_buf_fini(&f->msg.content);
    kg_buf_fini(&f->bytes);
    free(KG_TAKE(f->slices));
}

static void forward_free(kg_forward_t *f)
{
    kg_bridge_t *bridge = f->context->bridge;
    *(f->request ? &bridge->sent : &bridge->waiting) -= 1;
    drop_kept(f);
    DL_DELETE(bridge->forwards, f);
    kg_request_release(&f->request);
    kg_client_msg_fini(&f->msg);
    free(f);
}

void kg_bridge_forget(kg_bridge_t *bridge)
{
    while (bridge->forwards) {
        forward_free(bridge->forwards);
    }
}

/* Who only asked what the kernel is learns of its end by its status: JupyterLab's library turns an
 * error in that reply into a rejection that nobody catches. */
static void forward_failed(kg_forward_t *f, const kg_err_t *err)
{
    bool asks_what_it_is = strcmp(f->msg.msg_type, "kernel_info_request") == 0;
    if (f->attach && !f->answered && !asks_what_it_is) {
        refuse(f->attach, &f->msg, err);
    }
    forward_free(f);
}

static void on_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    kg_forward_t *f = user;
    (void)prepared_take;
    f->answered = f->answered || channel == KG_CHANNEL_SHELL || channel == KG_CHANNEL_CONTROL;
    if (channel == KG_CHANNEL_CONTROL && f->context->inc) {
        kg_subshell_reply(f->context->inc, &f->msg, msg);
    }
    if (f->attach && (channel == KG_CHANNEL_SHELL || channel == KG_CHANNEL_CONTROL)) {
        kg_slice_t header = kg_buf_slice(&f->msg.header);
        kg_bridge_pass(f->context, f->attach, channel, msg, &header);
    }
}

static bool has_reply(kg_client_kind_t kind)
{
    return kind != KG_CLIENT_COMM_OPEN && kind != KG_CLIENT_COMM_MSG &&
           kind != KG_CLIENT_COMM_CLOSE;
}

/* Code, and messages that have no answer: the others may be answered twice. */
static bool is_once(kg_client_kind_t kind)
{
    return kind == KG_CLIENT_EXECUTE || !has_reply(kind);
}

static void on_done(void *user, const kg_request_end_t *end)
{
    kg_forward_t *f = user;
    kg_err_t err = {0};
    if (end->how == KG_REQUEST_NO_IDLE && f->context->bridge) { /* all have heard its busy */
        kg_bridge_idle(f->context, NULL, kg_buf_slice(&f->msg.header));
    }
    bool dead = end->how == KG_REQUEST_DEAD || end->how == KG_REQUEST_CLOSED;
    if (end->how == KG_REQUEST_DONE || f->answered || (!dead && !has_reply(f->msg.kind))) {
        forward_free(f);
        return;
    }
    if (dead) {
        (void)kg_err_set(&err, KG_ERR_KERNEL_PROTOCOL,
                         has_reply(f->msg.kind) ? "The kernel ended before it answered."
                                                : "The kernel ended before it was done with this "
                                                  "message, or had seen it.");
    } else {
        (void)kg_err_set(&err, KG_ERR_KERNEL_TIMEOUT, "The kernel does not answer %s.",
                         f->msg.msg_type);
    }
    forward_failed(f, &err);
}

static void forward_send(kg_forward_t *f)
{
    static const kg_request_sink_t sink = {.on_message = on_message, .on_done = on_done};
    kg_context_t *context = f->context;
    const char *subshell = NULL;
    kg_err_t err = {0};
    if (kg_subshell_choose(context, &f->msg, &subshell, &err)) {
        forward_failed(f, &err);
        return;
    }
    const kg_kernel_forward_t what = {
        .channel = f->msg.channel,
        .msg_type = f->msg.msg_type,
        .subshell_id = subshell,
        .metadata = kg_buf_slice(&f->msg.metadata),
        .content = kg_buf_slice(&f->msg.content),
        .buffers = f->msg.buffers,
        .buffer_count = f->msg.buffer_count,
        .no_reply = !has_reply(f->msg.kind),
    };
    kg_request_t *request = NULL;
    if (kg_kernel_forward(context->inc->kernel, &what, &sink, f, &request, &err)) {
        forward_failed(f, &err);
        return;
    }
    if (f->msg.kind == KG_CLIENT_DELETE_SUBSHELL) {
        kg_subshell_ended(context->inc, f->msg.subshell_id);
    }
    context->bridge->waiting--;
    context->bridge->sent++;
    f->request = request;
    drop_kept(f);
    kg_bridge_note(context, kg_request_msg_id(request), kg_buf_slice(&f->msg.header), true);
}

static size_t buffer_bytes(const kg_client_msg_t *msg)
{
    size_t bytes = 0;
    for (size_t i = 0; i < msg->buffer_count; i++) {
        bytes += msg->buffers[i].len; /* all of one frame */
    }
    return bytes;
}

static size_t message_bytes(const kg_client_msg_t *msg)
{
    return msg->header.len + msg->metadata.len + msg->content.len + buffer_bytes(msg);
}

/* What was borrowed of the frame is kept for as long as it waits. */
static int keep_buffers(kg_forward_t *f)
{
    size_t bytes = buffer_bytes(&f->msg);
    size_t count = f->msg.buffer_count;
    f->kept = message_bytes(&f->msg);
    f->context->bridge->waiting_bytes += f->kept;
    f->slices = calloc(count ? count : 1, sizeof(*f->slices));
    if (!f->slices || kg_buf_reserve(&f->bytes, bytes)) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        f->slices[i] = kg_slice(f->bytes.data + f->bytes.len, f->msg.buffers[i].len);
        (void)kg_buf_append_slice(&f->bytes, f->msg.buffers[i]); /* there is room */
    }
    f->msg.buffers = f->slices;
    return 0;
}

static bool may_go(const kg_context_t *context, const kg_client_msg_t *msg)
{
    return kernel_usable(context) && !kg_subshell_waits(context, msg);
}

static int check_room(const kg_context_t *context, const kg_client_msg_t *msg, kg_err_t *err)
{
    const kg_bridge_t *bridge = context->bridge;
    if (bridge->waiting >= KG_FORWARDS_WAIT_MAX || bridge->sent >= KG_FORWARDS_SENT_MAX) {
        return kg_err_set(err, KG_ERR_QUEUE_FULL, "%u messages wait for this kernel already.",
                          bridge->waiting + bridge->sent);
    }
    if (!may_go(context, msg) &&
        bridge->waiting_bytes + message_bytes(msg) > KG_FORWARDS_WAIT_BYTES) {
        return kg_err_set(err, KG_ERR_QUEUE_FULL,
                          "Messages of %zu bytes wait for this kernel already.",
                          bridge->waiting_bytes);
    }
    return kg_subshell_check_room(context, msg, err);
}

/* Takes msg. */
static void forward(kg_attach_t *a, kg_client_msg_t *msg)
{
    kg_context_t *context = a->context;
    kg_bridge_t *bridge = context->bridge;
    kg_err_t err = {0};
    int rc = check_room(context, msg, &err);
    kg_forward_t *f = rc == 0 ? calloc(1, sizeof(*f)) : NULL;
    if (!f) {
        (void)(rc ? rc : kg_oom(&err));
        refuse(a, msg, &err);
        return;
    }
    if (is_once(msg->kind)) {
        kg_seen_note(a, msg, NULL);
    }
    f->context = context;
    f->attach = a;
    f->msg = *msg;
    *msg = (kg_client_msg_t){0};
    DL_APPEND(bridge->forwards, f);
    bridge->waiting++;
    if (f->msg.kind != KG_CLIENT_KERNEL_INFO) {
        kg_sandbox_touch(context->sandbox); /* clients ask for that alone, and often */
    }
    if (may_go(context, &f->msg)) {
        forward_send(f);
    } else if (keep_buffers(f)) {
        (void)kg_oom(&err);
        forward_failed(f, &err);
    } else {
        kg_bridge_pump(context);
    }
}

void kg_bridge_pump(kg_context_t *context)
{
    kg_bridge_t *bridge = context->bridge;
    if (!bridge || !bridge->waiting || context->gone) {
        return;
    }
    if (context->sandbox->pause != KG_PAUSE_NO) {
        kg_pause_wake(context->sandbox);
        return;
    }
    if (context->state == KG_CTX_DOWN || context->state == KG_CTX_DEAD) {
        context->state = KG_CTX_DOWN;
        kg_context_start(context);
        return;
    }
    kg_forward_t *f = NULL;
    kg_forward_t *next = NULL;
    DL_FOREACH_SAFE (bridge->forwards, f, next) {
        if (!f->request && may_go(context, &f->msg)) {
            forward_send(f);
        }
    }
}

/* ---- what happens to the kernel ---- */

void kg_bridge_ready(kg_inc_t *inc, kg_json_value_t info)
{
    kg_buf_clear(&inc->info);
    if (info.type == KG_JSON_OBJECT && kg_json_copy(&inc->info, info)) {
        kg_buf_fini(&inc->info); /* it is asked each time */
    }
    if (inc->context->bridge) {
        kg_bridge_status(inc->context, NULL, kg_bridge_state(inc->context), (kg_slice_t){0});
    }
}

void kg_attach_expect_restart(kg_attach_t *attach, bool expected)
{
    attach->expects_restart = expected;
}

/* For restarting JupyterLab tells its user that the kernel appears to have died. */
static void say_restarting(kg_context_t *context)
{
    kg_attach_t *a = NULL;
    kg_attach_t *next = NULL;
    DL_FOREACH_SAFE (context->bridge->attaches, a, next) {
        const char *state = a->expects_restart ? "starting" : "restarting";
        a->expects_restart = false;
        kg_bridge_status(context, a, state, (kg_slice_t){0});
    }
}

void kg_bridge_kernel_closed(kg_context_t *context, bool was_ready)
{
    kg_bridge_t *bridge = context->bridge;
    kg_forward_t *f = NULL;
    kg_forward_t *next = NULL;
    kg_err_t err = {0};
    if (!bridge) {
        return;
    }
    (void)kg_err_set(&err, KG_ERR_KERNEL_PROTOCOL, "The kernel ended before it answered.");
    DL_FOREACH_SAFE (bridge->forwards, f, next) {
        if (f->request || context->gone) {
            forward_failed(f, &err);
        }
    }
    if (was_ready && !context->gone && !context->core->draining && !context->core->destroying) {
        say_restarting(context);
    }
}

void kg_bridge_dead(kg_context_t *context, const kg_err_t *why)
{
    kg_bridge_t *bridge = context->bridge;
    while (bridge && bridge->forwards) {
        forward_failed(bridge->forwards, why);
    }
    if (bridge) {
        kg_bridge_status(context, NULL, "dead", (kg_slice_t){0});
    }
}

/* ---- the client speaks ---- */

unsigned kg_bridge_features(const kg_context_t *context)
{
    kg_json_value_t info = {0};
    unsigned features = 0;
    if (!context->inc || !context->inc->info.len ||
        kg_json_check(kg_buf_slice(&context->inc->info), KG_JSON_DEPTH_MAX, &info)) {
        return 0;
    }
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value = kg_json_get(info, "supported_features");
    features |= kg_json_get(info, "debugger").type == KG_JSON_TRUE ? KG_CLIENT_DEBUGGER : 0;
    if (value.type != KG_JSON_ARRAY) {
        return features;
    }
    kg_json_iter_init(&it, value);
    while (kg_json_iter_next(&it, &key, &value)) {
        features |= kg_slice_eq_cstr(value.raw, "\"debugger\"") ? KG_CLIENT_DEBUGGER : 0;
        features |= kg_slice_eq_cstr(value.raw, "\"kernel subshells\"") ? KG_CLIENT_SUBSHELLS : 0;
    }
    return features;
}

/* A kernel that is at a cell, or asleep, need not be asked: clients wait for this before they do
 * anything. */
static bool answer_info(kg_attach_t *a, const kg_client_msg_t *msg)
{
    const kg_context_t *context = a->context;
    bool asked = kernel_usable(context) && !kg_context_running(context);
    if (asked || !context->inc || !context->inc->info.len) {
        return false;
    }
    kg_json_value_t info = {0};
    kg_slice_t text = kg_buf_slice(&context->inc->info);
    KG_AUTO_BUF kg_buf_t content = {0};
    int rc = kg_json_check(text, KG_JSON_DEPTH_MAX, &info);
    if (rc == 0 && kg_json_get(info, "status").type == KG_JSON_ABSENT && text.len > 2) {
        rc = kg_buf_append_cstr(&content, "{\"status\":\"ok\",");
        text = kg_slice(text.data + 1, text.len - 1);
    }
    if (rc || kg_buf_append_slice(&content, text)) {
        return false;
    }
    kg_bridge_answer(a->context, a, msg->channel, msg->msg_type, kg_buf_slice(&msg->header),
                     kg_buf_slice(&content));
    return true;
}

static void shut_down(kg_attach_t *a, const kg_client_msg_t *msg)
{
    kg_err_t err = {0};
    if (a->sink.may_shutdown(a->user, msg->restart, &err)) {
        refuse(a, msg, &err);
        return;
    }
    kg_bridge_answer(a->context, a, msg->channel, msg->msg_type, kg_buf_slice(&msg->header),
                     kg_slice_cstr(msg->restart ? "{\"status\":\"ok\",\"restart\":true}"
                                                : "{\"status\":\"ok\",\"restart\":false}"));
    a->sink.on_shutdown(a->user, msg->restart);
}

static void act(kg_attach_t *a, kg_client_msg_t *msg)
{
    bool interrupted = false;
    if (is_once(msg->kind) && kg_seen_before(a, msg)) {
        return;
    }
    kg_slice_t header = kg_buf_slice(&msg->header);
    switch ((int)msg->kind) {
    case KG_CLIENT_EXECUTE:
        execute(a, msg);
        break;
    case KG_CLIENT_INPUT_REPLY:
        give_input(a, msg);
        break;
    case KG_CLIENT_INTERRUPT:
        (void)kg_context_interrupt(a->context, &interrupted, NULL);
        kg_bridge_answer(a->context, a, msg->channel, msg->msg_type, header,
                         kg_slice_cstr("{\"status\":\"ok\"}"));
        break;
    case KG_CLIENT_SHUTDOWN:
        shut_down(a, msg);
        break;
    default:
        if (msg->kind != KG_CLIENT_KERNEL_INFO || !answer_info(a, msg)) {
            forward(a, msg);
        }
        break;
    }
}

int kg_attach_send(kg_attach_t *a, const kg_ws_msg_t *frame, kg_err_t *err)
{
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_err_t why = {0};
    if (!a->context) {
        return 0;
    }
    int rc = kg_client_msg_open(frame, &msg, err);
    if (rc) {
        return rc;
    }
    const kg_client_limits_t limits = {
        .code_max = a->context->core->config.code_max,
        .content_max = CONTENT_MAX,
        .features = kg_bridge_features(a->context),
    };
    if (kg_client_msg_check(frame, &limits, &msg, &why) ||
        (a->context->core->draining && kg_core_ready(a->context->core, &why))) {
        refuse(a, &msg, &why);
    } else {
        act(a, &msg);
    }
    return 0;
}

int kg_attach_refuse(kg_attach_t *a,
                     const kg_ws_msg_t *frame,
                     const kg_err_t *refusal,
                     kg_err_t *err)
{
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    int rc = a->context ? kg_client_msg_open(frame, &msg, err) : 0;
    if (rc == 0 && a->context) {
        refuse(a, &msg, refusal);
    }
    return rc;
}
