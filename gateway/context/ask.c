/* gateway/context: questions to a kernel: completions, docs, variables. They take their place in
 * the queue like runs, and answer JSON text made from the kernel's reply without building a tree.
 */
#include <stdint.h>
#include <string.h>

#include "gateway/base/utf8.h"
#include "gateway/context/internal.h"
#include "proto/json_scan.h"

enum {
    ASK_WAIT_MS = 60000,  /* for a kernel that has to be started first */
    ASK_REPLY_MS = 30000, /* the first completion loads and parses a library: seconds */
    ASK_CODE_MAX = 1 << 20,
};

static int append_value(kg_buf_t *out, const char *head, kg_json_value_t value, const char *absent)
{
    int rc = kg_buf_append_cstr(out, head);
    if (rc) {
        return rc;
    }
    return value.type == KG_JSON_ABSENT ? kg_buf_append_cstr(out, absent)
                                        : kg_json_copy(out, value);
}

static void read_complete(kg_job_t *job, const kg_jmsg_t *msg)
{
    static const char *const names[] = {"matches", "cursor_start", "cursor_end"};
    kg_json_value_t v[3];
    kg_json_get_many(msg->content, names, v, 3);
    bool good =
        v[0].type == KG_JSON_ARRAY && v[1].type == KG_JSON_NUMBER && v[2].type == KG_JSON_NUMBER;
    kg_buf_clear(&job->reply);
    int rc = 0;
    if (good) {
        rc = append_value(&job->reply, "{\"matches\":", v[0], "[]");
        rc = rc ? rc : append_value(&job->reply, ",\"start\":", v[1], "0");
        rc = rc ? rc : append_value(&job->reply, ",\"end\":", v[2], "0");
        rc = rc ? rc : kg_buf_append_char(&job->reply, '}');
    } else {
        rc = kg_buf_printf(&job->reply, "{\"matches\":[],\"start\":%zu,\"end\":%zu}", job->cursor,
                           job->cursor);
    }
    job->replied = rc == 0;
}

static int append_plain(kg_buf_t *out, kg_json_value_t value)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    kg_ansi_strip_t strip = {0};
    if (value.type != KG_JSON_STRING) {
        return kg_json_copy(out, value);
    }
    int rc = kg_json_copy_string_body(&body, value);
    rc = rc ? rc : kg_buf_append_char(out, '"');
    rc = rc ? rc : kg_ansi_strip_escaped(&strip, out, body.data ? body.data : "", body.len);
    return rc ? rc : kg_buf_append_char(out, '"');
}

/* A kernel's formats of a page of help: kernels colour its text for terminals, and what reads it is
 * none. */
static int append_formats(kg_buf_t *out, kg_json_value_t data)
{
    KG_AUTO_BUF kg_buf_t whole = {0};
    kg_json_value_t value = {0};
    kg_json_iter_t it;
    kg_slice_t key;
    int rc = kg_json_copy(&whole, data); /* each key once */
    rc = rc ? rc : kg_json_check(kg_buf_slice(&whole), KG_JSON_DEPTH_MAX, &value);
    rc = rc ? rc : kg_buf_append_char(out, '{');
    kg_json_iter_init(&it, value);
    for (bool first = true; !rc && kg_json_iter_next(&it, &key, &value); first = false) {
        rc = first ? 0 : kg_buf_append_char(out, ',');
        rc = rc ? rc : kg_buf_append(out, key.data, key.len);
        rc = rc ? rc : kg_buf_append_char(out, ':');
        rc = rc ? rc : append_plain(out, value);
    }
    return rc ? rc : kg_buf_append_char(out, '}');
}

static void read_inspect(kg_job_t *job, const kg_jmsg_t *msg)
{
    kg_json_value_t data = kg_json_get(msg->content, "data");
    bool found =
        kg_json_get(msg->content, "found").type == KG_JSON_TRUE && data.type == KG_JSON_OBJECT;
    kg_buf_clear(&job->reply);
    int rc = kg_buf_append_cstr(&job->reply, found ? "{\"found\":true,\"formats\":"
                                                   : "{\"found\":false,\"formats\":{}");
    rc = rc || !found ? rc : append_formats(&job->reply, data);
    rc = rc ? rc : kg_buf_append_char(&job->reply, '}');
    job->replied = rc == 0;
}

