/* gateway/context: what clients of connection files hear. What is published goes to each subscriber
 * by itself, under a topic of its own, so that nobody waits for another. One that does not read is
 * waited for within a bound, for a kernel waits for nobody. Beyond it messages are left out for it,
 * and that is told in their place; not those that say whether the kernel is busy, for clients wait
 * for them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/connect_internal.h"

enum {
    URGENT_MAX = 4096, /* messages beyond the bound, small ones */
    FRAMES_MAX = KG_WIRE_FRAMES_MAX + 2,
    TOPIC_MAX = 160,
    OWN_MAX = 24, /* of what makes a topic a subscriber's own */
    LOOKS = 3,    /* for who it was that has gone: the socket is closed a moment later */
};

#define WATCH_NS KG_NS_PER_S

static kg_slice_t empty_object(void)
{
    return kg_slice_cstr("{}");
}

typedef struct frames {
    char signature[KG_WIRE_SIG_LEN + 1];
    kg_slice_t all[FRAMES_MAX]; /* the first is left: for the identity */
    size_t count;
} frames_t;

static int write_frames(const kg_connection_t *c, const kg_ws_msg_t *msg, frames_t *ret)
{
    kg_slice_t *frames = ret->all;
    size_t count = 0;
    if (msg->buffer_count > KG_WS_BUFFERS_MAX) {
        return -E2BIG;
    }
    kg_wire_sign(&c->key, msg->parts, ret->signature);
    frames[count++] = (kg_slice_t){0};
    frames[count++] = kg_slice_cstr("<IDS|MSG>");
    frames[count++] = kg_slice_cstr(ret->signature);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        frames[count++] = msg->parts[i];
    }
    for (size_t i = 0; i < msg->buffer_count; i++) {
        frames[count++] = msg->buffers[i];
    }
    ret->count = count;
    return 0;
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

static void lose(kg_connection_t *c, kg_subscriber_t *s, const kg_ws_msg_t *msg)
{
    if (s->untold++ == 0) {
        kg_buf_clear(&s->untold_parent);
        (void)kg_buf_append_slice(&s->untold_parent,
                                  msg->parts[1]); /* else it is told to nobody's */
    }
    count_lost(c);
}

/* To this one alone. */
static void say(kg_connection_t *c,
                const kg_subscriber_t *s,
                const char *msg_type,
                kg_slice_t parent,
                const char *content)
{
    c->only = s;
    kg_attach_say(c->hears, KG_CHANNEL_IOPUB, msg_type, parent, kg_slice_cstr(content));
    c->only = NULL;
}

static void tell(kg_connection_t *c, kg_subscriber_t *s)
{
    char text[256];
    KG_AUTO_BUF kg_buf_t parent = s->untold_parent;
    s->untold_parent = (kg_buf_t){0};
    (void)kg_format(text, sizeof(text),
                    "{\"name\":\"stderr\",\"text\":\"[%" PRIu64 " messages are left out here: this "
                    "connection's client did not read them. The runs' logs have them.]\\n\"}",
                    s->untold);
    s->untold = 0;
    say(c, s, "stream", parent.len > 0 ? kg_buf_slice(&parent) : empty_object(), text);
}

static void start_watch(kg_connection_t *c)
{
    if (!c->watching) {
        c->watching = true;
        kg_timer_start(c->watch, WATCH_NS, WATCH_NS);
    }
}

/* Begins as what was asked for, which libzmq compares again over there. */
static int write_own_topic(const kg_subscriber_t *s, kg_slice_t asked, kg_slice_t rest, char *ret)
{
    return kg_format(ret, 2 * TOPIC_MAX + OWN_MAX, "%.*s#%u.%.*s", (int)asked.len, asked.data,
                     s->number, (int)rest.len, rest.data);
}

static const kg_subscription_t *find_subscription(const kg_subscriber_t *s, kg_slice_t topic)
{
    for (size_t i = 0; i < s->topic_count; i++) {
        const kg_subscription_t *t = &s->topics[i];
        if (t->len <= topic.len && memcmp(t->text, topic.data, t->len) == 0) {
            return t;
        }
    }
    return NULL;
}

/* rest: the frames behind the topic, made when they are needed. */
static int send_to(const kg_connection_t *c,
                   const kg_subscriber_t *s,
                   kg_slice_t topic,
                   const kg_ws_msg_t *msg,
                   kg_zout_t **rest)
{
    char own[2 * TOPIC_MAX + OWN_MAX];
    frames_t frames;
    const kg_subscription_t *t = find_subscription(s, topic);
    int rc = 0;
    if (!*rest) {
        rc = write_frames(c, msg, &frames);
        rc = rc ? rc : kg_zout_create(frames.all + 1, frames.count - 1, rest);
    }
    if (rc == 0 && t && write_own_topic(s, kg_slice(t->text, t->len), topic, own) == 0) {
        rc = kg_zsub_send(s->queue, kg_slice_cstr(own), *rest);
    }
    return rc;
}

