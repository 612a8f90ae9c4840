/* HTTP over a fake edge: errors of the contract, negotiation, streams, clients that leave. */
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
#include "gateway/base/str.h"

#define KEY "Authorization", "Bearer key-alice"
#define JSON "Content-Type", "application/json"
#define BOX "/v1/sandboxes/box"

typedef struct world {
    kg_core_t *core;
    kg_server_t *server;
} world_t;

static int setup_with(void **state, const kg_server_config_t *config)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kg_err_t err = {0};
    w->core = fake_core_new();
    assert_int_equal(kg_server_start(w->core, config, &w->server, &err), 0);
    *state = w;
    return 0;
}

static const char *const listen_loopback[] = {"127.0.0.1:0"};
static const char *const origins[] = {"https://app.example"};

static int setup(void **state)
{
    return setup_with(state, &(kg_server_config_t){.listen = listen_loopback, .listen_count = 1});
}

static int setup_keyless(void **state)
{
    return setup_with(state, &(kg_server_config_t){
                                 .listen = listen_loopback, .listen_count = 1, .no_auth = true});
}

static int setup_cors(void **state)
{
    return setup_with(state,
                      &(kg_server_config_t){.cors_origins = origins, .cors_origin_count = 1});
}

static int teardown(void **state)
{
    world_t *w = *state;
    kg_server_close(&w->server, 0, NULL, NULL);
    const fake_stats_t *s = fake_stats(w->core);
    assert_int_equal(s->attached, 0);
    assert_int_equal(s->readers, 0);
    assert_int_equal(s->watches, 0);
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
        fail_msg("%s %s: %d %s", request->method ? request->method : "GET", request->path,
                 fake_http_status(http), body);
    }
    fake_http_close(&http);
}

/* --- Errors of the contract ----------------------------------------------------------------- */

static void errors_have_their_status_and_code(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *body, *type, *key;
        int status;
        const char *says;
    } rows[] = {
        {"GET", BOX, NULL, NULL, NULL, 401, "\"unauthorized\""},
        {"GET", BOX, NULL, NULL, "nope", 401, "\"unauthorized\""},
        {"GET", BOX, NULL, NULL, "key-bob", 404, "\"sandbox_not_found\""},
        {"GET", BOX "/contexts/x", NULL, NULL, "key-alice", 404, "\"context_not_found\""},
        {"GET", BOX "/runs/x", NULL, NULL, "key-alice", 404, "\"run_not_found\""},
        {"GET", "/nope", NULL, NULL, NULL, 404, "\"not_found\""},
        {"POST", "/mcp", NULL, NULL, NULL, 501, "\"not_supported\""},
        {"GET", "/api/kernels/x", NULL, NULL, NULL, 404, "\"not_found\""},
        {"GET", "/apis", NULL, NULL, NULL, 404, "\"not_found\""},
        {"GET", "/v1/ws", NULL, NULL, NULL, 426, "\"upgrade_required\""},
        {"PUT", "/v1/sandboxes", NULL, NULL, NULL, 405, "\"method_not_allowed\""},
        {"GET", "/v1/keys", NULL, NULL, "key-alice", 403, "\"forbidden\""},
        {"POST", BOX "/run_code", "{}", "application/json", "key-alice", 400,
         "\"pointer\":\"/code\""},
        {"POST", BOX "/run_code", "{\"code\":1}", "application/json", "key-alice", 400,
         "\"pointer\":\"/code\""},
        {"POST", BOX "/run_code", "{\"code\":\"1\",\"tmieout\":1}", "application/json", "key-alice",
         400, "Did you mean"},
        {"POST", BOX "/run_code", "{\"code\":\"1\",\"sandbox\":\"x\"}", "application/json",
         "key-alice", 400, "URL"},
        {"POST", BOX "/run_code", "{\"code\":\"1\"", "application/json", "key-alice", 400,
         "\"invalid_json\""},
        {"POST", BOX "/run_code", "{\"code\":\"\\u0000\"}", "application/json", "key-alice", 400,
         "U+0000"},
        {"POST", BOX "/run_code", "{\"code\":\"\\ud800\"}", "application/json", "key-alice", 400,
         "surrogate"},
        {"POST", BOX "/run_code", "{\"code\":\"\xff\"}", "application/json", "key-alice", 400,
         "UTF-8"},
        {"POST", BOX "/run_code", "{\"code\":\"1\",\"code\":\"2\"}", "application/json",
         "key-alice", 400, "twice"},
        {"POST", BOX "/run_code", "[]", "application/json", "key-alice", 400, "JSON object"},
        {"POST", BOX "/run_code", "{\"code\":\"1\"}", "text/plain", "key-alice", 415,
         "\"unsupported_media_type\""},
        {"POST", BOX "/run_code", "{\"code\":\"1\"}", "", "key-alice", 415, "application/json"},
        {"POST", BOX "/run_code", "{\"code\":\"full\"}", "application/json", "key-alice", 429,
         "\"queue_full\""},
        {"POST", BOX "/run_code", NULL, NULL, "key-alice", 400, "'code' is missing"},
        {"GET", BOX "?", NULL, NULL, "key-alice", 404, ""},
        {"POST", BOX "/fork", "{\"count\":1}", "application/json", "key-alice", 501,
         "\"not_supported\""},
        {"POST", BOX "/fork", "bytes", "application/octet-stream", "key-alice", 501,
         "\"not_supported\""},
        {"POST", BOX "/fork", "bytes", "application/octet-stream", NULL, 401, "\"unauthorized\""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fake_request_t r = {.method = rows[i].method, .path = rows[i].path, .body = rows[i].body};
        r.headers[0][0] = "X-Api-Key";
        r.headers[0][1] = rows[i].key ? rows[i].key : "";
        r.headers[1][0] = rows[i].type ? "Content-Type" : NULL;
        r.headers[1][1] = rows[i].type;
        ask(&r, rows[i].status, rows[i].says);
    }
}

