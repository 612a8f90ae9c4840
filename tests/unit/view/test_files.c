/* Files over a fake edge and a fake core: bytes in and out, ranges, tus, events, frames. */
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

#define KEY                                                                                        \
    {                                                                                              \
        "Authorization", "Bearer key-alice"                                                        \
    }
#define TUS                                                                                        \
    {                                                                                              \
        "Tus-Resumable", "1.0.0"                                                                   \
    }
#define OCTETS                                                                                     \
    {                                                                                              \
        "Content-Type", "application/offset+octet-stream"                                          \
    }
#define FS "/v1/sandboxes/box/fs"
#define ETAG "\"7-b-ae1b981bc490a00\""

typedef struct world {
    kg_core_t *core;
    kg_server_t *server;
    kg_ws_t *ws;
} world_t;

static int setup(void **state)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kg_err_t err = {0};
    w->core = fake_core_new();
    fake_files_reset();
    kg_server_config_t config = {.runs_per_socket = 2};
    assert_int_equal(kg_server_start(w->core, &config, &w->server, &err), 0);
    int status;
    w->ws =
        fake_upgrade(&(fake_request_t){.path = "/v1/ws", .headers = {{"X-API-Key", "key-alice"}}},
                     "sandal.v1", &status);
    assert_int_equal(status, 101);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_t *w = *state;
    if (w->ws) {
        fake_ws_close(&w->ws);
    }
    assert_int_equal(fake_files()->open, 0);
    kg_server_close(&w->server, 0, NULL, NULL);
    fake_core_free(&w->core);
    free(w);
    return 0;
}

/* One request, answered by the core in between, and what its answer has to say. */
static kg_http_t *ask(const fake_request_t *request, int status, const char *says)
{
    kg_http_t *http = fake_http(request);
    (void)fake_files_fire(KG_ERR_NONE);
    const char *body = fake_http_body(http, 1000);
    if (fake_http_status(http) != status || !strstr(body, says)) {
        fail_msg("%s %s?%s: %d %s", request->method ? request->method : "GET", request->path,
                 request->query ? request->query : "", fake_http_status(http), body);
    }
    return http;
}

static void asked(const fake_request_t *request, int status, const char *says)
{
    kg_http_t *http = ask(request, status, says);
    fake_http_close(&http);
}

static void a_file_comes_as_bytes(void **state)
{
    (void)state;
    kg_http_t *http =
        ask(&(fake_request_t){.path = FS "/file", .query = "path=a%20b", .headers = {KEY}}, 200,
            "hello files");
    assert_string_equal(fake_files()->path, "a b");
    assert_string_equal(fake_http_type(http), "application/octet-stream");
    assert_int_equal(fake_http_length(http), 11);
    assert_string_equal(fake_http_header(http, "ETag"), ETAG);
    assert_string_equal(fake_http_header(http, "Last-Modified"), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_string_equal(fake_http_header(http, "Accept-Ranges"), "bytes");
    assert_null(fake_http_header(http, "Content-Range"));
    fake_http_close(&http);
}

static void ranges_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *range, *if_range;
        int status;
        const char *body, *content_range;
    } rows[] = {
        {"bytes=6-", NULL, 206, "files", "bytes 6-10/11"},
        {"bytes=-5", ETAG, 206, "files", "bytes 6-10/11"},
        {"bytes=0-4", "Sun, 06 Nov 1994 08:49:37 GMT", 206, "hello", "bytes 0-4/11"},
        {"bytes=0-4", "\"other\"", 200, "hello files", NULL},
        {"bytes=0-4", "W/" ETAG, 200, "hello files", NULL},
        {"bytes=0-4", "Sun, 06 Nov 1994 08:49:38 GMT", 200, "hello files", NULL},
        {"bytes=0-1,4-5", NULL, 200, "hello files", NULL},
        {"bytes=11-", NULL, 416, "\"range_not_satisfiable\"", "bytes */11"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fake_request_t r = {
            .path = FS "/file", .query = "path=a", .headers = {KEY, {"Range", rows[i].range}}};
        if (rows[i].if_range) {
            r.headers[2][0] = "If-Range";
            r.headers[2][1] = rows[i].if_range;
        }
        kg_http_t *http = ask(&r, rows[i].status, rows[i].body);
        const char *got = fake_http_header(http, "Content-Range");
        assert_string_equal(got ? got : "", rows[i].content_range ? rows[i].content_range : "");
        fake_http_close(&http);
    }
    asked(&(fake_request_t){.path = FS "/file",
                            .query = "path=a",
                            .headers = {KEY, {"If-None-Match", "\"x\", " ETAG}}},
          304, "");
}

