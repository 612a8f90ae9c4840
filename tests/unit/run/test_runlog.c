/* The log: joins, publishing, watchers, torn tails, recovery, and a disk that fails. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

static unsigned dirty_calls;

static void on_dirty(void *user, kg_run_log_t *log)
{
    (void)user;
    (void)log;
    dirty_calls++;
}

static void on_news(void *user)
{
    ++*(unsigned *)user;
}

static void create_strange_run_id_is_refused(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.meta.run = "run-../../etc\"";
    assert_int_equal(kg_run_log_create(&t.log_opts, &t.meta, &t.log), -EINVAL);
    rt_end(&t);
}

static void create_alone_makes_no_file(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(rt_files(&t), 0);
    assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(rt_files(&t), 1);
    struct stat st;
    assert_int_equal(fstatat(t.dirfd, t.log->name, &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal((uint64_t)st.st_size, kg_run_log_size(t.log));
    rt_end(&t);
}

static void flush_publishes_and_calls_watchers(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    unsigned news = 0;
    kg_run_watch_t watch = {.fn = on_news, .user = &news};
    rt_begin(&t);
    dirty_calls = 0;
    t.log_opts.dirty = on_dirty;
    rt_open(&t);
    assert_int_equal(dirty_calls, 0);
    kg_run_log_watch(t.log, &watch);
    rt_stream(&t, "stdout", "a");
    rt_stream(&t, "stdout", "b");
    assert_int_equal(dirty_calls, 1);
    assert_int_equal(kg_run_log_next_seq(t.log), 0);
    rt_events(t.log, -1, false, 100, &out);
    assert_string_equal(out.data, "[]");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(news, 1);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(news, 1);
    rt_stream(&t, "stdout", "c"); /* what was shown is not changed any more */
    assert_int_equal(dirty_calls, 2);
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(news, 2);
    rt_events(t.log, -1, false, 100, &out);
    assert_non_null(strstr(out.data, "\"seq\":0,\"type\":\"stdout\",\"text\":\"ab\"}"));
    assert_non_null(strstr(out.data, "\"seq\":1,\"type\":\"stdout\",\"text\":\"c\"}"));
    kg_run_log_unwatch(t.log, &watch);
    kg_run_log_unwatch(t.log, &watch);
    kg_buf_fini(&out);
    rt_end(&t);
}

static void only_a_little_may_wait(void **state)
{
    (void)state;
    run_test_t t;
    char text[KG_RUN_WAIT_BYTES / 2 + 1];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", text);
    assert_true(kg_run_log_may_wait(t.log));
    rt_stream(&t, "stdout", text);
    assert_false(kg_run_log_may_wait(t.log));
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_stream(&t, "stdout", "a");
    assert_true(kg_run_log_may_wait(t.log));
    rt_end(&t);
}

static void a_start_alone_is_told_from_output(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
    assert_true(kg_run_log_only_starts(t.log));
    assert_true(kg_run_log_may_wait(t.log));
    rt_stream(&t, "stdout", "a");
    assert_false(kg_run_log_only_starts(t.log));
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_true(kg_run_log_only_starts(t.log));
    rt_stream(&t, "stdout", "b"); /* could be joined to what was written */
    assert_false(kg_run_log_only_starts(t.log));
    rt_end(&t);
}

static void questions_and_the_end_do_not_wait(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_mapper_input(t.mapper, kg_slice_cstr("name? "), false), 0);
    assert_false(kg_run_log_may_wait(t.log));
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_true(kg_run_log_may_wait(t.log));
    const kg_run_end_t end = rt_end_of(KG_RUN_OK);
    assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
    assert_false(kg_run_log_may_wait(t.log));
    rt_end(&t);
}

static void a_start_is_written_before_it_is_shown(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", "early");
    kg_run_log_save_start(t.log);
    assert_int_equal(rt_files(&t), 0);
    assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
    kg_run_log_save_start(t.log);
    assert_int_equal(rt_files(&t), 1);
    assert_int_equal(kg_run_log_next_seq(t.log), 0);
    char name[sizeof t.log->name];
    memcpy(name, t.log->name, sizeof name);
    rt_close(&t);
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, &err), 0);
    assert_true(kg_run_log_started(t.log));
    rt_end(&t);
}

