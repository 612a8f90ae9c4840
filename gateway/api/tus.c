/* gateway/api: resumable uploads by tus 1.0: core, creation, creation-defer-length, termination. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/api/fs.h"
#include "gateway/api/fs_parse.h"
#include "gateway/api/handlers.h"
#include "gateway/api/limits.h"
#include "gateway/base/str.h"

static int refuse(kg_err_t *err, const char *pointer, const char *what)
{
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s", what);
    kg_err_pointer(err, "%s", pointer);
    return rc;
}

static int check_version(const kg_call_t *call, bool needed, kg_err_t *err)
{
    const char *version = kg_call_string(call, "tus_resumable");
    if (version ? strcmp(version, "1.0.0") == 0 : !needed) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_PRECONDITION_FAILED, "This is tus 1.0.0.");
    kg_err_pointer(err, "/tus_resumable");
    kg_err_hint(err, "Send Tus-Resumable: 1.0.0.");
    return rc;
}

static bool is_octets(const char *type)
{
    static const char want[] = "application/offset+octet-stream";
    size_t n = sizeof want - 1;
    return type && strncasecmp(type, want, n) == 0 &&
           (type[n] == '\0' || type[n] == ';' || type[n] == ' ');
}

/* --- Creation ------------------------------------------------------------------------------- */

static int length_arg(const kg_call_t *call, int64_t *ret_length, kg_err_t *err)
{
    const char *deferred = kg_call_string(call, "upload_defer_length");
    *ret_length = kg_call_int(call, "upload_length", -1);
    if (deferred && strcmp(deferred, "1") != 0) {
        return refuse(err, "/upload_defer_length", "Upload-Defer-Length is 1 or not there.");
    }
    if ((*ret_length >= 0) == (deferred != NULL)) {
        return refuse(err, "/upload_length",
                      "One of Upload-Length and Upload-Defer-Length: 1 is needed.");
    }
    return 0;
}

static int metadata_args(const kg_call_t *call, kg_fs_work_t *work, uint32_t *mode, kg_err_t *err)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    const char *metadata = kg_call_string(call, "upload_metadata");
    int rc = kg_tus_metadata_check(metadata ? metadata : "", err);
    if (rc) {
        return rc;
    }
    if (!metadata || !kg_tus_metadata_get(metadata, "path", &work->path) || !work->path.len ||
        memchr(work->path.data, '\0', work->path.len)) {
        return refuse(err, "/upload_metadata",
                      "Upload-Metadata needs path: where the file is to be.");
    }
    bool has_mode = kg_tus_metadata_get(metadata, "mode", &text);
    return kg_fs_mode_arg(has_mode ? (text.data ? text.data : "") : NULL, "/upload_metadata",
                          KG_FS_MODE_FILE, mode, err);
}

static void created(void *user, kg_upload_t *upload, const kg_err_t *err)
{
    kg_call_t *call = user;
    const kg_fs_work_t *work = call->work;
    if (err) {
        kg_fs_fail(call, "/upload_metadata", err);
        return;
    }
    char location[160];
    (void)kg_format(location, sizeof location, "/v1/sandboxes/%s/fs/uploads/%s", work->sandbox,
                    kg_upload_info(upload)->id);
    kg_call_text(call, &(kg_answer_t){.status = 201, .location = location});
}

void kg_do_fs_upload(kg_call_t *call)
{
    kg_fs_work_t *work = kg_fs_work(call);
    if (!work) {
        return;
    }
    kg_err_t err = {0};
    kg_upload_opts_t opts = {.metadata = kg_call_string(call, "upload_metadata")};
    int rc = check_version(call, true, &err);
    rc = rc ? rc : length_arg(call, &opts.length, &err);
    rc = rc ? rc : metadata_args(call, work, &opts.mode, &err);
    if (!rc && kg_call_body_length(call) > 0) {
        rc = refuse(&err, "", "The bytes go by PATCH: creation-with-upload is not spoken here.");
    }
    opts.path = work->path.data;
    rc = rc ? rc : kg_upload_new(call->sandbox, &opts, created, call, &err);
    kg_fs_fail_if(call, rc, &err);
}

