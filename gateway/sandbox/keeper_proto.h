/* Frames between gateway and keeper: fixed-size structs of fixed-width fields, one SEQPACKET
 * message each. Both sides are the same build on the same machine; magic, version, size and every
 * field are checked all the same. Pure. */
#ifndef KG_SANDBOX_KEEPER_PROTO_H
#define KG_SANDBOX_KEEPER_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/sandbox/limits.h"
#include "gateway/sandbox/net.h"

#define KG_KP_MAGIC UINT32_C(0x4b504731)
#define KG_KP_VERSION 5
#define KG_KP_ID_MAX 48
#define KG_KP_LAUNCHER_MAX 24
#define KG_KP_PATH_MAX 256
#define KG_KP_TEMPLATE_MAX 64
#define KG_KP_LAUNCHERS 8
#define KG_KP_LIST_ROWS 32
#define KG_KP_FEATURES 24
#define KG_KP_DENIED_ROWS 64

typedef enum kg_kp_verb {
    KG_KP_HELLO = 1,
    KG_KP_CREATE = 2,
    KG_KP_KILL = 3,
    KG_KP_LIST = 4,
    KG_KP_LAUNCHER_TABLE = 5,
    KG_KP_ATTACH = 6,
    KG_KP_PAUSE = 7,
    KG_KP_RESUME = 8,
    KG_KP_USAGE = 9,
    KG_KP_NETWORK = 10,
    KG_KP_NET_LOG = 11,
    KG_KP_FEATURE_TABLE = 12,
    KG_KP_HOLD = 13,
    KG_KP_EXIT = 100,    /* event, keeper to gateway */
    KG_KP_REFUSED = 101, /* event: a frame that could not be read; seq as far as known */
} kg_kp_verb_t;

typedef struct kg_kp_head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint32_t size; /* of the whole frame */
    uint32_t seq;  /* chosen by the gateway, echoed; 0 in events */
} kg_kp_head_t;

#define KG_KP_CREATE_REUSE UINT32_C(1) /* the directories may be there from before */
#define KG_KP_CREATE_ZYGOTE                                                                        \
    UINT32_C(2) /* its range of ids has room for the sandboxes that are made below it */
#define KG_KP_KILL_KEEP UINT32_C(1) /* workspace and home stay */

/* HELLO, LAUNCHER_TABLE, FEATURE_TABLE are a head alone. */
typedef struct kg_kp_create {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    char launcher[KG_KP_LAUNCHER_MAX];
    char template_name[KG_KP_TEMPLATE_MAX]; /* a root of the keeper's; "" = the host's */
    char zygote[KG_KP_ID_MAX]; /* a sandbox made with CREATE_ZYGOTE, of the same template, whose
                                  processes can join this one; "" = none */
    uint32_t flags;
    uint32_t zero;
    kg_limits_t limits; /* those that a launcher can't hold are refused */
    kg_net_wish_t network;
} kg_kp_create_t;

typedef struct kg_kp_kill {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    uint32_t flags;
    uint32_t zero;
} kg_kp_kill_t;

typedef struct kg_kp_one { /* ATTACH, PAUSE, RESUME, USAGE */
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
} kg_kp_one_t;

typedef struct kg_kp_network {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    kg_net_wish_t network;
} kg_kp_network_t;

/* Other limits for one that lives: those of memory, cpu and pids that are not 0; and its share of
 * the cpu beside others. */
typedef struct kg_kp_hold {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    kg_limits_t limits;
    uint32_t share; /* per cent of a usual one's: KG_SHARE_MIN to KG_SHARE_MAX */
    uint32_t zero;
} kg_kp_hold_t;

typedef struct kg_kp_net_log {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    uint64_t cursor; /* 0 = the oldest kept */
} kg_kp_net_log_t;

typedef struct kg_kp_list {
    kg_kp_head_t head;
    uint32_t from; /* index of the first row wanted */
    uint32_t zero;
} kg_kp_list_t;

typedef union kg_kp_request {
    kg_kp_head_t head;
    kg_kp_create_t create;
    kg_kp_kill_t kill;
    kg_kp_list_t list;
    kg_kp_one_t one;
    kg_kp_network_t network;
    kg_kp_hold_t hold;
    kg_kp_net_log_t net_log;
} kg_kp_request_t;

/* code is a kg_err_code_t, 0 = done. */
typedef struct kg_kp_status {
    uint32_t code;
    char message[252];
    char hint[160];
} kg_kp_status_t;

typedef struct kg_kp_hello_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    int32_t keeper_pid;
    uint32_t is_root;
} kg_kp_hello_reply_t;

#define KG_KP_OWN_ROOT UINT32_C(1) /* it has a mount namespace */
#define KG_KP_HAS_ROOT UINT32_C(2) /* it has a root user of its own */

typedef struct kg_kp_create_reply { /* to CREATE and ATTACH; when status.code is 0 with a
                                       descriptor, a connection to sandal-init, and where the
                                       kernel counts what it kills for want of memory, a second
                                       one, the file of that count */
    kg_kp_head_t head;
    kg_kp_status_t status;
    uint32_t slot;
    uint32_t uid;
    uint32_t gid;
    int32_t init_pid;
    uint32_t flags;
    uint32_t children;             /* of a zygote: how many sandboxes there can be below it */
    kg_isolation_info_t isolation; /* kind: the launcher's name */
    char workspace[KG_KP_PATH_MAX];
    char home[KG_KP_PATH_MAX];
    char run_dir[KG_KP_PATH_MAX];
} kg_kp_create_reply_t;

