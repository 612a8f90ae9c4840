/* Calls: rights, look-ups, idempotency keys, clients that leave, answers of every handler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "gateway/api/api.h"
#include "gateway/api/limits.h"
#include "gateway/api/validate.h"

typedef struct seen {
    int status;
    kg_err_code_t code;
    char body[20000];
    char location[128];
    unsigned answers;
    bool followed;
    kg_follow_t follow;
} seen_t;

static void on_reply(void *user, const kg_answer_t *answer)
{
    seen_t *s = user;
    s->answers++;
    s->status = answer->status;
    snprintf(s->body, sizeof s->body, "%.*s", (int)answer->body.len,
             answer->body.data ? answer->body.data : "");
    snprintf(s->location, sizeof s->location, "%s", answer->location ? answer->location : "");
}

static void on_fail(void *user, const kg_err_t *err)
{
    seen_t *s = user;
    s->answers++;
    s->status = kg_err_status(err->code);
    s->code = err->code;
    snprintf(s->body, sizeof s->body, "%s", err->message);
}

static void on_follow(void *user, const kg_follow_t *follow)
{
    seen_t *s = user;
    s->answers++;
    s->status = 200;
    s->followed = true;
    s->follow = *follow;
}

static void on_give(void *user, const kg_give_t *give)
{
    seen_t *s = user;
    s->answers++;
    s->status = give->head.status;
    kg_source_t *source = give->source;
    kg_source_close(&source);
}

static const kg_call_view_t view = {
    .reply = on_reply, .fail = on_fail, .follow = on_follow, .give = on_give};

typedef struct world {
    kg_core_t *core;
    kg_api_t *api;
    uint64_t now;
} world_t;

static uint64_t now_of(void *user)
{
    return ((world_t *)user)->now;
}

static kg_clock_t the_clock;

static int setup(void **state)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->now = 1;
    the_clock = (kg_clock_t){now_of, now_of, w};
    w->core = fake_core_new();
    *state = w;
    return kg_api_create(w->core, &the_clock, NULL, NULL, &w->api);
}

static int teardown(void **state)
{
    world_t *w = *state;
    kg_api_destroy(&w->api);
    fake_core_free(&w->core);
    free(w);
    return 0;
}

static kg_principal_t who(world_t *w, const char *key)
{
    kg_principal_t p = {0};
    kg_err_t err = {0};
    assert_int_equal(kg_auth_check(kg_api_auth(w->api), kg_slice_cstr(key), &p, &err), 0);
    return p;
}

/* args as JSON text; must pass the check. */
static kg_call_t *
start(world_t *w, const char *key, const char *name, const char *args, seen_t *seen)
{
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    size_t at = 0;
    while (at < count && strcmp(ops[at].name, name) != 0) {
        at++;
    }
    assert_true(at < count);
    const kg_op_t *op = &ops[at];
    json_t *json = json_loads(args, 0, NULL);
    assert_non_null(json);
    kg_err_t err = {0};
    if (!(op->flags & KG_OP_MISSING) && kg_op_check(op, json, &err) < 0) {
        fail_msg("%s %s: %s", name, args, err.message);
    }
    kg_principal_t p = who(w, key);
    kg_call_t *call = NULL;
    *seen = (seen_t){0};
    kg_api_call(w->api, op, json, &p, &view, seen, &call);
    assert_int_equal(call == NULL, seen->answers == 1);
    return call;
}

static int now(world_t *w, const char *key, const char *name, const char *args, seen_t *seen)
{
    if (start(w, key, name, args, seen)) {
        fake_core_fire(w->core, KG_ERR_NONE);
    }
    assert_int_equal(seen->answers, 1);
    return seen->status;
}

#define BOX "\"sandbox\":\"box\""
#define CTX BOX ",\"context\":\"main\""
#define RUN BOX ",\"run\":\"run-1\""
#define PID BOX ",\"pid\":12"

/* --- Every operation ------------------------------------------------------------------------ */

typedef struct row {
    const char *op;
    const char *args;
    int status;
    const char *body;
} row_t;

