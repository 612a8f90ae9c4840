/* One kernel process in a sandbox: start with proof that no output can be lost, its four channels,
 * requests and what belongs to them, interrupt, death. Knows nothing of runs, contexts or clients.
 *
 * All calls return at once. No callback ever runs from inside the call that caused it. Inside any
 * callback every function of this header may be called, on the same kernel and request too. */
#ifndef KG_KERNEL_KERNEL_H
#define KG_KERNEL_KERNEL_H

#include "gateway/kernel/kernelspec.h"
#include "gateway/loop/loop.h"
#include "gateway/sandbox/client.h"
#include "proto/wire.h"

typedef struct kg_kernel kg_kernel_t;
typedef struct kg_request kg_request_t;

#define KG_KERNEL_BIG_BYTES 262144 /* above: checked and prepared on a worker */
#define KG_KERNEL_QUEUED_MAX                                                                       \
    (UINT64_C(256) * 1024 * 1024) /* waiting for the worker: reading pauses above */
#define KG_KERNEL_STDERR_TAIL 4096
#define KG_KERNEL_REQUESTS_MAX                                                                     \
    256 /* unended requests of one kernel: queue_full above. Code, which is one at a time,         \
           is taken nevertheless */

#define KG_KERNEL_NAME_LEN                                                                         \
    10 /* "k" + 8 random characters, with NUL; stem of everything in the run directory */

/* What another gateway needs to take a kernel over. Public plain data. The key is a secret: to be
 * wiped, and kept where the daemon alone can read. It is worth nothing once the kernel has ended.
 */
typedef struct kg_kernel_memo {
    char name[KG_KERNEL_NAME_LEN];
    char session[64];
    char key[65];
    uint64_t token; /* kg_proc_token */
} kg_kernel_memo_t;
bool kg_kernel_memo_valid(const kg_kernel_memo_t *memo);
void kg_kernel_memo_wipe(kg_kernel_memo_t *memo);

typedef enum kg_kernel_state {
    KG_KERNEL_STARTING,
    KG_KERNEL_IDLE,
    KG_KERNEL_BUSY, /* an execute request is under way: from kg_kernel_execute to the request's end
                     */
    KG_KERNEL_DEAD  /* failed to start, exited, or lost; only close is left */
} kg_kernel_state_t;
const char *kg_kernel_state_name(kg_kernel_state_t state);

/* How the process ended. Public plain data. */
typedef struct kg_kernel_exit {
    kg_exit_t proc;
    bool killed_by_us; /* SIGKILL came from kg_kernel_interrupt_or_kill or kg_kernel_kill */
} kg_kernel_exit_t;

/* What the kernel tells its owner. Members may be NULL. Slices and values are borrowed for the
 * call. Exactly one of on_ready and on_failed comes; after on_ready exactly one on_exit, unless the
 * kernel is closed before. */
typedef struct kg_kernel_sink {
    /* content of kernel_info_reply, checked; repaired only when copied out with kg_json_copy */
    void (*on_ready)(void *user, kg_json_value_t kernel_info);
    /* kernel_start_failed or kernel_timeout, with exit status and the end of stderr in the message;
     * more of it by kg_kernel_stderr_tail. The process is being killed already. */
    void (*on_failed)(void *user, const kg_err_t *err);
    /* BUSY as the kernel says so, IDLE right before the on_done of the execute request.
     * kg_kernel_state is ahead of it. */
    void (*on_state)(void *user, kg_kernel_state_t state);
    /* The process's own fd 1 and 2, from birth on, whatever the state. Any bytes, cut anywhere. */
    void (*on_output)(void *user, bool is_stderr, kg_slice_t bytes);
    /* Every iopub message, iopub_welcome too, from before on_ready on and before whom it belongs to
     * gets it. Must not close the kernel. */
    void (*on_iopub)(void *user, const kg_jmsg_t *msg);
    /* iopub message whose parent isn't a request that is still held: late output after release, a
     * client's comm, a bare update_display_data. Never status. */
    void (*on_orphan)(void *user, const kg_jmsg_t *msg);
    /* The process has ended, what it had sent before was delivered, and every request has had its
     * on_done. */
    void (*on_exit)(void *user, const kg_kernel_exit_t *exit);
} kg_kernel_sink_t;

/* Deadlines in ns; 0 = the default in brackets. */
typedef struct kg_kernel_limits {
    uint64_t start_ns;       /* [60 s] from kg_kernel_start to on_ready */
    uint64_t nudge_ns;       /* [0.5 s] kernel_info is asked again when nothing came */
    uint64_t no_reply_ns;    /* [1 s] idle came, the reply did not */
    uint64_t no_idle_ns;     /* [10 s] reply came, idle did not, and nothing else of the request on
                                iopub for so long */
    uint64_t no_idle_max_ns; /* [120 s] the same, whatever else comes */
    uint64_t exit_drain_ns;  /* [50 ms] silence on all channels after the exit before on_exit */
    uint64_t polite_ns;      /* [0.5 s] from shutdown_request to SIGKILL */
} kg_kernel_limits_t;

