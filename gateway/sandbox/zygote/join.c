/* The way of a fork of a zygote into another sandbox, and what the two processes there become. */
#include "gateway/sandbox/zygote/join.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/last_words.h"
#include "gateway/sandbox/seqsock.h"

#define PATIENCE_MS 10000 /* for sandal-init, which sends all at once */
#define SPARE_FD 32
#define LINK_FD 4        /* of the process, beside its last words */
#define AFFINITY_MAX 128 /* longs */

/* ---- what comes ---- */

static int receive(int sock, void *data, size_t cap, size_t *ret_len, kg_zorder_t *o)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    int fds[KG_SEQ_FDS_MAX];
    size_t count = 0;

    if (poll(&p, 1, PATIENCE_MS) <= 0) {
        return -ETIMEDOUT;
    }
    int r = kg_seq_recv(sock, data, cap, ret_len, fds, &count);
    if (r < 0 || *ret_len == 0 || o->fd_count + count > KG_IP_ORDER_FDS_MAX) {
        return r < 0 ? r : -EBADMSG;
    }
    for (size_t i = 0; i < count; i++) { /* out of the way of those that get numbers of their own */
        o->fds[o->fd_count++] = fcntl(fds[i], F_DUPFD_CLOEXEC, SPARE_FD);
        close(fds[i]);
        if (o->fds[o->fd_count - 1] < 0) {
            return -errno;
        }
    }
    return 0;
}

static int read_spawn(int sock, kg_zorder_t *o)
{
    kg_ip_request_t request = {0};
    const char *tail = NULL;
    size_t tail_len = 0;
    size_t len = 0;
    uint32_t seq = 0;

    o->frame = malloc(KG_IP_FRAME_MAX + 1);
    if (!o->frame) {
        return -ENOMEM;
    }
    int r = receive(sock, o->frame, KG_IP_FRAME_MAX + 1, &len, o);
    if (r == 0) {
        r = kg_ip_request_decode(o->frame, len, &request, &tail, &tail_len, &seq);
    }
    if (r < 0) {
        return r;
    }
    if (request.head.verb != KG_IP_SPAWN || !(request.spawn.flags & KG_IP_SPAWN_FORKED)) {
        return -EBADMSG;
    }
    o->spawn = request.spawn;
    o->strings = tail;
    return 0;
}

int kg_zorder_read(int sock, kg_zorder_t *ret_order)
{
    char frame[sizeof(kg_ip_order_t) + 1];
    size_t len = 0;
    kg_zorder_t *o = ret_order;

    memset(o, 0, sizeof(*o));
    int r = receive(sock, frame, sizeof(frame), &len, o);
    if (r == 0) {
        r = kg_ip_order_decode(frame, len, &o->order);
    }
    while (r == 0 && o->fd_count < o->order.fds) {
        char byte;
        size_t before = o->fd_count;
        r = receive(sock, &byte, 1, &len, o);
        r = r == 0 && o->fd_count == before ? -EBADMSG : r;
    }
    if (r == 0 && o->fd_count != o->order.fds) {
        r = -EBADMSG;
    }
    return r < 0 ? r : read_spawn(sock, o);
}

int kg_zorder_words(const kg_zorder_t *o)
{
    size_t at = KG_ZO_NAMESPACES + KG_IP_ORDER_NAMESPACES + o->order.entries;
    return at < o->fd_count ? o->fds[at] : -1;
}

/* ---- the way ---- */

int kg_zorder_join(const kg_zorder_t *o)
{
    static const int kinds[KG_IP_ORDER_NAMESPACES] = {CLONE_NEWUSER,  CLONE_NEWNS,  CLONE_NEWPID,
                                                      CLONE_NEWNET,   CLONE_NEWIPC, CLONE_NEWUTS,
                                                      CLONE_NEWCGROUP};
    const int *entries = o->fds + KG_ZO_NAMESPACES + KG_IP_ORDER_NAMESPACES;

    for (uint32_t i = 0; i < o->order.entries; i++) {
        if (write(entries[i], "0", 1) < 0) {
            return -errno;
        }
    }
    for (size_t i = 0; i < KG_IP_ORDER_NAMESPACES; i++) { /* the first brings the rights for the
                                                             others */
        if (setns(o->fds[KG_ZO_NAMESPACES + i], kinds[i]) < 0) {
            return -errno;
        }
    }
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) {
        return -errno;
    }
    return 0;
}

