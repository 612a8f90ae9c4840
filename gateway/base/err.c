/* gateway/base: the error value. Texts may quote a peer's bytes, and they end up in JSON: what is
 * stored is always whole, valid UTF-8, cut at a code point where it does not fit. */
#include "gateway/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/utf8.h"

enum {
    FIELD_MAX = sizeof(((kg_err_t *)NULL)->message)
};

typedef struct err_row {
    const char *name;
    int status;
    int num;
} err_row_t;

static const err_row_t err_rows[KG_ERR_COUNT] = {[KG_ERR_NONE] = {"ok", 200, 0},
#define KG_ERR_X(sym, text, http, errnum) [KG_ERR_##sym] = {(text), (http), (errnum)},
                                                 KG_ERR_TABLE(KG_ERR_X)
#undef KG_ERR_X
};

/* What to do about each, where the place that found the error said nothing closer. */
static const char *const usual_hints[KG_ERR_COUNT] = {
    [KG_ERR_INVALID_REQUEST] = "GET /v1/openapi.yaml has every field, its type and its bounds.",
    [KG_ERR_INVALID_JSON] = "Send one JSON object in UTF-8, no key twice.",
    [KG_ERR_INVALID_FRAME] = "Send one JSON object in each text frame.",
    [KG_ERR_UNAUTHORIZED] = "Send Authorization: Bearer KEY. sandald keys add makes one.",
    [KG_ERR_FORBIDDEN] = "The scopes of the key decide, inside a sandbox the rights of its user.",
    [KG_ERR_FOREIGN_ORIGIN] = "The operator can name the origin in cors.origins.",
    [KG_ERR_FOREIGN_HOST] = "The operator can name the host in allowed_hosts.",
    [KG_ERR_NOT_FOUND] = "Look whether the id or path is right and still there.",
    [KG_ERR_SANDBOX_NOT_FOUND] = "GET /v1/sandboxes lists those of your key.",
    [KG_ERR_CONTEXT_NOT_FOUND] = "GET /v1/sandboxes/{id}/contexts lists them.",
    [KG_ERR_RUN_NOT_FOUND] = "GET /v1/sandboxes/{id}/runs lists those that are kept.",
    [KG_ERR_PROCESS_NOT_FOUND] = "GET /v1/sandboxes/{id}/processes lists them.",
    [KG_ERR_TEMPLATE_NOT_FOUND] = "GET /v1/templates lists them.",
    [KG_ERR_LANGUAGE_NOT_FOUND] = "GET /v1/templates shows which languages each has.",
    [KG_ERR_METHOD_NOT_ALLOWED] = "The Allow header names the methods of this path.",
    [KG_ERR_REQUEST_TIMEOUT] = "Send the whole request without long pauses.",
    [KG_ERR_CONFLICT] = "Read how it stands now, then try again.",
    [KG_ERR_NAME_TAKEN] = "Choose another name, or use what has this one: a name works as an id.",
    [KG_ERR_KEY_REUSED] = "A key stands for one request: take a new one for another.",
    [KG_ERR_BUSY] = "Try again when it has ended, or interrupt it.",
    [KG_ERR_NOT_WAITING] = "Only what has asked for input takes it.",
    [KG_ERR_ISOLATION_UNAVAILABLE] = "sandald doctor says what this host can do, and why not more.",
    [KG_ERR_RUN_EXPIRED] = "GET .../runs/{run} has its Execution for an hour, or until a restart.",
    [KG_ERR_UPLOAD_LOST] = "Begin the upload anew.",
    [KG_ERR_LENGTH_REQUIRED] =
        "Send Content-Length. Files of unknown length go by POST /v1/sandboxes/{id}/fs/uploads.",
    [KG_ERR_PRECONDITION_FAILED] = "It has changed: read it and its ETag again.",
    [KG_ERR_TOO_LARGE] = "Data of any size goes by PUT /v1/sandboxes/{id}/fs/file.",
    [KG_ERR_UNSUPPORTED_MEDIA_TYPE] = "Send Content-Type: application/json.",
    [KG_ERR_RANGE_NOT_SATISFIABLE] = "The Content-Range of this answer has the size.",
    [KG_ERR_UPGRADE_REQUIRED] =
        "Open a WebSocket: GET with Upgrade: websocket and Sec-WebSocket-Version: 13.",
    [KG_ERR_HEADERS_TOO_LARGE] = "Send fewer or shorter headers.",
    [KG_ERR_QUOTA_EXCEEDED] = "End what is no longer needed, or ask the operator for more.",
    [KG_ERR_QUEUE_FULL] = "Wait until something has ended, then try again.",
    [KG_ERR_INTERNAL] = "The gateway is at fault: its log says more.",
    [KG_ERR_OUT_OF_MEMORY] = "Try again later, or with less at once.",
    [KG_ERR_KERNEL_START_FAILED] = "What the kernel said last is in the message, or in the log.",
    [KG_ERR_KERNEL_TIMEOUT] = "Reset the context, or give it more memory or cpus.",
    [KG_ERR_KERNEL_PROTOCOL] = "Reset the context.",
    [KG_ERR_NOT_SUPPORTED] = "sandald doctor says what this host has.",
    [KG_ERR_DRAINING] = "Try again when the gateway is back.",
    [KG_ERR_STARTING] = "Try again in a moment.",
    [KG_ERR_STORAGE_FULL] = "Remove files, or end sandboxes.",
    [KG_ERR_CONFIG] = "sandald-config(5) has every key.",
    [KG_ERR_NOTHING_LISTENS] = "Start a server on that port of the sandbox, then try again.",
};

