/* gateway/context: one kernel of a context, from its start to the close of its sockets. Whatever it
 * sends is applied in the order of its coming; a message too big to be applied at once makes those
 * behind it wait, but nobody else. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"
#include "gateway/context/warm.h"
#include "gateway/context/zygote.h"

typedef enum item_kind {
    ITEM_SENT,
    ITEM_MAPPED,
    ITEM_TEXT,
    ITEM_DONE,
    ITEM_EXIT
} item_kind_t;

struct kg_item {
    item_kind_t kind;
    kg_run_t *run; /* SENT, MAPPED, DONE: a reference */
    kg_mapped_t *mapped;
    kg_buf_t text;
    bool is_stderr;
    kg_request_how_t how;
    bool has_exit;
    kg_kernel_exit_t exit;
    kg_item_t *next;
};

/* ---- life ---- */

static void free_mapped(void *user)
{
    kg_mapped_t *mapped = user;
    kg_mapped_destroy(&mapped);
}

/* 100 MB take 15 ms, and what waits to be sent is waited for. */
static void drop_mapped(kg_core_t *core, kg_mapped_t **mapped)
{
    if (*mapped && core && core->spare_work && kg_mapped_heavy(*mapped) &&
        kg_workq_submit(core->spare_work, free_mapped, NULL, *mapped) == 0) {
        *mapped = NULL;
        return;
    }
    kg_mapped_destroy(mapped);
}

static void item_free(kg_item_t *item)
{
    drop_mapped(item->run ? item->run->core : NULL, &item->mapped);
    kg_run_unref_(&item->run);
    kg_buf_fini(&item->text);
    free(item);
}

static void drop_items(kg_inc_t *inc)
{
    while (inc->items) {
        kg_item_t *item = inc->items;
        inc->items = item->next;
        item_free(item);
    }
}

static void release_held(kg_inc_t *inc)
{
    for (size_t i = 0; i < inc->held_count; i++) {
        kg_run_t *run = inc->held[i];
        kg_run_forget_request(run);
        kg_run_unref_(&run);
    }
    inc->held_count = 0;
    if (inc->left) {
        kg_run_forget_request(inc->left);
        kg_run_unref_(&inc->left);
    }
}

static void inc_closed(void *user)
{
    kg_inc_t *inc = user;
    if (inc->core) {
        DL_DELETE(inc->core->incs, inc);
    }
    kg_core_t *core = inc->core;
    kg_sandbox_t *sandbox = inc->sandbox;
    if (inc->grave && --inc->grave->incs == 0) {
        kg_sbx_destroy(&inc->grave->sbx, true, NULL, NULL);
        free(inc->grave);
    }
    free(inc);
    if (sandbox) {
        sandbox->incs--;
        kg_box_inc_closed(sandbox);
    }
    if (core) {
        kg_core_drain_check(core);
    }
}

void kg_inc_close(kg_inc_t **inc)
{
    kg_inc_t *i = *inc;
    if (!i) {
        return;
    }
    *inc = NULL;
    if (i->context) {
        kg_bridge_kernel_closed(i->context, i->ready_ns > 0);
    }
    i->context = NULL;
    kg_buf_fini(&i->info);
    kg_subshells_free(i);
    kg_meter_close(&i->meter);
    drop_items(i);
    release_held(i);
    kg_timer_close(&i->pump);
    if (i->kernel) {
        kg_kernel_start_clock(i->kernel); /* its end has deadlines of its own */
        if (i->core) {
            kg_kernel_stats_t stats;
            kg_kernel_stats(i->kernel, &stats);
            i->core->stats.messages += stats.iopub_messages + stats.other_messages;
            i->core->stats.bytes += stats.iopub_bytes;
            i->core->stats.dropped += stats.bad_signature + stats.malformed;
        }
        kg_kernel_close(&i->kernel, KG_KERNEL_CLOSE_NOW, inc_closed, i);
    } else {
        inc_closed(i);
    }
}

/* ---- what comes, in order ---- */

/* Output that no run claims is the latest run's: the one that goes, else the one that ended last,
 * be it an earlier gateway's. */
static kg_run_t *latest_run(kg_inc_t *inc)
{
    kg_job_t *job = inc->context ? inc->context->current : NULL;
    if (job && job->kind == KG_JOB_RUN && job->run->started && job->run->mapper) {
        return job->run;
    }
    return inc->held_count ? inc->held[inc->held_count - 1] : inc->left;
}

