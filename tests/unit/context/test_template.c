/* Templates: the shipped ones load; every mistake is named with its file and key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/context/template_internal.h"
#include "gateway/context/warm.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    char *dir = strdup("/tmp/kg-tpl-XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    (void)nftw(*state, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

static void put(const char *dir, const char *tpl, const char *file, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, tpl);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", dir, tpl, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static const char kernel[] =
    "{\"argv\":[\"{prefix}/bin/k\",\"{connection_file}\"],\"display_name\":\"K\","
    "\"language\":\"x\",\"env\":{\"D\":\"{template_dir}/s\"}}";

static void shipped_templates_load(void **state)
{
    (void)state;
    kg_templates_t list = {0};
    kg_err_t err = {0};
    if (kg_templates_load_dir(&list, TEST_KERNELSPECS, NULL, &err)) {
        fail_msg("%s", err.message);
    }
    const kg_template_t *base = kg_templates_find(&list, "base");
    const kg_template_t *python = kg_templates_find(&list, "code-interpreter-python");
    assert_non_null(base);
    assert_non_null(python);
    assert_int_equal(0, (int)base->language_count);
    assert_string_equal("python", python->main_language);
    assert_string_equal("code-interpreter-python", python->languages[0].spec->name);
    assert_null(strstr(python->languages[0].spec->argv[0], "{prefix}"));
    assert_null(strstr(kg_env_get(&python->env, "PATH", 4), "{prefix}"));
    kg_templates_fini(&list);
}

#define WITH(more)                                                                                 \
    "{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{}," more "}"

static kg_pool_opts_t pool_of(const char *dir, const char *json, kg_templates_t *list)
{
    kg_err_t err = {0};
    put(dir, "t", "template.json", json);
    if (kg_templates_load_dir(list, dir, NULL, &err)) {
        fail_msg("%s", err.message);
    }
    return list->items[0]->pools[list->items[0]->start];
}

static void pool_holds_both_kinds(void **state)
{
    const char *dir = *state;
    kg_templates_t list = {0};
    kg_pool_opts_t p = pool_of(dir,
                               WITH("\"pool\":{\"min\":1,\"max\":2,\"max_age_s\":4,\"zygote\":"
                                    "{\"min\":0,\"max\":1024}}"),
                               &list);
    assert_int_equal(2, p.max);
    p = list.items[0]->pools[KG_START_ZYGOTE];
    assert_int_equal(0, p.min);
    assert_int_equal(1024, p.max);
    assert_int_equal(60, p.refill_per_minute);
    assert_int_equal(4, p.max_age_s);
    kg_templates_fini(&list);
    p = pool_of(dir,
                WITH("\"start\":\"zygote\",\"pool\":{\"max\":3,\"spawn\":{\"min\":1,\"max\":1}}"),
                &list);
    assert_int_equal(3, p.max);
    assert_int_equal(1, list.items[0]->pools[KG_START_SPAWN].min);
    kg_templates_fini(&list);
}

static void pool_has_defaults_and_takes_limits(void **state)
{
    const char *dir = *state;
    kg_templates_t list = {0};
    kg_pool_opts_t p = pool_of(dir, WITH("\"start\":\"spawn\""), &list);
    assert_int_equal(0, p.max); /* none, unless the operator says so */
    assert_int_equal(60, p.refill_per_minute);
    kg_templates_fini(&list);
    p = pool_of(dir, WITH("\"pool\":{\"min\":0,\"max\":1024}"), &list);
    assert_int_equal(0, p.min);
    assert_int_equal(1024, p.max);
    assert_int_equal(60, p.refill_per_minute);
    assert_int_equal(0, p.memory_mib);
    assert_int_equal(3600, p.max_age_s);
    kg_templates_fini(&list);
    p = pool_of(dir,
                WITH("\"warm_up\":\"import a\",\"cold_env\":[\"MY_*\",\"ONE\"],\"pool\":{\"min\":1,"
                     "\"max\":2,\"refill_per_minute\":60000,\"memory_mib\":3,\"max_age_s\":4}"),
                &list);
    assert_int_equal(1, p.min);
    assert_int_equal(2, p.max);
    assert_int_equal(60000, p.refill_per_minute);
    assert_int_equal(3, p.memory_mib);
    assert_int_equal(4, p.max_age_s);
    assert_int_equal(0, list.items[0]->pools[KG_START_ZYGOTE].max); /* none of the other kind */
    assert_string_equal("import a", list.items[0]->warm_up);
    static const struct {
        const char *name;
        bool waits;
    } rows[] = {
        {"A", true},           {"PATH", true},      {"ONES", true},          {"MINE", true},
        {"MY_", false},        {"MY_THING", false}, {"ONE", false},          {"PYTHONPATH", false},
        {"LD_PRELOAD", false}, {"TZ", false},       {"NODE_OPTIONS", false}, {"R_LIBS", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        json_t *env = json_pack("{s:s, s:s}", "B", "x", rows[i].name, "y");
        assert_int_equal(rows[i].waits, kg_warm_env_can_wait(list.items[0], env));
        json_decref(env);
    }
    assert_true(kg_warm_env_can_wait(list.items[0], NULL));
    kg_templates_fini(&list);
}

