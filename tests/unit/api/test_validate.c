/* Requests as bytes: what is refused, and how it is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/validate.h"

typedef struct row {
    const char *op;
    const char *args;
    const char *pointer; /* NULL = fine */
    const char *says;    /* part of message or hint */
} row_t;

static const row_t rows[] = {
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\"}", NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"\"}", NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":null,\"env\":null}", NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":0.5}", NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"stdin\":\"a\\nb\"}", NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"stdin\":[\"a\",\"b\"]}", NULL, NULL},
    {"run_code",
     "{\"sandbox\":\"s\",\"code\":\"1\",\"limits\":{\"output_bytes\":1,\"on_exceed\":\"stop\"}}",
     NULL, NULL},
    {"run_code", "{\"sandbox\":\"s\"}", "/code", "missing"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":null}", "/code", "missing"},
    {"run_code", "{\"code\":\"1\"}", "/sandbox", "missing"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":1}", "/code", "a string, not an integer"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":[\"1\"]}", "/code", "not an array"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":\"5\"}", "/timeout",
     "a number, not a string"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":-1}", "/timeout", "from 0 to"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":1e300}", "/timeout", "from 0 to"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"stream\":1}", "/stream", "true or false"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeuot\":1}", "/timeuot",
     "Did you mean 'timeout'"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"zzz\":1}", "/zzz", "Fields here"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"a/b~c\":1}", "/a~1b~0c", "Unknown field"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"on_input\":\"ask\"}", "/on_input",
     "'wait', 'error'"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"on_disconnect\":\"die\"}", "/on_disconnect",
     "'kill'"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"env\":{\"A\":1}}", "/env/A",
     "must be strings"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"env\":{\"A=B\":\"1\"}}", "/env/A=B",
     "environment"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"env\":{\"\":\"1\"}}", "/env/", "1 to"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"env\":[]}", "/env", "an object of strings"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"stdin\":[\"a\",1]}", "/stdin/1",
     "must be a string"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"stdin\":7}", "/stdin", "array of strings"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"limits\":{\"output_bytes\":\"1\"}}",
     "/limits/output_bytes", "an integer"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"limits\":{\"output_bytes\":0}}",
     "/limits/output_bytes", "at least 1"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"limits\":{\"outputs\":1}}", "/limits/outputs",
     "Unknown field"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"limits\":7}", "/limits", "an object"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"key\":\"a b\"}", "/key", "printable ASCII"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"key\":\"\"}", "/key", "not be empty"},
    {"run_code", "{\"sandbox\":\"\",\"code\":\"1\"}", "/sandbox", "not be empty"},
    {"sandboxes.create", "{\"name\":\"Box\"}", "/name", "a-z"},
    {"sandboxes.create", "{\"name\":\"-box\"}", "/name", "a-z"},
    {"sandboxes.create", "{\"name\":\"box-1\",\"network\":\"egress\",\"limits\":{\"cpus\":0.5}}",
     NULL, NULL},
    {"sandboxes.create", "{\"network\":{\"allow\":[]}}", NULL, NULL},
    {"sandboxes.create", "{\"network\":\"full\"}", "/network", "'none', 'egress'"},
    {"sandboxes.create", "{\"network\":1}", "/network", "a string or an object"},
    {"sandboxes.create", "{\"isolation\":\"vm\"}", "/isolation", "'gvisor'"},
    {"sandboxes.create", "{\"metadata\":{\"a\":1}}", "/metadata/a", "must be strings"},
    {"sandboxes.create", "{\"checkpointable\":\"yes\"}", "/checkpointable", "true or false"},
    {"contexts.complete", "{\"sandbox\":\"s\",\"context\":\"c\",\"code\":\"x\",\"cursor\":1.0}",
     NULL, NULL},
    {"contexts.complete", "{\"sandbox\":\"s\",\"context\":\"c\",\"code\":\"x\",\"cursor\":1.5}",
     "/cursor", "an integer"},
    {"contexts.complete", "{\"sandbox\":\"s\",\"context\":\"c\",\"code\":\"x\",\"cursor\":-1}",
     "/cursor", "from 0 to"},
    {"templates.list", "{\"a\":1}", "/a", "takes no fields here"},
    {"runs.attach", "{\"sandbox\":\"s\",\"run\":\"r\",\"after\":-2}", "/after", "at least -1"},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":604800,\"retain\":86400}", NULL,
     NULL},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":604800.5}", "/timeout",
     "from 0 to 604800, not 604800.5."},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"timeout\":1e9}", "/timeout",
     "not 1000000000."},
    {"run_code", "{\"sandbox\":\"s\",\"code\":\"1\",\"retain\":86401}", "/retain",
     "from 0 to 86400, not 86401."},
    {"exec", "{\"sandbox\":\"s\",\"cmd\":\"1\",\"timeout\":604800,\"retain\":86400}", NULL, NULL},
    {"exec", "{\"sandbox\":\"s\",\"cmd\":\"1\",\"timeout\":604801}", "/timeout",
     "from 0 to 604800, not 604801."},
    {"exec", "{\"sandbox\":\"s\",\"cmd\":\"1\",\"retain\":86401}", "/retain",
     "from 0 to 86400, not 86401."},
};

