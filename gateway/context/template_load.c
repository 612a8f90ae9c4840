/* gateway/context: reading template.json and its kernelspecs. Strict: an unknown key, a wrong type
 * or a missing file is an error that names the file and the key. Files are small and read at start
 * only. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"
#include "gateway/context/template_internal.h"

#define ROOTFS_MAX 200

enum {
    TEXT_MAX = 65536,
    STRINGS_MAX = 64, /* aliases, richness */
    LIMIT_MAX = 1 << 24,
};

static void free_strings(char ***strings)
{
    for (char **s = *strings; s && *s; s++) {
        free(*s);
    }
    free(*strings);
    *strings = NULL;
}

void kg_template_destroy(kg_template_t **tpl)
{
    kg_template_t *t = *tpl;
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->language_count; i++) {
        free(t->languages[i].name);
        free_strings(&t->languages[i].aliases);
        kg_kernelspec_destroy(&t->languages[i].spec);
        free_strings(&t->languages[i].zygote);
    }
    free(t->languages);
    free(t->name);
    free(t->description);
    free(t->main_language);
    free(t->dir);
    free(t->prefix);
    free(t->prefix_asked);
    free(t->prefix_user);
    free(t->rootfs);
    free(t->home_skel);
    free_strings(&t->richness);
    free_strings(&t->cold_env);
    free(t->warm_up);
    kg_env_fini(&t->env);
    free(t);
    *tpl = NULL;
}

static int oom(kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
}

static int dup_string(const char *value, char **ret, kg_err_t *err)
{
    *ret = strdup(value);
    return *ret ? 0 : oom(err);
}

int kg_template_read_file(const char *dir, const char *name, kg_buf_t *out, kg_err_t *err)
{
    char path[KG_SBX_PATH_MAX * 2];
    if (kg_format(path, sizeof(path), "%s/%s", dir, name)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: path too long", dir);
    }
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
    }
    if (kg_buf_reserve(out, TEXT_MAX + 1)) {
        return oom(err);
    }
    char chunk[4096];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
        }
        if (n == 0) {
            return 0;
        }
        if (out->len + (size_t)n > TEXT_MAX) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: larger than %d bytes", path, TEXT_MAX);
        }
        if (kg_buf_append(out, chunk, (size_t)n)) {
            return oom(err);
        }
    }
}

/* ---- values ---- */

/* Tells what is wrong where somebody listens, and reading goes on without it (0); else it is the
 * error that ends the reading. The text names the pointer. */
static int fault(kg_tpl_faults_t *faults, const char *pointer, const char *fmt, ...)
    KG_PRINTF(3, 4);

static int fault(kg_tpl_faults_t *faults, const char *pointer, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    faults->count++;
    if (faults->fn) {
        faults->fn(faults->user, true, text);
        return 0;
    }
    int rc = kg_err_set(faults->err, KG_ERR_CONFIG, "%s", text);
    kg_err_pointer(faults->err, "%s", pointer);
    return rc;
}

static int wrong(kg_tpl_faults_t *faults, const char *pointer, const char *must)
{
    return fault(faults, pointer, "%s must be %s", pointer, must);
}

static int
check_keys(json_t *object, const char *pointer, const char *const *known, kg_tpl_faults_t *faults)
{
    if (!json_is_object(object)) {
        return wrong(faults, *pointer ? pointer : "the file", "an object");
    }
    const char *key = NULL;
    json_t *value = NULL;
    int rc = 0;
    json_object_foreach (object, key, value) {
        char at[160];
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) {
            k++;
        }
        if (!*k && !rc) {
            (void)kg_format(at, sizeof(at), "%s/%.64s", pointer, key);
            rc = fault(faults, at, "unknown key %s", at);
        }
    }
    return rc;
}

