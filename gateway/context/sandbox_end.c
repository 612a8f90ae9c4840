/* gateway/context: the end of a sandbox, for good (files and record go) or for the daemon's stop
 * (they stay). Order: contexts with their runs, then kernels, then the place itself. */
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/files.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"
#include "gateway/context/zygote.h"

kg_sandbox_t *kg_sandbox_alloc(kg_core_t *core, const char *id)
{
    kg_sandbox_t *sandbox = calloc(1, sizeof(*sandbox));
    if (sandbox) {
        sandbox->core = core;
        (void)kg_format(sandbox->id, sizeof(sandbox->id), "%s", id);
        HASH_ADD_STR(core->sandboxes, id, sandbox);
    }
    return sandbox;
}

/* Kernels that are still open when a core is destroyed keep the place until they are closed. */
static void bury(kg_sandbox_t *sandbox)
{
    kg_grave_t *grave = sandbox->incs ? calloc(1, sizeof(*grave)) : NULL;
    kg_inc_t *inc = NULL;
    if (grave) {
        grave->sbx = KG_TAKE(sandbox->sbx);
        grave->incs = sandbox->incs;
    }
    DL_FOREACH (sandbox->core->incs, inc) {
        if (inc->sandbox == sandbox) {
            inc->sandbox = NULL;
            inc->grave = grave;
        }
    }
    kg_sbx_destroy(&sandbox->sbx, true, NULL, NULL);
}

void kg_sandbox_free(kg_sandbox_t *sandbox)
{
    if (!sandbox) {
        return;
    }
    if (sandbox->sbx) {
        kg_sbx_forget(sandbox->sbx, sandbox);
    }
    if (sandbox->core->keeper) {
        kg_keeper_forget(sandbox->core->keeper, sandbox);
    }
    kg_timer_close(&sandbox->skeleton_timer);
    kg_proc_close(&sandbox->skeleton);
    kg_core_later_forget(sandbox->core, sandbox);
    kg_commands_free(sandbox);
    kg_questions_free(sandbox);
    kg_pause_drop(sandbox);
    bool destroying = sandbox->core->destroying;
    sandbox->core->destroying = true; /* contexts don't report to what is being freed */
    while (sandbox->contexts) {
        kg_context_free(sandbox->contexts);
    }
    sandbox->core->destroying = destroying;
    while (sandbox->runs) {
        kg_run_orphan(sandbox->runs);
    }
    bury(sandbox);
    kg_zygote_leave(sandbox);
    kg_wait_drop(&sandbox->create_wait);
    kg_wait_drop(&sandbox->gone_wait);
    while (sandbox->wake_waits) {
        kg_wait_t *wait = sandbox->wake_waits;
        sandbox->wake_waits = wait->list_next;
        kg_wait_drop(&wait);
    }
    HASH_DEL(sandbox->core->sandboxes, sandbox);
    sandbox->core->hidden -= sandbox->hidden;
    json_decref(sandbox->metadata);
    json_decref(sandbox->env);
    json_decref(sandbox->exposed);
    json_decref(sandbox->wish.network);
    free(sandbox);
}

static void orphan_runs(kg_sandbox_t *sandbox)
{
    kg_run_budget_drop_sandbox(sandbox->core->budget, sandbox->id);
    while (sandbox->runs) {
        kg_run_orphan(sandbox->runs);
    }
    kg_core_refill(sandbox->core, false);
}

static void destroyed(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    kg_core_t *core = sandbox->core;
    kg_wait_t *wait = KG_TAKE(sandbox->gone_wait);
    if (err) {
        kg_log(KG_LOG_ERROR, "sandbox.end", "sandbox=%s code=%s", sandbox->id,
               kg_err_name(err->code));
    }
    core->stats.sandboxes_ended += !sandbox->hidden;
    if (!err && !sandbox->keep_files) { /* else the next start removes what is left */
        (void)kg_store_disposable_delete(core->store, sandbox->id, NULL);
    }
    if (sandbox->create_wait) {
        kg_err_t gone = {0};
        (void)kg_err_set(&gone, KG_ERR_SANDBOX_NOT_FOUND,
                         "the sandbox was deleted while it started");
        kg_wait_sandbox(&sandbox->create_wait, NULL, &gone);
    }
    if (sandbox->keep_files) {
        /* The record stays for the next start; the object too, for those who read runs until then.
         */
        sandbox->box = KG_BOX_DOWN;
        sandbox->going = false;
        kg_zygote_leave(sandbox);
    } else {
        kg_sandbox_free(sandbox);
    }
    kg_wait_done(&wait, err);
    kg_core_drain_check(core);
}

