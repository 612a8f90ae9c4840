/* gateway/context: a paused sandbox. Its processes are frozen, and so is every deadline that they
 * would have to keep; whoever needs it wakes it. */
#include <errno.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/command_internal.h"
#include "gateway/context/internal.h"

#define PAUSE_AGAIN_MS 60000

/* ---- the clocks ---- */

static void each_timer(kg_sandbox_t *sandbox, void (*fn)(kg_timer_t *timer))
{
    kg_context_t *context = NULL;
    kg_job_t *job = NULL;
    kg_command_t *command = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        DL_FOREACH (context->jobs, job) {
            if (job->deadline) {
                fn(job->deadline);
            }
        }
        job = context->current;
        kg_timer_t *const timers[] = {
            job ? job->deadline : NULL,
            job && job->run ? job->run->live->deadline : NULL,
            context->guard,
            context->backoff,
        };
        for (size_t i = 0; i < KG_ARRAY_LEN(timers); i++) {
            if (timers[i]) {
                fn(timers[i]);
            }
        }
    }
    DL_FOREACH (sandbox->commands, command) {
        if (command->deadline) {
            fn(command->deadline);
        }
    }
}

static void stop_clocks(kg_sandbox_t *sandbox)
{
    kg_inc_t *inc = NULL;
    each_timer(sandbox, kg_timer_freeze);
    DL_FOREACH (sandbox->core->incs, inc) {
        if (inc->sandbox == sandbox && inc->kernel) {
            kg_kernel_stop_clock(inc->kernel);
        }
    }
}

static void start_clocks(kg_sandbox_t *sandbox)
{
    kg_inc_t *inc = NULL;
    each_timer(sandbox, kg_timer_thaw);
    DL_FOREACH (sandbox->core->incs, inc) {
        if (inc->sandbox == sandbox && inc->kernel) {
            kg_kernel_start_clock(inc->kernel);
        }
    }
}

/* ---- who waits ---- */

static void tell(kg_wait_t **list, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_err_t why = err ? *err : (kg_err_t){0};
    kg_wait_t *waits = KG_TAKE(*list);
    while (waits) {
        kg_wait_t *wait = waits;
        waits = wait->list_next;
        kg_wait_sandbox(&wait, err ? NULL : sandbox, err ? &why : NULL);
    }
}

/* A call that began before it was frozen waits for an answer from inside. */
static bool is_asked(const kg_sandbox_t *sandbox)
{
    return sandbox->box == KG_BOX_UP && sandbox->sbx && kg_sbx_is_asked(sandbox->sbx);
}

/* The next step towards what was asked for. */
static void settle(kg_sandbox_t *sandbox)
{
    if (sandbox->pause == KG_PAUSE_PAUSED) {
        tell(&sandbox->pause_waits, sandbox, NULL);
        if (sandbox->resume_waits || sandbox->wake_waits || sandbox->wanted || is_asked(sandbox)) {
            kg_pause_wake(sandbox);
        }
    } else if (sandbox->pause == KG_PAUSE_NO) {
        tell(&sandbox->resume_waits, sandbox, NULL);
        if (sandbox->pause_waits) {
            kg_pause_begin(sandbox);
        }
    }
}

static void settle_later(void *user)
{
    settle(user);
}

static void again(kg_sandbox_t *sandbox)
{
    (void)kg_core_later(sandbox->core, settle_later, sandbox);
}

void kg_pause_failed(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    tell(&sandbox->pause_waits, sandbox, why);
    tell(&sandbox->resume_waits, sandbox, why);
}

void kg_pause_drop(kg_sandbox_t *sandbox)
{
    kg_wait_t **lists[] = {&sandbox->pause_waits, &sandbox->resume_waits};
    for (size_t i = 0; i < KG_ARRAY_LEN(lists); i++) {
        while (*lists[i]) {
            kg_wait_t *wait = *lists[i];
            *lists[i] = wait->list_next;
            kg_wait_drop(&wait);
        }
    }
}

