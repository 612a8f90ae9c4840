/* Logs of short runs in packs: one file for many, the move to a file of its own, slots that are
 * used again without a trace of what was there, and what a restart finds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/run/log_int.h"
#include "run_util.h"

typedef struct fixture {
    run_test_t t;
    kg_run_packs_t *packs;
    char run[sizeof RUN_ID];
} fixture_t;

static void begin(fixture_t *f)
{
    *f = (fixture_t){0};
    rt_begin(&f->t);
    if (!f->t.log_opts.packs) {
        assert_int_equal(kg_run_packs_create(f->t.dirfd, &f->t.log_opts.packs), 0);
    }
    f->packs = f->t.log_opts.packs;
}

/* A log of its own run (n < 1000) that has printed `bytes` bytes. */
static kg_run_log_t *make(fixture_t *f, unsigned n, size_t bytes)
{
    kg_run_log_t *log = NULL;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'a' + (int)(n % 26), bytes);
    memcpy(f->run, RUN_ID, sizeof f->run);
    (void)snprintf(f->run + sizeof f->run - 4, 4, "%03u", n % 1000);
    f->t.meta.run = f->run;
    assert_int_equal(kg_run_log_create(&f->t.log_opts, &f->t.meta, &log), 0);
    assert_int_equal(kg_log_append_text(log, KG_EVENT_STDOUT, 0, kg_slice(text, bytes), bytes), 0);
    assert_int_equal(kg_run_log_flush(log), 0);
    free(text);
    return log;
}

static void print(kg_run_log_t *log, const char *text)
{
    assert_int_equal(kg_log_append_text(log, KG_EVENT_STDOUT, 0, kg_slice_cstr(text), strlen(text)),
                     0);
    assert_int_equal(kg_run_log_flush(log), 0);
}

static void assert_holds(kg_run_log_t *log, unsigned n, size_t bytes)
{
    kg_buf_t out = {0};
    rt_events(log, -1, true, 100000, &out);
    const char *text = strstr(out.data, "\"text\":\"");
    assert_non_null(text);
    text += strlen("\"text\":\"");
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(text[i], 'a' + (int)(n % 26));
    }
    assert_int_equal(text[bytes], '"');
    kg_buf_fini(&out);
}

static bool is_zero(const kg_run_slot_t *slot)
{
    static const char zeros[KG_RUN_SLOT];
    char bytes[KG_RUN_SLOT];
    assert_int_equal(pread(kg_run_slot_fd(slot), bytes, sizeof bytes, (off_t)kg_run_slot_off(slot)),
                     sizeof bytes);
    return memcmp(bytes, zeros, sizeof bytes) == 0;
}

/* --- a restart -----------------------------------------------------------------------------------
 */

typedef struct found {
    fixture_t *f;
    kg_run_log_t *logs[8];
    size_t count, refused;
} found_t;

static void find(void *user, kg_run_slot_t slot)
{
    found_t *found = user;
    kg_err_t err = {0};
    assert_true(found->count < KG_ARRAY_LEN(found->logs));
    int rc = kg_run_log_recover_slot(&found->f->t.log_opts, slot, &found->logs[found->count], &err);
    if (rc == 0) {
        found->count++;
        return;
    }
    assert_int_equal(rc, -EBADMSG);
    assert_non_null(slot.pack); /* still the caller's */
    kg_run_slot_give(&slot, KG_RUN_SLOT);
    found->refused++;
}

/* What is in the files is unknown. */
static void other_process(fixture_t *f)
{
    kg_run_packs_destroy(&f->t.log_opts.packs);
    assert_int_equal(kg_run_packs_create(f->t.dirfd, &f->t.log_opts.packs), 0);
    f->packs = f->t.log_opts.packs;
}

/* As a new process: nothing is known but the files. */
static void restart(fixture_t *f, found_t *ret_found)
{
    *ret_found = (found_t){.f = f};
    other_process(f);
    DIR *dir = opendir(f->t.path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): one thread
        if (kg_run_pack_named(e->d_name)) {
            assert_int_equal(kg_run_packs_open(f->packs, e->d_name), 0);
        }
    }
    closedir(dir);
    kg_run_packs_each(f->packs, find, ret_found);
}

