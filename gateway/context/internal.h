/* Inner header of the context room: its objects' insides and what its files do for each other. */
#ifndef KG_CONTEXT_INTERNAL_H
#define KG_CONTEXT_INTERNAL_H

/* The default function falls through between cases, which clang warns of. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "gateway/base/utf8.h"
#include "gateway/context/cause.h"
#include "gateway/context/command.h"
#include "gateway/context/context.h"
#include "gateway/context/expose.h"
#include "gateway/context/metrics.h"
#include "gateway/context/run.h"
#include "gateway/context/run_table.h"
#include "gateway/context/sandbox_internal.h"
#include "gateway/context/template_internal.h"
#include "gateway/kernel/kernel.h"
#include "gateway/loop/heap.h"
#include "gateway/loop/manners.h"
#include "gateway/pool/pool.h"
#include "gateway/run/budget.h"
#include "gateway/run/mapper.h"
#include "gateway/run/spare.h"

enum {
    KG_HELD_RUNS = 16,  /* ended runs of a kernel whose late output is still known as theirs */
    KG_START_TRIES = 3, /* quick failures before a context is dead */
    KG_SINCE_QUICK_MS = 1000,
    KG_BACKOFF_MS = 100, /* doubled with each try */
    KG_GUARD_MS =
        900, /* from a kill to the end of what it was to end, should its exit not be told */
    KG_ADOPT_MS = 15000,  /* in which a kernel of an earlier gateway must answer; more than one
                             request of  KG_HIDDEN_MS, which it may be at */
    KG_HIDDEN_MS = 10000, /* a request of our own that takes longer is interrupted, then killed */
    /* the least that a client may ask for */
    KG_WISH_MEMORY_MIB_MIN = 16,
    KG_WISH_PIDS_MIN = 8,
    KG_WISH_FILES_MIN = 1024, /* sandal-init needs them */
    KG_WISH_DISK_MIB_MIN = 1,
    KG_LEDGER_S = 10, /* what of a sandbox's time may be lost when it dies with the daemon */
    KG_LIST_LIMIT = 100,
    KG_LIST_LIMIT_MAX = 1000,
    KG_STDIN_LINES_MAX = 10000,
    KG_KEY_MAX = 256,
    KG_METADATA_MAX = 64,
};

#define KG_WISH_CPUS_MIN 0.01

typedef struct kg_zygote_failure kg_zygote_failure_t; /* zygote.c */
typedef struct kg_bridge kg_bridge_t;                 /* attach_internal.h */
typedef struct kg_run_client kg_run_client_t;         /* likewise */

/* ---- callbacks that wait ---- */

typedef enum kg_wait_kind {
    KG_WAIT_SANDBOX,
    KG_WAIT_CONTEXT,
    KG_WAIT_REPLY,
    KG_WAIT_COMMAND,
    KG_WAIT_JSON,
    KG_WAIT_DONE
} kg_wait_kind_t;

/* One promise to call back. On the core's list until it is kept, so that the caller can be
 * forgotten. */
typedef struct kg_wait {
    kg_core_t *core;
    kg_wait_kind_t kind;
    union {
        kg_sandbox_fn *sandbox;
        kg_context_fn *context;
        kg_context_reply_fn *reply;
        kg_command_fn *command;
        kg_json_fn *json;
        kg_done_fn *done;
    } fn;
    bool forgotten;
    void *user;
    kg_run_t *run;               /* a reference to what it will be told, or NULL */
    struct kg_wait *prev, *next; /* all of the core */
    struct kg_wait *list_next;   /* of its owner */
} kg_wait_t;

kg_wait_t *kg_wait_new(kg_core_t *core,
                       kg_wait_kind_t kind,
                       void *user); /* fn is set by the caller; NULL = OOM */
