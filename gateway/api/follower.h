/* One client that follows one run: attachment, watch and reader together. Embedded by its owner;
 * views pull from it. */
#ifndef KG_API_FOLLOWER_H
#define KG_API_FOLLOWER_H

#include "gateway/context/run.h"
#include "gateway/run/log.h"
#include "gateway/run/reader.h"

typedef struct kg_follower {
    kg_run_t *run;
    kg_run_log_t *log;
    kg_run_reader_t *reader;
    kg_run_watch_t watch;
} kg_follower_t;

/* Attaches to run; fn (see kg_run_log_watch for what it may do) runs when its log has something
 * new. Zero-initialised before; fini is always legal. -ESTALE when its log is gone already. */
int kg_follower_init(kg_follower_t *f, kg_run_t *run, kg_run_watch_fn *fn, void *user);
int kg_follower_read_events(kg_follower_t *f, int64_t after, bool late);
int kg_follower_read_execution(kg_follower_t *f); /* -EAGAIN: not ended yet */
void kg_follower_fini(kg_follower_t *f);          /* detaches; leaves it zero */

#endif
