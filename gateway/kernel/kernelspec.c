/* Reads kernel.json, as Jupyter has it, into plain data. A small trusted file of an operator's
 * template, but checked: what it says becomes an argument vector. */
#include "gateway/kernel/kernelspec.h"

#include <errno.h>
#include <jansson.h>

#include "gateway/base/str.h"

static void strv_free(char **v)
{
    for (char **p = v; p && *p; p++) {
        free(*p);
    }
    free(v);
}

void kg_kernelspec_destroy(kg_kernelspec_t **spec)
{
    kg_kernelspec_t *s = *spec;
    if (!s) {
        return;
    }
    free(s->name);
    free(s->display_name);
    free(s->language);
    strv_free(s->argv);
    strv_free(s->env);
    free(s->metadata);
    free(s);
    *spec = NULL;
}

/* Copy of a JSON string that can be a C string. */
static int text_of(const json_t *value, const char *pointer, char **ret, kg_err_t *err)
{
    if (!json_is_string(value)) {
        kg_err_set(err, KG_ERR_CONFIG, "must be a string");
        kg_err_pointer(err, "%s", pointer);
        return -EINVAL;
    }
    const char *s = json_string_value(value);
    *ret = strdup(s);
    return *ret ? 0 : -ENOMEM;
}

static int optional_text(const json_t *root, const char *key, char **ret, kg_err_t *err)
{
    const json_t *value = json_object_get(root, key);
    if (!value) {
        *ret = strdup("");
        return *ret ? 0 : -ENOMEM;
    }
    char pointer[64];
    (void)kg_format(pointer, sizeof(pointer), "/%s", key);
    return text_of(value, pointer, ret, err);
}

static int read_argv(const json_t *root, kg_kernelspec_t *spec, kg_err_t *err)
{
    const json_t *list = json_object_get(root, "argv");
    size_t n = json_array_size(list);
    if (n == 0 || n > KG_KERNELSPEC_ARGS_MAX) {
        kg_err_set(err, KG_ERR_CONFIG, "argv must be an array of 1 to %d strings",
                   KG_KERNELSPEC_ARGS_MAX);
        kg_err_pointer(err, "/argv");
        return -EINVAL;
    }
    spec->argv = calloc(n + 1, sizeof(char *));
    if (!spec->argv) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        char pointer[32];
        (void)kg_format(pointer, sizeof(pointer), "/argv/%zu", i);
        int rc = text_of(json_array_get(list, i), pointer, &spec->argv[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_env(json_t *root, kg_kernelspec_t *spec, kg_err_t *err)
{
    json_t *env = json_object_get(root, "env");
    size_t n = json_object_size(env);
    if ((env && !json_is_object(env)) || n > KG_KERNELSPEC_ARGS_MAX) {
        kg_err_set(err, KG_ERR_CONFIG, "env must be an object of at most %d strings",
                   KG_KERNELSPEC_ARGS_MAX);
        kg_err_pointer(err, "/env");
        return -EINVAL;
    }
    spec->env = calloc(n + 1, sizeof(char *));
    if (!spec->env) {
        return -ENOMEM;
    }
    size_t i = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach (env, key, value) {
        if (!json_is_string(value) || !*key || strchr(key, '=')) {
            kg_err_set(err, KG_ERR_CONFIG, "env: names without \"=\" and string values only");
            kg_err_pointer(err, "/env/%s", key);
            return -EINVAL;
        }
        spec->env[i] = kg_strdup_printf("%s=%s", key, json_string_value(value));
        if (!spec->env[i++]) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int read_interrupt_mode(const json_t *root, kg_kernelspec_t *spec, kg_err_t *err)
{
    const json_t *mode = json_object_get(root, "interrupt_mode");
    const char *text = mode ? json_string_value(mode) : "signal";
    if (text && strcmp(text, "signal") == 0) {
        spec->interrupt_mode = KG_INTERRUPT_SIGNAL;
        return 0;
    }
    if (text && strcmp(text, "message") == 0) {
        spec->interrupt_mode = KG_INTERRUPT_MESSAGE;
        return 0;
    }
    kg_err_set(err, KG_ERR_CONFIG, "interrupt_mode must be \"signal\" or \"message\"");
    kg_err_pointer(err, "/interrupt_mode");
    return -EINVAL;
}

static int read_metadata(const json_t *root, kg_kernelspec_t *spec, kg_err_t *err)
{
    const json_t *metadata = json_object_get(root, "metadata");
    if (metadata && !json_is_object(metadata)) {
        kg_err_set(err, KG_ERR_CONFIG, "metadata must be an object");
        kg_err_pointer(err, "/metadata");
        return -EINVAL;
    }
    spec->metadata = metadata ? json_dumps(metadata, JSON_COMPACT) : strdup("{}");
    const json_t *ours = json_object_get(metadata, "sandal");
    spec->has_context = json_is_true(json_object_get(ours, "context"));
    spec->plain_output = json_is_true(json_object_get(ours, "plain_output"));
    return spec->metadata ? 0 : -ENOMEM;
}

static int read_all(json_t *root, const char *name, kg_kernelspec_t *spec, kg_err_t *err)
{
    spec->name = strdup(name);
    if (!spec->name) {
        return -ENOMEM;
    }
    int rc = optional_text(root, "display_name", &spec->display_name, err);
    if (rc == 0) {
        rc = optional_text(root, "language", &spec->language, err);
    }
    if (rc == 0) {
        rc = read_argv(root, spec, err);
    }
    if (rc == 0) {
        rc = read_env(root, spec, err);
    }
    if (rc == 0) {
        rc = read_interrupt_mode(root, spec, err);
    }
    return rc == 0 ? read_metadata(root, spec, err) : rc;
}

int kg_kernelspec_parse(const char *name,
                        kg_slice_t text,
                        kg_kernelspec_t **ret_spec,
                        kg_err_t *err)
{
    if (text.len > KG_KERNELSPEC_TEXT_MAX) {
        return kg_err_set(err, KG_ERR_CONFIG, "kernel.json is larger than %d bytes",
                          KG_KERNELSPEC_TEXT_MAX);
    }
    json_error_t why;
    json_t *root = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        int rc =
            root ? kg_err_set(err, KG_ERR_CONFIG, "kernel.json must be an object")
                 : kg_err_set(err, KG_ERR_CONFIG, "kernel.json, line %d: %s", why.line, why.text);
        json_decref(root);
        return rc;
    }
    kg_kernelspec_t *spec = calloc(1, sizeof(*spec));
    int rc = spec ? read_all(root, name, spec, err) : -ENOMEM;
    json_decref(root);
    if (rc < 0) {
        if (spec) {
            kg_kernelspec_destroy(&spec);
        }
        return rc == -ENOMEM ? kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory") : rc;
    }
    *ret_spec = spec;
    return 0;
}
