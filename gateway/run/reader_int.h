/* Inner header of reader.c and view.c: an event is a short list of segments, literal or from the
 * file; view.c makes the lists of which a `result` consists. */
#ifndef KG_RUN_READER_INT_H
#define KG_RUN_READER_INT_H

#include "gateway/run/log_int.h"
#include "gateway/run/reader.h"
#include "gateway/run/text.h"
#include "proto/json_scan.h"

enum {
    KG_SEG_TEXT = 1,  /* goes through the filters below, in this order */
    KG_SEG_JOIN = 2,  /* the inside of a traceback array: lines, parted by \n */
    KG_SEG_STRIP = 4, /* ANSI out */
    KG_SEG_TRIM = 8,  /* holds back a last \n */
};

typedef struct kg_seg {
    const char *literal; /* static text, or NULL: len bytes at off in the log */
    uint64_t off;
    size_t len;
    unsigned flags;
} kg_seg_t;

#define KG_SEGS_MAX 12U

/* Parts of a rendered result, in order. */
typedef enum kg_view_stage {
    KG_VIEW_HEAD,
    KG_VIEW_TEXT,
    KG_VIEW_OUTPUT,
    KG_VIEW_RESULTS,
    KG_VIEW_STDOUT,
    KG_VIEW_STDERR,
    KG_VIEW_TAIL,
    KG_VIEW_DONE
} kg_view_stage_t;

struct kg_run_reader {
    kg_run_log_t *log;
    bool execution, slim, late; /* slim: an Execution without its bulk */
    bool tells_expired;         /* with "expired":true */
    bool ended;                 /* nothing follows */
    bool inside;                /* an event is being yielded */
    bool begun;                 /* its first piece was */
    int error;
    uint64_t off;  /* next event */
    uint64_t skip; /* events below this seq are not yielded */

    kg_rec_t rec; /* the event being yielded */
    kg_rich_t rich;
    uint64_t payload;

    kg_seg_t segs[KG_SEGS_MAX];
    size_t seg, segs_len;
    kg_buf_t pend; /* filtered text on its way out */
    size_t pend_pos;

    kg_ansi_strip_t strip;
    kg_text_join_t join;
    bool held_nl;      /* TRIM */
    bool any, ends_nl; /* OUTPUT: what was yielded so far */
    bool after_value;  /* OUTPUT: the last was a value, which ends a line */

    kg_view_stage_t stage;
    kg_log_view_t view;
    bool opened; /* the stage's literal was yielded */
    bool first;  /* no Result yet */
    uint64_t walk, limit;
    unsigned walked; /* records looked at by one call of kg_run_reader_next */

    char truncated[160]; /* the value with what late output lost */

    char *cache; /* of the file, for small reads */
    uint64_t cache_off;
    size_t cache_len;
};

/* Exactly len bytes at off, by the cache where they are few. */
int kg_reader_read(kg_run_reader_t *r, uint64_t off, void *dst, size_t len);
int kg_reader_head(kg_run_reader_t *r, uint64_t off, kg_rec_t *ret_rec, kg_rich_t *ret_rich);
void kg_reader_push(kg_run_reader_t *r, uint64_t off, size_t len, unsigned flags);
void kg_reader_push_literal(kg_run_reader_t *r, const char *text);
/* The span from..to of a stored payload (at off) with what the rich head puts in. */
void kg_reader_push_span(
    kg_run_reader_t *r, uint64_t off, const kg_rich_t *rich, uint32_t from, uint32_t to);

void kg_view_begin(kg_run_reader_t *r);
/* Pushes the next segments of the result; false when it is complete, -errno. */
int kg_view_next(kg_run_reader_t *r);

#endif
