/* gateway/context: what clients of connection files hear. iopub is one publication for all of a
 * connection: a client that does not read is waited for within a bound, for a kernel waits for
 * nobody. Beyond it messages are left out, and that is told in their place; not those that say
 * whether the kernel is busy, for clients wait for them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/connect_internal.h"

enum {
    URGENT_MAX = 4096, /* messages beyond the bound, small ones */
    FRAMES_MAX = KG_WIRE_FRAMES_MAX + 2,
    TOPIC_MAX = 160,
};

#define WATCH_NS KG_NS_PER_S
/* While others read on, a subscriber that takes nothing for so long is passed over. */
#define STALL_NS (5 * KG_NS_PER_S)

static kg_slice_t empty_object(void)
{
    return kg_slice_cstr("{}");
}

/* first: the identity or the topic. */
static int
send_signed(const kg_connection_t *c, kg_zchan_t *chan, kg_slice_t first, const kg_ws_msg_t *msg)
{
    char signature[KG_WIRE_SIG_LEN + 1];
    kg_slice_t frames[FRAMES_MAX];
    size_t count = 0;
    if (msg->buffer_count > KG_WS_BUFFERS_MAX) {
        return -E2BIG;
    }
    kg_wire_sign(&c->key, msg->parts, signature);
    frames[count++] = first;
    frames[count++] = kg_slice_cstr("<IDS|MSG>");
    frames[count++] = kg_slice_cstr(signature);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        frames[count++] = msg->parts[i];
    }
    for (size_t i = 0; i < msg->buffer_count; i++) {
        frames[count++] = msg->buffers[i];
    }
    return kg_zchan_send(chan, frames, count);
}

static void count_lost(kg_connection_t *c)
{
    c->lost++;
    c->core->stats.connection_lost++;
}

/* ---- iopub ---- */

static kg_slice_t type_of(const kg_ws_msg_t *msg)
{
    kg_json_value_t header = {KG_JSON_OBJECT, msg->parts[0]};
    kg_slice_t raw = kg_json_get(header, "msg_type").raw;
    return raw.len >= 2 ? kg_slice(raw.data + 1, raw.len - 2) : (kg_slice_t){0};
}

static void lose(kg_connection_t *c, const kg_ws_msg_t *msg)
{
    if (c->untold++ == 0) {
        kg_buf_clear(&c->untold_parent);
        (void)kg_buf_append_slice(&c->untold_parent,
                                  msg->parts[1]); /* else it is told to nobody's */
    }
    count_lost(c);
}

static void tell(kg_connection_t *c)
{
    char text[256];
    KG_AUTO_BUF kg_buf_t parent = c->untold_parent;
    c->untold_parent = (kg_buf_t){0};
    (void)kg_format(text, sizeof(text),
                    "{\"name\":\"stderr\",\"text\":\"[%" PRIu64 " messages are left out here: this "
                    "connection's client did not read them. The runs' logs have them.]\\n\"}",
                    c->untold);
    c->untold = 0;
    c->telling = true;
    kg_attach_say(c->hears, KG_CHANNEL_IOPUB, "stream",
                  parent.len > 0 ? kg_buf_slice(&parent) : empty_object(), kg_slice_cstr(text));
    c->telling = false;
}

static void publish(kg_connection_t *c, const kg_ws_msg_t *msg)
{
    kg_zchan_t *chan = c->sockets[KG_CHANNEL_IOPUB].zchan;
    char topic[TOPIC_MAX];
    if (!c->context) {
        return;
    }
    bool fits = kg_zchan_queued(chan) <= c->core->config.connection_unread_max;
    kg_slice_t type = type_of(msg);
    bool urgent = c->telling || kg_slice_eq_cstr(type, "status");
    if (!fits && (!urgent || c->urgent >= URGENT_MAX)) {
        lose(c, msg);
        return;
    }
    if (c->untold > 0 && !c->telling) {
        tell(c);
    }
    c->urgent = fits ? 0 : c->urgent + 1;
    (void)kg_format(topic, sizeof(topic), "kernel.%s.%.*s", c->context->id,
                    (int)(type.len < 64 ? type.len : 64), type.data);
    bool waited = kg_zchan_queued(chan) > 0;
    if (send_signed(c, chan, kg_slice_cstr(topic), msg)) {
        lose(c, msg);
    }
    if (!waited && kg_zchan_queued(chan) > 0) {
        c->since_ns = kg_now_ns();
        c->sent = kg_zchan_sent(chan);
        kg_timer_start(c->watch, WATCH_NS, WATCH_NS);
    }
}

void kg_connection_watch(void *user)
{
    kg_connection_t *c = user;
    kg_zchan_t *chan = c->sockets[KG_CHANNEL_IOPUB].zchan;
    uint64_t now = kg_now_ns();
    if (kg_zchan_queued(chan) == 0) {
        kg_timer_stop(c->watch);
        if (c->untold > 0) {
            tell(c);
        }
        return;
    }
    if (c->sent != kg_zchan_sent(chan) || c->subscribers < 2) {
        c->sent = kg_zchan_sent(chan);
        c->since_ns = now;
        return;
    }
    if (now - c->since_ns >= STALL_NS) {
        kg_log(KG_LOG_WARN, "connection.passed_over", "connection=%s", c->id);
        count_lost(c);
        kg_zchan_pass_over(chan);
    }
}

/* JEP 65: who subscribes learns that it hears, and how the kernel is. */
void kg_connection_subscribed(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    const kg_socket_t *socket = user;
    kg_connection_t *c = socket->connection;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    (void)chan;
    if (!c->context || count != 1 || frames[0].len == 0 || frames[0].data[0] > 1) {
        return; /* no subscription: a subscriber may send what it likes */
    }
    if (frames[0].data[0] == 0) {
        c->subscribers -= c->subscribers > 0;
        return;
    }
    c->subscribers++;
    if (frames[0].len == 1) {
        kg_attach_say(c->hears, KG_CHANNEL_IOPUB, "iopub_welcome", empty_object(),
                      kg_slice_cstr("{\"subscription\":\"\"}"));
        kg_attach_greet(c->hears);
    }
}

/* ---- replies ---- */

static int reply(kg_connection_t *c, kg_slice_t identity, const kg_ws_msg_t *msg)
{
    int rc = c->context ? send_signed(c, c->sockets[msg->channel].zchan, identity, msg) : 0;
    if (rc) {
        count_lost(c);
    }
    return rc;
}

void kg_connection_hears(void *user, const kg_ws_msg_t *msg)
{
    kg_connection_t *c = user;
    if (msg->channel == KG_CHANNEL_IOPUB) {
        publish(c, msg);
    } else if (c->asking.len > 0) {
        (void)reply(c, c->asking, msg);
    }
}

void kg_peer_asks(void *user, const kg_ws_msg_t *msg)
{
    kg_peer_t *peer = user;
    kg_connection_t *c = peer->connection;
    if (msg->channel == KG_CHANNEL_IOPUB) {
        publish(c, msg);
        return;
    }
    /* It has gone, or reads nothing: nobody waits for it. */
    if (reply(c, kg_slice(peer->identity, peer->identity_len), msg)) {
        peer->left = true;
        kg_connection_later(c);
    }
}
