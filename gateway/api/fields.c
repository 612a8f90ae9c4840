/* gateway/api: what every operation takes. Bounds stand here so that they show in OpenAPI; what
 * only the core knows (does the template exist, is the name free) is its business. */
#include "gateway/api/fields.h"

#include "gateway/api/fields_common.h"
#include "gateway/store/store.h"

const kg_field_t kg_fields_sandbox[] = {PATH_SANDBOX, LIST_END};
const kg_field_t kg_fields_sandbox_post[] = {PATH_SANDBOX, BODY_KEY, LIST_END};
const kg_field_t kg_fields_context[] = {PATH_SANDBOX, PATH_CONTEXT, LIST_END};
const kg_field_t kg_fields_context_post[] = {PATH_SANDBOX, PATH_CONTEXT, BODY_KEY, LIST_END};
const kg_field_t kg_fields_context_any[] = {
    {.name = "context",
     .doc = "Id of the context; a name is known in its sandbox alone.",
     .in = KG_IN_PATH,
     .type = KG_FIELD_STRING,
     .required = true,
     .min = 1,
     .max = KG_API_REF_MAX},
    LIST_END,
};
const kg_field_t kg_fields_run[] = {PATH_SANDBOX, PATH_RUN, LIST_END};

/* --- Sandboxes ------------------------------------------------------------------------------ */

static const char *const states[] = {"starting", "running", "paused", "stopping", NULL};
static const char *const timeout_ends[] = {"pause", "kill", NULL};
static const char *const networks[] = {"none", "egress", NULL};
static const char *const isolations[] = {"none",      "process", "bubblewrap", "runc",
                                         "namespace", "gvisor",  NULL};

