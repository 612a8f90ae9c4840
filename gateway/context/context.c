/* gateway/context: contexts as the API speaks of them: made, found, described, renamed, removed. */
#include "gateway/context/context.h"

#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"
#include "gateway/context/internal.h"

/* ---- checks ---- */

int kg_obj_name_check(const char *name, kg_err_t *err)
{
    if (!kg_name_valid(name, KG_OBJ_NAME_MAX)) {
        return kg_bad(err, "/name", "name: 1 to %d of a-z, 0-9 and -, not - at either end",
                      KG_OBJ_NAME_MAX);
    }
    if (kg_uuid_valid(name) || kg_str_starts(name, "sbx-")) {
        return kg_bad(err, "/name", "name: has the form of an id");
    }
    return 0;
}

int kg_cwd_check(const char *cwd, kg_err_t *err)
{
    if (!*cwd || strlen(cwd) >= KG_SBX_PATH_MAX / 2) {
        return kg_bad(err, "/cwd", "cwd: 1 to %d bytes", KG_SBX_PATH_MAX / 2 - 1);
    }
    return 0;
}

int kg_context_dir(const kg_context_t *context, const char *cwd, char ret[KG_SBX_PATH_MAX])
{
    return kg_sandbox_dir(context->sandbox, cwd, ret, KG_SBX_PATH_MAX);
}

/* ---- the object ---- */

kg_context_t *kg_context_alloc(kg_sandbox_t *sandbox, const char *id)
{
    kg_context_t *context = calloc(1, sizeof(*context));
    if (!context || kg_displays_create(&context->displays)) {
        free(context);
        return NULL;
    }
    context->core = sandbox->core;
    context->sandbox = sandbox;
    (void)kg_format(context->id, sizeof(context->id), "%s", id);
    DL_APPEND(sandbox->contexts, context);
    HASH_ADD_STR(sandbox->core->contexts, id, context);
    return context;
}

/* Its jobs are over and its kernel is closed, or the core is being destroyed. */
void kg_context_free(kg_context_t *context)
{
    kg_sandbox_t *sandbox = context->sandbox;
    kg_wait_t *wait = KG_TAKE(context->gone_wait);
    kg_core_later_forget(context->core, context);
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_CONTEXT_NOT_FOUND, "context %s was deleted", context->id);
    kg_jobs_abort(context, KG_CAUSE_ABORT, true, &err);
    kg_job_destroy(&context->current);
    kg_bridge_free(context);
    kg_inc_close(&context->inc);
    kg_kernel_memo_drop(context);
    kg_timer_close(&context->backoff);
    kg_timer_close(&context->guard);
    kg_displays_destroy(&context->displays);
    while (context->ready_waits) {
        kg_wait_t *ready = context->ready_waits;
        context->ready_waits = ready->list_next;
        kg_wait_drop(&ready);
    }
    DL_DELETE(sandbox->contexts, context);
    HASH_DEL(context->core->contexts, context);
    json_decref(context->env);
    free(context->cwd);
    free(context);
    if (sandbox->core->destroying) {
        kg_wait_drop(&wait);
        return;
    }
    kg_wait_done(&wait, NULL);
    kg_sandbox_context_gone(sandbox);
}

int kg_context_save(kg_context_t *context, kg_err_t *err)
{
    if (context->sandbox->hidden) {
        return 0;
    }
    json_t *body =
        json_pack("{s:i, s:s, s:s, s:b, s:s?, s:O?, s:I, s:I}", "v", 1, "language",
                  context->lang->name, "template", context->from->name, "default",
                  context->is_default, "cwd", context->cwd, "env", context->env, "created_ns",
                  (json_int_t)context->created_ns, "incarnation", (json_int_t)context->incarnation);
    json_t *kernel = body ? kg_kernel_record(context) : NULL;
    if (kernel) {
        (void)json_object_set_new(body, "kernel", kernel);
    }
    KG_AUTO_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    kg_kernel_record_wipe(body);
    json_decref(body);
    if (!text) {
        return kg_oom(err);
    }
    kg_store_row_t row = {context->id, context->sandbox->id,
                          context->name[0] ? context->name : NULL, text};
    int rc = kg_store_context_put(context->core->store, &row, err);
    explicit_bzero(text, strlen(text)); /* the kernel's key */
    return rc;
}

kg_context_t *kg_context_default(kg_sandbox_t *sandbox, const kg_tpl_language_t *lang)
{
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (context->is_default && context->lang == lang && !context->gone) {
            return context;
        }
    }
    return NULL;
}

