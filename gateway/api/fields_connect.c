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
    {.name = "connection",
     .doc = "Id of the connection.",
     .in = KG_IN_PATH,
     .type = KG_FIELD_STRING,
     .required = true,
     .min = 1,
     .max = KG_API_REF_MAX},
    LIST_END,
};
