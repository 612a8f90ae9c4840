/* Bytes as requests in Jupyter's dialect over a fake edge and a fake core: METHOD PATH?QUERY, then
 * a line with the key, then the body; requests are parted by U+0001. Every answer has a status and,
 * from 400 on, an object with message and reason. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "fake_edge.h"
#include "gateway/base/credential.h"
#include "gateway/compat/jupyter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(kg_http_t *http)
{
    int status = fake_http_status(http);
    const char *body = fake_http_body(http, SIZE_MAX);
    if (status < 200 || status > 599) {
        abort();
    }
    if (status >= 400) {
        json_t *json = json_loads(body, 0, NULL);
        if (!json_is_string(json_object_get(json, "message")) || !json_object_get(json, "reason")) {
            abort();
        }
        json_decref(json);
    }
}

static void request(kg_core_t *core, char *text)
{
    static const char *const methods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                          "PATCH", "DELETE", "OPTIONS"};
    char *at = text;
    char *line = strsep(&at, "\n");
    char *key = strsep(&at, "\n"); /* NULL where nothing is left */
    char *method = strsep(&line, " ");
    char *path = strsep(&line, "?");
    fake_request_t r = {.path = path, .query = line, .body = at};
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        r.method = strcmp(methods[i], method) == 0 ? methods[i] : r.method;
    }
    if (!path || path[0] != '/' || !r.method) {
        return;
    }
    if (key) {
        r.headers[0][0] = "Authorization";
        r.headers[0][1] = key;
    }
    kg_http_t *http = fake_http(&r);
    fake_work_run();
    fake_core_fire(core, KG_ERR_NONE);
    fake_work_run();
    check(http);
    fake_http_close(&http);
}

static bool ours(const char *text)
{
    const char *path = strchr(text, ' ');
    return path && (strncmp(path, " /api/", 6) == 0 || strncmp(path, " /kernelspecs/", 14) == 0);
}

/* A key, a path and a query in one: nothing is outside, nothing but one "?" is lost. */
static void split(kg_slice_t text)
{
    kg_slice_t key;
    kg_slice_t path;
    kg_slice_t query;
    if (kg_credential_before_path(text, &key, &path, &query) &&
        (key.data != text.data || path.data != key.data + key.len || path.data[0] != '/' ||
         query.data + query.len != text.data + text.len || query.data < path.data + path.len ||
         query.data > path.data + path.len + 1)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const allowed[] = {"KERNEL_*"};
    kg_err_t err = {0};
    kg_server_t *server = NULL;
    kg_jupyter_t *jupyter = NULL;
    kg_core_t *core = fake_core_new();
    kg_jupyter_config_t config = {.env = allowed, .env_count = 1, .sessions_max = 3};
    char *text = calloc(1, size + 1); /* strndup(3) is taken to read past the end */
    if (!text || kg_server_start(core, &(kg_server_config_t){0}, &server, &err) < 0 ||
        kg_jupyter_create(server, &config, &jupyter, &err) < 0) {
        abort();
    }
    memcpy(text, data, size);
    split(kg_slice(text, size));
    char *at = text;
    for (unsigned i = 0; at && i < 8; i++) {
        char *one = strsep(&at, "\1");
        if (ours(one)) {
            request(core, one);
        }
    }
    kg_server_close(&server, 0, NULL, NULL);
    kg_jupyter_destroy(&jupyter);
    fake_core_free(&core);
    free(text);
    return 0;
}
