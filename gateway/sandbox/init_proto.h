/* Frames between gateway and sandal-init: a fixed head and body, then a bounded tail of bytes
 * (strings, paths, file content, entries); one SEQPACKET message each. Neither side trusts the
 * other: the gateway may be taken over, and so may a sandbox without a pid namespace. Pure, no
 * allocation, no libraries. */
#ifndef KG_SANDBOX_INIT_PROTO_H
#define KG_SANDBOX_INIT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_IP_MAGIC UINT32_C(0x4b494731)
#define KG_IP_VERSION 4
#define KG_IP_NAME_MAX 65       /* a name in the run directory, with NUL */
#define KG_IP_STRINGS_MAX 98304 /* argv, env, cwd with their NULs */
#define KG_IP_FILE_MAX 65536
#define KG_IP_ARGS_MAX 4096 /* strings in argv, and in env */
#define KG_IP_FRAME_MAX (sizeof(kg_ip_spawn_t) + KG_IP_STRINGS_MAX)
#define KG_IP_REPORT_ROWS 64
#define KG_IP_PROCS_MAX 1024 /* processes known to one sandal-init */
#define KG_IP_JOBS_MAX 64    /* file requests at work at once; more are -EUSERS */
#define KG_IP_TEMPS_MAX 256  /* temporary files not yet put in place; more are -EUSERS */
#define KG_IP_PATH_MAX 4096  /* with NUL */
#define KG_IP_LIST_ROWS 128
#define KG_IP_LIMIT_MS_MAX UINT64_C(86400000)
#define KG_IP_REPLY_TAIL_MAX 61440
#define KG_IP_REPLY_MAX (sizeof(kg_ip_reply_t) + KG_IP_REPLY_TAIL_MAX)

typedef enum kg_ip_verb {
    KG_IP_HELLO = 1,
    KG_IP_SPAWN = 2,
    KG_IP_SIGNAL = 3,
    KG_IP_KILL_TREE = 4,
    KG_IP_ACK = 5,
    KG_IP_REPORT = 6,
    KG_IP_USAGE = 7,
    KG_IP_SOCKET_OPEN = 8,
    KG_IP_FILE_WRITE = 9,
    KG_IP_FILE_UNLINK = 10,
    KG_IP_ATTACH = 11,
    KG_IP_CONNECT = 12,
    KG_IP_ORDER = 13, /* from sandal-init to a zygote, see kg_ip_order_t */
    KG_IP_OPEN = 20,  /* from here to WATCH: files, see files.h */
    KG_IP_PUT_IN_PLACE = 21,
    KG_IP_STAT = 22,
    KG_IP_LIST = 23,
    KG_IP_MKDIR = 24,
    KG_IP_RENAME = 25,
    KG_IP_REMOVE = 26,
    KG_IP_WATCH = 27,
    KG_IP_EXIT = 100,    /* event */
    KG_IP_REFUSED = 101, /* event: a frame that could not be read */
} kg_ip_verb_t;

typedef struct kg_ip_head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint32_t size; /* of the whole frame */
    uint32_t seq;  /* chosen by the gateway, echoed; 0 in events */
} kg_ip_head_t;

/* REPORT is a head alone. */

/* Who connects. The first frame of a connection; a new one of a role replaces the old. */
typedef enum kg_ip_role {
    KG_IP_ROLE_KEEPER = 1, /* holds it as the sandbox's life line, asks nothing */
    KG_IP_ROLE_GATEWAY = 2,
} kg_ip_role_t;

typedef struct kg_ip_hello {
    kg_ip_head_t head;
    uint32_t role;
    uint32_t zero;
} kg_ip_hello_t;

#define KG_IP_SPAWN_STDIN_PIPE UINT32_C(1)
#define KG_IP_SPAWN_MERGE_STDERR UINT32_C(2)
/* What it leaves is kept: its last words (last_words.h), and our ends of its pipes until its end is
 * acknowledged: ATTACH brings them again. */
