/* Keeper, sandal-init and client together, as real processes; as root and as an ordinary user:
 * processes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "tests/unit/sandbox/client_rig.h"

/* ---- processes ---- */

static void spawn_gives_output_code_and_usage(void **state)
{
    kg_harness_t *h = *state;
    char out[256];
    char err[256];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_proc_t *proc = harness_sh(h, sbx, "pwd; echo bad >&2; exit 7");
    harness_read(h, kg_proc_take_stdout(proc), out, sizeof(out));
    harness_read(h, kg_proc_take_stderr(proc), err, sizeof(err));
    kg_exit_t exit = harness_exit(h, proc);
    assert_true(exit.exited);
    assert_int_equal(exit.code, 7);
    assert_true(exit.maxrss_bytes > 0);
    out[strcspn(out, "\n")] = '\0';
    assert_string_equal(out, kg_sbx_info(sbx)->workspace);
    assert_string_equal(err, "bad\n");
    assert_int_equal(kg_proc_signal(proc, SIGTERM, false), -ESRCH);
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, false);
}

static void spawn_has_exactly_the_given_surroundings(void **state)
{
    kg_harness_t *h = *state;
    char out[2048];
    char want[128];
    const char *argv[] = {
        "sh", "-c",
        "env | sort; id -u; id -g; id -G; umask; ulimit -n; ulimit -Hn; ulimit -c; ls "
        "/proc/self/fd; "
        "grep -E '^(CapEff|CapPrm|CapInh|NoNewPrivs|SigIgn|SigBlk)' /proc/self/status; "
        "ps -o sid= -p $$ | tr -d ' '; echo $$",
        NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", "A=1", "B=x=y", NULL};
    kg_spawn_opts_t opts = {.argv = argv,
                            .env = env,
                            .cwd = "/",
                            .nofile = 123,
                            .umask_bits = 077,
                            .merge_stderr = true};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    (void)signal(SIGINT, SIG_IGN);
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    (void)signal(SIGINT, SIG_DFL);
    assert_int_equal(kg_proc_take_stderr(a.proc), -1);
    harness_read(h, kg_proc_take_stdout(a.proc), out, sizeof(out));
    unsigned uid = kg_sbx_info(sbx)->uid;
    (void)snprintf(want, sizeof(want), "\n%u\n%u\n%u\n0077\n123\n123\n0\n0\n1\n2\n3\n", uid,
                   kg_sbx_info(sbx)->gid, kg_sbx_info(sbx)->gid);
    if (!strstr(out, want)) {
        (void)fprintf(stderr, "got: %s\nwant: %s\n", out, want);
    }
    assert_non_null(strstr(out, want));
    assert_int_equal(strncmp(out, "A=1\nB=x=y\nPATH=/usr/bin:/bin\nPWD=/\n", 35), 0);
    assert_non_null(strstr(out, "CapPrm:\t0000000000000000\n"));
    assert_non_null(strstr(out, "CapEff:\t0000000000000000\n"));
    assert_non_null(strstr(out, "NoNewPrivs:\t1\n"));
    assert_non_null(strstr(out, "SigIgn:\t0000000000000000\n"));
    assert_non_null(strstr(out, "SigBlk:\t0000000000000000\n"));
    kg_exit_t exit = harness_exit(h, a.proc);
    assert_int_equal(exit.code, 0);
    kg_proc_close(&a.proc);
    harness_destroy(h, &sbx, false);
}

static void stdin_pipe_is_the_gateways(void **state)
{
    kg_harness_t *h = *state;
    char out[64];
    const char *argv[] = {"/bin/cat", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .stdin_pipe = true};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    int in = kg_proc_take_stdin(a.proc);
    assert_true(fcntl(in, F_GETFL) & O_NONBLOCK);
    assert_int_equal(write(in, "hello", 5), 5);
    close(in);
    harness_read(h, kg_proc_take_stdout(a.proc), out, sizeof(out));
    assert_string_equal(out, "hello");
    kg_proc_close(&a.proc);
    harness_destroy(h, &sbx, false);
}

static void expect_spawn_error(kg_harness_t *h,
                               kg_sbx_t *sbx,
                               const char *program,
                               const char *cwd,
                               kg_err_code_t code,
                               const char *message)
{
    const char *argv[] = {program, NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env, .cwd = cwd};
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    assert_true(a.failed);
    assert_string_equal(a.err.message, message);
    assert_int_equal(a.err.code, code);
}

static void spawn_failure_says_which_step(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    expect_spawn_error(h, sbx, "no-such-thing", NULL, KG_ERR_NOT_FOUND,
                       "cannot execute \"no-such-thing\": No such file or directory");
    expect_spawn_error(h, sbx, "/etc/passwd", NULL, KG_ERR_FORBIDDEN,
                       "cannot execute \"/etc/passwd\": Permission denied");
    expect_spawn_error(h, sbx, "true", "/nowhere", KG_ERR_NOT_FOUND,
                       "cannot enter directory \"/nowhere\": No such file or directory");
    expect_spawn_error(h, sbx, "true", "/etc/passwd", KG_ERR_NOT_FOUND,
                       "cannot enter directory \"/etc/passwd\": Not a directory");
    if (is_root()) { /* the directory is entered with the sandbox's rights */
        expect_spawn_error(h, sbx, "true", "/root", KG_ERR_FORBIDDEN,
                           "cannot enter directory \"/root\": Permission denied");
    }
    harness_destroy(h, &sbx, false);
}

static void spawn_too_large_is_refused_at_once(void **state)
{
    kg_harness_t *h = *state;
    kg_err_t err = {0};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    char *big = malloc(KG_SBX_STRINGS_MAX + 1);
    memset(big, 'x', KG_SBX_STRINGS_MAX);
    big[KG_SBX_STRINGS_MAX] = '\0';
    const char *argv[] = {"/bin/true", big, NULL};
    kg_spawn_opts_t opts = {.argv = argv};
    assert_true(kg_sbx_spawn(sbx, &opts, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, KG_ERR_TOO_LARGE);
    big[KG_SBX_STRINGS_MAX - 12] =
        '\0'; /* with "/bin/true", "" of cwd and the NULs exactly at the limit */
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    assert_non_null(a.proc);
    assert_int_equal(harness_exit(h, a.proc).code, 0);
    kg_proc_close(&a.proc);
    free(big);
    harness_destroy(h, &sbx, false);
}

static void signals_reach_process_or_group(void **state)
{
    kg_harness_t *h = *state;
    char text[16];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_proc_t *proc =
        harness_sh(h, sbx, "trap 'exit 42' INT; echo r; exec >&-; while :; do sleep 0.05; done");
    harness_read(h, kg_proc_take_stdout(proc), text, sizeof(text));
    assert_int_equal(kg_proc_signal(proc, SIGINT, true), 0);
    assert_int_equal(harness_exit(h, proc).code, 42);
    kg_proc_close(&proc);

    proc = harness_sh(h, sbx, "exec sleep 100");
    assert_int_equal(kg_proc_signal(proc, SIGKILL, false), 0);
    kg_exit_t exit = harness_exit(h, proc);
    assert_true(exit.signaled);
    assert_int_equal(exit.signal, SIGKILL);
    assert_int_equal(kg_proc_signal(proc, 65, false), -EINVAL);
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, false);
}

static void kill_tree_finds_daemonised_grandchildren(void **state)
{
    kg_harness_t *h = *state;
    kg_proc_t *first;
    kg_proc_t *second;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    pid_t a = start_daemon(h, sbx, "exec sleep 1000", &first);
    pid_t b = start_daemon(h, sbx, "exit 0", &second); /* its main process is gone */
    assert_int_equal(harness_exit(h, second).code, 0);

    assert_int_equal(kg_proc_kill_tree(first), 0);
    kg_exit_t exit = harness_exit(h, first);
    assert_int_equal(exit.signal, SIGKILL);
    harness_wait_gone(h, a);
    assert_true(harness_alive(b)); /* the other tree is untouched */
    assert_int_equal(kg_proc_kill_tree(second), 0);
    harness_wait_gone(h, b);
    kg_proc_close(&first);
    kg_proc_close(&second);
    harness_destroy(h, &sbx, false);
}

static void destroy_leaves_no_process(void **state)
{
    kg_harness_t *h = *state;
    kg_proc_t *first;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    pid_t init = kg_sbx_info(sbx)->init_pid;
    pid_t daemon = start_daemon(h, sbx, "sleep 1000 & sleep 1000 & wait", &first);
    pid_t main_pid = kg_proc_pid(first);
    harness_destroy(h, &sbx, false);
    assert_false(harness_alive(daemon));
    assert_false(harness_alive(main_pid));
    assert_false(harness_alive(init));
    if (is_root()) {
        assert_int_equal(harness_count_uid(uid), 0);
    }
    assert_true(harness_exit(h, first).lost);
    assert_int_equal(kg_proc_kill_tree(first), -ESRCH);
    kg_proc_close(&first);
}

static void destroy_ends_a_fork_bomb(void **state)
{
    kg_harness_t *h = *state;
    if (!is_root()) {
        skip(); /* rootless it is best effort */
    }
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    /* bash: dash has no -u. The bomb must stay small, or it takes the machine along. */
    kg_proc_t *proc = harness_sh(
        h, sbx,
        "exec bash -c 'ulimit -u 300 || exit; f() { f & f & sleep 0.01; f; }; f 2>/dev/null'");
    harness_spin(h, 200);
    assert_true(harness_count_uid(uid) > 5);
    harness_destroy(h, &sbx, false);
    assert_int_equal(harness_count_uid(uid), 0);
    kg_proc_close(&proc);
}

static void on_usage(void *user, const kg_usage_t *usage, const kg_err_t *err)
{
    kg_answer_t *a = user;
    a->failed = err != NULL;
    if (usage) {
        a->usage = *usage;
    }
    a->come = true;
    kg_loop_stop(a->h->loop);
}

static void usage_counts_the_tree(void **state)
{
    kg_harness_t *h = *state;
    char text[16];
    kg_answer_t a = {.h = h};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_proc_t *proc = harness_sh(h, sbx,
                                 "sleep 100 >&- & /usr/bin/python3 -c "
                                 "'sum(range(10**7))\nprint(1)'; exec >&-; exec sleep 100");
    harness_read(h, kg_proc_take_stdout(proc), text, sizeof(text));
    assert_int_equal(kg_proc_usage(proc, on_usage, &a), 0);
    harness_wait(h, &a.come);
    assert_false(a.failed);
    assert_true(a.usage.processes >= 2);
    assert_true(a.usage.cpu_ns > 5 * KG_NS_PER_MS);
    assert_true(a.usage.rss_bytes > 100000 && a.usage.peak_bytes >= a.usage.rss_bytes / 2);
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, false);
}

