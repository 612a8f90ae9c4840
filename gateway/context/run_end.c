/* gateway/context: how runs end. A run ends once: by its kernel's reply, by its process's death, or
 * by a cause from outside (deadline, interrupt, limit, reset, stop) that is carried out on the
 * kernel and named in the result. Every wait here has a deadline, so that no kernel can keep a run
 * from its end. */
#include <signal.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"

enum {
    AGAIN_MS = 300
};

static kg_run_status_t cause_status(kg_cause_t cause)
{
    switch (cause) {
    case KG_CAUSE_TIMEOUT:
        return KG_RUN_TIMEOUT;
    case KG_CAUSE_INTERRUPT:
        return KG_RUN_INTERRUPTED;
    case KG_CAUSE_LIMIT:
        return KG_RUN_OUTPUT_LIMIT;
    case KG_CAUSE_INPUT:
        return KG_RUN_ERROR;
    case KG_CAUSE_ABORT:
        return KG_RUN_ABORTED;
    case KG_CAUSE_KILL:
        return KG_RUN_KILLED;
    case KG_CAUSE_RESTART:
        return KG_RUN_GATEWAY_RESTART;
    case KG_CAUSE_NONE:
        break;
    }
    return KG_RUN_OK;
}

static void usage(const kg_run_t *run, const kg_kernel_exit_t *exit, kg_run_usage_t *ret)
{
    uint64_t now = kg_now_ns();
    uint64_t begun = run->started ? run->live->started_ns : now;
    *ret = (kg_run_usage_t){
        .queued_ms = (begun - run->live->created_ns) / KG_NS_PER_MS,
        .wall_ms = (now - begun) / KG_NS_PER_MS,
        .cpu_ms = KG_USAGE_UNKNOWN,
        .peak_memory = KG_USAGE_UNKNOWN,
    };
    if (!run->started || !run->inc || !run->inc->kernel) {
        return;
    }
    bool known = exit && !exit->proc.lost;
    pid_t pid = kg_kernel_pid(run->inc->kernel);
    uint64_t cpu = known                ? exit->proc.cpu_ns
                   : run->live->sampled ? run->live->cpu_end_ns
                                        : kg_meter_cpu_ns(&run->inc->meter, pid);
    if (cpu != KG_USAGE_UNKNOWN && run->live->cpu_start_ns != KG_USAGE_UNKNOWN &&
        cpu >= run->live->cpu_start_ns) {
        ret->cpu_ms = (cpu - run->live->cpu_start_ns) / KG_NS_PER_MS;
    }
    ret->peak_memory = known                ? exit->proc.maxrss_bytes
                       : run->live->sampled ? run->live->peak_memory
                                            : kg_meter_peak(&run->inc->meter, pid);
}

void kg_run_sample_usage(kg_run_t *run)
{
    if (run->started && !run->ended && run->inc && run->inc->kernel) {
        pid_t pid = kg_kernel_pid(run->inc->kernel);
        run->live->cpu_end_ns = kg_meter_cpu_ns(&run->inc->meter, pid);
        run->live->peak_memory = kg_meter_peak(&run->inc->meter, pid);
        run->live->sampled = true;
    }
}

/* Its env and cwd are left later. */
static void free_inputs(kg_run_t *run)
{
    kg_buf_fini(&run->live->code);
    kg_buf_fini(&run->live->input_header);
    json_decref(run->live->lines);
    run->live->lines = NULL;
    kg_timer_close(&run->live->deadline);
    kg_run_settle(run);
}

static void count(kg_run_t *run, uint64_t wall_ms)
{
    kg_core_stats_t *stats = &run->core->stats;
    unsigned bucket = 0;
    while (bucket < KG_RUN_WALL_BUCKETS && wall_ms > kg_run_wall_bound_ms(bucket)) {
        bucket++;
    }
    stats->runs_by_wall[bucket]++;
    stats->runs_by_status[kg_mapper_status(run->mapper)]++;
    stats->run_wall_ns += wall_ms * KG_NS_PER_MS;
}