static void check_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const kg_op_t *op = kg_op_find(rows[i].op);
        assert_non_null(op);
        json_t *args = NULL;
        kg_err_t err = {0};
        assert_int_equal(kg_json_object_parse(kg_slice_cstr(rows[i].args), 1 << 20, &args, &err),
                         0);
        int rc = kg_op_check(op, args, &err);
        json_decref(args);
        if (!rows[i].pointer) {
            assert_string_equal(err.message, "");
            assert_int_equal(rc, 0);
            continue;
        }
        assert_true(rc < 0);
        assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
        assert_string_equal(err.pointer, rows[i].pointer);
        if (!strstr(err.message, rows[i].says) && !strstr(err.hint, rows[i].says)) {
            fail_msg("%s: '%s' / '%s' lacks '%s'", rows[i].args, err.message, err.hint,
                     rows[i].says);
        }
    }
}

static void null_optional_is_taken_out(void **state)
{
    (void)state;
    kg_err_t err = {0};
    json_t *args = json_pack("{s:s, s:s, s:n, s:{s:n}}", "sandbox", "s", "code", "1", "timeout",
                             "limits", "events");
    assert_int_equal(kg_op_check(kg_op_find("run_code"), args, &err), 0);
    assert_null(json_object_get(args, "timeout"));
    assert_int_equal(json_object_size(json_object_get(args, "limits")), 0);
    json_decref(args);
}

static void integral_real_becomes_integer(void **state)
{
    (void)state;
    kg_err_t err = {0};
    json_t *args = json_pack("{s:s, s:s, s:f}", "sandbox", "s", "run", "r", "after", 3.0);
    assert_int_equal(kg_op_check(kg_op_find("runs.attach"), args, &err), 0);
    assert_int_equal(json_integer_value(json_object_get(args, "after")), 3);
    json_decref(args);
}

static void string_bounds_at_limit_and_one_more(void **state)
{
    (void)state;
    char key[130];
    memset(key, 'k', sizeof key);
    for (size_t len = 128; len <= 129; len++) {
        kg_err_t err = {0};
        json_t *args = json_pack("{s:s, s:s, s:s%}", "sandbox", "s", "code", "1", "key", key, len);
        assert_int_equal(kg_op_check(kg_op_find("run_code"), args, &err) == 0, len == 128);
        json_decref(args);
    }
}

/* --- Bytes ---------------------------------------------------------------------------------- */

static kg_err_code_t parse(const char *text, size_t len, kg_err_t *err)
{
    json_t *object = NULL;
    *err = (kg_err_t){0};
    int rc = kg_json_object_parse(kg_slice(text, len), 1 << 20, &object, err);
    json_decref(object);
    return rc < 0 ? err->code : KG_ERR_NONE;
}

