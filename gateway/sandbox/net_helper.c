/* The helper: a process that answers names and writes down what was refused. It holds
 * CAP_NET_ADMIN (to open addresses that names led to) and nothing else: another user, no other
 * capability. A second process above it starts it again when it ends. Both leave every descriptor
 * of the keeper alone, outlive it (its sandboxes do), and are ended by the next keeper. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/net_forward.h"
#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/priority.h"

#define ORPHAN_S 3600
#define LOOK_MS 500
#define ORPHANED 3 /* exit statuses */
#define UNFIT 4    /* could not give up its rights */
#define END_SECONDS 5
#define BIND_TRIES 20
#define GROUPS_TRIED 64
#define COPY_BYTES 128

typedef struct helper {
    int udp, tcp, log, nft, lock, keeper; /* keeper: its pidfd */
} helper_t;

static void helper_close(helper_t *h)
{
    kg_closep(&h->udp);
    kg_closep(&h->tcp);
    kg_closep(&h->log);
    kg_closep(&h->nft);
    kg_closep(&h->lock);
    kg_closep(&h->keeper);
}

static int bind_one(const kg_nets_t *nets, int type)
{
    int one = 1;
    struct sockaddr_in at = {
        .sin_family = AF_INET,
        .sin_port = htons(53),
        .sin_addr.s_addr = htonl(net_gateway(nets)),
    };
    KG_AUTO_CLOSE int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        (type == SOCK_STREAM && listen(fd, FORWARD_TCP_MAX) < 0)) {
        return -errno;
    }
    return kg_take_fd(&fd);
}

static int bind_group(int fd, uint16_t group)
{
    kg_nl_t nl = {.used = 0};
    struct nfgenmsg body = {.nfgen_family = AF_UNSPEC, .res_id = htons(group)};
    struct nfulnl_msg_config_cmd bind = {.command = NFULNL_CFG_CMD_BIND};
    struct nfulnl_msg_config_mode mode = {
        .copy_range = htonl(COPY_BYTES),
        .copy_mode = NFULNL_COPY_PACKET,
    };
    kg_nl_begin(&nl, (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_CONFIG, NLM_F_ACK, &body, sizeof(body));
    kg_nl_put(&nl, NFULA_CFG_CMD, &bind, sizeof(bind));
    kg_nl_put(&nl, NFULA_CFG_MODE, &mode, sizeof(mode));
    return kg_nl_talk(fd, &nl);
}

/* A group of the log that nobody listens to. */
static int open_log(kg_nets_t *nets)
{
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_NETFILTER);
    int r = fd;
    for (unsigned i = 0; fd >= 0 && i < GROUPS_TRIED; i++) {
        uint16_t group = (uint16_t)(1024 + (nets->keeper_tag * 61 + i) % 60000);
        r = bind_group(fd, group);
        if (r == 0) {
            nets->log_group = group;
            return kg_take_fd(&fd);
        }
        if (r != -EBUSY) {
            break;
        }
    }
    return r;
}

/* ---- what was refused ---- */

static bool read_packet(const uint8_t *p, size_t size, kg_net_denied_t *ret, const uint8_t **source)
{
    size_t ports;
    memset(ret, 0, sizeof(*ret));
    if (size >= 20 && p[0] >> 4 == 4) {
        ret->family = 4;
        ret->protocol = p[9];
        *source = p + 12;
        memcpy(ret->address, p + 16, 4);
        ports = (size_t)(p[0] & 15) * 4;
    } else if (size >= 40 && p[0] >> 4 == 6) {
        ret->family = 6;
        ret->protocol = p[6];
        *source = p + 8;
        memcpy(ret->address, p + 24, 16);
        ports = 40;
    } else {
        return false;
    }
    if ((ret->protocol == IPPROTO_TCP || ret->protocol == IPPROTO_UDP) && size >= ports + 4) {
        ret->port = (uint16_t)(p[ports + 2] << 8 | p[ports + 3]);
    }
    return true;
}

