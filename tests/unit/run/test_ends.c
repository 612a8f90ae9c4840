/* Ends as the owner tells them, what the owner tells and asks, and what the mapper reports of a
 * kernel. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "run_util.h"

typedef struct end_case {
    kg_run_end_t end;
    const char *status, *name, *message;
} end_case_t;

static void finish_every_end_has_the_contracts_words(void **state)
{
    (void)state;
    const end_case_t cases[] = {
        {{.status = KG_RUN_TIMEOUT, .started = true}, "timeout", "TimeoutError", NULL},
        {{.status = KG_RUN_INTERRUPTED, .started = true}, "interrupted", "Interrupted", NULL},
        {{.status = KG_RUN_ABORTED},
         "aborted",
         "Aborted",
         "The run was passed over: it did not start."},
        {{.status = KG_RUN_ABORTED, .started = true, .lost = true}, "aborted", "Aborted", NULL},
        {{.status = KG_RUN_OOM, .started = true, .lost = true, .signal = SIGKILL},
         "oom",
         "OutOfMemory",
         NULL},
        {{.status = KG_RUN_KILLED, .started = true, .lost = true, .signal = SIGKILL},
         "killed",
         "KernelKilled",
         "killed by signal 9 (SIGKILL)"},
        {{.status = KG_RUN_KILLED, .started = true, .lost = true, .signal = SIGSEGV},
         "killed",
         "KernelKilled",
         "killed by signal 11 (SIGSEGV)"},
        {{.status = KG_RUN_KILLED, .started = true, .lost = true, .signal = 40},
         "killed",
         "KernelKilled",
         "killed by signal 40"},
        {{.status = KG_RUN_EXITED, .started = true, .lost = true, .exit_code = 3},
         "exited",
         "KernelExited",
         "exit code 3"},
        {{.status = KG_RUN_OUTPUT_LIMIT, .started = true}, "output_limit", "OutputLimit", NULL},
        {{.status = KG_RUN_GATEWAY_RESTART, .started = true, .lost = true},
         "gateway_restart",
         "GatewayRestart",
         NULL},
        {{.status = KG_RUN_ERROR, .started = true}, "error", "KernelError", NULL},
        {{.status = KG_RUN_TIMEOUT, .started = true, .message = "too \"slow\""},
         "timeout",
         "TimeoutError",
         "too \\\"slow\\\""},
        {{.status = KG_RUN_ERROR, .started = true, .name = "StdinError", .message = "no input"},
         "error",
         "StdinError",
         "no input"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        const end_case_t *c = &cases[i];
        run_test_t t;
        kg_buf_t out = {0};
        char want[300];
        rt_begin(&t);
        rt_open(&t);
        rt_stream(&t, "stdout", "kept\n");
        /* What a kernel reports besides changes neither status nor name. */
        rt_message(&t, "error",
                   "{\"ename\":\"KeyboardInterrupt\",\"evalue\":\"v\",\"traceback\":[]}");
        if (c->end.status != KG_RUN_ERROR || c->end.name) {
            rt_message(&t, "execute_reply",
                       "{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\",\"evalue\":\"v\"}");
        }
        kg_run_end_t end = c->end;
        end.usage = (kg_run_usage_t){1, 2, KG_USAGE_UNKNOWN, 4};
        end.wall_ns = 5;
        assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
        assert_int_equal(kg_mapper_finish(t.mapper, &end), -EALREADY);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        rt_execution(t.log, 100, &out);
        (void)snprintf(want, sizeof want, "\"status\":\"%s\",\"text\":\"kept\"", c->status);
        assert_non_null(strstr(out.data, want));
        bool plain = c->end.status == KG_RUN_ERROR && !c->end.name;
        (void)snprintf(want, sizeof want, "\"error\":{\"name\":\"%s\",\"message\":\"%s",
                       plain ? "KeyboardInterrupt" : c->name, c->message ? c->message : "");
        assert_non_null(strstr(out.data, want));
        (void)snprintf(want, sizeof want, "\"started\":%s,\"state\":\"%s\"}",
                       c->end.started ? "true" : "false", c->end.lost ? "lost" : "kept");
        assert_non_null(strstr(out.data, want));
        assert_non_null(
            strstr(out.data,
                   "\"usage\":{\"queued_ms\":1,\"wall_ms\":2,\"cpu_ms\":null,\"peak_memory\":4}}"));
        assert_int_equal(kg_run_log_finished_wall_ns(t.log), 5);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