static void destroyed_later(void *user)
{
    destroyed(user, NULL);
}

void kg_sandbox_ended_check(kg_sandbox_t *sandbox)
{
    if (sandbox->box != KG_BOX_ENDING || sandbox->incs || sandbox->going || sandbox->sweeping) {
        return;
    }
    if (!sandbox->keep_files) {
        if (sandbox->contexts) {
            return;
        }
        orphan_runs(sandbox);
    }
    if (kg_files_discarding(sandbox)) {
        return;
    }
    sandbox->going = true;
    kg_timer_close(&sandbox->skeleton_timer);
    kg_proc_close(&sandbox->skeleton);
    if (sandbox->sbx) {
        kg_sbx_forget(sandbox->sbx, sandbox);
        kg_sbx_destroy(&sandbox->sbx, sandbox->keep_files, destroyed, sandbox);
        return;
    }
    (void)kg_core_later(sandbox->core, destroyed_later, sandbox);
}

void kg_sandbox_context_gone(kg_sandbox_t *sandbox)
{
    kg_sandbox_ended_check(sandbox);
}

static void check_later(void *user)
{
    kg_sandbox_ended_check(user);
}

void kg_sandbox_end(kg_sandbox_t *sandbox, kg_cause_t cause, bool keep_files)
{
    kg_context_t *context = NULL;
    kg_context_t *next = NULL;
    if (sandbox->box == KG_BOX_ENDING) {
        return;
    }
    kg_warm_gone(sandbox);
    if (!keep_files && sandbox->box == KG_BOX_DOWN && sandbox->reuse) {
        /* Not used since the daemon started: its files are there all the same, and only who has
         * the place can remove them. */
        kg_box_ensure(sandbox);
    }
    bool creating = sandbox->box == KG_BOX_CREATING && !sandbox->zygote_waits;
    if (sandbox->zygote_waits) {
        kg_zygote_leave(sandbox); /* the keeper was not asked for anything yet */
    }
    sandbox->sweeping = sandbox->sweeping || creating;
    sandbox->box = KG_BOX_ENDING;
    sandbox->keep_files = keep_files;
    if (keep_files) {
        kg_ledger_switch(sandbox, KG_LEDGER_NONE);
    } else {
        kg_ledger_end(sandbox);
        sandbox->deleted = true;
        if (!sandbox->hidden) {
            (void)kg_store_sandbox_delete(sandbox->core->store, sandbox->id, NULL);
        }
    }
    kg_err_t err = {0};
    (void)(keep_files
               ? kg_err_set(&err, KG_ERR_DRAINING, "the daemon is stopping")
               : kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s was ended", sandbox->id));
    kg_pause_over(sandbox, &err);
    kg_wake_failed(sandbox, &err);
    kg_questions_fail(sandbox, &err);
    kg_files_box_gone(sandbox, &err);
    kg_commands_end(sandbox, cause, &err);
    DL_FOREACH_SAFE (sandbox->contexts, context, next) {
        if (keep_files) {
            kg_jobs_abort(context, cause, true, &err);
            kg_context_fail_waits(context, &err);
            kg_context_end_kernel(context, cause);
            if (context->fresh) {
                /* A create that fails leaves nothing. */
                (void)kg_store_context_delete(context->core->store, context->id, NULL);
            }
        } else {
            kg_context_remove(context, cause);
        }
    }
    /* While the keeper makes it there is nothing to end yet: its answer comes to us. */
    if (!creating) {
        (void)kg_core_later(sandbox->core, check_later, sandbox);
    }
}

int kg_sandbox_delete(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err)
{
    if (sandbox->core->draining) {
        /* Its files stay for the next start, and so would the record's absence. */
        int draining = kg_err_set(err, KG_ERR_DRAINING, "the daemon is stopping");
        if (err) {
            err->retry_after_s = 1;
        }
        return draining;
    }
    kg_wait_t *wait = kg_wait_new(sandbox->core, KG_WAIT_DONE, user);
    if (!wait) {
        return kg_oom(err);
    }
    int rc = kg_store_sandbox_delete(sandbox->core->store, sandbox->id, err);
    if (rc) {
        kg_wait_drop(&wait);
        return rc;
    }
    wait->fn.done = done;
    sandbox->gone_wait = wait;
    kg_log(KG_LOG_INFO, "sandbox.delete", "sandbox=%s", sandbox->id);
    kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
    return 0;
}
