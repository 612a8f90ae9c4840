/* Where in a request a key of the daemon can be: what its listeners take a key from, and the proxy
 * keeps from the sandboxes. A new form belongs here, and in both. Pure.
 *
 *   Authorization: Bearer KEY                  everywhere
 *   Authorization: token KEY                   Jupyter's API
 *   X-API-Key: KEY                             everywhere
 *   Sec-WebSocket-Protocol: …, bearer.KEY, …   WebSockets
 *   ?token=KEY, percent-encoded or not         Jupyter's API */
#ifndef KG_BASE_CREDENTIAL_H
#define KG_BASE_CREDENTIAL_H

#include "gateway/base/buf.h"

#define KG_KEY_PREFIX "sk-sandal-" /* each key begins so */

/* The key of "SCHEME KEY", the scheme in any case, blanks and tabs around the key; {NULL,0}:
 * another scheme, or nothing behind it. Slices are borrowed. */
kg_slice_t kg_credential_after(kg_slice_t authorization, const char *scheme);
/* Of `token KEY` or `Bearer KEY`; what other schemes carry is no key of ours. */
kg_slice_t kg_credential_of_header(kg_slice_t authorization);
/* Of "bearer.KEY", one element of Sec-WebSocket-Protocol; {NULL,0}: another protocol. */
kg_slice_t kg_credential_of_protocol(kg_slice_t protocol);
/* token=KEY of a query, decoded to ret; false: none, empty, or longer than cap. */
bool kg_credential_of_query(kg_slice_t query, char *ret, size_t cap);
/* A client that is given the URL ws://HOST?token=KEY and appends the path to it asks for
 * /?token=KEY/api/kernels/…[?QUERY]: those three of it, borrowed (jupyter_server's
 * GatewayKernelClient sends no header). false: query is an ordinary one. */
bool kg_credential_before_path(kg_slice_t query,
                               kg_slice_t *ret_credential,
                               kg_slice_t *ret_path,
                               kg_slice_t *ret_query);

/* Does text begin as a key does, whatever its case? What comes behind is not looked at. */
bool kg_credential_is_key(kg_slice_t text);
/* Is this header Authorization or X-API-Key with a key? */
bool kg_credential_in_header(kg_slice_t name, kg_slice_t value);
/* Is this NAME=VALUE of a query token= with a key? */
bool kg_credential_in_pair(kg_slice_t pair);

/* Decodes %XX once, and "+" as a space if form. false: malformed, U+0000, or longer than cap. */
bool kg_percent_decode(kg_slice_t text, bool form, char *ret, size_t cap);

#endif
