/* Parsing of requests: short ones at once, long ones on a worker, so that one client's megabytes
 * are not everybody's wait. */
#ifndef KG_VIEW_PARSE_H
#define KG_VIEW_PARSE_H

#include <jansson.h>

#include "gateway/base/buf.h"
#include "gateway/base/err.h"
#include "gateway/loop/loop.h"

#define KG_PARSE_INLINE 32768U /* bytes that are parsed at once: some 0.3 ms */

typedef struct kg_parse kg_parse_t; /* one that is under way */

/* object (new reference) or NULL and err; text is what was parsed. */
typedef void kg_parse_fn(void *user, json_t *object, kg_slice_t text, const kg_err_t *err);

/* done runs once: before this returns (*ret_parse is NULL then), or later on the loop. Copies a
 * long text. */
void kg_parse_start(kg_workq_t *queue,
                    kg_slice_t text,
                    size_t cap,
                    kg_parse_fn *done,
                    void *user,
                    kg_parse_t **ret_parse);
/* done never runs. NULL ok; NULLs the pointer. */
void kg_parse_forget(kg_parse_t **parse);

#endif
