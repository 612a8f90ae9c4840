/* Checked parsing and copying of short strings. */
#ifndef KG_BASE_STR_H
#define KG_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/base/mem.h"

/* Whole-string decimal; -EINVAL or -ERANGE. */
int kg_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
int kg_parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret);
int kg_parse_double(const char *s, double *ret);
/* snprintf that returns 0, or -ENAMETOOLONG when it did not fit (ret is then ""). */
int kg_format(char *ret, size_t cap, const char *fmt, ...) KG_PRINTF(3, 4);
char *kg_strdup_printf(const char *fmt, ...) KG_PRINTF(1, 2); /* malloc'd or NULL */
bool kg_str_starts(const char *s, const char *prefix);
/* [a-z0-9]([a-z0-9-]{0,max-2}[a-z0-9])? : names of sandboxes, contexts, templates */
bool kg_name_valid(const char *s, size_t max);

#endif
