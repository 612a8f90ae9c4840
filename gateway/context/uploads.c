/* gateway/context: uploads that can be resumed. The bytes are in a temporary file of the sandbox
 * whose descriptor stays open, and which sandal-init removes when the gateway goes: an upload ends
 * with its sandbox's processes and with the daemon. A memo in the store and a record here tell so
 * to whoever would go on with it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/files_priv.h"

struct kg_upload {
    kg_fsop_t op; /* listed while something goes on */
    kg_core_t *core;
    char sandbox[KG_ID_MAX];
    kg_upload_info_t info;
    char *metadata;
    char *path;
    kg_fs_path_t at;
    uint32_t mode;
    char *name;
    kg_io_t *io;
    kg_pump_t pump;
    kg_upload_fn *fn; /* of what goes on */
    bool opening;
    bool putting;
    bool deleted; /* gone for all but init's answer */
    bool lost;    /* what came of it is gone; it is only told of */
    uint64_t used_ns;
    kg_upload_t *prev, *next; /* of the core */
};

static const kg_fsop_type_t upload_type;

static void upload_free(kg_upload_t *u)
{
    if (u->core) {
        DL_DELETE(u->core->uploads, u);
    }
    if (u->core && !u->core->destroying && !u->opening) {
        (void)kg_store_memo_delete(u->core->store, u->info.id, NULL);
    }
    kg_pump_fini(&u->pump);
    kg_fsop_end(&u->op);
    kg_io_close(&u->io);
    free(u->name);
    free(u->path);
    free(u->metadata);
    free(u);
}

static void discard(kg_upload_t *u)
{
    if (u->name) {
        kg_fsop_t where = {.core = u->core};
        memcpy(where.sandbox, u->sandbox, sizeof(where.sandbox));
        kg_fsop_discard(&where, u->name);
        free(KG_TAKE(u->name));
    }
}

/* For the next gateway: it was there, and perhaps has come whole. */
static void remember(const kg_upload_t *u)
{
    kg_err_t err = {0};
    char body[48] = "{}";
    if (u->info.done) {
        (void)snprintf(body, sizeof(body), "{\"length\":%lld}", (long long)u->info.length);
    }
    kg_store_row_t row = {.id = u->info.id, .parent = u->sandbox, .body = body};
    if (kg_store_memo_put(u->core->store, &row, &err)) {
        kg_log(KG_LOG_WARN, "upload.memo", "upload=%s code=%s", u->info.id, kg_err_name(err.code));
    }
}

/* The records of those that were lost are few, whatever is begun and lost again. */
static bool room_to_tell(kg_core_t *core)
{
    unsigned lost = 0;
    const kg_upload_t *u = NULL;
    DL_FOREACH (core->uploads, u) {
        lost += u->lost;
    }
    return lost < KG_UPLOADS_ALL;
}

/* Is it to be told of, when what came of it goes? */
static bool worth_telling(const kg_upload_t *u)
{
    return !u->opening && !u->deleted && !u->info.done && kg_sandbox_by_id(u->core, u->sandbox) &&
           room_to_tell(u->core);
}

static void lose(kg_upload_t *u)
{
    u->lost = true;
    u->putting = false; /* nobody answers any more */
    u->used_ns = kg_now_ns();
    discard(u);
    kg_io_close(&u->io);
    u->pump.io = NULL;
}

/* What went on is over: the caller hears of it. With an err that ends the upload it goes too. */
static void settle(kg_upload_t *u, const kg_err_t *err, bool ends)
{
    kg_upload_fn *fn = KG_TAKE(u->fn);
    void *user = u->op.user;
    kg_err_t copy = {0};
    if (err) {
        copy = *err;
    } else if (u->deleted) {
        (void)kg_err_set(&copy, KG_ERR_NOT_FOUND, "The upload was deleted.");
    }
    u->op.user = NULL;
    u->used_ns = kg_now_ns();
    kg_fsop_end(&u->op);
    if (ends || u->deleted) {
        discard(u);
        upload_free(u);
        u = NULL;
    }
    if (user && fn) {
        fn(user, copy.code ? NULL : u, copy.code ? &copy : NULL);
    }
}

static void settle_rc(kg_upload_t *u, int rc, bool ends)
{
    kg_err_t err = {0};
    if (rc == -EPIPE) {
        kg_fsop_lost(&err);
    } else if (rc == -ENOMEM) {
        (void)kg_oom(&err);
    } else {
        (void)kg_err_set(&err, kg_err_from_errno(rc), "The sandbox cannot be asked now.");
    }
    settle(u, &err, ends);
}

/* --- The end of one ------------------------------------------------------------------------- */

