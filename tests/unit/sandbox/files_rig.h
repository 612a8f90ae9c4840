/* Calls of files.h that wait for their answer, on a harness's sandbox. */
#ifndef KG_TEST_SANDBOX_FILES_RIG_H
#define KG_TEST_SANDBOX_FILES_RIG_H

#include "gateway/sandbox/files.h"
#include "tests/unit/sandbox/harness.h"

#define FILES_ROWS_MAX 12000

typedef struct kg_files_row {
    char name[256];
    char target[256];
    kg_fs_stat_t stat;
} kg_files_row_t;

typedef struct kg_files_answer {
    kg_harness_t *h;
    bool come;
    kg_err_t err; /* code KG_ERR_NONE: fine */
    int fd;
    int wd;
    bool created;
    char name[KG_FS_PATH_MAX];
    kg_files_row_t row; /* of stat */
    kg_files_row_t *rows;
    size_t count;
    uint64_t next;
} kg_files_answer_t;

kg_files_answer_t
files_open(kg_harness_t *h, kg_sbx_t *sbx, const char *path, uint32_t flags, uint32_t mode);
kg_files_answer_t files_put(kg_harness_t *h, kg_sbx_t *sbx, const char *name, const char *path);
kg_files_answer_t files_stat(kg_harness_t *h, kg_sbx_t *sbx, const char *path, bool follow);
/* All of it; rows are malloc'd, calls counts the requests. */
kg_files_answer_t files_list(kg_harness_t *h, kg_sbx_t *sbx, const char *path, unsigned *ret_calls);
kg_files_answer_t
files_mkdir(kg_harness_t *h, kg_sbx_t *sbx, const char *path, uint32_t mode, bool parents);
kg_files_answer_t
files_move(kg_harness_t *h, kg_sbx_t *sbx, const char *from, const char *to, bool overwrite);
kg_files_answer_t files_remove(kg_harness_t *h, kg_sbx_t *sbx, const char *path, bool recursive);
kg_files_answer_t files_watch(kg_harness_t *h, kg_sbx_t *sbx, const char *path, int watch_fd);
kg_files_answer_t files_port(kg_harness_t *h, kg_sbx_t *sbx, uint16_t port);

#endif
