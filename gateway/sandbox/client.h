/* Gateway side of the sandboxes: the keeper (makes and ends them) and the sandal-init inside each
 * one (starts and reaps processes, opens sockets, writes files). All calls return at once. Every
 * callback runs once, on the loop's thread and never from inside the call that asked for it; when
 * the sandbox or the keeper is lost, calls that wait get an error. Inside any callback every
 * function of this header may be called, on the same object too. */
#ifndef KG_SANDBOX_CLIENT_H
#define KG_SANDBOX_CLIENT_H

#include <sys/types.h>

#include "gateway/base/buf.h"
#include "gateway/base/err.h"
#include "gateway/loop/loop.h"
#include "gateway/sandbox/limits.h"
#include "gateway/sandbox/net.h"

typedef struct kg_keeper kg_keeper_t;
typedef struct kg_sbx kg_sbx_t;
typedef struct kg_proc kg_proc_t;

#define KG_SBX_FILE_MAX 65536    /* bytes of one kg_sbx_file_write */
#define KG_SBX_STRINGS_MAX 98304 /* argv, env and cwd of one spawn together, with their NULs */
#define KG_SBX_NAME_MAX 64       /* a socket's or file's name in the run directory, without NUL */
#define KG_SBX_PATH_MAX 256      /* any path of a sandbox, with NUL */
#define KG_LAUNCHER_NAME_MAX 24

/* err NULL = fine. */
typedef void kg_done_fn(void *user, const kg_err_t *err);

/* ---- the keeper ---- */

typedef enum kg_keeper_event {
    KG_KEEPER_READY, /* versions agree, the launchers are known */
    KG_KEEPER_LOST,  /* the socket ended or broke. Told first; then every sandbox is lost too, and
                        all  calls fail. Close the keeper */
} kg_keeper_event_t;
/* err tells why on LOST, and is NULL on READY. */
typedef void kg_keeper_event_fn(void *user, kg_keeper_event_t event, const kg_err_t *err);

/* Public plain data: one row of the launcher table as probed by the keeper. */
typedef struct kg_launcher_info {
    char name[KG_LAUNCHER_NAME_MAX]; /* "none", "process", "namespace" … */
    unsigned rank;                   /* higher isolates better; 0 = none, taken by name only */
    bool available;
    char reason[160]; /* why not, or a remark */
    bool pauses;
    char pauses_not[160]; /* why not */
} kg_launcher_info_t;

/* Takes fd (fd 3 of `sandald gateway`; set non-blocking and close-on-exec here) and says hello.
 * Calls may follow at once, without waiting for READY. On failure the descriptor is closed too. */
int kg_keeper_connect(kg_loop_t *loop,
                      int fd_take,
                      kg_keeper_event_fn *on_event,
                      void *user,
                      kg_keeper_t **ret_keeper,
                      kg_err_t *err);
/* Borrowed until the keeper is closed; count 0 before READY. */
const kg_launcher_info_t *kg_keeper_launchers(const kg_keeper_t *keeper, size_t *ret_count);
pid_t kg_keeper_pid(const kg_keeper_t *keeper); /* 0 before READY; for RSS figures */
/* From before the first call that fails by it: what such a failure says of a sandbox is not known
 * then. */
bool kg_keeper_is_lost(const kg_keeper_t *keeper);
/* Sandboxes and processes that still live are orphaned: calls that wait get their error and the
 * objects stay valid until their own destroy or close. NULL ok; NULLs the pointer. */
void kg_keeper_close(kg_keeper_t **keeper);

/* A keeper of one's own over a private directory, for tests and tools: forks and execs keeper_exe
 * in its serving mode (it starts no gateway; it ends, with all sandboxes, when the socket closes).
 * The caller waits for ret_pid. Blocking fork. */
typedef struct kg_keeper_private {
    const char *keeper_exe;
    const char *init_exe;
    const char *state_dir;   /* made if it isn't there */
    const char *runtime_dir; /* likewise; at most 54 bytes, since sockets live below it */
    unsigned uid_base;   /* as root: no other keeper of the machine may have it. 0 = the default */
    unsigned uid_count;  /* 65536 a sandbox */
    const char *volumes; /* back end, opened when it is needed; NULL = none */
    bool prepare;        /* volumes and networks at the start: FEATURES tells of them */
    unsigned orphan_s;   /* how long sandboxes live on when the keeper was killed */
    unsigned create_timeout_s; /* 0 = the default */
} kg_keeper_private_t;
int kg_keeper_start_private(const kg_keeper_private_t *opts, pid_t *ret_pid, int *ret_fd);

/* ---- a sandbox ---- */

