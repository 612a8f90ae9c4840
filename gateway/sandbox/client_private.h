/* Inner header of the client: its objects, the channel under both sockets, the calls that wait. */
#ifndef KG_SANDBOX_CLIENT_PRIVATE_H
#define KG_SANDBOX_CLIENT_PRIVATE_H

#include "gateway/sandbox/client.h"
#include "gateway/sandbox/files.h"
#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/keeper_proto.h"

#define KG_CHAN_QUEUE_MAX 1024 /* frames that wait for the other side to read */
#define KG_CHAN_BUDGET 32      /* frames read a loop turn */

/* ---- client_chan.c: a SEQPACKET socket on the loop, with a queue for what doesn't fit ---- */

typedef struct kg_frame {
    struct kg_frame *next;
    int fd; /* goes along, or -1 */
    size_t len;
    char data[];
} kg_frame_t;

typedef struct kg_chan {
    kg_loop_t *loop;
    int fd;
    kg_fdwatch_t *watch;
    kg_fn *on_readable;
    void *user;
    kg_frame_t *first;
    kg_frame_t **last;
    unsigned count;
    bool wants_write;
} kg_chan_t;

int kg_chan_init(kg_chan_t *chan, kg_loop_t *loop, int fd_take, kg_fn *on_readable, void *user);
/* 0 (sent or queued), -EPIPE, -ENOBUFS, -ENOMEM. */
int kg_chan_send(
    kg_chan_t *chan, const void *head, size_t head_len, const void *tail, size_t tail_len);
/* fd (borrowed, -1 = none) goes along. */
int kg_chan_send_fd(
    kg_chan_t *chan, const void *head, size_t head_len, const void *tail, size_t tail_len, int fd);
void kg_chan_fini(kg_chan_t *chan); /* idempotent; fd is -1 after it */

/* ---- calls that wait ---- */

typedef struct kg_call {
    struct kg_call *next;
    uint32_t seq;
    unsigned verb;
    bool forgotten;
    bool root; /* of kg_fs_open, with its flags */
    uint32_t files_flags;
    void *user;
    union {
        kg_sandbox_created_fn *created;
        kg_spawned_fn *spawned;
        kg_socket_fn *socket;
        kg_usage_fn *usage;
        kg_box_usage_fn *box_usage;
        kg_net_log_fn *net_log;
        kg_ids_fn *ids;
        kg_report_fn *report;
        kg_done_fn *done;
        kg_fs_open_fn *fs_open;
        kg_fs_put_fn *fs_put;
        kg_fs_stat_fn *fs_stat;
        kg_fs_list_fn *fs_list;
        kg_fs_watch_fn *fs_watch;
        kg_port_fn *port;
    } fn;
    const kg_proc_t *proc; /* of usage */
    uint32_t spawn_flags;
    uint64_t token;
    bool keep_files;        /* of a create that was forgotten */
    kg_kp_list_row_t *rows; /* of LIST, so far */
    size_t row_count;
    uint32_t list_from;
    uint64_t *tokens; /* of REPORT, so far */
    size_t token_count;
    char what[96];  /* program, directory or id, for messages */
    char where[96]; /* cwd */
} kg_call_t;

/* Unlinks and returns the call with seq and verb, or NULL. */
kg_call_t *kg_call_take(kg_call_t **list, uint32_t seq, unsigned verb);
void kg_call_forget(kg_call_t *list, const void *user);
/* Runs every call's callback with err (its errno for sockets) and frees them. The list is taken
 * over first. */
void kg_calls_fail(kg_call_t **list, const kg_err_t *err);

/* ---- objects ---- */

struct kg_keeper {
    kg_loop_t *loop;
    kg_chan_t chan;
    kg_keeper_event_fn *on_event;
    void *user;
    uint32_t seq;
    pid_t pid;
    bool lost;
    bool closed;
    kg_launcher_info_t launchers[KG_KP_LAUNCHERS];
    size_t launcher_count;
    kg_call_t *calls;
    kg_sbx_t *sandboxes;
};

struct kg_sbx {
    kg_sbx_t *next;
    kg_keeper_t *keeper; /* NULL when that was closed */
    kg_loop_t *loop;
    kg_chan_t chan;
    kg_sbx_info_t info;
    unsigned refs;
    bool lost;
    bool destroyed;
    kg_err_t lost_err;
    uint32_t seq;
    uint64_t tokens;
    kg_call_t *calls;
    kg_proc_t *procs;
    kg_sbx_lost_fn *on_lost;
    void *on_lost_user;
    char memory_stays[120];
    int oom_fd; /* the kernel's count of those that it killed for want of memory, or -1 */
};