static void publish_to(kg_connection_t *c,
                       kg_subscriber_t *s,
                       kg_slice_t topic,
                       const kg_ws_msg_t *msg,
                       kg_zout_t **rest)
{
    bool fits = kg_zsub_queued(s->queue) <= c->core->config.connection_unread_max;
    bool alone = c->only == s;
    bool urgent = alone || kg_slice_eq_cstr(type_of(msg), "status");
    if (!find_subscription(s, topic)) {
        return;
    }
    if (!fits && (!urgent || s->urgent >= URGENT_MAX)) {
        lose(c, s, msg);
        return;
    }
    if (s->untold > 0 && !alone) {
        tell(c, s);
    }
    s->urgent = fits ? 0 : s->urgent + 1;
    if (send_to(c, s, topic, msg, rest)) {
        lose(c, s, msg);
    }
    if (kg_zsub_queued(s->queue) > 0 || s->untold > 0) {
        start_watch(c);
    }
}

static void publish(kg_connection_t *c, const kg_ws_msg_t *msg)
{
    char topic[TOPIC_MAX];
    kg_zout_t *rest = NULL;
    kg_subscriber_t *s = NULL;
    kg_slice_t type = type_of(msg);
    if (!c->context) {
        return;
    }
    (void)kg_format(topic, sizeof(topic), "kernel.%s.%.*s", c->context->id,
                    (int)(type.len < 64 ? type.len : 64), type.data);
    DL_FOREACH (c->subscribers, s) {
        if (!c->only || c->only == s) {
            publish_to(c, s, kg_slice_cstr(topic), msg, &rest);
        }
    }
    kg_zout_destroy(&rest);
}

/* ---- subscribers ---- */

void kg_subscriber_free(kg_subscriber_t *s)
{
    kg_connection_t *c = s->connection;
    DL_DELETE(c->subscribers, s);
    c->subscriber_count--;
    kg_zsub_destroy(&s->queue);
    kg_buf_fini(&s->untold_parent);
    free(s);
}

static void free_those_who_have_gone(kg_connection_t *c)
{
    kg_subscriber_t *s = NULL;
    kg_subscriber_t *next = NULL;
    DL_FOREACH_SAFE (c->subscribers, s, next) {
        if (kg_zpeer_gone(&s->peer)) {
            kg_subscriber_free(s);
        }
    }
}

void kg_connection_watch(void *user)
{
    kg_connection_t *c = user;
    kg_subscriber_t *s = NULL;
    bool more = kg_peers_look(c);
    if (c->looks > 0) {
        c->looks--;
        free_those_who_have_gone(c);
    }
    DL_FOREACH (c->subscribers, s) {
        if (s->untold > 0 && kg_zsub_queued(s->queue) == 0) {
            tell(c, s);
        }
        more = more || kg_zsub_queued(s->queue) > 0 || s->untold > 0;
    }
    if (!more && c->looks == 0) {
        c->watching = false;
        kg_timer_stop(c->watch);
    }
}

static kg_subscriber_t *find_subscriber(const kg_connection_t *c, const kg_zpeer_t *peer)
{
    kg_subscriber_t *s = NULL;
    DL_FOREACH (c->subscribers, s) {
        if (kg_zpeer_same(&s->peer, peer)) {
            break;
        }
    }
    return s;
}

static kg_subscriber_t *new_subscriber(kg_connection_t *c, kg_zchan_t *chan, const kg_zpeer_t *peer)
{
    kg_subscriber_t *s = calloc(1, sizeof(*s));
    if (!s || kg_zsub_create(chan, &s->queue)) {
        free(s);
        return NULL;
    }
    s->connection = c;
    s->peer = *peer;
    s->number = c->next_number++;
    DL_APPEND(c->subscribers, s);
    c->subscriber_count++;
    return s;
}

static int set_topic(kg_subscriber_t *s, kg_slice_t topic, bool wanted)
{
    char own[2 * TOPIC_MAX + OWN_MAX];
    int rc = write_own_topic(s, topic, (kg_slice_t){"", 0}, own);
    return rc ? rc : kg_zsub_topic(s->queue, kg_slice_cstr(own), wanted);
}

