/* ZeroMQ sockets on the loop: order, completeness, closing and sending inside callbacks, messages
 * on workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <zmq.h>

#include "gateway/base/clock.h"
#include "gateway/loop/zchan.h"

typedef struct fixture {
    kg_loop_t *loop;
    kg_zchan_t *chan;
    kg_zchan_t *peer;
    kg_workq_t *queue;
    kg_timer_t *timer;
    kg_zmsg_t *kept;
    void *zmq; /* the foreign side's context */
    char endpoint[128];
    uint32_t next;
    uint32_t total;
    int closed;
    size_t bytes;
    atomic_uint read; /* by a thread */
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(kg_loop_create(&f->loop), 0);
    f->zmq = zmq_ctx_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    kg_zchan_close(&f->chan, NULL, NULL);
    kg_zchan_close(&f->peer, NULL, NULL);
    kg_timer_close(&f->timer);
    kg_loop_destroy(&f->loop);
    zmq_ctx_term(f->zmq);
    free(f);
    return 0;
}

static void open_bound(fixture_t *f, kg_zchan_type_t type, kg_zchan_fn *fn)
{
    kg_err_t err = {0};
    kg_zchan_opts_t opts = {
        .type = type, .endpoint = "tcp://127.0.0.1:*", .bind = true, .on_message = fn, .user = f};
    assert_int_equal(kg_zchan_open(f->loop, &opts, &f->chan, &err), 0);
    assert_int_equal(kg_zchan_endpoint(f->chan, f->endpoint, sizeof(f->endpoint)), 0);
}

static void *foreign(fixture_t *f, int type)
{
    void *sock = zmq_socket(f->zmq, type);
    int zero = 0;
    zmq_setsockopt(sock, ZMQ_SNDHWM, &zero, sizeof(zero));
    zmq_setsockopt(sock, ZMQ_RCVHWM, &zero, sizeof(zero));
    assert_int_equal(zmq_connect(sock, f->endpoint), 0);
    return sock;
}

static void give_up(void *user)
{
    (void)user;
    fail_msg("timed out");
}

static void run(fixture_t *f)
{
    if (!f->timer) {
        assert_int_equal(kg_timer_create(f->loop, give_up, f, &f->timer), 0);
    }
    kg_timer_start(f->timer, 50 * KG_NS_PER_S, 0);
    kg_loop_run(f->loop);
    kg_timer_stop(f->timer);
}

static void count_message(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    fixture_t *f = user;
    assert_ptr_equal(chan, f->chan);
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    size_t first = count - 3; /* a ROUTER puts an identity in front */
    uint32_t number = 0;
    assert_int_equal(frames[first].len, sizeof(number));
    memcpy(&number, frames[first].data, sizeof(number));
    assert_int_equal(number, f->next);
    assert_int_equal(frames[first + 1].len, 0);
    assert_int_equal(frames[first + 2].len, number % 100);
    f->bytes += kg_zmsg_bytes(msg);
    if (++f->next == f->total) {
        kg_loop_stop(f->loop);
    }
}

static void *send_numbers(void *user)
{
    fixture_t *f = user;
    static const char filler[100];
    void *sock = foreign(f, f->closed ? ZMQ_DEALER : ZMQ_PUSH);
    for (uint32_t i = 0; i < f->total; i++) {
        zmq_send(sock, &i, sizeof(i), ZMQ_SNDMORE);
        zmq_send(sock, "", 0, ZMQ_SNDMORE);
        zmq_send(sock, filler, i % 100, 0);
    }
    zmq_close(sock);
    return NULL;
}

static void flood_arrives_whole_and_in_order(void **state)
{
    fixture_t *f = *state;
    f->total = 100000;
    f->closed = 1; /* a DEALER sends to our ROUTER */
    open_bound(f, KG_ZCHAN_ROUTER, count_message);
    pthread_t thread;
    pthread_create(&thread, NULL, send_numbers, f);
    uint64_t begin = kg_now_ns();
    run(f);
    print_message("%u messages in %.0f ms\n", f->total, (double)(kg_now_ns() - begin) / 1e6);
    pthread_join(thread, NULL);
    assert_int_equal(f->next, f->total);
    f->closed = 0;
}

/* --- One turn reads few big messages, so that others get theirs --- */

typedef struct turns {
    unsigned now;
    unsigned most;
} turns_t;

