/* What the kernel sent, in order. A message over KG_KERNEL_BIG_BYTES is checked and prepared on the
 * kernel's worker queue; those behind it on the same side (iopub, or the rest) wait. Everything
 * else is read at once. What waits is counted, and above a cap the sockets are not read. */
#include <errno.h>
#include <pthread.h>

#include "gateway/kernel/internal.h"

#define PUMP_BUDGET 64
#define HUGE_BYTES 4194304 /* above, the signature is worth a thread of its own */

typedef enum kg_big_state {
    BIG_RUNNING,
    BIG_DONE,
    BIG_DROPPED
} kg_big_state_t;

/* Owned by its inbox item, or by the job alone once dropped. */
struct kg_big {
    kg_kernel_t *kernel;
    const kg_wire_key_t *key;
    kg_zmsg_t *zmsg;
    kg_channel_t channel;
    kg_big_state_t state;
    int rc;
    kg_jmsg_t msg;
    kg_request_t *req; /* who prepares; held. NULL = nobody */
    void *prepared;
    void *place; /* for what is done before the signature is known; NULL = none */
};

static kg_inbox_t *inbox_of(kg_kernel_t *k, kg_channel_t channel)
{
    return channel == KG_CHANNEL_IOPUB ? &k->inbox_iopub : &k->inbox_other;
}

bool kg_inbox_empty(const kg_kernel_t *k)
{
    return !k->inbox_iopub.head && !k->inbox_other.head;
}

bool kg_inbox_quiet(kg_kernel_t *k, unsigned ticks)
{
    bool quiet = k->quiet_mark_ns == k->last_message_ns && kg_inbox_empty(k);
    k->quiet_mark_ns = k->last_message_ns;
    k->quiet_ticks = quiet ? k->quiet_ticks + 1 : 0;
    return k->quiet_ticks >= ticks;
}

static int parse(const kg_kernel_t *k, const kg_zmsg_t *zmsg, kg_jmsg_t *ret_msg)
{
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(zmsg, &count);
    return kg_jmsg_parse(frames, count, &k->session.key, ret_msg, NULL);
}

static void keep_message(void *owner)
{
    (void)kg_zmsg_ref(owner);
}

static void drop_kept(void *owner)
{
    kg_zmsg_t *zmsg = owner;
    kg_zmsg_unref(&zmsg);
}

/* Whoever passes the message on may keep it for longer. */
static void lend(kg_jmsg_t *msg, kg_zmsg_t *zmsg)
{
    msg->hold = (kg_hold_t){.owner = zmsg, .keep = keep_message, .drop = drop_kept};
}

static void read_small(kg_kernel_t *k, kg_channel_t channel, kg_zmsg_t *zmsg)
{
    kg_jmsg_t msg;
    int rc = parse(k, zmsg, &msg);
    if (rc < 0) {
        kg_router_bad(k, channel, rc);
        return;
    }
    lend(&msg, zmsg);
    void *prepared = NULL;
    const kg_request_t *req = kg_request_find(k, msg.parent_id);
    void (*prepared_free)(void *) = NULL;
    if (req && !req->released && req->sink.prepare) {
        prepared_free = req->sink.prepared_free;
        prepared = req->sink.prepare(req->sink.prepare_arg, &msg);
    }
    kg_router_deliver(k, channel, &msg, prepared, prepared_free);
}

/* ---- the worker ---- */

static void big_prepare(kg_big_t *big, const kg_wire_key_t *key)
{
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(big->zmsg, &count);
    big->rc = kg_jmsg_parse(frames, count, key, &big->msg, NULL);
    if (big->rc == 0 && big->req) {
        const kg_request_sink_t *sink = &big->req->sink; /* set once, before the request was sent */
        big->prepared = sink->prepare(sink->prepare_arg, &big->msg);
    }
}

static void big_unprepare(kg_big_t *big)
{
    if (big->prepared && big->req->sink.prepared_free) {
        big->req->sink.prepared_free(big->prepared);
    }
    big->prepared = NULL;
}

typedef struct seal {
    const kg_wire_key_t *key;
    kg_wire_t wire;
    bool good;
} seal_t;

static void *seal_check(void *user)
{
    seal_t *seal = user;
    seal->good = kg_wire_verify(seal->key, seal->wire.parts, seal->wire.signature);
    return NULL;
}

/* The hash takes longer than all the rest, so it runs beside it. What was prepared, and done ahead,
 * counts only when the signature was good. */