/* ---- the minder ---- */

void kg_zorder_mind(const kg_zorder_t *o, int link, int pid)
{
    char number[16];
    char uid[16];
    char gid[16];
    char *env[] = {NULL};
    int words = kg_zorder_words(o);
    int program = o->fds[KG_ZO_PROGRAM];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    link = fcntl(link, F_DUPFD_CLOEXEC, SPARE_FD);
    if (null < 0 || link < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(o->fds[KG_ZO_MINDER], INIT_FOSTER_SOCK) < 0 || dup2(link, INIT_FOSTER_LINK) < 0 ||
        (words >= 0 && dup2(words, INIT_FOSTER_WORDS) < 0) ||
        close_range(words >= 0 ? INIT_FOSTER_WORDS + 1 : INIT_FOSTER_WORDS, ~0U,
                    CLOSE_RANGE_CLOEXEC) < 0) {
        return;
    }
    (void)kg_format(number, sizeof(number), "%d", pid);
    (void)kg_format(uid, sizeof(uid), "%u", o->order.uid);
    (void)kg_format(gid, sizeof(gid), "%u", o->order.gid);
    const char *const args[] = {"sandal-init", o->order.id, "minder", number, uid, gid, NULL};
    char *argv[KG_ARRAY_LEN(args)];
    memcpy(argv, args, sizeof(args)); /* exec only reads them */
    (void)execveat(program, "", argv, env, AT_EMPTY_PATH);
}

/* ---- the process ---- */

static int place_fds(const kg_zorder_t *o, int link)
{
    int words = kg_zorder_words(o);

    link = fcntl(link, F_DUPFD_CLOEXEC, SPARE_FD);
    for (int i = 0; i < 3; i++) {
        if (dup2(o->fds[KG_ZO_STDIN + i], i) < 0) {
            return -errno;
        }
    }
    if (link < 0 || dup3(link, LINK_FD, O_CLOEXEC) < 0 ||
        (words >= 0 && dup2(words, KG_LAST_WORDS_FD) < 0) || close_range(LINK_FD + 1, ~0U, 0) < 0) {
        return -errno;
    }
    if (words < 0) {
        (void)close(KG_LAST_WORDS_FD);
    }
    return 0;
}

/* The processors of its sandbox, as its first process has them. */
static void take_affinity(void)
{
    unsigned long mask[AFFINITY_MAX];
    long n = syscall(SYS_sched_getaffinity, 1, sizeof(mask), mask);
    if (n > 0) {
        (void)syscall(SYS_sched_setaffinity, 0, n, mask);
    }
}

static int settle(const kg_zorder_t *o, const char *cwd, uint32_t *ret_step)
{
    const kg_init_t as = {
        .uid = o->order.uid,
        .gid = o->order.gid,
        .is_root = true,
        .flags = KG_INIT_FLAG_PIDNS | KG_INIT_FLAG_HAS_ROOT | KG_INIT_FLAG_FILTER,
    };
    sigset_t none;

    *ret_step = KG_IP_STEP_SETUP;
    if (setsid() < 0) {
        return -errno;
    }
    take_affinity();
    int r = init_child_limits(&as, o->spawn.nofile, o->order.nofile_max, INIT_TASKS_MAX);
    if (r < 0) {
        return r;
    }
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)umask(o->spawn.umask_bits ? (mode_t)o->spawn.umask_bits : 022);
    *ret_step = KG_IP_STEP_USER;
    r = init_become_for_exec(&as, false, false);
    if (r < 0 || prctl(PR_SET_DUMPABLE, 1) < 0) { /* as an exec would: it has nothing to hide from
                                                     itself */
        return r < 0 ? r : -errno;
    }
    *ret_step = KG_IP_STEP_CHDIR;
    return chdir(cwd[0] != '\0' ? cwd : "/workspace") < 0 ? -errno : 0;
}

void kg_zorder_settle(const kg_zorder_t *o, int link, const char *cwd)
{
    char byte;
    kg_start_error_t e = {.step = KG_IP_STEP_SETUP};

    e.error = place_fds(o, link);
    if (e.error == 0) {
        e.error = settle(o, cwd, &e.step);
    }
    if (write(LINK_FD, &e, sizeof(e)) != (ssize_t)sizeof(e) || e.error != 0 ||
        read(LINK_FD, &byte, 1) != 1) {
        _exit(127);
    }
    (void)close(LINK_FD);
}
