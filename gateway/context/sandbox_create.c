/* gateway/context: making a sandbox. Everything that can be refused is refused before anything is
 * made; what fails later takes the sandbox away again. What this host cannot hold is never
 * promised: asked for explicitly it is an error. */
#include <errno.h>
#include <string.h>

#include "gateway/base/isolation.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/warm.h"

/* "namespace: needs root; gvisor: runsc is not there": why not, of those that would have done. */
static void reasons(kg_core_t *core, int rank, char *ret, size_t cap)
{
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(core->keeper, &count);
    ret[0] = '\0';
    for (size_t i = 0, used = 0; i < count; i++) {
        bool would_do =
            kg_isolation_rank(rows[i].name) >= rank && kg_isolation_rank(rows[i].name) > 0;
        if (rows[i].available || !would_do || !rows[i].reason[0]) {
            continue;
        }
        int n = snprintf(ret + used, cap - used, "%s%s: %s", used ? "; " : "", rows[i].name,
                         rows[i].reason);
        if (n < 0 || (size_t)n >= cap - used) {
            ret[used] = '\0';
            return;
        }
        used += (size_t)n;
    }
}

static int unavailable(kg_core_t *core, const char *wish, kg_err_t *err)
{
    char there[120] = "";
    char why[320];
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(core->keeper, &count);
    for (size_t i = 0, used = 0; i < count; i++) {
        if (rows[i].available && used + strlen(rows[i].name) + 3 < sizeof(there)) {
            used += (size_t)snprintf(there + used, sizeof(there) - used, "%s%s", used ? ", " : "",
                                     rows[i].name);
        }
    }
    reasons(core, wish ? kg_isolation_rank(wish) : kg_isolation_rank("bubblewrap"), why,
            sizeof(why));
    int rc = kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                        wish ? "this host cannot isolate by %s or better%s%s"
                             : "this host has no isolation that is taken without being named%s%s%s",
                        wish ? wish : "", why[0] ? ": " : "", why);
    kg_err_hint(
        err,
        "There is: %s. `sandald doctor` says what to change. `none` isolates nothing and is "
        "for operators to allow (isolation_min).",
        there[0] ? there : "nothing");
    kg_err_pointer(err, "/isolation");
    return rc;
}

int kg_sandbox_choose_launcher(kg_core_t *core,
                               const char *wish,
                               char ret_name[KG_LAUNCHER_NAME_MAX],
                               kg_err_t *err)
{
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(core->keeper, &count);
    const kg_launcher_info_t *best = NULL;
    int wanted = wish ? kg_isolation_rank(wish) : -1;
    if (wish && wanted < 0) {
        return kg_bad(err, "/isolation",
                      "isolation: one of none, process, bubblewrap, runc, namespace, gvisor");
    }
    for (size_t i = 0; i < count; i++) {
        int rank = kg_isolation_rank(rows[i].name);
        if (!rows[i].available || rank < 0) {
            continue;
        }
        if (wish && strcmp(rows[i].name, wish) == 0) {
            best = &rows[i];
            break;
        }
        /* With a wish the least that will do; without one namespace, else bubblewrap. */
        bool fits = wish ? wanted > 0 && rank >= wanted
                         : strcmp(rows[i].name, "namespace") == 0 ||
                               strcmp(rows[i].name, "bubblewrap") == 0;
        bool better = !best || (wish ? rank < kg_isolation_rank(best->name)
                                     : rank > kg_isolation_rank(best->name));
        best = fits && better ? &rows[i] : best;
    }
    const char *floor = kg_isolation_floor(core->config.isolation_min, core->config.isolation);
    if (!wish && kg_isolation_rank(floor) > kg_isolation_rank(best ? best->name : "bubblewrap")) {
        return kg_sandbox_choose_launcher(core, floor, ret_name, err);
    }
    if (!best) {
        return unavailable(core, wish, err);
    }
    return kg_format(ret_name, KG_LAUNCHER_NAME_MAX, "%s", best->name);
}

/* ---- checks ---- */

/* A client may ask for better, never for less than the operator allows. */
static int check_floor(const kg_core_t *core, const char *wish, kg_err_t *err)
{
    const char *floor = kg_isolation_floor(core->config.isolation_min, core->config.isolation);
    int rank = wish ? kg_isolation_rank(wish) : -1;
    if (rank < 0 || rank >= kg_isolation_rank(floor)) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                        "isolation %s is weaker than this daemon allows", wish);
    kg_err_hint(err,
                "The operator's floor (isolation_min) is %s: ask for that or better, or leave "
                "isolation out.",
                floor);
    kg_err_pointer(err, "/isolation");
    return rc;
}

