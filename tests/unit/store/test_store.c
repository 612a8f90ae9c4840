/* The store: keys, rows, schema, two openers at once, and kill -9 in the middle of writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/store/store.h"

typedef struct fixture {
    char dir[64];
    kg_store_t *store;
} fixture_t;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/kg-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(0, kg_store_open(f->dir, &f->store, NULL));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    kg_store_close(&f->store);
    (void)nftw(f->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

static void reopen(fixture_t *f)
{
    kg_store_close(&f->store);
    kg_err_t err = {0};
    int rc = kg_store_open(f->dir, &f->store, &err);
    if (rc) {
        fail_msg("%s", err.message);
    }
}

static void key_check_known_key_gives_its_row(void **state)
{
    fixture_t *f = *state;
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t made;
    kg_key_t found;
    assert_int_equal(0, kg_store_key_add(f->store, NULL, "laptop", NULL, 0, plain, &made, NULL));
    assert_true(kg_str_starts(plain, "sk-sandal-"));
    assert_int_equal(53, (int)strlen(plain));
    assert_string_equal(made.owner, made.id);
    reopen(f);
    uint64_t now = kg_wall_ns();
    assert_int_equal(0, kg_store_key_check(f->store, kg_slice_cstr(plain), now, &found, NULL));
    assert_string_equal(made.id, found.id);
    assert_string_equal("use", found.scopes);
    assert_true(found.last_used_ns <= now && now - found.last_used_ns < 60 * KG_NS_PER_S);
    assert_int_equal(0, found.last_used_ns % (60 * KG_NS_PER_S));
}

static void key_check_wrong_expired_removed_are_refused(void **state)
{
    fixture_t *f = *state;
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t made;
    kg_key_t found;
    assert_int_equal(
        0, kg_store_key_add(f->store, "ann", "x", "admin attach:sbx-1", 1000, plain, &made, NULL));
    assert_int_equal(0, kg_store_key_check(f->store, kg_slice_cstr(plain), 999, &found, NULL));
    assert_int_equal(-EACCES,
                     kg_store_key_check(f->store, kg_slice_cstr(plain), 1000, &found, NULL));
    plain[20] = plain[20] == 'a' ? 'b' : 'a';
    assert_int_equal(-ENOENT, kg_store_key_check(f->store, kg_slice_cstr(plain), 1, &found, NULL));
    assert_int_equal(-ENOENT, kg_store_key_check(f->store, kg_slice_cstr(""), 1, &found, NULL));
    assert_int_equal(-ENOENT,
                     kg_store_key_check(f->store, kg_slice_cstr("sk-sandal-x"), 1, &found, NULL));
    kg_err_t err = {0};
    assert_int_equal(1, kg_store_key_lives(f->store, made.id, 999, &err));
    assert_int_equal(0, kg_store_key_lives(f->store, made.id, 1000, &err));
    assert_int_equal(0, kg_store_key_remove(f->store, made.id, &err));
    assert_int_equal(0, kg_store_key_lives(f->store, made.id, 999, &err));
    assert_int_equal(-ENOENT, kg_store_key_remove(f->store, made.id, &err));
    assert_int_equal(KG_ERR_NOT_FOUND, err.code);
}

static void key_add_bad_fields_are_named(void **state)
{
    fixture_t *f = *state;
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key;
    static const struct {
        const char *owner, *name, *scopes, *says;
    } bad[] = {
        {NULL, "a\x1b[31m", NULL, "name:"}, {"", "a", NULL, "owner:"},
        {"\xff", "a", NULL, "owner:"},      {NULL, "a", "root", "\"root\""},
        {NULL, "a", "use  admin", "\"\""},  {NULL, "a", "attach:", "scopes"},
        {NULL, "a", "", "scopes"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_err_t err = {0};
        assert_int_equal(-EINVAL, kg_store_key_add(f->store, bad[i].owner, bad[i].name,
                                                   bad[i].scopes, 0, plain, &key, &err));
        assert_non_null(strstr(err.message, bad[i].says));
    }
}

static void key_add_without_a_name_is_fine(void **state)
{
    fixture_t *f = *state;
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key;
    kg_err_t err = {0};
    assert_int_equal(0, kg_store_key_add(f->store, NULL, NULL, NULL, 0, plain, &key, &err));
    assert_string_equal(key.name, "");
    assert_string_equal(key.owner, key.id);
    assert_string_equal(key.scopes, "use");
}

static void key_plain_text_is_nowhere_in_the_files(void **state)
{
    fixture_t *f = *state;
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key;
    assert_int_equal(0, kg_store_key_add(f->store, NULL, "a", NULL, 0, plain, &key, NULL));
    static const char *const names[] = {"sandal.db", "sandal.db-wal"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", f->dir, names[i]);
        struct stat st;
        assert_int_equal(0, stat(path, &st));
        assert_int_equal(0600, (int)(st.st_mode & 0777));
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        char *bytes = calloc(1, (size_t)st.st_size + 1);
        assert_non_null(bytes);
        size_t n = fread(bytes, 1, (size_t)st.st_size, file);
        assert_null(memmem(bytes, n, plain + strlen(KG_KEY_PREFIX), 43));
        free(bytes);
        (void)fclose(file);
    }
}

static void has_scope_takes_whole_words(void **state)
{
    (void)state;
    kg_key_t key = {.scopes = "use attach:sbx-1"};
    assert_true(kg_key_has_scope(&key, "use"));
    assert_true(kg_key_has_scope(&key, "attach:sbx-1"));
    assert_false(kg_key_has_scope(&key, "attach:sbx-"));
    assert_false(kg_key_has_scope(&key, "admin"));
    kg_key_t admin = {.scopes = "admin"};
    assert_true(kg_key_has_scope(&admin, "use"));
}

static int collect_ids(void *user, const kg_store_row_t *row)
{
    return kg_buf_printf(user, "%s;", row->id);
}

/* By the store itself, with the change of the record: no kill comes between. */
static void disposable_is_who_has_no_record_any_more(void **state)
{
    fixture_t *f = *state;
    kg_store_row_t a = {"sbx-a", "ann", NULL, "{}"};
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(0, kg_store_disposable_has(f->store, "sbx-a", NULL)); /* never heard of */
    assert_int_equal(0, kg_store_sandbox_put(f->store, &a, NULL));
    assert_int_equal(0, kg_store_disposable_has(f->store, "sbx-a", NULL));
    assert_int_equal(0, kg_store_sandbox_delete(f->store, "sbx-a", NULL));
    assert_int_equal(1, kg_store_disposable_has(f->store, "sbx-a", NULL));
    assert_int_equal(0, kg_store_disposable_put(f->store, "sbx-a", NULL)); /* twice is fine */
    assert_int_equal(0, kg_store_disposable_put(f->store, "sbx-b", NULL));
    reopen(f);
    assert_int_equal(0, kg_store_disposable_each(f->store, collect_ids, &out, NULL));
    assert_string_equal("sbx-a;sbx-b;", out.data);
    a.id = "sbx-b"; /* somebody takes it */
    assert_int_equal(0, kg_store_sandbox_put(f->store, &a, NULL));
    assert_int_equal(0, kg_store_disposable_has(f->store, "sbx-b", NULL));
    a.body = "[]";
    assert_int_equal(0, kg_store_sandbox_put(f->store, &a, NULL));
    assert_int_equal(0, kg_store_disposable_delete(f->store, "sbx-a", NULL));
    kg_buf_clear(&out);
    assert_int_equal(0, kg_store_disposable_each(f->store, collect_ids, &out, NULL));
    assert_int_equal(0, out.len);
}

