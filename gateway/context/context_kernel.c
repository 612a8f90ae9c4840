/* gateway/context: the life of a context's kernels: started on first use and after each end, a
 * little later each time when they fail, until the context is called dead; the next run tries
 * again. */
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"

bool kg_context_running(const kg_context_t *context)
{
    const kg_job_t *job = context->current;
    if (job && job->kind == KG_JOB_LEFT) {
        return context->left_cell;
    }
    return job && job->kind == KG_JOB_RUN && job->step != KG_STEP_LEAVE;
}

static void start_now(kg_context_t *context)
{
    kg_err_t err = {0};
    if (context->memo && kg_inc_start(context, &err) == 0) {
        return;
    }
    kg_kernel_verdict(context, false);
    if (kg_inc_start(context, &err)) {
        context->core->stats.kernels_failed++;
        kg_context_start_failed(context, &err);
    }
}

void kg_context_start(kg_context_t *context)
{
    if (context->gone || context->inc || context->state == KG_CTX_STARTING ||
        context->core->draining) {
        return;
    }
    context->state = KG_CTX_STARTING;
    context->starved = false;
    if (kg_box_usable(context->sandbox)) {
        start_now(context);
    } else {
        kg_box_ensure(context->sandbox);
    }
}

void kg_context_box_ready(kg_context_t *context, const kg_err_t *err)
{
    if (context->state != KG_CTX_STARTING || context->inc || context->gone || context->backoff) {
        return;
    }
    if (err) {
        kg_context_start_failed(context, err);
    } else {
        start_now(context);
    }
}

void kg_context_fail_waits(kg_context_t *context, const kg_err_t *err)
{
    kg_wait_t *waits = KG_TAKE(context->ready_waits);
    while (waits) {
        kg_wait_t *wait = waits;
        waits = wait->list_next;
        kg_wait_context(&wait, NULL, err);
    }
}

static void backoff_over(void *user)
{
    kg_context_t *context = user;
    kg_timer_close(&context->backoff);
    if (context->state == KG_CTX_STARTING && !context->inc) {
        context->state = KG_CTX_DOWN;
        kg_context_start(context);
    }
}

static void fresh_failed_later(void *user)
{
    kg_context_t *context = user;
    kg_err_t err = context->last_error;
    kg_sandbox_t *sandbox = context->sandbox;
    /* A create that fails leaves nothing. */
    kg_jobs_abort(context, KG_CAUSE_ABORT, true, &err);
    kg_context_fail_waits(context, &err);
    if (context->awaited && sandbox->create_wait) {
        kg_sandbox_created(sandbox, &err);
    } else if (sandbox->member) {
        kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
    } else {
        (void)kg_store_context_delete(context->core->store, context->id, NULL);
        kg_context_remove(context, KG_CAUSE_ABORT);
    }
}

void kg_context_fail_jobs(kg_context_t *context, const kg_err_t *err)
{
    kg_job_t *job = NULL;
    kg_job_t *next = NULL;
    DL_FOREACH_SAFE (context->jobs, job, next) {
        if (job->kind == KG_JOB_RUN) {
            kg_run_start_failed(job->run, err);
        } else {
            kg_wait_reply(&job->wait, (kg_slice_t){0}, err);
        }
    }
    while (context->jobs) {
        job = context->jobs;
        kg_job_destroy(&job);
    }
}

static void give_up(void *user)
{
    kg_context_t *context = user;
    kg_err_t err = context->last_error;
    context->state = KG_CTX_DEAD;
    context->failures = 0;
    kg_log(KG_LOG_WARN, "context.dead", "context=%s code=%s", context->id, kg_err_name(err.code));
    kg_context_fail_jobs(context, &err);
    kg_context_fail_waits(context, &err);
    kg_bridge_dead(context, &err);
}

void kg_context_start_failed(kg_context_t *context, const kg_err_t *err)
{
    context->last_error = *err;
    if (context->gone) {
        kg_context_free(context);
        return;
    }
    context->state = KG_CTX_STARTING;
    context->failures++;
    if (context->fresh) {
        if (kg_core_later(context->core, fresh_failed_later, context)) {
            context->state = KG_CTX_DEAD;
        }
        return;
    }
    if (context->failures >= KG_START_TRIES || context->core->draining ||
        kg_timer_create(context->core->loop, backoff_over, context, &context->backoff)) {
        if (kg_core_later(context->core, give_up, context)) {
            context->state = KG_CTX_DEAD;
        }
        return;
    }
    kg_timer_start(context->backoff, kg_ms(KG_BACKOFF_MS) << (context->failures - 1), 0);
}

