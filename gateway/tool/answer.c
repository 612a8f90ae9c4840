/* gateway/tool: the block that goes back to the model. */
#include "gateway/tool/tool.h"

bool kg_tool_takes_image(kg_tool_format_t format, const char *type)
{
    static const char *const types[] = {"image/png", "image/jpeg", "image/webp", "image/gif"};
    static const unsigned counts[KG_TOOL_FORMAT_COUNT] = {
        [KG_TOOL_ANTHROPIC] = 4, [KG_TOOL_OPENAI] = 4, [KG_TOOL_OPENAI_CHAT] = 0,
        [KG_TOOL_GEMINI] = 3,    [KG_TOOL_MCP] = 4,
    };
    for (unsigned i = 0; i < counts[format]; i++) {
        if (strcmp(types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static int put_string(kg_buf_t *out, const char *before, kg_slice_t text, const char *after)
{
    int rc = kg_buf_append_cstr(out, before);
    rc = rc < 0 ? rc : kg_json_quote(out, text.data, text.len);
    return rc < 0 ? rc : kg_buf_append_cstr(out, after);
}

static int put_raw(kg_buf_t *out, const char *before, const kg_buf_t *json)
{
    int rc = kg_buf_append_cstr(out, before);
    return rc < 0 ? rc : kg_buf_append(out, json->data, json->len);
}

/* type and data of a picture hold nothing that JSON escapes. */
static int put_images(kg_buf_t *out,
                      const kg_tool_answer_t *a,
                      const char *before,
                      const char *between,
                      const char *after)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->image_count; i++) {
        rc = kg_buf_printf(out, "%s%s%s", before, a->images[i].type, between);
        rc = rc < 0 ? rc : kg_buf_append_slice(out, a->images[i].base64);
        rc = rc < 0 ? rc : kg_buf_append_cstr(out, after);
    }
    return rc;
}

static int anthropic(const kg_tool_call_t *call, const kg_tool_answer_t *a, kg_buf_t *out)
{
    int rc = put_raw(out, "{\"type\":\"tool_result\",\"tool_use_id\":", &call->id);
    rc = rc < 0 ? rc : put_string(out, ",\"content\":[{\"type\":\"text\",\"text\":", a->text, "}");
    rc = rc < 0 ? rc
                : put_images(out, a,
                             ",{\"type\":\"image\",\"source\":{\"type\":\"base64\","
                             "\"media_type\":\"",
                             "\",\"data\":\"", "\"}}");
    return rc < 0 ? rc : kg_buf_printf(out, "],\"is_error\":%s}", a->failed ? "true" : "false");
}

static int openai(const kg_tool_call_t *call, const kg_tool_answer_t *a, kg_buf_t *out)
{
    int rc = put_raw(out, "{\"type\":\"function_call_output\",\"call_id\":", &call->id);
    if (rc == 0 && a->image_count == 0) {
        return put_string(out, ",\"output\":", a->text, "}");
    }
    rc = rc < 0 ? rc
                : put_string(out, ",\"output\":[{\"type\":\"input_text\",\"text\":", a->text, "}");
    rc = rc < 0 ? rc
                : put_images(out, a,
                             ",{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":"
                             "\"data:",
                             ";base64,", "\"}");
    return rc < 0 ? rc : kg_buf_append_cstr(out, "]}");
}

static int openai_chat(const kg_tool_call_t *call, const kg_tool_answer_t *a, kg_buf_t *out)
{
    int rc = put_raw(out, "{\"role\":\"tool\",\"tool_call_id\":", &call->id);
    return rc < 0 ? rc : put_string(out, ",\"content\":", a->text, "}");
}

static int gemini(const kg_tool_call_t *call, const kg_tool_answer_t *a, kg_buf_t *out)
{
    int rc = put_raw(out, "{\"functionResponse\":{\"name\":", &call->name);
    if (rc == 0 && call->id.len) {
        rc = put_raw(out, ",\"id\":", &call->id);
    }
    rc = rc < 0 ? rc
                : put_string(out,
                             a->failed ? ",\"response\":{\"error\":" : ",\"response\":{\"output\":",
                             a->text, "}");
    if (rc == 0 && a->image_count) {
        rc = kg_buf_append_cstr(out, ",\"parts\":[");
        size_t first = out->len;
        rc = rc < 0 ? rc
                    : put_images(out, a, ",{\"inlineData\":{\"mimeType\":\"", "\",\"data\":\"",
                                 "\"}}");
        rc = rc < 0 ? rc : kg_buf_append_char(out, ']');
        if (rc == 0) {
            out->data[first] = ' '; /* the first one's comma */
        }
    }
    return rc < 0 ? rc : kg_buf_append_cstr(out, "}}");
}

static int mcp(const kg_tool_answer_t *a, kg_buf_t *out)
{
    int rc = put_string(out, "{\"content\":[{\"type\":\"text\",\"text\":", a->text, "}");
    rc = rc < 0
             ? rc
             : put_images(out, a, ",{\"type\":\"image\",\"mimeType\":\"", "\",\"data\":\"", "\"}");
    return rc < 0 ? rc : kg_buf_printf(out, "],\"isError\":%s}", a->failed ? "true" : "false");
}

int kg_tool_answer(const kg_tool_call_t *call, const kg_tool_answer_t *answer, kg_buf_t *out)
{
    switch (call->format) {
    case KG_TOOL_ANTHROPIC:
        return anthropic(call, answer, out);
    case KG_TOOL_OPENAI:
        return openai(call, answer, out);
    case KG_TOOL_OPENAI_CHAT:
        return openai_chat(call, answer, out);
    case KG_TOOL_GEMINI:
        return gemini(call, answer, out);
    case KG_TOOL_MCP:
    case KG_TOOL_FORMAT_COUNT:
        break;
    }
    return mcp(answer, out);
}
