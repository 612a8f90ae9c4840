/* Who talks to sandal-init. Anybody in the sandbox may reach the socket's name, so a peer is what
 * the kernel says it is (SO_PEERCRED of its connect): from outside. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

#define ACCEPT_BUDGET 8 /* connections a loop turn */

static bool may_talk(const kg_init_t *in, int fd)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        return false;
    }
    if (in->flags & KG_INIT_FLAG_PIDNS) {
        return peer.pid == 0; /* no number here: it is outside of our pid namespace */
    }
    return peer.uid == (in->is_root ? 0 : geteuid());
}

static kg_ipending_t *find_place(kg_init_t *in)
{
    kg_ipending_t *oldest = &in->pending[0];
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) {
        if (in->pending[i].fd < 0) {
            return &in->pending[i];
        }
        if (in->pending[i].until_ns < oldest->until_ns) {
            oldest = &in->pending[i];
        }
    }
    kg_closep(&oldest->fd);
    return oldest;
}

void init_accept(kg_init_t *in)
{
    for (int i = 0; i < ACCEPT_BUDGET; i++) {
        KG_AUTO_CLOSE int fd = accept4(in->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        if (may_talk(in, fd)) {
            kg_ipending_t *place = find_place(in);
            place->until_ns = kg_now_ns() + INIT_HELLO_NS;
            place->fd = kg_take_fd(&fd);
        }
    }
}

static void say_hello(int fd, uint32_t seq)
{
    kg_ip_reply_t reply;
    size_t size = kg_ip_reply_init(&reply, KG_IP_HELLO, seq);
    reply.result.pid = getpid();
    (void)kg_seq_send(fd, &reply, size, NULL, 0); /* it is empty: there is room */
}

static void take_role(kg_init_t *in, const kg_ip_hello_t *hello, int fd_take)
{
    say_hello(fd_take, hello->head.seq);
    if (hello->role == KG_IP_ROLE_KEEPER) {
        kg_closep(&in->keeper);
        in->keeper = fd_take;
        in->orphan_at_ns = INIT_NEVER;
        return;
    }
    init_gateway_gone(in);
    in->gateway = fd_take;
}

/* 1: a hello, -EAGAIN: nothing yet, else it has ended or is nonsense. */
static int read_hello(kg_init_t *in, int fd, kg_ip_request_t *ret_request)
{
    const char *tail;
    size_t tail_len;
    size_t len = 0;
    uint32_t seq;

    int r = kg_seq_recv(fd, in->frame, sizeof(in->frame), &len, NULL, NULL);
    if (r < 0) {
        return r;
    }
    r = kg_ip_request_decode(in->frame, len, ret_request, &tail, &tail_len, &seq);
    if (r < 0) {
        return r;
    }
    return ret_request->head.verb == KG_IP_HELLO ? 1 : -EPROTO;
}

void init_read_pending(kg_init_t *in, kg_ipending_t *pending)
{
    kg_ip_request_t request;
    int r = read_hello(in, pending->fd, &request);

    if (r == 1) {
        take_role(in, &request.hello, kg_take_fd(&pending->fd));
    } else if (r != -EAGAIN) {
        kg_closep(&pending->fd);
    }
}

void init_read_keeper(kg_init_t *in)
{
    kg_ip_request_t request;
    int r = read_hello(in, in->keeper, &request);

    if (r == 1 && request.hello.role == KG_IP_ROLE_KEEPER) {
        say_hello(in->keeper, request.head.seq);
    } else if (r != -EAGAIN) {
        kg_closep(&in->keeper);
        in->orphan_at_ns = kg_now_ns() + in->orphan_ns;
    }
}

uint64_t init_conns_step(kg_init_t *in, uint64_t now_ns)
{
    uint64_t next = in->orphan_at_ns;
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) {
        kg_ipending_t *pending = &in->pending[i];
        if (pending->fd >= 0 && pending->until_ns <= now_ns) {
            kg_closep(&pending->fd);
        }
        if (pending->fd >= 0 && pending->until_ns < next) {
            next = pending->until_ns;
        }
    }
    return next;
}
