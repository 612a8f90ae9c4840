/* ZeroMQ sockets on the loop. The socket's descriptor is an alarm clock: it says that something
 * changed since the last zmq call, not what. So its callback, and every zmq call of ours (which may
 * swallow the alarm), puts the socket on the dirty list; kg_zchan_drain reads until EAGAIN, which
 * is libzmq's word that the next change will ring again. */
#include "gateway/loop/zchan.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utlist.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/loop/loop_priv.h"
#include "gateway/loop/zmsg.h"

/* One message that did not fit, or that is to go to many. parts from `next` on are still to be
 * sent. */
struct kg_zout {
    size_t count;
    size_t next;
    size_t bytes;
    struct kg_zout *link;
    zmq_msg_t parts[];
};

typedef struct out_queue {
    kg_zout_t *head;
    kg_zout_t **tail;
    size_t bytes;
} out_queue_t;

struct kg_zsub {
    kg_zchan_t *chan;
    out_queue_t out;
    struct kg_zsub *prev, *next;
};

struct kg_zchan {
    kg_loop_t *loop;
    void *sock;
    uv_poll_t poll;
    kg_zchan_fn *on_message;
    void *user;
    out_queue_t out;
    kg_zsub_t *subs; /* XPUB */
    uint64_t sent;
    bool can_read;
    bool is_xpub;
    bool no_queue;
    bool paused;
    bool dirty;
    bool closing;
    kg_fn *done;
    void *done_user;
    struct kg_zchan *prev; /* dirty list */
    struct kg_zchan *next;
};

static void mark_dirty(kg_zchan_t *chan)
{
    if (!chan->dirty && !chan->closing) {
        chan->dirty = true;
        DL_APPEND(chan->loop->dirty, chan);
    }
}

static void unmark_dirty(kg_zchan_t *chan)
{
    if (chan->dirty) {
        chan->dirty = false;
        DL_DELETE(chan->loop->dirty, chan); // NOLINT(clang-analyzer-core.NullDereference)
    }
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    mark_dirty(handle->data);
}

/* Asks for the state of the socket, which also takes in libzmq's pending commands and so quiets the
 * descriptor. */
static int socket_events(kg_zchan_t *chan)
{
    int events = 0;
    size_t len = sizeof(events);
    if (zmq_getsockopt(chan->sock, ZMQ_EVENTS, &events, &len) < 0) {
        return 0;
    }
    return events;
}

