/* Texts of many MiB that a worker writes before it is known whether they may be: what is taken in
 * reads as if it had been appended, what is not leaves nothing, and a crash at any time leaves the
 * log as it was last seen. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/run/mapper_int.h"
#include "run_util.h"

#define MIB ((size_t)1 << 20)
#define BIG (5 * MIB + 12345)

/* A text of about len bytes as a message: it has escapes and characters of several bytes in it. */
static kg_mapped_t *prepare(run_test_t *t, const char *name, size_t len)
{
    static const char *const some[] = {
        "a", "bcd", "\\n", "\\u0001", "\xC3\xA4", "\\\"", "\xF0\x9F\x90\x9F", "z"};
    kg_buf_t block = {0};
    kg_buf_t content = {0};
    kg_jmsg_t msg = {.msg_type = "stream"};
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(kg_buf_append_cstr(&block, some[i * i % 31 % KG_ARRAY_LEN(some)]), 0);
    }
    assert_int_equal(kg_buf_printf(&content, "{\"name\":\"%s\",\"text\":\"", name), 0);
    for (size_t i = 0; i < len / block.len + 1; i++) {
        assert_int_equal(kg_buf_append_slice(&content, kg_buf_slice(&block)), 0);
    }
    kg_buf_fini(&block);
    assert_int_equal(kg_buf_append_cstr(&content, "\"}"), 0);
    assert_int_equal(kg_json_check(kg_buf_slice(&content), 8, &msg.content), 0);
    kg_mapped_t *mapped = kg_mapper_prepare(&t->opts, &msg);
    assert_non_null(mapped);
    kg_buf_fini(&content);
    return mapped;
}

static void finish_apply(run_test_t *t, kg_mapped_t **mapped)
{
    int rc;
    while ((rc = kg_mapper_apply(t->mapper, *mapped)) == 1) {
    }
    assert_int_equal(rc, 0);
    kg_mapped_destroy(mapped);
}

static uint64_t file_size(const run_test_t *t)
{
    struct stat st;
    assert_int_equal(fstatat(t->dirfd, t->log->name, &st, 0), 0);
    return (uint64_t)st.st_size;
}

static void finish(run_test_t *t)
{
    rt_message(t, "execute_reply", "{\"status\":\"ok\"}");
    rt_finish(t, KG_RUN_OK);
}

static void begin(run_test_t *t)
{
    rt_begin(t);
    t->opts.limits.output_bytes = 64 * MIB;
    rt_open(t);
    rt_stream(t, "stdout", "before");
}

/* What the run's log must read as, from one that was written without a worker. */
typedef void steps_fn(run_test_t *t, bool ahead);

static void execution_of(steps_fn *steps, bool ahead, bool recovered, kg_buf_t *out)
{
    run_test_t t;
    char name[KG_RUN_NAME_MAX];
    begin(&t);
    steps(&t, ahead);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_int_equal(file_size(&t), kg_run_log_size(t.log));
    if (recovered) {
        uint64_t events = kg_run_log_next_seq(t.log);
        memcpy(name, t.log->name, sizeof name);
        rt_close(&t);
        assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, NULL), 0);
        assert_int_equal(kg_run_log_next_seq(t.log), events);
    }
    rt_execution(t.log, MIB, out);
    rt_end(&t);
}

static void assert_the_same(steps_fn *steps)
{
    kg_buf_t plain = {0};
    execution_of(steps, false, false, &plain);
    assert_true(plain.len > 1000);
    for (unsigned recovered = 0; recovered < 2; recovered++) {
        kg_buf_t out = {0};
        execution_of(steps, true, recovered, &out);
        assert_int_equal(out.len, plain.len);
        assert_memory_equal(out.data, plain.data, out.len);
        kg_buf_fini(&out);
    }
    kg_buf_fini(&plain);
}

/* One big text; between: what comes while the worker is at it. */
static void
big_text(run_test_t *t, bool ahead, const char *name, size_t len, void (*between)(run_test_t *t))
{
    kg_ahead_t *a = ahead ? kg_mapper_ahead(t->mapper) : NULL;
    kg_mapped_t *mapped = prepare(t, name, len);
    assert_true(a || !ahead);
    if (a) {
        kg_ahead_write(a, mapped);
        assert_true(file_size(t) > kg_run_log_size(t->log));
    }
    if (between) {
        between(t);
    }
    kg_ahead_release(&a);
    finish_apply(t, &mapped);
    assert_null(t->log->body->ahead);
}

static void steps_one(run_test_t *t, bool ahead)
{
    big_text(t, ahead, "stdout", BIG, NULL);
    rt_stream(t, "stdout", "behind it");
    finish(t);
}

