/* What the host says to more warm members: memory that is left, and stalls for want of it. */
#ifndef KG_POOL_HOST_H
#define KG_POOL_HOST_H

#include "gateway/pool/pool.h"

/* Text of /proc/meminfo and of /proc/pressure/memory; "" where there is none. HOLD: less than a
 * tenth is available, or somebody stalled for 10 % of the last 10 s. SHED: less than a twentieth,
 * or all stalled for 5 %. Pure. */
kg_pool_pressure_t kg_pool_pressure_of(const char *meminfo, const char *psi);
kg_pool_pressure_t kg_pool_host_pressure(void); /* reads them: two small files */
uint64_t kg_pool_host_memory(void);             /* bytes; 0 = unknown */

/* "MIN-MAX", or "N" for both. -EINVAL, -ERANGE; nothing is written then. */
int kg_pool_size_parse(const char *text, unsigned *ret_min, unsigned *ret_max);

#endif
