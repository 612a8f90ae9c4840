/* Headers and parameters about files: what is understood, what is passed over, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "gateway/api/fs_parse.h"

static void ranges_are_understood_or_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t size;
        int rc;
        uint64_t first, length;
    } rows[] = {
        {"bytes=0-0", 10, 1, 0, 1},
        {"bytes=2-", 10, 1, 2, 8},
        {"bytes=2-5", 10, 1, 2, 4},
        {"Bytes= 2-5 ", 10, 1, 2, 4},
        {"bytes=2-99", 10, 1, 2, 8},
        {"bytes=-3", 10, 1, 7, 3},
        {"bytes=-99", 10, 1, 0, 10},
        {"bytes=9-9", 10, 1, 9, 1},
        {"bytes=10-", 10, -ERANGE, 0, 0},
        {"bytes=-0", 10, -ERANGE, 0, 0},
        {"bytes=0-", 0, -ERANGE, 0, 0},
        {"bytes=-1", 0, -ERANGE, 0, 0},
        {"bytes=5-2", 10, 0, 0, 0},
        {"bytes=0-1,3-4", 10, 0, 0, 0},
        {"bytes=", 10, 0, 0, 0},
        {"bytes=-", 10, 0, 0, 0},
        {"bytes=a-b", 10, 0, 0, 0},
        {"bytes=1-2x", 10, 0, 0, 0},
        {"bytes=2-18446744073709551615", 10, 1, 2, 8}, /* UINT64_MAX, and one past it */
        {"bytes=2-18446744073709551616", 10, 1, 2, 8},
        {"bytes=0-99999999999999999999", 10, 1, 0, 10},
        {"bytes=-99999999999999999999", 10, 1, 0, 10},
        {"bytes=18446744073709551615-", 10, -ERANGE, 0, 0},
        {"bytes=18446744073709551616-", 10, -ERANGE, 0, 0},
        {"bytes=99999999999999999999-", 10, -ERANGE, 0, 0},
        {"bytes=99999999999999999998-99999999999999999999", 10, -ERANGE, 0, 0},
        {"bytes=99999999999999999999-5", 10, 0, 0, 0},
        {"bytes=0-99999999999999999999x", 10, 0, 0, 0},
        {"lines=0-1", 10, 0, 0, 0},
        {"", 10, 0, 0, 0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        uint64_t first = 0;
        uint64_t length = 0;
        int rc = kg_range_parse(rows[i].text, rows[i].size, &first, &length);
        if (rc != rows[i].rc || first != rows[i].first || length != rows[i].length) {
            fail_msg("%s: %d %llu %llu", rows[i].text, rc, (unsigned long long)first,
                     (unsigned long long)length);
        }
    }
}

static void tags_are_found_in_lists(void **state)
{
    (void)state;
    assert_true(kg_etag_listed("\"a\"", "\"a\""));
    assert_true(kg_etag_listed("\"b\", W/\"a\"", "\"a\""));
    assert_true(kg_etag_listed(" \"b\",\"a\" ", "W/\"a\""));
    assert_true(kg_etag_listed("*", "\"a\""));
    assert_false(kg_etag_listed("\"ab\"", "\"a\""));
    assert_false(kg_etag_listed("a", "\"a\""));
    assert_false(kg_etag_listed("\"a", "\"a\""));
    assert_false(kg_etag_listed("", "\"a\""));
}

static void dates_go_both_ways(void **state)
{
    (void)state;
    char text[KG_HTTP_DATE_MAX];
    int64_t s = 0;
    assert_int_equal(kg_http_date_parse("Sun, 06 Nov 1994 08:49:37 GMT", &s), 0);
    assert_int_equal(s, 784111777);
    kg_http_date_format(s, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    static const char *const bad[] = {"",
                                      "Sun, 06 Nov 1994 08:49:37",
                                      "Sun, 06 Nov 1994 08:49:37 CET",
                                      "Sunday, 06-Nov-94 08:49:37 GMT",
                                      "Sun Nov  6 08:49:37 1994",
                                      "Sun, 00 Nov 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1994 25:49:37 GMT",
                                      "Sun, 06 Nix 1994 08:49:37 GMT",
                                      "Sun, 0x Nov 1994 08:49:37 GMT"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(kg_http_date_parse(bad[i], &s), -EINVAL);
    }
    kg_http_date_format(INT64_MAX, text);
    assert_string_equal(text, "");
}

static void modes_are_octal(void **state)
{
    (void)state;
    uint32_t mode = 0;
    assert_int_equal(kg_mode_parse("0644", &mode), 0);
    assert_int_equal(mode, 0644);
    assert_int_equal(kg_mode_parse("0o4755", &mode), 0);
    assert_int_equal(mode, 04755);
    static const char *const bad[] = {"", "8", "rwx", "77777", "-644", "0x1", "644 "};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(kg_mode_parse(bad[i], &mode), -EINVAL);
    }
}

static void base64_is_taken_in_all_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes;
    } good[] = {{"", ""},       {"/w==", "\xff"}, {"/w", "\xff"},
                {"_w", "\xff"}, {"_w==", "\xff"}, {"aGVsbG8=", "hello"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        KG_AUTO_BUF kg_buf_t out = {0};
        assert_int_equal(kg_base64_decode(good[i].text, strlen(good[i].text), &out), 0);
        assert_int_equal(out.len, strlen(good[i].bytes));
        assert_memory_equal(out.data, good[i].bytes, out.len);
    }
    static const char *const bad[] = {"=", "a", "/w=", "a b", "aGVsbG8=x", "a-/b"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        KG_AUTO_BUF kg_buf_t out = {0};
        assert_int_equal(kg_base64_decode(bad[i], strlen(bad[i]), &out), -EINVAL);
        assert_int_equal(out.len, 0);
    }
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(kg_base64_encode("\xff\xfe", 2, &out), 0);
    assert_string_equal(out.data, "//4=");
}

static void metadata_is_checked_whole(void **state)
{
    (void)state;
    kg_err_t err = {0};
    static const char *const good[] = {"", "path YS9i", "path YS9i,is_private",
                                       " path  YS9i , mode MDY0NA== ", "a ,b "};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_int_equal(kg_tus_metadata_check(good[i], &err), 0);
    }
    static const char *const bad[] = {",", "path ??",
                                      "path YQ==,path Yg==", "pa\x01th YQ==", "path YQ== YQ=="};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        err = (kg_err_t){0};
        assert_int_equal(kg_tus_metadata_check(bad[i], &err), -EINVAL);
        assert_string_equal(err.pointer, "/upload_metadata");
    }
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_true(kg_tus_metadata_get("x YQ==, path YS9i", "path", &out));
    assert_string_equal(out.data, "a/b");
    assert_false(kg_tus_metadata_get("x YQ==", "path", &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_understood_or_passed_over),
        cmocka_unit_test(tags_are_found_in_lists),
        cmocka_unit_test(dates_go_both_ways),
        cmocka_unit_test(modes_are_octal),
        cmocka_unit_test(base64_is_taken_in_all_forms),
        cmocka_unit_test(metadata_is_checked_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
