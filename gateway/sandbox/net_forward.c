/* The forwarder's UDP side and what both sides share: who is asked, which names are open, which
 * addresses they lead to. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/sandbox/net_forward.h"

#define TRY_NS (2 * KG_NS_PER_S)
#define TRIES 3
#define BURST 32 /* queries of one turn */
#define LEARN_MAX 32
#define TTL_MAX 86400U

void forward_init(forward_t *f, const kg_nets_t *nets, int udp, int tcp, int nft)
{
    memset(f, 0, sizeof(*f));
    f->nets = nets;
    f->udp = udp;
    f->tcp = tcp;
    f->nft = nft;
    for (size_t i = 0; i < FORWARD_WAITING_MAX; i++) {
        f->waiting[i].fd = -1;
    }
    for (size_t i = 0; i < FORWARD_TCP_MAX; i++) {
        f->streams[i].client = -1;
        f->streams[i].server = -1;
    }
}

static void read_server(forward_t *f, const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    void *to = &f->servers[f->server_count];
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        if (ntohl(v4.sin_addr.s_addr) == net_gateway(f->nets)) {
            return; /* never ourselves */
        }
        memcpy(to, &v4, sizeof(v4));
    } else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
        memcpy(to, &v6, sizeof(v6));
    } else {
        return;
    }
    f->server_count++;
}

const char *net_resolvers(const kg_nets_t *nets)
{
    return nets->resolvers[0] ? nets->resolvers : "/etc/resolv.conf";
}

/* The file is read again when it has changed: hosts move between networks. */
void forward_servers_read(forward_t *f)
{
    struct stat st;
    char line[256];
    FILE *file = fopen(net_resolvers(f->nets), "re");
    if (!file) {
        return;
    }
    if (fstat(fileno(file), &st) == 0 && (st.st_mtim.tv_sec != f->servers_mtime.tv_sec ||
                                          st.st_mtim.tv_nsec != f->servers_mtime.tv_nsec)) {
        f->servers_mtime = st.st_mtim;
        f->server_count = 0;
        while (f->server_count < FORWARD_SERVERS_MAX && fgets(line, sizeof(line), file)) {
            char address[64];
            if (sscanf(line, " nameserver %63s", address) == 1) {
                read_server(f, address);
            }
        }
    }
    (void)fclose(file);
}

int forward_connect(forward_t *f, unsigned server, int type)
{
    if (f->server_count == 0) {
        return -ENETUNREACH;
    }
    const struct sockaddr_storage *to = &f->servers[server % f->server_count];
    socklen_t size =
        to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    KG_AUTO_CLOSE int fd = socket(to->ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)to, size) < 0 && errno != EINPROGRESS)) {
        return -errno;
    }
    return kg_take_fd(&fd);
}

uint16_t forward_random_id(void)
{
    uint16_t id = 0;
    (void)!getrandom(&id, sizeof(id), 0);
    return id;
}

bool forward_allowed(forward_t *f, uint32_t slot, const kg_dns_question_t *question)
{
    net_slot_file_t file;
    if (net_file_read(f->nets, slot, &file) < 0) {
        return false;
    }
    if (net_domain_open(&file.wish, question->name)) {
        return true;
    }
    kg_net_denied_t row = {.at_ns = kg_wall_ns(), .family = 4, .protocol = IPPROTO_UDP, .port = 53};
    uint32_t gateway = htonl(net_gateway(f->nets));
    memcpy(row.address, &gateway, sizeof(gateway));
    (void)snprintf(row.domain, sizeof(row.domain), "%.*s", (int)sizeof(row.domain) - 1,
                   question->name);
    net_domain_why(&file.wish, question->name, &row);
    (void)net_log_add(f->nets, slot, &row);
    return false;
}

static bool known(const net_name_t *names, size_t count, const net_name_t *name)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&names[i], name, sizeof(*name)) == 0) {
            return true;
        }
    }
    return false;
}

