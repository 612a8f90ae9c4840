/* What cgroup.c and cgroup_find.c share. */
#ifndef KG_SANDBOX_CGROUP_PRIVATE_H
#define KG_SANDBOX_CGROUP_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/sandbox/cgroup.h"

#define CG_PATH_MAX 512
#define CG_PROBE_NAME "~probe" /* after the prefix without its dot: no sandbox's */

/* Whole files of a group; NUL-terminated, cut at cap. 0 or -errno. */
int cg_read(const char *dir, const char *file, char *ret_text, size_t cap);
int cg_write(const char *dir, const char *file, const char *text);
bool cg_has(const char *dir, const char *file);
/* Calls fn for each pid in dir/cgroup.procs; how many, or -errno. */
int cg_each_pid(const char *dir, void (*fn)(void *user, pid_t pid), void *user);

#endif
