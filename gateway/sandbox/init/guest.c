/* The sandbox's processes in another kernel than ours (gVisor): a second sandal-init is their first
 * process, at the other end of a socket. What is about processes and their ports is asked of it;
 * files and the kernels' sockets, which both kernels have in common, are our own affair.
 *
 * Descriptors go into that kernel, never out of it. So pipes are made here: the inner ends go along
 * with the request, ours wait for the answer; those of a kernel are kept for the gateway after this
 * one. Whoever is over there is as little trusted as the
 * sandbox itself: its frames are read by the codec, and only answers to what was asked go on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/oom.h"

#define READ_BUDGET 32 /* frames a loop turn */
#define SEND_MS 1000   /* it reads at once, unless it stands still: then we do too */
#define FIRST_SPARE_FD 16

/* A request that has gone over. */
struct kg_iguest_wait {
    kg_iguest_wait_t *next;
    uint32_t seq; /* over there: gateways choose theirs anew */
    uint32_t asked;
    uint32_t verb;
    uint64_t token; /* of SPAWN and ATTACH */
    unsigned gateway_number;
    unsigned ticks; /* so many more */
    bool keep;      /* a kernel's ends */
    int ends[3];    /* to go back with the answer */
};

/* Our ends of a kernel's pipes, of which each gateway gets copies, until its end is acknowledged.
 */
struct kg_iguest_kept {
    kg_iguest_kept_t *next;
    uint64_t token;
    int ends[3];
};

