/* gateway/base: byte slices and growable buffers. Growth is by half, so that a buffer that holds a
 * message of 100 MB does not ask for 200. Every append makes room first and only then writes: a
 * failed one leaves the content as it was. */
#include "gateway/base/buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BUF_FIRST = 64
};

bool kg_slice_eq(kg_slice_t a, kg_slice_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool kg_slice_eq_cstr(kg_slice_t a, const char *b)
{
    return kg_slice_eq(a, kg_slice_cstr(b));
}

void kg_buf_fini(kg_buf_t *buf)
{
    if (!buf) {
        return;
    }
    free(buf->data);
    *buf = (kg_buf_t){0};
}

void kg_buf_clear(kg_buf_t *buf)
{
    buf->len = 0;
    if (buf->data) {
        buf->data[0] = '\0';
    }
}

int kg_buf_reserve(kg_buf_t *buf, size_t more)
{
    size_t need;
    if (!kg_add_size(buf->len, more, &need) || !kg_add_size(need, 1, &need)) {
        return -ENOMEM;
    }
    if (need <= buf->cap) {
        return 0;
    }
    size_t cap = buf->cap < BUF_FIRST ? BUF_FIRST : buf->cap;
    if (!kg_add_size(cap, cap / 2, &cap) || cap < need) {
        cap = need;
    }
    char *data = realloc(buf->data, cap);
    if (!data) {
        return -ENOMEM;
    }
    buf->data = data;
    buf->cap = cap;
    buf->data[buf->len] = '\0';
    return 0;
}

int kg_buf_append(kg_buf_t *buf, const void *data, size_t len)
{
    int rc = kg_buf_reserve(buf, len);
    if (rc < 0) {
        return rc;
    }
    if (len > 0) {
        memcpy(buf->data + buf->len, data, len);
        buf->len += len;
    }
    buf->data[buf->len] = '\0';
    return 0;
}

int kg_buf_append_slice(kg_buf_t *buf, kg_slice_t s)
{
    return kg_buf_append(buf, s.data, s.len);
}

int kg_buf_append_cstr(kg_buf_t *buf, const char *s)
{
    return kg_buf_append(buf, s, s ? strlen(s) : 0);
}

int kg_buf_append_char(kg_buf_t *buf, char c)
{
    return kg_buf_append(buf, &c, 1);
}

int kg_buf_vprintf(kg_buf_t *buf, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, ap);
    int rc = len < 0 ? -ENOMEM : kg_buf_reserve(buf, (size_t)len);
    if (rc == 0) {
        (void)vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, again);
        buf->len += (size_t)len;
    }
    va_end(again);
    return rc;
}

int kg_buf_printf(kg_buf_t *buf, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = kg_buf_vprintf(buf, fmt, ap);
    va_end(ap);
    return rc;
}

void kg_buf_consume(kg_buf_t *buf, size_t n)
{
    if (n >= buf->len) {
        kg_buf_clear(buf);
        return;
    }
    if (n > 0) {
        memmove(buf->data, buf->data + n, buf->len - n + 1);
        buf->len -= n;
    }
}

kg_slice_t kg_buf_slice(const kg_buf_t *buf)
{
    return kg_slice(buf->data, buf->len);
}

char *kg_buf_steal(kg_buf_t *buf, size_t *ret_len)
{
    if (kg_buf_reserve(buf, 0) < 0) {
        return NULL;
    }
    char *data = buf->data;
    if (ret_len) {
        *ret_len = buf->len;
    }
    *buf = (kg_buf_t){0};
    return data;
}
