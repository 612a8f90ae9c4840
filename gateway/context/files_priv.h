/* Inside of the files' part of this room: one operation under way, descriptors on the worker pool,
 * paths. */
#ifndef KG_CONTEXT_FILES_PRIV_H
#define KG_CONTEXT_FILES_PRIV_H

#include <sys/stat.h>

#include "gateway/context/files.h"
#include "gateway/context/internal.h"

#define KG_IO_PIECE 524288u /* of one read */
/* Most that one job sends: each costs a turn of the loop, but there are few workers. */
#define KG_IO_SEND 4194304u
#define KG_IO_PACE (UINT64_C(1) << 30) /* bytes a second, below which it does not wait for room */
#define KG_IO_UNIX_BUFFER (1 << 20)    /* of a unix socket that a file is sent into */

/* ---- file_io.c: a descriptor whose reads and writes run on the worker pool, in order ---- */

typedef struct kg_io kg_io_t;
typedef struct kg_io_job kg_io_job_t;
/* rc: bytes, or -errno. bytes: what was read; may be taken (swap it out). */
typedef void kg_io_fn(void *user, ssize_t rc, kg_buf_t *bytes);
typedef void kg_io_stat_fn(void *user, int rc, const struct stat *st);

int kg_io_open(kg_loop_t *loop, int fd_take, kg_io_t **ret_io);
/* Each: 0 and fn later, or -ENOMEM. *ret_job is for kg_io_forget until then. */
int kg_io_stat(kg_io_t *io, kg_io_stat_fn *fn, void *user, kg_io_job_t **ret_job);
/* max bytes or fewer; 0 at the end. spare (may be NULL) lends its memory. */
int kg_io_read(kg_io_t *io,
               uint64_t offset,
               size_t max,
               kg_buf_t *spare,
               kg_io_fn *fn,
               void *user,
               kg_io_job_t **ret_job);
/* From the file into a stream socket, the same one each time, which is O_NONBLOCK and may be closed
 * meanwhile. rc: bytes, which are max unless there was no room for more; -EAGAIN for none at all, 0
 * at the end of the file. -errno also where there is no descriptor for it. */
int kg_io_send(kg_io_t *io,
               int socket,
               uint64_t offset,
               size_t max,
               kg_io_fn *fn,
               void *user,
               kg_io_job_t **ret_job);
/* All of bytes, which are taken (bytes is empty after it); rc 0 or -errno. Their memory comes back
 * in fn, emptied. */
int kg_io_write(
    kg_io_t *io, uint64_t offset, kg_buf_t *bytes, kg_io_fn *fn, void *user, kg_io_job_t **ret_job);
/* fn never runs; what it does goes on. NULL ok; NULLs the pointer. */
void kg_io_forget(kg_io_job_t **job);
/* The descriptor is closed, on the pool, after what is under way. NULL ok; NULLs the pointer. */
void kg_io_close(kg_io_t **io);

/* ---- file_op.c: what is going on in a sandbox for somebody ---- */

typedef struct kg_fsop kg_fsop_t;
typedef enum kg_fsop_sort {
    KG_FSOP_SMALL,    /* holds next to nothing */
    KG_FSOP_TRANSFER, /* holds some hundred KiB, or a descriptor */
    KG_FSOP_WATCH
} kg_fsop_sort_t;
typedef struct kg_fsop_type {
    kg_fsop_sort_t sort;
    /* The sandbox can be used. */
    void (*go)(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx);
    /* It can't: err is to be told, the op ends. */
    void (*fail)(kg_fsop_t *op, const kg_err_t *err);
    /* The user has gone (op->user is NULL already); NULL: goes on. */
    void (*forget)(kg_fsop_t *op);
    /* Its place goes, init answers no more; NULL: as fail. Once. */
    void (*gone)(kg_fsop_t *op, const kg_err_t *err);
    /* The core goes, the op is off its list: frees, calls nobody. */
    void (*destroy)(kg_fsop_t *op);
} kg_fsop_type_t;
/* The sandbox can be used. */
typedef void kg_fsop_step_fn(kg_fsop_t *op, kg_sbx_t *sbx);
/* Embedded at the begin of the operation's struct. */
struct kg_fsop {
    const kg_fsop_type_t *type;
    kg_core_t *core;
    char sandbox[KG_ID_MAX];
    void *user; /* NULL: forgotten */
    bool waking;
    kg_fsop_step_fn *step; /* what follows then; NULL: go */
    bool gone;
    kg_fsop_t *prev, *next; /* of the core */
};

