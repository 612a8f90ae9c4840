/* The proxy for exposed ports, over one core. */
#ifndef KG_VIEW_PROXY_H
#define KG_VIEW_PROXY_H

#include "gateway/context/core.h"
#include "gateway/edge/proxy.h"

typedef struct kg_exposer kg_exposer_t;

/* Public plain data; strings are copied. */
typedef struct kg_exposer_config {
    const char *listen;     /* "127.0.0.1:8718"; "" = off */
    const char *domain;     /* NULL or "" = none */
    const char *public_url; /* scheme://HOST[:PORT]; NULL or "" = as it listens */
    size_t connections_max;
    unsigned header_timeout_ms;
    unsigned idle_timeout_ms;
    unsigned stall_timeout_ms;
} kg_exposer_config_t;

/* A listener that can't be had is no error: exposing says why, until it can; that is looked for
 * every two seconds. */
int kg_exposer_start(kg_core_t *core,
                     const kg_exposer_config_t *config,
                     kg_exposer_t **ret_exposer,
                     kg_err_t *err);
unsigned kg_exposer_port(const kg_exposer_t *exposer); /* 0 = it does not run */
/* Cuts all. done runs later, when nothing is left; before the core goes. NULLs the pointer. */
void kg_exposer_close(kg_exposer_t **exposer, kg_fn *done, void *user);

#endif