static void drop(found_t *found)
{
    for (size_t i = 0; i < found->count; i++) {
        kg_run_log_unref(&found->logs[i]);
    }
}

static void restart_findsFinishedAndUnfinished(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    rt_open(&f.t);
    rt_stream(&f.t, "stdout", "done\n");
    rt_finish(&f.t, KG_RUN_OK);
    kg_run_log_t *unfinished = make(&f, 1, 3);
    kg_run_log_unref(&unfinished);
    rt_close(&f.t);
    restart(&f, &found);
    assert_int_equal(found.count, 2);
    assert_true(kg_run_log_finished(found.logs[0]));
    assert_false(kg_run_log_finished(found.logs[1]));
    assert_holds(found.logs[1], 1, 3);
    assert_int_equal(kg_run_log_finish_recovered(found.logs[1], true), 0);
    assert_int_equal(kg_run_log_flush(found.logs[1]), 0);
    assert_int_equal(kg_run_log_status(found.logs[1]), KG_RUN_GATEWAY_RESTART);
    assert_non_null(found.logs[1]->slot.pack);
    kg_run_log_t *next = make(&f, 2, 5); /* in a slot that is free */
    assert_int_equal(next->slot.index, 2);
    kg_run_log_unref(&next);
    drop(&found);
    restart(&f, &found);
    assert_int_equal(found.count, 3);
    assert_true(kg_run_log_finished(found.logs[1]));
    drop(&found);
    rt_end(&f.t);
}

/* A log cut at every byte, in a slot: what is whole stays, and nothing is left behind it that a
 * later append could make whole. */
static void restart_tornAtEveryByte_keepsWholeEvents(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    char bytes[KG_RUN_SLOT];
    begin(&f);
    kg_run_log_t *log = make(&f, 3, 40);
    print(log, "second\n");
    size_t size = (size_t)kg_run_log_size(log);
    assert_int_equal(pread(kg_run_slot_fd(&log->slot), bytes, size, 0), (ssize_t)size);
    kg_run_log_unref(&log);
    uint64_t last = 0;
    for (size_t cut = 1; cut <= size; cut++) {
        kg_run_slot_t slot = {0};
        restart(&f, &found);
        for (size_t i = 0; i < found.count; i++) {
            kg_run_log_remove(found.logs[i]);
        }
        drop(&found);
        assert_int_equal(kg_run_packs_take(f.packs, &slot), 0);
        assert_int_equal(slot.index, 0);
        assert_true(is_zero(&slot));
        assert_int_equal(pwrite(kg_run_slot_fd(&slot), bytes, cut, 0), (ssize_t)cut);
        kg_run_slot_leave(&slot);
        restart(&f, &found);
        assert_int_equal(found.count + found.refused, 1);
        if (found.count > 0) {
            uint64_t seq = kg_run_log_next_seq(found.logs[0]);
            assert_true(seq == last || seq == last + 1);
            last = seq;
            char rest[KG_RUN_SLOT];
            uint64_t end = kg_run_log_size(found.logs[0]);
            ssize_t n = pread(kg_run_slot_fd(&found.logs[0]->slot), rest, sizeof rest, (off_t)end);
            assert_true(n >= (ssize_t)(KG_RUN_SLOT - end));
            for (size_t i = 0; i < KG_RUN_SLOT - end; i++) {
                assert_int_equal(rest[i], 0);
            }
        } else {
            assert_int_equal(last, 0);
        }
        drop(&found);
    }
    assert_int_equal(last, 2);
    rt_end(&f.t);
}

