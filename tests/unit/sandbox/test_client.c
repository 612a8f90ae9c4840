/* Keeper, sandal-init and client together, as real processes; as root and as an ordinary user:
 * sandboxes, their run directories, and who may do what. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/sandbox/client_rig.h"

/* ---- sandboxes ---- */

static void launchers_are_known(void **state)
{
    kg_harness_t *h = *state;
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(h->keeper, &count);
    assert_true(count > 1); /* best first, the last is none */
    for (size_t i = 1; i < count; i++) {
        assert_true(rows[i].rank < rows[i - 1].rank);
    }
    assert_string_equal(rows[count - 1].name, "none");
    assert_true(rows[count - 1].available);
    assert_int_equal(rows[count - 1].rank, 0);
    assert_int_equal(kg_keeper_pid(h->keeper), h->keeper_pid);
}

static void create_makes_closed_directories_of_own_uid(void **state)
{
    kg_harness_t *h = *state;
    struct stat st;
    kg_sbx_t *a = harness_sandbox(h, ID_A);
    kg_sbx_t *b = harness_sandbox(h, ID_B);
    const kg_sbx_info_t *info = kg_sbx_info(a);

    assert_string_equal(info->id, ID_A);
    assert_string_equal(info->isolation, "none");
    assert_int_equal(stat(info->workspace, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, info->uid);
    assert_int_equal(stat(info->run_dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, info->uid);
    if (is_root()) {
        assert_true(info->uid >= HARNESS_UID_BASE &&
                    info->uid < HARNESS_UID_BASE + HARNESS_UID_COUNT);
        assert_int_not_equal(info->uid, kg_sbx_info(b)->uid);
    } else {
        assert_int_equal(info->uid, geteuid());
    }
    char workspace[KG_SBX_PATH_MAX];
    (void)snprintf(workspace, sizeof(workspace), "%s", info->workspace);
    harness_destroy(h, &a, false);
    assert_int_equal(stat(workspace, &st), -1);
    harness_destroy(h, &b, false);
}

static void create_unknown_launcher_names_what_there_is(void **state)
{
    kg_harness_t *h = *state;
    kg_answer_t a = harness_create(h, ID_A, "nonsense", false);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_ISOLATION_UNAVAILABLE);
    assert_non_null(strstr(a.err.hint, "none"));
}

static void create_twice_is_a_conflict(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_answer_t a = harness_create(h, ID_A, "none", true);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_CONFLICT);
    harness_destroy(h, &sbx, false);
}

static void create_bad_id_is_refused_at_once(void **state)
{
    kg_harness_t *h = *state;
    kg_err_t err = {0};
    const char *bad[] = {"",
                         "sbx-",
                         "sbx-../../etc",
                         "../sbx-aaaaaaaaaa",
                         "sbx-AAAAAAAAAAAA",
                         "sbx-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_sandbox_opts_t opts = {.id = bad[i], .launcher = "none"};
        assert_true(kg_sandbox_create(h->keeper, &opts, NULL, NULL, &err) < 0);
        assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
    }
}

static void all_slots_taken_is_quota_exceeded(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *all[HARNESS_UID_COUNT / KG_UID_RANGE];
    char id[48];

    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        (void)snprintf(id, sizeof(id), "sbx-tests%015zu", i);
        all[i] = harness_sandbox(h, id);
    }
    kg_answer_t a = harness_create(h, "sbx-tests999999999999999", "none", false);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_QUOTA_EXCEEDED);
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        harness_destroy(h, &all[i], false);
    }
}

/* A process that is dead, and has not been waited for, when the keeper starts. */
static pid_t dead_pid;

static int setup_beside_the_dead(void **state)
{
    siginfo_t info;
    const uid_t uid = HARNESS_UID_BASE; /* before fork: it depends on the pid */
    dead_pid = fork();
    if (dead_pid == 0) {
        _exit(setresuid(uid, uid, uid) < 0); /* an ordinary user has one uid for all */
    }
    if (dead_pid < 0 || waitid(P_PID, (id_t)dead_pid, &info, WEXITED | WNOWAIT) < 0) {
        return -1;
    }
    return setup(state);
}

static int teardown_the_dead(void **state)
{
    int status;
    int rc = teardown(state);
    return waitpid(dead_pid, &status, 0) == dead_pid ? rc : -1;
}