typedef struct kg_sandbox_opts {
    const char *id;       /* kg_id_valid("sbx", id) */
    const char *launcher; /* by name */
    bool reuse; /* its directories may be there from before (same owner); without it that is
                   KG_ERR_CONFLICT */
    const char *template_name; /* one of those the keeper was started with; NULL = host root */
    bool is_zygote;            /* other sandboxes can be made below it: kg_sbx_info_t.children */
    const char *zygote;    /* id of such a one, of the same template: processes of this sandbox can
                              be forked by those of that. NULL = none. Never with reuse */
    kg_limits_t limits;    /* what the launcher can't hold is not_supported */
    kg_net_wish_t network; /* KG_NET_HOST under `none` and `process` alone */
} kg_sandbox_opts_t;

/* Public plain data. Paths are as the processes inside see them. */
typedef struct kg_sbx_info {
    char id[48];
    char isolation[KG_LAUNCHER_NAME_MAX]; /* what it really got */
    char workspace[KG_SBX_PATH_MAX];
    char home[KG_SBX_PATH_MAX];
    char run_dir[KG_SBX_PATH_MAX]; /* connection files and ipc sockets; RUN/NAME fits sun_path for
                                      names <= 24 bytes */
    uid_t uid; /* of the processes, as the host sees it; never 0 under a root keeper */
    gid_t gid;
    pid_t init_pid;
    bool own_root;     /* it has a mount namespace: /workspace and /home/user are its own; else the
                          paths above are the host's and fs maps the two prefixes */
    bool has_root;     /* kg_spawn_opts_t.root works */
    unsigned children; /* of a zygote: how many sandboxes there can be below it at once */
    kg_isolation_info_t isolation_info;
} kg_sbx_info_t;

/* sbx (owned by the callee until kg_sbx_destroy) or NULL and err. */
typedef void kg_sandbox_created_fn(void *user, kg_sbx_t *sbx, const kg_err_t *err);
/* 0, or the error without a call of done. done's errors: isolation_unavailable (hint: what there
 * is), conflict, quota_exceeded (no slot), storage_full, internal. */
int kg_sandbox_create(kg_keeper_t *keeper,
                      const kg_sandbox_opts_t *opts,
                      kg_sandbox_created_fn *done,
                      void *user,
                      kg_err_t *err);
/* Forgets the creates and destroys that wait with this user pointer: done never runs; what comes of
 * creates is destroyed. */
void kg_keeper_forget(kg_keeper_t *keeper, const void *user);
/* Finds a sandbox that outlived a gateway or a keeper: as kg_sandbox_create, but what lives in it
 * goes on. sandbox_not_found when it doesn't live any more. */
int kg_sandbox_attach(
    kg_keeper_t *keeper, const char *id, kg_sandbox_created_fn *done, void *user, kg_err_t *err);
/* All that the keeper has something of, whoever made it: after a start, to attach to those that
 * live and are known, and to end the others. rows borrowed for the call; err tells when they can't
 * be had.
 */
typedef struct kg_listed {
    const char *id;
    bool lives; /* else there are only its files, or it is on its way there */
    bool is_zygote;
    const char *launcher; /* "" = not known */
    const char *template_name;
} kg_listed_t;
typedef void kg_ids_fn(void *user, const kg_listed_t *rows, size_t count, const kg_err_t *err);
int kg_keeper_list(kg_keeper_t *keeper, kg_ids_fn *fn, void *user);
/* Ends one that nobody knows. fn may be NULL. */
int kg_keeper_end(kg_keeper_t *keeper, const char *id, bool keep_files, kg_done_fn *fn, void *user);
const kg_sbx_info_t *kg_sbx_info(const kg_sbx_t *sbx); /* borrowed until destroy */
bool kg_sbx_is_lost(const kg_sbx_t *sbx);

/* Its sandal-init is gone or broke the protocol: everything in it is dead or being killed. Runs
 * once, after the callbacks of calls that waited and of processes (kg_exit_t.lost). Still to be
 * destroyed by the owner. */
typedef void kg_sbx_lost_fn(void *user, const kg_err_t *err);
void kg_sbx_on_lost(kg_sbx_t *sbx, kg_sbx_lost_fn *fn, void *user);

/* Kills all its processes for certain, removes its run directory, and workspace and home unless
 * keep_files. The sandbox is dead at once for the caller (pointer NULLed, on_lost never runs after
 * it); calls that wait get KG_ERR_SANDBOX_NOT_FOUND; done (may be NULL) runs when no process of it
 * is left. */