static void steps_two_streams(run_test_t *t, bool ahead)
{
    big_text(t, ahead, "stdout", BIG, NULL);
    rt_stream(t, "stderr", "small");
    big_text(t, ahead, "stderr", BIG, NULL);
    big_text(t, ahead, "stdout", 17, NULL);
    finish(t);
}

static void steps_late(run_test_t *t, bool ahead)
{
    finish(t);
    rt_message(t, "stream", "{\"name\":\"stdout\",\"text\":\"late\"}");
    big_text(t, ahead, "stdout", BIG, NULL);
    rt_message(t, "stream", "{\"name\":\"stdout\",\"text\":\"later\"}");
}

static void text_reads_as_if_appended(void **state)
{
    (void)state;
    assert_the_same(steps_one);
    assert_the_same(steps_two_streams);
    assert_the_same(steps_late);
}

/* --- limits --------------------------------------------------------------------------------------
 */

static void steps_output_limit(run_test_t *t, bool ahead)
{
    t->opts.limits.output_bytes = 2 * MIB + 3;
    big_text(t, ahead, "stdout", BIG, NULL);
    big_text(t, ahead, "stderr", MIB, NULL);
    finish(t);
    assert_true(t->log->body->account.said[KG_CUT_STDOUT] &&
                !t->log->body->account.said[KG_CUT_STDERR]);
    assert_true(t->log->body->account.kept[KG_CUT_STDOUT] <=
                t->opts.limits.output_bytes + KG_RUN_TAIL_MAX);
}

static void steps_event_limit(run_test_t *t, bool ahead)
{
    t->opts.limits.events = 7;
    big_text(t, ahead, "stdout", MIB, NULL);
    finish(t);
    assert_true(t->log->body->account.said[KG_CUT_EVENTS]);
}

static void limits_hold(void **state)
{
    (void)state;
    assert_the_same(steps_output_limit);
    assert_the_same(steps_event_limit);
}

/* --- what comes in between -----------------------------------------------------------------------
 */

static void print_between(run_test_t *t)
{
    assert_int_equal(kg_mapper_text(t->mapper, false, kg_slice_cstr("between")), 0);
}

static void flushed_between(run_test_t *t)
{
    print_between(t);
    assert_int_equal(kg_run_log_flush(t->log), 0);
    assert_int_equal(file_size(t), kg_run_log_size(t->log)); /* what was written ahead is gone */
}

static void flush_between(run_test_t *t)
{
    assert_int_equal(kg_run_log_flush(t->log), 0);
    assert_true(file_size(t) > kg_run_log_size(t->log)); /* nothing was added: it stays */
}

static void steps_print_between(run_test_t *t, bool ahead)
{
    big_text(t, ahead, "stdout", BIG, print_between);
    big_text(t, ahead, "stdout", BIG, ahead ? flushed_between : print_between);
    big_text(t, ahead, "stdout", BIG, ahead ? flush_between : NULL);
    finish(t);
}

static void steps_end_between(run_test_t *t, bool ahead)
{
    big_text(t, ahead, "stdout", BIG, finish);
    finish_apply(t, &(kg_mapped_t *){prepare(t, "stdout", 9)});
}

static void other_events_in_between_come_first(void **state)
{
    (void)state;
    assert_the_same(steps_print_between);
    assert_the_same(steps_end_between);
}

/* Some of it was taken in when something else comes. */
static void steps_half_taken(run_test_t *t, bool ahead)
{
    kg_ahead_t *a = ahead ? kg_mapper_ahead(t->mapper) : NULL;
    kg_mapped_t *mapped = prepare(t, "stdout", 20 * MIB);
    if (a) {
        kg_ahead_write(a, mapped);
        kg_ahead_release(&a);
    }
    assert_int_equal(kg_mapper_apply(t->mapper, mapped), 1);
    uint64_t seq = t->log->body->next_seq;
    assert_true(seq > 16);
    if (ahead) {
        assert_true(t->log->body->ahead != NULL);
        assert_int_equal(kg_mapper_text(t->mapper, true, kg_slice_cstr("between")), 0);
        assert_null(t->log->body->ahead);
    } else {
        assert_int_equal(kg_mapper_text(t->mapper, true, kg_slice_cstr("between")), 0);
    }
    finish_apply(t, &mapped);
    finish(t);
}

static void half_taken_then_something_else(void **state)
{
    (void)state;
    kg_buf_t plain = {0};
    kg_buf_t ahead = {0};
    execution_of(steps_half_taken, false, false, &plain);
    execution_of(steps_half_taken, true, true, &ahead);
    json_t *a = json_loadb(plain.data, plain.len, JSON_ALLOW_NUL, NULL);
    json_t *b = json_loadb(ahead.data, ahead.len, JSON_ALLOW_NUL, NULL);
    static const char *const same[] = {"stdout", "stderr", "truncated", "status"};
    for (size_t i = 0; i < KG_ARRAY_LEN(same); i++) { /* `output` has stderr elsewhere */
        assert_true(json_equal(json_object_get(a, same[i]), json_object_get(b, same[i])));
    }
    json_decref(a);
    json_decref(b);
    kg_buf_fini(&plain);
    kg_buf_fini(&ahead);
}

