/* Inside of the edge room: connections, exchanges, WebSockets, and who calls whom. libwebsockets is
 * named here and in the .c files beside it, nowhere else. */
#ifndef KG_EDGE_EDGE_PRIV_H
#define KG_EDGE_EDGE_PRIV_H

#include <libwebsockets.h>

#include "gateway/base/clock.h"
#include "gateway/edge/edge.h"

#define KG_EDGE_PIECE 65536u        /* most that one write takes */
#define KG_EDGE_BUFFER_KEPT 262144u /* bigger buffers are given back when empty */
#define KG_EDGE_WS_FRAGMENT                                                                        \
    32768u /* longer messages are sent in fragments, so that control frames get through */
#define KG_EDGE_WS_HEADER_MAX 10u
#define KG_EDGE_WS_WRITES 16u /* of one connection in a turn of the loop */
#define KG_EDGE_BODY_READY                                                                         \
    262144u /* bytes that are worth a turn of whoever takes them: each costs two thread switches   \
             */
#define KG_EDGE_WS_RX 8192u /* read size of a WebSocket */
#define KG_EDGE_LINGER_NS                                                                          \
    (2 * KG_NS_PER_S) /* how long an unread body is thrown away before the cut */
#define KG_EDGE_SOURCE_NS (2 * KG_NS_PER_MS) /* of a source that finds little in long, a turn */
#define KG_EDGE_WS_CLOSE_NS (10 * KG_NS_PER_S)
#define KG_EDGE_KEEP_BODY (1u << 20) /* an unread body up to this does not cost the connection */
#define KG_EDGE_LWS_TOKENS_MAX                                                                     \
    126 /* libwebsockets copies Connection and Sec-WebSocket-Protocol into 128 bytes */
#define KG_EDGE_PROTOCOL "k" /* our one lws protocol; never seen by clients, see ws_upgrade.c */
#define KG_EDGE_RAW "r"      /* where what is no HTTP ends up */

typedef enum kg_phase {
    KG_PHASE_HEAD,    /* waiting for a request or in the middle of its head */
    KG_PHASE_BODY,    /* reading a body */
    KG_PHASE_WAIT,    /* the handler works on the answer */
    KG_PHASE_SEND,    /* the answer is on its way */
    KG_PHASE_LINGER,  /* answered; the rest of the body is thrown away, then the connection ends */
    KG_PHASE_UPGRADE, /* accepted, 101 not yet out */
    KG_PHASE_WS,
    KG_PHASE_DEAD, /* no answer any more, lws is closing it */
} kg_phase_t;

/* How far the head of a request has been read, and its target as it was sent. */
typedef struct kg_target {
    enum {
        KG_TARGET_METHOD,
        KG_TARGET_TEXT,
        KG_TARGET_LINES,
        KG_TARGET_END
    } at;
    bool begun; /* METHOD, TEXT: some of it has come; LINES: so has some of this line */
    kg_buf_t text;
} kg_target_t;

typedef struct kg_conn {
    kg_edge_t *edge;
    struct lws *wsi; /* NULL until lws took the socket */
    struct kg_conn *prev;
    struct kg_conn *next;
    kg_http_t *http;
    kg_ws_t *ws;
    kg_phase_t phase;
    uint64_t deadline_ns; /* of HEAD, BODY and LINGER */
    uint64_t rx_mark;     /* bytes received when this head began, where the kernel tells */
    unsigned listener;
    char peer[48];
    bool loopback;
    bool unix_peer;
    bool tls;
    bool over_limit;   /* one too many: gets a 503 */
    bool begun;        /* some of a head has come */
    bool reused;       /* had an exchange before */
    bool ahead;        /* TLS has decrypted what lws has not read */
    uint64_t pass;     /* of edge->passes: had its turn */
    char protocol[64]; /* UPGRADE: what the handler chose */
    void *ws_user;
    kg_target_t target;
} kg_conn_t;

struct kg_http {
    kg_conn_t *conn;
    void *user;
    kg_buf_t body;
    size_t body_max;
    kg_fn *ready; /* the body is taken in pieces */
    void *ready_user;
    uint64_t declared; /* Content-Length */
    uint64_t got;
    kg_buf_t tx;
    size_t tx_off;
    kg_pull_fn *fill;
    void *fill_user;
    kg_pour_fn *pour; /* instead of fill */
    uint64_t left;    /* of a sized answer */
    kg_fdwatch_t
        *shadow; /* on a dup of the socket: hang-up and room to write, while lws does not look */
    int shadow_fd;
    uint64_t blocked_ns; /* since when the client takes nothing; 0 = it does */
    bool seen;           /* on_request was called */
    bool dispatched;     /* on_body was called */
    bool lws_reads;      /* lws takes what follows the head for a body */
    bool answered;
    bool ended; /* the last byte of the answer is in tx */
    bool aborted;
    bool chunked;
    bool sized;
    bool held; /* lws looks away while pieces wait to be taken */
    bool due;  /* there is something worth taking, or the end */
    bool is_head;
    bool http10;
    bool close_after;
    bool more_unread; /* a body of unknown length may follow */
    bool parked;
    bool writing; /* inside on_writeable */
    bool woken;   /* meanwhile */
};

