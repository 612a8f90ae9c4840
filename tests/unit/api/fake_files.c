/* Files of the fake core: one file of memory, whatever its path. What is asked for waits until
 * fake_files_fire. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "fake_core.h"
#include "gateway/context/files.h"

typedef enum kind {
    JSON,
    DONE,
    OPEN,
    WRITE,
    WATCH,
    UPLOAD,
    APPEND
} kind_t;

struct kg_file {
    kg_source_t source;
    kg_file_info_t info;
    uint64_t offset, left;
};

struct kg_file_write {
    kg_intake_t intake;
    kg_buf_t got;
    bool whole;
};

struct kg_upload {
    kg_upload_info_t info;
    char metadata[256];
    bool there;
};

typedef struct op {
    kind_t kind;
    void *user;
    union {
        kg_files_json_fn *json;
        kg_done_fn *done;
        kg_file_fn *file;
        kg_file_written_fn *written;
        kg_files_watch_fn *watch;
        kg_upload_fn *upload;
    } fn;
    kg_file_write_t write;
    struct op *prev, *next;
} op_t;

static op_t *ops;
static kg_upload_t upload;
static fake_files_t told = {.size = 11};
static const char content[] = "hello files";

fake_files_t *fake_files(void)
{
    return &told;
}

static op_t *add(kind_t kind, void *user)
{
    op_t *op = calloc(1, sizeof *op);
    if (!op) {
        abort();
    }
    op->kind = kind;
    op->user = user;
    DL_APPEND(ops, op);
    return op;
}

static void drop(op_t *op)
{
    DL_DELETE(ops, op);
    kg_buf_fini(&op->write.got);
    free(op);
}

unsigned fake_files_forget(const void *user)
{
    unsigned count = 0;
    op_t *op = NULL;
    op_t *next = NULL;
    DL_FOREACH_SAFE (ops, op, next) {
        if (!user || op->user == user) {
            drop(op);
            count++;
        }
    }
    return count;
}

void fake_files_reset(void)
{
    (void)fake_files_forget(NULL);
    upload = (kg_upload_t){0};
    told = (fake_files_t){.size = sizeof content - 1};
}

static void take(kg_file_write_t *write)
{
    kg_buf_t piece = {0};
    if (!write->whole) {
        write->intake.take(write->intake.user, &piece, &write->whole);
        (void)kg_buf_append_slice(&write->got, kg_buf_slice(&piece));
    }
    kg_buf_fini(&piece);
}

/* --- Sources -------------------------------------------------------------------------------- */

static kg_source_state_t file_fill(kg_source_t *source, kg_buf_t *out, size_t max)
{
    kg_file_t *file = (kg_file_t *)source;
    size_t n = file->left < max ? (size_t)file->left : max;
    if (n > 0) {
        (void)kg_buf_append(out, content + file->offset, n);
    }
    file->offset += n;
    file->left -= n;
    return file->left ? KG_SOURCE_MORE : KG_SOURCE_END;
}

static void file_close(kg_source_t *source)
{
    told.open--;
    free(source);
}

static kg_source_state_t watch_fill(kg_source_t *source, kg_buf_t *out, size_t max)
{
    (void)source;
    (void)max;
    if (told.events == 0) {
        return told.watch_over ? KG_SOURCE_END : KG_SOURCE_WAIT;
    }
    told.events--;
    (void)kg_buf_append_cstr(out, "{\"type\":\"created\",\"path\":\"/workspace/a\"}");
    return KG_SOURCE_MORE;
}

void fake_files_event(void)
{
    told.events++;
    if (told.watch) {
        kg_source_wake(told.watch);
    }
}

static void give_watch(const op_t *op)
{
    kg_source_t *source = calloc(1, sizeof *source);
    *source = (kg_source_t){.fill = watch_fill, .close = file_close};
    told.open++;
    told.watch = source;
    op->fn.watch(op->user, source, NULL);
}

static void give_file(const op_t *op)
{
    kg_file_t *file = calloc(1, sizeof *file);
    file->info = (kg_file_info_t){
        .size = told.size, .sized = true, .mtime_ns = INT64_C(784111777000000000), .ino = 7};
    told.open++;
    op->fn.file(op->user, file, NULL);
}

