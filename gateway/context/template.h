/* Templates: named environments read from kernelspecs/NAME/{template,kernel}.json. Immutable once
 * loaded; the schema is in docs/templates.md. */
#ifndef KG_CONTEXT_TEMPLATE_H
#define KG_CONTEXT_TEMPLATE_H

#include "gateway/context/core.h"

/* {"items":[…],"next":null}; hidden ones are left out. New reference or NULL (OOM). */
json_t *kg_template_list(const kg_core_t *core);
/* By name (hidden ones too) or template_not_found. */
const kg_template_t *kg_template_find(const kg_core_t *core, const char *name, kg_err_t *err);
json_t *kg_template_json(const kg_core_t *core, const kg_template_t *tpl);
const char *kg_template_name(const kg_template_t *tpl);

/* The main kernel of a template, as a Jupyter kernelspec tells of it. Strings are the template's.
 */
typedef struct kg_template_kernel {
    const char *name; /* the template's */
    const char *dir;
    bool hidden; /* in no list, but can be named */
    bool usable; /* built, and it has one: else what follows is NULL */
    const char *language;
    const char *spec_name; /* of its kernelspec, like what follows */
    const char *spec_language;
    const char *display_name;
    const char *metadata; /* compact JSON object */
    const char *const *argv;
    bool message_interrupt;
} kg_template_kernel_t;
/* The index-th template; false past the end. */
bool kg_template_kernel(const kg_core_t *core, size_t index, kg_template_kernel_t *ret_kernel);
/* It has a kernel of this language (any case), its main one or another; by aliases too. */
bool kg_template_speaks(const kg_core_t *core,
                        const kg_template_kernel_t *kernel,
                        const char *language);
/* Appends the small file NAME (a plain name, no path) of its folder. config where it cannot be
 * read. */
int kg_template_resource(const kg_template_kernel_t *kernel,
                         const char *name,
                         kg_buf_t *out,
                         kg_err_t *err);

/* Where templates are read from, those named first win. Plain data, borrowed. */
typedef struct kg_template_sources {
    const char *const *dirs; /* each holds one folder a template */
    size_t dir_count;
    const char *const
        *kernelspec_dirs; /* each holds one folder a kernelspec, as Jupyter has them */
    size_t kernelspec_dir_count;
    const char *data_home; /* for prefix_user; NULL = nowhere */
} kg_template_sources_t;

/* What is told of each template before there is a core: for the call, borrowed. */
typedef struct kg_template_root {
    const char *name;
    const char *dir;           /* its folder */
    const char *rootfs;        /* as the file has it */
    const char *prefix;        /* where its tree is, "" = it has none, or it is inside rootfs */
    const char *prefix_wanted; /* where this user's build would put its tree; NULL = nowhere */
} kg_template_root_t;
typedef int kg_template_root_fn(void *user, const kg_template_root_t *root);
/* Reads the templates and calls fn for each, until one returns non-zero, which is then returned. */
int kg_template_roots(const kg_template_sources_t *sources,
                      kg_template_root_fn *fn,
                      void *user,
                      kg_err_t *err);

/* Reads the templates, and looks whether pools can be had of those that sizes (as pools.sizes has
 * them) name. */
int kg_template_sizes_check(const kg_template_sources_t *sources,
                            const char *const *sizes,
                            size_t count,
                            kg_err_t *err);

/* A thing that validation has to tell; wrong: the template will not do as it is. */
typedef void kg_template_finding_fn(void *user, bool wrong, const char *text);
/* Reads one folder, of a template or of a kernelspec, as the daemon would, and looks on this host
 * for what it names. An error where it does not load, with file and key; what else there is to say
 * goes to fn. */
int kg_template_validate(
    const char *dir, const char *data_home, kg_template_finding_fn *fn, void *user, kg_err_t *err);

/* Canonical name of a language: "py" -> "python", "node" -> "javascript"; other names come back as
 * they are. */
const char *kg_language_canonical(const char *name);

#endif
