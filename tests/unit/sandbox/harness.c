#include "tests/unit/sandbox/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/sandbox/fsutil.h"

#define GUARD_NS (UINT64_C(20) * KG_NS_PER_S)
#define OTHER_UID 54321

void harness_copy(const char *from, const char *to)
{
    char buf[65536];
    ssize_t n;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (in < 0 || out < 0) {
        (void)fprintf(stderr, "cannot copy %s to %s\n", from, to);
    }
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf, sizeof(buf))) > 0) {
        assert_int_equal(write(out, buf, (size_t)n), n);
    }
    close(in);
    close(out);
}

void harness_init(kg_harness_t *h)
{
    const char *copied = getenv("SANDAL_OPEN_BUILD"); /* where others cannot read the build */
    const char *build = copied ? copied : getenv("SANDAL_BUILD_DIR");
    char from[512];

    memset(h, 0, sizeof(*h));
    (void)umask(022);
    (void)snprintf(h->dir, sizeof(h->dir), "/tmp/sandal-test-XXXXXX");
    assert_non_null(mkdtemp(h->dir));
    assert_int_equal(chmod(h->dir, 0711), 0);
    (void)snprintf(h->state, sizeof(h->state), "%s/state", h->dir);
    (void)snprintf(h->runtime, sizeof(h->runtime), "%s/run", h->dir);
    (void)snprintf(h->keeper_exe, sizeof(h->keeper_exe), "%s/sandal-keeper", h->dir);
    (void)snprintf(h->init_exe, sizeof(h->init_exe), "%s/sandal-init", h->dir);
    (void)snprintf(from, sizeof(from), "%s/sandal-keeper", build ? build : ".");
    harness_copy(from, h->keeper_exe);
    (void)snprintf(from, sizeof(from), "%s/sandal-init", build ? build : ".");
    harness_copy(from, h->init_exe);
    assert_int_equal(kg_loop_create(&h->loop), 0);
}

static void on_guard(void *user)
{
    kg_harness_t *h = user;
    h->timed_out = true;
    kg_loop_stop(h->loop);
}

static void on_event(void *user, kg_keeper_event_t event, const kg_err_t *err)
{
    kg_harness_t *h = user;
    if (event == KG_KEEPER_READY) {
        h->ready = true;
        assert_null(err);
    } else {
        h->keeper_lost = true;
        assert_non_null(err);
    }
    kg_loop_stop(h->loop);
}

static void start_guard(kg_harness_t *h, uint64_t ns)
{
    assert_int_equal(kg_timer_create(h->loop, on_guard, h, &h->guard), 0);
    kg_timer_start(h->guard, ns, 0);
    h->timed_out = false;
}

void harness_wait(kg_harness_t *h, const bool *flag)
{
    start_guard(h, GUARD_NS);
    while (!*flag && !h->timed_out) {
        kg_loop_run(h->loop);
    }
    kg_timer_close(&h->guard);
    assert_true(*flag);
}

void harness_spin(kg_harness_t *h, unsigned ms)
{
    start_guard(h, ms * KG_NS_PER_MS);
    while (!h->timed_out) {
        kg_loop_run(h->loop);
    }
    kg_timer_close(&h->guard);
}

void harness_start(kg_harness_t *h)
{
    int fd = -1;
    kg_err_t err = {0};
    kg_keeper_private_t opts = {
        .keeper_exe = h->keeper_exe,
        .init_exe = h->init_exe,
        .state_dir = h->state,
        .runtime_dir = h->runtime,
        .uid_base = h->uid_base ? h->uid_base : HARNESS_UID_BASE,
        .uid_count = HARNESS_UID_COUNT,
        .orphan_s = h->orphan_s,
        .create_timeout_s = h->create_timeout_s,
    };
    h->ready = false;
    h->keeper_lost = false;
    assert_int_equal(kg_keeper_start_private(&opts, &h->keeper_pid, &fd), 0);
    assert_int_equal(kg_keeper_connect(h->loop, fd, on_event, h, &h->keeper, &err), 0);
    harness_wait(h, &h->ready);
}

void harness_stop(kg_harness_t *h)
{
    int status = -1;
    kg_keeper_close(&h->keeper);
    assert_int_equal(waitpid(h->keeper_pid, &status, 0), h->keeper_pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    h->keeper_pid = 0;
}

void harness_fini(kg_harness_t *h)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kg_loop_destroy(&h->loop);
    assert_int_equal(kg_fs_remove_tree(tmp, h->dir + strlen("/tmp/")), 0);
    close(tmp);
}

static void come(kg_answer_t *a, const kg_err_t *err)
{
    assert_false(a->come); /* once and only once */
    a->come = true;
    a->failed = err != NULL;
    if (err) {
        a->err = *err;
    }
    kg_loop_stop(a->h->loop);
}

static void on_created(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_answer_t *a = user;
    assert_true((sbx == NULL) == (err != NULL));
    a->sbx = sbx;
    come(a, err);
}

static void on_spawned(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_answer_t *a = user;
    assert_true((proc == NULL) == (err != NULL));
    a->proc = proc;
    come(a, err);
}

static void on_exit_seen(void *user, const kg_exit_t *exit)
{
    kg_answer_t *a = user;
    assert_int_equal(exit->exited + exit->signaled + exit->lost, 1);
    a->exit = *exit;
    come(a, NULL);
}

static void on_socket(void *user, int fd)
{
    kg_answer_t *a = user;
    a->fd = fd;
    come(a, NULL);
}

void harness_on_done(void *user, const kg_err_t *err)
{
    come(user, err);
}

