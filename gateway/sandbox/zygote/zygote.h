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
/* It does not want what the zygote has loaded: becomes what it would have been. Returns on failure,
 * -errno. */
KG_PUBLIC int sandal_zygote_exec(const sandal_forked_t *forked);

/* The same for R, whose .C() passes pointers alone (r.c). forked: to the 8 bytes of a raw vector;
 * counts: of arguments and variables, for the lengths of what sandal_zygote_r_strings fills. */
KG_PUBLIC void
sandal_zygote_r_serve(char **path, int *ret_error, sandal_forked_t **ret_forked, int *ret_counts);
KG_PUBLIC void
sandal_zygote_r_strings(sandal_forked_t *const *forked, char **ret_args, char **ret_env);
KG_PUBLIC void sandal_zygote_r_exec(sandal_forked_t *const *forked);
/* What commandArgs() gives from here on. */
KG_PUBLIC void sandal_zygote_r_arguments(const int *count, char **args);

#endif