static int
get_string(json_t *object, const char *key, bool required, char **ret, kg_tpl_faults_t *faults)
{
    json_t *value = json_object_get(object, key);
    if (!value && !required) {
        return 0;
    }
    if (!json_is_string(value) || json_string_length(value) == 0) {
        char pointer[80];
        (void)kg_format(pointer, sizeof(pointer), "/%s", key);
        return wrong(faults, pointer, "a string that isn't empty");
    }
    return dup_string(json_string_value(value), ret, faults->err);
}

static int get_bool(json_t *object, const char *key, bool *ret, kg_tpl_faults_t *faults)
{
    json_t *value = json_object_get(object, key);
    if (!value) {
        return 0;
    }
    if (!json_is_boolean(value)) {
        char pointer[80];
        (void)kg_format(pointer, sizeof(pointer), "/%s", key);
        return wrong(faults, pointer, "true or false");
    }
    *ret = json_is_true(value);
    return 0;
}

static int get_strings(json_t *value, const char *pointer, char ***ret, kg_tpl_faults_t *faults)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count > STRINGS_MAX) {
        return wrong(faults, pointer, "an array of strings");
    }
    char **strings = calloc(count + 1, sizeof(*strings));
    if (!strings) {
        return oom(faults->err);
    }
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_array_get(value, i);
        bool good = json_is_string(item);
        int rc = good ? dup_string(json_string_value(item), &strings[i], faults->err)
                      : wrong(faults, pointer, "an array of strings");
        if (rc || !good) {
            free_strings(&strings);
            return rc;
        }
    }
    *ret = strings;
    return 0;
}

static int get_count(json_t *object,
                     const char *parent,
                     const char *key,
                     uint64_t max,
                     uint64_t *ret,
                     kg_tpl_faults_t *faults)
{
    json_t *value = json_object_get(object, key);
    if (!value) {
        return 0;
    }
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n <= 0 || (uint64_t)n > max) {
        char pointer[80];
        (void)kg_format(pointer, sizeof(pointer), "%s/%s", parent, key);
        return wrong(faults, pointer, "a whole number above 0");
    }
    *ret = (uint64_t)n;
    return 0;
}

/* {prefix} and {template_dir} in text, replaced. */
static int substitute(const kg_template_t *t, const char *text, char **ret, kg_err_t *err)
{
    static const char prefix_word[] = "{prefix}";
    static const char dir_word[] = "{template_dir}";
    KG_AUTO_BUF kg_buf_t out = {0};
    int rc = kg_buf_append_cstr(&out, "");
    while (*text && !rc) {
        if (kg_str_starts(text, prefix_word)) {
            rc = kg_buf_append_cstr(&out, t->prefix ? t->prefix
                                                    : (t->prefix_asked ? t->prefix_asked : ""));
            text += sizeof(prefix_word) - 1;
        } else if (kg_str_starts(text, dir_word)) {
            rc = kg_buf_append_cstr(&out, t->dir);
            text += sizeof(dir_word) - 1;
        } else {
            rc = kg_buf_append_char(&out, *text++);
        }
    }
    *ret = rc ? NULL : kg_buf_steal(&out, NULL);
    return *ret ? 0 : oom(err);
}

static int substitute_all(const kg_template_t *t, char **strings, kg_err_t *err)
{
    for (char **s = strings; s && *s; s++) {
        char *fresh = NULL;
        int rc = substitute(t, *s, &fresh, err);
        if (rc) {
            return rc;
        }
        free(*s);
        *s = fresh;
    }
    return 0;
}

/* ---- the parts of a template ---- */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* "host", or a directory without steps back. */
static int load_rootfs(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    int rc = get_string(json, "rootfs", false, &t->rootfs, faults);
    if (rc) {
        return rc;
    }
    if (!t->rootfs) {
        return dup_string("host", &t->rootfs, faults->err);
    }
    size_t len = strlen(t->rootfs);
    if (len == 0 || len > ROOTFS_MAX || strstr(t->rootfs, "..") || strchr(t->rootfs, ':') ||
        strcmp(t->rootfs, "/") == 0) {
        return wrong(faults, "/rootfs", "\"host\" or a directory");
    }
    return 0;
}

