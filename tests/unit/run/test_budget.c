/* Budgets: the oldest go first, retain is honoured while there is room, slims stay an hour. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "run_util.h"

#define S UINT64_C(1000000000)

typedef struct fixture {
    run_test_t t;
    kg_run_budget_t *budget;
    unsigned expired;
    char last[KG_ID_MAX];
} fixture_t;

static void on_expired(void *user, kg_run_log_t *log)
{
    fixture_t *f = user;
    f->expired++;
    (void)snprintf(f->last, sizeof f->last, "%s", kg_run_log_id(log));
}

static void begin(fixture_t *f, uint64_t sandbox, uint64_t daemon)
{
    *f = (fixture_t){0};
    rt_begin(&f->t);
    const kg_run_budget_opts_t opts = {
        .sandbox_bytes = sandbox, .daemon_bytes = daemon, .expired = on_expired, .user = f};
    assert_int_equal(kg_run_budget_create(&opts, &f->budget), 0);
}

static void end(fixture_t *f)
{
    kg_run_budget_destroy(&f->budget);
    rt_end(&f->t);
}

/* A finished run n of a sandbox that ended at `at` seconds. */
static kg_run_log_t *
finished(fixture_t *f, unsigned n, const char *sandbox, uint64_t at, size_t bytes)
{
    char run[KG_ID_MAX];
    (void)snprintf(run, sizeof run, "run-10de5%015u", n);
    f->t.meta.run = run;
    f->t.meta.sandbox = sandbox;
    rt_open(&f->t);
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (size_t i = 0; i < bytes / 1000; i++) {
        rt_stream(&f->t, "stdout", text);
    }
    kg_run_end_t end_ = rt_end_of(KG_RUN_TIMEOUT);
    end_.wall_ns = at * S;
    assert_int_equal(kg_mapper_finish(f->t.mapper, &end_), 0);
    assert_int_equal(kg_run_log_flush(f->t.log), 0);
    kg_run_log_t *log = kg_run_log_ref(f->t.log);
    rt_close(&f->t);
    return log;
}

static void add(fixture_t *f, unsigned n, const char *sandbox, uint64_t at, size_t bytes)
{
    kg_run_log_t *log = finished(f, n, sandbox, at, bytes);
    assert_int_equal(kg_run_budget_add(f->budget, log, at * S), 0);
    kg_run_log_unref(&log);
}

static void add_past_the_sandbox_budget_oldest_goes(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 100000, 0);
    for (unsigned i = 0; i < 4; i++) {
        add(&f, i, "a", 100 + i, 23000);
    }
    assert_int_equal(f.expired, 0);
    assert_int_equal(rt_files(&f.t), 4);
    add(&f, 9, "b", 105, 50000); /* another sandbox's is not touched */
    assert_int_equal(f.expired, 0);
    add(&f, 4, "a", 106, 23000);
    assert_int_equal(f.expired, 1);
    assert_string_equal(f.last, "run-10de5000000000000000");
    assert_true(kg_run_budget_sandbox_bytes(f.budget, "a") <= 100000);
    assert_int_equal(rt_files(&f.t), 5);
    end(&f);
}

static void add_past_the_daemon_budget_retained_stay_longest(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 0, 100000);
    f.t.meta.retain_s = 1000000;
    add(&f, 0, "a", 100, 30000); /* oldest, but retained */
    f.t.meta.retain_s = 1;
    add(&f, 1, "b", 101, 30000);
    f.t.meta.retain_s = 300;
    add(&f, 2, "c", 200, 30000);
    add(&f, 3, "d", 201, 30000);
    assert_int_equal(f.expired, 1);
    assert_string_equal(f.last, "run-10de5000000000000001");
    add(&f, 4, "e", 202, 30000); /* all that are left are retained: the oldest */
    assert_int_equal(f.expired, 2);
    assert_string_equal(f.last, "run-10de5000000000000000");
    end(&f);
}