typedef struct kg_kernel_opts {
    const kg_kernelspec_t *spec; /* borrowed for the call */
    const char *resource_dir;    /* for {resource_dir} in argv; NULL = the word stays */
    const char *prefix;          /* for {prefix}, likewise */
    const char *cwd;             /* NULL = the workspace */
    const char *const
        *env; /* NULL-terminated, complete (spec->env is added, and gives way to it); copied */
    const char *username; /* of our message headers; NULL = "sandal" */
    bool forked;          /* by a zygote, as kg_spawn_opts_t */
    int zygote_sock;      /* with forked: taken, whatever comes of it */
    uint64_t nofile;      /* as kg_spawn_opts_t */
    unsigned umask_bits;
    kg_kernel_limits_t limits;
    /* A kernel that lives is taken over instead: argv, cwd and env of the above don't count. Which
     * says nothing while a cell runs in it, so with left_cell silence is no fault: it is ready a
     * second after the channels are connected. */
    const kg_kernel_memo_t *memo; /* borrowed for the call; NULL = a fresh one */
    bool left_cell;               /* a cell of the gateway before may still run */
} kg_kernel_opts_t;

/* Starts a new incarnation: fresh key, session, identity and connection file. Or takes one over
 * (see memo): on_ready's kernel_info is absent where it was silent, on_failed comes when it has
 * ended (kg_kernel_exit tells how) or does not answer, and is killed then. Output of its fd 1 and 2
 * may come before on_ready. sbx must outlive the kernel until close's done. sink is copied. 0, or
 * the error with no callback to come. */
int kg_kernel_start(kg_loop_t *loop,
                    kg_sbx_t *sbx,
                    const kg_kernel_opts_t *opts,
                    const kg_kernel_sink_t *sink,
                    void *user,
                    kg_kernel_t **ret_kernel,
                    kg_err_t *err);
kg_kernel_state_t kg_kernel_state(const kg_kernel_t *kernel);
/* NULL while it lives, or where its end is not known. Until close. */
const kg_kernel_exit_t *kg_kernel_exit(const kg_kernel_t *kernel);
/* -EPIPE when there is no process. */
int kg_kernel_memo(const kg_kernel_t *kernel, kg_kernel_memo_t *ret_memo);
/* Of a message's parent_id: it is a request of a gateway before the one that took the kernel over.
 */
bool kg_kernel_is_earlier(const kg_kernel_t *kernel, const char *msg_id);
pid_t kg_kernel_pid(const kg_kernel_t *kernel); /* as the host sees it; 0 before the spawn */
/* Last bytes of fd 2, until close; any bytes. */
kg_slice_t kg_kernel_stderr_tail(const kg_kernel_t *kernel);
uint64_t kg_kernel_start_ns(const kg_kernel_t *kernel); /* start to ready; 0 before */

/* Counters since the start, and gauges. Public plain data. */
typedef struct kg_kernel_stats {
    uint64_t iopub_messages;
    uint64_t iopub_bytes;
    uint64_t other_messages;
    uint64_t bad_signature; /* dropped */
    uint64_t malformed;     /* dropped: frames, JSON, caps */
    uint64_t
        unexpected; /* dropped: replies that nobody waits for, unwanted input requests (answered) */
    uint64_t welcomes;     /* iopub_welcome (JEP 65) */
    uint64_t big_messages; /* went over the worker */
    uint64_t queued_bytes; /* now */
    size_t requests;       /* now held: under way, or ended and not released */
} kg_kernel_stats_t;
void kg_kernel_stats(const kg_kernel_t *kernel, kg_kernel_stats_t *ret_stats);

/* ---- requests ---- */

typedef enum kg_request_how {
    KG_REQUEST_DONE,     /* execute, forward: reply and idle; others: reply */
    KG_REQUEST_NO_REPLY, /* execute, forward: idle came, the reply did not */
    KG_REQUEST_NO_IDLE,  /* execute, forward: reply came (and busy), idle did not */
    KG_REQUEST_SILENT,   /* others: no reply by the deadline */
    KG_REQUEST_UNSENT,   /* it waited for an interrupt of the one before it to be over, and was
                            interrupted itself: the kernel never saw it */
    KG_REQUEST_DEAD,     /* the kernel process ended */
    KG_REQUEST_CLOSED    /* kg_kernel_close */
} kg_request_how_t;

