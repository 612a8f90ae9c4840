/* Inner header: measuring and cutting text in its canonical escaped form (proto/json_copy.c), where
 * every escape stands for one byte. Not for other rooms. */
#ifndef KG_RUN_TEXT_H
#define KG_RUN_TEXT_H

#include <stdint.h>

#include "proto/json_scan.h"

/* UTF-8 bytes of the text as decoded. */
size_t kg_text_units(const char *data, size_t len);
/* Longest prefix of at most max units that cuts no character; its units in *ret_units. */
size_t kg_text_split(const char *data, size_t len, size_t max, size_t *ret_units);
/* Where the suffix of at most max units begins; its units in *ret_units. */
size_t kg_text_suffix(const char *data, size_t len, size_t max, size_t *ret_units);
/* For the inside of a JSON string as received (not canonical): a cut <= max that is inside of no
 * escape, surrogate pair or UTF-8 sequence. 0 < result <= len for max >= 16. */
size_t kg_text_raw_floor(const char *data, size_t len, size_t max);
/* Whether the text ends in an escaped newline. */
bool kg_text_ends_nl(const char *data, size_t len);
/* Appends html (canonical escaped) as text: tags, scripts and styles out, entities decoded. */
int kg_text_from_html(kg_buf_t *out, const char *data, size_t len);

/* The inside of a JSON array of canonical strings (`"a","b"`), in pieces that cut no escape, as one
 * text: quotes out, the commas between become \n. */
typedef struct kg_text_join {
    bool string, escape;
} kg_text_join_t;
int kg_text_join(kg_text_join_t *join, kg_buf_t *out, const char *data, size_t len);

/* The last max units of a stream that is being cut. */
typedef struct kg_text_ring {
    kg_buf_t buf;
    size_t units;
} kg_text_ring_t;
int kg_text_ring_push(kg_text_ring_t *ring, const char *data, size_t len, size_t max);
/* Cuts it to at most max units. */
void kg_text_ring_trim(kg_text_ring_t *ring, size_t max);
void kg_text_ring_fini(kg_text_ring_t *ring);

#endif
