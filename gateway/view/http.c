/* gateway/view: HTTP. A head is routed and checked before its body is read, the body becomes
 * arguments, the call's answer becomes a reply or a stream. An exchange lives from on_request to
 * on_close; what it waits for is let go there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/api/follower.h"
#include "gateway/api/limits.h"
#include "gateway/api/validate.h"
#include "gateway/base/str.h"
#include "gateway/view/give.h"
#include "gateway/view/parse.h"
#include "gateway/view/router.h"
#include "gateway/view/stream.h"
#include "gateway/view/view_priv.h"

enum {
    HEADERS_MAX = 12 + KG_ANSWER_HEADERS
};

struct kg_exchange {
    kg_front_t front;
    kg_server_t *server;
    kg_http_t *http;
    const kg_op_t *op;
    json_t *args;
    kg_parse_t *parse;
    kg_call_t *call;
    kg_principal_t who;
    bool wants_ndjson;
    bool wants_sse;
    bool preflight;
    char key[KG_API_KEY_MAX + 1]; /* Idempotency-Key */
    char last_event_id[24];
    char request_id[132];
    char cors[256]; /* Access-Control-Allow-Origin, "" = none */
    kg_follower_t follower;
    kg_stream_t stream;
    bool waits; /* for the end of the run, to answer its Execution */
    kg_giver_t giver;
    kg_key_watch_t key_watch; /* while it follows something, or waits */
    uint64_t length;          /* of a raw body */
    kg_fn *more;              /* who takes it */
    void *more_user;
    kg_exchange_t *prev, *next;
};

/* --- Headers -------------------------------------------------------------------------------- */

typedef struct headers {
    kg_header_t list[HEADERS_MAX];
    size_t count;
    char retry[16];
} headers_t;

static void add(headers_t *h, const char *name, const char *value)
{
    if (value && *value && h->count < HEADERS_MAX) {
        h->list[h->count++] = (kg_header_t){name, value};
    }
}

static void add_common(const kg_exchange_t *x, headers_t *h)
{
    add(h, "X-Content-Type-Options", "nosniff");
    add(h, "Cache-Control", "no-store");
    add(h, "X-Request-Id", x->request_id);
    if (x->cors[0]) {
        add(h, "Access-Control-Allow-Origin", x->cors);
        add(h, "Access-Control-Expose-Headers",
            "Location, Retry-After, X-Request-Id, ETag, Content-Range, Accept-Ranges, "
            "Tus-Resumable, Tus-Version, Upload-Offset, Upload-Length, Upload-Defer-Length, "
            "Upload-Metadata, Sandal-Sandbox, Sandal-Context, Sandal-Run");
        add(h, "Vary", "Origin");
    }
    if (x->op && x->op->flags & KG_OP_TUS) {
        add(h, "Tus-Resumable", "1.0.0");
    }
}

static void add_own(headers_t *h, const kg_answer_t *answer)
{
    for (size_t i = 0; i < answer->header_count; i++) {
        add(h, answer->headers[i].name, answer->headers[i].value);
    }
}

/* --- Answers -------------------------------------------------------------------------------- */

