/* The reader: any piece size gives the same bytes, any `after` the rest; the virtual result equals
 * what a naive client makes of the events. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/run/log_int.h"
#include "gateway/run/reader_int.h"
#include "run_util.h"

#define FLAGS (JSON_ALLOW_NUL | JSON_DECODE_ANY)

static void busy_run(run_test_t *t)
{
    assert_int_equal(kg_mapper_queued(t->mapper, 2), 0);
    assert_int_equal(kg_mapper_started(t->mapper, 3), 0);
    rt_stream(t, "stdout", "gone\n");
    rt_message(t, "display_data", "{\"data\":{\"text/plain\":\"gone too\"}}");
    rt_message(t, "clear_output", "{\"wait\":false}");
    rt_stream(t, "stdout",
              "\x1b[31m"
              "r\xc3\xa9"
              "d \"q\" \\ \x1b[0m\n");
    rt_message(
        t, "display_data",
        "{\"data\":{\"text/plain\":\"p\",\"image/"
        "png\":\"AAAA\\nBBBB\"},\"metadata\":{\"a\":1},\"transient\":{\"display_id\":\"d\"}}");
    assert_int_equal(kg_run_log_flush(t->log), 0);
    rt_stream(t, "stderr", "warn");
    rt_message(
        t, "update_display_data",
        "{\"data\":{\"text/html\":\"<p>\\u001b[1mtwo</p>\"},\"transient\":{\"display_id\":\"d\"}}");
    rt_message(t, "display_data", "{\"data\":{\"application/json\":{\"x\":[1,2]}}}");
    rt_message(
        t, "execute_result",
        "{\"data\":{\"text/plain\":\"\\u001b[1mmain\\u001b[0m\",\"text/html\":\"<b>main</b>\"}}");
    rt_stream(t, "stdout", "after\n");
}

static void reader_any_piece_size_yields_the_same(void **state)
{
    (void)state;
    for (unsigned failed = 0; failed < 2; failed++) {
        run_test_t t;
        kg_buf_t want = {0}, have = {0}, want_x = {0};
        rt_begin(&t);
        rt_open(&t);
        busy_run(&t);
        rt_message(&t, "execute_reply",
                   failed ? "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":["
                            "\"\\u001b[1ma\\\"b\",\"c\\n\"]}"
                          : "{\"status\":\"ok\"}");
        rt_finish(&t, KG_RUN_OK);
        rt_stream(&t, "stderr", "late");
        rt_message(&t, "update_display_data",
                   "{\"data\":{\"text/plain\":\"three\"},\"transient\":{\"display_id\":\"d\"}}");
        assert_int_equal(kg_run_log_flush(t.log), 0);
        rt_events(t.log, -1, true, 1 << 20, &want);
        rt_execution(t.log, 1 << 20, &want_x);
        for (size_t max = 1; max < 900; max += max < 80 ? 1 : 37) {
            rt_events(t.log, -1, true, max, &have);
            assert_string_equal(have.data, want.data);
            rt_execution(t.log, max, &have);
            assert_string_equal(have.data, want_x.data);
        }
        kg_buf_fini(&want);
        kg_buf_fini(&have);
        kg_buf_fini(&want_x);
        rt_end(&t);
    }
}

static void reader_after_every_seq_yields_the_rest(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t all = {0}, part = {0};
    rt_begin(&t);
    rt_open(&t);
    for (unsigned i = 0; i < 700; i++) { /* more than two steps of the index */
        rt_stream(&t, i % 2 ? "stdout" : "stderr", "x");
        if (i % 50 == 0) {
            assert_int_equal(kg_run_log_flush(t.log), 0);
        }
    }
    rt_finish(&t, KG_RUN_TIMEOUT);
    rt_stream(&t, "stdout", "late");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_events(t.log, -1, true, 4096, &all);
    json_t *events = json_loadb(all.data, all.len, FLAGS, NULL);
    size_t n = json_array_size(events);
    assert_int_equal(n, kg_run_log_next_seq(t.log));
    for (size_t after = 0; after < n + 3; after++) {
        rt_events(t.log, (int64_t)after, true, 4096, &part);
        json_t *rest = json_loadb(part.data, part.len, FLAGS, NULL);
        size_t left = after + 1 < n ? n - after - 1 : 0;
        assert_int_equal(json_array_size(rest), left);
        if (left > 0) {
            assert_true(json_equal(json_array_get(rest, 0), json_array_get(events, after + 1)));
        }
        json_decref(rest);
        /* Without late, the result is the last; asked for after it, nothing comes. */
        rt_events(t.log, (int64_t)after, false, 4096, &part);
        rest = json_loadb(part.data, part.len, FLAGS, NULL);
        assert_int_equal(json_array_size(rest), left > 1 ? left - 1 : 0);
        json_decref(rest);
    }
    json_decref(events);
    kg_buf_fini(&all);
    kg_buf_fini(&part);
    rt_end(&t);
}

