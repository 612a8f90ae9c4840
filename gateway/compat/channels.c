/* gateway/compat: the channels of a kernel over one WebSocket. Frames come and go by the codecs of
 * proto/; what they mean is gateway/context/attach's. A client that does not read is cut: the
 * kernel waits for nobody, and what it prints in one go may be more than a client reads in that
 * time, so more may lie unread here than of /v1's answers. */
#include "gateway/compat/channels.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/base/credential.h"
#include "gateway/compat/fit.h"
#include "gateway/context/attach.h"
#include "gateway/view/key_watch.h"
#include "gateway/view/router.h"
#include "proto/ws_legacy.h"
#include "proto/ws_v1.h"

/* Close codes. To Jupyter's clients 1000 and 1001 are final: they come back after the others. */
enum {
    CLOSE_FINAL = 1000,
    CLOSE_UNSUPPORTED = 1003,
    CLOSE_INVALID = 1007,
    CLOSE_FAULT = 1011,
    CLOSE_RESTART = 1012,
    CLOSE_BEHIND = 1013,
    SESSION_MAX = 64,
};

#define NAME_FORMAT "%s %s" /* by which a client comes back: its key, its session */

typedef struct kg_channels {
    kg_front_t front;
    kg_jupyter_t *jupyter;
    kg_ws_t *ws; /* NULL before it is open */
    kg_attach_t *attach;
    char context[KG_ID_MAX];
    char owner[KG_OWNER_MAX + 1];
    char key[KG_ID_MAX];       /* id of the client's */
    char session[SESSION_MAX]; /* the client's session_id, or "" */
    bool v1;
    bool server; /* it is a server itself: no binary frames, no large ones */
    bool own;    /* it started the kernel */
    bool may_restart;
    bool closing;
    bool detached; /* it asked for it, or its key is gone: it does not come back */
    bool kept;     /* what it does not get is kept: it may come back */
    kg_key_watch_t key_watch;
    struct kg_channels *prev, *next;
} kg_channels_t;

/* ---- a client that may come back ---- */

static void name_of(const kg_channels_t *c, char ret[KG_AWAY_NAME_MAX])
{
    (void)snprintf(ret, KG_AWAY_NAME_MAX, NAME_FORMAT, c->key, c->session);
}

static int decode(const kg_channels_t *c,
                  kg_slice_t data,
                  kg_slice_t store[KG_WS_BUFFERS_MAX],
                  kg_ws_msg_t *ret,
                  kg_err_t *err)
{
    return c->v1 ? kg_ws_v1_decode(data, store, ret, err)
                 : kg_ws_legacy_decode(data, store, ret, err);
}

static void miss(void *user, kg_slice_t frame, bool binary)
{
    const kg_channels_t *c = user;
    kg_slice_t store[KG_WS_BUFFERS_MAX];
    kg_ws_msg_t msg;
    (void)binary;
    if (decode(c, frame, store, &msg, NULL) == 0) {
        kg_attach_missed(c->attach, &msg);
    }
}

/* From here on, and what has not gone out yet. Without a session_id nobody could say who it is. */
static void keep(kg_channels_t *c)
{
    char name[KG_AWAY_NAME_MAX];
    name_of(c, name);
    const kg_away_opts_t opts = {.name = name,
                                 .for_ms = c->jupyter->config.reconnect_s * 1000,
                                 .bytes = c->jupyter->config.missed_max};
    if (c->kept || c->detached || !c->attach || !c->ws || !c->session[0] || opts.for_ms == 0) {
        return;
    }
    c->kept = kg_attach_keep(c->attach, &opts) == 0;
    if (c->kept) {
        kg_ws_take_unsent(c->ws, miss, c);
    }
}

static void close_with(kg_channels_t *c, unsigned code, const char *reason)
{
    if (!c->closing && c->ws) {
        if (code != CLOSE_FINAL) {
            keep(c);
        }
        c->closing = true;
        kg_ws_close(c->ws, code, reason);
    }
}

static void on_key_gone(void *user)
{
    kg_channels_t *c = user;
    c->detached = true;
    close_with(c, KG_KEY_GONE_CLOSE, KG_KEY_GONE_REASON);
}

/* ---- to the client ---- */

