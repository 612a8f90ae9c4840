/* Control groups of the real kernel, as root: limits that hold. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/cgroup.h"
#include "gateway/sandbox/cgroup_private.h"

#define MIB (UINT64_C(1) << 20)
#define TRIES 20000 /* of a millisecond */

static kg_cgroups_t real;

static void need(kg_cg_feature_t f)
{
    if (geteuid() != 0 || real.version[f] == KG_CG_NONE) {
        print_message("skipped: %s\n", geteuid() != 0 ? "not root" : real.reason[f]);
        skip();
    }
}

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static int real_setup(void **state)
{
    char name[32];
    (void)state;
    (void)snprintf(name, sizeof(name), "test-%d", (int)getpid());
    return kg_cgroups_find(&real, "/", name);
}

static int real_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES && kg_cgroup_kill(&real, "a") > 0; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        pause_ms(1);
    }
    (void)kg_cgroup_freeze(&real, "a", false, 1000);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    for (int i = 0; i < TRIES && kg_cgroup_remove(&real, "a") == -EBUSY; i++) {
        pause_ms(1);
    }
    return cg_has(real.base[KG_CG_KILL], real.prefix) ? -1 : 0;
}

static void make_real(const kg_limits_t *limits)
{
    kg_err_t err = {0};
    int r = kg_cgroup_make(&real, "a", limits, &err);
    if (r < 0) {
        fail_msg("%s", err.message);
    }
}

/* Runs fn in the group; its exit status. */
static pid_t in_group(int (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(kg_cgroup_enter(&real, "a") < 0 ? 99 : fn());
    }
    return pid;
}

static void wait_kill_empties(void)
{
    int left = 1;
    for (int i = 0; i < TRIES && left > 0; i++) {
        left = kg_cgroup_kill(&real, "a");
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        pause_ms(1);
    }
    assert_int_equal(left, 0);
}

static int hog(void)
{
    size_t size = 256 * MIB;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; p != MAP_FAILED && i < size; i += 4096) {
        p[i] = 1;
    }
    return 1;
}

static void real_hog_is_killed_and_counted(void **state)
{
    kg_box_usage_t usage;
    int status = 0;
    (void)state;
    need(KG_CG_MEMORY);
    make_real(&(kg_limits_t){.memory_bytes = 64 * MIB});
    assert_int_equal(kg_cgroup_usage(&real, "a", &usage), 0);
    assert_int_equal(usage.oom_kills, 0);
    pid_t pid = in_group(hog);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(kg_cgroup_usage(&real, "a", &usage), 0);
    assert_int_equal(usage.oom_kills, 1);
    assert_true(usage.memory_peak_bytes > 32 * MIB && usage.memory_peak_bytes <= 64 * MIB);
    assert_int_equal(kg_cgroup_remove(&real, "a"), 0);
}

static int fork_till_refused(void)
{
    for (int i = 1; i < 100; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (;;) {
                pause();
            }
        }
        if (pid < 0) {
            int count = errno == EAGAIN ? i : 98;
            (void)kill(0, 0);
            _exit(count);
        }
    }
    return 97;
}

static void real_processes_are_counted(void **state)
{
    kg_box_usage_t usage;
    int status = 0;
    (void)state;
    need(KG_CG_PIDS);
    make_real(&(kg_limits_t){.pids = 10});
    pid_t pid = in_group(fork_till_refused);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 10); /* itself and 9 children: the 10th is refused */
    assert_int_equal(kg_cgroup_usage(&real, "a", &usage), 0);
    assert_int_equal(usage.pids, 9);
    assert_int_equal(kg_cgroup_kill(&real, "a"), 9);
    wait_kill_empties();
    assert_int_equal(kg_cgroup_remove(&real, "a"), 0);
}

static int spin(void)
{
    for (volatile unsigned i = 0;; i++) {
    }
    return 0;
}

