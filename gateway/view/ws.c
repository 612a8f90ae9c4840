/* gateway/view: sandal.v1. A frame is a call, an answer is a frame, and runs that are followed
 * share the socket: the edge asks for the next piece when the client has taken the last, and each
 * followed run has its turn. So a slow client costs no memory: what it has not read lies in the
 * logs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/api/limits.h"
#include "gateway/api/validate.h"
#include "gateway/base/credential.h"
#include "gateway/base/str.h"
#include "gateway/view/parse.h"
#include "gateway/view/router.h"
#include "gateway/view/track.h"
#include "gateway/view/view_priv.h"
#include "proto/json_scan.h"

/* One unanswered call. */
typedef struct pending {
    kg_socket_t *socket;
    const kg_op_t *op;
    kg_call_t *call;
    char *id; /* JSON text */
    struct pending *prev, *next;
} pending_t;

/* A frame that waits for the one before it to be parsed. */
typedef struct waiting {
    kg_buf_t text;
    struct waiting *prev, *next;
} waiting_t;

struct kg_socket {
    kg_front_t front;
    kg_server_t *server;
    kg_ws_t *ws;
    kg_principal_t who;
    kg_key_watch_t key_watch;
    char sandbox[KG_API_REF_MAX + 1]; /* the path's, "" = none */
    pending_t *pending;
    unsigned pending_count;
    kg_tracks_t tracks;
    kg_parse_t *parse; /* a long frame is on a worker */
    waiting_t *backlog;
    size_t backlog_bytes;
    bool paused; /* unread answers hold the client back */
    bool closing;
    kg_socket_t *prev, *next;
};

/* --- Frames out ----------------------------------------------------------------------------- */

static void close_socket(kg_socket_t *s, unsigned code, const char *reason)
{
    if (!s->closing) {
        s->closing = true;
        kg_ws_close(s->ws, code, reason);
    }
}

static void on_key_gone(void *user)
{
    close_socket(user, KG_KEY_GONE_CLOSE, KG_KEY_GONE_REASON);
}

/* Not read while its answers lie unread, or a long frame is being parsed. */
static void hold_back(kg_socket_t *s)
{
    kg_ws_pause(s->ws, s->paused || s->parse);
}

/* Answers are few and small; a client that asks without reading is held back, and cut when it still
 * has too much. */
static void send_text(kg_socket_t *s, const kg_buf_t *text)
{
    if (s->closing) {
        return;
    }
    int rc = kg_ws_send(s->ws, kg_buf_slice(text));
    if (rc < 0) {
        close_socket(s, rc == -ENOMEM ? 1011 : 1013, "too many unread answers");
        return;
    }
    s->server->sent_bytes += text->len;
    if (!s->paused && kg_ws_queued(s->ws) > s->server->pending_max / 2) {
        s->paused = true;
        hold_back(s);
        kg_ws_wake(s->ws); /* the source is asked when the queue has gone */
    }
}

static void send_failure(kg_socket_t *s, const char *id, const kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t body = {0};
    int rc = kg_edge_error_body(err, &body);
    rc = rc < 0 ? rc : kg_buf_printf(&text, "{\"id\":%s,\"type\":\"failure\",", id ? id : "null");
    /* The body is {"error":…}: its members follow ours. */
    rc = rc < 0 ? rc : kg_buf_append(&text, body.data + 1, body.len - 1);
    if (rc < 0) {
        close_socket(s, 1011, "out of memory");
        return;
    }
    send_text(s, &text);
}

static void send_response(kg_socket_t *s, const char *id, const kg_answer_t *answer)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = kg_buf_printf(&text, "{\"id\":%s,\"type\":\"response\",\"data\":", id);
    rc = rc < 0             ? rc
         : answer->body.len ? kg_buf_append_slice(&text, answer->body)
                            : kg_buf_append_cstr(&text, "null");
    rc = rc < 0 ? rc : kg_buf_append_char(&text, '}');
    if (rc < 0) {
        close_socket(s, 1011, "out of memory");
        return;
    }
    send_text(s, &text);
}

/* --- Calls ---------------------------------------------------------------------------------- */

