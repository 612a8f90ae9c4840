/* What the handlers of files share: fs.c, fs_read.c, tus.c. */
#ifndef KG_API_FS_H
#define KG_API_FS_H

#include "gateway/api/call.h"
#include "gateway/base/id.h"
#include "gateway/context/files.h"

/* What a call on files holds until its answer; freed with the call. */
typedef struct kg_fs_work {
    kg_call_t *call;
    char sandbox[KG_ID_MAX];
    kg_buf_t path; /* as it was asked for, NUL-terminated */
    kg_buf_t to;
    kg_buf_t data;
    bool data_taken;
    kg_file_write_t *write;
    kg_upload_t *upload;
    kg_source_t *source;
    uint64_t offset;
    uint64_t limit;
    uint64_t size;
} kg_fs_work_t;

/* NULL: the call has failed (memory). */
kg_fs_work_t *kg_fs_work(kg_call_t *call);
/* The bytes of a path from field NAME or NAME_base64; standard NULL: one of them is needed.
 * invalid_request. */
int kg_fs_path_arg(
    const kg_call_t *call, const char *name, const char *standard, kg_buf_t *out, kg_err_t *err);
/* Which bits a mode may have: writing takes the others from a file, and mkdir leaves them out. */
#define KG_FS_MODE_FILE UINT32_C(0777)
#define KG_FS_MODE_DIR UINT32_C(01777)
/* Octal text with the bits of most alone; UINT32_MAX when absent. invalid_request. */
int kg_fs_mode_arg(
    const char *text, const char *pointer, uint32_t most, uint32_t *ret_mode, kg_err_t *err);
/* "/v1/sandboxes/ID/fs/PLACE?path=…" */
int kg_fs_location(const kg_fs_work_t *work, const char *place, kg_buf_t *out);
/* Fails the call when rc < 0. */
void kg_fs_fail_if(kg_call_t *call, int rc, const kg_err_t *err);
/* Fails the call for what became of the path, which stood in the field at pointer ("/path" for
 * path_base64 too): the error gets that pointer when it is the path's fault and names none yet. */
void kg_fs_fail(kg_call_t *call, const char *pointer, const kg_err_t *err);

#endif
