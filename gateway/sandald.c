/* sandald: chooses the subcommand. */
#include <stdio.h>
#include <string.h>

#include "gateway/base/mem.h"
#include "gateway/cli/commands.h"

typedef struct kg_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* NULL: not for people */
} kg_command_t;

static const kg_command_t COMMANDS[] = {
    {"serve", kg_command_serve, "run the daemon"},
    {"check-config", kg_command_check_config, "check the configuration and print what it comes to"},
    {"doctor", kg_command_doctor, "say what this host can do for sandboxes, and what to change"},
    {"keys", kg_command_keys, "add, list and remove API keys"},
    {"template", kg_command_template, "build a template, or tell what is wrong with one"},
    {"version", kg_command_version, "print the version"},
    {"completion", kg_command_completion, "print a completion script for bash, zsh or fish"},
    {"gateway", kg_command_gateway, NULL},
};

static void usage(FILE *out)
{
    fprintf(out, "Usage: sandald COMMAND [OPTIONS]\n\n"
                 "A self-hosted code interpreter: runs code in stock Jupyter kernels and answers "
                 "typed results over\n"
                 "HTTP and WebSocket.\n\n"
                 "Commands:\n");
    for (size_t i = 0; i < KG_ARRAY_LEN(COMMANDS); i++) {
        if (COMMANDS[i].summary) {
            fprintf(out, "  %-14s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
        }
    }
    fprintf(out, "\n`sandald COMMAND --help` tells more; `sandald serve --isolation none` is a "
                 "start on a laptop.\n"
                 "Manual: sandald(1), sandald-config(5).\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(COMMANDS); i++) {
        if (strcmp(name, COMMANDS[i].name) == 0) {
            return COMMANDS[i].run(argc - 1, argv + 1);
        }
    }
    if (*name != '\0') {
        fprintf(stderr, "sandald: unknown command: %s\n\n", name);
    }
    usage(stderr);
    return 2;
}
