/* gateway/store: API keys. A key is 32 random bytes in base 62 behind a prefix; only its BLAKE2b
 * hash is kept. With 256 bits of randomness a plain hash is enough (nothing to guess), and the
 * look-up by hash leaks nothing of the key: the index is walked with a value that the caller cannot
 * choose byte by byte, and the row found is compared in constant time. */
#include "gateway/store/store.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/base/utf8.h"
#include "gateway/store/internal.h"

enum {
    HASH_LEN = crypto_generichash_BYTES, /* 32 */
    DIGITS = 43,                         /* 62^43 > 2^256 */
    COARSE_S = 60,
};

static const char base62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#define KEY_COLUMNS "id, owner, name, scopes, created_ns, last_used_ns, expires_ns, hash"

static void key_generate(char ret_plain[KG_KEY_TEXT_MAX])
{
    size_t n = strlen(KG_KEY_PREFIX);
    memcpy(ret_plain, KG_KEY_PREFIX, n);
    for (size_t i = 0; i < DIGITS; i++) {
        ret_plain[n++] = base62[randombytes_uniform(sizeof(base62) - 1)];
    }
    ret_plain[n] = '\0';
}

static void key_hash(kg_slice_t plain, unsigned char ret_hash[HASH_LEN])
{
    (void)crypto_generichash(ret_hash, HASH_LEN, (const unsigned char *)plain.data, plain.len, NULL,
                             0);
}

/* Owners and names are shown on terminals and in logs. */
static int check_field(const char *value, const char *what, kg_err_t *err)
{
    size_t len = strlen(value);
    bool ok = len > 0 && len <= KG_KEY_FIELD_MAX && kg_utf8_valid(value, len);
    for (size_t i = 0; ok && i < len; i++) {
        ok = (unsigned char)value[i] >= 0x20 && value[i] != 0x7f;
    }
    if (!ok) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST,
                          "%s: 1 to %d bytes of UTF-8 without control characters", what,
                          KG_KEY_FIELD_MAX);
    }
    return 0;
}

static bool scope_known(const char *word, size_t len)
{
    static const char attach[] = "attach:";
    return (len == 5 && memcmp(word, "admin", 5) == 0) ||
           (len == 3 && memcmp(word, "use", 3) == 0) ||
           (len > sizeof(attach) - 1 && memcmp(word, attach, sizeof(attach) - 1) == 0);
}

static int check_scopes(const char *scopes, kg_err_t *err)
{
    if (strlen(scopes) > KG_KEY_SCOPES_MAX) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "scopes: at most %d bytes",
                          KG_KEY_SCOPES_MAX);
    }
    for (const char *p = scopes;; p++) {
        size_t len = strcspn(p, " ");
        if (!scope_known(p, len)) {
            return kg_err_set(err, KG_ERR_INVALID_REQUEST,
                              "scopes: \"%.*s\" is not one of admin, use, attach:SANDBOX", (int)len,
                              p);
        }
        p += len;
        if (!*p) {
            return 0;
        }
    }
}

static int
insert(kg_store_t *store, const kg_key_t *key, const unsigned char hash[HASH_LEN], kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(
        store, "INSERT INTO api_key (" KEY_COLUMNS ") VALUES (?, ?, ?, ?, ?, 0, ?, ?)", &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, key->id) || kg_store_bind_text(stmt, 2, key->owner) ||
        kg_store_bind_text(stmt, 3, key->name) || kg_store_bind_text(stmt, 4, key->scopes) ||
        sqlite3_bind_int64(stmt, 5, (sqlite3_int64)key->created_ns) ||
        sqlite3_bind_int64(stmt, 6, (sqlite3_int64)key->expires_ns) ||
        sqlite3_bind_blob(stmt, 7, hash, HASH_LEN, SQLITE_STATIC)) {
        return kg_store_fail(store, err, "add key");
    }
    return kg_store_run(store, stmt, err, "add key");
}

/* What a key is made of, and what comes of it. NOLINTNEXTLINE(readability-function-size) */
int kg_store_key_add(kg_store_t *store,
                     const char *owner,
                     const char *name,
                     const char *scopes,
                     uint64_t expires_ns,
                     char ret_plain[KG_KEY_TEXT_MAX],
                     kg_key_t *ret_key,
                     kg_err_t *err)
{
    kg_key_t key = {.created_ns = kg_wall_ns(), .expires_ns = expires_ns};
    kg_node_t node;
    name = name ? name : "";
    int rc = *name == '\0' ? 0 : check_field(name, "name", err);
    rc = rc || !owner ? rc : check_field(owner, "owner", err);
    rc = rc ? rc : check_scopes(scopes ? scopes : "use", err);
    rc = rc ? rc : kg_store_node(store, &node, err);
    if (!rc && expires_ns > INT64_MAX) {
        rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "expires: too far away");
    }
    if (rc) {
        return rc;
    }
    kg_id_generate(&node, "key", key.id);
    (void)kg_format(key.owner, sizeof(key.owner), "%s", owner ? owner : key.id);
    (void)kg_format(key.name, sizeof(key.name), "%s", name);
    (void)kg_format(key.scopes, sizeof(key.scopes), "%s", scopes ? scopes : "use");
    char plain[KG_KEY_TEXT_MAX];
    unsigned char hash[HASH_LEN];
    key_generate(plain);
    key_hash(kg_slice_cstr(plain), hash);
    rc = insert(store, &key, hash, err);
    if (!rc) {
        memcpy(ret_plain, plain, sizeof(plain));
        *ret_key = key;
    }
    sodium_memzero(plain, sizeof(plain));
    return rc;
}

