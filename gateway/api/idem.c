/* gateway/api: remembered answers of requests with an idempotency key. A hash table by owner,
 * operation, sandbox and key; uthash keeps it in order of insertion, so the oldest stands first. */
#include "gateway/api/idem.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/api/limits.h"

/* The key is a digest: any part of it is as good as a hash of it. */
#define HASH_FUNCTION(keyptr, keylen, hashv) memcpy(&(hashv), (keyptr), sizeof(hashv))
#include <uthash.h>

enum {
    DIGEST = 32
};

struct kg_idem_entry {
    UT_hash_handle hh;
    unsigned char realm[DIGEST]; /* owner, operation, sandbox, key */
    unsigned char args[DIGEST];
    kg_call_t *worker;  /* NULL: answered */
    kg_call_t *waiters; /* linked by idem_next */
    uint64_t made_ns;
    bool secret; /* the answer is shown once and not kept */
    int status;
    kg_buf_t body;
    kg_buf_t location;
};

struct kg_idem {
    const kg_clock_t *clock;
    kg_idem_entry_t *entries;
    size_t bytes;
};

int kg_idem_create(const kg_clock_t *clock, kg_idem_t **ret_idem)
{
    kg_idem_t *idem = calloc(1, sizeof *idem);
    if (!idem) {
        return -ENOMEM;
    }
    idem->clock = clock;
    *ret_idem = idem;
    return 0;
}

static void drop(kg_idem_t *idem, kg_idem_entry_t *entry)
{
    HASH_DEL(idem->entries, entry);
    idem->bytes -= entry->body.len;
    kg_buf_fini(&entry->body);
    kg_buf_fini(&entry->location);
    free(entry);
}

void kg_idem_destroy(kg_idem_t **idem)
{
    if (!*idem) {
        return;
    }
    kg_idem_entry_t *entry, *tmp;
    HASH_ITER (hh, (*idem)->entries, entry, tmp) {
        drop(*idem, entry);
    }
    free(*idem);
    *idem = NULL;
}

size_t kg_idem_count(const kg_idem_t *idem)
{
    return HASH_COUNT(idem->entries);
}

/* Old answers go, and the oldest when there are too many. One that is being worked on stays. */
static void make_room(kg_idem_t *idem)
{
    uint64_t now = idem->clock->now_ns(idem->clock->user);
    kg_idem_entry_t *entry, *tmp;
    HASH_ITER (hh, idem->entries, entry, tmp) {
        bool over = HASH_COUNT(idem->entries) >= KG_API_IDEM_MAX || idem->bytes > KG_API_IDEM_BYTES;
        if (!over && now - entry->made_ns < KG_API_IDEM_S * KG_NS_PER_S) {
            break;
        }
        if (!entry->worker) {
            drop(idem, entry);
        }
    }
}

static void realm_of(const kg_call_t *call, const char *key, unsigned char ret[DIGEST])
{
    const char *parts[] = {call->who.key.owner, call->op->name,
                           call->sandbox ? kg_sandbox_id(call->sandbox) : "", key};
    crypto_generichash_state st;
    crypto_generichash_init(&st, NULL, 0, DIGEST);
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        crypto_generichash_update(&st, (const unsigned char *)parts[i], strlen(parts[i]) + 1);
    }
    crypto_generichash_final(&st, ret, DIGEST);
}

static int digest_part(const char *data, size_t len, void *user)
{
    return crypto_generichash_update(user, (const unsigned char *)data, len);
}

static int args_of(const kg_call_t *call, unsigned char ret[DIGEST])
{
    crypto_generichash_state st;
    crypto_generichash_init(&st, NULL, 0, DIGEST);
    if (json_dump_callback(call->args, digest_part, &st, JSON_COMPACT | JSON_SORT_KEYS) < 0) {
        return -ENOMEM;
    }
    crypto_generichash_final(&st, ret, DIGEST);
    return 0;
}

