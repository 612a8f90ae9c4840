/* gateway/api: what is asked of a sandbox as a whole. */
#include "gateway/api/fields_common.h"

const kg_field_t kg_fields_network_log[] = {
    PATH_SANDBOX,
    {.name = "cursor",
     .doc = "`cursor` of the answer before; 0 = the oldest kept.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_INTEGER,
     .standard = "0"},
    LIST_END,
};

const kg_field_t kg_fields_usage[] = {QUERY_LIMIT, QUERY_AFTER, LIST_END};
