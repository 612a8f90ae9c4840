/* Connection files: a context's kernel for Jupyter clients that speak ZeroMQ (jupyter console
 * --existing FILE, jupyter_client, nbclient). The file names sockets of the gateway, never the
 * kernel's own, and has a key of its own; each client is one as attach.h has them. Nothing of it is
 * kept: connections end with their context, with the API key that made them, and with the gateway
 * process, also where kernels outlive it. */
#ifndef KG_CONTEXT_CONNECT_H
#define KG_CONTEXT_CONNECT_H

#include "gateway/context/context.h"

#define KG_CONNECTIONS 64                            /* in the daemon, unless configured */
#define KG_OWNER_CONNECTIONS 32                      /* of one owner, unless configured */
#define KG_CONTEXT_CONNECTIONS 8                     /* at one context, unless configured */
#define KG_CONNECTION_UNREAD (UINT64_C(32) << 20)    /* bytes, unless configured */
#define KG_CONNECTION_PEERS 16                       /* clients (identities) at one connection */
#define KG_CONNECTION_FRAME_MAX (32 << 20)           /* bytes of a frame; longer ones disconnect */
#define KG_CONNECTION_MESSAGE_MAX ((size_t)64 << 20) /* of one message */
#define KG_CONNECTION_SEEN 4096 /* signatures that are known again; older ones are not */

/* Borrowed for the call. */
typedef struct kg_connect_opts {
    bool tcp;           /* else ipc */
    const char *key_id; /* of the API key; may be that of keyless loopback */
    bool may_restart;   /* its clients may restart the kernel, whosever it is */
} kg_connect_opts_t;

/* Makes the sockets and the file. *ret_answer, a new reference, is the object with its connection
 * info, the key included. quota_exceeded (too many of them), not_supported (tcp where it is not
 * allowed; ipc where the path of the state directory is too long for it). */
int kg_context_connect(kg_context_t *context,
                       const kg_connect_opts_t *opts,
                       json_t **ret_answer,
                       kg_err_t *err);
/* {"items":[…],"next":null}, without keys. key_id: those alone that this key made; NULL: all. New
 * reference or NULL (OOM). */
json_t *kg_connection_list(const kg_context_t *context, const char *key_id);
/* Revokes it: its sockets close, its file goes. not_found, also where key_id is not NULL and
 * another key made it. */
int kg_connection_end(kg_context_t *context, const char *id, const char *key_id, kg_err_t *err);
/* The API key was removed. */
void kg_connections_end_of_key(kg_core_t *core, const char *key_id);

#endif
