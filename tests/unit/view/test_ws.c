/* sandal.v1 over a fake edge. */
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

#define RUN(id) "{\"id\":" id ",\"op\":\"run_code\",\"sandbox\":\"box\",\"code\":\"1\"}"

typedef struct world {
    kg_core_t *core;
    kg_server_t *server;
    kg_ws_t *ws;
} world_t;

static kg_ws_t *open_ws(const char *path, const char *key)
{
    int status;
    kg_ws_t *ws = fake_upgrade(&(fake_request_t){.path = path, .headers = {{"X-API-Key", key}}},
                               "sandal.v1", &status);
    assert_int_equal(status, 101);
    return ws;
}

static int setup(void **state)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kg_err_t err = {0};
    kg_server_config_t config = {
        .frame_max = 200000, .runs_per_socket = 3, .calls_per_socket = 4, .pending_max = 1000};
    w->core = fake_core_new();
    assert_int_equal(kg_server_start(w->core, &config, &w->server, &err), 0);
    w->ws = open_ws("/v1/ws", "key-alice");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_t *w = *state;
    if (w->ws) {
        fake_ws_close(&w->ws);
    }
    kg_server_close(&w->server, 0, NULL, NULL);
    const fake_stats_t *s = fake_stats(w->core);
    assert_int_equal(s->attached, 0);
    assert_int_equal(s->readers, 0);
    assert_int_equal(s->watches, 0);
    fake_core_free(&w->core);
    free(w);
    return 0;
}

/* The next frame is exactly this. */
static void expect(kg_ws_t *ws, const char *text)
{
    const char *frame = fake_ws_frame(ws, 1000);
    assert_non_null(frame);
    assert_string_equal(frame, text);
}

static void expect_failure(kg_ws_t *ws, const char *id, const char *code, const char *says)
{
    const char *frame = fake_ws_frame(ws, 1000);
    char head[128];
    assert_non_null(frame);
    snprintf(head, sizeof head, "{\"id\":%s,\"type\":\"failure\",\"error\":{\"code\":\"%s\"", id,
             code);
    if (strncmp(frame, head, strlen(head)) != 0 || !strstr(frame, says)) {
        fail_msg("'%s' is not %s… %s", frame, head, says);
    }
    json_t *json = json_loads(frame, 0, NULL);
    assert_non_null(json);
    json_decref(json);
}

/* --- Upgrade -------------------------------------------------------------------------------- */

static void upgrades_are_checked(void **state)
{
    world_t *w = *state;
    static const struct {
        const char *path, *key, *offered;
        int status;
        const char *protocol;
    } rows[] = {
        {"/v1/ws", "key-alice", "sandal.v1", 101, "sandal.v1"},
        {"/v1/ws", "key-alice", "", 101, ""},
        {"/v1/ws", "", "sandal.v1, bearer.key-alice", 101, "sandal.v1"},
        {"/v1/ws", "", "bearer.key-alice", 101, ""},
        {"/v1/sandboxes/box/ws", "key-alice", "sandal.v1", 101, "sandal.v1"},
        {"/v1/sandboxes/box/ws", "key-attach", "sandal.v1", 101, "sandal.v1"},
        {"/v1/ws", "", "sandal.v1", 401, ""},
        {"/v1/ws", "nope", "sandal.v1", 401, ""},
        {"/v1/ws", "", "sandal.v1, bearer.nope", 401, ""},
        {"/v1/ws", "key-alice", "graphql-ws", 400, ""},
        {"/v1/nope", "key-alice", "sandal.v1", 404, ""},
        {"/v1/sandboxes/nope/ws", "key-alice", "sandal.v1", 404, ""},
        {"/v1/sandboxes/box/ws", "key-bob", "sandal.v1", 404, ""},
        {"/v1/sandboxes/box/ws", "key-other", "sandal.v1", 403, ""},
    };
    (void)w;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        int status;
        fake_request_t r = {.path = rows[i].path, .headers = {{"X-API-Key", rows[i].key}}};
        kg_ws_t *ws = fake_upgrade(&r, rows[i].offered, &status);
        assert_int_equal(status, rows[i].status);
        if (ws) {
            assert_string_equal(fake_ws_protocol(ws), rows[i].protocol);
            fake_ws_close(&ws);
        } else {
            assert_non_null(strstr(fake_upgrade_body(), "{\"error\":{\"code\":"));
        }
    }
}