/* Public plain data. */
typedef struct kg_request_end {
    kg_request_how_t how;
    bool gap;                     /* channels were suspended meanwhile: output may be missing */
    const kg_kernel_exit_t *exit; /* with DEAD; borrowed for the call */
} kg_request_end_t;

/* What comes for one request. Members may be NULL. */
typedef struct kg_request_sink {
    /* Pure work on one message (made canonical, sized, cut …): on a worker thread for messages over
     * KG_KERNEL_BIG_BYTES, on the loop else. Sees only the message and prepare_arg. */
    void *(*prepare)(const void *prepare_arg, const kg_jmsg_t *msg);
    void (*prepared_free)(void *prepared); /* for what could not be delivered any more */
    const void *prepare_arg;
    /* Runs once, when prepare can run no more: inside kg_request_release, or after it, when a
     * worker was still at it. Must not call back. */
    void (*prepare_arg_free)(const void *prepare_arg);
    /* For an iopub message of many MiB, whose signature takes long to check: a place for what can
     * be done meanwhile. Asked on the loop, when all before the message was delivered; NULL =
     * nothing. ahead runs on the worker with what prepare gave, before it is known whether the
     * message may be believed: whatever it does must be as if it had never been when `prepared` is
     * freed. place_free: on the loop, when the message was delivered or dropped, be it after
     * release. */
    void *(*place)(void *user);
    void (*ahead)(void *place, void *prepared);
    void (*place_free)(void *place);
    /* Only for a request that had to wait (see kg_kernel_interrupt): it has been sent now. */
    void (*on_sent)(void *user);
    /* Every message with this request as parent, in the order of its channel: SHELL (or CONTROL)
     * the reply, IOPUB everything incl. status and what comes after on_done until release, STDIN
     * input_request. prepared is the callee's. An input_request of a request without allow_stdin is
     * answered with an empty line here and not delivered. */
    void (*on_message)(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take);
    /* Once, after everything on iopub up to idle was delivered. */
    void (*on_done)(void *user, const kg_request_end_t *end);
} kg_request_sink_t;

typedef struct kg_kernel_execute {
    kg_slice_t code; /* UTF-8 without U+0000 */
    bool silent;
    bool store_history;
    bool allow_stdin;
    /* Keep it false: nothing is queued in the kernel that it could stop, and true makes ipykernel
     * abort a request that comes right after an error. */
    bool stop_on_error;
    kg_slice_t user_expressions; /* raw JSON object, or absent */
    kg_slice_t metadata;         /* likewise */
} kg_kernel_execute_t;

/* One at a time: KG_ERR_BUSY while another is under way; KG_ERR_STARTING before ready,
 * KG_ERR_CONFLICT when suspended or dead. sink is copied. The request lives until released. */
int kg_kernel_execute(kg_kernel_t *kernel,
                      const kg_kernel_execute_t *args,
                      const kg_request_sink_t *sink,
                      void *user,
                      kg_request_t **ret_request,
                      kg_err_t *err);

/* Requests that may be sent at any time after ready (while a cell runs, kernels answer those on
 * shell after it). deadline_ns counts from now; then SILENT. cursor in code points. */
typedef enum kg_ask_what {
    KG_ASK_COMPLETE,
    KG_ASK_INSPECT,
    KG_ASK_IS_COMPLETE,
    KG_ASK_HISTORY,
    KG_ASK_COMM_INFO,
    KG_ASK_KERNEL_INFO
} kg_ask_what_t;
typedef struct kg_kernel_ask {
    kg_ask_what_t what;
    kg_slice_t code;
    size_t cursor;   /* COMPLETE, INSPECT */
    unsigned detail; /* INSPECT: 0 or 1; HISTORY: how many */
    bool on_control; /* KERNEL_INFO: answered while a cell runs, by kernels that can */
    uint64_t deadline_ns;
} kg_kernel_ask_t;
int kg_kernel_ask(kg_kernel_t *kernel,
                  const kg_kernel_ask_t *ask,
                  const kg_request_sink_t *sink,
                  void *user,
                  kg_request_t **ret_request,
                  kg_err_t *err);

/* A message of a client's (proto/client_msg.h), sent at any time after ready. While a cell runs it
 * waits in the kernel with no deadline; else it ends SILENT when nothing at all came for it within
 * 2 s, or no reply 60 s after the kernel's last word on it, and NO_REPLY when idle came without
 * one, NO_IDLE when busy and a reply came and within 2 s no idle. */
