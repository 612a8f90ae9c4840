/* The directories that `serve` makes, and those where its unix sockets come: would it work? */
#ifndef KG_CLI_DIRS_CHECK_H
#define KG_CLI_DIRS_CHECK_H

#include "gateway/cli/config.h"

/* After kg_config_complete. state_dir and runtime_dir can be made or are fit for it, as
 * sandal-keeper will ask of them; the directories of unix sockets are there or come with state_dir.
 * 0, or config naming the key and the path. Makes nothing. Blocks. */
int kg_dirs_check(const kg_config_t *config, kg_err_t *err);

/* How much of path is there already, malloc'd: path itself, or the nearest directory above it.
 * NULL: no memory, or it cannot be looked at (errno). */
char *kg_dirs_there(const char *path);

#endif