static void parse_refuses_bad_bytes(void **state)
{
    static const struct {
        const char *text;
        const char *says;
        const char *hint; /* NULL: the usual one */
    } bad[] = {
        {"", "too early", NULL},
        {"{", "too early", NULL},
        {"{\"a\":1", "too early", NULL},
        {"{\"a\":1}x", "follows", "nothing behind"},
        {"{\"a\":1}{}", "follows", "nothing behind"},
        {"{'a':1}", "line 1", NULL},
        {"{\"a\":1,\"a\":2}", "twice", NULL},
        {"{\"a\":{\"b\":1,\"b\":2}}", "twice", NULL},
        {"{\"a\":\"\xff\"}", "UTF-8", NULL},
        {"{\"a\":\"\xc0\xaf\"}", "UTF-8", NULL},
        {"{\"a\":\"\xed\xa0\x80\"}", "UTF-8", NULL},
        {"{\"a\":\"x\\u0000y\"}", "U+0000", "U+0000"},
        {"{\"x\\u0000y\":1}", "U+0000", "U+0000"},
        {"{\"a\":\"\\ud800\"}", "line 1", "surrogate"},
        {"{\"a\":\"\\udc00\"}", "line 1", "surrogate"},
        {"{\"a\":12345678901234567890123}", "out of range", "smaller"},
        {"{\"a\":1e999}", "out of range", "smaller"},
        {"{\"a\":NaN}", "line 1", NULL},
        {"{\"a\":\"\n\"}", "line", NULL},
        {"\xef\xbb\xbf{}", "byte order mark", "byte order mark"},
        {"\xef\xbb\xbf", "byte order mark", "byte order mark"},
        {"\xef\xbb{}", "UTF-8", NULL},
    };
    (void)state;
    kg_err_t err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kg_err_code_t code = parse(bad[i].text, strlen(bad[i].text), &err);
        if (code != KG_ERR_INVALID_JSON || !strstr(err.message, bad[i].says)) {
            fail_msg("%s: %d '%s' lacks '%s'", bad[i].text, (int)code, err.message, bad[i].says);
        }
        if (bad[i].hint ? !strstr(err.hint, bad[i].hint) : err.hint[0] != '\0') {
            fail_msg("%s: hint '%s'", bad[i].text, err.hint);
        }
    }
    assert_int_equal(parse("{\"a\":\"\0\"}", 9, &err), KG_ERR_INVALID_JSON);
    assert_int_equal(parse("[1]", 3, &err), KG_ERR_INVALID_REQUEST);
    assert_int_equal(parse("null", 4, &err), KG_ERR_INVALID_REQUEST);
    assert_int_equal(parse("{\"a\":\"\\ud83d\\ude00\"}", 20, &err), KG_ERR_NONE);
}

static void parse_bounds_depth_before_parsing(void **state)
{
    (void)state;
    kg_err_t err;
    enum {
        DEEP = 10000
    };
    char *text = malloc(2 * DEEP + 16);
    assert_non_null(text);
    for (size_t depth = 62; depth <= DEEP;
         depth = depth < 64 ? depth + 1 : DEEP + (depth == DEEP)) {
        size_t n = 0;
        (void)stpcpy(text, "{\"a\":");
        n = 5;
        memset(text + n, '[', depth);
        n += depth;
        memset(text + n, ']', depth);
        n += depth;
        text[n++] = '}';
        kg_err_code_t code = parse(text, n, &err);
        assert_int_equal(code, depth + 1 <= KG_JSON_DEPTH_CAP ? KG_ERR_NONE : KG_ERR_INVALID_JSON);
        if (code) {
            assert_non_null(strstr(err.message, "deeper than 64"));
            assert_non_null(strstr(err.hint, "less deeply"));
        }
    }
    /* Brackets inside of strings are text. */
    (void)stpcpy(text, "{\"a\":\"\\\"");
    memset(text + 8, '[', 200);
    (void)stpcpy(text + 208, "\"}");
    assert_int_equal(parse(text, 210, &err), KG_ERR_NONE);
    free(text);
}

