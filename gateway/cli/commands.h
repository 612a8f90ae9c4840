/* Subcommands of sandald. Each takes its own argv (argv[0] = its name) and returns the exit status:
 * 0 fine, 1 failed, 2 wrong usage or configuration. */
#ifndef KG_CLI_COMMANDS_H
#define KG_CLI_COMMANDS_H

int kg_command_serve(int argc, char **argv);   /* checks the configuration, becomes the keeper */
int kg_command_gateway(int argc, char **argv); /* started by the keeper alone */
int kg_command_check_config(int argc, char **argv);
int kg_command_doctor(int argc, char **argv); /* what this host can do */
int kg_command_keys(int argc, char **argv);
int kg_command_template(int argc, char **argv); /* builds roots */
int kg_command_version(int argc, char **argv);
int kg_command_completion(int argc, char **argv);

#endif
