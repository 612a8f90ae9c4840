/* Inner header of sandal-init, the first process of a sandbox: small, static, one thread, one poll
 * loop. */
#ifndef KG_SANDBOX_INIT_INIT_H
#define KG_SANDBOX_INIT_INIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/seqsock.h"

#define INIT_SPAWN_DEADLINE_NS (UINT64_C(10) * 1000000000)
#define INIT_KILL_GAP_NS (UINT64_C(2) * 1000000)
#define INIT_KILL_GAP_MAX_NS (UINT64_C(100) * 1000000)
#define INIT_NOFILE_SOFT 4096
#define INIT_TASKS_MAX 4096 /* processes and threads of one sandbox, under a root keeper */
#define INIT_NEVER UINT64_MAX
#define INIT_FD_LAST INT32_MAX   /* for close_range: gVisor takes a greater one for negative */
#define INIT_GUEST_WAITS_MAX 256 /* requests at work in a guest kernel; more are -EAGAIN */
#define INIT_GUEST_KEPT_MAX 256  /* kernels there whose pipes are kept for the next gateway */
#define INIT_GUEST_TICKS 60      /* that each of them may take, -ETIMEDOUT then; */
#define INIT_GUEST_TICK_NS (UINT64_C(1) * 1000000000) /* not in time: both may be frozen */
#define INIT_OOM_NS (UINT64_C(500) * 1000000) /* how often a guest kernel's memory is looked at */
#define INIT_PENDING_MAX 4                    /* connections that have not said who they are */
#define INIT_HELLO_NS (UINT64_C(10) * 1000000000)
#define INIT_JOB_DEADLINE_NS (UINT64_C(30) * 1000000000)
#define INIT_JOB_CLEAR_NS                                                                          \
    (UINT64_C(10) * 1000000000) /* to put away what a copy had made when its time was up */
#define INIT_DIR_MAX 512
#define INIT_FIRST_KEEPER_NS (UINT64_C(30) * 1000000000) /* until one comes after the start */

typedef enum kg_iproc_state {
    KG_IPROC_STARTING, /* its exec hasn't come to an end */
    KG_IPROC_RUNNING,
    KG_IPROC_ENDED,
    KG_IPROC_FAILED, /* never ran; goes when its minder has gone */
} kg_iproc_state_t;

/* One process that the gateway asked for, and the minder above it. */
typedef struct kg_iproc {
    struct kg_iproc *next;
    uint64_t token;
    kg_iproc_state_t state;
    uint32_t spawn_seq;
    pid_t minder; /* 0 once reaped */
    bool foster;  /* forked by a zygote: its minder is no child of ours, the end of its socket is
                     its end */
    pid_t pid;
    int minder_sock;
    int pidfd;
    int words;   /* the memory file of its last words, until they are sent; or -1 */
    int ends[3]; /* the gateway's ends of stdin, stdout, stderr until they are sent; with keep until
                    the end is acknowledged */
    bool keep;   /* a kernel: whoever attaches gets them again */
    bool acked;
    bool exit_sent;
    bool killing; /* the tree is being killed until nothing is left */
    int status;
    uint64_t cpu_ns;
    uint64_t maxrss_bytes;
    uint64_t deadline_ns; /* of the start */
    uint64_t kill_next_ns;
    uint64_t kill_gap_ns;
} kg_iproc_t;

typedef struct kg_iout {
    struct kg_iout *next;
    int fds[KG_SEQ_FDS_MAX];
    size_t fd_count;
    size_t len;
    char data[];
} kg_iout_t;

/* A file request at work in a process of its own, which may take as long as the file system does.
 */
typedef struct kg_ijob {
    struct kg_ijob *next;
    pid_t pid; /* 0 once reaped */
    int sock;  /* -1 once answered */
    uint32_t seq;
    unsigned verb;
    uint32_t flags;
    unsigned gateway_number; /* who asked */
    uint64_t deadline_ns;
    char *temp; /* of PUT_IN_PLACE: the temporary file's path */
} kg_ijob_t;

