/* gateway/context: the registry's birth and end, what is done at each turn of the loop, and its
 * figures. */
#include "gateway/context/core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/command.h"
#include "gateway/context/connect_internal.h"
#include "gateway/context/files.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"
#include "gateway/context/zygote.h"

enum {
    TICK_MS = 1000,
    SPARES = 16,
};

void kg_core_config_defaults(kg_core_config_t *ret_config)
{
    *ret_config = (kg_core_config_t){
        .default_template = "code-interpreter-python",
        .sandbox_timeout_s = 3600,
        .run_timeout_s = 300,
        .interrupt_grace_ms = 2000,
        .kernel_start_timeout_ms = 60000,
        .drain_grace_ms = 10000,
        .queue_max = 100,
        .client_queue_max = 1000,
        .client_queue_bytes = (size_t)32 << 20,
        .sandboxes_max = 1000,
        .contexts_max = 64,
        .processes_max = 256,
        .files_timeout_ms = KG_FILES_TIMEOUT_MS,
        .connections_max = KG_CONNECTIONS,
        .owner_connections_max = KG_OWNER_CONNECTIONS,
        .context_connections_max = KG_CONTEXT_CONNECTIONS,
        .connection_unread_max = KG_CONNECTION_UNREAD,
        .retain_s = 300,
        .code_max = 8U << 20,
        .cmd_max = KG_COMMAND_BYTES_MAX,
        .sandbox_log_bytes = KG_RUN_BUDGET_SANDBOX,
        .daemon_log_bytes = KG_RUN_BUDGET_DAEMON,
        .output_bytes = KG_RUN_OUTPUT_BYTES,
        .output_bytes_max = KG_RUN_BYTES_CEILING,
        .result_bytes = KG_RUN_RESULT_BYTES,
        .result_bytes_max = KG_RUN_BYTES_CEILING,
        .events = KG_RUN_EVENTS,
        .events_max = KG_RUN_EVENTS_CEILING,
    };
}

uint64_t kg_core_stamp(kg_core_t *core)
{
    uint64_t now = kg_wall_ns();
    core->last_created_ns = now > core->last_created_ns ? now : core->last_created_ns + 1;
    return core->last_created_ns;
}

/* ---- each turn ---- */

static void run_later(void *user)
{
    kg_core_t *core = user;
    kg_later_item_t *items = KG_TAKE(core->later);
    while (items) {
        kg_later_item_t *item = items;
        /* Those that still wait stay findable for kg_core_later_forget. */
        items = item->next;
        core->later = items;
        kg_fn *fn = item->fn;
        void *arg = item->user;
        free(item);
        if (fn) {
            fn(arg);
        }
        items = core->later;
    }
}

static void flush_log(kg_run_t *run)
{
    if (run->log) {
        int rc = kg_run_log_flush(run->log);
        if (rc) {
            kg_log(KG_LOG_ERROR, "run.log_broken", "run=%s error=%d", run->id, -rc);
        }
        kg_run_flushed(run);
    }
    kg_run_unref_(&run);
}

/* 0 = now. Each flush is a write and wakes every client, while the kernel wants the processor: what
 * a short cell gives goes out in one, and that it has started may wait for its first output. What a
 * process prints may be a terminal's echo. */
static uint64_t flush_in(kg_run_t *run, uint64_t now)
{
    if (!run->log || run->is_command || !kg_run_log_may_wait(run->log)) {
        return 0;
    }
    bool only_starts = kg_run_log_only_starts(run->log);
    if (run->only_starts && !only_starts) {
        run->dirty_ns = now;
    }
    run->only_starts = only_starts;
    uint64_t due = run->dirty_ns + (only_starts ? KG_RUN_START_WAIT_NS : KG_RUN_WAIT_NS);
    return due > now ? due - now : 0;
}

