/* gateway/context: what attached clients hear. Messages of the kernel pass as they are, but that
 * each is under the header that its client knows; what the kernel does not say (that it has gone,
 * that a run never started) is said in its voice, for clients drop what comes under another
 * session. */
#include <inttypes.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"

#define PROTOCOL_VERSION "5.3"

static kg_slice_t empty_object(void)
{
    return kg_slice_cstr("{}");
}

static void deliver_one(kg_attach_t *a, const kg_ws_msg_t *msg)
{
    if (a->away) {
        kg_attach_missed(a, msg);
    } else {
        a->sink.on_message(a->user, msg);
    }
}

/* None of them may close another from inside. */
void kg_bridge_deliver(const kg_context_t *context, kg_attach_t *to, const kg_ws_msg_t *msg)
{
    kg_attach_t *a = NULL;
    kg_attach_t *next = NULL;
    if (to) {
        deliver_one(to, msg);
        return;
    }
    DL_FOREACH_SAFE (context->bridge->attaches, a, next) {
        if (a->sink.part != KG_ATTACH_ASKS) {
            deliver_one(a, msg);
        }
    }
}

/* ---- in its voice ---- */

static const char *voice_of(const kg_context_t *context)
{
    if (context->inc && context->inc->voice[0]) {
        return context->inc->voice;
    }
    return context->bridge->voice[0] ? context->bridge->voice : context->id;
}

static int write_header(kg_context_t *context, const char *msg_type, kg_buf_t *out)
{
    char date[KG_TIME_LEN];
    const char *voice = voice_of(context);
    kg_time_format(kg_wall_ns(), date);
    int rc = kg_buf_printf(out, "{\"msg_id\":\"%s_%" PRIu64 "\",\"msg_type\":\"%s\",", context->id,
                           ++context->bridge->said, msg_type);
    rc = rc ? rc : kg_buf_append_cstr(out, "\"username\":\"sandal\",\"session\":");
    rc = rc ? rc : kg_json_quote(out, voice, strlen(voice));
    return rc ? rc
              : kg_buf_printf(out, ",\"date\":\"%s\",\"version\":\"" PROTOCOL_VERSION "\"}", date);
}

void kg_bridge_say(kg_context_t *context,
                   kg_attach_t *to,
                   kg_channel_t channel,
                   const char *msg_type,
                   kg_slice_t parent,
                   kg_slice_t content)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    if (!context->bridge || write_header(context, msg_type, &header)) {
        return;
    }
    const kg_ws_msg_t msg = {
        .channel = channel,
        .parts = {kg_buf_slice(&header), parent.len ? parent : empty_object(), empty_object(),
                  content},
    };
    kg_bridge_deliver(context, to, &msg);
}

void kg_attach_say(kg_attach_t *attach,
                   kg_channel_t channel,
                   const char *msg_type,
                   kg_slice_t parent,
                   kg_slice_t content)
{
    if (attach->context) {
        kg_bridge_say(attach->context, attach, channel, msg_type, parent, content);
    }
}

void kg_bridge_status(kg_context_t *context, kg_attach_t *to, const char *state, kg_slice_t parent)
{
    char content[64];
    (void)kg_format(content, sizeof(content), "{\"execution_state\":\"%s\"}", state);
    kg_bridge_say(context, to, KG_CHANNEL_IOPUB, "status", parent, kg_slice_cstr(content));
}

/* "x_request" -> "x_reply"; false: such a message has none. */
static bool reply_type(const char *request_type, char ret[64])
{
    const char *end = strstr(request_type, "_request");
    return end && kg_format(ret, 64, "%.*s_reply", (int)(end - request_type), request_type) == 0;
}

static kg_slice_t running_header(const kg_context_t *context)
{
    const kg_job_t *job = context->current;
    bool known = job && job->run && job->run->client;
    return known ? kg_buf_slice(&job->run->client->header) : (kg_slice_t){0};
}

/* An idle was said, of something else than the cell: clients take each for the kernel's. */
static void still(kg_context_t *context, kg_attach_t *to)
{
    const char *state = kg_bridge_state(context);
    if (strcmp(state, "idle") != 0) {
        kg_bridge_status(context, to, state, running_header(context));
    }
}

