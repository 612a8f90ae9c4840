/* The DNS forwarder in the helper: UDP and TCP on one address, one query a packet, nothing kept but
 * who waits. */
#ifndef KG_SANDBOX_NET_FORWARD_H
#define KG_SANDBOX_NET_FORWARD_H

#include <netinet/in.h>
#include <poll.h>

#include "gateway/sandbox/net_dns.h"
#include "gateway/sandbox/net_private.h"

#define FORWARD_WAITING_MAX 256
#define FORWARD_WAITING_SLOT 32
#define FORWARD_TCP_MAX 64
#define FORWARD_TCP_SLOT 4
#define FORWARD_QUERY_MAX 1024
#define FORWARD_ANSWER_MAX 65535
#define FORWARD_SERVERS_MAX 3
#define FORWARD_POLL_MAX (2 + FORWARD_WAITING_MAX + FORWARD_TCP_MAX)

typedef struct forward_waiting {
    int fd; /* connected to the server, with a port of its own; -1 = free */
    uint32_t slot;
    struct sockaddr_in client;
    uint16_t client_id;
    unsigned tries;
    uint64_t deadline_ns;
    kg_dns_question_t question;
    size_t size;
    uint8_t query[FORWARD_QUERY_MAX]; /* with the id that the server sees */
} forward_waiting_t;

typedef enum forward_tcp_state {
    TCP_QUERY,  /* reading it from the client */
    TCP_ASK,    /* connecting to the server and writing it */
    TCP_ANSWER, /* reading the answer */
    TCP_REPLY,  /* writing it to the client */
} forward_tcp_state_t;

typedef struct forward_tcp {
    int client; /* -1 = free */
    int server;
    forward_tcp_state_t state;
    uint32_t slot;
    uint16_t client_id;
    uint64_t deadline_ns;
    kg_dns_question_t question;
    size_t query_size; /* without the length before it */
    size_t done;       /* bytes read or written in this state */
    uint8_t query[2 + FORWARD_QUERY_MAX];
    uint8_t *answer; /* 2 + FORWARD_ANSWER_MAX; NULL = not there */
} forward_tcp_t;

typedef struct forward {
    const kg_nets_t *nets;
    int udp, tcp, nft;
    unsigned server_count;
    struct sockaddr_storage servers[FORWARD_SERVERS_MAX];
    struct timespec servers_mtime;
    forward_waiting_t waiting[FORWARD_WAITING_MAX];
    forward_tcp_t streams[FORWARD_TCP_MAX];
    uint8_t buffer[FORWARD_ANSWER_MAX];
} forward_t;

void forward_init(forward_t *f, const kg_nets_t *nets, int udp, int tcp, int nft);
/* Fills at most FORWARD_POLL_MAX entries; how many. Then poll, then forward_turn with them. */
size_t forward_polls(forward_t *f, struct pollfd *ret);
void forward_turn(forward_t *f, const struct pollfd *polls, size_t count, uint64_t now_ns);

/* Between net_forward.c and net_forward_tcp.c. */
void forward_servers_read(forward_t *f);
/* A socket on its way to the server; fd or -errno. */
int forward_connect(forward_t *f, unsigned server, int type);
/* Whether it may be asked; else it is in the sandbox's log. */
bool forward_allowed(forward_t *f, uint32_t slot, const kg_dns_question_t *question);
void forward_learn(forward_t *f,
                   uint32_t slot,
                   const kg_dns_question_t *question,
                   const uint8_t *answer,
                   size_t size);
uint16_t forward_random_id(void);
size_t forward_tcp_polls(forward_t *f, struct pollfd *ret);
void forward_tcp_accept(forward_t *f, uint64_t now_ns);
void forward_tcp_turn(forward_t *f, int fd, short revents, uint64_t now_ns);
void forward_tcp_expire(forward_t *f, uint64_t now_ns);

#endif
