/* Deaths in each state, interrupts, and the ladder to SIGKILL. */
#include <unistd.h>

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
    assert_true(rig_wait(rig, &rig->exited, 2000));
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
    rig_send(rig, "flood 5000\nfreeze 500\nexit 0", false);
    rig_turn(rig, 20);
    usleep(2500000); /* the loop stands still; the kernel is long dead when it goes on */
    assert_true(rig_wait(rig, &rig->exited, 5000));
    assert_int_equal(rig->streams, 5001);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
}

static void death_afterBigMessage_allArrived(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "big 20000000\nfreeze 500\nexit 0", false);
    assert_true(rig_wait(rig, &rig->exited, 5000));
    assert_int_equal(rig->text_bytes, 20000000);
}

static void death_afterReplyBeforeIdle_dead(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print x\nexit_after_reply 9", false);
    assert_true(rig_wait(rig, &rig->exited, 2000));
    assert_int_equal(rig->replies, 1);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_int_equal(rig->exit.proc.code, 9);
}

static void death_bySignal_told(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "segfault", false);
    assert_true(rig_wait(rig, &rig->exited, 2000));
    assert_true(rig->exit.proc.signaled);
    assert_int_equal(rig->exit.proc.signal, SIGSEGV);
    assert_false(rig->exit.killed_by_us);
}

static void death_byItsOwnSigkill_notByUs(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "kill", false);
    assert_true(rig_wait(rig, &rig->exited, 2000));
    assert_int_equal(rig->exit.proc.signal, SIGKILL);
    assert_false(rig->exit.killed_by_us);
}

static void kill_idle_byUs(void **state)
{
    rig_t *rig = *state;
    assert_int_equal(kg_kernel_kill(rig->kernel), 0);
    assert_true(rig_wait(rig, &rig->exited, 2000));
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
    rig_send(rig, "print a\nsleep 10000", false);
    rig_turn(rig, 50);
    uint64_t begin = kg_now_ns();
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 0), 0);
    assert_true(rig_wait(rig, &rig->done, 1000));
    assert_true(kg_now_ns() - begin < 500 * KG_NS_PER_MS);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig->reply_status, "\"error\"");
    rig_turn(rig, 2300); /* the ladder was taken down */
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
    rig_send(rig, "print a\nstubborn 20000", false);
    rig_turn(rig, 50);
    uint64_t begin = kg_now_ns();
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 5 * KG_NS_PER_S), 0);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 300 * KG_NS_PER_MS), 0);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 9 * KG_NS_PER_S), 0);
    assert_true(rig_wait(rig, &rig->exited, 2000));
    assert_true(kg_now_ns() - begin < 1000 * KG_NS_PER_MS);
    assert_true(rig->exit.killed_by_us);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_string_equal(rig_text(&rig->out), "a");
}

static void lost_sandbox_told(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "sleep 10000", false);
    rig_turn(rig, 50);
    box_lose(rig->box);
    assert_true(rig_wait(rig, &rig->exited, 3000));
    assert_true(rig->exit.proc.lost);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
}

static void close_polite_exits(void **state)
{
    rig_t *rig = *state;
    uint64_t begin = kg_now_ns();
    rig_close_kernel(rig, KG_KERNEL_CLOSE_POLITE);
    assert_true(kg_now_ns() - begin < 400 * KG_NS_PER_MS); /* before SIGKILL */
}

static void close_whileBusy_requestClosed(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "stubborn 20000", false);
    rig_turn(rig, 50);
    uint64_t begin = kg_now_ns();
    rig_close_kernel(rig, KG_KERNEL_CLOSE_NOW);
    assert_true(kg_now_ns() - begin < 500 * KG_NS_PER_MS);
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
        CASE(close_polite_exits),
        CASE(close_whileBusy_requestClosed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