static void flush_logs(void *user)
{
    kg_core_t *core = user;
    uint64_t now = core->dirty ? kg_now_ns() : 0;
    uint64_t next = UINT64_MAX;
    kg_run_t **at = &core->dirty;
    while (*at) {
        kg_run_t *run = *at;
        uint64_t wait = flush_in(run, now);
        if (wait > 0) {
            kg_run_log_save_start(run->log);
            next = wait < next ? wait : next;
            at = &run->dirty_next;
            continue;
        }
        *at = run->dirty_next;
        run->dirty = false;
        run->dirty_next = NULL;
        flush_log(run);
    }
    if (next != UINT64_MAX) {
        kg_timer_start(core->flush_timer, next, 0);
    }
}

void kg_core_leave(kg_core_t *core)
{
    for (kg_run_t *run = core->dirty; run; run = run->dirty_next) {
        if (run->log) {
            (void)kg_run_log_flush(run->log);
        }
    }
    kg_ledger_tick(core);
}

/* Only wakes the loop: flush_logs runs before it sleeps again. */
static void flush_due(void *user)
{
    (void)user;
}

void kg_run_log_dirty(void *user, kg_run_log_t *log)
{
    kg_run_t *run = user;
    (void)log;
    if (!run->dirty && !run->core->destroying) {
        run->dirty = true;
        run->only_starts = false;
        run->dirty_ns = kg_now_ns();
        run->dirty_next = run->core->dirty;
        run->core->dirty = run;
        kg_run_ref_(run);
    }
}

void kg_core_tick_start(kg_core_t *core)
{
    kg_timer_start(core->tick, kg_ms(TICK_MS), kg_ms(TICK_MS));
}

/* ---- files for logs, made ahead ---- */

kg_run_log_opts_t kg_run_log_opts(kg_run_t *run)
{
    const kg_core_t *core = run->core;
    return (kg_run_log_opts_t){.dirfd = core->logs_fd,
                               .spares = core->spares,
                               .packs = core->packs,
                               .dirty = kg_run_log_dirty,
                               .user = run};
}

static void spare_work(void *user)
{
    kg_spare_job_t *job = user;
    kg_run_spare_work(&job->work);
}

static void spare_done(void *user)
{
    kg_spare_job_t *job = user;
    kg_core_t *core = job->core;
    bool done = job->work.made_count > 0 || job->work.drop > 0; /* else the disk is full */
    kg_run_spares_settle(core ? core->spares : NULL, &job->work);
    (void)close(job->work.dirfd);
    free(job);
    if (core) {
        core->spare_job = NULL;
    }
    if (core && done) {
        kg_core_refill(core, false);
    }
}

void kg_core_refill(kg_core_t *core, bool tidy)
{
    if (core->spare_job || !core->spare_work || !kg_run_spares_wanting(core->spares, tidy)) {
        return;
    }
    kg_spare_job_t *job = calloc(1, sizeof(*job));
    if (!job) {
        return;
    }
    kg_run_spares_plan(core->spares, &job->work);
    job->core = core;
    job->work.dirfd = fcntl(core->logs_fd, F_DUPFD_CLOEXEC, 3);
    if (job->work.dirfd >= 0 &&
        kg_workq_submit(core->spare_work, spare_work, spare_done, job) == 0) {
        core->spare_job = job;
        return;
    }
    kg_closep(&job->work.dirfd);
    job->work.dirfd = core->logs_fd; /* no worker to be had: here and now */
    kg_run_spare_work(&job->work);
    kg_run_spares_settle(core->spares, &job->work);
    free(job);
}

static void refill_due(void *user)
{
    kg_core_t *core = user;
    if (core->refill_due) {
        core->refill_due = false;
        kg_core_refill(core, false);
    }
}

static int make_spares(kg_core_t *core, kg_err_t *err)
{
    if (kg_run_spares_create(core->logs_fd, SPARES, &core->spares) ||
        kg_workq_create(core->loop, &core->spare_work)) {
        return kg_oom(err);
    }
    kg_core_refill(core, false);
    return 0;
}

/* ---- birth ---- */

static void expired(void *user, kg_run_log_t *log)
{
    kg_core_t *core = user;
    kg_run_t *run = kg_run_table_find(&core->runs, kg_run_log_id(log));
    if (run) {
        run->expired = true;
        kg_run_log_unref(&run->log);
    }
}

