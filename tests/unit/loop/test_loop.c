/* The loop, timers, hooks, descriptors, signals and worker queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/loop/loop.h"

typedef struct fixture {
    kg_loop_t *loop;
    kg_timer_t *timer;
    kg_fdwatch_t *watch;
    kg_workq_t *queue;
    char trace[256];
    int count;
    uint64_t at_ns;
    pthread_t loop_thread;
    pthread_t other_thread;
    int fds[2];
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(kg_loop_create(&f->loop), 0);
    f->loop_thread = pthread_self();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    kg_loop_destroy(&f->loop);
    assert_null(f->loop);
    free(f);
    return 0;
}

static void note(fixture_t *f, const char *what)
{
    strncat(f->trace, what, sizeof(f->trace) - strlen(f->trace) - 1);
}

static void stop(void *user)
{
    fixture_t *f = user;
    note(f, "stop ");
    kg_loop_stop(f->loop);
}

static void note_b(void *user)
{
    note(user, "b ");
}

static void note_a(void *user)
{
    fixture_t *f = user;
    note(f, "a ");
    assert_int_equal(kg_loop_later(f->loop, stop, f), 0);
    note(f, "a' "); /* never from inside the caller */
}

static void later_runs_in_order_and_not_inside(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(kg_loop_later(f->loop, note_a, f), 0);
    assert_int_equal(kg_loop_later(f->loop, note_b, f), 0);
    assert_string_equal(f->trace, "");
    kg_loop_run(f->loop);
    assert_string_equal(f->trace, "a a' b stop ");
}

static void chain(void *user)
{
    fixture_t *f = user;
    if (++f->count == 100000) {
        kg_loop_stop(f->loop);
        return;
    }
    kg_loop_later(f->loop, chain, f);
}

static void later_keeps_the_loop_awake(void **state)
{
    fixture_t *f = *state;
    uint64_t begin = kg_now_ns();
    kg_loop_later(f->loop, chain, f);
    kg_loop_run(f->loop);
    assert_int_equal(f->count, 100000);
    assert_true(kg_now_ns() - begin < 20 * KG_NS_PER_S);
}

static void tick(void *user)
{
    fixture_t *f = user;
    f->at_ns = kg_now_ns();
    if (++f->count == 3) {
        kg_timer_close(&f->timer);
        kg_loop_stop(f->loop);
    }
}

static void timer_repeats_and_closes_inside_its_callback(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(kg_timer_create(f->loop, tick, f, &f->timer), 0);
    uint64_t begin = kg_now_ns();
    kg_timer_start(f->timer, 20 * KG_NS_PER_MS, 10 * KG_NS_PER_MS);
    kg_loop_run(f->loop);
    assert_int_equal(f->count, 3);
    assert_null(f->timer);
    assert_true(f->at_ns - begin >= 40 * KG_NS_PER_MS);
}

static void once(void *user)
{
    fixture_t *f = user;
    f->at_ns = kg_now_ns();
    kg_loop_stop(f->loop);
}

static void timer_is_never_early(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(kg_timer_create(f->loop, once, f, &f->timer), 0);
    for (int i = 0; i < 20; i++) {
        uint64_t begin = kg_now_ns();
        kg_timer_start(f->timer, 2 * KG_NS_PER_MS + (uint64_t)i * 77777, 0);
        kg_loop_run(f->loop);
        assert_true(f->at_ns - begin >= 2 * KG_NS_PER_MS + (uint64_t)i * 77777);
    }
    kg_timer_close(&f->timer);
}

static void never(void *user)
{
    (void)user;
    fail();
}

