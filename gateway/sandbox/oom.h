/* How many processes the kernel has killed in a group for want of memory. Pure but for the read. */
#ifndef KG_SANDBOX_OOM_H
#define KG_SANDBOX_OOM_H

#include <stdint.h>

/* fd: as of kg_cgroup_oom_fd, or -1. UINT64_MAX when it isn't known. */
uint64_t kg_oom_kills(int fd);

#endif
