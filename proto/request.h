/* Builders for every request that the gateway sends to a kernel. Each fills frames ready to send:
 * delimiter, signature and four JSON parts (no identity: DEALER adds it). Requests are complete:
 * every field that any stock kernel needs is there. */
#ifndef KG_PROTO_REQUEST_H
#define KG_PROTO_REQUEST_H

#include "proto/wire.h"

/* Owned frames of one outgoing message. */
typedef struct kg_out {
    char msg_id[KG_MSG_ID_MAX];
    kg_buf_t sig, header, parent, metadata, content;
    kg_buf_t *buffers; /* behind the frames below, unsigned */
    size_t buffer_count;
} kg_out_t;
void kg_out_fini(kg_out_t *out);
/* Copies them. -E2BIG: over KG_WIRE_FRAMES_MAX with the frames below. Once, before it is sent. */
int kg_out_add_buffers(kg_out_t *out, const kg_slice_t *buffers, size_t count);
#define KG_OUT_FRAMES 6
/* Borrowed view: delimiter, signature, header, parent, metadata, content. */
void kg_out_frames(const kg_out_t *out, kg_slice_t ret_frames[KG_OUT_FRAMES]);

/* Who is speaking: one per kernel incarnation and gateway. counter makes msg_ids unique: SESSION_N.
 */
typedef struct kg_session {
    char id[64];
    char username[32];
    uint64_t counter;
    kg_wire_key_t key;
} kg_session_t;

typedef struct kg_execute_args {
    kg_slice_t code; /* UTF-8, may hold anything the caller let through */
    bool silent;
    bool store_history;
    bool allow_stdin;
    bool stop_on_error;
    kg_slice_t user_expressions; /* raw JSON object or absent = {} */
    kg_slice_t metadata;         /* likewise */
} kg_execute_args_t;

int kg_request_execute(kg_session_t *s, const kg_execute_args_t *args, kg_out_t *ret);
int kg_request_kernel_info(kg_session_t *s, kg_out_t *ret);
int kg_request_complete(kg_session_t *s, kg_slice_t code, size_t cursor_cp, kg_out_t *ret);
int kg_request_inspect(
    kg_session_t *s, kg_slice_t code, size_t cursor_cp, unsigned detail, kg_out_t *ret);
int kg_request_is_complete(kg_session_t *s, kg_slice_t code, kg_out_t *ret);
int kg_request_history(kg_session_t *s, unsigned n, kg_out_t *ret); /* hist_access_type tail */
int kg_request_comm_info(kg_session_t *s, kg_out_t *ret);
int kg_request_interrupt(kg_session_t *s, kg_out_t *ret);
int kg_request_shutdown(kg_session_t *s, bool restart, kg_out_t *ret);
/* parent: the input_request's header, raw JSON as received (must be repaired canonical JSON). */
int kg_reply_input(kg_session_t *s, kg_slice_t value_utf8, kg_slice_t parent_header, kg_out_t *ret);
/* A request of a client's: metadata and content are canonical JSON objects, complete for its type
 * (proto/client_msg.h). */
typedef struct kg_forward_args {
    const char *msg_type;
    const char *subshell_id; /* goes into the header; NULL or "": the main shell */
    kg_slice_t metadata;
    kg_slice_t content;
} kg_forward_args_t;
int kg_request_forward(kg_session_t *s, const kg_forward_args_t *args, kg_out_t *ret);

#endif
