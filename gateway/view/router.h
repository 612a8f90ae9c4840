/* From method and path to an operation and its path parameters. */
#ifndef KG_VIEW_ROUTER_H
#define KG_VIEW_ROUTER_H

#include <jansson.h>

#include "gateway/api/op.h"
#include "gateway/base/buf.h"
#include "gateway/base/err.h"

#define KG_ROUTE_ALLOW_MAX 64

typedef struct kg_route {
    const kg_op_t *op;              /* NULL: nothing at this path with this method */
    bool known;                     /* something is at this path */
    bool tus;                       /* where tus is spoken */
    char allow[KG_ROUTE_ALLOW_MAX]; /* "GET, HEAD, POST, OPTIONS" where known */
} kg_route_t;

/* HEAD is served by GET. */
void kg_route_find(kg_slice_t method, kg_slice_t path, kg_route_t *ret_route);
/* Path and query parameters of op as checked values in args. -errno with err (invalid_request). */
int kg_route_params(
    const kg_op_t *op, kg_slice_t path, kg_slice_t query, json_t *args, kg_err_t *err);
/* "/v1/ws" or "/v1/sandboxes/{sandbox}/ws": true, and the sandbox ("" = none) decoded. */
bool kg_route_websocket(kg_slice_t path, char *ret_sandbox, size_t cap);
/* What the contract has at this path and below it, and this build lacks; else NULL. */
const char *kg_route_lacks(kg_slice_t path);
/* Does path have the segments of pattern ("/a/{b}"), each decoded by itself? */
bool kg_path_fits(const char *pattern, kg_slice_t path);
/* path is root ("/a") or below it. */
bool kg_path_below(kg_slice_t path, const char *root);
/* The index-th segment from 0, decoded. false: there is none, or it does not fit. */
bool kg_path_segment(kg_slice_t path, unsigned index, char *ret, size_t cap);

#endif
