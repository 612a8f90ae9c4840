/* Keepers and workers that are killed: what lives is found again and goes on, what doesn't is given
 * back, files and slots too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/sandbox/harness.h"

#define ID_A "sbx-tests000000000000001"
#define ID_B "sbx-tests000000000000002"

static int setup(void **state)
{
    kg_harness_t *h = calloc(1, sizeof(*h));
    harness_init(h);
    h->orphan_s = 120;
    harness_start(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    kg_harness_t *h = *state;
    if (h->keeper) {
        harness_stop(h);
    }
    harness_fini(h);
    free(h);
    return 0;
}

/* ---- what there is ---- */

typedef struct kg_living {
    kg_harness_t *h;
    bool come;
    size_t count;
    char first[48];
} kg_living_t;

static void on_ids(void *user, const kg_listed_t *rows, size_t count, const kg_err_t *err)
{
    kg_living_t *l = user;
    assert_null(err);
    l->come = true;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].lives && l->count++ == 0) {
            (void)snprintf(l->first, sizeof(l->first), "%s", rows[i].id);
        }
    }
    kg_loop_stop(l->h->loop);
}

static kg_living_t list(kg_harness_t *h)
{
    kg_living_t l = {.h = h};
    assert_int_equal(kg_keeper_list(h->keeper, on_ids, &l), 0);
    harness_wait(h, &l.come);
    return l;
}

static void on_attached(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_answer_t *a = user;
    a->come = true;
    a->sbx = sbx;
    a->failed = err != NULL;
    if (err) {
        a->err = *err;
    }
    kg_loop_stop(a->h->loop);
}

static kg_answer_t attach(kg_harness_t *h, const char *id)
{
    kg_answer_t a = {.h = h};
    kg_err_t err = {0};
    assert_int_equal(kg_sandbox_attach(h->keeper, id, on_attached, &a, &err), 0);
    harness_wait(h, &a.come);
    return a;
}

static void on_proc(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_answer_t *a = user;
    a->come = true;
    a->proc = proc;
    a->failed = err != NULL;
    kg_loop_stop(a->h->loop);
}

static kg_answer_t proc_attach(kg_harness_t *h, kg_sbx_t *sbx, uint64_t token)
{
    kg_answer_t a = {.h = h};
    kg_err_t err = {0};
    assert_int_equal(kg_sbx_proc_attach(sbx, token, on_proc, &a, &err), 0);
    harness_wait(h, &a.come);
    return a;
}

/* What is of sandboxes in a directory; the keeper may have something of its own there. */
static size_t entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        count += strstr(e->d_name, "sbx-") != NULL;
    }
    closedir(dir);
    return count;
}

static void assert_nothing_left(kg_harness_t *h)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/sandboxes", h->state);
    assert_int_equal(entries(path), 0);
    assert_int_equal(entries(h->runtime), 0);
    assert_int_equal(list(h).count, 0);
}

/* Kills the keeper and forgets what its client knew. */
static void kill_keeper(kg_harness_t *h)
{
    int status;
    assert_int_equal(kill(h->keeper_pid, SIGKILL), 0);
    assert_int_equal(waitpid(h->keeper_pid, &status, 0), h->keeper_pid);
    harness_wait(h, &h->keeper_lost);
    kg_keeper_close(&h->keeper);
}

/* ---- a keeper that was killed ---- */

static void sandbox_outlives_its_keeper(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_sbx_info_t before = *kg_sbx_info(sbx);
    kg_proc_t *proc = harness_sh(h, sbx, "echo here > file; exec sleep 1000");
    pid_t sleeper = kg_proc_pid(proc);
    uint64_t token = kg_proc_token(proc);

    kill_keeper(h);
    kg_proc_close(&proc);
    kg_sbx_destroy(&sbx, true, NULL, NULL);
    assert_true(harness_alive(before.init_pid));
    assert_true(harness_alive(sleeper));

    harness_start(h);
    kg_living_t l = list(h);
    assert_int_equal(l.count, 1);
    assert_string_equal(l.first, ID_A);
    assert_true(harness_create(h, ID_A, "none", true).failed); /* it lives */
    kg_answer_t a = attach(h, ID_A);
    assert_non_null(a.sbx);
    const kg_sbx_info_t *after = kg_sbx_info(a.sbx);
    assert_int_equal(after->init_pid, before.init_pid);
    assert_int_equal(after->uid, before.uid);
    assert_string_equal(after->workspace, before.workspace);
    assert_string_equal(after->run_dir, before.run_dir);
    assert_string_equal(after->isolation, "none");

    kg_answer_t p = proc_attach(h, a.sbx, token);
    assert_non_null(p.proc);
    assert_int_equal(kg_proc_pid(p.proc), sleeper);
    assert_int_equal(kg_proc_signal(p.proc, SIGTERM, false), 0);
    assert_int_equal(harness_exit(h, p.proc).signal, SIGTERM);
    kg_proc_close(&p.proc);
    proc = harness_sh(h, a.sbx, "test $(cat file) = here"); /* new ones start in it as well */
    assert_int_equal(harness_exit(h, proc).code, 0);
    kg_proc_close(&proc);
    harness_destroy(h, &a.sbx, false);
    assert_false(harness_alive(before.init_pid));
    assert_nothing_left(h);
}

