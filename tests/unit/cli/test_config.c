/* The configuration: values of every type, sources and their rank, strictness, rules, and that the
 * manual knows every key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/buf.h"
#include "gateway/cli/args.h"
#include "gateway/cli/config.h"
#include "gateway/cli/paths.h"
#include "gateway/cli/reach.h"
#include "gateway/pool/host.h"

static int setup(void **state)
{
    kg_config_t *config = calloc(1, sizeof(*config));
    kg_err_t err = {0};
    assert_non_null(config);
    assert_int_equal(kg_config_init(config, &err), 0);
    *state = config;
    return 0;
}

static int teardown(void **state)
{
    kg_config_fini(*state);
    free(*state);
    return 0;
}

static int load(kg_config_t *config, const char *text, kg_err_t *err)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    assert_non_null(root);
    int r = kg_config_load_json(config, root, "test.json", err);
    json_decref(root);
    return r;
}

static void config_init_gives_defaults(void **state)
{
    kg_config_t *config = *state;
    assert_int_equal(config->listen.count, 1);
    assert_string_equal(config->listen.items[0], "127.0.0.1:8717");
    assert_int_equal(config->limits.body_bytes, 16 * 1024 * 1024);
    assert_int_equal(config->timeouts.run, UINT64_C(300) * 1000000000);
    assert_false(config->no_auth);
    assert_null(config->state_dir);
}

static void set_text_at_and_past_each_limit(void **state)
{
    kg_config_t *config = *state;
    for (size_t i = 0; i < kg_options_count; i++) {
        const kg_option_t *option = &kg_options[i];
        if (option->type != KG_OPTION_COUNT && option->type != KG_OPTION_BYTES) {
            continue;
        }
        char text[32];
        kg_err_t err = {0};
        snprintf(text, sizeof(text), "%llu", (unsigned long long)option->max);
        assert_int_equal(kg_config_set_text(config, option, text, false, &err), 0);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)option->max + 1);
        assert_true(kg_config_set_text(config, option, text, false, &err) < 0);
        assert_non_null(strstr(err.message, option->key));
        if (option->min > 0) {
            snprintf(text, sizeof(text), "%llu", (unsigned long long)option->min - 1);
            assert_true(kg_config_set_text(config, option, text, false, &err) < 0);
        }
    }
}

static void set_text_bytes_takes_units(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    const kg_option_t *option = kg_option_find("limits.body_bytes");
    assert_int_equal(kg_config_set_text(config, option, "3MiB", false, &err), 0);
    assert_int_equal(config->limits.body_bytes, 3 * 1024 * 1024);
    assert_true(kg_config_set_text(config, option, "3MB", false, &err) < 0);
    assert_true(kg_config_set_text(config, option, "99999999999GiB", false, &err) < 0);
    assert_int_equal(config->limits.body_bytes, 3 * 1024 * 1024);
}

static void set_text_list_replaces_then_appends(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    const kg_option_t *option = kg_option_find("listen");
    assert_int_equal(kg_config_set_text(config, option, "[::1]:1,unix:/a", false, &err), 0);
    assert_int_equal(kg_config_set_text(config, option, "127.0.0.1:2", true, &err), 0);
    assert_int_equal(config->listen.count, 3);
    assert_string_equal(config->listen.items[1], "unix:/a");
}

static void load_json_unknown_key_is_an_error_with_its_path(void **state)
{
    kg_err_t err = {0};
    assert_true(load(*state, "{\"limits\":{\"boddy\":1}}", &err) < 0);
    assert_non_null(strstr(err.message, "test.json: limits.boddy: unknown key"));
    assert_true(load(*state, "{\"limit\":{}}", &err) < 0);
    assert_true(load(*state, "{\"limits\":7}", &err) < 0);
    assert_non_null(strstr(err.message, "limits: must be an object"));
    assert_true(load(*state, "[]", &err) < 0);
}

static void load_json_key_in_both_its_forms_is_an_error(void **state)
{
    static const char *const twice[] = {
        "{\"limits.queue\":5,\"limits\":{\"queue\":6}}",
        "{\"limits\":{\"queue\":6,\"contexts\":1},\"limits.queue\":6}",
    };
    kg_config_t *config = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(twice); i++) {
        kg_err_t err = {0};
        assert_true(load(config, twice[i], &err) < 0);
        assert_non_null(strstr(err.message, "test.json: limits.queue: stands twice"));
    }
    kg_err_t err = {0};
    assert_int_equal(0, load(config, "{\"limits.queue\":7,\"limits\":{\"contexts\":2}}", &err));
    assert_int_equal(7, config->limits.queue);
    assert_int_equal(2, config->limits.contexts);
}

static void load_json_wrong_type_is_an_error(void **state)
{
    static const char *const bad[] = {
        "{\"listen\":\"127.0.0.1:1\"}",
        "{\"listen\":[1]}",
        "{\"no_auth\":\"yes\"}",
        "{\"limits\":{\"queue\":1.5}}",
        "{\"limits\":{\"queue\":-1}}",
        "{\"timeouts\":{\"run\":\"5\"}}",
        "{\"isolation\":\"some\"}",
        "{\"state_dir\":null}",
        "{\"state_dir\":\"\"}",
        "{\"tls\":{\"key\":\"\"}}",
        "{\"template_dirs\":[\"/t\",\"\"]}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_err_t err = {0};
        assert_true(load(*state, bad[i], &err) < 0);
        assert_int_equal(err.code, KG_ERR_CONFIG);
    }
}

static void dump_loads_back_the_same(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    assert_int_equal(load(config,
                          "{\"state_dir\":\"/"
                          "s\",\"timeouts\":{\"run\":0.25},\"cors\":{\"origins\":[\"https://a\"]}}",
                          &err),
                     0);
    json_t *first = kg_config_dump(config);
    kg_config_t copy;
    assert_int_equal(kg_config_init(&copy, &err), 0);
    assert_int_equal(kg_config_load_json(&copy, first, "dump", &err), 0);
    json_t *second = kg_config_dump(&copy);
    assert_true(json_equal(first, second));
    json_decref(first);
    json_decref(second);
    kg_config_fini(&copy);
}

static void environment_wins_over_file_and_arguments_over_both(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    assert_int_equal(
        load(config, "{\"limits\":{\"queue\":1,\"contexts\":1,\"sandboxes\":1}}", &err), 0);
    char *variables[] = {
        (char[]){"SANDAL_LIMITS_QUEUE=2"},
        (char[]){"SANDAL_LIMITS_CONTEXTS=2"},
        (char[]){"SANDAL_API_KEY=x"},
        NULL,
    };
    assert_int_equal(kg_config_load_environment(config, variables, &err), 0);
    char *argv[] = {(char[]){"serve"}, (char[]){"--limits-queue=3"}, (char[]){"--no-auth"}, NULL};
    assert_int_equal(kg_args_config(3, argv, "", config, &err), 0);
    assert_int_equal(config->limits.queue, 3);
    assert_int_equal(config->limits.contexts, 2);
    assert_int_equal(config->limits.sandboxes, 1);
    assert_true(config->no_auth);
}

static void paths_become_absolute(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    const struct {
        const char *key, *value;
    } rows[] = {{"template_dirs", "t"},
                {"kernelspec_dirs", "k"},
                {"tls.cert", "c.pem"},
                {"tls.key", "/k.pem"},
                {"listen", "unix:s"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        assert_int_equal(
            0, kg_config_set_text(config, kg_option_find(rows[i].key), rows[i].value, false, &err));
    }
    assert_int_equal(0, kg_config_complete(config, "/usr/bin", &err));
    assert_int_equal('/', config->template_dirs.items[0][0]);
    assert_int_equal('/', config->kernelspec_dirs.items[0][0]);
    assert_int_equal('/', config->tls.cert[0]);
    assert_string_equal("/k.pem", config->tls.key);
    assert_int_equal(0, strncmp(config->listen.items[0], "unix:/", 6));
}

static void variable_that_nobody_knows_is_found(void **state)
{
    (void)state;
    char *variables[] = {
        (char[]){"SANDAL_LIMITS_QUEUE=2"},
        (char[]){"SANDAL_LIMIT_QUEUE=2"},
        (char[]){"SANDAL_API_KEY=x"},
        (char[]){"SANDALS=1"},
        (char[]){"SANDAL_TEST_LONG=1"},
        (char[]){"SANDAL_"},
        NULL,
    };
    char name[64];
    size_t at = 0;
    assert_string_equal("SANDAL_LIMIT_QUEUE",
                        kg_config_unknown_variable(variables, &at, name, sizeof(name)));
    assert_string_equal("SANDAL_", kg_config_unknown_variable(variables, &at, name, sizeof(name)));
    assert_null(kg_config_unknown_variable(variables, &at, name, sizeof(name)));
}

static void tree_that_the_gateways_user_cannot_reach_is_named(void **state)
{
    (void)state;
    char dir[] = "/tmp/kg-reach-XXXXXX";
    char inner[64];
    kg_err_t err = {0};
    if (geteuid() != 0) {
        skip();
    }
    assert_non_null(mkdtemp(dir)); /* 0700 */
    snprintf(inner, sizeof(inner), "%s/inner", dir);
    assert_int_equal(0, mkdir(inner, 0755));
    const kg_reach_t paths[] = {{"/", R_OK | X_OK}, {inner, R_OK | X_OK}};
    assert_true(kg_reach_check("nobody", 65534, 65534, paths, 2, &err) < 0);
    assert_int_equal(KG_ERR_CONFIG, err.code);
    assert_non_null(strstr(err.message, inner));
    assert_int_equal(0, strncmp(err.hint, dir, strlen(dir)));
    assert_int_equal(' ', err.hint[strlen(dir)]); /* the outer folder is what stops */
    assert_int_equal(0, chmod(dir, 0755));
    assert_int_equal(0, kg_reach_check("nobody", 65534, 65534, paths, 2, &err));
    const kg_reach_t socket = {inner, W_OK | X_OK}; /* 0755 of root's */
    assert_true(kg_reach_check("nobody", 65534, 65534, &socket, 1, &err) < 0);
    assert_non_null(strstr(err.message, "cannot write in"));
    assert_non_null(strstr(err.hint, "-o nobody"));
    assert_int_equal(0, chown(inner, 65534, 65534));
    assert_int_equal(0, kg_reach_check("nobody", 65534, 65534, &socket, 1, &err));
    assert_int_equal(0, rmdir(inner));
    assert_int_equal(0, rmdir(dir));
}