static const row_t rows[] = {
    {"sandboxes.create", "{}", 201, "sbx-alice"},
    {"sandboxes.create", "{\"template\":\"python\",\"timeout\":1.5,\"metadata\":{\"a\":\"b\"}}",
     201, "sbx-alice"},
    {"sandboxes.create", "{\"name\":\"box\"}", 409, "of this name"},
    {"sandboxes.create", "{\"snapshot\":\"snap-1\"}", 501, "checkpointing"},
    {"sandboxes.list", "{\"limit\":5,\"metadata\":{\"k\":\"v\"}}", 200,
     "\"limit\":5,\"metadata\":{\"k\":\"v\"}"},
    {"sandboxes.get", "{" BOX "}", 200, "sbx-alice"},
    {"sandboxes.update", "{" BOX ",\"timeout\":5}", 200, "sbx-alice"},
    {"sandboxes.update", "{" BOX ",\"network\":\"egress\"}", 200, "sbx-alice"},
    {"sandboxes.update", "{" BOX ",\"network\":\"none\"}", 501, "No network"},
    {"sandboxes.pause", "{" BOX "}", 200, "sbx-alice"},
    {"sandboxes.resume", "{" BOX "}", 200, "sbx-alice"},
    {"sandboxes.metrics", "{" BOX "}", 200, "\"memory_bytes\":7"},
    {"sandboxes.usage", "{" BOX "}", 200, "\"active_seconds\":1.5"},
    {"sandboxes.network_log", "{" BOX ",\"cursor\":3}", 200, "\"cursor\":3"},
    {"tools.list", "{\"format\":\"mcp\"}", 200, "\"inputSchema\""},
    {"tools.run_code", "{\"format\":\"mcp\",\"call\":{\"name\":\"x\"}," BOX "}", 200, "isError"},
    {"tools.run_code", "{\"format\":\"mcp\",\"call\":{}," BOX "}", 400, "not the params"},
    {"tools.run_code", "{\"format\":\"mcp\",\"call\":\"{\"," BOX "}", 400, "not JSON"},
    {"usage", "{\"limit\":5}", 200, "\"owner\":\"alice\",\"limit\":5"},
    {"usage", "{\"after\":\"x\"}", 400, "No page x"},
    {"sandboxes.delete", "{" BOX "}", 204, ""},
    {"contexts.list", "{" BOX "}", 200, "items"},
    {"contexts.create", "{" BOX ",\"language\":\"r\"}", 201, "0a0a"},
    {"contexts.create", "{" BOX ",\"language\":\"cobol\"}", 400, "No cobol"},
    {"contexts.find", "{\"context\":\"" FAKE_CONTEXT "\"}", 200, "0a0a"},
    {"contexts.get", "{" CTX "}", 200, "0a0a"},
    {"contexts.get", "{" BOX ",\"context\":\"nope\"}", 404, "No context nope"},
    {"contexts.update", "{" CTX ",\"name\":\"x\"}", 200, "0a0a"},
    {"contexts.update", "{" CTX ",\"name\":\"taken\"}", 409, "Taken"},
    {"contexts.update", "{" CTX "}", 200, "0a0a"},
    {"contexts.reset", "{" CTX "}", 200, "0a0a"},
    {"contexts.interrupt", "{" CTX "}", 200, "\"interrupted\":false"},
    {"contexts.complete", "{" CTX ",\"code\":\"im\",\"cursor\":2}", 200, "matches"},
    {"contexts.inspect", "{" CTX ",\"code\":\"im\",\"detail\":1}", 200, "matches"},
    {"contexts.variables", "{" CTX "}", 200, "matches"},
    {"contexts.delete", "{" CTX "}", 204, ""},
    {"runs.get", "{" RUN "}", 404, "No run run-1"},
    {"runs.list", "{" BOX "}", 200, "items"},
    {"runs.list", "{" BOX ",\"context\":\"x\"}", 404, "No such context"},
    {"run_code", "{" BOX ",\"code\":\"full\"}", 429, "queue is full"},
    {"run_code", "{" BOX ",\"code\":\"1\"}", 200, ""},
    {"contexts.complete", "{" CTX ",\"code\":\"im\"}", 409, "busy"},
    {"contexts.complete", "{" CTX ",\"code\":\"im\",\"wait\":1}", 200, "matches"},
    {"runs.get", "{" RUN "}", 200, "running"},
    {"runs.attach", "{" RUN ",\"after\":3,\"late\":true}", 200, ""},
    {"runs.input", "{" RUN ",\"value\":\"yes\"}", 204, ""},
    {"runs.interrupt", "{" RUN "}", 204, ""},
    {"templates.list", "{}", 200, "python"},
    {"templates.get", "{\"template\":\"python\"}", 200, "python"},
    {"templates.get", "{\"template\":\"cobol\"}", 404, "No template"},
    {"keys.list", "{}", 403, "scope admin"},
    {"health", "{}", 200, "\"ok\""},
    {"ready", "{}", 200, "ready"},
    {"metrics", "{}", 403, "scope admin"},
    {"openapi", "{}", 200, "openapi: \"3.1.0\""},
    {"docs", "{}", 200, "<!doctype html>"},
    {"processes.get", "{" PID "}", 404, "No process 12"},
    {"processes.list", "{" BOX "}", 200, "\"items\":[]"},
    {"exec", "{" BOX ",\"cmd\":\"full\"}", 429, "Too many"},
    {"exec", "{" BOX ",\"cmd\":\"ls\",\"stdin\":\"*\",\"stdin_encoding\":\"base64\"}", 400,
     "not base64"},
    {"exec", "{" BOX ",\"cmd\":\"ls\"}", 200, ""},
    {"exec", "{" BOX ",\"cmd\":[\"ls\",\"-l\"],\"background\":true}", 201, "\"pid\":12"},
    {"processes.list", "{" BOX "}", 200, "\"pid\":12"},
    {"processes.get", "{" PID "}", 200, "\"pid\":12"},
    {"processes.get", "{" BOX ",\"pid\":13}", 404, "No process 13"},
    {"processes.attach", "{" PID ",\"after\":1}", 200, ""},
    {"processes.signal", "{" PID ",\"signal\":\"SIGHUP\"}", 204, ""},
    {"processes.resize", "{" PID ",\"cols\":100,\"rows\":30}", 204, ""},
    {"processes.input", "{" PID "}", 400, "Give data"},
    {"processes.input", "{" PID ",\"data\":\"*\",\"encoding\":\"base64\"}", 400, "not base64"},
    {"processes.input", "{" PID ",\"data\":\"eWVz\",\"encoding\":\"base64\",\"eof\":true}", 204,
     ""},
    {"processes.input", "{" PID ",\"data\":\"more\"}", 409, "No input"},
    {"processes.kill", "{" PID "}", 204, ""},
    {"processes.kill", "{" PID "}", 404, "No process 12"},
    {"expose", "{" BOX ",\"port\":8000,\"token\":true}", 200, "\"token\":\"secret\""},
    {"expose", "{" BOX ",\"port\":8001}", 429, "No more ports"},
    {"unexpose", "{" BOX ",\"port\":8000}", 204, ""},
    {"unexpose", "{" BOX ",\"port\":8001}", 404, "not exposed"},
    {"sandboxes.fork", "{}", 501, "checkpointing"},
    {"fs.stat", "{" BOX ",\"path\":\"a\"}", 200, "/workspace/x"},
    {"fs.list", "{" BOX "}", 200, "/workspace/x"},
    {"fs.mkdir", "{" BOX ",\"path\":\"a\"}", 201, "/workspace/x"},
    {"fs.move", "{" BOX ",\"from\":\"a\",\"to\":\"b\"}", 200, "/workspace/x"},
    {"fs.remove", "{" BOX ",\"path\":\"a\"}", 204, ""},
    {"fs.remove", "{" BOX ",\"path\":\"bad\"}", 403, "Not this one"},
    {"fs.write", "{" BOX ",\"path\":\"a\",\"data\":\"aGk=\"}", 200, "\"size\":2"},
    {"fs.read", "{" BOX ",\"path\":\"a\"}", 200, "\"eof\":true"},
    {"fs.watch", "{" BOX "}", 200, ""},
};

