/* What can be asked of a sandbox that runs, besides its end; and of the host. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"

#define NETWORK_LIMIT_S 10
#define PRESS_LIMIT_S 120

/* Finds one that runs and whose launcher can do it, or says why not. */
static kg_sb_t *
find_running(kg_keeper_t *k, const char *id, bool able, const char *what, kg_err_t *err)
{
    kg_sb_t *sb = keeper_find(k, id);
    if (!sb || sb->state != KG_KP_RUNNING) {
        (void)kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s does not live", id);
        return NULL;
    }
    if (!able) {
        (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED, "isolation %s can't %s", sb->launcher->name,
                         what);
        return NULL;
    }
    return sb;
}

static const kg_launcher_t *launcher_of(kg_keeper_t *k, const char *id)
{
    const kg_sb_t *sb = keeper_find(k, id);
    return sb ? sb->launcher : NULL;
}

static void reply_plain(kg_keeper_t *k, kg_kp_verb_t verb, uint32_t seq, const kg_err_t *err)
{
    kg_kp_reply_t reply;
    (void)kg_kp_reply_init(&reply, verb, seq);
    keeper_status_set(&reply.kill.status, err);
    keeper_send(k, &reply, -1);
}

/* In the worker. */
static void do_press(kg_keeper_t *k,
                     kg_sb_t *sb,
                     const kg_kp_request_t *request,
                     kg_answer_t *answer,
                     int fds[KEEPER_ANSWER_FDS]) // NOLINT(readability-non-const-parameter)
{
    (void)request;
    (void)fds;
    answer->failed = kg_cgroup_press(&k->host.cgroups, sb->id) < 0;
}

/* What stands still needs its memory no more; a worker presses it out. ret_why: why it stays. */
static void press(kg_keeper_t *k, kg_sb_t *sb, char ret_why[120])
{
    if (!kg_cgroup_presses(&k->host.cgroups, ret_why)) {
        return;
    }
    if (keeper_errand_start(k, sb, KG_ERRAND_PRESS, NULL, PRESS_LIMIT_S, do_press) < 0) {
        (void)snprintf(ret_why, 120, "the keeper has no worker for it");
    }
}

void keeper_pause(kg_keeper_t *k, const kg_kp_one_t *request, bool frozen)
{
    kg_err_t err = {0};
    char stays[120] = "";
    const kg_launcher_t *launcher = launcher_of(k, request->id);
    kg_sb_t *sb =
        find_running(k, request->id, launcher && launcher->pause, "pause a sandbox", &err);

    if (sb && !frozen) {
        keeper_errands_stop(k, sb->id, KG_ERRAND_PRESS);
    }
    if (sb && launcher->pause(&k->host, sb->id, frozen, &err) == 0) {
        sb->paused = frozen;
        err = (kg_err_t){0};
        if (frozen) {
            press(k, sb, stays);
        }
    }
    if (!err.code) {
        (void)kg_format(err.message, sizeof(err.message), "%s", stays);
    }
    reply_plain(k, (kg_kp_verb_t)request->head.verb, request->head.seq, &err);
}

/* One that was killed may have allowed swap after the thaw took it away. */
void keeper_press_exited(kg_keeper_t *k, const kg_errand_t *errand)
{
    const kg_sb_t *sb = keeper_find(k, errand->id);
    if (sb && sb->state == KG_KP_RUNNING && !sb->paused) {
        kg_cgroup_unpress(&k->host.cgroups, sb->id);
    }
}

void keeper_usage(kg_keeper_t *k, const kg_kp_one_t *request)
{
    kg_err_t err = {0};
    kg_kp_reply_t reply;
    const kg_launcher_t *launcher = launcher_of(k, request->id);
    kg_sb_t *sb =
        find_running(k, request->id, launcher && launcher->usage, "tell what a sandbox uses", &err);

    (void)kg_kp_reply_init(&reply, KG_KP_USAGE, request->head.seq);
    if (sb) {
        int r = launcher->usage(&k->host, sb->id, &reply.usage.usage);
        if (r < 0) {
            (void)kg_err_set(&err, KG_ERR_INTERNAL, "its figures can't be read: %s",
                             strerrordesc_np(-r));
        }
    }
    keeper_status_set(&reply.usage.status, &err);
    keeper_send(k, &reply, -1);
}

void keeper_hold(kg_keeper_t *k, const kg_kp_hold_t *request)
{
    kg_err_t err = {0};
    const kg_launcher_t *launcher = launcher_of(k, request->id);
    kg_sb_t *sb = find_running(k, request->id, launcher && launcher->holds,
                               "hold a sandbox to other limits", &err);

    bool can = sb && (!launcher->check || launcher->check(&request->limits, &err) == 0);
    if (can &&
        kg_cgroup_hold(&k->host.cgroups, sb->id, &request->limits, request->share, &err) == 0) {
        err = (kg_err_t){0};
    }
    reply_plain(k, KG_KP_HOLD, request->head.seq, &err);
}

