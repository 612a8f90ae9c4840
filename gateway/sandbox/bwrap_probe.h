/* Whether bwrap works on this host. */
#ifndef KG_SANDBOX_BWRAP_PROBE_H
#define KG_SANDBOX_BWRAP_PROBE_H

#include "gateway/sandbox/launcher.h"

#define KG_BW_PROGRAM "/usr/bin/bwrap"

/* As launchers' probe. */
int kg_bw_probe(const kg_host_t *host, char ret_reason[160]);
/* In a child: under root, the sandbox's user for good. 0 or -errno. */
int kg_bw_become_user(const kg_host_t *host, const kg_launch_t *launch);

#endif