static void every_operation_answers(void **state)
{
    world_t *w = *state;
    seen_t s;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        int status = now(w, "key-alice", rows[i].op, rows[i].args, &s);
        if (status != rows[i].status || !strstr(s.body, rows[i].body)) {
            fail_msg("%s %s: %d %s", rows[i].op, rows[i].args, status, s.body);
        }
    }
    assert_string_equal(fake_stats(w->core)->input, "yes");
    const fake_command_t *told = fake_command();
    assert_string_equal(told->input, "yes");
    assert_string_equal(told->signal, "SIGHUP");
    assert_int_equal(told->columns, 100);
    assert_int_equal(told->rows, 30);
}

/* What a client asks of a command reaches the core as it was meant. */
static void exec_takes_its_fields(void **state)
{
    world_t *w = *state;
    seen_t s;
    const char *args = "{" BOX ",\"cmd\":\"ls\",\"cwd\":\"d\",\"user\":\"root\",\"timeout\":1.5,"
                       "\"stdin\":\"eWVz\",\"stdin_encoding\":\"base64\",\"encoding\":\"base64\","
                       "\"limits\":{\"output_bytes\":5,\"on_exceed\":\"stop\"},"
                       "\"on_disconnect\":\"interrupt\",\"retain\":7}";
    assert_int_equal(now(w, "key-alice", "exec", args, &s), 200);
    const fake_command_t *told = fake_command();
    assert_string_equal(told->cmd, "ls");
    assert_string_equal(told->input, "yes");
    assert_true(told->opts.root && told->opts.base64 && !told->opts.pty && !told->opts.input_open);
    assert_int_equal(told->opts.timeout_ms, 1500);
    assert_int_equal(told->opts.output_bytes, 5);
    assert_int_equal(told->opts.on_exceed, KG_ON_EXCEED_STOP);
    assert_int_equal(told->opts.on_disconnect, KG_ON_DISCONNECT_INTERRUPT);
    assert_int_equal(told->opts.retain_s, 7);
    args = "{" BOX ",\"cmd\":\"sh\",\"pty\":{\"cols\":100},\"background\":true}";
    assert_int_equal(now(w, "key-alice", "exec", args, &s), 201);
    assert_true(told->opts.pty && told->opts.background && told->opts.input_open);
    assert_int_equal(told->opts.columns, 100);
    assert_int_equal(told->opts.rows, 0);
    assert_int_equal(told->opts.timeout_ms, -1);
}

