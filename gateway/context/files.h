/* Files of a sandbox as the API speaks of them. A path is bytes without NUL: absolute, or taken
 * from /workspace. Where the sandbox has no root of its own only /workspace and /home/user can be
 * reached. All calls wake the sandbox, count as activity while they go on, and follow the rules of
 * core.h; when the sandbox ends they fail. Forgotten (kg_core_forget) they go on, but what was
 * being written and isn't whole is thrown away. */
#ifndef KG_CONTEXT_FILES_H
#define KG_CONTEXT_FILES_H

#include "gateway/base/source.h"
#include "gateway/context/sandbox.h"
#include "gateway/sandbox/files.h"

#define KG_FILES_LIST_MAX 10000U /* entries of one page */
#define KG_FILES_DEPTH_MAX 64U   /* levels of one list */
#define KG_FILES_DIRS_MAX 10000U /* directories that one list has still to visit */
#define KG_FILES_WATCH_MAX 4096U /* directories that one watch holds */
#define KG_FILES_POUR_MIN 65536U /* shorter ones are read and sent as any other answer */
#define KG_FILES_WATCHES_ALL 1024U
#define KG_FILES_TRANSFERS_MAX 64U /* files being read, written or listed at once, a sandbox */
#define KG_FILES_TRANSFERS_ALL 512U
#define KG_FILES_WATCHES_MAX 64U    /* watches of one sandbox */
#define KG_FILES_TIMEOUT_MS 600000U /* of a list, a removal, a move */
#define KG_UPLOADS_ALL 1024U
#define KG_UPLOADS_MAX 64U       /* unfinished uploads of one sandbox */
#define KG_UPLOAD_IDLE_S 3600U   /* then an upload is given up, or a finished one forgotten */
#define KG_UPLOAD_META_MAX 4096U /* bytes of Upload-Metadata, path included */

/* An Entry, {"items":…} and the like: new reference, or NULL and err. */
typedef void kg_files_json_fn(void *user, json_t *json_take, const kg_err_t *err);

int kg_files_stat(kg_sandbox_t *sandbox,
                  const char *path,
                  bool follow,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err);

typedef struct kg_files_list {
    const char *path;
    unsigned depth;    /* 1 = the directory's own entries */
    unsigned limit;    /* at most KG_FILES_LIST_MAX */
    const char *after; /* bytes of a path as entries have it: only what sorts after it; or NULL */
} kg_files_list_t;
/* {"items":[Entry],"next":…}, sorted by path as bytes; next is the base64 of the last path where
 * there is more. */
int kg_files_list(kg_sandbox_t *sandbox,
                  const kg_files_list_t *opts,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err);
/* The Entry of what was made. mode 0 = 0755. */
int kg_files_mkdir(kg_sandbox_t *sandbox,
                   const char *path,
                   uint32_t mode,
                   bool parents,
                   kg_files_json_fn *fn,
                   void *user,
                   kg_err_t *err);
/* The Entry at its new place. */
int kg_files_move(kg_sandbox_t *sandbox,
                  const char *from,
                  const char *to,
                  bool overwrite,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err);
/* Whether what is there may be replaced or removed: its state, links followed, NULL: nothing is.
 * user: that of the call. < 0 and err: it is left as it is. */
typedef int kg_file_check_fn(void *user, const kg_fs_stat_t *stat, kg_err_t *err);
int kg_files_remove(kg_sandbox_t *sandbox,
                    const char *path,
                    bool recursive,
                    kg_file_check_fn *check, /* just before; NULL: no condition */
                    kg_done_fn *fn,
                    void *user,
                    kg_err_t *err);

/* ---- reading ---- */

typedef struct kg_file kg_file_t; /* a regular file, open for reading; the receiver's */
typedef struct kg_file_info {
    uint64_t size;
    bool sized; /* false: one of the kernel's that do not tell; read to the end */
    int64_t mtime_ns;
    uint64_t ino;
} kg_file_info_t;
typedef void kg_file_fn(void *user, kg_file_t *file_take, const kg_err_t *err);
/* conflict for what is no regular file. */
int kg_files_open(
    kg_sandbox_t *sandbox, const char *path, kg_file_fn *fn, void *user, kg_err_t *err);
