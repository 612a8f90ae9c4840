/* Processes as /proc shows them, and who descends from whom. For keeper and sandal-init. */
#ifndef KG_SANDBOX_PROCTREE_H
#define KG_SANDBOX_PROCTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Public plain data: the fields of /proc/PID/stat that we need. */
typedef struct kg_task {
    pid_t pid;
    pid_t ppid;
    char state; /* 'Z' = its first thread is dead, and all of it where there is no other */
    uint32_t threads;
    bool marked;
    uint64_t cpu_ticks;          /* own */
    uint64_t children_cpu_ticks; /* of waited-for children */
    uint64_t rss_pages;
    uint64_t start_ticks; /* since boot: with the pid it names a process for good */
} kg_task_t;

/* Zero-initialised is empty. Sorted by pid. */
typedef struct kg_tasks {
    kg_task_t *items;
    size_t count;
    size_t cap;
} kg_tasks_t;

/* Fills in every process of /proc anew. 0 or -errno. */
int kg_tasks_scan(kg_tasks_t *tasks);
void kg_tasks_fini(kg_tasks_t *tasks);
/* Marks all descendants of root (not root itself) besides those marked already. Returns how many
 * new marks. */
size_t kg_tasks_mark_descendants(kg_tasks_t *tasks, pid_t root);
const kg_task_t *kg_tasks_find(const kg_tasks_t *tasks, pid_t pid);
/* Whether it is dead, and waits for its parent only. */
static inline bool kg_task_is_dead(const kg_task_t *task)
{
    return (task->state == 'Z' || task->state == 'X') && task->threads <= 1;
}
/* Parses the text of a stat file. 0 or -EINVAL. */
int kg_task_parse(const char *text, kg_task_t *ret_task);
/* One process. 0, -ESRCH, -EINVAL. */
int kg_task_read(pid_t pid, kg_task_t *ret_task);
/* "VmHWM" of /proc/PID/status in bytes; 0 when it can't be had. */
uint64_t kg_task_peak_bytes(pid_t pid);

/* Real uid. 0 or -ESRCH. */
int kg_task_uid(pid_t pid, uid_t *ret_uid);

/* Waits for a child; what has not ended after limit_ms is killed. 0, -ETIMEDOUT when it had to be,
 * -errno. ret_status: as of waitpid, unless it is -errno of another kind. */
int kg_child_wait(pid_t pid, unsigned limit_ms, int *ret_status);

/* Ends every process whose real or saved uid is uid, and comes back when there is none (0), or
 * after tries milliseconds
 * (-EBUSY). Runs in a process of its own that has thrown away all rights but those of uid, with
 * killer_uid as its own, so that the sandbox can't signal it; callers fork for it and must be root.
 * Never both equal, never 0. */
int kg_kill_uid(uid_t uid, uid_t killer_uid, unsigned tries);

#endif
