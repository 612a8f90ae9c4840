/* gateway/api: JSON trees as YAML. Block style; every string that is not a plain word of safe
 * letters stands in double quotes with JSON's escapes, which YAML reads alike, so there is nothing
 * to guess: no "no", "1.0" or "2026-01-01". */
#include <errno.h>
#include <string.h>

#include "gateway/api/api.h"

static bool reserved(const char *s)
{
    static const char *const words[] = {"y",   "n",    "yes", "no",  "true", "false", "on",
                                        "off", "null", "nan", "inf", "Y",    "N",     "none"};
    for (size_t i = 0; i < KG_ARRAY_LEN(words); i++) {
        if (strcmp(words[i], s) == 0) {
            return true;
        }
    }
    return false;
}

/* A letter or underscore, then letters, digits, "_", "-" and "/": no YAML reader takes it for
 * anything but a string. */
static bool plain(const char *s)
{
    size_t len = strlen(s);
    if (len == 0 || len > 60 || reserved(s)) {
        return false;
    }
    for (const char *p = s; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || *p == '_' || (*p >= 'A' && *p <= 'Z' && p != s);
        bool inner = p != s && ((*p >= '0' && *p <= '9') || *p == '-' || *p == '/');
        if (!letter && !inner) {
            return false;
        }
    }
    return true;
}

static int put_scalar(kg_buf_t *out, json_t *value)
{
    if (json_is_string(value) && plain(json_string_value(value))) {
        return kg_buf_append_cstr(out, json_string_value(value));
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = text ? kg_buf_append_cstr(out, text) : -ENOMEM;
    free(text);
    return rc;
}

static int put_key(kg_buf_t *out, const char *key)
{
    if (plain(key)) {
        return kg_buf_append_cstr(out, key);
    }
    json_t *s = json_string(key);
    int rc = s ? put_scalar(out, s) : -ENOMEM;
    json_decref(s);
    return rc;
}

static int put_indent(kg_buf_t *out, unsigned depth)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < depth; i++) {
        rc = kg_buf_append_cstr(out, "  ");
    }
    return rc;
}

static bool is_block(json_t *value)
{
    return (json_is_object(value) && json_object_size(value)) ||
           (json_is_array(value) && json_array_size(value));
}

static int put_block(kg_buf_t *out, json_t *value, unsigned depth, bool in_line);

/* What follows "key:" or "-". */
static int put_value(kg_buf_t *out, json_t *value, unsigned depth, bool item)
{
    if (!is_block(value)) {
        int rc = kg_buf_append_char(out, ' ');
        rc = rc ? rc : put_scalar(out, value);
        return rc ? rc : kg_buf_append_char(out, '\n');
    }
    int rc = kg_buf_append_char(out, item ? ' ' : '\n');
    return rc ? rc : put_block(out, value, depth + 1, item);
}

/* in_line: the first line is begun already, behind "- ". */
static int put_block(kg_buf_t *out, json_t *value, unsigned depth, bool in_line)
{
    int rc = 0;
    size_t i;
    json_t *item;
    const char *key;
    if (json_is_array(value)) {
        json_array_foreach (value, i, item) {
            rc = rc ? rc : put_indent(out, in_line && i == 0 ? 0 : depth);
            rc = rc ? rc : kg_buf_append_char(out, '-');
            rc = rc ? rc : put_value(out, item, depth, true);
        }
        return rc;
    }
    /* jansson keeps members in the order in which they were set. */
    json_object_foreach (value, key, item) {
        rc = rc ? rc : put_indent(out, in_line ? 0 : depth);
        rc = rc ? rc : put_key(out, key);
        rc = rc ? rc : kg_buf_append_char(out, ':');
        rc = rc ? rc : put_value(out, item, depth, false);
        in_line = false;
    }
    return rc;
}

int kg_yaml_dump(json_t *value, kg_buf_t *out)
{
    if (!value) {
        return -EIO;
    }
    if (is_block(value)) {
        return put_block(out, value, 0, false);
    }
    int rc = put_scalar(out, value);
    return rc ? rc : kg_buf_append_char(out, '\n');
}
