/* A real edge on a loop thread of its own, with a handler that serves what the tests ask for, and a
 * blocking client. */
#ifndef EDGE_FIXTURE_H
#define EDGE_FIXTURE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/clock.h"
#include "gateway/edge/edge.h"

typedef struct edge_fixture {
    kg_loop_t *loop;
    kg_edge_t *edge;
    kg_edge_opts_t opts;
    kg_edge_listener_t listeners[4];
    unsigned ports[4];
    pthread_t thread;
    int order[2]; /* pipe: what the loop thread is to do */
    kg_fdwatch_t *watch;
    unsigned grace_ms;
    int loop_leaks;
    kg_timer_t *trickle_timer;
    kg_http_t *trickle;
    kg_http_t *held;
    kg_timer_t *slow_timer;
    int trickled;
    struct exchange *sink; /* of /sink?hold: takes on order 't' */
    atomic_int seen;       /* on_request */
    atomic_int bodies;     /* on_body */
    atomic_int http_closed;
    atomic_int ws_open;
    atomic_int ws_closed;
    atomic_int upgrade_failed;
    atomic_ulong pulled; /* bytes that streams gave */
    atomic_ulong poured; /* that went past the edge */
    atomic_ulong taken;  /* bytes of bodies that sinks took */
    atomic_ulong most;   /* of them in one go */
    atomic_int readies;
    atomic_int kept; /* references of held messages */
    atomic_ulong connections;
    atomic_int turns; /* loop turns, counted by a hook */
    kg_hook_t hook;
} edge_fixture_t;

/* Fills opts with short timeouts and one TCP listener; change them, then start. */
edge_fixture_t *edge_prepare(void);
void edge_start(edge_fixture_t *f);
void edge_order(edge_fixture_t *f,
                char what); /* 'd' drain, 'q' close and stop the loop, 'a' answer what is held, 't'
                             let the held sink take from now on */
void edge_finish(edge_fixture_t *f); /* close, join, check that the loop closed clean */

/* --- Client
 * ----------------------------------------------------------------------------------------------------------
 */

typedef struct client {
    int fd;
    char *buf;
    size_t len;
    size_t cap;
} client_t;

typedef struct response {
    int status;
    char head[4096];
    char *body; /* freed by response_free; chunks are joined */
    size_t body_len;
    bool complete; /* the body ended as it should */
} response_t;

client_t client_connect(unsigned port);
client_t client_wrap(int fd);
void client_send(client_t *c, const char *text);
void client_send_bytes(client_t *c, const void *data, size_t len);
/* Reads one answer within 10 s. status 0 = the connection ended without one. */
response_t client_read(client_t *c, bool head_only);
response_t client_get(edge_fixture_t *f, const char *path);
void response_free(response_t *r);
/* Waits until what the loop's thread counts has moved, and then stands still for 300 ms. */
unsigned long edge_settled(atomic_ulong *counter);
/* Longer than anything takes that is to happen. */
#define PATIENCE_MS 60000
/* True when the peer closes within ms. */
bool client_closed_within(client_t *c, int ms);
void client_close(client_t *c);

/* WebSocket. Fails the test when the answer is not 101. */
client_t ws_connect(unsigned port, const char *path, const char *protocols);
void ws_handshake(client_t *c, const char *path, const char *extra);
void ws_send(client_t *c, unsigned op_fin, const void *data, size_t len);
void ws_send_text(client_t *c, const char *text);
typedef struct frame {
    unsigned op_fin;
    char *data; /* NULL: the connection ended, or nothing came in time */
    size_t len;
    unsigned code; /* of a close frame */
} frame_t;
frame_t ws_read(client_t *c);
frame_t ws_read_within(client_t *c, int ms);
size_t own_rss_kib(void);
double cpu_seconds(void);

#endif
