/* Environments: a list of NAME=value in which a later setting of a name replaces the earlier one.
 */
#ifndef KG_CONTEXT_ENV_H
#define KG_CONTEXT_ENV_H

#include <jansson.h>
#include <stddef.h>

#include "gateway/base/err.h"

#define KG_ENV_BYTES_MAX 65536U /* of one env object that a client sends */

/* Zero-initialised is empty and valid. items ends with NULL (or is NULL itself when empty). */
typedef struct kg_env {
    char **items;
    size_t count;
} kg_env_t;

void kg_env_fini(kg_env_t *env);
int kg_env_set(kg_env_t *env, const char *name, const char *value); /* -ENOMEM */
const char *kg_env_get(const kg_env_t *env, const char *name, size_t name_len);
/* "NAME=value" strings, NULL-terminated; ${OTHER} in a value is replaced by what env holds so far.
 */
int kg_env_merge_strings(kg_env_t *env, char *const *items);
/* As they are. */
int kg_env_merge(kg_env_t *env, const kg_env_t *from);
/* An object that kg_env_check accepted, or NULL. */
int kg_env_merge_json(kg_env_t *env, const json_t *object);
/* object: NULL or JSON null, or an object of strings whose names are fit for an environment.
 * pointer names it in errors. */
int kg_env_check(const json_t *object, const char *pointer, kg_err_t *err);

#endif
