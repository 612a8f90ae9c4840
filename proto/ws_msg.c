/* proto: what both WebSocket protocols need. Kernels legally send bytes that no browser takes: bad
 * UTF-8, NaN, raw control characters. Most messages have none of them and go through as they are.
 */
#include "proto/ws_msg.h"

#include <errno.h>

#include "gateway/base/utf8.h"
#include "proto/json_lex.h"

int kg_channel_parse(kg_slice_t name, kg_channel_t *ret_channel)
{
    for (int c = KG_CHANNEL_SHELL; c <= KG_CHANNEL_IOPUB; c++) {
        if (kg_slice_eq_cstr(name, kg_channel_name((kg_channel_t)c))) {
            *ret_channel = (kg_channel_t)c;
            return 0;
        }
    }
    return -ENOENT;
}

static bool has_control(kg_slice_t text)
{
    size_t i = 0;
    for (; i + 8 <= text.len; i += 8) {
        uint64_t word;
        memcpy(&word, text.data + i, sizeof word);
        if (kg_json_has_less(word, 0x20)) {
            return true;
        }
    }
    while (i < text.len && (unsigned char)text.data[i] >= 0x20) {
        i++;
    }
    return i < text.len;
}

static bool has_word(kg_slice_t text, const char *word)
{
    return memmem(text.data, text.len, word, strlen(word)) != NULL;
}

/* Errs on the side of repairing: a string may hold the words. */
static bool is_clean(kg_slice_t text)
{
    return !has_control(text) && kg_utf8_valid(text.data, text.len) && !has_word(text, "NaN") &&
           !has_word(text, "Infinity");
}

/* The members that can be copied. */
static int copy_members(kg_buf_t *out, kg_json_value_t object)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    const char *before = "{";
    kg_json_iter_init(&it, object);
    while (kg_json_iter_next(&it, &key, &value)) {
        size_t start = out->len;
        int rc = kg_json_check(value.raw, KG_JSON_DEPTH_MAX - 1, NULL);
        rc = rc < 0 ? rc : kg_buf_append_cstr(out, before);
        rc = rc < 0 ? rc : kg_json_copy(out, (kg_json_value_t){KG_JSON_STRING, key});
        rc = rc < 0 ? rc : kg_buf_append_char(out, ':');
        rc = rc < 0 ? rc : kg_json_copy(out, value);
        if (rc == -ENOMEM) {
            return rc;
        }
        if (rc < 0) {
            out->len = start;
        } else {
            before = ",";
        }
    }
    return kg_buf_append_cstr(out, before[0] == '{' ? "{}" : "}");
}

int kg_ws_clean_part(kg_json_value_t part, bool deep, kg_buf_t *store, kg_slice_t *ret)
{
    if (!deep && is_clean(part.raw)) {
        *ret = part.raw;
        return 0;
    }
    size_t start = store->len;
    int rc = kg_json_copy(store, part);
    if (deep && rc < 0 && rc != -ENOMEM) {
        rc = copy_members(store, part);
    }
    if (rc < 0) {
        store->len = start;
        return rc;
    }
    *ret = kg_slice(store->data + start, store->len - start);
    return 0;
}
