/* Inner header of the keeper: its one object and what its files give each other. Single thread, one
 * poll loop. */
#ifndef KG_SANDBOX_KEEPER_H
#define KG_SANDBOX_KEEPER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/base/err.h"
#include "gateway/sandbox/keeper_proto.h"
#include "gateway/sandbox/launcher.h"
#include "gateway/sandbox/trim_timer.h"

#define KEEPER_SLOTS_MAX 32768
#define KEEPER_UID_BASE_DEFAULT                                                                    \
    1879048192U /* 0x70000000: above what distributions and subuid files hand out */
#define KEEPER_UID_COUNT_DEFAULT (UINT64_C(4096) * KG_UID_RANGE)
#define KEEPER_ZYGOTE_SLOTS                                                                        \
    128                        /* ranges of a zygote: its own, and those of its children; at most */
#define KEEPER_ZYGOTE_SHARE 8  /* of all that there are, the eighth part */
#define KEEPER_ZYGOTES_SHARE 2 /* of all zygotes together, the half */
#define KEEPER_OUT_MAX 64      /* frames that wait for the gateway; above it no request is read */
#define KEEPER_KILL_DEADLINE_NS (UINT64_C(10) * 1000000000)
#define KEEPER_KILL_STEP_NS (UINT64_C(2) * 1000000)
#define KEEPER_KILL_SLOW_NS (UINT64_C(200) * 1000000) /* the longest between two steps */
#define KEEPER_ADOPT_S 10 /* for a sandal-init of an earlier keeper to answer */
#define KEEPER_ROOTS_MAX 32
#define KEEPER_SHOWN_MAX 64
#define KEEPER_NICE (-10)
#define KEEPER_NEVER UINT64_MAX

typedef struct kg_keeper_opts {
    const char *gateway_exe;
    const char *init_exe;
    const char *state_dir;
    const char *runtime_dir;
    const char *gateway_user; /* "" = the keeper's own */
    uint64_t uid_base;
    uint64_t uid_count;
    uint64_t stop_timeout_s;
    uint64_t create_timeout_s; /* for a launcher to make a sandbox */
    uint64_t orphan_timeout_s; /* how long sandal-inits live on without a keeper */
    bool prepare; /* volumes and networks at the start, else when the first sandbox needs them */
    uint32_t net_allow_count;
    kg_net_rule_t net_allow[KG_NET_ALLOW_MAX];
    kg_root_t *roots; /* root_count of KEEPER_ROOTS_MAX; static */
    size_t root_count;
    const char **shown; /* shown_count of KEEPER_SHOWN_MAX; static */
    size_t shown_count;
    const char *volumes_backend; /* "auto" or a name */
    uint64_t volumes_bytes;
    bool serve_fd3; /* no gateway of its own: serves the socket that it got as fd 3 until it ends */
    char **gateway_argv;
} kg_keeper_opts_t;

typedef enum kg_slot_use {
    KG_SLOT_FREE,
    KG_SLOT_TAKEN,
    KG_SLOT_KEPT,   /* for a sandbox below the zygote in whose range it is */
    KG_SLOT_FOREIGN /* processes that no sandbox here knows had its uids when this keeper began */
} kg_slot_use_t;

/* A sandbox in the keeper's table. */
typedef struct kg_sb {
    struct kg_sb *next;
    char id[KG_KP_ID_MAX];
    kg_kp_state_t state;
    const kg_launcher_t *launcher; /* NULL: files of an unknown past */
    uint32_t slot;
    uint32_t slots;            /* from there on; more than one: it is a zygote */
    char zygote[KG_KP_ID_MAX]; /* of the one that it lies in, "" = none: they end together */
    bool retired;              /* a zygote that ends with the last sandbox in it */
    uid_t base;                /* first of its range; rootless our own */
    uid_t uid;                 /* of its user code */
    gid_t gid;
    pid_t init_pid; /* 0 once it has ended */
    uint64_t init_start;
    int init_pidfd;   /* of one that isn't our child, else -1 */
    pid_t worker_pid; /* killer or remover at work, 0 = none */
    int control_fd;   /* its sandal-init's life line */
    kg_launched_t launched;
    char template_name[KG_KP_TEMPLATE_MAX];
    bool paused;
    bool workers_clean; /* the last killer found nothing more, nor was there a stray before it */
    bool strays_before;
    bool end_asked;    /* while it is made: to be ended as soon as that is over */
    bool orphaned;     /* nobody will ask for it any more: it becomes dormant when it has ended */
    bool kill_asked;   /* by the gateway: reply when done */
    bool replied;      /* already said that it won't die in time */
    bool remove_files; /* nothing of it stays */
    bool worker_keeps; /* but the remover at work was not told so */
    bool make_failed;  /* the create gets its answer when all is given back */
    uint32_t make_seq;
    kg_err_t make_err;
    uint32_t kill_seq;
    uint64_t ending_since_ns;
    uint64_t next_step_ns;
    uint64_t step_gap_ns; /* grows while it doesn't end */
} kg_sb_t;