static void environment_with_a_bad_value_names_the_variable(void **state)
{
    kg_err_t err = {0};
    char *variables[] = {(char[]){"SANDAL_TIMEOUTS_RUN=soon"}, NULL};
    assert_true(kg_config_load_environment(*state, variables, &err) < 0);
    assert_non_null(strstr(err.message, "SANDAL_TIMEOUTS_RUN"));
}

static void arguments_unknown_or_extra_are_errors(void **state)
{
    kg_err_t err = {0};
    char *unknown[] = {(char[]){"serve"}, (char[]){"--nope"}, NULL};
    char *extra[] = {(char[]){"serve"}, (char[]){"word"}, NULL};
    char *missing[] = {(char[]){"serve"}, (char[]){"--listen"}, NULL};
    assert_true(kg_args_config(2, unknown, "", *state, &err) < 0);
    assert_non_null(strstr(err.message, "--nope"));
    assert_true(kg_args_config(2, extra, "", *state, &err) < 0);
    assert_non_null(strstr(err.message, "word"));
    assert_true(kg_args_config(2, missing, "", *state, &err) < 0);
    assert_non_null(strstr(err.message, "--listen"));
}

static void check_no_auth_only_on_loopback_and_unix(void **state)
{
    static const struct {
        const char *listen;
        bool fine;
    } rows[] = {
        {"127.0.0.1:1", true},      {"127.9.9.9:1", true}, {"localhost:1", true},
        {"[::1]:1", true},          {"unix:/run/x", true}, {"0.0.0.0:1", false},
        {"[::]:1", false},          {"10.0.0.1:1", false}, {"127.0.0.1", false},
        {"::1:1", false},           {"host:1", false},     {"unix:", false},
        {"127.0.0.1:65536", false},
    };
    kg_config_t *config = *state;
    config->no_auth = true;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_err_t err = {0};
        assert_int_equal(
            kg_config_set_text(config, kg_option_find("listen"), rows[i].listen, false, &err), 0);
        assert_int_equal(kg_config_check(config, &err) == 0, rows[i].fine);
    }
}

