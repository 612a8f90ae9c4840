#include "gateway/context/kills.h"

#define BITS 64

static uint64_t last(uint64_t n)
{
    return n < BITS ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
}

void kg_kills_seen(kg_kills_t *kills, uint64_t count)
{
    if (count <= kills->count) {
        return;
    }
    uint64_t more = count - kills->count;
    kills->free = (more < BITS ? kills->free << more : 0) | last(more);
    kills->count = count;
}

bool kg_kills_take(kg_kills_t *kills, uint64_t before)
{
    uint64_t mine = kills->count > before ? kills->free & last(kills->count - before) : 0;
    kills->free &= ~(mine & -mine);
    return mine != 0;
}