/* Room for one more of this sort, in the sandbox and in the daemon; else quota_exceeded. */
int kg_fsop_room(const kg_sandbox_t *sandbox, kg_fsop_sort_t sort, kg_err_t *err);
/* Lists it, without waking. */
void kg_fsop_begin(kg_fsop_t *op, const kg_fsop_type_t *type, kg_sandbox_t *sandbox, void *user);
/* go or fail follows. On failure it is not listed any more. */
int kg_fsop_wake(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_err_t *err);
/* The next step of one under way: at once, or when its sandbox, which has been paused meanwhile, is
 * woken for it. Where that can't be, fail. The op may be freed when this returns. */
void kg_fsop_go_on(kg_fsop_t *op, kg_fsop_step_fn *step);
kg_sandbox_t *kg_fsop_sandbox(const kg_fsop_t *op); /* NULL: it has ended */
kg_sbx_t *kg_fsop_sbx(const kg_fsop_t *op);         /* NULL: it isn't up */
uint64_t kg_fsop_limit_ms(const kg_fsop_t *op);     /* what it may take; 0 = any time */
/* A temporary file of init's goes. */
void kg_fsop_discard(const kg_fsop_t *op, const char *name);
void kg_fsop_touch(const kg_fsop_t *op);
/* Off the list; nothing of it waits any more. */
void kg_fsop_end(kg_fsop_t *op);
void kg_fsop_lost(kg_err_t *err); /* "the sandbox has ended" */
/* Conflict: what is at shown can be neither read nor written as a file. */
void kg_fsop_no_file(const char *shown, bool directory, kg_err_t *err);

/* ---- file_path.c ---- */

#define KG_FS_SHOWN 4608 /* room for any path of ours and its prefixes */
typedef struct kg_fs_path {
    char inner[KG_FS_PATH_MAX]; /* for init */
    char shown[KG_FS_PATH_MAX]; /* for people: below /workspace or /home/user where it is */
} kg_fs_path_t;
/* What can be said of a path before the sandbox is up. */
int kg_fs_path_check(const char *path, const char *pointer, kg_err_t *err);
int kg_fs_path_resolve(const kg_sbx_info_t *info,
                       const char *path,
                       kg_fs_path_t *ret_path,
                       kg_err_t *err);
/* The root, /workspace or /home/user. */
bool kg_fs_path_fixed(const char *shown);
/* dir + "/" + name. -ENAMETOOLONG. */
int kg_fs_path_join(char ret[KG_FS_PATH_MAX], const char *dir, const char *name);
/* An Entry; NULL: OOM. */
json_t *kg_fs_entry_json(const char *shown, const kg_fs_entry_t *entry);
/* Adds name, or name repaired and name_base64. */
int kg_fs_put_name(json_t *object, const char *key, const char *bytes);

/* ---- file_pump.c: from an intake into a descriptor ---- */

typedef struct kg_pump {
    kg_io_t *io; /* borrowed */
    kg_intake_t intake;
    uint64_t offset;
    uint64_t max; /* offset never goes past it */
    kg_buf_t buf;
    kg_io_job_t *job;
    size_t writing; /* bytes of job */
    bool end;
    bool running;
    void (*moved)(void *user); /* a piece is in the file; NULL ok */
    /* err NULL: all of the intake is in the file. */
    void (*done)(void *user, const kg_err_t *err);
    void *user;
} kg_pump_t;

void kg_pump_start(kg_pump_t *pump);
void kg_pump_more(kg_pump_t *pump);
/* done never runs; what was written is in offset. */
void kg_pump_stop(kg_pump_t *pump);
void kg_pump_fini(kg_pump_t *pump);

/* The memo of one that an earlier gateway was sent: it is complete, or lost and told of. False:
 * there is no room for that. */
bool kg_upload_recover(kg_sandbox_t *sandbox, const char *id, const char *body);
void kg_uploads_tick(kg_core_t *core);
void kg_uploads_box_gone(kg_core_t *core, const char *sandbox);
void kg_uploads_destroy(kg_core_t *core);

#endif
