/* A model's call in each vendor's shape, whole and broken; definitions and answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "gateway/base/str.h"
#include "gateway/tool/tool.h"

static kg_tool_call_t parse(kg_tool_format_t format, const char *text)
{
    kg_tool_call_t call = {0};
    kg_err_t err = {0};
    int rc = kg_tool_call_parse(format, kg_slice_cstr(text), &call, &err);
    if (rc < 0) {
        fail_msg("%s: %s", text, err.message);
    }
    return call;
}

static void refused(kg_tool_format_t format, const char *text, kg_err_code_t code)
{
    kg_tool_call_t call = {0};
    kg_err_t err = {0};
    assert_true(kg_tool_call_parse(format, kg_slice_cstr(text), &call, &err) < 0);
    if (err.code != code) {
        fail_msg("%s: %s", text, err.message);
    }
    assert_null(call.id.data);
}

/* What the model is told of this call; NULL = nothing. */
static void told(kg_tool_format_t format, const char *text, const char *part)
{
    kg_tool_call_t call = parse(format, text);
    const char *problem = call.problem.data ? call.problem.data : "";
    if (part ? !strstr(problem, part) : *problem) {
        fail_msg("%s: %s", text, problem);
    }
    kg_tool_call_fini(&call);
}

static void same(const kg_buf_t *text, const char *want)
{
    assert_string_equal(text->data ? text->data : "", want);
}

/* --- Calls ---------------------------------------------------------------------------------- */

static const char *const whole[KG_TOOL_FORMAT_COUNT] = {
    [KG_TOOL_ANTHROPIC] = "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"run_code\","
                          "\"input\":{\"code\":\"1+1\",\"language\":\"r\",\"context\":\"c\","
                          "\"timeout\":2.5},\"caller\":{\"type\":\"direct\"}}",
    [KG_TOOL_OPENAI] = "{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"toolu_1\","
                       "\"name\":\"run_code\",\"status\":\"completed\",\"arguments\":"
                       "\"{\\\"code\\\":\\\"1+1\\\",\\\"language\\\":\\\"r\\\","
                       "\\\"context\\\":\\\"c\\\",\\\"timeout\\\":2.5}\"}",
    [KG_TOOL_OPENAI_CHAT] = "{\"id\":\"toolu_1\",\"type\":\"function\",\"function\":{\"name\":"
                            "\"run_code\",\"arguments\":\"{\\\"code\\\":\\\"1+1\\\","
                            "\\\"language\\\":\\\"r\\\",\\\"context\\\":\\\"c\\\","
                            "\\\"timeout\\\":2.5}\"},\"index\":0}",
    [KG_TOOL_GEMINI] = "{\"functionCall\":{\"id\":\"toolu_1\",\"name\":\"run_code\",\"args\":"
                       "{\"code\":\"1+1\",\"language\":\"r\",\"context\":\"c\",\"timeout\":2.5}},"
                       "\"thoughtSignature\":\"AA==\"}",
    [KG_TOOL_MCP] = ("{\"name\":\"run_code\",\"arguments\":{\"code\":\"1+1\",\"language\":\"r\","
                     "\"context\":\"c\",\"timeout\":2.5}}"),
};

static void parse_takes_each_vendors_call(void **state)
{
    (void)state;
    for (unsigned f = 0; f < KG_TOOL_FORMAT_COUNT; f++) {
        kg_tool_call_t call = parse((kg_tool_format_t)f, whole[f]);
        same(&call.problem, "");
        same(&call.code, "1+1");
        same(&call.language, "r");
        same(&call.context, "c");
        same(&call.name, "\"run_code\"");
        same(&call.id, f == KG_TOOL_MCP ? "" : "\"toolu_1\"");
        same(&call.ignored, "");
        assert_true(call.timeout_s > 2.4 && call.timeout_s < 2.6);
        kg_tool_call_fini(&call);
    }
}

static void parse_takes_geminis_other_spellings(void **state)
{
    (void)state;
    told(KG_TOOL_GEMINI, "{\"name\":\"run_code\",\"args\":{\"code\":\"1\"}}", NULL);
    told(KG_TOOL_GEMINI,
         "{\"function_call\":{\"id\":null,\"name\":\"run_code\",\"args\":{\"code\":\"1\"}}}", NULL);
}

