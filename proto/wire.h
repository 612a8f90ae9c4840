/* The Jupyter wire (messaging protocol 5.x, "The wire protocol"): ZeroMQ frames <-> message,
 * HMAC-SHA256. Pure, no I/O. [identity…] <IDS|MSG> hmac header parent_header metadata content
 * [buffers…] */
#ifndef KG_PROTO_WIRE_H
#define KG_PROTO_WIRE_H

#include "gateway/base/err.h"
#include "gateway/base/hold.h"
#include "proto/json_scan.h"

#define KG_WIRE_FRAMES_MAX 1024
#define KG_WIRE_HEADER_MAX ((size_t)64 * 1024) /* header and parent_header, each */
#define KG_WIRE_KEY_MAX 256
#define KG_WIRE_SIG_LEN 64 /* hex */

typedef enum kg_channel {
    KG_CHANNEL_SHELL,
    KG_CHANNEL_CONTROL,
    KG_CHANNEL_STDIN,
    KG_CHANNEL_IOPUB
} kg_channel_t;
const char *kg_channel_name(kg_channel_t channel);

/* Signing key of one kernel, set by the functions below alone. Wiped by fini. Empty key (also that
 * of a zeroed struct) = signatures are empty strings and not checked (spec). */
typedef struct kg_wire_key {
    size_t len;
    uint64_t state[32]; /* HMAC begun with the key, copied for each message */
} kg_wire_key_t;
int kg_wire_key_set(kg_wire_key_t *key, const char *text, size_t len); /* -E2BIG */
void kg_wire_key_generate(
    kg_wire_key_t *key, char ret_hex[65]); /* 32 random bytes as 64 hex characters, used as text */
void kg_wire_key_fini(kg_wire_key_t *key);
void kg_wire_sign(const kg_wire_key_t *key,
                  const kg_slice_t parts[4],
                  char ret_hex[KG_WIRE_SIG_LEN + 1]);
bool kg_wire_verify(const kg_wire_key_t *key,
                    const kg_slice_t parts[4],
                    kg_slice_t signature); /* constant time */

/* Frames after the delimiter, borrowed. */
typedef struct kg_wire {
    size_t identity_count;
    kg_slice_t signature;
    kg_slice_t parts[4]; /* header, parent_header, metadata, content as received */
    const kg_slice_t *buffers;
    size_t buffer_count;
} kg_wire_t;
/* Scans for the delimiter (never assumes frame 0). -EBADMSG: none or fewer than 5 frames after it;
 * -E2BIG: over a cap. */
int kg_wire_split(const kg_slice_t *frames, size_t count, kg_wire_t *ret_wire);

/* A received message: everything borrowed from the frames. Strings are short fixed copies, cut ones
 * refuse the message. */
#define KG_MSG_ID_MAX 256
typedef struct kg_jmsg {
    char msg_type[64];
    char msg_id[KG_MSG_ID_MAX];
    char session[KG_MSG_ID_MAX];
    char parent_id[KG_MSG_ID_MAX]; /* "" when the parent header is empty */
    char parent_type[64];
    char version[16];
    kg_json_value_t header, parent_header, metadata, content; /* checked, each an object … */
    bool deep; /* … but for metadata and content, if one is nested too deep: its members can be
                  looked at, and those that are not too deep themselves be copied */
    const kg_slice_t *buffers;
    size_t buffer_count;
    kg_hold_t hold; /* of the frames, where who received them says so; zeroed by the parser */
} kg_jmsg_t;
/* split + verify + check of all four JSON parts. err text tells what was wrong. -EBADMSG, -EACCES
 * (signature), -E2BIG. Content of any depth is let through: a run must not hang for want of a reply
 * that the kernel did send. */
int kg_jmsg_parse(const kg_slice_t *frames,
                  size_t count,
                  const kg_wire_key_t *key,
                  kg_jmsg_t *ret_msg,
                  kg_err_t *err);

#endif