void kg_bridge_idle(kg_context_t *context, kg_attach_t *to, kg_slice_t parent)
{
    kg_bridge_status(context, to, "idle", parent);
    still(context, to);
}

/* content: of the reply, and of an error on iopub for people to see (empty: none), or because there
 * is no reply. */
static void answer(kg_context_t *context,
                   kg_attach_t *to,
                   kg_channel_t channel,
                   const char *request_type,
                   kg_slice_t parent,
                   const kg_slice_t content[2])
{
    char type[64];
    if (!to) {
        return;
    }
    kg_bridge_status(context, to, "busy", parent);
    if (content[1].len > 0) {
        kg_bridge_say(context, to, KG_CHANNEL_IOPUB, "error", parent, content[1]);
    }
    if (reply_type(request_type, type)) {
        kg_bridge_say(context, to, channel, type, parent, content[0]);
    }
    kg_bridge_idle(context, to, parent);
}

void kg_bridge_answer(kg_context_t *context,
                      kg_attach_t *to,
                      kg_channel_t channel,
                      const char *request_type,
                      kg_slice_t parent,
                      kg_slice_t content)
{
    answer(context, to, channel, request_type, parent, (kg_slice_t[2]){content});
}

static int write_error(kg_buf_t *out, const char *before, const char *name, const char *text)
{
    int rc = kg_buf_printf(out, "{%s\"ename\":", before);
    rc = rc ? rc : kg_json_quote(out, name, strlen(name));
    rc = rc ? rc : kg_buf_append_cstr(out, ",\"evalue\":");
    rc = rc ? rc : kg_json_quote(out, text, strlen(text));
    rc = rc ? rc : kg_buf_append_cstr(out, ",\"traceback\":[");
    rc = rc ? rc : kg_json_quote(out, text, strlen(text));
    return rc ? rc : kg_buf_append_cstr(out, "]}");
}

void kg_bridge_refuse(kg_context_t *context,
                      kg_attach_t *to,
                      kg_channel_t channel,
                      const char *request_type,
                      kg_slice_t parent,
                      const kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t reply = {0};
    KG_AUTO_BUF kg_buf_t shown = {0};
    const char *name = kg_err_name(err->code);
    if (write_error(&reply, "\"status\":\"error\",", name, err->message) ||
        write_error(&shown, "", name, err->message)) {
        return;
    }
    char type[64];
    bool people = strcmp(request_type, "execute_request") == 0 || !reply_type(request_type, type);
    const kg_slice_t content[2] = {kg_buf_slice(&reply),
                                   people ? kg_buf_slice(&shown) : (kg_slice_t){0}};
    answer(context, to, channel, request_type, parent, content);
}

/* Until its idle, not its reply, which may come later: nothing is said after both. */
static bool cell_works(const kg_context_t *context)
{
    const kg_run_t *run = context->current ? context->current->run : NULL;
    return kg_context_running(context) && !(run && run->live && run->live->idled);
}

const char *kg_bridge_state(const kg_context_t *context)
{
    switch (context->state) {
    case KG_CTX_READY:
        return cell_works(context) ? "busy" : "idle";
    case KG_CTX_DEAD:
        return "dead";
    case KG_CTX_ENDING: /* restarting is told once, when it has ended: see attach.c */
        return context->gone ? "dead" : "starting";
    case KG_CTX_DOWN:
    case KG_CTX_STARTING:
        break;
    }
    return "starting";
}

/* What the kernel says of it is under a header that no client knows, and its idle counts as one of
 * the gateway's own: who was greeted with busy would wait for ever. */
void kg_bridge_cell_over(kg_context_t *context)
{
    if (context->bridge && !context->gone) {
        kg_bridge_status(context, NULL, kg_bridge_state(context), (kg_slice_t){0});
    }
}

void kg_attach_greet(kg_attach_t *attach)
{
    kg_context_t *context = attach->context;
    if (context) {
        kg_bridge_status(context, attach, kg_bridge_state(context), running_header(context));
    }
}

/* ---- headers that clients know ---- */

static kg_parent_t *find_parent(const kg_bridge_t *bridge, const char *msg_id)
{
    kg_parent_t *found = NULL;
    HASH_FIND_STR(bridge->parents, msg_id, found);
    return found;
}