static int unsupported(kg_err_t *err, const char *pointer, const char *what)
{
    int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED, "%s", what);
    kg_err_pointer(err, "%s", pointer);
    return rc;
}

static int check_words(const kg_core_t *core,
                       const kg_sandbox_opts_api_t *opts,
                       const char *launcher,
                       kg_err_t *err)
{
    int rc = opts->on_timeout ? kg_on_timeout_check(core, opts->on_timeout, launcher, err) : 0;
    if (rc) {
        return rc;
    }
    if (opts->checkpointable == 1) {
        return unsupported(err, "/checkpointable", "sandboxes of this build have no checkpoints");
    }
    if (opts->timeout_s > INT32_MAX) {
        return kg_bad(err, "/timeout", "timeout: too long");
    }
    return 0;
}

static int check_name(kg_core_t *core, const char *owner, const char *name, kg_err_t *err)
{
    kg_err_t ignored = {0};
    int rc = kg_obj_name_check(name, err);
    if (!rc && kg_sandbox_find(core, owner, name, &ignored)) {
        rc = kg_err_set(err, KG_ERR_NAME_TAKEN, "a sandbox of yours has the name \"%s\"", name);
        kg_err_pointer(err, "/name");
    }
    return rc;
}

static int check_quota(kg_core_t *core, kg_err_t *err)
{
    if (HASH_COUNT(core->sandboxes) - core->hidden < core->config.sandboxes_max) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "this daemon holds at most %u sandboxes",
                        core->config.sandboxes_max);
    if (err) {
        err->retry_after_s = 5;
    }
    return rc;
}

static int
find_template(kg_core_t *core, const char *name, const kg_template_t **ret_tpl, kg_err_t *err)
{
    const kg_template_t *tpl =
        kg_template_find(core, name ? name : core->config.default_template, err);
    if (!tpl) {
        return -kg_err_errno(KG_ERR_TEMPLATE_NOT_FOUND);
    }
    *ret_tpl = tpl;
    const kg_tpl_language_t *lang = NULL;
    const kg_template_t *from = NULL;
    return tpl->language_count
               ? kg_templates_resolve(&core->templates, tpl, NULL, &lang, &from, err)
               : kg_template_usable(tpl, NULL, err);
}

const kg_template_t *kg_template_find(const kg_core_t *core, const char *name, kg_err_t *err)
{
    const kg_template_t *tpl = kg_templates_find(&core->templates, name);
    if (!tpl) {
        (void)kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "No template \"%.64s\".", name);
        kg_err_hint(err, "GET /v1/templates lists them.");
        kg_err_pointer(err, "/template");
    }
    return tpl;
}

json_t *kg_template_list(const kg_core_t *core)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < core->templates.count; i++) {
        const kg_template_t *tpl = core->templates.items[i];
        if (!tpl->hidden && tpl->built) {
            (void)json_array_append_new(items, kg_template_json(core, tpl));
        }
    }
    return json_pack("{s:o, s:n}", "items", items, "next");
}

/* ---- making ---- */

static int
fill(kg_sandbox_t *sandbox, const char *owner, const kg_sandbox_opts_api_t *opts, kg_err_t *err)
{
    kg_core_t *core = sandbox->core;
    sandbox->created_ns = kg_core_stamp(core);
    kg_sandbox_touch(sandbox);
    sandbox->timeout_s =
        opts->timeout_s >= 0 ? opts->timeout_s : (int64_t)core->config.sandbox_timeout_s;
    sandbox->on_timeout = kg_on_timeout_of(opts->on_timeout);
    json_decref(sandbox->metadata); /* a member's */
    sandbox->metadata =
        json_is_object(opts->metadata) ? json_deep_copy(opts->metadata) : json_object();
    sandbox->env = json_is_object(opts->env) ? json_deep_copy(opts->env) : NULL;
    (void)kg_format(sandbox->name, sizeof(sandbox->name), "%s", opts->name ? opts->name : "");
    if (kg_format(sandbox->owner, sizeof(sandbox->owner), "%s", owner)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "the owner's name is too long");
    }
    return sandbox->metadata ? kg_sandbox_save(sandbox, err) : kg_oom(err);
}

