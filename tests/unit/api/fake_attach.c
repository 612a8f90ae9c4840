/* Clients at the fake context's kernel: what they send is counted, what they get a test says. */
#include <stdlib.h>
#include <string.h>

#include "fake_private.h"
#include "gateway/base/str.h"

struct kg_attach {
    kg_attach_sink_t sink;
    void *user;
    bool expects;
};

static fake_attach_t fake;

fake_attach_t *fake_attach(void)
{
    return &fake;
}

int kg_attach_open(kg_context_t *context,
                   const kg_attach_sink_t *sink,
                   void *user,
                   kg_attach_t **ret_attach,
                   kg_err_t *err)
{
    (void)context;
    if (fake.full) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "full");
    }
    kg_attach_t *a = calloc(1, sizeof *a);
    if (!a) {
        abort();
    }
    *a = (kg_attach_t){.sink = *sink, .user = user};
    fake.latest = a;
    fake.open++;
    *ret_attach = a;
    return 0;
}

void kg_attach_close(kg_attach_t **attach)
{
    fake.open -= *attach != NULL;
    fake.latest = fake.latest == *attach ? NULL : fake.latest;
    free(*attach);
    *attach = NULL;
}

int kg_attach_keep(kg_attach_t *attach, const kg_away_opts_t *opts)
{
    (void)attach;
    (void)kg_format(fake.name, sizeof fake.name, "%s", opts->name);
    fake.keeping++;
    return 0;
}

void kg_attach_missed(kg_attach_t *attach, const kg_ws_msg_t *msg)
{
    (void)attach;
    (void)msg;
    fake.missed++;
}

void kg_attach_leave(kg_attach_t **attach)
{
    fake.left += *attach != NULL;
    kg_attach_close(attach);
}

bool kg_attach_return(kg_attach_t **attach, const char *name)
{
    (void)attach;
    return strcmp(fake.name, name) == 0;
}

void kg_attach_greet(kg_attach_t *attach)
{
    (void)attach;
    fake.greeted++;
}

void kg_attach_expect_restart(kg_attach_t *attach, bool expected)
{
    fake.expecting += (unsigned)expected - (unsigned)attach->expects;
    attach->expects = expected;
}

int kg_attach_send(kg_attach_t *attach, const kg_ws_msg_t *frame, kg_err_t *err)
{
    (void)attach;
    fake.sent++;
    fake.channel = frame->channel;
    fake.buffers = frame->buffer_count;
    (void)kg_format(fake.header, sizeof fake.header, "%.*s", (int)frame->parts[0].len,
                    frame->parts[0].data);
    return fake.refuse ? kg_err_set(err, KG_ERR_INVALID_FRAME, "refused") : 0;
}

void fake_attach_message(const kg_ws_msg_t *msg)
{
    fake.latest->sink.on_message(fake.latest->user, msg);
}

void fake_attach_end(bool deleted)
{
    fake.latest->sink.on_end(fake.latest->user, deleted);
}

int fake_attach_shutdown(bool restart)
{
    kg_err_t err = {0};
    int rc = fake.latest->sink.may_shutdown(fake.latest->user, restart, &err);
    if (rc == 0) {
        fake.latest->sink.on_shutdown(fake.latest->user, restart);
    }
    return rc;
}

unsigned kg_context_attached(const kg_context_t *context)
{
    (void)context;
    return fake.open;
}
