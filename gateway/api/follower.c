/* gateway/api: a client on a run. The order of the end matters: the log is read before the run is
 * let go. */
#include "gateway/api/follower.h"

#include <errno.h>

int kg_follower_init(kg_follower_t *f, kg_run_t *run, kg_run_watch_fn *fn, void *user)
{
    kg_run_log_t *log = kg_run_log_of(run);
    if (!log) {
        return -ESTALE;
    }
    kg_run_attach(run);
    f->run = run;
    f->log = kg_run_log_ref(log);
    f->watch = (kg_run_watch_t){.fn = fn, .user = user};
    kg_run_log_watch(f->log, &f->watch);
    return 0;
}

int kg_follower_read_events(kg_follower_t *f, int64_t after, bool late)
{
    return kg_run_reader_create(f->log, after, late, &f->reader);
}

int kg_follower_read_execution(kg_follower_t *f)
{
    return kg_run_reader_execution(f->log, &f->reader);
}

void kg_follower_fini(kg_follower_t *f)
{
    if (!f->run) {
        return;
    }
    kg_run_log_unwatch(f->log, &f->watch);
    kg_run_reader_destroy(&f->reader);
    kg_run_log_unref(&f->log);
    kg_run_detach(&f->run);
    *f = (kg_follower_t){0};
}