static void errors_have_their_headers(void **state)
{
    (void)state;
    kg_http_t *http =
        fake_http(&(fake_request_t){.path = BOX, .headers = {{"X-Request-Id", "r-1"}}});
    assert_string_equal(fake_http_header(http, "WWW-Authenticate"), "Bearer realm=\"sandal\"");
    assert_string_equal(fake_http_header(http, "X-Request-Id"), "r-1");
    fake_http_close(&http);
    http = fake_http(
        &(fake_request_t){.method = "PUT", .path = BOX, .headers = {{"X-Request-Id", "a b"}}});
    assert_string_equal(fake_http_header(http, "Allow"), "GET, HEAD, PATCH, DELETE, OPTIONS");
    assert_null(fake_http_header(http, "X-Request-Id"));
    fake_http_close(&http);
    http = fake_http(&(fake_request_t){.method = "POST",
                                       .path = BOX "/run_code",
                                       .body = "{\"code\":\"full\"}",
                                       .headers = {{KEY}, {JSON}}});
    assert_string_equal(fake_http_header(http, "Retry-After"), "2");
    fake_http_close(&http);
}

static void deep_json_is_refused(void **state)
{
    (void)state;
    enum {
        DEEP = 10000
    };
    char *body = malloc(DEEP + 64);
    assert_non_null(body);
    int n = snprintf(body, 64, "{\"code\":\"1\",\"env\":");
    memset(body + n, '[', DEEP);
    fake_request_t r = {
        .method = "POST", .path = BOX "/run_code", .body = body, .headers = {{KEY}, {JSON}}};
    r.body_len = (size_t)n + DEEP;
    ask(&r, 400, "deeper than 64");
    free(body);
}

static char *long_body(size_t len)
{
    char *body = malloc(len + 16);
    assert_non_null(body);
    (void)stpcpy(body, "{\"code\":\"");
    memset(body + 9, 'x', len);
    (void)stpcpy(body + 9 + len, "\"}");
    return body;
}

static void long_bodies_are_parsed_by_a_worker(void **state)
{
    world_t *w = *state;
    char *body = long_body(100000);
    fake_request_t r = {
        .method = "POST", .path = BOX "/run_code", .body = body, .headers = {{KEY}, {JSON}}};
    kg_http_t *http = fake_http(&r);
    assert_int_equal(fake_stats(w->core)->runs_made, 0);
    assert_int_equal(fake_work_run(), 1);
    assert_int_equal(fake_stats(w->core)->runs_made, 1);
    fake_http_close(&http);
    /* One that is gone by then. */
    http = fake_http(&r);
    fake_http_close(&http);
    assert_int_equal(fake_work_run(), 1);
    assert_int_equal(fake_stats(w->core)->runs_made, 1);
    body[100000] = '\n';
    http = fake_http(&r);
    fake_work_run();
    assert_int_equal(fake_http_status(http), 400);
    fake_http_close(&http);
    free(body);
}

