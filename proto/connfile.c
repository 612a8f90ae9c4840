/* proto: connection files. They hold the signing key, so: 0600, never through a symbolic link,
 * written beside and renamed, and a file that others could read or write is refused. */
#include "proto/connfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "gateway/base/str.h"
#include "proto/json_scan.h"

enum {
    TEXT_MAX = 64 * 1024,
    NAME_LEN_MAX = 200,
    PORT_MAX = 65535,
    FIELD_DEPTH_MAX = 16,
};

#define SCHEME "hmac-sha256"

static int put_member(kg_buf_t *out, const char *name, const char *text)
{
    int rc = kg_buf_printf(out, ",\"%s\":", name);
    return rc < 0 ? rc : kg_json_quote_cstr(out, text);
}

int kg_connfile_format(const kg_connfile_t *cf, kg_buf_t *out)
{
    size_t before = out->len;
    int rc = kg_buf_printf(out,
                           "{\"shell_port\":%u,\"iopub_port\":%u,\"stdin_port\":%u,"
                           "\"control_port\":%u,\"hb_port\":%u",
                           cf->shell_port, cf->iopub_port, cf->stdin_port, cf->control_port,
                           cf->hb_port);
    rc = rc < 0 ? rc : put_member(out, "ip", cf->ip);
    rc = rc < 0 ? rc : put_member(out, "key", cf->key);
    rc = rc < 0 ? rc : put_member(out, "transport", cf->transport);
    rc = rc < 0 ? rc : put_member(out, "signature_scheme", cf->signature_scheme);
    rc = rc < 0 ? rc : put_member(out, "kernel_name", cf->kernel_name);
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, "}\n");
    if (rc < 0) {
        out->len = before;
    }
    return rc;
}

static int bad_field(kg_err_t *err, const char *name, const char *why)
{
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "connection file: %s %s", name, why);
    kg_err_pointer(err, "/%s", name);
    return rc;
}

static int take_string(kg_json_value_t object,
                       const char *name,
                       const char *missing,
                       char *ret,
                       size_t cap,
                       kg_err_t *err)
{
    kg_json_value_t value = kg_json_get(object, name);
    if (value.type == KG_JSON_ABSENT && missing) {
        return kg_format(ret, cap, "%s", missing);
    }
    if (value.type != KG_JSON_STRING) {
        return bad_field(err, name,
                         value.type == KG_JSON_ABSENT ? "is missing" : "is not a string");
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = kg_json_decode_string(&text, value);
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "connection file: out of memory");
    }
    if (text.len >= cap || memchr(text.data, '\0', text.len)) {
        rc = bad_field(err, name, text.len >= cap ? "is too long" : "holds U+0000");
    } else {
        memcpy(ret, text.data, text.len + 1);
    }
    sodium_memzero(text.data, text.len);
    return rc;
}

static int take_port(kg_json_value_t object, const char *name, unsigned *ret, kg_err_t *err)
{
    int64_t port;
    kg_json_value_t value = kg_json_get(object, name);
    if (kg_json_int(value, &port) < 0 || port < 1 || port > PORT_MAX) {
        return bad_field(err, name, "is not a port number (1 to 65535)");
    }
    *ret = (unsigned)port;
    return 0;
}

static int take_fields(kg_json_value_t top, kg_connfile_t *cf, kg_err_t *err)
{
    int rc = take_port(top, "shell_port", &cf->shell_port, err);
    rc = rc < 0 ? rc : take_port(top, "iopub_port", &cf->iopub_port, err);
    rc = rc < 0 ? rc : take_port(top, "stdin_port", &cf->stdin_port, err);
    rc = rc < 0 ? rc : take_port(top, "control_port", &cf->control_port, err);
    rc = rc < 0 ? rc : take_port(top, "hb_port", &cf->hb_port, err);
    rc = rc < 0 ? rc : take_string(top, "ip", NULL, cf->ip, sizeof cf->ip, err);
    rc = rc < 0 ? rc : take_string(top, "key", NULL, cf->key, sizeof cf->key, err);
    rc = rc < 0 ? rc
                : take_string(top, "transport", "tcp", cf->transport, sizeof cf->transport, err);
    rc = rc < 0 ? rc
                : take_string(top, "signature_scheme", SCHEME, cf->signature_scheme,
                              sizeof cf->signature_scheme, err);
    rc = rc < 0 ? rc
                : take_string(top, "kernel_name", "", cf->kernel_name, sizeof cf->kernel_name, err);
    if (rc < 0) {
        return rc;
    }
    if (strcmp(cf->transport, "tcp") != 0 && strcmp(cf->transport, "ipc") != 0) {
        return bad_field(err, "transport", "is neither tcp nor ipc");
    }
    if (strcmp(cf->signature_scheme, SCHEME) != 0) {
        return bad_field(err, "signature_scheme", "is not " SCHEME);
    }
    return cf->ip[0] ? 0 : bad_field(err, "ip", "is empty");
}

