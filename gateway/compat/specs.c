/* gateway/compat: kernelspecs. A template is one, whose kernels get a sandbox of their own; and so
 * is each live context that no notebook has made, so that it can be chosen where kernels are
 * chosen. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/compat/model.h"

static const struct {
    const char *name;
    const char *resource;
    const char *type;
} logos[] = {
    {"logo-32x32.png", "logo-32x32", "image/png"},
    {"logo-64x64.png", "logo-64x64", "image/png"},
    {"logo-svg.svg", "logo-svg", "image/svg+xml"},
};

bool kg_jupyter_may_start(const kg_principal_t *who)
{
    return kg_auth_allow(who, KG_RIGHT_USE, NULL, NULL) == 0;
}

static bool means(const kg_template_kernel_t *k, const char *name)
{
    const char *language = kg_language_canonical(name);
    return !k->hidden && (strcmp(k->spec_name, name) == 0 || strcmp(k->language, language) == 0 ||
                          (strcmp(name, "ir") == 0 && strcmp(k->language, "r") == 0));
}

static bool find_template(const kg_core_t *core,
                          const char *template_name, /* NULL = any */
                          const char *language,      /* NULL = any */
                          kg_template_kernel_t *ret)
{
    for (size_t i = 0; kg_template_kernel(core, i, ret); i++) {
        if (ret->usable && (!template_name || strcmp(ret->name, template_name) == 0) &&
            (!language || means(ret, language))) {
            return true;
        }
    }
    return false;
}

/* A fresh sandbox begins with its template's main kernel: where that is of no such language, the
 * one beside which there is such a kernel is the nearest (JavaScript's is TypeScript's). */
static bool find_speaker(const kg_core_t *core, const char *language, kg_template_kernel_t *ret)
{
    for (size_t i = 0; kg_template_kernel(core, i, ret); i++) {
        if (ret->usable && !ret->hidden && kg_template_speaks(core, ret, language)) {
            return true;
        }
    }
    return false;
}

bool kg_jupyter_template(const kg_core_t *core, const char *name, kg_template_kernel_t *ret)
{
    const char *standard = kg_core_config(core)->default_template;
    return name
               ? find_template(core, name, NULL, ret) || find_template(core, standard, name, ret) ||
                     find_template(core, NULL, name, ret) || find_speaker(core, name, ret)
               : find_template(core, standard, NULL, ret);
}

/* --- One ------------------------------------------------------------------------------------ */

static json_t *argv_json(const char *const *argv)
{
    json_t *out = json_array();
    for (size_t i = 0; out && argv && argv[i]; i++) {
        (void)json_array_append_new(out, json_string(argv[i]));
    }
    return out;
}

static json_t *metadata_json(const char *text)
{
    json_t *out = text ? json_loads(text, 0, NULL) : NULL;
    return out ? out : json_object();
}

static json_t *resources_json(const kg_template_kernel_t *k)
{
    json_t *out = json_object();
    for (size_t i = 0; out && i < KG_ARRAY_LEN(logos); i++) {
        KG_AUTO_BUF kg_buf_t unused = {0};
        if (kg_template_resource(k, logos[i].name, &unused, NULL) == 0) {
            (void)json_object_set_new(out, logos[i].resource,
                                      json_sprintf("/kernelspecs/%s/%s", k->name, logos[i].name));
        }
    }
    return out;
}

static json_t *template_json(const kg_template_kernel_t *k)
{
    return json_pack("{s:s, s:{s:o, s:o, s:s, s:s, s:s, s:o, s:{}}, s:o}", "name", k->name, "spec",
                     "argv", argv_json(k->argv), "display_name",
                     json_sprintf("%s (%s)", k->display_name, k->name), "language",
                     k->spec_language, "interrupt_mode",
                     k->message_interrupt ? "message" : "signal", "protocol_version", "5.3",
                     "metadata", metadata_json(k->metadata), "env", "resources", resources_json(k));
}

static json_t *live_json(const kg_kernel_ref_t *kernel)
{
    kg_context_look_t look;
    char label[KG_JUPYTER_LABEL_MAX];
    kg_context_look(kernel->context, &look);
    kg_jupyter_label(kernel->context, label);
    return json_pack("{s:o, s:{s:[s,s], s:o, s:s, s:s, s:o, s:{}}, s:{}}", "name",
                     json_sprintf(KG_JUPYTER_LIVE "%s", kg_context_id(kernel->context)), "spec",
                     "argv", "sandal", kg_context_id(kernel->context), "display_name",
                     json_sprintf("Sandal: %s", label), "language", look.language, "interrupt_mode",
                     look.message_interrupt ? "message" : "signal", "metadata",
                     metadata_json(look.metadata), "env", "resources");
}