/* Keep the promise: call and free. NULL ok; NULLs the pointer. */
void kg_wait_sandbox(kg_wait_t **wait, kg_sandbox_t *sandbox, const kg_err_t *err);
void kg_wait_context(kg_wait_t **wait, kg_context_t *context, const kg_err_t *err);
void kg_wait_reply(kg_wait_t **wait, kg_slice_t json, const kg_err_t *err);
void kg_wait_json(kg_wait_t **wait, json_t *json_take, const kg_err_t *err);
void kg_wait_command(kg_wait_t **wait, kg_run_t *run, const kg_err_t *err);
void kg_wait_done(kg_wait_t **wait, const kg_err_t *err);
void kg_wait_drop(kg_wait_t **wait); /* without calling */
/* Keeps a DONE in the next loop turn, as fine. Takes it. */
void kg_wait_done_later(kg_wait_t *wait);
/* Runs fn in the next loop turn, unless the core is destroyed before. -ENOMEM. */
int kg_core_later(kg_core_t *core, kg_fn *fn, void *user);
void kg_core_later_forget(kg_core_t *core, const void *user);

/* ---- runs ---- */

/* Mapper options outlive every kernel that may still be preparing a message with them. Shared by
 * equal runs. */
typedef struct kg_opts {
    unsigned refs;
    kg_core_t *core;
    kg_mapper_opts_t mapper;
    struct kg_opts *prev, *next;
} kg_opts_t;
kg_opts_t *kg_opts_get(kg_core_t *core,
                       const kg_mapper_opts_t *opts); /* a reference, or NULL: OOM */
kg_opts_t *kg_opts_ref(kg_opts_t *opts);
void kg_opts_unref(kg_opts_t **opts);

typedef struct kg_inc kg_inc_t;
typedef struct kg_job kg_job_t;

/* What is asked for by idempotency key. */
typedef struct kg_run_key {
    char hash[33]; /* of the code, or command, that it was given with */
    char text[];
} kg_run_key_t;
kg_run_key_t *kg_run_key_new(const char *text, const char *hash); /* NULL = OOM */

/* What is of use until a run has ended and left the queue. */
typedef struct kg_run_live {
    kg_buf_t code;
    json_t *env;
    char *cwd;
    json_t *lines;
    size_t line;
    bool line_mode;  /* stdin lines were given */
    bool input_wait; /* a client answers */
    bool leaving;    /* exit() was called: its end waits for the process's */
    bool sampled;    /* cpu_end_ns and peak_memory are known */
    bool again;      /* one more interrupt before the kill */
    bool idled;      /* its kernel's idle was passed on to attached clients */
    uint64_t timeout_ns;
    kg_timer_t *deadline;
    kg_buf_t input_header; /* of the input_request that waits, or empty */
    uint64_t created_ns, started_ns;
    uint64_t cpu_start_ns, cpu_end_ns, peak_memory;
    uint64_t oom_before; /* kg_box_oom_kills when it started */
} kg_run_live_t;

/* As many are kept as clients may still read, so it is packed. What only a run needs that is not
 * over is in `live`. */
struct kg_run {
    kg_core_t *core;
    kg_sandbox_t *sandbox; /* NULL when it was deleted */
    kg_context_t *context; /* NULL once ended */
    kg_run_live_t *live;   /* NULL once ended, and not in the queue any more */
    kg_run_log_t *log;
    kg_mapper_t *mapper; /* until its kernel forgets it */
    kg_opts_t *opts;
    uint64_t dirty_ns; /* since when it is dirty */
    kg_run_t *dirty_next;
    kg_run_key_t *key;       /* NULL: none was given */
    kg_run_client_t *client; /* an attached client's, until it has ended; or NULL */
    kg_command_t *command;   /* until that is no longer found */
    kg_job_t *job;           /* until it left the queue */
    kg_inc_t *inc;           /* while its kernel knows it */
    kg_request_t *request;
    kg_run_t *prev, *next; /* of the sandbox, oldest first */
    kg_run_t *same_row;    /* in the core's table */
    unsigned refs;         /* the sandbox's list, clients, the queue, the kernel's held requests */
    unsigned attached;
    char id[KG_ID_SHORT_MAX];
    char context_id[KG_UUID_LEN + 1];
    bool ended : 1;      /* the mapper has finished it */
    bool published : 1;  /* and the log has told it */
    bool started : 1;    /* the code was sent */
    bool is_command : 1; /* its log is that of a process */
    bool silent : 1;
    bool expired : 1;
    bool dirty : 1;
    bool only_starts : 1; /* what waits tells no more than that */
    kg_on_disconnect_t on_disconnect;
    kg_cause_t cause;
};

