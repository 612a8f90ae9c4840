/* gateway/context: the queue of a context. One job at a time: a run (with a hidden request before
 * and after it where it has env or cwd of its own), or a question of a client. The next begins when
 * the kernel is free. */
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"
#include "proto/json_scan.h"

static void job_deadline(void *user)
{
    kg_job_t *job = user;
    kg_context_t *context = job->context;
    kg_timer_close(&job->deadline);
    if (job->step == KG_STEP_QUEUED) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_BUSY, "context %s was busy for the whole wait", context->id);
        kg_wait_reply(&job->wait, (kg_slice_t){0}, &err);
        kg_job_destroy(&job);
        return;
    }
    /* A request of our own hangs (a debugger, a broken hook): the kernel is not usable. */
    job->overdue = true;
    if (context->state == KG_CTX_READY) {
        (void)kg_kernel_interrupt_or_kill(context->inc->kernel,
                                          kg_ms(context->core->config.interrupt_grace_ms));
    }
}

int kg_job_arm(kg_job_t *job, uint64_t after_ns)
{
    if (!job->deadline) {
        int rc = kg_timer_create(job->context->core->loop, job_deadline, job, &job->deadline);
        if (rc) {
            return rc;
        }
    }
    kg_timer_start(job->deadline, after_ns, 0);
    return 0;
}

static void count(kg_context_t *context, const kg_job_t *job, int by)
{
    if (job->kind == KG_JOB_RUN) {
        context->queued_runs += (unsigned)by;
        context->queued_clients += job->client ? (unsigned)by : 0;
        context->queued_bytes += by > 0 ? job->client : -job->client;
    }
}

void kg_job_enqueue(kg_context_t *context, kg_job_t *job)
{
    job->context = context;
    job->step = KG_STEP_QUEUED;
    count(context, job, 1);
    DL_APPEND(context->jobs, job);
    kg_context_pump(context);
}

void kg_job_destroy(kg_job_t **job)
{
    kg_job_t *j = *job;
    if (!j) {
        return;
    }
    kg_context_t *context = j->context;
    *job = NULL;
    if (context->current == j) {
        context->current = NULL;
        context->left_cell = context->left_cell && j->kind != KG_JOB_LEFT;
    } else if (j->step == KG_STEP_QUEUED) {
        DL_DELETE(context->jobs, j);
        count(context, j, -1);
    }
    kg_request_release(&j->request);
    kg_timer_close(&j->deadline);
    kg_wait_drop(&j->wait);
    kg_buf_fini(&j->code);
    kg_buf_fini(&j->reply);
    if (j->run) {
        j->run->job = NULL;
        j->run->context = NULL;
        kg_run_settle(j->run);
        kg_run_unref_(&j->run);
    }
    free(j);
}

/* ---- a run's steps ---- */

void kg_run_sent(kg_run_t *run)
{
    kg_context_t *context = run->context;
    if (run->ended || run->started || !context) {
        return;
    }
    run->started = true;
    run->live->started_ns = kg_now_ns();
    context->execution_count += !run->silent;
    (void)kg_mapper_started(run->mapper, run->silent ? -1 : (int64_t)context->execution_count);
    if (run->live->timeout_ns && !run->cause) {
        kg_timer_start(run->live->deadline, run->live->timeout_ns, 0);
    }
}

static void start_main(kg_job_t *job)
{
    kg_run_t *run = job->run;
    kg_context_t *context = job->context;
    kg_err_t err = {0};
    job->step = KG_STEP_MAIN;
    if (run->key) { /* or a gateway that is killed now would run it again for the next request */
        kg_run_log_save(run->log);
    }
    int rc = kg_inc_execute(context->inc, run, &err);
    if (rc) {
        kg_run_start_failed(run, &err);
        kg_job_finished(context);
        return;
    }
    /* The kernel is on its way meanwhile: it takes longer to get to the code than this. */
    run->live->cpu_start_ns =
        kg_meter_cpu_ns(&context->inc->meter, kg_kernel_pid(context->inc->kernel));
    run->live->oom_before = kg_box_oom_kills(context->sandbox);
    if (kg_request_is_sent(run->request)) {
        kg_run_sent(run);
        kg_run_log_save_start(run->log); /* not at the end of the turn, which may be long */
    }
    kg_buf_fini(&run->live->code);
}

/* JSON text as a Python string literal: JSON's escapes are Python's, and there are no surrogates in
 * it. */
static int enter_expression(const kg_run_t *run, kg_buf_t *out)
{
    json_t *spec = json_pack("{s:O?}", "env", run->live->env);
    char cwd[KG_SBX_PATH_MAX];
    if (spec && run->live->cwd && kg_context_dir(run->context, run->live->cwd, cwd) == 0) {
        (void)json_object_set_new(spec, "cwd", json_string(cwd));
    }
    KG_AUTO_FREE char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    json_decref(spec);
    int rc = text ? kg_buf_append_cstr(out, "__import__('sandal_context').enter(") : -1;
    rc = rc ? rc : kg_json_quote(out, text, strlen(text));
    return rc ? rc : kg_buf_append_char(out, ')');
}

