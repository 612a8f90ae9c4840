#include "edge_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* On the loop's thread cmocka's own checks must not be used. */
static void must(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* --- Handler
 * ---------------------------------------------------------------------------------------------------------
 */

typedef struct exchange {
    edge_fixture_t *f;
    kg_http_t *http;
    char route[32];
    size_t left;
    kg_buf_t piece;
    unsigned long sum;
    size_t got;
} exchange_t;

/* Takes all that is there; at the end tells how much it was, and the sum of its bytes. */
static void drink(exchange_t *x)
{
    bool end = false;
    kg_http_body_take(x->http, &x->piece, &end);
    for (size_t i = 0; i < x->piece.len; i++) {
        x->sum += (unsigned char)x->piece.data[i];
    }
    x->got += x->piece.len;
    atomic_fetch_add(&x->f->taken, x->piece.len);
    if (x->piece.len > atomic_load(&x->f->most)) {
        atomic_store(&x->f->most, x->piece.len);
    }
    if (end) {
        char text[64];
        int len = snprintf(text, sizeof(text), "%zu %lu", x->got, x->sum);
        kg_http_reply(x->http, 200, NULL, 0, "text/plain", kg_slice(text, (size_t)len));
    }
}

static void on_ready(void *user)
{
    exchange_t *x = user;
    atomic_fetch_add(&x->f->readies, 1);
    if (x->f->sink != x) {
        drink(x);
    }
}

static void on_ready_refuse(void *user)
{
    exchange_t *x = user;
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_CONFLICT, "Not this one.");
    kg_http_reply_error(x->http, &err, NULL, 0);
}

static kg_pull_t pull_bytes(void *user, kg_buf_t *out, size_t max)
{
    exchange_t *x = user;
    size_t n = x->left < max ? x->left : max;
    if (kg_buf_reserve(out, n) < 0) {
        return KG_PULL_ABORT;
    }
    memset(out->data + out->len, 'x', n);
    out->len += n;
    x->left -= n;
    atomic_fetch_add(&x->f->pulled, n);
    return x->left ? KG_PULL_MORE : KG_PULL_END;
}

static kg_pull_t pour_bytes(void *user, int socket, uint64_t *ret_sent)
{
    static const char bytes[65536] = {0};
    exchange_t *x = user;
    *ret_sent = 0;
    while (x->left > 0) {
        size_t most = x->left < sizeof(bytes) ? x->left : sizeof(bytes);
        ssize_t n = send(socket, bytes, most, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN ? KG_PULL_MORE : KG_PULL_ABORT;
        }
        x->left -= (size_t)n;
        *ret_sent += (size_t)n;
        atomic_fetch_add(&x->f->poured, (size_t)n);
    }
    return KG_PULL_END;
}

static void on_later(void *user)
{
    kg_http_wake(user);
}

/* A thousand bytes a turn, each told of in the next one; at the end one is missing. */
static kg_pull_t pour_short(void *user, int socket, uint64_t *ret_sent)
{
    static const char bytes[1000] = {0};
    exchange_t *x = user;
    *ret_sent = x->got;
    x->got = 0;
    if (x->left <= 1) {
        return KG_PULL_END;
    }
    size_t most = x->left - 1 < sizeof(bytes) ? x->left - 1 : sizeof(bytes);
    must(send(socket, bytes, most, MSG_NOSIGNAL) == (ssize_t)most);
    x->left -= most;
    x->got = most;
    must(kg_loop_later(x->f->loop, on_later, x->http) == 0);
    return KG_PULL_WAIT;
}

static kg_pull_t pull_then_abort(void *user, kg_buf_t *out, size_t max)
{
    (void)max;
    exchange_t *x = user;
    if (x->left++) {
        return KG_PULL_ABORT;
    }
    kg_buf_append_cstr(out, "some");
    return KG_PULL_MORE;
}

