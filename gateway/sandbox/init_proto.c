/* Codec of sandal-init's socket: sizes by verb, field checks, the strings of a spawn. */
#include "gateway/sandbox/init_proto.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(kg_ip_head_t) == 16, "head has no padding");
_Static_assert(sizeof(kg_ip_hello_t) == 24, "hello has no padding");
_Static_assert(sizeof(kg_ip_spawn_t) == 56, "spawn has no padding");
_Static_assert(sizeof(kg_ip_order_t) == 88, "order has no padding");
_Static_assert(sizeof(kg_ip_path_t) == 32, "path has no padding");
_Static_assert(sizeof(kg_ip_files_t) == 40, "files has no padding");
_Static_assert(sizeof(kg_ip_entry_t) == 56, "entry has no padding");
_Static_assert(sizeof(kg_ip_name_t) == 88, "name has no padding");
_Static_assert(sizeof(kg_ip_spawned_t) == 40, "spawned has no padding");
_Static_assert(sizeof(kg_ip_report_row_t) == 24, "row has no padding");

bool kg_ip_verb_is_files(unsigned verb)
{
    return verb >= KG_IP_OPEN && verb <= KG_IP_WATCH;
}

static size_t request_size(unsigned verb)
{
    switch (verb) {
    case KG_IP_HELLO:
        return sizeof(kg_ip_hello_t);
    case KG_IP_REPORT:
        return sizeof(kg_ip_head_t);
    case KG_IP_SPAWN:
        return sizeof(kg_ip_spawn_t);
    case KG_IP_SIGNAL:
        return sizeof(kg_ip_signal_t);
    case KG_IP_KILL_TREE:
    case KG_IP_ACK:
    case KG_IP_USAGE:
    case KG_IP_ATTACH:
        return sizeof(kg_ip_token_t);
    case KG_IP_SOCKET_OPEN:
    case KG_IP_FILE_WRITE:
    case KG_IP_FILE_UNLINK:
        return sizeof(kg_ip_name_t);
    case KG_IP_CONNECT:
        return sizeof(kg_ip_connect_t);
    default:
        return kg_ip_verb_is_files(verb) ? sizeof(kg_ip_path_t) : 0;
    }
}

static size_t reply_size(unsigned verb)
{
    switch (verb) {
    case KG_IP_HELLO:
    case KG_IP_SIGNAL:
    case KG_IP_KILL_TREE:
    case KG_IP_SOCKET_OPEN:
    case KG_IP_FILE_WRITE:
    case KG_IP_FILE_UNLINK:
    case KG_IP_REFUSED:
        return sizeof(kg_ip_result_t);
    case KG_IP_SPAWN:
    case KG_IP_ATTACH:
        return sizeof(kg_ip_spawned_t);
    case KG_IP_REPORT:
        return sizeof(kg_ip_report_t);
    case KG_IP_USAGE:
        return sizeof(kg_ip_usage_t);
    case KG_IP_EXIT:
        return sizeof(kg_ip_exit_t);
    case KG_IP_CONNECT:
        return sizeof(kg_ip_files_t);
    default:
        return kg_ip_verb_is_files(verb) ? sizeof(kg_ip_files_t) : 0;
    }
}

static size_t request_tail_max(unsigned verb)
{
    if (verb == KG_IP_SPAWN) {
        return KG_IP_STRINGS_MAX;
    }
    if (kg_ip_verb_is_files(verb)) {
        return (size_t)2 * KG_IP_PATH_MAX;
    }
    return verb == KG_IP_FILE_WRITE ? KG_IP_FILE_MAX : 0;
}

static size_t reply_tail_max(unsigned verb)
{
    return verb == KG_IP_OPEN || verb == KG_IP_STAT || verb == KG_IP_LIST ? KG_IP_REPLY_TAIL_MAX
                                                                          : 0;
}

static void head_init(kg_ip_head_t *head, unsigned verb, size_t size, uint32_t seq)
{
    *head = (kg_ip_head_t){
        .magic = KG_IP_MAGIC,
        .version = KG_IP_VERSION,
        .verb = (uint16_t)verb,
        .size = (uint32_t)size,
        .seq = seq,
    };
}

size_t kg_ip_request_init(kg_ip_request_t *request, kg_ip_verb_t verb, uint32_t seq, size_t tail)
{
    size_t size = request_size(verb);
    memset(request, 0, sizeof(*request));
    head_init(&request->head, verb, size + tail, seq);
    return size;
}

