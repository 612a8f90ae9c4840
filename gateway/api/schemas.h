/* Schemas of answers, for openapi.c alone. */
#ifndef KG_API_SCHEMAS_H
#define KG_API_SCHEMAS_H

#include <jansson.h>

/* {NAME: schema}. New reference or NULL (OOM). */
json_t *kg_schemas_json(void);
json_t *kg_schema_ref(const char *name);

#endif