void forward_learn(forward_t *f,
                   uint32_t slot,
                   const kg_dns_question_t *question,
                   const uint8_t *answer,
                   size_t size)
{
    static const size_t names_size = sizeof(net_name_t) * NET_NAMES_KEPT;
    kg_dns_address_t found[LEARN_MAX];
    net_slot_file_t file;
    size_t count = kg_dns_addresses(answer, size, found, LEARN_MAX);
    if (count == 0 || strlen(question->name) >= KG_NET_DOMAIN_MAX ||
        net_file_read(f->nets, slot, &file) < 0) {
        return;
    }
    KG_AUTO_FREE net_name_t *names = malloc(names_size);
    size_t name_count = names ? net_names_read(f->nets, slot, names) : 0;
    for (size_t i = 0; i < count; i++) {
        net_name_t name;
        memset(&name, 0, sizeof(name)); /* padding too: rows are compared whole */
        name.family = found[i].family;
        memcpy(name.address, found[i].address, sizeof(name.address));
        (void)snprintf(name.domain, sizeof(name.domain), "%.*s", KG_NET_DOMAIN_MAX - 1,
                       question->name);
        if (names && !known(names, name_count, &name)) {
            (void)net_name_add(f->nets, slot, &name);
        }
        uint32_t ttl = found[i].ttl < NET_NAME_SECONDS ? NET_NAME_SECONDS : found[i].ttl;
        for (uint32_t j = 0; j < file.wish.rule_count; j++) {
            const kg_net_rule_t *rule = &file.wish.rules[j];
            if (rule->family == 0 && net_domain_matches(rule->domain, question->name)) {
                net_set_t set = {slot, file.generation, j};
                (void)net_rules_learn(f->nets, f->nft, &set, found[i].family, found[i].address,
                                      ttl > TTL_MAX ? TTL_MAX : ttl);
            }
        }
    }
}

static void reply(forward_t *f, const forward_waiting_t *w, uint8_t *bytes, size_t size)
{
    bytes[0] = (uint8_t)(w->client_id >> 8);
    bytes[1] = (uint8_t)w->client_id;
    (void)sendto(f->udp, bytes, size, MSG_DONTWAIT, (const struct sockaddr *)&w->client,
                 sizeof(w->client));
}

static void say_no(forward_t *f, forward_waiting_t *w, uint8_t code)
{
    uint8_t out[FORWARD_QUERY_MAX];
    reply(f, w, out, kg_dns_say_no(w->query, &w->question, code, out));
    kg_closep(&w->fd);
}

/* The next server is asked, or the client gets to know that none answers. */
static void ask(forward_t *f, forward_waiting_t *w, uint64_t now_ns)
{
    for (; w->tries < TRIES; w->tries++) {
        uint16_t id = forward_random_id();
        kg_closep(&w->fd);
        w->fd = forward_connect(f, w->tries, SOCK_DGRAM);
        w->query[0] = (uint8_t)(id >> 8);
        w->query[1] = (uint8_t)id;
        if (w->fd >= 0 && send(w->fd, w->query, w->size, MSG_DONTWAIT) == (ssize_t)w->size) {
            w->tries++;
            w->deadline_ns = now_ns + TRY_NS;
            return;
        }
    }
    say_no(f, w, KG_DNS_SERVFAIL);
    w->fd = -1;
}

static forward_waiting_t *free_place(forward_t *f, uint32_t slot)
{
    forward_waiting_t *place = NULL;
    unsigned of_slot = 0;
    for (size_t i = 0; i < FORWARD_WAITING_MAX; i++) {
        if (f->waiting[i].fd < 0) {
            place = &f->waiting[i];
        } else if (f->waiting[i].slot == slot) {
            of_slot++;
        }
    }
    return of_slot < FORWARD_WAITING_SLOT ? place : NULL;
}