/* --- what is not believed ------------------------------------------------------------------------
 */

/* As the worker does it with a bad signature: what was prepared is freed, then the place. */
static void bad_text_leaves_nothing(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t out = {0};
    begin(&t);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    uint64_t size = file_size(&t);
    uint64_t seq = kg_run_log_next_seq(t.log);
    kg_ahead_t *a = kg_mapper_ahead(t.mapper);
    kg_mapped_t *mapped = prepare(&t, "stdout", BIG);
    kg_ahead_write(a, mapped);
    assert_true(file_size(&t) > size + BIG);
    assert_int_equal(kg_run_log_next_seq(t.log), seq); /* nobody sees it */
    assert_int_equal(kg_run_log_size(t.log), size);
    kg_mapped_destroy(&mapped);
    kg_ahead_release(&a);
    assert_int_equal(file_size(&t), size); /* not on the disk either */
    assert_null(t.log->body->ahead);
    finish(&t);
    rt_events(t.log, -1, false, MIB, &out);
    assert_true(out.len < 4096);
    assert_non_null(strstr(out.data, "\"stdout\":\"before\""));
    kg_buf_fini(&out);
    rt_end(&t);
}

/* A process that is killed: another one finds the file as it is. */
static void assert_recovers(run_test_t *t, uint64_t size, uint64_t events)
{
    kg_run_log_t *found = NULL;
    assert_true(file_size(t) > size);
    assert_int_equal(kg_run_log_recover(&t->log_opts, t->log->name, &found, NULL), 0);
    assert_int_equal(kg_run_log_next_seq(found), events);
    assert_int_equal(kg_run_log_size(found), size);
    assert_int_equal(file_size(t), size);
    kg_run_log_unref(&found);
}

static void crash_before_it_is_believed(void **state)
{
    (void)state;
    run_test_t t;
    begin(&t);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    kg_ahead_t *a = kg_mapper_ahead(t.mapper);
    kg_mapped_t *mapped = prepare(&t, "stdout", BIG);
    kg_ahead_write(a, mapped);
    assert_recovers(&t, kg_run_log_size(t.log), kg_run_log_next_seq(t.log));
    kg_mapped_destroy(&mapped);
    kg_ahead_release(&a);
    rt_end(&t);
}

static void crash_when_half_of_it_was_taken(void **state)
{
    (void)state;
    run_test_t t;
    begin(&t);
    kg_ahead_t *a = kg_mapper_ahead(t.mapper);
    kg_mapped_t *mapped = prepare(&t, "stdout", 20 * MIB);
    kg_ahead_write(a, mapped);
    kg_ahead_release(&a);
    assert_int_equal(kg_mapper_apply(t.mapper, mapped), 1);
    assert_int_equal(kg_run_log_flush(t.log), 0);
    assert_true(kg_run_log_size(t.log) >= KG_RUN_TAKE_BYTES);
    assert_recovers(&t, kg_run_log_size(t.log), kg_run_log_next_seq(t.log));
    kg_mapped_destroy(&mapped);
    rt_end(&t);
}

/* --- failures ------------------------------------------------------------------------------------
 */