static void on_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    kg_job_t *job = user;
    (void)prepared_take;
    if (channel != KG_CHANNEL_SHELL || job->replied) {
        return;
    }
    if (job->kind == KG_JOB_COMPLETE && strcmp(msg->msg_type, "complete_reply") == 0) {
        read_complete(job, msg);
    } else if (job->kind == KG_JOB_INSPECT && strcmp(msg->msg_type, "inspect_reply") == 0) {
        read_inspect(job, msg);
    }
}

static void on_done(void *user, const kg_request_end_t *end)
{
    kg_job_t *job = user;
    kg_err_t err = {0};
    if (end->how == KG_REQUEST_DEAD || end->how == KG_REQUEST_CLOSED) {
        return; /* the exit follows and ends the job */
    }
    if (job->replied) {
        kg_wait_reply(&job->wait, kg_buf_slice(&job->reply), NULL);
    } else {
        (void)kg_err_set(&err, KG_ERR_KERNEL_TIMEOUT, "the kernel did not answer");
        kg_wait_reply(&job->wait, (kg_slice_t){0}, &err);
    }
    kg_job_finished(job->context);
}

/* The expression raised because the module is not there? It can be removed while kernels run. */
static bool module_missing(const kg_job_t *job)
{
    kg_json_value_t raised;
    if (!job->failed || kg_json_check(kg_buf_slice(&job->reply), KG_JSON_DEPTH_MAX, &raised)) {
        return false;
    }
    kg_slice_t name = kg_json_get(raised, "ename").raw;
    kg_slice_t what = kg_json_get(raised, "evalue").raw;
    return kg_slice_eq_cstr(name, "\"ModuleNotFoundError\"") &&
           kg_slice_eq_cstr(what, "\"No module named 'sandal_context'\"");
}

void kg_variables_done(kg_job_t *job, bool alive)
{
    kg_err_t err = {0};
    if (!alive) {
        return;
    }
    if (job->replied && !job->failed) {
        kg_wait_reply(&job->wait, kg_buf_slice(&job->reply), NULL);
        kg_job_finished(job->context);
        return;
    }
    if (job->overdue) {
        (void)kg_err_set(&err, KG_ERR_KERNEL_TIMEOUT, "the kernel did not answer in time");
    } else if (module_missing(job)) {
        (void)kg_err_set(&err, KG_ERR_NOT_SUPPORTED,
                         "the kernel cannot list its variables: its start-up file is missing");
        kg_err_hint(&err, "scripts/setup builds the templates.");
    } else {
        (void)kg_err_set(&err, KG_ERR_KERNEL_PROTOCOL,
                         job->kind == KG_JOB_HELPER
                             ? "the kernel failed at what the gateway asked of it"
                             : "the kernel failed to list its variables");
    }
    kg_wait_reply(&job->wait, (kg_slice_t){0}, &err);
    kg_job_finished(job->context);
}

int kg_ask_start(kg_job_t *job, kg_err_t *err)
{
    if (job->kind == KG_JOB_VARIABLES || job->kind == KG_JOB_HELPER) {
        const char *expression = job->kind == KG_JOB_HELPER
                                     ? job->code.data
                                     : "__import__('sandal_context').variables()";
        return kg_hidden_start(job, expression, kg_variables_done, err);
    }
    kg_kernel_ask_t ask = {
        .what = job->kind == KG_JOB_COMPLETE ? KG_ASK_COMPLETE : KG_ASK_INSPECT,
        .code = kg_buf_slice(&job->code),
        .cursor = job->cursor,
        .detail = job->detail,
        .deadline_ns = kg_ms(ASK_REPLY_MS),
    };
    kg_request_sink_t sink = {.on_message = on_message, .on_done = on_done};
    return kg_kernel_ask(job->context->inc->kernel, &ask, &sink, job, &job->request, err);
}

/* ---- the three questions ---- */

static bool runs_ahead(const kg_context_t *context)
{
    return context->queued_runs || kg_context_running(context) ||
           (context->current && context->current->kind == KG_JOB_RUN);
}