/* What a key stands for is handed over next: it is on the disk, and nobody has seen anything. */
static void saved_isThereAfterAKill_andNotShown(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    t.meta.key = "once";
    t.meta.code_hash = "hash";
    rt_open(&t);
    kg_run_log_save(t.log);
    assert_int_equal(rt_files(&t), 1);
    assert_int_equal(kg_run_log_next_seq(t.log), 0);
    char name[sizeof t.log->name];
    memcpy(name, t.log->name, sizeof name);
    rt_close(&t);
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, &err), 0);
    assert_string_equal(kg_run_log_meta(t.log)->key, "once");
    assert_string_equal(kg_run_log_meta(t.log)->code_hash, "hash");
    assert_false(kg_run_log_started(t.log));
    rt_end(&t);
}

static kg_run_log_t *leaving_log;
static kg_run_watch_t leaving[3];

static void on_leave(void *user)
{
    ++*(unsigned *)user;
    for (size_t i = 0; i < 3; i++) {
        kg_run_log_unwatch(leaving_log, &leaving[i]);
    }
}

static void watchers_may_unwatch_all(void **state)
{
    (void)state;
    run_test_t t;
    unsigned news = 0;
    rt_begin(&t);
    rt_open(&t);
    leaving_log = t.log;
    for (size_t i = 0; i < 3; i++) {
        leaving[i] = (kg_run_watch_t){.fn = on_leave, .user = &news};
        kg_run_log_watch(t.log, &leaving[i]);
    }
    rt_stream(&t, "stdout", "a");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(news, 1);
    rt_end(&t);
}

