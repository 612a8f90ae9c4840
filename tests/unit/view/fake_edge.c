/* An edge without sockets. */
#include "fake_edge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct kg_edge {
    kg_edge_handler_t handler;
    kg_edge_opts_t opts;
};

struct kg_timer {
    kg_fn *fn;
    void *user;
};

struct kg_http {
    void *user;
    int status;
    char type[64];
    char headers[24][2][300];
    size_t header_count;
    kg_buf_t body;
    kg_pull_fn *fill;
    void *fill_user;
    bool ended, aborted, woken;
    size_t body_max;
    kg_fn *ready;
    void *ready_user;
    kg_buf_t in;
    bool in_end;
    int64_t length;
};

struct kg_ws {
    void *user;
    kg_ws_pull_fn *fill;
    void *fill_user;
    char protocol[64];
    char *frames[4096];
    size_t head, tail;
    kg_buf_t message;
    unsigned code;
    bool paused, full;
    size_t queued, queue_max;
};

struct kg_http_head_priv {
    const fake_request_t *request;
};

/* The one server under test. */
static kg_edge_t *the_edge;
static kg_timer_t *the_timer;
static kg_buf_t upgrade_body;

/* --- Loop ----------------------------------------------------------------------------------- */

int kg_timer_create(kg_loop_t *loop, kg_fn *fn, void *user, kg_timer_t **ret_timer)
{
    (void)loop;
    *ret_timer = calloc(1, sizeof **ret_timer);
    if (!*ret_timer) {
        return -ENOMEM;
    }
    **ret_timer = (kg_timer_t){fn, user};
    return 0;
}

void kg_timer_start(kg_timer_t *timer, uint64_t after_ns, uint64_t repeat_ns)
{
    (void)after_ns;
    (void)repeat_ns;
    the_timer = timer; /* the latest */
}

void kg_timer_close(kg_timer_t **timer)
{
    free(*timer);
    *timer = NULL;
}

void fake_timer_fire(void)
{
    the_timer->fn(the_timer->user);
}

/* --- Edge ----------------------------------------------------------------------------------- */

int kg_edge_create(kg_loop_t *loop,
                   const kg_edge_opts_t *opts,
                   const kg_edge_handler_t *handler,
                   kg_edge_t **ret_edge,
                   kg_err_t *err)
{
    (void)loop;
    (void)err;
    kg_edge_t *edge = calloc(1, sizeof *edge);
    if (!edge) {
        return -ENOMEM;
    }
    edge->handler = *handler;
    edge->opts = *opts;
    the_edge = edge;
    *ret_edge = edge;
    return 0;
}

const kg_edge_opts_t *fake_edge_opts(void)
{
    return &the_edge->opts;
}

unsigned kg_edge_port(const kg_edge_t *edge, size_t listener)
{
    (void)edge;
    return 8717 + (unsigned)listener;
}

size_t kg_edge_connections(const kg_edge_t *edge)
{
    (void)edge;
    return 3;
}

int kg_edge_adopt_take(kg_edge_t *edge, int fd, unsigned listener)
{
    (void)edge;
    (void)listener;
    close(fd);
    return 0;
}

void kg_edge_drain(kg_edge_t *edge)
{
    (void)edge;
}

void kg_edge_close(kg_edge_t **edge, unsigned grace_ms, kg_fn *done, void *user)
{
    (void)grace_ms;
    free(*edge);
    *edge = NULL;
    the_edge = NULL;
    kg_buf_fini(&upgrade_body);
    done(user);
}

int kg_edge_error_body(const kg_err_t *err, kg_buf_t *out)
{
    json_t *e = json_pack("{s:s, s:s}", "code", kg_err_name(err->code), "message", err->message);
    if (err->hint[0]) {
        json_object_set_new(e, "hint", json_string(err->hint));
    }
    if (err->pointer[0]) {
        json_object_set_new(e, "pointer", json_string(err->pointer));
    }
    json_t *body = json_pack("{s:o}", "error", e);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    int rc = text ? kg_buf_append_cstr(out, text) : -ENOMEM;
    free(text);
    return rc;
}

/* --- HTTP ----------------------------------------------------------------------------------- */

