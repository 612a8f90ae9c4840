/* The daemon's stops: drain, a core that is abandoned, kill -9. */
#include "tests/unit/context/rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "gateway/base/clock.h"
#include "gateway/context/internal.h"

static int setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig_dirs(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_t *rig = *state;
    rig_remove(rig);
    free(rig);
    return 0;
}

static void drained(void *user)
{
    ((rig_t *)user)->called = true;
}

static void drain_ends_everything_and_keeps_it(void **state)
{
    rig_t *rig = *state;
    rig_start(rig);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    char id[64];
    (void)snprintf(id, sizeof(id), "%s", kg_sandbox_id(sbx));
    rig_expect(rig, sbx, "open('f','w').write('kept')", "ok", "4");
    kg_run_opts_t slow = rig_opts("print('going', flush=True); import time; time.sleep(30)");
    kg_run_opts_t next = rig_opts("1");
    kg_run_t *one = rig_run(rig, sbx, &slow);
    kg_run_t *two = rig_run(rig, sbx, &next);
    kg_run_t *refused = NULL;
    kg_err_t err = {0};
    rig_until_has(rig, one, "going", 5000);
    rig->called = false;
    uint64_t begun = kg_now_ns();
    kg_core_drain(rig->core, drained, rig);
    assert_true(kg_run_new(sbx, &next, &refused, NULL, &err) < 0);
    assert_int_equal(KG_ERR_DRAINING, err.code);
    json_t *e = rig_end(rig, two, 200);
    assert_string_equal("gateway_restart", str_of(e, "status"));
    assert_true(json_is_false(json_object_get(json_object_get(e, "error"), "started")));
    json_decref(e);
    e = rig_end(rig, one, 1500); /* grace 0.5 s, and at most a second more */
    assert_string_equal("gateway_restart", str_of(e, "status"));
    assert_string_equal("GatewayRestart", str_of(e, "error.name"));
    assert_string_equal("going\n", str_of(e, "stdout"));
    json_decref(e);
    rig_called(rig, 3000);
    print_message("drain: %d ms\n", (int)((kg_now_ns() - begun) / KG_NS_PER_MS));
    rig_stop(rig);

    rig_start(rig);
    sbx = kg_sandbox_find(rig->core, OWNER, id, &err);
    assert_non_null(sbx);
    json_t *json = kg_sandbox_json(sbx);
    assert_string_equal("running", str_of(json, "state"));
    json_decref(json);
    e = rig_exec(rig, sbx, "open('f').read()");
    assert_string_equal("'kept'", str_of(e, "text"));
    assert_int_equal(1, int_of(e, "execution_count"));
    json_decref(e);
    json = kg_context_json(kg_context_find(sbx, kg_sandbox_default_context(sbx), &err));
    assert_int_equal(2, int_of(json, "incarnation"));
    json_decref(json);
    rig_stop(rig);
}

static void count_drained(void *user)
{
    (*(bool *)user) = true;
}

static bool is_true(void *arg)
{
    return *(bool *)arg;
}

static void drain_answers_who_waits_for_a_context(void **state)
{
    rig_t *rig = *state;
    rig_start(rig);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_err_t err = {0};
    kg_context_opts_t opts = {.name = "young"};
    bool over = false;
    rig->called = false;
    assert_int_equal(0, kg_context_new(sbx, &opts, on_context, rig, &err));
    kg_core_drain(rig->core, count_drained, &over);
    rig_called(rig, 2000);
    assert_int_equal(KG_ERR_DRAINING, rig->err.code);
    assert_true(kg_sandbox_delete(sbx, on_done, rig, &err) < 0);
    assert_int_equal(KG_ERR_DRAINING, err.code);
    rig_until(rig, is_true, &over, 5000);
    rig_stop(rig);

    rig_start(rig);
    sbx = rig->core->sandboxes;
    assert_non_null(sbx);
    assert_null(kg_context_find(sbx, "young", &err)); /* it was told that it isn't there */
    rig_stop(rig);
}

