/* gateway/context: how commands end. By themselves, or by a cause from outside that is carried out
 * on the process and all that came of it. Every wait has a deadline. */
#include <signal.h>

#include "gateway/base/log.h"
#include "gateway/context/command_internal.h"

/* ---- the end of a process ---- */

static kg_run_status_t signaled_status(const kg_command_t *command)
{
    if (command->cause == KG_CAUSE_TIMEOUT) {
        return KG_RUN_TIMEOUT;
    }
    if (command->cause == KG_CAUSE_LIMIT) {
        return KG_RUN_OUTPUT_LIMIT;
    }
    if (command->cause == KG_CAUSE_RESTART) {
        return KG_RUN_GATEWAY_RESTART;
    }
    if (command->exit.signal != SIGKILL || command->cause) {
        return KG_RUN_KILLED;
    }
    bool oom = command->exit.lost ? kg_box_starved(command->sandbox, command->oom_before)
                                  : kg_box_oom_charge(command->sandbox, command->oom_before);
    return oom ? KG_RUN_OOM : KG_RUN_KILLED;
}

/* With its place it has had as much as that may have. */
static uint64_t peak_of(const kg_command_t *command)
{
    uint64_t peak = command->exit.lost ? 0 : command->exit.maxrss_bytes;
    if (command->exit.lost && command->status == KG_RUN_OOM) {
        peak = command->sandbox->wish.limits.memory_bytes;
    }
    return peak ? peak : KG_USAGE_UNKNOWN;
}

static kg_run_status_t status_of(const kg_command_t *command)
{
    if (!command->exit.exited) {
        return signaled_status(command);
    }
    if (command->cause == KG_CAUSE_LIMIT) {
        return KG_RUN_OUTPUT_LIMIT;
    }
    return command->exit.code ? KG_RUN_ERROR : KG_RUN_OK;
}

void kg_command_finish(kg_command_t *command, const kg_exit_t *exit, const char *message)
{
    kg_run_t *run = command->run;
    if (command->state == KG_COMMAND_ENDED) {
        return;
    }
    command->state = KG_COMMAND_ENDED;
    command->exit = *exit;
    if (!exit->exited && !exit->signaled) { /* went with its sandbox, which kills by this */
        command->exit.signal = SIGKILL;
    }
    kg_timer_close(&command->deadline);
    kg_command_io_flush(command);
    command->status = status_of(command);
    command->ended_wall_ns = kg_wall_ns();
    if (exit->lost && command->status == KG_RUN_OOM) {
        message = "The sandbox ran out of memory, and went away as a whole.";
    }
    kg_command_end_t end = {
        .status = command->status,
        .exited = command->exit.exited,
        .exit_code = command->exit.code,
        .signal = command->exit.signal,
        .base64 = command->base64,
        .message = message,
        .duration_ms = (kg_now_ns() - command->started_ns) / KG_NS_PER_MS,
        .cpu_ms = exit->lost ? KG_USAGE_UNKNOWN : exit->cpu_ns / KG_NS_PER_MS,
        .peak_memory = peak_of(command),
        .wall_ns = command->ended_wall_ns,
    };
    int rc = kg_mapper_command_finish(run->mapper, &end);
    if (rc) {
        kg_log(KG_LOG_ERROR, "run.finish", "run=%s error=%d", run->id, -rc);
    }
    run->ended = true;
    kg_run_settle(run);
    kg_sandbox_touch(command->sandbox);
}

static void over(kg_command_t *command, const kg_exit_t *exit, const char *message)
{
    kg_command_io_drain(command);
    kg_command_finish(command, exit, message);
    kg_wait_t *wait = KG_TAKE(command->gone_wait);
    kg_command_settle(command);
    kg_wait_done(&wait, NULL);
}

void kg_command_exited(void *user, const kg_exit_t *exit)
{
    over(user, exit, exit->lost ? "The sandbox went away under it." : NULL);
}

/* ---- from outside ---- */

static void kill_now(kg_command_t *command)
{
    command->killed = true;
    (void)kg_proc_kill_tree(command->proc);
    kg_timer_start(command->deadline, kg_ms(KG_GUARD_MS), 0);
}

static void deadline(void *user)
{
    kg_command_t *command = user;
    if (command->killed) { /* even that was not told */
        kg_exit_t exit = {.lost = true};
        kg_log(KG_LOG_WARN, "command.exit_missing", "run=%s", command->run->id);
        over(command, &exit,
             "It was killed; its end was not seen in time, so its use is not known.");
        return;
    }
    if (!command->cause) {
        command->cause = KG_CAUSE_TIMEOUT;
    }
    kill_now(command);
}

int kg_command_deadline_create(kg_command_t *command)
{
    return kg_timer_create(command->sandbox->core->loop, deadline, command, &command->deadline);
}

void kg_command_stop(kg_command_t *command, kg_cause_t cause)
{
    if (command->state != KG_COMMAND_RUNNING || command->killed) {
        return;
    }
    kg_pause_wake(command->sandbox);
    if (cause == KG_CAUSE_INTERRUPT) {
        /* It may go on: no cause of its end. */
        (void)kg_proc_signal(command->proc, SIGINT, true);
        kg_timer_start(command->deadline, kg_ms(command->sandbox->core->config.interrupt_grace_ms),
                       0);
        command->cause = KG_CAUSE_INTERRUPT;
        return;
    }
    command->cause = command->cause ? command->cause : cause;
    kill_now(command);
}

