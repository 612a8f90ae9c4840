/* gateway/api: contexts. */
#include <errno.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"

static void fail_if(kg_call_t *call, int rc, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    }
}

static void created(void *user, kg_context_t *context, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (!context) {
        kg_call_fail(call, err);
        return;
    }
    char location[64 + 2 * KG_ID_MAX];
    (void)kg_format(location, sizeof location, "/v1/sandboxes/%s/contexts/%s",
                    kg_sandbox_id(kg_context_sandbox(context)), kg_context_id(context));
    kg_call_created_take(call, kg_context_json(context), location);
}

void kg_do_contexts_create(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_context_opts_t opts = {
        .language = kg_call_string(call, "language"),
        .name = kg_call_string(call, "name"),
        .cwd = kg_call_string(call, "cwd"),
        .env = kg_call_json(call, "env"),
    };
    fail_if(call, kg_context_new(call->sandbox, &opts, created, call, &err), &err);
}

void kg_do_contexts_list(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_context_list(call->sandbox));
}

void kg_do_contexts_get(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_context_json(call->context));
}

void kg_do_contexts_update(kg_call_t *call)
{
    kg_err_t err = {0};
    const char *name = kg_call_string(call, "name");
    int rc = name ? kg_context_rename(call->context, name, &err) : 0;
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else {
        kg_call_json_take(call, 200, kg_context_json(call->context));
    }
}

void kg_do_contexts_delete(kg_call_t *call)
{
    kg_err_t err = {0};
    fail_if(call, kg_context_delete(call->context, kg_call_done, call, &err), &err);
}

static void was_reset(void *user, kg_context_t *context, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (context) {
        kg_call_json_take(call, 200, kg_context_json(context));
    } else {
        kg_call_fail(call, err);
    }
}

void kg_do_contexts_reset(kg_call_t *call)
{
    kg_err_t err = {0};
    fail_if(call, kg_context_reset(call->context, was_reset, call, &err), &err);
}

/* The object, and whether there was something to interrupt. */
void kg_do_contexts_interrupt(kg_call_t *call)
{
    kg_err_t err = {0};
    bool interrupted = false;
    int rc = kg_context_interrupt(call->context, &interrupted, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    json_t *json = kg_context_json(call->context);
    if (json && json_object_set_new(json, "interrupted", json_boolean(interrupted)) < 0) {
        json_decref(json);
        json = NULL;
    }
    kg_call_json_take(call, 200, json);
}

/* --- What the kernel offers ----------------------------------------------------------------- */

static void answered(void *user, kg_slice_t json, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (json.data) {
        kg_call_text(call, &(kg_answer_t){.status = 200, .body = json});
    } else {
        kg_call_fail(call, err);
    }
}

static kg_slice_t code_of(const kg_call_t *call)
{
    const json_t *code = kg_call_json(call, "code");
    return kg_slice(json_string_value(code), json_string_length(code));
}

static size_t cursor_of(const kg_call_t *call)
{
    int64_t cursor = kg_call_int(call, "cursor", -1);
    return cursor < 0 ? SIZE_MAX : (size_t)cursor;
}

void kg_do_contexts_complete(kg_call_t *call)
{
    kg_err_t err = {0};
    unsigned wait = (unsigned)kg_call_ms(call, "wait", 0);
    fail_if(call,
            kg_context_complete(call->context, code_of(call), cursor_of(call), wait, answered, call,
                                &err),
            &err);
}

void kg_do_contexts_inspect(kg_call_t *call)
{
    kg_err_t err = {0};
    unsigned wait = (unsigned)kg_call_ms(call, "wait", 0);
    unsigned detail = (unsigned)kg_call_int(call, "detail", 0);
    fail_if(call,
            kg_context_inspect(call->context, code_of(call), cursor_of(call), detail, wait,
                               answered, call, &err),
            &err);
}

void kg_do_contexts_variables(kg_call_t *call)
{
    kg_err_t err = {0};
    unsigned wait = (unsigned)kg_call_ms(call, "wait", 0);
    fail_if(call, kg_context_variables(call->context, wait, answered, call, &err), &err);
}
