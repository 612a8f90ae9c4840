/* One ZeroMQ socket on the loop: uv_poll on ZMQ_FD marks it dirty, one drain reads <= 64 messages
 * or about 512 KiB a turn (reference event-loop.md 5.3). Sends never block; what does not fit is
 * queued and sent later, never cut inside a message. */
#ifndef KG_LOOP_ZCHAN_H
#define KG_LOOP_ZCHAN_H

#include "gateway/base/buf.h"
#include "gateway/loop/loop.h"

#define KG_ZCHAN_BUDGET 64               /* messages that one turn reads … */
#define KG_ZCHAN_BUDGET_BYTES (1u << 19) /* … until they have so many bytes */
#define KG_ZCHAN_SENDQ_MAX (256u << 20)  /* bytes held here when libzmq takes no more */

typedef enum kg_zchan_type {
    KG_ZCHAN_DEALER,
    KG_ZCHAN_SUB,
    KG_ZCHAN_ROUTER,
    KG_ZCHAN_PUB,
    KG_ZCHAN_REP,
    /* Each subscription and unsubscription comes as a message of one frame, 1 or 0 and the topic;
     * also the unsubscriptions of those who have gone, which have no kg_zchan_peer. Nobody hears
     * anything before it has a kg_zsub_t. */
    KG_ZCHAN_XPUB
} kg_zchan_type_t;

typedef struct kg_zchan kg_zchan_t;

/* A received multipart message, reference counted, so that it can travel to a worker. */
typedef struct kg_zmsg kg_zmsg_t;
const kg_slice_t *kg_zmsg_frames(const kg_zmsg_t *msg, size_t *ret_count);
size_t kg_zmsg_bytes(const kg_zmsg_t *msg);
kg_zmsg_t *kg_zmsg_ref(kg_zmsg_t *msg);
void kg_zmsg_unref(kg_zmsg_t **msg);

/* The connection that a message came by. Public plain data. */
typedef struct kg_zpeer {
    int fd; /* libzmq's: not to be read, written or closed. -1: it is not known */
    uint64_t inode;
} kg_zpeer_t;
kg_zpeer_t kg_zchan_peer(const kg_zchan_t *chan, const kg_zmsg_t *msg);
/* It has been closed. False also where it is not known; a moment passes from the one to the other.
 */
bool kg_zpeer_gone(const kg_zpeer_t *peer);
bool kg_zpeer_same(const kg_zpeer_t *a, const kg_zpeer_t *b); /* false where either is not known */

/* msg is borrowed for the call; ref to keep. The callback may send on and close this channel. */
typedef void kg_zchan_fn(kg_zchan_t *chan, kg_zmsg_t *msg, void *user);

typedef struct kg_zchan_opts {
    kg_zchan_type_t type;
    const char *identity; /* NULL = none */
    const char *endpoint;
    bool bind;            /* else connect */
    int reconnect_ivl_ms; /* -1 = never */
    /* For sockets that strangers connect to; 0 = none of it. */
    int hwm;           /* messages that libzmq keeps for one peer, in each direction */
    int64_t frame_max; /* bytes; a peer that sends a longer frame is disconnected */
    int linger_ms;     /* what is on its way when it is closed may go on for so long */
    bool no_queue;     /* ROUTER: nothing is queued here, see kg_zchan_send */
    kg_zchan_fn *on_message;
    void *user;
} kg_zchan_opts_t;
/* SUB subscribes to "". */
int kg_zchan_open(kg_loop_t *loop,
                  const kg_zchan_opts_t *opts,
                  kg_zchan_t **ret_chan,
                  kg_err_t *err);
/* Where it is bound or connected, e.g. with the port that "tcp://127.0.0.1:*" got. -EINVAL when cap
 * is too small. */
int kg_zchan_endpoint(const kg_zchan_t *chan, char *ret_text, size_t cap);
/* Copies the frames. 0 or -ENOMEM / -E2BIG (send queue over its cap) / -EPIPE (closing) / -EINVAL
 * (no frames, or over 4096) / -EHOSTUNREACH (ROUTER: nobody by that identity) / -EAGAIN (no_queue:
 * the peer has not read what was sent before). */
int kg_zchan_send(kg_zchan_t *chan, const kg_slice_t *frames, size_t count);
/* Bytes that are queued here, and how many messages libzmq has taken so far. */
size_t kg_zchan_queued(const kg_zchan_t *chan);
uint64_t kg_zchan_sent(const kg_zchan_t *chan);

/* XPUB: one subscriber, with a queue of its own, so that nobody waits for another. All are
 * destroyed before their channel is closed. -ENOMEM. */
typedef struct kg_zsub kg_zsub_t;
int kg_zsub_create(kg_zchan_t *chan, kg_zsub_t **ret_sub);
void kg_zsub_destroy(kg_zsub_t **sub); /* NULL ok; NULLs the pointer */
/* Only inside on_message of a subscription or unsubscription that has a kg_zchan_peer: what is sent
 * under a topic that begins so reaches whoever sent that message, or does no more. The topic has to
 * begin as the one that was asked for, for libzmq compares again over there, and to be nobody
 * else's. */
int kg_zsub_topic(kg_zsub_t *sub, kg_slice_t topic, bool wanted);
/* Frames that go to many, copied once. -EINVAL (none, or over 4095), -ENOMEM. */
typedef struct kg_zout kg_zout_t;
int kg_zout_create(const kg_slice_t *frames, size_t count, kg_zout_t **ret_out);
void kg_zout_destroy(kg_zout_t **out); /* NULL ok; NULLs the pointer */
/* The topic and the frames of rest, whose bytes are shared. What sub has no room for waits in its
 * queue; -E2BIG (the queue is over its cap), -ENOMEM. Who has gone takes everything. */
int kg_zsub_send(kg_zsub_t *sub, kg_slice_t topic, kg_zout_t *rest);
size_t kg_zsub_queued(const kg_zsub_t *sub); /* bytes */

/* Stops reading (messages stay in libzmq, unbounded) and starts again. For tests and for single
 * overload guards. */
void kg_zchan_pause(kg_zchan_t *chan, bool paused);
/* No callback after it; done (may be NULL) runs when the socket is closed. NULLs the pointer. */
void kg_zchan_close(kg_zchan_t **chan, kg_fn *done, void *user);

#endif