static void drop_oldest(kg_bridge_t *bridge)
{
    kg_parent_t *oldest = bridge->parents;
    if (oldest) {
        HASH_DEL(bridge->parents, oldest);
        free(oldest);
    }
}

void kg_bridge_note(kg_context_t *context, const char *msg_id, kg_slice_t header, bool forward)
{
    kg_bridge_t *bridge = context->bridge;
    size_t id_len = strlen(msg_id);
    kg_parent_t *parent = bridge ? calloc(1, sizeof(*parent) + id_len + 1 + header.len) : NULL;
    if (!parent) {
        return; /* they get what the kernel says */
    }
    memcpy(parent->text, msg_id, id_len);
    memcpy(parent->text + id_len + 1, header.data, header.len);
    parent->header = kg_slice(parent->text + id_len + 1, header.len);
    parent->forward = forward;
    if (HASH_COUNT(bridge->parents) >= KG_PARENTS_MAX) {
        drop_oldest(bridge);
    }
    HASH_ADD_KEYPTR(hh, bridge->parents, parent->text, id_len, parent);
}

bool kg_bridge_is_forward(const kg_context_t *context, const char *msg_id)
{
    const kg_parent_t *parent = context->bridge ? find_parent(context->bridge, msg_id) : NULL;
    return parent && parent->forward;
}

void kg_bridge_free(kg_context_t *context)
{
    kg_bridge_t *bridge = context->bridge;
    if (!bridge) {
        return;
    }
    kg_bridge_end(context, !context->core->destroying && !context->core->draining);
    kg_bridge_forget(bridge);
    while (bridge->parents) {
        drop_oldest(bridge);
    }
    kg_seen_free(bridge);
    free(bridge);
    context->bridge = NULL;
}

/* ---- messages of the kernel ---- */

/* Clients take a reply without a status for a failure; one kernel sends such. */
static int with_status(const kg_jmsg_t *msg, kg_buf_t *store, kg_slice_t *content)
{
    size_t len = strlen(msg->msg_type);
    bool reply = len > 6 && strcmp(msg->msg_type + len - 6, "_reply") == 0;
    if (!reply || kg_json_get(msg->content, "status").type != KG_JSON_ABSENT) {
        return 0;
    }
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_slice_t rest = kg_slice(content->data + 1, content->len - 1);
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    kg_json_iter_init(&it, (kg_json_value_t){KG_JSON_OBJECT, *content});
    bool more = kg_json_iter_next(&it, &key, &value);
    int rc = kg_buf_append_cstr(&out, more ? "{\"status\":\"ok\"," : "{\"status\":\"ok\"");
    rc = rc ? rc : kg_buf_append_slice(&out, rest);
    if (rc == 0) {
        kg_buf_fini(store);
        *store = out;
        out = (kg_buf_t){0};
        *content = kg_buf_slice(store);
    }
    return rc;
}

void kg_bridge_pass(kg_context_t *context,
                    kg_attach_t *to,
                    kg_channel_t channel,
                    const kg_jmsg_t *msg,
                    const kg_slice_t *parent)
{
    const kg_json_value_t parts[KG_WS_PARTS] = {msg->header, msg->parent_header, msg->metadata,
                                                msg->content};
    kg_buf_t stores[KG_WS_PARTS] = {0};
    kg_ws_msg_t out = {.channel = channel,
                       .buffers = msg->buffers,
                       .buffer_count = msg->buffer_count,
                       .hold = msg->hold};
    int rc = 0;
    for (size_t i = 0; i < KG_WS_PARTS && rc == 0; i++) {
        rc = kg_ws_clean_part(parts[i], i >= 2 && msg->deep, &stores[i], &out.parts[i]);
    }
    out.parts[1] = parent ? *parent : out.parts[1];
    rc = rc ? rc : with_status(msg, &stores[3], &out.parts[3]);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        out.held[i] = out.hold.owner && out.parts[i].data == parts[i].raw.data;
    }
    if (rc == 0) {
        kg_bridge_deliver(context, to, &out);
    }
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        kg_buf_fini(&stores[i]);
    }
}

/* Clients throw at a state that they don't know. */
static bool state_known(kg_slice_t state)
{
    static const char *const known[] = {"\"starting\"", "\"idle\"", "\"busy\"", "\"restarting\"",
                                        "\"dead\""};
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++) {
        if (kg_slice_eq_cstr(state, known[i])) {
            return true;
        }
    }
    return false;
}

