/* A cursor over a run's log for one view: yields the events as JSON text in pieces of bounded size,
 * whatever their size. The `result` event's bulk (text, output, results, stdout, stderr) is not
 * stored: it is made here by walking the log. */
#ifndef KG_RUN_READER_H
#define KG_RUN_READER_H

#include "gateway/base/buf.h"
#include "gateway/run/log.h"

typedef struct kg_run_reader kg_run_reader_t;

#define KG_READ_FROM_START INT64_C(-1)

typedef enum kg_read {
    KG_READ_PIECE,   /* bytes were appended; see ret_piece */
    KG_READ_WAIT,    /* at the live end: wait for the watch */
    KG_READ_END,     /* after `result` (with late: only when the log goes, then KG_READ_EXPIRED) */
    KG_READ_EXPIRED, /* the log was removed; what was begun is not completed */
} kg_read_t;

typedef struct kg_read_piece {
    kg_event_type_t type;
    uint32_t seq;
    bool begin; /* first piece of an event: its text begins with '{' */
    bool end;   /* last piece: its text ends with '}' */
} kg_read_piece_t;

/* after: seq of the last event that the client has, or KG_READ_FROM_START; where the run
 * goes on, past the end means all that is still to come, for nobody can have had it. late: follow
 * past `result` until the log is removed; else the stream ends there, and when `after` is the
 * result or beyond, at once. Takes a reference of the log. */
int kg_run_reader_create(kg_run_log_t *log, int64_t after, bool late, kg_run_reader_t **ret_reader);
/* The Execution alone, as one object without seq and type, with late output in it and `late` as it
 * is now. -EAGAIN when the run has not finished, -ESTALE when expired. Yields KG_READ_END after its
 * last piece. */
int kg_run_reader_execution(kg_run_log_t *log, kg_run_reader_t **ret_reader);
void kg_run_reader_destroy(kg_run_reader_t **reader); /* NULL ok */

/* Appends at most max (> 0) bytes, all of one event, to out; fewer where they take long to find.
 * Returns a kg_read_t, or -errno (-EIO, -ENOMEM; the reader is then dead and says the same again).
 * A piece may end in the middle of a UTF-8 sequence. */
int kg_run_reader_next(kg_run_reader_t *reader,
                       kg_buf_t *out,
                       size_t max,
                       kg_read_piece_t *ret_piece);
/* seq of the event that is being yielded, or will be next. */
uint64_t kg_run_reader_seq(const kg_run_reader_t *reader);

#endif
