/* What other surfaces than /v1 look at: the one sandbox and context, and metadata that a test
 * sets. */
#include <stdio.h>
#include <string.h>

#include "fake_private.h"

void fake_core_metadata(kg_core_t *core, const char *key, const char *value)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(core->metadata); i++) {
        if (!core->metadata[i][0][0] || strcmp(core->metadata[i][0], key) == 0) {
            snprintf(core->metadata[i][0], sizeof core->metadata[i][0], "%s", key);
            snprintf(core->metadata[i][1], sizeof core->metadata[i][1], "%s", value);
            return;
        }
    }
}

const char *kg_sandbox_metadata(const kg_sandbox_t *sandbox, const char *key)
{
    const kg_core_t *core = sandbox->core;
    for (size_t i = 0; i < KG_ARRAY_LEN(core->metadata); i++) {
        if (strcmp(core->metadata[i][0], key) == 0) {
            return core->metadata[i][1];
        }
    }
    return NULL;
}

const char *kg_sandbox_name(const kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return "box";
}

const char *kg_sandbox_default_context(const kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return FAKE_CONTEXT;
}

void kg_sandbox_each(kg_core_t *core, const char *owner, kg_sandbox_each_fn *each, void *user)
{
    if (strcmp(owner, "alice") == 0) {
        (void)each(user, &core->sandbox);
    }
}

void kg_context_each(kg_sandbox_t *sandbox, kg_context_each_fn *each, void *user)
{
    (void)each(user, &sandbox->core->context);
}

void kg_context_look(const kg_context_t *context, kg_context_look_t *ret_look)
{
    (void)context;
    *ret_look = (kg_context_look_t){.name = "main",
                                    .language = "python",
                                    .template_name = "fake",
                                    .display_name = "Fake 3",
                                    .metadata = "{}",
                                    .state = "idle",
                                    .active_ns = UINT64_C(1767323045678901000),
                                    .incarnation = 1,
                                    .is_default = true};
}
