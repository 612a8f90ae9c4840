/* The four sockets of a kernel: waits until the kernel has bound them, connects, and proves that
 * what is published arrives (a SUB socket that joins late loses messages in silence). Also takes
 * them down and up again around a suspension.
 *
 * Each connect goes to /proc/self/fd/N of a descriptor that sandal-init opened and checked, so
 * libzmq must not reconnect: the number would be another file's by then. */
#include <errno.h>
#include <inttypes.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

/* libzmq's own "never" (-1) ends the pipe when the peer goes, and drops what was received but not
 * read yet: the last words of a kernel. An interval of eleven days keeps them. */
#define NEVER_MS 1000000000
#define LOOK_NS                                                                                    \
    (5 * KG_NS_PER_MS) /* between looks for a socket, and before a nudge that should come soon */
#define FDS_KEEP_NS KG_NS_PER_S        /* after the proof: stdin has no proof of its own */
#define DRAIN_QUIET_TICKS 5            /* looks without a message that let a suspension go on */
#define DRAIN_MAX_NS (2 * KG_NS_PER_S) /* a kernel that never falls silent */
#define BUSY_PROOF_NS KG_NS_PER_S      /* see is_proven */

/* Port numbers of the connection file, and with it names in the run directory. */
static const unsigned ports[KG_CHANNELS] = {
    [KG_CHANNEL_SHELL] = 1,
    [KG_CHANNEL_IOPUB] = 2,
    [KG_CHANNEL_STDIN] = 3,
    [KG_CHANNEL_CONTROL] = 4,
};
/* SUB first: what it misses is lost. Then stdin, so that the ones with an answer come after it. */
static const kg_channel_t connect_order[KG_CHANNELS] = {KG_CHANNEL_IOPUB, KG_CHANNEL_STDIN,
                                                        KG_CHANNEL_SHELL, KG_CHANNEL_CONTROL};

static void timer_fired(void *user);
static void deadline_fired(void *user);

int kg_link_init(kg_kernel_t *k)
{
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        k->link.chans[i] = (kg_chan_t){.kernel = k, .channel = (kg_channel_t)i, .fd = -1};
    }
    int rc = kg_timer_create(k->loop, timer_fired, k, &k->link.timer);
    return rc < 0 ? rc : kg_timer_create(k->loop, deadline_fired, k, &k->link.deadline);
}

void kg_link_fini(kg_kernel_t *k)
{
    kg_timer_close(&k->link.timer);
    kg_timer_close(&k->link.deadline);
    kg_buf_fini(&k->link.info);
}

static void close_fds(kg_kernel_t *k)
{
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        kg_closep(&k->link.chans[i].fd);
    }
}

static void finish(kg_kernel_t *k, const kg_err_t *err)
{
    kg_done_fn *done = k->link.done;
    k->link.done = NULL;
    if (done) {
        done(k->link.done_user, err);
    }
}

static void zchan_closed(void *user)
{
    kg_kernel_t *k = user;
    k->link.closing--;
    if (k->link.state == KG_LINK_CLOSING && k->link.closing == 0) {
        k->link.state = KG_LINK_DOWN;
        finish(k, NULL);
    }
    kg_kernel_unref(k);
}

static void close_chans(kg_kernel_t *k)
{
    kg_timer_stop(k->link.timer);
    kg_timer_stop(k->link.deadline);
    close_fds(k);
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        if (k->link.chans[i].zchan) {
            kg_kernel_ref(k);
            k->link.closing++;
            kg_zchan_close(&k->link.chans[i].zchan, zchan_closed, k);
        }
    }
}

void kg_link_close(kg_kernel_t *k)
{
    close_chans(k);
    k->link.state = KG_LINK_DOWN;
    if (k->link.done) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_CONFLICT, "the kernel has ended");
        finish(k, &err);
    }
}

static void fail(kg_kernel_t *k, const kg_err_t *err)
{
    if (!k->told_start) {
        kg_kernel_start_failed(k, err);
        return;
    }
    close_chans(k);
    k->link.state = KG_LINK_DOWN;
    finish(k, err);
}

/* ---- open ---- */

static int connect_chan(kg_kernel_t *k, kg_chan_t *chan, kg_err_t *err)
{
    char endpoint[48];
    (void)kg_format(endpoint, sizeof(endpoint), "ipc:///proc/self/fd/%d", chan->fd);
    bool sub = chan->channel == KG_CHANNEL_IOPUB;
    const kg_zchan_opts_t opts = {
        .type = sub ? KG_ZCHAN_SUB : KG_ZCHAN_DEALER,
        .identity = sub ? NULL : k->identity,
        .endpoint = endpoint,
        .reconnect_ivl_ms = NEVER_MS,
        .on_message = kg_inbox_message,
        .user = chan,
    };
    return kg_zchan_open(k->loop, &opts, &chan->zchan, err);
}

