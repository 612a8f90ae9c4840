/* Inner header of attach*.c: what a context has for the clients at its kernel, and what the room's
 * other files tell it. */
#ifndef KG_CONTEXT_ATTACH_INTERNAL_H
#define KG_CONTEXT_ATTACH_INTERNAL_H

#include "gateway/context/attach.h"
#include "gateway/context/internal.h"
#include "proto/client_msg.h"

enum {
    KG_PARENTS_MAX = 256,      /* requests whose late output still finds its client's header */
    KG_SEEN_MAX = 1024,        /* requests that are known when they are sent again */
    KG_FORWARDS_WAIT_MAX = 64, /* messages that wait for a kernel */
    /* With it and unanswered; with those that wait fewer than KG_KERNEL_REQUESTS_MAX, so that there
     * is room for what others ask. */
    KG_FORWARDS_SENT_MAX = 128,
    KG_SUBSHELLS_MAX = 64,    /* at one kernel: each is a thread of its */
    KG_INPUT_LEFT_MS = 5000,  /* a run waits for the input of a client that has left */
    KG_INPUT_AWAY_MS = 30000, /* that may come back */
};
#define KG_FORWARDS_WAIT_BYTES ((size_t)32 * 1024 * 1024) /* of those that wait */

/* Under which header a client knows what the kernel got as msg_id. */
typedef struct kg_parent {
    UT_hash_handle hh; /* by the msg_id; oldest first */
    kg_slice_t header; /* in text */
    bool forward;      /* no run */
    char text[];       /* the msg_id, NUL, the header */
} kg_parent_t;

/* A message of a client's that is with the kernel, or waits for one. */
typedef struct kg_forward {
    kg_context_t *context;
    kg_attach_t *attach;   /* NULL: it has left */
    kg_request_t *request; /* NULL: it waits */
    bool answered;         /* what is missing is idle */
    kg_client_msg_t msg;
    kg_buf_t bytes; /* of its buffers, while it waits */
    kg_slice_t *slices;
    size_t kept; /* what it counts for in waiting_bytes */
    struct kg_forward *prev, *next;
} kg_forward_t;

typedef struct kg_away kg_away_t;           /* attach_away.c */
typedef struct kg_seen kg_seen_t;           /* attach_seen.c */
typedef struct kg_subshells kg_subshells_t; /* attach_subshell.c */

struct kg_attach {
    kg_context_t *context; /* NULL: it was told the end */
    kg_attach_sink_t sink;
    void *user;
    char who[KG_ID_MAX];
    uint64_t serial; /* of its context */
    kg_away_t *away; /* what it misses is kept */
    bool expects_restart;
    kg_attach_t *prev, *next;
};

struct kg_bridge {
    kg_attach_t *attaches;
    unsigned count;       /* of them, but for: */
    unsigned left;        /* who have no connection and may come back */
    unsigned hears;       /* of those that count: they are no clients */
    kg_parent_t *parents; /* uthash */
    kg_seen_t *seen;      /* NULL: none yet */
    uint64_t serial;      /* of the latest client */
    kg_forward_t *forwards;
    unsigned waiting, sent; /* of them */
    size_t waiting_bytes;
    char voice[KG_MSG_ID_MAX]; /* session of the latest kernel's messages */
    uint64_t said;
};

/* What a run is for the client that asked for it. */
struct kg_run_client {
    kg_attach_t *attach; /* NULL: it has left */
    kg_buf_t header;
    kg_buf_t user_expressions;
    kg_buf_t metadata;
    kg_buf_t question; /* content of its latest input_request */
    bool silent, store_history, stop_on_error;
    bool replied;
    kg_timer_t *nobody; /* it has left, and the run waits for its input */
};

/* ---- attach_out.c ---- */

/* To one client or (NULL) to all. */
void kg_bridge_deliver(const kg_context_t *context, kg_attach_t *to, const kg_ws_msg_t *msg);
/* In the kernel's voice, to one client or (NULL) to all. */
void kg_bridge_say(kg_context_t *context,
                   kg_attach_t *to,
                   kg_channel_t channel,
                   const char *msg_type,
                   kg_slice_t parent,
                   kg_slice_t content);
void kg_bridge_status(kg_context_t *context, kg_attach_t *to, const char *state, kg_slice_t parent);
/* An idle of the gateway's own, which must not hide that a cell runs. */
void kg_bridge_idle(kg_context_t *context, kg_attach_t *to, kg_slice_t parent);
/* What the gateway answers itself: busy, the reply, idle. to may be NULL: nothing is said. */
void kg_bridge_answer(kg_context_t *context,
                      kg_attach_t *to,
                      kg_channel_t channel,
                      const char *request_type,
                      kg_slice_t parent,
                      kg_slice_t content);
