/* Logs at rest: what is given up, who keeps it, and that nobody can tell by what he reads. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

enum {
    RESTED_MAX = 320 /* bytes of memory that a log at rest takes, the C library's own with it */
};

typedef struct fixture {
    run_test_t t;
    kg_run_budget_t *budget;
} fixture_t;

static void begin(fixture_t *f)
{
    *f = (fixture_t){0};
    rt_begin(&f->t);
    const kg_run_budget_opts_t opts = {.sandbox_bytes = UINT64_C(1) << 30};
    assert_int_equal(kg_run_budget_create(&opts, &f->budget), 0);
}

static void end(fixture_t *f)
{
    kg_run_budget_destroy(&f->budget);
    rt_end(&f->t);
}

static void add(fixture_t *f)
{
    assert_int_equal(kg_run_budget_add(f->budget, f->t.log, 1), 0);
}

static bool at_rest(const fixture_t *f)
{
    return !f->t.log->body && f->t.log->fd == -1 && !kg_run_log_meta(f->t.log);
}

/* A run with something of each kind. */
static void run_code(fixture_t *f)
{
    rt_open(&f->t);
    assert_int_equal(kg_mapper_started(f->t.mapper, 7), 0);
    rt_stream(&f->t, "stdout", "one\n");
    rt_stream(&f->t, "stderr", "two\n");
    rt_message(&f->t, "display_data",
               "{\"data\":{\"text/plain\":\"shown\"},\"metadata\":{},\"transient\":{}}");
    rt_message(&f->t, "clear_output", "{\"wait\":true}");
    rt_stream(&f->t, "stdout", "three\n");
    rt_message(&f->t, "execute_result",
               "{\"data\":{\"text/plain\":\"42\"},\"metadata\":{},\"execution_count\":7}");
    rt_message(&f->t, "execute_reply", "{\"status\":\"ok\",\"execution_count\":7}");
    rt_finish(&f->t, KG_RUN_OK);
}

/* That, at rest. */
static void run_and_rest(fixture_t *f)
{
    run_code(f);
    add(f);
    kg_mapper_destroy(&f->t.mapper);
    assert_true(at_rest(f));
}

static void log_rests_when_its_last_user_has_gone(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_reader_t *reader = NULL;
    kg_run_watch_t watch = {0};
    begin(&f);
    run_code(&f);
    assert_false(at_rest(&f));
    add(&f);
    assert_false(at_rest(&f)); /* its mapper may append */
    kg_run_log_watch(f.t.log, &watch);
    kg_mapper_destroy(&f.t.mapper);
    assert_false(at_rest(&f)); /* its client is about to read */
    assert_int_equal(kg_run_reader_execution(f.t.log, &reader), 0);
    kg_run_log_unwatch(f.t.log, &watch);
    assert_false(at_rest(&f));
    kg_run_reader_destroy(&reader);
    assert_true(at_rest(&f));
    end(&f);
}

static void log_of_no_budget_stays_awake(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    run_code(&f);
    kg_mapper_destroy(&f.t.mapper);
    assert_false(at_rest(&f));
    add(&f);
    assert_true(at_rest(&f));
    end(&f);
}

static void rested_log_reads_the_same(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t before[4] = {0};
    kg_buf_t after[4] = {0};
    begin(&f);
    run_code(&f);
    for (unsigned i = 0; i < 2; i++) {
        kg_buf_t *out = i == 0 ? before : after;
        rt_execution(f.t.log, 50, &out[0]);
        assert_int_equal(at_rest(&f), i == 1);
        rt_events(f.t.log, -1, false, 50, &out[1]);
        rt_events(f.t.log, 3, true, 50, &out[2]);
        assert_int_equal(kg_run_log_slim(f.t.log, false, &out[3]), 0);
        assert_int_equal(at_rest(&f), i == 1);
        if (i == 0) {
            add(&f);
            kg_mapper_destroy(&f.t.mapper);
        }
    }
    for (unsigned i = 0; i < KG_ARRAY_LEN(before); i++) {
        assert_true(before[i].len > 100);
        assert_string_equal(before[i].data, after[i].data);
        kg_buf_fini(&before[i]);
        kg_buf_fini(&after[i]);
    }
    assert_string_equal(kg_run_log_id(f.t.log), RUN_ID);
    assert_int_equal(kg_run_log_status(f.t.log), KG_RUN_OK);
    assert_int_equal(kg_run_log_execution_count(f.t.log), 7);
    assert_int_equal(kg_run_log_created_wall_ns(f.t.log), 1);
    assert_int_equal(kg_run_log_finished_wall_ns(f.t.log), rt_end_of(KG_RUN_OK).wall_ns);
    assert_true(kg_run_log_started(f.t.log) && kg_run_log_finished(f.t.log));
    end(&f);
}

