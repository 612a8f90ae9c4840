/* What networks need of the host: a way out, addresses that nobody has, and forwarding of those
 * interfaces alone that lead out. What was changed is kept in a file (once, by the first keeper)
 * and put back by the last one; a lock tells whether there are others, and goes with its keeper. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/net_private.h"

#define SHARED_DIR "/run/sandal-net"

typedef struct ways {
    unsigned v4[16], v6[16]; /* interface indices of default routes */
    unsigned v4_count, v6_count;
} ways_t;

static void note(unsigned *list, unsigned *count, unsigned index)
{
    for (unsigned i = 0; i < *count; i++) {
        if (list[i] == index) {
            return;
        }
    }
    if (*count < 16 && index != 0) {
        list[(*count)++] = index;
    }
}

/* What is too short for a route is one of no family and no type. */
static unsigned route_interface(const void *body, size_t size, struct rtmsg *ret_route)
{
    unsigned index = 0;
    *ret_route = (struct rtmsg){.rtm_family = AF_UNSPEC};
    if (size < sizeof(*ret_route)) {
        return 0;
    }
    memcpy(ret_route, body, sizeof(*ret_route));
    const unsigned char *attrs = (const unsigned char *)body + sizeof(*ret_route);
    const void *oif = kg_nl_find(attrs, size - sizeof(*ret_route), RTA_OIF, sizeof(index), NULL);
    if (oif) {
        memcpy(&index, oif, sizeof(index));
    }
    return index;
}

static int default_row(void *user, uint16_t type, const void *body, size_t size)
{
    ways_t *ways = user;
    struct rtmsg route;
    unsigned index = route_interface(body, size, &route);
    if (type == RTM_NEWROUTE && index != 0 && index != 1 && route.rtm_dst_len == 0 &&
        route.rtm_type == RTN_UNICAST) {
        if (route.rtm_family == AF_INET) {
            note(ways->v4, &ways->v4_count, index);
        } else if (route.rtm_family == AF_INET6) {
            note(ways->v6, &ways->v6_count, index);
        }
    }
    return 0;
}

static int asked_row(void *user, uint16_t type, const void *body, size_t size)
{
    struct rtmsg route;
    unsigned index = route_interface(body, size, &route);
    if (type == RTM_NEWROUTE && route.rtm_type == RTN_UNICAST) {
        *(unsigned *)user = index;
    }
    return 0;
}

/* The interface that leads to the first address of an operator's CIDR; 0: none, or the host. */
static unsigned way_to(int fd, const kg_net_rule_t *rule)
{
    kg_nl_t nl = {.used = 0};
    unsigned index = 0;
    struct rtmsg body = {
        .rtm_family = rule->family == 4 ? AF_INET : AF_INET6,
        .rtm_dst_len = rule->family == 4 ? 32 : 128,
    };
    kg_nl_begin(&nl, RTM_GETROUTE, 0, &body, sizeof(body));
    kg_nl_put(&nl, RTA_DST, rule->address, rule->family == 4 ? 4 : 16);
    return kg_nl_ask(fd, &nl, asked_row, &index) < 0 ? 0 : index;
}

