/* sandal-init: works for the gateway inside a sandbox. It listens; the gateway's connection brings
 * requests (init_proto.h), the keeper's is the life line: when that is gone and none comes again,
 * everything here ends. It goes on when the gateway goes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

#define POLL_MAX_MS 3600000
/* The fixed ones, the children's and the end. */
#define POLLS_MAX (5 + INIT_PENDING_MAX + KG_IP_PROCS_MAX + KG_IP_JOBS_MAX + 1)

static int parse_args(kg_init_t *in, int argc, char **argv)
{
    uint64_t numbers[6] = {0}; /* uid, gid, killer's uid, flags, orphan's seconds, entries */
    const uint64_t max[6] = {UINT32_MAX - 1, UINT32_MAX - 1, UINT32_MAX - 1,
                             KG_INIT_FLAGS,  UINT32_MAX,     KG_INIT_ENTRIES_MAX};

    if (argc != 7 && argc != 8) {
        return -EINVAL;
    }
    for (int i = 2; i < argc; i++) {
        if (kg_parse_u64(argv[i], 0, max[i - 2], &numbers[i - 2]) < 0) {
            return -EINVAL;
        }
    }
    in->uid = (uid_t)numbers[0];
    in->gid = (gid_t)numbers[1];
    in->killer_uid = (uid_t)numbers[2];
    in->flags = (uint32_t)numbers[3];
    in->orphan_ns = numbers[4] * KG_NS_PER_S;
    in->id = argv[1];
    in->entry_count = (unsigned)numbers[5];
    in->is_root = geteuid() == 0;
    if (in->flags & KG_INIT_FLAG_PIDNS) {
        in->killer_uid = 0; /* not needed */
        return in->is_root && (in->uid == 0 || in->gid == 0) ? -EPERM : 0;
    }
    return in->is_root && (in->uid == 0 || in->gid == 0 || in->killer_uid == 0 ||
                           in->killer_uid == in->uid)
               ? -EPERM
               : 0;
}

static int setup_signals(kg_init_t *in)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    sigfillset(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* only SIGKILL ends it, and the keeper's end */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    in->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return in->signal_fd < 0 ? -errno : 0;
}

/* Not given where the launcher could only give one of the host's, which would lead out. */
static int setup_run_dir(kg_init_t *in)
{
    in->run_dir = KG_INIT_FD_RUN_DIR;
    if (!(in->flags & KG_INIT_FLAG_OWN_ROOT) || fcntl(in->run_dir, F_GETFD) >= 0) {
        return 0;
    }
    int fd = open("/run/sandal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fd != in->run_dir && dup2(fd, in->run_dir) < 0)) {
        return -errno;
    }
    return 0;
}

static int setup_listen(kg_init_t *in)
{
    in->listen = KG_INIT_FD_LISTEN;
    (void)close_range(KG_INIT_FD_ENTRIES + in->entry_count, INIT_FD_LAST, 0);
    int r = setup_run_dir(in);
    if (r < 0) {
        return r;
    }
    if (in->flags & KG_INIT_FLAG_INNER) {
        in->listen = -1;
        in->orphan_at_ns = INIT_NEVER;
        return init_link_take(&in->gateway);
    }
    r = in->flags & KG_INIT_FLAG_GUEST ? init_guest_take(in) : 0;
    int flags = r < 0 ? -1 : fcntl(in->listen, F_GETFL);
    if (flags < 0 || fcntl(in->listen, F_SETFL, flags | O_NONBLOCK) < 0 ||
        listen(in->listen, INIT_PENDING_MAX) < 0) {
        return -errno;
    }
    uint64_t first_ns = in->orphan_ns > INIT_FIRST_KEEPER_NS ? in->orphan_ns : INIT_FIRST_KEEPER_NS;
    in->orphan_at_ns = kg_now_ns() + first_ns;
    return 0;
}

/* Where there is no own root: what requests call /workspace and /home/user. */
static int setup_places(kg_init_t *in)
{
    in->workspace_fd = -1;
    in->home_fd = -1;
    if (in->flags & KG_INIT_FLAG_OWN_ROOT) {
        return 0;
    }
    if (!getcwd(in->workspace, sizeof(in->workspace))) {
        return -errno;
    }
    const char *slash = strrchr(in->workspace, '/');
    int r = kg_format(in->home, sizeof(in->home), "%.*s/home", (int)(slash - in->workspace),
                      in->workspace);
    if (r < 0) {
        return r;
    }
    in->workspace_fd = open(in->workspace, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    in->home_fd = open(in->home, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return in->workspace_fd < 0 || in->home_fd < 0 ? -errno : 0;
}

static int setup(kg_init_t *in)
{
    in->out_last = &in->out_first;
    in->listen = -1;
    in->gateway = -1;
    in->keeper = -1;
    in->guest = -1;
    in->oom = -1;
    in->guest_tick_ns = INIT_NEVER;
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) {
        in->pending[i].fd = -1;
    }
    int r = setup_listen(in);
    int first = in->listen >= 0 ? in->listen : in->run_dir;
    int last = KG_INIT_FD_ENTRIES + (int)in->entry_count - 1;
    for (int fd = first; r == 0 && fd <= last; fd++) {
        r = fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
    }
    if (r == 0) {
        r = setup_places(in);
    }
    (void)umask(022);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!in->is_root) {
        (void)prctl(PR_SET_DUMPABLE, 0); /* processes here have our uid: they don't trace us */
    }
    return r == 0 ? setup_signals(in) : r;
}

static void reap(kg_init_t *in)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(in->signal_fd, &info, sizeof(info)) > 0) {
        continue;
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        init_child_exited(in, pid, status);
    }
}

