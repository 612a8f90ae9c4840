/* gateway/store: sandboxes, contexts and memos, each one row with a JSON body that the context room
 * writes and reads. Names are columns of their own, so that the database keeps them unique. */
#include "gateway/store/store.h"

#include <stdio.h>

#include "gateway/store/internal.h"

/* Table names are ours; everything else is bound. */
#define PUT_SQL(table)                                                                             \
    "INSERT INTO " table " (id, parent, name, body) VALUES (?, ?, ?, ?)"                           \
    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, body = excluded.body"

static int
put(kg_store_t *store, const char *sql, const kg_store_row_t *row, const char *what, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, sql, &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, row->id) || kg_store_bind_text(stmt, 2, row->parent) ||
        kg_store_bind_text(stmt, 3, row->name) || kg_store_bind_text(stmt, 4, row->body)) {
        return kg_store_fail(store, err, what);
    }
    if (sqlite3_step(stmt) == SQLITE_DONE) {
        return 0;
    }
    if (sqlite3_extended_errcode(store->db) == SQLITE_CONSTRAINT_UNIQUE) {
        return kg_err_set(err, KG_ERR_NAME_TAKEN, "the name \"%s\" is taken",
                          row->name ? row->name : "");
    }
    return kg_store_fail(store, err, what);
}

/* A change of the row of that id. */
static int with_id(kg_store_t *store, const char *sql, const char *id, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, sql, &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, id) != SQLITE_OK) {
        return kg_store_fail(store, err, "write");
    }
    return kg_store_run(store, stmt, err, "write");
}

static int
walk(kg_store_t *store, sqlite3_stmt *stmt, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    for (;;) {
        int step = sqlite3_step(stmt);
        if (step == SQLITE_DONE) {
            return 0;
        }
        if (step != SQLITE_ROW) {
            return kg_store_fail(store, err, "read");
        }
        kg_store_row_t row = {
            .id = (const char *)sqlite3_column_text(stmt, 0),
            .parent = (const char *)sqlite3_column_text(stmt, 1),
            .name = (const char *)sqlite3_column_text(stmt, 2),
            .body = (const char *)sqlite3_column_text(stmt, 3),
        };
        int rc = each(user, &row);
        if (rc) {
            return rc;
        }
    }
}

int kg_store_sandbox_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err)
{
    return put(store, PUT_SQL("sandbox"), row, "write sandbox", err);
}

int kg_store_sandbox_delete(kg_store_t *store, const char *id, kg_err_t *err)
{
    return with_id(store, "DELETE FROM sandbox WHERE id = ?", id, err);
}

int kg_store_sandbox_each(kg_store_t *store, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "SELECT id, parent, name, body FROM sandbox ORDER BY seq",
                              &stmt, err);
    return rc ? rc : walk(store, stmt, each, user, err);
}

int kg_store_context_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err)
{
    return put(store, PUT_SQL("context"), row, "write context", err);
}

int kg_store_context_delete(kg_store_t *store, const char *id, kg_err_t *err)
{
    return with_id(store, "DELETE FROM context WHERE id = ?", id, err);
}

static int children(kg_store_t *store,
                    const char *sql,
                    const char *parent,
                    kg_store_row_fn *each,
                    void *user,
                    kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, sql, &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, parent) != SQLITE_OK) {
        return kg_store_fail(store, err, "read");
    }
    return walk(store, stmt, each, user, err);
}

int kg_store_context_each(
    kg_store_t *store, const char *sandbox, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    return children(store,
                    "SELECT id, parent, name, body FROM context WHERE parent = ? ORDER BY seq",
                    sandbox, each, user, err);
}

int kg_store_memo_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err)
{
    return put(store, PUT_SQL("memo"), row, "write memo", err);
}

int kg_store_memo_delete(kg_store_t *store, const char *id, kg_err_t *err)
{
    return with_id(store, "DELETE FROM memo WHERE id = ?", id, err);
}

int kg_store_memo_each(
    kg_store_t *store, const char *sandbox, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    return children(store, "SELECT id, parent, name, body FROM memo WHERE parent = ? ORDER BY seq",
                    sandbox, each, user, err);
}

int kg_store_disposable_put(kg_store_t *store, const char *id, kg_err_t *err)
{
    return with_id(store, "INSERT OR IGNORE INTO disposable (id) VALUES (?)", id, err);
}

int kg_store_disposable_delete(kg_store_t *store, const char *id, kg_err_t *err)
{
    return with_id(store, "DELETE FROM disposable WHERE id = ?", id, err);
}

int kg_store_disposable_each(kg_store_t *store, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "SELECT id, NULL, NULL, NULL FROM disposable ORDER BY id",
                              &stmt, err);
    return rc ? rc : walk(store, stmt, each, user, err);
}

int kg_store_disposable_has(kg_store_t *store, const char *id, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "SELECT 1 FROM disposable WHERE id = ?", &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, id) != SQLITE_OK) {
        return kg_store_fail(store, err, "read");
    }
    int step = sqlite3_step(stmt);
    return step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : kg_store_fail(store, err, "read");
}
