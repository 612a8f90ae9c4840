/* Runs: one execution of code each, queued in its context, logged in its kg_run_log_t. */
#ifndef KG_CONTEXT_RUN_H
#define KG_CONTEXT_RUN_H

#include "gateway/context/core.h"
#include "gateway/run/log.h"

/* What one run or command may ask for, in seconds. */
enum {
    KG_RUN_TIMEOUT_MAX_S = 7 * 24 * 3600,
    KG_RUN_RETAIN_MAX_S = 24 * 3600,
};

typedef enum kg_on_input {
    KG_ON_INPUT_DEFAULT,
    KG_ON_INPUT_WAIT,
    KG_ON_INPUT_ERROR
} kg_on_input_t;
typedef enum kg_on_exceed_asked {
    KG_ON_EXCEED_DEFAULT, /* the template's */
    KG_ON_EXCEED_TRUNCATE,
    KG_ON_EXCEED_STOP
} kg_on_exceed_asked_t;
typedef enum kg_on_disconnect {
    KG_ON_DISCONNECT_DEFAULT, /* detach for streams, else interrupt */
    KG_ON_DISCONNECT_DETACH,
    KG_ON_DISCONNECT_INTERRUPT,
    KG_ON_DISCONNECT_KILL
} kg_on_disconnect_t;

/* Of a client that is attached to the kernel itself (attach.h): what its execute_request says
 * beside the code. Borrowed for the call. */
typedef struct kg_run_client_opts {
    struct kg_attach *attach;
    kg_slice_t header;           /* canonical, of the request */
    kg_slice_t user_expressions; /* canonical object */
    kg_slice_t metadata;         /* likewise */
    bool silent, store_history, stop_on_error;
} kg_run_client_opts_t;

/* Borrowed for the call. Zero-initialise, then set timeout_ms and retain_s to -1 for the defaults.
 */
typedef struct kg_run_opts {
    kg_slice_t code;      /* UTF-8 */
    const char *context;  /* id or name; NULL = the language's default context, made on first use */
    const char *language; /* NULL = the template's main one */
    bool stream;          /* only chooses defaults */
    int64_t timeout_ms;   /* -1 = default, 0 = none */
    const json_t *env;    /* this run only: an object of strings */
    const char *cwd;      /* this run only */
    const json_t *stdin_lines; /* an array of strings, or one string with lines */
    kg_on_input_t on_input;
    kg_on_disconnect_t on_disconnect;
    bool silent;
    bool ansi;
    uint64_t output_bytes, result_bytes, events; /* 0 = default; over the operator's cap: 400 */
    kg_on_exceed_asked_t on_exceed;
    const char *key;                    /* idempotency, in the sandbox */
    int64_t retain_s;                   /* -1 = default */
    const kg_run_client_opts_t *client; /* or NULL */
} kg_run_opts_t;

/* Queues a run and returns it at once; what happens is in its log. A kernel that has to be started
 * first is waited for within the run. *ret_existing (may be NULL): `key` was seen before and this
 * is that run. */
int kg_run_new(kg_sandbox_t *sandbox,
               const kg_run_opts_t *opts,
               kg_run_t **ret_run,
               bool *ret_existing,
               kg_err_t *err);
kg_run_t *kg_run_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err);

const char *kg_run_id(const kg_run_t *run);
const char *kg_run_context_id(const kg_run_t *run);
kg_sandbox_t *kg_run_sandbox(const kg_run_t *run); /* NULL once the sandbox has been deleted */
bool kg_run_ended(const kg_run_t *run);
bool kg_run_expired(const kg_run_t *run); /* the log is gone: events answer 410 */
/* Its log, for readers and watches of the run room; it takes references of its own. NULL when
 * expired. Logs are flushed (and watches called) before the loop sleeps. */
kg_run_log_t *kg_run_log_of(kg_run_t *run);

/* The Execution as JSON text (of any size: views stream it with kg_run_reader_execution instead).
 * Of a run that has not ended:
 * {"run","context","status":"queued"|"running"|"waiting", …}. Of an expired one: without its
 * outputs ("expired":true). */
int kg_run_execution(kg_run_t *run, kg_buf_t *out);
typedef struct kg_run_filter {
    const char
        *context;   /* id or name, the id also of one that has gone; NULL = all of the sandbox */
    unsigned limit; /* 0 = 100; at most 1000 */
    const char *after;
} kg_run_filter_t;
/* {"items":[…],"next":…}, newest first: Executions without outputs. A context that the sandbox has
 * not, and no run of it, is -ENOENT, context_not_found. */
int kg_run_list(kg_sandbox_t *sandbox, const kg_run_filter_t *filter, kg_buf_t *out, kg_err_t *err);

/* Answers input(). 409 not_waiting when the run doesn't wait for it. */
int kg_run_input(kg_run_t *run, kg_slice_t value, kg_err_t *err);
/* DELETE: a running run is interrupted (then killed after the grace), a queued one ends without
 * having started; ended: 0. */
int kg_run_interrupt(kg_run_t *run, kg_err_t *err);

/* A client follows this run, and has read it to its end before it detaches (a deleted sandbox's log
 * goes then). While attached the object stays valid, also after its sandbox has gone. When the last
 * one detaches from a run that is still going, its on_disconnect acts. */
void kg_run_attach(kg_run_t *run);
void kg_run_detach(kg_run_t **run); /* NULL ok; NULLs the pointer */

#endif
