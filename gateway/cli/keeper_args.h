/* What the keeper is told on its command line besides the plain numbers: templates' roots, and the
 * operator's files. */
#ifndef KG_CLI_KEEPER_ARGS_H
#define KG_CLI_KEEPER_ARGS_H

#include "gateway/cli/config.h"
#include "gateway/context/template.h"

#define KG_KEEPER_FILES_MAX 64 /* sandbox_files */

/* Where config has its templates; borrowed from both. */
kg_template_sources_t kg_config_templates(const kg_config_t *config, const char *data_home);
/* Appends "--root NAME=ROOTFS:PREFIX" for each template and "--show PATH" for each of
 * sandbox_files. A template that can't be read is an error that names it. */
int kg_keeper_args(const kg_config_t *config, kg_strlist_t *ret_args, kg_err_t *err);
void kg_keeper_args_fini(kg_strlist_t *args);

#endif