static void pending_free(pending_t *p)
{
    DL_DELETE(p->socket->pending, p);
    p->socket->pending_count--;
    free(p->id);
    free(p);
}

static void on_reply(void *user, const kg_answer_t *answer)
{
    pending_t *p = user;
    send_response(p->socket, p->id, answer);
    pending_free(p);
}

static void on_fail(void *user, const kg_err_t *err)
{
    pending_t *p = user;
    send_failure(p->socket, p->id, err);
    pending_free(p);
}

static void on_follow(void *user, const kg_follow_t *follow)
{
    pending_t *p = user;
    kg_socket_t *s = p->socket;
    kg_track_kind_t kind = follow->events                 ? KG_TRACK_EVENTS
                           : kg_op_field(p->op, "stream") ? KG_TRACK_RESULT
                                                          : KG_TRACK_EXECUTION;
    kg_err_t err = {0};
    if (kg_tracks_add(&s->tracks, follow, kind, &p->id, &err) < 0) {
        kg_api_count_error(s->server->api, err.code);
        send_failure(s, p->id, &err);
    } else {
        s->server->streams++;
        kg_ws_wake(s->ws);
    }
    pending_free(p);
}

static void on_give(void *user, const kg_give_t *give)
{
    pending_t *p = user;
    kg_socket_t *s = p->socket;
    kg_err_t err = {0};
    if (kg_tracks_give(&s->tracks, give->source, &p->id, &err) < 0) {
        kg_api_count_error(s->server->api, err.code);
        send_failure(s, p->id, &err);
    } else {
        s->server->streams++;
        kg_ws_wake(s->ws);
    }
    pending_free(p);
}

static const kg_call_view_t ws_view = {
    .reply = on_reply, .fail = on_fail, .follow = on_follow, .give = on_give};

/* --- Frames in ------------------------------------------------------------------------------ */

/* The id as JSON text of a string or an integer, for the frame that was parsed. NULL and err
 * otherwise. */
static char *take_id(json_t *frame, kg_err_t *err)
{
    const json_t *id = json_object_get(frame, "id");
    char *text = NULL;
    if (!id || json_is_null(id)) {
        kg_err_set(err, KG_ERR_INVALID_FRAME,
                   "A frame needs an id, so that its answer can be told.");
    } else if (!(json_is_integer(id) ||
                 (json_is_string(id) && json_string_length(id) <= KG_WS_ID_MAX))) {
        kg_err_set(err, KG_ERR_INVALID_FRAME,
                   "id must be an integer or a string of at most %d bytes.", KG_WS_ID_MAX);
    } else {
        text = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!text) {
            kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this frame.");
        }
    }
    if (!text) {
        kg_err_pointer(err, "/id");
    }
    json_object_del(frame, "id");
    return text;
}

/* The id of a frame that could not be parsed, if it can be told at all. malloc'd or NULL. */
static char *guess_id(kg_slice_t text)
{
    kg_json_value_t frame;
    if (kg_json_check(text, KG_JSON_DEPTH_CAP, &frame) < 0) {
        return NULL;
    }
    kg_json_value_t id = kg_json_get(frame, "id");
    KG_AUTO_BUF kg_buf_t out = {0};
    int64_t n;
    bool number = id.type == KG_JSON_NUMBER && kg_json_int(id, &n) == 0;
    bool string = id.type == KG_JSON_STRING && id.raw.len <= KG_WS_ID_MAX;
    /* U+0000 is in no id that could be accepted. */
    if ((!number && !string) || kg_json_copy(&out, id) < 0 || strstr(out.data, "\\u0000")) {
        return NULL;
    }
    return kg_buf_steal(&out, NULL);
}

static const kg_op_t *take_op(json_t *frame, kg_err_t *err)
{
    const char *name = json_string_value(json_object_get(frame, "op"));
    const kg_op_t *op = name ? kg_op_find(name) : NULL;
    if (!name) {
        kg_err_set(err, KG_ERR_INVALID_FRAME, "A frame needs an op: the name of an operation.");
        kg_err_hint(
            err,
            "For example {\"id\":1,\"op\":\"run_code\",\"sandbox\":\"sbx-…\",\"code\":\"1+1\"}.");
        kg_err_pointer(err, "/op");
    } else if (!op) {
        (void)kg_op_unknown(name, err);
    }
    if (op) {
        json_object_del(frame, "op");
    }
    return op;
}