static void put(void *user, bool created, const kg_err_t *err)
{
    kg_upload_t *u = user;
    (void)created;
    u->putting = false;
    if (err) {
        settle(u, err, true);
        return;
    }
    free(KG_TAKE(u->name));
    kg_io_close(&u->io);
    u->info.done = true;
    remember(u);
    settle(u, NULL, false);
}

static void put_in_place(kg_fsop_t *op, kg_sbx_t *sbx)
{
    kg_upload_t *u = (kg_upload_t *)op;
    int rc = u->deleted ? -ENOENT : kg_fs_put_in_place(sbx, u->name, u->at.inner, false, put, u);
    if (rc < 0) {
        settle_rc(u, rc, true);
    } else {
        u->putting = true;
    }
}

/* Puts it in place if all of it is there. */
static void complete(kg_upload_t *u)
{
    if (u->info.length < 0 || u->info.offset != (uint64_t)u->info.length) {
        settle(u, NULL, false);
        return;
    }
    kg_fsop_go_on(&u->op, put_in_place);
}

/* --- The begin of one ----------------------------------------------------------------------- */

static void got_fd(void *user, int fd_take, const char *name, const kg_err_t *err)
{
    kg_upload_t *u = user;
    if (fd_take < 0) {
        settle(u, err, true);
        return;
    }
    u->name = strdup(name ? name : "");
    int rc = kg_io_open(u->core->loop, fd_take, &u->io);
    if (rc < 0 || !u->name || !u->op.user) {
        settle_rc(u, -ENOMEM, true); /* or nobody waits any more */
        return;
    }
    u->opening = false;
    remember(u);
    u->pump.io = u->io;
    complete(u);
}

static void open_temporary(kg_fsop_t *op, kg_sbx_t *sbx)
{
    kg_upload_t *u = (kg_upload_t *)op;
    uint32_t flags =
        KG_FS_OPEN_WRITE | KG_FS_OPEN_CREATE | KG_FS_OPEN_PARENTS | KG_FS_OPEN_TEMPORARY;
    int rc = kg_fs_open(sbx, u->at.inner, flags, u->mode, false, got_fd, u);
    if (rc < 0) {
        settle_rc(u, rc, true);
    }
}

static void got_stat(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    kg_upload_t *u = user;
    kg_err_t own = {0};
    if (!entry && err->code != KG_ERR_NOT_FOUND) {
        settle(u, err, true);
        return;
    }
    if (entry && entry->stat.type != KG_FS_FILE) {
        kg_fsop_no_file(u->at.shown, entry->stat.type == KG_FS_DIR, &own);
        settle(u, &own, true);
        return;
    }
    if (u->mode == UINT32_MAX) {
        u->mode = entry ? entry->stat.mode & 0777 : 0644;
    }
    kg_fsop_go_on(&u->op, open_temporary);
}

static void begin(kg_upload_t *u, kg_sbx_t *sbx)
{
    kg_err_t err = {0};
    int rc = kg_fs_path_resolve(kg_sbx_info(sbx), u->path, &u->at, &err);
    if (rc < 0) {
        settle(u, &err, true);
        return;
    }
    rc = kg_fs_stat(sbx, u->at.inner, true, false, got_stat, u);
    if (rc < 0) {
        settle_rc(u, rc, true);
    }
}

static int room(const kg_sandbox_t *sandbox, kg_err_t *err)
{
    unsigned here = 0;
    unsigned all = 0;
    const kg_upload_t *u = NULL;
    DL_FOREACH (sandbox->core->uploads, u) {
        if (u->lost) {
            continue;
        }
        all++;
        here += !u->info.done && strcmp(u->sandbox, sandbox->id) == 0;
    }
    if (here < KG_UPLOADS_MAX && all < KG_UPLOADS_ALL) {
        return kg_fsop_room(sandbox, KG_FSOP_TRANSFER, err);
    }
    int rc =
        kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                   "%u uploads of this sandbox are unfinished, %u are known in all.", here, all);
    kg_err_hint(err, "Finish or DELETE some; unused ones are given up after %u s.",
                KG_UPLOAD_IDLE_S);
    return rc;
}

static void moved(void *user);
static void pumped(void *user, const kg_err_t *err);

static kg_upload_t *upload_alloc(kg_sandbox_t *sandbox, const kg_upload_opts_t *opts)
{
    kg_upload_t *u = calloc(1, sizeof(*u));
    if (!u) {
        return NULL;
    }
    u->core = sandbox->core;
    DL_APPEND(u->core->uploads, u);
    u->opening = true;
    u->used_ns = kg_now_ns();
    u->mode = opts->mode;
    u->path = strdup(opts->path);
    u->metadata = strdup(opts->metadata ? opts->metadata : "");
    u->info = (kg_upload_info_t){.length = opts->length, .metadata = u->metadata};
    u->pump = (kg_pump_t){.moved = moved, .done = pumped, .user = u};
    kg_id_generate(&u->core->node, "upl", u->info.id);
    (void)kg_format(u->sandbox, sizeof(u->sandbox), "%s", sandbox->id);
    if (!u->path || !u->metadata) {
        upload_free(u);
        return NULL;
    }
    return u;
}

