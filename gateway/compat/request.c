/* gateway/compat: one HTTP exchange. A head is routed and its key checked before the body is read;
 * what a handler waits for is let go when the client leaves. */
#include "gateway/compat/request.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/api/validate.h"
#include "gateway/view/router.h"
#include "proto/json_scan.h"

enum {
    HEADERS_MAX = 12,
    ALLOW_MAX = 64,
    REPAIR_MAX = 262144 /* bytes of a body that is read a second time; a few ms */
};

/* --- Answers -------------------------------------------------------------------------------- */

typedef struct headers {
    kg_header_t list[HEADERS_MAX];
    size_t count;
    char retry[16];
} headers_t;

static void add(headers_t *h, const char *name, const char *value)
{
    if (value && *value && h->count < HEADERS_MAX) {
        h->list[h->count++] = (kg_header_t){name, value};
    }
}

static void reply(kg_jreq_t *r, int status, const char *type, kg_slice_t body, headers_t *h)
{
    add(h, "X-Content-Type-Options", "nosniff");
    add(h, "Cache-Control", "no-store");
    if (r->cors[0]) {
        add(h, "Access-Control-Allow-Origin", r->cors);
        add(h, "Access-Control-Expose-Headers", "Location, Retry-After");
        add(h, "Vary", "Origin");
    }
    kg_server_count(r->jupyter->server, 0, body.len);
    (void)kg_http_reply(r->http, status, h->list, h->count, type, body);
}

void kg_jreq_text(kg_jreq_t *r, int status, const char *type, kg_slice_t text)
{
    headers_t h = {0};
    if (strncmp(type, "text/html", 9) == 0 || strncmp(type, "image/svg", 9) == 0) {
        add(&h, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
    }
    reply(r, status, type, text, &h);
}

void kg_jreq_json_take(kg_jreq_t *r, int status, json_t *json, const char *location)
{
    headers_t h = {0};
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for the answer.");
        kg_jreq_fail(r, &err);
        return;
    }
    add(&h, "Location", location);
    reply(r, status, NULL, kg_slice_cstr(text), &h);
    free(text);
}

void kg_jreq_none(kg_jreq_t *r)
{
    headers_t h = {0};
    reply(r, 204, NULL, kg_slice("", 0), &h);
}

static void fail_allow(kg_jreq_t *r, const kg_err_t *err, const char *allow)
{
    headers_t h = {0};
    KG_AUTO_BUF kg_buf_t body = {0};
    kg_api_count_error(kg_server_api(r->jupyter->server), err->code);
    (void)kg_jupyter_error_body(err, &body);
    add(&h, "Allow", allow);
    if (err->retry_after_s > 0) {
        snprintf(h.retry, sizeof h.retry, "%u", err->retry_after_s);
        add(&h, "Retry-After", h.retry);
    }
    reply(r, kg_jupyter_status(err), NULL, kg_buf_slice(&body), &h);
}

void kg_jreq_fail(kg_jreq_t *r, const kg_err_t *err)
{
    fail_allow(r, err, NULL);
}

/* --- Operations of /v1 ---------------------------------------------------------------------- */

static void end_call(kg_jreq_t *r, const json_t *answer, const kg_err_t *err)
{
    kg_jreq_called_fn *called = r->called;
    r->call = NULL;
    r->called = NULL;
    called(r, answer, err);
}