/* Asks ext4 to look for a part of the disk of its own for what is made below dir next (chattr(1),
 * T). Returns the flags to put back, -1 where nothing was changed. */
static long spread_begin(const char *dir)
{
    int flags = 0; /* the calls take an int, whatever their numbers say (ioctl_iflags(2)) */
    KG_AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) {
        return -1;
    }
    const int spread = flags | FS_TOPDIR_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &spread) < 0 ? -1 : flags;
}

static void spread_end(const char *dir, long flags)
{
    KG_AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int before = (int)flags;
    if (fd >= 0 && flags >= 0) {
        (void)ioctl(fd, FS_IOC_SETFLAGS, &before);
    }
}

/* A file is made for each run. Where others delete, that takes ext4 forty times as long: it passes
 * over each inode that was freed in the last seconds. */
static int make_logs(const char *state_dir, const char *path)
{
    if (access(path, F_OK) == 0) {
        return 0;
    }
    long flags = spread_begin(state_dir);
    int rc = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
    spread_end(state_dir, flags);
    return rc;
}

static int open_logs(kg_core_t *core, kg_err_t *err)
{
    char path[512];
    if (kg_format(path, sizeof(path), "%s/runs", core->config.state_dir)) {
        return kg_err_set(err, KG_ERR_CONFIG, "state directory: path too long");
    }
    int rc = mkdir(core->config.state_dir, 0700) < 0 && errno != EEXIST ? -errno : 0;
    rc = rc < 0 ? rc : make_logs(core->config.state_dir, path);
    if (rc < 0) {
        errno = -rc;
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
    }
    core->logs_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (core->logs_fd < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
    }
    return kg_run_packs_create(core->logs_fd, &core->packs) ? kg_oom(err) : 0;
}

static int copy_config(kg_core_t *core, const kg_core_config_t *config)
{
    core->config = *config;
    core->config.template_dirs = NULL; /* read once, at the start */
    core->config.template_dir_count = 0;
    core->config.kernelspec_dirs = NULL;
    core->config.kernelspec_dir_count = 0;
    core->config.sandbox_env = NULL;
    core->config.sandbox_env_count = 0;
    core->config.pool_sizes = NULL;
    core->config.pool_size_count = 0;
    const char **fields[] = {&core->config.state_dir, &core->config.data_home,
                             &core->config.default_template, &core->config.isolation,
                             &core->config.isolation_min};
    _Static_assert(KG_ARRAY_LEN(fields) == KG_ARRAY_LEN(((kg_core_t *)NULL)->strings),
                   "one copy a string");
    for (size_t i = 0; i < KG_ARRAY_LEN(fields); i++) {
        if (*fields[i]) {
            core->strings[i] = strdup(*fields[i]);
            if (!core->strings[i]) {
                return -ENOMEM;
            }
            *fields[i] = core->strings[i];
        }
    }
    return 0;
}

static int make_parts(kg_core_t *core, kg_err_t *err)
{
    kg_run_budget_opts_t budget = {
        .sandbox_bytes = core->config.sandbox_log_bytes,
        .daemon_bytes = core->config.daemon_log_bytes,
        .expired = expired,
        .user = core,
    };
    if (kg_run_budget_create(&budget, &core->budget) ||
        kg_timer_create(core->loop, run_later, core, &core->later_timer) ||
        kg_timer_create(core->loop, flush_due, core, &core->flush_timer) ||
        kg_timer_create(core->loop, kg_core_tick, core, &core->tick)) {
        return kg_oom(err);
    }
    core->hook = (kg_hook_t){.before_sleep = flush_logs, .after_wake = refill_due, .user = core};
    kg_loop_hook_add(core->loop, &core->hook);
    return 0;
}