static int collect(void *user, const kg_store_row_t *row)
{
    return kg_buf_printf(user, "%s/%s/%s/%s;", row->id, row->parent, row->name ? row->name : "-",
                         row->body);
}

static void rows_survive_a_restart_and_names_are_unique(void **state)
{
    fixture_t *f = *state;
    kg_err_t err = {0};
    kg_store_row_t a = {"sbx-a", "ann", "one", "{}"};
    kg_store_row_t b = {"sbx-b", "ann", "one", "{}"};
    assert_int_equal(0, kg_store_sandbox_put(f->store, &a, &err));
    assert_int_equal(-EEXIST, kg_store_sandbox_put(f->store, &b, &err));
    assert_int_equal(KG_ERR_NAME_TAKEN, err.code);
    b.parent = "bob";
    assert_int_equal(0, kg_store_sandbox_put(f->store, &b, &err));
    a.name = NULL;
    a.body = "{\"v\":2}";
    assert_int_equal(0, kg_store_sandbox_put(f->store, &a, &err));
    kg_store_row_t c = {"ctx-1", "sbx-a", NULL, "{}"};
    kg_store_row_t d = {"ctx-2", "sbx-a", NULL, "[]"};
    assert_int_equal(0, kg_store_context_put(f->store, &c, &err));
    assert_int_equal(0, kg_store_context_put(f->store, &d, &err));
    kg_store_row_t e = {"run-1", "sbx-a", NULL, "{}"};
    kg_store_row_t g = {"run-2", "sbx-a", NULL, "{}"};
    assert_int_equal(0, kg_store_memo_put(f->store, &e, &err));
    assert_int_equal(0, kg_store_memo_put(f->store, &g, &err));
    assert_int_equal(0, kg_store_memo_delete(f->store, "run-1", &err));
    reopen(f);
    KG_AUTO_BUF kg_buf_t out = {0};
    assert_int_equal(0, kg_store_memo_each(f->store, "sbx-a", collect, &out, &err));
    assert_string_equal("run-2/sbx-a/-/{};", out.data);
    kg_buf_clear(&out);
    assert_int_equal(0, kg_store_sandbox_each(f->store, collect, &out, &err));
    assert_int_equal(0, kg_store_context_each(f->store, "sbx-a", collect, &out, &err));
    assert_string_equal("sbx-a/ann/-/{\"v\":2};sbx-b/bob/one/{};ctx-1/sbx-a/-/{};ctx-2/sbx-a/-/[];",
                        out.data);
    assert_int_equal(0, kg_store_sandbox_delete(f->store, "sbx-a", &err));
    kg_buf_clear(&out);
    assert_int_equal(0, kg_store_context_each(f->store, "sbx-a", collect, &out, &err));
    assert_int_equal(0, kg_store_memo_each(f->store, "sbx-a", collect, &out, &err));
    assert_int_equal(0, out.len);
    kg_store_row_t orphan = {"ctx-3", "sbx-a", NULL, "{}"};
    assert_true(kg_store_context_put(f->store, &orphan, &err) < 0);
    assert_true(kg_store_memo_put(f->store, &orphan, &err) < 0);
}

