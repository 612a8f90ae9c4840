/* The arithmetic of warm pools, with members that are numbers and a clock that is one too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/pool/pool.h"

#define MIB (UINT64_C(1) << 20)
#define S KG_NS_PER_S

enum {
    OBJECTS = 4096
};

typedef struct object {
    kg_member_t *member; /* while it is being made or waits */
    bool ended;
    bool checked;
} object_t;

typedef struct fake {
    kg_pools_t *pools;
    object_t objects[OBJECTS];
    size_t made;
    size_t ended;
    bool cannot;
    kg_pool_pressure_t pressure;
    uint64_t now;
} fake_t;

static int make(void *user, kg_pool_t *pool, kg_member_t *member, void **ret_object)
{
    fake_t *f = user;
    assert_non_null(kg_pool_name(pool));
    if (f->cannot) {
        return -EIO;
    }
    assert_true(f->made < OBJECTS);
    object_t *object = &f->objects[f->made++];
    object->member = member;
    *ret_object = object;
    return 0;
}

static void end(void *user, void *object)
{
    fake_t *f = user;
    object_t *o = object;
    assert_false(o->ended);
    o->ended = true;
    o->member = NULL;
    f->ended++;
}

static void check(void *user, kg_member_t *member, void *object)
{
    object_t *o = object;
    (void)user;
    assert_ptr_equal(member, o->member);
    o->checked = true;
}

static kg_pool_pressure_t pressure(void *user)
{
    const fake_t *f = user;
    return f->pressure;
}

static fake_t *
start(kg_pool_fill_t fill, uint64_t budget_mib, unsigned warming, const kg_pool_opts_t *opts)
{
    static const kg_pool_ops_t ops = {make, end, check, pressure};
    fake_t *f = calloc(1, sizeof(*f));
    kg_pool_t *pool = NULL;
    assert_non_null(f);
    assert_int_equal(0, kg_pools_create(&ops, f, fill, budget_mib * MIB, warming, &f->pools));
    assert_int_equal(0, kg_pools_add(f->pools, "a", "spawn", opts, f, &pool));
    assert_ptr_equal(pool, kg_pools_find(f->pools, "a", "spawn"));
    assert_ptr_equal(f, kg_pool_user(pool));
    f->now = 1000 * S;
    return f;
}

static void stop(fake_t *f)
{
    kg_pools_destroy(&f->pools);
    free(f);
}

static kg_pool_stats_t stats(fake_t *f)
{
    kg_pool_stats_t s;
    kg_pool_stats(kg_pools_find(f->pools, "a", "spawn"), &s);
    return s;
}

static void tick(fake_t *f, uint64_t seconds)
{
    f->now += seconds * S;
    kg_pools_tick(f->pools, f->now);
}

/* All that are being made become ready. */
static void ready(fake_t *f, uint64_t mib)
{
    for (size_t i = 0; i < f->made; i++) {
        object_t *o = &f->objects[i];
        if (o->member && !o->checked) {
            kg_member_ready(o->member, f->now, mib * MIB);
            o->checked = true; /* so that it is told once */
        }
    }
    for (size_t i = 0; i < f->made; i++) {
        f->objects[i].checked = f->objects[i].checked && f->objects[i].member;
    }
}

static object_t *take(fake_t *f, bool *warming)
{
    object_t *o = kg_pool_take(kg_pools_find(f->pools, "a", "spawn"), f->now, warming);
    if (o) {
        o->member = NULL;
    }
    return o;
}

static const kg_pool_opts_t usual = {.min = 2, .max = 4, .refill_per_minute = 60};

static void fills_to_min_a_few_at_a_time(void **state)
{
    (void)state;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 1, &usual);
    tick(f, 0);
    assert_int_equal(1, stats(f).warming);
    tick(f, 1);
    assert_int_equal(1, f->made); /* the first is still being made */
    ready(f, 50);
    assert_int_equal(0, stats(f).filled_ns);
    tick(f, 1);
    ready(f, 50);
    tick(f, 1);
    assert_int_equal(2, stats(f).ready);
    assert_int_equal(2, f->made);
    assert_int_equal(2 * S, stats(f).filled_ns);
    assert_int_equal(100 * MIB, stats(f).memory_bytes);
    stop(f);
}

