/* The turn of a gateway: the state is its alone, and its listeners are to be had, before it touches
 * anything. */
#ifndef KG_CLI_TURN_H
#define KG_CLI_TURN_H

#include "gateway/cli/config.h"
#include "gateway/edge/edge.h"

/* Zeroed with lock_fd -1 it is none. */
typedef struct kg_turn {
    int lock_fd;               /* of STATE/gateway.lock: held as long as the process lives */
    kg_edge_socket_t *sockets; /* one an address of listen, in its order; the server takes them */
    size_t count;
} kg_turn_t;

/* Waits up to KG_TURN_WAIT_MS for a gateway of the same state that is leaving, as one does whose
 * keeper was killed: blocks, and is for a start alone. On failure *ret is as it was. */
#define KG_TURN_WAIT_MS 10000
int kg_turn_take(const kg_config_t *config, kg_turn_t *ret, kg_err_t *err);
/* Closes what was not taken, and gives the lock back. */
void kg_turn_end(kg_turn_t *turn);

#endif
