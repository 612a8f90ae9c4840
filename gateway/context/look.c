/* gateway/context: what other surfaces look at without making JSON of it. */
#include <string.h>
#include <strings.h>

#include "gateway/context/internal.h"

void kg_sandbox_each(kg_core_t *core, const char *owner, kg_sandbox_each_fn *each, void *user)
{
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        bool shown = !s->deleted && !s->hidden && (!owner || strcmp(s->owner, owner) == 0);
        if (shown && !each(user, s)) {
            return;
        }
    }
}

const char *kg_sandbox_metadata(const kg_sandbox_t *sandbox, const char *key)
{
    return json_string_value(json_object_get(sandbox->metadata, key));
}

const char *kg_sandbox_name(const kg_sandbox_t *sandbox)
{
    return sandbox->name[0] ? sandbox->name : NULL;
}

void kg_context_each(kg_sandbox_t *sandbox, kg_context_each_fn *each, void *user)
{
    kg_context_t *context = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (!context->gone && !each(user, context)) {
            return;
        }
    }
}

void kg_context_look(const kg_context_t *context, kg_context_look_t *ret_look)
{
    *ret_look = (kg_context_look_t){
        .name = context->name[0] ? context->name : NULL,
        .language = context->lang->name,
        .template_name = context->from->name,
        .display_name = context->lang->spec->display_name,
        .metadata = context->lang->spec->metadata,
        .state = kg_context_state_name(context),
        .active_ns = context->sandbox->active_ns,
        .incarnation = context->incarnation,
        .message_interrupt = context->lang->spec->interrupt_mode == KG_INTERRUPT_MESSAGE,
        .is_default = context->is_default,
    };
}

bool kg_template_kernel(const kg_core_t *core, size_t index, kg_template_kernel_t *ret_kernel)
{
    if (index >= core->templates.count) {
        return false;
    }
    const kg_template_t *tpl = core->templates.items[index];
    const kg_tpl_language_t *lang = NULL;
    for (size_t i = 0; tpl->main_language && i < tpl->language_count; i++) {
        lang = strcmp(tpl->languages[i].name, tpl->main_language) == 0 ? &tpl->languages[i] : lang;
    }
    *ret_kernel = (kg_template_kernel_t){.name = tpl->name, .dir = tpl->dir, .hidden = tpl->hidden};
    if (lang && tpl->built && kg_template_usable(tpl, lang, NULL) == 0) {
        ret_kernel->usable = true;
        ret_kernel->language = lang->name;
        ret_kernel->spec_name = lang->spec->name;
        ret_kernel->spec_language = lang->spec->language;
        ret_kernel->display_name = lang->spec->display_name;
        ret_kernel->metadata = lang->spec->metadata;
        ret_kernel->argv = (const char *const *)lang->spec->argv;
        ret_kernel->message_interrupt = lang->spec->interrupt_mode == KG_INTERRUPT_MESSAGE;
    }
    return true;
}

bool kg_template_speaks(const kg_core_t *core,
                        const kg_template_kernel_t *kernel,
                        const char *language)
{
    const kg_template_t *tpl = kg_templates_find(&core->templates, kernel->name);
    const char *name = kg_language_canonical(language);
    for (size_t i = 0; tpl && i < tpl->language_count; i++) {
        const kg_tpl_language_t *lang = &tpl->languages[i];
        bool found = strcasecmp(lang->name, name) == 0;
        for (char **alias = lang->aliases; !found && alias && *alias; alias++) {
            found = strcasecmp(*alias, name) == 0;
        }
        if (found) {
            return true;
        }
    }
    return false;
}

int kg_template_resource(const kg_template_kernel_t *kernel,
                         const char *name,
                         kg_buf_t *out,
                         kg_err_t *err)
{
    return kg_template_read_file(kernel->dir, name, out, err);
}
