/* Codec of the keeper's socket: sizes by verb, field checks, nothing else. */
#include "gateway/sandbox/keeper_proto.h"

#include <errno.h>
#include <string.h>

#include "gateway/base/err.h"

_Static_assert(sizeof(kg_kp_head_t) == 16, "head has no padding");
_Static_assert(sizeof(kg_kp_create_t) ==
                   16 + 48 + 24 + 64 + 48 + 8 + 32 + 16 + KG_NET_RULES_MAX * 88,
               "create has no padding");
_Static_assert(sizeof(kg_kp_kill_t) == 16 + 48 + 8, "kill has no padding");
_Static_assert(sizeof(kg_kp_create_reply_t) == 16 + 416 + 16 + 8 + 104 + 3 * 256,
               "create reply has no padding");
_Static_assert(sizeof(kg_kp_network_t) == 16 + 48 + 16 + KG_NET_RULES_MAX * 88,
               "network has no padding");
_Static_assert(sizeof(kg_kp_hold_t) == 16 + 48 + 32 + 8, "hold has no padding");
_Static_assert(sizeof(kg_kp_usage_reply_t) == 16 + 416 + 48, "usage reply has no padding");
_Static_assert(sizeof(kg_kp_feature_row_t) == 208, "feature row has no padding");
_Static_assert(sizeof(kg_kp_launcher_row_t) == 360, "launcher row has no padding");
_Static_assert(sizeof(kg_kp_list_row_t) == 64 + 24 + 64 + 8, "list row has no padding");

static size_t request_size(unsigned verb)
{
    switch (verb) {
    case KG_KP_HELLO:
    case KG_KP_LAUNCHER_TABLE:
    case KG_KP_FEATURE_TABLE:
        return sizeof(kg_kp_head_t);
    case KG_KP_ATTACH:
    case KG_KP_PAUSE:
    case KG_KP_RESUME:
    case KG_KP_USAGE:
        return sizeof(kg_kp_one_t);
    case KG_KP_NETWORK:
        return sizeof(kg_kp_network_t);
    case KG_KP_HOLD:
        return sizeof(kg_kp_hold_t);
    case KG_KP_NET_LOG:
        return sizeof(kg_kp_net_log_t);
    case KG_KP_CREATE:
        return sizeof(kg_kp_create_t);
    case KG_KP_KILL:
        return sizeof(kg_kp_kill_t);
    case KG_KP_LIST:
        return sizeof(kg_kp_list_t);
    default:
        return 0;
    }
}

static size_t reply_size(unsigned verb)
{
    switch (verb) {
    case KG_KP_HELLO:
        return sizeof(kg_kp_hello_reply_t);
    case KG_KP_CREATE:
    case KG_KP_ATTACH:
        return sizeof(kg_kp_create_reply_t);
    case KG_KP_USAGE:
        return sizeof(kg_kp_usage_reply_t);
    case KG_KP_NET_LOG:
        return sizeof(kg_kp_net_log_reply_t);
    case KG_KP_FEATURE_TABLE:
        return sizeof(kg_kp_features_reply_t);
    case KG_KP_KILL:
    case KG_KP_PAUSE:
    case KG_KP_RESUME:
    case KG_KP_NETWORK:
    case KG_KP_HOLD:
    case KG_KP_REFUSED:
        return sizeof(kg_kp_kill_reply_t);
    case KG_KP_LIST:
        return sizeof(kg_kp_list_reply_t);
    case KG_KP_LAUNCHER_TABLE:
        return sizeof(kg_kp_launchers_reply_t);
    case KG_KP_EXIT:
        return sizeof(kg_kp_exit_event_t);
    default:
        return 0;
    }
}

static void head_init(kg_kp_head_t *head, unsigned verb, size_t size, uint32_t seq)
{
    *head = (kg_kp_head_t){
        .magic = KG_KP_MAGIC,
        .version = KG_KP_VERSION,
        .verb = (uint16_t)verb,
        .size = (uint32_t)size,
        .seq = seq,
    };
}

size_t kg_kp_request_init(kg_kp_request_t *request, kg_kp_verb_t verb, uint32_t seq)
{
    size_t size = request_size(verb);
    memset(request, 0, sizeof(*request));
    head_init(&request->head, verb, size, seq);
    return size;
}

size_t kg_kp_reply_init(kg_kp_reply_t *reply, kg_kp_verb_t verb, uint32_t seq)
{
    size_t size = reply_size(verb);
    memset(reply, 0, sizeof(*reply));
    head_init(&reply->head, verb, size, seq);
    return size;
}

static bool terminated(const char *text, size_t cap)
{
    return memchr(text, '\0', cap) != NULL;
}

bool kg_kp_id_valid(const char *id)
{
    size_t len = strnlen(id, KG_KP_ID_MAX);
    if (len < 8 || len > 44 || memcmp(id, "sbx-", 4) != 0) {
        return false;
    }
    for (size_t i = 4; i < len; i++) {
        if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9') || id[i] == '-')) {
            return false;
        }
    }
    return true;
}

