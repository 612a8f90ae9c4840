#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/utf8.h"

#define R "\xEF\xBF\xBD"

static void utf8_valid_edges_accepted(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",
        "plain ascii, longer than one word of eight bytes",
        "\xC2\x80",
        "\xDF\xBF",
        "\xE0\xA0\x80",
        "\xED\x9F\xBF",
        "\xEE\x80\x80",
        "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80",
        "\xF4\x8F\xBF\xBF",
        "0123456\xC3\xA9",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_true(kg_utf8_valid(good[i], strlen(good[i])));
    }
}

static void utf8_valid_prefix_bad_sequence_stops_before_it(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xBF",         "\xC0\xAF",         "\xC1\xBF",         "\xC2",
        "\xC2\x20",     "\xE0\x9F\xBF", "\xED\xA0\x80",     "\xED\xBF\xBF",     "\xE2\x82",
        "\xE2\x82\x20", "\xF0\x8F\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        char text[32] = "twelve bytes";
        memcpy(text + 12, bad[i], strlen(bad[i]));
        assert_int_equal(kg_utf8_valid_prefix(text, 12 + strlen(bad[i])), 12);
    }
}

/* Unicode chapter 3.9, table 3-8 and 3-11: one replacement for each maximal subpart. */
static void utf8_repair_maximal_subparts_replaced_once_each(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
        {"a\xC3", "a" R},
        {"\xE2\x82\xAC\xE2\x82", "\xE2\x82\xAC" R},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF kg_buf_t out = {0};
        assert_int_equal(kg_utf8_repair(&out, cases[i][0], strlen(cases[i][0])), 0);
        assert_string_equal(out.data, cases[i][1]);
    }
}

static void utf8_floor_never_cuts_a_code_point(void **state)
{
    (void)state;
    const char *text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t max = 0; max < KG_ARRAY_LEN(want); max++) {
        assert_int_equal(kg_utf8_floor(text, 11, max), want[max]);
    }
    assert_int_equal(kg_utf8_floor("\x80\x80\x80\x80\x80\x80", 6, 5), 5);
}

static void utf8_count_and_offset_by_code_points(void **state)
{
    (void)state;
    const char *text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    assert_int_equal(kg_utf8_count(text, 11), 5);
    assert_int_equal(kg_utf8_offset(text, 11, 0), 0);
    assert_int_equal(kg_utf8_offset(text, 11, 3), 6);
    assert_int_equal(kg_utf8_offset(text, 11, 4), 10);
    assert_int_equal(kg_utf8_offset(text, 11, 5), 11);
    assert_int_equal(kg_utf8_offset(text, 11, 99), 11);
}

/* Every cut of a text in two or three chunks gives what one push gives. */
static void utf8_stream_any_cut_equals_repair(void **state)
{
    (void)state;
    const char text[] =
        "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xC3\xE2\x82z\xED\xA0\x80\xF0\x9F\x98";
    size_t len = sizeof text - 1;
    KG_AUTO_BUF kg_buf_t want = {0};
    assert_int_equal(kg_utf8_repair(&want, text, len), 0);
    for (size_t a = 0; a <= len; a++) {
        for (size_t b = a; b <= len; b++) {
            kg_utf8_stream_t s = {0};
            KG_AUTO_BUF kg_buf_t out = {0};
            assert_int_equal(kg_utf8_stream_push(&s, &out, text, a), 0);
            assert_int_equal(kg_utf8_stream_push(&s, &out, text + a, b - a), 0);
            assert_int_equal(kg_utf8_stream_push(&s, &out, text + b, len - b), 0);
            assert_int_equal(kg_utf8_stream_end(&s, &out), 0);
            assert_string_equal(out.data, want.data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_valid_edges_accepted),
        cmocka_unit_test(utf8_valid_prefix_bad_sequence_stops_before_it),
        cmocka_unit_test(utf8_repair_maximal_subparts_replaced_once_each),
        cmocka_unit_test(utf8_floor_never_cuts_a_code_point),
        cmocka_unit_test(utf8_count_and_offset_by_code_points),
        cmocka_unit_test(utf8_stream_any_cut_equals_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
