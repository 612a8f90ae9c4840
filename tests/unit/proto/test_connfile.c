#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "proto/connfile.h"

#define PORTS                                                                                      \
    "\"shell_port\":1,\"iopub_port\":2,\"stdin_port\":3,\"control_port\":4,\"hb_port\":65535"

static const kg_connfile_t sample = {
    .transport = "ipc",
    .ip = "/run/sandal/k \"1\"/s",
    .shell_port = 1,
    .iopub_port = 2,
    .stdin_port = 3,
    .control_port = 4,
    .hb_port = 5,
    .key = "0123456789abcdef",
    .signature_scheme = "hmac-sha256",
    .kernel_name = "python3",
};

/* A fresh directory of this test group, and its descriptor. */
typedef struct place {
    int fd;
    char path[32];
} place_t;

static int open_dir(void **state)
{
    place_t *place = calloc(1, sizeof *place);
    if (!place) {
        return -1;
    }
    *state = place;
    (void)snprintf(place->path, sizeof place->path, "/tmp/test_connfile.XXXXXX");
    if (!mkdtemp(place->path)) {
        return -1;
    }
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return place->fd < 0 ? -1 : 0;
}

static int close_dir(void **state)
{
    static const char *const names[] = {"kernel.json", "link.json", "open.json", "fifo"};
    place_t *place = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        (void)unlinkat(place->fd, names[i], 0);
    }
    close(place->fd);
    int rc = rmdir(place->path); /* fails when a temporary file was left */
    free(place);
    return rc;
}

static int dir_of(void **state)
{
    const place_t *place = *state;
    return place->fd;
}

static void format_parse_round_trip(void **state)
{
    (void)state;
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_connfile_t back;
    kg_err_t err = {0};
    assert_int_equal(kg_connfile_format(&sample, &text), 0);
    assert_int_equal(kg_connfile_parse(kg_buf_slice(&text), &back, &err), 0);
    assert_memory_equal(&back, &sample, sizeof back);
}

static void parse_defaults_and_unknown_members(void **state)
{
    (void)state;
    kg_connfile_t cf;
    kg_err_t err = {0};
    const char *text = "{" PORTS ",\"ip\":\"127.0.0.1\",\"key\":\"\",\"jupyter_session\":[1]}";
    assert_int_equal(kg_connfile_parse(kg_slice_cstr(text), &cf, &err), 0);
    assert_string_equal(cf.transport, "tcp");
    assert_string_equal(cf.signature_scheme, "hmac-sha256");
    assert_string_equal(cf.kernel_name, "");
    assert_int_equal(cf.hb_port, 65535);
}

static void parse_bad_fields_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "/shell_port"},
        {"{" PORTS ",\"shell_port\":0,\"ip\":\"a\",\"key\":\"\"}", "/shell_port"},
        {"{" PORTS ",\"hb_port\":65536,\"ip\":\"a\",\"key\":\"\"}", "/hb_port"},
        {"{" PORTS ",\"hb_port\":\"1\",\"ip\":\"a\",\"key\":\"\"}", "/hb_port"},
        {"{" PORTS ",\"key\":\"\"}", "/ip"},
        {"{" PORTS ",\"ip\":\"\",\"key\":\"\"}", "/ip"},
        {"{" PORTS ",\"ip\":\"a\\u0000b\",\"key\":\"\"}", "/ip"},
        {"{" PORTS ",\"ip\":\"a\"}", "/key"},
        {"{" PORTS ",\"ip\":\"a\",\"key\":5}", "/key"},
        {"{" PORTS ",\"ip\":\"a\",\"key\":\"\",\"transport\":\"udp\"}", "/transport"},
        {"{" PORTS ",\"ip\":\"a\",\"key\":\"\",\"signature_scheme\":\"hmac-md5\"}",
         "/signature_scheme"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        kg_connfile_t cf;
        kg_err_t err = {0};
        assert_int_equal(kg_connfile_parse(kg_slice_cstr(cases[i][0]), &cf, &err), -EINVAL);
        assert_string_equal(err.pointer, cases[i][1]);
    }
}

static void parse_no_object_or_too_big_refused(void **state)
{
    (void)state;
    kg_connfile_t cf;
    kg_err_t err = {0};
    assert_int_equal(kg_connfile_parse(kg_slice_cstr("[]"), &cf, &err), -EBADMSG);
    assert_int_equal(kg_connfile_parse(kg_slice_cstr("{"), &cf, &err), -EBADMSG);
    KG_AUTO_FREE char *big = calloc(1, 65537);
    assert_int_equal(kg_connfile_parse(kg_slice(big, 65537), &cf, &err), -E2BIG);
}

static void parse_key_at_limit_and_beyond(void **state)
{
    (void)state;
    for (size_t len = 256; len <= 257; len++) {
        char key[258];
        char text[512];
        kg_connfile_t cf;
        memset(key, 'k', len);
        key[len] = '\0';
        (void)snprintf(text, sizeof text, "{" PORTS ",\"ip\":\"a\",\"key\":\"%s\"}", key);
        assert_int_equal(kg_connfile_parse(kg_slice_cstr(text), &cf, NULL),
                         len == 256 ? 0 : -EINVAL);
    }
}

