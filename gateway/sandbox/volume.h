/* Volumes: the writable side of a sandbox (its upper and work directories), bounded in size. One
 * store a daemon, at STATE/volumes, with a probed back end: btrfs (subvolumes with a qgroup limit;
 * on an own loop image STATE/volumes.img unless the disk is a btrfs that has quotas on), loop (one
 * ext4 image a sandbox), tmpfs (size=; lost when the sandbox ends), or none (plain directories, no
 * limit: refuses a disk limit). For the keeper and its workers: blocking, libc only, root. Mounts
 * of the store are in the keeper's own mount namespace, which opening makes: they, and the loop
 * devices below them, go when the last process that sees them does, however it ends. */
#ifndef KG_SANDBOX_VOLUME_H
#define KG_SANDBOX_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/base/err.h"

typedef enum kg_vol_backend {
    KG_VOL_NONE,
    KG_VOL_BTRFS,
    KG_VOL_LOOP,
    KG_VOL_TMPFS,
} kg_vol_backend_t;

/* Plain data, copied by forks. */
typedef struct kg_volumes {
    kg_vol_backend_t backend;
    bool mounted;     /* a file system of its own is at dir */
    char dir[256];    /* mounted store; STATE/volumes */
    char reason[160]; /* remark, for doctor */
} kg_volumes_t;

#define KG_VOLUMES_BYTES_MIN (UINT64_C(256) << 20)

/* Opens or makes the store. wish: NULL or "auto" = btrfs, loop or none, the first that works, found
 * by trying, or what the volumes there are of; or a back end's name. image_bytes: size of btrfs's
 * sparse image, KG_VOLUMES_BYTES_MIN at least, 0 = four fifths of what is free on the disk; a
 * smaller one that is there grows, but for 0. Finds a store that an earlier keeper's sandboxes
 * still hold mounted (the same loop device again). Moves the caller to a mount namespace of its own
 * where it mounts anything. config_invalid: no such back end, or there are volumes of another;
 * not_supported: the wished one doesn't work here. */
int kg_volumes_open(kg_volumes_t *ret,
                    const char *state_dir,
                    const char *wish,
                    uint64_t image_bytes,
                    kg_err_t *err);
/* Unmounts what is only ours; volumes stay on the disk. */
void kg_volumes_close(kg_volumes_t *vols);
const char *kg_vol_backend_name(kg_vol_backend_t backend);
bool kg_volumes_keep(const kg_volumes_t *vols); /* files survive the end of the processes */

/* A volume with `upper` and `work` in it, all three owned by uid/gid (the root of the sandbox's
 * range) and closed to others, limited to bytes (0 = none; loop and tmpfs have a size anyhow). An
 * existing one is taken as it is, its limit set anew (loop: it grows, it doesn't shrink).
 * ret_path: its directory, valid in the caller's mount namespace; loop and tmpfs are mounted there,
 * so the caller is a worker with one of its own. storage_full, not_supported, conflict (of another
 * uid). */
int kg_volume_make(const kg_volumes_t *vols,
                   const char *id,
                   uint64_t bytes,
                   uid_t uid,
                   gid_t gid,
                   char ret_path[256],
                   kg_err_t *err);
/* Of btrfs: as of its last commit, some 30 s ago at most. -ENOTSUP for tmpfs, which only its
 * sandbox sees, and none. */
int kg_volume_usage(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes);
/* Everything of it goes; absent is fine. May take long for many files without btrfs. */
int kg_volume_remove(const kg_volumes_t *vols, const char *id);
/* Deleted volumes leave holes in the store that the disk below gets back by a trim only. */
bool kg_volumes_trims(const kg_volumes_t *vols);
typedef struct kg_trimmed {
    int64_t bytes; /* that the image takes less of the disk */
    bool more;     /* volumes that are gone wait for the file system: worth a trim in a minute */
} kg_trimmed_t;
/* Commits the file system, then gives what is free in it back to the disk; for a worker: may take
 * seconds, of a big store on a slow disk minutes. Nothing and 0 where kg_volumes_trims is false.
 * -EOPNOTSUPP: the disk below can't have holes; -EPERM. */
int kg_volumes_trim(const kg_volumes_t *vols, kg_trimmed_t *ret);
int kg_volumes_each(const kg_volumes_t *vols, void (*fn)(void *user, const char *id), void *user);

#endif
