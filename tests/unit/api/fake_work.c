/* Workers and later turns of the loop, in memory: they run when the test says so. */
#include <errno.h>
#include <stdlib.h>

#include "fake_core.h"
#include "gateway/loop/loop.h"

struct kg_workq {
    int unused;
};

typedef struct job {
    kg_fn *work, *done;
    void *user;
} job_t;

static job_t jobs[64];
static size_t job_count;

int kg_workq_create(kg_loop_t *loop, kg_workq_t **ret_queue)
{
    (void)loop;
    *ret_queue = calloc(1, sizeof **ret_queue);
    return *ret_queue ? 0 : -ENOMEM;
}

int kg_workq_submit(kg_workq_t *queue, kg_fn *work, kg_fn *done, void *user)
{
    (void)queue;
    if (job_count == KG_ARRAY_LEN(jobs)) {
        return -ENOMEM;
    }
    jobs[job_count++] = (job_t){work, done, user};
    return 0;
}

unsigned fake_work_run(void)
{
    unsigned n = 0;
    for (size_t i = 0; i < job_count; i++) { /* a job may submit others */
        job_t job = jobs[i];
        job.work(job.user);
        job.done(job.user);
        n++;
    }
    job_count = 0;
    return n;
}

void kg_workq_close(kg_workq_t **queue)
{
    fake_work_run();
    free(*queue);
    *queue = NULL;
}

static void nothing(void *user)
{
    (void)user;
}

int kg_loop_later(kg_loop_t *loop, kg_fn *fn, void *user)
{
    (void)loop;
    return kg_workq_submit(NULL, nothing, fn, user);
}