static void reply_with(kg_exchange_t *x, const kg_answer_t *answer, headers_t *h)
{
    add_common(x, h);
    add_own(h, answer);
    add(h, "Location", answer->location);
    if (answer->type && kg_str_starts(answer->type, "text/html")) {
        add(h, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
    }
    x->server->sent_bytes += answer->body.len;
    (void)kg_http_reply(x->http, answer->status, h->list, h->count, answer->type, answer->body);
}

static void on_reply(void *user, const kg_answer_t *answer)
{
    kg_exchange_t *x = user;
    headers_t h = {0};
    x->call = NULL;
    reply_with(x, answer, &h);
}

static void fail_with(kg_exchange_t *x, const kg_err_t *err, const char *allow)
{
    headers_t h = {0};
    add_common(x, &h);
    add(&h, "Allow", allow);
    if (err->code == KG_ERR_UNAUTHORIZED) {
        add(&h, "WWW-Authenticate", KG_VIEW_CHALLENGE);
    }
    if (err->code == KG_ERR_UPGRADE_REQUIRED) { /* RFC 9110, 15.5.22 and 7.8 */
        add(&h, "Upgrade", "websocket");
        add(&h, "Connection", "Upgrade");
    }
    if (err->code == KG_ERR_PRECONDITION_FAILED && x->op && x->op->flags & KG_OP_TUS) {
        add(&h, "Tus-Version", "1.0.0");
    }
    (void)kg_http_reply_error(x->http, err, h.list, h.count);
}

static void on_fail(void *user, const kg_err_t *err)
{
    kg_exchange_t *x = user;
    x->call = NULL;
    fail_with(x, err, NULL);
}

/* An error before there was a call. */
static void refuse(kg_exchange_t *x, const kg_err_t *err, const char *allow)
{
    kg_api_count_error(x->server->api, err->code);
    fail_with(x, err, allow);
}

static void refuse_internal(kg_exchange_t *x, int rc)
{
    kg_err_t err = {0};
    kg_err_set(&err, kg_err_from_errno(rc), "The run's log cannot be read.");
    refuse(x, &err, NULL);
}

/* --- The key is gone ------------------------------------------------------------------------ */

/* As sockets do it: what is under way for that key ends, and says why. Bytes that were asked for
 * come whole. */
static void on_key_gone(void *user)
{
    kg_exchange_t *x = user;
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_UNAUTHORIZED, KG_KEY_GONE_REASON);
    if (x->waits) {
        x->waits = false;
        kg_follower_fini(&x->follower);
        refuse(x, &err, NULL);
        return;
    }
    bool gives = x->giver.source != NULL;
    kg_buf_t *last = gives ? &x->giver.last : &x->stream.last;
    *(gives ? &x->giver.ends : &x->stream.ends) = true;
    if (kg_stream_write_failure(gives ? x->giver.kind : x->stream.kind, &err, last) < 0) {
        kg_buf_clear(last);
    }
    kg_api_count_error(x->server->api, err.code);
    kg_http_wake(x->http);
}

static void watch_key(kg_exchange_t *x)
{
    kg_server_watch_key(x->server, &x->key_watch, x->who.key.id, on_key_gone, x);
}

/* --- Runs ----------------------------------------------------------------------------------- */

static void start_stream(kg_exchange_t *x, const char *type)
{
    headers_t h = {0};
    add_common(x, &h);
    add(&h, "X-Accel-Buffering", "no");
    x->server->streams++;
    x->stream.counted = true;
    int rc = kg_http_stream(x->http, 200, h.list, h.count, type, kg_stream_fill, &x->stream);
    if (rc < 0) {
        refuse_internal(x, rc);
    }
}

/* Small ones are answered with their length, others as a stream whose first piece is at hand. */
static void reply_execution(kg_exchange_t *x)
{
    x->waits = false;
    int rc = kg_follower_read_execution(&x->follower);
    if (rc < 0) {
        refuse_internal(x, rc);
        return;
    }
    kg_stream_init(&x->stream, KG_STREAM_TEXT, &x->follower, &x->server->sent_bytes);
    KG_AUTO_BUF kg_buf_t first = {0};
    kg_pull_t pull = kg_stream_fill(&x->stream, &first, KG_VIEW_PIECE);
    x->server->sent_bytes -= first.len; /* counted when it goes out */
    if (pull == KG_PULL_END) {
        headers_t h = {0};
        reply_with(x, &(kg_answer_t){.status = 200, .body = kg_buf_slice(&first)}, &h);
    } else if (pull == KG_PULL_MORE) {
        x->stream.first = first;
        first = (kg_buf_t){0};
        start_stream(x, "application/json");
    } else {
        refuse_internal(x, -EIO);
    }
}

