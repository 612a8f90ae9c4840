/* A model's call: whatever it is, each vendor's parser ends with an error, with something to tell
 * the model, or with a call; and what is answered to it is JSON. The first byte is the vendor. */
#include <stdint.h>
#include <stdlib.h>

#include "fuzz_json.h"
#include "gateway/tool/tool.h"

static void check_answer(const kg_tool_call_t *call)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_tool_answer_t a = {
        .text = call->problem.len ? kg_buf_slice(&call->problem) : kg_slice_cstr("ok"),
        .failed = call->problem.len > 0,
    };
    must(kg_tool_answer(call, &a, &out) == 0);
    kg_json_value_t value;
    must(kg_json_check(kg_buf_slice(&out), 8, &value) == 0);
    must(kg_utf8_valid(out.data, out.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    KG_AUTO_FREE char *text = malloc(size); /* its own block: a step too far is seen */
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    kg_tool_format_t format = (kg_tool_format_t)(data[0] % KG_TOOL_FORMAT_COUNT);
    kg_tool_call_t call = {0};
    kg_err_t err = {0};
    if (kg_tool_call_parse(format, kg_slice(text, size - 1), &call, &err) < 0) {
        must(err.code == KG_ERR_INVALID_JSON || err.code == KG_ERR_INVALID_REQUEST);
        return 0;
    }
    must(kg_utf8_valid(call.code.data ? call.code.data : "", call.code.len));
    must(call.context.len <= KG_TOOL_REF_MAX * 3 && call.language.len <= KG_TOOL_REF_MAX * 3);
    must(call.timeout_s >= 0);
    must(call.problem.len < 1024 && call.ignored.len < 1024);
    check_answer(&call);
    kg_tool_call_fini(&call);
    return 0;
}