/* What the socket adds: its own sandbox, and that runs stream. */
static int complete_args(const kg_socket_t *s, const kg_op_t *op, json_t *args, kg_err_t *err)
{
    const json_t *stream = json_object_get(args, "stream");
    if (op->flags & KG_OP_STREAMS && kg_op_field(op, "stream") &&
        (!stream || json_is_null(stream)) && json_object_set_new(args, "stream", json_true()) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this frame.");
    }
    const json_t *sandbox = json_object_get(args, "sandbox");
    if (s->sandbox[0] && kg_op_field(op, "sandbox") && (!sandbox || json_is_null(sandbox)) &&
        json_object_set_new(args, "sandbox", json_string(s->sandbox)) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this frame.");
    }
    return op->flags & KG_OP_MISSING ? 0 : kg_op_check(op, args, err);
}

static bool id_in_use(const kg_socket_t *s, const char *id)
{
    const pending_t *p;
    DL_FOREACH (s->pending, p) {
        if (strcmp(p->id, id) == 0) {
            return true;
        }
    }
    return kg_tracks_have(&s->tracks, id);
}

static int check_room(const kg_socket_t *s, const kg_op_t *op, const char *id, kg_err_t *err)
{
    if (id_in_use(s, id)) {
        kg_err_set(err, KG_ERR_INVALID_FRAME, "A call with this id is still going on this socket.");
        kg_err_pointer(err, "/id");
        return -EINVAL;
    }
    if (s->pending_count >= s->server->calls_per_socket) {
        kg_err_set(err, KG_ERR_QUEUE_FULL, "%u calls of this socket wait for their answers.",
                   s->pending_count);
        err->retry_after_s = 1;
        return -ENOBUFS;
    }
    if (op->flags & (KG_OP_STREAMS | KG_OP_EVENTS) &&
        s->tracks.count >= s->server->runs_per_socket) {
        kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "This socket follows %u runs, which is the most.",
                   s->tracks.count);
        kg_err_hint(err, "Wait for one to end, or open another socket.");
        return -EDQUOT;
    }
    return 0;
}

static pending_t *pending_new(kg_socket_t *s, const kg_op_t *op, char **id)
{
    pending_t *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->socket = s;
    p->op = op;
    p->id = KG_TAKE(*id);
    DL_APPEND(s->pending, p);
    s->pending_count++;
    return p;
}

/* Takes frame; takes id on success. */
static int call_frame(kg_socket_t *s, const kg_op_t *op, json_t *frame, char **id, kg_err_t *err)
{
    int rc = check_room(s, op, *id, err);
    rc = rc < 0 ? rc : complete_args(s, op, frame, err);
    if (rc < 0) {
        json_decref(frame);
        return rc;
    }
    pending_t *p = pending_new(s, op, id);
    if (!p) {
        json_decref(frame);
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this frame.");
    }
    kg_call_t *call = NULL;
    kg_api_call(s->server->api, op, frame, &s->who, &ws_view, p, &call);
    if (call) {
        p->call = call; /* not answered yet, so p lives */
    }
    return 0;
}

static void refuse(kg_socket_t *s, const char *id, const kg_err_t *err)
{
    kg_api_count_error(s->server->api, err->code);
    send_failure(s, id, err);
}

static void handle_frame(kg_socket_t *s, json_t *frame)
{
    kg_err_t err = {0};
    KG_AUTO_FREE char *id = take_id(frame, &err);
    const kg_op_t *op = id ? take_op(frame, &err) : NULL;
    if (!op) {
        json_decref(frame);
        refuse(s, id, &err);
    } else if (call_frame(s, op, frame, &id, &err) < 0) {
        refuse(s, id, &err);
    }
}

static void on_parsed(void *user, json_t *frame, kg_slice_t text, const kg_err_t *err);

