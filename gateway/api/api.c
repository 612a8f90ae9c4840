/* gateway/api: the life of a call. Rights, what the path names, the idempotency key, the handler,
 * the answer; and the way out when the client has gone before it. */
#include "gateway/api/api.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "gateway/api/api_priv.h"
#include "gateway/api/limits.h"

int kg_api_create(kg_core_t *core,
                  const kg_clock_t *clock,
                  kg_api_gauges_fn *gauges,
                  void *user,
                  kg_api_t **ret_api)
{
    kg_api_t *api = calloc(1, sizeof *api);
    if (!api) {
        return -ENOMEM;
    }
    size_t count;
    kg_ops(&count);
    *api = (kg_api_t){.core = core, .clock = clock, .gauges = gauges, .user = user};
    kg_tools_config_defaults(&api->tools);
    api->started_ns = clock->now_ns(clock->user);
    api->counts = calloc(count, sizeof *api->counts);
    if (!api->counts || kg_auth_create(kg_core_store(core), clock, &api->auth) < 0 ||
        kg_idem_create(clock, &api->idem) < 0) {
        kg_api_destroy(&api);
        return -ENOMEM;
    }
    *ret_api = api;
    return 0;
}

static void call_free(kg_call_t *call)
{
    DL_DELETE(call->api->calls, call);
    call->api->pending--;
    if (call->work_free && call->work) {
        call->work_free(call->work);
    }
    json_decref(call->args);
    free(call);
}

void kg_api_destroy(kg_api_t **api)
{
    kg_api_t *a = KG_TAKE(*api);
    if (!a) {
        return;
    }
    kg_call_t *call, *tmp;
    DL_FOREACH_SAFE (a->calls, call, tmp) {
        kg_core_forget(a->core, call);
        call_free(call);
    }
    kg_idem_destroy(&a->idem);
    kg_auth_destroy(&a->auth);
    free(a->counts);
    free(a);
}

void kg_api_set_tools(kg_api_t *api, const kg_tools_config_t *config, kg_workq_t *workers)
{
    if (config) {
        api->tools = *config;
    }
    api->workers = workers;
}

kg_core_t *kg_api_core(const kg_api_t *api)
{
    return api->core;
}

kg_auth_t *kg_api_auth(const kg_api_t *api)
{
    return api->auth;
}

void kg_api_count_error(kg_api_t *api, kg_err_code_t code)
{
    if ((unsigned)code < KG_ERR_COUNT) {
        api->errors[code]++;
    }
}

static void count_status(const kg_call_t *call, int status)
{
    size_t n;
    unsigned class = status < 400 ? 0 : status < 500 ? 1 : 2;
    call->api->counts[call->op - kg_ops(&n)].by_class[class]++;
}

/* --- Answers -------------------------------------------------------------------------------- */

/* From here on nobody else reaches the call: its view is told once, then it is freed. */
static void leave(kg_call_t *call)
{
    if (call->self) {
        *call->self = NULL;
        call->self = NULL;
    }
}

static void tell_reply(kg_call_t *call, const kg_answer_t *answer)
{
    leave(call);
    count_status(call, answer->status);
    if (call->view) {
        call->view->reply(call->user, answer);
    }
    call_free(call);
}

static void tell_fail(kg_call_t *call, const kg_err_t *err)
{
    leave(call);
    count_status(call, kg_err_status(err->code));
    kg_api_count_error(call->api, err->code);
    if (call->view) {
        call->view->fail(call->user, err);
    }
    call_free(call);
}

static void reply_waiter(kg_call_t *waiter, void *user)
{
    tell_reply(waiter, user);
}

static void fail_waiter(kg_call_t *waiter, void *user)
{
    tell_fail(waiter, user);
}

/* What the waiters' callbacks take is not written to; the cast is of the callback's form alone. */
static void *unconst(const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {p};
    return u.out;
}

void kg_call_text(kg_call_t *call, const kg_answer_t *answer)
{
    if (call->idem) {
        kg_idem_done(call->api->idem, call, answer, reply_waiter, unconst(answer));
    }
    tell_reply(call, answer);
}

void kg_call_fail(kg_call_t *call, const kg_err_t *err)
{
    if (call->idem) {
        kg_idem_failed(call->api->idem, call, fail_waiter, unconst(err));
    }
    tell_fail(call, err);
}

