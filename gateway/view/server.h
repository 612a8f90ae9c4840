/* The front of the gateway: listeners, routes and sockets over one core. Main makes one and hands
 * it the configuration. */
#ifndef KG_VIEW_SERVER_H
#define KG_VIEW_SERVER_H

#include "gateway/api/tools.h"
#include "gateway/base/err.h"
#include "gateway/context/core.h"
#include "gateway/edge/edge.h"

typedef struct kg_server kg_server_t;

/* Public plain data; strings are copied by kg_server_start. Zero = the default in brackets. */
typedef struct kg_server_config {
    const char *const
        *listen; /* "127.0.0.1:8717", "[::1]:0", "unix:PATH" [none: kg_server_adopt alone] */
    size_t listen_count;
    kg_edge_socket_t *sockets; /* one each, opened before, and taken [NULL: opened here] */
    const char *tls_cert; /* PEM files, both or none; for every listener that is no unix socket */
    const char *tls_key;
    bool no_auth; /* no keys: refused for listeners that are neither loopback nor a unix socket */
    const char *const *cors_origins; /* "https://app.example" or "*"; none: CORS is off */
    size_t cors_origin_count;
    const char *const *allowed_hosts; /* with no_auth: Host names besides loopback and localhost */
    size_t allowed_host_count;
    size_t connections_max;         /* [8192] */
    size_t body_max;                /* of a request [8 MiB] */
    size_t frame_max;               /* of a WebSocket message [8 MiB] */
    size_t pending_max;             /* bytes of answers that one socket may leave unread [8 MiB] */
    unsigned runs_per_socket;       /* runs followed at once on one WebSocket [64] */
    unsigned calls_per_socket;      /* unanswered calls on one WebSocket [256] */
    unsigned header_timeout_ms;     /* [10000] */
    unsigned body_timeout_ms;       /* [30000] */
    unsigned idle_timeout_ms;       /* keep-alive [75000] */
    unsigned stall_timeout_ms;      /* client takes nothing [300000] */
    const kg_tools_config_t *tools; /* copied [kg_tools_config_defaults] */
    unsigned ping_ms; /* WebSocket ping, and the keep-alive of silent streams [15000] */
} kg_server_config_t;

/* Listens. core is borrowed and must outlive the server. On failure nothing is left, err says which
 * address and why. */
int kg_server_start(kg_core_t *core,
                    const kg_server_config_t *config,
                    kg_server_t **ret_server,
                    kg_err_t *err);
/* The port that listener index got; 0 for unix sockets. */
unsigned kg_server_port(const kg_server_t *server, size_t index);
/* No new WebSockets (503). Listening goes on, so that clients and balancers are told of the
 * draining (503, /readyz) and can read the end of their runs: call it with kg_core_drain, then
 * close when the core is done. */
void kg_server_drain(kg_server_t *server);
/* Lets streams that have their result finish within grace_ms, cuts the rest (WebSockets with 1001).
 * done runs when nothing is left and the server is freed. No run is attached any more by then:
 * destroy the core after it. NULLs the pointer. */
void kg_server_close(kg_server_t **server, unsigned grace_ms, kg_fn *done, void *user);
/* Serves a connected stream socket as listener 0 (tests, fuzzers). Takes the descriptor. */
int kg_server_adopt_take(kg_server_t *server, int fd);

#endif
