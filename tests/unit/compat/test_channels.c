/* Sockets of kernels' clients over a fake edge and a fake context: which protocol, what is cut, and
 * with which code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "fake_edge.h"
#include "gateway/compat/jupyter.h"
#include "proto/ws_legacy.h"
#include "proto/ws_v1.h"

#define PATH "/api/kernels/" FAKE_CONTEXT "/channels"

/* One world at a time. */
static kg_core_t *core;
static kg_server_t *server;
static kg_jupyter_t *jupyter;

static int setup(void **state)
{
    const kg_server_config_t config = {0};
    const kg_jupyter_config_t plain = {.reconnect_s = 60};
    (void)state;
    *fake_attach() = (fake_attach_t){0};
    core = fake_core_new();
    return kg_server_start(core, &config, &server, NULL) ||
           kg_jupyter_create(server, &plain, &jupyter, NULL);
}

static int teardown(void **state)
{
    (void)state;
    unsigned left = fake_attach()->open;
    kg_server_close(&server, 0, NULL, NULL);
    kg_jupyter_destroy(&jupyter);
    fake_core_free(&core);
    return left ? -1 : 0;
}

static const char *key = "token key-alice";

static kg_ws_t *upgrade(const char *query, const char *offered, bool browser, int want)
{
    int status = 0;
    fake_request_t r = {.path = PATH, .query = query};
    r.headers[0][0] = "Authorization";
    r.headers[0][1] = key;
    if (browser) {
        r.headers[1][0] = "Origin";
        r.headers[1][1] = "http://localhost";
        r.headers[2][0] = "Host";
        r.headers[2][1] = "localhost";
    }
    kg_ws_t *ws = fake_upgrade(&r, offered, &status);
    assert_int_equal(status, want);
    return ws;
}

static kg_ws_msg_t iopub(const kg_slice_t *buffers, size_t count)
{
    return (kg_ws_msg_t){
        .channel = KG_CHANNEL_IOPUB,
        .parts = {kg_slice_cstr("{\"msg_id\":\"7\",\"msg_type\":\"stream\"}"), kg_slice_cstr("{}"),
                  kg_slice_cstr("{}"), kg_slice_cstr("{}")},
        .buffers = buffers,
        .buffer_count = count,
    };
}

/* GA-19: the path of a client that cannot send a header is behind the key of its URL. */
static void ga_19_key_before_the_path(void **state)
{
    (void)state;
    static const char query[] = "token=key-alice" PATH "?session_id=a";
    kg_ws_t *ws[2];
    for (size_t i = 0; i < KG_ARRAY_LEN(ws); i++) {
        int status = 0;
        ws[i] = fake_upgrade(&(fake_request_t){.path = "/", .query = query}, "", &status);
        assert_non_null(ws[i]);
    }
    assert_int_equal(fake_ws_close_code(ws[0]), 1000); /* one session, one connection */
    assert_int_equal(fake_ws_close_code(ws[1]), 0);
    fake_ws_close(&ws[0]);
    fake_ws_close(&ws[1]);
}

