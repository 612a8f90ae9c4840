/* Paths as clients write them, entries as they see them, and bytes on their way into a file: the
 * parts of the files' room that need no sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/context/files_priv.h"

/* --- Paths ---------------------------------------------------------------------------------- */

static const kg_sbx_info_t plain = {.isolation = "none",
                                    .workspace = "/state/sandboxes/s/workspace",
                                    .home = "/state/sandboxes/s/home"};
static const kg_sbx_info_t rooted = {
    .isolation = "namespace", .workspace = "/workspace", .home = "/home/user", .own_root = true};

static void paths_are_mapped_without_a_root(void **state)
{
    (void)state;
    static const struct {
        const char *path, *inner, *shown;
    } rows[] = {
        {"a", "/state/sandboxes/s/workspace/a", "/workspace/a"},
        {".", "/state/sandboxes/s/workspace", "/workspace"},
        {"a//b/./c/", "/state/sandboxes/s/workspace/a/b/c", "/workspace/a/b/c"},
        {"a/../b", "/state/sandboxes/s/workspace/b", "/workspace/b"},
        {"/workspace", "/state/sandboxes/s/workspace", "/workspace"},
        {"/home/user/x", "/state/sandboxes/s/home/x", "/home/user/x"},
        {"/workspace/../home/user/x", "/state/sandboxes/s/home/x", "/home/user/x"},
        {"../home/user", "/state/sandboxes/s/home", "/home/user"},
        {"/state/sandboxes/s/workspace/y", "/state/sandboxes/s/workspace/y", "/workspace/y"},
        {"...", "/state/sandboxes/s/workspace/...", "/workspace/..."},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_fs_path_t at;
        kg_err_t err = {0};
        assert_int_equal(kg_fs_path_resolve(&plain, rows[i].path, &at, &err), 0);
        assert_string_equal(at.inner, rows[i].inner);
        assert_string_equal(at.shown, rows[i].shown);
    }
    static const char *const outside[] = {"/",
                                          "/etc/passwd",
                                          "..",
                                          "../..",
                                          "/workspace/../etc",
                                          "/workspacex",
                                          "/home/username",
                                          "/home",
                                          "/state/sandboxes/s",
                                          "/state/sandboxes/s/workspace/../../t/workspace"};
    for (size_t i = 0; i < KG_ARRAY_LEN(outside); i++) {
        kg_fs_path_t at;
        kg_err_t err = {0};
        if (kg_fs_path_resolve(&plain, outside[i], &at, &err) != -EPERM ||
            err.code != KG_ERR_FORBIDDEN) {
            fail_msg("%s: %s", outside[i], at.inner);
        }
    }
}

static void paths_are_as_they_are_with_a_root(void **state)
{
    (void)state;
    static const struct {
        const char *path, *inner;
    } rows[] = {
        {"a", "/workspace/a"}, {"/etc//passwd", "/etc/passwd"}, {"/", "/"},
        {"//./", "/"},         {"l/../b", "/workspace/l/../b"}, {"/../x", "/../x"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_fs_path_t at;
        kg_err_t err = {0};
        assert_int_equal(kg_fs_path_resolve(&rooted, rows[i].path, &at, &err), 0);
        assert_string_equal(at.inner, rows[i].inner);
        assert_string_equal(at.shown, rows[i].inner);
    }
}

static void long_paths_are_refused_in_time(void **state)
{
    (void)state;
    char text[KG_FS_PATH_MAX + 8];
    kg_err_t err = {0};
    memset(text, 'x', sizeof(text));
    text[KG_FS_NAME_MAX] = '\0';
    assert_int_equal(kg_fs_path_check(text, "/path", &err), 0);
    text[KG_FS_NAME_MAX] = 'x';
    text[KG_FS_NAME_MAX + 1] = '\0';
    assert_int_equal(kg_fs_path_check(text, "/path", &err), -EINVAL);
    assert_string_equal(err.pointer, "/path");
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = i % 2 ? '/' : 'x';
    }
    size_t most = KG_FS_PATH_MAX - sizeof("/workspace") - 1;
    text[most] = '\0';
    assert_int_equal(kg_fs_path_check(text, "/path", &err), 0);
    kg_fs_path_t at;
    assert_int_equal(kg_fs_path_resolve(&rooted, text, &at, &err), 0);
    assert_int_equal(kg_fs_path_resolve(&plain, text, &at, &err), -EINVAL); /* it grows */
    text[most] = 'x';
    text[most + 1] = '\0';
    assert_int_equal(kg_fs_path_check(text, "/path", &err), -EINVAL);
    assert_int_equal(kg_fs_path_check("", "/path", &err), -EINVAL);
}

