/* Inner header of the kernel room: the kernel's state, shared by its files. Nothing outside the
 * room includes it. */
#ifndef KG_KERNEL_INTERNAL_H
#define KG_KERNEL_INTERNAL_H

#include "gateway/base/clock.h"
#include "gateway/kernel/kernel.h"
#include "gateway/loop/zchan.h"
#include "proto/request.h"

#define KG_CHANNELS 4

/* Where the process is. */
typedef enum kg_life {
    KG_LIFE_SPAWNING, /* connection file, then spawn, under way */
    KG_LIFE_RUNNING,
    KG_LIFE_EXITED, /* exit known, what it sent before is being delivered */
    KG_LIFE_ENDED   /* told */
} kg_life_t;

/* Where the four sockets are. */
typedef enum kg_link_state {
    KG_LINK_DOWN,
    KG_LINK_OPENING, /* waiting for the kernel to bind */
    KG_LINK_PROVING, /* connected; kernel_info asked until a reply and an iopub message came */
    KG_LINK_UP,
    KG_LINK_DRAINING, /* to be suspended as soon as nothing comes any more */
    KG_LINK_CLOSING   /* sockets are being closed for the suspension */
} kg_link_state_t;

typedef struct kg_chan {
    kg_kernel_t *kernel;
    kg_channel_t channel;
    kg_zchan_t *zchan;
    int fd; /* O_PATH of the socket, until a second after the proof */
} kg_chan_t;

typedef struct kg_link {
    kg_link_state_t state;
    kg_chan_t chans[KG_CHANNELS]; /* by kg_channel_t */
    kg_timer_t *timer;    /* next look for sockets, nudge, drain tick, closing of descriptors */
    kg_timer_t *deadline; /* of start or resume */
    kg_buf_t info;        /* content of the kernel_info_reply, until told */
    bool got_reply;
    bool got_iopub;
    unsigned closing;  /* sockets whose close is under way */
    uint64_t since_ns; /* of the connect, or of the suspension's drain */
    kg_done_fn *done;  /* of suspend or resume */
    void *done_user;
} kg_link_t;

/* Messages in order; those over KG_KERNEL_BIG_BYTES go over the worker, the ones behind wait for
 * them. */
typedef struct kg_big kg_big_t;
typedef struct kg_inbox_item {
    struct kg_inbox_item *next;
    kg_zmsg_t *zmsg;
    kg_channel_t channel;
    kg_big_t *big; /* NULL: small, read when its turn comes */
} kg_inbox_item_t;

typedef struct kg_inbox {
    kg_inbox_item_t *head;
    kg_inbox_item_t *tail;
    bool pumping; /* a later() is on its way, or the pump is running */
} kg_inbox_t;

struct kg_request {
    kg_kernel_t *kernel; /* NULL when the kernel is gone */
    kg_request_t *next;
    kg_request_t *prev;
    kg_request_sink_t sink;
    void *user;
    char msg_id[KG_MSG_ID_MAX];
    bool execute;
    bool forward;  /* a client's */
    bool no_reply; /* with forward: idle is its end */
    bool shell;    /* sent there */
    bool allow_stdin;
    bool replied;
    bool idled;
    bool ended;
    bool released;
    bool gap;
    bool unsent;    /* waits in out for the barrier */
    bool cancelled; /* unsent, interrupted: ends in the next turn */
    bool begun;     /* execute_input came */
    bool early;     /* interrupted before that */
    kg_out_t out;
    bool overdue;  /* deadline passed once; ends at the next look, after what waits in the sockets
                      had its turn */
    unsigned hold; /* callbacks that run now */
    uint64_t deadline_ns; /* 0 = none */
    uint64_t replied_ns;
    uint64_t iopub_ns; /* last message */
};

/* Between an interrupt and the next request: barrier.c. */
typedef struct kg_barrier {
    kg_timer_t *timer;
    bool up;                   /* an interrupt was sent, and is not known to have been taken */
    unsigned acks_due;         /* interrupts that are not known to have arrived */
    char probe[KG_MSG_ID_MAX]; /* kernel_info that was sent after they had, unanswered */
    uint64_t since_ns;         /* end of the interrupted request */
} kg_barrier_t;

typedef struct kg_pipe {
    kg_kernel_t *kernel;
    kg_fdwatch_t *watch;
    int fd;
    bool is_stderr;
} kg_pipe_t;

