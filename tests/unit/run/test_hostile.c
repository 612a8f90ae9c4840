/* What no stock kernel sends, but code in a sandbox can: names and ids without end, content nested
 * too deep, bad bytes just where text is cut. Nothing of it may grow memory past the limits, break
 * an event or be lost in silence. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

#define FLAGS (JSON_ALLOW_NUL | JSON_DECODE_ANY)

/* All events so far, which must be JSON. */
static json_t *events(run_test_t *t)
{
    kg_buf_t text = {0};
    json_error_t err;
    assert_int_equal(kg_run_log_flush(t->log), 0);
    rt_events(t->log, -1, true, 1 << 20, &text);
    json_t *list = json_loadb(text.data, text.len, FLAGS, &err);
    assert_non_null(list);
    kg_buf_fini(&text);
    return list;
}

static json_t *execution(run_test_t *t)
{
    kg_buf_t text = {0};
    json_error_t err;
    rt_execution(t->log, 1 << 20, &text);
    json_t *object = json_loadb(text.data, text.len, FLAGS, &err);
    assert_non_null(object);
    kg_buf_fini(&text);
    return object;
}

static void repeat(kg_buf_t *out, const char *text, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        assert_int_equal(kg_buf_append_cstr(out, text), 0);
    }
}

/* A message as it comes from the wire, of any depth. */
static void wire_message(run_test_t *t, const char *type, kg_slice_t content)
{
    char header[128];
    const kg_wire_key_t key = {.len = 0};
    kg_jmsg_t msg;
    (void)snprintf(header, sizeof header, "{\"msg_id\":\"m1\",\"msg_type\":\"%s\"}", type);
    const kg_slice_t frames[] = {kg_slice_cstr("<IDS|MSG>"), {0},
                                 kg_slice_cstr(header),      kg_slice_cstr("{}"),
                                 kg_slice_cstr("{}"),        content};
    assert_int_equal(kg_jmsg_parse(frames, KG_ARRAY_LEN(frames), &key, &msg, NULL), 0);
    kg_mapped_t *mapped = kg_mapper_prepare(&t->opts, &msg);
    assert_non_null(mapped);
    assert_int_equal(kg_mapper_apply(t->mapper, mapped), 0);
    kg_mapped_destroy(&mapped);
}

static int64_t cut_of(run_test_t *t, const char *kind)
{
    json_t *x = execution(t);
    json_t *truncated = json_object_get(x, "truncated");
    int64_t n =
        json_is_object(truncated) ? json_integer_value(json_object_get(truncated, kind)) : 0;
    json_decref(x);
    return n;
}

/* The text is copied in chunks of 64 KiB; here three stray continuation bytes hold the cut and an
 * escaped quote stands before them. */
static void stream_badBytesAtTheCut_eventStaysWhole(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 8; shift++) {
        run_test_t t;
        kg_buf_t content = {0};
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(kg_buf_append_cstr(&content, "{\"name\":\"stdout\",\"text\":\""), 0);
        repeat(&content, "a", 65536 - 8 + shift);
        assert_int_equal(
            kg_buf_append_cstr(&content, "\\\"\x80\x80\x80,\\\"type\\\":\\\"result\\\"\"}"), 0);
        rt_message_len(&t, "stream", content.data, content.len);
        json_t *list = events(&t);
        kg_buf_t text = {0};
        size_t i;
        json_t *event;
        json_array_foreach (list, i, event) {
            assert_string_equal(json_string_value(json_object_get(event, "type")), "stdout");
            assert_int_equal(
                kg_buf_append_cstr(&text, json_string_value(json_object_get(event, "text"))), 0);
        }
        assert_string_equal(text.data + 65536 - 8 + shift,
                            "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd,\"type\":\"result\"");
        kg_buf_fini(&text);
        kg_buf_fini(&content);
        json_decref(list);
        rt_end(&t);
    }
}

/* White space goes out of base64; what only looks like it (a backslash and an n) stays. */
static void display_base64WithBackslashes_eventStaysWhole(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    rt_message(&t, "display_data",
               "{\"data\":{\"image/png\":\"A\\\\nB\\n\\\\\\\\t \\u0000C\\\\\",\"a/b\":\"x\"}}");
    json_t *list = events(&t);
    json_t *result = json_object_get(json_array_get(list, 0), "result");
    json_t *data = json_object_get(result, "data");
    assert_int_equal(json_string_length(data), 10);
    assert_memory_equal(json_string_value(data), "A\\nB\\\\t\0C\\", 10);
    json_decref(list);
    rt_end(&t);
}

static void display_idAtLimitAndBeyond(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        run_test_t t;
        kg_buf_t content = {0};
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(
            kg_buf_append_cstr(&content,
                               "{\"data\":{\"text/plain\":\"x\"},\"transient\":{\"display_id\":\""),
            0);
        repeat(&content, "i", KG_RUN_ID_MAX - 2 + more);
        assert_int_equal(kg_buf_append_cstr(&content, "\"}}"), 0);
        rt_message_len(&t, "display_data", content.data, content.len);
        rt_message_len(&t, "update_display_data", content.data, content.len);
        rt_finish(&t, KG_RUN_OK);
        json_t *list = events(&t);
        json_t *last = json_array_get(list, 1 + more);
        assert_string_equal(json_string_value(json_object_get(last, "type")),
                            more ? "display" : "update");
        assert_int_equal(cut_of(&t, "result"), more ? 2 * (KG_RUN_ID_MAX + 1) : 0);
        json_decref(list);
        kg_buf_fini(&content);
        rt_end(&t);
    }
}

