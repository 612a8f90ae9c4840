/* gateway/compat: kernels. What they do is done by the operations of /v1; what is here is Jupyter's
 * view of it: a kernel that a client starts gets a sandbox of its own, which its delete ends; from
 * any other one a client only goes away. */
#include "gateway/compat/kernels.h"

#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/compat/allow.h"
#include "gateway/compat/channels.h"
#include "gateway/compat/model.h"

/* Clients take what a list lacks for dead, so there is none before all is known. */
bool kg_jreq_ready(kg_jreq_t *r)
{
    kg_err_t err = {0};
    if (kg_core_ready(r->jupyter->core, &err) == 0) {
        return true;
    }
    err.retry_after_s = err.retry_after_s ? err.retry_after_s : 1;
    kg_jreq_fail(r, &err);
    return false;
}

bool kg_jreq_kernel(kg_jreq_t *r, kg_kernel_ref_t *ret_kernel)
{
    kg_err_t err = {0};
    if (!kg_jreq_ready(r)) {
        return false;
    }
    if (kg_kernel_find(r->jupyter->core, &r->who, r->param[0], ret_kernel, &err) < 0) {
        kg_jreq_fail(r, &err);
        return false;
    }
    return true;
}

/* --- Start ---------------------------------------------------------------------------------- */

static void started(kg_jreq_t *r, const json_t *record, const kg_err_t *err)
{
    kg_err_t own = {0};
    kg_kernel_ref_t kernel;
    const char *id = json_string_value(json_object_get(record, "id"));
    const kg_sandbox_t *sandbox =
        id ? kg_sandbox_find(r->jupyter->core, r->who.key.owner, id, &own) : NULL;
    const char *context = sandbox ? kg_sandbox_default_context(sandbox) : NULL;
    if (context && kg_kernel_find(r->jupyter->core, &r->who, context, &kernel, &own) == 0) {
        r->fresh = true;
        if (r->left) {
            kg_jreq_drop_kernel(r, &kernel);
            kg_jreq_free(r);
        } else {
            r->started(r, &kernel, NULL);
        }
        return;
    }
    if (r->left) {
        kg_jreq_free(r);
        return;
    }
    if (!err && own.code == KG_ERR_NONE) {
        kg_err_set(&own, KG_ERR_KERNEL_START_FAILED, "The sandbox has no kernel.");
    }
    r->started(r, NULL, err ? err : &own);
}

void kg_jreq_drop_kernel(const kg_jreq_t *r, const kg_kernel_ref_t *kernel)
{
    if (r->fresh) {
        (void)kg_sandbox_delete(kernel->sandbox, NULL, NULL, NULL);
    }
}

typedef struct taken {
    const char *id;
    bool found;
} taken_t;

static bool seek_taken(void *user, kg_sandbox_t *sandbox)
{
    taken_t *t = user;
    const char *id = kg_sandbox_metadata(sandbox, KG_JUPYTER_META_ID);
    t->found = id && strcmp(id, t->id) == 0;
    return !t->found;
}

static int check_id(kg_jreq_t *r, const char *id, kg_err_t *err)
{
    taken_t taken = {.id = id};
    if (!kg_uuid_valid(id)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "Kernel id is not a UUID: %.64s", id);
    }
    kg_sandbox_each(r->jupyter->core, r->who.key.owner, seek_taken, &taken);
    if (taken.found || kg_context_find_any(r->jupyter->core, r->who.key.owner, id, NULL) != NULL) {
        return kg_err_set(err, KG_ERR_CONFLICT, "Kernel already exists: %.64s", id);
    }
    return 0;
}