void kg_run_ref_(kg_run_t *run);
void kg_run_unref_(kg_run_t **run);
kg_run_t *kg_run_alloc(kg_core_t *core);
void kg_run_settle(kg_run_t *run); /* drops `live` when it is of no use any more */
/* Where it is found from here on; and off again. */
void kg_run_list_in(kg_run_t *run, kg_sandbox_t *sandbox, const char *id);
void kg_run_unlist(kg_run_t *run);
/* The sandbox is going: the run belongs to its clients alone. */
void kg_run_orphan(kg_run_t *run);
int kg_run_deadline_create(kg_run_t *run);
void kg_run_log_dirty(void *user, kg_run_log_t *log);
kg_run_log_opts_t kg_run_log_opts(kg_run_t *run); /* where its log is to be */
void kg_run_flushed(kg_run_t *run);
/* Ends it from outside with a cause: whatever its state, it will end within the deadlines (kill:
 * without the grace). */
void kg_run_stop(kg_run_t *run, kg_cause_t cause);
/* The main request is over. */
void kg_run_request_done(kg_run_t *run, kg_request_how_t how, const kg_kernel_exit_t *exit);
/* Its process has ended (after the above): what still waits for that ends now. */
void kg_run_process_ended(kg_run_t *run, const kg_kernel_exit_t *exit);
/* Ends a run by its cause alone, whatever the kernel does: for queued ones, and when a kill is not
 * told. */
void kg_run_end_now(kg_run_t *run, bool lost);
void kg_run_sample_usage(kg_run_t *run); /* of what has replied, while its end is on the way */
/* Its code went to the kernel: it has started. */
void kg_run_sent(kg_run_t *run);
/* It never started because its kernel didn't. */
void kg_run_start_failed(kg_run_t *run, const kg_err_t *why);
/* What enter() said when it could not set env and cwd for the run. */
void kg_run_enter_failed(kg_run_t *run, const char *name, const char *message);
const kg_mapper_sink_t *kg_run_mapper_sink(kg_run_t *run, kg_mapper_sink_t *sink);
/* Of an earlier gateway: what is still to come of it can be applied. -ENOMEM. */
int kg_run_revive(kg_run_t *run, kg_context_t *context);
void kg_run_forget_request(kg_run_t *run); /* releases the request and the mapper; unrefs */

/* 1: *ret is the run that was asked for with this key; 0: none yet; key_reused. */
int kg_run_find_key(
    kg_sandbox_t *sandbox, const char *key, const char *hash, kg_run_t **ret, kg_err_t *err);

/* CPU time of a live process so far and its peak memory; KG_USAGE_UNKNOWN where it can't be told.
 * The meter keeps what reading them needs for one process; zeroed, it has none yet. */
typedef struct kg_meter {
    pid_t pid; /* 0 = none */
    clockid_t clock;
    int status_fd; /* of /proc/PID/status, or -1 */
} kg_meter_t;
uint64_t kg_meter_cpu_ns(kg_meter_t *meter, pid_t pid);
uint64_t kg_meter_peak(kg_meter_t *meter, pid_t pid);
void kg_meter_close(kg_meter_t *meter);

/* ---- jobs: what waits for the kernel of a context ---- */

