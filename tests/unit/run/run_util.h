/* What the tests of the run room share: a log in a directory of its own, messages from JSON text,
 * and all that a reader yields. */
#ifndef TEST_RUN_UTIL_H
#define TEST_RUN_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/buf.h"
#include "gateway/run/budget.h"
#include "gateway/run/mapper.h"
#include "gateway/run/reader.h"

#define RUN_ID "run-10de5k3j2h1g9f8d7s6a"

typedef struct run_test {
    char path[64];
    int dirfd;
    unsigned other_files; /* in it from the beginning */
    kg_run_log_opts_t log_opts;
    kg_run_meta_t meta;
    kg_mapper_opts_t opts;
    kg_mapper_sink_t sink;
    kg_displays_t *displays;
    kg_run_log_t *log;
    kg_mapper_t *mapper;
    unsigned stops, inputs;
    kg_cut_t stop_what;
    char prompt[128];
    char header[256];
    bool password;
} run_test_t;

void rt_begin(run_test_t *t);           /* directory and options; no log yet */
void rt_open(run_test_t *t);            /* log and mapper, as t's options say */
void rt_close(run_test_t *t);           /* mapper and log; the file stays */
void rt_end(run_test_t *t);             /* everything, the directory too */
unsigned rt_files(const run_test_t *t); /* in the directory */

/* Prepares and applies one message; content is JSON text. */
void rt_message(run_test_t *t, const char *type, const char *content);
void rt_message_len(run_test_t *t, const char *type, const char *content, size_t len);
/* Messages as [["type",{content}],…]. Their strings may hold anything. */
void rt_messages(run_test_t *t, const char *list);
void rt_stream(run_test_t *t, const char *name, const char *text); /* plain text */
void rt_finish(run_test_t *t, kg_run_status_t status);
kg_run_end_t rt_end_of(kg_run_status_t status);

/* All events from `after` on as [event,…], read in pieces of at most max. */
void rt_events(kg_run_log_t *log, int64_t after, bool late, size_t max, kg_buf_t *out);
void rt_execution(kg_run_log_t *log, size_t max, kg_buf_t *out);

#endif
