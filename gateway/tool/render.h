/* From an Execution to what a model reads of it: text within a budget of tokens, and pictures. */
#ifndef KG_TOOL_RENDER_H
#define KG_TOOL_RENDER_H

#include "gateway/tool/tool.h"

/* How text is measured: no vendor's tokens, but near them for all (docs/tools.md). Quarters of
 * tokens, so that sums are exact: a letter or blank of ASCII is one, a digit or mark two, a line's
 * end four; three more where letters, digits and capitals meet, for base64 and tables take more
 * tokens than prose. Any other character is four, beyond U+FFFF eight. */
#define KG_TOOL_QUARTERS 4U
uint64_t kg_tool_quarters(const char *data, size_t len);

#define KG_TOOL_TOKENS_MIN 64U
#define KG_TOOL_TOKENS_MAX 200000U

/* Where text is cut when it does not fit. */
typedef enum kg_tool_cut {
    KG_TOOL_CUT_MIDDLE, /* output: its beginning and its end are kept */
    KG_TOOL_CUT_END,    /* a data frame: its beginning, and the line that tells its shape */
    KG_TOOL_CUT_START   /* a traceback: its end, where the innermost frames are */
} kg_tool_cut_t;

/* Appends text within quarters, with a line in the place of what is left out; that line itself is
 * not counted. *ret_cut: something was. -ENOMEM */
int kg_tool_cut(
    kg_slice_t text, kg_tool_cut_t how, uint64_t quarters, kg_buf_t *out, bool *ret_cut);

/* Public plain data. */
typedef struct kg_tool_limits {
    unsigned max_tokens;  /* of the text of one answer */
    unsigned images_max;  /* at most KG_TOOL_IMAGES_CEILING; 0 = none are shown */
    uint64_t image_bytes; /* of one, as base64; a larger one is not shown */
} kg_tool_limits_t;

/* Owned. */
typedef struct kg_tool_view {
    kg_buf_t text;
    kg_buf_t pixels[KG_TOOL_IMAGES_CEILING];
    kg_tool_image_t images[KG_TOOL_IMAGES_CEILING];
    size_t image_count;
    bool failed; /* the run's status is not ok */
} kg_tool_view_t;

void kg_tool_view_fini(kg_tool_view_t *view);
/* execution: the JSON text of one that has ended. call: its format says which pictures can be
 * shown, its ignored arguments are told. -EBADMSG, -ENOMEM */
int kg_tool_render(const kg_tool_call_t *call,
                   kg_slice_t execution,
                   const kg_tool_limits_t *limits,
                   kg_tool_view_t *ret_view);

#endif
