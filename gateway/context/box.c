/* gateway/context: a sandbox's place in the world: brought up through the keeper when it is first
 * needed, its HOME filled, taken down when it has ended or was lost. Kernels live only between. */
#include "gateway/base/log.h"
#include "gateway/context/files.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"
#include "gateway/context/zygote.h"

enum {
    SKELETON_MS = 30000 /* HOME's files are copied in tens of milliseconds */
};

/* Who waits for the place hears why there is none. */
static void tell_failed(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    kg_err_t err = *why;
    kg_context_t *context = NULL;
    kg_context_t *next = NULL;
    kg_log(KG_LOG_WARN, "sandbox.failed", "sandbox=%s code=%s", sandbox->id, kg_err_name(err.code));
    if (sandbox->create_wait && !sandbox->contexts) {
        kg_sandbox_created(sandbox, &err);
        return;
    }
    kg_wake_failed(sandbox, &err);
    DL_FOREACH_SAFE (sandbox->contexts, context, next) {
        kg_context_box_ready(context, &err);
    }
}

static void box_failed(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    sandbox->box = KG_BOX_DOWN;
    tell_failed(sandbox, why);
}

static void box_up(kg_sandbox_t *sandbox)
{
    kg_timer_close(&sandbox->skeleton_timer);
    sandbox->box = KG_BOX_UP;
    sandbox->reuse = true;
    kg_ledger_switch(sandbox, KG_LEDGER_ACTIVE);
    if (sandbox->create_wait && !sandbox->contexts) {
        kg_sandbox_created(sandbox, NULL);
        return;
    }
    kg_pause_pump(sandbox);
}

static void skeleton_done(void *user, const kg_exit_t *exit)
{
    kg_sandbox_t *sandbox = user;
    kg_proc_close(&sandbox->skeleton);
    if (sandbox->box != KG_BOX_SKELETON) {
        return;
    }
    if (!exit->exited || exit->code) {
        /* A HOME without its caches is slower, no less right. */
        kg_log(KG_LOG_WARN, "sandbox.skeleton", "sandbox=%s code=%d signal=%d", sandbox->id,
               exit->code, exit->signal);
    }
    box_up(sandbox);
}

static void skeleton_spawned(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (!proc) {
        kg_log(KG_LOG_WARN, "sandbox.skeleton", "sandbox=%s error=%s", sandbox->id,
               kg_err_name(err->code));
        if (sandbox->box == KG_BOX_SKELETON) {
            box_up(sandbox);
        }
        return;
    }
    sandbox->skeleton = proc;
    kg_proc_on_exit(proc, skeleton_done, sandbox);
}

static void skeleton_over(void *user)
{
    kg_sandbox_t *sandbox = user;
    kg_timer_close(&sandbox->skeleton_timer);
    if (sandbox->box != KG_BOX_SKELETON) {
        return;
    }
    kg_log(KG_LOG_WARN, "sandbox.skeleton", "sandbox=%s error=timeout", sandbox->id);
    if (sandbox->skeleton) {
        (void)kg_proc_kill_tree(sandbox->skeleton);
        kg_proc_close(&sandbox->skeleton);
    }
    box_up(sandbox);
}

int kg_skeleton_spawn(
    kg_sbx_t *sbx, const kg_template_t *tpl, kg_spawned_fn *fn, void *user, kg_err_t *err)
{
    const char *skel = tpl->home_skel;
    if (!skel || access(skel, F_OK) != 0) {
        return 0;
    }
    const char *const argv[] = {"cp", "-rT", skel, kg_sbx_info(sbx)->home, NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env};
    int rc = kg_sbx_spawn(sbx, &opts, fn, user, err);
    return rc ? rc : 1;
}

static void fill_home(kg_sandbox_t *sandbox)
{
    kg_err_t err = {0};
    if (sandbox->reuse) {
        box_up(sandbox);
        return;
    }
    sandbox->box = KG_BOX_SKELETON;
    if (kg_timer_create(sandbox->core->loop, skeleton_over, sandbox, &sandbox->skeleton_timer)) {
        box_up(sandbox);
        return;
    }
    kg_timer_start(sandbox->skeleton_timer, kg_ms(SKELETON_MS), 0);
    int rc = kg_skeleton_spawn(sandbox->sbx, sandbox->tpl, skeleton_spawned, sandbox, &err);
    if (rc == 0) {
        box_up(sandbox);
    } else if (rc < 0) {
        kg_log(KG_LOG_WARN, "sandbox.skeleton", "sandbox=%s error=%s", sandbox->id,
               kg_err_name(err.code));
        box_up(sandbox);
    }
}

