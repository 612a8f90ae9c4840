/* The server as a whole: options, creation, the slow scan of deadlines, draining, and the end in
 * two steps that lws 4.1.6 needs on a foreign loop. */
#include "gateway/edge/edge.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "gateway/edge/edge_priv.h"

#define FAREWELL_TURNS 16
#define FORCED_TURNS_MAX 4096

static size_t size_or(size_t value, size_t fallback)
{
    return value ? value : fallback;
}

static unsigned ms_or(unsigned value, unsigned fallback)
{
    return value ? value : fallback;
}

static void set_options(kg_edge_opts_t *ret, const kg_edge_opts_t *opts)
{
    *ret = (kg_edge_opts_t){
        .max_connections = size_or(opts->max_connections, 8192),
        .max_header_bytes = size_or(opts->max_header_bytes, 16384),
        .body_max = size_or(opts->body_max, (size_t)64 << 20),
        .ws_message_max = size_or(opts->ws_message_max, (size_t)64 << 20),
        .ws_queue_max = size_or(opts->ws_queue_max, (size_t)8 << 20),
        .header_timeout_ms = ms_or(opts->header_timeout_ms, 10000),
        .body_timeout_ms = ms_or(opts->body_timeout_ms, 30000),
        .idle_timeout_ms = ms_or(opts->idle_timeout_ms, 75000),
        .stall_timeout_ms = ms_or(opts->stall_timeout_ms, 300000),
        .ping_ms = ms_or(opts->ping_ms, 15000),
        .pong_ms = ms_or(opts->pong_ms, 30000),
    };
    if (ret->max_header_bytes > 60000) {
        ret->max_header_bytes = 60000;
    }
}

/* A quarter of the shortest deadline, so that none is late by more. */
static uint64_t scan_interval_ns(const kg_edge_opts_t *opts)
{
    const unsigned all[] = {opts->header_timeout_ms, opts->body_timeout_ms, opts->idle_timeout_ms,
                            opts->stall_timeout_ms,  opts->ping_ms,         opts->pong_ms};
    unsigned least = 4000;
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        least = all[i] < least ? all[i] : least;
    }
    return (least / 4 > 10 ? least / 4 : 10) * KG_NS_PER_MS;
}

static void on_scan(void *user)
{
    kg_edge_t *edge = user;
    uint64_t now_ns = kg_now_ns();
    kg_conn_t *conn;
    kg_conn_t *next;
    DL_FOREACH_SAFE (edge->conns, conn, next) {
        kg_conn_scan(conn, now_ns);
    }
    for (size_t i = 0; i < edge->listener_count; i++) {
        kg_listener_wake(&edge->listeners[i]);
    }
}

static void on_nudge(void *user)
{
    kg_edge_t *edge = user;
    lws_cancel_service(edge->lws);
}

/* lws' libuv plugin stops its idle handle with work pending (fixed in 4.3.3): ask for another pass
 * before each sleep. Where passes bring nothing for long (a parked exchange with bytes in TLS'
 * buffer), ask seldom. */
static void before_sleep(void *user)
{
    kg_edge_t *edge = user;
    kg_target_read_ahead(edge); /* which may give WebSockets something to send */
    edge->asleep = true;        /* what wakes a WebSocket from now on is for lws to see */
    kg_ws_flush_all(edge);
    edge->asleep = true; /* of connections that ended meanwhile lws has told */
    if (lws_service_adjust_timeout(edge->lws, 1, 0) != 0) {
        edge->forced_turns = 0;
        return;
    }
    if (++edge->forced_turns < FORCED_TURNS_MAX) {
        lws_cancel_service(edge->lws);
    } else {
        kg_timer_start(edge->nudge, 5 * KG_NS_PER_MS, 0);
    }
}

/* --- End
 * -------------------------------------------------------------------------------------------------------------
 */

static void free_edge(kg_edge_t *edge)
{
    kg_timer_close(&edge->scan);
    kg_timer_close(&edge->nudge);
    kg_timer_close(&edge->grace);
    for (size_t i = 0; i < edge->listener_count; i++) {
        kg_listener_close(&edge->listeners[i]);
    }
    free(edge->listeners);
    free(edge);
}

/* lws' handles close over the next turns of the loop; then its context goes. */
static void farewell(void *user)
{
    kg_edge_t *edge = user;
    if (++edge->farewell_turns < FAREWELL_TURNS && kg_loop_later(edge->loop, farewell, edge) == 0) {
        return;
    }
    if (edge->lws) { /* .pcontext: still there after the first call */
        lws_context_destroy(edge->lws);
    }
    kg_conn_t *conn;
    kg_conn_t *next;
    DL_FOREACH_SAFE (edge->conns, conn, next) {
        kg_conn_free(conn);
    }
    kg_fn *done = edge->done;
    void *done_user = edge->done_user;
    free_edge(edge);
    if (done) {
        done(done_user);
    }
}