int kg_upload_new(kg_sandbox_t *sandbox,
                  const kg_upload_opts_t *opts,
                  kg_upload_fn *fn,
                  void *user,
                  kg_err_t *err)
{
    int rc = kg_fs_path_check(opts->path, "/upload_metadata", err);
    rc = rc ? rc : room(sandbox, err);
    if (rc) {
        return rc;
    }
    kg_upload_t *u = upload_alloc(sandbox, opts);
    if (!u) {
        return kg_oom(err);
    }
    u->fn = fn;
    kg_fsop_begin(&u->op, &upload_type, sandbox, user);
    rc = kg_fsop_wake(&u->op, sandbox, err);
    if (rc) {
        upload_free(u);
    }
    return rc;
}

/* --- Pieces --------------------------------------------------------------------------------- */

static void moved(void *user)
{
    kg_upload_t *u = user;
    u->info.offset = u->pump.offset;
    u->used_ns = kg_now_ns();
    kg_fsop_touch(&u->op);
}

static void pumped(void *user, const kg_err_t *err)
{
    kg_upload_t *u = user;
    if (err) {
        settle(u, err, false);
    } else {
        complete(u);
    }
}

static void upload_go(kg_fsop_t *op, kg_sandbox_t *sandbox, kg_sbx_t *sbx)
{
    kg_upload_t *u = (kg_upload_t *)op;
    (void)sandbox;
    if (!u->opening && !op->user) {
        settle(u, NULL, false);
    } else if (u->opening) {
        begin(u, sbx);
    } else {
        kg_pump_start(&u->pump);
    }
}

static void upload_fail(kg_fsop_t *op, const kg_err_t *err)
{
    kg_upload_t *u = (kg_upload_t *)op;
    settle(u, err, u->opening);
}

static void upload_gone(kg_fsop_t *op, const kg_err_t *err)
{
    kg_upload_t *u = (kg_upload_t *)op;
    bool told_of = worth_telling(u);
    if (told_of) {
        kg_pump_stop(&u->pump);
        lose(u);
    }
    settle(u, err, !told_of);
}

/* The sender has gone: what came until now stays. A piece that is being written doesn't count; the
 * next sender writes it again, after it. */
static void upload_forget(kg_fsop_t *op)
{
    kg_upload_t *u = (kg_upload_t *)op;
    if (u->pump.running) {
        kg_pump_stop(&u->pump);
        settle(u, NULL, false);
    }
}

static void upload_destroy(kg_fsop_t *op)
{
    (void)op; /* with the list of uploads */
}

static const kg_fsop_type_t upload_type = {.sort = KG_FSOP_TRANSFER,
                                           .go = upload_go,
                                           .fail = upload_fail,
                                           .forget = upload_forget,
                                           .gone = upload_gone,
                                           .destroy = upload_destroy};

static int refuse_offset(const kg_upload_t *u, uint64_t offset, kg_err_t *err)
{
    int rc = kg_err_set(err, KG_ERR_CONFLICT, "The upload is at offset %llu, not %llu.",
                        (unsigned long long)u->info.offset, (unsigned long long)offset);
    kg_err_pointer(err, "/upload_offset");
    kg_err_hint(err, "HEAD tells where to go on.");
    return rc;
}

static int check_append(const kg_upload_t *u, const kg_upload_piece_t *piece, kg_err_t *err)
{
    uint64_t offset = piece->offset;
    int64_t length = piece->length;
    if (u->op.core || u->deleted) {
        return kg_err_set(err, KG_ERR_BUSY, "Somebody is at this upload already.");
    }
    if (offset != u->info.offset) {
        return refuse_offset(u, offset, err);
    }
    if (u->info.done) {
        return kg_err_set(err, KG_ERR_CONFLICT, "The upload is complete.");
    }
    if (length >= 0 && u->info.length >= 0 && length != u->info.length) {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "Its length was said to be %lld.",
                            (long long)u->info.length);
        kg_err_pointer(err, "/upload_length");
        return rc;
    }
    int64_t total = length >= 0 ? length : u->info.length;
    if (total >= 0 && ((uint64_t)total < offset || piece->bytes > (uint64_t)total - offset)) {
        return kg_err_set(err, KG_ERR_TOO_LARGE, "The upload has %lld bytes in all.",
                          (long long)total);
    }
    return 0;
}