/* All that is long in it is kept by others for as long as it is wanted. */
static bool is_held(const kg_ws_msg_t *msg)
{
    bool any = false;
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        bool is_long = msg->parts[i].len >= KG_EDGE_HELD_MIN;
        if (is_long && !msg->held[i]) {
            return false;
        }
        any |= is_long;
    }
    for (size_t i = 0; i < msg->buffer_count && !any; i++) {
        any = msg->buffers[i].len >= KG_EDGE_HELD_MIN;
    }
    return any && msg->hold.owner;
}

/* rc: what sending so many bytes has said. */
static int counted(const kg_channels_t *c, int rc, size_t bytes)
{
    if (rc == 0) {
        kg_server_count(c->jupyter->server, 0, bytes);
    }
    return rc;
}

static int send_pieces(
    const kg_channels_t *c, bool binary, const kg_slice_t *pieces, size_t count, const kg_hold_t *h)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].len;
    }
    return counted(c, kg_ws_send_held(c->ws, binary, pieces, count, h), bytes);
}

_Static_assert(sizeof(uint64_t) * (KG_WS_BUFFERS_MAX + KG_WS_PARTS + 4) < KG_EDGE_HELD_MIN,
               "a prefix is so short that it is copied");

/* A prefix, and the kernel's frames as they came. */
static int send_v1_held(const kg_channels_t *c, const kg_ws_msg_t *msg)
{
    KG_AUTO_BUF kg_buf_t prefix = {0};
    kg_slice_t pieces[1 + KG_WS_PARTS + KG_WS_BUFFERS_MAX];
    int rc = kg_ws_v1_prefix(msg, &prefix);
    if (rc < 0) {
        return rc;
    }
    size_t n = 0;
    pieces[n++] = kg_buf_slice(&prefix);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        pieces[n++] = msg->parts[i];
    }
    for (size_t i = 0; i < msg->buffer_count; i++) {
        pieces[n++] = msg->buffers[i];
    }
    return send_pieces(c, true, pieces, n, &msg->hold);
}

/* The content between what is around it. */
static int send_legacy_held(const kg_channels_t *c, const kg_ws_msg_t *msg)
{
    KG_AUTO_BUF kg_buf_t before = {0};
    KG_AUTO_BUF kg_buf_t behind = {0};
    int rc = kg_ws_legacy_around(msg, &before, &behind);
    if (rc < 0) {
        return rc;
    }
    if (before.len >= KG_EDGE_HELD_MIN || behind.len >= KG_EDGE_HELD_MIN) {
        return -EAGAIN; /* these are nobody's */
    }
    const kg_slice_t pieces[] = {kg_buf_slice(&before), msg->parts[KG_WS_PARTS - 1],
                                 kg_buf_slice(&behind)};
    return send_pieces(c, false, pieces, KG_ARRAY_LEN(pieces), &msg->hold);
}

static int send_copy(const kg_channels_t *c, const kg_ws_msg_t *msg)
{
    KG_AUTO_BUF kg_buf_t frame = {0};
    bool binary = c->v1 || msg->buffer_count > 0;
    int rc = c->v1 ? kg_ws_v1_encode(msg, &frame) : kg_ws_legacy_encode(msg, &frame);
    if (rc < 0) {
        return rc;
    }
    rc = binary ? kg_ws_send_binary(c->ws, kg_buf_slice(&frame))
                : kg_ws_send(c->ws, kg_buf_slice(&frame));
    return counted(c, rc, frame.len);
}

static int send_frame(void *user, const kg_ws_msg_t *msg)
{
    kg_channels_t *c = user;
    int rc = -EAGAIN;
    if (is_held(msg) && (c->v1 || msg->buffer_count == 0)) {
        rc = c->v1 ? send_v1_held(c, msg) : send_legacy_held(c, msg);
    }
    rc = rc == -EAGAIN ? send_copy(c, msg) : rc;
    if (rc == -EBADMSG || rc == -E2BIG) {
        return 0; /* what no client could read */
    }
    if (rc == -ENOBUFS) {
        close_with(c, CLOSE_BEHIND, "the client reads slower than the kernel writes");
    }
    if (c->kept) { /* then it has not gone, and nor will what follows it */
        kg_attach_missed(c->attach, msg);
        return 0;
    }
    return rc;
}

