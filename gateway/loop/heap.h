/* The C library's heap, kept near what is in use. After a burst (a flood of messages, one of 100
 * MB) its free blocks lie between used ones and stay with the process; this gives their pages back.
 */
#ifndef KG_LOOP_HEAP_H
#define KG_LOOP_HEAP_H

#include <stdint.h>

typedef struct kg_heap {
    uint64_t last_bytes;  /* resident, at the last call */
    uint64_t floor_bytes; /* resident, when it was last known to be as small as can be */
} kg_heap_t;

/* To be called about once a second; zeroed at first. The first call tells the C library how to keep
 * its memory. Costs a few microseconds, and some ms when the
 * process has grown by some MiB and stopped to grow. */
void kg_heap_tidy(kg_heap_t *heap);

#endif