static void log_that_is_read_outlives_its_sandbox_budget(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_reader_t *reader = NULL;
    begin(&f, 100000, 200000);
    kg_run_log_t *log = finished(&f, 0, "a", 100, 150000);
    assert_int_equal(kg_run_reader_create(log, -1, false, &reader), 0);
    assert_int_equal(kg_run_budget_add(f.budget, log, 100 * S), 0);
    assert_false(kg_run_log_expired(log));
    add(&f, 1, "a", 101, 20000); /* goes itself: nobody reads it */
    assert_int_equal(f.expired, 1);
    kg_run_budget_tick(f.budget, 102 * S);
    assert_false(kg_run_log_expired(log));
    kg_run_reader_destroy(&reader);
    kg_run_budget_tick(f.budget, 103 * S);
    assert_true(kg_run_log_expired(log));
    assert_int_equal(kg_run_budget_bytes(f.budget), 0);
    kg_run_log_unref(&log);
    log = finished(&f, 2, "a", 104, 150000);
    assert_int_equal(kg_run_reader_create(log, -1, false, &reader), 0);
    assert_int_equal(kg_run_budget_add(f.budget, log, 104 * S), 0);
    add(&f, 3, "b", 105, 80000); /* the daemon's spares none */
    assert_true(kg_run_log_expired(log));
    kg_run_reader_destroy(&reader);
    kg_run_log_unref(&log);
    end(&f);
}

static void small_logs_are_charged_a_floor(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 0, 0);
    add(&f, 0, "a", 1, 0);
    assert_int_equal(kg_run_budget_bytes(f.budget), KG_RUN_BUDGET_FLOOR);
    assert_int_equal(kg_run_budget_count(f.budget), 1);
    end(&f);
}

static void expired_run_leaves_a_slim_for_an_hour(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 40000, 0);
    add(&f, 0, "a", 100, 30000);
    add(&f, 1, "a", 100, 30000);
    assert_int_equal(f.expired, 1);
    const kg_run_slim_t *slim = kg_run_budget_slim(f.budget, "run-10de5000000000000000");
    assert_non_null(slim);
    assert_string_equal(slim->sandbox, "a");
    assert_string_equal(slim->owner, "me");
    kg_json_value_t v;
    assert_int_equal(kg_json_check(slim->json, 20, &v), 0);
    assert_true(kg_json_key_eq(kg_json_get(v, "status").raw, "timeout"));
    assert_int_equal(kg_json_get(v, "expired").type, KG_JSON_TRUE);
    assert_int_equal(kg_json_get(v, "stdout").type, KG_JSON_ABSENT);
    assert_int_equal(kg_json_get(v, "results").type, KG_JSON_ABSENT);
    assert_int_equal(kg_json_get(v, "seq").type, KG_JSON_ABSENT);
    assert_null(kg_run_budget_slim(f.budget, "run-10de5000000000000001"));
    kg_run_budget_tick(f.budget, (100 + 3599) * S);
    assert_non_null(kg_run_budget_slim(f.budget, "run-10de5000000000000000"));
    kg_run_budget_tick(f.budget, (100 + 3600) * S);
    assert_null(kg_run_budget_slim(f.budget, "run-10de5000000000000000"));
    end(&f);
}

static void tick_at_the_age_drops_logs(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 0, 0);
    add(&f, 0, "a", 100, 0);
    add(&f, 1, "a", 200, 0);
    kg_run_budget_tick(f.budget, (100 + 86399) * S);
    assert_int_equal(f.expired, 0);
    kg_run_budget_tick(f.budget, (100 + 86400) * S);
    assert_int_equal(f.expired, 1);
    end(&f);
}

static void late_growth_is_charged(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 60000, 0);
    add(&f, 0, "a", 100, 30000);
    kg_run_log_t *log = finished(&f, 1, "a", 101, 20000);
    assert_int_equal(kg_run_budget_add(f.budget, log, 101 * S), 0);
    assert_int_equal(kg_run_budget_add(f.budget, log, 101 * S), -EINVAL);
    kg_mapper_t *m = NULL;
    assert_int_equal(kg_mapper_create(&f.t.opts, log, NULL, NULL, &m), 0);
    char text[20001];
    memset(text, 'x', 20000);
    assert_int_equal(kg_mapper_text(m, true, kg_slice(text, 20000)), 0);
    assert_int_equal(kg_run_log_flush(log), 0);
    kg_run_budget_update(f.budget, log, 102 * S);
    assert_int_equal(f.expired, 1);
    assert_false(kg_run_log_expired(log));
    kg_mapper_destroy(&m);
    kg_run_log_unref(&log);
    end(&f);
}

static void drop_sandbox_leaves_nothing(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 40000, 0);
    add(&f, 0, "a", 100, 30000);
    add(&f, 1, "a", 100, 30000);
    add(&f, 2, "b", 100, 30000);
    kg_run_budget_drop_sandbox(f.budget, "a");
    assert_null(kg_run_budget_slim(f.budget, "run-10de5000000000000000"));
    assert_int_equal(kg_run_budget_sandbox_bytes(f.budget, "a"), 0);
    assert_int_equal(rt_files(&f.t), 1);
    end(&f);
}

