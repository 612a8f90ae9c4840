/* The embedded store: SQLite in STATE/sandal.db (WAL, one connection, synchronous=NORMAL: a killed
 * process loses nothing, a power cut at most the last moments). The only place that includes
 * sqlite3.h. Calls block for one small transaction. */
#ifndef KG_STORE_STORE_H
#define KG_STORE_STORE_H

#include <stdint.h>

#include "gateway/base/buf.h"
#include "gateway/base/credential.h"
#include "gateway/base/err.h"
#include "gateway/base/id.h"

typedef struct kg_store kg_store_t;

/* state_dir is made (0700) if it isn't there. Brings older schemas up to date; a newer one than
 * ours is refused. The daemon and `sandald keys` may have it open at once. */
int kg_store_open(const char *state_dir, kg_store_t **ret_store, kg_err_t *err);
void kg_store_close(kg_store_t **store); /* NULL ok; NULLs the pointer */
/* This machine's node name, made at the first start. */
int kg_store_node(kg_store_t *store, kg_node_t *ret_node, kg_err_t *err);

/* ---- API keys ---- */

#define KG_KEY_TEXT_MAX 64 /* a key in plain with its NUL */
#define KG_KEY_FIELD_MAX 64
#define KG_KEY_SCOPES_MAX 256

/* Public plain data. Times since 1970 in ns; 0 = never. */
typedef struct kg_key {
    char id[KG_ID_MAX];
    char owner[KG_KEY_FIELD_MAX + 1];
    char name[KG_KEY_FIELD_MAX + 1];
    char scopes[KG_KEY_SCOPES_MAX + 1]; /* separated by one space: "admin use attach:sbx-…" */
    uint64_t created_ns;
    uint64_t last_used_ns; /* to the minute */
    uint64_t expires_ns;
} kg_key_t;

/* owner NULL = the key's own id. name NULL = none. scopes NULL = "use". The plain key is written
 * once, to ret_plain, and only its hash is kept: the caller wipes it. */
int kg_store_key_add(kg_store_t *store,
                     const char *owner,
                     const char *name,
                     const char *scopes,
                     uint64_t expires_ns,
                     char ret_plain[KG_KEY_TEXT_MAX],
                     kg_key_t *ret_key,
                     kg_err_t *err);
/* Whose key is this? 0, -ENOENT (no such key), -EACCES (expired), or -EIO and the like (then err is
 * not "unauthorized"). The hash is compared in constant time. */
int kg_store_key_check(
    kg_store_t *store, kg_slice_t plain, uint64_t now_wall_ns, kg_key_t *ret_key, kg_err_t *err);
/* Oldest first; each returning nonzero ends the walk with that value. */
typedef int kg_key_each_fn(void *user, const kg_key_t *key);
int kg_store_key_each(kg_store_t *store, kg_key_each_fn *each, void *user, kg_err_t *err);
/* Whether the key with this id is there and has not expired: 1 or 0, or -EIO and the like. */
int kg_store_key_lives(kg_store_t *store, const char *id, uint64_t now_wall_ns, kg_err_t *err);
int kg_store_key_remove(kg_store_t *store, const char *id, kg_err_t *err); /* -ENOENT + not_found */
/* " use attach:… " holds the whole word scope. admin holds all. */
bool kg_key_has_scope(const kg_key_t *key, const char *scope);

/* ---- sandboxes and contexts: enough to bring them back ---- */

/* Borrowed. body is JSON text that only the context room reads. */
typedef struct kg_store_row {
    const char *id;
    const char *parent; /* a sandbox's owner, a context's or memo's sandbox */
    const char *name;   /* NULL = none; unique with parent */
    const char *body;
} kg_store_row_t;
typedef int kg_store_row_fn(void *user, const kg_store_row_t *row);

/* Insert or replace by id. name_taken when parent has the name already. */
int kg_store_sandbox_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err);
int kg_store_sandbox_delete(kg_store_t *store,
                            const char *id,
                            kg_err_t *err); /* its contexts too; absent is fine */
int kg_store_sandbox_each(kg_store_t *store, kg_store_row_fn *each, void *user, kg_err_t *err);
int kg_store_context_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err);
int kg_store_context_delete(kg_store_t *store, const char *id, kg_err_t *err);
int kg_store_context_each(
    kg_store_t *store, const char *sandbox, kg_store_row_fn *each, void *user, kg_err_t *err);

/* ---- sandboxes whose files may go: nobody's yet, or with a record that was deleted, which the
 * store sees to by itself; putting a record of one takes it out ---- */

int kg_store_disposable_put(kg_store_t *store, const char *id, kg_err_t *err);
/* When nothing of it is left; absent is fine. */
int kg_store_disposable_delete(kg_store_t *store, const char *id, kg_err_t *err);
/* Rows have an id only. each may delete the row that it is given. */
int kg_store_disposable_each(kg_store_t *store, kg_store_row_fn *each, void *user, kg_err_t *err);
/* 1 or 0, or -EIO and the like. */
int kg_store_disposable_has(kg_store_t *store, const char *id, kg_err_t *err);

/* ---- memos: what of a sandbox a gateway that is killed would lose, for the next one to tell of:
 * background processes (by run), uploads, Jupyter sessions (by UUID) ---- */

int kg_store_memo_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err);
int kg_store_memo_delete(kg_store_t *store, const char *id, kg_err_t *err); /* absent is fine */
/* Oldest first. each may delete the row that it is given. */
int kg_store_memo_each(
    kg_store_t *store, const char *sandbox, kg_store_row_fn *each, void *user, kg_err_t *err);

/* ---- the ledger: how long each sandbox was active and paused, also of those that have ended ----
 */

/* Public plain data. Strings are borrowed. */
typedef struct kg_ledger_row {
    const char *sandbox;
    const char *owner;
    const char *tpl;
    uint64_t created_ns; /* wall clock, unique: the cursor of lists */
    uint64_t ended_ns;   /* 0 = it is still there */
    uint64_t active_ms;
    uint64_t paused_ms;
    uint64_t counted_ns; /* kg_now_ns when it was written; 0 = it had no processes then */
} kg_ledger_row_t;
typedef int kg_ledger_each_fn(void *user, const kg_ledger_row_t *row);

int kg_store_ledger_put(kg_store_t *store, const kg_ledger_row_t *row, kg_err_t *err);
/* Calls each once, or not at all when there is no such row. */
int kg_store_ledger_get(
    kg_store_t *store, const char *sandbox, kg_ledger_each_fn *each, void *user, kg_err_t *err);
/* Oldest first, created after after_ns, at most limit. */
int kg_store_ledger_each(kg_store_t *store,
                         const char *owner,
                         uint64_t after_ns,
                         unsigned limit,
                         kg_ledger_each_fn *each,
                         void *user,
                         kg_err_t *err);
int kg_store_ledger_sum(kg_store_t *store,
                        const char *owner,
                        uint64_t *ret_active_ms,
                        uint64_t *ret_paused_ms,
                        kg_err_t *err);
/* Rows of sandboxes that have ended go, but for the newest `keep` rows. */
int kg_store_ledger_prune(kg_store_t *store, unsigned keep, kg_err_t *err);
/* Many writes as one: begin, writes, end. */
int kg_store_batch(kg_store_t *store, bool begin, kg_err_t *err);

#endif