/* What lists read of a thousand runs is not read from the beginning of each file. */
static void slim_leaves_it_at_rest(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    begin(&f);
    run_and_rest(&f);
    int fd = openat(f.t.dirfd, f.t.log->name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 40), 1); /* in the first record */
    close(fd);
    assert_int_equal(kg_run_log_slim(f.t.log, false, &out), 0);
    assert_non_null(strstr(out.data, "\"status\":\"ok\""));
    assert_int_equal(kg_run_log_wake(f.t.log), -EIO);
    kg_buf_fini(&out);
    end(&f);
}

static void on_news(void *user)
{
    ++*(unsigned *)user;
}

static void late_output_wakes_it_and_is_seen(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    unsigned news = 0;
    kg_run_watch_t watch = {.fn = on_news, .user = &news};
    begin(&f);
    run_and_rest(&f);
    uint64_t size = kg_run_log_size(f.t.log);
    kg_run_log_watch(f.t.log, &watch);
    assert_true(at_rest(&f));
    assert_int_equal(kg_mapper_create(&f.t.opts, f.t.log, f.t.displays, &f.t.sink, &f.t.mapper), 0);
    kg_mapper_ended(f.t.mapper);
    rt_stream(&f.t, "stdout", "late\n");
    assert_int_equal(kg_run_log_flush(f.t.log), 0);
    assert_int_equal(news, 1);
    kg_run_budget_update(f.budget, f.t.log, 2);
    kg_mapper_destroy(&f.t.mapper);
    kg_run_log_unwatch(f.t.log, &watch);
    assert_true(at_rest(&f));
    assert_true(kg_run_log_late(f.t.log) && kg_run_log_size(f.t.log) > size);
    rt_events(f.t.log, -1, true, 1000, &out);
    assert_non_null(strstr(out.data, "\"text\":\"late\\n\",\"late\":true}"));
    rt_execution(f.t.log, 1000, &out);
    assert_non_null(strstr(out.data, "\"stdout\":\"three\\nlate\\n\""));
    assert_non_null(strstr(out.data, "\"late\":true"));
    kg_buf_fini(&out);
    end(&f);
}

static void removed_while_it_is_watched_says_so(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_reader_t *reader = NULL;
    kg_mapper_t *mapper = NULL;
    kg_buf_t out = {0};
    kg_read_piece_t piece;
    unsigned news = 0;
    kg_run_watch_t watch = {.fn = on_news, .user = &news};
    begin(&f);
    run_and_rest(&f);
    kg_run_log_watch(f.t.log, &watch);
    kg_run_budget_drop_sandbox(f.budget, f.t.meta.sandbox);
    assert_int_equal(news, 1);
    assert_int_equal(rt_files(&f.t), 0);
    assert_true(kg_run_log_expired(f.t.log));
    assert_int_equal(kg_run_reader_create(f.t.log, -1, false, &reader), 0);
    assert_int_equal(kg_run_reader_next(reader, &out, 50, &piece), KG_READ_EXPIRED);
    kg_run_reader_destroy(&reader);
    assert_int_equal(kg_run_reader_execution(f.t.log, &reader), -ESTALE);
    assert_int_equal(kg_mapper_create(&f.t.opts, f.t.log, NULL, NULL, &mapper), -ESTALE);
    assert_int_equal(kg_run_log_flush(f.t.log), 0);
    kg_run_log_unwatch(f.t.log, &watch);
    end(&f);
}

