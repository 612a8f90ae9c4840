/* Files of logs that expired: they are used again, within bounds. */
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

/* What the worker and the loop do in turns. */
static void work_spares(kg_run_spares_t *spares)
{
    while (kg_run_spares_wanting(spares, true)) {
        kg_run_spare_work_t work;
        kg_run_spares_plan(spares, &work);
        kg_run_spare_work(&work);
        kg_run_spares_settle(spares, &work);
    }
}

static void spares_are_taken_and_cleaned_up(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    kg_run_spares_t *spares = NULL;
    assert_int_equal(kg_run_spares_create(t.dirfd, 2, &spares), 0);
    work_spares(spares);
    assert_int_equal(rt_files(&t), 2);
    t.log_opts.spares = spares;
    rt_open(&t);
    rt_stream(&t, "stdout", "a");
    rt_finish(&t, KG_RUN_TIMEOUT);
    assert_int_equal(rt_files(&t), 2);
    kg_run_spares_destroy(&spares);
    assert_int_equal(rt_files(&t), 1);
    rt_end(&t);
}

static void file_of_a_removed_log_is_used_again_empty(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    kg_run_spares_t *spares = NULL;
    kg_run_spare_t spare;
    struct stat st;
    assert_int_equal(kg_run_spares_create(t.dirfd, 2, &spares), 0);
    t.log_opts.spares = spares;
    rt_open(&t);
    rt_stream(&t, "stdout", "a");
    rt_finish(&t, KG_RUN_TIMEOUT);
    assert_int_equal(rt_files(&t), 1);
    kg_run_log_remove(t.log);
    assert_int_equal(rt_files(&t), 1); /* until the worker comes to it */
    work_spares(spares);
    assert_int_equal(rt_files(&t), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(kg_run_spares_get(spares, &spare), 0);
        kg_run_log_t *none = NULL;
        assert_int_equal(fstat(spare.fd, &st), 0);
        assert_true(st.st_size <= 1);
        assert_int_equal(close(spare.fd), 0);
        assert_int_equal(kg_run_log_recover(&t.log_opts, spare.name, &none, NULL), -EBADMSG);
    }
    assert_int_equal(kg_run_spares_get(spares, &spare), -ENOENT);
    kg_run_spares_destroy(&spares);
    rt_end(&t);
}

static uint64_t give_file_of(run_test_t *t, kg_run_spares_t *spares, uint64_t bytes)
{
    kg_run_spare_t spare;
    struct stat st;
    assert_int_equal(kg_run_spare_make(t->dirfd, &spare), 0);
    assert_int_equal(ftruncate(spare.fd, (off_t)bytes), 0);
    kg_run_spares_give(spares, spare.name, bytes);
    assert_int_equal(fstat(spare.fd, &st), 0);
    assert_int_equal(close(spare.fd), 0);
    return (uint64_t)st.st_size;
}

/* What a budget let go is on the disk no longer, but for a bound. */
static void what_waits_to_be_emptied_is_bounded(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    kg_run_spares_t *spares = NULL;
    assert_int_equal(kg_run_spares_create(t.dirfd, 2, &spares), 0);
    work_spares(spares);
    assert_false(kg_run_spares_wanting(spares, true));
    const uint64_t half = KG_RUN_SPARE_WAITING / 2;
    assert_int_equal(give_file_of(&t, spares, half), half); /* left to the worker, */
    assert_int_equal(give_file_of(&t, spares, half), half); /* up to the bound */
    assert_int_equal(kg_run_spares_waiting(spares), KG_RUN_SPARE_WAITING);
    assert_false(kg_run_spares_wanting(spares, false));
    assert_int_equal(give_file_of(&t, spares, half), 1);
    assert_int_equal(give_file_of(&t, spares, KG_RUN_SPARE_SLOW), 1);
    assert_true(kg_run_spares_waiting(spares) <= KG_RUN_SPARE_WAITING + 2);
    assert_int_equal(give_file_of(&t, spares, KG_RUN_SPARE_SLOW + 1), KG_RUN_SPARE_SLOW + 1);
    assert_true(kg_run_spares_wanting(spares, false)); /* at once */

    kg_run_spare_work_t work; /* while the worker is at it, it counts */
    kg_run_spares_plan(spares, &work);
    assert_true(kg_run_spares_waiting(spares) > KG_RUN_SPARE_SLOW);
    kg_run_spare_work(&work);
    kg_run_spares_settle(spares, &work);
    assert_int_equal(kg_run_spares_waiting(spares), 0);
    kg_run_spares_destroy(&spares);
    rt_end(&t);
}

static void files_beyond_the_spares_are_unlinked(void **state)
{
    (void)state;
    run_test_t t;
    rt_begin(&t);
    kg_run_spares_t *spares = NULL;
    kg_run_spare_t spare;
    assert_int_equal(kg_run_spares_create(t.dirfd, 2, &spares), 0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(kg_run_spare_make(t.dirfd, &spare), 0);
        assert_int_equal(close(spare.fd), 0);
        kg_run_spares_give(spares, spare.name, 0);
    }
    work_spares(spares);
    assert_int_equal(rt_files(&t), 2);
    kg_run_spares_give(spares, "gone.log", 5); /* no file of that name: nothing comes of it */
    work_spares(spares);
    assert_int_equal(rt_files(&t), 2);
    kg_run_spares_destroy(&spares);
    assert_int_equal(rt_files(&t), 0);
    rt_end(&t);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spares_are_taken_and_cleaned_up),
        cmocka_unit_test(file_of_a_removed_log_is_used_again_empty),
        cmocka_unit_test(what_waits_to_be_emptied_is_bounded),
        cmocka_unit_test(files_beyond_the_spares_are_unlinked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