static const kg_field_t sandbox_limits[] = {
    {.name = "memory_mib",
     .doc = "Memory.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = 1 << 24},
    {.name = "cpus",
     .doc = "Processors; may have a fraction.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_NUMBER,
     .max = 4096},
    {.name = "pids",
     .doc = "Processes and threads.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = 1 << 22},
    {.name = "disk_mib",
     .doc = "Disk.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = 1 << 28},
    {.name = "open_files",
     .doc = "Files and sockets that each process may have open (RLIMIT_NOFILE).",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = 1 << 30},
    LIST_END,
};

#define METADATA(where, text)                                                                      \
    {                                                                                              \
        .name = "metadata", .doc = (text), .in = (where), .type = KG_FIELD_STRING_MAP              \
    }
#define IDLE_TIMEOUT                                                                               \
    {                                                                                              \
        .name = "timeout", .doc = "Idle seconds until on_timeout; 0 = never.", .in = KG_IN_BODY,   \
        .type = KG_FIELD_NUMBER, .max = KG_API_SECONDS_MAX, .standard = "3600"                     \
    }
#define ON_TIMEOUT                                                                                 \
    {                                                                                              \
        .name = "on_timeout", .doc = "What happens to an idle sandbox.", .in = KG_IN_BODY,         \
        .type = KG_FIELD_STRING, .values = timeout_ends                                            \
    }
#define NETWORK                                                                                    \
    {                                                                                              \
        .name = "network", .doc = "Reach of the sandbox, or rules.", .in = KG_IN_BODY,             \
        .type = KG_FIELD_NAME_OR_OBJECT, .values = networks                                        \
    }
const kg_field_t kg_fields_sandboxes_create[] = {
    {.name = "template",
     .doc = "Name of the template.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_LINE,
     .min = 1,
     .max = 63},
    {.name = "snapshot",
     .doc = "Id of a snapshot, instead of a template.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING},
    {.name = "name",
     .doc = "Unique name, usable as id: a-z, 0-9 and -, not - at either end.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_NAME,
     .min = 1,
     .max = 63},
    METADATA(KG_IN_BODY, "Names and values of your own."),
    ENV("Environment of every process in it."),
    IDLE_TIMEOUT,
    ON_TIMEOUT,
    {.name = "limits",
     .doc = "Limits of the sandbox.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_OBJECT,
     .fields = sandbox_limits},
    NETWORK,
    {.name = "isolation",
     .doc = "The least isolation that will do.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .values = isolations},
    {.name = "checkpointable",
     .doc =
         "false: its kernels may be forked from a process that has imported everything, which is "
         "quicker and takes less memory, but can't be snapshotted. By default as the template's "
         "`start` says.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_sandboxes_list[] = {
    {.name = "state",
     .doc = "Only those in this state.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_STRING,
     .values = states},
    METADATA(KG_IN_QUERY, "Only those with these values: metadata.NAME=VALUE."),
    QUERY_LIMIT,
    QUERY_AFTER,
    LIST_END,
};

const kg_field_t kg_fields_sandboxes_update[] = {
    PATH_SANDBOX,
    {.name = "name",
     .doc = "Another name; \"\" takes it away.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_LINE,
     .max = 63},
    METADATA(KG_IN_BODY, "Replaces the whole object."),
    IDLE_TIMEOUT,
    ON_TIMEOUT,
    NETWORK,
    LIST_END,
};

/* --- Contexts ------------------------------------------------------------------------------- */

#define LANGUAGE(text)                                                                             \
    {                                                                                              \
        .name = "language", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING,              \
        .format = KG_FORMAT_LINE, .min = 1, .max = 63                                              \
    }

const kg_field_t kg_fields_contexts_create[] = {
    PATH_SANDBOX,
    LANGUAGE("A language, its alias, or a kernelspec's name; the template's main one by default."),
    {.name = "name",
     .doc = "Unique in the sandbox, usable as id: a-z, 0-9 and -, not - at either end.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_NAME,
     .min = 1,
     .max = 63},
    CWD("Where its kernel starts; relative to /workspace."),
    ENV("Environment of its kernel, over the sandbox's."),
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_contexts_update[] = {
    PATH_SANDBOX,
    PATH_CONTEXT,
    {.name = "name",
     .doc = "Another name; \"\" takes it away.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_LINE,
     .max = 63},
    LIST_END,
};

#define CODE(text)                                                                                 \
    {                                                                                              \
        .name = "code", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING,                  \
        .required = true, .max = KG_API_CODE_MAX                                                   \
    }
#define CURSOR                                                                                     \
    {                                                                                              \
        .name = "cursor", .doc = "In code points; at the end by default.", .in = KG_IN_BODY,       \
        .type = KG_FIELD_INTEGER, .max = KG_API_CODE_MAX                                           \
    }

const kg_field_t kg_fields_contexts_complete[] = {
    PATH_SANDBOX, PATH_CONTEXT, CODE("Code around the cursor."), CURSOR, WAIT(KG_IN_BODY),
    BODY_KEY,     LIST_END,
};

const kg_field_t kg_fields_contexts_inspect[] = {
    PATH_SANDBOX,
    PATH_CONTEXT,
    CODE("Code around the cursor."),
    CURSOR,
    {.name = "detail",
     .doc = "1 asks for source code too.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .max = 1,
     .standard = "0"},
    WAIT(KG_IN_BODY),
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_contexts_variables[] = {PATH_SANDBOX, PATH_CONTEXT, WAIT(KG_IN_QUERY),
                                                   LIST_END};

/* --- Runs ----------------------------------------------------------------------------------- */

static const char *const input_policies[] = {"wait", "error", NULL};
const char *const kg_words_disconnect[] = {"detach", "interrupt", "kill", NULL};
const char *const kg_words_exceed[] = {"truncate", "stop", NULL};

static const kg_field_t run_limits[] = {
    LIMIT_OUTPUT("Bytes of stdout and of stderr, each."),
    {.name = "result_bytes",
     .doc = "Bytes of all results.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .standard = "33554432"},
    LIMIT_EVENTS,
    ON_EXCEED,
    LIST_END,
};

const kg_field_t kg_fields_run_code[] = {
    PATH_SANDBOX,
    CODE("What to run."),
    {.name = "context",
     .doc = "Id or name of the context; the default one of the language if absent.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .min = 1,
     .max = KG_API_REF_MAX},
    LANGUAGE("Runs in this language's default context, made on first use."),
    STREAM,
    {.name = "timeout",
     .doc = "Seconds; 0 = none.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_NUMBER,
     .max = KG_RUN_TIMEOUT_MAX_S,
     .standard = "300"},
    ENV("Environment, for this run only."),
    CWD("Working directory, for this run only."),
    {.name = "stdin",
     .doc = "Answers for input(): lines, or a text.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_LINES,
     .max = 1 << 20},
    {.name = "on_input",
     .doc = "What input() does when no line is left: wait (default of streams) or raise (default "
            "otherwise).",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .values = input_policies},
    {.name = "silent",
     .doc = "No results, and no count raised.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    ON_DISCONNECT("What happens when nobody follows any more: detach is the default of streams, "
                  "interrupt otherwise."),
    {.name = "ansi",
     .doc = "Keep colours in tracebacks.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    {.name = "limits",
     .doc = "Limits of this run.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_OBJECT,
     .fields = run_limits},
    RETAIN,
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_runs_list[] = {
    PATH_SANDBOX,
    {.name = "context",
     .doc = "Only those of this context.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_STRING,
     .min = 1,
     .max = KG_API_REF_MAX},
    QUERY_LIMIT,
    QUERY_AFTER,
    LIST_END,
};

const kg_field_t kg_fields_runs_attach[] = {
    PATH_SANDBOX, PATH_RUN, AFTER_SEQ, LATE, LIST_END,
};

const kg_field_t kg_fields_runs_input[] = {
    PATH_SANDBOX,
    PATH_RUN,
    {.name = "value",
     .doc = "What input() returns.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .required = true,
     .max = 1 << 20},
    BODY_KEY,
    LIST_END,
};

/* --- Templates and keys --------------------------------------------------------------------- */

const kg_field_t kg_fields_template[] = {
    PATH_REF("template", "Name of the template."),
    LIST_END,
};

const kg_field_t kg_fields_keys_create[] = {
    {.name = "owner",
     .doc = "Who owns what is made with it; itself by default.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_TOKEN,
     .min = 1,
     .max = KG_KEY_FIELD_MAX},
    {.name = "name",
     .doc = "For people.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_LINE,
     .max = KG_KEY_FIELD_MAX},
    {.name = "scopes",
     .doc = "admin, use, attach:SANDBOX.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRINGS,
     .max = 8,
     .standard = "[\"use\"]"},
    {.name = "expires_in",
     .doc = "Seconds until it ends; never by default.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_NUMBER,
     .min = 1,
     .max = 10 * KG_API_SECONDS_MAX},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_keys_delete[] = {
    PATH_REF("id", "Id of the key."),
    LIST_END,
};