/* What is behind the last slot is nobody's. */
static void restart_packTooLong(void **state)
{
    (void)state;
    const off_t end = (off_t)KG_RUN_SLOT * KG_RUN_PACK_SLOTS;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *log = make(&f, 18, 10);
    const kg_run_slot_t *slot = &log->slot;
    char bytes[KG_RUN_SLOT];
    assert_int_equal(pread(kg_run_slot_fd(slot), bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(pwrite(kg_run_slot_fd(slot), bytes, sizeof bytes, end), sizeof bytes);
    kg_run_log_unref(&log);
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.logs[0]->slot.index, 0);
    drop(&found);
    rt_end(&f.t);
}

static void restart_packCutShortOrNoPack(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *log = make(&f, 4, 10);
    assert_int_equal(ftruncate(kg_run_slot_fd(&log->slot), (off_t)kg_run_log_size(log)), 0);
    kg_run_log_unref(&log);
    restart(&f, &found); /* makes it as long as its slots need */
    assert_int_equal(found.count, 1);
    assert_holds(found.logs[0], 4, 10);
    drop(&found);
    assert_int_equal(kg_run_packs_open(f.packs, "none.pack"), -ENOENT);
    assert_int_equal(kg_run_packs_open(f.packs, "x.log"), -EBADMSG);
    assert_int_equal(kg_run_packs_open(f.packs, "../x.pack"), -EBADMSG);
    assert_int_equal(kg_run_packs_open(f.packs, ".pack"), -EBADMSG);
    assert_int_equal(mkdirat(f.t.dirfd, "dir.pack", 0700), 0);
    assert_true(kg_run_packs_open(f.packs, "dir.pack") < 0);
    assert_int_equal(unlinkat(f.t.dirfd, "dir.pack", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("/dev/zero", f.t.dirfd, "link.pack"), 0);
    assert_int_equal(kg_run_packs_open(f.packs, "link.pack"), -ELOOP);
    assert_int_equal(mkfifoat(f.t.dirfd, "fifo.pack", 0600), 0);
    assert_int_equal(kg_run_packs_open(f.packs, "fifo.pack"), -EBADMSG);
    assert_int_equal(rt_files(&f.t), 3);
    rt_end(&f.t);
}

/* Two packs, in each of them a first slot that holds no log, and then one. */
static void restart_firstSlotIsNoLog_thePackStays(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    for (unsigned pack = 0; pack < 2; pack++) {
        other_process(&f);
        kg_run_slot_t torn;
        assert_int_equal(kg_run_packs_take(f.packs, &torn), 0);
        assert_int_equal(pwrite(kg_run_slot_fd(&torn), "torn", 4, 0), 4);
        kg_run_slot_leave(&torn);
        kg_run_log_t *log = make(&f, pack, 5);
        assert_int_equal(log->slot.index, 1);
        kg_run_log_unref(&log);
    }
    assert_int_equal(rt_files(&f.t), 2);
    restart(&f, &found);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.refused, 2);
    assert_int_equal(rt_files(&f.t), 2);
    drop(&found);
    restart(&f, &found);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.refused, 0);
    kg_run_log_remove(found.logs[0]);
    assert_int_equal(rt_files(&f.t), 1);
    drop(&found);
    rt_end(&f.t);
}

/* A gateway killed while it cleared a slot: zeros, and what was behind them. */
static void restart_halfCleared_isNoLog(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *log = make(&f, 23, 9000);
    assert_int_equal(kg_run_slot_clear(&log->slot, 0, 4096), 0);
    assert_false(is_zero(&log->slot));
    kg_run_log_unref(&log);
    restart(&f, &found);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.refused, 1);
    kg_run_slot_t slot;
    assert_int_equal(kg_run_packs_take(f.packs, &slot), 0);
    assert_int_equal(slot.index, 0);
    assert_true(is_zero(&slot));
    kg_run_slot_give(&slot, 0);
    rt_end(&f.t);
}

static void rename_pack(const fixture_t *f, const char *name)
{
    struct dirent *e;
    DIR *dir = opendir(f->t.path);
    assert_non_null(dir);
    while ((e = readdir(dir)) && !kg_run_pack_named(e->d_name)) { // NOLINT(concurrency-mt-unsafe)
    }
    assert_non_null(e);
    assert_int_equal(renameat(f->t.dirfd, e->d_name, f->t.dirfd, name), 0);
    closedir(dir);
}