size_t kg_ip_reply_init(kg_ip_reply_t *reply, kg_ip_verb_t verb, uint32_t seq)
{
    size_t size = reply_size(verb);
    memset(reply, 0, sizeof(*reply));
    head_init(&reply->head, verb, size, seq);
    return size;
}

bool kg_ip_name_valid(const char *name)
{
    size_t len = strnlen(name, KG_IP_NAME_MAX);
    if (len == 0 || len >= KG_IP_NAME_MAX || name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alnum && c != '.' && c != '_' && c != '-') {
            return false;
        }
    }
    return true;
}

static bool spawn_ok(const kg_ip_spawn_t *s, const char *tail, size_t tail_len)
{
    const uint32_t forked = s->flags & KG_IP_SPAWN_FORKED;
    const uint32_t never = KG_IP_SPAWN_ROOT | KG_IP_SPAWN_PTY | KG_IP_SPAWN_ZYGOTE;
    if (forked && (s->flags & never)) {
        return false;
    }
    if (s->token == 0 || s->argc == 0 || s->argc > KG_IP_ARGS_MAX || s->envc > KG_IP_ARGS_MAX ||
        (s->flags & ~KG_IP_SPAWN_FLAGS) != 0 || s->umask_bits > 0777) {
        return false;
    }
    if (tail_len == 0 || tail[tail_len - 1] != '\0' || tail[0] == '\0') {
        return false;
    }
    size_t strings = 0;
    for (size_t at = 0; at < tail_len; at += strnlen(tail + at, tail_len - at) + 1) {
        strings++;
    }
    return strings == (size_t)s->argc + s->envc + 1;
}

static uint32_t files_flags(unsigned verb)
{
    switch (verb) {
    case KG_IP_OPEN:
        return KG_IP_FS_READ | KG_IP_FS_WRITE | KG_IP_FS_CREATE | KG_IP_FS_EXCLUSIVE |
               KG_IP_FS_DIRECTORY | KG_IP_FS_NOFOLLOW | KG_IP_FS_PARENTS | KG_IP_FS_TEMPORARY |
               KG_IP_FS_ROOT;
    case KG_IP_STAT:
        return KG_IP_FS_NOFOLLOW | KG_IP_FS_ROOT;
    case KG_IP_MKDIR:
        return KG_IP_FS_PARENTS | KG_IP_FS_ROOT;
    case KG_IP_RENAME:
        return KG_IP_FS_OVERWRITE | KG_IP_FS_ROOT;
    case KG_IP_REMOVE:
        return KG_IP_FS_RECURSIVE | KG_IP_FS_ROOT;
    default:
        return KG_IP_FS_ROOT;
    }
}

/* Whole strings, as many as the verb has, each an absolute path. */
static bool files_ok(const kg_ip_path_t *r, const char *tail, size_t tail_len)
{
    unsigned verb = r->head.verb;
    size_t want = verb == KG_IP_PUT_IN_PLACE || verb == KG_IP_RENAME ? 2 : 1;
    size_t at = 0;

    uint64_t cursor_max = verb == KG_IP_LIST ? INT64_MAX : KG_IP_LIMIT_MS_MAX;
    if ((r->flags & ~files_flags(verb)) != 0 || r->mode > 07777 || r->cursor > cursor_max) {
        return false;
    }
    for (size_t i = 0; i < want; i++) {
        size_t len = strnlen(tail + at, tail_len - at);
        bool removes = verb == KG_IP_PUT_IN_PLACE && i == 1 && len == 0;
        if (len == tail_len - at || len >= KG_IP_PATH_MAX || (tail[at] != '/' && !removes)) {
            return false;
        }
        at += len + 1;
    }
    return at == tail_len;
}

void kg_ip_paths(const char *tail, size_t tail_len, const char **ret_first, const char **ret_second)
{
    size_t len = strlen(tail);
    *ret_first = tail;
    *ret_second = len + 1 < tail_len ? tail + len + 1 : "";
}

static bool request_ok(const kg_ip_request_t *r, const char *tail, size_t tail_len)
{
    switch (r->head.verb) {
    case KG_IP_HELLO:
        return r->hello.role == KG_IP_ROLE_KEEPER || r->hello.role == KG_IP_ROLE_GATEWAY;
    case KG_IP_SPAWN:
        return spawn_ok(&r->spawn, tail, tail_len);
    case KG_IP_SIGNAL:
        return r->signal.token != 0 && r->signal.signo >= 1 && r->signal.signo <= 64 &&
               r->signal.group <= 1;
    case KG_IP_KILL_TREE:
    case KG_IP_ACK:
    case KG_IP_USAGE:
    case KG_IP_ATTACH:
        return r->token.token != 0;
    case KG_IP_SOCKET_OPEN:
    case KG_IP_FILE_WRITE:
    case KG_IP_FILE_UNLINK:
        return kg_ip_name_valid(r->name.name);
    case KG_IP_CONNECT:
        return r->connect.port >= 1 && r->connect.port <= UINT16_MAX;
    default:
        return !kg_ip_verb_is_files(r->head.verb) || files_ok(&r->path, tail, tail_len);
    }
}