/* The same with what went wrong. */
void kg_bridge_refuse(kg_context_t *context,
                      kg_attach_t *to,
                      kg_channel_t channel,
                      const char *request_type,
                      kg_slice_t parent,
                      const kg_err_t *err);
/* A message of the kernel's, as it is but for its parent. */
void kg_bridge_pass(kg_context_t *context,
                    kg_attach_t *to,
                    kg_channel_t channel,
                    const kg_jmsg_t *msg,
                    const kg_slice_t *parent);
/* The kernel got it as msg_id; forward: it is no run. */
void kg_bridge_note(kg_context_t *context, const char *msg_id, kg_slice_t header, bool forward);
bool kg_bridge_is_forward(const kg_context_t *context, const char *msg_id);
const char *kg_bridge_state(const kg_context_t *context); /* an execution_state */
/* KG_CLIENT_DEBUGGER …: what the kernel said that it has; 0 before that (attach.c). */
unsigned kg_bridge_features(const kg_context_t *context);

/* ---- attach_away.c ---- */

bool kg_attach_is_left(const kg_attach_t *attach); /* it belongs to the context */
void kg_away_destroy(kg_away_t **away);            /* NULL ok; NULLs the pointer */

/* ---- attach_seen.c ---- */

/* It was carried out; run: what it became, or NULL. */
void kg_seen_note(const kg_attach_t *attach, const kg_client_msg_t *msg, const kg_run_t *run);
/* True: it was before, and is not to be carried out again. Its answer is this attach's now: it is
 * still to come, or was given, or is given here. */
bool kg_seen_before(kg_attach_t *attach, const kg_client_msg_t *msg);
void kg_seen_free(kg_bridge_t *bridge);

/* ---- attach_subshell.c ---- */

/* The kernel has answered one of the three requests that are about subshells. */
void kg_subshell_reply(kg_inc_t *inc, const kg_client_msg_t *asked, const kg_jmsg_t *reply);
/* Nothing is to go there any more. */
void kg_subshell_ended(kg_inc_t *inc, const char *id);
/* quota_exceeded: a CREATE_SUBSHELL above KG_SUBSHELLS_MAX, with those that are being made. */
int kg_subshell_check_room(const kg_context_t *context, const kg_client_msg_t *msg, kg_err_t *err);
/* It names a subshell, and which there are is still being asked. */
bool kg_subshell_waits(const kg_context_t *context, const kg_client_msg_t *msg);
/* For a message to the kernel that is there now. NULL: the main shell, where kernels go that have
 * no subshells, and a kernel_info_request, which is about the kernel. not_found: it names another.
 */
int kg_subshell_choose(const kg_context_t *context,
                       const kg_client_msg_t *msg,
                       const char **ret_id,
                       kg_err_t *err);
void kg_subshells_ask(kg_inc_t *inc); /* of an adopted kernel, which is ready */
void kg_subshells_free(kg_inc_t *inc);

/* ---- told by the room's other files ---- */

void kg_bridge_iopub(kg_inc_t *inc, const kg_jmsg_t *msg);
void kg_bridge_text(kg_inc_t *inc, bool is_stderr, kg_slice_t utf8); /* of its fd 1 and 2 */
void kg_bridge_ready(kg_inc_t *inc, kg_json_value_t info);
void kg_bridge_cell_over(kg_context_t *context); /* one that no run stood for */
void kg_bridge_pump(kg_context_t *context);      /* what waits may go */
void kg_bridge_kernel_closed(kg_context_t *context, bool was_ready);
void kg_bridge_dead(kg_context_t *context, const kg_err_t *why); /* no kernel could be started */
void kg_bridge_forget(kg_bridge_t *bridge);                      /* all messages, unanswered */
void kg_bridge_end(kg_context_t *context, bool deleted);
void kg_bridge_free(kg_context_t *context);

/* A copy, without its attach if that is none of this context. NULL: OOM. */
kg_run_client_t *kg_run_client_new(const kg_run_client_opts_t *opts);
void kg_run_client_destroy(kg_run_client_t **client);
/* Its client is another attach from now on; a question that waits is put to it. */
void kg_run_client_take(kg_run_t *run, kg_attach_t *attach);
/* Not on iopub: its reply, or a question. */
void kg_run_client_message(kg_run_t *run, kg_channel_t channel, const kg_jmsg_t *msg);
/* It asks for input; or its client has left, or is back. */
void kg_run_client_waits(kg_run_t *run);
/* Nobody is left who could answer its input(): the end of the file, or of the run (run_input.c). */
void kg_run_input_left(kg_run_t *run);
/* It has ended, however: what the kernel did not say of it is said. Destroys the client. */
void kg_run_client_ended(kg_run_t *run);

#endif
