/* What Jupyter's clients are shown of kernels and kernelspecs. For this room's own files. */
#ifndef KG_COMPAT_MODEL_H
#define KG_COMPAT_MODEL_H

#include <jansson.h>

#include "gateway/compat/jupyter_priv.h"
#include "gateway/context/template.h"

#define KG_JUPYTER_LIVE "ctx-" /* kernelspec of a live context: before its id */
#define KG_JUPYTER_TIME_MAX 32
#define KG_JUPYTER_LABEL_MAX 256

/* "2026-01-02T03:04:05.678901Z": clients take no other form. */
void kg_jupyter_time(uint64_t wall_ns, char ret[KG_JUPYTER_TIME_MAX]);
/* New references; NULL = no memory. */
json_t *kg_jupyter_kernel_json(const kg_jupyter_t *jupyter, const kg_kernel_ref_t *kernel);
/* "box/python (sbx-…)" */
void kg_jupyter_label(const kg_context_t *context, char ret[KG_JUPYTER_LABEL_MAX]);

/* Calls each for every kernel that who may see, until it returns false. */
typedef bool kg_kernel_each_fn(void *user, const kg_kernel_ref_t *kernel);
void kg_kernel_each(kg_core_t *core,
                    const kg_principal_t *who,
                    kg_kernel_each_fn *each,
                    void *user);

/* The template that a kernelspec's name means: its own name, or a language's, an alias or the usual
 * name of a kernel ("python3"). NULL = the operator's default. false: none such that can start. */
bool kg_jupyter_template(const kg_core_t *core, const char *name, kg_template_kernel_t *ret);
/* Of all kernelspecs, and of one (NULL with err: none such). */
json_t *kg_jupyter_specs_json(kg_core_t *core, const kg_principal_t *who);
json_t *
kg_jupyter_spec_json(kg_core_t *core, const kg_principal_t *who, const char *name, kg_err_t *err);
/* The kernelspec that stands for no name: the default template's, and the first live context for a
 * key that may only attach. "" = there is none. */
void kg_jupyter_default_spec(kg_core_t *core, const kg_principal_t *who, char *ret, size_t cap);
bool kg_jupyter_may_start(const kg_principal_t *who);
/* A logo that a kernelspec's folder has. -errno: none such. */
int kg_jupyter_logo(const kg_core_t *core,
                    const char *spec,
                    const char *file,
                    const char **ret_type,
                    kg_buf_t *out);

#endif
