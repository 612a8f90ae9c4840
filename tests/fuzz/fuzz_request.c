/* Bytes as a request: the first byte chooses the operation, the second how the rest arrives: as a
 * body, or as a query. Whatever passes is called on a fake core; whatever does not must have a code
 * and a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_core.h"
#include "gateway/api/api.h"
#include "gateway/api/validate.h"
#include "gateway/view/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_reply(void *user, const kg_answer_t *answer)
{
    (void)user;
    if (answer->status < 200 || answer->status > 299) {
        abort();
    }
}

static void check_err(const kg_err_t *err)
{
    if (err->code == KG_ERR_NONE || err->message[0] == '\0' || kg_err_status(err->code) < 400) {
        abort();
    }
}

static void on_fail(void *user, const kg_err_t *err)
{
    (void)user;
    check_err(err);
}

static void on_follow(void *user, const kg_follow_t *follow)
{
    (void)user;
    if (!follow->run) {
        abort();
    }
}

static void on_give(void *user, const kg_give_t *give)
{
    (void)user;
    kg_source_t *source = give->source;
    kg_source_close(&source);
}

static const kg_call_view_t view = {
    .reply = on_reply, .fail = on_fail, .follow = on_follow, .give = on_give};

static void call(const kg_op_t *op, json_t *args)
{
    kg_core_t *core = fake_core_new();
    kg_api_t *api = NULL;
    kg_principal_t who;
    kg_call_t *pending = NULL;
    kg_auth_local(&who);
    if (kg_api_create(core, kg_clock_real(), NULL, NULL, &api) < 0) {
        abort();
    }
    kg_api_call(api, op, args, &who, &view, NULL, &pending);
    fake_core_fire(core, KG_ERR_NONE);
    kg_api_destroy(&api);
    fake_core_free(&core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t count;
    const kg_op_t *op = &kg_ops(&count)[data[0] % count];
    kg_slice_t rest = kg_slice((const char *)data + 2, size - 2);
    kg_err_t err = {0};
    json_t *args = NULL;
    int rc = 0;
    if (data[1] & 1) {
        args = json_object();
        /* The template of the path is a path of its own. */
        rc = kg_route_params(op, kg_slice_cstr(op->path), rest, args, &err);
    } else {
        rc = kg_json_object_parse(rest, 1 << 20, &args, &err);
        if (rc == 0 && data[1] & 2) {
            rc = kg_op_check_body(op, args, &err);
        }
    }
    rc = rc < 0 || op->flags & KG_OP_MISSING ? rc : kg_op_check(op, args, &err);
    if (rc < 0) {
        check_err(&err);
        json_decref(args);
        return 0;
    }
    call(op, args);
    return 0;
}