typedef struct seen_rows {
    unsigned count;
    char ids[128];
    uint64_t active_ms, ended_ns, counted_ns;
} seen_rows_t;

static int see_row(void *user, const kg_ledger_row_t *row)
{
    seen_rows_t *seen = user;
    size_t used = strlen(seen->ids);
    seen->count++;
    seen->active_ms = row->active_ms;
    seen->ended_ns = row->ended_ns;
    seen->counted_ns = row->counted_ns;
    (void)snprintf(seen->ids + used, sizeof(seen->ids) - used, "%s ", row->sandbox);
    return 0;
}

static void ledger_counts_and_is_pruned(void **state)
{
    fixture_t *f = *state;
    uint64_t active = 0;
    uint64_t paused = 0;
    static const char *const ids[] = {"a", "b", "c", "d"};
    assert_int_equal(0, kg_store_batch(f->store, true, NULL));
    for (unsigned i = 0; i < 4; i++) {
        kg_ledger_row_t row = {ids[i], i < 3 ? "ann" : "bob", "t", 100 + i, i == 2 ? 0 : 500, 10, 1,
                               0};
        assert_int_equal(0, kg_store_ledger_put(f->store, &row, NULL));
        row.active_ms = 20 + i;
        row.counted_ns = 1000 + i;
        assert_int_equal(0, kg_store_ledger_put(f->store, &row, NULL)); /* replaces */
    }
    assert_int_equal(0, kg_store_batch(f->store, false, NULL));
    reopen(f);
    assert_int_equal(0, kg_store_ledger_sum(f->store, "ann", &active, &paused, NULL));
    assert_int_equal(active, 20 + 21 + 22);
    assert_int_equal(paused, 3);
    assert_int_equal(0, kg_store_ledger_sum(f->store, "nobody", &active, &paused, NULL));
    assert_int_equal(active, 0);
    seen_rows_t seen = {0};
    assert_int_equal(0, kg_store_ledger_each(f->store, "ann", 100, 1, see_row, &seen, NULL));
    assert_string_equal(seen.ids, "b ");
    seen = (seen_rows_t){0};
    assert_int_equal(0, kg_store_ledger_get(f->store, "c", see_row, &seen, NULL));
    assert_int_equal(seen.active_ms, 22);
    assert_int_equal(seen.ended_ns, 0);
    assert_int_equal(seen.counted_ns, 1002);
    /* The newest one stays, and those that live. */
    assert_int_equal(0, kg_store_ledger_prune(f->store, 1, NULL));
    seen = (seen_rows_t){0};
    assert_int_equal(0, kg_store_ledger_each(f->store, "ann", 0, 9, see_row, &seen, NULL));
    assert_string_equal(seen.ids, "c ");
}

static void node_stays_the_same(void **state)
{
    fixture_t *f = *state;
    kg_node_t one;
    kg_node_t two;
    assert_int_equal(0, kg_store_node(f->store, &one, NULL));
    reopen(f);
    assert_int_equal(0, kg_store_node(f->store, &two, NULL));
    assert_string_equal(one.name, two.name);
    assert_true(kg_node_valid(one.name));
}

