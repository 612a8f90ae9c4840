/* Jupyter kernel ids. A kernel's id is its context's, a UUID that carries its node; one that a
 * client chose when it started the kernel is kept in the metadata of the kernel's sandbox and leads
 * to that sandbox's default context. Both outlive the gateway, and nothing is kept here. */
#ifndef KG_COMPAT_KERNEL_ID_H
#define KG_COMPAT_KERNEL_ID_H

#include "gateway/api/auth.h"
#include "gateway/context/context.h"
#include "gateway/context/sandbox.h"

/* Borrowed for the loop turn. */
typedef struct kg_kernel_ref {
    kg_sandbox_t *sandbox;
    kg_context_t *context;
    const char *id;   /* as clients know it */
    const char *key;  /* id of the key of the one who asks */
    bool may_restart; /* it takes everybody's variables, so a key that may only attach may not */
    bool own;         /* started over Jupyter's API with this key: a delete ends it. Others are
                         attached to: a delete leaves them alone */
} kg_kernel_ref_t;

/* As Jupyter's routes have it: \w+-\w+-\w+-\w+-\w+, of at most KG_ID_MAX - 1 bytes. */
bool kg_kernel_id_valid(const char *id);
/* context_not_found ("Kernel does not exist: ID"), or forbidden for a key that may not attach. */
int kg_kernel_find(kg_core_t *core,
                   const kg_principal_t *who,
                   const char *id,
                   kg_kernel_ref_t *ret_ref,
                   kg_err_t *err);
/* The same for a context that is at hand; no right is checked. */
void kg_kernel_of(kg_context_t *context, const kg_principal_t *who, kg_kernel_ref_t *ret_ref);

#endif