/* The kernel says itself whether it held something back. */
static uint64_t throttled(void)
{
    char dir[CG_PATH_MAX];
    char text[1024];
    unsigned long n = 0;
    (void)snprintf(dir, sizeof(dir), "%s/%sa", real.base[KG_CG_CPU], real.prefix);
    assert_int_equal(cg_read(dir, "cpu.stat", text, sizeof(text)), 0);
    const char *at = strstr(text, "nr_throttled ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "nr_throttled %lu", &n), 1);
    return n;
}

static void real_cpu_is_rationed(void **state)
{
    kg_box_usage_t usage;
    (void)state;
    need(KG_CG_CPU);
    make_real(&(kg_limits_t){.cpu_millis = 100});
    assert_int_equal(throttled(), 0);
    (void)in_group(spin);
    for (int i = 0; i < TRIES && throttled() == 0; i++) {
        pause_ms(1);
    }
    assert_true(throttled() > 0);
    assert_int_equal(kg_cgroup_usage(&real, "a", &usage), 0);
    assert_true(usage.cpu_ns > 0 && usage.cpu_ns != UINT64_MAX);
    wait_kill_empties();
}

static volatile uint64_t *counter;

static int count_up(void)
{
    for (;;) {
        (*counter)++;
    }
    return 0;
}

static uint64_t wait_past(uint64_t value)
{
    for (int i = 0; i < TRIES && *counter <= value; i++) {
        pause_ms(1);
    }
    assert_true(*counter > value);
    return *counter;
}

static void real_frozen_stands_still(void **state)
{
    (void)state;
    need(KG_CG_FREEZE);
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(counter != MAP_FAILED);
    make_real(&(kg_limits_t){0});
    assert_int_equal(kg_cgroup_freeze(&real, "a", true, 1000), 0); /* an empty one */
    assert_int_equal(kg_cgroup_freeze(&real, "a", false, 1000), 0);
    pid_t pid = in_group(count_up);
    for (int round = 0; round < 3; round++) {
        (void)wait_past(*counter);
        assert_int_equal(kg_cgroup_freeze(&real, "a", true, 10000), 0);
        uint64_t at = *counter;
        pause_ms(50);
        assert_int_equal(*counter, at);
        assert_int_equal(kg_cgroup_remove(&real, "a"), -EBUSY);
        assert_int_equal(kg_cgroup_freeze(&real, "a", false, 10000), 0);
        (void)wait_past(at);
    }
    assert_int_equal(kg_cgroup_freeze(&real, "a", true, 10000), 0);
    assert_int_equal(kg_cgroup_kill(&real, "a"), 1); /* a frozen one dies */
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    wait_kill_empties();
    assert_int_equal(kg_cgroup_remove(&real, "a"), 0);
}

static int bomb(void)
{
    for (;;) {
        (void)fork();
    }
    return 0;
}

static void real_bomb_is_ended(void **state)
{
    kg_box_usage_t usage = {0};
    (void)state;
    need(KG_CG_PIDS);
    make_real(&(kg_limits_t){.pids = 40});
    (void)in_group(bomb);
    for (int i = 0; i < TRIES && usage.pids < 40; i++) {
        assert_int_equal(kg_cgroup_usage(&real, "a", &usage), 0);
        pause_ms(1);
    }
    assert_int_equal(usage.pids, 40);
    wait_kill_empties();
    assert_int_equal(kg_cgroup_remove(&real, "a"), 0);
}

/* Cloned into v2's group, entered into the rest: it is in each of them. */
static void real_clone_into_group(void **state)
{
    int status = 0;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    make_real(&(kg_limits_t){0});
    KG_AUTO_CLOSE int fd = kg_cgroup_fd(&real, "a");
    if (fd == -ENOTSUP) {
        skip();
    }
    assert_true(fd >= 0);
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned)fd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    assert_true(pid >= 0);
    if (pid == 0) {
        char text[2048];
        size_t found_in = 0;
        size_t lines = 0;
        int r = kg_cgroup_enter(&real, "a");
        if (r < 0 || cg_read("/proc/self", "cgroup", text, sizeof(text)) < 0) {
            _exit(1);
        }
        for (const char *at = text; (at = strstr(at, real.prefix)) != NULL; at++) {
            found_in++;
        }
        for (int f = 0; f < KG_CG_FEATURES; f++) {
            bool first = true;
            for (int g = 0; g < f; g++) {
                first = first && strcmp(real.base[f], real.base[g]) != 0;
            }
            lines += real.version[f] != KG_CG_NONE && first;
        }
        _exit(found_in == lines ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest kernel[] = {
        cmocka_unit_test_setup_teardown(real_hog_is_killed_and_counted, real_setup, real_teardown),
        cmocka_unit_test_setup_teardown(real_processes_are_counted, real_setup, real_teardown),
        cmocka_unit_test_setup_teardown(real_cpu_is_rationed, real_setup, real_teardown),
        cmocka_unit_test_setup_teardown(real_frozen_stands_still, real_setup, real_teardown),
        cmocka_unit_test_setup_teardown(real_bomb_is_ended, real_setup, real_teardown),
        cmocka_unit_test_setup_teardown(real_clone_into_group, real_setup, real_teardown),
    };
    return cmocka_run_group_tests_name("cgroup/kernel", kernel, NULL, NULL);
}
