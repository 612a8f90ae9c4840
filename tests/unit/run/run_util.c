#include "run_util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_stop(void *user, kg_cut_t what)
{
    run_test_t *t = user;
    t->stops++;
    t->stop_what = what;
}

static void on_input(void *user, kg_slice_t prompt, bool password, kg_slice_t header)
{
    run_test_t *t = user;
    t->inputs++;
    t->password = password;
    (void)snprintf(t->prompt, sizeof t->prompt, "%.*s", (int)prompt.len,
                   prompt.data ? prompt.data : "");
    (void)snprintf(t->header, sizeof t->header, "%.*s", (int)header.len, header.data);
}

void rt_begin(run_test_t *t)
{
    *t = (run_test_t){.dirfd = -1};
    (void)snprintf(t->path, sizeof t->path, "/dev/shm/kg-run-XXXXXX"); /* many small files */
    if (!mkdtemp(t->path)) {
        memcpy(t->path, "/tmp/kg-run-XXXXXX", sizeof "/tmp/kg-run-XXXXXX");
        assert_non_null(mkdtemp(t->path));
    }
    t->dirfd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(t->dirfd >= 0);
    t->log_opts.dirfd = t->dirfd;
    if (getenv("SANDAL_TEST_PACKS")) { // NOLINT(concurrency-mt-unsafe): one thread
        kg_run_slot_t first;
        assert_int_equal(kg_run_packs_create(t->dirfd, &t->log_opts.packs), 0);
        assert_int_equal(kg_run_packs_take(t->log_opts.packs, &first), 0);
        kg_run_slot_leave(&first); /* logs begin at some offset */
        t->other_files = 1;
    }
    t->meta = (kg_run_meta_t){.run = RUN_ID,
                              .sandbox = "sbx-n0de5aaaaaaaaaaaaaaa",
                              .context = "3f6c0000-0000-8000-8000-000000000000",
                              .owner = "me",
                              .language = "python",
                              .created_wall_ns = 1,
                              .retain_s = 300};
    kg_run_limits_default(&t->opts.limits);
    t->sink = (kg_mapper_sink_t){.input = on_input, .stop = on_stop, .user = t};
    assert_int_equal(kg_displays_create(&t->displays), 0);
}

void rt_open(run_test_t *t)
{
    t->meta.ansi = t->opts.ansi;
    t->meta.silent = t->opts.silent;
    assert_int_equal(kg_run_log_create(&t->log_opts, &t->meta, &t->log), 0);
    assert_int_equal(kg_mapper_create(&t->opts, t->log, t->displays, &t->sink, &t->mapper), 0);
}

void rt_close(run_test_t *t)
{
    kg_mapper_destroy(&t->mapper);
    kg_run_log_unref(&t->log);
}

static DIR *open_dir(const run_test_t *t)
{
    DIR *dir = opendir(t->path);
    assert_non_null(dir);
    return dir;
}

unsigned rt_files(const run_test_t *t)
{
    unsigned n = 0;
    DIR *dir = open_dir(t);
    for (struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): one thread
        n += e->d_name[0] != '.' ? 1 : 0;
    }
    closedir(dir);
    return n - t->other_files;
}

void rt_end(run_test_t *t)
{
    rt_close(t);
    kg_displays_destroy(&t->displays);
    kg_run_packs_destroy(&t->log_opts.packs);
    DIR *dir = open_dir(t);
    for (struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): one thread
        if (e->d_name[0] != '.') {
            (void)unlinkat(t->dirfd, e->d_name, 0);
        }
    }
    closedir(dir);
    close(t->dirfd);
    (void)rmdir(t->path);
}

void rt_message_len(run_test_t *t, const char *type, const char *content, size_t len)
{
    static const char header[] = "{\"msg_id\":\"m1\", \"msg_type\":\"x\"}";
    kg_jmsg_t msg = {0};
    (void)snprintf(msg.msg_type, sizeof msg.msg_type, "%s", type);
    assert_int_equal(kg_json_check(kg_slice_cstr(header), 4, &msg.header), 0);
    assert_int_equal(kg_json_check(kg_slice(content, len), KG_JSON_DEPTH_MAX, &msg.content), 0);
    kg_mapped_t *mapped = kg_mapper_prepare(&t->opts, &msg);
    assert_non_null(mapped);
    int rc;
    while ((rc = kg_mapper_apply(t->mapper, mapped)) == 1) {
    }
    assert_int_equal(rc, 0);
    kg_mapped_destroy(&mapped);
}