/* Arguments that an operation cannot do without, of alice's objects. */
static char *required_args(const kg_op_t *op)
{
    json_t *args = json_object();
    bool box = kg_op_field(op, "sandbox") != NULL;
    for (const kg_field_t *f = op->fields; f && f->name; f++) {
        const char *text = strcmp(f->name, "sandbox") == 0   ? "box"
                           : strcmp(f->name, "context") == 0 ? (box ? "main" : FAKE_CONTEXT)
                           : strcmp(f->name, "run") == 0     ? "run-1"
                           : f->values                       ? f->values[0]
                                                             : "1";
        bool number = f->type == KG_FIELD_INTEGER || f->type == KG_FIELD_NUMBER;
        if (f->required) {
            json_object_set_new(args, f->name,
                                number ? json_integer(f->min > 0 ? f->min : 1) : json_string(text));
        }
    }
    char *out = json_dumps(args, JSON_COMPACT);
    json_decref(args);
    assert_non_null(out);
    return out;
}

/* A foreign key sees nothing, whatever it asks. */
static void every_operation_hides_from_foreign_keys(void **state)
{
    world_t *w = *state;
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    fake_run(w->core);
    for (size_t i = 0; i < count; i++) {
        if (!strchr(ops[i].path, '{') || ops[i].flags & KG_OP_MISSING ||
            ops[i].right == KG_RIGHT_ADMIN || strncmp(ops[i].name, "templates", 9) == 0) {
            continue;
        }
        KG_AUTO_FREE char *args = required_args(&ops[i]);
        seen_t s;
        int status = now(w, "key-bob", ops[i].name, args, &s);
        if (status != 404) {
            fail_msg("%s answers %d to a foreign key", ops[i].name, status);
        }
    }
    assert_int_equal(fake_stats(w->core)->runs_made, 0);
    assert_int_equal(fake_stats(w->core)->interrupts, 0);
}

static void created_objects_have_locations(void **state)
{
    seen_t s;
    now(*state, "key-alice", "sandboxes.create", "{}", &s);
    assert_string_equal(s.location, "/v1/sandboxes/" FAKE_SANDBOX);
    now(*state, "key-alice", "contexts.create", "{" BOX "}", &s);
    assert_string_equal(s.location, "/v1/sandboxes/" FAKE_SANDBOX "/contexts/" FAKE_CONTEXT);
}

static void failures_of_the_core_reach_the_client(void **state)
{
    world_t *w = *state;
    seen_t s;
    assert_non_null(start(w, "key-alice", "sandboxes.create", "{}", &s));
    fake_core_fire(w->core, KG_ERR_KERNEL_START_FAILED);
    assert_int_equal(s.status, 502);
    assert_non_null(start(w, "key-alice", "contexts.reset", "{" CTX "}", &s));
    fake_core_fire(w->core, KG_ERR_KERNEL_TIMEOUT);
    assert_int_equal(s.status, 504);
}

static void run_code_passes_its_options(void **state)
{
    world_t *w = *state;
    seen_t s;
    now(w, "key-alice", "run_code",
        "{" BOX ",\"code\":\"1+1\",\"stream\":true,\"timeout\":0.0015,\"on_input\":\"error\",\"on_"
        "disconnect\":\"kill\","
        "\"silent\":true,\"ansi\":true,\"retain\":0.2,\"limits\":{\"output_bytes\":9,\"on_exceed\":"
        "\"stop\"}}",
        &s);
    assert_true(s.followed);
    assert_true(s.follow.events);
    assert_int_equal(s.follow.after, -1);
    const kg_run_opts_t *o = &fake_stats(w->core)->last_run;
    assert_string_equal(fake_stats(w->core)->last_code, "1+1");
    assert_true(o->stream && o->silent && o->ansi && o->on_exceed == KG_ON_EXCEED_STOP);
    assert_int_equal(o->timeout_ms, 2);
    assert_int_equal(o->retain_s, 1);
    assert_int_equal(o->on_input, KG_ON_INPUT_ERROR);
    assert_int_equal(o->on_disconnect, KG_ON_DISCONNECT_KILL);
    assert_int_equal(o->output_bytes, 9);
    now(w, "key-alice", "run_code", "{" BOX ",\"code\":\"1\"}", &s);
    assert_false(s.follow.events);
    assert_int_equal(o->timeout_ms, -1);
    assert_int_equal(o->retain_s, -1);
}

static void ended_and_expired_runs(void **state)
{
    world_t *w = *state;
    seen_t s;
    fake_run(w->core);
    fake_run_finish(w->core);
    now(w, "key-alice", "runs.get", "{" RUN "}", &s);
    assert_true(s.followed && !s.follow.events);
    assert_int_equal(now(w, "key-alice", "runs.input", "{" RUN ",\"value\":\"\"}", &s), 409);
    fake_run_expire(w->core);
    assert_int_equal(now(w, "key-alice", "runs.attach", "{" RUN "}", &s), 410);
    assert_int_equal(s.code, KG_ERR_RUN_EXPIRED);
    now(w, "key-alice", "runs.get", "{" RUN "}", &s);
    assert_false(s.followed);
}