/* The default context of a template that has a language of its own. */
static int make_default(kg_sandbox_t *sandbox, kg_err_t *err)
{
    kg_context_opts_t opts = {0};
    kg_context_t *context = NULL;
    if (!sandbox->tpl->language_count) {
        return 0;
    }
    int rc = kg_context_make(sandbox, &opts, true, &context, err);
    if (!rc) {
        context->awaited = true;
    }
    return rc;
}

static int check_all(kg_core_t *core, kg_create_plan_t *plan, kg_err_t *err)
{
    const kg_sandbox_opts_api_t *opts = plan->opts;
    const char *isolation = opts->isolation ? opts->isolation : core->config.isolation;
    int rc = kg_core_ready(core, err);
    rc = rc || !opts->name ? rc : check_name(core, plan->owner, opts->name, err);
    rc = rc ? rc : kg_metadata_check(opts->metadata, err);
    rc = rc ? rc : kg_env_check(opts->env, "/env", err);
    rc = rc ? rc : find_template(core, opts->template_name, &plan->tpl, err);
    rc = rc ? rc : check_floor(core, opts->isolation, err);
    rc = rc ? rc : kg_sandbox_choose_launcher(core, isolation, plan->launcher, err);
    rc = rc ? rc : check_words(core, opts, plan->launcher, err);
    rc = rc ? rc : kg_wish_limits(core, plan->tpl, plan->launcher, opts->limits, &plan->wish, err);
    rc = rc ? rc : kg_wish_network(core, plan->launcher, opts->network, &plan->wish, err);
    rc = rc ? rc : check_quota(core, err);
    if (!rc) {
        plan->start = opts->checkpointable == 0 ? KG_START_ZYGOTE : plan->tpl->start;
    }
    return rc;
}

/* The object, and its default context, without processes. The plan's network is its own. */
static int
make_cold(kg_core_t *core, kg_create_plan_t *plan, kg_sandbox_t **ret_sandbox, kg_err_t *err)
{
    char id[KG_ID_MAX];
    kg_id_generate(&core->node, "sbx", id);
    kg_sandbox_t *sandbox = kg_sandbox_alloc(core, id);
    if (!sandbox) {
        return kg_oom(err);
    }
    sandbox->tpl = plan->tpl;
    sandbox->start.kind = plan->start;
    sandbox->wish = plan->wish;
    plan->wish.network = NULL;
    memcpy(sandbox->launcher, plan->launcher, sizeof(plan->launcher));
    int rc = fill(sandbox, plan->owner, plan->opts, err);
    rc = rc ? rc : make_default(sandbox, err);
    if (rc) {
        (void)kg_store_sandbox_delete(core->store, id, NULL);
        kg_sandbox_free(sandbox);
        return rc;
    }
    *ret_sandbox = sandbox;
    return 0;
}

/* A member of the pool becomes the owner's; one that cannot be written down ends. */
static int
take_warm(kg_core_t *core, kg_create_plan_t *plan, kg_sandbox_t **ret_sandbox, kg_err_t *err)
{
    kg_sandbox_t *sandbox = kg_warm_take(core, plan);
    if (!sandbox) {
        return 0;
    }
    /* What another gateway would take over is what the client asked for. */
    sandbox->unsettled = sandbox->settle || sandbox->hold || sandbox->warm != KG_WARM_DONE;
    bool batch = kg_store_batch(core->store, true, NULL) == 0;
    int rc = fill(sandbox, plan->owner, plan->opts, err);
    sandbox->contexts->created_ns = kg_core_stamp(core);
    rc = rc ? rc : kg_context_save(sandbox->contexts, err);
    if (sandbox->box == KG_BOX_UP) {
        kg_ledger_switch(sandbox, KG_LEDGER_ACTIVE);
    }
    if (batch && kg_store_batch(core->store, false, rc ? NULL : err) && !rc) {
        rc = -EIO;
    }
    if (rc) {
        kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
        return rc;
    }
    *ret_sandbox = sandbox;
    return 0;
}

static int make(kg_core_t *core, kg_create_plan_t *plan, kg_sandbox_t **ret, kg_err_t *err)
{
    int rc = check_all(core, plan, err);
    rc = rc ? rc : take_warm(core, plan, ret, err);
    if (rc || *ret) {
        return rc;
    }
    if (HASH_COUNT(core->sandboxes) >= core->config.sandboxes_max) {
        (void)kg_warm_give_way(core);
    }
    return make_cold(core, plan, ret, err);
}