void rt_message(run_test_t *t, const char *type, const char *content)
{
    rt_message_len(t, type, content, strlen(content));
}

void rt_messages(run_test_t *t, const char *list)
{
    kg_json_value_t all, pair, part;
    kg_json_iter_t it, in;
    assert_int_equal(kg_json_check(kg_slice_cstr(list), KG_JSON_DEPTH_MAX, &all), 0);
    assert_int_equal(all.type, KG_JSON_ARRAY);
    kg_json_iter_init(&it, all);
    while (kg_json_iter_next(&it, NULL, &pair)) {
        char type[64];
        kg_json_iter_init(&in, pair);
        assert_true(kg_json_iter_next(&in, NULL, &part));
        (void)snprintf(type, sizeof type, "%.*s", (int)part.raw.len - 2, part.raw.data + 1);
        assert_true(kg_json_iter_next(&in, NULL, &part));
        rt_message_len(t, type, part.raw.data, part.raw.len);
    }
}

void rt_stream(run_test_t *t, const char *name, const char *text)
{
    kg_buf_t json = {0};
    assert_int_equal(kg_buf_printf(&json, "{\"name\":\"%s\",\"text\":", name), 0);
    assert_int_equal(kg_json_quote_cstr(&json, text), 0);
    assert_int_equal(kg_buf_append_char(&json, '}'), 0);
    rt_message_len(t, "stream", json.data, json.len);
    kg_buf_fini(&json);
}

kg_run_end_t rt_end_of(kg_run_status_t status)
{
    return (kg_run_end_t){.status = status,
                          .started = true,
                          .usage = {0, 4, 3, KG_USAGE_UNKNOWN},
                          .wall_ns = UINT64_C(1700000000) * 1000000000U};
}

void rt_finish(run_test_t *t, kg_run_status_t status)
{
    const kg_run_end_t end = rt_end_of(status);
    assert_int_equal(kg_mapper_finish(t->mapper, &end), 0);
    assert_int_equal(kg_run_log_flush(t->log), 0);
}

static void read_all(kg_run_reader_t *reader, size_t max, kg_buf_t *out, bool list)
{
    kg_read_piece_t piece;
    bool inside = false;
    bool first = true;
    int rc;
    for (;;) {
        kg_buf_t part = {0};
        rc = kg_run_reader_next(reader, &part, max, &piece);
        if (rc != KG_READ_PIECE) {
            kg_buf_fini(&part);
            break;
        }
        assert_true(part.len <= max);
        assert_int_equal(piece.begin, !inside);
        if (piece.begin && list && !first) {
            kg_buf_append_char(out, ',');
        }
        first = false;
        assert_true(part.len > 0);
        if (piece.begin) {
            assert_int_equal(part.data[0], '{');
        }
        if (piece.end) {
            assert_int_equal(part.data[part.len - 1], '}');
        }
        inside = !piece.end;
        kg_buf_append(out, part.data, part.len);
        kg_buf_fini(&part);
    }
    assert_false(inside);
    assert_true(rc == KG_READ_END || rc == KG_READ_WAIT);
}

void rt_events(kg_run_log_t *log, int64_t after, bool late, size_t max, kg_buf_t *out)
{
    kg_run_reader_t *reader = NULL;
    kg_buf_clear(out);
    assert_int_equal(kg_run_reader_create(log, after, late, &reader), 0);
    kg_buf_append_char(out, '[');
    read_all(reader, max, out, true);
    kg_buf_append_char(out, ']');
    kg_run_reader_destroy(&reader);
}

void rt_execution(kg_run_log_t *log, size_t max, kg_buf_t *out)
{
    kg_run_reader_t *reader = NULL;
    kg_buf_clear(out);
    assert_int_equal(kg_run_reader_execution(log, &reader), 0);
    read_all(reader, max, out, false);
    kg_run_reader_destroy(&reader);
}