kg_slice_t kg_http_head_get(const kg_http_head_t *head, const char *name)
{
    const fake_request_t *r = head->priv->request;
    for (size_t i = 0; i < KG_ARRAY_LEN(r->headers) && r->headers[i][0]; i++) {
        if (strcasecmp(r->headers[i][0], name) == 0) {
            return kg_slice_cstr(r->headers[i][1]);
        }
    }
    return kg_slice(NULL, 0);
}

static kg_http_head_t
head_of(const fake_request_t *r, struct kg_http_head_priv *priv, size_t body_len)
{
    priv->request = r;
    return (kg_http_head_t){
        .method = kg_slice_cstr(r->method ? r->method : "GET"),
        .path = kg_slice_cstr(r->path),
        .query = kg_slice_cstr(r->query ? r->query : ""),
        .peer = kg_slice_cstr("127.0.0.1"),
        .content_length = body_len,
        .has_body = body_len > 0,
        .tls = r->tls,
        .loopback_peer = !r->unix_peer,
        .unix_peer = r->unix_peer,
        .priv = priv,
    };
}

kg_http_t *fake_http(const fake_request_t *request)
{
    kg_http_t *http = calloc(1, sizeof *http);
    if (!http) {
        abort();
    }
    size_t len = request->body_len ? request->body_len : request->body ? strlen(request->body) : 0;
    struct kg_http_head_priv priv;
    kg_http_head_t head = head_of(request, &priv, len);
    const kg_edge_handler_t *h = &the_edge->handler;
    http->body_max = the_edge->opts.body_max;
    http->length = -1;
    head.content_length += request->more;
    h->on_request(http, &head, &http->body_max, h->user);
    if (http->ready) {
        fake_http_more(http, request->body ? request->body : "", request->more == 0);
    } else if (!http->status) {
        h->on_body(http, kg_slice(request->body, len), h->user);
    }
    return http;
}

void fake_http_more(kg_http_t *http, const char *bytes, bool end)
{
    if (!http->status) {
        kg_buf_append_cstr(&http->in, bytes);
        http->in_end = end;
        http->ready(http->ready_user);
    }
}

int64_t fake_http_length(const kg_http_t *http)
{
    return http->length;
}

void kg_http_body_stream(kg_http_t *http, kg_fn *ready, void *user)
{
    http->ready = ready;
    http->ready_user = user;
}

void kg_http_body_take(kg_http_t *http, kg_buf_t *out, bool *ret_end)
{
    kg_buf_fini(out);
    *out = http->in;
    http->in = (kg_buf_t){0};
    *ret_end = http->in_end;
}

static void
answer(kg_http_t *http, int status, const kg_header_t *headers, size_t count, const char *type)
{
    http->status = status;
    snprintf(http->type, sizeof http->type, "%s", type ? type : "application/json");
    for (size_t i = 0; i < count && i < 24; i++) {
        snprintf(http->headers[i][0], 300, "%s", headers[i].name);
        snprintf(http->headers[i][1], 300, "%s", headers[i].value);
        http->header_count = i + 1;
    }
}

int kg_http_reply(kg_http_t *http,
                  int status,
                  const kg_header_t *headers,
                  size_t header_count,
                  const char *content_type,
                  kg_slice_t body)
{
    if (http->status) {
        return -EALREADY;
    }
    answer(http, status, headers, header_count, content_type);
    http->ended = true;
    return kg_buf_append_slice(&http->body, body);
}

int kg_http_reply_error(kg_http_t *http,
                        const kg_err_t *err,
                        const kg_header_t *headers,
                        size_t header_count)
{
    if (http->status) {
        return -EALREADY;
    }
    answer(http, kg_err_status(err->code), headers, header_count, NULL);
    if (err->retry_after_s) {
        snprintf(http->headers[http->header_count][0], 300, "Retry-After");
        snprintf(http->headers[http->header_count++][1], 300, "%u", err->retry_after_s);
    }
    http->ended = true;
    return kg_edge_error_body(err, &http->body);
}

int kg_http_stream(kg_http_t *http,
                   int status,
                   const kg_header_t *headers,
                   size_t header_count,
                   const char *content_type,
                   kg_pull_fn *fill,
                   void *user)
{
    if (http->status) {
        return -EALREADY;
    }
    answer(http, status, headers, header_count, content_type);
    http->fill = fill;
    http->fill_user = user;
    return 0;
}

