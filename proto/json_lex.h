/* Inner header of proto/json_*.c: the tokenizer that check and copy share, and the string scan. Not
 * for other rooms. */
#ifndef KG_PROTO_JSON_LEX_H
#define KG_PROTO_JSON_LEX_H

#include "proto/json_scan.h"

#define KG_JSON_DEPTH_HARD 1024 /* what the bit stack holds; max_depth is clamped to it */

typedef enum kg_json_token_kind {
    KG_JSON_TOKEN_SCALAR,
    KG_JSON_TOKEN_KEY,
    KG_JSON_TOKEN_OPEN,
    KG_JSON_TOKEN_CLOSE,
} kg_json_token_kind_t;

typedef struct kg_json_token {
    kg_json_token_kind_t kind;
    kg_json_type_t type; /* of the scalar, or of the container opened or closed */
    kg_slice_t raw;
} kg_json_token_t;

typedef struct kg_json_lex {
    const char *p;
    const char *end;
    unsigned depth;
    unsigned max_depth;
    unsigned state;
    uint64_t is_object[KG_JSON_DEPTH_HARD / 64]; /* one bit for each open container */
} kg_json_lex_t;

void kg_json_lex_init(kg_json_lex_t *lex, kg_slice_t text, unsigned max_depth);
/* 1 and the next token; 0 at the end of the one value; -EBADMSG, -E2BIG. */
int kg_json_lex_next(kg_json_lex_t *lex, kg_json_token_t *ret_token);

/* p is behind the opening quote: returns what is behind the closing one, NULL when there is none or
 * an escape is malformed. Control characters and bad UTF-8 pass. */
const char *kg_json_string_end(const char *p, const char *end);
/* Four hexadecimal digits at p, or -1. */
int kg_json_hex4(const char *p, const char *end);

/* Eight bytes at a time: a mask that is not 0 when one of them is b, or below n (n <= 128). */
#define KG_JSON_ONES UINT64_C(0x0101010101010101)
#define KG_JSON_HIGHS UINT64_C(0x8080808080808080)
static inline uint64_t kg_json_has_less(uint64_t word, unsigned char n)
{
    return (word - KG_JSON_ONES * n) & ~word & KG_JSON_HIGHS;
}

static inline uint64_t kg_json_has_byte(uint64_t word, unsigned char b)
{
    return kg_json_has_less(word ^ (KG_JSON_ONES * b), 1);
}

#endif
