/* Limits: at the limit and one past it, tails, counts to the byte, stop, and memory. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

#define FLAGS (JSON_ALLOW_NUL | JSON_DECODE_ANY)

static json_t *execution(run_test_t *t)
{
    kg_buf_t out = {0};
    rt_execution(t->log, 60000, &out);
    json_t *v = json_loadb(out.data, out.len, FLAGS, NULL);
    assert_non_null(v);
    kg_buf_fini(&out);
    return v;
}

static json_t *events(run_test_t *t)
{
    kg_buf_t out = {0};
    rt_events(t->log, -1, true, 60000, &out);
    json_t *v = json_loadb(out.data, out.len, FLAGS, NULL);
    assert_non_null(v);
    kg_buf_fini(&out);
    return v;
}

static size_t count_of(json_t *list, const char *type, const char *what)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        const char *w = json_string_value(json_object_get(e, "what"));
        n += strcmp(json_string_value(json_object_get(e, "type")), type) == 0 &&
                     (!what || (w && strcmp(w, what) == 0))
                 ? 1
                 : 0;
    }
    return n;
}

/* Produces total bytes of stdout in messages of `step`, of a text with all kinds of characters. */
static void produce(run_test_t *t, size_t total, size_t step, kg_buf_t *produced)
{
    static const char pattern[] = "abc\n\x1b[1m\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\\";
    kg_buf_clear(produced);
    while (produced->len < total) {
        char text[4097];
        size_t n = 0;
        while (n < step && produced->len + n < total) {
            size_t left = total - produced->len - n;
            size_t k =
                left < sizeof pattern - 1 || step - n < sizeof pattern - 1 ? 1 : sizeof pattern - 1;
            memcpy(text + n, k == 1 ? "." : pattern, k);
            n += k;
        }
        text[n] = '\0';
        rt_stream(t, "stdout", text);
        assert_int_equal(kg_buf_append(produced, text, n), 0);
    }
}

static void check_kept_plus_cut(run_test_t *t, const kg_buf_t *produced, size_t limit)
{
    json_t *x = execution(t), *list = events(t);
    json_t *text = json_object_get(x, "stdout");
    size_t kept = json_string_length(text);
    json_t *truncated = json_object_get(x, "truncated");
    if (produced->len <= limit) {
        assert_true(json_is_null(truncated));
        assert_int_equal(kept, produced->len);
        assert_int_equal(count_of(list, "truncated", NULL), 0);
    } else {
        size_t cut = (size_t)json_integer_value(json_object_get(truncated, "stdout"));
        size_t tail = limit / 4 < 65536 ? limit / 4 : 65536;
        assert_int_equal(kept + cut, produced->len);
        assert_int_equal(count_of(list, "truncated", "stdout"), 1);
        assert_true(kept <= limit + tail);
        assert_true(kept + 6 >= (produced->len < limit + tail ? produced->len : limit + tail));
        /* The head is the head, the tail the tail. */
        const char *s = json_string_value(text);
        size_t head = 0;
        while (head < kept && s[head] == produced->data[head]) {
            head++;
        }
        assert_true(head + 3 >= (limit < kept ? limit : kept));
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_t *e = json_array_get(list, i);
            if (json_is_true(json_object_get(e, "tail"))) {
                size_t n = json_string_length(json_object_get(e, "text"));
                assert_true(n <= tail);
                assert_memory_equal(json_string_value(json_object_get(e, "text")),
                                    produced->data + produced->len - n, n);
                tail = 0;
            }
        }
        assert_true(tail == 0 || produced->len == limit || limit < 4);
    }
    json_decref(x);
    json_decref(list);
}