static void nothing_starts_while_draining(void **state)
{
    world_t *w = *state;
    seen_t s;
    fake_run(w->core);
    fake_core_set_ready(w->core, KG_ERR_DRAINING);
    assert_int_equal(now(w, "key-alice", "run_code", "{" BOX ",\"code\":\"1\"}", &s), 503);
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{}", &s), 503);
    assert_int_equal(now(w, "key-alice", "contexts.create", "{" BOX "}", &s), 503);
    assert_int_equal(now(w, "key-alice", "ready", "{}", &s), 503);
    assert_int_equal(now(w, "key-alice", "fs.remove", "{" BOX ",\"path\":\"a\"}", &s), 503);
    assert_int_equal(now(w, "key-alice", "health", "{}", &s), 200);
    assert_int_equal(now(w, "key-alice", "sandboxes.get", "{" BOX "}", &s), 200);
    assert_int_equal(now(w, "key-alice", "runs.interrupt", "{" RUN "}", &s), 204);
    fake_core_set_ready(w->core, KG_ERR_STARTING);
    assert_int_equal(now(w, "key-alice", "run_code", "{" BOX ",\"code\":\"1\"}", &s), 503);
}

/* --- Rights --------------------------------------------------------------------------------- */

static void keys_are_checked_and_remembered(void **state)
{
    world_t *w = *state;
    kg_principal_t p;
    kg_err_t err = {0};
    kg_auth_t *auth = kg_api_auth(w->api);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(kg_auth_check(auth, kg_slice_cstr("key-alice"), &p, &err), 0);
    }
    assert_string_equal(p.key.owner, "alice");
    assert_int_equal(fake_stats(w->core)->key_checks, 1);
    w->now += KG_AUTH_CACHE_NS;
    assert_int_equal(kg_auth_check(auth, kg_slice_cstr("key-alice"), &p, &err), 0);
    assert_int_equal(fake_stats(w->core)->key_checks, 2);
    kg_auth_forget(auth);
    assert_int_equal(kg_auth_check(auth, kg_slice_cstr("key-alice"), &p, &err), 0);
    assert_int_equal(fake_stats(w->core)->key_checks, 3);

    static const char *const bad[] = {
        "", "nope", "key-old", "key-aliceX",
        "0123456789012345678901234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        err = (kg_err_t){0};
        assert_true(kg_auth_check(auth, kg_slice_cstr(bad[i]), &p, &err) < 0);
        assert_int_equal(err.code, KG_ERR_UNAUTHORIZED);
        assert_null(bad[i][0] ? strstr(err.message, bad[i]) : NULL);
    }
    assert_true(kg_auth_check(auth, kg_slice_cstr("key-io"), &p, &err) < 0);
    assert_int_equal(err.code, KG_ERR_INTERNAL);
}

static void scopes_decide(void **state)
{
    world_t *w = *state;
    seen_t s;
    assert_int_equal(now(w, "key-attach", "run_code", "{" BOX ",\"code\":\"1\"}", &s), 200);
    assert_int_equal(
        now(w, "key-attach", "contexts.find", "{\"context\":\"" FAKE_CONTEXT "\"}", &s), 200);
    assert_int_equal(now(w, "key-attach", "sandboxes.delete", "{" BOX "}", &s), 403);
    static const char *const inside[] = {"sandboxes.get",
                                         "sandboxes.resume",
                                         "contexts.update",
                                         "contexts.interrupt",
                                         "contexts.variables",
                                         "contexts.connect",
                                         "exec",
                                         "processes.kill",
                                         "fs.list",
                                         "fs.read",
                                         "fs.write",
                                         "runs.interrupt"};
    static const char *const itself[] = {"sandboxes.pause", "sandboxes.update", "sandboxes.delete",
                                         "expose",          "unexpose",         "contexts.create",
                                         "contexts.reset",  "contexts.delete"};
    for (size_t i = 0; i < KG_ARRAY_LEN(inside); i++) {
        assert_int_equal(kg_op_find(inside[i])->right, KG_RIGHT_SANDBOX);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(itself); i++) {
        assert_int_equal(kg_op_find(itself[i])->right, KG_RIGHT_USE);
    }
    assert_int_equal(now(w, "key-attach", "sandboxes.pause", "{" BOX "}", &s), 403);
    assert_int_equal(now(w, "key-attach", "contexts.create", "{" BOX "}", &s), 403);
    assert_int_equal(now(w, "key-attach", "exec", "{" BOX ",\"cmd\":\"ls\"}", &s), 200);
    assert_int_equal(now(w, "key-attach", "sandboxes.create", "{}", &s), 403);
    assert_int_equal(now(w, "key-attach", "sandboxes.list", "{}", &s), 403);
    assert_int_equal(now(w, "key-other", "run_code", "{" BOX ",\"code\":\"1\"}", &s), 403);
    assert_int_equal(now(w, "key-other", "contexts.find", "{\"context\":\"" FAKE_CONTEXT "\"}", &s),
                     403);
    assert_int_equal(now(w, "key-admin", "run_code", "{" BOX ",\"code\":\"1\"}", &s), 200);
    assert_int_equal(now(w, "key-admin", "keys.list", "{}", &s), 200);
    assert_true(kg_scope_valid("use") && kg_scope_valid("admin"));
    assert_false(kg_scope_valid("root") || kg_scope_valid("attach:") ||
                 kg_scope_valid("attach:a b"));
}