static void text_of(kg_json_value_t object, const char *name, kg_buf_t *out)
{
    kg_json_value_t value = kg_json_get(object, name);
    if (value.type != KG_JSON_STRING || kg_json_decode_string(out, value) || !out->data) {
        kg_buf_clear(out);
        (void)kg_buf_append_cstr(out, "");
    }
}

static void entered(kg_job_t *job, bool alive)
{
    kg_run_t *run = job->run;
    kg_context_t *context = job->context;
    if (!alive) {
        return; /* the exit follows and ends both */
    }
    if (run->cause) {
        kg_run_end_now(run, false);
        kg_job_main_done(context);
        return;
    }
    if (job->failed || !job->replied) {
        KG_AUTO_BUF kg_buf_t name = {0};
        KG_AUTO_BUF kg_buf_t message = {0};
        kg_json_value_t reply;
        if (job->reply.len &&
            kg_json_check(kg_buf_slice(&job->reply), KG_JSON_DEPTH_MAX, &reply) == 0) {
            text_of(reply, "ename", &name);
            text_of(reply, "evalue", &message);
        }
        kg_run_enter_failed(run, name.len ? name.data : "KernelError",
                            message.len ? message.data
                                        : "env and cwd could not be set for this run");
        kg_job_main_done(context);
        return;
    }
    start_main(job);
}

static void left(kg_job_t *job, bool alive)
{
    kg_context_t *context = job->context;
    bool was_left = job->kind == KG_JOB_LEFT;
    if (!alive) {
        return;
    }
    if (context->left_cell) {
        context->left_cell = false;
        if (!context->gone) { /* else its row would come back */
            (void)kg_context_save(context, NULL);
        }
        kg_bridge_cell_over(context);
    }
    kg_job_finished(context);
    if (was_left) {
        kg_kernels_pause_again(context->sandbox);
    }
}

static bool has_own(const kg_run_t *run)
{
    return run->live->env || run->live->cwd;
}

static void start_run(kg_job_t *job)
{
    KG_AUTO_BUF kg_buf_t expression = {0};
    kg_err_t err = {0};
    if (!has_own(job->run)) {
        start_main(job);
        return;
    }
    job->run->live->oom_before = kg_box_oom_kills(job->context->sandbox);
    job->step = KG_STEP_ENTER;
    int rc = enter_expression(job->run, &expression) ? kg_oom(&err) : 0;
    rc = rc ? rc : kg_hidden_start(job, expression.data, entered, &err);
    rc = rc ? rc : (kg_job_arm(job, kg_ms(KG_HIDDEN_MS)) ? kg_oom(&err) : 0);
    if (rc) {
        kg_run_start_failed(job->run, &err);
        kg_job_finished(job->context);
    }
}

void kg_job_main_done(kg_context_t *context)
{
    kg_job_t *job = context->current;
    kg_err_t err = {0};
    if (!job) {
        return;
    }
    if (!has_own(job->run) || context->state != KG_CTX_READY) {
        kg_job_finished(context);
        return;
    }
    job->step = KG_STEP_LEAVE;
    if (kg_hidden_start(job, "__import__('sandal_context').leave()", left, &err) ||
        kg_job_arm(job, kg_ms(KG_HIDDEN_MS))) {
        kg_log(KG_LOG_WARN, "run.leave", "run=%s code=%s", job->run->id, kg_err_name(err.code));
        kg_job_finished(context);
    }
}

/* ---- hidden requests ---- */

typedef struct hidden_sink {
    void (*fn)(kg_job_t *job, bool alive);
} hidden_sink_t;

/* content.user_expressions.r: its value by JSON, or what it raised. */
static void read_reply(kg_job_t *job, const kg_jmsg_t *msg)
{
    kg_json_value_t r = kg_json_get(kg_json_get(msg->content, "user_expressions"), "r");
    kg_json_value_t status = kg_json_get(r, "status");
    if (status.type != KG_JSON_STRING) {
        return;
    }
    job->failed = !kg_slice_eq_cstr(status.raw, "\"ok\"");
    kg_json_value_t value =
        job->failed ? r : kg_json_get(kg_json_get(r, "data"), "application/json");
    kg_buf_clear(&job->reply);
    job->replied = value.type != KG_JSON_ABSENT && kg_json_copy(&job->reply, value) == 0;
}

static void
hidden_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    (void)prepared_take;
    if (channel == KG_CHANNEL_SHELL && strcmp(msg->msg_type, "execute_reply") == 0) {
        read_reply(user, msg);
    }
}

static void hidden_ended(kg_job_t *job, const kg_request_end_t *end, void (*fn)(kg_job_t *, bool))
{
    kg_timer_close(&job->deadline);
    kg_request_release(&job->request);
    fn(job, end->how != KG_REQUEST_DEAD && end->how != KG_REQUEST_CLOSED);
}

static void enter_done(void *user, const kg_request_end_t *end)
{
    hidden_ended(user, end, entered);
}

static void leave_done(void *user, const kg_request_end_t *end)
{
    hidden_ended(user, end, left);
}