/* Open ones alone: poll(2) refuses more entries than RLIMIT_NOFILE, and of ended processes that
 * nobody has acknowledged there may be more than that. */
static void watch(struct pollfd *polls, size_t *count, int fd, short events)
{
    if (fd >= 0) {
        polls[(*count)++] = (struct pollfd){.fd = fd, .events = events};
    }
}

static size_t fill_polls(const kg_init_t *in, struct pollfd *polls)
{
    size_t count = 0;
    short waits = in->out_first ? POLLOUT : POLLIN; /* no new requests while answers wait */
    short guest = in->out_first ? 0 : POLLIN;       /* it speaks without being asked */

    watch(polls, &count, in->signal_fd, POLLIN);
    watch(polls, &count, in->keeper, POLLIN);
    watch(polls, &count, in->gateway, waits);
    watch(polls, &count, in->listen, POLLIN);
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) {
        watch(polls, &count, in->pending[i].fd, POLLIN);
    }
    watch(polls, &count, in->guest, guest);
    for (const kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        watch(polls, &count, proc->minder_sock, POLLIN);
    }
    for (const kg_ijob_t *job = in->jobs; job; job = job->next) {
        watch(polls, &count, job->sock, POLLIN);
    }
    polls[count].fd = -1; /* where who asks for events stops */
    return count;
}

/* What happened to a descriptor, asked in the order they were filled in. */
static short take_events(const struct pollfd **at, int fd)
{
    if (fd < 0 || (*at)->fd != fd) {
        return 0;
    }
    return (*at)++->revents;
}

static int poll_timeout(uint64_t next_ns)
{
    uint64_t now_ns = kg_now_ns();
    if (next_ns == INIT_NEVER) {
        return -1;
    }
    uint64_t ms = next_ns <= now_ns ? 0 : (next_ns - now_ns) / KG_NS_PER_MS + 1;
    return ms < POLL_MAX_MS ? (int)ms : POLL_MAX_MS;
}

/* The lists are only changed by requests and by the steps. */
static void read_children(kg_init_t *in, const struct pollfd *at)
{
    for (kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        if (take_events(&at, proc->minder_sock)) {
            init_read_minder(in, proc);
        }
    }
    for (kg_ijob_t *job = in->jobs; job; job = job->next) {
        if (take_events(&at, job->sock)) {
            init_job_read(in, job);
        }
    }
}

static void read_all(kg_init_t *in, const struct pollfd *polls)
{
    const struct pollfd *at = polls;
    short signals = take_events(&at, in->signal_fd);
    short keeper = take_events(&at, in->keeper);
    short gateway = take_events(&at, in->gateway);
    short listener = take_events(&at, in->listen);
    short pending[INIT_PENDING_MAX];
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) {
        pending[i] = take_events(&at, in->pending[i].fd);
    }
    short guest = take_events(&at, in->guest);

    read_children(in, at);
    if (signals) {
        reap(in);
    }
    if (keeper) {
        init_read_keeper(in);
    }
    if (gateway & POLLOUT) {
        init_flush(in);
    }
    if (gateway & (POLLIN | POLLHUP | POLLERR)) {
        init_read_requests(in);
    }
    if (guest) {
        init_read_guest(in);
    }
    for (size_t i = 0; i < INIT_PENDING_MAX; i++) { /* may replace the connections above */
        if (pending[i]) {
            init_read_pending(in, &in->pending[i]);
        }
    }
    if (listener) {
        init_accept(in);
    }
}

static uint64_t step(kg_init_t *in, uint64_t now_ns)
{
    uint64_t next = init_procs_step(in, now_ns);
    uint64_t jobs = init_jobs_step(in, now_ns);
    uint64_t conns = init_conns_step(in, now_ns);
    uint64_t guest = init_guest_step(in, now_ns);
    next = jobs < next ? jobs : next;
    next = guest < next ? guest : next;
    return conns < next ? conns : next;
}

/* False when it is time to end. */
static bool turn(kg_init_t *in, struct pollfd *polls)
{
    uint64_t now_ns = kg_now_ns();
    uint64_t next_ns = step(in, now_ns);
    size_t count = fill_polls(in, polls);

    bool cut_off = (in->flags & KG_INIT_FLAG_INNER && in->gateway < 0) ||
                   (in->flags & KG_INIT_FLAG_GUEST && in->guest < 0);
    if (in->orphan_at_ns <= now_ns || cut_off) {
        return false;
    }
    if (poll(polls, count, poll_timeout(next_ns)) < 0) {
        return true;
    }
    read_all(in, polls);
    init_send_exits(in);
    return true;
}

static void mind_if_asked(int argc, char **argv)
{
    uint64_t pid = 0;
    uint64_t uid = 0;
    uint64_t gid = 0;
    if (argc == 6 && strcmp(argv[2], "minder") == 0 &&
        kg_parse_u64(argv[3], 2, INT32_MAX, &pid) == 0 &&
        kg_parse_u64(argv[4], 1, UINT32_MAX - 1, &uid) == 0 &&
        kg_parse_u64(argv[5], 1, UINT32_MAX - 1, &gid) == 0) {
        init_minder_foster((pid_t)pid, (uid_t)uid, (gid_t)gid);
    }
}

int main(int argc, char **argv)
{
    mind_if_asked(argc, argv);
    kg_init_t *in = calloc(1, sizeof(*in));
    struct pollfd *polls = calloc(POLLS_MAX, sizeof(*polls));

    if (!in || !polls || parse_args(in, argc, argv) < 0 || setup(in) < 0) {
        return 1;
    }
    while (turn(in, polls)) {
        continue;
    }
    init_end_all(in);
    init_drop_all(in);
    free(polls);
    free(in);
    return 0;
}
