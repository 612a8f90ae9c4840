/* Inside of the proxy: what proxy.c, proxy_conn.c, proxy_up.c and proxy_page.c share. */
#ifndef KG_EDGE_PROXY_PRIV_H
#define KG_EDGE_PROXY_PRIV_H

#include <uv.h>

#include "gateway/base/clock.h"
#include "gateway/edge/proxy.h"
#include "gateway/edge/proxy_head.h"

#define PROXY_READ 131072 /* bytes of one read */
/* … where a head is waited for: what comes with it of a large body is copied */
#define PROXY_READ_HEAD 32768
#define PROXY_JOIN 4096 /* a body as small as this goes out in one piece with its head */
/* Unsent bytes at which the other side is not read any more, and is read again. */
#define PROXY_HIGH ((size_t)256 * 1024)
#define PROXY_LOW ((size_t)64 * 1024)
#define PROXY_INTERIM_MAX 16 /* answers 1xx before the true one */
#define PROXY_AHEAD 65536    /* bytes kept of a client that sends before its turn */

typedef struct proxy_conn proxy_conn_t;

/* A connection into a sandbox. */
typedef struct proxy_up {
    uv_tcp_t tcp;
    proxy_conn_t *conn; /* NULL: being closed */
    char sandbox[KG_PROXY_NAME_MAX];
    uint16_t port;
    bool used; /* it has served before */
    bool reading;
    bool ended; /* its side has said its last */
} proxy_up_t;

typedef enum proxy_state {
    PROXY_HEAD,    /* idle, or a request's head is coming */
    PROXY_CONNECT, /* the sandbox is woken, the port tried */
    PROXY_RELAY,   /* request and answer on their way */
    PROXY_TUNNEL,  /* after a 101 */
    PROXY_LAST,    /* an answer of ours is being sent, then the end */
    PROXY_GONE,
} proxy_state_t;

struct proxy_conn {
    kg_proxy_t *proxy;
    proxy_conn_t *prev, *next;
    uv_tcp_t client;
    proxy_up_t *up;
    proxy_state_t state;
    unsigned handles; /* that are not closed yet */
    bool reading;     /* the client */
    bool asked;       /* the handler brings a connection */
    kg_timer_t *again;
    uint64_t retry_until_ns, deadline_ns;
    uint64_t moved_ns; /* when something last moved */
    bool client_moved; /* since the last look of the timer */
    char peer[INET6_ADDRSTRLEN];

    http_parser request, answer;
    proxy_head_t request_head, answer_head;
    proxy_route_t route;
    bool head_done, request_done, answer_begun, answer_done;
    bool upgrade, no_body, request_chunked, answer_chunked, keep, body_sent;
    bool switched;    /* the answer was 101 */
    bool lingers;     /* all is said: until the client closes, or a moment has passed */
    bool eof;         /* the client's side has said its last (tunnel) */
    unsigned interim; /* answers 1xx so far */
    int refused;      /* status of our own answer, decided inside the parser */
    const char *refused_why;
    bool broken;    /* a piece of a body was lost: nothing may follow it */
    kg_buf_t ahead; /* bytes of the client that wait */
};

struct kg_proxy {
    kg_loop_t *loop;
    kg_proxy_opts_t opts;
    kg_proxy_handler_t handler;
    char *listen, *domain;
    int listen_fd;
    kg_fdwatch_t *listener;
    kg_timer_t *timer; /* each second while there is a connection */
    proxy_conn_t *conns;
    size_t conn_count;
    unsigned port;
    bool closing;
    kg_fn *done;
    void *done_user;
    kg_buf_t to_client, to_up; /* what one callback writes, sent at its end */
    /* and behind it a piece of a body, still where it was read */
    kg_slice_t client_tail, up_tail;
    char read[PROXY_READ];
    int pipe[2]; /* empty between two callbacks; -1: bodies are copied */
};

/* proxy_conn.c */
int proxy_conn_start(kg_proxy_t *proxy, int fd);
void proxy_conn_end(proxy_conn_t *conn); /* cuts both sides */
void proxy_conn_handle_closed(proxy_conn_t *conn);
void proxy_conn_feed(proxy_conn_t *conn, const char *data, size_t len); /* from the client */
void proxy_conn_read(proxy_conn_t *conn, bool on);
/* The exchange is over: the next one, or the end. */
void proxy_conn_next(proxy_conn_t *conn);
/* Our own answer instead; the connection ends with it. */
void proxy_conn_refuse(proxy_conn_t *conn, int status, const char *why);
void proxy_conn_tick(proxy_conn_t *conn, uint64_t now_ns);
void proxy_conn_moved(proxy_conn_t *conn);
/* Sends what proxy->to_client or to_up holds. False: the connection is gone. */
bool proxy_flush_client(proxy_conn_t *conn);
bool proxy_flush_up(proxy_conn_t *conn);

/* Sends bytes now or queues a copy of what is left. 0, or -errno: the stream is of no use. */
int proxy_put(uv_stream_t *stream, const kg_buf_t *bytes, bool up);

/* proxy_bulk.c */
void proxy_bulk_open(kg_proxy_t *proxy);
void proxy_bulk_close(kg_proxy_t *proxy);
typedef enum proxy_bulk {
    PROXY_BULK_READ,  /* what there is is to be read: the end, an error, or little */
    PROXY_BULK_MOVED, /* there's nothing more to be had now, or the receiver has no room */
    PROXY_BULK_LOST,  /* bytes were lost on the way: the connection has to end */
} proxy_bulk_t;
/* Moves what has come of a body, of which *left bytes are outstanding (UINT64_MAX: not known, which
 * moves nothing); *left falls, to 0 where the body has ended. Splice(2). */
proxy_bulk_t
proxy_bulk_move(proxy_conn_t *conn, uv_stream_t *from, uv_stream_t *to, uint64_t *left);

/* proxy_request.c */
extern const http_parser_settings proxy_request_settings;
void proxy_request_begin(proxy_conn_t *conn);

/* proxy_up.c */
void proxy_up_get(proxy_conn_t *conn); /* one for the route; a kept one if it fits */
void proxy_up_drop(proxy_conn_t *conn);
void proxy_up_read(proxy_up_t *up, bool on);
void proxy_up_forget(proxy_conn_t *conn);

/* proxy_answer.c */
void proxy_answer_begin(proxy_conn_t *conn);
void proxy_answer_feed(proxy_conn_t *conn, const char *data, size_t len);
void proxy_answer_eof(proxy_conn_t *conn);
void proxy_answer_moved(proxy_conn_t *conn); /* all of its body, past the parser */

/* proxy_page.c */
int proxy_page_write(const proxy_conn_t *conn, int status, const char *why, kg_buf_t *out);
int proxy_redirect_write(const proxy_conn_t *conn, bool cookie, kg_buf_t *out);

#endif
