/* gateway/context: what templates offer. A sandbox takes the kernel of a language from its own
 * template, else from another one that is built (host roots hold them all). */
#include "gateway/context/template.h"

#include <errno.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/template_internal.h"

const char *kg_language_canonical(const char *name)
{
    static const char *const aliases[][2] = {
        {"py", "python"},       {"python3", "python"}, {"js", "javascript"},
        {"node", "javascript"}, {"ts", "typescript"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(aliases); i++) {
        if (strcmp(name, aliases[i][0]) == 0) {
            return aliases[i][1];
        }
    }
    return name;
}

const char *kg_template_name(const kg_template_t *tpl)
{
    return tpl->name;
}

const kg_template_t *kg_templates_find(const kg_templates_t *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i]->name, name) == 0) {
            return list->items[i];
        }
    }
    return NULL;
}

static bool language_is(const kg_tpl_language_t *lang, const char *name)
{
    if (strcmp(lang->name, name) == 0 || strcmp(lang->spec->name, name) == 0) {
        return true;
    }
    for (char **alias = lang->aliases; alias && *alias; alias++) {
        if (strcmp(*alias, name) == 0) {
            return true;
        }
    }
    return false;
}

static const kg_tpl_language_t *find_language(const kg_template_t *tpl, const char *name)
{
    for (size_t i = 0; i < tpl->language_count; i++) {
        if (language_is(&tpl->languages[i], name)) {
            return &tpl->languages[i];
        }
    }
    return NULL;
}

/* Is it one of "a, b, c"? */
static bool listed(const char *known, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = known; *at; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ",");
        if (n == len && strncmp(at, name, n) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

static int unknown_language(const kg_templates_t *list, const char *name, kg_err_t *err)
{
    char known[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; !list->items[i]->hidden && k < list->items[i]->language_count; k++) {
            const char *lang = list->items[i]->languages[k].name;
            if (!listed(known, lang) && used + strlen(lang) + 3 < sizeof(known)) {
                used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                         used ? ", " : "", lang);
            }
        }
    }
    int rc =
        kg_err_set(err, KG_ERR_LANGUAGE_NOT_FOUND, "no kernel for the language \"%.64s\"", name);
    kg_err_hint(err, "There is: %s.", used ? known : "none (scripts/setup builds the templates)");
    kg_err_pointer(err, "/language");
    return rc;
}

int kg_templates_resolve(const kg_templates_t *list,
                         const kg_template_t *tpl,
                         const char *language,
                         const kg_tpl_language_t **ret_language,
                         const kg_template_t **ret_from,
                         kg_err_t *err)
{
    const char *name = kg_language_canonical(language ? language : tpl->main_language);
    const kg_template_t *from = tpl;
    const kg_tpl_language_t *found = find_language(tpl, name);
    /* Others: built and shown ones first; one that can only be named comes last (by its
     * kernelspec's name). */
    for (unsigned round = 0; !found && round < 3; round++) {
        for (size_t i = 0; !found && i < list->count; i++) {
            from = list->items[i];
            bool fits =
                round == 0 ? from->built && !from->hidden : (round == 1 ? from->built : true);
            fits = fits && kg_template_on_host(from) && kg_template_on_host(tpl);
            found = fits ? find_language(from, name) : NULL;
        }
    }
    if (!found) {
        return unknown_language(list, name, err);
    }
    int rc = kg_template_usable(from, found, err);
    if (rc) {
        return rc;
    }
    *ret_language = found;
    *ret_from = from;
    return 0;
}

/* argv[0] as the spawn will look for it: a path as it is, a bare name in the template's PATH. */
static bool program_there(const kg_template_t *from, const char *program)
{
    if (!kg_template_on_host(from)) {
        return true; /* in a root that isn't ours to look into: starting it will tell */
    }
    if (strchr(program, '/')) {
        return access(program, X_OK) == 0;
    }
    const char *path = kg_env_get(&from->env, "PATH", 4);
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t len = strcspn(p, ":");
        char file[KG_SBX_PATH_MAX * 2];
        if (!kg_format(file, sizeof(file), "%.*s/%s", (int)len, p, program) &&
            access(file, X_OK) == 0) {
            return true;
        }
        p += len + (p[len] == ':');
    }
    return false;
}