typedef struct kg_kernel_forward {
    kg_channel_t channel; /* SHELL or CONTROL */
    const char *msg_type;
    const char *subshell_id; /* with SHELL: one that the kernel has; NULL or "": the main shell */
    kg_slice_t metadata;     /* canonical JSON objects, complete */
    kg_slice_t content;
    const kg_slice_t *buffers;
    size_t buffer_count;
    bool no_reply; /* comm messages: idle ends it, DONE */
} kg_kernel_forward_t;
int kg_kernel_forward(kg_kernel_t *kernel,
                      const kg_kernel_forward_t *forward,
                      const kg_request_sink_t *sink,
                      void *user,
                      kg_request_t **ret_request,
                      kg_err_t *err);
/* Of a message id: this kernel's gateway, or one before it, made the request. */
bool kg_kernel_is_ours(const kg_kernel_t *kernel, const char *msg_id);

const char *kg_request_msg_id(const kg_request_t *request);
bool kg_request_is_sent(const kg_request_t *request);
/* Ends the interest: no callback after it, later messages go to on_orphan. What runs in the kernel
 * goes on; the kernel stays BUSY until it has ended. NULL ok; NULLs the pointer. Must be called for
 * every request, also after close (before its done). */
void kg_request_release(kg_request_t **request);

/* Answers an input_request: parent_header is msg->header.raw of that request. -EPIPE when not
 * connected. */
int kg_kernel_input_reply(kg_kernel_t *kernel, kg_slice_t value, kg_slice_t parent_header);

/* ---- interrupt, suspend, end ---- */

/* First rung only: interrupt_request or SIGINT to the group, by the kernelspec's interrupt_mode;
 * and a few kernel_info_requests on shell after it, which wake a sleeping event loop. -EALREADY,
 * and nothing is sent, when no execute request is under way; -EPIPE when dead or suspended. 0, and
 * nothing is sent, when the request has its reply already.
 *
 * It may still miss: the request ends by itself meanwhile. So that it can't hit the next one,
 * requests on shell that are made after the end wait until the kernel has taken it (a round trip
 * or two, at most 2 s): kg_kernel_execute succeeds, the state is BUSY, on_sent tells. What the
 * process writes to fd 1 and 2 until then comes before on_sent, and belongs to the request before.
 * An execute request that is interrupted while it waits is never sent, and ends UNSENT. */
int kg_kernel_interrupt(kg_kernel_t *kernel);
/* The whole ladder: interrupt; when the execute request of now has not ended after grace_ns (0 = 2
 * s), SIGKILL to the tree, and on_exit says killed_by_us. A second call may shorten the grace,
 * never lengthen it. */
int kg_kernel_interrupt_or_kill(kg_kernel_t *kernel, uint64_t grace_ns);
/* SIGKILL to the tree now; on_exit follows. */
int kg_kernel_kill(kg_kernel_t *kernel);

/* Closes the four channels after what has arrived was delivered. A reply or output that the kernel
 * sends while suspended is lost, so freeze it around a gap that must lose nothing. Requests that
 * are under way stay. done runs when the sockets are closed. KG_ERR_CONFLICT when not ready, dead,
 * or suspended already. */
int kg_kernel_suspend(kg_kernel_t *kernel, kg_done_fn *done, void *user, kg_err_t *err);
/* Opens them again under the same identities and proves the subscription again, on control alone
 * while a cell runs. done: NULL, or kernel_timeout / kernel_protocol (still suspended then). An
 * execute request that ended in the gap is found out by one request queued behind it on shell, and
 * ends NO_REPLY with gap. */
int kg_kernel_resume(kg_kernel_t *kernel, kg_done_fn *done, void *user, kg_err_t *err);
bool kg_kernel_is_suspended(const kg_kernel_t *kernel);

/* For a process that is frozen: none of its deadlines (start, answers, interrupt) passes between
 * the two. Idempotent. */
void kg_kernel_stop_clock(kg_kernel_t *kernel);
void kg_kernel_start_clock(kg_kernel_t *kernel);

/* As kg_proc_usage. -EPIPE without a process. */
int kg_kernel_usage(kg_kernel_t *kernel, kg_usage_fn *fn, void *user);

typedef enum kg_kernel_close_mode {
    KG_KERNEL_CLOSE_POLITE, /* shutdown_request, SIGKILL to the tree 0.5 s later */
    KG_KERNEL_CLOSE_NOW     /* SIGKILL to the tree */
} kg_kernel_close_mode_t;
/* Ends the kernel in any state. No callback of the kernel's sink after it; requests that are under
 * way and not released get on_done CLOSED. done (may be NULL) runs last, when the process is gone,
 * its sockets are closed and its files removed. NULL ok; NULLs the pointer. */
void kg_kernel_close(kg_kernel_t **kernel, kg_kernel_close_mode_t mode, kg_fn *done, void *user);

#endif
