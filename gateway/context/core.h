/* The registry: everything that the API speaks of hangs from one kg_core_t (templates, sandboxes,
 * contexts, runs). One thread, one loop. Objects are found by owner and id; what belongs to someone
 * else is not found. Pointers to objects are borrowed for the loop turn (an attached run excepted,
 * see run.h): keep ids, not pointers. Functions that take a callback return 0 and call it exactly
 * once, never from inside the call; or they return -errno with err filled and never call it. */
#ifndef KG_CONTEXT_CORE_H
#define KG_CONTEXT_CORE_H

#include <jansson.h>

#include "gateway/base/clock.h"
#include "gateway/base/err.h"
#include "gateway/base/id.h"
#include "gateway/loop/loop.h"
#include "gateway/pool/pool.h"
#include "gateway/run/log.h"
#include "gateway/sandbox/client.h"
#include "gateway/store/store.h"

typedef struct kg_core kg_core_t;
typedef struct kg_sandbox kg_sandbox_t;
typedef struct kg_context kg_context_t;
typedef struct kg_run kg_run_t;
typedef struct kg_template kg_template_t;

#define KG_OWNER_MAX 64    /* bytes of an owner's name, without NUL */
#define KG_OBJ_NAME_MAX 63 /* sandbox and context names: kg_name_valid, but not of an id's form */

/* Values of the configuration, public plain data. Strings are copied by kg_core_create. */
typedef struct kg_core_config {
    const char *state_dir;            /* logs go to STATE/runs; made if it isn't there */
    const char *const *template_dirs; /* each holds one folder a template */
    size_t template_dir_count;
    const char *const *kernelspec_dirs; /* each holds one folder a kernelspec, after those */
    size_t kernelspec_dir_count;
    const char *data_home; /* where a template's prefix_user lies; NULL = nowhere */
    const char *const
        *sandbox_env; /* NAME=VALUE, or NAME: as in our own environment, if it is there */
    size_t sandbox_env_count;
    const char *default_template;
    const char *isolation;       /* the default wish; NULL = the best there is but `none` */
    const char *isolation_min;   /* the weakest that a client may ask for; NULL: see
                                    kg_isolation_floor. Not above isolation, where both are set */
    unsigned sandbox_timeout_s;  /* idle seconds */
    unsigned run_timeout_s;      /* 0 = none */
    unsigned interrupt_grace_ms; /* interrupt, then kill after it */
    unsigned kernel_start_timeout_ms;
    unsigned drain_grace_ms;   /* what running code gets when the daemon stops */
    unsigned queue_max;        /* runs waiting in one context, beside */
    unsigned client_queue_max; /* those of attached clients: a notebook sends all its cells, */
    size_t client_queue_bytes; /* with code, and what came with it, of so many bytes together */
    unsigned sandboxes_max;    /* in the daemon */
    unsigned contexts_max;     /* in one sandbox */
    unsigned processes_max;    /* commands at once in one sandbox */
    unsigned files_timeout_ms; /* what a list, a removal or a move of files may take; 0 = any */
    unsigned retain_s;         /* a finished log stays at least so long, budget permitting */
    size_t code_max;           /* bytes of one run's code */
    size_t cmd_max;            /* bytes of one command */
    unsigned sandbox_memory_mib_max; /* the operator's caps of one sandbox; 0 = none */
    unsigned sandbox_pids_max;
    unsigned sandbox_disk_mib_max;
    unsigned sandbox_open_files_max; /* of each of its processes */
    double sandbox_cpus_max;
    unsigned zygotes_max;                    /* at once; beyond it kernels are spawned */
    unsigned zygote_idle_s;                  /* how long one stays that nobody uses; 0 = for ever */
    bool zygote_per_owner;                   /* no owner's kernels come from another's */
    bool network_none;                       /* without a wish: none instead of egress */
    uint64_t sandbox_log_bytes;              /* budget of finished logs, a sandbox */
    uint64_t daemon_log_bytes;               /* and all together */
    uint64_t output_bytes, output_bytes_max; /* of one run: default and the operator's cap */
    uint64_t result_bytes, result_bytes_max;
    uint64_t events, events_max;
    kg_pool_fill_t pool_fill;         /* warm pools, off by default */
    unsigned connections_max;         /* connection files in the daemon; 0 = none */
    unsigned owner_connections_max;   /* of one owner */
    unsigned context_connections_max; /* at one context */
    bool connect_tcp;                 /* they may be on loopback, where all local users are */
    uint64_t connection_unread_max;   /* bytes that a connection's subscribers may leave unread */
    uint64_t pool_memory_mib;         /* of all their members; 0 = an eighth of the host's */
    const char *const *pool_sizes;    /* TEMPLATE[/START]:MIN-MAX, instead of the template's */
    size_t pool_size_count;
} kg_core_config_t;
void kg_core_config_defaults(kg_core_config_t *ret_config);