static void keys_are_managed(void **state)
{
    world_t *w = *state;
    seen_t s;
    assert_int_equal(
        now(w, "key-admin", "keys.create", "{\"name\":\"ci\",\"scopes\":[\"use\",\"admin\"]}", &s),
        201);
    assert_non_null(strstr(s.body, "\"key\":\"sk-sandal-secret\""));
    assert_non_null(strstr(s.body, "\"scopes\":[\"use\",\"admin\"]"));
    assert_string_equal(s.location, "/v1/keys/key-1");
    assert_int_equal(now(w, "key-admin", "keys.create", "{\"scopes\":[\"root\"]}", &s), 400);
    assert_int_equal(now(w, "key-admin", "keys.create", "{\"scopes\":[]}", &s), 400);
    assert_int_equal(now(w, "key-admin", "keys.list", "{}", &s), 200);
    assert_null(strstr(s.body, "secret"));
    assert_int_equal(now(w, "key-admin", "keys.delete", "{\"id\":\"key-1\"}", &s), 204);
    assert_int_equal(now(w, "key-admin", "keys.delete", "{\"id\":\"key-2\"}", &s), 404);
    /* Shown once: the same idempotency key does not show it again. */
    assert_int_equal(now(w, "key-admin", "keys.create", "{\"key\":\"k1\"}", &s), 201);
    assert_int_equal(now(w, "key-admin", "keys.create", "{\"key\":\"k1\"}", &s), 409);
    assert_int_equal(s.code, KG_ERR_CONFLICT);
}

static void metrics_are_there(void **state)
{
    world_t *w = *state;
    seen_t s;
    now(w, "key-alice", "sandboxes.get", "{\"sandbox\":\"nope\"}", &s);
    now(w, "key-admin", "metrics", "{}", &s);
    assert_non_null(strstr(s.body, "sandal_build_info{version="));
    assert_non_null(strstr(s.body, "sandal_runs_total{status=\"ok\"} 7\n"));
    assert_non_null(strstr(s.body, "sandal_run_duration_seconds_sum 1.5"));
    assert_non_null(strstr(s.body, "sandal_run_duration_seconds_bucket{le=\"0.005\"} 0\n"));
    assert_non_null(strstr(s.body, "sandal_run_duration_seconds_bucket{le=\"300\"} 5\n"));
    assert_non_null(strstr(s.body, "sandal_run_duration_seconds_bucket{le=\"+Inf\"} 7\n"));
    assert_non_null(strstr(s.body, "sandal_run_duration_seconds_count 7\n"));
    assert_non_null(strstr(s.body, "sandal_errors_total{code=\"sandbox_not_found\"} 1\n"));
    assert_non_null(strstr(s.body, "sandal_calls_total{op=\"sandboxes.get\",class=\"4xx\"} 1\n"));
    assert_non_null(
        strstr(s.body, "sandal_pool_ready{template=\"lukewarm\",start=\"zygote\"} 2\n"));
    assert_non_null(
        strstr(s.body, "sandal_pool_hits_total{template=\"lukewarm\",start=\"zygote\"} 7\n"));
    assert_non_null(
        strstr(s.body, "sandal_pool_given_back_total{template=\"lukewarm\",start=\"zygote\"} 3\n"));
    assert_null(strstr(s.body, "alice"));
}

/* --- Idempotency ---------------------------------------------------------------------------- */

static void same_key_is_done_once(void **state)
{
    world_t *w = *state;
    seen_t s;
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"key\":\"k\",\"name\":\"a\"}", &s),
                     201);
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"name\":\"a\",\"key\":\"k\"}", &s),
                     201);
    assert_string_equal(s.location, "/v1/sandboxes/" FAKE_SANDBOX);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"key\":\"k\",\"name\":\"b\"}", &s),
                     409);
    assert_int_equal(s.code, KG_ERR_KEY_REUSED);
    assert_int_equal(now(w, "key-bob", "sandboxes.create", "{\"key\":\"k\",\"name\":\"b\"}", &s),
                     201);
    assert_int_equal(now(w, "key-alice", "contexts.create", "{" BOX ",\"key\":\"k\"}", &s), 201);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 2);
    w->now += (uint64_t)KG_API_IDEM_S * KG_NS_PER_S;
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"key\":\"k\",\"name\":\"a\"}", &s),
                     201);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 3);
}