static void adopted_sandbox_ends_with_all_its_processes(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    kg_proc_t *proc =
        harness_sh(h, sbx, "for i in 1 2 3; do (setsid sleep 1000 &) ; done; exec sleep 1000");
    pid_t sleeper = kg_proc_pid(proc);
    kill_keeper(h);
    kg_proc_close(&proc);
    kg_sbx_destroy(&sbx, true, NULL, NULL);
    harness_start(h);
    kg_answer_t a = attach(h, ID_A);
    assert_non_null(a.sbx);
    harness_destroy(h, &a.sbx, false);
    assert_false(harness_alive(sleeper));
    if (geteuid() == 0) {
        assert_int_equal(harness_count_uid(uid), 0);
    }
    assert_nothing_left(h);
}

static void adopted_sandbox_whose_init_dies_is_lost(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    pid_t init = kg_sbx_info(sbx)->init_pid;
    kill_keeper(h);
    kg_sbx_destroy(&sbx, true, NULL, NULL);
    harness_start(h);
    kg_answer_t a = attach(h, ID_A);
    kg_answer_t lost = {.h = h};
    assert_non_null(a.sbx);
    kg_sbx_on_lost(a.sbx, harness_on_done, &lost);
    assert_int_equal(kill(init, SIGKILL), 0);
    harness_wait(h, &lost.come);
    harness_destroy(h, &a.sbx, false);
    assert_nothing_left(h);
}

static void sandbox_that_died_meanwhile_is_given_back_and_keeps_its_files(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    uid_t uid = kg_sbx_info(sbx)->uid;
    pid_t init = kg_sbx_info(sbx)->init_pid;
    kg_proc_t *proc = harness_sh(h, sbx, "echo here > file");
    assert_int_equal(harness_exit(h, proc).code, 0);
    kg_proc_close(&proc);
    kill_keeper(h);
    kg_sbx_destroy(&sbx, true, NULL, NULL);
    assert_int_equal(kill(init, SIGKILL), 0);
    harness_wait_gone(h, init);
    harness_start(h);
    assert_int_equal(list(h).count, 0);
    kg_answer_t a = attach(h, ID_A);
    assert_true(a.failed);
    assert_int_equal(a.err.code, KG_ERR_SANDBOX_NOT_FOUND);
    bool made = false;
    for (int i = 0; i < 200 && !made; i++) { /* its end may take a moment */
        a = harness_create(h, ID_A, "none", true);
        made = !a.failed;
        harness_spin(h, 10);
    }
    assert_true(made);
    assert_int_equal(kg_sbx_info(a.sbx)->uid, uid); /* the files' owner */
    proc = harness_sh(h, a.sbx, "test $(cat file) = here");
    assert_int_equal(harness_exit(h, proc).code, 0);
    kg_proc_close(&proc);
    harness_destroy(h, &a.sbx, false);
    assert_nothing_left(h);
}

/* A pid alone doesn't make a process ours. */
static void record_of_another_process_adopts_nothing(void **state)
{
    kg_harness_t *h = *state;
    char path[160];
    char rec[8192];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    pid_t init = kg_sbx_info(sbx)->init_pid;
    kill_keeper(h);
    kg_sbx_destroy(&sbx, true, NULL, NULL);
    assert_int_equal(kill(init, SIGKILL), 0);
    harness_wait_gone(h, init);

    (void)snprintf(path, sizeof(path), "%s/sandboxes/%s.rec", h->state, ID_A);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ssize_t n = read(fd, rec, sizeof(rec));
    assert_true(n > 0);
    pid_t self = getpid();
    bool patched = false;
    for (ssize_t i = 0; i + (ssize_t)sizeof(init) <= n; i += 4) {
        if (memcmp(rec + i, &init, sizeof(init)) == 0) {
            memcpy(rec + i, &self, sizeof(self));
            patched = true;
            break;
        }
    }
    assert_true(patched);
    assert_int_equal(pwrite(fd, rec, (size_t)n, 0), n);
    close(fd);
    harness_start(h); /* and this test still lives */
    assert_int_equal(list(h).count, 0);
    assert_true(attach(h, ID_A).failed);
}

static void broken_records_are_left_alone(void **state)
{
    kg_harness_t *h = *state;
    const char *names[] = {"sbx-tests000000000000009.rec", "sbx-x.rec", ".rec", "noise.rec"};
    char path[200];
    harness_stop(h);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/sandboxes/%s", h->state, names[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, "nonsense", i), i);
        close(fd);
    }
    harness_start(h);
    assert_int_equal(list(h).count, 0);
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    harness_destroy(h, &sbx, false);
}

/* ---- workers ---- */

/* A sandal-init that never listens: the launcher's worker waits for it. */
static void break_init(kg_harness_t *h)
{
    FILE *file = NULL;
    assert_int_equal(unlink(h->init_exe), 0);
    file = fopen(h->init_exe, "we");
    assert_non_null(file);
    (void)fprintf(file,
                  "#!/bin/sh\necho $$ > %s/fake.tmp\nmv %s/fake.tmp %s/fake\nexec sleep 1000\n",
                  h->dir, h->dir, h->dir);
    assert_int_equal(fchmod(fileno(file), 0755), 0);
    (void)fclose(file);
}