static void parse_bounds_values_before_parsing(void **state)
{
    (void)state;
    kg_err_t err;
    char *text = malloc(2 * KG_JSON_VALUES_CAP + 16);
    assert_non_null(text);
    for (unsigned commas = KG_JSON_VALUES_CAP - 2; commas <= KG_JSON_VALUES_CAP - 1; commas++) {
        size_t n = 6;
        (void)stpcpy(text, "{\"a\":[");
        for (unsigned i = 0; i < commas; i++) {
            text[n++] = '1';
            text[n++] = ',';
        }
        (void)stpcpy(text + n, "1]}");
        kg_err_code_t code = parse(text, n + 3, &err);
        assert_int_equal(code == KG_ERR_NONE, commas == KG_JSON_VALUES_CAP - 2);
    }
    assert_non_null(strstr(err.message, "more than 20000 values"));
    assert_non_null(strstr(err.hint, "fewer values"));
    free(text);
}

static void parse_refuses_over_cap(void **state)
{
    (void)state;
    kg_err_t err = {0};
    json_t *object = NULL;
    assert_true(kg_json_object_parse(kg_slice_cstr("{\"a\":1}"), 6, &object, &err) < 0);
    assert_int_equal(err.code, KG_ERR_TOO_LARGE);
    assert_int_equal(kg_json_object_parse(kg_slice_cstr("{\"a\":1}"), 7, &object, &err), 0);
    json_decref(object);
}

/* --- Parameters ----------------------------------------------------------------------------- */

static void params_become_typed_values(void **state)
{
    (void)state;
    kg_err_t err = {0};
    json_t *args = json_object();
    const kg_op_t *op = kg_op_find("sandboxes.list");
    assert_int_equal(kg_op_put_param(op, KG_IN_QUERY, "limit", "5", args, &err), 0);
    assert_int_equal(kg_op_put_param(op, KG_IN_QUERY, "metadata.team", "a b", args, &err), 0);
    assert_int_equal(kg_op_put_param(op, KG_IN_QUERY, "metadata.x.y", "", args, &err), 0);
    assert_int_equal(kg_op_check(op, args, &err), 0);
    assert_int_equal(json_integer_value(json_object_get(args, "limit")), 5);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(args, "metadata"), "team")), "a b");

    assert_true(kg_op_put_param(op, KG_IN_QUERY, "limit", "6", args, &err) < 0);
    assert_non_null(strstr(err.message, "twice"));
    assert_true(kg_op_put_param(op, KG_IN_QUERY, "metadata.team", "c", args, &err) < 0);
    assert_string_equal(err.pointer, "/metadata/team");
    json_decref(args);
}

static void bad_params_are_refused(void **state)
{
    static const struct {
        const char *op, *name, *value, *says;
    } bad[] = {
        {"sandboxes.list", "limit", "x", "an integer"},
        {"sandboxes.list", "limit", "", "an integer"},
        {"sandboxes.list", "limit", "99999999999999999999", "an integer"},
        {"sandboxes.list", "limi", "1", "Did you mean 'limit'"},
        {"sandboxes.list", "metadata", "1", "Did you mean 'metadata.NAME'"},
        {"sandboxes.list", "state", "\xff", "UTF-8"},
        {"sandboxes.list", "metadata.\xff", "1", "UTF-8"},
        {"runs.attach", "late", "1", "true or false"},
        {"contexts.variables", "wait", "nan", "a number"},
        {"run_code", "code", "1", "Unknown query"},
        {"fs.read", "offset", "1", "Fields here: path,"}, /* of frames alone */
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kg_err_t err = {0};
        json_t *args = json_object();
        int rc = kg_op_put_param(kg_op_find(bad[i].op), KG_IN_QUERY, bad[i].name, bad[i].value,
                                 args, &err);
        json_decref(args);
        if (rc >= 0 || err.code != KG_ERR_INVALID_REQUEST ||
            (!strstr(err.message, bad[i].says) && !strstr(err.hint, bad[i].says))) {
            fail_msg("%s=%s: '%s' '%s'", bad[i].name, bad[i].value, err.message, err.hint);
        }
    }
}

