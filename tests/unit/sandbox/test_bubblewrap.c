/* The launcher bubblewrap, as root and as an ordinary user: what is seen inside, what isn't, which
 * limits hold, and that nothing is left. Skipped where bwrap doesn't work. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/str.h"
#include "harness.h"

#define ID "sbx-bwrap0000000000000001"
#define MIB (UINT64_C(1) << 20)
/* bwrap prints ids as signed numbers. */
#define UID_BASE (0x18000000U + (unsigned)getpid() % 32U * HARNESS_UID_COUNT)

static kg_harness_t box;

static const kg_launcher_info_t *launcher(void)
{
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(box.keeper, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, "bubblewrap") == 0) {
            return &rows[i];
        }
    }
    fail_msg("the keeper has no bubblewrap");
    return NULL;
}

static int setup(void **state)
{
    (void)state;
    harness_init(&box);
    box.uid_base = UID_BASE;
    harness_start(&box);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    harness_stop(&box);
    harness_fini(&box);
    return 0;
}

static void on_created(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_answer_t *a = user;
    a->come = true;
    a->sbx = sbx;
    a->failed = err != NULL;
    if (err) {
        a->err = *err;
    }
    kg_loop_stop(a->h->loop);
}

static kg_answer_t create_with(const kg_limits_t *limits, const kg_net_wish_t *network, bool reuse)
{
    kg_answer_t a = {.h = &box};
    kg_err_t err = {0};
    kg_sandbox_opts_t opts = {.id = ID, .launcher = "bubblewrap", .reuse = reuse};
    const kg_launcher_info_t *row = launcher();

    if (!row || !row->available) {
        print_message("skipped: %s\n", row ? row->reason : "");
        skip();
    }
    if (limits) {
        opts.limits = *limits;
    }
    if (network) {
        opts.network = *network;
    }
    assert_int_equal(kg_sandbox_create(box.keeper, &opts, on_created, &a, &err), 0);
    harness_wait(&box, &a.come);
    return a;
}

static kg_sbx_t *create(const kg_limits_t *limits)
{
    kg_answer_t a = create_with(limits, NULL, false);
    if (a.failed) {
        fail_msg("%s", a.err.message);
    }
    return a.sbx;
}

/* What a script says; its exit status must be 0. */
static void run(kg_sbx_t *sbx, const char *script, char *ret_text, size_t cap)
{
    kg_proc_t *proc = harness_sh(&box, sbx, script);
    harness_read(&box, kg_proc_take_stdout(proc), ret_text, cap);
    kg_exit_t exit = harness_exit(&box, proc);
    if (!exit.exited || exit.code != 0) {
        fail_msg("exit %d of: %s\n%s", exit.code, script, ret_text);
    }
    kg_proc_close(&proc);
}

static void assert_says(kg_sbx_t *sbx, const char *script, const char *want)
{
    char text[4096];
    run(sbx, script, text, sizeof(text));
    assert_string_equal(text, want);
}

static void inside_is_its_own(void **state)
{
    char script[512];
    (void)state;
    kg_sbx_t *sbx = create(NULL);
    const kg_sbx_info_t *info = kg_sbx_info(sbx);
    assert_string_equal(info->isolation, "bubblewrap");
    assert_string_equal(info->workspace, "/workspace");
    assert_string_equal(info->home, "/home/user");
    assert_string_equal(info->run_dir, "/run/sandal");
    assert_true(info->own_root && !info->has_root);
    assert_string_equal(info->isolation_info.userns, "own");
    assert_string_equal(info->isolation_info.network, "none");
    assert_int_equal(info->uid, geteuid() == 0 ? UID_BASE + KG_UID_USER : geteuid());

    assert_says(sbx, "id -u; id -g; id -un; hostname; pwd; cat /proc/1/comm",
                "1000\n1000\nuser\nsandbox\n/workspace\n.sandal-init\n");
    assert_says(sbx, "cat /proc/net/dev | grep -c :; grep CapEff /proc/self/status",
                "1\nCapEff:\t0000000000000000\n");
    assert_says(sbx, "touch /workspace/a /home/user/b /tmp/c /var/tmp/d /dev/shm/e && echo yes",
                "yes\n");
    (void)snprintf(script, sizeof(script),
                   "for i in /etc /usr /home /var /root /run /sys %s; do "
                   "touch $i/x 2>/dev/null && echo $i; done; "
                   "for i in /etc/shadow %s %s /proc/1/environ /proc/1/fd; do "
                   "head -c 1 $i/. >/dev/null 2>&1 && echo $i; ls $i/ 2>/dev/null; done; true",
                   "/opt", box.state, box.runtime);
    assert_says(sbx, script, "/run\n");
    (void)snprintf(script, sizeof(script), "kill -0 %d 2>/dev/null && echo seen; true",
                   (int)box.keeper_pid);
    assert_says(sbx, script, "");
    assert_says(sbx, "unshare -U true 2>/dev/null && echo nested; true", "");
    harness_destroy(&box, &sbx, false);
}

