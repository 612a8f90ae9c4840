/* gateway/api: files of a sandbox: write, remove, list, make, move, stat, watch. */
#include "gateway/api/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/fs_cond.h"
#include "gateway/api/fs_parse.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"
#include "gateway/base/utf8.h"

/* --- What they share ------------------------------------------------------------------------ */

static void work_free(void *user)
{
    kg_fs_work_t *work = user;
    kg_source_close(&work->source);
    kg_buf_fini(&work->path);
    kg_buf_fini(&work->to);
    kg_buf_fini(&work->data);
    free(work);
}

kg_fs_work_t *kg_fs_work(kg_call_t *call)
{
    kg_fs_work_t *work = calloc(1, sizeof *work);
    if (!work) {
        kg_err_t err = {0};
        kg_call_fail_rc(call, -ENOMEM, &err);
        return NULL;
    }
    work->call = call;
    (void)kg_format(work->sandbox, sizeof work->sandbox, "%s", kg_sandbox_id(call->sandbox));
    call->work = work;
    call->work_free = work_free;
    return work;
}

void kg_fs_fail_if(kg_call_t *call, int rc, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    }
}

void kg_fs_fail(kg_call_t *call, const char *pointer, const kg_err_t *err)
{
    kg_err_t own = *err;
    bool of_path = own.code == KG_ERR_NOT_FOUND || own.code == KG_ERR_FORBIDDEN ||
                   own.code == KG_ERR_CONFLICT || own.code == KG_ERR_INVALID_REQUEST;
    if (of_path && !own.pointer[0]) {
        kg_err_pointer(&own, "%s", pointer);
    }
    kg_call_fail(call, &own);
}

static int refuse(kg_err_t *err, const char *name, const char *what)
{
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "'%s' %s.", name, what);
    kg_err_pointer(err, "/%s", name);
    return rc;
}

int kg_fs_path_arg(
    const kg_call_t *call, const char *name, const char *standard, kg_buf_t *out, kg_err_t *err)
{
    char encoded[32];
    (void)kg_format(encoded, sizeof encoded, "%s_base64", name);
    const char *text = kg_call_string(call, name);
    const char *base64 = kg_call_string(call, encoded);
    int rc;
    if (text && base64) {
        return refuse(err, encoded, "and the path itself are both there");
    }
    if (!base64) {
        text = text ? text : standard;
        rc = text ? kg_buf_append_cstr(out, text) : -EINVAL;
        return rc == -EINVAL ? refuse(err, name, "is missing") : rc;
    }
    rc = kg_base64_decode(base64, strlen(base64), out);
    if (rc == -EINVAL) {
        return refuse(err, encoded, "is not base64");
    }
    if (rc == 0 && (out->len == 0 || memchr(out->data, '\0', out->len))) {
        return refuse(err, encoded, "is empty or holds a NUL");
    }
    return rc;
}

int kg_fs_mode_arg(
    const char *text, const char *pointer, uint32_t most, uint32_t *ret_mode, kg_err_t *err)
{
    uint32_t mode = UINT32_MAX;
    int rc = text ? kg_mode_parse(text, &mode) : 0;
    if (rc) {
        rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "A mode is up to four octal digits.");
    } else if (text && (mode & ~most)) {
        rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "A mode here is at most %04o: %s.", most,
                        most == KG_FS_MODE_FILE ? "no set-user-ID, set-group-ID and sticky bits"
                                                : "no set-user-ID and set-group-ID bits");
    } else {
        *ret_mode = mode;
        return 0;
    }
    kg_err_pointer(err, "%s", pointer);
    kg_err_hint(err, "For example 0644.");
    return rc;
}

static int put_encoded(kg_buf_t *out, const char *bytes)
{
    int rc = 0;
    for (const char *p = bytes; rc == 0 && *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~/", c);
        rc = plain ? kg_buf_append_char(out, (char)c) : kg_buf_printf(out, "%%%02X", c);
    }
    return rc;
}