static void exit_that_came_early_is_still_told(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_proc_t *proc = harness_sh(h, sbx, "exit 3");
    harness_spin(h, 200);
    assert_int_equal(harness_exit(h, proc).code, 3);
    kg_proc_close(&proc);
    proc = harness_sh(h, sbx, "sleep 0.1; exit 3");
    kg_proc_close(&proc); /* acknowledged before it comes */
    harness_spin(h, 300);
    harness_destroy(h, &sbx, false);
}

static void never(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    (void)user;
    (void)proc;
    (void)err;
    fail();
}

static void forgotten_spawn_is_killed(void **state)
{
    kg_harness_t *h = *state;
    const char *argv[] = {"/bin/sh", "-c", "sleep 1; echo > survived; sleep 100", NULL};
    kg_spawn_opts_t opts = {.argv = argv};
    kg_err_t err = {0};
    char path[KG_SBX_PATH_MAX + 16];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    assert_int_equal(kg_sbx_spawn(sbx, &opts, never, h, &err), 0);
    kg_sbx_forget(sbx, h);
    harness_spin(h, 1500);
    (void)snprintf(path, sizeof(path), "%s/survived", kg_sbx_info(sbx)->workspace);
    assert_int_equal(access(path, F_OK), -1);
    harness_destroy(h, &sbx, false);
}

