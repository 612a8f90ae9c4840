#include "net_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 128

static void fail(const char *what)
{
    (void)fprintf(stderr, "net_world: %s: %s\n", what, strerror(errno));
    abort();
}

void world_run(pid_t ns, const char *fmt, ...)
{
    char command[512];
    char whole[640];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    if (ns > 0) {
        (void)snprintf(whole, sizeof(whole), "nsenter -t %d -n %s", (int)ns, command);
    } else {
        (void)snprintf(whole, sizeof(whole), "%s", command);
    }
    if (system(whole) != 0) { // NOLINT(cert-env33-c): fixed text of tests
        fail(whole);
    }
}

/* ---- processes in namespaces ---- */

static pid_t start(void (*fn)(int ready))
{
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) < 0) {
        fail("pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ready[0]);
        if (unshare(CLONE_NEWNET) < 0 || system("ip link set lo up") != 0) { // NOLINT(cert-env33-c)
            _exit(1);
        }
        fn(ready[1]);
        _exit(0);
    }
    (void)close(ready[1]);
    if (pid < 0 || read(ready[0], &byte, 1) != 1) {
        fail("namespace");
    }
    (void)close(ready[0]);
    return pid;
}

static void idle(int ready)
{
    (void)!write(ready, "r", 1);
    for (;;) {
        (void)pause();
    }
}

pid_t world_namespace(void)
{
    return start(idle);
}

void world_namespace_end(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

/* ---- the internet ---- */

static int listen_on(int type, uint16_t port)
{
    int one = 1;
    int off = 0;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        (type == SOCK_STREAM && listen(fd, 64) < 0)) {
        fail("listen");
    }
    return fd;
}

static size_t put_address(uint8_t *at, const char *text)
{
    bool v6 = strchr(text, ':');
    uint8_t head[12] = {0xc0, 12, 0, v6 ? 28 : 1, 0, 1, 0, 0, 0, 30, 0, v6 ? 16 : 4};
    memcpy(at, head, sizeof(head));
    (void)inet_pton(v6 ? AF_INET6 : AF_INET, text, at + sizeof(head));
    return sizeof(head) + head[11];
}

/* allowed.example, sub.allowed.example: the public address; other.example; inner.example: a private
 * one; big.example: truncated by UDP; else there is no such name. */
static size_t answer(const uint8_t *q, size_t size, uint8_t *out, bool tcp)
{
    size_t end = 12;
    while (end < size && q[end] != 0) {
        end += 1U + q[end];
    }
    end += 5;
    memcpy(out, q, end);
    out[2] |= 0x80;
    out[3] = 0x80;
    memset(out + 6, 0, 6);
    const char *name = (const char *)q + 12;
    if (strcmp(name, "\003big\007example") == 0 && !tcp) {
        out[2] |= 0x02;
        return end;
    }
    unsigned repeat = strcmp(name, "\003big\007example") == 0 ? 60 : 1;
    const char *to = strstr(name, "\007allowed\007example")      ? WORLD_PUBLIC
                     : strcmp(name, "\005other\007example") == 0 ? WORLD_OTHER
                     : strcmp(name, "\005inner\007example") == 0 ? WORLD_PRIVATE
                     : repeat > 1                                ? WORLD_PUBLIC
                                                                 : NULL;
    if (!to) {
        out[3] |= 3;
        return end;
    }
    out[7] = (uint8_t)repeat;
    for (; repeat > 0; repeat--) {
        end += put_address(out + end, to);
    }
    return end;
}

static void serve_dns(int fd)
{
    uint8_t q[1024] = {0};
    uint8_t out[4096];
    struct sockaddr_in6 from;
    socklen_t length = sizeof(from);
    ssize_t n = recvfrom(fd, q, sizeof(q) - 1, 0, (struct sockaddr *)&from, &length);
    if (n > 16) {
        size_t size = answer(q, (size_t)n, out, false);
        (void)sendto(fd, out, size, 0, (struct sockaddr *)&from, length);
    }
}