static kg_subscription_t *find_topic(kg_subscriber_t *s, kg_slice_t topic)
{
    for (size_t i = 0; i < s->topic_count; i++) {
        kg_subscription_t *t = &s->topics[i];
        if (t->len == topic.len && memcmp(t->text, topic.data, topic.len) == 0) {
            return t;
        }
    }
    return NULL;
}

/* Longer topics than any that is published are nobody's loss. One twice is one, as for libzmq. */
static bool add_topic(kg_subscriber_t *s, kg_slice_t topic)
{
    if (find_topic(s, topic)) {
        return set_topic(s, topic, true) == 0;
    }
    if (topic.len >= KG_SUBSCRIPTION_LEN || memchr(topic.data, 0, topic.len) ||
        s->topic_count == KG_SUBSCRIPTIONS || set_topic(s, topic, true)) {
        return false;
    }
    kg_subscription_t *t = &s->topics[s->topic_count++];
    memcpy(t->text, topic.data, topic.len);
    t->len = topic.len;
    return true;
}

static void drop_topic(kg_subscriber_t *s, kg_slice_t topic)
{
    kg_subscription_t *t = find_topic(s, topic);
    if (t) {
        (void)set_topic(s, topic, false);
        *t = s->topics[--s->topic_count];
    }
    if (s->topic_count == 0) {
        kg_subscriber_free(s);
    }
}

/* JEP 65: who subscribes learns that it hears, and how the kernel is. */
static void greet(kg_connection_t *c, const kg_subscriber_t *s)
{
    say(c, s, "iopub_welcome", empty_object(), "{\"subscription\":\"\"}");
    c->only = s;
    kg_attach_greet(c->hears);
    c->only = NULL;
}

static void
subscribe(kg_connection_t *c, kg_zchan_t *chan, const kg_zpeer_t *peer, kg_slice_t topic)
{
    if (c->subscriber_count >= KG_CONNECTION_PEERS) {
        free_those_who_have_gone(c);
    }
    bool full = c->subscriber_count >= KG_CONNECTION_PEERS;
    kg_subscriber_t *known = find_subscriber(c, peer);
    kg_subscriber_t *s = known ? known : new_subscriber(c, chan, peer);
    if (!s || !add_topic(s, topic)) {
        kg_connection_drop(c);
    } else if (known || !full) {
        if (topic.len == 0) {
            greet(c, s);
        }
    } else { /* the one too many hears that, and no more */
        kg_connection_drop(c);
        say(c, s, "stream", empty_object(),
            "{\"name\":\"stderr\",\"text\":\"[16 clients hear this connection already, which is "
            "the "
            "most. Make a connection file of its own for this one.]\\n\"}");
        drop_topic(s, topic);
        return;
    }
    if (s && s->topic_count == 0) {
        kg_subscriber_free(s);
    }
}

_Static_assert(KG_CONNECTION_PEERS == 16, "said in a text");
_Static_assert((int)KG_SUBSCRIPTION_LEN <= (int)TOPIC_MAX, "there is room for it in a topic");

void kg_connection_subscribed(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    const kg_socket_t *socket = user;
    kg_connection_t *c = socket->connection;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    if (!c->context || count != 1 || frames[0].len == 0 || frames[0].data[0] > 1) {
        return; /* no subscription: a subscriber may send what it likes */
    }
    kg_zpeer_t peer = kg_zchan_peer(chan, msg);
    kg_slice_t topic = kg_slice(frames[0].data + 1, frames[0].len - 1);
    if (frames[0].data[0] == 1) {
        if (peer.fd >= 0) { /* else it has gone already, and nothing would tell so once more */
            subscribe(c, chan, &peer, topic);
        }
    } else if (peer.fd >= 0) {
        kg_subscriber_t *s = find_subscriber(c, &peer);
        if (s) {
            drop_topic(s, topic);
        }
    } else { /* of one that has gone, and it is not said which */
        c->looks = LOOKS;
        start_watch(c);
    }
}

/* ---- replies ---- */

static int reply(kg_connection_t *c, kg_slice_t identity, const kg_ws_msg_t *msg)
{
    frames_t frames;
    int rc = c->context ? write_frames(c, msg, &frames) : 0;
    if (rc == 0 && c->context) {
        frames.all[0] = identity;
        rc = kg_zchan_send(c->sockets[msg->channel].zchan, frames.all, frames.count);
    }
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
    if (msg->channel == KG_CHANNEL_STDIN) {
        start_watch(c);
    }
    /* It has gone, or reads nothing: nobody waits for it. */
    if (reply(c, kg_slice(peer->identity, peer->identity_len), msg)) {
        peer->left = true;
        kg_connection_later(c);
    }
}