void kg_sbx_destroy(kg_sbx_t **sbx, bool keep_files, kg_done_fn *done, void *user);
/* Forgets every call that waits with this user pointer: its callback never runs, what it would have
 * brought is closed again (a process that was being spawned is killed). For owners that die before
 * their answers; on_lost of that user goes too. */
void kg_sbx_forget(kg_sbx_t *sbx, const void *user);

/* ---- the whole of it ---- */

/* Stops and wakes all its processes (the freezer); once they stand still, their memory is pressed
 * out to swap or zram where the host has it. Idempotent. not_supported, sandbox_not_found,
 * timeout. */
int kg_sbx_pause(kg_sbx_t *sbx, kg_done_fn *fn, void *user);
int kg_sbx_resume(kg_sbx_t *sbx, kg_done_fn *fn, void *user);
/* Why the memory of one that was paused stays where it is; "": it is pressed out. Until the next
 * pause. */
const char *kg_sbx_memory_stays(const kg_sbx_t *sbx);
typedef void kg_box_usage_fn(void *user, const kg_box_usage_t *usage, const kg_err_t *err);
int kg_sbx_box_usage(kg_sbx_t *sbx, kg_box_usage_fn *fn, void *user);
int kg_sbx_network(kg_sbx_t *sbx, const kg_net_wish_t *wish, kg_done_fn *fn, void *user);
/* Other limits of memory, cpu and pids, those that are not 0, and another share of the cpu
 * (KG_SHARE_USUAL is what all begin with). not_supported, invalid_request (it uses more memory
 * now). fn may be NULL. */
int kg_sbx_hold(
    kg_sbx_t *sbx, const kg_limits_t *limits, uint32_t share, kg_done_fn *fn, void *user);
/* rows borrowed for the call; cursor is to be given next time. */
typedef void kg_net_log_fn(void *user,
                           const kg_net_denied_t *rows,
                           size_t count,
                           uint64_t cursor,
                           uint64_t lost,
                           const kg_err_t *err);
int kg_sbx_network_log(kg_sbx_t *sbx, uint64_t cursor, kg_net_log_fn *fn, void *user);
/* How many of its processes the kernel has killed for want of memory since it was made, as of now:
 * one read of a small file, so that it can be asked before and after. A kill is counted before its
 * exit is told. UINT64_MAX where that isn't counted. */
uint64_t kg_sbx_oom_kills(const kg_sbx_t *sbx);

/* ---- processes ---- */

typedef struct kg_spawn_opts {
    const char *const
        *argv; /* NULL-terminated; argv[0] without a slash is looked up in env's PATH */
    const char *const *env; /* NULL-terminated, exactly what the process gets; NULL = empty */
    const char *cwd;        /* NULL = the workspace */
    bool stdin_pipe;        /* else /dev/null */
    bool merge_stderr;      /* stderr goes into stdout's pipe; no stderr descriptor */
    uint64_t nofile; /* RLIMIT_NOFILE, soft and hard, never above the host's; 0 = soft 4096, hard as
                        it is */
    unsigned umask_bits; /* 0 = 022 */
    bool last_words;     /* it gets memory that outlives it: see last_words.h; and its pipes outlive
                            us: kg_sbx_proc_attach */
    bool root; /* as root of the sandbox with the container engines' default capabilities, else as
                  its user without any. not_supported where has_root is false */
    bool pty; /* a terminal of columns x rows instead of pipes: its master comes as stdout, for both
                 ways; kg_proc_take_stdin and _stderr give -1 */
    uint16_t columns;
    uint16_t rows;
    bool zygote; /* in a zygote's sandbox: it may fork processes of the sandboxes below */
    bool
        forked; /* not executed but forked by the zygote that zygote_sock is connected to
                   (borrowed), which lives in this one's zygote; argv, env and cwd are told to it */
    int zygote_sock;
} kg_spawn_opts_t;

/* proc is the callee's until kg_proc_close, or NULL and err: not_found (no such program or
 * directory), forbidden (not executable), internal …, the message naming the step: `cannot execute
 * "foo": No such file or directory`. */
typedef void kg_spawned_fn(void *user, kg_proc_t *proc, const kg_err_t *err);
/* 0, or the error (too_large, invalid_request, sandbox_not_found) without a call of done. Each
 * process is leader of an own session and process group. */
int kg_sbx_spawn(
    kg_sbx_t *sbx, const kg_spawn_opts_t *opts, kg_spawned_fn *done, void *user, kg_err_t *err);

uint64_t kg_proc_token(const kg_proc_t *proc); /* names it to kg_sbx_proc_attach */
/* A process that was spawned before this gateway's time, by its token: as kg_sbx_spawn, with
 * descriptors only of one that has last_words. not_found. */
