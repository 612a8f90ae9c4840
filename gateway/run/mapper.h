/* Kernel messages -> events of a run's log. Two steps: kg_mapper_prepare does all heavy work on a
 * message and is pure (a worker may run it for a big one); kg_mapper_apply, on the loop's thread,
 * appends what was prepared, with the run's limits.
 *
 * Choices where the contract is silent:
 *  - output_bytes counts for each stream; result_bytes for all results (updates too) of the run
 * together.
 *  - A result past result_bytes keeps the formats that fit, smallest first; none: it stays, with
 * formats {}.
 *  - clear_output removes stdout, stderr and results so far from the Execution (not from the
 * events); wait: when the next output comes. The `clear` event itself comes at once.
 *  - display(display_id=True) without data is a result of type text/plain with data "" and formats
 * {}.
 *  - An iopub `error` of a run whose reply is ok (a failing __repr__) becomes stderr text at the
 * end.
 *  - A pager's text (x?) is the run's main result when it has no other; set_next_input's text is a
 * result.
 *  - stdout and stderr events keep ANSI; text, output and (unless ansi) tracebacks don't. */
#ifndef KG_RUN_MAPPER_H
#define KG_RUN_MAPPER_H

#include "gateway/run/log.h"
#include "proto/wire.h"

/* What prepare needs; shared by all messages of a run, read only, must outlive every prepare. */
typedef struct kg_mapper_opts {
    kg_run_limits_t limits;
    bool ansi;
    bool silent;
    /* Mime types from rich to poor, each with at most one '*'; NULL = the contract's order. */
    const char *const *order;
    size_t order_len;
} kg_mapper_opts_t;

typedef struct kg_mapped kg_mapped_t;
/* msg is borrowed for the call. NULL only for want of memory. Thread-safe. */
kg_mapped_t *kg_mapper_prepare(const kg_mapper_opts_t *opts, const kg_jmsg_t *msg);
void kg_mapped_destroy(kg_mapped_t **mapped); /* NULL ok */
/* Whether its memory is so large (>= 4 MiB) that freeing it belongs on a worker, and may be done
 * there. */
bool kg_mapped_heavy(const kg_mapped_t *mapped);
/* Whether a message is big enough (>= 1 MiB of content) that prepare belongs on a worker. */
bool kg_mapper_heavy(const kg_jmsg_t *msg);

/* The display ids of one context, over all its runs. */
typedef struct kg_displays kg_displays_t;
int kg_displays_create(kg_displays_t **ret_displays);
void kg_displays_destroy(kg_displays_t **displays);
void kg_displays_clear(kg_displays_t *displays); /* the kernel was replaced */

/* Called from kg_mapper_apply and kg_mapper_text. Inside: no call of the same mapper but the
 * getters. */
typedef struct kg_mapper_sink {
    /* input_request: prompt decoded (UTF-8, may hold NUL), parent_header canonical JSON of the
     * request's own header, for kg_reply_input. The owner decides; where the client shall answer it
     * calls kg_mapper_input after this returns. */
    void (*input)(void *user, kg_slice_t prompt, bool password, kg_slice_t request_header);
    /* A limit with on_exceed stop was passed (once): end the run with KG_RUN_OUTPUT_LIMIT. */
    void (*stop)(void *user, kg_cut_t what);
    void *user;
} kg_mapper_sink_t;

/* One run's mapper. Borrows opts, displays and sink's user; takes a reference of the log, which
 * stays awake with it. displays may be NULL. -ENOMEM; of a log at rest (log.h) -ESTALE, -errno of
 * I/O. */
typedef struct kg_mapper kg_mapper_t;
int kg_mapper_create(const kg_mapper_opts_t *opts,
                     kg_run_log_t *log,
                     kg_displays_t *displays,
                     const kg_mapper_sink_t *sink,
                     kg_mapper_t **ret_mapper);
void kg_mapper_destroy(kg_mapper_t **mapper); /* NULL ok; does not finish the run */
kg_run_log_t *kg_mapper_log(kg_mapper_t *mapper);

/* 0 = done; 1 = more of it waits (a budget of KG_RUN_APPLY_BYTES was used): call again, later,
 * before any other message of this context; -ENOMEM. After kg_mapper_finish, output goes to the log
 * as late. */