typedef void kg_core_lost_fn(void *user, const kg_err_t *err);

/* loop, keeper and store are borrowed and must outlive the core. Loads the templates (a broken one
 * is an error with its path), reads back sandboxes and contexts (kernels start at their first use),
 * ends unfinished runs as gateway_restart. */
int kg_core_create(kg_loop_t *loop,
                   kg_keeper_t *keeper,
                   kg_store_t *store,
                   const kg_core_config_t *config,
                   kg_core_t **ret_core,
                   kg_err_t *err);
/* Stops taking runs (503 draining). Queued runs end at once, running ones when their grace is over,
 * as gateway_restart; then kernels and sandboxes end (files and records stay). done runs when
 * nothing is left running; then destroy. */
void kg_core_drain(kg_core_t *core, kg_fn *done, void *user);
bool kg_core_draining(const kg_core_t *core);
/* Writes what only memory has yet, as if the process were killed right after: so that it may end
 * without an end of its sandboxes, which the next start finds. */
void kg_core_leave(kg_core_t *core);
/* Frees everything at once, after drain or in an emergency (runs that were still going are finished
 * at the next start). No callback runs any more. Watches and attached runs must be gone. NULL ok;
 * NULLs the pointer. */
void kg_core_destroy(kg_core_t **core);
/* Callbacks that wait with this user pointer never run: for requests whose client has gone. What
 * they asked for goes on. */
void kg_core_forget(kg_core_t *core, const void *user);
/* The keeper announced itself or was lost: main forwards its event (templates and isolation depend
 * on READY). */
void kg_core_keeper_event(kg_core_t *core, kg_keeper_event_t event, const kg_err_t *err);
/* Ready to take requests: keeper READY and not draining. Else err says why (503 starting,
 * draining). */
int kg_core_ready(const kg_core_t *core, kg_err_t *err);

const kg_core_config_t *kg_core_config(const kg_core_t *core);
const kg_node_t *kg_core_node(const kg_core_t *core);
kg_loop_t *kg_core_loop(const kg_core_t *core);
kg_store_t *kg_core_store(const kg_core_t *core);

/* Counters since the start, and gauges as of now. Public plain data, for /metrics. */
#define KG_RUN_WALL_BUCKETS 14
/* Upper bound of a bucket of runs_by_wall. */
static inline unsigned kg_run_wall_bound_ms(unsigned bucket)
{
    static const unsigned bounds[KG_RUN_WALL_BUCKETS] = {
        5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000};
    return bounds[bucket];
}
typedef struct kg_core_stats {
    uint64_t runs_by_status[KG_RUN_STATUS_COUNT]; /* by kg_run_status_t */
    uint64_t runs_created;
    uint64_t commands_started;
    uint64_t pauses;
    uint64_t oom_kills;
    uint64_t kernels_started;
    uint64_t kernels_failed; /* did not become ready */
    uint64_t kernels_died;   /* went by themselves after they were ready */
    uint64_t sandboxes_created;
    uint64_t sandboxes_ended;
    uint64_t messages; /* from kernels */
    uint64_t bytes;    /* of those */
    uint64_t dropped;  /* of those: forged, malformed, over a cap */
    uint64_t queue_full;
    uint64_t connection_dropped; /* messages to connection files: forged, malformed, repeated */
    uint64_t connection_lost;    /* messages that their clients did not read in time */
    uint64_t run_wall_ns;        /* sum over ended runs */
    /* ended runs by wall time: each in the first bucket that holds it, the last one has no bound */
    uint64_t runs_by_wall[KG_RUN_WALL_BUCKETS + 1];
    /* gauges */
    uint64_t sandboxes;
    uint64_t contexts;
    uint64_t kernels;
    uint64_t runs_running;
    uint64_t runs_queued;
    uint64_t commands_running;
    uint64_t connections; /* connection files */
    uint64_t sandboxes_paused;
    uint64_t log_bytes;
} kg_core_stats_t;
void kg_core_stats(const kg_core_t *core, kg_core_stats_t *ret_stats);

/* Of the index-th warm pool, by the order of templates: its name (borrowed), how its members start,
 * and stats, or NULL past the end. */
const char *kg_core_pool_stats(const kg_core_t *core,
                               size_t index,
                               const char **ret_start,
                               kg_pool_stats_t *ret_stats);

/* Isolation kinds there are, weakest first: [{"name","available","reason"}]. New reference or NULL
 * (OOM). */
json_t *kg_core_isolation_json(const kg_core_t *core);

#endif