/* SV-21 */
static void sv_21_protocol_as_offered(void **state)
{
    (void)state;
    static const struct {
        const char *offered, *chosen;
    } rows[] = {
        {"", ""},
        {KG_WS_V1_PROTOCOL, KG_WS_V1_PROTOCOL},
        {"other, " KG_WS_V1_PROTOCOL, KG_WS_V1_PROTOCOL},
        {"bearer.key-alice", ""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_ws_t *ws = upgrade(NULL, rows[i].offered, false, 101);
        assert_string_equal(fake_ws_protocol(ws), rows[i].chosen);
        assert_int_equal(fake_attach()->greeted, i + 1);
        fake_ws_close(&ws);
    }
    assert_null(upgrade(NULL, "other", false, 400));
    assert_non_null(strstr(fake_upgrade_body(), "\"message\":"));
    fake_attach()->full = true;
    assert_null(upgrade(NULL, "", false, 403));
}

static void frames_by_protocol(void **state)
{
    (void)state;
    const kg_slice_t buffer = kg_slice_cstr("abc");
    kg_ws_msg_t plain = iopub(NULL, 0);
    kg_ws_msg_t with = iopub(&buffer, 1);
    kg_ws_t *ws = upgrade(NULL, KG_WS_V1_PROTOCOL, false, 101);
    fake_attach_message(&plain);
    assert_string_equal(fake_ws_frame(ws, 100), "binary 101");
    fake_attach_message(&with);
    assert_string_equal(fake_ws_frame(ws, 100), "binary 112");
    fake_ws_close(&ws);

    ws = upgrade(NULL, "", true, 101);
    fake_attach_message(&plain);
    assert_non_null(strstr(fake_ws_frame(ws, 1000), "\"channel\":\"iopub\",\"msg_id\":\"7\""));
    fake_attach_message(&with);
    assert_non_null(strstr(fake_ws_frame(ws, 1000), "binary "));
    fake_ws_close(&ws);

    ws = upgrade(NULL, "", false, 101); /* GA-16 */
    fake_attach_message(&with);
    assert_null(fake_ws_frame(ws, 1000));
    fake_attach_message(&plain);
    assert_non_null(strstr(fake_ws_frame(ws, 1000), "\"msg_type\":\"stream\""));
    fake_ws_close(&ws);
}

/* {"name":"stdout","text":"…"} or a display, of more than that many bytes. */
static char *large(const char *before, const char *unit, size_t bytes, const char *after)
{
    size_t one = strlen(unit);
    size_t count = bytes / one + 1;
    char *text = malloc(strlen(before) + count * one + strlen(after) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, before);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, unit, one);
        at += one;
    }
    memcpy(at, after, strlen(after) + 1);
    return text;
}

/* GA-15 */
static void ga_15_large_output_fits_servers(void **state)
{
    (void)state;
    static const char *const units[] = {"x", "\\n", "\xe2\x82\xac", "\\\\", "\\u001b"};
    kg_ws_t *ws = upgrade(NULL, "", false, 101);
    kg_ws_msg_t msg = iopub(NULL, 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(units); i++) {
        char *content = large("{\"name\":\"stdout\",\"text\":\"", units[i], 17u << 20, "\"}");
        msg.parts[3] = kg_slice_cstr(content);
        fake_attach_message(&msg);
        size_t text = 0;
        unsigned frames = 0;
        for (const char *f; (f = fake_ws_frame(ws, 100)); frames++) {
            json_t *json = json_loads(f, JSON_ALLOW_NUL, NULL);
            assert_non_null(json);
            assert_true(strlen(f) < 8u << 20);
            json_t *part = json_object_get(json, "content");
            assert_string_equal(json_string_value(json_object_get(part, "name")), "stdout");
            text += json_string_length(json_object_get(part, "text"));
            json_decref(json);
        }
        size_t one = units[i][0] == '\\' ? 1 : strlen(units[i]);
        assert_int_equal(text, ((17u << 20) / strlen(units[i]) + 1) * one);
        assert_true(frames >= 3);
        free(content);
    }
    char *content = large("{\"data\":{\"image/png\":\"", "A", 9u << 20,
                          "\"},\"transient\":{\"display_id\":\"d\"}}");
    msg.parts[0] = kg_slice_cstr("{\"msg_id\":\"7\",\"msg_type\":\"display_data\"}");
    msg.parts[3] = kg_slice_cstr(content);
    fake_attach_message(&msg);
    const char *note = fake_ws_frame(ws, 100);
    assert_non_null(strstr(note, "An output of 9.4 MB is not shown"));
    assert_non_null(strstr(note, "\"transient\":{\"display_id\":\"d\"}}"));
    assert_null(fake_ws_frame(ws, 100));
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", true, 101); /* browsers take it whole */
    fake_attach_message(&msg);
    assert_true(strlen(fake_ws_frame(ws, 100)) > 9u << 20);
    fake_ws_close(&ws);
    free(content);
}