/* init of a container may take seconds to wait for what was left to it. */
static void a_dead_process_has_no_uids(void **state)
{
    all_slots_taken_is_quota_exceeded(state);
}

static void kept_directories_come_back_with_their_uid(void **state)
{
    kg_harness_t *h = *state;
    char text[64];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    kg_proc_t *proc = harness_sh(h, sbx, "echo kept > file");
    assert_int_equal(harness_exit(h, proc).code, 0);
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, true);

    kg_answer_t a = harness_create(h, ID_A, "none", false);
    assert_int_equal(a.err.code, KG_ERR_CONFLICT); /* not without reuse */
    harness_stop(h);
    harness_start(h); /* as after a restart of the daemon */
    kg_sbx_t *other = harness_sandbox(h, ID_B);
    if (is_root()) {
        assert_int_not_equal(kg_sbx_info(other)->uid, uid);
    }
    a = harness_create(h, ID_A, "none", true);
    assert_non_null(a.sbx);
    assert_int_equal(kg_sbx_info(a.sbx)->uid, uid);
    proc = harness_sh(h, a.sbx, "cat file");
    harness_read(h, kg_proc_take_stdout(proc), text, sizeof(text));
    assert_string_equal(text, "kept\n");
    kg_proc_close(&proc);
    harness_destroy(h, &a.sbx, false);
    harness_destroy(h, &other, false);
}

/* ---- the run directory ---- */

static void run_in(kg_harness_t *h, kg_sbx_t *sbx, const char *script)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env, .cwd = kg_sbx_info(sbx)->run_dir};
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    assert_non_null(a.proc);
    assert_int_equal(harness_exit(h, a.proc).code, 0);
    kg_proc_close(&a.proc);
}

#define PY_SOCKET(name, rest)                                                                      \
    "exec /usr/bin/python3 -c 'import socket,os,time; s=socket.socket(socket.AF_UNIX); "           \
    "s.bind(\"" name "\"); " rest "'"

static void socket_open_takes_listening_sockets_only(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    const char *argv[] = {
        "sh", "-c",
        PY_SOCKET("k", "s.listen(5); print(1, flush=True); os.close(1); time.sleep(100)"), NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {
        .argv = argv, .env = env, .cwd = kg_sbx_info(sbx)->run_dir, .umask_bits = 077};
    char text[16];

    assert_int_equal(harness_socket(h, sbx, "k"), -ENOENT);
    run_in(h, sbx, PY_SOCKET("silent", ""));
    run_in(h, sbx, "echo > file; ln -s k link; ln -s /etc/passwd out; mkfifo pipe; mkdir dir");
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    harness_read(h, kg_proc_take_stdout(a.proc), text, sizeof(text));
    int fd = harness_socket(h, sbx, "k");
    assert_true(fd >= 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d", fd);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(sock);
    close(fd);
    assert_int_equal(harness_socket(h, sbx, "silent"), -ECONNREFUSED);
    const char *bad[] = {"file", "link", "out", "pipe", "dir"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(harness_socket(h, sbx, bad[i]), -EPERM);
    }
    assert_int_equal(kg_sbx_socket_open(sbx, "../x", NULL, NULL), -EINVAL);
    assert_int_equal(kg_sbx_socket_open(sbx, "..", NULL, NULL), -EINVAL);
    assert_int_equal(kg_sbx_socket_open(sbx, "", NULL, NULL), -EINVAL);
    kg_proc_close(&a.proc);
    harness_destroy(h, &sbx, false);
}

static void file_write_replaces_links_and_is_private(void **state)
{
    kg_harness_t *h = *state;
    char path[KG_SBX_PATH_MAX + 16];
    char victim[128];
    struct stat st;
    kg_answer_t a = {.h = h};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    char script[256];
    char *big = calloc(1, KG_SBX_FILE_MAX + 1);

    (void)snprintf(victim, sizeof(victim), "%s/victim", h->dir);
    int fd = open(victim, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "safe", 4), 4);
    close(fd);
    (void)snprintf(script, sizeof(script), "ln -s %s conn.json; mkdir dir", victim);
    run_in(h, sbx, script);
    assert_false(harness_write(h, sbx, "conn.json", kg_slice_cstr("{}")).failed);
    (void)snprintf(path, sizeof(path), "%s/conn.json", kg_sbx_info(sbx)->run_dir);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_uid, kg_sbx_info(sbx)->uid);
    assert_int_equal(st.st_size, 2);
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_true(harness_write(h, sbx, "dir", kg_slice_cstr("x")).failed);
    assert_false(harness_write(h, sbx, "big", kg_slice(big, KG_SBX_FILE_MAX)).failed);
    assert_int_equal(kg_sbx_file_write(sbx, "big", kg_slice(big, KG_SBX_FILE_MAX + 1), NULL, NULL),
                     -E2BIG);
    assert_int_equal(kg_sbx_file_unlink(sbx, "conn.json", harness_on_done, &a), 0);
    harness_wait(h, &a.come);
    assert_false(a.failed);
    assert_int_equal(lstat(path, &st), -1);
    run_in(h, sbx, "test -z \"$(ls -A | grep tmp)\"");
    free(big);
    harness_destroy(h, &sbx, false);
}

