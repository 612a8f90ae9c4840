/* gateway/context: runs as the API speaks of them: made, found, followed. run_list.c describes
 * them.
 */
#include "gateway/context/run.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"

/* ---- options of mappers, shared ---- */

static bool opts_equal(const kg_mapper_opts_t *a, const kg_mapper_opts_t *b)
{
    return a->limits.output_bytes == b->limits.output_bytes &&
           a->limits.result_bytes == b->limits.result_bytes &&
           a->limits.events == b->limits.events && a->limits.no_tail == b->limits.no_tail &&
           a->limits.on_exceed == b->limits.on_exceed && a->ansi == b->ansi &&
           a->silent == b->silent && a->order == b->order;
}

kg_opts_t *kg_opts_get(kg_core_t *core, const kg_mapper_opts_t *opts)
{
    kg_opts_t *found = NULL;
    DL_FOREACH (core->opts, found) {
        if (opts_equal(&found->mapper, opts)) {
            return kg_opts_ref(found);
        }
    }
    found = calloc(1, sizeof(*found));
    if (found) {
        found->refs = 1;
        found->core = core;
        found->mapper = *opts;
        DL_APPEND(core->opts, found);
    }
    return found;
}

kg_opts_t *kg_opts_ref(kg_opts_t *opts)
{
    opts->refs++;
    return opts;
}

void kg_opts_unref(kg_opts_t **opts)
{
    kg_opts_t *o = *opts;
    *opts = NULL;
    if (o && --o->refs == 0) {
        if (o->core) {
            DL_DELETE(o->core->opts, o);
        }
        free(o);
    }
}

/* ---- life ---- */

kg_run_t *kg_run_alloc(kg_core_t *core)
{
    kg_run_t *run = calloc(1, sizeof(*run));
    kg_run_live_t *live = calloc(1, sizeof(*live));
    if (!run || !live) {
        free(run);
        free(live);
        return NULL;
    }
    live->created_ns = kg_now_ns();
    run->live = live;
    run->core = core;
    run->refs = 1;
    return run;
}

void kg_run_list_in(kg_run_t *run, kg_sandbox_t *sandbox, const char *id)
{
    (void)kg_format(run->id, sizeof(run->id), "%s", id);
    run->sandbox = sandbox;
    DL_APPEND(sandbox->runs, run);
    kg_run_table_add(&run->core->runs, run);
}

void kg_run_unlist(kg_run_t *run)
{
    DL_DELETE(run->sandbox->runs, run);
    kg_run_table_remove(&run->core->runs, run);
    run->sandbox = NULL;
}

void kg_run_ref_(kg_run_t *run)
{
    run->refs++;
}

static void live_free(kg_run_live_t *live)
{
    if (live) {
        kg_buf_fini(&live->code);
        kg_buf_fini(&live->input_header);
        json_decref(live->env);
        json_decref(live->lines);
        free(live->cwd);
        kg_timer_close(&live->deadline);
        free(live);
    }
}

void kg_run_settle(kg_run_t *run)
{
    if (run->ended && !run->job) {
        live_free(KG_TAKE(run->live));
    }
}

void kg_run_unref_(kg_run_t **run)
{
    kg_run_t *r = *run;
    *run = NULL;
    if (!r || --r->refs > 0) {
        return;
    }
    kg_request_release(&r->request);
    kg_mapper_destroy(&r->mapper);
    kg_opts_unref(&r->opts);
    kg_run_log_unref(&r->log);
    kg_run_client_destroy(&r->client);
    live_free(r->live);
    free(r->key);
    free(r);
}

void kg_run_forget_request(kg_run_t *run)
{
    kg_request_release(&run->request);
    run->inc = NULL;
    if (run->ended) {
        kg_mapper_destroy(&run->mapper);
        kg_opts_unref(&run->opts);
    }
}

void kg_run_orphan(kg_run_t *run)
{
    kg_run_t *r = run;
    kg_run_unlist(run);
    if (!run->core->destroying && run->log && !run->attached) {
        kg_run_log_remove(run->log);
    }
    kg_run_unref_(&r);
}

