/* How requests end: each step may come in any order, twice, late, or never. */
#include "tests/integ/cases.h"

#define HASTY_MS UINT64_C(1000) /* for what never comes */

static int setup_with(void **state, uint64_t missing_ms)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_open(rig, "fake", "");
    rig->opts.limits.no_idle_ns = rig->opts.limits.no_reply_ns = missing_ms * KG_NS_PER_MS;
    rig_ready(rig);
    *state = rig;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, RIG_PATIENCE_MS);
}

static int setup_hasty(void **state)
{
    return setup_with(state, HASTY_MS);
}

static int teardown(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

/* The kernel answers as if nothing had been. */
static void assert_usable(rig_t *rig)
{
    rig_run(rig, "print again\nresult 3");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->out), "again");
    assert_string_equal(rig_text(&rig->result), "3");
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_IDLE);
}

static void execute_plain_doneWithEverything(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "print one\nstderr two\nresult 3", false);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    kg_err_t err = {0};
    kg_request_t *second = NULL;
    const kg_kernel_execute_t args = {.code = kg_slice_cstr("x")};
    const kg_request_sink_t none = {0};
    assert_true(kg_kernel_execute(rig->kernel, &args, &none, NULL, &second, &err) < 0);
    assert_int_equal(err.code, KG_ERR_BUSY);
    rig_await_done(rig);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->out), "one");
    assert_string_equal(rig_text(&rig->err_out), "two");
    assert_string_equal(rig_text(&rig->result), "3");
    assert_string_equal(rig->reply_status, "\"ok\"");
    assert_int_equal(rig->messages, rig->prepared);
    assert_int_equal(rig->busy, 1);
    assert_int_equal(rig->idle, 1);
    assert_int_equal(rig->arg_freed, 0);
    kg_request_release(&rig->req);
    assert_int_equal(rig->arg_freed, 1);
    assert_usable(rig);
}

static void execute_missingIdle_noIdleAfterSilence(void **state)
{
    rig_t *rig = *state;
    uint64_t begin = kg_now_ns();
    rig_run(rig, "print x\nmissing_idle");
    uint64_t ms = (kg_now_ns() - begin) / KG_NS_PER_MS;
    assert_int_equal(rig->end.how, KG_REQUEST_NO_IDLE);
    assert_int_equal(rig->replies, 1);
    assert_true(ms >= HASTY_MS);
    assert_usable(rig);
}

static void execute_missingReply_noReplyAfterIdle(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "print x\nmissing_reply");
    assert_int_equal(rig->end.how, KG_REQUEST_NO_REPLY);
    assert_string_equal(rig_text(&rig->out), "x");
    assert_usable(rig);
}

static void await_unexpected(rig_t *rig, uint64_t count)
{
    kg_kernel_stats_t stats;
    RIG_AWAIT(rig, (kg_kernel_stats(rig->kernel, &stats), stats.unexpected == count));
}

static void execute_doubledReply_secondDropped(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "double_reply");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    await_unexpected(rig, 1);
    assert_int_equal(rig->replies, 1);
    assert_usable(rig);
}

static void zq_02_replyLongBeforeIdle_done(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "reply_first 300");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    rig_run(rig, "idle_first 150");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_usable(rig);
}

static void execute_replyAfterItsDeadline_notDelivered(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "idle_first held");
    assert_int_equal(rig->end.how, KG_REQUEST_NO_REPLY);
    rig_go(rig);
    await_unexpected(rig, 1);
    assert_int_equal(rig->replies, 0);
    assert_usable(rig);
}

static void execute_errorOnIopubButReplyOk_bothSeen(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "error_but_ok");
    assert_int_equal(rig->errors, 1);
    assert_string_equal(rig->reply_status, "\"ok\"");
    rig_run(rig, "error");
    assert_int_equal(rig->errors, 1);
    assert_string_equal(rig->reply_status, "\"error\"");
    assert_usable(rig);
}