static void destroy_follows_no_link_and_any_depth(void **state)
{
    kg_harness_t *h = *state;
    char keep[128];
    char script[1024];
    struct stat st;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);

    (void)snprintf(keep, sizeof(keep), "%s/keep", h->dir);
    assert_int_equal(mkdir(keep, 0777), 0);
    assert_int_equal(chmod(keep, 0777), 0);
    (void)snprintf(script, sizeof(script),
                   "touch %s/me; ln -s %s a; mkdir b; ln -s %s b/c; ln -s / root; mkdir locked; "
                   "touch locked/x; "
                   "mkdir locked/deep; chmod 000 locked/deep locked; "
                   "/usr/bin/python3 -c 'import os\nfor i in range(3000):\n os.mkdir(\"d\"); "
                   "os.chdir(\"d\")\n open(\"f\",\"w\")'",
                   keep, keep, keep);
    kg_proc_t *proc = harness_sh(h, sbx, script);
    assert_int_equal(harness_exit(h, proc).code, 0);
    kg_proc_close(&proc);
    char workspace[KG_SBX_PATH_MAX];
    (void)snprintf(workspace, sizeof(workspace), "%s", kg_sbx_info(sbx)->workspace);
    harness_destroy(h, &sbx, false);
    assert_int_equal(stat(workspace, &st), -1);
    (void)snprintf(script, sizeof(script), "%s/me", keep);
    assert_int_equal(stat(script, &st), 0);
}

/* ---- who may do what ---- */

static void sandbox_cannot_touch_its_init(void **state)
{
    kg_harness_t *h = *state;
    char script[512];
    char text[256];
    if (!is_root()) {
        skip(); /* rootless: same user, as documented */
    }
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    pid_t init = kg_sbx_info(sbx)->init_pid;
    (void)snprintf(
        script, sizeof(script),
        "kill -9 %d 2>/dev/null && echo killed; kill -9 $PPID 2>/dev/null && echo killed; "
        "kill -9 %d 2>/dev/null && echo killed; cat /proc/%d/mem >/dev/null 2>&1 && echo read; "
        "ls /proc/%d/fd >/dev/null 2>&1 && echo listed; "
        "/usr/bin/python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, %d, 0, 0))'",
        init, h->keeper_pid, init, init, init);
    kg_proc_t *proc = harness_sh(h, sbx, script);
    harness_read(h, kg_proc_take_stdout(proc), text, sizeof(text));
    assert_string_equal(text, "-1\n");
    assert_true(harness_alive(init));
    kg_proc_close(&proc);
    harness_destroy(h, &sbx, false);
}

static void sandboxes_cannot_reach_each_other(void **state)
{
    kg_harness_t *h = *state;
    char script[1200];
    char text[256];
    if (!is_root()) {
        skip();
    }
    kg_sbx_t *a = harness_sandbox(h, ID_A);
    kg_sbx_t *b = harness_sandbox(h, ID_B);
    kg_proc_t *other = harness_sh(h, b, "exec sleep 100");
    (void)snprintf(
        script, sizeof(script),
        "ls %s 2>/dev/null && echo listed; ls %s 2>/dev/null && echo listed; kill -9 %d "
        "2>/dev/null && echo killed; "
        "ls %s/sandboxes 2>/dev/null && echo listed; ls %s 2>/dev/null && echo listed; echo end",
        kg_sbx_info(b)->workspace, kg_sbx_info(b)->run_dir, kg_proc_pid(other), h->state,
        h->runtime);
    kg_proc_t *proc = harness_sh(h, a, script);
    harness_read(h, kg_proc_take_stdout(proc), text, sizeof(text));
    assert_string_equal(text, "end\n");
    kg_proc_close(&proc);
    kg_proc_close(&other);
    harness_destroy(h, &a, false);
    harness_destroy(h, &b, false);
}

