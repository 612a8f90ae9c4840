/* gateway/context: what is wrong with a template, told before a daemon has to tell it: everything
 * that loading refuses, and what only shows when a kernel is started. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/str.h"
#include "gateway/context/template_internal.h"

typedef struct kg_tpl_look {
    const kg_template_t *tpl;
    kg_template_finding_fn *fn;
    void *user;
} kg_tpl_look_t;

static void tell(const kg_tpl_look_t *look, bool wrong, const char *fmt, ...) KG_PRINTF(3, 4);

static void tell(const kg_tpl_look_t *look, bool wrong, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    look->fn(look->user, wrong, text);
}

static void look_at_language(const kg_tpl_look_t *look, const kg_tpl_language_t *lang)
{
    bool told = false;
    kg_err_t err = {0};
    for (char **arg = lang->spec->argv; *arg && !told; arg++) {
        told = strstr(*arg, "{connection_file}") != NULL;
    }
    if (!told) {
        tell(look, true, "/languages/%s: /argv of its kernel.json has no {connection_file}",
             lang->name);
    }
    if (look->tpl->built && kg_template_usable(look->tpl, lang, &err)) {
        tell(look, true, "/languages/%s: %s", lang->name, err.message);
    }
    if (!lang->spec->display_name[0]) {
        tell(look, false, "/languages/%s: its kernel.json has no /display_name", lang->name);
    }
}

static void look_at_main(const kg_tpl_look_t *look)
{
    bool found = look->tpl->language_count == 0;
    for (size_t i = 0; i < look->tpl->language_count; i++) {
        found = found || strcmp(look->tpl->languages[i].name, look->tpl->main_language) == 0;
    }
    if (!found) {
        tell(look, true, "/main_language: %s is none of /languages", look->tpl->main_language);
    }
}

static void look_at_start(const kg_tpl_look_t *look)
{
    bool forks = false;
    for (size_t i = 0; i < look->tpl->language_count; i++) {
        forks = forks || look->tpl->languages[i].zygote;
    }
    if (look->tpl->start == KG_START_ZYGOTE && !forks) {
        tell(look, true, "/start: \"zygote\", and none of /languages has a command /zygote");
    }
}

/* type/subtype */
static void look_at_richness(const kg_tpl_look_t *look)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789!#$&^_.+-";
    for (size_t i = 0; look->tpl->richness && look->tpl->richness[i]; i++) {
        const char *type = look->tpl->richness[i];
        size_t n = strspn(type, word);
        size_t m = n && type[n] == '/' ? strspn(type + n + 1, word) : 0;
        if (m == 0 || type[n + 1 + m]) {
            tell(look, true, "/richness/%zu: \"%s\" is no mime type", i, type);
        }
    }
}

/* What a sandbox that has the host's root sees of it is laid out by others. */
static void look_at_prefix(const kg_tpl_look_t *look)
{
    static const char *const taken[] = {"/usr", "/tmp", "/run"};
    const char *prefix = look->tpl->prefix_asked;
    for (size_t i = 0; prefix && kg_template_on_host(look->tpl) && i < KG_ARRAY_LEN(taken); i++) {
        size_t len = strlen(taken[i]);
        if (kg_str_starts(prefix, taken[i]) && (prefix[len] == '/' || prefix[len] == '\0')) {
            tell(look, true, "/prefix: %s must lie outside of /usr, /tmp and /run", prefix);
        }
    }
}

static void look_at_files(const kg_tpl_look_t *look)
{
    const kg_template_t *t = look->tpl;
    char path[KG_SBX_PATH_MAX * 2];
    struct stat st;
    if (!t->built) {
        tell(look, false, "not built: %s is not there; `sandald template build %s` makes it",
             t->prefix_asked, t->name ? t->name : "NAME");
    }
    if (t->built && t->home_skel && kg_template_on_host(t) &&
        (stat(t->home_skel, &st) < 0 || !S_ISDIR(st.st_mode))) {
        tell(look, true, "/home_skel: %s is no directory", t->home_skel);
    }
    if (kg_format(path, sizeof(path), "%s/build", t->dir) == 0 && access(path, F_OK) == 0 &&
        access(path, X_OK) < 0) {
        tell(look, true, "%s is no program: chmod +x", path);
    }
    if (t->rootfs[0] == '/' && stat(t->rootfs, &st) < 0) {
        tell(look, false, "/rootfs: %s is not there; `sandald template build %s` makes it",
             t->rootfs, t->name ? t->name : "NAME");
    }
}

int kg_template_validate(
    const char *dir, const char *data_home, kg_template_finding_fn *fn, void *user, kg_err_t *err)
{
    KG_AUTO(kg_template_destroy) kg_template_t *t = NULL;
    KG_AUTO_FREE char *real = realpath(dir, NULL);
    char file[KG_SBX_PATH_MAX * 2];
    if (!real || kg_format(file, sizeof(file), "%s/template.json", real)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", dir,
                          strerrordesc_np(real ? ENAMETOOLONG : errno));
    }
    bool own = access(file, F_OK) == 0;
    if (!own) {
        (void)kg_format(file, sizeof(file), "%s/kernel.json", real);
        if (access(file, F_OK) < 0) {
            return kg_err_set(err, KG_ERR_CONFIG,
                              "%s: neither template.json nor kernel.json is there", dir);
        }
    }
    kg_tpl_faults_t faults = {.fn = fn, .user = user, .err = err};
    int rc = own ? kg_template_read(real, data_home, &faults, &t)
                 : kg_template_of_kernelspec(real, &t, err);
    if (rc) {
        return rc;
    }
    const kg_tpl_look_t look = {.tpl = t, .fn = fn, .user = user};
    if (faults.count == 0) { /* else they would complain of what could not be read */
        look_at_main(&look);
        look_at_start(&look);
    }
    look_at_richness(&look);
    if (own) { /* a kernelspec's folder is where its packages put it */
        look_at_prefix(&look);
    }
    for (size_t i = 0; i < t->language_count; i++) {
        if (t->languages[i].spec && t->name) {
            look_at_language(&look, &t->languages[i]);
        }
    }
    look_at_files(&look);
    return 0;
}
