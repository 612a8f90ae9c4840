/* What the files of the store share. */
#ifndef KG_STORE_INTERNAL_H
#define KG_STORE_INTERNAL_H

#include <sqlite3.h>

#include "gateway/store/store.h"

struct kg_store {
    sqlite3 *db;
    char path[512];
};

/* Fills err from the connection's last error, with what was being done, and returns its -errno. */
int kg_store_fail(kg_store_t *store, kg_err_t *err, const char *doing);
/* Prepared once per call: calls are rare (keys are checked at requests, objects change at creates
 * and patches). */
int kg_store_prepare(kg_store_t *store, const char *sql, sqlite3_stmt **ret_stmt, kg_err_t *err);
void kg_store_stmt_done(sqlite3_stmt **stmt); /* fit for KG_AUTO */
/* text NULL binds NULL; borrowed until the statement is done. */
int kg_store_bind_text(sqlite3_stmt *stmt, int index, const char *text);
/* Steps a statement that gives no rows. */
int kg_store_run(kg_store_t *store, sqlite3_stmt *stmt, kg_err_t *err, const char *doing);

#endif