static void write_is_0600_atomic_and_read_back(void **state)
{
    int dirfd = dir_of(state);
    kg_err_t err = {0};
    kg_connfile_t back;
    struct stat st;
    mode_t mask = umask(0);
    assert_int_equal(kg_connfile_write(dirfd, "kernel.json", &sample, &err), 0);
    assert_int_equal(kg_connfile_write(dirfd, "kernel.json", &sample, &err), 0);
    (void)umask(mask);
    assert_int_equal(fstatat(dirfd, "kernel.json", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(faccessat(dirfd, ".kernel.json.tmp", F_OK, 0), -1);
    assert_int_equal(kg_connfile_read(dirfd, "kernel.json", &back, &err), 0);
    assert_memory_equal(&back, &sample, sizeof back);
}

static void write_over_symlinks_never_follows(void **state)
{
    int dirfd = dir_of(state);
    kg_err_t err = {0};
    struct stat st;
    assert_int_equal(symlinkat("victim", dirfd, "link.json"), 0);
    assert_int_equal(symlinkat("victim", dirfd, ".link.json.tmp"), 0);
    kg_connfile_t back;
    assert_int_equal(kg_connfile_read(dirfd, "link.json", &back, &err), -ELOOP);
    assert_int_equal(kg_connfile_write(dirfd, "link.json", &sample, &err), 0);
    assert_int_equal(faccessat(dirfd, "victim", F_OK, 0), -1);
    assert_int_equal(fstatat(dirfd, "link.json", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
}

static void read_open_to_others_or_irregular_refused(void **state)
{
    int dirfd = dir_of(state);
    kg_err_t err = {0};
    kg_connfile_t back;
    assert_int_equal(kg_connfile_write(dirfd, "open.json", &sample, &err), 0);
    assert_int_equal(fchmodat(dirfd, "open.json", 0640, 0), 0);
    assert_int_equal(kg_connfile_read(dirfd, "open.json", &back, &err), -EPERM);
    assert_non_null(strstr(err.message, "0600"));
    assert_int_equal(mkfifoat(dirfd, "fifo", 0600), 0);
    assert_int_equal(kg_connfile_read(dirfd, "fifo", &back, &err), -EPERM);
    assert_int_equal(kg_connfile_read(dirfd, "missing", &back, &err), -ENOENT);
}

static void read_file_over_the_cap_refused(void **state)
{
    int dirfd = dir_of(state);
    kg_err_t err = {0};
    kg_connfile_t back;
    assert_int_equal(kg_connfile_write(dirfd, "open.json", &sample, &err), 0);
    int fd = openat(dirfd, "open.json", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 64 * 1024 + 1), 0);
    close(fd);
    assert_int_equal(kg_connfile_read(dirfd, "open.json", &back, &err), -EFBIG);
}

static void write_where_it_cannot_leaves_nothing(void **state)
{
    int dirfd = dir_of(state);
    kg_err_t err = {0};
    assert_int_equal(mkdirat(dirfd, "taken", 0700), 0);
    assert_int_equal(kg_connfile_write(dirfd, "taken", &sample, &err), -EISDIR);
    assert_non_null(strstr(err.message, "connection file taken: cannot write"));
    assert_int_equal(faccessat(dirfd, ".taken.tmp", F_OK, 0), -1);
    assert_int_equal(unlinkat(dirfd, "taken", AT_REMOVEDIR), 0);
    assert_int_equal(kg_connfile_write(-1, "x", &sample, &err), -EBADF);
}

static void bad_names_refused(void **state)
{
    int dirfd = dir_of(state);
    static const char *const bad[] = {"", ".", "..", "a/b", "/etc/x", ".hidden"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        kg_err_t err = {0};
        kg_connfile_t back;
        assert_int_equal(kg_connfile_write(dirfd, bad[i], &sample, &err), -EINVAL);
        assert_int_equal(kg_connfile_read(dirfd, bad[i], &back, &err), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_parse_round_trip),
        cmocka_unit_test(parse_defaults_and_unknown_members),
        cmocka_unit_test(parse_bad_fields_named),
        cmocka_unit_test(parse_no_object_or_too_big_refused),
        cmocka_unit_test(parse_key_at_limit_and_beyond),
        cmocka_unit_test(write_is_0600_atomic_and_read_back),
        cmocka_unit_test(write_over_symlinks_never_follows),
        cmocka_unit_test(read_open_to_others_or_irregular_refused),
        cmocka_unit_test(read_file_over_the_cap_refused),
        cmocka_unit_test(write_where_it_cannot_leaves_nothing),
        cmocka_unit_test(bad_names_refused),
    };
    return cmocka_run_group_tests(tests, open_dir, close_dir);
}