static void reader_live_waits_and_goes_on(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *r = NULL;
    kg_read_piece_t piece;
    kg_buf_t out = {0};
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_run_reader_create(t.log, -1, false, &r), 0);
    assert_int_equal(kg_run_reader_next(r, &out, 99, &piece), KG_READ_WAIT);
    rt_stream(&t, "stdout", "a");
    assert_int_equal(kg_run_reader_next(r, &out, 999, &piece), KG_READ_WAIT);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(kg_run_reader_next(r, &out, 999, &piece), KG_READ_PIECE);
    assert_true(piece.begin && piece.end && piece.type == KG_EVENT_STDOUT && piece.seq == 0);
    assert_int_equal(kg_run_reader_next(r, &out, 999, &piece), KG_READ_WAIT);
    rt_finish(&t, KG_RUN_OK);
    while (kg_run_reader_next(r, &out, 999, &piece) == KG_READ_PIECE) {
    }
    assert_int_equal(piece.type, KG_EVENT_RESULT);
    assert_int_equal(kg_run_reader_next(r, &out, 999, &piece), KG_READ_END);
    kg_run_log_remove(t.log);
    assert_int_equal(kg_run_reader_next(r, &out, 999, &piece), KG_READ_END);
    kg_run_reader_destroy(&r);
    kg_buf_fini(&out);
    rt_end(&t);
}

static void execution_before_the_end_is_refused(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *r = NULL;
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", "a");
    assert_int_equal(kg_run_reader_execution(t.log, &r), -EAGAIN);
    rt_end(&t);
}

/* --- the oracle: what a client makes of the events ----------------------------------------------
 */

static json_t *concat(json_t *events, const char *type)
{
    kg_buf_t all = {0};
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        const char *is = json_string_value(json_object_get(e, "type"));
        if (strcmp(is, "clear") == 0) {
            kg_buf_clear(&all);
        } else if (strcmp(is, type) == 0) {
            json_t *text = json_object_get(e, "text");
            kg_buf_append(&all, json_string_value(text), json_string_length(text));
        }
    }
    json_t *s = json_stringn(all.data ? all.data : "", all.len);
    kg_buf_fini(&all);
    return s;
}

static json_t *results(json_t *events)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        const char *is = json_string_value(json_object_get(e, "type"));
        if (strcmp(is, "clear") == 0) {
            json_array_clear(list);
        } else if (strcmp(is, "display") == 0) {
            json_array_append_new(list, json_deep_copy(json_object_get(e, "result")));
        } else if (strcmp(is, "update") == 0) {
            for (size_t k = 0; k < json_array_size(list); k++) {
                json_t *old = json_array_get(list, k);
                if (json_equal(json_object_get(old, "display_id"),
                               json_object_get(e, "display_id"))) {
                    json_t *fresh = json_deep_copy(json_object_get(e, "result"));
                    json_object_set(fresh, "main", json_object_get(old, "main"));
                    json_array_set_new(list, k, fresh);
                }
            }
        }
    }
    return list;
}

