/* gateway/context: a watch from the asking to the closing: which directories it holds, and the
 * source that its reader has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/context/file_watch.h"

static kg_watch_t *watch_of(kg_fsop_t *op)
{
    return (kg_watch_t *)((char *)op - offsetof(kg_watch_t, op));
}

static void pop_todo(kg_watch_t *w)
{
    kg_watch_todo_t *todo = w->todo;
    w->todo = todo->next;
    kg_watch_place_fini(&todo->path);
    free(todo);
}

static void watch_free(kg_watch_t *w)
{
    kg_fsop_end(&w->op);
    kg_watch_close(w);
    while (w->todo) {
        pop_todo(w);
    }
    while (w->events) {
        kg_watch_event_t *event = w->events;
        DL_DELETE(w->events, event);
        kg_watch_event_free(event);
    }
    free(w->path);
    free(w);
}

static void set_failed(kg_watch_t *w, const kg_err_t *err)
{
    kg_files_watch_fn *fn = w->fn;
    void *user = w->op.user;
    kg_err_t copy = *err;
    watch_free(w);
    if (user) {
        fn(user, NULL, &copy);
    }
}

/* Before it is set up the caller hears of it; after that the stream is cut. */
static void fail(kg_watch_t *w, const kg_err_t *err)
{
    if (w->fn) {
        set_failed(w, err);
        return;
    }
    w->failed = true;
    kg_source_wake(&w->source);
}

static void fail_rc(kg_watch_t *w, int rc)
{
    kg_err_t err = {0};
    if (rc == -EPIPE) {
        kg_fsop_lost(&err);
    } else if (rc == -ENOMEM) {
        (void)kg_oom(&err);
    } else {
        (void)kg_err_set(&err, kg_err_from_errno(rc), "The sandbox cannot be watched now: %s.",
                         strerrordesc_np(-rc));
    }
    fail(w, &err);
}

/* --- The source ----------------------------------------------------------------------------- */

static kg_source_state_t watch_fill(kg_source_t *source, kg_buf_t *out, size_t max)
{
    kg_watch_t *w = (kg_watch_t *)source;
    (void)max;
    if (!w->events && w->watch && !w->ended) {
        kg_watch_read(w);
    }
    kg_watch_event_t *event = w->events;
    if (!event) {
        return w->failed ? KG_SOURCE_FAILED : w->ended ? KG_SOURCE_END : KG_SOURCE_WAIT;
    }
    int rc = kg_buf_append_cstr(out, event->text);
    DL_DELETE(w->events, event);
    w->count--;
    kg_watch_event_free(event);
    return rc < 0 ? KG_SOURCE_FAILED : KG_SOURCE_MORE;
}

/* init may still be to answer: then it is freed there. */
static void watch_source_close(kg_source_t *source)
{
    kg_watch_t *w = (kg_watch_t *)source;
    kg_sbx_t *sbx = w->asking ? kg_fsop_sbx(&w->op) : NULL;
    if (sbx) {
        kg_sbx_forget(sbx, &w->op);
    }
    watch_free(w);
}

static void set_up(kg_watch_t *w)
{
    kg_files_watch_fn *fn = KG_TAKE(w->fn);
    void *user = w->op.user;
    if (!user) {
        watch_free(w);
        return;
    }
    w->op.user = NULL;
    w->source = (kg_source_t){.fill = watch_fill, .close = watch_source_close};
    fn(user, &w->source, NULL);
}

/* --- Directories ---------------------------------------------------------------------------- */

static void see_to(kg_watch_t *w);

void kg_watch_add(kg_watch_t *w, const kg_watch_place_t *place, bool announce)
{
    kg_watch_todo_t *todo = calloc(1, sizeof(*todo));
    if (todo) {
        todo->path = (kg_watch_place_t){strdup(place->inner), strdup(place->shown)};
        todo->announce = announce;
    }
    if (!todo || !todo->path.inner || !todo->path.shown) {
        if (todo) {
            kg_watch_place_fini(&todo->path);
        }
        free(todo);
        w->failed = true;
        return;
    }
    LL_APPEND(w->todo, todo);
    if (!w->asking) {
        see_to(w);
    }
}

