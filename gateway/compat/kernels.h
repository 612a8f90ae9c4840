/* Kernels over Jupyter's routes: handlers, and the start that sessions use too. For this room's own
 * files. */
#ifndef KG_COMPAT_KERNELS_H
#define KG_COMPAT_KERNELS_H

#include "gateway/compat/request.h"

/* What a client asks for. Borrowed; NULL = nothing. */
typedef struct kg_kernel_wish {
    const char *spec; /* kernelspec; NULL = the default one */
    const json_t *env;
    const char *id; /* that the client has chosen */
} kg_kernel_wish_t;

/* A kernel in a sandbox of its own, or, where the kernelspec is that of a live context, this one.
 * done runs once, unless the client leaves before; it may run before this returns. Errors:
 * template_not_found, conflict, invalid_request, those of sandboxes.create. Once in an exchange. */
void kg_jreq_start_kernel(kg_jreq_t *r, const kg_kernel_wish_t *wish, kg_kernel_started_fn *done);

kg_jreq_fn kg_do_kernels_list, kg_do_kernels_start, kg_do_kernels_get, kg_do_kernels_delete,
    kg_do_kernels_interrupt, kg_do_kernels_restart;
/* Ready, and the kernel that the path names; else the exchange has been answered. */
bool kg_jreq_kernel(kg_jreq_t *r, kg_kernel_ref_t *ret_kernel);
bool kg_jreq_ready(kg_jreq_t *r);
/* Answers 204: the kernel that the client started has ended, any other one is left as it is. */
void kg_jreq_leave(kg_jreq_t *r, const kg_kernel_ref_t *kernel);
/* Ends the kernel that this exchange has started and has no use for; any other one stays. */
void kg_jreq_drop_kernel(const kg_jreq_t *r, const kg_kernel_ref_t *kernel);
/* A member of a body that is a string, null or absent (*ret NULL). invalid_request. */
int kg_jreq_string(const json_t *object, const char *name, const char **ret, kg_err_t *err);

#endif
