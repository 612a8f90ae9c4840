/* Messages in the size that a server takes which is a client itself (JupyterLab by --gateway-url):
 * it drops its connection at a frame over 10 MiB. For this room's own files. */
#ifndef KG_COMPAT_FIT_H
#define KG_COMPAT_FIT_H

#include "proto/ws_msg.h"

#define KG_FIT_MAX ((size_t)8 << 20)            /* bytes of parts that need no fitting */
#define KG_FIT_PIECE (KG_FIT_MAX - (64u << 10)) /* of a stream's text in one message */

typedef int kg_fit_fn(void *user, const kg_ws_msg_t *msg);

/* Gives send the message: as it is, a `stream` in pieces, a display that is too large as a note
 * that says so; of errors and replies what they say about the end, with a note; in place of all
 * else a line on stderr. Ends at the first that fails: its result, or -ENOMEM. */
int kg_fit_each(const kg_ws_msg_t *msg, kg_fit_fn *send, void *user);

#endif