static void put_name(const kg_nets_t *nets, uint32_t slot, kg_net_denied_t *row)
{
    static const size_t size = sizeof(net_name_t) * NET_NAMES_KEPT;
    KG_AUTO_FREE net_name_t *names = malloc(size);
    size_t count = names ? net_names_read(nets, slot, names) : 0;
    for (size_t i = 0; i < count; i++) {
        if (names[i].family == row->family && memcmp(names[i].address, row->address, 16) == 0) {
            memcpy(row->domain, names[i].domain, sizeof(row->domain));
            return;
        }
    }
}

/* What the rule that refused it has marked it with. */
static void put_why(const uint8_t *attributes, size_t size, kg_net_denied_t *row)
{
    size_t length = 0;
    uint32_t mark = 0;
    const void *found = kg_nl_find(attributes, size, NFULA_MARK, sizeof(mark), &length);
    if (found) {
        memcpy(&mark, found, sizeof(mark));
        mark = ntohl(mark);
    }
    if (mark >> 24 == NET_MARK_OURS && (mark >> 8 & 0xff) < KG_NET_WHYS) {
        row->why = (uint8_t)(mark >> 8);
        row->rule = (uint8_t)mark;
    }
}

static void note_packet(const kg_nets_t *nets, const uint8_t *body, size_t size)
{
    size_t length = 0;
    uint32_t slot;
    kg_net_denied_t row;
    const uint8_t *source;
    if (size < sizeof(struct nfgenmsg)) {
        return;
    }
    const uint8_t *packet = kg_nl_find(body + sizeof(struct nfgenmsg),
                                       size - sizeof(struct nfgenmsg), NFULA_PAYLOAD, 20, &length);
    if (!packet || !read_packet(packet, length, &row, &source) ||
        !net_slot_of(nets, row.family, source, &slot)) {
        return;
    }
    row.at_ns = kg_wall_ns();
    put_why(body + sizeof(struct nfgenmsg), size - sizeof(struct nfgenmsg), &row);
    put_name(nets, slot, &row);
    (void)net_log_add(nets, slot, &row);
}

static void note_packets(const kg_nets_t *nets, int fd)
{
    _Alignas(8) uint8_t bytes[16384];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    for (size_t at = 0; n > 0 && (size_t)n - at >= sizeof(struct nlmsghdr);) {
        struct nlmsghdr header;
        memcpy(&header, bytes + at, sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > (size_t)n - at) {
            return;
        }
        if (header.nlmsg_type == ((NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET)) {
            note_packet(nets, bytes + at + sizeof(header), header.nlmsg_len - sizeof(header));
        }
        size_t step = NLMSG_ALIGN(header.nlmsg_len);
        at = step > (size_t)n - at ? (size_t)n : at + step;
    }
}

/* ---- the processes ---- */

/* Another user, with the one capability. An ordinary user's has none: over its router it is the
 * owner. */
static int give_up_rights(const kg_nets_t *nets)
{
    if (nets->routed) {
        return 0;
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = 1U << CAP_NET_ADMIN, .permitted = 1U << CAP_NET_ADMIN}};
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(NET_HELPER_UID, NET_HELPER_UID, NET_HELPER_UID) < 0 ||
        setresuid(NET_HELPER_UID, NET_HELPER_UID, NET_HELPER_UID) < 0 ||
        syscall(SYS_capset, &header, data) < 0) {
        return -errno;
    }
    return 0;
}

/* An ordinary user's rules close what the host has; without the descriptor they are renewed at each
 * turn, and so they are until they are there. */
typedef struct own {
    int fd;
    bool stale;
} own_t;

static void follow_own(const kg_nets_t *nets, int nft, own_t *own, bool changed)
{
    if (changed) {
        net_own_drain(own->fd);
    }
    if (nets->routed && (changed || own->stale || own->fd < 0)) {
        own->stale = net_own_renew(nets, nft) < 0;
    }
}

