#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/clock.h"
#include "proto/json_scan.h"

#define R "\xEF\xBF\xBD"

static void copied(const char *text, size_t len, kg_buf_t *out)
{
    kg_json_value_t v;
    kg_buf_clear(out);
    assert_int_equal(kg_json_check(kg_slice(text, len), KG_JSON_DEPTH_MAX, &v), 0);
    assert_int_equal(kg_json_copy(out, v), 0);
}

static void copy_tree_parser_refusals_repaired(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"a\" : 1 ,\n \"b\":[ ]}", "{\"a\":1,\"b\":[]}"},
        {"\"\\u0000\"", "\"\\u0000\""},
        {"[1180591620717411303424,-0,1e400,1E+2,0.10]",
         "[1180591620717411303424,-0,1e400,1E+2,0.10]"},
        {"[NaN,Infinity,-Infinity,1]", "[null,null,null,1]"},
        {"NaN", "null"},
        {"\"\\ud800\"", "\"" R "\""},
        {"\"\\udc00\\ud800x\"", "\"" R R "x\""},
        {"\"\\ud800\\ud83d\\ude00\"", "\"" R "\xF0\x9F\x98\x80\""},
        {"\"\\ud83d\\u0041\"", "\"" R "A\""},
        {"\"\\ud83d\\n\"", "\"" R "\\n\""},
        {"\"\xED\xA0\x80\"", "\"" R R R "\""},
        {"\"a\xFFz\xC3\"", "\"a" R "z" R "\""},
        {"\"\xE2\x82\\u00e9\"", "\"" R "\xC3\xA9\""},
        {"\"a\nb\tc\x01\x1B[0m\x7F\"", "\"a\\nb\\tc\\u0001\\u001b[0m\x7F\""},
        {"\"\\u001B\\u001b\\u000A\\u000a\\u0022\\u005c\\/\"", "\"\\u001b\\u001b\\n\\n\\\"\\\\/\""},
        {"\"\\u00e9\\u20AC\\ud83d\\ude00\"", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\""},
        {"\"\xE2\x80\xA8\\u2029\"", "\"\xE2\x80\xA8\xE2\x80\xA9\""},
        {"\"\\b\\f\\n\\r\\t\\\"\\\\\"", "\"\\b\\f\\n\\r\\t\\\"\\\\\""},
        {"\"\\u0008\\u000b\\u000c\\u000d\\u0009\"", "\"\\b\\u000b\\f\\r\\t\""},
        {"{\"\":1,\"\\u0061\":2}", "{\"\":1,\"a\":2}"},
    };
    KG_AUTO_BUF kg_buf_t out = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        copied(cases[i][0], strlen(cases[i][0]), &out);
        assert_string_equal(out.data, cases[i][1]);
    }
}

static void copy_raw_nul_escaped(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    copied("\"a\0b\"", 5, &out);
    assert_string_equal(out.data, "\"a\\u0000b\"");
}

static void copy_duplicate_keys_last_kept(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"a\":1,\"a\":2}", "{\"a\":2}"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "{\"b\":2,\"a\":3}"},
        {"{\"a\":1,\"\\u0061\":2,\"a\":3,\"b\":4}", "{\"a\":3,\"b\":4}"},
        {"{\"x\":0,\"a\":1,\"a\":2,\"y\":3}", "{\"x\":0,\"a\":2,\"y\":3}"},
        {"{\"\":1,\"\":2}", "{\"\":2}"},
        {"{\"o\":{\"a\":1,\"a\":2},\"o\":{\"a\":[{\"z\":1,\"z\":2}],\"b\":1}}",
         "{\"o\":{\"a\":[{\"z\":2}],\"b\":1}}"},
        {"[{\"a\":1},{\"a\":1,\"a\":2},{\"a\":1}]", "[{\"a\":1},{\"a\":2},{\"a\":1}]"},
        /* equal once repaired */
        {"{\"\xFF\":1,\"\\ud800\":2}", "{\"" R "\":2}"},
        {"{\"a\":1,\"A\":2,\"aa\":3}", "{\"a\":1,\"A\":2,\"aa\":3}"},
    };
    KG_AUTO_BUF kg_buf_t out = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        copied(cases[i][0], strlen(cases[i][0]), &out);
        assert_string_equal(out.data, cases[i][1]);
    }
}

/* n members k0..k(n-1), then the first ones once more. */
static void many_members(kg_buf_t *text, size_t n, size_t again)
{
    assert_int_equal(kg_buf_append_char(text, '{'), 0);
    for (size_t i = 0; i < n + again; i++) {
        size_t key = i % n;
        assert_int_equal(kg_buf_printf(text, "%s\"k%zu\":%zu", i ? "," : "", key, i), 0);
    }
    assert_int_equal(kg_buf_append_char(text, '}'), 0);
}

static void copy_duplicates_among_many_found(void **state)
{
    (void)state;
    static const size_t counts[] = {63, 64, 65, 1000, 20000};
    for (size_t i = 0; i < KG_ARRAY_LEN(counts); i++) {
        KG_AUTO_BUF kg_buf_t text = {0};
        KG_AUTO_BUF kg_buf_t out = {0};
        many_members(&text, counts[i], 10);
        copied(text.data, text.len, &out);
        kg_json_value_t v;
        assert_int_equal(kg_json_check(kg_buf_slice(&out), 8, &v), 0);
        kg_json_iter_t it;
        kg_json_value_t member;
        size_t n = 0;
        kg_json_iter_init(&it, v);
        while (kg_json_iter_next(&it, NULL, &member)) {
            int64_t number;
            assert_int_equal(kg_json_int(member, &number), 0);
            assert_int_equal(number, n + 10); /* 0..9 are cut out, the rest is in order */
            n++;
        }
        assert_int_equal(n, counts[i]);
    }
}

