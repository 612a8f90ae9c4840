#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/ws_legacy.h"

#define FRAME(text) kg_slice(text, sizeof(text) - 1)

static kg_slice_t store[KG_WS_BUFFERS_MAX];

static int decode(kg_slice_t frame, kg_ws_msg_t *ret)
{
    kg_err_t err = {0};
    int rc = kg_ws_legacy_decode(frame, store, ret, &err);
    assert_true((rc == 0) == (err.code == KG_ERR_NONE));
    assert_true(rc == 0 || err.code == KG_ERR_INVALID_FRAME);
    return rc;
}

static void text_frame_read(void **state)
{
    (void)state;
    kg_ws_msg_t msg;
    assert_int_equal(
        decode(FRAME("{\"buffers\":[],\"channel\":\"control\",\"content\":{\"code\":\"1\"},"
                     "\"header\":{\"msg_id\":\"a\"},\"metadata\":{\"m\":1},\"msg_id\":\"no\","
                     "\"parent_header\":{\"p\":1},\"unknown\":[]}"),
               &msg),
        0);
    assert_int_equal(msg.channel, KG_CHANNEL_CONTROL);
    assert_true(kg_slice_eq_cstr(msg.parts[0], "{\"msg_id\":\"a\"}"));
    assert_true(kg_slice_eq_cstr(msg.parts[1], "{\"p\":1}"));
    assert_true(kg_slice_eq_cstr(msg.parts[2], "{\"m\":1}"));
    assert_true(kg_slice_eq_cstr(msg.parts[3], "{\"code\":\"1\"}"));
    assert_int_equal(msg.buffer_count, 0);
}

static void text_frame_completed(void **state)
{
    (void)state;
    kg_ws_msg_t msg;
    assert_int_equal(decode(FRAME("{\"header\":{},\"metadata\":null,\"channel\":null}"), &msg), 0);
    assert_int_equal(msg.channel, KG_CHANNEL_SHELL);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        assert_true(kg_slice_eq_cstr(msg.parts[i], "{}"));
    }
}

/* WS-04 */
static void ws_04_wrong_shapes_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"header\":[]}",
        "{\"header\":null}",
        "{\"header\":{},\"content\":[]}",
        "{\"header\":{},\"content\":\"x\"}",
        "{\"header\":{},\"parent_header\":1}",
        "{\"header\":{},\"metadata\":true}",
        "{\"header\":{},\"channel\":1}",
        "{\"header\":{},\"buffers\":{}}",
        "{\"header\":{},\"buffers\":[\"AA==\"]}",
        "{\"header\":{}} {}",
    };
    kg_ws_msg_t msg;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode(kg_slice_cstr(bad[i]), &msg), -EBADMSG);
    }
    assert_int_equal(decode(FRAME("{\"header\":{},\"channel\":\"other\"}"), &msg), -ENOENT);
    assert_int_equal(decode(FRAME("{\"header\":{},\"channel\":\"\"}"), &msg), -ENOENT);
}

static void depth_at_the_cap_and_past(void **state)
{
    (void)state;
    for (unsigned lists = KG_WS_LEGACY_DEPTH_MAX - 2; lists < KG_WS_LEGACY_DEPTH_MAX; lists++) {
        KG_AUTO_BUF kg_buf_t text = {0};
        kg_ws_msg_t msg;
        assert_int_equal(kg_buf_append_cstr(&text, "{\"header\":{},\"content\":{\"a\":"), 0);
        for (unsigned i = 0; i < 2 * lists; i++) {
            assert_int_equal(kg_buf_append_char(&text, i < lists ? '[' : ']'), 0);
        }
        assert_int_equal(kg_buf_append_cstr(&text, "}}"), 0);
        int want = lists == KG_WS_LEGACY_DEPTH_MAX - 2 ? 0 : -E2BIG;
        assert_int_equal(decode(kg_buf_slice(&text), &msg), want);
    }
}

