/* cli: the keeper reads no template and no configuration; it is told. */
#include "gateway/cli/keeper_args.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/cli/paths.h"
#include "gateway/context/template.h"

typedef struct kg_roots {
    const kg_config_t *config;
    kg_strlist_t *args;
} kg_roots_t;

static int append_take(kg_strlist_t *args, char *text_take)
{
    char **items = text_take ? realloc(args->items, (args->count + 1) * sizeof(*items)) : NULL;
    if (!items) {
        free(text_take);
        return 1;
    }
    args->items = items;
    items[args->count++] = text_take;
    return 0;
}

static int add_root(void *user, const kg_template_root_t *root)
{
    const kg_roots_t *roots = user;
    bool below = root->rootfs[0] != '/' && strcmp(root->rootfs, "host") != 0;
    char *text = below ? kg_strdup_printf("%s=%s/templates/%s:%s", root->name,
                                          roots->config->state_dir, root->rootfs, root->prefix)
                       : kg_strdup_printf("%s=%s:%s", root->name, root->rootfs, root->prefix);
    if (append_take(roots->args, strdup("--root"))) {
        free(text);
        return 1;
    }
    return append_take(roots->args, text);
}

static int add_seconds(kg_strlist_t *args, const char *name, uint64_t ns)
{
    if (append_take(args, strdup(name))) {
        return 1;
    }
    uint64_t s = (ns + KG_NS_PER_S - 1) / KG_NS_PER_S; /* never 0 of what isn't */
    return append_take(args, kg_strdup_printf("%llu", (unsigned long long)s));
}

/* Where every sandbox will want volumes and networks, they are made before the first one comes. */
static bool wants_all(const kg_config_t *config)
{
    return strcmp(config->isolation, "none") != 0 && strcmp(config->isolation, "process") != 0;
}

static int add_rest(const kg_config_t *config, kg_strlist_t *args)
{
    if (add_seconds(args, "--create-timeout", config->timeouts.create) ||
        add_seconds(args, "--orphan-timeout", config->timeouts.orphan)) {
        return 1;
    }
    if (strcmp(config->log.format, "json") == 0 && append_take(args, strdup("--log-json"))) {
        return 1;
    }
    return wants_all(config) ? append_take(args, strdup("--prepare")) : 0;
}

kg_template_sources_t kg_config_templates(const kg_config_t *config, const char *data_home)
{
    return (kg_template_sources_t){
        .dirs = (const char *const *)config->template_dirs.items,
        .dir_count = config->template_dirs.count,
        .kernelspec_dirs = (const char *const *)config->kernelspec_dirs.items,
        .kernelspec_dir_count = config->kernelspec_dirs.count,
        .data_home = data_home,
    };
}

int kg_keeper_args(const kg_config_t *config, kg_strlist_t *ret_args, kg_err_t *err)
{
    kg_strlist_t args = {0};
    kg_roots_t roots = {.config = config, .args = &args};
    KG_AUTO_FREE char *data_home = kg_path_data_home();
    const kg_template_sources_t sources = kg_config_templates(config, data_home);
    int r = kg_template_roots(&sources, add_root, &roots, err);
    if (r > 0) {
        r = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < config->sandbox_files.count && r == 0; i++) {
        if (append_take(&args, strdup("--show")) ||
            append_take(&args, strdup(config->sandbox_files.items[i]))) {
            r = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
        }
    }
    for (size_t i = 0; i < config->network_allow.count && r == 0; i++) {
        if (append_take(&args, strdup("--net-allow")) ||
            append_take(&args, strdup(config->network_allow.items[i]))) {
            r = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
        }
    }
    if (r == 0 && add_rest(config, &args)) {
        r = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if (r < 0) {
        kg_keeper_args_fini(&args);
        return r;
    }
    *ret_args = args;
    return 0;
}

void kg_keeper_args_fini(kg_strlist_t *args)
{
    for (size_t i = 0; i < args->count; i++) {
        free(args->items[i]);
    }
    free(args->items);
    *args = (kg_strlist_t){0};
}