static void keyless_upgrade_refuses_foreign_origin(void **state)
{
    (void)state;
    kg_core_t *core = fake_core_new();
    kg_server_t *server = NULL;
    kg_err_t err = {0};
    int status;
    assert_int_equal(kg_server_start(core, &(kg_server_config_t){.no_auth = true}, &server, &err),
                     0);
    fake_request_t r = {.path = "/v1/ws",
                        .headers = {{"Host", "localhost"}, {"Origin", "https://evil.example"}}};
    assert_null(fake_upgrade(&r, "sandal.v1", &status));
    assert_int_equal(status, 403);
    assert_non_null(strstr(fake_upgrade_body(), "foreign_origin"));
    r.headers[0][1] = "evil.example";
    assert_null(fake_upgrade(&r, "sandal.v1", &status));
    assert_int_equal(status, 403);
    r = (fake_request_t){.path = "/v1/ws", .headers = {{"Host", "localhost"}}};
    kg_ws_t *ws = fake_upgrade(&r, "", &status);
    assert_int_equal(status, 101);
    fake_ws_close(&ws);
    kg_server_close(&server, 0, NULL, NULL);
    fake_core_free(&core);
}

/* --- Frames --------------------------------------------------------------------------------- */

static void malformed_frames_get_a_failure(void **state)
{
    world_t *w = *state;
    static const struct {
        const char *frame, *id, *code, *says;
    } rows[] = {
        {"", "null", "invalid_json", "too early"},
        {"x", "null", "invalid_json", ""},
        {"[]", "null", "invalid_request", "object"},
        {"{\"id\":\"a\",\"op\":\"run_code\",\"code\":\"1\",\"code\":\"2\"}", "\"a\"",
         "invalid_json", "twice"},
        {"{\"id\":7,\"op\":\"run_code\",\"code\":\"\\u0000\"}", "7", "invalid_json", "U+0000"},
        {"{\"id\":\"\\u0000\",\"op\":\"run_code\"}", "null", "invalid_json", "U+0000"},
        {"{\"id\":\"a\",\"op\":\"run_code\",\"code\":\"\\ud800\"}", "\"a\"", "invalid_json",
         "surrogate"},
        {"{\"op\":\"run_code\"}", "null", "invalid_frame", "needs an id"},
        {"{\"id\":null,\"op\":\"run_code\"}", "null", "invalid_frame", "needs an id"},
        {"{\"id\":1.5,\"op\":\"run_code\"}", "null", "invalid_frame", "integer or a string"},
        {"{\"id\":{},\"op\":\"run_code\"}", "null", "invalid_frame", "integer or a string"},
        {"{\"id\":1}", "1", "invalid_frame", "needs an op"},
        {"{\"id\":1,\"op\":3}", "1", "invalid_frame", "needs an op"},
        {"{\"id\":1,\"op\":\"run_cod\"}", "1", "not_found", "Did you mean 'run_code'"},
        {"{\"id\":1,\"op\":\"metrics\"}", "1", "not_found", "GET /metrics"},
        {"{\"id\":1,\"op\":\"run_code\",\"sandbox\":\"box\"}", "1", "invalid_request", "/code"},
        {"{\"id\":1,\"op\":\"run_code\",\"sandbox\":\"box\",\"code\":\"1\",\"x\":1}", "1",
         "invalid_request", "/x"},
        {"{\"id\":1,\"op\":\"run_code\",\"code\":\"1\"}", "1", "invalid_request", "/sandbox"},
        {"{\"id\":1,\"op\":\"run_code\",\"sandbox\":\"no\",\"code\":\"1\"}", "1",
         "sandbox_not_found", "no"},
        {"{\"id\":1,\"op\":\"sandboxes.fork\",\"sandbox\":\"box\"}", "1", "not_supported",
         "checkpointing"},
        {"{\"id\":\"\\u00e9\",\"op\":\"keys.list\"}", "\"\xc3\xa9\"", "forbidden", "admin"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fake_ws_text(w->ws, rows[i].frame);
        expect_failure(w->ws, rows[i].id, rows[i].code, rows[i].says);
    }
    fake_ws_bytes(w->ws, "{}", 2, true);
    expect_failure(w->ws, "null", "invalid_frame", "text");
    assert_int_equal(fake_ws_close_code(w->ws), 0);
    assert_null(fake_ws_frame(w->ws, 100));
}

static void long_ids_are_refused(void **state)
{
    world_t *w = *state;
    for (size_t len = 128; len <= 129; len++) {
        char frame[256] = "{\"op\":\"templates.list\",\"id\":\"";
        size_t n = strlen(frame);
        memset(frame + n, 'i', len);
        (void)stpcpy(frame + n + len, "\"}");
        fake_ws_text(w->ws, frame);
        assert_int_equal(strstr(fake_ws_frame(w->ws, 1000), "response") != NULL, len == 128);
    }
}

static void operations_answer_a_response(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, "{\"id\":\"a\",\"op\":\"sandboxes.get\",\"sandbox\":\"box\"}");
    expect(w->ws, "{\"id\":\"a\",\"type\":\"response\",\"data\":{\"id\":\"sbx-alice\"}}");
    fake_ws_text(w->ws,
                 "{\"id\":2,\"op\":\"contexts.delete\",\"sandbox\":\"box\",\"context\":\"main\"}");
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_core_fire(w->core, KG_ERR_NONE);
    expect(w->ws, "{\"id\":2,\"type\":\"response\",\"data\":null}");
}

