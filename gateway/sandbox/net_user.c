/* Networks of an ordinary user: what needs rights over a network is done by a child that has gone
 * into the router's namespaces, where it is root. As the owner of these the keeper and its helper
 * may use sockets that such a child has opened; their own sockets stay the host's. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/net_private.h"
#include "gateway/sandbox/seqsock.h"

int kg_net_join(const kg_nets_t *nets, int net_ns)
{
    if (setns(nets->user_ns, CLONE_NEWUSER) < 0 || setns(net_ns, CLONE_NEWNET) < 0) {
        return -errno;
    }
    return 0;
}

int net_user_look(kg_nets_t *nets)
{
    int r = net_own_read(nets);
    if (r == -E2BIG) {
        (void)snprintf(nets->reason, sizeof(nets->reason),
                       "this host has more than %d addresses: they cannot all be closed",
                       KG_NET_OWN_MAX);
    } else if (r < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "cannot read the host's addresses: %s",
                       strerrordesc_np(-r));
    }
    return r;
}

static int wait_end(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

typedef struct net_done {
    kg_nets_t nets;
    kg_err_t err;
    int result;
} net_done_t;

static int do_inside(kg_nets_t *nets, net_step_fn *step, const void *arg, net_done_t *done)
{
    done->nets = *nets;
    done->result = -EIO;
    pid_t pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        int r = kg_net_join(nets, nets->net_ns);
        done->nets.inside = true;
        done->result = r < 0 ? r : step(&done->nets, arg, &done->err);
        _exit(0);
    }
    int r = wait_end(pid);
    return r < 0 ? r : done->result;
}

int net_do(kg_nets_t *nets, net_step_fn *step, const void *arg, kg_err_t *err)
{
    if (!nets->routed || nets->inside) {
        return step(nets, arg, err);
    }
    net_done_t *done =
        mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (done == MAP_FAILED) {
        return -errno;
    }
    int r = do_inside(nets, step, arg, done);
    nets->pool = done->nets.pool;
    nets->ipv6 = done->nets.ipv6;
    memcpy(nets->reason, done->nets.reason, sizeof(nets->reason));
    if (r < 0 && err) {
        *err = done->err;
        if (err->message[0] == '\0') {
            (void)kg_err_set(err, KG_ERR_INTERNAL, "the sandboxes' network cannot be entered: %s",
                             strerrordesc_np(-r));
        }
    }
    (void)munmap(done, sizeof(*done));
    return r;
}

/* ---- sockets that stay there ---- */

static void send_sockets(const kg_nets_t *nets, int to)
{
    kg_nets_t there = *nets;
    int sockets[NET_HELPER_SOCKETS];
    int said[2] = {kg_net_join(nets, nets->net_ns), 0};
    if (said[0] == 0) {
        said[0] = net_helper_sockets(&there, sockets);
        said[1] = there.log_group;
    }
    (void)kg_seq_send(to, said, sizeof(said), sockets, said[0] == 0 ? NET_HELPER_SOCKETS : 0);
}

int net_user_sockets(kg_nets_t *nets, int ret[NET_HELPER_SOCKETS])
{
    _Static_assert(NET_HELPER_SOCKETS <= KG_SEQ_FDS_MAX, "they come in one message");
    int pair[2];
    int said[2] = {0, 0};
    int fds[KG_SEQ_FDS_MAX];
    size_t length = 0;
    size_t count = 0;
    int r = kg_seq_pair(pair);
    if (r < 0) {
        return r;
    }
    pid_t pid = fork();
    if (pid == 0) {
        send_sockets(nets, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    r = pid < 0 ? -errno : wait_end(pid); /* what it has sent waits in the pair */
    if (r == 0) {
        r = kg_seq_recv(pair[0], said, sizeof(said), &length, fds, &count);
    }
    close(pair[0]);
    if (r < 0) {
        return r;
    }
    if (length != sizeof(said) || said[0] < 0 || count != NET_HELPER_SOCKETS) {
        for (size_t i = 0; i < count; i++) {
            close(fds[i]);
        }
        return length == sizeof(said) && said[0] < 0 ? said[0] : -EIO;
    }
    memcpy(ret, fds, sizeof(int) * NET_HELPER_SOCKETS);
    nets->log_group = (uint16_t)said[1];
    return 0;
}

/* ---- the network namespace of one sandbox ---- */

static int lo_up(void)
{
    kg_nl_t nl = {.used = 0};
    struct ifinfomsg link = {
        .ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    KG_AUTO_CLOSE int fd = kg_nl_open(NETLINK_ROUTE);
    if (fd < 0) {
        return fd;
    }
    kg_nl_begin(&nl, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
    return kg_nl_talk(fd, &nl);
}

/* Its namespaces must be seen by others of this user, which a change of rights takes back, and so
 * does it take back who is to follow whom into death. */
static int hold(const kg_nets_t *nets, pid_t above)
{
    int r = kg_net_join(nets, nets->net_ns);
    if (r < 0) {
        return r;
    }
    if (unshare(CLONE_NEWNET) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return -errno;
    }
    return getppid() == above ? lo_up() : -ECHILD;
}

int kg_net_hold(const kg_nets_t *nets, pid_t *ret_pid)
{
    int ready[2];
    int result = -EIO;
    pid_t above = getpid();
    if (pipe2(ready, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        result = hold(nets, above);
        (void)!write(ready[1], &result, sizeof(result));
        (void)close_range(0, ~0U, 0);
        while (result == 0) {
            (void)pause();
        }
        _exit(0);
    }
    int r = pid < 0 ? -errno : 0;
    close(ready[1]);
    if (r == 0 && read(ready[0], &result, sizeof(result)) == (ssize_t)sizeof(result)) {
        r = result;
    } else if (r == 0) {
        r = -EIO;
    }
    close(ready[0]);
    if (r < 0) {
        kg_net_release(&pid);
        return r;
    }
    *ret_pid = pid;
    return 0;
}

void kg_net_release(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}
