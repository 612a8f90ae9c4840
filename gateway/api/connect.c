/* gateway/api: connection files. */
#include "gateway/context/connect.h"

#include <string.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"

void kg_do_contexts_connect(kg_call_t *call)
{
    kg_err_t err = {0};
    json_t *json = NULL;
    const char *transport = kg_call_string(call, "transport");
    const kg_connect_opts_t opts = {
        .tcp = transport && strcmp(transport, "tcp") == 0,
        .key_id = call->who.key.id,
        .may_restart = kg_auth_allow(&call->who, KG_RIGHT_USE, NULL, NULL) == 0,
    };
    int rc = kg_context_connect(call->context, &opts, &json, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    char location[64 + 3 * KG_ID_MAX];
    (void)kg_format(location, sizeof location, "/v1/sandboxes/%s/contexts/%s/connections/%s",
                    kg_sandbox_id(call->sandbox), kg_context_id(call->context),
                    json_string_value(json_object_get(json, "id")));
    kg_call_created_take(call, json, location);
}

/* A key that may only attach has to do with what it made itself. NULL: all. */
static const char *whose(const kg_call_t *call)
{
    bool all = kg_auth_allow(&call->who, KG_RIGHT_USE, NULL, NULL) == 0;
    return all ? NULL : call->who.key.id;
}

void kg_do_connections_list(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_connection_list(call->context, whose(call)));
}

void kg_do_connections_delete(kg_call_t *call)
{
    kg_err_t err = {0};
    int rc =
        kg_connection_end(call->context, kg_call_string(call, "connection"), whose(call), &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else {
        kg_call_none(call);
    }
}
