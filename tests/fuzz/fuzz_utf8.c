/* UTF-8: whatever comes in, what repair writes is valid; streams cut anywhere give the same. */
#include <stdint.h>
#include <stdlib.h>

#include "gateway/base/utf8.h"

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t len = size - 2;
    KG_AUTO_FREE char *text = malloc(len + 1); /* its own block: reads past the end are seen */
    must(text != NULL);
    memcpy(text, data + 2, len);
    char *exact = len ? realloc(text, len) : text;
    text = exact ? exact : text;
    size_t a = data[0] % (len + 1);
    size_t b = a + data[1] % (len - a + 1);

    KG_AUTO_BUF kg_buf_t whole = {0};
    must(kg_buf_reserve(&whole, 0) == 0); /* never NULL below */
    must(kg_utf8_repair(&whole, text, len) == 0);
    must(kg_utf8_valid(whole.data, whole.len));
    size_t good = kg_utf8_valid_prefix(text, len);
    must(good <= len && kg_slice_eq(kg_slice(whole.data, good), kg_slice(text, good)));
    must((good == len) == kg_slice_eq(kg_buf_slice(&whole), kg_slice(text, len)));

    kg_utf8_stream_t s = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    must(kg_utf8_stream_push(&s, &out, text, a) == 0);
    must(kg_utf8_stream_push(&s, &out, text + a, b - a) == 0);
    must(kg_utf8_stream_push(&s, &out, text + b, len - b) == 0);
    must(kg_utf8_stream_end(&s, &out) == 0);
    must(kg_slice_eq(kg_buf_slice(&out), kg_buf_slice(&whole)));

    size_t cut = kg_utf8_floor(whole.data, whole.len, a < whole.len ? a : whole.len);
    must(cut <= a && kg_utf8_valid(whole.data, cut));
    must(kg_utf8_valid(whole.data + cut, whole.len - cut));
    size_t count = kg_utf8_count(whole.data, whole.len);
    must(kg_utf8_offset(whole.data, whole.len, count) == whole.len);
    return 0;
}
