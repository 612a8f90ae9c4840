/* run: the logs of short runs, many in one file. Which slots are taken is known in memory alone:
 * after a restart it is what is in them that tells. */
#include "gateway/run/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/run/limits.h"

#define PACK_BYTES ((off_t)KG_RUN_SLOT * KG_RUN_PACK_SLOTS)
#define SUFFIX ".pack"

enum {
    WORD = 64,
    NAME_MAX_ = 40
};

_Static_assert(KG_RUN_SLOT <= KG_RUN_BUDGET_FLOOR, "what packs take is within the budgets");
_Static_assert(KG_RUN_PACK_SLOTS % WORD == 0, "whole words");

struct kg_run_pack {
    kg_run_packs_t *packs; /* NULL when they are gone */
    kg_run_pack_t *next;
    int fd;
    unsigned refs; /* slots that are held */
    unsigned used; /* slots that are not free */
    bool unread;   /* from before the restart: logs may be in it that nobody counted yet */
    uint64_t taken[KG_RUN_PACK_SLOTS / WORD];
    char name[NAME_MAX_];
};

struct kg_run_packs {
    int dirfd;
    kg_run_pack_t *list;
    size_t count;
};

static const char zeros[KG_RUN_SLOT];

int kg_run_packs_create(int dirfd, kg_run_packs_t **ret_packs)
{
    kg_run_packs_t *packs = calloc(1, sizeof *packs);
    if (!packs) {
        return -ENOMEM;
    }
    packs->dirfd = dirfd;
    *ret_packs = packs;
    return 0;
}

static void pack_free(kg_run_pack_t *pack)
{
    (void)close(pack->fd);
    free(pack);
}

void kg_run_packs_destroy(kg_run_packs_t **packs)
{
    kg_run_packs_t *p = KG_TAKE(*packs);
    while (p && p->list) {
        kg_run_pack_t *pack = p->list;
        p->list = pack->next;
        pack->packs = NULL;
        if (pack->used == 0 && !pack->unread) {
            (void)unlinkat(p->dirfd, pack->name, 0);
        }
        if (pack->refs == 0) {
            pack_free(pack);
        }
    }
    free(p);
}

size_t kg_run_packs_count(const kg_run_packs_t *packs)
{
    return packs->count;
}

static void put_first(kg_run_packs_t *packs, kg_run_pack_t *pack)
{
    pack->packs = packs;
    pack->next = packs->list;
    packs->list = pack;
    packs->count++;
}

/* --- files ---------------------------------------------------------------------------------------
 */

bool kg_run_pack_named(const char *name)
{
    size_t len = strlen(name);
    const size_t suffix = sizeof SUFFIX - 1;
    return len > suffix && len < NAME_MAX_ && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + len - suffix, SUFFIX) == 0;
}

static kg_run_pack_t *pack_new(const char *name)
{
    kg_run_pack_t *pack = calloc(1, sizeof *pack);
    if (pack) {
        (void)snprintf(pack->name, sizeof pack->name, "%s", name);
    }
    return pack;
}

