/* One error value that reaches clients and operators: stable code, message, hint, JSON pointer. */
#ifndef KG_BASE_ERR_H
#define KG_BASE_ERR_H

#include "gateway/base/mem.h"

/* Stable API error codes. X(ENUM, "code", http_status, errno) */
#define KG_ERR_TABLE(X)                                                                            \
    X(INVALID_REQUEST, "invalid_request", 400, EINVAL)                                             \
    X(INVALID_JSON, "invalid_json", 400, EBADMSG)                                                  \
    X(INVALID_FRAME, "invalid_frame", 400, EBADMSG)                                                \
    X(UNAUTHORIZED, "unauthorized", 401, EACCES)                                                   \
    X(FORBIDDEN, "forbidden", 403, EPERM)                                                          \
    X(FOREIGN_ORIGIN, "foreign_origin", 403, EPERM)                                                \
    X(FOREIGN_HOST, "foreign_host", 403, EPERM)                                                    \
    X(NOT_FOUND, "not_found", 404, ENOENT)                                                         \
    X(SANDBOX_NOT_FOUND, "sandbox_not_found", 404, ENOENT)                                         \
    X(CONTEXT_NOT_FOUND, "context_not_found", 404, ENOENT)                                         \
    X(RUN_NOT_FOUND, "run_not_found", 404, ENOENT)                                                 \
    X(PROCESS_NOT_FOUND, "process_not_found", 404, ESRCH)                                          \
    X(TEMPLATE_NOT_FOUND, "template_not_found", 404, ENOENT)                                       \
    X(LANGUAGE_NOT_FOUND, "language_not_found", 400, ENOENT)                                       \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, EINVAL)                                       \
    X(REQUEST_TIMEOUT, "request_timeout", 408, ETIMEDOUT)                                          \
    X(CONFLICT, "conflict", 409, EEXIST)                                                           \
    X(NAME_TAKEN, "name_taken", 409, EEXIST)                                                       \
    X(KEY_REUSED, "key_reused", 409, EEXIST)                                                       \
    X(BUSY, "busy", 409, EBUSY)                                                                    \
    X(NOT_WAITING, "not_waiting", 409, EBUSY)                                                      \
    X(ISOLATION_UNAVAILABLE, "isolation_unavailable", 409, ENOTSUP)                                \
    X(RUN_EXPIRED, "run_expired", 410, ESTALE)                                                     \
    X(UPLOAD_LOST, "upload_lost", 410, ESTALE)                                                     \
    X(LENGTH_REQUIRED, "length_required", 411, EINVAL)                                             \
    X(PRECONDITION_FAILED, "precondition_failed", 412, EINVAL)                                     \
    X(TOO_LARGE, "too_large", 413, E2BIG)                                                          \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, EINVAL)                               \
    X(RANGE_NOT_SATISFIABLE, "range_not_satisfiable", 416, ERANGE)                                 \
    X(UPGRADE_REQUIRED, "upgrade_required", 426, EINVAL)                                           \
    X(HEADERS_TOO_LARGE, "headers_too_large", 431, E2BIG)                                          \
    X(QUOTA_EXCEEDED, "quota_exceeded", 429, EDQUOT)                                               \
    X(QUEUE_FULL, "queue_full", 429, ENOBUFS)                                                      \
    X(INTERNAL, "internal", 500, EIO)                                                              \
    X(OUT_OF_MEMORY, "out_of_memory", 503, ENOMEM)                                                 \
    X(KERNEL_START_FAILED, "kernel_start_failed", 502, EIO)                                        \
    X(KERNEL_TIMEOUT, "kernel_timeout", 504, ETIMEDOUT)                                            \
    X(KERNEL_PROTOCOL, "kernel_protocol", 502, EPROTO)                                             \
    X(NOT_SUPPORTED, "not_supported", 501, ENOSYS)                                                 \
    X(DRAINING, "draining", 503, ESHUTDOWN)                                                        \
    X(STARTING, "starting", 503, EAGAIN)                                                           \
    X(STORAGE_FULL, "storage_full", 507, ENOSPC)                                                   \
    X(CONFIG, "config_invalid", 500, EINVAL)                                                       \
    X(NOTHING_LISTENS, "nothing_listens", 502, ECONNREFUSED)

typedef enum kg_err_code {
    KG_ERR_NONE = 0,
#define KG_ERR_X(name, code, status, num) KG_ERR_##name,
    KG_ERR_TABLE(KG_ERR_X)
#undef KG_ERR_X
    KG_ERR_COUNT
} kg_err_code_t;

/* Value type; zero-initialised means "no error". Never holds secrets: it is logged and sent to
 * clients. */
typedef struct kg_err {
    kg_err_code_t code;
    unsigned retry_after_s; /* 0 = no Retry-After */
    char message[512];
    char hint[256];
    char pointer[160]; /* RFC 6901 pointer to the field at fault, or "" */
} kg_err_t;

/* Fills err (NULL allowed) and returns the table's -errno for the code. */
int kg_err_set(kg_err_t *err, kg_err_code_t code, const char *fmt, ...) KG_PRINTF(3, 4);
/* Puts "prefix: " before the message that is there. Returns the code's -errno. */
int kg_err_wrap(kg_err_t *err, const char *fmt, ...) KG_PRINTF(2, 3);
void kg_err_hint(kg_err_t *err, const char *fmt, ...) KG_PRINTF(2, 3);
/* The hint that clients see: the error's own, else the usual one of its code, else "". Lives as
 * long as err. */
const char *kg_err_hint_of(const kg_err_t *err);
void kg_err_pointer(kg_err_t *err, const char *fmt, ...) KG_PRINTF(2, 3);

const char *kg_err_name(kg_err_code_t code); /* "invalid_request" */
int kg_err_status(kg_err_code_t code);       /* HTTP status */
int kg_err_errno(kg_err_code_t code);        /* positive errno */
/* -ENOMEM or ENOMEM -> OUT_OF_MEMORY and the like; INTERNAL for what means nothing by itself. */
kg_err_code_t kg_err_from_errno(int num);

#endif
