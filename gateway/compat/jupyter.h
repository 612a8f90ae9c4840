/* Jupyter's HTTP API over the same sandboxes, contexts and keys as /v1: JupyterLab, VS Code and
 * every Jupyter client see live contexts as kernels. docs/jupyter.md is for people. */
#ifndef KG_COMPAT_JUPYTER_H
#define KG_COMPAT_JUPYTER_H

#include "gateway/view/server.h"

typedef struct kg_jupyter kg_jupyter_t;

/* Serves /api, /kernelspecs, /tree and /hub on server from here on. */
int kg_jupyter_create(kg_server_t *server, kg_jupyter_t **ret_jupyter, kg_err_t *err);
/* When the server is closed: nothing comes any more. NULL ok; NULLs the pointer. */
void kg_jupyter_destroy(kg_jupyter_t **jupyter);

#endif
