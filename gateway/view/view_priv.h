/* Inside of the server, for this room's own files. */
#ifndef KG_VIEW_VIEW_PRIV_H
#define KG_VIEW_VIEW_PRIV_H

#include "gateway/api/api.h"
#include "gateway/edge/edge.h"
#include "gateway/view/dialect.h"
#include "gateway/view/guard.h"
#include "gateway/view/key_watch.h"
#include "gateway/view/server.h"

#define KG_VIEW_PIECE 65536U /* an Execution up to this size is answered with its length */
#define KG_VIEW_CHALLENGE "Bearer realm=\"sandal\"" /* of every 401 */
#define KG_WS_ID_MAX 128 /* bytes of a frame's id as JSON text, without quotes */

typedef struct kg_exchange kg_exchange_t; /* one HTTP exchange */
typedef struct kg_socket kg_socket_t;     /* one WebSocket */

struct kg_server {
    kg_core_t *core;
    kg_loop_t *loop;
    kg_api_t *api;
    kg_edge_t *edge;
    kg_timer_t *timer;
    kg_timer_t *key_timer; /* once, when keys were removed */
    kg_workq_t *workers;   /* parse long requests */
    kg_guard_t guard;
    const kg_dialect_t *dialect; /* NULL: /v1 alone */
    size_t body_max;
    size_t frame_max;
    size_t pending_max;
    unsigned runs_per_socket;
    unsigned calls_per_socket;
    uint64_t silent_ns;   /* a stream that was silent for so long gets a sign of life */
    const char **origins; /* what guard points to */
    const char **hosts;
    bool draining;
    kg_exchange_t *exchanges; /* utlist */
    kg_socket_t *sockets;     /* utlist */
    kg_key_watch_t *watches;  /* utlist */
    uint64_t websockets;
    uint64_t streams;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    kg_fn *done;
    void *user;
};

/* Key, owner and rights of a request's head. unauthorized. */
int kg_server_authenticate(kg_server_t *server,
                           const kg_http_head_t *head,
                           kg_slice_t protocols,
                           kg_principal_t *ret_who,
                           kg_err_t *err);

/* The edge's handler for all dialects, and that of this room's own. */
void kg_view_handler(kg_server_t *server, kg_edge_handler_t *ret);
const kg_edge_handler_t *kg_view_own(void);

/* Callbacks of our own dialect; user is the server. */
void kg_view_http_on_request(kg_http_t *http,
                             const kg_http_head_t *head,
                             size_t *ret_body_max,
                             void *user);
void kg_view_http_on_body(kg_http_t *http, kg_slice_t body, void *user);
void kg_view_http_on_close(kg_http_t *http, void *user);
int kg_view_ws_on_upgrade(const kg_http_head_t *head,
                          kg_slice_t offered,
                          kg_upgrade_reply_t *reply,
                          void *user);
void kg_view_ws_on_upgrade_failed(void *ws_user, void *user);
void kg_view_ws_on_open(kg_ws_t *ws, void *user);
void kg_view_ws_on_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user);
void kg_view_ws_on_close(kg_ws_t *ws, void *user);

/* The headers that op has as fields, as checked values in args. invalid_request. */
int kg_route_headers(const kg_op_t *op, const kg_http_head_t *head, json_t *args, kg_err_t *err);

/* Ends the sockets whose keys are gone. */
void kg_key_watches_look(kg_server_t *server);

/* Signs of life for streams that have been silent. */
void kg_http_keep_alive(kg_server_t *server, uint64_t now_ns);

#endif