static bool launcher_valid(const char *name)
{
    size_t len = strnlen(name, KG_KP_LAUNCHER_MAX);
    if (len == 0 || len >= KG_KP_LAUNCHER_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (name[i] < 'a' || name[i] > 'z') {
            return false;
        }
    }
    return true;
}

/* Names become path components and words of a command line. */
static bool template_valid(const char *name)
{
    size_t len = strnlen(name, KG_KP_TEMPLATE_MAX);
    if (len >= KG_KP_TEMPLATE_MAX || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        bool word = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                    (name[i] >= '0' && name[i] <= '9');
        if (!word && !strchr("._-", name[i])) {
            return false;
        }
    }
    return true;
}

static bool domain_valid(const char *domain)
{
    size_t len = strnlen(domain, KG_NET_DOMAIN_MAX);
    if (len == 0 || len >= KG_NET_DOMAIN_MAX) {
        return false;
    }
    size_t at = strncmp(domain, "*.", 2) == 0 ? 2 : 0;
    if (at == len || domain[at] == '.' || domain[at] == '-') {
        return false;
    }
    for (; at < len; at++) {
        bool word = (domain[at] >= 'a' && domain[at] <= 'z') ||
                    (domain[at] >= '0' && domain[at] <= '9') || domain[at] == '-';
        if (!word && !(domain[at] == '.' && domain[at - 1] != '.')) {
            return false;
        }
    }
    return domain[len - 1] != '.';
}

static bool rule_valid(const kg_net_rule_t *rule)
{
    static const char nothing[KG_NET_DOMAIN_MAX];

    if (rule->allow > 1 || rule->port_first > rule->port_last ||
        (rule->port_first == 0 && rule->port_last != 0) ||
        (rule->protocol != 0 && rule->protocol != 6 && rule->protocol != 17)) {
        return false;
    }
    if (rule->family == 0) {
        return rule->prefix == 0 && memcmp(rule->address, nothing, sizeof(rule->address)) == 0 &&
               domain_valid(rule->domain);
    }
    return ((rule->family == 4 && rule->prefix <= 32) ||
            (rule->family == 6 && rule->prefix <= 128)) &&
           memcmp(rule->domain, nothing, sizeof(nothing)) == 0;
}

static bool wish_valid(const kg_net_wish_t *wish)
{
    if (wish->mode > KG_NET_HOST || wish->rule_count > KG_NET_RULES_MAX ||
        wish->deny_by_default > 1 || wish->zero != 0) {
        return false;
    }
    for (uint32_t i = 0; i < wish->rule_count; i++) {
        if (!rule_valid(&wish->rules[i])) {
            return false;
        }
    }
    return true;
}

/* Never both: there are no zygotes of zygotes. */
static bool zygote_valid(const kg_kp_create_t *c)
{
    bool below = c->zygote[0] != '\0';
    return (c->flags & ~(KG_KP_CREATE_REUSE | KG_KP_CREATE_ZYGOTE)) == 0 &&
           (!below || (kg_kp_id_valid(c->zygote) && c->flags == 0));
}

static bool create_valid(const kg_kp_create_t *c)
{
    return kg_kp_id_valid(c->id) && launcher_valid(c->launcher) &&
           template_valid(c->template_name) && zygote_valid(c) && c->zero == 0 &&
           c->limits.zero == 0 && wish_valid(&c->network);
}

static bool hold_valid(const kg_kp_hold_t *h)
{
    return h->share >= KG_SHARE_MIN && h->share <= KG_SHARE_MAX && h->limits.disk_bytes == 0 &&
           h->limits.nofile == 0 && h->limits.zero == 0 && h->zero == 0;
}

static int head_decode(const void *data, size_t len, kg_kp_head_t *ret_head)
{
    if (len < sizeof(*ret_head)) {
        return -EBADMSG;
    }
    memcpy(ret_head, data, sizeof(*ret_head));
    if (ret_head->magic != KG_KP_MAGIC || ret_head->size != len) {
        return -EBADMSG;
    }
    return ret_head->version == KG_KP_VERSION ? 0 : -EPROTO;
}

static bool request_fields_ok(const kg_kp_request_t *r)
{
    switch (r->head.verb) {
    case KG_KP_CREATE:
        return create_valid(&r->create);
    case KG_KP_KILL:
        return kg_kp_id_valid(r->kill.id) && (r->kill.flags & ~KG_KP_KILL_KEEP) == 0 &&
               r->kill.zero == 0;
    case KG_KP_LIST:
        return r->list.zero == 0;
    case KG_KP_ATTACH:
    case KG_KP_PAUSE:
    case KG_KP_RESUME:
    case KG_KP_USAGE:
        return kg_kp_id_valid(r->one.id);
    case KG_KP_NETWORK:
        return kg_kp_id_valid(r->network.id) && wish_valid(&r->network.network);
    case KG_KP_HOLD:
        return kg_kp_id_valid(r->hold.id) && hold_valid(&r->hold);
    case KG_KP_NET_LOG:
        return kg_kp_id_valid(r->net_log.id);
    default:
        return true;
    }
}

