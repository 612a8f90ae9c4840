/* json_scan over any text. What is accepted must come out as strict JSON: our own strict test, a
 * second pass without a change, and jansson where it can take it; parts found by iteration must be
 * values themselves; escaped text can be cut and stripped anywhere. */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>

#include "fuzz_json.h"
#include "proto/json_scan.h"

enum {
    DEPTH = 64,
    WALK_DEPTH = 4
};

static void must_please_jansson(const kg_buf_t *text)
{
    json_error_t error;
    json_t *tree = json_loadb(text->data, text->len,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (tree) {
        json_decref(tree);
        return;
    }
    enum json_error_code code = json_error_code(&error);
    /* Numbers beyond 64 bits, and members named by U+0000, are JSON that jansson cannot hold. */
    must(code == json_error_numeric_overflow || code == json_error_null_byte_in_key);
}

static void walk(kg_json_value_t v, unsigned depth)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t member;
    int64_t number;
    (void)kg_json_int(v, &number);
    (void)kg_json_get(v, "a");
    kg_json_iter_init(&it, v);
    while (depth < WALK_DEPTH && kg_json_iter_next(&it, &key, &member)) {
        kg_json_value_t again;
        must(kg_json_check(member.raw, DEPTH, &again) == 0);
        must(again.type == member.type && kg_slice_eq(again.raw, member.raw));
        must((key.data != NULL) == (v.type == KG_JSON_OBJECT));
        if (key.data) {
            must(kg_json_check(key, 1, &again) == 0 && again.type == KG_JSON_STRING);
            (void)kg_json_key_eq(key, "msg_id");
        }
        walk(member, depth + 1);
    }
}

static void try_string(kg_json_value_t v, size_t max)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    KG_AUTO_BUF kg_buf_t bytes = {0};
    KG_AUTO_BUF kg_buf_t back = {0};
    KG_AUTO_BUF kg_buf_t whole = {0};
    KG_AUTO_BUF kg_buf_t parts = {0};
    must(kg_json_copy_string_body(&body, v) == 0);
    must(kg_json_decode_string(&bytes, v) == 0);
    must(kg_utf8_valid(bytes.data, bytes.len));
    must(kg_json_escape(&back, bytes.data, bytes.len) == 0);
    must(kg_slice_eq(kg_buf_slice(&back), kg_buf_slice(&body)));

    size_t cut = kg_json_escaped_floor(body.data, body.len, max);
    must(cut <= body.len && (cut <= max || cut == body.len));
    kg_ansi_strip_t one = {0};
    kg_ansi_strip_t two = {0};
    must(kg_ansi_strip_escaped(&one, &whole, body.data, body.len) == 0);
    must(kg_ansi_strip_escaped(&two, &parts, body.data, cut) == 0);
    must(kg_ansi_strip_escaped(&two, &parts, body.data + cut, body.len - cut) == 0);
    must(kg_slice_eq(kg_buf_slice(&whole), kg_buf_slice(&parts)));

    KG_AUTO_BUF kg_buf_t half = {0};
    must(kg_buf_append_char(&half, '"') == 0);
    must(kg_buf_append(&half, body.data, cut) == 0);
    must(kg_buf_append_char(&half, '"') == 0);
    must(kg_json_check(kg_buf_slice(&half), 1, NULL) == 0);
    must_be_clean(&half);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_json_value_t v;
    KG_AUTO_BUF kg_buf_t once = {0};
    KG_AUTO_BUF kg_buf_t twice = {0};
    kg_slice_t text = kg_slice((const char *)data, size);
    /* Never checked, yet harmless. */
    kg_ansi_strip_t strip = {0};
    must(kg_ansi_strip_escaped(&strip, &once, text.data, text.len) == 0);
    (void)kg_json_escaped_floor(text.data, text.len, size / 2);
    (void)kg_json_decode_string(&once, (kg_json_value_t){KG_JSON_STRING, text});
    kg_buf_clear(&once);
    int rc = kg_json_check(text, DEPTH, &v);
    if (rc < 0) {
        must(rc == -EBADMSG || rc == -E2BIG);
        return 0;
    }
    walk(v, 0);
    must(kg_json_copy(&once, v) == 0);
    must_be_clean(&once);
    must_please_jansson(&once);
    must(kg_json_check(kg_buf_slice(&once), DEPTH, &v) == 0 && v.raw.len == once.len);
    must(kg_json_copy(&twice, v) == 0);
    must(kg_slice_eq(kg_buf_slice(&once), kg_buf_slice(&twice)));
    if (v.type == KG_JSON_STRING) {
        try_string(v, size / 2);
    }
    return 0;
}
