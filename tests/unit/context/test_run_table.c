/* All runs by their ids, as many as there may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gateway/base/str.h"
#include "gateway/context/internal.h"

enum {
    MANY = 5000,
};

static kg_run_t *new_runs(void)
{
    kg_run_t *runs = calloc(MANY, sizeof(*runs));
    assert_non_null(runs);
    for (size_t i = 0; i < MANY; i++) {
        (void)kg_format(runs[i].id, sizeof(runs[i].id), "run-%zu", i);
    }
    return runs;
}

static void each_is_found_until_it_goes(void **state)
{
    kg_run_table_t table = {0};
    kg_run_t *runs = new_runs();
    (void)state;
    assert_null(kg_run_table_find(&table, "run-0"));
    for (size_t i = 0; i < MANY; i++) {
        kg_run_table_add(&table, &runs[i]);
    }
    for (size_t i = 0; i < MANY; i += 2) {
        kg_run_table_remove(&table, &runs[i]);
    }
    assert_int_equal(table.count, MANY / 2);
    for (size_t i = 0; i < MANY; i++) {
        assert_ptr_equal(kg_run_table_find(&table, runs[i].id), i % 2 ? &runs[i] : NULL);
    }
    assert_null(kg_run_table_find(&table, "run-"));
    assert_null(kg_run_table_find(&table, ""));
    for (size_t i = 1; i < MANY; i += 2) {
        kg_run_table_remove(&table, &runs[i]);
    }
    assert_null(table.rows); /* else it leaks */
    free(runs);
}

/* As where there was no memory for rows. */
static void one_chain_does(void **state)
{
    kg_run_t *runs = new_runs();
    (void)state;
    runs[1].same_row = &runs[0];
    runs[2].same_row = &runs[1];
    kg_run_table_t table = {.few = &runs[2], .count = 3};
    assert_ptr_equal(kg_run_table_find(&table, "run-0"), &runs[0]);
    kg_run_table_remove(&table, &runs[1]);
    assert_null(kg_run_table_find(&table, "run-1"));
    kg_run_table_add(&table, &runs[3]); /* there is memory now: all move */
    assert_null(table.few);
    assert_ptr_equal(kg_run_table_find(&table, "run-0"), &runs[0]);
    assert_ptr_equal(kg_run_table_find(&table, "run-3"), &runs[3]);
    kg_run_table_remove(&table, &runs[0]);
    kg_run_table_remove(&table, &runs[2]);
    kg_run_table_remove(&table, &runs[3]);
    assert_null(table.rows);
    free(runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found_until_it_goes),
        cmocka_unit_test(one_chain_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
