/* Watches, ports, terminals and processes of a sandbox, through client, keeper and sandal-init; as
 * root and as an ordinary user. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/unit/sandbox/box_rig.h"

/* ---- watches ---- */

static bool saw(int fd, int wd, uint32_t mask, const char *name)
{
    char buf[4096] __attribute__((aligned(8)));
    for (int i = 0; i < 50; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 2000) != 1) {
            return false;
        }
        ssize_t n = read(fd, buf, sizeof(buf));
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(buf + at);
            if (e->wd == wd && (e->mask & mask) && strcmp(e->len > 0 ? e->name : "", name) == 0) {
                return true;
            }
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    }
    return false;
}

static void watches_tell_of_changes(void **state)
{
    kg_box_t *b = *state;
    sh(b, "mkdir d");
    kg_files_answer_t a = files_watch(&b->h, b->sbx, "/workspace", -1);
    assert_int_equal(a.err.code, OK);
    assert_true(a.fd >= 0 && a.wd > 0);
    assert_true(fcntl(a.fd, F_GETFL) & O_NONBLOCK);
    kg_files_answer_t c =
        files_watch(&b->h, b->sbx, "/workspace/d", a.fd); /* one more on the same */
    assert_int_equal(c.err.code, OK);
    assert_int_equal(c.fd, -1);
    assert_int_not_equal(c.wd, a.wd);
    sh(b, "echo > f; echo > d/g; mv f h; rm h");
    assert_true(saw(a.fd, a.wd, IN_CREATE, "f"));
    sh(b, "echo > d/i");
    assert_true(saw(a.fd, c.wd, IN_CREATE, "i"));
    assert_int_equal(files_watch(&b->h, b->sbx, "/workspace/none", a.fd).err.code,
                     KG_ERR_NOT_FOUND);
    assert_int_equal(files_watch(&b->h, b->sbx, "/workspace/d", STDIN_FILENO).err.code,
                     KG_ERR_INVALID_REQUEST);
    close(a.fd);
}

/* ---- ports ---- */

static int listen_on(int family, uint16_t *ret_port)
{
    struct sockaddr_storage addr = {.ss_family = (sa_family_t)family};
    socklen_t len = sizeof(addr);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int only = 1;
    if (fd >= 0 && family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
        ((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
    }
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&addr,
             family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) < 0 ||
        listen(fd, 4) < 0 || getsockname(fd, (struct sockaddr *)&addr, &len) < 0) {
        close(fd);
        return -1;
    }
    *ret_port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&addr)->sin_port
                                        : ((struct sockaddr_in6 *)&addr)->sin6_port);
    return fd;
}

static void expect_connection(kg_box_t *b, int listener, uint16_t port)
{
    char text[8] = "";
    kg_files_answer_t a = files_port(&b->h, b->sbx, port);
    assert_int_equal(a.err.code, OK);
    assert_true(fcntl(a.fd, F_GETFL) & O_NONBLOCK);
    int peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(write(a.fd, "hello", 5), 5);
    assert_int_equal(read(peer, text, 5), 5);
    assert_string_equal(text, "hello");
    close(peer);
    close(a.fd);
}

/* `none` has the network of this test. */
static void ports_are_reached_or_refused(void **state)
{
    kg_box_t *b = *state;
    uint16_t port = 0;
    int fd = listen_on(AF_INET, &port);
    expect_connection(b, fd, port);
    close(fd);
    kg_files_answer_t a = files_port(&b->h, b->sbx, port);
    assert_int_equal(a.err.code, KG_ERR_CONFLICT);
    assert_non_null(strstr(a.err.message, "refused"));
    fd = listen_on(AF_INET6, &port);
    if (fd >= 0) { /* a host may have no IPv6 */
        expect_connection(b, fd, port);
        close(fd);
    }
}

/* ---- terminals ---- */

static bool read_until(int fd, const char *want, char *text, size_t cap)
{
    size_t len = strlen(text);
    while (!strstr(text, want)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, 20000) == 1 ? read(fd, text + len, cap - 1 - len) : -1;
        if (n <= 0) {
            return false;
        }
        len += (size_t)n;
        text[len] = '\0';
    }
    return true;
}

