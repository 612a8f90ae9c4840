/* gateway/compat: which variables of a client's environment a kernel gets. */
#include "gateway/compat/allow.h"

#include <stdint.h>
#include <string.h>

static bool is_variable(const char *name)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t len = strlen(name);
    return len > 0 && !(name[0] >= '0' && name[0] <= '9') && strspn(name, word) == len;
}

bool kg_allow_name(const char *const *patterns, size_t count, const char *name)
{
    if (!is_variable(name)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(patterns[i]);
        bool begins = len > 0 && patterns[i][len - 1] == '*';
        if (begins ? strncmp(patterns[i], name, len - 1) == 0 : strcmp(patterns[i], name) == 0) {
            return true;
        }
    }
    return false;
}

json_t *kg_allow_env(const char *const *patterns, size_t count, const json_t *env)
{
    json_t *out = json_object();
    void *at = env ? json_object_iter((json_t *)(uintptr_t)env) : NULL;
    for (; out && at; at = json_object_iter_next((json_t *)(uintptr_t)env, at)) {
        json_t *value = json_object_iter_value(at);
        bool plain =
            json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
        if (plain && kg_allow_name(patterns, count, json_object_iter_key(at)) &&
            json_object_set(out, json_object_iter_key(at), value) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