/* The one of the reference: 38 bytes, two buffers. Its object is no message. */
static void vector_is_cut_and_its_object_refused(void **state)
{
    (void)state;
    static const char vector[] = "\x00\x00\x00\x03\x00\x00\x00\x10\x00\x00\x00\x23\x00\x00\x00\x25"
                                 "{\"channel\":\"iopub\"}\x00\xff\x01";
    kg_ws_msg_t msg;
    kg_err_t err = {0};
    assert_int_equal(sizeof vector - 1, 38);
    assert_int_equal(kg_ws_legacy_decode(FRAME(vector), store, &msg, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "header is not a JSON object"));
    assert_true(kg_slice_eq(store[0], FRAME("\x00\xff")));
    assert_true(kg_slice_eq(store[1], FRAME("\x01")));
}

#define OBJECT "{\"header\":{}}" /* 13 bytes */

/* WS-05 */
static void ws_05_offsets_taken_by_the_letter(void **state)
{
    (void)state;
    kg_ws_msg_t msg;
    static const char gap[] = "\0\0\0\x02\0\0\0\x0e\0\0\0\x1b??" OBJECT "abc";
    assert_int_equal(decode(FRAME(gap), &msg), 0);
    assert_int_equal(msg.buffer_count, 1);
    assert_true(kg_slice_eq_cstr(msg.buffers[0], "abc"));
    static const char alone[] = "\0\0\0\x01\0\0\0\x08" OBJECT;
    assert_int_equal(decode(FRAME(alone), &msg), 0);
    assert_int_equal(msg.buffer_count, 0);
    static const char empty[] = "\0\0\0\x03\0\0\0\x10\0\0\0\x1d\0\0\0\x1d" OBJECT;
    assert_int_equal(decode(FRAME(empty), &msg), 0);
    assert_int_equal(msg.buffer_count, 2);
    assert_int_equal(msg.buffers[1].len, 0);
}

static void bad_tables_refused(void **state)
{
    (void)state;
    const kg_slice_t bad[] = {
        FRAME("\0"),
        FRAME("\0\0\0"),
        FRAME("\0\0\0\0"),
        FRAME("\0\0\0\x01"),
        FRAME("\0\0\0\0\0\0\0\x08" OBJECT),
        FRAME("\0\0\0\x7f\0\0\0\x0c" OBJECT),
        FRAME("\0\xff\xff\xff\0\0\0\x0c" OBJECT),
        FRAME("\0\0\0\x02\0\0\0\x0b\0\0\0\x19" OBJECT), /* into the table */
        FRAME("\0\0\0\x02\0\0\0\x0c\0\0\0\x0b" OBJECT), /* falling */
        FRAME("\0\0\0\x02\0\0\0\x0c\0\0\0\x1a" OBJECT), /* past the end */
        FRAME("\0\0\0\x02\0\0\0\x0c\xff\xff\xff\xff" OBJECT),
    };
    kg_ws_msg_t msg;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode(bad[i], &msg), -EBADMSG);
    }
}

static kg_ws_msg_t iopub(const kg_slice_t *buffers, size_t count)
{
    return (kg_ws_msg_t){
        .channel = KG_CHANNEL_IOPUB,
        .parts = {kg_slice_cstr("{\"msg_type\":\"x\\u0041\",\"msg_id\":\"7\"}"),
                  kg_slice_cstr("{\"msg_id\":\"p\"}"), kg_slice_cstr("{}"),
                  kg_slice_cstr("{\"k\": 1e400}")},
        .buffers = buffers,
        .buffer_count = count,
    };
}

/* GA-19: msg_id and msg_type beside the header too. Nothing of the parts is written anew. */
static void ga_19_text_frame_spliced(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_ws_msg_t msg = iopub(NULL, 0);
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), 0);
    assert_string_equal(out.data,
                        "{\"header\":{\"msg_type\":\"x\\u0041\",\"msg_id\":\"7\"},"
                        "\"parent_header\":{\"msg_id\":\"p\"},\"metadata\":{},"
                        "\"content\":{\"k\": 1e400},\"channel\":\"iopub\",\"msg_id\":\"7\","
                        "\"msg_type\":\"x\\u0041\",\"buffers\":[]}");
}

