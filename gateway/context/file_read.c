/* gateway/context: a file's bytes on their way out: poured into a socket by a worker where the
 * reader has one, else one piece is read ahead while another one is sent, whatever the file's size.
 */
#include <errno.h>
#include <string.h>

#include "gateway/context/files_priv.h"

struct kg_file {
    kg_source_t source;
    kg_fsop_t op;
    char *path;
    kg_fs_path_t at;
    kg_file_fn *fn; /* until it is open */
    kg_io_t *io;
    kg_io_job_t *job;
    kg_file_info_t info;
    kg_buf_t front; /* being sent */
    size_t off;
    kg_buf_t back; /* read ahead */
    bool back_full;
    size_t asked;  /* of the worker */
    size_t poured; /* not told of yet */
    bool choked;   /* the socket took less than what was asked */
    uint64_t pos;  /* of the next read */
    uint64_t left; /* to be read; UINT64_MAX: to the end */
    bool ended;    /* the last byte has been read */
    bool failed;
};

static kg_file_t *file_of(kg_fsop_t *op)
{
    return (kg_file_t *)((char *)op - offsetof(kg_file_t, op));
}

static void file_free(kg_file_t *f)
{
    kg_fsop_end(&f->op);
    kg_io_forget(&f->job);
    kg_io_close(&f->io);
    kg_buf_fini(&f->front);
    kg_buf_fini(&f->back);
    free(f->path);
    free(f);
}

void kg_file_close(kg_file_t **file)
{
    if (*file) {
        file_free(KG_TAKE(*file));
    }
}

const kg_file_info_t *kg_file_info(const kg_file_t *file)
{
    return &file->info;
}

/* --- Opening -------------------------------------------------------------------------------- */

static void open_failed(kg_file_t *f, const kg_err_t *err)
{
    kg_file_fn *fn = f->fn;
    void *user = f->op.user;
    kg_err_t copy = *err;
    file_free(f);
    if (user) {
        fn(user, NULL, &copy);
    }
}

/* Files of the kernel's may be there and yet not be read. */
static kg_err_code_t code_of(int rc)
{
    switch (-rc) {
    case ESRCH:
    case ENXIO:
    case ENODEV:
        return KG_ERR_NOT_FOUND;
    case EPERM:
    case EACCES:
        return KG_ERR_FORBIDDEN;
    case EINVAL:
    case EIO:
    case EISDIR:
    case EAGAIN:
        return KG_ERR_CONFLICT;
    case ENOMEM:
        return KG_ERR_OUT_OF_MEMORY;
    default:
        return KG_ERR_INTERNAL;
    }
}

static void open_failed_rc(kg_file_t *f, int rc)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, code_of(rc), "The file cannot be read: %s.", strerrordesc_np(-rc));
    open_failed(f, &err);
}

/* The receiver's from here on; nobody forgets it any more. */
static void opened(kg_file_t *f)
{
    kg_file_fn *fn = KG_TAKE(f->fn);
    void *user = f->op.user;
    if (!user) {
        file_free(f);
        return;
    }
    f->op.user = NULL;
    fn(user, f, NULL);
}

/* Files of /proc say that they are empty, and are not. */
static void got_first(void *user, ssize_t rc, kg_buf_t *bytes)
{
    kg_file_t *f = user;
    if (rc < 0) {
        open_failed_rc(f, (int)rc);
        return;
    }
    f->info.sized = rc == 0;
    f->pos = (uint64_t)rc;
    f->front = *bytes;
    *bytes = (kg_buf_t){0};
    opened(f);
}

