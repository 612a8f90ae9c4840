/* gateway/context: clients whose connection has gone and who may come back. What they asked for
 * stays their own, and what they miss is kept for them: output up to so many bytes, the oldest goes
 * first; replies, questions and states, without which a client would wait for ever, last of all.
 * Text of one cell on one stream is kept as one message, for a kernel sends it in thousands. */
#include <errno.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/attach_internal.h"
#include "proto/json_scan.h"

#define STREAM_PIECE                                                                               \
    ((size_t)128 << 10) /* of text in one kept message, before the last addition                   \
                         */

enum {
    HEADER,
    PARENT,
    METADATA,
    CONTENT
};

typedef struct kg_kept {
    kg_channel_t channel;
    bool output;    /* may be dropped */
    size_t open;    /* a stream: {"name":…,"text":" of its content, which lacks its end */
    kg_buf_t bytes; /* the parts, then the buffers */
    size_t len[KG_WS_PARTS];
    size_t *buffer_len;
    size_t buffer_count;
    struct kg_kept *prev, *next;
    struct kg_kept *next_output;
} kg_kept_t;

struct kg_away {
    kg_core_t *core;
    struct kg_away *prev, *next; /* of the core's, until it is back */
    bool is_back;
    char name[KG_AWAY_NAME_MAX];
    uint64_t for_ns;
    size_t max;
    size_t bytes; /* of the kept */
    kg_kept_t *kept;
    kg_kept_t *first_output, *last_output; /* by next_output */
    bool lost;                             /* something was dropped: */
    size_t lost_bytes;
    kg_buf_t lost_parent; /* of the first such */
    kg_timer_t *patience; /* NULL: its connection is still closing */
};

/* ---- what is kept ---- */

static size_t weight(const kg_kept_t *k)
{
    return sizeof(*k) + k->bytes.len + k->buffer_count * sizeof(*k->buffer_len);
}

static void kept_free(kg_kept_t *k)
{
    kg_buf_fini(&k->bytes);
    free(k->buffer_len);
    free(k);
}

static void account(kg_away_t *away, size_t before, size_t now)
{
    away->bytes += now - before;
    away->core->away_bytes += now - before;
}

static void take_kept(kg_away_t *away, kg_kept_t *k)
{
    account(away, weight(k), 0);
    DL_DELETE(away->kept, k);
    if (k == away->first_output) {
        away->first_output = k->next_output;
        away->last_output = k->next_output ? away->last_output : NULL;
    }
}

static kg_slice_t part_of(const kg_kept_t *k, size_t part)
{
    size_t at = 0;
    for (size_t i = 0; i < part; i++) {
        at += k->len[i];
    }
    return kg_slice(k->bytes.data + at, k->len[part]);
}

static void drop(kg_away_t *away, kg_kept_t *k)
{
    if (!away->lost) {
        (void)kg_buf_append_slice(&away->lost_parent, part_of(k, PARENT));
    }
    away->lost = true;
    away->lost_bytes += k->bytes.len;
    take_kept(away, k);
    kept_free(k);
}

static void drop_oldest(kg_away_t *away)
{
    drop(away, away->first_output ? away->first_output : away->kept);
}

/* NULL: nothing is kept for anyone. */
static kg_away_t *find_largest(const kg_core_t *core)
{
    kg_away_t *largest = NULL;
    kg_away_t *away = NULL;
    DL_FOREACH (core->all_away, away) {
        largest = away->kept && (!largest || away->bytes > largest->bytes) ? away : largest;
    }
    return largest;
}

/* Over the bound of all it is who has most that loses, lest one's output costs another its replies.
 */
static void keep_within(kg_away_t *away)
{
    while (away->kept && away->bytes > away->max) {
        drop_oldest(away);
    }
    kg_away_t *largest = NULL;
    while (away->core->away_bytes > KG_AWAY_TOTAL_BYTES &&
           (largest = find_largest(away->core)) != NULL) {
        drop_oldest(largest);
    }
}

static kg_slice_t type_of(kg_slice_t header)
{
    return kg_json_get((kg_json_value_t){KG_JSON_OBJECT, header}, "msg_type").raw;
}

static bool is_output(const kg_ws_msg_t *msg)
{
    static const char *const small[] = {"\"status\"", "\"execute_input\"", "\"shutdown_reply\""};
    kg_slice_t type = type_of(msg->parts[HEADER]);
    for (size_t i = 0; i < KG_ARRAY_LEN(small); i++) {
        if (kg_slice_eq_cstr(type, small[i])) {
            return false;
        }
    }
    return msg->channel == KG_CHANNEL_IOPUB;
}