static void nudge(kg_kernel_t *k)
{
    int rc = kg_link_send_info(k, KG_CHANNEL_CONTROL, NULL);
    if (!kg_kernel_cell_runs(k)) {
        int rc_shell = kg_link_send_info(k, KG_CHANNEL_SHELL, NULL);
        rc = rc < 0 ? rc : rc_shell;
    }
    if (rc < 0) {
        kg_log(KG_LOG_WARN, "kernel.nudge", "kernel=%s errno=%d", k->name, -rc);
    }
    kg_timer_start(k->link.timer, k->limits.nudge_ns, 0);
}

static void connect_all(kg_kernel_t *k)
{
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        kg_err_t err = {0};
        if (connect_chan(k, &k->link.chans[connect_order[i]], &err) < 0) {
            kg_err_wrap(&err, "connecting to the kernel's %s socket",
                        kg_channel_name(connect_order[i]));
            fail(k, &err);
            return;
        }
    }
    k->link.state = KG_LINK_PROVING;
    k->link.got_reply = k->link.got_iopub = false;
    k->link.since_ns = kg_now_ns();
    k->gap_probe[0] = '\0';
    if (k->running &&
        kg_kernel_cell_runs(k)) { /* tells that the cell is over, even if its reply was lost */
        (void)kg_link_send_info(k, KG_CHANNEL_SHELL, k->gap_probe);
    }
    nudge(k);
}

static void ask_socket(kg_kernel_t *k);

static void on_socket(void *user, int fd_take)
{
    kg_kernel_t *k = user;
    if (k->link.state != KG_LINK_OPENING || k->closing) {
        kg_closep(&fd_take);
        return;
    }
    if (fd_take == -ENOENT || fd_take == -ECONNREFUSED || fd_take == -EAGAIN) {
        kg_timer_start(k->link.timer, LOOK_NS, 0);
        return;
    }
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        kg_chan_t *chan = &k->link.chans[connect_order[i]];
        if (chan->fd >= 0) {
            continue;
        }
        if (fd_take < 0) {
            kg_err_t err = {0};
            kg_err_set(&err, KG_ERR_KERNEL_START_FAILED,
                       "the kernel's %s socket cannot be used: %s", kg_channel_name(chan->channel),
                       fd_take == -EPERM ? "it is not a socket of its own" : "the sandbox is lost");
            fail(k, &err);
            return;
        }
        chan->fd = fd_take;
        break;
    }
    ask_socket(k);
}

/* Asks for the first socket that is missing, or connects when all are there. */
static void ask_socket(kg_kernel_t *k)
{
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        const kg_chan_t *chan = &k->link.chans[connect_order[i]];
        if (chan->fd >= 0) {
            continue;
        }
        char name[KG_SBX_NAME_MAX];
        (void)kg_format(name, sizeof(name), "%s-%u", k->name, ports[chan->channel]);
        int rc = kg_sbx_socket_open(k->sbx, name, on_socket, k);
        if (rc < 0) {
            kg_err_t err = {0};
            kg_err_set(&err, KG_ERR_KERNEL_START_FAILED,
                       "the sandbox cannot be asked for the kernel's sockets");
            fail(k, &err);
        }
        return;
    }
    connect_all(k);
}

void kg_link_begin(kg_kernel_t *k, uint64_t deadline_ns)
{
    k->link.state = KG_LINK_OPENING;
    if (deadline_ns > 0) {
        kg_timer_start(k->link.deadline, deadline_ns, 0);
    }
    ask_socket(k);
}

/* ---- proof ---- */

/* While a cell runs, a kernel with one thread answers nothing. Then a second after the connect will
 * do: by that time the subscription has reached the kernel's socket, which takes it into account
 * before it publishes anything more. */
static bool is_proven(const kg_kernel_t *k)
{
    if (k->link.got_iopub && k->link.got_reply) {
        return true;
    }
    return kg_kernel_cell_runs(k) && (k->told_start || k->adopted) &&
           kg_now_ns() - k->link.since_ns >= BUSY_PROOF_NS;
}

static void check_proof(kg_kernel_t *k)
{
    if (k->link.state != KG_LINK_PROVING || !is_proven(k)) {
        return;
    }
    k->link.state = KG_LINK_UP;
    kg_timer_stop(k->link.deadline);
    kg_timer_start(k->link.timer, FDS_KEEP_NS, 0); /* then close_fds */
    if (k->told_start) {
        kg_barrier_link_up(k);
        finish(k, NULL);
    } else {
        kg_kernel_start_ready(k);
    }
}

void kg_link_on_iopub(kg_kernel_t *k)
{
    if (k->link.state == KG_LINK_PROVING && !k->link.got_iopub) {
        k->link.got_iopub = true;
        check_proof(k);
    }
}

void kg_link_on_info(kg_kernel_t *k, const kg_jmsg_t *msg)
{
    if (k->gap_probe[0] && strcmp(k->gap_probe, msg->parent_id) == 0) {
        k->gap_probe[0] = '\0';
        kg_request_gap_closed(k);
    }
    if (k->link.state != KG_LINK_PROVING) {
        return;
    }
    if (!k->told_start && k->link.info.len == 0 &&
        kg_buf_append_slice(&k->link.info, msg->content.raw) < 0) {
        return; /* the next nudge brings another */
    }
    k->link.got_reply = true;
    check_proof(k);
    if (k->link.state ==
        KG_LINK_PROVING) { /* it answers, but iopub was not joined yet: again, soon */
        kg_timer_start(k->link.timer, LOOK_NS, 0);
    }
}