static void next_todo(kg_watch_t *w)
{
    pop_todo(w);
    if (w->todo) {
        see_to(w);
    } else if (w->fn) {
        set_up(w);
    }
}

static void too_many(kg_watch_t *w)
{
    kg_err_t err = {0};
    (void)kg_err_set(&err, KG_ERR_QUOTA_EXCEEDED, "There are more than %u directories to watch.",
                     KG_FILES_WATCH_MAX);
    kg_err_hint(&err, "Watch less, or without recursive.");
    fail(w, &err);
}

static int queue_below(kg_watch_t *w, const kg_watch_todo_t *todo, const kg_fs_entry_t *entry)
{
    char shown[KG_FS_PATH_MAX];
    char inner[KG_FS_PATH_MAX];
    if (kg_fs_path_join(shown, todo->path.shown, entry->name) < 0 ||
        kg_fs_path_join(inner, todo->path.inner, entry->name) < 0) {
        return 0;
    }
    if (todo->announce) {
        kg_watch_emit(w, "created", shown, NULL);
    }
    if (entry->stat.type != KG_FS_DIR) {
        return 0;
    }
    size_t queued = 0;
    const kg_watch_todo_t *each = NULL;
    LL_COUNT(w->todo, each, queued);
    if (queued + HASH_COUNT(w->dirs) > KG_FILES_WATCH_MAX) {
        return -E2BIG;
    }
    kg_watch_add(w, &(kg_watch_place_t){inner, shown}, todo->announce);
    return 0;
}

static void got_entries(
    void *user, const kg_fs_entry_t *entries, size_t count, uint64_t next, const kg_err_t *err)
{
    kg_watch_t *w = watch_of(user);
    kg_watch_todo_t *todo = w->todo;
    for (size_t i = 0; !err && i < count; i++) {
        if (queue_below(w, todo, &entries[i]) < 0) {
            w->asking = false;
            too_many(w);
            return;
        }
    }
    kg_sbx_t *sbx = kg_fsop_sbx(&w->op);
    if (!err && next && sbx &&
        kg_fs_list(sbx, todo->path.inner, next, false, got_entries, &w->op) == 0) {
        return;
    }
    w->asking = false;
    bool told = todo->announce && !w->fn;
    next_todo(w); /* may free it while it is being set up, and only then */
    if (told) {
        kg_source_wake(&w->source);
    }
}

static int keep_dir(kg_watch_t *w, int wd)
{
    kg_watch_dir_t *dir = NULL;
    HASH_FIND_INT(w->dirs, &wd, dir);
    if (dir) {
        return 0; /* the same one by another way */
    }
    dir = calloc(1, sizeof(*dir));
    if (!dir) {
        return -ENOMEM;
    }
    dir->wd = wd;
    dir->path = w->todo->path;
    dir->path = (kg_watch_place_t){strdup(dir->path.inner), strdup(dir->path.shown)};
    if (!dir->path.inner || !dir->path.shown) {
        kg_watch_place_fini(&dir->path);
        free(dir);
        return -ENOMEM;
    }
    HASH_ADD_INT(w->dirs, wd, dir);
    w->root = w->root || !w->fn ? w->root : dir;
    return 0;
}