struct kg_proc {
    kg_proc_t *next;
    kg_sbx_t *sbx; /* NULL when that was destroyed */
    kg_loop_t *loop;
    unsigned refs;
    bool closed;
    uint64_t token;
    pid_t pid;       /* as the host sees it, 0 = not known */
    pid_t inner_pid; /* as the sandbox does */
    int ends[3];
    int words; /* the memory file of its last words, or -1 */
    bool ended;
    bool delivered;
    kg_exit_t exit;
    kg_exit_fn *on_exit;
    void *on_exit_user;
};

/* client_keeper.c */
int kg_keeper_kill(
    kg_keeper_t *keeper, const char *id, bool keep_files, kg_done_fn *done, void *user);
void kg_keeper_unlink_sbx(kg_keeper_t *keeper, kg_sbx_t *sbx);
/* Sends a request and, if call isn't NULL, links it as waiting. 0 or -errno, then the call is still
 * the caller's. */
int kg_keeper_request(kg_keeper_t *keeper, kg_kp_request_t *r, size_t size, kg_call_t *call);
/* A reply's error as ours. True when there is one. */
bool kg_keeper_reply_error(const kg_kp_status_t *status, kg_err_t *ret_err);

/* client_list.c: another frame of a LIST. 1 = asked for more, 0 = over, -errno = failed; told then,
 * and the call is the caller's. */
int kg_list_take(kg_keeper_t *keeper, kg_call_t *call, const kg_kp_list_reply_t *reply);
void kg_list_free(kg_call_t *call);

/* client_report.c: one frame of a report; frees the call with the last. */
void kg_report_take(kg_sbx_t *sbx, const kg_ip_report_t *reply);

/* client_box.c */
void kg_box_take_usage(kg_call_t *call, const kg_kp_usage_reply_t *reply);
void kg_box_take_net_log(kg_call_t *call, const kg_kp_net_log_reply_t *reply);
/* Of a user: what was asked by this file's calls. */
void kg_box_forget(kg_keeper_t *keeper, const void *user);
/* Every kind of call but creates. */
void kg_box_fail_call(const kg_call_t *call, const kg_err_t *err);

/* client_sbx.c */
kg_sbx_t *
kg_sbx_new(kg_keeper_t *keeper, const char *id, const kg_kp_create_reply_t *reply, int fds_take[2]);
void kg_sbx_set_lost(kg_sbx_t *sbx,
                     const kg_err_t *err); /* runs callbacks; from loop callbacks only */
void kg_sbx_set_lost_later(kg_sbx_t *sbx, const kg_err_t *err);
void kg_sbx_unref(kg_sbx_t *sbx);
/* Sends a request and, if call isn't NULL, links it as waiting. */
int kg_sbx_request(kg_sbx_t *sbx,
                   kg_ip_request_t *request,
                   size_t fixed,
                   const void *tail,
                   size_t tail_len,
                   kg_call_t *call);
/* With a descriptor (borrowed, -1 = none). */
int kg_sbx_request_fd(kg_sbx_t *sbx,
                      kg_ip_request_t *request,
                      size_t fixed,
                      kg_slice_t tail,
                      int fd,
                      kg_call_t *call);

#define KG_PIDS_HINT "End some of its processes, or make it with higher limits.pids."

/* client_files.c */
void kg_files_take(
    kg_sbx_t *sbx, const kg_ip_files_t *reply, const char *tail, size_t tail_len, int *fd);
void kg_files_fail(const kg_call_t *call, const kg_err_t *err);

/* client_proc.c */
void kg_proc_take_spawned(kg_sbx_t *sbx, const kg_ip_spawned_t *reply, int *fds, size_t fd_count);
uint64_t kg_proc_first_token(void);
kg_proc_t *kg_proc_new(kg_sbx_t *sbx, const kg_ip_spawned_t *spawned, int *fds, size_t fd_count);
kg_proc_t *kg_proc_find(kg_sbx_t *sbx, uint64_t token);
void kg_proc_set_exit(kg_proc_t *proc,
                      const kg_exit_t *exit); /* tells the listener; from loop callbacks only */
void kg_proc_set_exit_later(kg_proc_t *proc, const kg_exit_t *exit);
void kg_proc_send_token(kg_sbx_t *sbx, kg_ip_verb_t verb, uint64_t token);

#endif
