/* One HTTP exchange in Jupyter's dialect: from a head to a route, a key and a body, and the answers
 * in Jupyter's form. For this room's own files. */
#ifndef KG_COMPAT_REQUEST_H
#define KG_COMPAT_REQUEST_H

#include <jansson.h>

#include "gateway/compat/jupyter_priv.h"
#include "gateway/view/parse.h"

#define KG_JREQ_PARAM_MAX 256 /* bytes of a segment of a path, with its NUL */

typedef struct kg_jreq kg_jreq_t;
typedef void kg_jreq_fn(kg_jreq_t *r);
/* Goes on with what a call answered: its JSON (borrowed, NULL with 204), or err. */
typedef void kg_jreq_called_fn(kg_jreq_t *r, const json_t *answer, const kg_err_t *err);
/* A kernel is ready (borrowed for the call), or NULL and err. */
typedef void kg_kernel_started_fn(kg_jreq_t *r, const kg_kernel_ref_t *kernel, const kg_err_t *err);

/* What is at a path. Public plain data, static. */
typedef struct kg_jroute {
    const char *method;
    const char *path; /* "/api/kernels/{kernel}" */
    bool open;        /* without a key */
    bool takes; /* a body, which must be a JSON object or nothing; others' bodies are ignored */
    bool asks;  /* its query matters; others' is ignored */
    kg_jreq_fn *handler;
} kg_jroute_t;

struct kg_jreq {
    kg_front_t front;
    kg_jupyter_t *jupyter;
    kg_http_t *http;
    const kg_jroute_t *route;
    kg_principal_t who;
    char param[2][KG_JREQ_PARAM_MAX]; /* third and fourth segment of the path, decoded, or "" */
    char cors[256];
    json_t *body; /* an object, or NULL: there was none */
    kg_parse_t *parse;
    kg_call_t *call;
    kg_jreq_called_fn *called;
    kg_kernel_started_fn *started;
    bool left; /* the client has: the kernel that it waits for is ended when it is there */
    struct kg_jreq *prev, *next; /* of those */
    bool fresh;                  /* the kernel that it got is one it has started */
    char *query;                 /* of routes that read theirs; it may hold a key */
};

/* Ends the exchange. json NULL = out of memory. location NULL = none. */
void kg_jreq_json_take(kg_jreq_t *r, int status, json_t *json, const char *location);
void kg_jreq_text(kg_jreq_t *r, int status, const char *type, kg_slice_t text);
void kg_jreq_none(kg_jreq_t *r); /* 204 */
void kg_jreq_fail(kg_jreq_t *r, const kg_err_t *err);
/* An operation of /v1 with these arguments (taken; NULL = out of memory), as the one who asks.
 * called runs once, unless the client leaves before; it may run before this returns. */
void kg_jreq_call(kg_jreq_t *r, const char *op, json_t *args_take, kg_jreq_called_fn *called);

/* The dialect's callbacks; user is the kg_jupyter_t. */
void kg_jreq_on_request(kg_http_t *http,
                        const kg_http_head_t *head,
                        size_t *ret_body_max,
                        void *user);
void kg_jreq_on_body(kg_http_t *http, kg_slice_t body, void *user);
void kg_jreq_on_close(kg_http_t *http, void *user);
void kg_jreq_free(kg_jreq_t *r); /* one that left */

/* routes.c: the table, and what a path has. */
const kg_jroute_t *kg_jroutes(size_t *ret_count);

#endif