/* After each flush of its log. */
void kg_run_flushed(kg_run_t *run)
{
    if (!run->log || !kg_run_log_finished(run->log)) {
        return;
    }
    uint64_t now = kg_wall_ns();
    if (run->published) {
        kg_run_budget_update(run->core->budget, run->log, now);
    } else if (run->sandbox && !run->sandbox->deleted) {
        run->published = true;
        if (kg_run_budget_add(run->core->budget, run->log, now)) {
            kg_log(KG_LOG_ERROR, "run.budget", "run=%s error=%d", run->id, ENOMEM);
        }
    }
    run->core->refill_due = true; /* logs may have gone for it */
}

/* ---- making: checks ---- */

static int check_code(const kg_core_t *core, kg_slice_t code, kg_err_t *err)
{
    if (code.len > core->config.code_max) {
        int rc = kg_err_set(err, KG_ERR_TOO_LARGE, "code is larger than %zu bytes",
                            core->config.code_max);
        kg_err_pointer(err, "/code");
        return rc;
    }
    if (memchr(code.data ? code.data : "", 0, code.len)) {
        return kg_bad(err, "/code", "code holds U+0000, which no language takes");
    }
    if (!kg_utf8_valid(code.data ? code.data : "", code.len)) {
        return kg_bad(err, "/code", "code is not UTF-8");
    }
    return 0;
}

static int check_lines(const json_t *lines, kg_err_t *err)
{
    if (!lines || json_is_null(lines) || json_is_string(lines)) {
        return 0;
    }
    if (!json_is_array(lines) || json_array_size(lines) > KG_STDIN_LINES_MAX) {
        return kg_bad(err, "/stdin", "stdin: a string, or an array of at most %d strings",
                      KG_STDIN_LINES_MAX);
    }
    for (size_t i = 0; i < json_array_size(lines); i++) {
        if (!json_is_string(json_array_get(lines, i))) {
            char pointer[48];
            (void)snprintf(pointer, sizeof(pointer), "/stdin/%zu", i);
            return kg_bad(err, pointer, "stdin: every line is a string");
        }
    }
    return 0;
}

static int check_limit(uint64_t value, uint64_t max, const char *name, kg_err_t *err)
{
    if (value <= max) {
        return 0;
    }
    char pointer[64];
    (void)snprintf(pointer, sizeof(pointer), "/limits/%s", name);
    return kg_bad(err, pointer, "limits.%s is at most %llu here", name, (unsigned long long)max);
}

static int check_opts(const kg_core_t *core, const kg_run_opts_t *opts, kg_err_t *err)
{
    int rc = check_code(core, opts->code, err);
    rc = rc ? rc : check_lines(opts->stdin_lines, err);
    rc = rc ? rc : kg_env_check(opts->env, "/env", err);
    rc = rc || !opts->cwd ? rc : kg_cwd_check(opts->cwd, err);
    rc = rc ? rc
            : check_limit(opts->output_bytes, core->config.output_bytes_max, "output_bytes", err);
    rc = rc ? rc
            : check_limit(opts->result_bytes, core->config.result_bytes_max, "result_bytes", err);
    rc = rc ? rc : check_limit(opts->events, core->config.events_max, "events", err);
    if (!rc && opts->timeout_ms > (int64_t)KG_RUN_TIMEOUT_MAX_S * 1000) {
        rc = kg_bad(err, "/timeout", "timeout: at most %d seconds, or 0 for none",
                    KG_RUN_TIMEOUT_MAX_S);
    }
    if (!rc && opts->retain_s > KG_RUN_RETAIN_MAX_S) {
        rc = kg_bad(err, "/retain", "retain: at most %d seconds", KG_RUN_RETAIN_MAX_S);
    }
    if (!rc && opts->key && (!*opts->key || strlen(opts->key) > KG_KEY_MAX)) {
        rc = kg_bad(err, "/key", "key: 1 to %d bytes", KG_KEY_MAX);
    }
    return rc;
}

/* ---- making: the context it runs in ---- */