static bool is_current(const kg_context_t *context, const char *msg_id)
{
    const kg_job_t *job = context->current;
    return job && job->kind == KG_JOB_RUN && job->run->request &&
           strcmp(kg_request_msg_id(job->run->request), msg_id) == 0;
}

/* The kernel is busy with what the gateway itself asks, of which clients know nothing. */
static bool is_hidden(const kg_inc_t *inc, const kg_jmsg_t *msg)
{
    if (strcmp(msg->msg_type, "iopub_welcome") == 0) { /* to the gateway's own subscription */
        return true;
    }
    if (strcmp(msg->msg_type, "status") != 0) {
        return false;
    }
    kg_slice_t state = kg_json_get(msg->content, "execution_state").raw;
    /* A kernel says starting as it begins, which is heard only when clients know it to be ready. */
    if (!state_known(state) || (inc->ready_ns && kg_slice_eq_cstr(state, "\"starting\""))) {
        return true;
    }
    return inc->kernel && kg_kernel_is_ours(inc->kernel, msg->parent_id) &&
           !find_parent(inc->context->bridge, msg->parent_id) &&
           !is_current(inc->context, msg->parent_id);
}

static bool is_idle(const kg_jmsg_t *msg)
{
    return strcmp(msg->msg_type, "status") == 0 &&
           kg_slice_eq_cstr(kg_json_get(msg->content, "execution_state").raw, "\"idle\"");
}

void kg_bridge_iopub(kg_inc_t *inc, const kg_jmsg_t *msg)
{
    if (!inc->voice[0]) {
        (void)kg_format(inc->voice, sizeof(inc->voice), "%s", msg->session);
    }
    kg_context_t *context = inc->context;
    kg_bridge_t *bridge = context ? context->bridge : NULL;
    bool idle = context && is_idle(msg);
    bool of_cell = idle && is_current(context, msg->parent_id);
    if (of_cell && context->current->run->live) {
        context->current->run->live->idled = true;
    }
    if (!bridge || !bridge->attaches || is_hidden(inc, msg)) {
        return;
    }
    if (strcmp(bridge->voice, inc->voice) != 0) {
        memcpy(bridge->voice, inc->voice, sizeof(bridge->voice));
    }
    const kg_parent_t *parent = find_parent(bridge, msg->parent_id);
    kg_slice_t header = {0};
    if (parent) {
        header = parent->header;
    } else if (is_current(context, msg->parent_id)) { /* much was asked while it runs */
        header = running_header(context);
    }
    kg_bridge_pass(context, NULL, KG_CHANNEL_IOPUB, msg, header.len > 0 ? &header : NULL);
    if (idle && !of_cell && context->state == KG_CTX_READY) { /* of control's, or a subshell's */
        still(context, NULL);
    }
}

void kg_bridge_text(kg_inc_t *inc, bool is_stderr, kg_slice_t utf8)
{
    kg_context_t *context = inc->context;
    KG_AUTO_BUF kg_buf_t content = {0};
    /* What it says while it starts is in the log alone. */
    if (!context || !inc->ready_ns || !context->bridge || !context->bridge->attaches) {
        return;
    }
    int rc = kg_buf_printf(&content, "{\"name\":\"%s\",\"text\":", is_stderr ? "stderr" : "stdout");
    rc = rc ? rc : kg_json_quote(&content, utf8.data, utf8.len);
    rc = rc ? rc : kg_buf_append_char(&content, '}');
    if (rc == 0) {
        kg_bridge_say(context, NULL, KG_CHANNEL_IOPUB, "stream", running_header(context),
                      kg_buf_slice(&content));
    }
}

/* ---- runs of clients ---- */

/* As kernels do of what is queued in them: what the same client sent behind a failed cell does not
 * run. */
static void abort_queued(const kg_run_t *failed)
{
    kg_job_t *job = NULL;
    kg_job_t *next = NULL;
    const kg_attach_t *attach = failed->client->attach;
    if (!attach || !failed->context) {
        return;
    }
    DL_FOREACH_SAFE (failed->context->jobs, job, next) {
        if (job->run && job->run->client && job->run->client->attach == attach) {
            job->run->cause = job->run->cause ? job->run->cause : KG_CAUSE_ABORT;
            kg_run_end_now(job->run, false);
        }
    }
}

