#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/json_scan.h"

static int check(const char *text)
{
    kg_json_value_t v;
    return kg_json_check(kg_slice_cstr(text), KG_JSON_DEPTH_MAX, &v);
}

static void check_valid_values_accepted(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        "[]",
        "null",
        " true ",
        "false\n",
        "0",
        "-0",
        "1.5",
        "1e5",
        "1E+5",
        "-0.0e-0",
        "\"\"",
        "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "[1,2,[3],{}]",
        "{\"a\":{\"b\":[]},\"\":1}",
        "\t{ \"a\" : 1 , \"b\" : [ ] }\r\n",
        /* what a tree parser refuses and kernels send */
        "\"\\u0000\"",
        "1180591620717411303424",
        "1e400",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"\xFF\xC3\"",
        "\"a\nb\x01\"",
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "{\"a\":1,\"a\":2}",
        "\"\xED\xA0\x80\"",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_int_equal(check(good[i]), 0);
    }
}

static void check_malformed_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{1:2}",
        "{a:1}",
        "{\"a\" 1}",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "{} x",
        "[]]",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "'a'",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "0x1",
        "tru",
        "nul",
        "nullx",
        "True",
        "nan",
        "Inf",
        "-Inf",
        "-NaN",
        "\xEF\xBB\xBF{}",
        "{\"a\":1}//",
        "[1:2]",
        ":",
        ",",
        "{\"a\":1 \"b\":2}",
        "{:1}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(check(bad[i]), -EBADMSG);
    }
    assert_int_equal(kg_json_check(kg_slice("[\0]", 3), 8, NULL), -EBADMSG);
    assert_int_equal(kg_json_check((kg_slice_t){0}, 8, NULL), -EBADMSG);
}

static void check_every_prefix_of_an_object_refused(void **state)
{
    (void)state;
    const char text[] = "{\"key\":[1.5e3,\"v\\u00e9\\n\",{\"n\":null}],\"t\":true}";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        KG_AUTO_FREE char *exact = malloc(len + 1);
        memcpy(exact, text, len);
        char *copy = realloc(exact, len ? len : 1);
        exact = copy ? copy : exact;
        assert_int_equal(kg_json_check(kg_slice(exact, len), 8, NULL), -EBADMSG);
    }
    assert_int_equal(check(text), 0);
}

static void nested(kg_buf_t *out, size_t depth, bool objects)
{
    for (size_t i = 0; i < depth; i++) {
        assert_int_equal(kg_buf_append_cstr(out, objects ? "{\"a\":" : "["), 0);
    }
    assert_int_equal(kg_buf_append_cstr(out, objects ? "1" : ""), 0);
    for (size_t i = 0; i < depth; i++) {
        assert_int_equal(kg_buf_append_char(out, objects ? '}' : ']'), 0);
    }
}

static void check_depth_at_limit_passes_beyond_refused(void **state)
{
    (void)state;
    static const unsigned limits[] = {1, 63, 64, 65, 128, 1024};
    for (size_t i = 0; i < KG_ARRAY_LEN(limits) * 2; i++) {
        unsigned limit = limits[i / 2];
        KG_AUTO_BUF kg_buf_t at = {0};
        KG_AUTO_BUF kg_buf_t over = {0};
        nested(&at, limit, i % 2);
        nested(&over, limit + 1, i % 2);
        assert_int_equal(kg_json_check(kg_buf_slice(&at), limit, NULL), 0);
        assert_int_equal(kg_json_check(kg_buf_slice(&over), limit, NULL), -E2BIG);
    }
    KG_AUTO_BUF kg_buf_t bomb = {0};
    nested(&bomb, 1000000, false);
    assert_int_equal(kg_json_check(kg_buf_slice(&bomb), 4000000, NULL), -E2BIG);
    assert_int_equal(kg_json_check(kg_slice_cstr("1"), 0, NULL), 0);
    assert_int_equal(kg_json_check(kg_slice_cstr("[]"), 0, NULL), -E2BIG);
}

/* Array and object levels alternate across the 64-bit words of the bit stack. */
static void check_mixed_nesting_matches_brackets(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(kg_buf_append_cstr(&text, i % 3 ? "[" : "{\"k\":"), 0);
    }
    assert_int_equal(kg_buf_append_cstr(&text, "0"), 0);
    for (unsigned i = 100; i-- > 0;) {
        assert_int_equal(kg_buf_append_char(&text, i % 3 ? ']' : '}'), 0);
    }
    assert_int_equal(kg_json_check(kg_buf_slice(&text), 128, NULL), 0);
    for (size_t i = text.len - 100; i < text.len; i++) {
        text.data[i] = text.data[i] == ']' ? '}' : ']';
        assert_int_equal(kg_json_check(kg_buf_slice(&text), 128, NULL), -EBADMSG);
        text.data[i] = text.data[i] == ']' ? '}' : ']';
    }
}

static void check_yields_trimmed_value(void **state)
{
    (void)state;
    kg_json_value_t v;
    assert_int_equal(kg_json_check(kg_slice_cstr(" [1, 2] \n"), 8, &v), 0);
    assert_int_equal(v.type, KG_JSON_ARRAY);
    assert_true(kg_slice_eq_cstr(v.raw, "[1, 2]"));
    assert_int_equal(kg_json_check(kg_slice_cstr(" -Infinity "), 8, &v), 0);
    assert_int_equal(v.type, KG_JSON_NUMBER);
    assert_true(kg_slice_eq_cstr(v.raw, "-Infinity"));
}

static kg_json_value_t value_of(const char *text)
{
    kg_json_value_t v;
    assert_int_equal(kg_json_check(kg_slice_cstr(text), KG_JSON_DEPTH_MAX, &v), 0);
    return v;
}

