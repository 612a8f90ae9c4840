/* gateway/context: a whole file from its sender: into a temporary one beside it, which takes its
 * place when all of it has come. Half of one leaves nothing. */
#include <errno.h>
#include <string.h>

#include "gateway/context/files_priv.h"

struct kg_file_write {
    kg_fsop_t op;
    char *path;
    kg_fs_path_t at;
    uint32_t mode;
    kg_file_written_fn *fn;
    kg_pump_t pump;
    kg_io_t *io;
    char *name; /* of the temporary file, until it is in place */
    kg_file_check_fn *check;
    enum {
        TAKING,
        QUEUED, /* whole; another one of the sandbox is being put in place */
        PUTTING
    } stage;
};

static kg_file_write_t *at_stage(kg_core_t *core, const char *sandbox, int stage);
static void put_next(kg_core_t *core, const char *sandbox);

static void write_free(kg_file_write_t *w)
{
    kg_core_t *core = w->stage == PUTTING ? w->op.core : NULL;
    char sandbox[KG_ID_MAX];
    memcpy(sandbox, w->op.sandbox, sizeof(sandbox));
    kg_pump_fini(&w->pump);
    kg_fsop_end(&w->op);
    kg_io_close(&w->io);
    free(w->name);
    free(w->path);
    free(w);
    if (core) {
        put_next(core, sandbox);
    }
}

/* What there is of it goes. */
static void discard(kg_file_write_t *w)
{
    if (w->name) {
        kg_fsop_discard(&w->op, w->name);
    }
}

static void finish(kg_file_write_t *w, bool created, const kg_err_t *err)
{
    kg_file_written_fn *fn = w->fn;
    void *user = w->op.user;
    uint64_t size = w->pump.offset;
    kg_err_t copy = {0};
    if (err) {
        copy = *err;
        discard(w);
    }
    write_free(w);
    if (user) {
        fn(user, created, size, err ? &copy : NULL);
    }
}

static void finish_rc(kg_file_write_t *w, int rc)
{
    kg_err_t err = {0};
    if (rc == -EPIPE) {
        kg_fsop_lost(&err);
    } else {
        (void)kg_err_set(&err, kg_err_from_errno(rc), "The sandbox cannot be asked now.");
    }
    finish(w, false, &err);
}

static void put(void *user, bool created, const kg_err_t *err)
{
    kg_file_write_t *w = user;
    if (!err) {
        free(KG_TAKE(w->name));
    }
    finish(w, created, err);
}

static void replace(kg_fsop_t *op, kg_sbx_t *sbx)
{
    kg_file_write_t *w = (kg_file_write_t *)op;
    int rc = kg_fs_put_in_place(sbx, w->name, w->at.inner, false, put, w);
    if (rc < 0) {
        finish_rc(w, rc);
    }
}

/* False: it has ended. */
static bool allowed(kg_file_write_t *w, const kg_fs_entry_t *entry)
{
    kg_err_t err = {0};
    if (!w->check || (w->op.user && w->check(w->op.user, entry ? &entry->stat : NULL, &err) == 0)) {
        return true;
    }
    finish(w, false, &err);
    return false;
}

static void got_state(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    kg_file_write_t *w = user;
    if (!entry && err->code != KG_ERR_NOT_FOUND) {
        finish(w, false, err);
    } else if (allowed(w, entry)) {
        kg_fsop_go_on(&w->op, replace);
    }
}

static void look_again(kg_fsop_t *op, kg_sbx_t *sbx)
{
    kg_file_write_t *w = (kg_file_write_t *)op;
    int rc = kg_fs_stat(sbx, w->at.inner, true, false, got_state, w);
    if (rc < 0) {
        finish_rc(w, rc);
    }
}

static void put_now(kg_file_write_t *w)
{
    w->stage = PUTTING;
    kg_fsop_go_on(&w->op, w->check ? look_again : replace);
}

static void moved(void *user)
{
    kg_file_write_t *w = user;
    kg_fsop_touch(&w->op);
}

static void got_fd(void *user, int fd_take, const char *name, const kg_err_t *err)
{
    kg_file_write_t *w = user;
    if (fd_take < 0) {
        finish(w, false, err);
        return;
    }
    w->name = strdup(name ? name : "");
    int rc = kg_io_open(w->op.core->loop, fd_take, &w->io);
    if (rc < 0 || !w->name) {
        finish_rc(w, -ENOMEM);
        return;
    }
    w->pump.io = w->io;
    if (!w->op.user) {
        kg_err_t gone = {0};
        finish(w, false, &gone);
        return;
    }
    kg_pump_start(&w->pump);
}

