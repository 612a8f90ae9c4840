/* Messages of clients to a kernel: each ends, whether the kernel answers, only takes note, or has
 * never heard of such a thing. */
#include "tests/integ/cases.h"

#define HASTY_MS UINT64_C(300) /* for a reply that never comes after idle */

typedef struct sent {
    kg_request_t *req;
    bool done;
    kg_request_how_t how;
    unsigned replies, others;
    kg_buf_t comm; /* content of a comm_msg */
} sent_t;

static void on_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    sent_t *sent = user;
    assert_null(prepared_take);
    assert_string_equal(msg->parent_id, kg_request_msg_id(sent->req));
    sent->replies += channel != KG_CHANNEL_IOPUB;
    sent->others += channel == KG_CHANNEL_IOPUB;
    if (strcmp(msg->msg_type, "comm_msg") == 0) {
        assert_int_equal(kg_buf_append_slice(&sent->comm, msg->content.raw), 0);
    }
}

static void on_done(void *user, const kg_request_end_t *end)
{
    sent_t *sent = user;
    assert_false(sent->done);
    sent->done = true;
    sent->how = end->how;
}

static const kg_request_sink_t sink = {.on_message = on_message, .on_done = on_done};

static kg_kernel_forward_t message(const char *type)
{
    return (kg_kernel_forward_t){.channel = KG_CHANNEL_SHELL,
                                 .msg_type = type,
                                 .metadata = kg_slice_cstr("{}"),
                                 .content = kg_slice_cstr("{}")};
}

static void send_it(rig_t *rig, const kg_kernel_forward_t *what, sent_t *sent)
{
    kg_err_t err = {0};
    assert_int_equal(kg_kernel_forward(rig->kernel, what, &sink, sent, &sent->req, &err), 0);
}

static void await(rig_t *rig, sent_t *sent, kg_request_how_t how)
{
    RIG_AWAIT(rig, sent->done);
    assert_int_equal(sent->how, how);
    kg_request_release(&sent->req);
    kg_buf_fini(&sent->comm);
}

static int setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    rig_open(rig, "fake", "");
    rig->opts.limits.no_reply_ns = HASTY_MS * KG_NS_PER_MS;
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

static void forward_answered_done(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("complete_request");
    send_it(rig, &what, &sent);
    assert_true(kg_kernel_is_ours(rig->kernel, kg_request_msg_id(sent.req)));
    assert_false(kg_kernel_is_ours(rig->kernel, "another_1"));
    RIG_AWAIT(rig, sent.done);
    assert_int_equal(sent.replies, 1);
    await(rig, &sent, KG_REQUEST_DONE);
}

static void forward_onControl_done(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("is_complete_request");
    what.channel = KG_CHANNEL_CONTROL;
    send_it(rig, &what, &sent);
    await(rig, &sent, KG_REQUEST_DONE);
    assert_int_equal(sent.replies, 1);
}

/* KQ-03 */
static void kq_03_idleWithoutReply_noReply(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("history_request");
    send_it(rig, &what, &sent);
    await(rig, &sent, KG_REQUEST_NO_REPLY);
    assert_int_equal(sent.replies, 0);
    assert_int_equal(sent.others, 2);
}

/* KQ-04 */
static void kq_04_unheard_silent(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    sent_t behind = {0};
    kg_kernel_forward_t what = message("unheard_request");
    send_it(rig, &what, &sent);
    what = message("complete_request");
    send_it(rig, &what, &behind);
    await(rig, &behind, KG_REQUEST_DONE);
    await(rig, &sent, KG_REQUEST_SILENT);
    assert_int_equal(sent.others, 0);
}

/* As IJavascript does where an inspection fails. */
static void zq_03_replyWithoutIdle_noIdle(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("unfinished_request");
    send_it(rig, &what, &sent);
    await(rig, &sent, KG_REQUEST_NO_IDLE);
    assert_int_equal(sent.replies, 1);
    assert_int_equal(sent.others, 1);
}

/* Who was not told that the kernel is busy need not be told that it no longer is. */
static void forward_replyAlone_done(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("bare_request");
    send_it(rig, &what, &sent);
    await(rig, &sent, KG_REQUEST_DONE);
    assert_int_equal(sent.replies, 1);
    assert_int_equal(sent.others, 0);
}

/* The one that waits for its idle holds up no other. */
static void forward_behindAMissingIdle_done(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    sent_t behind = {0};
    kg_kernel_forward_t what = message("unfinished_request");
    send_it(rig, &what, &sent);
    what = message("complete_request");
    send_it(rig, &what, &behind);
    await(rig, &behind, KG_REQUEST_DONE);
    assert_false(sent.done);
    await(rig, &sent, KG_REQUEST_NO_IDLE);
}

