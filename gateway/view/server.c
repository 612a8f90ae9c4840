/* gateway/view: the server as a whole: configuration, listeners, one timer, and the way down. */
#include "gateway/view/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/view/view_priv.h"

enum {
    BODY_MAX = 8 * 1024 * 1024,
    PENDING_MAX = 8 * 1024 * 1024,
    RUNS_PER_SOCKET = 64,
    CALLS_PER_SOCKET = 256,
    PING_MS = 15000,
};

/* --- Heads ---------------------------------------------------------------------------------- */

static kg_guard_head_t guard_head(const kg_http_head_t *head)
{
    return (kg_guard_head_t){
        .host = kg_http_head_get(head, "host"),
        .origin = kg_http_head_get(head, "origin"),
        .tls = head->tls,
        .unix_peer = head->unix_peer,
    };
}

int kg_server_guard(const kg_server_t *server, const kg_http_head_t *head, kg_err_t *err)
{
    kg_guard_head_t h = guard_head(head);
    return kg_guard_check(&server->guard, &h, err);
}

int kg_server_guard_socket(const kg_server_t *server, const kg_http_head_t *head, kg_err_t *err)
{
    kg_guard_head_t h = guard_head(head);
    int rc = kg_guard_check(&server->guard, &h, err);
    return rc < 0 ? rc : kg_guard_check_origin(&server->guard, &h, err);
}

int kg_server_check_key(kg_server_t *server, kg_slice_t key, kg_principal_t *ret_who, kg_err_t *err)
{
    if (server->guard.no_auth) {
        kg_auth_local(ret_who);
        return 0;
    }
    return kg_auth_check(kg_api_auth(server->api), key, ret_who, err);
}

int kg_server_authenticate(kg_server_t *server,
                           const kg_http_head_t *head,
                           kg_slice_t protocols,
                           kg_principal_t *ret_who,
                           kg_err_t *err)
{
    kg_slice_t key = kg_guard_key(kg_http_head_get(head, "authorization"),
                                  kg_http_head_get(head, "x-api-key"), protocols);
    return kg_server_check_key(server, key, ret_who, err);
}

/* --- Start ---------------------------------------------------------------------------------- */

static bool listens_here(const char *address)
{
    return kg_str_starts(address, "unix:") || kg_host_is_loopback(kg_slice_cstr(address));
}

static int check_config(const kg_server_config_t *config, kg_err_t *err)
{
    for (size_t i = 0; i < config->listen_count && config->no_auth; i++) {
        if (!listens_here(config->listen[i])) {
            return kg_err_set(err, KG_ERR_CONFIG,
                              "Without keys only loopback and unix sockets are served, not %s.",
                              config->listen[i]);
        }
    }
    return kg_guard_origins_check(config->cors_origins, config->cors_origin_count, config->no_auth,
                                  err);
}

/* One block: pointers, then the strings that they lead to. NULL when there is no memory. */
static const char **copy_list(const char *const *list, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(list[i]) + 1;
    }
    const char **copy = calloc(1, (count + 1) * sizeof *copy + bytes);
    if (!copy) {
        return NULL;
    }
    char *at = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(list[i]) + 1;
        memcpy(at, list[i], len);
        copy[i] = at;
        at += len;
    }
    return copy;
}

static int copy_guard(kg_server_t *server, const kg_server_config_t *config)
{
    server->origins = copy_list(config->cors_origins, config->cors_origin_count);
    server->hosts = copy_list(config->allowed_hosts, config->allowed_host_count);
    if (!server->origins || !server->hosts) {
        return -ENOMEM;
    }
    server->guard = (kg_guard_t){
        .no_auth = config->no_auth,
        .origins = server->origins,
        .origin_count = config->cors_origin_count,
        .hosts = server->hosts,
        .host_count = config->allowed_host_count,
    };
    return 0;
}

static void server_free(kg_server_t *server)
{
    kg_timer_close(&server->timer);
    kg_timer_close(&server->key_timer);
    if (server->workers) {
        kg_workq_close(&server->workers);
    }
    kg_api_destroy(&server->api);
    free((void *)server->origins);
    free((void *)server->hosts);
    free(server);
}

static void gauges(void *user, kg_api_gauges_t *ret_gauges)
{
    const kg_server_t *server = user;
    *ret_gauges = (kg_api_gauges_t){
        .connections = server->edge ? kg_edge_connections(server->edge) : 0,
        .websockets = server->websockets,
        .streams = server->streams,
        .sent_bytes = server->sent_bytes,
        .received_bytes = server->received_bytes,
    };
}

static void on_timer(void *user)
{
    kg_http_keep_alive(user, kg_now_ns());
    kg_key_watches_look(user);
}