static int
named_context(kg_sandbox_t *sandbox, const kg_run_opts_t *opts, kg_context_t **ret, kg_err_t *err)
{
    kg_context_t *context = kg_context_find(sandbox, opts->context, err);
    if (!context) {
        kg_err_pointer(err, "/context");
        return -kg_err_errno(KG_ERR_CONTEXT_NOT_FOUND);
    }
    if (opts->language) {
        const kg_tpl_language_t *lang = NULL;
        const kg_template_t *from = NULL;
        int rc = kg_templates_resolve(&sandbox->core->templates, sandbox->tpl, opts->language,
                                      &lang, &from, err);
        if (rc) {
            return rc;
        }
        if (strcmp(lang->name, context->lang->name) != 0) {
            return kg_bad(err, "/language", "context %s speaks %s, not %s", context->id,
                          context->lang->name, lang->name);
        }
    }
    *ret = context;
    return 0;
}

/* A run's own env and cwd are set by the template's start-up file. */
static int check_own(const kg_tpl_language_t *lang,
                     const kg_template_t *from,
                     const kg_run_opts_t *opts,
                     kg_err_t *err)
{
    if ((!opts->cwd && json_object_size(opts->env) == 0) || kg_template_has_helper(from, lang)) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                        "env and cwd of a single run are not supported by the %s kernel of %s",
                        lang->name, from->name);
    kg_err_hint(err, "Give them to the context.");
    kg_err_pointer(err, opts->cwd ? "/cwd" : "/env");
    return rc;
}

static int
choose_context(kg_sandbox_t *sandbox, const kg_run_opts_t *opts, kg_context_t **ret, kg_err_t *err)
{
    const kg_tpl_language_t *lang = NULL;
    const kg_template_t *from = NULL;
    if (opts->context) {
        return named_context(sandbox, opts, ret, err);
    }
    int rc = kg_templates_resolve(&sandbox->core->templates, sandbox->tpl, opts->language, &lang,
                                  &from, err);
    if (rc) {
        return rc;
    }
    *ret = kg_context_default(sandbox, lang);
    if (*ret) {
        return 0;
    }
    kg_context_opts_t fresh = {.language = opts->language};
    rc = check_own(lang, from, opts, err);
    rc = rc ? rc : kg_context_make(sandbox, &fresh, true, ret, err);
    if (!rc) {
        /* Its runs are told when it does not start; nobody waits for the context itself. */
        (*ret)->fresh = false;
    }
    return rc;
}

/* 0: no client's. Else all of it that is kept while it waits and whose size its client chose. */
static size_t client_bytes(const kg_run_opts_t *opts)
{
    const kg_run_client_opts_t *c = opts->client;
    return c ? 1 + opts->code.len + c->header.len + c->user_expressions.len + c->metadata.len : 0;
}

static int check_context(const kg_context_t *context, const kg_run_opts_t *opts, kg_err_t *err)
{
    kg_core_t *core = context->core;
    int own = check_own(context->lang, context->from, opts, err);
    if (own) {
        return own;
    }
    bool client = opts->client != NULL;
    unsigned waiting =
        client ? context->queued_clients : context->queued_runs - context->queued_clients;
    if (waiting < (client ? core->config.client_queue_max : core->config.queue_max) &&
        (!client ||
         context->queued_bytes + client_bytes(opts) <= core->config.client_queue_bytes)) {
        return 0;
    }
    core->stats.queue_full++;
    int rc = client ? kg_err_set(err, KG_ERR_QUEUE_FULL,
                                 "%u cells of notebooks (%zu bytes) wait in context %s already",
                                 waiting, context->queued_bytes, context->id)
                    : kg_err_set(err, KG_ERR_QUEUE_FULL, "%u runs wait in context %s already",
                                 waiting, context->id);
    if (err) {
        err->retry_after_s = 1;
    }
    return rc;
}

/* ---- making: idempotency ---- */

