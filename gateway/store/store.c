/* gateway/store: opening the database, its schema and the node's name. One connection, used by the
 * loop's thread alone. Schema changes are steps in a table: each runs once, in one transaction with
 * the note that it ran. */
#include "gateway/store/store.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/str.h"
#include "gateway/store/internal.h"

/* The steps from an empty file to today's schema. Never change one that was released: add another.
 */
static const char *const migrations[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE api_key ("
    "  id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),"
    "  owner TEXT NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,"
    "  created_ns INTEGER NOT NULL, last_used_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL);"
    "CREATE TABLE sandbox ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, parent TEXT NOT NULL,"
    "  name TEXT, body TEXT NOT NULL, UNIQUE (parent, name));"
    "CREATE TABLE context ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    "  parent TEXT NOT NULL REFERENCES sandbox (id) ON DELETE CASCADE,"
    "  name TEXT, body TEXT NOT NULL, UNIQUE (parent, name));",
    "CREATE TABLE ledger ("
    "  sandbox TEXT PRIMARY KEY, owner TEXT NOT NULL, template TEXT NOT NULL,"
    "  created_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, active_ms INTEGER NOT NULL,"
    "  paused_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX ledger_owner ON ledger (owner, created_ns);",
    "ALTER TABLE ledger ADD COLUMN counted_ns INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE memo ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    "  parent TEXT NOT NULL REFERENCES sandbox (id) ON DELETE CASCADE,"
    "  name TEXT, body TEXT NOT NULL);"
    "CREATE INDEX memo_parent ON memo (parent);",
    /* Sandboxes that are nobody's: files of one that has no record and is not here are lost, not
     * left over. */
    "CREATE TABLE disposable (id TEXT PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TRIGGER sandbox_given AFTER INSERT ON sandbox BEGIN"
    "  DELETE FROM disposable WHERE id = new.id; END;"
    "CREATE TRIGGER sandbox_ended AFTER DELETE ON sandbox BEGIN"
    "  INSERT OR IGNORE INTO disposable (id) VALUES (old.id); END;",
};

enum {
    SCHEMA_VERSION = (int)KG_ARRAY_LEN(migrations),
    BUSY_TIMEOUT_MS = 2000, /* `sandald keys` writes beside the daemon */
};

int kg_store_fail(kg_store_t *store, kg_err_t *err, const char *doing)
{
    kg_err_code_t code = KG_ERR_INTERNAL;
    int rc = sqlite3_errcode(store->db);
    if (rc == SQLITE_FULL) {
        code = KG_ERR_STORAGE_FULL;
    } else if (rc == SQLITE_NOMEM) {
        code = KG_ERR_OUT_OF_MEMORY;
    }
    return kg_err_set(err, code, "%s: %s: %s", store->path, doing, sqlite3_errmsg(store->db));
}

int kg_store_prepare(kg_store_t *store, const char *sql, sqlite3_stmt **ret_stmt, kg_err_t *err)
{
    if (sqlite3_prepare_v2(store->db, sql, -1, ret_stmt, NULL) != SQLITE_OK) {
        return kg_store_fail(store, err, "prepare");
    }
    return 0;
}

void kg_store_stmt_done(sqlite3_stmt **stmt)
{
    (void)sqlite3_finalize(*stmt);
    *stmt = NULL;
}

int kg_store_bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    return text ? sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC)
                : sqlite3_bind_null(stmt, index);
}

int kg_store_run(kg_store_t *store, sqlite3_stmt *stmt, kg_err_t *err, const char *doing)
{
    return sqlite3_step(stmt) == SQLITE_DONE ? 0 : kg_store_fail(store, err, doing);
}

static int exec(kg_store_t *store, const char *sql, kg_err_t *err, const char *doing)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : kg_store_fail(store, err, doing);
}

static int schema_version(kg_store_t *store, int *ret_version, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc =
        kg_store_prepare(store, "SELECT coalesce(max(version), 0) FROM schema_step", &stmt, err);
    if (rc) {
        return rc;
    }
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        return kg_store_fail(store, err, "read schema version");
    }
    *ret_version = sqlite3_column_int(stmt, 0);
    return 0;
}

