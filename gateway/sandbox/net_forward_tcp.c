/* The forwarder's TCP side, for answers that are too long for a packet: one query after the other,
 * each by a connection of its own to the server. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/sandbox/net_forward.h"

#define STREAM_NS (10 * KG_NS_PER_S)

static void stream_close(forward_tcp_t *s)
{
    kg_closep(&s->client);
    kg_closep(&s->server);
    kg_freep(&s->answer);
}

size_t forward_tcp_polls(forward_t *f, struct pollfd *ret)
{
    size_t count = 0;
    for (size_t i = 0; i < FORWARD_TCP_MAX; i++) {
        const forward_tcp_t *s = &f->streams[i];
        if (s->client >= 0) {
            bool ours = s->state == TCP_QUERY || s->state == TCP_REPLY;
            bool in = s->state == TCP_QUERY || s->state == TCP_ANSWER;
            ret[count++] = (struct pollfd){.fd = ours ? s->client : s->server,
                                           .events = in ? POLLIN : POLLOUT};
        }
    }
    return count;
}

void forward_tcp_accept(forward_t *f, uint64_t now_ns)
{
    struct sockaddr_in peer = {.sin_family = AF_UNSPEC};
    socklen_t length = sizeof(peer);
    KG_AUTO_CLOSE int fd =
        accept4(f->tcp, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t slot;
    unsigned of_slot = 0;
    forward_tcp_t *place = NULL;
    if (fd < 0 || peer.sin_family != AF_INET || !net_slot_of(f->nets, 4, &peer.sin_addr, &slot)) {
        return;
    }
    for (size_t i = 0; i < FORWARD_TCP_MAX; i++) {
        forward_tcp_t *s = &f->streams[i];
        if (s->client < 0) {
            place = s;
        } else if (s->slot == slot) {
            of_slot++;
        }
    }
    if (!place || of_slot >= FORWARD_TCP_SLOT) {
        return;
    }
    place->client = kg_take_fd(&fd);
    place->state = TCP_QUERY;
    place->slot = slot;
    place->done = 0;
    place->deadline_ns = now_ns + STREAM_NS;
}

/* Reads a message with its length before it: 1 whole, 0 more to come, -errno. */
static int read_some(int fd, uint8_t *to, size_t max, size_t *done)
{
    size_t want = *done < 2 ? 2 : 2 + (size_t)(to[0] << 8 | to[1]);
    if (want > 2 + max) {
        return -EMSGSIZE;
    }
    ssize_t n = recv(fd, to + *done, want - *done, MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && errno == EAGAIN ? 0 : -EPIPE;
    }
    *done += (size_t)n;
    return *done > 2 && *done == 2 + (size_t)(to[0] << 8 | to[1]);
}

static int write_some(int fd, const uint8_t *from, size_t size, size_t *done)
{
    ssize_t n = send(fd, from + *done, size - *done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        return errno == EAGAIN ? 0 : -errno;
    }
    *done += (size_t)n;
    return *done == size;
}

static void stream_say_no(forward_tcp_t *s, uint8_t code)
{
    size_t size = kg_dns_say_no(s->query + 2, &s->question, code, s->answer + 2);
    s->answer[0] = (uint8_t)(size >> 8);
    s->answer[1] = (uint8_t)size;
    s->answer[2] = (uint8_t)(s->client_id >> 8);
    s->answer[3] = (uint8_t)s->client_id;
    s->state = TCP_REPLY;
    s->done = 0;
}

static int have_query(forward_t *f, forward_tcp_t *s)
{
    uint16_t id = forward_random_id();
    s->query_size = s->done - 2;
    s->answer = s->answer ? s->answer : malloc(2 + FORWARD_ANSWER_MAX);
    if (!s->answer || kg_dns_query(s->query + 2, s->query_size, &s->question) < 0) {
        return -EBADMSG;
    }
    s->client_id = s->question.id;
    s->done = 0;
    if (!forward_allowed(f, s->slot, &s->question)) {
        stream_say_no(s, KG_DNS_REFUSED);
        return 0;
    }
    forward_servers_read(f);
    s->query[2] = (uint8_t)(id >> 8);
    s->query[3] = (uint8_t)id;
    s->server = forward_connect(f, 0, SOCK_STREAM);
    if (s->server < 0) {
        stream_say_no(s, KG_DNS_SERVFAIL);
        return 0;
    }
    s->state = TCP_ASK;
    return 0;
}

static int have_answer(forward_t *f, forward_tcp_t *s)
{
    size_t size = s->done - 2;
    kg_closep(&s->server);
    if (!kg_dns_answers(s->answer + 2, size, s->query + 2, s->question.end)) {
        stream_say_no(s, KG_DNS_SERVFAIL);
        return 0;
    }
    forward_learn(f, s->slot, &s->question, s->answer + 2, size);
    s->answer[2] = (uint8_t)(s->client_id >> 8);
    s->answer[3] = (uint8_t)s->client_id;
    s->state = TCP_REPLY;
    s->done = 0;
    return 0;
}

/* One step; negative: the stream ends. */
static int stream_step(forward_t *f, forward_tcp_t *s, uint64_t now_ns)
{
    int r;
    switch (s->state) {
    case TCP_QUERY:
        r = read_some(s->client, s->query, FORWARD_QUERY_MAX, &s->done);
        return r == 1 ? have_query(f, s) : r;
    case TCP_ASK:
        r = write_some(s->server, s->query, 2 + s->query_size, &s->done);
        if (r < 0) {
            kg_closep(&s->server);
            stream_say_no(s, KG_DNS_SERVFAIL);
        } else if (r == 1) {
            s->state = TCP_ANSWER;
            s->done = 0;
        }
        return 0;
    case TCP_ANSWER:
        r = read_some(s->server, s->answer, FORWARD_ANSWER_MAX, &s->done);
        if (r < 0) {
            kg_closep(&s->server);
            stream_say_no(s, KG_DNS_SERVFAIL);
            return 0;
        }
        return r == 1 ? have_answer(f, s) : 0;
    case TCP_REPLY:
        r = write_some(s->client, s->answer, 2 + (size_t)(s->answer[0] << 8 | s->answer[1]),
                       &s->done);
        if (r == 1) {
            s->state = TCP_QUERY;
            s->done = 0;
            s->deadline_ns = now_ns + STREAM_NS;
        }
        return r;
    }
    return -EINVAL;
}

void forward_tcp_turn(forward_t *f, int fd, short revents, uint64_t now_ns)
{
    (void)revents;
    for (size_t i = 0; i < FORWARD_TCP_MAX; i++) {
        forward_tcp_t *s = &f->streams[i];
        bool ours = s->state == TCP_QUERY || s->state == TCP_REPLY;
        if (s->client >= 0 && (ours ? s->client : s->server) == fd) {
            if (stream_step(f, s, now_ns) < 0) {
                stream_close(s);
            }
            return;
        }
    }
}

void forward_tcp_expire(forward_t *f, uint64_t now_ns)
{
    for (size_t i = 0; i < FORWARD_TCP_MAX; i++) {
        if (f->streams[i].client >= 0 && f->streams[i].deadline_ns <= now_ns) {
            stream_close(&f->streams[i]);
        }
    }
}
