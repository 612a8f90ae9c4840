#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/base/clock.h"
#include "gateway/base/id.h"

static void node_generate_always_valid(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        kg_node_t node;
        kg_node_generate(&node);
        assert_true(kg_node_valid(node.name));
    }
}

/* 9zldr is 2^24 - 1 in base 36. */
static void node_valid_limit_is_24_bits(void **state)
{
    (void)state;
    assert_true(kg_node_valid("00000"));
    assert_true(kg_node_valid("9zldr"));
    assert_false(kg_node_valid("9zlds"));
    assert_false(kg_node_valid("zzzzz"));
    assert_false(kg_node_valid("0000"));
    assert_false(kg_node_valid("000000"));
    assert_false(kg_node_valid("0000A"));
    assert_false(kg_node_valid(NULL));
}

static void id_generate_valid_and_distinct(void **state)
{
    (void)state;
    kg_node_t node = {"9zldr"};
    char a[KG_ID_MAX];
    char b[KG_ID_MAX];
    kg_id_generate(&node, "sbx", a);
    kg_id_generate(&node, "sbx", b);
    assert_int_equal(strlen(a), 24);
    assert_memory_equal(a, "sbx-9zldr", 9);
    assert_true(kg_id_valid("sbx", a));
    assert_false(kg_id_valid("run", a));
    assert_false(kg_id_valid("sb", a));
    assert_string_not_equal(a, b);
    a[23] = '\0';
    assert_false(kg_id_valid("sbx", a));
    b[10] = '/';
    assert_false(kg_id_valid("sbx", b));
    assert_false(kg_id_valid("sbx", "sbx-"));
    assert_false(kg_id_valid("sbx", NULL));
}

static void uuid_generate_version_8_with_node(void **state)
{
    (void)state;
    kg_node_t node = {"9zldr"};
    char uuid[KG_ID_MAX];
    kg_uuid_generate(&node, uuid);
    assert_true(kg_uuid_valid(uuid));
    assert_memory_equal(uuid, "ffffff", 6);
    assert_int_equal(uuid[14], '8');
    assert_non_null(strchr("89ab", uuid[19]));
}

static void uuid_valid_form_only(void **state)
{
    (void)state;
    assert_true(kg_uuid_valid("01234567-89ab-cdef-0123-456789ABCDEF"));
    assert_false(kg_uuid_valid("01234567-89ab-cdef-0123-456789ABCDE"));
    assert_false(kg_uuid_valid("01234567-89ab-cdef-0123-456789ABCDEF0"));
    assert_false(kg_uuid_valid("01234567089ab-cdef-0123-456789ABCDEF"));
    assert_false(kg_uuid_valid("g1234567-89ab-cdef-0123-456789ABCDEF"));
    assert_false(kg_uuid_valid(""));
}

static void time_format_always_fraction_and_z(void **state)
{
    (void)state;
    char text[KG_TIME_LEN];
    kg_time_format(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000000Z");
    kg_time_format(UINT64_C(1767323045678901999), text);
    assert_string_equal(text, "2026-01-02T03:04:05.678901Z");
    kg_time_format(UINT64_MAX, text);
    assert_string_equal(text, "2554-07-21T23:34:33.709551Z");
}

static void clock_real_moves(void **state)
{
    (void)state;
    const kg_clock_t *clock = kg_clock_real();
    uint64_t a = clock->now_ns(clock->user);
    assert_true(kg_now_ns() >= a);
    assert_true(clock->wall_ns(clock->user) > UINT64_C(1600000000) * KG_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_generate_always_valid),
        cmocka_unit_test(node_valid_limit_is_24_bits),
        cmocka_unit_test(id_generate_valid_and_distinct),
        cmocka_unit_test(uuid_generate_version_8_with_node),
        cmocka_unit_test(uuid_valid_form_only),
        cmocka_unit_test(time_format_always_fraction_and_z),
        cmocka_unit_test(clock_real_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