static void open_temporary(kg_fsop_t *op, kg_sbx_t *sbx)
{
    kg_file_write_t *w = (kg_file_write_t *)op;
    uint32_t flags =
        KG_FS_OPEN_WRITE | KG_FS_OPEN_CREATE | KG_FS_OPEN_PARENTS | KG_FS_OPEN_TEMPORARY;
    int rc = kg_fs_open(sbx, w->at.inner, flags, w->mode, false, got_fd, w);
    if (rc < 0) {
        finish_rc(w, rc);
    }
}

static void got_stat(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    kg_file_write_t *w = user;
    kg_err_t own = {0};
    if (!entry && err->code != KG_ERR_NOT_FOUND) {
        finish(w, false, err);
    } else if (entry && entry->stat.type != KG_FS_FILE) {
        kg_fsop_no_file(w->at.shown, entry->stat.type == KG_FS_DIR, &own);
        finish(w, false, &own);
    } else if (allowed(w, entry)) {
        if (w->mode == UINT32_MAX) {
            w->mode = entry ? entry->stat.mode & 0777 : 0644;
        }
        kg_fsop_go_on(&w->op, open_temporary);
    }
}

static void pumped(void *user, const kg_err_t *err)
{
    kg_file_write_t *w = user;
    if (err) {
        finish(w, false, err);
    } else if (at_stage(w->op.core, w->op.sandbox, PUTTING)) {
        w->stage = QUEUED;
    } else {
        put_now(w);
    }
}

static void write_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    kg_file_write_t *w = (kg_file_write_t *)op;
    kg_err_t err = {0};
    (void)sandbox;
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), w->path, &w->at, &err);
    if (rc < 0) {
        finish(w, false, &err);
        return;
    }
    rc = kg_fs_stat(sbx, w->at.inner, true, false, got_stat, w);
    if (rc < 0) {
        finish_rc(w, rc);
    }
}

static void write_fail(kg_fsop_t *op, const kg_err_t *err)
{
    finish((kg_file_write_t *)op, false, err);
}

/* The sender has gone. What waits for init ends with its answer, all else now. */
static void write_forget(kg_fsop_t *op)
{
    kg_file_write_t *w = (kg_file_write_t *)op;
    if (w->pump.running || w->stage == QUEUED) {
        discard(w);
        write_free(w);
    }
}

static void write_destroy(kg_fsop_t *op)
{
    write_free((kg_file_write_t *)op);
}

static const kg_fsop_type_t write_type = {.sort = KG_FSOP_TRANSFER,
                                          .go = write_go,
                                          .fail = write_fail,
                                          .forget = write_forget,
                                          .destroy = write_destroy};

/* The eldest write of a sandbox that is as far as that. */
static kg_file_write_t *at_stage(kg_core_t *core, const char *sandbox, int stage)
{
    kg_fsop_t *op = NULL;
    DL_FOREACH (core->fsops, op) {
        kg_file_write_t *w = (kg_file_write_t *)op;
        if (op->type == &write_type && (int)w->stage == stage &&
            strcmp(op->sandbox, sandbox) == 0) {
            return w;
        }
    }
    return NULL;
}

static void put_next(kg_core_t *core, const char *sandbox)
{
    kg_file_write_t *next = at_stage(core, sandbox, QUEUED);
    if (next && !at_stage(core, sandbox, PUTTING)) {
        put_now(next);
    }
}

int kg_files_write(kg_sandbox_t *sandbox,
                   const kg_file_write_opts_t *opts,
                   kg_file_written_fn *fn,
                   void *user,
                   kg_file_write_t **ret_write,
                   kg_err_t *err)
{
    int rc = kg_fs_path_check(opts->path, "/path", err);
    if (!rc && opts->path[strlen(opts->path) - 1] == '/') {
        rc = kg_bad(err, "/path", "A file's path does not end with a slash.");
    }
    rc = rc ? rc : kg_fsop_room(sandbox, KG_FSOP_TRANSFER, err);
    if (rc) {
        return rc;
    }
    kg_file_write_t *w = calloc(1, sizeof(*w));
    if (!w) {
        return kg_oom(err);
    }
    w->path = strdup(opts->path);
    w->mode = opts->mode;
    w->check = opts->check;
    w->fn = fn;
    w->pump = (kg_pump_t){
        .intake = opts->intake, .max = UINT64_MAX, .moved = moved, .done = pumped, .user = w};
    kg_fsop_begin(&w->op, &write_type, sandbox, user);
    rc = w->path ? kg_fsop_wake(&w->op, sandbox, err) : kg_oom(err);
    if (rc) {
        write_free(w);
        return rc;
    }
    *ret_write = w;
    return 0;
}

void kg_file_write_more(kg_file_write_t *write)
{
    kg_pump_more(&write->pump);
}