static void hash_code(const kg_run_opts_t *opts, char ret_hex[33])
{
    unsigned char hash[16];
    crypto_generichash_state state;
    const char *parts[] = {opts->context ? opts->context : "",
                           opts->language ? opts->language : ""};
    (void)crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        (void)crypto_generichash_update(&state, (const unsigned char *)parts[i],
                                        strlen(parts[i]) + 1);
    }
    (void)crypto_generichash_update(&state, (const unsigned char *)opts->code.data, opts->code.len);
    (void)crypto_generichash_final(&state, hash, sizeof(hash));
    (void)sodium_bin2hex(ret_hex, 33, hash, sizeof(hash));
}

kg_run_key_t *kg_run_key_new(const char *text, const char *hash)
{
    size_t len = strlen(text);
    kg_run_key_t *key = malloc(sizeof(*key) + len + 1);
    if (key) {
        (void)kg_format(key->hash, sizeof(key->hash), "%s", hash);
        memcpy(key->text, text, len + 1);
    }
    return key;
}

int kg_run_find_key(
    kg_sandbox_t *sandbox, const char *key, const char *hash, kg_run_t **ret, kg_err_t *err)
{
    kg_run_t *run = NULL;
    DL_FOREACH (sandbox->runs, run) {
        if (run->key && strcmp(run->key->text, key) == 0) {
            if (strcmp(run->key->hash, hash) != 0) {
                int rc = kg_err_set(err, KG_ERR_KEY_REUSED,
                                    "the key was used for other code, or with another context or "
                                    "language, by run %s",
                                    run->id);
                kg_err_pointer(err, "/key");
                return rc;
            }
            *ret = run;
            return 1;
        }
    }
    return 0;
}

/* ---- making: the run ---- */

/* What was asked for, else the template's, else the daemon's: never above the operator's cap. */
static uint64_t limit_of(uint64_t asked, uint64_t tpl, uint64_t standard, uint64_t max)
{
    uint64_t value = asked ? asked : (tpl ? tpl : standard);
    return value < max ? value : max;
}

static void
mapper_opts(const kg_context_t *context, const kg_run_opts_t *opts, kg_mapper_opts_t *ret)
{
    const kg_core_config_t *config = &context->core->config;
    const kg_template_t *tpl = context->sandbox->tpl;
    *ret = (kg_mapper_opts_t){.ansi = opts->ansi, .silent = opts->silent};
    ret->limits.output_bytes = limit_of(opts->output_bytes, tpl->output_bytes, config->output_bytes,
                                        config->output_bytes_max);
    ret->limits.result_bytes = limit_of(opts->result_bytes, tpl->result_bytes, config->result_bytes,
                                        config->result_bytes_max);
    ret->limits.events = limit_of(opts->events, tpl->events, config->events, config->events_max);
    bool stop = opts->on_exceed ? opts->on_exceed == KG_ON_EXCEED_STOP : tpl->stop_on_exceed;
    ret->limits.on_exceed = stop ? KG_EXCEED_STOP : KG_EXCEED_TRUNCATE;
    ret->order = (const char *const *)(void *)tpl->richness;
    while (ret->order && ret->order[ret->order_len]) {
        ret->order_len++;
    }
}

static json_t *split_lines(const json_t *lines)
{
    if (!json_is_string(lines)) {
        return json_deep_copy(lines);
    }
    json_t *out = json_array();
    const char *text = json_string_value(lines);
    size_t len = json_string_length(lines);
    for (size_t at = 0; out && at < len && json_array_size(out) < KG_STDIN_LINES_MAX;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        if (json_array_append_new(out, json_stringn(text + at, n))) {
            json_decref(out);
            return NULL;
        }
        at += n + 1;
    }
    return out;
}

