/* The client's side of the fixture: requests, answers and frames over a plain socket. */
#include "edge_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

client_t client_wrap(int fd)
{
    return (client_t){.fd = fd};
}

client_t client_connect(unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return client_wrap(fd);
}

void client_send_bytes(client_t *c, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* the peer is gone: what it said is for the reader to find */
        }
        at += n;
        len -= (size_t)n;
    }
}

void client_send(client_t *c, const char *text)
{
    client_send_bytes(c, text, strlen(text));
}

/* False at the end or after ms without a byte. */
static bool fill(client_t *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (poll(&p, 1, ms) != 1) {
        return false;
    }
    if (c->cap - c->len < 65536) {
        c->cap = c->cap * 2 + 131072;
        c->buf = realloc(c->buf, c->cap);
    }
    ssize_t n = recv(c->fd, c->buf + c->len, c->cap - c->len - 1, 0);
    if (n <= 0) {
        return false;
    }
    c->len += (size_t)n;
    c->buf[c->len] = '\0';
    return true;
}

static void consume(client_t *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->len - n + 1);
    c->len -= n;
}

static bool need(client_t *c, size_t n)
{
    while (c->len < n) {
        if (!fill(c, 10000)) {
            return false;
        }
    }
    return true;
}

static char *need_line(client_t *c)
{
    for (;;) {
        char *end = c->len ? memmem(c->buf, c->len, "\r\n", 2) : NULL;
        if (end) {
            return end;
        }
        if (!fill(c, 10000)) {
            return NULL;
        }
    }
}

static void read_chunked(client_t *c, response_t *r)
{
    size_t cap = 0;
    for (;;) {
        char *end = need_line(c);
        if (!end) {
            return;
        }
        size_t n = strtoul(c->buf, NULL, 16);
        consume(c, (size_t)(end - c->buf) + 2);
        if (!need(c, n + 2)) {
            return;
        }
        if (r->body_len + n + 1 > cap) {
            cap = 2 * cap + n + 1;
            r->body = realloc(r->body, cap);
        }
        memcpy(r->body + r->body_len, c->buf, n);
        r->body_len += n;
        r->body[r->body_len] = '\0';
        consume(c, n + 2);
        if (n == 0) {
            r->complete = true;
            return;
        }
    }
}

response_t client_read(client_t *c, bool head_only)
{
    response_t r = {0};
    char *end = NULL;
    while (!(end = c->len ? memmem(c->buf, c->len, "\r\n\r\n", 4) : NULL)) {
        if (!fill(c, 10000)) {
            return r;
        }
    }
    size_t head = (size_t)(end - c->buf) + 4;
    assert_true(head < sizeof(r.head));
    memcpy(r.head, c->buf, head);
    consume(c, head);
    r.status = atoi(r.head + 9);
    char *length = strcasestr(r.head, "content-length:");
    if (head_only || r.status == 204 || r.status == 100) {
        r.complete = true;
    } else if (length) {
        r.body_len = strtoul(length + 15, NULL, 10);
        r.complete = need(c, r.body_len);
        r.body_len = r.complete ? r.body_len : c->len;
        r.body = calloc(1, r.body_len + 1);
        if (r.body_len) {
            memcpy(r.body, c->buf, r.body_len);
            consume(c, r.body_len);
        }
    } else if (strcasestr(r.head, "transfer-encoding: chunked")) {
        read_chunked(c, &r);
    } else {
        while (fill(c, 10000)) {
        }
        r.body = calloc(1, c->len + 1);
        memcpy(r.body, c->buf, c->len);
        r.body_len = c->len;
        c->len = 0;
        r.complete = true;
    }
    return r;
}

response_t client_get(edge_fixture_t *f, const char *path)
{
    client_t c = client_connect(f->ports[0]);
    char text[512];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    client_send(&c, text);
    response_t r = client_read(&c, false);
    client_close(&c);
    return r;
}

void response_free(response_t *r)
{
    free(r->body);
    r->body = NULL;
}

