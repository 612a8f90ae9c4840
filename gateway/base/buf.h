/* Byte slices (borrowed) and growable buffers (owned). No I/O. */
#ifndef KG_BASE_BUF_H
#define KG_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "gateway/base/mem.h"

/* Borrowed bytes, not NUL-terminated; {NULL,0} is "absent". Public plain data. */
typedef struct kg_slice {
    const char *data;
    size_t len;
} kg_slice_t;

static inline kg_slice_t kg_slice(const char *data, size_t len)
{
    return (kg_slice_t){data, len};
}

static inline kg_slice_t kg_slice_cstr(const char *s)
{
    return (kg_slice_t){s, s ? strlen(s) : 0};
}

bool kg_slice_eq(kg_slice_t a, kg_slice_t b);
bool kg_slice_eq_cstr(kg_slice_t a, const char *b);

/* Growable buffer. Zero-initialised is empty and valid. `data` is NUL-terminated after any
 * successful append (the NUL is not counted in len). All appends return 0 or -ENOMEM and leave the
 * content untouched on failure. */
typedef struct kg_buf {
    char *data;
    size_t len;
    size_t cap;
} kg_buf_t;

void kg_buf_fini(kg_buf_t *buf);  /* frees, leaves it empty and reusable; fit for KG_AUTO */
void kg_buf_clear(kg_buf_t *buf); /* len = 0, keeps memory */
int kg_buf_reserve(kg_buf_t *buf, size_t more);
int kg_buf_append(kg_buf_t *buf, const void *data, size_t len);
int kg_buf_append_slice(kg_buf_t *buf, kg_slice_t s);
int kg_buf_append_cstr(kg_buf_t *buf, const char *s);
int kg_buf_append_char(kg_buf_t *buf, char c);
int kg_buf_printf(kg_buf_t *buf, const char *fmt, ...) KG_PRINTF(2, 3);
int kg_buf_vprintf(kg_buf_t *buf, const char *fmt, va_list ap) KG_PRINTF(2, 0);
/* Removes the first n bytes (n <= len). */
void kg_buf_consume(kg_buf_t *buf, size_t n);
kg_slice_t kg_buf_slice(const kg_buf_t *buf);
/* Moves the memory out (malloc'd, NUL-terminated; never NULL unless OOM on an empty one). */
char *kg_buf_steal(kg_buf_t *buf, size_t *ret_len);

#define KG_AUTO_BUF KG_AUTO(kg_buf_fini)

#endif
