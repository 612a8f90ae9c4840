/* Operator log: one line an event on stderr, `ts level event key=value…` (or JSON lines). The one
 * process-wide object: level and format are set once at start, before threads. Client code, output
 * and tokens are never logged. */
#ifndef KG_BASE_LOG_H
#define KG_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/base/mem.h"

typedef enum kg_log_level {
    KG_LOG_DEBUG,
    KG_LOG_INFO,
    KG_LOG_WARN,
    KG_LOG_ERROR
} kg_log_level_t;

void kg_log_init(kg_log_level_t level, bool json);
int kg_log_level_parse(const char *name, kg_log_level_t *ret_level);
/* fields: printf-made "key=value key=value"; values with spaces are quoted by the caller with
 * kg_log_quote. Control characters are escaped before they reach the terminal. */
/* value as a field's value: quoted where it needs to be, cut to cap. Returns ret, so it can stand
 * among the arguments. */
const char *kg_log_quote(const char *value, char *ret, size_t cap);
void kg_log(kg_log_level_t level, const char *event, const char *fields, ...) KG_PRINTF(3, 4);

#endif
