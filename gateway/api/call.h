/* One call of an operation: who asks, with which checked arguments, and the way back to the
 * transport. A handler answers each call exactly once, at once or from a callback of the context
 * room; the call is freed by that. */
#ifndef KG_API_CALL_H
#define KG_API_CALL_H

#include <jansson.h>

#include "gateway/api/auth.h"
#include "gateway/api/op.h"
#include "gateway/base/buf.h"
#include "gateway/base/source.h"
#include "gateway/context/context.h"
#include "gateway/context/core.h"
#include "gateway/context/run.h"
#include "gateway/context/sandbox.h"

typedef struct kg_api kg_api_t;
typedef struct kg_idem_entry kg_idem_entry_t;

#define KG_ANSWER_HEADERS 8
typedef struct kg_answer_header {
    const char *name;
    const char *value;
} kg_answer_header_t;

/* Borrowed for the call of reply. */
typedef struct kg_answer {
    int status;
    const char *type;                  /* NULL = JSON */
    kg_slice_t body;                   /* empty with 204 */
    const char *location;              /* with 201, else NULL */
    const kg_answer_header_t *headers; /* of HTTP; at most KG_ANSWER_HEADERS; not remembered */
    size_t header_count;
} kg_answer_t;

/* An answer that goes on: the source's bytes, or its events. */
typedef struct kg_give {
    kg_source_t *source; /* the transport's from here on */
    bool events;
    int64_t length;   /* of bytes; -1 = not known */
    kg_answer_t head; /* without a body */
} kg_give_t;

/* A run to show: its events, or (events false) its Execution once it has ended. The transport
 * attaches. */
typedef struct kg_follow {
    kg_run_t *run;
    int64_t after; /* seq after which to begin, -1 = from the start */
    bool events;
    bool late; /* goes on after the result */
} kg_follow_t;

/* The transport's side, static; user is the one given to kg_api_call. One of them is called, once,
 * and the transport's pointer to the call is dead after it. It may happen before kg_api_call
 * returns. */
typedef struct kg_call_view {
    void (*reply)(void *user, const kg_answer_t *answer);
    void (*fail)(void *user, const kg_err_t *err);
    void (*follow)(void *user, const kg_follow_t *follow);
    void (*give)(void *user, const kg_give_t *give);
    /* Of transports that bring and take bytes as they are (HTTP), else NULL. body: more(more_user)
     * runs when take has something again; returns how much there is in all. */
    uint64_t (*body)(void *user, kg_fn *more, void *more_user);
    void (*take)(void *user, kg_buf_t *out, bool *ret_end);
} kg_call_view_t;

/* Open to this room's handlers alone. sandbox, context and run are those that the path names, found
 * and allowed before the handler runs, and valid during the handler only. */
struct kg_call {
    kg_api_t *api;
    kg_core_t *core;
    const kg_op_t *op;
    json_t *args;
    kg_principal_t who;
    kg_sandbox_t *sandbox;
    kg_context_t *context;
    kg_run_t *run;
    kg_idem_entry_t *idem; /* this call works on it, or waits for it */
    kg_call_t *idem_next;
    bool waits;                 /* for another call with its idempotency key */
    kg_call_t **self;           /* set to NULL when the call ends inside kg_api_call */
    const kg_call_view_t *view; /* NULL when the client has gone */
    void *user;
    void *work; /* the handler's */
    void (*work_free)(void *work);
    kg_call_t *prev, *next; /* pending calls of the api */
};

/* Each ends the call. json NULL = out of memory. */
void kg_call_json_take(kg_call_t *call, int status, json_t *json);
void kg_call_created_take(kg_call_t *call, json_t *json, const char *location);
void kg_call_text(kg_call_t *call, const kg_answer_t *answer);
void kg_call_none(kg_call_t *call); /* 204 */
void kg_call_fail(kg_call_t *call, const kg_err_t *err);
void kg_call_follow(kg_call_t *call, const kg_follow_t *follow);
/* HTTP: answers may be bytes. Else they are JSON, whatever the flags of the operation say. */
bool kg_call_raw(const kg_call_t *call);
/* The bytes of a raw request: what is given here is to be told of more. Once, with KG_OP_RAW_IN and
 * kg_call_raw. */
void kg_call_body(kg_call_t *call, kg_fn *more, void *user, kg_intake_t *ret_intake);
uint64_t kg_call_body_length(kg_call_t *call);
void kg_call_give(kg_call_t *call, const kg_give_t *give); /* ends the call, takes the source */
/* kg_done_fn of the context room; user is the call: 204, or the failure. */
void kg_call_done(void *user, const kg_err_t *err);
/* For `rc < 0` of the context room: fails the call, with the reason if err has one. */
void kg_call_fail_rc(kg_call_t *call, int rc, const kg_err_t *err);

/* Arguments by name: NULL / standard when absent. */
const char *kg_call_string(const kg_call_t *call, const char *name);
bool kg_call_bool(const kg_call_t *call, const char *name, bool standard);
int64_t kg_call_int(const kg_call_t *call, const char *name, int64_t standard);
double kg_call_number(const kg_call_t *call, const char *name, double standard);
json_t *kg_call_json(const kg_call_t *call, const char *name); /* borrowed */
/* Seconds that may have a fraction, in ms, rounded up. */
int64_t kg_call_ms(const kg_call_t *call, const char *name, int64_t standard);

#endif