static void what_belongs_to_the_sandbox_is_known(void **state)
{
    (void)state;
    static const char *const fixed[] = {"/", "/workspace", "/home/user", "/workspace/..", "/.."};
    for (size_t i = 0; i < KG_ARRAY_LEN(fixed); i++) {
        assert_true(kg_fs_path_fixed(fixed[i]));
    }
    assert_false(kg_fs_path_fixed("/workspace/a"));
    assert_false(kg_fs_path_fixed("/workspace/a.."));
    assert_false(kg_fs_path_fixed("/home"));
}

static void entries_tell_names_of_any_bytes(void **state)
{
    (void)state;
    kg_fs_entry_t entry = {.name = "l",
                           .target = "to\xff",
                           .stat = {.type = KG_FS_SYMLINK, .mode = 0777, .mtime_ns = -5}};
    json_t *json = kg_fs_entry_json("/workspace/\xfe", &entry);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "name")), "\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(json, "name_base64")), "/g==");
    assert_string_equal(json_string_value(json_object_get(json, "path")),
                        "/workspace/\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(json, "target_base64")), "dG//");
    assert_string_equal(json_string_value(json_object_get(json, "type")), "symlink");
    assert_string_equal(json_string_value(json_object_get(json, "mode")), "0777");
    assert_true(json_is_null(json_object_get(json, "modified_at")));
    json_decref(json);
    json = kg_fs_entry_json("/", &(kg_fs_entry_t){.name = "/", .stat = {.type = KG_FS_DIR}});
    assert_string_equal(json_string_value(json_object_get(json, "name")), "/");
    assert_true(json_is_null(json_object_get(json, "target")));
    assert_null(json_object_get(json, "name_base64"));
    json_decref(json);
}

/* --- Bytes ---------------------------------------------------------------------------------- */

typedef struct pumping {
    kg_loop_t *loop;
    kg_pump_t pump;
    kg_io_t *io;
    unsigned pieces; /* still to come */
    unsigned moves;
    bool done;
    kg_err_t err;
} pumping_t;

/* Each piece is 1000 bytes of its number. */
static void take(void *user, kg_buf_t *out, bool *ret_end)
{
    pumping_t *p = user;
    char piece[1000];
    kg_buf_clear(out);
    memset(piece, (int)('a' + p->pieces), sizeof(piece));
    if (p->pieces > 0) {
        p->pieces--;
        assert_int_equal(kg_buf_append(out, piece, sizeof(piece)), 0);
    }
    *ret_end = p->pieces == 0;
}

static void moved(void *user)
{
    ((pumping_t *)user)->moves++;
}

static void stop_soon(void *user)
{
    kg_loop_stop(user);
}

static void pumped(void *user, const kg_err_t *err)
{
    pumping_t *p = user;
    p->done = true;
    if (err) {
        p->err = *err;
    }
    kg_io_close(&p->io);
    assert_int_equal(kg_loop_later(p->loop, stop_soon, p->loop), 0);
}

static void pump(pumping_t *p, int fd, unsigned pieces, uint64_t max)
{
    *p = (pumping_t){.pieces = pieces};
    assert_int_equal(kg_loop_create(&p->loop), 0);
    assert_int_equal(kg_io_open(p->loop, fd, &p->io), 0);
    p->pump = (kg_pump_t){
        .io = p->io, .intake = {take, p}, .max = max, .moved = moved, .done = pumped, .user = p};
    kg_pump_start(&p->pump);
    assert_int_equal(kg_loop_run(p->loop), 0);
    kg_pump_fini(&p->pump);
    kg_loop_destroy(&p->loop);
    assert_true(p->done);
}

