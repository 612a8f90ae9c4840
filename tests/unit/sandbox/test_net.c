/* Networks of sandboxes, as root, in namespaces of the test's own: what is open, what is closed,
 * names, rules and their change, the log, and that all goes again. */
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
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/net.h"
#include "gateway/sandbox/net_private.h"
#include "net_world.h"

#define TAG 0x2c00
#define SLOT 3
#define HOST_PORT 7777
#define NO_WAY ECONNREFUSED /* at once */

static world_t world;
static kg_nets_t nets;
static pid_t box;
static kg_err_t err;

static bool is_root(void)
{
    return geteuid() == 0;
}

static void prepare(kg_nets_t *n)
{
    memset(n, 0, sizeof(*n));
    n->keeper_tag = TAG;
    (void)snprintf(n->runtime_dir, sizeof(n->runtime_dir), "%s", world.dir);
    (void)snprintf(n->resolvers, sizeof(n->resolvers), "%s/resolv.conf", world.dir);
}

static void open_nets(kg_nets_t *n)
{
    assert_int_equal(kg_nets_open(n, &err), 0);
    if (!n->available) {
        fail_msg("no network: %s", n->reason);
    }
}

static void serve_on_host(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(HOST_PORT)};
    int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 16), 0); /* the kernel takes connections: enough to see it open */
}

static int make_world(void **state)
{
    (void)state;
    if (is_root()) {
        world_make(&world);
        serve_on_host();
    }
    return 0;
}

static int end_world(void **state)
{
    (void)state;
    if (is_root()) {
        struct stat ns;
        assert_int_equal(stat("/proc/self/ns/net", &ns), 0);
        world_run(0, "rm -rf /run/sandal-net/%llu", (unsigned long long)ns.st_ino);
        world_end(&world);
    }
    return 0;
}

static int setup(void **state)
{
    (void)state;
    if (!is_root()) {
        return 0;
    }
    memset(&err, 0, sizeof(err));
    prepare(&nets);
    box = world_namespace();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (is_root()) {
        world_namespace_end(&box);
        kg_nets_close(&nets);
    }
    return 0;
}

static kg_net_wish_t egress(void)
{
    kg_net_wish_t wish = {.mode = KG_NET_EGRESS};
    return wish;
}

static kg_net_rule_t *add_rule(kg_net_wish_t *wish, bool allow)
{
    kg_net_rule_t *rule = &wish->rules[wish->rule_count++];
    memset(rule, 0, sizeof(*rule));
    rule->allow = allow;
    return rule;
}

static void add_cidr(kg_net_wish_t *wish, bool allow, const char *address, uint8_t prefix)
{
    kg_net_rule_t *rule = add_rule(wish, allow);
    bool v6 = strchr(address, ':');
    rule->family = v6 ? 6 : 4;
    rule->prefix = prefix;
    assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, address, rule->address), 1);
}

static void add_domain(kg_net_wish_t *wish, bool allow, const char *domain, uint16_t port)
{
    kg_net_rule_t *rule = add_rule(wish, allow);
    (void)snprintf(rule->domain, sizeof(rule->domain), "%s", domain);
    rule->port_first = port;
    rule->port_last = port;
    rule->protocol = port ? 6 : 0;
}

static void operator_allows(const char *address, uint8_t prefix)
{
    kg_net_wish_t wish = {.mode = KG_NET_EGRESS};
    add_cidr(&wish, true, address, prefix);
    nets.allow[nets.allow_count++] = wish.rules[0];
}

static void attach(uint32_t slot, pid_t pid, const kg_net_wish_t *wish)
{
    if (kg_net_attach(&nets, slot, pid, wish, &err) < 0) {
        fail_msg("attach: %s", err.message);
    }
}

static const char *forwarder(void)
{
    static char text[INET_ADDRSTRLEN];
    struct in_addr at = {.s_addr = htonl(net_gateway(&nets))};
    return inet_ntop(AF_INET, &at, text, sizeof(text));
}

