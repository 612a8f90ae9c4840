/* gateway/context: what goes on with the files of a sandbox for somebody: found by who asked, so
 * that it can be forgotten, and by the sandbox, so that it ends with it. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/files_priv.h"

static const struct {
    unsigned here, all;
    const char *what;
} bounds[] = {
    [KG_FSOP_SMALL] = {UINT_MAX, UINT_MAX, "operations"},
    [KG_FSOP_TRANSFER] = {KG_FILES_TRANSFERS_MAX, KG_FILES_TRANSFERS_ALL, "transfers"},
    [KG_FSOP_WATCH] = {KG_FILES_WATCHES_MAX, KG_FILES_WATCHES_ALL, "watches"},
};

int kg_fsop_room(const kg_sandbox_t *sandbox, kg_fsop_sort_t sort, kg_err_t *err)
{
    unsigned here = 0;
    unsigned all = 0;
    const kg_fsop_t *op = NULL;
    DL_FOREACH (sandbox->core->fsops, op) {
        bool same = op->type->sort == sort;
        all += same;
        here += same && strcmp(op->sandbox, sandbox->id) == 0;
    }
    if (here < bounds[sort].here && all < bounds[sort].all) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "%u %s of this sandbox are open, %u in all.",
                        here, bounds[sort].what, all);
    kg_err_hint(err, "A sandbox may have %u.", bounds[sort].here);
    err->retry_after_s = 1;
    return rc;
}

void kg_fsop_begin(kg_fsop_t *op, const kg_fsop_type_t *type, kg_sandbox_t *sandbox, void *user)
{
    op->type = type;
    op->core = sandbox->core;
    op->user = user;
    (void)kg_format(op->sandbox, sizeof(op->sandbox), "%s", sandbox->id);
    DL_APPEND(op->core->fsops, op);
    sandbox->files++;
}

kg_sandbox_t *kg_fsop_sandbox(const kg_fsop_t *op)
{
    return op->core ? kg_sandbox_by_id(op->core, op->sandbox) : NULL;
}

kg_sbx_t *kg_fsop_sbx(const kg_fsop_t *op)
{
    const kg_sandbox_t *sandbox = kg_fsop_sandbox(op);
    return sandbox ? kg_sandbox_sbx(sandbox) : NULL;
}

uint64_t kg_fsop_limit_ms(const kg_fsop_t *op)
{
    return op->core ? op->core->config.files_timeout_ms : 0;
}

/* --- Temporary files that go ------------------------------------------------------------------ */

/* The sandbox waits for it when it ends, for its files may stay; but not long: its init may be
 * frozen. */
typedef struct discard {
    kg_fsop_t op;
    kg_timer_t *timer;
} discard_t;

enum {
    DISCARD_MS = 500
};

static void discard_destroy(kg_fsop_t *op)
{
    discard_t *d = (discard_t *)op;
    kg_timer_close(&d->timer);
    free(d);
}

static const kg_fsop_type_t discard_type = {.destroy = discard_destroy};

static void discard_over(discard_t *d)
{
    kg_sandbox_t *sandbox = NULL;
    HASH_FIND_STR(d->op.core->sandboxes, d->op.sandbox, sandbox);
    kg_fsop_end(&d->op);
    discard_destroy(&d->op);
    if (sandbox) {
        kg_sandbox_ended_check(sandbox);
    }
}

static void discarded(void *user, bool created, const kg_err_t *err)
{
    (void)created;
    (void)err; /* init removes it itself when the gateway goes */
    discard_over(user);
}

static void discard_late(void *user)
{
    discard_t *d = user;
    kg_sandbox_t *sandbox = NULL;
    HASH_FIND_STR(d->op.core->sandboxes, d->op.sandbox, sandbox);
    if (sandbox && sandbox->sbx) {
        kg_sbx_forget(sandbox->sbx, d);
    }
    discard_over(d);
}

void kg_fsop_discard(const kg_fsop_t *op, const char *name)
{
    kg_sandbox_t *sandbox = NULL;
    if (op->core) {
        HASH_FIND_STR(op->core->sandboxes, op->sandbox, sandbox);
    }
    if (!sandbox || !sandbox->sbx || kg_sbx_is_lost(sandbox->sbx)) {
        return;
    }
    discard_t *d = calloc(1, sizeof(*d));
    if (!d || kg_timer_create(op->core->loop, discard_late, d, &d->timer) < 0) {
        free(d);
        return;
    }
    kg_fsop_begin(&d->op, &discard_type, sandbox, NULL);
    d->op.gone = true; /* it goes on while its place ends */
    if (kg_fs_put_in_place(sandbox->sbx, name, NULL, false, discarded, d) < 0) {
        kg_fsop_end(&d->op);
        discard_destroy(&d->op);
        return;
    }
    kg_timer_start(d->timer, kg_ms(DISCARD_MS), 0);
}

