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