static void second_asker_waits_for_the_first(void **state)
{
    world_t *w = *state;
    seen_t a, b, c;
    assert_non_null(start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &a));
    assert_non_null(start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &b));
    kg_call_t *gone = start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &c);
    kg_api_abandon(&gone);
    fake_core_fire(w->core, KG_ERR_NONE);
    assert_int_equal(a.status, 201);
    assert_int_equal(b.status, 201);
    assert_int_equal(c.answers, 0);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
}

static void failed_request_frees_its_key(void **state)
{
    world_t *w = *state;
    seen_t a, b;
    assert_non_null(start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &a));
    assert_non_null(start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &b));
    fake_core_fire(w->core, KG_ERR_KERNEL_START_FAILED);
    assert_int_equal(a.status, 502);
    assert_int_equal(b.status, 502);
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &a), 201);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 2);
}

static void remembered_answers_are_bounded(void **state)
{
    world_t *w = *state;
    seen_t s;
    for (unsigned i = 0; i < KG_API_IDEM_MAX + 10; i++) {
        char args[64];
        snprintf(args, sizeof args, "{" CTX ",\"key\":\"k%u\"}", i);
        now(w, "key-alice", "contexts.interrupt", args, &s);
    }
    unsigned before = fake_stats(w->core)->interrupts;
    now(w, "key-alice", "contexts.interrupt", "{" CTX ",\"key\":\"k5000\"}", &s);
    now(w, "key-alice", "contexts.interrupt", "{" CTX ",\"key\":\"k4000\"}", &s);
    assert_int_equal(fake_stats(w->core)->interrupts, before + 1);
    now(w, "key-alice", "contexts.interrupt", "{" CTX ",\"key\":\"k0\"}", &s);
    assert_int_equal(fake_stats(w->core)->interrupts, before + 2);
}

/* --- Clients that leave --------------------------------------------------------------------- */

static void abandoned_call_is_forgotten(void **state)
{
    world_t *w = *state;
    seen_t s;
    kg_call_t *call = start(w, "key-alice", "sandboxes.create", "{}", &s);
    kg_api_abandon(&call);
    assert_null(call);
    assert_int_equal(fake_stats(w->core)->forgotten, 1);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 0);
    assert_int_equal(s.answers, 0);
    kg_api_abandon(&call);
}

static void abandoned_call_with_a_key_is_remembered(void **state)
{
    world_t *w = *state;
    seen_t s;
    kg_call_t *call = start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &s);
    kg_api_abandon(&call);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1);
    assert_int_equal(s.answers, 0);
    assert_int_equal(now(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &s), 201);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
}

static void destroy_forgets_pending_calls(void **state)
{
    world_t *w = *state;
    seen_t a, b, c;
    start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &a);
    start(w, "key-alice", "sandboxes.create", "{\"key\":\"k\"}", &b);
    start(w, "key-alice", "contexts.reset", "{" CTX "}", &c);
    kg_api_destroy(&w->api);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 0);
    assert_int_equal(a.answers + b.answers + c.answers, 0);
}

/* --- Tools ---------------------------------------------------------------------------------- */

#define MCP(code)                                                                                  \
    "\"format\":\"mcp\",\"call\":{\"name\":\"run_code\",\"arguments\":{\"code\":\"" code "\"}}"
#define NO_OUTPUT "{\"content\":[{\"type\":\"text\",\"text\":\"[no output]\"}],\"isError\":false}"

static void tool_call_waits_for_the_end_of_its_run(void **state)
{
    world_t *w = *state;
    seen_t s;
    assert_non_null(start(w, "key-alice", "tools.run_code", "{" MCP("1+1") "," BOX "}", &s));
    assert_string_equal(fake_stats(w->core)->last_code, "1+1");
    assert_int_equal(fake_stats(w->core)->last_run.output_bytes, KG_TOOLS_OUTPUT_BYTES);
    fake_run_finish(w->core);
    assert_int_equal(s.status, 200);
    assert_string_equal(s.body, NO_OUTPUT);
    assert_int_equal(fake_stats(w->core)->attached, 0);
    assert_int_equal(fake_stats(w->core)->readers, 0);
}

static void tool_call_that_is_left_lets_its_run_go(void **state)
{
    world_t *w = *state;
    seen_t s;
    kg_call_t *call = start(w, "key-alice", "tools.run_code", "{" MCP("1") "," BOX "}", &s);
    assert_int_equal(fake_stats(w->core)->attached, 1);
    kg_api_abandon(&call);
    assert_int_equal(fake_stats(w->core)->attached, 0);
    fake_run_finish(w->core);
    assert_int_equal(s.answers, 0);
}