#define ROOT_ONLY()                                                                                \
    if (!is_root()) {                                                                              \
        skip();                                                                                    \
    }

/* Waits for a row of the log that fits; within two seconds. */
static bool logged(uint32_t slot, const char *address, uint16_t port, const char *domain)
{
    static kg_net_denied_t rows[NET_DENIED_KEPT];
    uint8_t want[16] = {0};
    (void)inet_pton(strchr(address, ':') ? AF_INET6 : AF_INET, address, want);
    for (unsigned turn = 0; turn < 200; turn++) {
        uint64_t cursor = 0;
        uint64_t lost = 0;
        int n = kg_net_denied(&nets, slot, &cursor, rows, NET_DENIED_KEPT, &lost);
        for (int i = 0; i < n; i++) {
            if (memcmp(rows[i].address, want, 16) == 0 && rows[i].port == port &&
                strcmp(rows[i].domain, domain) == 0 && rows[i].at_ns > 0) {
                return true;
            }
        }
        struct timespec pause = {.tv_nsec = 10000000};
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static void egress_reaches_public_addresses_alone(void **state)
{
    ROOT_ONLY();
    (void)state;
    static const char *const closed[] = {
        WORLD_PRIVATE,      "169.254.169.254", "100.64.5.5",     "192.168.9.9",
        "172.20.0.1",       "203.0.113.7",     "10.77.0.1",      WORLD_LAN,
        "::ffff:10.50.0.1", "fd00:9::1",       "64:ff9b::a32:1", "2002:a32:1::1",
    };
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    assert_int_equal(world_connect(box, WORLD_OTHER, 8080), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(closed); i++) {
        if (world_connect(box, closed[i], 80) == 0) {
            fail_msg("%s is open", closed[i]);
        }
    }
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), NO_WAY); /* at once, not by time */
    assert_int_equal(world_connect(box, "::ffff:" WORLD_PUBLIC, 80), 0);
    assert_true(logged(SLOT, WORLD_PRIVATE, 80, ""));
    assert_true(logged(SLOT, "169.254.169.254", 80, ""));
}

static void egress_does_not_reach_the_host(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_connect(box, "127.0.0.1", HOST_PORT), ECONNREFUSED); /* its own lo */
    assert_int_equal(world_connect(box, WORLD_UPLINK, HOST_PORT), NO_WAY);
    assert_int_equal(world_connect(box, WORLD_HOST_PUBLIC, HOST_PORT), NO_WAY);
    assert_int_equal(world_connect(box, forwarder(), HOST_PORT), NO_WAY);
    assert_int_equal(world_connect(box, "10.88.0.1", HOST_PORT), NO_WAY);
    assert_int_not_equal(world_connect(box, "fd00:77::2", HOST_PORT), 0);
    assert_true(logged(SLOT, WORLD_HOST_PUBLIC, HOST_PORT, ""));
}

static void egress_ipv6_where_the_host_has_it(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    int r = world_connect(box, WORLD_PUBLIC6, 80);
    if (nets.ipv6) {
        assert_int_equal(r, 0);
    } else {
        assert_int_equal(r, ENETUNREACH);
        assert_true(nets.reason[0] != '\0');
    }
}

static void sandboxes_do_not_reach_each_other(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    pid_t second = world_namespace();
    char address[INET_ADDRSTRLEN];
    open_nets(&nets);
    attach(SLOT, box, &wish);
    attach(SLOT + 1, second, &wish);
    struct in_addr at = {.s_addr = htonl(net_address(&nets, SLOT + 1))};
    (void)inet_ntop(AF_INET, &at, address, sizeof(address));
    assert_int_equal(world_connect(second, address, 80), ECONNREFUSED); /* it is there */
    assert_int_equal(world_connect(box, address, 80), NO_WAY);
    assert_int_equal(world_connect(second, WORLD_PUBLIC, 80), 0);
    world_namespace_end(&second);
}

