/* The proxy for ports that sandboxes expose: HTTP/1.1 and WebSocket on a listener of its own, by
 * libuv and http_parser. It knows names and ports, not sandboxes: a handler says what there is and
 * brings connections. Two forms of address:
 *   HOST:PORT/s/SANDBOX/PORT/…   all sandboxes share one origin: answers carry a policy that makes
 *                                it an opaque one, and no cookie goes either way
 *   PORT-SANDBOX.DOMAIN          an origin of its own; *.localhost always, and the given domain
 * All calls and callbacks are on the loop's thread. */
#ifndef KG_EDGE_PROXY_H
#define KG_EDGE_PROXY_H

#include "gateway/base/buf.h"
#include "gateway/base/err.h"
#include "gateway/loop/loop.h"

typedef struct kg_proxy kg_proxy_t;

#define KG_PROXY_NAME_MAX 64 /* of a sandbox's id, with NUL */

typedef enum kg_proxy_verdict {
    KG_PROXY_OPEN,
    KG_PROXY_NOT_FOUND, /* no such sandbox, or the port isn't exposed */
    KG_PROXY_LOCKED,    /* the token is missing or wrong */
} kg_proxy_verdict_t;

/* fd (the callee's), or -1 and err: conflict = nothing listens there. Never from inside connect. */
typedef void kg_proxy_connected_fn(void *user, int fd_take, const kg_err_t *err);

typedef struct kg_proxy_handler {
    /* token {NULL,0}: none was given. */
    kg_proxy_verdict_t (*look)(void *user, const char *sandbox, uint16_t port, kg_slice_t token);
    /* A connection that is there may be used: it is exposed, and it runs. */
    bool (*ready)(void *user, const char *sandbox, uint16_t port);
    int (*connect)(void *user,
                   const char *sandbox,
                   uint16_t port,
                   kg_proxy_connected_fn *done,
                   void *done_user,
                   kg_err_t *err);
    void (*forget)(void *user, void *done_user);    /* done never runs */
    void (*touch)(void *user, const char *sandbox); /* it is in use; wakes it */
    void *user;
} kg_proxy_handler_t;

/* Zero = the default in brackets. Strings are copied. */
typedef struct kg_proxy_opts {
    const char *listen;          /* "127.0.0.1:8718" */
    const char *domain;          /* of the host form besides localhost; NULL = none */
    bool https;                  /* somebody before us speaks TLS: X-Forwarded-Proto, cookies */
    size_t connections_max;      /* [1024]; more wait in the kernel's queue */
    unsigned header_timeout_ms;  /* [10000] */
    unsigned idle_timeout_ms;    /* [75000] between exchanges */
    unsigned stall_timeout_ms;   /* [300000] nothing moves in an exchange */
    unsigned tunnel_timeout_ms;  /* [3600000] nothing moves in a WebSocket */
    unsigned start_timeout_ms;   /* [3000] a refused connection is tried again for so long */
    unsigned connect_timeout_ms; /* [30000] waking included */
} kg_proxy_opts_t;

int kg_proxy_create(kg_loop_t *loop,
                    const kg_proxy_opts_t *opts,
                    const kg_proxy_handler_t *handler,
                    kg_proxy_t **ret_proxy,
                    kg_err_t *err);
unsigned kg_proxy_port(const kg_proxy_t *proxy);
size_t kg_proxy_connections(const kg_proxy_t *proxy);
/* Cuts all; done runs later, when nothing is left and it is freed. NULLs the pointer. */
void kg_proxy_close(kg_proxy_t **ret_proxy, kg_fn *done, void *user);
/* Serves a connected stream socket (tests, fuzzers). Takes the descriptor. */
int kg_proxy_adopt_take(kg_proxy_t *proxy, int fd);

#endif