bool kg_template_on_host(const kg_template_t *t)
{
    return strcmp(t->rootfs, "host") == 0;
}

static int
load_prefix(kg_template_t *t, json_t *json, const char *data_home, kg_tpl_faults_t *faults)
{
    KG_AUTO_FREE char *user = NULL;
    int rc = get_string(json, "prefix", false, &t->prefix_asked, faults);
    rc = rc ? rc : get_string(json, "prefix_user", false, &user, faults);
    if (rc || !t->prefix_asked) {
        t->built = !rc;
        return rc;
    }
    if (t->prefix_asked[0] != '/') {
        t->built = true; /* as far as can be told */
        return wrong(faults, "/prefix", "an absolute path");
    }
    if (user && data_home) {
        t->prefix_user = kg_strdup_printf("%s/%s", data_home, user);
        if (!t->prefix_user) {
            return oom(faults->err);
        }
    }
    if (!kg_template_on_host(t) ||
        is_dir(t->prefix_asked)) { /* else it lies in the template's own root */
        t->built = true;
        return dup_string(t->prefix_asked, &t->prefix, faults->err);
    }
    if (t->prefix_user && is_dir(t->prefix_user)) {
        t->built = true;
        return dup_string(t->prefix_user, &t->prefix, faults->err);
    }
    return 0;
}

static int env_fault(kg_tpl_faults_t *faults, const kg_err_t *err)
{
    bool named = strstr(err->message, err->pointer) != NULL;
    return fault(faults, err->pointer, "%s%s%s", named ? "" : err->pointer, named ? "" : ": ",
                 err->message);
}

/* Each entry by itself, so that all that is wrong is told. */
static int check_env(const json_t *object, kg_tpl_faults_t *faults)
{
    kg_err_t err = {0};
    int rc = 0;
    bool told = false;
    const char *name = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)object;
    if (!kg_env_check(object, "/env", &err)) {
        return 0;
    }
    json_object_foreach (walked, name, value) {
        KG_AUTO(json_decrefp) json_t *one = json_object();
        kg_err_t why = {0};
        if (json_object_set(one, name, value)) {
            return oom(faults->err);
        }
        if (!rc && kg_env_check(one, "/env", &why)) {
            rc = env_fault(faults, &why);
            told = true;
        }
    }
    return told ? rc : env_fault(faults, &err);
}

static int load_env(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    json_t *object = json_object_get(json, "env");
    unsigned before = faults->count;
    int rc = check_env(object, faults);
    if (rc || faults->count > before) {
        return rc;
    }
    if (kg_env_merge_json(&t->env, object)) {
        return oom(faults->err);
    }
    return substitute_all(t, t->env.items, faults->err);
}

static int load_limits(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    static const char *const keys[] = {"memory_mib", "cpus",       "pids",
                                       "disk_mib",   "open_files", NULL};
    json_t *limits = json_object_get(json, "limits");
    t->open_files = KG_TEMPLATE_OPEN_FILES;
    if (!limits) {
        return 0;
    }
    uint64_t memory = 0;
    uint64_t pids = 0;
    uint64_t disk = 0;
    uint64_t files = t->open_files;
    json_t *cpus = json_object_get(limits, "cpus");
    int rc = check_keys(limits, "/limits", keys, faults);
    rc = rc ? rc : get_count(limits, "/limits", "memory_mib", LIMIT_MAX, &memory, faults);
    rc = rc ? rc : get_count(limits, "/limits", "pids", LIMIT_MAX, &pids, faults);
    rc = rc ? rc : get_count(limits, "/limits", "disk_mib", LIMIT_MAX, &disk, faults);
    rc = rc ? rc : get_count(limits, "/limits", "open_files", LIMIT_MAX, &files, faults);
    if (!rc && cpus && (!json_is_number(cpus) || json_number_value(cpus) <= 0)) {
        rc = wrong(faults, "/limits/cpus", "a number above 0");
    }
    t->memory_mib = (unsigned)memory;
    t->pids = (unsigned)pids;
    t->disk_mib = (unsigned)disk;
    t->open_files = (unsigned)files;
    t->cpus = json_number_value(cpus);
    return rc;
}

