/* gateway/api: what exposing a port takes. */
#include "gateway/api/fields_common.h"

const kg_field_t kg_fields_expose[] = {
    PATH_SANDBOX,
    {.name = "port",
     .doc = "TCP port inside the sandbox, on 127.0.0.1 or ::1 there.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .required = true,
     .min = 1,
     .max = UINT16_MAX},
    {.name = "token",
     .doc =
         "Who comes must show a token, which the answer has. Another wish than before changes it.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_unexpose[] = {
    PATH_SANDBOX,
    {.name = "port",
     .doc = "The exposed port.",
     .in = KG_IN_PATH,
     .type = KG_FIELD_INTEGER,
     .required = true,
     .min = 1,
     .max = UINT16_MAX},
    LIST_END,
};