int kg_sbx_proc_attach(
    kg_sbx_t *sbx, uint64_t token, kg_spawned_fn *done, void *user, kg_err_t *err);
/* Tokens of all processes in it that are not ended and acknowledged, those of earlier gateways too;
 * borrowed for the call. */
typedef void kg_report_fn(void *user, const uint64_t *tokens, size_t count, const kg_err_t *err);
int kg_sbx_report(kg_sbx_t *sbx, kg_report_fn *fn, void *user);
/* Somebody waits for what is only answered while it is not frozen: the start of a process, a port,
 * files. */
bool kg_sbx_is_asked(const kg_sbx_t *sbx);
/* Ends the tree of one that nobody has attached to. */
void kg_sbx_end_token(kg_sbx_t *sbx, uint64_t token);
pid_t kg_proc_inner_pid(const kg_proc_t *proc); /* as seen inside; kg_proc_pid without a pid
                                                   namespace */
pid_t kg_proc_pid(const kg_proc_t *proc); /* as seen by the host, for the log and for people; never
                                             to be signalled */
/* Descriptors, non-blocking on this side; taken once by the caller, -1 after that or when there is
 * none. What is not taken is closed with the process. */
int kg_proc_take_stdin(kg_proc_t *proc);
int kg_proc_take_stdout(kg_proc_t *proc);
int kg_proc_take_stderr(kg_proc_t *proc);

/* What it had printed and not yet sent when it ended, for kg_last_words_read. The caller's, once,
 * from the exit on; -1 when there is nothing. */
int kg_proc_take_last_words(kg_proc_t *proc);

/* Public plain data. Exactly one of exited, signaled, lost. */
typedef struct kg_exit {
    bool exited;
    bool signaled;
    bool lost; /* the sandbox went first: how the process ended is not known */
    int code;
    int signal;
    uint64_t cpu_ns; /* of the process and its waited-for children */
    uint64_t maxrss_bytes;
} kg_exit_t;
typedef void kg_exit_fn(void *user, const kg_exit_t *exit);
/* One listener; if the process has ended already, it runs in the next loop turn. Output may still
 * be in the pipes. */
void kg_proc_on_exit(kg_proc_t *proc, kg_exit_fn *fn, void *user);
/* group: to the process group instead of the process alone. -ESRCH when it has ended (or its
 * sandbox has), -EINVAL. */
int kg_proc_signal(kg_proc_t *proc, int signo, bool group);
/* SIGKILL for the process and all its descendants, daemons too: each process has a minder above it,
 * a subreaper that orphans of the process fall to, so they stay findable. Also legal, and useful,
 * after the exit. -ESRCH when the sandbox is gone. */
int kg_proc_kill_tree(kg_proc_t *proc);

/* Public plain data: the process and its living descendants. */
typedef struct kg_usage {
    uint64_t cpu_ns;
    uint64_t rss_bytes;
    uint64_t peak_bytes; /* sum of the processes' own peaks */
    unsigned processes;
} kg_usage_t;
typedef void
kg_usage_fn(void *user, const kg_usage_t *usage, const kg_err_t *err); /* usage NULL on error */
int kg_proc_usage(kg_proc_t *proc, kg_usage_fn *fn, void *user);
/* Ends the interest: descriptors not taken are closed, the exit (now or later) is acknowledged.
 * Kills nothing. NULL ok; NULLs the pointer. No callback of it (exit, usage) after it. */
void kg_proc_close(kg_proc_t **proc);

/* ---- the run directory ---- */

/* fd (an O_PATH descriptor, the callee's; connect to /proc/self/fd/N) or -errno: -ENOENT not there
 * yet, -ECONNREFUSED bound but nobody listens yet, -EPERM not a socket, a link, or another owner's,
 * -EPIPE sandbox lost. */
typedef void kg_socket_fn(void *user, int fd_take);
/* Returns 0, -EINVAL for a bad name, -EPIPE, -ENOMEM. */
int kg_sbx_socket_open(kg_sbx_t *sbx, const char *name, kg_socket_fn *fn, void *user);
/* Writes RUN/name, 0600, owned by the sandbox's uid, by tmp + rename. fn may be NULL. -EINVAL,
 * -E2BIG, -EPIPE, -ENOMEM. */
int kg_sbx_file_write(
    kg_sbx_t *sbx, const char *name, kg_slice_t bytes, kg_done_fn *fn, void *user);
/* Absent is fine. */
int kg_sbx_file_unlink(kg_sbx_t *sbx, const char *name, kg_done_fn *fn, void *user);

#endif
