/* What the launcher namespace shows: accounts, views, and the layer that hides the host. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/ns_mask.h"
#include "gateway/sandbox/ns_view.h"

/* --- Accounts --------------------------------------------------------------------------------- */

static const char passwd[] = "root:$6$secret:0:0:The Boss:/root:/bin/zsh\n"
                             "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
                             "alice:x:1000:1000:Alice,,,:/home/alice:/bin/bash\n"
                             "user:x:999:999::/nonexistent:/bin/false\n"
                             "short:x:7\n"
                             "+nis:x:8:8::/:/bin/sh\n"
                             "odd:x:-1:0::/:/bin/sh\n"
                             "a:b:c:d:e:f:g:h\n"
                             "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin";

static void accounts_passwd_keeps_system_accounts_without_names(void **state)
{
    (void)state;
    KG_AUTO_FREE char *made = kg_mask_accounts(KG_ACCOUNTS_PASSWD, passwd);
    assert_string_equal(made, "root:x:0:0::/root:/bin/zsh\n"
                              "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
                              "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
                              "user:x:1000:1000::/home/user:/bin/bash\n");
}

static void accounts_shadow_has_no_password(void **state)
{
    (void)state;
    KG_AUTO_FREE char *made = kg_mask_accounts(KG_ACCOUNTS_SHADOW, passwd);
    assert_string_equal(made, "root:*:19000:0:99999:7:::\n"
                              "daemon:*:19000:0:99999:7:::\n"
                              "nobody:*:19000:0:99999:7:::\n"
                              "user:*:19000:0:99999:7:::\n");
}

static void accounts_group_has_no_members(void **state)
{
    (void)state;
    KG_AUTO_FREE char *made = kg_mask_accounts(
        KG_ACCOUNTS_GROUP, "root:x:0:\nsudo:x:27:alice,bob\nalice:x:1000:\nbroken\n");
    KG_AUTO_FREE char *shadow =
        kg_mask_accounts(KG_ACCOUNTS_GSHADOW, "root:x:0:\nsudo:x:27:alice,bob\n");
    assert_string_equal(made, "root:x:0:\nsudo:x:27:\nuser:x:1000:\n");
    assert_string_equal(shadow, "root:*::\nsudo:*::\nuser:*::\n");
}

static void accounts_line_too_long_is_left_out(void **state)
{
    (void)state;
    char line[2000] = "x:x:1:1::/";
    memset(line + 10, 'a', sizeof(line) - 11);
    line[sizeof(line) - 1] = '\0';
    KG_AUTO_FREE char *made = kg_mask_accounts(KG_ACCOUNTS_PASSWD, line);
    assert_string_equal(made, "user:x:1000:1000::/home/user:/bin/bash\n");
}

/* --- Views ------------------------------------------------------------------------------------ */

static void view_cpus_rounds_up_within_the_host(void **state)
{
    (void)state;
    assert_int_equal(kg_view_cpus(0, 8), 8);
    assert_int_equal(kg_view_cpus(1, 8), 1);
    assert_int_equal(kg_view_cpus(1000, 8), 1);
    assert_int_equal(kg_view_cpus(1001, 8), 2);
    assert_int_equal(kg_view_cpus(64000, 8), 8);
    assert_int_equal(kg_view_cpus(UINT32_MAX, 8), 8);
}

static void view_meminfo_tells_the_limit(void **state)
{
    (void)state;
    KG_AUTO_FREE char *made = kg_view_meminfo(UINT64_C(512) << 20);
    assert_non_null(strstr(made, "MemTotal:        524288 kB\n"));
    assert_non_null(strstr(made, "MemAvailable:    524288 kB\n"));
    assert_non_null(strstr(made, "\nSwapTotal:       0 kB\n"));
}

static void view_cpuinfo_is_cut(void **state)
{
    (void)state;
    const char *host = "processor\t: 0\nx\n\nprocessor\t: 1\ny\n\nprocessor\t: 2\nz\n\n";
    KG_AUTO_FREE char *one = kg_view_cpuinfo(host, 1);
    KG_AUTO_FREE char *two = kg_view_cpuinfo(host, 2);
    KG_AUTO_FREE char *many = kg_view_cpuinfo(host, 9);
    assert_string_equal(one, "processor\t: 0\nx\n\n");
    assert_string_equal(two, "processor\t: 0\nx\n\nprocessor\t: 1\ny\n\n");
    assert_string_equal(many, host);
}

