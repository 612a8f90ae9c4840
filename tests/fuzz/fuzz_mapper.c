/* Arbitrary kernel messages into a run: prepare, apply, finish, late output, render. Whatever comes
 * in, every event and the Execution are strict JSON, kept plus cut holds, and seq has no gaps.
 * Input: one byte of options, then messages: a type byte, two bytes of length, content. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/utf8.h"
#include "gateway/run/mapper.h"
#include "gateway/run/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        abort();
    }
}

static const char *const types[] = {
    "stream",       "execute_result", "display_data",  "update_display_data",
    "clear_output", "error",          "execute_input", "status",
    "comm_msg",     "execute_reply",  "input_request", "nonsense"};

static void
message(kg_mapper_t *mapper, const kg_mapper_opts_t *opts, uint8_t kind, kg_slice_t text)
{
    kg_jmsg_t msg = {0};
    if (kg_json_check(text, KG_JSON_DEPTH_MAX, &msg.content) < 0) {
        /* Content that is nested too deep is let through unchecked, see kg_jmsg_parse. */
        if (text.len < 2 || text.data[0] != '{' || text.data[text.len - 1] != '}') {
            return;
        }
        msg.deep = true;
        msg.content = (kg_json_value_t){KG_JSON_OBJECT, text};
    }
    if (msg.content.type != KG_JSON_OBJECT) {
        return;
    }
    msg.header = msg.content;
    (void)snprintf(msg.msg_type, sizeof msg.msg_type, "%s", types[kind % KG_ARRAY_LEN(types)]);
    kg_ahead_t *ahead = kind & 64 ? kg_mapper_ahead(mapper) : NULL;
    kg_mapped_t *mapped = kg_mapper_prepare(opts, &msg);
    if (mapped) {
        if (ahead) {
            kg_ahead_write(ahead, mapped);
        }
        if (ahead && (kind & 32)) { /* and something comes in between */
            (void)kg_mapper_text(mapper, false, kg_slice_cstr("between"));
        }
        while (kg_mapper_apply(mapper, mapped) == 1) {
        }
        kg_mapped_destroy(&mapped);
    }
    kg_ahead_release(&ahead);
}

/* All of one reader, every event checked. */
static void read_all(kg_run_reader_t *reader, size_t max, bool execution)
{
    kg_buf_t event = {0};
    uint32_t seq = 0;
    for (;;) {
        kg_read_piece_t piece;
        int rc = kg_run_reader_next(reader, &event, max, &piece);
        check(rc >= 0);
        if (rc != KG_READ_PIECE) {
            break;
        }
        if (!piece.end) {
            continue;
        }
        kg_json_value_t v;
        check(kg_utf8_valid(event.data, event.len));
        check(kg_json_check(kg_buf_slice(&event), 1000, &v) == 0 && v.type == KG_JSON_OBJECT);
        for (size_t i = 0; i < event.len; i++) {
            check((unsigned char)event.data[i] >= 0x20);
        }
        check(!memmem(event.data, event.len, ":NaN", 4) || memchr(event.data, '"', event.len));
        check(execution || piece.seq == seq);
        seq++;
        kg_buf_clear(&event);
    }
    check(event.len == 0);
    kg_buf_fini(&event);
}

static void render(kg_run_log_t *log, size_t max)
{
    kg_run_reader_t *reader = NULL;
    check(kg_run_reader_create(log, KG_READ_FROM_START, true, &reader) == 0);
    read_all(reader, max, false);
    kg_run_reader_destroy(&reader);
    check(kg_run_reader_execution(log, &reader) == 0);
    read_all(reader, max, true);
    kg_run_reader_destroy(&reader);
}

static int scratch_dir(void)
{
    char path[] = "/dev/shm/kg-fuzz-XXXXXX";
    char *dir = mkdtemp(path);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir) {
        (void)rmdir(dir); /* nothing can be made in it: the run lives in memory */
    }
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    uint8_t options = data[0];
    kg_mapper_opts_t opts = {.ansi = options & 1, .silent = options & 2};
    kg_run_limits_default(&opts.limits);
    if (options & 4) {
        opts.limits = (kg_run_limits_t){64, 64, 12, KG_EXCEED_STOP, false};
    }
    kg_run_log_opts_t log_opts = {.dirfd = -1};
    int dirfd = -1;
    if (!(options & 8)) {
        dirfd = log_opts.dirfd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        dirfd = log_opts.dirfd = scratch_dir();
    }
    kg_run_meta_t meta = {.run = "run-10de5k3j2h1g9f8d7s6a",
                          .language = options & 16 ? "r" : "python",
                          .ansi = opts.ansi};
    kg_run_log_t *log = NULL;
    kg_displays_t *displays = NULL;
    kg_mapper_t *mapper = NULL;
    check(kg_run_log_create(&log_opts, &meta, &log) == 0);
    check(kg_displays_create(&displays) == 0);
    check(kg_mapper_create(&opts, log, displays, NULL, &mapper) == 0);
    const uint8_t *p = data + 1;
    const uint8_t *end = data + size;
    size_t half = size / 2;
    bool finished = false;
    while (end - p >= 3) {
        size_t len = (size_t)p[1] | (size_t)p[2] << 8;
        uint8_t kind = p[0];
        p += 3;
        len = len < (size_t)(end - p) ? len : (size_t)(end - p);
        if (!finished && (options & 32) && (size_t)(p - data) > half) {
            kg_run_end_t stop = {.status = KG_RUN_OK, .wall_ns = 1};
            check(kg_mapper_finish(mapper, &stop) == 0);
            finished = true;
        }
        message(mapper, &opts, kind, kg_slice((const char *)p, len));
        if (kind & 128) {
            (void)kg_run_log_flush(log);
        }
        p += len;
    }
    if (!finished) {
        kg_run_end_t stop = {.status = (kg_run_status_t)(options >> 6), .wall_ns = 1};
        check(kg_mapper_finish(mapper, &stop) == 0);
    }
    (void)kg_run_log_flush(log);
    render(log, (size_t)16 + options);
    kg_mapper_destroy(&mapper);
    kg_displays_destroy(&displays);
    kg_run_log_remove(log);
    kg_run_log_unref(&log);
    if (dirfd >= 0) {
        close(dirfd);
    }
    return 0;
}