static void off_makes_none_and_demand_waits_for_the_first_create(void **state)
{
    (void)state;
    bool warming = false;
    fake_t *f = start(KG_POOL_FILL_OFF, 10000, 4, &usual);
    assert_null(take(f, &warming));
    tick(f, 1);
    assert_int_equal(0, f->made);
    stop(f);
    f = start(KG_POOL_FILL_DEMAND, 10000, 4, &usual);
    tick(f, 1);
    assert_int_equal(0, f->made);
    assert_null(take(f, &warming));
    assert_int_equal(1, stats(f).misses);
    tick(f, 1);
    ready(f, 50);
    assert_int_equal(2, stats(f).ready);
    tick(f, KG_POOL_IDLE_S - 2); /* less than idle since the take */
    assert_int_equal(2, stats(f).ready);
    tick(f, 1);
    tick(f, 1);
    assert_int_equal(0, stats(f).ready); /* one a tick */
    assert_int_equal(2, stats(f).shed);
    stop(f);
}

static void a_member_is_given_once(void **state)
{
    (void)state;
    bool warming = true;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 4, &usual);
    tick(f, 0);
    ready(f, 50);
    object_t *first = take(f, &warming);
    assert_ptr_equal(&f->objects[0], first);
    assert_false(warming);
    object_t *second = take(f, &warming);
    assert_ptr_equal(&f->objects[1], second);
    assert_null(take(f, &warming));
    assert_int_equal(2, stats(f).hits);
    assert_int_equal(1, stats(f).misses);
    assert_int_equal(0, f->ended); /* what was taken is somebody else's */
    stop(f);
}

static void an_empty_pool_gives_the_one_longest_in_the_making(void **state)
{
    (void)state;
    bool warming = false;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 4, &usual);
    tick(f, 0);
    assert_int_equal(2, stats(f).warming);
    assert_ptr_equal(&f->objects[0], take(f, &warming));
    assert_true(warming);
    assert_int_equal(1, stats(f).joined);
    assert_int_equal(1, stats(f).warming);
    stop(f);
}

static void the_target_follows_takes_up_to_max_and_fades(void **state)
{
    (void)state;
    bool warming = false;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 8, &usual);
    tick(f, 0);
    ready(f, 50);
    for (unsigned i = 0; i < 7; i++) {
        (void)take(f, &warming);
    }
    tick(f, 1);
    assert_int_equal(4, stats(f).target);
    tick(f, 70);
    ready(f, 50);
    tick(f, 1);
    assert_int_equal(2, stats(f).target); /* a minute after the last */
    stop(f);
}

static void refill_is_held_to_its_rate(void **state)
{
    (void)state;
    bool warming = false;
    kg_pool_opts_t slow = {.min = 2, .max = 2, .refill_per_minute = 6};
    fake_t *f = start(KG_POOL_FILL_START, 10000, 8, &slow);
    tick(f, 0);
    assert_int_equal(2, f->made); /* the burst */
    ready(f, 50);
    (void)take(f, &warming);
    (void)take(f, &warming);
    tick(f, 9);
    assert_int_equal(2, f->made);
    tick(f, 1);
    assert_int_equal(3, f->made);
    tick(f, 9);
    assert_int_equal(3, f->made);
    tick(f, 2);
    assert_int_equal(4, f->made);
    stop(f);
}

static void failures_are_tried_again_ever_later(void **state)
{
    (void)state;
    kg_pool_opts_t one = {.min = 1, .max = 1, .refill_per_minute = 6000};
    fake_t *f = start(KG_POOL_FILL_START, 10000, 1, &one);
    f->cannot = true;
    tick(f, 0);
    assert_int_equal(1, stats(f).failed);
    tick(f, 0);
    assert_int_equal(1, stats(f).failed); /* a second has not passed */
    tick(f, 1);
    assert_int_equal(2, stats(f).failed);
    tick(f, 1);
    assert_int_equal(2, stats(f).failed);
    tick(f, 1);
    assert_int_equal(3, stats(f).failed);
    for (unsigned i = 0; i < 10; i++) {
        tick(f, 64);
    }
    f->cannot = false;
    tick(f, 64); /* never longer than that */
    assert_int_equal(1, stats(f).warming);
    kg_member_failed(f->objects[0].member, f->now);
    f->objects[0].member = NULL;
    assert_int_equal(0, stats(f).warming);
    assert_int_equal(0, f->ended); /* who told of it ends it */
    tick(f, 64);
    ready(f, 50);
    assert_int_equal(1, stats(f).ready);
    stop(f);
}

