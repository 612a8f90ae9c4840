/* A kernelspec as Jupyter has it (kernel.json): how one kind of kernel is started. */
#ifndef KG_KERNEL_KERNELSPEC_H
#define KG_KERNEL_KERNELSPEC_H

#include <stdbool.h>

#include "gateway/base/buf.h"
#include "gateway/base/err.h"

#define KG_KERNELSPEC_TEXT_MAX 65536 /* bytes of a kernel.json */
#define KG_KERNELSPEC_ARGS_MAX 256   /* argv entries, and env entries */

typedef enum kg_interrupt_mode {
    KG_INTERRUPT_SIGNAL, /* SIGINT to the process group; the default */
    KG_INTERRUPT_MESSAGE /* interrupt_request on control */
} kg_interrupt_mode_t;

/* Public plain data, owned strings; argv and env end with NULL. */
typedef struct kg_kernelspec {
    char *name; /* the caller's name for it (its folder) */
    char *display_name;
    char *language;
    char **argv; /* {connection_file}, {resource_dir} and {prefix} are replaced at start */
    /* "NAME=value"; the same words are replaced, and ${OTHER} from the environment given at start.
     * An entry gives way to that environment, unless it uses its own name:
     * PATH={prefix}/bin:${PATH} */
    char **env;
    kg_interrupt_mode_t interrupt_mode;
    char *metadata;    /* compact JSON object */
    bool plain_output; /* metadata.sandal.plain_output: the kernel prints to its own descriptors;
                          what is there goes before the next message */
    bool has_context;  /* metadata.sandal.context: the kernel answers the silent user expressions
                          __import__('sandal_context').enter(JSON), .leave() and .variables() */
} kg_kernelspec_t;

/* Strict where it counts (types, argv not empty, no NUL, known interrupt_mode); unknown members are
 * ignored, as Jupyter's own reader does. KG_ERR_CONFIG with the pointer of the field at fault. */
int kg_kernelspec_parse(const char *name,
                        kg_slice_t text,
                        kg_kernelspec_t **ret_spec,
                        kg_err_t *err);
void kg_kernelspec_destroy(kg_kernelspec_t **spec);

#endif
