/* Which variables of a client's environment a kernel gets: JupyterLab's gateway client may send all
 * of its own, keys among them. Pure. */
#ifndef KG_COMPAT_ALLOW_H
#define KG_COMPAT_ALLOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* patterns: names, or their beginnings with a "*" behind. Only names of variables fit. */
bool kg_allow_name(const char *const *patterns, size_t count, const char *name);
/* What of env (an object, or NULL) is allowed and a string without U+0000. New object; NULL = no
 * memory. */
json_t *kg_allow_env(const char *const *patterns, size_t count, const json_t *env);

#endif
