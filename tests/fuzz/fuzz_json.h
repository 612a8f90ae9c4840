/* What holds of every JSON text that we send. */
#ifndef FUZZ_JSON_H
#define FUZZ_JSON_H

#include <stdlib.h>

#include "gateway/base/buf.h"
#include "gateway/base/utf8.h"

static inline void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Valid UTF-8 without a single control character: none is left outside strings (compact) or inside.
 */
static inline void must_be_clean(const kg_buf_t *text)
{
    must(kg_utf8_valid(text->data, text->len));
    for (size_t i = 0; i < text->len; i++) {
        must((unsigned char)text->data[i] >= 0x20);
    }
}

#endif