static void join_past_an_event_begins_the_next(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        run_test_t t;
        kg_buf_t out = {0};
        char half[30001];
        rt_begin(&t);
        rt_open(&t);
        memset(half, 'w', sizeof half - 1);
        half[sizeof half - 1] = '\0';
        rt_stream(&t, "stdout", half);
        rt_stream(&t, "stdout", half);
        half[KG_RUN_TEXT_MAX - 60000 + extra] = '\0';
        rt_stream(&t, "stdout", half);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        assert_int_equal(kg_run_log_next_seq(t.log), 2); /* the third would not fit in the window */
        rt_events(t.log, -1, false, 1 << 20, &out);
        size_t bytes = 0;
        for (const char *p = out.data; *p; p++) {
            bytes += *p == 'w' ? 1 : 0;
        }
        assert_int_equal(bytes, KG_RUN_TEXT_MAX + extra);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

static void many_small_prints_become_few_events(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    for (unsigned i = 0; i < 100000; i++) {
        rt_stream(&t, "stdout", "line\n");
    }
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_true(kg_run_log_next_seq(t.log) < 20);
    rt_end(&t);
}

/* A run of all kinds of events. */
static void fill(run_test_t *t)
{
    assert_int_equal(kg_mapper_queued(t->mapper, 1), 0);
    assert_int_equal(kg_mapper_started(t->mapper, 7), 0);
    rt_stream(t, "stdout", "out\n");
    rt_message(t, "display_data",
               "{\"data\":{\"text/plain\":\"1\",\"text/"
               "html\":\"<b>\"},\"transient\":{\"display_id\":\"d\"}}");
    rt_message(t, "update_display_data",
               "{\"data\":{\"text/plain\":\"2\"},\"transient\":{\"display_id\":\"d\"}}");
    rt_stream(t, "stderr", "err\n");
    rt_message(t, "execute_result", "{\"data\":{\"text/plain\":\"'x'\"}}");
}

static void read_file(const run_test_t *t, const char *name, kg_buf_t *out)
{
    int fd = openat(t->dirfd, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    kg_buf_clear(out);
    assert_int_equal(kg_buf_reserve(out, (size_t)st.st_size), 0);
    assert_int_equal(read(fd, out->data, (size_t)st.st_size), st.st_size);
    out->len = (size_t)st.st_size;
    close(fd);
}

static void write_file(const run_test_t *t, const char *name, const char *data, size_t len)
{
    int fd = openat(t->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void recover_finished_log_reads_the_same(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t before = {0}, after = {0};
    char name[KG_RUN_NAME_MAX];
    rt_begin(&t);
    t.meta.key = "k\"ey";
    t.meta.code_hash = "abc";
    rt_open(&t);
    fill(&t);
    rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(&t, KG_RUN_OK);
    rt_stream(&t, "stdout", "late\n");
    rt_message(&t, "update_display_data",
               "{\"data\":{\"text/plain\":\"3\"},\"transient\":{\"display_id\":\"d\"}}");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_events(t.log, -1, true, 1000, &before);
    memcpy(name, t.log->name, sizeof name);
    rt_execution(t.log, 1000, &after);
    kg_buf_t execution = after;
    after = (kg_buf_t){0};
    rt_close(&t);
    kg_displays_clear(t.displays);
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, &err), 0);
    assert_true(kg_run_log_finished(t.log) && kg_run_log_late(t.log) && kg_run_log_started(t.log));
    assert_int_equal(kg_run_log_status(t.log), KG_RUN_OK);
    assert_string_equal(kg_run_log_meta(t.log)->key, "k\"ey");
    assert_string_equal(kg_run_log_meta(t.log)->sandbox, t.meta.sandbox);
    assert_int_equal(kg_run_log_meta(t.log)->retain_s, 300);
    assert_int_equal(kg_run_log_finished_wall_ns(t.log), UINT64_C(1700000000) * 1000000000U);
    rt_events(t.log, -1, true, 1000, &after);
    assert_string_equal(before.data, after.data);
    rt_execution(t.log, 1000, &after);
    assert_string_equal(execution.data, after.data);
    assert_int_equal(kg_run_log_finish_recovered(t.log, true), 0);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    rt_events(t.log, -1, true, 1000, &after);
    assert_string_equal(before.data, after.data);
    kg_buf_fini(&before);
    kg_buf_fini(&after);
    kg_buf_fini(&execution);
    rt_end(&t);
}

/* Its kernel lives: the variables are kept, and what it printed meanwhile is told to be missing. */
static void recover_withItsKernel_keptAndGoesOnLate(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    kg_mapper_t *mapper = NULL;
    kg_err_t err = {0};
    rt_begin(&t);
    t.meta.timeout_ms = 5000;
    rt_open(&t);
    assert_int_equal(kg_mapper_started(t.mapper, 7), 0);
    assert_int_equal(kg_mapper_text(t.mapper, false, kg_slice_cstr("up\n")), 0);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    char name[64];
    (void)snprintf(name, sizeof(name), "%s", t.log->name);
    rt_close(&t);
    kg_run_log_t *log = NULL;
    assert_int_equal(kg_run_log_recover(&t.log_opts, name, &log, &err), 0);
    assert_int_equal(kg_run_log_meta(log)->timeout_ms, 5000);
    assert_int_equal(kg_run_log_execution_count(log), 7);
    assert_int_equal(kg_mapper_create(&t.opts, log, t.displays, NULL, &mapper), 0);
    assert_int_equal(kg_mapper_text(mapper, false, kg_slice_cstr("between\n")), 0);
    assert_int_equal(kg_run_log_finish_recovered(log, false), 0);
    kg_mapper_ended(mapper);
    assert_int_equal(kg_mapper_text(mapper, false, kg_slice_cstr("late\n")), 0);
    assert_int_equal(kg_run_log_flush(log), 0);
    assert_true(kg_run_log_late(log));
    assert_int_equal(kg_run_log_status(log), KG_RUN_GATEWAY_RESTART);
    rt_events(log, -1, false, 100, &out);
    assert_non_null(strstr(out.data, "\"started\":true,\"state\":\"kept\""));
    assert_non_null(strstr(out.data, "until the gateway was back is lost"));
    assert_non_null(strstr(out.data, "between"));
    kg_mapper_destroy(&mapper);
    kg_run_log_unref(&log);
    kg_buf_fini(&out);
    rt_end(&t);
}

/* A log cut at every byte: what is whole stays, and the run gets its end. */
static void recover_torn_at_every_byte_keeps_whole_events(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t file = {0}, out = {0};
    rt_begin(&t);
    rt_open(&t);
    fill(&t);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    read_file(&t, t.log->name, &file);
    rt_close(&t);
    kg_displays_clear(t.displays);
    unsigned last = 0;
    for (size_t cut = 0; cut <= file.len; cut++) {
        write_file(&t, "torn.log", file.data, cut);
        kg_err_t err = {0};
        kg_run_log_t *log = NULL;
        int rc = kg_run_log_recover(&t.log_opts, "torn.log", &log, &err);
        if (rc < 0) {
            assert_int_equal(rc, -EBADMSG);
            assert_int_equal(last, 0);
            continue;
        }
        unsigned seq = (unsigned)kg_run_log_next_seq(log);
        assert_true(seq == last || seq == last + 1);
        last = seq;
        assert_false(kg_run_log_finished(log));
        assert_int_equal(kg_run_log_finish_recovered(log, true), 0);
        assert_int_equal(kg_run_log_flush(log), 0);
        assert_true(kg_run_log_finished(log));
        assert_int_equal(kg_run_log_status(log), KG_RUN_GATEWAY_RESTART);
        rt_events(log, -1, false, 100, &out);
        kg_json_value_t v;
        assert_int_equal(kg_json_check(kg_buf_slice(&out), KG_JSON_DEPTH_MAX, &v), 0);
        assert_non_null(strstr(out.data, "\"name\":\"GatewayRestart\""));
        assert_non_null(strstr(out.data, seq >= 2 ? "\"started\":true,\"state\":\"lost\""
                                                  : "\"started\":false"));
        assert_non_null(strstr(out.data, seq >= 2 ? "\"execution_count\":7,\"status\""
                                                  : "\"execution_count\":null,\"status\""));
        if (seq >= 3) {
            assert_non_null(strstr(out.data, "\"stdout\":\"out\\n\""));
        }
        kg_run_log_unref(&log);
    }
    assert_int_equal(last, 7);
    kg_buf_fini(&file);
    kg_buf_fini(&out);
    rt_end(&t);
}

static void recover_flipped_byte_cuts_there(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t file = {0};
    rt_begin(&t);
    rt_open(&t);
    fill(&t);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    read_file(&t, t.log->name, &file);
    rt_close(&t);
    kg_displays_clear(t.displays);
    for (size_t at = 0; at < file.len; at++) {
        file.data[at] = (char)(file.data[at] ^ 0x10);
        write_file(&t, "flip.log", file.data, file.len);
        file.data[at] = (char)(file.data[at] ^ 0x10);
        kg_run_log_t *log = NULL;
        kg_err_t err = {0};
        if (kg_run_log_recover(&t.log_opts, "flip.log", &log, &err) == 0) {
            assert_true(kg_run_log_next_seq(log) < 7);
            assert_true(kg_run_log_size(log) <= at);
            kg_run_log_unref(&log);
        } else {
            assert_int_not_equal(err.code, KG_ERR_NONE);
        }
    }
    kg_buf_fini(&file);
    rt_end(&t);
}

static void recover_what_is_no_log_is_refused(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_log_t *log = NULL;
    kg_err_t err = {0};
    rt_begin(&t);
    write_file(&t, "junk.log", "hello, this is no log at all, it is only some text of a few words",
               60);
    write_file(&t, "empty.log", "", 0);
    assert_int_equal(kg_run_log_recover(&t.log_opts, "junk.log", &log, &err), -EBADMSG);
    assert_int_equal(kg_run_log_recover(&t.log_opts, "empty.log", &log, &err), -EBADMSG);
    assert_int_equal(kg_run_log_recover(&t.log_opts, "none.log", &log, &err), -ENOENT);
    assert_int_equal(kg_run_log_recover(&t.log_opts, "../x.log", &log, &err), -EBADMSG);
    assert_int_equal(kg_run_log_recover(&t.log_opts, ".", &log, &err), -EISDIR);
    rt_end(&t);
}

/* The disk is full in the middle of a run: what was shown stays, the rest is counted, the run ends.
 */
static void full_disk_run_goes_on_and_says_so(void **state)
{
    (void)state;
    for (rlim_t room = 0; room < 200000; room += 7919) {
        run_test_t t;
        kg_buf_t out = {0}, execution = {0};
        struct rlimit old, low;
        rt_begin(&t);
        t.opts.limits.output_bytes = 1 << 30;
        rt_open(&t);
        assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        low = old;
        low.rlim_cur = room;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        char *text = malloc(40001);
        memset(text, 'x', 40000);
        text[40000] = '\0';
        int told = 0;
        for (unsigned i = 0; i < 6; i++) {
            rt_stream(&t, "stdout", i % 2 ? "small\n" : text);
            if (i != 2) {
                int rc = kg_run_log_flush(t.log);
                told += rc < 0 ? 1 : 0;
            }
        }
        rt_message(&t, "execute_result", "{\"data\":{\"text/plain\":\"2\"}}");
        rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
        const kg_run_end_t end = rt_end_of(KG_RUN_OK);
        assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
        told += kg_run_log_flush(t.log) < 0 ? 1 : 0;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_true(kg_run_log_finished(t.log));
        rt_events(t.log, -1, false, 5000, &out);
        rt_execution(t.log, 5000, &execution);
        kg_json_value_t v;
        assert_int_equal(kg_json_check(kg_buf_slice(&out), 20, &v), 0);
        assert_int_equal(kg_json_check(kg_buf_slice(&execution), 20, &v), 0);
        kg_json_value_t cut = kg_json_get(v, "truncated");
        kg_json_value_t stdout_v = kg_json_get(v, "stdout");
        if (kg_run_log_broken(t.log)) {
            assert_int_equal(told, 1);
            assert_non_null(strstr(out.data, "\"what\":\"events\""));
            assert_int_equal(cut.type, KG_JSON_OBJECT);
        } else {
            assert_int_equal(told, 0);
            assert_int_equal(cut.type, KG_JSON_NULL);
        }
        int64_t lost = 0;
        (void)kg_json_int(kg_json_get(cut, "stdout"), &lost);
        kg_buf_t decoded = {0};
        assert_int_equal(kg_json_decode_string(&decoded, stdout_v), 0);
        assert_int_equal(decoded.len + (size_t)lost, 3 * 40000 + 3 * 6);
        kg_buf_fini(&decoded);
        free(text);
        kg_buf_fini(&out);
        kg_buf_fini(&execution);
        rt_end(&t);
    }
}

static void no_directory_run_lives_in_memory(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    t.log_opts.dirfd = -1;
    rt_open(&t);
    rt_stream(&t, "stdout", "a");
    assert_int_equal(kg_run_log_flush(t.log), -EBADF);
    rt_stream(&t, "stdout", "b");
    rt_finish(&t, KG_RUN_TIMEOUT);
    rt_events(t.log, -1, false, 100, &out);
    assert_non_null(strstr(out.data, "\"truncated\":{\"events\":0,\"reason\":\"internal\"}"));
    assert_non_null(strstr(out.data, "\"stdout\":\"ab\""));
    kg_buf_fini(&out);
    rt_end(&t);
}

/* What comes after the disk was full is kept while it is little, and the Execution says why the
 * rest is not there. After the first thing that is lost, all is: there are no gaps. */
static void small_results_outlive_a_full_disk(void **state)
{
    (void)state;
    for (unsigned big = 0; big < 2; big++) {
        run_test_t t;
        kg_buf_t out = {0}, execution = {0};
        char *text = malloc(KG_LOG_WINDOW + 1);
        memset(text, 'x', KG_LOG_WINDOW);
        text[KG_LOG_WINDOW] = '\0';
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(kg_mapper_started(t.mapper, 1), 0);
        kg_log_break(t.log, -ENOSPC);
        assert_int_equal(kg_run_log_flush(t.log), -ENOSPC);
        rt_stream(&t, "stdout", "a");
        if (big) {
            rt_stream(&t, "stdout", text);
            rt_stream(&t, "stdout", "b");
        }
        rt_message(&t, "execute_result", "{\"data\":{\"text/plain\":\"2\"}}");
        rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
        const kg_run_end_t end = rt_end_of(KG_RUN_OK);
        assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        rt_events(t.log, -1, false, 5000, &out);
        rt_execution(t.log, 5000, &execution);
        assert_non_null(strstr(out.data, "\"what\":\"events\",\"reason\":\"storage_full\"}"));
        assert_non_null(strstr(execution.data, big ? "\"text\":\"a\"" : "\"text\":\"2\""));
        assert_non_null(strstr(execution.data, "\"stdout\":\"a\""));
        assert_non_null(strstr(execution.data,
                               big ? "\"truncated\":{\"stdout\":65537,\"events\":1,\"reason\":"
                                     "\"storage_full\"}"
                                   : "\"truncated\":{\"events\":0,\"reason\":\"storage_full\"}"));
        free(text);
        kg_buf_fini(&out);
        kg_buf_fini(&execution);
        rt_end(&t);
    }
}

/* The file is cut behind our back before its events were published: they are gone, the run still
 * ends. */
static void unreadable_file_run_still_ends(void **state)
{
    (void)state;
    run_test_t t;
    char text[50001];
    rt_begin(&t);
    rt_open(&t);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rt_stream(&t, "stdout", text);
    rt_stream(&t, "stdout", text);
    assert_true(t.log->fd >= 0);
    assert_int_equal(ftruncate(t.log->fd, 0), 0);
    const kg_run_end_t end = rt_end_of(KG_RUN_TIMEOUT);
    assert_int_equal(kg_mapper_finish(t.mapper, &end), 0);
    assert_int_equal(kg_run_log_flush(t.log), -EIO);
    assert_true(kg_run_log_finished(t.log) && kg_run_log_broken(t.log));
    kg_run_reader_t *r = NULL;
    assert_int_equal(kg_run_reader_create(t.log, -1, false, &r), -EIO);
    rt_end(&t);
}

static void remove_expires_readers_and_file(void **state)
{
    (void)state;
    run_test_t t;
    kg_run_reader_t *reader = NULL;
    kg_buf_t out = {0};
    kg_read_piece_t piece;
    unsigned news = 0;
    kg_run_watch_t watch = {.fn = on_news, .user = &news};
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", "abc");
    rt_finish(&t, KG_RUN_TIMEOUT);
    kg_run_log_watch(t.log, &watch);
    assert_int_equal(kg_run_reader_create(t.log, -1, false, &reader), 0);
    assert_int_equal(kg_run_reader_next(reader, &out, 5, &piece), KG_READ_PIECE);
    kg_run_log_remove(t.log);
    assert_int_equal(news, 1);
    assert_int_equal(rt_files(&t), 0);
    assert_int_equal(kg_run_reader_next(reader, &out, 5, &piece), KG_READ_EXPIRED);
    rt_stream(&t, "stdout", "late");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    kg_run_reader_destroy(&reader);
    assert_int_equal(kg_run_reader_execution(t.log, &reader), -ESTALE);
    assert_int_equal(kg_run_reader_create(t.log, -1, false, &reader), 0);
    assert_int_equal(kg_run_reader_next(reader, &out, 5, &piece), KG_READ_EXPIRED);
    kg_run_reader_destroy(&reader);
    kg_run_log_unwatch(t.log, &watch);
    kg_buf_fini(&out);
    rt_end(&t);
}

static void finished_log_holds_no_window_nor_descriptor(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    rt_begin(&t);
    rt_open(&t);
    rt_stream(&t, "stdout", "abc");
    rt_finish(&t, KG_RUN_TIMEOUT);
    assert_int_equal(t.log->fd, -1);
    assert_null(t.log->body->win.data);
    rt_events(t.log, -1, false, 1000, &out);
    assert_int_equal(t.log->fd, -1);
    rt_stream(&t, "stdout", "late");
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(t.log->fd, -1);
    rt_events(t.log, -1, true, 1000, &out);
    assert_non_null(strstr(out.data, "\"text\":\"late\",\"late\":true}"));
    kg_buf_fini(&out);
    rt_end(&t);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_strange_run_id_is_refused),
        cmocka_unit_test(create_alone_makes_no_file),
        cmocka_unit_test(flush_publishes_and_calls_watchers),
        cmocka_unit_test(only_a_little_may_wait),
        cmocka_unit_test(a_start_alone_is_told_from_output),
        cmocka_unit_test(questions_and_the_end_do_not_wait),
        cmocka_unit_test(a_start_is_written_before_it_is_shown),
        cmocka_unit_test(saved_isThereAfterAKill_andNotShown),
        cmocka_unit_test(watchers_may_unwatch_all),
        cmocka_unit_test(join_past_an_event_begins_the_next),
        cmocka_unit_test(many_small_prints_become_few_events),
        cmocka_unit_test(recover_withItsKernel_keptAndGoesOnLate),
        cmocka_unit_test(recover_finished_log_reads_the_same),
        cmocka_unit_test(recover_torn_at_every_byte_keeps_whole_events),
        cmocka_unit_test(recover_flipped_byte_cuts_there),
        cmocka_unit_test(recover_what_is_no_log_is_refused),
        cmocka_unit_test(full_disk_run_goes_on_and_says_so),
        cmocka_unit_test(no_directory_run_lives_in_memory),
        cmocka_unit_test(small_results_outlive_a_full_disk),
        cmocka_unit_test(unreadable_file_run_still_ends),
        cmocka_unit_test(remove_expires_readers_and_file),
        cmocka_unit_test(finished_log_holds_no_window_nor_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