static void copy_a_million_members_not_quadratic(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    many_members(&text, 500000, 500000);
    uint64_t start = kg_now_ns();
    copied(text.data, text.len, &out);
    assert_true(kg_now_ns() - start < 20 * KG_NS_PER_S);
    assert_true(out.len < text.len);
}

static void copy_beyond_remembered_members_keeps_all(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    many_members(&text, (1 << 20) - 4, 5);
    copied(text.data, text.len, &out);
    assert_true(out.len == text.len);
    assert_memory_equal(out.data, text.data, text.len);
}

static void copy_is_idempotent(void **state)
{
    (void)state;
    const char text[] = "{\"a\\ud800\":[NaN,\"\\u001B\xFF\\/\"],\"a\\ud801\":{\"\\u0007\":1.50}}";
    KG_AUTO_BUF kg_buf_t once = {0};
    KG_AUTO_BUF kg_buf_t twice = {0};
    copied(text, sizeof text - 1, &once);
    copied(once.data, once.len, &twice);
    assert_string_equal(once.data, twice.data);
}

static void copy_unchecked_text_refused_and_output_kept(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(kg_buf_append_cstr(&out, "before"), 0);
    kg_json_value_t v = {KG_JSON_OBJECT, kg_slice_cstr("{\"a\":1,]")};
    assert_int_equal(kg_json_copy(&out, v), -EBADMSG);
    assert_int_equal(out.len, 6);
    assert_int_equal(kg_json_copy(&out, (kg_json_value_t){0}), -EINVAL);
    assert_int_equal(out.len, 6);
}

static void copy_appends_behind_any_last_character(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(kg_buf_append_cstr(&out, "x"), 0);
    kg_json_value_t v = {KG_JSON_ARRAY, kg_slice_cstr("[\"{\",\"[\",\":\",1]")};
    assert_int_equal(kg_json_copy(&out, v), 0);
    assert_string_equal(out.data, "x[\"{\",\"[\",\":\",1]");
}

static void string_body_and_decode(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_json_value_t v = {KG_JSON_STRING, kg_slice_cstr("\"a\\n\\u0000\\ud83d\\ude00\\udead\\/\"")};
    assert_int_equal(kg_json_copy_string_body(&out, v), 0);
    assert_string_equal(out.data, "a\\n\\u0000\xF0\x9F\x98\x80" R "/");
    kg_buf_clear(&out);
    assert_int_equal(kg_json_decode_string(&out, v), 0);
    assert_int_equal(out.len, 11);
    assert_memory_equal(out.data, "a\n\0\xF0\x9F\x98\x80" R "/", 11);
    kg_buf_clear(&out);
    assert_int_equal(kg_json_decode_string(&out, (kg_json_value_t){KG_JSON_NULL, {0}}), 0);
    assert_int_equal(out.len, 0);
}

static void escape_and_quote_bytes(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    const char bytes[] = "say \"hi\"\\\n\r\t\b\f\0\x1B\x7F\xC3\xA9\xFF/";
    assert_int_equal(kg_json_quote(&out, bytes, sizeof bytes - 1), 0);
    assert_string_equal(out.data,
                        "\"say \\\"hi\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001b\x7F\xC3\xA9" R "/\"");
    kg_buf_clear(&out);
    assert_int_equal(kg_json_quote_cstr(&out, NULL), 0);
    assert_int_equal(kg_json_quote_cstr(&out, ""), 0);
    assert_string_equal(out.data, "null\"\"");
}

/* Escaping and decoding give back what went in, at every offset against the word size. */
static void escape_decode_round_trip(void **state)
{
    (void)state;
    for (size_t len = 0; len < 40; len++) {
        for (unsigned c = 0; c < 0x80; c++) {
            char text[48];
            memset(text, 'x', sizeof text);
            text[len / 2] = (char)c;
            KG_AUTO_BUF kg_buf_t quoted = {0};
            KG_AUTO_BUF kg_buf_t back = {0};
            kg_json_value_t v;
            assert_int_equal(kg_json_quote(&quoted, text, len), 0);
            assert_int_equal(kg_json_check(kg_buf_slice(&quoted), 1, &v), 0);
            assert_int_equal(kg_json_decode_string(&back, v), 0);
            assert_int_equal(back.len, len);
            assert_memory_equal(back.data, text, len);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_tree_parser_refusals_repaired),
        cmocka_unit_test(copy_raw_nul_escaped),
        cmocka_unit_test(copy_duplicate_keys_last_kept),
        cmocka_unit_test(copy_duplicates_among_many_found),
        cmocka_unit_test(copy_a_million_members_not_quadratic),
        cmocka_unit_test(copy_beyond_remembered_members_keeps_all),
        cmocka_unit_test(copy_is_idempotent),
        cmocka_unit_test(copy_unchecked_text_refused_and_output_kept),
        cmocka_unit_test(copy_appends_behind_any_last_character),
        cmocka_unit_test(string_body_and_decode),
        cmocka_unit_test(escape_and_quote_bytes),
        cmocka_unit_test(escape_decode_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
