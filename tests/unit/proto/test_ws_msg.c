#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/ws_msg.h"

static void channel_names(void **state)
{
    (void)state;
    kg_channel_t channel = KG_CHANNEL_SHELL;
    assert_int_equal(kg_channel_parse(kg_slice_cstr("iopub"), &channel), 0);
    assert_int_equal(channel, KG_CHANNEL_IOPUB);
    assert_int_equal(kg_channel_parse(kg_slice_cstr("stdin"), &channel), 0);
    assert_int_equal(channel, KG_CHANNEL_STDIN);
    assert_int_equal(kg_channel_parse(kg_slice_cstr("Shell"), &channel), -ENOENT);
    assert_int_equal(kg_channel_parse(kg_slice_cstr(""), &channel), -ENOENT);
    assert_int_equal(kg_channel_parse(kg_slice("shell\0", 6), &channel), -ENOENT);
    assert_int_equal(channel, KG_CHANNEL_STDIN);
}

static kg_json_value_t checked(const char *text)
{
    kg_json_value_t value = {0};
    assert_int_equal(kg_json_check(kg_slice_cstr(text), KG_JSON_DEPTH_MAX, &value), 0);
    return value;
}

static void clean_part_untouched(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t store = {0};
    kg_slice_t out;
    kg_json_value_t part = checked("{ \"a\":1e400, \"b\":\"\xC3\xA9\\ud800\" }");
    assert_int_equal(kg_ws_clean_part(part, false, &store, &out), 0);
    assert_ptr_equal(out.data, part.raw.data);
    assert_int_equal(out.len, part.raw.len);
    assert_int_equal(store.len, 0);
}

static void unclean_part_repaired(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"{\"a\":NaN}", "{\"a\":null}"},
        {"{\"a\":-Infinity}", "{\"a\":null}"},
        {"{\"a\":\"NaN\"}", "{\"a\":\"NaN\"}"},
        {"{\"a\":\"\xFF\"}", "{\"a\":\"\xEF\xBF\xBD\"}"},
        {"{\"a\":\"\n\"}", "{\"a\":\"\\n\"}"},
        {"{\"a\":\"12345678\x1b\"}", "{\"a\":\"12345678\\u001b\"}"},
        {"{\n\"a\": 1}", "{\"a\":1}"},
    };
    KG_AUTO_BUF kg_buf_t store = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_slice_t out;
        size_t before = store.len;
        assert_int_equal(kg_ws_clean_part(checked(rows[i].in), false, &store, &out), 0);
        assert_true(kg_slice_eq_cstr(out, rows[i].out));
        assert_ptr_equal(out.data, store.data + before);
    }
}

/* At the cap nothing is left out; past it the member that is too deep. */
static void deep_part_shallow_members_kept(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t store = {0};
    kg_slice_t out;
    for (unsigned lists = KG_JSON_DEPTH_MAX - 1; lists <= KG_JSON_DEPTH_MAX; lists++) {
        kg_buf_clear(&text);
        kg_buf_clear(&store);
        assert_int_equal(kg_buf_append_cstr(&text, "{\"a\":1,\"deep\":"), 0);
        for (unsigned i = 0; i < 2 * lists; i++) {
            assert_int_equal(kg_buf_append_char(&text, i < lists ? '[' : ']'), 0);
        }
        assert_int_equal(kg_buf_append_cstr(&text, ",\"z\":NaN}"), 0);
        kg_json_value_t part = {KG_JSON_OBJECT, kg_buf_slice(&text)};
        assert_int_equal(kg_ws_clean_part(part, true, &store, &out), 0);
        assert_int_equal(kg_json_check(out, KG_JSON_DEPTH_MAX, NULL), 0);
        bool fits = lists < KG_JSON_DEPTH_MAX;
        assert_int_equal(strstr(store.data, "deep") != NULL, fits);
        assert_true(fits || kg_slice_eq_cstr(out, "{\"a\":1,\"z\":null}"));
    }
    kg_buf_clear(&store);
    kg_json_value_t broken = {KG_JSON_OBJECT, kg_slice_cstr("{\"a\":[}")};
    assert_int_equal(kg_ws_clean_part(broken, true, &store, &out), 0);
    assert_true(kg_slice_eq_cstr(out, "{}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channel_names),
        cmocka_unit_test(clean_part_untouched),
        cmocka_unit_test(unclean_part_repaired),
        cmocka_unit_test(deep_part_shallow_members_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