static kg_pull_t pull_trickle(void *user, kg_buf_t *out, size_t max)
{
    (void)max;
    exchange_t *x = user;
    edge_fixture_t *f = x->f;
    if ((int)x->left == f->trickled) {
        return KG_PULL_WAIT;
    }
    x->left++;
    kg_buf_printf(out, "%zu\n", x->left);
    return x->left == 5 ? KG_PULL_END : KG_PULL_MORE;
}

static void on_trickle(void *user)
{
    edge_fixture_t *f = user;
    f->trickled++;
    if (f->trickle) {
        kg_http_wake(f->trickle);
    }
    if (f->trickled == 5) {
        kg_timer_stop(f->trickle_timer);
    }
}

static void reply_head(kg_http_t *http, const kg_http_head_t *head)
{
    kg_slice_t test = kg_http_head_get(head, "x-test");
    kg_slice_t agent = kg_http_head_get(head, "user-agent");
    char *text = NULL;
    int len = asprintf(&text, "%.*s|%.*s|%.*s|%.*s|%.*s|%.*s|%d%d%d", (int)head->method.len,
                       head->method.data, (int)head->path.len, head->path.data,
                       (int)head->query.len, head->query.data ? head->query.data : "",
                       (int)test.len, test.data ? test.data : "", (int)agent.len,
                       agent.data ? agent.data : "", (int)head->peer.len, head->peer.data,
                       head->loopback_peer, head->unix_peer, head->tls);
    kg_header_t headers[] = {{"X-One", "1"}, {"X-Evil", "a\r\nSet-Cookie: b"}};
    kg_http_reply(http, 200, headers, 2, "text/plain", kg_slice(text, (size_t)len));
    free(text);
}

static void
on_request(kg_http_t *http, const kg_http_head_t *head, size_t *ret_body_max, void *user)
{
    edge_fixture_t *f = user;
    atomic_fetch_add(&f->seen, 1);
    exchange_t *x = calloc(1, sizeof(*x));
    x->f = f;
    x->http = http;
    kg_http_set_user(http, x);
    snprintf(x->route, sizeof(x->route), "%.*s", (int)head->path.len, head->path.data);
    if (head->query.len) {
        x->left = strtoul(head->query.data, NULL, 10);
    }
    if (strncmp(x->route, "/head", 5) == 0) {
        reply_head(http, head);
    } else if (strcmp(x->route, "/refuse") == 0) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_UNAUTHORIZED, "A key is needed, \"really\".");
        kg_http_reply_error(http, &err, NULL, 0);
        must(kg_http_reply_error(http, &err, NULL, 0) == -EALREADY);
    } else if (strcmp(x->route, "/small") == 0) {
        *ret_body_max = 10;
    } else if (strncmp(x->route, "/sink", 5) == 0) {
        *ret_body_max = SIZE_MAX;
        f->sink = strcmp(x->route, "/sink-held") == 0 ? x : f->sink;
        kg_http_body_stream(http,
                            strcmp(x->route, "/sink-refuse") == 0 ? on_ready_refuse : on_ready, x);
    }
}