static int copy_opts(kg_run_t *run, const kg_context_t *context, const kg_run_opts_t *opts)
{
    const kg_core_config_t *config = &run->core->config;
    bool has_lines = opts->stdin_lines && !json_is_null(opts->stdin_lines);
    run->live->timeout_ns = opts->timeout_ms >= 0 ? kg_ms((uint64_t)opts->timeout_ms)
                                                  : config->run_timeout_s * KG_NS_PER_S;
    run->silent = opts->silent;
    run->live->line_mode = has_lines;
    run->live->input_wait = opts->on_input == KG_ON_INPUT_WAIT ||
                            (opts->on_input == KG_ON_INPUT_DEFAULT && opts->stream && !has_lines);
    run->on_disconnect = opts->on_disconnect;
    if (run->on_disconnect == KG_ON_DISCONNECT_DEFAULT) {
        run->on_disconnect = opts->stream ? KG_ON_DISCONNECT_DETACH : KG_ON_DISCONNECT_INTERRUPT;
    }
    (void)kg_format(run->context_id, sizeof(run->context_id), "%s", context->id);
    run->live->lines = has_lines ? split_lines(opts->stdin_lines) : NULL;
    run->live->env = opts->env && json_object_size(opts->env) ? json_deep_copy(opts->env) : NULL;
    run->live->cwd = opts->cwd ? strdup(opts->cwd) : NULL;
    if (opts->key) {
        char hash[sizeof run->key->hash];
        hash_code(opts, hash);
        run->key = kg_run_key_new(opts->key, hash);
    }
    run->client = opts->client ? kg_run_client_new(opts->client) : NULL;
    bool bad =
        (opts->client && !run->client) || (has_lines && !run->live->lines) ||
        (opts->cwd && !run->live->cwd) || (opts->key && !run->key) ||
        kg_buf_append(&run->live->code, opts->code.data ? opts->code.data : "", opts->code.len);
    return bad ? -ENOMEM : 0;
}

static int
make_log(kg_run_t *run, const char *id, const kg_context_t *context, const kg_run_opts_t *opts)
{
    kg_core_t *core = run->core;
    kg_mapper_opts_t mapper;
    kg_mapper_sink_t sink;
    const kg_run_log_opts_t log = kg_run_log_opts(run);
    kg_run_meta_t meta = {
        .run = id,
        .sandbox = context->sandbox->id,
        .context = context->id,
        .owner = context->sandbox->owner,
        .language = context->lang->name,
        .key = run->key ? run->key->text : NULL,
        .code_hash = run->key ? run->key->hash : NULL,
        .created_wall_ns = kg_wall_ns(),
        .timeout_ms = run->live->timeout_ns / KG_NS_PER_MS,
        .retain_s = opts->retain_s >= 0 ? (uint32_t)opts->retain_s : core->config.retain_s,
        .ansi = opts->ansi,
        .silent = opts->silent,
    };
    mapper_opts(context, opts, &mapper);
    run->opts = kg_opts_get(core, &mapper);
    int rc = run->opts ? kg_run_log_create(&log, &meta, &run->log) : -ENOMEM;
    return rc ? rc
              : kg_mapper_create(&run->opts->mapper, run->log, context->displays,
                                 kg_run_mapper_sink(run, &sink), &run->mapper);
}

int kg_run_revive(kg_run_t *run, kg_context_t *context)
{
    int rc = kg_run_log_wake(run->log);
    const kg_run_meta_t *meta = kg_run_log_meta(run->log);
    if (rc || !meta) {
        return rc;
    }
    const kg_run_opts_t usual = {.ansi = meta->ansi, .silent = meta->silent};
    kg_mapper_opts_t mapper;
    mapper_opts(context, &usual, &mapper);
    run->opts = kg_opts_get(run->core, &mapper);
    if (!run->opts ||
        kg_mapper_create(&run->opts->mapper, run->log, context->displays, NULL, &run->mapper)) {
        kg_opts_unref(&run->opts);
        return -ENOMEM;
    }
    if (run->ended) {
        kg_mapper_ended(run->mapper);
    }
    return 0;
}

/* Into the sandbox's list and the context's queue. */
static void enter(kg_run_t *run, const char *id, kg_context_t *context, kg_job_t *job_take)
{
    unsigned ahead = context->queued_runs + kg_context_running(context);
    kg_run_list_in(run, context->sandbox, id);
    run->context = context;
    run->job = job_take;
    job_take->kind = KG_JOB_RUN;
    job_take->run = run;
    kg_run_ref_(run); /* the queue's */
    run->core->stats.runs_created++;
    if (ahead) {
        (void)kg_mapper_queued(run->mapper, ahead);
    }
    kg_sandbox_touch(context->sandbox);
    kg_job_enqueue(context, job_take);
}

