/* A Jupyter message between the two WebSocket protocols (ws_v1.h, ws_legacy.h) and the parts of the
 * wire: borrowed slices, nothing parsed. */
#ifndef KG_PROTO_WS_MSG_H
#define KG_PROTO_WS_MSG_H

#include "proto/wire.h"

#define KG_WS_PARTS 4 /* header, parent_header, metadata, content */
/* What fits into one message of the wire beside the delimiter, the signature and the parts. */
#define KG_WS_BUFFERS_MAX (KG_WIRE_FRAMES_MAX - 2 - KG_WS_PARTS)

/* Public plain data. */
typedef struct kg_ws_msg {
    kg_channel_t channel;
    kg_slice_t parts[KG_WS_PARTS]; /* JSON text */
    const kg_slice_t *buffers;
    size_t buffer_count;
    kg_hold_t hold;         /* keeps the buffers, and */
    bool held[KG_WS_PARTS]; /* of the parts these */
} kg_ws_msg_t;

/* -ENOENT: no such channel. */
int kg_channel_parse(kg_slice_t name, kg_channel_t *ret_channel);

/* A part of a kernel's message as both protocols may carry it to a client: as it is where it is
 * valid UTF-8 and strict JSON already (it is not copied then), else repaired (kg_json_copy) at the
 * end of store. `part` is an object that kg_json_check accepted, or `deep`: of one that is nested
 * too deep the members that are not are kept. The slice is valid until store is appended to. */
int kg_ws_clean_part(kg_json_value_t part, bool deep, kg_buf_t *store, kg_slice_t *ret);

#endif
