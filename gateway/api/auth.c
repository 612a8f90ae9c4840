/* gateway/api: keys and rights. The cache holds digests under a secret of this process, not keys;
 * it is small, old entries are overwritten in turn, and wrong keys never enter it. */
#include "gateway/api/auth.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"

enum {
    DIGEST = 32
};

typedef struct cached {
    unsigned char digest[DIGEST];
    uint64_t until_ns; /* 0 = free */
    kg_key_t key;
} cached_t;

struct kg_auth {
    kg_store_t *store;
    const kg_clock_t *clock;
    unsigned char secret[crypto_generichash_KEYBYTES];
    unsigned next;
    cached_t cache[KG_AUTH_CACHE_MAX];
    kg_fn *on_forget;
    void *user;
};

int kg_auth_create(kg_store_t *store, const kg_clock_t *clock, kg_auth_t **ret_auth)
{
    kg_auth_t *auth = calloc(1, sizeof *auth);
    if (!auth || sodium_init() < 0) {
        free(auth);
        return -ENOMEM;
    }
    auth->store = store;
    auth->clock = clock;
    randombytes_buf(auth->secret, sizeof auth->secret);
    *ret_auth = auth;
    return 0;
}

void kg_auth_destroy(kg_auth_t **auth)
{
    if (*auth) {
        sodium_memzero(*auth, sizeof **auth);
        free(*auth);
        *auth = NULL;
    }
}

void kg_auth_forget(kg_auth_t *auth)
{
    sodium_memzero(auth->cache, sizeof auth->cache);
    if (auth->on_forget) {
        auth->on_forget(auth->user);
    }
}

void kg_auth_on_forget(kg_auth_t *auth, kg_fn *fn, void *user)
{
    auth->on_forget = fn;
    auth->user = user;
}

static const cached_t *
look(const kg_auth_t *auth, const unsigned char digest[DIGEST], uint64_t now_ns)
{
    for (size_t i = 0; i < KG_AUTH_CACHE_MAX; i++) {
        const cached_t *c = &auth->cache[i];
        if (c->until_ns > now_ns && sodium_memcmp(c->digest, digest, DIGEST) == 0) {
            return c;
        }
    }
    return NULL;
}

static int refuse_key(kg_err_t *err, const char *why)
{
    int rc = kg_err_set(err, KG_ERR_UNAUTHORIZED, "%s", why);
    kg_err_hint(err,
                "Send Authorization: Bearer KEY or X-API-Key: KEY. `sandald keys add` makes one.");
    return rc;
}

int kg_auth_check(kg_auth_t *auth, kg_slice_t plain, kg_principal_t *ret_who, kg_err_t *err)
{
    if (plain.len == 0) {
        return refuse_key(err, "An API key is needed.");
    }
    if (plain.len >= KG_KEY_TEXT_MAX) {
        return refuse_key(err, "This API key is not known.");
    }
    uint64_t now = auth->clock->now_ns(auth->clock->user);
    uint64_t wall = auth->clock->wall_ns(auth->clock->user);
    unsigned char digest[DIGEST];
    crypto_generichash(digest, DIGEST, (const unsigned char *)plain.data, plain.len, auth->secret,
                       sizeof auth->secret);
    const cached_t *hit = look(auth, digest, now);
    if (hit && (hit->key.expires_ns == 0 || hit->key.expires_ns > wall)) {
        ret_who->key = hit->key;
        return 0;
    }
    kg_key_t key;
    int rc = kg_store_key_check(auth->store, plain, wall, &key, err);
    if (rc == -ENOENT || rc == -EACCES) {
        return refuse_key(err, rc == -ENOENT ? "This API key is not known."
                                             : "This API key has expired.");
    }
    if (rc < 0) {
        return rc;
    }
    cached_t *slot = &auth->cache[auth->next++ % KG_AUTH_CACHE_MAX];
    memcpy(slot->digest, digest, DIGEST);
    slot->until_ns = now + KG_AUTH_CACHE_NS;
    slot->key = key;
    ret_who->key = key;
    return 0;
}

#define LOCAL "local" /* the key, its name and its owner where none is needed */

void kg_auth_local(kg_principal_t *ret_who)
{
    *ret_who = (kg_principal_t){
        .key = {.id = LOCAL, .owner = LOCAL, .name = LOCAL, .scopes = "admin use"}};
}

bool kg_auth_lives(kg_auth_t *auth, const char *key_id)
{
    uint64_t wall = auth->clock->wall_ns(auth->clock->user);
    return strcmp(key_id, LOCAL) == 0 || kg_store_key_lives(auth->store, key_id, wall, NULL) != 0;
}

int kg_auth_allow(const kg_principal_t *who, kg_right_t right, const char *sandbox, kg_err_t *err)
{
    char attach[KG_ID_MAX + 8];
    switch (right) {
    case KG_RIGHT_NONE:
    case KG_RIGHT_HANDLER:
        return 0;
    case KG_RIGHT_ADMIN:
        if (kg_key_has_scope(&who->key, "admin")) {
            return 0;
        }
        return kg_err_set(err, KG_ERR_FORBIDDEN, "This needs a key with the scope admin.");
    case KG_RIGHT_SANDBOX:
        if (sandbox && kg_format(attach, sizeof attach, "attach:%s", sandbox) == 0 &&
            kg_key_has_scope(&who->key, attach)) {
            return 0;
        }
        break;
    case KG_RIGHT_USE:
        break;
    }
    if (kg_key_has_scope(&who->key, "use")) {
        return 0;
    }
    return kg_err_set(err, KG_ERR_FORBIDDEN, "This key has no right to that.");
}

bool kg_scope_valid(const char *scope)
{
    if (strcmp(scope, "use") == 0 || strcmp(scope, "admin") == 0) {
        return true;
    }
    return kg_str_starts(scope, "attach:") && kg_id_valid("sbx", scope + strlen("attach:"));
}
