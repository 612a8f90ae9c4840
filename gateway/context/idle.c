/* gateway/context: what time alone does. Each second: sandboxes that nobody used for their timeout
 * end. Each minute: budgets, the ledger's size, and what is left of runs whose Execution has gone
 * too. */
#include "gateway/base/log.h"
#include "gateway/context/connect_internal.h"
#include "gateway/context/files.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"
#include "gateway/context/zygote.h"

enum {
    TICKS_A_MINUTE = 60, /* a tick a second */
};

static void expire_sandbox(kg_sandbox_t *sandbox, uint64_t now_ns)
{
    if (sandbox->deleted || sandbox->timeout_s <= 0 || sandbox->create_wait || sandbox->hidden ||
        sandbox->pause != KG_PAUSE_NO || kg_sandbox_busy(sandbox)) {
        return;
    }
    if (now_ns - sandbox->idle_since_ns < (uint64_t)sandbox->timeout_s * KG_NS_PER_S) {
        return;
    }
    bool pauses = kg_sandbox_pauses(sandbox);
    if (pauses && (now_ns < sandbox->pause_again_ns ||
                   kg_pause_check(sandbox->core, sandbox->launcher, NULL))) {
        return; /* it could not be: not each second */
    }
    kg_log(KG_LOG_INFO, "sandbox.idle", "sandbox=%s then=%s", sandbox->id,
           pauses ? "pause" : "kill");
    if (pauses) {
        kg_pause_begin(sandbox);
        return;
    }
    kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
}

static void forget_runs(kg_sandbox_t *sandbox)
{
    kg_run_t *run = NULL;
    kg_run_t *next = NULL;
    DL_FOREACH_SAFE (sandbox->runs, run, next) {
        if (run->expired && !run->attached && !run->command &&
            !kg_run_budget_slim(sandbox->core->budget, run->id)) {
            kg_run_orphan(run);
        }
    }
}

void kg_core_tick(void *user)
{
    kg_core_t *core = user;
    uint64_t now = kg_now_ns();
    bool minute = ++core->ticks % TICKS_A_MINUTE == 0;
    kg_sandbox_t *sandbox = NULL;
    kg_sandbox_t *next = NULL;
    if (core->ticks % KG_LEDGER_S == 0) {
        kg_ledger_tick(core);
        kg_kernel_records_tick(core);
    }
    if (core->ticks % KG_KEYS_S == 0) {
        kg_connections_tick(core);
    }
    if (minute) {
        kg_run_budget_tick(core->budget, kg_wall_ns());
        kg_ledger_prune(core);
        kg_files_tick(core);
        kg_zygotes_tick(core);
    }
    kg_core_refill(core, true);
    kg_heap_tidy(&core->heap);
    kg_manners_look(&core->manners, now);
    kg_warm_tick(core);
    HASH_ITER (hh, core->sandboxes, sandbox, next) {
        if (minute) {
            kg_commands_tidy(sandbox);
            forget_runs(sandbox);
        }
        if (!core->draining) {
            expire_sandbox(sandbox, now);
        }
    }
}
