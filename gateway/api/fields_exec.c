/* gateway/api: what commands and processes take. */
#include "gateway/api/fields_common.h"

static const char *const users[] = {"user", "root", NULL};
static const char *const encodings[] = {"text", "base64", NULL};

#define PATH_PID                                                                                   \
    {                                                                                              \
        .name = "pid", .doc = "Process id, as the sandbox sees it.", .in = KG_IN_PATH,             \
        .type = KG_FIELD_INTEGER, .required = true, .min = 1, .max = INT32_MAX                     \
    }
#define SIZE(field, text, needed)                                                                  \
    {                                                                                              \
        .name = (field), .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_INTEGER,                \
        .required = (needed), .min = 1, .max = UINT16_MAX                                          \
    }
#define ENCODING(field, text)                                                                      \
    {                                                                                              \
        .name = (field), .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING,                 \
        .values = encodings, .standard = "\"text\""                                                \
    }

static const kg_field_t pty_size[] = {SIZE("cols", "Columns; 80 by default.", false),
                                      SIZE("rows", "Rows; 24 by default.", false), LIST_END};

static const kg_field_t exec_limits[] = {
    LIMIT_OUTPUT("Bytes of stdout and of stderr, each, as they are sent."),
    LIMIT_EVENTS,
    ON_EXCEED,
    LIST_END,
};

const kg_field_t kg_fields_exec[] = {
    PATH_SANDBOX,
    {.name = "cmd",
     .doc = "A string for `sh -c`, or an array of strings: program and arguments.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_LINES,
     .required = true,
     .min = 1,
     .max = KG_API_CODE_MAX}, /* the configured limit is the context room's */
    {.name = "user",
     .doc = "user, or root of the sandbox.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .values = users,
     .standard = "\"user\""},
    CWD("Where it starts; relative to /workspace."),
    ENV("Environment, over the sandbox's."),
    {.name = "timeout",
     .doc = "Seconds until SIGKILL for it and all that came of it; 0 = none. 300 by default, none "
            "for a background process.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_NUMBER,
     .max = KG_RUN_TIMEOUT_MAX_S},
    {.name = "stdin",
     .doc = "What it reads from stdin, then its end; nothing by default.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .max = 2 << 20},
    ENCODING("stdin_encoding", "How stdin is written here."),
    {.name = "stdin_open",
     .doc = "Keep stdin open for processes.input. Default: true with a pty, and in the background "
            "where no stdin is given.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN},
    ENCODING("encoding",
             "How stdout and stderr are told: text with U+FFFD for bad bytes, or base64."),
    STREAM,
    {.name = "background",
     .doc = "Answer 201 with the process at once; it goes on by itself.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    {.name = "keep_alive",
     .doc = "A background process counts as activity of its sandbox.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    {.name = "pty",
     .doc = "A terminal instead of pipes; stdout has all that it shows.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_OBJECT,
     .fields = pty_size},
    ON_DISCONNECT("What happens when nobody follows any more: detach is the default of streams and "
                  "background processes, kill otherwise. interrupt is SIGINT, then SIGKILL."),
    {.name = "limits",
     .doc = "Limits of its output.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_OBJECT,
     .fields = exec_limits},
    RETAIN,
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_process[] = {PATH_SANDBOX, PATH_PID, LIST_END};

const kg_field_t kg_fields_processes_input[] = {
    PATH_SANDBOX,
    PATH_PID,
    {.name = "data",
     .doc = "What it reads next.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .max = 2 << 20},
    ENCODING("encoding", "How data is written here."),
    {.name = "eof",
     .doc = "The end of its stdin (of a pty: ^D), after data.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_BOOLEAN,
     .standard = "false"},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_processes_signal[] = {
    PATH_SANDBOX,
    PATH_PID,
    {.name = "signal",
     .doc = "By name, like SIGTERM; goes to its process group.",
     .in = KG_IN_BODY,
     .type = KG_FIELD_STRING,
     .format = KG_FORMAT_TOKEN,
     .required = true,
     .min = 1,
     .max = 16},
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_processes_resize[] = {
    PATH_SANDBOX, PATH_PID, SIZE("cols", "Columns.", true), SIZE("rows", "Rows.", true),
    BODY_KEY,     LIST_END,
};

const kg_field_t kg_fields_processes_attach[] = {
    PATH_SANDBOX, PATH_PID, AFTER_SEQ, LATE, LIST_END,
};
