/* What a zygote of any language loads: it forks processes into other sandboxes. A zygote lives in a
 * sandbox of its own, has one thread and no rights; those that a fork needs it gets from the user
 * namespace that it joins, which the keeper has made for the zygote's user, and loses before it
 * returns to code of the language. Built as sandal-zygote.so; libc only. */
#ifndef KG_SANDBOX_ZYGOTE_ZYGOTE_H
#define KG_SANDBOX_ZYGOTE_ZYGOTE_H

#include "gateway/base/mem.h"

/* A process that was asked for. Lives as long as the process. */
typedef struct sandal_forked sandal_forked_t;

/* Listens at path and forks for each order (init_proto.h) that comes. Returns in the processes that
 * are asked for, 0: they are in their sandbox, with its ids, limits and descriptors, and nothing to
 * lose; and in the zygote when it can't go on, -errno. The caller has one thread, but for such as
 * end by themselves before a fork (OpenBLAS's), else -EBUSY; what the language must do around a
 * fork it does before and, in the child, after. */
KG_PUBLIC int sandal_zygote_serve(const char *path, sandal_forked_t **ret_forked);
/* What it would have been executed with: NULL behind the last. Borrowed. */
KG_PUBLIC const char *sandal_zygote_arg(const sandal_forked_t *forked, unsigned index);
KG_PUBLIC const char *sandal_zygote_env(const sandal_forked_t *forked, unsigned index);

#endif