static void check_against_oracle(kg_run_log_t *log, bool late)
{
    kg_buf_t out = {0}, ex = {0};
    rt_events(log, -1, late, 3000, &out);
    json_error_t error;
    json_t *events = json_loadb(out.data, out.len, FLAGS, &error);
    assert_non_null(events);
    json_t *result;
    if (late) {
        rt_execution(log, 3000, &ex);
        result = json_loadb(ex.data, ex.len, FLAGS, &error);
        assert_null(json_object_get(result, "seq"));
        assert_null(json_object_get(result, "type"));
        assert_true(json_is_true(json_object_get(result, "late")));
    } else {
        result = json_incref(json_array_get(events, json_array_size(events) - 1));
        assert_true(json_is_false(json_object_get(result, "late")));
    }
    assert_non_null(result);
    json_t *o = concat(events, "stdout"), *e = concat(events, "stderr"), *r = results(events);
    assert_true(json_equal(o, json_object_get(result, "stdout")));
    assert_true(json_equal(e, json_object_get(result, "stderr")));
    if (!json_equal(r, json_object_get(result, "results"))) {
        fail_msg("want %s\nhave %s", json_dumps(r, 0),
                 json_dumps(json_object_get(result, "results"), 0));
    }
    json_decref(o);
    json_decref(e);
    json_decref(r);
    json_decref(result);
    json_decref(events);
    kg_buf_fini(&out);
    kg_buf_fini(&ex);
}

/* Random runs against the oracle, with flushes anywhere. */
static void virtual_result_random_runs_equal_the_oracle(void **state)
{
    (void)state;
    unsigned seed = 12345;
    for (unsigned round = 0; round < 300; round++) {
        run_test_t t;
        rt_begin(&t);
        rt_open(&t);
        unsigned n = (unsigned)rand_r(&seed) % 60;
        for (unsigned i = 0; i < n * 2; i++) {
            char text[200];
            unsigned pick = (unsigned)rand_r(&seed);
            switch (pick % 7) {
            case 0:
                rt_stream(&t, "stdout", "one \"\\ \x1b[1m\n");
                break;
            case 1:
                rt_stream(&t, "stderr", "two\xf0\x9f\x98\x80");
                break;
            case 2:
                (void)snprintf(
                    text, sizeof text,
                    "{\"data\":{\"text/plain\":\"%u\"},\"transient\":{\"display_id\":\"%u\"}}", i,
                    pick / 8 % 4);
                rt_message(&t, "display_data", text);
                break;
            case 3:
                (void)snprintf(
                    text, sizeof text,
                    "{\"data\":{\"image/png\":\"%u\"},\"transient\":{\"display_id\":\"%u\"}}", i,
                    pick / 8 % 4);
                rt_message(&t, "update_display_data", text);
                break;
            case 4:
                if (pick / 8 % 8 == 0) {
                    rt_message(&t, "clear_output", "{}");
                }
                break;
            case 5:
                (void)snprintf(text, sizeof text, "{\"data\":{\"text/html\":\"%u\"}}", i);
                rt_message(&t, pick / 8 % 8 == 0 ? "execute_result" : "display_data", text);
                break;
            default:
                assert_int_equal(kg_run_log_flush(t.log), 0);
                break;
            }
            if (i == n) {
                rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
                rt_finish(&t, KG_RUN_OK);
                check_against_oracle(t.log, false);
            }
        }
        assert_int_equal(kg_run_log_flush(t.log), 0);
        if (kg_run_log_finished(t.log)) {
            check_against_oracle(t.log, false); /* the result event stays what it was */
        }
        if (kg_run_log_late(t.log)) {
            check_against_oracle(t.log, true);
        }
        rt_end(&t);
    }
}