typedef enum kg_errand_kind {
    KG_ERRAND_CREATE,
    KG_ERRAND_ATTACH,
    KG_ERRAND_ADOPT,
    KG_ERRAND_NETWORK,
    KG_ERRAND_NET_LOG,
    KG_ERRAND_PRESS, /* nobody waits for it */
    KG_ERRAND_TRIM,  /* of no sandbox */
} kg_errand_kind_t;

/* What a worker does that may block, while the keeper goes on. Its answer comes over a socket. */
typedef struct kg_errand {
    struct kg_errand *next;
    kg_errand_kind_t kind;
    char id[KG_KP_ID_MAX]; /* "" = of no sandbox */
    pid_t pid;
    int sock; /* -1 when it has answered or ended */
    uint32_t seq;
    bool mute; /* the gateway that asked is gone */
    bool overdue;
    bool broken; /* ended without an answer */
    uint64_t deadline_ns;
} kg_errand_t;

#define KEEPER_ANSWER_FDS 2

/* Between worker and keeper: the same program. */
typedef struct kg_answer {
    int32_t failed; /* err holds */
    kg_err_t err;
    kg_launched_t launched; /* CREATE */
    uint64_t init_start;
    union {
        kg_kp_net_log_reply_t net_log; /* NET_LOG */
        kg_trimmed_t trimmed;          /* TRIM */
    } reply;
} kg_answer_t;

/* What is on the disk of a sandbox, so that a later keeper finds it. */
typedef struct kg_record {
    uint32_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t state; /* DORMANT, MAKING, RUNNING */
    char id[KG_KP_ID_MAX];
    char launcher[KG_KP_LAUNCHER_MAX];
    char template_name[KG_KP_TEMPLATE_MAX];
    uint32_t base;
    uint32_t slots;
    char zygote[KG_KP_ID_MAX];
    uint32_t remove_files; /* of MAKING: nothing of it was there before */
    uint32_t slot;         /* as root base tells too */
    uint32_t zero;
    uint64_t init_start;
    char boot[40]; /* pids and start times are of this boot */
    kg_launched_t launched;
} kg_record_t;

typedef struct kg_out {
    struct kg_out *next;
    int fds[KEEPER_ANSWER_FDS]; /* to be passed, or -1 */
    size_t size;
    kg_kp_reply_t reply;
} kg_out_t;

typedef struct kg_keeper {
    kg_keeper_opts_t opts;
    kg_host_t host;
    int signal_fd;
    int range_fd;     /* locked: the uids are ours */
    bool dirs_held;   /* locked: the state and the runtime directory are ours */
    int gateway_sock; /* -1 between gateways */
    pid_t gateway_pid;
    uid_t gateway_uid; /* 0 = no change */
    gid_t gateway_gid;
    bool hello_done;
    bool stopping;
    bool gateway_done; /* it won't be started again */
    bool leaving;      /* and what lives stays, for the next keeper */
    int exit_code;
    uint64_t kill_gateway_ns; /* stop deadline, KEEPER_NEVER */
    uint64_t restart_ns;      /* when to start the gateway again, KEEPER_NEVER */
    uint64_t restarts[5];     /* times of the last ones, ring */
    unsigned restart_count;
    uint64_t refused;
    kg_sb_t *sandboxes;
    uint32_t sandbox_count;
    unsigned char *slot_used; /* one byte a slot, kg_slot_use_t */
    uint32_t slot_hint;
    kg_errand_t *errands;
    kg_trim_timer_t trim;
    bool volumes_open;
    bool nets_open; /* looked for */
    char boot[40];
    kg_out_t *out_first;
    kg_out_t **out_last;
    unsigned out_count;
} kg_keeper_t;

/* keeper_opts.c: prints to stderr what is wrong. 0, 1 (help printed), -EINVAL. */
int keeper_opts_parse(int argc, char **argv, kg_keeper_opts_t *ret_opts);