/* Until there is no keeper any more (true), or something is wrong. */
static bool serve(const kg_nets_t *nets, const helper_t *h)
{
    static struct pollfd polls[FORWARD_POLL_MAX + 3];
    own_t own = {.fd = nets->routed ? net_own_watch() : -1, .stale = true};
    forward_t *f = malloc(sizeof(*f));
    uint64_t orphan_ns = 0;
    uint64_t grace_ns = (nets->orphan_s ? nets->orphan_s : ORPHAN_S) * KG_NS_PER_S;
    if (!f) {
        return false;
    }
    forward_init(f, nets, h->udp, h->tcp, h->nft);
    for (;;) {
        size_t count = forward_polls(f, polls);
        polls[count] = (struct pollfd){.fd = h->log, .events = POLLIN};
        polls[count + 1] = (struct pollfd){.fd = orphan_ns == 0 ? h->keeper : -1, .events = POLLIN};
        polls[count + 2] = (struct pollfd){.fd = own.fd, .events = POLLIN};
        if (poll(polls, count + 3, LOOK_MS) < 0 && errno != EINTR) {
            break;
        }
        uint64_t now_ns = kg_now_ns();
        forward_turn(f, polls, count, now_ns);
        if (polls[count].revents) {
            note_packets(nets, h->log);
        }
        follow_own(nets, h->nft, &own, polls[count + 2].revents != 0);
        if (polls[count + 1].revents) {
            orphan_ns = now_ns;
        }
        if (orphan_ns != 0 && now_ns - orphan_ns > grace_ns) {
            break; /* no keeper came: its sandboxes have ended */
        }
    }
    free(f);
    return orphan_ns != 0;
}

/* As a keeper does when it closes; what a sandbox has goes with its namespace. */
static void give_back(kg_nets_t *nets)
{
    char said[120];
    KG_AUTO(net_script_done) net_script_t script = {.text = NULL};
    if (nets->routed) {
        net_router_end(nets);
        return;
    }
    net_host_leave(nets);
    net_script_add(&script, "add table inet sandal_%04x\ndelete table inet sandal_%04x\n",
                   nets->keeper_tag, nets->keeper_tag);
    (void)net_nft_run(&script, said, sizeof(said));
    (void)net_gateway_set(nets, false);
}

static bool die_with(pid_t parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

/* Above the helper: ends when it says so (no keeper), else starts another. */
static void watch(kg_nets_t *nets, const helper_t *h)
{
    for (;;) {
        int status = 0;
        pid_t above = getpid();
        pid_t pid = fork();
        if (pid == 0) {
            /* Other rights clear the signal, so it is set and looked at again: one that is left
             * would hold the lock, and no other could start. */
            if (die_with(above) && give_up_rights(nets) == 0 && die_with(above) &&
                net_confine(nets) == 0) {
                _exit(serve(nets, h) ? ORPHANED : 0);
            }
            _exit(UNFIT);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid) {
            return;
        }
        struct timespec pause = {.tv_nsec = 200000000}; /* never a busy loop of crashes, */
        if (!WIFEXITED(status)) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        if (WEXITSTATUS(status) == ORPHANED) {
            give_back(nets);
        } else if (WEXITSTATUS(status) == UNFIT) {
            (void)nanosleep(&pause, NULL); /* nor of helpers that the keeper starts anew */
        }
        return;
    }
}

static int keep_only(helper_t *h, int *dir)
{
    int *const mine[] = {&h->udp, &h->tcp, &h->log, &h->nft, &h->lock, &h->keeper, dir};
    int first = 3;
    for (size_t i = 0; i < KG_ARRAY_LEN(mine); i++) { /* above all others first, then down */
        int fd = fcntl(*mine[i], F_DUPFD_CLOEXEC, 200);
        if (fd < 0) {
            return -errno;
        }
        *mine[i] = fd;
    }
    (void)close_range(3, 199, 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(mine); i++, first++) {
        if (dup3(*mine[i], first, O_CLOEXEC) < 0) {
            return -errno;
        }
        *mine[i] = first;
    }
    (void)close_range((unsigned)first, ~0U, 0);
    return 0;
}

static void become_helper(kg_nets_t *nets, helper_t *h)
{
    sigset_t none;
    char pid[16];
    (void)sigemptyset(&none);
    for (int signo = 1; signo < 32; signo++) {
        (void)signal(signo, SIG_DFL);
    }
    (void)sigprocmask(SIG_SETMASK, &none, NULL); // NOLINT(concurrency-mt-unsafe): one thread
    (void)setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++) { /* it may outlive whoever reads them */
        (void)dup2(null, fd);
    }
    (void)prctl(PR_SET_NAME, NET_HELPER_NAME);
    kg_priority_usual();
    nets->lock_fd = -1;
    if (keep_only(h, &nets->dir_fd) < 0 || chdir("/") < 0) {
        return;
    }
    (void)snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(h->lock, 0) == 0 && pwrite(h->lock, pid, strlen(pid), 0) > 0) {
        watch(nets, h);
    }
}

