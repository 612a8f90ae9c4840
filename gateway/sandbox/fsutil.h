/* Directories of sandboxes: made, checked and removed relative to descriptors, never following a
 * link. */
#ifndef KG_SANDBOX_FSUTIL_H
#define KG_SANDBOX_FSUTIL_H

#include <stdint.h>
#include <sys/types.h>

/* Opens path as a directory (O_NOFOLLOW for the last component), making it and its parents when
 * absent. The leaf gets mode exactly when made here. */
int kg_fs_open_dir(const char *path, mode_t mode, int *ret_fd);
/* mkdirat + owner + mode. -EEXIST when there is anything of that name. uid (uid_t)-1 leaves the
 * owner. */
int kg_fs_make_dir(int parent, const char *name, mode_t mode, uid_t uid, gid_t gid);
/* Removes name below parent with all that is in it; absent is fine. Links are unlinked, not
 * followed; other file systems are not entered (-EXDEV); depth doesn't matter. May take long: for a
 * process of its own. */
int kg_fs_remove_tree(int parent, const char *name);
/* The same until kg_now_ns() is past deadline_ns: -ETIME, with what is left where it was. For trees
 * that somebody may be filling, who else would never come to an end. */
int kg_fs_remove_tree_until(int parent, const char *name, uint64_t deadline_ns);

#endif