static void big_work(void *user)
{
    kg_big_t *big = user;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(big->zmsg, &count);
    static const kg_wire_key_t unchecked = {0};
    seal_t seal = {.key = big->key};
    pthread_t thread;
    if (kg_zmsg_bytes(big->zmsg) < HUGE_BYTES || kg_wire_split(frames, count, &seal.wire) < 0 ||
        pthread_create(&thread, NULL, seal_check, &seal) != 0) {
        big_prepare(big, big->key);
        return;
    }
    big_prepare(big, &unchecked);
    if (big->place && big->prepared) {
        big->req->sink.ahead(big->place, big->prepared);
    }
    (void)pthread_join(thread, NULL);
    if (!seal.good) {
        big_unprepare(big);
        big->rc = -EACCES;
    }
}

static void big_free(kg_big_t *big)
{
    big_unprepare(big);
    if (big->place) {
        big->req->sink.place_free(big->place);
    }
    if (big->req) {
        kg_request_drop(big->req);
    }
    kg_zmsg_unref(&big->zmsg);
    free(big);
}

static void pump(kg_kernel_t *k, kg_inbox_t *inbox);

static void big_done(void *user)
{
    kg_big_t *big = user;
    kg_kernel_t *k = big->kernel;
    if (big->state == BIG_DROPPED) {
        big_free(big);
    } else {
        big->state = BIG_DONE;
        pump(k, inbox_of(k, big->channel));
    }
    kg_kernel_unref(k);
}

/* The parent's id before anything was checked: only to find who wants to prepare the message. */
static kg_request_t *peek_request(const kg_kernel_t *k, const kg_zmsg_t *zmsg)
{
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(zmsg, &count);
    kg_wire_t wire;
    kg_json_value_t parent;
    if (kg_wire_split(frames, count, &wire) < 0 || wire.parts[1].len > KG_WIRE_HEADER_MAX ||
        kg_json_check(wire.parts[1], KG_JSON_DEPTH_MAX, &parent) < 0) {
        return NULL;
    }
    kg_slice_t id = kg_json_get(parent, "msg_id").raw;
    if (id.len < 2 || id.len - 2 >= KG_MSG_ID_MAX) {
        return NULL;
    }
    char text[KG_MSG_ID_MAX];
    memcpy(text, id.data + 1, id.len - 2);
    text[id.len - 2] = '\0';
    return kg_request_find(k, text);
}

/* Nothing of the channel may be before the message. */
static void big_place(kg_big_t *big, const kg_kernel_t *k)
{
    const kg_request_t *req = big->req;
    if (req && req->sink.place && big->channel == KG_CHANNEL_IOPUB && !k->inbox_iopub.head &&
        kg_zmsg_bytes(big->zmsg) >= HUGE_BYTES) {
        big->place = req->sink.place(req->user);
    }
}

static kg_big_t *big_submit(kg_kernel_t *k, kg_channel_t channel, kg_zmsg_t *zmsg)
{
    if (!k->workq && kg_workq_create(k->loop, &k->workq) < 0) {
        return NULL;
    }
    kg_big_t *big = calloc(1, sizeof(*big));
    if (!big) {
        return NULL;
    }
    big->kernel = k;
    big->key = &k->session.key;
    big->zmsg = kg_zmsg_ref(zmsg);
    big->channel = channel;
    big->req = peek_request(k, zmsg);
    if (big->req && (big->req->released || !big->req->sink.prepare)) {
        big->req = NULL;
    }
    if (big->req) {
        kg_request_hold(big->req);
    }
    big_place(big, k);
    if (kg_workq_submit(k->workq, big_work, big_done, big) < 0) {
        big_free(big);
        return NULL;
    }
    kg_kernel_ref(k);
    k->stats.big_messages++;
    return big;
}

/* ---- the queue ---- */

static void set_queued(kg_kernel_t *k, uint64_t bytes)
{
    k->stats.queued_bytes = bytes;
    bool paused = k->paused ? bytes > KG_KERNEL_QUEUED_MAX / 2 : bytes > KG_KERNEL_QUEUED_MAX;
    if (paused != k->paused) {
        k->paused = paused;
        kg_link_pause(k, paused);
    }
}

static void push(kg_kernel_t *k, kg_inbox_t *inbox, kg_channel_t channel, kg_zmsg_t *zmsg)
{
    kg_inbox_item_t *item = calloc(1, sizeof(*item));
    bool is_big = kg_zmsg_bytes(zmsg) > KG_KERNEL_BIG_BYTES;
    kg_big_t *big = item && is_big ? big_submit(k, channel, zmsg) : NULL;
    if (!item || (is_big && !big)) { /* no memory: the message is dropped, counted and logged */
        free(item);
        kg_router_bad(k, channel, -ENOMEM);
        return;
    }
    item->zmsg = kg_zmsg_ref(zmsg);
    item->channel = channel;
    item->big = big;
    *(inbox->head ? &inbox->tail->next : &inbox->head) = item;
    inbox->tail = item;
    set_queued(k, k->stats.queued_bytes + kg_zmsg_bytes(zmsg));
}