/* Kernels that are gone with it tell so by themselves; a fresh place is made when the next one
 * starts. */
static void box_lost(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    kg_log(KG_LOG_ERROR, "sandbox.lost", "sandbox=%s code=%s", sandbox->id, kg_err_name(err->code));
    bool starting = sandbox->box == KG_BOX_SKELETON;
    if (sandbox->box == KG_BOX_ENDING) {
        return;
    }
    sandbox->box = KG_BOX_LOST;
    kg_pause_over(sandbox, err);
    kg_ledger_switch(sandbox, KG_LEDGER_NONE);
    kg_questions_fail(sandbox, err);
    kg_files_box_gone(sandbox, err);
    kg_box_inc_closed(sandbox);
    if (starting) {
        tell_failed(sandbox, err);
    }
}

uint64_t kg_box_oom_kills(kg_sandbox_t *sandbox)
{
    uint64_t kills = sandbox->sbx ? kg_sbx_oom_kills(sandbox->sbx) : UINT64_MAX;
    if (kills == UINT64_MAX) {
        return UINT64_MAX;
    }
    if (kills > sandbox->kills.count) {
        sandbox->core->stats.oom_kills += kills - sandbox->kills.count;
        kg_kills_seen(&sandbox->kills, kills);
        kg_log(KG_LOG_WARN, "sandbox.oom", "sandbox=%s kills=%llu", sandbox->id,
               (unsigned long long)kills);
    }
    return kills;
}

bool kg_box_oom_charge(kg_sandbox_t *sandbox, uint64_t before)
{
    return kg_box_oom_kills(sandbox) != UINT64_MAX && kg_kills_take(&sandbox->kills, before);
}

bool kg_box_starved(kg_sandbox_t *sandbox, uint64_t before)
{
    uint64_t kills = kg_box_oom_kills(sandbox);
    return kills != UINT64_MAX && before != UINT64_MAX && kills > before;
}

bool kg_box_oom_counted(const kg_sandbox_t *sandbox)
{
    return sandbox->sbx && kg_sbx_oom_kills(sandbox->sbx) != UINT64_MAX;
}

static void box_made(kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    sandbox->sweeping = false;
    sandbox->sbx = sbx;
    sandbox->info = *kg_sbx_info(sbx);
    kg_sbx_on_lost(sbx, box_lost, sandbox);
    uint64_t kills = kg_sbx_oom_kills(sbx); /* of one that was found: those of earlier times */
    sandbox->kills = (kg_kills_t){0};
    kg_kills_seen(&sandbox->kills, kills == UINT64_MAX ? 0 : kills);
    if (sandbox->box == KG_BOX_ENDING) {
        kg_sandbox_ended_check(sandbox);
        return;
    }
    kg_warm_placed(sandbox);
    fill_home(sandbox);
}

static void create(kg_sandbox_t *sandbox);
static void create_failed_later(void *user);

/* Below a zygote there was no place: it goes without. What has nothing to do with the zygote fails
 * a second time. */
static bool give_up_zygote(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    if (!sandbox->zygote || why->code == KG_ERR_DRAINING) {
        return false;
    }
    kg_log(KG_LOG_WARN, "sandbox.no_zygote", "sandbox=%s zygote=%s reason=\"%s\"", sandbox->id,
           kg_zygote_id(sandbox->zygote), why->message);
    kg_zygote_leave(sandbox);
    sandbox->no_zygote = true;
    kg_zygote_none(sandbox);
    return true;
}

static void box_created(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (sbx) {
        kg_wish_made(sandbox->core, &sandbox->wish, sandbox->id);
        box_made(sandbox, sbx);
        return;
    }
    sandbox->sweeping = false;
    if (sandbox->box == KG_BOX_ENDING && !sandbox->keep_files && sandbox->reuse &&
        kg_wish_relax(&sandbox->wish, err)) {
        create(sandbox); /* only who has the place can remove its files */
        sandbox->box = KG_BOX_ENDING;
        sandbox->sweeping = true;
    } else if (sandbox->box == KG_BOX_ENDING) {
        kg_sandbox_ended_check(sandbox);
    } else if (give_up_zygote(sandbox, err)) {
        create(sandbox);
    } else if (kg_wish_relax(&sandbox->wish, err)) {
        sandbox->core->pools_relaxed = sandbox->core->pools_relaxed || sandbox->hidden;
        create(sandbox);
    } else {
        kg_err_t why = *err;
        if (why.code == KG_ERR_NOT_SUPPORTED && !why.pointer[0]) {
            unsigned asked = sandbox->wish.asked_limits;
            kg_err_pointer(&why, "%s",
                           asked == KG_ASKED_DISK ? "/limits/disk_mib"
                           : asked                ? "/limits"
                                                  : "/network");
        }
        box_failed(sandbox, &why);
    }
}