static void bound_socket_supplies_its_sandbox(void **state)
{
    world_t *w = *state;
    kg_ws_t *ws = open_ws("/v1/sandboxes/box/ws", "key-alice");
    fake_ws_text(ws, "{\"id\":1,\"op\":\"sandboxes.get\"}");
    expect(ws, "{\"id\":1,\"type\":\"response\",\"data\":{\"id\":\"sbx-alice\"}}");
    fake_ws_text(ws, "{\"id\":1,\"op\":\"sandboxes.get\",\"sandbox\":\"other\"}");
    expect_failure(ws, "1", "sandbox_not_found", "other");
    fake_ws_text(ws, "{\"id\":1,\"op\":\"templates.list\"}");
    expect(ws, "{\"id\":1,\"type\":\"response\",\"data\":{\"items\":[{\"name\":\"python\"}],"
               "\"next\":null}}");
    fake_ws_close(&ws);
    (void)w;
}

/* --- Runs ----------------------------------------------------------------------------------- */

static void run_streams_its_events(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("\"a1\""));
    assert_null(fake_ws_frame(w->ws, 1000));
    assert_true(fake_stats(w->core)->last_run.stream);
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_flush(w->core);
    expect(w->ws, "{\"id\":\"a1\",\"run\":\"run-1\",\"seq\":0,\"type\":\"started\"}");
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_run_piece(w->core, 5); /* large events come in pieces, with one envelope */
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"hello\"");
    fake_run_finish(w->core);
    expect(w->ws,
           "{\"id\":\"a1\",\"run\":\"run-1\",\"seq\":1,\"type\":\"stdout\",\"text\":\"hello\"}");
    expect(w->ws,
           "{\"id\":\"a1\",\"run\":\"run-1\",\"seq\":2,\"type\":\"result\",\"status\":\"ok\"}");
    /* Its id is free as soon as the client can know that it is over. */
    assert_int_equal(fake_stats(w->core)->attached, 0);
    assert_null(fake_ws_frame(w->ws, 1000));
}

