/* HTTP/1.1 and WebSocket server on the loop (libwebsockets, included in this room alone). Knows
 * nothing of Jupyter or of the API: it parses heads, bounds bodies, frames output and times
 * everyone out; a handler decides what is said.
 *
 * All calls and callbacks are on the loop's thread. Every kg_http_*, kg_ws_* call is legal inside
 * any callback of this room; none of them calls back at once: output leaves when the socket can
 * take it. */
#ifndef KG_EDGE_EDGE_H
#define KG_EDGE_EDGE_H

#include "gateway/base/buf.h"
#include "gateway/base/err.h"
#include "gateway/base/hold.h"
#include "gateway/loop/loop.h"

typedef struct kg_edge kg_edge_t; /* listeners, connections and the libwebsockets context */
typedef struct kg_http kg_http_t; /* one exchange (request and answer) */
typedef struct kg_ws kg_ws_t;     /* one WebSocket connection */

/* One header of an answer. Names and values with CR, LF or NUL are left out and logged. */
typedef struct kg_header {
    const char *name;
    const char *value;
} kg_header_t;

/* A request's head; valid during the callback that got it. Public, read-only.
 * path and query are what was sent: nothing in them is decoded or resolved. What an URL may not
 * hold as it stands is percent-encoded. path begins with "/". */
typedef struct kg_http_head {
    kg_slice_t
        method; /* GET HEAD POST PUT PATCH DELETE OPTIONS; others are answered 501 by the edge */
    kg_slice_t path;
    kg_slice_t query;        /* without "?"; empty when there is none */
    kg_slice_t peer;         /* "127.0.0.1", "::1" (IPv4-mapped addresses as IPv4), or "unix" */
    uint64_t content_length; /* 0 when there is no body */
    bool has_body;           /* content_length > 0 */
    bool tls;
    bool loopback_peer; /* the peer's address is 127/8 or ::1 */
    bool unix_peer;
    bool upgrade;      /* this is the head of a WebSocket upgrade */
    unsigned listener; /* index in kg_edge_opts_t.listeners */
    struct kg_http_head_priv *priv;
} kg_http_head_t;

/* Value of a header (name in lower case), without the spaces around it; {NULL,0} when absent.
 * Repeated standard headers are joined with "," and spaces; of others the first counts. Valid as
 * long as the head. */
kg_slice_t kg_http_head_get(const kg_http_head_t *head, const char *name);

/* What to do with an upgrade. */
typedef struct kg_upgrade_reply {
    /* accepted: the subprotocol to name in the answer, or "" for none; a token of at most 63
     * characters */
    char protocol[64];
    void *ws_user; /* becomes kg_ws_user() of the connection */
    /* refused */
    int status;
    kg_buf_t body;            /* JSON; the edge frees it */
    char allow_origin[256];   /* "" or the value of Access-Control-Allow-Origin */
    const char *authenticate; /* NULL or the value of WWW-Authenticate; static */
} kg_upgrade_reply_t;

typedef struct kg_edge_handler {
    /* Head complete, body unread. May answer at once (the body is then thrown away, the connection
     * closed if it is long). *ret_body_max is opts.body_max at the call and may be lowered or
     * raised: a longer declared length is answered 413. */
    void (*on_request)(kg_http_t *http,
                       const kg_http_head_t *head,
                       size_t *ret_body_max,
                       void *user);
    /* The whole body; called with an empty one when there is none. Not called once the request has
     * been answered, nor after kg_http_body_stream. */
    void (*on_body)(kg_http_t *http, kg_slice_t body, void *user);
    /* Answer sent, or client gone: http is dead after it. Once per exchange that saw on_request. Of
     * a client that leaves while its exchange waits it comes within 0.5 s. */
    void (*on_http_close)(kg_http_t *http, void *user);

    /* Before the 101. 0 accepts, anything else refuses with reply->status and reply->body. offered
     * is the Sec-WebSocket-Protocol list as sent, maybe empty. on_ws_open follows at once where
     * accepted, unless the client is already gone: then on_upgrade_failed gets ws_user back (NULL
     * pointers are allowed for both). */
    int (*on_upgrade)(const kg_http_head_t *head,
                      kg_slice_t offered,
                      kg_upgrade_reply_t *reply,
                      void *user);
    void (*on_upgrade_failed)(void *ws_user, void *user);
    void (*on_ws_open)(kg_ws_t *ws, void *user);
    /* A whole message, reassembled; text is valid UTF-8 (or see kg_ws_take_bytes). */
    void (*on_ws_message)(kg_ws_t *ws, kg_slice_t data, bool binary, void *user);
    /* ws is dead after it. */
    void (*on_ws_close)(kg_ws_t *ws, void *user);
    void *user;
} kg_edge_handler_t;

/* A socket that listens, and whose connections wait until somebody accepts them. Zeroed with fd -1
 * it is none. */
