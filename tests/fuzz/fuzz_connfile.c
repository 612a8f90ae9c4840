/* Connection files: what is accepted can be written and read back as the same. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/connfile.h"

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_connfile_t cf;
    kg_connfile_t back;
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t again = {0};
    int rc = kg_connfile_parse(kg_slice((const char *)data, size), &cf, &err);
    must((rc == 0) == (err.code == KG_ERR_NONE));
    if (rc < 0) {
        must(rc == -EBADMSG || rc == -EINVAL || rc == -E2BIG);
        return 0;
    }
    must(kg_connfile_format(&cf, &text) == 0);
    must(kg_connfile_parse(kg_buf_slice(&text), &back, &err) == 0);
    must(kg_connfile_format(&back, &again) == 0);
    must(kg_slice_eq(kg_buf_slice(&text), kg_buf_slice(&again)));
    return 0;
}
