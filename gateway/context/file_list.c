/* gateway/context: the entries of a directory and of those below it, a page at a time in the order
 * of their paths. Only the page is held, so a directory of any size can be listed: each page reads
 * it all and keeps what sorts first after the one before. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/context/files_priv.h"

typedef struct row {
    char *path; /* shown */
    json_t *json;
} row_t;

typedef struct dir {
    char *inner;
    char *shown;
    unsigned depth;
    struct dir *next;
} dir_t;

typedef struct listing {
    kg_fsop_t op;
    char *path;
    char *after;
    unsigned depth;
    size_t limit;
    kg_files_json_fn *fn;
    row_t *rows; /* room for 2 * (limit + 1) */
    size_t count;
    dir_t *dirs; /* still to visit, the first one is being read */
    dir_t *last;
    size_t dir_count;
    uint64_t cursor; /* where in it the next question begins */
    uint64_t begun_ns;
} listing_t;

static void dir_free(dir_t *dir)
{
    if (dir) {
        free(dir->inner);
        free(dir->shown);
        free(dir);
    }
}

static void drop_rows(listing_t *l, size_t from)
{
    for (size_t i = from; i < l->count; i++) {
        free(l->rows[i].path);
        json_decref(l->rows[i].json);
    }
    l->count = from < l->count ? from : l->count;
}

static void listing_free(listing_t *l)
{
    kg_fsop_end(&l->op);
    drop_rows(l, 0);
    while (l->dirs) {
        dir_t *dir = l->dirs;
        l->dirs = dir->next;
        dir_free(dir);
    }
    free(l->rows);
    free(l->path);
    free(l->after);
    free(l);
}

static void answer(listing_t *l, json_t *json, const kg_err_t *err)
{
    kg_files_json_fn *fn = l->fn;
    void *user = l->op.user;
    kg_err_t copy = {0};
    if (!json) {
        copy = *err;
    }
    listing_free(l);
    if (user) {
        fn(user, json, json ? NULL : &copy);
    } else {
        json_decref(json);
    }
}

static void fail_rc(listing_t *l, int rc)
{
    kg_err_t err = {0};
    if (rc == -EPIPE) {
        kg_fsop_lost(&err);
    } else if (rc == -ENOMEM) {
        (void)kg_oom(&err);
    } else {
        (void)kg_err_set(&err, kg_err_from_errno(rc), "The sandbox cannot be asked now.");
    }
    answer(l, NULL, &err);
}

/* --- Rows ----------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const row_t *)a)->path, ((const row_t *)b)->path);
}

static void keep_first(listing_t *l)
{
    qsort(l->rows, l->count, sizeof(*l->rows), by_path);
    drop_rows(l, l->limit + 1);
}

static int keep_row(listing_t *l, const char *shown, const kg_fs_entry_t *entry)
{
    if (l->after && strcmp(shown, l->after) <= 0) {
        return 0;
    }
    row_t row = {strdup(shown), kg_fs_entry_json(shown, entry)};
    if (!row.path || !row.json) {
        free(row.path);
        json_decref(row.json);
        return -ENOMEM;
    }
    l->rows[l->count++] = row;
    if (l->count == 2 * (l->limit + 1)) {
        keep_first(l);
    }
    return 0;
}

static char *base64(const char *text)
{
    size_t len = strlen(text);
    size_t cap = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    char *out = malloc(cap);
    return out ? sodium_bin2base64(out, cap, (const unsigned char *)text, len,
                                   sodium_base64_VARIANT_ORIGINAL)
               : NULL;
}

static void answer_rows(listing_t *l)
{
    keep_first(l);
    bool more = l->count > l->limit;
    KG_AUTO_FREE char *next = more ? base64(l->rows[l->limit - 1].path) : NULL;
    json_t *items = json_array();
    for (size_t i = 0; items && i < l->count && i < l->limit; i++) {
        if (json_array_append(items, l->rows[i].json)) {
            json_decref(items);
            items = NULL;
        }
    }
    json_t *json =
        items && (next || !more) ? json_pack("{s:O, s:s?}", "items", items, "next", next) : NULL;
    json_decref(items);
    kg_err_t err = {0};
    if (!json) {
        (void)kg_oom(&err);
    }
    answer(l, json, &err);
}

/* --- Directories ---------------------------------------------------------------------------- */

static int add_dir(listing_t *l, const char *inner, const char *shown, unsigned depth)
{
    dir_t *dir = calloc(1, sizeof(*dir));
    if (dir) {
        dir->inner = strdup(inner);
        dir->shown = strdup(shown);
        dir->depth = depth;
    }
    if (!dir || !dir->inner || !dir->shown) {
        dir_free(dir);
        return -ENOMEM;
    }
    if (l->last) {
        l->last->next = dir;
    } else {
        l->dirs = dir;
    }
    l->last = dir;
    l->dir_count++;
    return 0;
}

static void pop_dir(listing_t *l)
{
    dir_t *dir = l->dirs;
    l->dirs = dir->next;
    l->last = l->dirs ? l->last : NULL;
    l->dir_count--;
    dir_free(dir);
}