/* RFC 9110, 13.1: of a file in the state ETAG, or of none ("none"). */
static void writes_and_removes_keep_to_their_conditions(void **state)
{
    (void)state;
    static const struct {
        const char *query, *header, *value;
        int put, remove;
        const char *says;
    } rows[] = {
        {"path=a", "If-Match", ETAG, 204, 204, ""},
        {"path=a", "If-Match", "\"x\", " ETAG, 204, 204, ""},
        {"path=a", "If-Match", "*", 204, 204, ""},
        {"path=a", "If-Match", "\"x\"", 412, 412, "/if_match"},
        {"path=a", "If-Match", "W/" ETAG, 412, 412, "/if_match"},
        {"path=a", "If-Match", "nonsense", 412, 412, "/if_match"},
        {"path=none", "If-Match", "*", 412, 412, "/if_match"},
        {"path=none", "If-Match", ETAG, 412, 412, "/if_match"},
        {"path=a", "If-None-Match", "*", 412, 412, "/if_none_match"},
        {"path=a", "If-None-Match", "W/" ETAG, 412, 412, "/if_none_match"},
        {"path=a", "If-None-Match", "\"x\"", 204, 204, ""},
        {"path=none", "If-None-Match", "*", 204, 204, ""},
        {"path=a", "If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT", 204, 204, ""},
        {"path=a", "If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT", 412, 412, "/if_unmod"},
        {"path=a", "If-Unmodified-Since", "yesterday", 204, 204, ""},
        {"path=a", "Content-Range", "bytes 0-2/11", 400, 204, "/content_range"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        asked(&(fake_request_t){.method = "PUT",
                                .path = FS "/file",
                                .query = rows[i].query,
                                .body = "new",
                                .headers = {KEY, {rows[i].header, rows[i].value}}},
              rows[i].put, rows[i].put == 204 ? "" : rows[i].says);
        asked(&(fake_request_t){.method = "DELETE",
                                .path = FS "/file",
                                .query = rows[i].query,
                                .headers = {KEY, {rows[i].header, rows[i].value}}},
              rows[i].remove, rows[i].remove == 204 ? "" : rows[i].says);
    }
}

static void a_client_that_leaves_leaves_nothing(void **state)
{
    world_t *w = *state;
    kg_http_t *http =
        fake_http(&(fake_request_t){.path = FS "/file", .query = "path=a", .headers = {KEY}});
    fake_http_close(&http);
    assert_int_equal(fake_stats(w->core)->forgotten, 1);
    http = fake_http(&(fake_request_t){.path = FS "/file", .query = "path=a", .headers = {KEY}});
    (void)fake_files_fire(KG_ERR_NONE);
    assert_int_equal(fake_files()->open, 1);
    fake_http_close(&http);
    assert_int_equal(fake_files()->open, 0);
}

static void a_body_goes_in_as_it_comes(void **state)
{
    (void)state;
    fake_files()->creates = true;
    kg_http_t *http = fake_http(&(fake_request_t){.method = "PUT",
                                                  .path = FS "/file",
                                                  .query = "path=d/%C3%A4%3F&mode=0755",
                                                  .body = "first ",
                                                  .more = 6,
                                                  .headers = {KEY}});
    assert_int_equal(fake_files_fire(KG_ERR_NONE), 0);
    assert_int_equal(fake_http_status(http), 0);
    fake_http_more(http, "second", true);
    assert_int_equal(fake_files_fire(KG_ERR_NONE), 1);
    assert_int_equal(fake_http_status(http), 201);
    assert_string_equal(fake_files()->written, "first second");
    assert_int_equal(fake_files()->mode, 0755);
    assert_string_equal(fake_http_header(http, "Location"),
                        "/v1/sandboxes/" FAKE_SANDBOX "/fs/file?path=d/%C3%A4%3F");
    fake_http_close(&http);
    fake_files()->creates = false;
    asked(&(fake_request_t){.method = "PUT",
                            .path = FS "/file",
                            .query = "path_base64=/w",
                            .body = "{}",
                            .headers = {KEY}},
          204, "");
    assert_string_equal(fake_files()->path, "\xff");
    assert_int_equal(fake_files()->mode, UINT32_MAX);
}

static void bad_requests_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *query, *body;
        int status;
        const char *says;
    } rows[] = {
        {"GET", FS "/file", "", NULL, 400, "\"pointer\":\"/path\""},
        {"GET", FS "/file", "path=", NULL, 400, "\"pointer\":\"/path\""},
        {"GET", FS "/file", "path=a&path_base64=YQ", NULL, 400, "\"pointer\":\"/path_base64\""},
        {"GET", FS "/file", "path_base64=?", NULL, 400, "\"pointer\":\"/path_base64\""},
        {"GET", FS "/file", "path_base64=YQBi", NULL, 400, "NUL"},
        {"GET", FS "/file", "path=%FF", NULL, 400, "UTF-8"},
        {"GET", FS "/file", "path=a&offset=1", NULL, 400, "\"pointer\":\"/offset\""},
        {"GET", FS "/file", "path=bad", NULL, 403, "\"forbidden\""},
        {"PUT", FS "/file", "path=a&mode=9", "x", 400, "\"pointer\":\"/mode\""},
        {"PUT", FS "/file", "path=a&data=x", "x", 400, "\"pointer\":\"/data\""},
        {"DELETE", FS "/file", "path=a&recursive=maybe", NULL, 400, "\"pointer\":\"/recursive\""},
        {"GET", FS "/dir", "depth=0", NULL, 400, "\"pointer\":\"/depth\""},
        {"GET", FS "/dir", "depth=65", NULL, 400, "\"pointer\":\"/depth\""},
        {"GET", FS "/dir", "limit=10001", NULL, 400, "\"pointer\":\"/limit\""},
        {"GET", FS "/dir", "after=*", NULL, 400, "\"pointer\":\"/after\""},
        {"POST", FS "/dir", "", "{}", 400, "\"pointer\":\"/path\""},
        {"POST", FS "/move", "", "{\"from\":\"a\"}", 400, "\"pointer\":\"/to\""},
        {"POST", FS "/move", "", "{\"from\":\"a\",\"to\":3}", 400, "\"pointer\":\"/to\""},
        {"PATCH", FS "/file", "path=a", "x", 405, "\"method_not_allowed\""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        asked(&(fake_request_t){.method = rows[i].method,
                                .path = rows[i].path,
                                .query = rows[i].query,
                                .body = rows[i].body,
                                .headers = {KEY, {"Content-Type", "application/json"}}},
              rows[i].status, rows[i].says);
    }
}

