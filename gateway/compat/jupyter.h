/* Jupyter's HTTP API over the same sandboxes, contexts and keys as /v1: JupyterLab, VS Code and
 * every Jupyter client see live contexts as kernels. docs/jupyter.md is for people. */
#ifndef KG_COMPAT_JUPYTER_H
#define KG_COMPAT_JUPYTER_H

#include "gateway/view/server.h"

#define KG_JUPYTER_UNREAD_MAX ((size_t)32 << 20)
#define KG_JUPYTER_MISSED_MAX ((size_t)64 << 20)

typedef struct kg_jupyter kg_jupyter_t;

/* Public plain data; strings are borrowed and must outlive the kg_jupyter_t. */
typedef struct kg_jupyter_config {
    uint64_t kernel_timeout_s;     /* idle seconds of kernels that clients start; 0 = never */
    const char *kernel_on_timeout; /* "pause", "kill"; NULL = pause where it can be, else kill */
    const char *const *env;        /* variables of clients that kernels get: names, or NAME* */
    size_t env_count;
    size_t unread_max;    /* bytes that one client of channels may leave unread, beside the largest
                             message; 0 = KG_JUPYTER_UNREAD_MAX */
    uint64_t reconnect_s; /* for which a client of channels that has gone is waited for; 0 = none */
    size_t missed_max;    /* bytes that are kept for it; 0 = KG_JUPYTER_MISSED_MAX */
    unsigned sessions_max; /* that clients of one owner have made; 0 = none */
} kg_jupyter_config_t;

/* Serves /api, /kernelspecs, /tree and /hub/api on server from here on. */
int kg_jupyter_create(kg_server_t *server,
                      const kg_jupyter_config_t *config,
                      kg_jupyter_t **ret_jupyter,
                      kg_err_t *err);
/* Before the server is closed: starts of kernels whose clients have left are let go. NULL ok. */
void kg_jupyter_stop(kg_jupyter_t *jupyter);
/* When the server is closed: nothing comes any more. NULL ok; NULLs the pointer. */
void kg_jupyter_destroy(kg_jupyter_t **jupyter);

#endif
