/* Routes and their parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/view/router.h"

static kg_route_t find(const char *method, const char *path)
{
    kg_route_t route;
    kg_route_find(kg_slice_cstr(method), kg_slice_cstr(path), &route);
    return route;
}

static void paths_lead_to_operations(void **state)
{
    static const struct {
        const char *method, *path, *op;
    } rows[] = {
        {"GET", "/healthz", "health"},
        {"HEAD", "/healthz", "health"},
        {"POST", "/v1/sandboxes", "sandboxes.create"},
        {"GET", "/v1/sandboxes/a", "sandboxes.get"},
        {"DELETE", "/v1/sandboxes/a%2Fb", "sandboxes.delete"},
        {"POST", "/v1/sandboxes/a/run_code", "run_code"},
        {"GET", "/v1/sandboxes/a/runs/b/events", "runs.attach"},
        {"POST", "/v1/sandboxes/a/contexts/b/reset", "contexts.reset"},
        {"GET", "/v1/sandboxes/run_code/runs", "runs.list"},
        {"PUT", "/v1/sandboxes/a/fs/file", "fs.write"},
        {"GET", "/v1/openapi.yaml", "openapi"},
        {"GET", "/v1/sandboxes/a%2Fcontexts", "sandboxes.get"},
        {"DELETE", "/v1/sandboxes/a/contexts/..%2f..%2fa", "contexts.delete"},
        {"GET", "/v1/sandboxes/%2e%2e", "sandboxes.get"},
        {"GET", "/v1/sandboxe%73/a;b", "sandboxes.get"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_route_t r = find(rows[i].method, rows[i].path);
        assert_non_null(r.op);
        assert_string_equal(r.op->name, rows[i].op);
    }
}

static void other_paths_lead_nowhere(void **state)
{
    static const char *const paths[] = {"/",
                                        "",
                                        "/v1",
                                        "/v2/sandboxes",
                                        "/v1/sandboxes/",
                                        "/v1/sandboxes//run_code",
                                        "/v1/sandboxes/a/b",
                                        "/healthz/",
                                        "/v1/sandboxes/a/run_code/x",
                                        "/v1/sandboxes/..",
                                        "/v1/sandboxes/a/contexts/.",
                                        "/v1/sandboxes/a/../b",
                                        "/v1/./sandboxes",
                                        "/v1%2fsandboxes",
                                        "healthz"};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(paths); i++) {
        kg_route_t r = find("GET", paths[i]);
        assert_null(r.op);
        assert_false(r.known);
    }
}

static void wrong_method_names_the_right_ones(void **state)
{
    (void)state;
    assert_string_equal(find("PUT", "/v1/sandboxes").allow, "POST, GET, HEAD, OPTIONS");
    assert_string_equal(find("POST", "/v1/sandboxes/a").allow, "GET, HEAD, PATCH, DELETE, OPTIONS");
    assert_string_equal(find("GET", "/v1/sandboxes/a/run_code").allow, "POST, OPTIONS");
    assert_true(find("PATCH", "/healthz").known);
}

static int params(const char *path, const char *query, json_t **ret, kg_err_t *err)
{
    *ret = json_object();
    *err = (kg_err_t){0};
    kg_route_t r = find("GET", path);
    assert_non_null(r.op);
    return kg_route_params(r.op, kg_slice_cstr(path), kg_slice_cstr(query), *ret, err);
}

static void parameters_are_decoded_once(void **state)
{
    (void)state;
    json_t *args;
    kg_err_t err;
    assert_int_equal(
        params("/v1/sandboxes/a%2Fb%2541/runs/r+1/events", "after=7&late=true", &args, &err), 0);
    assert_string_equal(json_string_value(json_object_get(args, "sandbox")), "a/b%41");
    assert_string_equal(json_string_value(json_object_get(args, "run")), "r+1");
    assert_int_equal(json_integer_value(json_object_get(args, "after")), 7);
    json_decref(args);
    assert_int_equal(params("/v1/sandboxes", "&metadata.a=b+c%26;d&limit=3&", &args, &err), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(args, "metadata"), "a")),
                        "b c&;d");
    json_decref(args);
}

static void malformed_parameters_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"/v1/sandboxes/%zz", ""},     {"/v1/sandboxes/%4", ""},
        {"/v1/sandboxes/a%00", ""},    {"/v1/sandboxes/%ff", ""},
        {"/v1/sandboxes", "limit=%"},  {"/v1/sandboxes", "limit=1&limit=2"},
        {"/v1/sandboxes", "nope=1"},   {"/v1/sandboxes", "=1"},
        {"/v1/sandboxes", "limit"},    {"/v1/sandboxes/a", "limit=1"},
        {"/v1/sandboxes", "state=%00"}};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        json_t *args;
        kg_err_t err;
        assert_true(params(rows[i][0], rows[i][1], &args, &err) < 0);
        assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
        json_decref(args);
    }
}

static void sockets_have_two_paths(void **state)
{
    char sandbox[8];
    (void)state;
    assert_true(kg_route_websocket(kg_slice_cstr("/v1/ws"), sandbox, sizeof sandbox));
    assert_string_equal(sandbox, "");
    assert_true(
        kg_route_websocket(kg_slice_cstr("/v1/sandboxes/a%62/ws"), sandbox, sizeof sandbox));
    assert_string_equal(sandbox, "ab");
    assert_false(
        kg_route_websocket(kg_slice_cstr("/v1/sandboxes/12345678/ws"), sandbox, sizeof sandbox));
    assert_false(kg_route_websocket(kg_slice_cstr("/v1/sandboxes//ws"), sandbox, sizeof sandbox));
    assert_false(kg_route_websocket(kg_slice_cstr("/v1/ws/"), sandbox, sizeof sandbox));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_lead_to_operations),
        cmocka_unit_test(other_paths_lead_nowhere),
        cmocka_unit_test(wrong_method_names_the_right_ones),
        cmocka_unit_test(parameters_are_decoded_once),
        cmocka_unit_test(malformed_parameters_are_refused),
        cmocka_unit_test(sockets_have_two_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
