/* gateway/api: reading a file: over HTTP its bytes, or a range of them; over a WebSocket a bounded
 * part in base64. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/api.h"
#include "gateway/api/fs.h"
#include "gateway/api/fs_cond.h"
#include "gateway/api/fs_parse.h"
#include "gateway/api/handlers.h"
#include "gateway/base/clock.h"
#include "gateway/base/str.h"

/* --- Over HTTP ------------------------------------------------------------------------------ */

typedef struct head {
    char etag[KG_FS_ETAG_MAX];
    char date[KG_HTTP_DATE_MAX];
    char range[80];
    kg_answer_header_t list[5];
    size_t count;
} head_t;

static void add(head_t *head, const char *name, const char *value)
{
    if (value[0]) {
        head->list[head->count++] = (kg_answer_header_t){name, value};
    }
}

/* A file that was changed just now may change again within the same tick of the clock: its tag is
 * weak, and ranges are not joined by it. */
static void describe(const kg_file_info_t *info, head_t *head)
{
    int64_t seconds = info->mtime_ns / (int64_t)KG_NS_PER_S;
    int64_t age = (int64_t)kg_wall_ns() - info->mtime_ns;
    bool weak = age < (int64_t)KG_NS_PER_S || !info->sized;
    kg_fs_etag(info->ino, info->size, info->mtime_ns, weak, head->etag);
    kg_http_date_format(seconds, head->date);
    add(head, "ETag", head->etag);
    add(head, "Last-Modified", head->date);
    add(head, "Accept-Ranges", info->sized ? "bytes" : "none");
}

/* If-Range holds when it names exactly this state. A date is exact enough when the file is older
 * than its second. */
static bool same_state(const char *if_range, const head_t *head)
{
    if (if_range[0] == '"') {
        return strcmp(if_range, head->etag) == 0;
    }
    int64_t asked;
    return strncmp(head->etag, "W/", 2) != 0 && kg_http_date_parse(if_range, &asked) == 0 &&
           strcmp(if_range, head->date) == 0;
}

/* An error like others, but with a header. */
static void refuse_range(kg_call_t *call, head_t *head, uint64_t size)
{
    kg_err_t err = {0};
    kg_err_set(&err, KG_ERR_RANGE_NOT_SATISFIABLE, "The file has %" PRIu64 " bytes.", size);
    json_t *json =
        json_pack("{s:{s:s, s:s, s:s, s:s}}", "error", "code", kg_err_name(err.code), "message",
                  err.message, "hint", kg_err_hint_of(&err), "pointer", "/range");
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!body) {
        kg_call_fail_rc(call, -ENOMEM, &(kg_err_t){0});
        return;
    }
    (void)snprintf(head->range, sizeof head->range, "bytes */%" PRIu64, size);
    add(head, "Content-Range", head->range);
    kg_api_count_error(call->api, err.code);
    kg_call_text(call, &(kg_answer_t){.status = kg_err_status(err.code),
                                      .body = kg_slice_cstr(body),
                                      .headers = head->list,
                                      .header_count = head->count});
    free(body);
}

static void give_file(kg_call_t *call, kg_file_t *file)
{
    const kg_file_info_t *info = kg_file_info(file);
    const char *none_match = kg_call_string(call, "if_none_match");
    const char *range = kg_call_string(call, "range");
    const char *if_range = kg_call_string(call, "if_range");
    head_t head = {0};
    describe(info, &head);
    if (none_match && kg_etag_listed(none_match, head.etag)) {
        kg_file_close(&file);
        kg_call_text(
            call, &(kg_answer_t){.status = 304, .headers = head.list, .header_count = head.count});
        return;
    }
    uint64_t first = 0;
    uint64_t length = info->size;
    uint64_t size = info->size;
    bool asked = range && info->sized && (!if_range || same_state(if_range, &head));
    int part = asked ? kg_range_parse(range, size, &first, &length) : 0;
    if (part < 0) {
        kg_file_close(&file);
        refuse_range(call, &head, size);
        return;
    }
    if (part > 0) {
        (void)snprintf(head.range, sizeof head.range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                       first, first + length - 1, size);
        add(&head, "Content-Range", head.range);
    }
    kg_give_t give = {.length = info->sized ? (int64_t)length : -1,
                      .head = {.status = part > 0 ? 206 : 200,
                               .type = "application/octet-stream",
                               .headers = head.list,
                               .header_count = head.count}};
    give.source = kg_file_source(&file, first, info->sized ? length : UINT64_MAX);
    kg_call_give(call, &give);
}

/* --- Over a WebSocket ----------------------------------------------------------------------- */

static void answer_part(kg_call_t *call, kg_fs_work_t *work)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    bool cut = work->data.len > work->limit;
    size_t len = cut ? (size_t)work->limit : work->data.len;
    bool eof = !cut && work->offset + len >= work->size;
    int rc = kg_buf_printf(&text,
                           "{\"encoding\":\"base64\",\"offset\":%" PRIu64 ",\"size\":%" PRIu64
                           ",\"eof\":%s,\"data\":\"",
                           work->offset, work->size, eof ? "true" : "false");
    rc = rc ? rc : kg_base64_encode(work->data.data ? work->data.data : "", len, &text);
    rc = rc ? rc : kg_buf_append_cstr(&text, "\"}");
    if (rc) {
        kg_call_fail_rc(call, rc, &(kg_err_t){0});
    } else {
        kg_call_text(call, &(kg_answer_t){.status = 200, .body = kg_buf_slice(&text)});
    }
}

static void collect(void *user)
{
    kg_call_t *call = user;
    kg_fs_work_t *work = call->work;
    kg_source_state_t state = KG_SOURCE_MORE;
    while (state == KG_SOURCE_MORE && work->data.len <= work->limit) {
        state = work->source->fill(work->source, &work->data, 65536);
    }
    if (state == KG_SOURCE_WAIT) {
        return;
    }
    kg_source_close(&work->source);
    if (state == KG_SOURCE_FAILED) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_CONFLICT, "The file changed while it was read.");
        kg_call_fail(call, &err);
    } else {
        answer_part(call, work);
    }
}

static void read_part(kg_call_t *call, kg_file_t *file)
{
    kg_fs_work_t *work = call->work;
    const kg_file_info_t info = *kg_file_info(file);
    uint64_t rest = info.size > work->offset ? info.size - work->offset : 0;
    uint64_t length = rest < work->limit ? rest : work->limit;
    work->size = info.size;
    work->source = kg_file_source(&file, work->offset, info.sized ? length : UINT64_MAX);
    work->source->wake = collect;
    work->source->wake_user = call;
    collect(call);
}

static void opened(void *user, kg_file_t *file_take, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (err) {
        kg_fs_fail(call, "/path", err);
    } else if (kg_call_raw(call)) {
        give_file(call, file_take);
    } else {
        read_part(call, file_take);
    }
}

void kg_do_fs_read(kg_call_t *call)
{
    kg_fs_work_t *work = kg_fs_work(call);
    if (!work) {
        return;
    }
    kg_err_t err = {0};
    work->offset = (uint64_t)kg_call_int(call, "offset", 0);
    work->limit = (uint64_t)kg_call_int(call, "length", 1 << 20);
    int rc = kg_fs_path_arg(call, "path", NULL, &work->path, &err);
    rc = rc ? rc : kg_files_open(call->sandbox, work->path.data, opened, call, &err);
    kg_fs_fail_if(call, rc, &err);
}
