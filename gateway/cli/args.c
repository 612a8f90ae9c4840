/* cli: getopt_long over the option table. */
#include "gateway/cli/args.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"

#define FLAG_MAX 64
#define FIRST_OPTION 1000 /* getopt's val of row 0: past every character */
#define HELP_COLUMN 34

extern char **environ;

typedef struct kg_flags {
    struct option *rows;
    char (*names)[FLAG_MAX];
} kg_flags_t;

static void flags_fini(kg_flags_t *flags)
{
    free(flags->rows);
    free(flags->names);
}

static int flags_init(kg_flags_t *flags)
{
    flags->rows = calloc(kg_options_count + 3, sizeof(*flags->rows));
    flags->names = calloc(kg_options_count, sizeof(*flags->names));
    if (!flags->rows || !flags->names) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < kg_options_count; i++) {
        kg_option_flag(&kg_options[i], flags->names[i], FLAG_MAX);
        int argument = kg_options[i].type == KG_OPTION_BOOL ? optional_argument : required_argument;
        flags->rows[i] = (struct option){
            .name = flags->names[i] + 2,
            .has_arg = argument,
            .val = FIRST_OPTION + (int)i,
        };
    }
    flags->rows[kg_options_count] = (struct option){.name = "help", .val = 'h'};
    flags->rows[kg_options_count + 1] =
        (struct option){.name = "config", .has_arg = required_argument, .val = 'c'};
    return 0;
}

void kg_args_complain(const kg_err_t *err)
{
    fprintf(stderr, "sandald: %s\n", err->message);
    if (err->hint[0] != '\0') {
        fprintf(stderr, "  hint: %s\n", err->hint);
    }
}

/* One option's help, wrapped at 100 columns from HELP_COLUMN on. */
static void print_wrapped(const char *left, const char *text)
{
    int column = printf("  %s", left);
    if (column >= HELP_COLUMN) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    column = HELP_COLUMN;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column + 1 + (int)word > 100 && column > HELP_COLUMN) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += printf("%s%.*s", column > HELP_COLUMN ? " " : "", (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    printf("\n");
}

static void print_option(const kg_option_t *option)
{
    char flag[FLAG_MAX];
    char left[FLAG_MAX * 2];
    char text[512];
    kg_option_flag(option, flag, sizeof(flag));
    snprintf(left, sizeof(left), "%s%s%s", flag, option->metavar ? " " : "",
             option->metavar ? option->metavar : "");
    snprintf(text, sizeof(text), "%s%s%s%s%s%s%s", option->help, option->choices ? " (" : "",
             option->choices ? option->choices : "", option->choices ? ")" : "",
             option->preset && option->type != KG_OPTION_BOOL ? " [" : "",
             option->preset && option->type != KG_OPTION_BOOL ? option->preset : "",
             option->preset && option->type != KG_OPTION_BOOL ? "]" : "");
    print_wrapped(left, text);
}

void kg_args_help(const char *command, const char *summary)
{
    printf("Usage: sandald %s [OPTIONS]\n\n%s\n\nOptions:\n", command, summary);
    print_wrapped("-h, --help", "Show this help");
    print_wrapped("-c, --config FILE",
                  "Read this JSON file; its keys are the names below, `a.b` as {\"a\":{\"b\":…}}");
    for (size_t i = 0; i < kg_options_count; i++) {
        print_option(&kg_options[i]);
    }
    printf("\nEvery option is also a key of the file and a variable: --limits-queue, "
           "\"limits\":{\"queue\":…},\n"
           "SANDAL_LIMITS_QUEUE. The command line wins over variables, and they over the file.\n"
           "See sandald(1) and sandald-config(5).\n");
}

static int usage_error(const char *command, int argc, char **argv, kg_err_t *err)
{
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    int r =
        kg_err_set(err, KG_ERR_CONFIG, "%s: unknown option or missing value: %s", command, word);
    kg_err_hint(err, "sandald %s --help lists the options", command);
    return r;
}

/* First pass: --help and --config, which come before everything else. */
static int
scan_config(int argc, char **argv, const kg_flags_t *flags, const char **ret_file, kg_err_t *err)
{
    optind = 0;
    opterr = 0;
    for (;;) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): before threads */
        int c = getopt_long(argc, argv, ":hc:", flags->rows, NULL);
        if (c == -1) {
            break;
        }
        if (c == 'h') {
            return 1;
        }
        if (c == 'c') {
            *ret_file = optarg;
        } else if (c == '?' || c == ':') {
            return usage_error(argv[0], argc, argv, err);
        }
    }
    if (optind < argc) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s takes no argument: %s", argv[0], argv[optind]);
    }
    return 0;
}

static int
apply_options(int argc, char **argv, const kg_flags_t *flags, kg_config_t *config, kg_err_t *err)
{
    KG_AUTO_FREE bool *seen = calloc(kg_options_count, sizeof(*seen));
    if (!seen) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    optind = 0;
    for (;;) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): before threads */
        int c = getopt_long(argc, argv, ":hc:", flags->rows, NULL);
        if (c == -1) {
            return 0;
        }
        if (c < FIRST_OPTION) {
            continue;
        }
        size_t i = (size_t)(c - FIRST_OPTION);
        int r = kg_config_set_text(config, &kg_options[i], optarg ? optarg : "true", seen[i], err);
        seen[i] = true;
        if (r < 0) {
            kg_err_wrap(err, "%s", flags->names[i]);
            return r;
        }
    }
}

/* A misspelt variable changes nothing, and nobody would know. */
static void warn_unknown(char *const *environment)
{
    char name[128];
    size_t at = 0;
    while (kg_config_unknown_variable(environment, &at, name, sizeof(name))) {
        fprintf(stderr, "sandald: warning: no option is set by the variable %s\n", name);
    }
}

int kg_args_config(int argc, char **argv, const char *summary, kg_config_t *config, kg_err_t *err)
{
    KG_AUTO(flags_fini) kg_flags_t flags = {0};
    if (flags_init(&flags) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    const char *file = getenv("SANDAL_CONFIG"); /* NOLINT(concurrency-mt-unsafe): before threads */
    int r = scan_config(argc, argv, &flags, &file, err);
    if (r == 1) {
        kg_args_help(argv[0], summary);
    }
    if (r == 0 && file && *file != '\0') {
        r = kg_config_load_file(config, file, err);
    }
    if (r == 0) {
        warn_unknown(environ);
        r = kg_config_load_environment(config, environ, err);
    }
    if (r == 0) {
        r = apply_options(argc, argv, &flags, config, err);
    }
    return r;
}

int kg_args_settle(int argc,
                   char **argv,
                   const char *summary,
                   const char *exe_dir,
                   kg_config_t *config,
                   kg_err_t *err)
{
    int r = kg_args_config(argc, argv, summary, config, err);
    if (r == 0) {
        r = kg_config_complete(config, exe_dir, err);
    }
    return r == 0 ? kg_config_check(config, err) : r;
}
