/* How a sandbox ends, for certain. sandal-init gets SIGKILL and takes its minders along; what they
 * leave behind falls to the keeper, the next subreaper, and is found as a child that it doesn't
 * know, of no sandbox that lives ("stray"). As root a killer process then ends all that has the
 * sandbox's uid; rootless the strays' trees are walked until none is left. Nothing here blocks. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/priority.h"
#include "gateway/sandbox/proctree.h"

#define KILLER_TRIES 2000                            /* about 2 s, then the keeper looks again */
#define REMOVE_AGAIN_NS (UINT64_C(30) * KG_NS_PER_S) /* of what could not be removed in time */

#define STRAYS_AT_ONCE 256

/* Under the ids of a sandbox that isn't ending: beside sandal-init a launcher may have more
 * processes outside, as gVisor's kernel, and these fall to us too. Rootless all have one id. */
static bool of_a_living(const kg_keeper_t *k, pid_t pid)
{
    uid_t uid;
    if (!k->host.is_root || kg_task_uid(pid, &uid) < 0) {
        return false;
    }
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        bool lives = sb->state == KG_KP_MAKING || sb->state == KG_KP_RUNNING;
        if (lives && uid >= sb->base && uid - sb->base < KG_UID_RANGE) {
            return true;
        }
    }
    return false;
}

static bool known_child(kg_keeper_t *k, pid_t pid)
{
    return pid == k->gateway_pid || pid == k->host.nets.helper || pid == k->host.nets.router ||
           keeper_find_init(k, pid) || keeper_find_worker(k, pid) || keeper_errand_of(k, pid) ||
           of_a_living(k, pid);
}

/* One that a create has just made and not told of yet has a pid namespace of its own; what a
 * sandbox leaves behind never has one that outlives it. */
static bool just_made(kg_keeper_t *k, pid_t pid)
{
    char path[64];
    struct stat own;
    struct stat other;

    if (!keeper_errand_at(k, KG_ERRAND_CREATE)) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    return stat("/proc/self/ns/pid", &own) == 0 && stat(path, &other) == 0 &&
           own.st_ino != other.st_ino;
}

/* Children of ours by the kernel's own list; -ENOENT where it isn't built in. */
static int kill_listed_strays(kg_keeper_t *k, size_t *ret_count)
{
    char path[64];
    pid_t found[STRAYS_AT_ONCE];
    size_t count = 0;
    size_t killed = 0;
    int pid;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    if (!file) {
        return -errno;
    }
    while (count < STRAYS_AT_ONCE &&
           fscanf(file, "%d", &pid) == 1) { // NOLINT(cert-err34-c): the kernel's own numbers
        if (!known_child(k, pid)) {
            found[count++] = pid;
        }
    }
    (void)fclose(file);
    keeper_errands_read(k); /* a worker that has just ended has told of its child before */
    for (size_t i = 0; i < count; i++) {
        if (!known_child(k, found[i]) && !just_made(k, found[i])) {
            (void)kill(found[i], SIGKILL);
            killed++;
        }
    }
    *ret_count = killed;
    return 0;
}

static int kill_stray_trees(kg_keeper_t *k, size_t *ret_count)
{
    kg_tasks_t tasks = {0};
    pid_t self = getpid();
    size_t count = 0;

    int r = kg_tasks_scan(&tasks);
    keeper_errands_read(k); /* as above */
    for (size_t i = 0; r == 0 && i < tasks.count; i++) {
        kg_task_t *task = &tasks.items[i];
        if (task->ppid == self && !known_child(k, task->pid)) {
            task->marked = true;
            (void)kg_tasks_mark_descendants(&tasks, task->pid);
        }
    }
    for (size_t i = 0; r == 0 && i < tasks.count; i++) {
        if (tasks.items[i].marked) {
            (void)kill(tasks.items[i].pid, SIGKILL);
            count++;
        }
    }
    kg_tasks_fini(&tasks);
    *ret_count = count;
    return r;
}

static bool kill_strays(kg_keeper_t *k)
{
    size_t count = 0;
    int r = k->host.is_root ? kill_listed_strays(k, &count) : -ENOENT;
    if (r < 0) {
        r = kill_stray_trees(k, &count);
    }
    return r < 0 || count > 0;
}

static int compare_fds(const void *a, const void *b)
{
    const int *x = a;
    const int *y = b;
    return (*x > *y) - (*x < *y);
}