static void on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    edge_fixture_t *f = user;
    exchange_t *x = kg_http_user(http);
    atomic_fetch_add(&f->bodies, 1);
    if (strcmp(x->route, "/hold") == 0) {
        f->held = http;
    } else if (strcmp(x->route, "/stream") == 0) {
        kg_http_stream(http, 200, NULL, 0, "application/octet-stream", pull_bytes, x);
    } else if (strcmp(x->route, "/sized") == 0) {
        kg_http_announce(http, x->left);
        kg_http_stream(http, 200, NULL, 0, "application/octet-stream", pull_bytes, x);
    } else if (strncmp(x->route, "/pour", 5) == 0) {
        kg_http_announce(http, x->left);
        kg_http_pour(http, strcmp(x->route, "/pour") == 0 ? pour_bytes : pour_short);
        kg_http_stream(http, 200, NULL, 0, NULL, pull_bytes, x);
    } else if (strcmp(x->route, "/sized-short") == 0) {
        kg_http_announce(http, x->left + 1);
        kg_http_stream(http, 200, NULL, 0, NULL, pull_bytes, x);
    } else if (strcmp(x->route, "/sized-long") == 0) {
        kg_http_announce(http, x->left - 1);
        kg_http_stream(http, 200, NULL, 0, NULL, pull_bytes, x);
    } else if (strcmp(x->route, "/abort") == 0) {
        kg_http_stream(http, 200, NULL, 0, "text/plain", pull_then_abort, x);
    } else if (strcmp(x->route, "/trickle") == 0) {
        f->trickle = http;
        f->trickled = 0;
        kg_http_stream(http, 200, NULL, 0, "text/plain", pull_trickle, x);
        kg_timer_start(f->trickle_timer, 10 * KG_NS_PER_MS, 10 * KG_NS_PER_MS);
    } else if (strcmp(x->route, "/none") == 0) {
        kg_http_reply(http, 204, NULL, 0, NULL, (kg_slice_t){0});
    } else {
        kg_http_reply(http, 200, NULL, 0, "text/plain", body);
    }
}

static void on_http_close(kg_http_t *http, void *user)
{
    edge_fixture_t *f = user;
    atomic_fetch_add(&f->http_closed, 1);
    if (f->held == http) {
        f->held = NULL;
    }
    if (f->trickle == http) {
        f->trickle = NULL;
    }
    exchange_t *x = kg_http_user(http);
    if (f->sink == x) {
        f->sink = NULL;
    }
    kg_buf_fini(&x->piece);
    free(x);
}

typedef struct socket_user {
    edge_fixture_t *f;
    size_t frames;
    size_t size;
    size_t number;
    size_t in_message;
} socket_user_t;

static int
on_upgrade(const kg_http_head_t *head, kg_slice_t offered, kg_upgrade_reply_t *reply, void *user)
{
    if (kg_slice_eq_cstr(head->path, "/ws-no")) {
        reply->status = 403;
        kg_buf_append_cstr(&reply->body, "{\"error\":{\"code\":\"forbidden\"}}");
        return -1;
    }
    if (offered.len && memmem(offered.data, offered.len, "sandal.v1", 9)) {
        snprintf(reply->protocol, sizeof(reply->protocol), "sandal.v1");
    }
    socket_user_t *s = calloc(1, sizeof(*s));
    s->f = user;
    reply->ws_user = s;
    return 0;
}

static void on_upgrade_failed(void *ws_user, void *user)
{
    edge_fixture_t *f = user;
    atomic_fetch_add(&f->upgrade_failed, 1);
    free(ws_user);
}

static void on_ws_open(kg_ws_t *ws, void *user)
{
    edge_fixture_t *f = user;
    must(kg_ws_user(ws) != NULL);
    atomic_fetch_add(&f->ws_open, 1);
}

/* frames messages of size bytes, each beginning with its number. */
static kg_pull_t pull_frames(void *user, kg_buf_t *out, size_t max, bool *ret_message_end)
{
    socket_user_t *s = user;
    if (s->number == s->frames) {
        return KG_PULL_END;
    }
    size_t n = s->size - s->in_message;
    n = n < max ? n : max;
    if (kg_buf_reserve(out, n) < 0) {
        return KG_PULL_ABORT;
    }
    memset(out->data + out->len, '.', n);
    if (s->in_message == 0) {
        char number[24];
        int len = snprintf(number, sizeof(number), "%zu ", s->number);
        memcpy(out->data + out->len, number, (size_t)len < n ? (size_t)len : n);
    }
    out->len += n;
    s->in_message += n;
    atomic_fetch_add(&s->f->pulled, n);
    if (s->in_message == s->size) {
        s->in_message = 0;
        s->number++;
        *ret_message_end = true;
    }
    return KG_PULL_MORE;
}