static void mistakes_are_named(void **state)
{
    const char *dir = *state;
    static const struct {
        const char *json, *says;
    } rows[] = {
        {"{", "line 1"},
        {"{\"name\":\"t\",\"name\":\"t\"}", "duplicate"},
        {"{\"name\":\"t\",\"colour\":1}", "unknown key /colour"},
        {"{\"name\":\"t\"}", "/description"},
        {"{\"name\":\"u\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{}}",
         "/name"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":[]}",
         "/languages"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"no.json\"}}}",
         "no.json"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"../k\"}}}",
         "/languages/x/kernel"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"k.json\","
         "\"alias\":[]}}}",
         "unknown key /languages/x/alias"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"bad.json\"}}}",
         "bad.json /argv/1: must be a string"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},\"env\":{"
         "\"A\":1}}",
         "A must be"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},"
         "\"prefix\":\"rel\"}",
         "/prefix"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},"
         "\"limits\":{\"cpus\":0}}",
         "/limits/cpus"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},\"start\":"
         "\"restore\"}",
         "/start"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"k.json\",\"zygote\":[]}}}",
         "/languages/x/zygote"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{\"x\":{"
         "\"kernel\":\"k.json\",\"zygote\":\"python\"}}}",
         "/languages/x/zygote"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},"
         "\"run_limits\":{\"on_exceed\":\"explode\"}}",
         "/run_limits/on_exceed"},
        {"{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\",\"languages\":{},"
         "\"richness\":[1]}",
         "/richness"},
        {WITH("\"pool\":{\"min\":2}"), "/pool/max"},
        {WITH("\"pool\":{}"), "/pool/max"},
        {WITH("\"pool\":{\"min\":2,\"max\":1}"), "/pool/max"},
        {WITH("\"pool\":{\"min\":-1,\"max\":1}"), "/pool/min"},
        {WITH("\"pool\":{\"max\":1025}"), "/pool/max"},
        {WITH("\"pool\":{\"max\":1,\"refill_per_minute\":0}"), "/pool/refill_per_minute"},
        {WITH("\"pool\":{\"max\":1,\"memory_mib\":\"x\"}"), "/pool/memory_mib"},
        {WITH("\"pool\":{\"max\":1,\"max_age_s\":0}"), "/pool/max_age_s"},
        {WITH("\"pool\":{\"maximum\":1}"), "/pool/maximum"},
        {WITH("\"pool\":{\"max\":1,\"zygote\":{\"max\":1025}}"), "/pool/zygote/max"},
        {WITH("\"pool\":{\"max\":1,\"zygote\":{\"min\":2,\"max\":1}}"), "/pool/zygote/max"},
        {WITH("\"pool\":{\"max\":1,\"zygote\":{\"min\":-1}}"), "/pool/zygote/min"},
        {WITH("\"pool\":{\"max\":1,\"zygote\":{\"age\":1}}"), "/pool/zygote/age"},
        {WITH("\"pool\":{\"max\":1,\"zygote\":2}"), "/pool/zygote"},
        {WITH("\"pool\":{\"max\":1,\"spawn\":{\"max\":1}}"), "/pool/spawn"},
        {WITH("\"pool\":3"), "/pool"},
        {WITH("\"warm_up\":1"), "/warm_up"},
        {WITH("\"cold_env\":\"A\""), "/cold_env"},
    };
    put(dir, "t", "k.json", kernel);
    put(dir, "t", "bad.json", "{\"argv\":[\"a\",1]}");
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_templates_t list = {0};
        kg_err_t err = {0};
        put(dir, "t", "template.json", rows[i].json);
        assert_true(kg_templates_load_dir(&list, dir, NULL, &err) < 0);
        if (!strstr(err.message, rows[i].says) || !strstr(err.message, "t/template.json")) {
            fail_msg("row %zu: %s", i, err.message);
        }
        kg_templates_fini(&list);
    }
    kg_templates_t list = {0};
    kg_err_t err = {0};
    assert_true(kg_templates_load_dir(&list, "/nowhere", NULL, &err) < 0);
}

