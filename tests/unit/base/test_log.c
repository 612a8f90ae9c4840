#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/log.h"

/* What one call writes to stderr, without its time stamp's digits. */
static const char *logged(bool json, const char *fields, char *text, size_t cap)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    kg_log_init(KG_LOG_INFO, json);
    kg_log(KG_LOG_DEBUG, "not.shown", "x=1");
    kg_log(KG_LOG_WARN, "kernel.exit", "%s", fields);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], text, cap - 1);
    close(ends[0]);
    assert_true(n > 0);
    text[n] = '\0';
    return text;
}

static void log_text_line_cleaned_of_controls(void **state)
{
    (void)state;
    char text[512];
    const char *line = logged(false, "a=1 b=\"\x1B[2J\nx\xC2\x9B\xFF\"", text, sizeof text);
    assert_string_equal(line + 27,
                        " warn kernel.exit a=1 b=\"\\u001b[2J\\nx\\u009b\xEF\xBF\xBD\"\n");
    assert_int_equal(line[26], 'Z');
}

static void log_json_line_has_members(void **state)
{
    (void)state;
    char text[512];
    const char *line =
        logged(true, "code=9 why=\"a \\\"b\\\" \\\\ c\" flag path=/x\x01", text, sizeof text);
    assert_memory_equal(line, "{\"ts\":\"2", 8);
    assert_string_equal(line + 35,
                        ",\"level\":\"warn\",\"event\":\"kernel.exit\",\"code\":\"9\","
                        "\"why\":\"a \\\"b\\\" \\\\ c\",\"flag\":\"\",\"path\":\"/x\\u0001\"}\n");
}

static void log_quote_only_where_needed(void **state)
{
    (void)state;
    char text[16];
    assert_string_equal(kg_log_quote("plain", text, sizeof text), "plain");
    assert_string_equal(kg_log_quote("a b", text, sizeof text), "\"a b\"");
    assert_string_equal(kg_log_quote("", text, sizeof text), "\"\"");
    assert_string_equal(kg_log_quote("q\"\\", text, sizeof text), "\"q\\\"\\\\\"");
    assert_true(strlen(kg_log_quote("a much longer text \"\"\"\"\"", text, sizeof text)) <
                sizeof text);
    assert_string_equal(kg_log_quote("x", text, 2), "");
}

static void log_level_parse_names(void **state)
{
    (void)state;
    kg_log_level_t level = KG_LOG_INFO;
    assert_int_equal(kg_log_level_parse("error", &level), 0);
    assert_int_equal(level, KG_LOG_ERROR);
    assert_int_equal(kg_log_level_parse("loud", &level), -EINVAL);
    assert_int_equal(kg_log_level_parse(NULL, &level), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_text_line_cleaned_of_controls),
        cmocka_unit_test(log_json_line_has_members),
        cmocka_unit_test(log_quote_only_where_needed),
        cmocka_unit_test(log_level_parse_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