static kg_inbox_item_t *pop(kg_kernel_t *k, kg_inbox_t *inbox)
{
    kg_inbox_item_t *item = inbox->head;
    inbox->head = item->next;
    inbox->tail = inbox->head ? inbox->tail : NULL;
    set_queued(k, k->stats.queued_bytes - kg_zmsg_bytes(item->zmsg));
    return item;
}

static void free_message(void *user)
{
    kg_zmsg_t *zmsg = user;
    kg_zmsg_unref(&zmsg);
}

/* 100 MB take 15 ms: another queue than that of the messages, which may be at the next one. */
static void drop_message(kg_kernel_t *k, kg_zmsg_t **zmsg)
{
    if (kg_zmsg_bytes(*zmsg) >= HUGE_BYTES &&
        (k->tidyq || kg_workq_create(k->loop, &k->tidyq) == 0) &&
        kg_workq_submit(k->tidyq, free_message, NULL, *zmsg) == 0) {
        *zmsg = NULL;
        return;
    }
    kg_zmsg_unref(zmsg);
}

static void item_free(kg_kernel_t *k, kg_inbox_item_t *item)
{
    if (item->big && item->big->state == BIG_RUNNING) {
        item->big->state = BIG_DROPPED; /* its done frees it */
    } else if (item->big) {
        big_free(item->big);
    }
    drop_message(k, &item->zmsg);
    free(item);
}

static void deliver_item(kg_kernel_t *k, kg_inbox_item_t *item)
{
    kg_big_t *big = item->big;
    if (!big) {
        read_small(k, item->channel, item->zmsg);
    } else if (big->rc < 0) {
        kg_router_bad(k, item->channel, big->rc);
    } else {
        lend(&big->msg, item->zmsg);
        kg_router_deliver(k, item->channel, &big->msg, KG_TAKE(big->prepared),
                          big->req ? big->req->sink.prepared_free : NULL);
    }
}

typedef struct pump_again {
    kg_kernel_t *kernel;
    kg_inbox_t *inbox;
} pump_again_t;

static void pump_later(void *user)
{
    pump_again_t again = *(pump_again_t *)user;
    free(user);
    again.inbox->pumping = false;
    pump(again.kernel, again.inbox);
    kg_kernel_unref(again.kernel);
}

static void schedule(kg_kernel_t *k, kg_inbox_t *inbox)
{
    pump_again_t *again = calloc(1, sizeof(*again));
    if (!again) {
        return; /* the next message pumps */
    }
    *again = (pump_again_t){k, inbox};
    if (kg_loop_later(k->loop, pump_later, again) < 0) {
        free(again);
        return;
    }
    inbox->pumping = true;
    kg_kernel_ref(k);
}

/* Delivers from the head until one still works or the budget is spent. */
static void pump(kg_kernel_t *k, kg_inbox_t *inbox)
{
    if (inbox->pumping) {
        return;
    }
    inbox->pumping = true;
    unsigned n = 0;
    size_t bytes = 0; /* checked here, on the loop */
    while (inbox->head && n < PUMP_BUDGET && bytes < KG_ZCHAN_BUDGET_BYTES &&
           !(inbox->head->big && inbox->head->big->state == BIG_RUNNING)) {
        kg_inbox_item_t *item = pop(k, inbox);
        bytes += item->big ? 0 : kg_zmsg_bytes(item->zmsg);
        deliver_item(k, item);
        item_free(k, item);
        n++;
    }
    inbox->pumping = false;
    if (inbox->head && (n == PUMP_BUDGET || bytes >= KG_ZCHAN_BUDGET_BYTES)) {
        schedule(k, inbox);
    }
}

void kg_inbox_message(kg_zchan_t *zchan, kg_zmsg_t *zmsg, void *user)
{
    (void)zchan;
    const kg_chan_t *chan = user;
    kg_kernel_t *k = chan->kernel;
    size_t bytes = kg_zmsg_bytes(zmsg);
    k->last_message_ns = kg_now_ns();
    if (k->closing) {
        return;
    }
    if (chan->channel == KG_CHANNEL_IOPUB) {
        k->stats.iopub_messages++;
        k->stats.iopub_bytes += bytes;
    } else {
        k->stats.other_messages++;
    }
    kg_inbox_t *inbox = inbox_of(k, chan->channel);
    if (!inbox->head && !inbox->pumping && bytes <= KG_KERNEL_BIG_BYTES) {
        read_small(k, chan->channel, zmsg);
        return;
    }
    push(k, inbox, chan->channel, zmsg);
    pump(k, inbox);
}

void kg_inbox_clear(kg_kernel_t *k)
{
    kg_inbox_t *inboxes[] = {&k->inbox_iopub, &k->inbox_other};
    for (size_t i = 0; i < KG_ARRAY_LEN(inboxes); i++) {
        while (inboxes[i]->head) {
            item_free(k, pop(k, inboxes[i]));
        }
    }
}
