/* gateway/context: causes from outside. */
#ifndef KG_CONTEXT_CAUSE_H
#define KG_CONTEXT_CAUSE_H

/* Why a run is being ended from outside. The first cause stays. */
typedef enum kg_cause {
    KG_CAUSE_NONE,
    KG_CAUSE_TIMEOUT,
    KG_CAUSE_INTERRUPT,
    KG_CAUSE_LIMIT,   /* on_exceed stop */
    KG_CAUSE_INPUT,   /* input() and nobody answers */
    KG_CAUSE_ABORT,   /* reset, delete */
    KG_CAUSE_KILL,    /* on_disconnect kill */
    KG_CAUSE_RESTART, /* the daemon stops */
} kg_cause_t;

#endif
