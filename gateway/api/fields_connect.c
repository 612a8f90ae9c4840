/* gateway/api: what connection files take. */
#include "gateway/api/fields_common.h"

static const char *const transports[] = {"ipc", "tcp", NULL};

const kg_field_t kg_fields_contexts_connect[] = {
    PATH_SANDBOX,
    PATH_CONTEXT,
    {.name = "transport",
     .doc =
         "ipc: for the gateway's own user alone. tcp: on loopback, where the operator allows it.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .values = transports,
     .standard = "\"ipc\""},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_connection[] = {
    PATH_SANDBOX,
    PATH_CONTEXT,
    PATH_REF("connection", "Id of the connection."),
    LIST_END,
};
