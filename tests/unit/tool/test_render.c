/* From an Execution to what a model reads: order, cuts, pictures, notes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "gateway/base/utf8.h"
#include "gateway/tool/render.h"

#define PNG "iVBORw0KGgoAAAAA"

static const kg_tool_limits_t roomy = {.max_tokens = 8192, .images_max = 8, .image_bytes = 1000};

/* The view of an execution with these members behind its status. */
static kg_tool_view_t
render_with(kg_tool_format_t format, const kg_tool_limits_t *limits, const char *text)
{
    kg_tool_call_t call = {.format = format};
    kg_tool_view_t view = {0};
    assert_int_equal(kg_tool_render(&call, kg_slice_cstr(text), limits, &view), 0);
    return view;
}

static void reads(const char *execution, const char *want)
{
    kg_tool_view_t view = render_with(KG_TOOL_ANTHROPIC, &roomy, execution);
    assert_string_equal(view.text.data, want);
    kg_tool_view_fini(&view);
}

static void text_of_a_run_is_what_a_person_would_read(void **state)
{
    (void)state;
    reads("{\"status\":\"ok\",\"output\":\"\",\"results\":[]}", "[no output]");
    reads("{\"status\":\"ok\",\"output\":\"a\\nb\\n42\",\"results\":[{\"text\":\"42\",\"formats\":"
          "{\"text/plain\":\"42\"},\"main\":true}]}",
          "a\nb\n42");
    /* Displayed, not printed: it comes behind. */
    reads("{\"status\":\"ok\",\"output\":\"a\\n42\",\"results\":[{\"text\":\"shown\",\"formats\":"
          "{\"text/plain\":\"shown\"},\"main\":false},{\"text\":\"42\",\"formats\":{},\"main\":"
          "true}]}",
          "a\nshown\n42");
    /* R's values are in the transcript all. */
    reads("{\"status\":\"ok\",\"output\":\"[1] 1\\n[1] 2\",\"results\":[{\"text\":\"[1] 1\","
          "\"formats\":{},\"main\":false},{\"text\":\"[1] 2\",\"formats\":{},\"main\":true}]}",
          "[1] 1\n[1] 2");
    /* Output of a thread came behind the value. */
    reads("{\"status\":\"ok\",\"output\":\"42\\nlate\\n\",\"results\":[{\"text\":\"42\","
          "\"formats\":{},\"main\":true}]}",
          "\nlate\n42");
}

static void text_is_as_a_terminal_shows_it_at_last(void **state)
{
    (void)state;
    reads("{\"status\":\"ok\",\"output\":\" 10%\\r 50%\\r100%\\r\\ndone\\r\\n\\u001b[31mred"
          "\\u001b[0m a\\u0000b\",\"results\":[]}",
          "100%\ndone\nred a\xEF\xBF\xBD"
          "b");
}

static void error_is_at_the_end_and_once(void **state)
{
    (void)state;
    reads("{\"status\":\"error\",\"output\":\"a\\nFrame 1\\n\\nValueError: bad\",\"results\":[],"
          "\"error\":{\"name\":\"ValueError\",\"message\":\"bad\",\"traceback\":[\"Frame 1\\n\","
          "\"ValueError: bad\"],\"started\":true,\"state\":\"kept\"}}",
          "a\nFrame 1\n\nValueError: bad");
    reads("{\"status\":\"oom\",\"output\":\"a\\nOutOfMemory: gone\",\"results\":[],\"error\":"
          "{\"name\":\"OutOfMemory\",\"message\":\"gone\",\"traceback\":[],\"started\":true,"
          "\"state\":\"lost\"}}",
          "a\nOutOfMemory: gone\n[All variables and imports are lost; files are still there.]");
    reads("{\"status\":\"aborted\",\"output\":\"Aborted: reset\",\"results\":[],\"error\":"
          "{\"name\":\"Aborted\",\"message\":\"reset\",\"traceback\":[],\"started\":false,"
          "\"state\":\"lost\"}}",
          "Aborted: reset\n[The code was not started.]");
}

