/* gateway/tool: what models are told of the tool. One description and one schema, wrapped as each
 * vendor has it. */
#include <errno.h>

#include "gateway/tool/tool.h"

const char *const kg_tool_formats[KG_TOOL_FORMAT_COUNT + 1] = {"anthropic", "openai", "openai-chat",
                                                               "gemini",    "mcp",    NULL};

int kg_tool_format_find(const char *name, kg_tool_format_t *ret_format)
{
    for (unsigned i = 0; i < KG_TOOL_FORMAT_COUNT; i++) {
        if (strcmp(kg_tool_formats[i], name) == 0) {
            *ret_format = (kg_tool_format_t)i;
            return 0;
        }
    }
    return -EINVAL;
}

static const char description[] =
    "Runs code in a sandboxed interpreter and returns what it printed, the value of its last "
    "expression, and its plots as images. Variables, imports and files stay for the next calls. "
    "Relative paths are in /workspace. When the code fails, the traceback is returned: mend the "
    "code and call again. Long output is cut: print only what is needed.";

/* Gemini's older schema writes types in capitals; the others take JSON Schema. */
typedef struct words {
    const char *object, *string, *number;
} words_t;

static const words_t json_words = {"object", "string", "number"};
static const words_t gemini_words = {"OBJECT", "STRING", "NUMBER"};

static int put_languages(kg_buf_t *out, const words_t *w, const char *const *list, size_t count)
{
    int rc = kg_buf_printf(out,
                           ",\"language\":{\"type\":\"%s\",\"description\":\"Language of the code; "
                           "%s by default. Each language has its own variables.\",\"enum\":[",
                           w->string, list[0]);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = i > 0 ? kg_buf_append_char(out, ',') : 0;
        rc = rc < 0 ? rc : kg_json_quote_cstr(out, list[i]);
    }
    return rc < 0 ? rc : kg_buf_append_cstr(out, "]}");
}

static int put_schema(kg_buf_t *out, const words_t *w, const char *const *list, size_t count)
{
    int rc = kg_buf_printf(out,
                           "{\"type\":\"%s\",\"properties\":{\"code\":{\"type\":\"%s\","
                           "\"description\":\"The code to run. The value of its last expression "
                           "is returned too.\"}",
                           w->object, w->string);
    rc = rc < 0 || count == 0 ? rc : put_languages(out, w, list, count);
    rc = rc < 0 ? rc
                : kg_buf_printf(
                      out,
                      ",\"context\":{\"type\":\"%s\",\"description\":\"Id or name of another "
                      "context of the sandbox, with variables of its own. Leave it out unless you "
                      "were told of one.\"},\"timeout\":{\"type\":\"%s\",\"description\":\"Seconds "
                      "after which the code is stopped.\"}},\"required\":[\"code\"]}",
                      w->string, w->number);
    return rc;
}

int kg_tool_definitions(kg_tool_format_t format,
                        const char *const *languages,
                        size_t language_count,
                        kg_buf_t *out)
{
    static const struct {
        const char *before; /* name and description stand between */
        const char *schema;
        const char *after;
    } forms[KG_TOOL_FORMAT_COUNT] = {
        [KG_TOOL_ANTHROPIC] = {"[{", ",\"input_schema\":", "}]"},
        /* The API takes an absent `strict` for true, and a strict schema has no optional member. */
        [KG_TOOL_OPENAI] = {"[{\"type\":\"function\",", ",\"strict\":false,\"parameters\":", "}]"},
        [KG_TOOL_OPENAI_CHAT] = {"[{\"type\":\"function\",\"function\":{",
                                 ",\"strict\":false,\"parameters\":", "}}]"},
        [KG_TOOL_GEMINI] = {"[{\"functionDeclarations\":[{", ",\"parameters\":", "}]}]"},
        [KG_TOOL_MCP] = {"[{", ",\"title\":\"Run code\",\"inputSchema\":",
                         ",\"annotations\":{\"title\":\"Run code\",\"readOnlyHint\":false,"
                         "\"destructiveHint\":true,\"idempotentHint\":false,"
                         "\"openWorldHint\":true}}]"},
    };
    const words_t *w = format == KG_TOOL_GEMINI ? &gemini_words : &json_words;
    int rc = kg_buf_printf(out, "%s\"name\":\"" KG_TOOL_RUN_CODE "\",\"description\":\"%s\"%s",
                           forms[format].before, description, forms[format].schema);
    rc = rc < 0 ? rc : put_schema(out, w, languages, language_count);
    return rc < 0 ? rc : kg_buf_append_cstr(out, forms[format].after);
}
