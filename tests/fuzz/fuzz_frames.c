/* Raw frames as a hostile kernel sends them: no signature made for them, so what is behind it is
 * reached only with the empty key (first byte odd). */
#include <errno.h>
#include <stdlib.h>

#include "fuzz_frames.h"
#include "proto/wire.h"

enum {
    FRAMES = 1100
}; /* more than the cap */

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_wire_key_t keys[2] = {{0}, {0}};
    kg_slice_t frames[FRAMES];
    kg_wire_t wire;
    kg_jmsg_t msg;
    kg_err_t err = {0};
    if (size == 0) {
        return 0;
    }
    must(kg_wire_key_set(&keys[0], "secret", 6) == 0);
    size_t count = fuzz_cut(data + 1, size - 1, frames, FRAMES);
    int split = kg_wire_split(frames, count, &wire);
    must(split == 0 || split == -EBADMSG || split == -E2BIG);
    if (split == 0) {
        must(wire.identity_count + 6 + wire.buffer_count == count);
    }
    int rc = kg_jmsg_parse(frames, count, &keys[data[0] & 1], &msg, &err);
    must((rc == 0) == (err.code == KG_ERR_NONE));
    must(rc == 0 || rc == -EBADMSG || rc == -E2BIG || rc == -EACCES);
    must(split == 0 || rc == split);
    if (rc == 0) {
        must(msg.msg_type[0] != '\0' && msg.content.type == KG_JSON_OBJECT);
    }
    return 0;
}
