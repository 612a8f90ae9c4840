/* cli: values of the option table: parsing from text and JSON, dumping, and giving memory back.
 * Rules across options are in config_check.c. */
#include "gateway/cli/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/buf.h"
#include "gateway/base/clock.h"
#include "gateway/base/str.h"

#define CONFIG_FILE_MAX ((size_t)1024 * 1024)

static void *field(kg_config_t *config, const kg_option_t *option)
{
    return (char *)config + option->offset;
}

static const void *field_const(const kg_config_t *config, const kg_option_t *option)
{
    return (const char *)config + option->offset;
}

static void list_clear(kg_strlist_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (kg_strlist_t){0};
}

static int list_add(kg_strlist_t *list, const char *text, size_t len)
{
    KG_AUTO_FREE char *copy = strndup(text, len);
    char **items = copy ? reallocarray(list->items, list->count + 1, sizeof(*items)) : NULL;
    if (!items) {
        return -ENOMEM;
    }
    list->items = items;
    list->items[list->count++] = KG_TAKE(copy);
    return 0;
}

static int list_add_split(kg_strlist_t *list, const char *text)
{
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        if (len > 0) {
            int r = list_add(list, text, len);
            if (r < 0) {
                return r;
            }
        }
        text += len;
        text += *text == ',' ? 1 : 0;
    }
    return 0;
}

static int string_set(char **at, const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        return -ENOMEM;
    }
    free(*at);
    *at = copy;
    return 0;
}

static bool choice_valid(const char *choices, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = choices; *p != '\0';) {
        size_t n = strcspn(p, "|");
        if (n == len && strncmp(p, text, n) == 0) {
            return true;
        }
        p += n;
        p += *p == '|' ? 1 : 0;
    }
    return false;
}

static int parse_bytes(const char *text, uint64_t *ret)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    char digits[32];
    unsigned shift = 0;
    size_t len = strlen(text);
    for (size_t i = 0; i < KG_ARRAY_LEN(units); i++) {
        if (len > 3 && strcmp(text + len - 3, units[i].suffix) == 0) {
            shift = units[i].shift;
            len -= 3;
        }
    }
    if (len >= sizeof(digits)) {
        return -ERANGE;
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    uint64_t value = 0;
    int r = kg_parse_u64(digits, 0, UINT64_MAX >> shift, &value);
    if (r == 0) {
        *ret = value << shift;
    }
    return r;
}

static int range_error(const kg_option_t *option, const char *text, kg_err_t *err)
{
    int r =
        kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is not a number from %llu to %llu%s", option->key,
                   text, (unsigned long long)option->min, (unsigned long long)option->max,
                   option->type == KG_OPTION_BYTES ? " bytes (16MiB, 64KiB, 1GiB work too)" : "");
    return r;
}

static int
set_seconds(kg_config_t *config, const kg_option_t *option, double seconds, kg_err_t *err)
{
    if (!(seconds >= 0 && seconds <= (double)option->max)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: must be 0 to %llu seconds", option->key,
                          (unsigned long long)option->max);
    }
    *(uint64_t *)field(config, option) = (uint64_t)(seconds * (double)KG_NS_PER_S);
    return 0;
}

static int
set_count(kg_config_t *config, const kg_option_t *option, const char *text, kg_err_t *err)
{
    uint64_t value = 0;
    int r = option->type == KG_OPTION_BYTES ? parse_bytes(text, &value)
                                            : kg_parse_u64(text, 0, UINT64_MAX, &value);
    if (r < 0 || value < option->min || value > option->max) {
        return range_error(option, text, err);
    }
    *(uint64_t *)field(config, option) = value;
    return 0;
}

static int set_bool(kg_config_t *config, const kg_option_t *option, const char *text, kg_err_t *err)
{
    bool yes = choice_valid("true|yes|on|1", text);
    if (!yes && !choice_valid("false|no|off|0", text)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is neither true nor false", option->key,
                          text);
    }
    *(bool *)field(config, option) = yes;
    return 0;
}

/* An empty path would be the directory that someone happens to stand in. */
static bool names_path(const kg_option_t *option)
{
    return option->metavar && choice_valid("DIR|FILE|PATH", option->metavar);
}

static int empty_path(const kg_option_t *option, kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_CONFIG, "%s: an empty path", option->key);
}

int kg_config_set_text(
    kg_config_t *config, const kg_option_t *option, const char *text, bool append, kg_err_t *err)
{
    int r = 0;
    double seconds = 0;
    switch (option->type) {
    case KG_OPTION_ENUM:
        if (!choice_valid(option->choices, text)) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is not one of %s", option->key, text,
                              option->choices);
        }
        r = string_set(field(config, option), text);
        break;
    case KG_OPTION_STRING:
        if (*text == '\0' && names_path(option)) {
            return empty_path(option, err);
        }
        r = string_set(field(config, option), text);
        break;
    case KG_OPTION_BOOL:
        return set_bool(config, option, text, err);
    case KG_OPTION_COUNT:
    case KG_OPTION_BYTES:
        return set_count(config, option, text, err);
    case KG_OPTION_SECONDS:
        if (kg_parse_double(text, &seconds) < 0) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is not a number", option->key, text);
        }
        return set_seconds(config, option, seconds, err);
    case KG_OPTION_LIST:
        if (!append) {
            list_clear(field(config, option));
        }
        r = list_add_split(field(config, option), text);
        break;
    }
    return r < 0 ? kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "%s: out of memory", option->key) : 0;
}

