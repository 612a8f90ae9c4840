/* What a model reads of a run: whatever the run has left, the text is UTF-8 without U+0000, not
 * empty, and of a bounded length. Two bytes say for whom and how long it may be. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "fuzz_json.h"
#include "gateway/tool/render.h"

enum {
    NOTES = 4096 /* bytes that notes and the marks of cuts come to at most */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    KG_AUTO_FREE char *text = malloc(size); /* its own block: a step too far is seen */
    must(text != NULL);
    memcpy(text, data + 2, size - 2);
    kg_tool_call_t call = {.format = (kg_tool_format_t)(data[0] % KG_TOOL_FORMAT_COUNT)};
    kg_tool_limits_t limits = {
        .max_tokens = KG_TOOL_TOKENS_MIN + data[1], .images_max = data[1] % 4, .image_bytes = 64};
    kg_tool_view_t view = {0};
    int rc = kg_tool_render(&call, kg_slice(text, size - 2), &limits, &view);
    must(rc == 0 || rc == -EBADMSG);
    if (rc < 0) {
        return 0;
    }
    must(view.text.len > 0 && !memchr(view.text.data, '\0', view.text.len));
    must(kg_utf8_valid(view.text.data, view.text.len));
    must(view.text.len <= (size_t)limits.max_tokens * 4 + NOTES);
    must(view.image_count <= limits.images_max);
    for (size_t i = 0; i < view.image_count; i++) {
        must(view.images[i].base64.len <= limits.image_bytes);
        must(kg_tool_takes_image(call.format, view.images[i].type));
    }
    kg_tool_view_fini(&view);
    return 0;
}