static int ask(kg_context_t *context,
               kg_job_t *job_take,
               unsigned wait_ms,
               kg_context_reply_fn *done,
               void *user,
               kg_err_t *err)
{
    kg_job_t *job = job_take;
    if (!job) {
        return kg_oom(err);
    }
    int rc = kg_core_ready(context->core, err);
    if (!rc && runs_ahead(context) && !wait_ms) {
        rc = kg_err_set(err, KG_ERR_BUSY, "context %s is busy", context->id);
        kg_err_hint(err, "With `wait` the request takes its place in the queue.");
    }
    if (rc) {
        kg_buf_fini(&job->code);
        free(job);
        return rc;
    }
    job->context = context;
    job->wait = kg_wait_new(context->core, KG_WAIT_REPLY, user);
    if (!job->wait || kg_job_arm(job, kg_ms(wait_ms ? wait_ms : ASK_WAIT_MS))) {
        kg_wait_drop(&job->wait);
        kg_buf_fini(&job->code);
        free(job);
        return kg_oom(err);
    }
    job->wait->fn.reply = done;
    kg_sandbox_touch(context->sandbox);
    kg_job_enqueue(context, job);
    return 0;
}

static int
code_job(kg_job_kind_t kind, kg_slice_t code, size_t cursor, kg_job_t **ret_job, kg_err_t *err)
{
    if (code.len > ASK_CODE_MAX || memchr(code.data ? code.data : "", 0, code.len) ||
        !kg_utf8_valid(code.data ? code.data : "", code.len)) {
        return kg_bad(err, "/code", "code: UTF-8 without U+0000, at most %d bytes", ASK_CODE_MAX);
    }
    size_t points = kg_utf8_count(code.data ? code.data : "", code.len);
    if (cursor != SIZE_MAX && cursor > points) {
        return kg_bad(err, "/cursor", "cursor: at most %zu, the code's length in code points",
                      points);
    }
    kg_job_t *job = calloc(1, sizeof(*job));
    if (!job || kg_buf_append(&job->code, code.data ? code.data : "", code.len)) {
        free(job);
        return kg_oom(err);
    }
    job->kind = kind;
    job->cursor = cursor == SIZE_MAX ? points : cursor;
    *ret_job = job;
    return 0;
}

int kg_context_complete(kg_context_t *context,
                        kg_slice_t code,
                        size_t cursor,
                        unsigned wait_ms,
                        kg_context_reply_fn *done,
                        void *user,
                        kg_err_t *err)
{
    kg_job_t *job = NULL;
    int rc = code_job(KG_JOB_COMPLETE, code, cursor, &job, err);
    return rc ? rc : ask(context, job, wait_ms, done, user, err);
}

/* One parameter too many, of those that every question has.
 * NOLINTNEXTLINE(readability-function-size) */
int kg_context_inspect(kg_context_t *context,
                       kg_slice_t code,
                       size_t cursor,
                       unsigned detail,
                       unsigned wait_ms,
                       kg_context_reply_fn *done,
                       void *user,
                       kg_err_t *err)
{
    kg_job_t *job = NULL;
    if (detail > 1) {
        return kg_bad(err, "/detail", "detail: 0 or 1");
    }
    int rc = code_job(KG_JOB_INSPECT, code, cursor, &job, err);
    if (rc || !job) {
        return rc;
    }
    job->detail = detail;
    return ask(context, job, wait_ms, done, user, err);
}

int kg_context_variables(
    kg_context_t *context, unsigned wait_ms, kg_context_reply_fn *done, void *user, kg_err_t *err)
{
    if (!kg_template_has_helper(context->from, context->lang)) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "the %s kernel of %s cannot list its variables", context->lang->name,
                          context->from->name);
    }
    kg_job_t *job = calloc(1, sizeof(*job));
    if (job) {
        job->kind = KG_JOB_VARIABLES;
    }
    return ask(context, job, wait_ms, done, user, err);
}

int kg_context_helper(kg_context_t *context,
                      kg_slice_t expression,
                      kg_context_reply_fn *done,
                      void *user,
                      kg_err_t *err)
{
    kg_job_t *job = calloc(1, sizeof(*job));
    if (job && kg_buf_append(&job->code, expression.data, expression.len)) {
        free(job);
        job = NULL;
    }
    if (job) {
        job->kind = KG_JOB_HELPER;
    }
    return ask(context, job, ASK_WAIT_MS, done, user, err);
}