void kg_run_client_message(kg_run_t *run, kg_channel_t channel, const kg_jmsg_t *msg)
{
    kg_run_client_t *client = run->client;
    kg_context_t *context = run->context;
    if (!context || !context->bridge) {
        return;
    }
    kg_slice_t header = kg_buf_slice(&client->header);
    if (client->attach) {
        kg_bridge_pass(context, client->attach, channel, msg, &header);
    }
    if (channel == KG_CHANNEL_STDIN) {
        kg_buf_clear(&client->question);
        (void)kg_json_copy(&client->question, msg->content); /* else it is not put again */
    }
    if (channel != KG_CHANNEL_SHELL) {
        return;
    }
    client->replied = true;
    kg_slice_t status = kg_json_get(msg->content, "status").raw;
    if (client->stop_on_error && kg_slice_eq_cstr(status, "\"error\"")) {
        abort_queued(run);
    }
}

/* The run of its that waits for its input. NULL: there is none. */
static kg_run_t *asking_run(const kg_attach_t *attach)
{
    const kg_job_t *job = attach->context ? attach->context->current : NULL;
    kg_run_t *run = job ? job->run : NULL;
    bool asks = run && run->client && run->client->attach == attach && !run->ended &&
                run->live->input_header.len > 0 && run->client->question.len > 0;
    return asks ? run : NULL;
}

static void put_question(const kg_run_t *run)
{
    kg_bridge_say(run->context, run->client->attach, KG_CHANNEL_STDIN, "input_request",
                  kg_buf_slice(&run->client->header), kg_buf_slice(&run->client->question));
}

bool kg_attach_is_asked(const kg_attach_t *attach)
{
    return asking_run(attach) != NULL;
}

void kg_attach_ask_again(kg_attach_t *attach)
{
    const kg_run_t *run = asking_run(attach);
    if (run) {
        put_question(run);
    }
}

void kg_run_client_take(kg_run_t *run, kg_attach_t *attach)
{
    kg_run_client_t *client = run->client;
    bool other = client->attach != attach;
    client->attach = attach;
    if (other && run->live->input_header.len > 0 && client->question.len > 0) {
        put_question(run);
    }
    kg_run_client_waits(run);
}

/* Why the kernel did not reply; and on iopub, for a notebook keeps of a cell what comes there. */
static void say_reply(const kg_run_t *run, kg_context_t *context)
{
    kg_run_status_t status = kg_mapper_status(run->mapper);
    const kg_run_client_t *client = run->client;
    kg_slice_t header = kg_buf_slice(&client->header);
    KG_AUTO_BUF kg_buf_t content = {0};
    KG_AUTO_BUF kg_buf_t shown = {0};
    const char *name = kg_run_status_name(status);
    char text[160];
    if (!run->started && status == KG_RUN_ABORTED) {
        kg_bridge_say(context, client->attach, KG_CHANNEL_SHELL, "execute_reply", header,
                      kg_slice_cstr("{\"status\":\"aborted\"}"));
        return;
    }
    (void)kg_format(text, sizeof(text), "Run %s ended without a reply of the kernel: %s.", run->id,
                    name);
    if (!kg_mapper_state(run->mapper)->error_seen && write_error(&shown, "", name, text) == 0) {
        kg_bridge_say(context, run->started ? NULL : client->attach, KG_CHANNEL_IOPUB, "error",
                      header, kg_buf_slice(&shown));
    }
    if (write_error(&content, "\"status\":\"error\",", name, text) == 0) {
        kg_bridge_say(context, client->attach, KG_CHANNEL_SHELL, "execute_reply", header,
                      kg_buf_slice(&content));
    }
}

void kg_run_client_ended(kg_run_t *run)
{
    kg_run_client_t *client = run->client;
    kg_context_t *context = run->context;
    if (client && context && context->bridge && !context->core->destroying) {
        if (client->attach && !client->replied) {
            say_reply(run, context);
        }
        if (context->bridge->attaches && !kg_mapper_state(run->mapper)->idle) {
            kg_bridge_status(context, run->started ? NULL : client->attach, "idle",
                             kg_buf_slice(&client->header));
        }
    }
    kg_run_client_destroy(&run->client);
}
