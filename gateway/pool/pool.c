/* gateway/pool: the arithmetic of warm pools. A pool has a target, between its min and max, that
 * follows how fast members were taken in the last minute. What is missing is begun a few at a time,
 * as far as rate, budgets and the host let it; what is too much goes, one a tick. */
#include "gateway/pool/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/mem.h"

enum {
    WINDOW_S = 60,       /* in which takes are counted */
    BACKOFF_MAX_STEP = 6 /* of failures one after the other: 1, 2, 4 … 64 s */
};

#define MIB (UINT64_C(1) << 20)

typedef enum member_state {
    MEMBER_WARMING,
    MEMBER_READY
} member_state_t;

struct kg_member {
    kg_pool_t *pool;
    void *object;
    member_state_t state;
    bool checking;
    uint64_t since_ns; /* begun, then ready */
    uint64_t checked_ns;
    uint64_t bytes; /* 0 = not weighed */
    kg_member_t *prev, *next;
};

struct kg_pool {
    kg_pools_t *pools;
    char *name;
    const char *start;
    void *user;
    kg_pool_opts_t opts;
    kg_member_t *members; /* oldest first */
    kg_pool_stats_t stats;
    uint64_t window_ns;     /* begin of the window that runs */
    unsigned takes, before; /* in it, and in the one before */
    bool ever_taken;
    uint64_t last_take_ns;
    double tokens; /* members that may be begun */
    uint64_t tokens_ns;
    unsigned failures; /* one after the other */
    uint64_t not_before_ns;
    uint64_t guess; /* what the last one weighed */
    kg_pool_t *next;
};

struct kg_pools {
    kg_pool_ops_t ops;
    void *user;
    kg_pool_fill_t fill;
    uint64_t budget_bytes;
    unsigned warming_max;
    bool stopped;
    uint64_t started_ns; /* the first tick */
    kg_pool_t *list;
    size_t first; /* who is asked first: each tick another */
};

/* ---- life ---- */

int kg_pools_create(const kg_pool_ops_t *ops,
                    void *user,
                    kg_pool_fill_t fill,
                    uint64_t budget_bytes,
                    unsigned warming_max,
                    kg_pools_t **ret_pools)
{
    kg_pools_t *pools = calloc(1, sizeof(*pools));
    if (!pools) {
        return -ENOMEM;
    }
    pools->ops = *ops;
    pools->user = user;
    pools->fill = fill;
    pools->budget_bytes = budget_bytes;
    pools->warming_max = warming_max ? warming_max : 1;
    *ret_pools = pools;
    return 0;
}

static void pool_free(kg_pool_t *pool)
{
    kg_member_t *member = NULL;
    kg_member_t *next = NULL;
    DL_FOREACH_SAFE (pool->members, member, next) {
        free(member);
    }
    free(pool->name);
    free(pool);
}

void kg_pools_destroy(kg_pools_t **pools)
{
    kg_pools_t *p = *pools;
    *pools = NULL;
    while (p && p->list) {
        kg_pool_t *pool = p->list;
        p->list = pool->next;
        pool_free(pool);
    }
    free(p);
}

int kg_pools_add(kg_pools_t *pools,
                 const char *name,
                 const char *start,
                 const kg_pool_opts_t *opts,
                 void *pool_user,
                 kg_pool_t **ret_pool)
{
    kg_pool_t *pool = calloc(1, sizeof(*pool));
    char *copy = strdup(name);
    if (!pool || !copy) {
        free(pool);
        free(copy);
        return -ENOMEM;
    }
    pool->pools = pools;
    pool->name = copy;
    pool->start = start;
    pool->user = pool_user;
    pool->opts = *opts;
    pool->opts.min = opts->min < opts->max ? opts->min : opts->max;
    pool->tokens = opts->max;
    pool->guess = KG_POOL_MEMBER_GUESS_MIB * MIB;
    LL_APPEND(pools->list, pool);
    *ret_pool = pool;
    return 0;
}

kg_pool_t *kg_pools_find(const kg_pools_t *pools, const char *name, const char *start)
{
    kg_pool_t *pool = pools ? pools->list : NULL;
    while (pool && (strcmp(pool->start, start) != 0 || strcmp(pool->name, name) != 0)) {
        pool = pool->next;
    }
    return pool;
}

