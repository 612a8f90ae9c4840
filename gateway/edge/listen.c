/* Listening sockets. They are ours, not lws': so addresses, modes of unix sockets, limits and
 * draining are, too. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/edge/edge_priv.h"
#include "gateway/edge/loopback.h"

#define ACCEPTS_A_TURN 64

typedef union sock_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
} sock_addr_t;

static int bad_address(const char *text, kg_err_t *err)
{
    kg_err_set(err, KG_ERR_CONFIG,
               "Cannot listen on \"%s\": expected ADDRESS:PORT, [IPV6]:PORT or unix:PATH.", text);
    return -EINVAL;
}

/* Splits "host:port"; the host without its brackets. */
static int split(const char *text, char host[64], uint64_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    if (!colon || kg_parse_u64(colon + 1, 0, 65535, ret_port) < 0) {
        return -EINVAL;
    }
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    }
    if (len == 0 || len >= 64) {
        return -EINVAL;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    return 0;
}

static int parse_inet(const char *text, sock_addr_t *addr, socklen_t *ret_len, kg_err_t *err)
{
    char host[64];
    uint64_t port = 0;
    if (split(text, host, &port) < 0) {
        return bad_address(text, err);
    }
    if (strcmp(host, "localhost") == 0) {
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    }
    if (strcmp(host, "*") == 0) {
        memcpy(host, "::", sizeof("::"));
    }
    memset(addr, 0, sizeof(*addr));
    if (inet_pton(AF_INET, host, &addr->in.sin_addr) == 1) {
        addr->in.sin_family = AF_INET;
        addr->in.sin_port = htons((uint16_t)port);
        *ret_len = sizeof(addr->in);
    } else if (inet_pton(AF_INET6, host, &addr->in6.sin6_addr) == 1) {
        addr->in6.sin6_family = AF_INET6;
        addr->in6.sin6_port = htons((uint16_t)port);
        *ret_len = sizeof(addr->in6);
    } else {
        return bad_address(text, err);
    }
    return 0;
}

/* taken: what to do about it where the address is another's. */
static int listen_failed(const char *text, const char *taken, kg_err_t *err)
{
    int num = errno;
    kg_err_set(err, KG_ERR_CONFIG, "Cannot listen on %s: %s.", text,
               strerror(num)); // NOLINT(concurrency-mt-unsafe)
    if (num == EADDRINUSE) {
        kg_err_hint(err, "%s", taken);
    }
    return -num;
}

/* Who binds is the gateway's user, not the one who started the daemon. */
static int bind_failed(const char *path, kg_err_t *err)
{
    bool denied = errno == EACCES;
    int rc = listen_failed(path,
                           "A file is there, or a socket on which a program listens: choose "
                           "another path with --listen, or take it away.",
                           err);
    const char *slash = strrchr(path, '/');
    if (denied) {
        kg_err_hint(err,
                    "The gateway makes the socket, as user id %u: let it write in the directory "
                    "%.*s, or choose a path in one where it may.",
                    (unsigned)geteuid(), slash && slash > path ? (int)(slash - path) : 1,
                    slash ? path : ".");
    }
    return rc;
}

static int open_inet(const char *text, kg_edge_socket_t *ret, kg_err_t *err)
{
    sock_addr_t addr;
    socklen_t len = 0;
    int rc = parse_inet(text, &addr, &len, err);
    if (rc < 0) {
        return rc;
    }
    KG_AUTO_CLOSE int fd = socket(addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && text[0] == '*') { /* a host without IPv6 */
        uint16_t port = addr.in6.sin6_port;
        memset(&addr, 0, sizeof(addr));
        addr.in.sin_family = AF_INET;
        addr.in.sin_port = port;
        len = sizeof(addr.in);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    int on = 1;
    int only = text[0] != '*';
    if (fd >= 0) {
        kg_loopback_unpaced(fd, &addr.sa);
    }
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        (addr.sa.sa_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) < 0) ||
        bind(fd, &addr.sa, len) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, &addr.sa, &len) < 0) {
        return listen_failed(text,
                             "Another program listens there: choose another address with "
                             "--listen, or stop it.",
                             err);
    }
    ret->port = ntohs(addr.sa.sa_family == AF_INET ? addr.in.sin_port : addr.in6.sin6_port);
    ret->fd = kg_take_fd(&fd);
    return 0;
}

