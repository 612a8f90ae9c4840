/* cli: `sandald completion SHELL` and `sandald version`. Completions are written from the option
 * table, so they are never behind it. */
#include <stdio.h>
#include <string.h>

#include "gateway/base/mem.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/config.h"

static const char *const COMMANDS =
    "serve version check-config doctor keys template completion help";
#define FLAG_MAX 64

static void print_flags(void)
{
    printf("--help --config");
    for (size_t i = 0; i < kg_options_count; i++) {
        char flag[FLAG_MAX];
        kg_option_flag(&kg_options[i], flag, sizeof(flag));
        printf(" %s", flag);
    }
}

static void bash(void)
{
    printf("# bash completion of sandald\n"
           "_sandald() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return\n"
           "    fi\n"
           "    case $prev in\n",
           COMMANDS);
    for (size_t i = 0; i < kg_options_count; i++) {
        if (kg_options[i].choices) {
            char flag[FLAG_MAX];
            kg_option_flag(&kg_options[i], flag, sizeof(flag));
            printf("    %s) COMPREPLY=($(IFS='|'; compgen -W \"$(echo '%s' | tr '|' ' ')\" -- "
                   "\"$cur\")); return ;;\n",
                   flag, kg_options[i].choices);
        }
    }
    printf("    keys) COMPREPLY=($(compgen -W \"add list remove\" -- \"$cur\")); return ;;\n"
           "    completion) COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\")); return ;;\n"
           "    esac\n"
           "    case ${COMP_WORDS[1]}/$cur in\n"
           "    serve/-*|check-config/-*|doctor/-*) COMPREPLY=($(compgen -W \"");
    print_flags();
    printf("\" -- \"$cur\")) ;;\n"
           "    keys/-*) COMPREPLY=($(compgen -W \"--owner --name --scopes --expires --state-dir "
           "--json --help\" -- "
           "\"$cur\")) ;;\n"
           "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _sandald sandald\n");
}

/* Help texts hold backticks and quotes; single-quoted for the shell they need only ' replaced. */
static void print_quoted(const char *text, const char *drop)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            printf("'\\''");
        } else if (!strchr(drop, *text)) {
            putchar(*text);
        }
    }
}

static void zsh(void)
{
    printf("#compdef sandald\n"
           "_sandald() {\n"
           "  if (( CURRENT == 2 )); then compadd %s; return; fi\n"
           "  case $words[2] in\n"
           "  serve|check-config|doctor)\n"
           "    _arguments '--help[show the help]' '--config[JSON file]:file:_files'",
           COMMANDS);
    for (size_t i = 0; i < kg_options_count; i++) {
        char flag[FLAG_MAX];
        const kg_option_t *o = &kg_options[i];
        kg_option_flag(o, flag, sizeof(flag));
        printf(" \\\n      '%s%s[", flag, o->type == KG_OPTION_BOOL ? "" : "=");
        print_quoted(o->help, "[]:");
        printf("]");
        if (o->choices) {
            printf(":%s:(", o->metavar);
            for (const char *p = o->choices; *p != '\0'; p++) {
                putchar(*p == '|' ? ' ' : *p);
            }
            printf(")");
        } else if (o->type != KG_OPTION_BOOL) {
            printf(":%s:_files", o->metavar);
        }
        printf("'");
    }
    printf(" ;;\n"
           "  keys) compadd add list remove --owner --name --scopes --expires --state-dir --json "
           "--help ;;\n"
           "  completion) compadd bash zsh fish ;;\n"
           "  esac\n"
           "}\n"
           "compdef _sandald sandald\n");
}

static void fish(void)
{
    printf(
        "# fish completion of sandald\n"
        "complete -c sandald -n __fish_use_subcommand -f -a '%s'\n"
        "complete -c sandald -n '__fish_seen_subcommand_from keys' -f -a 'add list remove'\n"
        "complete -c sandald -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n",
        COMMANDS);
    for (size_t i = 0; i < kg_options_count; i++) {
        char flag[FLAG_MAX];
        const kg_option_t *o = &kg_options[i];
        kg_option_flag(o, flag, sizeof(flag));
        printf("complete -c sandald -n '__fish_seen_subcommand_from serve check-config doctor' -l "
               "%s%s -d '",
               flag + 2, o->type == KG_OPTION_BOOL ? "" : " -r");
        print_quoted(o->help, "");
        printf("'\n");
    }
}

int kg_command_completion(int argc, char **argv)
{
    const char *shell = argc == 2 ? argv[1] : "";
    if (strcmp(shell, "bash") == 0) {
        bash();
    } else if (strcmp(shell, "zsh") == 0) {
        zsh();
    } else if (strcmp(shell, "fish") == 0) {
        fish();
    } else {
        bool help = strcmp(shell, "--help") == 0;
        fprintf(help ? stdout : stderr,
                "Usage: sandald completion bash|zsh|fish\n\n"
                "Prints a completion script: `source <(sandald completion bash)`.\n");
        return help ? 0 : 2;
    }
    return 0;
}

int kg_command_version(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--json") != 0)) {
        bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr, "Usage: sandald version [--json]\n");
        return help ? 0 : 2;
    }
    printf(argc == 2 ? "{\"version\":\"%s\"}\n" : "sandald %s\n", SANDAL_VERSION);
    return 0;
}