static void resolve_takes_aliases_and_other_templates(void **state)
{
    const char *dir = *state;
    kg_templates_t list = {0};
    kg_err_t err = {0};
    put(dir, "a", "k.json", kernel);
    put(dir, "a", "template.json",
        "{\"name\":\"a\",\"description\":\"d\",\"main_language\":\"python\",\"prefix\":\"/\","
        "\"languages\":{\"python\":{\"kernel\":\"k.json\",\"aliases\":[\"snake\"]}}}");
    put(dir, "b", "template.json",
        "{\"name\":\"b\",\"description\":\"d\",\"main_language\":\"python\",\"languages\":{}}");
    put(dir, "c", "k.json", kernel);
    put(dir, "c", "template.json",
        "{\"name\":\"c\",\"description\":\"d\",\"main_language\":\"javascript\","
        "\"prefix\":\"/nowhere\",\"languages\":{\"javascript\":{\"kernel\":\"k.json\"}}}");
    put(dir, "d", "k.json", kernel); /* a name within another one */
    put(dir, "d", "template.json",
        "{\"name\":\"d\",\"description\":\"d\",\"main_language\":\"script\","
        "\"prefix\":\"/\",\"languages\":{\"script\":{\"kernel\":\"k.json\"}}}");
    assert_int_equal(0, kg_templates_load_dir(&list, dir, NULL, &err));
    const kg_template_t *a = kg_templates_find(&list, "a");
    const kg_template_t *b = kg_templates_find(&list, "b");
    const kg_template_t *from = NULL;
    const kg_tpl_language_t *lang = NULL;
    /* The program itself is not there: known, and said so. */
    assert_true(kg_templates_resolve(&list, b, NULL, &lang, &from, &err) < 0);
    assert_int_equal(KG_ERR_KERNEL_START_FAILED, err.code);
    assert_non_null(strstr(err.message, "//bin/k"));
    free(a->languages[0].spec->argv[0]);
    a->languages[0].spec->argv[0] = strdup("sh");
    static const char *const names[] = {NULL, "py", "python", "snake", "a"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        assert_int_equal(0, kg_templates_resolve(&list, b, names[i], &lang, &from, &err));
        assert_ptr_equal(a, from);
    }
    assert_true(kg_templates_resolve(&list, a, "js", &lang, &from, &err) < 0);
    assert_non_null(strstr(err.message, "not built"));
    assert_true(kg_templates_resolve(&list, a, "cobol", &lang, &from, &err) < 0);
    assert_int_equal(KG_ERR_LANGUAGE_NOT_FOUND, err.code);
    for (const char **name = (const char *[]){"python", "javascript", " script", NULL}; *name;
         name++) {
        assert_non_null(strstr(err.hint, *name));
    }
    char want[300];
    (void)snprintf(want, sizeof(want), "D=%s/a/s", dir);
    assert_string_equal(want, a->languages[0].spec->env[0]);
    kg_templates_fini(&list);
}

