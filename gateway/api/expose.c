/* gateway/api: ports that are reached from outside. */
#include "gateway/context/expose.h"

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"

void kg_do_expose(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_expose_token_t token = !kg_call_json(call, "token")         ? KG_TOKEN_AS_IT_IS
                              : kg_call_bool(call, "token", false) ? KG_TOKEN_NEEDED
                                                                   : KG_TOKEN_NONE;
    json_t *json =
        kg_sandbox_expose(call->sandbox, (uint16_t)kg_call_int(call, "port", 0), token, &err);
    if (json) {
        kg_call_json_take(call, 200, json);
    } else {
        kg_call_fail(call, &err);
    }
}

void kg_do_unexpose(kg_call_t *call)
{
    kg_err_t err = {0};
    int rc = kg_sandbox_unexpose(call->sandbox, (uint16_t)kg_call_int(call, "port", 0), &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else {
        kg_call_done(call, NULL);
    }
}
