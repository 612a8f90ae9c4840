/* Budgets of finished logs: by sandbox and by daemon. Over one, logs go: first those whose `retain`
 * has passed, then the oldest, by their end; those that somebody reads only for the daemon's. An
 * expired run's Execution without outputs stays for an hour (slim). */
#ifndef KG_RUN_BUDGET_H
#define KG_RUN_BUDGET_H

#include "gateway/base/buf.h"
#include "gateway/run/log.h"

typedef struct kg_run_budget kg_run_budget_t;

/* Called before a log is removed, which may be at rest: its owner drops its own references. */
typedef void kg_run_budget_fn(void *user, kg_run_log_t *log);

typedef struct kg_run_budget_opts {
    uint64_t sandbox_bytes; /* 0 = KG_RUN_BUDGET_SANDBOX */
    uint64_t daemon_bytes;  /* 0 = KG_RUN_BUDGET_DAEMON */
    uint64_t
        keep_s; /* a finished log goes at this age anyway (never before its retain); 0 = one day */
    kg_run_budget_fn *expired; /* NULL ok */
    void *user;
} kg_run_budget_opts_t;

int kg_run_budget_create(const kg_run_budget_opts_t *opts, kg_run_budget_t **ret_budget);
void kg_run_budget_destroy(kg_run_budget_t **budget); /* files stay */

/* Takes a reference of a finished (published) log, which comes to rest (log.h) unless somebody
 * needs it, and makes room. now: wall clock. A log is in one budget at most: -EINVAL. */
int kg_run_budget_add(kg_run_budget_t *budget, kg_run_log_t *log, uint64_t now_wall_ns);
/* A finished log grew (late output). */
void kg_run_budget_update(kg_run_budget_t *budget, kg_run_log_t *log, uint64_t now_wall_ns);
/* Removes all logs (and slims) of a sandbox that ended for good, as if expired, without slims. */
void kg_run_budget_drop_sandbox(kg_run_budget_t *budget, const char *sandbox);
/* What time alone does; call about once a minute. */
void kg_run_budget_tick(kg_run_budget_t *budget, uint64_t now_wall_ns);

uint64_t kg_run_budget_bytes(const kg_run_budget_t *budget);
uint64_t kg_run_budget_sandbox_bytes(const kg_run_budget_t *budget, const char *sandbox);
size_t kg_run_budget_count(const kg_run_budget_t *budget);

/* The Execution of an expired run, without outputs and with "expired":true. NULL when unknown.
 * Borrowed until the next call of anything else here. */
typedef struct kg_run_slim {
    const char *run, *sandbox, *owner;
    kg_slice_t json;
} kg_run_slim_t;
const kg_run_slim_t *kg_run_budget_slim(kg_run_budget_t *budget, const char *run);

/* Appends the Execution without its outputs; expired: with "expired":true. -EAGAIN when not
 * finished, -ESTALE when expired already. */
int kg_run_log_slim(kg_run_log_t *log, bool expired, kg_buf_t *out);

#endif