static void update_across_runs_changes_the_earlier_one(void **state)
{
    (void)state;
    run_test_t a, b;
    kg_buf_t out = {0};
    rt_begin(&a);
    rt_open(&a);
    rt_message(&a, "display_data",
               "{\"data\":{\"text/plain\":\"1\"},\"transient\":{\"display_id\":\"bar\"}}");
    rt_finish(&a, KG_RUN_OK);
    rt_begin(&b);
    kg_displays_destroy(&b.displays);
    b.displays = a.displays;
    rt_open(&b);
    rt_message(&b, "update_display_data",
               "{\"data\":{\"text/plain\":\"2\"},\"transient\":{\"display_id\":\"bar\"}}");
    rt_message(&b, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&b, KG_RUN_OK);
    assert_int_equal(kg_run_log_flush(a.log), 0);
    rt_events(a.log, -1, true, 999, &out);
    assert_non_null(strstr(out.data, "\"type\":\"update\",\"display_id\":\"bar\""));
    assert_non_null(strstr(out.data, ",\"late\":true}"));
    rt_execution(a.log, 999, &out);
    assert_non_null(strstr(out.data, "\"results\":[{\"type\":\"text/plain\",\"data\":\"2\""));
    rt_events(b.log, -1, true, 999, &out);
    assert_non_null(strstr(out.data, "\"type\":\"update\",\"display_id\":\"bar\""));
    assert_non_null(strstr(out.data, "\"results\":[]"));
    /* Once the owner expired, the id is as good as unknown. */
    kg_run_log_remove(a.log);
    rt_message(&b, "update_display_data",
               "{\"data\":{\"text/plain\":\"3\"},\"transient\":{\"display_id\":\"bar\"}}");
    assert_int_equal(kg_run_log_flush(b.log), 0);
    rt_events(b.log, -1, true, 999, &out);
    assert_non_null(strstr(out.data, "\"type\":\"display\""));
    b.displays = NULL;
    assert_int_equal(kg_displays_create(&b.displays), 0);
    rt_end(&b);
    rt_end(&a);
    kg_buf_fini(&out);
}

/* What tree parsers refuse, to the letter. */
static void kernel_json_that_trees_refuse_passes(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    rt_open(&t);
    rt_message(&t, "stream",
               "{\"name\":\"stdout\",\"text\":\"nul\\u0000 lone\\ud800 ok\xff\\u001B[0m\"}");
    rt_message(&t, "display_data",
               "{\"data\":{\"application/"
               "json\":{\"big\":1180591620717411303424,\"huge\":1e400,\"n\":NaN,\"i\":-Infinity,"
               "\"d\":1,\"d\":2},\"text/plain\":\"\\u0000\"}}");
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    rt_events(t.log, -1, true, 999, &out);
    assert_non_null(
        strstr(out.data, "\"text\":\"nul\\u0000 lone\xef\xbf\xbd ok\xef\xbf\xbd\\u001b[0m\""));
    assert_non_null(strstr(
        out.data, "{\"big\":1180591620717411303424,\"huge\":1e400,\"n\":null,\"i\":null,\"d\":2}"));
    assert_non_null(strstr(out.data, "\"text/plain\":\"\\u0000\""));
    kg_json_value_t v;
    assert_int_equal(kg_json_check(kg_buf_slice(&out), KG_JSON_DEPTH_MAX, &v), 0);
    kg_buf_fini(&out);
    rt_end(&t);
}

static int drain(kg_run_reader_t *reader)
{
    kg_buf_t out = {0};
    kg_read_piece_t piece;
    int rc;
    while ((rc = kg_run_reader_next(reader, &out, 1000, &piece)) == KG_READ_PIECE) {
    }
    kg_buf_fini(&out);
    return rc;
}