static int run_steps(kg_store_t *store, kg_err_t *err)
{
    int version = 0;
    int rc = schema_version(store, &version, err);
    if (rc) {
        return rc;
    }
    if (version > SCHEMA_VERSION) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "%s: schema %d was made by a newer version (this one knows %d)",
                          store->path, version, SCHEMA_VERSION);
    }
    for (; version < SCHEMA_VERSION; version++) {
        rc = exec(store, migrations[version], err, "migrate");
        if (rc) {
            return rc;
        }
        KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
        rc = kg_store_prepare(store, "INSERT INTO schema_step (version) VALUES (?)", &stmt, err);
        if (rc) {
            return rc;
        }
        if (sqlite3_bind_int(stmt, 1, version + 1) != SQLITE_OK) {
            return kg_store_fail(store, err, "migrate");
        }
        rc = kg_store_run(store, stmt, err, "migrate");
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* All steps in one transaction: a kill in the middle leaves the old schema. IMMEDIATE, so that two
 * processes that open an empty directory at once don't both run them. */
static int migrate(kg_store_t *store, kg_err_t *err)
{
    int rc = exec(store, "BEGIN IMMEDIATE", err, "begin");
    if (rc) {
        return rc;
    }
    rc = exec(store, "CREATE TABLE IF NOT EXISTS schema_step (version INTEGER PRIMARY KEY)", err,
              "migrate");
    if (!rc) {
        rc = run_steps(store, err);
    }
    if (!rc) {
        rc = exec(store, "COMMIT", err, "commit");
    }
    if (rc) {
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

static int make_dir(const char *path, kg_err_t *err)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST) {
        return 0;
    }
    return kg_err_set(err, KG_ERR_CONFIG, "state directory %s: %s", path, strerrordesc_np(errno));
}

static int open_db(kg_store_t *store, kg_err_t *err)
{
    /* The file holds hashes of keys: nobody else's to read. SQLite gives the WAL the same mode. */
    mode_t mask = umask(077);
    int rc =
        sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    (void)umask(mask);
    if (!store->db) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "%s: out of memory", store->path);
    }
    if (rc != SQLITE_OK) {
        return kg_store_fail(store, err, "open");
    }
    (void)sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    return exec(store,
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
                "PRAGMA trusted_schema=OFF; PRAGMA cache_size=-512;",
                err, "open");
}

int kg_store_open(const char *state_dir, kg_store_t **ret_store, kg_err_t *err)
{
    int rc = make_dir(state_dir, err);
    if (rc) {
        return rc;
    }
    kg_store_t *store = calloc(1, sizeof(*store));
    if (!store) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if (kg_format(store->path, sizeof(store->path), "%s/sandal.db", state_dir)) {
        rc = kg_err_set(err, KG_ERR_CONFIG, "state directory: path too long");
    }
    rc = rc ? rc : open_db(store, err);
    rc = rc ? rc : migrate(store, err);
    if (rc) {
        kg_store_close(&store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

void kg_store_close(kg_store_t **store)
{
    if (*store) {
        (void)sqlite3_close((*store)->db);
        free(*store);
        *store = NULL;
    }
}

static int read_node(kg_store_t *store, kg_node_t *ret_node, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "SELECT value FROM meta WHERE name = 'node'", &stmt, err);
    if (rc) {
        return rc;
    }
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        return kg_store_fail(store, err, "read node name");
    }
    const char *name = (const char *)sqlite3_column_text(stmt, 0);
    if (!kg_node_valid(name)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: the node name in it is damaged", store->path);
    }
    (void)kg_format(ret_node->name, sizeof(ret_node->name), "%s", name);
    return 0;
}

int kg_store_node(kg_store_t *store, kg_node_t *ret_node, kg_err_t *err)
{
    kg_node_t fresh;
    kg_node_generate(&fresh);
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "INSERT OR IGNORE INTO meta (name, value) VALUES ('node', ?)",
                              &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, fresh.name) != SQLITE_OK) {
        return kg_store_fail(store, err, "write node name");
    }
    rc = kg_store_run(store, stmt, err, "write node name");
    return rc ? rc : read_node(store, ret_node, err);
}