static void body_cap_goes_to_the_edge(void **state)
{
    (void)state;
    assert_int_equal(fake_edge_opts()->body_max, 8 * 1024 * 1024);
    kg_http_t *http = fake_http(&(fake_request_t){.path = "/healthz"});
    assert_int_equal(fake_http_body_max(http), 8 * 1024 * 1024);
    fake_http_close(&http);
}

/* --- Keyless ---------------------------------------------------------------------------------- */

static void keyless_refuses_foreign_pages(void **state)
{
    (void)state;
    ask(&(fake_request_t){.path = BOX, .headers = {{"Host", "127.0.0.1:8717"}}}, 200, FAKE_SANDBOX);
    ask(&(fake_request_t){.path = BOX, .headers = {{"Host", "evil.example"}}}, 403, "foreign_host");
    ask(&(fake_request_t){.path = "/healthz", .headers = {{"Host", "evil.example"}}}, 403,
        "foreign_host");
    ask(&(fake_request_t){.path = BOX}, 403, "foreign_host");
    ask(&(fake_request_t){.path = BOX, .unix_peer = true}, 200, FAKE_SANDBOX);
    ask(&(fake_request_t){.path = BOX,
                          .headers = {{"Host", "localhost"}, {"Origin", "https://evil.example"}}},
        403, "foreign_origin");
    ask(&(fake_request_t){.method = "OPTIONS",
                          .path = BOX,
                          .headers = {{"Host", "localhost"}, {"Origin", "http://x"}}},
        403, "foreign_origin");
    ask(&(fake_request_t){.method = "POST",
                          .path = BOX "/run_code",
                          .body = "{\"code\":\"1\"}",
                          .headers = {{"Host", "localhost"}, {"Content-Type", "text/plain"}}},
        415, "unsupported_media_type");
    ask(&(fake_request_t){.path = "/v1/keys", .headers = {{"Host", "localhost"}}}, 200, "items");
}

static void keyless_is_refused_where_others_can_reach_it(void **state)
{
    (void)state;
    static const char *const bad[] = {"0.0.0.0:8717", "*:8717", "[::]:8717", "192.168.1.2:1",
                                      "box.lan:1"};
    static const char *const good[] = {"127.0.0.1:0", "[::1]:0", "localhost:0", "unix:/run/x"};
    static const char *const star[] = {"*"};
    kg_core_t *core = fake_core_new();
    kg_server_t *server = NULL;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_err_t err = {0};
        assert_true(
            kg_server_start(
                core, &(kg_server_config_t){.listen = &bad[i], .listen_count = 1, .no_auth = true},
                &server, &err) < 0);
        assert_int_equal(err.code, KG_ERR_CONFIG);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        kg_err_t err = {0};
        assert_int_equal(
            kg_server_start(
                core, &(kg_server_config_t){.listen = &good[i], .listen_count = 1, .no_auth = true},
                &server, &err),
            0);
        kg_server_close(&server, 0, NULL, NULL);
    }
    kg_err_t err = {0};
    assert_true(kg_server_start(core,
                                &(kg_server_config_t){
                                    .no_auth = true, .cors_origins = star, .cors_origin_count = 1},
                                &server, &err) < 0);
    fake_core_free(&core);
}

/* --- CORS ------------------------------------------------------------------------------------- */

