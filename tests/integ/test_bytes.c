/* What a kernel may put on the wire: nonsense, forgeries, and too much of it. */
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

static void frames_malformed_countedAndDropped(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "garbage\nno_delimiter\nshort\nprint ok");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->out), "ok");
    kg_kernel_stats_t stats;
    kg_kernel_stats(rig->kernel, &stats);
    assert_int_equal(stats.malformed, 5);
    assert_int_equal(stats.bad_signature, 0);
}

static void frames_forged_countedAndDropped(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "bad_signature\nprint ok\nbad_signature");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_string_equal(rig_text(&rig->out), "ok");
    kg_kernel_stats_t stats;
    kg_kernel_stats(rig->kernel, &stats);
    assert_int_equal(stats.bad_signature, 2);
}

/* Its content is prepared while its signature is still looked at. */
static void message_bigAndForged_dropped(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "bad_signature 8000000\nbig 5000000\nbad_signature 1000000\nprint ok");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->text_bytes, 5000002);
    kg_kernel_stats_t stats;
    kg_kernel_stats(rig->kernel, &stats);
    assert_int_equal(stats.bad_signature, 2);
    assert_int_equal(stats.big_messages, 3);
}

/* What is done before the signature is known belongs to a place, which goes in any case. */
static void message_huge_workedOnAhead(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "big 1000000");
    assert_int_equal(rig->places, 0); /* not worth it */
    rig_run(rig, "big 8000000\nprint ok");
    assert_int_equal(rig->text_bytes, 8000002);
    assert_int_equal(rig->places, 1);
    assert_int_equal(rig->ahead, 1);
    assert_int_equal(rig->streams_ahead, 1);
    assert_int_equal(rig->places_freed, 1);
    rig_run(rig, "bad_signature 8000000\nprint ok");
    assert_int_equal(rig->text_bytes, 2);
    assert_int_equal(rig->places, 1);
    assert_int_equal(rig->ahead, 1);
    assert_int_equal(rig->streams_ahead, 0); /* nobody saw it */
    assert_int_equal(rig->places_freed, 1);
    rig_run(rig, "bad_signature 8000000\nbig 8000000\nbig 8000000\nprint ok");
    assert_int_equal(rig->text_bytes, 16000002);
    assert_true(rig->places >= 1 && rig->places == rig->ahead);
    assert_int_equal(rig->places_freed, rig->places);
}

static void content_odd_deliveredOrDropped(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "invalid_utf8");
    assert_string_equal(rig_text(&rig->out), "a\xef\xbf\xbd\xef\xbf\xbdz");
    rig_run(rig, "unknown_type\nprint ok");
    assert_int_equal(rig->unknown, 1);
    assert_string_equal(rig_text(&rig->out), "ok");
    rig_run(rig, "huge_header 100000\nprint ok");
    assert_string_equal(rig_text(&rig->out), "ok");
    rig_run(rig, "deep 100\nprint ok");
    assert_int_equal(rig->unknown, 1);
    rig_run(rig, "deep 100000\nprint ok");
    assert_int_equal(rig->unknown, 1);
    assert_string_equal(rig_text(&rig->out), "ok");
    kg_kernel_stats_t stats;
    kg_kernel_stats(rig->kernel, &stats);
    assert_int_equal(stats.malformed, 1); /* the huge header */
}

static void flood_small_nothingLost(void **state)
{
    rig_t *rig = *state;
    uint64_t begin = kg_now_ns();
    rig_run(rig, "flood 100000");
    double seconds = (double)(kg_now_ns() - begin) / 1e9;
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->streams, 100001);
    printf("flood: %.0f messages/s through the room; kernel %s", 100000 / seconds,
           rig_text(&rig->err_out));
}

