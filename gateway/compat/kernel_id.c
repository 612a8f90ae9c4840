/* gateway/compat: from a kernel's id to its context and back. */
#include "gateway/compat/kernel_id.h"

#include <errno.h>
#include <string.h>

bool kg_kernel_id_valid(const char *id)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (strlen(id) >= KG_ID_MAX) {
        return false;
    }
    for (unsigned part = 1;; part++) {
        size_t len = strspn(id, word);
        if (len == 0) {
            return false;
        }
        id += len;
        if (*id != '-') {
            return *id == '\0' && part == 5;
        }
        id++;
    }
}

void kg_kernel_of(kg_context_t *context, const kg_principal_t *who, kg_kernel_ref_t *ret_ref)
{
    kg_sandbox_t *sandbox = kg_context_sandbox(context);
    const char *id = kg_context_id(context);
    const char *first = kg_sandbox_default_context(sandbox);
    const char *chosen = kg_sandbox_metadata(sandbox, KG_JUPYTER_META_ID);
    bool its_kernel = first && strcmp(first, id) == 0;
    *ret_ref = (kg_kernel_ref_t){
        .sandbox = sandbox,
        .context = context,
        .id = its_kernel && chosen && kg_kernel_id_valid(chosen) ? chosen : id,
        .key = who->key.id,
        .may_restart = kg_auth_allow(who, KG_RIGHT_USE, NULL, NULL) == 0,
        .own = its_kernel && kg_sandbox_started_by(sandbox, who->key.id),
    };
}

typedef struct seek {
    const char *id;
    kg_context_t *found;
} seek_t;

static bool seek_chosen(void *user, kg_sandbox_t *sandbox)
{
    seek_t *s = user;
    const char *chosen = kg_sandbox_metadata(sandbox, KG_JUPYTER_META_ID);
    const char *first = kg_sandbox_default_context(sandbox);
    if (chosen && first && strcmp(chosen, s->id) == 0) {
        s->found = kg_context_find(sandbox, first, NULL);
    }
    return !s->found;
}

int kg_kernel_find(kg_core_t *core,
                   const kg_principal_t *who,
                   const char *id,
                   kg_kernel_ref_t *ret_ref,
                   kg_err_t *err)
{
    seek_t s = {.id = id};
    if (kg_kernel_id_valid(id)) {
        s.found = kg_context_find_any(core, who->key.owner, id, NULL);
        if (!s.found) {
            kg_sandbox_each(core, who->key.owner, seek_chosen, &s);
        }
    }
    if (!s.found) {
        return kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "Kernel does not exist: %.64s", id);
    }
    kg_sandbox_t *sandbox = kg_context_sandbox(s.found);
    int rc = kg_auth_allow(who, KG_RIGHT_SANDBOX, kg_sandbox_id(sandbox), err);
    if (rc == 0) {
        kg_kernel_of(s.found, who, ret_ref);
    }
    return rc;
}
