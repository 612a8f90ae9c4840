/* gateway/context: the subshells of a kernel. Only ids that the kernel itself has given are passed
 * on to it: at others some kernels hang, and none knows those of the one before it. */
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"

struct kg_subshells {
    kg_request_t *listing; /* the kernel is asked which it has */
    unsigned count;
    char ids[KG_SUBSHELLS_MAX][KG_MSG_ID_MAX];
};

void kg_subshells_free(kg_inc_t *inc)
{
    if (inc->subshells) {
        kg_request_release(&inc->subshells->listing);
        free(KG_TAKE(inc->subshells));
    }
}

/* Its place, or the count where it is not known. */
static unsigned find(const kg_subshells_t *subshells, const char *id)
{
    unsigned i = 0;
    while (i < subshells->count && strcmp(subshells->ids[i], id) != 0) {
        i++;
    }
    return i;
}

static bool knows(const kg_inc_t *inc, const char *id)
{
    return inc && inc->subshells && find(inc->subshells, id) < inc->subshells->count;
}

static kg_subshells_t *subshells_of(kg_inc_t *inc)
{
    inc->subshells = inc->subshells ? inc->subshells : calloc(1, sizeof(*inc->subshells));
    return inc->subshells;
}

/* What is no id, or has no room, stays unknown: requests that name it are refused. */
static void add(kg_inc_t *inc, kg_json_value_t id)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_subshells_t *subshells = subshells_of(inc);
    if (!subshells || id.type != KG_JSON_STRING || kg_json_decode_string(&text, id) || !text.len ||
        text.len >= KG_MSG_ID_MAX || memchr(text.data, 0, text.len) ||
        subshells->count == KG_SUBSHELLS_MAX) {
        return;
    }
    char *place = subshells->ids[subshells->count];
    memcpy(place, text.data, text.len);
    place[text.len] = '\0';
    subshells->count += find(subshells, place) == subshells->count;
}

void kg_subshell_ended(kg_inc_t *inc, const char *id)
{
    if (!knows(inc, id)) {
        return;
    }
    kg_subshells_t *subshells = inc->subshells;
    unsigned i = find(subshells, id);
    unsigned last = --subshells->count;
    if (i != last) {
        memcpy(subshells->ids[i], subshells->ids[last], KG_MSG_ID_MAX);
    }
}

static void add_all(kg_inc_t *inc, kg_json_value_t ids)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t id;
    if (ids.type != KG_JSON_ARRAY) {
        return;
    }
    if (inc->subshells) {
        inc->subshells->count = 0;
    }
    kg_json_iter_init(&it, ids);
    while (kg_json_iter_next(&it, &key, &id)) {
        add(inc, id);
    }
}

void kg_subshell_reply(kg_inc_t *inc, const kg_client_msg_t *asked, const kg_jmsg_t *reply)
{
    kg_json_value_t what = kg_json_get(reply->content, "subshell_id");
    switch ((int)asked->kind) {
    case KG_CLIENT_CREATE_SUBSHELL:
        add(inc, what);
        break;
    case KG_CLIENT_DELETE_SUBSHELL: /* a list may have named it after it was sent */
        kg_subshell_ended(inc, asked->subshell_id);
        break;
    case KG_CLIENT_LIST_SUBSHELL:
        add_all(inc, what);
        break;
    default:
        break;
    }
}

/* ---- may it go? ---- */

static unsigned being_made(const kg_bridge_t *bridge)
{
    const kg_forward_t *f = NULL;
    unsigned count = 0;
    DL_FOREACH (bridge->forwards, f) {
        count += f->msg.kind == KG_CLIENT_CREATE_SUBSHELL && !f->answered;
    }
    return count;
}

int kg_subshell_check_room(const kg_context_t *context, const kg_client_msg_t *msg, kg_err_t *err)
{
    if (msg->kind != KG_CLIENT_CREATE_SUBSHELL) {
        return 0;
    }
    bool there = context->state == KG_CTX_READY && context->inc && context->inc->subshells;
    unsigned count = being_made(context->bridge) + (there ? context->inc->subshells->count : 0);
    return count < KG_SUBSHELLS_MAX
               ? 0
               : kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                            "This kernel has %d subshells, which is the most.", KG_SUBSHELLS_MAX);
}

bool kg_subshell_waits(const kg_context_t *context, const kg_client_msg_t *msg)
{
    const kg_inc_t *inc = context->inc;
    return msg->channel == KG_CHANNEL_SHELL && msg->subshell_id[0] && inc && inc->subshells &&
           inc->subshells->listing;
}

int kg_subshell_choose(const kg_context_t *context,
                       const kg_client_msg_t *msg,
                       const char **ret_id,
                       kg_err_t *err)
{
    *ret_id = NULL;
    if (msg->channel != KG_CHANNEL_SHELL || !msg->subshell_id[0]) {
        return 0;
    }
    if (knows(context->inc, msg->subshell_id)) {
        *ret_id = msg->subshell_id;
        return 0;
    }
    bool any =
        msg->kind == KG_CLIENT_KERNEL_INFO || !(kg_bridge_features(context) & KG_CLIENT_SUBSHELLS);
    return any ? 0
               : kg_err_set(err, KG_ERR_NOT_FOUND, "This kernel has no subshell %s.",
                            msg->subshell_id);
}

/* ---- a kernel of an earlier gateway ---- */

static void on_list(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    kg_inc_t *inc = user;
    (void)prepared_take;
    if (channel == KG_CHANNEL_CONTROL) {
        add_all(inc, kg_json_get(msg->content, "subshell_id"));
    }
}

static void on_list_done(void *user, const kg_request_end_t *end)
{
    kg_inc_t *inc = user;
    if (end->how != KG_REQUEST_DONE && end->how != KG_REQUEST_NO_IDLE && inc->context) {
        kg_log(KG_LOG_WARN, "kernel.subshells_unknown", "context=%s", inc->context->id);
    }
    kg_request_release(&inc->subshells->listing);
    if (inc->context) {
        kg_bridge_pump(inc->context);
    }
}

void kg_subshells_ask(kg_inc_t *inc)
{
    static const kg_request_sink_t sink = {.on_message = on_list, .on_done = on_list_done};
    const kg_kernel_forward_t what = {
        .channel = KG_CHANNEL_CONTROL,
        .msg_type = "list_subshell_request",
        .metadata = kg_slice_cstr("{}"),
        .content = kg_slice_cstr("{}"),
    };
    if (kg_bridge_features(inc->context) & KG_CLIENT_SUBSHELLS && subshells_of(inc)) {
        (void)kg_kernel_forward(inc->kernel, &what, &sink, inc, &inc->subshells->listing, NULL);
    }
}