static turns_t *turns_of; /* cmocka runs one test at a time */

static void count_big(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    fixture_t *f = user;
    (void)chan;
    assert_true(kg_zmsg_bytes(msg) > KG_ZCHAN_BUDGET_BYTES / 2);
    turns_of->now++;
    turns_of->most = turns_of->now > turns_of->most ? turns_of->now : turns_of->most;
    if (++f->next == f->total) {
        kg_loop_stop(f->loop);
    }
}

static void next_turn(void *user)
{
    turns_t *turns = user;
    turns->now = 0;
}

static void big_messages_few_a_turn(void **state)
{
    fixture_t *f = *state;
    static char big[KG_ZCHAN_BUDGET_BYTES / 2 + 1];
    turns_t turns = {0};
    kg_hook_t hook = {.before_sleep = next_turn, .after_wake = next_turn, .user = &turns};
    turns_of = &turns;
    f->total = 20;
    open_bound(f, KG_ZCHAN_DEALER, count_big);
    void *sock = foreign(f, ZMQ_DEALER);
    for (uint32_t i = 0; i < f->total; i++) {
        assert_int_equal(zmq_send(sock, big, sizeof(big), 0), sizeof(big));
    }
    (void)poll(NULL, 0, 200); /* they come in while the loop does not run */
    kg_loop_hook_add(f->loop, &hook);
    run(f);
    kg_loop_hook_remove(f->loop, &hook);
    zmq_close(sock);
    turns_of = NULL;
    assert_int_equal(f->next, f->total);
    assert_in_range(turns.most, 1, 4); /* two reads between hooks: after a wake, before a sleep */
}

/* A bound DEALER without a peer takes nothing: messages wait here, up to a cap, and go in order. */
static void *read_three(void *user)
{
    fixture_t *f = user;
    void *sock = foreign(f, ZMQ_DEALER);
    char text[16] = "";
    for (unsigned i = 0; i < 6; i++) {
        int n = zmq_recv(sock, text, sizeof(text), 0);
        char want[16];
        (void)snprintf(want, sizeof(want), "%s%u", i % 2 ? "b" : "a", i / 2);
        if (n != 2 || memcmp(text, want, 2) != 0) {
            break;
        }
        f->read++;
    }
    zmq_close(sock);
    return NULL;
}

static void until_read(void *user)
{
    fixture_t *f = user;
    if (f->read == 6) {
        kg_loop_stop(f->loop);
    }
}

static void sends_wait_for_a_peer(void **state)
{
    fixture_t *f = *state;
    pthread_t thread;
    kg_timer_t *poll_timer = NULL;
    open_bound(f, KG_ZCHAN_DEALER, count_message);
    for (unsigned i = 0; i < 3; i++) {
        char text[2][16];
        (void)snprintf(text[0], sizeof(text[0]), "a%u", i);
        (void)snprintf(text[1], sizeof(text[1]), "b%u", i);
        const kg_slice_t frames[] = {kg_slice_cstr(text[0]), kg_slice_cstr(text[1])};
        assert_int_equal(kg_zchan_send(f->chan, frames, 2), 0);
    }
    size_t len = KG_ZCHAN_SENDQ_MAX / 4;
    char *big = calloc(1, len);
    assert_non_null(big);
    const kg_slice_t part = kg_slice(big, len);
    const kg_slice_t parts[] = {part, part, part, part};
    assert_int_equal(kg_zchan_send(f->chan, parts, 4), -E2BIG);
    free(big);
    pthread_create(&thread, NULL, read_three, f);
    assert_int_equal(kg_timer_create(f->loop, until_read, f, &poll_timer), 0);
    kg_timer_start(poll_timer, KG_NS_PER_MS, KG_NS_PER_MS);
    run(f);
    kg_timer_close(&poll_timer);
    pthread_join(thread, NULL);
    assert_int_equal(f->read, 6);
}

/* Both sides on one loop: a ROUTER answers each message, the DEALER sends the next from its
 * callback. */
static void echo(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    (void)user;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    assert_int_equal(count, 3);
    assert_int_equal(kg_zchan_send(chan, frames, count), 0);
}

static void ping(fixture_t *f)
{
    kg_slice_t frames[2] = {kg_slice((const char *)&f->next, sizeof(f->next)),
                            kg_slice_cstr("two")};
    assert_int_equal(kg_zchan_send(f->peer, frames, 2), 0);
}