static int recv_part(kg_zchan_t *chan, zmq_msg_t *part)
{
    for (;;) {
        if (zmq_msg_recv(part, chan->sock, ZMQ_DONTWAIT) >= 0) {
            return 0;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

/* Reads one whole message. -EAGAIN when there is none; -ENOMEM, -E2BIG when one was read and had to
 * be dropped. */
static int recv_message(kg_zchan_t *chan, kg_zmsg_t **ret_msg)
{
    kg_zmsg_t *msg = NULL;
    int lost = 0;
    bool more = true;
    for (bool first = true; more; first = false) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        int rc = recv_part(chan, &part);
        if (rc < 0) { /* libzmq gives messages whole: only the first part can be missing */
            zmq_msg_close(&part);
            kg_zmsg_unref(&msg);
            return first ? rc : -EIO;
        }
        if (first) {
            lost = kg_zmsg_create(&msg);
        }
        more = zmq_msg_more(&part);
        if (!lost) {
            lost = kg_zmsg_append_take(msg, &part);
        }
        zmq_msg_close(&part);
    }
    if (!lost) {
        lost = kg_zmsg_seal(msg);
    }
    if (lost) {
        kg_zmsg_unref(&msg);
        return lost;
    }
    *ret_msg = msg;
    return 0;
}

static int send_parts(kg_zchan_t *chan, kg_zout_t *out)
{
    while (out->next < out->count) {
        int flags = ZMQ_DONTWAIT | (out->next + 1 < out->count ? ZMQ_SNDMORE : 0);
        if (zmq_msg_send(&out->parts[out->next], chan->sock, flags) < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        out->next++; /* an accepted part is empty now; closing it again is harmless */
    }
    return 0;
}

static void out_destroy(kg_zout_t *out)
{
    for (size_t i = 0; i < out->count; i++) {
        zmq_msg_close(&out->parts[i]);
    }
    free(out);
}

static void flush_queue(kg_zchan_t *chan, out_queue_t *queue)
{
    while (queue->head) {
        kg_zout_t *out = queue->head;
        int rc = send_parts(chan, out);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc < 0) {
            kg_log(KG_LOG_WARN, "zchan.send_failed", "error=%d bytes=%zu", -rc, out->bytes);
        }
        queue->head = out->link;
        if (!queue->head) {
            queue->tail = &queue->head;
        }
        queue->bytes -= out->bytes;
        chan->sent++;
        out_destroy(out);
    }
}

static void drop_queue(out_queue_t *queue)
{
    while (queue->head) {
        kg_zout_t *out = queue->head;
        queue->head = out->link;
        out_destroy(out);
    }
}

static void flush_out(kg_zchan_t *chan)
{
    kg_zsub_t *sub = NULL;
    flush_queue(chan, &chan->out);
    DL_FOREACH (chan->subs, sub) {
        flush_queue(chan, &sub->out);
    }
}

static bool is_waiting(const kg_zchan_t *chan)
{
    const kg_zsub_t *sub = NULL;
    DL_FOREACH (chan->subs, sub) {
        if (sub->out.head) {
            return true;
        }
    }
    return chan->out.head != NULL;
}

/* True when the budget ran out before the socket did. */
static bool read_some(kg_zchan_t *chan)
{
    size_t bytes = 0;
    for (int i = 0; i < KG_ZCHAN_BUDGET && bytes < KG_ZCHAN_BUDGET_BYTES; i++) {
        kg_zmsg_t *msg = NULL;
        int rc = recv_message(chan, &msg);
        if (rc == -ENOMEM || rc == -E2BIG || rc == -EIO) {
            kg_log(KG_LOG_ERROR, "zchan.message_dropped", "error=%d", -rc);
            continue;
        }
        if (rc < 0) {
            return false;
        }
        bytes += kg_zmsg_bytes(msg);
        chan->on_message(chan, msg, chan->user);
        kg_zmsg_unref(&msg);
        if (chan->closing || chan->paused) {
            break;
        }
    }
    return !chan->closing && (socket_events(chan) & ZMQ_POLLIN) && !chan->paused;
}

bool kg_zchan_drain(kg_loop_t *loop)
{
    size_t todo = 0;
    kg_zchan_t *chan;
    DL_COUNT(loop->dirty, chan, todo);
    /* Each socket that was dirty gets one turn; callbacks may add, close or soil others meanwhile.
     */
    while (todo-- > 0 && loop->dirty) {
        chan = loop->dirty;
        unmark_dirty(chan);
        flush_out(chan);
        bool more = false;
        if (chan->can_read && !chan->paused) {
            more = read_some(chan);
        } else {
            (void)socket_events(chan);
        }
        /* Reading takes in commands too: the peer that a send waits for may have come just now, and
         * its alarm is gone. */
        bool room = !chan->closing && is_waiting(chan) && (socket_events(chan) & ZMQ_POLLOUT);
        if (room && chan->is_xpub) { /* it always says so; what it was told is known to it now */
            flush_out(chan);
            room = false;
        }
        if (more || room) {
            mark_dirty(chan);
        }
    }
    return loop->dirty != NULL;
}

static const int zmq_types[] = {
    [KG_ZCHAN_DEALER] = ZMQ_DEALER, [KG_ZCHAN_SUB] = ZMQ_SUB, [KG_ZCHAN_ROUTER] = ZMQ_ROUTER,
    [KG_ZCHAN_PUB] = ZMQ_PUB,       [KG_ZCHAN_REP] = ZMQ_REP, [KG_ZCHAN_XPUB] = ZMQ_XPUB,
};

static int set_int(void *sock, int option, int value)
{
    return zmq_setsockopt(sock, option, &value, sizeof(value));
}

static int configure(void *sock, const kg_zchan_opts_t *opts)
{
    int rc = set_int(sock, ZMQ_LINGER, opts->linger_ms) | set_int(sock, ZMQ_RCVHWM, opts->hwm) |
             set_int(sock, ZMQ_SNDHWM, opts->hwm);
    if (opts->frame_max > 0) {
        rc |= zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &opts->frame_max, sizeof(opts->frame_max));
    }
    if (opts->type == KG_ZCHAN_XPUB) {
        rc |= set_int(sock, ZMQ_XPUB_VERBOSER, 1) | set_int(sock, ZMQ_XPUB_NODROP, 1) |
              set_int(sock, ZMQ_XPUB_MANUAL, 1);
    }
    if (opts->reconnect_ivl_ms != 0) {
        rc |= set_int(sock, ZMQ_RECONNECT_IVL, opts->reconnect_ivl_ms);
    }
    if (opts->identity) {
        rc |= zmq_setsockopt(sock, ZMQ_ROUTING_ID, opts->identity, strlen(opts->identity));
    }
    if (opts->type == KG_ZCHAN_SUB) {
        rc |= zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0);
    }
    if (opts->type == KG_ZCHAN_ROUTER) {
        rc |= set_int(sock, ZMQ_ROUTER_MANDATORY,
                      1); /* else a message to nobody is lost in silence */
    }
    return rc ? -errno : 0;
}

