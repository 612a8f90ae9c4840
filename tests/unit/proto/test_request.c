#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/request.h"

static kg_session_t new_session(void)
{
    kg_session_t s = {.id = "0a1b", .username = "sandal"};
    assert_int_equal(kg_wire_key_set(&s.key, "key", 3), 0);
    return s;
}

/* What a kernel would read. */
static kg_jmsg_t
received(const kg_session_t *s, const kg_out_t *out, kg_slice_t frames[KG_OUT_FRAMES])
{
    kg_jmsg_t msg;
    kg_err_t err = {0};
    kg_out_frames(out, frames);
    assert_int_equal(kg_jmsg_parse(frames, KG_OUT_FRAMES, &s->key, &msg, &err), 0);
    assert_string_equal(msg.msg_id, out->msg_id);
    assert_string_equal(msg.session, s->id);
    assert_string_equal(msg.version, "5.3");
    return msg;
}

static void execute_request_complete_and_signed(void **state)
{
    (void)state;
    kg_session_t s = new_session();
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_slice_t frames[KG_OUT_FRAMES];
    const char code[] = "print(\"\xC3\xA9\\n\")\n\0\xFF";
    kg_execute_args_t args = {
        .code = kg_slice(code, sizeof code - 1), .store_history = true, .stop_on_error = true};
    assert_int_equal(kg_request_execute(&s, &args, &out), 0);
    kg_jmsg_t msg = received(&s, &out, frames);
    assert_string_equal(msg.msg_type, "execute_request");
    assert_string_equal(msg.msg_id, "0a1b_1");
    assert_true(kg_slice_eq_cstr(
        msg.content.raw,
        "{\"code\":\"print(\\\"\xC3\xA9\\\\n\\\")\\n\\u0000\xEF\xBF\xBD\",\"silent\":false,"
        "\"store_history\":true,\"allow_stdin\":false,\"stop_on_error\":true,"
        "\"user_expressions\":{}}"));
    kg_slice_t date = kg_json_get(msg.header, "date").raw;
    assert_int_equal(date.len, 29);
    assert_int_equal(date.data[20], '.');
    assert_int_equal(date.data[27], 'Z');
    assert_true(kg_slice_eq_cstr(kg_json_get(msg.header, "username").raw, "\"sandal\""));
}

static void execute_request_user_expressions_checked(void **state)
{
    (void)state;
    kg_session_t s = new_session();
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_execute_args_t args = {.code = kg_slice_cstr("1"),
                              .user_expressions = kg_slice_cstr("{ \"a\" : \"b\" }")};
    assert_int_equal(kg_request_execute(&s, &args, &out), 0);
    assert_non_null(strstr(out.content.data, "\"user_expressions\":{\"a\":\"b\"}}"));
    kg_out_fini(&out);
    args.user_expressions = kg_slice_cstr("[1]");
    assert_int_equal(kg_request_execute(&s, &args, &out), -EINVAL);
    args.user_expressions = kg_slice_cstr("{");
    assert_int_equal(kg_request_execute(&s, &args, &out), -EBADMSG);
    assert_int_equal(s.counter, 1);
    assert_null(out.content.data);
}

static void same_request_twice_never_same_bytes(void **state)
{
    (void)state;
    kg_session_t s = new_session();
    KG_AUTO(kg_out_fini) kg_out_t a = {0};
    KG_AUTO(kg_out_fini) kg_out_t b = {0};
    assert_int_equal(kg_request_kernel_info(&s, &a), 0);
    assert_int_equal(kg_request_kernel_info(&s, &b), 0);
    assert_string_not_equal(a.msg_id, b.msg_id);
    assert_string_not_equal(a.header.data, b.header.data);
    assert_string_not_equal(a.sig.data, b.sig.data);
}

static void other_requests_have_every_field(void **state)
{
    (void)state;
    kg_session_t s = new_session();
    kg_slice_t code = kg_slice_cstr("x.");
    kg_out_t out[8] = {0};
    assert_int_equal(kg_request_complete(&s, code, 2, &out[0]), 0);
    assert_int_equal(kg_request_inspect(&s, code, 1, 0, &out[1]), 0);
    assert_int_equal(kg_request_is_complete(&s, code, &out[2]), 0);
    assert_int_equal(kg_request_history(&s, 10, &out[3]), 0);
    assert_int_equal(kg_request_comm_info(&s, &out[4]), 0);
    assert_int_equal(kg_request_interrupt(&s, &out[5]), 0);
    assert_int_equal(kg_request_shutdown(&s, true, &out[6]), 0);
    assert_int_equal(kg_request_kernel_info(&s, &out[7]), 0);
    static const char *const want[][2] = {
        {"complete_request", "{\"code\":\"x.\",\"cursor_pos\":2}"},
        {"inspect_request", "{\"code\":\"x.\",\"cursor_pos\":1,\"detail_level\":0}"},
        {"is_complete_request", "{\"code\":\"x.\"}"},
        {"history_request",
         "{\"output\":false,\"raw\":true,\"hist_access_type\":\"tail\",\"session\":0,\"start\":0,"
         "\"stop\":0,\"n\":10,\"pattern\":\"*\",\"unique\":false}"},
        {"comm_info_request", "{}"},
        {"interrupt_request", "{}"},
        {"shutdown_request", "{\"restart\":true}"},
        {"kernel_info_request", "{}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(out); i++) {
        kg_slice_t frames[KG_OUT_FRAMES];
        kg_jmsg_t msg = received(&s, &out[i], frames);
        assert_string_equal(msg.msg_type, want[i][0]);
        assert_true(kg_slice_eq_cstr(msg.content.raw, want[i][1]));
        assert_true(kg_slice_eq_cstr(msg.parent_header.raw, "{}"));
        kg_out_fini(&out[i]);
    }
}

static void reply_input_carries_parent(void **state)
{
    (void)state;
    kg_session_t s = new_session();
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    kg_slice_t frames[KG_OUT_FRAMES];
    kg_slice_t parent = kg_slice_cstr("{\"msg_id\":\"ask\", \"msg_type\":\"input_request\"}");
    assert_int_equal(kg_reply_input(&s, kg_slice_cstr("a\"b"), parent, &out), 0);
    kg_jmsg_t msg = received(&s, &out, frames);
    assert_string_equal(msg.msg_type, "input_reply");
    assert_string_equal(msg.parent_id, "ask");
    assert_true(kg_slice_eq_cstr(msg.content.raw, "{\"value\":\"a\\\"b\"}"));
    KG_AUTO(kg_out_fini) kg_out_t bad = {0};
    assert_int_equal(kg_reply_input(&s, kg_slice_cstr(""), kg_slice_cstr("[]"), &bad), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(execute_request_complete_and_signed),
        cmocka_unit_test(execute_request_user_expressions_checked),
        cmocka_unit_test(same_request_twice_never_same_bytes),
        cmocka_unit_test(other_requests_have_every_field),
        cmocka_unit_test(reply_input_carries_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
