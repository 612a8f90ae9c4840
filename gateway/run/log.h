/* A run's log: append-only typed events that end with one `result` (late output may follow), in a
 * slot of a pack (pack.h) while they are few, else in a file *.log (0600) of their own.
 *
 * Events are gathered in memory and become visible to readers at kg_run_log_flush, which writes
 * first: what a client was shown survives kill -9. The owner calls flush at the end of each loop
 * turn for logs that were reported by `dirty`. Text of one stream that was not published yet is
 * joined up to KG_RUN_TEXT_MAX an event; displays never are. A log that cannot be written (full
 * disk) goes on in memory with what is essential; what is lost is counted and told by a `truncated`
 * event. All calls belong to one thread, but for kg_run_log_recover, which touches only what it
 * returns. */
#ifndef KG_RUN_LOG_H
#define KG_RUN_LOG_H

#include "gateway/base/err.h"
#include "gateway/base/id.h"
#include "gateway/run/limits.h"
#include "gateway/run/pack.h"
#include "gateway/run/spare.h"

typedef struct kg_run_log kg_run_log_t;

typedef enum kg_event_type {
    KG_EVENT_META, /* never seen by clients */
    KG_EVENT_QUEUED,
    KG_EVENT_STARTED,
    KG_EVENT_STDOUT,
    KG_EVENT_STDERR,
    KG_EVENT_DISPLAY,
    KG_EVENT_UPDATE,
    KG_EVENT_CLEAR,
    KG_EVENT_INPUT,
    KG_EVENT_ERROR,
    KG_EVENT_TRUNCATED,
    KG_EVENT_RESULT,
    KG_EVENT_COUNT
} kg_event_type_t;
const char *kg_event_name(kg_event_type_t type); /* "stdout" */

typedef enum kg_run_status {
    KG_RUN_OK,
    KG_RUN_ERROR,
    KG_RUN_TIMEOUT,
    KG_RUN_INTERRUPTED,
    KG_RUN_ABORTED,
    KG_RUN_OOM,
    KG_RUN_KILLED,
    KG_RUN_EXITED,
    KG_RUN_OUTPUT_LIMIT,
    KG_RUN_GATEWAY_RESTART,
    KG_RUN_STATUS_COUNT
} kg_run_status_t;
const char *kg_run_status_name(kg_run_status_t status); /* "output_limit" */

/* Kinds of what can be cut. */
typedef enum kg_cut {
    KG_CUT_STDOUT,
    KG_CUT_STDERR,
    KG_CUT_RESULT,
    KG_CUT_EVENTS,
    KG_CUT_COUNT
} kg_cut_t;
const char *kg_cut_name(kg_cut_t cut); /* "stdout" */

/* What is known of a run from its birth. Strings are borrowed on create (copied), borrowed from the
 * log on get; NULL = "". */
typedef struct kg_run_meta {
    const char *run; /* a run id, else create fails with -EINVAL */
    const char *sandbox;
    const char *context;
    const char *owner;
    const char *language;  /* "r" has rules of its own for text */
    const char *key;       /* idempotency key, "" = none */
    const char *code_hash; /* to tell key_reused, "" = none */
    const char
        *command; /* of a command (command.h): JSON text of its owner's; "" = a run of code */
    uint64_t created_wall_ns;
    uint32_t retain_s;
    uint64_t timeout_ms; /* that the run was given; 0 = none */
    bool ansi;           /* keep ANSI in text and tracebacks */
    bool silent;         /* no results, execution_count null */
} kg_run_meta_t;

typedef void kg_run_dirty_fn(void *user, kg_run_log_t *log);

typedef struct kg_run_log_opts {
    int dirfd;               /* directory of the logs; borrowed, must outlive the log */
    kg_run_spares_t *spares; /* files made ahead, of the same directory; borrowed, NULL ok */
    kg_run_packs_t *packs;   /* of the same directory; borrowed, NULL = each has its own file */
    kg_run_dirty_fn
        *dirty; /* called when the first thing waits for a flush; NULL ok. Must not flush inside. */
    void *user;
} kg_run_log_opts_t;

/* Costs no system call: a place on the disk is taken by the first flush. The reference is the
 * caller's. -EINVAL, -ENOMEM. */
int kg_run_log_create(const kg_run_log_opts_t *opts,
                      const kg_run_meta_t *meta,
                      kg_run_log_t **ret_log);
kg_run_log_t *kg_run_log_ref(kg_run_log_t *log);
void kg_run_log_unref(kg_run_log_t **log); /* NULL ok. The file stays; see kg_run_log_remove. */

