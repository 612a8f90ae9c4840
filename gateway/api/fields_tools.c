/* gateway/api: what the operations on tools of language models take. */
#include "gateway/api/fields.h"
#include "gateway/api/fields_common.h"
#include "gateway/tool/render.h"

#define FORMAT                                                                                     \
    {                                                                                              \
        .name = "format", .doc = "Whose shapes.", .in = KG_IN_QUERY, .type = KG_FIELD_STRING,      \
        .required = true, .values = kg_tool_formats                                                \
    }
#define REF(field, where, text)                                                                    \
    {                                                                                              \
        .name = (field), .doc = (text), .in = (where), .type = KG_FIELD_STRING,                    \
        .format = KG_FORMAT_LINE, .min = 1, .max = KG_API_REF_MAX                                  \
    }

const kg_field_t kg_fields_tools_list[] = {FORMAT, LIST_END};

const kg_field_t kg_fields_tools_run_code[] = {
    FORMAT,
    REF("sandbox", KG_IN_QUERY, "Id or name of the sandbox to run in."),
    REF("session",
        KG_IN_QUERY,
        "A key of the program's own, one a conversation: its sandbox is made by the first call."),
    REF("sandal_sandbox", KG_IN_HEADER, "The same as `sandbox`."),
    REF("sandal_session", KG_IN_HEADER, "The same as `session`."),
    {.name = "max_tokens",
     .doc = "Of the text of the answer, as estimated (docs/tools.md).",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_INTEGER,
     .min = KG_TOOL_TOKENS_MIN,
     .max = KG_TOOL_TOKENS_MAX,
     .standard = "8192"},
    {.name = "timeout",
     .doc = "Seconds that code may run for, at most; the model may ask for less.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_NUMBER,
     .max = KG_RUN_TIMEOUT_MAX_S},
    {.name = "images",
     .doc = "false: no pictures in the answer.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "true"},
    {.name = "call",
     .doc = "The model's call as it came, an object or its JSON text.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_TEXT_OR_OBJECT,
     .required = true,
     .max = KG_API_CODE_MAX},
    {.name = "key",
     .doc = "Idempotency key: the same call with the same key runs once in a sandbox.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_TOKEN,
     .min = 1,
     .max = KG_API_KEY_MAX},
    LIST_END,
};