static void run_without_stream_sends_its_result_alone(void **state)
{
    world_t *w = *state;
    fake_ws_text(
        w->ws,
        "{\"id\":1,\"op\":\"run_code\",\"sandbox\":\"box\",\"code\":\"1\",\"stream\":false}");
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_flush(w->core);
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_run_finish(w->core);
    expect(w->ws, "{\"id\":1,\"run\":\"run-1\",\"seq\":1,\"type\":\"result\",\"status\":\"ok\"}");
    assert_null(fake_ws_frame(w->ws, 1000));
    assert_int_equal(fake_stats(w->core)->attached, 0);
    /* Also when late output has come by then. */
    fake_ws_text(
        w->ws,
        "{\"id\":1,\"op\":\"run_code\",\"sandbox\":\"box\",\"code\":\"1\",\"stream\":false}");
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_finish(w->core);
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"late\"");
    expect(w->ws, "{\"id\":1,\"run\":\"run-1\",\"seq\":1,\"type\":\"result\",\"status\":\"ok\"}");
}

static void ended_run_is_read_as_a_response(void **state)
{
    world_t *w = *state;
    fake_run(w->core);
    fake_run_finish(w->core);
    fake_run_piece(w->core, 9);
    fake_ws_text(w->ws, "{\"id\":1,\"op\":\"runs.get\",\"sandbox\":\"box\",\"run\":\"run-1\"}");
    const char *frame = fake_ws_frame(w->ws, 1000);
    assert_non_null(frame);
    assert_non_null(strstr(
        frame, "{\"id\":1,\"type\":\"response\",\"data\":{\"run\":\"run-1\",\"status\":\"ok\""));
    json_t *json = json_loads(frame, 0, NULL);
    assert_non_null(json);
    json_decref(json);
}

static void runs_share_the_socket_in_turn(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("1"));
    fake_ws_text(w->ws, RUN("2"));
    for (int i = 0; i < 3; i++) {
        fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"x\"");
    }
    fake_run_flush(w->core);
    fake_run_piece(w->core, 11);
    static const char *const order[] = {"{\"id\":1,", "{\"id\":2,", "{\"id\":1,",
                                        "{\"id\":2,", "{\"id\":1,", "{\"id\":2,"};
    for (size_t i = 0; i < KG_ARRAY_LEN(order); i++) {
        const char *frame = fake_ws_frame(w->ws, 13);
        assert_non_null(frame);
        assert_int_equal(strncmp(frame, order[i], strlen(order[i])), 0);
    }
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_run_finish(w->core);
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "result"));
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "result"));
}

static void attach_begins_after_seq(void **state)
{
    world_t *w = *state;
    fake_run(w->core);
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"x\"");
    fake_ws_text(
        w->ws,
        "{\"id\":1,\"op\":\"runs.attach\",\"sandbox\":\"box\",\"run\":\"run-1\",\"after\":0}");
    expect(w->ws, "{\"id\":1,\"run\":\"run-1\",\"seq\":1,\"type\":\"stdout\",\"text\":\"x\"}");
    fake_ws_text(
        w->ws,
        "{\"id\":2,\"op\":\"runs.input\",\"sandbox\":\"box\",\"run\":\"run-1\",\"value\":\"yes\"}");
    expect(w->ws, "{\"id\":2,\"type\":\"response\",\"data\":null}");
    assert_string_equal(fake_stats(w->core)->input, "yes");
    fake_run_expire(w->core);
    expect_failure(w->ws, "1", "run_expired", "no longer");
    fake_ws_text(w->ws, "{\"id\":3,\"op\":\"runs.attach\",\"sandbox\":\"box\",\"run\":\"run-1\"}");
    expect_failure(w->ws, "3", "run_expired", "no longer");
}

