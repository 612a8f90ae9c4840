#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/ws_v1.h"

#define FRAME(text) kg_slice(text, sizeof(text) - 1)
#define ZEROS "\0\0\0\0\0\0\0"
/* The table of a frame without buffers whose parts are {}: channel at 56. */
#define TABLE(n, last)                                                                             \
    n ZEROS "\x38" ZEROS "\x3D" ZEROS "\x3F" ZEROS "\x41" ZEROS "\x43" ZEROS last ZEROS
#define GOOD TABLE("\x06", "\x45") "shell{}{}{}{}"

/* The one of the reference: iopub, and a buffer of two bytes. */
static const char vector[] =
    "\x07" ZEROS "\x40" ZEROS "\x45" ZEROS "\x55" ZEROS "\x57" ZEROS "\x59" ZEROS "\x60" ZEROS
    "\x62" ZEROS "iopub{\"msg_type\":\"x\"}{}{}{\"k\":1}\x00\xff";

static kg_slice_t store[KG_WS_BUFFERS_MAX];

static int decode(kg_slice_t frame, kg_ws_msg_t *ret)
{
    kg_err_t err = {0};
    int rc = kg_ws_v1_decode(frame, store, ret, &err);
    assert_true((rc == 0) == (err.code == KG_ERR_NONE));
    assert_true(rc == 0 || err.code == KG_ERR_INVALID_FRAME);
    return rc;
}

static void v1_vector_both_ways(void **state)
{
    (void)state;
    kg_ws_msg_t msg;
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_slice_t frame = FRAME(vector);
    assert_int_equal(frame.len, 98);
    assert_int_equal(decode(frame, &msg), 0);
    assert_int_equal(msg.channel, KG_CHANNEL_IOPUB);
    assert_true(kg_slice_eq_cstr(msg.parts[0], "{\"msg_type\":\"x\"}"));
    assert_true(kg_slice_eq_cstr(msg.parts[1], "{}"));
    assert_true(kg_slice_eq_cstr(msg.parts[2], "{}"));
    assert_true(kg_slice_eq_cstr(msg.parts[3], "{\"k\":1}"));
    assert_int_equal(msg.buffer_count, 1);
    assert_true(kg_slice_eq(msg.buffers[0], FRAME("\x00\xff")));
    assert_int_equal(kg_ws_v1_encode(&msg, &out), 0);
    assert_true(kg_slice_eq(kg_buf_slice(&out), frame));
    kg_buf_clear(&out);
    assert_int_equal(kg_ws_v1_prefix(&msg, &out), 0);
    assert_true(kg_slice_eq(kg_buf_slice(&out), kg_slice(frame.data, 69)));
}

/* WS-01 */
static void ws_01_malformed_refused(void **state)
{
    (void)state;
    const kg_slice_t bad[] = {
        {"", 0},
        FRAME("\x06"),                                /* no whole word */
        FRAME("\x06" ZEROS),                          /* no table */
        FRAME(TABLE("\x05", "\x45") "shell{}{}{}{}"), /* too few offsets */
        FRAME(TABLE("\x40", "\x45") "shell{}{}{}{}"), /* more than fit */
        FRAME("\xff\xff\xff\xff\xff\xff\xff\xff"),
        FRAME("\x06" ZEROS "\x39" ZEROS "\x3D" ZEROS "\x3F" ZEROS "\x41" ZEROS "\x43" ZEROS
              "\x45" ZEROS "shell{}{}{}{}"), /* the first is not the table's end */
        FRAME("\x06" ZEROS "\x38" ZEROS "\x3D" ZEROS "\x3C" ZEROS "\x41" ZEROS "\x43" ZEROS
              "\x45" ZEROS "shell{}{}{}{}"), /* falling */
        FRAME("\x06" ZEROS "\x38" ZEROS "\x3D" ZEROS "\x3F" ZEROS "\x41" ZEROS
              "\xff\xff\xff\xff\xff\xff\xff\x7f\x45" ZEROS "shell{}{}{}{}"),
        FRAME(TABLE("\x06", "\x44") "shell{}{}{}{}"), /* ends early */
        FRAME(TABLE("\x06", "\x46") "shell{}{}{}{}"), /* ends late */
        FRAME(TABLE("\x06", "\x45") "chell{}{}{}{}"),
        FRAME(TABLE("\x06", "\x45") "shel\0{}{}{}{}"),
        FRAME("{\"header\":{},\"channel\":\"shell\",\"content\":{},\"metadata\":{}}"),
    };
    kg_ws_msg_t msg = {.channel = KG_CHANNEL_STDIN};
    assert_int_equal(decode(FRAME(GOOD), &msg), 0);
    assert_int_equal(msg.channel, KG_CHANNEL_SHELL);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode(bad[i], &msg), -EBADMSG);
    }
    kg_slice_t good = FRAME(GOOD);
    for (size_t cut = 0; cut < good.len; cut++) {
        assert_int_equal(decode(kg_slice(good.data, cut), &msg), -EBADMSG);
    }
}