static void process_exit(kg_inc_t *inc, const kg_kernel_exit_t *told);

/* 1 = more of it waits. */
static int apply(kg_inc_t *inc, kg_item_t *item)
{
    int rc = 0;
    switch (item->kind) {
    case ITEM_SENT:
        kg_run_sent(item->run);
        break;
    case ITEM_MAPPED:
        rc = item->run->mapper ? kg_mapper_apply(item->run->mapper, item->mapped) : 0;
        break;
    case ITEM_TEXT: {
        kg_run_t *run = latest_run(inc);
        rc = run && run->mapper
                 ? kg_mapper_text(run->mapper, item->is_stderr, kg_buf_slice(&item->text))
                 : 0;
        break;
    }
    case ITEM_DONE:
        kg_run_request_done(item->run, item->how, item->has_exit ? &item->exit : NULL);
        break;
    case ITEM_EXIT:
        process_exit(inc, &item->exit);
        break;
    }
    if (rc < 0) {
        kg_log(KG_LOG_ERROR, "run.output_lost", "error=%d", -rc);
    }
    return rc == 1;
}

/* One item may end the incarnation (exit): nothing of it is touched after that. */
static void pump(void *user)
{
    kg_inc_t *inc = user;
    while (inc->items) {
        kg_item_t *item = inc->items;
        bool last = item->kind == ITEM_EXIT;
        if (apply(inc, item)) {
            kg_timer_start(inc->pump, 0, 0);
            return;
        }
        if (last) {
            return; /* the item went with the incarnation */
        }
        inc->items = item->next;
        item->next = NULL;
        item_free(item);
    }
}

/* Takes the item; on the stack, copied only when it has to wait. */
static void push(kg_inc_t *inc, kg_item_t *now)
{
    kg_item_t *item = NULL;
    if (!inc->items) {
        bool is_exit = now->kind == ITEM_EXIT;
        if (!apply(inc, now)) {
            if (!is_exit) {
                kg_run_unref_(&now->run);
                kg_mapped_destroy(&now->mapped);
                kg_buf_fini(&now->text);
            }
            return;
        }
    }
    item = calloc(1, sizeof(*item));
    if (!item) {
        kg_log(KG_LOG_ERROR, "run.output_lost", "error=%d", ENOMEM);
        kg_run_unref_(&now->run);
        kg_mapped_destroy(&now->mapped);
        kg_buf_fini(&now->text);
        return;
    }
    *item = *now;
    LL_APPEND(inc->items, item);
    kg_timer_start(inc->pump, 0, 0);
}

static kg_run_t *reference(kg_run_t *run)
{
    kg_run_ref_(run);
    return run;
}

/* ---- the run's request ---- */

static void *prepare(const void *arg, const kg_jmsg_t *msg)
{
    return kg_mapper_prepare(arg, msg);
}

static void prepared_free(void *prepared)
{
    kg_mapped_t *mapped = prepared;
    kg_mapped_destroy(&mapped);
}

/* A big message's text goes to the log while its signature is checked. */
static void *ahead_place(void *user)
{
    const kg_run_t *run = user;
    return run->inc && !run->inc->items && run->mapper ? kg_mapper_ahead(run->mapper) : NULL;
}

static void ahead_write(void *place, void *prepared)
{
    kg_ahead_write(place, prepared);
}

static void ahead_free(void *place)
{
    kg_ahead_t *ahead = place;
    kg_ahead_release(&ahead);
}

static void on_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    kg_run_t *run = user;
    if (run->client && channel != KG_CHANNEL_IOPUB) {
        kg_run_client_message(run, channel, msg);
    }
    if (channel == KG_CHANNEL_SHELL) {
        kg_run_sample_usage(run);
    }
    if (!prepared_take) {
        kg_log(KG_LOG_ERROR, "run.output_lost", "run=%s error=%d", run->id, ENOMEM);
        return;
    }
    if (!run->inc) {
        prepared_free(prepared_take);
        return;
    }
    kg_item_t item = {.kind = ITEM_MAPPED, .run = reference(run), .mapped = prepared_take};
    push(run->inc, &item);
}

/* After an interrupt of the run before: what came up to now is still that one's. */
static void on_sent(void *user)
{
    kg_run_t *run = user;
    if (!run->inc) {
        return;
    }
    kg_item_t item = {.kind = ITEM_SENT, .run = reference(run)};
    push(run->inc, &item);
}

