/* The context room against a stock ipykernel in a real (unisolated) sandbox: how sandboxes and
 * contexts are made, found and ended. */
#include "tests/unit/context/core_rig.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gateway/context/internal.h"

static unsigned context_count(kg_sandbox_t *sandbox)
{
    json_t *list = kg_context_list(sandbox);
    unsigned count = (unsigned)json_array_size(json_object_get(list, "items"));
    json_decref(list);
    return count;
}

static void refused_run_makes_no_context(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    kg_run_t *run = NULL;
    kg_run_opts_t opts = rig_opts("1");
    opts.language = "broken"; /* its template has a start-up file for Python alone */
    opts.cwd = "/tmp";
    assert_true(kg_run_new(sbx, &opts, &run, NULL, &err) < 0);
    assert_int_equal(KG_ERR_NOT_SUPPORTED, err.code);
    assert_string_equal("/cwd", err.pointer);
    assert_int_equal(1, (int)context_count(sbx));
    drop(rig, sbx);
}

static bool box_is_down(void *arg)
{
    const kg_sandbox_t *sbx = arg;
    return sbx->box != KG_BOX_UP;
}

static void sandbox_deleted_while_its_lost_place_is_swept_goes(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    assert_int_equal(0, kill(sbx->info.init_pid, SIGKILL));
    rig_until(rig, box_is_down, sbx, 5000);
    rig->called = false;
    assert_int_equal(0, kg_sandbox_delete(sbx, on_done, rig, &err));
    rig_called(rig, 5000);
    assert_int_equal(0, rig->err.code);
    rig_turn(rig, 200);     /* nothing comes back to what is gone */
    sbx = rig_sandbox(rig); /* and one that stays gets a fresh place */
    assert_int_equal(0, kill(sbx->info.init_pid, SIGKILL));
    rig_until(rig, box_is_down, sbx, 5000);
    rig_expect(rig, sbx, "6*7", "ok", "42");
    drop(rig, sbx);
}

static void sandbox_being_made_keeps_its_context(void **state)
{
    rig_t *rig = the_rig(state);
    kg_err_t err = {0};
    kg_sandbox_opts_api_t opts = {.timeout_s = -1, .checkpointable = -1, .name = "young"};
    rig->called = false;
    assert_int_equal(0, kg_sandbox_new(rig->core, OWNER, &opts, on_sandbox, rig, &err));
    kg_sandbox_t *sbx = kg_sandbox_find(rig->core, OWNER, "young", &err);
    assert_true(kg_context_delete(main_context(sbx), NULL, NULL, &err) < 0);
    assert_int_equal(KG_ERR_BUSY, err.code);
    rig_called(rig, 20000);
    assert_int_equal(0, rig->err.code);
    rig->called = false;
    assert_int_equal(0, kg_context_delete(main_context(sbx), on_done, rig, &err));
    rig_called(rig, 5000);
    rig_expect(rig, sbx, "6*7", "ok", "42"); /* a default context is made on first use */
    drop(rig, sbx);
}

static void operators_caps_hold_without_a_wish(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    uint64_t cap = rig->core->config.output_bytes_max;
    rig->core->config.output_bytes_max = 1000; /* below the default */
    json_t *e = rig_exec(rig, sbx, "print('x' * 5000)");
    assert_int_equal(1000 + 250, (int)strlen(str_of(e, "stdout"))); /* and the tail */
    json_decref(e);
    rig->core->config.output_bytes_max = cap;
    drop(rig, sbx);
}

static void template_without_debugger_starts_without_it(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_opts_api_t opts = {
        .timeout_s = -1, .checkpointable = -1, .template_name = "nodebug"};
    assert_int_equal(0, rig_create(rig, &opts));
    rig_expect(rig, rig->sandbox, "import sys; 'debugpy' in sys.modules", "ok", "False");
    rig_expect(rig, rig->sandbox, "import debugpy", "error", NULL);
    drop(rig, rig->sandbox);
    kg_sandbox_t *usual = rig_sandbox(rig);
    rig_expect(rig, usual, "import debugpy; 1", "ok", "1");
    drop(rig, usual);
}

