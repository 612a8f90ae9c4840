/* gateway/compat: the routes of sessions. */
#include <string.h>
#include <utlist.h>

#include "gateway/base/str.h"
#include "gateway/compat/kernels.h"
#include "gateway/compat/model.h"
#include "gateway/compat/sessions.h"

/* --- As clients see them -------------------------------------------------------------------- */

static json_t *session_json(const kg_jupyter_t *jupyter,
                            const char *id,
                            const kg_jsession_text_t *text,
                            const kg_kernel_ref_t *kernel)
{
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "path", text->path, "name", text->name,
                  "type", text->type, "kernel", kg_jupyter_kernel_json(jupyter, kernel));
    if (out && strcmp(text->type, "notebook") == 0) {
        (void)json_object_set_new(out, "notebook",
                                  json_pack("{s:s, s:s}", "path", text->path, "name", text->name));
    }
    return out;
}

static json_t *
made_json(const kg_jupyter_t *jupyter, const kg_jsession_t *s, const kg_kernel_ref_t *kernel)
{
    kg_jsession_text_t text = {.path = s->path, .name = s->name, .type = s->type};
    return session_json(jupyter, s->id, &text, kernel);
}

/* One that no client has made: as a console, which needs no document. */
static json_t *bare_json(const kg_jupyter_t *jupyter, const kg_kernel_ref_t *kernel)
{
    char label[KG_JUPYTER_LABEL_MAX];
    kg_jupyter_label(kernel->context, label);
    kg_jsession_text_t text = {.path = label, .name = label, .type = "console"};
    return session_json(jupyter, kg_context_id(kernel->context), &text, kernel);
}

typedef struct listing {
    const kg_jupyter_t *jupyter;
    json_t *items;
} listing_t;

static bool add_sessions(void *user, const kg_kernel_ref_t *kernel)
{
    listing_t *l = user;
    const char *context = kg_context_id(kernel->context);
    const kg_jsession_t *s;
    if (!kg_jsession_has(l->jupyter, context)) {
        (void)json_array_append_new(l->items, bare_json(l->jupyter, kernel));
        return true;
    }
    DL_FOREACH (l->jupyter->sessions, s) {
        if (strcmp(s->context, context) == 0) {
            (void)json_array_append_new(l->items, made_json(l->jupyter, s, kernel));
        }
    }
    return true;
}

void kg_do_sessions_list(kg_jreq_t *r)
{
    if (!kg_jreq_ready(r)) {
        return;
    }
    listing_t l = {.jupyter = r->jupyter, .items = json_array()};
    kg_kernel_each(r->jupyter->core, &r->who, add_sessions, &l);
    kg_jreq_json_take(r, 200, l.items, NULL);
}

/* --- One ------------------------------------------------------------------------------------ */

typedef struct session_ref {
    kg_jsession_t *made; /* NULL: a context that is shown as a session */
    kg_kernel_ref_t kernel;
} session_ref_t;

/* Else the exchange has been answered: 404, and with `gone` 410 where the kernel has gone. */
static bool find_session(kg_jreq_t *r, bool gone, session_ref_t *ret)
{
    kg_err_t err = {0};
    kg_core_t *core = r->jupyter->core;
    if (!kg_jreq_ready(r)) {
        return false;
    }
    ret->made = kg_jsession_find(r->jupyter, r->who.key.owner, r->param[0]);
    const char *context = ret->made ? ret->made->context : r->param[0];
    int rc = kg_kernel_find(core, &r->who, context, &ret->kernel, &err);
    if (rc == 0) {
        return true;
    }
    if (ret->made && err.code != KG_ERR_FORBIDDEN) {
        kg_jsession_remove(r->jupyter, ret->made);
        kg_err_set(&err, gone ? KG_ERR_RUN_EXPIRED : KG_ERR_NOT_FOUND,
                   "Kernel deleted before session");
    } else if (err.code != KG_ERR_FORBIDDEN) {
        kg_err_set(&err, KG_ERR_NOT_FOUND, "Session not found: session_id='%.64s'", r->param[0]);
    }
    kg_jreq_fail(r, &err);
    return false;
}

static void answer(kg_jreq_t *r, int status, const kg_jsession_t *s, const kg_kernel_ref_t *kernel)
{
    char location[32 + KG_ID_MAX];
    (void)kg_format(location, sizeof location, "/api/sessions/%s", s->id);
    kg_jreq_json_take(r, status, made_json(r->jupyter, s, kernel), status == 201 ? location : NULL);
}