/* {"name":…,"text":"… without the end. 1: msg is no stream. */
static int open_stream(const kg_ws_msg_t *msg, kg_buf_t *out, size_t *ret_open)
{
    const kg_json_value_t content = {KG_JSON_OBJECT, msg->parts[CONTENT]};
    kg_json_value_t name = kg_json_get(content, "name");
    kg_json_value_t text = kg_json_get(content, "text");
    if (!kg_slice_eq_cstr(type_of(msg->parts[HEADER]), "\"stream\"") || msg->buffer_count ||
        name.type != KG_JSON_STRING || text.type != KG_JSON_STRING) {
        return 1;
    }
    int rc = kg_buf_append_cstr(out, "{\"name\":");
    rc = rc ? rc : kg_buf_append_slice(out, name.raw);
    rc = rc ? rc : kg_buf_append_cstr(out, ",\"text\":\"");
    *ret_open = out->len;
    return rc ? rc : kg_json_copy_string_body(out, text);
}

static bool same_stream(const kg_kept_t *last, const kg_ws_msg_t *msg, kg_slice_t content)
{
    if (!last || !last->open || last->len[CONTENT] > STREAM_PIECE || content.len < last->open ||
        !kg_slice_eq(part_of(last, PARENT), msg->parts[PARENT]) ||
        !kg_slice_eq(part_of(last, METADATA), msg->parts[METADATA])) {
        return false;
    }
    return memcmp(part_of(last, CONTENT).data, content.data, last->open) == 0;
}

static int fill(kg_kept_t *k, const kg_ws_msg_t *msg, kg_slice_t content)
{
    int rc = 0;
    for (size_t i = 0; i < KG_WS_PARTS && rc == 0; i++) {
        kg_slice_t part = i == CONTENT ? content : msg->parts[i];
        k->len[i] = part.len;
        rc = kg_buf_append_slice(&k->bytes, part);
    }
    size_t count = msg->buffer_count;
    k->buffer_count = count;
    k->buffer_len = count ? calloc(count, sizeof(size_t)) : NULL;
    if (count && !k->buffer_len) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        k->buffer_len[i] = msg->buffers[i].len;
        rc = kg_buf_append_slice(&k->bytes, msg->buffers[i]);
    }
    return rc;
}

static void add_kept(kg_away_t *away, kg_kept_t *k)
{
    DL_APPEND(away->kept, k);
    account(away, 0, weight(k));
    if (k->output) {
        *(away->last_output ? &away->last_output->next_output : &away->first_output) = k;
        away->last_output = k;
    }
}

static int keep(kg_away_t *away, const kg_ws_msg_t *msg)
{
    KG_AUTO_BUF kg_buf_t stream = {0};
    size_t open = 0;
    int rc = open_stream(msg, &stream, &open);
    if (rc < 0) {
        return rc;
    }
    kg_slice_t content = rc == 0 ? kg_buf_slice(&stream) : msg->parts[CONTENT];
    kg_kept_t *last = away->kept ? away->kept->prev : NULL;
    if (rc == 0 && same_stream(last, msg, content)) {
        size_t before = weight(last);
        rc = kg_buf_append(&last->bytes, content.data + open, content.len - open);
        last->len[CONTENT] += rc ? 0 : content.len - open;
        account(away, before, weight(last));
        return rc;
    }
    kg_kept_t *k = calloc(1, sizeof(*k));
    if (!k || fill(k, msg, content)) {
        if (k) {
            kept_free(k);
        }
        return -ENOMEM;
    }
    k->channel = msg->channel;
    k->output = is_output(msg);
    k->open = rc == 0 ? open : 0;
    add_kept(away, k);
    return 0;
}

void kg_attach_missed(kg_attach_t *attach, const kg_ws_msg_t *msg)
{
    kg_away_t *away = attach->away;
    if (!away) {
        return;
    }
    if (keep(away, msg)) {
        away->lost = true;
    }
    keep_within(away);
}

/* ---- going ---- */

int kg_attach_keep(kg_attach_t *attach, const kg_away_opts_t *opts)
{
    if (attach->away || !attach->context) {
        return attach->away ? 0 : -ENOENT;
    }
    kg_away_t *away = calloc(1, sizeof(*away));
    if (!away) {
        return -ENOMEM;
    }
    away->core = attach->context->core;
    away->for_ns = kg_ms(opts->for_ms);
    away->max = opts->bytes;
    (void)kg_format(away->name, sizeof(away->name), "%s", opts->name);
    DL_APPEND(away->core->all_away, away);
    attach->away = away;
    return 0;
}