static void on_reply(void *user, const kg_answer_t *answer)
{
    json_t *json = answer->body.len ? json_loadb(answer->body.data, answer->body.len,
                                                 JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                                    : NULL;
    end_call(user, json, NULL);
    json_decref(json);
}

static void on_fail(void *user, const kg_err_t *err)
{
    end_call(user, NULL, err);
}

static const kg_call_view_t view = {.reply = on_reply, .fail = on_fail};

void kg_jreq_call(kg_jreq_t *r, const char *op, json_t *args_take, kg_jreq_called_fn *called)
{
    kg_err_t err = {0};
    const kg_op_t *operation = kg_op_find(op);
    r->called = called;
    if (!args_take) {
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    } else if (kg_op_check(operation, args_take, &err) == 0) {
        kg_api_call(kg_server_api(r->jupyter->server), operation, args_take, &r->who, &view, r,
                    &r->call);
        return;
    }
    json_decref(args_take);
    end_call(r, NULL, &err);
}

/* --- Heads ---------------------------------------------------------------------------------- */

static void find_route(kg_jreq_t *r, const kg_http_head_t *head, char ret_allow[ALLOW_MAX])
{
    size_t count;
    const kg_jroute_t *routes = kg_jroutes(&count);
    bool is_head = kg_slice_eq_cstr(head->method, "HEAD");
    ret_allow[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (!kg_path_fits(routes[i].path, head->path)) {
            continue;
        }
        if (kg_slice_eq_cstr(is_head ? kg_slice_cstr("GET") : head->method, routes[i].method)) {
            r->route = &routes[i];
        }
        size_t len = strlen(ret_allow);
        snprintf(ret_allow + len, ALLOW_MAX - len, "%s%s, ", routes[i].method,
                 strcmp(routes[i].method, "GET") == 0 ? ", HEAD" : "");
    }
    size_t len = strlen(ret_allow);
    if (len > 0) {
        snprintf(ret_allow + len, ALLOW_MAX - len, "OPTIONS");
    }
}

/* Without a key, and for every path: a browser asks before it has shown its own. */
static void reply_options(kg_jreq_t *r, const char *allow)
{
    headers_t h = {0};
    add(&h, "Allow", *allow ? allow : "OPTIONS");
    if (r->cors[0]) {
        add(&h, "Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, DELETE");
        add(&h, "Access-Control-Allow-Headers",
            "Authorization, Content-Type, X-API-Key, X-XSRFToken");
        add(&h, "Access-Control-Max-Age", "600");
    }
    reply(r, 204, NULL, kg_slice("", 0), &h);
}

static int read_params(kg_jreq_t *r, const kg_http_head_t *head, kg_err_t *err)
{
    const char *brace = strchr(r->route->path, '{');
    unsigned first = 0;
    for (const char *at = r->route->path + 1; brace && at < brace; at++) {
        first += *at == '/';
    }
    for (unsigned i = 0; brace && i < KG_ARRAY_LEN(r->param); i++) {
        bool there = kg_path_segment(head->path, first + i, r->param[i], sizeof r->param[i]);
        if (!there && (i == 0 || strchr(brace + 1, '{'))) {
            return kg_err_set(err, KG_ERR_NOT_FOUND, "Not Found");
        }
        if (!there) {
            r->param[i][0] = '\0';
        }
    }
    return 0;
}

static int accept_head(kg_jreq_t *r, const kg_http_head_t *head, const char *allow, kg_err_t *err)
{
    if (!r->route) {
        return *allow ? kg_err_set(err, KG_ERR_METHOD_NOT_ALLOWED, "Method Not Allowed")
                      : kg_err_set(err, KG_ERR_NOT_FOUND, "Not Found");
    }
    int rc = r->route->open
                 ? 0
                 : kg_jupyter_authenticate(r->jupyter, head, kg_slice(NULL, 0), &r->who, err);
    if (rc == 0 && head->content_length > kg_server_body_max(r->jupyter->server)) {
        rc = kg_err_set(err, KG_ERR_TOO_LARGE, "The body is longer than %zu bytes.",
                        kg_server_body_max(r->jupyter->server));
    }
    /* Keyless, a page of another origin could send other types without asking first. */
    if (rc == 0 && r->route->takes && head->has_body &&
        kg_server_rules(r->jupyter->server)->no_auth &&
        !kg_content_type_is_json(kg_http_head_get(head, "content-type"))) {
        rc = kg_err_set(err, KG_ERR_UNSUPPORTED_MEDIA_TYPE, "Bodies are JSON.");
        kg_err_hint(err, "Send Content-Type: application/json.");
    }
    if (rc == 0 && r->route->asks) {
        r->query = strndup(head->query.len ? head->query.data : "", head->query.len);
        if (!r->query) {
            rc = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        }
    }
    return rc < 0 ? rc : read_params(r, head, err);
}

void kg_jreq_on_request(kg_http_t *http,
                        const kg_http_head_t *head,
                        size_t *ret_body_max,
                        void *user)
{
    kg_jupyter_t *jupyter = user;
    kg_err_t err = {0};
    char allow[ALLOW_MAX];
    kg_jreq_t *r = calloc(1, sizeof *r);
    kg_http_set_user(http, r);
    if (!r) {
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        (void)kg_http_reply_error(http, &err, NULL, 0);
        return;
    }
    r->front.handler = &jupyter->dialect.handler;
    r->jupyter = jupyter;
    r->http = http;
    kg_slice_t origin = kg_http_head_get(head, "origin");
    (void)kg_guard_cors(kg_server_rules(jupyter->server), origin, r->cors, sizeof r->cors);
    *ret_body_max = SIZE_MAX; /* told by accept_head, in Jupyter's form */
    find_route(r, head, allow);
    if (kg_server_guard(jupyter->server, head, &err) < 0) {
        kg_jreq_fail(r, &err);
    } else if (kg_slice_eq_cstr(head->method, "OPTIONS")) {
        reply_options(r, allow);
    } else if (accept_head(r, head, allow, &err) < 0) {
        fail_allow(r, &err, err.code == KG_ERR_METHOD_NOT_ALLOWED ? allow : NULL);
    }
}

/* --- Bodies --------------------------------------------------------------------------------- */

/* JupyterLab may send its whole environment, and in there bytes that are no UTF-8, as lone
 * surrogates: that must not keep its kernels from starting. */
static json_t *parse_repaired(kg_slice_t text)
{
    kg_json_value_t value;
    KG_AUTO_BUF kg_buf_t copy = {0};
    json_t *object = NULL;
    if (text.len <= REPAIR_MAX && kg_json_check(text, KG_JSON_DEPTH_CAP, &value) == 0 &&
        kg_json_copy(&copy, value) == 0) {
        (void)kg_json_object_parse(kg_buf_slice(&copy), copy.len, &object, NULL);
    }
    return object;
}

static void on_parsed(void *user, json_t *object, kg_slice_t text, const kg_err_t *err)
{
    kg_jreq_t *r = user;
    r->parse = NULL;
    if (!object && err->code == KG_ERR_INVALID_JSON) {
        object = parse_repaired(text);
    }
    if (!object) {
        kg_err_t own = *err;
        if (err->code == KG_ERR_INVALID_JSON) {
            kg_err_set(&own, KG_ERR_INVALID_JSON, "Invalid JSON in body of request");
            kg_err_hint(&own, "%.255s", err->message);
        }
        kg_jreq_fail(r, &own);
        return;
    }
    r->body = object;
    r->route->handler(r);
}

void kg_jreq_on_body(kg_http_t *http, kg_slice_t body, void *user)
{
    (void)user;
    kg_jreq_t *r = kg_http_user(http);
    if (kg_http_answered(http)) {
        return;
    }
    kg_server_count(r->jupyter->server, body.len, 0);
    if (!r->route->takes || body.len == 0) {
        r->route->handler(r);
        return;
    }
    kg_parse_t *parse = NULL;
    kg_parse_start(kg_server_workers(r->jupyter->server), body,
                   kg_server_body_max(r->jupyter->server), on_parsed, r, &parse);
    if (parse) {
        r->parse = parse;
    }
}

void kg_jreq_free(kg_jreq_t *r)
{
    if (r->left) {
        DL_DELETE(r->jupyter->left, r);
    }
    kg_parse_forget(&r->parse);
    kg_api_abandon(&r->call);
    if (r->query) {
        explicit_bzero(r->query, strlen(r->query));
    }
    free(r->query);
    json_decref(r->body);
    free(r);
}

/* Nobody would know of the kernel that it has asked for. */
void kg_jreq_on_close(kg_http_t *http, void *user)
{
    const kg_jupyter_t *jupyter = user;
    kg_jreq_t *r = kg_http_user(http);
    kg_http_set_user(http, NULL);
    if (!r->call || !r->started || jupyter->stopping) {
        kg_jreq_free(r);
        return;
    }
    r->http = NULL;
    r->left = true;
    DL_APPEND(r->jupyter->left, r);
}