static void serve_dns_stream(int listener)
{
    uint8_t q[1024] = {0};
    uint8_t out[4096];
    int fd = accept(listener, NULL, NULL);
    ssize_t n = recv(fd, q, 2, MSG_WAITALL);
    if (n == 2 && (n = recv(fd, q, (size_t)q[1], MSG_WAITALL)) > 16) {
        size_t size = answer(q, (size_t)n, out + 2, true);
        out[0] = (uint8_t)(size >> 8);
        out[1] = (uint8_t)size;
        (void)send(fd, out, size + 2, MSG_NOSIGNAL);
    }
    (void)close(fd);
}

/* Port 9999: 'x' counts, 'n' asks for the count. */
static void serve_count(int fd)
{
    static int count;
    char byte = 0;
    struct sockaddr_in6 from;
    socklen_t length = sizeof(from);
    if (recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &length) != 1) {
        return;
    }
    if (byte == 'n') {
        (void)sendto(fd, &count, sizeof(count), 0, (struct sockaddr *)&from, length);
    } else {
        count++;
    }
}

static void serve_echo(struct pollfd *fds, nfds_t *count, nfds_t i)
{
    char bytes[512];
    ssize_t n = recv(fds[i].fd, bytes, sizeof(bytes), 0);
    if (n <= 0 || send(fds[i].fd, bytes, (size_t)n, MSG_NOSIGNAL) < 0) {
        (void)close(fds[i].fd);
        fds[i] = fds[--*count];
    }
}

/* Bound to the one address, so that it is what answers come from. */
static int count_on(void)
{
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9999)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, WORLD_PUBLIC, &at.sin_addr) != 1 ||
        setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
        fail("count");
    }
    return fd;
}

static void internet(int ready)
{
    struct pollfd fds[FDS_MAX] = {
        {.fd = listen_on(SOCK_DGRAM, 53)},
        {.fd = listen_on(SOCK_STREAM, 53)},
        {.fd = count_on()},
        {.fd = listen_on(SOCK_STREAM, 80)},
        {.fd = listen_on(SOCK_STREAM, 8080)},
        {.fd = listen_on(SOCK_STREAM, 853)},
    };
    nfds_t count = 6;
    (void)!write(ready, "r", 1);
    for (;;) {
        for (nfds_t i = 0; i < count; i++) {
            fds[i].events = POLLIN;
        }
        if (poll(fds, count, -1) < 0) {
            _exit(1);
        }
        for (nfds_t i = count; i-- > 0;) {
            if (fds[i].revents == 0) {
                continue;
            }
            if (i == 0) {
                serve_dns(fds[i].fd);
            } else if (i == 1) {
                serve_dns_stream(fds[i].fd);
            } else if (i == 2) {
                serve_count(fds[i].fd);
            } else if (i > 5) {
                serve_echo(fds, &count, i);
            } else if (count < FDS_MAX) {
                fds[count++].fd = accept(fds[i].fd, NULL, NULL);
            }
        }
    }
}

/* ---- the whole ---- */

/* No waiting for whether somebody else has an address. */
static void no_detection(pid_t ns)
{
    world_run(ns, "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0");
}

static void join(pid_t ns, const char *ours, const char *net4, const char *net6)
{
    world_run(0, "ip link add %s type veth peer name wan netns %d", ours, (int)ns);
    world_run(0, "ip addr add %s.2/24 dev %s", net4, ours);
    world_run(0, "ip addr add %s::2/64 dev %s nodad", net6, ours);
    world_run(0, "ip link set %s up", ours);
    world_run(ns, "ip addr add %s.1/24 dev wan", net4);
    world_run(ns, "ip addr add %s::1/64 dev wan nodad", net6);
    world_run(ns, "ip link set wan up");
}

