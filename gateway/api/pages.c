/* gateway/api: what is about the daemon itself: health, the description of the API, and what is
 * missing from it. */
#include <errno.h>

#include "gateway/api/api.h"
#include "gateway/api/call.h"
#include "gateway/api/handlers.h"

void kg_do_health(kg_call_t *call)
{
    kg_call_json_take(call, 200,
                      json_pack("{s:s, s:s}", "status", "ok", "version", SANDAL_VERSION));
}

void kg_do_ready(kg_call_t *call)
{
    kg_err_t err = {0};
    if (kg_core_ready(call->core, &err) < 0) {
        err.retry_after_s = err.retry_after_s ? err.retry_after_s : 1;
        kg_call_fail(call, &err);
        return;
    }
    kg_call_json_take(call, 200,
                      json_pack("{s:s, s:s}", "status", "ready", "version", SANDAL_VERSION));
}

static void page(kg_call_t *call, const char *type, int (*make)(kg_buf_t *out))
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = make(&text);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &(kg_err_t){0});
        return;
    }
    kg_call_text(call, &(kg_answer_t){.status = 200, .type = type, .body = kg_buf_slice(&text)});
}

void kg_do_openapi(kg_call_t *call)
{
    page(call, "application/yaml; charset=utf-8", kg_openapi_yaml);
}

void kg_do_docs(kg_call_t *call)
{
    page(call, "text/html; charset=utf-8", kg_docs_html);
}

void kg_do_missing(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_NOT_SUPPORTED, "%s is not supported: %s", call->op->name,
               call->op->response);
    kg_err_hint(&err, "GET /v1/openapi.yaml lists what is.");
    kg_call_fail(call, &err);
}
