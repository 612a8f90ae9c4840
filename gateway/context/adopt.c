/* gateway/context: sandboxes that outlived a gateway or a keeper. At the start the keeper is asked
 * what lives: those that the store knows are attached to, with their files and background processes
 * as they are, and their kernels (adopt_kernel.c); those that are nobody's end, and those that were
 * somebody's are kept (lost.c). Other processes of an earlier gateway end too: nobody holds their
 * pipes. */
#include <stdlib.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/internal.h"
#include "gateway/context/lost.h"
#include "gateway/context/zygote.h"

/* A sandbox that is ended for good, and has only files left. */
static void removed(void *user, const kg_err_t *err)
{
    (void)err;
    kg_box_not_found(user);
}

static void not_found(kg_sandbox_t *sandbox)
{
    if (sandbox->box == KG_BOX_ENDING && !sandbox->keep_files &&
        kg_keeper_end(sandbox->core->keeper, sandbox->id, false, removed, sandbox) == 0) {
        return;
    }
    kg_box_not_found(sandbox);
}

static void reported(void *user, const uint64_t *tokens, size_t count, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    size_t ended = 0;

    for (size_t i = 0; !err && sandbox->sbx && i < count; i++) {
        if (kg_kernel_may_live(sandbox, tokens[i])) {
            continue;
        }
        kg_sbx_end_token(sandbox->sbx, tokens[i]);
        ended++;
    }
    kg_log(KG_LOG_INFO, "sandbox.found", "sandbox=%s processes=%zu ended=%zu", sandbox->id, count,
           ended);
}

static void attached(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = user;
    bool was_paused = sandbox->pause == KG_PAUSE_PAUSED;

    if (!sbx) {
        kg_log(KG_LOG_WARN, "sandbox.not_found", "sandbox=%s code=%s", sandbox->id,
               kg_err_name(err->code));
        not_found(sandbox);
        return;
    }
    kg_ledger_found(sandbox, was_paused);
    if (was_paused) {
        sandbox->pause = KG_PAUSE_NO; /* whoever attaches wakes it */
    }
    /* Before anything new is started in it: the answer knows the old ones alone. */
    if (kg_sbx_report(sbx, reported, sandbox) < 0) {
        kg_log(KG_LOG_WARN, "sandbox.report", "sandbox=%s", sandbox->id);
    }
    sandbox->repause = was_paused;
    kg_box_found(sandbox, sbx);
    kg_kernels_look(sandbox);
    kg_kernels_pause_again(sandbox);
}

static bool lives(const kg_sandbox_t *sandbox, const kg_listed_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].lives && strcmp(rows[i].id, sandbox->id) == 0) {
            return true;
        }
    }
    return false;
}

/* What was being made or ended when the daemon was killed, or waited in a pool, has at least files
 * and a range of user ids. What else the store doesn't know is somebody's. Of a store that could
 * not be read whole, files stay. */
static void end_unknown(kg_core_t *core, const kg_listed_t *row)
{
    bool keep_files = core->skipped > 0;
    if (!keep_files && !row->is_zygote &&
        kg_store_disposable_has(core->store, row->id, NULL) != 1) {
        kg_lost_take(core, row);
    } else if (row->lives || !keep_files) {
        kg_log(KG_LOG_WARN, "sandbox.unknown", "sandbox=%s lives=%d", row->id, row->lives);
        (void)kg_keeper_end(core->keeper, row->id, keep_files, NULL, NULL);
    }
}

static void see_to_unknown(kg_core_t *core, const kg_listed_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kg_sandbox_t *sandbox = NULL;
        HASH_FIND_STR(core->sandboxes, rows[i].id, sandbox);
        if (!sandbox && !kg_zygotes_have(core, rows[i].id)) {
            end_unknown(core, &rows[i]);
        }
    }
}

/* One of those that were there at the start and still wait to be found. */
static void look_for(kg_sandbox_t *sandbox, const kg_listed_t *rows, size_t count)
{
    kg_err_t err = {0};
    if (lives(sandbox, rows, count) &&
        kg_sandbox_attach(sandbox->core->keeper, sandbox->id, attached, sandbox, &err) == 0) {
        return;
    }
    not_found(sandbox);
}

static void listed(void *user, const kg_listed_t *rows, size_t count, const kg_err_t *err)
{
    kg_core_t *core = user;
    kg_sandbox_t *sandbox = NULL;
    kg_sandbox_t *next = NULL;

    if (err) {
        kg_log(KG_LOG_ERROR, "recover.list", "code=%s", kg_err_name(err->code));
        count = 0;
    } else {
        kg_lost_forget(core, rows, count);
    }
    see_to_unknown(core, rows, count);
    HASH_ITER (hh, core->sandboxes, sandbox, next) {
        if (sandbox->finding) {
            look_for(sandbox, rows, count);
        }
    }
}

static void nothing_lives(void *user)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_INTERNAL, "the keeper can't be asked");
    listed(user, NULL, 0, &err);
}

void kg_adopt_begin(kg_core_t *core)
{
    for (kg_sandbox_t *sandbox = core->sandboxes; sandbox; sandbox = sandbox->hh.next) {
        sandbox->finding = true;
        sandbox->box = KG_BOX_CREATING; /* until it is known whether it lives */
    }
    if (kg_keeper_list(core->keeper, listed, core) < 0) {
        (void)kg_core_later(core, nothing_lives, core);
    }
}
