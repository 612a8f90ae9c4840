/* Memory that lies free between what is used goes back, once the process is calm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/loop/heap.h"

#define BLOCKS 1024
#define BLOCK 65536

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void burst_over_memory_goes_back(void **state)
{
    (void)state;
    static char *big[BLOCKS];
    static char *small[BLOCKS];
    kg_heap_t heap = {0};
    if (SANITIZED) {
        skip(); /* its heap is another */
    }
    kg_heap_tidy(&heap);
    uint64_t floor = heap.floor_bytes;
    assert_true(floor > 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        big[i] = malloc(BLOCK);
        small[i] = malloc(64);
        assert_non_null(big[i]);
        memset(big[i], 'x', BLOCK);
    }
    kg_heap_tidy(&heap);
    assert_true(heap.last_bytes >= floor + (uint64_t)BLOCKS * BLOCK);
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(big[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        kg_heap_tidy(&heap);
    }
    assert_true(heap.last_bytes < floor + (UINT64_C(16) << 20));
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(small[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(burst_over_memory_goes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