static void keeper_killed_leaves_nothing(void **state)
{
    kg_harness_t *h = *state;
    kg_proc_t *proc;
    int status;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    pid_t init = kg_sbx_info(sbx)->init_pid;
    pid_t daemon = start_daemon(h, sbx, "exec sleep 1000", &proc);
    pid_t main_pid = kg_proc_pid(proc);
    kg_answer_t lost = {.h = h};
    kg_sbx_on_lost(sbx, on_lost, &lost);
    assert_int_equal(kill(h->keeper_pid, SIGKILL), 0);
    assert_int_equal(waitpid(h->keeper_pid, &status, 0), h->keeper_pid);
    harness_wait(h, &lost.come);
    harness_wait(h, &h->keeper_lost);
    harness_wait_gone(h, init);
    assert_false(harness_alive(daemon));
    assert_false(harness_alive(main_pid));
    if (is_root()) {
        assert_int_equal(harness_count_uid(uid), 0);
    }
    kg_answer_t done = {.h = h};
    kg_sbx_destroy(&sbx, false, harness_on_done, &done);
    harness_wait(h, &done.come);
    assert_true(done.failed);
    kg_proc_close(&proc);
    kg_keeper_close(&h->keeper);
}

static void closing_the_client_ends_everything(void **state)
{
    kg_harness_t *h = *state;
    kg_proc_t *proc;
    kg_answer_t lost = {.h = h};
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    pid_t daemon = start_daemon(h, sbx, "exec sleep 1000", &proc);
    kg_sbx_on_lost(sbx, on_lost, &lost);
    harness_stop(h);
    assert_false(harness_alive(daemon));
    harness_wait(h, &lost.come);
    kg_proc_close(&proc);
    kg_sbx_destroy(&sbx, false, NULL, NULL);
}

static void many_rounds_leave_nothing_behind(void **state)
{
    kg_harness_t *h = *state;
    const char *rounds_text = getenv("SANDAL_TEST_ROUNDS");
    long rounds = rounds_text ? strtol(rounds_text, NULL, 10) : 50;
    size_t keeper_fds = 0;
    size_t own_fds = 0;

    for (long i = 0; i < rounds; i++) {
        kg_sbx_t *sbx = harness_sandbox(h, ID_A);
        kg_proc_t *proc = harness_sh(h, sbx, "echo > f; sleep 100 & exit 0");
        assert_int_equal(harness_exit(h, proc).code, 0);
        kg_proc_close(&proc);
        harness_destroy(h, &sbx, false);
        if (i == 2) {
            keeper_fds = harness_open_fds(h->keeper_pid);
            own_fds = harness_open_fds(getpid());
        }
    }
    assert_int_equal(harness_open_fds(h->keeper_pid), keeper_fds);
    assert_int_equal(harness_open_fds(getpid()), own_fds);
    (void)printf("# keeper RSS after %ld rounds: %llu KiB\n", rounds,
                 (unsigned long long)harness_rss_kib(h->keeper_pid));
}
static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(launchers_are_known),
        T(create_makes_closed_directories_of_own_uid),
        T(create_unknown_launcher_names_what_there_is),
        T(create_twice_is_a_conflict),
        T(create_bad_id_is_refused_at_once),
        T(all_slots_taken_is_quota_exceeded),
        cmocka_unit_test_setup_teardown(a_dead_process_has_no_uids, setup_beside_the_dead,
                                        teardown_the_dead),
        T(kept_directories_come_back_with_their_uid),
        T(socket_open_takes_listening_sockets_only),
        T(file_write_replaces_links_and_is_private),
        T(destroy_follows_no_link_and_any_depth),
        T(sandbox_cannot_touch_its_init),
        T(sandboxes_cannot_reach_each_other),
        T(keeper_killed_leaves_nothing),
        T(closing_the_client_ends_everything),
        T(many_rounds_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name(
        geteuid() == 0 ? "sandbox client, root" : "sandbox client, rootless", tests, NULL, NULL);
}

int main(void)
{
    return harness_run_both(run);
}