/* ---- freezing ---- */

static void now_paused(kg_sandbox_t *sandbox)
{
    sandbox->pause = KG_PAUSE_PAUSED;
    kg_ledger_switch(sandbox, KG_LEDGER_PAUSED);
    (void)kg_sandbox_save(sandbox, NULL);
    sandbox->core->stats.pauses++;
    kg_log(KG_LOG_INFO, "sandbox.paused", "sandbox=%s", sandbox->id);
    tell(&sandbox->pause_waits, sandbox, NULL);
    again(sandbox);
}

static void frozen(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (sandbox->pause != KG_PAUSE_PAUSING || sandbox->box != KG_BOX_UP) {
        return;
    }
    if (!err) {
        now_paused(sandbox);
        return;
    }
    kg_log(KG_LOG_WARN, "sandbox.pause", "sandbox=%s code=%s", sandbox->id, kg_err_name(err->code));
    sandbox->pause = KG_PAUSE_NO;
    sandbox->wanted = false;
    start_clocks(sandbox);
    sandbox->cannot_pause = err->code == KG_ERR_NOT_SUPPORTED;
    sandbox->pause_again_ns = kg_now_ns() + kg_ms(PAUSE_AGAIN_MS);
    tell(&sandbox->pause_waits, sandbox, err);
    kg_pause_pump(sandbox);
}

void kg_pause_begin(kg_sandbox_t *sandbox)
{
    if (sandbox->pause != KG_PAUSE_NO) {
        return;
    }
    if (sandbox->box == KG_BOX_DOWN) { /* nothing runs in it */
        now_paused(sandbox);
        return;
    }
    kg_err_t err = {0};
    if (sandbox->box != KG_BOX_UP) { /* that began after the pause was asked for */
        (void)kg_err_set(&err, KG_ERR_BUSY, "sandbox %s is starting", sandbox->id);
        tell(&sandbox->pause_waits, sandbox, &err);
        return;
    }
    sandbox->pause = KG_PAUSE_PAUSING;
    stop_clocks(sandbox);
    int rc = kg_sbx_pause(sandbox->sbx, frozen, sandbox);
    if (rc) {
        (void)kg_err_set(&err, kg_err_from_errno(rc), "the sandbox could not be paused: %s",
                         strerrordesc_np(-rc));
        frozen(sandbox, &err);
    }
}

/* ---- waking ---- */

void kg_pause_pump(kg_sandbox_t *sandbox)
{
    kg_context_t *context = NULL;
    kg_context_t *next = NULL;
    kg_wake_go(sandbox);
    DL_FOREACH_SAFE (sandbox->contexts, context, next) {
        if (kg_box_usable(sandbox)) {
            kg_context_box_ready(context, NULL);
        }
        kg_context_pump(context);
    }
}

/* Runs and kernels that wait for it. */
static void tell_contexts(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    kg_context_t *context = NULL;
    kg_context_t *next = NULL;
    DL_FOREACH_SAFE (sandbox->contexts, context, next) {
        if (context->state == KG_CTX_STARTING) {
            kg_context_box_ready(context, why);
        } else {
            kg_context_fail_jobs(context, why);
        }
    }
}

static void now_awake(kg_sandbox_t *sandbox)
{
    sandbox->pause = KG_PAUSE_NO;
    sandbox->wanted = false;
    kg_sandbox_touch(sandbox);
    kg_ledger_switch(sandbox, sandbox->box == KG_BOX_UP ? KG_LEDGER_ACTIVE : KG_LEDGER_NONE);
    (void)kg_sandbox_save(sandbox, NULL);
    start_clocks(sandbox);
    kg_log(KG_LOG_INFO, "sandbox.resumed", "sandbox=%s", sandbox->id);
    tell(&sandbox->resume_waits, sandbox, NULL);
    kg_pause_pump(sandbox); /* where it is down, whoever needs it brings it up */
    again(sandbox);
}

