/* Clients at a context's kernel: how many, how much waits for a kernel that is not there yet, and
 * what each hears. A stock ipykernel in a real (unisolated) sandbox. */
#include "gateway/context/attach.h"

#include <string.h>

#include "gateway/context/attach_internal.h"
#include "tests/unit/context/attach_client.h"

static void clients_at_one_context_are_bounded(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    static client_t clients[KG_ATTACH_MAX];
    kg_attach_t *more = NULL;
    kg_err_t err = {0};
    for (size_t i = 0; i < KG_ATTACH_MAX; i++) {
        open_client(&clients[i], main_context(sbx));
    }
    assert_true(kg_attach_open(main_context(sbx), &client_sink, NULL, &more, &err) < 0);
    assert_int_equal(err.code, KG_ERR_QUOTA_EXCEEDED);
    assert_int_equal(kg_context_attached(main_context(sbx)), KG_ATTACH_MAX);
    close_client(&clients[0]);
    open_client(&clients[0], main_context(sbx));
    drop(rig, sbx);
    for (size_t i = 0; i < KG_ATTACH_MAX; i++) {
        assert_true(clients[i].ended && clients[i].deleted);
        assert_true(heard(&clients[i], "iopub status - dead\n"));
        close_client(&clients[i]);
    }
}

/* The kernel is being replaced: what it is asked meanwhile waits, but for so many. */
static void messages_wait_for_a_kernel_up_to_a_bound(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    kg_err_t err = {0};
    open_client(&c, main_context(sbx));
    assert_int_equal(kg_context_reset(main_context(sbx), on_context, rig, &err), 0);
    kg_attach_greet(c.attach);
    assert_true(heard(&c, "iopub status - starting\n"));
    for (unsigned i = 0; i < KG_FORWARDS_WAIT_MAX + 1; i++) {
        say(&c, KG_CHANNEL_SHELL, "is_complete_request", i == 0 ? "first" : "rest",
            "{\"code\":\"1\"}");
    }
    assert_int_equal(c.replies, 1); /* the one too many */
    assert_int_equal(c.refused, 1);
    await(rig, &c, KG_FORWARDS_WAIT_MAX + 1);
    assert_int_equal(c.refused, 1);
    assert_true(heard(&c, "shell is_complete_reply first complete\n"));
    close_client(&c);
    drop(rig, sbx);
}

/* Likewise of bytes, to the last one. */
static void bytes_that_wait_are_bounded(void **state)
{
    static const char comm[] = "{\"comm_id\":\"none\",\"data\":{}}";
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    const kg_bridge_t *bridge = NULL;
    client_t c;
    kg_err_t err = {0};
    open_client(&c, main_context(sbx));
    bridge = main_context(sbx)->bridge;
    assert_int_equal(kg_context_reset(main_context(sbx), on_context, rig, &err), 0);
    say(&c, KG_CHANNEL_SHELL, "comm_msg", "a", comm);
    size_t bare = bridge->waiting_bytes;
    assert_true(bare > sizeof(comm));
    size_t fits = KG_FORWARDS_WAIT_BYTES - 2 * bare;
    KG_AUTO_FREE char *bytes = calloc(1, fits + 1);
    assert_non_null(bytes);
    say_with(&c, KG_CHANNEL_SHELL, "comm_msg", "b", comm, kg_slice(bytes, fits + 1));
    assert_int_equal(bridge->waiting_bytes, bare);
    assert_true(heard(&c, "iopub status b idle\n")); /* nobody waits for a reply */
    say_with(&c, KG_CHANNEL_SHELL, "comm_msg", "c", comm, kg_slice(bytes, fits));
    assert_int_equal(bridge->waiting_bytes, KG_FORWARDS_WAIT_BYTES);
    say(&c, KG_CHANNEL_SHELL, "is_complete_request", "d", "{\"code\":\"1\"}");
    assert_int_equal(c.refused, 1);
    await(rig, &c, 1);
    rig_expect(rig, sbx, "1", "ok", "1"); /* the kernel has them */
    assert_int_equal(bridge->waiting_bytes, 0);
    say(&c, KG_CHANNEL_SHELL, "is_complete_request", "e", "{\"code\":\"1\"}");
    await(rig, &c, 2);
    assert_true(heard(&c, "shell is_complete_reply e complete\n"));
    close_client(&c);
    drop(rig, sbx);
}

#define ASKS "{\"code\":\"print('got', input())\",\"allow_stdin\":true}"

