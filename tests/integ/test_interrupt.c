/* An interrupt hits the request it was meant for, or nothing. */
#include <errno.h>

#include "gateway/base/str.h"
#include "tests/integ/cases.h"

#define HOLD_MS UINT64_C(2000) /* the most that a request waits for the interrupt before it */

static int setup_kernel(void **state, const char *kernel)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_open(rig, kernel, "");
    rig_ready(rig);
    *state = rig;
    return 0;
}

static int setup(void **state)
{
    return setup_kernel(state, "fake");
}

static int setup_signal(void **state)
{
    return setup_kernel(state, "fake-signal");
}

static int teardown(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

static void assert_interrupts(rig_t *rig, const char *want)
{
    rig_run(rig, "interrupts");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->result), want);
}

/* A cell that is interrupted in its sleep; the setting tells the kernel how to take it. */
static void interrupt_cell(rig_t *rig, const char *setting)
{
    char code[64];
    (void)kg_format(code, sizeof code, "%s\nprint begun\nsleep held", setting);
    rig_send(rig, code, false);
    rig_await_text(rig, &rig->out, "begun");
    assert_int_equal(kg_kernel_interrupt(rig->kernel), 0);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig->reply_status, "\"error\"");
}

static uint64_t run_ms(rig_t *rig, const char *code)
{
    uint64_t begin = kg_now_ns();
    rig_run(rig, code);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    return (kg_now_ns() - begin) / KG_NS_PER_MS;
}

static void next_replyOfInterruptLate_sentAfterIt(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "result 3", false);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    assert_false(kg_request_is_sent(rig->req));
    rig_turn(rig, 100); /* nothing comes; two seconds are the most that it waits for the kernel */
    assert_int_equal(rig->sent, 0);
    assert_int_equal(rig->messages, 0);
    rig_go(rig);
    rig_await_done(rig);
    assert_int_equal(rig->sent, 1);
    assert_string_equal(rig_text(&rig->result), "3");
    assert_interrupts(rig, "1, stray 0");
    assert_int_equal(rig->sent, 0); /* did not have to wait */
}

static void next_interruptAfterTheEnd_waitsForIt(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "late_interrupts 200");
    rig_send(rig, "sleep 50", false);
    for (bool over = false; !rig->done && kg_kernel_interrupt(rig->kernel) == 0;) {
        (void)rig_wait(rig, &over, 0);
    }
    rig_run(rig, "sleep 100\nresult 4");
    assert_string_equal(rig->reply_status, "\"ok\"");
    assert_string_equal(rig_text(&rig->result), "4");
}

static void next_probeUnanswered_askedAgain(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "deaf 1");
    assert_true(run_ms(rig, "result 3") < HOLD_MS - 100); /* asked again soon */
    assert_int_equal(rig->sent, 1);
    assert_true(rig->fd2_when_sent > 0); /* the kernel's words came before */
    assert_int_equal(rig->fd2_when_sent, rig->fd2.len);
    assert_interrupts(rig, "1, stray 0");
}

static void next_probeNeverAnswered_sentAfterTwoSeconds(void **state)
{
    rig_t *rig = *state;
    uint64_t begin = kg_now_ns();
    interrupt_cell(rig, "deaf 1000");
    rig_run(rig, "result 3");
    assert_true(kg_now_ns() - begin >= HOLD_MS * KG_NS_PER_MS);
    assert_true(run_ms(rig, "interrupts") < HOLD_MS - 100); /* did not have to wait */
    assert_string_equal(rig_text(&rig->result), "1, stray 0");
}

static void next_interruptNeverAnswered_sentAfterTwoSeconds(void **state)
{
    rig_t *rig = *state;
    uint64_t begin = kg_now_ns();
    interrupt_cell(rig, "late_interrupts held");
    rig_run(rig, "result 3");
    assert_true(kg_now_ns() - begin >= HOLD_MS * KG_NS_PER_MS);
}

static void interrupt_afterTheReply_notSent(void **state)
{
    rig_t *rig = *state;
    assert_int_equal(kg_kernel_interrupt(rig->kernel), -EALREADY);
    rig_send(rig, "reply_first held", false);
    RIG_AWAIT(rig, rig->replies == 1);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 0), 0);
    rig_go(rig);
    rig_await_done(rig);
    assert_int_equal(kg_kernel_interrupt(rig->kernel), -EALREADY);
    assert_interrupts(rig, "0, stray 0");
    rig_turn(rig, 2200); /* longer than the grace: the ladder was taken down */
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_IDLE);
}