/* --- State ---------------------------------------------------------------------------------- */

static void answer_state(kg_call_t *call, const kg_upload_info_t *info, int status)
{
    char offset[24];
    char length[24];
    kg_answer_header_t headers[3] = {{"Upload-Offset", offset}, {"Upload-Length", length}};
    size_t count = 2;
    (void)snprintf(offset, sizeof offset, "%" PRIu64, info->offset);
    (void)snprintf(length, sizeof length, "%" PRId64, info->length < 0 ? 1 : info->length);
    if (info->length < 0) {
        headers[1].name = "Upload-Defer-Length";
    }
    if (info->metadata[0]) {
        headers[count++] = (kg_answer_header_t){"Upload-Metadata", info->metadata};
    }
    KG_AUTO_BUF kg_buf_t body = {0};
    int rc = status == 204
                 ? 0
                 : kg_buf_printf(&body, "{\"id\":\"%s\",\"offset\":%s,\"length\":%s,\"done\":%s}",
                                 info->id, offset, info->length < 0 ? "null" : length,
                                 info->done ? "true" : "false");
    if (rc) {
        kg_call_fail_rc(call, rc, &(kg_err_t){0});
        return;
    }
    kg_call_text(call, &(kg_answer_t){.status = status,
                                      .body = kg_buf_slice(&body),
                                      .headers = headers,
                                      .header_count = count});
}

/* NULL: the call has failed. */
static kg_upload_t *find(kg_call_t *call, bool version_needed)
{
    kg_err_t err = {0};
    int rc = check_version(call, version_needed, &err);
    kg_upload_t *upload =
        rc ? NULL : kg_upload_find(call->sandbox, kg_call_string(call, "upload"), &err);
    if (!upload) {
        kg_call_fail(call, &err);
    }
    return upload;
}

void kg_do_fs_upload_state(kg_call_t *call)
{
    const kg_upload_t *upload = find(call, false);
    if (upload) {
        answer_state(call, kg_upload_info(upload), 200);
    }
}

void kg_do_fs_upload_cancel(kg_call_t *call)
{
    kg_upload_t *upload = find(call, true);
    if (upload) {
        kg_upload_delete(upload);
        kg_call_none(call);
    }
}

/* --- Pieces --------------------------------------------------------------------------------- */

static void append_more(void *user)
{
    kg_fs_work_t *work = user;
    if (work->upload) {
        kg_upload_more(work->upload);
    }
}

static void appended(void *user, kg_upload_t *upload, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (err) {
        kg_call_fail(call, err);
    } else {
        answer_state(call, kg_upload_info(upload), 204);
    }
}

void kg_do_fs_upload_append(kg_call_t *call)
{
    kg_upload_t *upload = find(call, true);
    kg_fs_work_t *work = upload ? kg_fs_work(call) : NULL;
    if (!work) {
        return;
    }
    kg_err_t err = {0};
    kg_upload_piece_t piece = {.length = kg_call_int(call, "upload_length", -1)};
    int64_t offset = kg_call_int(call, "upload_offset", -1);
    int rc = 0;
    if (!is_octets(kg_call_string(call, "content_type"))) {
        rc = kg_err_set(&err, KG_ERR_UNSUPPORTED_MEDIA_TYPE,
                        "Pieces of an upload are application/offset+octet-stream.");
    } else if (offset < 0) {
        rc = refuse(&err, "/upload_offset", "Upload-Offset is missing.");
    }
    kg_call_body(call, append_more, work, &piece.intake);
    piece.offset = (uint64_t)offset;
    piece.bytes = kg_call_body_length(call);
    rc = rc ? rc : kg_upload_append(upload, &piece, appended, call, &err);
    if (rc == 0) {
        work->upload = upload;
    }
    kg_fs_fail_if(call, rc, &err);
}