/* The keeper has gone, and this gateway ends with it: not so the kernel, perhaps. The next gateway
 * finds out, and ends what is under way. */
static bool not_ours(const kg_inc_t *inc, const kg_kernel_exit_t *exit)
{
    return exit && exit->proc.lost && inc->core && kg_keeper_is_lost(inc->core->keeper);
}

static void on_done(void *user, const kg_request_end_t *end)
{
    kg_run_t *run = user;
    if (!run->inc || not_ours(run->inc, end->exit)) {
        return;
    }
    kg_item_t item = {
        .kind = ITEM_DONE, .run = reference(run), .how = end->how, .has_exit = end->exit != NULL};
    if (end->exit) {
        item.exit = *end->exit;
    }
    push(run->inc, &item);
}

/* The worker may read a run's options for as long as its request lives, and a little longer. */
static void options_free(const void *prepare_arg)
{
    const char *mapper = prepare_arg;
    union {
        const char *in;
        void *out;
    } at = {mapper - offsetof(kg_opts_t, mapper)};
    kg_opts_t *opts = at.out;
    kg_opts_unref(&opts);
}

int kg_inc_execute(kg_inc_t *inc, kg_run_t *run, kg_err_t *err)
{
    kg_kernel_execute_t args = {
        .code = kg_buf_slice(&run->live->code),
        .store_history = !run->silent, /* else it would have a number that nobody sees */
        .allow_stdin = run->live->input_wait || run->live->line_mode,
    };
    if (run->client) {
        args.silent = run->client->silent;
        args.store_history = run->client->store_history;
        args.user_expressions = kg_buf_slice(&run->client->user_expressions);
        args.metadata = kg_buf_slice(&run->client->metadata);
    }
    kg_request_sink_t sink = {
        .prepare = prepare,
        .prepared_free = prepared_free,
        .prepare_arg = &kg_opts_ref(run->opts)->mapper,
        .prepare_arg_free = options_free,
        .place = ahead_place,
        .ahead = ahead_write,
        .place_free = ahead_free,
        .on_sent = on_sent,
        .on_message = on_message,
        .on_done = on_done,
    };
    run->inc = inc;
    int rc = kg_kernel_execute(inc->kernel, &args, &sink, run, &run->request, err);
    if (rc) {
        options_free(sink.prepare_arg);
        run->inc = NULL;
        return rc;
    }
    if (run->client) {
        kg_bridge_note(inc->context, kg_request_msg_id(run->request),
                       kg_buf_slice(&run->client->header), false);
    }
    inc->ran = true;
    return 0;
}

void kg_inc_hold(kg_inc_t *inc, kg_run_t *run)
{
    if (inc->held_count == KG_HELD_RUNS) {
        kg_run_t *oldest = inc->held[0];
        inc->held_count--;
        for (size_t i = 0; i < inc->held_count; i++) {
            inc->held[i] = inc->held[i + 1];
        }
        kg_run_forget_request(oldest);
        kg_run_unref_(&oldest);
    }
    inc->held[inc->held_count++] = reference(run);
}

/* ---- the kernel's sink ---- */

/* Of a sandbox that wished for a fork it is known now whether it got one. */
static void note_start(kg_context_t *context, bool forked)
{
    if (context->fresh && context->is_default && !forked) {
        kg_zygote_none(context->sandbox);
    }
}

static void started(kg_inc_t *inc)
{
    kg_context_t *context = inc->context;
    inc->ready_ns = kg_now_ns();
    inc->core->stats.kernels_started++;
    kg_log(KG_LOG_INFO, "kernel.ready", "context=%s incarnation=%u ms=%llu", context->id,
           context->incarnation,
           (unsigned long long)(kg_kernel_start_ns(inc->kernel) / KG_NS_PER_MS));
    context->state = KG_CTX_READY;
    context->execution_count = 0;
    kg_kernel_record_begin(context);
    note_start(context, inc->forked);
}

