/* GET /api/kernels/{id}/channels: a client at a context's kernel, in either of Jupyter's WebSocket
 * protocols. For this room's own files. */
#ifndef KG_COMPAT_CHANNELS_H
#define KG_COMPAT_CHANNELS_H

#include "gateway/compat/jupyter_priv.h"

/* The client may attach to kernel: chooses its protocol and makes what the connection begins with
 * (reply). invalid_request (none of the offered protocols), quota_exceeded. */
int kg_channels_accept(kg_jupyter_t *jupyter,
                       const kg_kernel_ref_t *kernel,
                       const kg_http_head_t *head,
                       kg_slice_t offered,
                       kg_upgrade_reply_t *reply,
                       kg_err_t *err);

/* A client restarts this kernel over REST, with its key. Its connections (those with the same key)
 * know of it then; expected = false: it is over. */
void kg_channels_expect_restart(kg_jupyter_t *jupyter,
                                const kg_kernel_ref_t *kernel,
                                bool expected);

/* Callbacks of the edge; user is the jupyter. */
void kg_channels_on_upgrade_failed(void *ws_user, void *user);
void kg_channels_on_open(kg_ws_t *ws, void *user);
void kg_channels_on_message(kg_ws_t *ws, kg_slice_t data, bool binary, void *user);
void kg_channels_on_close(kg_ws_t *ws, void *user);

#endif