static void kernelspecs_become_templates(void **state)
{
    const char *dir = *state;
    kg_templates_t list = {0};
    kg_err_t err = {0};
    put(dir, "My_R.4", "kernel.json",
        "{\"argv\":[\"sh\",\"{resource_dir}/k\",\"{connection_file}\"],\"display_name\":\"R four\","
        "\"language\":\"R\"}");
    put(dir, "plain", "kernel.json", "{\"argv\":[\"sh\"],\"env\":{\"A\":\"b\"}}");
    put(dir, "nothing", "README", "");
    assert_int_equal(0, kg_templates_load_kernelspecs(&list, dir, &err));
    assert_int_equal(2, (int)list.count);
    const kg_template_t *r = kg_templates_find(&list, "my-r-4");
    const kg_template_t *plain = kg_templates_find(&list, "plain");
    assert_non_null(r);
    assert_non_null(plain);
    assert_string_equal("R four", r->description);
    assert_string_equal("r", r->main_language);
    assert_non_null(strstr(r->prefix, "/My_R.4")); /* its kernel needs something of it */
    assert_null(plain->prefix);
    assert_string_equal("plain", plain->main_language);
    static const char *const names[] = {"r", "R", "My_R.4", "my-r-4"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        const kg_template_t *from = NULL;
        const kg_tpl_language_t *lang = NULL;
        assert_int_equal(0, kg_templates_resolve(&list, plain, names[i], &lang, &from, &err));
        assert_ptr_equal(r, from);
    }
    /* What is there stays: a second folder of the same names adds nothing. */
    assert_int_equal(0, kg_templates_load_kernelspecs(&list, dir, &err));
    assert_int_equal(2, (int)list.count);
    put(dir, "plain", "kernel.json", "{\"argv\":[\"sh\"],\"interrupt_mode\":\"shout\"}");
    kg_templates_fini(&list);
    assert_true(kg_templates_load_kernelspecs(&list, dir, &err) < 0);
    assert_non_null(strstr(err.message, "/plain/kernel.json /interrupt_mode: "));
    put(dir, "plain", "kernel.json", "{\"argv\":[\"sh\"]}");
    put(dir, "---", "kernel.json", "{\"argv\":[\"sh\"]}");
    kg_templates_fini(&list);
    assert_true(kg_templates_load_kernelspecs(&list, dir, &err) < 0);
    assert_non_null(strstr(err.message, "no name for a template"));
    kg_templates_fini(&list);
}

typedef struct heard {
    unsigned wrong, notes;
    char last[1024];
} heard_t;

static void hear(void *user, bool wrong, const char *text)
{
    heard_t *heard = user;
    heard->wrong += wrong;
    heard->notes += !wrong;
    (void)snprintf(heard->last, sizeof(heard->last), "%s", text);
}

static heard_t validated(const char *dir, const char *json, const char *kernel_json)
{
    heard_t heard = {0};
    kg_err_t err = {0};
    char path[256];
    put(dir, "t", "template.json", json);
    put(dir, "t", "k.json", kernel_json);
    (void)snprintf(path, sizeof(path), "%s/t", dir);
    if (kg_template_validate(path, NULL, hear, &heard, &err)) {
        hear(&heard, true, err.message);
    }
    return heard;
}

