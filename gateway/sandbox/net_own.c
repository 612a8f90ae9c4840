/* The host's own IPv4 addresses: slirp4netns reaches them without any wire, so an ordinary user's
 * rules close them like the rest of the host. They come and go while sandboxes run; the helper
 * follows them. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/net_private.h"

#define DRAINED_MAX 64 /* messages of one turn */

/* Fills nets->own from *at on, which moves on; false when that was all. */
static bool read_some(const struct ifaddrs **at, kg_nets_t *nets)
{
    nets->own_count = 0;
    for (; *at; *at = (*at)->ifa_next) {
        struct sockaddr_in address;
        if (!(*at)->ifa_addr || (*at)->ifa_addr->sa_family != AF_INET) {
            continue;
        }
        if (nets->own_count == KG_NET_OWN_MAX) {
            return true;
        }
        memcpy(&address, (*at)->ifa_addr, sizeof(address));
        nets->own[nets->own_count++] = ntohl(address.sin_addr.s_addr);
    }
    return false;
}

int net_own_read(kg_nets_t *nets)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) < 0) {
        return -errno;
    }
    const struct ifaddrs *at = list;
    bool more = read_some(&at, nets);
    freeifaddrs(list);
    return more ? -E2BIG : 0;
}

int net_own_watch(void)
{
    struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR};
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
    if (fd < 0) {
        return fd;
    }
    return bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ? -errno : kg_take_fd(&fd);
}

void net_own_drain(int fd)
{
    char message[4096];
    for (unsigned i = 0; i < DRAINED_MAX; i++) {
        /* ENOBUFS: some were lost; what counts is that there were any. */
        if (recv(fd, message, sizeof(message), MSG_DONTWAIT) < 0 && errno != ENOBUFS) {
            return;
        }
    }
}

/* Those that are gone are opened where one transaction holds all there are. */
int net_own_renew(const kg_nets_t *nets, int nft)
{
    struct ifaddrs *list = NULL;
    kg_nets_t now = *nets;
    int r = 0;
    if (getifaddrs(&list) < 0) {
        return -errno;
    }
    const struct ifaddrs *at = list;
    bool more = read_some(&at, &now);
    r = net_rules_close_own(&now, nft, !more);
    while (r == 0 && more) {
        more = read_some(&at, &now);
        r = net_rules_close_own(&now, nft, false);
    }
    freeifaddrs(list);
    return r;
}
