/* From bytes to checked arguments. Everything a client sends as JSON passes here before a handler
 * sees it. */
#ifndef KG_API_VALIDATE_H
#define KG_API_VALIDATE_H

#include <jansson.h>

#include "gateway/api/op.h"
#include "gateway/base/buf.h"
#include "gateway/base/err.h"

#define KG_JSON_DEPTH_CAP 64
#define KG_JSON_VALUES_CAP 20000 /* values in one request: no operation takes as many */

/* Parses one JSON object: caps of depth and of values first (before any tree is made), then syntax,
 * UTF-8, U+0000 and duplicate keys. *ret_object is new. -errno with invalid_json (or too_large past
 * cap), saying line and column. */
int kg_json_object_parse(kg_slice_t text, size_t cap, json_t **ret_object, kg_err_t *err);

/* Refuses members of an HTTP body that are not body fields of op (path and query fields are unknown
 * there). Call it before kg_op_put_param. invalid_request. */
int kg_op_check_body(const kg_op_t *op, json_t *body, kg_err_t *err);

/* Turns the text of a path or query parameter into the JSON value of its field and puts it into
 * args. A query parameter "metadata.k" adds a member to a string map field. Repeated and unknown
 * ones are invalid_request. */
int kg_op_put_param(const kg_op_t *op,
                    kg_field_in_t in,
                    const char *name,
                    const char *value,
                    json_t *args,
                    kg_err_t *err);

/* Checks args (of one operation: path, query and body together in one object) against its fields:
 * unknown members, types, ranges, what is required. Members that are null are taken out, integral
 * reals of integer fields become integers. invalid_request with pointer and hint. */
int kg_op_check(const kg_op_t *op, json_t *args, kg_err_t *err);

/* Number of edits between two short names, at most cap + 1. For "did you mean". */
unsigned kg_edit_distance(const char *a, const char *b, unsigned cap);

#endif
