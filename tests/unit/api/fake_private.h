/* Inside of the fake core: what fake_core.c and fake_runs.c share. */
#ifndef KG_TEST_API_FAKE_PRIVATE_H
#define KG_TEST_API_FAKE_PRIVATE_H

#include "fake_core.h"
#include "gateway/run/reader.h"

typedef struct wait {
    void *user;
    kg_sandbox_fn *sandbox;
    kg_context_fn *context;
    kg_done_fn *done;
    kg_context_reply_fn *reply;
    struct wait *prev, *next;
} wait_t;

struct kg_sandbox {
    kg_core_t *core;
};
struct kg_context {
    kg_core_t *core;
};
struct kg_run {
    kg_core_t *core;
};
struct kg_store {
    int unused;
};
struct kg_template {
    int unused;
};

typedef struct event {
    kg_event_type_t type;
    char *text;
} event_t;

struct kg_run_log {
    kg_core_t *core;
    event_t *events;
    size_t count;
    bool finished;
    bool expired;
    bool late;
    size_t result; /* index of the result */
    kg_run_watch_t *watches;
};

struct kg_run_reader {
    kg_run_log_t *log;
    uint64_t next;
    size_t offset;
    bool late;
    bool over;
    bool execution;
    char *text;
};

struct kg_core {
    kg_sandbox_t sandbox;
    kg_context_t context;
    kg_run_t run;
    bool have_run;
    kg_run_log_t log;
    size_t piece;
    wait_t *waits;
    kg_err_code_t ready;
    kg_store_t store;
    kg_template_t template;
    fake_stats_t stats;
    char metadata[8][2][128];
};

void fake_log_clear(kg_run_log_t *log);
void fake_look_reset(void);

#endif
