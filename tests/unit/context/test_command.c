/* Commands in a real sandbox (launcher none). */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/context/command.h"
#include "tests/unit/context/rig.h"

enum {
    SOON_MS = 20000
};

static int setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_dirs(rig);
    rig_start(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_t *rig = *state;
    rig_stop(rig);
    rig_remove(rig);
    free(rig);
    return 0;
}

typedef struct started {
    bool called;
    kg_run_t *run; /* attached */
    kg_err_t err;
} started_t;

static void on_started(void *user, kg_run_t *run, const kg_err_t *err)
{
    started_t *started = user;
    started->called = true;
    if (run) {
        kg_run_attach(run);
        started->run = run;
    } else {
        started->err = *err;
    }
}

static bool was_called(void *arg)
{
    return ((started_t *)arg)->called;
}

static kg_command_opts_t opts_of(json_t *cmd)
{
    return (kg_command_opts_t){.cmd = cmd, .timeout_ms = -1, .retain_s = -1};
}

/* Attached; NULL and the error when it did not start. */
static kg_run_t *
start(rig_t *rig, kg_sandbox_t *sandbox, const kg_command_opts_t *opts, kg_err_t *ret_err)
{
    started_t started = {0};
    *ret_err = (kg_err_t){0};
    if (kg_command_new(sandbox, opts, on_started, &started, ret_err)) {
        return NULL;
    }
    assert_false(started.called);
    rig_until(rig, was_called, &started, SOON_MS);
    *ret_err = started.err;
    return started.run;
}

/* Its whole result; cmd is taken. */
static json_t *run_opts(rig_t *rig, kg_sandbox_t *sandbox, kg_command_opts_t opts, json_t *cmd)
{
    kg_err_t err;
    opts.cmd = cmd;
    kg_run_t *run = start(rig, sandbox, &opts, &err);
    json_decref(cmd);
    if (!run) {
        fail_msg("%s", err.message);
    }
    return rig_end(rig, run, SOON_MS);
}

static json_t *run_line(rig_t *rig, kg_sandbox_t *sandbox, const char *line)
{
    return run_opts(rig, sandbox, opts_of(NULL), json_string(line));
}

static void expect(json_t *result, int64_t code, const char *out, const char *err)
{
    if (int_of(result, "exit_code") != code || strcmp(str_of(result, "stdout"), out) != 0 ||
        strcmp(str_of(result, "stderr"), err) != 0) {
        fail_msg("%s", json_dumps(result, 0));
    }
    json_decref(result);
}

static void lines_and_argvs_run(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    expect(run_line(rig, sandbox, "echo out; echo err >&2; exit 3"), 3, "out\n", "err\n");
    expect(run_opts(rig, sandbox, opts_of(NULL), json_pack("[s, s]", "printf", "%s $HOME")), 0,
           " $HOME", "");
    expect(run_line(rig, sandbox, "printf 'a\\377b'"), 0,
           "a\xef\xbf\xbd"
           "b",
           "");
    /* cwd is the workspace, and what is asked for lies below it. */
    expect(run_line(rig, sandbox, "mkdir d && basename $PWD"), 0, "workspace\n", "");
    kg_command_opts_t opts = opts_of(NULL);
    json_t *env = json_pack("{s:s}", "MINE", "yes");
    opts.cwd = "/workspace/d";
    opts.env = env;
    expect(run_opts(rig, sandbox, opts, json_string("basename $PWD; echo $MINE $FROM_TEMPLATE")), 0,
           "d\nyes yes\n", "");
    json_decref(env);
}

static void signal_of(rig_t *rig, kg_sandbox_t *sandbox, const char *line, const char *signal)
{
    json_t *result = run_line(rig, sandbox, line);
    assert_string_equal(str_of(result, "signal"), signal);
    assert_string_equal(str_of(result, "status"), "killed");
    assert_true(json_is_null(json_object_get(result, "exit_code")));
    json_decref(result);
}

