/* Bytes as frames of a sandal.v1 socket, one a line (a line that begins with 0x01 is binary, 0x02
 * lets the run print, 0x03 ends it, 0x04 drops its log). Every frame out must be a JSON object with
 * id and type or run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "fake_edge.h"
#include "gateway/api/api.h"
#include "gateway/api/op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drain(kg_ws_t *ws)
{
    const char *frame;
    fake_work_run();
    for (unsigned i = 0; i < 10000 && (frame = fake_ws_frame(ws, 64)); i++) {
        json_error_t e;
        json_t *json = json_loads(frame, JSON_REJECT_DUPLICATES, &e);
        if (!json_object_get(json, "id") || !json_object_get(json, "type")) {
            fprintf(stderr, "%s: %s\n", e.text, frame);
            abort();
        }
        json_decref(json);
    }
}

static void line(kg_core_t *core, kg_ws_t *ws, const char *text, size_t len)
{
    switch (len ? text[0] : 0) {
    case 1:
        fake_ws_bytes(ws, text, len, true);
        break;
    case 2:
        fake_run(core);
        fake_run_event(core, KG_EVENT_STDOUT, "\"type\":\"stdout\",\"text\":\"0123456789\"");
        fake_run_flush(core);
        break;
    case 3:
        fake_run(core);
        fake_run_finish(core);
        break;
    case 4:
        fake_run_expire(core);
        break;
    default:
        fake_ws_bytes(ws, text, len, false);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_core_t *core = fake_core_new();
    kg_server_t *server = NULL;
    kg_err_t err = {0};
    int status;
    if (kg_server_start(core, &(kg_server_config_t){.no_auth = true, .runs_per_socket = 8}, &server,
                        &err) < 0) {
        abort();
    }
    kg_ws_t *ws = fake_upgrade(&(fake_request_t){.path = "/v1/sandboxes/box/ws", .unix_peer = true},
                               "sandal.v1", &status);
    if (!ws) {
        abort();
    }
    fake_run_piece(core, 7);
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        line(core, ws, (const char *)data + at, len);
        if (at % 3) {
            fake_core_fire(core, at % 2 ? KG_ERR_NONE : KG_ERR_KERNEL_START_FAILED);
            drain(ws);
        }
        at += len + 1;
    }
    drain(ws);
    fake_ws_close(&ws);
    kg_server_close(&server, 0, NULL, NULL);
    const fake_stats_t *s = fake_stats(core);
    if (s->attached || s->readers || s->watches) {
        abort();
    }
    fake_core_free(&core);
    return 0;
}
