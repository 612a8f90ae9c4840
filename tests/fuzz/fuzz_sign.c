/* Signatures: the key is the first frame, then a signature to try and four parts. The right one is
 * accepted, and no other. */
#include <stdlib.h>

#include "fuzz_frames.h"
#include "proto/wire.h"

enum {
    FRAMES = 6
};

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_slice_t frames[FRAMES] = {0};
    kg_wire_key_t key = {0};
    char sig[KG_WIRE_SIG_LEN + 1];
    (void)fuzz_cut(data, size, frames, FRAMES);
    int rc = kg_wire_key_set(&key, frames[0].data, frames[0].len);
    must((rc == 0) == (frames[0].len <= KG_WIRE_KEY_MAX));
    if (rc < 0) {
        return 0;
    }
    kg_wire_sign(&key, &frames[2], sig);
    must(strlen(sig) == (key.len ? KG_WIRE_SIG_LEN : 0));
    must(kg_wire_verify(&key, &frames[2], kg_slice_cstr(sig)));
    bool same = key.len == 0 || kg_slice_eq_cstr(frames[1], sig);
    must(kg_wire_verify(&key, &frames[2], frames[1]) == same);
    kg_wire_key_fini(&key);
    return 0;
}
