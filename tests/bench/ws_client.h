/* A WebSocket on a plain socket, for the bench clients: no library's cost is measured. Whatever
 * goes wrong ends the program. */
#ifndef KG_TESTS_BENCH_WS_CLIENT_H
#define KG_TESTS_BENCH_WS_CLIENT_H

#include <stdbool.h>

#include "gateway/base/buf.h"

enum {
    WS_TEXT = 1,
    WS_BINARY = 2,
};

typedef struct ws_client {
    int fd;
    kg_buf_t in;
    size_t at;      /* consumed bytes of in */
    uint64_t bytes; /* of all messages */
    /* BENCH_QUICK_ACK is in the environment: what comes is acknowledged at once, for servers that
     * write a message in pieces and leave Nagle's algorithm on wait for that (40 ms). */
    bool quick_ack;
} ws_client_t;

/* authorization: the header's value. protocol: the subprotocol to offer and insist on; NULL: none.
 */
void ws_client_open(ws_client_t *c,
                    const char *host,
                    const char *port,
                    const char *target,
                    const char *authorization,
                    const char *protocol);
void ws_client_close(ws_client_t *c);
void ws_client_send(ws_client_t *c, unsigned opcode, kg_slice_t data);
/* One whole message; waits for it. Pings are left unanswered. */
void ws_client_receive(ws_client_t *c, kg_buf_t *out);
/* Bytes of a further message have been read from the socket already. */
bool ws_client_has_more(const ws_client_t *c);

#endif