typedef enum kg_job_kind {
    KG_JOB_RUN,
    KG_JOB_COMPLETE,
    KG_JOB_INSPECT,
    KG_JOB_VARIABLES,
    KG_JOB_LEFT,  /* a kernel that was taken over: it is asked to leave what a run of before had
                     entered, which it answers when the cell of before is over */
    KG_JOB_HELPER /* what the gateway itself asks of the helper module: code is the expression */
} kg_job_kind_t;
typedef enum kg_job_step {
    KG_STEP_QUEUED,
    KG_STEP_ENTER,
    KG_STEP_MAIN,
    KG_STEP_LEAVE
} kg_job_step_t;

struct kg_job {
    kg_context_t *context;
    kg_job_kind_t kind;
    kg_job_step_t step;
    kg_run_t *run; /* RUN */
    size_t client; /* of an attached client's: what it counts for in queued_bytes; else 0 */
    kg_wait_t *wait;
    kg_buf_t code;
    size_t cursor;
    unsigned detail;
    kg_timer_t *deadline;  /* of the answer, or of a hidden request */
    kg_request_t *request; /* hidden or ask; a run's main one is the run's */
    kg_buf_t reply;        /* value that the request brought, JSON */
    bool replied;
    bool failed;  /* the expression raised: reply is {"ename","evalue"} of it */
    bool overdue; /* it took too long and was interrupted */
    kg_job_t *prev, *next;
};

void kg_job_enqueue(kg_context_t *context, kg_job_t *job);
/* Its deadline from now on: one that waits is answered busy then, one that is with the kernel
 * interrupted. -ENOMEM. */
int kg_job_arm(kg_job_t *job, uint64_t after_ns);
/* After limit_ms (0 = never) its cell is interrupted. */
void kg_job_start_left(kg_context_t *context, uint64_t limit_ms);
void kg_job_destroy(kg_job_t **job); /* takes it off the queue */
/* Starts the next job if the kernel is free; starts the kernel if there is none. */
void kg_context_pump(kg_context_t *context);
/* The current job is over. */
void kg_job_finished(kg_context_t *context);
/* The run's main request has ended (the run too, or it waits for the process): leave its env and
 * cwd, or next. */
void kg_job_main_done(kg_context_t *context);
/* The kernel is gone: ends the current job (its run has ended or does here). */
void kg_job_kernel_gone(kg_context_t *context, const kg_kernel_exit_t *exit);
/* All jobs that wait. Runs end with the cause; requests get err. */
void kg_jobs_abort(kg_context_t *context, kg_cause_t cause, bool lost, const kg_err_t *err);
/* Starts the hidden or asked request of a job that isn't a run. */
int kg_ask_start(kg_job_t *job, kg_err_t *err);
/* Has the helper module evaluate an expression, unseen, and tells what came of it. */
int kg_context_helper(kg_context_t *context,
                      kg_slice_t expression,
                      kg_context_reply_fn *done,
                      void *user,
                      kg_err_t *err);
/* The answer of a variables job, or of a helper's, came. */
void kg_variables_done(kg_job_t *job, bool alive);
/* A silent execute that evaluates one expression of the helper module; on_done -> fn. */
int kg_hidden_start(kg_job_t *job,
                    const char *expression,
                    void (*fn)(kg_job_t *job, bool alive),
                    kg_err_t *err);

/* ---- contexts ---- */

typedef enum kg_life_state {
    KG_CTX_DOWN, /* no kernel; the first use starts one */
    KG_CTX_STARTING,
    KG_CTX_READY,
    KG_CTX_ENDING, /* its kernel is being killed; a fresh one follows, or nothing */
    KG_CTX_DEAD    /* kernels failed to start; the next run tries again */
} kg_life_state_t;