static json_t *
create_args(kg_jreq_t *r, const char *tpl, const char *spec, const char *id, const json_t *env)
{
    const kg_jupyter_config_t *config = &r->jupyter->config;
    json_t *metadata = json_pack("{s:s, s:s, s:s*}", KG_JUPYTER_META_SPEC, spec,
                                 KG_JUPYTER_META_KEY, r->who.key.id, KG_JUPYTER_META_ID, id);
    return json_pack("{s:s, s:o, s:o, s:f, s:s*}", "template", tpl, "metadata", metadata, "env",
                     kg_allow_env(config->env, config->env_count, env), "timeout",
                     (double)config->kernel_timeout_s, "on_timeout", config->kernel_on_timeout);
}

static void take_live(kg_jreq_t *r, const char *spec, kg_kernel_started_fn *done)
{
    kg_err_t err = {0};
    kg_kernel_ref_t kernel;
    int rc =
        kg_kernel_find(r->jupyter->core, &r->who, spec + strlen(KG_JUPYTER_LIVE), &kernel, &err);
    done(r, rc < 0 ? NULL : &kernel, &err);
}

/* The template of a kernelspec, and that the one who asks may start it, under the id that was
 * chosen. */
static int check_wish(
    kg_jreq_t *r, const char *spec, const char *id, kg_template_kernel_t *ret_kernel, kg_err_t *err)
{
    int rc = kg_auth_allow(&r->who, KG_RIGHT_USE, NULL, err);
    if (rc == 0 && (!spec[0] || !kg_jupyter_template(r->jupyter->core, spec, ret_kernel))) {
        rc = kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "Kernel spec %.64s not found", spec);
        kg_err_hint(err, "GET /api/kernelspecs lists them.");
    }
    return rc < 0 || !id ? rc : check_id(r, id, err);
}

void kg_jreq_start_kernel(kg_jreq_t *r, const kg_kernel_wish_t *wish, kg_kernel_started_fn *done)
{
    kg_err_t err = {0};
    kg_template_kernel_t k = {0};
    char standard[KG_OBJ_NAME_MAX + 1] = "";
    if (!wish->spec) {
        kg_jupyter_default_spec(r->jupyter->core, &r->who, standard, sizeof standard);
    }
    const char *spec = wish->spec ? wish->spec : standard;
    const char *id = wish->id;
    id = id ? id : json_string_value(json_object_get(wish->env, "KERNEL_ID"));
    if (kg_str_starts(spec, KG_JUPYTER_LIVE)) {
        take_live(r, spec, done);
    } else if (check_wish(r, spec, id, &k, &err) < 0) {
        done(r, NULL, &err);
    } else {
        r->started = done;
        kg_jreq_call(r, "sandboxes.create", create_args(r, k.name, spec, id, wish->env), started);
    }
}

static void answer_started(kg_jreq_t *r, const kg_kernel_ref_t *kernel, const kg_err_t *err)
{
    if (!kernel) {
        kg_jreq_fail(r, err);
        return;
    }
    char location[32 + KG_ID_MAX];
    (void)kg_format(location, sizeof location, "/api/kernels/%s", kernel->id);
    kg_jreq_json_take(r, 201, kg_jupyter_kernel_json(r->jupyter, kernel), location);
}

/* null is as good as absent, in each. */
int kg_jreq_string(const json_t *object, const char *name, const char **ret, kg_err_t *err)
{
    const json_t *value = json_object_get(object, name);
    *ret = json_string_value(value);
    if (value && !json_is_null(value) && !*ret) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s must be a string.", name);
    }
    return 0;
}

void kg_do_kernels_start(kg_jreq_t *r)
{
    kg_err_t err = {0};
    kg_kernel_wish_t wish = {.env = json_object_get(r->body, "env")};
    if (!kg_jreq_ready(r)) {
        return;
    }
    int rc = kg_jreq_string(r->body, "name", &wish.spec, &err);
    rc = rc < 0 ? rc : kg_jreq_string(r->body, "kernel_id", &wish.id, &err);
    if (rc == 0 && wish.env && !json_is_object(wish.env) && !json_is_null(wish.env)) {
        rc = kg_err_set(&err, KG_ERR_INVALID_REQUEST, "env must be an object.");
    }
    wish.env = json_is_object(wish.env) ? wish.env : NULL;
    if (rc < 0) {
        kg_jreq_fail(r, &err);
    } else {
        kg_jreq_start_kernel(r, &wish, answer_started);
    }
}

