/* gateway/api: sandboxes. */
#include <errno.h>
#include <math.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"

static int64_t whole_seconds(const kg_call_t *call, const char *name)
{
    return (int64_t)ceil(kg_call_number(call, name, -1));
}

static void created(void *user, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (!sandbox) {
        kg_call_fail(call, err);
        return;
    }
    char location[64 + KG_ID_MAX];
    (void)kg_format(location, sizeof location, "/v1/sandboxes/%s", kg_sandbox_id(sandbox));
    kg_call_created_take(call, kg_sandbox_json(sandbox), location);
}

void kg_do_sandboxes_create(kg_call_t *call)
{
    kg_err_t err = {0};
    if (kg_call_json(call, "snapshot")) {
        kg_err_set(&err, KG_ERR_NOT_SUPPORTED,
                   "Snapshots need checkpointing, which this build does not have.");
        kg_err_pointer(&err, "/snapshot");
        kg_call_fail(call, &err);
        return;
    }
    kg_sandbox_opts_api_t opts = {
        .template_name = kg_call_string(call, "template"),
        .name = kg_call_string(call, "name"),
        .metadata = kg_call_json(call, "metadata"),
        .env = kg_call_json(call, "env"),
        .timeout_s = whole_seconds(call, "timeout"),
        .on_timeout = kg_call_string(call, "on_timeout"),
        .limits = kg_call_json(call, "limits"),
        .network = kg_call_json(call, "network"),
        .isolation = kg_call_string(call, "isolation"),
        .checkpointable =
            kg_call_json(call, "checkpointable") ? kg_call_bool(call, "checkpointable", true) : -1,
    };
    int rc = kg_sandbox_new(call->core, call->who.key.owner, &opts, created, call, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    }
}

void kg_do_sandboxes_list(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_sandbox_filter_t filter = {
        .state = kg_call_string(call, "state"),
        .metadata = kg_call_json(call, "metadata"),
        .limit = (unsigned)kg_call_int(call, "limit", 0),
        .after = kg_call_string(call, "after"),
    };
    json_t *list = kg_sandbox_list(call->core, call->who.key.owner, &filter, &err);
    if (list) {
        kg_call_json_take(call, 200, list);
    } else {
        kg_call_fail_rc(call, -ENOMEM, &err);
    }
}

void kg_do_sandboxes_get(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_sandbox_json(call->sandbox));
}

static void changed(void *user, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (sandbox) {
        kg_call_json_take(call, 200, kg_sandbox_json(sandbox));
    } else {
        kg_call_fail(call, err);
    }
}

/* The network last: it alone can still fail when all is checked. */
void kg_do_sandboxes_update(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_sandbox_patch_t patch = {
        .name = kg_call_string(call, "name"),
        .metadata = kg_call_json(call, "metadata"),
        .timeout_s = whole_seconds(call, "timeout"),
        .on_timeout = kg_call_string(call, "on_timeout"),
        .network = kg_call_json(call, "network"),
    };
    int rc = kg_sandbox_update(call->sandbox, &patch, &err);
    if (!rc && patch.network) {
        rc = kg_sandbox_set_network(call->sandbox, patch.network, changed, call, &err);
        if (!rc) {
            return;
        }
    }
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else {
        kg_call_json_take(call, 200, kg_sandbox_json(call->sandbox));
    }
}

void kg_do_sandboxes_delete(kg_call_t *call)
{
    kg_err_t err = {0};
    int rc = kg_sandbox_delete(call->sandbox, kg_call_done, call, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    }
}