static void ensure_later(void *user)
{
    kg_box_ensure(user);
}

static void down(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)err;
    sandbox->sweeping = false;
    kg_zygote_leave(sandbox);
    if (sandbox->box == KG_BOX_ENDING) {
        kg_sandbox_ended_check(sandbox);
        return;
    }
    sandbox->box = KG_BOX_DOWN;
    if (sandbox->wake_waits) {
        (void)kg_core_later(sandbox->core, ensure_later, sandbox);
        return;
    }
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        /* Jobs of one that is down waited for it to be woken when it was lost. */
        if ((context->state == KG_CTX_STARTING && !context->inc) || context->jobs) {
            (void)kg_core_later(sandbox->core, ensure_later, sandbox);
            return;
        }
    }
}

/* What was lost is taken down, its files kept for a fresh start. Whoever deleted the sandbox
 * meanwhile wants them gone too. */
static void swept(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (sandbox->box == KG_BOX_ENDING && !sandbox->keep_files &&
        kg_keeper_end(sandbox->core->keeper, sandbox->id, false, down, sandbox) == 0) {
        return;
    }
    down(user, err);
}

static void create_failed_later(void *user)
{
    kg_sandbox_t *sandbox = user;
    sandbox->sweeping = false;
    if (sandbox->box == KG_BOX_CREATING && !sandbox->sbx) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "the keeper has gone");
        box_failed(sandbox, &err);
    } else if (sandbox->box == KG_BOX_ENDING) {
        kg_sandbox_ended_check(sandbox);
    }
}

static void create(kg_sandbox_t *sandbox)
{
    kg_err_t err = {0};
    sandbox->box = KG_BOX_CREATING;
    if (kg_zygote_join(sandbox)) {
        return;
    }
    kg_sandbox_opts_t opts = {
        .id = sandbox->id,
        .launcher = sandbox->launcher,
        .reuse = sandbox->reuse,
        .zygote = sandbox->zygote ? kg_zygote_id(sandbox->zygote) : NULL,
        .template_name = sandbox->tpl->name,
        .limits = sandbox->wish.limits,
        .network = sandbox->wish.net,
    };
    if (kg_sandbox_create(sandbox->core->keeper, &opts, box_created, sandbox, &err)) {
        kg_log(KG_LOG_ERROR, "sandbox.create", "sandbox=%s code=%s", sandbox->id,
               kg_err_name(err.code));
        (void)kg_core_later(sandbox->core, create_failed_later, sandbox);
    }
}

void kg_box_zygote_ready(kg_sandbox_t *sandbox)
{
    if (sandbox->box == KG_BOX_CREATING) {
        create(sandbox);
    } else {
        (void)kg_core_later(sandbox->core, create_failed_later, sandbox); /* ended meanwhile */
    }
}

void kg_box_found(kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    sandbox->finding = false;
    box_made(sandbox, sbx);
}

void kg_box_not_found(kg_sandbox_t *sandbox)
{
    sandbox->finding = false;
    kg_kernels_lost(sandbox);
    down(sandbox, NULL);
}

void kg_box_ensure(kg_sandbox_t *sandbox)
{
    kg_pause_wake(sandbox); /* at once where nothing runs in it */
    if (sandbox->pause != KG_PAUSE_NO) {
        return;
    }
    if (sandbox->box == KG_BOX_UP) {
        kg_context_t *context = NULL;
        kg_context_t *next = NULL;
        DL_FOREACH_SAFE (sandbox->contexts, context, next) {
            kg_context_box_ready(context, NULL);
        }
        return;
    }
    if (sandbox->box != KG_BOX_DOWN) {
        return;
    }
    create(sandbox);
}

void kg_box_inc_closed(kg_sandbox_t *sandbox)
{
    if (sandbox->box == KG_BOX_ENDING) {
        kg_sandbox_ended_check(sandbox);
    } else if (sandbox->box == KG_BOX_LOST && sandbox->incs == 0 && sandbox->sbx) {
        kg_commands_place_gone(sandbox);
        kg_sbx_forget(sandbox->sbx, sandbox);
        kg_timer_close(&sandbox->skeleton_timer);
        kg_proc_close(&sandbox->skeleton);
        sandbox->sweeping = true;
        kg_sbx_destroy(&sandbox->sbx, true, swept, sandbox);
    }
}
