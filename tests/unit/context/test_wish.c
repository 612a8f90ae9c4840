/* What gives way where a host cannot hold it, in which order, and what is said of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/context/internal.h"

static kg_wish_t fresh(unsigned asked)
{
    kg_wish_t wish = {.asked_limits = asked,
                      .limits = {.memory_bytes = 1, .disk_bytes = 2, .cpu_millis = 3, .pids = 4},
                      .net.mode = KG_NET_EGRESS,
                      .first_mode = KG_NET_EGRESS};
    wish.first = wish.limits;
    return wish;
}

static bool refuse(kg_wish_t *wish, const char *message)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_NOT_SUPPORTED, "%s", message);
    return kg_wish_relax(wish, &err);
}

static void the_disk_gives_way_first(void **state)
{
    (void)state;
    kg_wish_t wish = fresh(0);
    assert_true(refuse(&wish, "no store"));
    assert_int_equal(wish.limits.disk_bytes, 0);
    assert_int_equal(wish.limits.memory_bytes, 1);
    assert_int_equal(wish.net.mode, KG_NET_EGRESS);
    assert_string_equal(wish.limits_reason, "no store");
    assert_string_equal(wish.network_reason, "");
    assert_true(refuse(&wish, "no groups"));
    assert_int_equal(wish.limits.memory_bytes, 0);
    assert_int_equal(wish.limits.pids, 0);
    assert_int_equal(wish.net.mode, KG_NET_EGRESS);
    assert_string_equal(wish.limits_reason, "no groups");
}

/* It was the network alone: the limits come back. */
static void egress_gives_way_with_the_limits_back(void **state)
{
    (void)state;
    kg_wish_t wish = fresh(0);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(refuse(&wish, "no way out"));
    }
    assert_int_equal(wish.net.mode, KG_NET_NONE);
    assert_int_equal(wish.limits.disk_bytes, 2);
    assert_int_equal(wish.limits.memory_bytes, 1);
    assert_string_equal(wish.network_reason, "no way out");
    assert_string_equal(wish.limits_reason, "");
    /* And both together, with a reason each. */
    assert_true(refuse(&wish, "no store"));
    assert_true(refuse(&wish, "no groups"));
    assert_int_equal(wish.net.mode, KG_NET_NONE);
    assert_int_equal(wish.limits.memory_bytes, 0);
    assert_string_equal(wish.network_reason, "no way out");
    assert_string_equal(wish.limits_reason, "no groups");
    assert_false(refuse(&wish, "nothing"));
}

static void what_was_asked_for_stays(void **state)
{
    (void)state;
    kg_wish_t wish = fresh(KG_ASKED_MEMORY | KG_ASKED_DISK);
    wish.network = json_string("egress");
    assert_true(refuse(&wish, "no groups"));
    assert_int_equal(wish.limits.memory_bytes, 1);
    assert_int_equal(wish.limits.disk_bytes, 2);
    assert_int_equal(wish.limits.pids, 0);
    assert_int_equal(wish.net.mode, KG_NET_EGRESS);
    while (refuse(&wish, "no groups")) {
        assert_int_equal(wish.limits.memory_bytes, 1);
        assert_int_equal(wish.net.mode, KG_NET_EGRESS);
    }
    kg_wish_t whole = fresh(15);
    whole.network = wish.network;
    assert_false(refuse(&whole, "no groups"));
    json_decref(wish.network);
}

static void other_errors_are_none_of_it(void **state)
{
    (void)state;
    kg_wish_t wish = fresh(0);
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_QUOTA_EXCEEDED, "full");
    assert_false(kg_wish_relax(&wish, &err));
    assert_int_equal(wish.limits.disk_bytes, 2);
}

static void a_wish_survives_its_record(void **state)
{
    (void)state;
    kg_wish_t wish = fresh(KG_ASKED_PIDS);
    kg_wish_t back = {0};
    wish.network = json_pack("{s:[{s:s}]}", "allow", "domain", "example.org");
    json_t *saved = kg_wish_save(&wish);
    assert_non_null(saved);
    kg_wish_load(&back, "namespace", saved);
    assert_memory_equal(&back.limits, &wish.limits, sizeof(wish.limits));
    assert_int_equal(back.asked_limits, KG_ASKED_PIDS);
    assert_int_equal(back.net.rule_count, 1);
    assert_int_equal(back.net.deny_by_default, 1);
    assert_true(json_equal(back.network, wish.network));
    json_decref(back.network);
    /* A record of before there were any. */
    kg_wish_t old = {0};
    kg_wish_load(&old, "none", NULL);
    assert_int_equal(old.net.mode, KG_NET_HOST);
    json_decref(saved);
    json_decref(wish.network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_disk_gives_way_first),
        cmocka_unit_test(egress_gives_way_with_the_limits_back),
        cmocka_unit_test(what_was_asked_for_stays),
        cmocka_unit_test(other_errors_are_none_of_it),
        cmocka_unit_test(a_wish_survives_its_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
