/* Jupyter's dialect over a fake edge and a fake core: who is let in, which kernel an id means, how
 * errors look. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "fake_edge.h"
#include "gateway/compat/credential.h"
#include "gateway/compat/jupyter.h"
#include "gateway/compat/kernel_id.h"

typedef struct world {
    kg_core_t *core;
    kg_server_t *server;
    kg_jupyter_t *jupyter;
} world_t;

static const char *const origins[] = {"https://app.example"};

static int setup(void **state)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kg_err_t err = {0};
    kg_server_config_t config = {.cors_origins = origins, .cors_origin_count = 1};
    w->core = fake_core_new();
    assert_int_equal(kg_server_start(w->core, &config, &w->server, &err), 0);
    assert_int_equal(kg_jupyter_create(w->server, &w->jupyter, &err), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_t *w = *state;
    kg_server_close(&w->server, 0, NULL, NULL);
    kg_jupyter_destroy(&w->jupyter);
    fake_core_free(&w->core);
    free(w);
    return 0;
}

/* One request and its whole answer: status, and whether the body holds `says`. */
static void ask(const fake_request_t *request, int status, const char *says)
{
    kg_http_t *http = fake_http(request);
    const char *body = fake_http_body(http, 1000);
    if (fake_http_status(http) != status || !strstr(body, says)) {
        fail_msg("%s %s?%s: %d %s", request->method ? request->method : "GET", request->path,
                 request->query ? request->query : "", fake_http_status(http), body);
    }
    fake_http_close(&http);
}

static void ids_have_five_words(void **state)
{
    (void)state;
    static const char *const good[] = {"a-b-c-d-e", FAKE_CONTEXT, "A_1-2-3-4-zZ"};
    static const char *const bad[] = {"",
                                      "a",
                                      "a-b-c-d",
                                      "a-b-c-d-",
                                      "-b-c-d-e",
                                      "a-b-c-d-e-",
                                      "a-b-c-d-e-f",
                                      "a--c-d-e",
                                      "a-b-c-d-.",
                                      "a-b-c-d-\xc3\xa4",
                                      "a-b-c-d-0123456789012345678901234567890123456789"};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_true(kg_kernel_id_valid(good[i]));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_false(kg_kernel_id_valid(bad[i]));
    }
}