static int make(kg_context_t *context, const kg_run_opts_t *opts, kg_run_t **ret_run, kg_err_t *err)
{
    char id[KG_ID_MAX];
    kg_id_generate(&context->core->node, "run", id);
    kg_run_t *run = kg_run_alloc(context->core);
    kg_job_t *job = calloc(1, sizeof(*job));
    bool bad = !run || !job || copy_opts(run, context, opts) || make_log(run, id, context, opts) ||
               kg_run_deadline_create(run);
    if (bad) {
        free(job);
        kg_run_unref_(&run);
        return kg_oom(err);
    }
    job->client = client_bytes(opts);
    enter(run, id, context, job);
    kg_core_refill(context->core, false);
    *ret_run = run;
    return 0;
}

int kg_run_new(kg_sandbox_t *sandbox,
               const kg_run_opts_t *opts,
               kg_run_t **ret_run,
               bool *ret_existing,
               kg_err_t *err)
{
    char hash[33];
    kg_context_t *context = NULL;
    int rc = kg_core_ready(sandbox->core, err);
    rc = rc ? rc : check_opts(sandbox->core, opts, err);
    if (ret_existing) {
        *ret_existing = false;
    }
    if (!rc && opts->key) {
        hash_code(opts, hash);
        rc = kg_run_find_key(sandbox, opts->key, hash, ret_run, err);
        if (rc == 1) {
            if (ret_existing) {
                *ret_existing = true;
            }
            return 0;
        }
    }
    rc = rc ? rc : choose_context(sandbox, opts, &context, err);
    if (rc || !context) {
        return rc;
    }
    rc = check_context(context, opts, err);
    return rc ? rc : make(context, opts, ret_run, err);
}

/* ---- finding and describing ---- */

kg_run_t *kg_run_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err)
{
    kg_run_t *run = kg_run_table_find(&sandbox->core->runs, id);
    if (!run || run->sandbox != sandbox) {
        (void)kg_err_set(err, KG_ERR_RUN_NOT_FOUND, "No run %.64s in sandbox %s.", id, sandbox->id);
        kg_err_hint(err, "GET /v1/sandboxes/%s/runs lists them.", sandbox->id);
        return NULL;
    }
    return run;
}

const char *kg_run_id(const kg_run_t *run)
{
    return run->id;
}

const char *kg_run_context_id(const kg_run_t *run)
{
    return run->context_id;
}

kg_sandbox_t *kg_run_sandbox(const kg_run_t *run)
{
    return run->sandbox && !run->sandbox->deleted ? run->sandbox : NULL;
}

bool kg_run_ended(const kg_run_t *run)
{
    return run->expired || (run->log && kg_run_log_finished(run->log));
}

bool kg_run_expired(const kg_run_t *run)
{
    return run->expired;
}

kg_run_log_t *kg_run_log_of(kg_run_t *run)
{
    return run->log;
}

/* ---- clients ---- */

void kg_run_attach(kg_run_t *run)
{
    run->attached++;
    kg_run_ref_(run);
}

void kg_run_detach(kg_run_t **run)
{
    kg_run_t *r = *run;
    *run = NULL;
    if (!r) {
        return;
    }
    if (--r->attached == 0) {
        if (!r->ended && r->on_disconnect == KG_ON_DISCONNECT_INTERRUPT) {
            kg_run_stop(r, KG_CAUSE_INTERRUPT);
        } else if (!r->ended && r->on_disconnect == KG_ON_DISCONNECT_KILL) {
            kg_run_stop(r, KG_CAUSE_KILL);
        }
        if (!r->sandbox && r->log && r->ended && !r->core->destroying) {
            kg_run_log_remove(r->log);
        }
    }
    kg_run_unref_(&r);
}
