/* Fields that many operations take. For fields*.c alone. */
#ifndef KG_API_FIELDS_COMMON_H
#define KG_API_FIELDS_COMMON_H

#include "gateway/api/fields.h"
#include "gateway/api/limits.h"
#include "gateway/context/run.h"

#define LIST_END                                                                                   \
    {                                                                                              \
        .name = NULL                                                                               \
    }

#define PATH_REF(field, text)                                                                      \
    {                                                                                              \
        .name = (field), .doc = (text), .in = KG_IN_PATH, .type = KG_FIELD_STRING,                 \
        .required = true, .min = 1, .max = KG_API_REF_MAX                                          \
    }
#define PATH_SANDBOX PATH_REF("sandbox", "Id or name of the sandbox.")
#define PATH_CONTEXT PATH_REF("context", "Id or name of the context.")
#define PATH_RUN PATH_REF("run", "Id of the run.")
#define BODY_KEY                                                                                   \
    {                                                                                              \
        .name = "key",                                                                             \
        .doc = "Idempotency key: the same request with the same key is done once (also as header " \
               "Idempotency-Key).",                                                                \
        .in = KG_IN_BODY, .type = KG_FIELD_STRING, .format = KG_FORMAT_TOKEN, .min = 1,            \
        .max = KG_API_KEY_MAX                                                                      \
    }
#define WAIT(where)                                                                                \
    {                                                                                              \
        .name = "wait", .doc = "Seconds to wait for running code; 0 answers 409 busy at once.",    \
        .in = (where), .type = KG_FIELD_NUMBER, .max = 300, .standard = "0"                        \
    }
#define QUERY_LIMIT                                                                                \
    {                                                                                              \
        .name = "limit", .doc = "Items in one answer.", .in = KG_IN_QUERY,                         \
        .type = KG_FIELD_INTEGER, .min = 1, .max = 1000, .standard = "100"                         \
    }
#define QUERY_AFTER                                                                                \
    {                                                                                              \
        .name = "after", .doc = "`next` of the answer before.", .in = KG_IN_QUERY,                 \
        .type = KG_FIELD_STRING, .min = 1, .max = KG_API_REF_MAX                                   \
    }

#define ENV(text)                                                                                  \
    {                                                                                              \
        .name = "env", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING_MAP,               \
        .format = KG_FORMAT_ENV                                                                    \
    }
#define CWD(text)                                                                                  \
    {                                                                                              \
        .name = "cwd", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING,                   \
        .format = KG_FORMAT_PATH, .min = 1, .max = 4095                                            \
    }

/* ---- of runs and of commands ---- */

extern const char *const kg_words_disconnect[];
extern const char *const kg_words_exceed[];

#define LIMIT_OUTPUT(text)                                                                         \
    {                                                                                              \
        .name = "output_bytes", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_INTEGER,         \
        .min = 1, .standard = "16777216"                                                           \
    }
#define LIMIT_EVENTS                                                                               \
    {                                                                                              \
        .name = "events", .doc = "Events.", .in = KG_IN_BODY, .type = KG_FIELD_INTEGER, .min = 1,  \
        .standard = "1000000"                                                                      \
    }
#define ON_EXCEED                                                                                  \
    {                                                                                              \
        .name = "on_exceed", .doc = "Go on without, or stop as output_limit.", .in = KG_IN_BODY,   \
        .type = KG_FIELD_STRING, .values = kg_words_exceed, .standard = "\"truncate\""             \
    }
#define STREAM                                                                                     \
    {                                                                                              \
        .name = "stream",                                                                          \
        .doc = "Answer events as they come. Default: false over HTTP, true over WebSocket.",       \
        .in = KG_IN_BODY, .type = KG_FIELD_BOOLEAN                                                 \
    }
#define ON_DISCONNECT(text)                                                                        \
    {                                                                                              \
        .name = "on_disconnect", .doc = (text), .in = KG_IN_BODY, .type = KG_FIELD_STRING,         \
        .values = kg_words_disconnect                                                              \
    }
#define RETAIN                                                                                     \
    {                                                                                              \
        .name = "retain", .doc = "Seconds for which its log stays readable after the end.",        \
        .in = KG_IN_BODY, .type = KG_FIELD_NUMBER, .max = KG_RUN_RETAIN_MAX_S, .standard = "300"   \
    }
#define AFTER_SEQ                                                                                  \
    {                                                                                              \
        .name = "after", .doc = "Begin after this seq; all by default.", .in = KG_IN_QUERY,        \
        .type = KG_FIELD_INTEGER, .min = -1, .standard = "-1"                                      \
    }
#define LATE                                                                                       \
    {                                                                                              \
        .name = "late", .doc = "Go on after the result, until the log expires.",                   \
        .in = KG_IN_QUERY, .type = KG_FIELD_BOOLEAN, .standard = "false"                           \
    }

#endif
