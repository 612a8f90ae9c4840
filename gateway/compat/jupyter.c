/* gateway/compat: Jupyter's dialect as a whole: which paths are its own, who asks, how errors look,
 * and the way to a kernel's channels. */
#include "gateway/compat/jupyter_priv.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>

#include "gateway/base/credential.h"
#include "gateway/base/str.h"
#include "gateway/compat/channels.h"
#include "gateway/compat/request.h"
#include "gateway/compat/sessions.h"
#include "gateway/view/router.h"

/* --- Errors --------------------------------------------------------------------------------- */

int kg_jupyter_status(const kg_err_t *err)
{
    switch ((int)err->code) {
    case KG_ERR_UNAUTHORIZED:
    case KG_ERR_QUOTA_EXCEEDED:
        return 403;
    case KG_ERR_KERNEL_START_FAILED: /* 502 and 504 would be a proxy's: asked again */
    case KG_ERR_KERNEL_TIMEOUT:
    case KG_ERR_KERNEL_PROTOCOL:
        return 500;
    default:
        return kg_err_status(err->code);
    }
}

int kg_jupyter_error_body(const kg_err_t *err, kg_buf_t *out)
{
    bool closed = err->code == KG_ERR_UNAUTHORIZED;
    const char *reason = closed ? err->message : err->hint;
    json_t *json = json_pack("{s:s, s:s?}", "message", closed ? "Forbidden" : err->message,
                             "reason", *reason ? reason : NULL);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    int rc = text ? kg_buf_append_cstr(out, text) : -ENOMEM;
    free(text);
    return rc;
}

/* --- Keys ----------------------------------------------------------------------------------- */

int kg_jupyter_authenticate(kg_jupyter_t *jupyter,
                            const kg_http_head_t *head,
                            kg_slice_t protocols,
                            kg_principal_t *ret_who,
                            kg_err_t *err)
{
    char text[KG_KEY_TEXT_MAX];
    kg_slice_t key = kg_credential_of_header(kg_http_head_get(head, "authorization"));
    if (key.len == 0) {
        key = kg_guard_key(kg_slice(NULL, 0), kg_http_head_get(head, "x-api-key"), protocols);
    }
    if (key.len == 0 && kg_credential_of_query(head->query, text, sizeof text)) {
        key = kg_slice_cstr(text);
    }
    int rc = kg_server_check_key(jupyter->server, key, ret_who, err);
    sodium_memzero(text, sizeof text);
    return rc;
}

/* --- Channels ------------------------------------------------------------------------------- */

/* The path, the query and the key of an upgrade may all be behind "?". */
static bool in_query(const kg_http_head_t *head, kg_http_head_t *credential, kg_http_head_t *there)
{
    *credential = *head;
    *there = *head;
    return head->upgrade && kg_slice_eq_cstr(head->path, "/") &&
           kg_credential_before_path(head->query, &credential->query, &there->path, &there->query);
}

static int open_channels(kg_jupyter_t *jupyter,
                         const kg_http_head_t *head,
                         kg_slice_t offered,
                         kg_upgrade_reply_t *reply,
                         kg_err_t *err)
{
    char id[KG_ID_MAX];
    kg_principal_t who;
    kg_kernel_ref_t kernel;
    kg_http_head_t credential;
    kg_http_head_t there;
    (void)in_query(head, &credential, &there);
    int rc = kg_server_guard_socket(jupyter->server, head, err);
    if (rc < 0) {
        return rc;
    }
    if (!kg_path_fits("/api/kernels/{kernel}/channels", there.path) ||
        !kg_path_segment(there.path, 2, id, sizeof id)) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "Not Found");
    }
    rc = kg_jupyter_authenticate(jupyter, &credential, offered, &who, err);
    rc = rc < 0 ? rc : kg_core_ready(jupyter->core, err);
    rc = rc < 0 ? rc : kg_kernel_find(jupyter->core, &who, id, &kernel, err);
    return rc < 0 ? rc : kg_channels_accept(jupyter, &kernel, &there, offered, reply, err);
}

static int
on_upgrade(const kg_http_head_t *head, kg_slice_t offered, kg_upgrade_reply_t *reply, void *user)
{
    kg_jupyter_t *jupyter = user;
    kg_err_t err = {0};
    if (open_channels(jupyter, head, offered, reply, &err) == 0) {
        return 0;
    }
    kg_api_count_error(kg_server_api(jupyter->server), err.code);
    reply->status = kg_jupyter_status(&err);
    (void)kg_jupyter_error_body(&err, &reply->body);
    (void)kg_guard_cors(kg_server_rules(jupyter->server), kg_http_head_get(head, "origin"),
                        reply->allow_origin, sizeof reply->allow_origin);
    return -kg_err_errno(err.code);
}

/* --- The dialect ---------------------------------------------------------------------------- */

static bool claims(const kg_http_head_t *head)
{
    kg_slice_t path = head->path;
    kg_http_head_t credential;
    kg_http_head_t there;
    if (in_query(head, &credential, &there) && kg_path_below(there.path, "/api/kernels")) {
        return true;
    }
    return kg_path_below(path, "/api") || kg_path_below(path, "/kernelspecs") ||
           kg_slice_eq_cstr(path, "/tree") || kg_slice_eq_cstr(path, "/tree/") ||
           kg_path_below(path, "/hub/api");
}

int kg_jupyter_create(kg_server_t *server,
                      const kg_jupyter_config_t *config,
                      kg_jupyter_t **ret_jupyter,
                      kg_err_t *err)
{
    kg_jupyter_t *j = calloc(1, sizeof *j);
    if (!j) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for Jupyter's API.");
    }
    j->server = server;
    j->core = kg_server_core(server);
    j->config = *config;
    j->config.unread_max = config->unread_max ? config->unread_max : KG_JUPYTER_UNREAD_MAX;
    j->config.missed_max = config->missed_max ? config->missed_max : KG_JUPYTER_MISSED_MAX;
    j->started_ns = kg_wall_ns();
    j->dialect = (kg_dialect_t){
        .claims = claims,
        .handler = {.on_request = kg_jreq_on_request,
                    .on_body = kg_jreq_on_body,
                    .on_http_close = kg_jreq_on_close,
                    .on_upgrade = on_upgrade,
                    .on_upgrade_failed = kg_channels_on_upgrade_failed,
                    .on_ws_open = kg_channels_on_open,
                    .on_ws_message = kg_channels_on_message,
                    .on_ws_close = kg_channels_on_close,
                    .user = j},
    };
    int rc = kg_jsessions_load(j, err);
    if (rc < 0) {
        kg_jupyter_destroy(&j);
        return rc;
    }
    kg_server_add_dialect(server, &j->dialect);
    *ret_jupyter = j;
    return 0;
}

void kg_jupyter_stop(kg_jupyter_t *jupyter)
{
    if (jupyter) {
        jupyter->stopping = true;
        while (jupyter->left) {
            kg_jreq_free(jupyter->left);
        }
    }
}

void kg_jupyter_destroy(kg_jupyter_t **jupyter)
{
    kg_jupyter_t *j = KG_TAKE(*jupyter);
    if (j) {
        kg_jsessions_free(j);
        free(j);
    }
}