static void interrupt_beforeTheCellBegan_comesAgain(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "sleep held", false);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, RIG_PATIENCE_MS * KG_NS_PER_MS), 0);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    rig_run(rig, "result 3");
    assert_string_equal(rig_text(&rig->result), "3");
}

static void interrupt_ofWhatWaits_neverSent(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "print never", false);
    assert_int_equal(kg_kernel_interrupt_or_kill(rig->kernel, 0), 0);
    assert_int_equal(kg_kernel_interrupt(rig->kernel), 0);
    assert_false(rig->done); /* not from inside the call */
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_UNSENT);
    assert_false(kg_request_is_sent(rig->req));
    assert_int_equal(rig->sent, 0);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_IDLE);
    rig_send(rig, "interrupts", false);
    rig_go(rig);
    rig_await_done(rig);
    assert_string_equal(rig_text(&rig->result), "1, stray 0");
    assert_string_equal(rig_text(&rig->orphan), "");
    assert_int_equal(rig->sent, 1);
}

static void ask_afterInterrupt_waitsToo(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_ask(rig, KG_ASK_COMPLETE, "fa", 50);
    assert_int_equal(rig->end.how, KG_REQUEST_SILENT);
    rig_send_ask(rig, KG_ASK_COMPLETE, "fa", RIG_PATIENCE_MS);
    rig_go(rig);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->sent, 1);
}

static void waiting_suspended_sentAfterwards(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "result 3", false);
    rig_suspend(rig);
    rig_resume(rig);
    assert_int_equal(rig->link_err.code, KG_ERR_NONE);
    rig_go(rig);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_false(rig->end.gap);
    assert_string_equal(rig_text(&rig->result), "3");
}

static void waiting_kernelDies_deadUnsent(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "result 3", false);
    assert_int_equal(kg_kernel_kill(rig->kernel), 0);
    rig_await_exit(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DEAD);
    assert_false(kg_request_is_sent(rig->req));
}

static void waiting_closed_closed(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "result 3", false);
    rig_close_kernel(rig, KG_KERNEL_CLOSE_NOW);
    assert_int_equal(rig->end.how, KG_REQUEST_CLOSED);
}

static void waiting_released_sentAllTheSame(void **state)
{
    rig_t *rig = *state;
    interrupt_cell(rig, "late_interrupts held");
    rig_send(rig, "print unseen", false);
    kg_request_release(&rig->req);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    rig_go(rig);
    rig_await_idle(rig);
    assert_string_equal(rig_text(&rig->orphan), "unseen");
}

static void signal_ofACell_nextUnharmed(void **state)
{
    rig_t *rig = *state;
    for (unsigned i = 0; i < 10; i++) {
        interrupt_cell(rig, "");
        assert_true(run_ms(rig, "sleep 20\nresult 3") < HOLD_MS - 100); /* did not have to wait */
        assert_string_equal(rig->reply_status, "\"ok\"");
        assert_string_equal(rig_text(&rig->result), "3");
    }
    assert_interrupts(rig, "10, stray 0");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(next_replyOfInterruptLate_sentAfterIt),
        CASE(next_interruptAfterTheEnd_waitsForIt),
        CASE(next_probeUnanswered_askedAgain),
        CASE(next_probeNeverAnswered_sentAfterTwoSeconds),
        CASE(next_interruptNeverAnswered_sentAfterTwoSeconds),
        CASE(interrupt_afterTheReply_notSent),
        CASE(interrupt_beforeTheCellBegan_comesAgain),
        CASE(interrupt_ofWhatWaits_neverSent),
        CASE(ask_afterInterrupt_waitsToo),
        CASE(waiting_suspended_sentAfterwards),
        CASE(waiting_kernelDies_deadUnsent),
        CASE(waiting_closed_closed),
        CASE(waiting_released_sentAllTheSame),
        cmocka_unit_test_setup_teardown(signal_ofACell_nextUnharmed, setup_signal, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