json_t *
kg_jupyter_spec_json(kg_core_t *core, const kg_principal_t *who, const char *name, kg_err_t *err)
{
    kg_kernel_ref_t live;
    kg_template_kernel_t k;
    json_t *out = NULL;
    bool found = false;
    if (kg_str_starts(name, KG_JUPYTER_LIVE)) {
        found = kg_kernel_find(core, who, name + strlen(KG_JUPYTER_LIVE), &live, NULL) == 0;
        out = found ? live_json(&live) : NULL;
    } else if (kg_jupyter_may_start(who)) {
        found = kg_jupyter_template(core, name, &k);
        out = found ? template_json(&k) : NULL;
    }
    if (!found) {
        kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "Kernel spec %.64s not found", name);
    } else if (!out) {
        kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the answer.");
    }
    return out;
}

/* --- All ------------------------------------------------------------------------------------ */

static bool is_live(const kg_kernel_ref_t *kernel)
{
    return !kg_sandbox_metadata(kernel->sandbox, KG_JUPYTER_META_SPEC);
}

static bool add_live(void *user, const kg_kernel_ref_t *kernel)
{
    if (is_live(kernel)) {
        char name[sizeof KG_JUPYTER_LIVE + KG_ID_MAX];
        (void)kg_format(name, sizeof name, KG_JUPYTER_LIVE "%s", kg_context_id(kernel->context));
        (void)json_object_set_new(user, name, live_json(kernel));
    }
    return true;
}

typedef struct first {
    char *ret;
    size_t cap;
} first_t;

static bool take_first(void *user, const kg_kernel_ref_t *kernel)
{
    first_t *f = user;
    if (is_live(kernel)) {
        (void)kg_format(f->ret, f->cap, KG_JUPYTER_LIVE "%s", kg_context_id(kernel->context));
    }
    return !is_live(kernel);
}

void kg_jupyter_default_spec(kg_core_t *core, const kg_principal_t *who, char *ret, size_t cap)
{
    kg_template_kernel_t k;
    first_t first = {ret, cap};
    ret[0] = '\0';
    if (!kg_jupyter_may_start(who)) {
        kg_kernel_each(core, who, take_first, &first);
    } else if (kg_jupyter_template(core, NULL, &k)) {
        (void)kg_format(ret, cap, "%s", k.name);
    } else {
        for (size_t i = 0; !ret[0] && kg_template_kernel(core, i, &k); i++) {
            (void)kg_format(ret, cap, "%s", k.usable && !k.hidden ? k.name : "");
        }
    }
}

json_t *kg_jupyter_specs_json(kg_core_t *core, const kg_principal_t *who)
{
    char standard[KG_OBJ_NAME_MAX + 1];
    json_t *specs = json_object();
    kg_template_kernel_t k;
    kg_jupyter_default_spec(core, who, standard, sizeof standard);
    /* The default comes first: JupyterLab takes the first one until it knows the gateway's default.
     */
    if (specs && kg_jupyter_may_start(who) && kg_jupyter_template(core, NULL, &k) && !k.hidden) {
        (void)json_object_set_new(specs, k.name, template_json(&k));
    }
    for (size_t i = 0; specs && kg_jupyter_may_start(who) && kg_template_kernel(core, i, &k); i++) {
        if (k.usable && !k.hidden) {
            (void)json_object_set_new(specs, k.name, template_json(&k));
        }
    }
    if (specs) {
        kg_kernel_each(core, who, add_live, specs);
    }
    return json_pack("{s:s, s:o}", "default", standard, "kernelspecs", specs);
}

/* --- Files ---------------------------------------------------------------------------------- */

int kg_jupyter_logo(
    const kg_core_t *core, const char *spec, const char *file, const char **ret_type, kg_buf_t *out)
{
    kg_template_kernel_t k;
    for (size_t i = 0; i < KG_ARRAY_LEN(logos); i++) {
        if (strcmp(logos[i].name, file) == 0 && kg_jupyter_template(core, spec, &k)) {
            *ret_type = logos[i].type;
            return kg_template_resource(&k, file, out, NULL);
        }
    }
    return -ENOENT;
}