static void small_operations_pass_their_arguments(void **state)
{
    (void)state;
    fake_request_t json = {.method = "POST",
                           .headers = {KEY, {"Content-Type", "application/json"}}};
    json.path = FS "/move";
    json.body = "{\"from_base64\":\"/w\",\"to\":\"b\",\"overwrite\":true}";
    asked(&json, 200, "/workspace/x");
    assert_string_equal(fake_files()->path, "\xff");
    assert_string_equal(fake_files()->to, "b");
    assert_true(fake_files()->flag);
    json.path = FS "/dir";
    json.body = "{\"path\":\"d\",\"mode\":\"700\"}";
    kg_http_t *http = ask(&json, 201, "/workspace/x");
    assert_int_equal(fake_files()->mode, 0700);
    assert_true(fake_files()->flag);
    assert_string_equal(fake_http_header(http, "Location"),
                        "/v1/sandboxes/" FAKE_SANDBOX "/fs/dir?path=d");
    fake_http_close(&http);
    asked(&(fake_request_t){.path = FS "/dir", .headers = {KEY}}, 200, "path");
    assert_string_equal(fake_files()->path, "/workspace");
    assert_int_equal(fake_files()->depth, 1);
    assert_int_equal(fake_files()->limit, 1000);
    asked(&(fake_request_t){.path = FS "/stat", .query = "path=l&follow=true", .headers = {KEY}},
          200, "path");
    assert_true(fake_files()->flag);
    asked(
        &(fake_request_t){
            .method = "DELETE", .path = FS "/file", .query = "path=l", .headers = {KEY}},
        204, "");
    assert_false(fake_files()->flag);
}

