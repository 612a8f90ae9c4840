/* The gateway's requests. It is not trusted: frames are checked by the codec, ids against the
 * table, nothing else is taken from it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/seqsock.h"

#define READ_BUDGET 16 /* requests a loop turn */

void keeper_status_set(kg_kp_status_t *status, const kg_err_t *err)
{
    status->code = (uint32_t)err->code;
    (void)snprintf(status->message, sizeof(status->message), "%.*s",
                   (int)sizeof(status->message) - 1, err->message);
    (void)snprintf(status->hint, sizeof(status->hint), "%.*s", (int)sizeof(status->hint) - 1,
                   err->hint);
}

static void do_hello(kg_keeper_t *k, uint32_t seq)
{
    kg_kp_reply_t reply;
    (void)kg_kp_reply_init(&reply, KG_KP_HELLO, seq);
    reply.hello.keeper_pid = getpid();
    reply.hello.is_root = k->host.is_root;
    k->hello_done = true;
    keeper_send(k, &reply, -1);
}

/* All that pause do it by the freezer. */
static void
say_pauses(const kg_keeper_t *k, const kg_launcher_t *launcher, kg_kp_launcher_row_t *row)
{
    const kg_cgroups_t *groups = &k->host.cgroups;
    row->pauses = launcher->pause && groups->version[KG_CG_FREEZE] != KG_CG_NONE;
    if (!launcher->pause) {
        (void)snprintf(row->pauses_not, sizeof(row->pauses_not),
                       "isolation %s cannot pause a sandbox", launcher->name);
    } else if (!row->pauses) {
        (void)snprintf(row->pauses_not, sizeof(row->pauses_not),
                       "sandboxes can't be paused here: %.120s", groups->reason[KG_CG_FREEZE]);
    }
}

static void do_launchers(kg_keeper_t *k, uint32_t seq)
{
    kg_kp_reply_t reply;
    size_t count;
    const kg_launcher_t *const *rows = kg_launchers(&count);

    (void)kg_kp_reply_init(&reply, KG_KP_LAUNCHER_TABLE, seq);
    for (size_t i = 0; i < count && i < KG_KP_LAUNCHERS; i++) {
        kg_kp_launcher_row_t *row = &reply.launchers.rows[i];
        (void)snprintf(row->name, sizeof(row->name), "%s", rows[i]->name);
        row->rank = rows[i]->rank;
        row->available = rows[i]->probe(&k->host, row->reason) == 0;
        say_pauses(k, rows[i], row);
        reply.launchers.count++;
    }
    keeper_send(k, &reply, -1);
}

static void do_list(kg_keeper_t *k, const kg_kp_list_t *request)
{
    kg_kp_reply_t reply;
    uint32_t index = 0;

    (void)kg_kp_reply_init(&reply, KG_KP_LIST, request->head.seq);
    reply.list.total = k->sandbox_count;
    for (const kg_sb_t *sb = k->sandboxes; sb && reply.list.count < KG_KP_LIST_ROWS;
         sb = sb->next) {
        if (index++ < request->from) {
            continue;
        }
        kg_kp_list_row_t *row = &reply.list.rows[reply.list.count++];
        memcpy(row->id, sb->id, sizeof(row->id));
        row->slot = sb->slot;
        row->uid = sb->uid;
        row->init_pid = sb->init_pid;
        row->state = (uint32_t)sb->state;
        (void)snprintf(row->launcher, sizeof(row->launcher), "%s",
                       sb->launcher ? sb->launcher->name : "");
        memcpy(row->template_name, sb->template_name, sizeof(row->template_name));
        row->is_zygote = sb->slots > 1;
    }
    keeper_send(k, &reply, -1);
}

void keeper_kill_reply(kg_keeper_t *k, kg_sb_t *sb, kg_err_code_t code, const char *message)
{
    kg_kp_reply_t reply;
    kg_err_t err = {0};

    if (!sb->kill_asked || sb->replied) {
        return;
    }
    sb->replied = true;
    (void)kg_kp_reply_init(&reply, KG_KP_KILL, sb->kill_seq);
    if (code != KG_ERR_NONE) {
        (void)kg_err_set(&err, code, "%s", message);
        keeper_status_set(&reply.kill.status, &err);
        kg_log(KG_LOG_ERROR, "sandbox.end_failed", "id=%s reason=\"%s\"", sb->id, message);
    }
    keeper_send(k, &reply, -1);
}