/* A runtime that ends its process at a limit of its own. */
static void finish_of_a_killed_kernel_takes_its_word_for_want_of_memory(void **state)
{
    (void)state;
    static const char said[] = "{\"ename\":\"OutOfMemory\",\"evalue\":\"heap\",\"traceback\":[]}";
    static const char oom[] = "\"error\":{\"name\":\"OutOfMemory\",\"message\":\"heap\"";
    static const struct {
        const char *then; /* an error after it: the code had caught what was no end */
        kg_run_status_t status;
        int signal;
        const char *want;
    } rows[] = {
        {NULL, KG_RUN_KILLED, SIGABRT, oom},
        {NULL, KG_RUN_KILLED, SIGKILL, "\"name\":\"KernelKilled\""},
        {"{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[]}", KG_RUN_KILLED, SIGABRT,
         "\"name\":\"KernelKilled\""},
        {NULL, KG_RUN_TIMEOUT, SIGABRT, "\"name\":\"TimeoutError\""},
        {NULL, KG_RUN_EXITED, 0, "\"name\":\"KernelExited\""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        run_test_t t;
        KG_AUTO_BUF kg_buf_t out = {0};
        rt_begin(&t);
        rt_open(&t);
        rt_message(&t, "error", said);
        if (rows[i].then) {
            rt_message(&t, "error", rows[i].then);
        }
        const kg_run_end_t end = {
            .status = rows[i].status, .started = true, .lost = true, .signal = rows[i].signal};
        assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        rt_execution(t.log, 100, &out);
        assert_non_null(strstr(out.data, rows[i].want));
        assert_int_equal(strstr(out.data, "\"status\":\"oom\"") != NULL, rows[i].want == oom);
        rt_end(&t);
    }
}

static void owner_events_stand_in_the_log(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_mapper_queued(t.mapper, 2), 0);
    assert_int_equal(kg_mapper_queued(t.mapper, 1), 0);
    assert_int_equal(kg_mapper_started(t.mapper, 4), 0);
    assert_int_equal(kg_mapper_input(t.mapper, kg_slice_cstr("na\"me: "), false), 0);
    assert_int_equal(kg_mapper_text(t.mapper, true, kg_slice("raw\0\n", 5)), 0);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(kg_mapper_queued(t.mapper, 1), -EALREADY);
    assert_int_equal(kg_mapper_started(t.mapper, 1), -EALREADY);
    assert_int_equal(kg_mapper_input(t.mapper, kg_slice_cstr(""), false), -EALREADY);
    rt_events(t.log, -1, false, 100, &out);
    assert_non_null(strstr(out.data, "\"seq\":0,\"type\":\"queued\",\"position\":2}"));
    assert_non_null(strstr(out.data, "\"type\":\"started\",\"context\":\"3f6c0000-0000-8000-8000-"
                                     "000000000000\",\"execution_count\":4}"));
    assert_non_null(
        strstr(out.data, "\"type\":\"input\",\"prompt\":\"na\\\"me: \",\"password\":false}"));
    assert_non_null(strstr(out.data, "\"type\":\"stderr\",\"text\":\"raw\\u0000\\n\"}"));
    assert_non_null(strstr(out.data, "\"execution_count\":4,\"status\":\"ok\""));
    kg_buf_fini(&out);
    rt_end(&t);
}

