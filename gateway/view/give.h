/* A source as a body: its bytes as they are, or its events as NDJSON or SSE. */
#ifndef KG_VIEW_GIVE_H
#define KG_VIEW_GIVE_H

#include "gateway/base/source.h"
#include "gateway/edge/edge.h"
#include "gateway/view/stream.h"

/* Embedded by its owner; zeroed is empty. */
typedef struct kg_giver {
    kg_source_t *source;   /* NULL: nothing is given */
    kg_stream_kind_t kind; /* KG_STREAM_TEXT: bytes */
    uint64_t *sent;        /* counter of bytes */
    bool begun;
    bool sign;
    uint64_t last_ns;
    bool ends;     /* of events: before its time, with … */
    kg_buf_t last; /* … this; empty: the body is cut off */
} kg_giver_t;

/* Takes the source. */
void kg_giver_init(kg_giver_t *g, kg_source_t *source, kg_stream_kind_t kind, uint64_t *sent);
void kg_giver_fini(kg_giver_t *g);
/* As kg_stream_silent. */
bool kg_giver_silent(kg_giver_t *g, uint64_t now_ns, uint64_t silent_ns);
kg_pull_fn kg_giver_fill; /* user is the kg_giver_t, here too: */
kg_pour_fn kg_giver_pour; /* of a source of bytes that pours */

#endif
