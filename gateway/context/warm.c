/* gateway/context: members of warm pools, made, looked at and handed over. How many there are is
 * gateway/pool's arithmetic. A member comes by the way of any other sandbox; what makes it one is
 * that it has no owner, that nobody waits for its create, and that it isn't in the store: what a
 * killed daemon leaves of it is ended at the next start as unknown. */
#include "gateway/context/warm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/pool/host.h"
#include "proto/json_scan.h"

enum {
    SOON_MS = 50,    /* who took one runs a first cell now */
    SHARE = 30,      /* per cent of the cpu that a sandbox in use gets beside it */
    PIDS_GUESS = 64, /* of a member that was not asked yet */
    PIDS_ROOM = 16   /* beside those in use, for what its taker starts */
};

#define MIB (UINT64_C(1) << 20)

/* ---- questions to its kernel and to the keeper ---- */

/* __import__('sandal_context').VERB("TEXT") */
static int ask_helper(kg_sandbox_t *sandbox,
                      const char *verb,
                      const char *text,
                      kg_context_reply_fn *done,
                      kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t expression = {0};
    int rc = kg_buf_printf(&expression, "__import__('sandal_context').%s(", verb);
    rc = rc || !text ? rc : kg_json_quote(&expression, text, strlen(text));
    rc = rc ? rc : kg_buf_append_char(&expression, ')');
    return rc ? kg_oom(err)
              : kg_context_helper(sandbox->contexts, kg_buf_slice(&expression), done, sandbox, err);
}

static uint64_t known(const kg_box_usage_t *usage)
{
    return usage && usage->memory_bytes != UINT64_MAX ? usage->memory_bytes : 0;
}

static void note_pids(kg_sandbox_t *sandbox, const kg_box_usage_t *usage)
{
    if (usage && usage->pids != UINT64_MAX) {
        sandbox->pids = usage->pids;
    }
}

/* Where no group counts it: the kernel's process alone. */
static uint64_t weight(const kg_sandbox_t *sandbox, const kg_box_usage_t *usage)
{
    kg_inc_t *inc = sandbox->contexts ? sandbox->contexts->inc : NULL;
    uint64_t bytes = known(usage);
    if (!bytes && inc) {
        uint64_t peak = kg_meter_peak(&inc->meter, kg_kernel_pid(inc->kernel));
        bytes = peak == KG_USAGE_UNKNOWN ? 0 : peak;
    }
    return bytes;
}

/* ---- to ready ---- */

static void weighed(void *user, const kg_box_usage_t *usage, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)err;
    note_pids(sandbox, usage);
    if (sandbox->member) {
        kg_member_ready(sandbox->member, kg_now_ns(), weight(sandbox, usage));
        kg_warm_soon(sandbox->core);
    }
}

static void not_good(kg_sandbox_t *sandbox, const char *step, const kg_err_t *err)
{
    kg_log(KG_LOG_WARN, "pool.member", "sandbox=%s template=%s step=%s reason=\"%s\"", sandbox->id,
           sandbox->tpl->name, step, err->message);
    kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
}

static void hand_over(kg_sandbox_t *sandbox);

static void warmed(void *user, kg_slice_t json, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)json;
    if (sandbox->core->destroying || sandbox->box == KG_BOX_ENDING) {
        return;
    }
    sandbox->warm = KG_WARM_DONE;
    if (sandbox->create_wait) {
        hand_over(sandbox); /* it was taken meanwhile; a failure will show there, if it matters */
    } else if (err) {
        not_good(sandbox, "warm_up", err);
    } else if (kg_sbx_box_usage(sandbox->sbx, weighed, sandbox)) {
        weighed(sandbox, NULL, NULL);
    }
}

void kg_warm_placed(kg_sandbox_t *sandbox)
{
    const kg_limits_t none = {0};
    if (sandbox->member) {
        (void)kg_sbx_hold(sandbox->sbx, &none, SHARE, NULL, NULL);
    }
}

