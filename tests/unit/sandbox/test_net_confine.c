/* What the DNS forwarder can still reach: the files of networks, who is to be asked, port 53. Files
 * and ports where the kernel has Landlock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/sandbox/landlock.h"
#include "gateway/sandbox/net_private.h"

static char dir[] = "/tmp/sandal-confine-XXXXXX";
static kg_nets_t nets;

static void put(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static int reach(const char *name, int flags)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    KG_AUTO_CLOSE int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? errno : 0;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    KG_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
}

/* 0 = as it should be, else the number of the first check that failed. */
static int files_are_closed(void)
{
    if (reach("net/0001.log", O_RDWR) != 0) {
        return 2;
    }
    if (reach("names/resolv.conf", O_RDONLY) != 0) {
        return 3;
    }
    if (reach("names/resolv.conf", O_WRONLY) != EACCES) {
        return 4;
    }
    if (reach("secret", O_RDONLY) != EACCES || reach(".", O_RDONLY) != EACCES) {
        return 5;
    }
    return reach("net/new", O_WRONLY | O_CREAT) != EACCES ? 6 : 0;
}

static int confined(void)
{
    if (net_confine(&nets) < 0) {
        return 1;
    }
    int bad = kg_ll_abi() >= 1 ? files_are_closed() : 0;
    if (bad == 0 && kill(getppid(), 0) == 0) {
        bad = 7;
    }
    if (bad == 0 && socket(AF_UNIX, SOCK_STREAM, 0) >= 0) {
        bad = 8;
    }
    if (bad == 0 && kg_ll_abi() >= 4 && connect_to(7) != EACCES) {
        bad = 9;
    }
    return bad == 0 && connect_to(53) == EACCES ? 10 : bad;
}

static void confine_leaves_what_the_forwarder_needs(void **state)
{
    int status = 0;
    char path[128];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/net", dir);
    nets.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(nets.dir_fd >= 0);
    (void)snprintf(nets.resolvers, sizeof(nets.resolvers), "%s/names/resolv.conf", dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(confined());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(nets.dir_fd);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) {
        return -1;
    }
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/net", dir);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof(path), "%s/names", dir);
    (void)mkdir(path, 0700);
    put("net/0001.log");
    put("names/resolv.conf");
    put("secret");
    return 0;
}

static int teardown(void **state)
{
    static const char *const made[] = {
        "net/0001.log", "names/resolv.conf", "secret", "net", "names", ""};
    char path[128];
    int r = 0;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(made); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
        r |= remove(path);
    }
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confine_leaves_what_the_forwarder_needs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