bool kg_template_startup(const kg_template_t *from,
                         const kg_tpl_language_t *language,
                         char ret_dir[KG_SBX_PATH_MAX])
{
    static const char name[] = "PYTHONPATH=";
    const char *path = kg_env_get(&from->env, name, sizeof(name) - 2);
    for (char **e = language->spec->env; e && *e; e++) {
        path = kg_str_starts(*e, name) ? *e + sizeof(name) - 1 : path;
    }
    while (path && *path) {
        size_t len = strcspn(path, ":");
        char file[KG_SBX_PATH_MAX * 2];
        if (len && !kg_format(ret_dir, KG_SBX_PATH_MAX, "%.*s", (int)len, path) &&
            !kg_format(file, sizeof(file), "%s/sandal_context.py", ret_dir) &&
            access(file, F_OK) == 0) {
            return true;
        }
        path += len + (path[len] == ':');
    }
    return false;
}

bool kg_template_has_helper(const kg_template_t *from, const kg_tpl_language_t *language)
{
    char dir[KG_SBX_PATH_MAX];
    return language->spec->has_context || kg_template_startup(from, language, dir);
}

int kg_template_usable(const kg_template_t *from, const kg_tpl_language_t *language, kg_err_t *err)
{
    int rc = 0;
    if (!from->built) {
        rc =
            kg_err_set(err, KG_ERR_KERNEL_START_FAILED, "template %s is not built: %s is not there",
                       from->name, from->prefix_asked);
    } else if (language && !program_there(from, language->spec->argv[0])) {
        rc = kg_err_set(err, KG_ERR_KERNEL_START_FAILED, "template %s: its kernel %s is not there",
                        from->name, language->spec->argv[0]);
    }
    if (rc) {
        kg_err_hint(err, "scripts/setup builds the templates.");
    }
    return rc;
}

static json_t *languages_json(const kg_template_t *tpl)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < tpl->language_count; i++) {
        const kg_tpl_language_t *lang = &tpl->languages[i];
        json_t *aliases = json_array();
        for (char **alias = lang->aliases; aliases && alias && *alias; alias++) {
            (void)json_array_append_new(aliases, json_string(*alias));
        }
        (void)json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:o}", "name", lang->name,
                                                   "kernel", lang->spec->name, "display_name",
                                                   lang->spec->display_name, "aliases", aliases));
    }
    return out;
}

json_t *kg_template_json(const kg_core_t *core, const kg_template_t *tpl)
{
    (void)core;
    kg_err_t err = {0};
    bool available = tpl->built;
    if (!available) {
        (void)kg_template_usable(tpl, NULL, &err);
    }
    for (size_t i = 0; available && i < tpl->language_count; i++) {
        available = kg_template_usable(tpl, &tpl->languages[i], &err) == 0;
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:b, s:s?, s:{s:i, s:f, s:i, s:i, s:i}, s:s}", "name",
                     tpl->name, "description", tpl->description, "main_language",
                     tpl->main_language, "languages", languages_json(tpl), "available", available,
                     "reason", available ? (const char *)NULL : err.message, "limits", "memory_mib",
                     (int)tpl->memory_mib, "cpus", tpl->cpus, "pids", (int)tpl->pids, "disk_mib",
                     (int)tpl->disk_mib, "open_files", (int)tpl->open_files, "start",
                     kg_start_kind_name(tpl->start));
}

static int tell_root(const kg_template_t *t, kg_template_root_fn *fn, void *user)
{
    const kg_template_root_t root = {
        .name = t->name,
        .dir = t->dir,
        .rootfs = t->rootfs,
        .prefix = t->prefix && kg_template_on_host(t) ? t->prefix : "",
        .prefix_wanted = geteuid() == 0 ? t->prefix_asked : t->prefix_user,
    };
    return fn(user, &root);
}

int kg_template_roots(const kg_template_sources_t *sources,
                      kg_template_root_fn *fn,
                      void *user,
                      kg_err_t *err)
{
    kg_templates_t list = {0};
    int rc = kg_templates_load(&list, sources, err);
    for (size_t i = 0; i < list.count && !rc; i++) {
        rc = tell_root(list.items[i], fn, user);
    }
    kg_templates_fini(&list);
    return rc;
}
