#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/client_msg.h"
#include "proto/request.h"

#define HEADER                                                                                     \
    "{\"msg_id\":\"m1\",\"msg_type\":\"execute_request\",\"session\":\"s1\",\"username\":\"u\","   \
    "\"version\":\"5.3\",\"date\":\"2026-01-02T03:04:05Z\"}"

static const kg_client_limits_t limits = {.code_max = 16, .content_max = 4096};

static kg_ws_msg_t frame_of(kg_channel_t channel, const char *header, const char *content)
{
    return (kg_ws_msg_t){
        .channel = channel,
        .parts = {kg_slice_cstr(header), kg_slice_cstr("{}"), kg_slice_cstr("{}"),
                  kg_slice_cstr(content)},
    };
}

/* Opened and checked; a header is made for the type. */
static int read_as(kg_channel_t channel,
                   const char *type,
                   const char *content,
                   const kg_client_limits_t *l,
                   kg_client_msg_t *msg,
                   kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    assert_int_equal(kg_buf_printf(&header, "{\"msg_id\":\"m1\",\"msg_type\":\"%s\"}", type), 0);
    kg_ws_msg_t frame = frame_of(channel, header.data, content);
    assert_int_equal(kg_client_msg_open(&frame, msg, err), 0);
    int rc = kg_client_msg_check(&frame, l, msg, err);
    assert_true((rc == 0) == (err->code == KG_ERR_NONE));
    return rc;
}

static int open_header(const char *header)
{
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_err_t err = {0};
    kg_ws_msg_t frame = frame_of(KG_CHANNEL_SHELL, header, "{}");
    int rc = kg_client_msg_open(&frame, &msg, &err);
    assert_int_equal(err.code, rc == 0 ? KG_ERR_NONE : KG_ERR_INVALID_FRAME);
    return rc;
}

static void header_read_and_kept(void **state)
{
    (void)state;
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_ws_msg_t frame = frame_of(KG_CHANNEL_CONTROL,
                                 "{ \"msg_id\":\"a\\u0062\",\"msg_type\":\"t\",\"session\":\"s\","
                                 "\"more\":\"\\ud800\" }",
                                 "{}");
    frame.parts[1] = kg_slice_cstr("{\"msg_id\":\"of it\"}");
    assert_int_equal(kg_client_msg_open(&frame, &msg, NULL), 0);
    assert_int_equal(msg.channel, KG_CHANNEL_CONTROL);
    assert_string_equal(msg.msg_id, "ab");
    assert_string_equal(msg.msg_type, "t");
    assert_string_equal(msg.session, "s");
    assert_string_equal(msg.parent_id, "of it");
    assert_string_equal(msg.header.data, "{\"msg_id\":\"ab\",\"msg_type\":\"t\",\"session\":\"s\","
                                         "\"more\":\"\xEF\xBF\xBD\"}");
}

static void header_without_ids_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{",
        "{}",
        "{\"msg_id\":\"1\"}",
        "{\"msg_type\":\"x\"}",
        "{\"msg_id\":\"\",\"msg_type\":\"x\"}",
        "{\"msg_id\":null,\"msg_type\":\"x\"}",
        "{\"msg_id\":1,\"msg_type\":\"x\"}",
        "{\"msg_id\":\"1\",\"msg_type\":[]}",
        "{\"msg_id\":\"1\\u0000\",\"msg_type\":\"x\"}",
        "{\"msg_id\":\"1\",\"msg_type\":\"x\",\"session\":2}",
        "{\"msg_id\":\"1\",\"msg_type\":\"x\",\"username\":{}}",
        "{\"msg_id\":\"1\",\"msg_type\":\"x\",\"version\":5.3}",
        "{\"msg_id\":\"1\",\"msg_type\":\"x\",\"date\":{}}",
        "{\"msg_id\":\"1\",\"msg_type\":\"x\",\"subshell_id\":1}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(open_header(bad[i]), -EBADMSG);
    }
    assert_int_equal(open_header("{\"msg_id\":\"1\",\"msg_type\":\"x\"}"), 0);
    assert_int_equal(open_header("{\"msg_id\":\"1\",\"msg_type\":\"x\",\"subshell_id\":null}"), 0);
    /* as jupyter_server's GatewayKernelClient has it */
    assert_int_equal(open_header("{\"msg_id\":\"1\",\"msg_type\":\"x\",\"date\":1796086192.43}"),
                     0);
}

