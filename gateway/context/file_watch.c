/* gateway/context: what changes below a directory, told as events. The kernel queues what happens
 * while nobody reads; when it had to leave something out an event says so. Directories are watched
 * one by one, so those that appear are looked through once they are watched: a name may be told
 * twice, but none is missed. */
#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/context/file_watch.h"

#define TEMPORARY ".sandal-" /* and digits: how init names them */

enum {
    TEMPORARY_DIGITS = 16,
    EVENTS_HELD = 1024, /* then the kernel holds the rest */
    MOVE_MS = 20        /* between the two halves of a move */
};

/* --- Directories ---------------------------------------------------------------------------- */

static kg_watch_dir_t *find_dir(const kg_watch_t *w, int wd)
{
    kg_watch_dir_t *dir = NULL;
    HASH_FIND_INT(w->dirs, &wd, dir);
    return dir;
}

static void drop_dir(kg_watch_t *w, kg_watch_dir_t *dir)
{
    HASH_DEL(w->dirs, dir);
    free(dir->path.shown);
    free(dir->path.inner);
    free(dir);
}

void kg_watch_place_fini(kg_watch_place_t *place)
{
    free(place->shown);
    free(place->inner);
    *place = (kg_watch_place_t){0};
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* What was moved elsewhere is no longer ours to tell. */
static void forget_below(kg_watch_t *w, const char *shown)
{
    kg_watch_dir_t *dir = NULL;
    kg_watch_dir_t *next = NULL;
    HASH_ITER (hh, w->dirs, dir, next) {
        if (dir != w->root && is_below(dir->path.shown, shown)) {
            (void)inotify_rm_watch(w->fd, dir->wd);
            drop_dir(w, dir);
        }
    }
}

static char *renamed(const char *path, const char *from, const char *to)
{
    return kg_strdup_printf("%s%s", to, path + strlen(from));
}

static void rename_below(kg_watch_t *w, const kg_watch_place_t *from, const kg_watch_place_t *to)
{
    kg_watch_dir_t *dir = NULL;
    kg_watch_dir_t *next = NULL;
    HASH_ITER (hh, w->dirs, dir, next) {
        if (dir == w->root || !is_below(dir->path.shown, from->shown)) {
            continue;
        }
        char *shown = renamed(dir->path.shown, from->shown, to->shown);
        char *inner = renamed(dir->path.inner, from->inner, to->inner);
        if (shown && inner) {
            free(dir->path.shown);
            free(dir->path.inner);
            dir->path = (kg_watch_place_t){inner, shown};
        } else {
            free(shown);
            free(inner);
        }
    }
}

/* --- Events out ----------------------------------------------------------------------------- */

static bool same_as_last(const kg_watch_t *w, const char *type, const char *path)
{
    const kg_watch_event_t *last = w->events ? w->events->prev : NULL;
    return last && path && last->path && strcmp(type, "modified") == 0 &&
           strcmp(last->type, type) == 0 && strcmp(last->path, path) == 0;
}

void kg_watch_emit(kg_watch_t *w, const char *type, const char *path, const char *from)
{
    if (same_as_last(w, type, path)) {
        return;
    }
    kg_watch_event_t *event = calloc(1, sizeof(*event));
    json_t *json = json_pack("{s:s}", "type", type);
    int rc = event && json ? 0 : -ENOMEM;
    rc = rc || !path ? rc : kg_fs_put_name(json, "path", path);
    rc = rc || !from ? rc : kg_fs_put_name(json, "from", from);
    if (!rc) {
        event->type = type;
        event->path = path ? strdup(path) : NULL;
        event->text = json_dumps(json, JSON_COMPACT);
        rc = event->text && (event->path || !path) ? 0 : -ENOMEM;
    }
    json_decref(json);
    if (rc) {
        kg_watch_event_free(event);
        w->failed = true; /* an event is missing, so the stream is cut */
        return;
    }
    DL_APPEND(w->events, event);
    w->count++;
}

void kg_watch_event_free(kg_watch_event_t *event)
{
    if (event) {
        free(event->path);
        free(event->text);
        free(event);
    }
}

/* Files that are being written by way of the gateway (see KG_FS_OPEN_TEMPORARY) are nobody's
 * business until they are whole. */
static bool is_temporary(const char *shown)
{
    const char *name = strrchr(shown, '/');
    return name && kg_str_starts(name + 1, TEMPORARY) &&
           strspn(name + sizeof(TEMPORARY), "0123456789abcdef") == TEMPORARY_DIGITS &&
           strlen(name + sizeof(TEMPORARY)) == TEMPORARY_DIGITS;
}

/* --- Events in ------------------------------------------------------------------------------ */

static int place_of(const kg_watch_dir_t *dir, const char *name, kg_watch_place_t *ret)
{
    char shown[KG_FS_PATH_MAX];
    char inner[KG_FS_PATH_MAX];
    if (kg_fs_path_join(shown, dir->path.shown, name) < 0 ||
        kg_fs_path_join(inner, dir->path.inner, name) < 0) {
        return -ENAMETOOLONG;
    }
    *ret = (kg_watch_place_t){strdup(inner), strdup(shown)};
    if (!ret->inner || !ret->shown) {
        kg_watch_place_fini(ret);
        return -ENOMEM;
    }
    return 0;
}

/* The first half of a move whose second did not come: it went out of sight. */
static void flush_move(kg_watch_t *w)
{
    if (!w->from.shown) {
        return;
    }
    if (!is_temporary(w->from.shown)) {
        kg_watch_emit(w, "deleted", w->from.shown, NULL);
    }
    forget_below(w, w->from.shown);
    kg_watch_place_fini(&w->from);
    kg_timer_stop(w->timer);
}

static void on_move_timer(void *user)
{
    kg_watch_t *w = user;
    flush_move(w);
    kg_source_wake(&w->source);
}

static void moved_to(kg_watch_t *w, const struct inotify_event *e, const kg_watch_place_t *place)
{
    bool known = w->from.shown && e->cookie == w->cookie;
    if (!known) {
        flush_move(w);
        kg_watch_emit(w, "created", place->shown, NULL);
        if (e->mask & IN_ISDIR && w->recursive) {
            kg_watch_add(w, place, true);
        }
        return;
    }
    if (e->mask & IN_ISDIR) {
        rename_below(w, &w->from, place);
    }
    if (is_temporary(w->from.shown)) {
        kg_watch_emit(w, "created", place->shown, NULL);
    } else {
        kg_watch_emit(w, "moved", place->shown, w->from.shown);
    }
    kg_watch_place_fini(&w->from);
    kg_timer_stop(w->timer);
}

static void named(kg_watch_t *w, const struct inotify_event *e, kg_watch_place_t *place)
{
    if (e->mask & IN_MOVED_TO) {
        moved_to(w, e, place);
        return;
    }
    flush_move(w);
    if (is_temporary(place->shown) && !(e->mask & IN_MOVED_FROM)) {
        return;
    }
    if (e->mask & IN_CREATE) {
        kg_watch_emit(w, "created", place->shown, NULL);
        if (e->mask & IN_ISDIR && w->recursive) {
            kg_watch_add(w, place, true);
        }
    } else if (e->mask & IN_DELETE) {
        kg_watch_emit(w, "deleted", place->shown, NULL);
    } else if (e->mask & IN_MOVED_FROM) {
        w->from = *place;
        w->cookie = e->cookie;
        *place = (kg_watch_place_t){0};
    } else if (e->mask & (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)) {
        kg_watch_emit(w, "modified", place->shown, NULL);
    }
}

/* What happened to the watched thing itself. Below the root its parent tells the same. */
static void unnamed(kg_watch_t *w, const struct inotify_event *e, kg_watch_dir_t *dir)
{
    bool root = dir == w->root;
    flush_move(w);
    if (root && e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) {
        kg_watch_emit(w, "deleted", dir->path.shown, NULL);
        w->ended = true;
    } else if (root && e->mask & (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)) {
        kg_watch_emit(w, "modified", dir->path.shown, NULL);
    }
    if (e->mask & IN_IGNORED) {
        w->ended = w->ended || root;
        w->root = root ? NULL : w->root;
        drop_dir(w, dir);
    }
}

static void take_event(kg_watch_t *w, const struct inotify_event *e, const char *name)
{
    if (e->mask & IN_Q_OVERFLOW) {
        flush_move(w);
        kg_watch_emit(w, "overflow", NULL, NULL);
        return;
    }
    kg_watch_dir_t *dir = find_dir(w, e->wd);
    if (!dir) {
        return;
    }
    if (!name[0]) {
        unnamed(w, e, dir);
        return;
    }
    kg_watch_place_t place = {0};
    int rc = place_of(dir, name, &place);
    if (rc == -ENOMEM) {
        w->failed = true;
    } else if (rc == 0) {
        named(w, e, &place);
        kg_watch_place_fini(&place);
    }
}

/* false: what came is no list of events. */
static bool take_events(kg_watch_t *w, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        struct inotify_event e;
        if (len - at < sizeof(e)) {
            return false;
        }
        memcpy(&e, data + at, sizeof(e));
        at += sizeof(e);
        if (e.len > len - at) {
            return false;
        }
        char name[KG_FS_NAME_MAX + 1];
        size_t n = strnlen(data + at, e.len);
        if (n > KG_FS_NAME_MAX) {
            return false;
        }
        memcpy(name, data + at, n);
        name[n] = '\0';
        at += e.len;
        take_event(w, &e, name);
    }
    return true;
}

