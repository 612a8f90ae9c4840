/* Arbitrary bytes as a log file, and as a slot of a pack: recovered, ended, read to the end.
 * Nothing may crash, whatever the records say. Odd first byte: the sums of the records are made
 * right first, so that the input gets past them. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/run/log_int.h"
#include "gateway/run/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Gives each record of the walk its magic and its sum. */
static void mend(char *file, size_t size)
{
    for (size_t off = 0; size - off >= sizeof(kg_rec_t);) {
        kg_rec_t rec;
        memcpy(&rec, file + off, sizeof rec);
        rec.magic = KG_REC_MAGIC;
        uint64_t next = kg_rec_next(off, &rec);
        if (next > size) {
            return;
        }
        kg_check_t check;
        kg_check_begin(&check, &rec);
        kg_check_push(&check, file + off + sizeof rec, (size_t)(next - off) - sizeof rec);
        rec.check = kg_check_end(&check);
        memcpy(file + off, &rec, sizeof rec);
        off = (size_t)next;
    }
}

static void read_all(kg_run_reader_t *reader)
{
    kg_buf_t out = {0};
    size_t total = 0;
    kg_read_piece_t piece;
    while (total < (64U << 20) && kg_run_reader_next(reader, &out, 8192, &piece) == KG_READ_PIECE) {
        total += out.len;
        kg_buf_clear(&out);
    }
    kg_buf_fini(&out);
}

static void use(kg_run_log_t *log)
{
    kg_run_reader_t *reader = NULL;
    (void)kg_run_log_finish_recovered(log, true);
    (void)kg_run_log_flush(log);
    for (int64_t after = -1; after < 3; after++) {
        if (kg_run_reader_create(log, after, true, &reader) == 0) {
            read_all(reader);
        }
        kg_run_reader_destroy(&reader);
    }
    if (kg_run_reader_execution(log, &reader) == 0) {
        read_all(reader);
    }
    kg_run_reader_destroy(&reader);
}

/* The bytes as a slot of a pack; what does not fit any more moves to a file. */
static void in_slot(int dirfd, const char *bytes, size_t size)
{
    kg_run_packs_t *packs = NULL;
    kg_run_slot_t slot;
    kg_run_log_t *log = NULL;
    kg_err_t err = {0};
    const kg_run_log_opts_t opts = {.dirfd = dirfd};
    size = size < KG_RUN_SLOT ? size : KG_RUN_SLOT;
    if (kg_run_packs_create(dirfd, &packs) < 0 || kg_run_packs_take(packs, &slot) < 0 ||
        pwrite(kg_run_slot_fd(&slot), bytes, size, (off_t)kg_run_slot_off(&slot)) !=
            (ssize_t)size) {
        abort();
    }
    if (kg_run_log_recover_slot(&opts, slot, &log, &err) == 0) {
        use(log);
        kg_run_log_remove(log);
    } else {
        kg_run_slot_give(&slot, KG_RUN_SLOT);
    }
    kg_run_log_unref(&log);
    kg_run_packs_destroy(&packs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    int dirfd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[KG_RUN_NAME_MAX];
    (void)snprintf(name, sizeof name, "kg-fuzz-%d.log", (int)getpid());
    char *file = malloc(size - 1);
    if (dirfd < 0 || !file) {
        abort();
    }
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1) {
        mend(file, size - 1);
    }
    if (data[0] & 2) {
        in_slot(dirfd, file, size - 1);
    }
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, file, size - 1) != (ssize_t)(size - 1)) {
        abort();
    }
    close(fd);
    free(file);
    kg_run_log_opts_t opts = {.dirfd = dirfd};
    kg_run_log_t *log = NULL;
    kg_err_t err = {0};
    if (kg_run_log_recover(&opts, name, &log, &err) == 0) {
        use(log);
    }
    kg_run_log_unref(&log);
    (void)unlinkat(dirfd, name, 0);
    close(dirfd);
    return 0;
}
