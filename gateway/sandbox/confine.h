/* The gateway's own seccomp filter: it parses what strangers send, so it gives up for good what it
 * never needs. */
#ifndef KG_SANDBOX_CONFINE_H
#define KG_SANDBOX_CONFINE_H

#include "gateway/base/err.h"

/* For the calling process and all threads it makes later: executing programs, tracing, mounting,
 * namespaces, modules, other processes' memory, keys, bpf, io_uring and the like fail with EPERM
 * from now on. Sets no_new_privs. Call before there is any second thread. Not under
 * AddressSanitizer, whose leak check traces. See seccomp(2). */
int kg_confine_gateway(kg_err_t *err);

#endif
