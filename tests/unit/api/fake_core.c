/* The context and store rooms as seen from above, in memory. */
#include "fake_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

kg_core_t *fake_core_new(void)
{
    kg_core_t *core = calloc(1, sizeof *core);
    if (!core) {
        abort();
    }
    core->sandbox.core = core->context.core = core->run.core = core->log.core = core;
    core->piece = SIZE_MAX;
    return core;
}

void fake_core_free(kg_core_t **core)
{
    wait_t *w, *tmp;
    DL_FOREACH_SAFE ((*core)->waits, w, tmp) {
        DL_DELETE((*core)->waits, w);
        free(w);
    }
    fake_files_reset();
    fake_look_reset();
    fake_log_clear(&(*core)->log);
    free(*core);
    *core = NULL;
}

fake_stats_t *fake_stats(kg_core_t *core)
{
    return &core->stats;
}

void fake_core_set_ready(kg_core_t *core, kg_err_code_t code)
{
    core->ready = code;
}

static wait_t *wait_add(kg_core_t *core, void *user)
{
    wait_t *w = calloc(1, sizeof *w);
    if (!w) {
        abort();
    }
    w->user = user;
    DL_APPEND(core->waits, w);
    return w;
}

unsigned fake_core_fire(kg_core_t *core, kg_err_code_t code)
{
    unsigned n = 0;
    kg_err_t err = {0};
    if (code != KG_ERR_NONE) {
        kg_err_set(&err, code, "The fake core was told to fail.");
    }
    while (core->waits) {
        wait_t *w = core->waits;
        DL_DELETE(core->waits, w);
        if (w->sandbox) {
            w->sandbox(w->user, code ? NULL : &core->sandbox, &err);
        } else if (w->context) {
            w->context(w->user, code ? NULL : &core->context, &err);
        } else if (w->done) {
            w->done(w->user, code ? &err : NULL);
        } else {
            w->reply(w->user, code ? kg_slice(NULL, 0) : kg_slice_cstr("{\"matches\":[]}"), &err);
        }
        free(w);
        n++;
    }
    return n + fake_files_fire(code);
}

/* --- Core ----------------------------------------------------------------------------------- */

void kg_core_forget(kg_core_t *core, const void *user)
{
    wait_t *w, *tmp;
    DL_FOREACH_SAFE (core->waits, w, tmp) {
        if (w->user == user) {
            DL_DELETE(core->waits, w);
            free(w);
            core->stats.forgotten++;
        }
    }
    core->stats.forgotten += user ? fake_files_forget(user) : 0;
}

int kg_core_ready(const kg_core_t *core, kg_err_t *err)
{
    return core->ready ? kg_err_set(err, core->ready, "Not ready.") : 0;
}

kg_loop_t *kg_core_loop(const kg_core_t *core)
{
    (void)core;
    return NULL;
}

kg_store_t *kg_core_store(const kg_core_t *core)
{
    union {
        const kg_store_t *in;
        kg_store_t *out;
    } u = {&core->store};
    return u.out;
}

const char *kg_core_pool_stats(const kg_core_t *core,
                               size_t index,
                               const char **ret_start,
                               kg_pool_stats_t *ret_stats)
{
    (void)core;
    *ret_start = "zygote";
    *ret_stats = (kg_pool_stats_t){.ready = 2, .hits = 7, .shed = 3};
    return index == 0 ? "lukewarm" : NULL;
}

void kg_core_stats(const kg_core_t *core, kg_core_stats_t *ret_stats)
{
    *ret_stats = (kg_core_stats_t){.runs_created = core->stats.runs_made, .contexts = 1};
    ret_stats->runs_by_status[KG_RUN_OK] = 7;
    ret_stats->run_wall_ns = UINT64_C(1500000000);
    ret_stats->runs_by_wall[1] = 5;                   /* up to 10 ms */
    ret_stats->runs_by_wall[KG_RUN_WALL_BUCKETS] = 2; /* longer than all bounds */
}

/* --- Store ---------------------------------------------------------------------------------- */

static kg_core_t *core_of(kg_store_t *store)
{
    return kg_container_of(store, kg_core_t, store);
}

int kg_store_key_lives(kg_store_t *store, const char *id, uint64_t now, kg_err_t *err)
{
    (void)store;
    (void)now;
    (void)err;
    return strcmp(id, "key-removed") != 0;
}

