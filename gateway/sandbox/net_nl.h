/* Netlink as far as networks need it: messages built in a fixed buffer, sent, acknowledged. */
#ifndef KG_SANDBOX_NET_NL_H
#define KG_SANDBOX_NET_NL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/base/mem.h"

#define KG_NL_MAX 8192 /* bytes of all messages of one kg_nl_talk */

/* Public plain data: messages one behind the other. Zero it before the first. What doesn't fit sets
 * overflow, and kg_nl_talk then refuses. */
typedef struct kg_nl {
    _Alignas(8) unsigned char bytes[KG_NL_MAX];
    size_t used;
    size_t start;   /* of the message that is being built */
    unsigned waits; /* acknowledgements that will come */
    bool overflow;
} kg_nl_t;

int kg_nl_open(int protocol); /* fd or -errno */
/* Begins a message; body: its fixed part. flags besides NLM_F_REQUEST. */
void kg_nl_begin(kg_nl_t *nl, uint16_t type, uint16_t flags, const void *body, size_t size);
void kg_nl_put(kg_nl_t *nl, uint16_t type, const void *data, size_t size);
void kg_nl_put_u32(kg_nl_t *nl, uint16_t type, uint32_t value);
void kg_nl_put_text(kg_nl_t *nl, uint16_t type, const char *text); /* with its NUL */
size_t kg_nl_nest(kg_nl_t *nl, uint16_t type);                     /* to be given to _nest_end */
/* Bytes in the middle that are no attribute (an ifinfomsg in VETH_INFO_PEER). */
void kg_nl_put_raw(kg_nl_t *nl, const void *data, size_t size);
void kg_nl_nest_end(kg_nl_t *nl, size_t nest);
/* Sends them all and waits for the acknowledgements of those with NLM_F_ACK: 0 or the first -errno
 * of a message. */
int kg_nl_talk(int fd, const kg_nl_t *nl);
/* A request with NLM_F_DUMP, or without, that is answered by messages: one call each, body behind
 * the header. Until fn returns other than 0, which is then the result. */
typedef int kg_nl_row_fn(void *user, uint16_t type, const void *body, size_t size);
int kg_nl_ask(int fd, const kg_nl_t *nl, kg_nl_row_fn *fn, void *user);
/* Finds an attribute in a row of them; NULL when it isn't there or shorter than min. */
const void *kg_nl_find(const void *attrs, size_t size, uint16_t type, size_t min, size_t *ret_size);

#endif