int kg_connfile_parse(kg_slice_t text, kg_connfile_t *ret_cf, kg_err_t *err)
{
    kg_json_value_t top;
    if (text.len > TEXT_MAX) {
        return kg_err_set(err, KG_ERR_TOO_LARGE, "connection file: over 64 KiB");
    }
    if (kg_json_check(text, FIELD_DEPTH_MAX, &top) < 0 || top.type != KG_JSON_OBJECT) {
        return kg_err_set(err, KG_ERR_INVALID_JSON, "connection file: not a JSON object");
    }
    kg_connfile_t cf = {0};
    int rc = take_fields(top, &cf, err);
    if (rc == 0) {
        *ret_cf = cf;
    }
    sodium_memzero(&cf, sizeof cf);
    return rc;
}

static bool name_ok(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= NAME_LEN_MAX && !strchr(name, '/') && name[0] != '.';
}

/* The system's reason; returns its -errno. */
static int io_failed(kg_err_t *err, int num, const char *what, const char *name)
{
    char reason[64];
    (void)kg_err_set(err, kg_err_from_errno(num), "connection file %s: cannot %s: %s", name, what,
                     strerror_r(num, reason, sizeof reason));
    return -num;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Creates and fills the temporary file. It need not be on disk: the sockets that it names die with
 * the machine. */
static int write_tmp(int dirfd, const char *tmp, kg_slice_t text)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    (void)unlinkat(dirfd, tmp, 0); /* left by a crash */
    KG_AUTO_CLOSE int fd = openat(dirfd, tmp, flags, 0600);
    if (fd < 0) {
        return -errno;
    }
    return fchmod(fd, 0600) < 0 ? -errno : write_all(fd, text.data, text.len);
}

int kg_connfile_write(int dirfd, const char *name, const kg_connfile_t *cf, kg_err_t *err)
{
    char tmp[NAME_LEN_MAX + 8];
    KG_AUTO_BUF kg_buf_t text = {0};
    if (!name_ok(name) || kg_format(tmp, sizeof tmp, ".%s.tmp", name) < 0) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "connection file: bad name \"%s\"", name);
    }
    int rc = kg_connfile_format(cf, &text);
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "connection file %s: out of memory", name);
    }
    rc = write_tmp(dirfd, tmp, kg_buf_slice(&text));
    sodium_memzero(text.data, text.len);
    if (rc == 0 && renameat(dirfd, tmp, dirfd, name) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        (void)unlinkat(dirfd, tmp, 0);
        return io_failed(err, -rc, "write", name);
    }
    return 0;
}

/* Whole content of a file of ours; -EFBIG when it is over TEXT_MAX. */
static int read_all(int fd, kg_buf_t *out)
{
    int rc = kg_buf_reserve(out, TEXT_MAX + 1);
    while (rc == 0 && out->len <= TEXT_MAX) {
        ssize_t n = read(fd, out->data + out->len, TEXT_MAX + 1 - out->len);
        if (n == 0) {
            return 0;
        }
        if (n < 0) {
            rc = errno == EINTR ? 0 : -errno;
        } else {
            out->len += (size_t)n;
        }
    }
    return rc < 0 ? rc : -EFBIG;
}

int kg_connfile_read(int dirfd, const char *name, kg_connfile_t *ret_cf, kg_err_t *err)
{
    struct stat st;
    if (!name_ok(name)) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "connection file: bad name \"%s\"", name);
    }
    KG_AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return io_failed(err, errno, "open", name);
    }
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0) {
        (void)kg_err_set(err, KG_ERR_INTERNAL, "connection file %s: %s", name,
                         S_ISREG(st.st_mode) ? "open to others (want mode 0600)"
                                             : "no regular file");
        return -EPERM;
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = read_all(fd, &text);
    if (rc < 0) {
        rc = io_failed(err, -rc, "read", name);
    } else {
        rc = kg_connfile_parse(kg_buf_slice(&text), ret_cf, err);
    }
    if (text.data) {
        sodium_memzero(text.data, text.cap);
    }
    return rc;
}
