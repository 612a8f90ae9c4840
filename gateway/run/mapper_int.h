/* Inner header of the mapper: what prepare makes of a message, and what apply needs. */
#ifndef KG_RUN_MAPPER_INT_H
#define KG_RUN_MAPPER_INT_H

#include "gateway/run/log_int.h"
#include "gateway/run/mapper.h"
#include "gateway/run/text.h"

/* --- bundles: one Result -------------------------------------------------------------------------
 */

typedef struct kg_format {
    kg_slice_t name; /* decoded, in names; NUL-free or not */
    size_t name_off;
    size_t value_off, value_len; /* in values: canonical JSON */
    uint64_t units;              /* decoded bytes of a string, length of other JSON */
    unsigned rank;
    bool string;
    bool kept;
    bool gone; /* value too big to be copied, or superseded */
} kg_format_t;

typedef struct kg_bundle {
    kg_buf_t names;
    kg_buf_t values;
    kg_format_t *formats; /* richest first after kg_bundle_finish */
    size_t count;
    size_t meta_off, meta_len; /* in values */
    uint64_t meta_units;
    bool meta_kept;
    uint64_t units; /* kept */
    uint64_t cut;
    uint64_t over;      /* of what no limit of a run lets in: formats past KG_RUN_FORMATS_MAX … */
    kg_buf_t text;      /* when it is no format's own body */
    size_t text_format; /* whose body the text is, or SIZE_MAX */
    size_t text_from;   /* of which format `text` was made, + 1; 0 = of none */
    size_t type;        /* format that gives type and data, or SIZE_MAX */
    kg_buf_t display_id; /* decoded */
    bool has_display_id;
    bool main;
    bool payload; /* of a reply: main only where nothing else is */
    bool value;   /* text/plain and no image: what R prints for a visible value */
    bool fitted;  /* cut to what the log has room for, and its place there is known: */
    uint32_t did; /* … under this number */
    bool staging; /* some of it is written */
} kg_bundle_t;

/* data may be anything; absent = {}. */
int kg_bundle_build(kg_bundle_t *bundle,
                    const kg_mapper_opts_t *opts,
                    kg_json_value_t data,
                    kg_json_value_t metadata);
/* One text/plain string. */
int kg_bundle_build_plain(kg_bundle_t *bundle, const kg_mapper_opts_t *opts, kg_json_value_t text);
/* Keeps what fits into budget, smallest first; chooses type and text. */
int kg_bundle_select(kg_bundle_t *bundle, const kg_mapper_opts_t *opts, uint64_t budget);
void kg_bundle_fini(kg_bundle_t *bundle);
/* Appends it as `display` or `update`, under bundle->did. 1 = a part is written: call again. */
int kg_bundle_append(kg_bundle_t *bundle, kg_run_log_t *log, kg_event_type_t type);

/* Units of the tail that follows a cut stream. */
static inline size_t kg_tail_max(const kg_run_limits_t *limits)
{
    uint64_t quarter = limits->no_tail ? 0 : limits->output_bytes / 4;
    return quarter < KG_RUN_TAIL_MAX ? (size_t)quarter : KG_RUN_TAIL_MAX;
}

/* --- messages ------------------------------------------------------------------------------------
 */

/* A log that shows a display id, under a number of its own. */
typedef struct kg_display_target {
    kg_run_log_t *log;
    uint32_t did;
} kg_display_target_t;

typedef enum kg_mapped_kind {
    KG_MAPPED_NONE,
    KG_MAPPED_TEXT,
    KG_MAPPED_RESULT,
    KG_MAPPED_UPDATE,
    KG_MAPPED_CLEAR,
    KG_MAPPED_ERROR,
    KG_MAPPED_EXECUTE_INPUT,
    KG_MAPPED_STATUS,
    KG_MAPPED_INPUT,
    KG_MAPPED_REPLY
} kg_mapped_kind_t;

/* Bodies in canonical escaped text; traceback is `"…","…"`. */
typedef struct kg_failure {
    kg_buf_t name, message, traceback;
    uint64_t cut;
} kg_failure_t;

struct kg_mapped {
    kg_mapped_kind_t kind;
    bool is_stderr, wait, password, busy, idle, ask_exit;
    kg_buf_t text;     /* TEXT: canonical escaped, the first output_bytes; INPUT: prompt, decoded */
    size_t pos;        /* applied so far */
    kg_buf_t tail;     /* TEXT: the last of what is behind text and gap */
    kg_ahead_t *ahead; /* TEXT: what of it is written already, NULL = nothing */
    uint64_t gap;      /* TEXT: units that are in neither; INPUT: of the prompt's end */
    uint64_t over;     /* REPLY: of payloads past KG_RUN_PAYLOADS_MAX */
    kg_buf_t header;
    int64_t count; /* execution_count, < 0 = none */
    kg_reply_status_t reply;
    kg_failure_t failure;
    bool has_failure;
    kg_bundle_t *bundles; /* RESULT, UPDATE: one; REPLY: payloads */
    size_t bundles_len;
    size_t bundle;                /* applied so far */
    kg_display_target_t *targets; /* UPDATE: logs that it goes to, once that is known */
    size_t targets_len, target;   /* how many, how many are done */
};

void kg_ahead_unref(kg_ahead_t **ahead); /* thread-safe; NULL ok */

int kg_failure_read(kg_failure_t *failure, kg_json_value_t content, bool ansi);
void kg_failure_fini(kg_failure_t *failure);

/* --- displays ------------------------------------------------------------------------------------
 */

/* The did of id in log, given now if there was none; 0 when no more are given. */
uint32_t kg_displays_assign(kg_displays_t *displays, kg_slice_t id, kg_run_log_t *log);
/* Live targets of id, those of expired logs dropped. Borrowed until the next call. */
const kg_display_target_t *
kg_displays_find(kg_displays_t *displays, kg_slice_t id, size_t *ret_count);

/* --- mapper --------------------------------------------------------------------------------------
 */

struct kg_mapper {
    const kg_mapper_opts_t *opts;
    kg_run_log_t *log;
    kg_displays_t *displays;
    kg_mapper_sink_t sink;
    kg_mapper_state_t state;
    kg_text_ring_t ring[2]; /* stdout, stderr */
    kg_failure_t candidate; /* the last iopub error, until it is known whether it failed the run */
    bool has_candidate;
    kg_failure_t failure; /* of the reply */
    bool has_failure;
    bool has_main;
    bool stopped; /* sink.stop was called */
    bool finished;
    int64_t execution_count; /* the gateway's, < 0 = null */
    kg_run_status_t status;
};

int kg_mapper_append_tail(kg_mapper_t *m, bool is_stderr);
/* Units that a stream may still hold. */
uint64_t kg_mapper_text_left(const kg_mapper_t *m, bool is_stderr);
/* Canonical escaped text, with the limits. */
int kg_mapper_append_text(kg_mapper_t *m, bool is_stderr, kg_slice_t text);
int kg_mapper_say_failure(kg_mapper_t *m, const kg_failure_t *failure); /* as stderr text */

#endif
