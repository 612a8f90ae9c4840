/* Who has the forwarder's addresses, where it is not this keeper. The helper of a keeper that was
 * killed outlives it, for the sandboxes that do, and another state directory's keeper of the same
 * range of user ids gets the same addresses. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/net_private.h"
#include "gateway/sandbox/proctree.h"

#define INODES_MAX 16
#define DNS_PORT 53U
#define TCP_LISTEN 0x0aU
#define LOCK_PATH "/net/" NET_HELPER_LOCK /* as /proc/PID/fd shows it, "RUNTIME" before it */
#define GONE " (deleted)"

typedef struct inodes {
    unsigned long items[INODES_MAX];
    size_t count;
} inodes_t;

typedef struct holder {
    pid_t pid; /* 0: none was found */
    char name[20];
    bool has_socket, is_helper, keeper_gone;
    int lock; /* a helper's; -1 */
} holder_t;

/* The IPv4 address of a line, whose words are numbers of the bytes as they are: 8 digits, or 32 of
 * a socket of IPv6, which has one as well where it is open to all (::) or mapped (::ffff:…). False:
 * it has none. */
static bool read_address(const char *digits, uint32_t *ret)
{
    unsigned word[4] = {0};
    switch (strlen(digits)) {
    case 8:
        *ret = 0;
        return sscanf(digits, "%8x", ret) == 1; // NOLINT(cert-err34-c): the kernel's own numbers
    case 32:
        // NOLINTNEXTLINE(cert-err34-c): likewise
        if (sscanf(digits, "%8x%8x%8x%8x", &word[0], &word[1], &word[2], &word[3]) != 4) {
            return false;
        }
        *ret = word[3];
        return word[0] == 0 && word[1] == 0 &&
               (word[2] == htonl(0xffff) || (word[2] == 0 && word[3] == 0));
    default:
        return false;
    }
}