struct kg_context {
    kg_core_t *core;
    kg_sandbox_t *sandbox;
    char id[KG_ID_MAX];
    char name[KG_OBJ_NAME_MAX + 1];
    const kg_tpl_language_t *lang;
    const kg_template_t *from;
    bool is_default; /* of its language */
    bool gone;       /* deleted: not found any more, waits for its kernel's end */
    bool fresh;      /* create has not answered yet: a failure removes it */
    bool no_fork;    /* its zygote did not bring a kernel about: the next is spawned */
    bool awaited;    /* the create of its sandbox waits for it */
    json_t *env;
    char *cwd;
    uint64_t created_ns;
    kg_life_state_t state;
    kg_inc_t *inc;
    unsigned failures;
    kg_err_t last_error;
    bool starved; /* last_error is a want of memory */
    kg_timer_t *backoff;
    kg_timer_t *guard;
    uint64_t execution_count;
    unsigned incarnation;
    struct {
        bool known, signaled, lost, oom;
        int number; /* code or signal */
        uint64_t at_ns;
    } last_exit;
    kg_job_t *jobs; /* waiting */
    kg_job_t *current;
    unsigned queued_runs;
    unsigned queued_clients; /* of them, which attached clients asked for, */
    size_t queued_bytes;     /* and their code, headers, metadata, user_expressions */
    kg_displays_t *displays;
    kg_kernel_memo_t
        *memo;          /* the kernel of an earlier gateway, until it is known whether it lives */
    kg_run_t *left_run; /* with memo: its latest, or NULL */
    bool left_cell;     /* that was under way, and may still be */
    uint64_t kernel_since_ns;  /* wall clock: runs that were made since then are this kernel's */
    uint64_t saved_count;      /* of execution_count */
    kg_wait_t *ready_waits;    /* create, reset */
    kg_wait_t *gone_wait;      /* delete */
    kg_bridge_t *bridge;       /* attach.c; NULL: nobody ever was attached */
    kg_context_t *prev, *next; /* of the sandbox */
    UT_hash_handle hh;         /* all of the core, by id */
};

/* The object alone; its kernel starts with kg_context_start. */
int kg_context_make(kg_sandbox_t *sandbox,
                    const kg_context_opts_t *opts,
                    bool is_default, /* of its language */
                    kg_context_t **ret_context,
                    kg_err_t *err);
kg_context_t *kg_context_alloc(kg_sandbox_t *sandbox, const char *id);
void kg_context_free(kg_context_t *context);
int kg_context_save(kg_context_t *context, kg_err_t *err);
kg_context_t *kg_context_default(kg_sandbox_t *sandbox, const kg_tpl_language_t *lang);
bool kg_context_running(const kg_context_t *context); /* a run is in flight */
const char *kg_context_state_name(const kg_context_t *context);
/* Language and template of a fresh or recovered context. */
void kg_context_start(kg_context_t *context);
/* The sandbox is up (err NULL) or could not be brought up. */
void kg_context_box_ready(kg_context_t *context, const kg_err_t *err);
void kg_context_start_failed(kg_context_t *context, const kg_err_t *err);
/* How its kernel has ended; NULL: that is not known. */
void kg_context_note_exit(kg_context_t *context, const kg_kernel_exit_t *exit);
void kg_context_fail_waits(kg_context_t *context, const kg_err_t *err);
void kg_context_fail_jobs(kg_context_t *context, const kg_err_t *err);
/* Kills the kernel; the running run ends by cause, a fresh kernel follows unless gone. */
void kg_context_end_kernel(kg_context_t *context, kg_cause_t cause);
/* Removes it: runs end by cause, then its kernel; then it is freed. */
void kg_context_remove(kg_context_t *context, kg_cause_t cause);
int kg_context_dir(const kg_context_t *context, const char *cwd, char ret[KG_SBX_PATH_MAX]);
int kg_cwd_check(const char *cwd, kg_err_t *err);
int kg_obj_name_check(const char *name, kg_err_t *err);

/* ---- kernels that outlive the gateway: adopt_kernel.c ---- */

