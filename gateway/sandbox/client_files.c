/* Files and ports of a sandbox, as the gateway asks for them. */
#include "gateway/sandbox/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/utf8.h"
#include "gateway/sandbox/client_private.h"
#include "gateway/sandbox/seqsock.h"

_Static_assert((int)KG_FS_FILE == (int)KG_IP_TYPE_FILE && (int)KG_FS_DIR == (int)KG_IP_TYPE_DIR &&
                   (int)KG_FS_SYMLINK == (int)KG_IP_TYPE_SYMLINK &&
                   (int)KG_FS_OTHER == (int)KG_IP_TYPE_OTHER,
               "types go over the wire as they are");
_Static_assert(KG_FS_LIST_ROWS == KG_IP_LIST_ROWS && KG_FS_PATH_MAX == KG_IP_PATH_MAX &&
                   KG_FS_LIMIT_MS_MAX == KG_IP_LIMIT_MS_MAX,
               "limits");
_Static_assert(KG_FS_OPEN_READ == KG_IP_FS_READ && KG_FS_OPEN_WRITE == KG_IP_FS_WRITE &&
                   KG_FS_OPEN_CREATE == KG_IP_FS_CREATE &&
                   KG_FS_OPEN_EXCLUSIVE == KG_IP_FS_EXCLUSIVE &&
                   KG_FS_OPEN_DIRECTORY == KG_IP_FS_DIRECTORY &&
                   KG_FS_OPEN_NOFOLLOW == KG_IP_FS_NOFOLLOW &&
                   KG_FS_OPEN_PARENTS == KG_IP_FS_PARENTS &&
                   KG_FS_OPEN_TEMPORARY == KG_IP_FS_TEMPORARY,
               "flags go over the wire as they are");

#define OPEN_FLAGS UINT32_C(255)

/* ---- requests ---- */

/* A path fit for a message: what a reader can't read is a question mark, what is too long ends in
 * dots. */
static void name_it(char ret_text[96], const char *path)
{
    size_t left = strlen(path);
    size_t at = 0;

    while (left > 0 && at < 88) {
        size_t step = kg_utf8_step(path, left);
        unsigned char c = (unsigned char)path[0];
        if (step == 0 || c < 0x20 || c == 0x7f) {
            ret_text[at++] = '?';
            step = 1;
        } else {
            memcpy(ret_text + at, path, step);
            at += step;
        }
        path += step;
        left -= step;
    }
    (void)snprintf(ret_text + at, 96 - at, "%s", left > 0 ? "..." : "");
}

static int send_call(kg_sbx_t *sbx,
                     kg_ip_request_t *request,
                     size_t fixed,
                     kg_slice_t tail,
                     int fd,
                     const kg_call_t *call)
{
    if (sbx->lost) {
        return -EPIPE;
    }
    kg_call_t *copy = malloc(sizeof(*copy));
    if (!copy) {
        return -ENOMEM;
    }
    *copy = *call;
    int r = kg_sbx_request_fd(sbx, request, fixed, tail, fd, copy);
    if (r < 0) {
        free(copy);
    }
    return r;
}

static int append_path(char *tail, size_t *len, const char *path)
{
    size_t size = strlen(path) + 1;
    if (size > KG_FS_PATH_MAX) {
        return -ENAMETOOLONG;
    }
    memcpy(tail + *len, path, size);
    *len += size;
    return 0;
}

/* What all requests have, but for their verb. */
typedef struct kg_files_ask {
    const char *path;
    const char *second; /* or NULL */
    uint64_t cursor;    /* or a limit_ms */
    uint32_t flags;
    uint32_t mode;
    bool root;
    int fd; /* borrowed, or -1 */
} kg_files_ask_t;

static int ask(kg_sbx_t *sbx, kg_ip_verb_t verb, const kg_files_ask_t *a, kg_call_t call)
{
    char tail[2 * KG_FS_PATH_MAX];
    size_t tail_len = 0;
    kg_ip_request_t request;

    if (a->path[0] != '/' || (a->second && a->second[0] != '/' && a->second[0] != '\0')) {
        return -EINVAL;
    }
    if (a->mode > 07777 || a->cursor > INT64_MAX) {
        return -EINVAL;
    }
    int r = append_path(tail, &tail_len, a->path);
    if (r == 0 && a->second) {
        r = append_path(tail, &tail_len, a->second);
    }
    if (r < 0) {
        return r;
    }
    size_t fixed = kg_ip_request_init(&request, verb, 0, tail_len);
    request.path.cursor = a->cursor;
    request.path.flags = a->flags | (a->root ? KG_IP_FS_ROOT : 0);
    request.path.mode = a->mode;
    name_it(call.what, a->path);
    return send_call(sbx, &request, fixed, kg_slice(tail, tail_len), a->fd, &call);
}