static void display_mimeNameAtLimitAndBeyond(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        run_test_t t;
        kg_buf_t content = {0};
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(kg_buf_append_cstr(&content, "{\"data\":{\"text/plain\":\"x\",\""), 0);
        repeat(&content, "m", KG_RUN_MIME_MAX + more);
        assert_int_equal(kg_buf_append_cstr(&content, "\":\"value\"}}"), 0);
        rt_message_len(&t, "display_data", content.data, content.len);
        rt_finish(&t, KG_RUN_OK);
        json_t *x = execution(&t);
        json_t *result = json_array_get(json_object_get(x, "results"), 0);
        assert_int_equal(json_object_size(json_object_get(result, "formats")), 2 - more);
        assert_int_equal(cut_of(&t, "result"), more ? 5 : 0);
        json_decref(x);
        kg_buf_fini(&content);
        rt_end(&t);
    }
}

static void display_tooManyFormats_restMeasuredAsDecoded(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t content = {0};
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_buf_append_cstr(&content, "{\"data\":{"), 0);
    for (unsigned i = 0; i <= KG_RUN_FORMATS_MAX; i++) {
        assert_int_equal(kg_buf_printf(&content, "%s\"x/%u\":\"\\n\"", i ? "," : "", i), 0);
    }
    assert_int_equal(kg_buf_append_cstr(&content, "}}"), 0);
    rt_message_len(&t, "display_data", content.data, content.len);
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(cut_of(&t, "result"), 1);
    kg_buf_fini(&content);
    rt_end(&t);
}

static void display_dataThatIsNoBundle_isTold(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    rt_open(&t);
    rt_message(&t, "display_data", "{\"data\":[1,2,3]}");
    rt_finish(&t, KG_RUN_OK);
    assert_int_equal(cut_of(&t, "result"), 7);
    rt_end(&t);
}

static void input_promptAtLimitAndBeyond(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        run_test_t t;
        kg_buf_t content = {0};
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(kg_buf_append_cstr(&content, "{\"password\":false,\"prompt\":\""), 0);
        repeat(&content, "\xc3\xa9", KG_RUN_PROMPT_MAX / 2 - 1);
        assert_int_equal(kg_buf_append_cstr(&content, more ? "a\xc3\xa9\"}" : "\xc3\xa9\"}"), 0);
        rt_message_len(&t, "input_request", content.data, content.len);
        assert_int_equal(t.inputs, 1);
        rt_finish(&t, KG_RUN_OK);
        assert_int_equal(cut_of(&t, "result"), more ? 2 : 0);
        kg_buf_fini(&content);
        rt_end(&t);
    }
}

static void reply_tooManyPayloads_restIsToldAndExitSeen(void **state)
{
    (void)state;
    static const char page[] = "{\"source\":\"page\",\"data\":{\"text/plain\":\"p\"}},";
    run_test_t t;
    kg_buf_t content = {0};
    rt_begin(&t);
    rt_open(&t);
    assert_int_equal(kg_buf_append_cstr(&content, "{\"status\":\"ok\",\"payload\":["), 0);
    repeat(&content, page, KG_RUN_PAYLOADS_MAX + 2);
    assert_int_equal(kg_buf_append_cstr(&content, "{\"source\":\"ask_exit\"}]}"), 0);
    rt_message_len(&t, "execute_reply", content.data, content.len);
    assert_true(kg_mapper_state(t.mapper)->ask_exit);
    rt_finish(&t, KG_RUN_OK);
    json_t *x = execution(&t);
    assert_int_equal(json_array_size(json_object_get(x, "results")), KG_RUN_PAYLOADS_MAX);
    assert_int_equal(cut_of(&t, "result"), 2 * (sizeof page - 2));
    json_decref(x);
    kg_buf_fini(&content);
    rt_end(&t);
}

/* {"data":{"text/plain":"x","application/json":[[[…]]]}} at the depth that is copied and one more.
 */
static void display_deepJson_onlyThatFormatIsCut(void **state)
{
    (void)state;
    static const size_t depths[] = {KG_JSON_DEPTH_MAX, KG_JSON_DEPTH_MAX + 1, 100000};
    for (size_t i = 0; i < KG_ARRAY_LEN(depths); i++) {
        run_test_t t;
        kg_buf_t content = {0};
        bool fits = depths[i] <= KG_JSON_DEPTH_MAX;
        rt_begin(&t);
        rt_open(&t);
        assert_int_equal(
            kg_buf_append_cstr(&content, " {\"data\":{\"text/plain\":\"x\",\"application/json\":"),
            0);
        repeat(&content, "[", depths[i]);
        repeat(&content, "]", depths[i]);
        assert_int_equal(kg_buf_append_cstr(&content, "}}\n"), 0);
        wire_message(&t, "display_data", kg_buf_slice(&content));
        rt_finish(&t, KG_RUN_OK);
        json_t *x = execution(&t);
        json_t *result = json_array_get(json_object_get(x, "results"), 0);
        assert_string_equal(json_string_value(json_object_get(result, "type")),
                            fits ? "application/json" : "text/plain");
        assert_int_equal(cut_of(&t, "result"), fits ? 0 : 2 * depths[i]);
        json_decref(x);
        kg_buf_fini(&content);
        rt_end(&t);
    }
}