void kg_do_sessions_get(kg_jreq_t *r)
{
    session_ref_t s;
    if (!find_session(r, false, &s)) {
        return;
    }
    kg_jreq_json_take(
        r, 200,
        s.made ? made_json(r->jupyter, s.made, &s.kernel) : bare_json(r->jupyter, &s.kernel), NULL);
}

/* --- Making --------------------------------------------------------------------------------- */

static int read_text(const kg_jreq_t *r, kg_jsession_text_t *ret, kg_err_t *err)
{
    int rc = kg_jreq_string(r->body, "path", &ret->path, err);
    rc = rc < 0 ? rc : kg_jreq_string(r->body, "name", &ret->name, err);
    rc = rc < 0 ? rc : kg_jreq_string(r->body, "type", &ret->type, err);
    return rc < 0 ? rc : kg_jsession_text_check(ret, err);
}

/* As Jupyter does, a kernel that cannot be started is 501 with a short message beside the long
 * one. */
static void fail_start(kg_jreq_t *r, const kg_err_t *err)
{
    if (err->code != KG_ERR_TEMPLATE_NOT_FOUND && err->code != KG_ERR_LANGUAGE_NOT_FOUND) {
        kg_jreq_fail(r, err);
        return;
    }
    const char *name =
        json_string_value(json_object_get(json_object_get(r->body, "kernel"), "name"));
    kg_jreq_json_take(r, 501,
                      json_pack("{s:s, s:n, s:o}", "message", err->message, "reason",
                                "short_message", json_sprintf("%s not found", name ? name : "")),
                      NULL);
}

static void make(kg_jreq_t *r, const kg_kernel_ref_t *kernel)
{
    kg_err_t err = {0};
    kg_jsession_text_t text;
    kg_jsession_t *s = NULL;
    (void)read_text(r, &text, &err);
    if (kg_jsession_add(r->jupyter, kernel, NULL, &text, &s, &err) < 0) {
        kg_jreq_drop_kernel(r, kernel);
        kg_jreq_fail(r, &err);
    } else {
        answer(r, 201, s, kernel);
    }
}

/* Another request for the same path may have been quicker: its session is the one, and the kernel
 * that was started for this one goes. */
static void made_kernel(kg_jreq_t *r, const kg_kernel_ref_t *kernel, const kg_err_t *err)
{
    if (!kernel) {
        fail_start(r, err);
        return;
    }
    kg_kernel_ref_t other;
    const char *path = json_string_value(json_object_get(r->body, "path"));
    kg_jsession_t *s = kg_jsession_at(r->jupyter, r->who.key.owner, path);
    if (!s || kg_kernel_find(r->jupyter->core, &r->who, s->context, &other, NULL) < 0) {
        make(r, kernel);
        return;
    }
    if (other.sandbox != kernel->sandbox) {
        kg_jreq_drop_kernel(r, kernel);
    }
    answer(r, 201, s, &other);
}

/* kernel:{id} or kernel:{name}; *ret_id NULL = one is to be started. */
static int
read_kernel(const kg_jreq_t *r, const char **ret_id, const char **ret_spec, kg_err_t *err)
{
    const json_t *kernel = json_object_get(r->body, "kernel");
    if (kernel && !json_is_object(kernel) && !json_is_null(kernel)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "kernel must be an object.");
    }
    int rc = kg_jreq_string(kernel, "id", ret_id, err);
    return rc < 0 ? rc : kg_jreq_string(kernel, "name", ret_spec, err);
}

static int missing(const char *field, kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_INVALID_REQUEST, "Missing field in JSON data: %s", field);
}