void kg_warm_kernel_ready(kg_sandbox_t *sandbox)
{
    kg_err_t err = {0};
    if (sandbox->create_wait) {
        hand_over(sandbox);
        return;
    }
    if (!sandbox->member) {
        return;
    }
    const char *code = sandbox->tpl->warm_up ? sandbox->tpl->warm_up : "";
    sandbox->warm = KG_WARM_RUNNING;
    if (ask_helper(sandbox, "warm", code, warmed, &err)) {
        not_good(sandbox, "warm_up", &err);
    }
}

/* ---- what the pools ask for ---- */

static int begin(kg_sandbox_t *sandbox, kg_err_t *err)
{
    kg_core_t *core = sandbox->core;
    kg_context_opts_t opts = {0};
    kg_context_t *context = NULL;
    int rc = kg_sandbox_choose_launcher(core, core->config.isolation, sandbox->launcher, err);
    rc = rc ? rc : kg_wish_limits(core, sandbox->tpl, sandbox->launcher, NULL, &sandbox->wish, err);
    rc = rc ? rc : kg_wish_network(core, sandbox->launcher, NULL, &sandbox->wish, err);
    sandbox->metadata = json_object();
    rc = rc || sandbox->metadata ? rc : kg_oom(err);
    rc = rc ? rc : kg_context_make(sandbox, &opts, true, &context, err);
    if (!rc) {
        kg_context_start(context);
    }
    return rc;
}

static int make(void *user, kg_pool_t *pool, kg_member_t *member, void **ret_object)
{
    kg_core_t *core = user;
    kg_err_t err = {0};
    char id[KG_ID_MAX];
    kg_id_generate(&core->node, "sbx", id);
    kg_sandbox_t *sandbox = kg_sandbox_alloc(core, id);
    if (!sandbox) {
        return kg_oom(&err);
    }
    core->hidden++;
    sandbox->hidden = true;
    sandbox->tpl = kg_pool_user(pool);
    sandbox->start.kind = kg_start_kind_of(kg_pool_start(pool));
    sandbox->created_ns = kg_core_stamp(core);
    int rc = kg_store_disposable_put(core->store, id, &err); /* till somebody takes it */
    rc = rc ? rc : begin(sandbox, &err);
    if (rc) {
        kg_log(KG_LOG_WARN, "pool.member", "template=%s step=begin reason=\"%s\"",
               sandbox->tpl->name, err.message);
        kg_sandbox_free(sandbox);
        return rc;
    }
    sandbox->member = member;
    *ret_object = sandbox;
    return 0;
}

static void end(void *user, void *object)
{
    kg_sandbox_t *sandbox = object;
    (void)user;
    sandbox->member = NULL;
    kg_sandbox_end(sandbox, KG_CAUSE_ABORT, false);
}

static void checked_usage(void *user, const kg_box_usage_t *usage, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)err;
    note_pids(sandbox, usage);
    if (sandbox->member) {
        kg_member_checked(sandbox->member, true, kg_now_ns(), known(usage));
    }
}

static void checked(void *user, kg_slice_t json, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)json;
    if (!sandbox->member || sandbox->core->destroying) {
        return;
    }
    if (err) {
        kg_log(KG_LOG_WARN, "pool.member", "sandbox=%s template=%s step=check reason=\"%s\"",
               sandbox->id, sandbox->tpl->name, err->message);
        kg_member_checked(sandbox->member, false, kg_now_ns(), 0);
    } else if (kg_sbx_box_usage(sandbox->sbx, checked_usage, sandbox)) {
        checked_usage(sandbox, NULL, NULL);
    }
}

static void failed_check_later(void *user)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "it cannot be asked");
    checked(user, (kg_slice_t){0}, &err);
}

/* What puts a run's own environment back, of which there is none: a way through the kernel's whole
 * queue. One that does not answer is killed after KG_HIDDEN_MS. */
static void check(void *user, kg_member_t *member, void *object)
{
    kg_core_t *core = user;
    kg_err_t err = {0};
    (void)member;
    if (ask_helper(object, "leave", NULL, checked, &err)) {
        (void)kg_core_later(core, failed_check_later, object);
    }
}