static void abandoned_core_is_picked_up(void **state)
{
    rig_t *rig = *state;
    rig_start(rig);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t slow = rig_opts("print('going', flush=True); import time; time.sleep(30)");
    slow.key = "once";
    kg_run_t *run = rig_run(rig, sbx, &slow);
    char run_id[64];
    char id[64];
    (void)snprintf(run_id, sizeof(run_id), "%s", kg_run_id(run));
    (void)snprintf(id, sizeof(id), "%s", kg_sandbox_id(sbx));
    rig_until_has(rig, run, "going", 5000);
    kg_run_detach(&run);
    rig_stop(rig);

    rig_start(rig);
    kg_err_t err = {0};
    sbx = kg_sandbox_find(rig->core, OWNER, id, &err);
    assert_non_null(sbx);
    run = kg_run_find(sbx, run_id, &err);
    assert_non_null(run);
    kg_run_attach(run);
    json_t *e = rig_end(rig, run, 100);
    assert_string_equal("gateway_restart", str_of(e, "status"));
    assert_string_equal("lost", str_of(e, "error.state"));
    assert_string_equal("going\n", str_of(e, "stdout"));
    json_decref(e);
    kg_run_t *again = NULL;
    bool existing = false;
    assert_int_equal(0, kg_run_new(sbx, &slow, &again, &existing, &err));
    assert_true(existing);
    rig_expect(rig, sbx, "2+2", "ok", "4");
    rig_stop(rig);
}

static void child(rig_t *rig, int fd)
{
    rig_start(rig);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_run_opts_t slow = rig_opts("print('going', flush=True); import time; time.sleep(30)");
    kg_run_t *run = rig_run(rig, sbx, &slow);
    char ids[160];
    rig_until_has(rig, run, "going", 5000);
    (void)snprintf(ids, sizeof(ids), "%s %s %d", kg_sandbox_id(sbx), kg_run_id(run),
                   (int)rig->keeper_pid);
    if (write(fd, ids, strlen(ids) + 1) < 0) {
        _exit(1);
    }
    rig_turn(rig, 60000);
}

/* A process of another's: nobody here is told of its end. */
static void wait_until_gone(int pid)
{
    char path[32];
    char state = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    for (int i = 0; i < 6000 && state != 'Z'; i++) {
        FILE *file = fopen(path, "r");
        if (!file) {
            return;
        }
        state = 'Z';
        (void)!fscanf(file, "%*d (%*[^)]) %c", &state); // NOLINT(cert-err34-c)
        (void)fclose(file);
        const struct timespec pause = {0, 10000000};
        (void)nanosleep(&pause, NULL);
    }
    assert_int_equal('Z', state);
}

static void killed_daemon_loses_nothing_shown(void **state)
{
    rig_t *rig = *state;
    int fds[2];
    char ids[160] = "";
    char id[64];
    char run_id[64];
    int keeper = 0;
    assert_int_equal(0, pipe(fds));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        child(rig, fds[1]);
        _exit(0);
    }
    (void)close(fds[1]);
    assert_true(read(fds[0], ids, sizeof(ids)) > 0);
    (void)close(fds[0]);
    assert_int_equal(0, kill(pid, SIGKILL));
    assert_int_equal(pid, waitpid(pid, NULL, 0));
    assert_int_equal(3, sscanf(ids, "%63s %63s %d", id, run_id, &keeper)); // NOLINT(cert-err34-c)
    wait_until_gone(keeper);
    rig_start(rig);
    kg_err_t err = {0};
    kg_sandbox_t *sbx = kg_sandbox_find(rig->core, OWNER, id, &err);
    assert_non_null(sbx);
    kg_run_t *run = kg_run_find(sbx, run_id, &err);
    assert_non_null(run);
    kg_run_attach(run);
    json_t *e = rig_end(rig, run, 100);
    assert_string_equal("gateway_restart", str_of(e, "status"));
    assert_string_equal("going\n", str_of(e, "stdout"));
    json_decref(e);
    rig_expect(rig, sbx, "2+2", "ok", "4");
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drain_ends_everything_and_keeps_it, setup, teardown),
        cmocka_unit_test_setup_teardown(drain_answers_who_waits_for_a_context, setup, teardown),
        cmocka_unit_test_setup_teardown(abandoned_core_is_picked_up, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_daemon_loses_nothing_shown, setup, teardown),
    };
    const char *only = getenv("SANDAL_TEST_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
    return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
