/* Inner header: uthash with a hash function of ours (its own does not pass clang's fall-through
 * warning). Tables are small or keyed by ids that we made, so FNV-1a will do. */
#ifndef KG_RUN_HASH_H
#define KG_RUN_HASH_H

#include <stddef.h>

static inline unsigned kg_run_hash(const void *key, size_t len)
{
    const unsigned char *p = key;
    unsigned hash = 2166136261U;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ p[i]) * 16777619U;
    }
    return hash;
}

/* Without memory an element is not added, and its hh.tbl is NULL; the default ends the process. */
#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, len, hash) ((hash) = kg_run_hash(key, len))

#include <uthash.h>

#endif