/* Long results are read over several turns and rendered on a worker; leave: the client goes
 * meanwhile. */
static void long_result(world_t *w, unsigned turns, bool leave)
{
    seen_t s;
    kg_workq_t *workers = NULL;
    char *text = malloc(3000001);
    assert_non_null(text);
    memset(text, 'x', 3000000);
    text[3000000] = '\0';
    assert_int_equal(kg_workq_create(NULL, &workers), 0);
    kg_api_set_tools(w->api, NULL, workers);
    kg_call_t *call = start(w, "key-alice", "tools.run_code", "{" MCP("1") "," BOX "}", &s);
    fake_run_event(w->core, KG_EVENT_STDOUT, text);
    fake_run_finish(w->core);
    assert_int_equal(s.answers, 0);
    if (leave) {
        kg_api_abandon(&call);
        assert_int_equal(fake_stats(w->core)->attached, 0);
    }
    assert_int_equal(fake_work_run(), leave ? 1 : turns);
    assert_int_equal(s.answers, !leave);
    assert_int_equal(fake_stats(w->core)->readers, 0);
    kg_workq_close(&workers);
    kg_api_set_tools(w->api, NULL, NULL);
    free(text);
}

static void tool_results_of_any_length_are_rendered(void **state)
{
    long_result(*state, 3, false); /* two more turns of reading, and the worker */
    long_result(*state, 3, true);
}

static void tool_session_has_one_sandbox_and_a_most(void **state)
{
    world_t *w = *state;
    seen_t s;
    kg_tools_config_t config;
    kg_tools_config_defaults(&config);
    config.sessions_max = 1;
    kg_api_set_tools(w->api, &config, NULL);
    assert_non_null(
        start(w, "key-alice", "tools.run_code", "{" MCP("1") ",\"session\":\"a\"}", &s));
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1);
    fake_run_finish(w->core);
    assert_string_equal(s.body, NO_OUTPUT);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
    fake_core_metadata(w->core, KG_TOOLS_META_SESSION, "a");
    assert_non_null(
        start(w, "key-alice", "tools.run_code", "{" MCP("1") ",\"session\":\"a\"}", &s));
    fake_run_finish(w->core);
    assert_string_equal(s.body, NO_OUTPUT);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
    assert_int_equal(now(w, "key-alice", "tools.run_code", "{" MCP("1") ",\"session\":\"b\"}", &s),
                     429);
    start(w, "key-bob", "tools.run_code", "{" MCP("1") ",\"session\":\"b\"}", &s);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_KERNEL_START_FAILED), 1);
    assert_int_equal(s.code, KG_ERR_KERNEL_START_FAILED);
}

static void tool_call_needs_the_right_to_its_place(void **state)
{
    world_t *w = *state;
    seen_t s;
    static const char args[] = "{" MCP("full") "," BOX "}";
    assert_int_equal(now(w, "key-other", "tools.run_code", args, &s), 403);
    assert_int_equal(now(w, "key-bob", "tools.run_code", args, &s), 404);
    assert_int_equal(now(w, "key-attach", "tools.run_code", args, &s), 429); /* the queue's */
    assert_int_equal(now(w, "key-attach", "tools.run_code", "{" MCP("1") ",\"session\":\"a\"}", &s),
                     403);
    assert_int_equal(now(w, "key-alice", "tools.run_code", "{" MCP("1") "}", &s), 400);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tool_call_waits_for_the_end_of_its_run, setup, teardown),
        cmocka_unit_test_setup_teardown(tool_call_that_is_left_lets_its_run_go, setup, teardown),
        cmocka_unit_test_setup_teardown(tool_results_of_any_length_are_rendered, setup, teardown),
        cmocka_unit_test_setup_teardown(tool_session_has_one_sandbox_and_a_most, setup, teardown),
        cmocka_unit_test_setup_teardown(tool_call_needs_the_right_to_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(every_operation_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(exec_takes_its_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(every_operation_hides_from_foreign_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(created_objects_have_locations, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_of_the_core_reach_the_client, setup, teardown),
        cmocka_unit_test_setup_teardown(run_code_passes_its_options, setup, teardown),
        cmocka_unit_test_setup_teardown(ended_and_expired_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_starts_while_draining, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_are_checked_and_remembered, setup, teardown),
        cmocka_unit_test_setup_teardown(scopes_decide, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_are_managed, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics_are_there, setup, teardown),
        cmocka_unit_test_setup_teardown(same_key_is_done_once, setup, teardown),
        cmocka_unit_test_setup_teardown(second_asker_waits_for_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_request_frees_its_key, setup, teardown),
        cmocka_unit_test_setup_teardown(remembered_answers_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(abandoned_call_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(abandoned_call_with_a_key_is_remembered, setup, teardown),
        cmocka_unit_test_setup_teardown(destroy_forgets_pending_calls, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
