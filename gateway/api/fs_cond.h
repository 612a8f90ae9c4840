/* Conditions on what a request about a file finds there (RFC 9110, 13): If-Match, If-None-Match,
 * If-Unmodified-Since. */
#ifndef KG_API_FS_COND_H
#define KG_API_FS_COND_H

#include "gateway/api/call.h"
#include "gateway/context/files.h"

#define KG_FS_ETAG_MAX 64
/* The tag of one state of a file; weak ones begin with W/. */
void kg_fs_etag(uint64_t ino, uint64_t size, int64_t mtime_ns, bool weak, char ret[KG_FS_ETAG_MAX]);
/* Whether the request sets any. */
bool kg_fs_cond_any(const kg_call_t *call);
/* A kg_file_check_fn, whose user is the call. precondition_failed. */
int kg_fs_cond_check(void *user, const kg_fs_stat_t *stat, kg_err_t *err);
/* The body is the whole file: invalid_request for one that says it is a part. */
int kg_fs_cond_whole(const kg_call_t *call, kg_err_t *err);

#endif