static int look_for_ways(const kg_nets_t *nets, ways_t *ret)
{
    ways_t ways = {.v4_count = 0};
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
    if (fd < 0) {
        return fd;
    }
    for (int family = AF_INET; family != AF_UNSPEC;
         family = family == AF_INET ? AF_INET6 : AF_UNSPEC) {
        kg_nl_t nl = {.used = 0};
        struct rtmsg body = {.rtm_family = (uint8_t)family};
        kg_nl_begin(&nl, RTM_GETROUTE, NLM_F_DUMP, &body, sizeof(body));
        int r = kg_nl_ask(fd, &nl, default_row, &ways);
        if (r < 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < nets->allow_count; i++) {
        const kg_net_rule_t *rule = &nets->allow[i];
        unsigned index = rule->family == 0 ? 0 : way_to(fd, rule);
        if (index > 1 && rule->family == 4) {
            note(ways.v4, &ways.v4_count, index);
        } else if (index > 1) {
            note(ways.v6, &ways.v6_count, index);
        }
    }
    *ret = ways;
    return 0;
}

typedef struct taken {
    uint32_t pool;
    bool taken;
} taken_t;

static bool is_ours(unsigned index)
{
    char name[IFNAMSIZ] = "";
    return index == 1 || (if_indextoname(index, name) &&
                          strncmp(name, NET_ALL_PREFIX, strlen(NET_ALL_PREFIX)) == 0);
}

static int taken_row(void *user, uint16_t type, const void *body, size_t size)
{
    taken_t *taken = user;
    struct rtmsg route;
    uint32_t to;
    unsigned index = route_interface(body, size, &route);
    if (type != RTM_NEWROUTE || route.rtm_family != AF_INET || route.rtm_dst_len == 0 ||
        is_ours(index)) {
        return 0;
    }
    const void *dst = kg_nl_find((const unsigned char *)body + sizeof(route), size - sizeof(route),
                                 RTA_DST, sizeof(to), NULL);
    if (dst) {
        memcpy(&to, dst, sizeof(to));
        unsigned bits = route.rtm_dst_len < NET_POOL_BITS ? route.rtm_dst_len : NET_POOL_BITS;
        uint32_t mask = UINT32_MAX << (32 - bits);
        taken->taken = taken->taken || (ntohl(to) & mask) == (taken->pool & mask);
    }
    return 0;
}

/* Ranges that are for nobody's use in a network: benchmarks, then carriers' private one. */
static int choose_pool(uint32_t *ret_pool)
{
    static const uint32_t pools[] = {0xc6120000, 0x64400000, 0x64620000, 0x0ae60000};
    for (size_t i = 0; i < KG_ARRAY_LEN(pools); i++) {
        kg_nl_t nl = {.used = 0};
        struct rtmsg body = {.rtm_family = AF_INET};
        taken_t taken = {.pool = pools[i]};
        KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
        if (fd < 0) {
            return fd;
        }
        kg_nl_begin(&nl, RTM_GETROUTE, NLM_F_DUMP, &body, sizeof(body));
        int r = kg_nl_ask(fd, &nl, taken_row, &taken);
        if (r < 0) {
            return r;
        }
        if (!taken.taken) {
            *ret_pool = pools[i];
            return 0;
        }
    }
    return -EADDRINUSE;
}

static int
setting(const char *interface, const char *family, const char *key, char *ret_value, char put)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, interface, key);
    KG_AUTO_CLOSE int fd = open(path, (put ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t n = put ? write(fd, &put, 1) : read(fd, ret_value, 1);
    return n == 1 ? 0 : -EIO;
}

static bool forwards6(void)
{
    char value = '0';
    return setting("all", "ipv6", "forwarding", &value, 0) == 0 && value == '1';
}

int net_host_look(kg_nets_t *nets)
{
    ways_t ways;
    char value;
    int r = look_for_ways(nets, &ways);
    if (r < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "cannot read the host's routes: %s",
                       strerrordesc_np(-r));
        return r;
    }
    if (ways.v4_count == 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "this host has no default route");
        return -ENETUNREACH;
    }
    r = choose_pool(&nets->pool);
    if (r < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason),
                       "the host's routes leave no addresses for sandboxes (198.18.0.0/15, "
                       "100.64.0.0/15, 100.98.0.0/15, 10.230.0.0/15)");
        return r;
    }
    /* Forwarding IPv6 for all interfaces would make the host deaf for its own router: only where a
     * single one can be told, or where the host forwards anyway. */
    nets->ipv6 = ways.v6_count > 0 &&
                 (forwards6() || setting("lo", "ipv6", "force_forwarding", &value, 0) == 0);
    return 0;
}