void kg_call_fail_rc(kg_call_t *call, int rc, const kg_err_t *err)
{
    kg_err_t own = *err;
    if (own.code == KG_ERR_NONE) {
        kg_err_set(&own, kg_err_from_errno(rc), "The request failed inside the gateway: %s.",
                   strerrordesc_np(-rc));
    }
    kg_call_fail(call, &own);
}

enum {
    DIGITS = 15 /* all that a double holds of a decimal: 0.1 stays 0.1 */
};

static void answer_take(kg_call_t *call, int status, json_t *json, const char *location)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS);
    char *text = json ? json_dumps(json, flags) : NULL;
    json_decref(json);
    if (text) {
        kg_answer_t answer = {.status = status, .body = kg_slice_cstr(text), .location = location};
        kg_call_text(call, &answer);
    } else {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for the answer.");
        kg_call_fail(call, &err);
    }
    free(text);
}

void kg_call_json_take(kg_call_t *call, int status, json_t *json)
{
    answer_take(call, status, json, NULL);
}

void kg_call_created_take(kg_call_t *call, json_t *json, const char *location)
{
    answer_take(call, 201, json, location);
}

void kg_call_none(kg_call_t *call)
{
    kg_call_text(call, &(kg_answer_t){.status = 204});
}

void kg_call_done(void *user, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (err && err->code != KG_ERR_NONE) {
        kg_call_fail(call, err);
    } else {
        kg_call_none(call);
    }
}

void kg_call_follow(kg_call_t *call, const kg_follow_t *follow)
{
    leave(call);
    count_status(call, 200);
    if (call->view) {
        call->view->follow(call->user, follow);
    }
    call_free(call);
}

bool kg_call_raw(const kg_call_t *call)
{
    return call->view && call->view->take;
}

static void take_nothing(void *user, kg_buf_t *out, bool *ret_end)
{
    (void)user;
    (void)out;
    *ret_end = false;
}

void kg_call_body(kg_call_t *call, kg_fn *more, void *user, kg_intake_t *ret_intake)
{
    if (!kg_call_raw(call)) {
        *ret_intake = (kg_intake_t){take_nothing, NULL};
        return;
    }
    (void)call->view->body(call->user, more, user);
    *ret_intake = (kg_intake_t){call->view->take, call->user};
}

uint64_t kg_call_body_length(kg_call_t *call)
{
    return kg_call_raw(call) ? call->view->body(call->user, NULL, NULL) : 0;
}

void kg_call_give(kg_call_t *call, const kg_give_t *give)
{
    leave(call);
    count_status(call, give->head.status);
    if (call->view) {
        call->view->give(call->user, give);
    } else {
        kg_source_t *source = give->source;
        kg_source_close(&source);
    }
    call_free(call);
}

/* --- Arguments ------------------------------------------------------------------------------ */

json_t *kg_call_json(const kg_call_t *call, const char *name)
{
    return json_object_get(call->args, name);
}

const char *kg_call_string(const kg_call_t *call, const char *name)
{
    return json_string_value(kg_call_json(call, name));
}

bool kg_call_bool(const kg_call_t *call, const char *name, bool standard)
{
    const json_t *value = kg_call_json(call, name);
    return value ? json_is_true(value) : standard;
}

int64_t kg_call_int(const kg_call_t *call, const char *name, int64_t standard)
{
    const json_t *value = kg_call_json(call, name);
    return value ? json_integer_value(value) : standard;
}

double kg_call_number(const kg_call_t *call, const char *name, double standard)
{
    const json_t *value = kg_call_json(call, name);
    return value ? json_number_value(value) : standard;
}

int64_t kg_call_ms(const kg_call_t *call, const char *name, int64_t standard)
{
    const json_t *value = kg_call_json(call, name);
    return value ? (int64_t)ceil(json_number_value(value) * 1000.0) : standard;
}

/* --- Calls ---------------------------------------------------------------------------------- */

static bool in_path(const kg_op_t *op, const char *name)
{
    const kg_field_t *f = kg_op_field(op, name);
    return f && f->in == KG_IN_PATH;
}

