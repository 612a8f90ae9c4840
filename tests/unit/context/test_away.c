/* Clients whose connection has gone and who come back. A stock ipykernel in a real (unisolated)
 * sandbox. */
#include <string.h>

#include "tests/unit/context/attach_client.h"

#define ASKS "{\"code\":\"print('got', input())\",\"allow_stdin\":true}"

static void leave(client_t *c, const char *name, uint64_t for_ms, size_t bytes)
{
    const kg_away_opts_t opts = {.name = name, .for_ms = for_ms, .bytes = bytes};
    assert_int_equal(kg_attach_keep(c->attach, &opts), 0);
    kg_attach_leave(&c->attach);
    assert_null(c->attach);
}

/* Over a connection of its own: what it heard before stays. */
static bool come_back(client_t *c, kg_context_t *context, const char *name)
{
    kg_err_t err = {0};
    assert_int_equal(kg_attach_open(context, &client_sink, c, &c->attach, &err), 0);
    return kg_attach_return(&c->attach, name);
}

typedef struct awaited {
    const client_t *client;
    const char *text;
} awaited_t;

static bool has_heard(void *arg)
{
    const awaited_t *a = arg;
    return heard(a->client, a->text);
}

static void await_text(rig_t *rig, const client_t *c, const char *text)
{
    awaited_t a = {c, text};
    rig_until(rig, has_heard, &a, 20000);
}

/* All of it, once, in order, as another hears it who stays. */
static void client_that_comes_back_hears_what_it_missed(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    client_t stays;
    open_client(&c, main_context(sbx));
    open_client(&stays, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell",
        "{\"code\":\"import sys\\nfor i in range(9): print(i, flush=True)\\n"
        "print(1, file=sys.stderr)\\ndisplay(1)\\n1/0\"}");
    say(&c, KG_CHANNEL_SHELL, "execute_request", "never", "{\"code\":\"1\"}");
    leave(&c, "me", 60000, 1 << 20);
    assert_int_equal(kg_context_attached(main_context(sbx)), 1);
    say(&stays, KG_CHANNEL_SHELL, "execute_request", "last", "{\"code\":\"2\"}");
    await_text(rig, &stays, "iopub status last idle\n");
    assert_int_equal(c.replies, 0);
    assert_false(come_back(&c, main_context(sbx), "you"));
    kg_attach_close(&c.attach);
    assert_true(come_back(&c, main_context(sbx), "me"));
    assert_int_equal(kg_context_attached(main_context(sbx)), 2);
    assert_int_equal(rig->core->away_bytes, 0);
    assert_true(heard(&c, "iopub status cell busy\niopub execute_input cell -\n"
                          "iopub stream cell -\niopub stream cell -\niopub display_data cell -\n"
                          "iopub error cell -\n"));
    assert_true(heard(&c, "shell execute_reply cell error\n"));
    assert_true(heard(&c, "shell execute_reply never aborted\n"));
    assert_true(heard(&c, "iopub status last idle\n"));
    assert_int_equal(c.replies, 2);
    assert_int_equal(times(&c, "iopub status cell idle\n"), 1);
    say(&c, KG_CHANNEL_SHELL, "execute_request", "then", "{\"code\":\"3\"}");
    await(rig, &c, 3);
    close_client(&c);
    assert_false(come_back(&c, main_context(sbx), "me")); /* it said that it leaves */
    close_client(&c);
    close_client(&stays);
    drop(rig, sbx);
}

/* The oldest output goes; never what a client waits for. */
static void what_is_kept_is_bounded(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    client_t stays;
    open_client(&stays, main_context(sbx));
    static const char code[] = "{\"code\":\"from IPython.display import HTML\\nfor i in range(20): "
                               "display(HTML('x' * 10000))\\nget_ipython().kernel\"}";
    for (unsigned round = 0; round < 3; round++) { /* all of it, too much, too much of all */
        const char *id = round == 0 ? "all" : round == 1 ? "own" : "total";
        open_client(&c, main_context(sbx));
        say(&c, KG_CHANNEL_SHELL, "execute_request", id, code);
        leave(&c, "me", 60000, round == 1 ? 100000 : 1 << 20);
        rig->core->away_bytes += round == 2 ? KG_AWAY_TOTAL_BYTES - 100000 : 0;
        const char *last = round == 0 ? "one" : round == 1 ? "two" : "three";
        say(&stays, KG_CHANNEL_SHELL, "execute_request", last, "{\"code\":\"2\"}");
        await_text(rig, &stays,
                   round == 0   ? "iopub status one idle\n"
                   : round == 1 ? "iopub status two idle\n"
                                : "iopub status three idle\n");
        size_t held = rig->core->away_bytes;
        assert_true(round != 1 || (held > 50000 && held <= 100000));
        assert_true(round != 2 ||
                    (held > KG_AWAY_TOTAL_BYTES - 50000 && held <= KG_AWAY_TOTAL_BYTES));
        assert_true(come_back(&c, main_context(sbx), "me"));
        rig->core->away_bytes -= round == 2 ? KG_AWAY_TOTAL_BYTES - 100000 : 0;
        assert_int_equal(rig->core->away_bytes, 0);
        unsigned shown = times(&c, "iopub display_data ");
        assert_true(round == 0 ? shown == 20 : shown > 4 && shown < 10);
        assert_int_equal(times(&c, "iopub stream "), round > 0); /* which says so */
        assert_int_equal(c.replies, 1);
        assert_int_equal(times(&c, " busy\n"), 2);
        assert_int_equal(times(&c, " idle\n"), 2);
        close_client(&c);
    }
    close_client(&stays);
    drop(rig, sbx);
}

