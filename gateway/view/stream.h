/* A run's log as a body: NDJSON, SSE, or one Execution as it is. The edge pulls; nothing is held
 * but one piece. */
#ifndef KG_VIEW_STREAM_H
#define KG_VIEW_STREAM_H

#include "gateway/api/follower.h"
#include "gateway/edge/edge.h"

typedef enum kg_stream_kind {
    KG_STREAM_TEXT,
    KG_STREAM_NDJSON,
    KG_STREAM_SSE
} kg_stream_kind_t;

/* Embedded by its owner. */
typedef struct kg_stream {
    kg_stream_kind_t kind;
    kg_follower_t *follower;
    uint64_t *sent; /* counter of bytes */
    kg_buf_t first; /* goes out before what the reader has */
    bool late;      /* the log's end is the stream's end */
    bool begun;
    bool inside;  /* in the middle of an event */
    bool sign;    /* a sign of life is due */
    bool counted; /* the owner's: it is among the open streams */
    uint64_t last_ns;
    bool ends;     /* before its time: after the event that is under way comes … */
    kg_buf_t last; /* … this; empty: the body is cut off there */
} kg_stream_t;

void kg_stream_init(kg_stream_t *s, kg_stream_kind_t kind, kg_follower_t *follower, uint64_t *sent);
void kg_stream_fini(kg_stream_t *s);
/* Nothing left for so long? Then the next fill says so. */
bool kg_stream_silent(kg_stream_t *s, uint64_t now_ns, uint64_t silent_ns);
kg_pull_fn kg_stream_fill; /* user is the kg_stream_t */

/* What a stream of events says last when it ends before its time: {"type":"failure","error":…}. */
int kg_stream_write_failure(kg_stream_kind_t kind, const kg_err_t *err, kg_buf_t *out);

#endif
