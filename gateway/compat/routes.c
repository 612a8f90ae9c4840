/* gateway/compat: what is at which path, and the pages that are about no kernel. */
#include <stdio.h>
#include <string.h>

#include "gateway/api/validate.h"
#include "gateway/base/credential.h"
#include "gateway/compat/kernels.h"
#include "gateway/compat/model.h"
#include "gateway/compat/sessions.h"
#include "gateway/context/attach.h"
#include "gateway/view/router.h"

enum {
    PERMISSIONS_MAX = 4096
};

/* The version whose API this is: clients choose by it what to ask for. */
#define SERVER_VERSION "2.14.0"

static void version(kg_jreq_t *r)
{
    kg_jreq_json_take(r, 200, json_pack("{s:s}", "version", SERVER_VERSION), NULL);
}

/* VS Code asks for it without a key: 200 says that a server is there. */
static void tree(kg_jreq_t *r)
{
    kg_jreq_text(r, 200, "text/html; charset=utf-8",
                 kg_slice_cstr("<!doctype html><title>Sandal</title><p>Sandal serves Jupyter "
                               "kernels here; it has no pages for notebooks.</p>\n"));
}

/* --- Status --------------------------------------------------------------------------------- */

typedef struct tally {
    uint64_t active_ns;
    int kernels;
    int connections;
} tally_t;

static bool count_kernel(void *user, const kg_kernel_ref_t *kernel)
{
    tally_t *t = user;
    kg_context_look_t look;
    kg_context_look(kernel->context, &look);
    t->active_ns = look.active_ns > t->active_ns ? look.active_ns : t->active_ns;
    t->kernels++;
    t->connections += (int)kg_context_attached(kernel->context);
    return true;
}

static void status(kg_jreq_t *r)
{
    if (!kg_jreq_ready(r)) {
        return;
    }
    char since[KG_JUPYTER_TIME_MAX];
    char active[KG_JUPYTER_TIME_MAX];
    tally_t t = {.active_ns = r->jupyter->started_ns};
    kg_kernel_each(r->jupyter->core, &r->who, count_kernel, &t);
    kg_jupyter_time(r->jupyter->started_ns, since);
    kg_jupyter_time(t.active_ns, active);
    kg_jreq_json_take(r, 200,
                      json_pack("{s:s, s:s, s:i, s:i}", "started", since, "last_activity", active,
                                "kernels", t.kernels, "connections", t.connections),
                      NULL);
}

/* --- Me ------------------------------------------------------------------------------------- */

/* Of what is asked about, what this key may: all, or to see and use what it is attached to. */
static json_t *granted(json_t *asked, bool all)
{
    json_t *out = json_object();
    const char *resource;
    json_t *actions;
    json_object_foreach (asked, resource, actions) {
        json_t *list = json_array();
        size_t i;
        json_t *action;
        json_array_foreach (actions, i, action) {
            const char *text = json_string_value(action);
            if (text && (all || strcmp(text, "read") == 0 || strcmp(text, "execute") == 0)) {
                (void)json_array_append(list, action);
            }
        }
        (void)json_object_set_new(out, resource, list);
    }
    return out;
}

static int read_permissions(const kg_jreq_t *r, json_t **ret, kg_err_t *err)
{
    static const char name[] = "permissions=";
    char text[PERMISSIONS_MAX];
    const char *at = r->query;
    while (*at && strncmp(at, name, sizeof name - 1) != 0) {
        at += strcspn(at, "&");
        at += *at == '&';
    }
    if (!*at) {
        return 0;
    }
    at += sizeof name - 1;
    if (!kg_percent_decode(kg_slice(at, strcspn(at, "&")), true, text, sizeof text)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "permissions is malformed or too long.");
    }
    return kg_json_object_parse(kg_slice_cstr(text), sizeof text, ret, err);
}

static void me(kg_jreq_t *r)
{
    kg_err_t err = {0};
    json_t *asked = NULL;
    if (read_permissions(r, &asked, &err) < 0) {
        kg_jreq_fail(r, &err);
        return;
    }
    const char *owner = r->who.key.owner;
    const char *name = r->who.key.name[0] ? r->who.key.name : owner;
    char initials[5];
    size_t len = 1; /* one character, however many bytes it has */
    while (len < 4 && ((unsigned char)name[len] & 0xC0) == 0x80) {
        len++;
    }
    snprintf(initials, sizeof initials, "%.*s", (int)len, name);
    json_t *identity = json_pack("{s:s, s:s, s:s, s:s, s:n, s:n}", "username", owner, "name", name,
                                 "display_name", name, "initials", initials, "avatar_url", "color");
    kg_jreq_json_take(r, 200,
                      json_pack("{s:o, s:o}", "identity", identity, "permissions",
                                granted(asked, kg_jupyter_may_start(&r->who))),
                      NULL);
    json_decref(asked);
}

/* --- Kernelspecs ---------------------------------------------------------------------------- */

static void specs(kg_jreq_t *r)
{
    if (kg_jreq_ready(r)) {
        kg_jreq_json_take(r, 200, kg_jupyter_specs_json(r->jupyter->core, &r->who), NULL);
    }
}

static void spec(kg_jreq_t *r)
{
    kg_err_t err = {0};
    if (!kg_jreq_ready(r)) {
        return;
    }
    json_t *json = kg_jupyter_spec_json(r->jupyter->core, &r->who, r->param[0], &err);
    if (json) {
        kg_jreq_json_take(r, 200, json, NULL);
    } else {
        kg_jreq_fail(r, &err);
    }
}

static void logo(kg_jreq_t *r)
{
    const char *type = NULL;
    KG_AUTO_BUF kg_buf_t text = {0};
    if (kg_jupyter_logo(r->jupyter->core, r->param[0], r->param[1], &type, &text) == 0) {
        kg_jreq_text(r, 200, type, kg_buf_slice(&text));
        return;
    }
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_NOT_FOUND, "Kernelspec resource not found");
    kg_jreq_fail(r, &err);
}

/* --- The table ------------------------------------------------------------------------------ */

#define KERNEL "/api/kernels/{kernel}"
#define SESSION "/api/sessions/{session}"

static const kg_jroute_t routes[] = {
    {"GET", "/api", .open = true, .handler = version},
    {"GET", "/tree", .open = true, .handler = tree},
    {"GET", "/api/status", .handler = status},
    {"GET", "/api/me", .asks = true, .handler = me},
    {"GET", "/api/kernelspecs", .handler = specs},
    {"GET", "/api/kernelspecs/{spec}", .handler = spec},
    {"GET", "/kernelspecs/{spec}/{file}", .handler = logo},
    {"GET", "/api/kernels", .handler = kg_do_kernels_list},
    {"POST", "/api/kernels", .takes = true, .handler = kg_do_kernels_start},
    {"GET", KERNEL, .handler = kg_do_kernels_get},
    {"DELETE", KERNEL, .handler = kg_do_kernels_delete},
    {"POST", KERNEL "/interrupt", .handler = kg_do_kernels_interrupt},
    {"POST", KERNEL "/restart", .handler = kg_do_kernels_restart},
    {"GET", "/api/sessions", .handler = kg_do_sessions_list},
    {"POST", "/api/sessions", .takes = true, .handler = kg_do_sessions_create},
    {"GET", SESSION, .handler = kg_do_sessions_get},
    {"PATCH", SESSION, .takes = true, .handler = kg_do_sessions_update},
    {"DELETE", SESSION, .handler = kg_do_sessions_delete},
};

const kg_jroute_t *kg_jroutes(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(routes);
    return routes;
}
