/* gateway/context: the daemon's stop. Queued runs end at once, running ones when their grace is
 * over; then kernels and sandboxes go, their files and records stay. */
#include "gateway/base/log.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"

/* What is frozen is not over any sooner for being waited for. */
static bool runs_left(const kg_core_t *core)
{
    for (const kg_context_t *c = core->contexts; c; c = c->hh.next) {
        if (c->sandbox->pause != KG_PAUSE_PAUSED && (c->current || c->jobs)) {
            return true;
        }
    }
    for (const kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (s->pause != KG_PAUSE_PAUSED && kg_commands_busy(s, false)) {
            return true;
        }
    }
    return false;
}

static bool places_left(const kg_core_t *core)
{
    for (const kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (s->box != KG_BOX_DOWN || s->incs) {
            return true;
        }
    }
    return false;
}

static void end_places(kg_core_t *core)
{
    kg_sandbox_t *sandbox = NULL;
    kg_sandbox_t *next = NULL;
    HASH_ITER (hh, core->sandboxes, sandbox, next) {
        if (sandbox->box == KG_BOX_DOWN && !sandbox->incs) {
            continue;
        }
        if (sandbox->create_wait) {
            kg_err_t err = {0};
            (void)kg_err_set(&err, KG_ERR_DRAINING, "the daemon is stopping");
            kg_sandbox_created(sandbox, &err);
        } else {
            kg_sandbox_end(sandbox, KG_CAUSE_RESTART, true);
        }
    }
}

static void tell_done(void *user)
{
    kg_core_t *core = user;
    kg_fn *done = core->drain_done;
    core->drain_done = NULL;
    if (done) {
        done(core->drain_user);
    }
}

void kg_core_drain_check(kg_core_t *core)
{
    if (!core->draining || core->drained || core->destroying) {
        return;
    }
    if (!core->drain_over) {
        return;
    }
    if (!places_left(core)) {
        core->drained = true;
        kg_log(KG_LOG_INFO, "core.drained", "sandboxes=%u", HASH_COUNT(core->sandboxes));
        (void)kg_core_later(core, tell_done, core);
    }
}

static void end_attached(kg_core_t *core)
{
    for (kg_context_t *c = core->contexts; c; c = c->hh.next) {
        kg_bridge_end(c, false);
    }
}

static void poll_runs(void *user)
{
    kg_core_t *core = user;
    uint64_t waited = kg_ms(100);
    bool over = core->drain_deadline_ns <= kg_now_ns();
    if (!over && runs_left(core)) {
        kg_timer_start(core->drain_timer, waited, 0);
        return;
    }
    core->drain_over = true;
    end_attached(core);
    end_places(core);
    kg_core_drain_check(core);
}

void kg_core_drain(kg_core_t *core, kg_fn *done, void *user)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_DRAINING, "the daemon is stopping");
    core->drain_done = done;
    core->drain_user = user;
    if (core->draining) {
        return;
    }
    core->draining = true;
    kg_warm_stop(core);
    core->drain_deadline_ns = kg_now_ns() + kg_ms(core->config.drain_grace_ms);
    for (kg_context_t *c = core->contexts; c; c = c->hh.next) {
        kg_jobs_abort(c, KG_CAUSE_RESTART, true, &err);
    }
    if (kg_timer_create(core->loop, poll_runs, core, &core->drain_timer)) {
        core->drain_over = true;
        end_attached(core);
        end_places(core);
        kg_core_drain_check(core);
        return;
    }
    kg_timer_start(core->drain_timer, 0, 0);
}