static void close_all_but(const int *keep, size_t count)
{
    int sorted[8];
    unsigned from = 3;

    count = count < KG_ARRAY_LEN(sorted) ? count : KG_ARRAY_LEN(sorted);
    memcpy(sorted, keep, count * sizeof(*keep));
    qsort(sorted, count, sizeof(*sorted), compare_fds);
    for (size_t i = 0; i < count; i++) {
        if (sorted[i] >= (int)from) {
            (void)((unsigned)sorted[i] > from ? close_range(from, (unsigned)sorted[i] - 1, 0) : 0);
            from = (unsigned)sorted[i] + 1;
        }
    }
    (void)close_range(from, ~0U, 0);
}

pid_t keeper_fork_worker(const int *keep, size_t keep_count)
{
    pid_t keeper = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_NAME, "sandal-worker");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) {
        _exit(1);
    }
    kg_priority_usual();
    close_all_but(keep, keep_count);
    return 0;
}

static void step_later(kg_sb_t *sb, uint64_t now_ns)
{
    sb->step_gap_ns = sb->step_gap_ns ? sb->step_gap_ns * 2 : KEEPER_KILL_STEP_NS;
    if (sb->step_gap_ns > KEEPER_KILL_SLOW_NS) {
        sb->step_gap_ns = KEEPER_KILL_SLOW_NS;
    }
    sb->next_step_ns = now_ns + sb->step_gap_ns;
}

static void fork_killer(kg_keeper_t *k, kg_sb_t *sb, bool strays, uint64_t now_ns)
{
    (void)k;
    static const int none;
    pid_t pid = keeper_fork_worker(&none, 0);
    if (pid == 0) {
        _exit(kg_kill_uid(sb->uid, sb->base + KG_UID_KILLER, KILLER_TRIES) == 0 ? 0 : 1);
    }
    if (pid < 0) {
        step_later(sb, now_ns);
        return;
    }
    sb->worker_pid = pid;
    sb->strays_before = strays;
    sb->next_step_ns = KEEPER_NEVER; /* its exit is the next move */
}

/* In the worker: by its launcher, or where that isn't known by all that there are. */
static int clean_up(kg_keeper_t *k, const kg_sb_t *sb)
{
    size_t count;
    const kg_launcher_t *const *rows = kg_launchers(&count);
    int r = 0;

    if (sb->launcher) {
        return sb->launcher->cleanup(&k->host, sb->id, sb->slot, !sb->remove_files);
    }
    for (size_t i = 0; i < count && r == 0; i++) {
        r = rows[i]->cleanup(&k->host, sb->id, sb->slot, !sb->remove_files);
    }
    return r;
}

static void remove_in_worker(kg_keeper_t *k, kg_sb_t *sb, uint64_t now_ns)
{
    int keep[2 + KG_NETS_FDS] = {k->host.runtime_fd, k->host.sandboxes_fd};
    kg_nets_fds(&k->host.nets, keep + 2);
    pid_t pid = keeper_fork_worker(keep, KG_ARRAY_LEN(keep));
    if (pid == 0) {
        int r = clean_up(k, sb);
        _exit(-r > 0 && -r < 256 ? -r : r != 0);
    }
    if (pid < 0) {
        step_later(sb, now_ns);
        return;
    }
    sb->worker_pid = pid;
    sb->worker_keeps = !sb->remove_files;
    sb->next_step_ns = KEEPER_NEVER;
}

static void set_state(kg_sb_t *sb, kg_kp_state_t state, uint64_t now_ns)
{
    sb->state = state;
    sb->next_step_ns = now_ns;
    sb->step_gap_ns = 0;
}

/* Orphans of one that isn't our child don't fall to us: as an ordinary user its tree is ended from
 * the leaves, then itself. */
static void end_adopted(kg_keeper_t *k, kg_sb_t *sb)
{
    kg_tasks_t tasks = {0};
    size_t left = 0;

    if (!k->host.is_root && kg_tasks_scan(&tasks) == 0) {
        left = kg_tasks_mark_descendants(&tasks, sb->init_pid);
    }
    for (size_t i = 0; i < tasks.count; i++) {
        if (tasks.items[i].marked) {
            (void)kill(tasks.items[i].pid, SIGKILL);
        }
    }
    kg_tasks_fini(&tasks);
    if (left == 0) {
        sb->launcher->destroy(&k->host, sb->id, sb->init_pid);
    }
}

