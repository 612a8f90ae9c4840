/* gateway/context: what is done with files by one question to sandal-init, or two: stat, mkdir,
 * move, remove. */
#include <errno.h>
#include <string.h>

#include "gateway/context/files_priv.h"

typedef enum kind {
    OP_STAT,
    OP_MKDIR,
    OP_MOVE,
    OP_REMOVE
} kind_t;

typedef struct simple {
    kg_fsop_t op;
    kind_t kind;
    char *path;
    char *to;        /* OP_MOVE */
    uint32_t mode;   /* OP_MKDIR */
    bool flag;       /* follow, parents, overwrite, recursive */
    kg_fs_path_t at; /* whose Entry is the answer */
    kg_files_json_fn *json_fn;
    kg_done_fn *done_fn;
    kg_file_check_fn *check; /* OP_REMOVE */
} simple_t;

static void simple_free(simple_t *s)
{
    kg_fsop_end(&s->op);
    free(s->path);
    free(s->to);
    free(s);
}

static void answer(simple_t *s, json_t *json, const kg_err_t *err)
{
    kg_files_json_fn *json_fn = s->json_fn;
    kg_done_fn *done_fn = s->done_fn;
    void *user = s->op.user;
    simple_free(s);
    if (!user) {
        json_decref(json);
    } else if (done_fn) {
        done_fn(user, err);
    } else {
        json_fn(user, json, err);
    }
}

static void simple_fail(kg_fsop_t *op, const kg_err_t *err)
{
    answer((simple_t *)op, NULL, err);
}

static void fail_rc(simple_t *s, int rc, const kg_err_t *err)
{
    kg_err_t own = *err;
    if (own.code == KG_ERR_NONE) {
        (void)kg_err_set(&own, kg_err_from_errno(rc), "The sandbox cannot be asked now.");
    }
    answer(s, NULL, &own);
}

/* --- Answers of init ------------------------------------------------------------------------ */

static void got_stat(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    simple_t *s = user;
    if (!entry) {
        answer(s, NULL, err);
        return;
    }
    json_t *json = kg_fs_entry_json(s->at.shown, entry);
    kg_err_t oom = {0};
    if (!json) {
        (void)kg_oom(&oom);
    }
    answer(s, json, json ? NULL : &oom);
}

static void ask_stat(kg_fsop_t *op, kg_sbx_t *sbx)
{
    simple_t *s = (simple_t *)op;
    kg_err_t err = {0};
    int rc = kg_fs_stat(sbx, s->at.inner, s->kind == OP_MKDIR, false, got_stat, s);
    if (rc < 0) {
        fail_rc(s, rc, &err);
    }
}

static void made(void *user, const kg_err_t *err)
{
    simple_t *s = user;
    if (err) {
        answer(s, NULL, err);
    } else {
        kg_fsop_go_on(&s->op, ask_stat);
    }
}

static void removed(void *user, const kg_err_t *err)
{
    answer(user, NULL, err);
}

static void remove_it(kg_fsop_t *op, kg_sbx_t *sbx)
{
    simple_t *s = (simple_t *)op;
    kg_err_t err = {0};
    int rc = kg_fs_remove(sbx, s->at.inner, s->flag, kg_fsop_limit_ms(op), false, removed, s);
    if (rc < 0) {
        fail_rc(s, rc, &err);
    }
}

static void checked(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    simple_t *s = user;
    kg_err_t own = {0};
    if (!s->op.user || (!entry && err->code != KG_ERR_NOT_FOUND)) {
        answer(s, NULL, err); /* nobody is there to ask, or it can't be known */
        return;
    }
    int rc = s->check(s->op.user, entry ? &entry->stat : NULL, &own);
    if (rc < 0) {
        fail_rc(s, rc, &own);
    } else {
        kg_fsop_go_on(&s->op, remove_it);
    }
}

/* --- Questions ------------------------------------------------------------------------------ */

static int refuse_fixed(const kg_fs_path_t *path, const char *what, kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_FORBIDDEN, "%s belongs to the sandbox itself and cannot be %s.",
                      path->shown, what);
}

static int go_move(simple_t *s, kg_sbx_t *sbx, kg_err_t *err)
{
    kg_fs_path_t from;
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), s->path, &from, err);
    if (!rc && kg_fs_path_fixed(from.shown)) {
        rc = refuse_fixed(&from, "moved", err);
    }
    if (rc) {
        kg_err_pointer(err, "/from");
        return rc;
    }
    rc = kg_fs_path_resolve(kg_sbx_info(sbx), s->to, &s->at, err);
    if (!rc && kg_fs_path_fixed(s->at.shown)) {
        rc = refuse_fixed(&s->at, "replaced", err);
    }
    if (rc) {
        kg_err_pointer(err, "/to");
        return rc;
    }
    const kg_fs_move_opts_t opts = {.from = from.inner,
                                    .to = s->at.inner,
                                    .limit_ms = kg_fsop_limit_ms(&s->op),
                                    .overwrite = s->flag};
    return kg_fs_move(sbx, &opts, made, s);
}