static void parse_takes_arguments_as_object_and_as_text(void **state)
{
    (void)state;
    told(KG_TOOL_OPENAI,
         "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"run_code\",\"arguments\":"
         "{\"code\":\"1\"}}",
         NULL);
    told(KG_TOOL_ANTHROPIC,
         "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"run_code\",\"input\":"
         "\"{\\\"code\\\":\\\"1\\\"}\"}",
         NULL);
    told(KG_TOOL_OPENAI_CHAT,
         "{\"id\":\"c\",\"function\":{\"name\":\"run_code\",\"arguments\":\"{\\\"code\\\":"
         "\\\"1\\\",\\\"timeout\\\":null,\\\"context\\\":null}\"}}",
         NULL);
}

static void parse_refuses_what_the_program_got_wrong(void **state)
{
    (void)state;
    for (unsigned f = 0; f < KG_TOOL_FORMAT_COUNT; f++) {
        refused((kg_tool_format_t)f, "", KG_ERR_INVALID_JSON);
        refused((kg_tool_format_t)f, "{\"name\":", KG_ERR_INVALID_JSON);
        refused((kg_tool_format_t)f, "[]", KG_ERR_INVALID_REQUEST);
        refused((kg_tool_format_t)f, "null", KG_ERR_INVALID_REQUEST);
        refused((kg_tool_format_t)f, "{}", KG_ERR_INVALID_REQUEST);
        for (unsigned k = 0; k < KG_TOOL_FORMAT_COUNT; k++) { /* another vendor's */
            /* A bare functionCall and the params of MCP have name and no more to be told by. */
            if (k != f && f != KG_TOOL_MCP && f != KG_TOOL_GEMINI) {
                refused((kg_tool_format_t)f, whole[k], KG_ERR_INVALID_REQUEST);
            }
        }
    }
    refused(KG_TOOL_ANTHROPIC, "{\"type\":\"tool_use\",\"name\":\"run_code\",\"input\":{}}",
            KG_ERR_INVALID_REQUEST);
    refused(KG_TOOL_ANTHROPIC, "{\"type\":\"tool_use\",\"id\":7,\"name\":\"run_code\"}",
            KG_ERR_INVALID_REQUEST);
    refused(KG_TOOL_ANTHROPIC, "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":7}",
            KG_ERR_INVALID_REQUEST);
    refused(KG_TOOL_GEMINI, "{\"text\":\"no call\"}", KG_ERR_INVALID_REQUEST);
}

static void parse_tells_the_model_of_its_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *part;
    } rows[] = {
        {"{\"name\":\"Run_Code\",\"arguments\":{\"code\":\"1\"}}", "no tool \"Run_Code\""},
        {"{\"name\":\"run_code\"}", "not a JSON object"},
        {"{\"name\":\"run_code\",\"arguments\":null}", "not a JSON object"},
        {"{\"name\":\"run_code\",\"arguments\":[1]}", "not a JSON object"},
        {"{\"name\":\"run_code\",\"arguments\":\"\"}", "they are empty"},
        {"{\"name\":\"run_code\",\"arguments\":\"{\\\"code\\\":\\\"pri\"}", "end too early"},
        {"{\"name\":\"run_code\",\"arguments\":\"print(1)\"}", "not JSON"},
        {"{\"name\":\"run_code\",\"arguments\":\"\\\"1\\\"\"}", "not a JSON object"},
        {"{\"name\":\"run_code\",\"arguments\":{}}", "code is missing"},
        {"{\"name\":\"run_code\",\"arguments\":{\"Code\":\"1\"}}", "code is missing"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":null}}", "code is missing"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":[\"1\"]}}", "code must be a string"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"timeout\":\"5\"}}", "number"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"timeout\":0}}", "above 0"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"timeout\":-1e9}}", "above 0"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"timeout\":1e999}}", "timeout"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"timeout\":NaN}}", "timeout"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"context\":7}}", "context must be"},
        {"{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"language\":\"a\\u0000b\"}}",
         "control characters"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        told(KG_TOOL_MCP, rows[i].text, rows[i].part);
    }
}

