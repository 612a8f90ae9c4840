/* Where things lie on this host: directories of the program and of its state. All results are
 * malloc'd, NULL = no memory. */
#ifndef KG_CLI_PATHS_H
#define KG_CLI_PATHS_H

#include "gateway/base/err.h"

char *kg_path_default_state(void); /* /var/lib/sandal or $XDG_STATE_HOME/sandal */
char *kg_path_default_runtime(const char *state_dir); /* short, one a state directory */
/* The source tree's, else those of the installed tree that exe_dir is in, else below the prefix. */
char *kg_path_default_templates(const char *exe_dir);
/* sandal-keeper and the like: beside us, else in libexec, found likewise. */
char *kg_path_helper(const char *exe_dir, const char *name);
char *
kg_path_data_home(void); /* $XDG_DATA_HOME or ~/.local/share: a user's own templates lie there */
/* The n-th folder of kernelspecs that Jupyter looks into on this host, for this user, whether it is
 * there or not: those of $JUPYTER_PATH, the user's own (root has none), the system's. NULL: no
 * more, or no memory. */
char *kg_path_jupyter_kernels(size_t n);
char *kg_path_absolute(const char *path);
/* Is it a directory that the whole system shares (/, /etc, /tmp, ...), written plainly? */
bool kg_path_is_system(const char *path);
char *kg_path_exe_dir(void); /* directory of the running program */
/* mkdir -p, the last one with mode and (as root) owner uid:gid. */
int kg_path_make(const char *path, unsigned mode, uid_t uid, gid_t gid, kg_err_t *err);

#endif
