/* Files for logs, made ahead of time: creating one costs a run 0.1 to 0.4 ms on ext4, taking a
 * spare nothing. Files of logs that went are emptied and used again: a daemon that makes and
 * unlinks a thousand a second makes ext4 look ever longer for an inode that was not freed just now
 * (0.5 ms a file). A worker does the slow part; the pool belongs to the loop's thread. */
#ifndef KG_RUN_SPARE_H
#define KG_RUN_SPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_RUN_NAME_MAX 32    /* of a log's file, with its NUL */
#define KG_RUN_SPARE_BATCH 16 /* files of one piece of work */
/* What waits to be emptied is still on the disk, beside the budget of logs: no more than this … */
#define KG_RUN_SPARE_WAITING (UINT64_C(1) << 20)
/* … and files that are larger than this each: a worker empties them, for it takes 1 ms for 16 MiB
 */
#define KG_RUN_SPARE_SLOW (UINT64_C(64) << 20)

typedef struct kg_run_spare {
    int fd;
    char name[KG_RUN_NAME_MAX];
} kg_run_spare_t;

/* Makes an empty file of a fresh name, 0600. -errno. Thread-safe. */
int kg_run_spare_make(int dirfd, kg_run_spare_t *ret_spare);

typedef struct kg_run_spares kg_run_spares_t;
/* dirfd is borrowed; want: how many to hold ready. */
int kg_run_spares_create(int dirfd, size_t want, kg_run_spares_t **ret_spares);
void kg_run_spares_destroy(kg_run_spares_t **spares); /* unlinks what is left; NULL ok */
/* 0, or -ENOENT when the pool is empty. */
int kg_run_spares_get(kg_run_spares_t *spares, kg_run_spare_t *ret_spare);
/* The file of a log that went: nobody has it open or may read it any more. bytes: its size. Where
 * more than KG_RUN_SPARE_WAITING would wait, it is cut now, unless that is slow. */
void kg_run_spares_give(kg_run_spares_t *spares, const char *name, uint64_t bytes);
/* What may still be on the disk of files that were given. */
uint64_t kg_run_spares_waiting(const kg_run_spares_t *spares);

/* One piece of work for a worker: names to empty or to unlink, files to make. Plain data. */
typedef struct kg_run_spare_work {
    int dirfd; /* of the pool, or a duplicate that the caller puts here before the work */
    size_t empty, drop, make; /* how many: the first `empty` of names, then those to unlink */
    uint64_t bytes;           /* in those of names */
    char names[KG_RUN_SPARE_BATCH][KG_RUN_NAME_MAX];
    kg_run_spare_t made[KG_RUN_SPARE_BATCH];
    size_t made_count;
} kg_run_spare_work_t;
/* Whether there is work that is worth a worker's while: a batch of files to empty or unlink, or a
 * slow one, or half of the pool was taken. tidy: whether there is a file to empty or unlink at all.
 */
bool kg_run_spares_wanting(const kg_run_spares_t *spares, bool tidy);
void kg_run_spares_plan(kg_run_spares_t *spares, kg_run_spare_work_t *ret_work);
void kg_run_spare_work(kg_run_spare_work_t *work); /* thread-safe */
/* Takes what was made into the pool; one too many is unlinked. spares NULL: all are. */
void kg_run_spares_settle(kg_run_spares_t *spares, kg_run_spare_work_t *work);

#endif