struct kg_kernel {
    kg_loop_t *loop;
    kg_sbx_t *sbx;
    kg_kernel_sink_t sink;
    void *user;
    kg_kernel_limits_t limits;
    kg_interrupt_mode_t interrupt_mode;
    bool plain_output;
    char name[KG_KERNEL_NAME_LEN];
    kg_session_t session;
    char identity[96]; /* of our sockets: the session, of one taken over with a number */
    char key[65];      /* of the session, for the memo */

    kg_life_t life;
    kg_proc_t *proc;
    pid_t pid;
    kg_kernel_exit_t exit;
    uint64_t started_ns;
    uint64_t ready_ns;
    uint64_t exit_ns;
    uint64_t number_before;     /* with adopted: the gateways before have given no higher one */
    struct kg_spawn_plan *plan; /* until the spawn */
    int zygote_sock;            /* until then too; -1 = it is executed */

    kg_link_t link;
    kg_inbox_t inbox_iopub;
    kg_inbox_t inbox_other;
    kg_workq_t *workq; /* from the first big message on */
    kg_workq_t *tidyq; /* frees such, beside it */
    uint64_t last_message_ns;
    uint64_t quiet_mark_ns; /* last_message_ns at the latest look for silence */
    unsigned quiet_ticks;   /* looks in a row that saw nothing new */
    unsigned wakes;         /* after an interrupt */
    uint64_t logged_bad;    /* bad messages up to the last log line */

    kg_request_t *requests; /* newest first */
    kg_request_t *running;  /* the execute request under way */
    char gap_probe[KG_MSG_ID_MAX];
    kg_timer_t *request_timer;
    uint64_t request_timer_ns; /* when it fires; 0 = not armed */
    kg_timer_t *kill_timer;    /* interrupt ladder, polite close, waiting for a killed process */
    uint64_t kill_at_ns;
    uint64_t stopped_ns;    /* since when its clock stands still; 0 = it goes */
    kg_timer_t *wake_timer; /* after an interrupt */
    kg_barrier_t barrier;
    kg_timer_t *drain_timer;

    kg_pipe_t pipes[2];
    char tail[KG_KERNEL_STDERR_TAIL];
    size_t tail_len;
    kg_kernel_stats_t stats;

    unsigned refs;   /* asynchronous things that still know this kernel */
    bool adopted;    /* an earlier gateway started it */
    bool left_cell;  /* until ready: a cell of that one's may run */
    bool told_start; /* on_ready or on_failed has run */
    bool failed;
    bool killed;
    bool paused;
    bool closing;
    bool torn;
    kg_fn *close_done;
    void *close_user;
};

/* An execute request is in the kernel: sent, not ended. */
static inline bool kg_kernel_cell_runs(const kg_kernel_t *k)
{
    return k->left_cell || (k->running && !k->running->unsent);
}

/* spawn_plan.c: pure */
typedef struct kg_spawn_plan {
    char **argv;
    char **env;
    char *cwd;
    uint64_t nofile;
    unsigned umask_bits;
} kg_spawn_plan_t;
/* run_file is the path of the connection file as the kernel sees it. */
int kg_spawn_plan_make(const kg_kernel_opts_t *opts,
                       const char *run_file,
                       kg_spawn_plan_t **ret_plan,
                       kg_err_t *err);
void kg_spawn_plan_destroy(kg_spawn_plan_t **plan);

/* start.c */
int kg_kernel_start_begin(kg_kernel_t *k, const kg_kernel_opts_t *opts, kg_err_t *err);
int kg_kernel_adopt_begin(kg_kernel_t *k,
                          const kg_kernel_opts_t *opts,
                          kg_err_t *err);   /* adopt.c */
void kg_kernel_start_ready(kg_kernel_t *k); /* by link.c */
void kg_kernel_start_failed(
    kg_kernel_t *k, const kg_err_t *err); /* tells, kills; the tail of stderr is added here */

/* kernel.c */
void kg_kernel_on_proc_exit(void *user, const kg_exit_t *exit);
int kg_kernel_kill_tree(kg_kernel_t *k);
void kg_kernel_close_goes_on(
    kg_kernel_t *k); /* by start.c, when what the close waited for has come */
void kg_kernel_ref(kg_kernel_t *k);
void kg_kernel_unref(kg_kernel_t *k);

/* link.c */
int kg_link_init(kg_kernel_t *k);
void kg_link_fini(kg_kernel_t *k); /* timers */
void kg_link_begin(kg_kernel_t *k, uint64_t deadline_ns);
void kg_link_close(
    kg_kernel_t *k); /* at once, from any state; a waiting suspend or resume gets its error later */
