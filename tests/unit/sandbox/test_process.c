/* The launcher process from inside: what user code can't reach, and what it must be able to. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/sandbox/landlock.h"
#include "tests/unit/sandbox/harness.h"

#define ID_A "sbx-tests000000000000001"
#define ID_B "sbx-tests000000000000002"

static bool have_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0;
}

static int setup(void **state)
{
    kg_harness_t *h = calloc(1, sizeof(*h));
    harness_init(h);
    harness_start(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    kg_harness_t *h = *state;
    harness_stop(h);
    harness_fini(h);
    free(h);
    return 0;
}

static kg_sbx_t *make(kg_harness_t *h, const char *id)
{
    kg_answer_t a = harness_create(h, id, "process", false);
    if (a.failed) {
        (void)fprintf(stderr, "create: %s\n", a.err.message);
    }
    assert_non_null(a.sbx);
    return a.sbx;
}

static int code_of(kg_harness_t *h, kg_sbx_t *sbx, const char *script)
{
    kg_proc_t *proc = harness_sh(h, sbx, script);
    kg_exit_t exit = harness_exit(h, proc);
    kg_proc_close(&proc);
    return exit.exited ? exit.code : 128 + exit.signal;
}

static void works_inside(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = make(h, ID_A);
    const kg_sbx_info_t *info = kg_sbx_info(sbx);
    char script[600];
    assert_string_equal(info->isolation_info.kind, "process");
    assert_string_equal(info->isolation_info.seccomp, "filter");
    assert_string_equal(info->isolation_info.network, "none");
    assert_int_equal(code_of(h, sbx, "echo a > f && mkdir d && mv f d/ && ln -s d/f l && rm -r d"),
                     0);
    (void)snprintf(script, sizeof(script), "echo a > %s/f && echo a > %s/f && echo a > /dev/null",
                   info->home, info->run_dir);
    assert_int_equal(code_of(h, sbx, script), 0);
    assert_int_equal(
        code_of(h, sbx, "ls /usr/bin > /dev/null && cat /proc/self/status > /dev/null"), 0);
    assert_int_equal(code_of(h, sbx, "sleep 100 & kill $! && wait $!; test $? = 143"), 0);
    harness_destroy(h, &sbx, false);
}

/* World-readable and world-writable, so that nothing but the launcher keeps them. */
static void files_of_the_host_are_closed(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = make(h, ID_A);
    kg_sbx_t *other = make(h, ID_B);
    char open_file[160];
    char open_dir[160];
    char script[600];
    (void)snprintf(open_file, sizeof(open_file), "%s/open", h->dir);
    (void)snprintf(open_dir, sizeof(open_dir), "%s/opendir", h->dir);
    int fd = open(open_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    assert_int_equal(mkdir(open_dir, 0777), 0);
    assert_int_equal(chmod(open_dir, 0777), 0);
    const char *tries[] = {
        "cat $D/open",     "echo a >> $D/open", "ls $D/opendir", "echo a > $D/opendir/x",
        "ln $D/open hard", "mv $D/open .",      "rm $D/open"};
    for (size_t i = 0; i < KG_ARRAY_LEN(tries); i++) {
        (void)snprintf(script, sizeof(script), "D=%s; ! (%s) 2> /dev/null", h->dir, tries[i]);
        assert_int_equal(code_of(h, sbx, script), 0);
    }
    (void)snprintf(script, sizeof(script), "ln -s %s/open soft; ! cat soft 2> /dev/null", h->dir);
    assert_int_equal(code_of(h, sbx, script), 0);
    (void)snprintf(script, sizeof(script), "! ls %s 2> /dev/null", kg_sbx_info(other)->workspace);
    assert_int_equal(code_of(h, sbx, script), 0);
    assert_int_equal(code_of(h, sbx, "! ls /root /home /var/lib /tmp 2> /dev/null"), 0);
    assert_int_equal(code_of(h, sbx, "! echo a 2> /dev/null > /tmp/sandal-try"), 0);
    harness_destroy(h, &other, false);
    harness_destroy(h, &sbx, false);
}

static void network_and_neighbours_are_closed(void **state)
{
    kg_harness_t *h = *state;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    char script[300];
    kg_sbx_t *sbx = make(h, ID_A);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(server, 4), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&addr, &len), 0);
    (void)snprintf(script, sizeof(script), "! bash -c 'exec 3<>/dev/tcp/127.0.0.1/%u' 2> /dev/null",
                   ntohs(addr.sin_port));
    assert_int_equal(code_of(h, sbx, script), 0);
    (void)snprintf(script, sizeof(script), "! bash -c 'exec 3<>/dev/udp/127.0.0.1/%u' 2> /dev/null",
                   ntohs(addr.sin_port));
    assert_int_equal(code_of(h, sbx, script), 0);
    close(server);
    (void)snprintf(script, sizeof(script), "! kill -0 %d 2> /dev/null && ! kill -0 %d 2> /dev/null",
                   (int)h->keeper_pid, (int)getpid());
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 6 || geteuid() == 0) {
        assert_int_equal(code_of(h, sbx, script), 0);
    }
    assert_int_equal(code_of(h, sbx, "! unshare -U true 2> /dev/null"), 0);
    harness_destroy(h, &sbx, false);
}

static void what_it_cannot_hold_is_refused(void **state)
{
    kg_harness_t *h = *state;
    kg_sandbox_opts_t opts = {.id = ID_A, .launcher = "process", .network.mode = KG_NET_EGRESS};
    kg_answer_t a = harness_create_opts(h, &opts);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
    opts.network.mode = KG_NET_NONE;
    opts.limits.disk_bytes = 1 << 20;
    a = harness_create_opts(h, &opts);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
}

/* Only under an ordinary user is it Landlock that keeps sandboxes apart, and only with scopes. */
static void who_is_not_kept_apart_is_said(void **state)
{
    static const struct {
        int abi;
        bool is_root, apart;
    } rows[] = {
        {1, false, false}, {5, false, false}, {6, false, true}, {7, false, true}, {5, true, true}};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        char text[160];
        kg_ll_remark(rows[i].abi, rows[i].is_root, text);
        assert_true(strlen(text) < sizeof(text) - 1); /* nothing of it is cut */
        assert_int_equal(strstr(text, KG_LAUNCHER_NOT_APART) == NULL, rows[i].apart);
    }
}

static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(works_inside),
        T(files_of_the_host_are_closed),
        T(network_and_neighbours_are_closed),
        T(what_it_cannot_hold_is_refused),
        cmocka_unit_test(who_is_not_kept_apart_is_said),
    };
    return cmocka_run_group_tests_name(geteuid() == 0 ? "process, root" : "process, rootless",
                                       tests, NULL, NULL);
}

int main(void)
{
    if (!have_landlock()) {
        return 77;
    }
    return harness_run_both(run);
}
