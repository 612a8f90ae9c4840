/* What `serve` would trip over on this host, looked at before anything is started: by `serve` and
 * by `check-config`, so that both refuse the same. */
#ifndef KG_CLI_SERVE_CHECK_H
#define KG_CLI_SERVE_CHECK_H

#include "gateway/cli/config.h"

/* After kg_config_check: folders and the templates in them, pools of them, web origins, the
 * certificate; as root the gateway's user and what it must get at. What is odd and yet works is a
 * warning on stderr. Makes nothing. Blocks. */
int kg_serve_check(const kg_config_t *config, const char *exe_dir, kg_err_t *err);

#endif