/* What was opened and not looked into yet holds logs, as far as anyone knows. */
static void restart_unread_nothingOfItGoes(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *log = make(&f, 14, 5);
    kg_run_log_unref(&log);
    other_process(&f);
    rename_pack(&f, "a.pack");
    assert_int_equal(kg_run_packs_open(f.packs, "a.pack"), 0);
    log = make(&f, 15, 5);
    assert_int_equal(rt_files(&f.t), 2);
    kg_run_log_remove(log);
    kg_run_log_unref(&log);
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_holds(found.logs[0], 14, 5);
    drop(&found);
    rt_end(&f.t);
}

/* The file is as it was, for the next start. */
static void restart_noDescriptor_isTold(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    struct rlimit old, low;
    begin(&f);
    kg_run_log_t *log = make(&f, 24, 5);
    kg_run_log_unref(&log);
    other_process(&f);
    rename_pack(&f, "a.pack");
    int fd = dup(f.t.dirfd); // NOLINT(android-cloexec-dup): nothing is executed
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)fd; /* the lowest that is free */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(kg_run_packs_open(f.packs, "a.pack"), -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_holds(found.logs[0], 24, 5);
    drop(&found);
    rt_end(&f.t);
}

static blkcnt_t blocks_of(const kg_run_slot_t *slot)
{
    struct stat st;
    assert_int_equal(fstat(kg_run_slot_fd(slot), &st), 0);
    return st.st_blocks;
}

/* A full disk has no room for more, and what is finished needs none. */
static void restart_takesNoRoom(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    rt_open(&f.t);
    rt_stream(&f.t, "stdout", "done\n");
    rt_finish(&f.t, KG_RUN_OK);
    rt_close(&f.t);
    kg_run_log_t *log = make(&f, 16, 5);
    const blkcnt_t before = blocks_of(&log->slot);
    kg_run_log_unref(&log);
    restart(&f, &found);
    assert_int_equal(found.count, 2);
    assert_int_equal(blocks_of(&found.logs[0]->slot), before);
    drop(&found);
    rt_end(&f.t);
}

/* What cannot be read may be a log: it is not said to be none. */
static void restart_cannotBeRead_isNotSaidToBeNone(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *log = make(&f, 17, 5);
    kg_run_slot_t slot = log->slot;
    log->slot.pack = NULL;
    kg_run_log_unref(&log);
    assert_int_equal(ftruncate(kg_run_slot_fd(&slot), 0), 0);
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover_slot(&f.t.log_opts, slot, &log, &err), -EIO);
    assert_int_equal(err.code, kg_err_from_errno(-EIO));
    kg_run_slot_leave(&slot);
    rt_end(&f.t);
}

/* --- slots ---------------------------------------------------------------------------------------
 */

static void shortLogs_shareAFile(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_log_t *logs[20];
    begin(&f);
    for (unsigned i = 0; i < KG_ARRAY_LEN(logs); i++) {
        logs[i] = make(&f, i, 10 + i);
    }
    assert_int_equal(rt_files(&f.t), 1);
    for (unsigned i = 0; i < KG_ARRAY_LEN(logs); i++) {
        print(logs[i], "more\n"); /* in turns: none writes into its neighbour */
    }
    for (unsigned i = 0; i < KG_ARRAY_LEN(logs); i++) {
        assert_holds(logs[i], i, 10 + i);
        assert_int_equal(logs[i]->fd, -1);
        kg_run_log_unref(&logs[i]);
    }
    rt_end(&f.t);
}

/* No more of a finished log is in memory than what finds it on the disk. */
static void finished_areReadFromTheirSlots(void **state)
{
    (void)state;
    const kg_log_end_t end = {.status = KG_RUN_OK, .started = true, .execution_count = 1};
    fixture_t f;
    kg_run_log_t *logs[3];
    begin(&f);
    for (unsigned i = 0; i < KG_ARRAY_LEN(logs); i++) {
        logs[i] = make(&f, i, 10 + i);
        assert_int_equal(kg_log_append_end(logs[i], &end), 0);
        assert_int_equal(kg_run_log_flush(logs[i]), 0);
        assert_int_equal(logs[i]->body->win.len, 0);
    }
    for (unsigned i = 0; i < KG_ARRAY_LEN(logs); i++) {
        assert_int_equal(logs[i]->slot.index, i);
        assert_holds(logs[i], i, 10 + i);
        kg_run_log_unref(&logs[i]);
    }
    rt_end(&f.t);
}