/* The disk is full at different places; what is lost is counted. */
static void full_disk_is_met_by_the_append(void **state)
{
    (void)state;
    struct rlimit old;
    (void)signal(SIGXFSZ, SIG_IGN); // NOLINT(cert-err33-c)
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (rlim_t room = 1000; room < 4 * MIB; room += 777777) {
        run_test_t t;
        kg_buf_t out = {0};
        begin(&t);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        kg_ahead_t *a = kg_mapper_ahead(t.mapper);
        kg_mapped_t *mapped = prepare(&t, "stdout", BIG);
        size_t all = kg_text_units(mapped->text.data, mapped->text.len) + strlen("before");
        const struct rlimit low = {file_size(&t) + room, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        kg_ahead_write(a, mapped);
        finish_apply(&t, &mapped);
        kg_ahead_release(&a);
        assert_int_equal(kg_run_log_flush(t.log), -EFBIG);
        assert_int_equal(file_size(&t), t.log->body->written);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        finish(&t);
        assert_true(kg_run_log_broken(t.log));
        const uint64_t *kept = t.log->body->account.kept;
        uint64_t lost = t.log->body->account.cut[KG_CUT_STDOUT];
        rt_execution(t.log, MIB, &out);
        json_t *x = json_loadb(out.data, out.len, JSON_ALLOW_NUL, NULL);
        assert_non_null(x);
        assert_int_equal(json_string_length(json_object_get(x, "stdout")) + lost, all);
        assert_true(kept[KG_CUT_STDOUT] >= all - lost);
        json_decref(x);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

static void log_that_goes_takes_it_along(void **state)
{
    (void)state;
    run_test_t t;
    struct stat st;
    begin(&t);
    kg_run_spares_t *spares = NULL;
    assert_int_equal(kg_run_spares_create(t.dirfd, 2, &spares), 0);
    rt_close(&t);
    t.log_opts.spares = spares;
    rt_open(&t);
    kg_ahead_t *a = kg_mapper_ahead(t.mapper);
    kg_mapped_t *mapped = prepare(&t, "stdout", BIG);
    kg_ahead_write(a, mapped);
    char name[KG_RUN_NAME_MAX];
    memcpy(name, t.log->name, sizeof name);
    kg_run_log_remove(t.log);
    assert_int_equal(fstatat(t.dirfd, name, &st, 0), 0);
    assert_true(st.st_size < 4096); /* the meta record at most */
    kg_mapped_t *more = prepare(&t, "stdout", BIG);
    kg_ahead_write(a, more); /* the worker was not done */
    assert_int_equal(fstatat(t.dirfd, name, &st, 0), 0);
    assert_true(st.st_size < 4096);
    kg_mapped_destroy(&more);
    kg_ahead_release(&a);
    finish_apply(&t, &mapped);
    assert_null(kg_mapper_ahead(t.mapper)); /* expired */
    rt_close(&t);
    kg_run_spares_destroy(&spares);
    rt_end(&t);
}

static void one_at_a_time(void **state)
{
    (void)state;
    run_test_t t;
    begin(&t);
    kg_ahead_t *a = kg_mapper_ahead(t.mapper);
    assert_non_null(a);
    assert_null(kg_mapper_ahead(t.mapper));
    kg_ahead_release(&a);
    a = kg_mapper_ahead(t.mapper);
    assert_non_null(a);
    kg_ahead_release(&a);
    finish(&t);
    assert_int_equal(t.log->fd, -1); /* nobody needs it */
    a = kg_mapper_ahead(t.mapper);
    kg_ahead_release(&a);
    assert_int_equal(t.log->fd, -1);
    rt_end(&t);
}

/* --- a worker that is at it ----------------------------------------------------------------------
 */

typedef struct job {
    kg_ahead_t *ahead;
    kg_mapped_t *mapped;
} job_t;

static void *work(void *user)
{
    const job_t *job = user;
    kg_ahead_write(job->ahead, job->mapped);
    return NULL;
}

/* Whatever the worker has done by then, the print comes first and all of the text behind it. */
static void append_while_the_worker_writes(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        run_test_t t;
        pthread_t thread;
        kg_buf_t out = {0};
        char name[KG_RUN_NAME_MAX];
        begin(&t);
        job_t job = {.ahead = kg_mapper_ahead(t.mapper), .mapped = prepare(&t, "stdout", BIG)};
        size_t all = kg_text_units(job.mapped->text.data, job.mapped->text.len);
        uint64_t size = file_size(&t);
        assert_int_equal(pthread_create(&thread, NULL, work, &job), 0);
        while (round > 0 && file_size(&t) < size + round * (BIG / 8)) {
            (void)sched_yield();
        }
        assert_int_equal(kg_mapper_text(t.mapper, false, kg_slice_cstr("between")), 0);
        assert_int_equal(kg_run_log_flush(t.log), 0);
        assert_int_equal(file_size(&t), kg_run_log_size(t.log));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(file_size(&t), kg_run_log_size(t.log));
        finish_apply(&t, &job.mapped);
        kg_ahead_release(&job.ahead);
        finish(&t);
        memcpy(name, t.log->name, sizeof name);
        rt_close(&t);
        assert_int_equal(kg_run_log_recover(&t.log_opts, name, &t.log, NULL), 0);
        assert_true(kg_run_log_finished(t.log));
        rt_execution(t.log, MIB, &out);
        json_t *x = json_loadb(out.data, out.len, JSON_ALLOW_NUL, NULL);
        json_t *text = json_object_get(x, "stdout");
        assert_int_equal(json_string_length(text), all + strlen("beforebetween"));
        assert_memory_equal(json_string_value(text), "beforebetween", strlen("beforebetween"));
        json_decref(x);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_reads_as_if_appended),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(other_events_in_between_come_first),
        cmocka_unit_test(half_taken_then_something_else),
        cmocka_unit_test(bad_text_leaves_nothing),
        cmocka_unit_test(crash_before_it_is_believed),
        cmocka_unit_test(crash_when_half_of_it_was_taken),
        cmocka_unit_test(full_disk_is_met_by_the_append),
        cmocka_unit_test(log_that_goes_takes_it_along),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(append_while_the_worker_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