/* A temporary file: removed when its gateway goes. */
typedef struct kg_itemp {
    struct kg_itemp *next;
    bool root;
    bool busy; /* a PUT_IN_PLACE is at it */
    char path[];
} kg_itemp_t;

typedef struct kg_ipending {
    int fd; /* -1 = free */
    uint64_t until_ns;
} kg_ipending_t;

typedef struct kg_iguest_wait kg_iguest_wait_t;
typedef struct kg_iguest_kept kg_iguest_kept_t;

typedef struct kg_init {
    uid_t uid; /* of the sandbox's processes */
    gid_t gid;
    uid_t killer_uid;
    bool is_root;
    const char *id;       /* of the sandbox */
    uint32_t flags;       /* KG_INIT_FLAG_* */
    unsigned entry_count; /* from KG_INIT_FD_ENTRIES on; 0: nothing is forked by zygotes here */
    uint64_t orphan_ns;
    uint64_t orphan_at_ns; /* all ends then; INIT_NEVER while there is a keeper */
    int listen;
    int keeper;              /* -1 when it has gone */
    int gateway;             /* -1 when it has gone */
    unsigned gateway_number; /* how many there have been */
    kg_ipending_t pending[INIT_PENDING_MAX];
    int run_dir;
    int signal_fd;
    unsigned tmp_count;
    unsigned proc_count;
    kg_iproc_t *procs;
    unsigned job_count;
    kg_ijob_t *jobs;
    unsigned temp_count;
    kg_itemp_t *temps;
    char workspace[INIT_DIR_MAX]; /* without an own root: what /workspace stands for, */
    char home[INIT_DIR_MAX];      /* and /home/user */
    int workspace_fd;
    int home_fd;
    kg_iout_t *out_first;
    kg_iout_t **out_last;
    int guest; /* with GUEST: the link; -1 when it has gone */
    int oom;
    uint64_t oom_next_ns;
    uint64_t guest_tick_ns; /* the next one; INIT_NEVER: nothing waits */
    uint32_t guest_seq;
    unsigned guest_wait_count;
    kg_iguest_wait_t *guest_waits;
    unsigned guest_kept_count;
    kg_iguest_kept_t *guest_kept;
    int given[KG_SEQ_FDS_MAX]; /* with INNER: that came with the request at hand */
    size_t frame_tail_len;     /* of the request at hand */
    char frame[KG_IP_FRAME_MAX + 1];
} kg_init_t;

/* What a minder tells init, one message each. */
typedef enum kg_minder_kind {
    KG_MINDER_STARTED,
    KG_MINDER_FAILED,
    KG_MINDER_EXITED
} kg_minder_kind_t;
typedef struct kg_minder_msg {
    uint32_t kind;
    int32_t pid;
    int32_t error;
    uint32_t step;
    int32_t status;
    int32_t minder; /* STARTED of a foster one: its own number */
    uint64_t cpu_ns;
    uint64_t maxrss_bytes;
} kg_minder_msg_t;

/* conns.c: who talks to us. One connection a role, a new one replaces the old. */
void init_accept(kg_init_t *in);
void init_read_pending(kg_init_t *in, kg_ipending_t *pending);
void init_read_keeper(kg_init_t *in);
/* Closes what didn't say hello in time. Returns when to call again. */
uint64_t init_conns_step(kg_init_t *in, uint64_t now_ns);

/* requests.c */
void init_read_requests(kg_init_t *in);
/* Takes the descriptors; waits in a queue when the gateway doesn't read. */
void init_send(kg_init_t *in, const kg_ip_reply_t *reply, const int *fds_take, size_t fd_count);
/* A whole frame. */
void init_send_frame(
    kg_init_t *in, const void *frame, size_t len, const int *fds_take, size_t fd_count);
void init_send_files_error(kg_init_t *in, unsigned verb, uint32_t seq, int error);
void init_flush(kg_init_t *in);
void init_gateway_gone(kg_init_t *in);