static unsigned count_contexts(const kg_sandbox_t *sandbox)
{
    unsigned count = 0;
    const kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        count += !context->gone;
    }
    return count;
}

static int
name_free(kg_sandbox_t *sandbox, const char *name, const kg_context_t *but, kg_err_t *err)
{
    kg_context_t *other = NULL;
    DL_FOREACH (sandbox->contexts, other) {
        if (other != but && !other->gone && strcmp(other->name, name) == 0) {
            int rc = kg_err_set(err, KG_ERR_NAME_TAKEN,
                                "a context of this sandbox has the name \"%s\"", name);
            kg_err_pointer(err, "/name");
            return rc;
        }
    }
    return 0;
}

static int check_opts(kg_sandbox_t *sandbox, const kg_context_opts_t *opts, kg_err_t *err)
{
    int rc = opts->name ? kg_obj_name_check(opts->name, err) : 0;
    rc = rc || !opts->name ? rc : name_free(sandbox, opts->name, NULL, err);
    rc = rc || !opts->cwd ? rc : kg_cwd_check(opts->cwd, err);
    rc = rc ? rc : kg_env_check(opts->env, "/env", err);
    if (!rc && count_contexts(sandbox) >= sandbox->core->config.contexts_max) {
        rc = kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "a sandbox holds at most %u contexts",
                        sandbox->core->config.contexts_max);
        if (err) {
            err->retry_after_s = 5;
        }
    }
    return rc;
}

int kg_context_make(kg_sandbox_t *sandbox,
                    const kg_context_opts_t *opts,
                    bool is_default,
                    kg_context_t **ret_context,
                    kg_err_t *err)
{
    const kg_tpl_language_t *lang = NULL;
    const kg_template_t *from = NULL;
    int rc = check_opts(sandbox, opts, err);
    rc = rc ? rc
            : kg_templates_resolve(&sandbox->core->templates, sandbox->tpl, opts->language, &lang,
                                   &from, err);
    if (rc) {
        return rc;
    }
    char id[KG_ID_MAX];
    kg_uuid_generate(&sandbox->core->node, id);
    kg_context_t *context = kg_context_alloc(sandbox, id);
    if (!context) {
        return kg_oom(err);
    }
    context->lang = lang;
    context->from = from;
    context->created_ns = kg_core_stamp(sandbox->core);
    context->is_default = is_default;
    context->fresh = true;
    context->gone = true; /* until it is whole */
    (void)kg_format(context->name, sizeof(context->name), "%s", opts->name ? opts->name : "");
    context->cwd = opts->cwd ? strdup(opts->cwd) : NULL;
    context->env = json_is_object(opts->env) ? json_deep_copy(opts->env) : NULL;
    rc = (opts->cwd && !context->cwd) ? kg_oom(err) : kg_context_save(context, err);
    if (rc) {
        kg_context_free(context);
        return rc;
    }
    context->gone = false;
    *ret_context = context;
    return 0;
}

int kg_context_new(kg_sandbox_t *sandbox,
                   const kg_context_opts_t *opts,
                   kg_context_fn *done,
                   void *user,
                   kg_err_t *err)
{
    kg_context_t *context = NULL;
    kg_wait_t *wait = NULL;
    int rc = kg_core_ready(sandbox->core, err);
    if (rc) {
        return rc;
    }
    wait = kg_wait_new(sandbox->core, KG_WAIT_CONTEXT, user);
    rc = wait ? kg_context_make(sandbox, opts, false, &context, err) : kg_oom(err);
    if (rc || !wait || !context) {
        kg_wait_drop(&wait);
        return rc;
    }
    wait->fn.context = done;
    context->ready_waits = wait;
    kg_sandbox_touch(sandbox);
    kg_context_start(context);
    return 0;
}

/* ---- finding and describing ---- */

kg_context_t *kg_context_find(kg_sandbox_t *sandbox, const char *id_or_name, kg_err_t *err)
{
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        bool named = strcmp(context->id, id_or_name) == 0 ||
                     (context->name[0] && strcmp(context->name, id_or_name) == 0);
        if (named && !context->gone) {
            return context;
        }
    }
    (void)kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "No context %.64s in sandbox %s.", id_or_name,
                     sandbox->id);
    kg_err_hint(err, "GET /v1/sandboxes/%s/contexts lists them.", sandbox->id);
    return NULL;
}