static void do_kill(kg_keeper_t *k, const kg_kp_kill_t *request)
{
    kg_sb_t *sb = keeper_find(k, request->id);
    kg_kp_reply_t reply;
    kg_err_t err = {0};

    if (!sb || sb->kill_asked) {
        (void)kg_kp_reply_init(&reply, KG_KP_KILL, request->head.seq);
        (void)kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "there is no sandbox %s", request->id);
        keeper_status_set(&reply.kill.status, &err);
        keeper_send(k, &reply, -1);
        return;
    }
    if (sb->state == KG_KP_RUNNING && sb->slots > 1 && keeper_has_children(k, sb)) {
        sb->retired = true; /* they would die with it: it goes when the last of them has */
        (void)kg_kp_reply_init(&reply, KG_KP_KILL, request->head.seq);
        keeper_send(k, &reply, -1);
        return;
    }
    sb->kill_asked = true;
    sb->replied = false; /* of one that was ended before, its files kept, the answer is old */
    sb->kill_seq = request->head.seq;
    sb->remove_files = (request->flags & KG_KP_KILL_KEEP) == 0;
    keeper_end_sandbox(k, sb);
}

static void refuse(kg_keeper_t *k, int reason, uint32_t seq)
{
    kg_kp_reply_t reply;
    kg_err_t err = {0};

    k->refused++;
    if ((k->refused & (k->refused - 1)) == 0) { /* 1, 2, 4 …: a broken gateway can't fill the log */
        kg_log(KG_LOG_ERROR, "keeper.frame_refused", "reason=%s count=%llu",
               strerrorname_np(-reason), (unsigned long long)k->refused);
    }
    (void)kg_kp_reply_init(&reply, KG_KP_REFUSED, seq);
    (void)kg_err_set(&err, KG_ERR_INVALID_FRAME, "the keeper refused a frame: %s",
                     reason == -EPROTO ? "another version" : strerrorname_np(-reason));
    keeper_status_set(&reply.refused.status, &err);
    keeper_send(k, &reply, -1);
}

static void handle(kg_keeper_t *k, const kg_kp_request_t *request)
{
    switch (request->head.verb) {
    case KG_KP_HELLO:
        do_hello(k, request->head.seq);
        return;
    case KG_KP_CREATE:
        keeper_create(k, &request->create);
        return;
    case KG_KP_ATTACH:
        keeper_attach(k, &request->one);
        return;
    case KG_KP_PAUSE:
    case KG_KP_RESUME:
        keeper_pause(k, &request->one, request->head.verb == KG_KP_PAUSE);
        return;
    case KG_KP_USAGE:
        keeper_usage(k, &request->one);
        return;
    case KG_KP_HOLD:
        keeper_hold(k, &request->hold);
        return;
    case KG_KP_NETWORK:
    case KG_KP_NET_LOG:
        keeper_network(k, request);
        return;
    case KG_KP_FEATURE_TABLE:
        keeper_features(k, request->head.seq);
        return;
    case KG_KP_KILL:
        do_kill(k, &request->kill);
        return;
    case KG_KP_LIST:
        do_list(k, &request->list);
        return;
    default:
        do_launchers(k, request->head.seq);
        return;
    }
}

void keeper_read_requests(kg_keeper_t *k)
{
    for (int i = 0; i < READ_BUDGET && k->gateway_sock >= 0 && k->out_count < KEEPER_OUT_MAX; i++) {
        _Alignas(kg_kp_request_t) char frame[sizeof(kg_kp_request_t) + 1];
        kg_kp_request_t request;
        size_t len = 0;
        uint32_t seq = 0;
        int r = kg_seq_recv(k->gateway_sock, frame, sizeof(frame), &len, NULL, NULL);
        if (r == -EAGAIN) {
            return;
        }
        if (r == 0 && len == 0) {
            keeper_gateway_lost(k);
            return;
        }
        if (r < 0 && r != -EMSGSIZE) {
            keeper_gateway_lost(k);
            return;
        }
        if (r == 0) {
            r = kg_kp_request_decode(frame, len, &request, &seq);
        }
        if (r == 0 && !k->hello_done && request.head.verb != KG_KP_HELLO) {
            r = -EPROTO;
        }
        if (r < 0) {
            refuse(k, r, seq);
        } else {
            handle(k, &request);
        }
    }
}
