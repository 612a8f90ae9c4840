/* UTF-8 (RFC 3629): validation, repair with U+FFFD by maximal subparts (Unicode ch. 3.9), code
 * point counting. */
#ifndef KG_BASE_UTF8_H
#define KG_BASE_UTF8_H

#include "gateway/base/buf.h"

/* Length of the well-formed sequence at p, where n >= 1 bytes are; 0 when there is none. In the
 * header because the loops over kernel text live in two rooms. */
static inline size_t kg_utf8_step(const char *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    if (b[0] < 0x80) {
        return 1;
    }
    if (b[0] < 0xC2 || n < 2 || (b[1] & 0xC0) != 0x80) {
        return 0;
    }
    if (b[0] < 0xE0) {
        return 2;
    }
    if (n < 3 || (b[2] & 0xC0) != 0x80) {
        return 0;
    }
    if (b[0] < 0xF0) { /* overlong forms and surrogates show in the second byte */
        return (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) ? 0 : 3;
    }
    if (n < 4 || (b[3] & 0xC0) != 0x80 || b[0] > 0xF4) {
        return 0;
    }
    return (b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F) ? 0 : 4;
}

/* Length of the longest valid prefix; == len when all is valid. Surrogates, overlongs, > U+10FFFF
 * are invalid. */
size_t kg_utf8_valid_prefix(const char *data, size_t len);
bool kg_utf8_valid(const char *data, size_t len);
/* Appends data with every bad sequence replaced by U+FFFD. */
int kg_utf8_repair(kg_buf_t *out, const char *data, size_t len);
/* Largest n <= max that does not cut a code point of data (max <= len). */
size_t kg_utf8_floor(const char *data, size_t len, size_t max);
size_t kg_utf8_count(const char *data, size_t len);
/* Byte offset of code point index cp; len when past the end. */
size_t kg_utf8_offset(const char *data, size_t len, size_t cp);

/* Incremental decoder for byte streams (kernel's stdout pipe): keeps up to 3 bytes of an unfinished
 * code point. */
typedef struct kg_utf8_stream {
    unsigned char held[4];
    unsigned held_len;
} kg_utf8_stream_t;
int kg_utf8_stream_push(kg_utf8_stream_t *s, kg_buf_t *out, const char *data, size_t len);
int kg_utf8_stream_end(kg_utf8_stream_t *s, kg_buf_t *out);

#endif