/* Opens a log file after a restart: checks every record, cuts a torn tail.
 * -EBADMSG when it is no log or holds no meta record (the caller may unlink it), -errno of I/O.
 * dirty and flush work as for a new one. */
int kg_run_log_recover(const kg_run_log_opts_t *opts,
                       const char *name,
                       kg_run_log_t **ret_log,
                       kg_err_t *err);
/* The same of a slot of a pack, which is the log's when there is one, else the caller's still. */
int kg_run_log_recover_slot(const kg_run_log_opts_t *opts,
                            kg_run_slot_t slot,
                            kg_run_log_t **ret_log,
                            kg_err_t *err);
/* Ends a recovered unfinished log: what was printed is kept, then `error` (GatewayRestart),
 * `result` with status gateway_restart. lost: the context's variables are gone; else its kernel
 * lives on, and that output is missing is told. Not flushed yet. 0
 * when it was finished already. */
int kg_run_log_finish_recovered(kg_run_log_t *log, bool lost);

/* Writes and publishes what was appended, then calls the watchers. Cheap when there is nothing. 0,
 * or the -errno that broke the log (told once; the log goes on without its file). */
int kg_run_log_flush(kg_run_log_t *log);
/* Whether what was appended since the last flush may wait a moment for more, to be written and sent
 * with it: it is less than KG_RUN_WAIT_BYTES, and neither the end nor a question to the client. */
bool kg_run_log_may_wait(const kg_run_log_t *log);
/* Whether that is `queued` or `started` alone. */
bool kg_run_log_only_starts(const kg_run_log_t *log);
/* Writes what waits, when `queued` or `started` is among it: that there is a run is to survive the
 * gateway from that moment on. Readers see it with the flush. */
void kg_run_log_save_start(kg_run_log_t *log);
/* Writes all that waits, without showing it: that there is a run, and its key, is to survive the
 * gateway before anybody is asked to run it. */
void kg_run_log_save(kg_run_log_t *log);
/* What it is in goes: emptied, unlinked, or left to the spares. Readers get KG_READ_EXPIRED
 * (watchers are called), appends are ignored. */
void kg_run_log_remove(kg_run_log_t *log);

/* A finished log in a budget (budget.h) that nobody reads, watches or may append to comes to rest,
 * if it is no larger than KG_RUN_REST_MAX: no more of it is in memory than lists and budgets ask
 * for. The first reader or mapper wakes it: its file is read again. This does so for a caller that
 * asks for its meta; it lasts until somebody who needs the log has come and gone. 0 also when it is
 * awake. -ENOMEM; -ESTALE when it has expired; -EIO, -errno when the file is gone or is not what it
 * was. */
int kg_run_log_wake(kg_run_log_t *log);

/* Getters; strings until the log goes or rests. */
const char *kg_run_log_id(const kg_run_log_t *log); /* its run's */
uint64_t kg_run_log_created_wall_ns(const kg_run_log_t *log);
const kg_run_meta_t *kg_run_log_meta(const kg_run_log_t *log); /* NULL of a log at rest */
uint64_t kg_run_log_size(const kg_run_log_t *log); /* bytes on disk, with those not yet written */
uint64_t kg_run_log_next_seq(const kg_run_log_t *log);       /* published events */
bool kg_run_log_started(const kg_run_log_t *log);            /* a `started` event is in it */
int64_t kg_run_log_execution_count(const kg_run_log_t *log); /* of its `started`; -1 = none */
bool kg_run_log_finished(const kg_run_log_t *log);           /* `result` is published */
bool kg_run_log_expired(const kg_run_log_t *log);
bool kg_run_log_late(const kg_run_log_t *log); /* output came after the result */
bool kg_run_log_broken(const kg_run_log_t *log);
kg_run_status_t kg_run_log_status(const kg_run_log_t *log);    /* of a finished one */
uint64_t kg_run_log_finished_wall_ns(const kg_run_log_t *log); /* 0 = not finished */

/* A listener: fn is called from kg_run_log_flush and kg_run_log_remove when there is something new
 * (events, the end, expiry). Embedded by its owner, who unwatches before it goes. Inside fn:
 * unwatch of any watch, reading, unref are legal; flush and append of the same log are not. */
typedef void kg_run_watch_fn(void *user);
typedef struct kg_run_watch {
    kg_run_watch_fn *fn;
    void *user;
    struct kg_run_watch *prev, *next; /* the log's */
} kg_run_watch_t;
void kg_run_log_watch(kg_run_log_t *log, kg_run_watch_t *watch);
void kg_run_log_unwatch(kg_run_log_t *log, kg_run_watch_t *watch); /* ok when not watching */

#endif
