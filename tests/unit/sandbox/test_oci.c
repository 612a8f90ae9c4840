/* The bundle that OCI runtimes get: JSON, with what a sandbox needs and nothing of the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/sandbox/caps.h"
#include "gateway/sandbox/oci.h"

static const char *const nothing[] = {NULL};

static json_t *config_of(const kg_oci_spec_t *spec)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    kg_oci_config(out, spec);
    assert_int_equal(fclose(out), 0);
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        fail_msg("%s at %d: %s", error.text, error.position, text);
    }
    free(text);
    return root;
}

static json_t *at(const json_t *root, const char *first, const char *second)
{
    json_t *found = json_object_get(json_object_get(root, first), second);
    assert_non_null(found);
    return found;
}

static void config_of_no_limits_is_whole(void **state)
{
    (void)state;
    static const kg_limits_t none = {0};
    const kg_oci_spec_t spec = {.id = "sbx-a",
                                .base = 4000000000U,
                                .limits = &none,
                                .root = "/mnt/root",
                                .run = "/nowhere",
                                .cgroup = "/oci-x",
                                .orphan_s = 60};
    json_t *root = config_of(&spec);

    const json_t *map = json_array_get(at(root, "linux", "uidMappings"), 0);
    assert_int_equal(json_integer_value(json_object_get(map, "hostID")), 4000000000U);
    assert_int_equal(json_integer_value(json_object_get(map, "containerID")), 0);
    assert_int_equal(json_array_size(at(root, "linux", "namespaces")), 7);
    assert_int_equal(json_array_size(at(root, "process", "env")), 0);
    assert_null(json_object_get(json_object_get(root, "process"), "rlimits"));
    assert_true(json_is_true(at(root, "process", "noNewPrivileges")));
    assert_string_equal(json_string_value(json_array_get(at(root, "process", "args"), 1)), "sbx-a");
    assert_int_equal(json_array_size(json_object_get(root, "mounts")), 6); /* no views */
    json_decref(root);
}

static void config_of_limits_has_them(void **state)
{
    (void)state;
    static const kg_limits_t limits = {.memory_bytes = UINT64_C(256) << 20, .nofile = 100};
    const kg_oci_spec_t spec = {.id = "sbx-a",
                                .base = 1,
                                .limits = &limits,
                                .root = "/mnt/root",
                                .run = "/nowhere",
                                .cgroup = "/oci-x",
                                .cgroup_holder = 77};
    json_t *root = config_of(&spec);
    const json_t *files = json_array_get(at(root, "process", "rlimits"), 0);
    bool joined = false;
    bool sized = false;
    size_t i;
    json_t *item;

    /* sandal-init needs some itself */
    assert_int_equal(json_integer_value(json_object_get(files, "hard")), 1024);
    json_array_foreach (at(root, "linux", "namespaces"), i, item) {
        const char *path = json_string_value(json_object_get(item, "path"));
        joined = joined || (path && strcmp(path, "/proc/77/ns/cgroup") == 0);
    }
    assert_true(joined);
    json_array_foreach (json_object_get(root, "mounts"), i, item) {
        if (strcmp(json_string_value(json_object_get(item, "destination")), "/tmp") == 0) {
            const json_t *options = json_object_get(item, "options");
            sized = strcmp(json_string_value(json_array_get(options, 3)), "size=134217728") == 0;
        }
    }
    assert_true(sized);
    json_decref(root);
}

static void config_of_a_guest_has_its_kernel(void **state)
{
    (void)state;
    static const kg_limits_t none = {0};
    const kg_oci_spec_t spec = {.id = "sbx-a",
                                .base = 9,
                                .limits = &none,
                                .root = "/mnt/root",
                                .run = "/mnt/run",
                                .tmp = "/mnt/tmp",
                                .guest = true};
    json_t *root = config_of(&spec);
    json_t *first = json_array_get(at(root, "linux", "gidMappings"), 0);
    bool shared = false;
    size_t i;
    json_t *item;

    assert_int_equal(json_integer_value(json_object_get(first, "hostID")), 9);
    json_array_foreach (json_object_get(root, "mounts"), i, item) {
        const char *to = json_string_value(json_object_get(item, "destination"));
        assert_string_not_equal(to, "/dev");
        shared = shared || (strcmp(to, "/tmp") == 0 &&
                            strcmp(json_string_value(json_object_get(item, "type")), "bind") == 0);
    }
    assert_true(shared);
    json_decref(root);
}

/* More than the sandbox's root, which has the same number: else that could trace it. */
static void sandal_init_has_more_than_root(void **state)
{
    (void)state;
    static const kg_limits_t none = {0};
    const kg_oci_spec_t spec = {
        .id = "sbx-a", .limits = &none, .root = "/r", .run = "/nowhere", .cgroup = "/c"};
    json_t *root = config_of(&spec);
    static const char *const sets[] = {"bounding", "effective", "permitted"};
    size_t of_root = (size_t)__builtin_popcountll(KG_CAPS_ROOT);

    for (size_t i = 0; i < KG_ARRAY_LEN(sets); i++) {
        const json_t *set = json_object_get(at(root, "process", "capabilities"), sets[i]);
        assert_int_equal(json_array_size(set), of_root + 1);
    }
    json_decref(root);
}

static void find_of_no_program_is_null(void **state)
{
    (void)state;
    static const kg_oci_t oci = {
        .kind = "x", .program = "sandal-no-such-runtime", .flags = nothing, .run_words = nothing};
    char path[OCI_PATH_MAX];
    assert_null(kg_oci_find(&oci, path));
}

static void run_of_no_program_says_what_to_install(void **state)
{
    (void)state;
    static const kg_oci_t oci = {
        .kind = "x", .program = "sandal-no-such-runtime", .flags = nothing, .run_words = nothing};
    static const char *const words[] = {"run", NULL};
    const kg_host_t host = {.runtime_dir = "/nowhere"};
    kg_err_t err = {0};

    assert_int_equal(kg_oci_run(&host, &oci, "sbx-a", words, -1, false, &err),
                     -kg_err_errno(KG_ERR_ISOLATION_UNAVAILABLE));
    assert_string_equal(err.message,
                        "there is no sandal-no-such-runtime (package sandal-no-such-runtime)");
}

/* What a program says that is no runtime at all. */
static void run_tells_how_it_failed(void **state)
{
    (void)state;
    static const kg_oci_t oci = {
        .kind = "x", .program = "false", .flags = nothing, .run_words = nothing};
    static const char *const words[] = {"run", NULL};
    const kg_host_t host = {.runtime_dir = "/nowhere"};
    kg_err_t err = {0};

    assert_int_equal(kg_oci_run(&host, &oci, "sbx-a", words, -1, false, &err),
                     -kg_err_errno(KG_ERR_ISOLATION_UNAVAILABLE));
    assert_string_equal(err.message, "false failed without a word (status 1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_of_no_limits_is_whole),
        cmocka_unit_test(config_of_limits_has_them),
        cmocka_unit_test(config_of_a_guest_has_its_kernel),
        cmocka_unit_test(sandal_init_has_more_than_root),
        cmocka_unit_test(find_of_no_program_is_null),
        cmocka_unit_test(run_of_no_program_says_what_to_install),
        cmocka_unit_test(run_tells_how_it_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
