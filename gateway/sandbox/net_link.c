/* Interfaces by rtnetlink: a veth pair whose one end is born in the sandbox's network namespace, so
 * that nothing is moved (moving waits for the kernel's grace periods). Neighbours are fixed on both
 * ends: no ARP, no neighbour discovery is needed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/net_private.h"

#define INNER "eth0"
#define MAKE (NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
#define PUT (NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)

/* Locally administered; the host's end is even, the sandbox's odd. */
static void hardware_address(const kg_nets_t *nets, uint32_t slot, bool inner, uint8_t ret[6])
{
    uint32_t n = (nets->keeper_tag + slot) & 0xffff;
    uint8_t mac[6] = {0x02, 0x73, 0x64, (uint8_t)(n >> 8), (uint8_t)n, inner ? 1 : 0};
    memcpy(ret, mac, sizeof(mac));
}

/* A netlink socket of another network namespace: the socket stays there, the caller comes back. */
static int open_inside(int ns)
{
    KG_AUTO_CLOSE int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own < 0 || setns(ns, CLONE_NEWNET) < 0) {
        return -errno;
    }
    int fd = kg_nl_open(NETLINK_ROUTE);
    if (setns(own, CLONE_NEWNET) < 0) {
        kg_closep(&fd);
        return -errno;
    }
    return fd;
}

static void put_pair(kg_nl_t *nl, const kg_nets_t *nets, uint32_t slot, int ns)
{
    char name[IFNAMSIZ];
    uint8_t mac[6];
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    net_interface(nets, slot, name);
    hardware_address(nets, slot, false, mac);
    kg_nl_begin(nl, RTM_NEWLINK, MAKE, &link, sizeof(link));
    kg_nl_put_text(nl, IFLA_IFNAME, name);
    kg_nl_put(nl, IFLA_ADDRESS, mac, sizeof(mac));
    size_t info = kg_nl_nest(nl, IFLA_LINKINFO);
    kg_nl_put_text(nl, IFLA_INFO_KIND, "veth");
    size_t data = kg_nl_nest(nl, IFLA_INFO_DATA);
    size_t peer = kg_nl_nest(nl, VETH_INFO_PEER);
    kg_nl_put_raw(nl, &link, sizeof(link));
    hardware_address(nets, slot, true, mac);
    kg_nl_put_text(nl, IFLA_IFNAME, INNER);
    kg_nl_put(nl, IFLA_ADDRESS, mac, sizeof(mac));
    kg_nl_put_u32(nl, IFLA_NET_NS_FD, (uint32_t)ns);
    kg_nl_nest_end(nl, peer);
    kg_nl_nest_end(nl, data);
    kg_nl_nest_end(nl, info);
}

/* Up, without the link-local address and the announcements that IPv6 makes by itself. */
static void put_up(kg_nl_t *nl, int index)
{
    uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC, .ifi_index = index};
    kg_nl_begin(nl, RTM_SETLINK, NLM_F_ACK, &link, sizeof(link));
    size_t spec = kg_nl_nest(nl, IFLA_AF_SPEC);
    size_t inet6 = kg_nl_nest(nl, AF_INET6);
    kg_nl_put(nl, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof(none));
    kg_nl_nest_end(nl, inet6);
    kg_nl_nest_end(nl, spec);
    link.ifi_flags = IFF_UP;
    link.ifi_change = IFF_UP;
    kg_nl_begin(nl, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
}

static void put_address(kg_nl_t *nl, int index, uint8_t family, const void *address, size_t size)
{
    struct ifaddrmsg body = {
        .ifa_family = family,
        .ifa_prefixlen = (uint8_t)(size * 8),
        .ifa_index = (unsigned)index,
    };
    kg_nl_begin(nl, RTM_NEWADDR, PUT, &body, sizeof(body));
    kg_nl_put(nl, IFA_LOCAL, address, size);
    kg_nl_put(nl, IFA_ADDRESS, address, size);
    kg_nl_put_u32(nl, IFA_FLAGS, family == AF_INET6 ? IFA_F_NODAD | IFA_F_NOPREFIXROUTE : 0);
}

static void put_neighbour(
    kg_nl_t *nl, int index, uint8_t family, const void *address, size_t size, const uint8_t mac[6])
{
    struct ndmsg body = {.ndm_family = family, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};
    kg_nl_begin(nl, RTM_NEWNEIGH, PUT, &body, sizeof(body));
    kg_nl_put(nl, NDA_DST, address, size);
    kg_nl_put(nl, NDA_LLADDR, mac, 6);
}

