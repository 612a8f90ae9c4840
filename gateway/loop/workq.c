/* Serial queues of jobs on libuv's worker pool: one job of a queue is on the pool at a time, so
 * order holds within a queue while queues run beside each other. */
#include "gateway/loop/loop_priv.h"

#include <errno.h>
#include <stdlib.h>

typedef struct job {
    uv_work_t uv;
    kg_fn *work;
    kg_fn *done;
    void *user;
    kg_workq_t *queue;
    struct job *next;
} job_t;

struct kg_workq {
    kg_loop_t *loop;
    job_t *head; /* the one that runs */
    job_t **tail;
    bool closing;
    bool in_done;
};

static void job_run(uv_work_t *req)
{
    job_t *job = req->data;
    job->work(job->user);
}

static void job_after(uv_work_t *req, int status);

static void job_start(job_t *job)
{
    job->queue->loop->jobs++;
    (void)uv_queue_work(&job->queue->loop->uv, &job->uv, job_run,
                        job_after); /* fails without a work cb only */
}

static void job_after(uv_work_t *req, int status)
{
    (void)status; /* nothing cancels */
    job_t *job = req->data;
    kg_workq_t *queue = job->queue;
    queue->loop->jobs--;
    queue->head = job->next;
    if (queue->head) {
        job_start(queue->head);
    } else {
        queue->tail = &queue->head;
    }
    queue->in_done = true;
    if (job->done) {
        job->done(job->user);
    }
    queue->in_done = false;
    free(job);
    if (queue->closing && !queue->head) {
        free(queue);
    }
}

int kg_workq_create(kg_loop_t *loop, kg_workq_t **ret_queue)
{
    kg_workq_t *queue = calloc(1, sizeof(*queue));
    if (!queue) {
        return -ENOMEM;
    }
    queue->loop = loop;
    queue->tail = &queue->head;
    *ret_queue = queue;
    return 0;
}

int kg_workq_submit(kg_workq_t *queue, kg_fn *work, kg_fn *done, void *user)
{
    job_t *job = calloc(1, sizeof(*job));
    if (!job) {
        return -ENOMEM;
    }
    job->uv.data = job;
    job->work = work;
    job->done = done;
    job->user = user;
    job->queue = queue;
    bool first = queue->head == NULL;
    *queue->tail = job;
    queue->tail = &job->next;
    if (first) {
        job_start(job);
    }
    return 0;
}

bool kg_workq_idle(const kg_workq_t *queue)
{
    return queue->head == NULL;
}

void kg_workq_close(kg_workq_t **queue_ptr)
{
    if (!queue_ptr || !*queue_ptr) {
        return;
    }
    kg_workq_t *queue = KG_TAKE(*queue_ptr);
    queue->closing = true;
    if (!queue->head && !queue->in_done) {
        free(queue);
    }
}