static void check_tls_needs_both_files(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    assert_int_equal(
        kg_config_set_text(config, kg_option_find("tls.cert"), "/dev/null", false, &err), 0);
    assert_true(kg_config_check(config, &err) < 0);
    assert_non_null(strstr(err.message, "tls.key"));
}

static void check_isolation_is_not_below_its_floor(void **state)
{
    static const struct {
        const char *isolation, *least;
        bool fine;
    } rows[] = {{"auto", "auto", true},          {"none", "auto", true},
                {"auto", "gvisor", true},        {"process", "process", true},
                {"runc", "bubblewrap", true},    {"bubblewrap", "runc", true},
                {"process", "namespace", false}, {"none", "process", false}};
    kg_config_t *config = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_err_t err = {0};
        assert_int_equal(
            kg_config_set_text(config, kg_option_find("isolation"), rows[i].isolation, false, &err),
            0);
        assert_int_equal(
            kg_config_set_text(config, kg_option_find("isolation_min"), rows[i].least, false, &err),
            0);
        assert_int_equal(kg_config_check(config, &err) == 0, rows[i].fine);
        assert_true(rows[i].fine || strstr(err.message, "isolation_min"));
    }
}

static void check_volumes_bytes(void **state)
{
    static const struct {
        const char *text;
        bool fine;
    } rows[] = {{"0", true}, {"256MiB", true}, {"268435455", false}, {"1", false}, {"4GiB", true}};
    kg_config_t *config = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_err_t err = {0};
        assert_int_equal(
            kg_config_set_text(config, kg_option_find("volumes.bytes"), rows[i].text, false, &err),
            0);
        assert_int_equal(kg_config_check(config, &err) == 0, rows[i].fine);
    }
}