static void an_old_member_ends_and_is_replaced(void **state)
{
    (void)state;
    kg_pool_opts_t aging = {.min = 1, .max = 1, .refill_per_minute = 60, .max_age_s = 20};
    fake_t *f = start(KG_POOL_FILL_START, 10000, 1, &aging);
    tick(f, 0);
    ready(f, 50);
    tick(f, 19);
    assert_int_equal(0, f->ended);
    tick(f, 1);
    assert_true(f->objects[0].ended);
    assert_int_equal(1, stats(f).aged);
    assert_int_equal(1, stats(f).warming);
    assert_int_equal(0, stats(f).failed);
    stop(f);
}

static void members_are_looked_at_and_bad_ones_end(void **state)
{
    (void)state;
    kg_pool_opts_t one = {.min = 1, .max = 1, .refill_per_minute = 60};
    fake_t *f = start(KG_POOL_FILL_START, 10000, 1, &one);
    tick(f, 0);
    ready(f, 50);
    f->objects[0].checked = false;
    tick(f, KG_POOL_CHECK_S - 1);
    assert_false(f->objects[0].checked);
    tick(f, 1);
    assert_true(f->objects[0].checked);
    f->objects[0].checked = false;
    tick(f, KG_POOL_CHECK_S);
    assert_false(f->objects[0].checked); /* the answer is awaited */
    kg_member_checked(f->objects[0].member, true, f->now, 70 * MIB);
    assert_int_equal(70 * MIB, stats(f).memory_bytes);
    tick(f, KG_POOL_CHECK_S);
    assert_true(f->objects[0].checked);
    kg_member_checked(f->objects[0].member, false, f->now, 0);
    assert_true(f->objects[0].ended);
    assert_int_equal(1, stats(f).failed);
    tick(f, 2);
    assert_int_equal(1, stats(f).warming);
    stop(f);
}

static void memory_budgets_hold(void **state)
{
    (void)state;
    kg_pool_opts_t many = {.min = 4, .max = 4, .refill_per_minute = 600};
    fake_t *f = start(KG_POOL_FILL_START, 250, 8, &many);
    tick(f, 0);
    assert_int_equal(2, f->made); /* each is taken for 100 MiB, until it was weighed */
    ready(f, 60);
    tick(f, 1);
    assert_int_equal(4, f->made); /* 120 + 60 + 60 */
    ready(f, 90);
    tick(f, 1);
    assert_int_equal(1, f->ended); /* 300 are more than 250 */
    assert_int_equal(1, stats(f).shed);
    tick(f, 1);
    assert_int_equal(1, f->ended);
    assert_int_equal(4, f->made);
    stop(f);
    many.memory_mib = 100;
    f = start(KG_POOL_FILL_START, 10000, 8, &many);
    tick(f, 0);
    assert_int_equal(1, f->made);
    stop(f);
}

static void a_host_under_pressure_gets_its_memory_back(void **state)
{
    (void)state;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 8, &usual);
    f->pressure = KG_POOL_PRESSURE_HOLD;
    tick(f, 0);
    assert_int_equal(0, f->made);
    f->pressure = KG_POOL_PRESSURE_NONE;
    tick(f, 1);
    ready(f, 50);
    f->pressure = KG_POOL_PRESSURE_HOLD;
    tick(f, 1);
    assert_int_equal(0, f->ended);
    f->pressure = KG_POOL_PRESSURE_SHED;
    tick(f, 1);
    assert_int_equal(1, f->ended);
    tick(f, 1);
    assert_int_equal(2, f->ended);
    assert_int_equal(2, f->made);
    stop(f);
}