static void sources_of_others_are_dropped(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    int before = world_sent_count(box);
    assert_true(before >= 0);
    world_send_from(box, "8.8.8.8");
    world_send_from(box, "198.18.0.1");
    world_send_from(box, WORLD_UPLINK);
    assert_int_equal(world_sent_count(box), before);
    world_send_from(box, NULL); /* its own */
    assert_int_equal(world_sent_count(box), before + 1);
}

/* Forwarding for sandboxes does not make the host a router for its neighbours. */
static void neighbours_are_not_forwarded(void **state)
{
    ROOT_ONLY();
    (void)state;
    assert_int_not_equal(world_connect(world.internet, WORLD_LAN, 80), 0);
    open_nets(&nets);
    assert_int_not_equal(world_connect(world.internet, WORLD_LAN, 80), 0);
}

static void names_are_answered_by_the_forwarder_alone(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    char conf[256];
    open_nets(&nets);
    attach(SLOT, box, &wish);
    int n = kg_net_resolv_conf(&nets, SLOT, conf, sizeof(conf));
    assert_true(n > 0 && strstr(conf, forwarder()));
    assert_int_equal(kg_net_resolv_conf(&nets, SLOT, conf, 8), -ENOSPC);
    assert_int_equal(world_resolve(box, forwarder(), "allowed.example", false), 0);
    assert_int_equal(world_resolve(box, forwarder(), "nothing.example", false), 3);
    assert_int_equal(world_resolve(box, forwarder(), "big.example", false), 0);
    assert_int_equal(world_resolve(box, forwarder(), "big.example", true), 0);
    assert_int_equal(world_resolve(box, WORLD_PUBLIC, "allowed.example", false), -ETIMEDOUT);
    assert_int_equal(world_resolve(box, WORLD_PUBLIC, "allowed.example", true), -NO_WAY);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 853), NO_WAY);
    assert_true(logged(SLOT, WORLD_PUBLIC, 53, "big.example"));
}

static void rules_by_domain_open_what_names_lead_to(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    wish.deny_by_default = 1;
    add_domain(&wish, true, "*.allowed.example", 80);
    add_domain(&wish, true, "inner.example", 0);
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), NO_WAY);
    assert_int_equal(world_resolve(box, forwarder(), "sub.allowed.example", false), 0);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 8080), NO_WAY);
    assert_int_equal(world_connect(box, WORLD_OTHER, 80), NO_WAY);
    assert_int_equal(world_resolve(box, forwarder(), "other.example", false), 5);
    assert_int_equal(world_resolve(box, forwarder(), "notallowed.example", false), 5);
    assert_int_equal(world_resolve(box, forwarder(), "inner.example", false), 0);
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), NO_WAY); /* a name opens no private */
    assert_true(logged(SLOT, forwarder(), 53, "other.example"));
    assert_true(logged(SLOT, WORLD_PUBLIC, 8080, "sub.allowed.example"));
}

static void first_rule_that_fits_decides(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    add_cidr(&wish, true, WORLD_PUBLIC, 32);
    wish.rules[0].protocol = 6;
    wish.rules[0].port_first = 80;
    wish.rules[0].port_last = 80;
    add_cidr(&wish, false, "93.184.0.0", 16);
    add_cidr(&wish, true, WORLD_PRIVATE, 32); /* not the client's to open */
    add_cidr(&wish, false, WORLD_PUBLIC6, 64);
    add_domain(&wish, false, "other.example", 0);
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 8080), NO_WAY);
    assert_int_equal(world_connect(box, WORLD_OTHER, 80), 0);
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), NO_WAY);
    assert_int_not_equal(world_connect(box, WORLD_PUBLIC6, 80), 0);
    assert_int_equal(world_resolve(box, forwarder(), "other.example", false), 5);
    assert_int_equal(world_resolve(box, forwarder(), "allowed.example", false), 0);
}

