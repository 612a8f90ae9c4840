/* Where a key can be, form by form: what is taken as one, and what is told as one to be kept back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/base/credential.h"

#define KEY KG_KEY_PREFIX "0123456789"

static void keys_of_headers(void **state)
{
    (void)state;
    static const struct {
        const char *value, *bearer, *any;
    } rows[] = {
        {"Bearer k", "k", "k"}, {"bearer  \t k \t", "k", "k"}, {"token k", "", "k"},
        {"TOKEN   k", "", "k"}, {"Bearer\tk", "", ""},         {"Bearer", "", ""},
        {"Bearer  ", "", ""},   {"Basic k", "", ""},           {"", "", ""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_slice_t value = kg_slice_cstr(rows[i].value);
        kg_slice_t bearer = kg_credential_after(value, "bearer");
        kg_slice_t any = kg_credential_of_header(value);
        assert_true(bearer.len == strlen(rows[i].bearer));
        assert_true(any.len == strlen(rows[i].any));
        assert_true(bearer.len == 0 || kg_slice_eq_cstr(bearer, rows[i].bearer));
        assert_true(any.len == 0 || kg_slice_eq_cstr(any, rows[i].any));
    }
}

static void keys_of_protocols(void **state)
{
    (void)state;
    assert_true(kg_slice_eq_cstr(kg_credential_of_protocol(kg_slice_cstr("bearer.k")), "k"));
    static const char *const none[] = {"bearer.", "bearer", "Bearer.k", "sandal.v1", ""};
    for (size_t i = 0; i < KG_ARRAY_LEN(none); i++) {
        assert_int_equal(kg_credential_of_protocol(kg_slice_cstr(none[i])).len, 0);
    }
}

static void headers_with_a_key(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        bool key;
    } rows[] = {
        {"Authorization", "Bearer " KEY, true},
        {"authorization", "BEARER  \t" KEY, true},
        {"AUTHORIZATION", "token " KEY, true},
        {"Authorization", "Token    " KEY, true},
        {"Authorization", KEY, true},
        {"X-API-Key", KEY, true},
        {"x-api-key", "Bearer " KEY, true},
        {"X-Api-Key", "SK-Sandal-x", true},
        {"Authorization", "Bearer abc", false},
        {"Authorization", "token abc", false},
        {"Authorization", "Basic YTpi", false},
        {"Authorization", "Bearer sk-other-1", false},
        {"Authorization", "Bearer sk-sandal", false},
        {"X-API-Key", "abc", false},
        {"X-Authorization", "Bearer " KEY, false},
        {"", "", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        assert_int_equal(
            kg_credential_in_header(kg_slice_cstr(rows[i].name), kg_slice_cstr(rows[i].value)),
            rows[i].key);
    }
}

static void pairs_with_a_key(void **state)
{
    (void)state;
    static const struct {
        const char *pair;
        bool key;
    } rows[] = {
        {"token=" KEY, true},
        {"token=%73k%2dsandal%2D0123", true},
        {"token=%73%6b%2d%73%61%6e%64%61%6c%2d%30%31", true},
        {"token=" KEY "/api/kernels/x", true},
        {"token=" KEY "%zz", true},
        {"token=sk-sandal-", false},
        {"token=%73k-sandal%2", false},
        {"token=%", false},
        {"token=%zzk-sandal-1", false},
        {"token=abc", false},
        {"token=", false},
        {"token", false},
        {"Token=" KEY, false},
        {"mytoken=" KEY, false},
        {"", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        if (kg_credential_in_pair(kg_slice_cstr(rows[i].pair)) != rows[i].key) {
            fail_msg("%s", rows[i].pair);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_headers),
        cmocka_unit_test(keys_of_protocols),
        cmocka_unit_test(headers_with_a_key),
        cmocka_unit_test(pairs_with_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
