/* The socket under keeper and sandbox clients, and the list of calls that wait for an answer on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/client_private.h"
#include "gateway/sandbox/seqsock.h"

static void free_frame(kg_frame_t *frame)
{
    kg_closep(&frame->fd);
    free(frame);
}

static void flush(kg_chan_t *chan)
{
    while (chan->first) {
        kg_frame_t *frame = chan->first;
        int r = kg_seq_send(chan->fd, frame->data, frame->len, &frame->fd, frame->fd >= 0);
        if (r == -EAGAIN || r == -ENOBUFS) {
            return;
        }
        chan->first = frame->next; /* sent, or broken: then the socket reads as ended */
        chan->count--;
        free_frame(frame);
    }
    chan->last = &chan->first;
    if (chan->wants_write) {
        chan->wants_write = false;
        (void)kg_fdwatch_set(chan->watch, true, false);
    }
}

static void on_ready(void *user, bool readable, bool writable)
{
    kg_chan_t *chan = user;
    if (writable) {
        flush(chan);
    }
    if (readable) {
        chan->on_readable(chan->user);
    }
}

int kg_chan_init(kg_chan_t *chan, kg_loop_t *loop, int fd_take, kg_fn *on_readable, void *user)
{
    *chan = (kg_chan_t){.loop = loop, .fd = fd_take, .on_readable = on_readable, .user = user};
    chan->last = &chan->first;
    int flags = fcntl(fd_take, F_GETFL);
    int r = flags < 0 || fcntl(fd_take, F_SETFL, flags | O_NONBLOCK) < 0 ||
                    fcntl(fd_take, F_SETFD, FD_CLOEXEC) < 0
                ? -errno
                : 0;
    if (r == 0) {
        r = kg_fdwatch_create(loop, fd_take, on_ready, chan, &chan->watch);
    }
    if (r == 0) {
        r = kg_fdwatch_set(chan->watch, true, false);
    }
    if (r < 0) {
        kg_chan_fini(chan);
    }
    return r;
}

static int
queue(kg_chan_t *chan, const void *head, size_t head_len, const void *tail, size_t tail_len, int fd)
{
    if (chan->count >= KG_CHAN_QUEUE_MAX) {
        return -ENOBUFS;
    }
    kg_frame_t *frame = malloc(sizeof(*frame) + head_len + tail_len);
    if (!frame) {
        return -ENOMEM;
    }
    frame->next = NULL;
    frame->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0 && frame->fd < 0) {
        int r = -errno;
        free(frame);
        return r;
    }
    frame->len = head_len + tail_len;
    memcpy(frame->data, head, head_len);
    if (tail_len > 0) {
        memcpy(frame->data + head_len, tail, tail_len);
    }
    *chan->last = frame;
    chan->last = &frame->next;
    chan->count++;
    return 0;
}

int kg_chan_send_fd(
    kg_chan_t *chan, const void *head, size_t head_len, const void *tail, size_t tail_len, int fd)
{
    if (chan->fd < 0) {
        return -EPIPE;
    }
    bool was_empty = chan->count == 0;
    int r = queue(chan, head, head_len, tail, tail_len, fd);
    if (r < 0 || !was_empty) {
        return r;
    }
    flush(chan);
    if (chan->count > 0) {
        chan->wants_write = true;
        return kg_fdwatch_set(chan->watch, true, true);
    }
    return 0;
}

int kg_chan_send(
    kg_chan_t *chan, const void *head, size_t head_len, const void *tail, size_t tail_len)
{
    return kg_chan_send_fd(chan, head, head_len, tail, tail_len, -1);
}

void kg_chan_fini(kg_chan_t *chan)
{
    kg_fdwatch_close(&chan->watch);
    kg_closep(&chan->fd);
    while (chan->first) {
        kg_frame_t *frame = chan->first;
        chan->first = frame->next;
        free_frame(frame);
    }
    chan->last = &chan->first;
    chan->count = 0;
}

kg_call_t *kg_call_take(kg_call_t **list, uint32_t seq, unsigned verb)
{
    for (kg_call_t **at = list; *at; at = &(*at)->next) {
        kg_call_t *call = *at;
        if (call->seq == seq && call->verb == verb) {
            *at = call->next;
            call->next = NULL;
            return call;
        }
    }
    return NULL;
}

void kg_call_forget(kg_call_t *list, const void *user)
{
    for (kg_call_t *call = list; call; call = call->next) {
        if (call->user == user) {
            call->forgotten = true;
        }
    }
}

static void fail_init_call(const kg_call_t *call, const kg_err_t *err)
{
    switch (call->verb) {
    case KG_IP_SPAWN:
    case KG_IP_ATTACH:
        call->fn.spawned(call->user, NULL, err);
        return;
    case KG_IP_SOCKET_OPEN:
        call->fn.socket(call->user, -EPIPE);
        return;
    case KG_IP_USAGE:
        call->fn.usage(call->user, NULL, err);
        return;
    case KG_IP_CONNECT:
        kg_files_fail(call, err);
        return;
    case KG_IP_REPORT:
        call->fn.report(call->user, NULL, 0, err);
        return;
    default:
        if (kg_ip_verb_is_files(call->verb)) {
            kg_files_fail(call, err);
        } else if (call->fn.done) {
            call->fn.done(call->user, err);
        }
        return;
    }
}

void kg_calls_fail(kg_call_t **list, const kg_err_t *err)
{
    while (*list) { /* one by one: a callback may forget others of the list */
        kg_call_t *call = *list;
        *list = call->next;
        if (!call->forgotten) {
            fail_init_call(call, err);
        }
        free(call->tokens);
        free(call);
    }
}