static void change_holds_for_open_connections(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    int fd = world_connect_fd(box, WORLD_PUBLIC, 80);
    int kept = world_connect_fd(box, WORLD_OTHER, 80);
    assert_true(fd >= 0 && kept >= 0 && world_echoes(fd) && world_echoes(kept));
    assert_int_equal(world_resolve(box, forwarder(), "other.example", false), 0);

    wish.deny_by_default = 1;
    add_domain(&wish, true, "other.example", 0); /* learned before the rule was there */
    assert_int_equal(kg_net_change(&nets, SLOT, &wish, &err), 0);
    assert_false(world_echoes(fd));
    assert_true(world_echoes(kept));
    assert_int_equal(world_connect(box, WORLD_OTHER, 80), 0);

    wish = egress();
    assert_int_equal(kg_net_change(&nets, SLOT, &wish, &err), 0);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    wish.mode = KG_NET_NONE;
    assert_int_equal(kg_net_change(&nets, SLOT, &wish, &err), 0);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), NO_WAY);
    assert_false(world_echoes(kept));
    assert_int_equal(world_resolve(box, forwarder(), "other.example", false), 5);
    (void)close(fd);
    (void)close(kept);

    assert_int_not_equal(kg_net_change(&nets, SLOT + 9, &wish, &err), 0);
    assert_int_equal(err.code, KG_ERR_NOT_FOUND);
}

static void operator_opens_ranges(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    operator_allows("10.50.0.0", 24);
    operator_allows("10.88.0.0", 24);
    operator_allows(WORLD_HOST_PUBLIC, 32);
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), 0);
    assert_int_equal(world_connect(box, WORLD_LAN, 80), 0); /* another way out than the default */
    assert_int_equal(world_connect(box, "192.168.9.9", 80), NO_WAY);
    int fd = world_connect_fd(box, WORLD_HOST_PUBLIC, HOST_PORT);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(world_connect(box, "10.88.0.1", HOST_PORT),
                     NO_WAY); /* the host's, by a range */
    assert_int_not_equal(world_connect(world.internet, WORLD_LAN, 80), 0);

    add_cidr(&wish, false, WORLD_HOST_PUBLIC, 32);
    add_cidr(&wish, false, "10.50.0.0", 16);
    assert_int_equal(kg_net_change(&nets, SLOT, &wish, &err), 0);
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), NO_WAY);
    assert_int_equal(world_connect(box, WORLD_HOST_PUBLIC, HOST_PORT), NO_WAY);
}

static char forwarding_of(const char *interface)
{
    char path[128];
    char value = '?';
    (void)snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/forwarding", interface);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, &value, 1) == 1);
    (void)close(fd);
    return value;
}

static void close_takes_all_back(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    add_domain(&wish, true, "allowed.example", 80);
    assert_int_equal(forwarding_of("uplink0"), '0');
    open_nets(&nets);
    assert_int_equal(forwarding_of("uplink0"), '1');
    assert_int_equal(forwarding_of("all"), '0');
    assert_int_equal(forwarding_of("lan0"), '0');
    attach(SLOT, box, &wish);
    assert_int_equal(kg_net_detach(&nets, SLOT), 0);
    assert_int_equal(kg_net_detach(&nets, SLOT), 0);
    assert_false(net_link_exists(&nets, SLOT));
    assert_int_not_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    pid_t helper = nets.helper;
    kg_nets_close(&nets);
    assert_int_equal(forwarding_of("uplink0"), '0');
    assert_int_equal(kill(helper, 0), -1);
    world_run(0, "sh -c 'test -z \"$(nft list tables)\"'");
    world_run(0, "sh -c '! ip addr show dev lo | grep -q 198.18'");
}