int kg_fs_open(kg_sbx_t *sbx,
               const char *path,
               uint32_t flags,
               uint32_t mode,
               bool root,
               kg_fs_open_fn *fn,
               void *user)
{
    if ((flags & ~OPEN_FLAGS) != 0 ||
        !(flags & (KG_FS_OPEN_READ | KG_FS_OPEN_WRITE | KG_FS_OPEN_TEMPORARY))) {
        return -EINVAL;
    }
    kg_files_ask_t a = {.path = path, .flags = flags, .mode = mode, .root = root, .fd = -1};
    return ask(sbx, KG_IP_OPEN, &a,
               (kg_call_t){.user = user, .fn.fs_open = fn, .files_flags = flags, .root = root});
}

int kg_fs_put_in_place(
    kg_sbx_t *sbx, const char *name, const char *path, bool root, kg_fs_put_fn *fn, void *user)
{
    kg_files_ask_t a = {.path = name, .second = path ? path : "", .root = root, .fd = -1};
    kg_call_t call = {.user = user, .fn.fs_put = fn};
    name_it(call.where, path ? path : name);
    return ask(sbx, KG_IP_PUT_IN_PLACE, &a, call);
}

int kg_fs_stat(
    kg_sbx_t *sbx, const char *path, bool follow, bool root, kg_fs_stat_fn *fn, void *user)
{
    kg_files_ask_t a = {
        .path = path, .flags = follow ? 0 : KG_IP_FS_NOFOLLOW, .root = root, .fd = -1};
    return ask(sbx, KG_IP_STAT, &a, (kg_call_t){.user = user, .fn.fs_stat = fn});
}

int kg_fs_list(
    kg_sbx_t *sbx, const char *path, uint64_t cursor, bool root, kg_fs_list_fn *fn, void *user)
{
    kg_files_ask_t a = {.path = path, .cursor = cursor, .root = root, .fd = -1};
    return ask(sbx, KG_IP_LIST, &a, (kg_call_t){.user = user, .fn.fs_list = fn});
}

int kg_fs_mkdir(kg_sbx_t *sbx,
                const char *path,
                uint32_t mode,
                bool parents,
                bool root,
                kg_done_fn *fn,
                void *user)
{
    kg_files_ask_t a = {.path = path,
                        .flags = parents ? KG_IP_FS_PARENTS : 0,
                        .mode = mode,
                        .root = root,
                        .fd = -1};
    return ask(sbx, KG_IP_MKDIR, &a, (kg_call_t){.user = user, .fn.done = fn});
}

int kg_fs_move(kg_sbx_t *sbx, const kg_fs_move_opts_t *opts, kg_done_fn *fn, void *user)
{
    kg_files_ask_t a = {.path = opts->from,
                        .second = opts->to,
                        .cursor = opts->limit_ms,
                        .flags = opts->overwrite ? KG_IP_FS_OVERWRITE : 0,
                        .root = opts->root,
                        .fd = -1};
    if (opts->to[0] == '\0' || opts->limit_ms > KG_FS_LIMIT_MS_MAX) {
        return -EINVAL;
    }
    kg_call_t call = {.user = user, .fn.done = fn};
    name_it(call.where, opts->to);
    return ask(sbx, KG_IP_RENAME, &a, call);
}

int kg_fs_remove(kg_sbx_t *sbx,
                 const char *path,
                 bool recursive,
                 uint64_t limit_ms,
                 bool root,
                 kg_done_fn *fn,
                 void *user)
{
    kg_files_ask_t a = {.path = path,
                        .cursor = recursive ? limit_ms : 0,
                        .flags = recursive ? KG_IP_FS_RECURSIVE : 0,
                        .root = root,
                        .fd = -1};
    if (limit_ms > KG_FS_LIMIT_MS_MAX) {
        return -EINVAL;
    }
    return ask(sbx, KG_IP_REMOVE, &a, (kg_call_t){.user = user, .fn.done = fn});
}