/* Somebody's kernel is being started: none of ours beside it. */
static bool somebody_starts(const kg_core_t *core)
{
    for (const kg_context_t *c = core->contexts; c; c = c->hh.next) {
        if (!c->sandbox->hidden && !c->gone && c->state == KG_CTX_STARTING) {
            return true;
        }
    }
    return false;
}

static kg_pool_pressure_t pressure(void *user)
{
    const kg_core_t *core = user;
    kg_pool_pressure_t host = kg_pool_host_pressure();
    bool full = HASH_COUNT(core->sandboxes) >= core->config.sandboxes_max;
    return host == KG_POOL_PRESSURE_NONE && (full || somebody_starts(core)) ? KG_POOL_PRESSURE_HOLD
                                                                            : host;
}

/* ---- the pools' life ---- */

static void timer(void *user)
{
    kg_core_t *core = user;
    core->pool_soon = false;
    kg_warm_tick(core);
}

static bool can_fork(const kg_template_t *tpl)
{
    bool can = false;
    for (size_t i = 0; i < tpl->language_count; i++) {
        can = can || tpl->languages[i].zygote;
    }
    return can;
}

/* "NAME:MIN-MAX" or "NAME/START:MIN-MAX" of the configuration, its parts. A name that isn't one is
 * "". The size has been looked at before. */
typedef struct kg_size_item {
    char name[KG_OBJ_NAME_MAX + 1];
    char start[16]; /* "": as the template's */
    const char *size;
} kg_size_item_t;

static kg_size_item_t size_item(const char *text)
{
    kg_size_item_t item = {.size = text + strcspn(text, ":")};
    size_t name = strcspn(text, "/:");
    item.size += *item.size == ':';
    if (text[name] == '/' && kg_format(item.start, sizeof(item.start), "%.*s",
                                       (int)strcspn(text + name + 1, ":"), text + name + 1)) {
        return item;
    }
    if (kg_format(item.name, sizeof(item.name), "%.*s", (int)name, text)) {
        item.name[0] = '\0';
    }
    return item;
}

static void own_size(const kg_core_config_t *config,
                     const kg_template_t *tpl,
                     kg_start_kind_t kind,
                     kg_pool_opts_t *opts)
{
    for (size_t i = 0; i < config->pool_size_count; i++) {
        kg_size_item_t item = size_item(config->pool_sizes[i]);
        bool same = item.start[0] ? kg_start_kind_of(item.start) == kind : tpl->start == kind;
        if (same && strcmp(item.name, tpl->name) == 0) {
            (void)kg_pool_size_parse(item.size, &opts->min, &opts->max);
        }
    }
}

static int add(kg_core_t *core,
               const kg_core_config_t *config,
               kg_template_t *tpl,
               kg_start_kind_t kind,
               kg_err_t *err)
{
    kg_pool_opts_t opts = tpl->pools[kind];
    kg_pool_t *pool = NULL;
    bool forked = kind == KG_START_ZYGOTE && kind != tpl->start;
    if (forked && (config->zygote_per_owner || !can_fork(tpl))) {
        return 0;
    }
    own_size(config, tpl, kind, &opts);
    if (kind == KG_START_SPAWN && kind != tpl->start && opts.max) {
        kg_log(KG_LOG_WARN, "pool.unused", "template=%s kind=%s", tpl->name,
               kg_start_kind_name(kind)); /* no create of a forking template asks for one */
        return 0;
    }
    if (!opts.max || !tpl->built || !tpl->language_count ||
        !kg_template_has_helper(tpl, &tpl->languages[0])) {
        return 0;
    }
    return kg_pools_add(core->pools, tpl->name, kg_start_kind_name(kind), &opts, tpl, &pool)
               ? kg_oom(err)
               : 0;
}