bool kg_files_discarding(const kg_sandbox_t *sandbox)
{
    const kg_fsop_t *op = NULL;
    DL_FOREACH (sandbox->core->fsops, op) {
        if (op->type == &discard_type && strcmp(op->sandbox, sandbox->id) == 0) {
            return true;
        }
    }
    return false;
}

void kg_fsop_touch(const kg_fsop_t *op)
{
    kg_sandbox_t *sandbox = kg_fsop_sandbox(op);
    if (sandbox) {
        kg_sandbox_touch(sandbox);
    }
}

void kg_fsop_lost(kg_err_t *err)
{
    (void)kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "The sandbox has ended.");
}

void kg_fsop_end(kg_fsop_t *op)
{
    if (!op->core) {
        return;
    }
    kg_sandbox_t *sandbox = NULL;
    HASH_FIND_STR(op->core->sandboxes, op->sandbox, sandbox);
    if (sandbox && sandbox->files > 0) {
        sandbox->files--;
        kg_sandbox_touch(sandbox);
    }
    DL_DELETE(op->core->fsops, op);
    op->core = NULL;
}

static void awake(void *user, const kg_err_t *err)
{
    kg_fsop_t *op = user;
    kg_err_t own = {0};
    kg_fsop_step_fn *step = op->step;
    op->waking = false;
    op->step = NULL;
    kg_sandbox_t *sandbox = kg_fsop_sandbox(op);
    kg_sbx_t *sbx = sandbox ? kg_sandbox_sbx(sandbox) : NULL;
    if (err) {
        op->type->fail(op, err);
    } else if (!sbx) {
        kg_fsop_lost(&own);
        op->type->fail(op, &own);
    } else if (step) {
        step(op, sbx);
    } else {
        op->type->go(op, sandbox, sbx);
    }
}

int kg_fsop_wake(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_err_t *err)
{
    int rc = kg_sandbox_wake_for_files(sandbox, awake, op, err);
    if (rc < 0) {
        kg_fsop_end(op);
        return rc;
    }
    op->waking = true;
    return 0;
}

void kg_fsop_go_on(kg_fsop_t *op, kg_fsop_step_fn *step)
{
    kg_err_t err = {0};
    kg_sandbox_t *sandbox = kg_fsop_sandbox(op);
    kg_sbx_t *sbx = sandbox ? kg_sandbox_sbx(sandbox) : NULL;
    int rc = -EPIPE;

    if (sbx) {
        step(op, sbx);
        return;
    }
    if (sandbox && sandbox->box == KG_BOX_UP && sandbox->pause != KG_PAUSE_NO) {
        rc = kg_sandbox_wake_for_files(sandbox, awake, op, &err);
    } else {
        kg_fsop_lost(&err);
    }
    if (rc < 0) {
        op->type->fail(op, &err);
        return;
    }
    op->waking = true;
    op->step = step;
}

/* --- Those who leave ------------------------------------------------------------------------ */

void kg_files_forget(kg_core_t *core, const void *user)
{
    kg_fsop_t *op = NULL;
    kg_fsop_t *next = NULL;
    if (!user) {
        return;
    }
    DL_FOREACH_SAFE (core->fsops, op, next) {
        if (op->user == user) {
            op->user = NULL;
            if (op->type->forget) {
                op->type->forget(op);
            }
        }
    }
}

/* What it waits for from init is forgotten first, so that no answer comes to one that is freed. One
 * that waits to be woken hears of the end there. An end may bring others with it, so the list is
 * begun anew after each. */
void kg_files_box_gone(kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_core_t *core = sandbox->core;
    for (;;) {
        kg_fsop_t *op = NULL;
        DL_FOREACH (core->fsops, op) {
            if (!op->gone && !op->waking && strcmp(op->sandbox, sandbox->id) == 0) {
                break;
            }
        }
        if (!op) {
            break;
        }
        op->gone = true;
        if (sandbox->sbx) {
            kg_sbx_forget(sandbox->sbx, op);
        }
        (op->type->gone ? op->type->gone : op->type->fail)(op, err);
    }
    kg_uploads_box_gone(core, sandbox->id);
}

void kg_files_tick(kg_core_t *core)
{
    kg_uploads_tick(core);
}

void kg_files_destroy(kg_core_t *core)
{
    kg_uploads_destroy(core);
    while (core->fsops) {
        kg_fsop_t *op = core->fsops;
        kg_sandbox_t *sandbox = NULL;
        HASH_FIND_STR(core->sandboxes, op->sandbox, sandbox);
        if (sandbox && sandbox->sbx) {
            kg_sbx_forget(sandbox->sbx, op);
        }
        kg_fsop_end(op);
        op->type->destroy(op);
    }
}

void kg_fsop_no_file(const char *shown, bool directory, kg_err_t *err)
{
    (void)kg_err_set(err, KG_ERR_CONFLICT, "%s is %s.", shown,
                     directory ? "a directory" : "no regular file");
    kg_err_hint(err, "%s", directory ? KG_FS_DIRECTORY_HINT : KG_FS_REGULAR_HINT);
}