static void key_runs_once(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts("n = globals().get('n', 0) + 1; n");
    kg_run_t *again = NULL;
    kg_err_t err = {0};
    bool existing = false;
    opts.key = "k1";
    kg_run_t *run = rig_run(rig, sbx, &opts);
    assert_int_equal(0, kg_run_new(sbx, &opts, &again, &existing, &err));
    assert_true(existing);
    assert_ptr_equal(run, again);
    json_decref(rig_end(rig, run, 5000));
    assert_int_equal(0, kg_run_new(sbx, &opts, &again, &existing, &err));
    assert_true(existing);
    opts.code = kg_slice_cstr("other");
    assert_true(kg_run_new(sbx, &opts, &again, &existing, &err) < 0);
    assert_int_equal(KG_ERR_KEY_REUSED, err.code);
    rig_expect(rig, sbx, "n", "ok", "1");
    drop(rig, sbx);
}

static void objects_are_their_owners_alone(void **state)
{
    rig_t *rig = the_rig(state);
    kg_err_t err = {0};
    json_t *metadata = json_pack("{s:s}", "team", "red");
    kg_sandbox_opts_api_t opts = {
        .timeout_s = 60, .checkpointable = -1, .name = "lab", .metadata = metadata};
    assert_int_equal(0, rig_create(rig, &opts));
    kg_sandbox_t *sbx = rig->sandbox;
    json_t *json = kg_sandbox_json(sbx);
    static const char *const fields[] = {"id",         "name",
                                         "template",   "state",
                                         "created_at", "last_active_at",
                                         "expires_at", "metadata",
                                         "network",    "limits",
                                         "isolation",  "checkpointable",
                                         "start",      "default_context",
                                         "node"};
    for (size_t i = 0; i < KG_ARRAY_LEN(fields); i++) {
        assert_non_null(json_object_get(json, fields[i]));
    }
    assert_string_equal("running", str_of(json, "state"));
    assert_string_equal("none", str_of(json, "isolation.kind"));
    json_decref(json);
    assert_int_equal(KG_ERR_NAME_TAKEN, rig_create(rig, &opts));
    assert_ptr_equal(sbx, kg_sandbox_find(rig->core, OWNER, "lab", &err));
    assert_null(kg_sandbox_find(rig->core, "bob", "lab", &err));
    assert_null(kg_sandbox_find(rig->core, "bob", kg_sandbox_id(sbx), &err));
    assert_int_equal(KG_ERR_SANDBOX_NOT_FOUND, err.code);
    assert_null(kg_context_find_any(rig->core, "bob", kg_sandbox_default_context(sbx), &err));
    assert_non_null(kg_context_find_any(rig->core, OWNER, kg_sandbox_default_context(sbx), &err));
    kg_sandbox_filter_t filter = {.metadata = metadata, .state = "running"};
    json = kg_sandbox_list(rig->core, OWNER, &filter, &err);
    assert_int_equal(1, (int)json_array_size(json_object_get(json, "items")));
    json_decref(json);
    json = kg_sandbox_list(rig->core, "bob", &(kg_sandbox_filter_t){0}, &err);
    assert_int_equal(0, (int)json_array_size(json_object_get(json, "items")));
    json_decref(json);
    kg_sandbox_patch_t patch = {.name = "lab2", .timeout_s = 5, .metadata = json_null()};
    assert_int_equal(0, kg_sandbox_update(sbx, &patch, &err));
    assert_non_null(kg_sandbox_find(rig->core, OWNER, "lab2", &err));
    json_decref(metadata);
    drop(rig, sbx);
    assert_null(kg_sandbox_find(rig->core, OWNER, "lab2", &err));
}