static void check_rows(kg_config_t *config, const char *key, const char *const *rows, bool fine)
{
    for (; *rows; rows++) {
        kg_err_t err = {0};
        assert_int_equal(kg_config_set_text(config, kg_option_find(key), *rows, false, &err), 0);
        if ((kg_config_check(config, &err) == 0) != fine) {
            fail_msg("%s=%s: %s", key, *rows, fine ? err.message : "was taken");
        }
    }
}

static void check_pool_sizes(void **state)
{
    static const char *const good[] = {
        "a:0", "a:2", "a:1-4", "a:0-1024,b-c:3", "a:1,a/zygote:1-2,b/spawn:0", NULL};
    static const char *const bad[] = {"a",         "a:",          ":1",       "a:1-",      "a:4-1",
                                      "a:0-1025",  "a:x",         "a:1,b",    "/zygote:1", "a/:1",
                                      "a/zygot:1", "a/zygotes:1", "a/zygote", NULL};
    check_rows(*state, "pools.sizes", good, true);
    check_rows(*state, "pools.sizes", bad, false);
}

static void complete_decides_when_pools_fill(void **state)
{
    kg_config_t *config = *state;
    kg_err_t err = {0};
    assert_string_equal("auto", config->pools.fill);
    assert_int_equal(0, kg_config_complete(config, "/usr/bin", &err));
    const char *roomy = geteuid() == 0 && kg_pool_host_memory() >= 7ULL << 30 ? "start" : "demand";
    assert_string_equal(roomy, config->pools.fill);
    assert_int_equal(0,
                     kg_config_set_text(config, kg_option_find("pools.fill"), "off", false, &err));
    assert_int_equal(0, kg_config_complete(config, "/usr/bin", &err));
    assert_string_equal("off", config->pools.fill);
}

