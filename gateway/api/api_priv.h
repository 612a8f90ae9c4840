/* Inside of kg_api_t, for this room's own files. */
#ifndef KG_API_API_PRIV_H
#define KG_API_API_PRIV_H

#include "gateway/api/api.h"
#include "gateway/api/idem.h"
#include "gateway/api/tools.h"

/* Answers of one operation: 2xx, 4xx, 5xx. */
typedef struct kg_op_count {
    uint64_t by_class[3];
} kg_op_count_t;

struct kg_api {
    kg_core_t *core;
    const kg_clock_t *clock;
    kg_auth_t *auth;
    kg_idem_t *idem;
    kg_api_gauges_fn *gauges;
    void *user;
    kg_call_t *calls; /* pending, utlist */
    size_t pending;
    kg_tools_config_t tools;
    kg_workq_t *workers; /* NULL: none */
    uint64_t started_ns;
    uint64_t errors[KG_ERR_COUNT];
    kg_op_count_t *counts; /* one an operation */
};

#endif
