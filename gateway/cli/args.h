/* The command line: options of the table for the commands that take a configuration, and help that
 * a person can use. */
#ifndef KG_CLI_ARGS_H
#define KG_CLI_ARGS_H

#include "gateway/cli/config.h"

/* Reads --config FILE (or SANDAL_CONFIG), the environment, then the options of argv into config, in
 * the order of their rank. argv[0] is the command's name. 0; 1 when --help was printed; <0 with
 * err. Operands are refused. */
int kg_args_config(int argc, char **argv, const char *summary, kg_config_t *config, kg_err_t *err);
/* The same, completed with what is computed (kg_config_complete) and checked. */
int kg_args_settle(int argc,
                   char **argv,
                   const char *summary,
                   const char *exe_dir,
                   kg_config_t *config,
                   kg_err_t *err);
void kg_args_help(const char *command, const char *summary);
/* "sandald: message (hint)" on stderr. */
void kg_args_complain(const kg_err_t *err);

#endif