static void make(world_t *w)
{
    static const char *const addresses[] = {
        WORLD_PUBLIC "/32",   WORLD_OTHER "/32", WORLD_PRIVATE "/32",  "169.254.169.254/32",
        "100.64.5.5/32",      "192.168.9.9/32",  "172.20.0.1/32",      "203.0.113.7/32",
        WORLD_PUBLIC6 "/128", "fd00:9::1/128",   "64:ff9b::a32:1/128", "2002:a32:1::1/128",
    };
    if (unshare(CLONE_NEWNET) < 0) {
        fail("unshare");
    }
    world_run(0, "ip link set lo up");
    world_run(0, "ip addr add " WORLD_HOST_PUBLIC "/32 dev lo");
    w->internet = start(internet);
    w->lan = start(internet);
    no_detection(0);
    no_detection(w->internet);
    join(w->internet, "uplink0", "10.77.0", "fd00:77");
    world_run(0, "ip route add default via 10.77.0.1");
    world_run(0, "ip -6 route add default via fd00:77::1");
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        world_run(w->internet, "ip addr add %s dev lo", addresses[i]);
    }
    world_run(0, "ip link add lan0 type veth peer name wan netns %d", (int)w->lan);
    world_run(0, "ip addr add 10.88.0.1/24 dev lan0");
    world_run(0, "ip link set lan0 up");
    world_run(w->lan, "ip addr add " WORLD_LAN "/24 dev wan");
    world_run(w->lan, "ip link set wan up");
    world_run(w->lan, "ip route add default via 10.88.0.1");
    world_run(w->internet, "ip route add 10.88.0.0/24 via " WORLD_UPLINK);
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/sandal-net-XXXXXX");
    if (!mkdtemp(w->dir) || chmod(w->dir, 0711) < 0) {
        fail("mkdtemp");
    }
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/resolv.conf", w->dir);
    FILE *file = fopen(path, "w");
    if (!file || fputs("# a comment\nnameserver 10.77.0.1\n", file) < 0 || fclose(file) != 0) {
        fail("resolv.conf");
    }
}

/* Fresh links lose their first packets; the tests want none to be lost. */
void world_make(world_t *w)
{
    static const char *const ways[] = {WORLD_PUBLIC, WORLD_PUBLIC6};
    make(w);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        unsigned tries = 0;
        while (world_connect(getpid(), ways[i], 80) != 0) {
            if (tries++ > 20) {
                fail("the internet does not answer");
            }
        }
    }
}

void world_end(world_t *w)
{
    world_namespace_end(&w->internet);
    world_namespace_end(&w->lan);
    world_run(0, "rm -r %s", w->dir);
}

/* ---- clients ---- */

static int enter(pid_t ns)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)ns);
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
        fail("setns");
    }
    (void)close(fd);
    return own;
}

static void leave(int own)
{
    if (setns(own, CLONE_NEWNET) < 0) {
        fail("setns back");
    }
    (void)close(own);
}

static int socket_in(pid_t ns, int family, int type)
{
    int own = enter(ns);
    int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    leave(own);
    if (fd < 0) {
        fail("socket");
    }
    return fd;
}

static socklen_t parse(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof(v4));
        return sizeof(v4);
    }
    if (inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        fail("address");
    }
    memcpy(ret, &v6, sizeof(v6));
    return sizeof(v6);
}

int world_connect_fd(pid_t ns, const char *address, uint16_t port)
{
    struct sockaddr_storage to;
    socklen_t length = parse(address, port, &to);
    int fd = socket_in(ns, to.ss_family, SOCK_STREAM);
    int code = 0;
    socklen_t size = sizeof(code);
    struct pollfd done = {.fd = fd, .events = POLLOUT};
    if (connect(fd, (struct sockaddr *)&to, length) < 0 && errno != EINPROGRESS) {
        code = errno;
    } else if (poll(&done, 1, 1000) == 0) {
        code = ETIMEDOUT;
    } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0) {
        code = errno;
    }
    if (code != 0) {
        (void)close(fd);
        return -code;
    }
    return fd;
}

