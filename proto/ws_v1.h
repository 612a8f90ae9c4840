/* v1.kernel.websocket.jupyter.org: one binary frame a message. A table of offsets (64 bits, low
 * byte first), the channel's name, the four JSON parts and the buffers, back to back. Pure, no
 * I/O. */
#ifndef KG_PROTO_WS_V1_H
#define KG_PROTO_WS_V1_H

#include "proto/ws_msg.h"

#define KG_WS_V1_PROTOCOL "v1.kernel.websocket.jupyter.org"
/* Offsets above it are no longer exact where clients keep numbers as doubles. */
#define KG_WS_V1_FRAME_MAX ((UINT64_C(1) << 53) - 1)

/* A received frame; ret_msg borrows from it and from store. -EBADMSG: no such frame, or an unknown
 * channel; -E2BIG: more than KG_WS_BUFFERS_MAX buffers. err (invalid_frame) tells what was wrong.
 * The parts are not looked at. */
int kg_ws_v1_decode(kg_slice_t frame,
                    kg_slice_t store[KG_WS_BUFFERS_MAX],
                    kg_ws_msg_t *ret_msg,
                    kg_err_t *err);

/* Appends what stands before the parts; the frame is it, then the four parts, then the buffers, all
 * as they are. -E2BIG: more than KG_WS_BUFFERS_MAX or KG_WS_V1_FRAME_MAX. */
int kg_ws_v1_prefix(const kg_ws_msg_t *msg, kg_buf_t *out);
/* Appends the whole frame. */
int kg_ws_v1_encode(const kg_ws_msg_t *msg, kg_buf_t *out);

#endif
