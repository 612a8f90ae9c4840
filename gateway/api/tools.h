/* The code interpreter as a tool of language models: what the handlers of /v1/tools need to know,
 * beside the call. docs/tools.md is for people. */
#ifndef KG_API_TOOLS_H
#define KG_API_TOOLS_H

#include "gateway/loop/loop.h"

/* Metadata of a sandbox that was made for a session: the session's key. */
#define KG_TOOLS_META_SESSION "tools.session"

#define KG_TOOLS_SESSIONS_MAX 100U
#define KG_TOOLS_SESSION_S 3600U
#define KG_TOOLS_TOKENS 8192U
#define KG_TOOLS_CALL_BYTES (UINT64_C(1) << 20)
#define KG_TOOLS_OUTPUT_BYTES (UINT64_C(1) << 20)
#define KG_TOOLS_RESULT_BYTES (UINT64_C(8) << 20)
#define KG_TOOLS_IMAGES 8U
#define KG_TOOLS_IMAGE_BYTES UINT64_C(5000000)

/* Public plain data; strings are borrowed and outlive the api. */
typedef struct kg_tools_config {
    const char *template_name;      /* of sandboxes that sessions make; NULL = the operator's */
    const char *session_on_timeout; /* "pause", "kill"; NULL = pause where it can be, else kill */
    uint64_t session_timeout_s;     /* idle; 0 = never */
    unsigned sessions_max;          /* sandboxes of sessions that one owner has at once */
    unsigned max_tokens;            /* of the text of an answer that asks for nothing else */
    uint64_t call_bytes;            /* of a model's call */
    uint64_t output_bytes;          /* that a run may print to each stream */
    uint64_t result_bytes;          /* of all its results */
    unsigned images_max;            /* in one answer */
    uint64_t image_bytes;           /* of one, in base64 */
} kg_tools_config_t;

void kg_tools_config_defaults(kg_tools_config_t *ret_config);

#endif
