/* Processes that a zygote forks: what they need of this sandbox goes to the zygote over a
 * connection that the gateway brought. Nothing of what the zygote says is believed but by the
 * minder, which is our own program, and has looked at the process. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/last_words.h"

/* In the order of kg_ip_order_t, after the first four; all of them ours to close. */
typedef struct kg_parts {
    int fds[KG_IP_ORDER_FDS_MAX];
    size_t count;
} kg_parts_t;

static int add(kg_parts_t *parts, int fd_take)
{
    if (fd_take < 0) {
        return -errno;
    }
    parts->fds[parts->count++] = fd_take;
    return 0;
}

static void close_parts(kg_parts_t *parts)
{
    while (parts->count > 0) {
        kg_closep(&parts->fds[--parts->count]);
    }
}

static int collect(const kg_init_t *in, const kg_ip_spawn_t *spawn, kg_parts_t *parts)
{
    static const char *const sources[KG_IP_ORDER_FIXED] = {
        "/proc/self/exe",    "/proc/self/ns/user", "/proc/self/ns/mnt", "/proc/self/ns/pid",
        "/proc/self/ns/net", "/proc/self/ns/ipc",  "/proc/self/ns/uts", "/proc/self/ns/cgroup",
    };
    int words = -1;
    int r = 0;

    for (size_t i = 0; i < KG_IP_ORDER_FIXED && r == 0; i++) {
        r = add(parts, open(sources[i], O_RDONLY | O_CLOEXEC));
    }
    for (unsigned i = 0; i < in->entry_count && r == 0; i++) {
        r = add(parts, fcntl(KG_INIT_FD_ENTRIES + (int)i, F_DUPFD_CLOEXEC, 0));
    }
    if (r == 0 && (spawn->flags & KG_IP_SPAWN_LAST_WORDS)) {
        r = kg_last_words_create(&words);
        r = r < 0 ? r : add(parts, words);
    }
    return r;
}

static int send_parts(int sock, const kg_parts_t *parts)
{
    int r = 0;
    for (size_t at = 0; at < parts->count && r == 0; at += KG_SEQ_FDS_MAX) {
        size_t left = parts->count - at;
        r = kg_seq_send(sock, "f", 1, parts->fds + at,
                        left < KG_SEQ_FDS_MAX ? left : KG_SEQ_FDS_MAX);
    }
    return r;
}

static int send_spawn(int sock, const kg_ip_spawn_t *spawn, const char *strings, size_t len)
{
    char *frame = malloc(sizeof(*spawn) + len);
    if (!frame) {
        return -ENOMEM;
    }
    memcpy(frame, spawn, sizeof(*spawn));
    memcpy(frame + sizeof(*spawn), strings, len);
    int r = kg_seq_send(sock, frame, sizeof(*spawn) + len, NULL, 0);
    free(frame);
    return r;
}

static int
send_all(int sock, const kg_ip_order_t *order, const int first[4], const kg_parts_t *parts)
{
    int r = kg_seq_send(sock, order, sizeof(*order), first, 4);
    return r < 0 ? r : send_parts(sock, parts);
}

int init_order(const kg_init_t *in,
               const kg_ip_spawn_t *spawn,
               const char *strings,
               size_t len,
               const int stdio[3],
               int minder_sock,
               int sock)
{
    kg_ip_order_t order;
    struct rlimit files;
    kg_parts_t parts = {0};
    KG_AUTO_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int first[4] = {stdio[0] >= 0 ? stdio[0] : null, stdio[1],
                          stdio[2] >= 0 ? stdio[2] : stdio[1], minder_sock};

    if (null < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0) {
        return -errno;
    }
    kg_ip_order_init(&order);
    (void)kg_format(order.id, sizeof(order.id), "%s", in->id);
    order.nofile_max = files.rlim_max;
    order.uid = in->uid;
    order.gid = in->gid;
    order.entries = in->entry_count;
    int r = collect(in, spawn, &parts);
    order.fds = (uint32_t)(4 + parts.count);
    if (r == 0) {
        r = send_all(sock, &order, first, &parts);
    }
    close_parts(&parts);
    return r < 0 ? r : send_spawn(sock, spawn, strings, len);
}
