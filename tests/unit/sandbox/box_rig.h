/* A sandbox for each test of what is in one. */
#ifndef KG_TEST_SANDBOX_BOX_RIG_H
#define KG_TEST_SANDBOX_BOX_RIG_H

#include "tests/unit/sandbox/files_rig.h"

#define ID_A "sbx-tests000000000000001"
#define OK KG_ERR_NONE
#define RW (KG_FS_OPEN_READ | KG_FS_OPEN_WRITE)

typedef struct kg_box {
    kg_harness_t h;
    kg_sbx_t *sbx;
    char outside[128]; /* a file that everybody may read and write, outside of the sandbox */
} kg_box_t;

int setup(void **state);           /* of isolation none */
int setup_namespace(void **state); /* root only */
int teardown(void **state);
void sh(kg_box_t *b, const char *script);
void expect_text(int fd, const char *want); /* takes fd */
void write_file(kg_box_t *b, const char *path, const char *text);
void expect_file(kg_box_t *b, const char *path, const char *want);
kg_err_code_t open_code(kg_box_t *b, const char *path, uint32_t flags);
uid_t inner_uid(const kg_box_t *b); /* of the user, as the sandbox sees itself */

#endif
