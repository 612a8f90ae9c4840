/* Inner header of what zygotes load. */
#ifndef KG_SANDBOX_ZYGOTE_JOIN_H
#define KG_SANDBOX_ZYGOTE_JOIN_H

#include <stddef.h>

#include "gateway/sandbox/init_proto.h"

/* What came over one connection: descriptors in the order of kg_ip_order_t. */
typedef struct kg_zorder {
    kg_ip_order_t order;
    kg_ip_spawn_t spawn;
    char *frame; /* what strings is in */
    const char *strings;
    int fds[KG_IP_ORDER_FDS_MAX];
    size_t fd_count;
} kg_zorder_t;

enum {
    KG_ZO_STDIN,
    KG_ZO_STDOUT,
    KG_ZO_STDERR,
    KG_ZO_MINDER,
    KG_ZO_PROGRAM,
    KG_ZO_NAMESPACES
};

/* Waits for all of it. On failure nothing of it is to be used; the descriptors go with the process.
 * -errno. */
int kg_zorder_read(int sock, kg_zorder_t *ret_order);
/* Its last words, or -1. */
int kg_zorder_words(const kg_zorder_t *order);
/* The caller enters the groups and namespaces as their root; its children are inside. -errno. */
int kg_zorder_join(const kg_zorder_t *order);
/* In a child: becomes the minder of pid by exec. Returns on failure. */
void kg_zorder_mind(const kg_zorder_t *order, int link, int pid);
/* In the process itself: what sandal-init does for those that it executes. link: to its minder.
 * Comes back when that has seen it, or not at all. */
void kg_zorder_settle(const kg_zorder_t *order, int link, const char *cwd);

#endif