/* --- Cuts ----------------------------------------------------------------------------------- */

static kg_buf_t lines(const char *form, int count)
{
    kg_buf_t text = {0};
    for (int i = 0; i < count; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s%d\\n", form, i);
        assert_int_equal(kg_buf_append_cstr(&text, line), 0);
    }
    return text;
}

static kg_tool_view_t cut(const char *form, const kg_buf_t *text, unsigned tokens)
{
    kg_buf_t whole = {0};
    kg_tool_limits_t limits = roomy;
    limits.max_tokens = tokens;
    const char *gap = strchr(form, '@');
    assert_int_equal(kg_buf_append(&whole, form, (size_t)(gap - form)), 0);
    assert_int_equal(kg_buf_append(&whole, text->data, text->len), 0);
    assert_int_equal(kg_buf_append_cstr(&whole, gap + 1), 0);
    kg_tool_view_t view = render_with(KG_TOOL_ANTHROPIC, &limits, whole.data);
    kg_buf_fini(&whole);
    return view;
}

static void has(const kg_tool_view_t *view, const char *part, bool there)
{
    if ((strstr(view->text.data, part) != NULL) != there) {
        fail_msg("\"%s\" in: %s", part, view->text.data);
    }
}

static void output_keeps_its_head_and_its_tail(void **state)
{
    (void)state;
    kg_buf_t text = lines("line ", 1000);
    kg_tool_view_t view = cut("{\"status\":\"ok\",\"output\":\"@\",\"results\":[]}", &text, 100);
    assert_memory_equal(view.text.data, "line 0\nline 1\n", 14);
    has(&view, "\n[… ", true);
    has(&view, " lines (", true);
    has(&view, "]\nline ", true); /* the tail begins with a whole line */
    has(&view, "line 999\n[The output was cut to 100 tokens.", true);
    has(&view, "line 500", false);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

static void budget_is_kept_at_the_limit_and_cuts_one_more(void **state)
{
    (void)state;
    kg_buf_t text = {0};
    for (int i = 0; i < 256; i++) { /* 64 tokens */
        assert_int_equal(kg_buf_append_char(&text, 'x'), 0);
    }
    static const char form[] = "{\"status\":\"ok\",\"output\":\"@\",\"results\":[]}";
    kg_tool_view_t view = cut(form, &text, 64);
    assert_int_equal(view.text.len, 256);
    kg_tool_view_fini(&view);
    assert_int_equal(kg_buf_append_char(&text, 'y'), 0);
    view = cut(form, &text, 64);
    has(&view, "\n[… 1 characters left out …]\n", true);
    kg_tool_view_fini(&view);
    kg_buf_clear(&text);
    for (int i = 0; i < 65; i++) { /* each is a token */
        assert_int_equal(kg_buf_append_cstr(&text, "é"), 0);
    }
    view = cut(form, &text, 65);
    assert_int_equal(view.text.len, 130);
    kg_tool_view_fini(&view);
    view = cut(form, &text, 64);
    has(&view, "\n[… 1 characters left out …]\n", true);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

/* In quarters. Counted by the tokenizer o200k_base: base64 has 0.7 tokens a character, rows of
 * numbers 0.6, prose 0.25. */
static void numbers_and_base64_cost_more_than_prose(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t quarters;
    } texts[] = {
        {"", 0},
        {"word by word", 12},
        {"Word", 4},
        {"DataFrame", 9 + 3},
        {"HTML", 4},
        {"3.14", 8},
        {" 42", 1 + 4 + 3},
        {"x1", 1 + 2 + 3},
        {"1x", 2 + 1 + 3},
        {"1X", 2 + 1 + 3},
        {"1\n2\n", 12},
        {"()\t", 5},
        {"é1", 4 + 2},
        {"漢字", 8},
        {"😀", 8},
        {"\xF0", 8},
        {"kV9xQ2bZ", 8 + 2 + 7 * 3},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(texts); i++) {
        assert_int_equal(kg_tool_quarters(texts[i].text, strlen(texts[i].text)), texts[i].quarters);
    }
}

/* Of a text that was cut, what is left of it. The line's end that the note puts before itself is
 * known by the count of characters that it tells. */
static uint64_t quarters_left(kg_slice_t text, const kg_buf_t *out)
{
    const char *gap = strstr(out->data, "[… ");
    const char *end = gap ? strstr(gap, " …]\n") : NULL;
    assert_non_null(end);
    const char *many = memchr(gap, '(', (size_t)(end - gap));
    size_t gone = strtoul(many ? many + 1 : gap + strlen("[… "), NULL, 10);
    const char *tail = end + strlen(" …]\n");
    size_t tail_len = out->len - (size_t)(tail - out->data);
    size_t head = (size_t)(gap - out->data);
    head -= kg_utf8_count(out->data, head) + gone + kg_utf8_count(tail, tail_len) -
            kg_utf8_count(text.data, text.len);
    return kg_tool_quarters(out->data, head) + kg_tool_quarters(tail, tail_len);
}

static void what_is_left_of_a_cut_is_within_its_budget(void **state)
{
    (void)state;
    static const char *const texts[] = {"aB1 cD2 eF3 gH4 iJ5", "1.25 -3.75 4\n5 6 x\n", "漢1字A😀b9",
                                        "----====", "a\n\n\nb"};
    for (size_t i = 0; i < KG_ARRAY_LEN(texts); i++) {
        kg_slice_t text = kg_slice_cstr(texts[i]);
        uint64_t whole = kg_tool_quarters(text.data, text.len);
        for (unsigned how = KG_TOOL_CUT_MIDDLE; how <= KG_TOOL_CUT_START; how++) {
            for (uint64_t budget = 0; budget <= whole; budget++) {
                KG_AUTO_BUF kg_buf_t out = {0};
                bool was_cut = false;
                assert_int_equal(kg_tool_cut(text, (kg_tool_cut_t)how, budget, &out, &was_cut), 0);
                assert_int_equal(was_cut, budget < whole);
                assert_true(!was_cut || quarters_left(text, &out) <= budget);
            }
        }
    }
}

static void frame_keeps_its_head_and_its_shape(void **state)
{
    (void)state;
    kg_buf_t text = lines("row ", 1000);
    kg_tool_view_t view =
        cut("{\"status\":\"ok\",\"output\":\"\",\"results\":[{\"text\":\"@\\n[1000 rows x 1 "
            "columns]\",\"formats\":{\"application/vnd.dataframe+json\":{}},\"main\":true}]}",
            &text, 100);
    assert_memory_equal(view.text.data, "row 0\n", 6);
    has(&view, "left out …]\n[1000 rows x 1 columns]\n[The output", true);
    has(&view, "row 999", false);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

static void traceback_keeps_the_innermost_frames(void **state)
{
    (void)state;
    kg_buf_t text = {0};
    for (int i = 0; i < 100; i++) {
        char frame[64];
        snprintf(frame, sizeof frame, "\"File %d\\n  1 code\\n\",", i);
        assert_int_equal(kg_buf_append_cstr(&text, frame), 0);
    }
    kg_tool_view_t view =
        cut("{\"status\":\"error\",\"output\":\"\",\"results\":[],\"error\":{\"name\":\"E\","
            "\"message\":\"why\",\"traceback\":[@\"E: why\"],\"state\":\"kept\"}}",
            &text, 100);
    assert_memory_equal(view.text.data, "[… ", 5);
    has(&view, "left out …]\nFile ", true); /* a whole frame is first */
    has(&view, "File 99\n  1 code\n\nE: why\n[The output", true);
    has(&view, "File 0\n", false);
    assert_true(view.failed);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

/* Node's stack begins with message and innermost frame. */
static void stack_that_begins_with_its_message_keeps_it(void **state)
{
    (void)state;
    kg_buf_t text = lines("    at f", 500);
    kg_tool_view_t view =
        cut("{\"status\":\"error\",\"output\":\"\",\"results\":[],\"error\":{\"name\":\"E\","
            "\"message\":\"why\",\"traceback\":[\"E: why\\n@\"],\"state\":\"kept\"}}",
            &text, 100);
    assert_memory_equal(view.text.data, "E: why\n    at f0\n", 17);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

static void short_parts_are_whole_beside_long_ones(void **state)
{
    (void)state;
    kg_buf_t text = lines("line ", 1000);
    kg_tool_view_t view =
        cut("{\"status\":\"error\",\"output\":\"@\\nE: why\",\"results\":[{\"text\":\"shown\","
            "\"formats\":{},\"main\":false}],\"error\":{\"name\":\"E\",\"message\":\"why\","
            "\"traceback\":[\"E: why\"],\"state\":\"kept\"}}",
            &text, 100);
    has(&view, "\nshown\nE: why\n", true);
    has(&view, "line 999\nshown", true);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

static void what_the_run_lost_is_told(void **state)
{
    (void)state;
    reads("{\"status\":\"ok\",\"output\":\"a\",\"results\":[],\"truncated\":{\"stdout\":77}}",
          "a\n[stdout: 77 bytes went over a limit and are lost]");
}

static void displays_beyond_the_most_are_counted(void **state)
{
    (void)state;
    kg_buf_t text = {0};
    assert_int_equal(kg_buf_append_cstr(&text, "{\"status\":\"ok\",\"output\":\"\",\"results\":["),
                     0);
    for (int i = 0; i < 1000; i++) {
        char one[80];
        snprintf(one, sizeof one, "%s{\"text\":\"d%d.\",\"formats\":{},\"main\":false}",
                 i ? "," : "", i);
        assert_int_equal(kg_buf_append_cstr(&text, one), 0);
    }
    assert_int_equal(kg_buf_append_cstr(&text, "]}"), 0);
    kg_tool_view_t view = render_with(KG_TOOL_ANTHROPIC, &roomy, text.data);
    has(&view, "d0.\nd1.\n", true);
    has(&view, "d22.\n[977 more displays are not shown]", true);
    kg_tool_view_fini(&view);
    kg_buf_fini(&text);
}

/* --- Pictures ------------------------------------------------------------------------------- */

static void picture(const char *type, const char *base64, const char *want_text, size_t want)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"status\":\"ok\",\"output\":\"\",\"results\":[{\"text\":\"<Figure>\",\"formats\":"
             "{\"%s\":\"%s\",\"text/plain\":\"<Figure>\"},\"main\":false}]}",
             type, base64);
    kg_tool_limits_t limits = roomy;
    limits.image_bytes = 16;
    kg_tool_view_t view = render_with(KG_TOOL_GEMINI, &limits, text);
    assert_string_equal(view.text.data, want_text);
    assert_int_equal(view.image_count, want);
    if (want) {
        assert_int_equal(view.images[0].base64.len, strlen(base64));
    }
    kg_tool_view_fini(&view);
}

static void pictures_are_shown_or_told_of(void **state)
{
    (void)state;
    picture("image/png", PNG, "[image]", 1);
    picture("image/png", PNG "AAAA",
            "[1 image not shown: too large; make it smaller, with a lower dpi or figsize]", 0);
    picture("image/png", "R0lGODlhAAAA", "[1 image not shown: its data is not of its type]", 0);
    picture("image/png", "iVBORw0KGgo*", "[1 image not shown: its data is not of its type]", 0);
    picture("image/gif", "R0lGODlhAAAA",
            "[1 image not shown: this API takes none of its kind in tool results]", 0);
    picture("image/svg+xml", "<svg/>", "<Figure>", 0);
}

static void pictures_have_a_most(void **state)
{
    (void)state;
    static const char text[] =
        "{\"status\":\"ok\",\"output\":\"\",\"results\":["
        "{\"text\":\"f\",\"formats\":{\"image/png\":\"" PNG "\"},\"main\":false},"
        "{\"text\":\"f\",\"formats\":{\"image/png\":\"" PNG "\\n\"},\"main\":false},"
        "{\"text\":\"f\",\"formats\":{\"image/png\":\"" PNG "\"},\"main\":false}]}";
    kg_tool_limits_t limits = roomy;
    limits.images_max = 2;
    kg_tool_view_t view = render_with(KG_TOOL_OPENAI, &limits, text);
    assert_int_equal(view.image_count, 2);
    assert_int_equal(view.images[1].base64.len, strlen(PNG)); /* the line's end is gone */
    assert_string_equal(view.text.data, "[1 image not shown: there are too many]");
    kg_tool_view_fini(&view);
    limits.images_max = 3;
    view = render_with(KG_TOOL_OPENAI, &limits, text);
    assert_int_equal(view.image_count, 3);
    kg_tool_view_fini(&view);
    limits.images_max = 0;
    view = render_with(KG_TOOL_OPENAI, &limits, text);
    assert_int_equal(view.image_count, 0);
    has(&view, "3 images not shown", true);
    kg_tool_view_fini(&view);
}

/* Anthropic's API refuses them in a block with is_error. */
static void pictures_of_a_failed_run_are_not_for_anthropic(void **state)
{
    (void)state;
    static const char text[] =
        "{\"status\":\"error\",\"output\":\"E: why\",\"results\":[{\"text\":\"f\",\"formats\":"
        "{\"image/png\":\"" PNG "\"},\"main\":false}],\"error\":{\"name\":\"E\",\"message\":"
        "\"why\",\"traceback\":[],\"state\":\"kept\"}}";
    kg_tool_view_t view = render_with(KG_TOOL_ANTHROPIC, &roomy, text);
    assert_int_equal(view.image_count, 0);
    assert_string_equal(view.text.data,
                        "E: why\n[1 image not shown: this API takes none beside an error]");
    kg_tool_view_fini(&view);
    view = render_with(KG_TOOL_GEMINI, &roomy, text);
    assert_int_equal(view.image_count, 1);
    kg_tool_view_fini(&view);
}

static void broken_execution_is_an_error(void **state)
{
    (void)state;
    kg_tool_call_t call = {.format = KG_TOOL_MCP};
    kg_tool_view_t view = {0};
    assert_int_equal(kg_tool_render(&call, kg_slice_cstr("{}"), &roomy, &view), -EBADMSG);
    assert_int_equal(kg_tool_render(&call, kg_slice_cstr(""), &roomy, &view), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_a_run_is_what_a_person_would_read),
        cmocka_unit_test(text_is_as_a_terminal_shows_it_at_last),
        cmocka_unit_test(error_is_at_the_end_and_once),
        cmocka_unit_test(output_keeps_its_head_and_its_tail),
        cmocka_unit_test(budget_is_kept_at_the_limit_and_cuts_one_more),
        cmocka_unit_test(numbers_and_base64_cost_more_than_prose),
        cmocka_unit_test(what_is_left_of_a_cut_is_within_its_budget),
        cmocka_unit_test(frame_keeps_its_head_and_its_shape),
        cmocka_unit_test(traceback_keeps_the_innermost_frames),
        cmocka_unit_test(stack_that_begins_with_its_message_keeps_it),
        cmocka_unit_test(short_parts_are_whole_beside_long_ones),
        cmocka_unit_test(what_the_run_lost_is_told),
        cmocka_unit_test(displays_beyond_the_most_are_counted),
        cmocka_unit_test(pictures_are_shown_or_told_of),
        cmocka_unit_test(pictures_have_a_most),
        cmocka_unit_test(pictures_of_a_failed_run_are_not_for_anthropic),
        cmocka_unit_test(broken_execution_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