static void take_query(forward_t *f, const struct sockaddr_in *client, size_t size, uint64_t now_ns)
{
    uint32_t slot;
    forward_waiting_t full = {.fd = -1};
    if (client->sin_family != AF_INET || size > FORWARD_QUERY_MAX ||
        !net_slot_of(f->nets, 4, &client->sin_addr, &slot)) {
        return;
    }
    forward_waiting_t *w = free_place(f, slot);
    bool no_room = !w;
    w = w ? w : &full;
    w->slot = slot;
    w->client = *client;
    w->tries = 0;
    w->size = size;
    memcpy(w->query, f->buffer, size);
    if (kg_dns_query(w->query, size, &w->question) < 0) {
        return;
    }
    w->client_id = w->question.id;
    if (no_room) {
        say_no(f, w, KG_DNS_SERVFAIL);
    } else if (!forward_allowed(f, slot, &w->question)) {
        say_no(f, w, KG_DNS_REFUSED);
    } else {
        forward_servers_read(f);
        ask(f, w, now_ns);
    }
}

static void take_queries(forward_t *f, uint64_t now_ns)
{
    for (unsigned i = 0; i < BURST; i++) {
        struct sockaddr_in client = {.sin_family = AF_UNSPEC};
        socklen_t length = sizeof(client);
        ssize_t n = recvfrom(f->udp, f->buffer, sizeof(f->buffer), MSG_DONTWAIT,
                             (struct sockaddr *)&client, &length);
        if (n < 0) {
            return;
        }
        take_query(f, &client, (size_t)n, now_ns);
    }
}

static void take_answer(forward_t *f, forward_waiting_t *w, uint64_t now_ns)
{
    ssize_t n = recv(w->fd, f->buffer, sizeof(f->buffer), MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EAGAIN) {
            ask(f, w, now_ns); /* refused: nobody is there */
        }
        return;
    }
    if (!kg_dns_answers(f->buffer, (size_t)n, w->query, w->question.end)) {
        return; /* somebody guesses; the true one may still come */
    }
    forward_learn(f, w->slot, &w->question, f->buffer, (size_t)n);
    reply(f, w, f->buffer, (size_t)n);
    kg_closep(&w->fd);
}

size_t forward_polls(forward_t *f, struct pollfd *ret)
{
    size_t count = 0;
    ret[count++] = (struct pollfd){.fd = f->udp, .events = POLLIN};
    ret[count++] = (struct pollfd){.fd = f->tcp, .events = POLLIN};
    for (size_t i = 0; i < FORWARD_WAITING_MAX; i++) {
        if (f->waiting[i].fd >= 0) {
            ret[count++] = (struct pollfd){.fd = f->waiting[i].fd, .events = POLLIN};
        }
    }
    return count + forward_tcp_polls(f, ret + count);
}

static forward_waiting_t *waiting_of(forward_t *f, int fd)
{
    for (size_t i = 0; i < FORWARD_WAITING_MAX; i++) {
        if (f->waiting[i].fd == fd) {
            return &f->waiting[i];
        }
    }
    return NULL;
}

/* What is due first, then answers, then new ones: a descriptor that is closed on the way is never
 * mistaken for the one that comes next. */
void forward_turn(forward_t *f, const struct pollfd *polls, size_t count, uint64_t now_ns)
{
    for (size_t i = 2; i < count; i++) {
        if (polls[i].revents == 0) {
            continue;
        }
        forward_waiting_t *w = waiting_of(f, polls[i].fd);
        if (w) {
            take_answer(f, w, now_ns);
        } else {
            forward_tcp_turn(f, polls[i].fd, polls[i].revents, now_ns);
        }
    }
    for (size_t i = 0; i < FORWARD_WAITING_MAX; i++) {
        if (f->waiting[i].fd >= 0 && f->waiting[i].deadline_ns <= now_ns) {
            ask(f, &f->waiting[i], now_ns);
        }
    }
    forward_tcp_expire(f, now_ns);
    if (polls[0].revents) {
        take_queries(f, now_ns);
    }
    if (polls[1].revents) {
        forward_tcp_accept(f, now_ns);
    }
}
