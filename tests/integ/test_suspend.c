/* The channels taken down and up again. */
#include "tests/integ/cases.h"

static int setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_open(rig, "fake", "");
    rig->opts.limits.no_reply_ns = KG_NS_PER_S; /* for what ends in a gap */
    rig_ready(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

static void suspend_idle_resumesUsable(void **state)
{
    rig_t *rig = *state;
    rig_turn(rig, 1100); /* the kernel room's own timer, of the same loop, is a second long */
    unsigned up = rig_fds();
    for (int i = 0; i < 3; i++) {
        rig_suspend(rig);
        assert_true(kg_kernel_is_suspended(rig->kernel));
        rig_expect_fds(rig, up - 8); /* two a socket */
        kg_err_t err = {0};
        const kg_kernel_execute_t args = {.code = kg_slice_cstr("x")};
        const kg_request_sink_t none = {0};
        kg_request_t *req = NULL;
        assert_true(kg_kernel_execute(rig->kernel, &args, &none, NULL, &req, &err) < 0);
        assert_int_equal(err.code, KG_ERR_CONFLICT);
        rig_resume(rig);
        assert_int_equal(rig->link_err.code, KG_ERR_NONE);
        rig_run(rig, "print ok\nresult 1");
        assert_int_equal(rig->end.how, KG_REQUEST_DONE);
        assert_false(rig->end.gap);
        assert_string_equal(rig_text(&rig->out), "ok");
    }
}

static void suspend_busyResumedInTime_replyArrives(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print first\nsleep held\nprint second\nresult 5", false);
    rig_await_text(rig, &rig->out, "first");
    rig_suspend(rig);
    rig_resume(rig);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    rig_go(rig);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_true(rig->end.gap);
    assert_string_equal(rig_text(&rig->out), "firstsecond");
    assert_string_equal(rig_text(&rig->result), "5");
}

static void suspend_cellEndsInTheGap_foundOut(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print first\nsleep held\nresult 5\nover last", false);
    rig_await_text(rig, &rig->out, "first");
    rig_suspend(rig);
    rig_go(rig);
    rig_await_text(rig, &rig->fd1, "last");
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    rig_resume(rig);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_NO_REPLY);
    assert_true(rig->end.gap);
    rig_run(rig, "print ok");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
}

static void suspend_diesInTheGap_told(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print first\nsleep held\nexit 4", false);
    rig_await_text(rig, &rig->out, "first");
    rig_suspend(rig);
    rig_go(rig);
    rig_await_exit(rig);
    assert_int_equal(rig->exit.proc.code, 4);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_true(rig->end.gap);
    assert_true(kg_kernel_resume(rig->kernel, NULL, NULL, &rig->err) < 0);
}

static void suspend_diesDuringResume_doneWithError(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print first\nfreeze held\nexit 4", false);
    rig_await_text(rig, &rig->out, "first");
    rig_suspend(rig);
    rig_begin_resume(rig);
    rig_go(rig); /* nothing answers until it dies */
    assert_true(rig_wait(rig, &rig->resumed, RIG_PATIENCE_MS));
    assert_int_equal(rig->link_err.code, KG_ERR_CONFLICT);
    rig_await_exit(rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(suspend_idle_resumesUsable),
        CASE(suspend_busyResumedInTime_replyArrives),
        CASE(suspend_cellEndsInTheGap_foundOut),
        CASE(suspend_diesInTheGap_told),
        CASE(suspend_diesDuringResume_doneWithError),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