static void check_sandbox_env(void **state)
{
    static const char *const good[] = {"PIP_INDEX_URL", "_a1=", "A=b=c,NAME", NULL};
    static const char *const bad[] = {"1A=x", "A-B=x", "A B", "GOOD,=x", NULL};
    check_rows(*state, "sandbox_env", good, true);
    check_rows(*state, "sandbox_env", bad, false);
}

static void check_sandbox_files(void **state)
{
    static const char *const good[] = {"/etc/passwd", "/etc/ssl", "/etc/passwd,/etc/group", NULL};
    static const char *const bad[] = {"/",         "/etc", "/var/lib", "/no", "/etc/../root",
                                      "/dev/null", NULL};
    check_rows(*state, "sandbox_files", good, true);
    check_rows(*state, "sandbox_files", bad, false);
}

static void check_network_allow(void **state)
{
    static const char *const good[] = {"10.0.0.0/8", "192.0.2.1/32,2001:db8::/64", "::/0", NULL};
    static const char *const bad[] = {"10.0.0.0",    "10.0.0/8",  "10.0.0.0/33", "2001:db8::/129",
                                      "10.0.0.0/-1", "example/8", "/8",          NULL};
    check_rows(*state, "network_allow", good, true);
    check_rows(*state, "network_allow", bad, false);
}

static void check_network_allow_count(void **state)
{
    char text[1024] = "10.0.0.0/8";
    const char *const rows[] = {text, NULL};
    for (unsigned i = 1; i < 64; i++) {
        memcpy(text + strlen(text), ",10.0.0.0/8", sizeof(",10.0.0.0/8"));
    }
    check_rows(*state, "network_allow", rows, true);
    memcpy(text + strlen(text), ",10.0.0.0/8", sizeof(",10.0.0.0/8"));
    check_rows(*state, "network_allow", rows, false);
}

static void check_proxy_listen(void **state)
{
    static const char *const good[] = {"off", "127.0.0.1:0", "[::1]:8718", "*:80", NULL};
    static const char *const bad[] = {
        "127.0.0.1", ":80", "127.0.0.1:65536", "127.0.0.1:x", "host:80", "::1:80", NULL};
    check_rows(*state, "proxy_listen", good, true);
    check_rows(*state, "proxy_listen", bad, false);
}

static void check_listen_takes_no_address_twice(void **state)
{
    static const char *const good[] = {"127.0.0.1:1,127.0.0.1:2",
                                       "127.0.0.1:0,127.0.0.1:0",
                                       "127.0.0.1:1,127.0.0.2:1",
                                       "127.0.0.1:1,[::1]:1",
                                       "0.0.0.0:1,[::]:1",
                                       "unix:/a,unix:/b,127.0.0.1:1",
                                       NULL};
    static const char *const bad[] = {"127.0.0.1:1,127.0.0.1:1",
                                      "127.0.0.1:1,unix:/a,localhost:1",
                                      "127.0.0.1:1,0.0.0.0:1",
                                      "[::1]:1,[0:0::1]:1",
                                      "[::1]:1,[::]:1",
                                      "unix:/a,unix:/a",
                                      NULL};
    static const char *const taken[] = {"127.0.0.1:5", "localhost:5", "0.0.0.0:5", "*:5", NULL};
    static const char *const listen[] = {"127.0.0.1:5", NULL};

    check_rows(*state, "listen", good, true);
    check_rows(*state, "listen", bad, false);
    check_rows(*state, "listen", listen, true);
    check_rows(*state, "proxy_listen", taken, false);
}

static void check_proxy_domain(void **state)
{
    static const char *const good[] = {"box.example", "a", "A-b.c_d.1", NULL};
    static const char *const bad[] = {"bad_domain!", "a..b", ".a",   "a.",
                                      "-a.b",        "a-.b", "a:80", NULL};
    check_rows(*state, "proxy_domain", good, true);
    check_rows(*state, "proxy_domain", bad, false);
}

static void check_proxy_url(void **state)
{
    static const char *const good[] = {"https://a.example", "http://a.example:81", NULL};
    static const char *const bad[] = {"a.example", "ftp://a.example", NULL};
    check_rows(*state, "proxy_url", good, true);
    check_rows(*state, "proxy_url", bad, false);
}