/* procs.c */
kg_iproc_t *init_find(kg_init_t *in, uint64_t token);
/* strings: of len bytes. zygote: the connection that came along, or -1; borrowed. */
void init_spawn(kg_init_t *in, const kg_ip_spawn_t *spawn, char *strings, size_t len, int zygote);
void init_read_minder(kg_init_t *in, kg_iproc_t *proc);
/* A child of ours was reaped: a minder, or a process whose minder was killed. */
void init_child_exited(kg_init_t *in, pid_t pid, int status);
void init_send_exits(kg_init_t *in);
/* Drops what is over; deadlines and kills that are due. Returns when to call again. */
uint64_t init_procs_step(kg_init_t *in, uint64_t now_ns);
void init_drop_all(kg_init_t *in); /* the memory alone */
int init_signal(kg_iproc_t *proc, int signo, bool group);
void init_attach(kg_init_t *in, const kg_ip_token_t *request);
void init_ack(kg_iproc_t *proc);

/* forked.c: has the zygote at the other end of sock fork the process, with these ends of its pipes
 * (stdin, stderr: -1 as for init_minder_run), and a minder, whose socket is minder_sock. All
 * borrowed. */
int init_order(const kg_init_t *in,
               const kg_ip_spawn_t *spawn,
               const char *strings,
               size_t len,
               const int stdio[3],
               int minder_sock,
               int sock);

/* pty.c: inner: the three of the process, outer: the master, non-blocking. */
int init_pty_open(const kg_init_t *in, const kg_ip_spawn_t *spawn, int inner[3], int *ret_outer);

/* rights.c */
/* The caller, a fork of init, gets the rights to files of the sandbox's user or root, and no
 * others; it stays out of reach of the sandbox's signals and tracing. Read back. */
int init_become_for_files(const kg_init_t *in, bool root);
/* The caller becomes the sandbox's user, or its root with the capabilities of caps.h: for good.
 * zygote: the user, with the filter of zygotes. */
int init_become_for_exec(const kg_init_t *in, bool root, bool zygote);

/* jobs.c */
void init_job_start(
    kg_init_t *in, const kg_ip_path_t *request, const char *tail, size_t tail_len, int watch_fd);
void init_job_read(kg_init_t *in, kg_ijob_t *job);
bool init_job_exited(kg_init_t *in, pid_t pid); /* false: not one of them */
/* Deadlines; drops what is over. Returns when to call again. */
uint64_t init_jobs_step(kg_init_t *in, uint64_t now_ns);
/* Temporary files of a gateway that has gone. */
void init_drop_temps(kg_init_t *in);

/* files.c: a file request, in a process of its own with the rights that it is to have. Sends its
 * answer to sock. */
typedef struct kg_ifiles {
    const kg_init_t *in;
    const kg_ip_path_t *request;
    const char *path;
    const char *second;
    int watch_fd;
    uint64_t deadline_ns; /* of what may take long: RENAME, REMOVE; INIT_NEVER */
    kg_ip_files_t reply;
    int fd; /* to go with it, or -1 */
    size_t tail_len;
    char tail[KG_IP_REPLY_TAIL_MAX];
} kg_ifiles_t;

int init_files_do(kg_ifiles_t *f);
/* A directory with what is in it until deadline_ns (-ETIME), 0: only if it is empty. */
int init_files_remove(const kg_init_t *in, const char *path, uint64_t deadline_ns);

/* copy.c: a file or tree to a new name. What was made stays when it fails; -ETIME past the
 * deadline. */
int init_copy(int from_dir, const char *from, int to_dir, const char *to, uint64_t deadline_ns);

/* paths.c: paths as a request has them to descriptors, by the rights of the caller. Without an own
 * root nothing outside of workspace and home is reached. All: 0, a descriptor, or -errno. */
