/* Sockets outlive the request that showed their key. While one is open its key is looked at each
 * few seconds, and at once when a key is removed over the API; when it was removed or has expired
 * the socket is told to end. */
#ifndef KG_VIEW_KEY_WATCH_H
#define KG_VIEW_KEY_WATCH_H

#include "gateway/base/id.h"
#include "gateway/base/mem.h"
#include "gateway/view/server.h"

#define KG_KEY_GONE_CLOSE 1008 /* RFC 6455 section 7.4.1: policy violation */
#define KG_KEY_GONE_REASON "the key is no longer good"

/* Part of the socket, zero-initialised. */
typedef struct kg_key_watch {
    char key[KG_ID_MAX];
    kg_fn *gone; /* once, out of the loop's timer; may end the watch and destroy its owner */
    void *user;
    struct kg_key_watch *prev, *next;
} kg_key_watch_t;

/* key: its id. */
void kg_server_watch_key(
    kg_server_t *server, kg_key_watch_t *watch, const char *key, kg_fn *gone, void *user);
/* Harmless on one that never began. */
void kg_server_unwatch_key(kg_server_t *server, kg_key_watch_t *watch);

#endif
