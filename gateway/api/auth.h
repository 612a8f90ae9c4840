/* Who asks, and what may they. Keys are checked by the store; what it said is remembered for
 * seconds, so that a request does not cost a query. Plain keys are never kept or logged. */
#ifndef KG_API_AUTH_H
#define KG_API_AUTH_H

#include <jansson.h>

#include "gateway/api/op.h"
#include "gateway/base/buf.h"
#include "gateway/base/clock.h"
#include "gateway/base/err.h"
#include "gateway/loop/loop.h"
#include "gateway/store/store.h"

/* Public plain data. */
typedef struct kg_principal {
    kg_key_t key; /* key.owner owns what this principal makes */
} kg_principal_t;

typedef struct kg_auth kg_auth_t;

#define KG_AUTH_CACHE_MAX 256
#define KG_AUTH_CACHE_NS                                                                           \
    (5 * KG_NS_PER_S) /* a key that `sandald keys` removed works for so long at most */

/* store and clock are borrowed. */
int kg_auth_create(kg_store_t *store, const kg_clock_t *clock, kg_auth_t **ret_auth);
void kg_auth_destroy(kg_auth_t **auth); /* NULL ok; NULLs the pointer */
/* No key and a wrong key are both unauthorized; a store that fails is internal. */
int kg_auth_check(kg_auth_t *auth, kg_slice_t plain, kg_principal_t *ret_who, kg_err_t *err);
/* Whether the key of somebody who was let in is still good. True where the store cannot say. */
bool kg_auth_lives(kg_auth_t *auth, const char *key_id);
/* Forgets what it remembers (keys were added or removed), and says so to who listens. */
void kg_auth_forget(kg_auth_t *auth);
/* One listener; NULL: none. It is called inside of the call that removes a key. */
void kg_auth_on_forget(kg_auth_t *auth, kg_fn *fn, void *user);
/* The one owner of keyless loopback, who may do all. */
void kg_auth_local(kg_principal_t *ret_who);

/* May who call an operation with this right? sandbox: the id of the one that it names, or NULL.
 * forbidden. */
int kg_auth_allow(const kg_principal_t *who, kg_right_t right, const char *sandbox, kg_err_t *err);
/* A key as clients see it, without its text. New reference, NULL = no memory. keys.c */
json_t *kg_key_json(const kg_key_t *key);
/* "use", "admin", "attach:ID": a scope of its form. */
bool kg_scope_valid(const char *scope);

#endif
