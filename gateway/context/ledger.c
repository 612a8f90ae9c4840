/* gateway/context: the ledger: how long a sandbox was active and paused. Written at every change,
 * when a client is told of it, and each KG_LEDGER_S seconds: of a sandbox that dies with a daemon
 * that is killed no more than that is lost, of one that lives on nothing. */
#include <inttypes.h>
#include <stdio.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/internal.h"
#include "gateway/context/metrics.h"

enum {
    ROWS_MAX = 100000 /* of sandboxes that have ended; the oldest go first */
};

static void count(kg_sandbox_t *sandbox)
{
    kg_ledger_t *ledger = &sandbox->ledger;
    uint64_t now = kg_now_ns();
    if (ledger->state == KG_LEDGER_ACTIVE) {
        ledger->active_ns += now - ledger->since_ns;
    } else if (ledger->state == KG_LEDGER_PAUSED) {
        ledger->paused_ns += now - ledger->since_ns;
    }
    ledger->since_ns = now;
}

static void save(kg_sandbox_t *sandbox, uint64_t ended_ns)
{
    kg_err_t err = {0};
    count(sandbox);
    kg_ledger_row_t row = {
        .sandbox = sandbox->id,
        .owner = sandbox->owner,
        .tpl = sandbox->tpl->name,
        .created_ns = sandbox->created_ns,
        .ended_ns = ended_ns,
        .active_ms = sandbox->ledger.active_ns / KG_NS_PER_MS,
        .paused_ms = sandbox->ledger.paused_ns / KG_NS_PER_MS,
        .counted_ns = sandbox->ledger.state == KG_LEDGER_NONE ? 0 : sandbox->ledger.since_ns,
    };
    if (kg_store_ledger_put(sandbox->core->store, &row, &err)) {
        kg_log(KG_LOG_ERROR, "ledger.write", "sandbox=%s code=%s", sandbox->id,
               kg_err_name(err.code));
    }
}

void kg_ledger_switch(kg_sandbox_t *sandbox, kg_ledger_state_t state)
{
    if (sandbox->ledger.state == state || sandbox->hidden) {
        return;
    }
    count(sandbox);
    sandbox->ledger.state = state;
    save(sandbox, 0);
}

void kg_ledger_end(kg_sandbox_t *sandbox)
{
    if (sandbox->hidden) {
        return;
    }
    save(sandbox, kg_wall_ns());
    sandbox->ledger.state = KG_LEDGER_NONE;
}

static int take_row(void *user, const kg_ledger_row_t *row)
{
    kg_sandbox_t *sandbox = user;
    sandbox->ledger.active_ns = row->active_ms * KG_NS_PER_MS;
    sandbox->ledger.paused_ns = row->paused_ms * KG_NS_PER_MS;
    sandbox->ledger.since_ns = row->counted_ns;
    return 0;
}

void kg_ledger_load(kg_sandbox_t *sandbox)
{
    (void)kg_store_ledger_get(sandbox->core->store, sandbox->id, take_row, sandbox, NULL);
}

void kg_ledger_found(kg_sandbox_t *sandbox, bool paused)
{
    kg_ledger_t *ledger = &sandbox->ledger;
    if (ledger->state == KG_LEDGER_NONE && ledger->since_ns && ledger->since_ns < kg_now_ns()) {
        ledger->state = paused ? KG_LEDGER_PAUSED : KG_LEDGER_ACTIVE;
        count(sandbox);
        ledger->state = KG_LEDGER_NONE;
    }
}

void kg_ledger_tick(kg_core_t *core)
{
    bool batch = core->sandboxes && kg_store_batch(core->store, true, NULL) == 0;
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (s->ledger.state != KG_LEDGER_NONE && !s->deleted) {
            save(s, 0);
        }
    }
    if (batch) {
        (void)kg_store_batch(core->store, false, NULL);
    }
}

void kg_ledger_prune(kg_core_t *core)
{
    (void)kg_store_ledger_prune(core->store, ROWS_MAX, NULL);
}

/* ---- for clients ---- */

static double seconds(uint64_t ms)
{
    return (double)ms / 1000.0;
}

static json_t *row_json(const kg_ledger_row_t *row)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:f}", "sandbox", row->sandbox, "template",
                     row->tpl, "created_at", kg_json_time(row->created_ns), "ended_at",
                     kg_json_time(row->ended_ns), "active_seconds", seconds(row->active_ms),
                     "paused_seconds", seconds(row->paused_ms));
}

json_t *kg_sandbox_usage_json(kg_sandbox_t *sandbox)
{
    if (sandbox->ledger.state != KG_LEDGER_NONE) {
        save(sandbox, 0); /* what was told once stays so */
    }
    kg_ledger_row_t row = {
        .sandbox = sandbox->id,
        .tpl = sandbox->tpl->name,
        .created_ns = sandbox->created_ns,
        .active_ms = sandbox->ledger.active_ns / KG_NS_PER_MS,
        .paused_ms = sandbox->ledger.paused_ns / KG_NS_PER_MS,
    };
    return row_json(&row);
}

typedef struct page {
    json_t *items;
    unsigned limit;
    uint64_t last_ns;
    char next[32];
} page_t;

static int add_row(void *user, const kg_ledger_row_t *row)
{
    page_t *page = user;
    if (json_array_size(page->items) == page->limit) {
        (void)snprintf(page->next, sizeof(page->next), "%" PRIu64, page->last_ns);
        return 0;
    }
    page->last_ns = row->created_ns;
    return json_array_append_new(page->items, row_json(row));
}

json_t *kg_core_usage_json(
    kg_core_t *core, const char *owner, unsigned limit, const char *after, kg_err_t *err)
{
    uint64_t after_ns = 0;
    uint64_t active_ms = 0;
    uint64_t paused_ms = 0;
    page_t page = {.limit = limit ? limit : KG_LIST_LIMIT};
    if (after && kg_parse_u64(after, 0, INT64_MAX, &after_ns)) {
        (void)kg_bad(err, "/after", "after: take `next` of the page before");
        return NULL;
    }
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (!s->deleted && s->ledger.state != KG_LEDGER_NONE && strcmp(s->owner, owner) == 0) {
            save(s, 0);
        }
    }
    page.items = json_array();
    int rc = page.items ? kg_store_ledger_each(core->store, owner, after_ns, page.limit + 1,
                                               add_row, &page, err)
                        : kg_oom(err);
    rc = rc ? rc : kg_store_ledger_sum(core->store, owner, &active_ms, &paused_ms, err);
    if (rc) {
        json_decref(page.items);
        return NULL;
    }
    return json_pack("{s:f, s:f, s:o, s:s?}", "active_seconds", seconds(active_ms),
                     "paused_seconds", seconds(paused_ms), "items", page.items, "next",
                     page.next[0] ? page.next : NULL);
}
