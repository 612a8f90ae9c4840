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

/* As a new process: nothing is known but the files. */
static void restart(fixture_t *f, found_t *ret_found)
{
    *ret_found = (found_t){.f = f};
    kg_run_packs_destroy(&f->t.log_opts.packs);
    assert_int_equal(kg_run_packs_create(f->t.dirfd, &f->t.log_opts.packs), 0);
    f->packs = f->t.log_opts.packs;
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

/* A log of exactly KG_RUN_SLOT bytes stays in its slot; a byte more and it has a file. */
static void outgrown_movesToAFileOfItsOwn(void **state)
{
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        fixture_t f;
        begin(&f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortLogs_shareAFile),
        cmocka_unit_test(outgrown_movesToAFileOfItsOwn),
        cmocka_unit_test(halfACopy_isNoLog),
        cmocka_unit_test(removed_leavesNothingForTheNext),
        cmocka_unit_test(unref_keepsTheSlot),
        cmocka_unit_test(destroyed_whileALogIsHeld_isReadStill),
        cmocka_unit_test(files_comeAndGo),
        cmocka_unit_test(restart_findsFinishedAndUnfinished),
        cmocka_unit_test(restart_tornAtEveryByte_keepsWholeEvents),
        cmocka_unit_test(restart_packCutShortOrNoPack),
        cmocka_unit_test(noPackToBeHad_aFileOfItsOwn),
        cmocka_unit_test(slotCannotBeWritten_isTold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
