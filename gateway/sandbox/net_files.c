/* What is kept of a slot in RUNTIME/net: SLOT.rules (by the keeper, for the helper and the next
 * keeper), SLOT.log and SLOT.names (rings, by the helper). One writer each; a reader that meets a
 * row which is just being written sees it by its number. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/sandbox/net_private.h"

#define FILE_MAGIC UINT32_C(0x6e657431)

typedef struct log_row {
    uint64_t number; /* from 1 */
    kg_net_denied_t denied;
} log_row_t;

typedef struct name_row {
    uint64_t number;
    net_name_t name;
} name_row_t;

static void file_name(uint32_t slot, const char *kind, char ret[32])
{
    (void)snprintf(ret, 32, "%04x.%s", slot & 0xffff, kind);
}

static int open_of(const kg_nets_t *nets, uint32_t slot, const char *kind, int flags)
{
    char name[32];
    file_name(slot, kind, name);
    int fd = openat(nets->dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd < 0 ? -errno : fd;
}

int net_file_read(const kg_nets_t *nets, uint32_t slot, net_slot_file_t *ret)
{
    net_slot_file_t file;
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "rules", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    if (pread(fd, &file, sizeof(file), 0) != (ssize_t)sizeof(file) || file.magic != FILE_MAGIC ||
        file.wish.rule_count > KG_NET_RULES_MAX) {
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

int net_file_write(const kg_nets_t *nets, uint32_t slot, const net_slot_file_t *file)
{
    char name[32];
    net_slot_file_t out = *file;
    out.magic = FILE_MAGIC;
    file_name(slot, "rules", name);
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "rules.new", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) {
        return fd;
    }
    if (write(fd, &out, sizeof(out)) != (ssize_t)sizeof(out)) {
        return errno ? -errno : -EIO;
    }
    char made[32];
    file_name(slot, "rules.new", made);
    return renameat(nets->dir_fd, made, nets->dir_fd, name) < 0 ? -errno : 0;
}

int net_files_make(const kg_nets_t *nets, uint32_t slot)
{
    static const char *const kinds[] = {"log", "names"};
    for (size_t i = 0; i < KG_ARRAY_LEN(kinds); i++) {
        KG_AUTO_CLOSE int fd = open_of(nets, slot, kinds[i], O_WRONLY | O_CREAT | O_TRUNC);
        if (fd < 0) {
            return fd;
        }
        if ((!nets->routed && fchown(fd, NET_HELPER_UID, NET_HELPER_UID) < 0) ||
            fchmod(fd, 0600) < 0) {
            return -errno;
        }
    }
    return 0;
}

void net_files_remove(const kg_nets_t *nets, uint32_t slot)
{
    static const char *const kinds[] = {"log", "names", "rules", "rules.new"};
    for (size_t i = 0; i < KG_ARRAY_LEN(kinds); i++) {
        char name[32];
        file_name(slot, kinds[i], name);
        (void)unlinkat(nets->dir_fd, name, 0);
    }
}

/* The ring's first eight bytes say how many rows there have ever been. */
static uint64_t head_of(int fd)
{
    uint64_t head = 0;
    return pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) ? head : 0;
}

static off_t place_of(uint64_t number, uint64_t kept, size_t size)
{
    return (off_t)(sizeof(uint64_t) + (number % kept) * size);
}

static int append(int fd, uint64_t kept, const void *row, size_t size, uint64_t number)
{
    if (pwrite(fd, row, size, place_of(number, kept, size)) != (ssize_t)size ||
        pwrite(fd, &number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
        return errno ? -errno : -EIO;
    }
    return 0;
}

#define SAME_NS (UINT64_C(5) * 1000000000)
#define SAME_ROWS 8

static bool seen_lately(int fd, uint64_t head, const kg_net_denied_t *row)
{
    for (uint64_t number = head; number > 0 && head - number < SAME_ROWS; number--) {
        log_row_t old;
        if (pread(fd, &old, sizeof(old), place_of(number, NET_DENIED_KEPT, sizeof(old))) !=
            (ssize_t)sizeof(old)) {
            return false;
        }
        if (old.denied.family == row->family && old.denied.protocol == row->protocol &&
            old.denied.port == row->port && memcmp(old.denied.address, row->address, 16) == 0 &&
            strncmp(old.denied.domain, row->domain, sizeof(row->domain)) == 0 &&
            old.denied.why == row->why && old.denied.rule == row->rule &&
            row->at_ns - old.denied.at_ns < SAME_NS) {
            return true;
        }
    }
    return false;
}

int net_log_add(const kg_nets_t *nets, uint32_t slot, const kg_net_denied_t *denied)
{
    log_row_t row;
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "log", O_RDWR);
    if (fd < 0) {
        return fd;
    }
    uint64_t head = head_of(fd);
    if (seen_lately(fd, head, denied)) {
        return 0;
    }
    memset(&row, 0, sizeof(row));
    row.number = head + 1;
    row.denied = *denied;
    return append(fd, NET_DENIED_KEPT, &row, sizeof(row), row.number);
}

int kg_net_denied(const kg_nets_t *nets,
                  uint32_t slot,
                  uint64_t *cursor,
                  kg_net_denied_t *out,
                  size_t max,
                  uint64_t *lost)
{
    *lost = 0;
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "log", O_RDONLY);
    if (fd < 0) {
        return fd == -ENOENT ? 0 : fd;
    }
    uint64_t head = head_of(fd);
    uint64_t next = *cursor + 1;
    uint64_t oldest = head > NET_DENIED_KEPT ? head - NET_DENIED_KEPT + 1 : 1;
    size_t count = 0;
    if (next < oldest) {
        *lost = oldest - next;
        next = oldest;
    }
    for (; next <= head && count < max; next++) {
        log_row_t row;
        if (pread(fd, &row, sizeof(row), place_of(next, NET_DENIED_KEPT, sizeof(row))) !=
                (ssize_t)sizeof(row) ||
            row.number != next) {
            (*lost)++; /* written over meanwhile */
            continue;
        }
        row.denied.domain[sizeof(row.denied.domain) - 1] = '\0';
        out[count++] = row.denied;
    }
    *cursor = next - 1;
    return (int)count;
}

int net_name_add(const kg_nets_t *nets, uint32_t slot, const net_name_t *name)
{
    name_row_t row;
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "names", O_RDWR);
    if (fd < 0) {
        return fd;
    }
    memset(&row, 0, sizeof(row));
    row.number = head_of(fd) + 1;
    row.name = *name;
    return append(fd, NET_NAMES_KEPT, &row, sizeof(row), row.number);
}

size_t net_names_read(const kg_nets_t *nets, uint32_t slot, net_name_t ret[NET_NAMES_KEPT])
{
    size_t count = 0;
    KG_AUTO_CLOSE int fd = open_of(nets, slot, "names", O_RDONLY);
    if (fd < 0) {
        return 0;
    }
    for (uint64_t number = head_of(fd); number > 0 && count < NET_NAMES_KEPT; number--) {
        name_row_t row;
        if (pread(fd, &row, sizeof(row), place_of(number, NET_NAMES_KEPT, sizeof(row))) !=
                (ssize_t)sizeof(row) ||
            row.number != number) {
            break;
        }
        row.name.domain[sizeof(row.name.domain) - 1] = '\0';
        ret[count++] = row.name;
    }
    return count;
}