static void on_message(void *user, const kg_ws_msg_t *msg)
{
    kg_channels_t *c = user;
    if (!c->ws || c->closing || (msg->buffer_count > 0 && c->server)) {
        return;
    }
    int rc = c->server ? kg_fit_each(msg, send_frame, c) : send_frame(c, msg);
    if (rc < 0 && rc != -EPIPE && rc != -ENOBUFS) {
        close_with(c, CLOSE_FAULT, "out of memory");
    }
}

static void on_end(void *user, bool deleted)
{
    close_with(user, deleted ? CLOSE_FINAL : CLOSE_RESTART,
               deleted ? "the kernel was deleted" : "the gateway is stopping");
}

/* As over REST. */
static int may_shutdown(void *user, bool restart, kg_err_t *err)
{
    const kg_channels_t *c = user;
    if (restart && !c->may_restart) {
        return kg_err_set(err, KG_ERR_FORBIDDEN,
                          "This key may attach to the kernel, not restart it.");
    }
    return 0;
}

/* A client that only looks on leaves and takes nothing along. */
static void on_shutdown(void *user, bool restart)
{
    kg_channels_t *c = user;
    bool stays = restart ? !c->may_restart : !c->own;
    kg_context_t *context =
        stays ? NULL : kg_context_find_any(c->jupyter->core, c->owner, c->context, NULL);
    if (!context) {
        c->detached = true;
        close_with(c, CLOSE_FINAL, "detached");
    } else if (restart) {
        (void)kg_context_reset(context, NULL, NULL, NULL);
    } else {
        (void)kg_sandbox_delete(kg_context_sandbox(context), NULL, NULL, NULL);
    }
}

/* ---- from the client ---- */

void kg_channels_on_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user)
{
    kg_jupyter_t *jupyter = user;
    kg_channels_t *c = kg_ws_user(ws);
    kg_slice_t store[KG_WS_BUFFERS_MAX];
    kg_ws_msg_t msg;
    kg_err_t err = {0};
    kg_server_count(jupyter->server, data.len, 0);
    if (c->closing) {
        return;
    }
    if (c->v1 && !binary) {
        close_with(c, CLOSE_UNSUPPORTED, "frames of " KG_WS_V1_PROTOCOL " are binary");
        return;
    }
    int rc = decode(c, data, store, &msg, &err);
    if (rc == -ENOENT) {
        return; /* for a channel that there is not */
    }
    rc = rc < 0 ? rc : kg_attach_send(c->attach, &msg, &err);
    if (rc < 0) {
        kg_api_count_error(kg_server_api(jupyter->server), err.code);
        close_with(c, err.code == KG_ERR_INVALID_FRAME ? CLOSE_INVALID : CLOSE_FAULT, err.message);
    }
}

/* ---- open and close ---- */

static int
choose_protocol(kg_slice_t offered, kg_channels_t *c, kg_upgrade_reply_t *reply, kg_err_t *err)
{
    c->v1 = kg_list_has(offered, KG_WS_V1_PROTOCOL);
    if (c->v1) {
        (void)snprintf(reply->protocol, sizeof reply->protocol, "%s", KG_WS_V1_PROTOCOL);
        return 0;
    }
    /* One that only carries a key names no dialect. */
    bool key =
        kg_credential_of_protocol(offered).len > 0 && !memchr(offered.data, ',', offered.len);
    if (offered.len == 0 || key) {
        return 0;
    }
    int rc =
        kg_err_set(err, KG_ERR_INVALID_REQUEST, "None of the offered subprotocols is spoken here.");
    kg_err_hint(err, "Offer " KG_WS_V1_PROTOCOL ", or none.");
    return rc;
}

/* session_id=… of the query; "" where there is none, or a longer one than any client makes. */
static void take_session(kg_slice_t query, char ret[SESSION_MAX])
{
    static const char name[] = "session_id=";
    size_t skip = sizeof name - 1;
    ret[0] = '\0';
    while (query.len > 0) {
        const char *end = memchr(query.data, '&', query.len);
        size_t len = end ? (size_t)(end - query.data) : query.len;
        if (len > skip && memcmp(query.data, name, skip) == 0 &&
            kg_percent_decode(kg_slice(query.data + skip, len - skip), true, ret, SESSION_MAX)) {
            return;
        }
        len += len < query.len;
        query = kg_slice(query.data + len, query.len - len);
    }
    ret[0] = '\0';
}