void kg_away_destroy(kg_away_t **away)
{
    kg_away_t *a = *away;
    *away = NULL;
    if (!a) {
        return;
    }
    while (a->kept) {
        kg_kept_t *k = a->kept;
        take_kept(a, k);
        kept_free(k);
    }
    if (!a->is_back) {
        DL_DELETE(a->core->all_away, a);
    }
    kg_timer_close(&a->patience);
    kg_buf_fini(&a->lost_parent);
    free(a);
}

bool kg_attach_is_left(const kg_attach_t *attach)
{
    return attach->away && attach->away->patience;
}

static void give_up(void *user)
{
    kg_attach_t *attach = user;
    kg_attach_close(&attach);
}

/* The one that has been away for longest. */
static kg_attach_t *find_left(const kg_context_t *context, const char *name)
{
    kg_attach_t *a = NULL;
    DL_FOREACH (context->bridge->attaches, a) {
        if (kg_attach_is_left(a) && (!name || strcmp(a->away->name, name) == 0)) {
            return a;
        }
    }
    return NULL;
}

static void runs_wait(const kg_attach_t *attach)
{
    kg_run_t *run = NULL;
    DL_FOREACH (attach->context->sandbox->runs, run) {
        if (run->client && run->client->attach == attach) {
            kg_run_client_waits(run);
        }
    }
}

void kg_attach_leave(kg_attach_t **attach)
{
    kg_attach_t *a = *attach;
    if (!a || !a->context || !a->away || a->away->for_ns == 0 ||
        kg_timer_create(a->context->core->loop, give_up, a, &a->away->patience)) {
        kg_attach_close(attach);
        return;
    }
    *attach = NULL;
    kg_context_t *context = a->context;
    kg_timer_start(a->away->patience, a->away->for_ns, 0);
    /* Those who left later stand behind. */
    DL_DELETE(context->bridge->attaches, a);
    DL_APPEND(context->bridge->attaches, a);
    context->bridge->count--;
    context->bridge->left++;
    runs_wait(a);
    if (context->bridge->left > KG_AWAY_MAX) {
        kg_attach_t *longest = find_left(context, NULL);
        kg_attach_close(&longest);
    }
}

/* ---- coming back ---- */

static void say_lost(kg_attach_t *attach, const kg_away_t *away)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    kg_slice_t parent = kg_buf_slice(&away->lost_parent);
    if (away->lost && !kg_buf_printf(&content,
                                     "{\"name\":\"stderr\",\"text\":\"[%.1f MB that came while "
                                     "this client was away are not shown. The runs' logs have "
                                     "them.]\\n\"}",
                                     (double)away->lost_bytes / 1e6)) {
        kg_bridge_say(attach->context, attach, KG_CHANNEL_IOPUB, "stream", parent,
                      kg_buf_slice(&content));
    }
}

static int replay_one(kg_attach_t *attach, kg_kept_t *k, kg_slice_t buffers[KG_WS_BUFFERS_MAX])
{
    kg_ws_msg_t msg = {.channel = k->channel, .buffers = buffers, .buffer_count = k->buffer_count};
    if (k->open) {
        if (kg_buf_append_cstr(&k->bytes, "\"}")) {
            return -ENOMEM;
        }
        k->len[CONTENT] += 2;
    }
    size_t at = 0;
    for (size_t i = 0; i < KG_WS_PARTS; i++) {
        msg.parts[i] = part_of(k, i);
        at += k->len[i];
    }
    for (size_t i = 0; i < k->buffer_count; i++) {
        buffers[i] = kg_slice(k->bytes.data + at, k->buffer_len[i]);
        at += k->buffer_len[i];
    }
    kg_bridge_deliver(attach->context, attach, &msg);
    return 0;
}

/* It may be cut again on the way: what is left of it is missed again. */
static void replay(kg_attach_t *attach, kg_away_t *away)
{
    kg_slice_t buffers[KG_WS_BUFFERS_MAX];
    say_lost(attach, away);
    while (away->kept) {
        kg_kept_t *k = away->kept;
        take_kept(away, k);
        (void)replay_one(attach, k, buffers);
        kept_free(k);
    }
}

bool kg_attach_return(kg_attach_t **attach, const char *name)
{
    kg_attach_t *fresh = *attach;
    kg_attach_t *a = fresh->context ? find_left(fresh->context, name) : NULL;
    if (!a) {
        return false;
    }
    kg_away_t *away = a->away;
    a->away = NULL;
    away->is_back = true;
    DL_DELETE(away->core->all_away, away);
    a->sink = fresh->sink;
    a->user = fresh->user;
    a->context->bridge->left--;
    a->context->bridge->count++;
    kg_attach_close(attach);
    *attach = a;
    runs_wait(a);
    replay(a, away);
    kg_away_destroy(&away);
    return true;
}