/* However much a client asks while a cell runs, the run behind it finds room. */
static void messages_with_a_kernel_are_bounded(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    const kg_run_opts_t opts = rig_opts("6 * 7");
    client_t c;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", ASKS);
    await(rig, &c, 1); /* the question */
    for (unsigned i = 0; i < KG_FORWARDS_SENT_MAX; i++) {
        say(&c, KG_CHANNEL_SHELL, "is_complete_request", "fits", "{\"code\":\"1\"}");
    }
    assert_int_equal(c.replies, 1);
    for (unsigned i = 0; i < KG_KERNEL_REQUESTS_MAX; i++) {
        say(&c, KG_CHANNEL_SHELL, "is_complete_request", "much", "{\"code\":\"1\"}");
    }
    assert_int_equal(c.refused, KG_KERNEL_REQUESTS_MAX);
    kg_run_t *run = rig_run(rig, sbx, &opts);
    say(&c, KG_CHANNEL_STDIN, "input_reply", "answer", "{\"value\":\"it\"}");
    json_t *end = rig_end(rig, run, 20000);
    assert_string_equal(str_of(end, "status"), "ok");
    json_decref(end);
    await(rig, &c, 2 + KG_FORWARDS_SENT_MAX + KG_KERNEL_REQUESTS_MAX);
    assert_int_equal(c.refused, KG_KERNEL_REQUESTS_MAX);
    close_client(&c);
    drop(rig, sbx);
}

/* So much was noted since that the cell's own header is forgotten. */
static void running_cell_keeps_its_header(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    char id[16];
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", ASKS);
    await(rig, &c, 1);
    for (unsigned i = 0; i < KG_PARENTS_MAX; i++) {
        (void)snprintf(id, sizeof(id), "other%u", i);
        kg_bridge_note(main_context(sbx), id, kg_slice_cstr("{}"), true);
    }
    say(&c, KG_CHANNEL_STDIN, "input_reply", "answer", "{\"value\":\"it\"}");
    await(rig, &c, 2);
    assert_true(heard(&c, "shell execute_reply cell ok\n"));
    assert_true(heard(&c, "iopub stream cell -\n"));
    close_client(&c);
    drop(rig, sbx);
}

static bool inspected_aloud(void *arg)
{
    return heard(arg, "iopub stream look -\n");
}

/* What a message of a client's makes the kernel print, and be it long after it was given up, is no
 * run's: the log of the one that goes stays clean. */
static void output_of_a_message_is_no_runs(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    const kg_run_opts_t opts = rig_opts("'ne' + 'xt'");
    client_t c;
    open_client(&c, main_context(sbx));
    rig_expect(rig, sbx,
               "class Loud:\n"
               "    def __repr__(self):\n"
               "        print('aloud')\n"
               "        return ''\n"
               "loud = Loud()",
               "ok", NULL);
    say(&c, KG_CHANNEL_SHELL, "inspect_request", "look", "{\"code\":\"loud\",\"cursor_pos\":4}");
    kg_bridge_forget(main_context(sbx)->bridge);
    kg_run_t *run = rig_run(rig, sbx, &opts);
    rig_until(rig, inspected_aloud, &c, 20000);
    rig_until_has(rig, run, "next", 20000);
    assert_false(rig_has(run, "aloud"));
    json_decref(rig_end(rig, run, 20000));
    close_client(&c);
    drop(rig, sbx);
}

/* Nobody can answer its cell any more, and an agent waits behind it. */
static void input_of_a_client_that_left_ends(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell",
        "{\"code\":\"try:\\n    a = input()\\nexcept EOFError:\\n    a = 'end'\","
        "\"allow_stdin\":true}");
    await(rig, &c, 1);
    close_client(&c);
    rig_expect(rig, sbx, "a", "ok", "'end'");
    /* It has left before its cell asks. */
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "other",
        "{\"code\":\"try:\\n    b = input()\\nexcept EOFError:\\n    b = 'end'\","
        "\"allow_stdin\":true}");
    close_client(&c);
    rig_expect(rig, sbx, "b", "ok", "'end'");
    drop(rig, sbx);
}

/* It has lost its connection and sends its cell again: the question is put to it again. */
static void question_is_put_to_who_asks_again(void **state)
{
    static const char asks[] = "{\"code\":\"a = input('? ')\",\"allow_stdin\":true}";
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", asks);
    await(rig, &c, 1);
    close_client(&c);
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", asks);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", asks); /* it has it now */
    assert_int_equal(times(&c, "stdin input_request cell -\n"), 1);
    say(&c, KG_CHANNEL_STDIN, "input_reply", "answers", "{\"value\":\"it\"}");
    await(rig, &c, 2);
    assert_true(heard(&c, "shell execute_reply cell ok\n"));
    rig_expect(rig, sbx, "a", "ok", "'it'");
    close_client(&c);
    drop(rig, sbx);
}