/* keeper_table.c */
kg_sb_t *keeper_find(kg_keeper_t *k, const char *id);
kg_sb_t *keeper_find_init(kg_keeper_t *k, pid_t init_pid);
kg_sb_t *keeper_find_worker(kg_keeper_t *k, pid_t worker_pid);
/* Adds an entry with a slot of its own (or the given one). -EDQUOT no slot free, -EBUSY slot taken,
 * -ENOMEM. */
int keeper_add(kg_keeper_t *k, const char *id, kg_sb_t **ret_sb);
int keeper_add_at(kg_keeper_t *k, const char *id, uint32_t slot, kg_sb_t **ret_sb);
/* With slots behind its own for the sandboxes below it. */
int keeper_add_zygote(kg_keeper_t *k, const char *id, kg_sb_t **ret_sb);
/* With one of those; -EDQUOT: all are taken. */
int keeper_add_below(kg_keeper_t *k, const char *id, const kg_sb_t *zygote, kg_sb_t **ret_sb);
/* Makes the one that was added a zygote with so many slots again; -ERANGE. */
int keeper_make_zygote(kg_keeper_t *k, kg_sb_t *sb, uint32_t slots);
/* Any that lives in it, or is being made there. */
bool keeper_has_children(const kg_keeper_t *k, const kg_sb_t *zygote);
void keeper_drop(kg_keeper_t *k, kg_sb_t *sb);
/* Slot of an owner's uid; -ERANGE when it isn't one that a sandbox of ours can have. */
int keeper_slot_of(const kg_keeper_t *k, uid_t uid, uint32_t *ret_slot);
/* Takes the directories of earlier lives into the table, so that no new sandbox gets their uids. */
int keeper_adopt_dirs(kg_keeper_t *k);
/* Run directories that a killed keeper left behind: sockets and connection files of nobody. */
void keeper_clear_runtime(kg_keeper_t *k);

/* keeper_record.c: STATE/sandboxes/ID.rec */
int keeper_record_write(const kg_keeper_t *k, const kg_sb_t *sb);
void keeper_record_remove(const kg_keeper_t *k, const char *id);
/* -EBADMSG when it isn't one of ours, or of another id. */
int keeper_record_read(const kg_keeper_t *k, const char *id, kg_record_t *ret);
/* The id of a record's file name. */
bool keeper_record_id(const char *name, char ret_id[KG_KP_ID_MAX]);

/* keeper_adopt.c: what records tell of: what lives is taken over, what doesn't is given back. */
int keeper_adopt(kg_keeper_t *k);
/* Whether any sandbox of an earlier keeper lives: for a start that failed, before or after
 * keeper_adopt. */
bool keeper_others_live(kg_keeper_t *k);
bool keeper_adopting(const kg_keeper_t *k);
void keeper_adopt_answered(kg_keeper_t *k, kg_sb_t *sb, const kg_answer_t *answer, int *life);

/* keeper_host.c: prints to stderr what is wrong. */
int keeper_host_open(kg_keeper_t *k);
void keeper_host_close(kg_keeper_t *k);
int keeper_volumes_open(kg_keeper_t *k, kg_err_t *err); /* once; may take a second */
/* Likewise; host.nets tells. Later: starts what of them has ended and could not be started then. */
void keeper_nets_open(kg_keeper_t *k);
void keeper_nets_revive(kg_keeper_t *k, int status); /* the helper ended by itself, with that */

/* keeper_errand.c */
/* Forks a worker that runs fn and sends what it answers with up to two descriptors (-1 = none).
 * sb: NULL where it is for none. */
typedef void kg_errand_fn(kg_keeper_t *k,
                          kg_sb_t *sb,
                          const kg_kp_request_t *request,
                          kg_answer_t *ret_answer,
                          int ret_fds[KEEPER_ANSWER_FDS]);
int keeper_errand_start(kg_keeper_t *k,
                        kg_sb_t *sb,
                        kg_errand_kind_t kind,
                        const kg_kp_request_t *request,
                        uint64_t limit_s,
                        kg_errand_fn *fn);
kg_errand_t *keeper_errand_of(kg_keeper_t *k, pid_t pid);
/* Ends those of a kind that work for a sandbox. */
void keeper_errands_stop(kg_keeper_t *k, const char *id, kg_errand_kind_t kind);
bool keeper_errand_at(const kg_keeper_t *k, kg_errand_kind_t kind); /* any of that kind at work */
void keeper_errands_read(kg_keeper_t *k); /* takes the answers that are there */
void keeper_errand_exited(kg_keeper_t *k, kg_errand_t *errand);
void keeper_errands_mute(kg_keeper_t *k); /* their gateway is gone */
void keeper_errands_cancel(kg_keeper_t *k, const char *id);
uint64_t keeper_errands_step(kg_keeper_t *k, uint64_t now_ns);

