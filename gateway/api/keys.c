/* gateway/api: API keys, for admins. A key in plain leaves in one answer and is kept nowhere. */
#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway/api/api.h"
#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/base/clock.h"
#include "gateway/context/connect.h"

static json_t *time_json(uint64_t wall_ns)
{
    char text[KG_TIME_LEN];
    if (wall_ns == 0) {
        return json_null();
    }
    kg_time_format(wall_ns, text);
    return json_string(text);
}

static json_t *scopes_json(const char *scopes)
{
    json_t *list = json_array();
    for (const char *p = scopes; list && *p;) {
        size_t len = strcspn(p, " ");
        json_array_append_new(list, json_stringn(p, len));
        p += len + (p[len] == ' ');
    }
    return list;
}

json_t *kg_key_json(const kg_key_t *key)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", key->id, "owner", key->owner,
                     "name", key->name, "scopes", scopes_json(key->scopes), "created_at",
                     time_json(key->created_ns), "last_used_at", time_json(key->last_used_ns),
                     "expires_at", time_json(key->expires_ns));
}

static int add_item(void *user, const kg_key_t *key)
{
    return json_array_append_new(user, kg_key_json(key));
}

void kg_do_keys_list(kg_call_t *call)
{
    kg_err_t err = {0};
    json_t *items = json_array();
    int rc = items ? kg_store_key_each(kg_core_store(call->core), add_item, items, &err) : -ENOMEM;
    if (rc != 0) {
        json_decref(items);
        kg_call_fail_rc(call, -ENOMEM, &err);
        return;
    }
    kg_call_json_take(call, 200, json_pack("{s:o, s:n}", "items", items, "next"));
}

/* "use attach:sbx-…" of a list; "use" when there is none. */
static int join_scopes(const json_t *list, char ret[KG_KEY_SCOPES_MAX + 1], kg_err_t *err)
{
    size_t len = 0;
    size_t i;
    json_t *item;
    snprintf(ret, KG_KEY_SCOPES_MAX + 1, "%s", list ? "" : "use");
    json_array_foreach (list, i, item) {
        const char *scope = json_string_value(item);
        int rc = 0;
        if (!kg_scope_valid(scope)) {
            rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                            "Scopes are admin, use and attach:SANDBOX_ID.");
        } else if (len + strlen(scope) + 1 > KG_KEY_SCOPES_MAX) {
            rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "These are too many scopes.");
        }
        if (rc < 0) {
            kg_err_pointer(err, "/scopes/%zu", i);
            return rc;
        }
        len +=
            (size_t)snprintf(ret + len, KG_KEY_SCOPES_MAX + 1 - len, "%s%s", len ? " " : "", scope);
    }
    if (*ret == '\0') {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "A key has at least one scope.");
        kg_err_pointer(err, "/scopes");
        return rc;
    }
    return 0;
}

/* Whose the new key is. A key that can only attach to a sandbox is of no use to another owner than
 * the sandbox's. */
static const char *owner_of(kg_call_t *call, const char *scopes)
{
    const char *owner = kg_call_string(call, "owner");
    kg_key_t probe = {0};
    (void)snprintf(probe.scopes, sizeof probe.scopes, "%s", scopes);
    return !owner && !kg_key_has_scope(&probe, "use") ? call->who.key.owner : owner;
}

void kg_do_keys_create(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_key_t key = {0};
    char plain[KG_KEY_TEXT_MAX] = "";
    char scopes[KG_KEY_SCOPES_MAX + 1];
    double expires_in = kg_call_number(call, "expires_in", 0);
    uint64_t expires = expires_in > 0 ? kg_wall_ns() + (uint64_t)(expires_in * 1e9) : 0;
    int rc = join_scopes(kg_call_json(call, "scopes"), scopes, &err);
    if (rc == 0) {
        rc = kg_store_key_add(kg_core_store(call->core), owner_of(call, scopes),
                              kg_call_string(call, "name"), scopes, expires, plain, &key, &err);
    }
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    json_t *json = kg_key_json(&key);
    if (json && json_object_set_new(json, "key", json_string(plain)) < 0) {
        json_decref(json);
        json = NULL;
    }
    sodium_memzero(plain, sizeof plain);
    char location[16 + KG_ID_MAX];
    snprintf(location, sizeof location, "/v1/keys/%s", key.id);
    kg_call_created_take(call, json, location);
}

void kg_do_keys_delete(kg_call_t *call)
{
    kg_err_t err = {0};
    int rc = kg_store_key_remove(kg_core_store(call->core), kg_call_string(call, "id"), &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    kg_auth_forget(kg_api_auth(call->api));
    kg_connections_end_of_key(call->core, kg_call_string(call, "id"));
    kg_call_none(call);
}