void kg_http_announce(kg_http_t *http, uint64_t length)
{
    http->length = (int64_t)length;
}

void kg_http_pour(kg_http_t *http, kg_pour_fn *pour) /* as with TLS: fill is asked for all */
{
    (void)http;
    (void)pour;
}

void kg_http_wake(kg_http_t *http)
{
    http->woken = true;
}

void kg_http_set_user(kg_http_t *http, void *user)
{
    http->user = user;
}

void *kg_http_user(const kg_http_t *http)
{
    return http->user;
}

bool kg_http_answered(const kg_http_t *http)
{
    return http->status != 0;
}

int fake_http_status(const kg_http_t *http)
{
    return http->status;
}

const char *fake_http_header(const kg_http_t *http, const char *name)
{
    for (size_t i = 0; i < http->header_count; i++) {
        if (strcasecmp(http->headers[i][0], name) == 0) {
            return http->headers[i][1];
        }
    }
    return NULL;
}

const char *fake_http_type(const kg_http_t *http)
{
    return http->type;
}

const char *fake_http_body(kg_http_t *http, size_t max)
{
    while (http->fill && !http->ended && !http->aborted) {
        kg_pull_t pull = http->fill(http->fill_user, &http->body, max);
        http->ended = pull == KG_PULL_END;
        http->aborted = pull == KG_PULL_ABORT;
        if (pull == KG_PULL_WAIT) {
            break;
        }
    }
    return http->body.data ? http->body.data : "";
}

bool fake_http_ended(const kg_http_t *http)
{
    return http->ended;
}

bool fake_http_aborted(const kg_http_t *http)
{
    return http->aborted;
}

bool fake_http_woken(kg_http_t *http)
{
    bool woken = http->woken;
    http->woken = false;
    return woken;
}

size_t fake_http_body_max(const kg_http_t *http)
{
    return http->body_max;
}

void fake_http_close(kg_http_t **http)
{
    the_edge->handler.on_http_close(*http, the_edge->handler.user);
    kg_buf_fini(&(*http)->body);
    kg_buf_fini(&(*http)->in);
    free(*http);
    *http = NULL;
}

/* --- WebSocket ------------------------------------------------------------------------------ */

kg_ws_t *fake_upgrade(const fake_request_t *request, const char *offered, int *ret_status)
{
    struct kg_http_head_priv priv;
    kg_http_head_t head = head_of(request, &priv, 0);
    const kg_edge_handler_t *h = &the_edge->handler;
    kg_upgrade_reply_t reply = {0};
    head.upgrade = true;
    if (h->on_upgrade(&head, kg_slice_cstr(offered), &reply, h->user) != 0) {
        *ret_status = reply.status;
        kg_buf_fini(&upgrade_body);
        upgrade_body = reply.body;
        return NULL;
    }
    *ret_status = 101;
    kg_ws_t *ws = calloc(1, sizeof *ws);
    if (!ws) {
        abort();
    }
    ws->user = reply.ws_user;
    snprintf(ws->protocol, sizeof ws->protocol, "%s", reply.protocol);
    h->on_ws_open(ws, h->user);
    return ws;
}

const char *fake_upgrade_body(void)
{
    return upgrade_body.data ? upgrade_body.data : "";
}

const char *fake_ws_protocol(const kg_ws_t *ws)
{
    return ws->protocol;
}

void fake_ws_bytes(kg_ws_t *ws, const char *data, size_t len, bool binary)
{
    the_edge->handler.on_ws_message(ws, kg_slice(data, len), binary, the_edge->handler.user);
}

void fake_ws_text(kg_ws_t *ws, const char *text)
{
    fake_ws_bytes(ws, text, strlen(text), false);
}

int kg_ws_send(kg_ws_t *ws, kg_slice_t text)
{
    if (ws->full || ws->tail - ws->head >= KG_ARRAY_LEN(ws->frames)) {
        return -ENOBUFS;
    }
    ws->frames[ws->tail++ % KG_ARRAY_LEN(ws->frames)] = strndup(text.data, text.len);
    return 0;
}