static void around_the_content_is_all_else(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t whole = {0};
    KG_AUTO_BUF kg_buf_t before = {0};
    KG_AUTO_BUF kg_buf_t behind = {0};
    kg_ws_msg_t msg = iopub(NULL, 0);
    assert_int_equal(kg_ws_legacy_encode(&msg, &whole), 0);
    assert_int_equal(kg_ws_legacy_around(&msg, &before, &behind), 0);
    assert_int_equal(kg_buf_append_slice(&before, msg.parts[3]), 0);
    assert_int_equal(kg_buf_append_slice(&before, kg_buf_slice(&behind)), 0);
    assert_string_equal(before.data, whole.data);
    msg.parts[0] = kg_slice_cstr("{\"msg_type\":\"x\"}");
    assert_int_equal(kg_ws_legacy_around(&msg, &before, &behind), -EBADMSG);
}

static void binary_frame_made_and_read(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    const kg_slice_t buffers[] = {FRAME("\x00\xff"), FRAME(""), FRAME("\x01")};
    kg_ws_msg_t msg = iopub(buffers, KG_ARRAY_LEN(buffers));
    kg_ws_msg_t back;
    assert_int_equal(kg_buf_append_cstr(&out, "before"), 0);
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), 0);
    kg_buf_consume(&out, 6);
    assert_true(kg_slice_eq(kg_slice(out.data, 8), FRAME("\0\0\0\x04\0\0\0\x14")));
    assert_int_equal(decode(kg_buf_slice(&out), &back), 0);
    assert_int_equal(back.channel, KG_CHANNEL_IOPUB);
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        assert_true(kg_slice_eq(back.parts[i], msg.parts[i]));
    }
    assert_int_equal(back.buffer_count, KG_ARRAY_LEN(buffers));
    for (size_t i = 0; i < back.buffer_count; i++) {
        assert_true(kg_slice_eq(back.buffers[i], buffers[i]));
    }
    assert_null(memmem(out.data, out.len, "\"buffers\"", 9));
}

static void encode_bounded(void **state)
{
    (void)state;
    static kg_slice_t buffers[KG_WS_BUFFERS_MAX + 1];
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_ws_msg_t back;
    for (size_t i = 0; i < KG_ARRAY_LEN(buffers); i++) {
        buffers[i] = FRAME("");
    }
    kg_ws_msg_t msg = iopub(buffers, KG_WS_BUFFERS_MAX);
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), 0);
    assert_int_equal(decode(kg_buf_slice(&out), &back), 0);
    assert_int_equal(back.buffer_count, KG_WS_BUFFERS_MAX);
    kg_buf_clear(&out);
    msg.buffer_count++;
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), -E2BIG);

    /* The table of one buffer more, made by hand. */
    KG_AUTO_BUF kg_buf_t more = {0};
    unsigned count = KG_WS_BUFFERS_MAX + 2;
    for (unsigned i = 0; i <= count; i++) {
        unsigned v = i == 0 ? count : 4 * (1 + count) + (i > 1 ? 13 : 0);
        const char word[4] = {0, 0, (char)(unsigned char)(v >> 8), (char)(unsigned char)v};
        assert_int_equal(kg_buf_append(&more, word, sizeof word), 0);
    }
    assert_int_equal(kg_buf_append_cstr(&more, OBJECT), 0);
    assert_int_equal(decode(kg_buf_slice(&more), &back), -E2BIG);

    buffers[0] = kg_slice("", KG_WS_LEGACY_FRAME_MAX); /* its bytes are never reached */
    msg.buffer_count = 1;
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), -E2BIG);
    msg = iopub(NULL, 0);
    msg.parts[0] = kg_slice_cstr("{\"msg_id\":\"7\"}");
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), -EBADMSG);
    msg.parts[0] = kg_slice_cstr("{\"msg_id\":7,\"msg_type\":\"x\"}");
    assert_int_equal(kg_ws_legacy_encode(&msg, &out), -EBADMSG);
    assert_int_equal(out.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_frame_read),
        cmocka_unit_test(text_frame_completed),
        cmocka_unit_test(ws_04_wrong_shapes_refused),
        cmocka_unit_test(depth_at_the_cap_and_past),
        cmocka_unit_test(vector_is_cut_and_its_object_refused),
        cmocka_unit_test(ws_05_offsets_taken_by_the_letter),
        cmocka_unit_test(bad_tables_refused),
        cmocka_unit_test(ga_19_text_frame_spliced),
        cmocka_unit_test(around_the_content_is_all_else),
        cmocka_unit_test(binary_frame_made_and_read),
        cmocka_unit_test(encode_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