#define KG_IP_SPAWN_LAST_WORDS UINT32_C(4)
#define KG_IP_SPAWN_ROOT UINT32_C(8)    /* as root of the sandbox */
#define KG_IP_SPAWN_PTY UINT32_C(16)    /* a terminal; its master is the stdout of the reply */
#define KG_IP_SPAWN_ZYGOTE UINT32_C(32) /* it may fork processes into the sandboxes below */
#define KG_IP_SPAWN_FORKED                                                                         \
    UINT32_C(64) /* not executed but forked by a zygote: with a descriptor, a connection to it */
#define KG_IP_SPAWN_FLAGS UINT32_C(127)

typedef struct kg_ip_spawn { /* then argc + envc + 1 strings, each with its NUL; the last is cwd (""
                                = where init is) */
    kg_ip_head_t head;
    uint64_t token; /* chosen by the gateway, never 0, never used twice in one sandbox */
    uint64_t nofile;
    uint32_t flags;
    uint32_t umask_bits;
    uint32_t argc; /* 1 to KG_IP_ARGS_MAX */
    uint32_t envc;
    uint16_t columns; /* of the terminal */
    uint16_t rows;
    uint32_t zero;
} kg_ip_spawn_t;

typedef struct kg_ip_signal {
    kg_ip_head_t head;
    uint64_t token;
    uint32_t signo; /* 1 to 64 */
    uint32_t group; /* 0 or 1 */
} kg_ip_signal_t;

typedef struct kg_ip_token { /* KILL_TREE, ACK, USAGE, ATTACH (its exit is told again) */
    kg_ip_head_t head;
    uint64_t token;
} kg_ip_token_t;

typedef struct kg_ip_name { /* SOCKET_OPEN, FILE_UNLINK; FILE_WRITE has the bytes after it */
    kg_ip_head_t head;
    char name[KG_IP_NAME_MAX];
    char zero[7];
} kg_ip_name_t;

#define KG_IP_FS_READ UINT32_C(1)
#define KG_IP_FS_WRITE UINT32_C(2)
#define KG_IP_FS_CREATE UINT32_C(4)
#define KG_IP_FS_EXCLUSIVE UINT32_C(8)
#define KG_IP_FS_DIRECTORY UINT32_C(16)
#define KG_IP_FS_NOFOLLOW UINT32_C(32)
#define KG_IP_FS_PARENTS UINT32_C(64)
#define KG_IP_FS_TEMPORARY UINT32_C(128)
#define KG_IP_FS_OVERWRITE UINT32_C(256)
#define KG_IP_FS_RECURSIVE UINT32_C(512)
#define KG_IP_FS_ROOT UINT32_C(1024) /* by the rights of the sandbox's root */

typedef struct kg_ip_path { /* files: then a path; PUT_IN_PLACE and RENAME: two. Absolute, each with
                               its NUL. The second of PUT_IN_PLACE may be "": the file is removed.
                               WATCH may bring an inotify descriptor */
    kg_ip_head_t head;
    uint64_t cursor; /* LIST. RENAME, and REMOVE with RECURSIVE: milliseconds that it may take, at
                        most KG_IP_LIMIT_MS_MAX, then -ETIME; 0 = any */
    uint32_t flags;  /* KG_IP_FS_*, those of the verb */
    uint32_t mode;   /* OPEN with CREATE or TEMPORARY, MKDIR */
} kg_ip_path_t;

typedef struct kg_ip_connect {
    kg_ip_head_t head;
    uint32_t port;
    uint32_t zero;
} kg_ip_connect_t;

#define KG_IP_ORDER_ID_MAX 48
#define KG_IP_ORDER_FDS_MAX 24
#define KG_IP_ORDER_NAMESPACES 7
#define KG_IP_ORDER_FIXED (1 + KG_IP_ORDER_NAMESPACES) /* after the first four */