static void parse_frame(kg_socket_t *s, kg_slice_t text)
{
    kg_parse_t *parse = NULL;
    kg_parse_start(s->server->workers, text, s->server->frame_max, on_parsed, s, &parse);
    if (parse) {
        s->parse = parse;
        hold_back(s);
    }
}

/* What came while a long frame was being parsed, in order, up to the next long one. */
static void work_off(kg_socket_t *s)
{
    while (s->backlog && !s->parse) {
        waiting_t *w = s->backlog;
        DL_DELETE(s->backlog, w);
        s->backlog_bytes -= w->text.len;
        parse_frame(s, kg_buf_slice(&w->text));
        kg_buf_fini(&w->text);
        free(w);
    }
    hold_back(s);
}

static void on_parsed(void *user, json_t *frame, kg_slice_t text, const kg_err_t *err)
{
    kg_socket_t *s = user;
    bool late = s->parse != NULL;
    s->parse = NULL;
    if (frame) {
        handle_frame(s, frame);
    } else {
        KG_AUTO_FREE char *guess = guess_id(text);
        refuse(s, guess, err);
    }
    if (late) {
        work_off(s);
    }
}

/* A frame that arrives while a long one is being parsed; few do, for reading is paused. */
static void keep_frame(kg_socket_t *s, kg_slice_t text)
{
    waiting_t *w = calloc(1, sizeof *w);
    if (!w || s->backlog_bytes + text.len > s->server->frame_max ||
        kg_buf_append_slice(&w->text, text) < 0) {
        free(w);
        close_socket(s, 1013, "too many frames at once");
        return;
    }
    s->backlog_bytes += text.len;
    DL_APPEND(s->backlog, w);
}

void kg_view_ws_on_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user)
{
    kg_server_t *server = user;
    kg_socket_t *s = kg_ws_user(ws);
    server->received_bytes += data.len;
    if (binary) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_INVALID_FRAME, "Frames are text: one JSON object each.");
        refuse(s, NULL, &err);
    } else if (s->parse) {
        keep_frame(s, data);
    } else {
        parse_frame(s, data);
    }
}

/* --- Source --------------------------------------------------------------------------------- */

static void tracks_wake(void *user)
{
    kg_socket_t *s = user;
    kg_ws_wake(s->ws);
}

static void track_ended(void *user, const char *id, const kg_err_t *err)
{
    kg_socket_t *s = user;
    s->server->streams--;
    if (err) {
        refuse(s, id, err);
    }
}

/* The edge asks when its queue is empty: the client has read its answers, so it may ask again. */
static kg_pull_t fill(void *user, kg_buf_t *out, size_t max, bool *ret_message_end)
{
    kg_socket_t *s = user;
    size_t start = out->len;
    if (s->paused) {
        s->paused = false;
        hold_back(s);
    }
    kg_pull_t pull = kg_tracks_fill(&s->tracks, out, max, ret_message_end);
    s->server->sent_bytes += out->len - start;
    return pull;
}

/* --- Opening and closing -------------------------------------------------------------------- */

static int choose_protocol(kg_slice_t offered, kg_upgrade_reply_t *reply, kg_err_t *err)
{
    if (kg_list_has(offered, "sandal.v1")) {
        snprintf(reply->protocol, sizeof reply->protocol, "sandal.v1");
        return 0;
    }
    /* One that only carries a key names no dialect. */
    if (offered.len == 0 ||
        (!memchr(offered.data, ',', offered.len) && kg_credential_of_protocol(offered).len > 0)) {
        return 0;
    }
    int rc =
        kg_err_set(err, KG_ERR_INVALID_REQUEST, "None of the offered subprotocols is spoken here.");
    kg_err_hint(err, "Offer sandal.v1.");
    return rc;
}