/* ---- the network ---- */

/* In the worker. */
static void do_change(kg_keeper_t *k,
                      kg_sb_t *sb,
                      const kg_kp_request_t *request,
                      kg_answer_t *answer,
                      int fds[KEEPER_ANSWER_FDS]) // NOLINT(readability-non-const-parameter)
{
    (void)fds;
    answer->failed =
        kg_net_change(&k->host.nets, sb->slot, &request->network.network, &answer->err) < 0;
}

static void do_log(kg_keeper_t *k,
                   kg_sb_t *sb,
                   const kg_kp_request_t *request,
                   kg_answer_t *answer,
                   int fds[KEEPER_ANSWER_FDS]) // NOLINT(readability-non-const-parameter)
{
    kg_kp_net_log_reply_t *log = &answer->reply.net_log;
    (void)fds;
    log->cursor = request->net_log.cursor;
    int n = kg_net_denied(&k->host.nets, sb->slot, &log->cursor, log->rows, KG_KP_DENIED_ROWS,
                          &log->lost);
    if (n < 0) {
        answer->failed = 1;
        (void)kg_err_set(&answer->err, KG_ERR_INTERNAL, "the network's log can't be read: %s",
                         strerrordesc_np(-n));
        return;
    }
    log->count = (uint32_t)n;
}

void keeper_network(kg_keeper_t *k, const kg_kp_request_t *request)
{
    kg_err_t err = {0};
    bool log = request->head.verb == KG_KP_NET_LOG;
    kg_sb_t *sb = keeper_find(k, request->one.id);
    bool able = sb && strcmp(sb->launched.isolation.network, "egress") == 0;

    sb = find_running(k, request->one.id, able, "change or watch this network", &err);
    int r = sb ? keeper_errand_start(k, sb, log ? KG_ERRAND_NET_LOG : KG_ERRAND_NETWORK, request,
                                     NETWORK_LIMIT_S, log ? do_log : do_change)
               : 0;
    if (r < 0) {
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "no worker for it: %s", strerrordesc_np(-r));
    }
    if (!sb || r < 0) {
        reply_plain(k, (kg_kp_verb_t)request->head.verb, request->head.seq, &err);
    }
}

void keeper_network_answered(kg_keeper_t *k, const kg_errand_t *errand, const kg_answer_t *answer)
{
    kg_kp_reply_t reply;

    if (errand->mute) {
        return;
    }
    bool log = errand->kind == KG_ERRAND_NET_LOG;
    if (answer->failed || !log) {
        reply_plain(k, log ? KG_KP_NET_LOG : KG_KP_NETWORK, errand->seq, &answer->err);
        return;
    }
    (void)kg_kp_reply_init(&reply, KG_KP_NET_LOG, errand->seq);
    kg_kp_head_t head = reply.head;
    reply.net_log = answer->reply.net_log;
    reply.head = head;
    keeper_send(k, &reply, -1);
}

/* ---- the host ---- */

static kg_kp_feature_row_t *add_row(kg_kp_features_reply_t *reply, const char *name)
{
    if (reply->count == KG_KP_FEATURES) {
        return NULL;
    }
    kg_kp_feature_row_t *row = &reply->rows[reply->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    return row;
}

static void say(kg_kp_feature_row_t *row, bool available, const char *how, const char *reason)
{
    if (row) {
        row->available = available;
        (void)snprintf(row->how, sizeof(row->how), "%s", available ? how : "");
        (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
    }
}

static void add_groups(const kg_cgroups_t *cg, kg_kp_features_reply_t *reply)
{
    for (int i = 0; i < KG_CG_FEATURES; i++) {
        say(add_row(reply, kg_cg_feature_name((kg_cg_feature_t)i)), cg->version[i] != KG_CG_NONE,
            cg->version[i] == KG_CG_V2 ? "v2" : "v1", cg->reason[i]);
    }
}

void keeper_features(kg_keeper_t *k, uint32_t seq)
{
    kg_kp_reply_t reply;
    (void)kg_kp_reply_init(&reply, KG_KP_FEATURE_TABLE, seq);
    add_groups(&k->host.cgroups, &reply.features);
    char stays[120];
    bool presses = kg_cgroup_presses(&k->host.cgroups, stays);
    say(add_row(&reply.features, "paused memory"), presses, "to swap", stays);
    say(add_row(&reply.features, "disk"), k->host.volumes.backend != KG_VOL_NONE,
        kg_vol_backend_name(k->host.volumes.backend), k->host.volumes.reason);
    say(add_row(&reply.features, "egress"), k->host.nets.available,
        k->host.nets.routed ? "slirp4netns" : "nftables", k->host.nets.reason);
    keeper_send(k, &reply, -1);
}