/* The daemon stops while messages wait: they go with it (the rig's end, and a build that looks for
 * leaks). */
static void end_with_messages_that_wait(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    kg_err_t err = {0};
    open_client(&c, main_context(sbx));
    assert_int_equal(kg_context_reset(main_context(sbx), on_context, rig, &err), 0);
    say(&c, KG_CHANNEL_SHELL, "is_complete_request", "waits", "{\"code\":\"1\"}");
    assert_int_equal(main_context(sbx)->bridge->waiting, 1);
    close_client(&c);
}

/* Its queue is full: the client is told, as is whoever looks at the notebook. */
static void run_that_is_refused_is_answered(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    const unsigned queue_max = 100;
    char id[16];
    client_t c;
    kg_core_config_t *config = &rig->core->config;
    unsigned usual = config->client_queue_max;
    size_t usual_bytes = config->client_queue_bytes;
    config->client_queue_max = queue_max;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "runs",
        "{\"code\":\"import time; time.sleep(60)\"}");
    for (unsigned i = 0; i < queue_max; i++) {
        (void)snprintf(id, sizeof(id), "waits%u", i);
        say(&c, KG_CHANNEL_SHELL, "execute_request", id, "{\"code\":\"1\"}");
    }
    assert_int_equal(c.replies, 0);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "much", "{\"code\":\"1\"}");
    assert_int_equal(c.replies, 1);
    assert_true(heard(&c, "shell execute_reply much error\n"));
    assert_true(
        heard(&c, "iopub status much busy\niopub error much -\nshell execute_reply much error\n"));
    /* Of bytes, likewise. */
    config->client_queue_max = usual;
    size_t before = main_context(sbx)->queued_bytes;
    say(&c, KG_CHANNEL_SHELL, "execute_request", "aa", "{\"code\":\"12\"}");
    size_t each = main_context(sbx)->queued_bytes - before;
    config->client_queue_bytes = main_context(sbx)->queued_bytes + each;
    say(&c, KG_CHANNEL_SHELL, "execute_request", "bb", "{\"code\":\"123\"}");
    assert_true(heard(&c, "shell execute_reply bb error\n"));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cc",
        "{\"code\":\"12\",\"user_expressions\":{\"a\":\"1\"}}");
    assert_true(heard(&c, "shell execute_reply cc error\n"));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "dd", "{\"code\":\"12\"}");
    assert_int_equal(c.replies, 3);
    config->client_queue_bytes = usual_bytes;
    /* An agent's run is not kept out by them. */
    const kg_run_opts_t opts = rig_opts("6 * 7");
    kg_run_t *run = rig_run(rig, sbx, &opts);
    /* An idle of ours does not hide that a cell runs. */
    assert_true(heard(&c, "iopub status much idle\niopub status runs busy\n"));
    /* The kernel is killed with all that waits. */
    drop(rig, sbx);
    json_decref(rig_end(rig, run, 5000));
    assert_int_equal(c.replies, queue_max + 6);
    assert_true(heard(&c, "shell execute_reply waits0 aborted\n"));
    assert_true(heard(&c, "shell execute_reply runs error\n"));
    close_client(&c);
}

/* All at a kernel see what sessions and msg_ids the others have. */
static void request_of_another_is_not_taken_over(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    client_t other;
    open_client_of(&c, main_context(sbx), "key-1");
    open_client_of(&other, main_context(sbx), "key-2");
    say(&c, KG_CHANNEL_SHELL, "execute_request", "asks",
        "{\"code\":\"x = input()\",\"allow_stdin\":true}");
    say(&other, KG_CHANNEL_SHELL, "execute_request", "asks", "{\"code\":\"y = 1\"}");
    say(&other, KG_CHANNEL_SHELL, "execute_request", "next", "{\"code\":\"y = 2\"}");
    await(rig, &c, 1);
    assert_true(heard(&c, "stdin input_request asks -\n"));
    say(&c, KG_CHANNEL_STDIN, "input_reply", "answers", "{\"value\":\"hers\"}");
    await(rig, &c, 2);
    await(rig, &other, 2);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "next", "{\"code\":\"y = 3\"}");
    await(rig, &c, 3);
    assert_false(heard(&other, "stdin "));
    rig_expect(rig, sbx, "x, y", "ok", "('hers', 3)");
    close_client(&c);
    close_client(&other);
    drop(rig, sbx);
}