int kg_fs_location(const kg_fs_work_t *work, const char *place, kg_buf_t *out)
{
    const char *path = work->path.data;
    bool text = kg_utf8_valid(path, work->path.len);
    int rc = kg_buf_printf(out, "/v1/sandboxes/%s/fs/%s?path%s=", work->sandbox, place,
                           text ? "" : "_base64");
    if (text) {
        return rc ? rc : put_encoded(out, path);
    }
    KG_AUTO_BUF kg_buf_t encoded = {0};
    rc = rc ? rc : kg_base64_encode(path, work->path.len, &encoded);
    return rc ? rc : put_encoded(out, encoded.data);
}

static void answered(void *user, json_t *json_take, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (err) {
        kg_fs_fail(call, "/path", err);
    } else {
        kg_call_json_take(call, 200, json_take);
    }
}

/* --- Write ---------------------------------------------------------------------------------- */

static void write_more(void *user)
{
    kg_fs_work_t *work = user;
    if (work->write) {
        kg_file_write_more(work->write);
    }
}

static void written(void *user, bool created, uint64_t size, const kg_err_t *err)
{
    kg_call_t *call = user;
    kg_fs_work_t *work = call->work;
    KG_AUTO_BUF kg_buf_t location = {0};
    work->write = NULL;
    if (err) {
        kg_fs_fail(call, "/path", err);
    } else if (!kg_call_raw(call)) {
        kg_call_json_take(call, 200,
                          json_pack("{s:b, s:I}", "created", created, "size", (json_int_t)size));
    } else if (!created) {
        kg_call_none(call);
    } else if (kg_fs_location(work, "file", &location) < 0) {
        kg_call_fail_rc(call, -ENOMEM, &(kg_err_t){0});
    } else {
        kg_call_text(call, &(kg_answer_t){.status = 201, .location = location.data});
    }
}

/* A frame's data is all there at once. */
static void take_data(void *user, kg_buf_t *out, bool *ret_end)
{
    kg_fs_work_t *work = user;
    kg_buf_fini(out);
    *out = work->data;
    work->data = (kg_buf_t){0};
    *ret_end = true;
}

static int frame_data(const kg_call_t *call, kg_fs_work_t *work, kg_err_t *err)
{
    const json_t *data = kg_call_json(call, "data");
    const char *encoding = kg_call_string(call, "encoding");
    if (!data) {
        return refuse(err, "data", "is missing");
    }
    const char *text = json_string_value(data);
    size_t len = json_string_length(data);
    if (encoding && strcmp(encoding, "utf8") == 0) {
        return kg_buf_append(&work->data, text, len);
    }
    int rc = kg_base64_decode(text, len, &work->data);
    return rc == -EINVAL ? refuse(err, "data", "is not base64") : rc;
}

void kg_do_fs_write(kg_call_t *call)
{
    kg_fs_work_t *work = kg_fs_work(call);
    if (!work) {
        return;
    }
    kg_err_t err = {0};
    kg_file_write_opts_t opts = {.intake = {take_data, work}};
    int rc = kg_fs_path_arg(call, "path", NULL, &work->path, &err);
    rc = rc ? rc
            : kg_fs_mode_arg(kg_call_string(call, "mode"), "/mode", KG_FS_MODE_FILE, &opts.mode,
                             &err);
    rc = rc ? rc : kg_fs_cond_whole(call, &err);
    opts.path = work->path.data;
    opts.check = kg_fs_cond_any(call) ? kg_fs_cond_check : NULL;
    if (kg_call_raw(call)) {
        kg_call_body(call, write_more, work, &opts.intake);
    } else {
        rc = rc ? rc : frame_data(call, work, &err);
    }
    rc = rc ? rc : kg_files_write(call->sandbox, &opts, written, call, &work->write, &err);
    kg_fs_fail_if(call, rc, &err);
}

/* --- The small ones ------------------------------------------------------------------------- */

static void removed(void *user, const kg_err_t *err)
{
    if (err) {
        kg_fs_fail(user, "/path", err);
    } else {
        kg_call_none(user);
    }
}