static void files_and_sockets(void **state)
{
    char text[256];
    kg_answer_t a;
    (void)state;
    kg_sbx_t *sbx = create(NULL);
    a = harness_write(&box, sbx, "conn.json", kg_slice_cstr("{}"));
    assert_false(a.failed);
    assert_says(sbx, "cat /run/sandal/conn.json", "{}");
    kg_proc_t *server =
        harness_sh(&box, sbx,
                   "exec python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); "
                   "s.bind(\"/run/sandal/k\"); s.listen(); print(1, flush=True); "
                   "s.accept()[0].send(b\"hi\")'");
    int out = kg_proc_take_stdout(server);
    char one;
    while (read(out, &one, 1) < 0 && errno == EAGAIN) {
        harness_spin(&box, 1);
    }
    close(out);
    int fd = harness_socket(&box, sbx, "k");
    assert_true(fd >= 0);
    close(fd);
    kg_proc_close(&server);
    run(sbx, "echo kept > /workspace/file; echo kept > /home/user/file", text, sizeof(text));
    pid_t init = kg_sbx_info(sbx)->init_pid;
    harness_destroy(&box, &sbx, true);
    harness_wait_gone(&box, init);

    a = create_with(NULL, NULL, true);
    assert_false(a.failed);
    sbx = a.sbx;
    assert_says(sbx, "cat /workspace/file /home/user/file", "kept\nkept\n");
    harness_destroy(&box, &sbx, false);
}

static void all_of_it_dies(void **state)
{
    char text[64];
    (void)state;
    kg_sbx_t *sbx = create(NULL);
    pid_t init = kg_sbx_info(sbx)->init_pid;
    uid_t uid = kg_sbx_info(sbx)->uid;
    run(sbx, "for i in 1 2 3; do setsid sleep 1000 >/dev/null 2>&1 & done", text, sizeof(text));
    assert_true(harness_alive(init));
    harness_destroy(&box, &sbx, false);
    harness_wait_gone(&box, init);
    if (geteuid() == 0) {
        assert_int_equal(harness_count_uid(uid), 0);
    }
}

typedef struct kg_asked {
    bool come;
    bool failed;
    kg_box_usage_t usage;
} kg_asked_t;

static void on_usage(void *user, const kg_box_usage_t *usage, const kg_err_t *err)
{
    kg_asked_t *asked = user;
    asked->failed = err != NULL;
    if (usage) {
        asked->usage = *usage;
    }
    asked->come = true;
    kg_loop_stop(box.loop);
}

static kg_box_usage_t usage_of(kg_sbx_t *sbx)
{
    kg_asked_t asked = {0};
    assert_int_equal(kg_sbx_box_usage(sbx, on_usage, &asked), 0);
    harness_wait(&box, &asked.come);
    assert_false(asked.failed);
    return asked.usage;
}