static void pong(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    fixture_t *f = user;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    assert_int_equal(count, 2);
    assert_memory_equal(frames[0].data, &f->next, sizeof(f->next));
    assert_true(kg_slice_eq_cstr(frames[1], "two"));
    if (++f->next == 2000) {
        kg_zchan_close(&f->peer, NULL, NULL);
        assert_null(f->peer);
        kg_loop_stop(f->loop);
        return;
    }
    (void)chan;
    ping(f);
}

static void open_peer(fixture_t *f, kg_zchan_type_t type, const char *identity, kg_zchan_fn *fn)
{
    kg_err_t err = {0};
    kg_zchan_opts_t opts = {
        .type = type, .endpoint = f->endpoint, .identity = identity, .on_message = fn, .user = f};
    assert_int_equal(kg_zchan_open(f->loop, &opts, &f->peer, &err), 0);
}

static void round_trips_from_callbacks(void **state)
{
    fixture_t *f = *state;
    open_bound(f, KG_ZCHAN_ROUTER, echo);
    open_peer(f, KG_ZCHAN_DEALER, "me", pong);
    ping(f);
    run(f);
    assert_int_equal(f->next, 2000);
}

static void closed_cb(void *user)
{
    fixture_t *f = user;
    f->closed++;
    kg_loop_stop(f->loop);
}

static void close_at_first(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    (void)chan;
    (void)msg;
    fixture_t *f = user;
    f->next++;
    kg_zchan_close(&f->chan, closed_cb, f);
    assert_int_equal(f->closed, 0); /* never inside */
}

static void close_inside_callback_is_the_last(void **state)
{
    fixture_t *f = *state;
    open_bound(f, KG_ZCHAN_ROUTER, close_at_first);
    void *sock = foreign(f, ZMQ_DEALER);
    for (int i = 0; i < 100; i++) {
        zmq_send(sock, "x", 1, 0);
    }
    run(f);
    assert_int_equal(f->next, 1);
    assert_int_equal(f->closed, 1);
    int zero = 0;
    zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
    zmq_close(sock);
}

static void unref_on_worker(void *user)
{
    fixture_t *f = user;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(f->kept, &count);
    f->bytes = frames[count - 1].len;
    kg_zmsg_unref(&f->kept); /* the last reference, on another thread */
}

static void keep(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    (void)chan;
    fixture_t *f = user;
    f->kept = kg_zmsg_ref(msg);
    assert_int_equal(kg_workq_create(f->loop, &f->queue), 0);
    assert_int_equal(kg_workq_submit(f->queue, unref_on_worker, closed_cb, f), 0);
    kg_workq_close(&f->queue);
}

static void big_message_dies_on_a_worker(void **state)
{
    fixture_t *f = *state;
    open_bound(f, KG_ZCHAN_ROUTER, keep);
    void *sock = foreign(f, ZMQ_DEALER);
    size_t len = 20u << 20;
    char *big = calloc(1, len);
    for (int i = 0; i < 20; i++) { /* more frames than the first allocation holds */
        zmq_send(sock, "p", 1, ZMQ_SNDMORE);
    }
    zmq_send(sock, big, len, 0);
    free(big);
    run(f);
    assert_int_equal(f->bytes, len);
    zmq_close(sock);
}

static void unpause(void *user)
{
    fixture_t *f = user;
    assert_int_equal(f->next, 0);
    kg_zchan_pause(f->chan, false);
    kg_timer_stop(f->timer);
}

static void paused_channel_keeps_messages(void **state)
{
    fixture_t *f = *state;
    f->total = 1000;
    open_bound(f, KG_ZCHAN_ROUTER, count_message);
    kg_zchan_pause(f->chan, true);
    f->closed = 1;
    pthread_t thread;
    pthread_create(&thread, NULL, send_numbers, f);
    assert_int_equal(kg_timer_create(f->loop, unpause, f, &f->timer), 0);
    kg_timer_start(f->timer, 100 * KG_NS_PER_MS, 0);
    kg_loop_run(f->loop);
    pthread_join(thread, NULL);
    assert_int_equal(f->next, 1000);
    f->closed = 0;
}