int kg_kp_request_decode(const void *data,
                         size_t len,
                         kg_kp_request_t *ret_request,
                         uint32_t *ret_seq)
{
    kg_kp_head_t head;
    int r = head_decode(data, len, &head);
    if (r < 0) {
        return r;
    }
    *ret_seq = head.seq;
    size_t size = request_size(head.verb);
    if (size == 0) {
        return -ENOSYS;
    }
    kg_kp_request_t request = {0};
    if (len != size) {
        return -EBADMSG;
    }
    memcpy(&request, data, size);
    if (!request_fields_ok(&request)) {
        return -EBADMSG;
    }
    *ret_request = request;
    return 0;
}

const kg_kp_status_t *kg_kp_reply_status(const kg_kp_reply_t *reply)
{
    /* Every reply but EXIT begins with head and status. */
    return reply->head.verb == KG_KP_EXIT ? NULL : &reply->kill.status;
}

static bool isolation_ok(const kg_isolation_info_t *info)
{
    return terminated(info->kind, sizeof(info->kind)) &&
           terminated(info->userns, sizeof(info->userns)) &&
           terminated(info->seccomp, sizeof(info->seccomp)) &&
           terminated(info->cgroup, sizeof(info->cgroup)) &&
           terminated(info->network, sizeof(info->network)) &&
           terminated(info->disk, sizeof(info->disk));
}

static bool create_reply_ok(const kg_kp_create_reply_t *c)
{
    if (c->status.code != 0) {
        return true;
    }
    return isolation_ok(&c->isolation) && terminated(c->workspace, sizeof(c->workspace)) &&
           terminated(c->home, sizeof(c->home)) && terminated(c->run_dir, sizeof(c->run_dir)) &&
           c->init_pid > 0;
}

static bool list_rows_ok(const kg_kp_list_reply_t *list)
{
    if (list->count > KG_KP_LIST_ROWS) {
        return false;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const kg_kp_list_row_t *row = &list->rows[i];
        if (!kg_kp_id_valid(row->id) || row->state >= KG_KP_STATES ||
            !terminated(row->launcher, sizeof(row->launcher)) ||
            !terminated(row->template_name, sizeof(row->template_name))) {
            return false;
        }
    }
    return true;
}

static bool net_log_rows_ok(const kg_kp_net_log_reply_t *log)
{
    if (log->count > KG_KP_DENIED_ROWS) {
        return false;
    }
    for (uint32_t i = 0; i < log->count; i++) {
        if (!terminated(log->rows[i].domain, sizeof(log->rows[i].domain))) {
            return false;
        }
    }
    return true;
}

static bool feature_rows_ok(const kg_kp_features_reply_t *features)
{
    if (features->count > KG_KP_FEATURES) {
        return false;
    }
    for (uint32_t i = 0; i < features->count; i++) {
        const kg_kp_feature_row_t *row = &features->rows[i];
        if (!terminated(row->name, sizeof(row->name)) || !terminated(row->how, sizeof(row->how)) ||
            !terminated(row->reason, sizeof(row->reason))) {
            return false;
        }
    }
    return true;
}

static bool launcher_rows_ok(const kg_kp_reply_t *r)
{
    if (r->launchers.count > KG_KP_LAUNCHERS) {
        return false;
    }
    for (uint32_t i = 0; i < r->launchers.count; i++) {
        const kg_kp_launcher_row_t *row = &r->launchers.rows[i];
        if (!launcher_valid(row->name) || !terminated(row->reason, sizeof(row->reason)) ||
            !terminated(row->pauses_not, sizeof(row->pauses_not))) {
            return false;
        }
    }
    return true;
}

static bool reply_fields_ok(const kg_kp_reply_t *r)
{
    const kg_kp_status_t *status = kg_kp_reply_status(r);
    if (!status) {
        return kg_kp_id_valid(r->exit.id);
    }
    if (status->code >= KG_ERR_COUNT || !terminated(status->message, sizeof(status->message)) ||
        !terminated(status->hint, sizeof(status->hint))) {
        return false;
    }
    switch (r->head.verb) {
    case KG_KP_CREATE:
    case KG_KP_ATTACH:
        return create_reply_ok(&r->create);
    case KG_KP_LIST:
        return list_rows_ok(&r->list);
    case KG_KP_LAUNCHER_TABLE:
        return launcher_rows_ok(r);
    case KG_KP_NET_LOG:
        return net_log_rows_ok(&r->net_log);
    case KG_KP_FEATURE_TABLE:
        return feature_rows_ok(&r->features);
    default:
        return true;
    }
}

int kg_kp_reply_decode(const void *data, size_t len, kg_kp_reply_t *ret_reply)
{
    kg_kp_head_t head;
    int r = head_decode(data, len, &head);
    if (r < 0) {
        return r;
    }
    size_t size = reply_size(head.verb);
    if (size == 0) {
        return -ENOSYS;
    }
    kg_kp_reply_t reply = {0};
    if (len != size) {
        return -EBADMSG;
    }
    memcpy(&reply, data, size);
    if (!reply_fields_ok(&reply)) {
        return -EBADMSG;
    }
    *ret_reply = reply;
    return 0;
}
