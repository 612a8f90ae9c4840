/* A command's log: the same text events, a result of its own kind, and the way back after a
 * restart.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/run/command.h"
#include "gateway/run/log_int.h"
#include "run_util.h"

static void open_command(run_test_t *t)
{
    rt_begin(t);
    t->meta.command = "{\"cmd\":\"true\"}";
    rt_open(t);
}

static kg_command_end_t ended(kg_run_status_t status)
{
    return (kg_command_end_t){.status = status,
                              .duration_ms = 7,
                              .cpu_ms = 3,
                              .peak_memory = KG_USAGE_UNKNOWN,
                              .wall_ns = UINT64_C(1700000000000000000)};
}

static void say(run_test_t *t, bool is_stderr, const char *text)
{
    assert_int_equal(kg_mapper_text(t->mapper, is_stderr, kg_slice_cstr(text)), 0);
}

static void command_result_has_streams_and_exit_code(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    open_command(&t);
    assert_int_equal(kg_mapper_command_started(t.mapper, 12), 0);
    say(&t, false, "out \"1\"\n");
    say(&t, true, "err\n");
    kg_command_end_t end = ended(KG_RUN_ERROR);
    end.exited = true;
    end.exit_code = 3;
    assert_int_equal(kg_mapper_command_finish(t.mapper, &end), 0);
    assert_int_equal(kg_mapper_command_finish(t.mapper, &end), -EALREADY);
    assert_int_equal(kg_mapper_command_started(t.mapper, 12), -EALREADY);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_execution(t.log, 5, &out);
    assert_string_equal(out.data, "{\"run\":\"" RUN_ID "\",\"status\":\"error\",\"exit_code\":3,"
                                  "\"signal\":null,\"timed_out\":false,\"duration_ms\":7,"
                                  "\"stdout\":\"out \\\"1\\\"\\n\",\"stderr\":\"err\\n\","
                                  "\"truncated\":null,\"late\":false,"
                                  "\"usage\":{\"cpu_ms\":3,\"peak_memory\":null}}");
    rt_events(t.log, -1, false, 1 << 16, &out);
    assert_non_null(strstr(out.data, "\"seq\":0,\"type\":\"started\",\"pid\":12}"));
    assert_non_null(strstr(out.data, "\"seq\":3,\"type\":\"result\",\"status\":\"error\""));
    kg_buf_fini(&out);
    rt_end(&t);
}

static void command_signal_is_told_by_name(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    open_command(&t);
    kg_command_end_t end = ended(KG_RUN_TIMEOUT);
    end.signal = SIGKILL;
    end.message = "a \"remark\"";
    assert_int_equal(kg_mapper_command_finish(t.mapper, &end), 0);
    say(&t, false, "late");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_execution(t.log, 1 << 16, &out);
    assert_non_null(strstr(out.data, "\"status\":\"timeout\",\"exit_code\":null,"
                                     "\"signal\":\"SIGKILL\",\"timed_out\":true,"));
    assert_non_null(strstr(out.data, "\"message\":\"a \\\"remark\\\"\",\"stdout\":\"late\""));
    assert_non_null(strstr(out.data, "\"late\":true"));
    kg_buf_fini(&out);
    rt_end(&t);
}

/* What is cut is counted; of base64 no tail follows, for nobody could read it. */
static void command_output_past_the_limit_is_cut(void **state)
{
    (void)state;
    for (unsigned base64 = 0; base64 < 2; base64++) {
        run_test_t t;
        kg_buf_t out = {0};
        rt_begin(&t);
        t.meta.command = "{}";
        t.opts.limits.output_bytes = 16;
        t.opts.limits.no_tail = base64;
        rt_open(&t);
        say(&t, false, "AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH");
        kg_command_end_t end = ended(KG_RUN_OK);
        end.exited = true;
        end.base64 = base64;
        assert_int_equal(kg_mapper_command_finish(t.mapper, &end), 0);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        rt_execution(t.log, 1 << 16, &out);
        assert_non_null(strstr(out.data, base64 ? "\"stdout\":\"AAAABBBBCCCCDDDD\""
                                                : "\"stdout\":\"AAAABBBBCCCCDDDDHHHH\""));
        assert_non_null(strstr(out.data, base64 ? "\"truncated\":{\"stdout\":16}"
                                                : "\"truncated\":{\"stdout\":12}"));
        assert_int_equal(strstr(out.data, "\"encoding\":\"base64\"") != NULL, base64);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

static void command_log_is_found_again(void **state)
{
    (void)state;
    for (unsigned whole = 0; whole < 2; whole++) {
        run_test_t t;
        kg_buf_t out = {0};
        kg_err_t err = {0};
        kg_run_log_t *log = NULL;
        open_command(&t);
        assert_int_equal(kg_mapper_command_started(t.mapper, 5), 0);
        say(&t, false, "before");
        if (whole) {
            kg_command_end_t end = ended(KG_RUN_OK);
            end.exited = true;
            assert_int_equal(kg_mapper_command_finish(t.mapper, &end), 0);
        }
        assert_int_equal(kg_run_log_flush(t.log), 0);
        char name[KG_RUN_NAME_MAX];
        memcpy(name, t.log->name, sizeof name);
        rt_close(&t);
        assert_int_equal(kg_run_log_recover(&t.log_opts, name, &log, &err), 0);
        assert_string_equal(kg_run_log_meta(log)->command, "{\"cmd\":\"true\"}");
        assert_int_equal(kg_run_log_finish_recovered(log, true), 0);
        assert_int_equal(kg_run_log_flush(log), 0);
        rt_execution(log, 1 << 16, &out);
        assert_non_null(strstr(out.data, "\"stdout\":\"before\""));
        assert_non_null(strstr(out.data, whole ? "\"status\":\"ok\",\"exit_code\":0"
                                               : "\"status\":\"gateway_restart\","
                                                 "\"exit_code\":null,\"signal\":\"SIGKILL\""));
        kg_run_log_unref(&log);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

static void command_slim_result_has_no_output(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    open_command(&t);
    say(&t, false, "much");
    kg_command_end_t end = ended(KG_RUN_OK);
    end.exited = true;
    assert_int_equal(kg_mapper_command_finish(t.mapper, &end), 0);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(kg_run_log_slim(t.log, true, &out), 0);
    json_error_t why;
    json_t *json = json_loads(out.data, 0, &why);
    assert_non_null(json);
    assert_null(json_object_get(json, "stdout"));
    assert_null(json_object_get(json, "stderr"));
    assert_true(json_is_true(json_object_get(json, "expired")));
    assert_null(json_object_get(json, "results"));
    json_decref(json);
    kg_buf_fini(&out);
    rt_end(&t);
}

static void signals_have_names(void **state)
{
    (void)state;
    char name[KG_SIGNAL_NAME_MAX];
    kg_signal_name(SIGTERM, name);
    assert_string_equal(name, "SIGTERM");
    kg_signal_name(40, name);
    assert_string_equal(name, "SIG40");
    assert_int_equal(kg_signal_number("SIGUSR1"), SIGUSR1);
    assert_int_equal(kg_signal_number("HUP"), SIGHUP);
    assert_int_equal(kg_signal_number("SIGNONE"), 0);
    assert_int_equal(kg_signal_number("SIG"), 0);
    assert_int_equal(kg_signal_number("9"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_result_has_streams_and_exit_code),
        cmocka_unit_test(command_signal_is_told_by_name),
        cmocka_unit_test(command_output_past_the_limit_is_cut),
        cmocka_unit_test(command_log_is_found_again),
        cmocka_unit_test(command_slim_result_has_no_output),
        cmocka_unit_test(signals_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