int kg_mapper_apply(kg_mapper_t *mapper, kg_mapped_t *mapped);
/* A text of many MiB can be written before it is known whether its message may be believed: a
 * worker puts its events behind the end of the log's file, where neither readers nor a recovery see
 * them, and kg_mapper_apply takes them in. Whatever else comes to the log meanwhile makes that
 * void; then apply writes as always. */
typedef struct kg_ahead kg_ahead_t;
/* On the loop, when all before the message was applied. NULL where it cannot be done. */
kg_ahead_t *kg_mapper_ahead(kg_mapper_t *mapper);
/* On a worker, once: as much of mapped as the run's limits let in. The file is locked against the
 * loop for 1 MiB at a time. */
void kg_ahead_write(kg_ahead_t *ahead, kg_mapped_t *mapped);
/* On the loop, for each, when the message was delivered or dropped. What was written for a mapped
 * that is gone goes. NULL ok. */
void kg_ahead_release(kg_ahead_t **ahead);

/* Text that came by the kernel's own stdout or stderr pipe; UTF-8 (see kg_utf8_stream). Of any
 * size; small ones join. */
int kg_mapper_text(kg_mapper_t *mapper, bool is_stderr, kg_slice_t utf8);

/* Events that the owner tells. */
int kg_mapper_queued(kg_mapper_t *mapper, size_t position);
/* execution_count: the gateway's own count; < 0 = null. */
int kg_mapper_started(kg_mapper_t *mapper, int64_t execution_count);
int kg_mapper_input(kg_mapper_t *mapper, kg_slice_t prompt, bool password);

typedef enum kg_reply_status {
    KG_REPLY_NONE,
    KG_REPLY_OK,
    KG_REPLY_ERROR,
    KG_REPLY_ABORTED,
    KG_REPLY_ABORT
} kg_reply_status_t;

/* What the kernel said of this run so far. */
typedef struct kg_mapper_state {
    bool busy;               /* status busy seen */
    bool idle;               /* status idle seen */
    bool input_seen;         /* execute_input seen */
    bool ask_exit;           /* the reply asks the front end to leave: exit(), quit() */
    bool error_seen;         /* an iopub error; not a failure by itself */
    int64_t input_count;     /* the kernel's, of execute_input; < 0 = unknown */
    int64_t reply_count;     /* of the first reply; smaller: this run had no number after all */
    kg_reply_status_t reply; /* the first one */
    unsigned replies;
} kg_mapper_state_t;
const kg_mapper_state_t *kg_mapper_state(const kg_mapper_t *mapper);

#define KG_USAGE_UNKNOWN UINT64_MAX /* rendered as null */
typedef struct kg_run_usage {
    uint64_t queued_ms, wall_ms, cpu_ms, peak_memory;
} kg_run_usage_t;

/* How a run ended, as its owner knows. */
typedef struct kg_run_end {
    /* KG_RUN_OK = "as the reply says": ok, error, aborted, or interrupted for "abort"; without a
     * reply an error. */
    kg_run_status_t status;
    bool started;        /* error.started */
    bool lost;           /* error.state "lost" */
    int exit_code;       /* KG_RUN_EXITED */
    int signal;          /* KG_RUN_KILLED, KG_RUN_OOM; 0 = unknown */
    const char *name;    /* NULL = the contract's or the kernel's name */
    const char *message; /* NULL = made from the above */
    kg_run_usage_t usage;
    uint64_t wall_ns; /* wall clock of the end */
} kg_run_end_t;

/* Appends tails, `error` and `result`; once (-EALREADY). Not flushed yet. */
int kg_mapper_finish(kg_mapper_t *mapper, const kg_run_end_t *end);
/* For the log of an earlier gateway, which kg_run_log_finish_recovered has ended: what is applied
 * from now on is late. */
void kg_mapper_ended(kg_mapper_t *mapper);
bool kg_mapper_finished(const kg_mapper_t *mapper);
/* Status that finish gave; KG_RUN_OK before. */
kg_run_status_t kg_mapper_status(const kg_mapper_t *mapper);

#endif