static kg_ws_msg_t with_buffers(const kg_slice_t *buffers, size_t count)
{
    kg_ws_msg_t msg = {.channel = KG_CHANNEL_CONTROL, .buffers = buffers, .buffer_count = count};
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        msg.parts[i] = kg_slice_cstr("{}");
    }
    return msg;
}

/* WS-02, and the cap on their number at it and past it */
static void ws_02_empty_buffers_and_their_cap(void **state)
{
    (void)state;
    static kg_slice_t empty[KG_WS_BUFFERS_MAX + 1];
    static const char nothing[1];
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_ws_msg_t back;
    for (size_t i = 0; i < KG_ARRAY_LEN(empty); i++) {
        empty[i] = kg_slice(nothing, 0);
    }
    kg_ws_msg_t msg = with_buffers(empty, KG_WS_BUFFERS_MAX);
    assert_int_equal(kg_ws_v1_encode(&msg, &out), 0);
    assert_int_equal(decode(kg_buf_slice(&out), &back), 0);
    assert_int_equal(back.channel, KG_CHANNEL_CONTROL);
    assert_int_equal(back.buffer_count, KG_WS_BUFFERS_MAX);
    assert_int_equal(back.buffers[KG_WS_BUFFERS_MAX - 1].len, 0);

    msg.buffer_count++;
    size_t len = out.len;
    assert_int_equal(kg_ws_v1_encode(&msg, &out), -E2BIG);
    assert_int_equal(kg_ws_v1_prefix(&msg, &out), -E2BIG);
    assert_int_equal(out.len, len);

    /* One more by hand: the count, one more offset, and all of them 8 further. */
    KG_AUTO_BUF kg_buf_t more = {0};
    size_t offsets = KG_WS_BUFFERS_MAX + 7;
    for (size_t i = 0; i <= offsets; i++) {
        size_t parts = i < 2 ? 0 : i < 6 ? 7 + 2 * (i - 2) : 15;
        size_t value = i == 0 ? offsets : 8 * (1 + offsets) + parts;
        for (size_t b = 0; b < 8; b++) {
            assert_int_equal(kg_buf_append_char(&more, (char)(unsigned char)(value >> 8 * b)), 0);
        }
    }
    assert_int_equal(kg_buf_append_cstr(&more, "control{}{}{}{}"), 0);
    assert_int_equal(decode(kg_buf_slice(&more), &back), -E2BIG);
}

/* WS-03: lengths alone, nothing is read. */
static void ws_03_frame_cap(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t out = {0};
    size_t rest = 64 + 7 + 8; /* table, channel, parts */
    kg_slice_t huge = {"", KG_WS_V1_FRAME_MAX - rest};
    kg_ws_msg_t msg = with_buffers(&huge, 1);
    assert_int_equal(kg_ws_v1_prefix(&msg, &out), 0);
    assert_int_equal(out.len, 64 + 7);
    huge.len++;
    assert_int_equal(kg_ws_v1_prefix(&msg, &out), -E2BIG);
    huge.len = SIZE_MAX;
    assert_int_equal(kg_ws_v1_prefix(&msg, &out), -E2BIG);
    assert_int_equal(out.len, 64 + 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v1_vector_both_ways),
        cmocka_unit_test(ws_01_malformed_refused),
        cmocka_unit_test(ws_02_empty_buffers_and_their_cap),
        cmocka_unit_test(ws_03_frame_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