typedef struct kg_kp_kill_reply { /* KILL, PAUSE (status 0: its message tells why the memory stays,
                                     "" = it is pressed out), RESUME, NETWORK, HOLD, REFUSED */
    kg_kp_head_t head;
    kg_kp_status_t status;
} kg_kp_kill_reply_t;

typedef struct kg_kp_usage_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    kg_box_usage_t usage;
} kg_kp_usage_reply_t;

typedef struct kg_kp_net_log_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    uint64_t cursor; /* for the next request */
    uint64_t lost;
    uint32_t count;
    uint32_t zero;
    kg_net_denied_t rows[KG_KP_DENIED_ROWS];
} kg_kp_net_log_reply_t;

/* What this host can hold, for people: "memory", "pids", "disk", "egress" … */
typedef struct kg_kp_feature_row {
    char name[24];
    uint32_t available;
    uint32_t zero;
    char how[16];     /* "v2", "btrfs" …; "" when it isn't there */
    char reason[160]; /* why not, or a remark */
} kg_kp_feature_row_t;

typedef struct kg_kp_features_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    uint32_t count;
    uint32_t zero;
    kg_kp_feature_row_t rows[KG_KP_FEATURES];
} kg_kp_features_reply_t;

typedef enum kg_kp_state {
    KG_KP_DORMANT, /* only its files are there */
    KG_KP_MAKING,  /* a worker makes or finds it */
    KG_KP_RUNNING,
    KG_KP_ENDING,   /* being killed */
    KG_KP_DEAD,     /* nothing lives; waits for the gateway's KILL */
    KG_KP_REMOVING, /* what it had is being given back */
    KG_KP_STATES
} kg_kp_state_t;

typedef struct kg_kp_list_row {
    char id[KG_KP_ID_MAX];
    uint32_t slot;
    uint32_t uid;
    int32_t init_pid;                  /* 0 = not running: only its directories are there */
    uint32_t state;                    /* kg_kp_state_t */
    char launcher[KG_KP_LAUNCHER_MAX]; /* "" = not known */
    char template_name[KG_KP_TEMPLATE_MAX];
    uint32_t is_zygote;
    uint32_t zero;
} kg_kp_list_row_t;

typedef struct kg_kp_list_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    uint32_t total;
    uint32_t count;
    kg_kp_list_row_t rows[KG_KP_LIST_ROWS];
} kg_kp_list_reply_t;

typedef struct kg_kp_launcher_row {
    char name[KG_KP_LAUNCHER_MAX];
    uint32_t rank;
    uint32_t available;
    char reason[160];
    uint32_t pauses; /* a sandbox of it can be paused on this host */
    uint32_t zero;
    char pauses_not[160]; /* why not */
} kg_kp_launcher_row_t;

typedef struct kg_kp_launchers_reply {
    kg_kp_head_t head;
    kg_kp_status_t status;
    uint32_t count;
    uint32_t zero;
    kg_kp_launcher_row_t rows[KG_KP_LAUNCHERS];
} kg_kp_launchers_reply_t;

typedef struct kg_kp_exit_event {
    kg_kp_head_t head;
    char id[KG_KP_ID_MAX];
    int32_t wait_status; /* of sandal-init */
    uint32_t zero;
} kg_kp_exit_event_t;

typedef union kg_kp_reply {
    kg_kp_head_t head;
    kg_kp_hello_reply_t hello;
    kg_kp_create_reply_t create;
    kg_kp_kill_reply_t kill;
    kg_kp_list_reply_t list;
    kg_kp_launchers_reply_t launchers;
    kg_kp_usage_reply_t usage;
    kg_kp_net_log_reply_t net_log;
    kg_kp_features_reply_t features;
    kg_kp_exit_event_t exit;
    kg_kp_kill_reply_t refused;
} kg_kp_reply_t;

/* Zeroes the union and fills the head for verb; size is the frame's. Returns that size, 0 for an
 * unknown verb. */
size_t kg_kp_request_init(kg_kp_request_t *request, kg_kp_verb_t verb, uint32_t seq);
size_t kg_kp_reply_init(kg_kp_reply_t *reply, kg_kp_verb_t verb, uint32_t seq);
/* Checks everything that can be checked without state; strings are NUL-terminated and sane
 * afterwards. 0, -EBADMSG (not a frame of ours, or a field out of its range), -EPROTO (another
 * version), -ENOSYS (unknown verb). On -ENOSYS and on a bad field *ret_seq is set, so that the
 * refusal can be matched. */
int kg_kp_request_decode(const void *data,
                         size_t len,
                         kg_kp_request_t *ret_request,
                         uint32_t *ret_seq);
int kg_kp_reply_decode(const void *data, size_t len, kg_kp_reply_t *ret_reply);
/* The status of a reply, NULL for EXIT. Borrowed. */
const kg_kp_status_t *kg_kp_reply_status(const kg_kp_reply_t *reply);
/* "sbx-" and 4 to 40 more of [a-z0-9-]: one path component, never dots. */
bool kg_kp_id_valid(const char *id);

#endif