static void create_refuses_what_it_cannot_hold(void **state)
{
    rig_t *rig = the_rig(state);
    json_t *limits = json_pack("{s:i}", "memory_mib", 100);
    json_t *word = json_string("egress");
    json_t *bad_env = json_pack("{s:i}", "A", 1);
    const kg_sandbox_opts_api_t base = {.timeout_s = -1, .checkpointable = -1};
    kg_sandbox_opts_api_t o = base;
    o.isolation = "gvisor"; /* the best there is: where this host has it, nothing is unavailable */
    if (access("/usr/bin/runsc", X_OK) != 0) {
        assert_int_equal(KG_ERR_ISOLATION_UNAVAILABLE, rig_create(rig, &o));
        assert_non_null(strstr(rig->err.hint, "none"));
    }
    rig->core->config.isolation_min = "process";
    o.isolation = "none"; /* below the floor, though it is there */
    assert_int_equal(KG_ERR_ISOLATION_UNAVAILABLE, rig_create(rig, &o));
    assert_non_null(strstr(rig->err.hint, "isolation_min"));
    assert_string_equal("/isolation", rig->err.pointer);
    rig->core->config.isolation_min = NULL;
    o.isolation = "concrete";
    assert_int_equal(KG_ERR_INVALID_REQUEST, rig_create(rig, &o));
    o = base;
    o.limits = limits;
    assert_int_equal(KG_ERR_NOT_SUPPORTED, rig_create(rig, &o));
    assert_string_equal("/limits/memory_mib", rig->err.pointer);
    o = base;
    o.network = word;
    assert_int_equal(KG_ERR_NOT_SUPPORTED, rig_create(rig, &o));
    o = base;
    o.on_timeout = "pause";
    assert_int_equal(KG_ERR_NOT_SUPPORTED, rig_create(rig, &o));
    o = base;
    o.template_name = "nope";
    assert_int_equal(KG_ERR_TEMPLATE_NOT_FOUND, rig_create(rig, &o));
    o = base;
    o.env = bad_env;
    assert_int_equal(KG_ERR_INVALID_REQUEST, rig_create(rig, &o));
    assert_string_equal("/env/A", rig->err.pointer);
    o = base;
    o.name = "Not Good";
    assert_int_equal(KG_ERR_INVALID_REQUEST, rig_create(rig, &o));
    json_decref(limits);
    json_decref(word);
    json_decref(bad_env);
}

static void contexts_are_made_named_and_deleted(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    json_t *env = json_pack("{s:s}", "CTX", "1");
    kg_context_opts_t opts = {.language = "py", .name = "second", .cwd = "/home/user", .env = env};
    assert_int_equal(0, kg_context_new(sbx, &opts, on_context, rig, &err));
    rig_called(rig, 20000);
    assert_int_equal(0, rig->err.code);
    assert_true(kg_context_new(sbx, &opts, on_context, rig, &err) < 0);
    assert_int_equal(KG_ERR_NAME_TAKEN, err.code);
    kg_run_opts_t run = rig_opts("import os; os.environ['CTX'], os.path.basename(os.getcwd())");
    run.context = "second";
    json_t *e = rig_end(rig, rig_run(rig, sbx, &run), 5000);
    assert_string_equal("('1', 'home')", str_of(e, "text"));
    json_decref(e);
    run.language = "klingon";
    kg_run_t *none = NULL;
    assert_true(kg_run_new(sbx, &run, &none, NULL, &err) < 0);
    assert_int_equal(KG_ERR_LANGUAGE_NOT_FOUND, err.code);
    run.language = "broken";
    assert_true(kg_run_new(sbx, &run, &none, NULL, &err) < 0);
    assert_string_equal("/language", err.pointer);
    rig->called = false;
    kg_run_opts_t sleep = rig_opts("print('on', flush=True); import time; time.sleep(30)");
    sleep.context = "second";
    kg_run_t *running = rig_run(rig, sbx, &sleep);
    rig_until_has(rig, running, "\"on", 5000);
    assert_int_equal(0,
                     kg_context_delete(kg_context_find(sbx, "second", &err), on_done, rig, &err));
    assert_null(kg_context_find(sbx, "second", &err));
    e = rig_end(rig, running, 1000);
    assert_string_equal("aborted", str_of(e, "status"));
    json_decref(e);
    rig_called(rig, 3000);
    json_t *list = kg_context_list(sbx);
    assert_int_equal(1, (int)json_array_size(json_object_get(list, "items")));
    json_decref(list);
    json_decref(env);
    drop(rig, sbx);
}

static bool has_one_context(void *arg)
{
    json_t *list = kg_context_list(arg);
    bool one = json_array_size(json_object_get(list, "items")) == 1;
    json_decref(list);
    return one;
}