static int
sizes_known(const kg_templates_t *templates, const char *const *sizes, size_t count, kg_err_t *err)
{
    for (size_t i = 0; i < count; i++) {
        kg_size_item_t item = size_item(sizes[i]);
        const kg_template_t *tpl = kg_templates_find(templates, item.name);
        if (!tpl) {
            return kg_err_set(err, KG_ERR_CONFIG, "pools.sizes: `%s`: there is no such template",
                              sizes[i]);
        }
        if (kg_start_kind_of(item.start) == KG_START_ZYGOTE && !can_fork(tpl)) {
            return kg_err_set(err, KG_ERR_CONFIG, "pools.sizes: `%s`: its kernels cannot be forked",
                              sizes[i]);
        }
    }
    return 0;
}

int kg_template_sizes_check(const kg_template_sources_t *sources,
                            const char *const *sizes,
                            size_t count,
                            kg_err_t *err)
{
    kg_templates_t list = {0};
    int rc = kg_templates_load(&list, sources, err);
    rc = rc ? rc : sizes_known(&list, sizes, count, err);
    kg_templates_fini(&list);
    return rc;
}

int kg_warm_create(kg_core_t *core, const kg_core_config_t *config, kg_err_t *err)
{
    static const kg_pool_ops_t ops = {
        .make = make, .end = end, .check = check, .pressure = pressure};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = sizes_known(&core->templates, config->pool_sizes, config->pool_size_count, err);
    if (rc || config->pool_fill == KG_POOL_FILL_OFF) {
        return rc;
    }
    uint64_t budget = config->pool_memory_mib * MIB;
    budget = budget ? budget : kg_pool_host_memory() / 8;
    if (kg_pools_create(&ops, core, config->pool_fill, budget, cores > 3 ? (unsigned)cores / 2 : 1,
                        &core->pools) ||
        kg_timer_create(core->loop, timer, core, &core->pool_timer)) {
        return kg_oom(err);
    }
    for (size_t i = 0; i < core->templates.count * KG_START_KINDS && !rc; i++) {
        rc = add(core, config, core->templates.items[i / KG_START_KINDS],
                 (kg_start_kind_t)(i % KG_START_KINDS), err);
    }
    return rc;
}

void kg_warm_destroy(kg_core_t *core)
{
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        s->member = NULL;
    }
    kg_timer_close(&core->pool_timer);
    kg_pools_destroy(&core->pools);
}

void kg_warm_tick(kg_core_t *core)
{
    if (core->pools && !core->draining && core->keeper_ready) {
        kg_pools_tick(core->pools, kg_now_ns());
    }
}

void kg_warm_soon(kg_core_t *core)
{
    if (core->pools && !core->pool_soon) {
        core->pool_soon = true;
        kg_timer_start(core->pool_timer, kg_ms(SOON_MS), 0);
    }
}

void kg_warm_stop(kg_core_t *core)
{
    kg_pools_stop(core->pools);
}

bool kg_warm_give_way(kg_core_t *core)
{
    return kg_pools_give_way(core->pools);
}

void kg_warm_gone(kg_sandbox_t *sandbox)
{
    kg_member_t *member = KG_TAKE(sandbox->member);
    if (member) {
        kg_member_failed(member, kg_now_ns());
    }
}

const char *kg_core_pool_stats(const kg_core_t *core,
                               size_t index,
                               const char **ret_start,
                               kg_pool_stats_t *ret_stats)
{
    const kg_pool_t *pool = kg_pools_at(core->pools, index);
    if (!pool) {
        return NULL;
    }
    kg_pool_stats(pool, ret_stats);
    *ret_start = kg_pool_start(pool);
    return kg_pool_name(pool);
}

/* ---- from the pool to its owner ---- */

/* Read once, when a process or a library of it starts. PATH is not among them. */
static const char *const at_start[] = {
    "LD_*",     "GLIBC_*",   "MALLOC_*",    "GCONV_PATH", "LC_*",  "LANG",       "LANGUAGE",
    "TZ",       "HOME",      "TMPDIR",      "TMP",        "TEMP",  "PYTHON*",    "IPYTHON*",
    "JUPYTER*", "MPL*",      "PLOTLY_*",    "OMP_*",      "MKL_*", "OPENBLAS_*", "GOTO_*",
    "BLIS_*",   "NUMEXPR_*", "VECLIB_*",    "NODE_*",     "UV_*",  "OPENSSL_*",  "SSL_CERT_*",
    "R_*",      "NO_COLOR",  "FORCE_COLOR", "SANDAL_*",   NULL};