static void expires_with_a_slim(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    run_and_rest(&f);
    kg_run_budget_tick(f.budget,
                       kg_run_log_finished_wall_ns(f.t.log) + UINT64_C(100000) * 1000000000U);
    const kg_run_slim_t *slim = kg_run_budget_slim(f.budget, RUN_ID);
    assert_non_null(slim);
    assert_string_equal(slim->sandbox, f.t.meta.sandbox);
    assert_string_equal(slim->owner, "me");
    assert_non_null(memmem(slim->json.data, slim->json.len, "\"expired\":true", 14));
    assert_int_equal(rt_files(&f.t), 0);
    end(&f);
}

static void damage(const fixture_t *f, off_t off)
{
    char byte;
    int fd = openat(f->t.dirfd, f->t.log->name, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, off), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, off), 1);
    close(fd);
}

static void refused(const fixture_t *f)
{
    kg_run_reader_t *reader = NULL;
    kg_mapper_t *mapper = NULL;
    assert_int_equal(kg_run_reader_create(f->t.log, -1, false, &reader), -EIO);
    assert_int_equal(kg_run_reader_execution(f->t.log, &reader), -EIO);
    assert_int_equal(kg_mapper_create(&f->t.opts, f->t.log, NULL, NULL, &mapper), -EIO);
    assert_null(reader);
    assert_true(at_rest(f));
    assert_true(kg_run_log_finished(f->t.log) && !kg_run_log_late(f->t.log));
    assert_int_equal(kg_run_log_next_seq(f->t.log), f->t.log->published_seq);
}

static void file_that_is_not_what_it_was_is_refused(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    begin(&f);
    run_and_rest(&f);
    off_t size = (off_t)kg_run_log_size(f.t.log);
    for (off_t off = 0; off < size; off++) { /* a byte anywhere */
        damage(&f, off);
        refused(&f);
        damage(&f, off);
    }
    assert_int_equal(renameat(f.t.dirfd, f.t.log->name, f.t.dirfd, "away"), 0);
    refused(&f);
    assert_int_equal(renameat(f.t.dirfd, "away", f.t.dirfd, f.t.log->name), 0);
    rt_execution(f.t.log, 1000, &out);
    assert_non_null(strstr(out.data, "\"text\":\"42\""));
    int fd = openat(f.t.dirfd, f.t.log->name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, size - 1), 0);
    close(fd);
    refused(&f);
    kg_buf_fini(&out);
    end(&f);
}

static void log_that_shows_a_display_waits_for_its_updates(void **state)
{
    static const char shown[] = "{\"data\":{\"text/plain\":\"a\"},\"metadata\":{},"
                                "\"transient\":{\"display_id\":\"d\"}}";
    static const char updated[] = "{\"data\":{\"text/plain\":\"b\"},\"metadata\":{},"
                                  "\"transient\":{\"display_id\":\"d\"}}";
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    begin(&f);
    rt_open(&f.t);
    rt_message(&f.t, "display_data", shown);
    rt_finish(&f.t, KG_RUN_OK);
    add(&f);
    kg_mapper_destroy(&f.t.mapper);
    assert_false(at_rest(&f));
    kg_run_log_t *first = kg_run_log_ref(f.t.log);
    rt_close(&f.t);
    rt_open(&f.t);
    rt_message(&f.t, "update_display_data", updated);
    rt_finish(&f.t, KG_RUN_OK);
    assert_int_equal(kg_run_log_flush(first), 0);
    rt_close(&f.t);
    f.t.log = first;
    kg_displays_clear(f.t.displays); /* its kernel has gone */
    assert_true(at_rest(&f));
    rt_execution(first, 1000, &out);
    assert_non_null(strstr(out.data, "\"data\":\"b\""));
    kg_buf_fini(&out);
    end(&f);
}

