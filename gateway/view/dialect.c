/* gateway/view: who of the dialects a request belongs to. Its head decides; from there
 * on the exchange or socket itself says whose it is. */
#include "gateway/view/dialect.h"

#include "gateway/view/view_priv.h"

static const kg_edge_handler_t own = {
    .on_request = kg_view_http_on_request,
    .on_body = kg_view_http_on_body,
    .on_http_close = kg_view_http_on_close,
    .on_upgrade = kg_view_ws_on_upgrade,
    .on_upgrade_failed = kg_view_ws_on_upgrade_failed,
    .on_ws_open = kg_view_ws_on_open,
    .on_ws_message = kg_view_ws_on_message,
    .on_ws_close = kg_view_ws_on_close,
};

static const kg_edge_handler_t *by_head(const kg_server_t *server, const kg_http_head_t *head)
{
    const kg_dialect_t *d = server->dialect;
    return d && d->claims(head) ? &d->handler : &own;
}

static void *user_of(const kg_edge_handler_t *handler, kg_server_t *server)
{
    return handler == &own ? server : handler->user;
}

static const kg_edge_handler_t *by_front(const void *front)
{
    return ((const kg_front_t *)front)->handler;
}

static void
on_request(kg_http_t *http, const kg_http_head_t *head, size_t *ret_body_max, void *user)
{
    const kg_edge_handler_t *h = by_head(user, head);
    h->on_request(http, head, ret_body_max, user_of(h, user));
}

static void on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    if (kg_http_user(http)) {
        const kg_edge_handler_t *h = by_front(kg_http_user(http));
        h->on_body(http, body, user_of(h, user));
    }
}

static void on_http_close(kg_http_t *http, void *user)
{
    if (kg_http_user(http)) {
        const kg_edge_handler_t *h = by_front(kg_http_user(http));
        h->on_http_close(http, user_of(h, user));
    }
}

static int
on_upgrade(const kg_http_head_t *head, kg_slice_t offered, kg_upgrade_reply_t *reply, void *user)
{
    const kg_edge_handler_t *h = by_head(user, head);
    return h->on_upgrade(head, offered, reply, user_of(h, user));
}

static void on_upgrade_failed(void *ws_user, void *user)
{
    if (ws_user) {
        const kg_edge_handler_t *h = by_front(ws_user);
        h->on_upgrade_failed(ws_user, user_of(h, user));
    }
}

static void on_ws_open(kg_ws_t *ws, void *user)
{
    const kg_edge_handler_t *h = by_front(kg_ws_user(ws));
    h->on_ws_open(ws, user_of(h, user));
}

static void on_ws_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user)
{
    if (kg_ws_user(ws)) {
        const kg_edge_handler_t *h = by_front(kg_ws_user(ws));
        h->on_ws_message(ws, data, binary, user_of(h, user));
    }
}

static void on_ws_close(kg_ws_t *ws, void *user)
{
    if (kg_ws_user(ws)) {
        const kg_edge_handler_t *h = by_front(kg_ws_user(ws));
        h->on_ws_close(ws, user_of(h, user));
    }
}

void kg_view_handler(kg_server_t *server, kg_edge_handler_t *ret)
{
    *ret = (kg_edge_handler_t){
        .on_request = on_request,
        .on_body = on_body,
        .on_http_close = on_http_close,
        .on_upgrade = on_upgrade,
        .on_upgrade_failed = on_upgrade_failed,
        .on_ws_open = on_ws_open,
        .on_ws_message = on_ws_message,
        .on_ws_close = on_ws_close,
        .user = server,
    };
}

const kg_edge_handler_t *kg_view_own(void)
{
    return &own;
}

/* --- What dialects need of the server ------------------------------------------------------- */

void kg_server_add_dialect(kg_server_t *server, const kg_dialect_t *dialect)
{
    server->dialect = dialect;
}

kg_core_t *kg_server_core(const kg_server_t *server)
{
    return server->core;
}

kg_api_t *kg_server_api(const kg_server_t *server)
{
    return server->api;
}

kg_workq_t *kg_server_workers(const kg_server_t *server)
{
    return server->workers;
}

const kg_guard_t *kg_server_rules(const kg_server_t *server)
{
    return &server->guard;
}

size_t kg_server_body_max(const kg_server_t *server)
{
    return server->body_max;
}

bool kg_server_draining(const kg_server_t *server)
{
    return server->draining;
}

void kg_server_count(kg_server_t *server, uint64_t received, uint64_t sent)
{
    server->received_bytes += received;
    server->sent_bytes += sent;
}