/* Ids, types and whole headers at their caps and past them. */
static void header_caps(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    char id[KG_MSG_ID_MAX + 1];
    for (size_t len = KG_MSG_ID_MAX - 1; len <= KG_MSG_ID_MAX; len++) {
        memset(id, 'x', len);
        id[len] = '\0';
        kg_buf_clear(&text);
        assert_int_equal(kg_buf_printf(&text, "{\"msg_id\":\"%s\",\"msg_type\":\"x\"}", id), 0);
        assert_int_equal(open_header(text.data), len < KG_MSG_ID_MAX ? 0 : -EBADMSG);
        size_t type = len - (KG_MSG_ID_MAX - 64);
        kg_buf_clear(&text);
        assert_int_equal(
            kg_buf_printf(&text, "{\"msg_id\":\"1\",\"msg_type\":\"%.*s\"}", (int)type, id), 0);
        assert_int_equal(open_header(text.data), type < 64 ? 0 : -EBADMSG);
    }
    kg_buf_clear(&text);
    assert_int_equal(kg_buf_append_cstr(&text, "{\"msg_id\":\"1\",\"msg_type\":\"x\""), 0);
    while (text.len < KG_CLIENT_HEADER_MAX - 1) {
        assert_int_equal(kg_buf_append_char(&text, ' '), 0);
    }
    assert_int_equal(kg_buf_append_char(&text, '}'), 0);
    assert_int_equal(open_header(text.data), 0);
    text.data[text.len - 1] = ' ';
    assert_int_equal(kg_buf_append_char(&text, '}'), 0);
    assert_int_equal(open_header(text.data), -E2BIG);
}

/* KQ-02: with only `code`, which ends IRkernel and leaves ipykernel without a reply. */
static void execute_completed(void **state)
{
    (void)state;
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_err_t err = {0};
    assert_int_equal(
        read_as(KG_CHANNEL_SHELL, "execute_request", "{\"code\":\"1+1\"}", &limits, &msg, &err), 0);
    assert_int_equal(msg.kind, KG_CLIENT_EXECUTE);
    assert_string_equal(msg.text.data, "1+1");
    assert_false(msg.execute.silent);
    assert_true(msg.execute.store_history);
    assert_false(msg.execute.allow_stdin);
    assert_true(msg.execute.stop_on_error);
    assert_string_equal(msg.execute.user_expressions.data, "{}");
    assert_string_equal(msg.metadata.data, "{}");
    assert_int_equal(msg.content.len, 0);
}

static void execute_as_asked(void **state)
{
    (void)state;
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    kg_err_t err = {0};
    assert_int_equal(
        read_as(KG_CHANNEL_SHELL, "execute_request",
                "{\"code\":\"\\ud800\",\"silent\":true,\"store_history\":null,\"allow_stdin\":true,"
                "\"stop_on_error\":false,\"user_expressions\":{ \"a\":\"b\" },\"more\":[]}",
                &limits, &msg, &err),
        0);
    assert_string_equal(msg.text.data, "\xEF\xBF\xBD");
    assert_true(msg.execute.silent);
    assert_false(msg.execute.store_history);
    assert_true(msg.execute.allow_stdin);
    assert_false(msg.execute.stop_on_error);
    assert_string_equal(msg.execute.user_expressions.data, "{\"a\":\"b\"}");
}

