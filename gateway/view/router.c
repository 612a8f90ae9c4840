/* gateway/view: routes, straight from the operation table. A few dozen templates are compared
 * segment by segment; that costs less than the parser in front of it. */
#include "gateway/view/router.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/api/validate.h"
#include "gateway/base/credential.h"

enum {
    VALUE_MAX = 8192
};

/* Cuts the next segment (without its "/") off path. false at the end. */
static bool next_segment(kg_slice_t *path, kg_slice_t *ret_segment)
{
    if (path->len == 0 || path->data[0] != '/') {
        return false;
    }
    const char *start = path->data + 1;
    size_t rest = path->len - 1;
    const char *slash = memchr(start, '/', rest);
    size_t len = slash ? (size_t)(slash - start) : rest;
    *ret_segment = kg_slice(start, len);
    *path = kg_slice(start + len, rest - len);
    return true;
}

static bool is_param(kg_slice_t segment)
{
    return segment.len > 2 && segment.data[0] == '{';
}

/* A segment stands for itself or for a parameter, decoded once and by itself: "%2F" does not part
 * it. Nothing here goes up a level, so a segment of dots is no part of any path. */
static bool segment_fits(kg_slice_t want, kg_slice_t got)
{
    char text[64];
    if (is_param(want)) {
        return got.len > 0 && !kg_slice_eq_cstr(got, ".") && !kg_slice_eq_cstr(got, "..");
    }
    return kg_slice_eq(want, got) ||
           (kg_percent_decode(got, false, text, sizeof text) && kg_slice_eq_cstr(want, text));
}

bool kg_path_fits(const char *pattern, kg_slice_t path)
{
    kg_slice_t want = kg_slice_cstr(pattern);
    kg_slice_t a, b;
    while (next_segment(&want, &a)) {
        if (!next_segment(&path, &b) || !segment_fits(a, b)) {
            return false;
        }
    }
    return path.len == 0;
}

static void add_allow(kg_route_t *route, const char *method)
{
    size_t len = strlen(route->allow);
    snprintf(route->allow + len, sizeof route->allow - len, "%s%s, ", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

void kg_route_find(kg_slice_t method, kg_slice_t path, kg_route_t *ret_route)
{
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    kg_slice_t want = kg_slice_eq_cstr(method, "HEAD") ? kg_slice_cstr("GET") : method;
    *ret_route = (kg_route_t){0};
    for (size_t i = 0; i < count; i++) {
        if (!kg_path_fits(ops[i].path, path)) {
            continue;
        }
        ret_route->known = true;
        ret_route->tus = ret_route->tus || ops[i].flags & KG_OP_TUS;
        if (kg_slice_eq_cstr(want, ops[i].method)) {
            ret_route->op = &ops[i];
            return;
        }
        add_allow(ret_route, ops[i].method);
    }
    size_t len = strlen(ret_route->allow);
    snprintf(ret_route->allow + len, sizeof ret_route->allow - len, "OPTIONS");
}

static int bad_url(kg_err_t *err, const char *part)
{
    return kg_err_set(err, KG_ERR_INVALID_REQUEST, "The %s of the URL is malformed or too long.",
                      part);
}

static int path_params(const kg_op_t *op, kg_slice_t path, json_t *args, kg_err_t *err)
{
    kg_slice_t pattern = kg_slice_cstr(op->path);
    kg_slice_t a, b;
    while (next_segment(&pattern, &a) && next_segment(&path, &b)) {
        if (!is_param(a)) {
            continue;
        }
        char name[40];
        char value[VALUE_MAX];
        snprintf(name, sizeof name, "%.*s", (int)a.len - 2, a.data + 1);
        if (!kg_percent_decode(b, false, value, sizeof value)) {
            return bad_url(err, "path");
        }
        int rc = kg_op_put_param(op, KG_IN_PATH, name, value, args, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int query_param(const kg_op_t *op, kg_slice_t pair, json_t *args, kg_err_t *err)
{
    char name[256];
    char value[VALUE_MAX];
    const char *eq = memchr(pair.data, '=', pair.len);
    size_t len = eq ? (size_t)(eq - pair.data) : pair.len;
    kg_slice_t text = eq ? kg_slice(eq + 1, pair.len - len - 1) : kg_slice("", 0);
    if (!kg_percent_decode(kg_slice(pair.data, len), true, name, sizeof name) ||
        !kg_percent_decode(text, true, value, sizeof value)) {
        return bad_url(err, "query");
    }
    return kg_op_put_param(op, KG_IN_QUERY, name, value, args, err);
}

int kg_route_params(
    const kg_op_t *op, kg_slice_t path, kg_slice_t query, json_t *args, kg_err_t *err)
{
    if (op->flags & KG_OP_MISSING) {
        return 0; /* it has no fields to check against */
    }
    int rc = path_params(op, path, args, err);
    while (rc == 0 && query.len > 0) {
        size_t len = 0;
        while (len < query.len && query.data[len] != '&') {
            len++;
        }
        if (len > 0) {
            rc = query_param(op, kg_slice(query.data, len), args, err);
        }
        len += len < query.len;
        query = kg_slice(query.data + len, query.len - len);
    }
    return rc;
}

bool kg_route_websocket(kg_slice_t path, char *ret_sandbox, size_t cap)
{
    ret_sandbox[0] = '\0';
    if (kg_slice_eq_cstr(path, "/v1/ws")) {
        return true;
    }
    if (!kg_path_fits("/v1/sandboxes/{sandbox}/ws", path)) {
        return false;
    }
    return kg_path_segment(path, 2, ret_sandbox, cap);
}

bool kg_path_segment(kg_slice_t path, unsigned index, char *ret, size_t cap)
{
    kg_slice_t segment = {0};
    for (unsigned i = 0; i <= index; i++) {
        if (!next_segment(&path, &segment)) {
            return false;
        }
    }
    return kg_percent_decode(segment, false, ret, cap);
}

bool kg_path_below(kg_slice_t path, const char *root)
{
    size_t len = strlen(root);
    return path.len >= len && memcmp(path.data, root, len) == 0 &&
           (path.len == len || path.data[len] == '/');
}

const char *kg_route_lacks(kg_slice_t path)
{
    return kg_path_below(path, "/mcp") ? "An MCP server" : NULL;
}