static void terminal_echoes_and_resizes(void **state)
{
    kg_box_t *b = *state;
    char text[4096] = "";
    const char *argv[] = {"sh", "-c",
                          "tty; stty size; trap 'stty size; echo got' WINCH; echo ready; while :; "
                          "do sleep 0.05; done",
                          NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env, .pty = true, .columns = 101, .rows = 33};
    kg_answer_t a = harness_spawn_opts(&b->h, b->sbx, &opts);
    if (a.failed) {
        (void)fprintf(stderr, "%s\n", a.err.message);
    }
    assert_non_null(a.proc);
    assert_int_equal(kg_proc_take_stdin(a.proc), -1);
    assert_int_equal(kg_proc_take_stderr(a.proc), -1);
    int fd = kg_proc_take_stdout(a.proc);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(read_until(fd, "ready", text, sizeof(text)));
    assert_non_null(strstr(text, "/dev/pts/"));
    assert_non_null(strstr(text, "33 101"));
    const struct winsize size = {.ws_row = 50, .ws_col = 132};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    assert_true(read_until(fd, "got", text, sizeof(text)));
    assert_non_null(strstr(text, "50 132"));
    assert_int_equal(write(fd, "typed", 5), 5);
    assert_true(read_until(fd, "typed", text, sizeof(text)));
    assert_int_equal(write(fd, "\x03", 1), 1); /* ^C goes to the foreground */
    kg_exit_t exit = harness_exit(&b->h, a.proc);
    assert_true(exit.signaled && exit.signal == SIGINT);
    kg_proc_close(&a.proc);
    close(fd);
}

/* ---- processes ---- */

