/* What is spawned: a kernelspec's argv with its words replaced, and the environment. Pure. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

void kg_spawn_plan_destroy(kg_spawn_plan_t **plan)
{
    kg_spawn_plan_t *p = *plan;
    if (!p) {
        return;
    }
    for (char **v = p->argv; v && *v; v++) {
        free(*v);
    }
    for (char **v = p->env; v && *v; v++) {
        free(*v);
    }
    free(p->argv);
    free(p->env);
    free(p->cwd);
    free(p);
    *plan = NULL;
}

static size_t count(const char *const *v)
{
    size_t n = 0;
    while (v && v[n]) {
        n++;
    }
    return n;
}

/* Where the words in braces and the variables of a kernelspec come from. */
typedef struct words {
    const char *run_file;
    const char *resource_dir;
    const char *prefix;
    const char *const *env; /* for ${NAME}; NULL = not replaced */
} words_t;

static const char *lookup(const char *const *env, const char *name, size_t len)
{
    for (; env && *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

/* The value of the word that text begins with and the word's length, or NULL: it stays as it is. */
static const char *word_at(const char *text, const words_t *words, size_t *ret_len)
{
    const char *names[] = {"{connection_file}", "{resource_dir}", "{prefix}"};
    const char *values[] = {words->run_file, words->resource_dir, words->prefix};
    for (size_t i = 0; *text == '{' && i < KG_ARRAY_LEN(names); i++) {
        if (values[i] && kg_str_starts(text, names[i])) {
            *ret_len = strlen(names[i]);
            return values[i];
        }
    }
    const char *close = kg_str_starts(text, "${") ? strchr(text, '}') : NULL;
    if (!close) {
        return NULL;
    }
    *ret_len = (size_t)(close - text) + 1;
    return lookup(words->env, text + 2, *ret_len - 3);
}

static char *expand(const char *text, const words_t *words)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    while (*text) {
        size_t len = 1;
        const char *value = word_at(text, words, &len);
        int rc = value ? kg_buf_append_cstr(&out, value) : kg_buf_append_char(&out, *text);
        if (rc < 0) {
            return NULL;
        }
        text += value ? len : 1;
    }
    return kg_buf_steal(&out, NULL);
}

static int make_argv(kg_spawn_plan_t *plan, const kg_kernel_opts_t *opts, const words_t *words)
{
    size_t n = count((const char *const *)opts->spec->argv);
    plan->argv = calloc(n + 1, sizeof(char *));
    if (!plan->argv) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        plan->argv[i] = expand(opts->spec->argv[i], words);
        if (!plan->argv[i]) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* An entry of the kernelspec gives way to what the environment says, unless it makes use of it:
 * PATH={prefix}/bin:${PATH}. */
static bool gives_way(const char *entry, const char *const *env)
{
    const char *eq = strchr(entry, '=');
    size_t len = eq ? (size_t)(eq - entry) : 0;
    if (!eq || !lookup(env, entry, len)) {
        return !eq;
    }
    for (const char *p = eq; (p = strstr(p, "${")) != NULL; p += 2) {
        if (strncmp(p + 2, entry, len) == 0 && p[2 + len] == '}') {
            return false;
        }
    }
    return true;
}

static bool is_replaced(const char *entry, const char *const *spec_env, const char *const *env)
{
    const char *eq = strchr(entry, '=');
    size_t len = eq ? (size_t)(eq - entry) + 1 : 0;
    for (; eq && spec_env && *spec_env; spec_env++) {
        if (strncmp(*spec_env, entry, len) == 0) {
            return !gives_way(*spec_env, env);
        }
    }
    return false;
}

/* "PYTHONPATH=DIR:${PYTHONPATH}" where there is no PYTHONPATH: the list is DIR alone. Jupyter would
 * leave the words, and Python take them for a directory. */
static void drop_itself(char *entry)
{
    char self[128];
    const char *eq = strchr(entry, '=');
    int n = eq ? snprintf(self, sizeof(self), ":${%.*s}", (int)(eq - entry), entry) : 0;
    size_t len = strlen(entry);
    if (n > 0 && (size_t)n < sizeof(self) && len > (size_t)n &&
        strcmp(entry + len - (size_t)n, self) == 0) {
        entry[len - (size_t)n] = '\0';
    }
}

static int make_env(kg_spawn_plan_t *plan, const kg_kernel_opts_t *opts, const words_t *words)
{
    const char *const *spec_env = (const char *const *)opts->spec->env;
    plan->env = calloc(count(opts->env) + count(spec_env) + 1, sizeof(char *));
    if (!plan->env) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (const char *const *e = opts->env; e && *e; e++) {
        if (is_replaced(*e, spec_env, opts->env)) {
            continue;
        }
        plan->env[n] = strdup(*e);
        if (!plan->env[n++]) {
            return -ENOMEM;
        }
    }
    for (const char *const *e = spec_env; e && *e; e++) {
        if (gives_way(*e, opts->env)) {
            continue;
        }
        plan->env[n] = expand(*e, words);
        if (!plan->env[n++]) {
            return -ENOMEM;
        }
        drop_itself(plan->env[n - 1]);
    }
    return 0;
}

int kg_spawn_plan_make(const kg_kernel_opts_t *opts,
                       const char *run_file,
                       kg_spawn_plan_t **ret_plan,
                       kg_err_t *err)
{
    if (!opts->spec || !opts->spec->argv || !opts->spec->argv[0]) {
        return kg_err_set(err, KG_ERR_CONFIG, "the kernelspec has no argv");
    }
    KG_AUTO(kg_spawn_plan_destroy) kg_spawn_plan_t *plan = calloc(1, sizeof(*plan));
    words_t words = {
        .run_file = run_file, .resource_dir = opts->resource_dir, .prefix = opts->prefix};
    int rc = plan ? make_argv(plan, opts, &words) : -ENOMEM;
    if (rc == 0) {
        words.env = opts->env;
        rc = make_env(plan, opts, &words);
    }
    if (rc == 0 && opts->cwd) {
        plan->cwd = strdup(opts->cwd);
        rc = plan->cwd ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    plan->nofile = opts->nofile;
    plan->umask_bits = opts->umask_bits;
    *ret_plan = KG_TAKE(plan);
    return 0;
}
