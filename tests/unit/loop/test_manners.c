/* Whether the loop's thread gives way: what PSI's file says, and what the thread's policy becomes.
 * Its own alone: not that of libzmq's threads, nor of the workers. */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/loop/loop.h"
#include "gateway/loop/manners.h"
#include "gateway/loop/zchan.h"

static void reads_the_pressure(void **state)
{
    (void)state;
    uint64_t total = 0;
    assert_true(kg_manners_parse("some avg10=0.00 avg60=1.25 avg300=0.50 total=123456\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
                                 &total));
    assert_int_equal(total, 123456);
    const char *const bad[] = {"",
                               "some",
                               "some total=",
                               "some avg10=0.00 total=x",
                               "full total=5",
                               "some avg10=0.00 total=99999999999999999999999"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_false(kg_manners_parse(bad[i], &total));
    }
}

static void decides_at_the_limits(void **state)
{
    (void)state;
    const uint64_t second = KG_NS_PER_S;
    const uint64_t thousandth = 1000; /* us of a second */
    assert_true(kg_manners_next(false, 0, second));
    assert_true(kg_manners_next(false, (KG_MANNERS_FREE - 1) * thousandth, second));
    assert_false(kg_manners_next(false, KG_MANNERS_FREE * thousandth, second));
    assert_true(kg_manners_next(true, KG_MANNERS_FREE * thousandth, second));
    assert_true(kg_manners_next(true, KG_MANNERS_TAKEN * thousandth, second));
    assert_false(kg_manners_next(true, (KG_MANNERS_TAKEN + 1) * thousandth, second));
    assert_false(kg_manners_next(true, UINT32_MAX, 1)); /* a clock that stood still */
    assert_true(kg_manners_next(true, 5, 0));
}

static void put_total(const char *path, unsigned long total)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%lu\n", total) > 0);
    assert_int_equal(fclose(file), 0);
}

static void the_thread_follows(void **state)
{
    (void)state;
    char path[] = "/tmp/sandal-manners-XXXXXX";
    KG_AUTO_CLOSE int fd = mkstemp(path);
    assert_true(fd >= 0);
    kg_manners_t manners;
    put_total(path, 1000);
    kg_manners_init(&manners, path);
    kg_manners_look(&manners, KG_NS_PER_S); /* the first look compares with nothing */
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    put_total(path, 2000);
    kg_manners_look(&manners, 2 * KG_NS_PER_S);
    assert_int_equal(sched_getscheduler(0), SCHED_BATCH);
    put_total(path, 1002000);
    kg_manners_look(&manners, 3 * KG_NS_PER_S);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    put_total(path, 1002000);
    kg_manners_look(&manners, 4 * KG_NS_PER_S);
    assert_int_equal(sched_getscheduler(0), SCHED_BATCH);
    kg_manners_fini(&manners);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    assert_int_equal(unlink(path), 0);
}

static bool is_called(pid_t thread, const char *name)
{
    char path[64];
    char text[32] = "";
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)thread);
    FILE *file = fopen(path, "re");
    bool same = file && fgets(text, sizeof(text), file) && strncmp(text, name, strlen(name)) == 0;
    if (file) {
        (void)fclose(file);
    }
    return same;
}

/* Threads of this process whose names begin so, and of those how many have the usual policy. */
static unsigned count_threads(const char *name, unsigned *ret_usual)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    *ret_usual = 0;
    for (const struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): own stream
        uint64_t thread = 0;
        if (kg_parse_u64(e->d_name, 1, INT32_MAX, &thread) == 0 && is_called((pid_t)thread, name)) {
            count++;
            *ret_usual += sched_getscheduler((pid_t)thread) == SCHED_OTHER;
        }
    }
    (void)closedir(dir);
    return count;
}

typedef struct look {
    kg_loop_t *loop;
    int policy;
} look_t;

static void note_policy(void *user)
{
    look_t *look = user;
    look->policy = sched_getscheduler(0);
}

static void stop_loop(void *user)
{
    const look_t *look = user;
    kg_loop_stop(look->loop);
}

/* A worker's policy, from inside of it. */
static int policy_of_worker(kg_loop_t *loop)
{
    look_t look = {.loop = loop, .policy = -1};
    kg_workq_t *queue = NULL;
    assert_int_equal(kg_workq_create(loop, &queue), 0);
    assert_int_equal(kg_workq_submit(queue, note_policy, stop_loop, &look), 0);
    kg_loop_run(loop);
    kg_workq_close(&queue);
    return look.policy;
}

/* Threads begin with the policy of the one that makes them. libzmq makes its own when the first
 * socket is opened, which may be at any time; the workers are there from the first job on, which
 * the daemon has before it ever gives way. */
static void other_threads_do_not_follow(void **state)
{
    (void)state;
    char path[] = "/tmp/sandal-manners-XXXXXX";
    KG_AUTO_CLOSE int fd = mkstemp(path);
    kg_manners_t manners;
    kg_loop_t *loop = NULL;
    kg_zchan_t *chan = NULL;
    kg_err_t err = {0};
    unsigned usual = 0;
    const kg_zchan_opts_t opts = {
        .type = KG_ZCHAN_PUB, .endpoint = "tcp://127.0.0.1:*", .bind = true};
    assert_true(fd >= 0);
    assert_int_equal(kg_loop_create(&loop), 0);
    assert_int_equal(policy_of_worker(loop), SCHED_OTHER);
    put_total(path, 1000);
    kg_manners_init(&manners, path);
    kg_manners_look(&manners, KG_NS_PER_S);
    kg_manners_look(&manners, 2 * KG_NS_PER_S);
    assert_int_equal(sched_getscheduler(0), SCHED_BATCH);

    assert_int_equal(count_threads("ZMQbg", &usual), 0);
    assert_int_equal(kg_zchan_open(loop, &opts, &chan, &err), 0);
    /* One for I/O, one that reaps. They choose a policy, and then a name. */
    uint64_t limit = kg_now_ns() + 10 * KG_NS_PER_S;
    while (count_threads("ZMQbg", &usual) < 2 && kg_now_ns() < limit) {
        sched_yield();
    }
    assert_int_equal(count_threads("ZMQbg", &usual), 2);
    assert_int_equal(usual, 2);
    assert_int_equal(policy_of_worker(loop), SCHED_OTHER);
    assert_int_equal(sched_getscheduler(0), SCHED_BATCH);

    kg_manners_fini(&manners);
    kg_zchan_close(&chan, NULL, NULL);
    kg_loop_destroy(&loop);
    assert_int_equal(unlink(path), 0);
}

static void leaves_alone_what_others_chose(void **state)
{
    (void)state;
    const struct sched_param none = {0};
    kg_manners_t manners;
    kg_manners_init(&manners, "/nonexistent/pressure");
    kg_manners_look(&manners, KG_NS_PER_S);
    kg_manners_look(&manners, 2 * KG_NS_PER_S);
    kg_manners_fini(&manners);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);

    assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    kg_manners_init(&manners, "/proc/self/stat");
    assert_int_equal(manners.fd, -1);
    kg_manners_fini(&manners);
    assert_int_equal(sched_getscheduler(0), SCHED_BATCH);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_pressure),
        cmocka_unit_test(decides_at_the_limits),
        cmocka_unit_test(the_thread_follows),
        cmocka_unit_test(other_threads_do_not_follow),
        cmocka_unit_test(leaves_alone_what_others_chose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
