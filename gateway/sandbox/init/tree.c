/* Whole trees of processes: what they use, and their end. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/proctree.h"

#define KILLER_TRIES 5000 /* about 5 s, then a new one */

static uint64_t ticks_ns(uint64_t ticks)
{
    long hz = sysconf(_SC_CLK_TCK);
    return ticks * (KG_NS_PER_S / (hz > 0 ? (uint64_t)hz : 100));
}

/* In nanoseconds where the kernel gives them; /proc counts in 10 ms. */
static uint64_t cpu_ns(const kg_task_t *task)
{
    clockid_t clock;
    struct timespec ts;
    if (clock_getcpuclockid(task->pid, &clock) == 0 && clock_gettime(clock, &ts) == 0) {
        return (uint64_t)ts.tv_sec * KG_NS_PER_S + (uint64_t)ts.tv_nsec;
    }
    return ticks_ns(task->cpu_ticks);
}

void init_usage(const kg_iproc_t *proc, kg_ip_usage_t *ret_usage)
{
    kg_tasks_t tasks = {0};
    long page = sysconf(_SC_PAGESIZE);

    ret_usage->error = kg_tasks_scan(&tasks);
    (void)kg_tasks_mark_descendants(&tasks, proc->minder);
    for (size_t i = 0; i < tasks.count; i++) {
        const kg_task_t *task = &tasks.items[i];
        if (task->pid == proc->minder) { /* what it has reaped: the process itself, orphans */
            ret_usage->cpu_ns += ticks_ns(task->children_cpu_ticks);
        }
        if (!task->marked) {
            continue;
        }
        ret_usage->processes++;
        ret_usage->cpu_ns += cpu_ns(task) + ticks_ns(task->children_cpu_ticks);
        ret_usage->rss_bytes += task->rss_pages * (uint64_t)page;
        ret_usage->peak_bytes += kg_task_peak_bytes(task->pid);
    }
    kg_tasks_fini(&tasks);
}

size_t init_kill_descendants(pid_t pid)
{
    kg_tasks_t tasks = {0};
    size_t count = 0;

    if (kg_tasks_scan(&tasks) < 0) {
        return 1; /* out of memory or descriptors: try again */
    }
    (void)kg_tasks_mark_descendants(&tasks, pid);
    for (size_t i = 0; i < tasks.count; i++) {
        if (tasks.items[i].marked) {
            (void)kill(tasks.items[i].pid, SIGKILL);
            count++;
        }
    }
    kg_tasks_fini(&tasks);
    return count;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

static bool reap_all(pid_t pid, int *ret_status)
{
    int status;
    pid_t got;
    bool seen = false;

    while ((got = waitpid(-1, &status, WNOHANG)) > 0) {
        if (got == pid) {
            *ret_status = status;
            seen = true;
        }
    }
    return seen;
}

/* True when nothing of the uid lives any more. */
static bool kill_uid_once(const kg_init_t *in)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(kg_kill_uid(in->uid, in->killer_uid, KILLER_TRIES) == 0 ? 0 : 1);
    }
    while (pid > 0 && !reap_all(pid, &status)) {
        nap();
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void init_end_all(kg_init_t *in)
{
    int status;

    kg_closep(&in->gateway);
    if (in->flags & KG_INIT_FLAG_PIDNS) {
        return; /* our exit is theirs */
    }
    for (kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        if (proc->minder > 0 && proc->state == KG_IPROC_STARTING) {
            (void)kill(proc->minder,
                       SIGKILL); /* and by its death signal a child that hasn't got its uid yet */
        }
    }
    while (in->is_root && !kill_uid_once(in)) {
        nap();
    }
    while (init_kill_descendants(getpid()) > 0) { /* rootless: all; as root: the minders */
        (void)reap_all(-1, &status);
        nap();
    }
}