static void destroy_context(void *user)
{
    kg_edge_t *edge = user;
    kg_conn_t *conn;
    DL_FOREACH (edge->conns, conn) {
        kg_conn_over(conn);
    }
    kg_loop_hook_remove(edge->loop, &edge->hook);
    kg_timer_stop(edge->scan);
    kg_timer_stop(edge->nudge);
    lws_context_destroy(edge->lws);
    farewell(edge);
}

static void on_grace(void *user)
{
    kg_edge_t *edge = user;
    kg_timer_close(&edge->grace);
    destroy_context(edge);
}

static void check_empty(kg_edge_t *edge)
{
    if (edge->closing && edge->conn_count == 0 && edge->grace) {
        kg_timer_start(edge->grace, 0, 0);
    }
}

static void after_wake(void *user)
{
    kg_edge_t *edge = user;
    edge->asleep = false;
    check_empty(edge);
}

void kg_edge_drain(kg_edge_t *edge)
{
    edge->draining = true;
    for (size_t i = 0; i < edge->listener_count; i++) {
        kg_listener_close(&edge->listeners[i]);
    }
    kg_conn_t *conn;
    kg_conn_t *next;
    DL_FOREACH_SAFE (edge->conns, conn, next) {
        if (conn->wsi && conn->phase == KG_PHASE_HEAD &&
            !(conn->begun || kg_conn_head_begun(conn))) {
            kg_conn_kill(conn);
        }
    }
}

void kg_edge_close(kg_edge_t **edge_ptr, unsigned grace_ms, kg_fn *done, void *user)
{
    if (!edge_ptr || !*edge_ptr) {
        return;
    }
    kg_edge_t *edge = KG_TAKE(*edge_ptr);
    edge->done = done;
    edge->done_user = user;
    edge->closing = true;
    kg_edge_drain(edge);
    kg_conn_t *conn;
    DL_FOREACH (edge->conns, conn) {
        if (conn->ws) {
            kg_ws_close(conn->ws, 1001, "shutdown");
        }
    }
    kg_timer_start(edge->grace, (grace_ms ? grace_ms : 1) * KG_NS_PER_MS, 0);
}

/* --- Beginning
 * -------------------------------------------------------------------------------------------------------
 */

static int create_timers(kg_edge_t *edge)
{
    int rc = kg_timer_create(edge->loop, on_scan, edge, &edge->scan);
    rc = rc < 0 ? rc : kg_timer_create(edge->loop, on_nudge, edge, &edge->nudge);
    return rc < 0 ? rc : kg_timer_create(edge->loop, on_grace, edge, &edge->grace);
}

static int start(kg_edge_t *edge, const kg_edge_opts_t *opts, kg_err_t *err)
{
    bool tls = false;
    for (size_t i = 0; i < opts->listener_count; i++) {
        edge->listeners[i] = (kg_listener_t){.socket = {.fd = -1}, .index = (unsigned)i};
        tls = tls || opts->listeners[i].tls_cert;
    }
    int rc = create_timers(edge);
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "Out of memory.");
    }
    rc = kg_lws_start(edge, tls, err);
    if (rc < 0) {
        return rc;
    }
    edge->plain = kg_lws_vhost(edge, "plain", NULL, NULL, err);
    rc = edge->plain ? 0 : -EIO;
    for (size_t i = 0; i < opts->listener_count && rc == 0; i++) {
        rc = kg_listener_open(edge, &opts->listeners[i], &edge->listeners[i], err);
    }
    return rc;
}

int kg_edge_create(kg_loop_t *loop,
                   const kg_edge_opts_t *opts,
                   const kg_edge_handler_t *handler,
                   kg_edge_t **ret_edge,
                   kg_err_t *err)
{
    kg_edge_t *edge = calloc(1, sizeof(*edge));
    kg_listener_t *listeners =
        calloc(opts->listener_count ? opts->listener_count : 1, sizeof(*listeners));
    if (!edge || !listeners) {
        free(edge);
        free(listeners);
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "Out of memory.");
    }
    edge->loop = loop;
    edge->handler = *handler;
    edge->listeners = listeners;
    edge->listener_count = opts->listener_count;
    set_options(&edge->opts, opts);
    int rc = start(edge, opts, err);
    edge->hook = (kg_hook_t){.before_sleep = before_sleep, .after_wake = after_wake, .user = edge};
    if (rc < 0) {
        if (edge->lws) {
            kg_edge_drain(edge);
            destroy_context(edge);
        } else {
            free_edge(edge);
        }
        return rc;
    }
    kg_loop_hook_add(loop, &edge->hook);
    kg_timer_start(edge->scan, scan_interval_ns(&edge->opts), scan_interval_ns(&edge->opts));
    *ret_edge = edge;
    return 0;
}

unsigned kg_edge_port(const kg_edge_t *edge, size_t listener)
{
    return listener < edge->listener_count ? edge->listeners[listener].socket.port : 0;
}

size_t kg_edge_connections(const kg_edge_t *edge)
{
    return edge->conn_count;
}

int kg_edge_adopt_take(kg_edge_t *edge, int fd, unsigned listener)
{
    return kg_conn_adopt_take(edge, fd, listener);
}
