/* Which of a place's kills for want of memory has ended what. The kernel tells their count alone,
 * so who starts notes it, and who ends by a SIGKILL of nobody's takes the last kill since then that
 * has ended nothing else: those of its time that are left over were children's. Pure. */
#ifndef KG_CONTEXT_KILLS_H
#define KG_CONTEXT_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised: none yet. */
typedef struct kg_kills {
    uint64_t count; /* as last read */
    uint64_t free;  /* bit n: the n-th before the last has ended nothing; older ones never do */
} kg_kills_t;

/* count: as the kernel tells it, never less than before. */
void kg_kills_seen(kg_kills_t *kills, uint64_t count);
/* Of what started when the count was `before`: true when one was free, which it takes. */
bool kg_kills_take(kg_kills_t *kills, uint64_t before);

#endif