int kg_fs_watch(
    kg_sbx_t *sbx, const char *path, int watch_fd, bool root, kg_fs_watch_fn *fn, void *user)
{
    kg_files_ask_t a = {.path = path, .root = root, .fd = watch_fd};
    return ask(sbx, KG_IP_WATCH, &a, (kg_call_t){.user = user, .fn.fs_watch = fn});
}

int kg_sbx_port_connect(kg_sbx_t *sbx, uint16_t port, kg_port_fn *fn, void *user)
{
    kg_ip_request_t request;
    kg_call_t call = {.user = user, .fn.port = fn};

    if (port == 0) {
        return -EINVAL;
    }
    size_t fixed = kg_ip_request_init(&request, KG_IP_CONNECT, 0, 0);
    request.connect.port = port;
    (void)snprintf(call.what, sizeof(call.what), "port %u", port);
    return send_call(sbx, &request, fixed, (kg_slice_t){0}, -1, &call);
}

/* ---- answers ---- */

static kg_err_code_t code_of(int num)
{
    switch (num) {
    case ENOENT:
        return KG_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return KG_ERR_FORBIDDEN;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
    case ENXIO:
    case EXDEV:
    case EBUSY:
    case ETXTBSY:
    case ECONNREFUSED:
    case ELOOP:
        return KG_ERR_CONFLICT;
    case ENAMETOOLONG:
    case EINVAL:
        return KG_ERR_INVALID_REQUEST;
    case ENOSPC:
    case EDQUOT:
        return KG_ERR_STORAGE_FULL;
    case EUSERS:
    case ETIME:
        return KG_ERR_BUSY;
    case EAGAIN:
        return KG_ERR_QUOTA_EXCEEDED;
    default:
        return kg_err_from_errno(num);
    }
}

static const char *words_of(int num)
{
    switch (num) {
    case ENXIO:
        return "neither a file nor a directory";
    case EUSERS:
        return "too many file requests of this sandbox are at work";
    case EAGAIN:
        return "the sandbox has no room for another process";
    case ETIMEDOUT:
        return "the file system does not answer";
    case ETIME:
        return "not done in the time that there is for it; what was done stays";
    case ECONNREFUSED:
        return "refused, nothing listens there";
    default: {
        const char *words = strerrordesc_np(num);
        return words ? words : "unknown error";
    }
    }
}

/* What to do about it, where the usual hint of its code would lead astray; else NULL. */
static const char *hint_of(int num, uint32_t verb)
{
    switch (num) {
    case ENXIO:
        return KG_FS_REGULAR_HINT;
    case EISDIR:
        return KG_FS_DIRECTORY_HINT;
    case ENOTDIR:
        return "A part of the path is no directory: fs/stat says what each part is.";
    case ENOTEMPTY:
        return verb == KG_IP_REMOVE ? "recursive=true removes a directory with all that is in it."
                                    : "Remove what is in it first, or choose another path.";
    case EEXIST:
        return verb == KG_IP_RENAME ? "overwrite replaces a file that is there."
                                    : "Choose another path, or remove what is there.";
    case EXDEV:
        return "Copy it to there, then remove it here.";
    case ELOOP:
        return "Symbolic links of this path lead in a circle, or are too many: change one of them.";
    case ECONNREFUSED:
        return "Try again when something in the sandbox listens there.";
    case ETIME:
        return KG_FS_LATE_HINT;
    case EAGAIN:
        return KG_PIDS_HINT;
    default:
        return NULL;
    }
}

/* wd: of the reply. */
static const kg_err_t *error_of(const kg_call_t *call, int error, int32_t wd, kg_err_t *err)
{
    bool move = call->verb == KG_IP_RENAME;
    bool target = (move && wd == KG_IP_AT_TARGET) || call->verb == KG_IP_PUT_IN_PLACE;
    if (error == 0) {
        return NULL;
    }
    (void)kg_err_set(err, code_of(-error), "%s: %s", target ? call->where : call->what,
                     move && error == -EINVAL ? "a directory cannot go into itself"
                                              : words_of(-error));
    if (move) {
        kg_err_pointer(err, target ? "/to" : "/from");
    }
    const char *hint = hint_of(-error, call->verb);
    if (hint) {
        kg_err_hint(err, "%s", hint);
    }
    if (error == -EAGAIN) {
        err->retry_after_s = 1;
    }
    return err;
}

