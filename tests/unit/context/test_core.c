/* The context room against a stock ipykernel in a real (unisolated) sandbox: how runs go and how
 * they end. */
#include "tests/unit/context/core_rig.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/context/internal.h"

static void run_code_counts_text_and_state(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    json_t *e = rig_exec(rig, sbx, "x = 1\nx + 1");
    assert_string_equal("ok", str_of(e, "status"));
    assert_string_equal("2", str_of(e, "text"));
    assert_int_equal(1, int_of(e, "execution_count"));
    assert_true(int_of(e, "usage.peak_memory") > 10 << 20);
    assert_true(int_of(e, "usage.cpu_ms") >= 0);
    json_decref(e);
    e = rig_exec(rig, sbx, "print('hé'); x");
    assert_string_equal("hé\n", str_of(e, "stdout"));
    assert_int_equal(2, int_of(e, "execution_count"));
    json_decref(e);
    kg_run_opts_t silent = rig_opts("print('s'); x");
    silent.silent = true;
    e = rig_end(rig, rig_run(rig, sbx, &silent), 5000);
    assert_string_equal("s\n", str_of(e, "stdout"));
    assert_int_equal(-1, int_of(e, "execution_count"));
    json_decref(e);
    e = rig_exec(rig, sbx, "1/0");
    assert_string_equal("error", str_of(e, "status"));
    assert_string_equal("ZeroDivisionError", str_of(e, "error.name"));
    assert_string_equal("kept", str_of(e, "error.state"));
    assert_int_equal(3, int_of(e, "execution_count"));
    json_decref(e);
    rig_expect(
        rig, sbx,
        "import os; os.environ['FROM_TEMPLATE'], os.path.exists(os.path.expanduser('~/.cached')), "
        "'SANDAL_TEST_KEEPER' in os.environ, os.path.basename(os.getcwd())",
        "ok", "('yes', True, False, 'workspace')");
    drop(rig, sbx);
}

static void interrupt_ends_the_run_and_keeps_state(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts("y = 5\nprint('on', flush=True)\nimport time; time.sleep(30)");
    bool interrupted = true;
    assert_int_equal(0, kg_context_interrupt(main_context(sbx), &interrupted, NULL));
    assert_false(interrupted);
    kg_run_t *run = rig_run(rig, sbx, &opts);
    rig_until_has(rig, run, "\"on", 5000);
    uint64_t begun = kg_now_ns();
    assert_int_equal(0, kg_context_interrupt(main_context(sbx), &interrupted, NULL));
    assert_true(interrupted);
    json_t *e = rig_end(rig, run, 1000);
    print_message("interrupt to end: %d ms\n", (int)((kg_now_ns() - begun) / KG_NS_PER_MS));
    assert_string_equal("interrupted", str_of(e, "status"));
    assert_string_equal("Interrupted", str_of(e, "error.name"));
    assert_string_equal("kept", str_of(e, "error.state"));
    assert_string_equal("on\n", str_of(e, "stdout"));
    json_decref(e);
    rig_expect(rig, sbx, "y", "ok", "5");
    drop(rig, sbx);
}

static void timeout_interrupts_then_kills_what_ignores_it(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t polite = rig_opts("z = 7\nwhile True: pass");
    polite.timeout_ms = 1500; /* enough for what comes before the loop */
    json_t *e = rig_end(rig, rig_run(rig, sbx, &polite), 2500);
    assert_string_equal("timeout", str_of(e, "status"));
    assert_string_equal("TimeoutError", str_of(e, "error.name"));
    assert_string_equal("kept", str_of(e, "error.state"));
    json_decref(e);
    rig_expect(rig, sbx, "z", "ok", "7");
    kg_run_opts_t stubborn =
        rig_opts("import time\nprint('here', flush=True)\nwhile True:\n  try: time.sleep(9)\n"
                 "  except KeyboardInterrupt: pass");
    stubborn.timeout_ms = 1500;
    uint64_t begun = kg_now_ns();
    e = rig_end(rig, rig_run(rig, sbx, &stubborn),
                5500); /* 1.5 s, grace 3 s, and at most a second more */
    print_message("stubborn timeout: %d ms\n", (int)((kg_now_ns() - begun) / KG_NS_PER_MS));
    assert_string_equal("timeout", str_of(e, "status"));
    assert_string_equal("lost", str_of(e, "error.state"));
    assert_string_equal("here\n", str_of(e, "stdout"));
    assert_true(json_is_true(json_object_get(json_object_get(e, "error"), "started")));
    json_decref(e);
    e = rig_exec(rig, sbx, "'z' in dir()");
    assert_string_equal("False", str_of(e, "text"));
    assert_int_equal(1, int_of(e, "execution_count"));
    json_decref(e);
    e = kg_context_json(main_context(sbx));
    assert_int_equal(2, int_of(e, "incarnation"));
    assert_int_equal(SIGKILL, int_of(e, "last_exit.signal"));
    json_decref(e);
    drop(rig, sbx);
}