/* True when there is a socket file at addr that is left over: nobody accepts there. */
static bool stale(const sock_addr_t *addr)
{
    KG_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat st; /* at a file that is no socket a connection is refused as well */
    return fd >= 0 && lstat(addr->un.sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
           connect(fd, &addr->sa, sizeof(addr->un)) < 0 && errno == ECONNREFUSED;
}

static int bind_unix(int fd, const sock_addr_t *addr, unsigned mode)
{
    mode_t was = umask(0777 & ~mode); /* at start, before any other thread makes files */
    int rc = bind(fd, &addr->sa, sizeof(addr->un));
    if (rc < 0 && errno == EADDRINUSE && stale(addr)) {
        (void)unlink(addr->un.sun_path);
        rc = bind(fd, &addr->sa, sizeof(addr->un));
    }
    umask(was);
    return rc;
}

static int open_unix(const char *path, unsigned mode, kg_edge_socket_t *ret, kg_err_t *err)
{
    sock_addr_t addr = {.un = {.sun_family = AF_UNIX}};
    if (strlen(path) == 0 || strlen(path) >= sizeof(addr.un.sun_path)) {
        kg_err_set(err, KG_ERR_CONFIG, "The path of a unix socket has 1 to %zu bytes: %s.",
                   sizeof(addr.un.sun_path) - 1, path);
        return -EINVAL;
    }
    memcpy(addr.un.sun_path, path, strlen(path) + 1);
    KG_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat st;
    if (fd < 0 || bind_unix(fd, &addr, mode) < 0 || chmod(path, mode) < 0 ||
        listen(fd, SOMAXCONN) < 0 || stat(path, &st) < 0) {
        return bind_failed(path, err);
    }
    ret->path = strdup(path);
    if (!ret->path) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "Out of memory.");
    }
    ret->dev = st.st_dev;
    ret->ino = st.st_ino;
    ret->fd = kg_take_fd(&fd);
    return 0;
}

int kg_edge_socket_open(const char *address,
                        unsigned unix_mode,
                        kg_edge_socket_t *ret_socket,
                        kg_err_t *err)
{
    kg_edge_socket_t opened = {.fd = -1};
    int rc = kg_str_starts(address, "unix:")
                 ? open_unix(address + 5, unix_mode ? unix_mode : 0600, &opened, err)
                 : open_inet(address, &opened, err);
    if (rc == 0) {
        *ret_socket = opened;
    }
    return rc;
}

void kg_edge_socket_close(kg_edge_socket_t *socket)
{
    struct stat st;
    if (socket->path && lstat(socket->path, &st) == 0 && st.st_dev == socket->dev &&
        st.st_ino == socket->ino) {
        (void)unlink(socket->path); /* ours still, not that of a successor */
    }
    free(socket->path);
    socket->path = NULL;
    kg_closep(&socket->fd);
}

static void on_acceptable(void *user, bool readable, bool writable)
{
    (void)readable;
    (void)writable;
    kg_listener_t *listener = user;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(listener->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                kg_log(KG_LOG_WARN, "edge.accept", "error=%d", errno);
                listener->resting = true;
                (void)kg_fdwatch_set(listener->watch, false, false);
            }
            return;
        }
        (void)kg_conn_adopt_take(listener->edge, fd, listener->index);
    }
}

void kg_listener_wake(kg_listener_t *listener)
{
    if (listener->resting && listener->watch) {
        listener->resting = false;
        (void)kg_fdwatch_set(listener->watch, true, false);
    }
}

int kg_listener_open(kg_edge_t *edge,
                     const kg_edge_listener_t *config,
                     kg_listener_t *listener,
                     kg_err_t *err)
{
    listener->edge = edge;
    listener->tls = config->tls_cert != NULL;
    if ((config->tls_cert == NULL) != (config->tls_key == NULL)) {
        return kg_err_set(err, KG_ERR_CONFIG, "TLS on %s needs both a certificate and a key.",
                          config->address);
    }
    snprintf(listener->name, sizeof(listener->name), "listener-%u", listener->index);
    if (listener->tls) {
        listener->vhost =
            kg_lws_vhost(edge, listener->name, config->tls_cert, config->tls_key, err);
        if (!listener->vhost) {
            return -EINVAL;
        }
    }
    int rc = 0;
    if (config->socket && config->socket->fd >= 0) {
        listener->socket = *config->socket;
        *config->socket = (kg_edge_socket_t){.fd = -1};
    } else {
        rc = kg_edge_socket_open(config->address, config->unix_mode, &listener->socket, err);
    }
    if (rc == 0) {
        rc = kg_fdwatch_create(edge->loop, listener->socket.fd, on_acceptable, listener,
                               &listener->watch);
    }
    return rc < 0 ? rc : kg_fdwatch_set(listener->watch, true, false);
}

void kg_listener_close(kg_listener_t *listener)
{
    kg_fdwatch_close(&listener->watch);
    kg_edge_socket_close(&listener->socket);
}
