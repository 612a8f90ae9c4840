/* No pacing where there is nothing to be paced: BBR sets a timer for each segment, to keep queues
 * of a network short. Between two processes there is none, and the timers took more of a large
 * body's way than all the rest. A socket that has begun with BBR goes on pacing whatever it is told
 * (the kernel's sk_pacing_status), hence the listener. Reno is in every kernel, open to everybody;
 * where nothing is lost it does as the others do. */
#include "gateway/edge/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#define UNPACED "reno"

bool kg_loopback_is(const struct sockaddr *addr)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (addr->sa_family == AF_INET) {
        memcpy(&v4, addr, sizeof(v4));
        return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (addr->sa_family != AF_INET6) {
        return false;
    }
    memcpy(&v6, addr, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

void kg_loopback_unpaced(int fd, const struct sockaddr *addr)
{
    if (kg_loopback_is(addr)) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, UNPACED, sizeof(UNPACED) - 1);
    }
}