static void pools_take_turns(void **state)
{
    (void)state;
    kg_pool_opts_t many = {.min = 8, .max = 8, .refill_per_minute = 6000};
    kg_pool_t *other = NULL;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 2, &many);
    assert_int_equal(0, kg_pools_add(f->pools, "b", "spawn", &many, f, &other));
    tick(f, 0);
    kg_pool_stats_t s;
    kg_pool_stats(other, &s);
    assert_int_equal(1, s.warming);
    assert_int_equal(1, stats(f).warming);
    assert_ptr_equal(other, kg_pools_at(f->pools, 1));
    assert_null(kg_pools_at(f->pools, 2));
    assert_int_equal(2, kg_pools_members(f->pools));
    stop(f);
}

static void kinds_of_one_template_are_counted_apart(void **state)
{
    (void)state;
    kg_pool_opts_t one = {.min = 1, .max = 1, .refill_per_minute = 6000};
    kg_pool_t *forked = NULL;
    bool warming = false;
    kg_pool_stats_t s;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 8, &one);
    assert_int_equal(0, kg_pools_add(f->pools, "a", "zygote", &one, f, &forked));
    assert_ptr_equal(forked, kg_pools_find(f->pools, "a", "zygote"));
    assert_null(kg_pools_find(f->pools, "a", "restored"));
    assert_string_equal("zygote", kg_pool_start(forked));
    tick(f, 0);
    assert_non_null(kg_pool_take(forked, f->now, &warming));
    kg_pool_stats(forked, &s);
    assert_int_equal(1, s.joined);
    assert_int_equal(0, stats(f).joined);
    assert_int_equal(1, stats(f).warming);
    stop(f);
}

static void one_gives_way_and_all_end_at_the_stop(void **state)
{
    (void)state;
    fake_t *f = start(KG_POOL_FILL_START, 10000, 8, &usual);
    assert_false(kg_pools_give_way(f->pools));
    tick(f, 0);
    kg_member_ready(f->objects[1].member, f->now, 50 * MIB);
    kg_member_checked(f->objects[1].member, true, f->now, 60 * MIB);
    assert_true(kg_pools_give_way(f->pools));
    assert_true(f->objects[1].ended); /* one that waits goes before one that is being made */
    assert_true(kg_pools_give_way(f->pools));
    assert_true(f->objects[0].ended);
    assert_false(kg_pools_give_way(f->pools));
    tick(f, 1);
    assert_int_equal(2, stats(f).warming);
    kg_pools_stop(f->pools);
    assert_int_equal(4, f->ended);
    tick(f, 100);
    assert_int_equal(4, f->made);
    assert_int_equal(0, stats(f).target);
    stop(f);
}

static void a_create_that_no_member_serves_is_demand_all_the_same(void **state)
{
    (void)state;
    fake_t *f = start(KG_POOL_FILL_DEMAND, 10000, 8, &usual);
    kg_pool_wanted(kg_pools_find(f->pools, "a", "spawn"), f->now);
    tick(f, 1);
    assert_int_equal(2, stats(f).warming);
    assert_int_equal(0, stats(f).misses);
    stop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_to_min_a_few_at_a_time),
        cmocka_unit_test(off_makes_none_and_demand_waits_for_the_first_create),
        cmocka_unit_test(a_member_is_given_once),
        cmocka_unit_test(an_empty_pool_gives_the_one_longest_in_the_making),
        cmocka_unit_test(the_target_follows_takes_up_to_max_and_fades),
        cmocka_unit_test(refill_is_held_to_its_rate),
        cmocka_unit_test(failures_are_tried_again_ever_later),
        cmocka_unit_test(an_old_member_ends_and_is_replaced),
        cmocka_unit_test(members_are_looked_at_and_bad_ones_end),
        cmocka_unit_test(memory_budgets_hold),
        cmocka_unit_test(a_host_under_pressure_gets_its_memory_back),
        cmocka_unit_test(pools_take_turns),
        cmocka_unit_test(kinds_of_one_template_are_counted_apart),
        cmocka_unit_test(one_gives_way_and_all_end_at_the_stop),
        cmocka_unit_test(a_create_that_no_member_serves_is_demand_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