int world_connect(pid_t ns, const char *address, uint16_t port)
{
    int fd = world_connect_fd(ns, address, port);
    if (fd < 0) {
        return -fd;
    }
    bool echoes = world_echoes(fd);
    (void)close(fd);
    return echoes ? 0 : EPIPE;
}

bool world_echoes(int fd)
{
    char byte = 'e';
    struct pollfd in = {.fd = fd, .events = POLLIN};
    return send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && poll(&in, 1, 1000) == 1 &&
           recv(fd, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'e';
}

static size_t put_query(uint8_t *out, const char *name)
{
    static uint16_t id;
    size_t at = 12;
    memset(out, 0, 12);
    id++;
    memcpy(out, &id, 2);
    out[2] = 1;
    out[5] = 1;
    while (*name) {
        size_t label = strcspn(name, ".");
        out[at++] = (uint8_t)label;
        memcpy(out + at, name, label);
        at += label;
        name += label + (name[label] == '.');
    }
    uint8_t tail[5] = {0, 0, 1, 0, 1};
    memcpy(out + at, tail, sizeof(tail));
    return at + sizeof(tail);
}

int world_resolve(pid_t ns, const char *server, const char *name, bool tcp)
{
    uint8_t q[2 + 512];
    uint8_t out[4096] = {0};
    struct sockaddr_storage to;
    socklen_t length = parse(server, 53, &to);
    size_t size = put_query(q + 2, name);
    q[0] = 0;
    q[1] = (uint8_t)size;
    int fd = tcp ? world_connect_fd(ns, server, 53) : socket_in(ns, to.ss_family, SOCK_DGRAM);
    if (fd < 0) {
        return fd;
    }
    ssize_t sent = tcp ? send(fd, q, size + 2, MSG_NOSIGNAL)
                       : sendto(fd, q + 2, size, 0, (struct sockaddr *)&to, length);
    struct pollfd in = {.fd = fd, .events = POLLIN};
    ssize_t n = sent > 0 && poll(&in, 1, 3000) == 1 ? recv(fd, out, sizeof(out), 0) : -1;
    (void)close(fd);
    size_t skip = tcp ? 2 : 0;
    if (n < (ssize_t)(12 + skip)) {
        return -ETIMEDOUT;
    }
    if (memcmp(out + skip, q + 2, 2) != 0) {
        return -EBADMSG;
    }
    return out[skip + 3] & 15;
}

static int udp_to_count(pid_t ns, const char *source)
{
    struct sockaddr_storage to;
    struct sockaddr_storage from;
    socklen_t length = parse(WORLD_PUBLIC, 9999, &to);
    int fd = socket_in(ns, AF_INET, SOCK_DGRAM);
    if (source) {
        socklen_t size = parse(source, 0, &from);
        if (bind(fd, (struct sockaddr *)&from, size) < 0) {
            fail("bind");
        }
    }
    if (connect(fd, (struct sockaddr *)&to, length) < 0) {
        fail("connect");
    }
    return fd;
}

void world_send_from(pid_t ns, const char *source)
{
    if (source) {
        world_run(ns, "ip addr add %s/32 dev lo", source);
    }
    int fd = udp_to_count(ns, source);
    (void)!send(fd, "x", 1, 0);
    (void)close(fd);
    if (source) {
        world_run(ns, "ip addr del %s/32 dev lo", source);
    }
}

int world_sent_count(pid_t ns)
{
    int count = -1;
    int fd = udp_to_count(ns, NULL);
    struct pollfd in = {.fd = fd, .events = POLLIN};
    if (send(fd, "n", 1, 0) != 1 || poll(&in, 1, 3000) != 1 ||
        recv(fd, &count, sizeof(count), 0) != (ssize_t)sizeof(count)) {
        count = -1;
    }
    (void)close(fd);
    return count;
}