/* The first of three messages to a zygote. Descriptors, four a message: its stdin, stdout, stderr
 * and its minder's socket with this one; then, in messages of a byte each, the program of its
 * minder, the namespaces (user, mnt, pid, net, ipc, uts, cgroup), `entries` of its control groups,
 * and its last words if it is to have them; fds of them all in all. Last the SPAWN as sandal-init
 * got it. */
typedef struct kg_ip_order {
    kg_ip_head_t head;
    char id[KG_IP_ORDER_ID_MAX]; /* of the sandbox */
    uint64_t nofile_max;
    uint32_t uid;
    uint32_t gid;
    uint32_t entries;
    uint32_t fds;
} kg_ip_order_t;

typedef union kg_ip_request {
    kg_ip_head_t head;
    kg_ip_hello_t hello;
    kg_ip_spawn_t spawn;
    kg_ip_signal_t signal;
    kg_ip_token_t token;
    kg_ip_name_t name;
    kg_ip_path_t path;
    kg_ip_connect_t connect;
} kg_ip_request_t;

/* Where a spawn failed. */
typedef enum kg_ip_step {
    KG_IP_STEP_NONE = 0,
    KG_IP_STEP_PIPE,
    KG_IP_STEP_FORK,
    KG_IP_STEP_SETUP, /* session, descriptors, limits */
    KG_IP_STEP_USER,  /* uid and gid */
    KG_IP_STEP_CHDIR,
    KG_IP_STEP_EXEC,
    KG_IP_STEP_TIMEOUT, /* exec did not come to an end */
    KG_IP_STEP_COUNT
} kg_ip_step_t;

typedef struct kg_ip_result { /* reply to HELLO, SIGNAL, KILL_TREE, SOCKET_OPEN (one descriptor),
                                 FILE_*; REFUSED too */
    kg_ip_head_t head;
    int32_t error; /* 0 or a negative errno */
    int32_t pid;   /* HELLO: of init */
} kg_ip_result_t;

#define KG_IP_FD_STDIN UINT32_C(1)
#define KG_IP_FD_STDOUT UINT32_C(2)
#define KG_IP_FD_STDERR UINT32_C(4)
#define KG_IP_FD_PIDFD UINT32_C(8)
#define KG_IP_FDS UINT32_C(15)

typedef struct kg_ip_spawned { /* SPAWN, ATTACH */
    kg_ip_head_t head;
    uint64_t token;
    int32_t error;
    uint32_t step;
    int32_t pid;  /* as sandal-init sees it */
    uint32_t fds; /* KG_IP_FD_*: the descriptors that come along, in this order */
} kg_ip_spawned_t;

typedef struct kg_ip_usage {
    kg_ip_head_t head;
    int32_t error;
    uint32_t processes;
    uint64_t cpu_ns;
    uint64_t rss_bytes;
    uint64_t peak_bytes;
} kg_ip_usage_t;

typedef struct kg_ip_exit { /* with the memory file of its last words, if there are any */
    kg_ip_head_t head;
    uint64_t token;
    int32_t status; /* as of wait(2) */
    uint32_t zero;
    uint64_t cpu_ns;
    uint64_t maxrss_bytes;
} kg_ip_exit_t;

typedef struct kg_ip_report_row {
    uint64_t token;
    int32_t pid;
    uint32_t ended; /* 1: status holds, not acknowledged yet */
    int32_t status;
    uint32_t zero;
} kg_ip_report_row_t;

typedef struct kg_ip_report { /* as many frames as it takes; the last has more 0 */
    kg_ip_head_t head;
    uint32_t count;
    uint32_t more;
    kg_ip_report_row_t rows[KG_IP_REPORT_ROWS];
} kg_ip_report_t;

#define KG_IP_AT_TARGET INT32_C(1)

typedef struct kg_ip_files { /* files, CONNECT. OPEN: a descriptor, and the temporary file's path
                                with NUL after it; WATCH: a descriptor unless it was given; CONNECT:
                                a descriptor; STAT and LIST: entries after it */
    kg_ip_head_t head;
    uint64_t next; /* LIST: cursor for more, 0 = that was all */
    int32_t error;
    uint32_t count; /* entries */
    int32_t wd;     /* WATCH; RENAME that failed: KG_IP_AT_TARGET or 0, the source */
    uint32_t created;
} kg_ip_files_t;

