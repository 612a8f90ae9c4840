/* The code interpreter as a tool of language models: definitions, calls and answers in the shapes
 * of each vendor's API. Pure functions over text; no tree is made of what a model or a kernel sent.
 */
#ifndef KG_TOOL_TOOL_H
#define KG_TOOL_TOOL_H

#include <stdint.h>

#include "gateway/base/err.h"
#include "proto/json_scan.h"

#define KG_TOOL_RUN_CODE "run_code" /* the one tool's name */

#define KG_TOOL_ID_MAX 256U  /* bytes of a call's id as JSON text; a longer one is refused */
#define KG_TOOL_REF_MAX 128U /* bytes of `context` and `language` of a call */

typedef enum kg_tool_format {
    KG_TOOL_ANTHROPIC,   /* Messages: tool_use, tool_result */
    KG_TOOL_OPENAI,      /* Responses: function_call, function_call_output */
    KG_TOOL_OPENAI_CHAT, /* Chat Completions: an element of tool_calls, a tool message */
    KG_TOOL_GEMINI,      /* generateContent: functionCall, functionResponse */
    KG_TOOL_MCP,         /* params of tools/call, CallToolResult */
    KG_TOOL_FORMAT_COUNT
} kg_tool_format_t;

/* Their names, NULL-terminated, in the order of the enumeration: "anthropic", … */
extern const char *const kg_tool_formats[KG_TOOL_FORMAT_COUNT + 1];
/* -EINVAL */
int kg_tool_format_find(const char *name, kg_tool_format_t *ret_format);

/* Appends the list of definitions as the vendor's `tools` field takes it. languages: those that the
 * model is offered; none: the argument is left out. -ENOMEM */
int kg_tool_definitions(kg_tool_format_t format,
                        const char *const *languages,
                        size_t language_count,
                        kg_buf_t *out);

/* --- Calls ---------------------------------------------------------------------------------- */

/* A model's call. Owned; zero-initialised is empty. */
typedef struct kg_tool_call {
    kg_tool_format_t format;
    kg_buf_t id;      /* the vendor's, as canonical JSON; empty: it came without one */
    kg_buf_t name;    /* of the tool, as canonical JSON */
    kg_buf_t code;    /* UTF-8, may hold NUL */
    kg_buf_t context; /* "" = none; NUL-terminated, like language */
    kg_buf_t language;
    double timeout_s; /* 0 = none was asked for */
    kg_buf_t problem; /* what is wrong with it, for the model to read; empty: nothing */
    kg_buf_t ignored; /* names of arguments that the tool does not have, ", " between them */
} kg_tool_call_t;

void kg_tool_call_fini(kg_tool_call_t *call);
/* text: the call as it came. What the program is to blame for (it is not JSON, or not this vendor's
 * call) is an error: invalid_json, invalid_request; what the model is to blame for (unknown tool,
 * arguments that are no JSON or not those of the tool) is call->problem. Of duplicate members the
 * last wins; lone surrogates and bad UTF-8 become U+FFFD. */
int kg_tool_call_parse(kg_tool_format_t format,
                       kg_slice_t text,
                       kg_tool_call_t *ret_call,
                       kg_err_t *err);

/* --- Answers -------------------------------------------------------------------------------- */

/* A picture for the model. Borrowed. */
typedef struct kg_tool_image {
    const char *type;  /* "image/png" */
    kg_slice_t base64; /* nothing else in it */
} kg_tool_image_t;

#define KG_TOOL_IMAGES_CEILING 32U

/* Borrowed. text is UTF-8 without U+0000, and not empty. */
typedef struct kg_tool_answer {
    kg_slice_t text;
    const kg_tool_image_t *images; /* of types that kg_tool_takes_image */
    size_t image_count;
    bool failed;
} kg_tool_answer_t;

/* Whether answers to this vendor may hold pictures of that type. */
bool kg_tool_takes_image(kg_tool_format_t format, const char *type);
/* Appends the block to send back to the model. -ENOMEM */
int kg_tool_answer(const kg_tool_call_t *call, const kg_tool_answer_t *answer, kg_buf_t *out);

#endif