void kg_watch_read(kg_watch_t *w)
{
    char data[16384];
    while (!w->failed && !w->ended && w->count < EVENTS_HELD) {
        ssize_t n = read(w->fd, data, sizeof(data));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        w->failed = n <= 0 || !take_events(w, data, (size_t)n);
    }
    if (w->from.shown) {
        kg_timer_start(w->timer, kg_ms(MOVE_MS), 0);
    }
    bool more = w->count < EVENTS_HELD && !w->failed && !w->ended;
    (void)kg_fdwatch_set(w->watch, more, false);
}

static void on_readable(void *user, bool readable, bool writable)
{
    kg_watch_t *w = user;
    (void)readable;
    (void)writable;
    kg_watch_read(w);
    kg_source_wake(&w->source);
}

int kg_watch_listen(kg_watch_t *w)
{
    int rc = kg_timer_create(w->op.core->loop, on_move_timer, w, &w->timer);
    rc = rc ? rc : kg_fdwatch_create(w->op.core->loop, w->fd, on_readable, w, &w->watch);
    return rc;
}

void kg_watch_close(kg_watch_t *w)
{
    kg_fdwatch_close(&w->watch);
    kg_timer_close(&w->timer);
    kg_watch_dir_t *dir = NULL;
    kg_watch_dir_t *next = NULL;
    HASH_ITER (hh, w->dirs, dir, next) {
        drop_dir(w, dir);
    }
    w->root = NULL;
    kg_watch_place_fini(&w->from);
    if (w->fd >= 0) {
        (void)close(w->fd);
        w->fd = -1;
    }
}