/* How it ended is told, in less than a server takes. */
static void large_replies_and_errors_fit_servers(void **state)
{
    (void)state;
    static const struct {
        kg_channel_t channel;
        const char *header, *begin, *end, *says[3];
    } rows[] = {
        {KG_CHANNEL_IOPUB,
         "{\"msg_id\":\"7\",\"msg_type\":\"error\"}",
         "{\"ename\":\"E\",\"evalue\":\"",
         "\",\"traceback\":[]}",
         {"{\"ename\":\"E\",\"evalue\":\"[An error of 9.4 MB is not shown"}},
        {KG_CHANNEL_SHELL,
         "{\"msg_id\":\"7\",\"msg_type\":\"execute_reply\"}",
         "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"",
         "\",\"traceback\":[]}",
         {"{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"[An error of"}},
        {KG_CHANNEL_SHELL,
         "{\"msg_id\":\"7\",\"msg_type\":\"execute_reply\"}",
         "{\"status\":\"ok\",\"execution_count\":3,\"payload\":[\"",
         "\"]}",
         {"\"stderr\",\"text\":\"[A reply of 9.4 MB is not shown",
          "{\"status\":\"ok\",\"execution_count\":3,\"user_expressions\":{},\"payload\":[]}"}},
        {KG_CHANNEL_SHELL,
         "{\"msg_id\":\"7\",\"msg_type\":\"history_reply\"}",
         "{\"status\":\"ok\",\"history\":[\"",
         "\"]}",
         {"{\"status\":\"error\",\"ename\":\"too_large\""}},
        {KG_CHANNEL_IOPUB,
         "{\"msg_id\":\"7\",\"msg_type\":\"comm_msg\"}",
         "{\"data\":{\"a\":\"",
         "\"}}",
         {"\"stderr\",\"text\":\"[A message of 9.4 MB is not shown"}},
    };
    kg_ws_t *ws = upgrade(NULL, "", false, 101);
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        char *content = large(rows[i].begin, "x", 9u << 20, rows[i].end);
        kg_ws_msg_t msg = iopub(NULL, 0);
        msg.channel = rows[i].channel;
        msg.parts[0] = kg_slice_cstr(rows[i].header);
        msg.parts[3] = kg_slice_cstr(content);
        fake_attach_message(&msg);
        for (size_t j = 0; rows[i].says[j]; j++) {
            const char *frame = fake_ws_frame(ws, 100);
            assert_non_null(strstr(frame, rows[i].says[j]));
            json_t *json = json_loads(frame, 0, NULL);
            assert_non_null(json);
            json_decref(json);
        }
        assert_null(fake_ws_frame(ws, 100));
        free(content);
    }
    fake_ws_close(&ws);
}

static void junk_closes(void **state)
{
    (void)state;
    kg_ws_t *ws = upgrade(NULL, KG_WS_V1_PROTOCOL, false, 101);
    fake_ws_text(ws, "{}");
    assert_int_equal(fake_ws_close_code(ws), 1003);
    fake_ws_close(&ws);
    ws = upgrade(NULL, KG_WS_V1_PROTOCOL, false, 101);
    fake_ws_bytes(ws, "junk", 4, true);
    assert_int_equal(fake_ws_close_code(ws), 1007);
    fake_ws_bytes(ws, "junk", 4, true); /* what is on its way still */
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", false, 101);
    fake_ws_text(ws, "{\"header\":{},\"channel\":\"other\"}"); /* passed over */
    assert_int_equal(fake_ws_close_code(ws), 0);
    assert_int_equal(fake_attach()->sent, 0);
    fake_ws_text(ws, "{\"header\":{\"a\":1},\"channel\":\"stdin\"}");
    assert_int_equal(fake_ws_close_code(ws), 0);
    assert_int_equal(fake_attach()->channel, KG_CHANNEL_STDIN);
    assert_string_equal(fake_attach()->header, "{\"a\":1}");
    /* The form with buffers, sent as text as some servers do. */
    fake_ws_bytes(ws, "\0\0\0\x02\0\0\0\x0c\0\0\0\x19{\"header\":{}}abc", 28, false);
    assert_int_equal(fake_ws_close_code(ws), 0);
    assert_int_equal(fake_attach()->buffers, 1);
    fake_attach()->refuse = true;
    fake_ws_text(ws, "{\"header\":{}}");
    assert_int_equal(fake_ws_close_code(ws), 1007);
    fake_ws_close(&ws);
}

/* SV-25: 1000 is final to Jupyter's clients, after the others they come back. */
static void sv_25_close_codes(void **state)
{
    (void)state;
    kg_ws_msg_t msg = iopub(NULL, 0);
    kg_ws_t *ws = upgrade(NULL, "", false, 101);
    fake_attach_end(true);
    assert_int_equal(fake_ws_close_code(ws), 1000);
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", false, 101);
    fake_attach_end(false);
    assert_int_equal(fake_ws_close_code(ws), 1012);
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", false, 101);
    assert_int_equal(fake_ws_queue_max(ws), KG_JUPYTER_UNREAD_MAX);
    fake_ws_full(ws, true);
    fake_attach_message(&msg);
    assert_int_equal(fake_ws_close_code(ws), 1013);
    fake_ws_full(ws, false);
    fake_attach_message(&msg); /* nothing more */
    assert_null(fake_ws_frame(ws, 100));
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", false, 101);
    assert_int_equal(fake_attach_shutdown(false), 0);
    assert_int_equal(fake_ws_close_code(ws), 1000);
    fake_ws_close(&ws);
}

static void restart_is_for_keys_that_may_use(void **state)
{
    (void)state;
    kg_ws_t *ws = upgrade(NULL, "", false, 101);
    assert_int_equal(fake_attach_shutdown(true), 0);
    assert_int_equal(fake_ws_close_code(ws), 0); /* it is still there */
    fake_ws_close(&ws);
    key = "token key-attach";
    ws = upgrade(NULL, "", false, 101);
    key = "token key-alice";
    assert_true(fake_attach_shutdown(true) < 0);
    assert_int_equal(fake_ws_close_code(ws), 0);
    fake_ws_close(&ws);
}

static void restart_over_rest_is_expected_by_its_key(void **state)
{
    (void)state;
    fake_request_t restart = {.method = "POST", .path = "/api/kernels/" FAKE_CONTEXT "/restart"};
    restart.headers[0][0] = "Authorization";
    restart.headers[0][1] = key;
    kg_ws_t *mine[] = {upgrade(NULL, "", false, 101), upgrade(NULL, KG_WS_V1_PROTOCOL, true, 101)};
    key = "token key-attach";
    kg_ws_t *visitor = upgrade(NULL, "", false, 101);
    key = "token key-alice";
    static const struct {
        kg_err_code_t end;
        int status;
    } rows[] = {{KG_ERR_NONE, 200}, {KG_ERR_KERNEL_START_FAILED, 500}};
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_http_t *http = fake_http(&restart);
        assert_int_equal(fake_attach()->expecting, 2);
        assert_int_equal(fake_core_fire(core, rows[i].end), 1);
        assert_int_equal(fake_attach()->expecting, 0);
        assert_int_equal(fake_http_status(http), rows[i].status);
        fake_http_close(&http);
    }
    fake_ws_close(&mine[0]);
    fake_ws_close(&mine[1]);
    fake_ws_close(&visitor);
}

static void session_replaces_its_older_connection(void **state)
{
    (void)state;
    kg_ws_t *first = upgrade("x=1&session_id=a%2Fb&token=no", "", false, 101);
    kg_ws_t *other = upgrade("session_id=c", "", false, 101);
    kg_ws_t *none = upgrade("session_id=", "", false, 101);
    kg_ws_t *none_too = upgrade(NULL, "", false, 101);
    kg_ws_t *second = upgrade("session_id=a/b", "", false, 101);
    assert_int_equal(fake_ws_close_code(first), 1000);
    assert_int_equal(fake_ws_close_code(other), 0);
    assert_int_equal(fake_ws_close_code(none), 0);
    assert_int_equal(fake_ws_close_code(none_too), 0);
    assert_int_equal(fake_ws_close_code(second), 0);
    kg_ws_t *all[] = {first, other, none, none_too, second};
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        fake_ws_close(&all[i]);
    }
}