/* The bound of all is met: who has most kept loses output, and nobody else a reply. */
static void much_of_one_costs_no_other(void **state)
{
    static const char text[100001] = {0};
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t loud;
    client_t quiet;
    KG_AUTO_BUF kg_buf_t content = {0};
    const kg_away_opts_t opts = {.name = "loud", .for_ms = 60000, .bytes = 1 << 20};
    kg_ws_msg_t msg = {.channel = KG_CHANNEL_IOPUB,
                       .parts = {kg_slice_cstr("{\"msg_type\":\"display_data\"}"),
                                 kg_slice_cstr("{}"), kg_slice_cstr("{}")}};
    assert_int_equal(kg_json_quote(&content, text, sizeof(text) - 1), 0);
    open_client(&loud, main_context(sbx));
    open_client(&quiet, main_context(sbx));
    assert_int_equal(kg_attach_keep(loud.attach, &opts), 0);
    leave(&quiet, "quiet", 60000, 1 << 20);
    msg.parts[3] = kg_buf_slice(&content);
    kg_attach_missed(loud.attach, &msg);
    size_t others = KG_AWAY_TOTAL_BYTES - rig->core->away_bytes; /* not an output more */
    rig->core->away_bytes += others;
    assert_true(come_back(&quiet, main_context(sbx), "quiet"));
    say(&quiet, KG_CHANNEL_SHELL, "execute_request", "cell", "{\"code\":\"1\"}");
    leave(&quiet, "quiet", 60000, 1 << 20);
    const kg_run_opts_t run_opts = rig_opts("6 * 7");
    json_decref(rig_end(rig, rig_run(rig, sbx, &run_opts), 20000));
    assert_true(come_back(&quiet, main_context(sbx), "quiet"));
    assert_true(heard(&quiet, "shell execute_reply cell ok\n"));
    assert_int_equal(times(&quiet, "iopub stream "), 0);
    kg_attach_leave(&loud.attach);
    assert_true(come_back(&loud, main_context(sbx), "loud"));
    assert_int_equal(times(&loud, "iopub stream "), 1); /* which says so */
    assert_int_equal(times(&loud, "iopub display_data "), 0);
    rig->core->away_bytes -= others;
    assert_int_equal(rig->core->away_bytes, 0);
    close_client(&loud);
    close_client(&quiet);
    drop(rig, sbx);
}

static bool nobody_is_away(void *arg)
{
    const kg_context_t *context = arg;
    return context->bridge->left == 0;
}

static void those_who_are_away_are_bounded(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    kg_context_t *context = main_context(sbx);
    char name[16];
    client_t c;
    open_client(&c, context);
    leave(&c, "never", 0, 1000); /* it is not waited for */
    assert_int_equal(context->bridge->left, 0);
    for (unsigned i = 0; i <= KG_AWAY_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%u", i);
        open_client(&c, context);
        leave(&c, name, 60000, 1000);
    }
    assert_int_equal(context->bridge->left, KG_AWAY_MAX);
    assert_false(come_back(&c, context, "0"));
    close_client(&c);
    assert_true(come_back(&c, context, "1"));
    leave(&c, "1", 60000, 1000); /* and stays away until the end */
    open_client(&c, context);
    leave(&c, "me", 1, 1000);
    assert_true(context->bridge->left > 0);
    for (unsigned i = 1; i <= KG_AWAY_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%u", i);
        if (come_back(&c, context, name)) {
            leave(&c, name, 1, 1000);
        } else {
            kg_attach_close(&c.attach);
        }
    }
    rig_until(rig, nobody_is_away, context, 5000);
    assert_false(come_back(&c, context, "me"));
    leave(&c, "ends", 60000, 1000);
    drop(rig, sbx); /* with it */
    kg_buf_fini(&c.heard);
}

static bool asks(void *arg)
{
    const kg_context_t *context = arg;
    return context->current && context->current->run &&
           context->current->run->live->input_header.len;
}

/* The question is its own when it is back, and its cell waits for longer than for one that left. */
static void input_waits_for_who_comes_back(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, main_context(sbx));
    say(&c, KG_CHANNEL_SHELL, "execute_request", "cell", ASKS);
    leave(&c, "me", 60000, 1 << 20);
    const kg_run_opts_t opts = rig_opts("6 * 7");
    kg_run_t *run = rig_run(rig, sbx, &opts);
    for (unsigned i = 0; i < 2; i++) {
        rig_until(rig, asks, main_context(sbx), 20000);
        assert_true(come_back(&c, main_context(sbx), "me"));
        assert_int_equal(times(&c, "stdin input_request cell "), 1);
        if (i == 0) {
            leave(&c, "me", 60000, 1 << 20);
        }
    }
    say(&c, KG_CHANNEL_STDIN, "input_reply", "answer", "{\"value\":\"it\"}");
    await(rig, &c, 2);
    assert_true(heard(&c, "shell execute_reply cell ok\n"));
    json_decref(rig_end(rig, run, 20000));
    close_client(&c);
    drop(rig, sbx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_that_comes_back_hears_what_it_missed),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(much_of_one_costs_no_other),
        cmocka_unit_test(those_who_are_away_are_bounded),
        cmocka_unit_test(input_waits_for_who_comes_back),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