/* The heads of a client's frames, as they go by. */
typedef struct kg_frames {
    uint64_t skip; /* bytes of this frame that are still to come: its key and what it carries */
    unsigned have;
    unsigned char head[10];
} kg_frames_t;

/* A message that stays where it is. */
typedef struct kg_ws_held {
    struct kg_ws_held *prev, *next;
    kg_hold_t hold;
    uint64_t after; /* which byte of those that have ever been in the buffer it comes behind */
    unsigned op;
    kg_buf_t own; /* its short pieces */
    size_t len;
    size_t gone; /* bytes of it that have been written */
    size_t count;
    kg_slice_t pieces[];
} kg_ws_held_t;

typedef struct kg_ws_queue {
    kg_buf_t out; /* whole frames */
    size_t out_off;
    size_t msg_off;    /* of the message that out_off is in, or of the next one */
    uint64_t out_gone; /* bytes of the buffer that have been written, ever */
    kg_ws_held_t *held;
    size_t max;
    size_t bytes;     /* of all that is still to be written; of held messages without headers */
    uint64_t gone;    /* of all that has been, ever */
    uint64_t big_end; /* the largest message of the queue: at which of these bytes it ends, */
    size_t big_len;   /* and its length */
} kg_ws_queue_t;

struct kg_ws {
    kg_conn_t *conn;
    void *user;
    kg_frames_t frames;
    kg_buf_t rx;
    kg_ws_queue_t queue;
    kg_ws_t *flush_prev, *flush_next; /* edge->to_flush */
    bool to_flush;                    /* is in there */
    bool asked;                       /* lws will say when the socket can take more */
    kg_buf_t src;                     /* what the source gave, framed */
    kg_ws_pull_fn *fill;
    void *fill_user;
    bool src_ready;
    bool src_mid; /* inside a message of the source */
    bool ping_due;
    bool takes_bytes; /* that are called text */
    bool paused;
    bool closing;
    bool close_sent;
    unsigned close_code;
    char close_reason[121];
    uint64_t last_rx_ns;
    uint64_t ping_ns; /* when the open ping went out; 0 = none open */
    uint64_t blocked_ns;
    uint64_t close_deadline_ns;
};

typedef struct kg_listener {
    kg_edge_t *edge;
    unsigned index;
    char name[32]; /* of the vhost; lws keeps the pointer */
    kg_edge_socket_t socket;
    kg_fdwatch_t *watch;
    struct lws_vhost *vhost;
    bool tls;
    bool resting; /* out of descriptors: accepts again at the next scan */
} kg_listener_t;

struct kg_edge {
    kg_loop_t *loop;
    struct lws_context *lws;
    struct lws_vhost *plain;
    kg_edge_handler_t handler;
    kg_edge_opts_t opts; /* listeners not valid after create */
    kg_listener_t *listeners;
    size_t listener_count;
    kg_conn_t *conns;
    size_t conn_count;
    kg_conn_t *adopting; /* handed to lws right now */
    size_t ahead_count;  /* of conns */
    bool ahead_moved;
    uint64_t passes;
    kg_ws_t *to_flush; /* have something to send, before the loop sleeps */
    bool asleep;       /* that was done */
    kg_timer_t *scan;
    kg_hook_t hook;
    unsigned forced_turns; /* loop turns in a row that lws asked for */
    kg_timer_t *nudge;
    bool draining;
    bool closing;
    kg_timer_t *grace;
    unsigned farewell_turns;
    kg_fn *done;
    void *done_user;
    char date[40];
    uint64_t date_s;
};

struct kg_http_head_priv {
    struct lws *wsi;
    kg_buf_t path;
    kg_buf_t query;
    struct kg_head_value *values;
};

/* listen.c */
int kg_listener_open(kg_edge_t *edge,
                     const kg_edge_listener_t *config,
                     kg_listener_t *listener,
                     kg_err_t *err);
void kg_listener_close(kg_listener_t *listener);
void kg_listener_wake(kg_listener_t *listener);

/* conn.c */
int kg_conn_adopt_take(kg_edge_t *edge, int fd, unsigned listener);
void kg_conn_describe_peer(kg_conn_t *conn, int fd);
/* Ends what runs on it (handlers are told) and closes the socket at once. Not from inside an lws
 * callback of it. */
void kg_conn_kill(kg_conn_t *conn);
/* Tells handlers that the exchange or WebSocket is over. */
void kg_conn_over(kg_conn_t *conn);
void kg_conn_free(kg_conn_t *conn);
void kg_conn_scan(kg_conn_t *conn, uint64_t now_ns);
uint64_t kg_conn_received(const kg_conn_t *conn);
bool kg_conn_head_begun(const kg_conn_t *conn);
/* Writes an error straight away, for where no exchange exists. */
void kg_conn_write_error(kg_conn_t *conn, kg_err_code_t code, const char *message);