static void credentials_are_found_where_jupyter_has_them(void **state)
{
    (void)state;
    static const char *const headers[][2] = {
        {"token abc", "abc"}, {"Token  abc", "abc"}, {"BEARER abc", "abc"}, {"token ", ""},
        {"token", ""},        {"None abc", ""},      {"tokenabc", ""},      {"", ""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(headers); i++) {
        kg_slice_t key = kg_credential_of_header(kg_slice_cstr(headers[i][0]));
        assert_true(kg_slice_eq_cstr(key.len ? key : kg_slice("", 0), headers[i][1]));
    }
    static const char *const queries[][2] = {
        {"token=abc", "abc"}, {"1692&token=a%2Bb&x", "a+b"}, {"token=", NULL},
        {"", NULL},           {"mytoken=abc", NULL},         {"token", NULL},
        {"&&=", NULL},        {"token=%00abc", NULL},        {"token=01234567890123456789", NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(queries); i++) {
        char text[16] = "";
        bool found = kg_credential_of_query(kg_slice_cstr(queries[i][0]), text, sizeof text);
        assert_int_equal(found, queries[i][1] != NULL);
        assert_string_equal(found ? text : "", queries[i][1] ? queries[i][1] : "");
    }
}

static void find(world_t *w, const char *key_id, const char *scope, const char *id, int want)
{
    kg_principal_t who = {0};
    kg_kernel_ref_t ref;
    kg_err_t err = {0};
    snprintf(who.key.id, sizeof who.key.id, "%s", key_id);
    snprintf(who.key.owner, sizeof who.key.owner, "%s",
             strcmp(key_id, "key-bob") == 0 ? "bob" : "alice");
    snprintf(who.key.scopes, sizeof who.key.scopes, "%s", scope);
    int rc = kg_kernel_find(w->core, &who, id, &ref, &err);
    if (want < 0) {
        assert_int_equal(kg_err_status(err.code), -want);
    } else {
        assert_int_equal(rc, 0);
        assert_int_equal(ref.own, want);
        assert_string_equal(kg_context_id(ref.context), FAKE_CONTEXT);
    }
}

static void ids_lead_to_contexts(void **state)
{
    world_t *w = *state;
    static const char chosen[] = "11111111-1111-4111-8111-111111111111";
    find(w, "key-alice", "use", FAKE_CONTEXT, 0);
    find(w, "key-alice", "use", chosen, -404);
    find(w, "key-alice", "use", "main", -404); /* a name is no id */
    find(w, "key-bob", "use", FAKE_CONTEXT, -404);
    find(w, "key-attach", "attach:" FAKE_SANDBOX, FAKE_CONTEXT, 0);
    find(w, "key-other", "attach:sbx-other", FAKE_CONTEXT, -403);
    fake_core_metadata(w->core, KG_JUPYTER_META_SPEC, "python3");
    fake_core_metadata(w->core, KG_JUPYTER_META_KEY, "key-alice");
    fake_core_metadata(w->core, KG_JUPYTER_META_ID, chosen);
    find(w, "key-alice", "use", FAKE_CONTEXT, 1);
    find(w, "key-alice", "use", chosen, 1);
    find(w, "key-admin", "admin", chosen, 0); /* another client's */
    find(w, "key-bob", "use", chosen, -404);
}

static void channels_are_refused_before_they_open(void **state)
{
    (void)state;
    static const struct {
        const char *path, *query, *key, *origin;
        int status;
        const char *says;
    } rows[] = {
        {"/api/kernels/" FAKE_CONTEXT "/channels", NULL, NULL, NULL, 403, "\"Forbidden\""},
        {"/api/kernels/" FAKE_CONTEXT "/channels", NULL, "token nope", NULL, 403, "\"reason\":"},
        {"/api/kernels/a-b-c-d-e/channels", NULL, "token key-alice", NULL, 404,
         "Kernel does not exist: a-b-c-d-e"},
        {"/api/kernels/" FAKE_CONTEXT "/channels", "token=key-bob", NULL, NULL, 404,
         "\"message\":"},
        {"/api/kernels/" FAKE_CONTEXT "/channels", NULL, "token key-alice", "https://evil.example",
         403, "origins"},
        {"/api/kernels/" FAKE_CONTEXT, NULL, "token key-alice", NULL, 404, "Not Found"},
        {"/api/nope", NULL, "token key-alice", NULL, 404, "Not Found"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fake_request_t r = {.path = rows[i].path, .query = rows[i].query};
        size_t n = 0;
        if (rows[i].key) {
            r.headers[n][0] = "Authorization";
            r.headers[n++][1] = rows[i].key;
        }
        if (rows[i].origin) {
            r.headers[n][0] = "Origin";
            r.headers[n++][1] = rows[i].origin;
        }
        int status = 0;
        assert_null(fake_upgrade(&r, "", &status));
        if (status != rows[i].status || !strstr(fake_upgrade_body(), rows[i].says)) {
            fail_msg("row %zu: %d %s", i, status, fake_upgrade_body());
        }
    }
}

static void what_is_open_needs_no_key(void **state)
{
    (void)state;
    ask(&(fake_request_t){.path = "/api"}, 200, "\"version\":");
    ask(&(fake_request_t){.path = "/api", .query = "1692000000"}, 200, "\"version\":");
    ask(&(fake_request_t){.path = "/tree"}, 200, "Sandal");
    ask(&(fake_request_t){.path = "/hub/api"}, 404, "\"message\":\"Not Found\"");
    ask(&(fake_request_t){.path = "/api/contents"}, 404, "\"reason\":null");
    ask(&(fake_request_t){.method = "DELETE", .path = "/api"}, 405, "\"message\":");
    ask(&(fake_request_t){.method = "OPTIONS", .path = "/api/kernels"}, 204, "");
    kg_http_t *http = fake_http(&(fake_request_t){
        .method = "OPTIONS", .path = "/api/kernels", .headers = {{"Origin", origins[0]}}});
    assert_string_equal(fake_http_header(http, "Access-Control-Allow-Origin"), origins[0]);
    assert_non_null(strstr(fake_http_header(http, "Access-Control-Allow-Methods"), "PATCH"));
    fake_http_close(&http);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_five_words),
        cmocka_unit_test(credentials_are_found_where_jupyter_has_them),
        cmocka_unit_test_setup_teardown(ids_lead_to_contexts, setup, teardown),
        cmocka_unit_test_setup_teardown(channels_are_refused_before_they_open, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_open_needs_no_key, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