typedef struct kg_edge_socket {
    int fd;
    unsigned port;          /* 0 for unix */
    char *path;             /* unix */
    unsigned long long dev; /* of the socket file that is ours to unlink */
    unsigned long long ino;
} kg_edge_socket_t;

/* "127.0.0.1:8717", "[::1]:0", "*:80" (both families), "unix:/run/sandal/api.sock"; unix_mode 0 =
 * 0600. For who must know that an address is to be had before the rest of its start. On failure err
 * says which and why, -EADDRINUSE that somebody has it. */
int kg_edge_socket_open(const char *address,
                        unsigned unix_mode,
                        kg_edge_socket_t *ret_socket,
                        kg_err_t *err);
/* And removes its file, where it still is that. */
void kg_edge_socket_close(kg_edge_socket_t *socket);

typedef struct kg_edge_listener {
    const char *address;
    const char *tls_cert; /* PEM chain and key; both or none */
    const char *tls_key;
    unsigned unix_mode;       /* 0 = 0600 */
    kg_edge_socket_t *socket; /* opened before for this address, and taken; NULL: opened here */
} kg_edge_listener_t;

/* Zero = the default in brackets. Strings are copied. */
typedef struct kg_edge_opts {
    const kg_edge_listener_t *listeners;
    size_t listener_count;      /* 0 is allowed: kg_edge_adopt alone */
    size_t max_connections;     /* [8192]; more are answered 503 */
    size_t max_header_bytes;    /* [16384], at most 60000 */
    size_t body_max;            /* [64 MiB] */
    size_t ws_message_max;      /* [64 MiB]; more is closed with 1009 */
    size_t ws_queue_max;        /* [8 MiB] bytes that kg_ws_send holds for one connection, beside
                                   the largest message of them */
    unsigned header_timeout_ms; /* [10000] first byte to end of head; also silent new connections */
    unsigned body_timeout_ms;   /* [30000] between two pieces of a body; then 408 */
    unsigned idle_timeout_ms;   /* [75000] keep-alive */
    unsigned stall_timeout_ms;  /* [300000] client takes nothing while there is something to send */
    unsigned ping_ms;           /* [15000] a WebSocket silent for so long is pinged */
    unsigned pong_ms; /* [30000] and closed when it stays silent for so long after (not while it is
                         stalled) */
} kg_edge_opts_t;

/* Listens and serves. On failure nothing is left (err says which address and why). handler is
 * copied. */
int kg_edge_create(kg_loop_t *loop,
                   const kg_edge_opts_t *opts,
                   const kg_edge_handler_t *handler,
                   kg_edge_t **ret_edge,
                   kg_err_t *err);
/* The port that listener index got; 0 for unix. */
unsigned kg_edge_port(const kg_edge_t *edge, size_t listener);
size_t kg_edge_connections(const kg_edge_t *edge);
/* Serves a connected stream socket, as if accepted by a plain listener with this index. Takes the
 * descriptor. */
int kg_edge_adopt_take(kg_edge_t *edge, int fd, unsigned listener);
/* Stops listening (unix sockets are unlinked); idle connections close now, others after their
 * exchange. WebSockets stay. */
void kg_edge_drain(kg_edge_t *edge);
/* Closes all: WebSockets with 1001, exchanges cut after grace_ms. done runs when nothing is left
 * (on the loop, later); the edge is freed by then. NULLs the pointer. */
void kg_edge_close(kg_edge_t **edge, unsigned grace_ms, kg_fn *done, void *user);

/* Answer with a body (copied). content_type NULL = application/json. 0, -EALREADY when answered,
 * -ENOMEM. */
int kg_http_reply(kg_http_t *http,
                  int status,
                  const kg_header_t *headers,
                  size_t header_count,
                  const char *content_type,
                  kg_slice_t body);
/* The project's JSON error: {"error":{"code","message","hint"?,"pointer"?}}, with Retry-After where
 * err has one. */
int kg_http_reply_error(kg_http_t *http,
                        const kg_err_t *err,
                        const kg_header_t *headers,
                        size_t header_count);
/* The same body alone, for upgrades and others. */
int kg_edge_error_body(const kg_err_t *err, kg_buf_t *out);

/* In on_request alone: the body is taken in pieces as it comes, however long it is (but not past
 * *ret_body_max). ready runs in the loop when there is something worth taking after there was not,
 * and at the end; never after the answer. What comes slowly is worth it within half a second. What
 * is held unread is bounded: the edge stops reading while it is more than KG_EDGE_BODY_HELD, and
 * the client's clock with it. */
void kg_http_body_stream(kg_http_t *http, kg_fn *ready, void *user);
#define KG_EDGE_BODY_HELD 1048576u
/* Swaps what has come (nothing, where it isn't worth it yet) with *out, whose content is thrown
 * away and whose memory is used on. *ret_end: nothing comes after it. A client that leaves before
 * the end closes the exchange. */
void kg_http_body_take(kg_http_t *http, kg_buf_t *out, bool *ret_end);