/* The log has gone: what is left is the Execution without its outputs. */
static void reply_expired(kg_exchange_t *x, kg_run_t *run)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = kg_run_execution(run, &text);
    if (rc < 0) {
        refuse_internal(x, rc);
        return;
    }
    headers_t h = {0};
    reply_with(x, &(kg_answer_t){.status = 200, .body = kg_buf_slice(&text)}, &h);
}

static void log_moved(void *user)
{
    kg_exchange_t *x = user;
    if (!x->waits) {
        kg_http_wake(x->http);
        return;
    }
    if (kg_run_log_expired(x->follower.log) || kg_run_log_finished(x->follower.log)) {
        kg_server_unwatch_key(x->server, &x->key_watch);
    }
    if (kg_run_log_expired(x->follower.log)) {
        x->waits = false;
        reply_expired(x, x->follower.run);
    } else if (kg_run_log_finished(x->follower.log)) {
        reply_execution(x);
    }
}

static void follow_events(kg_exchange_t *x, const kg_follow_t *follow)
{
    int64_t after = follow->after;
    if (x->last_event_id[0]) {
        (void)kg_parse_i64(x->last_event_id, 0, INT64_MAX, &after);
    }
    int rc = kg_follower_read_events(&x->follower, after, follow->late);
    if (rc < 0) {
        refuse_internal(x, rc);
        return;
    }
    kg_stream_init(&x->stream, x->wants_sse ? KG_STREAM_SSE : KG_STREAM_NDJSON, &x->follower,
                   &x->server->sent_bytes);
    x->stream.late = follow->late;
    /* An EventSource reconnects after the end of a stream, until it is told that there is no more.
     */
    bool over = kg_run_log_finished(x->follower.log) && !follow->late && after >= 0 &&
                (uint64_t)after + 1 >= kg_run_log_next_seq(x->follower.log);
    if (over && x->wants_sse) {
        headers_t h = {0};
        reply_with(x, &(kg_answer_t){.status = 204}, &h);
        return;
    }
    watch_key(x);
    start_stream(x, x->wants_sse ? "text/event-stream" : "application/x-ndjson");
}

static void on_follow(void *user, const kg_follow_t *follow)
{
    kg_exchange_t *x = user;
    x->call = NULL;
    int rc = kg_follower_init(&x->follower, follow->run, log_moved, x);
    if (rc == -ESTALE && follow->events) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_RUN_EXPIRED, "The events of this run are no longer kept.");
        refuse(x, &err, NULL);
    } else if (rc == -ESTALE) {
        reply_expired(x, follow->run);
    } else if (follow->events) {
        follow_events(x, follow);
    } else if (kg_run_log_finished(x->follower.log)) {
        reply_execution(x);
    } else {
        x->waits = true;
        watch_key(x);
    }
}

/* --- Bytes ---------------------------------------------------------------------------------- */

static void giver_moved(void *user)
{
    kg_exchange_t *x = user;
    kg_http_wake(x->http);
}

static void on_give(void *user, const kg_give_t *give)
{
    kg_exchange_t *x = user;
    headers_t h = {0};
    x->call = NULL;
    kg_stream_kind_t kind = !give->events  ? KG_STREAM_TEXT
                            : x->wants_sse ? KG_STREAM_SSE
                                           : KG_STREAM_NDJSON;
    const char *type = !give->events  ? give->head.type
                       : x->wants_sse ? "text/event-stream"
                                      : "application/x-ndjson";
    kg_giver_init(&x->giver, give->source, kind, &x->server->sent_bytes);
    give->source->wake = giver_moved;
    give->source->wake_user = x;
    add_common(x, &h);
    add_own(&h, &give->head);
    if (give->events) {
        add(&h, "X-Accel-Buffering", "no");
        x->server->streams++;
        watch_key(x);
    }
    if (give->length >= 0) {
        kg_http_announce(x->http, (uint64_t)give->length);
    }
    if (give->length >= 0 && give->source->pour) {
        kg_http_pour(x->http, kg_giver_pour);
    }
    int rc =
        kg_http_stream(x->http, give->head.status, h.list, h.count, type, kg_giver_fill, &x->giver);
    if (rc < 0) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for the answer.");
        refuse(x, &err, NULL);
    }
}