/* How much was cut after the end is written nowhere. */
static void log_with_late_output_cut_stays_awake(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    begin(&f);
    f.t.opts.limits.output_bytes = 10;
    rt_open(&f.t);
    rt_stream(&f.t, "stdout", "1234567890");
    rt_finish(&f.t, KG_RUN_OK);
    add(&f);
    rt_stream(&f.t, "stdout", "12345");
    assert_int_equal(kg_run_log_flush(f.t.log), 0);
    kg_mapper_destroy(&f.t.mapper);
    assert_false(at_rest(&f));
    rt_execution(f.t.log, 1000, &out);
    assert_non_null(strstr(out.data, "\"truncated\":{\"stdout\":5}"));
    kg_buf_fini(&out);
    end(&f);
}

/* A log of about so many bytes, with nobody at it. */
static void of_size(fixture_t *f, size_t bytes)
{
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = '\0';
    rt_open(&f->t);
    for (size_t i = 0; i < bytes / 1000; i++) {
        rt_stream(&f->t, "stdout", text);
    }
    rt_finish(&f->t, KG_RUN_OK);
    add(f);
    kg_mapper_destroy(&f->t.mapper);
}

static void large_log_stays_awake(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    of_size(&f, KG_RUN_REST_MAX - 10000);
    assert_true(kg_run_log_size(f.t.log) > KG_RUN_REST_MAX - 20000);
    assert_true(at_rest(&f));
    rt_close(&f.t);
    of_size(&f, KG_RUN_REST_MAX);
    assert_true(kg_run_log_size(f.t.log) > KG_RUN_REST_MAX);
    assert_false(at_rest(&f));
    end(&f);
}

static void broken_log_stays_awake(void **state)
{
    (void)state;
    fixture_t f;
    kg_buf_t out = {0};
    begin(&f);
    int good = f.t.log_opts.dirfd;
    f.t.log_opts.dirfd = -1;
    rt_open(&f.t);
    rt_stream(&f.t, "stdout", "kept");
    const kg_run_end_t last = rt_end_of(KG_RUN_OK);
    assert_int_equal(kg_mapper_finish(f.t.mapper, &last), 0);
    assert_int_equal(kg_run_log_flush(f.t.log), -EBADF);
    f.t.log_opts.dirfd = good;
    add(&f);
    kg_mapper_destroy(&f.t.mapper);
    assert_false(at_rest(&f));
    rt_execution(f.t.log, 1000, &out);
    assert_non_null(strstr(out.data, "\"stdout\":\"kept\""));
    kg_buf_fini(&out);
    end(&f);
}

/* A run whose output is so long, with a reader at its log from the beginning on. Returns the log's
 * size. */
static uint64_t read_while_it_ends(fixture_t *f, size_t len, kg_run_reader_t **ret_reader)
{
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, 'x', len);
    text[len] = '\0';
    rt_open(&f->t);
    assert_int_equal(kg_run_reader_create(f->t.log, KG_READ_FROM_START, false, ret_reader), 0);
    rt_stream(&f->t, "stdout", text);
    rt_message(&f->t, "execute_reply", "{\"status\":\"ok\",\"execution_count\":1}");
    rt_finish(&f->t, KG_RUN_OK);
    free(text);
    return kg_run_log_size(f->t.log);
}

static void empty_the_file(const fixture_t *f)
{
    int fd = openat(f->t.dirfd, f->t.log->name, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
}

/* To its end, or until it fails. */
static int read_on(kg_run_reader_t *reader, kg_buf_t *out)
{
    kg_read_piece_t piece;
    int rc = KG_READ_PIECE;
    while (rc == KG_READ_PIECE) {
        rc = kg_run_reader_next(reader, out, 1000, &piece);
    }
    return rc;
}

static void expect_read(kg_run_reader_t *reader, size_t len)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(read_on(reader, &out), KG_READ_END);
    const char *text = strstr(out.data, "\"text\":\"x");
    assert_non_null(text);
    assert_int_equal(strspn(text + strlen("\"text\":\""), "x"), len);
    assert_non_null(strstr(out.data, "\"status\":\"ok\""));
}