static void body_must_not_hold_path_fields(void **state)
{
    (void)state;
    kg_err_t err = {0};
    json_t *body = json_pack("{s:s, s:s}", "code", "1", "sandbox", "s");
    assert_true(kg_op_check_body(kg_op_find("run_code"), body, &err) < 0);
    assert_string_equal(err.pointer, "/sandbox");
    json_decref(body);
    body = json_pack("{s:i}", "zzz", 1);
    assert_true(kg_op_check_body(kg_op_find("sandboxes.update"), body, &err) < 0);
    assert_non_null(strstr(err.hint, "Fields here: name,"));
    assert_null(strstr(err.hint, "sandbox,"));
    json_decref(body);
}

/* --- The table ------------------------------------------------------------------------------ */

static void table_is_sound(void **state)
{
    (void)state;
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            assert_string_not_equal(ops[i].name, ops[k].name);
            assert_false(strcmp(ops[i].path, ops[k].path) == 0 &&
                         strcmp(ops[i].method, ops[k].method) == 0);
        }
        assert_non_null(ops[i].handler);
        if (ops[i].flags & KG_OP_MISSING) {
            continue;
        }
        /* Every path parameter is a required field, and the other way round. */
        for (const kg_field_t *f = ops[i].fields; f && f->name; f++) {
            char segment[64];
            snprintf(segment, sizeof segment, "{%s}", f->name);
            assert_int_equal(f->in == KG_IN_PATH, strstr(ops[i].path, segment) != NULL);
            assert_true(f->in != KG_IN_PATH || f->required);
            bool bodyless = strcmp(ops[i].method, "GET") == 0 ||
                            strcmp(ops[i].method, "DELETE") == 0 ||
                            ops[i].flags & (KG_OP_RAW_IN | KG_OP_TEXT_IN);
            assert_true(f->in != KG_IN_QUERY || bodyless);
            if (f->standard) {
                json_t *value = json_loads(f->standard, JSON_DECODE_ANY, NULL);
                assert_non_null(value);
                json_decref(value);
            }
        }
        if (strcmp(ops[i].method, "POST") == 0) {
            assert_non_null(kg_op_field(&ops[i], "key"));
        }
    }
}

static void names_are_found_and_guessed(void **state)
{
    (void)state;
    assert_non_null(kg_op_find("run_code"));
    assert_null(kg_op_find("metrics"));
    assert_null(kg_op_find("nope"));
    static const struct {
        const char *name;
        const char *says;
        const char *hint;
    } unknown[] = {
        {"run_cod", "No operation 'run_cod'.", "Did you mean 'run_code'?"},
        {"contexts.rest", "No operation", "Did you mean 'contexts.reset'?"},
        {"something.else.entirely", "No operation", "GET /v1/openapi.yaml lists them."},
        {"health", "'health' is an operation of HTTP alone.", "GET /healthz"},
        {"fs.upload", "HTTP alone", "POST /v1/sandboxes/{sandbox}/fs/uploads"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        kg_err_t err = {0};
        assert_true(kg_op_unknown(unknown[i].name, &err) < 0);
        assert_int_equal(err.code, KG_ERR_NOT_FOUND);
        assert_string_equal(err.pointer, "/op");
        assert_non_null(strstr(err.message, unknown[i].says));
        assert_string_equal(err.hint, unknown[i].hint);
    }
    assert_int_equal(kg_edit_distance("kitten", "sitting", 3), 3);
    assert_int_equal(kg_edit_distance("kitten", "sitting", 2), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_rows),
        cmocka_unit_test(null_optional_is_taken_out),
        cmocka_unit_test(integral_real_becomes_integer),
        cmocka_unit_test(string_bounds_at_limit_and_one_more),
        cmocka_unit_test(parse_refuses_bad_bytes),
        cmocka_unit_test(parse_bounds_depth_before_parsing),
        cmocka_unit_test(parse_bounds_values_before_parsing),
        cmocka_unit_test(parse_refuses_over_cap),
        cmocka_unit_test(params_become_typed_values),
        cmocka_unit_test(bad_params_are_refused),
        cmocka_unit_test(body_must_not_hold_path_fields),
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(names_are_found_and_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