/* A keeper dies hard; the next one finds its sandboxes as they were, and what is dead goes. */
static void next_keeper_takes_over(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    pid_t gone = world_namespace();
    wish.deny_by_default = 1;
    add_domain(&wish, true, "allowed.example", 80);
    pid_t keeper = fork();
    if (keeper == 0) {
        bool good = kg_nets_open(&nets, &err) == 0 && nets.available &&
                    kg_net_attach(&nets, SLOT, box, &wish, &err) == 0 &&
                    kg_net_attach(&nets, SLOT + 1, gone, &wish, &err) == 0;
        (void)raise(good ? SIGKILL : SIGABRT);
    }
    int status = 0;
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    prepare(&nets);
    nets.pool = 0xc6120000;
    assert_int_equal(world_resolve(box, forwarder(), "allowed.example", false), 0);
    int fd = world_connect_fd(box, WORLD_PUBLIC, 80);
    assert_true(fd >= 0);

    nets.dir_fd = -1;
    world_run(0, "ip link del sdl-2c00-0004"); /* as when its namespace has ended */
    open_nets(&nets);
    assert_true(world_echoes(fd));
    (void)close(fd);
    assert_int_equal(world_connect(box, WORLD_PUBLIC, 80), 0);
    assert_int_equal(world_connect(box, WORLD_OTHER, 80), NO_WAY);
    world_run(0, "sh -c '! nft list table inet sandal_2c00 | grep -q r0004'");
    net_slot_file_t file;
    assert_int_equal(net_file_read(&nets, SLOT + 1, &file), -ENOENT);
    assert_int_equal(net_file_read(&nets, SLOT, &file), 0);
    attach(SLOT + 1, gone, &wish); /* the slot is fit for use again */
    world_namespace_end(&gone);
}

static void helper_that_dies_comes_again(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(world_resolve(box, forwarder(), "allowed.example", false), 0);
    world_run(0, "pkill -KILL -P %d", (int)nets.helper);
    int r = -ETIMEDOUT;
    for (unsigned i = 0; i < 5 && r != 0; i++) {
        r = world_resolve(box, forwarder(), "allowed.example", false);
    }
    assert_int_equal(r, 0);
    assert_int_equal(world_connect(box, WORLD_PRIVATE, 80), NO_WAY);
    assert_true(logged(SLOT, WORLD_PRIVATE, 80, ""));
}

/* Nobody comes after a keeper that died hard: the helper gives all back. */
static void all_goes_when_no_keeper_comes(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    nets.orphan_s = 1;
    pid_t keeper = fork();
    if (keeper == 0) {
        bool good = kg_nets_open(&nets, &err) == 0 && nets.available &&
                    kg_net_attach(&nets, SLOT, box, &wish, &err) == 0;
        (void)raise(good ? SIGKILL : SIGABRT);
    }
    int status = 0;
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    world_namespace_end(&box);
    world_run(0, "timeout 20 sh -c 'while nft list tables | grep -q sandal || "
                 "ip addr show dev lo | grep -q 198.18; do sleep 0.05; done'");
    assert_int_equal(forwarding_of("uplink0"), '0');
    nets.dir_fd = -1;
    nets.lock_fd = -1;
}

