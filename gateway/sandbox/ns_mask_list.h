/* What a sandbox sees of its lower layer: the list. */
#ifndef KG_SANDBOX_NS_MASK_LIST_H
#define KG_SANDBOX_NS_MASK_LIST_H

#include <stddef.h>
#include <sys/types.h>

typedef enum kg_mask_op {
    KG_MASK_SHOW, /* as it is in the lower layer: directory, link, or a file that others may read.
                     Absent there: nothing. A `*` at the end of the path: all that begin so */
    KG_MASK_DIR,  /* an empty directory, whatever the lower layer has */
    KG_MASK_LINK, /* text: the target */
    KG_MASK_TEXT, /* text: the content */
    KG_MASK_NODE, /* a character device */
} kg_mask_op_t;

typedef struct kg_mask_row {
    kg_mask_op_t op;
    const char *path; /* no leading slash; parents are made, 0755 */
    mode_t mode;      /* 0 = the usual: 0755, files 0644 */
    uid_t uid;
    const char *text;
    unsigned major, minor;
} kg_mask_row_t;

/* Of the host's root. */
const kg_mask_row_t *kg_mask_host_rows(size_t *ret_count);
/* Of every root, after the others. */
const kg_mask_row_t *kg_mask_common_rows(size_t *ret_count);

#endif
