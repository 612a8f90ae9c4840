/* Packs: files *.pack (0600) that hold the logs of short runs, each in a slot of its own: most runs
 * print less than KG_RUN_SLOT, and making a file for each costs a run up to 1 ms on ext4, on
 * whichever thread that is done. A log that outgrows its slot moves to a file of its own
 * (log_write.c).
 *
 * A free slot holds zeros; a taken one begins with a log's first record. Files are sparse: a slot
 * takes the disk blocks that were written in it, and keeps them for the next log. A pack without a
 * log goes, but for one. All calls belong to the loop's thread. */
#ifndef KG_RUN_PACK_H
#define KG_RUN_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a slot: no more than a log is charged at least (KG_RUN_BUDGET_FLOOR), so that packs take
 * no more than the budgets of logs let in at once, even where most of their logs are gone. */
#define KG_RUN_SLOT 16384U
#define KG_RUN_PACK_SLOTS 1024U /* of one file: it costs a descriptor as long as it is there */

typedef struct kg_run_packs kg_run_packs_t;
typedef struct kg_run_pack kg_run_pack_t;

/* Where a log is; pack NULL = in none. Whoever holds it gives it back by kg_run_slot_give or
 * kg_run_slot_leave, which may come after kg_run_packs_destroy. */
typedef struct kg_run_slot {
    kg_run_pack_t *pack;
    uint32_t index;
} kg_run_slot_t;

/* dirfd is borrowed. -ENOMEM. */
int kg_run_packs_create(int dirfd, kg_run_packs_t **ret_packs);
void kg_run_packs_destroy(kg_run_packs_t **packs); /* files without a log go; NULL ok */

/* A free slot, from the first pack that has one, else from a new one. -errno of making a file. */
int kg_run_packs_take(kg_run_packs_t *packs, kg_run_slot_t *ret_slot);
/* The log is to be gone: its first `bytes` (more than there are is fine) become zeros, the slot is
 * free. Where the disk refuses, the slot is not used again. */
void kg_run_slot_give(kg_run_slot_t *slot, uint64_t bytes);
/* The log stays in the file: the slot is not used again by this process. */
void kg_run_slot_leave(kg_run_slot_t *slot);

int kg_run_slot_fd(const kg_run_slot_t *slot);       /* the pack's */
uint64_t kg_run_slot_off(const kg_run_slot_t *slot); /* where the slot begins in it */
/* Zeros from..to of the slot, and to the end of to's page. -errno. */
int kg_run_slot_clear(const kg_run_slot_t *slot, uint64_t from, uint64_t to);

/* After a restart: takes in a file that is there. -EBADMSG when it is no regular file of a pack's
 * name, -errno. */
int kg_run_packs_open(kg_run_packs_t *packs, const char *name);
bool kg_run_pack_named(const char *name); /* whether a file's name is one of a pack */
/* Calls fn for each slot of the files so opened that holds something; fn gives it back, or hands it
 * on. Once. Until then no slot of them is taken, and none of them goes. */
typedef void kg_run_slot_fn(void *user, kg_run_slot_t slot);
void kg_run_packs_each(kg_run_packs_t *packs, kg_run_slot_fn *fn, void *user);

size_t kg_run_packs_count(const kg_run_packs_t *packs); /* files */

#endif