static void log_keeps_the_newest(void **state)
{
    ROOT_ONLY();
    (void)state;
    static kg_net_denied_t rows[NET_DENIED_KEPT];
    kg_net_wish_t wish = egress();
    uint64_t cursor = 0;
    uint64_t lost = 7;
    open_nets(&nets);
    attach(SLOT, box, &wish);
    assert_int_equal(kg_net_denied(&nets, SLOT, &cursor, rows, 10, &lost), 0);
    assert_int_equal(lost, 0);
    for (unsigned i = 1; i <= NET_DENIED_KEPT + 10; i++) {
        kg_net_denied_t row = {.at_ns = i, .family = 4, .protocol = 6, .port = (uint16_t)i};
        assert_int_equal(net_log_add(&nets, SLOT, &row), 0);
        assert_int_equal(net_log_add(&nets, SLOT, &row), 0); /* the same again counts once */
    }
    assert_int_equal(kg_net_denied(&nets, SLOT, &cursor, rows, 100, &lost), 100);
    assert_int_equal(lost, 10);
    assert_int_equal(rows[0].port, 11);
    assert_int_equal(kg_net_denied(&nets, SLOT, &cursor, rows, NET_DENIED_KEPT, &lost), 156);
    assert_int_equal(lost, 0);
    assert_int_equal(rows[155].port, NET_DENIED_KEPT + 10);
    assert_int_equal(kg_net_denied(&nets, SLOT, &cursor, rows, 10, &lost), 0);
    kg_net_denied_t again = rows[155];
    again.why = KG_NET_WHY_RULE; /* another reason is another refusal */
    assert_int_equal(net_log_add(&nets, SLOT, &again), 0);
    again.rule = 1;
    assert_int_equal(net_log_add(&nets, SLOT, &again), 0);
    assert_int_equal(kg_net_denied(&nets, SLOT, &cursor, rows, 10, &lost), 2);
    assert_int_equal(kg_net_denied(&nets, SLOT + 5, &cursor, rows, 10, &lost), 0);
}

static void what_is_wrong_is_refused(void **state)
{
    ROOT_ONLY();
    (void)state;
    kg_net_wish_t wish = egress();
    kg_nets_t other = nets;
    other.keeper_tag = 65536;
    assert_int_not_equal(kg_nets_open(&other, &err), 0);
    other = nets;
    other.allow_count = KG_NET_ALLOW_MAX + 1;
    assert_int_not_equal(kg_nets_open(&other, &err), 0);

    nets.dir_fd = -1;
    assert_int_not_equal(kg_net_attach(&nets, SLOT, box, &wish, &err), 0); /* not open */
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    wish.mode = KG_NET_NONE;
    assert_int_equal(kg_net_attach(&nets, SLOT, box, &wish, &err), 0);

    open_nets(&nets);
    wish.mode = KG_NET_EGRESS;
    assert_int_not_equal(kg_net_attach(&nets, 65536 - TAG, box, &wish, &err), 0);
    pid_t dead = world_namespace();
    pid_t number = dead;
    world_namespace_end(&dead);
    assert_int_not_equal(kg_net_attach(&nets, SLOT, number, &wish, &err), 0);
    assert_false(net_link_exists(&nets, SLOT));
    attach(SLOT, box, &wish); /* nothing was left in the way */
}

static void no_way_out_is_said(void **state)
{
    ROOT_ONLY();
    (void)state;
    world_run(0, "ip route del default via 10.77.0.1");
    assert_int_equal(kg_nets_open(&nets, &err), 0);
    assert_false(nets.available);
    assert_non_null(strstr(nets.reason, "default route"));
    world_run(0, "ip route add default via 10.77.0.1");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(egress_reaches_public_addresses_alone),
        TEST(egress_does_not_reach_the_host),
        TEST(egress_ipv6_where_the_host_has_it),
        TEST(sandboxes_do_not_reach_each_other),
        TEST(sources_of_others_are_dropped),
        TEST(neighbours_are_not_forwarded),
        TEST(names_are_answered_by_the_forwarder_alone),
        TEST(rules_by_domain_open_what_names_lead_to),
        TEST(first_rule_that_fits_decides),
        TEST(change_holds_for_open_connections),
        TEST(operator_opens_ranges),
        TEST(close_takes_all_back),
        TEST(next_keeper_takes_over),
        TEST(helper_that_dies_comes_again),
        TEST(all_goes_when_no_keeper_comes),
        TEST(log_keeps_the_newest),
        TEST(what_is_wrong_is_refused),
        TEST(no_way_out_is_said),
    };
    return cmocka_run_group_tests(tests, make_world, end_world);
}