kg_pool_t *kg_pools_at(const kg_pools_t *pools, size_t index)
{
    kg_pool_t *pool = pools ? pools->list : NULL;
    while (pool && index--) {
        pool = pool->next;
    }
    return pool;
}

const char *kg_pool_name(const kg_pool_t *pool)
{
    return pool->name;
}

const char *kg_pool_start(const kg_pool_t *pool)
{
    return pool->start;
}

void *kg_pool_user(const kg_pool_t *pool)
{
    return pool->user;
}

/* ---- sums ---- */

static unsigned count(const kg_pool_t *pool, member_state_t state)
{
    unsigned n = 0;
    const kg_member_t *member = NULL;
    DL_FOREACH (pool->members, member) {
        n += member->state == state;
    }
    return n;
}

static uint64_t weight(const kg_pool_t *pool)
{
    uint64_t sum = 0;
    const kg_member_t *member = NULL;
    DL_FOREACH (pool->members, member) {
        sum += member->bytes ? member->bytes : pool->guess;
    }
    return sum;
}

static uint64_t weight_of_all(const kg_pools_t *pools)
{
    uint64_t sum = 0;
    for (const kg_pool_t *pool = pools->list; pool; pool = pool->next) {
        sum += weight(pool);
    }
    return sum;
}

static unsigned warming_of_all(const kg_pools_t *pools)
{
    unsigned n = 0;
    for (const kg_pool_t *pool = pools->list; pool; pool = pool->next) {
        n += count(pool, MEMBER_WARMING);
    }
    return n;
}

size_t kg_pools_members(const kg_pools_t *pools)
{
    size_t n = 0;
    for (const kg_pool_t *pool = pools ? pools->list : NULL; pool; pool = pool->next) {
        n += count(pool, MEMBER_WARMING) + count(pool, MEMBER_READY);
    }
    return n;
}

/* Two windows, so that what was taken fades and doesn't drop. */
static void roll(kg_pool_t *pool, uint64_t now_ns)
{
    uint64_t window = WINDOW_S * KG_NS_PER_S / 2;
    uint64_t past = now_ns > pool->window_ns ? now_ns - pool->window_ns : 0;
    if (past < window) {
        return;
    }
    pool->before = past < 2 * window ? pool->takes : 0;
    pool->takes = 0;
    pool->window_ns = now_ns;
}

static unsigned target(kg_pool_t *pool, uint64_t now_ns)
{
    roll(pool, now_ns);
    bool on = pool->pools->fill == KG_POOL_FILL_START;
    unsigned base = on ? pool->opts.min : 0;
    if (pool->ever_taken && now_ns - pool->last_take_ns < KG_POOL_IDLE_S * KG_NS_PER_S) {
        base = pool->opts.min ? pool->opts.min : 1; /* who used it once comes again */
        on = true;
    }
    unsigned taken = on ? pool->takes + pool->before : 0;
    unsigned wish = taken > base ? taken : base;
    wish = wish < pool->opts.max ? wish : pool->opts.max;
    pool->stats.target = pool->pools->stopped ? 0 : wish;
    return pool->stats.target;
}

void kg_pool_stats(const kg_pool_t *pool, kg_pool_stats_t *ret_stats)
{
    *ret_stats = pool->stats;
    ret_stats->ready = count(pool, MEMBER_READY);
    ret_stats->warming = count(pool, MEMBER_WARMING);
    ret_stats->memory_bytes = weight(pool);
}

/* ---- members ---- */

/* Off the list; its object. */
static void *forget(kg_member_t *member)
{
    void *object = member->object;
    DL_DELETE(member->pool->members, member);
    free(member);
    return object;
}

static void end(kg_member_t *member)
{
    kg_pools_t *pools = member->pool->pools;
    pools->ops.end(pools->user, forget(member));
}

static void failed(kg_pool_t *pool, uint64_t now_ns)
{
    unsigned step = pool->failures < BACKOFF_MAX_STEP ? pool->failures : BACKOFF_MAX_STEP;
    pool->stats.failed++;
    pool->failures++;
    pool->not_before_ns = now_ns + (KG_NS_PER_S << step);
    kg_log(KG_LOG_WARN, "pool.failed", "template=%s start=%s failures=%u again_s=%u", pool->name,
           pool->start, pool->failures, 1U << step);
}

