/* Other dialects on the same listeners: a room above claims requests by their heads and answers
 * them; the limits and clocks of the edge hold for it as for /v1. What a dialect needs of the
 * server is below. */
#ifndef KG_VIEW_DIALECT_H
#define KG_VIEW_DIALECT_H

#include "gateway/api/api.h"
#include "gateway/edge/edge.h"
#include "gateway/view/guard.h"
#include "gateway/view/server.h"

/* Public plain data, static or owned by the room above. */
typedef struct kg_dialect {
    bool (*claims)(const kg_http_head_t *head);
    kg_edge_handler_t handler; /* the callbacks of sockets are needed once an upgrade is accepted */
} kg_dialect_t;

/* What kg_http_user and kg_ws_user point to begins with this, in every dialect. */
typedef struct kg_front {
    const kg_edge_handler_t *handler;
} kg_front_t;

/* Requests that dialect claims are its own from here on. Borrowed until the server is closed. One
 * is possible; a second replaces it. */
void kg_server_add_dialect(kg_server_t *server, const kg_dialect_t *dialect);

kg_core_t *kg_server_core(const kg_server_t *server);
kg_api_t *kg_server_api(const kg_server_t *server);
kg_workq_t *kg_server_workers(const kg_server_t *server); /* of kg_parse_start */
const kg_guard_t *kg_server_rules(const kg_server_t *server);
size_t kg_server_body_max(const kg_server_t *server);
bool kg_server_draining(const kg_server_t *server);
/* Counters of bytes that came and went, for /metrics. */
void kg_server_count(kg_server_t *server, uint64_t received, uint64_t sent);

/* Host and Origin of keyless listeners. foreign_host, foreign_origin. */
int kg_server_guard(const kg_server_t *server, const kg_http_head_t *head, kg_err_t *err);
/* The same for sockets: a foreign Origin is refused with keys too. */
int kg_server_guard_socket(const kg_server_t *server, const kg_http_head_t *head, kg_err_t *err);
/* Whose key this is; without keys the one local owner. unauthorized. */
int kg_server_check_key(kg_server_t *server,
                        kg_slice_t key,
                        kg_principal_t *ret_who,
                        kg_err_t *err);

#endif
