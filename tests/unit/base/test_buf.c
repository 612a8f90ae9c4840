#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/buf.h"

static void buf_append_keeps_content_and_terminator(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t buf = {0};
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(kg_buf_printf(&buf, "%03u", i), 0);
    }
    assert_int_equal(buf.len, 3000);
    assert_memory_equal(buf.data + 2997, "999", 4);
    assert_int_equal(kg_buf_append(&buf, NULL, 0), 0);
    assert_int_equal(buf.len, 3000);
}

static void buf_reserve_overflow_refused_and_content_kept(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t buf = {0};
    assert_int_equal(kg_buf_append_cstr(&buf, "abc"), 0);
    assert_int_equal(kg_buf_reserve(&buf, SIZE_MAX), -ENOMEM);
    assert_int_equal(kg_buf_reserve(&buf, SIZE_MAX - 3), -ENOMEM);
    assert_string_equal(buf.data, "abc");
}

static void buf_consume_moves_rest_to_front(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t buf = {0};
    assert_int_equal(kg_buf_append_cstr(&buf, "hello"), 0);
    kg_buf_consume(&buf, 2);
    assert_string_equal(buf.data, "llo");
    kg_buf_consume(&buf, 3);
    assert_int_equal(buf.len, 0);
    assert_string_equal(buf.data, "");
}

static void buf_steal_empty_gives_empty_string(void **state)
{
    (void)state;
    kg_buf_t buf = {0};
    size_t len = 7;
    KG_AUTO_FREE char *text = kg_buf_steal(&buf, &len);
    assert_non_null(text);
    assert_int_equal(len, 0);
    assert_string_equal(text, "");
    assert_null(buf.data);
}

static void buf_clear_keeps_memory(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t buf = {0};
    kg_buf_clear(&buf);
    assert_int_equal(kg_buf_append_char(&buf, 'x'), 0);
    size_t cap = buf.cap;
    kg_buf_clear(&buf);
    assert_int_equal(buf.cap, cap);
    assert_string_equal(buf.data, "");
}

static void slice_eq_compares_bytes(void **state)
{
    (void)state;
    assert_true(kg_slice_eq_cstr(kg_slice("abcd", 3), "abc"));
    assert_false(kg_slice_eq_cstr(kg_slice("abcd", 4), "abc"));
    assert_true(kg_slice_eq(kg_slice(NULL, 0), kg_slice("x", 0)));
    assert_false(kg_slice_eq(kg_slice("a\0b", 3), kg_slice("a\0c", 3)));
}

static void take_moves_out(void **state)
{
    (void)state;
    char *a = malloc(1);
    KG_AUTO_FREE char *b = KG_TAKE(a);
    assert_null(a);
    assert_non_null(b);
    int fd = 5;
    assert_int_equal(kg_take_fd(&fd), 5);
    assert_int_equal(fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_append_keeps_content_and_terminator),
        cmocka_unit_test(buf_reserve_overflow_refused_and_content_kept),
        cmocka_unit_test(buf_consume_moves_rest_to_front),
        cmocka_unit_test(buf_steal_empty_gives_empty_string),
        cmocka_unit_test(buf_clear_keeps_memory),
        cmocka_unit_test(slice_eq_compares_bytes),
        cmocka_unit_test(take_moves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
