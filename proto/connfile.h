/* Jupyter connection files (JEP 106 schema): written 0600 by tmp + rename below a directory
 * descriptor, read with checks. */
#ifndef KG_PROTO_CONNFILE_H
#define KG_PROTO_CONNFILE_H

#include "gateway/base/buf.h"
#include "gateway/base/err.h"

typedef struct kg_connfile {
    char transport[8]; /* "ipc" or "tcp" */
    char ip[108];      /* ipc: path stem, sockets are IP-PORT */
    unsigned shell_port, iopub_port, stdin_port, control_port, hb_port;
    char key[257];
    char signature_scheme[32]; /* "hmac-sha256" */
    char kernel_name[64];
} kg_connfile_t;

int kg_connfile_format(const kg_connfile_t *cf, kg_buf_t *out);
int kg_connfile_parse(kg_slice_t text, kg_connfile_t *ret_cf, kg_err_t *err);
/* name is one path component. 0600; not fsync'ed. */
int kg_connfile_write(int dirfd, const char *name, const kg_connfile_t *cf, kg_err_t *err);
int kg_connfile_read(int dirfd, const char *name, kg_connfile_t *ret_cf, kg_err_t *err);

#endif