static void pub_reaches_sub(void **state)
{
    fixture_t *f = *state;
    f->total = 1;
    open_bound(f, KG_ZCHAN_PUB, NULL);
    void *sock = zmq_socket(f->zmq, ZMQ_SUB);
    zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0);
    assert_int_equal(zmq_connect(sock, f->endpoint), 0);
    kg_slice_t frame = kg_slice_cstr("hello");
    char text[8] = "";
    for (int i = 0; i < 200 && zmq_recv(sock, text, sizeof(text), ZMQ_DONTWAIT) < 0; i++) {
        assert_int_equal(kg_zchan_send(f->chan, &frame, 1), 0);
        (void)poll(NULL, 0, 10);
    }
    assert_memory_equal(text, "hello", 5);
    zmq_close(sock);
}

static void router_says_when_nobody_is_there(void **state)
{
    fixture_t *f = *state;
    open_bound(f, KG_ZCHAN_ROUTER, echo);
    kg_slice_t frames[2] = {kg_slice_cstr("nobody"), kg_slice_cstr("x")};
    assert_int_equal(kg_zchan_send(f->chan, frames, 2), -EHOSTUNREACH);
    assert_int_equal(kg_zchan_send(f->chan, frames, 0), -EINVAL);
}

static void open_with_bad_endpoint_says_why(void **state)
{
    fixture_t *f = *state;
    kg_err_t err = {0};
    kg_zchan_opts_t opts = {.type = KG_ZCHAN_DEALER, .endpoint = "nonsense", .on_message = echo};
    assert_true(kg_zchan_open(f->loop, &opts, &f->chan, &err) < 0);
    assert_null(f->chan);
    assert_non_null(strstr(err.message, "nonsense"));
}

/* Hundreds of idle sockets cost nothing, and destroy finds a clean loop. */
static void many_sockets_open_and_close(void **state)
{
    fixture_t *f = *state;
    kg_zchan_t *chans[300];
    open_bound(f, KG_ZCHAN_ROUTER, echo);
    for (size_t i = 0; i < KG_ARRAY_LEN(chans); i++) {
        kg_zchan_opts_t opts = {
            .type = KG_ZCHAN_DEALER, .endpoint = f->endpoint, .on_message = pong, .user = f};
        assert_int_equal(kg_zchan_open(f->loop, &opts, &chans[i], NULL), 0);
    }
    open_peer(f, KG_ZCHAN_DEALER, NULL, pong);
    ping(f);
    run(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(chans); i++) {
        kg_zchan_close(&chans[i], NULL, NULL);
    }
}

/* Trap 18: libzmq gives 1,023 sockets unless it is told otherwise. And 17: what it opens is not
 * inherited by programs that are started. */
