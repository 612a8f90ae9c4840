/* Reads /proc/PID/stat of all processes in one go (about 15 µs each); no process is held, so
 * callers repeat until nothing is left. kg_kill_uid is the certain way, one kill(-1) with the
 * rights of the sandbox alone: the kernel delivers it to all under one lock, so a fork bomb can't
 * outrun it. */
#include "gateway/sandbox/proctree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/mem.h"

static int read_proc(pid_t pid, const char *file, char *ret_text, size_t cap)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t n = read(fd, ret_text, cap - 1);
    if (n < 0) {
        return -errno;
    }
    ret_text[n] = '\0';
    return 0;
}

static const char *next_number(const char *at, uint64_t *ret)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    if (errno != 0 || end == at) {
        return NULL;
    }
    *ret = value < 0 ? 0 : (uint64_t)value;
    return end;
}

int kg_task_parse(const char *text, kg_task_t *ret_task)
{
    /* pid (comm) state ppid …: comm may hold anything, ") " too, so the last parenthesis counts. */
    enum {
        F_PPID = 4,
        F_UTIME = 14,
        F_STIME,
        F_CUTIME,
        F_CSTIME,
        F_THREADS = 20,
        F_START = 22,
        F_RSS = 24
    };
    kg_task_t task = {0};
    uint64_t fields[F_RSS + 1] = {0};
    const char *at = strrchr(text, ')');

    if (!next_number(text, &fields[1]) || !at || at[1] != ' ' || at[2] == '\0') {
        return -EINVAL;
    }
    task.state = at[2];
    at += 3;
    for (size_t i = F_PPID; i <= F_RSS; i++) {
        at = next_number(at, &fields[i]);
        if (!at) {
            return -EINVAL;
        }
    }
    task.pid = (pid_t)fields[1];
    task.ppid = (pid_t)fields[F_PPID];
    task.cpu_ticks = fields[F_UTIME] + fields[F_STIME];
    task.children_cpu_ticks = fields[F_CUTIME] + fields[F_CSTIME];
    task.threads = (uint32_t)fields[F_THREADS];
    task.rss_pages = fields[F_RSS];
    task.start_ticks = fields[F_START];
    *ret_task = task;
    return 0;
}

int kg_task_read(pid_t pid, kg_task_t *ret_task)
{
    char text[1024];
    int r = read_proc(pid, "stat", text, sizeof(text));
    return r < 0 ? -ESRCH : kg_task_parse(text, ret_task);
}

static int add_task(kg_tasks_t *tasks, const kg_task_t *task)
{
    if (tasks->count == tasks->cap) {
        size_t cap = tasks->cap ? tasks->cap * 2 : 128;
        kg_task_t *items = realloc(tasks->items, cap * sizeof(*items));
        if (!items) {
            return -ENOMEM;
        }
        tasks->items = items;
        tasks->cap = cap;
    }
    tasks->items[tasks->count++] = *task;
    return 0;
}

static int compare_pids(const void *a, const void *b)
{
    const kg_task_t *x = a;
    const kg_task_t *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

int kg_tasks_scan(kg_tasks_t *tasks)
{
    int r = 0;
    DIR *dir = opendir("/proc");

    tasks->count = 0;
    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry && r == 0; entry = next_entry(dir)) {
        char text[1024];
        uint64_t pid;
        kg_task_t task;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !next_number(entry->d_name, &pid)) {
            continue;
        }
        if (read_proc((pid_t)pid, "stat", text, sizeof(text)) == 0 &&
            kg_task_parse(text, &task) == 0) {
            r = add_task(tasks, &task);
        }
    }
    closedir(dir);
    if (tasks->count > 0) {
        qsort(tasks->items, tasks->count, sizeof(*tasks->items), compare_pids);
    }
    return r;
}

void kg_tasks_fini(kg_tasks_t *tasks)
{
    free(tasks->items);
    *tasks = (kg_tasks_t){0};
}

