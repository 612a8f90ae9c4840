/* What sandboxes use and used. */
#ifndef KG_CONTEXT_METRICS_H
#define KG_CONTEXT_METRICS_H

#include "gateway/context/core.h"

/* json: a new reference for the callee, or NULL and err. */
typedef void kg_json_fn(void *user, json_t *json_take, const kg_err_t *err);

/* As of now: {cpu_seconds, memory_bytes, memory_peak_bytes, disk_bytes, pids, oom_kills, limits,
 * state}; null for what is not known here. Does not wake it. */
int kg_sandbox_metrics(kg_sandbox_t *sandbox, kg_json_fn *done, void *user, kg_err_t *err);
/* Refused connections after cursor (0 = the oldest kept): {items, cursor, lost}. */
int kg_sandbox_network_log(
    kg_sandbox_t *sandbox, uint64_t cursor, kg_json_fn *done, void *user, kg_err_t *err);
/* {sandbox, template, created_at, ended_at, active_seconds, paused_seconds}. NULL: OOM. */
json_t *kg_sandbox_usage_json(kg_sandbox_t *sandbox);
/* All of an owner's, also of those that have ended: {active_seconds, paused_seconds, items, next}.
 * NULL and err. */
json_t *kg_core_usage_json(
    kg_core_t *core, const char *owner, unsigned limit, const char *after, kg_err_t *err);

#endif
