/* Control groups of sandboxes, v1, v2 or none, chosen per feature: memory, pids, cpu, freeze, kill,
 * account. For the keeper and its workers: blocking, libc only. Groups are made below the keeper's
 * own group. On v2 a group that holds processes can't hand out controllers, so where its own group
 * is its own (delegated, or nobody else is in it) the keeper moves what is in it into a leaf
 * `supervisor`; else, as root, groups are made at the top of the hierarchy. */
#ifndef KG_SANDBOX_CGROUP_H
#define KG_SANDBOX_CGROUP_H

#include <stdbool.h>
#include <sys/types.h>

#include "gateway/base/err.h"
#include "gateway/sandbox/limits.h"

typedef enum kg_cg_feature {
    KG_CG_MEMORY,
    KG_CG_PIDS,
    KG_CG_CPU,
    KG_CG_FREEZE,
    KG_CG_KILL,
    KG_CG_ACCOUNT, /* cpu time used */
    KG_CG_FEATURES
} kg_cg_feature_t;
typedef enum kg_cg_version {
    KG_CG_NONE,
    KG_CG_V1,
    KG_CG_V2
} kg_cg_version_t;

/* Found at start; plain data, copied by forks. base[v1 hierarchies / v2]: absolute directories. */
typedef struct kg_cgroups {
    kg_cg_version_t version[KG_CG_FEATURES];
    char base[KG_CG_FEATURES][256]; /* the directory below which groups of that feature are made */
    char reason[KG_CG_FEATURES][120]; /* why none, or a remark */
    char prefix[64];                  /* a group's name is this and the sandbox's id */
    char proc[208];                   /* where /proc is */
} kg_cgroups_t;

/* root: "/" (tests: a tree of their own with proc/self/{mountinfo,cgroup}). name: unique to this
 * keeper, part of each group's name, 48 bytes at most. 0 also when there is none of them. Groups
 * are made and removed to find out; processes may be moved (see above). */
int kg_cgroups_find(kg_cgroups_t *ret, const char *root, const char *name);
/* "memory", "pids", ... */
const char *kg_cg_feature_name(kg_cg_feature_t feature);
/* "v1", "v2", "mixed", "none", for kg_isolation_info_t. */
const char *kg_cgroups_word(const kg_cgroups_t *cg);
/* Makes the groups of sandbox id with its limits (those of disk and nofile are others' affair). A
 * limit that can't be held is -EOPNOTSUPP with the reason, and nothing is made. Empty groups of
 * that id are made anew, others are -EBUSY. Everything or nothing. */
int kg_cgroup_make(const kg_cgroups_t *cg,
                   const char *id,
                   const kg_limits_t *limits,
                   kg_err_t *err);
/* Other limits for a group that is in use: those that are not 0; and its share of the cpu, a hint
 * that is lost where there is no group for it. -EOPNOTSUPP as above; -EBUSY: it uses more memory
 * than that. What was changed before a failure stays changed. */
int kg_cgroup_hold(const kg_cgroups_t *cg,
                   const char *id,
                   const kg_limits_t *limits,
                   uint32_t share,
                   kg_err_t *err);
/* Puts the caller into them (writes 0; on v1 into `tasks`, which skips the global lock). */
int kg_cgroup_enter(const kg_cgroups_t *cg, const char *id);
/* Moves another process into them, with all its threads. */
int kg_cgroup_put(const kg_cgroups_t *cg, const char *id, pid_t pid);
/* The files by which a process enters them, one a hierarchy, open for writing: whoever writes "0"
 * to all of them is in, without rights of its own (those of the opener count). fds are the
 * caller's. */
int kg_cgroup_entries(const kg_cgroups_t *cg,
                      const char *id,
                      int ret_fds[KG_CG_FEATURES],
                      size_t *ret_count);
/* A directory descriptor for CLONE_INTO_CGROUP, -ENOTSUP where v2 is not in use. */
int kg_cgroup_fd(const kg_cgroups_t *cg, const char *id);
/* Comes back when all of it stands still (or runs again). -ETIMEDOUT when it didn't in time, and it
 * runs on then; -ENOTSUP. */
int kg_cgroup_freeze(const kg_cgroups_t *cg, const char *id, bool frozen, unsigned deadline_ms);
/* Can memory of a group that stands still be pressed out: is there swap (zram counts), and does the
 * kernel do it when asked? Looked at now, for swap comes and goes. ret_reason: why not. */
bool kg_cgroup_presses(const kg_cgroups_t *cg, char ret_reason[120]);
/* Presses out what can be; it may use swap until it runs again (kg_cgroup_freeze). Blocking, for as
 * long as swap takes: for a worker, which may be killed. 0, -EAGAIN (not all of it went), -errno.
 */
int kg_cgroup_press(const kg_cgroups_t *cg, const char *id);
/* After a worker that was killed at it, when the group runs again: no swap any more. */
void kg_cgroup_unpress(const kg_cgroups_t *cg, const char *id);
/* What isn't known is UINT64_MAX; disk_bytes is. -ENOENT when there is no group of that id. */
int kg_cgroup_usage(const kg_cgroups_t *cg, const char *id, kg_box_usage_t *ret);
/* Its file with a line `oom_kill N`, for reading: how many the kernel killed in it for want of
 * memory. fd, or -errno: -ENOTSUP where no group holds memory, -ENOENT when there is none of that
 * id. */
int kg_cgroup_oom_fd(const kg_cgroups_t *cg, const char *id);
/* SIGKILL to every process in it, frozen ones too; how many there were, 0 = empty or absent; or
 * -errno. The dead may take a moment to leave: again until 0. */
int kg_cgroup_kill(const kg_cgroups_t *cg, const char *id);
/* Removes the groups; -EBUSY while a process is in one. Absent is fine. */
int kg_cgroup_remove(const kg_cgroups_t *cg, const char *id);
/* Ids of groups that are there (after a crash), one call each. */
int kg_cgroups_each(const kg_cgroups_t *cg, void (*fn)(void *user, const char *id), void *user);

#endif