const kg_task_t *kg_tasks_find(const kg_tasks_t *tasks, pid_t pid)
{
    kg_task_t key = {.pid = pid};
    if (tasks->count == 0) {
        return NULL;
    }
    return bsearch(&key, tasks->items, tasks->count, sizeof(*tasks->items), compare_pids);
}

size_t kg_tasks_mark_descendants(kg_tasks_t *tasks, pid_t root)
{
    size_t total = 0;
    size_t round;

    do { /* parents mostly have lower pids, so two or three rounds do */
        round = 0;
        for (size_t i = 0; i < tasks->count; i++) {
            kg_task_t *task = &tasks->items[i];
            if (task->marked || task->pid == root) {
                continue;
            }
            const kg_task_t *parent = kg_tasks_find(tasks, task->ppid);
            if (task->ppid == root || (parent && parent->marked)) {
                task->marked = true;
                round++;
            }
        }
        total += round;
    } while (round > 0);
    return total;
}

uint64_t kg_task_peak_bytes(pid_t pid)
{
    char text[4096];
    uint64_t kib;

    if (read_proc(pid, "status", text, sizeof(text)) < 0) {
        return 0;
    }
    const char *line = strstr(text, "\nVmHWM:");
    if (!line || !next_number(line + strlen("\nVmHWM:"), &kib)) {
        return 0;
    }
    return kib * 1024;
}

static bool task_uids(pid_t pid, uint64_t ret_uids[4])
{
    char text[1024];

    if (read_proc(pid, "status", text, sizeof(text)) < 0) {
        return false;
    }
    const char *at = strstr(text, "\nUid:");
    at = at ? at + strlen("\nUid:") : NULL;
    for (int i = 0; at && i < 4; i++) { /* real, effective, saved, file system */
        at = next_number(at, &ret_uids[i]);
    }
    return at != NULL;
}

int kg_task_uid(pid_t pid, uid_t *ret_uid)
{
    uint64_t uids[4] = {0};
    if (!task_uids(pid, uids)) {
        return -ESRCH;
    }
    *ret_uid = (uid_t)uids[0];
    return 0;
}

static bool task_has_uid(pid_t pid, uid_t uid)
{
    uint64_t uids[4] = {0};
    return task_uids(pid, uids) &&
           (uids[0] == uid || uids[1] == uid || uids[2] == uid || uids[3] == uid);
}

/* 1 if a process of uid is there, dead ones that wait to be reaped included; 0; -errno. */
static int uid_in_use(uid_t uid)
{
    pid_t self = getpid();
    int found = 0;
    DIR *dir = opendir("/proc");

    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry && !found; entry = next_entry(dir)) {
        uint64_t pid;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !next_number(entry->d_name, &pid)) {
            continue;
        }
        found = (pid_t)pid != self && task_has_uid((pid_t)pid, uid);
    }
    closedir(dir);
    return found;
}

int kg_kill_uid(uid_t uid, uid_t killer_uid, unsigned tries)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if (uid == 0 || killer_uid == 0 || uid == killer_uid) {
        return -EINVAL;
    }
    if (setgroups(0, NULL) < 0 || setresuid(killer_uid, uid, killer_uid) < 0) {
        return -errno;
    }
    for (unsigned i = 0; i < tries; i++) {
        if (kill(-1, SIGKILL) < 0 && errno != ESRCH && errno != EPERM) {
            return -errno;
        }
        int r = uid_in_use(uid); /* kill(-1) says 0 whether it hit anything or not */
        if (r <= 0) {
            return r;
        }
        nanosleep(&pause, NULL); /* until those are dead and reaped */
    }
    return -EBUSY;
}

int kg_child_wait(pid_t pid, unsigned limit_ms, int *ret_status)
{
    int r = 0;
    KG_AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd until = {.fd = fd, .events = POLLIN};
    if (fd >= 0 && poll(&until, 1, (int)limit_ms) == 0) {
        (void)kill(pid, SIGKILL);
        r = -ETIMEDOUT;
    }
    while (waitpid(pid, ret_status, 0) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return r;
}