/* 0, -ENOMEM, -E2BIG: too many directories. What is too deep to be named is left to its parent. */
static int take_entry(listing_t *l, const kg_fs_entry_t *entry)
{
    const dir_t *dir = l->dirs;
    char shown[KG_FS_PATH_MAX];
    char inner[KG_FS_PATH_MAX];
    if (kg_fs_path_join(shown, dir->shown, entry->name) < 0 ||
        kg_fs_path_join(inner, dir->inner, entry->name) < 0) {
        return 0;
    }
    int rc = keep_row(l, shown, entry);
    if (rc < 0 || entry->stat.type != KG_FS_DIR || dir->depth >= l->depth) {
        return rc;
    }
    return l->dir_count >= KG_FILES_DIRS_MAX ? -E2BIG : add_dir(l, inner, shown, dir->depth + 1);
}

static void got_entries(
    void *user, const kg_fs_entry_t *entries, size_t count, uint64_t next, const kg_err_t *err);

static void ask_entries(kg_fsop_t *op, kg_sbx_t *sbx)
{
    listing_t *l = (listing_t *)op;
    int rc = kg_fs_list(sbx, l->dirs->inner, l->cursor, false, got_entries, l);
    if (rc < 0) {
        fail_rc(l, rc);
    }
}

static void read_dir(listing_t *l, uint64_t cursor)
{
    l->cursor = cursor;
    kg_fsop_go_on(&l->op, ask_entries);
}

/* The sandbox may make entries as fast as they are read. */
static bool is_late(const listing_t *l)
{
    uint64_t limit_ms = kg_fsop_limit_ms(&l->op);
    return limit_ms > 0 && kg_now_ns() - l->begun_ns > limit_ms * KG_NS_PER_MS;
}

static void answer_late(listing_t *l)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_BUSY, "The list was not done in the time that there is for it.");
    kg_err_hint(&err, "Ask for less depth. " KG_FS_LATE_HINT);
    answer(l, NULL, &err);
}

static void next_dir(listing_t *l)
{
    pop_dir(l);
    if (l->dirs) {
        read_dir(l, 0);
    } else {
        answer_rows(l);
    }
}

/* A directory below that has gone meanwhile, or lets nobody in, has its own entry and no more. */
static void dir_failed(listing_t *l, const kg_err_t *err)
{
    bool passes = err->code == KG_ERR_NOT_FOUND || err->code == KG_ERR_FORBIDDEN ||
                  err->code == KG_ERR_CONFLICT || err->code == KG_ERR_INVALID_REQUEST;
    if (l->dirs->depth > 1 && passes) {
        next_dir(l);
    } else {
        answer(l, NULL, err);
    }
}

static void got_entries(
    void *user, const kg_fs_entry_t *entries, size_t count, uint64_t next, const kg_err_t *err)
{
    listing_t *l = user;
    if (err) {
        dir_failed(l, err);
        return;
    }
    if (!l->op.user) {
        answer(l, NULL, &(kg_err_t){0});
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int rc = take_entry(l, &entries[i]);
        if (rc == -E2BIG) {
            kg_err_t many = {0};
            (void)kg_err_set(&many, KG_ERR_TOO_LARGE,
                             "There are more than %u directories to visit.", KG_FILES_DIRS_MAX);
            kg_err_hint(&many, "Ask for less depth.");
            answer(l, NULL, &many);
            return;
        }
        if (rc < 0) {
            fail_rc(l, rc);
            return;
        }
    }
    kg_fsop_touch(&l->op);
    if (is_late(l) && (next || l->dirs->next)) {
        answer_late(l);
    } else if (next) {
        read_dir(l, next);
    } else {
        next_dir(l);
    }
}

static void list_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    listing_t *l = (listing_t *)op;
    kg_fs_path_t at;
    kg_err_t err = {0};
    (void)sandbox;
    l->begun_ns = kg_now_ns();
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), l->path, &at, &err);
    if (rc < 0) {
        answer(l, NULL, &err);
    } else if (add_dir(l, at.inner, at.shown, 1) < 0) {
        fail_rc(l, -ENOMEM);
    } else {
        read_dir(l, 0);
    }
}

static void list_fail(kg_fsop_t *op, const kg_err_t *err)
{
    answer((listing_t *)op, NULL, err);
}

static void list_destroy(kg_fsop_t *op)
{
    listing_free((listing_t *)op);
}

static const kg_fsop_type_t list_type = {
    .sort = KG_FSOP_TRANSFER, .go = list_go, .fail = list_fail, .destroy = list_destroy};

int kg_files_list(kg_sandbox_t *sandbox,
                  const kg_files_list_t *opts,
                  kg_files_json_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    int rc = kg_fs_path_check(opts->path, "/path", err);
    rc = rc ? rc : kg_fsop_room(sandbox, KG_FSOP_TRANSFER, err);
    if (rc) {
        return rc;
    }
    listing_t *l = calloc(1, sizeof(*l));
    if (!l) {
        return kg_oom(err);
    }
    l->fn = fn;
    l->depth = opts->depth;
    l->limit = opts->limit && opts->limit <= KG_FILES_LIST_MAX ? opts->limit : KG_FILES_LIST_MAX;
    l->path = strdup(opts->path);
    l->after = opts->after ? strdup(opts->after) : NULL;
    l->rows = calloc(2 * (l->limit + 1), sizeof(*l->rows));
    kg_fsop_begin(&l->op, &list_type, sandbox, user);
    rc = l->path && l->rows && (l->after || !opts->after) ? kg_fsop_wake(&l->op, sandbox, err)
                                                          : kg_oom(err);
    if (rc) {
        listing_free(l);
    }
    return rc;
}