void kg_member_ready(kg_member_t *member, uint64_t now_ns, uint64_t memory_bytes)
{
    kg_pool_t *pool = member->pool;
    uint64_t took = now_ns - member->since_ns;
    member->state = MEMBER_READY;
    member->since_ns = now_ns;
    member->checked_ns = now_ns;
    member->bytes = memory_bytes;
    pool->guess = memory_bytes ? memory_bytes : pool->guess;
    pool->failures = 0;
    pool->stats.made++;
    kg_log(KG_LOG_INFO, "pool.ready", "template=%s start=%s ready=%u ms=%llu mib=%llu", pool->name,
           pool->start, count(pool, MEMBER_READY), (unsigned long long)(took / KG_NS_PER_MS),
           (unsigned long long)(memory_bytes / MIB));
    if (!pool->stats.filled_ns && count(pool, MEMBER_READY) >= pool->opts.min) {
        pool->stats.filled_ns = now_ns - pool->pools->started_ns;
        kg_log(KG_LOG_INFO, "pool.filled", "template=%s start=%s ms=%llu", pool->name, pool->start,
               (unsigned long long)(pool->stats.filled_ns / KG_NS_PER_MS));
    }
}

void kg_member_failed(kg_member_t *member, uint64_t now_ns)
{
    kg_pool_t *pool = member->pool;
    (void)forget(member);
    failed(pool, now_ns);
}

void kg_member_checked(kg_member_t *member, bool healthy, uint64_t now_ns, uint64_t memory_bytes)
{
    member->checking = false;
    member->checked_ns = now_ns;
    member->bytes = memory_bytes ? memory_bytes : member->bytes;
    if (!healthy) {
        failed(member->pool, now_ns);
        end(member);
    }
}

static kg_member_t *oldest(const kg_pool_t *pool, member_state_t state)
{
    kg_member_t *member = pool->members;
    while (member && member->state != state) {
        member = member->next;
    }
    return member;
}

void kg_pool_wanted(kg_pool_t *pool, uint64_t now_ns)
{
    roll(pool, now_ns);
    pool->takes += pool->takes < KG_POOL_SIZE_MAX;
    pool->ever_taken = true;
    pool->last_take_ns = now_ns;
}

void *kg_pool_take(kg_pool_t *pool, uint64_t now_ns, bool *ret_warming)
{
    kg_member_t *member = oldest(pool, MEMBER_READY);
    kg_pool_wanted(pool, now_ns);
    if (member) {
        pool->stats.hits++;
        *ret_warming = false;
        return forget(member);
    }
    member = oldest(pool, MEMBER_WARMING);
    if (member) {
        pool->stats.joined++;
        *ret_warming = true;
        return forget(member);
    }
    pool->stats.misses++;
    return NULL;
}

/* ---- what a tick does ---- */

static void give_back(kg_pool_t *pool, kg_member_t *member, const char *why)
{
    kg_log(KG_LOG_INFO, "pool.give_back", "template=%s start=%s reason=%s", pool->name, pool->start,
           why);
    pool->stats.shed++;
    end(member);
}

bool kg_pools_give_way(kg_pools_t *pools)
{
    for (member_state_t round = 0; pools && round < 2; round++) {
        member_state_t state = round == 0 ? MEMBER_READY : MEMBER_WARMING;
        for (kg_pool_t *pool = pools->list; pool; pool = pool->next) {
            kg_member_t *member = oldest(pool, state);
            if (member) {
                give_back(pool, member, "place");
                return true;
            }
        }
    }
    return false;
}

static void age(kg_pool_t *pool, uint64_t now_ns)
{
    kg_member_t *member = oldest(pool, MEMBER_READY);
    if (member && pool->opts.max_age_s &&
        now_ns - member->since_ns >= pool->opts.max_age_s * KG_NS_PER_S) {
        kg_log(KG_LOG_INFO, "pool.aged", "template=%s start=%s", pool->name, pool->start);
        pool->stats.aged++;
        end(member);
    }
}