static void ends_are_told(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    signal_of(rig, sandbox, "kill -KILL $$", "SIGKILL");
    signal_of(rig, sandbox, "kill -TERM $$", "SIGTERM");
    expect(run_opts(rig, sandbox, opts_of(NULL), json_pack("[s]", "no-such-program")), 127, "",
           "cannot execute \"no-such-program\": No such file or directory\n");
    expect(run_opts(rig, sandbox, opts_of(NULL), json_pack("[s]", "/etc/passwd")), 126, "",
           "cannot execute \"/etc/passwd\": Permission denied\n");
    /* The tree goes, a session of its own too. */
    kg_command_opts_t opts = opts_of(NULL);
    opts.timeout_ms = 100;
    json_t *result =
        run_opts(rig, sandbox, opts, json_string("echo begun; setsid sleep 300 & sleep 300"));
    assert_true(json_is_true(json_object_get(result, "timed_out")));
    assert_string_equal(str_of(result, "signal"), "SIGKILL");
    assert_string_equal(str_of(result, "stdout"), "begun\n");
    json_decref(result);
}

static void bad_input_is_refused(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_err_t err;
    json_t *empty = json_array();
    json_t *number = json_pack("[s, i]", "ls", 1);
    json_t *line = json_string("true");
    json_t *many = json_array();
    for (unsigned i = 0; i <= KG_COMMAND_ARGS_MAX; i++) {
        json_array_append_new(many, json_string("x"));
    }
    const size_t most = KG_COMMAND_BYTES_MAX;
    char *text = malloc(most + 2);
    memset(text, 'x', most + 1);
    text[most + 1] = '\0';
    json_t *longer = json_string(text);
    json_t *argv = json_pack("[s#]", text, (int)most);
    const struct {
        json_t *cmd;
        const char *cwd;
        int64_t timeout_ms;
        bool root;
        kg_err_code_t code;
        const char *pointer;
    } rows[] = {
        {empty, NULL, -1, false, KG_ERR_INVALID_REQUEST, "/cmd"},
        {number, NULL, -1, false, KG_ERR_INVALID_REQUEST, "/cmd/1"},
        {many, NULL, -1, false, KG_ERR_TOO_LARGE, "/cmd"},
        {longer, NULL, -1, false, KG_ERR_TOO_LARGE, "/cmd"},
        {argv, NULL, -1, false, KG_ERR_TOO_LARGE, "/cmd"},
        {line, "nowhere", -1, false, KG_ERR_NOT_FOUND, "/cwd"},
        {line, NULL, INT64_C(1000) * 3600 * 24 * 8, false, KG_ERR_INVALID_REQUEST, "/timeout"},
        {line, NULL, -1, true, KG_ERR_ISOLATION_UNAVAILABLE, "/user"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        kg_command_opts_t opts = opts_of(rows[i].cmd);
        opts.cwd = rows[i].cwd;
        opts.timeout_ms = rows[i].timeout_ms;
        opts.root = rows[i].root;
        assert_null(start(rig, sandbox, &opts, &err));
        assert_int_equal(err.code, rows[i].code);
        assert_string_equal(err.pointer, rows[i].pointer);
    }
    kg_command_opts_t kept = opts_of(line);
    kept.retain_s = KG_RUN_RETAIN_MAX_S + 1;
    assert_null(start(rig, sandbox, &kept, &err));
    assert_string_equal(err.pointer, "/retain");
    json_t *list = kg_command_list(sandbox);
    assert_int_equal(json_array_size(json_object_get(list, "items")), 0);
    json_decref(list);
    json_decref(empty);
    json_decref(number);
    json_decref(many);
    json_decref(longer);
    json_decref(argv);
    free(text);
    json_decref(line);
}

static void stdin_is_written_and_ended(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    expect(run_line(rig, sandbox, "cat"), 0, "", ""); /* nothing to read */
    kg_command_opts_t opts = opts_of(NULL);
    char *big = malloc(KG_COMMAND_INPUT_MAX);
    memset(big, 'x', KG_COMMAND_INPUT_MAX);
    opts.input = kg_slice(big, KG_COMMAND_INPUT_MAX); /* more than a pipe holds */
    expect(run_opts(rig, sandbox, opts, json_string("wc -c")), 0, "1048576\n", "");
    expect(run_opts(rig, sandbox, opts, json_string("head -c 2")), 0, "xx", "");
    free(big);
}

static void output_is_cut_and_encoded(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_command_opts_t opts = opts_of(NULL);
    opts.output_bytes = 8;
    json_t *result = run_opts(rig, sandbox, opts, json_string("printf 0123456789abcdef"));
    assert_string_equal(str_of(result, "stdout"), "01234567ef");
    assert_int_equal(int_of(result, "truncated.stdout"), 6);
    json_decref(result);
    opts.on_exceed = KG_ON_EXCEED_STOP;
    result = run_opts(rig, sandbox, opts, json_string("yes"));
    assert_string_equal(str_of(result, "status"), "output_limit");
    json_decref(result);
    opts = opts_of(NULL);
    opts.base64 = true;
    result =
        run_opts(rig, sandbox, opts, json_string("printf '\\377\\000ab'; sleep 0.1; printf c"));
    assert_string_equal(str_of(result, "stdout"), "/wBhYmM=");
    assert_string_equal(str_of(result, "encoding"), "base64");
    json_decref(result);
}

/* ---- background ---- */

static kg_command_t *background(rig_t *rig, kg_sandbox_t *sandbox, const char *line, kg_run_t **run)
{
    kg_err_t err;
    json_t *cmd = json_string(line);
    kg_command_opts_t opts = opts_of(cmd);
    opts.background = true;
    opts.input_open = true;
    *run = start(rig, sandbox, &opts, &err);
    json_decref(cmd);
    assert_non_null(*run);
    kg_command_t *command = kg_command_of(*run);
    assert_non_null(command);
    assert_ptr_equal(kg_command_find(sandbox, kg_command_pid(command), &err), command);
    return command;
}

static void background_takes_input_and_stays_listed(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_run_t *run = NULL;
    kg_err_t err = {0};
    kg_command_t *command =
        background(rig, sandbox, "while read line; do echo got $line; done", &run);
    int64_t pid = kg_command_pid(command);
    assert_int_equal(kg_command_input(command, kg_slice_cstr("one\n"), false, &err), 0);
    rig_until_has(rig, run, "got one", SOON_MS);
    assert_int_equal(kg_command_input(command, kg_slice_cstr("two\n"), true, &err), 0);
    assert_true(kg_command_input(command, kg_slice_cstr("three\n"), false, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    json_t *result = rig_end(rig, run, SOON_MS);
    assert_string_equal(str_of(result, "stdout"), "got one\ngot two\n");
    json_decref(result);
    json_t *list = kg_command_list(sandbox);
    json_t *item = json_array_get(json_object_get(list, "items"), 0);
    assert_string_equal(str_of(item, "state"), "exited");
    assert_int_equal(int_of(item, "exit_code"), 0);
    assert_int_equal(int_of(item, "pid"), pid);
    json_decref(list);
    assert_true(kg_command_signal(command, "SIGTERM", &err) < 0);
    rig->called = false;
    assert_int_equal(kg_command_delete(command, on_done, rig, &err), 0);
    rig_called(rig, SOON_MS);
    assert_null(kg_command_find(sandbox, pid, &err));
    assert_int_equal(err.code, KG_ERR_PROCESS_NOT_FOUND);
}

static void signals_go_by_name(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_run_t *run = NULL;
    kg_err_t err = {0};
    kg_command_t *command = background(
        rig, sandbox, "trap 'echo hup' HUP; echo ready; while :; do sleep 0.1; done", &run);
    rig_until_has(rig, run, "ready", SOON_MS);
    assert_true(kg_command_signal(command, "SIGNONE", &err) < 0);
    assert_string_equal(err.pointer, "/signal");
    assert_int_equal(kg_command_signal(command, "HUP", &err), 0);
    rig_until_has(rig, run, "hup", SOON_MS);
    assert_true(kg_command_resize(command, 80, 24, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    rig->called = false;
    assert_int_equal(kg_command_delete(command, on_done, rig, &err), 0);
    rig_called(rig, SOON_MS);
    json_t *result = rig_end(rig, run, SOON_MS);
    assert_string_equal(str_of(result, "signal"), "SIGKILL");
    json_decref(result);
}

static bool is_late(void *arg)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    assert_int_equal(kg_run_execution(arg, &text), 0);
    return strstr(text.data, "first\\nlate\\n") && strstr(text.data, "\"late\":true");
}

/* What a command leaves behind goes on, and what it says then is late. */
static void children_outlive_their_command(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_err_t err;
    json_t *cmd = json_string("(while [ ! -e go ]; do sleep 0.05; done; echo late; touch said) & "
                              "echo first");
    kg_command_opts_t opts = opts_of(cmd);
    kg_run_t *run = start(rig, sandbox, &opts, &err);
    json_decref(cmd);
    assert_non_null(run);
    kg_run_attach(run);
    kg_run_t *again = run;
    json_t *result = rig_end(rig, run, SOON_MS);
    assert_string_equal(str_of(result, "stdout"), "first\n");
    json_decref(result);
    expect(run_line(rig, sandbox, "touch go; while [ ! -e said ]; do sleep 0.05; done"), 0, "", "");
    (void)rig_until(rig, is_late, again, SOON_MS);
    kg_run_detach(&again);
}

static void a_client_that_leaves_ends_it(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_err_t err;
    json_t *cmd = json_string("sleep 300");
    kg_command_opts_t opts = opts_of(cmd);
    kg_run_t *run = start(rig, sandbox, &opts, &err);
    assert_non_null(run);
    int64_t pid = kg_command_pid(kg_command_of(run));
    kg_run_attach(run);
    kg_run_t *kept = run;
    kg_run_detach(&run);
    assert_non_null(kg_command_find(sandbox, pid, &err));
    kg_run_t *last = kept;
    kg_run_detach(&last);
    kg_run_attach(kept);
    json_t *result = rig_end(rig, kept, SOON_MS);
    assert_string_equal(str_of(result, "signal"), "SIGKILL");
    json_decref(result);
    json_decref(cmd);
}

static void a_key_runs_once(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_err_t err;
    kg_command_opts_t opts = opts_of(NULL);
    opts.key = "k";
    expect(run_opts(rig, sandbox, opts, json_string("echo x >>once; cat once")), 0, "x\n", "");
    expect(run_opts(rig, sandbox, opts, json_string("echo x >>once; cat once")), 0, "x\n", "");
    json_t *other = json_string("true");
    opts.cmd = other;
    assert_null(start(rig, sandbox, &opts, &err));
    assert_int_equal(err.code, KG_ERR_KEY_REUSED);
    json_decref(other);
}

static void a_deleted_sandbox_ends_its_commands(void **state)
{
    rig_t *rig = *state;
    kg_sandbox_t *sandbox = rig_bare(rig);
    kg_run_t *run = NULL;
    kg_err_t err = {0};
    (void)background(rig, sandbox, "echo here; sleep 300", &run);
    rig_until_has(rig, run, "here", SOON_MS);
    rig->called = false;
    assert_int_equal(kg_sandbox_delete(sandbox, on_done, rig, &err), 0);
    rig_called(rig, SOON_MS);
    json_t *result = rig_end(rig, run, SOON_MS);
    assert_string_equal(str_of(result, "signal"), "SIGKILL");
    assert_string_equal(str_of(result, "stdout"), "here\n");
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_and_argvs_run, setup, teardown),
        cmocka_unit_test_setup_teardown(ends_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_input_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(stdin_is_written_and_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(output_is_cut_and_encoded, setup, teardown),
        cmocka_unit_test_setup_teardown(background_takes_input_and_stays_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(signals_go_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(children_outlive_their_command, setup, teardown),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_runs_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deleted_sandbox_ends_its_commands, setup, teardown),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* as the gateway does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
