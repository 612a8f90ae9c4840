/* Headers about files: what is understood keeps its promises, whatever it says. The first byte says
 * which header the rest is. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "gateway/api/fs_parse.h"

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void range(const char *text)
{
    static const uint64_t sizes[] = {0, 1, 10, 300000, UINT64_C(1) << 40};
    for (size_t i = 0; i < KG_ARRAY_LEN(sizes); i++) {
        uint64_t first = 0;
        uint64_t length = 0;
        int rc = kg_range_parse(text, sizes[i], &first, &length);
        must(rc == 0 || rc == 1 || rc == -ERANGE);
        must(rc != 1 || (length > 0 && first < sizes[i] && length <= sizes[i] - first));
        must(rc == 1 || (first == 0 && length == 0));
    }
}

static void base64(const char *text)
{
    KG_AUTO_BUF kg_buf_t bytes = {0};
    KG_AUTO_BUF kg_buf_t again = {0};
    KG_AUTO_BUF kg_buf_t twice = {0};
    if (kg_base64_decode(text, strlen(text), &bytes) < 0) {
        must(bytes.len == 0);
        return;
    }
    must(kg_base64_encode(bytes.data, bytes.len, &again) == 0);
    must(kg_base64_decode(again.data, again.len, &twice) == 0);
    must(kg_slice_eq(kg_buf_slice(&bytes), kg_buf_slice(&twice)));
}

static void metadata(const char *text)
{
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t value = {0};
    int rc = kg_tus_metadata_check(text, &err);
    must(rc == 0 || err.code == KG_ERR_INVALID_REQUEST);
    bool there = kg_tus_metadata_get(text, "path", &value);
    must(rc != 0 || there || value.len == 0);
}

static void date(const char *text)
{
    int64_t s = 0;
    char back[KG_HTTP_DATE_MAX];
    if (kg_http_date_parse(text, &s) == 0) {
        kg_http_date_format(s, back);
        int64_t again = 0;
        must(back[0] == '\0' || (kg_http_date_parse(back, &again) == 0 && again == s));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    KG_AUTO_FREE char *text = malloc(size); /* its own block, NUL in the place of the first byte */
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    uint32_t mode = 0;
    switch (data[0] % 6) {
    case 0:
        range(text);
        break;
    case 1:
        base64(text);
        break;
    case 2:
        metadata(text);
        break;
    case 3:
        date(text);
        break;
    case 4:
        (void)kg_etag_listed(text, "\"7-b-ae\"");
        (void)kg_etag_listed(text, "W/\"7-b-ae\"");
        break;
    default:
        must(kg_mode_parse(text, &mode) < 0 || mode <= 07777);
        break;
    }
    return 0;
}
