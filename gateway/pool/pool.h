/* Warm pools: how many members wait, when one is made, given out, looked at, aged out or given
 * back. Arithmetic only: what a member is, and how it is made and ended, is the business of who has
 * the pools (callbacks below); the clock comes in with each call. Members are single-use: what is
 * taken never comes back. */
#ifndef KG_POOL_POOL_H
#define KG_POOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_POOL_SIZE_MAX 1024U        /* of `max` */
#define KG_POOL_REFILL_MAX 60000U     /* of `refill_per_minute` */
#define KG_POOL_MEMBER_GUESS_MIB 100U /* memory of a member before any was weighed */
#define KG_POOL_CHECK_S 30U           /* between two looks at one that waits */
#define KG_POOL_IDLE_S 600U           /* on demand: after the last take a pool empties */

typedef struct kg_pools kg_pools_t;   /* all of a daemon */
typedef struct kg_pool kg_pool_t;     /* those of one template, and one kind of start */
typedef struct kg_member kg_member_t; /* one that waits or is being made */

/* Public plain data: what a template says of its pool. */
typedef struct kg_pool_opts {
    unsigned min;               /* are kept ready */
    unsigned max;               /* at most, those being made among them; 0 = no pool */
    unsigned refill_per_minute; /* members begun, at most; a burst of `max` is let through */
    unsigned memory_mib;        /* of all its members; 0 = the budget of all pools alone */
    unsigned max_age_s;         /* a member that waited longer is replaced; 0 = never */
} kg_pool_opts_t;

/* When pools fill. */
typedef enum kg_pool_fill {
    KG_POOL_FILL_OFF,    /* never */
    KG_POOL_FILL_DEMAND, /* from a template's first create on, until nobody took for KG_POOL_IDLE_S
                          */
    KG_POOL_FILL_START   /* `min` from the start on, and more when they are taken fast */
} kg_pool_fill_t;

/* What the host says to one more member. */
typedef enum kg_pool_pressure {
    KG_POOL_PRESSURE_NONE,
    KG_POOL_PRESSURE_HOLD, /* none is begun now: somebody who runs needs the machine */
    KG_POOL_PRESSURE_SHED  /* and one that waits is given back at each tick */
} kg_pool_pressure_t;

/* None of them may be answered from inside the call. */
typedef struct kg_pool_ops {
    /* Begins a member: *ret_object is what it is. kg_member_ready or kg_member_failed follows.
     * Non-zero: it cannot be begun, which counts as failed. */
    int (*make)(void *user, kg_pool_t *pool, kg_member_t *member, void **ret_object);
    /* It isn't a member any more (aged, given back, unhealthy): to be ended. */
    void (*end)(void *user, void *object);
    /* Does it still answer, and what does it weigh? kg_member_checked follows. */
    void (*check)(void *user, kg_member_t *member, void *object);
    kg_pool_pressure_t (*pressure)(void *user);
} kg_pool_ops_t;

/* Public plain data: gauges and counters. */
typedef struct kg_pool_stats {
    unsigned ready;
    unsigned warming;
    unsigned target; /* as many there should be now */
    uint64_t memory_bytes;
    uint64_t hits;      /* takes that found one ready */
    uint64_t joined;    /* that found one being made, and wait for it */
    uint64_t misses;    /* that found none */
    uint64_t made;      /* members that became ready */
    uint64_t failed;    /* that did not, or were found dead or dumb while they waited */
    uint64_t aged;      /* ended for their age */
    uint64_t shed;      /* given back: too many, over budget, the host under pressure */
    uint64_t filled_ns; /* from the pools' start to `min` ready; 0 = not yet */
} kg_pool_stats_t;

/* budget_bytes: of all members of all pools; warming_max: made at once in all pools. -ENOMEM. */
int kg_pools_create(const kg_pool_ops_t *ops,
                    void *user,
                    kg_pool_fill_t fill,
                    uint64_t budget_bytes,
                    unsigned warming_max,
                    kg_pools_t **ret_pools);
/* Members are forgotten, not ended. NULL ok; NULLs the pointer. */
void kg_pools_destroy(kg_pools_t **pools);
/* name: the template's, copied. start: how its members' kernels are started, a static word; pools
 * of one template differ in it. */
int kg_pools_add(kg_pools_t *pools,
                 const char *name,
                 const char *start,
                 const kg_pool_opts_t *opts,
                 void *pool_user,
                 kg_pool_t **ret_pool);
/* NULL: there is none. */
kg_pool_t *kg_pools_find(const kg_pools_t *pools, const char *name, const char *start);
/* In the order of kg_pools_add; NULL past the end. */
kg_pool_t *kg_pools_at(const kg_pools_t *pools, size_t index);
const char *kg_pool_name(const kg_pool_t *pool);
const char *kg_pool_start(const kg_pool_t *pool);
void *kg_pool_user(const kg_pool_t *pool);
void kg_pool_stats(const kg_pool_t *pool, kg_pool_stats_t *ret_stats);
size_t kg_pools_members(const kg_pools_t *pools); /* of all, ready or not */

/* Ages, looks, gives back, begins. Each second, and soon after a take. */
void kg_pools_tick(kg_pools_t *pools, uint64_t now_ns);
/* No more members; those there are end. */
void kg_pools_stop(kg_pools_t *pools);
/* Gives back one that waits, else one being made, whatever its pool, for a sandbox that finds no
 * place. false: there is none. */
bool kg_pools_give_way(kg_pools_t *pools);

/* One for a create: the object, the caller's from here on, or NULL: none. The oldest that is ready,
 * else (*ret_warming) the one that has been in the making longest: it is ahead of whatever begins
 * now. A take counts as demand whether it is answered or not. */
void *kg_pool_take(kg_pool_t *pool, uint64_t now_ns, bool *ret_warming);
/* A create that no member can serve (asked for something else) counts as demand, not as a miss. */
void kg_pool_wanted(kg_pool_t *pool, uint64_t now_ns);

/* memory_bytes: as weighed, 0 = unknown. */
void kg_member_ready(kg_member_t *member, uint64_t now_ns, uint64_t memory_bytes);
/* It could not be made, or has gone: no member any more; its object is the caller's to end. */
void kg_member_failed(kg_member_t *member, uint64_t now_ns);
void kg_member_checked(kg_member_t *member, bool healthy, uint64_t now_ns, uint64_t memory_bytes);

#endif