static void view_stat_is_cut(void **state)
{
    (void)state;
    const char *host =
        "cpu  9 9\ncpu0 1 1\ncpu1 2 2\ncpu2 3 3\nintr 5 4\nctxt 7\nbtime 8\nsoftirq 1";
    KG_AUTO_FREE char *made = kg_view_stat(host, 2);
    assert_string_equal(made, "cpu  9 9\ncpu0 1 1\ncpu1 2 2\nctxt 7\nbtime 8\n");
}

/* --- The layer -------------------------------------------------------------------------------- */

typedef struct kg_tree {
    char dir[64];
    char source[80];
    int layer;
    int root;
} kg_tree_t;

static void put(const kg_tree_t *t, const char *path, const char *text, mode_t mode)
{
    char full[400];
    (void)snprintf(full, sizeof(full), "%s/%s", t->source, path);
    for (char *slash = strchr(full + strlen(t->source) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    if (!text) {
        assert_true(mkdir(full, mode) == 0 || errno == EEXIST);
        return;
    }
    KG_AUTO_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
}

static int tree_up(void **state)
{
    kg_tree_t *t = calloc(1, sizeof(*t));
    char path[100];

    assert_non_null(t);
    (void)snprintf(t->dir, sizeof(t->dir), "/tmp/test-ns-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    (void)snprintf(t->source, sizeof(t->source), "%s/source", t->dir);
    (void)snprintf(path, sizeof(path), "%s/layer", t->dir);
    assert_int_equal(mkdir(t->source, 0755), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    t->layer = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    t->root = -1;
    assert_true(t->layer >= 0);
    put(t, "init", "#!init", 0755);
    *state = t;
    return 0;
}

static int tree_down(void **state)
{
    kg_tree_t *t = *state;
    char name[64];
    KG_AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)snprintf(name, sizeof(name), "%s", t->dir + 5);
    kg_closep(&t->root);
    kg_closep(&t->layer);
    assert_int_equal(kg_fs_remove_tree(tmp, name), 0);
    free(t);
    return 0;
}

static int build(kg_tree_t *t, bool host, const char *file, kg_err_t *err)
{
    char init[100];
    static const char *const dirs[] = {"/opt/template"};
    static const char *const secrets[] = {"/var/lib/planted"};
    const char *files[] = {file};
    (void)snprintf(init, sizeof(init), "%s/init", t->source);
    const kg_mask_spec_t spec = {
        .source = t->source,
        .host = host,
        .init_exe = init,
        .dirs = dirs,
        .dir_count = 1,
        .files = files,
        .file_count = file ? 1 : 0,
        .secrets = secrets,
        .secret_count = 1,
    };
    int r = kg_mask_build(t->layer, &spec, err);
    t->root = openat(t->layer, KG_MASK_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return r;
}

static void must_build(kg_tree_t *t, bool host, const char *file)
{
    kg_err_t err = {0};
    if (build(t, host, file, &err) < 0) {
        fail_msg("%s", err.message);
    }
}

static bool there(const kg_tree_t *t, const char *path)
{
    struct stat st;
    return fstatat(t->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void check_mark(const kg_tree_t *t, const char *path, const char *name, const char *want)
{
    char value[256] = "";
    KG_AUTO_CLOSE int fd = openat(t->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fgetxattr(fd, name, value, sizeof(value) - 1);
    if (n < 0 || strcmp(value, want) != 0) {
        fail_msg("%s: %s is \"%s\", not \"%s\"", path, name, value, want);
    }
}

static void read_back(const kg_tree_t *t, const char *path, char *text, size_t size)
{
    KG_AUTO_CLOSE int fd = openat(t->root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    assert_true(n >= 0);
    text[n] = '\0';
}

#define NEEDS_ROOT()                                                                               \
    if (geteuid() != 0) {                                                                          \
        print_message("[  SKIPPED ] marks of overlay layers and device nodes need root\n");        \
        skip();                                                                                    \
    }

static void mask_shows_what_is_listed(void **state)
{
    kg_tree_t *t = *state;
    char text[256];
    struct stat st;
    NEEDS_ROOT();
    put(t, "usr", NULL, 0755);
    put(t, "etc/fonts", NULL, 0755);
    put(t, "etc/services", "ssh 22/tcp\n", 0644);
    put(t, "etc/java-99", NULL, 0755);
    put(t, "etc/passwd", passwd, 0644);
    must_build(t, true, NULL);
    check_mark(t, ".", "trusted.overlay.opaque", "y");
    check_mark(t, "usr", "trusted.overlay.redirect", "/usr");
    check_mark(t, "usr/local/etc", "trusted.overlay.opaque", "y");
    check_mark(t, "etc/fonts", "trusted.overlay.redirect", "/etc/fonts");
    check_mark(t, "etc/java-99", "trusted.overlay.redirect", "/etc/java-99");
    check_mark(t, "home", "trusted.overlay.opaque", "y");
    read_back(t, "etc/services", text, sizeof(text));
    assert_string_equal(text, "ssh 22/tcp\n");
    read_back(t, KG_MASK_INIT, text, sizeof(text));
    assert_string_equal(text, "#!init");
    assert_int_equal(fstatat(t->root, "dev/null", &st, 0), 0);
    assert_true(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
    assert_int_equal(fstatat(t->root, "workspace", &st, 0), 0);
    assert_int_equal(st.st_uid, 1000);
    assert_true(there(t, "opt/template"));
}

static void mask_hides_the_rest(void **state)
{
    static const char *const planted[] = {
        "etc/ssh/ssh_host_ed25519_key",
        "etc/machine-id",
        "etc/sudoers",
        "etc/cron.d/job",
        "etc/default/daemon",
        "etc/profile.d/proxy.sh",
        "etc/ssl/private/server.key",
        "etc/apt/auth.conf",
        "etc/apt/apt.conf.d/99proxy",
        "root/.ssh/id_ed25519",
        "home/alice/.netrc",
        "srv/data",
        "var/lib/planted",
        "var/lib/mysql/x",
        "var/log/syslog",
        "var/spool/cron/root",
        "boot/vmlinuz",
        "backup/dump.sql",
        ".dockerenv",
        "r/inside",
    };
    kg_tree_t *t = *state;
    char text[256];
    NEEDS_ROOT();
    for (size_t i = 0; i < KG_ARRAY_LEN(planted); i++) {
        put(t, planted[i], "secret", 0644);
    }
    put(t, "etc/hostname", "the-host\n", 0644);
    put(t, "etc/environment", "TOKEN=secret\n", 0644);
    must_build(t, true, NULL);
    for (size_t i = 0; i < KG_ARRAY_LEN(planted); i++) {
        if (there(t, planted[i])) {
            fail_msg("%s is in the layer", planted[i]);
        }
    }
    read_back(t, "etc/environment", text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(readlinkat(t->root, "etc/hostname", text, sizeof(text)), 19);
}

static void mask_hides_files_that_others_may_not_read(void **state)
{
    kg_tree_t *t = *state;
    NEEDS_ROOT();
    put(t, "etc/services", "x", 0640);
    put(t, "etc/security/opasswd", "hashes", 0600);
    put(t, "etc/security/limits.conf", "x", 0644);
    must_build(t, true, NULL);
    assert_false(there(t, "etc/services"));
    assert_false(there(t, "etc/security/opasswd"));
    assert_true(there(t, "etc/security/limits.conf"));
}

static void mask_hides_sources_with_a_password(void **state)
{
    kg_tree_t *t = *state;
    NEEDS_ROOT();
    put(t, "etc/apt/sources.list.d/a.list", "deb https://me:pw@example.org/ x y\n", 0644);
    put(t, "etc/apt/sources.list.d/b.list", "deb https://example.org/@scope x y\n", 0644);
    must_build(t, true, NULL);
    assert_false(there(t, "etc/apt/sources.list.d/a.list"));
    assert_true(there(t, "etc/apt/sources.list.d/b.list"));
}

static void mask_shows_what_the_operator_names(void **state)
{
    kg_tree_t *t = *state;
    char text[64];
    NEEDS_ROOT();
    put(t, "etc/apt/auth.conf", "machine example.org", 0600);
    put(t, "etc/apt/apt.conf.d/99proxy", "Acquire", 0600);
    put(t, "etc/machine-id", "x", 0644);
    must_build(t, true, "/etc/apt");
    read_back(t, "etc/apt/auth.conf", text, sizeof(text));
    assert_string_equal(text, "machine example.org");
    read_back(t, "etc/apt/apt.conf.d/99proxy", text, sizeof(text));
    assert_string_equal(text, "Acquire");
    assert_false(there(t, "etc/machine-id"));
}

static void mask_never_leaves_the_source(void **state)
{
    kg_tree_t *t = *state;
    char path[120];
    char text[64] = "";
    NEEDS_ROOT();
    put(t, "etc/fonts", NULL, 0755);
    put(t, "host", "inside", 0644);
    (void)snprintf(path, sizeof(path), "%s/etc/passwd", t->source);
    assert_int_equal(symlink("../../../../../../etc/shadow", path), 0);
    must_build(t, false, NULL);
    read_back(t, "etc/passwd", text, sizeof(text)); /* no /etc/shadow below the source: our own */
    assert_true(kg_str_starts(text, "root:x:0:0::/root:/bin/sh\n"));
}

/* A file to be shown may lie behind a link that is absolute inside: the host's is not touched. */
static void mask_links_lead_nowhere_on_the_host(void **state)
{
    kg_tree_t *t = *state;
    char text[64];
    struct stat st;
    NEEDS_ROOT();
    put(t, "var/run/sandal-test-file", "the operator's", 0644);
    must_build(t, true, NULL); /* makes var/run -> /run */
    kg_closep(&t->root);
    put(t, "run", NULL, 0755);
    assert_int_equal(readlinkat(t->layer, KG_MASK_ROOT "/var/run", text, sizeof(text)), 4);
    kg_err_t err = {0};
    assert_int_equal(kg_fs_remove_tree(t->layer, KG_MASK_ROOT), 0);
    assert_int_equal(build(t, true, "/var/run/sandal-test-file", &err), 0);
    read_back(t, "run/sandal-test-file", text, sizeof(text));
    assert_string_equal(text, "the operator's");
    assert_true(stat("/run/sandal-test-file", &st) < 0 && errno == ENOENT);
}

static void mask_of_a_template_shows_all_but_what_is_the_sandboxs(void **state)
{
    kg_tree_t *t = *state;
    NEEDS_ROOT();
    put(t, "opt/tool/bin", "x", 0755);
    put(t, "etc/ssh/sshd_config", "x", 0644);
    put(t, "srv/app", "x", 0644);
    put(t, "dev/sda", "x", 0644);
    put(t, "tmp/left", "x", 0644);
    must_build(t, false, NULL);
    check_mark(t, "srv", "trusted.overlay.redirect", "/srv");
    check_mark(t, "etc", "trusted.overlay.redirect", "/etc");
    check_mark(t, "opt", "trusted.overlay.redirect", "/opt");
    check_mark(t, "dev", "trusted.overlay.opaque", "y");
    check_mark(t, "tmp", "trusted.overlay.opaque", "y");
}

static void mask_canaries_name_hidden_places(void **state)
{
    kg_tree_t *t = *state;
    char text[KG_MASK_CANARIES_MAX];
    bool found[3] = {false};
    static const char *const want[] = {"var/lib/planted", "root/.ssh", "etc/machine-id"};
    NEEDS_ROOT();
    put(t, "root/.ssh", NULL, 0700);
    put(t, "etc/machine-id", "x", 0644);
    put(t, "etc/services", "x", 0644);
    must_build(t, true, NULL);
    KG_AUTO_CLOSE int fd = openat(t->layer, KG_MASK_CANARIES, O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, text, sizeof(text));
    assert_true(len > 0 && text[len - 1] == '\0');
    for (const char *at = text; at < text + len; at += strlen(at) + 1) {
        assert_false(there(t, at));
        for (size_t i = 0; i < KG_ARRAY_LEN(want); i++) {
            found[i] = found[i] || strcmp(at, want[i]) == 0;
        }
    }
    assert_true(found[0] && found[1] && found[2]);
}

static void mask_without_init_says_so(void **state)
{
    kg_tree_t *t = *state;
    kg_err_t err = {0};
    char path[100];
    NEEDS_ROOT();
    (void)snprintf(path, sizeof(path), "%s/init", t->source);
    assert_int_equal(unlink(path), 0);
    assert_true(build(t, true, NULL, &err) < 0);
    assert_non_null(strstr(err.message, "/init: No such file"));
}

#define WITH_TREE(f) cmocka_unit_test_setup_teardown(f, tree_up, tree_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_passwd_keeps_system_accounts_without_names),
        cmocka_unit_test(accounts_shadow_has_no_password),
        cmocka_unit_test(accounts_group_has_no_members),
        cmocka_unit_test(accounts_line_too_long_is_left_out),
        cmocka_unit_test(view_cpus_rounds_up_within_the_host),
        cmocka_unit_test(view_meminfo_tells_the_limit),
        cmocka_unit_test(view_cpuinfo_is_cut),
        cmocka_unit_test(view_stat_is_cut),
        WITH_TREE(mask_shows_what_is_listed),
        WITH_TREE(mask_hides_the_rest),
        WITH_TREE(mask_hides_files_that_others_may_not_read),
        WITH_TREE(mask_hides_sources_with_a_password),
        WITH_TREE(mask_shows_what_the_operator_names),
        WITH_TREE(mask_never_leaves_the_source),
        WITH_TREE(mask_links_lead_nowhere_on_the_host),
        WITH_TREE(mask_of_a_template_shows_all_but_what_is_the_sandboxs),
        WITH_TREE(mask_canaries_name_hidden_places),
        WITH_TREE(mask_without_init_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
