/* Inside of Jupyter's dialect, for this room's own files. */
#ifndef KG_COMPAT_JUPYTER_PRIV_H
#define KG_COMPAT_JUPYTER_PRIV_H

#include "gateway/compat/jupyter.h"
#include "gateway/compat/kernel_id.h"
#include "gateway/view/dialect.h"

typedef struct kg_jsession kg_jsession_t; /* sessions.c */

struct kg_jupyter {
    kg_server_t *server;
    kg_core_t *core;
    kg_jupyter_config_t config;
    uint64_t started_ns; /* wall clock */
    kg_jsession_t *sessions;
    struct kg_channels *channels; /* channels.c */
    struct kg_jreq *left;         /* request.c: starts whose clients have left */
    bool stopping;
    kg_dialect_t dialect; /* user of its handler is this */
};

/* Who asks, by `Authorization: token KEY` or `Bearer KEY`, X-API-Key, ?token=KEY, or the
 * subprotocol bearer.KEY. An empty one is none. unauthorized. */
int kg_jupyter_authenticate(kg_jupyter_t *jupyter,
                            const kg_http_head_t *head,
                            kg_slice_t protocols,
                            kg_principal_t *ret_who,
                            kg_err_t *err);
/* HTTP status of an error on these routes: no key is 403 here, and so is a full quota. */
int kg_jupyter_status(const kg_err_t *err);
/* {"message":…,"reason":…} */
int kg_jupyter_error_body(const kg_err_t *err, kg_buf_t *out);

#endif