json_t *kg_kernel_record(const kg_context_t *context); /* NULL: there is none */
/* Of a whole record of a context, before it is freed: the kernel's key. */
void kg_kernel_record_wipe(json_t *body);
void kg_kernel_record_load(kg_context_t *context, json_t *record);
void kg_kernel_record_begin(kg_context_t *context); /* a fresh kernel is ready */
void kg_kernel_records_tick(kg_core_t *core);       /* each KG_LEDGER_S: counts */
void kg_kernels_recovered(kg_sandbox_t *sandbox);   /* its runs are loaded */
/* Whether this run of an earlier gateway ends when the fate of its kernel is known. */
bool kg_kernel_awaits_verdict(const kg_run_t *run);
bool kg_kernel_may_live(const kg_sandbox_t *sandbox, uint64_t token);
void kg_kernels_look(kg_sandbox_t *sandbox); /* its place was found */
void kg_kernels_lost(kg_sandbox_t *sandbox); /* it was not */
/* Lives it, with its variables? Once; runs of before end by it. */
void kg_kernel_verdict(kg_context_t *context, bool kept);
void kg_kernel_memo_drop(kg_context_t *context); /* without a verdict */
void kg_kernels_pause_again(kg_sandbox_t *sandbox);
void kg_kernels_stay_awake(kg_sandbox_t *sandbox); /* it was asked for: no pause follows */

/* ---- one kernel of a context: an incarnation ---- */

typedef struct kg_item kg_item_t;
/* What outlives a core that is destroyed with kernels in it: the sandbox goes when its last kernel
 * is closed. */
typedef struct kg_grave {
    kg_sbx_t *sbx;
    unsigned incs;
} kg_grave_t;

struct kg_inc {
    kg_context_t *context; /* NULL once the context let go of it */
    kg_sandbox_t *sandbox; /* NULL once the core was destroyed; then grave */
    kg_grave_t *grave;
    kg_core_t *core; /* likewise */
    kg_kernel_t *kernel;
    kg_meter_t meter; /* of its process */
    uint64_t ready_ns;
    uint64_t oom_before;          /* kg_box_oom_kills when it was started */
    bool forked;                  /* by a zygote */
    bool adopting;                /* the kernel of an earlier gateway, not answered yet */
    bool ran;                     /* a run of a client was started in it */
    bool starved;                 /* a run of it ended for want of memory, with it */
    kg_run_t *held[KG_HELD_RUNS]; /* ended, newest last */
    size_t held_count;
    kg_run_t *left;   /* the latest of an earlier gateway's runs in it, or NULL: a reference */
    uint64_t dropped; /* messages of earlier runs that no log takes */
    kg_item_t *items; /* what came while something bigger is being applied, in order */
    kg_timer_t *pump;
    kg_utf8_stream_t streams[2];
    char voice[KG_MSG_ID_MAX]; /* session of the kernel's messages; "" before the first */
    kg_buf_t info;             /* its kernel_info_reply's content, canonical; empty: not known */
    struct kg_subshells *subshells; /* attach_subshell.c; NULL: none yet */
    kg_inc_t *prev, *next;          /* of the core */
};

int kg_inc_start(kg_context_t *context, kg_err_t *err);
/* The context is done with it: requests are released, the process killed if it lives. Freed when
 * all is closed. */
void kg_inc_close(kg_inc_t **inc);
/* Sends the run's code; kg_run_sent follows, when it had to wait for the interrupt of the run
 * before. */
int kg_inc_execute(kg_inc_t *inc, kg_run_t *run, kg_err_t *err);
void kg_inc_hold(kg_inc_t *inc, kg_run_t *run);
void kg_kernel_adopted(kg_inc_t *inc); /* adopt_kernel.c */
void kg_kernel_not_adopted(kg_inc_t *inc, const kg_err_t *why);

/* ---- the core ---- */

typedef struct kg_later_item {
    kg_fn *fn;
    void *user;
    struct kg_later_item *next;
} kg_later_item_t;

/* Owned by the worker's queue, so that it outlives the core. */
typedef struct kg_spare_job {
    kg_core_t *core; /* NULL once it was destroyed */
    kg_run_spare_work_t work;
} kg_spare_job_t;

