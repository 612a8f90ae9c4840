/* Clients at a context's kernel itself, message by message, as Jupyter's channels are. Whatever the
 * kernel publishes goes to all of them, in one order; replies and questions for input to the one
 * that asked. What they send is checked and completed (proto/client_msg.h); an execute_request is a
 * run like any other. Attached clients keep neither the kernel nor its sandbox alive. */
#ifndef KG_CONTEXT_ATTACH_H
#define KG_CONTEXT_ATTACH_H

#include "gateway/context/context.h"
#include "proto/ws_msg.h"

#define KG_ATTACH_MAX 64 /* clients at one context */
#define KG_AWAY_MAX 16   /* that are away from one context */
#define KG_AWAY_NAME_MAX 160
#define KG_AWAY_TOTAL_BYTES                                                                        \
    ((size_t)256 << 20) /* kept for all who are away, in the whole daemon                          \
                         */

typedef struct kg_attach kg_attach_t;

/* A connection of many clients that hear one publication attaches once to hear it, and once more
 * for each client. */
typedef enum kg_attach_part {
    KG_ATTACH_WHOLE,
    KG_ATTACH_HEARS, /* what goes to all, and does not count as a client */
    KG_ATTACH_ASKS,  /* what is said to it alone, on whatever channel */
} kg_attach_part_t;

/* Members are needed. None of them may close an attach from inside. */
typedef struct kg_attach_sink {
    kg_attach_part_t part;
    /* In whose name it asks: a request that is sent again is known only under the same. Copied, cut
     * at KG_ID_MAX; NULL: "". */
    const char *who;
    /* Of the kernel, or of the gateway in its voice; the parts are strict JSON in UTF-8. Borrowed
     * for the call. */
    void (*on_message)(void *user, const kg_ws_msg_t *msg);
    /* The client asks for a shutdown. Not 0, and err: it may not. Else it is answered, and
     * on_shutdown follows: what it comes to is the caller's. */
    int (*may_shutdown)(void *user, bool restart, kg_err_t *err);
    void (*on_shutdown)(void *user, bool restart);
    /* The context was deleted, or else the daemon stops. The attach is still to be closed; nothing
     * comes any more. */
    void (*on_end)(void *user, bool deleted);
} kg_attach_sink_t;

/* quota_exceeded above KG_ATTACH_MAX, among which KG_ATTACH_HEARS does not count. sink is copied.
 */
int kg_attach_open(kg_context_t *context,
                   const kg_attach_sink_t *sink,
                   void *user,
                   kg_attach_t **ret_attach,
                   kg_err_t *err);
/* What it asked for goes on. NULL ok; NULLs the pointer. */
void kg_attach_close(kg_attach_t **attach);

/* Public plain data. */
typedef struct kg_away_opts {
    const char *name; /* by which it comes back: hard to guess, below KG_AWAY_NAME_MAX. Copied */
    uint64_t for_ms;  /* how long it is waited for */
    size_t bytes;     /* what is kept; above it the oldest output is dropped, which is said */
} kg_away_opts_t;

/* The client cannot be reached, but may come back: its sink hears nothing any more, and what it
 * would have heard is kept. Legal inside on_message of the same attach. -ENOMEM, -ENOENT (it was
 * told the end): as before. */
int kg_attach_keep(kg_attach_t *attach, const kg_away_opts_t *opts);
/* What it was given before, and did not get; after kg_attach_keep. Copied. */
void kg_attach_missed(kg_attach_t *attach, const kg_ws_msg_t *msg);
/* Its connection has gone: in place of kg_attach_close. What it asked for goes on and stays its own
 * until it comes back, was away for too long, or longer than KG_AWAY_MAX others. Without
 * kg_attach_keep it is closed. NULL ok; NULLs the pointer. */
void kg_attach_leave(kg_attach_t **attach);
/* attach is that of a new connection. True: a client of this name had left; *attach is its own
 * again, with the new one's sink, which has heard what was kept. */
bool kg_attach_return(kg_attach_t **attach, const char *name);

/* Tells it whether the kernel is busy, starting, dead, by a status message. */
void kg_attach_greet(kg_attach_t *attach);
/* The client is about to restart the kernel, by another way than this attach: to it that is no
 * kernel that died, and its status is starting, not restarting. For one restart, or until it is
 * taken back. */
void kg_attach_expect_restart(kg_attach_t *attach, bool expected);
/* A message of the client's; frame is borrowed. What is wrong with it is answered by a message,
 * unless nobody can be: -EBADMSG, -E2BIG, and err (invalid_frame). */
int kg_attach_send(kg_attach_t *attach, const kg_ws_msg_t *frame, kg_err_t *err);

/* The same, but that it is not carried out: it is answered with refusal, if it can be. */
int kg_attach_refuse(kg_attach_t *attach,
                     const kg_ws_msg_t *frame,
                     const kg_err_t *refusal,
                     kg_err_t *err);
/* Nothing that it asked for is under way. */
bool kg_attach_idle(const kg_attach_t *attach);
/* A run of its waits for its input; and it gets the question once more. */
bool kg_attach_is_asked(const kg_attach_t *attach);
void kg_attach_ask_again(kg_attach_t *attach);
/* A message of the gateway in the kernel's voice. parent and content: JSON objects. */
void kg_attach_say(kg_attach_t *attach,
                   kg_channel_t channel,
                   const char *msg_type,
                   kg_slice_t parent,
                   kg_slice_t content);

unsigned kg_context_attached(const kg_context_t *context);

#endif
