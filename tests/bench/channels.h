/* A client of a kernel's channels over WebSocket, in either of Jupyter's protocols, for the
 * benches: against this gateway and against a Jupyter server. Whatever goes wrong ends the program.
 */
#ifndef KG_TESTS_BENCH_CHANNELS_H
#define KG_TESTS_BENCH_CHANNELS_H

#include "proto/ws_msg.h"
#include "tests/bench/ws_client.h"

#define CHANNELS_ID_MAX 64

typedef struct channels {
    ws_client_t ws;
    bool v1;
    unsigned asked;
    kg_buf_t frame; /* of the message received last */
    kg_slice_t store[KG_WS_BUFFERS_MAX];
} channels_t;

/* A message; borrowed until the next one is received. Its parts are checked JSON. */
typedef struct heard {
    kg_ws_msg_t msg;
    kg_json_value_t content;
    kg_slice_t parent_id; /* in quotes; empty where there is none */
    kg_slice_t type;      /* in quotes */
} heard_t;

/* protocol: "v1" or "legacy". */
void channels_open(channels_t *c,
                   const char *host,
                   const char *port,
                   const char *token,
                   const char *kernel,
                   const char *protocol);
void channels_close(channels_t *c);
/* Sends an execute_request; ret_id is its id in quotes. */
void channels_execute(channels_t *c, const char *code, char ret_id[CHANNELS_ID_MAX]);
void channels_receive(channels_t *c, heard_t *ret);
/* What ends a request: its reply on shell, and its idle status. */
bool heard_reply(const heard_t *heard);
bool heard_idle(const heard_t *heard);

#endif