int net_helper_sockets(kg_nets_t *nets, int ret[NET_HELPER_SOCKETS])
{
    KG_AUTO_CLOSE int udp = bind_one(nets, SOCK_DGRAM);
    KG_AUTO_CLOSE int tcp = udp < 0 ? udp : bind_one(nets, SOCK_STREAM);
    KG_AUTO_CLOSE int log = tcp < 0 ? tcp : open_log(nets);
    KG_AUTO_CLOSE int nft = log < 0 ? log : kg_nl_open(NETLINK_NETFILTER);
    if (nft < 0) {
        return nft;
    }
    ret[0] = kg_take_fd(&udp);
    ret[1] = kg_take_fd(&tcp);
    ret[2] = kg_take_fd(&log);
    ret[3] = kg_take_fd(&nft);
    return 0;
}

/* The system closes what a process had in an order of its own: the lock of one that has just ended
 * may be free a moment before the sockets, of which the one that is bound first here comes last. */
static int open_sockets(kg_nets_t *nets, int ret[NET_HELPER_SOCKETS])
{
    int r = -EADDRINUSE;
    for (unsigned i = 0; r == -EADDRINUSE && i < BIND_TRIES; i++) {
        struct timespec pause = {.tv_nsec = i == 0 ? 0 : 10000000};
        (void)nanosleep(&pause, NULL);
        r = nets->routed ? net_user_sockets(nets, ret) : net_helper_sockets(nets, ret);
    }
    return r;
}

int net_helper_start(kg_nets_t *nets)
{
    int sockets[NET_HELPER_SOCKETS];
    KG_AUTO(helper_close) helper_t h = {-1, -1, -1, -1, -1, -1};
    h.lock = openat(nets->dir_fd, NET_HELPER_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (h.lock < 0 || flock(h.lock, LOCK_EX | LOCK_NB) < 0) {
        return -errno;
    }
    h.keeper = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (h.keeper < 0) {
        return -errno;
    }
    int r = open_sockets(nets, sockets);
    if (r < 0) {
        return r;
    }
    h.udp = sockets[0];
    h.tcp = sockets[1];
    h.log = sockets[2];
    h.nft = sockets[3];
    pid_t pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        become_helper(nets, &h);
        _exit(0);
    }
    nets->helper = pid;
    return 0;
}

/* Who holds the lock is alive, and is the one whose number is in the file. */
pid_t net_helper_kill(int fd)
{
    char text[16] = "";
    uint64_t pid = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (kg_parse_u64(text, 2, INT32_MAX, &pid) == 0) {
        (void)kill((pid_t)pid, SIGKILL);
    }
    for (unsigned i = 0; i < END_SECONDS * 100 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        struct timespec pause = {.tv_nsec = 10000000};
        (void)nanosleep(&pause, NULL);
    }
    return (pid_t)pid;
}

void net_helper_end(const kg_nets_t *nets)
{
    KG_AUTO_CLOSE int fd = openat(nets->dir_fd, NET_HELPER_LOCK, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    pid_t pid = fd < 0 ? 0 : net_helper_kill(fd);
    if (pid != 0) {
        (void)waitpid(pid, NULL, WNOHANG); /* a child when it is this keeper's own */
    }
}