static void output_bytes_around_the_limit_kept_plus_cut_is_produced(void **state)
{
    (void)state;
    static const size_t limits[] = {0, 1, 3, 17, 100, 1000, 5000};
    for (size_t l = 0; l < KG_ARRAY_LEN(limits); l++) {
        size_t limit = limits[l];
        for (size_t total = limit > 3 ? limit - 3 : 1; total < limit + 40; total++) {
            for (size_t step = 7; step < 5000; step = step * 5 + 1) {
                run_test_t t;
                kg_buf_t produced = {0};
                rt_begin(&t);
                t.opts.limits.output_bytes = limit;
                rt_open(&t);
                produce(&t, total, step < 4000 ? step : 4000, &produced);
                rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
                rt_finish(&t, KG_RUN_OK);
                check_kept_plus_cut(&t, &produced, limit);
                kg_buf_fini(&produced);
                rt_end(&t);
            }
        }
    }
}

static void output_bytes_far_past_the_limit_has_head_and_tail(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t produced = {0};
    rt_begin(&t);
    t.opts.limits.output_bytes = 300000;
    rt_open(&t);
    produce(&t, 2000000, 4000, &produced);
    rt_finish(&t, KG_RUN_TIMEOUT);
    check_kept_plus_cut(&t, &produced, 300000);
    kg_buf_fini(&produced);
    rt_end(&t);
}

/* One message past the limit: the middle is never copied. */
static void output_bytes_one_big_message(void **state)
{
    (void)state;
    for (size_t total = 190000; total < 900000; total += 70001) {
        run_test_t t;
        kg_buf_t produced = {0};
        rt_begin(&t);
        t.opts.limits.output_bytes = 200000;
        rt_open(&t);
        rt_stream(&t, "stdout", "early ");
        assert_int_equal(kg_buf_append_cstr(&produced, "early "), 0);
        for (size_t i = 0; produced.len < total; i++) {
            assert_int_equal(kg_buf_printf(&produced, "%zu \xe2\x82\xac\n", i), 0);
        }
        rt_stream(&t, "stdout", produced.data + 6);
        rt_finish(&t, KG_RUN_TIMEOUT);
        check_kept_plus_cut(&t, &produced, 200000);
        kg_buf_fini(&produced);
        rt_end(&t);
    }
}

static void streams_have_limits_of_their_own(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.opts.limits.output_bytes = 4;
    rt_open(&t);
    rt_stream(&t, "stdout", "123456789");
    rt_stream(&t, "stderr", "1234");
    rt_finish(&t, KG_RUN_TIMEOUT);
    json_t *x = execution(&t);
    json_t *cut = json_object_get(x, "truncated");
    assert_int_equal(json_integer_value(json_object_get(cut, "stdout")), 4);
    assert_null(json_object_get(cut, "stderr"));
    assert_string_equal(json_string_value(json_object_get(x, "stderr")), "1234");
    assert_string_equal(json_string_value(json_object_get(x, "stdout")), "12349");
    json_decref(x);
    rt_end(&t);
}

static void result_bytes_at_the_limit_and_one_past(void **state)
{
    (void)state;
    for (unsigned extra = 0; extra < 2; extra++) {
        run_test_t t;
        rt_begin(&t);
        t.opts.limits.result_bytes = 10 + 8 - extra;
        rt_open(&t);
        rt_message(&t, "display_data",
                   "{\"data\":{\"text/plain\":\"0123456789\"},\"metadata\":{}}");
        rt_message(&t, "execute_result",
                   "{\"data\":{\"text/plain\":\"p\\n\\u00e9\",\"text/html\":\"<b>x\"}}");
        rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
        rt_finish(&t, KG_RUN_OK);
        json_t *x = execution(&t), *list = events(&t);
        json_t *last = json_array_get(json_object_get(x, "results"), 1);
        assert_string_equal(json_string_value(json_object_get(last, "text")), "p\n\xc3\xa9");
        assert_string_equal(json_string_value(json_object_get(last, "type")),
                            extra ? "text/plain" : "text/html");
        json_t *cut = json_object_get(x, "truncated");
        if (extra) {
            assert_int_equal(json_integer_value(json_object_get(cut, "result")), 4);
            assert_int_equal(count_of(list, "truncated", "result"), 1);
        } else {
            assert_true(json_is_null(cut));
        }
        json_decref(x);
        json_decref(list);
        rt_end(&t);
    }
}