/* Of sockets on port 53 at that address or at all. table: /proc/net/udp, tcp, udp6 or tcp6. */
static void find_sockets(const char *table, uint32_t address, inodes_t *found)
{
    char line[512];
    FILE *file = fopen(table, "re");
    while (file && fgets(line, sizeof(line), file) && found->count < INODES_MAX) {
        char digits[33] = "";
        uint32_t at = 0;
        unsigned port = 0;
        unsigned state = 0;
        unsigned long inode = 0;
        /* NOLINTBEGIN(cert-err34-c): the kernel's own numbers */
        int got =
            sscanf(line, " %*u: %32[0-9A-F]:%4x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                   digits, &port, &state, &inode);
        /* NOLINTEND(cert-err34-c) */
        bool tcp_open = strncmp(table, "/proc/net/tcp", 13) == 0 && state != TCP_LISTEN;
        if (got == 4 && port == DNS_PORT && !tcp_open && read_address(digits, &at) &&
            (at == 0 || at == htonl(address))) {
            found->items[found->count++] = inode;
        }
    }
    if (file) {
        (void)fclose(file);
    }
}

static bool is_one(const inodes_t *inodes, const char *link)
{
    for (size_t i = 0; i < inodes->count; i++) {
        char text[40];
        (void)snprintf(text, sizeof(text), "socket:[%lu]", inodes->items[i]);
        if (strcmp(text, link) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the process of the pidfd that is number there has ended: -1, or nobody has waited for it
 * yet. 0 is one of another pid namespace. */
static bool has_ended(int fds, const char *number)
{
    char path[64];
    char line[128];
    long pid = 0;
    kg_task_t task;
    (void)snprintf(path, sizeof(path), "../fdinfo/%s", number);
    int fd = openat(fds, path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "Pid:", 4) == 0) {
            pid = strtol(line + 4, NULL, 10);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return pid == -1 || (pid > 0 && kg_task_read((pid_t)pid, &task) == 0 && task.state == 'Z');
}

/* The file's own is the process that is to be ended: the one that watches, above the one that
 * answers. */
static int open_lock(int fds, const char *number, pid_t pid)
{
    char text[16] = "";
    uint64_t said = 0;
    struct stat st;
    KG_AUTO_CLOSE int fd = openat(fds, number, O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    bool is = n > 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
              kg_parse_u64(text, 2, INT32_MAX, &said) == 0 && (pid_t)said == pid;
    return is ? kg_take_fd(&fd) : -1;
}

static bool is_lock(char *link)
{
    size_t size = strlen(link);
    if (size > strlen(GONE) && strcmp(link + size - strlen(GONE), GONE) == 0) {
        size -= strlen(GONE);
        link[size] = '\0';
    }
    return size > strlen(LOCK_PATH) && strcmp(link + size - strlen(LOCK_PATH), LOCK_PATH) == 0;
}

static void look_at(int fds, const char *number, const inodes_t *inodes, holder_t *h)
{
    char link[4200];
    ssize_t n = readlinkat(fds, number, link, sizeof(link) - 1);
    if (n <= 0) {
        return;
    }
    link[n] = '\0';
    if (is_one(inodes, link)) {
        h->has_socket = true;
    } else if (strstr(link, "pidfd")) {
        h->keeper_gone = h->keeper_gone || has_ended(fds, number);
    } else if (h->lock < 0 && link[0] == '/' && is_lock(link)) {
        h->lock = open_lock(fds, number, h->pid);
    }
}

/* What a program calls itself may be anything, and goes into lines of the log and into answers. */
static void read_name(pid_t pid, char ret[20])
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, 19);
    ret[n > 0 ? n : 0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    for (char *c = ret; *c; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                     (*c >= 'A' && *c <= 'Z') || strchr("-_.+", *c);
        if (!plain) {
            *c = '?';
        }
    }
}

static void look_at_process(pid_t pid, const inodes_t *inodes, holder_t *ret)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    *ret = (holder_t){.pid = pid, .lock = -1};
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; // NOLINT(concurrency-mt-unsafe)
         e = readdir(dir)) {                              // NOLINT(concurrency-mt-unsafe)
        look_at(dirfd(dir), e->d_name, inodes, ret);
    }
    if (dir) {
        closedir(dir);
    }
    if (ret->has_socket) {
        read_name(pid, ret->name);
    }
    ret->is_helper = strcmp(ret->name, NET_HELPER_NAME) == 0 && ret->lock >= 0;
}

/* The helper that is to be ended, else any process that has the socket. */
static void find_holder(const kg_nets_t *nets, holder_t *ret)
{
    inodes_t inodes = {.count = 0};
    kg_tasks_t tasks = {0};
    *ret = (holder_t){.lock = -1};
    static const char *const tables[] = {"/proc/net/udp", "/proc/net/tcp", "/proc/net/udp6",
                                         "/proc/net/tcp6"};
    for (size_t i = 0; i < KG_ARRAY_LEN(tables); i++) {
        find_sockets(tables[i], net_gateway(nets), &inodes);
    }
    if (inodes.count == 0 || kg_tasks_scan(&tasks) < 0) {
        return;
    }
    for (size_t i = 0; i < tasks.count && !ret->is_helper; i++) {
        holder_t one;
        look_at_process(tasks.items[i].pid, &inodes, &one);
        if (one.is_helper || (one.has_socket && ret->pid == 0)) {
            *ret = one;
        } else {
            kg_closep(&one.lock);
        }
    }
    kg_tasks_fini(&tasks);
}

/* A sandbox's end of its network on the host goes with the sandbox. */
static bool has_sandboxes(const kg_nets_t *nets)
{
    char prefix[IFNAMSIZ];
    bool has = false;
    (void)snprintf(prefix, sizeof(prefix), NET_ALL_PREFIX "%04x-", nets->keeper_tag & 0xffff);
    struct if_nameindex *list = if_nameindex();
    for (const struct if_nameindex *i = list; i && i->if_index != 0; i++) {
        has = has || strncmp(i->if_name, prefix, strlen(prefix)) == 0;
    }
    if_freenameindex(list);
    return has || !list;
}

static void say_who(kg_nets_t *nets, const holder_t *h, bool live)
{
    struct in_addr at = {.s_addr = htonl(net_gateway(nets))};
    char address[INET_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET, &at, address, sizeof(address));
    if (h->is_helper && h->keeper_gone && live) {
        (void)snprintf(
            nets->reason, sizeof(nets->reason),
            "%s:53 is held by process %d of a daemon that is gone, whose sandboxes live: "
            "another --uid-base, or wait for timeouts.orphan",
            address, (int)h->pid);
    } else if (h->pid != 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason),
                       "%s:53 is held by process %d (%s): let it listen on other addresses, or "
                       "choose another --uid-base",
                       address, (int)h->pid, h->name);
    } else {
        (void)snprintf(nets->reason, sizeof(nets->reason),
                       "%s:53 is held by another program: choose another --uid-base", address);
    }
}

bool net_holder_end(kg_nets_t *nets)
{
    holder_t h;
    find_holder(nets, &h);
    bool live = has_sandboxes(nets);
    bool may = h.is_helper && h.keeper_gone && !live;
    if (may) {
        kg_log(KG_LOG_WARN, "net.helper_left", "pid=%d reason=\"its daemon is gone\"", (int)h.pid);
        net_helper_kill(h.lock);
    } else {
        nets->foreign = live || strcmp(h.name, NET_HELPER_NAME) == 0;
        say_who(nets, &h, live);
    }
    kg_closep(&h.lock);
    return may;
}