int kg_config_init(kg_config_t *config, kg_err_t *err)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < kg_options_count; i++) {
        if (!kg_options[i].preset) {
            continue;
        }
        int r = kg_config_set_text(config, &kg_options[i], kg_options[i].preset, false, err);
        if (r < 0) {
            kg_config_fini(config);
            return r;
        }
    }
    return 0;
}

void kg_config_fini(kg_config_t *config)
{
    for (size_t i = 0; i < kg_options_count; i++) {
        const kg_option_t *option = &kg_options[i];
        if (option->type == KG_OPTION_LIST) {
            list_clear(field(config, option));
        } else if (option->type == KG_OPTION_STRING || option->type == KG_OPTION_ENUM) {
            char **at = field(config, option);
            free(*at);
            *at = NULL;
        }
    }
}

static int
set_json_list(kg_config_t *config, const kg_option_t *option, json_t *value, kg_err_t *err)
{
    kg_strlist_t list = {0};
    size_t i = 0;
    json_t *item = NULL;
    json_array_foreach (value, i, item) {
        if (!json_is_string(item)) {
            list_clear(&list);
            return kg_err_set(err, KG_ERR_CONFIG, "%s: item %zu is not a string", option->key, i);
        }
        if (json_string_length(item) == 0 && names_path(option)) {
            list_clear(&list);
            return empty_path(option, err);
        }
        if (list_add(&list, json_string_value(item), json_string_length(item)) < 0) {
            list_clear(&list);
            return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "%s: out of memory", option->key);
        }
    }
    list_clear(field(config, option));
    *(kg_strlist_t *)field(config, option) = list;
    return 0;
}

static int type_error(const kg_option_t *option, const char *wanted, kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_CONFIG, "%s: must be %s", option->key, wanted);
}

static int set_json(kg_config_t *config, const kg_option_t *option, json_t *value, kg_err_t *err)
{
    char digits[32];
    switch (option->type) {
    case KG_OPTION_STRING:
    case KG_OPTION_ENUM:
        return json_is_string(value)
                   ? kg_config_set_text(config, option, json_string_value(value), false, err)
                   : type_error(option, "a string", err);
    case KG_OPTION_BOOL:
        return json_is_boolean(value)
                   ? set_bool(config, option, json_is_true(value) ? "true" : "false", err)
                   : type_error(option, "true or false", err);
    case KG_OPTION_BYTES:
    case KG_OPTION_COUNT:
        if (option->type == KG_OPTION_BYTES && json_is_string(value)) {
            return set_count(config, option, json_string_value(value), err);
        }
        if (!json_is_integer(value)) {
            return type_error(option, "a whole number", err);
        }
        snprintf(digits, sizeof(digits), "%lld", (long long)json_integer_value(value));
        return set_count(config, option, digits, err);
    case KG_OPTION_SECONDS:
        return json_is_number(value) ? set_seconds(config, option, json_number_value(value), err)
                                     : type_error(option, "a number of seconds", err);
    case KG_OPTION_LIST:
        return json_is_array(value) ? set_json_list(config, option, value, err)
                                    : type_error(option, "a list of strings", err);
    }
    return -EINVAL;
}

/* Is there an option below "PATH."? */
static bool group_exists(const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < kg_options_count; i++) {
        if (strncmp(kg_options[i].key, path, len) == 0 && kg_options[i].key[len] == '.') {
            return true;
        }
    }
    return false;
}

/* seen: by option, what this object has set; a key can be written whole ("a.b") and in its group.
 */
static int load_option(
    kg_config_t *config, const kg_option_t *option, json_t *value, bool *seen, kg_err_t *err)
{
    size_t at = (size_t)(option - kg_options);
    if (seen[at]) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: stands twice", option->key);
    }
    seen[at] = true;
    return set_json(config, option, value, err);
}

