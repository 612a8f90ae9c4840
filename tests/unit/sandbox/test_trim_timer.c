/* When the store of volumes is trimmed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/trim_timer.h"

#define S KG_NS_PER_S
#define NOW (1000 * S)

static void never_without_a_delete(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER);
}

static void one_follows_the_last_delete(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    kg_trim_deleted(&t, NOW);
    assert_int_equal(kg_trim_due(&t), NOW + KG_TRIM_QUIET_NS);
    kg_trim_deleted(&t, NOW + 30 * S);
    assert_int_equal(kg_trim_due(&t), NOW + 30 * S + KG_TRIM_QUIET_NS);
    kg_trim_begun(&t);
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER);
    kg_trim_ended(&t, NOW + 71 * S, false);
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER);
}

/* Deletes without end put it off no further than that. */
static void it_comes_though_deletes_go_on(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    for (uint64_t now = NOW; now <= NOW + KG_TRIM_LATEST_NS; now += S) {
        kg_trim_deleted(&t, now);
        assert_true(kg_trim_due(&t) <= NOW + KG_TRIM_LATEST_NS);
    }
    assert_int_equal(kg_trim_due(&t), NOW + KG_TRIM_LATEST_NS);
}

/* It may have come too early for what is deleted while it works. */
static void a_delete_meanwhile_is_for_the_next_one(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    kg_trim_deleted(&t, NOW);
    kg_trim_begun(&t);
    kg_trim_deleted(&t, NOW + 41 * S);
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER); /* one at a time */
    kg_trim_ended(&t, NOW + 42 * S, false);
    assert_int_equal(kg_trim_due(&t), NOW + 41 * S + KG_TRIM_QUIET_NS);
}

static void once_more_while_there_is_more(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    kg_trim_deleted(&t, NOW);
    kg_trim_begun(&t);
    kg_trim_ended(&t, NOW + 41 * S, true);
    assert_int_equal(kg_trim_due(&t), NOW + 41 * S + KG_TRIM_AGAIN_NS);
    kg_trim_deleted(&t, NOW + 42 * S); /* whichever is first */
    assert_int_equal(kg_trim_due(&t), NOW + 42 * S + KG_TRIM_QUIET_NS);
    kg_trim_begun(&t);
    kg_trim_ended(&t, NOW + 83 * S, false);
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER);
}

static void no_more_than_so_often_without_a_delete(void **state)
{
    kg_trim_timer_t t = {0};
    unsigned trims = 0;
    (void)state;
    kg_trim_deleted(&t, NOW);
    for (uint64_t due = kg_trim_due(&t); due != KG_TRIM_NEVER; due = kg_trim_due(&t)) {
        kg_trim_begun(&t);
        kg_trim_ended(&t, due, true);
        trims++;
        assert_true(trims <= 1 + KG_TRIM_AGAIN_MAX);
    }
    assert_int_equal(trims, 1 + KG_TRIM_AGAIN_MAX);
    kg_trim_deleted(&t, 2 * NOW); /* and the next delete has as many */
    kg_trim_begun(&t);
    kg_trim_ended(&t, 2 * NOW, true);
    assert_int_equal(kg_trim_due(&t), 2 * NOW + KG_TRIM_AGAIN_NS);
}

static void refused_once_is_refused_for_ever(void **state)
{
    kg_trim_timer_t t = {0};
    (void)state;
    kg_trim_deleted(&t, NOW);
    kg_trim_begun(&t);
    kg_trim_refused(&t);
    kg_trim_deleted(&t, NOW + 50 * S);
    assert_int_equal(kg_trim_due(&t), KG_TRIM_NEVER);
}

/* What a full or failing disk says today is no reason to let it fill up for good. */
static void errors_that_pass_are_no_refusals(void **state)
{
    (void)state;
    static const int final[] = {-EOPNOTSUPP, -ENOTTY, -ENOSYS, -EINVAL, -EPERM, -EACCES, -EROFS};
    static const int passing[] = {-ENOSPC, -EIO, -ENOMEM, -EMFILE, -EINTR, -EBUSY, -ENOENT, 0};
    for (size_t i = 0; i < KG_ARRAY_LEN(final); i++) {
        assert_true(kg_trim_is_refusal(final[i]));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(passing); i++) {
        assert_false(kg_trim_is_refusal(passing[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_without_a_delete),
        cmocka_unit_test(one_follows_the_last_delete),
        cmocka_unit_test(it_comes_though_deletes_go_on),
        cmocka_unit_test(a_delete_meanwhile_is_for_the_next_one),
        cmocka_unit_test(once_more_while_there_is_more),
        cmocka_unit_test(no_more_than_so_often_without_a_delete),
        cmocka_unit_test(refused_once_is_refused_for_ever),
        cmocka_unit_test(errors_that_pass_are_no_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
