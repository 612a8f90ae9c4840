/* kernel.json -> struct, and struct -> what is spawned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "gateway/kernel/internal.h"

static kg_kernelspec_t *parsed(const char *text)
{
    kg_kernelspec_t *spec = NULL;
    kg_err_t err = {0};
    if (kg_kernelspec_parse("test", kg_slice_cstr(text), &spec, &err) < 0) {
        fail_msg("%s: %s", text, err.message);
    }
    return spec;
}

static void parse_complete_allFields(void **state)
{
    (void)state;
    kg_kernelspec_t *spec = parsed(
        "{\"argv\":[\"k\",\"-f\",\"{connection_file}\"],\"display_name\":\"K\",\"language\":\"x\","
        "\"interrupt_mode\":\"message\",\"env\":{\"A\":\"1\",\"B\":\"\"},\"metadata\":{"
        "\"debugger\":true},"
        "\"unknown\":[1]}");
    assert_string_equal(spec->name, "test");
    assert_string_equal(spec->display_name, "K");
    assert_string_equal(spec->language, "x");
    assert_string_equal(spec->argv[2], "{connection_file}");
    assert_null(spec->argv[3]);
    assert_string_equal(spec->env[0], "A=1");
    assert_string_equal(spec->env[1], "B=");
    assert_null(spec->env[2]);
    assert_int_equal(spec->interrupt_mode, KG_INTERRUPT_MESSAGE);
    assert_string_equal(spec->metadata, "{\"debugger\":true}");
    kg_kernelspec_destroy(&spec);
    assert_null(spec);
}

static void parse_least_defaults(void **state)
{
    (void)state;
    kg_kernelspec_t *spec = parsed("{\"argv\":[\"k\"]}");
    assert_string_equal(spec->display_name, "");
    assert_int_equal(spec->interrupt_mode, KG_INTERRUPT_SIGNAL);
    assert_string_equal(spec->metadata, "{}");
    assert_null(spec->env[0]);
    kg_kernelspec_destroy(&spec);
}

static void parse_bad_errorWithPointer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *pointer;
    } cases[] = {
        {"", ""},
        {"[]", ""},
        {"{", ""},
        {"{}", "/argv"},
        {"{\"argv\":[]}", "/argv"},
        {"{\"argv\":\"k\"}", "/argv"},
        {"{\"argv\":[\"k\",1]}", "/argv/1"},
        {"{\"argv\":[\"k\\u0000\"]}", ""},
        {"{\"argv\":[\"k\"],\"argv\":[\"k\"]}", ""},
        {"{\"argv\":[\"k\"],\"env\":[]}", "/env"},
        {"{\"argv\":[\"k\"],\"env\":{\"A\":1}}", "/env/A"},
        {"{\"argv\":[\"k\"],\"env\":{\"A=B\":\"1\"}}", "/env/A=B"},
        {"{\"argv\":[\"k\"],\"interrupt_mode\":\"shout\"}", "/interrupt_mode"},
        {"{\"argv\":[\"k\"],\"interrupt_mode\":1}", "/interrupt_mode"},
        {"{\"argv\":[\"k\"],\"metadata\":1}", "/metadata"},
        {"{\"argv\":[\"k\"],\"language\":1}", "/language"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        kg_kernelspec_t *spec = NULL;
        kg_err_t err = {0};
        assert_true(kg_kernelspec_parse("x", kg_slice_cstr(cases[i].text), &spec, &err) < 0);
        assert_null(spec);
        assert_int_equal(err.code, KG_ERR_CONFIG);
        assert_true(err.message[0] != '\0');
        assert_string_equal(err.pointer, cases[i].pointer);
    }
}

static void parse_overLimits_refused(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    for (int n = KG_KERNELSPEC_ARGS_MAX; n <= KG_KERNELSPEC_ARGS_MAX + 1; n++) {
        kg_buf_clear(&text);
        kg_buf_append_cstr(&text, "{\"argv\":[\"k\"");
        for (int i = 1; i < n; i++) {
            kg_buf_append_cstr(&text, ",\"a\"");
        }
        kg_buf_append_cstr(&text, "]}");
        kg_kernelspec_t *spec = NULL;
        int rc = kg_kernelspec_parse("x", kg_buf_slice(&text), &spec, NULL);
        assert_true(n > KG_KERNELSPEC_ARGS_MAX ? rc < 0 : rc == 0);
        kg_kernelspec_destroy(&spec);
    }
    kg_buf_clear(&text);
    kg_buf_append_cstr(&text, "{\"argv\":[\"k\"]}");
    while (text.len < KG_KERNELSPEC_TEXT_MAX) {
        kg_buf_append_char(&text, ' ');
    }
    kg_kernelspec_t *spec = NULL;
    assert_int_equal(kg_kernelspec_parse("x", kg_buf_slice(&text), &spec, NULL), 0);
    kg_kernelspec_destroy(&spec);
    kg_buf_append_char(&text, ' ');
    assert_true(kg_kernelspec_parse("x", kg_buf_slice(&text), &spec, NULL) < 0);
}

static const char *env_of(const kg_spawn_plan_t *plan, const char *name)
{
    const char *found = NULL;
    size_t len = strlen(name);
    for (char **e = plan->env; *e; e++) {
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=') {
            assert_null(found);
            found = *e + len + 1;
        }
    }
    return found;
}

static void plan_words_replaced(void **state)
{
    (void)state;
    kg_kernelspec_t *spec =
        parsed("{\"argv\":[\"{prefix}/bin/"
               "k\",\"--cf={connection_file}\",\"{resource_dir}{prefix}\",\"{other}\",\"{\"],"
               "\"env\":{\"PYTHONPATH\":\"{prefix}/"
               "s:${PYTHONPATH}\",\"OWN\":\"spec\",\"HOMES\":\"${HOME}/x\","
               "\"UNSET\":\"${NOT_THERE}\",\"HALF\":\"${HOME\",\"LIST\":\"/a:${LIST}\"}}");
    const char *const env[] = {"HOME=/h", "OWN=caller", "PYTHONPATH=/mine", NULL};
    const kg_kernel_opts_t opts = {.spec = spec,
                                   .prefix = "/opt/p",
                                   .resource_dir = "/r",
                                   .env = env,
                                   .cwd = "/w",
                                   .nofile = 7};
    kg_spawn_plan_t *plan = NULL;
    assert_int_equal(kg_spawn_plan_make(&opts, "/run/k.json", &plan, NULL), 0);
    assert_string_equal(plan->argv[0], "/opt/p/bin/k");
    assert_string_equal(plan->argv[1], "--cf=/run/k.json");
    assert_string_equal(plan->argv[2], "/r/opt/p");
    assert_string_equal(plan->argv[3], "{other}");
    assert_string_equal(plan->argv[4], "{");
    assert_null(plan->argv[5]);
    assert_string_equal(env_of(plan, "HOME"), "/h");
    assert_string_equal(env_of(plan, "OWN"), "caller");
    assert_string_equal(env_of(plan, "PYTHONPATH"), "/opt/p/s:/mine");
    assert_string_equal(env_of(plan, "HOMES"), "/h/x");
    assert_string_equal(env_of(plan, "UNSET"), "${NOT_THERE}");
    assert_string_equal(env_of(plan, "HALF"), "${HOME");
    assert_string_equal(env_of(plan, "LIST"), "/a");
    assert_string_equal(plan->cwd, "/w");
    assert_int_equal(plan->nofile, 7);
    kg_spawn_plan_destroy(&plan);
    kg_kernelspec_destroy(&spec);
}

static void plan_nothingGiven_wordsStay(void **state)
{
    (void)state;
    kg_kernelspec_t *spec = parsed("{\"argv\":[\"{prefix}/k\"],\"env\":{\"A\":\"${A}\"}}");
    const kg_kernel_opts_t opts = {.spec = spec};
    kg_spawn_plan_t *plan = NULL;
    assert_int_equal(kg_spawn_plan_make(&opts, "/run/k.json", &plan, NULL), 0);
    assert_string_equal(plan->argv[0], "{prefix}/k");
    assert_string_equal(env_of(plan, "A"), "${A}");
    assert_null(plan->cwd);
    kg_spawn_plan_destroy(&plan);
    kg_kernelspec_destroy(&spec);
    const kg_kernel_opts_t none = {0};
    kg_err_t err = {0};
    assert_true(kg_spawn_plan_make(&none, "/run/k.json", &plan, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_complete_allFields),   cmocka_unit_test(parse_least_defaults),
        cmocka_unit_test(parse_bad_errorWithPointer), cmocka_unit_test(parse_overLimits_refused),
        cmocka_unit_test(plan_words_replaced),        cmocka_unit_test(plan_nothingGiven_wordsStay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
