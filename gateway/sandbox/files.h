/* Files and ports of a sandbox through its sandal-init: paths are resolved inside, by the sandbox's
 * own rights (its user's, or its root's with `root`). What comes back is a descriptor or plain
 * data; both are hostile: fstat first, read and write without blocking in mind (a worker), no mmap,
 * lengths from reads alone. Paths are bytes without NUL, absolute as seen inside, at most
 * KG_FS_PATH_MAX. All calls return at once (-errno: nothing was asked, fn never runs) and call back
 * once, like client.h, whose kg_sbx_forget covers them too. */
#ifndef KG_SANDBOX_FILES_H
#define KG_SANDBOX_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/sandbox/client.h"

#define KG_FS_PATH_MAX 4096 /* with NUL */
#define KG_FS_NAME_MAX 255
#define KG_FS_LIST_ROWS 128
#define KG_FS_LIMIT_MS_MAX UINT64_C(86400000) /* that a move or a removal may be given */

typedef enum kg_fs_type {
    KG_FS_FILE,
    KG_FS_DIR,
    KG_FS_SYMLINK,
    KG_FS_OTHER
} kg_fs_type_t;

typedef struct kg_fs_stat {
    kg_fs_type_t type;
    uint32_t mode; /* permission bits, 07777 */
    uint32_t uid;  /* as seen inside */
    uint32_t gid;
    uint64_t size;
    int64_t mtime_ns;
    uint64_t dev;
    uint64_t ino;
} kg_fs_stat_t;

#define KG_FS_LATE_HINT                                                                            \
    "Something in the sandbox may be writing there: end it and ask again. The time is the "        \
    "operator's timeouts.files."

#define KG_FS_REGULAR_HINT "Only regular files can be read and written: fs/stat says what this is."
#define KG_FS_DIRECTORY_HINT "It is a directory: fs/dir lists it."

/* One entry; name and target borrowed for the call, any bytes, target NULL unless a symlink. */
typedef struct kg_fs_entry {
    const char *name;
    const char *target;
    kg_fs_stat_t stat;
} kg_fs_entry_t;

/* Errors: not_found, forbidden, conflict (exists, not empty, is a directory, isn't one, neither
 * file nor directory, a mount point, links in a circle), invalid_request (name too long),
 * storage_full, busy (too many requests at work), quota_exceeded (no room for the process that does
 * it), sandbox_not_found, internal. Without an own root, paths are /workspace/… and /home/user/…,
 * or those of kg_sbx_info, and what lies elsewhere is forbidden, by way of links too. */

#define KG_FS_OPEN_READ UINT32_C(1)
#define KG_FS_OPEN_WRITE UINT32_C(2)
#define KG_FS_OPEN_CREATE UINT32_C(4) /* with mode; parents are made with PARENTS */
#define KG_FS_OPEN_EXCLUSIVE UINT32_C(8)
#define KG_FS_OPEN_DIRECTORY UINT32_C(16)
#define KG_FS_OPEN_NOFOLLOW UINT32_C(32)
#define KG_FS_OPEN_PARENTS UINT32_C(64)
#define KG_FS_OPEN_TEMPORARY                                                                       \
    UINT32_C(128) /* a new file beside path under a name of init's choice; it                      \
                     is removed when this gateway goes before it was put in                        \
                     place */
/* fd: the callee's; always opened O_NONBLOCK | O_NOCTTY | O_CLOEXEC. name: of a temporary file, to
 * be given to kg_fs_put_in_place; borrowed. */
typedef void kg_fs_open_fn(void *user, int fd_take, const char *name, const kg_err_t *err);
int kg_fs_open(kg_sbx_t *sbx,
               const char *path,
               uint32_t flags,
               uint32_t mode,
               bool root,
               kg_fs_open_fn *fn,
               void *user);
/* The temporary file `name` becomes path (whose symlinks are followed), atomically; created: there
 * was none before. Or it is removed (path NULL). */
typedef void kg_fs_put_fn(void *user, bool created, const kg_err_t *err);
int kg_fs_put_in_place(
    kg_sbx_t *sbx, const char *name, const char *path, bool root, kg_fs_put_fn *fn, void *user);
typedef void kg_fs_stat_fn(void *user, const kg_fs_entry_t *entry, const kg_err_t *err);
int kg_fs_stat(
    kg_sbx_t *sbx, const char *path, bool follow, bool root, kg_fs_stat_fn *fn, void *user);
/* Entries of one directory from cursor on (0 = the first), unsorted, without . and ..; next: the
 * cursor for more, 0 = that was all. */
typedef void kg_fs_list_fn(
    void *user, const kg_fs_entry_t *entries, size_t count, uint64_t next, const kg_err_t *err);
int kg_fs_list(
    kg_sbx_t *sbx, const char *path, uint64_t cursor, bool root, kg_fs_list_fn *fn, void *user);
int kg_fs_mkdir(kg_sbx_t *sbx,
                const char *path,
                uint32_t mode,
                bool parents, /* also: it may exist */
                bool root,
                kg_done_fn *fn,
                void *user);
/* To another file system of the sandbox it goes by a copy, which may take long: at most limit_ms
 * (0: any), then busy. Its target is there whole then, or not at all; of the source a part may be
 * left when the target is there. */
typedef struct kg_fs_move_opts {
    const char *from;
    const char *to;
    uint64_t limit_ms;
    bool overwrite;
    bool root;
} kg_fs_move_opts_t;
int kg_fs_move(kg_sbx_t *sbx, const kg_fs_move_opts_t *opts, kg_done_fn *fn, void *user);
/* recursive: what is below too, by a process of its own, so that init goes on, and for at most
 * limit_ms (0: any), for the sandbox may fill it as fast: busy, and what is left stays. */
int kg_fs_remove(kg_sbx_t *sbx,
                 const char *path,
                 bool recursive,
                 uint64_t limit_ms,
                 bool root,
                 kg_done_fn *fn,
                 void *user);
/* An inotify descriptor (non-blocking, read by the caller) with a watch on path; or, with watch_fd
 * >= 0 (borrowed), one more watch on that. wd: what inotify events name it by: IN_CREATE,
 * IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE_SELF,
 * IN_MOVE_SELF. What is written by kg_fs_put_in_place is seen as a file ".sandal-…" that comes and
 * is moved. */
typedef void kg_fs_watch_fn(void *user, int fd_take, int wd, const kg_err_t *err);
int kg_fs_watch(
    kg_sbx_t *sbx, const char *path, int watch_fd, bool root, kg_fs_watch_fn *fn, void *user);

/* A TCP connection to 127.0.0.1:port inside (then [::1]), non-blocking, perhaps still under way.
 * conflict with "refused": nothing listens there. */
typedef void kg_port_fn(void *user, int fd_take, const kg_err_t *err);
int kg_sbx_port_connect(kg_sbx_t *sbx, uint16_t port, kg_port_fn *fn, void *user);

#endif
