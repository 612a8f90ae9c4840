/* run: files made ahead of time for logs. Their names say nothing: the run's id is in the log's
 * first record, so that no rename is needed when a run takes one. What is in a spare is no log,
 * so a crash leaves nothing that could be taken for one. */
#include "gateway/run/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/mem.h"

typedef struct kg_used {
    char name[KG_RUN_NAME_MAX];
    uint64_t bytes;
} kg_used_t;

struct kg_run_spares {
    int dirfd;
    size_t want, count;
    kg_used_t *used; /* names of files to empty or unlink */
    size_t used_count, used_cap;
    uint64_t used_bytes; /* in them */
    uint64_t work_bytes; /* in those of the work under way */
    kg_run_spare_t items[];
};

int kg_run_spare_make(int dirfd, kg_run_spare_t *ret_spare)
{
    kg_run_spare_t spare = {.fd = -1};
    unsigned char random[12];
    char hex[sizeof random * 2 + 1];
    randombytes_buf(random, sizeof random);
    (void)sodium_bin2hex(hex, sizeof hex, random, sizeof random);
    (void)snprintf(spare.name, sizeof spare.name, "%s.log", hex);
    spare.fd = openat(dirfd, spare.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (spare.fd < 0) {
        return -errno;
    }
    *ret_spare = spare;
    return 0;
}

int kg_run_spares_create(int dirfd, size_t want, kg_run_spares_t **ret_spares)
{
    size_t size;
    if (!kg_mul_size(want, sizeof(kg_run_spare_t), &size) ||
        !kg_add_size(size, sizeof(kg_run_spares_t), &size)) {
        return -EINVAL;
    }
    kg_run_spares_t *spares = calloc(1, size);
    if (!spares) {
        return -ENOMEM;
    }
    spares->dirfd = dirfd;
    spares->want = want;
    *ret_spares = spares;
    return 0;
}

static void spare_drop(int dirfd, const kg_run_spare_t *spare)
{
    (void)unlinkat(dirfd, spare->name, 0);
    (void)close(spare->fd);
}

void kg_run_spares_destroy(kg_run_spares_t **spares)
{
    kg_run_spares_t *s = *spares;
    *spares = NULL;
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        spare_drop(s->dirfd, &s->items[i]);
    }
    for (size_t i = 0; i < s->used_count; i++) {
        (void)unlinkat(s->dirfd, s->used[i].name, 0);
    }
    free(s->used);
    free(s);
}

int kg_run_spares_get(kg_run_spares_t *spares, kg_run_spare_t *ret_spare)
{
    if (spares->count == 0) {
        return -ENOENT;
    }
    *ret_spare = spares->items[--spares->count];
    return 0;
}

/* -errno: it is as large as before. */
static int cut_now(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    int rc = ftruncate(fd, 1) < 0 ? -errno : 0; /* not to nothing: see empty_out */
    (void)close(fd);
    return rc;
}

uint64_t kg_run_spares_waiting(const kg_run_spares_t *spares)
{
    return spares->used_bytes + spares->work_bytes;
}

void kg_run_spares_give(kg_run_spares_t *spares, const char *name, uint64_t bytes)
{
    if (bytes <= KG_RUN_SPARE_SLOW &&
        kg_run_spares_waiting(spares) + bytes > KG_RUN_SPARE_WAITING &&
        cut_now(spares->dirfd, name) == 0) {
        bytes = 1;
    }
    if (spares->used_count == spares->used_cap) {
        size_t cap = spares->used_cap ? spares->used_cap * 2 : KG_RUN_SPARE_BATCH;
        kg_used_t *grown = reallocarray(spares->used, cap, sizeof *grown);
        if (!grown) {
            (void)unlinkat(spares->dirfd, name, 0);
            return;
        }
        spares->used = grown;
        spares->used_cap = cap;
    }
    kg_used_t *used = &spares->used[spares->used_count++];
    (void)snprintf(used->name, sizeof used->name, "%s", name);
    used->bytes = bytes;
    spares->used_bytes += bytes;
}

/* --- work ----------------------------------------------------------------------------------------
 */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool kg_run_spares_wanting(const kg_run_spares_t *spares, bool tidy)
{
    return spares->used_count >= (tidy ? 1 : KG_RUN_SPARE_BATCH) ||
           spares->used_bytes > KG_RUN_SPARE_WAITING || spares->count <= spares->want / 2;
}

void kg_run_spares_plan(kg_run_spares_t *spares, kg_run_spare_work_t *ret_work)
{
    size_t missing = spares->want - spares->count;
    size_t names = least(spares->used_count, KG_RUN_SPARE_BATCH);
    *ret_work = (kg_run_spare_work_t){.dirfd = spares->dirfd};
    for (size_t i = 0; i < names; i++) {
        const kg_used_t *used = &spares->used[--spares->used_count];
        memcpy(ret_work->names[i], used->name, KG_RUN_NAME_MAX);
        ret_work->bytes += used->bytes;
    }
    spares->used_bytes -= ret_work->bytes;
    spares->work_bytes += ret_work->bytes;
    ret_work->empty = least(names, missing);
    ret_work->drop = names - ret_work->empty;
    if (spares->count <= spares->want / 2) {
        ret_work->make = least(missing, KG_RUN_SPARE_BATCH) - ret_work->empty;
    }
    if (spares->used_count == 0 && spares->used_cap > (size_t)4 * KG_RUN_SPARE_BATCH) {
        free(spares->used); /* many went at once */
        spares->used = NULL;
        spares->used_cap = 0;
    }
}

/* A single NUL stays, for ext4 writes a file out when it is closed that was cut to nothing. The log
 * is written over it. */
static int empty_out(int dirfd, const char *name, kg_run_spare_t *ret_spare)
{
    kg_run_spare_t spare;
    memcpy(spare.name, name, sizeof spare.name);
    spare.fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (spare.fd < 0) {
        return -errno;
    }
    if (ftruncate(spare.fd, 1) < 0 || pwrite(spare.fd, "", 1, 0) != 1) {
        spare_drop(dirfd, &spare);
        return -EIO;
    }
    *ret_spare = spare;
    return 0;
}

void kg_run_spare_work(kg_run_spare_work_t *work)
{
    for (size_t i = 0; i < work->empty; i++) {
        work->made_count +=
            empty_out(work->dirfd, work->names[i], &work->made[work->made_count]) == 0;
    }
    for (size_t i = work->empty; i < work->empty + work->drop; i++) {
        (void)unlinkat(work->dirfd, work->names[i], 0);
    }
    for (size_t i = 0; i < work->make; i++) {
        work->made_count += kg_run_spare_make(work->dirfd, &work->made[work->made_count]) == 0;
    }
}

void kg_run_spares_settle(kg_run_spares_t *spares, kg_run_spare_work_t *work)
{
    if (spares) {
        spares->work_bytes -= work->bytes;
    }
    work->bytes = 0;
    for (size_t i = 0; i < work->made_count; i++) {
        if (!spares || spares->count == spares->want) {
            spare_drop(work->dirfd, &work->made[i]);
        } else {
            spares->items[spares->count++] = work->made[i];
        }
    }
    work->made_count = 0;
}