static uint64_t on_body(void *user, kg_fn *more, void *more_user)
{
    kg_exchange_t *x = user;
    if (more) {
        x->more = more;
        x->more_user = more_user;
    }
    return x->length;
}

static void on_take(void *user, kg_buf_t *out, bool *ret_end)
{
    kg_exchange_t *x = user;
    kg_http_body_take(x->http, out, ret_end);
    x->server->received_bytes += out->len;
}

static void body_moved(void *user)
{
    kg_exchange_t *x = user;
    if (x->call && x->more) {
        x->more(x->more_user);
    }
}

static const kg_call_view_t http_view = {.reply = on_reply,
                                         .fail = on_fail,
                                         .follow = on_follow,
                                         .give = on_give,
                                         .body = on_body,
                                         .take = on_take};

void kg_http_keep_alive(kg_server_t *server, uint64_t now_ns)
{
    kg_exchange_t *x;
    DL_FOREACH (server->exchanges, x) {
        bool silent = x->giver.source ? kg_giver_silent(&x->giver, now_ns, server->silent_ns)
                                      : x->stream.counted &&
                                            kg_stream_silent(&x->stream, now_ns, server->silent_ns);
        if (silent) {
            kg_http_wake(x->http);
        }
    }
}

/* --- Requests ------------------------------------------------------------------------------- */

static void copy_header(const kg_http_head_t *head, const char *name, char *ret, size_t cap)
{
    kg_slice_t value = kg_http_head_get(head, name);
    if (value.len < cap) {
        memcpy(ret, value.len ? value.data : "", value.len);
        ret[value.len] = '\0';
    }
}

static void read_head(kg_exchange_t *x, const kg_http_head_t *head)
{
    kg_slice_t id = kg_http_head_get(head, "x-request-id");
    if (kg_request_id_sane(id)) {
        copy_header(head, "x-request-id", x->request_id, sizeof x->request_id);
    }
    (void)kg_guard_cors(&x->server->guard, kg_http_head_get(head, "origin"), x->cors,
                        sizeof x->cors);
    kg_slice_t accept = kg_http_head_get(head, "accept");
    x->wants_ndjson = kg_accept_names(accept, "application/x-ndjson");
    x->wants_sse = !x->wants_ndjson && kg_accept_names(accept, "text/event-stream");
    copy_header(head, "last-event-id", x->last_event_id, sizeof x->last_event_id);
}

static void reply_options(kg_exchange_t *x, const kg_route_t *route, bool preflight)
{
    headers_t h = {0};
    add(&h, "Allow", route->allow);
    if (route->tus) {
        add(&h, "Tus-Resumable", "1.0.0");
        add(&h, "Tus-Version", "1.0.0");
        add(&h, "Tus-Extension", "creation,creation-defer-length,termination");
        add(&h, "Tus-Max-Size", KG_API_FILE_MAX_TEXT);
    }
    if (preflight && x->cors[0]) {
        add(&h, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
        add(&h, "Access-Control-Allow-Headers",
            "Authorization, Content-Type, X-API-Key, Idempotency-Key, Last-Event-ID, X-Request-Id, "
            "Range, If-Range, If-Match, If-None-Match, If-Unmodified-Since, Tus-Resumable, "
            "Upload-Offset, Upload-Length, "
            "Upload-Defer-Length, Upload-Metadata, Sandal-Sandbox, Sandal-Session");
        add(&h, "Access-Control-Max-Age", "600");
    }
    reply_with(x, &(kg_answer_t){.status = 204}, &h);
}

static int no_route(const kg_http_head_t *head, const kg_route_t *route, kg_err_t *err)
{
    char unused[KG_ROUTE_ALLOW_MAX];
    if (kg_route_websocket(head->path, unused, sizeof unused)) {
        return kg_err_set(err, KG_ERR_UPGRADE_REQUIRED,
                          "This is a WebSocket endpoint: ask for an upgrade.");
    }
    if (route->known) {
        return kg_err_set(err, KG_ERR_METHOD_NOT_ALLOWED, "%.*s is not for this path.",
                          (int)head->method.len, head->method.data);
    }
    const char *lacks = kg_route_lacks(head->path);
    if (lacks) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "%s is not part of this build.", lacks);
    }
    int rc = kg_err_set(err, KG_ERR_NOT_FOUND, "Nothing is at %.*s.",
                        (int)(head->path.len < 200 ? head->path.len : 200), head->path.data);
    kg_err_hint(err, "GET /v1/openapi.yaml lists what there is.");
    return rc;
}