static kg_idem_state_t
known(kg_idem_entry_t *entry, kg_call_t *call, kg_answer_t *ret_answer, kg_err_t *err)
{
    if (entry->worker) {
        call->idem = entry;
        call->idem_next = entry->waiters;
        entry->waiters = call;
        return KG_IDEM_WAITING;
    }
    if (entry->secret) {
        kg_err_set(err, KG_ERR_CONFLICT,
                   "This was done by an earlier request, and its answer is shown only once.");
        return KG_IDEM_REFUSED;
    }
    *ret_answer = (kg_answer_t){
        .status = entry->status,
        .body = kg_buf_slice(&entry->body),
        .location = entry->location.len ? entry->location.data : NULL,
    };
    return KG_IDEM_KNOWN;
}

kg_idem_state_t kg_idem_begin(
    kg_idem_t *idem, kg_call_t *call, const char *key, kg_answer_t *ret_answer, kg_err_t *err)
{
    unsigned char realm[DIGEST];
    unsigned char args[DIGEST];
    make_room(idem);
    realm_of(call, key, realm);
    if (args_of(call, args) < 0) {
        kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        return KG_IDEM_REFUSED;
    }
    kg_idem_entry_t *entry = NULL;
    HASH_FIND(hh, idem->entries, realm, DIGEST, entry);
    if (entry) {
        if (memcmp(entry->args, args, DIGEST) != 0) {
            kg_err_set(err, KG_ERR_KEY_REUSED,
                       "This idempotency key was used for another request.");
            kg_err_pointer(err, "/key");
            return KG_IDEM_REFUSED;
        }
        return known(entry, call, ret_answer, err);
    }
    entry = calloc(1, sizeof *entry);
    if (!entry) {
        kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        return KG_IDEM_REFUSED;
    }
    memcpy(entry->realm, realm, DIGEST);
    memcpy(entry->args, args, DIGEST);
    entry->worker = call;
    entry->made_ns = idem->clock->now_ns(idem->clock->user);
    entry->secret = call->op->flags & KG_OP_SECRET;
    HASH_ADD(hh, idem->entries, realm, DIGEST, entry);
    call->idem = entry;
    return KG_IDEM_NEW;
}

static void release(kg_idem_entry_t *entry, kg_idem_waiter_fn *each, void *user)
{
    kg_call_t *waiter = KG_TAKE(entry->waiters);
    while (waiter) {
        kg_call_t *next = waiter->idem_next;
        waiter->idem = NULL;
        waiter->idem_next = NULL;
        each(waiter, user);
        waiter = next;
    }
}

void kg_idem_done(kg_idem_t *idem,
                  kg_call_t *call,
                  const kg_answer_t *answer,
                  kg_idem_waiter_fn *each,
                  void *user)
{
    kg_idem_entry_t *entry = KG_TAKE(call->idem);
    entry->worker = NULL;
    entry->status = answer->status;
    int rc = 0;
    if (!entry->secret) {
        rc = kg_buf_append_slice(&entry->body, answer->body);
        rc = rc == 0 && answer->location ? kg_buf_append_cstr(&entry->location, answer->location)
                                         : rc;
        idem->bytes += entry->body.len;
    }
    release(entry, each, user);
    if (rc < 0) {
        drop(idem, entry); /* done, but no memory to remember it */
    }
}

void kg_idem_failed(kg_idem_t *idem, kg_call_t *call, kg_idem_waiter_fn *each, void *user)
{
    kg_idem_entry_t *entry = KG_TAKE(call->idem);
    release(entry, each, user);
    drop(idem, entry);
}

void kg_idem_leave(kg_call_t *call)
{
    kg_idem_entry_t *entry = KG_TAKE(call->idem);
    for (kg_call_t **p = &entry->waiters; *p; p = &(*p)->idem_next) {
        if (*p == call) {
            *p = call->idem_next;
            break;
        }
    }
    call->idem_next = NULL;
}