/* Nothing but an inotify descriptor answers a read at once. */
static bool is_inotify(int fd)
{
    char link[64];
    char name[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    return strcmp(name, "anon_inode:inotify") == 0;
}

static int take_fd(kg_watch_t *w, int fd_take)
{
    if (fd_take < 0 || w->fd >= 0) {
        if (fd_take >= 0) {
            (void)close(fd_take);
        }
        return w->fd < 0 ? -EBADF : 0;
    }
    w->fd = fd_take;
    return is_inotify(fd_take) ? kg_watch_listen(w) : -EBADF;
}

static void got_watch(void *user, int fd_take, int wd, const kg_err_t *err)
{
    kg_watch_t *w = watch_of(user);
    bool first = w->fd < 0;
    w->asking = false;
    if (err && first) {
        fail(w, err);
        return;
    }
    int rc = err ? 0 : take_fd(w, fd_take);
    rc = rc || err ? rc : keep_dir(w, wd);
    if (rc) {
        fail_rc(w, rc);
        return;
    }
    kg_sbx_t *sbx = kg_fsop_sbx(&w->op);
    if (!err && w->recursive && sbx &&
        kg_fs_list(sbx, w->todo->path.inner, 0, false, got_entries, &w->op) == 0) {
        w->asking = true;
        return;
    }
    next_todo(w);
}

static void see_to(kg_watch_t *w)
{
    kg_sbx_t *sbx = kg_fsop_sbx(&w->op);
    int rc = sbx ? kg_fs_watch(sbx, w->todo->path.inner, w->fd, false, got_watch, &w->op) : -EPIPE;
    if (rc < 0) {
        fail_rc(w, rc);
    } else {
        w->asking = true;
    }
}

/* --- The op --------------------------------------------------------------------------------- */

static void watch_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    kg_watch_t *w = watch_of(op);
    kg_fs_path_t at;
    kg_err_t err = {0};
    (void)sandbox;
    if (kg_fs_path_resolve(kg_sbx_info(sbx), w->path, &at, &err) < 0) {
        fail(w, &err);
        return;
    }
    kg_watch_todo_t *todo = calloc(1, sizeof(*todo));
    if (!todo) {
        fail_rc(w, -ENOMEM);
        return;
    }
    todo->path = (kg_watch_place_t){strdup(at.inner), strdup(at.shown)};
    w->todo = todo;
    if (!todo->path.inner || !todo->path.shown) {
        fail_rc(w, -ENOMEM);
        return;
    }
    see_to(w);
}

static void watch_fail(kg_fsop_t *op, const kg_err_t *err)
{
    fail(watch_of(op), err);
}

static void watch_gone(kg_fsop_t *op, const kg_err_t *err)
{
    kg_watch_t *w = watch_of(op);
    w->asking = false;
    if (!w->fn) {
        kg_fsop_end(op);
        kg_watch_close(w);
    }
    fail(w, err);
}

/* Whoever has it as a source closes it later. */
static void watch_destroy(kg_fsop_t *op)
{
    kg_watch_t *w = watch_of(op);
    w->asking = false;
    if (w->fn) {
        watch_free(w);
        return;
    }
    kg_watch_close(w);
    w->failed = true;
}

static const kg_fsop_type_t watch_type = {.sort = KG_FSOP_WATCH,
                                          .go = watch_go,
                                          .fail = watch_fail,
                                          .gone = watch_gone,
                                          .destroy = watch_destroy};

int kg_files_watch(kg_sandbox_t *sandbox,
                   const char *path,
                   bool recursive,
                   kg_files_watch_fn *fn,
                   void *user,
                   kg_err_t *err)
{
    int rc = kg_fs_path_check(path, "/path", err);
    rc = rc ? rc : kg_fsop_room(sandbox, KG_FSOP_WATCH, err);
    if (rc) {
        return rc;
    }
    kg_watch_t *w = calloc(1, sizeof(*w));
    if (!w) {
        return kg_oom(err);
    }
    w->fd = -1;
    w->fn = fn;
    w->recursive = recursive;
    w->path = strdup(path);
    kg_fsop_begin(&w->op, &watch_type, sandbox, user);
    rc = w->path ? kg_fsop_wake(&w->op, sandbox, err) : kg_oom(err);
    if (rc) {
        watch_free(w);
    }
    return rc;
}
