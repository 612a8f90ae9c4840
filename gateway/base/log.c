/* gateway/base: the operator log. Level and format are the only mutable state of the process: set
 * once by kg_log_init before threads, read-only afterwards. One line is one write(2), so that lines
 * of several threads and of the keeper never mix. */
#include "gateway/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/buf.h"
#include "gateway/base/clock.h"
#include "gateway/base/utf8.h"

static kg_log_level_t log_level = KG_LOG_INFO;
static bool log_json;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void kg_log_init(kg_log_level_t level, bool json)
{
    log_level = level;
    log_json = json;
}

int kg_log_level_parse(const char *name, kg_log_level_t *ret_level)
{
    for (size_t i = 0; name && i < KG_ARRAY_LEN(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (kg_log_level_t)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Writes \n, \t, \" and the like, \u00XX for other controls (C1 ones too: terminals obey them). */
static int put_clean(kg_buf_t *out, const char *text, size_t len, bool quoted)
{
    KG_AUTO_BUF kg_buf_t good = {0};
    int rc = kg_utf8_repair(&good, text, len);
    for (size_t i = 0; rc == 0 && i < good.len; i++) {
        unsigned char c = (unsigned char)good.data[i];
        bool c1 = c == 0xC2 && (unsigned char)good.data[i + 1] < 0xA0;
        if (c1) {
            rc = kg_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)good.data[++i]);
        } else if (quoted && (c == '"' || c == '\\')) {
            rc = kg_buf_printf(out, "\\%c", c);
        } else if (c == '\n') {
            rc = kg_buf_append_cstr(out, "\\n");
        } else if (c == '\t') {
            rc = kg_buf_append_cstr(out, "\\t");
        } else if (c < 0x20 || c == 0x7F) {
            rc = kg_buf_printf(out, "\\u%04x", (unsigned)c);
        } else {
            rc = kg_buf_append_char(out, (char)c);
        }
    }
    return rc;
}

const char *kg_log_quote(const char *value, char *ret, size_t cap)
{
    bool plain = *value != '\0' && !strpbrk(value, " \"=\\\t\n");
    size_t at = 0;
    if (cap < 3) {
        ret[0] = '\0';
        return ret;
    }
    if (!plain) {
        ret[at++] = '"';
    }
    for (const char *p = value; *p && at + 4 <= cap; p++) {
        if (*p == '"' || *p == '\\') {
            ret[at++] = '\\';
        }
        ret[at++] = *p;
    }
    if (!plain) {
        ret[at++] = '"';
    }
    ret[at] = '\0';
    return ret;
}

/* One `key=value` of the fields as a JSON member; quotes and backslashes of kg_log_quote undone. */
static const char *put_member(kg_buf_t *out, const char *p, int *rc)
{
    size_t key = strcspn(p, "= ");
    *rc = kg_buf_append_cstr(out, ",\"");
    *rc = *rc < 0 ? *rc : put_clean(out, p, key, true);
    *rc = *rc < 0 ? *rc : kg_buf_append_cstr(out, "\":\"");
    p += key;
    KG_AUTO_BUF kg_buf_t value = {0};
    if (*p == '=') {
        p++;
        bool quoted = *p == '"';
        p += quoted;
        while (*rc == 0 && *p && *p != (quoted ? '"' : ' ')) {
            p += quoted && *p == '\\' && p[1];
            *rc = kg_buf_append_char(&value, *p++);
        }
        p += quoted && *p == '"';
    }
    *rc = *rc < 0 ? *rc : put_clean(out, value.data, value.len, true);
    *rc = *rc < 0 ? *rc : kg_buf_append_char(out, '"');
    return p;
}

static int
put_json(kg_buf_t *line, const char *ts, const char *level, const char *event, const char *fields)
{
    int rc =
        kg_buf_printf(line, "{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"", ts, level, event);
    for (const char *p = fields; rc == 0 && *p;) {
        if (*p == ' ') {
            p++;
        } else {
            p = put_member(line, p, &rc);
        }
    }
    return rc < 0 ? rc : kg_buf_append_cstr(line, "}\n");
}

static int
put_text(kg_buf_t *line, const char *ts, const char *level, const char *event, const char *fields)
{
    int rc = kg_buf_printf(line, "%s %s %s%s", ts, level, event, *fields ? " " : "");
    rc = rc < 0 ? rc : put_clean(line, fields, strlen(fields), false);
    return rc < 0 ? rc : kg_buf_append_char(line, '\n');
}

static void write_all(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return; /* nobody left to tell */
        }
        data += n;
        len -= (size_t)n;
    }
}

void kg_log(kg_log_level_t level, const char *event, const char *fields, ...)
{
    if (level < log_level) {
        return;
    }
    int saved = errno;
    KG_AUTO_BUF kg_buf_t text = {0};
    KG_AUTO_BUF kg_buf_t line = {0};
    char ts[KG_TIME_LEN];
    kg_time_format(kg_wall_ns(), ts);
    va_list ap;
    va_start(ap, fields);
    int rc = kg_buf_vprintf(&text, fields, ap);
    va_end(ap);
    const char *body = rc < 0 ? "memory=out" : text.data;
    rc = log_json ? put_json(&line, ts, level_names[level], event, body)
                  : put_text(&line, ts, level_names[level], event, body);
    if (rc == 0) {
        write_all(line.data, line.len);
    } else {
        static const char lost[] = "log line lost: out of memory\n";
        write_all(lost, sizeof lost - 1);
    }
    errno = saved;
}