static void on_ready(void *user, kg_json_value_t info)
{
    kg_inc_t *inc = user;
    kg_context_t *context = inc->context;
    if (!context) {
        return;
    }
    bool adopted = inc->adopting;
    if (adopted) {
        kg_kernel_adopted(inc);
    } else {
        started(inc);
    }
    kg_bridge_ready(inc, info);
    if (adopted) {
        kg_subshells_ask(inc);
    }
    kg_wait_t *waits = KG_TAKE(context->ready_waits);
    kg_sandbox_t *sandbox = context->sandbox;
    context->fresh = false;
    while (waits) {
        kg_wait_t *wait = waits;
        waits = wait->list_next;
        kg_wait_context(&wait, context, NULL);
    }
    if (context->awaited || sandbox->member) {
        kg_warm_kernel_ready(sandbox);
    }
    /* The callbacks may have ended it. */
    if (inc->context == context && context->inc == inc) {
        kg_context_pump(context);
    }
}

/* One that a want of memory has ended says so, and not by which signal. */
static bool say_starved(const kg_inc_t *inc, kg_err_t *err)
{
    bool starved = err->code == KG_ERR_KERNEL_START_FAILED && inc->sandbox &&
                   kg_box_oom_charge(inc->sandbox, inc->oom_before);
    if (starved) {
        (void)kg_err_set(err, KG_ERR_KERNEL_START_FAILED,
                         "the kernel ran out of memory before it was ready");
        kg_err_hint(err, "Make the sandbox with higher limits.memory_mib.");
    }
    return starved;
}

/* Where rlimits hold memory a limit is each process's addresses, and a kernel that has too few of
 * them fails in ways of its own: what it says comes after that. */
static void say_narrow(const kg_inc_t *inc, kg_err_t *err)
{
    const kg_sandbox_t *sandbox = inc->sandbox;
    const kg_sbx_t *sbx = sandbox ? sandbox->sbx : NULL;
    uint64_t mib = sandbox ? sandbox->wish.limits.memory_bytes >> 20 : 0;
    if (err->code != KG_ERR_KERNEL_START_FAILED || !sbx || !mib ||
        strcmp(kg_sbx_info(sbx)->isolation_info.cgroup, "rlimits") != 0) {
        return;
    }
    const kg_err_t old = *err;
    (void)kg_err_set(err, old.code,
                     "the kernel did not start with the %llu MiB of addresses that "
                     "limits.memory_mib leaves each process here: %s",
                     (unsigned long long)mib, old.message);
    kg_err_hint(err,
                "Make the sandbox with higher limits.memory_mib: addresses are more than what is "
                "used, and %u are the template's own.",
                inc->context->from->memory_mib);
}

static void on_failed(void *user, const kg_err_t *err)
{
    kg_inc_t *inc = user;
    kg_context_t *context = inc->context;
    if (context && inc->adopting) {
        kg_kernel_not_adopted(inc, err);
        return;
    }
    inc->core->stats.kernels_failed++;
    if (context) {
        kg_err_t copy = *err;
        kg_log(KG_LOG_WARN, "kernel.failed", "context=%s code=%s forked=%d", context->id,
               kg_err_name(err->code), inc->forked);
        bool forked = inc->forked;
        context->starved = say_starved(inc, &copy);
        say_narrow(inc, &copy);
        kg_inc_close(&context->inc);
        if (forked && copy.pointer[0] == '\0') { /* no mistake of the client's */
            kg_log(KG_LOG_WARN, "zygote.fork_failed", "context=%s reason=\"%s\"", context->id,
                   copy.message);
            context->no_fork = true;
            context->state = KG_CTX_DOWN;
            kg_context_start(context);
            return;
        }
        kg_context_start_failed(context, &copy);
    }
}

static void on_output(void *user, bool is_stderr, kg_slice_t bytes)
{
    kg_inc_t *inc = user;
    kg_item_t item = {.kind = ITEM_TEXT, .is_stderr = is_stderr};
    if (kg_utf8_stream_push(&inc->streams[is_stderr], &item.text, bytes.data, bytes.len) ||
        !item.text.len) {
        kg_buf_fini(&item.text);
        return;
    }
    kg_bridge_text(inc, is_stderr, kg_buf_slice(&item.text));
    push(inc, &item);
}

static void on_iopub(void *user, const kg_jmsg_t *msg)
{
    kg_bridge_iopub(user, msg);
}

/* Of a run whose log can't take it any more: the 1st, 2nd, 4th, 8th … */
static void drop_late(kg_inc_t *inc)
{
    inc->dropped++;
    if (inc->context && (inc->dropped & (inc->dropped - 1)) == 0) {
        kg_log(KG_LOG_WARN, "kernel.late_dropped", "context=%s messages=%llu", inc->context->id,
               (unsigned long long)inc->dropped);
    }
}

