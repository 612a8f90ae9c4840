/* The default Jupyter WebSocket protocol, of clients that name none. A message without buffers is
 * one JSON object; with buffers, a table of offsets (32 bits, high byte first), the same object and
 * the buffers. Pure, no I/O. */
#ifndef KG_PROTO_WS_LEGACY_H
#define KG_PROTO_WS_LEGACY_H

#include "proto/ws_msg.h"

/* The four parts and what is around them. */
#define KG_WS_LEGACY_DEPTH_MAX (KG_JSON_DEPTH_MAX + 1)
#define KG_WS_LEGACY_FRAME_MAX UINT32_MAX /* of one with buffers: what offsets can say */

/* A received frame, of either opcode: which form it has is told by its first byte, for some clients
 * send the second form as text. ret_msg borrows from the frame and from store. Without channel it
 * is for shell; parts but the header may be missing. -EBADMSG: no such frame; -E2BIG: too many
 * buffers, or nested too deep; -ENOENT: an unknown channel, to be passed over. err (invalid_frame)
 * tells what was wrong. The parts are JSON objects. */
int kg_ws_legacy_decode(kg_slice_t frame,
                        kg_slice_t store[KG_WS_BUFFERS_MAX],
                        kg_ws_msg_t *ret_msg,
                        kg_err_t *err);

/* Of a message without buffers: what stands before its content and behind it. -EBADMSG as below. */
int kg_ws_legacy_around(const kg_ws_msg_t *msg, kg_buf_t *before, kg_buf_t *behind);
/* Appends the frame: text where msg has no buffers, binary else. The parts are clean JSON objects
 * (kg_ws_clean_part) and stay as they are; msg_id and msg_type of the header are repeated beside
 * it, where some clients look for them. -EBADMSG: the header has none; -E2BIG: over
 * KG_WS_BUFFERS_MAX or KG_WS_LEGACY_FRAME_MAX. */
int kg_ws_legacy_encode(const kg_ws_msg_t *msg, kg_buf_t *out);

#endif