static void lost_sandbox_fails_everything_that_waits(void **state)
{
    kg_harness_t *h = *state;
    kg_answer_t lost = {.h = h};
    kg_answer_t usage = {.h = h};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_proc_t *proc = harness_sh(h, sbx, "exec sleep 1000");
    pid_t pid = kg_proc_pid(proc);
    kg_sbx_on_lost(sbx, on_lost, &lost);
    assert_int_equal(kill(kg_sbx_info(sbx)->init_pid, SIGSTOP), 0);
    assert_int_equal(kg_proc_usage(proc, on_usage, &usage), 0);
    assert_int_equal(kill(kg_sbx_info(sbx)->init_pid, SIGKILL), 0);
    harness_wait(h, &lost.come);
    assert_true(usage.come && usage.failed);
    assert_true(kg_sbx_is_lost(sbx));
    assert_true(harness_exit(h, proc).lost);
    harness_wait_gone(h, pid); /* the keeper cleans up unasked */
    assert_int_equal(kg_sbx_socket_open(sbx, "x", NULL, NULL), -EPIPE);
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, false);
}
static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(spawn_gives_output_code_and_usage),
        T(spawn_has_exactly_the_given_surroundings),
        T(stdin_pipe_is_the_gateways),
        T(spawn_failure_says_which_step),
        T(spawn_too_large_is_refused_at_once),
        T(signals_reach_process_or_group),
        T(kill_tree_finds_daemonised_grandchildren),
        T(destroy_leaves_no_process),
        T(destroy_ends_a_fork_bomb),
        T(usage_counts_the_tree),
        T(exit_that_came_early_is_still_told),
        T(forgotten_spawn_is_killed),
        T(lost_sandbox_fails_everything_that_waits),
    };
    return cmocka_run_group_tests_name(geteuid() == 0 ? "sandbox processes, root"
                                                      : "sandbox processes, rootless",
                                       tests, NULL, NULL);
}

int main(void)
{
    return harness_run_both(run);
}
