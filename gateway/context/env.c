/* gateway/context: environments of kernels. What reaches a kernel is put together here from
 * scratch: template, kernelspec, sandbox, context, later ones first. Nothing of the daemon's own
 * environment passes. */
#include "gateway/context/env.h"

#include <errno.h>
#include <string.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"

void kg_env_fini(kg_env_t *env)
{
    for (size_t i = 0; i < env->count; i++) {
        free(env->items[i]);
    }
    free(env->items);
    *env = (kg_env_t){0};
}

static size_t find(const kg_env_t *env, const char *name, size_t len)
{
    size_t i = 0;
    while (i < env->count &&
           (strncmp(env->items[i], name, len) != 0 || env->items[i][len] != '=')) {
        i++;
    }
    return i;
}

const char *kg_env_get(const kg_env_t *env, const char *name, size_t name_len)
{
    size_t i = find(env, name, name_len);
    return i < env->count ? env->items[i] + name_len + 1 : NULL;
}

static int put_take(kg_env_t *env, char *item_take, size_t name_len)
{
    size_t i = find(env, item_take, name_len);
    if (i < env->count) {
        free(env->items[i]);
        env->items[i] = item_take;
        return 0;
    }
    char **items = realloc(env->items, (env->count + 2) * sizeof(*items));
    if (!items) {
        free(item_take);
        return -ENOMEM;
    }
    items[env->count++] = item_take;
    items[env->count] = NULL;
    env->items = items;
    return 0;
}

int kg_env_set(kg_env_t *env, const char *name, const char *value)
{
    char *item = kg_strdup_printf("%s=%s", name, value);
    return item ? put_take(env, item, strlen(name)) : -ENOMEM;
}

/* Appends value with every ${NAME} replaced; an unknown one becomes nothing. */
static int expand(const kg_env_t *env, const char *value, kg_buf_t *out)
{
    int rc = 0;
    while (*value && !rc) {
        const char *end = kg_str_starts(value, "${") ? strchr(value, '}') : NULL;
        if (!end) {
            rc = kg_buf_append_char(out, *value++);
            continue;
        }
        const char *found = kg_env_get(env, value + 2, (size_t)(end - value - 2));
        rc = found ? kg_buf_append_cstr(out, found) : 0;
        value = end + 1;
    }
    return rc;
}

int kg_env_merge_strings(kg_env_t *env, char *const *items)
{
    for (; items && *items; items++) {
        const char *equals = strchr(*items, '=');
        if (!equals) {
            return -EINVAL;
        }
        KG_AUTO_BUF kg_buf_t item = {0};
        int rc = kg_buf_append(&item, *items, (size_t)(equals - *items) + 1);
        rc = rc ? rc : expand(env, equals + 1, &item);
        char *text = rc ? NULL : kg_buf_steal(&item, NULL);
        if (!text) {
            return rc ? rc : -ENOMEM;
        }
        rc = put_take(env, text, (size_t)(equals - *items));
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int kg_env_merge(kg_env_t *env, const kg_env_t *from)
{
    for (size_t i = 0; i < from->count; i++) {
        char *item = strdup(from->items[i]);
        int rc = item ? put_take(env, item, strcspn(item, "=")) : -ENOMEM;
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int kg_env_merge_json(kg_env_t *env, const json_t *object)
{
    const char *name = NULL;
    json_t *value = NULL;
    /* json_object_foreach takes the object without const; nothing is changed. */
    json_t *walked = (json_t *)(uintptr_t)object;
    json_object_foreach (walked, name, value) {
        int rc = kg_env_set(env, name, json_string_value(value));
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static bool name_ok(const char *name)
{
    if (!*name || (*name >= '0' && *name <= '9')) {
        return false;
    }
    for (; *name; name++) {
        bool ok = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                  *name == '_' || (*name >= '0' && *name <= '9');
        if (!ok) {
            return false;
        }
    }
    return true;
}

int kg_env_check(const json_t *object, const char *pointer, kg_err_t *err)
{
    if (!object || json_is_null(object)) {
        return 0;
    }
    int rc = 0;
    size_t bytes = 0;
    const char *name = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)object;
    if (!json_is_object(object)) {
        rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "env must be an object of strings");
        kg_err_pointer(err, "%s", pointer);
        return rc;
    }
    json_object_foreach (walked, name, value) {
        bytes += strlen(name) + json_string_length(value) + 2;
        if (!name_ok(name)) {
            rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                            "\"%.64s\" is no name of an environment variable (letters, digits, _)",
                            name);
        } else if (!json_is_string(value)) {
            rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "env: the value of %.64s must be a string",
                            name);
        } else if (bytes > KG_ENV_BYTES_MAX) {
            rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "env is larger than %u bytes",
                            KG_ENV_BYTES_MAX);
        }
        if (rc) {
            kg_err_pointer(err, "%s/%.64s", pointer, name);
            return rc;
        }
    }
    return 0;
}