/* A client may claim to have events that do not exist yet: its stream must end with the run. */
static void reader_after_beyond_the_end_of_a_live_run_has_what_comes(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *result = NULL, *beyond = NULL, *late = NULL;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(kg_run_reader_create(t.log, 1, false, &result), 0); /* what will be `result` */
    assert_int_equal(kg_run_reader_create(t.log, 1000000, false, &beyond), 0);
    assert_int_equal(kg_run_reader_create(t.log, 1000000, true, &late), 0);
    assert_int_equal(drain(result), KG_READ_WAIT);
    assert_int_equal(drain(beyond), KG_READ_WAIT);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    kg_read_piece_t piece = {0};
    kg_buf_t text = {0};
    assert_int_equal(kg_run_reader_next(beyond, &text, 4096, &piece), KG_READ_PIECE);
    assert_int_equal(piece.type, KG_EVENT_RESULT);
    kg_buf_fini(&text);
    assert_int_equal(drain(result), KG_READ_END);
    assert_int_equal(drain(beyond), KG_READ_END);
    assert_int_equal(drain(late), KG_READ_WAIT);
    kg_run_reader_destroy(&result);
    kg_run_reader_destroy(&beyond);
    kg_run_reader_destroy(&late);
    rt_end(&t);
}

static void reader_seq_is_that_of_the_next_event(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *reader = NULL;
    kg_buf_t out = {0};
    kg_read_piece_t piece;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
    rt_stream(&t, "stdout", "a");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(kg_run_reader_create(t.log, -1, false, &reader), 0);
    assert_int_equal(kg_run_reader_seq(reader), 0);
    assert_int_equal(kg_run_reader_next(reader, &out, 4, &piece), KG_READ_PIECE);
    assert_int_equal(kg_run_reader_seq(reader), 0);
    assert_int_equal(drain(reader), KG_READ_WAIT);
    assert_int_equal(kg_run_reader_seq(reader), 2);
    kg_run_reader_destroy(&reader);
    kg_buf_fini(&out);
    rt_end(&t);
}

/* Of a log with very many events the Execution is made in steps, whatever its pieces may hold. */
static void execution_of_many_events_comes_in_short_pieces(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *reader = NULL;
    kg_buf_t whole = {0};
    kg_read_piece_t piece;
    unsigned most = 0;
    rt_begin(&t);
    rt_open(&t);
    for (unsigned i = 0; i < 40000; i++) { /* no two of a kind are joined */
        assert_int_equal(kg_mapper_text(t.mapper, i % 2, kg_slice_cstr(i % 2 ? "e" : "o")), 0);
    }
    for (unsigned i = 0; i < 40000; i++) {
        rt_message(&t, "clear_output", "{\"wait\":true}");
    }
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(kg_run_reader_execution(t.log, &reader), 0);
    int rc;
    for (size_t before = 0;; before = whole.len) {
        rc = kg_run_reader_next(reader, &whole, 1 << 20, &piece);
        if (rc != KG_READ_PIECE) {
            break;
        }
        assert_true(whole.len > before);
        most = reader->walked > most ? reader->walked : most;
    }
    assert_int_equal(rc, KG_READ_END);
    assert_in_range(most, 2000, 3000);
    json_t *x = json_loadb(whole.data, whole.len, FLAGS, NULL);
    assert_non_null(x);
    assert_int_equal(json_string_length(json_object_get(x, "stdout")), 20000);
    assert_int_equal(json_string_length(json_object_get(x, "stderr")), 20000);
    assert_int_equal(json_string_length(json_object_get(x, "output")), 40000);
    json_decref(x);
    kg_buf_fini(&whole);
    kg_run_reader_destroy(&reader);
    rt_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(execution_of_many_events_comes_in_short_pieces),
        cmocka_unit_test(reader_after_beyond_the_end_of_a_live_run_has_what_comes),
        cmocka_unit_test(reader_seq_is_that_of_the_next_event),
        cmocka_unit_test(reader_any_piece_size_yields_the_same),
        cmocka_unit_test(reader_after_every_seq_yields_the_rest),
        cmocka_unit_test(reader_live_waits_and_goes_on),
        cmocka_unit_test(execution_before_the_end_is_refused),
        cmocka_unit_test(virtual_result_random_runs_equal_the_oracle),
        cmocka_unit_test(update_across_runs_changes_the_earlier_one),
        cmocka_unit_test(kernel_json_that_trees_refuse_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
