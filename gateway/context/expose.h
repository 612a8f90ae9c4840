/* Ports that a sandbox exposes: which, and what they want to see. Kept with the sandbox. */
#ifndef KG_CONTEXT_EXPOSE_H
#define KG_CONTEXT_EXPOSE_H

#include "gateway/context/sandbox.h"

#define KG_EXPOSED_MAX 32 /* ports of one sandbox */

/* Where the proxy is reached. domain NULL: none; https: something before it speaks TLS. port 0: it
 * does not run; why is borrowed for good. */
typedef struct kg_expose_base {
    char host[64];
    char domain[256];
    unsigned port;        /* that is bound */
    unsigned public_port; /* as clients see it */
    bool https;
    char why[256]; /* it does not run */
} kg_expose_base_t;
void kg_core_set_expose(kg_core_t *core, const kg_expose_base_t *base);

/* Whether a port asks for its token. As it is: asking again for the address never opens a port. */
typedef enum kg_expose_token {
    KG_TOKEN_AS_IT_IS, /* a new port: none */
    KG_TOKEN_NONE,
    KG_TOKEN_NEEDED,
} kg_expose_token_t;

/* The port is open from now on; again with the same wish it is as it was.
 * Errors: not_supported (no proxy), quota_exceeded. The answer of the API, a new reference, or NULL
 * and err. */
json_t *
kg_sandbox_expose(kg_sandbox_t *sandbox, uint16_t port, kg_expose_token_t wish, kg_err_t *err);
int kg_sandbox_unexpose(kg_sandbox_t *sandbox, uint16_t port, kg_err_t *err); /* not_found */
/* Whether it is; ret_token: borrowed, NULL = it wants none. */
bool kg_sandbox_exposed(const kg_sandbox_t *sandbox, uint16_t port, const char **ret_token);

#endif