static void column_text(sqlite3_stmt *stmt, int column, char *ret, size_t cap)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    (void)kg_format(ret, cap, "%s", text ? text : "");
}

static void read_key(sqlite3_stmt *stmt, kg_key_t *ret_key)
{
    column_text(stmt, 0, ret_key->id, sizeof(ret_key->id));
    column_text(stmt, 1, ret_key->owner, sizeof(ret_key->owner));
    column_text(stmt, 2, ret_key->name, sizeof(ret_key->name));
    column_text(stmt, 3, ret_key->scopes, sizeof(ret_key->scopes));
    ret_key->created_ns = (uint64_t)sqlite3_column_int64(stmt, 4);
    ret_key->last_used_ns = (uint64_t)sqlite3_column_int64(stmt, 5);
    ret_key->expires_ns = (uint64_t)sqlite3_column_int64(stmt, 6);
}

/* Once a minute a key at most: the hot path stays without writes. A failure is of no consequence to
 * the request. */
static void touch(kg_store_t *store, kg_key_t *key, uint64_t now_wall_ns)
{
    uint64_t minute = now_wall_ns - now_wall_ns % (COARSE_S * KG_NS_PER_S);
    if (minute <= key->last_used_ns) {
        return;
    }
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    if (kg_store_prepare(store, "UPDATE api_key SET last_used_ns = ? WHERE id = ?", &stmt, NULL) ||
        sqlite3_bind_int64(stmt, 1, (sqlite3_int64)minute) ||
        kg_store_bind_text(stmt, 2, key->id)) {
        return;
    }
    if (sqlite3_step(stmt) == SQLITE_DONE) {
        key->last_used_ns = minute;
    }
}

int kg_store_key_check(
    kg_store_t *store, kg_slice_t plain, uint64_t now_wall_ns, kg_key_t *ret_key, kg_err_t *err)
{
    size_t prefix = strlen(KG_KEY_PREFIX);
    if (plain.len != prefix + DIGITS || memcmp(plain.data, KG_KEY_PREFIX, prefix) != 0) {
        return -ENOENT;
    }
    unsigned char hash[HASH_LEN];
    key_hash(plain, hash);
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc =
        kg_store_prepare(store, "SELECT " KEY_COLUMNS " FROM api_key WHERE hash = ?", &stmt, err);
    if (rc) {
        return rc;
    }
    if (sqlite3_bind_blob(stmt, 1, hash, HASH_LEN, SQLITE_STATIC) != SQLITE_OK) {
        return kg_store_fail(store, err, "look up key");
    }
    int step = sqlite3_step(stmt);
    if (step == SQLITE_DONE) {
        return -ENOENT;
    }
    if (step != SQLITE_ROW) {
        return kg_store_fail(store, err, "look up key");
    }
    const void *stored = sqlite3_column_blob(stmt, 7);
    if (!stored || sqlite3_column_bytes(stmt, 7) != HASH_LEN ||
        sodium_memcmp(stored, hash, HASH_LEN) != 0) {
        return -ENOENT;
    }
    kg_key_t key;
    read_key(stmt, &key);
    if (key.expires_ns && key.expires_ns <= now_wall_ns) {
        return -EACCES;
    }
    kg_store_stmt_done(&stmt);
    touch(store, &key, now_wall_ns);
    *ret_key = key;
    return 0;
}

int kg_store_key_each(kg_store_t *store, kg_key_each_fn *each, void *user, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "SELECT " KEY_COLUMNS " FROM api_key ORDER BY created_ns, id",
                              &stmt, err);
    while (!rc) {
        int step = sqlite3_step(stmt);
        if (step == SQLITE_DONE) {
            break;
        }
        if (step != SQLITE_ROW) {
            return kg_store_fail(store, err, "list keys");
        }
        kg_key_t key;
        read_key(stmt, &key);
        rc = each(user, &key);
    }
    return rc;
}

int kg_store_key_lives(kg_store_t *store, const char *id, uint64_t now_wall_ns, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc =
        kg_store_prepare(store, "SELECT " KEY_COLUMNS " FROM api_key WHERE id = ?", &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, id) != SQLITE_OK) {
        return kg_store_fail(store, err, "look up key");
    }
    int step = sqlite3_step(stmt);
    if (step != SQLITE_ROW) {
        return step == SQLITE_DONE ? 0 : kg_store_fail(store, err, "look up key");
    }
    kg_key_t key;
    read_key(stmt, &key);
    return key.expires_ns == 0 || key.expires_ns > now_wall_ns;
}

int kg_store_key_remove(kg_store_t *store, const char *id, kg_err_t *err)
{
    KG_AUTO(kg_store_stmt_done) sqlite3_stmt *stmt = NULL;
    int rc = kg_store_prepare(store, "DELETE FROM api_key WHERE id = ?", &stmt, err);
    if (rc) {
        return rc;
    }
    if (kg_store_bind_text(stmt, 1, id) != SQLITE_OK) {
        return kg_store_fail(store, err, "remove key");
    }
    rc = kg_store_run(store, stmt, err, "remove key");
    if (!rc && sqlite3_changes(store->db) == 0) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "no key with the id \"%s\"", id);
    }
    return rc;
}

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && memcmp(p, word, n) == 0) {
            return true;
        }
        p += n + (p[n] == ' ');
    }
    return false;
}

bool kg_key_has_scope(const kg_key_t *key, const char *scope)
{
    return has_word(key->scopes, "admin") || has_word(key->scopes, scope);
}