/* Never silence: where nothing is left to be told, that is told. */
static void attach_behind_the_result_is_answered(void **state)
{
    static const char *const afters[] = {"1", "2", "999"};
    world_t *w = *state;
    fake_run(w->core);
    fake_run_event(w->core, KG_EVENT_STARTED, "\"type\":\"started\"");
    fake_run_finish(w->core);
    for (size_t i = 0; i < KG_ARRAY_LEN(afters); i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "{\"id\":1,\"op\":\"runs.attach\",\"sandbox\":\"box\",\"run\":\"run-1\","
                 "\"after\":%s}",
                 afters[i]);
        fake_ws_text(w->ws, text);
        expect(w->ws, "{\"id\":1,\"type\":\"response\",\"data\":null}");
    }
}

static void log_that_goes_inside_an_event_cuts_the_socket(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("1"));
    fake_run_event(w->core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"0123456789\"");
    fake_run_flush(w->core);
    fake_run_piece(w->core, 10);
    assert_int_equal(fake_ws_pull(w->ws, 10), KG_PULL_MORE);
    fake_run_expire(w->core);
    assert_int_equal(fake_ws_pull(w->ws, 10), KG_PULL_ABORT);
}

static void long_frames_keep_their_order(void **state)
{
    world_t *w = *state;
    enum {
        LONG = 50000
    };
    char *frame = malloc(LONG + 200);
    assert_non_null(frame);
    for (int i = 1; i <= 3; i += 2) {
        int n = snprintf(frame, 200,
                         "{\"id\":%d,\"op\":\"contexts.get\",\"sandbox\":\"box\",\"x\":\"", i);
        memset(frame + n, 'x', LONG);
        (void)stpcpy(frame + n + LONG, "\"}");
        fake_ws_text(w->ws, frame);
        char next[80];
        snprintf(next, sizeof next, "{\"id\":%d,\"op\":\"templates.get\",\"template\":\"python\"}",
                 i + 1);
        fake_ws_text(w->ws, next);
    }
    free(frame);
    assert_true(fake_ws_paused(w->ws));
    assert_null(fake_ws_frame(w->ws, 1000));
    assert_int_equal(fake_work_run(), 2);
    assert_false(fake_ws_paused(w->ws));
    expect_failure(w->ws, "1", "invalid_request", "/x");
    expect(w->ws, "{\"id\":2,\"type\":\"response\",\"data\":{\"name\":\"python\"}}");
    expect_failure(w->ws, "3", "invalid_request", "/x");
    expect(w->ws, "{\"id\":4,\"type\":\"response\",\"data\":{\"name\":\"python\"}}");
}

static void leaving_forgets_long_frames(void **state)
{
    world_t *w = *state;
    enum {
        LONG = 50000
    };
    char *frame = malloc(LONG);
    assert_non_null(frame);
    memset(frame, 'x', LONG);
    fake_ws_bytes(w->ws, frame, LONG, false);
    fake_ws_bytes(w->ws, frame, 10, false);
    free(frame);
    fake_ws_close(&w->ws);
    assert_int_equal(fake_work_run(), 1);
}

/* --- Bounds --------------------------------------------------------------------------------- */

static void ids_in_use_are_refused(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("1"));
    fake_ws_text(w->ws, RUN("1"));
    expect_failure(w->ws, "1", "invalid_frame", "still going");
    fake_ws_text(w->ws, "{\"id\":\"1\",\"op\":\"sandboxes.create\"}");
    fake_ws_text(w->ws, "{\"id\":\"1\",\"op\":\"sandboxes.create\"}");
    expect_failure(w->ws, "\"1\"", "invalid_frame", "still going");
}