static void got_stat(void *user, int rc, const struct stat *st)
{
    kg_file_t *f = user;
    if (rc < 0) {
        open_failed_rc(f, rc);
        return;
    }
    if (!S_ISREG(st->st_mode)) {
        kg_err_t err = {0};
        kg_fsop_no_file(f->at.shown, S_ISDIR(st->st_mode), &err);
        open_failed(f, &err);
        return;
    }
    f->info = (kg_file_info_t){
        .size = st->st_size > 0 ? (uint64_t)st->st_size : 0,
        .sized = true,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * (int64_t)KG_NS_PER_S + st->st_mtim.tv_nsec,
        .ino = st->st_ino,
    };
    if (f->info.size > 0) {
        opened(f);
        return;
    }
    rc = kg_io_read(f->io, 0, KG_IO_PIECE, NULL, got_first, f, &f->job);
    if (rc < 0) {
        open_failed_rc(f, rc);
    }
}

static void got_fd(void *user, int fd_take, const char *name, const kg_err_t *err)
{
    kg_file_t *f = file_of(user);
    (void)name;
    if (fd_take < 0) {
        open_failed(f, err);
        return;
    }
    int rc = kg_io_open(f->op.core->loop, fd_take, &f->io);
    rc = rc ? rc : kg_io_stat(f->io, got_stat, f, &f->job);
    if (rc < 0) {
        open_failed_rc(f, rc);
    }
}

/* A directory can be opened for reading too, so what it is is asked first where that costs nothing:
 * after the open. */
static void read_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    kg_file_t *f = file_of(op);
    kg_err_t err = {0};
    (void)sandbox;
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), f->path, &f->at, &err);
    if (rc < 0) {
        open_failed(f, &err);
        return;
    }
    rc = kg_fs_open(sbx, f->at.inner, KG_FS_OPEN_READ, 0, false, got_fd, &f->op);
    if (rc < 0) {
        open_failed_rc(f, rc);
    }
}

static void read_fail(kg_fsop_t *op, const kg_err_t *err)
{
    open_failed(file_of(op), err);
}

/* The descriptor must not hold the sandbox's disk; who reads sees that something is missing. */
static void read_gone(kg_fsop_t *op, const kg_err_t *err)
{
    kg_file_t *f = file_of(op);
    if (f->fn) {
        open_failed(f, err);
        return;
    }
    kg_fsop_end(op);
    kg_io_forget(&f->job);
    kg_io_close(&f->io);
    f->failed = true;
    kg_source_wake(&f->source);
}

/* The core goes: whoever has it as a source closes it later. */
static void read_destroy(kg_fsop_t *op)
{
    kg_file_t *f = file_of(op);
    if (f->fn) {
        file_free(f);
        return;
    }
    kg_io_forget(&f->job);
    kg_io_close(&f->io);
    f->failed = true;
}

static void read_forget(kg_fsop_t *op)
{
    (void)op; /* opened() frees it */
}

static const kg_fsop_type_t read_type = {.sort = KG_FSOP_TRANSFER,
                                         .go = read_go,
                                         .fail = read_fail,
                                         .forget = read_forget,
                                         .gone = read_gone,
                                         .destroy = read_destroy};

int kg_files_open(
    kg_sandbox_t *sandbox, const char *path, kg_file_fn *fn, void *user, kg_err_t *err)
{
    int rc = kg_fs_path_check(path, "/path", err);
    rc = rc ? rc : kg_fsop_room(sandbox, KG_FSOP_TRANSFER, err);
    if (rc) {
        return rc;
    }
    kg_file_t *f = calloc(1, sizeof(*f));
    if (!f) {
        return kg_oom(err);
    }
    f->path = strdup(path);
    f->fn = fn;
    kg_fsop_begin(&f->op, &read_type, sandbox, user);
    rc = f->path ? kg_fsop_wake(&f->op, sandbox, err) : kg_oom(err);
    if (rc) {
        file_free(f);
    }
    return rc;
}

/* --- Reading -------------------------------------------------------------------------------- */

static void read_ahead(kg_file_t *f);