static void manual_names_every_option(void **state)
{
    (void)state;
    FILE *file = fopen(SANDAL_SOURCE "/docs/man/sandald-config.5.scd", "r");
    assert_non_null(file);
    KG_AUTO_BUF kg_buf_t text = {0};
    char piece[4096];
    size_t n = 0;
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        assert_int_equal(kg_buf_append(&text, piece, n), 0);
    }
    fclose(file);
    for (size_t i = 0; i < kg_options_count; i++) {
        char bold[128];
        snprintf(bold, sizeof(bold), "*%s*", kg_options[i].key);
        if (!strstr(text.data, bold)) {
            fail_msg("sandald-config(5) lacks %s", bold);
        }
    }
}

static void put(const char *root, const char *name, bool file)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *made = file ? fopen(path, "w") : NULL;
    assert_int_equal(file ? (made ? fclose(made) : -1) : mkdir(path, 0755), 0);
}

static void found(char *got, const char *root, const char *name)
{
    char want[256];
    (void)snprintf(want, sizeof want, "%s%s", root, name);
    assert_string_equal(got, want);
    free(got);
}

static void programs_are_beside_or_in_their_own_tree_or_below_the_prefix(void **state)
{
    (void)state;
    char root[] = "/tmp/sandal-paths-XXXXXX";
    assert_non_null(mkdtemp(root));
    char bin[64];
    (void)snprintf(bin, sizeof bin, "%s/bin", root);
    put(root, "bin", false);
    found(kg_path_helper(bin, "sandal-keeper"), SANDAL_LIBEXECDIR, "/sandal-keeper");
    found(kg_path_default_templates(bin), SANDAL_DATADIR, "/kernelspecs");
    static const char *const tree[] = {"libexec", "libexec/sandal", "share", "share/sandal",
                                       "share/sandal/kernelspecs"};
    for (size_t i = 0; i < sizeof tree / sizeof tree[0]; i++) {
        put(root, tree[i], false);
    }
    put(root, "libexec/sandal/sandal-keeper", true);
    found(kg_path_helper(bin, "sandal-keeper"), root, "/libexec/sandal/sandal-keeper");
    found(kg_path_helper(bin, "sandal-init"), SANDAL_LIBEXECDIR, "/sandal-init");
    found(kg_path_default_templates(bin), root, "/share/sandal/kernelspecs");
    put(root, "bin/sandal-keeper", true);
    put(root, "kernelspecs", false);
    found(kg_path_helper(bin, "sandal-keeper"), root, "/bin/sandal-keeper");
    found(kg_path_default_templates(bin), root, "/kernelspecs");
    char command[96];
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c, concurrency-mt-unsafe)
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(config_init_gives_defaults),
        T(set_text_at_and_past_each_limit),
        T(set_text_bytes_takes_units),
        T(set_text_list_replaces_then_appends),
        T(load_json_unknown_key_is_an_error_with_its_path),
        T(load_json_key_in_both_its_forms_is_an_error),
        T(load_json_wrong_type_is_an_error),
        T(dump_loads_back_the_same),
        T(environment_wins_over_file_and_arguments_over_both),
        T(paths_become_absolute),
        T(variable_that_nobody_knows_is_found),
        T(tree_that_the_gateways_user_cannot_reach_is_named),
        T(environment_with_a_bad_value_names_the_variable),
        T(arguments_unknown_or_extra_are_errors),
        T(check_no_auth_only_on_loopback_and_unix),
        T(check_tls_needs_both_files),
        T(check_isolation_is_not_below_its_floor),
        T(check_volumes_bytes),
        T(check_pool_sizes),
        T(complete_decides_when_pools_fill),
        T(check_sandbox_env),
        T(check_sandbox_files),
        T(check_network_allow),
        T(check_network_allow_count),
        T(check_proxy_listen),
        T(check_listen_takes_no_address_twice),
        T(check_proxy_domain),
        T(check_proxy_url),
        T(programs_are_beside_or_in_their_own_tree_or_below_the_prefix),
        T(manual_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