static void as_many_sockets_as_kernels_need(void **state)
{
    enum {
        COUNT = 1100,
        MOST = 2 * COUNT
    };
    fixture_t *f = *state;
    static kg_zchan_t *chans[COUNT];
    static bool before[MOST];
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit more = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (limit.rlim_max < MOST || setrlimit(RLIMIT_NOFILE, &more) < 0) {
        print_message("the hard limit of descriptors is %llu\n",
                      (unsigned long long)limit.rlim_max);
        skip();
    }
    for (int fd = 0; fd < MOST; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    for (int i = 0; i < COUNT; i++) {
        char endpoint[32];
        (void)snprintf(endpoint, sizeof(endpoint), "inproc://%d", i);
        const kg_zchan_opts_t opts = {
            .type = KG_ZCHAN_ROUTER, .endpoint = endpoint, .bind = true, .on_message = echo};
        kg_err_t err = {0};
        if (kg_zchan_open(f->loop, &opts, &chans[i], &err)) {
            fail_msg("socket %d: %s", i, err.message);
        }
    }
    int opened = 0;
    for (int fd = 0; fd < MOST; fd++) {
        int flags = before[fd] ? -1 : fcntl(fd, F_GETFD);
        opened += flags >= 0;
        assert_true(flags < 0 || flags & FD_CLOEXEC);
    }
    assert_true(opened >= COUNT);
    for (int i = 0; i < COUNT; i++) {
        kg_zchan_close(&chans[i], NULL, NULL);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* --- Sockets that strangers connect to --- */

static void open_bounded(fixture_t *f, const kg_zchan_opts_t *bounds)
{
    kg_err_t err = {0};
    kg_zchan_opts_t opts = *bounds;
    opts.endpoint = "tcp://127.0.0.1:*";
    opts.bind = true;
    opts.user = f;
    assert_int_equal(kg_zchan_open(f->loop, &opts, &f->chan, &err), 0);
    assert_int_equal(kg_zchan_endpoint(f->chan, f->endpoint, sizeof(f->endpoint)), 0);
}

enum {
    PUBLISHED = 200,
    PIECE = 256 * 1024,
};

typedef struct stall {
    fixture_t *f;
    void *reader;
    kg_zsub_t *subs[2];
    kg_zpeer_t peers[2];
    int subscribers;
    bool left;
    uint32_t read;
} stall_t;

static stall_t *stall_of; /* cmocka runs one test at a time */

static void give_name(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    stall_t *s = stall_of;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    const char *name = s->subscribers == 0 ? "a." : "b.";
    kg_zpeer_t peer = kg_zchan_peer(chan, msg);
    (void)user;
    assert_int_equal(count, 1);
    assert_int_equal(frames[0].len, 1);
    kg_loop_stop(s->f->loop);
    if (frames[0].data[0] == 0) {
        assert_int_equal(peer.fd, -1);
        s->left = true;
        return;
    }
    assert_in_range(s->subscribers, 0, 1);
    assert_true(peer.fd >= 0);
    s->peers[s->subscribers] = peer;
    assert_int_equal(kg_zsub_create(chan, &s->subs[s->subscribers]), 0);
    assert_int_equal(kg_zsub_topic(s->subs[s->subscribers], kg_slice_cstr(name), true), 0);
    s->subscribers++;
}

/* Each message is its topic and its bytes. */
static void read_published(void *user)
{
    stall_t *s = user;
    static char piece[PIECE];
    while (zmq_recv(s->reader, piece, sizeof(piece), ZMQ_DONTWAIT) >= 0) {
        assert_memory_equal(piece, "b.", 2);
        assert_int_equal(zmq_recv(s->reader, piece, sizeof(piece), 0), PIECE);
        assert_memory_equal(piece, &s->read, sizeof(s->read));
        s->read++;
    }
    if (s->read == PUBLISHED) {
        kg_loop_stop(s->f->loop);
    }
}

static void publish_all(const stall_t *s)
{
    static char piece[PIECE];
    for (uint32_t i = 0; i < PUBLISHED; i++) {
        memcpy(piece, &i, sizeof(i));
        const kg_slice_t frame = kg_slice(piece, sizeof(piece));
        kg_zout_t *out = NULL;
        assert_int_equal(kg_zout_create(&frame, 1, &out), 0);
        assert_int_equal(kg_zsub_send(s->subs[0], kg_slice_cstr("a."), out), 0);
        assert_int_equal(kg_zsub_send(s->subs[1], kg_slice_cstr("b."), out), 0);
        kg_zout_destroy(&out);
    }
}

static void await_subscriber(stall_t *s, void *sock)
{
    int before = s->subscribers;
    assert_int_equal(zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0), 0);
    while (s->subscribers == before) {
        run(s->f);
    }
}

static void look_again(void *user)
{
    kg_loop_stop(((fixture_t *)user)->loop);
}

static void subscribers_do_not_wait_for_each_other(void **state)
{
    fixture_t *f = *state;
    stall_t s = {.f = f};
    kg_timer_t *timer = NULL;
    const int few = 1;
    stall_of = &s;
    open_bounded(f, &(kg_zchan_opts_t){.type = KG_ZCHAN_XPUB, .hwm = 4, .on_message = give_name});
    void *stalled = zmq_socket(f->zmq, ZMQ_SUB);
    assert_int_equal(zmq_setsockopt(stalled, ZMQ_RCVHWM, &few, sizeof(few)), 0);
    assert_int_equal(zmq_connect(stalled, f->endpoint), 0);
    await_subscriber(&s, stalled);
    s.reader = foreign(f, ZMQ_SUB);
    await_subscriber(&s, s.reader);
    assert_false(kg_zpeer_same(&s.peers[0], &s.peers[1]));
    publish_all(&s);
    assert_true(kg_zsub_queued(s.subs[0]) > 0);
    assert_int_equal(kg_timer_create(f->loop, read_published, &s, &timer), 0);
    kg_timer_start(timer, KG_NS_PER_MS, 5 * KG_NS_PER_MS);
    run(f);
    kg_timer_close(&timer);
    assert_int_equal(s.read, PUBLISHED); /* all of it, with the other one not reading */
    assert_int_equal(kg_zsub_queued(s.subs[1]), 0);
    assert_true(kg_zsub_queued(s.subs[0]) > 0);
    zmq_close(stalled); /* is told, though it does not unsubscribe, and not of whom */
    assert_int_equal(kg_timer_create(f->loop, look_again, f, &timer), 0);
    kg_timer_start(timer, KG_NS_PER_MS, KG_NS_PER_MS);
    while (!s.left || !kg_zpeer_gone(&s.peers[0])) {
        run(f);
    }
    kg_timer_close(&timer);
    assert_false(kg_zpeer_gone(&s.peers[1]));
    kg_zsub_destroy(&s.subs[0]);
    kg_zsub_destroy(&s.subs[1]);
    zmq_close(s.reader);
    stall_of = NULL;
}

/* It asks, and reads no answer. */
static void answer_until_full(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    fixture_t *f = user;
    static char piece[PIECE];
    size_t count = 0;
    const kg_slice_t *asked = kg_zmsg_frames(msg, &count);
    const kg_slice_t answer[] = {asked[0], kg_slice(piece, sizeof(piece))};
    const kg_slice_t nobody[] = {kg_slice_cstr("nobody"), asked[1]};
    int rc = 0;
    for (f->next = 0; rc == 0 && f->next < 10000; f->next++) {
        rc = kg_zchan_send(chan, answer, 2);
    }
    assert_int_equal(rc, -EAGAIN);
    assert_int_equal(kg_zchan_queued(chan), 0);
    assert_int_equal(kg_zchan_send(chan, nobody, 2), -EHOSTUNREACH);
    kg_loop_stop(f->loop);
}

static void router_without_a_queue_refuses(void **state)
{
    fixture_t *f = *state;
    open_bounded(f, &(kg_zchan_opts_t){.type = KG_ZCHAN_ROUTER,
                                       .hwm = 4,
                                       .no_queue = true,
                                       .on_message = answer_until_full});
    void *sock = foreign(f, ZMQ_DEALER);
    const int few = 1;
    assert_int_equal(zmq_setsockopt(sock, ZMQ_RCVHWM, &few, sizeof(few)), 0);
    assert_int_equal(zmq_send(sock, "x", 1, 0), 1);
    run(f);
    assert_in_range(f->next, 4, 9999);
    zmq_close(sock);
}

static void count_bounded(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    fixture_t *f = user;
    size_t count = 0;
    const kg_slice_t *frames = kg_zmsg_frames(msg, &count);
    (void)chan;
    assert_in_range(frames[count - 1].len, 0, 1000);
    if (++f->next == f->total) {
        kg_loop_stop(f->loop);
    }
}

static void frames_over_the_bound_do_not_come(void **state)
{
    fixture_t *f = *state;
    static char piece[1001];
    open_bounded(f, &(kg_zchan_opts_t){
                        .type = KG_ZCHAN_ROUTER, .frame_max = 1000, .on_message = count_bounded});
    void *sock = foreign(f, ZMQ_DEALER);
    f->total = 1;
    assert_int_equal(zmq_send(sock, piece, 1000, 0), 1000);
    run(f);
    assert_int_equal(zmq_send(sock, piece, 1001, 0), 1001);
    void *other = foreign(f, ZMQ_DEALER); /* costs nobody else anything */
    f->total = 101;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(zmq_send(other, piece, 1000, 0), 1000);
    }
    run(f);
    zmq_close(other);
    zmq_close(sock);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(big_messages_few_a_turn),
        T(sends_wait_for_a_peer),
        T(flood_arrives_whole_and_in_order),
        T(round_trips_from_callbacks),
        T(close_inside_callback_is_the_last),
        T(big_message_dies_on_a_worker),
        T(paused_channel_keeps_messages),
        T(pub_reaches_sub),
        T(router_says_when_nobody_is_there),
        T(open_with_bad_endpoint_says_why),
        T(as_many_sockets_as_kernels_need),
        T(many_sockets_open_and_close),
        T(subscribers_do_not_wait_for_each_other),
        T(router_without_a_queue_refuses),
        T(frames_over_the_bound_do_not_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