static void pieces_come_in_order(void **state)
{
    (void)state;
    char path[] = "/tmp/sandal-pump-XXXXXX";
    int fd = mkstemp(path);
    int copy = dup(fd);
    pumping_t p;
    assert_true(fd >= 0 && copy >= 0);
    pump(&p, fd, 5, UINT64_MAX);
    assert_int_equal(p.err.code, KG_ERR_NONE);
    assert_int_equal(p.pump.offset, 5000);
    assert_int_equal(p.moves, 5);
    for (unsigned i = 0; i < 5; i++) {
        char c = 0;
        assert_int_equal(pread(copy, &c, 1, (off_t)i * 1000), 1);
        assert_int_equal(c, 'a' + 5 - i);
    }
    close(copy);
    unlink(path);
}

static void more_than_was_announced_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/sandal-pump-XXXXXX";
    int fd = mkstemp(path);
    pumping_t p;
    assert_true(fd >= 0);
    pump(&p, fd, 5, 2999);
    assert_int_equal(p.err.code, KG_ERR_TOO_LARGE);
    assert_int_equal(p.pump.offset, 2000);
    unlink(path);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    pumping_t p;
    assert_true(fd >= 0);
    pump(&p, fd, 2, UINT64_MAX);
    assert_int_equal(p.err.code, KG_ERR_STORAGE_FULL);
    assert_int_equal(p.pump.offset, 0);
}

/* --- Straight into a socket ------------------------------------------------------------------- */

typedef struct sending {
    kg_loop_t *loop;
    kg_io_t *io;
    kg_io_job_t *job;
    int pair[2];
    ssize_t rc;
} sending_t;

static void sending_open(sending_t *s, int fd_take)
{
    *s = (sending_t){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s->pair), 0);
    assert_int_equal(kg_loop_create(&s->loop), 0);
    assert_int_equal(kg_io_open(s->loop, fd_take, &s->io), 0);
}

static void sending_close(sending_t *s)
{
    kg_io_close(&s->io);
    assert_int_equal(kg_loop_later(s->loop, stop_soon, s->loop), 0);
    assert_int_equal(kg_loop_run(s->loop), 0);
    close(s->pair[0]);
    close(s->pair[1]);
    kg_loop_destroy(&s->loop);
}

static void sent(void *user, ssize_t rc, kg_buf_t *bytes)
{
    sending_t *s = user;
    (void)bytes;
    s->rc = rc;
    kg_loop_stop(s->loop);
}

static ssize_t send_some(sending_t *s, uint64_t offset, size_t max)
{
    assert_int_equal(kg_io_send(s->io, s->pair[0], offset, max, sent, s, &s->job), 0);
    assert_int_equal(kg_loop_run(s->loop), 0);
    return s->rc;
}

static size_t swallow(int fd, const char *wanted, size_t at)
{
    char piece[65536];
    size_t got = 0;
    for (ssize_t n; (n = read(fd, piece, sizeof(piece))) > 0; got += (size_t)n) {
        assert_memory_equal(piece, wanted + at + got, (size_t)n);
    }
    return got;
}

/* Opens a file without a name; what is in it is the caller's to free. */
static char *sending_open_file(sending_t *s, size_t size)
{
    char path[] = "/tmp/sandal-send-XXXXXX";
    int fd = mkstemp(path);
    char *bytes = malloc(size);
    assert_true(fd >= 0 && bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)(i * 7 + i / 251);
    }
    assert_int_equal(write(fd, bytes, size), size);
    sending_open(s, fd);
    unlink(path);
    return bytes;
}

static int send_buffer(int fd)
{
    int size = 0;
    socklen_t len = sizeof(size);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len), 0);
    return size;
}