static void step_ending(kg_keeper_t *k, kg_sb_t *sb, bool strays, uint64_t now_ns)
{
    if (now_ns - sb->ending_since_ns > KEEPER_KILL_DEADLINE_NS) {
        keeper_kill_reply(
            k, sb, KG_ERR_BUSY,
            "processes of the sandbox don't die (stuck in the kernel?); still trying");
        keeper_create_reply_failed(k, sb);
    }
    if (sb->init_pid != 0) {
        if (sb->init_pidfd >= 0) {
            end_adopted(k, sb);
        }
        step_later(sb, now_ns); /* SIGCHLD or its pidfd comes first */
        return;
    }
    if (k->host.is_root && !(sb->workers_clean && !strays)) {
        sb->workers_clean = false;
        fork_killer(k, sb, strays, now_ns);
        return;
    }
    if (strays) {
        step_later(sb, now_ns);
        return;
    }
    kg_closep(&sb->control_fd);
    set_state(sb, sb->kill_asked || sb->orphaned ? KG_KP_REMOVING : KG_KP_DEAD, now_ns);
    if (sb->state == KG_KP_DEAD) {
        sb->next_step_ns = KEEPER_NEVER;
    }
}

static bool any_waits_for_strays(const kg_keeper_t *k, uint64_t now_ns)
{
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->state == KG_KP_ENDING && sb->init_pid == 0 && !sb->worker_pid &&
            sb->next_step_ns <= now_ns) {
            return true;
        }
    }
    return false;
}

static void end_retired(kg_keeper_t *k)
{
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->retired && sb->state == KG_KP_RUNNING && !keeper_has_children(k, sb)) {
            sb->orphaned = true;
            sb->remove_files = true;
            keeper_end_sandbox(k, sb);
        }
    }
}

uint64_t keeper_end_step(kg_keeper_t *k, uint64_t now_ns)
{
    uint64_t next = KEEPER_NEVER;
    end_retired(k);
    bool strays = any_waits_for_strays(k, now_ns) && kill_strays(k);

    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->worker_pid == 0 && sb->next_step_ns <= now_ns && sb->state == KG_KP_ENDING) {
            step_ending(k, sb, strays, now_ns);
        }
        if (sb->worker_pid == 0 && sb->next_step_ns <= now_ns && sb->state == KG_KP_REMOVING) {
            remove_in_worker(k, sb, now_ns);
        }
        if ((sb->state == KG_KP_ENDING || sb->state == KG_KP_REMOVING) && sb->next_step_ns < next) {
            next = sb->next_step_ns;
        }
    }
    return next;
}

/* True when one that isn't our child has ended meanwhile. */
static bool has_ended(const kg_sb_t *sb)
{
    struct pollfd p = {.fd = sb->init_pidfd, .events = POLLIN};
    return sb->init_pid == 0 || (sb->init_pidfd >= 0 && poll(&p, 1, 0) > 0);
}

void keeper_end_sandbox(kg_keeper_t *k, kg_sb_t *sb)
{
    uint64_t now_ns = kg_now_ns();
    kg_err_t err = {0};

    if (sb->state == KG_KP_MAKING) {
        sb->end_asked = true;
        keeper_errands_cancel(k, sb->id); /* its exit goes on with it */
        return;
    }
    if (sb->state == KG_KP_DORMANT || sb->state == KG_KP_DEAD) {
        set_state(sb, KG_KP_REMOVING, now_ns);
        sb->ending_since_ns = now_ns;
        return;
    }
    if (sb->state != KG_KP_RUNNING) {
        return; /* on its way already */
    }
    set_state(sb, KG_KP_ENDING, now_ns);
    sb->ending_since_ns = now_ns;
    if (sb->paused && sb->launcher->pause(&k->host, sb->id, false, &err) == 0) {
        sb->paused = false; /* what is frozen doesn't die */
    }
    if (has_ended(sb)) {
        sb->init_pid = 0;
        kg_closep(&sb->init_pidfd);
        return;
    }
    if (sb->init_pidfd < 0) {
        sb->launcher->destroy(&k->host, sb->id, sb->init_pid);
        sb->step_gap_ns = KEEPER_KILL_STEP_NS;
        sb->next_step_ns = now_ns + sb->step_gap_ns;
    }
}

void keeper_give_back(kg_keeper_t *k, kg_sb_t *sb)
{
    (void)k;
    set_state(sb, KG_KP_ENDING, kg_now_ns());
    sb->ending_since_ns = kg_now_ns();
    sb->init_pid = 0;
    sb->workers_clean = false;
    sb->orphaned = true;
}

