/* gateway/context: sandboxes that the database lost. */
#include "gateway/context/lost.h"

#include <string.h>

#include "gateway/base/isolation.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"

static const char *why_not(const kg_core_t *core, const kg_listed_t *row, const kg_template_t *tpl)
{
    if (!tpl || kg_isolation_rank(row->launcher) < 0 || !kg_id_valid("sbx", row->id)) {
        return "there is no such template or isolation";
    }
    return HASH_COUNT(core->sandboxes) - core->hidden >= core->config.sandboxes_max
               ? "limits.sandboxes is reached"
               : NULL;
}

static void stays(kg_core_t *core, const kg_listed_t *row, const char *why)
{
    char quoted[256];
    kg_log(KG_LOG_WARN, "sandbox.lost",
           "sandbox=%s template=%s isolation=%s reason=%s remark=\"the database has no record of "
           "it; its files stay, and the next start tries again\"",
           row->id, row->template_name, row->launcher, kg_log_quote(why, quoted, sizeof(quoted)));
    if (row->lives) {
        (void)kg_keeper_end(core->keeper, row->id, true, NULL, NULL);
    }
}

/* Who may read it decides what it may reach: whether it had a network is not known. */
static int fill(kg_sandbox_t *sandbox, const kg_listed_t *row, kg_err_t *err)
{
    kg_core_t *core = sandbox->core;
    json_t *none = strcmp(row->launcher, "none") == 0 ? NULL : json_string("none");
    int rc = kg_format(sandbox->launcher, sizeof(sandbox->launcher), "%s", row->launcher);
    rc = rc ? rc : kg_format(sandbox->owner, sizeof(sandbox->owner), "%s", KG_LOST_OWNER);
    rc = rc ? rc : kg_wish_limits(core, sandbox->tpl, sandbox->launcher, NULL, &sandbox->wish, err);
    rc = rc ? rc : kg_wish_network(core, sandbox->launcher, none, &sandbox->wish, err);
    json_decref(none);
    sandbox->metadata = json_pack("{s:s}", "recovered", "true");
    sandbox->reuse = true;
    sandbox->created_ns = kg_core_stamp(core);
    kg_sandbox_touch(sandbox);
    return rc || sandbox->metadata ? rc : kg_oom(err);
}

static void ended(void *user, const kg_err_t *err)
{
    (void)err;
    kg_box_not_found(user);
}

void kg_lost_take(kg_core_t *core, const kg_listed_t *row)
{
    kg_err_t err = {0};
    const kg_template_t *tpl = kg_templates_find(&core->templates, row->template_name);
    const char *why = why_not(core, row, tpl);
    kg_sandbox_t *sandbox = why ? NULL : kg_sandbox_alloc(core, row->id);
    if (!sandbox) {
        stays(core, row, why ? why : "out of memory");
        return;
    }
    sandbox->tpl = tpl;
    if (fill(sandbox, row, &err) || kg_sandbox_save(sandbox, &err)) {
        kg_sandbox_free(sandbox);
        stays(core, row, err.message);
        return;
    }
    kg_log(KG_LOG_WARN, "sandbox.recovered",
           "sandbox=%s template=%s isolation=%s owner=" KG_LOST_OWNER " remark=\"the database had "
           "no record of it; its files are kept: `sandald keys add --owner " KG_LOST_OWNER
           "` makes a key that reads and deletes it\"",
           row->id, row->template_name, row->launcher);
    sandbox->box = KG_BOX_CREATING; /* nothing is made of it before what lives has ended */
    if (!row->lives || kg_keeper_end(core->keeper, row->id, true, ended, sandbox)) {
        kg_box_not_found(sandbox);
    }
}

/* ---- what is no longer there ---- */

typedef struct kg_listing {
    kg_core_t *core;
    const kg_listed_t *rows;
    size_t count;
} kg_listing_t;

static int forget_one(void *user, const kg_store_row_t *row)
{
    const kg_listing_t *listing = user;
    for (size_t i = 0; i < listing->count; i++) {
        if (strcmp(listing->rows[i].id, row->id) == 0) {
            return 0;
        }
    }
    (void)kg_store_disposable_delete(listing->core->store, row->id, NULL);
    return 0;
}

void kg_lost_forget(kg_core_t *core, const kg_listed_t *rows, size_t count)
{
    kg_listing_t listing = {core, rows, count};
    bool batch = kg_store_batch(core->store, true, NULL) == 0;
    (void)kg_store_disposable_each(core->store, forget_one, &listing, NULL);
    if (batch) {
        (void)kg_store_batch(core->store, false, NULL);
    }
}