static int attach(void *sock, const kg_zchan_opts_t *opts, kg_err_t *err)
{
    int rc = opts->bind ? zmq_bind(sock, opts->endpoint) : zmq_connect(sock, opts->endpoint);
    if (rc < 0) {
        int num = errno;
        kg_err_set(err, KG_ERR_INTERNAL, "Cannot %s %s: %s.", opts->bind ? "bind" : "connect to",
                   opts->endpoint, zmq_strerror(num));
        return -num;
    }
    return 0;
}

static int watch(kg_zchan_t *chan)
{
    int fd = -1;
    size_t len = sizeof(fd);
    if (zmq_getsockopt(chan->sock, ZMQ_FD, &fd, &len) < 0) {
        return -errno;
    }
    int rc = uv_poll_init(&chan->loop->uv, &chan->poll, fd);
    if (rc < 0) {
        return rc;
    }
    chan->poll.data = chan;
    uv_poll_start(&chan->poll, UV_READABLE, on_poll);
    return 0;
}

static void *open_socket(kg_loop_t *loop, const kg_zchan_opts_t *opts, kg_err_t *err)
{
    void *zmq = kg_loop_zmq(loop);
    void *sock = zmq ? zmq_socket(zmq, zmq_types[opts->type]) : NULL;
    if (!sock) {
        int num = zmq ? errno : ENOMEM;
        kg_err_set(err, KG_ERR_INTERNAL, "Cannot make a ZeroMQ socket: %s.", zmq_strerror(num));
        errno = num;
    }
    return sock;
}

int kg_zchan_open(kg_loop_t *loop,
                  const kg_zchan_opts_t *opts,
                  kg_zchan_t **ret_chan,
                  kg_err_t *err)
{
    kg_zchan_t *chan = calloc(1, sizeof(*chan));
    if (!chan) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "Out of memory.");
    }
    chan->loop = loop;
    chan->on_message = opts->on_message;
    chan->user = opts->user;
    chan->can_read = opts->type != KG_ZCHAN_PUB;
    chan->is_xpub = opts->type == KG_ZCHAN_XPUB;
    chan->no_queue = opts->no_queue;
    chan->out.tail = &chan->out.head;
    chan->sock = open_socket(loop, opts, err);
    if (!chan->sock) {
        free(chan);
        return -errno;
    }
    int rc = configure(chan->sock, opts);
    if (rc < 0) {
        kg_err_set(err, KG_ERR_INTERNAL, "Cannot set up a ZeroMQ socket: %s.", zmq_strerror(-rc));
    } else {
        rc = attach(chan->sock, opts, err);
    }
    if (rc == 0 && (rc = watch(chan)) < 0) {
        kg_err_set(err, KG_ERR_INTERNAL, "Cannot watch a ZeroMQ socket: %s.", uv_strerror(rc));
    }
    if (rc < 0) {
        zmq_close(chan->sock);
        free(chan);
        return rc;
    }
    loop->zchans++;
    mark_dirty(chan);
    *ret_chan = chan;
    return 0;
}