static void on_key_timer(void *user)
{
    kg_key_watches_look(user);
}

/* The socket that asked for it may be one that ends: not inside of its own call, but before the
 * next message of any is read. */
static void on_keys_changed(void *user)
{
    kg_server_t *server = user;
    kg_timer_start(server->key_timer, 0, 0);
}

static int listen_all(kg_server_t *server, const kg_server_config_t *config, kg_err_t *err)
{
    kg_edge_listener_t *listeners =
        calloc(config->listen_count ? config->listen_count : 1, sizeof *listeners);
    if (!listeners) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the server.");
    }
    for (size_t i = 0; i < config->listen_count; i++) {
        bool tls = config->tls_cert && !kg_str_starts(config->listen[i], "unix:");
        listeners[i] = (kg_edge_listener_t){
            .address = config->listen[i],
            .tls_cert = tls ? config->tls_cert : NULL,
            .tls_key = tls ? config->tls_key : NULL,
            .socket = config->sockets ? &config->sockets[i] : NULL,
        };
    }
    kg_edge_opts_t opts = {
        .listeners = listeners,
        .listener_count = config->listen_count,
        .max_connections = config->connections_max,
        .body_max = server->body_max,
        .ws_message_max = server->frame_max,
        .ws_queue_max = server->pending_max,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .stall_timeout_ms = config->stall_timeout_ms,
        .ping_ms = config->ping_ms,
    };
    kg_edge_handler_t handler;
    kg_view_handler(server, &handler);
    int rc = kg_edge_create(server->loop, &opts, &handler, &server->edge, err);
    free(listeners);
    return rc;
}

int kg_server_start(kg_core_t *core,
                    const kg_server_config_t *config,
                    kg_server_t **ret_server,
                    kg_err_t *err)
{
    int rc = check_config(config, err);
    if (rc < 0) {
        return rc;
    }
    kg_server_t *server = calloc(1, sizeof *server);
    if (!server) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the server.");
    }
    unsigned ping_ms = config->ping_ms ? config->ping_ms : PING_MS;
    server->core = core;
    server->loop = kg_core_loop(core);
    server->body_max = config->body_max ? config->body_max : BODY_MAX;
    server->frame_max = config->frame_max ? config->frame_max : BODY_MAX;
    server->pending_max = config->pending_max ? config->pending_max : PENDING_MAX;
    server->runs_per_socket = config->runs_per_socket ? config->runs_per_socket : RUNS_PER_SOCKET;
    server->calls_per_socket =
        config->calls_per_socket ? config->calls_per_socket : CALLS_PER_SOCKET;
    /* Three looks in each interval keep the silence below it. */
    server->silent_ns = ping_ms * KG_NS_PER_MS * 2 / 3;
    rc = copy_guard(server, config);
    rc = rc < 0 ? rc : kg_api_create(core, kg_clock_real(), gauges, server, &server->api);
    rc = rc < 0 ? rc : kg_workq_create(server->loop, &server->workers);
    if (rc == 0) {
        kg_api_set_tools(server->api, config->tools, server->workers);
    }
    rc = rc < 0 ? rc : kg_timer_create(server->loop, on_timer, server, &server->timer);
    rc = rc < 0 ? rc : kg_timer_create(server->loop, on_key_timer, server, &server->key_timer);
    if (rc < 0) {
        kg_err_set(err, kg_err_from_errno(rc), "The server cannot be set up.");
    } else {
        rc = listen_all(server, config, err);
    }
    if (rc < 0) {
        server_free(server);
        return rc;
    }
    kg_auth_on_forget(kg_api_auth(server->api), on_keys_changed, server);
    kg_timer_start(server->timer, ping_ms * KG_NS_PER_MS / 3, ping_ms * KG_NS_PER_MS / 3);
    *ret_server = server;
    return 0;
}

unsigned kg_server_port(const kg_server_t *server, size_t index)
{
    return kg_edge_port(server->edge, index);
}

int kg_server_adopt_take(kg_server_t *server, int fd)
{
    return kg_edge_adopt_take(server->edge, fd, 0);
}

/* --- End ------------------------------------------------------------------------------------ */

void kg_server_drain(kg_server_t *server)
{
    server->draining = true;
}

static void edge_closed(void *user)
{
    kg_server_t *server = user;
    kg_fn *done = server->done;
    void *done_user = server->user;
    server_free(server);
    if (done) {
        done(done_user);
    }
}

void kg_server_close(kg_server_t **server, unsigned grace_ms, kg_fn *done, void *user)
{
    kg_server_t *s = KG_TAKE(*server);
    s->done = done;
    s->user = user;
    kg_edge_close(&s->edge, grace_ms, edge_closed, s);
}
