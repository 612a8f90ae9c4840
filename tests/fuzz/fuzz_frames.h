/* Cuts a fuzzer's input into frames: each begins with its length, two bytes, low one first. */
#ifndef FUZZ_FRAMES_H
#define FUZZ_FRAMES_H

#include <stdint.h>

#include "gateway/base/buf.h"

static inline size_t fuzz_cut(const uint8_t *data, size_t size, kg_slice_t *frames, size_t max)
{
    size_t count = 0;
    while (size >= 2 && count < max) {
        size_t len = data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        frames[count++] = kg_slice((const char *)data, len);
        data += len;
        size -= len;
    }
    return count;
}

#endif