/* A NAME alone stands for the daemon's own variable; where that isn't there, for nothing. */
static int take_env(kg_core_t *core, const kg_core_config_t *config)
{
    for (size_t i = 0; i < config->sandbox_env_count; i++) {
        const char *item = config->sandbox_env[i];
        const char *equal = strchr(item, '=');
        const char *value =
            equal ? equal + 1 : getenv(item); // NOLINT(concurrency-mt-unsafe): start
        KG_AUTO_FREE char *name = strndup(item, equal ? (size_t)(equal - item) : strlen(item));
        if (!name || (value && kg_env_set(&core->sandbox_env, name, value) < 0)) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int load_templates(kg_core_t *core, const kg_core_config_t *config, kg_err_t *err)
{
    const kg_template_sources_t sources = {
        .dirs = config->template_dirs,
        .dir_count = config->template_dir_count,
        .kernelspec_dirs = config->kernelspec_dirs,
        .kernelspec_dir_count = config->kernelspec_dir_count,
        .data_home = config->data_home,
    };
    return kg_templates_load(&core->templates, &sources, err);
}

int kg_core_create(kg_loop_t *loop,
                   kg_keeper_t *keeper,
                   kg_store_t *store,
                   const kg_core_config_t *config,
                   kg_core_t **ret_core,
                   kg_err_t *err)
{
    KG_AUTO(kg_core_destroy) kg_core_t *core = calloc(1, sizeof(*core));
    if (!core) {
        return kg_oom(err);
    }
    core->loop = loop;
    core->keeper = keeper;
    core->store = store;
    core->logs_fd = -1;
    kg_manners_init(&core->manners, KG_MANNERS_FILE);
    core->connections_fd = core->channels_fd = -1;
    if (copy_config(core, config) || take_env(core, config)) {
        return kg_oom(err);
    }
    int rc = make_parts(core, err);
    rc = rc ? rc : kg_store_node(store, &core->node, err);
    rc = rc ? rc : load_templates(core, config, err);
    rc = rc ? rc : open_logs(core, err);
    rc = rc ? rc : kg_connections_create(core, err);
    rc = rc ? rc : kg_core_recover(core, err);
    rc = rc ? rc : make_spares(core, err);
    rc = rc ? rc : kg_warm_create(core, config, err);
    if (rc) {
        return rc;
    }
    size_t launchers = 0;
    (void)kg_keeper_launchers(keeper, &launchers);
    core->keeper_ready = launchers > 0;
    kg_adopt_begin(core);
    kg_core_tick_start(core);
    *ret_core = KG_TAKE(core);
    return 0;
}

void kg_core_keeper_event(kg_core_t *core, kg_keeper_event_t event, const kg_err_t *err)
{
    if (event == KG_KEEPER_READY) {
        core->keeper_ready = true;
        kg_warm_soon(core);
        kg_zygotes_begin(core);
        return;
    }
    core->keeper_ready = false;
    core->keeper_lost = true;
    kg_log(KG_LOG_ERROR, "keeper.lost", "error=%d", err ? (int)err->code : 0);
}

int kg_core_ready(const kg_core_t *core, kg_err_t *err)
{
    int rc = 0;
    if (core->draining) {
        rc = kg_err_set(err, KG_ERR_DRAINING, "the daemon is stopping");
    } else if (core->keeper_lost) {
        rc = kg_err_set(err, KG_ERR_INTERNAL, "the keeper has gone");
    } else if (!core->keeper_ready) {
        rc = kg_err_set(err, KG_ERR_STARTING, "the daemon is starting");
    }
    if (rc && err) {
        err->retry_after_s = 1;
    }
    return rc;
}

/* ---- end ---- */

static void destroy_sandboxes(kg_core_t *core)
{
    kg_sandbox_t *sandbox = NULL;
    kg_sandbox_t *next = NULL;
    HASH_ITER (hh, core->sandboxes, sandbox, next) {
        kg_sandbox_free(sandbox);
    }
}

static void destroy_leftovers(kg_core_t *core)
{
    while (core->waits) {
        kg_wait_t *wait = core->waits;
        kg_wait_drop(&wait);
    }
    while (core->later) {
        kg_later_item_t *item = core->later;
        core->later = item->next;
        free(item);
    }
    while (core->dirty) {
        kg_run_t *run = core->dirty;
        core->dirty = run->dirty_next;
        run->dirty = false;
        if (run->log) {
            (void)kg_run_log_flush(run->log);
        }
        kg_run_unref_(&run);
    }
    /* Kernels that are still being closed go on alone; their mapper options with them. */
    kg_inc_t *inc = NULL;
    DL_FOREACH (core->incs, inc) {
        inc->core = NULL;
    }
    kg_opts_t *opts = NULL;
    DL_FOREACH (core->opts, opts) {
        opts->core = NULL;
    }
}

void kg_core_destroy(kg_core_t **core)
{
    kg_core_t *c = *core;
    if (!c) {
        return;
    }
    c->destroying = true;
    if (c->keeper) {
        kg_keeper_forget(c->keeper, c);
    }
    if (c->hook.before_sleep) {
        kg_loop_hook_remove(c->loop, &c->hook);
    }
    kg_warm_destroy(c);
    kg_files_destroy(c);
    destroy_sandboxes(c);
    kg_connections_destroy(c);
    kg_zygotes_destroy(c);
    destroy_leftovers(c);
    kg_timer_close(&c->later_timer);
    kg_timer_close(&c->flush_timer);
    kg_timer_close(&c->tick);
    kg_timer_close(&c->drain_timer);
    if (c->budget) {
        kg_run_budget_destroy(&c->budget);
    }
    if (c->spare_job) {
        c->spare_job->core = NULL;
    }
    if (c->spare_work) {
        kg_workq_close(&c->spare_work);
    }
    kg_run_spares_destroy(&c->spares);
    kg_run_packs_destroy(&c->packs);
    kg_templates_fini(&c->templates);
    kg_env_fini(&c->sandbox_env);
    kg_manners_fini(&c->manners);
    if (c->logs_fd >= 0) {
        (void)close(c->logs_fd);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(c->strings); i++) {
        free(c->strings[i]);
    }
    free(c);
    *core = NULL;
}

/* ---- getters ---- */

const kg_core_config_t *kg_core_config(const kg_core_t *core)
{
    return &core->config;
}

const kg_node_t *kg_core_node(const kg_core_t *core)
{
    return &core->node;
}

kg_loop_t *kg_core_loop(const kg_core_t *core)
{
    return core->loop;
}

kg_store_t *kg_core_store(const kg_core_t *core)
{
    return core->store;
}

bool kg_core_draining(const kg_core_t *core)
{
    return core->draining;
}

void kg_core_stats(const kg_core_t *core, kg_core_stats_t *ret_stats)
{
    kg_core_stats_t stats = core->stats;
    for (const kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        stats.sandboxes += !s->deleted && !s->hidden;
        stats.commands_running += kg_commands_running(s);
        stats.sandboxes_paused += !s->deleted && s->pause == KG_PAUSE_PAUSED;
    }
    for (const kg_context_t *c = core->contexts; c; c = c->hh.next) {
        stats.contexts += !c->gone && !c->sandbox->hidden;
        stats.runs_queued += c->queued_runs;
        stats.runs_running += kg_context_running(c);
    }
    for (const kg_inc_t *inc = core->incs; inc; inc = inc->next) {
        stats.kernels += !(inc->sandbox && inc->sandbox->hidden);
        if (inc->kernel) {
            kg_kernel_stats_t kernel;
            kg_kernel_stats(inc->kernel, &kernel);
            stats.messages += kernel.iopub_messages + kernel.other_messages;
            stats.bytes += kernel.iopub_bytes;
            stats.dropped += kernel.bad_signature + kernel.malformed;
        }
    }
    stats.connections = core->connection_count;
    stats.log_bytes = kg_run_budget_bytes(core->budget);
    *ret_stats = stats;
}

json_t *kg_core_isolation_json(const kg_core_t *core)
{
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(core->keeper, &count);
    json_t *out = json_array();
    for (size_t i = 0; out && i < count; i++) {
        (void)json_array_append_new(out,
                                    json_pack("{s:s, s:b, s:s}", "name", rows[i].name, "available",
                                              rows[i].available, "reason", rows[i].reason));
    }
    return out;
}