void keeper_end_all(kg_keeper_t *k)
{
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        sb->orphaned = true;
        if (sb->state == KG_KP_MAKING || sb->state == KG_KP_RUNNING || sb->state == KG_KP_DEAD) {
            keeper_end_sandbox(k, sb);
        } else if (sb->state == KG_KP_REMOVING && sb->worker_pid == 0) {
            sb->next_step_ns = kg_now_ns(); /* it may be waiting long for its next try */
        }
    }
}

bool keeper_all_ended(const kg_keeper_t *k)
{
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->state != KG_KP_DORMANT) {
            return false;
        }
    }
    return true;
}

void keeper_init_exited(kg_keeper_t *k, kg_sb_t *sb, int wait_status)
{
    kg_kp_reply_t event;
    uint64_t now_ns = kg_now_ns();

    sb->init_pid = 0;
    kg_closep(&sb->init_pidfd);
    if (sb->state == KG_KP_MAKING) {
        return; /* being adopted: its worker finds out */
    }
    if (sb->state != KG_KP_RUNNING) {
        sb->step_gap_ns = 0;
        sb->next_step_ns = now_ns;
        return;
    }
    kg_log(KG_LOG_WARN, "sandbox.init_gone", "id=%s code=%d signal=%d", sb->id,
           WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1,
           WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0);
    set_state(sb, KG_KP_ENDING, now_ns);
    sb->ending_since_ns = now_ns;
    sb->orphaned = sb->orphaned || k->gateway_sock < 0; /* nobody hears of it */
    (void)kg_kp_reply_init(&event, KG_KP_EXIT, 0);
    memcpy(event.exit.id, sb->id, sizeof(event.exit.id));
    event.exit.wait_status = wait_status;
    keeper_send(k, &event, -1);
}

static void reply_removed(kg_keeper_t *k, kg_sb_t *sb, int num)
{
    char text[120];

    if (num == 0) {
        keeper_kill_reply(k, sb, KG_ERR_NONE, "");
    } else {
        (void)snprintf(text, sizeof(text), "its directories could not be removed: %s",
                       strerrordesc_np(num));
        keeper_kill_reply(k, sb, KG_ERR_INTERNAL, text);
    }
    keeper_create_reply_failed(k, sb);
}

/* The dead may still be leaving their groups and mounts, and a worker may be killed. Who asked is
 * told in time, but while the daemon runs nobody else would give back what is left. */
static bool tries_again(kg_keeper_t *k, kg_sb_t *sb, int num)
{
    uint64_t now_ns = kg_now_ns();
    bool passes = num == EBUSY || num == EINTR;

    if (passes && now_ns - sb->ending_since_ns < KEEPER_KILL_DEADLINE_NS) {
        step_later(sb, now_ns);
        return true;
    }
    if (num == 0 || !sb->remove_files || k->stopping) {
        return false;
    }
    reply_removed(k, sb, num);
    sb->next_step_ns = now_ns + REMOVE_AGAIN_NS;
    return true;
}

static void removed(kg_keeper_t *k, kg_sb_t *sb, int wait_status)
{
    bool keep = !sb->remove_files;
    int num = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EINTR;

    if (tries_again(k, sb, num)) {
        return;
    }
    if (num == 0 && sb->remove_files && sb->worker_keeps) { /* asked for meanwhile */
        sb->next_step_ns = kg_now_ns();
        return;
    }
    if (num != 0) {
        keep = true; /* the uid stays taken as long as files have it */
    }
    sb->state = KG_KP_DORMANT;
    if (!keep) {
        keeper_record_remove(k, sb->id);
        keeper_trim_deleted(k);
    } else if (keeper_record_write(k, sb) < 0) {
        kg_log(KG_LOG_ERROR, "sandbox.record", "id=%s", sb->id);
    }
    reply_removed(k, sb, num);
    sb->kill_asked = false;
    sb->orphaned = false;
    sb->end_asked = false;
    if (!keep) {
        keeper_drop(k, sb);
    }
}

void keeper_worker_exited(kg_keeper_t *k, kg_sb_t *sb, int wait_status)
{
    sb->worker_pid = 0;
    if (sb->state == KG_KP_REMOVING) {
        removed(k, sb, wait_status);
        return;
    }
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        sb->workers_clean = !sb->strays_before;
        sb->next_step_ns = kg_now_ns();
    } else {
        step_later(sb, kg_now_ns());
    }
}