/* What it does not get is kept from the moment it was cut, and from its leaving; not without a
 * session, and not when it said that it leaves. */
static void session_that_may_come_back_is_kept(void **state)
{
    (void)state;
    kg_ws_msg_t msg = iopub(NULL, 0);
    fake_attach_t *a = fake_attach();
    kg_ws_t *ws = upgrade("session_id=s", "", false, 101);
    fake_ws_full(ws, true);
    fake_attach_message(&msg);
    assert_int_equal(fake_ws_close_code(ws), 1013);
    assert_int_equal(a->keeping, 1);
    assert_int_equal(a->missed, 1);
    assert_int_equal(a->left, 0);
    fake_ws_close(&ws);
    assert_int_equal(a->left, 1);
    assert_non_null(strstr(a->name, " s")); /* and the key before it */
    assert_true(strlen(a->name) > 2);
    ws = upgrade("session_id=s", "", false, 101);
    assert_int_equal(fake_ws_queue_max(ws), KG_JUPYTER_UNREAD_MAX);
    fake_ws_close(&ws);
    assert_int_equal(a->keeping, 2);
    assert_int_equal(a->left, 2);
    ws = upgrade("session_id=s", "", false, 101);
    assert_int_equal(fake_attach_shutdown(false), 0);
    fake_ws_close(&ws);
    ws = upgrade(NULL, "", false, 101);
    fake_ws_full(ws, true);
    fake_attach_message(&msg);
    fake_ws_close(&ws);
    assert_int_equal(a->keeping, 2);
    assert_int_equal(a->missed, 1);
    ws = upgrade("session_id=s", "", false, 101);
    kg_ws_t *newer = upgrade("session_id=s", "", false, 101);
    assert_int_equal(a->keeping, 3);
    assert_int_equal(fake_ws_close_code(ws), 1000);
    fake_ws_close(&ws); /* it was taken over: nothing is kept twice */
    assert_int_equal(a->keeping, 3);
    key = "token key-attach"; /* another key is another client */
    kg_ws_t *stranger = upgrade("session_id=s", "", false, 101);
    key = "token key-alice";
    assert_int_equal(fake_ws_close_code(newer), 0);
    fake_ws_close(&newer);
    fake_ws_close(&stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sv_21_protocol_as_offered, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_by_protocol, setup, teardown),
        cmocka_unit_test_setup_teardown(ga_15_large_output_fits_servers, setup, teardown),
        cmocka_unit_test_setup_teardown(large_replies_and_errors_fit_servers, setup, teardown),
        cmocka_unit_test_setup_teardown(junk_closes, setup, teardown),
        cmocka_unit_test_setup_teardown(sv_25_close_codes, setup, teardown),
        cmocka_unit_test_setup_teardown(restart_is_for_keys_that_may_use, setup, teardown),
        cmocka_unit_test_setup_teardown(restart_over_rest_is_expected_by_its_key, setup, teardown),
        cmocka_unit_test_setup_teardown(ga_19_key_before_the_path, setup, teardown),
        cmocka_unit_test_setup_teardown(session_replaces_its_older_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(session_that_may_come_back_is_kept, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
