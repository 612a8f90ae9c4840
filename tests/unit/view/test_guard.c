/* Who may speak to us from where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/view/guard.h"

static const char *const origins[] = {"https://app.example"};
static const char *const hosts[] = {"box.lan", "other.lan:99"};
static const kg_guard_t keyless = {true, origins, 1, hosts, 2};
static const kg_guard_t keyed = {false, origins, 1, NULL, 0};

static kg_err_code_t check(const kg_guard_t *guard, const char *host, const char *origin)
{
    kg_err_t err = {0};
    kg_guard_head_t head = {.host = kg_slice_cstr(host), .origin = kg_slice_cstr(origin)};
    (void)kg_guard_check(guard, &head, &err);
    return err.code;
}

static void keyless_takes_loopback_hosts_alone(void **state)
{
    static const char *const good[] = {"127.0.0.1", "127.0.0.1:8717", "127.9.9.9", "localhost:8717",
                                       "LOCALHOST", "[::1]:8717",     "[::1]",     "box.lan",
                                       "box.lan:1", "other.lan:99"};
    static const char *const bad[] = {"",          "evil.example", "127.0.0.1.evil.example",
                                      "128.0.0.1", "127.1",        "localhost.evil",
                                      "[::2]:1",   "[::1",         "other.lan",
                                      "0.0.0.0",   "2130706433",   "localhost@evil",
                                      ":8717"};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_int_equal(check(&keyless, good[i], NULL), KG_ERR_NONE);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(check(&keyless, bad[i], NULL), KG_ERR_FOREIGN_HOST);
        assert_int_equal(check(&keyed, bad[i], NULL), KG_ERR_NONE);
    }
    assert_int_equal(check(&keyless, NULL, NULL), KG_ERR_FOREIGN_HOST);
    kg_err_t err = {0};
    kg_guard_head_t unix_head = {.host = kg_slice_cstr("docker"), .unix_peer = true};
    assert_int_equal(kg_guard_check(&keyless, &unix_head, &err), 0);
}

static void keyless_takes_its_own_origin_alone(void **state)
{
    static const char *const bad[] = {"",
                                      "null",
                                      "https://evil.example",
                                      "http://127.0.0.1:3000",
                                      "https://127.0.0.1:8717",
                                      "http://127.0.0.1:8717.evil.example",
                                      "https://app.example.evil",
                                      "http://"};
    (void)state;
    assert_int_equal(check(&keyless, "127.0.0.1:8717", "http://127.0.0.1:8717"), KG_ERR_NONE);
    assert_int_equal(check(&keyless, "127.0.0.1:8717", "https://app.example"), KG_ERR_NONE);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(check(&keyless, "127.0.0.1:8717", bad[i]), KG_ERR_FOREIGN_ORIGIN);
        assert_int_equal(check(&keyed, "127.0.0.1:8717", bad[i]), KG_ERR_NONE);
    }
}

static void cors_answers_listed_origins(void **state)
{
    static const char *const star[] = {"*"};
    const kg_guard_t any = {false, star, 1, NULL, 0};
    const kg_guard_t off = {0};
    char allow[64];
    (void)state;
    assert_true(kg_guard_cors(&keyed, kg_slice_cstr("https://app.example"), allow, sizeof allow));
    assert_string_equal(allow, "https://app.example");
    assert_false(kg_guard_cors(&keyed, kg_slice_cstr("https://evil.example"), allow, sizeof allow));
    assert_true(kg_guard_cors(&any, kg_slice_cstr("https://evil.example"), allow, sizeof allow));
    assert_string_equal(allow, "*");
    assert_false(kg_guard_cors(&off, kg_slice_cstr("https://app.example"), allow, sizeof allow));
    assert_false(kg_guard_cors(&any, kg_slice(NULL, 0), allow, sizeof allow));
}

static void keys_are_found(void **state)
{
    (void)state;
    kg_slice_t none = {0};
    assert_true(kg_slice_eq_cstr(kg_guard_key(kg_slice_cstr("Bearer k1"), none, none), "k1"));
    assert_true(kg_slice_eq_cstr(kg_guard_key(kg_slice_cstr("bearer  k1 "), none, none), "k1"));
    assert_true(
        kg_slice_eq_cstr(kg_guard_key(kg_slice_cstr("Basic x"), kg_slice_cstr("k2"), none), "k2"));
    assert_true(
        kg_slice_eq_cstr(kg_guard_key(none, none, kg_slice_cstr("sandal.v1, bearer.k3")), "k3"));
    assert_int_equal(kg_guard_key(kg_slice_cstr("Bearer"), none, kg_slice_cstr("bearer.")).len, 0);
    assert_true(kg_list_has(kg_slice_cstr("a, sandal.v1 ,b"), "sandal.v1"));
    assert_false(kg_list_has(kg_slice_cstr("sandal.v10"), "sandal.v1"));
}

static void origins_of_the_configuration_are_looked_at(void **state)
{
    static const char *const good[] = {"https://app.example", "http://127.0.0.1:3000",
                                       "http://[::1]:80", "vscode-webview://a1", "http://a:65535"};
    static const char *const bad[] = {"foo",
                                      "",
                                      "https://",
                                      "https://a/",
                                      "https://a:",
                                      "https://a:0",
                                      "http://a:65536",
                                      "https://a b",
                                      "://a",
                                      "https:/a",
                                      "https://*.a",
                                      "https://u@a",
                                      "https://[::1",
                                      "https://a,https://b/"};
    static const char *const any[] = {"*", "null"};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        kg_err_t err = {0};
        assert_int_equal(0, kg_guard_origins_check(&good[i], 1, true, &err));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_err_t err = {0};
        assert_true(kg_guard_origins_check(&bad[i], 1, false, &err) < 0);
        assert_int_equal(KG_ERR_CONFIG, err.code);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(any); i++) {
        kg_err_t err = {0};
        assert_int_equal(0, kg_guard_origins_check(&any[i], 1, false, &err));
        assert_true(kg_guard_origins_check(&any[i], 1, true, &err) < 0);
        assert_non_null(strstr(err.message, "without keys"));
    }
}

static void types_are_read(void **state)
{
    (void)state;
    assert_true(kg_content_type_is_json(kg_slice_cstr("application/json")));
    assert_true(kg_content_type_is_json(kg_slice_cstr("Application/JSON; charset=\"utf-8\"")));
    assert_false(kg_content_type_is_json(kg_slice_cstr("text/plain")));
    assert_false(kg_content_type_is_json(kg_slice_cstr("application/json; charset=latin1")));
    assert_false(kg_content_type_is_json(kg_slice_cstr("application/jsonp")));
    assert_false(kg_content_type_is_json(kg_slice(NULL, 0)));
    assert_true(
        kg_accept_names(kg_slice_cstr("text/html, text/event-stream;q=0.9"), "text/event-stream"));
    assert_false(kg_accept_names(kg_slice_cstr("text/event-stream;q=0.0"), "text/event-stream"));
    assert_false(kg_accept_names(kg_slice_cstr("*/*, text/*"), "text/event-stream"));
    assert_false(kg_accept_names(kg_slice(NULL, 0), "text/event-stream"));
    assert_true(kg_request_id_sane(kg_slice_cstr("a-B_1.2:3/4+5=")));
    assert_false(kg_request_id_sane(kg_slice_cstr("a b")));
    assert_false(kg_request_id_sane(kg_slice_cstr("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keyless_takes_loopback_hosts_alone),
        cmocka_unit_test(keyless_takes_its_own_origin_alone),
        cmocka_unit_test(cors_answers_listed_origins),
        cmocka_unit_test(origins_of_the_configuration_are_looked_at),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(types_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