/* Whose it is. What was asked for by a request that is not held any more is never the present
 * run's: it is of a run that KG_HELD_RUNS others came after, or of a message of a client's (a
 * handler of a comm, a repr that prints), and the clients at the kernel have seen it. Which run of
 * an earlier gateway it was is not known: their latest takes it. Without a parent of ours it is the
 * latest's. */
static kg_run_t *claimant(kg_inc_t *inc, const kg_jmsg_t *msg)
{
    if (kg_kernel_is_earlier(inc->kernel, msg->parent_id)) {
        return inc->left;
    }
    return kg_kernel_is_ours(inc->kernel, msg->parent_id) ? NULL : latest_run(inc);
}

static void on_orphan(void *user, const kg_jmsg_t *msg)
{
    kg_inc_t *inc = user;
    if (inc->context && kg_bridge_is_forward(inc->context, msg->parent_id)) {
        return;
    }
    kg_run_t *run = claimant(inc, msg);
    if (!run || !run->opts || !run->mapper) {
        if (kg_kernel_is_ours(inc->kernel, msg->parent_id)) {
            drop_late(inc);
        }
        return;
    }
    kg_mapped_t *mapped = kg_mapper_prepare(&run->opts->mapper, msg);
    if (mapped) {
        kg_item_t item = {.kind = ITEM_MAPPED, .run = reference(run), .mapped = mapped};
        push(inc, &item);
    }
}

static void on_exit_told(void *user, const kg_kernel_exit_t *exit)
{
    kg_inc_t *inc = user;
    if (not_ours(inc, exit)) {
        return;
    }
    kg_item_t item = {.kind = ITEM_EXIT, .exit = *exit};
    push(inc, &item);
}

/* Whether a want of memory ended it: its run's, or, of an idle one, a kill that ended nothing else.
 */
static bool ran_out(const kg_inc_t *inc, const kg_kernel_exit_t *exit)
{
    if (inc->starved || exit->killed_by_us || !inc->sandbox) {
        return inc->starved;
    }
    return exit->proc.lost ? kg_box_starved(inc->sandbox, inc->oom_before)
                           : exit->proc.signaled && exit->proc.signal == SIGKILL &&
                                 kg_box_oom_charge(inc->sandbox, inc->oom_before);
}

static void process_exit(kg_inc_t *inc, const kg_kernel_exit_t *told)
{
    kg_kernel_exit_t exit = *told;
    kg_context_t *context = inc->context;
    if (!context) {
        return;
    }
    bool by_us = context->state == KG_CTX_ENDING || exit.killed_by_us;
    bool quick = !inc->ran && !by_us && kg_now_ns() - inc->ready_ns < kg_ms(KG_SINCE_QUICK_MS);
    inc->core->stats.kernels_died += !by_us;
    kg_context_note_exit(context, &exit);
    kg_log(KG_LOG_INFO, "kernel.exit", "context=%s code=%d signal=%d lost=%d by_us=%d", context->id,
           exit.proc.code, exit.proc.signal, exit.proc.lost, by_us);
    kg_job_kernel_gone(context, &exit);
    context->last_exit.oom = !by_us && ran_out(inc, &exit);
    kg_inc_close(&context->inc);
    kg_timer_close(&context->guard);
    if (!context->gone && context->sandbox->member) {
        context->state = KG_CTX_DOWN; /* its end finds no kernel */
        kg_sandbox_end(context->sandbox, KG_CAUSE_ABORT, false);
        return;
    }
    if (context->gone) {
        kg_context_free(context);
        return;
    }
    if (quick) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_KERNEL_START_FAILED,
                         "the kernel ended right after its start (%s %d)",
                         exit.proc.signaled ? "signal" : "exit code", context->last_exit.number);
        kg_context_start_failed(context, &err);
        return;
    }
    context->failures = 0;
    context->state = KG_CTX_DOWN;
    kg_context_start(context);
}

/* ---- start ---- */

/* debugpy costs 60 ms and 11 MB a kernel: a module of that name that cannot be imported goes before
 * it. */