static void cors_answers_preflights(void **state)
{
    (void)state;
    kg_http_t *http = fake_http(&(fake_request_t){
        .method = "OPTIONS",
        .path = BOX "/run_code",
        .headers = {{"Origin", "https://app.example"}, {"Access-Control-Request-Method", "POST"}}});
    assert_int_equal(fake_http_status(http), 204);
    assert_string_equal(fake_http_header(http, "Access-Control-Allow-Origin"),
                        "https://app.example");
    assert_non_null(
        strstr(fake_http_header(http, "Access-Control-Allow-Headers"), "Authorization"));
    assert_string_equal(fake_http_header(http, "Vary"), "Origin");
    assert_string_equal(fake_http_header(http, "Allow"), "POST, OPTIONS");
    fake_http_close(&http);
    http = fake_http(&(fake_request_t){.method = "OPTIONS",
                                       .path = BOX "/run_code",
                                       .headers = {{"Origin", "https://evil.example"},
                                                   {"Access-Control-Request-Method", "POST"}}});
    assert_int_equal(fake_http_status(http), 204);
    assert_null(fake_http_header(http, "Access-Control-Allow-Origin"));
    assert_null(fake_http_header(http, "Access-Control-Allow-Headers"));
    fake_http_close(&http);
    /* Errors carry the header too, or a page could not read them. */
    http =
        fake_http(&(fake_request_t){.path = BOX, .headers = {{"Origin", "https://app.example"}}});
    assert_int_equal(fake_http_status(http), 401);
    assert_string_equal(fake_http_header(http, "Access-Control-Allow-Origin"),
                        "https://app.example");
    fake_http_close(&http);
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void created_answers_201_with_location(void **state)
{
    world_t *w = *state;
    kg_http_t *http =
        fake_http(&(fake_request_t){.method = "POST",
                                    .path = "/v1/sandboxes",
                                    .body = "{}",
                                    .headers = {{KEY}, {JSON}, {"Idempotency-Key", "k"}}});
    assert_int_equal(fake_http_status(http), 0);
    fake_core_fire(w->core, KG_ERR_NONE);
    assert_int_equal(fake_http_status(http), 201);
    assert_string_equal(fake_http_header(http, "Location"), "/v1/sandboxes/" FAKE_SANDBOX);
    assert_string_equal(fake_http_header(http, "X-Content-Type-Options"), "nosniff");
    fake_http_close(&http);
    ask(&(fake_request_t){.method = "POST",
                          .path = "/v1/sandboxes",
                          .headers = {{KEY}, {"Idempotency-Key", "k"}}},
        201, FAKE_SANDBOX);
    assert_int_equal(fake_stats(w->core)->sandboxes_made, 1);
    ask(&(fake_request_t){.method = "POST",
                          .path = "/v1/sandboxes",
                          .headers = {{KEY}, {"Idempotency-Key", "a b"}}},
        400, "/key");
}

static void pages_are_served_open(void **state)
{
    (void)state;
    ask(&(fake_request_t){.path = "/healthz"}, 200, "\"status\":\"ok\"");
    ask(&(fake_request_t){.path = "/readyz"}, 200, "ready");
    ask(&(fake_request_t){.path = "/v1/openapi.yaml"}, 200, "openapi: ");
    ask(&(fake_request_t){.path = "/metrics"}, 401, "unauthorized");
    ask(&(fake_request_t){.path = "/metrics", .headers = {{"X-API-Key", "key-admin"}}}, 200,
        "sandal_connections 3");
    kg_http_t *http = fake_http(&(fake_request_t){.path = "/docs"});
    assert_string_equal(fake_http_type(http), "text/html; charset=utf-8");
    assert_non_null(fake_http_header(http, "Content-Security-Policy"));
    fake_http_close(&http);
}

static void client_that_leaves_is_forgotten(void **state)
{
    world_t *w = *state;
    kg_http_t *http =
        fake_http(&(fake_request_t){.method = "POST", .path = "/v1/sandboxes", .headers = {{KEY}}});
    fake_http_close(&http);
    assert_int_equal(fake_stats(w->core)->forgotten, 1);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 0);
}

/* --- Runs ------------------------------------------------------------------------------------- */

static kg_http_t *run(const char *body, const char *accept)
{
    fake_request_t r = {
        .method = "POST", .path = BOX "/run_code", .body = body, .headers = {{KEY}, {JSON}}};
    r.headers[2][0] = accept ? "Accept" : NULL;
    r.headers[2][1] = accept;
    return fake_http(&r);
}

static void run_without_stream_waits_for_its_end(void **state)
{
    world_t *w = *state;
    kg_http_t *http = run("{\"code\":\"1\"}", NULL);
    assert_int_equal(fake_http_status(http), 0);
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"a\"");
    fake_run_flush(w->core);
    assert_int_equal(fake_http_status(http), 0);
    fake_run_finish(w->core);
    assert_int_equal(fake_http_status(http), 200);
    assert_true(fake_http_ended(http));
    assert_non_null(
        strstr(fake_http_body(http, 1), "{\"run\":\"run-1\",\"status\":\"ok\",\"events\":2"));
    fake_http_close(&http);
    assert_false(fake_stats(w->core)->last_run.stream);
}

static void large_execution_is_streamed(void **state)
{
    world_t *w = *state;
    kg_http_t *http = run("{\"code\":\"1\"}", NULL);
    char text[2000];
    memset(text, 'x', sizeof text);
    (void)stpcpy(text, "\"type\":\"stdout\",\"text\":\"");
    text[24] = 'x';
    (void)stpcpy(text + sizeof text - 2, "\"");
    for (int i = 0; i < 100; i++) {
        fake_run_event(w->core, KG_EVENT_STDOUT, text);
    }
    fake_run_piece(w->core, 777);
    fake_run_finish(w->core);
    assert_int_equal(fake_http_status(http), 200);
    assert_false(fake_http_ended(http));
    const char *body = fake_http_body(http, 10000);
    assert_true(fake_http_ended(http));
    json_t *json = json_loads(body, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json, "events")), 101);
    json_decref(json);
    fake_http_close(&http);
}

