/* Heads: what http_parser reports piece by piece, kept as rows of one text. */
#include <errno.h>
#include <strings.h>

#include "gateway/edge/proxy_head.h"

void proxy_head_clear(proxy_head_t *head)
{
    kg_buf_clear(&head->text);
    head->url_len = 0;
    head->count = 0;
    head->in_value = false;
    head->too_large = false;
}

void proxy_head_fini(proxy_head_t *head)
{
    kg_buf_fini(&head->text);
    proxy_head_clear(head);
}

static int add(proxy_head_t *head, const char *at, size_t len)
{
    if (len > PROXY_HEAD_MAX - head->text.len) {
        head->too_large = true;
        return -E2BIG;
    }
    return kg_buf_append(&head->text, at, len);
}

int proxy_head_url(proxy_head_t *head, const char *at, size_t len)
{
    int r = add(head, at, len);
    head->url_len = r == 0 ? head->url_len + (uint32_t)len : head->url_len;
    return r;
}

int proxy_head_name(proxy_head_t *head, const char *at, size_t len)
{
    if (head->count == 0 || head->in_value) {
        if (head->count == PROXY_ROWS_MAX) {
            head->too_large = true;
            return -E2BIG;
        }
        head->rows[head->count++] = (proxy_row_t){.name = (uint32_t)head->text.len};
        head->in_value = false;
    }
    int r = add(head, at, len);
    head->rows[head->count - 1].name_len += r == 0 ? (uint32_t)len : 0;
    return r;
}

int proxy_head_value(proxy_head_t *head, const char *at, size_t len)
{
    if (head->count == 0) {
        return -EINVAL;
    }
    proxy_row_t *row = &head->rows[head->count - 1];
    if (!head->in_value) {
        row->value = (uint32_t)head->text.len;
        head->in_value = true;
    }
    int r = add(head, at, len);
    row->value_len += r == 0 ? (uint32_t)len : 0;
    return r;
}

kg_slice_t proxy_head_row_name(const proxy_head_t *head, unsigned row)
{
    return kg_slice(head->text.data + head->rows[row].name, head->rows[row].name_len);
}

kg_slice_t proxy_trim(kg_slice_t s)
{
    while (s.len > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

kg_slice_t proxy_head_row_value(const proxy_head_t *head, unsigned row)
{
    return proxy_trim(kg_slice(head->text.data + head->rows[row].value, head->rows[row].value_len));
}

kg_slice_t proxy_head_get(const proxy_head_t *head, const char *name)
{
    for (unsigned i = 0; i < head->count; i++) {
        if (proxy_is(proxy_head_row_name(head, i), name)) {
            return proxy_head_row_value(head, i);
        }
    }
    return (kg_slice_t){NULL, 0};
}

unsigned proxy_head_times(const proxy_head_t *head, const char *name)
{
    unsigned times = 0;
    for (unsigned i = 0; i < head->count; i++) {
        times += proxy_is(proxy_head_row_name(head, i), name);
    }
    return times;
}

static bool list_has(kg_slice_t list, kg_slice_t word)
{
    while (list.len > 0) {
        const char *comma = memchr(list.data, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.data) : list.len;
        kg_slice_t item = proxy_trim(kg_slice(list.data, len));
        if (item.len == word.len && strncasecmp(item.data, word.data, word.len) == 0) {
            return true;
        }
        size_t step = comma ? len + 1 : len;
        list.data += step;
        list.len -= step;
    }
    return false;
}

bool proxy_head_lists(const proxy_head_t *head, const char *name, kg_slice_t word)
{
    for (unsigned i = 0; i < head->count; i++) {
        if (proxy_is(proxy_head_row_name(head, i), name) &&
            list_has(proxy_head_row_value(head, i), word)) {
            return true;
        }
    }
    return false;
}

/* Names are tokens, values have no control characters; the parser is not that strict. */
bool proxy_row_valid(kg_slice_t name, kg_slice_t value)
{
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
        if (!plain && (c <= ' ' || c >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", c))) {
            return false;
        }
    }
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return name.len > 0;
}

static bool url_valid(const proxy_head_t *head)
{
    for (size_t i = 0; i < head->url_len; i++) {
        unsigned char c = (unsigned char)head->text.data[i];
        if (c <= ' ' || c == 0x7f) {
            return false;
        }
    }
    return head->url_len > 0;
}

const char *proxy_request_wrong(const proxy_head_t *head, const http_parser *parser)
{
    kg_slice_t encoding = proxy_head_get(head, "transfer-encoding");
    unsigned encodings = proxy_head_times(head, "transfer-encoding");
    unsigned lengths = proxy_head_times(head, "content-length");
    if (!url_valid(head)) {
        return "The path has characters that must be encoded.";
    }
    for (unsigned i = 0; i < head->count; i++) {
        if (!proxy_row_valid(proxy_head_row_name(head, i), proxy_head_row_value(head, i))) {
            return "A header's name or value has characters that may not be there.";
        }
    }
    if (encodings > 0 && lengths > 0) {
        return "Content-Length and Transfer-Encoding contradict each other.";
    }
    if (lengths > 1) {
        return "Content-Length stands there more than once.";
    }
    if (encodings > 1 || (encodings == 1 && !proxy_is(encoding, "chunked"))) {
        return "The only Transfer-Encoding that is understood is chunked.";
    }
    if (encodings > 0 && (parser->http_major != 1 || parser->http_minor < 1)) {
        return "HTTP/1.0 has no Transfer-Encoding.";
    }
    if (parser->http_major != 1 || parser->http_minor > 1) {
        return "Only HTTP/1.1 and HTTP/1.0 are spoken here.";
    }
    if (proxy_head_times(head, "host") > 1 ||
        (parser->http_minor == 1 && proxy_head_times(head, "host") == 0)) {
        return "Exactly one Host header is needed.";
    }
    if (parser->method == HTTP_CONNECT || parser->method == HTTP_TRACE) {
        return "This method is not passed on.";
    }
    return NULL;
}
