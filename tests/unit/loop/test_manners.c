/* Whether the loop's thread gives way: what PSI's file says, and what the thread's policy becomes.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/loop/manners.h"

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
        cmocka_unit_test(leaves_alone_what_others_chose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