/* A log of exactly KG_RUN_SLOT bytes stays in its slot; a byte more and it has a file. */
static void outgrown_movesToAFileOfItsOwn(void **state)
{
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        fixture_t f;
        begin(&f);
        kg_run_log_t *before = make(&f, 4, 10);
        kg_run_log_unref(&before);
        kg_run_log_t *log = make(&f, 5, 100);
        size_t head = (size_t)kg_run_log_size(log) - 100;
        kg_run_log_remove(log);
        kg_run_log_unref(&log);
        size_t bytes = KG_RUN_SLOT - head + more;
        log = make(&f, 5, bytes);
        assert_int_equal(kg_run_log_size(log), KG_RUN_SLOT + more);
        assert_int_equal(log->slot.pack != NULL, more == 0);
        assert_int_equal(rt_files(&f.t), 1 + more);
        if (more == 0) {
            const kg_run_slot_t was = log->slot;
            print(log, "x");
            assert_null(log->slot.pack);
            assert_int_equal(rt_files(&f.t), 2);
            assert_true(is_zero(&was));
            kg_run_slot_t slot;
            assert_int_equal(kg_run_packs_take(f.packs, &slot), 0);
            assert_int_equal(slot.index, was.index);
            kg_run_slot_give(&slot, 0);
        }
        assert_holds(log, 5, bytes);
        char name[KG_RUN_NAME_MAX];
        memcpy(name, log->name, sizeof name);
        uint64_t events = kg_run_log_next_seq(log);
        kg_run_log_unref(&log);
        kg_err_t err = {0};
        if (name[0]) {
            assert_int_equal(kg_run_log_recover(&f.t.log_opts, name, &log, &err), 0);
            assert_int_equal(kg_run_log_next_seq(log), events);
            assert_holds(log, 5, bytes);
            kg_run_log_unref(&log);
        }
        rt_end(&f.t);
    }
}

/* A gateway killed while it copies: without the head of its first record the copy is no log. */
static void halfACopy_isNoLog(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *log = make(&f, 6, 9000);
    print(log, "and more that makes it large enough\n");
    assert_non_null(log->slot.pack);
    char bytes[KG_RUN_SLOT];
    size_t size = (size_t)kg_run_log_size(log);
    assert_int_equal(
        pread(kg_run_slot_fd(&log->slot), bytes, size, (off_t)kg_run_slot_off(&log->slot)),
        (ssize_t)size);
    memset(bytes, 0, sizeof(kg_rec_t));
    int fd = openat(f.t.dirfd, "half.log", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    kg_run_log_t *half = NULL;
    kg_err_t err = {0};
    assert_int_equal(kg_run_log_recover(&f.t.log_opts, "half.log", &half, &err), -EBADMSG);
    kg_run_log_unref(&log);
    rt_end(&f.t);
}

static void removed_leavesNothingForTheNext(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *old = make(&f, 7, 9000);
    print(old, "something more, so that records follow each other\n");
    kg_run_slot_t was = old->slot;
    kg_run_log_remove(old);
    assert_null(old->slot.pack);
    assert_true(is_zero(&was));
    kg_run_log_unref(&old);
    kg_run_log_t *next = make(&f, 8, 5);
    assert_int_equal(next->slot.index, was.index);
    kg_run_log_unref(&next);
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(kg_run_log_next_seq(found.logs[0]), 1);
    assert_holds(found.logs[0], 8, 5);
    drop(&found);
    rt_end(&f.t);
}

/* A log whose owner is gone stays on the disk: nobody writes over it. */
static void unref_keepsTheSlot(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *first = make(&f, 9, 5);
    kg_run_log_unref(&first);
    kg_run_log_t *second = make(&f, 10, 5);
    assert_int_equal(second->slot.index, 1);
    kg_run_log_unref(&second);
    rt_end(&f.t);
}

static void destroyed_whileALogIsHeld_isReadStill(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *log = make(&f, 11, 300);
    kg_run_packs_destroy(&f.t.log_opts.packs);
    assert_holds(log, 11, 300);
    kg_run_log_remove(log);
    kg_run_log_unref(&log);
    assert_int_equal(rt_files(&f.t), 1); /* a pack with a log in it then; the next start takes it */
    rt_end(&f.t);
}

static void files_comeAndGo(void **state)
{
    (void)state;
    enum {
        COUNT = KG_RUN_PACK_SLOTS + 1
    };
    fixture_t f;
    begin(&f);
    kg_run_slot_t *slots = calloc(COUNT, sizeof *slots);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(kg_run_packs_count(f.packs), i == 0 ? 0 : 1);
        assert_int_equal(kg_run_packs_take(f.packs, &slots[i]), 0);
        assert_int_equal(slots[i].index, i % KG_RUN_PACK_SLOTS);
    }
    assert_int_equal(kg_run_packs_count(f.packs), 2);
    assert_int_equal(rt_files(&f.t), 2);
    kg_run_slot_give(&slots[77], 0);
    assert_int_equal(kg_run_packs_count(f.packs), 2);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i != 77) {
            kg_run_slot_give(&slots[i], 0);
        }
    }
    assert_int_equal(kg_run_packs_count(f.packs), 1); /* the last one stays */
    assert_int_equal(rt_files(&f.t), 1);
    assert_int_equal(kg_run_packs_take(f.packs, &slots[0]), 0);
    kg_run_slot_give(&slots[0], 0);
    kg_run_packs_destroy(&f.t.log_opts.packs);
    assert_int_equal(rt_files(&f.t), 0);
    free(slots);
    rt_end(&f.t);
}

