/* gateway/view: keys of open sockets. Many sockets have the same key, one after the other: it is
 * looked up once. */
#include "gateway/view/key_watch.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/view/view_priv.h"

void kg_server_watch_key(
    kg_server_t *server, kg_key_watch_t *watch, const char *key, kg_fn *gone, void *user)
{
    (void)snprintf(watch->key, sizeof watch->key, "%s", key);
    watch->gone = gone;
    watch->user = user;
    DL_APPEND(server->watches, watch);
}

void kg_server_unwatch_key(kg_server_t *server, kg_key_watch_t *watch)
{
    if (watch->gone) {
        DL_DELETE(server->watches, watch);
        watch->gone = NULL;
    }
}

void kg_key_watches_look(kg_server_t *server)
{
    char last[KG_ID_MAX] = "";
    bool lives = true;
    kg_key_watch_t *watch = NULL;
    kg_key_watch_t *next = NULL;
    DL_FOREACH_SAFE (server->watches, watch, next) {
        if (strcmp(last, watch->key) != 0) {
            memcpy(last, watch->key, sizeof last);
            lives = kg_auth_lives(kg_api_auth(server->api), last);
        }
        if (!lives) {
            kg_fn *gone = watch->gone;
            kg_server_unwatch_key(server, watch);
            gone(watch->user);
        }
    }
}