static void begin(kg_sandbox_t *sandbox)
{
    if (sandbox->start.pool) {
        kg_warm_hand_over(sandbox);
    } else if (sandbox->contexts) {
        kg_context_start(sandbox->contexts);
    } else {
        kg_box_ensure(sandbox);
    }
}

int kg_sandbox_new(kg_core_t *core,
                   const char *owner,
                   const kg_sandbox_opts_api_t *opts,
                   kg_sandbox_fn *done,
                   void *user,
                   kg_err_t *err)
{
    kg_create_plan_t plan = {.owner = owner, .opts = opts};
    kg_sandbox_t *sandbox = NULL;
    kg_wait_t *wait = kg_wait_new(core, KG_WAIT_SANDBOX, user);
    int rc = wait ? make(core, &plan, &sandbox, err) : kg_oom(err);
    json_decref(plan.wish.network);
    if (rc || !sandbox || !wait) {
        kg_wait_drop(&wait);
        return rc;
    }
    wait->fn.sandbox = done;
    sandbox->create_wait = wait;
    core->stats.sandboxes_created++;
    kg_log(KG_LOG_INFO, "sandbox.create", "sandbox=%s template=%s isolation=%s start=%s",
           sandbox->id, sandbox->tpl->name, sandbox->launcher, kg_start_name(sandbox->start));
    begin(sandbox);
    return 0;
}

/* In place of a member that has ended before its create was answered, or cannot become what was
 * asked for: that one goes, and the create has a sandbox made for it. */
static int go_on_cold(kg_sandbox_t *member, kg_err_t *err)
{
    kg_core_t *core = member->core;
    kg_sandbox_t *sandbox = NULL;
    const kg_sandbox_opts_api_t opts = {
        .name = member->name[0] ? member->name : NULL,
        .metadata = member->metadata,
        .env = member->env,
        .timeout_s = member->timeout_s,
        .checkpointable = -1,
    };
    kg_create_plan_t plan = {
        .owner = member->owner,
        .opts = &opts,
        .tpl = member->tpl,
        .start = member->start.kind,
        .wish = member->wish,
    };
    member->wish.network = NULL;
    memcpy(plan.launcher, member->launcher, sizeof(plan.launcher));
    int rc = kg_core_ready(core, err);
    /* Names are unique in the store. */
    rc = rc ? rc : kg_store_sandbox_delete(core->store, member->id, err);
    rc = rc ? rc : make_cold(core, &plan, &sandbox, err);
    json_decref(plan.wish.network);
    if (!sandbox) {
        return rc;
    }
    sandbox->on_timeout = member->on_timeout;
    (void)kg_sandbox_save(sandbox, NULL);
    sandbox->create_wait = KG_TAKE(member->create_wait);
    kg_log(KG_LOG_INFO, "sandbox.create", "sandbox=%s template=%s isolation=%s start=%s",
           sandbox->id, sandbox->tpl->name, sandbox->launcher, kg_start_name(sandbox->start));
    member->hidden = true; /* nobody's again */
    core->hidden++;
    kg_sandbox_end(member, KG_CAUSE_ABORT, false);
    begin(sandbox);
    return 0;
}

/* Now its kernel is one to be found again. */
static void settled_later(void *user)
{
    kg_sandbox_t *sandbox = user;
    if (!sandbox->deleted && sandbox->contexts && !sandbox->contexts->gone) {
        (void)kg_context_save(sandbox->contexts, NULL);
    }
}

void kg_sandbox_created(kg_sandbox_t *sandbox, const kg_err_t *err)
{
    if (!err && sandbox->unsettled) {
        sandbox->unsettled = false;
        (void)kg_core_later(sandbox->core, settled_later, sandbox);
    }
    if (!err) {
        kg_wait_t *done = KG_TAKE(sandbox->create_wait);
        kg_sandbox_touch(sandbox);
        kg_wait_sandbox(&done, sandbox, NULL);
        return;
    }
    kg_err_t why = *err;
    bool goes_on =
        sandbox->start.pool && sandbox->box != KG_BOX_ENDING && why.code != KG_ERR_DRAINING;
    if (goes_on) {
        kg_log(KG_LOG_WARN, "pool.member", "sandbox=%s template=%s step=taken reason=\"%s\"",
               sandbox->id, sandbox->tpl->name, why.message);
    }
    if (goes_on && go_on_cold(sandbox, &why) == 0) {
        return;
    }
    kg_wait_t *wait = KG_TAKE(sandbox->create_wait);
    kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
    kg_wait_sandbox(&wait, NULL, &why);
}