int init_path_open(const kg_init_t *in, const char *path, int flags, mode_t mode);
/* The directory that holds the last component, and that. The path may end in slashes. */
int init_path_parent(const kg_init_t *in,
                     const char *path,
                     int *ret_dir,
                     char ret_name[KG_IP_PATH_MAX]);
/* Makes the directories above the last component that aren't there. */
int init_path_make_parents(const kg_init_t *in, const char *path);
/* Follows the links that the last component may be, to a file that is or could be there. */
int init_path_final(const kg_init_t *in, const char *path, char ret_path[KG_IP_PATH_MAX]);
bool init_path_dir(const char *path, char ret_dir[KG_IP_PATH_MAX], char ret_name[KG_IP_PATH_MAX]);

/* procs.c: the three pipes of a spawn. On failure the caller closes what was made. */
int init_make_pipes(const kg_ip_spawn_t *spawn, int inner[3], int outer[3]);

/* guest.c */
/* The link, out of the way of what is started; /dev/null takes its place. */
int init_link_take(int *ret_fd);
int init_guest_take(kg_init_t *in); /* both descriptors of GUEST */
/* Ends it when the kernel has killed a part of it. Returns when to call again. */
uint64_t init_guest_step(kg_init_t *in, uint64_t now_ns);
bool init_guest_has(const kg_init_t *in, unsigned verb); /* it is asked over there */
/* The request that lies in in->frame, len bytes in all. */
void init_guest_ask(kg_init_t *in, const kg_ip_request_t *request, size_t len);
void init_read_guest(kg_init_t *in);
void init_guest_drop(kg_init_t *in);

/* relay.c: a process that copies between two sockets until both have ended. 0 or -errno. */
int init_relay_start(int a, int b);

/* ports.c */
void init_connect(kg_init_t *in, const kg_ip_connect_t *request);

/* tree.c */
void init_usage(const kg_iproc_t *proc, kg_ip_usage_t *ret_usage);
/* SIGKILL for all descendants of pid; returns how many there were, dead ones not yet reaped
 * included. */
size_t init_kill_descendants(pid_t pid);
/* The keeper is gone: ends everything that lives here, then returns. */
void init_end_all(kg_init_t *in);

/* minder.c: runs in a fork of init, never returns. stdio: 0, 1, 2 of the process (-1 = /dev/null,
 * stderr -1 = as stdout). */
_Noreturn void init_minder_run(
    const kg_init_t *in, const kg_ip_spawn_t *spawn, char *strings, const int stdio[3], int sock);

/* The minder of a process that a zygote has forked, after its exec: `pid` is its child. */
_Noreturn void init_minder_foster(pid_t pid, uid_t uid, gid_t gid);
/* Its descriptors then: a socket to sandal-init, one to the process, the last words or nothing. */
#define INIT_FOSTER_SOCK 3
#define INIT_FOSTER_LINK 4
#define INIT_FOSTER_WORDS 5

/* What a process that is being started says to its minder: 0, or what failed and where. One that a
 * zygote forked waits for a byte then. */
typedef struct kg_start_error {
    int32_t error;
    uint32_t step;
} kg_start_error_t;

/* child.c: becomes the process. Returns only on failure, with a negative errno and the step. */
int init_child_exec(const kg_init_t *in,
                    const kg_ip_spawn_t *spawn,
                    char *strings,
                    pid_t minder,
                    uint32_t *ret_step);

/* The limits of a process of the sandbox: nofile as of a spawn, nofile_max (0 = as it is) what its
 * hard limit must not exceed, tasks_max (0 = as it is) how many its uid may have. -errno. */
int init_child_limits(const kg_init_t *in,
                      uint64_t nofile,
                      uint64_t nofile_max,
                      uint64_t tasks_max);

/* rundir.c: all relative to the run directory's descriptor. */
int init_socket_open(const kg_init_t *in, const char *name, int *ret_fd);
int init_file_write(kg_init_t *in, const char *name, const char *bytes, size_t len);
int init_file_unlink(const kg_init_t *in, const char *name);

#endif