int kg_store_key_check(
    kg_store_t *store, kg_slice_t plain, uint64_t now, kg_key_t *ret_key, kg_err_t *err)
{
    static const char *const rows[][3] = {
        {"key-alice", "alice", "use"},
        {"key-bob", "bob", "use"},
        {"key-admin", "alice", "admin"},
        {"key-attach", "alice", "attach:" FAKE_SANDBOX},
        {"key-other", "alice", "attach:sbx-other"},
    };
    (void)now;
    core_of(store)->stats.key_checks++;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        if (kg_slice_eq_cstr(plain, rows[i][0])) {
            *ret_key = (kg_key_t){0};
            snprintf(ret_key->id, sizeof ret_key->id, "%s", rows[i][0]);
            snprintf(ret_key->owner, sizeof ret_key->owner, "%s", rows[i][1]);
            snprintf(ret_key->scopes, sizeof ret_key->scopes, "%s", rows[i][2]);
            return 0;
        }
    }
    if (kg_slice_eq_cstr(plain, "key-old")) {
        return -EACCES;
    }
    if (kg_slice_eq_cstr(plain, "key-io")) {
        return kg_err_set(err, KG_ERR_INTERNAL, "The store cannot be read.");
    }
    return -ENOENT;
}

bool kg_key_has_scope(const kg_key_t *key, const char *scope)
{
    return strcmp(key->scopes, "admin") == 0 || strcmp(key->scopes, "admin use") == 0 ||
           strcmp(key->scopes, scope) == 0;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's */
int kg_store_key_add(kg_store_t *store,
                     const char *owner,
                     const char *name,
                     const char *scopes,
                     uint64_t expires_ns,
                     char ret_plain[KG_KEY_TEXT_MAX],
                     kg_key_t *ret_key,
                     kg_err_t *err)
{
    (void)store;
    (void)err;
    *ret_key = (kg_key_t){.id = "key-1", .created_ns = 1, .expires_ns = expires_ns};
    snprintf(ret_key->owner, sizeof ret_key->owner, "%s", owner ? owner : "key-1");
    snprintf(ret_key->name, sizeof ret_key->name, "%s", name ? name : "");
    snprintf(ret_key->scopes, sizeof ret_key->scopes, "%s", scopes);
    snprintf(ret_plain, KG_KEY_TEXT_MAX, "sk-sandal-secret");
    return 0;
}

int kg_store_key_each(kg_store_t *store, kg_key_each_fn *each, void *user, kg_err_t *err)
{
    (void)store;
    (void)err;
    kg_key_t key = {.id = "key-1", .owner = "alice", .scopes = "admin use", .created_ns = 1};
    return each(user, &key);
}

int kg_store_key_remove(kg_store_t *store, const char *id, kg_err_t *err)
{
    (void)store;
    return strcmp(id, "key-1") == 0 ? 0 : kg_err_set(err, KG_ERR_NOT_FOUND, "No key %.40s.", id);
}

/* --- Templates ------------------------------------------------------------------------------ */

json_t *kg_template_list(const kg_core_t *core)
{
    (void)core;
    return json_pack("{s:[{s:s}], s:n}", "items", "name", "python", "next");
}

const kg_template_t *kg_template_find(const kg_core_t *core, const char *name, kg_err_t *err)
{
    if (strcmp(name, "python") == 0) {
        return &core->template;
    }
    kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "No template %.40s.", name);
    return NULL;
}

json_t *kg_template_json(const kg_core_t *core, const kg_template_t *tpl)
{
    (void)core;
    (void)tpl;
    return json_pack("{s:s}", "name", "python");
}

/* --- Sandboxes ------------------------------------------------------------------------------ */

int kg_sandbox_new(kg_core_t *core,
                   const char *owner,
                   const kg_sandbox_opts_api_t *opts,
                   kg_sandbox_fn *done,
                   void *user,
                   kg_err_t *err)
{
    (void)owner;
    if (opts->name && strcmp(opts->name, "box") == 0) {
        return kg_err_set(err, KG_ERR_NAME_TAKEN, "There is one of this name.");
    }
    core->stats.sandboxes_made++;
    wait_add(core, user)->sandbox = done;
    return 0;
}

kg_sandbox_t *
kg_sandbox_find(kg_core_t *core, const char *owner, const char *id_or_name, kg_err_t *err)
{
    if (strcmp(owner, "bob") != 0 &&
        (strcmp(id_or_name, FAKE_SANDBOX) == 0 || strcmp(id_or_name, "box") == 0)) {
        return &core->sandbox;
    }
    kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "No sandbox %.60s.", id_or_name);
    return NULL;
}

kg_core_t *kg_sandbox_core(const kg_sandbox_t *sandbox)
{
    return sandbox->core;
}

const char *kg_sandbox_id(const kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return FAKE_SANDBOX;
}

json_t *kg_sandbox_json(const kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return json_pack("{s:s}", "id", FAKE_SANDBOX);
}

