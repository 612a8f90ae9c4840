/* The loop of a zygote and its forks: one that goes away into the other sandbox, from it the
 * minder, from that the process. The first one's end is the zygote's affair, the minder is an
 * orphan of its sandbox, and the process the minder's child. */
#include "gateway/sandbox/zygote/zygote.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/last_words.h"
#include "gateway/sandbox/seqsock.h"
#include "gateway/sandbox/zygote/join.h"

#define BACKLOG 128

struct sandal_forked {
    kg_zorder_t order;
    char **argv;
    char **env;
    char words[40];
    char *cwd;
};

static int unpack(sandal_forked_t *f)
{
    const kg_ip_spawn_t *spawn = &f->order.spawn;
    char *strings = f->order.frame + (f->order.strings - f->order.frame);
    bool words = kg_zorder_words(&f->order) >= 0;

    f->argv = calloc((size_t)spawn->argc + 1, sizeof(*f->argv));
    f->env = calloc((size_t)spawn->envc + 2, sizeof(*f->env));
    if (!f->argv || !f->env) {
        return -ENOMEM;
    }
    kg_ip_spawn_strings(spawn, strings, f->argv, f->env + words, &f->cwd);
    if (words) {
        (void)kg_format(f->words, sizeof(f->words), "%s=%d", KG_LAST_WORDS_ENV, KG_LAST_WORDS_FD);
        f->env[0] = f->words;
    }
    return 0;
}

/* In the minder to be: comes back in the process. */
static void fork_process(sandal_forked_t *f)
{
    int link[2];

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (kg_seq_pair(link) < 0) {
        _exit(1);
    }
    pid_t pid = fork();
    if (pid == 0) {
        kg_zorder_settle(&f->order, link[1], f->cwd);
        return;
    }
    if (pid > 0) {
        kg_zorder_mind(&f->order, link[0], pid);
        (void)kill(pid, SIGKILL);
    }
    _exit(127); /* its socket's end tells */
}

/* In the first fork: comes back in the process alone. */
static void do_order(int sock, sandal_forked_t *f)
{
    (void)signal(SIGCHLD, SIG_DFL);
    if (kg_zorder_read(sock, &f->order) < 0 || unpack(f) < 0 || kg_zorder_join(&f->order) < 0) {
        _exit(1);
    }
    pid_t pid = fork();
    if (pid != 0) {
        _exit(pid < 0);
    }
    fork_process(f);
}

static int open_listener(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    KG_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -errno;
    }
    if (strlen(path) >= sizeof(addr.sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, BACKLOG) < 0) {
        return -errno;
    }
    return kg_take_fd(&fd);
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

/* A first fork, so that libraries stop threads of theirs; none may be left, for children would miss
 * it. */
static int stop_threads(void)
{
    int threads = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
        return -errno;
    }
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry = dir ? next_entry(dir) : NULL; entry; entry = next_entry(dir)) {
        threads += entry->d_name[0] != '.';
    }
    if (dir) {
        (void)closedir(dir);
    }
    return threads == 1 ? 0 : -EBUSY;
}

int sandal_zygote_serve(const char *path, sandal_forked_t **ret_forked)
{
    int r = stop_threads();
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int listener = open_listener(path);
    sandal_forked_t *f = calloc(1, sizeof(*f));

    if (listener < 0 || !f) {
        free(f);
        return f ? listener : -ENOMEM;
    }
    (void)signal(SIGCHLD, SIG_IGN); /* its forks are nothing to wait for */
    for (;;) {
        int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (sock < 0) {
            free(f);
            return -errno;
        }
        pid_t pid = fork();
        if (pid == 0) {
            close(kg_take_fd(&listener));
            do_order(sock, f);
            *ret_forked = f;
            return 0;
        }
        close(sock); /* without a fork the order's minder never speaks */
    }
}

const char *sandal_zygote_arg(const sandal_forked_t *forked, unsigned index)
{
    return index < forked->order.spawn.argc ? forked->argv[index] : NULL;
}

const char *sandal_zygote_env(const sandal_forked_t *forked, unsigned index)
{
    return index <= forked->order.spawn.envc ? forked->env[index] : NULL;
}

int sandal_zygote_exec(const sandal_forked_t *forked)
{
    (void)execvpe(forked->argv[0], forked->argv, forked->env);
    return -errno;
}