struct kg_core {
    kg_loop_t *loop;
    kg_keeper_t *keeper;
    kg_store_t *store;
    kg_core_config_t config;
    kg_env_t sandbox_env; /* the operator's, of every process in every sandbox */
    char *strings[5];     /* config's copies */
    kg_node_t node;
    kg_templates_t templates;
    kg_sandbox_t *sandboxes;
    kg_context_t *contexts;
    kg_run_table_t runs;
    kg_inc_t *incs;
    kg_wait_t *waits;
    kg_opts_t *opts;
    kg_zygote_t *zygotes;
    kg_zygote_failure_t *zygote_failures; /* for whom none is started for a while */
    kg_later_item_t *later;
    kg_timer_t *later_timer;
    kg_timer_t *flush_timer; /* for logs whose flush waits */
    kg_timer_t *tick;
    kg_heap_t heap;
    kg_manners_t manners; /* of the loop's thread */
    kg_timer_t *drain_timer;
    kg_hook_t hook;
    kg_run_t *dirty;
    kg_run_budget_t *budget;
    kg_run_packs_t *packs;   /* files for the logs of short runs */
    kg_run_spares_t *spares; /* files for the others, made ahead by a worker */
    kg_workq_t *spare_work;
    kg_spare_job_t *spare_job; /* under way */
    bool refill_due; /* of the spares, once what the logs tell is on its way to the clients */
    int logs_fd;
    int connections_fd; /* STATE/connections, their files; -1: not made */
    int channels_fd;    /* STATE/channels, their sockets; likewise */
    unsigned connection_count;
    unsigned ticks;
    bool keeper_ready;
    bool keeper_lost;
    bool draining;
    bool drain_over; /* the grace has passed, or nothing ran any more */
    bool drained;
    bool destroying;
    uint64_t drain_deadline_ns;
    kg_fn *drain_done;
    void *drain_user;
    uint64_t last_created_ns;
    size_t orphan_logs; /* that a restart found without their sandbox */
    unsigned skipped;   /* sandboxes of the store that can't be used now; their logs stay too */
    kg_core_stats_t stats;
    struct kg_fsop *fsops; /* files_priv.h */
    struct kg_upload *uploads;
    struct kg_away *all_away; /* attach_away.c: clients that are away, */
    size_t away_bytes;        /* and what is kept for them */
    kg_expose_base_t expose;
    struct kg_connection *connections; /* connect_internal.h */
    kg_pools_t *pools;                 /* NULL: none */
    kg_timer_t *pool_timer;
    bool pool_soon;     /* it runs */
    unsigned hidden;    /* sandboxes of pools, those that end too */
    bool pools_relaxed; /* this host did not hold all that a member should have been held to */
    struct kg_gave_way {
        char network[KG_WISH_REASON_MAX], limits[KG_WISH_REASON_MAX];
    } gave_way[8]; /* what the log has told, wish.c */
    unsigned gave_way_count;
};

/* Has a worker make a file if there is one too few. */
/* Has a worker make files for logs and clear away those of logs that went, when it is worth it;
 * with tidy also the last few. */
void kg_core_refill(kg_core_t *core, bool tidy);
uint64_t kg_core_stamp(kg_core_t *core); /* wall clock, each value once */
void kg_core_tick_start(kg_core_t *core);
void kg_core_drain_check(kg_core_t *core);
int kg_core_recover(kg_core_t *core, kg_err_t *err);
void kg_core_tick(void *user);

/* ---- small things ---- */

static inline uint64_t kg_ms(uint64_t ms)
{
    return ms * KG_NS_PER_MS;
}
int kg_oom(kg_err_t *err);
int kg_bad(kg_err_t *err, const char *pointer, const char *fmt, ...) KG_PRINTF(3, 4);
json_t *kg_json_time(uint64_t wall_ns); /* a string, or null for 0 */

#endif
