/* What runs in a sandbox that was found again: tokens of processes that an earlier gateway started.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/client_private.h"

static int add_rows(kg_call_t *call, const kg_ip_report_t *reply)
{
    if (reply->count == 0) {
        return 0;
    }
    uint64_t *tokens =
        realloc(call->tokens, (call->token_count + reply->count) * sizeof(*call->tokens));
    if (!tokens) {
        return -ENOMEM;
    }
    call->tokens = tokens;
    for (uint32_t i = 0; i < reply->count; i++) {
        tokens[call->token_count++] = reply->rows[i].token;
    }
    return 0;
}

void kg_report_take(kg_sbx_t *sbx, const kg_ip_report_t *reply)
{
    kg_err_t err = {0};
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, KG_IP_REPORT);
    if (!call) {
        return;
    }
    int r = add_rows(call, reply);
    if (r == 0 && reply->more) { /* the same request's next frame */
        call->next = sbx->calls;
        sbx->calls = call;
        return;
    }
    if (r < 0) {
        (void)kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if (!call->forgotten) {
        call->fn.report(call->user, call->tokens, r < 0 ? 0 : call->token_count,
                        r < 0 ? &err : NULL);
    }
    free(call->tokens);
    free(call);
}

int kg_sbx_report(kg_sbx_t *sbx, kg_report_fn *fn, void *user)
{
    kg_ip_request_t request;
    kg_call_t *call = calloc(1, sizeof(*call));

    if (!call) {
        return -ENOMEM;
    }
    call->fn.report = fn;
    call->user = user;
    size_t fixed = kg_ip_request_init(&request, KG_IP_REPORT, 0, 0);
    int r = kg_sbx_request(sbx, &request, fixed, NULL, 0, call);
    if (r < 0) {
        free(call);
    }
    return r;
}

void kg_sbx_end_token(kg_sbx_t *sbx, uint64_t token)
{
    kg_proc_send_token(sbx, KG_IP_KILL_TREE, token);
    kg_proc_send_token(sbx, KG_IP_ACK, token);
}
