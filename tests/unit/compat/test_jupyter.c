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
#include "gateway/base/credential.h"
#include "gateway/compat/allow.h"
#include "gateway/compat/jupyter.h"
#include "gateway/compat/kernel_id.h"
#include "gateway/compat/model.h"

typedef struct world {
    kg_core_t *core;
    kg_server_t *server;
    kg_jupyter_t *jupyter;
} world_t;

static const char *const origins[] = {"https://app.example"};
static const char *const allowed[] = {"KERNEL_*", "LANG"};

static int setup(void **state)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kg_err_t err = {0};
    kg_server_config_t config = {.cors_origins = origins, .cors_origin_count = 1};
    w->core = fake_core_new();
    assert_int_equal(kg_server_start(w->core, &config, &w->server, &err), 0);
    kg_jupyter_config_t jupyter = {
        .kernel_timeout_s = 600, .env = allowed, .env_count = 2, .sessions_max = 2};
    assert_int_equal(kg_jupyter_create(w->server, &jupyter, &w->jupyter, &err), 0);
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

static void credentials_before_the_path_are_told_apart(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        {"token=a/api/kernels/b", "token=a", "/api/kernels/b", ""},
        {"token=a/b?session_id=c&d", "token=a", "/b", "session_id=c&d"},
        {"token=/b?", "token=", "/b", ""},
        {"token=a&x=1/b", "token=a&x=1", "/b", ""},
        {"token=a", NULL},
        {"x=1&token=a/b", NULL},
        {"tok/en=", NULL},
        {"/", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_slice_t part[3];
        bool found =
            kg_credential_before_path(kg_slice_cstr(rows[i][0]), &part[0], &part[1], &part[2]);
        assert_int_equal(found, rows[i][1] != NULL);
        for (size_t j = 0; found && j < KG_ARRAY_LEN(part); j++) {
            assert_true(kg_slice_eq_cstr(part[j], rows[i][j + 1]));
        }
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
        {"/", "token=nope/api/kernels/" FAKE_CONTEXT "/channels", NULL, NULL, 403, "\"Forbidden\""},
        {"/", "token=key-bob/api/kernels/" FAKE_CONTEXT "/channels", NULL, NULL, 404,
         "Kernel does not exist"},
        {"/", "token=key-alice/api/kernels/" FAKE_CONTEXT "/channels", NULL, "https://evil.example",
         403, "origins"},
        {"/", "token=key-alice/api/kernels/" FAKE_CONTEXT, NULL, NULL, 404, "\"Not Found\""},
        {"/", "token=key-alice/api/kernelspecs", NULL, NULL, 404, "\"error\":"}, /* not ours */
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

/* --- Pure parts ----------------------------------------------------------------------------- */

static void ga_11_times_have_a_fraction(void **state)
{
    (void)state;
    char text[KG_JUPYTER_TIME_MAX];
    kg_jupyter_time(UINT64_C(1767323045678901999), text);
    assert_string_equal(text, "2026-01-02T03:04:05.678901Z");
    kg_jupyter_time(UINT64_C(1767323045000000000), text);
    assert_string_equal(text, "2026-01-02T03:04:05.000000Z");
    kg_jupyter_time(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000000Z");
}

static void environment_is_taken_by_name(void **state)
{
    (void)state;
    static const char *const patterns[] = {"KERNEL_*", "LANG", "", "*"};
    static const struct {
        const char *name;
        size_t patterns;
        bool allowed;
    } rows[] = {
        {"KERNEL_USERNAME", 2, true},
        {"KERNEL_", 2, true},
        {"KERNEL", 2, false},
        {"LANG", 2, true},
        {"LANGUAGE", 2, false},
        {"XKERNEL_A", 2, false},
        {"", 4, false},
        {"1A", 4, false},
        {"A=B", 4, false},
        {"KERNEL_A-B", 4, false},
        {"PATH", 3, false},
        {"PATH", 4, true},
        {"PATH", 0, false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        assert_int_equal(kg_allow_name(patterns, rows[i].patterns, rows[i].name), rows[i].allowed);
    }
    json_t *env = json_pack("{s:s, s:i, s:s%, s:s, s:n}", "KERNEL_A", "1", "KERNEL_B", 2,
                            "KERNEL_C", "a\0b", (size_t)3, "PATH", "/", "LANG");
    json_t *kept = kg_allow_env(patterns, 2, env);
    assert_int_equal(json_object_size(kept), 1);
    assert_string_equal(json_string_value(json_object_get(kept, "KERNEL_A")), "1");
    json_decref(kept);
    kept = kg_allow_env(patterns, 2, NULL);
    assert_int_equal(json_object_size(kept), 0);
    json_decref(kept);
    json_decref(env);
}

/* --- Routes --------------------------------------------------------------------------------- */

#define ALICE                                                                                      \
    {                                                                                              \
        "Authorization", "token key-alice"                                                         \
    }
#define BOB                                                                                        \
    {                                                                                              \
        "Authorization", "token key-bob"                                                           \
    }
#define VISITOR                                                                                    \
    {                                                                                              \
        "Authorization", "token key-attach"                                                        \
    }
#define LIVE "ctx-" FAKE_CONTEXT

static void answers_have_jupyters_form(void **state)
{
    (void)state;
    static const struct {
        fake_request_t request;
        int status;
        const char *says;
    } rows[] = {
        {{.path = "/api/kernels", .headers = {ALICE}},
         200,
         "[{\"id\":\"" FAKE_CONTEXT "\",\"name\":\"fake\",\"last_activity\":"
         "\"2026-01-02T03:04:05.678901Z\",\"execution_state\":\"idle\",\"connections\":0}]"},
        {{.path = "/api/kernels", .headers = {BOB}}, 200, "[]"},
        {{.path = "/api/kernels", .headers = {{"Authorization", "token key-other"}}}, 200, "[]"},
        {{.path = "/api/kernels"}, 403, "{\"message\":\"Forbidden\",\"reason\":\"An API key"},
        {{.path = "/api/kernelspecs", .headers = {ALICE}}, 200, "\"default\":\"python\""},
        {{.path = "/api/kernelspecs", .headers = {ALICE}},
         200,
         "\"resources\":{\"logo-64x64\":\"/kernelspecs/python/logo-64x64.png\"}"},
        {{.path = "/api/kernelspecs", .headers = {VISITOR}}, 200, "{\"default\":\"" LIVE "\""},
        {{.path = "/api/kernelspecs", .headers = {BOB}},
         200,
         "\"kernelspecs\":{\"python\":{\"name\":\"python\""},
        {{.path = "/api/kernelspecs/python3", .headers = {ALICE}}, 200, "\"debugger\":true"},
        {{.path = "/api/kernelspecs/jython", .headers = {ALICE}}, 200, "\"name\":\"python\""},
        {{.path = "/api/kernelspecs/jithon", .headers = {ALICE}}, 404, "jithon not found"},
        {{.path = "/api/kernelspecs/unbuilt", .headers = {ALICE}}, 404, "unbuilt not found"},
        {{.path = "/api/kernelspecs/veiled", .headers = {ALICE}}, 200, "\"veiled\""},
        {{.path = "/api/kernelspecs/python", .headers = {VISITOR}}, 404, "not found"},
        {{.path = "/api/kernelspecs/" LIVE, .headers = {BOB}}, 404, "not found"},
        {{.path = "/api/kernelspecs/" LIVE, .headers = {VISITOR}},
         200,
         "Sandal: box/main (" FAKE_SANDBOX ")"},
        {{.path = "/kernelspecs/python/logo-64x64.png", .headers = {ALICE}}, 200, "PNG"},
        {{.path = "/kernelspecs/python/logo-32x32.png", .headers = {ALICE}}, 404, "not found"},
        {{.path = "/kernelspecs/python/a/b", .headers = {ALICE}}, 404, "Not Found"},
        {{.path = "/api/status", .headers = {ALICE}}, 200, "\"kernels\":1,\"connections\":0}"},
        {{.path = "/api/me",
          .query = "permissions=%7B%22a%22%3A%5B%22read%22%2C%22write%22%5D%7D",
          .headers = {VISITOR}},
         200,
         "\"permissions\":{\"a\":[\"read\"]}}"},
        {{.path = "/api/me", .headers = {ALICE}}, 200, "\"initials\":\"a\""},
        {{.path = "/api/sessions", .headers = {ALICE}},
         200,
         "[{\"id\":\"" FAKE_CONTEXT "\",\"path\":\"box/main (" FAKE_SANDBOX ")\""},
        {{.method = "POST",
          .path = "/api/kernels",
          .body = "{\"name\":\"" LIVE "\"}",
          .headers = {VISITOR}},
         201,
         FAKE_CONTEXT},
        {{.method = "POST", .path = "/api/kernels", .headers = {VISITOR}}, 201, FAKE_CONTEXT},
        {{.method = "POST",
          .path = "/api/kernels",
          .body = "{\"name\":\"python\"}",
          .headers = {VISITOR}},
         403,
         "no right"},
        {{.method = "POST",
          .path = "/api/kernels",
          .body = "{\"kernel_id\":\"" FAKE_CONTEXT "\"}",
          .headers = {ALICE}},
         409,
         "already exists"},
        {{.method = "POST",
          .path = "/api/kernels",
          .body = "{\"name\":\"" LIVE "\",\"env\":{\"A\":\"\\udcff\",\"B\":\"\xff\"}}",
          .headers = {VISITOR}},
         201,
         FAKE_CONTEXT},
        {{.method = "POST",
          .path = "/api/kernels",
          .body = "{\"name\":\"" LIVE "\",\"env\":{\"A\":\"\\u0000\"}}",
          .headers = {VISITOR}},
         400,
         "Invalid JSON"},
        {{.method = "DELETE", .path = "/api/kernels/" FAKE_CONTEXT, .headers = {VISITOR}}, 204, ""},
        {{.method = "POST",
          .path = "/api/kernels/" FAKE_CONTEXT "/interrupt",
          .headers = {VISITOR}},
         204,
         ""},
        {{.method = "POST", .path = "/api/kernels/" FAKE_CONTEXT "/restart", .headers = {VISITOR}},
         403,
         "not restart"},
        {{.method = "POST",
          .path = "/api/sessions",
          .body = "{\"path\":\"a\",\"type\":\"x\","
                  "\"kernel\":{\"name\":\"nope\"}}",
          .headers = {ALICE}},
         501,
         "\"short_message\":\"nope not found\""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        ask(&rows[i].request, rows[i].status, rows[i].says);
    }
}

static void sv_20_nothing_is_listed_before_all_is_known(void **state)
{
    world_t *w = *state;
    static const char *const paths[] = {"/api/kernels", "/api/sessions", "/api/kernelspecs",
                                        "/api/status", ("/api/kernels/" FAKE_CONTEXT)};
    fake_core_set_ready(w->core, KG_ERR_STARTING);
    for (size_t i = 0; i < KG_ARRAY_LEN(paths); i++) {
        kg_http_t *http = fake_http(&(fake_request_t){.path = paths[i], .headers = {ALICE}});
        assert_int_equal(fake_http_status(http), 503);
        assert_string_equal(fake_http_header(http, "Retry-After"), "1");
        fake_http_close(&http);
    }
    ask(&(fake_request_t){.path = "/api"}, 200, "version");
}

static void hidden_templates_are_in_no_list(void **state)
{
    (void)state;
    kg_http_t *http = fake_http(&(fake_request_t){.path = "/api/kernelspecs", .headers = {ALICE}});
    assert_null(strstr(fake_http_body(http, 10000), "veiled"));
    fake_http_close(&http);
}

static kg_http_t *start(const char *method, const char *path, const char *body)
{
    return fake_http(
        &(fake_request_t){.method = method, .path = path, .body = body, .headers = {ALICE}});
}

static void kernels_are_started_and_ended_by_operations(void **state)
{
    world_t *w = *state;
    kg_http_t *http = start("POST", "/api/kernels", "{\"name\":\"python3\",\"env\":{\"A\":1}}");
    assert_int_equal(fake_http_status(http), 0);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1);
    assert_int_equal(fake_http_status(http), 201);
    assert_string_equal(fake_http_header(http, "Location"), "/api/kernels/" FAKE_CONTEXT);
    fake_http_close(&http);
    http = start("POST", "/api/kernels", NULL);
    fake_core_fire(w->core, KG_ERR_KERNEL_START_FAILED);
    assert_int_equal(fake_http_status(http), 500);
    fake_http_close(&http);
    http = start("POST", "/api/kernels", NULL);
    fake_core_fire(w->core, KG_ERR_QUOTA_EXCEEDED);
    assert_int_equal(fake_http_status(http), 403);
    fake_http_close(&http);
    http = start("POST", "/api/kernels", NULL);
    fake_http_close(&http); /* the client leaves: nobody would know of its kernel */
    assert_int_equal(fake_stats(w->core)->dropped, 0);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1);
    assert_int_equal(fake_stats(w->core)->dropped, 1);
    http = start("POST", "/api/kernels", NULL);
    fake_http_close(&http);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_KERNEL_START_FAILED), 1);
    http = start("POST", "/api/kernels", NULL);
    fake_http_close(&http); /* and what the daemon's end finds so */
    kg_jupyter_stop(w->jupyter);
    http = start("POST", "/api/kernels", NULL);
    fake_http_close(&http);
    assert_int_equal(fake_stats(w->core)->dropped, 1);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 0);
    http = start("POST", "/api/kernels/" FAKE_CONTEXT "/restart", NULL);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1);
    assert_int_equal(fake_http_status(http), 200);
    fake_http_close(&http);
    fake_core_metadata(w->core, KG_JUPYTER_META_SPEC, "python3");
    fake_core_metadata(w->core, KG_JUPYTER_META_KEY, "key-alice");
    http = start("DELETE", "/api/kernels/" FAKE_CONTEXT, NULL);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 1); /* its sandbox ends */
    assert_int_equal(fake_http_status(http), 204);
    fake_http_close(&http);
}