static void look(kg_pool_t *pool, uint64_t now_ns)
{
    kg_member_t *member = NULL;
    kg_member_t *next = NULL;
    DL_FOREACH_SAFE (pool->members, member, next) {
        if (member->state == MEMBER_READY && !member->checking &&
            now_ns - member->checked_ns >= KG_POOL_CHECK_S * KG_NS_PER_S) {
            member->checking = true;
            pool->pools->ops.check(pool->pools->user, member, member->object);
            return; /* one a tick */
        }
    }
}

static bool over_memory(const kg_pool_t *pool, uint64_t more)
{
    uint64_t own = pool->opts.memory_mib * MIB;
    return (own && weight(pool) + more > own) ||
           weight_of_all(pool->pools) + more > pool->pools->budget_bytes;
}

/* One that is too many. */
static void trim(kg_pool_t *pool, uint64_t now_ns, kg_pool_pressure_t pressure)
{
    kg_member_t *member = oldest(pool, MEMBER_READY);
    unsigned there = count(pool, MEMBER_READY) + count(pool, MEMBER_WARMING);
    if (!member) {
        return;
    }
    if (pressure == KG_POOL_PRESSURE_SHED) {
        give_back(pool, member, "pressure");
    } else if (over_memory(pool, 0)) {
        give_back(pool, member, "memory");
    } else if (there > target(pool, now_ns)) {
        give_back(pool, member, "idle");
    }
}

static void earn(kg_pool_t *pool, uint64_t now_ns)
{
    if (pool->tokens_ns && now_ns > pool->tokens_ns) {
        double seconds = (double)(now_ns - pool->tokens_ns) / (double)KG_NS_PER_S;
        pool->tokens += seconds * pool->opts.refill_per_minute / 60.0;
    }
    pool->tokens = pool->tokens < pool->opts.max ? pool->tokens : pool->opts.max;
    pool->tokens_ns = now_ns;
}

/* true: one was begun. */
static bool begin(kg_pool_t *pool, uint64_t now_ns)
{
    kg_pools_t *pools = pool->pools;
    unsigned there = count(pool, MEMBER_READY) + count(pool, MEMBER_WARMING);
    earn(pool, now_ns);
    if (there >= target(pool, now_ns) || pool->tokens < 1 || now_ns < pool->not_before_ns ||
        over_memory(pool, pool->guess)) {
        return false;
    }
    kg_member_t *member = calloc(1, sizeof(*member));
    if (!member) {
        return false;
    }
    pool->tokens -= 1;
    member->pool = pool;
    member->state = MEMBER_WARMING;
    member->since_ns = now_ns;
    DL_APPEND(pool->members, member);
    if (pools->ops.make(pools->user, pool, member, &member->object)) {
        (void)forget(member);
        failed(pool, now_ns);
        return false;
    }
    return true;
}

/* Each in turn, so that one that is taken fast leaves something for the others. */
static void begin_some(kg_pools_t *pools, uint64_t now_ns)
{
    size_t pools_count = 0;
    const kg_pool_t *pool = NULL;
    LL_COUNT(pools->list, pool, pools_count);
    size_t idle = 0;
    while (idle < pools_count && warming_of_all(pools) < pools->warming_max) {
        kg_pool_t *next = kg_pools_at(pools, pools->first % pools_count);
        pools->first = (pools->first + 1) % pools_count;
        idle = next && begin(next, now_ns) ? 0 : idle + 1;
    }
}

void kg_pools_tick(kg_pools_t *pools, uint64_t now_ns)
{
    if (!pools || pools->stopped || pools->fill == KG_POOL_FILL_OFF) {
        return;
    }
    pools->started_ns = pools->started_ns ? pools->started_ns : now_ns;
    kg_pool_pressure_t pressure = pools->ops.pressure(pools->user);
    for (kg_pool_t *pool = pools->list; pool; pool = pool->next) {
        age(pool, now_ns);
        trim(pool, now_ns, pressure);
        look(pool, now_ns);
    }
    if (pressure == KG_POOL_PRESSURE_NONE) {
        begin_some(pools, now_ns);
    }
}

void kg_pools_stop(kg_pools_t *pools)
{
    if (!pools || pools->stopped) {
        return;
    }
    pools->stopped = true;
    for (kg_pool_t *pool = pools->list; pool; pool = pool->next) {
        pool->stats.target = 0;
        while (pool->members) {
            end(pool->members);
        }
    }
}
