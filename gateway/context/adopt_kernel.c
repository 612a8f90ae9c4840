/* gateway/context: kernels that outlived their gateway. What is needed to take one over stands in
 * its context's record, from the moment it is ready. At the start it is not known yet whether it
 * lives; runs that were under way end when that is known, for their results say whether the
 * variables are kept. A cell that still runs then goes on as a job of nobody's: what it prints from
 * now on is late output of its run, and a request of our own behind it tells its end. */
#include <stdlib.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/internal.h"

/* ---- the record ---- */

static bool memo_now(const kg_context_t *context, kg_kernel_memo_t *ret)
{
    if (context->memo) {
        *ret = *context->memo;
        return true;
    }
    return context->state == KG_CTX_READY && context->inc && !context->sandbox->unsettled &&
           kg_kernel_memo(context->inc->kernel, ret) == 0;
}

json_t *kg_kernel_record(const kg_context_t *context)
{
    kg_kernel_memo_t memo;
    if (!memo_now(context, &memo)) {
        return NULL;
    }
    json_t *record = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "name", memo.name, "session",
                               memo.session, "key", memo.key, "token", (json_int_t)memo.token,
                               "since_ns", (json_int_t)context->kernel_since_ns, "count",
                               (json_int_t)context->execution_count);
    kg_kernel_memo_wipe(&memo);
    if (record && context->left_cell) { /* no log tells of it any more */
        (void)json_object_set_new(record, "cell", json_true());
    }
    return record;
}

void kg_kernel_record_wipe(json_t *body)
{
    json_t *key = json_object_get(json_object_get(body, "kernel"), "key");
    if (json_is_string(key)) {
        char *text = (char *)(uintptr_t)json_string_value(key);
        explicit_bzero(text, json_string_length(key));
    }
}

void kg_kernel_record_load(kg_context_t *context, json_t *record)
{
    const char *name = NULL;
    const char *session = NULL;
    const char *key = NULL;
    json_int_t token = 0;
    json_int_t since = 0;
    json_int_t count = 0;
    kg_kernel_memo_t memo = {0};
    if (json_unpack(record, "{s:s, s:s, s:s, s:I, s:I, s:I}", "name", &name, "session", &session,
                    "key", &key, "token", &token, "since_ns", &since, "count", &count) ||
        kg_format(memo.name, sizeof(memo.name), "%s", name) ||
        kg_format(memo.session, sizeof(memo.session), "%s", session) ||
        kg_format(memo.key, sizeof(memo.key), "%s", key)) {
        kg_kernel_memo_wipe(&memo);
        return;
    }
    memo.token = (uint64_t)token;
    context->memo = kg_kernel_memo_valid(&memo) ? malloc(sizeof(memo)) : NULL;
    if (context->memo) {
        *context->memo = memo;
        context->kernel_since_ns = (uint64_t)since;
        context->execution_count = count > 0 ? (uint64_t)count : 0;
        context->saved_count = context->execution_count;
        context->left_cell = json_is_true(json_object_get(record, "cell"));
    }
    kg_kernel_memo_wipe(&memo);
}

/* Those that it was asked for are made before it is ready. */
void kg_kernel_record_begin(kg_context_t *context)
{
    context->kernel_since_ns = kg_wall_ns();
    const kg_job_t *job = NULL;
    DL_FOREACH (context->jobs, job) {
        uint64_t made = job->run ? kg_run_log_created_wall_ns(job->run->log) : UINT64_MAX;
        context->kernel_since_ns =
            made < context->kernel_since_ns ? made : context->kernel_since_ns;
    }
    context->saved_count = 0;
    (void)kg_context_save(context, NULL);
}

void kg_kernel_records_tick(kg_core_t *core)
{
    bool asked = false;
    bool batch = false;
    for (kg_context_t *c = core->contexts; c; c = c->hh.next) {
        if (c->state != KG_CTX_READY || c->execution_count == c->saved_count || c->gone) {
            continue;
        }
        batch = asked ? batch : kg_store_batch(core->store, true, NULL) == 0;
        asked = true;
        if (kg_context_save(c, NULL) == 0) {
            c->saved_count = c->execution_count;
        }
    }
    if (batch) {
        (void)kg_store_batch(core->store, false, NULL);
    }
}

/* ---- at the start ---- */

static bool is_of(const kg_run_t *run, const kg_context_t *context)
{
    return !run->is_command && run->log && strcmp(run->context_id, context->id) == 0 &&
           kg_run_log_created_wall_ns(run->log) >= context->kernel_since_ns;
}

void kg_kernels_recovered(kg_sandbox_t *sandbox)
{
    kg_context_t *context = NULL;
    kg_run_t *run = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        DL_FOREACH (sandbox->runs, run) { /* oldest first */
            if (!context->memo || !is_of(run, context) || !run->started) {
                continue;
            }
            int64_t count = kg_run_log_execution_count(run->log);
            if (count > (int64_t)context->execution_count) {
                context->execution_count = (uint64_t)count;
            }
            kg_run_unref_(&context->left_run);
            context->left_run = run;
            kg_run_ref_(run);
        }
        bool cut = context->left_run && !context->left_run->ended;
        context->left_cell = context->left_cell || cut;
    }
}

bool kg_kernel_awaits_verdict(const kg_run_t *run)
{
    kg_context_t *context = NULL;
    HASH_FIND_STR(run->core->contexts, run->context_id, context);
    return context && context->memo && context->sandbox == run->sandbox;
}

