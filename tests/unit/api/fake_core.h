/* A core, a store and run logs made of memory, to drive api and view without kernels. One per
 * process: link instead of the context, store and run rooms. Two owners: alice has the sandbox
 * "sbx-alice" (name "box", context FAKE_CONTEXT named "main"), bob has none. Keys: key-alice (use),
 * key-bob (use), key-admin (admin, owner alice), key-attach (alice, attach:sbx-alice), key-other
 * (alice, attach:sbx-other), key-old (expired). */
#ifndef TESTS_FAKE_CORE_H
#define TESTS_FAKE_CORE_H

#include "gateway/context/attach.h"
#include "gateway/context/command.h"
#include "gateway/context/context.h"
#include "gateway/context/core.h"
#include "gateway/context/files.h"
#include "gateway/context/run.h"
#include "gateway/context/sandbox.h"
#include "gateway/context/template.h"

#define FAKE_SANDBOX "sbx-alice"
#define FAKE_CONTEXT "0a0a0a0a-0000-8000-8000-000000000001"
#define FAKE_RUN "run-1"

typedef struct fake_stats {
    unsigned key_checks;
    unsigned sandboxes_made;
    unsigned runs_made;
    unsigned attached; /* now */
    unsigned readers;  /* now */
    unsigned watches;  /* now */
    unsigned forgotten;
    unsigned dropped; /* sandboxes, without waiting for their end */
    unsigned interrupts;
    char input[64]; /* of the last kg_run_input */
    char last_code[64];
    kg_run_opts_t last_run; /* its pointers are dead */
    double last_timeout;
} fake_stats_t;

kg_core_t *fake_core_new(void);
/* Of the sandbox. */
void fake_core_metadata(kg_core_t *core, const char *key, const char *value);
void fake_core_free(kg_core_t **core);
fake_stats_t *fake_stats(kg_core_t *core);
/* What kg_core_ready says; KG_ERR_NONE = ready. */
void fake_core_set_ready(kg_core_t *core, kg_err_code_t code);
/* Runs every callback that waits (creates, deletes, resets, completions). Fails them when code is
 * set. */
unsigned fake_core_fire(kg_core_t *core, kg_err_code_t code);

/* The one run FAKE_RUN: events as JSON bodies without run, seq
 * ("\"type\":\"stdout\",\"text\":\"a\""). */
kg_run_t *fake_run(kg_core_t *core);
void fake_run_event(kg_core_t *core, kg_event_type_t type, const char *members);
void fake_run_finish(kg_core_t *core); /* result, status ok */
void fake_run_expire(kg_core_t *core);
void fake_run_flush(kg_core_t *core); /* calls the watches */
/* What the last command was asked for and told; opts' pointers are dead. */
typedef struct fake_command {
    kg_command_opts_t opts;
    char cmd[64];
    char input[64];
    char signal[32];
    bool eof;
    unsigned columns, rows;
} fake_command_t;
fake_command_t *fake_command(void);
/* What was last asked of files. One file, "hello files", and one upload, "upl-1". */
typedef struct fake_files {
    char path[4200];
    char to[4200];
    char written[256];
    uint32_t mode;
    bool flag;    /* follow, parents, overwrite, recursive */
    bool creates; /* what a write says */
    unsigned depth, limit;
    unsigned mores;  /* times that a taker was told of more */
    unsigned events; /* that the watch gives */
    bool watch_over; /* and then it ends */
    kg_source_t *watch;
    int open;       /* files and watches that somebody has */
    uint64_t bytes; /* announced of a piece */
    uint64_t size;
} fake_files_t;
fake_files_t *fake_files(void);
/* Answers what waits (or fails it); takes what writes bring. */
unsigned fake_files_fire(kg_err_code_t code);
void fake_files_event(void);
void fake_files_reset(void);
unsigned fake_files_forget(const void *user); /* NULL: all */
/* Clients at the context's kernel; to be zeroed before use. */
typedef struct fake_attach {
    kg_attach_t *latest; /* that was opened and is not closed */
    unsigned open, greeted, sent;
    unsigned expecting;             /* a restart */
    unsigned keeping, missed, left; /* since they were set to 0 */
    char name[KG_AWAY_NAME_MAX];    /* by which that one comes back */
    bool full, refuse;              /* what open and send say */
    /* of what was sent last */
    kg_channel_t channel;
    size_t buffers;
    char header[256];
} fake_attach_t;
fake_attach_t *fake_attach(void);
/* To the latest. */
void fake_attach_message(const kg_ws_msg_t *msg);
void fake_attach_end(bool deleted);
int fake_attach_shutdown(bool restart);
/* Jobs of workers and later turns of the loop wait until this runs them; returns how many. */
unsigned fake_work_run(void);
/* Longest piece that a reader gives. */
void fake_run_piece(kg_core_t *core, size_t max);

#endif
