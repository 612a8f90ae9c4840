/* gateway/context: what every process of a sandbox starts with, and where its paths lie. */
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/internal.h"

/* home: what ${HOME} is to a template. tmpdir: NULL = /tmp is its own. */
static int base_env(const kg_core_t *core,
                    const kg_template_t *tpl,
                    const kg_template_t *from,
                    const char *home,
                    const char *tmpdir,
                    kg_env_t *env)
{
    /* The parts that every process has; templates, and then the clients' own, win over them. */
    int rc = kg_env_set(env, "PATH", "/usr/local/bin:/usr/bin:/bin");
    rc = rc ? rc : kg_env_set(env, "LANG", "C.UTF-8");
    rc = rc ? rc : kg_env_set(env, "TZ", "UTC");
    rc = rc ? rc : kg_env_set(env, "USER", "user");
    rc = rc ? rc : kg_env_set(env, "LOGNAME", "user");
    rc = rc ? rc : kg_env_set(env, "HOME", home);
    rc = rc || !tmpdir ? rc : kg_env_set(env, "TMPDIR", tmpdir);
    rc = rc ? rc : kg_env_merge(env, &core->sandbox_env);
    rc = rc ? rc : kg_env_merge_strings(env, tpl->env.items);
    return rc || from == tpl ? rc : kg_env_merge_strings(env, from->env.items);
}

int kg_sandbox_env(const kg_sandbox_t *sandbox, const kg_template_t *from, kg_env_t *env)
{
    bool closed =
        strcmp(sandbox->launcher, "process") == 0; /* it may not write to the host's /tmp */
    const char *home = sandbox->info.home;
    return base_env(sandbox->core, sandbox->tpl, from, home, closed ? home : NULL, env);
}

/* NAME=…${NAME}…: the kernel room puts such an entry around what is here in the end. */
static bool wraps_itself(const char *entry)
{
    size_t len = strcspn(entry, "=");
    for (const char *p = entry + len; (p = strstr(p, "${")) != NULL; p += 2) {
        if (strncmp(p + 2, entry, len) == 0 && p[2 + len] == '}') {
            return true;
        }
    }
    return false;
}

int kg_spec_env(const kg_tpl_language_t *lang, kg_env_t *env)
{
    int rc = 0;
    for (char **e = lang->spec->env; e && *e && !rc; e++) {
        char *one[] = {*e, NULL};
        rc = wraps_itself(*e) ? 0 : kg_env_merge_strings(env, one);
    }
    return rc;
}

int kg_language_env(const kg_core_t *core,
                    const kg_template_t *tpl,
                    const kg_template_t *from,
                    const kg_tpl_language_t *lang,
                    const char *home,
                    kg_env_t *env)
{
    int rc = base_env(core, tpl, from, home, NULL, env);
    return rc ? rc : kg_spec_env(lang, env);
}

/* prefix itself or below it: what follows it, else NULL. */
static const char *below(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(path, prefix, len) == 0 && (path[len] == '/' || !path[len]) ? path + len : NULL;
}

int kg_sandbox_dir(const kg_sandbox_t *sandbox, const char *path, char *ret, size_t cap)
{
    const kg_sbx_info_t *info = &sandbox->info;
    if (!path) {
        return kg_format(ret, cap, "%s", info->workspace);
    }
    const char *rest = below(path, "/workspace");
    if (rest) {
        return kg_format(ret, cap, "%s%s", info->workspace, rest);
    }
    rest = below(path, "/home/user");
    if (rest) {
        return kg_format(ret, cap, "%s%s", info->home, rest);
    }
    return path[0] == '/' ? kg_format(ret, cap, "%s", path)
                          : kg_format(ret, cap, "%s/%s", info->workspace, path);
}

json_t *kg_json_cwd(const char *cwd)
{
    return cwd && cwd[0] == '/' ? json_string(cwd)
                                : json_sprintf("/workspace%s%s", cwd ? "/" : "", cwd ? cwd : "");
}
