/* Frames between gateway and sandal-init, both ways, with the strings of a spawn walked through;
 * and stat files of /proc, which hold names that the sandbox chooses. The first byte says what is
 * fed and whether the head is mended. */
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/proctree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void walk_strings(const kg_ip_spawn_t *spawn, const char *tail, size_t tail_len)
{
    char *copy = malloc(tail_len);
    char **argv = calloc((size_t)spawn->argc + 1 + spawn->envc + 1, sizeof(*argv));
    char *cwd = NULL;
    size_t total = 0;

    must(copy && argv);
    memcpy(copy, tail, tail_len);
    char **env = argv + spawn->argc + 1;
    kg_ip_spawn_strings(spawn, copy, argv, env, &cwd);
    for (uint32_t i = 0; i < spawn->argc; i++) {
        total += strlen(argv[i]) + 1;
    }
    for (uint32_t i = 0; i < spawn->envc; i++) {
        total += strlen(env[i]) + 1;
    }
    total += strlen(cwd) + 1;
    must(total == tail_len && argv[0][0] != '\0' && !argv[spawn->argc] && !env[spawn->envc]);
    free(argv);
    free(copy);
}

static void check_paths(const kg_ip_path_t *request, const char *tail, size_t tail_len)
{
    const char *first;
    const char *second;
    kg_ip_paths(tail, tail_len, &first, &second);
    must(first == tail && first[0] == '/' && strlen(first) < KG_IP_PATH_MAX);
    must(strlen(second) < KG_IP_PATH_MAX && (second[0] == '/' || second[0] == '\0'));
    must(second[0] == '\0' || request->head.verb == KG_IP_PUT_IN_PLACE ||
         request->head.verb == KG_IP_RENAME);
}

static void check_request(const char *frame, size_t len)
{
    kg_ip_request_t r;
    const char *tail = NULL;
    size_t tail_len = 0;
    uint32_t seq = 0;

    if (kg_ip_request_decode(frame, len, &r, &tail, &tail_len, &seq) < 0) {
        return;
    }
    must(tail >= frame && tail + tail_len == frame + len);
    if (r.head.verb == KG_IP_SPAWN) {
        walk_strings(&r.spawn, tail, tail_len);
    } else if (kg_ip_verb_is_files(r.head.verb)) {
        check_paths(&r.path, tail, tail_len);
    } else if (r.head.verb >= KG_IP_SOCKET_OPEN && r.head.verb <= KG_IP_FILE_UNLINK) {
        must(kg_ip_name_valid(r.name.name) && !strchr(r.name.name, '/') && r.name.name[0] != '.');
    }
}

static void check_entries(const kg_ip_files_t *reply, const char *tail, size_t tail_len)
{
    char copy[KG_IP_REPLY_TAIL_MAX];
    size_t len = 0;
    const char *at = tail;
    size_t left = tail_len;

    for (uint32_t i = 0; i < reply->count; i++) {
        kg_ip_entry_t entry;
        const char *name;
        const char *target;
        must(kg_ip_entry_take(&at, &left, &entry, &name, &target) == 0);
        must(strlen(name) == entry.name_len && strlen(target) == entry.target_len);
        must(kg_ip_entry_put(copy, sizeof(copy), &len, &entry, name, target) == 0);
    }
    must(left == 0 && len == tail_len && memcmp(copy, tail, len) == 0); /* and back */
}

static void check_reply(const char *frame, size_t len)
{
    kg_ip_reply_t r;
    const char *tail = NULL;
    size_t tail_len = 0;

    if (kg_ip_reply_decode_tail(frame, len, &r, &tail, &tail_len) < 0) {
        return;
    }
    must(tail >= frame && tail + tail_len == frame + len);
    if (r.head.verb == KG_IP_STAT || r.head.verb == KG_IP_LIST) {
        check_entries(&r.files, tail, tail_len);
    } else if (r.head.verb == KG_IP_OPEN && tail_len > 0) {
        must(tail[0] == '/' && strlen(tail) + 1 == tail_len);
    } else {
        must(tail_len == 0);
    }
}

/* From sandal-init to a zygote: as many descriptors as it says fit the array. */
static void check_order(const char *frame, size_t len)
{
    kg_ip_order_t order;
    if (kg_ip_order_decode(frame, len, &order) < 0) {
        return;
    }
    must(memcmp(&order, frame, len) == 0 && strlen(order.id) < KG_IP_ORDER_ID_MAX);
    must(order.fds <= KG_IP_ORDER_FDS_MAX && order.uid != 0 && order.gid != 0);
    must(4 + KG_IP_ORDER_FIXED + order.entries <= order.fds);
}

static void check_stat(const char *bytes, size_t len)
{
    char text[1024];
    kg_task_t task;
    size_t n = len < sizeof(text) - 1 ? len : sizeof(text) - 1;
    memcpy(text, bytes, n);
    text[n] = '\0';
    (void)kg_task_parse(text, &task);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 4096) {
        return 0;
    }
    /* Exactly as long as the frame, so that the sanitizer sees a byte too many. */
    size_t len = size - 1;
    char *frame = malloc(len ? len : 1);
    must(frame != NULL);
    memcpy(frame, data + 1, len);
    if ((data[0] & 1) && len >= sizeof(kg_ip_head_t)) {
        kg_ip_head_t head;
        memcpy(&head, frame, sizeof(head));
        head.magic = KG_IP_MAGIC;
        head.version = KG_IP_VERSION;
        head.size = (uint32_t)len;
        memcpy(frame, &head, sizeof(head));
    }
    check_request(frame, len);
    check_reply(frame, len);
    check_order(frame, len);
    check_stat(frame, len);
    free(frame);
    return 0;
}
