/* gateway/compat: the sessions that clients have made. Memory holds all of them, the store what the
 * next gateway needs; a sandbox takes its rows along when it ends. */
#include "gateway/compat/sessions.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"

static int no_memory(kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this session.");
}

static void session_free(kg_jsession_t *s)
{
    if (s) {
        free(s->path);
        free(s->name);
        free(s->type);
        free(s);
    }
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static kg_jsession_t *
session_new(const char *id, const char *context, const char *owner, const kg_jsession_text_t *text)
{
    kg_jsession_t *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    (void)kg_format(s->id, sizeof s->id, "%s", id);
    (void)kg_format(s->context, sizeof s->context, "%s", context);
    (void)kg_format(s->owner, sizeof s->owner, "%s", owner);
    s->path = strdup(text->path);
    s->name = strdup(text->name ? text->name : last_part(text->path));
    s->type = strdup(text->type);
    if (!s->path || !s->name || !s->type) {
        session_free(s);
        return NULL;
    }
    return s;
}

static void append(kg_jupyter_t *jupyter, kg_jsession_t *s)
{
    DL_APPEND(jupyter->sessions, s);
}

static void drop(kg_jupyter_t *jupyter, kg_jsession_t *s)
{
    DL_DELETE(jupyter->sessions, s);
    session_free(s);
}

/* --- The store ------------------------------------------------------------------------------ */

static int save(kg_jupyter_t *jupyter, const kg_jsession_t *s, const char *sandbox, kg_err_t *err)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s}", "context", s->context, "path", s->path, "name",
                             s->name, "type", s->type);
    KG_AUTO_FREE char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!body) {
        return no_memory(err);
    }
    kg_store_t *store = kg_core_store(jupyter->core);
    (void)kg_store_memo_delete(store, s->id, NULL); /* its row may be another sandbox's */
    kg_store_row_t row = {.id = s->id, .parent = sandbox, .body = body};
    return kg_store_memo_put(store, &row, err);
}

typedef struct load {
    kg_jupyter_t *jupyter;
    kg_sandbox_t *sandbox;
} load_t;

static int load_row(void *user, const kg_store_row_t *row)
{
    load_t *l = user;
    if (!kg_uuid_valid(row->id)) {
        return 0; /* of another room */
    }
    json_t *json = json_loads(row->body, JSON_REJECT_DUPLICATES, NULL);
    kg_jsession_text_t text = {.path = json_string_value(json_object_get(json, "path")),
                               .name = json_string_value(json_object_get(json, "name")),
                               .type = json_string_value(json_object_get(json, "type"))};
    const char *context = json_string_value(json_object_get(json, "context"));
    kg_jsession_t *s = text.path && text.type && context
                           ? session_new(row->id, context, kg_sandbox_owner(l->sandbox), &text)
                           : NULL;
    if (s) {
        append(l->jupyter, s);
    } else {
        kg_log(KG_LOG_WARN, "jupyter.session", "unreadable=%s", row->id);
    }
    json_decref(json);
    return 0;
}

static bool load_sandbox(void *user, kg_sandbox_t *sandbox)
{
    load_t l = {.jupyter = user, .sandbox = sandbox};
    (void)kg_store_memo_each(kg_core_store(l.jupyter->core), kg_sandbox_id(sandbox), load_row, &l,
                             NULL);
    return true;
}

int kg_jsessions_load(kg_jupyter_t *jupyter, kg_err_t *err)
{
    (void)err;
    kg_sandbox_each(jupyter->core, NULL, load_sandbox, jupyter);
    return 0;
}

void kg_jsessions_free(kg_jupyter_t *jupyter)
{
    while (jupyter->sessions) {
        drop(jupyter, jupyter->sessions);
    }
}

/* --- Finding -------------------------------------------------------------------------------- */

void kg_jsessions_purge(kg_jupyter_t *jupyter)
{
    kg_jsession_t *s, *next;
    DL_FOREACH_SAFE (jupyter->sessions, s, next) {
        if (!kg_context_find_any(jupyter->core, s->owner, s->context, NULL)) {
            (void)kg_store_memo_delete(kg_core_store(jupyter->core), s->id, NULL);
            drop(jupyter, s);
        }
    }
}

kg_jsession_t *kg_jsession_find(const kg_jupyter_t *jupyter, const char *owner, const char *id)
{
    kg_jsession_t *s;
    DL_FOREACH (jupyter->sessions, s) {
        if (strcmp(s->id, id) == 0 && strcmp(s->owner, owner) == 0) {
            return s;
        }
    }
    return NULL;
}