int kg_zchan_endpoint(const kg_zchan_t *chan, char *ret_text, size_t cap)
{
    return zmq_getsockopt(chan->sock, ZMQ_LAST_ENDPOINT, ret_text, &cap) < 0 ? -errno : 0;
}

/* Whether fd is a connection to where chan is bound. libzmq closes descriptors when it likes, and
 * the number of the one that a message came by may be another's meanwhile. */
static bool is_connection_to(const kg_zchan_t *chan, int fd)
{
    char endpoint[256];
    union {
        struct sockaddr any;
        struct sockaddr_in in; /* its port stands where that of in6 does */
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } own = {0};
    socklen_t len = sizeof(own);
    uint64_t port = 0;
    if (fd < 0 || kg_zchan_endpoint(chan, endpoint, sizeof(endpoint)) ||
        getsockname(fd, &own.any, &len) < 0) {
        return false;
    }
    if (own.any.sa_family == AF_UNIX) {
        size_t path_len = strnlen(own.un.sun_path, sizeof(own.un.sun_path));
        size_t skip = sizeof("ipc://") - 1;
        return strlen(endpoint) == skip + path_len &&
               memcmp(endpoint + skip, own.un.sun_path, path_len) == 0;
    }
    const char *colon = strrchr(endpoint, ':');
    return (own.any.sa_family == AF_INET || own.any.sa_family == AF_INET6) && colon &&
           kg_parse_u64(colon + 1, 1, UINT16_MAX, &port) == 0 && port == ntohs(own.in.sin_port);
}

kg_zpeer_t kg_zchan_peer(const kg_zchan_t *chan, const kg_zmsg_t *msg)
{
    int fd = kg_zmsg_source(msg);
    return kg_zpeer_of(is_connection_to(chan, fd) ? fd : -1);
}

static int out_create(const kg_slice_t *frames, size_t count, kg_zout_t **ret_out)
{
    kg_zout_t *out = calloc(1, sizeof(*out) + count * sizeof(out->parts[0]));
    if (!out) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        if (zmq_msg_init_size(&out->parts[i], frames[i].len) < 0) {
            out_destroy(out);
            return -ENOMEM;
        }
        if (frames[i].len > 0) {
            memcpy(zmq_msg_data(&out->parts[i]), frames[i].data, frames[i].len);
        }
        out->count = i + 1;
        out->bytes += frames[i].len;
    }
    *ret_out = out;
    return 0;
}

/* Takes out. At once where nothing waits before it. */
static int send_out(kg_zchan_t *chan, out_queue_t *queue, kg_zout_t *out)
{
    if (!queue->head) {
        int rc = send_parts(chan, out);
        mark_dirty(chan);
        chan->sent += rc == 0;
        if (rc != -EAGAIN || chan->no_queue) { /* a ROUTER refuses at the first part */
            out_destroy(out);
            return rc;
        }
    }
    /* A message that has begun must be finished, whatever the cap says. */
    if (out->next == 0 && queue->bytes + out->bytes > KG_ZCHAN_SENDQ_MAX) {
        out_destroy(out);
        return -E2BIG;
    }
    *queue->tail = out;
    queue->tail = &out->link;
    queue->bytes += out->bytes;
    return 0;
}

int kg_zchan_send(kg_zchan_t *chan, const kg_slice_t *frames, size_t count)
{
    if (chan->closing) {
        return -EPIPE;
    }
    if (count == 0 || count > KG_ZMSG_FRAMES_MAX) {
        return -EINVAL;
    }
    kg_zout_t *out = NULL;
    int rc = out_create(frames, count, &out);
    return rc < 0 ? rc : send_out(chan, &chan->out, out);
}

size_t kg_zchan_queued(const kg_zchan_t *chan)
{
    return chan->out.bytes;
}

