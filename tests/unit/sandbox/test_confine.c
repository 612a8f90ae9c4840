/* The gateway's filter: what it gives up fails with EPERM, what it needs works. In a child, for a
 * filter stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/sandbox/confine.h"

static void *nothing(void *arg)
{
    return arg;
}

/* 0 = as it should be, else the number of the first check that failed. */
static int confined(void)
{
    kg_err_t err = {0};
    char *argv[] = {(char[]){"true"}, NULL};
    pthread_t thread;
    int pair[2];
    if (kg_confine_gateway(&err) < 0) {
        return 1;
    }
    if (execv("/bin/true", argv) != -1 || errno != EPERM) {
        return 2;
    }
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != -1 || errno != EPERM) {
        return 3;
    }
    if (unshare(CLONE_NEWUSER) != -1 || errno != EPERM) {
        return 4;
    }
    if (mount("none", "/tmp", "tmpfs", 0, NULL) != -1 || errno != EPERM) {
        return 5;
    }
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
        return 6;
    }
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        return 7;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) {
        return 8;
    }
    return open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 ? 9 : 0;
}

static void confine_gateway_denies_what_it_never_needs(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(confined());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confine_gateway_denies_what_it_never_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
