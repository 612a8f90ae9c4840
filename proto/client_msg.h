/* What Jupyter clients send towards a kernel. Stock kernels exit, hang or say nothing for ever on
 * messages that lack a field or have a wrong one, so none goes through as it came: it is checked,
 * bounded, completed and written anew; the caller signs it with the kernel's own session
 * (kg_request_forward). Pure, no I/O. */
#ifndef KG_PROTO_CLIENT_MSG_H
#define KG_PROTO_CLIENT_MSG_H

#include "proto/ws_msg.h"

#define KG_CLIENT_HEADER_MAX 8192
#define KG_CLIENT_METADATA_MAX 65536
#define KG_CLIENT_HISTORY_MAX 10000 /* entries asked for: more are these */

typedef enum kg_client_kind {
    KG_CLIENT_EXECUTE,
    KG_CLIENT_KERNEL_INFO,
    KG_CLIENT_COMPLETE,
    KG_CLIENT_INSPECT,
    KG_CLIENT_IS_COMPLETE,
    KG_CLIENT_HISTORY,
    KG_CLIENT_COMM_INFO,
    KG_CLIENT_COMM_OPEN,
    KG_CLIENT_COMM_MSG,
    KG_CLIENT_COMM_CLOSE,
    KG_CLIENT_INPUT_REPLY,
    KG_CLIENT_INTERRUPT,
    KG_CLIENT_SHUTDOWN,
    KG_CLIENT_DEBUG,
    KG_CLIENT_CREATE_SUBSHELL,
    KG_CLIENT_DELETE_SUBSHELL,
    KG_CLIENT_LIST_SUBSHELL
} kg_client_kind_t;

/* What a kernel must have said that it has. */
#define KG_CLIENT_DEBUGGER 1U
#define KG_CLIENT_SUBSHELLS 2U

/* Public plain data. */
typedef struct kg_client_limits {
    size_t code_max;    /* bytes of code, as UTF-8 */
    size_t content_max; /* bytes of content as JSON */
    unsigned features;  /* of the kernel: KG_CLIENT_DEBUGGER … */
} kg_client_limits_t;

/* Public plain data; owned. Zero-initialise. */
typedef struct kg_client_msg {
    /* by kg_client_msg_open */
    kg_channel_t channel;
    char msg_type[64];
    char msg_id[KG_MSG_ID_MAX];
    char session[KG_MSG_ID_MAX];
    char parent_id[KG_MSG_ID_MAX]; /* "" where there is none */
    /* Which shell it names, "" where none: on shell by its header; of a DELETE_SUBSHELL, from
     * kg_client_msg_check on, by its content ("" where that is too long to be an id). */
    char subshell_id[KG_MSG_ID_MAX];
    kg_buf_t header; /* canonical: the parent_header of what is answered */
    /* by kg_client_msg_check */
    kg_client_kind_t kind;
    kg_buf_t metadata; /* canonical */
    /* Canonical and complete; empty for EXECUTE, INPUT_REPLY, INTERRUPT and SHUTDOWN, which the
     * gateway carries out itself. */
    kg_buf_t content;
    kg_buf_t text; /* EXECUTE: the code; INPUT_REPLY: the value */
    struct {
        bool silent, store_history, allow_stdin, stop_on_error;
        kg_buf_t user_expressions; /* canonical object */
    } execute;
    bool restart;              /* SHUTDOWN */
    const kg_slice_t *buffers; /* of comm messages; those of others are left out. Borrowed */
    size_t buffer_count;
} kg_client_msg_t;
void kg_client_msg_fini(kg_client_msg_t *msg);

/* The header: who is to be answered, and under which id. -EBADMSG, -E2BIG: it is none, and nobody
 * can be answered; nothing is left in msg. */
int kg_client_msg_open(const kg_ws_msg_t *frame, kg_client_msg_t *msg, kg_err_t *err);
/* The rest, of an opened one. -ENOTSUP (not_supported): no such message on this channel, or the
 * kernel lacks what it is for; -EINVAL (invalid_request), -E2BIG (too_large): what is wrong with
 * its content or metadata. */
int kg_client_msg_check(const kg_ws_msg_t *frame,
                        const kg_client_limits_t *limits,
                        kg_client_msg_t *msg,
                        kg_err_t *err);

#endif