/* A big message between small ones, all of it in one turn of the loop: nothing is written yet. */
static void pile(kg_ws_t *ws)
{
    size_t len = 1u << 20;
    char *big = malloc(len);
    must(big);
    memset(big, 'b', len);
    must(kg_ws_send(ws, kg_slice_cstr("s")) == 0);
    must(kg_ws_send(ws, kg_slice(big, len)) == 0);
    must(kg_ws_send(ws, kg_slice(big, len)) == -ENOBUFS);
    must(kg_ws_send(ws, kg_slice(big, 200u << 10)) == 0);
    must(kg_ws_send(ws, kg_slice(big, 100u << 10)) == -ENOBUFS);
    must(kg_ws_send(ws, kg_slice_cstr("s")) == 0);
    kg_ws_set_queue_max(ws, 2u << 20);
    must(kg_ws_send(ws, kg_slice(big, len)) == 0);
    must(kg_ws_send(ws, kg_slice(big, len)) == -ENOBUFS);
    kg_ws_close(ws, 1000, "piled");
    free(big);
}

#define LARGE ((size_t)32 << 20) /* more than the sockets of both ends hold */

/* A large message, of which the client does not read all, between small ones. */
static void stack(kg_ws_t *ws)
{
    char *large = malloc(LARGE);
    must(large);
    memset(large, 'l', LARGE);
    must(kg_ws_send(ws, kg_slice_cstr("first")) == 0);
    must(kg_ws_send_binary(ws, kg_slice(large, LARGE)) == 0);
    must(kg_ws_send(ws, kg_slice_cstr("last")) == 0);
    free(large);
}

enum {
    TAKEN_MAX = 120 /* what the reason of a close holds */
};

static void write_down(void *user, kg_slice_t message, bool binary)
{
    char *text = user;
    size_t len = strlen(text);
    snprintf(text + len, TAKEN_MAX - len, "%s %zu %c ", binary ? "binary" : "text", message.len,
             message.data[message.len - 1]);
}

/* What is held: freed with the last reference, so that a sanitizer sees who reads it then. */
typedef struct lent {
    edge_fixture_t *f;
    unsigned refs;
    char bytes[];
} lent_t;

static void lent_keep(void *owner)
{
    lent_t *lent = owner;
    lent->refs++;
    atomic_fetch_add(&lent->f->kept, 1);
}

static void lent_drop(void *owner)
{
    lent_t *lent = owner;
    atomic_fetch_sub(&lent->f->kept, 1);
    if (--lent->refs == 0) {
        free(lent);
    }
}

/* Between two short messages twice one of len bytes in pieces, of which the middle one is held. */
static void send_held(edge_fixture_t *f, kg_ws_t *ws, size_t len)
{
    lent_t *lent = calloc(1, sizeof(*lent) + len);
    must(lent);
    lent->f = f;
    memset(lent->bytes, 'h', len);
    const kg_hold_t hold = {.owner = lent, .keep = lent_keep, .drop = lent_drop};
    char before[] = "<<";
    const kg_slice_t pieces[] = {
        kg_slice(before, 2), kg_slice(lent->bytes, len), {0}, kg_slice_cstr(">")};
    lent_keep(lent);
    must(kg_ws_send(ws, kg_slice_cstr("s")) == 0);
    must(kg_ws_send_held(ws, true, pieces, KG_ARRAY_LEN(pieces), &hold) == 0);
    must(kg_ws_send_held(ws, false, pieces, KG_ARRAY_LEN(pieces), &hold) == 0);
    if (len > 256u << 10) { /* the largest is not counted, but a second one is */
        must(kg_ws_send_held(ws, false, pieces, KG_ARRAY_LEN(pieces), &hold) == -ENOBUFS);
    }
    must(kg_ws_send(ws, kg_slice_cstr("e")) == 0);
    before[0] = '!'; /* short pieces were copied */
    lent_drop(lent);
}