static bool nothing_is_asked(void *arg)
{
    const kg_context_t *context = arg;
    return !context->bridge->forwards;
}

/* A client that lost its connection cannot know what has arrived. */
static void request_that_is_sent_again_is_carried_out_once(void **state)
{
    static const char code[] = "{\"code\":\"n = globals().get('n', 0) + 1\"}";
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_context_t *context = main_context(sbx);
    client_t c;
    client_t again;
    open_client(&c, context);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "same", code);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "same", code);
    await(rig, &c, 1);
    rig_expect(rig, sbx, "n", "ok", "1");
    say(&c, KG_CHANNEL_SHELL, "execute_request", "same", code); /* it has its answer */
    say(&c, KG_CHANNEL_SHELL, "execute_request", "bad", "{\"code\":\"1/0\"}");
    await(rig, &c, 2);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "waits",
        "{\"code\":\"import time; time.sleep(0.3)\"}");
    close_client(&c);
    open_client(&again, context);
    say(&again, KG_CHANNEL_SHELL, "execute_request", "waits", code); /* while it is under way */
    await(rig, &again, 1);
    assert_true(heard(&again, "shell execute_reply waits ok\n"));
    say(&again, KG_CHANNEL_SHELL, "execute_request", "same", code);
    say(&again, KG_CHANNEL_SHELL, "execute_request", "bad", code);
    say(&again, KG_CHANNEL_SHELL, "execute_request", "same", code); /* it has it now */
    assert_int_equal(again.replies, 3);
    assert_int_equal(times(&again, "shell execute_reply same ok\n"), 1);
    assert_int_equal(times(&again, "shell execute_reply bad error\n"), 1);
    rig_expect(rig, sbx, "n", "ok", "1");
    /* So many are known. */
    for (unsigned i = 0; i < KG_SEEN_MAX; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "%u", i);
        say(&again, KG_CHANNEL_SHELL, "comm_msg", id, "{\"comm_id\":\"x\",\"data\":{}}");
        rig_until(rig, nothing_is_asked, context, 5000);
    }
    say(&again, KG_CHANNEL_SHELL, "execute_request", "same", code);
    await(rig, &again, 4);
    rig_expect(rig, sbx, "n", "ok", "2");
    close_client(&again);
    drop(rig, sbx);
}

static void shutdown_is_the_callers(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_CONTROL, "shutdown_request", "r", "{\"restart\":true}");
    assert_true(heard(&c, "control shutdown_reply r error\n") && !c.deleted);
    say(&c, KG_CHANNEL_CONTROL, "shutdown_request", "s", "{\"restart\":false}");
    assert_true(heard(&c, "control shutdown_reply s ok\n") && c.deleted);
    close_client(&c);
    rig_expect(rig, sbx, "1", "ok", "1");
    drop(rig, sbx);
}

/* It left before its answers came. */
static void client_that_left_hears_nothing(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t gone;
    client_t stays;
    open_client(&gone, main_context(sbx));
    open_client(&stays, main_context(sbx));
    say(&gone, KG_CHANNEL_SHELL, "execute_request", "x", "{\"code\":\"kept = 5\"}");
    say(&gone, KG_CHANNEL_SHELL, "complete_request", "y", "{\"code\":\"kep\"}");
    close_client(&gone);
    say(&stays, KG_CHANNEL_SHELL, "is_complete_request", "z", "{\"code\":\"1\"}");
    await(rig, &stays, 1);
    rig_expect(rig, sbx, "kept", "ok", "5");
    assert_true(heard(&stays, "iopub status x idle\n"));
    assert_int_equal(stays.replies, 1);
    close_client(&stays);
    drop(rig, sbx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_at_one_context_are_bounded),
        cmocka_unit_test(messages_wait_for_a_kernel_up_to_a_bound),
        cmocka_unit_test(bytes_that_wait_are_bounded),
        cmocka_unit_test(messages_with_a_kernel_are_bounded),
        cmocka_unit_test(running_cell_keeps_its_header),
        cmocka_unit_test(output_of_a_message_is_no_runs),
        cmocka_unit_test(run_that_is_refused_is_answered),
        cmocka_unit_test(request_that_is_sent_again_is_carried_out_once),
        cmocka_unit_test(request_of_another_is_not_taken_over),
        cmocka_unit_test(shutdown_is_the_callers),
        cmocka_unit_test(client_that_left_hears_nothing),
        cmocka_unit_test(input_of_a_client_that_left_ends),
        cmocka_unit_test(question_is_put_to_who_asks_again),
        cmocka_unit_test(end_with_messages_that_wait),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