static int go_remove(simple_t *s, kg_sbx_t *sbx, kg_err_t *err)
{
    if (kg_fs_path_fixed(s->at.shown)) {
        return refuse_fixed(&s->at, "removed", err);
    }
    return s->check ? kg_fs_stat(sbx, s->at.inner, true, false, checked, s)
                    : kg_fs_remove(sbx, s->at.inner, s->flag, kg_fsop_limit_ms(&s->op), false,
                                   removed, s);
}

static int go_one(simple_t *s, kg_sbx_t *sbx, kg_err_t *err)
{
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), s->path, &s->at, err);
    if (rc) {
        return rc;
    }
    switch (s->kind) {
    case OP_STAT:
        return kg_fs_stat(sbx, s->at.inner, s->flag, false, got_stat, s);
    case OP_MKDIR:
        return kg_fs_mkdir(sbx, s->at.inner, s->mode, s->flag, false, made, s);
    case OP_REMOVE:
        return go_remove(s, sbx, err);
    case OP_MOVE:
        break;
    }
    return -EINVAL;
}

static void simple_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    simple_t *s = (simple_t *)op;
    kg_err_t err = {0};
    (void)sandbox;
    int rc = s->kind == OP_MOVE ? go_move(s, sbx, &err) : go_one(s, sbx, &err);
    if (rc < 0) {
        fail_rc(s, rc, &err);
    }
}

static void simple_destroy(kg_fsop_t *op)
{
    simple_free((simple_t *)op);
}

static const kg_fsop_type_t simple_type = {
    .go = simple_go, .fail = simple_fail, .destroy = simple_destroy};

static int start(kg_sandbox_t *sandbox, const simple_t *form, void *user, kg_err_t *err)
{
    int rc = kg_fs_path_check(form->path, form->kind == OP_MOVE ? "/from" : "/path", err);
    rc = rc || !form->to ? rc : kg_fs_path_check(form->to, "/to", err);
    if (rc) {
        return rc;
    }
    simple_t *s = calloc(1, sizeof(*s));
    if (!s) {
        return kg_oom(err);
    }
    *s = *form;
    s->path = strdup(form->path);
    s->to = form->to ? strdup(form->to) : NULL;
    kg_fsop_begin(&s->op, &simple_type, sandbox, user);
    rc = !s->path || (form->to && !s->to) ? kg_oom(err) : kg_fsop_wake(&s->op, sandbox, err);
    if (rc) {
        simple_free(s);
    }
    return rc;
}

/* The forms are copied before anything is written to. */
static char *borrowed(const char *text)
{
    return (char *)(uintptr_t)text;
}

int kg_files_stat(kg_sandbox_t *sandbox,
                  const char *path,
                  bool follow,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    simple_t form = {.kind = OP_STAT, .path = borrowed(path), .flag = follow, .json_fn = fn};
    return start(sandbox, &form, user, err);
}

int kg_files_mkdir(kg_sandbox_t *sandbox,
                   const char *path,
                   uint32_t mode,
                   bool parents,
                   kg_files_json_fn *fn,
                   void *user,
                   kg_err_t *err)
{
    simple_t form = {
        .kind = OP_MKDIR, .path = borrowed(path), .mode = mode, .flag = parents, .json_fn = fn};
    return start(sandbox, &form, user, err);
}

int kg_files_move(kg_sandbox_t *sandbox,
                  const char *from,
                  const char *to,
                  bool overwrite,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    simple_t form = {.kind = OP_MOVE,
                     .path = borrowed(from),
                     .to = borrowed(to),
                     .flag = overwrite,
                     .json_fn = fn};
    return start(sandbox, &form, user, err);
}

int kg_files_remove(kg_sandbox_t *sandbox,
                    const char *path,
                    bool recursive,
                    kg_file_check_fn *check,
                    kg_done_fn *fn,
                    void *user,
                    kg_err_t *err)
{
    simple_t form = {.kind = OP_REMOVE,
                     .path = borrowed(path),
                     .flag = recursive,
                     .check = check,
                     .done_fn = fn};
    return start(sandbox, &form, user, err);
}