void kg_do_sessions_create(kg_jreq_t *r)
{
    kg_err_t err = {0};
    kg_jsession_text_t text = {0};
    kg_kernel_ref_t kernel;
    const char *id = NULL;
    const char *spec = NULL;
    if (!kg_jreq_ready(r)) {
        return;
    }
    int rc = r->body ? read_text(r, &text, &err)
                     : kg_err_set(&err, KG_ERR_INVALID_REQUEST, "No JSON data provided");
    rc = rc < 0 || text.path ? rc : missing("path", &err);
    rc = rc < 0 || text.type ? rc : missing("type", &err);
    rc = rc < 0 ? rc : read_kernel(r, &id, &spec, &err);
    if (rc < 0) {
        kg_jreq_fail(r, &err);
        return;
    }
    kg_jsession_t *s = kg_jsession_at(r->jupyter, r->who.key.owner, text.path);
    if (s && kg_kernel_find(r->jupyter->core, &r->who, s->context, &kernel, NULL) == 0) {
        answer(r, 201, s, &kernel);
        return;
    }
    rc = kg_jsession_room(r->jupyter, r->who.key.owner, &err);
    rc = rc < 0 || !id ? rc : kg_kernel_find(r->jupyter->core, &r->who, id, &kernel, &err);
    if (rc < 0) {
        kg_jreq_fail(r, &err);
    } else if (id) {
        make(r, &kernel);
    } else {
        kg_jreq_start_kernel(r, &(kg_kernel_wish_t){.spec = spec}, made_kernel);
    }
}

/* --- Changing ------------------------------------------------------------------------------- */

static void end_kernel(kg_kernel_ref_t *kernel)
{
    if (kernel->own) {
        (void)kg_sandbox_delete(kernel->sandbox, NULL, NULL, NULL);
    }
}

static void change(kg_jreq_t *r, session_ref_t *s, const kg_kernel_ref_t *kernel)
{
    kg_err_t err = {0};
    char label[KG_JUPYTER_LABEL_MAX];
    kg_jsession_text_t text = {0};
    int rc = read_text(r, &text, &err);
    bool other = kernel->context != s->kernel.context;
    if (rc == 0 && s->made) {
        rc = kg_jsession_change(r->jupyter, s->made, kernel, &text, &err);
    } else if (rc == 0) {
        kg_jupyter_label(s->kernel.context, label);
        text.name = text.name ? text.name : text.path ? NULL : label;
        text.path = text.path ? text.path : label;
        text.type = text.type ? text.type : "console";
        rc = kg_jsession_add(r->jupyter, kernel, kg_context_id(s->kernel.context), &text, &s->made,
                             &err);
    }
    if (rc != 0 || !s->made) {
        kg_jreq_drop_kernel(r, kernel);
        kg_jreq_fail(r, &err);
        return;
    }
    if (other) {
        end_kernel(&s->kernel);
    }
    answer(r, 200, s->made, kernel);
}

static void changed_kernel(kg_jreq_t *r, const kg_kernel_ref_t *kernel, const kg_err_t *err)
{
    session_ref_t s;
    if (!kernel) {
        fail_start(r, err);
    } else if (find_session(r, false, &s)) {
        change(r, &s, kernel);
    } else {
        kg_jreq_drop_kernel(r, kernel);
    }
}

void kg_do_sessions_update(kg_jreq_t *r)
{
    kg_err_t err = {0};
    session_ref_t s;
    kg_kernel_ref_t kernel;
    kg_jsession_text_t text;
    const char *id = NULL;
    const char *spec = NULL;
    if (!find_session(r, false, &s)) {
        return;
    }
    int rc = r->body ? read_text(r, &text, &err)
                     : kg_err_set(&err, KG_ERR_INVALID_REQUEST, "No JSON data provided");
    rc = rc < 0 ? rc : read_kernel(r, &id, &spec, &err);
    rc = rc < 0 || s.made ? rc : kg_jsession_room(r->jupyter, r->who.key.owner, &err);
    if (rc < 0) {
        kg_jreq_fail(r, &err);
    } else if (id) {
        if (kg_kernel_find(r->jupyter->core, &r->who, id, &kernel, &err) < 0) {
            kg_err_set(&err, KG_ERR_INVALID_REQUEST, "No such kernel: %.64s", id);
            kg_jreq_fail(r, &err);
        } else {
            change(r, &s, &kernel);
        }
    } else if (spec) {
        kg_jreq_start_kernel(r, &(kg_kernel_wish_t){.spec = spec}, changed_kernel);
    } else {
        kernel = s.kernel;
        change(r, &s, &kernel);
    }
}

void kg_do_sessions_delete(kg_jreq_t *r)
{
    session_ref_t s;
    if (!find_session(r, true, &s)) {
        return;
    }
    if (s.made) {
        kg_jsession_remove(r->jupyter, s.made);
    }
    kg_jreq_leave(r, &s.kernel);
}