static void result_that_cannot_be_kept_stays_empty(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.opts.limits.result_bytes = 3;
    rt_open(&t);
    rt_message(
        &t, "execute_result",
        "{\"data\":{\"text/plain\":\"abcd\",\"image/png\":\"AAAAAA\"},\"metadata\":{\"k\":1}}");
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    json_t *x = execution(&t);
    json_t *r = json_array_get(json_object_get(x, "results"), 0);
    assert_int_equal(json_object_size(json_object_get(r, "formats")), 0);
    assert_string_equal(json_string_value(json_object_get(r, "data")), "");
    assert_true(json_is_true(json_object_get(r, "main")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(x, "truncated"), "result")),
                     4 + 6 + 7);
    json_decref(x);
    rt_end(&t);
}

static void events_at_the_limit_and_one_past(void **state)
{
    (void)state;
    for (unsigned extra = 0; extra < 2; extra++) {
        run_test_t t;
        rt_begin(&t);
        t.opts.limits.events = 10;
        rt_open(&t);
        for (unsigned i = 0; i < 10 + extra * 3; i++) {
            rt_message(&t, "display_data", "{\"data\":{\"text/plain\":\"x\"}}");
        }
        if (extra) {
            rt_stream(&t, "stdout", "lost");
        }
        rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
        rt_finish(&t, KG_RUN_OK);
        json_t *x = execution(&t), *list = events(&t);
        assert_int_equal(json_array_size(json_object_get(x, "results")), 10);
        json_t *cut = json_object_get(x, "truncated");
        if (extra) {
            assert_int_equal(count_of(list, "truncated", "events"), 1);
            assert_int_equal(json_integer_value(json_object_get(cut, "events")), 3);
            assert_string_equal(json_string_value(json_object_get(x, "stdout")),
                                "lost"); /* as its tail */
            assert_int_equal(json_integer_value(json_object_get(cut, "stdout")), 0);
        } else {
            assert_true(json_is_null(cut));
        }
        json_decref(x);
        json_decref(list);
        rt_end(&t);
    }
}

static void on_exceed_stop_tells_the_owner_once(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.opts.limits.output_bytes = 4;
    t.opts.limits.on_exceed = KG_EXCEED_STOP;
    rt_open(&t);
    rt_stream(&t, "stderr", "1234");
    assert_int_equal(t.stops, 0);
    rt_stream(&t, "stderr", "5");
    rt_stream(&t, "stdout", "123456");
    assert_int_equal(t.stops, 1);
    assert_int_equal(t.stop_what, KG_CUT_STDERR);
    rt_finish(&t, KG_RUN_OUTPUT_LIMIT);
    json_t *x = execution(&t);
    assert_string_equal(json_string_value(json_object_get(x, "status")), "output_limit");
    assert_string_equal(json_string_value(json_object_get(json_object_get(x, "error"), "name")),
                        "OutputLimit");
    json_decref(x);
    rt_end(&t);
}

static void late_output_keeps_to_the_limits(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.opts.limits.output_bytes = 8;
    rt_open(&t);
    rt_stream(&t, "stdout", "1234");
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    for (unsigned i = 0; i < 1000; i++) {
        rt_stream(&t, "stdout", "56789");
    }
    assert_int_equal(kg_run_log_flush(t.log), 0);
    json_t *list = events(&t);
    assert_int_equal(json_array_size(list), 4);
    assert_int_equal(count_of(list, "truncated", "stdout"), 1);
    assert_true(json_is_true(json_object_get(json_array_get(list, 3), "late")));
    json_decref(list);
    rt_end(&t);
}

/* Sanitizers have a memory of their own. */
#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif
#else
static const bool sanitized = false;
#endif

static size_t peak_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss;
}

