/* The API as an object: a core, keys, remembered answers, counters. Transports check out an
 * operation (op.h), check its arguments (validate.h) and call it here. */
#ifndef KG_API_API_H
#define KG_API_API_H

#include "gateway/api/call.h"
#include "gateway/api/tools.h"

/* What only the transport knows, for /metrics. */
typedef struct kg_api_gauges {
    uint64_t connections;
    uint64_t websockets;
    uint64_t streams;
    uint64_t sent_bytes;
    uint64_t received_bytes;
} kg_api_gauges_t;
typedef void kg_api_gauges_fn(void *user, kg_api_gauges_t *ret_gauges);

/* core and clock are borrowed and outlive the api. gauges may be NULL. */
int kg_api_create(kg_core_t *core,
                  const kg_clock_t *clock,
                  kg_api_gauges_fn *gauges,
                  void *user,
                  kg_api_t **ret_api);
/* Pending calls are forgotten, their views not called. NULL ok; NULLs the pointer. */
void kg_api_destroy(kg_api_t **api);

/* How tools of language models are served; NULL = the defaults. workers (borrowed, may be NULL)
 * render long results. */
void kg_api_set_tools(kg_api_t *api, const kg_tools_config_t *config, kg_workq_t *workers);

/* Checks rights, looks up what the path names, and runs the handler. args are already checked by
 * kg_op_check; they are taken, whatever happens. *ret_call is the pending call, or NULL when it has
 * been answered already (also when it failed). */
void kg_api_call(kg_api_t *api,
                 const kg_op_t *op,
                 json_t *args_take,
                 const kg_principal_t *who,
                 const kg_call_view_t *view,
                 void *user,
                 kg_call_t **ret_call);
/* The client has gone: no view is called any more. What was asked for goes on. NULL ok; NULLs the
 * pointer. */
void kg_api_abandon(kg_call_t **call);

kg_core_t *kg_api_core(const kg_api_t *api);
kg_auth_t *kg_api_auth(const kg_api_t *api);
/* A request that failed before it became a call counts here. */
void kg_api_count_error(kg_api_t *api, kg_err_code_t code);

/* Documents of the table. New reference / text appended. */
json_t *kg_openapi_json(void);
int kg_openapi_yaml(kg_buf_t *out);
int kg_docs_html(kg_buf_t *out);          /* the reference as a page without scripts */
int kg_reference_markdown(kg_buf_t *out); /* the same for docs/api.md */
int kg_errors_markdown(kg_buf_t *out);
/* Any JSON tree as YAML 1.2 that YAML 1.1 readers take alike. -EIO for what is not JSON. */
int kg_yaml_dump(json_t *value, kg_buf_t *out);

#endif
