/* ZeroMQ sockets on the loop. The socket's descriptor is an alarm clock: it says that something
 * changed since the last zmq call, not what. So its callback, and every zmq call of ours (which may
 * swallow the alarm), puts the socket on the dirty list; kg_zchan_drain reads until EAGAIN, which
 * is libzmq's word that the next change will ring again. */
#include "gateway/loop/zchan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "gateway/base/log.h"
#include "gateway/loop/loop_priv.h"
#include "gateway/loop/zmsg.h"

/* One message that did not fit. parts from `next` on are still to be sent. */
typedef struct out_msg {
    size_t count;
    size_t next;
    size_t bytes;
    struct out_msg *link;
    zmq_msg_t parts[];
} out_msg_t;

struct kg_zchan {
    kg_loop_t *loop;
    void *sock;
    uv_poll_t poll;
    kg_zchan_fn *on_message;
    void *user;
    out_msg_t *out_head;
    out_msg_t **out_tail;
    size_t out_bytes;
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

static int send_parts(kg_zchan_t *chan, out_msg_t *out)
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

static void out_destroy(out_msg_t *out)
{
    for (size_t i = 0; i < out->count; i++) {
        zmq_msg_close(&out->parts[i]);
    }
    free(out);
}

static void flush_out(kg_zchan_t *chan)
{
    while (chan->out_head) {
        out_msg_t *out = chan->out_head;
        int rc = send_parts(chan, out);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc < 0) {
            kg_log(KG_LOG_WARN, "zchan.send_failed", "error=%d bytes=%zu", -rc, out->bytes);
        }
        chan->out_head = out->link;
        if (!chan->out_head) {
            chan->out_tail = &chan->out_head;
        }
        chan->out_bytes -= out->bytes;
        chan->sent++;
        out_destroy(out);
    }
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
        bool room = !chan->closing && chan->out_head && (socket_events(chan) & ZMQ_POLLOUT);
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
        rc |= set_int(sock, ZMQ_XPUB_VERBOSER, 1) | set_int(sock, ZMQ_XPUB_NODROP, 1);
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
    chan->out_tail = &chan->out_head;
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

static int out_create(const kg_slice_t *frames, size_t count, out_msg_t **ret_out)
{
    out_msg_t *out = calloc(1, sizeof(*out) + count * sizeof(out->parts[0]));
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

int kg_zchan_send(kg_zchan_t *chan, const kg_slice_t *frames, size_t count)
{
    if (chan->closing) {
        return -EPIPE;
    }
    if (count == 0 || count > KG_ZMSG_FRAMES_MAX) {
        return -EINVAL;
    }
    out_msg_t *out = NULL;
    int rc = out_create(frames, count, &out);
    if (rc < 0) {
        return rc;
    }
    if (!chan->out_head) {
        rc = send_parts(chan, out);
        mark_dirty(chan);
        chan->sent += rc == 0;
        if (rc != -EAGAIN || chan->no_queue) { /* a ROUTER refuses at the first part */
            out_destroy(out);
            return rc;
        }
    }
    /* A message that has begun must be finished, whatever the cap says. */
    if (out->next == 0 && chan->out_bytes + out->bytes > KG_ZCHAN_SENDQ_MAX) {
        out_destroy(out);
        return -E2BIG;
    }
    *chan->out_tail = out;
    chan->out_tail = &out->link;
    chan->out_bytes += out->bytes;
    return 0;
}

size_t kg_zchan_queued(const kg_zchan_t *chan)
{
    return chan->out_bytes;
}

uint64_t kg_zchan_sent(const kg_zchan_t *chan)
{
    return chan->sent;
}

void kg_zchan_pass_over(kg_zchan_t *chan)
{
    out_msg_t *out = chan->out_head;
    if (!chan->is_xpub || chan->closing || !out) {
        return;
    }
    /* Who has no room for a message that may be dropped is none of the socket's matching pipes any
     * more, which alone are asked for room afterwards (libzmq, dist.cpp). */
    (void)set_int(chan->sock, ZMQ_XPUB_NODROP, 0);
    (void)send_parts(chan, out);
    (void)set_int(chan->sock, ZMQ_XPUB_NODROP, 1);
    flush_out(chan);
    mark_dirty(chan);
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
    while (chan->out_head) {
        out_msg_t *out = chan->out_head;
        chan->out_head = out->link;
        out_destroy(out);
    }
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
    assert(!chan->closing);
    unmark_dirty(chan);
    chan->closing = true;
    chan->done = done;
    chan->done_user = user;
    uv_poll_stop(&chan->poll);
    uv_close((uv_handle_t *)&chan->poll,
             on_closed); /* runs after this turn: safe inside on_message */
}
