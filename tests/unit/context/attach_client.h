/* A client at a context's kernel that writes down what it hears. */
#ifndef KG_TESTS_CONTEXT_ATTACH_CLIENT_H
#define KG_TESTS_CONTEXT_ATTACH_CLIENT_H

#include "gateway/context/attach.h"
#include "gateway/context/attach_internal.h"
#include "tests/unit/context/core_rig.h"

typedef struct client {
    kg_attach_t *attach;
    kg_buf_t heard; /* "CHANNEL TYPE PARENT STATUS-OR-STATE\n" of each message */
    unsigned replies, refused;
    bool ended, deleted;
    unsigned want; /* replies to wait for */
} client_t;

extern const kg_attach_sink_t client_sink;

void open_client(client_t *c, kg_context_t *context);
void open_client_of(client_t *c, kg_context_t *context, const char *who);
void close_client(client_t *c);
void say_with(client_t *c,
              kg_channel_t channel,
              const char *type,
              const char *id,
              const char *text,
              kg_slice_t buffer);
void say(client_t *c, kg_channel_t channel, const char *type, const char *id, const char *text);
void await(rig_t *rig, client_t *c, unsigned replies); /* in all */
bool heard(const client_t *c, const char *text);
unsigned times(const client_t *c, const char *text); /* that it heard it */

#endif