static void death_of_the_kernel_is_told_as_it_was(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    static const struct {
        const char *code, *status, *name, *stdout_text;
    } ends[] = {
        {"import os, signal\nprint('a', flush=True)\nimport time; "
         "time.sleep(1)\nos.kill(os.getpid(), signal.SIGKILL)",
         "killed", "KernelKilled", "a\n"},
        {"import os\nprint('b', flush=True)\nimport time; time.sleep(1)\nos._exit(3)", "exited",
         "KernelExited", "b\n"},
        {"print('c')\nexit()", "exited", "KernelExited", "c\n"},
        {"import ctypes; ctypes.string_at(0)", "killed", "KernelKilled", ""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(ends); i++) {
        json_t *e = rig_exec(rig, sbx, ends[i].code);
        assert_string_equal(ends[i].status, str_of(e, "status"));
        assert_string_equal(ends[i].name, str_of(e, "error.name"));
        assert_string_equal("lost", str_of(e, "error.state"));
        assert_string_equal(ends[i].stdout_text, str_of(e, "stdout"));
        json_decref(e);
    }
    json_t *e = rig_exec(rig, sbx, "import sys; sys.exit(4)");
    assert_string_equal("error", str_of(e, "status"));
    assert_string_equal("SystemExit", str_of(e, "error.name"));
    assert_string_equal("kept", str_of(e, "error.state"));
    json_decref(e);
    rig_expect(rig, sbx, "1+1", "ok", "2");
    kg_core_stats_t stats;
    kg_core_stats(rig->core, &stats);
    assert_true(stats.kernels_died >= 3);
    assert_true(stats.runs_by_status[KG_RUN_KILLED] >= 2);
    drop(rig, sbx);
}

static void queue_is_in_order_visible_and_bounded(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t slow = rig_opts("q = [1]\nprint('on', flush=True)\nimport time\ntime.sleep(60)");
    kg_run_opts_t next = rig_opts("q.append(2); q");
    kg_run_t *one = rig_run(rig, sbx, &slow);
    kg_run_t *two = rig_run(rig, sbx, &next);
    kg_run_t *three = rig_run(rig, sbx, &next);
    kg_run_t *four = rig_run(rig, sbx, &next);
    kg_run_t *five = NULL;
    kg_err_t err = {0};
    assert_true(kg_run_new(sbx, &next, &five, NULL, &err) < 0);
    assert_int_equal(KG_ERR_QUEUE_FULL, err.code);
    assert_true(err.retry_after_s > 0);
    json_t *ctx = kg_context_json(main_context(sbx));
    assert_int_equal(3, int_of(ctx, "queue"));
    assert_string_equal("busy", str_of(ctx, "state"));
    json_decref(ctx);
    rig_until_has(rig, two, "\"type\":\"queued\",\"position\":1", 5000);
    rig_until_has(rig, three, "\"position\":2", 5000);
    rig_until_has(rig, one, "\"on", 5000);
    assert_false(rig_has(one, "\"queued\""));
    assert_int_equal(0, kg_run_interrupt(three, NULL));
    json_t *e = rig_end(rig, three, 1000);
    assert_string_equal("interrupted", str_of(e, "status"));
    assert_true(json_is_false(json_object_get(json_object_get(e, "error"), "started")));
    assert_string_equal("kept", str_of(e, "error.state"));
    json_decref(e);
    assert_int_equal(0, kg_run_interrupt(one, NULL));
    json_decref(rig_end(rig, one, 5000));
    e = rig_end(rig, two, 5000);
    assert_string_equal("[1, 2]", str_of(e, "text"));
    json_decref(e);
    e = rig_end(rig, four, 5000);
    assert_string_equal("[1, 2, 2]", str_of(e, "text"));
    json_decref(e);
    drop(rig, sbx);
}

static void reset_aborts_and_starts_fresh(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t slow = rig_opts("w = 1\nprint('w', flush=True)\nimport time; time.sleep(30)");
    kg_run_opts_t next = rig_opts("w");
    kg_run_t *one = rig_run(rig, sbx, &slow);
    kg_run_t *two = rig_run(rig, sbx, &next);
    char id[64];
    (void)snprintf(id, sizeof(id), "%s", kg_sandbox_default_context(sbx));
    rig_until_has(rig, one, "\"w", 5000);
    assert_int_equal(0, kg_context_reset(main_context(sbx), on_context, rig, NULL));
    json_t *e = rig_end(rig, one, 1000);
    assert_string_equal("aborted", str_of(e, "status"));
    assert_true(json_is_true(json_object_get(json_object_get(e, "error"), "started")));
    assert_string_equal("lost", str_of(e, "error.state"));
    assert_string_equal("w\n", str_of(e, "stdout"));
    json_decref(e);
    e = rig_end(rig, two, 100);
    assert_string_equal("aborted", str_of(e, "status"));
    assert_true(json_is_false(json_object_get(json_object_get(e, "error"), "started")));
    assert_string_equal("lost", str_of(e, "error.state"));
    json_decref(e);
    rig_called(rig, 20000);
    assert_int_equal(0, rig->err.code);
    assert_string_equal(id, kg_context_id(rig->context));
    e = rig_exec(rig, sbx, "'w' in dir()");
    assert_string_equal("False", str_of(e, "text"));
    assert_int_equal(1, int_of(e, "execution_count"));
    json_decref(e);
    drop(rig, sbx);
}

static void input_is_answered_or_refused(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    kg_run_opts_t opts = rig_opts("a = input('who? '); a");
    opts.stream = true;
    kg_run_t *run = rig_run(rig, sbx, &opts);
    rig_until_has(rig, run, "\"prompt\":\"who? \"", 5000);
    assert_int_equal(0, kg_run_input(run, kg_slice_cstr("Ann"), &err));
    assert_true(kg_run_input(run, kg_slice_cstr("twice"), &err) < 0);
    assert_int_equal(KG_ERR_NOT_WAITING, err.code);
    json_t *e = rig_end(rig, run, 5000);
    assert_string_equal("'Ann'", str_of(e, "text"));
    json_decref(e);

    json_t *lines = json_pack("[s, s]", "1", "zwei");
    kg_run_opts_t given = rig_opts("input() + input()");
    given.stdin_lines = lines;
    e = rig_end(rig, rig_run(rig, sbx, &given), 5000);
    assert_string_equal("'1zwei'", str_of(e, "text"));
    json_decref(e);
    given.code = kg_slice_cstr("[input() for _ in range(3)]");
    e = rig_end(rig, rig_run(rig, sbx, &given), 5000);
    assert_string_equal("error", str_of(e, "status"));
    assert_string_equal("EOFError", str_of(e, "error.name"));
    assert_string_equal("kept", str_of(e, "error.state"));
    json_decref(e);
    json_decref(lines);

    e = rig_exec(rig, sbx, "input()");
    assert_string_equal("error", str_of(e, "status"));
    assert_string_equal("StdinNotImplementedError", str_of(e, "error.name"));
    json_decref(e);
    drop(rig, sbx);
}

static void env_and_cwd_of_one_run_leave_no_trace(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    json_t *env = json_pack("{s:s, s:s}", "RUN_ONLY", "ü\"\\\n😀", "HOME", "/x");
    rig_expect(rig, sbx,
               "import os; os.makedirs('sub', exist_ok=True); os.getcwd().endswith('workspace')",
               "ok", "True");
    kg_run_opts_t opts = rig_opts(
        "import os; os.environ['RUN_ONLY'], os.environ['HOME'], os.path.basename(os.getcwd())");
    opts.env = env;
    opts.cwd = "/workspace/sub";
    json_t *e = rig_end(rig, rig_run(rig, sbx, &opts), 5000);
    assert_string_equal("('ü\"\\\\\\n😀', '/x', 'sub')", str_of(e, "text"));
    assert_int_equal(2, int_of(e, "execution_count"));
    json_decref(e);
    opts.code = kg_slice_cstr("1/0");
    json_decref(rig_end(rig, rig_run(rig, sbx, &opts), 5000));
    e = rig_exec(rig, sbx,
                 "os.environ.get('RUN_ONLY'), os.environ['HOME'] != '/x', "
                 "os.path.basename(os.getcwd()), _2[2]");
    assert_string_equal("(None, True, 'workspace', 'sub')", str_of(e, "text"));
    assert_int_equal(4, int_of(e, "execution_count"));
    json_decref(e);
    opts.cwd = "nowhere";
    e = rig_end(rig, rig_run(rig, sbx, &opts), 5000);
    assert_string_equal("error", str_of(e, "status"));
    assert_string_equal("FileNotFoundError", str_of(e, "error.name"));
    assert_true(json_is_false(json_object_get(json_object_get(e, "error"), "started")));
    json_decref(e);
    rig_expect(rig, sbx, "os.environ.get('RUN_ONLY')", "ok", "");
    json_decref(env);
    drop(rig, sbx);
}

static void questions_disturb_nothing(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_context_t *ctx = main_context(sbx);
    kg_err_t err = {0};
    rig_expect(rig, sbx, "big = list(range(10**6)); class_ = 'k'; 6*7", "ok", "42");
    assert_int_equal(0, kg_context_variables(ctx, 0, on_reply, rig, &err));
    rig_called(rig, 5000);
    json_t *vars = json_loads(rig->reply, 0, NULL);
    assert_int_equal(2, (int)json_array_size(json_object_get(vars, "items")));
    json_t *first = json_array_get(json_object_get(vars, "items"), 0);
    assert_string_equal("big", str_of(first, "name"));
    assert_string_equal("list", str_of(first, "type"));
    assert_int_equal(1000000, int_of(first, "length"));
    json_decref(vars);
    rig->called = false;
    assert_int_equal(
        0, kg_context_complete(ctx, kg_slice_cstr("class"), SIZE_MAX, 0, on_reply, rig, &err));
    rig_called(rig, 8000);
    assert_non_null(strstr(rig->reply, "\"class_\""));
    assert_non_null(strstr(rig->reply, "\"start\":0,\"end\":5}"));
    rig->called = false;
    assert_int_equal(0,
                     kg_context_inspect(ctx, kg_slice_cstr("len"), 3, 0, 0, on_reply, rig, &err));
    rig_called(rig, 8000);
    assert_non_null(strstr(rig->reply, "{\"found\":true,\"formats\":{\"text/plain\""));
    assert_true(kg_context_inspect(ctx, kg_slice_cstr("len"), 4, 0, 0, on_reply, rig, &err) < 0);
    assert_string_equal("/cursor", err.pointer);
    json_t *e = rig_exec(rig, sbx, "_");
    assert_string_equal("42", str_of(e, "text"));
    assert_int_equal(2, int_of(e, "execution_count"));
    json_decref(e);
    kg_run_opts_t slow = rig_opts("import time; time.sleep(.4); late_one = 1");
    kg_run_t *run = rig_run(rig, sbx, &slow);
    assert_true(kg_context_variables(ctx, 0, on_reply, rig, &err) < 0);
    assert_int_equal(KG_ERR_BUSY, err.code);
    rig->called = false;
    assert_int_equal(0, kg_context_variables(ctx, 50, on_reply, rig, &err));
    rig_called(rig, 300);
    assert_int_equal(KG_ERR_BUSY, rig->err.code);
    rig->called = false;
    assert_int_equal(0, kg_context_variables(ctx, 5000, on_reply, rig, &err));
    rig_called(rig, 5000);
    assert_non_null(strstr(rig->reply, "late_one"));
    json_decref(rig_end(rig, run, 1000));
    drop(rig, sbx);
}

static void question_that_hangs_is_interrupted(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    rig_expect(rig, sbx,
               "import sandal_context, time\n"
               "sandal_context.variables = lambda: time.sleep(60); 1",
               "ok", "1");
    assert_int_equal(0, kg_context_variables(main_context(sbx), 0, on_reply, rig, &err));
    rig_called(rig, 12000);
    assert_int_equal(KG_ERR_KERNEL_TIMEOUT, rig->err.code);
    rig_expect(rig, sbx, "1 + 1", "ok", "2");
    rig->called = false;
    assert_int_equal(0, kg_context_variables(main_context(sbx), 0, on_reply, rig, &err));
    rig_turn(rig, 200);
    assert_int_equal(0, kg_context_reset(main_context(sbx), NULL, NULL, &err));
    rig_called(rig, 3000);
    assert_int_equal(KG_ERR_BUSY, rig->err.code);
    rig_expect(rig, sbx, "2 + 2", "ok", "4");
    drop(rig, sbx);
}

static bool is_late(void *arg)
{
    return kg_run_log_late(kg_run_log_of(arg));
}

static void late_output_belongs_to_its_run(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts(
        "import threading\nt = threading.Timer(2, lambda: print('late', flush=True)); t.start()");
    kg_run_t *run = rig_run(rig, sbx, &opts);
    kg_run_attach(run);
    kg_run_t *held = run;
    json_decref(rig_end(rig, run, 5000));
    (void)rig_until(rig, is_late, held, 5000);
    kg_run_detach(&held);
    rig_expect(rig, sbx, "1", "ok", "1");
    drop(rig, sbx);
}

static void disconnect_follows_its_policy(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    static const struct {
        kg_on_disconnect_t policy;
        const char *status, *state_word;
    } rows[] = {{KG_ON_DISCONNECT_INTERRUPT, "interrupted", "kept"},
                {KG_ON_DISCONNECT_KILL, "killed", "lost"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_run_opts_t opts = rig_opts("print(1, flush=True); import time; time.sleep(30)");
        opts.on_disconnect = rows[i].policy;
        kg_run_t *run = rig_run(rig, sbx, &opts);
        rig_until_has(rig, run, "\"1", 5000);
        kg_run_t *client = run;
        kg_run_detach(&client);
        kg_run_attach(run);
        json_t *e = rig_end(rig, run, 1000);
        assert_string_equal(rows[i].status, str_of(e, "status"));
        assert_string_equal(rows[i].state_word, str_of(e, "error.state"));
        bool told = strstr(str_of(e, "error.message"), "on_disconnect") != NULL;
        assert_int_equal(told, rows[i].policy == KG_ON_DISCONNECT_KILL);
        json_decref(e);
    }
    drop(rig, sbx);
}

static void a_queued_run_that_is_killed_kills_nobody(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts("kept = 1; print(1, flush=True); import time; time.sleep(1)");
    kg_run_t *ahead = rig_run(rig, sbx, &opts);
    rig_until_has(rig, ahead, "\"1", 5000);
    opts = rig_opts("kept = 2");
    opts.on_disconnect = KG_ON_DISCONNECT_KILL;
    kg_run_t *queued = rig_run(rig, sbx, &opts);
    kg_run_t *client = queued;
    kg_run_detach(&client);
    kg_run_attach(queued);
    json_t *e = rig_end(rig, queued, 1000);
    assert_string_equal("aborted", str_of(e, "status"));
    assert_string_equal("Aborted", str_of(e, "error.name"));
    assert_non_null(strstr(str_of(e, "error.message"), "cancelled while it was queued"));
    assert_string_equal("kept", str_of(e, "error.state"));
    json_decref(e);
    e = rig_end(rig, ahead, 10000);
    assert_string_equal("ok", str_of(e, "status"));
    json_decref(e);
    rig_expect(rig, sbx, "kept", "ok", "1");
    drop(rig, sbx);
}

static void bad_code_costs_nothing(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts("");
    kg_run_t *run = NULL;
    kg_err_t err = {0};
    static const char bad[] = "1\0002";
    opts.code = kg_slice(bad, 3);
    assert_true(kg_run_new(sbx, &opts, &run, NULL, &err) < 0);
    assert_string_equal("/code", err.pointer);
    opts.code = kg_slice("\xed\xa0\x80", 3);
    assert_true(kg_run_new(sbx, &opts, &run, NULL, &err) < 0);
    char *big = calloc(1, (8U << 20) + 2);
    assert_non_null(big);
    memset(big, '#', (8U << 20) + 1);
    opts.code = kg_slice(big, (8U << 20) + 1);
    assert_true(kg_run_new(sbx, &opts, &run, NULL, &err) < 0);
    assert_int_equal(KG_ERR_TOO_LARGE, err.code);
    opts.code = kg_slice(big, 8U << 20);
    run = rig_run(rig, sbx, &opts);
    json_decref(rig_end(rig, run, 20000));
    free(big);
    opts.code = kg_slice_cstr("1");
    opts.cwd = "";
    assert_true(kg_run_new(sbx, &opts, &run, NULL, &err) < 0);
    assert_string_equal("/cwd", err.pointer);
    drop(rig, sbx);
}

static void runs_are_listed_newest_first(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    for (int i = 0; i < 5; i++) {
        json_decref(rig_exec(rig, sbx, "1"));
    }
    char after[64] = "";
    size_t seen = 0;
    for (int page = 0; page < 3; page++) {
        KG_AUTO_BUF kg_buf_t out = {0};
        kg_run_filter_t filter = {.limit = 2, .after = after[0] ? after : NULL};
        assert_int_equal(0, kg_run_list(sbx, &filter, &out, &err));
        json_t *list = json_loadb(out.data, out.len, 0, NULL);
        assert_non_null(list);
        seen += json_array_size(json_object_get(list, "items"));
        assert_null(strstr(out.data, "expired"));
        (void)snprintf(after, sizeof(after), "%s", str_of(list, "next"));
        json_decref(list);
    }
    assert_int_equal(5, (int)seen);
    assert_string_equal("(none)", after);
    drop(rig, sbx);
}

static size_t listed(kg_sandbox_t *sbx, const char *context)
{
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_run_filter_t filter = {.context = context};
    assert_int_equal(0, kg_run_list(sbx, &filter, &out, &err));
    assert_string_equal("", err.message);
    json_t *list = json_loadb(out.data, out.len, 0, NULL);
    size_t count = json_array_size(json_object_get(list, "items"));
    json_decref(list);
    return count;
}

static void runs_of_a_context_that_is_not_there_are_not_found(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    json_t *done = rig_exec(rig, sbx, "1");
    assert_int_equal(1, (int)listed(sbx, str_of(done, "context")));
    assert_int_equal(1, (int)listed(sbx, NULL));
    json_decref(done);
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_run_filter_t filter = {.context = "nope"};
    assert_true(kg_run_list(sbx, &filter, &out, &err) < 0);
    assert_int_equal(KG_ERR_CONTEXT_NOT_FOUND, err.code);
    assert_string_equal("/context", err.pointer);
    assert_int_equal(0, (int)out.len);
    drop(rig, sbx);
}

/* AddressSanitizer keeps what was freed for a while. */
#if defined(__SANITIZE_ADDRESS__)
#define FLAT_KIB 262144
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLAT_KIB 262144
#endif
#endif
#ifndef FLAT_KIB
#define FLAT_KIB 16384
#endif

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t rss_kib(void)
{
    unsigned long size = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(2, fscanf(file, "%lu %lu", &size, &resident)); // NOLINT(cert-err34-c)
    (void)fclose(file);
    return resident * 4;
}

typedef struct chain {
    kg_sandbox_t *sandbox;
    kg_run_t *run;
    kg_run_watch_t watch;
    kg_loop_t *loop;
    size_t count;
    uint64_t begun_ns;
    uint64_t took_ns[1000];
    size_t heap[2]; /* in use at HEAP_FROM runs, and at the end */
} chain_t;

enum {
    HEAP_FROM = 100,   /* by then a kernel's held runs are as many as ever */
    RUN_HEAP_MAX = 700 /* 607 and what a worker happens to hold */
};

static void chain_next(void *user);

static void chain_grew(void *user)
{
    chain_t *chain = user;
    if (kg_run_ended(chain->run)) {
        chain->took_ns[chain->count++] = kg_now_ns() - chain->begun_ns;
        if (chain->count == HEAP_FROM || chain->count == KG_ARRAY_LEN(chain->took_ns)) {
            chain->heap[chain->count != HEAP_FROM] = mallinfo2().uordblks;
        }
        kg_run_log_unwatch(kg_run_log_of(chain->run), &chain->watch);
        (void)kg_loop_later(chain->loop, chain_next, chain);
    }
}

static void chain_next(void *user)
{
    chain_t *chain = user;
    kg_run_detach(&chain->run);
    if (chain->count < KG_ARRAY_LEN(chain->took_ns)) {
        kg_run_opts_t opts = rig_opts("1+1");
        chain->begun_ns = kg_now_ns();
        assert_int_equal(0, kg_run_new(chain->sandbox, &opts, &chain->run, NULL, NULL));
        kg_run_attach(chain->run);
        chain->watch = (kg_run_watch_t){.fn = chain_grew, .user = chain};
        kg_run_log_watch(kg_run_log_of(chain->run), &chain->watch);
    }
}

static bool chain_over(void *arg)
{
    chain_t *chain = arg;
    return chain->count == KG_ARRAY_LEN(chain->took_ns) && !chain->run;
}

static void many_runs_cost_little_and_leave_little(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    chain_t *chain = calloc(1, sizeof(*chain));
    assert_non_null(chain);
    rig_expect(rig, sbx, "1+1", "ok", "2");
    chain->sandbox = sbx;
    chain->loop = rig->loop;
    uint64_t before = rss_kib();
    chain_next(chain);
    (void)rig_until(rig, chain_over, chain, 60000);
    uint64_t after = rss_kib();
    qsort(chain->took_ns, KG_ARRAY_LEN(chain->took_ns), sizeof(uint64_t), by_value);
    print_message("1+1: p50 %d us, p99 %d us; %d KiB a thousand runs\n",
                  (int)(chain->took_ns[500] / 1000), (int)(chain->took_ns[990] / 1000),
                  (int)(after - before));
    assert_true(after < before + FLAT_KIB);
    if (chain->heap[1] > chain->heap[0]) { /* a sanitizer's heap is not counted */
        size_t each =
            (chain->heap[1] - chain->heap[0]) / (KG_ARRAY_LEN(chain->took_ns) - HEAP_FROM);
        print_message("%zu bytes of heap a run\n", each);
        assert_true(each <= RUN_HEAP_MAX);
    }
    free(chain);
    drop(rig, sbx);
}

static void delete_while_running_tells_the_client(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t opts = rig_opts("print('p', flush=True); import time; time.sleep(30)");
    kg_run_t *run = rig_run(rig, sbx, &opts);
    rig_until_has(rig, run, "\"p", 5000);
    kg_err_t err = {0};
    rig->called = false;
    assert_int_equal(0, kg_sandbox_delete(sbx, on_done, rig, &err));
    json_t *e = rig_end(rig, run, 1000);
    assert_string_equal("aborted", str_of(e, "status"));
    assert_string_equal("p\n", str_of(e, "stdout"));
    json_decref(e);
    rig_called(rig, 3000);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_code_counts_text_and_state),
        cmocka_unit_test(interrupt_ends_the_run_and_keeps_state),
        cmocka_unit_test(timeout_interrupts_then_kills_what_ignores_it),
        cmocka_unit_test(death_of_the_kernel_is_told_as_it_was),
        cmocka_unit_test(queue_is_in_order_visible_and_bounded),
        cmocka_unit_test(reset_aborts_and_starts_fresh),
        cmocka_unit_test(input_is_answered_or_refused),
        cmocka_unit_test(env_and_cwd_of_one_run_leave_no_trace),
        cmocka_unit_test(questions_disturb_nothing),
        cmocka_unit_test(question_that_hangs_is_interrupted),
        cmocka_unit_test(late_output_belongs_to_its_run),
        cmocka_unit_test(disconnect_follows_its_policy),
        cmocka_unit_test(a_queued_run_that_is_killed_kills_nobody),
        cmocka_unit_test(bad_code_costs_nothing),
        cmocka_unit_test(runs_are_listed_newest_first),
        cmocka_unit_test(runs_of_a_context_that_is_not_there_are_not_found),
        cmocka_unit_test(many_runs_cost_little_and_leave_little),
        cmocka_unit_test(delete_while_running_tells_the_client),
    };
    const char *only = getenv("SANDAL_TEST_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
    return cmocka_run_group_tests_name("context", tests, group_setup, group_teardown);
}