void kg_link_on_iopub(kg_kernel_t *k);
void kg_link_on_info(kg_kernel_t *k, const kg_jmsg_t *msg);
int kg_link_send(kg_kernel_t *k,
                 kg_channel_t channel,
                 const kg_out_t *out); /* -EPIPE when not connected */
int kg_link_send_info(kg_kernel_t *k, kg_channel_t channel, char *ret_msg_id);
void kg_link_pause(kg_kernel_t *k, bool paused);

/* inbox.c */
void kg_inbox_message(kg_zchan_t *zchan,
                      kg_zmsg_t *zmsg,
                      void *user); /* kg_zchan_fn, user = kg_chan_t */
bool kg_inbox_empty(const kg_kernel_t *k);
/* Called once a tick: true when nothing came in the last `ticks` of them and nothing waits. Counts
 * turns, not time: a process that was not run for a while has messages it didn't read. */
bool kg_inbox_quiet(kg_kernel_t *k, unsigned ticks);
void kg_inbox_clear(kg_kernel_t *k); /* drops what waits; jobs that run end by themselves */

/* router.c */
void kg_router_deliver(kg_kernel_t *k,
                       kg_channel_t channel,
                       const kg_jmsg_t *msg,
                       void *prepared,
                       void (*prepared_free)(void *));
void kg_router_bad(kg_kernel_t *k, kg_channel_t channel, int rc);

/* forward.c */
void kg_forward_on_idle(kg_request_t *req);
void kg_forward_on_reply(kg_request_t *req); /* idle is still to come */
/* Of what is no code: as what it ends when it waits no longer. */
kg_request_how_t kg_forward_missing(const kg_request_t *req);
/* Its deadline has passed: true when it is to be waited for on, and a new one is set. */
bool kg_forward_goes_on(kg_request_t *req, uint64_t now);

/* request.c */
/* Whether anything can be sent now. */
int kg_request_sendable(const kg_kernel_t *k, kg_err_t *err);
/* The same of what is no code: of that there may be so much. */
int kg_request_askable(const kg_kernel_t *k, kg_err_t *err);
/* A request of its own for out, sent; empties out when the message has to wait for the barrier. */
int kg_request_new(kg_kernel_t *k,
                   kg_channel_t channel,
                   kg_out_t *out,
                   const kg_request_sink_t *sink,
                   void *user,
                   kg_request_t **ret_request,
                   kg_err_t *err);
kg_request_t *kg_request_find(const kg_kernel_t *k, const char *msg_id);
void kg_request_hold(kg_request_t *req);
void kg_request_drop(kg_request_t *req); /* undoes hold, frees what was released meanwhile */
void kg_request_on_reply(kg_request_t *req);
void kg_request_on_idle(kg_request_t *req);
void kg_request_end(kg_request_t *req, kg_request_how_t how);
void kg_request_end_all(kg_kernel_t *k, kg_request_how_t how);
void kg_request_set_deadline(kg_request_t *req, uint64_t at_ns);
void kg_request_timer_fired(void *user);
void kg_request_gap_closed(
    kg_kernel_t *k); /* shell answered the request behind the one of the gap */

/* interrupt.c */
void kg_interrupt_begun(kg_request_t *req); /* execute_input came */
void kg_interrupt_wake(void *user);         /* of the timer */
void kg_interrupt_over(kg_kernel_t *k);     /* what was to be interrupted has ended */

/* barrier.c */
void kg_barrier_raise(kg_kernel_t *k); /* an interrupt was sent */
void kg_barrier_acked(kg_kernel_t *k); /* one has arrived */
void kg_barrier_on_info(kg_kernel_t *k, const char *parent_id);
void kg_barrier_request_over(kg_kernel_t *k);              /* the interrupted request has ended */
void kg_barrier_link_up(kg_kernel_t *k);                   /* resumed */
bool kg_barrier_holds(const kg_kernel_t *k);               /* what goes out on shell must wait */
void kg_barrier_cancel(kg_kernel_t *k, kg_request_t *req); /* an unsent execute request */
void kg_barrier_drop(kg_kernel_t *k);
void kg_barrier_timer_fired(void *user);

/* output.c */
int kg_output_open(kg_kernel_t *k);
void kg_output_drain(kg_kernel_t *k);      /* what is in the pipes now */
void kg_output_last_words(kg_kernel_t *k); /* once, after all that the process had sent */
void kg_output_close(kg_kernel_t *k);

#endif