/* Frozen it runs nothing, and keeps what was left; what is asked meanwhile holds when it thaws. */
static void timer_frozen_keeps_its_time(void **state)
{
    fixture_t *f = *state;
    kg_timer_t *frozen = NULL;
    kg_timer_t *stopped = NULL;
    kg_timer_t *started = NULL;
    assert_int_equal(kg_timer_create(f->loop, never, f, &frozen), 0);
    assert_int_equal(kg_timer_create(f->loop, never, f, &stopped), 0);
    assert_int_equal(kg_timer_create(f->loop, never, f, &started), 0);
    kg_timer_start(frozen, 5 * KG_NS_PER_MS, 0);
    kg_timer_freeze(frozen);
    kg_timer_freeze(frozen);
    kg_timer_start(stopped, 5 * KG_NS_PER_MS, 0);
    kg_timer_freeze(stopped);
    kg_timer_stop(stopped);
    kg_timer_freeze(started);
    kg_timer_start(started, 1, 0);
    assert_int_equal(kg_timer_create(f->loop, once, f, &f->timer), 0);
    kg_timer_start(f->timer, 30 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    kg_timer_thaw(stopped); /* was stopped: runs nothing */
    kg_timer_close(&frozen);
    kg_timer_close(&started);
    kg_timer_start(f->timer, 30 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    kg_timer_close(&stopped);
    /* Thawed, it fires; and its repeat is still there. */
    kg_timer_close(&f->timer);
    f->count = 0;
    assert_int_equal(kg_timer_create(f->loop, tick, f, &f->timer), 0);
    kg_timer_start(f->timer, 5 * KG_NS_PER_MS, 5 * KG_NS_PER_MS);
    kg_timer_freeze(f->timer);
    kg_timer_thaw(f->timer);
    kg_timer_thaw(f->timer);
    kg_loop_run(f->loop);
    assert_null(f->timer);
}

static void timer_closed_never_fires(void **state)
{
    fixture_t *f = *state;
    kg_timer_t *timer = NULL;
    assert_int_equal(kg_timer_create(f->loop, never, f, &timer), 0);
    kg_timer_start(timer, 1, 0);
    kg_timer_close(&timer);
    assert_int_equal(kg_timer_create(f->loop, never, f, &timer), 0);
    kg_timer_start(timer, 1, 0);
    kg_timer_stop(timer);
    assert_int_equal(kg_timer_create(f->loop, once, f, &f->timer), 0);
    kg_timer_start(f->timer, 10 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    kg_timer_close(&timer);
    kg_timer_close(&f->timer);
    kg_timer_close(&f->timer); /* NULL is fine */
}

static void count_up(void *user)
{
    (*(int *)user)++;
}

static void hooks_run_around_the_sleep(void **state)
{
    fixture_t *f = *state;
    int before = 0;
    int after = 0;
    kg_hook_t a = {.before_sleep = count_up, .user = &before};
    kg_hook_t b = {.after_wake = count_up, .user = &after};
    kg_loop_hook_add(f->loop, &a);
    kg_loop_hook_add(f->loop, &b);
    assert_int_equal(kg_timer_create(f->loop, once, f, &f->timer), 0);
    kg_timer_start(f->timer, 5 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    assert_true(before >= 1);
    assert_true(after >= 1);
    kg_loop_hook_remove(f->loop, &a);
    kg_loop_hook_remove(f->loop, &b);
    int was = before;
    kg_timer_start(f->timer, 5 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    assert_int_equal(before, was);
    kg_timer_close(&f->timer);
}

static kg_hook_t *second_hook;

static void remove_both(void *user)
{
    fixture_t *f = user;
    f->count++;
    kg_loop_hook_remove(f->loop, second_hook);
    kg_loop_stop(f->loop);
}

static void hook_removed_by_another_does_not_run(void **state)
{
    fixture_t *f = *state;
    kg_hook_t second = {.before_sleep = never, .user = f};
    kg_hook_t first = {.before_sleep = remove_both, .user = f};
    second_hook = &second;
    kg_loop_hook_add(f->loop, &first); /* added first, runs first */
    kg_loop_hook_add(f->loop, &second);
    kg_loop_run(f->loop);
    assert_int_equal(f->count, 1);
    kg_loop_hook_remove(f->loop, &first);
}

static void on_fd(void *user, bool readable, bool writable)
{
    fixture_t *f = user;
    assert_true(readable);
    assert_false(writable);
    char c;
    assert_int_equal(read(f->fds[0], &c, 1), 1);
    kg_fdwatch_close(&f->watch);
    kg_loop_stop(f->loop);
}

static void fdwatch_reports_and_closes_inside(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(pipe(f->fds), 0);
    assert_int_equal(kg_fdwatch_create(f->loop, f->fds[0], on_fd, f, &f->watch), 0);
    assert_int_equal(kg_fdwatch_set(f->watch, true, false), 0);
    assert_int_equal(write(f->fds[1], "x", 1), 1);
    kg_loop_run(f->loop);
    assert_null(f->watch);
    close(f->fds[0]);
    close(f->fds[1]);
}

static void on_usr1(void *user, int signum)
{
    fixture_t *f = user;
    f->count = signum;
    kg_loop_stop(f->loop);
}

static void signal_is_delivered(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(kg_loop_signal(f->loop, SIGUSR1, on_usr1, f), 0);
    raise(SIGUSR1);
    kg_loop_run(f->loop);
    assert_int_equal(f->count, SIGUSR1);
}

typedef struct job {
    fixture_t *f;
    int number;
} job_t;

static void job_work(void *user)
{
    job_t *job = user;
    job->f->other_thread = pthread_self();
    assert_int_equal(job->f->at_ns,
                     (uint64_t)job->number); /* jobs of one queue follow each other */
    job->f->at_ns++;
}

static void job_done(void *user)
{
    job_t *job = user;
    fixture_t *f = job->f;
    assert_true(pthread_equal(pthread_self(), f->loop_thread));
    assert_int_equal(f->count, job->number);
    if (++f->count == 200) {
        kg_workq_close(&f->queue);
        kg_loop_stop(f->loop);
    }
}

static void workq_keeps_order_and_comes_home(void **state)
{
    fixture_t *f = *state;
    job_t jobs[200];
    assert_int_equal(kg_workq_create(f->loop, &f->queue), 0);
    assert_true(kg_workq_idle(f->queue));
    for (int i = 0; i < 200; i++) {
        jobs[i] = (job_t){f, i};
        assert_int_equal(kg_workq_submit(f->queue, job_work, job_done, &jobs[i]), 0);
    }
    assert_false(kg_workq_idle(f->queue));
    kg_loop_run(f->loop);
    assert_int_equal(f->count, 200);
    assert_false(pthread_equal(f->other_thread, f->loop_thread));
    assert_null(f->queue);
}

static void slow_work(void *user)
{
    (void)user;
    usleep(30000);
}

static void workq_closed_with_jobs_still_runs_them(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(kg_workq_create(f->loop, &f->queue), 0);
    int done = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kg_workq_submit(f->queue, slow_work, count_up, &done), 0);
    }
    kg_workq_close(&f->queue);
    kg_loop_destroy(&f->loop); /* waits for them */
    assert_int_equal(done, 3);
}

static void stop_before_run_returns_at_once(void **state)
{
    fixture_t *f = *state;
    kg_loop_stop(f->loop);
    assert_int_equal(kg_loop_run(f->loop), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(later_runs_in_order_and_not_inside),
        T(later_keeps_the_loop_awake),
        T(timer_repeats_and_closes_inside_its_callback),
        T(timer_is_never_early),
        T(timer_closed_never_fires),
        T(timer_frozen_keeps_its_time),
        T(hooks_run_around_the_sleep),
        T(hook_removed_by_another_does_not_run),
        T(fdwatch_reports_and_closes_inside),
        T(signal_is_delivered),
        T(workq_keeps_order_and_comes_home),
        T(workq_closed_with_jobs_still_runs_them),
        T(stop_before_run_returns_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