static void processes_are_found_by_token(void **state)
{
    kg_box_t *b = *state;
    kg_err_t err = {0};
    kg_proc_t *proc = harness_sh(&b->h, b->sbx, "sleep 1000");
    assert_true(kg_proc_token(proc) != 0);
    assert_int_equal(kg_proc_inner_pid(proc), kg_proc_pid(proc)); /* no namespace of pids */
    assert_true(harness_alive(kg_proc_pid(proc)));
    assert_true(kg_sbx_proc_attach(b->sbx, kg_proc_token(proc), NULL, NULL, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    assert_true(kg_sbx_proc_attach(b->sbx, 0, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
    kg_answer_t a = harness_attach_proc(&b->h, b->sbx, kg_proc_token(proc) + 1);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_NOT_FOUND);
    const char *argv[] = {"true", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .root = true};
    assert_true(kg_sbx_spawn(b->sbx, &opts, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    kg_proc_close(&proc);
}

/* ---- namespace ---- */

static void run_text(kg_box_t *b, bool root, const char *script, char *ret_text, size_t cap)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    const char *env[] = {"PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env, .root = root, .merge_stderr = true};
    kg_answer_t a = harness_spawn_opts(&b->h, b->sbx, &opts);
    if (a.failed) {
        (void)fprintf(stderr, "%s\n", a.err.message);
    }
    assert_non_null(a.proc);
    harness_read(&b->h, kg_proc_take_stdout(a.proc), ret_text, cap);
    (void)harness_exit(&b->h, a.proc);
    kg_proc_close(&a.proc);
}

static void root_and_user_of_a_namespace(void **state)
{
    kg_box_t *b = *state;
    char text[1024];

    run_text(b, false, "id -u; pwd; grep CapBnd /proc/self/status; touch /etc/x 2>&1 | cut -c1-6",
             text, sizeof(text));
    assert_string_equal(text, "1000\n/workspace\nCapBnd:\t0000000000000000\ntouch:\n");
    run_text(b, true, "id -u; touch /etc/x && echo made; stat -c %u /etc/x", text, sizeof(text));
    assert_string_equal(text, "0\nmade\n0\n");
    assert_int_equal(open_code(b, "/etc/x", KG_FS_OPEN_READ), OK);
    assert_int_equal(open_code(b, "/etc/x", KG_FS_OPEN_WRITE), KG_ERR_FORBIDDEN);
    assert_int_equal(open_code(b, "/proc/1/environ", KG_FS_OPEN_READ), KG_ERR_FORBIDDEN);
    assert_int_equal(open_code(b, "/proc/self/mem", KG_FS_OPEN_WRITE), KG_ERR_FORBIDDEN);
    assert_int_equal(open_code(b, "/dev/zero", KG_FS_OPEN_READ), KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, b->outside, KG_FS_OPEN_READ), KG_ERR_NOT_FOUND);
    write_file(b, "/tmp/t/f", "over");
    assert_int_equal(files_move(&b->h, b->sbx, "/tmp/t", "/workspace/t", false).err.code, OK);
    expect_file(b, "/workspace/t/f", "over");
    assert_int_equal(files_stat(&b->h, b->sbx, "/tmp/t", false).err.code, KG_ERR_NOT_FOUND);
}

static void pids_of_a_namespace(void **state)
{
    kg_box_t *b = *state;
    kg_proc_t *proc = harness_sh(&b->h, b->sbx, "exec sleep 1000");
    assert_true(kg_proc_inner_pid(proc) > 1 && kg_proc_inner_pid(proc) < 1000);
    assert_int_not_equal(kg_proc_inner_pid(proc), kg_proc_pid(proc));
    assert_true(harness_alive(kg_proc_pid(proc)));
    assert_int_equal(kg_proc_kill_tree(proc), 0);
    assert_true(harness_exit(&b->h, proc).signaled);
    harness_wait_gone(&b->h, kg_proc_pid(proc));
    kg_proc_close(&proc);
}

/* Its loopback is its own. */
static void ports_of_a_namespace(void **state)
{
    kg_box_t *b = *state;
    uint16_t port = 0;
    char text[64] = "";
    int fd = listen_on(AF_INET, &port);
    assert_int_equal(files_port(&b->h, b->sbx, port).err.code, KG_ERR_CONFLICT);
    close(fd);
    for (int v6 = 0; v6 < 2; v6++) {
        kg_proc_t *proc =
            harness_sh(&b->h, b->sbx,
                       v6 ? "exec /usr/bin/python3 -uc 'import socket\n"
                            "s = socket.create_server((\"::1\", 8001), family=socket.AF_INET6)\n"
                            "print(1); s.accept()[0].sendall(b\"six\")'"
                          : "exec /usr/bin/python3 -uc 'import socket\n"
                            "s = socket.create_server((\"127.0.0.1\", 8000))\n"
                            "print(1); s.accept()[0].sendall(b\"four\")'");
        int out = kg_proc_take_stdout(proc);
        struct pollfd p = {.fd = out, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        kg_files_answer_t a = files_port(&b->h, b->sbx, v6 ? 8001 : 8000);
        assert_int_equal(a.err.code, OK);
        harness_read(&b->h, a.fd, text, sizeof(text));
        assert_string_equal(text, v6 ? "six" : "four");
        close(out);
        kg_proc_close(&proc);
    }
}

#ifdef __has_feature
#define KG_CLANG_ASAN __has_feature(address_sanitizer)
#else
#define KG_CLANG_ASAN 0
#endif

/* What a sandbox costs of ours: sandal-init, the minder of a process, and no more once a file
 * request is answered. */
static void memory_of_a_sandbox(void **state)
{
    kg_box_t *b = *state;
    const kg_sbx_info_t *info = kg_sbx_info(b->sbx);
    kg_proc_t *proc = harness_sh(&b->h, b->sbx, "exec sleep 1000");
    free(files_list(&b->h, b->sbx, "/usr/bin", NULL).rows);
#if defined(__SANITIZE_ADDRESS__) || KG_CLANG_ASAN
    const uint64_t most = UINT64_MAX; /* its shadow counts too */
#else
    const uint64_t most = 1536;
#endif
    uint64_t init = harness_rss_kib(info->init_pid);
    (void)printf("# sandal-init RSS: %llu KiB\n", (unsigned long long)init);
    assert_true(init > 0 && init <= most);
    kg_proc_close(&proc);
}
static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(watches_tell_of_changes),
        T(ports_are_reached_or_refused),
        T(terminal_echoes_and_resizes),
        T(processes_are_found_by_token),
    };
#define N(name) cmocka_unit_test_setup_teardown(name, setup_namespace, teardown)
    const struct CMUnitTest inside[] = {
        N(watches_tell_of_changes), N(terminal_echoes_and_resizes), N(root_and_user_of_a_namespace),
        N(pids_of_a_namespace),     N(ports_of_a_namespace),        N(memory_of_a_sandbox),
    };
    if (geteuid() != 0) {
        return cmocka_run_group_tests_name("sandbox place, rootless", tests, NULL, NULL);
    }
    return cmocka_run_group_tests_name("sandbox place, root", tests, NULL, NULL) +
           cmocka_run_group_tests_name("sandbox place, namespace", inside, NULL, NULL);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return harness_run_both(run);
}