#define ON_LIVE "\"type\":\"notebook\",\"kernel\":{\"id\":\"" FAKE_CONTEXT "\"}}"

static void sessions_are_kept_up_to_their_limit(void **state)
{
    world_t *w = *state;
    fake_request_t post = {.method = "POST", .path = "/api/sessions", .headers = {ALICE}};
    post.body = "{\"path\":\"d/a\"," ON_LIVE;
    ask(&post, 201, "\"notebook\":{\"path\":\"d/a\",\"name\":\"a\"}");
    ask(&post, 201, "\"path\":\"d/a\"");
    post.body = "{\"path\":\"b\"," ON_LIVE;
    ask(&post, 201, "\"path\":\"b\"");
    post.body = "{\"path\":\"c\"," ON_LIVE;
    ask(&post, 403, "2 sessions");
    kg_jupyter_destroy(&w->jupyter); /* the next one reads them back */
    kg_err_t err = {0};
    kg_jupyter_config_t config = {.sessions_max = 2};
    assert_int_equal(kg_jupyter_create(w->server, &config, &w->jupyter, &err), 0);
    kg_http_t *http = start("GET", "/api/sessions", NULL);
    json_t *list = json_loads(fake_http_body(http, 10000), 0, NULL);
    fake_http_close(&http);
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        const json_t *s = json_array_get(list, i);
        snprintf(path, sizeof path, "/api/sessions/%s",
                 json_string_value(json_object_get(s, "id")));
        ask(&(fake_request_t){.path = path, .headers = {BOB}}, 404, "not found");
        ask(&(fake_request_t){.method = "PATCH",
                              .path = path,
                              .headers = {ALICE},
                              .body = "{\"name\":\"other\"}"},
            200, "\"name\":\"other\"");
        ask(&(fake_request_t){.method = "DELETE", .path = path, .headers = {ALICE}}, 204, "");
        ask(&(fake_request_t){.path = path, .headers = {ALICE}}, 404, "Session not found");
    }
    json_decref(list);
    ask(&(fake_request_t){.path = "/api/sessions", .headers = {ALICE}}, 200, "\"console\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_five_words),
        cmocka_unit_test(credentials_are_found_where_jupyter_has_them),
        cmocka_unit_test(credentials_before_the_path_are_told_apart),
        cmocka_unit_test_setup_teardown(ids_lead_to_contexts, setup, teardown),
        cmocka_unit_test_setup_teardown(channels_are_refused_before_they_open, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_open_needs_no_key, setup, teardown),
        cmocka_unit_test(ga_11_times_have_a_fraction),
        cmocka_unit_test(environment_is_taken_by_name),
        cmocka_unit_test_setup_teardown(answers_have_jupyters_form, setup, teardown),
        cmocka_unit_test_setup_teardown(sv_20_nothing_is_listed_before_all_is_known, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(hidden_templates_are_in_no_list, setup, teardown),
        cmocka_unit_test_setup_teardown(kernels_are_started_and_ended_by_operations, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sessions_are_kept_up_to_their_limit, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