static int take(int at, int *ret_fd)
{
    KG_AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    KG_AUTO_CLOSE int fd = fcntl(at, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);

    if (fd < 0 || null < 0 || dup2(null, at) < 0) {
        return -errno;
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

int init_link_take(int *ret_fd)
{
    return take(KG_INIT_FD_LINK, ret_fd);
}

int init_guest_take(kg_init_t *in)
{
    int r = take(KG_INIT_FD_LINK, &in->guest);
    return r < 0 ? r : take(KG_INIT_FD_OOM, &in->oom);
}

bool init_guest_has(const kg_init_t *in, unsigned verb)
{
    if (!(in->flags & KG_INIT_FLAG_GUEST)) {
        return false;
    }
    switch (verb) {
    case KG_IP_SPAWN:
    case KG_IP_SIGNAL:
    case KG_IP_KILL_TREE:
    case KG_IP_ACK:
    case KG_IP_REPORT:
    case KG_IP_USAGE:
    case KG_IP_ATTACH:
    case KG_IP_CONNECT:
        return true;
    default:
        return false;
    }
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void close_ends(int ends[3])
{
    for (int i = 0; i < 3; i++) {
        kg_closep(&ends[i]);
    }
}

static void wait_free(kg_iguest_wait_t *wait)
{
    close_ends(wait->ends);
    free(wait);
}

static void drop_wait(kg_init_t *in, const kg_iguest_wait_t *wait)
{
    for (kg_iguest_wait_t **at = &in->guest_waits; *at; at = &(*at)->next) {
        if (*at == wait) {
            kg_iguest_wait_t *gone = *at;
            *at = gone->next;
            in->guest_wait_count--;
            wait_free(gone);
            return;
        }
    }
}

static kg_iguest_wait_t *find_wait(kg_init_t *in, uint32_t seq, unsigned verb)
{
    for (kg_iguest_wait_t *wait = in->guest_waits; wait; wait = wait->next) {
        if (wait->seq == seq && wait->verb == verb) {
            return wait;
        }
    }
    return NULL;
}

/* --- Kept ends -------------------------------------------------------------------------------- */

static int copy_ends(const int from[3], int to[3])
{
    to[0] = to[1] = to[2] = -1;
    for (int i = 0; i < 3; i++) {
        to[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, 0);
        if (from[i] >= 0 && to[i] < 0) {
            int error = -errno;
            close_ends(to);
            return error;
        }
    }
    return 0;
}

static kg_iguest_kept_t *find_kept(const kg_init_t *in, uint64_t token)
{
    kg_iguest_kept_t *kept = in->guest_kept;
    while (kept && kept->token != token) {
        kept = kept->next;
    }
    return kept;
}

static void drop_kept(kg_init_t *in, uint64_t token)
{
    for (kg_iguest_kept_t **at = &in->guest_kept; *at; at = &(*at)->next) {
        if ((*at)->token == token) {
            kg_iguest_kept_t *gone = *at;
            *at = gone->next;
            in->guest_kept_count--;
            close_ends(gone->ends);
            free(gone);
            return;
        }
    }
}

/* Where it can't be done, the next gateway finds none and starts the kernel anew. */
static void keep(kg_init_t *in, uint64_t token, const int ends[3])
{
    kg_iguest_kept_t *kept = NULL;

    if (in->guest_kept_count < INIT_GUEST_KEPT_MAX && !find_kept(in, token)) {
        kept = calloc(1, sizeof(*kept));
    }
    if (!kept || copy_ends(ends, kept->ends) < 0) {
        free(kept);
        return;
    }
    kept->token = token;
    kept->next = in->guest_kept;
    in->guest_kept = kept;
    in->guest_kept_count++;
}

void init_guest_drop(kg_init_t *in)
{
    kg_closep(&in->guest);
    while (in->guest_waits) {
        drop_wait(in, in->guest_waits);
    }
    while (in->guest_kept) {
        drop_kept(in, in->guest_kept->token);
    }
}

/* --- Asking ----------------------------------------------------------------------------------- */

static uint64_t token_of(const kg_ip_request_t *r)
{
    bool has = r->head.verb == KG_IP_SPAWN || r->head.verb == KG_IP_ATTACH;
    return has ? r->token.token : 0;
}

static void refuse(kg_init_t *in, unsigned verb, uint32_t seq, uint64_t token, int error)
{
    kg_ip_reply_t reply;

    if (verb == KG_IP_ACK) {
        return;
    }
    (void)kg_ip_reply_init(&reply, (kg_ip_verb_t)verb, seq);
    switch (verb) {
    case KG_IP_SPAWN:
    case KG_IP_ATTACH:
        reply.spawned.token = token;
        reply.spawned.error = error;
        reply.spawned.step = error == -ETIMEDOUT ? KG_IP_STEP_TIMEOUT : KG_IP_STEP_PIPE;
        break;
    case KG_IP_USAGE:
        reply.usage.error = error;
        break;
    case KG_IP_CONNECT:
        reply.files.error = error;
        break;
    case KG_IP_REPORT: /* has no place for one: there is nothing */
        break;
    default:
        reply.result.error = error;
        break;
    }
    init_send(in, &reply, NULL, 0);
}

static int make_pair(int *ret_inner, int *ret_outer)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    *ret_inner = pair[0];
    *ret_outer = pair[1];
    return fcntl(*ret_outer, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_ends(const kg_ip_request_t *r, int inner[3], int outer[3])
{
    if (r->head.verb == KG_IP_CONNECT) {
        return make_pair(&inner[0], &outer[0]);
    }
    if (r->head.verb != KG_IP_SPAWN) {
        return 0;
    }
    if (r->spawn.flags & KG_IP_SPAWN_PTY) {
        return -ENOTSUP; /* a terminal can't come out of there */
    }
    return init_make_pipes(&r->spawn, inner, outer);
}

static int send_over(const kg_init_t *in, const void *frame, size_t len, const int inner[3])
{
    int fds[3];
    size_t count = 0;

    for (int i = 0; i < 3; i++) {
        if (inner[i] >= 0) {
            fds[count++] = inner[i];
        }
    }
    for (;;) {
        int r = kg_seq_send(in->guest, frame, len, fds, count);
        if (r != -EAGAIN && r != -ENOBUFS) {
            return r;
        }
        struct pollfd p = {.fd = in->guest, .events = POLLOUT};
        if (poll(&p, 1, SEND_MS) == 0) {
            return r;
        }
    }
}

static int ask(kg_init_t *in, const kg_ip_request_t *r, size_t len, int inner[3])
{
    kg_ip_request_t out = *r;
    size_t fixed = len - (size_t)in->frame_tail_len;

    if (in->guest_wait_count >= INIT_GUEST_WAITS_MAX) {
        return -EAGAIN;
    }
    kg_iguest_wait_t *wait = calloc(1, sizeof(*wait));
    if (!wait) {
        return -ENOMEM;
    }
    *wait = (kg_iguest_wait_t){.seq = ++in->guest_seq,
                               .asked = r->head.seq,
                               .verb = r->head.verb,
                               .token = token_of(r),
                               .ticks = INIT_GUEST_TICKS,
                               .gateway_number = in->gateway_number,
                               .ends = {-1, -1, -1}};
    int error = make_ends(r, inner, wait->ends);
    if (error == 0) {
        out.head.seq = wait->seq;
        if (r->head.verb == KG_IP_SPAWN) { /* memory that the two kernels have in common */
            wait->keep = (r->spawn.flags & KG_IP_SPAWN_LAST_WORDS) != 0;
            out.spawn.flags &= ~KG_IP_SPAWN_LAST_WORDS;
        } else if (r->head.verb == KG_IP_ACK) {
            drop_kept(in, r->token.token);
        }
        memcpy(in->frame, &out, fixed);
        error = send_over(in, in->frame, len, inner);
    }
    if (error < 0 || r->head.verb == KG_IP_ACK) {
        wait_free(wait);
        return error;
    }
    wait->next = in->guest_waits;
    in->guest_waits = wait;
    in->guest_wait_count++;
    return 0;
}

void init_guest_ask(kg_init_t *in, const kg_ip_request_t *r, size_t len)
{
    int inner[3] = {-1, -1, -1};
    int error = ask(in, r, len, inner);

    for (int i = 0; i < 3; i++) {
        kg_closep(&inner[i]);
    }
    if (error < 0) {
        refuse(in, r->head.verb, r->head.seq, token_of(r), error);
    }
}

/* --- Time ------------------------------------------------------------------------------------- */

/* An answer that comes later finds nobody. */
static void time_out(kg_init_t *in, const kg_iguest_wait_t *wait)
{
    if (wait->gateway_number == in->gateway_number) {
        refuse(in, wait->verb, wait->asked, wait->token, -ETIMEDOUT);
    }
    drop_wait(in, wait);
}

/* One second of the time that they have, in which both kernels ran: what was frozen, or waits for
 * the gateway to read, is not late. */
static uint64_t tick(kg_init_t *in, uint64_t now_ns)
{
    if (!in->guest_waits) {
        in->guest_tick_ns = INIT_NEVER;
        return INIT_NEVER;
    }
    if (in->guest_tick_ns != INIT_NEVER && now_ns < in->guest_tick_ns) {
        return in->guest_tick_ns;
    }
    bool counts = in->guest_tick_ns != INIT_NEVER && !in->out_first;
    kg_iguest_wait_t *next = NULL;
    for (kg_iguest_wait_t *wait = in->guest_waits; wait && counts; wait = next) {
        next = wait->next;
        if (--wait->ticks == 0) {
            time_out(in, wait);
        }
    }
    in->guest_tick_ns = now_ns + INIT_GUEST_TICK_NS;
    return in->guest_tick_ns;
}

uint64_t init_guest_step(kg_init_t *in, uint64_t now_ns)
{
    if (in->guest < 0) {
        return INIT_NEVER;
    }
    if (now_ns >= in->oom_next_ns) {
        uint64_t kills = kg_oom_kills(in->oom);
        /* The kernel chooses any process of the guest's, and without it the rest stands still. */
        if (kills > 0 && kills != UINT64_MAX) {
            init_guest_drop(in);
            return INIT_NEVER;
        }
        in->oom_next_ns = kills == UINT64_MAX ? INIT_NEVER : now_ns + INIT_OOM_NS;
    }
    uint64_t tick_ns = tick(in, now_ns);
    return tick_ns < in->oom_next_ns ? tick_ns : in->oom_next_ns;
}

/* --- Answers ---------------------------------------------------------------------------------- */

/* What goes along with an answer, and what the frame says of it. */
static size_t take_ends(kg_init_t *in, kg_ip_reply_t *reply, kg_iguest_wait_t *wait, int fds[3])
{
    size_t count = 0;
    bool proc = reply->head.verb == KG_IP_SPAWN || reply->head.verb == KG_IP_ATTACH;

    if (proc) {
        const kg_iguest_kept_t *kept = find_kept(in, wait->token);
        reply->spawned.fds = 0;
        if (reply->spawned.error == 0 && wait->keep) {
            keep(in, wait->token, wait->ends);
        } else if (reply->spawned.error == 0 && kept && reply->head.verb == KG_IP_ATTACH) {
            reply->spawned.error = copy_ends(kept->ends, wait->ends);
        }
    }
    if ((proc ? reply->spawned.error : reply->files.error) != 0) {
        return 0;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (wait->ends[i] >= 0) {
            reply->spawned.fds |= proc ? 1U << i : 0;
            fds[count++] = kg_take_fd(&wait->ends[i]);
        }
    }
    return count;
}

/* What lost its memory to the host's kernel is to gVisor a process that it can't go on with, and
 * ends with an exit code that tells a failure. */
static void correct_end(const kg_init_t *in, kg_ip_reply_t *reply)
{
    uint64_t kills = kg_oom_kills(in->oom);
    int status = reply->exit.status;
    if (kills > 0 && kills != UINT64_MAX && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        reply->exit.status = SIGKILL;
    }
}

static void answer(kg_init_t *in, kg_ip_reply_t *reply)
{
    int fds[3] = {-1, -1, -1};

    if (reply->head.verb == KG_IP_EXIT) { /* unasked; told again when the next gateway attaches */
        correct_end(in, reply);
        init_send(in, reply, NULL, 0);
        return;
    }
    kg_iguest_wait_t *wait = find_wait(in, reply->head.seq, reply->head.verb);
    if (!wait) {
        return;
    }
    if (wait->gateway_number == in->gateway_number) {
        size_t count = take_ends(in, reply, wait, fds);
        reply->head.seq = wait->asked;
        init_send(in, reply, fds, count);
    }
    wait->ticks = INIT_GUEST_TICKS;
    if (reply->head.verb != KG_IP_REPORT || !reply->report.more) {
        drop_wait(in, wait);
    }
}

void init_read_guest(kg_init_t *in)
{
    for (int i = 0; i < READ_BUDGET && in->guest >= 0; i++) {
        kg_ip_reply_t reply;
        size_t len = 0;
        int r = kg_seq_recv(in->guest, in->frame, sizeof(in->frame), &len, NULL, NULL);
        if (r == -EAGAIN) {
            return;
        }
        if (r < 0 || len == 0 || kg_ip_reply_decode(in->frame, len, &reply) < 0) {
            init_guest_drop(in); /* gone, or nonsense: the end of the sandbox */
            return;
        }
        answer(in, &reply);
    }
}