static void run_that_expires_before_its_answer(void **state)
{
    world_t *w = *state;
    kg_http_t *http = run("{\"code\":\"1\"}", NULL);
    fake_run_expire(w->core);
    assert_int_equal(fake_http_status(http), 200);
    assert_non_null(strstr(fake_http_body(http, 100), "\"status\":\"ok\""));
    fake_http_close(&http);
}

static void ndjson_streams_a_line_an_event(void **state)
{
    world_t *w = *state;
    static const char *const rows[][2] = {
        {"{\"code\":\"1\",\"stream\":true}", NULL},
        {"{\"code\":\"1\"}", "application/x-ndjson"},
        {"{\"code\":\"1\",\"stream\":null}", "text/html, application/x-ndjson"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_http_t *http = run(rows[i][0], rows[i][1]);
        assert_int_equal(fake_http_status(http), 200);
        assert_string_equal(fake_http_type(http), "application/x-ndjson");
        assert_true(fake_stats(w->core)->last_run.stream);
        fake_run_piece(w->core, 7);
        fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
        fake_run_flush(w->core);
        assert_true(fake_http_woken(http));
        assert_string_equal(fake_http_body(http, 10),
                            "{\"run\":\"run-1\",\"seq\":0,\"type\":\"started\"}\n");
        assert_false(fake_http_ended(http));
        fake_run_finish(w->core);
        assert_string_equal(
            fake_http_body(http, 10),
            "{\"run\":\"run-1\",\"seq\":0,\"type\":\"started\"}\n"
            "{\"run\":\"run-1\",\"seq\":1,\"type\":\"result\",\"status\":\"ok\"}\n");
        assert_true(fake_http_ended(http));
        fake_http_close(&http);
    }
    kg_http_t *http = run("{\"code\":\"1\",\"stream\":false}", "text/event-stream");
    assert_int_equal(fake_http_status(http), 0);
    fake_http_close(&http);
}

static void sse_carries_seq_as_id(void **state)
{
    world_t *w = *state;
    kg_http_t *http = run("{\"code\":\"1\"}", "text/event-stream");
    assert_string_equal(fake_http_type(http), "text/event-stream");
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_finish(w->core);
    assert_string_equal(
        fake_http_body(http, 1000),
        "retry: 1000\n\n"
        "id: 0\ndata: {\"run\":\"run-1\",\"seq\":0,\"type\":\"started\"}\n\n"
        "id: 1\ndata: {\"run\":\"run-1\",\"seq\":1,\"type\":\"result\",\"status\":\"ok\"}\n\n");
    assert_true(fake_http_ended(http));
    fake_http_close(&http);
}

static kg_http_t *events(const char *query, const char *accept, const char *last)
{
    fake_request_t r = {.path = BOX "/runs/run-1/events", .query = query, .headers = {{KEY}}};
    r.headers[1][0] = "Accept";
    r.headers[1][1] = accept ? accept : "*/*";
    r.headers[2][0] = last ? "Last-Event-ID" : NULL;
    r.headers[2][1] = last;
    return fake_http(&r);
}

static void events_go_on_after_what_was_seen(void **state)
{
    world_t *w = *state;
    fake_run(w->core);
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"a\"");
    kg_http_t *http = events("after=0", NULL, NULL);
    assert_string_equal(fake_http_body(http, 1000),
                        "{\"run\":\"run-1\",\"seq\":1,\"type\":\"stdout\",\"text\":\"a\"}\n");
    fake_http_close(&http);
    http = events("", "text/event-stream", "0");
    assert_non_null(strstr(fake_http_body(http, 1000), "id: 1\n"));
    assert_null(strstr(fake_http_body(http, 1000), "id: 0\n"));
    fake_http_close(&http);
    static const char *const no_seqs[] = {"x", "-1", "9223372036854775808"}; /* INT64_MAX + 1 */
    for (size_t i = 0; i < KG_ARRAY_LEN(no_seqs); i++) {
        http = events("", "text/event-stream", no_seqs[i]);
        assert_int_equal(fake_http_status(http), 400);
        assert_non_null(strstr(fake_http_body(http, 1000), "\"pointer\":\"/last_event_id\""));
        fake_http_close(&http);
    }
    /* An EventSource that has seen the end is told to stop. */
    fake_run_finish(w->core);
    http = events("", "text/event-stream", "2");
    assert_int_equal(fake_http_status(http), 204);
    fake_http_close(&http);
    http = events("after=2", NULL, NULL);
    assert_int_equal(fake_http_status(http), 200);
    assert_string_equal(fake_http_body(http, 1000), "");
    assert_true(fake_http_ended(http));
    fake_http_close(&http);
}