static const err_row_t *row_of(kg_err_code_t code)
{
    return (unsigned)code < KG_ERR_COUNT ? &err_rows[code] : &err_rows[KG_ERR_INTERNAL];
}

/* Formats into a fixed field; never leaves half a code point or a bad byte behind. */
static KG_PRINTF(3, 0) void fill(char *field, size_t cap, const char *fmt, va_list ap)
{
    char text[FIELD_MAX + 4]; /* a few bytes more than fit: the cut must see what follows it */
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) {
        text[0] = '\0';
    }
    size_t have = strlen(text);
    have = kg_utf8_floor(text, have, have < cap ? have : cap - 1);
    for (size_t i = kg_utf8_valid_prefix(text, have); i < have;
         i += kg_utf8_valid_prefix(text + i, have - i)) {
        text[i] = '?';
    }
    memcpy(field, text, have);
    field[have] = '\0';
}

int kg_err_set(kg_err_t *err, kg_err_code_t code, const char *fmt, ...)
{
    if (err) {
        *err = (kg_err_t){.code = code};
        va_list ap;
        va_start(ap, fmt);
        fill(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
    }
    return -kg_err_errno(code);
}

int kg_err_wrap(kg_err_t *err, const char *fmt, ...)
{
    if (!err) {
        return -EIO;
    }
    if (err->code == KG_ERR_NONE) { /* never turn a failure without a reason into success */
        err->code = KG_ERR_INTERNAL;
    }
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    fill(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    size_t have = strlen(err->message);
    if (old[0] != '\0' && have + 2 < sizeof err->message) {
        size_t room = sizeof err->message - have - 3;
        size_t len = strlen(old);
        size_t keep = kg_utf8_floor(old, len, room < len ? room : len);
        memcpy(err->message + have, ": ", 2);
        memcpy(err->message + have + 2, old, keep);
        err->message[have + 2 + keep] = '\0';
    }
    return -kg_err_errno(err->code);
}

void kg_err_hint(kg_err_t *err, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err->hint, sizeof err->hint, fmt, ap);
        va_end(ap);
    }
}

const char *kg_err_hint_of(const kg_err_t *err)
{
    const char *usual = (unsigned)err->code < KG_ERR_COUNT ? usual_hints[err->code] : NULL;
    return err->hint[0] != '\0' || !usual ? err->hint : usual;
}

void kg_err_pointer(kg_err_t *err, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err->pointer, sizeof err->pointer, fmt, ap);
        va_end(ap);
    }
}

const char *kg_err_name(kg_err_code_t code)
{
    return row_of(code)->name;
}

int kg_err_status(kg_err_code_t code)
{
    return row_of(code)->status;
}

int kg_err_errno(kg_err_code_t code)
{
    return row_of(code)->num;
}

/* Only numbers that mean one thing wherever they come from: a bare EINVAL or ENOENT out of the
 * depths is our fault, not the client's. */
kg_err_code_t kg_err_from_errno(int num)
{
    switch (num < 0 ? -num : num) {
    case 0:
        return KG_ERR_NONE;
    case ENOMEM:
        return KG_ERR_OUT_OF_MEMORY;
    case ENOSPC:
        return KG_ERR_STORAGE_FULL;
    case EDQUOT:
        return KG_ERR_QUOTA_EXCEEDED;
    case ENOBUFS:
        return KG_ERR_QUEUE_FULL;
    case E2BIG:
        return KG_ERR_TOO_LARGE;
    case EPROTO:
        return KG_ERR_KERNEL_PROTOCOL;
    case ENOSYS:
        return KG_ERR_NOT_SUPPORTED;
    case ESHUTDOWN:
        return KG_ERR_DRAINING;
    default:
        return KG_ERR_INTERNAL;
    }
}
