/* What the host's books say to warm pools, and sizes as operators write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "gateway/pool/host.h"

static void pressure_of_memory_that_is_left(void **state)
{
    (void)state;
    const char *plenty = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    100 kB\n";
    const char *little = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:     99 kB\n";
    const char *some = "MemTotal:       1000 kB\nMemAvailable:     50 kB\n";
    const char *none = "MemTotal:       1000 kB\nMemAvailable:     49 kB\n";
    assert_int_equal(KG_POOL_PRESSURE_NONE, kg_pool_pressure_of(plenty, ""));
    assert_int_equal(KG_POOL_PRESSURE_HOLD, kg_pool_pressure_of(little, ""));
    assert_int_equal(KG_POOL_PRESSURE_HOLD, kg_pool_pressure_of(some, ""));
    assert_int_equal(KG_POOL_PRESSURE_SHED, kg_pool_pressure_of(none, ""));
    assert_int_equal(KG_POOL_PRESSURE_NONE, kg_pool_pressure_of("", ""));
}

static void pressure_of_stalls(void **state)
{
    (void)state;
    const char *plenty = "MemTotal: 1000 kB\nMemAvailable: 900 kB\n";
    static const struct {
        const char *psi;
        kg_pool_pressure_t wanted;
    } rows[] = {
        {"some avg10=9.99 avg60=50.00\nfull avg10=4.99 avg60=50.00\n", KG_POOL_PRESSURE_NONE},
        {"some avg10=10.00 avg60=0.00\nfull avg10=0.00 avg60=0.00\n", KG_POOL_PRESSURE_HOLD},
        {"some avg10=20.00 avg60=0.00\nfull avg10=5.00 avg60=0.00\n", KG_POOL_PRESSURE_SHED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(rows[i].wanted, kg_pool_pressure_of(plenty, rows[i].psi));
    }
}

static void memory_of_this_host_is_known(void **state)
{
    (void)state;
    assert_true(kg_pool_host_memory() > 64 << 20);
}

static void sizes_good_and_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        unsigned min, max;
    } rows[] = {
        {"0", 0, 0, 0},
        {"3", 0, 3, 3},
        {"1-4", 0, 1, 4},
        {"0-1024", 0, 0, 1024},
        {"0-1025", -ERANGE, 0, 0},
        {"1025", -ERANGE, 0, 0},
        {"4-1", -ERANGE, 0, 0},
        {"", -EINVAL, 0, 0},
        {"-", -EINVAL, 0, 0},
        {"1-", -EINVAL, 0, 0},
        {"-1", -EINVAL, 0, 0},
        {"1-2-3", -EINVAL, 0, 0},
        {" 1", -EINVAL, 0, 0},
        {"11111111111111111111111", -EINVAL, 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned min = 7;
        unsigned max = 8;
        int rc = kg_pool_size_parse(rows[i].text, &min, &max);
        assert_int_equal(rows[i].rc, rc);
        assert_int_equal(rc ? 7 : rows[i].min, min);
        assert_int_equal(rc ? 8 : rows[i].max, max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pressure_of_memory_that_is_left),
        cmocka_unit_test(pressure_of_stalls),
        cmocka_unit_test(memory_of_this_host_is_known),
        cmocka_unit_test(sizes_good_and_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