static const char *take_entry(const char *at, size_t *left, kg_fs_entry_t *ret_entry)
{
    kg_ip_entry_t e = {0};
    const char *name = "";
    const char *target = "";

    (void)kg_ip_entry_take(&at, left, &e, &name, &target); /* was looked at by the decoder */
    *ret_entry = (kg_fs_entry_t){
        .name = name,
        .target = e.type == KG_IP_TYPE_SYMLINK ? target : NULL,
        .stat =
            {
                .type = (kg_fs_type_t)e.type,
                .mode = e.mode,
                .uid = e.uid,
                .gid = e.gid,
                .size = e.size,
                .mtime_ns = e.mtime_ns,
                .dev = e.dev,
                .ino = e.ino,
            },
    };
    return at;
}

static void
take_open(kg_sbx_t *sbx, const kg_call_t *call, int *fd, const char *name, const kg_err_t *err)
{
    if (!call->forgotten) {
        call->fn.fs_open(call->user, err ? -1 : kg_take_fd(fd), err ? NULL : name, err);
        return;
    }
    if (!err && name) { /* nobody will put it anywhere */
        (void)kg_fs_put_in_place(sbx, name, NULL, call->root, NULL, NULL);
    }
}

static void take_entries(const kg_call_t *call,
                         const kg_ip_files_t *reply,
                         const char *tail,
                         size_t left,
                         const kg_err_t *err)
{
    kg_fs_entry_t entries[KG_FS_LIST_ROWS];
    for (uint32_t i = 0; i < reply->count; i++) {
        tail = take_entry(tail, &left, &entries[i]);
    }
    if (call->verb == KG_IP_STAT) {
        call->fn.fs_stat(call->user, err ? NULL : &entries[0], err);
    } else {
        call->fn.fs_list(call->user, entries, reply->count, reply->next, err);
    }
}

static void deliver(const kg_call_t *call,
                    const kg_ip_files_t *reply,
                    const char *tail,
                    size_t tail_len,
                    int *fd,
                    const kg_err_t *err)
{
    switch (call->verb) {
    case KG_IP_PUT_IN_PLACE:
        if (call->fn.fs_put) {
            call->fn.fs_put(call->user, reply->created != 0, err);
        }
        return;
    case KG_IP_STAT:
    case KG_IP_LIST:
        take_entries(call, reply, tail, tail_len, err);
        return;
    case KG_IP_WATCH:
        call->fn.fs_watch(call->user, err ? -1 : kg_take_fd(fd), reply->wd, err);
        return;
    case KG_IP_CONNECT:
        call->fn.port(call->user, err ? -1 : kg_take_fd(fd), err);
        return;
    default:
        if (call->fn.done) {
            call->fn.done(call->user, err);
        }
        return;
    }
}

void kg_files_take(
    kg_sbx_t *sbx, const kg_ip_files_t *reply, const char *tail, size_t tail_len, int *fd)
{
    kg_err_t err = {0};
    kg_call_t *call = kg_call_take(&sbx->calls, reply->head.seq, reply->head.verb);

    if (!call) {
        return;
    }
    int error = reply->error;
    bool needs_fd = call->verb == KG_IP_OPEN || call->verb == KG_IP_CONNECT;
    bool needs_name = call->verb == KG_IP_OPEN && (call->files_flags & KG_FS_OPEN_TEMPORARY);
    if (error == 0 && ((needs_fd && *fd < 0) || (needs_name && tail_len == 0))) {
        error = -EIO; /* it has no descriptor left, or lies */
    }
    const kg_err_t *why = error_of(call, error, reply->wd, &err);
    if (call->verb == KG_IP_OPEN) {
        take_open(sbx, call, fd, tail_len > 0 ? tail : NULL, why);
    } else if (!call->forgotten) {
        deliver(call, reply, tail, tail_len, fd, why);
    }
    free(call);
}

void kg_files_fail(const kg_call_t *call, const kg_err_t *err)
{
    const kg_ip_files_t none = {0};
    int fd = -1;

    if (call->verb == KG_IP_OPEN) {
        call->fn.fs_open(call->user, -1, NULL, err);
        return;
    }
    deliver(call, &none, NULL, 0, &fd, err);
}