/* to and via may be NULL: everything; on the link. */
static void put_route(kg_nl_t *nl,
                      int index,
                      uint8_t family,
                      const void *to,
                      const void *via,
                      const void *source,
                      size_t size)
{
    struct rtmsg body = {
        .rtm_family = family,
        .rtm_dst_len = to ? (uint8_t)(size * 8) : 0,
        .rtm_table = RT_TABLE_MAIN,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = via || family == AF_INET6 ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
        .rtm_type = RTN_UNICAST,
        .rtm_flags = via ? RTNH_F_ONLINK : 0,
    };
    kg_nl_begin(nl, RTM_NEWROUTE, PUT, &body, sizeof(body));
    if (to) {
        kg_nl_put(nl, RTA_DST, to, size);
    }
    if (via) {
        kg_nl_put(nl, RTA_GATEWAY, via, size);
    }
    if (source) {
        kg_nl_put(nl, RTA_PREFSRC, source, size);
    }
    kg_nl_put_u32(nl, RTA_OIF, (uint32_t)index);
}

/* The sandbox's end: address, neighbour and default route. */
static int set_inside(const kg_nets_t *nets, uint32_t slot, int fd, int index)
{
    kg_nl_t nl = {.used = 0};
    uint8_t mac[6];
    uint32_t address = htonl(net_address(nets, slot));
    uint32_t gateway = htonl(net_gateway(nets));
    hardware_address(nets, slot, false, mac);
    put_up(&nl, index);
    put_address(&nl, index, AF_INET, &address, 4);
    put_neighbour(&nl, index, AF_INET, &gateway, 4, mac);
    put_route(&nl, index, AF_INET, NULL, &gateway, NULL, 4);
    if (nets->ipv6) {
        struct in6_addr address6 = net_address6(nets, slot);
        struct in6_addr gateway6 = net_gateway6(nets);
        put_address(&nl, index, AF_INET6, &address6, 16);
        put_neighbour(&nl, index, AF_INET6, &gateway6, 16, mac);
        put_route(&nl, index, AF_INET6, NULL, &gateway6, NULL, 16);
    }
    return kg_nl_talk(fd, &nl);
}

static int
write_setting(const char *interface, const char *family, const char *key, const char *value)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, interface, key);
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0) {
        return -errno;
    }
    return 0;
}

/* The host's end: the way to the sandbox, and forwarding for this interface alone. */
static int set_outside(const kg_nets_t *nets, uint32_t slot, int fd)
{
    kg_nl_t nl = {.used = 0};
    char name[IFNAMSIZ];
    uint8_t mac[6];
    uint32_t address = htonl(net_address(nets, slot));
    uint32_t gateway = htonl(net_gateway(nets));
    net_interface(nets, slot, name);
    int index = (int)if_nametoindex(name);
    if (index <= 0) {
        return -ENODEV;
    }
    hardware_address(nets, slot, true, mac);
    put_up(&nl, index);
    put_neighbour(&nl, index, AF_INET, &address, 4, mac);
    put_route(&nl, index, AF_INET, &address, NULL, &gateway, 4);
    if (nets->ipv6) {
        struct in6_addr address6 = net_address6(nets, slot);
        struct in6_addr gateway6 = net_gateway6(nets);
        put_neighbour(&nl, index, AF_INET6, &address6, 16, mac);
        put_route(&nl, index, AF_INET6, &address6, NULL, &gateway6, 16);
    }
    int r = kg_nl_talk(fd, &nl);
    if (r == 0) {
        r = write_setting(name, "ipv4", "forwarding", "1");
    }
    if (r == 0 && nets->ipv6) {
        (void)write_setting(name, "ipv6", "accept_ra", "0");
        r = write_setting(name, "ipv6", "force_forwarding", "1");
        r = r == -ENOENT ? 0 : r; /* older kernels: only where all interfaces forward */
    }
    return r;
}

static int link_row(void *user, uint16_t type, const void *body, size_t size)
{
    if (type != RTM_NEWLINK || size < sizeof(struct ifinfomsg)) {
        return -EBADMSG;
    }
    memcpy(user, body, sizeof(struct ifinfomsg));
    return 0;
}

static int look_at(int fd, const char *name, struct ifinfomsg *ret_link)
{
    kg_nl_t nl = {.used = 0};
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    kg_nl_begin(&nl, RTM_GETLINK, 0, &link, sizeof(link));
    kg_nl_put_text(&nl, IFLA_IFNAME, name);
    return kg_nl_ask(fd, &nl, link_row, ret_link);
}

/* Until packets get through. The end that is up first sends nothing before the kernel's link watch
 * has seen its carrier, up to a second later: the first packet of a sandbox would be lost. Newer
 * kernels see to it when they are asked. */
static int wait_running(int fd, const char *name)
{
    for (unsigned i = 0; i < 4000; i++) {
        struct timespec pause = {.tv_nsec = 500000};
        struct ifinfomsg link = {.ifi_flags = 0};
        int r = look_at(fd, name, &link);
        if (r < 0) {
            return r;
        }
        if (link.ifi_flags & IFF_RUNNING) {
            return 0;
        }
        (void)nanosleep(&pause, NULL);
    }
    return -ETIMEDOUT;
}

static int route_row(void *user, uint16_t type, const void *body, size_t size)
{
    struct rtmsg route;
    if (type != RTM_NEWROUTE || size < sizeof(route)) {
        return -EBADMSG;
    }
    memcpy(&route, body, sizeof(route));
    *(bool *)user = route.rtm_type == RTN_LOCAL;
    return 0;
}