kg_answer_t harness_create_opts(kg_harness_t *h, const kg_sandbox_opts_t *opts)
{
    kg_answer_t a = {.h = h};
    kg_err_t err = {0};
    assert_int_equal(kg_sandbox_create(h->keeper, opts, on_created, &a, &err), 0);
    assert_false(a.come);
    harness_wait(h, &a.come);
    return a;
}

kg_answer_t harness_create(kg_harness_t *h, const char *id, const char *launcher, bool reuse)
{
    kg_sandbox_opts_t opts = {.id = id, .launcher = launcher, .reuse = reuse};
    return harness_create_opts(h, &opts);
}

kg_sbx_t *harness_sandbox(kg_harness_t *h, const char *id)
{
    kg_answer_t a = harness_create(h, id, "none", false);
    if (a.failed) {
        (void)fprintf(stderr, "create: %s\n", a.err.message);
    }
    assert_non_null(a.sbx);
    return a.sbx;
}

void harness_destroy(kg_harness_t *h, kg_sbx_t **sbx, bool keep_files)
{
    kg_answer_t a = {.h = h};
    kg_sbx_destroy(sbx, keep_files, harness_on_done, &a);
    assert_null(*sbx);
    assert_false(a.come);
    harness_wait(h, &a.come);
    if (a.failed) {
        (void)fprintf(stderr, "destroy: %s\n", a.err.message);
    }
    assert_false(a.failed);
}

kg_answer_t harness_spawn_opts(kg_harness_t *h, kg_sbx_t *sbx, const kg_spawn_opts_t *opts)
{
    kg_answer_t a = {.h = h};
    kg_err_t err = {0};
    assert_int_equal(kg_sbx_spawn(sbx, opts, on_spawned, &a, &err), 0);
    assert_false(a.come);
    harness_wait(h, &a.come);
    return a;
}

kg_answer_t harness_attach_proc(kg_harness_t *h, kg_sbx_t *sbx, uint64_t token)
{
    kg_answer_t a = {.h = h};
    kg_err_t err = {0};
    assert_int_equal(kg_sbx_proc_attach(sbx, token, on_spawned, &a, &err), 0);
    harness_wait(h, &a.come);
    return a;
}

kg_proc_t *harness_sh(kg_harness_t *h, kg_sbx_t *sbx, const char *script)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    const char *env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env};
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    if (a.failed) {
        (void)fprintf(stderr, "spawn: %s\n", a.err.message);
    }
    assert_non_null(a.proc);
    return a.proc;
}

kg_exit_t harness_exit(kg_harness_t *h, kg_proc_t *proc)
{
    kg_answer_t a = {.h = h};
    kg_proc_on_exit(proc, on_exit_seen, &a);
    assert_false(a.come);
    harness_wait(h, &a.come);
    return a.exit;
}

int harness_socket(kg_harness_t *h, kg_sbx_t *sbx, const char *name)
{
    kg_answer_t a = {.h = h};
    assert_int_equal(kg_sbx_socket_open(sbx, name, on_socket, &a), 0);
    harness_wait(h, &a.come);
    return a.fd;
}

kg_answer_t harness_write(kg_harness_t *h, kg_sbx_t *sbx, const char *name, kg_slice_t bytes)
{
    kg_answer_t a = {.h = h};
    assert_int_equal(kg_sbx_file_write(sbx, name, bytes, harness_on_done, &a), 0);
    harness_wait(h, &a.come);
    return a;
}

void harness_read(kg_harness_t *h, int fd, char *ret_text, size_t cap)
{
    size_t len = 0;
    (void)h;
    assert_true(fd >= 0);
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        ssize_t n = read(fd, ret_text + len, cap - 1 - len);
        assert_true(n >= 0);
        if (n == 0) {
            break;
        }
        len += (size_t)n;
        assert_true(len < cap - 1);
    }
    ret_text[len] = '\0';
    close(fd);
}

static bool read_file(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, cap - 1);
    close(fd);
    if (n < 0) {
        return false;
    }
    text[n] = '\0';
    return true;
}

bool harness_alive(pid_t pid)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (!read_file(path, text, sizeof(text))) {
        return false;
    }
    const char *end = strrchr(text, ')');
    return end && end[2] != 'Z' && end[2] != 'X';
}

void harness_wait_gone(kg_harness_t *h, pid_t pid)
{
    for (int i = 0; i < 1000 && harness_alive(pid); i++) {
        if (h->loop && h->keeper) {
            harness_spin(h, 10);
        } else {
            const struct timespec pause = {.tv_nsec = 10000000};
            nanosleep(&pause, NULL);
        }
    }
    assert_false(harness_alive(pid));
}

size_t harness_count_uid(uid_t uid)
{
    size_t count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[300];
        char text[2048];
        unsigned found = 0;
        (void)snprintf(path, sizeof(path), "/proc/%s/status", e->d_name);
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !read_file(path, text, sizeof(text))) {
            continue;
        }
        const char *at = strstr(text, "\nUid:");
        if (at && sscanf(at, "\nUid: %u", &found) == 1 && found == uid) {
            count++;
        }
    }
    closedir(dir);
    return count;
}

size_t harness_open_fds(pid_t pid)
{
    char path[64];
    size_t count = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

uint64_t harness_rss_kib(pid_t pid)
{
    char path[64];
    char text[4096];
    unsigned long long kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (read_file(path, text, sizeof(text)) && strstr(text, "\nVmRSS:")) {
        (void)sscanf(strstr(text, "\nVmRSS:"), "\nVmRSS: %llu", &kib);
    }
    return kib;
}

int harness_run_both(int (*run)(void))
{
    int status = -1;
    if (geteuid() != 0) {
        return run();
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
            setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0) {
            _exit(99);
        }
        _exit(run());
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        (void)fprintf(stderr, "as an ordinary user: failed (%d)\n", status);
        return 1;
    }
    return run();
}
