/* gateway/api: the whole of a sandbox: paused and woken, what it uses and used, whom its network
 * refused. */
#include <errno.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/context/metrics.h"

static void told(void *user, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (sandbox) {
        kg_call_json_take(call, 200, kg_sandbox_json(sandbox));
    } else {
        kg_call_fail(call, err);
    }
}

static void fail_if(kg_call_t *call, int rc, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    }
}

void kg_do_sandboxes_pause(kg_call_t *call)
{
    kg_err_t err = {0};
    fail_if(call, kg_sandbox_pause(call->sandbox, told, call, &err), &err);
}

void kg_do_sandboxes_resume(kg_call_t *call)
{
    kg_err_t err = {0};
    fail_if(call, kg_sandbox_resume(call->sandbox, told, call, &err), &err);
}

static void answered(void *user, json_t *json_take, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (json_take) {
        kg_call_json_take(call, 200, json_take);
    } else {
        kg_call_fail(call, err);
    }
}

void kg_do_sandboxes_metrics(kg_call_t *call)
{
    kg_err_t err = {0};
    fail_if(call, kg_sandbox_metrics(call->sandbox, answered, call, &err), &err);
}

void kg_do_sandboxes_network_log(kg_call_t *call)
{
    kg_err_t err = {0};
    uint64_t cursor = (uint64_t)kg_call_int(call, "cursor", 0);
    fail_if(call, kg_sandbox_network_log(call->sandbox, cursor, answered, call, &err), &err);
}

void kg_do_sandboxes_usage(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_sandbox_usage_json(call->sandbox));
}

void kg_do_usage(kg_call_t *call)
{
    kg_err_t err = {0};
    json_t *json =
        kg_core_usage_json(call->core, call->who.key.owner, (unsigned)kg_call_int(call, "limit", 0),
                           kg_call_string(call, "after"), &err);
    if (json) {
        kg_call_json_take(call, 200, json);
    } else {
        kg_call_fail_rc(call, -ENOMEM, &err);
    }
}