static void unfinished_log_is_refused(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 0, 0);
    rt_open(&f.t);
    assert_int_equal(kg_run_budget_add(f.budget, f.t.log, 0), -EINVAL);
    end(&f);
}

/* An Execution that stays in memory for an hour must be small, however long its error is. */
static void slim_of_a_huge_error_is_shortened(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t content = {0};
    begin(&f, 0, 0);
    rt_open(&f.t);
    assert_int_equal(
        kg_buf_append_cstr(&content, "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\""), 0);
    for (size_t i = 0; i < 1000000; i++) {
        assert_int_equal(kg_buf_append_cstr(&content, "\xc3\xa9"), 0);
    }
    assert_int_equal(kg_buf_append_cstr(&content, "\",\"traceback\":[\"line\",\"line\"]}"), 0);
    rt_message_len(&f.t, "execute_reply", content.data, content.len);
    rt_finish(&f.t, KG_RUN_OK);
    kg_run_log_t *log = kg_run_log_ref(f.t.log);
    rt_close(&f.t);
    uint64_t now = kg_run_log_finished_wall_ns(log);
    assert_int_equal(kg_run_budget_add(f.budget, log, now), 0);
    kg_run_log_unref(&log);
    kg_run_budget_tick(f.budget, now + 86401 * S);
    const kg_run_slim_t *slim = kg_run_budget_slim(f.budget, RUN_ID);
    assert_non_null(slim);
    assert_true(slim->json.len < 2048);
    kg_json_value_t all, error;
    assert_int_equal(kg_json_check(slim->json, 8, &all), 0);
    assert_int_equal(kg_json_get(all, "expired").type, KG_JSON_TRUE);
    error = kg_json_get(all, "error");
    assert_true(kg_slice_eq_cstr(kg_json_get(error, "name").raw, "\"E\""));
    assert_true(kg_slice_eq_cstr(kg_json_get(error, "traceback").raw, "[]"));
    assert_true(kg_slice_eq_cstr(kg_json_get(error, "state").raw, "\"kept\""));
    kg_slice_t message = kg_json_get(error, "message").raw;
    assert_int_equal(message.len, 1024 + 2 + strlen("…"));
    kg_buf_fini(&content);
    end(&f);
}

/* One sandbox over its budget, many logs of others before and behind its own. */
static void sandbox_over_its_budget_loses_only_its_own(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f, 5 * KG_RUN_BUDGET_FLOOR, 0);
    unsigned n = 0;
    for (unsigned i = 0; i < 5; i++) {
        kg_run_log_t *a = finished(&f, n++, "sbx-a", 100 + (i * 7) % 5, 1000);
        kg_run_log_t *b = finished(&f, n++, "sbx-b", 100 + i, 1000);
        assert_int_equal(kg_run_budget_add(f.budget, a, 200 * S), 0);
        assert_int_equal(kg_run_budget_add(f.budget, b, 200 * S), 0);
        kg_run_log_unref(&a);
        kg_run_log_unref(&b);
    }
    assert_int_equal(f.expired, 0);
    for (unsigned i = 0; i < 5; i++) { /* a's logs ended in the order 0, 3, 1, 4, 2 */
        static const unsigned order[] = {0, 6, 2, 8, 4};
        char want[KG_ID_MAX];
        kg_run_log_t *a = finished(&f, n++, "sbx-a", 150 + i, 1000);
        assert_int_equal(kg_run_budget_add(f.budget, a, 200 * S), 0);
        kg_run_log_unref(&a);
        assert_int_equal(f.expired, i + 1);
        (void)snprintf(want, sizeof want, "run-10de5%015u", order[i]);
        assert_string_equal(f.last, want);
    }
    kg_run_budget_drop_sandbox(f.budget, "sbx-a");
    assert_int_equal(kg_run_budget_count(f.budget), 5);
    assert_int_equal(kg_run_budget_sandbox_bytes(f.budget, "sbx-a"), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slim_of_a_huge_error_is_shortened),
        cmocka_unit_test(sandbox_over_its_budget_loses_only_its_own),
        cmocka_unit_test(add_past_the_sandbox_budget_oldest_goes),
        cmocka_unit_test(add_past_the_daemon_budget_retained_stay_longest),
        cmocka_unit_test(log_that_is_read_outlives_its_sandbox_budget),
        cmocka_unit_test(small_logs_are_charged_a_floor),
        cmocka_unit_test(expired_run_leaves_a_slim_for_an_hour),
        cmocka_unit_test(tick_at_the_age_drops_logs),
        cmocka_unit_test(late_growth_is_charged),
        cmocka_unit_test(drop_sandbox_leaves_nothing),
        cmocka_unit_test(unfinished_log_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