static void parse_names_what_it_ignores(void **state)
{
    (void)state;
    kg_tool_call_t call = parse(
        KG_TOOL_MCP, "{\"name\":\"run_code\",\"arguments\":{\"x\":1,\"code\":\"1\",\"why\":\"\"}}");
    same(&call.ignored, "x, why");
    kg_tool_call_fini(&call);
}

/* What no tree parser takes: the last of two members wins, halves of pairs are mended, U+0000 is a
 * character like others (and it is the run's to refuse it). */
static void parse_takes_what_models_really_write(void **state)
{
    (void)state;
    kg_tool_call_t call =
        parse(KG_TOOL_MCP, "{\"name\":\"run_code\",\"arguments\":{\"code\":\"1\",\"code\":"
                           "\"a\\ud83d!\\u0000\\ud83d\\ude00\"}}");
    assert_int_equal(call.code.len, 10);
    assert_memory_equal(call.code.data, "a\xEF\xBF\xBD!\0\xF0\x9F\x98\x80", 10);
    kg_tool_call_fini(&call);
    call = parse(KG_TOOL_OPENAI, "{\"type\":\"function_call\",\"call_id\":\"\\ud800\",\"name\":"
                                 "\"run_code\",\"arguments\":\"{\\\"code\\\":\\\"\\\\u0041\xFF"
                                 "\\\"}\"}");
    same(&call.code, "A\xEF\xBF\xBD");
    same(&call.id, "\"\xEF\xBF\xBD\"");
    kg_tool_call_fini(&call);
}

/* A call with an id and a context of so many bytes. */
static const char *long_call(size_t id, size_t context)
{
    static char text[1024];
    char letters[512];
    memset(letters, 'a', sizeof letters);
    assert_int_equal(kg_format(text, sizeof text,
                               "{\"type\":\"tool_use\",\"id\":\"%.*s\",\"name\":\"run_code\","
                               "\"input\":{\"code\":\"1\",\"context\":\"%.*s\"}}",
                               (int)id, letters, (int)context, letters),
                     0);
    return text;
}

static void parse_bounds_at_limit_and_one_more(void **state)
{
    (void)state;
    told(KG_TOOL_ANTHROPIC, long_call(KG_TOOL_ID_MAX - 2, 1), NULL);
    refused(KG_TOOL_ANTHROPIC, long_call(KG_TOOL_ID_MAX - 1, 1), KG_ERR_INVALID_REQUEST);
    told(KG_TOOL_ANTHROPIC, long_call(1, KG_TOOL_REF_MAX), NULL);
    told(KG_TOOL_ANTHROPIC, long_call(1, KG_TOOL_REF_MAX + 1), "too long");
    char deep[256] = "{\"name\":\"run_code\",\"arguments\":";
    size_t len = strlen(deep);
    memset(deep + len, '[', 64);
    deep[len + 64] = '\0';
    refused(KG_TOOL_MCP, deep, KG_ERR_INVALID_JSON);
}

/* --- Definitions ---------------------------------------------------------------------------- */

static json_t *definitions(unsigned format, size_t languages)
{
    static const char *const names[] = {"python", "r"};
    kg_buf_t text = {0};
    assert_int_equal(kg_tool_definitions((kg_tool_format_t)format, names, languages, &text), 0);
    json_t *list = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(list), 1);
    kg_buf_fini(&text);
    return list;
}

static const json_t *schema_of(const json_t *list, unsigned format)
{
    const json_t *tool = json_array_get(list, 0);
    switch (format) {
    case KG_TOOL_ANTHROPIC:
        return json_object_get(tool, "input_schema");
    case KG_TOOL_OPENAI:
        return json_object_get(tool, "parameters");
    case KG_TOOL_OPENAI_CHAT:
        return json_object_get(json_object_get(tool, "function"), "parameters");
    case KG_TOOL_GEMINI:
        tool = json_array_get(json_object_get(tool, "functionDeclarations"), 0);
        return json_object_get(tool, "parameters");
    default:
        return json_object_get(tool, "inputSchema");
    }
}

