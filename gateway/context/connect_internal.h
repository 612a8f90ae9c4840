/* Inner header of connect*.c. */
#ifndef KG_CONTEXT_CONNECT_INTERNAL_H
#define KG_CONTEXT_CONNECT_INTERNAL_H

#include "gateway/context/attach.h"
#include "gateway/context/connect.h"
#include "gateway/context/internal.h"
#include "gateway/loop/zchan.h"
#include "proto/connfile.h"

enum {
    KG_HEARTBEAT = KG_CHANNEL_IOPUB + 1, /* a socket more than there are channels */
    KG_CONNECTION_SOCKETS,
    KG_IDENTITY_MAX = 255,     /* bytes (ZMTP) */
    KG_KEYS_S = 5,             /* a connection outlives its key for so long at most */
    KG_SUBSCRIPTIONS = 8,      /* topics of one subscriber; clients of Jupyter have one, "" */
    KG_SUBSCRIPTION_LEN = 128, /* bytes of one, and a NUL that it does not have */
};

typedef struct kg_connection kg_connection_t;

typedef struct kg_socket {
    kg_connection_t *connection;
    unsigned channel; /* a kg_channel_t, or KG_HEARTBEAT */
    kg_zchan_t *zchan;
} kg_socket_t;

/* A client: its sockets but for iopub share an identity. It is there from its first message on, and
 * nobody is told when it goes. That its connection is closed can be seen, but it may come back. */
typedef struct kg_peer {
    kg_connection_t *connection;
    kg_attach_t *attach;
    char identity[KG_IDENTITY_MAX];
    size_t identity_len;
    bool left;                   /* to be freed */
    kg_zpeer_t shell;            /* by which its code came */
    unsigned unseen;             /* looks at it, one after the other, that found it closed */
    struct kg_peer *prev, *next; /* who was heard last is last */
} kg_peer_t;

typedef struct kg_subscription {
    char text[KG_SUBSCRIPTION_LEN];
    size_t len;
} kg_subscription_t;

/* A client's iopub socket. Which client's is not known. */
typedef struct kg_subscriber {
    kg_connection_t *connection;
    kg_zsub_t *queue;
    kg_zpeer_t peer;
    unsigned number; /* makes its topics its own */
    kg_subscription_t topics[KG_SUBSCRIPTIONS];
    size_t topic_count;
    unsigned urgent; /* messages beyond the bound */
    uint64_t untold; /* messages that it lost, and was not told of */
    kg_buf_t untold_parent;
    struct kg_subscriber *prev, *next;
} kg_subscriber_t;

struct kg_connection {
    kg_core_t *core;
    kg_context_t *context; /* NULL: it ends */
    char id[KG_ID_MAX];
    char key_id[KG_ID_MAX];
    char file[KG_SBX_PATH_MAX]; /* path; "" before it is written */
    const char *file_name;      /* its last part */
    bool tcp, may_restart;
    bool later; /* kg_connection_later waits */
    uint64_t created_ns;
    kg_wire_key_t key;
    kg_socket_t sockets[KG_CONNECTION_SOCKETS];
    kg_attach_t *hears;
    kg_peer_t *peers;
    unsigned peer_count;
    kg_slice_t asking; /* the identity whose message is being refused */
    uint64_t seen[KG_CONNECTION_SEEN];
    unsigned seen_next;
    kg_subscriber_t *subscribers;
    unsigned subscriber_count;
    unsigned next_number;
    const kg_subscriber_t *only; /* what is said now is for it alone */
    uint64_t dropped;            /* messages that were forged, malformed, repeated, too many */
    uint64_t lost;               /* messages that somebody did not read in time */
    kg_timer_t *watch;
    bool watching;
    unsigned looks; /* still to come, for those who have gone */
    kg_connection_t *prev, *next;
};

/* ---- connect.c ---- */

int kg_connections_create(kg_core_t *core, kg_err_t *err); /* removes what was left behind */
void kg_connections_destroy(kg_core_t *core);
void kg_connections_tick(kg_core_t *core); /* each KG_KEYS_S: whose key is no more */
/* Soon, not from inside: frees peers that have left, and the connection if it ends. */
void kg_connection_later(kg_connection_t *c);
void kg_connection_drop(kg_connection_t *c); /* counts a message that is passed over */

/* ---- connect_in.c ---- */

void kg_connection_request(kg_zchan_t *chan, kg_zmsg_t *msg, void *user);
void kg_connection_beat(kg_zchan_t *chan, kg_zmsg_t *msg, void *user);
void kg_peer_free(kg_peer_t *peer);
/* Each second: who is asked for input and has gone gets the question again, which shows whether it
 * is back. True: somebody is asked. */
bool kg_peers_look(kg_connection_t *c);

/* ---- connect_out.c ---- */

/* on_message of attaches: user is the connection, or a peer of it. */
void kg_connection_hears(void *user, const kg_ws_msg_t *msg);
void kg_peer_asks(void *user, const kg_ws_msg_t *msg);
void kg_connection_subscribed(kg_zchan_t *chan, kg_zmsg_t *msg, void *user);
void kg_connection_watch(void *user); /* its timer */
void kg_subscriber_free(kg_subscriber_t *s);

#endif