static void deep_metadata(run_test_t *t)
{
    kg_buf_t content = {0};
    assert_int_equal(
        kg_buf_append_cstr(&content, "{\"data\":{\"text/plain\":\"x\"},\"metadata\":{\"a\":"), 0);
    repeat(&content, "[", 1000);
    repeat(&content, "]", 1000);
    assert_int_equal(kg_buf_append_cstr(&content, "}}"), 0);
    wire_message(t, "display_data", kg_buf_slice(&content));
    kg_buf_fini(&content);
}

/* The run neither hangs for want of its reply nor loses what else the messages say. */
static void reply_deep_statusAndErrorAreKept(void **state)
{
    (void)state;
    run_test_t t;
    kg_buf_t deep = {0}, content = {0};
    rt_begin(&t);
    rt_open(&t);
    deep_metadata(&t);
    repeat(&deep, "[", 1000);
    repeat(&deep, "]", 1000);
    assert_int_equal(kg_buf_printf(&content,
                                   "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":%s,"
                                   "\"traceback\":[\"a\",%s],\"user_expressions\":{\"x\":%s}}",
                                   deep.data, deep.data, deep.data),
                     0);
    wire_message(&t, "error", kg_buf_slice(&content));
    wire_message(&t, "execute_reply", kg_buf_slice(&content));
    assert_int_equal(kg_mapper_state(t.mapper)->reply, KG_REPLY_ERROR);
    rt_finish(&t, KG_RUN_OK);
    json_t *x = execution(&t);
    json_t *error = json_object_get(x, "error");
    assert_string_equal(json_string_value(json_object_get(error, "name")), "E");
    assert_string_equal(json_string_value(json_object_get(error, "message")), "[…]");
    assert_int_equal(json_array_size(json_object_get(error, "traceback")), 2);
    assert_int_equal(cut_of(&t, "result"), 2000 + 6);
    json_decref(x);
    kg_buf_fini(&deep);
    kg_buf_fini(&content);
    rt_end(&t);
}

/* One id shown by two runs of which the older has little room left: the younger gets all of it. */
static void update_twoLogs_eachCutByItsOwnRoom(void **state)
{
    (void)state;
    static const char shown[] =
        "{\"data\":{\"text/plain\":\"%s\"},\"transient\":{\"display_id\":\"d\"}}";
    run_test_t t;
    char small[256], big[256];
    char twenty[21] = "aaaaaaaaaaaaaaaaaaaa";
    (void)snprintf(small, sizeof small, shown, "x");
    (void)snprintf(big, sizeof big, shown, twenty);
    rt_begin(&t);
    t.opts.limits.result_bytes = 30;
    rt_open(&t);
    rt_message(&t, "display_data", small);
    rt_message(&t, "display_data", "{\"data\":{\"text/plain\":\"012345678901234\"}}");
    rt_finish(&t, KG_RUN_OK);
    kg_run_log_t *old = kg_run_log_ref(t.log);
    rt_close(&t);
    t.meta.run = "run-10de5k3j2h1g9f8d7s6b";
    rt_open(&t);
    rt_message(&t, "display_data", small);
    rt_message(&t, "update_display_data", big);
    rt_finish(&t, KG_RUN_OK);
    json_t *x = execution(&t);
    json_t *result = json_array_get(json_object_get(x, "results"), 0);
    assert_string_equal(json_string_value(json_object_get(result, "data")), twenty);
    assert_true(json_is_null(json_object_get(x, "truncated")));
    assert_int_equal(old->body->account.cut[KG_CUT_RESULT], 20);
    json_decref(x);
    kg_run_log_unref(&old);
    rt_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_badBytesAtTheCut_eventStaysWhole),
        cmocka_unit_test(display_base64WithBackslashes_eventStaysWhole),
        cmocka_unit_test(display_idAtLimitAndBeyond),
        cmocka_unit_test(display_mimeNameAtLimitAndBeyond),
        cmocka_unit_test(display_tooManyFormats_restMeasuredAsDecoded),
        cmocka_unit_test(display_dataThatIsNoBundle_isTold),
        cmocka_unit_test(input_promptAtLimitAndBeyond),
        cmocka_unit_test(reply_tooManyPayloads_restIsToldAndExitSeen),
        cmocka_unit_test(display_deepJson_onlyThatFormatIsCut),
        cmocka_unit_test(reply_deep_statusAndErrorAreKept),
        cmocka_unit_test(update_twoLogs_eachCutByItsOwnRoom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