static bool listed(const char *const *list, const char *name)
{
    for (; list && *list; list++) {
        size_t len = strlen(*list);
        bool all = len && (*list)[len - 1] == '*';
        if (all ? strncmp(*list, name, len - 1) == 0 : strcmp(*list, name) == 0) {
            return true;
        }
    }
    return false;
}

bool kg_warm_env_can_wait(const kg_template_t *tpl, const json_t *env)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)env;
    json_object_foreach (walked, name, value) {
        if (listed(at_start, name) || listed((const char *const *)(void *)tpl->cold_env, name)) {
            return false;
        }
    }
    return true;
}

/* How many processors it is shown, and may run on: no live process learns of others. */
static unsigned whole_cpus(const kg_limits_t *limits)
{
    return limits->cpu_millis / 1000 + (limits->cpu_millis % 1000 != 0);
}

/* What a member of this template and kind has in use, at most. */
static uint64_t pids_in_use(const kg_core_t *core, const kg_template_t *tpl, kg_start_kind_t kind)
{
    uint64_t most = 0;
    for (const kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (s->member && s->tpl == tpl && s->start.kind == kind) {
            uint64_t pids = s->pids ? s->pids : PIDS_GUESS;
            most = pids > most ? pids : most;
        }
    }
    return most;
}

/* From the limits that members were made with to others, while they live. The size of the memory is
 * in what was laid out for it: /proc/meminfo, /tmp. */
static bool can_hold(const kg_core_t *core, const kg_create_plan_t *plan, const kg_limits_t *usual)
{
    const kg_limits_t *wish = &plan->wish.limits;
    bool room = wish->pids >= usual->pids ||
                wish->pids >= pids_in_use(core, plan->tpl, plan->start) + PIDS_ROOM;
    return usual->disk_bytes == wish->disk_bytes && usual->nofile == wish->nofile &&
           usual->memory_bytes == wish->memory_bytes && !usual->pids == !wish->pids && room &&
           whole_cpus(usual) == whole_cpus(wish);
}

/* Would a member, made without any wish, be what is asked for? */
static bool fits(kg_core_t *core, const kg_create_plan_t *plan)
{
    char launcher[KG_LAUNCHER_NAME_MAX];
    kg_wish_t usual = {0};
    kg_err_t ignored = {0};
    if (kg_sandbox_choose_launcher(core, core->config.isolation, launcher, &ignored) ||
        strcmp(launcher, plan->launcher) != 0 ||
        kg_wish_limits(core, plan->tpl, launcher, NULL, &usual, &ignored) ||
        kg_wish_network(core, launcher, NULL, &usual, &ignored)) {
        return false;
    }
    bool explicit = plan->wish.asked_limits || plan->wish.network;
    bool same_net = memcmp(&usual.net, &plan->wish.net, sizeof(usual.net)) == 0;
    /* Where something gave way, members have less than their wish says. */
    bool as_usual = memcmp(&usual.limits, &plan->wish.limits, sizeof(usual.limits)) == 0;
    bool by_groups = strcmp(launcher, "process") != 0; /* it may hold some by other means */
    bool can = as_usual || (by_groups && can_hold(core, plan, &usual.limits));
    return same_net && can && !(explicit && core->pools_relaxed) &&
           kg_warm_env_can_wait(plan->tpl, plan->opts->env);
}

/* Lists are in the order of creation, and its creation is now. */
static void come_last(kg_sandbox_t *sandbox)
{
    kg_core_t *core = sandbox->core;
    HASH_DEL(core->sandboxes, sandbox);
    HASH_ADD_STR(core->sandboxes, id, sandbox);
}

/* Its place may be lost, and its kernel's exit not told yet. */
static bool alive(const kg_sandbox_t *sandbox)
{
    return kg_box_usable(sandbox) && !kg_sbx_is_lost(sandbox->sbx) &&
           sandbox->contexts->state == KG_CTX_READY;
}

