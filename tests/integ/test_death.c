/* Deaths in each state, interrupts, and the ladder to SIGKILL. */
#include "tests/integ/cases.h"

static int setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_open(rig, "fake", "");
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

static void death_midCell_outputKeptAndExitTold(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print before\nexit 5", false);
    rig_await_exit(rig);
    assert_true(rig->done_before_exit);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_string_equal(rig_text(&rig->out), "before");
    assert_true(rig->exit.proc.exited);
    assert_int_equal(rig->exit.proc.code, 5);
    assert_false(rig->exit.killed_by_us);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_DEAD);
    kg_err_t err = {0};
    const kg_kernel_execute_t args = {.code = kg_slice_cstr("x")};
    const kg_request_sink_t none = {0};
    kg_request_t *req = NULL;
    assert_true(kg_kernel_execute(rig->kernel, &args, &none, NULL, &req, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    assert_true(kg_kernel_interrupt(rig->kernel) < 0);
    assert_true(kg_kernel_kill(rig->kernel) < 0);
}

static void death_afterManyMessages_allArrived(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print begun\nsleep held\nflood 5000\nfreeze 1000\nexit 0", false);
    rig_await_text(rig, &rig->out, "begun");
    rig_go(rig);
    rig_stand_still_until_dead(rig);
    rig_await_exit(rig);
    assert_int_equal(rig->streams, 5002);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
}

static void death_afterBigMessage_allArrived(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "big 20000000\nfreeze 1000\nexit 0", false);
    rig_await_exit(rig);
    assert_int_equal(rig->text_bytes, 20000000);
}

static void death_afterReplyBeforeIdle_dead(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print x\nexit_after_reply 9", false);
    rig_await_exit(rig);
    assert_int_equal(rig->replies, 1);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_int_equal(rig->exit.proc.code, 9);
}

static void death_bySignal_told(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "segfault", false);
    rig_await_exit(rig);
    assert_true(rig->exit.proc.signaled);
    assert_int_equal(rig->exit.proc.signal, SIGSEGV);
    assert_false(rig->exit.killed_by_us);
}

static void death_byItsOwnSigkill_notByUs(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "kill", false);
    rig_await_exit(rig);
    assert_int_equal(rig->exit.proc.signal, SIGKILL);
    assert_false(rig->exit.killed_by_us);
}

static void kill_idle_byUs(void **state)
{
    rig_t *rig = *state;
    assert_int_equal(kg_kernel_kill(rig->kernel), 0);
    rig_await_exit(rig);
    assert_true(rig->exit.killed_by_us);
    assert_int_equal(rig->exit.proc.signal, SIGKILL);
}

static void interrupt_idle_refused(void **state)
{
    rig_t *rig = *state;
    assert_true(kg_kernel_interrupt(rig->kernel) < 0);
    rig_run(rig, "print ok");
    assert_string_equal(rig->reply_status, "\"ok\"");
}

static void interrupt_sleep_ends(rig_t *rig)
{
    rig_send(rig, "print a\nsleep held", false);
    rig_await_text(rig, &rig->out, "a");
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 0), 0);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig->reply_status, "\"error\"");
    rig_turn(rig, 2300); /* longer than the grace: the ladder was taken down */
    assert_false(rig->exited);
    rig_run(rig, "print ok");
    assert_string_equal(rig_text(&rig->out), "ok");
}

static void interrupt_byMessage_ends(void **state)
{
    interrupt_sleep_ends(*state);
}

static void interrupt_bySignal_ends(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "");
    rig.spec->interrupt_mode = KG_INTERRUPT_SIGNAL;
    rig_ready(&rig);
    interrupt_sleep_ends(&rig);
    rig_close(&rig);
}

static void interrupt_ignored_killedAfterGrace(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print a\nstubborn held", false);
    rig_await_text(rig, &rig->out, "a");
    uint64_t begin = kg_now_ns();
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 20 * KG_NS_PER_S), 0);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 300 * KG_NS_PER_MS), 0);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 40 * KG_NS_PER_S), 0);
    rig_await_exit(rig);
    assert_true(kg_now_ns() - begin < 15 * KG_NS_PER_S);
    assert_true(rig->exit.killed_by_us);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_string_equal(rig_text(&rig->out), "a");
}

static void lost_sandbox_told(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print a\nsleep held", false);
    rig_await_text(rig, &rig->out, "a");
    box_lose(rig->box);
    rig_await_exit(rig);
    assert_true(rig->exit.proc.lost);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
}

static void close_polite_exits(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "");
    rig.opts.limits.polite_ns = 30 * KG_NS_PER_S;
    rig_ready(&rig);
    uint64_t begin = kg_now_ns();
    rig_close_kernel(&rig, KG_KERNEL_CLOSE_POLITE);
    assert_true(kg_now_ns() - begin < 15 * KG_NS_PER_S); /* before SIGKILL */
    rig_close(&rig);
}

static void close_whileBusy_requestClosed(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print a\nstubborn held", false);
    rig_await_text(rig, &rig->out, "a");
    rig_close_kernel(rig, KG_KERNEL_CLOSE_NOW);
    assert_int_equal(rig->end.how, KG_REQUEST_CLOSED);
    assert_false(rig->exited);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(death_midCell_outputKeptAndExitTold),
        CASE(death_afterManyMessages_allArrived),
        CASE(death_afterBigMessage_allArrived),
        CASE(death_afterReplyBeforeIdle_dead),
        CASE(death_bySignal_told),
        CASE(death_byItsOwnSigkill_notByUs),
        CASE(kill_idle_byUs),
        CASE(interrupt_idle_refused),
        CASE(interrupt_byMessage_ends),
        cmocka_unit_test(interrupt_bySignal_ends),
        CASE(interrupt_ignored_killedAfterGrace),
        CASE(lost_sandbox_told),
        cmocka_unit_test(close_polite_exits),
        CASE(close_whileBusy_requestClosed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