/* Headers that are arguments. */
static int header_args(kg_exchange_t *x, const kg_http_head_t *head, kg_err_t *err)
{
    kg_slice_t key = kg_http_head_get(head, "idempotency-key");
    if (key.len >= sizeof x->key) {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                            "Idempotency-Key is longer than %zu bytes.", sizeof x->key - 1);
        kg_err_pointer(err, "/idempotency_key");
        return rc;
    }
    copy_header(head, "idempotency-key", x->key, sizeof x->key);
    int64_t seq;
    if (x->last_event_id[0] && kg_parse_i64(x->last_event_id, 0, INT64_MAX, &seq) < 0) {
        int rc =
            kg_err_set(err, KG_ERR_INVALID_REQUEST, "Last-Event-ID must be the seq of an event.");
        kg_err_pointer(err, "/last_event_id");
        return rc;
    }
    if (head->has_body && !(x->op->flags & (KG_OP_MISSING | KG_OP_RAW_IN)) &&
        !kg_content_type_is_json(kg_http_head_get(head, "content-type"))) {
        int rc = kg_err_set(err, KG_ERR_UNSUPPORTED_MEDIA_TYPE, "Bodies are JSON.");
        kg_err_hint(err, "Send Content-Type: application/json.");
        return rc;
    }
    return 0;
}

static int
accept_head(kg_exchange_t *x, const kg_http_head_t *head, kg_route_t *route, kg_err_t *err)
{
    int rc = kg_server_guard(x->server, head, err);
    if (rc < 0) {
        return rc;
    }
    kg_route_find(head->method, head->path, route);
    x->preflight = kg_slice_eq_cstr(head->method, "OPTIONS") && route->known;
    if (x->preflight) {
        return 0;
    }
    if (!route->op) {
        return no_route(head, route, err);
    }
    x->op = route->op;
    if (x->op->right != KG_RIGHT_NONE) {
        rc = kg_server_authenticate(x->server, head, kg_slice(NULL, 0), &x->who, err);
        if (rc < 0) {
            return rc;
        }
    }
    rc = header_args(x, head, err);
    x->args = json_object();
    if (!x->args) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    rc = rc < 0 ? rc : kg_route_params(x->op, head->path, head->query, x->args, err);
    return rc < 0 ? rc : kg_route_headers(x->op, head, x->args, err);
}

static void call(kg_exchange_t *x)
{
    kg_api_call(x->server->api, x->op, KG_TAKE(x->args), &x->who, &http_view, x, &x->call);
}

static void go(kg_exchange_t *x);

void kg_view_http_on_request(kg_http_t *http,
                             const kg_http_head_t *head,
                             size_t *ret_body_max,
                             void *user)
{
    kg_server_t *server = user;
    kg_err_t err = {0};
    kg_exchange_t *x = calloc(1, sizeof *x);
    kg_http_set_user(http, x);
    if (!x) {
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        (void)kg_http_reply_error(http, &err, NULL, 0);
        return;
    }
    x->front.handler = kg_view_own();
    x->server = server;
    x->http = http;
    DL_APPEND(server->exchanges, x);
    read_head(x, head);
    *ret_body_max = server->body_max;
    kg_route_t route = {0};
    int rc = accept_head(x, head, &route, &err);
    if (rc < 0) {
        refuse(x, &err, route.known && !route.op ? route.allow : NULL);
    } else if (x->preflight) {
        reply_options(x, &route, kg_http_head_get(head, "access-control-request-method").len > 0);
    } else if (x->op->flags & KG_OP_MISSING) {
        call(x); /* whatever the body is */
    } else if (x->op->flags & KG_OP_RAW_IN) {
        *ret_body_max = (size_t)KG_API_FILE_MAX;
        x->length = head->content_length;
        if (x->length <= (uint64_t)KG_API_FILE_MAX) {
            kg_http_body_stream(http, body_moved, x);
            go(x);
        }
    }
}