kg_sandbox_t *kg_warm_take(kg_core_t *core, kg_create_plan_t *plan)
{
    kg_pool_t *pool = kg_pools_find(core->pools, plan->tpl->name, kg_start_kind_name(plan->start));
    bool warming = false;
    if (!pool) {
        return NULL;
    }
    kg_warm_soon(core);
    if (!fits(core, plan)) {
        kg_pool_wanted(pool, kg_now_ns());
        return NULL;
    }
    kg_sandbox_t *sandbox = kg_pool_take(pool, kg_now_ns(), &warming);
    while (sandbox && !warming && !alive(sandbox)) {
        end(core, sandbox);
        sandbox = kg_pool_take(pool, kg_now_ns(), &warming);
    }
    if (!sandbox) {
        return NULL;
    }
    kg_context_t *context = sandbox->contexts;
    core->hidden--;
    sandbox->member = NULL;
    sandbox->hidden = false;
    sandbox->start.pool = true;
    if (plan->wish.asked_limits) {
        sandbox->hold = true;
        sandbox->wish.limits = plan->wish.limits;
        sandbox->wish.first = plan->wish.limits;
        sandbox->wish.asked_limits = plan->wish.asked_limits;
    }
    if (sandbox->sbx) {
        const kg_limits_t none = {0};
        (void)kg_sbx_hold(sandbox->sbx, &none, KG_SHARE_USUAL, NULL, NULL);
    }
    sandbox->wish.network = KG_TAKE(plan->wish.network);
    context->awaited = true;
    come_last(sandbox);
    bool env = json_object_size(plan->opts->env) > 0;
    sandbox->settle = env && context->inc; /* else its kernel will start with it */
    return sandbox;
}

static void settled(void *user, kg_slice_t json, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    (void)json;
    if (!sandbox->core->destroying && sandbox->create_wait) {
        kg_sandbox_created(sandbox, err);
    }
}

static void held(void *user, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    if (sandbox->core->destroying || !sandbox->create_wait) {
        return;
    }
    if (err) {
        kg_sandbox_created(sandbox, err);
    } else {
        hand_over(sandbox);
    }
}

/* A step of it at a time: limits, environment, answer. What has ended meanwhile is nobody's. */
static void hand_over(kg_sandbox_t *sandbox)
{
    kg_err_t err = {0};
    if (!alive(sandbox)) {
        (void)kg_err_set(&err, KG_ERR_KERNEL_START_FAILED, "it ended before it was handed over");
        kg_sandbox_created(sandbox, &err);
        return;
    }
    if (sandbox->hold) {
        sandbox->hold = false;
        if (kg_sbx_hold(sandbox->sbx, &sandbox->wish.limits, KG_SHARE_USUAL, held, sandbox)) {
            (void)kg_err_set(&err, KG_ERR_INTERNAL, "the keeper cannot be asked for its limits");
            kg_sandbox_created(sandbox, &err);
        }
        return;
    }
    if (!sandbox->settle) {
        kg_sandbox_created(sandbox, NULL);
        return;
    }
    sandbox->settle = false;
    json_t *spec = json_pack("{s:O}", "env", sandbox->env);
    KG_AUTO_FREE char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    json_decref(spec);
    int rc = text ? ask_helper(sandbox, "settle", text, settled, &err) : kg_oom(&err);
    if (rc) {
        kg_sandbox_created(sandbox, &err);
    }
}

static void hand_over_later(void *user)
{
    kg_sandbox_t *sandbox = user;
    if (sandbox->create_wait && sandbox->box != KG_BOX_ENDING) {
        hand_over(sandbox);
    }
}

void kg_warm_hand_over(kg_sandbox_t *sandbox)
{
    if (sandbox->warm != KG_WARM_DONE) {
        return; /* its kernel, or its first cell, is waited for */
    }
    if (kg_core_later(sandbox->core, hand_over_later, sandbox)) {
        hand_over(sandbox);
    }
}