/* A message of 100 MB: memory is bounded by the limit, and small again afterwards. */
static void stream_100mb_memory_is_bounded_by_the_limit(void **state)
{
    (void)state;
    static const size_t total = 100 << 20;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    kg_buf_t json = {0};
    assert_int_equal(kg_buf_reserve(&json, total + 100), 0);
    assert_int_equal(kg_buf_append_cstr(&json, "{\"name\":\"stdout\",\"text\":\""), 0);
    for (size_t i = 0; i < total / 16; i++) {
        (void)kg_buf_append(&json, "0123456789abcd\\n", 16);
    }
    assert_int_equal(kg_buf_append_cstr(&json, "\"}"), 0);
    size_t before = peak_kib();
    rt_message_len(&t, "stream", json.data, json.len);
    rt_finish(&t, KG_RUN_TIMEOUT);
    size_t bytes = total / 16 * 15;
    kg_run_reader_t *r = NULL;
    kg_buf_t part = {0};
    kg_read_piece_t piece;
    size_t out = 0;
    assert_int_equal(kg_run_reader_execution(t.log, &r), 0);
    while (kg_run_reader_next(r, &part, 65536, &piece) == KG_READ_PIECE) {
        out += part.len;
        kg_buf_clear(&part);
    }
    assert_true(out > 3 * (KG_RUN_OUTPUT_BYTES));
    assert_int_equal(
        t.log->body->account.kept[KG_CUT_STDOUT] + t.log->body->account.cut[KG_CUT_STDOUT], bytes);
    assert_true(sanitized || peak_kib() - before < (size_t)49152);
    kg_run_reader_destroy(&r);
    kg_buf_fini(&part);
    kg_buf_fini(&json);
    rt_end(&t);
}

static json_int_t execution_cut(run_test_t *t, const char *kind)
{
    kg_buf_t text = {0};
    rt_execution(t->log, 7, &text);
    json_t *x = json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    assert_non_null(x);
    json_t *n = json_object_get(json_object_get(x, "truncated"), kind);
    json_int_t value = json_is_null(n) ? -1 : json_integer_value(n);
    json_decref(x);
    kg_buf_fini(&text);
    return value;
}

/* What late output loses is counted in the Execution as it is read afterwards. */
static void late_output_cut_is_counted(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t text = {0};
    rt_begin(&t);
    t.opts.limits.output_bytes = 8;
    rt_open(&t);
    rt_stream(&t, "stdout", "0123456789");
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(execution_cut(&t, "stdout"), 0); /* the tail gave them back */
    rt_execution(t.log, 7, &text);
    assert_non_null(strstr(text.data, "\"late\":false"));
    rt_stream(&t, "stdout", "abc");
    rt_execution(t.log, 7, &text);
    assert_non_null(strstr(text.data, "\"late\":true")); /* though nothing of it was kept */
    rt_stream(&t, "stderr", "0123456789");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(execution_cut(&t, "stdout"), 3);
    assert_int_equal(execution_cut(&t, "stderr"), 2);
    rt_events(t.log, -1, false, 100, &text); /* `result` stays what it was */
    assert_non_null(strstr(text.data, "\"truncated\":{\"stdout\":0},\"late\":false"));
    char name[KG_RUN_NAME_MAX];
    memcpy(name, t.log->name, sizeof name);
    rt_close(&t);
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, &err), 0);
    assert_int_equal(execution_cut(&t, "stderr"),
                     -1); /* told, but how much went with the process */
    kg_buf_fini(&text);
    rt_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_output_cut_is_counted),
        cmocka_unit_test(output_bytes_around_the_limit_kept_plus_cut_is_produced),
        cmocka_unit_test(output_bytes_far_past_the_limit_has_head_and_tail),
        cmocka_unit_test(output_bytes_one_big_message),
        cmocka_unit_test(streams_have_limits_of_their_own),
        cmocka_unit_test(result_bytes_at_the_limit_and_one_past),
        cmocka_unit_test(result_that_cannot_be_kept_stays_empty),
        cmocka_unit_test(events_at_the_limit_and_one_past),
        cmocka_unit_test(on_exceed_stop_tells_the_owner_once),
        cmocka_unit_test(late_output_keeps_to_the_limits),
        cmocka_unit_test(stream_100mb_memory_is_bounded_by_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