/* Until the sandbox takes packets for its IPv6 address: the kernel sees to that in a worker. */
static int wait_address6(const kg_nets_t *nets, uint32_t slot, int fd)
{
    struct in6_addr address = net_address6(nets, slot);
    for (unsigned i = 0; i < 4000; i++) {
        kg_nl_t nl = {.used = 0};
        bool there = false;
        struct timespec pause = {.tv_nsec = 500000};
        struct rtmsg body = {.rtm_family = AF_INET6, .rtm_dst_len = 128};
        kg_nl_begin(&nl, RTM_GETROUTE, 0, &body, sizeof(body));
        kg_nl_put(&nl, RTA_DST, &address, sizeof(address));
        int r = kg_nl_ask(fd, &nl, route_row, &there);
        if (r < 0 || there) {
            return r;
        }
        (void)nanosleep(&pause, NULL);
    }
    return -ETIMEDOUT;
}

static int make_in(const kg_nets_t *nets, uint32_t slot, int host, int ns)
{
    kg_nl_t nl = {.used = 0};
    char name[IFNAMSIZ];
    struct ifinfomsg link = {.ifi_index = 0};
    KG_AUTO_CLOSE int inside = open_inside(ns);
    if (inside < 0) {
        return inside;
    }
    put_pair(&nl, nets, slot, ns);
    int r = kg_nl_talk(host, &nl);
    if (r < 0) {
        return r;
    }
    net_interface(nets, slot, name);
    r = look_at(inside, INNER, &link);
    if (r == 0) {
        r = set_inside(nets, slot, inside, link.ifi_index);
    }
    if (r == 0) {
        r = set_outside(nets, slot, host);
    }
    if (r == 0) {
        r = wait_running(inside, INNER);
    }
    if (r == 0) {
        r = wait_running(host, name);
    }
    if (r == 0 && nets->ipv6) {
        r = wait_address6(nets, slot, inside);
    }
    if (r < 0) {
        (void)net_link_remove(nets, slot);
    }
    return r;
}

int net_link_make(const kg_nets_t *nets, uint32_t slot, pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    KG_AUTO_CLOSE int ns = open(path, O_RDONLY | O_CLOEXEC);
    KG_AUTO_CLOSE int host = kg_nl_open(NETLINK_ROUTE);
    if (ns < 0) {
        return -errno;
    }
    if (host < 0) {
        return host;
    }
    int r = make_in(nets, slot, host, ns);
    if (r == -EEXIST &&
        net_link_exists(nets, slot)) { /* an earlier one's whose namespace is going */
        r = net_link_remove(nets, slot);
        r = r < 0 ? r : make_in(nets, slot, host, ns);
    }
    return r;
}

int net_link_remove(const kg_nets_t *nets, uint32_t slot)
{
    kg_nl_t nl = {.used = 0};
    char name[IFNAMSIZ];
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
    if (fd < 0) {
        return fd;
    }
    net_interface(nets, slot, name);
    kg_nl_begin(&nl, RTM_DELLINK, NLM_F_ACK, &link, sizeof(link));
    kg_nl_put_text(&nl, IFLA_IFNAME, name);
    int r = kg_nl_talk(fd, &nl);
    return r == -ENODEV ? 0 : r;
}

bool net_link_exists(const kg_nets_t *nets, uint32_t slot)
{
    char name[IFNAMSIZ];
    net_interface(nets, slot, name);
    return if_nametoindex(name) > 0;
}

int net_gateway_set(const kg_nets_t *nets, bool there)
{
    kg_nl_t nl = {.used = 0};
    int index = (int)if_nametoindex("lo");
    uint32_t gateway = htonl(net_gateway(nets));
    struct in6_addr gateway6 = net_gateway6(nets);
    struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
    if (fd < 0) {
        return fd;
    }
    if (there) {
        kg_nl_begin(&nl, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
        put_address(&nl, index, AF_INET, &gateway, 4);
        if (nets->ipv6) {
            put_address(&nl, index, AF_INET6, &gateway6, 16);
        }
        return kg_nl_talk(fd, &nl);
    }
    struct ifaddrmsg body = {
        .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = (unsigned)index};
    kg_nl_begin(&nl, RTM_DELADDR, NLM_F_ACK, &body, sizeof(body));
    kg_nl_put(&nl, IFA_LOCAL, &gateway, 4);
    (void)kg_nl_talk(fd, &nl);
    memset(&nl, 0, sizeof(nl));
    body.ifa_family = AF_INET6;
    body.ifa_prefixlen = 128;
    kg_nl_begin(&nl, RTM_DELADDR, NLM_F_ACK, &body, sizeof(body));
    kg_nl_put(&nl, IFA_LOCAL, &gateway6, 16);
    (void)kg_nl_talk(fd, &nl);
    return 0;
}
