/* gateway/context: what clients of connection files send. Nothing is looked at before its
 * signature, and what is wrong costs its sender and nobody else: it is counted and passed over. */
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/connect_internal.h"

/* ---- clients ---- */

void kg_peer_free(kg_peer_t *peer)
{
    kg_connection_t *c = peer->connection;
    DL_DELETE(c->peers, peer);
    c->peer_count--;
    kg_attach_close(&peer->attach);
    free(peer);
}

/* As over the WebSocket of its channels. */
static int may_shutdown(void *user, bool restart, kg_err_t *err)
{
    const kg_peer_t *peer = user;
    if (restart && !peer->connection->may_restart) {
        return kg_err_set(err, KG_ERR_FORBIDDEN,
                          "The key of this connection may attach to the kernel, not restart it.");
    }
    return 0;
}

static bool started_it(const kg_connection_t *c)
{
    const kg_sandbox_t *sandbox = c->context->sandbox;
    const char *first = kg_sandbox_default_context(sandbox);
    return first && strcmp(first, c->context->id) == 0 && kg_sandbox_started_by(sandbox, c->key_id);
}

static void on_shutdown(void *user, bool restart)
{
    kg_peer_t *peer = user;
    kg_connection_t *c = peer->connection;
    if (!c->context) {
        return;
    }
    if (restart) { /* it may */
        (void)kg_context_reset(c->context, NULL, NULL, NULL);
    } else if (started_it(c)) {
        (void)kg_sandbox_delete(c->context->sandbox, NULL, NULL, NULL);
    } else {
        peer->left = true;
        kg_connection_later(c);
    }
}

/* The connection is told as well. */
static void on_end(void *user, bool deleted)
{
    (void)user;
    (void)deleted;
}

static kg_peer_t *find_peer(kg_connection_t *c, kg_slice_t identity)
{
    kg_peer_t *peer = NULL;
    DL_FOREACH (c->peers, peer) {
        if (peer->identity_len == identity.len &&
            memcmp(peer->identity, identity.data, identity.len) == 0) {
            return peer;
        }
    }
    return NULL;
}

/* Nobody tells when a client goes: one that has not been heard for the longest time, and waits for
 * nothing, makes room. */
static int make_room(kg_connection_t *c, kg_err_t *err)
{
    kg_peer_t *peer = NULL;
    if (c->peer_count < KG_CONNECTION_PEERS) {
        return 0;
    }
    DL_FOREACH (c->peers, peer) {
        if (kg_attach_idle(peer->attach)) {
            kg_peer_free(peer);
            return 0;
        }
    }
    return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                      "%d clients of this connection wait for answers, which is the most.",
                      KG_CONNECTION_PEERS);
}

static kg_peer_t *new_peer(kg_connection_t *c, kg_slice_t identity, kg_err_t *err)
{
    const kg_attach_sink_t sink = {.part = KG_ATTACH_ASKS,
                                   .who = c->id,
                                   .on_message = kg_peer_asks,
                                   .may_shutdown = may_shutdown,
                                   .on_shutdown = on_shutdown,
                                   .on_end = on_end};
    if (make_room(c, err)) {
        return NULL;
    }
    kg_peer_t *peer = calloc(1, sizeof(*peer));
    if (!peer) {
        (void)kg_oom(err);
        return NULL;
    }
    if (kg_attach_open(c->context, &sink, peer, &peer->attach, err)) {
        free(peer);
        return NULL;
    }
    peer->connection = c;
    peer->shell.fd = -1;
    peer->identity_len = identity.len;
    memcpy(peer->identity, identity.data, identity.len);
    DL_APPEND(c->peers, peer);
    c->peer_count++;
    return peer;
}

static kg_peer_t *peer_of(kg_connection_t *c, kg_slice_t identity, kg_err_t *err)
{
    kg_peer_t *peer = find_peer(c, identity);
    if (!peer) {
        return new_peer(c, identity, err);
    }
    peer->left = false;
    DL_DELETE(c->peers, peer);
    DL_APPEND(c->peers, peer);
    return peer;
}

/* A kernel that waits for input waits for as long as its run may take, and agents behind it. */
enum {
    UNSEEN_MAX = 2,
};

bool kg_peers_look(kg_connection_t *c)
{
    kg_peer_t *peer = NULL;
    bool any = false;
    DL_FOREACH (c->peers, peer) {
        bool asked = !peer->left && kg_attach_is_asked(peer->attach);
        any = any || asked;
        peer->unseen = asked && kg_zpeer_gone(&peer->shell) ? peer->unseen + 1 : 0;
        if (peer->unseen == UNSEEN_MAX) {
            peer->shell = (kg_zpeer_t){.fd = -1}; /* once: it may be back by another */
            kg_attach_ask_again(peer->attach);
        }
    }
    return any;
}

/* ---- messages ---- */

/* As kernels should: the same bytes twice are somebody else's copy. The first half of a signature
 * that was checked is as good as random. */
static bool is_repeated(kg_connection_t *c, kg_slice_t signature)
{
    char half[17];
    (void)kg_format(half, sizeof(half), "%.16s", signature.data);
    uint64_t mark = strtoull(half, NULL, 16); // NOLINT(cert-err34-c): hex digits, 64 bits
    for (size_t i = 0; i < KG_CONNECTION_SEEN; i++) {
        if (c->seen[i] == mark) {
            return true;
        }
    }
    c->seen[c->seen_next++ % KG_CONNECTION_SEEN] = mark;
    return false;
}

static bool is_good(kg_connection_t *c, kg_zmsg_t *msg, kg_wire_t *wire)
{
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    return kg_zmsg_bytes(msg) <= KG_CONNECTION_MESSAGE_MAX &&
           kg_wire_split(frames, count, wire) == 0 && wire->identity_count == 1 &&
           frames[0].len > 0 && frames[0].len <= KG_IDENTITY_MAX &&
           kg_wire_verify(&c->key, wire->parts, wire->signature) &&
           !is_repeated(c, wire->signature);
}

void kg_connection_request(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    const kg_socket_t *socket = user;
    kg_connection_t *c = socket->connection;
    kg_wire_t wire;
    kg_err_t why = {0};
    kg_err_t err = {0};
    size_t count = 0;
    (void)chan;
    if (!c->context) {
        return;
    }
    if (!is_good(c, msg, &wire)) {
        kg_connection_drop(c);
        return;
    }
    kg_ws_msg_t frame = {.channel = (kg_channel_t)socket->channel,
                         .buffers = wire.buffers,
                         .buffer_count = wire.buffer_count};
    memcpy(frame.parts, wire.parts, sizeof(frame.parts));
    kg_slice_t identity = kg_zmsg_frames(msg, &count)[0];
    kg_peer_t *peer = peer_of(c, identity, &why);
    int rc = 0;
    if (peer) {
        if (socket->channel == KG_CHANNEL_SHELL) {
            peer->shell = kg_zchan_peer(chan, msg);
        }
        rc = kg_attach_send(peer->attach, &frame, &err);
    } else {
        c->asking = identity;
        rc = kg_attach_refuse(c->hears, &frame, &why, &err);
        c->asking = (kg_slice_t){0};
    }
    if (rc) {
        kg_connection_drop(c);
    }
}

/* Alive: it runs, or sleeps until somebody needs it. */
void kg_connection_beat(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    const kg_socket_t *socket = user;
    const kg_context_t *context = socket->connection->context;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    if (context && (context->state == KG_CTX_READY || context->state == KG_CTX_DOWN)) {
        (void)kg_zchan_send(chan, frames, count);
    }
}