static void execute_lateOutput_toTheRequestUntilReleased(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "late held tail");
    assert_string_equal(rig_text(&rig->late), "");
    rig_go(rig);
    rig_await_text(rig, &rig->late, "tail");
    rig_run(rig, "late held lost");
    kg_request_release(&rig->req);
    rig_go(rig);
    rig_await_text(rig, &rig->orphan, "lost");
    assert_usable(rig);
}

static void execute_unknownParent_orphan(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "orphan stray");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->orphan), "stray");
    assert_string_equal(rig_text(&rig->out), "");
    assert_usable(rig);
}

static void execute_releasedWhileRunning_busyUntilItsEnd(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "sleep held\nprint unseen", false);
    kg_request_release(&rig->req);
    assert_int_equal(kg_kernel_state(rig->kernel), KG_KERNEL_BUSY);
    rig_go(rig);
    rig_await_idle(rig);
    assert_int_equal(rig->messages, 0);
    assert_usable(rig);
}

static void ask_answered_done(void **state)
{
    rig_t *rig = *state;
    rig_ask(rig, KG_ASK_COMPLETE, "fa", RIG_PATIENCE_MS);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->replies, 1);
    rig_ask(rig, KG_ASK_IS_COMPLETE, "fa", RIG_PATIENCE_MS);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    rig_ask(rig, KG_ASK_KERNEL_INFO, "", RIG_PATIENCE_MS);
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
}

static void ask_unanswered_silentByItsDeadline(void **state)
{
    rig_t *rig = *state;
    rig_ask(rig, KG_ASK_INSPECT, "fa", 200);
    assert_int_equal(rig->end.how, KG_REQUEST_SILENT);
    rig_ask(rig, KG_ASK_HISTORY, "", 100);
    assert_int_equal(rig->end.how, KG_REQUEST_SILENT);
    rig_ask(rig, KG_ASK_COMM_INFO, "", 100);
    assert_int_equal(rig->end.how, KG_REQUEST_SILENT);
    assert_usable(rig);
}

static void stdin_asked_answered(void **state)
{
    rig_t *rig = *state;
    rig->answer = "Ada \"\xc3\xa9\"";
    rig_send(rig, "input name?", true);
    rig_await_done(rig);
    assert_int_equal(rig->inputs, 1);
    assert_string_equal(rig_text(&rig->out), "Ada \"\xc3\xa9\"");
    rig_send(rig, "input_twice name?", true);
    rig_await_done(rig);
    assert_int_equal(rig->inputs, 2);
    assert_usable(rig);
}

static void stdin_notAllowed_answeredEmptyHere(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "input name?\nprint on");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->inputs, 0);
    assert_string_equal(rig_text(&rig->out), "on");
    assert_usable(rig);
}

static void stdin_unanswered_interruptEndsIt(void **state)
{
    rig_t *rig = *state;
    rig->answer = NULL;
    rig_send(rig, "input name?", true);
    RIG_AWAIT(rig, rig->inputs == 1);
    assert_int_equal(kg_kernel_interrupt(rig->kernel), 0);
    rig_await_done(rig);
    assert_string_equal(rig->reply_status, "\"error\"");
    assert_usable(rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define HASTY(name) cmocka_unit_test_setup_teardown(name, setup_hasty, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(execute_plain_doneWithEverything),
        HASTY(execute_missingIdle_noIdleAfterSilence),
        HASTY(execute_missingReply_noReplyAfterIdle),
        CASE(execute_doubledReply_secondDropped),
        CASE(zq_02_replyLongBeforeIdle_done),
        HASTY(execute_replyAfterItsDeadline_notDelivered),
        CASE(execute_errorOnIopubButReplyOk_bothSeen),
        CASE(execute_lateOutput_toTheRequestUntilReleased),
        CASE(execute_unknownParent_orphan),
        CASE(execute_releasedWhileRunning_busyUntilItsEnd),
        CASE(ask_answered_done),
        CASE(ask_unanswered_silentByItsDeadline),
        CASE(stdin_asked_answered),
        CASE(stdin_notAllowed_answeredEmptyHere),
        CASE(stdin_unanswered_interruptEndsIt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