static void forward_noReplyMeant_doneAtIdle(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    const kg_slice_t buffers[] = {kg_slice("\0\xff", 2), kg_slice("", 0), kg_slice("abc", 3)};
    kg_kernel_forward_t what = message("comm_msg");
    what.no_reply = true;
    what.buffers = buffers;
    what.buffer_count = KG_ARRAY_LEN(buffers);
    send_it(rig, &what, &sent);
    RIG_AWAIT(rig, sent.done);
    assert_string_equal(rig_text(&sent.comm), "{\"buffers\":3,\"bytes\":5}");
    await(rig, &sent, KG_REQUEST_DONE);
}

/* However long the cell takes. */
static void forward_behindACell_waitsForIt(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("complete_request");
    rig_send(rig, "print begun\nsleep 3000\nprint over", false);
    rig_await_text(rig, &rig->out, "begun");
    send_it(rig, &what, &sent);
    rig_await_done(rig);
    await(rig, &sent, KG_REQUEST_DONE);
}

/* Or what the gateway itself asked. */
static void forward_behindAQuestion_waitsForIt(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("complete_request");
    rig_send_ask(rig, KG_ASK_COMPLETE, "sleep 3000", RIG_PATIENCE_MS);
    send_it(rig, &what, &sent);
    rig_await_done(rig);
    await(rig, &sent, KG_REQUEST_DONE);
}

/* As many as a kernel may have; code is taken beside them. */
static void forward_tooMany_refusedAndCodeRuns(void **state)
{
    rig_t *rig = *state;
    static sent_t sent[KG_KERNEL_REQUESTS_MAX];
    sent_t more = {0};
    kg_err_t err = {0};
    kg_kernel_forward_t what = message("complete_request");
    for (size_t i = 0; i < KG_ARRAY_LEN(sent); i++) {
        send_it(rig, &what, &sent[i]);
    }
    assert_true(kg_kernel_forward(rig->kernel, &what, &sink, &more, &more.req, &err) < 0);
    assert_int_equal(err.code, KG_ERR_QUEUE_FULL);
    rig_run(rig, "print beside");
    rig_await_text(rig, &rig->out, "beside");
    for (size_t i = 0; i < KG_ARRAY_LEN(sent); i++) {
        await(rig, &sent[i], KG_REQUEST_DONE);
    }
}

static void forward_kernelDies_dead(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("unheard_request");
    send_it(rig, &what, &sent);
    assert_int_equal(kg_kernel_kill(rig->kernel), 0);
    await(rig, &sent, KG_REQUEST_DEAD);
    kg_err_t err = {0};
    assert_true(kg_kernel_forward(rig->kernel, &what, &sink, &sent, &sent.req, &err) < 0);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    rig_await_exit(rig);
}

static void forward_releasedAtOnce_nothingComes(void **state)
{
    rig_t *rig = *state;
    sent_t sent = {0};
    kg_kernel_forward_t what = message("complete_request");
    send_it(rig, &what, &sent);
    kg_request_release(&sent.req);
    rig_run(rig, "print again");
    assert_false(sent.done);
    assert_int_equal(sent.replies + sent.others, 0);
}

static void forward_tooManyBuffers_refused(void **state)
{
    rig_t *rig = *state;
    static kg_slice_t buffers[KG_WIRE_FRAMES_MAX];
    sent_t sent = {0};
    kg_err_t err = {0};
    kg_kernel_forward_t what = message("comm_msg");
    what.buffers = buffers;
    what.buffer_count = KG_WIRE_FRAMES_MAX - 5; /* one more than fits */
    assert_true(kg_kernel_forward(rig->kernel, &what, &sink, &sent, &sent.req, &err) < 0);
    assert_int_equal(err.code, KG_ERR_TOO_LARGE);
}

/* Everything on iopub, whosever it is. */
static void tap_seesAllInOrder(void **state)
{
    rig_t *rig = *state;
    kg_buf_clear(&rig->tapped);
    rig_run(rig, "print x\norphan y");
    const char *text = rig_text(&rig->tapped);
    const char *id = kg_request_msg_id(rig->req);
    const char *busy = strstr(text, id);
    assert_non_null(busy);
    const char *stream = strstr(busy, "stream ");
    assert_non_null(stream);
    assert_non_null(strstr(stream, "stream nobody"));
    assert_non_null(strstr(stream, "status "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forward_answered_done, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_onControl_done, setup, teardown),
        cmocka_unit_test_setup_teardown(kq_03_idleWithoutReply_noReply, setup, teardown),
        cmocka_unit_test_setup_teardown(kq_04_unheard_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(zq_03_replyWithoutIdle_noIdle, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_replyAlone_done, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_behindAMissingIdle_done, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_noReplyMeant_doneAtIdle, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_behindACell_waitsForIt, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_behindAQuestion_waitsForIt, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_tooMany_refusedAndCodeRuns, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_kernelDies_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_releasedAtOnce_nothingComes, setup, teardown),
        cmocka_unit_test_setup_teardown(forward_tooManyBuffers_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(tap_seesAllInOrder, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