kg_context_t *kg_context_find_any(kg_core_t *core, const char *owner, const char *id, kg_err_t *err)
{
    kg_context_t *context = NULL;
    HASH_FIND_STR(core->contexts, id, context);
    if (context && !context->gone && !context->sandbox->deleted && !context->sandbox->hidden &&
        strcmp(context->sandbox->owner, owner) == 0) {
        return context;
    }
    (void)kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "No context %.64s.", id);
    return NULL;
}

const char *kg_context_id(const kg_context_t *context)
{
    return context->id;
}

kg_sandbox_t *kg_context_sandbox(const kg_context_t *context)
{
    return context->sandbox;
}

const char *kg_context_state_name(const kg_context_t *context)
{
    switch (context->state) {
    case KG_CTX_READY:
        return kg_context_running(context) ? "busy" : "idle";
    case KG_CTX_ENDING:
        return "restarting";
    case KG_CTX_DEAD:
        return "dead";
    case KG_CTX_DOWN:
    case KG_CTX_STARTING:
        break;
    }
    return context->last_exit.known || context->incarnation > 1 ? "restarting" : "starting";
}

static json_t *last_exit_json(const kg_context_t *context)
{
    if (!context->last_exit.known) {
        return json_null();
    }
    json_t *out = json_object();
    bool told = !context->last_exit.lost;
    bool signaled = context->last_exit.signaled;
    if (out) {
        json_t *number = json_integer(context->last_exit.number);
        (void)json_object_set(out, "code", told && !signaled ? number : json_null());
        (void)json_object_set(out, "signal", told && signaled ? number : json_null());
        (void)json_object_set_new(out, "oom", json_boolean(context->last_exit.oom));
        (void)json_object_set_new(out, "at", kg_json_time(context->last_exit.at_ns));
        json_decref(number);
    }
    return out;
}

json_t *kg_context_json(const kg_context_t *context)
{
    json_t *out = json_pack(
        "{s:s, s:s, s:s?, s:s, s:s, s:s, s:I, s:o, s:i, s:i, s:o, s:o, s:b}", "id", context->id,
        "sandbox", context->sandbox->id, "name", context->name[0] ? context->name : NULL,
        "language", context->lang->name, "kernel", context->lang->spec->name, "state",
        kg_context_state_name(context), "execution_count", (json_int_t)context->execution_count,
        "cwd", kg_json_cwd(context->cwd), "queue", (int)context->queued_runs, "incarnation",
        (int)context->incarnation, "last_exit", last_exit_json(context), "created_at",
        kg_json_time(context->created_ns), "default", context->is_default);
    if (out && context->state == KG_CTX_DEAD && context->last_error.code) {
        (void)json_object_set_new(out, "last_error",
                                  json_pack("{s:s, s:s}", "code",
                                            kg_err_name(context->last_error.code), "message",
                                            context->last_error.message));
    }
    return out;
}

json_t *kg_context_list(kg_sandbox_t *sandbox)
{
    json_t *items = json_array();
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (!context->gone) {
            (void)json_array_append_new(items, kg_context_json(context));
        }
    }
    return json_pack("{s:o, s:n}", "items", items, "next");
}

/* ---- changing ---- */

int kg_context_rename(kg_context_t *context, const char *name, kg_err_t *err)
{
    char old[sizeof(context->name)];
    int rc = *name ? kg_obj_name_check(name, err) : 0;
    rc = rc || !*name ? rc : name_free(context->sandbox, name, context, err);
    if (rc) {
        return rc;
    }
    memcpy(old, context->name, sizeof(old));
    (void)kg_format(context->name, sizeof(context->name), "%s", name);
    rc = kg_context_save(context, err);
    if (rc) {
        memcpy(context->name, old, sizeof(old));
    }
    return rc;
}

int kg_context_delete(kg_context_t *context, kg_done_fn *done, void *user, kg_err_t *err)
{
    if (context->awaited && context->sandbox->create_wait) {
        return kg_err_set(err, KG_ERR_BUSY, "sandbox %s is being made with this context",
                          context->sandbox->id);
    }
    kg_wait_t *wait = kg_wait_new(context->core, KG_WAIT_DONE, user);
    int rc = wait ? kg_store_context_delete(context->core->store, context->id, err) : kg_oom(err);
    if (rc || !wait) {
        kg_wait_drop(&wait);
        return rc;
    }
    wait->fn.done = done;
    context->gone_wait = wait;
    kg_sandbox_touch(context->sandbox);
    kg_context_remove(context, KG_CAUSE_ABORT);
    return 0;
}