kg_jsession_t *kg_jsession_at(const kg_jupyter_t *jupyter, const char *owner, const char *path)
{
    kg_jsession_t *s;
    DL_FOREACH (jupyter->sessions, s) {
        if (strcmp(s->path, path) == 0 && strcmp(s->owner, owner) == 0 &&
            kg_context_find_any(jupyter->core, owner, s->context, NULL)) {
            return s;
        }
    }
    return NULL;
}

bool kg_jsession_has(const kg_jupyter_t *jupyter, const char *context)
{
    const kg_jsession_t *s;
    DL_FOREACH (jupyter->sessions, s) {
        if (strcmp(s->context, context) == 0) {
            return true;
        }
    }
    return false;
}

/* --- Changes -------------------------------------------------------------------------------- */

static int check_length(const char *what, const char *text, size_t max, kg_err_t *err)
{
    return !text || strlen(text) <= max
               ? 0
               : kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s is longer than %zu bytes.", what, max);
}

int kg_jsession_text_check(const kg_jsession_text_t *text, kg_err_t *err)
{
    int rc = check_length("path", text->path, KG_JSESSION_PATH_MAX, err);
    rc = rc < 0 ? rc : check_length("name", text->name, KG_JSESSION_NAME_MAX, err);
    return rc < 0 ? rc : check_length("type", text->type, KG_JSESSION_TYPE_MAX, err);
}

static unsigned count_of(const kg_jupyter_t *jupyter, const char *owner)
{
    unsigned count = 0;
    const kg_jsession_t *s;
    DL_FOREACH (jupyter->sessions, s) {
        count += strcmp(s->owner, owner) == 0;
    }
    return count;
}

int kg_jsession_room(kg_jupyter_t *jupyter, const char *owner, kg_err_t *err)
{
    if (count_of(jupyter, owner) >= jupyter->config.sessions_max) {
        kg_jsessions_purge(jupyter);
    }
    unsigned count = count_of(jupyter, owner);
    return count < jupyter->config.sessions_max
               ? 0
               : kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                            "There are %u sessions, the most there may be.", count);
}

int kg_jsession_add(kg_jupyter_t *jupyter,
                    const kg_kernel_ref_t *kernel,
                    const char *id,
                    const kg_jsession_text_t *text,
                    kg_jsession_t **ret_session,
                    kg_err_t *err)
{
    char fresh[KG_ID_MAX];
    int rc = kg_jsession_room(jupyter, kg_sandbox_owner(kernel->sandbox), err);
    if (rc < 0) {
        return rc;
    }
    if (!id) {
        kg_uuid_generate(kg_core_node(jupyter->core), fresh);
    }
    kg_jsession_t *s = session_new(id ? id : fresh, kg_context_id(kernel->context),
                                   kg_sandbox_owner(kernel->sandbox), text);
    if (!s) {
        return no_memory(err);
    }
    rc = save(jupyter, s, kg_sandbox_id(kernel->sandbox), err);
    if (rc < 0) {
        session_free(s);
        return rc;
    }
    append(jupyter, s);
    *ret_session = s;
    return 0;
}

static void swap(char **a, char **b)
{
    char *kept = *a;
    *a = *b;
    *b = kept;
}

int kg_jsession_change(kg_jupyter_t *jupyter,
                       kg_jsession_t *session,
                       const kg_kernel_ref_t *kernel,
                       const kg_jsession_text_t *text,
                       kg_err_t *err)
{
    const kg_jsession_text_t whole = {.path = text->path ? text->path : session->path,
                                      .name = text->name ? text->name : session->name,
                                      .type = text->type ? text->type : session->type};
    kg_jsession_t *next =
        session_new(session->id, kg_context_id(kernel->context), session->owner, &whole);
    int rc = next ? save(jupyter, next, kg_sandbox_id(kernel->sandbox), err) : no_memory(err);
    if (next && rc == 0) {
        swap(&session->path, &next->path);
        swap(&session->name, &next->name);
        swap(&session->type, &next->type);
        (void)kg_format(session->context, sizeof session->context, "%s", next->context);
    }
    session_free(next);
    return rc;
}

void kg_jsession_remove(kg_jupyter_t *jupyter, kg_jsession_t *session)
{
    (void)kg_store_memo_delete(kg_core_store(jupyter->core), session->id, NULL);
    drop(jupyter, session);
}
