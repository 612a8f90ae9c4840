/* What a sandbox with limits is shown instead of the machine's own numbers. Pure. */
#ifndef KG_SANDBOX_NS_VIEW_H
#define KG_SANDBOX_NS_VIEW_H

#include <stdint.h>

/* Whole cores that a limit amounts to: rounded up, 1 at least, host_cpus at most; 0 = no limit. */
unsigned kg_view_cpus(uint32_t cpu_millis, unsigned host_cpus);
/* /proc/meminfo of a machine with so much memory, nothing of it in use: the file doesn't change, so
 * MemFree and MemAvailable are what there was at the start. Malloc'd, like all below; NULL without
 * memory. */
char *kg_view_meminfo(uint64_t bytes);
/* The first so many processors of a /proc/cpuinfo. */
char *kg_view_cpuinfo(const char *host_text, unsigned cpus);
/* The same of a /proc/stat, without the interrupts' lines. Its counters stand still. */
char *kg_view_stat(const char *host_text, unsigned cpus);

#endif