/* --- The others ----------------------------------------------------------------------------- */

typedef struct listing {
    const kg_jupyter_t *jupyter;
    json_t *items;
} listing_t;

static bool add_kernel(void *user, const kg_kernel_ref_t *kernel)
{
    listing_t *l = user;
    (void)json_array_append_new(l->items, kg_jupyter_kernel_json(l->jupyter, kernel));
    return true;
}

void kg_do_kernels_list(kg_jreq_t *r)
{
    if (!kg_jreq_ready(r)) {
        return;
    }
    listing_t l = {.jupyter = r->jupyter, .items = json_array()};
    kg_kernel_each(r->jupyter->core, &r->who, add_kernel, &l);
    kg_jreq_json_take(r, 200, l.items, NULL);
}

void kg_do_kernels_get(kg_jreq_t *r)
{
    kg_kernel_ref_t kernel;
    if (kg_jreq_kernel(r, &kernel)) {
        kg_jreq_json_take(r, 200, kg_jupyter_kernel_json(r->jupyter, &kernel), NULL);
    }
}

static void done_none(kg_jreq_t *r, const json_t *answer, const kg_err_t *err)
{
    (void)answer;
    if (err) {
        kg_jreq_fail(r, err);
    } else {
        kg_jreq_none(r);
    }
}

void kg_jreq_leave(kg_jreq_t *r, const kg_kernel_ref_t *kernel)
{
    if (kernel->own) {
        kg_jreq_call(r, "sandboxes.delete",
                     json_pack("{s:s}", "sandbox", kg_sandbox_id(kernel->sandbox)), done_none);
    } else {
        kg_jreq_none(r);
    }
}

/* JupyterLab sends this for every kernel it knows when it ends, those that it has only visited
 * too. */
void kg_do_kernels_delete(kg_jreq_t *r)
{
    kg_kernel_ref_t kernel;
    if (kg_jreq_kernel(r, &kernel)) {
        kg_jreq_leave(r, &kernel);
    }
}

static json_t *context_args(const kg_kernel_ref_t *kernel)
{
    return json_pack("{s:s, s:s}", "sandbox", kg_sandbox_id(kernel->sandbox), "context",
                     kg_context_id(kernel->context));
}

void kg_do_kernels_interrupt(kg_jreq_t *r)
{
    kg_kernel_ref_t kernel;
    if (kg_jreq_kernel(r, &kernel)) {
        kg_jreq_call(r, "contexts.interrupt", context_args(&kernel), done_none);
    }
}

static void restarted(kg_jreq_t *r, const json_t *context, const kg_err_t *err)
{
    kg_err_t own = {0};
    kg_kernel_ref_t kernel;
    (void)context;
    int rc = kg_kernel_find(r->jupyter->core, &r->who, r->param[0], &kernel, &own);
    if (rc == 0) {
        kg_channels_expect_restart(r->jupyter, &kernel, false);
    }
    if (err || rc < 0) {
        kg_jreq_fail(r, err ? err : &own);
    } else {
        kg_jreq_json_take(r, 200, kg_jupyter_kernel_json(r->jupyter, &kernel), NULL);
    }
}

void kg_do_kernels_restart(kg_jreq_t *r)
{
    kg_err_t err = {0};
    kg_kernel_ref_t kernel;
    if (!kg_jreq_kernel(r, &kernel)) {
        return;
    }
    if (!kernel.may_restart) {
        kg_err_set(&err, KG_ERR_FORBIDDEN, "This key may attach to the kernel, not restart it.");
        kg_jreq_fail(r, &err);
    } else {
        kg_channels_expect_restart(r->jupyter, &kernel, true);
        kg_jreq_call(r, "contexts.reset", context_args(&kernel), restarted);
    }
}
