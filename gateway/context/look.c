/* gateway/context: what other surfaces look at without making JSON of it. */
#include <string.h>

#include "gateway/context/internal.h"

void kg_sandbox_each(kg_core_t *core, const char *owner, kg_sandbox_each_fn *each, void *user)
{
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        bool shown = !s->deleted && !s->hidden && strcmp(s->owner, owner) == 0;
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
