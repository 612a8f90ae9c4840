/* Heads of answers and the JSON error body. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "gateway/base/log.h"
#include "gateway/edge/edge_priv.h"

static const struct {
    int status;
    const char *text;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {507, "Insufficient Storage"},
};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].text;
        }
    }
    return "Status";
}

static const char *date_now(kg_edge_t *edge)
{
    uint64_t now_s = kg_wall_ns() / KG_NS_PER_S;
    if (now_s != edge->date_s) {
        time_t t = (time_t)now_s;
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(edge->date, sizeof(edge->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        edge->date_s = now_s;
    }
    return edge->date;
}

/* No header may end its line early: what comes from requests could otherwise forge answers. */
static bool header_safe(const kg_header_t *header)
{
    return header->name && header->value && !strpbrk(header->name, "\r\n: ") &&
           !strpbrk(header->value, "\r\n");
}

static int append_headers(kg_buf_t *out, const kg_header_t *headers, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        if (!header_safe(&headers[i])) {
            kg_log(KG_LOG_ERROR, "edge.header_refused", "name=%s",
                   headers[i].name ? headers[i].name : "");
            continue;
        }
        rc |= kg_buf_printf(out, "%s: %s\r\n", headers[i].name, headers[i].value);
    }
    return rc;
}

int kg_answer_head(kg_edge_t *edge, kg_buf_t *out, const kg_answer_t *answer)
{
    int status = answer->status;
    bool bodyless = status == 204 || status == 304;
    int rc = kg_buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, reason_of(status),
                           date_now(edge));
    if (!bodyless) {
        const char *type = answer->content_type ? answer->content_type : "application/json";
        rc |= kg_buf_printf(out, "Content-Type: %s\r\n", type);
    }
    rc |= append_headers(out, answer->headers, answer->header_count);
    if (answer->length >= 0 && !bodyless) {
        rc |= kg_buf_printf(out, "Content-Length: %" PRId64 "\r\n", answer->length);
    } else if (answer->length == KG_LENGTH_CHUNKED) {
        rc |= kg_buf_append_cstr(out, "Transfer-Encoding: chunked\r\n");
    }
    if (answer->close_after) {
        rc |= kg_buf_append_cstr(out, "Connection: close\r\n");
    }
    rc |= kg_buf_append_cstr(out, "\r\n");
    return rc ? -ENOMEM : 0;
}

static int append_json_string(kg_buf_t *out, const char *s)
{
    int rc = kg_buf_append_char(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            rc |= kg_buf_append_char(out, '\\');
            rc |= kg_buf_append_char(out, (char)c);
        } else if (c < 0x20) {
            rc |= kg_buf_printf(out, "\\u%04x", c);
        } else {
            rc |= kg_buf_append_char(out, (char)c);
        }
    }
    return rc | kg_buf_append_char(out, '"');
}

static int append_member(kg_buf_t *out, const char *name, const char *value)
{
    if (!value[0]) {
        return 0;
    }
    int rc = kg_buf_printf(out, ",\"%s\":", name);
    return rc | append_json_string(out, value);
}

int kg_edge_error_body(const kg_err_t *err, kg_buf_t *out)
{
    int rc = kg_buf_printf(out, "{\"error\":{\"code\":\"%s\",\"message\":", kg_err_name(err->code));
    rc |= append_json_string(out, err->message);
    rc |= append_member(out, "hint", kg_err_hint_of(err));
    rc |= append_member(out, "pointer", err->pointer);
    rc |= kg_buf_append_cstr(out, "}}");
    return rc ? -ENOMEM : 0;
}

int kg_answer_error(kg_edge_t *edge, kg_buf_t *out, const kg_err_t *err, const kg_header_t *extra)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    int rc = kg_edge_error_body(err, &body);
    kg_answer_t answer = {
        .status = kg_err_status(err->code),
        .headers = extra,
        .header_count = extra ? 1 : 0,
        .length = (int64_t)body.len,
        .close_after = true,
    };
    rc |= kg_answer_head(edge, out, &answer);
    rc |= kg_buf_append_slice(out, kg_buf_slice(&body));
    return rc ? -ENOMEM : 0;
}
