/* To whom kills for want of memory are charged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/context/kills.h"

static void one_kill_ends_one(void **state)
{
    kg_kills_t kills = {0};
    (void)state;
    assert_false(kg_kills_take(&kills, 0));
    kg_kills_seen(&kills, 1);
    kg_kills_seen(&kills, 1);
    assert_true(kg_kills_take(&kills, 0));
    assert_false(kg_kills_take(&kills, 0));
}

static void a_kill_of_before_ends_nobody(void **state)
{
    kg_kills_t kills = {0};
    (void)state;
    kg_kills_seen(&kills, 1); /* a child's: nobody takes it */
    assert_false(kg_kills_take(&kills, 1));
    kg_kills_seen(&kills, 2);
    assert_true(kg_kills_take(&kills, 0)); /* who was there all the time takes the new one */
    assert_false(kg_kills_take(&kills, 1));
}

/* One that is taken leaves those of others as they are. */
static void a_kill_of_now_is_there_whatever_was_taken(void **state)
{
    kg_kills_t kills = {0};
    (void)state;
    kg_kills_seen(&kills, 1);
    assert_true(kg_kills_take(&kills, 0)); /* after another had started at 1 */
    kg_kills_seen(&kills, 2);
    assert_true(kg_kills_take(&kills, 1));
}

static void many_kills_are_more_than_are_remembered(void **state)
{
    kg_kills_t kills = {0};
    unsigned taken = 0;
    (void)state;
    kg_kills_seen(&kills, 5);
    kg_kills_seen(&kills, 1000);
    while (kg_kills_take(&kills, 3)) {
        taken++;
    }
    assert_int_equal(taken, 64);
    kg_kills_seen(&kills, 1001);
    assert_false(kg_kills_take(&kills, UINT64_MAX)); /* they weren't counted when it started */
    assert_true(kg_kills_take(&kills, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kill_ends_one),
        cmocka_unit_test(a_kill_of_before_ends_nobody),
        cmocka_unit_test(a_kill_of_now_is_there_whatever_was_taken),
        cmocka_unit_test(many_kills_are_more_than_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