static void validation_tells_what_only_a_start_would_show(void **state)
{
    const char *dir = *state;
#define HEAD "{\"name\":\"t\",\"description\":\"d\",\"main_language\":\"x\","
#define LANGUAGES "\"languages\":{\"x\":{\"kernel\":\"k.json\"}}"
    static const char whole[] = "{\"argv\":[\"sh\",\"{connection_file}\"],\"display_name\":\"K\"}";
    static const struct {
        const char *json, *kernel;
        unsigned wrong, notes;
        const char *says;
    } rows[] = {
        {HEAD LANGUAGES "}", whole, 0, 0, ""},
        {HEAD LANGUAGES ",\"prefix\":\"/nowhere\"}", whole, 0, 1, "not built: /nowhere"},
        {HEAD LANGUAGES "}", "{\"argv\":[\"sh\"],\"display_name\":\"K\"}", 1, 0,
         "no {connection_file}"},
        {HEAD LANGUAGES "}",
         "{\"argv\":[\"no-such-program\",\"{connection_file}\"],\"display_name\":\"K\"}", 1, 0,
         "/languages/x: template t: its kernel no-such-program is not there"},
        {HEAD LANGUAGES "}", "{\"argv\":[\"sh\",\"{connection_file}\"]}", 0, 1, "/display_name"},
        {HEAD "\"languages\":{\"y\":{\"kernel\":\"k.json\"}}}", whole, 1, 0,
         "/main_language: x is none of /languages"},
        {HEAD LANGUAGES ",\"home_skel\":\"/nowhere\"}", whole, 1, 0, "/home_skel: /nowhere"},
        {HEAD LANGUAGES ",\"rootfs\":\"/nowhere\"}", whole, 0, 1, "/rootfs: /nowhere"},
        {HEAD LANGUAGES ",\"start\":\"zygote\"}", whole, 1, 0, "/start: "},
        {HEAD LANGUAGES ",\"richness\":[\"text/html\",\"fancy\"]}", whole, 1, 0,
         "/richness/1: \"fancy\""},
        {HEAD LANGUAGES ",\"richness\":[\"text/\"]}", whole, 1, 0, "/richness/0: "},
        {HEAD LANGUAGES ",\"richness\":[\"text/a b\"]}", whole, 1, 0, "/richness/0: "},
        {HEAD LANGUAGES ",\"prefix\":\"/usr\"}", whole, 1, 0, "/prefix: /usr must lie"},
        {HEAD LANGUAGES ",\"prefix\":\"/usrlocal\"}", whole, 0, 1, "not built: /usrlocal"},
        {HEAD LANGUAGES ",\"colour\":1}", whole, 1, 0, "unknown key /colour"},
        {HEAD LANGUAGES "}", "{\"argv\":[]}", 1, 0,
         "/languages/x/kernel: k.json /argv: argv must be"},
    };
#undef LANGUAGES
#undef HEAD
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        heard_t heard = validated(dir, rows[i].json, rows[i].kernel);
        if (heard.wrong != rows[i].wrong || heard.notes != rows[i].notes ||
            !strstr(heard.last, rows[i].says)) {
            fail_msg("row %zu: %u wrong, %u notes, %s", i, heard.wrong, heard.notes, heard.last);
        }
    }
    kg_err_t err = {0};
    heard_t heard = {0};
    assert_true(kg_template_validate(dir, NULL, hear, &heard, &err) < 0);
    assert_non_null(strstr(err.message, "neither template.json nor kernel.json"));
    assert_true(kg_template_validate("/nowhere", NULL, hear, &heard, &err) < 0);
}

typedef struct heard_all {
    char text[4096];
} heard_all_t;

static void hear_all(void *user, bool wrong, const char *text)
{
    heard_all_t *heard = user;
    size_t len = strlen(heard->text);
    if (wrong) {
        (void)snprintf(heard->text + len, sizeof(heard->text) - len, "%s\n", text);
    }
}