void kg_context_note_exit(kg_context_t *context, const kg_kernel_exit_t *exit)
{
    context->last_exit.known = true;
    context->last_exit.oom = false; /* until that is known */
    context->last_exit.lost = !exit || exit->proc.lost;
    context->last_exit.signaled = exit && exit->proc.signaled;
    context->last_exit.number = !exit                 ? 0
                                : exit->proc.signaled ? exit->proc.signal
                                                      : exit->proc.code;
    context->last_exit.at_ns = kg_wall_ns();
}

/* The exit of a killed kernel was not told in time: go on without it. */
static void guard_over(void *user)
{
    kg_context_t *context = user;
    kg_timer_close(&context->guard);
    kg_log(KG_LOG_WARN, "kernel.exit_missing", "context=%s", context->id);
    kg_job_kernel_gone(context, NULL);
    kg_inc_close(&context->inc);
    if (context->gone) {
        kg_context_free(context);
        return;
    }
    context->state = KG_CTX_DOWN;
    kg_context_start(context);
}

void kg_context_end_kernel(kg_context_t *context, kg_cause_t cause)
{
    kg_pause_wake(context->sandbox); /* what is frozen does not end */
    if (context->current && context->current->kind == KG_JOB_RUN && !context->current->run->cause) {
        context->current->run->cause = cause;
    }
    if (context->state == KG_CTX_READY) {
        context->state = KG_CTX_ENDING;
        if (!context->guard &&
            kg_timer_create(context->core->loop, guard_over, context, &context->guard) == 0) {
            kg_timer_start(context->guard, kg_ms(KG_GUARD_MS), 0);
        }
        (void)kg_kernel_kill(context->inc->kernel);
        return;
    }
    if (context->state == KG_CTX_ENDING) {
        return;
    }
    /* Nothing has run in it, or what did is an earlier gateway's: no output to wait for. */
    kg_kernel_verdict(context, false);
    kg_timer_close(&context->backoff);
    kg_inc_close(&context->inc);
    context->state = KG_CTX_DOWN;
}

static void free_later(void *user)
{
    kg_context_free(user);
}

void kg_context_remove(kg_context_t *context, kg_cause_t cause)
{
    if (context->gone) {
        return;
    }
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_CONTEXT_NOT_FOUND, "context %s was deleted", context->id);
    context->gone = true;
    kg_core_later_forget(context->core, context);
    kg_jobs_abort(context, cause, true, &err);
    kg_context_fail_waits(context, &err);
    kg_context_end_kernel(context, cause);
    if (!context->inc && kg_core_later(context->core, free_later, context)) {
        kg_context_free(context);
    }
}

int kg_context_reset(kg_context_t *context, kg_context_fn *done, void *user, kg_err_t *err)
{
    int rc = kg_core_ready(context->core, err);
    if (rc) {
        return rc;
    }
    kg_wait_t *wait = kg_wait_new(context->core, KG_WAIT_CONTEXT, user);
    if (!wait) {
        return kg_oom(err);
    }
    wait->fn.context = done;
    LL_APPEND2(context->ready_waits, wait, list_next);
    kg_sandbox_touch(context->sandbox);
    kg_core_later_forget(context->core, context); /* a failed start that was about to be told */
    kg_err_t reset = {0};
    (void)kg_err_set(&reset, KG_ERR_BUSY, "the context was reset");
    kg_jobs_abort(context, KG_CAUSE_ABORT, true, &reset);
    kg_context_end_kernel(context, KG_CAUSE_ABORT);
    if (context->state != KG_CTX_ENDING) {
        context->failures = 0;
        context->state = KG_CTX_DOWN;
        kg_context_start(context);
    }
    return 0;
}

int kg_context_interrupt(kg_context_t *context, bool *ret_interrupted, kg_err_t *err)
{
    (void)err;
    const kg_job_t *job = context->current;
    *ret_interrupted = kg_context_running(context) && !(job->run && job->run->ended);
    if (*ret_interrupted && job->run) {
        kg_run_stop(job->run, KG_CAUSE_INTERRUPT);
    } else if (*ret_interrupted) {
        kg_pause_wake(context->sandbox);
        (void)kg_kernel_interrupt_or_kill(context->inc->kernel,
                                          kg_ms(context->core->config.interrupt_grace_ms));
    }
    return 0;
}
