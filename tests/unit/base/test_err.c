#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/base/err.h"
#include "gateway/base/utf8.h"

static void err_set_fills_and_returns_errno(void **state)
{
    (void)state;
    kg_err_t err = {0};
    kg_err_hint(&err, "old");
    assert_int_equal(kg_err_set(&err, KG_ERR_QUEUE_FULL, "%d runs", 3), -ENOBUFS);
    assert_int_equal(err.code, KG_ERR_QUEUE_FULL);
    assert_string_equal(err.message, "3 runs");
    assert_string_equal(err.hint, "");
    assert_string_equal(kg_err_name(err.code), "queue_full");
    assert_int_equal(kg_err_status(err.code), 429);
    assert_int_equal(kg_err_set(NULL, KG_ERR_BUSY, "x"), -EBUSY);
}

static void err_wrap_puts_context_first(void **state)
{
    (void)state;
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_CONFIG, "unknown key");
    assert_int_equal(kg_err_wrap(&err, "config %s", "/etc/x"), -EINVAL);
    assert_string_equal(err.message, "config /etc/x: unknown key");
    assert_int_equal(err.code, KG_ERR_CONFIG);
    assert_int_equal(kg_err_wrap(NULL, "x"), -EIO);
}

static void err_wrap_without_reason_is_internal(void **state)
{
    (void)state;
    kg_err_t err = {0};
    assert_int_equal(kg_err_wrap(&err, "store"), -EIO);
    assert_int_equal(err.code, KG_ERR_INTERNAL);
    assert_string_equal(err.message, "store");
}

static void err_hint_and_pointer_kept(void **state)
{
    (void)state;
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INVALID_REQUEST, "bad");
    kg_err_hint(&err, "try %d", 5);
    kg_err_pointer(&err, "/%s", "code");
    kg_err_hint(NULL, "x");
    kg_err_pointer(NULL, "x");
    assert_string_equal(err.hint, "try 5");
    assert_string_equal(err.pointer, "/code");
}

static void err_set_long_text_cut_at_code_point(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 4; shift++) {
        char text[1024] = "xyz";
        size_t at = shift;
        while (at + 4 < sizeof text) {
            memcpy(text + at, "\xF0\x9F\x98\x80", 4);
            at += 4;
        }
        text[at] = '\0';
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "%s", text);
        size_t len = strlen(err.message);
        assert_in_range(len, sizeof err.message - 4, sizeof err.message - 1);
        assert_true(kg_utf8_valid(err.message, len));
        (void)kg_err_wrap(&err, "w");
        assert_true(kg_utf8_valid(err.message, strlen(err.message)));
        assert_true(strlen(err.message) < sizeof err.message);
    }
}

static void err_set_bad_bytes_replaced(void **state)
{
    (void)state;
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "a\xFF\xC3z\xC3\xA9\xE2\x82");
    assert_string_equal(err.message, "a??z\xC3\xA9??");
}

static void err_table_every_code_has_name_status_errno(void **state)
{
    (void)state;
    for (unsigned i = 1; i < KG_ERR_COUNT; i++) {
        kg_err_code_t code = (kg_err_code_t)i;
        assert_true(strlen(kg_err_name(code)) > 0);
        assert_in_range(kg_err_status(code), 400, 599);
        assert_in_range(kg_err_errno(code), 1, 4095);
        for (unsigned j = 1; j < i; j++) {
            assert_string_not_equal(kg_err_name(code), kg_err_name((kg_err_code_t)j));
        }
    }
}

static void err_from_errno_either_sign(void **state)
{
    (void)state;
    static const kg_err_code_t whole[] = {
        KG_ERR_OUT_OF_MEMORY,   KG_ERR_STORAGE_FULL,  KG_ERR_QUOTA_EXCEEDED, KG_ERR_QUEUE_FULL,
        KG_ERR_KERNEL_PROTOCOL, KG_ERR_NOT_SUPPORTED, KG_ERR_DRAINING,
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(whole); i++) {
        assert_int_equal(kg_err_from_errno(-kg_err_errno(whole[i])), whole[i]);
        assert_int_equal(kg_err_from_errno(kg_err_errno(whole[i])), whole[i]);
    }
    assert_int_equal(kg_err_from_errno(-E2BIG), KG_ERR_TOO_LARGE);
    assert_int_equal(kg_err_from_errno(-EPIPE), KG_ERR_INTERNAL);
    assert_int_equal(kg_err_from_errno(0), KG_ERR_NONE);
}

static void every_code_has_a_hint(void **state)
{
    (void)state;
    for (unsigned i = 1; i < KG_ERR_COUNT; i++) {
        kg_err_t err = {.code = (kg_err_code_t)i};
        const char *usual = kg_err_hint_of(&err);
        assert_true(usual[0] != '\0' && strlen(usual) < sizeof err.hint);
        kg_err_hint(&err, "closer");
        assert_string_equal(kg_err_hint_of(&err), "closer");
    }
    assert_string_equal(kg_err_hint_of(&(kg_err_t){0}), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_set_fills_and_returns_errno),
        cmocka_unit_test(err_wrap_puts_context_first),
        cmocka_unit_test(err_wrap_without_reason_is_internal),
        cmocka_unit_test(err_hint_and_pointer_kept),
        cmocka_unit_test(err_set_long_text_cut_at_code_point),
        cmocka_unit_test(err_set_bad_bytes_replaced),
        cmocka_unit_test(err_table_every_code_has_name_status_errno),
        cmocka_unit_test(err_from_errno_either_sign),
        cmocka_unit_test(every_code_has_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