/* Not the first alone: whoever mends a template wants the list. */
static void validation_tells_all_that_loading_refuses(void **state)
{
    const char *dir = *state;
    static const char json[] =
        "{\"name\":\"other\",\"description\":\"\",\"main_language\":7,\"hidden\":1,\"rootfs\":\"/"
        "\","
        "\"start\":\"later\",\"env\":{\"A=B\":\"x\",\"C\":1,\"D\":\"fine\"},\"limits\":{\"pids\":0,"
        "\"cpus\":-1,\"colour\":1},\"run_limits\":{\"on_exceed\":\"x\"},\"pool\":{\"min\":-1},"
        "\"richness\":[1],\"colour\":1,\"shape\":2,\"languages\":{\"x\":{\"kernel\":\"none.json\"},"
        "\"y\":{\"aliases\":1,\"zygote\":[]},\"z\":{\"kernel\":\"k.json\",\"zygote\":[]}}}";
    static const char *const says[] = {"unknown key /colour",
                                       "unknown key /shape",
                                       "/name must be",
                                       "/description must be",
                                       "/main_language must be",
                                       "/hidden must be",
                                       "/rootfs must be",
                                       "/start must be",
                                       "/env/A=B: ",
                                       "/env/C: ",
                                       "/limits/pids must be",
                                       "/limits/cpus must be",
                                       "unknown key /limits/colour",
                                       "/run_limits/on_exceed must be",
                                       "/pool/min must be",
                                       "/richness must be",
                                       "/languages/x/kernel: none.json: ",
                                       "/languages/y/aliases must be",
                                       "/languages/y/kernel must be",
                                       "/languages/y/zygote must be",
                                       "/languages/z/zygote must be",
                                       "/languages/z/kernel: k.json /argv: "};
    heard_all_t heard = {0};
    kg_err_t err = {0};
    char path[256];
    size_t lines = 0;
    put(dir, "t", "template.json", json);
    put(dir, "t", "k.json", "{\"argv\":[]}");
    (void)snprintf(path, sizeof(path), "%s/t", dir);
    assert_int_equal(kg_template_validate(path, NULL, hear_all, &heard, &err), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(says); i++) {
        if (!strstr(heard.text, says[i])) {
            fail_msg("%s is not among:\n%s", says[i], heard.text);
        }
    }
    for (const char *p = heard.text; (p = strchr(p, '\n')); p++) {
        lines++;
    }
    if (lines != KG_ARRAY_LEN(says)) {
        fail_msg("%zu faults:\n%s", lines, heard.text);
    }
    /* What loads a template for a daemon still ends at the first. */
    kg_templates_t list = {0};
    assert_true(kg_templates_load_dir(&list, dir, NULL, &err) < 0);
    assert_non_null(strstr(err.message, "/template.json: unknown key /"));
    kg_templates_fini(&list);
}

static void env_later_wins_and_expands(void **state)
{
    (void)state;
    kg_env_t env = {0};
    char one[] = "PATH=/x:${PATH}";
    char two[] = "B=${NONE}-${PATH";
    char *items[] = {one, two, NULL};
    assert_int_equal(0, kg_env_set(&env, "PATH", "/bin"));
    assert_int_equal(0, kg_env_merge_strings(&env, items));
    assert_string_equal("/x:/bin", kg_env_get(&env, "PATH", 4));
    assert_string_equal("-${PATH", kg_env_get(&env, "B", 1));
    assert_int_equal(2, (int)env.count);
    kg_env_fini(&env);
    kg_err_t err = {0};
    json_t *bad = json_pack("{s:s}", "A=B", "x");
    assert_true(kg_env_check(bad, "/env", &err) < 0);
    json_decref(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_templates_load),
        cmocka_unit_test_setup_teardown(pool_has_defaults_and_takes_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_holds_both_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(resolve_takes_aliases_and_other_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(kernelspecs_become_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(validation_tells_all_that_loading_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(validation_tells_what_only_a_start_would_show, setup,
                                        teardown),
        cmocka_unit_test(env_later_wins_and_expands),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