/* --- a disk that refuses -------------------------------------------------------------------------
 */

static struct rlimit limit_files(rlim_t bytes)
{
    struct rlimit old, low;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    return old;
}

static void noPackToBeHad_aFileOfItsOwn(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    const struct rlimit old = limit_files(100000);
    kg_run_log_t *log = make(&f, 12, 50);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_null(log->slot.pack);
    assert_int_equal(rt_files(&f.t), 1);
    assert_holds(log, 12, 50);
    kg_run_log_unref(&log);
    rt_end(&f.t);
}

/* What cannot be written is told, and what was there before is there after a restart. */
static void slotCannotBeWritten_isTold(void **state)
{
    (void)state;
    fixture_t f;
    found_t found;
    begin(&f);
    kg_run_log_t *log = make(&f, 13, 50);
    uint64_t size = kg_run_log_size(log);
    const struct rlimit old = limit_files((rlim_t)size + 20);
    assert_int_equal(kg_log_append_text(log, KG_EVENT_STDOUT, 0, kg_slice_cstr("lost?"), 5), 0);
    assert_int_equal(kg_run_log_flush(log), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(kg_run_log_broken(log));
    kg_run_log_unref(&log);
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(kg_run_log_size(found.logs[0]), size);
    assert_holds(found.logs[0], 13, 50);
    drop(&found);
    rt_end(&f.t);
}

/* The disk has no room for zeros, where they would take some. */
static void slotCannotBeCleared_becomesAHole(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *log = make(&f, 19, 9000);
    const kg_run_slot_t was = log->slot;
    const struct rlimit old = limit_files(0);
    kg_run_log_remove(log);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(is_zero(&was));
    kg_run_log_unref(&log);
    log = make(&f, 20, 5);
    assert_int_equal(log->slot.index, was.index);
    kg_run_log_unref(&log);
    rt_end(&f.t);
}

/* A log that broke in its slot and moves when it ends: what a write left there that failed, and
 * could not be taken back, goes too. */
static void brokenAndMoved_leavesNothing(void **state)
{
    (void)state;
    fixture_t f;
    begin(&f);
    kg_run_log_t *log = make(&f, 21, 9000);
    const kg_run_slot_t was = log->slot;
    char text[10000];
    memset(text, 'v', sizeof text);
    const struct rlimit old = limit_files(100);
    assert_int_equal(
        kg_log_append_text(log, KG_EVENT_STDERR, 0, kg_slice(text, sizeof text), sizeof text), 0);
    assert_int_equal(kg_run_log_flush(log), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(log->slot.pack);
    assert_int_equal(pwrite(kg_run_slot_fd(&was), "left", 4, 16000), 4);
    const kg_log_end_t end = {.status = KG_RUN_OK, .started = true, .execution_count = 1};
    assert_int_equal(kg_log_append_end(log, &end), 0);
    assert_int_equal(kg_run_log_flush(log), 0);
    assert_null(log->slot.pack);
    assert_true(is_zero(&was));
    kg_run_log_unref(&log);
    rt_end(&f.t);
}

/* How far a move came that the disk stopped: the file that it was to have, held open here. */
static void moveStopped_hasNoHead(void **state)
{
    (void)state;
    fixture_t f;
    kg_run_spare_work_t work;
    begin(&f);
    assert_int_equal(kg_run_spares_create(f.t.dirfd, 1, &f.t.log_opts.spares), 0);
    kg_run_spares_plan(f.t.log_opts.spares, &work);
    kg_run_spare_work(&work);
    assert_int_equal(work.made_count, 1);
    int fd = dup(work.made[0].fd); // NOLINT(android-cloexec-dup): nothing is executed
    kg_run_spares_settle(f.t.log_opts.spares, &work);
    kg_run_log_t *log = make(&f, 22, KG_RUN_SLOT - 1000);
    const uint64_t size = kg_run_log_size(log);
    char bytes[KG_RUN_SLOT];
    memset(bytes, 'w', sizeof bytes);
    const struct rlimit old = limit_files(5000);
    assert_int_equal(kg_log_append_text(log, KG_EVENT_STDERR, 0, kg_slice(bytes, 2000), 2000), 0);
    assert_int_equal(kg_run_log_flush(log), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), 5000);
    for (size_t i = 0; i < sizeof(kg_rec_t); i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_int_not_equal(bytes[4999], 0);
    close(fd);
    assert_non_null(log->slot.pack); /* it is where it was */
    assert_int_equal(rt_files(&f.t), 1);
    kg_run_log_unref(&log);
    kg_run_spares_destroy(&f.t.log_opts.spares);
    found_t found;
    restart(&f, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(kg_run_log_size(found.logs[0]), size);
    assert_holds(found.logs[0], 22, KG_RUN_SLOT - 1000);
    drop(&found);
    rt_end(&f.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortLogs_shareAFile),
        cmocka_unit_test(finished_areReadFromTheirSlots),
        cmocka_unit_test(outgrown_movesToAFileOfItsOwn),
        cmocka_unit_test(halfACopy_isNoLog),
        cmocka_unit_test(removed_leavesNothingForTheNext),
        cmocka_unit_test(unref_keepsTheSlot),
        cmocka_unit_test(destroyed_whileALogIsHeld_isReadStill),
        cmocka_unit_test(files_comeAndGo),
        cmocka_unit_test(restart_findsFinishedAndUnfinished),
        cmocka_unit_test(restart_tornAtEveryByte_keepsWholeEvents),
        cmocka_unit_test(restart_packTooLong),
        cmocka_unit_test(restart_packCutShortOrNoPack),
        cmocka_unit_test(restart_firstSlotIsNoLog_thePackStays),
        cmocka_unit_test(restart_halfCleared_isNoLog),
        cmocka_unit_test(restart_unread_nothingOfItGoes),
        cmocka_unit_test(restart_noDescriptor_isTold),
        cmocka_unit_test(restart_takesNoRoom),
        cmocka_unit_test(restart_cannotBeRead_isNotSaidToBeNone),
        cmocka_unit_test(noPackToBeHad_aFileOfItsOwn),
        cmocka_unit_test(slotCannotBeWritten_isTold),
        cmocka_unit_test(slotCannotBeCleared_becomesAHole),
        cmocka_unit_test(brokenAndMoved_leavesNothing),
        cmocka_unit_test(moveStopped_hasNoHead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
