/* A whole core for tests: private keeper, `none` launcher, Debian's ipykernel, everything below one
 * directory of its own. */
#ifndef KG_TESTS_CONTEXT_RIG_H
#define KG_TESTS_CONTEXT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/context/context.h"
#include "gateway/context/run.h"
#include "gateway/context/sandbox.h"
#include "gateway/context/template.h"

typedef struct rig {
    char dir[64];
    char state[96], runtime[96], templates[96];
    kg_loop_t *loop;
    kg_keeper_t *keeper;
    pid_t keeper_pid;
    unsigned uid_base; /* of this directory, over restarts */
    kg_store_t *store;
    kg_core_t *core;
    kg_timer_t *poll;
    bool (*pred)(void *arg);
    void *pred_arg;
    uint64_t give_up_ns, give_up_after_ns;
    bool timed_out;
    /* what callbacks brought */
    bool called;
    kg_err_t err;
    kg_sandbox_t *sandbox;
    kg_context_t *context;
    char reply[65536];
} rig_t;

#define OWNER "ann"

void rig_dirs(rig_t *rig);  /* directories and templates */
void rig_start(rig_t *rig); /* keeper, store, core */
void rig_stop_core(rig_t *rig);
void rig_stop(rig_t *rig);   /* all of it, without drain */
void rig_remove(rig_t *rig); /* files */

/* Turns the loop until pred or ms; fails the test when time is over, which stretches with the
 * machine's load. Returns the ms it took. */
uint64_t rig_until(rig_t *rig, bool (*pred)(void *arg), void *arg, unsigned ms);
/* Lets time pass: for what is to be shown not to happen, never for what is to happen. */
void rig_turn(rig_t *rig, unsigned ms);
void rig_called(rig_t *rig, unsigned ms);

kg_sandbox_t *rig_sandbox(rig_t *rig); /* created, ready */
kg_sandbox_t *rig_bare(rig_t *rig);    /* likewise, of a template without a language */
int rig_create(rig_t *rig,
               const kg_sandbox_opts_api_t *opts); /* 0, or the code of what refused or failed it */
kg_run_opts_t rig_opts(const char *code);
kg_run_t *rig_run(rig_t *rig, kg_sandbox_t *sandbox, const kg_run_opts_t *opts); /* attached */
/* Waits for its end: the Execution. Detaches. */
json_t *rig_end(rig_t *rig, kg_run_t *run, unsigned ms);
json_t *rig_exec(rig_t *rig, kg_sandbox_t *sandbox, const char *code);
/* All events up to the result, one JSON text a line. */
void rig_events(kg_run_t *run, kg_buf_t *out);
bool rig_has(kg_run_t *run, const char *text);
void rig_until_has(rig_t *rig, kg_run_t *run, const char *text, unsigned ms);
/* rig_exec and compare: status, text; NULL = any. */
void rig_expect(
    rig_t *rig, kg_sandbox_t *sandbox, const char *code, const char *status, const char *text);
const char *str_of(const json_t *object, const char *path); /* "error.state" */
int64_t int_of(const json_t *object, const char *path);

void on_sandbox(void *user, kg_sandbox_t *sandbox, const kg_err_t *err);
void on_context(void *user, kg_context_t *context, const kg_err_t *err);
void on_reply(void *user, kg_slice_t json, const kg_err_t *err);
void on_done(void *user, const kg_err_t *err);

#endif
