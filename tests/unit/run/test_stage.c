/* Results of many MiB: they are written in steps, one a call, and whatever comes in between, the
 * log holds what it should, in memory and on disk. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

#define FLAGS (JSON_ALLOW_NUL | JSON_DECODE_ANY)

enum {
    BIG = 5 * KG_RUN_APPLY_BYTES + 12345
};

static kg_mapped_t *prepare(run_test_t *t, const char *type, const char *id)
{
    kg_buf_t content = {0};
    kg_jmsg_t msg = {0};
    assert_int_equal(kg_buf_append_cstr(&content, "{\"data\":{\"image/png\":\""), 0);
    assert_int_equal(kg_buf_reserve(&content, BIG), 0);
    for (size_t i = 0; i < BIG; i++) {
        content.data[content.len++] = (char)('a' + i % 23);
    }
    assert_int_equal(
        kg_buf_printf(&content, "\",\"text/plain\":\"p\"},\"transient\":{\"display_id\":\"%s\"}}",
                      id),
        0);
    (void)snprintf(msg.msg_type, sizeof msg.msg_type, "%s", type);
    assert_int_equal(kg_json_check(kg_buf_slice(&content), 8, &msg.content), 0);
    kg_mapped_t *mapped = kg_mapper_prepare(&t->opts, &msg);
    assert_non_null(mapped);
    kg_buf_fini(&content);
    return mapped;
}

static unsigned finish_apply(run_test_t *t, kg_mapped_t **mapped)
{
    unsigned steps = 0;
    int rc;
    while ((rc = kg_mapper_apply(t->mapper, *mapped)) == 1) {
        steps++;
    }
    assert_int_equal(rc, 0);
    kg_mapped_destroy(mapped);
    return steps;
}

/* The n-th result of the Execution is the big image. */
static void assert_big(kg_run_log_t *log, size_t n, size_t of)
{
    kg_buf_t text = {0};
    rt_execution(log, 1 << 20, &text);
    json_t *x = json_loadb(text.data, text.len, FLAGS, NULL);
    assert_non_null(x);
    json_t *results = json_object_get(x, "results");
    assert_int_equal(json_array_size(results), of);
    const char *data = json_string_value(json_object_get(json_array_get(results, n), "data"));
    assert_non_null(data);
    assert_int_equal(strlen(data), BIG);
    for (size_t i = 0; i < BIG; i += 997) {
        assert_int_equal(data[i], 'a' + i % 23);
    }
    assert_true(json_is_null(json_object_get(x, "truncated")));
    json_decref(x);
    kg_buf_fini(&text);
}

/* Ends the run, then looks at it again out of its file. */
static void end_and_recover(run_test_t *t)
{
    char name[KG_RUN_NAME_MAX];
    struct stat st;
    kg_err_t err = {0};
    rt_message(t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(t, KG_RUN_OK);
    uint64_t events = kg_run_log_next_seq(t->log);
    memcpy(name, t->log->name, sizeof name);
    assert_int_equal(fstatat(t->dirfd, name, &st, 0), 0);
    assert_int_equal(st.st_size, kg_run_log_size(t->log));
    rt_close(t);
    assert_int_equal(kg_run_log_recover(&t->log_opts, name, &t->log, &err), 0);
    assert_int_equal(kg_run_log_next_seq(t->log), events);
    assert_true(kg_run_log_finished(t->log));
}

static void big_display_takes_steps(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", "before");
    kg_mapped_t *mapped = prepare(&t, "display_data", "d");
    assert_int_equal(finish_apply(&t, &mapped), 5);
    rt_stream(&t, "stdout", "after");
    end_and_recover(&t);
    assert_big(t.log, 0, 1);
    rt_end(&t);
}

static void big_display_with_others_in_between(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        run_test_t t;
        rt_begin(&t);
        rt_open(&t);
        rt_stream(&t, "stdout", "before");
        kg_mapped_t *mapped = prepare(&t, "display_data", "d");
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(kg_mapper_apply(t.mapper, mapped), 1);
        }
        if (kind != 1) {
            assert_int_equal(kg_run_log_flush(t.log), 0);
        }
        if (kind != 0) {
            assert_int_equal(kg_mapper_text(t.mapper, true, kg_slice_cstr("between")), 0);
        }
        assert_int_equal(finish_apply(&t, &mapped), kind == 0 ? 2 : 5);
        end_and_recover(&t);
        assert_big(t.log, 0, 1);
        rt_end(&t);
    }
}

static void big_display_given_up_leaves_nothing(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    kg_mapped_t *mapped = prepare(&t, "display_data", "d");
    assert_int_equal(kg_mapper_apply(t.mapper, mapped), 1);
    assert_int_equal(kg_mapper_apply(t.mapper, mapped), 1);
    kg_mapped_destroy(&mapped);
    end_and_recover(&t);
    assert_true(kg_run_log_size(t.log) < 4096);
    rt_end(&t);
}

/* One message, two logs: the older is finished, its update comes late. */
static void big_update_of_two_logs(void **state)
{
    (void)state;
    static const char shown[] =
        "{\"data\":{\"text/plain\":\"x\"},\"transient\":{\"display_id\":\"d\"}}";
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    rt_message(&t, "display_data", shown);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    kg_run_log_t *old = kg_run_log_ref(t.log);
    rt_close(&t);
    t.meta.run = "run-10de5k3j2h1g9f8d7s6b";
    rt_open(&t);
    rt_message(&t, "display_data", shown);
    kg_mapped_t *mapped = prepare(&t, "update_display_data", "d");
    assert_int_equal(finish_apply(&t, &mapped), 10);
    assert_int_equal(kg_run_log_flush(old), 0);
    assert_big(old, 0, 1);
    assert_true(kg_run_log_late(old));
    end_and_recover(&t);
    assert_big(t.log, 0, 1);
    kg_run_log_unref(&old);
    rt_end(&t);
}

/* The log goes while its display is on the way. */
static void big_display_into_a_removed_log(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    kg_mapped_t *mapped = prepare(&t, "display_data", "d");
    assert_int_equal(kg_mapper_apply(t.mapper, mapped), 1);
    kg_run_log_remove(t.log);
    assert_int_equal(finish_apply(&t, &mapped), 0);
    assert_int_equal(rt_files(&t), 0);
    rt_end(&t);
}

/* One that had text which could have grown: it went with the window. */
static void big_display_into_a_log_removed_with_open_text(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_stream(&t, "stdout", "not written yet");
    kg_run_log_remove(t.log);
    kg_mapped_t *mapped = prepare(&t, "display_data", "d");
    assert_int_equal(finish_apply(&t, &mapped), 0);
    rt_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(big_display_takes_steps),
        cmocka_unit_test(big_display_with_others_in_between),
        cmocka_unit_test(big_display_given_up_leaves_nothing),
        cmocka_unit_test(big_update_of_two_logs),
        cmocka_unit_test(big_display_into_a_removed_log),
        cmocka_unit_test(big_display_into_a_log_removed_with_open_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
