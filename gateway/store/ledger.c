/* gateway/store: the ledger: for each sandbox there was, how long it was active and paused. Rows of
 * sandboxes that have ended stay for a while, bounded in number. */
#include "gateway/store/internal.h"

#define COLUMNS "sandbox, owner, template, created_ns, ended_ns, active_ms, paused_ms, counted_ns"

static int bind_row(sqlite3_stmt *stmt, const kg_ledger_row_t *row)
{
    int rc = kg_store_bind_text(stmt, 1, row->sandbox);
    rc = rc ? rc : kg_store_bind_text(stmt, 2, row->owner);
    rc = rc ? rc : kg_store_bind_text(stmt, 3, row->tpl);
    rc = rc ? rc : sqlite3_bind_int64(stmt, 4, (sqlite3_int64)row->created_ns);
    rc = rc ? rc : sqlite3_bind_int64(stmt, 5, (sqlite3_int64)row->ended_ns);
    rc = rc ? rc : sqlite3_bind_int64(stmt, 6, (sqlite3_int64)row->active_ms);
    rc = rc ? rc : sqlite3_bind_int64(stmt, 7, (sqlite3_int64)row->paused_ms);
    return rc ? rc : sqlite3_bind_int64(stmt, 8, (sqlite3_int64)row->counted_ns);
}

int kg_store_ledger_put(kg_store_t *store, const kg_ledger_row_t *row, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store,
                              "INSERT INTO ledger (" COLUMNS ")"
                              " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sandbox) DO UPDATE SET"
                              " ended_ns = excluded.ended_ns, active_ms = excluded.active_ms,"
                              " paused_ms = excluded.paused_ms, counted_ns = excluded.counted_ns",
                              &stmt, err);
    if (rc) {
        return rc;
    }
    return bind_row(stmt, row) ? kg_store_fail(store, err, "write ledger")
                               : kg_store_run(store, stmt, err, "write ledger");
}

static uint64_t number(sqlite3_stmt *stmt, int column)
{
    sqlite3_int64 n = sqlite3_column_int64(stmt, column);
    return n > 0 ? (uint64_t)n : 0;
}

static void read_row(sqlite3_stmt *stmt, kg_ledger_row_t *ret)
{
    *ret = (kg_ledger_row_t){
        .sandbox = (const char *)sqlite3_column_text(stmt, 0),
        .owner = (const char *)sqlite3_column_text(stmt, 1),
        .tpl = (const char *)sqlite3_column_text(stmt, 2),
        .created_ns = number(stmt, 3),
        .ended_ns = number(stmt, 4),
        .active_ms = number(stmt, 5),
        .paused_ms = number(stmt, 6),
        .counted_ns = number(stmt, 7),
    };
}

static int
walk(kg_store_t *store, sqlite3_stmt *stmt, kg_ledger_each_fn *each, void *user, kg_err_t *err)
{
    for (;;) {
        int step = sqlite3_step(stmt);
        if (step == SQLITE_DONE) {
            return 0;
        }
        if (step != SQLITE_ROW) {
            return kg_store_fail(store, err, "read ledger");
        }
        kg_ledger_row_t row;
        read_row(stmt, &row);
        int rc = each(user, &row);
        if (rc) {
            return rc;
        }
    }
}

int kg_store_ledger_get(
    kg_store_t *store, const char *sandbox, kg_ledger_each_fn *each, void *user, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc =
        kg_store_prepare(store, "SELECT " COLUMNS " FROM ledger WHERE sandbox = ?", &stmt, err);
    if (!rc && kg_store_bind_text(stmt, 1, sandbox)) {
        rc = kg_store_fail(store, err, "read ledger");
    }
    return rc ? rc : walk(store, stmt, each, user, err);
}

int kg_store_ledger_each(kg_store_t *store,
                         const char *owner,
                         uint64_t after_ns,
                         unsigned limit,
                         kg_ledger_each_fn *each,
                         void *user,
                         kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store,
                              "SELECT " COLUMNS " FROM ledger WHERE owner = ? AND created_ns > ?"
                              " ORDER BY created_ns LIMIT ?",
                              &stmt, err);
    if (!rc && (kg_store_bind_text(stmt, 1, owner) ||
                sqlite3_bind_int64(stmt, 2, (sqlite3_int64)after_ns) ||
                sqlite3_bind_int64(stmt, 3, (sqlite3_int64)limit))) {
        rc = kg_store_fail(store, err, "read ledger");
    }
    return rc ? rc : walk(store, stmt, each, user, err);
}

int kg_store_ledger_sum(kg_store_t *store,
                        const char *owner,
                        uint64_t *ret_active_ms,
                        uint64_t *ret_paused_ms,
                        kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store,
                              "SELECT coalesce(sum(active_ms), 0), coalesce(sum(paused_ms), 0)"
                              " FROM ledger WHERE owner = ?",
                              &stmt, err);
    if (!rc && (kg_store_bind_text(stmt, 1, owner) || sqlite3_step(stmt) != SQLITE_ROW)) {
        rc = kg_store_fail(store, err, "read ledger");
    }
    if (rc) {
        return rc;
    }
    *ret_active_ms = number(stmt, 0);
    *ret_paused_ms = number(stmt, 1);
    return 0;
}

int kg_store_ledger_prune(kg_store_t *store, unsigned keep, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store,
                              "DELETE FROM ledger WHERE ended_ns > 0 AND sandbox NOT IN"
                              " (SELECT sandbox FROM ledger ORDER BY created_ns DESC LIMIT ?)",
                              &stmt, err);
    if (!rc && sqlite3_bind_int64(stmt, 1, (sqlite3_int64)keep)) {
        rc = kg_store_fail(store, err, "prune ledger");
    }
    return rc ? rc : kg_store_run(store, stmt, err, "prune ledger");
}

int kg_store_batch(kg_store_t *store, bool begin, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, begin ? "BEGIN IMMEDIATE" : "COMMIT", &stmt, err);
    return rc ? rc : kg_store_run(store, stmt, err, begin ? "begin" : "commit");
}