static int make_pack(kg_run_packs_t *packs, kg_run_pack_t **ret_pack)
{
    unsigned char random[12];
    char name[sizeof random * 2 + sizeof SUFFIX];
    randombytes_buf(random, sizeof random);
    (void)sodium_bin2hex(name, sizeof name, random, sizeof random);
    memcpy(name + sizeof random * 2, SUFFIX, sizeof SUFFIX);
    KG_AUTO_FREE kg_run_pack_t *pack = pack_new(name);
    if (!pack) {
        return -ENOMEM;
    }
    pack->fd = openat(packs->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (pack->fd < 0) {
        return -errno;
    }
    if (ftruncate(pack->fd, PACK_BYTES) < 0) {
        int rc = -errno;
        (void)close(pack->fd);
        (void)unlinkat(packs->dirfd, name, 0);
        return rc;
    }
    *ret_pack = pack;
    put_first(packs, KG_TAKE(pack));
    return 0;
}

/* Of the size that its slots need: one that was cut short has zeros there again. */
static int open_pack(int dirfd, kg_run_pack_t *pack)
{
    struct stat st;
    pack->fd = openat(dirfd, pack->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (pack->fd < 0) {
        return -errno;
    }
    if (fstat(pack->fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EBADMSG;
    }
    return st.st_size < PACK_BYTES && ftruncate(pack->fd, PACK_BYTES) < 0 ? -errno : 0;
}

int kg_run_packs_open(kg_run_packs_t *packs, const char *name)
{
    if (!kg_run_pack_named(name)) {
        return -EBADMSG;
    }
    KG_AUTO_FREE kg_run_pack_t *pack = pack_new(name);
    if (!pack) {
        return -ENOMEM;
    }
    int rc = open_pack(packs->dirfd, pack);
    if (rc < 0) {
        kg_closep(&pack->fd);
        return rc;
    }
    pack->unread = true;
    put_first(packs, KG_TAKE(pack));
    return 0;
}

/* A pack that is empty goes, when it is not the last: the next log would make one anew. */
static void let_go(kg_run_pack_t *pack)
{
    kg_run_packs_t *packs = pack->packs;
    if (packs && pack->used == 0 && !pack->unread && packs->count > 1) {
        kg_run_pack_t **at = &packs->list;
        while (*at != pack) {
            at = &(*at)->next;
        }
        *at = pack->next;
        packs->count--;
        pack->packs = NULL;
        (void)unlinkat(packs->dirfd, pack->name, 0);
    }
    if (!pack->packs && pack->refs == 0) {
        pack_free(pack);
    }
}

/* --- slots ---------------------------------------------------------------------------------------
 */

static kg_run_slot_t hold(kg_run_pack_t *pack, uint32_t index)
{
    pack->taken[index / WORD] |= UINT64_C(1) << index % WORD;
    pack->used++;
    pack->refs++;
    return (kg_run_slot_t){.pack = pack, .index = index};
}

static kg_run_slot_t first_free(kg_run_pack_t *pack)
{
    uint32_t word = 0;
    while (pack->taken[word] == UINT64_MAX) {
        word++;
    }
    return hold(pack, word * WORD + (uint32_t)__builtin_ctzll(~pack->taken[word]));
}

int kg_run_packs_take(kg_run_packs_t *packs, kg_run_slot_t *ret_slot)
{
    kg_run_pack_t *pack = packs->list;
    while (pack && (pack->unread || pack->used == KG_RUN_PACK_SLOTS)) {
        pack = pack->next;
    }
    int rc = pack ? 0 : make_pack(packs, &pack);
    if (!pack) {
        return rc;
    }
    *ret_slot = first_free(pack);
    return 0;
}

void kg_run_slot_leave(kg_run_slot_t *slot)
{
    kg_run_pack_t *pack = KG_TAKE(slot->pack);
    pack->refs--;
    let_go(pack);
}

void kg_run_slot_give(kg_run_slot_t *slot, uint64_t bytes)
{
    kg_run_pack_t *pack = slot->pack;
    if (kg_run_slot_clear(slot, 0, bytes) == 0) {
        pack->taken[slot->index / WORD] &= ~(UINT64_C(1) << slot->index % WORD);
        pack->used--;
    }
    kg_run_slot_leave(slot);
}

int kg_run_slot_fd(const kg_run_slot_t *slot)
{
    return slot->pack->fd;
}

uint64_t kg_run_slot_off(const kg_run_slot_t *slot)
{
    return (uint64_t)slot->index * KG_RUN_SLOT;
}

/* The whole pages of a hole take no room, so that this goes well on a full disk. */
static int punch(const kg_run_slot_t *slot, uint64_t from, uint64_t to)
{
    return fallocate(slot->pack->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     (off_t)(kg_run_slot_off(slot) + from), (off_t)(to - from)) < 0
               ? -errno
               : 0;
}

int kg_run_slot_clear(const kg_run_slot_t *slot, uint64_t from, uint64_t to)
{
    /* To the end of the last page: no byte of it needs to be read for that. */
    const uint64_t page = 4096;
    to = (to + page - 1) / page * page;
    to = to < KG_RUN_SLOT ? to : KG_RUN_SLOT;
    while (from < to) {
        ssize_t n = pwrite(slot->pack->fd, zeros, (size_t)(to - from),
                           (off_t)(kg_run_slot_off(slot) + from));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return punch(slot, from, to);
        }
        from += (uint64_t)n;
    }
    return 0;
}

/* --- after a restart -----------------------------------------------------------------------------
 */

/* Whether the bytes from..to of a slot hold anything. What cannot be read does: who opens its log
 * meets the error. */
static bool holds(const kg_run_pack_t *pack, uint32_t index, size_t from, size_t to)
{
    char bytes[KG_RUN_SLOT];
    ssize_t n = pread(pack->fd, bytes, to - from, (off_t)index * KG_RUN_SLOT + (off_t)from);
    return n < 0 || memcmp(bytes, zeros, (size_t)n) != 0;
}

/* A log's head tells at once. Behind zeros there may be what is left of one that was being cleared.
 */
static bool is_taken(const kg_run_pack_t *pack, uint32_t index)
{
    const size_t head = 64;
    return holds(pack, index, 0, head) || holds(pack, index, head, KG_RUN_SLOT);
}

/* Where the next data of a sparse file begins. */
static uint32_t next_data(const kg_run_pack_t *pack, uint32_t index)
{
    off_t at = lseek(pack->fd, (off_t)index * KG_RUN_SLOT, SEEK_DATA);
    if (at < 0) { /* ENXIO: there is none; else the filesystem cannot tell */
        return errno == ENXIO ? KG_RUN_PACK_SLOTS : index;
    }
    return at < PACK_BYTES ? (uint32_t)(at / KG_RUN_SLOT) : KG_RUN_PACK_SLOTS;
}

void kg_run_packs_each(kg_run_packs_t *packs, kg_run_slot_fn *fn, void *user)
{
    for (kg_run_pack_t *pack = packs->list, *next; pack; pack = next) {
        for (uint32_t i = pack->unread ? next_data(pack, 0) : KG_RUN_PACK_SLOTS;
             i < KG_RUN_PACK_SLOTS; i = next_data(pack, i + 1)) {
            if (is_taken(pack, i)) {
                fn(user, hold(pack, i));
            }
        }
        next = pack->next;
        pack->unread = false;
        let_go(pack);
    }
}