static void a_file_goes_into_a_socket_as_far_as_there_is_room(void **state)
{
    (void)state;
    enum {
        SIZE = 4000000 /* more than fits, also when the socket's buffer has been made larger */
    };
    sending_t s;
    char *bytes = sending_open_file(&s, SIZE);
    const int before = send_buffer(s.pair[0]);
    size_t at = 0;
    unsigned choked = 0;
    while (at < SIZE) {
        ssize_t n = send_some(&s, at, SIZE - at);
        if (n == -EAGAIN || (n > 0 && (size_t)n < SIZE - at)) {
            choked++;
            assert_int_equal(send_some(&s, at + (n > 0 ? (size_t)n : 0), 1), -EAGAIN);
        } else {
            assert_int_equal(n, SIZE - at);
        }
        size_t got = swallow(s.pair[1], bytes, at);
        assert_int_equal(got, n > 0 ? n : 0);
        at += got;
    }
    assert_true(choked > 0);
    assert_true(send_buffer(s.pair[0]) > before);
    assert_int_equal(send_some(&s, SIZE, 10), 0); /* the end */
    assert_int_equal(send_some(&s, SIZE - 3, 10), 3);
    assert_int_equal(swallow(s.pair[1], bytes, SIZE - 3), 3);
    sending_close(&s);
    free(bytes);
}

typedef struct reading {
    int fd;
    char *got;
    size_t size;
} reading_t;

static void *read_all(void *user)
{
    const reading_t *r = user;
    for (size_t at = 0; at < r->size;) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, 60000) == 1 ? read(r->fd, r->got + at, r->size - at) : 0;
        if (n <= 0) {
            break;
        }
        at += (size_t)n;
    }
    return NULL;
}

static void a_reader_gets_all_of_a_file_however_often_there_is_no_room(void **state)
{
    (void)state;
    enum {
        SIZE = 8000000
    };
    sending_t s;
    char *bytes = sending_open_file(&s, SIZE);
    reading_t r = {.fd = s.pair[1], .got = calloc(1, SIZE), .size = SIZE};
    pthread_t thread;
    assert_non_null(r.got);
    assert_int_equal(pthread_create(&thread, NULL, read_all, &r), 0);
    for (size_t at = 0; at < SIZE;) {
        struct pollfd room = {.fd = s.pair[0], .events = POLLOUT};
        assert_int_equal(poll(&room, 1, 60000), 1);
        ssize_t n = send_some(&s, at, SIZE - at);
        assert_true(n > 0 || n == -EAGAIN);
        at += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(r.got, bytes, SIZE);
    sending_close(&s);
    free(r.got);
    free(bytes);
}

static void one_that_lends_no_pages_is_copied(void **state)
{
    (void)state;
    enum {
        SIZE = 40000,
        AT = 0x40000000
    }; /* offsets in files of /proc end at 2 GiB */
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC); /* sendfile: EINVAL */
    char *bytes = mmap((void *)(uintptr_t)AT,              // NOLINT(performance-no-int-to-ptr)
                       SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    sending_t s;
    assert_true(fd >= 0 && bytes != MAP_FAILED);
    memset(bytes, 'm', SIZE);
    sending_open(&s, fd);
    assert_int_equal(send_some(&s, AT, SIZE), SIZE);
    assert_int_equal(swallow(s.pair[1], bytes, 0), SIZE);
    sending_close(&s);
    munmap(bytes, SIZE);
}

static void a_socket_that_closed_is_told(void **state)
{
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    sending_t s;
    assert_true(fd >= 0);
    (void)signal(SIGPIPE, SIG_IGN); /* as in the gateway */
    sending_open(&s, fd);
    (void)shutdown(s.pair[1], SHUT_RDWR);
    assert_int_equal(send_some(&s, 0, 1000), -EPIPE);
    sending_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_mapped_without_a_root),
        cmocka_unit_test(paths_are_as_they_are_with_a_root),
        cmocka_unit_test(long_paths_are_refused_in_time),
        cmocka_unit_test(what_belongs_to_the_sandbox_is_known),
        cmocka_unit_test(entries_tell_names_of_any_bytes),
        cmocka_unit_test(pieces_come_in_order),
        cmocka_unit_test(more_than_was_announced_is_refused),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(a_file_goes_into_a_socket_as_far_as_there_is_room),
        cmocka_unit_test(a_reader_gets_all_of_a_file_however_often_there_is_no_room),
        cmocka_unit_test(one_that_lends_no_pages_is_copied),
        cmocka_unit_test(a_socket_that_closed_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