static void iter_yields_members_and_elements(void **state)
{
    (void)state;
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t v;
    kg_json_iter_init(&it, value_of("{ \"a\" : [1,{\"x\":\"]}\"}] , \"b\":\"\\\"\",\"\":null}"));
    assert_true(kg_json_iter_next(&it, &key, &v));
    assert_true(kg_slice_eq_cstr(key, "\"a\""));
    assert_true(kg_slice_eq_cstr(v.raw, "[1,{\"x\":\"]}\"}]"));
    assert_true(kg_json_iter_next(&it, &key, &v));
    assert_true(kg_slice_eq_cstr(v.raw, "\"\\\"\""));
    assert_true(kg_json_iter_next(&it, &key, &v));
    assert_true(kg_slice_eq_cstr(key, "\"\""));
    assert_int_equal(v.type, KG_JSON_NULL);
    assert_false(kg_json_iter_next(&it, &key, &v));
    assert_false(kg_json_iter_next(&it, &key, &v));

    kg_json_iter_init(&it, value_of("[ 1 , -2.5e3,\"x\",[ ],true]"));
    static const char *const want[] = {"1", "-2.5e3", "\"x\"", "[ ]", "true"};
    for (size_t i = 0; i < KG_ARRAY_LEN(want); i++) {
        assert_true(kg_json_iter_next(&it, &key, &v));
        assert_null(key.data);
        assert_true(kg_slice_eq_cstr(v.raw, want[i]));
    }
    assert_false(kg_json_iter_next(&it, NULL, &v));
    kg_json_iter_init(&it, value_of("\"scalar\""));
    assert_false(kg_json_iter_next(&it, NULL, &v));
    kg_json_iter_init(&it, value_of("{}"));
    assert_false(kg_json_iter_next(&it, NULL, &v));
}

static void get_last_duplicate_wins_also_when_escaped(void **state)
{
    (void)state;
    kg_json_value_t v = value_of("{\"a\":1,\"b\":2,\"\\u0061\":3,\"c\":{\"a\":4}}");
    assert_true(kg_slice_eq_cstr(kg_json_get(v, "a").raw, "3"));
    assert_true(kg_slice_eq_cstr(kg_json_get(v, "b").raw, "2"));
    assert_int_equal(kg_json_get(v, "x").type, KG_JSON_ABSENT);
    assert_int_equal(kg_json_get(value_of("[1]"), "a").type, KG_JSON_ABSENT);
    assert_true(kg_slice_eq_cstr(kg_json_get(value_of("{\"\":7}"), "").raw, "7"));
}

static void get_many_in_one_pass(void **state)
{
    (void)state;
    static const char *const names[] = {"x", "none", "y"};
    kg_json_value_t v[3];
    kg_json_get_many(value_of("{\"y\":[],\"x\":true}"), names, v, 3);
    assert_int_equal(v[0].type, KG_JSON_TRUE);
    assert_int_equal(v[1].type, KG_JSON_ABSENT);
    assert_int_equal(v[2].type, KG_JSON_ARRAY);
}

static void key_eq_escapes_decoded(void **state)
{
    (void)state;
    assert_true(kg_json_key_eq(kg_slice_cstr("\"a\\/b\""), "a/b"));
    assert_true(kg_json_key_eq(kg_slice_cstr("\"\\n\\t\\\"\""), "\n\t\""));
    assert_false(kg_json_key_eq(kg_slice_cstr("\"ab\""), "a"));
    assert_false(kg_json_key_eq(kg_slice_cstr("\"a\\u0062\""), "a"));
    assert_false(kg_json_key_eq(kg_slice_cstr("\"a\""), "ab"));
    assert_false(kg_json_key_eq(kg_slice_cstr("\"\\u0161\""), "a"));
    assert_false(kg_json_key_eq(kg_slice_cstr("\"\\u0000\""), ""));
}

static void int_whole_numbers_only(void **state)
{
    (void)state;
    int64_t n = 5;
    assert_int_equal(kg_json_int(value_of("-9223372036854775808"), &n), 0);
    assert_true(n == INT64_MIN);
    assert_int_equal(kg_json_int(value_of("9223372036854775807"), &n), 0);
    assert_true(n == INT64_MAX);
    assert_int_equal(kg_json_int(value_of("9223372036854775808"), &n), -ERANGE);
    assert_int_equal(kg_json_int(value_of("1180591620717411303424"), &n), -ERANGE);
    assert_int_equal(kg_json_int(value_of("3.0"), &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(kg_json_int(value_of("3.5"), &n), -EINVAL);
    assert_int_equal(kg_json_int(value_of("1e400"), &n), -EINVAL);
    assert_int_equal(kg_json_int(value_of("NaN"), &n), -EINVAL);
    assert_int_equal(kg_json_int(value_of("-Infinity"), &n), -EINVAL);
    assert_int_equal(kg_json_int(value_of("\"1\""), &n), -EINVAL);
    assert_int_equal(n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_valid_values_accepted),
        cmocka_unit_test(check_malformed_refused),
        cmocka_unit_test(check_every_prefix_of_an_object_refused),
        cmocka_unit_test(check_depth_at_limit_passes_beyond_refused),
        cmocka_unit_test(check_mixed_nesting_matches_brackets),
        cmocka_unit_test(check_yields_trimmed_value),
        cmocka_unit_test(iter_yields_members_and_elements),
        cmocka_unit_test(get_last_duplicate_wins_also_when_escaped),
        cmocka_unit_test(get_many_in_one_pass),
        cmocka_unit_test(key_eq_escapes_decoded),
        cmocka_unit_test(int_whole_numbers_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
