#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/json_scan.h"

#define E "\\u001b"

static const char *const strip_cases[][2] = {
    {"plain", "plain"},
    {"", ""},
    {E "[0;31mred" E "[0m", "red"},
    {"a" E "[2Kb" E "[?25lc", "abc"},
    {E "]0;title\\u0007text", "text"},
    {E "]8;;http://x" E "\\\\link" E "]8;;" E "\\\\", "link"},
    {E "(Btext" E "=more" E ">", "textmore"},
    {E "[1;2", ""},
    {E "]0;never closed", ""},
    {E, ""},
    /* malformed: only the sequence goes */
    {E "[12\\nnext", "\\nnext"},
    {E "[12\xC3\xA9t\xC3\xA9", "\xC3\xA9t\xC3\xA9"},
    {E "\xC3\xA9", "\xC3\xA9"},
    {E "\\nx", "\\nx"},
    {E E "[1mx", "x"},
    {E "[1" E "[2my", "y"},
    {E "]0;lost\\nline", "\\nline"},
    {E "]0;t" E "[1mz", "z"},
    /* a backslash and a quote are bytes of sequences too, and no ESC hides behind a backslash */
    {E "[3\\\\x", "x"},
    {E "[\\\"mx", "x"},
    {"\\\\u001b[1mx", "\\\\u001b[1mx"},
    {"\\\\" E "[1mx", "\\\\x"},
    {"a\\tb\\u0000" E "[1m\\u0008", "a\\tb\\u0000\\u0008"},
    {E "Pq#0" E "\\\\s", "s"},
};

static void strip_removes_sequences_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(strip_cases); i++) {
        kg_ansi_strip_t s = {0};
        KG_AUTO_BUF kg_buf_t out = {0};
        const char *text = strip_cases[i][0];
        assert_int_equal(kg_ansi_strip_escaped(&s, &out, text, strlen(text)), 0);
        assert_string_equal(out.data, strip_cases[i][1]);
    }
}

static void strip_state_survives_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(strip_cases); i++) {
        const char *text = strip_cases[i][0];
        size_t len = strlen(text);
        for (size_t max = 0; max <= len; max++) {
            size_t cut = kg_json_escaped_floor(text, len, max);
            kg_ansi_strip_t s = {0};
            KG_AUTO_BUF kg_buf_t out = {0};
            assert_int_equal(kg_ansi_strip_escaped(&s, &out, text, cut), 0);
            assert_int_equal(kg_ansi_strip_escaped(&s, &out, text + cut, len - cut), 0);
            assert_string_equal(out.data, strip_cases[i][1]);
        }
    }
}

static void escaped_floor_both_halves_are_whole(void **state)
{
    (void)state;
    const char text[] =
        "ab\\n\\\\\\\\\\\\n\\u001b\xC3\xA9\\\\\\u0000\xF0\x9F\x98\x80\\\"u12345\\\\u0061";
    size_t len = sizeof text - 1;
    size_t last = 0;
    for (size_t max = 0; max <= len; max++) {
        size_t n = kg_json_escaped_floor(text, len, max);
        assert_true(n <= max && max - n < 6 && n >= last);
        last = n;
        for (unsigned half = 0; half < 2; half++) {
            KG_AUTO_BUF kg_buf_t quoted = {0};
            KG_AUTO_BUF kg_buf_t again = {0};
            kg_json_value_t v;
            assert_int_equal(kg_buf_append_char(&quoted, '"'), 0);
            assert_int_equal(kg_buf_append(&quoted, half ? text + n : text, half ? len - n : n), 0);
            assert_int_equal(kg_buf_append_char(&quoted, '"'), 0);
            assert_int_equal(kg_json_check(kg_buf_slice(&quoted), 1, &v), 0);
            assert_int_equal(kg_json_copy(&again, v), 0);
            assert_string_equal(again.data, quoted.data);
        }
    }
    assert_int_equal(last, len);
}

static void escaped_floor_exact_positions(void **state)
{
    (void)state;
    assert_int_equal(kg_json_escaped_floor("a\\nb", 4, 2), 1);
    assert_int_equal(kg_json_escaped_floor("a\\nb", 4, 3), 3);
    assert_int_equal(kg_json_escaped_floor("\\u001bx", 7, 5), 0);
    assert_int_equal(kg_json_escaped_floor("\\u001bx", 7, 6), 6);
    assert_int_equal(kg_json_escaped_floor("\\\\\\\\x", 5, 3), 2);
    assert_int_equal(kg_json_escaped_floor("\\\\u001b", 7, 4), 4);
    assert_int_equal(kg_json_escaped_floor("abc", 3, 99), 3);
    assert_int_equal(kg_json_escaped_floor("abc", 3, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strip_removes_sequences_only),
        cmocka_unit_test(strip_state_survives_cuts),
        cmocka_unit_test(escaped_floor_both_halves_are_whole),
        cmocka_unit_test(escaped_floor_exact_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