static int open_socket(kg_server_t *server,
                       const kg_http_head_t *head,
                       kg_slice_t offered,
                       kg_upgrade_reply_t *reply,
                       kg_socket_t *s,
                       kg_err_t *err)
{
    int rc = kg_server_guard(server, head, err);
    if (rc < 0) {
        return rc;
    }
    if (server->draining) {
        rc = kg_err_set(err, KG_ERR_DRAINING, "The gateway is stopping.");
        err->retry_after_s = 1;
        return rc;
    }
    const char *lacks = kg_route_lacks(head->path);
    if (lacks) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "%s is not part of this build.", lacks);
    }
    if (!kg_route_websocket(head->path, s->sandbox, sizeof s->sandbox)) {
        return kg_err_set(err, KG_ERR_NOT_FOUND,
                          "No WebSocket is served here; there is one at /v1/ws.");
    }
    rc = kg_server_authenticate(server, head, offered, &s->who, err);
    rc = rc < 0 ? rc : choose_protocol(offered, reply, err);
    if (rc < 0 || s->sandbox[0] == '\0') {
        return rc;
    }
    kg_sandbox_t *sandbox = kg_sandbox_find(server->core, s->who.key.owner, s->sandbox, err);
    if (!sandbox) {
        return -ENOENT;
    }
    rc = kg_auth_allow(&s->who, KG_RIGHT_SANDBOX, kg_sandbox_id(sandbox), err);
    return rc < 0 ? rc : kg_format(s->sandbox, sizeof s->sandbox, "%s", kg_sandbox_id(sandbox));
}

static int refuse_upgrade(kg_server_t *server,
                          const kg_http_head_t *head,
                          const kg_err_t *err,
                          kg_upgrade_reply_t *reply)
{
    kg_api_count_error(server->api, err->code);
    reply->status = kg_err_status(err->code);
    reply->authenticate = err->code == KG_ERR_UNAUTHORIZED ? KG_VIEW_CHALLENGE : NULL;
    (void)kg_edge_error_body(err, &reply->body);
    (void)kg_guard_cors(&server->guard, kg_http_head_get(head, "origin"), reply->allow_origin,
                        sizeof reply->allow_origin);
    return -kg_err_errno(err->code);
}

int kg_view_ws_on_upgrade(const kg_http_head_t *head,
                          kg_slice_t offered,
                          kg_upgrade_reply_t *reply,
                          void *user)
{
    kg_server_t *server = user;
    kg_err_t err = {0};
    kg_socket_t *s = calloc(1, sizeof *s);
    if (!s) {
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this socket.");
        return refuse_upgrade(server, head, &err, reply);
    }
    if (open_socket(server, head, offered, reply, s, &err) < 0) {
        free(s);
        return refuse_upgrade(server, head, &err, reply);
    }
    s->front.handler = kg_view_own();
    s->server = server;
    DL_APPEND(server->sockets, s);
    server->websockets++;
    reply->ws_user = s;
    return 0;
}

static void socket_free(kg_socket_t *s)
{
    pending_t *p, *next;
    DL_FOREACH_SAFE (s->pending, p, next) {
        kg_api_abandon(&p->call);
        pending_free(p);
    }
    kg_parse_forget(&s->parse);
    while (s->backlog) {
        waiting_t *w = s->backlog;
        DL_DELETE(s->backlog, w);
        kg_buf_fini(&w->text);
        free(w);
    }
    s->server->streams -= s->tracks.count;
    kg_tracks_fini(&s->tracks);
    s->server->websockets--;
    kg_server_unwatch_key(s->server, &s->key_watch);
    DL_DELETE(s->server->sockets, s);
    free(s);
}

void kg_view_ws_on_upgrade_failed(void *ws_user, void *user)
{
    (void)user;
    if (ws_user) {
        socket_free(ws_user);
    }
}

void kg_view_ws_on_open(kg_ws_t *ws, void *user)
{
    (void)user;
    kg_socket_t *s = kg_ws_user(ws);
    s->ws = ws;
    kg_tracks_init(&s->tracks, tracks_wake, track_ended, s);
    kg_ws_set_source(ws, fill, s);
    kg_server_watch_key(s->server, &s->key_watch, s->who.key.id, on_key_gone, s);
}

void kg_view_ws_on_close(kg_ws_t *ws, void *user)
{
    (void)user;
    kg_socket_t *s = kg_ws_user(ws);
    if (s) {
        kg_ws_set_user(ws, NULL);
        socket_free(s);
    }
}