static void state_tells_what_the_kernel_said(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    const kg_mapper_state_t *s = kg_mapper_state(t.mapper);
    assert_true(!s->busy && !s->idle && !s->input_seen && s->reply == KG_REPLY_NONE &&
                s->input_count == -1 && s->reply_count == -1);
    rt_message(&t, "status", "{\"execution_state\":\"busy\"}");
    rt_message(&t, "execute_input", "{\"code\":\"x\",\"execution_count\":12}");
    assert_true(s->busy && !s->idle && s->input_seen && s->input_count == 12);
    rt_message(&t, "input_request", "{\"prompt\":\"pass: \",\"password\":true}");
    assert_int_equal(t.inputs, 1);
    assert_true(t.password);
    assert_string_equal(t.prompt, "pass: ");
    assert_string_equal(t.header, "{\"msg_id\":\"m1\",\"msg_type\":\"x\"}");
    rt_message(&t, "input_request", "{}"); /* IJavaScript's lack password */
    assert_int_equal(t.inputs, 2);
    assert_false(t.password);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\"}]}");
    rt_message(&t, "execute_reply", "{\"status\":\"error\"}");
    rt_message(&t, "status", "{\"execution_state\":\"idle\"}");
    assert_true(s->ask_exit && s->idle && s->replies == 2 && s->reply == KG_REPLY_OK);
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(kg_mapper_status(t.mapper), KG_RUN_OK);
    assert_true(kg_mapper_finished(t.mapper));
    rt_message(&t, "input_request", "{}"); /* nobody is asked after the end */
    assert_int_equal(t.inputs, 2);
    rt_end(&t);
}

static void exit_that_keeps_the_kernel_ends_none(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        bool asked;
    } cases[] = {
        {"{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\",\"keepkernel\":true}]}", false},
        {"{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\",\"keepkernel\":false}]}", true},
        {"{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\",\"keepkernel\":null}]}", true},
        {"{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\"},"
         "{\"source\":\"ask_exit\",\"keepkernel\":true}]}",
         true},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        run_test_t t;
        rt_begin(&t);
        rt_open(&t);
        rt_message(&t, "execute_reply", cases[i].reply);
        assert_int_equal(kg_mapper_state(t.mapper)->ask_exit, cases[i].asked);
        rt_finish(&t, KG_RUN_OK);
        rt_end(&t);
    }
}

static void error_after_the_end_is_late_output(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    rt_open(&t);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    rt_message(&t, "error", "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"a\",\"b\"]}");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_events(t.log, -1, true, 100, &out);
    assert_non_null(strstr(out.data, "\"type\":\"stderr\",\"text\":\"a\\nb\\n\",\"late\":true}"));
    kg_buf_fini(&out);
    rt_end(&t);
}

static void order_of_the_template_decides_the_type(void **state)
{
    (void)state;
    static const char *const order[] = {"image/*", "text/html", "text/plain"};
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    t.opts.order = order;
    t.opts.order_len = 3;
    rt_open(&t);
    rt_message(
        &t, "display_data",
        "{\"data\":{\"text/html\":\"h\",\"text/plain\":\"p\",\"image/gif\":\"R0\",\"x/y\":\"z\"}}");
    rt_message(&t, "display_data", "{\"data\":{\"text/plain\":\"p\",\"x/y\":\"z\"}}");
    rt_finish(&t, KG_RUN_TIMEOUT);
    rt_events(t.log, -1, true, 100, &out);
    assert_non_null(strstr(
        out.data, "{\"type\":\"image/gif\",\"data\":\"R0\",\"text\":\"p\",\"formats\":{\"image/"
                  "gif\":\"R0\",\"text/html\":\"h\",\"x/y\":\"z\",\"text/plain\":\"p\"}"));
    assert_non_null(strstr(out.data, "{\"type\":\"x/y\",\"data\":\"z\",\"text\":\"p\""));
    kg_buf_fini(&out);
    rt_end(&t);
}

static void heavy_is_told_by_size(void **state)
{
    (void)state;
    kg_jmsg_t msg = {0};
    msg.content.raw.len = (1 << 20) - 1;
    assert_false(kg_mapper_heavy(&msg));
    msg.content.raw.len++;
    assert_true(kg_mapper_heavy(&msg));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finish_every_end_has_the_contracts_words),
        cmocka_unit_test(finish_of_a_killed_kernel_takes_its_word_for_want_of_memory),
        cmocka_unit_test(owner_events_stand_in_the_log),
        cmocka_unit_test(state_tells_what_the_kernel_said),
        cmocka_unit_test(exit_that_keeps_the_kernel_ends_none),
        cmocka_unit_test(error_after_the_end_is_late_output),
        cmocka_unit_test(order_of_the_template_decides_the_type),
        cmocka_unit_test(heavy_is_told_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
