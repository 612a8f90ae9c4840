/* gateway/api: runs. What they print is never a tree here: answers are text of the context room. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"

static kg_on_input_t input_policy(const char *name)
{
    if (!name) {
        return KG_ON_INPUT_DEFAULT;
    }
    return strcmp(name, "wait") == 0 ? KG_ON_INPUT_WAIT : KG_ON_INPUT_ERROR;
}

static kg_on_disconnect_t disconnect_policy(const char *name)
{
    if (!name) {
        return KG_ON_DISCONNECT_DEFAULT;
    }
    if (strcmp(name, "detach") == 0) {
        return KG_ON_DISCONNECT_DETACH;
    }
    return strcmp(name, "kill") == 0 ? KG_ON_DISCONNECT_KILL : KG_ON_DISCONNECT_INTERRUPT;
}

static void limits_of(const json_t *limits, kg_run_opts_t *opts)
{
    opts->output_bytes = (uint64_t)json_integer_value(json_object_get(limits, "output_bytes"));
    opts->result_bytes = (uint64_t)json_integer_value(json_object_get(limits, "result_bytes"));
    opts->events = (uint64_t)json_integer_value(json_object_get(limits, "events"));
    const char *exceed = json_string_value(json_object_get(limits, "on_exceed"));
    if (exceed) {
        opts->on_exceed = strcmp(exceed, "stop") == 0 ? KG_ON_EXCEED_STOP : KG_ON_EXCEED_TRUNCATE;
    }
}

void kg_do_run_code(kg_call_t *call)
{
    const json_t *code = kg_call_json(call, "code");
    kg_run_opts_t opts = {
        .code = kg_slice(json_string_value(code), json_string_length(code)),
        .context = kg_call_string(call, "context"),
        .language = kg_call_string(call, "language"),
        .stream = kg_call_bool(call, "stream", false),
        .timeout_ms = kg_call_ms(call, "timeout", -1),
        .env = kg_call_json(call, "env"),
        .cwd = kg_call_string(call, "cwd"),
        .stdin_lines = kg_call_json(call, "stdin"),
        .on_input = input_policy(kg_call_string(call, "on_input")),
        .on_disconnect = disconnect_policy(kg_call_string(call, "on_disconnect")),
        .silent = kg_call_bool(call, "silent", false),
        .ansi = kg_call_bool(call, "ansi", false),
        .key = kg_call_string(call, "key"),
        .retain_s = (int64_t)ceil(kg_call_number(call, "retain", -1)),
    };
    limits_of(kg_call_json(call, "limits"), &opts);
    kg_err_t err = {0};
    kg_run_t *run = NULL;
    int rc = kg_run_new(call->sandbox, &opts, &run, NULL, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    kg_call_follow(call, &(kg_follow_t){.run = run, .after = -1, .events = opts.stream});
}

static void text_or_fail(kg_call_t *call, int rc, const kg_buf_t *text, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    } else {
        kg_call_text(call, &(kg_answer_t){.status = 200, .body = kg_buf_slice(text)});
    }
}

void kg_do_runs_list(kg_call_t *call)
{
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_run_filter_t filter = {
        .context = kg_call_string(call, "context"),
        .limit = (unsigned)kg_call_int(call, "limit", 0),
        .after = kg_call_string(call, "after"),
    };
    text_or_fail(call, kg_run_list(call->sandbox, &filter, &text, &err), &text, &err);
}

/* One that has ended may be large: it is read from its log as the client takes it. */
void kg_do_runs_get(kg_call_t *call)
{
    if (kg_run_ended(call->run) && !kg_run_expired(call->run)) {
        kg_call_follow(call, &(kg_follow_t){.run = call->run, .after = -1});
        return;
    }
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t text = {0};
    text_or_fail(call, kg_run_execution(call->run, &text), &text, &err);
}

void kg_do_runs_attach(kg_call_t *call)
{
    if (kg_run_expired(call->run)) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_RUN_EXPIRED, "The events of run %s are no longer kept.",
                   kg_run_id(call->run));
        kg_err_hint(&err, "GET …/runs/{run} still has its Execution without outputs.");
        kg_call_fail(call, &err);
        return;
    }
    kg_call_follow(call, &(kg_follow_t){
                             .run = call->run,
                             .after = kg_call_int(call, "after", -1),
                             .events = true,
                             .late = kg_call_bool(call, "late", false),
                         });
}

static void done_or_fail(kg_call_t *call, int rc, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    } else {
        kg_call_none(call);
    }
}

void kg_do_runs_input(kg_call_t *call)
{
    kg_err_t err = {0};
    const json_t *value = kg_call_json(call, "value");
    kg_slice_t text = kg_slice(json_string_value(value), json_string_length(value));
    done_or_fail(call, kg_run_input(call->run, text, &err), &err);
}

void kg_do_runs_interrupt(kg_call_t *call)
{
    kg_err_t err = {0};
    done_or_fail(call, kg_run_interrupt(call->run, &err), &err);
}