/* Whoever follows a run has its end from memory; who comes later, from the file. */
static void finished_log_that_is_read_comes_from_memory(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_reader_t *reader = NULL;
    begin(&f);
    size_t len = KG_LOG_WINDOW_READ - (size_t)read_while_it_ends(&f, 1, &reader) + 1;
    kg_run_reader_destroy(&reader);
    rt_close(&f.t);

    assert_int_equal(read_while_it_ends(&f, len, &reader), KG_LOG_WINDOW_READ);
    assert_int_equal(f.t.log->body->win.len, KG_LOG_WINDOW_READ);
    empty_the_file(&f);
    expect_read(reader, len);
    kg_run_reader_destroy(&reader);
    assert_int_equal(f.t.log->body->win.len, 0);
    assert_int_equal(kg_run_reader_create(f.t.log, KG_READ_FROM_START, false, &reader), -EIO);
    end(&f);
}

static void larger_log_comes_from_its_file(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_reader_t *reader = NULL;
    KG_AUTO_BUF kg_buf_t out = {0};
    begin(&f);
    size_t len = KG_LOG_WINDOW_READ - (size_t)read_while_it_ends(&f, 1, &reader) + 2;
    for (unsigned i = 0; i < 2; i++) {
        kg_run_reader_destroy(&reader);
        rt_close(&f.t);
        assert_int_equal(read_while_it_ends(&f, len, &reader), KG_LOG_WINDOW_READ + 1);
        assert_int_equal(f.t.log->body->win.len, 0);
        if (i == 0) {
            expect_read(reader, len);
        } else {
            empty_the_file(&f);
            assert_int_equal(read_on(reader, &out), -EIO);
        }
    }
    kg_run_reader_destroy(&reader);
    end(&f);
}

static void many_finished_logs_take_little_memory(void **state)
{
    (void)state;
    enum {
        LOGS = 1000
    };
    static kg_run_log_t *logs[LOGS];
    fixture_t f;
    struct mallinfo2 was = mallinfo2();
    void *volatile probe = malloc(100000); /* from no cache of the C library's */
    bool counts = mallinfo2().uordblks > was.uordblks;
    free(probe);
    if (!counts) {
        skip(); /* a sanitizer's heap, which mallinfo2(3) does not know */
    }
    begin(&f);
    for (size_t i = 0; i < LOGS; i++) {
        if (i == 1) {
            was = mallinfo2(); /* the sandbox's own is there */
        }
        char run[KG_ID_MAX];
        (void)snprintf(run, sizeof run, "run-10de5%015zu", i);
        f.t.meta.run = run;
        run_and_rest(&f);
        logs[i] = f.t.log;
        f.t.log = NULL;
    }
    size_t each = (mallinfo2().uordblks - was.uordblks) / (LOGS - 1);
    print_message("# %zu bytes a log\n", each);
    assert_in_range(each, 100, RESTED_MAX);
    for (size_t i = 0; i < LOGS; i++) {
        kg_run_log_unref(&logs[i]);
    }
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_rests_when_its_last_user_has_gone),
        cmocka_unit_test(log_of_no_budget_stays_awake),
        cmocka_unit_test(rested_log_reads_the_same),
        cmocka_unit_test(slim_leaves_it_at_rest),
        cmocka_unit_test(late_output_wakes_it_and_is_seen),
        cmocka_unit_test(removed_while_it_is_watched_says_so),
        cmocka_unit_test(expires_with_a_slim),
        cmocka_unit_test(file_that_is_not_what_it_was_is_refused),
        cmocka_unit_test(log_that_shows_a_display_waits_for_its_updates),
        cmocka_unit_test(log_with_late_output_cut_stays_awake),
        cmocka_unit_test(large_log_stays_awake),
        cmocka_unit_test(broken_log_stays_awake),
        cmocka_unit_test(finished_log_that_is_read_comes_from_memory),
        cmocka_unit_test(larger_log_comes_from_its_file),
        cmocka_unit_test(many_finished_logs_take_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