static int load_run_limits(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    static const char *const keys[] = {"output_bytes", "result_bytes", "events", "on_exceed", NULL};
    static const char parent[] = "/run_limits";
    json_t *limits = json_object_get(json, "run_limits");
    if (!limits) {
        return 0;
    }
    json_t *exceed = json_object_get(limits, "on_exceed");
    int rc = check_keys(limits, parent, keys, faults);
    rc = rc ? rc : get_count(limits, parent, "output_bytes", INT64_MAX, &t->output_bytes, faults);
    rc = rc ? rc : get_count(limits, parent, "result_bytes", INT64_MAX, &t->result_bytes, faults);
    rc = rc ? rc : get_count(limits, parent, "events", INT64_MAX, &t->events, faults);
    if (rc || !exceed) {
        return rc;
    }
    const char *word = json_string_value(exceed);
    if (!word || (strcmp(word, "truncate") != 0 && strcmp(word, "stop") != 0)) {
        return wrong(faults, "/run_limits/on_exceed", "\"truncate\" or \"stop\"");
    }
    t->stop_on_exceed = strcmp(word, "stop") == 0;
    return 0;
}

/* min and max of a pool; parent is where they are. */
static int
load_size(json_t *object, const char *parent, kg_pool_opts_t *ret, kg_tpl_faults_t *faults)
{
    json_t *min_json = json_object_get(object, "min");
    uint64_t min = 0;
    uint64_t max = 0;
    bool zero = json_is_integer(min_json) && json_integer_value(min_json) == 0;
    unsigned before = faults->count;
    int rc = zero ? 0 : get_count(object, parent, "min", KG_POOL_SIZE_MAX, &min, faults);
    rc = rc ? rc : get_count(object, parent, "max", KG_POOL_SIZE_MAX, &max, faults);
    if (!rc && faults->count == before && (!max || max < min)) {
        char pointer[80];
        (void)kg_format(pointer, sizeof(pointer), "%s/max", parent);
        rc = wrong(faults, pointer, "there, and min or more");
    }
    ret->min = (unsigned)min;
    ret->max = (unsigned)max;
    return rc;
}

/* Members start as the template says, and beside them so many of the other kind as "spawn" or
 * "zygote" say. */
static int load_pool(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    static const char *const sizes[] = {"min", "max", NULL};
    kg_start_kind_t other = t->start == KG_START_SPAWN ? KG_START_ZYGOTE : KG_START_SPAWN;
    const char *word = kg_start_kind_name(other);
    const char *const keys[] = {"min", "max", "refill_per_minute", "memory_mib", "max_age_s",
                                word,  NULL};
    char inner[32];
    json_t *pool = json_object_get(json, "pool");
    json_t *beside = json_object_get(pool, word);
    uint64_t refill = 60;
    uint64_t memory = 0;
    uint64_t age = 3600;
    (void)kg_format(inner, sizeof(inner), "/pool/%s", word);
    int rc = pool ? check_keys(pool, "/pool", keys, faults) : 0;
    rc = rc ? rc
            : get_count(pool, "/pool", "refill_per_minute", KG_POOL_REFILL_MAX, &refill, faults);
    rc = rc ? rc : get_count(pool, "/pool", "memory_mib", LIMIT_MAX, &memory, faults);
    rc = rc ? rc : get_count(pool, "/pool", "max_age_s", INT32_MAX, &age, faults);
    for (size_t i = 0; i < KG_START_KINDS; i++) {
        t->pools[i] = (kg_pool_opts_t){
            .refill_per_minute = (unsigned)refill,
            .memory_mib = (unsigned)memory,
            .max_age_s = (unsigned)age,
        };
    }
    rc = rc || !pool ? rc : load_size(pool, "/pool", &t->pools[t->start], faults);
    rc = rc || !beside ? rc : check_keys(beside, inner, sizes, faults);
    return rc || !beside ? rc : load_size(beside, inner, &t->pools[other], faults);
}

