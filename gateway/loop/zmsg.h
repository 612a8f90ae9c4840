/* Inside of the loop room: how zchan.c builds a received message. */
#ifndef KG_LOOP_ZMSG_H
#define KG_LOOP_ZMSG_H

#include <zmq.h>

#include "gateway/loop/zchan.h"

#define KG_ZMSG_FRAMES_MAX 4096

int kg_zmsg_create(kg_zmsg_t **ret_msg);
/* Moves the part's content in; part is empty after it and still the caller's to close. -ENOMEM,
 * -E2BIG: untouched. */
int kg_zmsg_append_take(kg_zmsg_t *msg, zmq_msg_t *part);
/* Makes the frames readable. Once, after the last append. */
int kg_zmsg_seal(kg_zmsg_t *msg);
/* The descriptor that it came by, as libzmq knew it then: it may be closed, or another's, by now.
 * -1: none. */
int kg_zmsg_source(const kg_zmsg_t *msg);
kg_zpeer_t kg_zpeer_of(int fd);

#endif
