/* The one table of operations. HTTP routes, WebSocket ops, validation and OpenAPI are all made from
 * it. Pure data: a transport finds its operation here, checks the arguments with kg_op_check and
 * hands them to kg_api_call. */
#ifndef KG_API_OP_H
#define KG_API_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/base/err.h"

typedef struct kg_call kg_call_t;

typedef enum kg_field_in {
    KG_IN_PATH,
    KG_IN_QUERY,
    KG_IN_BODY,
    KG_IN_HEADER, /* "upload_length" is Upload-Length */
    KG_IN_FRAME   /* of a WebSocket frame alone: over HTTP it is the body itself */
} kg_field_in_t;

typedef enum kg_field_type {
    KG_FIELD_STRING,
    KG_FIELD_INTEGER,
    KG_FIELD_NUMBER,
    KG_FIELD_BOOLEAN,
    KG_FIELD_STRINGS,        /* array of strings */
    KG_FIELD_STRING_MAP,     /* object whose values are strings */
    KG_FIELD_OBJECT,         /* object with the fields of `fields` */
    KG_FIELD_LINES,          /* string, or array of strings */
    KG_FIELD_NAME_OR_OBJECT, /* one of `values`, or an object of any shape */
    KG_FIELD_TEXT_OR_OBJECT  /* an object of any shape, or its JSON text */
} kg_field_type_t;

/* What a string must look like besides its length. */
typedef enum kg_field_format {
    KG_FORMAT_ANY,
    KG_FORMAT_NAME,  /* [a-z0-9]([a-z0-9-]*[a-z0-9])? */
    KG_FORMAT_TOKEN, /* printable ASCII without spaces */
    KG_FORMAT_LINE,  /* no control characters */
    KG_FORMAT_PATH,  /* no U+0000 (never there), not empty */
    KG_FORMAT_ENV    /* string maps: keys are names of environment variables */
} kg_field_format_t;

/* Public plain data. min and max: length in bytes of strings, count of lists and maps, value of
 * numbers; max 0 = the default of the type (see validate.c). */
typedef struct kg_field {
    const char *name;
    const char *doc;
    kg_field_in_t in;
    kg_field_type_t type;
    kg_field_format_t format;
    bool required;
    int64_t min;
    int64_t max;
    const char *const *values;     /* enumeration of strings, NULL-terminated */
    const struct kg_field *fields; /* of KG_FIELD_OBJECT; ends with name NULL */
    const char *standard;          /* default, as JSON text, for people and OpenAPI */
} kg_field_t;

/* Who may call. */
typedef enum kg_right {
    KG_RIGHT_NONE,    /* open to everybody */
    KG_RIGHT_USE,     /* scope use or admin */
    KG_RIGHT_SANDBOX, /* scope use or admin, or attach:{sandbox} for the one that is named: what is
                         in it, not the sandbox itself, nor which kernels are there */
    KG_RIGHT_HANDLER, /* any key: the handler says more, when it knows what is asked for */
    KG_RIGHT_ADMIN    /* scope admin */
} kg_right_t;

enum {
    KG_OP_STREAMS = 1 << 0,   /* answers events of a run (kg_call_follow) */
    KG_OP_CREATES = 1 << 1,   /* 201 + Location */
    KG_OP_NO_BODY = 1 << 2,   /* 204 */
    KG_OP_HTTP_ONLY = 1 << 3, /* no WebSocket op (health, metrics, pages) */
    KG_OP_TEXT = 1 << 4,      /* answers text, not JSON */
    KG_OP_MISSING =
        1 << 5, /* 501: in the contract, not in this build; `response` says what is missing */
    KG_OP_OWN_KEY = 1 << 6,     /* its idempotency key is handled by the context room */
    KG_OP_SECRET = 1 << 7,      /* its answer is shown once and never remembered */
    KG_OP_NEEDS_READY = 1 << 8, /* 503 while starting and draining (what would start something) */
    KG_OP_RAW_IN = 1 << 9,      /* its HTTP body is bytes, taken as they come (kg_call_body) */
    KG_OP_RAW_OUT = 1 << 10,    /* over HTTP it answers bytes (kg_call_give) */
    KG_OP_EVENTS = 1 << 11,     /* answers events of a source (kg_call_give) */
    KG_OP_TUS = 1 << 12,        /* speaks tus 1.0 */
    KG_OP_TEXT_IN = 1 << 13     /* its HTTP body is JSON that is no tree to the transport: the text
                                   of its field in KG_IN_FRAME that is required */
};

typedef void kg_op_fn(kg_call_t *call);

/* Public plain data, all static. */
typedef struct kg_op {
    const char *name;         /* "contexts.reset" */
    const char *method;       /* "POST" */
    const char *path;         /* "/v1/sandboxes/{sandbox}/contexts/{context}/reset" */
    const char *doc;          /* one line */
    const kg_field_t *fields; /* ends with name NULL; NULL = none */
    kg_right_t right;
    unsigned flags;
    const char *response; /* schema of the answer, "" = none */
    kg_op_fn *handler;
} kg_op_t;

/* All operations, in the order of the contract. */
const kg_op_t *kg_ops(size_t *ret_count);
/* By its WebSocket name; NULL = none such (HTTP-only ones are not found). */
const kg_op_t *kg_op_find(const char *name);
/* Why kg_op_find found none: HTTP has it alone, or nobody; with the name that is nearest. Returns
 * -errno, as kg_err_set does. */
int kg_op_unknown(const char *name, kg_err_t *err);
const kg_field_t *kg_op_field(const kg_op_t *op, const char *name);

#endif