bool kg_kernel_may_live(const kg_sandbox_t *sandbox, uint64_t token)
{
    const kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (context->memo && context->memo->token == token) {
            return true;
        }
    }
    return false;
}

void kg_kernels_look(kg_sandbox_t *sandbox)
{
    kg_context_t *context = NULL;
    kg_context_t *next = NULL;
    DL_FOREACH_SAFE (sandbox->contexts, context, next) {
        if (context->memo) {
            kg_context_start(context);
        }
    }
}

void kg_kernels_lost(kg_sandbox_t *sandbox)
{
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (context->incarnation > 0 && !kg_keeper_is_lost(sandbox->core->keeper)) {
            kg_context_note_exit(context, NULL); /* of the daemon's stop too: how is not known */
        }
        kg_kernel_verdict(context, false);
    }
}

/* ---- the verdict ---- */

static void end_left(kg_run_t *run, bool kept)
{
    run->ended = true;
    kg_run_settle(run);
    if (run->mapper) {
        kg_mapper_ended(run->mapper);
    }
    int rc = kg_run_log_finish_recovered(run->log, !kept);
    if (rc) {
        kg_log(KG_LOG_ERROR, "run.finish", "run=%s error=%d", run->id, -rc);
    }
}

static bool settled(const kg_sandbox_t *sandbox)
{
    const kg_context_t *c = NULL;
    DL_FOREACH (sandbox->contexts, c) {
        const kg_job_t *job = c->current;
        if (c->memo || (job && job->kind == KG_JOB_LEFT && !c->left_cell)) {
            return false;
        }
    }
    return true;
}

/* Found paused, it was woken so that its kernels could answer. */
static void pause_again(void *user)
{
    kg_sandbox_t *sandbox = user;
    if (!sandbox->repause || !settled(sandbox)) {
        return;
    }
    bool used = sandbox->wake_waits || sandbox->files > 0 || kg_commands_busy(sandbox, true);
    const kg_context_t *c = NULL;
    DL_FOREACH (sandbox->contexts, c) {
        used = used || c->jobs || c->ready_waits || (c->current && c->current->kind != KG_JOB_LEFT);
    }
    if (used) {
        kg_kernels_stay_awake(sandbox);
    } else {
        sandbox->repause = false;
        kg_pause_begin(sandbox);
    }
}

void kg_kernels_stay_awake(kg_sandbox_t *sandbox)
{
    if (sandbox->repause) {
        sandbox->repause = false;
        (void)kg_sandbox_save(sandbox, NULL);
    }
}

void kg_kernels_pause_again(kg_sandbox_t *sandbox)
{
    if (sandbox->repause) {
        (void)kg_core_later(sandbox->core, pause_again, sandbox);
    }
}

void kg_kernel_memo_drop(kg_context_t *context)
{
    if (context->memo) {
        kg_kernel_memo_wipe(context->memo);
    }
    free(context->memo);
    context->memo = NULL;
    kg_run_unref_(&context->left_run);
}

void kg_kernel_verdict(kg_context_t *context, bool kept)
{
    kg_run_t *run = NULL;
    if (!context->memo || (!kept && kg_keeper_is_lost(context->core->keeper))) {
        return; /* with the keeper gone nothing is known: the next gateway finds out */
    }
    kg_kernel_memo_drop(context);
    context->left_cell = context->left_cell && kept;
    context->execution_count = kept ? context->execution_count : 0;
    DL_FOREACH (context->sandbox->runs, run) {
        if (!run->ended && !run->job && !run->is_command && run->log &&
            strcmp(run->context_id, context->id) == 0) {
            end_left(run, kept);
        }
    }
    kg_kernels_pause_again(context->sandbox);
}

/* ---- taken over ---- */

void kg_kernel_adopted(kg_inc_t *inc)
{
    kg_context_t *context = inc->context;
    const kg_run_t *left = context->left_run;
    /* Its log may have expired. What nobody runs has no limit: a restart kills nothing. */
    const kg_run_meta_t *meta = left && left->log ? kg_run_log_meta(left->log) : NULL;
    uint64_t limit = meta && context->left_cell ? meta->timeout_ms : 0;
    inc->adopting = false;
    inc->ready_ns = kg_now_ns();
    inc->ran = true; /* its end is no failed start */
    context->state = KG_CTX_READY;
    kg_log(KG_LOG_INFO, "kernel.adopted", "context=%s incarnation=%u ms=%llu cell=%d", context->id,
           context->incarnation,
           (unsigned long long)(kg_kernel_start_ns(inc->kernel) / KG_NS_PER_MS),
           context->left_cell);
    kg_kernel_verdict(context, true);
    if (context->left_cell) {
        (void)kg_context_save(context, NULL);
    }
    kg_job_start_left(context, limit);
}

void kg_kernel_not_adopted(kg_inc_t *inc, const kg_err_t *why)
{
    kg_context_t *context = inc->context;
    kg_log(KG_LOG_WARN, "kernel.not_adopted", "context=%s reason=\"%s\"", context->id,
           why->message);
    kg_context_note_exit(context, kg_kernel_exit(inc->kernel));
    kg_kernel_verdict(context, false);
    kg_inc_close(&context->inc);
    context->state = KG_CTX_DOWN; /* the next use starts a fresh one */
    if (context->ready_waits) {
        kg_context_start(context);
    } else {
        kg_context_pump(context);
    }
}