static int
load_kernel(kg_template_t *t, const char *file, kg_tpl_language_t *lang, kg_tpl_faults_t *faults)
{
    char pointer[96];
    (void)kg_format(pointer, sizeof(pointer), "/languages/%s/kernel", lang->name);
    if (strchr(file, '/')) {
        return wrong(faults, pointer, "a file beside template.json");
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    /* Named as its template where that has one kernel; with more, each carries its language too. */
    bool is_main = t->main_language && strcmp(lang->name, t->main_language) == 0;
    KG_AUTO_FREE char *name = is_main
                                  ? strdup(t->name ? t->name : "")
                                  : kg_strdup_printf("%s-%s", t->name ? t->name : "", lang->name);
    kg_err_t err = {0};
    if (!name) {
        return oom(faults->err);
    }
    int rc = kg_template_read_file(t->dir, file, &text, &err);
    rc = rc ? rc : kg_kernelspec_parse(name, kg_buf_slice(&text), &lang->spec, &err);
    if (rc) {
        return fault(faults, pointer, "%s: %s%s%s: %s", pointer, file, err.pointer[0] ? " " : "",
                     err.pointer, err.message);
    }
    rc = substitute_all(t, lang->spec->argv, faults->err);
    return rc ? rc : substitute_all(t, lang->spec->env, faults->err);
}

static int load_zygote(kg_template_t *t,
                       json_t *json,
                       const char *language,
                       kg_tpl_language_t *lang,
                       kg_tpl_faults_t *faults)
{
    char pointer[96];
    json_t *argv = json_object_get(json, "zygote");
    if (!argv) {
        return 0;
    }
    (void)kg_format(pointer, sizeof(pointer), "%s/zygote", language);
    int rc = get_strings(argv, pointer, &lang->zygote, faults);
    if (rc || !lang->zygote) {
        return rc;
    }
    if (!lang->zygote[0] || !lang->zygote[0][0]) {
        rc = wrong(faults, pointer, "an array that begins with a program");
    }
    return rc ? rc : substitute_all(t, lang->zygote, faults->err);
}

static int load_language(kg_template_t *t, const char *name, json_t *json, kg_tpl_faults_t *faults)
{
    static const char *const keys[] = {"kernel", "aliases", "zygote", NULL};
    char pointer[80];
    char sub[96];
    if (kg_format(pointer, sizeof(pointer), "/languages/%s", name) || strchr(name, '/')) {
        return fault(faults, "/languages", "/languages: bad name");
    }
    (void)kg_format(sub, sizeof(sub), "%s/aliases", pointer);
    int rc = check_keys(json, pointer, keys, faults);
    if (rc) {
        return rc;
    }
    kg_tpl_language_t *lang = &t->languages[t->language_count++];
    json_t *aliases = json_object_get(json, "aliases");
    const char *file = json_string_value(json_object_get(json, "kernel"));
    rc = dup_string(name, &lang->name, faults->err);
    if (rc || !lang->name) {
        return rc;
    }
    if (aliases) {
        rc = get_strings(aliases, sub, &lang->aliases, faults);
    }
    rc = rc ? rc : load_zygote(t, json, pointer, lang, faults);
    if (!rc && !file) {
        (void)kg_format(sub, sizeof(sub), "%s/kernel", pointer);
        rc = wrong(faults, sub, "a file's name");
    }
    return rc || !file ? rc : load_kernel(t, file, lang, faults);
}

static int load_languages(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    json_t *languages = json_object_get(json, "languages");
    if (!json_is_object(languages)) {
        return wrong(faults, "/languages", "an object");
    }
    size_t count = json_object_size(languages);
    t->languages = calloc(count ? count : 1, sizeof(*t->languages));
    if (!t->languages) {
        return oom(faults->err);
    }
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach (languages, name, value) {
        int rc = load_language(t, name, value, faults);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* A word of a later version is refused, not half obeyed. */
static int load_start(kg_template_t *t, json_t *json, kg_tpl_faults_t *faults)
{
    json_t *value = json_object_get(json, "start");
    const char *word = json_string_value(value);
    t->start = kg_start_kind_of(word);
    if (value && (!word || strcmp(word, kg_start_kind_name(t->start)) != 0)) {
        return wrong(faults, "/start", "\"spawn\" or \"zygote\"");
    }
    return 0;
}

static int
load_parts(kg_template_t *t, json_t *json, const char *data_home, kg_tpl_faults_t *faults)
{
    static const char *const keys[] = {"name",      "description", "hidden",      "main_language",
                                       "languages", "prefix",      "prefix_user", "home_skel",
                                       "rootfs",    "env",         "limits",      "run_limits",
                                       "start",     "debugger",    "richness",    "pool",
                                       "warm_up",   "cold_env",    NULL};
    KG_AUTO_FREE char *skel = NULL;
    json_t *richness = json_object_get(json, "richness");
    json_t *cold = json_object_get(json, "cold_env");
    t->debugger = true;
    int rc = check_keys(json, "", keys, faults);
    rc = rc ? rc : get_string(json, "name", true, &t->name, faults);
    rc = rc ? rc : get_string(json, "description", true, &t->description, faults);
    rc = rc ? rc : get_string(json, "main_language", true, &t->main_language, faults);
    rc = rc ? rc : get_string(json, "home_skel", false, &skel, faults);
    rc = rc ? rc : get_bool(json, "hidden", &t->hidden, faults);
    rc = rc ? rc : get_bool(json, "debugger", &t->debugger, faults);
    rc = rc ? rc : load_rootfs(t, json, faults);
    rc = rc ? rc : load_start(t, json, faults);
    rc = rc ? rc : load_prefix(t, json, data_home, faults);
    rc = rc ? rc : load_env(t, json, faults);
    rc = rc ? rc : load_limits(t, json, faults);
    rc = rc ? rc : load_run_limits(t, json, faults);
    rc = rc ? rc : load_pool(t, json, faults);
    rc = rc ? rc : get_string(json, "warm_up", false, &t->warm_up, faults);
    rc = rc || !cold ? rc : get_strings(cold, "/cold_env", &t->cold_env, faults);
    rc = rc || !richness ? rc : get_strings(richness, "/richness", &t->richness, faults);
    rc = rc || !skel ? rc : substitute(t, skel, &t->home_skel, faults->err);
    return rc ? rc : load_languages(t, json, faults);
}

static int parse_json(const kg_buf_t *text, json_t **ret, kg_err_t *err)
{
    json_error_t at;
    *ret = json_loadb(text->data, text->len, JSON_REJECT_DUPLICATES, &at);
    if (!*ret) {
        return kg_err_set(err, KG_ERR_CONFIG, "line %d, column %d: %s", at.line, at.column,
                          at.text);
    }
    return 0;
}

static int load_name(const kg_template_t *t, kg_tpl_faults_t *faults)
{
    const char *folder = strrchr(t->dir, '/');
    bool good = !t->name ||
                (strcmp(t->name, folder ? folder + 1 : t->dir) == 0 && kg_name_valid(t->name, 63));
    return good ? 0 : wrong(faults, "/name", "the folder's name, of a-z, 0-9 and -");
}

int kg_template_read(const char *dir,
                     const char *data_home,
                     kg_tpl_faults_t *faults,
                     kg_template_t **ret_tpl)
{
    KG_AUTO(kg_template_destroy) kg_template_t *t = calloc(1, sizeof(*t));
    KG_AUTO(json_decrefp) json_t *json = NULL;
    KG_AUTO_BUF kg_buf_t text = {0};
    if (!t) {
        return oom(faults->err);
    }
    int rc = dup_string(dir, &t->dir, faults->err);
    rc = rc ? rc : kg_template_read_file(dir, "template.json", &text, faults->err);
    if (rc) {
        return rc;
    }
    rc = parse_json(&text, &json, faults->err);
    rc = rc ? rc : load_parts(t, json, data_home, faults);
    rc = rc ? rc : load_name(t, faults);
    if (rc) {
        (void)kg_err_wrap(faults->err, "%s/template.json", dir);
        return rc;
    }
    *ret_tpl = KG_TAKE(t);
    return 0;
}

int kg_template_load(const char *dir, const char *data_home, kg_template_t **ret_tpl, kg_err_t *err)
{
    kg_tpl_faults_t faults = {.err = err};
    return kg_template_read(dir, data_home, &faults, ret_tpl);
}

int kg_templates_append_take(kg_templates_t *list, kg_template_t *tpl_take, kg_err_t *err)
{
    kg_template_t **items = realloc(list->items, (list->count + 1) * sizeof(kg_template_t *));
    if (!items) {
        kg_template_destroy(&tpl_take);
        return oom(err);
    }
    list->items = items;
    items[list->count++] = tpl_take;
    return 0;
}

int kg_templates_each(kg_templates_t *list,
                      const char *dir,
                      const char *file,
                      kg_template_folder_fn *load,
                      void *user,
                      kg_err_t *err)
{
    KG_AUTO_FREE char *real = realpath(dir, NULL);
    struct dirent **names = NULL;
    int count = real ? scandir(real, &names, NULL, alphasort) : -1;
    if (count < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "template directory %s: %s", dir,
                          strerrordesc_np(errno));
    }
    int rc = 0;
    for (int i = 0; i < count; i++) {
        char path[KG_SBX_PATH_MAX * 2];
        char inner[KG_SBX_PATH_MAX * 2];
        if (!rc && names[i]->d_name[0] != '.') {
            rc = kg_format(path, sizeof(path), "%s/%s", real, names[i]->d_name) ||
                         kg_format(inner, sizeof(inner), "%s/%s", path, file)
                     ? kg_err_set(err, KG_ERR_CONFIG, "%s/%.64s: path too long", dir,
                                  names[i]->d_name)
                     : 0;
            rc = rc || access(inner, F_OK) != 0 ? rc : load(list, path, user, err);
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

static int load_folder(kg_templates_t *list, const char *folder, void *user, kg_err_t *err)
{
    const char *const *data_home = user;
    if (kg_templates_find(list, strrchr(folder, '/') + 1)) {
        return 0;
    }
    kg_template_t *tpl = NULL;
    int rc = kg_template_load(folder, *data_home, &tpl, err);
    return rc ? rc : kg_templates_append_take(list, tpl, err);
}

int kg_templates_load_dir(kg_templates_t *list,
                          const char *dir,
                          const char *data_home,
                          kg_err_t *err)
{
    return kg_templates_each(list, dir, "template.json", load_folder, &data_home, err);
}

int kg_templates_load(kg_templates_t *list, const kg_template_sources_t *sources, kg_err_t *err)
{
    int rc = 0;
    for (size_t i = 0; i < sources->dir_count && !rc; i++) {
        rc = kg_templates_load_dir(list, sources->dirs[i], sources->data_home, err);
    }
    for (size_t i = 0; i < sources->kernelspec_dir_count && !rc; i++) {
        rc = kg_templates_load_kernelspecs(list, sources->kernelspec_dirs[i], err);
    }
    return rc;
}

void kg_templates_fini(kg_templates_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        kg_template_destroy(&list->items[i]);
    }
    free(list->items);
    *list = (kg_templates_t){0};
}