static void a_watch_is_a_stream_of_events(void **state)
{
    (void)state;
    kg_http_t *http = ask(&(fake_request_t){.path = FS "/watch", .headers = {KEY}}, 200, "");
    assert_string_equal(fake_http_type(http), "application/x-ndjson");
    assert_string_equal(fake_http_body(http, 1000), "");
    fake_files_event();
    assert_true(fake_http_woken(http));
    fake_files_event();
    assert_string_equal(fake_http_body(http, 1000),
                        "{\"type\":\"created\",\"path\":\"/workspace/a\"}\n"
                        "{\"type\":\"created\",\"path\":\"/workspace/a\"}\n");
    fake_files()->watch_over = true;
    (void)fake_http_body(http, 1000);
    assert_true(fake_http_ended(http));
    fake_http_close(&http);
    fake_files()->watch_over = false;
    http = ask(
        &(fake_request_t){.path = FS "/watch", .headers = {KEY, {"Accept", "text/event-stream"}}},
        200, "");
    fake_files_event();
    assert_string_equal(
        fake_http_body(http, 1000),
        "retry: 1000\n\ndata: {\"type\":\"created\",\"path\":\"/workspace/a\"}\n\n");
    fake_http_close(&http);
}

/* --- tus ------------------------------------------------------------------------------------ */

static void an_upload_goes_its_way(void **state)
{
    (void)state;
    kg_http_t *http =
        ask(&(fake_request_t){.method = "POST",
                              .path = FS "/uploads",
                              .headers = {KEY,
                                          TUS,
                                          {"Upload-Length", "9"},
                                          {"Upload-Metadata", "path YS9i,mode NzU1"}}},
            201, "");
    assert_string_equal(fake_http_header(http, "Location"),
                        "/v1/sandboxes/" FAKE_SANDBOX "/fs/uploads/upl-1");
    assert_string_equal(fake_http_header(http, "Tus-Resumable"), "1.0.0");
    assert_string_equal(fake_files()->path, "a/b");
    assert_int_equal(fake_files()->mode, 0755);
    fake_http_close(&http);
    http = ask(&(fake_request_t){.method = "PATCH",
                                 .path = FS "/uploads/upl-1",
                                 .body = "four",
                                 .headers = {KEY, TUS, OCTETS, {"Upload-Offset", "0"}}},
               204, "");
    assert_string_equal(fake_http_header(http, "Upload-Offset"), "4");
    assert_int_equal(fake_files()->bytes, 4);
    fake_http_close(&http);
    http =
        ask(&(fake_request_t){.method = "HEAD", .path = FS "/uploads/upl-1", .headers = {KEY, TUS}},
            200, "");
    assert_string_equal(fake_http_header(http, "Upload-Offset"), "4");
    assert_string_equal(fake_http_header(http, "Upload-Length"), "9");
    assert_string_equal(fake_http_header(http, "Upload-Metadata"), "path YS9i,mode NzU1");
    assert_string_equal(fake_http_header(http, "Cache-Control"), "no-store");
    fake_http_close(&http);
    asked(&(fake_request_t){.method = "PATCH",
                            .path = FS "/uploads/upl-1",
                            .body = "x",
                            .headers = {KEY, TUS, OCTETS, {"Upload-Offset", "3"}}},
          409, "\"conflict\"");
    asked(&(fake_request_t){.method = "DELETE", .path = FS "/uploads/upl-1", .headers = {KEY, TUS}},
          204, "");
    asked(&(fake_request_t){.path = FS "/uploads/upl-1", .headers = {KEY, TUS}}, 404,
          "\"not_found\"");
}