static void followed_runs_are_bounded(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("1"));
    fake_ws_text(w->ws, RUN("2"));
    fake_ws_text(w->ws, RUN("3"));
    fake_ws_text(w->ws, RUN("4"));
    expect_failure(w->ws, "4", "quota_exceeded", "3 runs");
    fake_run_finish(w->core);
    for (int i = 0; i < 3; i++) {
        assert_non_null(fake_ws_frame(w->ws, 1000));
    }
    fake_ws_text(w->ws, RUN("5"));
    assert_int_equal(fake_stats(w->core)->runs_made, 4);
}

static void pending_calls_are_bounded(void **state)
{
    world_t *w = *state;
    for (int i = 0; i < 5; i++) {
        char frame[80];
        snprintf(frame, sizeof frame, "{\"id\":%d,\"op\":\"sandboxes.create\"}", i);
        fake_ws_text(w->ws, frame);
    }
    expect_failure(w->ws, "4", "queue_full", "4 calls");
    fake_core_fire(w->core, KG_ERR_NONE);
    for (int i = 0; i < 4; i++) {
        assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "response"));
    }
}

static void unread_answers_hold_the_client_back(void **state)
{
    world_t *w = *state;
    fake_ws_queue(w->ws, 501);
    fake_ws_text(w->ws, "{\"id\":1,\"op\":\"templates.list\"}");
    assert_true(fake_ws_paused(w->ws));
    fake_ws_queue(w->ws, 0);
    assert_non_null(fake_ws_frame(w->ws, 100));
    assert_null(fake_ws_frame(w->ws, 100)); /* the source is asked */
    assert_false(fake_ws_paused(w->ws));
    fake_ws_full(w->ws, true);
    fake_ws_text(w->ws, "{\"id\":1,\"op\":\"templates.list\"}");
    assert_int_equal(fake_ws_close_code(w->ws), 1013);
}

static void no_socket_opens_while_draining(void **state)
{
    world_t *w = *state;
    int status;
    kg_server_drain(w->server);
    fake_request_t r = {.path = "/v1/ws", .headers = {{"X-API-Key", "key-alice"}}};
    assert_null(fake_upgrade(&r, "sandal.v1", &status));
    assert_int_equal(status, 503);
    fake_ws_text(w->ws, "{\"id\":1,\"op\":\"templates.list\"}");
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "response"));
}

static void leaving_abandons_calls_and_runs(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, RUN("1"));
    fake_ws_text(w->ws, "{\"id\":2,\"op\":\"sandboxes.create\"}");
    fake_ws_text(
        w->ws,
        "{\"id\":3,\"op\":\"run_code\",\"sandbox\":\"box\",\"code\":\"1\",\"stream\":false}");
    assert_int_equal(fake_stats(w->core)->attached, 2);
    fake_ws_close(&w->ws);
    assert_int_equal(fake_stats(w->core)->attached, 0);
    assert_int_equal(fake_stats(w->core)->forgotten, 1);
    assert_int_equal(fake_core_fire(w->core, KG_ERR_NONE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(upgrades_are_checked, setup, teardown),
        cmocka_unit_test(keyless_upgrade_refuses_foreign_origin),
        cmocka_unit_test_setup_teardown(malformed_frames_get_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(long_ids_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(operations_answer_a_response, setup, teardown),
        cmocka_unit_test_setup_teardown(bound_socket_supplies_its_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(run_streams_its_events, setup, teardown),
        cmocka_unit_test_setup_teardown(run_without_stream_sends_its_result_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(ended_run_is_read_as_a_response, setup, teardown),
        cmocka_unit_test_setup_teardown(runs_share_the_socket_in_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(attach_begins_after_seq, setup, teardown),
        cmocka_unit_test_setup_teardown(attach_behind_the_result_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(log_that_goes_inside_an_event_cuts_the_socket, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(long_frames_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_forgets_long_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_in_use_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(followed_runs_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(pending_calls_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(unread_answers_hold_the_client_back, setup, teardown),
        cmocka_unit_test_setup_teardown(no_socket_opens_while_draining, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_abandons_calls_and_runs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