static void fire(op_t *op, const kg_err_t *err)
{
    const kg_err_t *e = err->code ? err : NULL;
    switch (op->kind) {
    case JSON:
        op->fn.json(op->user, e ? NULL : json_pack("{s:s}", "path", "/workspace/x"), e);
        break;
    case DONE:
        op->fn.done(op->user, e);
        break;
    case OPEN:
        if (e) {
            op->fn.file(op->user, NULL, e);
        } else {
            give_file(op);
        }
        break;
    case WATCH:
        if (e) {
            op->fn.watch(op->user, NULL, e);
        } else {
            give_watch(op);
        }
        break;
    case WRITE:
        snprintf(told.written, sizeof told.written, "%.*s", (int)op->write.got.len,
                 op->write.got.data ? op->write.got.data : "");
        op->fn.written(op->user, told.creates, op->write.got.len, e);
        break;
    case UPLOAD:
        upload.there = !e;
        op->fn.upload(op->user, e ? NULL : &upload, e);
        break;
    case APPEND:
        upload.info.offset += op->write.got.len;
        op->fn.upload(op->user, e ? NULL : &upload, e);
        break;
    }
}

/* Those whose bytes have not all come wait on. */
unsigned fake_files_fire(kg_err_code_t code)
{
    unsigned count = 0;
    kg_err_t err = {0};
    if (code) {
        kg_err_set(&err, code, "It is so.");
    }
    for (op_t *op = ops; op;) {
        op_t *next = op->next;
        bool takes = op->kind == WRITE || op->kind == APPEND;
        if (takes) {
            take(&op->write);
        }
        if (!takes || op->write.whole || code) {
            op_t done = *op;
            DL_DELETE(ops, op);
            free(op);
            fire(&done, &err);
            kg_buf_fini(&done.write.got);
            count++;
        }
        op = next;
    }
    return count;
}

/* --- The calls ------------------------------------------------------------------------------ */

static int refuse_path(const char *path, kg_err_t *err)
{
    snprintf(told.path, sizeof told.path, "%s", path);
    return strcmp(path, "bad") == 0 ? kg_err_set(err, KG_ERR_FORBIDDEN, "Not this one.") : 0;
}

/* NULL: refused. */
static op_t *begin(kind_t kind, const char *path, void *user, kg_err_t *err)
{
    return refuse_path(path, err) ? NULL : add(kind, user);
}

static int begun(const op_t *op)
{
    return op ? 0 : -EPERM;
}

static int json_op(const char *path, kg_files_json_fn *fn, void *user, kg_err_t *err)
{
    op_t *op = begin(JSON, path, user, err);
    if (op) {
        op->fn.json = fn;
    }
    return begun(op);
}

/* The file is there unless its path says so, and told before anything is done. */
static int checked(kg_file_check_fn *check, const char *path, void *user, kg_err_t *err)
{
    kg_fs_stat_t stat = {
        .type = KG_FS_FILE, .ino = 7, .size = 11, .mtime_ns = INT64_C(784111777000000000)};
    return check ? check(user, strcmp(path, "none") == 0 ? NULL : &stat, err) : 0;
}

int kg_files_stat(kg_sandbox_t *sandbox,
                  const char *path,
                  bool follow,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    (void)sandbox;
    told.flag = follow;
    return json_op(path, fn, user, err);
}

int kg_files_list(kg_sandbox_t *sandbox,
                  const kg_files_list_t *opts,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    (void)sandbox;
    told.depth = opts->depth;
    told.limit = opts->limit;
    snprintf(told.to, sizeof told.to, "%s", opts->after ? opts->after : "");
    return json_op(opts->path, fn, user, err);
}

int kg_files_mkdir(kg_sandbox_t *sandbox,
                   const char *path,
                   uint32_t mode,
                   bool parents,
                   kg_files_json_fn *fn,
                   void *user,
                   kg_err_t *err)
{
    (void)sandbox;
    told.mode = mode;
    told.flag = parents;
    return json_op(path, fn, user, err);
}

int kg_files_move(kg_sandbox_t *sandbox,
                  const char *from,
                  const char *to,
                  bool overwrite,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    (void)sandbox;
    told.flag = overwrite;
    snprintf(told.to, sizeof told.to, "%s", to);
    return json_op(from, fn, user, err);
}

