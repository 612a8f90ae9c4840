#include "tests/unit/context/attach_client.h"

#include <string.h>

static kg_slice_t text_of(kg_slice_t object, const char *name)
{
    kg_json_value_t v = kg_json_get((kg_json_value_t){KG_JSON_OBJECT, object}, name);
    return v.type == KG_JSON_STRING ? kg_slice(v.raw.data + 1, v.raw.len - 2) : kg_slice("-", 1);
}

static void on_message(void *user, const kg_ws_msg_t *msg)
{
    client_t *c = user;
    bool reply = msg->channel != KG_CHANNEL_IOPUB;
    kg_slice_t status = text_of(msg->parts[3], reply ? "status" : "execution_state");
    c->replies += reply;
    c->refused += reply && kg_slice_eq_cstr(status, "error");
    const kg_slice_t words[] = {kg_slice_cstr(kg_channel_name(msg->channel)),
                                text_of(msg->parts[0], "msg_type"),
                                text_of(msg->parts[1], "msg_id"), status};
    for (size_t i = 0; i < KG_ARRAY_LEN(words); i++) {
        assert_int_equal(kg_buf_append_slice(&c->heard, words[i]), 0);
        assert_int_equal(kg_buf_append_char(&c->heard, i + 1 < KG_ARRAY_LEN(words) ? ' ' : '\n'),
                         0);
    }
}

static int may_shutdown(void *user, bool restart, kg_err_t *err)
{
    (void)user;
    return restart ? kg_err_set(err, KG_ERR_FORBIDDEN, "no") : 0;
}

static void on_shutdown(void *user, bool restart)
{
    client_t *c = user;
    assert_false(restart);
    c->deleted = true;
}

static void on_end(void *user, bool deleted)
{
    client_t *c = user;
    c->ended = true;
    c->deleted = deleted;
}

const kg_attach_sink_t client_sink = {.on_message = on_message,
                                      .may_shutdown = may_shutdown,
                                      .on_shutdown = on_shutdown,
                                      .on_end = on_end};

void open_client_of(client_t *c, kg_context_t *context, const char *who)
{
    kg_err_t err = {0};
    kg_attach_sink_t sink = client_sink;
    sink.who = who;
    *c = (client_t){0};
    assert_int_equal(kg_attach_open(context, &sink, c, &c->attach, &err), 0);
}

void open_client(client_t *c, kg_context_t *context)
{
    open_client_of(c, context, NULL);
}

void close_client(client_t *c)
{
    kg_attach_close(&c->attach);
    kg_buf_fini(&c->heard);
}

void say_with(client_t *c,
              kg_channel_t channel,
              const char *type,
              const char *id,
              const char *text,
              kg_slice_t buffer)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    kg_err_t err = {0};
    assert_int_equal(kg_buf_printf(&header,
                                   "{\"msg_id\":\"%s\",\"msg_type\":\"%s\",\"session\":\"c\"}", id,
                                   type),
                     0);
    const kg_ws_msg_t msg = {
        .channel = channel,
        .parts = {kg_buf_slice(&header), kg_slice_cstr("{}"), kg_slice_cstr("{}"),
                  kg_slice_cstr(text)},
        .buffers = &buffer,
        .buffer_count = buffer.len > 0,
    };
    assert_int_equal(kg_attach_send(c->attach, &msg, &err), 0);
}

void say(client_t *c, kg_channel_t channel, const char *type, const char *id, const char *text)
{
    say_with(c, channel, type, id, text, (kg_slice_t){0});
}

static bool enough(void *arg)
{
    const client_t *c = arg;
    return c->replies >= c->want;
}

void await(rig_t *rig, client_t *c, unsigned replies)
{
    c->want = replies;
    rig_until(rig, enough, c, 20000);
}

bool heard(const client_t *c, const char *text)
{
    return c->heard.data && strstr(c->heard.data, text);
}

unsigned times(const client_t *c, const char *text)
{
    unsigned n = 0;
    for (const char *at = c->heard.data; at && (at = strstr(at, text)) != NULL; at++) {
        n++;
    }
    return n;
}