static int
load_object(kg_config_t *config, json_t *object, const char *prefix, bool *seen, kg_err_t *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach (object, name, value) {
        char path[128];
        if (kg_format(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "", name) < 0) {
            return kg_err_set(err, KG_ERR_CONFIG, "%.100s: unknown key", name);
        }
        const kg_option_t *option = kg_option_find(path);
        int r = 0;
        if (option) {
            r = load_option(config, option, value, seen, err);
        } else if (*prefix == '\0' && group_exists(path)) {
            r = json_is_object(value)
                    ? load_object(config, value, path, seen, err)
                    : kg_err_set(err, KG_ERR_CONFIG, "%s: must be an object", path);
        } else {
            r = kg_err_set(err, KG_ERR_CONFIG, "%s: unknown key", path);
            kg_err_hint(err, "sandald-config(5) and `sandald serve --help` list the keys");
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int kg_config_load_json(kg_config_t *config, json_t *root, const char *source, kg_err_t *err)
{
    KG_AUTO_FREE bool *seen = calloc(kg_options_count, sizeof(*seen));
    if (!seen) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    int r = json_is_object(root) ? load_object(config, root, "", seen, err)
                                 : kg_err_set(err, KG_ERR_CONFIG, "must hold one JSON object");
    if (r < 0) {
        kg_err_wrap(err, "%s", source);
    }
    return r;
}

int kg_config_load_file(kg_config_t *config, const char *path, kg_err_t *err)
{
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: cannot be read: %s", path,
                          strerrordesc_np(errno));
    }
    if (!S_ISREG(st.st_mode) || (size_t)st.st_size > CONFIG_FILE_MAX) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: not a file of at most 1 MiB", path);
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    if (kg_buf_reserve(&text, (size_t)st.st_size + 1) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    ssize_t n = read(fd, text.data, (size_t)st.st_size);
    if (n < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: cannot be read: %s", path,
                          strerrordesc_np(errno));
    }
    json_error_t where;
    json_t *root = json_loadb(text.data, (size_t)n, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s:%d:%d: %s", path, where.line, where.column,
                          where.text);
    }
    int r = kg_config_load_json(config, root, path, err);
    json_decref(root);
    return r;
}

int kg_config_load_environment(kg_config_t *config, char *const *environment, kg_err_t *err)
{
    for (char *const *entry = environment; *entry; entry++) {
        if (!kg_str_starts(*entry, "SANDAL_")) {
            continue;
        }
        for (size_t i = 0; i < kg_options_count; i++) {
            char name[128];
            kg_option_variable(&kg_options[i], name, sizeof(name));
            size_t len = strlen(name);
            if (strncmp(*entry, name, len) != 0 || (*entry)[len] != '=') {
                continue;
            }
            int r = kg_config_set_text(config, &kg_options[i], *entry + len + 1, false, err);
            if (r < 0) {
                kg_err_wrap(err, "environment variable %s", name);
                return r;
            }
        }
    }
    return 0;
}

static bool variable_known(const char *name)
{
    static const char *const others[] = {"SANDAL_API_KEY", "SANDAL_URL", "SANDAL_CONFIG",
                                         "SANDAL_BUILD", "SANDAL_BUILD_DIR"};
    char known[128];
    for (size_t i = 0; i < KG_ARRAY_LEN(others); i++) {
        if (strcmp(name, others[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < kg_options_count; i++) {
        kg_option_variable(&kg_options[i], known, sizeof(known));
        if (strcmp(name, known) == 0) {
            return true;
        }
    }
    return kg_str_starts(name, "SANDAL_TEST_");
}

const char *kg_config_unknown_variable(char *const *environment, size_t *at, char *ret, size_t cap)
{
    for (; environment[*at]; (*at)++) {
        const char *entry = environment[*at];
        if (kg_str_starts(entry, "SANDAL_")) {
            snprintf(ret, cap, "%.*s", (int)strcspn(entry, "="), entry);
            if (!variable_known(ret)) {
                (*at)++;
                return ret;
            }
        }
    }
    return NULL;
}

static json_t *dump_list(const kg_strlist_t *list)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < list->count; i++) {
        json_array_append_new(array, json_string(list->items[i]));
    }
    return array;
}

static json_t *dump_value(const kg_config_t *config, const kg_option_t *option)
{
    const void *at = field_const(config, option);
    switch (option->type) {
    case KG_OPTION_STRING:
    case KG_OPTION_ENUM: {
        const char *text = *(char *const *)at;
        return text ? json_string(text) : NULL;
    }
    case KG_OPTION_BOOL:
        return json_boolean(*(const bool *)at);
    case KG_OPTION_COUNT:
    case KG_OPTION_BYTES:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case KG_OPTION_SECONDS:
        return json_real((double)*(const uint64_t *)at / (double)KG_NS_PER_S);
    case KG_OPTION_LIST:
        return dump_list(at);
    }
    return NULL;
}

json_t *kg_config_dump(const kg_config_t *config)
{
    json_t *root = json_object();
    for (size_t i = 0; root && i < kg_options_count; i++) {
        json_t *value = dump_value(config, &kg_options[i]);
        if (!value) {
            continue;
        }
        const char *dot = strchr(kg_options[i].key, '.');
        if (!dot) {
            json_object_set_new(root, kg_options[i].key, value);
            continue;
        }
        char group[64];
        snprintf(group, sizeof(group), "%.*s", (int)(dot - kg_options[i].key), kg_options[i].key);
        json_t *object = json_object_get(root, group);
        if (!object) {
            object = json_object();
            json_object_set_new(root, group, object);
        }
        json_object_set_new(object, dot + 1, value);
    }
    return root;
}
