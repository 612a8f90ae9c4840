/* Schemas of answers, for openapi.c and reference.c. */
#ifndef KG_API_SCHEMAS_H
#define KG_API_SCHEMAS_H

#include <jansson.h>

/* One member of an object; public plain data, all static. `type` is in the notation of schemas.c.
 */
typedef struct kg_schema_row {
    const char *schema; /* NULL = as the row before */
    const char *name;
    const char *type;
    const char *doc; /* "" = none */
} kg_schema_row_t;

const kg_schema_row_t *kg_schema_rows(size_t *ret_count);
/* Names of the objects that Event is one of. */
const char *const *kg_schema_events(size_t *ret_count);

/* {NAME: schema}. New reference or NULL (OOM). */
json_t *kg_schemas_json(void);
json_t *kg_schema_ref(const char *name);

#endif
