/* MASK: the overlay layer that decides what a sandbox of the launcher `namespace` sees of its lower
 * layer, which is the host's root or a template's directory.
 *
 * A layer has one directory, `r`, which becomes the sandbox's root; the overlay's own root, where
 * lower and MASK meet by name, is never in reach. `r` is opaque, and what is to be seen of the
 * lower layer is named in it one by one: a directory by an overlay redirect, a file by a copy. So
 * what the list doesn't name isn't there, however it came to the host, and whenever.
 *
 * Layers are built by the keeper at its start, on a tmpfs, and shared by all sandboxes of a root.
 */
#ifndef KG_SANDBOX_NS_MASK_H
#define KG_SANDBOX_NS_MASK_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/base/err.h"

#define KG_MASK_ROOT "r"                          /* in a layer: the root of the sandbox */
#define KG_MASK_INIT ".sandal/sandal-init"        /* in that root: pid 1 */
#define KG_MASK_ZYGOTE ".sandal/sandal-zygote.so" /* what zygotes load, if it is there */
#define KG_MASK_VIEW                                                                               \
    "/run/.view" /* inside: files made for one sandbox, which others are links to */
#define KG_MASK_CANARIES                                                                           \
    "canaries"                    /* in a layer: paths that must not be seen, each with its NUL    \
                                   */
#define KG_MASK_CANARIES_MAX 4096 /* bytes */

/* Public plain data, borrowed. */
typedef struct kg_mask_spec {
    const char *source; /* what the lower layer is made from: "/" or a directory */
    bool host; /* the host's root: an allow-list; else all of it but /dev, /proc and the like */
    const char *init_exe;
    const char *const *dirs; /* absolute: empty directories to be there (mount points) */
    size_t dir_count;
    const char *const *files; /* absolute: files and directories of the host to be shown besides */
    size_t file_count;
    const char *const *secrets; /* absolute: canaries besides those that are found */
    size_t secret_count;
} kg_mask_spec_t;

/* Fills dir, an empty directory on a tmpfs that nobody else can reach. -errno with the reason. */
int kg_mask_build(int dir, const kg_mask_spec_t *spec, kg_err_t *err);

typedef enum kg_accounts {
    KG_ACCOUNTS_PASSWD,
    KG_ACCOUNTS_GROUP,
    KG_ACCOUNTS_SHADOW, /* of a passwd */
    KG_ACCOUNTS_GSHADOW /* of a group */
} kg_accounts_t;

/* The system accounts of an /etc/passwd or /etc/group (below 1000, and nobody) without passwords,
 * real names and members, and `user` with 1000. Lines that aren't well-formed are left out. A
 * malloc'd text, NULL without memory. Pure. */
char *kg_mask_accounts(kg_accounts_t kind, const char *text);

#endif
