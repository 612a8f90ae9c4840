/* Documents that are made from tables: the files in docs/ are what the daemon says. Run with the
 * folder as argument; with `--write` after it the files are written anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/api.h"

typedef struct doc {
    const char *name;
    int (*make)(kg_buf_t *out);
} doc_t;

static const doc_t docs[] = {{"openapi.yaml", kg_openapi_yaml},
                             {"errors.md", kg_errors_markdown},
                             {"api.md", kg_reference_markdown}};

static char *read_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f) {
        fail_msg("%s cannot be read", path);
    }
    kg_buf_t text = {0};
    char piece[4096];
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0;) {
        assert_int_equal(kg_buf_append(&text, piece, n), 0);
    }
    fclose(f);
    return kg_buf_steal(&text, NULL);
}

static void files_are_what_the_tables_say(void **state)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(docs); i++) {
        kg_buf_t want = {0};
        assert_int_equal(docs[i].make(&want), 0);
        char *have = read_file(*state, docs[i].name);
        if (strcmp(have, want.data) != 0) {
            fail_msg("docs/%s is not what the tables say: run test_api_docs docs --write",
                     docs[i].name);
        }
        free(have);
        kg_buf_fini(&want);
    }
}

static void openapi_names_every_operation(void **state)
{
    (void)state;
    json_t *doc = kg_openapi_json();
    assert_non_null(doc);
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    for (size_t i = 0; i < count; i++) {
        json_t *path = json_object_get(json_object_get(doc, "paths"), ops[i].path);
        char method[8];
        snprintf(method, sizeof method, "%s", ops[i].method);
        for (char *p = method; *p; p++) {
            *p = (char)(*p | 0x20);
        }
        json_t *op = json_object_get(path, method);
        assert_int_equal(op == NULL, (ops[i].flags & KG_OP_MISSING) != 0);
        if (op) {
            assert_string_equal(json_string_value(json_object_get(op, "operationId")), ops[i].name);
        }
    }
    json_decref(doc);
}

/* Every $ref leads somewhere. */
static void check_refs(json_t *doc, json_t *node)
{
    const char *key;
    json_t *value;
    size_t i;
    json_array_foreach (node, i, value) {
        check_refs(doc, value);
    }
    json_object_foreach (node, key, value) {
        if (strcmp(key, "$ref") == 0 && json_is_string(value)) {
            char path[128];
            snprintf(path, sizeof path, "%s", json_string_value(value) + 2);
            json_t *at = doc;
            char *save = NULL;
            for (char *p = strtok_r(path, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
                at = json_object_get(at, p);
            }
            if (!at) {
                fail_msg("%s leads nowhere", json_string_value(value));
            }
        }
        check_refs(doc, value);
    }
}

static void openapi_refs_are_there(void **state)
{
    (void)state;
    json_t *doc = kg_openapi_json();
    check_refs(doc, doc);
    json_decref(doc);
}

static void yaml_quotes_what_could_be_read_otherwise(void **state)
{
    static const struct {
        const char *json;
        const char *yaml;
    } rows[] = {
        {"{\"a\":\"plain\",\"on\":1,\"200\":null}", "a: plain\n\"on\": 1\n\"200\": null\n"},
        {"{\"a\":\"no\",\"b\":\"1.0\",\"c\":\"x: y\",\"d\":\"\"}",
         "a: \"no\"\nb: \"1.0\"\nc: \"x: y\"\nd: \"\"\n"},
        {"{\"a\":[1,[2,3],{\"b\":true,\"c\":[]}],\"d\":{}}",
         "a:\n  - 1\n  - - 2\n    - 3\n  - b: true\n    c: []\nd: {}\n"},
        {"{\"a\":\"line\\nbreak \\u00e9\"}", "a: \"line\\nbreak \xc3\xa9\"\n"},
        {"[]", "[]\n"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        json_t *value = json_loads(rows[i].json, 0, NULL);
        kg_buf_t out = {0};
        assert_int_equal(kg_yaml_dump(value, &out), 0);
        assert_string_equal(out.data, rows[i].yaml);
        kg_buf_fini(&out);
        json_decref(value);
    }
}

static size_t times(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

static void docs_page_has_operations_objects_and_errors(void **state)
{
    (void)state;
    kg_buf_t out = {0};
    assert_int_equal(kg_docs_html(&out), 0);
    assert_non_null(strstr(out.data, "<code>POST /v1/sandboxes/{sandbox}/run_code</code>"));
    assert_non_null(strstr(out.data, "<code>limits.memory_mib</code>"));
    assert_non_null(strstr(out.data, "<h3 id=\"object-execution\">Object: Execution</h3>"));
    assert_non_null(strstr(out.data, "<code>run_expired</code></td><td>410"));
    assert_null(strstr(out.data, "/v1/snapshots"));
    kg_buf_fini(&out);
}

/* It is opened with nothing but the daemon at hand, and beside pages that are not ours. */
static void docs_page_brings_nothing_from_elsewhere(void **state)
{
    static const char *const strangers[] = {"<script", " src=", "http://", "https://", "@import"};
    (void)state;
    kg_buf_t out = {0};
    assert_int_equal(kg_docs_html(&out), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(strangers); i++) {
        assert_null(strstr(out.data, strangers[i]));
    }
    kg_buf_fini(&out);
}

static void docs_page_links_lead_to_one_place_each(void **state)
{
    (void)state;
    kg_buf_t out = {0};
    assert_int_equal(kg_docs_html(&out), 0);
    size_t links = 0;
    for (const char *at = strstr(out.data, "href=\"#"); at; at = strstr(at + 1, "href=\"#")) {
        char id[80];
        const char *name = at + strlen("href=\"#");
        snprintf(id, sizeof id, "id=\"%.*s\"", (int)strcspn(name, "\""), name);
        if (times(out.data, id) != 1) {
            fail_msg("%s is there %zu times", id, times(out.data, id));
        }
        links++;
    }
    assert_true(links > 100);
    kg_buf_fini(&out);
}

static void docs_page_closes_what_it_opens(void **state)
{
    static const char *const tags[] = {"table", "tr", "td", "th", "p", "code", "a", "h2", "h3"};
    (void)state;
    kg_buf_t out = {0};
    assert_int_equal(kg_docs_html(&out), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(tags); i++) {
        char bare[16];
        char named[16];
        char closed[16];
        snprintf(bare, sizeof bare, "<%s>", tags[i]);
        snprintf(named, sizeof named, "<%s ", tags[i]);
        snprintf(closed, sizeof closed, "</%s>", tags[i]);
        assert_int_equal(times(out.data, bare) + times(out.data, named), times(out.data, closed));
    }
    kg_buf_fini(&out);
}

static int write_files(const char *folder)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(docs); i++) {
        char path[4096];
        kg_buf_t text = {0};
        snprintf(path, sizeof path, "%s/%s", folder, docs[i].name);
        FILE *f = fopen(path, "w");
        if (!f || docs[i].make(&text) < 0 || fwrite(text.data, 1, text.len, f) != text.len ||
            fclose(f) != 0) {
            return 1;
        }
        kg_buf_fini(&text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s DOCS [--write]\n", argv[0]);
        return 2;
    }
    if (argc > 2 && strcmp(argv[2], "--write") == 0) {
        return write_files(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(files_are_what_the_tables_say, argv[1]),
        cmocka_unit_test(openapi_names_every_operation),
        cmocka_unit_test(openapi_refs_are_there),
        cmocka_unit_test(yaml_quotes_what_could_be_read_otherwise),
        cmocka_unit_test(docs_page_has_operations_objects_and_errors),
        cmocka_unit_test(docs_page_brings_nothing_from_elsewhere),
        cmocka_unit_test(docs_page_links_lead_to_one_place_each),
        cmocka_unit_test(docs_page_closes_what_it_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
