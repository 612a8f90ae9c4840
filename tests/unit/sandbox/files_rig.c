#include "tests/unit/sandbox/files_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void come(kg_files_answer_t *a, const kg_err_t *err)
{
    assert_false(a->come);
    a->come = true;
    if (err) {
        a->err = *err;
        assert_int_not_equal(err->code, KG_ERR_NONE);
    }
    kg_loop_stop(a->h->loop);
}

static void take_row(kg_files_row_t *row, const kg_fs_entry_t *entry)
{
    assert_true((entry->target != NULL) == (entry->stat.type == KG_FS_SYMLINK));
    (void)snprintf(row->name, sizeof(row->name), "%s", entry->name);
    (void)snprintf(row->target, sizeof(row->target), "%s", entry->target ? entry->target : "");
    row->stat = entry->stat;
}

static void on_open(void *user, int fd, const char *name, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    assert_true((fd < 0) == (err != NULL));
    a->fd = fd;
    if (name) {
        (void)snprintf(a->name, sizeof(a->name), "%s", name);
    }
    come(a, err);
}

static void on_put(void *user, bool created, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    a->created = created;
    come(a, err);
}

static void on_stat(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    assert_true((entry == NULL) == (err != NULL));
    if (entry) {
        take_row(&a->row, entry);
    }
    come(a, err);
}

static void
on_list(void *user, const kg_fs_entry_t *entries, size_t count, uint64_t next, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    assert_true(count <= KG_FS_LIST_ROWS);
    for (size_t i = 0; i < count; i++) {
        assert_true(a->count < FILES_ROWS_MAX);
        take_row(&a->rows[a->count++], &entries[i]);
    }
    a->next = next;
    come(a, err);
}

static void on_done(void *user, const kg_err_t *err)
{
    come(user, err);
}

static void on_watch(void *user, int fd, int wd, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    a->fd = fd;
    a->wd = wd;
    come(a, err);
}

static void on_port(void *user, int fd, const kg_err_t *err)
{
    kg_files_answer_t *a = user;
    assert_true((fd < 0) == (err != NULL));
    a->fd = fd;
    come(a, err);
}

static void wait_for(kg_files_answer_t *a)
{
    assert_false(a->come);
    harness_wait(a->h, &a->come);
}

kg_files_answer_t
files_open(kg_harness_t *h, kg_sbx_t *sbx, const char *path, uint32_t flags, uint32_t mode)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_open(sbx, path, flags, mode, false, on_open, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_put(kg_harness_t *h, kg_sbx_t *sbx, const char *name, const char *path)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_put_in_place(sbx, name, path, false, on_put, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_stat(kg_harness_t *h, kg_sbx_t *sbx, const char *path, bool follow)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_stat(sbx, path, follow, false, on_stat, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_list(kg_harness_t *h, kg_sbx_t *sbx, const char *path, unsigned *ret_calls)
{
    kg_files_answer_t a = {.h = h, .rows = calloc(FILES_ROWS_MAX, sizeof(kg_files_row_t))};
    unsigned calls = 0;
    assert_non_null(a.rows);
    do {
        a.come = false;
        calls++;
        assert_int_equal(kg_fs_list(sbx, path, a.next, false, on_list, &a), 0);
        wait_for(&a);
    } while (a.next != 0 && a.err.code == KG_ERR_NONE);
    if (ret_calls) {
        *ret_calls = calls;
    }
    return a;
}

kg_files_answer_t
files_mkdir(kg_harness_t *h, kg_sbx_t *sbx, const char *path, uint32_t mode, bool parents)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_mkdir(sbx, path, mode, parents, false, on_done, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t
files_move(kg_harness_t *h, kg_sbx_t *sbx, const char *from, const char *to, bool overwrite)
{
    kg_files_answer_t a = {.h = h};
    const kg_fs_move_opts_t opts = {.from = from, .to = to, .overwrite = overwrite};
    assert_int_equal(kg_fs_move(sbx, &opts, on_done, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_remove(kg_harness_t *h, kg_sbx_t *sbx, const char *path, bool recursive)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_remove(sbx, path, recursive, 0, false, on_done, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_watch(kg_harness_t *h, kg_sbx_t *sbx, const char *path, int watch_fd)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_fs_watch(sbx, path, watch_fd, false, on_watch, &a), 0);
    wait_for(&a);
    return a;
}

kg_files_answer_t files_port(kg_harness_t *h, kg_sbx_t *sbx, uint16_t port)
{
    kg_files_answer_t a = {.h = h};
    assert_int_equal(kg_sbx_port_connect(sbx, port, on_port, &a), 0);
    wait_for(&a);
    return a;
}
