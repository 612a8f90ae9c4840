/* How the first kernel of a sandbox comes to be, and what its create says of it. Pure. */
#ifndef KG_CONTEXT_START_KIND_H
#define KG_CONTEXT_START_KIND_H

#include <stdbool.h>
#include <string.h>

typedef enum kg_start_kind {
    KG_START_SPAWN, /* a process of its own from the start */
    KG_START_ZYGOTE /* forked from a process that has imported everything */
} kg_start_kind_t;

#define KG_START_KINDS 2

/* Public plain data. */
typedef struct kg_start {
    kg_start_kind_t kind; /* the wish, until the first kernel is there; then how that was started */
    bool pool;            /* it was waiting, or already being made, when it was asked for */
} kg_start_t;

/* "spawn", "zygote": of templates. */
static inline const char *kg_start_kind_name(kg_start_kind_t kind)
{
    return kind == KG_START_ZYGOTE ? "zygote" : "spawn";
}

/* Of sandboxes: its kind, or which kind of member of a pool it was. */
static inline const char *kg_start_name(kg_start_t start)
{
    bool forked = start.kind == KG_START_ZYGOTE;
    return !start.pool ? kg_start_kind_name(start.kind) : forked ? "pool-zygote" : "pool";
}

/* NULL or another word is KG_START_SPAWN. */
static inline kg_start_kind_t kg_start_kind_of(const char *name)
{
    return name && strcmp(name, "zygote") == 0 ? KG_START_ZYGOTE : KG_START_SPAWN;
}

#endif
