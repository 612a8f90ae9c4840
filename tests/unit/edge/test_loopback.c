/* Listeners on loopback pace nothing; all others do as the system does. */
#include "gateway/edge/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "edge_fixture.h"
#include "gateway/base/mem.h"
#include "gateway/edge/proxy.h"

typedef union any_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_storage storage;
} any_addr_t;

static any_addr_t address(const char *text)
{
    any_addr_t a = {.sa.sa_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    void *where = a.sa.sa_family == AF_INET ? (void *)&a.in.sin_addr : (void *)&a.in6.sin6_addr;
    assert_int_equal(inet_pton(a.sa.sa_family, text, where), 1);
    return a;
}

static void loopback_is_told_from_networks(void **state)
{
    static const char *const inside[] = {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"};
    static const char *const outside[] = {
        "0.0.0.0", "126.255.255.255",  "128.0.0.1", "192.0.2.1", "::",
        "::2",     "::ffff:192.0.2.1", "7f00::1",   "fe80::1",
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(inside); i++) {
        any_addr_t a = address(inside[i]);
        assert_true(kg_loopback_is(&a.sa));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(outside); i++) {
        any_addr_t a = address(outside[i]);
        assert_false(kg_loopback_is(&a.sa));
    }
    any_addr_t unix_socket = {.sa.sa_family = AF_UNIX};
    assert_false(kg_loopback_is(&unix_socket.sa));
}

static void name_of(int fd, char ret[16])
{
    socklen_t len = 16;
    memset(ret, 0, 16);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret, &len), 0);
}

static int listener_at(const char *text, any_addr_t *ret)
{
    socklen_t len = sizeof(*ret);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    *ret = address(text);
    kg_loopback_unpaced(fd, &ret->sa);
    assert_int_equal(bind(fd, &ret->sa, sizeof(ret->in)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, &ret->sa, &len), 0);
    return fd;
}

static void what_comes_in_has_the_listeners(void **state)
{
    any_addr_t at;
    char name[16];
    char system[16];
    (void)state;
    KG_AUTO_CLOSE int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    name_of(fresh, system);
    KG_AUTO_CLOSE int listener = listener_at("127.0.0.1", &at);
    assert_int_equal(connect(fresh, &at.sa, sizeof(at.in)), 0);
    KG_AUTO_CLOSE int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    name_of(accepted, name);
    assert_string_equal(name, "reno");
    name_of(fresh, name); /* the client's way is the client's */
    assert_string_equal(name, system);
    KG_AUTO_CLOSE int wide = listener_at("0.0.0.0", &at);
    name_of(wide, name);
    assert_string_equal(name, system);
}

/* Of this process. */
static int listener_of(unsigned port)
{
    for (int fd = 0; fd < 1024; fd++) {
        any_addr_t at = {.sa.sa_family = AF_UNSPEC};
        socklen_t len = sizeof(at);
        int listens = 0;
        socklen_t size = sizeof(listens);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
            getsockname(fd, &at.sa, &len) == 0 && at.sa.sa_family == AF_INET &&
            ntohs(at.in.sin_port) == port) {
            return fd;
        }
    }
    fail_msg("nobody listens on port %u", port);
    return -1;
}

static void edge_paces_nothing_on_loopback(void **state)
{
    char name[16];
    (void)state;
    edge_fixture_t *f = edge_prepare();
    edge_start(f);
    name_of(listener_of(f->ports[0]), name);
    assert_string_equal(name, "reno");
    edge_finish(f);
}

static void stop(void *user)
{
    kg_loop_stop(user);
}

static void proxy_paces_nothing_on_loopback(void **state)
{
    static const kg_proxy_handler_t nobody = {0}; /* no connection comes */
    const kg_proxy_opts_t opts = {.listen = "127.0.0.1:0"};
    char name[16];
    kg_loop_t *loop = NULL;
    kg_proxy_t *proxy = NULL;
    kg_err_t err = {0};
    (void)state;
    assert_int_equal(kg_loop_create(&loop), 0);
    assert_int_equal(kg_proxy_create(loop, &opts, &nobody, &proxy, &err), 0);
    name_of(listener_of(kg_proxy_port(proxy)), name);
    assert_string_equal(name, "reno");
    kg_proxy_close(&proxy, stop, loop);
    (void)kg_loop_run(loop);
    kg_loop_destroy(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_told_from_networks),
        cmocka_unit_test(what_comes_in_has_the_listeners),
        cmocka_unit_test(edge_paces_nothing_on_loopback),
        cmocka_unit_test(proxy_paces_nothing_on_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