/* keeper_make.c: creates, and connections to what was created. */
void keeper_create(kg_keeper_t *k, const kg_kp_create_t *request);
void keeper_attach(kg_keeper_t *k, const kg_kp_one_t *request);
void keeper_create_answered(
    kg_keeper_t *k, const kg_errand_t *errand, const kg_answer_t *answer, int *life, int *gateway);
void keeper_attach_answered(kg_keeper_t *k,
                            const kg_errand_t *errand,
                            const kg_answer_t *answer,
                            int *gateway);
/* The worker is gone and has made nothing. */
void keeper_create_failed(kg_keeper_t *k, const kg_errand_t *errand, const kg_err_t *err);
void keeper_create_reply_failed(kg_keeper_t *k, kg_sb_t *sb);
/* In a worker: a connection of the given role; fd or -errno. */
int keeper_dial(const kg_keeper_t *k, const kg_sb_t *sb, pid_t init_pid, bool life);

/* keeper_ask.c: what else can be asked of one that runs. */
void keeper_pause(kg_keeper_t *k, const kg_kp_one_t *request, bool frozen);
void keeper_usage(kg_keeper_t *k, const kg_kp_one_t *request);
void keeper_hold(kg_keeper_t *k, const kg_kp_hold_t *request);
void keeper_network(kg_keeper_t *k, const kg_kp_request_t *request);
void keeper_features(kg_keeper_t *k, uint32_t seq);
void keeper_network_answered(kg_keeper_t *k, const kg_errand_t *errand, const kg_answer_t *answer);
void keeper_press_exited(kg_keeper_t *k, const kg_errand_t *errand);

/* keeper_trim.c */
void keeper_trim_deleted(kg_keeper_t *k); /* files of a sandbox are gone */
/* Begins a trim when it is due; returns when to call again. */
uint64_t keeper_trim_step(kg_keeper_t *k, uint64_t now_ns);
void keeper_trim_answered(kg_keeper_t *k, const kg_answer_t *answer);

/* keeper_requests.c */
void keeper_read_requests(kg_keeper_t *k);
void keeper_status_set(kg_kp_status_t *status, const kg_err_t *err);
void keeper_kill_reply(kg_keeper_t *k, kg_sb_t *sb, kg_err_code_t code, const char *message);

/* keeper_dirs.c: takes the state directory, the uid range and the runtime directory, in this order.
 * Says on stderr why not; then nothing of them has been made or changed. */
int keeper_open_dirs(kg_keeper_t *k);

/* keeper_range.c: refuses a uid range that another keeper of this machine has. */
int keeper_claim_range(kg_keeper_t *k);

/* keeper_out.c: takes fd (or -1); queues when the gateway doesn't read. */
void keeper_send(kg_keeper_t *k, const kg_kp_reply_t *reply, int fd_take);
/* With a second one (or -1) after the first. */
void keeper_send_both(kg_keeper_t *k, const kg_kp_reply_t *reply, int fd_take, int second_take);
void keeper_flush(kg_keeper_t *k);
void keeper_out_clear(kg_keeper_t *k);

/* keeper_end.c */
void keeper_end_sandbox(kg_keeper_t *k, kg_sb_t *sb);
void keeper_end_all(kg_keeper_t *k);
/* Next moves of everything that is ending; returns when to call again. */
uint64_t keeper_end_step(kg_keeper_t *k, uint64_t now_ns);
bool keeper_all_ended(const kg_keeper_t *k);
void keeper_init_exited(kg_keeper_t *k, kg_sb_t *sb, int wait_status);
/* From one that is to be made: init_pid 0, files to be removed or not as set. */
void keeper_give_back(kg_keeper_t *k, kg_sb_t *sb);
void keeper_worker_exited(kg_keeper_t *k, kg_sb_t *sb, int wait_status);
/* A fork of the keeper that has nothing of it but the descriptors named and its niceness: what it
 * starts for a sandbox has the usual policy (priority.h). 0 in the child. */
pid_t keeper_fork_worker(const int *keep, size_t keep_count);

/* keeper_gateway.c */
int keeper_gateway_start(kg_keeper_t *k);
void keeper_gateway_exited(kg_keeper_t *k, int wait_status);
/* The socket broke or ended; in serving mode that is the end. */
void keeper_gateway_lost(kg_keeper_t *k);
void keeper_stop(kg_keeper_t *k);
uint64_t keeper_gateway_step(kg_keeper_t *k, uint64_t now_ns);

#endif