unsigned long edge_settled(atomic_ulong *counter)
{
    unsigned long last = 0;
    for (int same = 0, i = 0; same < 30; i++) {
        assert_true(i < PATIENCE_MS / 10);
        usleep(10000);
        unsigned long now = atomic_load(counter);
        same = now == last && now > 0 ? same + 1 : 0;
        last = now;
    }
    return last;
}

bool client_closed_within(client_t *c, int ms)
{
    uint64_t until = kg_now_ns() + (uint64_t)ms * KG_NS_PER_MS;
    while (kg_now_ns() < until) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        char buf[4096];
        if (poll(&p, 1, 10) == 1 && recv(c->fd, buf, sizeof(buf), 0) <= 0) {
            return true;
        }
    }
    return false;
}

void client_close(client_t *c)
{
    close(c->fd);
    free(c->buf);
    *c = (client_t){.fd = -1};
}

void ws_handshake(client_t *c, const char *path, const char *extra)
{
    char text[1024];
    snprintf(
        text, sizeof(text),
        "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n",
        path, extra);
    client_send(c, text);
}

client_t ws_connect(unsigned port, const char *path, const char *protocols)
{
    client_t c = client_connect(port);
    char extra[256] = "";
    if (protocols) {
        snprintf(extra, sizeof(extra), "Sec-WebSocket-Protocol: %s\r\n", protocols);
    }
    ws_handshake(&c, path, extra);
    response_t r = client_read(&c, true);
    assert_int_equal(r.status, 101);
    assert_non_null(strstr(r.head, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    return c;
}

void ws_send(client_t *c, unsigned op_fin, const void *data, size_t len)
{
    unsigned char *frame = calloc(1, len + 14);
    const unsigned char *from = data;
    size_t n = 0;
    frame[n++] = (unsigned char)op_fin;
    if (len < 126) {
        frame[n++] = (unsigned char)(0x80 | len);
    } else if (len < 65536) {
        frame[n++] = 0x80 | 126;
        frame[n++] = (unsigned char)(len >> 8);
        frame[n++] = (unsigned char)len;
    } else {
        frame[n++] = 0x80 | 127;
        for (int i = 7; i >= 0; i--) {
            frame[n++] = (unsigned char)((uint64_t)len >> (8 * i));
        }
    }
    const unsigned char mask[4] = {1, 2, 3, 4};
    memcpy(frame + n, mask, 4);
    n += 4;
    for (size_t i = 0; i < len; i++) {
        frame[n + i] = (unsigned char)(from[i] ^ mask[i % 4]);
    }
    client_send_bytes(c, frame, n + len);
    free(frame);
}

void ws_send_text(client_t *c, const char *text)
{
    ws_send(c, 0x81, text, strlen(text));
}

frame_t ws_read_within(client_t *c, int ms)
{
    while (c->len < 2) {
        if (!fill(c, ms)) {
            return (frame_t){0};
        }
    }
    size_t header = 2;
    size_t len = (unsigned char)c->buf[1] & 0x7f;
    if (len >= 126) {
        size_t bytes = len == 126 ? 2 : 8;
        header += bytes;
        if (!need(c, header)) {
            return (frame_t){0};
        }
        len = 0;
        for (size_t i = 0; i < bytes; i++) {
            len = len << 8 | (unsigned char)c->buf[2 + i];
        }
    }
    if (!need(c, header + len)) {
        return (frame_t){0};
    }
    frame_t frame = {.op_fin = (unsigned char)c->buf[0], .len = len, .data = calloc(1, len + 1)};
    memcpy(frame.data, c->buf + header, len);
    if ((frame.op_fin & 15) == 8 && len >= 2) {
        frame.code = (unsigned)((unsigned char)frame.data[0] << 8 | (unsigned char)frame.data[1]);
    }
    consume(c, header + len);
    return frame;
}

frame_t ws_read(client_t *c)
{
    return ws_read_within(c, 10000);
}

size_t own_rss_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long size = 0;
    unsigned long rss = 0;
    if (file) {
        if (fscanf(file, "%lu %lu", &size, &rss) != 2) {
            rss = 0;
        }
        fclose(file);
    }
    return rss * 4;
}

double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