/* What of the head belongs to the arguments. */
static int complete_args(kg_exchange_t *x, kg_err_t *err)
{
    if (x->key[0] && kg_op_field(x->op, "key") && !json_object_get(x->args, "key") &&
        json_object_set_new(x->args, "key", json_string(x->key)) < 0) {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                            "Idempotency-Key must be printable ASCII without spaces.");
        kg_err_pointer(err, "/idempotency_key");
        return rc;
    }
    const json_t *stream = json_object_get(x->args, "stream");
    if (kg_op_field(x->op, "stream") && (!stream || json_is_null(stream)) &&
        (x->wants_ndjson || x->wants_sse) &&
        json_object_set_new(x->args, "stream", json_true()) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    return kg_op_check(x->op, x->args, err);
}

static void go(kg_exchange_t *x)
{
    kg_err_t err = {0};
    if (complete_args(x, &err) < 0) {
        refuse(x, &err, NULL);
    } else {
        call(x);
    }
}

static void on_parsed(void *user, json_t *object, kg_slice_t text, const kg_err_t *parse_err)
{
    kg_exchange_t *x = user;
    (void)text;
    x->parse = NULL;
    if (!object) {
        refuse(x, parse_err, NULL);
        return;
    }
    kg_err_t err = {0};
    int rc = kg_op_check_body(x->op, object, &err);
    if (rc == 0 && json_object_update(x->args, object) < 0) {
        rc = kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    json_decref(object);
    if (rc < 0) {
        refuse(x, &err, NULL);
    } else {
        go(x);
    }
}

/* What models write is more than a tree can hold: it goes on as it came. */
static void take_text(kg_exchange_t *x, kg_slice_t body)
{
    kg_err_t err = {0};
    const kg_field_t *f = x->op->fields;
    while (f->in != KG_IN_FRAME || !f->required) {
        f++;
    }
    json_t *text = json_stringn_nocheck(body.data, body.len);
    if (!text || json_object_set_new(x->args, f->name, text) < 0) {
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        refuse(x, &err, NULL);
        return;
    }
    go(x);
}

void kg_view_http_on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    kg_exchange_t *x = kg_http_user(http);
    kg_server_t *server = user;
    if (!x || kg_http_answered(http) || !x->args) {
        return;
    }
    server->received_bytes += body.len;
    if (body.len == 0) {
        go(x);
        return;
    }
    if (x->op->flags & KG_OP_TEXT_IN) {
        take_text(x, body);
        return;
    }
    kg_parse_t *parse = NULL;
    kg_parse_start(server->workers, body, server->body_max, on_parsed, x, &parse);
    if (parse) {
        x->parse = parse;
    }
}

void kg_view_http_on_close(kg_http_t *http, void *user)
{
    kg_exchange_t *x = kg_http_user(http);
    kg_server_t *server = user;
    if (!x) {
        return;
    }
    kg_http_set_user(http, NULL);
    kg_parse_forget(&x->parse);
    kg_api_abandon(&x->call);
    kg_server_unwatch_key(server, &x->key_watch);
    server->streams -= x->stream.counted || x->giver.kind != KG_STREAM_TEXT;
    kg_stream_fini(&x->stream);
    kg_giver_fini(&x->giver);
    kg_follower_fini(&x->follower);
    json_decref(x->args);
    DL_DELETE(server->exchanges, x);
    free(x);
}