static void thawed(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (sandbox->pause != KG_PAUSE_RESUMING || sandbox->box != KG_BOX_UP) {
        return;
    }
    if (!err) {
        now_awake(sandbox);
        return;
    }
    kg_err_t why = *err;
    kg_log(KG_LOG_ERROR, "sandbox.resume", "sandbox=%s code=%s", sandbox->id,
           kg_err_name(err->code));
    sandbox->pause = KG_PAUSE_PAUSED;
    sandbox->wanted = false;
    tell(&sandbox->resume_waits, sandbox, &why);
    kg_wake_failed(sandbox, &why);
    tell_contexts(sandbox, &why);
}

void kg_pause_wake(kg_sandbox_t *sandbox)
{
    if (sandbox->pause == KG_PAUSE_PAUSING) {
        sandbox->wanted = true;
        return;
    }
    if (sandbox->pause != KG_PAUSE_PAUSED) {
        return;
    }
    if (sandbox->box != KG_BOX_UP) {
        now_awake(sandbox);
        return;
    }
    sandbox->pause = KG_PAUSE_RESUMING;
    int rc = kg_sbx_resume(sandbox->sbx, thawed, sandbox);
    if (rc) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, kg_err_from_errno(rc), "the sandbox could not be woken: %s",
                         strerrordesc_np(-rc));
        thawed(sandbox, &err);
    }
}

/* Whatever ends it, what is left of it is not frozen any more as far as we are concerned. It is
 * thawed: its first process, that kills kernels for us, is frozen with them. */
void kg_pause_over(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    if (sandbox->pause != KG_PAUSE_NO) {
        sandbox->pause = KG_PAUSE_NO;
        sandbox->wanted = false;
        start_clocks(sandbox);
        if (sandbox->sbx) {
            (void)kg_sbx_resume(sandbox->sbx, NULL, NULL);
        }
    }
    kg_pause_failed(sandbox, why);
}

/* ---- the calls ---- */

static int
ask(kg_sandbox_t *sandbox, kg_wait_t **list, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    kg_wait_t *wait = kg_wait_new(sandbox->core, KG_WAIT_SANDBOX, user);
    if (!wait) {
        return kg_oom(err);
    }
    wait->fn.sandbox = done;
    if (kg_core_later(sandbox->core, settle_later, sandbox)) {
        kg_wait_drop(&wait);
        return kg_oom(err);
    }
    LL_APPEND2(*list, wait, list_next);
    return 0;
}

static int check(const kg_sandbox_t *sandbox, kg_err_t *err)
{
    int rc = kg_core_ready(sandbox->core, err);
    if (!rc && (sandbox->deleted || sandbox->box == KG_BOX_ENDING)) {
        rc = kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s is ending", sandbox->id);
    }
    return rc;
}

int kg_pause_check(const kg_core_t *core, const char *launcher, kg_err_t *err)
{
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(core->keeper, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, launcher) == 0 && !rows[i].pauses) {
            int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED, "%s", rows[i].pauses_not);
            kg_err_hint(err, "`sandald doctor` says what the host lacks.");
            return rc;
        }
    }
    return 0;
}

int kg_sandbox_pause(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    int rc = check(sandbox, err);
    bool starting =
        sandbox->create_wait || (sandbox->box != KG_BOX_UP && sandbox->box != KG_BOX_DOWN);
    if (!rc && starting && sandbox->pause == KG_PAUSE_NO) {
        rc = kg_err_set(err, KG_ERR_BUSY, "sandbox %s is starting", sandbox->id);
    }
    rc = rc ? rc : kg_pause_check(sandbox->core, sandbox->launcher, err);
    return rc ? rc : ask(sandbox, &sandbox->pause_waits, done, user, err);
}

int kg_sandbox_resume(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    int rc = check(sandbox, err);
    rc = rc ? rc : ask(sandbox, &sandbox->resume_waits, done, user, err);
    if (!rc) {
        kg_kernels_stay_awake(sandbox);
    }
    return rc;
}
