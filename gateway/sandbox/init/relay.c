/* Bytes between two streams, by a process of its own: for a port inside of a guest kernel, whose
 * connections can't be handed out. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/init.h"

#define RELAY_BYTES 65536

/* One direction. */
typedef struct kg_way {
    int from;
    int to;
    size_t at, len; /* what is read and not yet written */
    bool ended;     /* nothing more comes */
    bool over;
    char bytes[RELAY_BYTES];
} kg_way_t;

static bool again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* False when it broke. */
static bool move(kg_way_t *way)
{
    if (way->len == 0 && !way->ended) {
        ssize_t n = read(way->from, way->bytes, sizeof(way->bytes));
        if (n < 0 && !again(n)) {
            return false;
        }
        way->at = 0;
        way->len = n > 0 ? (size_t)n : 0;
        way->ended = n == 0;
    }
    while (way->len > 0) {
        ssize_t n = send(way->to, way->bytes + way->at, way->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            return again(n);
        }
        way->at += (size_t)n;
        way->len -= (size_t)n;
    }
    if (way->ended && !way->over) {
        way->over = true;
        (void)shutdown(way->to, SHUT_WR);
    }
    return true;
}

static short wants(const kg_way_t *in, const kg_way_t *out)
{
    return (short)((in->len == 0 && !in->ended ? POLLIN : 0) | (out->len > 0 ? POLLOUT : 0));
}

static void run(kg_way_t ways[2])
{
    while (!ways[0].over || !ways[1].over) {
        struct pollfd polls[2] = {
            {.fd = ways[0].from, .events = wants(&ways[0], &ways[1])},
            {.fd = ways[1].from, .events = wants(&ways[1], &ways[0])},
        };
        for (int i = 0; i < 2;
             i++) { /* one that is only waited for would report its end for ever */
            polls[i].fd = polls[i].events ? polls[i].fd : -1;
        }
        if (poll(polls, 2, -1) < 0 && errno != EINTR) {
            return;
        }
        if (!move(&ways[0]) || !move(&ways[1])) {
            return;
        }
    }
}

int init_relay_start(int a, int b)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid != 0) {
        return pid < 0 ? -errno : 0; /* reaped with all that falls to pid 1 */
    }
    (void)prctl(PR_SET_NAME, "sandal-relay");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(a, 3) < 0 || dup2(b, 4) < 0 ||
        close_range(5, INIT_FD_LAST, 0) < 0 || fcntl(3, F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(4, F_SETFL, O_NONBLOCK) < 0) {
        _exit(1);
    }
    kg_way_t *ways = calloc(2, sizeof(*ways));
    if (ways) {
        ways[0].from = ways[1].to = 3;
        ways[0].to = ways[1].from = 4;
        run(ways);
    }
    _exit(0);
}