typedef enum kg_ip_type {
    KG_IP_TYPE_FILE,
    KG_IP_TYPE_DIR,
    KG_IP_TYPE_SYMLINK,
    KG_IP_TYPE_OTHER,
    KG_IP_TYPE_COUNT
} kg_ip_type_t;

typedef struct kg_ip_entry { /* then name and target, each with its NUL */
    uint64_t size;
    int64_t mtime_ns;
    uint64_t dev;
    uint64_t ino;
    uint32_t type;
    uint32_t mode; /* 07777 */
    uint32_t uid;
    uint32_t gid;
    uint16_t name_len;   /* 1 to 255 */
    uint16_t target_len; /* 0 unless a symlink */
    uint32_t zero;
} kg_ip_entry_t;

typedef union kg_ip_reply {
    kg_ip_head_t head;
    kg_ip_result_t result;
    kg_ip_spawned_t spawned;
    kg_ip_usage_t usage;
    kg_ip_exit_t exit;
    kg_ip_report_t report;
    kg_ip_files_t files;
} kg_ip_reply_t;

bool kg_ip_verb_is_files(unsigned verb); /* OPEN to WATCH */
/* Zeroes the union, fills the head; tail is the length of what follows. Returns the size of the
 * fixed part, 0 for an unknown verb. ACK has no reply. */
size_t kg_ip_request_init(kg_ip_request_t *request, kg_ip_verb_t verb, uint32_t seq, size_t tail);
size_t kg_ip_reply_init(kg_ip_reply_t *reply, kg_ip_verb_t verb, uint32_t seq);
/* 0; -EBADMSG, -EPROTO (version), -ENOSYS (verb). The tail is borrowed from data. *ret_seq is set
 * as soon as it is known. */
int kg_ip_request_decode(const void *data,
                         size_t len,
                         kg_ip_request_t *ret_request,
                         const char **ret_tail,
                         size_t *ret_tail_len,
                         uint32_t *ret_seq);
int kg_ip_reply_decode(const void *data, size_t len, kg_ip_reply_t *ret_reply);
int kg_ip_reply_decode_tail(const void *data,
                            size_t len,
                            kg_ip_reply_t *ret_reply,
                            const char **ret_tail,
                            size_t *ret_tail_len);
/* Zeroes it and fills the head. */
void kg_ip_order_init(kg_ip_order_t *order);
/* 0, -EBADMSG, -EPROTO. */
int kg_ip_order_decode(const void *data, size_t len, kg_ip_order_t *ret_order);
/* The tail of a file request: the second is "" when there is none. */
void kg_ip_paths(const char *tail,
                 size_t tail_len,
                 const char **ret_first,
                 const char **ret_second);
/* Appends an entry to a tail of room cap. 0 or -ENOBUFS. Lengths are taken from the strings. */
int kg_ip_entry_put(char *tail,
                    size_t cap,
                    size_t *len,
                    const kg_ip_entry_t *entry,
                    const char *name,
                    const char *target);
/* Takes the entry at *at and moves on; name and target are borrowed. 0 or -EBADMSG. */
int kg_ip_entry_take(const char **at,
                     size_t *left,
                     kg_ip_entry_t *ret_entry,
                     const char **ret_name,
                     const char **ret_target);
/* Points argv (argc + 1) and env (envc + 1) into the strings of a decoded SPAWN, NULL-terminated,
 * and cwd. */
void kg_ip_spawn_strings(
    const kg_ip_spawn_t *spawn, char *strings, char **ret_argv, char **ret_env, char **ret_cwd);
/* One path component of [A-Za-z0-9._-], 1 to KG_IP_NAME_MAX - 1 bytes, not beginning with a dot. */
bool kg_ip_name_valid(const char *name);

#endif