static void deadline_fired(void *user)
{
    kg_kernel_t *k = user;
    kg_err_t err = {0};
    const char *missing = "it did not open its sockets";
    if (k->life == KG_LIFE_SPAWNING) {
        missing = "its process was not started";
    } else if (k->link.state == KG_LINK_PROVING) {
        missing = k->link.got_reply ? "nothing came on iopub" : "it did not answer kernel_info";
    }
    kg_err_set(&err, KG_ERR_KERNEL_TIMEOUT, "the kernel was not %s within %" PRIu64 " s: %s",
               k->told_start || k->adopted ? "back" : "ready", k->limits.start_ns / KG_NS_PER_S,
               missing);
    fail(k, &err);
}

/* ---- send ---- */

int kg_link_send(kg_kernel_t *k, kg_channel_t channel, const kg_out_t *out)
{
    kg_zchan_t *zchan = k->link.chans[channel].zchan;
    if (!zchan || k->life != KG_LIFE_RUNNING) {
        return -EPIPE;
    }
    kg_slice_t frames[KG_WIRE_FRAMES_MAX];
    kg_out_frames(out, frames);
    for (size_t i = 0; i < out->buffer_count; i++) {
        frames[KG_OUT_FRAMES + i] = kg_buf_slice(&out->buffers[i]);
    }
    return kg_zchan_send(zchan, frames, KG_OUT_FRAMES + out->buffer_count);
}

int kg_link_send_info(kg_kernel_t *k, kg_channel_t channel, char *ret_msg_id)
{
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    int rc = kg_request_kernel_info(&k->session, &out);
    if (rc == 0) {
        rc = kg_link_send(k, channel, &out);
    }
    if (rc == 0 && ret_msg_id) {
        memcpy(ret_msg_id, out.msg_id, KG_MSG_ID_MAX);
    }
    return rc;
}

void kg_link_pause(kg_kernel_t *k, bool paused)
{
    for (unsigned i = 0; i < KG_CHANNELS; i++) {
        if (k->link.chans[i].zchan && i != KG_CHANNEL_CONTROL) {
            kg_zchan_pause(k->link.chans[i].zchan, paused);
        }
    }
}

/* ---- suspend and resume ---- */

static void drain_tick(kg_kernel_t *k)
{
    if (!kg_inbox_quiet(k, DRAIN_QUIET_TICKS) && kg_now_ns() - k->link.since_ns < DRAIN_MAX_NS) {
        kg_timer_start(k->link.timer, LOOK_NS, 0);
        return;
    }
    k->link.state = KG_LINK_CLOSING;
    close_chans(k);
}

static void timer_fired(void *user)
{
    kg_kernel_t *k = user;
    if (k->closing) {
        return;
    }
    switch (k->link.state) {
    case KG_LINK_OPENING:
        ask_socket(k);
        break;
    case KG_LINK_PROVING:
        check_proof(k);
        if (k->link.state == KG_LINK_PROVING) {
            nudge(k);
        }
        break;
    case KG_LINK_UP:
        close_fds(k);
        break;
    case KG_LINK_DRAINING:
        drain_tick(k);
        break;
    case KG_LINK_DOWN:
    case KG_LINK_CLOSING:
        break;
    }
}

bool kg_kernel_is_suspended(const kg_kernel_t *k)
{
    return k->told_start && !k->failed && k->life == KG_LIFE_RUNNING &&
           k->link.state == KG_LINK_DOWN;
}

int kg_kernel_suspend(kg_kernel_t *k, kg_done_fn *done, void *user, kg_err_t *err)
{
    if (k->life != KG_LIFE_RUNNING || k->link.state != KG_LINK_UP || k->closing) {
        return kg_err_set(err, KG_ERR_CONFLICT,
                          "only a kernel that is ready and connected can be suspended");
    }
    k->link.state = KG_LINK_DRAINING;
    k->link.since_ns = kg_now_ns();
    k->quiet_ticks = 0;
    k->link.done = done;
    k->link.done_user = user;
    for (kg_request_t *req = k->requests; req; req = req->next) {
        req->gap = req->gap || (!req->ended && !req->unsent);
    }
    kg_timer_start(k->link.timer, LOOK_NS, 0);
    return 0;
}

int kg_kernel_resume(kg_kernel_t *k, kg_done_fn *done, void *user, kg_err_t *err)
{
    if (!kg_kernel_is_suspended(k) || k->closing) {
        return kg_err_set(err, KG_ERR_CONFLICT, "only a suspended kernel can be resumed");
    }
    k->link.done = done;
    k->link.done_user = user;
    kg_link_begin(k, k->limits.start_ns);
    return 0;
}