static void got_piece(void *user, ssize_t rc, kg_buf_t *bytes)
{
    kg_file_t *f = user;
    bool known = f->left != UINT64_MAX;
    if (rc < 0 || (rc == 0 && known)) {
        f->failed = true; /* also: it was cut shorter meanwhile */
    } else if (rc == 0) {
        f->ended = true;
    } else {
        f->pos += (uint64_t)rc;
        f->left -= known ? (uint64_t)rc : 0;
        f->ended = f->left == 0;
        kg_buf_fini(&f->back);
        f->back = *bytes;
        *bytes = (kg_buf_t){0};
        f->back_full = true;
        kg_fsop_touch(&f->op);
    }
    kg_source_wake(&f->source);
}

static void read_ahead(kg_file_t *f)
{
    if (f->job || f->back_full || f->ended || f->failed) {
        return;
    }
    size_t max = f->left < KG_IO_PIECE ? (size_t)f->left : KG_IO_PIECE;
    if (kg_io_read(f->io, f->pos, max, &f->back, got_piece, f, &f->job) < 0) {
        f->failed = true;
    }
}

static kg_source_state_t file_fill(kg_source_t *source, kg_buf_t *out, size_t max)
{
    kg_file_t *f = (kg_file_t *)source;
    if (f->off == f->front.len && f->back_full) {
        kg_buf_t empty = f->front;
        f->front = f->back;
        f->back = empty;
        f->off = 0;
        f->back_full = false;
    }
    read_ahead(f);
    size_t n = f->front.len - f->off;
    n = n < max ? n : max;
    if (n > 0 && kg_buf_append(out, f->front.data + f->off, n) < 0) {
        return KG_SOURCE_FAILED;
    }
    f->off += n;
    if (f->off < f->front.len || f->back_full) {
        return KG_SOURCE_MORE;
    }
    if (f->failed) {
        return KG_SOURCE_FAILED;
    }
    if (f->ended) {
        return KG_SOURCE_END;
    }
    return n > 0 ? KG_SOURCE_MORE : KG_SOURCE_WAIT;
}

static void got_sent(void *user, ssize_t rc, kg_buf_t *bytes)
{
    kg_file_t *f = user;
    (void)bytes;
    size_t n = rc > 0 ? (size_t)rc : 0;
    f->failed = rc == 0 || (rc < 0 && rc != -EAGAIN); /* 0: it was cut shorter meanwhile */
    f->choked = n < f->asked;
    f->pos += n;
    f->left -= n;
    f->poured += n;
    kg_fsop_touch(&f->op);
    kg_source_wake(&f->source);
}

static kg_source_state_t file_pour(kg_source_t *source, int socket, uint64_t *ret_sent)
{
    kg_file_t *f = (kg_file_t *)source;
    *ret_sent = f->poured;
    f->poured = 0;
    if (f->failed) {
        return KG_SOURCE_FAILED;
    }
    if (f->left == 0) {
        return KG_SOURCE_END;
    }
    if (f->choked) {
        f->choked = false;
        return KG_SOURCE_MORE;
    }
    if (f->job) {
        return KG_SOURCE_WAIT;
    }
    f->asked = f->left < KG_IO_SEND ? (size_t)f->left : KG_IO_SEND;
    int rc = kg_io_send(f->io, socket, f->pos, f->asked, got_sent, f, &f->job);
    return rc < 0 ? KG_SOURCE_FAILED : KG_SOURCE_WAIT;
}

static void file_source_close(kg_source_t *source)
{
    file_free((kg_file_t *)source);
}

kg_source_t *kg_file_source(kg_file_t **file, uint64_t offset, uint64_t length)
{
    kg_file_t *f = KG_TAKE(*file);
    f->source = (kg_source_t){.fill = file_fill, .close = file_source_close};
    bool first_kept = f->front.len > 0 && offset == 0;
    f->left = length;
    f->pos = first_kept ? f->pos : offset;
    if (!first_kept) {
        kg_buf_clear(&f->front);
    }
    f->ended = length == 0;
    if (length != UINT64_MAX && length >= KG_FILES_POUR_MIN) {
        f->source.pour = file_pour; /* or the first fill begins */
    } else {
        read_ahead(f);
    }
    return &f->source;
}