json_t *kg_sandbox_list(kg_core_t *core,
                        const char *owner,
                        const kg_sandbox_filter_t *filter,
                        kg_err_t *err)
{
    (void)core;
    (void)err;
    json_t *items = json_array();
    if (strcmp(owner, "bob") != 0) {
        json_array_append_new(items, json_pack("{s:s}", "id", FAKE_SANDBOX));
    }
    return json_pack("{s:o, s:n, s:i, s:O?}", "items", items, "next", "limit", (int)filter->limit,
                     "metadata", filter->metadata);
}

int kg_sandbox_update(kg_sandbox_t *sandbox, const kg_sandbox_patch_t *patch, kg_err_t *err)
{
    (void)err;
    sandbox->core->stats.last_timeout = (double)patch->timeout_s;
    return 0;
}

int kg_sandbox_delete(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err)
{
    (void)err;
    if (done) {
        wait_add(sandbox->core, user)->done = done;
    } else {
        sandbox->core->stats.dropped++;
    }
    return 0;
}

/* --- Contexts ------------------------------------------------------------------------------- */

int kg_context_new(kg_sandbox_t *sandbox,
                   const kg_context_opts_t *opts,
                   kg_context_fn *done,
                   void *user,
                   kg_err_t *err)
{
    if (opts->language && strcmp(opts->language, "cobol") == 0) {
        return kg_err_set(err, KG_ERR_LANGUAGE_NOT_FOUND, "No cobol here.");
    }
    wait_add(sandbox->core, user)->context = done;
    return 0;
}

kg_context_t *kg_context_find(kg_sandbox_t *sandbox, const char *id_or_name, kg_err_t *err)
{
    if (strcmp(id_or_name, FAKE_CONTEXT) == 0 || strcmp(id_or_name, "main") == 0) {
        return &sandbox->core->context;
    }
    kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "No context %.60s in sandbox %s.", id_or_name,
               FAKE_SANDBOX);
    kg_err_hint(err, "GET …/contexts lists them.");
    return NULL;
}

kg_context_t *kg_context_find_any(kg_core_t *core, const char *owner, const char *id, kg_err_t *err)
{
    if (strcmp(owner, "bob") == 0) {
        kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "No context %.60s.", id);
        return NULL;
    }
    return kg_context_find(&core->sandbox, id, err);
}

const char *kg_context_id(const kg_context_t *context)
{
    (void)context;
    return FAKE_CONTEXT;
}

kg_sandbox_t *kg_context_sandbox(const kg_context_t *context)
{
    return &context->core->sandbox;
}

json_t *kg_context_json(const kg_context_t *context)
{
    (void)context;
    return json_pack("{s:s}", "id", FAKE_CONTEXT);
}

json_t *kg_context_list(kg_sandbox_t *sandbox)
{
    return json_pack("{s:[o], s:n}", "items", kg_context_json(&sandbox->core->context), "next");
}

int kg_context_rename(kg_context_t *context, const char *name, kg_err_t *err)
{
    (void)context;
    return strcmp(name, "taken") == 0 ? kg_err_set(err, KG_ERR_NAME_TAKEN, "Taken.") : 0;
}

int kg_context_reset(kg_context_t *context, kg_context_fn *done, void *user, kg_err_t *err)
{
    (void)err;
    wait_add(context->core, user)->context = done;
    return 0;
}

int kg_context_interrupt(kg_context_t *context, bool *ret_interrupted, kg_err_t *err)
{
    (void)err;
    context->core->stats.interrupts++;
    *ret_interrupted = false;
    return 0;
}

int kg_context_delete(kg_context_t *context, kg_done_fn *done, void *user, kg_err_t *err)
{
    (void)err;
    wait_add(context->core, user)->done = done;
    return 0;
}

static int
asked(kg_context_t *context, unsigned wait_ms, kg_context_reply_fn *done, void *user, kg_err_t *err)
{
    if (context->core->have_run && wait_ms == 0) {
        return kg_err_set(err, KG_ERR_BUSY, "The context is busy.");
    }
    wait_add(context->core, user)->reply = done;
    return 0;
}

int kg_context_complete(kg_context_t *context,
                        kg_slice_t code,
                        size_t cursor,
                        unsigned wait_ms,
                        kg_context_reply_fn *done,
                        void *user,
                        kg_err_t *err)
{
    (void)code;
    (void)cursor;
    return asked(context, wait_ms, done, user, err);
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's */
int kg_context_inspect(kg_context_t *context,
                       kg_slice_t code,
                       size_t cursor,
                       unsigned detail,
                       unsigned wait_ms,
                       kg_context_reply_fn *done,
                       void *user,
                       kg_err_t *err)
{
    (void)code;
    (void)cursor;
    (void)detail;
    return asked(context, wait_ms, done, user, err);
}

int kg_context_variables(
    kg_context_t *context, unsigned wait_ms, kg_context_reply_fn *done, void *user, kg_err_t *err)
{
    return asked(context, wait_ms, done, user, err);
}