static int head_decode(const void *data, size_t len, kg_ip_head_t *ret_head)
{
    if (len < sizeof(*ret_head)) {
        return -EBADMSG;
    }
    memcpy(ret_head, data, sizeof(*ret_head));
    if (ret_head->magic != KG_IP_MAGIC || ret_head->size != len) {
        return -EBADMSG;
    }
    return ret_head->version == KG_IP_VERSION ? 0 : -EPROTO;
}

int kg_ip_request_decode(const void *data,
                         size_t len,
                         kg_ip_request_t *ret_request,
                         const char **ret_tail,
                         size_t *ret_tail_len,
                         uint32_t *ret_seq)
{
    kg_ip_head_t head;
    int r = head_decode(data, len, &head);
    if (r < 0) {
        return r;
    }
    *ret_seq = head.seq;
    size_t fixed = request_size(head.verb);
    if (fixed == 0) {
        return -ENOSYS;
    }
    if (len < fixed || len - fixed > request_tail_max(head.verb)) {
        return -EBADMSG;
    }
    kg_ip_request_t request = {0};
    const char *tail = (const char *)data + fixed;
    memcpy(&request, data, fixed);
    if (!request_ok(&request, tail, len - fixed)) {
        return -EBADMSG;
    }
    *ret_request = request;
    *ret_tail = tail;
    *ret_tail_len = len - fixed;
    return 0;
}

void kg_ip_order_init(kg_ip_order_t *order)
{
    memset(order, 0, sizeof(*order));
    head_init(&order->head, KG_IP_ORDER, sizeof(*order), 0);
}

int kg_ip_order_decode(const void *data, size_t len, kg_ip_order_t *ret_order)
{
    kg_ip_order_t order;
    int r = head_decode(data, len, &order.head);
    if (r < 0) {
        return r;
    }
    if (order.head.verb != KG_IP_ORDER || len != sizeof(order)) {
        return -EBADMSG;
    }
    memcpy(&order, data, sizeof(order));
    const uint32_t fixed = 4 + KG_IP_ORDER_FIXED;
    if (!memchr(order.id, '\0', sizeof(order.id)) || order.uid == 0 || order.gid == 0 ||
        order.fds > KG_IP_ORDER_FDS_MAX || order.entries > KG_IP_ORDER_FDS_MAX ||
        order.fds < fixed + order.entries || order.fds > fixed + order.entries + 1) {
        return -EBADMSG;
    }
    *ret_order = order;
    return 0;
}

static bool entries_ok(const kg_ip_files_t *r, const char *tail, size_t tail_len)
{
    if (r->count > KG_IP_LIST_ROWS || (r->head.verb == KG_IP_STAT && r->count > 1)) {
        return false;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        kg_ip_entry_t entry;
        const char *name;
        const char *target;
        if (kg_ip_entry_take(&tail, &tail_len, &entry, &name, &target) < 0) {
            return false;
        }
    }
    return tail_len == 0;
}

static bool files_reply_ok(const kg_ip_files_t *r, const char *tail, size_t tail_len)
{
    if (r->error > 0 || r->created > 1) {
        return false;
    }
    switch (r->head.verb) {
    case KG_IP_OPEN: /* perhaps a name */
        return tail_len == 0 || (tail_len <= KG_IP_PATH_MAX && tail[0] == '/' &&
                                 strnlen(tail, tail_len) == tail_len - 1);
    case KG_IP_STAT:
        return (r->error != 0) == (r->count == 0) && entries_ok(r, tail, tail_len);
    case KG_IP_LIST:
        return entries_ok(r, tail, tail_len) && r->next <= INT64_MAX;
    default:
        return true;
    }
}