static void finish(kg_run_t *run, kg_run_end_t *end, const kg_kernel_exit_t *exit)
{
    if (run->ended) {
        return;
    }
    end->started = run->started;
    end->wall_ns = kg_wall_ns();
    usage(run, exit, &end->usage);
    uint64_t most = run->sandbox ? run->sandbox->wish.limits.memory_bytes : 0;
    if (exit && exit->proc.lost && end->status == KG_RUN_OOM && most) {
        end->usage.peak_memory = most; /* its place has had all that it may have */
    }
    run->ended = true;
    if (run->inc && end->status == KG_RUN_OOM) {
        run->inc->starved = true;
    }
    int rc = kg_mapper_finish(run->mapper, end);
    if (rc) {
        kg_log(KG_LOG_ERROR, "run.finish", "run=%s error=%d", run->id, -rc);
    }
    count(run, end->usage.wall_ms);
    kg_run_client_ended(run);
    free_inputs(run);
    if (run->sandbox) {
        kg_sandbox_touch(run->sandbox);
    }
    if (run->inc) {
        kg_inc_hold(run->inc, run);
    } else {
        kg_mapper_destroy(&run->mapper);
        kg_opts_unref(&run->opts);
    }
}

static void finish_by_cause(kg_run_t *run, bool lost, const kg_kernel_exit_t *exit)
{
    kg_run_end_t end = {.status = cause_status(run->cause), .lost = lost};
    if (run->cause == KG_CAUSE_INPUT) {
        end.name = "EOFError";
        end.message = "input() was called, but nobody answers it and no lines are left";
    } else if (run->cause == KG_CAUSE_KILL && !run->started && !lost) {
        end.status = KG_RUN_ABORTED; /* no kernel was killed for it */
        end.message = "The run was cancelled while it was queued: nobody followed it any more.";
    } else if (run->cause == KG_CAUSE_KILL) {
        end.signal = SIGKILL;
        end.message = "killed by signal 9 (SIGKILL): nobody followed the run any more, and its "
                      "on_disconnect is kill";
    }
    finish(run, &end, exit);
}

/* Was it the kernel's memory that ended it? Where the groups count kills that is known; where they
 * don't, a SIGKILL of nobody's at a size near the limit is taken for it, and said to be a guess. */
static void judge_oom(const kg_run_t *run, const kg_kernel_exit_t *exit, kg_run_end_t *end)
{
    kg_sandbox_t *sandbox = run->sandbox;
    if (!sandbox || exit->killed_by_us || exit->proc.signal != SIGKILL) {
        return;
    }
    if (kg_box_oom_charge(sandbox, run->live->oom_before)) {
        end->status = KG_RUN_OOM;
        return;
    }
    uint64_t limit = sandbox->wish.limits.memory_bytes;
    if (!kg_box_oom_counted(sandbox) && limit && exit->proc.maxrss_bytes >= limit / 10 * 9) {
        end->status = KG_RUN_OOM;
        end->message = "The kernel was killed, probably out of memory: it was near its limit, and "
                       "this host does not count such kills.";
    }
}

static void finish_by_exit(kg_run_t *run, const kg_kernel_exit_t *exit)
{
    kg_run_end_t end = {.status = KG_RUN_EXITED, .lost = true, .exit_code = exit->proc.code};
    if (run->cause) {
        finish_by_cause(run, true, exit);
        return;
    }
    if (exit->proc.signaled) {
        end.status = KG_RUN_KILLED;
        end.signal = exit->proc.signal;
        judge_oom(run, exit, &end);
    } else if (exit->proc.lost && run->sandbox &&
               kg_box_starved(run->sandbox, run->live->oom_before)) {
        end.status = KG_RUN_OOM;
        end.message = "The sandbox ran out of memory, and went away as a whole.";
    } else if (exit->proc.lost) {
        end.status = KG_RUN_KILLED;
        end.message = "the sandbox went away under the kernel";
    }
    finish(run, &end, exit);
}

/* ---- what the kernel told ---- */

/* A kernel may give a run a number and take it back (IPython, of a cell without code): the next run
 * gets the same one, so that tracebacks and the client see the same numbers. */
static void take_number_back(const kg_run_t *run)
{
    const kg_mapper_state_t *said = kg_mapper_state(run->mapper);
    kg_context_t *context = run->context;
    if (context && !run->silent && said->reply_count >= 0 &&
        said->reply_count == said->input_count - 1 &&
        context->execution_count == (uint64_t)said->input_count) {
        context->execution_count--;
    }
}

void kg_run_request_done(kg_run_t *run, kg_request_how_t how, const kg_kernel_exit_t *exit)
{
    if (run->ended) {
        return;
    }
    if (how == KG_REQUEST_DEAD) {
        /* The exit itself follows, and takes the job off. */
        finish_by_exit(run, exit);
        return;
    }
    if (!run->cause && kg_mapper_state(run->mapper)->ask_exit) {
        run->live->leaving = true;
        kg_timer_start(run->live->deadline, kg_ms(KG_GUARD_MS), 0);
        return;
    }
    kg_context_t *context = run->context;
    take_number_back(run);
    finish_by_cause(run, false, NULL);
    if (context) {
        kg_job_main_done(context);
    }
}