static void open_twice_sees_the_other_ones_writes(void **state)
{
    fixture_t *f = *state;
    kg_store_t *other = NULL;
    assert_int_equal(0, kg_store_open(f->dir, &other, NULL));
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key;
    assert_int_equal(0, kg_store_key_add(other, NULL, "a", NULL, 0, plain, &key, NULL));
    assert_int_equal(0, kg_store_key_check(f->store, kg_slice_cstr(plain), 1, &key, NULL));
    kg_store_close(&other);
}

static void open_newer_schema_and_garbage_are_refused(void **state)
{
    fixture_t *f = *state;
    kg_store_close(&f->store);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/sandal.db", f->dir);
    sqlite3 *db = NULL;
    assert_int_equal(SQLITE_OK, sqlite3_open(path, &db));
    assert_int_equal(SQLITE_OK,
                     sqlite3_exec(db, "INSERT INTO schema_step VALUES (99)", NULL, NULL, NULL));
    (void)sqlite3_close(db);
    kg_err_t err = {0};
    assert_true(kg_store_open(f->dir, &f->store, &err) < 0);
    assert_non_null(strstr(err.message, "newer"));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 4096; i++) {
        (void)fputc(i % 251, file);
    }
    (void)fclose(file);
    assert_true(kg_store_open(f->dir, &f->store, &err) < 0);
    assert_non_null(strstr(err.message, "sandal.db"));
    assert_true(kg_store_open("/proc/nowhere/x", &f->store, &err) < 0);
    assert_null(f->store);
}

/* Writes pairs (sandbox N, then its context) for ever, and tells N over the pipe after each pair.
 */
static void write_for_ever(const char *dir, int fd)
{
    kg_store_t *store = NULL;
    if (kg_store_open(dir, &store, NULL)) {
        _exit(1);
    }
    for (unsigned n = 0;; n++) {
        char id[32];
        char ctx[32];
        (void)snprintf(id, sizeof(id), "sbx-%u-%d", n, (int)getpid());
        (void)snprintf(ctx, sizeof(ctx), "ctx-%u-%d", n, (int)getpid());
        kg_store_row_t row = {id, "o", NULL,
                              "{\"long\":\"0123456789012345678901234567890123456789\"}"};
        kg_store_row_t crow = {ctx, id, "main", "{}"};
        if (kg_store_sandbox_put(store, &row, NULL) || kg_store_context_put(store, &crow, NULL) ||
            write(fd, &n, sizeof(n)) != (ssize_t)sizeof(n)) {
            _exit(2);
        }
    }
}

static int count_row(void *user, const kg_store_row_t *row)
{
    (void)row;
    ++*(unsigned *)user;
    return 0;
}

static void kill_in_the_middle_of_writes_loses_nothing_acknowledged(void **state)
{
    fixture_t *f = *state;
    unsigned acknowledged = 0;
    unsigned rounds = 8;
    for (unsigned round = 0; round < rounds; round++) {
        int fds[2];
        assert_int_equal(0, pipe(fds));
        kg_store_close(&f->store);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)close(fds[0]);
            write_for_ever(f->dir, fds[1]);
        }
        (void)close(fds[1]);
        unsigned n = 0;
        for (unsigned i = 0; i < 20 + 7 * round; i++) {
            assert_int_equal((int)sizeof(n), (int)read(fds[0], &n, sizeof(n)));
        }
        assert_int_equal(0, kill(pid, SIGKILL));
        assert_int_equal(pid, waitpid(pid, NULL, 0));
        while (read(fds[0], &n, sizeof(n)) == (ssize_t)sizeof(n)) {
        }
        (void)close(fds[0]);
        acknowledged += n + 1;
        reopen(f);
        unsigned rows = 0;
        assert_int_equal(0, kg_store_sandbox_each(f->store, count_row, &rows, NULL));
        /* Of each kill one pair may be there half: its sandbox without the word over the pipe. */
        assert_in_range(rows, acknowledged, acknowledged + round + 1);
    }
}

int main(void)
{
    if (sodium_init() < 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(key_check_known_key_gives_its_row),
        T(key_check_wrong_expired_removed_are_refused),
        T(key_add_bad_fields_are_named),
        T(key_add_without_a_name_is_fine),
        T(key_plain_text_is_nowhere_in_the_files),
        T(has_scope_takes_whole_words),
        T(rows_survive_a_restart_and_names_are_unique),
        T(disposable_is_who_has_no_record_any_more),
        T(ledger_counts_and_is_pruned),
        T(node_stays_the_same),
        T(open_twice_sees_the_other_ones_writes),
        T(open_newer_schema_and_garbage_are_refused),
        T(kill_in_the_middle_of_writes_loses_nothing_acknowledged),
#undef T
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
