/* Command lines of bwrap. The view of the host is that of the launcher `namespace`
 * (ns_mask_list.h), shown by read-only binds and copies instead of an overlay. Blocking, libc only.
 */
#ifndef KG_SANDBOX_BWRAP_ARGS_H
#define KG_SANDBOX_BWRAP_ARGS_H

#include <stddef.h>

#include "gateway/base/buf.h"
#include "gateway/sandbox/launcher.h"

#define KG_BW_FDS_MAX 512
#define KG_BW_SHOWN_MAX 128
#define KG_BW_PARENTS_MAX 64
#define KG_BW_UID 1000U /* of user code, inside */
#define KG_BW_INIT "/.sandal-init"

/* Zero-initialised is empty. */
typedef struct kg_bw_args {
    kg_buf_t text;          /* each with its NUL, as bwrap's --args takes them */
    int fds[KG_BW_FDS_MAX]; /* that they name; owned */
    size_t fd_count;
    char shown[KG_BW_SHOWN_MAX][128]; /* directories that are bound as they are */
    size_t shown_count;
    char parents[KG_BW_PARENTS_MAX][64]; /* directories that have been made on the way */
    size_t parent_count;
    int error; /* the first; later calls do nothing */
} kg_bw_args_t;

/* Appends words; NULL at the end. */
void kg_bw_add(kg_bw_args_t *args, ...) __attribute__((sentinel));
/* Appends "--file FD path" for a text, or "--ro-bind-data" where path is of another mount. */
void kg_bw_add_text(kg_bw_args_t *args, const char *option, const char *path, const char *text);
void kg_bw_args_fini(kg_bw_args_t *args); /* fit for KG_AUTO */

typedef struct kg_bw_spec {
    const kg_host_t *host;
    const kg_launch_t *launch;
    const kg_launched_t *paths; /* workspace, home, run_dir on the host */
    const char *resolv_conf;    /* "" = none */
    bool network_is_there;      /* bwrap is started in the sandbox's network namespace */
} kg_bw_spec_t;

/* Namespaces, the root, what is mounted in it; not what is run. 0 or -errno with the reason. */
int kg_bw_build(kg_bw_args_t *args, const kg_bw_spec_t *spec, kg_err_t *err);

#endif