static void big_message_onTheWorkerInOrder(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "print before\nbig 3000000\nprint after\nbig 2000000\nresult end");
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->streams, 4);
    assert_int_equal(rig->text_bytes, 5000000 + 6 + 5);
    assert_string_equal(rig_text(&rig->out), "beforeafter");
    assert_string_equal(rig_text(&rig->result), "end");
    assert_int_equal(rig->messages, rig->prepared);
    kg_kernel_stats_t stats;
    kg_kernel_stats(rig->kernel, &stats);
    assert_int_equal(stats.big_messages, 2);
    assert_int_equal(stats.queued_bytes, 0);
}

static void big_100MB_loopStaysQuick(void **state)
{
    (void)state;
    rig_t whole;
    rig_t *rig = &whole;
    rig_open(rig, "fake", "");
    rig_ready(rig);
    rig_send(rig, "big 104857600", false);
    uint64_t begin = kg_now_ns();
    uint64_t worst = 0;
    while (!rig->done && kg_now_ns() - begin < RIG_PATIENCE_MS * KG_NS_PER_MS) {
        uint64_t turn = kg_now_ns();
        rig_turn(rig, 5);
        turn = kg_now_ns() - turn;
        worst = turn > worst ? turn : worst;
    }
    assert_int_equal(rig->end.how, KG_REQUEST_DONE);
    assert_int_equal(rig->text_bytes, 104857600);
    printf("100 MB in one message: %.0f ms, longest turn of 5 ms took %.1f ms\n",
           (double)(kg_now_ns() - begin) / 1e6, (double)worst / 1e6);
    rig_close(rig);
}

static void await_big(rig_t *rig)
{
    kg_kernel_stats_t stats;
    RIG_AWAIT(rig, (kg_kernel_stats(rig->kernel, &stats), stats.big_messages == 1));
}

static void big_releasedBeforeDelivery_freed(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "big 30000000\nprint x", false);
    await_big(rig);
    kg_request_release(&rig->req);
    rig_await_idle(rig);
    RIG_AWAIT(rig, rig->arg_freed == 1);
    assert_int_equal(rig->streams, 0);
}

static void big_closedMeanwhile_freed(void **state)
{
    rig_t *rig = *state;
    rig_send(rig, "big 30000000\nprint x", false);
    await_big(rig);
    rig_close_kernel(rig, KG_KERNEL_CLOSE_NOW);
    assert_int_equal(rig->end.how, KG_REQUEST_CLOSED);
}

static void close_insideAMessage_safe(rig_t *rig)
{
    kg_request_release(&rig->req);
    kg_kernel_close(&rig->kernel, KG_KERNEL_CLOSE_NOW, NULL, NULL);
}

static void callback_closesAndReleases_safe(void **state)
{
    rig_t *rig = *state;
    rig->on_stream = close_insideAMessage_safe;
    rig_send(rig, "print a\nprint b\nflood 1000", false);
    RIG_AWAIT(rig, rig->streams == 1);
    rig_turn(rig, 300); /* nothing more comes */
    assert_int_equal(rig->streams, 1);
    assert_null(rig->kernel);
}

static void pipes_always_drained(void **state)
{
    rig_t *rig = *state;
    rig_run(rig, "fd1 out\nfd2 err");
    rig_await_text(rig, &rig->fd1, "out");
    rig_await_text(rig, &rig->fd2, "err");
    kg_slice_t tail = kg_kernel_stderr_tail(rig->kernel);
    assert_true(kg_slice_eq_cstr(tail, "err"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(frames_malformed_countedAndDropped), CASE(frames_forged_countedAndDropped),
        CASE(message_bigAndForged_dropped),       CASE(message_huge_workedOnAhead),
        CASE(content_odd_deliveredOrDropped),     CASE(flood_small_nothingLost),
        CASE(big_message_onTheWorkerInOrder),     cmocka_unit_test(big_100MB_loopStaysQuick),
        CASE(big_releasedBeforeDelivery_freed),   CASE(big_closedMeanwhile_freed),
        CASE(callback_closesAndReleases_safe),    CASE(pipes_always_drained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
