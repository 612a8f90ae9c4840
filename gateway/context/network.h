/* A client's wish for a network, from JSON to plain data and checked; pure. */
#ifndef KG_CONTEXT_NETWORK_H
#define KG_CONTEXT_NETWORK_H

#include <jansson.h>

#include "gateway/base/err.h"
#include "gateway/sandbox/limits.h"

/* "none", "egress", or {allow, deny, default}, with the `mode` and `reason` of a sandbox's record
 * or without (docs/api-notes.md): at most KG_NET_RULES_MAX rules, deny before allow. What is wrong
 * is refused with its pointer below /network. */
int kg_network_parse(const json_t *network, kg_net_wish_t *ret_wish, kg_err_t *err);

#endif