static void late_events_follow_until_the_log_goes(void **state)
{
    world_t *w = *state;
    fake_run(w->core);
    fake_run_finish(w->core);
    kg_http_t *http = events("late=true", NULL, NULL);
    assert_non_null(strstr(fake_http_body(http, 1000), "result"));
    assert_false(fake_http_ended(http));
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"late\"");
    assert_non_null(strstr(fake_http_body(http, 1000), "late"));
    fake_run_expire(w->core);
    fake_http_body(http, 1000);
    assert_true(fake_http_ended(http));
    fake_http_close(&http);
    http = events("", NULL, NULL);
    assert_int_equal(fake_http_status(http), 410);
    assert_non_null(strstr(fake_http_body(http, 1000), "run_expired"));
    fake_http_close(&http);
}

static void stream_whose_log_goes_is_cut(void **state)
{
    world_t *w = *state;
    kg_http_t *http = run("{\"code\":\"1\",\"stream\":true}", NULL);
    fake_run_expire(w->core);
    fake_http_body(http, 1000);
    assert_true(fake_http_aborted(http));
    fake_http_close(&http);
}

static void silent_streams_show_signs_of_life(void **state)
{
    world_t *w = *state;
    kg_server_close(&w->server, 0, NULL, NULL);
    kg_err_t err = {0};
    assert_int_equal(
        kg_server_start(w->core, &(kg_server_config_t){.ping_ms = 1}, &w->server, &err), 0);
    kg_http_t *nd = run("{\"code\":\"1\",\"stream\":true}", NULL);
    kg_http_t *sse = events("", "text/event-stream", NULL);
    kg_http_t *plain = run("{\"code\":\"1\"}", NULL);
    fake_http_body(nd, 100);
    fake_http_body(sse, 100);
    for (uint64_t until = kg_now_ns() + 2 * KG_NS_PER_MS; kg_now_ns() < until;) {
    }
    fake_timer_fire();
    assert_true(fake_http_woken(nd));
    assert_true(fake_http_woken(sse));
    assert_false(fake_http_woken(plain));
    assert_string_equal(fake_http_body(nd, 100), "\n");
    assert_string_equal(fake_http_body(sse, 100), "retry: 1000\n\n:\n\n");
    fake_http_close(&nd);
    fake_http_close(&sse);
    fake_http_close(&plain);
}

static void leaving_detaches(void **state)
{
    world_t *w = *state;
    kg_http_t *a = run("{\"code\":\"1\"}", NULL);
    kg_http_t *b = run("{\"code\":\"1\",\"stream\":true}", NULL);
    assert_int_equal(fake_stats(w->core)->attached, 2);
    fake_http_close(&a);
    assert_int_equal(fake_stats(w->core)->attached, 1);
    fake_http_close(&b);
    assert_int_equal(fake_stats(w->core)->attached, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(errors_have_their_status_and_code, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_have_their_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(deep_json_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(long_bodies_are_parsed_by_a_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(body_cap_goes_to_the_edge, setup, teardown),
        cmocka_unit_test_setup_teardown(keyless_refuses_foreign_pages, setup_keyless, teardown),
        cmocka_unit_test(keyless_is_refused_where_others_can_reach_it),
        cmocka_unit_test_setup_teardown(cors_answers_preflights, setup_cors, teardown),
        cmocka_unit_test_setup_teardown(created_answers_201_with_location, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_are_served_open, setup, teardown),
        cmocka_unit_test_setup_teardown(client_that_leaves_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(run_without_stream_waits_for_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(large_execution_is_streamed, setup, teardown),
        cmocka_unit_test_setup_teardown(run_that_expires_before_its_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(ndjson_streams_a_line_an_event, setup, teardown),
        cmocka_unit_test_setup_teardown(sse_carries_seq_as_id, setup, teardown),
        cmocka_unit_test_setup_teardown(events_go_on_after_what_was_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(late_events_follow_until_the_log_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_whose_log_goes_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_streams_show_signs_of_life, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_detaches, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