typedef enum kg_pull {
    KG_PULL_MORE,  /* appended something; ask again when the socket can take more */
    KG_PULL_WAIT,  /* nothing now; kg_http_wake / kg_ws_wake later */
    KG_PULL_END,   /* all done (what was appended still goes out) */
    KG_PULL_ABORT, /* cut the connection, so that the client sees that something is missing */
} kg_pull_t;
/* Appends up to about max bytes (a little more is fine). Called only when the socket can take it.
 * MORE with nothing appended counts as WAIT. Must not destroy the exchange it feeds. */
typedef kg_pull_t kg_pull_fn(void *user, kg_buf_t *out, size_t max);
/* Answer with a stream: chunked (closed at its end for HTTP/1.0). To HEAD only the head is sent. */
int kg_http_stream(kg_http_t *http,
                   int status,
                   const kg_header_t *headers,
                   size_t header_count,
                   const char *content_type,
                   kg_pull_fn *fill,
                   void *user);
/* Before kg_http_stream: its length is known. An END before it cuts the connection, and so does a
 * byte after it. */
void kg_http_announce(kg_http_t *http, uint64_t length);
/* Before kg_http_stream, after kg_http_announce: a way past this room, of which fill's user is the
 * user too. It sends into the socket itself, which is O_NONBLOCK, and says how much has gone since
 * it was last asked. WAIT: it goes on sending, kg_http_wake later; MORE: the socket is full, ask
 * again when it has room. Where bytes must not go past (TLS) fill is asked for all of them. */
typedef kg_pull_t kg_pour_fn(void *user, int socket, uint64_t *ret_sent);
void kg_http_pour(kg_http_t *http, kg_pour_fn *pour);
void kg_http_wake(kg_http_t *http);
void kg_http_set_user(kg_http_t *http, void *user);
void *kg_http_user(const kg_http_t *http);
bool kg_http_answered(const kg_http_t *http);

#define KG_EDGE_HELD_MIN 16384u
/* Queues a text message (copied). 0, -ENOBUFS over ws_queue_max (nothing was queued), -EPIPE when
 * closing, -ENOMEM. The largest queued message is not counted: it may be of any size. */
int kg_ws_send(kg_ws_t *ws, kg_slice_t text);
int kg_ws_send_binary(kg_ws_t *ws, kg_slice_t data);
/* The same of a message in pieces, one behind the other, that are not copied (but for short ones)
 * and stay as they are for as long as hold keeps them: all of KG_EDGE_HELD_MIN bytes and more
 * must be its. It is kept at the call and dropped when they have been written, or will not be. */
int kg_ws_send_held(
    kg_ws_t *ws, bool binary, const kg_slice_t *pieces, size_t count, const kg_hold_t *hold);
size_t kg_ws_queued(const kg_ws_t *ws);
void kg_ws_set_queue_max(kg_ws_t *ws, size_t bytes); /* instead of the option */
/* From here on text that is not UTF-8 is handed on as if it were binary; by default it ends the
 * connection with 1007. For clients that send bytes under the opcode of text. */
void kg_ws_take_bytes(kg_ws_t *ws);
/* Empties the queue and gives what was in it, in order, also the message that has gone in part: the
 * client will not get its end. For a connection that is about to be closed, or has been. Borrowed
 * for the call; what there is no memory for is left out. */
typedef void kg_ws_unsent_fn(void *user, kg_slice_t message, bool binary);
void kg_ws_take_unsent(kg_ws_t *ws, kg_ws_unsent_fn *fn, void *user);
/* Source of a connection: asked when the queue is empty and the socket can take more. Each call
 * appends one piece of one text message (or a whole one) and sets *ret_message_end; pieces of a
 * message follow each other, so a source that began a message ends it soon: queued frames wait for
 * it. END = no source any more. */
typedef kg_pull_t kg_ws_pull_fn(void *user, kg_buf_t *out, size_t max, bool *ret_message_end);
void kg_ws_set_source(kg_ws_t *ws, kg_ws_pull_fn *fill, void *user);
void kg_ws_wake(kg_ws_t *ws);
/* Stops reading from the client (it is held back by TCP) and starts again. */
void kg_ws_pause(kg_ws_t *ws, bool paused);
/* Sends what is queued, then the close frame. 1000 fine, 1001 shutdown, 1008 policy, 1011 internal,
 * 1013 overload. reason is cut to 120 bytes. No on_ws_message after it; on_ws_close when it is
 * gone. */
void kg_ws_close(kg_ws_t *ws, unsigned code, const char *reason);
void kg_ws_set_user(kg_ws_t *ws, void *user);
void *kg_ws_user(const kg_ws_t *ws);

/* Whether a listener could use these PEM files: the check that kg_edge_create makes, with a library
 * context of its own. config. Blocks. */
int kg_edge_tls_check(const char *cert, const char *key, kg_err_t *err);

#endif