/* How many processes there may be beside the shell, until fork says no. */
static const char *const FORKS =
    "python3 -c '\nimport os\nn = 0\ntry:\n  while n < 200:\n    if os.fork() == 0:\n"
    "      import time; os.close(1); os.close(2); time.sleep(1000)\n    n += 1\nexcept "
    "BlockingIOError:\n  print(\"no\", n < "
    "30)\nelse:\n  print(\"all\")'";

static void processes_are_limited(void **state)
{
    (void)state;
    kg_sbx_t *sbx = create(&(kg_limits_t){.pids = 30});
    assert_says(sbx, FORKS, "no True\n");
    harness_destroy(&box, &sbx, false);
}

#ifdef __has_feature
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif

static void memory_is_limited(void **state)
{
    (void)state;
    if (SANITIZED && geteuid() != 0) {
        skip(); /* an rlimit of addresses is nothing for sanitized programs */
    }
    kg_sbx_t *sbx = create(&(kg_limits_t){.memory_bytes = 128 * MIB});
    bool groups = strcmp(kg_sbx_info(sbx)->isolation_info.cgroup, "rlimits") != 0;
    assert_says(sbx, "head -1 /proc/meminfo | tr -s ' '", "MemTotal: 131072 kB\n");
    kg_proc_t *hog =
        harness_sh(&box, sbx, "exec python3 -c 'a = bytearray(1); a = b\"x\" * (400 << 20)'");
    kg_exit_t exit = harness_exit(&box, hog);
    kg_proc_close(&hog);
    if (groups) {
        assert_true(exit.signaled);
        assert_int_equal(exit.signal, SIGKILL);
        kg_box_usage_t usage = usage_of(sbx);
        assert_int_equal(usage.oom_kills, 1);
        assert_true(usage.memory_peak_bytes <= 128 * MIB);
    } else {
        assert_true(exit.exited && exit.code == 1); /* MemoryError */
        kg_box_usage_t usage = usage_of(sbx);       /* told, and nothing is known */
        assert_true(usage.memory_bytes == UINT64_MAX && usage.cpu_ns == UINT64_MAX);
        assert_true(usage.oom_kills == UINT64_MAX);
    }
    assert_says(sbx, "echo alive", "alive\n");
    harness_destroy(&box, &sbx, false);
}

static void pauses_where_groups_are(void **state)
{
    kg_answer_t a = {.h = &box};
    (void)state;
    kg_sbx_t *sbx = create(NULL);
    assert_int_equal(kg_sbx_pause(sbx, harness_on_done, &a), 0);
    harness_wait(&box, &a.come);
    if (strcmp(kg_sbx_info(sbx)->isolation_info.cgroup, "none") == 0) {
        assert_true(a.failed);
        assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
    } else {
        assert_false(a.failed);
        a = (kg_answer_t){.h = &box};
        assert_int_equal(kg_sbx_resume(sbx, harness_on_done, &a), 0);
        harness_wait(&box, &a.come);
        assert_false(a.failed);
    }
    assert_says(sbx, "echo awake", "awake\n");
    harness_destroy(&box, &sbx, false);
}

static void what_it_cannot_hold_is_refused(void **state)
{
    kg_answer_t a;
    (void)state;
    a = create_with(&(kg_limits_t){.disk_bytes = MIB}, NULL, false);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
    a = create_with(NULL, &(kg_net_wish_t){.mode = KG_NET_HOST}, false);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
    if (geteuid() != 0) {
        a = create_with(NULL, &(kg_net_wish_t){.mode = KG_NET_EGRESS}, false);
        assert_true(a.failed);
        assert_int_equal(a.err.code, KG_ERR_NOT_SUPPORTED);
    }
    kg_sbx_t *sbx = create(NULL); /* nothing of those is in the way */
    harness_destroy(&box, &sbx, false);
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inside_is_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(files_and_sockets, setup, teardown),
        cmocka_unit_test_setup_teardown(all_of_it_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(processes_are_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(pauses_where_groups_are, setup, teardown),
        cmocka_unit_test_setup_teardown(what_it_cannot_hold_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("bubblewrap", tests, NULL, NULL);
}

int main(void)
{
    return harness_run_both(group);
}