void kg_run_process_ended(kg_run_t *run, const kg_kernel_exit_t *exit)
{
    if (run->ended) {
        return;
    }
    if (run->live->leaving && !exit->proc.exited) {
        /* It was asked to leave and had to be helped. */
        kg_run_end_t end = {.status = KG_RUN_EXITED, .lost = true};
        finish(run, &end, exit);
        return;
    }
    finish_by_exit(run, exit);
}

/* ---- ends from outside ---- */

static void leave_queue(kg_run_t *run)
{
    kg_job_t *job = run->job;
    if (job && job->step == KG_STEP_QUEUED) {
        kg_job_destroy(&job);
    }
}

void kg_run_end_now(kg_run_t *run, bool lost)
{
    kg_run_t *held = run;
    kg_run_ref_(run);
    finish_by_cause(run, lost, NULL);
    leave_queue(run);
    kg_run_unref_(&held);
}

void kg_run_start_failed(kg_run_t *run, const kg_err_t *why)
{
    kg_run_t *held = run;
    const kg_context_t *context = run->context;
    kg_run_end_t end = {.status = context && context->starved ? KG_RUN_OOM : KG_RUN_EXITED,
                        .lost = context && !context->inc && context->last_exit.known,
                        .message = why->message};
    kg_run_ref_(run);
    finish(run, &end, NULL);
    leave_queue(run);
    kg_run_unref_(&held);
}

void kg_run_enter_failed(kg_run_t *run, const char *name, const char *message)
{
    kg_run_end_t end = {.status = KG_RUN_ERROR, .name = name, .message = message};
    finish(run, &end, NULL);
}

static bool kills(kg_cause_t cause)
{
    return cause == KG_CAUSE_ABORT || cause == KG_CAUSE_KILL || cause == KG_CAUSE_RESTART;
}

void kg_run_stop(kg_run_t *run, kg_cause_t cause)
{
    if (run->command) {
        kg_command_stop(run->command, cause);
        return;
    }
    if (run->ended || !run->job) {
        return;
    }
    if (!run->cause) {
        run->cause = cause;
    }
    kg_context_t *context = run->context;
    if (run->job->step == KG_STEP_QUEUED) {
        kg_run_end_now(run, false);
        return;
    }
    kg_pause_wake(context->sandbox);
    if (kills(cause)) {
        kg_context_end_kernel(context, cause);
        return;
    }
    if (run->live->leaving || run->job->step != KG_STEP_MAIN || context->state != KG_CTX_READY) {
        return; /* its end is on the way, with deadlines of its own */
    }
    uint64_t grace = kg_ms(run->core->config.interrupt_grace_ms);
    /* A kernel that waits for an answer can lose the interrupt between two looks at its socket, and
     * nothing else would wake it. */
    run->live->again = run->live->input_header.len > 0 && grace > kg_ms(AGAIN_MS);
    kg_buf_clear(&run->live->input_header);
    (void)kg_kernel_interrupt_or_kill(context->inc->kernel, grace);
    /* Should even the kill not be told. */
    kg_timer_start(run->live->deadline,
                   run->live->again ? kg_ms(AGAIN_MS) : grace + kg_ms(KG_GUARD_MS), 0);
}

static void interrupt_again(kg_run_t *run)
{
    run->live->again = false;
    if (run->context->state == KG_CTX_READY) {
        (void)kg_kernel_interrupt(run->context->inc->kernel);
    }
    kg_timer_start(run->live->deadline, kg_ms(run->core->config.interrupt_grace_ms + KG_GUARD_MS),
                   0);
}

static void deadline(void *user)
{
    kg_run_t *run = user;
    if (run->ended || !run->context) {
        return;
    }
    if (run->live->again) {
        interrupt_again(run);
    } else if (run->live->leaving || run->cause) {
        kg_context_end_kernel(run->context, run->cause);
    } else {
        kg_run_stop(run, KG_CAUSE_TIMEOUT);
    }
}

int kg_run_deadline_create(kg_run_t *run)
{
    return kg_timer_create(run->core->loop, deadline, run, &run->live->deadline);
}

int kg_run_interrupt(kg_run_t *run, kg_err_t *err)
{
    (void)err;
    kg_run_stop(run, KG_CAUSE_INTERRUPT);
    return 0;
}