static void definitions_name_languages_where_there_are_several(void **state)
{
    (void)state;
    for (unsigned f = 0; f < KG_TOOL_FORMAT_COUNT; f++) {
        json_t *one = definitions(f, 0);
        json_t *two = definitions(f, 2);
        const json_t *without = json_object_get(schema_of(one, f), "properties");
        const json_t *with = json_object_get(schema_of(two, f), "properties");
        assert_int_equal(json_object_size(without), 3);
        assert_non_null(json_object_get(without, "code"));
        assert_null(json_object_get(without, "language"));
        const json_t *words = json_object_get(json_object_get(with, "language"), "enum");
        assert_int_equal(json_array_size(words), 2);
        json_decref(one);
        json_decref(two);
    }
}

static void formats_are_found(void **state)
{
    (void)state;
    kg_tool_format_t format = KG_TOOL_MCP;
    assert_int_equal(kg_tool_format_find("openai-chat", &format), 0);
    assert_int_equal(format, KG_TOOL_OPENAI_CHAT);
    assert_int_equal(kg_tool_format_find("OpenAI", &format), -EINVAL);
}

/* --- Answers -------------------------------------------------------------------------------- */

static void answers_are_each_vendors_block(void **state)
{
    (void)state;
    static const kg_tool_image_t images[] = {{"image/png", {"AAAA", 4}},
                                             {"image/png", {"BB==", 4}}};
    static const char *const plain[KG_TOOL_FORMAT_COUNT] = {
        ("{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":[{\"type\":\"text\","
         "\"text\":\"a\\n\\\"b\\\"\"}],\"is_error\":true}"),
        "{\"type\":\"function_call_output\",\"call_id\":\"toolu_1\",\"output\":\"a\\n\\\"b\\\"\"}",
        "{\"role\":\"tool\",\"tool_call_id\":\"toolu_1\",\"content\":\"a\\n\\\"b\\\"\"}",
        ("{\"functionResponse\":{\"name\":\"run_code\",\"id\":\"toolu_1\",\"response\":{\"error\":"
         "\"a\\n\\\"b\\\"\"}}}"),
        "{\"content\":[{\"type\":\"text\",\"text\":\"a\\n\\\"b\\\"\"}],\"isError\":true}",
    };
    for (unsigned f = 0; f < KG_TOOL_FORMAT_COUNT; f++) {
        kg_buf_t out = {0};
        kg_tool_call_t call = parse((kg_tool_format_t)f, whole[f]);
        kg_tool_answer_t a = {.text = kg_slice_cstr("a\n\"b\""), .failed = true};
        assert_int_equal(kg_tool_answer(&call, &a, &out), 0);
        assert_string_equal(out.data, plain[f]);
        a.images = images;
        a.image_count = kg_tool_takes_image((kg_tool_format_t)f, "image/png") ? 2 : 0;
        a.failed = false;
        kg_buf_clear(&out);
        assert_int_equal(kg_tool_answer(&call, &a, &out), 0);
        json_t *json = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json);
        assert_int_equal(strstr(out.data, "AAAA") != NULL, a.image_count > 0);
        assert_int_equal(strstr(out.data, "BB==") != NULL, a.image_count > 0);
        json_decref(json);
        kg_tool_call_fini(&call);
        kg_buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_takes_each_vendors_call),
        cmocka_unit_test(parse_takes_geminis_other_spellings),
        cmocka_unit_test(parse_takes_arguments_as_object_and_as_text),
        cmocka_unit_test(parse_refuses_what_the_program_got_wrong),
        cmocka_unit_test(parse_tells_the_model_of_its_mistakes),
        cmocka_unit_test(parse_names_what_it_ignores),
        cmocka_unit_test(parse_takes_what_models_really_write),
        cmocka_unit_test(parse_bounds_at_limit_and_one_more),
        cmocka_unit_test(definitions_name_languages_where_there_are_several),
        cmocka_unit_test(formats_are_found),
        cmocka_unit_test(answers_are_each_vendors_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