/* Completed content, and what is dropped or cut to its range. */
static void content_completed(void **state)
{
    (void)state;
    static const struct {
        kg_channel_t channel;
        const char *type, *in, *out;
    } rows[] = {
        {KG_CHANNEL_SHELL, "kernel_info_request", "{\"x\":1}", "{}"},
        {KG_CHANNEL_CONTROL, "kernel_info_request", "{}", "{}"},
        {KG_CHANNEL_SHELL, "complete_request", "{}", "{\"code\":\"\",\"cursor_pos\":0}"},
        {KG_CHANNEL_SHELL, "complete_request", "{\"code\":\"\xC3\xA9x\"}",
         "{\"code\":\"\xC3\xA9x\",\"cursor_pos\":2}"},
        {KG_CHANNEL_SHELL, "complete_request", "{\"cursor_pos\":9,\"code\":\"ab\"}",
         "{\"code\":\"ab\",\"cursor_pos\":2}"},
        {KG_CHANNEL_SHELL, "complete_request", "{\"cursor_pos\":-1,\"code\":\"ab\"}",
         "{\"code\":\"ab\",\"cursor_pos\":0}"},
        {KG_CHANNEL_SHELL, "complete_request", "{\"cursor_pos\":1,\"code\":\"ab\"}",
         "{\"code\":\"ab\",\"cursor_pos\":1}"},
        {KG_CHANNEL_SHELL, "inspect_request", "{}",
         "{\"code\":\"\",\"cursor_pos\":0,\"detail_level\":0}"},
        {KG_CHANNEL_SHELL, "inspect_request", "{\"detail_level\":99999999999999999999}",
         "{\"code\":\"\",\"cursor_pos\":0,\"detail_level\":1}"},
        {KG_CHANNEL_SHELL, "is_complete_request", "{\"code\":null}", "{\"code\":\"\"}"},
        {KG_CHANNEL_SHELL, "history_request", "{}",
         "{\"output\":false,\"raw\":true,\"hist_access_type\":\"tail\",\"session\":0,\"start\":0,"
         "\"stop\":null,\"n\":10,\"pattern\":\"*\",\"unique\":false}"},
        {KG_CHANNEL_SHELL, "history_request",
         "{\"n\":10001,\"hist_access_type\":\"search\",\"stop\":7,\"unique\":true}",
         "{\"output\":false,\"raw\":true,\"hist_access_type\":\"search\",\"session\":0,"
         "\"start\":0,\"stop\":7,\"n\":10000,\"pattern\":\"*\",\"unique\":true}"},
        {KG_CHANNEL_SHELL, "comm_info_request", "{}", "{}"},
        {KG_CHANNEL_SHELL, "comm_info_request", "{\"target_name\":\"t\"}",
         "{\"target_name\":\"t\"}"},
        {KG_CHANNEL_SHELL, "comm_open", "{\"target_name\":\"t\",\"comm_id\":\"c\"}",
         "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}"},
        {KG_CHANNEL_SHELL, "comm_msg", "{\"data\":{\"v\": NaN},\"comm_id\":\"c\"}",
         "{\"comm_id\":\"c\",\"data\":{\"v\":null}}"},
        {KG_CHANNEL_SHELL, "comm_close", "{\"comm_id\":\"c\"}", "{\"comm_id\":\"c\",\"data\":{}}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        kg_err_t err = {0};
        assert_int_equal(read_as(rows[i].channel, rows[i].type, rows[i].in, &limits, &msg, &err),
                         0);
        assert_string_equal(msg.content.data, rows[i].out);
    }
}

/* What would leave a kernel silent or ended, and what no kernel is asked. */
static void wrong_content_refused(void **state)
{
    (void)state;
    static const struct {
        kg_channel_t channel;
        int rc;
        const char *type, *content;
    } rows[] = {
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{\"code\":null}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{\"code\":5}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{\"code\":\"\\u0000\"}"},
        {KG_CHANNEL_SHELL, -E2BIG, "execute_request", "{\"code\":\"12345678901234567\"}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{\"code\":\"1\",\"silent\":1}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{\"code\":\"1\",\"user_expressions\":[]}"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "[]"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", "{"},
        {KG_CHANNEL_SHELL, -EINVAL, "execute_request", ""},
        {KG_CHANNEL_CONTROL, -ENOTSUP, "execute_request", "{\"code\":\"1\"}"},
        {KG_CHANNEL_IOPUB, -ENOTSUP, "execute_request", "{\"code\":\"1\"}"}, /* WS-01 */
        {KG_CHANNEL_SHELL, -EINVAL, "complete_request", "{\"code\":[]}"},
        {KG_CHANNEL_SHELL, -EINVAL, "complete_request", "{\"code\":\"\\u0000\"}"},
        {KG_CHANNEL_SHELL, -E2BIG, "complete_request", "{\"code\":\"12345678901234567\"}"},
        {KG_CHANNEL_SHELL, -EINVAL, "complete_request", "{\"cursor_pos\":\"1\"}"},
        {KG_CHANNEL_SHELL, -EINVAL, "complete_request", "{\"cursor_pos\":0.5}"},
        {KG_CHANNEL_SHELL, -EINVAL, "history_request", "{\"raw\":1}"},
        {KG_CHANNEL_SHELL, -EINVAL, "history_request", "{\"pattern\":1}"},
        {KG_CHANNEL_SHELL, -EINVAL, "comm_open", "{\"comm_id\":\"c\"}"},
        {KG_CHANNEL_SHELL, -EINVAL, "comm_open", "{\"target_name\":\"t\"}"},
        {KG_CHANNEL_SHELL, -EINVAL, "comm_msg", "{\"comm_id\":\"c\",\"data\":[]}"},
        {KG_CHANNEL_STDIN, -EINVAL, "input_reply", "{\"value\":1}"},
        {KG_CHANNEL_SHELL, -ENOTSUP, "input_reply", "{\"value\":\"1\"}"},
        {KG_CHANNEL_CONTROL, -EINVAL, "shutdown_request", "{\"restart\":\"no\"}"},
        {KG_CHANNEL_SHELL, -ENOTSUP, "execute_reply", "{}"},
        {KG_CHANNEL_SHELL, -ENOTSUP, "connect_request", "{}"},
        {KG_CHANNEL_SHELL, -ENOTSUP, "no_such_request", "{}"},
        {KG_CHANNEL_CONTROL, -ENOTSUP, "debug_request", "{\"command\":\"x\"}"},
        {KG_CHANNEL_CONTROL, -ENOTSUP, "create_subshell_request", "{}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        kg_err_t err = {0};
        assert_int_equal(
            read_as(rows[i].channel, rows[i].type, rows[i].content, &limits, &msg, &err),
            rows[i].rc);
        assert_non_null(strstr(err.message, rows[i].type));
    }
}

static void features_let_through(void **state)
{
    (void)state;
    kg_client_limits_t able = limits;
    able.features = KG_CLIENT_DEBUGGER | KG_CLIENT_SUBSHELLS;
    static const char *const rows[][3] = {
        {"debug_request", "{\"command\":\"attach\"}",
         "{\"seq\":0,\"type\":\"request\",\"command\":\"attach\",\"arguments\":{}}"},
        {"create_subshell_request", "{}", "{}"},
        {"delete_subshell_request", "{\"subshell_id\":\"1\"}", "{\"subshell_id\":\"1\"}"},
        {"list_subshell_request", "{}", "{}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        kg_err_t err = {0};
        assert_int_equal(read_as(KG_CHANNEL_CONTROL, rows[i][0], rows[i][1], &able, &msg, &err), 0);
        assert_string_equal(msg.content.data, rows[i][2]);
    }
}

/* On shell by the header; that of a message on control says nothing, what is to be ended does. */
static void subshell_named(void **state)
{
    (void)state;
    static const char header[] =
        "{\"msg_id\":\"1\",\"msg_type\":\"delete_subshell_request\",\"subshell_id\":\"h\"}";
    static const char content[] = "{\"subshell_id\":\"c\"}";
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t shell = {0};
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t control = {0};
    kg_client_limits_t able = limits;
    able.features = KG_CLIENT_SUBSHELLS;
    kg_ws_msg_t frame = frame_of(KG_CHANNEL_SHELL, header, content);
    assert_int_equal(kg_client_msg_open(&frame, &shell, NULL), 0);
    assert_string_equal(shell.subshell_id, "h");
    frame = frame_of(KG_CHANNEL_CONTROL, header, content);
    assert_int_equal(kg_client_msg_open(&frame, &control, NULL), 0);
    assert_string_equal(control.subshell_id, "");
    assert_int_equal(kg_client_msg_check(&frame, &able, &control, NULL), 0);
    assert_string_equal(control.subshell_id, "c");
}

static void input_and_shutdown_read(void **state)
{
    (void)state;
    kg_client_msg_t msg = {0};
    kg_err_t err = {0};
    assert_int_equal(
        read_as(KG_CHANNEL_STDIN, "input_reply", "{\"value\":\"a\\n\"}", &limits, &msg, &err), 0);
    assert_string_equal(msg.text.data, "a\n");
    kg_client_msg_fini(&msg);
    assert_int_equal(read_as(KG_CHANNEL_STDIN, "input_reply", "{}", &limits, &msg, &err), 0);
    assert_int_equal(msg.text.len, 0);
    kg_client_msg_fini(&msg);
    assert_int_equal(
        read_as(KG_CHANNEL_CONTROL, "shutdown_request", "{\"restart\":true}", &limits, &msg, &err),
        0);
    assert_true(msg.restart);
    kg_client_msg_fini(&msg);
    assert_int_equal(read_as(KG_CHANNEL_SHELL, "interrupt_request", "{}", &limits, &msg, &err), 0);
    assert_int_equal(msg.kind, KG_CLIENT_INTERRUPT);
    kg_client_msg_fini(&msg);
}

/* Metadata 100,000 deep ends IRkernel; content has its own caps. */
static void depth_and_size_capped(void **state)
{
    (void)state;
    for (unsigned lists = KG_JSON_DEPTH_MAX - 1; lists <= KG_JSON_DEPTH_MAX; lists++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        KG_AUTO_BUF kg_buf_t deep = {0};
        kg_err_t err = {0};
        assert_int_equal(kg_buf_append_cstr(&deep, "{\"a\":"), 0);
        for (unsigned i = 0; i < 2 * lists; i++) {
            assert_int_equal(kg_buf_append_char(&deep, i < lists ? '[' : ']'), 0);
        }
        assert_int_equal(kg_buf_append_char(&deep, '}'), 0);
        int want = lists < KG_JSON_DEPTH_MAX ? 0 : -E2BIG;
        kg_ws_msg_t frame = frame_of(KG_CHANNEL_SHELL, HEADER, "{\"code\":\"1\"}");
        frame.parts[2] = kg_buf_slice(&deep);
        assert_int_equal(kg_client_msg_open(&frame, &msg, &err), 0);
        assert_int_equal(kg_client_msg_check(&frame, &limits, &msg, &err), want);
        assert_true(want == 0 || err.code == KG_ERR_TOO_LARGE);
    }
    for (size_t len = KG_CLIENT_METADATA_MAX; len <= KG_CLIENT_METADATA_MAX + 1; len++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        KG_AUTO_BUF kg_buf_t big = {0};
        assert_int_equal(kg_buf_append_char(&big, '{'), 0);
        while (big.len < len - 1) {
            assert_int_equal(kg_buf_append_char(&big, ' '), 0);
        }
        assert_int_equal(kg_buf_append_char(&big, '}'), 0);
        kg_ws_msg_t frame = frame_of(KG_CHANNEL_SHELL, HEADER, "{\"code\":\"1\"}");
        frame.parts[2] = kg_buf_slice(&big);
        assert_int_equal(kg_client_msg_open(&frame, &msg, NULL), 0);
        assert_int_equal(kg_client_msg_check(&frame, &limits, &msg, NULL),
                         len > KG_CLIENT_METADATA_MAX ? -E2BIG : 0);
    }
    for (size_t max = 12; max >= 11; max--) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        kg_err_t err = {0};
        const kg_client_limits_t small = {.code_max = 1, .content_max = max};
        assert_int_equal(
            read_as(KG_CHANNEL_SHELL, "execute_request", "{\"code\":\"1\"}", &small, &msg, &err),
            max == 12 ? 0 : -E2BIG);
    }
}

static void buffers_of_comms_alone(void **state)
{
    (void)state;
    static const char *const types[] = {"comm_msg", "comm_info_request"};
    const kg_slice_t buffer = kg_slice_cstr("abc");
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++) {
        KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
        KG_AUTO_BUF kg_buf_t header = {0};
        assert_int_equal(kg_buf_printf(&header, "{\"msg_id\":\"1\",\"msg_type\":\"%s\"}", types[i]),
                         0);
        kg_ws_msg_t frame = frame_of(KG_CHANNEL_SHELL, header.data, "{\"comm_id\":\"c\"}");
        frame.buffers = &buffer;
        frame.buffer_count = 1;
        assert_int_equal(kg_client_msg_open(&frame, &msg, NULL), 0);
        assert_int_equal(kg_client_msg_check(&frame, &limits, &msg, NULL), 0);
        assert_int_equal(msg.buffer_count, i == 0);
        assert_true(i != 0 || msg.buffers == &buffer);
    }
}

/* SV-23: signed anew, with the kernel's own session and a fresh id. */
static void forwarded_under_our_session(void **state)
{
    (void)state;
    kg_session_t s = {.id = "inc", .username = "sandal"};
    KG_AUTO(kg_client_msg_fini) kg_client_msg_t msg = {0};
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_slice_t frames[KG_OUT_FRAMES];
    kg_jmsg_t back;
    kg_err_t err = {0};
    assert_int_equal(kg_wire_key_set(&s.key, "key", 3), 0);
    assert_int_equal(
        read_as(KG_CHANNEL_SHELL, "comm_msg", "{\"comm_id\":\"c\"}", &limits, &msg, &err), 0);
    kg_forward_args_t args = {.msg_type = msg.msg_type,
                              .metadata = kg_slice_cstr("{\"m\":1}"),
                              .content = kg_buf_slice(&msg.content)};
    assert_int_equal(kg_request_forward(&s, &args, &out), 0);
    kg_out_frames(&out, frames);
    assert_int_equal(kg_jmsg_parse(frames, KG_OUT_FRAMES, &s.key, &back, &err), 0);
    assert_string_equal(back.session, "inc");
    assert_string_equal(back.msg_id, "inc_1");
    assert_string_equal(back.msg_type, "comm_msg");
    assert_true(kg_slice_eq_cstr(back.metadata.raw, "{\"m\":1}"));
    assert_true(kg_slice_eq_cstr(back.content.raw, "{\"comm_id\":\"c\",\"data\":{}}"));
    assert_int_equal(kg_json_get(back.header, "subshell_id").type, KG_JSON_ABSENT);
    kg_out_fini(&out);
    args.subshell_id = "a\"b";
    assert_int_equal(kg_request_forward(&s, &args, &out), 0);
    kg_out_frames(&out, frames);
    assert_int_equal(kg_jmsg_parse(frames, KG_OUT_FRAMES, &s.key, &back, &err), 0);
    assert_true(kg_slice_eq_cstr(kg_json_get(back.header, "subshell_id").raw, "\"a\\\"b\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_read_and_kept),
        cmocka_unit_test(header_without_ids_refused),
        cmocka_unit_test(header_caps),
        cmocka_unit_test(execute_completed),
        cmocka_unit_test(execute_as_asked),
        cmocka_unit_test(content_completed),
        cmocka_unit_test(wrong_content_refused),
        cmocka_unit_test(features_let_through),
        cmocka_unit_test(subshell_named),
        cmocka_unit_test(input_and_shutdown_read),
        cmocka_unit_test(depth_and_size_capped),
        cmocka_unit_test(buffers_of_comms_alone),
        cmocka_unit_test(forwarded_under_our_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
