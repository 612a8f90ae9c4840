/* One-pass reader of JSON that kernels send: checks well-formedness (RFC 8259), bounds depth,
 * yields slices, never a tree. Kernels legally send what tree parsers refuse: \u0000, integers over
 * 64 bits, 1e400, lone surrogates, bad UTF-8, duplicate keys, NaN. Such input is repaired when
 * copied out (see kg_json_copy); duplicate keys: the last wins. */
#ifndef KG_PROTO_JSON_SCAN_H
#define KG_PROTO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/base/buf.h"

#define KG_JSON_DEPTH_MAX 128

typedef enum kg_json_type {
    KG_JSON_ABSENT = 0,
    KG_JSON_NULL,
    KG_JSON_TRUE,
    KG_JSON_FALSE,
    KG_JSON_NUMBER, /* NaN, Infinity and -Infinity too: raw tells (kg_json_copy writes null for
                       them) */
    KG_JSON_STRING,
    KG_JSON_ARRAY,
    KG_JSON_OBJECT
} kg_json_type_t;

/* A value inside the scanned text: raw is the whole value ("…" with its quotes). Borrowed from the
 * text. */
typedef struct kg_json_value {
    kg_json_type_t type;
    kg_slice_t raw;
} kg_json_value_t;

/* Checks that text is exactly one JSON value. Lenient as stated above (bad UTF-8 in strings, raw
 * control characters in strings, NaN/Infinity are accepted). 0, -EBADMSG (malformed), -E2BIG
 * (deeper than max_depth). */
int kg_json_check(kg_slice_t text, unsigned max_depth, kg_json_value_t *ret_value);

/* Iterates members of an object / elements of an array that kg_json_check accepted. Of an unchecked
 * one it yields members up to where the text is broken, and stays inside of it. */
typedef struct kg_json_iter {
    const char *p;
    const char *end;
    bool object;
} kg_json_iter_t;
void kg_json_iter_init(kg_json_iter_t *it, kg_json_value_t container);
/* true while there is one more. key is the raw key with quotes ({NULL,0} in arrays). */
bool kg_json_iter_next(kg_json_iter_t *it, kg_slice_t *ret_key, kg_json_value_t *ret_value);

/* Member of an object by (plain ASCII) name, last of duplicates; type ABSENT when missing or not an
 * object. */
kg_json_value_t kg_json_get(kg_json_value_t object, const char *name);
/* Several members in one pass; names and ret_values have n entries. */
void kg_json_get_many(kg_json_value_t object,
                      const char *const *names,
                      kg_json_value_t *ret_values,
                      size_t n);
/* Compares a raw key with a plain name (escapes in the key are decoded). */
bool kg_json_key_eq(kg_slice_t raw_key, const char *name);

/* Appends the value as valid, compact, canonical JSON in UTF-8: bad UTF-8 and lone surrogates
 * become U+FFFD, raw control characters are escaped, ESC is always \u001b (lower case),
 * NaN/Infinity become null, space between tokens is dropped, numbers are kept to the letter;
 * objects keep the last of each key (above a million members all, see json_copy.c). Checks on its
 * way what kg_json_check would: -EBADMSG, -E2BIG (deeper than KG_JSON_DEPTH_MAX), nothing appended.
 */
int kg_json_copy(kg_buf_t *out, kg_json_value_t value);
/* Same for the inside of a string value, without its quotes. */
int kg_json_copy_string_body(kg_buf_t *out, kg_json_value_t string);
/* Decodes a string value to UTF-8 bytes (may hold NUL); repaired as above. */
int kg_json_decode_string(kg_buf_t *out, kg_json_value_t string);
/* Integer value if the number is one (3 and 3.0, not 3e0) and fits; else -EINVAL / -ERANGE. */
int kg_json_int(kg_json_value_t number, int64_t *ret);

/* Writing: appends bytes as the inside of a JSON string (no quotes): escapes, repairs UTF-8. */
int kg_json_escape(kg_buf_t *out, const char *data, size_t len);
/* Appends "…" with quotes. */
int kg_json_quote(kg_buf_t *out, const char *data, size_t len);
int kg_json_quote_cstr(kg_buf_t *out, const char *s); /* NULL -> null */

/* Works on canonical escaped text (inside of a string as kg_json_copy_string_body writes it): ANSI
 * CSI/OSC sequences removed, other short escape sequences too. State carries sequences across
 * chunks (each cut by kg_json_escaped_floor); an unfinished one at the very end is dropped, a
 * malformed one never takes plain text behind it along. */
typedef struct kg_ansi_strip {
    unsigned state;
} kg_ansi_strip_t;
int kg_ansi_strip_escaped(kg_ansi_strip_t *s, kg_buf_t *out, const char *data, size_t len);
/* Largest n <= max that cuts neither an escape (\n, \u0000) nor a UTF-8 sequence of canonical
 * escaped text. */
size_t kg_json_escaped_floor(const char *data, size_t len, size_t max);

#endif