/* Of the large message a part goes; behind it are held ones and others. */
static void shelve(edge_fixture_t *f, kg_ws_t *ws, bool large_is_held)
{
    lent_t *lent = calloc(1, sizeof(*lent) + LARGE);
    must(lent);
    lent->f = f;
    memset(lent->bytes, 'l', LARGE);
    const kg_hold_t hold = {.owner = lent, .keep = lent_keep, .drop = lent_drop};
    const kg_slice_t large = kg_slice(lent->bytes, LARGE);
    const kg_slice_t large_pieces[] = {large, kg_slice_cstr("-")};
    const kg_slice_t pieces[] = {kg_slice_cstr("<"), kg_slice(lent->bytes, KG_EDGE_HELD_MIN),
                                 kg_slice_cstr(">")};
    lent_keep(lent);
    kg_ws_set_queue_max(ws, LARGE);
    must(kg_ws_send(ws, kg_slice_cstr("first")) == 0);
    must((large_is_held ? kg_ws_send_held(ws, true, large_pieces, 2, &hold)
                        : kg_ws_send_binary(ws, large)) == 0);
    must(kg_ws_send_held(ws, false, pieces, 3, &hold) == 0);
    must(kg_ws_send_held(ws, true, pieces, 2, &hold) == 0);
    must(kg_ws_send(ws, kg_slice_cstr("between")) == 0);
    must(kg_ws_send_binary(ws, kg_slice(lent->bytes, 100000)) == 0);
    must(kg_ws_send_held(ws, false, pieces, 3, &hold) == 0);
    must(kg_ws_send(ws, kg_slice_cstr("last")) == 0);
    lent_drop(lent);
}

static void on_ws_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user)
{
    size_t len = 0;
    socket_user_t *s = kg_ws_user(ws);
    char text[64];
    snprintf(text, sizeof(text), "%.*s", (int)(data.len < 60 ? data.len : 60), data.data);
    if (sscanf(text, "flood %zu %zu", &s->frames, &s->size) == 2) {
        s->number = 0;
        kg_ws_set_source(ws, pull_frames, s);
    } else if (strncmp(text, "close ", 6) == 0) {
        kg_ws_send(ws, kg_slice_cstr("before"));
        kg_ws_close(ws, (unsigned)atoi(text + 6), "because");
        must(kg_ws_send(ws, kg_slice_cstr("after")) == -EPIPE);
    } else if (strncmp(text, "queue", 5) == 0) {
        char big[1000];
        memset(big, 'q', sizeof(big));
        int rc = 0;
        while ((rc = kg_ws_send(ws, kg_slice(big, sizeof(big)))) == 0) {
        }
        must(rc == -ENOBUFS);
        kg_ws_close(ws, 1013, "slow");
    } else if (strncmp(text, "pile", 4) == 0) {
        pile(ws);
    } else if (strncmp(text, "stack", 5) == 0) {
        stack(ws);
    } else if (strncmp(text, "shelve ", 7) == 0) {
        shelve(user, ws, strcmp(text + 7, "held") == 0);
    } else if (strncmp(text, "take", 4) == 0) {
        char taken[TAKEN_MAX] = "";
        kg_ws_take_unsent(ws, write_down, taken);
        must(kg_ws_queued(ws) == 0);
        kg_ws_close(ws, 1013, taken);
    } else if (sscanf(text, "held %zu", &len) == 1) {
        kg_ws_set_queue_max(ws, len + 1000);
        send_held(user, ws, len);
    } else if (strncmp(text, "pause", 5) == 0) {
        kg_ws_pause(ws, true);
    } else if (strncmp(text, "bytes", 5) == 0) {
        kg_ws_take_bytes(ws);
    } else if (binary) {
        kg_ws_send_binary(ws, data);
    } else {
        kg_ws_send(ws, data);
    }
}

static void on_ws_close(kg_ws_t *ws, void *user)
{
    edge_fixture_t *f = user;
    atomic_fetch_add(&f->ws_closed, 1);
    free(kg_ws_user(ws));
}

/* --- Loop thread
 * -----------------------------------------------------------------------------------------------------
 */