/* head.c */
int kg_head_init(kg_conn_t *conn, kg_http_head_t *head, struct kg_http_head_priv *priv);
void kg_head_fini(kg_http_head_t *head);
/* -EINVAL when it is there and no number. */
int kg_head_content_length(const kg_http_head_t *head, bool *ret_present, uint64_t *ret_length);
/* What RFC 9112, 3.2 demands of Host, NULL when all is well. */
const char *kg_head_host_fault(const kg_http_head_t *head, bool http10);
bool kg_head_has_token(const kg_http_head_t *head, const char *name, const char *token);

/* target.c */
/* How many of these bytes belong to the head. */
size_t kg_target_span(const kg_target_t *t, const char *data, size_t len);
/* Keeps what of the target is among them, and puts letters in its place. */
int kg_target_take(kg_target_t *t, char *data, size_t len);
void kg_target_reset(kg_target_t *t);
void kg_target_forget(kg_conn_t *conn); /* it is going */
/* Before the loop sleeps: has lws read what TLS has decrypted already, which no poll shows. */
void kg_target_read_ahead(kg_edge_t *edge);

/* answer.c */
#define KG_LENGTH_CHUNKED (-1)
#define KG_LENGTH_TO_END (-2) /* the body ends with the connection */
typedef struct kg_answer {
    int status;
    const kg_header_t *headers;
    size_t header_count;
    const char *content_type; /* NULL = JSON */
    int64_t length;
    bool close_after;
} kg_answer_t;
int kg_answer_head(kg_edge_t *edge, kg_buf_t *out, const kg_answer_t *answer);
/* A whole answer with a JSON error. */
int kg_answer_error(kg_edge_t *edge, kg_buf_t *out, const kg_err_t *err, const kg_header_t *extra);

/* http_conn.c */
int kg_http_on_head(kg_conn_t *conn);
int kg_http_on_body(kg_conn_t *conn, const char *data, size_t len);
int kg_http_on_body_end(kg_conn_t *conn);
void kg_http_body_due(kg_http_t *http);
int kg_http_on_writeable(kg_conn_t *conn);
void kg_http_over(kg_http_t *http);

/* ws_upgrade.c */
int kg_ws_on_confirm(kg_conn_t *conn, char *upgrade);
int kg_ws_on_add_headers(kg_conn_t *conn, struct lws_process_html_args *args);

/* ws_conn.c */
int kg_ws_on_open(kg_conn_t *conn);
int kg_ws_on_receive(kg_conn_t *conn, const char *data, size_t len);
int kg_ws_on_pong(kg_conn_t *conn);
/* What lws is about to get. lws takes frames that are not masked: they end the connection here (RFC
 * 6455, 5.1), before their messages are told. */
void kg_ws_on_bytes(kg_conn_t *conn, const char *data, size_t len);
/* Whether all frames that begin in data are masked; data follows on what was seen before. */
bool kg_frames_masked(kg_frames_t *frames, const char *data, size_t len);
int kg_ws_on_writeable(kg_conn_t *conn);
int kg_ws_on_timer(kg_conn_t *conn);
void kg_ws_flush_all(kg_edge_t *edge); /* before the loop sleeps; from no callback of lws */
void kg_ws_scan(kg_ws_t *ws, uint64_t now_ns);
void kg_ws_over(kg_ws_t *ws);

/* ws_queue.c */
size_t kg_ws_put_header(unsigned char *at, unsigned op_fin, size_t len); /* bytes it took */
void kg_ws_queue_fini(kg_ws_queue_t *q);                                 /* empties it */
/* -ENOBUFS, -ENOMEM: nothing was queued. */
int kg_ws_queue_add(kg_ws_queue_t *q, unsigned op, kg_slice_t data);
int kg_ws_queue_add_held(
    kg_ws_queue_t *q, unsigned op, const kg_slice_t *pieces, size_t count, const kg_hold_t *hold);
/* One write. 1 wrote something, 0 nothing to write, -1 dead. */
int kg_ws_queue_write(kg_ws_queue_t *q, kg_conn_t *conn);
void kg_ws_queue_take(kg_ws_queue_t *q, kg_ws_unsent_fn *fn, void *user); /* kg_ws_take_unsent */

/* lws_check.c */
/* Whether libwebsockets calls the program's function of this name instead of its own. */
bool kg_lws_replaced(const char *name);
/* The function that ours of this name stands before. ISO C has no cast from object to function
 * pointers. */
void kg_lws_real(const char *name, void *ret_function);
int kg_lws_check(kg_err_t *err); /* all that lws.c replaces; err says which is not */

/* lws.c */
void kg_lws_hide_next_segment(bool hide);
/* lws neither reads from the socket nor polls it until lws_rx_flow_control(wsi, 1). */
void kg_lws_look_away(struct lws *wsi);
int kg_lws_start(kg_edge_t *edge, bool tls, kg_err_t *err);
struct lws_vhost *
kg_lws_vhost(kg_edge_t *edge, const char *name, const char *cert, const char *key, kg_err_t *err);

#endif
