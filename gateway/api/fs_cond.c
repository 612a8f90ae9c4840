/* gateway/api: conditions on what a request about a file finds there. */
#include "gateway/api/fs_cond.h"

#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/fs_parse.h"
#include "gateway/base/clock.h"

void kg_fs_etag(uint64_t ino, uint64_t size, int64_t mtime_ns, bool weak, char ret[KG_FS_ETAG_MAX])
{
    (void)snprintf(ret, KG_FS_ETAG_MAX, "%s\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"",
                   weak ? "W/" : "", ino, size, (uint64_t)mtime_ns);
}

bool kg_fs_cond_any(const kg_call_t *call)
{
    return kg_call_string(call, "if_match") || kg_call_string(call, "if_none_match") ||
           kg_call_string(call, "if_unmodified_since");
}

static int failed(kg_err_t *err, const char *field, const char *what)
{
    int rc = kg_err_set(err, KG_ERR_PRECONDITION_FAILED, "%s", what);
    kg_err_pointer(err, "/%s", field);
    return rc;
}

/* What is no regular file has no tag, for a GET of it has none. */
int kg_fs_cond_check(void *user, const kg_fs_stat_t *stat, kg_err_t *err)
{
    const kg_call_t *call = user;
    const char *match = kg_call_string(call, "if_match");
    const char *none_match = kg_call_string(call, "if_none_match");
    const char *since = kg_call_string(call, "if_unmodified_since");
    char etag[KG_FS_ETAG_MAX] = "";
    int64_t asked;
    if (stat && stat->type == KG_FS_FILE) {
        kg_fs_etag(stat->ino, stat->size, stat->mtime_ns, false, etag);
    }
    if (match && !(stat && kg_etag_listed_strong(match, etag))) {
        int rc = failed(err, "if_match",
                        stat ? "The file is in another state than If-Match names."
                             : "There is no file, and If-Match asks for one.");
        kg_err_hint(err, "Weak tags match nothing here: ask for the tag again when the file is "
                         "older than a second.");
        return rc;
    }
    if (!match && since && stat && kg_http_date_parse(since, &asked) == 0 &&
        stat->mtime_ns / (int64_t)KG_NS_PER_S > asked) {
        return failed(err, "if_unmodified_since", "The file was changed since that date.");
    }
    if (none_match && stat && kg_etag_listed(none_match, etag)) {
        return failed(err, "if_none_match",
                      "The file is there, in a state that If-None-Match names.");
    }
    return 0;
}

int kg_fs_cond_whole(const kg_call_t *call, kg_err_t *err)
{
    if (!kg_call_string(call, "content_range")) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                        "A PUT brings the whole file: Content-Range is not taken.");
    kg_err_pointer(err, "/content_range");
    kg_err_hint(err, "To send a file in parts, use an upload: POST .../fs/uploads.");
    return rc;
}
