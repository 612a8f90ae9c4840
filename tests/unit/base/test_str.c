#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/str.h"

static void parse_u64_limits_and_rubbish(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_int_equal(kg_parse_u64("18446744073709551615", 0, UINT64_MAX, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(kg_parse_u64("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
    assert_int_equal(kg_parse_u64("10", 0, 10, &v), 0);
    assert_int_equal(kg_parse_u64("11", 0, 10, &v), -ERANGE);
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x1", "1e3", "1.0", "one"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(kg_parse_u64(bad[i], 0, UINT64_MAX, &v), -EINVAL);
    }
    assert_int_equal(kg_parse_u64(NULL, 0, 1, &v), -EINVAL);
    assert_true(v == 10);
}

static void parse_i64_limits(void **state)
{
    (void)state;
    int64_t v;
    assert_int_equal(kg_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(kg_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &v), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(kg_parse_i64("9223372036854775808", INT64_MIN, INT64_MAX, &v), -ERANGE);
    assert_int_equal(kg_parse_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &v), -ERANGE);
    assert_int_equal(kg_parse_i64("-", INT64_MIN, INT64_MAX, &v), -EINVAL);
    assert_int_equal(kg_parse_i64("--1", INT64_MIN, INT64_MAX, &v), -EINVAL);
    assert_int_equal(kg_parse_i64("-5", -4, 4, &v), -ERANGE);
}

static void parse_double_plain_decimal_only(void **state)
{
    (void)state;
    double v;
    assert_int_equal(kg_parse_double("-12.5e-1", &v), 0);
    assert_true(v == -1.25);
    assert_int_equal(kg_parse_double("1e400", &v), -ERANGE);
    static const char *const bad[] = {"",   "nan", "inf", "0x1p3", " 1",
                                      "1 ", "1.",  ".5",  "1e",    "+1"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(kg_parse_double(bad[i], &v), -EINVAL);
    }
}

static void format_too_long_refused_and_empty(void **state)
{
    (void)state;
    char text[4];
    assert_int_equal(kg_format(text, sizeof text, "%d", 123), 0);
    assert_string_equal(text, "123");
    assert_int_equal(kg_format(text, sizeof text, "%d", 1234), -ENAMETOOLONG);
    assert_string_equal(text, "");
}

static void name_valid_rules(void **state)
{
    (void)state;
    assert_true(kg_name_valid("a", 8));
    assert_true(kg_name_valid("my-box-1", 8));
    assert_false(kg_name_valid("my-box-10", 8));
    static const char *const bad[] = {"", "-a", "a-", "A", "a_b", "a.b", "\xC3\xA9", "a b"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_false(kg_name_valid(bad[i], 8));
    }
    assert_false(kg_name_valid(NULL, 8));
}

static void strdup_printf_and_starts(void **state)
{
    (void)state;
    KG_AUTO_FREE char *text = kg_strdup_printf("%s/%d", "a", 5);
    assert_string_equal(text, "a/5");
    assert_true(kg_str_starts(text, "a/"));
    assert_false(kg_str_starts("a", "a/"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_u64_limits_and_rubbish),
        cmocka_unit_test(parse_i64_limits),
        cmocka_unit_test(parse_double_plain_decimal_only),
        cmocka_unit_test(format_too_long_refused_and_empty),
        cmocka_unit_test(name_valid_rules),
        cmocka_unit_test(strdup_printf_and_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