static bool reply_ok(const kg_ip_reply_t *r, const char *tail, size_t tail_len)
{
    switch (r->head.verb) {
    case KG_IP_SPAWN:
    case KG_IP_ATTACH:
        return r->spawned.step < KG_IP_STEP_COUNT && r->spawned.error <= 0 &&
               (r->spawned.error != 0 || r->spawned.pid > 0) && (r->spawned.fds & ~KG_IP_FDS) == 0;
    case KG_IP_REPORT:
        return r->report.count <= KG_IP_REPORT_ROWS && r->report.more <= 1;
    case KG_IP_USAGE:
        return r->usage.error <= 0;
    case KG_IP_EXIT:
        return r->exit.token != 0;
    case KG_IP_CONNECT:
        return files_reply_ok(&r->files, tail, tail_len);
    default:
        return kg_ip_verb_is_files(r->head.verb) ? files_reply_ok(&r->files, tail, tail_len)
                                                 : r->result.error <= 0;
    }
}

int kg_ip_reply_decode_tail(const void *data,
                            size_t len,
                            kg_ip_reply_t *ret_reply,
                            const char **ret_tail,
                            size_t *ret_tail_len)
{
    kg_ip_head_t head;
    int r = head_decode(data, len, &head);
    if (r < 0) {
        return r;
    }
    size_t size = reply_size(head.verb);
    if (size == 0) {
        return -ENOSYS;
    }
    if (len < size || len - size > reply_tail_max(head.verb)) {
        return -EBADMSG;
    }
    kg_ip_reply_t reply = {0};
    const char *tail = (const char *)data + size;
    memcpy(&reply, data, size);
    if (!reply_ok(&reply, tail, len - size)) {
        return -EBADMSG;
    }
    *ret_reply = reply;
    *ret_tail = tail;
    *ret_tail_len = len - size;
    return 0;
}

int kg_ip_reply_decode(const void *data, size_t len, kg_ip_reply_t *ret_reply)
{
    const char *tail;
    size_t tail_len;
    return kg_ip_reply_decode_tail(data, len, ret_reply, &tail, &tail_len);
}

int kg_ip_entry_put(char *tail,
                    size_t cap,
                    size_t *len,
                    const kg_ip_entry_t *entry,
                    const char *name,
                    const char *target)
{
    kg_ip_entry_t e = *entry;
    size_t name_len = strlen(name);
    size_t target_len = strlen(target);
    size_t room = cap - *len;

    if (name_len > UINT16_MAX || target_len > UINT16_MAX ||
        sizeof(e) + name_len + 1 + target_len + 1 > room) {
        return -ENOBUFS;
    }
    e.name_len = (uint16_t)name_len;
    e.target_len = (uint16_t)target_len;
    char *at = tail + *len;
    memcpy(at, &e, sizeof(e));
    memcpy(at + sizeof(e), name, name_len + 1);
    memcpy(at + sizeof(e) + name_len + 1, target, target_len + 1);
    *len += sizeof(e) + name_len + 1 + target_len + 1;
    return 0;
}

int kg_ip_entry_take(const char **at,
                     size_t *left,
                     kg_ip_entry_t *ret_entry,
                     const char **ret_name,
                     const char **ret_target)
{
    kg_ip_entry_t e;
    if (*left < sizeof(e)) {
        return -EBADMSG;
    }
    memcpy(&e, *at, sizeof(e));
    const char *name = *at + sizeof(e);
    size_t size = sizeof(e) + e.name_len + 1U + e.target_len + 1U;
    if (size > *left || e.type >= KG_IP_TYPE_COUNT || e.mode > 07777 || e.name_len == 0 ||
        e.name_len >= KG_IP_PATH_MAX || e.target_len >= KG_IP_PATH_MAX) {
        return -EBADMSG;
    }
    const char *target = name + e.name_len + 1;
    if (strnlen(name, e.name_len + 1U) != e.name_len ||
        strnlen(target, e.target_len + 1U) != e.target_len ||
        (e.target_len > 0 && e.type != KG_IP_TYPE_SYMLINK)) {
        return -EBADMSG;
    }
    *at += size;
    *left -= size;
    *ret_entry = e;
    *ret_name = name;
    *ret_target = target;
    return 0;
}

void kg_ip_spawn_strings(
    const kg_ip_spawn_t *spawn, char *strings, char **ret_argv, char **ret_env, char **ret_cwd)
{
    for (uint32_t i = 0; i < spawn->argc; i++) {
        ret_argv[i] = strings;
        strings += strlen(strings) + 1;
    }
    ret_argv[spawn->argc] = NULL;
    for (uint32_t i = 0; i < spawn->envc; i++) {
        ret_env[i] = strings;
        strings += strlen(strings) + 1;
    }
    ret_env[spawn->envc] = NULL;
    *ret_cwd = strings;
}
