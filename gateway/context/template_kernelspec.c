/* gateway/context: kernelspecs that are installed on the host, served as they are. Each becomes a
 * template with the host's root and that one language. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/template_internal.h"

enum {
    NAME_MAX_LEN = 63
};

/* What sandboxes have whose template says nothing: those of the shipped ones. */
static const kg_template_t presets = {.memory_mib = 2048,
                                      .cpus = 2,
                                      .pids = 512,
                                      .disk_mib = 4096,
                                      .open_files = KG_TEMPLATE_OPEN_FILES,
                                      .built = true,
                                      .debugger = true};

/* A kernelspec's folder has letters of both cases, `_` and `.` too. */
static int name_of(const char *folder, char ret[NAME_MAX_LEN + 1], kg_err_t *err)
{
    size_t len = strlen(folder);
    for (size_t i = 0; i < len && i < NAME_MAX_LEN; i++) {
        ret[i] =
            (char)(isalnum((unsigned char)folder[i]) ? tolower((unsigned char)folder[i]) : '-');
    }
    ret[len < NAME_MAX_LEN ? len : NAME_MAX_LEN] = '\0';
    if (len > NAME_MAX_LEN || !kg_name_valid(ret, NAME_MAX_LEN)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%.80s: no name for a template: letters, digits, -",
                          folder);
    }
    return 0;
}

/* The words by which clients ask for it: the kernel's language in lower case, as the shipped
 * templates have it; the language as the kernelspec writes it and the folder's name are aliases. */
static int name_language(kg_tpl_language_t *lang, const char *folder, kg_err_t *err)
{
    const char *said = lang->spec->language[0] ? lang->spec->language : folder;
    lang->name = strdup(said);
    lang->aliases = calloc(3, sizeof(*lang->aliases));
    for (char *p = lang->name; p && *p; p++) {
        *p = (char)tolower((unsigned char)*p);
    }
    if (lang->aliases) {
        lang->aliases[0] = strdup(folder);
        lang->aliases[1] = lang->aliases[0] ? strdup(said) : NULL;
    }
    return lang->name && lang->aliases && lang->aliases[1]
               ? 0
               : kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
}

static bool names_its_folder(const kg_kernelspec_t *spec)
{
    bool found = false;
    for (char **a = spec->argv; *a && !found; a++) {
        found = strstr(*a, "{resource_dir}") != NULL;
    }
    for (char **e = spec->env; *e && !found; e++) {
        found = strstr(*e, "{resource_dir}") != NULL;
    }
    return found;
}

/* /usr is in every sandbox; another folder is shown where the kernel needs something of it. */
static bool wants_folder(const kg_template_t *t)
{
    return !kg_str_starts(t->dir, "/usr/") && names_its_folder(t->languages[0].spec);
}

static int fill(kg_template_t *t, const char *folder, kg_err_t *err)
{
    kg_kernelspec_t *spec = t->languages[0].spec;
    int rc = name_language(&t->languages[0], folder, err);
    if (rc) {
        return rc;
    }
    t->description = strdup(spec->display_name[0] ? spec->display_name : folder);
    t->main_language = strdup(t->languages[0].name);
    t->rootfs = strdup("host");
    if (wants_folder(t)) {
        t->prefix = strdup(t->dir);
        t->prefix_asked = t->prefix ? strdup(t->dir) : NULL;
    }
    bool whole = t->description && t->main_language && t->rootfs &&
                 (t->prefix_asked || !wants_folder(t)) &&
                 !kg_env_set(&t->env, "PATH", "/usr/local/bin:/usr/bin:/bin") &&
                 !kg_env_set(&t->env, "LANG", "C.UTF-8") && !kg_env_set(&t->env, "TZ", "UTC");
    return whole ? 0 : kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
}

int kg_template_of_kernelspec(const char *dir, kg_template_t **ret_tpl, kg_err_t *err)
{
    KG_AUTO(kg_template_destroy) kg_template_t *t = calloc(1, sizeof(*t));
    KG_AUTO_BUF kg_buf_t text = {0};
    const char *slash = strrchr(dir, '/');
    const char *folder = slash ? slash + 1 : dir;
    char name[NAME_MAX_LEN + 1];
    int rc = name_of(folder, name, err);
    if (rc || !t) {
        return rc ? rc : kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    *t = presets;
    t->name = strdup(name);
    t->dir = strdup(dir);
    t->languages = calloc(1, sizeof(*t->languages));
    if (!t->name || !t->dir || !t->languages) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    t->language_count = 1;
    rc = kg_template_read_file(dir, "kernel.json", &text, err);
    if (rc) {
        return rc; /* names the file */
    }
    rc = kg_kernelspec_parse(name, kg_buf_slice(&text), &t->languages[0].spec, err);
    if (rc) {
        return kg_err_wrap(err, "%s/kernel.json%s%s", dir, err->pointer[0] ? " " : "",
                           err->pointer);
    }
    rc = fill(t, folder, err);
    if (!rc) {
        *ret_tpl = KG_TAKE(t);
    }
    return rc;
}

static int load_folder(kg_templates_t *list, const char *folder, void *user, kg_err_t *err)
{
    kg_template_t *tpl = NULL;
    (void)user;
    int rc = kg_template_of_kernelspec(folder, &tpl, err);
    if (rc || !tpl) {
        return rc;
    }
    if (kg_templates_find(list, tpl->name)) {
        kg_template_destroy(&tpl);
        return 0;
    }
    return kg_templates_append_take(list, tpl, err);
}

int kg_templates_load_kernelspecs(kg_templates_t *list, const char *dir, kg_err_t *err)
{
    return kg_templates_each(list, dir, "kernel.json", load_folder, NULL, err);
}