uint64_t kg_zchan_sent(const kg_zchan_t *chan)
{
    return chan->sent;
}

/* ---- subscribers ---- */

int kg_zsub_create(kg_zchan_t *chan, kg_zsub_t **ret_sub)
{
    assert(chan->is_xpub && !chan->closing);
    kg_zsub_t *sub = calloc(1, sizeof(*sub));
    if (!sub) {
        return -ENOMEM;
    }
    sub->chan = chan;
    sub->out.tail = &sub->out.head;
    DL_APPEND(chan->subs, sub);
    *ret_sub = sub;
    return 0;
}

void kg_zsub_destroy(kg_zsub_t **sub_ptr)
{
    kg_zsub_t *sub = *sub_ptr;
    *sub_ptr = NULL;
    if (sub) {
        DL_DELETE(sub->chan->subs, sub);
        drop_queue(&sub->out);
        free(sub);
    }
}

int kg_zsub_topic(kg_zsub_t *sub, kg_slice_t topic, bool wanted)
{
    int option = wanted ? ZMQ_SUBSCRIBE : ZMQ_UNSUBSCRIBE;
    return zmq_setsockopt(sub->chan->sock, option, topic.data, topic.len) < 0 ? -errno : 0;
}

size_t kg_zsub_queued(const kg_zsub_t *sub)
{
    return sub->out.bytes;
}

int kg_zout_create(const kg_slice_t *frames, size_t count, kg_zout_t **ret_out)
{
    return count == 0 || count >= KG_ZMSG_FRAMES_MAX ? -EINVAL : out_create(frames, count, ret_out);
}

void kg_zout_destroy(kg_zout_t **out)
{
    if (*out) {
        out_destroy(*out);
        *out = NULL;
    }
}

/* The bytes are libzmq's, which counts who has them. */
static int share_parts(kg_zout_t *out, kg_zout_t *rest)
{
    for (size_t i = 0; i < rest->count; i++) {
        zmq_msg_t *part = &out->parts[out->count];
        zmq_msg_init(part);
        out->count++;
        if (zmq_msg_copy(part, &rest->parts[i]) < 0) {
            return -ENOMEM;
        }
    }
    out->bytes += rest->bytes;
    return 0;
}

int kg_zsub_send(kg_zsub_t *sub, kg_slice_t topic, kg_zout_t *rest)
{
    kg_zout_t *out = calloc(1, sizeof(*out) + (rest->count + 1) * sizeof(out->parts[0]));
    if (!out) {
        return -ENOMEM;
    }
    if (zmq_msg_init_size(&out->parts[0], topic.len) < 0) {
        free(out);
        return -ENOMEM;
    }
    if (topic.len > 0) {
        memcpy(zmq_msg_data(&out->parts[0]), topic.data, topic.len);
    }
    out->count = 1;
    out->bytes = topic.len;
    if (share_parts(out, rest)) {
        out_destroy(out);
        return -ENOMEM;
    }
    return send_out(sub->chan, &sub->out, out);
}

void kg_zchan_pause(kg_zchan_t *chan, bool paused)
{
    chan->paused = paused;
    mark_dirty(chan);
}

static void on_closed(uv_handle_t *handle)
{
    kg_zchan_t *chan = handle->data;
    kg_loop_t *loop = chan->loop;
    zmq_close(chan->sock); /* after its descriptor left epoll */
    loop->zchans--;
    drop_queue(&chan->out);
    kg_fn *done = chan->done;
    void *done_user = chan->done_user;
    free(chan);
    if (done) {
        done(done_user);
    }
}

void kg_zchan_close(kg_zchan_t **chan_ptr, kg_fn *done, void *user)
{
    if (!chan_ptr || !*chan_ptr) {
        return;
    }
    kg_zchan_t *chan = KG_TAKE(*chan_ptr);
    assert(!chan->closing && !chan->subs);
    unmark_dirty(chan);
    chan->closing = true;
    chan->done = done;
    chan->done_user = user;
    uv_poll_stop(&chan->poll);
    uv_close((uv_handle_t *)&chan->poll,
             on_closed); /* runs after this turn: safe inside on_message */
}