/* One session of a client has one connection: the one before is stale. */
static void replace(const kg_channels_t *fresh)
{
    kg_channels_t *c = NULL;
    DL_FOREACH (fresh->jupyter->channels, c) {
        if (c != fresh && c->ws && fresh->session[0] && strcmp(c->session, fresh->session) == 0 &&
            strcmp(c->key, fresh->key) == 0 && strcmp(c->context, fresh->context) == 0) {
            keep(c);
            kg_attach_leave(&c->attach);
            close_with(c, CLOSE_FINAL, "replaced by a newer connection of the session");
        }
    }
}

static void channels_free(kg_channels_t *c)
{
    kg_attach_close(&c->attach);
    kg_server_unwatch_key(c->jupyter->server, &c->key_watch);
    DL_DELETE(c->jupyter->channels, c);
    free(c);
}

int kg_channels_accept(kg_jupyter_t *jupyter,
                       const kg_kernel_ref_t *kernel,
                       const kg_http_head_t *head,
                       kg_slice_t offered,
                       kg_upgrade_reply_t *reply,
                       kg_err_t *err)
{
    const kg_attach_sink_t sink = {.who = kernel->key,
                                   .on_message = on_message,
                                   .may_shutdown = may_shutdown,
                                   .on_shutdown = on_shutdown,
                                   .on_end = on_end};
    kg_channels_t *c = calloc(1, sizeof *c);
    if (!c) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this socket.");
    }
    c->jupyter = jupyter;
    c->front.handler = &jupyter->dialect.handler;
    c->own = kernel->own;
    c->may_restart = kernel->may_restart;
    (void)snprintf(c->context, sizeof c->context, "%s", kg_context_id(kernel->context));
    (void)snprintf(c->owner, sizeof c->owner, "%s", kg_sandbox_owner(kernel->sandbox));
    (void)snprintf(c->key, sizeof c->key, "%s", kernel->key);
    take_session(head->query, c->session);
    int rc = choose_protocol(offered, c, reply, err);
    rc = rc < 0 ? rc : kg_attach_open(kernel->context, &sink, c, &c->attach, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    /* A server that is such a client (it sends no Origin) stops reading at a binary frame when it
     * named no protocol: messages with buffers are not for it. Nor are frames over 10 MiB. */
    c->server = !c->v1 && kg_http_head_get(head, "origin").len == 0;
    DL_APPEND(jupyter->channels, c);
    reply->ws_user = c;
    return 0;
}

void kg_channels_expect_restart(kg_jupyter_t *jupyter, const kg_kernel_ref_t *kernel, bool expected)
{
    kg_channels_t *c = NULL;
    DL_FOREACH (jupyter->channels, c) {
        if (c->attach && strcmp(c->context, kg_context_id(kernel->context)) == 0 &&
            strcmp(c->key, kernel->key) == 0) {
            kg_attach_expect_restart(c->attach, expected);
        }
    }
}

void kg_channels_on_upgrade_failed(void *ws_user, void *user)
{
    (void)user;
    if (ws_user) {
        channels_free(ws_user);
    }
}

/* What it missed comes at once: it waits here in place of there. */
static void take_up(kg_channels_t *c)
{
    char name[KG_AWAY_NAME_MAX];
    name_of(c, name);
    kg_ws_set_queue_max(c->ws, SIZE_MAX);
    if (c->session[0]) {
        (void)kg_attach_return(&c->attach, name);
    }
}

void kg_channels_on_open(kg_ws_t *ws, void *user)
{
    (void)user;
    kg_channels_t *c = kg_ws_user(ws);
    c->ws = ws;
    if (!c->v1) {
        kg_ws_take_bytes(ws); /* GA-16: servers send a browser's binary frames on as text */
    }
    kg_server_watch_key(c->jupyter->server, &c->key_watch, c->key, on_key_gone, c);
    replace(c);
    take_up(c);
    kg_ws_set_queue_max(ws, c->jupyter->config.unread_max + kg_ws_queued(ws));
    kg_attach_greet(c->attach);
}

void kg_channels_on_close(kg_ws_t *ws, void *user)
{
    (void)user;
    kg_channels_t *c = kg_ws_user(ws);
    if (c) {
        kg_ws_set_user(ws, NULL);
        if (!c->detached) {
            keep(c);
            kg_attach_leave(&c->attach);
        }
        channels_free(c);
    }
}