static void variables_done(void *user, const kg_request_end_t *end)
{
    hidden_ended(user, end, kg_variables_done);
}

int kg_hidden_start(kg_job_t *job,
                    const char *expression,
                    void (*fn)(kg_job_t *job, bool alive),
                    kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t expressions = {0};
    kg_request_sink_t sink = {.on_message = hidden_message};
    sink.on_done = fn == entered ? enter_done : (fn == left ? leave_done : variables_done);
    if (kg_buf_append_cstr(&expressions, "{\"r\":") ||
        kg_json_quote(&expressions, expression, strlen(expression)) ||
        kg_buf_append_char(&expressions, '}')) {
        return kg_oom(err);
    }
    kg_kernel_execute_t args = {
        .code = kg_slice_cstr(""), .silent = true, .user_expressions = kg_buf_slice(&expressions)};
    job->replied = false;
    job->failed = false;
    kg_buf_clear(&job->reply);
    return kg_kernel_execute(job->context->inc->kernel, &args, &sink, job, &job->request, err);
}

void kg_job_start_left(kg_context_t *context, uint64_t limit_ms)
{
    kg_job_t *job = calloc(1, sizeof(*job));
    kg_err_t err = {0};
    if (!job) {
        return; /* the next run waits in the kernel's own queue */
    }
    job->context = context;
    job->kind = KG_JOB_LEFT;
    job->step = KG_STEP_MAIN;
    context->current = job;
    bool helper = kg_template_has_helper(context->from, context->lang);
    const char *expression = helper ? "__import__('sandal_context').leave()" : "0";
    if (kg_hidden_start(job, expression, left, &err) ||
        (limit_ms && kg_job_arm(job, kg_ms(limit_ms)))) {
        kg_log(KG_LOG_WARN, "kernel.left", "context=%s code=%s", context->id,
               kg_err_name(err.code));
        kg_job_destroy(&context->current);
    }
}

/* ---- the queue itself ---- */

void kg_job_finished(kg_context_t *context)
{
    kg_job_destroy(&context->current);
    kg_context_pump(context);
}

static void start_job(kg_context_t *context)
{
    kg_job_t *job = context->jobs;
    kg_err_t err = {0};
    DL_DELETE(context->jobs, job);
    context->current = job;
    count(context, job, -1);
    if (job->kind == KG_JOB_RUN) {
        start_run(job);
        return;
    }
    job->step = KG_STEP_MAIN;
    if (kg_ask_start(job, &err) || kg_job_arm(job, kg_ms(KG_HIDDEN_MS))) {
        kg_wait_reply(&job->wait, (kg_slice_t){0}, &err);
        kg_job_finished(context);
    }
}

void kg_context_pump(kg_context_t *context)
{
    kg_bridge_pump(context);
    if (!context->jobs || context->gone) {
        return;
    }
    if (context->sandbox->pause != KG_PAUSE_NO) {
        kg_pause_wake(context->sandbox);
        return;
    }
    if (context->current) {
        return;
    }
    if (context->state == KG_CTX_DOWN || context->state == KG_CTX_DEAD) {
        context->state = KG_CTX_DOWN;
        kg_context_start(context);
        return;
    }
    if (context->state == KG_CTX_READY && kg_kernel_state(context->inc->kernel) == KG_KERNEL_IDLE) {
        start_job(context);
    }
}

/* Why a question is not answered any more. */
static void unanswered(const kg_job_t *job, kg_err_t *err)
{
    const kg_context_t *context = job->context;
    if (context->gone) {
        (void)kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "context %s was deleted", context->id);
    } else if (job->overdue) {
        (void)kg_err_set(err, KG_ERR_KERNEL_TIMEOUT, "the kernel did not answer in time");
    } else if (context->state == KG_CTX_ENDING) {
        (void)kg_err_set(err, KG_ERR_BUSY, "the context was reset");
    } else {
        (void)kg_err_set(err, KG_ERR_KERNEL_PROTOCOL, "the kernel ended before it answered");
    }
}

void kg_job_kernel_gone(kg_context_t *context, const kg_kernel_exit_t *exit)
{
    kg_job_t *job = context->current;
    if (!job) {
        return;
    }
    if (job->kind == KG_JOB_RUN) {
        if (exit) {
            kg_run_process_ended(job->run, exit);
        } else {
            kg_run_end_now(job->run, true);
        }
    } else {
        kg_err_t err = {0};
        unanswered(job, &err);
        kg_wait_reply(&job->wait, (kg_slice_t){0}, &err);
    }
    kg_job_destroy(&context->current);
}

void kg_jobs_abort(kg_context_t *context, kg_cause_t cause, bool lost, const kg_err_t *err)
{
    while (context->jobs) {
        kg_job_t *job = context->jobs;
        if (job->kind == KG_JOB_RUN) {
            kg_run_t *run = job->run;
            run->cause = run->cause ? run->cause : cause;
            kg_run_end_now(run, lost);
        } else {
            kg_wait_reply(&job->wait, (kg_slice_t){0}, err);
            kg_job_destroy(&job);
        }
    }
}
