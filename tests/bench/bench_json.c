/* Rates of proto/json_scan and of signing over kernel content: check, copy, escape, sign. Prints
 * MB/s of input, the best of a few rounds. Usage: bench_json [MEGABYTES] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/base/utf8.h"
#include "proto/wire.h"

enum {
    ROUNDS = 5
};

typedef int (*make_fn)(kg_buf_t *out, size_t i);

static int make_plain(kg_buf_t *out, size_t i)
{
    (void)i;
    return kg_buf_append_cstr(out,
                              "The quick brown fox jumps over the lazy dog, again and again. ");
}

static int make_lines(kg_buf_t *out, size_t i)
{
    return kg_buf_printf(out, "%zu: a line as print() writes it, of common length\\n", i);
}

static int make_french(kg_buf_t *out, size_t i)
{
    (void)i;
    return kg_buf_append_cstr(out,
                              "d\xC3\xA9j\xC3\xA0 vu, \xE2\x82\xAC 5, na\xC3\xAFve caf\xC3\xA9 ");
}

static int make_cjk(kg_buf_t *out, size_t i)
{
    (void)i;
    return kg_buf_append_cstr(out, "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C");
}

static int make_escapes(kg_buf_t *out, size_t i)
{
    (void)i;
    return kg_buf_append_cstr(out, "\\u001b[31m\\\"\\u00e9\\n");
}

static int make_bad(kg_buf_t *out, size_t i)
{
    (void)i;
    return kg_buf_append_cstr(out, "ab\xFF\xC3 \x01");
}

static int make_numbers(kg_buf_t *out, size_t i)
{
    return kg_buf_printf(out, "%s%zu.%05zu", i ? "," : "", i % 100, i * 7919 % 100000);
}

static int make_objects(kg_buf_t *out, size_t i)
{
    return kg_buf_printf(out, "%s{\"id\":%zu,\"name\":\"n%zu\",\"ok\":true}", i ? "," : "", i, i);
}

static double rate(size_t bytes, uint64_t ns)
{
    return (double)bytes * 1e3 / (double)(ns ? ns : 1);
}

static uint64_t best(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int measure(const char *name, make_fn make, const char *open, const char *close, size_t size)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t out = {0};
    int rc = kg_buf_append_cstr(&text, open);
    for (size_t i = 0; rc == 0 && text.len < size; i++) {
        rc = make(&text, i);
    }
    rc = rc < 0 ? rc : kg_buf_append_cstr(&text, close);
    uint64_t check = UINT64_MAX;
    uint64_t copy = UINT64_MAX;
    uint64_t escape = UINT64_MAX;
    for (unsigned round = 0; rc == 0 && round < ROUNDS; round++) {
        kg_json_value_t v;
        uint64_t start = kg_now_ns();
        rc = kg_json_check(kg_buf_slice(&text), KG_JSON_DEPTH_MAX, &v);
        check = best(check, kg_now_ns() - start);
        kg_buf_clear(&out);
        start = kg_now_ns();
        rc = rc < 0 ? rc : kg_json_copy(&out, v);
        copy = best(copy, kg_now_ns() - start);
        kg_buf_clear(&out);
        start = kg_now_ns();
        rc = rc < 0 ? rc : kg_json_escape(&out, text.data, text.len);
        escape = best(escape, kg_now_ns() - start);
    }
    if (rc == 0) {
        printf("%-10s check %7.0f  copy %7.0f  escape %7.0f MB/s\n", name, rate(text.len, check),
               rate(text.len, copy), rate(text.len, escape));
    }
    return rc;
}

static int measure_sign(size_t size)
{
    KG_AUTO_FREE char *data = calloc(1, size);
    kg_wire_key_t key = {0};
    char hex[KG_WIRE_SIG_LEN + 1];
    if (!data || kg_wire_key_set(&key, "key", 3) < 0) {
        return -1;
    }
    const kg_slice_t parts[4] = {{0}, {0}, {0}, kg_slice(data, size)};
    uint64_t start = kg_now_ns();
    kg_wire_sign(&key, parts, hex);
    printf("%-10s %.0f MB/s\n", "sign", rate(size, kg_now_ns() - start));
    return 0;
}

/* Small messages as a printing loop sends them: split, verify, check, read. */
static int measure_parse(size_t count)
{
    char sig[KG_WIRE_SIG_LEN + 1];
    kg_wire_key_t key = {0};
    char hex[65];
    kg_wire_key_generate(&key, hex);
    kg_slice_t frames[7] = {
        kg_slice_cstr("kernel.0f3a.stream"),
        kg_slice_cstr("<IDS|MSG>"),
        {0},
        kg_slice_cstr(
            "{\"msg_id\":\"c4a9d1d2-8f7bbf61ad1d8ec9ab24b2c6_9_17\",\"msg_type\":\"stream\","
            "\"username\":\"sandal\",\"session\":\"c4a9d1d2-8f7bbf61ad1d8ec9ab24b2c6\","
            "\"date\":\"2026-01-02T03:04:05.678901Z\",\"version\":\"5.3\"}"),
        kg_slice_cstr("{\"msg_id\":\"0a1b_1\",\"username\":\"sandal\",\"session\":\"0a1b\","
                      "\"date\":\"2026-01-02T03:04:05.678901Z\",\"msg_type\":\"execute_request\","
                      "\"version\":\"5.3\"}"),
        kg_slice_cstr("{}"),
        kg_slice_cstr("{\"name\":\"stdout\",\"text\":\"line 12345\\n\"}"),
    };
    kg_wire_sign(&key, &frames[3], sig);
    frames[2] = kg_slice_cstr(sig);
    uint64_t start = kg_now_ns();
    for (size_t i = 0; i < count; i++) {
        kg_jmsg_t msg;
        if (kg_jmsg_parse(frames, KG_ARRAY_LEN(frames), &key, &msg, NULL) < 0) {
            return -1;
        }
    }
    printf("%-10s %.0f messages/s\n", "parse", (double)count * 1e9 / (double)(kg_now_ns() - start));
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t megabytes = 32;
    if (argc > 1 && kg_parse_u64(argv[1], 1, 1024, &megabytes) < 0) {
        (void)fprintf(stderr, "usage: bench_json [MEGABYTES]\n");
        return 2;
    }
    size_t size = (size_t)megabytes << 20;
    int rc = measure("plain", make_plain, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("lines", make_lines, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("french", make_french, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("cjk", make_cjk, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("escapes", make_escapes, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("bad", make_bad, "\"", "\"", size);
    rc = rc < 0 ? rc : measure("numbers", make_numbers, "[", "]", size);
    rc = rc < 0 ? rc : measure("objects", make_objects, "[", "]", size);
    rc = rc < 0 ? rc : measure_sign(size);
    rc = rc < 0 ? rc : measure_parse(200000);
    return rc == 0 ? 0 : 1;
}