static void on_done(void *user)
{
    edge_fixture_t *f = user;
    kg_fdwatch_close(&f->watch);
    kg_timer_close(&f->trickle_timer);
    kg_loop_stop(f->loop);
}

static void on_order(void *user, bool readable, bool writable)
{
    (void)readable;
    (void)writable;
    edge_fixture_t *f = user;
    char what = 0;
    if (read(f->order[0], &what, 1) != 1) {
        return;
    }
    if (what == 'd') {
        kg_edge_drain(f->edge);
    } else if (what == 'a' && f->held) {
        kg_http_reply(f->held, 200, NULL, 0, NULL, kg_slice_cstr("{}"));
    } else if (what == 't' && f->sink) {
        exchange_t *x = f->sink;
        f->sink = NULL;
        drink(x);
    } else if (what == 'c') {
        atomic_store(&f->connections, kg_edge_connections(f->edge));
    } else if (what == 'q') {
        kg_edge_close(&f->edge, f->grace_ms, on_done, f);
    }
}

static void count_turn(void *user)
{
    edge_fixture_t *f = user;
    atomic_fetch_add(&f->turns, 1);
}

static void *run_loop(void *user)
{
    edge_fixture_t *f = user;
    kg_loop_run(f->loop);
    return NULL;
}

edge_fixture_t *edge_prepare(void)
{
    edge_fixture_t *f = calloc(1, sizeof(*f));
    f->listeners[0].address = "127.0.0.1:0";
    f->opts = (kg_edge_opts_t){
        .listeners = f->listeners,
        .listener_count = 1,
        .header_timeout_ms = PATIENCE_MS,
        .body_timeout_ms = PATIENCE_MS,
        .idle_timeout_ms = 5000,
        .body_max = 32u << 20,
        .ws_message_max = 1u << 20,
        .ws_queue_max = 256u << 10,
    };
    f->grace_ms = 500;
    return f;
}

void edge_start(edge_fixture_t *f)
{
    kg_edge_handler_t handler = {
        .on_request = on_request,
        .on_body = on_body,
        .on_http_close = on_http_close,
        .on_upgrade = on_upgrade,
        .on_upgrade_failed = on_upgrade_failed,
        .on_ws_open = on_ws_open,
        .on_ws_message = on_ws_message,
        .on_ws_close = on_ws_close,
        .user = f,
    };
    kg_err_t err = {0};
    assert_int_equal(kg_loop_create(&f->loop), 0);
    int rc = kg_edge_create(f->loop, &f->opts, &handler, &f->edge, &err);
    if (rc < 0) {
        fail_msg("%s", err.message);
    }
    for (size_t i = 0; i < f->opts.listener_count; i++) {
        f->ports[i] = kg_edge_port(f->edge, i);
    }
    assert_int_equal(pipe2(f->order, O_CLOEXEC), 0);
    assert_int_equal(kg_timer_create(f->loop, on_trickle, f, &f->trickle_timer), 0);
    assert_int_equal(kg_fdwatch_create(f->loop, f->order[0], on_order, f, &f->watch), 0);
    assert_int_equal(kg_fdwatch_set(f->watch, true, false), 0);
    f->hook = (kg_hook_t){.before_sleep = count_turn, .user = f};
    kg_loop_hook_add(f->loop, &f->hook);
    assert_int_equal(pthread_create(&f->thread, NULL, run_loop, f), 0);
}

void edge_order(edge_fixture_t *f, char what)
{
    assert_int_equal(write(f->order[1], &what, 1), 1);
}

void edge_finish(edge_fixture_t *f)
{
    edge_order(f, 'q');
    pthread_join(f->thread, NULL);
    kg_loop_hook_remove(f->loop, &f->hook);
    kg_loop_destroy(&f->loop); /* asserts that nothing leaked */
    assert_int_equal(f->seen, f->http_closed);
    assert_int_equal(f->ws_open, f->ws_closed);
    close(f->order[0]);
    close(f->order[1]);
    free(f);
}
