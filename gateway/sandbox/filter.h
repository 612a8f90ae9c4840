/* Seccomp filters for what runs in a sandbox (and one for a helper of the keeper's), from the
 * container engines' public default profile less io_uring, bpf, userfaultfd, keyctl and new user
 * namespaces; clone3 answers ENOSYS. Compiled to BPF when sandald is built (libseccomp), so that
 * sandal-init, which is static, only loads bytes. */
#ifndef KG_SANDBOX_FILTER_H
#define KG_SANDBOX_FILTER_H

#include <stddef.h>

struct sock_filter;

typedef enum kg_filter {
    KG_FILTER_USER,      /* kernels, exec as user: no capabilities */
    KG_FILTER_ROOT,      /* exec as root of the sandbox: the engines' default capabilities */
    KG_FILTER_ZYGOTE,    /* as USER, and setns: what it forks joins another sandbox, and loads USER
                          * there
                          */
    KG_FILTER_FORWARDER, /* the keeper's DNS forwarder: what it does and nothing else */
    KG_FILTER_COUNT
} kg_filter_t;

/* Borrowed, static. */
const struct sock_filter *kg_filter_program(kg_filter_t which, size_t *ret_count);
/* Loads it for the calling thread; no_new_privs (or CAP_SYS_ADMIN) must be there. -errno. */
int kg_filter_load(kg_filter_t which);

#endif
