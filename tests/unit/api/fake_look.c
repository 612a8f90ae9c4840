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
    if (!owner || strcmp(owner, "alice") == 0) {
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

const char *kg_sandbox_owner(const kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return "alice";
}

const kg_node_t *kg_core_node(const kg_core_t *core)
{
    static const kg_node_t node = {"0abcd"};
    (void)core;
    return &node;
}

const kg_core_config_t *kg_core_config(const kg_core_t *core)
{
    static const kg_core_config_t config = {.default_template = "python"};
    (void)core;
    return &config;
}

/* --- Templates: "python", one that is not built, one that is hidden
 * ------------------------------------------ */

const char *kg_language_canonical(const char *name)
{
    return strcmp(name, "python3") == 0 ? "python" : name;
}

bool kg_template_kernel(const kg_core_t *core, size_t index, kg_template_kernel_t *ret_kernel)
{
    static const char *const argv[] = {"python", "-m", "fake", NULL};
    (void)core;
    static const char *const names[] = {"unbuilt", "python", "veiled"};
    *ret_kernel = (kg_template_kernel_t){
        .name = index < 3 ? names[index] : NULL, .dir = "/", .hidden = index == 2};
    if (index == 1 || index == 2) {
        ret_kernel->usable = true;
        ret_kernel->language = ret_kernel->spec_language = "python";
        ret_kernel->spec_name = "kernel";
        ret_kernel->display_name = "Fake 3";
        ret_kernel->metadata = "{\"debugger\":true}";
        ret_kernel->argv = argv;
    }
    return index < 3;
}

bool kg_template_speaks(const kg_core_t *core,
                        const kg_template_kernel_t *kernel,
                        const char *language)
{
    (void)core;
    return strcmp(kernel->name, "python") == 0 && strcmp(language, "jython") == 0;
}

int kg_template_resource(const kg_template_kernel_t *kernel,
                         const char *name,
                         kg_buf_t *out,
                         kg_err_t *err)
{
    (void)kernel;
    return strcmp(name, "logo-64x64.png") == 0 ? kg_buf_append_cstr(out, "PNG")
                                               : kg_err_set(err, KG_ERR_CONFIG, "There is none.");
}

/* --- Memos of the store ---------------------------------------------------------------------- */

static struct {
    char id[KG_ID_MAX];
    char body[512];
} memos[4];

void fake_look_reset(void)
{
    memset(memos, 0, sizeof memos);
}

int kg_store_memo_put(kg_store_t *store, const kg_store_row_t *row, kg_err_t *err)
{
    (void)store;
    for (size_t i = 0; i < KG_ARRAY_LEN(memos); i++) {
        if (!memos[i].id[0]) {
            snprintf(memos[i].id, sizeof memos[i].id, "%s", row->id);
            snprintf(memos[i].body, sizeof memos[i].body, "%s", row->body);
            return 0;
        }
    }
    return kg_err_set(err, KG_ERR_STORAGE_FULL, "The store is full.");
}

int kg_store_memo_delete(kg_store_t *store, const char *id, kg_err_t *err)
{
    (void)store;
    (void)err;
    for (size_t i = 0; i < KG_ARRAY_LEN(memos); i++) {
        if (strcmp(memos[i].id, id) == 0) {
            memos[i].id[0] = '\0';
        }
    }
    return 0;
}

int kg_store_memo_each(
    kg_store_t *store, const char *sandbox, kg_store_row_fn *each, void *user, kg_err_t *err)
{
    (void)store;
    (void)err;
    for (size_t i = 0; i < KG_ARRAY_LEN(memos); i++) {
        kg_store_row_t row = {.id = memos[i].id, .parent = sandbox, .body = memos[i].body};
        int rc = memos[i].id[0] ? each(user, &row) : 0;
        if (rc) {
            return rc;
        }
    }
    return 0;
}