static void what_tus_forbids_is_refused(void **state)
{
    (void)state;
    kg_http_t *http = ask(&(fake_request_t){.method = "POST",
                                            .path = FS "/uploads",
                                            .headers = {KEY, {"Upload-Length", "9"}}},
                          412, "\"precondition_failed\"");
    assert_string_equal(fake_http_header(http, "Tus-Version"), "1.0.0");
    assert_string_equal(fake_http_header(http, "Tus-Resumable"), "1.0.0");
    fake_http_close(&http);
    static const struct {
        const char *headers[3][2];
        const char *body;
        int status;
        const char *says;
    } rows[] = {
        {{{"Upload-Metadata", "path YQ=="}}, NULL, 400, "\"pointer\":\"/upload_length\""},
        {{{"Upload-Length", "1"}, {"Upload-Defer-Length", "1"}}, NULL, 400, "/upload_length"},
        {{{"Upload-Defer-Length", "2"}}, NULL, 400, "/upload_defer_length"},
        {{{"Upload-Length", "-1"}}, NULL, 400, "/upload_length"},
        {{{"Upload-Length", "1099511627777"}}, NULL, 400, "/upload_length"},
        {{{"Upload-Length", "x"}}, NULL, 400, "/upload_length"},
        {{{"Upload-Length", "1"}}, NULL, 400, "needs path"},
        {{{"Upload-Length", "1"}, {"Upload-Metadata", "path *"}}, NULL, 400, "base64"},
        {{{"Upload-Length", "1"}, {"Upload-Metadata", "path YQBi"}}, NULL, 400, "needs path"},
        {{{"Upload-Length", "1"}, {"Upload-Metadata", "path YQ==,mode YQ=="}}, NULL, 400, "octal"},
        {{{"Upload-Length", "1"}, {"Upload-Metadata", "path YQ=="}}, "x", 400, "PATCH"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        fake_request_t r = {
            .method = "POST", .path = FS "/uploads", .body = rows[i].body, .headers = {KEY, TUS}};
        for (size_t k = 0; k < 3; k++) {
            r.headers[2 + k][0] = rows[i].headers[k][0];
            r.headers[2 + k][1] = rows[i].headers[k][1];
        }
        asked(&r, rows[i].status, rows[i].says);
    }
}

static void pieces_are_checked(void **state)
{
    (void)state;
    asked(
        &(fake_request_t){
            .method = "POST",
            .path = FS "/uploads",
            .headers = {KEY, TUS, {"Upload-Defer-Length", "1"}, {"Upload-Metadata", "path YQ=="}}},
        201, "");
    kg_http_t *http = ask(&(fake_request_t){.path = FS "/uploads/upl-1", .headers = {KEY, TUS}},
                          200, "\"length\":null");
    assert_string_equal(fake_http_header(http, "Upload-Defer-Length"), "1");
    assert_null(fake_http_header(http, "Upload-Length"));
    fake_http_close(&http);
    fake_request_t piece = {
        .method = "PATCH", .path = FS "/uploads/upl-1", .body = "x", .headers = {KEY, TUS}};
    asked(&piece, 415, "offset+octet-stream");
    piece.headers[2][0] = "Content-Type";
    piece.headers[2][1] = "application/offset+octet-stream";
    asked(&piece, 400, "/upload_offset");
    piece.headers[3][0] = "Upload-Offset";
    piece.headers[3][1] = "0";
    piece.headers[4][0] = "Upload-Length";
    piece.headers[4][1] = "1";
    asked(&piece, 204, "");
    piece.path = FS "/uploads/nope";
    asked(&piece, 404, "\"not_found\"");
}

static void options_tell_of_tus(void **state)
{
    (void)state;
    kg_http_t *http = ask(&(fake_request_t){.method = "OPTIONS", .path = FS "/uploads"}, 204, "");
    assert_string_equal(fake_http_header(http, "Tus-Version"), "1.0.0");
    assert_string_equal(fake_http_header(http, "Tus-Extension"),
                        "creation,creation-defer-length,termination");
    assert_string_equal(fake_http_header(http, "Tus-Max-Size"), "1099511627776");
    fake_http_close(&http);
    http = ask(&(fake_request_t){.method = "OPTIONS", .path = FS "/file"}, 204, "");
    assert_null(fake_http_header(http, "Tus-Version"));
    fake_http_close(&http);
}

/* --- WebSocket ------------------------------------------------------------------------------ */

static void frame_is(kg_ws_t *ws, const char *text)
{
    const char *frame = fake_ws_frame(ws, 100000);
    assert_non_null(frame);
    assert_string_equal(frame, text);
}

static void frames_carry_base64(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, "{\"id\":1,\"op\":\"fs.read\",\"sandbox\":\"box\",\"path\":\"a\"}");
    (void)fake_files_fire(KG_ERR_NONE);
    frame_is(w->ws, "{\"id\":1,\"type\":\"response\",\"data\":{\"encoding\":\"base64\","
                    "\"offset\":0,\"size\":11,\"eof\":true,\"data\":\"aGVsbG8gZmlsZXM=\"}}");
    fake_ws_text(w->ws, "{\"id\":2,\"op\":\"fs.read\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"offset\":6,\"length\":2}");
    (void)fake_files_fire(KG_ERR_NONE);
    frame_is(w->ws, "{\"id\":2,\"type\":\"response\",\"data\":{\"encoding\":\"base64\","
                    "\"offset\":6,\"size\":11,\"eof\":false,\"data\":\"Zmk=\"}}");
    fake_ws_text(w->ws, "{\"id\":3,\"op\":\"fs.read\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"offset\":99}");
    (void)fake_files_fire(KG_ERR_NONE);
    frame_is(w->ws, "{\"id\":3,\"type\":\"response\",\"data\":{\"encoding\":\"base64\","
                    "\"offset\":99,\"size\":11,\"eof\":true,\"data\":\"\"}}");
    fake_ws_text(w->ws, "{\"id\":4,\"op\":\"fs.write\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"data\":\"aGk=\"}");
    (void)fake_files_fire(KG_ERR_NONE);
    frame_is(w->ws, "{\"id\":4,\"type\":\"response\",\"data\":{\"created\":false,\"size\":2}}");
    assert_string_equal(fake_files()->written, "hi");
    fake_ws_text(w->ws, "{\"id\":5,\"op\":\"fs.write\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"data\":\"h\xc3\xa4\",\"encoding\":\"utf8\"}");
    (void)fake_files_fire(KG_ERR_NONE);
    (void)fake_ws_frame(w->ws, 1000);
    assert_string_equal(fake_files()->written, "h\xc3\xa4");
    fake_ws_text(w->ws, "{\"id\":6,\"op\":\"fs.write\",\"sandbox\":\"box\",\"path\":\"a\"}");
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "\"pointer\":\"/data\""));
    fake_ws_text(w->ws, "{\"id\":7,\"op\":\"fs.write\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"data\":\"*\"}");
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "base64"));
    fake_ws_text(w->ws, "{\"id\":8,\"op\":\"fs.read\",\"sandbox\":\"box\",\"path\":\"a\","
                        "\"length\":4194305}");
    assert_non_null(strstr(fake_ws_frame(w->ws, 1000), "\"pointer\":\"/length\""));
}

static void a_watch_shares_the_socket(void **state)
{
    world_t *w = *state;
    fake_ws_text(w->ws, "{\"id\":\"w\",\"op\":\"fs.watch\",\"sandbox\":\"box\"}");
    (void)fake_files_fire(KG_ERR_NONE);
    frame_is(w->ws, "{\"id\":\"w\",\"type\":\"watching\"}");
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_files_event();
    frame_is(w->ws, "{\"id\":\"w\",\"type\":\"created\",\"path\":\"/workspace/a\"}");
    assert_null(fake_ws_frame(w->ws, 1000));
    fake_ws_close(&w->ws);
    assert_int_equal(fake_files()->open, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_file_comes_as_bytes),
        T(ranges_are_answered),
        T(writes_and_removes_keep_to_their_conditions),
        T(a_client_that_leaves_leaves_nothing),
        T(a_body_goes_in_as_it_comes),
        T(bad_requests_are_named),
        T(small_operations_pass_their_arguments),
        T(a_watch_is_a_stream_of_events),
        T(an_upload_goes_its_way),
        T(what_tus_forbids_is_refused),
        T(pieces_are_checked),
        T(options_tell_of_tus),
        T(frames_carry_base64),
        T(a_watch_shares_the_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