/* Finds what the path names, in the owner's world alone, and checks the right to it. */
static int look_up(kg_call_t *call, kg_err_t *err)
{
    const char *owner = call->who.key.owner;
    const char *context = in_path(call->op, "context") ? kg_call_string(call, "context") : NULL;
    if (in_path(call->op, "sandbox")) {
        call->sandbox = kg_sandbox_find(call->core, owner, kg_call_string(call, "sandbox"), err);
        if (!call->sandbox) {
            return -ENOENT;
        }
    } else if (context) {
        call->context = kg_context_find_any(call->core, owner, context, err);
        if (!call->context) {
            return -ENOENT;
        }
        call->sandbox = kg_context_sandbox(call->context);
    }
    const char *sandbox = call->sandbox ? kg_sandbox_id(call->sandbox) : NULL;
    int rc = kg_auth_allow(&call->who, call->op->right, sandbox, err);
    if (rc == 0 && context && !call->context) {
        call->context = kg_context_find(call->sandbox, context, err);
        rc = call->context ? 0 : -ENOENT;
    }
    if (rc == 0 && in_path(call->op, "run")) {
        call->run = kg_run_find(call->sandbox, kg_call_string(call, "run"), err);
        rc = call->run ? 0 : -ENOENT;
    }
    return rc;
}

static int prepare(kg_call_t *call, kg_err_t *err)
{
    if (call->api->pending > KG_API_PENDING_MAX) {
        kg_err_set(err, KG_ERR_QUEUE_FULL, "Too many requests are waiting.");
        err->retry_after_s = 1;
        return -ENOBUFS;
    }
    if (call->op->right == KG_RIGHT_NONE || call->op->flags & KG_OP_MISSING) {
        return 0;
    }
    if (call->op->right != KG_RIGHT_SANDBOX) {
        int rc = kg_auth_allow(&call->who, call->op->right, NULL, err);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = look_up(call, err);
    if (rc == 0 && call->op->flags & KG_OP_NEEDS_READY) {
        rc = kg_core_ready(call->core, err);
    }
    if ((err->code == KG_ERR_DRAINING || err->code == KG_ERR_STARTING) && err->retry_after_s == 0) {
        err->retry_after_s = 1;
    }
    return rc;
}

/* true: the call has been answered or waits, the handler is not needed. */
static bool remembered(kg_call_t *call)
{
    const char *key = call->op->flags & KG_OP_OWN_KEY ? NULL : kg_call_string(call, "key");
    if (!key) {
        return false;
    }
    kg_answer_t answer = {0};
    kg_err_t err = {0};
    switch (kg_idem_begin(call->api->idem, call, key, &answer, &err)) {
    case KG_IDEM_NEW:
        return false;
    case KG_IDEM_WAITING:
        call->waits = true;
        return true;
    case KG_IDEM_KNOWN:
        tell_reply(call, &answer);
        return true;
    case KG_IDEM_REFUSED:
        tell_fail(call, &err);
        return true;
    }
    return false;
}

static void start(kg_call_t *call)
{
    kg_err_t err = {0};
    int rc = prepare(call, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else if (!remembered(call)) {
        call->op->handler(call);
    }
}

void kg_api_call(kg_api_t *api,
                 const kg_op_t *op,
                 json_t *args_take,
                 const kg_principal_t *who,
                 const kg_call_view_t *view,
                 void *user,
                 kg_call_t **ret_call)
{
    *ret_call = NULL;
    kg_call_t *call = calloc(1, sizeof *call);
    if (!call) {
        json_decref(args_take);
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        view->fail(user, &err);
        return;
    }
    call->api = api;
    call->core = api->core;
    call->op = op;
    call->args = args_take;
    call->who = *who;
    call->view = view;
    call->user = user;
    DL_APPEND(api->calls, call);
    api->pending++;
    kg_call_t *alive = call;
    call->self = &alive;
    start(call);
    if (alive) {
        alive->self = NULL;
        alive->sandbox = NULL;
        alive->context = NULL;
        alive->run = NULL;
        *ret_call = alive;
    }
}

/* A call with an idempotency key goes on without its client, so that the answer is there when it
 * asks again. */
void kg_api_abandon(kg_call_t **call)
{
    kg_call_t *c = KG_TAKE(*call);
    if (!c) {
        return;
    }
    c->view = NULL;
    if (c->waits) {
        if (c->idem) {
            kg_idem_leave(c);
        }
        call_free(c);
    } else if (!c->idem) {
        kg_core_forget(c->core, c);
        call_free(c);
    }
}