/* Of binary ones only the length is kept: "binary LENGTH". */
int kg_ws_send_binary(kg_ws_t *ws, kg_slice_t data)
{
    char text[32];
    (void)snprintf(text, sizeof text, "binary %zu", data.len);
    return kg_ws_send(ws, kg_slice_cstr(text));
}

int kg_ws_send_held(
    kg_ws_t *ws, bool binary, const kg_slice_t *pieces, size_t count, const kg_hold_t *hold)
{
    KG_AUTO_BUF kg_buf_t all = {0};
    hold->keep(hold->owner);
    for (size_t i = 0; i < count; i++) {
        if (kg_buf_append_slice(&all, pieces[i])) {
            abort();
        }
    }
    hold->drop(hold->owner);
    return binary ? kg_ws_send_binary(ws, kg_buf_slice(&all)) : kg_ws_send(ws, kg_buf_slice(&all));
}

size_t kg_ws_queued(const kg_ws_t *ws)
{
    return ws->queued;
}

void kg_ws_take_bytes(kg_ws_t *ws)
{
    (void)ws;
}

void kg_ws_take_unsent(kg_ws_t *ws, kg_ws_unsent_fn *fn, void *user)
{
    (void)ws; /* what is sent has gone */
    (void)fn;
    (void)user;
}

void kg_ws_set_queue_max(kg_ws_t *ws, size_t bytes)
{
    ws->queue_max = bytes;
}

size_t fake_ws_queue_max(const kg_ws_t *ws)
{
    return ws->queue_max;
}

void kg_ws_set_source(kg_ws_t *ws, kg_ws_pull_fn *fill, void *user)
{
    ws->fill = fill;
    ws->fill_user = user;
}

void kg_ws_wake(kg_ws_t *ws)
{
    (void)ws;
}

void kg_ws_pause(kg_ws_t *ws, bool paused)
{
    ws->paused = paused;
}

void kg_ws_close(kg_ws_t *ws, unsigned code, const char *reason)
{
    (void)reason;
    ws->code = code;
}

void kg_ws_set_user(kg_ws_t *ws, void *user)
{
    ws->user = user;
}

void *kg_ws_user(const kg_ws_t *ws)
{
    return ws->user;
}

const char *fake_ws_frame(kg_ws_t *ws, size_t max)
{
    kg_buf_clear(&ws->message);
    if (ws->head < ws->tail) {
        char *frame = ws->frames[ws->head++ % KG_ARRAY_LEN(ws->frames)];
        (void)kg_buf_append_cstr(&ws->message, frame);
        free(frame);
        return ws->message.data;
    }
    bool end = false;
    while (ws->fill && !end) {
        kg_pull_t pull = ws->fill(ws->fill_user, &ws->message, max, &end);
        if (pull == KG_PULL_ABORT) {
            ws->code = 1006;
        }
        if (pull != KG_PULL_MORE) {
            break;
        }
    }
    if (!end && ws->head < ws->tail) { /* the source left a failure in the queue */
        return fake_ws_frame(ws, max);
    }
    return end ? ws->message.data : NULL;
}

kg_pull_t fake_ws_pull(kg_ws_t *ws, size_t max)
{
    bool end = false;
    kg_buf_clear(&ws->message);
    return ws->fill(ws->fill_user, &ws->message, max, &end);
}

unsigned fake_ws_close_code(const kg_ws_t *ws)
{
    return ws->code;
}

bool fake_ws_paused(const kg_ws_t *ws)
{
    return ws->paused;
}

void fake_ws_full(kg_ws_t *ws, bool full)
{
    ws->full = full;
}

void fake_ws_queue(kg_ws_t *ws, size_t bytes)
{
    ws->queued = bytes;
}

void fake_ws_close(kg_ws_t **ws)
{
    the_edge->handler.on_ws_close(*ws, the_edge->handler.user);
    while ((*ws)->head < (*ws)->tail) {
        free((*ws)->frames[(*ws)->head++ % KG_ARRAY_LEN((*ws)->frames)]);
    }
    kg_buf_fini(&(*ws)->message);
    free(*ws);
    *ws = NULL;
}
