/* A world of network namespaces for the tests of networks: the test's own one is the host, with an
 * uplink to an "internet" that has addresses which look public, private and like metadata, servers
 * on them, and a DNS server. Nothing leaves it. */
#ifndef TEST_NET_WORLD_H
#define TEST_NET_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WORLD_PUBLIC "93.184.216.34"
#define WORLD_OTHER "1.2.3.4"
#define WORLD_PRIVATE "10.50.0.1"
#define WORLD_PUBLIC6 "2606:2800:220:1::34"
#define WORLD_HOST_PUBLIC "5.6.7.8"
#define WORLD_UPLINK "10.77.0.2"
#define WORLD_LAN "10.88.0.2" /* a neighbour on another interface of the host */

typedef struct world {
    pid_t internet, lan;
    char dir[64];
} world_t;

/* The process is in a network namespace of its own from here on. */
void world_make(world_t *w);
void world_end(world_t *w);
void world_run(pid_t ns, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

pid_t world_namespace(
    void); /* a process in a new network namespace with lo up, that does nothing */
void world_namespace_end(pid_t *pid);

/* From inside the network namespace of pid. 0, or the errno that connect gave (ETIMEDOUT after a
 * second). */
int world_connect(pid_t ns, const char *address, uint16_t port);
/* A connection that stays; the descriptor, or -errno. */
int world_connect_fd(pid_t ns, const char *address, uint16_t port);
bool world_echoes(int fd); /* whether a byte comes back within a second */
/* Asks server for name; the answer's code, or -ETIMEDOUT. */
int world_resolve(pid_t ns, const char *server, const char *name, bool tcp);
/* Sends a datagram to WORLD_PUBLIC:9999, with that source (NULL = its own). */
void world_send_from(pid_t ns, const char *source);
/* How many of those have come. */
int world_sent_count(pid_t ns);

#endif
