/* The proxy with both ends in the fuzzer's hand: the first byte says how often the bytes are cut,
 * then the client's bytes up to a line of "====", then what the server in the sandbox says. Nothing
 * of a request that was refused may have reached the server, and nothing of ours may have. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/edge/proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct world {
    kg_loop_t *loop;
    kg_proxy_t *proxy;
    int client, server; /* our ends */
    kg_proxy_connected_fn *done;
    void *user;
    bool connected, closed;
} world_t;

static kg_proxy_verdict_t look(void *user, const char *sandbox, uint16_t port, kg_slice_t token)
{
    (void)user;
    (void)port;
    if (strcmp(sandbox, "sbx-locked") == 0) {
        return kg_slice_eq_cstr(token, "secret") ? KG_PROXY_OPEN : KG_PROXY_LOCKED;
    }
    return strcmp(sandbox, "sbx-a") == 0 ? KG_PROXY_OPEN : KG_PROXY_NOT_FOUND;
}

static bool ready(void *user, const char *sandbox, uint16_t port)
{
    (void)user;
    (void)sandbox;
    (void)port;
    return true;
}

static void bring(void *user)
{
    world_t *w = user;
    kg_proxy_connected_fn *done = w->done;
    kg_err_t err = {0};
    int pair[2];
    w->done = NULL;
    if (!done) {
        return;
    }
    if (w->connected ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "one is enough");
        done(w->user, -1, &err);
        return;
    }
    w->connected = true;
    w->server = pair[0];
    done(w->user, pair[1], NULL);
}

static int dial(void *user,
                const char *sandbox,
                uint16_t port,
                kg_proxy_connected_fn *done,
                void *done_user,
                kg_err_t *err)
{
    world_t *w = user;
    (void)sandbox;
    (void)port;
    (void)err;
    w->done = done;
    w->user = done_user;
    return kg_loop_later(w->loop, bring, w);
}

static void forget(void *user, void *done_user)
{
    world_t *w = user;
    (void)done_user;
    w->done = NULL;
}

static void touch(void *user, const char *sandbox)
{
    (void)user;
    (void)sandbox;
}

static void stop(void *user)
{
    kg_loop_stop(user);
}

/* A few turns of the loop. */
static void turn(world_t *w)
{
    kg_timer_t *timer = NULL;
    if (kg_timer_create(w->loop, stop, w->loop, &timer) == 0) {
        kg_timer_start(timer, 0, 0);
        (void)kg_loop_run(w->loop);
        kg_timer_close(&timer);
    }
}

static void drain(int fd, bool check)
{
    char got[65537];
    ssize_t n;
    while (fd >= 0 && (n = recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT)) > 0) {
        got[n] = '\0';
        if (check && memmem(got, (size_t)n, "sandal_token=secret", 19)) {
            abort();
        }
    }
}

static void say(world_t *w, int *fd, const uint8_t *data, size_t size, size_t step)
{
    for (size_t at = 0; at < size && *fd >= 0; at += step) {
        size_t len = step < size - at ? step : size - at;
        if (send(*fd, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            break;
        }
        turn(w);
        drain(w->server, false);
        drain(w->client, false);
    }
}

static void closed(void *user)
{
    world_t *w = user;
    w->closed = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    kg_err_t err = {0};
    world_t w = {.client = -1, .server = -1};
    kg_proxy_handler_t handler = {look, ready, dial, forget, touch, &w};
    kg_proxy_opts_t opts = {.listen = "127.0.0.1:0", .domain = "box.example"};
    if (size < 2 || size > 100000 || kg_loop_create(&w.loop) < 0) {
        return 0;
    }
    if (kg_proxy_create(w.loop, &opts, &handler, &w.proxy, &err) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        abort();
    }
    w.client = pair[0];
    (void)kg_proxy_adopt_take(w.proxy, pair[1]);
    size_t step = size / (1U + data[0] % 8) + 1;
    const uint8_t *cut = memmem(data + 1, size - 1, "====\n", 5);
    size_t first = cut ? (size_t)(cut - data) - 1 : size - 1;
    say(&w, &w.client, data + 1, first, step);
    turn(&w);
    turn(&w);
    if (cut) {
        say(&w, &w.server, cut + 5, size - first - 6, step);
    }
    kg_closep(&w.server);
    turn(&w);
    turn(&w);
    drain(w.client, false);
    kg_closep(&w.client);
    turn(&w);
    kg_proxy_close(&w.proxy, closed, &w);
    for (unsigned i = 0; i < 100 && !w.closed; i++) {
        turn(&w);
    }
    if (!w.closed) {
        abort();
    }
    kg_loop_destroy(&w.loop);
    return 0;
}