int kg_upload_append(kg_upload_t *upload,
                     const kg_upload_piece_t *piece,
                     kg_upload_fn *fn,
                     void *user,
                     kg_err_t *err)
{
    int rc = check_append(upload, piece, err);
    kg_sandbox_t *sandbox = rc ? NULL : kg_sandbox_by_id(upload->core, upload->sandbox);
    if (!rc && !sandbox) {
        kg_fsop_lost(err);
        rc = -ENOENT;
    }
    rc = rc ? rc : kg_fsop_room(sandbox, KG_FSOP_TRANSFER, err);
    if (rc) {
        return rc;
    }
    upload->fn = fn;
    kg_fsop_begin(&upload->op, &upload_type, sandbox, user);
    upload->op.gone = false;
    rc = kg_fsop_wake(&upload->op, sandbox, err);
    if (rc) {
        upload->fn = NULL;
        upload->op.user = NULL;
        return rc;
    }
    upload->info.length = piece->length >= 0 ? piece->length : upload->info.length;
    upload->pump.intake = piece->intake;
    upload->pump.offset = piece->offset;
    upload->pump.max = upload->info.length >= 0 ? (uint64_t)upload->info.length : UINT64_MAX;
    return 0;
}

void kg_upload_more(kg_upload_t *upload)
{
    kg_pump_more(&upload->pump);
}

/* --- Finding and ending --------------------------------------------------------------------- */

kg_upload_t *kg_upload_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err)
{
    kg_upload_t *u = NULL;
    DL_FOREACH (sandbox->core->uploads, u) {
        if (u->opening || u->deleted || strcmp(u->info.id, id) != 0 ||
            strcmp(u->sandbox, sandbox->id) != 0) {
            continue;
        }
        if (u->lost) {
            (void)kg_err_set(err, KG_ERR_UPLOAD_LOST,
                             "Upload %.64s ended with the daemon or the processes of its sandbox; "
                             "what was sent of it is gone.",
                             id);
            kg_err_hint(err, "Begin a new one.");
            return NULL;
        }
        return u;
    }
    (void)kg_err_set(err, KG_ERR_NOT_FOUND, "No upload %.64s.", id);
    kg_err_hint(err,
                "Uploads end with their sandbox and with the daemon, and %u s after their "
                "last use.",
                KG_UPLOAD_IDLE_S);
    return NULL;
}

const kg_upload_info_t *kg_upload_info(const kg_upload_t *upload)
{
    return &upload->info;
}

void kg_upload_delete(kg_upload_t *upload)
{
    if (upload->putting || upload->op.waking || upload->opening) {
        upload->deleted = true; /* init or the wake is still to answer */
        return;
    }
    if (upload->op.core) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_NOT_FOUND, "The upload was deleted.");
        kg_pump_stop(&upload->pump);
        settle(upload, &err, true);
        return;
    }
    discard(upload);
    upload_free(upload);
}

void kg_uploads_tick(kg_core_t *core)
{
    uint64_t now = kg_now_ns();
    kg_upload_t *u = NULL;
    kg_upload_t *next = NULL;
    DL_FOREACH_SAFE (core->uploads, u, next) {
        if (!u->op.core && now - u->used_ns >= KG_UPLOAD_IDLE_S * KG_NS_PER_S) {
            kg_upload_delete(u);
        }
    }
}

/* Those at which somebody is have ended with their op. */
void kg_uploads_box_gone(kg_core_t *core, const char *sandbox)
{
    kg_upload_t *u = NULL;
    kg_upload_t *next = NULL;
    DL_FOREACH_SAFE (core->uploads, u, next) {
        if (u->op.core || u->lost || strcmp(u->sandbox, sandbox) != 0) {
            continue;
        }
        if (worth_telling(u)) {
            lose(u);
        } else {
            kg_upload_delete(u);
        }
    }
}

bool kg_upload_recover(kg_sandbox_t *sandbox, const char *id, const char *body)
{
    const kg_upload_opts_t none = {.path = "", .length = -1};
    kg_upload_t *u = room_to_tell(sandbox->core) ? upload_alloc(sandbox, &none) : NULL;
    if (!u) {
        return false;
    }
    (void)kg_format(u->info.id, sizeof(u->info.id), "%s", id);
    json_t *memo = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
    const json_t *length = json_object_get(memo, "length");
    u->opening = false;
    u->info.done = json_is_integer(length);
    u->lost = !u->info.done;
    u->info.length = u->info.done ? json_integer_value(length) : -1;
    u->info.offset = u->info.done ? (uint64_t)u->info.length : 0;
    json_decref(memo);
    return true;
}

void kg_uploads_destroy(kg_core_t *core)
{
    while (core->uploads) {
        kg_upload_t *u = core->uploads;
        kg_sandbox_t *sandbox = NULL;
        HASH_FIND_STR(core->sandboxes, u->sandbox, sandbox);
        if (sandbox && sandbox->sbx) {
            kg_sbx_forget(sandbox->sbx, u);
        }
        upload_free(u);
    }
}