const kg_file_info_t *kg_file_info(const kg_file_t *file);
/* Its bytes from offset on, length of them (UINT64_MAX: to the end, however long). A sized one that
 * ends early FAILs. Of KG_FILES_POUR_MIN bytes and more it can be poured. The file is in the source
 * from here on. */
kg_source_t *kg_file_source(kg_file_t **file, uint64_t offset, uint64_t length);
void kg_file_close(kg_file_t **file); /* NULL ok */

/* ---- writing ---- */

typedef struct kg_file_write kg_file_write_t;
typedef void kg_file_written_fn(void *user, bool created, uint64_t size, const kg_err_t *err);
typedef struct kg_file_write_opts {
    const char *path;
    uint32_t mode; /* UINT32_MAX: that of the file that is there, or 0644 */
    kg_intake_t intake;
    kg_file_check_fn *check; /* before a byte is taken and just before the rename; NULL: none */
} kg_file_write_opts_t;
/* The whole file from the intake, put in place of what is there when it has ended. Between a check
 * and its rename no other write of this sandbox puts a file in place. *ret_write is to be told of
 * more, until fn or kg_core_forget. */
int kg_files_write(kg_sandbox_t *sandbox,
                   const kg_file_write_opts_t *opts,
                   kg_file_written_fn *fn,
                   void *user,
                   kg_file_write_t **ret_write,
                   kg_err_t *err);
void kg_file_write_more(kg_file_write_t *write);

/* ---- watching ---- */

/* source: events {"type","path","from"?}, JSON objects. */
typedef void kg_files_watch_fn(void *user, kg_source_t *source_take, const kg_err_t *err);
int kg_files_watch(kg_sandbox_t *sandbox,
                   const char *path,
                   bool recursive,
                   kg_files_watch_fn *fn,
                   void *user,
                   kg_err_t *err);

/* ---- resumable uploads ---- */

typedef struct kg_upload kg_upload_t;
/* Public plain data, borrowed for the loop turn. */
typedef struct kg_upload_info {
    char id[KG_ID_MAX];
    int64_t length; /* -1: not told yet */
    uint64_t offset;
    const char *metadata; /* as it came */
    bool done;            /* the file is in its place */
} kg_upload_info_t;
typedef struct kg_upload_opts {
    const char *path;
    uint32_t mode;        /* as of kg_files_write */
    int64_t length;       /* -1 = told later */
    const char *metadata; /* at most KG_UPLOAD_META_MAX bytes */
} kg_upload_opts_t;
typedef void kg_upload_fn(void *user, kg_upload_t *upload, const kg_err_t *err);
/* quota_exceeded past KG_UPLOADS_MAX. */
int kg_upload_new(kg_sandbox_t *sandbox,
                  const kg_upload_opts_t *opts,
                  kg_upload_fn *fn,
                  void *user,
                  kg_err_t *err);
/* NULL and not_found, or upload_lost: it ended with the daemon or its sandbox's processes. */
kg_upload_t *kg_upload_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err);
const kg_upload_info_t *kg_upload_info(const kg_upload_t *upload);
typedef struct kg_upload_piece {
    uint64_t offset; /* where it goes: what is there already */
    uint64_t bytes;
    int64_t length; /* of the whole, told now; -1 = not now */
    kg_intake_t intake;
} kg_upload_piece_t;
/* conflict (another offset, finished), busy
 * (somebody else is at it; forgotten ones are not), too_large, invalid_request (another length than
 * before). Forgotten in the middle, what was written until then stays. */
int kg_upload_append(kg_upload_t *upload,
                     const kg_upload_piece_t *piece,
                     kg_upload_fn *fn,
                     void *user,
                     kg_err_t *err);
void kg_upload_more(kg_upload_t *upload);
void kg_upload_delete(kg_upload_t *upload);

/* ---- for the rest of this room ---- */

void kg_files_forget(kg_core_t *core, const void *user);
/* Its place is gone, or is going: all that is open in it ends with err. */
void kg_files_box_gone(kg_sandbox_t *sandbox, const kg_err_t *err);
/* Temporary files of it are being removed: its place must not go yet. It is looked at again
 * (kg_sandbox_ended_check) after each. */
bool kg_files_discarding(const kg_sandbox_t *sandbox);
void kg_files_tick(kg_core_t *core);
void kg_files_destroy(kg_core_t *core);

#endif