int kg_command_delete(kg_command_t *command, kg_done_fn *done, void *user, kg_err_t *err)
{
    kg_wait_t *wait = kg_wait_new(command->sandbox->core, KG_WAIT_DONE, user);
    if (!wait) {
        return kg_oom(err);
    }
    wait->fn.done = done;
    command->removed = true;
    kg_command_forget(command);
    kg_sandbox_touch(command->sandbox);
    if (command->state == KG_COMMAND_RUNNING) {
        command->gone_wait = wait;
        kg_command_stop(command, KG_CAUSE_KILL);
        return 0;
    }
    if (command->proc) {
        (void)kg_proc_kill_tree(command->proc); /* what it left behind */
    }
    kg_command_io_close(command);
    kg_command_settle(command);
    kg_wait_done_later(wait);
    return 0;
}

/* ---- its own end ---- */

void kg_command_free(kg_command_t *command)
{
    if (!command) {
        return;
    }
    kg_sandbox_t *sandbox = command->sandbox;
    kg_run_t *run = command->run;
    DL_DELETE(sandbox->commands, command);
    if (!sandbox->core->destroying) {
        kg_core_forget(sandbox->core, command);
    }
    if (sandbox->sbx) {
        kg_sbx_forget(sandbox->sbx, command);
    }
    run->command = NULL;
    kg_timer_close(&command->deadline);
    kg_command_io_close(command);
    kg_proc_close(&command->proc);
    kg_wait_drop(&command->wait);
    kg_wait_drop(&command->gone_wait);
    if (run->ended) {
        kg_mapper_destroy(&run->mapper);
        kg_opts_unref(&run->opts);
    }
    kg_run_unref_(&run);
    for (char **arg = command->argv; arg && *arg; arg++) {
        free(*arg);
    }
    free(command->argv);
    json_decref(command->cmd);
    json_decref(command->env);
    free(command->cwd);
    kg_buf_fini(&command->in);
    free(command);
}

void kg_command_settle(kg_command_t *command)
{
    if (command->state != KG_COMMAND_ENDED || kg_command_io_open_still(command)) {
        return;
    }
    bool listed = command->background && !command->removed && !command->run->expired;
    if (listed) {
        return;
    }
    kg_command_forget(command);
    kg_command_free(command);
}

void kg_command_fail(kg_command_t *command, const kg_err_t *err)
{
    kg_err_t why = *err;
    kg_wait_t *wait = KG_TAKE(command->wait);
    kg_run_t *run = command->run;
    if (run->sandbox) { /* its log had begun */
        kg_run_unlist(run);
        kg_run_log_remove(run->log);
        kg_run_t *listed = run;
        kg_run_unref_(&listed);
    }
    kg_command_free(command);
    kg_wait_command(&wait, NULL, &why);
}

/* ---- with its sandbox ---- */

static void end_running(kg_command_t *command, kg_cause_t cause)
{
    kg_exit_t exit = {.lost = true};
    command->cause = command->cause ? command->cause : cause;
    kg_command_io_drain(command);
    kg_command_finish(command, &exit,
                      cause == KG_CAUSE_RESTART ? "The gateway was stopped while the command ran."
                                                : "The sandbox was ended.");
    kg_wait_t *wait = KG_TAKE(command->gone_wait);
    kg_command_free(command);
    kg_wait_done(&wait, NULL);
}

void kg_commands_end(kg_sandbox_t *sandbox, kg_cause_t cause, const kg_err_t *why)
{
    while (sandbox->commands) {
        kg_command_t *command = sandbox->commands;
        if (command->state < KG_COMMAND_RUNNING) {
            kg_command_fail(command, why);
        } else if (command->state == KG_COMMAND_RUNNING) {
            end_running(command, cause);
        } else {
            kg_command_free(command);
        }
    }
}

void kg_commands_place_gone(kg_sandbox_t *sandbox)
{
    kg_command_t *command = NULL;
    kg_command_t *next = NULL;
    DL_FOREACH_SAFE (sandbox->commands, command, next) {
        kg_command_io_close(command);
        kg_proc_close(&command->proc);
        kg_command_settle(command);
    }
}

void kg_commands_tidy(kg_sandbox_t *sandbox)
{
    kg_command_t *command = NULL;
    kg_command_t *next = NULL;
    DL_FOREACH_SAFE (sandbox->commands, command, next) {
        kg_command_settle(command);
    }
}

void kg_commands_free(kg_sandbox_t *sandbox)
{
    while (sandbox->commands) {
        kg_command_free(sandbox->commands);
    }
}

unsigned kg_commands_running(const kg_sandbox_t *sandbox)
{
    unsigned count = 0;
    const kg_command_t *command = NULL;
    DL_FOREACH (sandbox->commands, command) {
        count += command->state != KG_COMMAND_ENDED;
    }
    return count;
}

bool kg_commands_busy(const kg_sandbox_t *sandbox, bool keep)
{
    const kg_command_t *command = NULL;
    DL_FOREACH (sandbox->commands, command) {
        if (command->state != KG_COMMAND_ENDED &&
            (!command->background || (keep && command->keep_alive))) {
            return true;
        }
    }
    return false;
}