static pid_t fake_init(kg_harness_t *h)
{
    char path[160];
    int pid = 0;
    (void)snprintf(path, sizeof(path), "%s/fake", h->dir);
    for (int i = 0; i < 1000 && pid == 0; i++) {
        FILE *file = fopen(path, "re");
        if (file) {
            (void)!fscanf(file, "%d", &pid);
            (void)fclose(file);
        } else {
            harness_spin(h, 10);
        }
    }
    assert_true(pid > 0);
    return pid;
}

static pid_t worker_of(const kg_harness_t *h)
{
    char path[64];
    char comm[32] = "";
    int pid = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)h->keeper_pid,
                   (int)h->keeper_pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fscanf(file, "%d", &pid) == 1) {
        (void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *name = fopen(path, "re");
        if (name) {
            (void)!fscanf(name, "%31s", comm);
            (void)fclose(name);
        }
        if (strcmp(comm, "sandal-worker") == 0) {
            break;
        }
    }
    (void)fclose(file);
    assert_string_equal(comm, "sandal-worker");
    return pid;
}

static kg_answer_t *create_begins(kg_harness_t *h)
{
    kg_answer_t *a = calloc(1, sizeof(*a));
    kg_err_t err = {0};
    kg_sandbox_opts_t opts = {.id = ID_A, .launcher = "none"};
    a->h = h;
    assert_int_equal(kg_sandbox_create(h->keeper, &opts, on_attached, a, &err), 0);
    return a;
}

static void worker_killed_half_way_leaves_nothing(void **state)
{
    kg_harness_t *h = *state;
    break_init(h);
    kg_answer_t *a = create_begins(h);
    pid_t fake = fake_init(h);
    pid_t worker = worker_of(h);
    assert_int_equal(list(h).count, 0); /* the keeper answers meanwhile */
    assert_false(a->come);
    assert_int_equal(kill(worker, SIGKILL), 0);
    harness_wait(h, &a->come);
    assert_true(a->failed);
    assert_int_equal(a->err.code, KG_ERR_INTERNAL);
    assert_false(harness_alive(fake));
    assert_nothing_left(h);
    free(a);
}

static void slow_create_is_cut_off(void **state)
{
    kg_harness_t *h = *state;
    harness_stop(h);
    h->create_timeout_s = 1;
    break_init(h);
    harness_start(h);
    kg_answer_t *a = create_begins(h);
    pid_t fake = fake_init(h);
    harness_wait(h, &a->come);
    assert_true(a->failed);
    assert_int_equal(a->err.code, KG_ERR_BUSY);
    assert_false(harness_alive(fake));
    assert_nothing_left(h);
    free(a);
}

static void destroy_of_one_that_is_being_made(void **state)
{
    kg_harness_t *h = *state;
    break_init(h);
    kg_answer_t *a = create_begins(h);
    pid_t fake = fake_init(h);
    kg_answer_t done = {.h = h};
    assert_int_equal(kg_keeper_end(h->keeper, ID_A, false, harness_on_done, &done), 0);
    harness_wait(h, &done.come);
    assert_false(done.failed);
    harness_wait(h, &a->come);
    assert_true(a->failed);
    assert_false(harness_alive(fake));
    assert_nothing_left(h);
    free(a);
}

static void keeper_killed_half_way_is_cleaned_up_by_the_next(void **state)
{
    kg_harness_t *h = *state;
    break_init(h);
    kg_answer_t *a = create_begins(h);
    pid_t fake = fake_init(h);
    pid_t worker = worker_of(h);
    kill_keeper(h);
    harness_wait(h, &a->come);
    assert_true(a->failed);
    harness_wait_gone(h, worker);
    (void)kill(fake, SIGKILL); /* a real one ends by itself, as no keeper comes */
    harness_start(h);
    for (int i = 0; i < 200 && list(h).h; i++) {
        char path[160];
        (void)snprintf(path, sizeof(path), "%s/sandboxes", h->state);
        if (entries(path) == 0) {
            break;
        }
        harness_spin(h, 10);
    }
    assert_nothing_left(h);
    free(a);
}

static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(sandbox_outlives_its_keeper),
        T(adopted_sandbox_ends_with_all_its_processes),
        T(adopted_sandbox_whose_init_dies_is_lost),
        T(sandbox_that_died_meanwhile_is_given_back_and_keeps_its_files),
        T(record_of_another_process_adopts_nothing),
        T(broken_records_are_left_alone),
        T(worker_killed_half_way_leaves_nothing),
        T(slow_create_is_cut_off),
        T(destroy_of_one_that_is_being_made),
        T(keeper_killed_half_way_is_cleaned_up_by_the_next),
    };
    return cmocka_run_group_tests_name(geteuid() == 0 ? "adoption, root" : "adoption, rootless",
                                       tests, NULL, NULL);
}

int main(void)
{
    return harness_run_both(run);
}
