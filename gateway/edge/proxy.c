/* The proxy as a whole: its listener, its one timer, its end. */
#include "gateway/edge/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/edge/loopback.h"
#include "gateway/edge/proxy_priv.h"

#define ACCEPTS_A_TURN 64

static void defaults(kg_proxy_opts_t *o)
{
    o->connections_max = o->connections_max ? o->connections_max : 1024;
    o->header_timeout_ms = o->header_timeout_ms ? o->header_timeout_ms : 10000;
    o->idle_timeout_ms = o->idle_timeout_ms ? o->idle_timeout_ms : 75000;
    o->stall_timeout_ms = o->stall_timeout_ms ? o->stall_timeout_ms : 300000;
    o->tunnel_timeout_ms = o->tunnel_timeout_ms ? o->tunnel_timeout_ms : 3600000;
    o->start_timeout_ms = o->start_timeout_ms ? o->start_timeout_ms : 3000;
    o->connect_timeout_ms = o->connect_timeout_ms ? o->connect_timeout_ms : 30000;
}

static int parse(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    char host[64];
    uint64_t port;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (!colon || len == 0 || len >= sizeof(host) || kg_parse_u64(colon + 1, 0, 65535, &port) < 0) {
        return -EINVAL;
    }
    bool bracket = text[0] == '[' && text[len - 1] == ']' && len > 2;
    if (bracket) {
        text++;
        len -= 2;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    v4.sin_port = htons((uint16_t)port);
    v6.sin6_port = htons((uint16_t)port);
    if (strcmp(host, "localhost") == 0) {
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    }
    if (strcmp(host, "*") == 0 || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(ret, &v6, sizeof(v6)); /* "*": both families */
        *ret_len = sizeof(v6);
        return 0;
    }
    if (inet_pton(AF_INET, host, &v4.sin_addr) != 1) {
        return -EINVAL;
    }
    memcpy(ret, &v4, sizeof(v4));
    *ret_len = sizeof(v4);
    return 0;
}

static int bind_listener(kg_proxy_t *proxy, kg_err_t *err)
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t len = 0;
    int one = 1;
    int off = 0;
    if (parse(proxy->listen, &at, &len) < 0) {
        return kg_err_set(
            err, KG_ERR_CONFIG,
            "The proxy cannot listen on \"%s\": expected ADDRESS:PORT or [IPV6]:PORT.",
            proxy->listen);
    }
    proxy->listen_fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (proxy->listen_fd >= 0) {
        kg_loopback_unpaced(proxy->listen_fd, (struct sockaddr *)&at);
    }
    if (proxy->listen_fd < 0 ||
        setsockopt(proxy->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        (at.ss_family == AF_INET6 && proxy->listen[0] == '*' &&
         setsockopt(proxy->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
        bind(proxy->listen_fd, (struct sockaddr *)&at, len) < 0 ||
        listen(proxy->listen_fd, 512) < 0 ||
        getsockname(proxy->listen_fd, (struct sockaddr *)&at, &len) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "The proxy cannot listen on %s: %s", proxy->listen,
                          strerrordesc_np(errno));
    }
    in_port_t port = at.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&at)->sin_port
                                             : ((struct sockaddr_in6 *)(void *)&at)->sin6_port;
    proxy->port = ntohs(port);
    return 0;
}

static void on_listener(void *user, bool readable, bool writable)
{
    kg_proxy_t *proxy = user;
    (void)readable;
    (void)writable;
    for (unsigned i = 0; i < ACCEPTS_A_TURN; i++) {
        if (proxy->conn_count >= proxy->opts.connections_max) {
            (void)kg_fdwatch_set(proxy->listener, false, false); /* until one goes */
            return;
        }
        int fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return; /* EMFILE too: another turn comes */
        }
        (void)proxy_conn_start(proxy, fd);
    }
}

static void on_timer(void *user)
{
    kg_proxy_t *proxy = user;
    uint64_t now_ns = kg_now_ns();
    proxy_conn_t *next;
    for (proxy_conn_t *conn = proxy->conns; conn; conn = next) {
        next = conn->next;
        proxy_conn_tick(conn, now_ns);
    }
    if (proxy->listener && !proxy->closing && proxy->conn_count < proxy->opts.connections_max) {
        (void)kg_fdwatch_set(proxy->listener, true, false);
    }
    if (!proxy->conns) {
        kg_timer_stop(proxy->timer);
    }
}

static void proxy_free(kg_proxy_t *proxy)
{
    kg_fdwatch_close(&proxy->listener);
    kg_closep(&proxy->listen_fd);
    kg_timer_close(&proxy->timer);
    kg_buf_fini(&proxy->to_client);
    kg_buf_fini(&proxy->to_up);
    proxy_bulk_close(proxy);
    free(proxy->listen);
    free(proxy->domain);
    free(proxy);
}

int kg_proxy_create(kg_loop_t *loop,
                    const kg_proxy_opts_t *opts,
                    const kg_proxy_handler_t *handler,
                    kg_proxy_t **ret_proxy,
                    kg_err_t *err)
{
    kg_proxy_t *proxy = calloc(1, sizeof(*proxy));
    if (!proxy) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the proxy.");
    }
    proxy->loop = loop;
    proxy->opts = *opts;
    proxy->handler = *handler;
    proxy->listen_fd = -1;
    proxy_bulk_open(proxy);
    defaults(&proxy->opts);
    proxy->listen = strdup(opts->listen ? opts->listen : "127.0.0.1:8718");
    proxy->domain = opts->domain ? strdup(opts->domain) : NULL;
    int r = !proxy->listen || (opts->domain && !proxy->domain) ||
                    kg_timer_create(loop, on_timer, proxy, &proxy->timer) < 0
                ? kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the proxy.")
                : bind_listener(proxy, err);
    if (r == 0 &&
        (kg_fdwatch_create(loop, proxy->listen_fd, on_listener, proxy, &proxy->listener) < 0 ||
         kg_fdwatch_set(proxy->listener, true, false) < 0)) {
        r = kg_err_set(err, KG_ERR_INTERNAL, "The proxy's listener cannot be watched.");
    }
    if (r < 0) {
        proxy_free(proxy);
        return r;
    }
    *ret_proxy = proxy;
    return 0;
}

unsigned kg_proxy_port(const kg_proxy_t *proxy)
{
    return proxy->port;
}

size_t kg_proxy_connections(const kg_proxy_t *proxy)
{
    return proxy->conn_count;
}

int kg_proxy_adopt_take(kg_proxy_t *proxy, int fd)
{
    return proxy_conn_start(proxy, fd);
}

static void free_later(void *user)
{
    kg_proxy_t *proxy = user;
    kg_fn *done = proxy->done;
    void *done_user = proxy->done_user;
    if (proxy->conn_count > 0) {
        (void)kg_loop_later(proxy->loop, free_later, proxy);
        return;
    }
    proxy_free(proxy);
    if (done) {
        done(done_user);
    }
}

void kg_proxy_close(kg_proxy_t **ret_proxy, kg_fn *done, void *user)
{
    kg_proxy_t *proxy = KG_TAKE(*ret_proxy);
    proxy_conn_t *next;
    proxy->closing = true;
    proxy->done = done;
    proxy->done_user = user;
    kg_fdwatch_close(&proxy->listener);
    kg_closep(&proxy->listen_fd);
    for (proxy_conn_t *conn = proxy->conns; conn; conn = next) {
        next = conn->next;
        proxy_conn_end(conn);
    }
    (void)kg_loop_later(proxy->loop, free_later, proxy);
}