int kg_env_hide_debugger(const kg_template_t *from, const kg_tpl_language_t *lang, kg_env_t *env)
{
    char dir[KG_SBX_PATH_MAX];
    if (from->debugger) {
        return 0;
    }
    if (!kg_template_startup(from, lang, dir)) {
        kg_log(KG_LOG_WARN, "kernel.debugger", "template=%s reason=\"no start-up folder\"",
               from->name);
        return 0;
    }
    const char *old = kg_env_get(env, "PYTHONPATH", 10);
    KG_AUTO_FREE char *path =
        kg_strdup_printf("%s/no_debugger%s%s", dir, old && *old ? ":" : "", old ? old : "");
    return path ? kg_env_set(env, "PYTHONPATH", path) : -ENOMEM;
}

static int kernel_env(const kg_context_t *context, kg_env_t *env)
{
    const kg_sandbox_t *sandbox = context->sandbox;
    int rc = kg_sandbox_env(sandbox, context->from, env);
    rc = rc ? rc : kg_spec_env(context->lang, env);
    rc = rc ? rc : kg_env_set(env, "HOME", sandbox->info.home);
    rc = rc ? rc : kg_env_merge_json(env, sandbox->env);
    rc = rc ? rc : kg_env_merge_json(env, context->env);
    return rc ? rc : kg_env_hide_debugger(context->from, context->lang, env);
}

static int start_kernel(kg_inc_t *inc, kg_context_t *context, kg_err_t *err)
{
    static const kg_kernel_sink_t sink = {
        .on_ready = on_ready,
        .on_failed = on_failed,
        .on_output = on_output,
        .on_iopub = on_iopub,
        .on_orphan = on_orphan,
        .on_exit = on_exit_told,
    };
    KG_AUTO(kg_env_fini) kg_env_t env = {0};
    char cwd[KG_SBX_PATH_MAX];
    if (inc->adopting) {
        const kg_kernel_opts_t found = {
            .spec = context->lang->spec,
            .username = "user",
            .limits = {.start_ns = kg_ms(KG_ADOPT_MS)},
            .memo = context->memo,
            .left_cell = context->left_cell,
        };
        return kg_kernel_start(context->core->loop, context->sandbox->sbx, &found, &sink, inc,
                               &inc->kernel, err);
    }
    if (kernel_env(context, &env)) {
        return kg_oom(err);
    }
    if (kg_context_dir(context, context->cwd, cwd)) {
        return kg_bad(err, "/cwd", "cwd is too long");
    }
    int zygote = kg_zygote_dial(context);
    inc->forked = zygote >= 0;
    kg_kernel_opts_t opts = {
        .forked = inc->forked,
        .zygote_sock = zygote,
        .spec = context->lang->spec,
        .resource_dir = context->from->dir,
        .cwd = cwd,
        .env = (const char *const *)(void *)env.items,
        .username = "user",
        .limits = {.start_ns = kg_ms(context->core->config.kernel_start_timeout_ms)},
    };
    return kg_kernel_start(context->core->loop, context->sandbox->sbx, &opts, &sink, inc,
                           &inc->kernel, err);
}

/* Its latest run, which what it still prints belongs to. */
static void hold_left(kg_inc_t *inc)
{
    kg_run_t *run = inc->context->left_run;
    if (run && !run->expired && kg_run_revive(run, inc->context) == 0) {
        run->inc = inc;
        inc->left = run;
        kg_run_ref_(run);
    }
}

int kg_inc_start(kg_context_t *context, kg_err_t *err)
{
    kg_inc_t *inc = calloc(1, sizeof(*inc));
    if (!inc) {
        return kg_oom(err);
    }
    inc->context = context;
    inc->sandbox = context->sandbox;
    inc->core = context->core;
    inc->adopting = context->memo != NULL;
    inc->oom_before = kg_box_oom_kills(context->sandbox);
    int rc = kg_timer_create(context->core->loop, pump, inc, &inc->pump) ? kg_oom(err) : 0;
    rc = rc ? rc : start_kernel(inc, context, err);
    if (rc) {
        kg_timer_close(&inc->pump);
        free(inc);
        return rc;
    }
    DL_APPEND(context->core->incs, inc);
    context->sandbox->incs++;
    context->inc = inc;
    if (inc->adopting) {
        hold_left(inc);
        return 0;
    }
    context->incarnation++;
    kg_displays_clear(context->displays);
    (void)kg_context_save(context, NULL);
    return 0;
}