void kg_do_fs_remove(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t path = {0};
    kg_err_t err = {0};
    int rc = kg_fs_path_arg(call, "path", NULL, &path, &err);
    rc = rc ? rc
            : kg_files_remove(call->sandbox, path.data, kg_call_bool(call, "recursive", false),
                              kg_fs_cond_any(call) ? kg_fs_cond_check : NULL, removed, call, &err);
    kg_fs_fail_if(call, rc, &err);
}

void kg_do_fs_stat(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t path = {0};
    kg_err_t err = {0};
    int rc = kg_fs_path_arg(call, "path", NULL, &path, &err);
    rc = rc ? rc
            : kg_files_stat(call->sandbox, path.data, kg_call_bool(call, "follow", false), answered,
                            call, &err);
    kg_fs_fail_if(call, rc, &err);
}

void kg_do_fs_list(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t path = {0};
    KG_AUTO_BUF kg_buf_t after = {0};
    kg_err_t err = {0};
    const char *cursor = kg_call_string(call, "after");
    int rc = kg_fs_path_arg(call, "path", "/workspace", &path, &err);
    if (!rc && cursor) {
        rc = kg_base64_decode(cursor, strlen(cursor), &after);
        rc = rc == -EINVAL || (!rc && memchr(after.data, '\0', after.len))
                 ? refuse(&err, "after", "is not the next of an answer before")
                 : rc;
    }
    kg_files_list_t opts = {
        .path = path.data,
        .depth = (unsigned)kg_call_int(call, "depth", 1),
        .limit = (unsigned)kg_call_int(call, "limit", 1000),
        .after = cursor ? after.data : NULL,
    };
    rc = rc ? rc : kg_files_list(call->sandbox, &opts, answered, call, &err);
    kg_fs_fail_if(call, rc, &err);
}

static void made(void *user, json_t *json_take, const kg_err_t *err)
{
    kg_call_t *call = user;
    KG_AUTO_BUF kg_buf_t location = {0};
    if (err) {
        kg_fs_fail(call, "/path", err);
    } else if (kg_fs_location(call->work, "dir", &location) < 0) {
        json_decref(json_take);
        kg_call_fail_rc(call, -ENOMEM, &(kg_err_t){0});
    } else {
        kg_call_created_take(call, json_take, location.data);
    }
}

void kg_do_fs_mkdir(kg_call_t *call)
{
    kg_fs_work_t *work = kg_fs_work(call);
    if (!work) {
        return;
    }
    kg_err_t err = {0};
    uint32_t mode = 0;
    int rc = kg_fs_path_arg(call, "path", NULL, &work->path, &err);
    rc = rc ? rc
            : kg_fs_mode_arg(kg_call_string(call, "mode"), "/mode", KG_FS_MODE_DIR, &mode, &err);
    rc = rc ? rc
            : kg_files_mkdir(call->sandbox, work->path.data, mode == UINT32_MAX ? 0755 : mode,
                             kg_call_bool(call, "parents", true), made, call, &err);
    kg_fs_fail_if(call, rc, &err);
}

void kg_do_fs_move(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t from = {0};
    KG_AUTO_BUF kg_buf_t to = {0};
    kg_err_t err = {0};
    int rc = kg_fs_path_arg(call, "from", NULL, &from, &err);
    rc = rc ? rc : kg_fs_path_arg(call, "to", NULL, &to, &err);
    rc = rc ? rc
            : kg_files_move(call->sandbox, from.data, to.data,
                            kg_call_bool(call, "overwrite", false), answered, call, &err);
    kg_fs_fail_if(call, rc, &err);
}

static void watching(void *user, kg_source_t *source_take, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (err) {
        kg_fs_fail(call, "/path", err);
        return;
    }
    kg_call_give(
        call,
        &(kg_give_t){.source = source_take, .events = true, .length = -1, .head = {.status = 200}});
}

void kg_do_fs_watch(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t path = {0};
    kg_err_t err = {0};
    int rc = kg_fs_path_arg(call, "path", "/workspace", &path, &err);
    rc = rc ? rc
            : kg_files_watch(call->sandbox, path.data, kg_call_bool(call, "recursive", false),
                             watching, call, &err);
    kg_fs_fail_if(call, rc, &err);
}
