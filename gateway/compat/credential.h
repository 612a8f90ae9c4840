/* Where a Jupyter client has its key. Pure. */
#ifndef KG_COMPAT_CREDENTIAL_H
#define KG_COMPAT_CREDENTIAL_H

#include "gateway/base/buf.h"

/* `token KEY` or `Bearer KEY` (in any case; what other schemes carry is no key of ours) */
kg_slice_t kg_credential_of_header(kg_slice_t authorization);
/* token=KEY of a query, decoded to ret; false: none, empty, or longer than cap. */
bool kg_credential_of_query(kg_slice_t query, char *ret, size_t cap);
/* A client that is given the URL ws://HOST?token=KEY and appends the path to it asks for
 * /?token=KEY/api/kernels/…[?QUERY]: those three of it, borrowed (jupyter_server's
 * GatewayKernelClient sends no header). false: query is an ordinary one. */
bool kg_credential_before_path(kg_slice_t query,
                               kg_slice_t *ret_credential,
                               kg_slice_t *ret_path,
                               kg_slice_t *ret_query);

#endif
