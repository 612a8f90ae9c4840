/* Measuring and cutting canonical escaped text: against the decoded text, at every length. */
#include <string.h>

#include "gateway/base/utf8.h"
#include "gateway/run/text.h"
#include "run_util.h"

/* Every kind of character: plain, short escape, \u00xx, two to four bytes, backslashes in a row. */
static const char sample[] =
    "a\\n\\\\\\\\\\u0000b\xc3\xa9\\\"\\u001b[0m\xe2\x82\xac\\\\n\xf0\x9f\x98\x80z\\\\";

static void decode(const char *data, size_t len, kg_buf_t *out)
{
    kg_buf_t quoted = {0};
    kg_buf_clear(out);
    assert_int_equal(kg_buf_append_char(&quoted, '"'), 0);
    assert_int_equal(kg_buf_append(&quoted, data, len), 0);
    assert_int_equal(kg_buf_append_char(&quoted, '"'), 0);
    kg_json_value_t v;
    assert_int_equal(kg_json_check(kg_buf_slice(&quoted), 4, &v), 0);
    assert_int_equal(kg_json_decode_string(out, v), 0);
    kg_buf_fini(&quoted);
}

static void text_units_sample_are_decoded_bytes(void **state)
{
    (void)state;
    kg_buf_t whole = {0};
    decode(sample, sizeof sample - 1, &whole);
    assert_int_equal(kg_text_units(sample, sizeof sample - 1), whole.len);
    kg_buf_fini(&whole);
}

static void text_split_every_max_cuts_no_character(void **state)
{
    (void)state;
    size_t len = sizeof sample - 1;
    size_t total = kg_text_units(sample, len);
    for (size_t max = 0; max <= total + 1; max++) {
        kg_buf_t head = {0}, tail = {0}, whole = {0};
        size_t units, back;
        size_t at = kg_text_split(sample, len, max, &units);
        decode(sample, at, &head);
        decode(sample + at, len - at, &tail);
        decode(sample, len, &whole);
        assert_int_equal(head.len, units);
        assert_true(units <= max && (units + 3 >= max || at == len));
        assert_true(kg_utf8_valid(head.data ? head.data : "", head.len));
        assert_int_equal(head.len + tail.len, whole.len);
        size_t from = kg_text_suffix(sample, len, max, &back);
        decode(sample + from, len - from, &tail);
        assert_int_equal(tail.len, back);
        assert_true(back <= max && (back + 3 >= max || from == 0));
        assert_true(kg_utf8_valid(tail.data ? tail.data : "", tail.len));
        kg_buf_fini(&head);
        kg_buf_fini(&tail);
        kg_buf_fini(&whole);
    }
}

/* Raw JSON text as kernels write it, cut at any place: the pieces' copies are the whole's copy. */
static void raw_floor_every_cut_copies_the_same(void **state)
{
    (void)state;
    static const char *const raws[] = {
        "abc\\ud83d\\ude00def\\uD83D\\uDE00",
        "\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\u0041\\n\\\\u",
        "\\ud83d\\ud83d\\ude00 lone \\ud83d tail",
        "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80xyz",
        "\\u00e9\\/\\b\\u0000\\u001B[0m0123456789",
        "0123456789ab\\\"\x80\x80\x80,\\\"x\\\":1",
        "0123456789\\\"\x80\x80\x80\x80\x80,\\n\x80\x80",
        "\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    };
    for (size_t r = 0; r < KG_ARRAY_LEN(raws); r++) {
        size_t len = strlen(raws[r]);
        kg_buf_t quoted = {0}, whole = {0};
        assert_int_equal(kg_buf_printf(&quoted, "\"%s\"", raws[r]), 0);
        kg_json_value_t v = {KG_JSON_STRING, kg_buf_slice(&quoted)};
        assert_int_equal(kg_json_copy_string_body(&whole, v), 0);
        for (size_t max = 16; max <= len; max++) {
            kg_buf_t pieces = {0};
            for (size_t at = 0; at < len;) {
                size_t n = kg_text_raw_floor(raws[r] + at, len - at, max);
                assert_true(n > 0 && n <= len - at);
                kg_json_value_t part = {KG_JSON_STRING, kg_slice(quoted.data + at, n + 2)};
                assert_int_equal(kg_json_copy_string_body(&pieces, part), 0);
                at += n;
            }
            if (raws[r][0] != '\xff') { /* of bad bytes, the number of marks may differ */
                assert_int_equal(pieces.len, whole.len);
                assert_memory_equal(pieces.data, whole.data, whole.len);
            }
            kg_buf_fini(&pieces);
        }
        kg_buf_fini(&quoted);
        kg_buf_fini(&whole);
    }
}

static void text_ends_nl_tells_escape_from_letter(void **state)
{
    (void)state;
    assert_true(kg_text_ends_nl("a\\n", 3));
    assert_true(kg_text_ends_nl("\\n", 2));
    assert_true(kg_text_ends_nl("\\\\\\n", 4));
    assert_false(kg_text_ends_nl("a\\\\n", 4));
    assert_false(kg_text_ends_nl("n", 1));
    assert_false(kg_text_ends_nl("", 0));
}

static void text_from_html_broken_input_ends(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "<", "a<b", "<script>", "<script", "&", "&amp", "<style></style", "\\", "a\\"};
    for (size_t i = 0; i < KG_ARRAY_LEN(inputs); i++) {
        kg_buf_t out = {0};
        assert_int_equal(kg_text_from_html(&out, inputs[i], strlen(inputs[i])), 0);
        kg_buf_fini(&out);
    }
}

static void ring_push_any_pieces_holds_the_end(void **state)
{
    (void)state;
    size_t len = sizeof sample - 1;
    for (size_t max = 1; max < 24; max++) {
        kg_text_ring_t ring = {0};
        kg_buf_t all = {0};
        for (unsigned i = 0; i < 7; i++) {
            size_t units;
            size_t n = kg_text_split(sample, len, (size_t)i * 5, &units);
            assert_int_equal(kg_text_ring_push(&ring, sample, n, max), 0);
            assert_int_equal(kg_buf_append(&all, sample, n), 0);
        }
        kg_text_ring_trim(&ring, max);
        assert_true(ring.units <= max && ring.units + 3 >= max);
        assert_memory_equal(ring.buf.data ? ring.buf.data : "", all.data + all.len - ring.buf.len,
                            ring.buf.len);
        kg_text_ring_fini(&ring);
        kg_buf_fini(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_units_sample_are_decoded_bytes),
        cmocka_unit_test(text_split_every_max_cuts_no_character),
        cmocka_unit_test(raw_floor_every_cut_copies_the_same),
        cmocka_unit_test(text_ends_nl_tells_escape_from_letter),
        cmocka_unit_test(text_from_html_broken_input_ends),
        cmocka_unit_test(ring_push_any_pieces_holds_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