static void kernel_that_does_not_start_is_told(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    kg_context_opts_t opts = {.language = "broken"};
    assert_int_equal(0, kg_context_new(sbx, &opts, on_context, rig, &err));
    rig_called(rig, 10000);
    assert_int_equal(KG_ERR_KERNEL_START_FAILED, rig->err.code);
    assert_non_null(strstr(rig->err.message, "it is broken"));
    rig_until(rig, has_one_context, sbx, 5000);
    kg_run_opts_t run = rig_opts("x");
    run.language = "broken";
    json_t *e = rig_end(rig, rig_run(rig, sbx, &run), 10000);
    assert_string_equal("exited", str_of(e, "status"));
    assert_true(json_is_false(json_object_get(json_object_get(e, "error"), "started")));
    assert_non_null(strstr(str_of(e, "error.message"), "it is broken"));
    kg_context_t *dead = kg_context_find(sbx, str_of(e, "context"), &err);
    assert_non_null(dead);
    json_t *ctx = kg_context_json(dead);
    assert_string_equal("dead", str_of(ctx, "state"));
    json_decref(ctx);
    json_decref(e);
    e = rig_end(rig, rig_run(rig, sbx, &run), 10000); /* the next run tries again */
    assert_string_equal("exited", str_of(e, "status"));
    json_decref(e);
    rig_expect(rig, sbx, "1", "ok", "1");
    drop(rig, sbx);
}

typedef struct stats_before {
    rig_t *rig;
    kg_core_stats_t stats;
} stats_before_t;

static bool is_as_before(void *arg)
{
    const stats_before_t *before = arg;
    kg_core_stats_t now;
    kg_core_stats(before->rig->core, &now);
    return now.sandboxes == before->stats.sandboxes && now.contexts == before->stats.contexts;
}

static void create_that_fails_or_is_deleted_leaves_nothing(void **state)
{
    rig_t *rig = the_rig(state);
    kg_err_t err = {0};
    stats_before_t before = {.rig = rig};
    kg_core_stats(rig->core, &before.stats);
    kg_sandbox_opts_api_t opts = {
        .timeout_s = -1, .checkpointable = -1, .template_name = "unlucky"};
    opts.name = "unlucky";
    assert_int_equal(KG_ERR_KERNEL_START_FAILED, rig_create(rig, &opts));
    assert_null(kg_sandbox_find(rig->core, OWNER, "unlucky", &err));
    opts.template_name = NULL;
    rig->called = false;
    assert_int_equal(0, kg_sandbox_new(rig->core, OWNER, &opts, on_sandbox, rig, &err));
    rig_turn(rig, 50);
    assert_int_equal(
        0, kg_sandbox_delete(kg_sandbox_find(rig->core, OWNER, "unlucky", &err), NULL, NULL, &err));
    rig_called(rig, 5000);
    assert_int_equal(KG_ERR_SANDBOX_NOT_FOUND, rig->err.code);
    rig_until(rig, is_as_before, &before, 5000);
}

static bool short_is_gone(void *arg)
{
    kg_err_t err = {0};
    return !kg_sandbox_find(((rig_t *)arg)->core, OWNER, "short", &err);
}

static void idle_sandbox_ends(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_opts_api_t opts = {.timeout_s = 1, .checkpointable = -1, .name = "short"};
    assert_int_equal(0, rig_create(rig, &opts));
    json_t *e = rig_exec(rig, rig->sandbox, "import time; time.sleep(1.5); 3");
    assert_string_equal("3", str_of(e, "text"));
    json_decref(e);
    rig_until(rig, short_is_gone, rig, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_run_makes_no_context),
        cmocka_unit_test(sandbox_deleted_while_its_lost_place_is_swept_goes),
        cmocka_unit_test(sandbox_being_made_keeps_its_context),
        cmocka_unit_test(operators_caps_hold_without_a_wish),
        cmocka_unit_test(template_without_debugger_starts_without_it),
        cmocka_unit_test(key_runs_once),
        cmocka_unit_test(objects_are_their_owners_alone),
        cmocka_unit_test(create_refuses_what_it_cannot_hold),
        cmocka_unit_test(contexts_are_made_named_and_deleted),
        cmocka_unit_test(kernel_that_does_not_start_is_told),
        cmocka_unit_test(create_that_fails_or_is_deleted_leaves_nothing),
        cmocka_unit_test(idle_sandbox_ends),
    };
    const char *only = getenv("SANDAL_TEST_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
    return cmocka_run_group_tests_name("objects", tests, group_setup, group_teardown);
}