int kg_files_remove(kg_sandbox_t *sandbox,
                    const char *path,
                    bool recursive,
                    kg_file_check_fn *check,
                    kg_done_fn *fn,
                    void *user,
                    kg_err_t *err)
{
    (void)sandbox;
    told.flag = recursive;
    int rc = checked(check, path, user, err);
    if (rc) {
        return rc;
    }
    op_t *op = begin(DONE, path, user, err);
    if (op) {
        op->fn.done = fn;
    }
    return begun(op);
}

int kg_files_open(
    kg_sandbox_t *sandbox, const char *path, kg_file_fn *fn, void *user, kg_err_t *err)
{
    (void)sandbox;
    op_t *op = begin(OPEN, path, user, err);
    if (op) {
        op->fn.file = fn;
    }
    return begun(op);
}

const kg_file_info_t *kg_file_info(const kg_file_t *file)
{
    return &file->info;
}

kg_source_t *kg_file_source(kg_file_t **file, uint64_t offset, uint64_t length)
{
    kg_file_t *f = KG_TAKE(*file);
    f->source = (kg_source_t){.fill = file_fill, .close = file_close};
    f->offset = offset;
    f->left = length;
    return &f->source;
}

void kg_file_close(kg_file_t **file)
{
    if (*file) {
        told.open--;
        free(KG_TAKE(*file));
    }
}

int kg_files_write(kg_sandbox_t *sandbox,
                   const kg_file_write_opts_t *opts,
                   kg_file_written_fn *fn,
                   void *user,
                   kg_file_write_t **ret_write,
                   kg_err_t *err)
{
    (void)sandbox;
    told.mode = opts->mode;
    int rc = checked(opts->check, opts->path, user, err);
    if (rc) {
        return rc;
    }
    op_t *op = begin(WRITE, opts->path, user, err);
    if (op) {
        op->fn.written = fn;
        op->write.intake = opts->intake;
        *ret_write = &op->write;
    }
    return begun(op);
}

void kg_file_write_more(kg_file_write_t *write)
{
    told.mores++;
    take(write);
}

int kg_files_watch(kg_sandbox_t *sandbox,
                   const char *path,
                   bool recursive,
                   kg_files_watch_fn *fn,
                   void *user,
                   kg_err_t *err)
{
    (void)sandbox;
    told.flag = recursive;
    op_t *op = begin(WATCH, path, user, err);
    if (op) {
        op->fn.watch = fn;
    }
    return begun(op);
}

/* --- Uploads -------------------------------------------------------------------------------- */

int kg_upload_new(kg_sandbox_t *sandbox,
                  const kg_upload_opts_t *opts,
                  kg_upload_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    (void)sandbox;
    op_t *op = begin(UPLOAD, opts->path, user, err);
    if (op) {
        op->fn.upload = fn;
        told.mode = opts->mode;
        snprintf(upload.metadata, sizeof upload.metadata, "%s", opts->metadata);
        upload.info =
            (kg_upload_info_t){.id = "upl-1", .length = opts->length, .metadata = upload.metadata};
    }
    return begun(op);
}

kg_upload_t *kg_upload_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err)
{
    (void)sandbox;
    if (upload.there && strcmp(id, upload.info.id) == 0) {
        return &upload;
    }
    kg_err_set(err, KG_ERR_NOT_FOUND, "No upload.");
    return NULL;
}

const kg_upload_info_t *kg_upload_info(const kg_upload_t *u)
{
    return &u->info;
}

int kg_upload_append(
    kg_upload_t *u, const kg_upload_piece_t *piece, kg_upload_fn *fn, void *user, kg_err_t *err)
{
    told.bytes = piece->bytes;
    if (piece->offset != u->info.offset) {
        return kg_err_set(err, KG_ERR_CONFLICT, "Another offset.");
    }
    u->info.length = piece->length >= 0 ? piece->length : u->info.length;
    op_t *op = add(APPEND, user);
    op->fn.upload = fn;
    op->write.intake = piece->intake;
    return 0;
}

void kg_upload_more(kg_upload_t *u)
{
    (void)u;
    told.mores++;
}

void kg_upload_delete(kg_upload_t *u)
{
    u->there = false;
}