static int shared_dir(int *ret_dir)
{
    struct stat ns;
    char path[64];
    if (stat("/proc/self/ns/net", &ns) < 0) {
        return -errno;
    }
    (void)snprintf(path, sizeof(path), SHARED_DIR "/%llu", (unsigned long long)ns.st_ino);
    return kg_fs_open_dir(path, 0700, ret_dir);
}

/* Remembers an interface whose forwarding we turn on; true when it is (already) one of those. */
static bool remembered(int dir, const char *name, bool make)
{
    if (faccessat(dir, name, F_OK, 0) == 0) {
        return true;
    }
    KG_AUTO_CLOSE int fd = make ? openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    return fd >= 0;
}

static void open_one(int dir, unsigned index, bool v6, char list[16][IFNAMSIZ], unsigned *count)
{
    char name[IFNAMSIZ] = "";
    char file[IFNAMSIZ + 8];
    char value = '1';
    const char *key = v6 ? "force_forwarding" : "forwarding";
    const char *family = v6 ? "ipv6" : "ipv4";
    if (!if_indextoname(index, name) || strpbrk(name, "\"\\\n*/") ||
        setting(name, family, key, &value, 0) < 0 || (v6 && forwards6())) {
        return;
    }
    (void)snprintf(file, sizeof(file), "%s.%s", family, name);
    if (value == '0' && remembered(dir, file, true)) {
        (void)setting(name, family, key, NULL, '1');
    }
    if (remembered(dir, file, false)) {
        memcpy(list[(*count)++], name, sizeof(name));
    }
}

int net_host_open(kg_nets_t *nets, net_opened_t *ret)
{
    ways_t ways = {.v4_count = 0};
    if (nets->routed) { /* all that is there and comes, once more the way out, is ours */
        memset(ret, 0, sizeof(*ret));
        return setting("all", "ipv4", "forwarding", NULL, '1');
    }
    KG_AUTO_CLOSE int dir = -1;
    int r = shared_dir(&dir);
    if (r == 0) {
        r = look_for_ways(nets, &ways);
    }
    if (r < 0) {
        return r;
    }
    nets->lock_fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (nets->lock_fd < 0 || flock(nets->lock_fd, LOCK_SH) < 0) {
        return -errno;
    }
    memset(ret, 0, sizeof(*ret));
    for (unsigned i = 0; i < ways.v4_count; i++) {
        open_one(dir, ways.v4[i], false, ret->v4, &ret->v4_count);
    }
    for (unsigned i = 0; nets->ipv6 && i < ways.v6_count; i++) {
        open_one(dir, ways.v6[i], true, ret->v6, &ret->v6_count);
    }
    return 0;
}

static void put_back(int dir, const char *file)
{
    if (strncmp(file, "ipv4.", 5) == 0) {
        (void)setting(file + 5, "ipv4", "forwarding", NULL, '0');
    } else if (strncmp(file, "ipv6.", 5) == 0) {
        (void)setting(file + 5, "ipv6", "force_forwarding", NULL, '0');
    } else {
        return;
    }
    (void)unlinkat(dir, file, 0);
}

void net_host_leave(kg_nets_t *nets)
{
    KG_AUTO_CLOSE int dir = -1;
    if (shared_dir(&dir) == 0) {
        nets->lock_fd = openat(dir, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        net_host_close(nets);
    }
}

void net_host_close(kg_nets_t *nets)
{
    KG_AUTO_CLOSE int dir = -1;
    if (nets->lock_fd < 0 || nets->routed) {
        return;
    }
    if (flock(nets->lock_fd, LOCK_EX | LOCK_NB) == 0 && shared_dir(&dir) == 0) {
        int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = again < 0 ? NULL : fdopendir(again);
        for (struct dirent *e = list ? readdir(list) : NULL; e; // NOLINT(concurrency-mt-unsafe)
             e = readdir(list)) {                               // NOLINT(concurrency-mt-unsafe)
            put_back(dir, e->d_name);
        }
        if (list) {
            closedir(list);
        }
    }
    kg_closep(&nets->lock_fd);
}
