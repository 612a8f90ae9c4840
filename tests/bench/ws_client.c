/* bench: the client's side of WebSocket. */
#include "tests/bench/ws_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum {
    FIN = 0x80,
    MASKED = 0x80,
    OP_CLOSE = 8,
    HEAD_MAX = 14,
};

static void send_all(int fd, struct iovec *iov, int count)
{
    while (count > 0) {
        ssize_t n = writev(fd, iov, count);
        if (n <= 0) {
            bench_fail("write");
        }
        while (count > 0 && (size_t)n >= iov->iov_len) {
            n -= (ssize_t)iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (char *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
}

static void fill(ws_client_t *c, size_t need)
{
    if (c->at > 0 && (c->at == c->in.len || c->at > (1U << 20))) {
        kg_buf_consume(&c->in, c->at);
        c->at = 0;
    }
    while (c->in.len - c->at < need) {
        if (kg_buf_reserve(&c->in, 1U << 18) < 0) {
            bench_fail("memory");
        }
        ssize_t n = read(c->fd, c->in.data + c->in.len, c->in.cap - c->in.len - 1);
        if (n <= 0) {
            bench_fail("the server closed the connection");
        }
        c->in.len += (size_t)n;
        if (c->quick_ack) {
            int one = 1; /* holds for some acknowledgements only */
            setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
        }
    }
}

static void read_answer(ws_client_t *c, const char *protocol)
{
    for (;;) {
        fill(c, c->in.len + 1);
        char *end = memmem(c->in.data, c->in.len, "\r\n\r\n", 4);
        if (!end) {
            continue;
        }
        bool good = strncmp(c->in.data, "HTTP/1.1 101", 12) == 0;
        size_t len = (size_t)(end - c->in.data);
        if (!good || (protocol && !memmem(c->in.data, len, protocol, strlen(protocol)))) {
            fprintf(stderr, "%.*s\n", (int)c->in.len, c->in.data);
            bench_fail("no upgrade");
        }
        c->at = len + 4;
        return;
    }
}

void ws_client_open(ws_client_t *c,
                    const char *host,
                    const char *port,
                    const char *target,
                    const char *authorization,
                    const char *protocol)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    KG_AUTO_BUF kg_buf_t head = {0};
    *c = (ws_client_t){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                       .quick_ack = getenv("BENCH_QUICK_ACK") != NULL};
    inet_pton(AF_INET, host, &to.sin_addr);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        bench_fail("connect");
    }
    kg_buf_printf(&head,
                  "GET %s HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: %s\r\nUpgrade: websocket\r\n"
                  "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
                  "dGhlIHNhbXBsZSBub25jZQ==\r\n%s%s%s\r\n",
                  target, host, port, authorization, protocol ? "Sec-WebSocket-Protocol: " : "",
                  protocol ? protocol : "", protocol ? "\r\n" : "");
    struct iovec iov = {head.data, head.len};
    send_all(c->fd, &iov, 1);
    read_answer(c, protocol);
}

void ws_client_close(ws_client_t *c)
{
    close(c->fd);
    kg_buf_fini(&c->in);
}

/* The mask is zero, which the protocol allows. */
void ws_client_send(ws_client_t *c, unsigned opcode, kg_slice_t data)
{
    unsigned char head[HEAD_MAX] = {(unsigned char)(FIN | opcode)};
    unsigned more = data.len < 126 ? 0 : data.len < 65536 ? 2 : 8;
    head[1] = (unsigned char)(MASKED | (more == 0 ? data.len : more == 2 ? 126 : 127));
    for (unsigned i = 0; i < more; i++) {
        head[2 + i] = (unsigned char)(data.len >> (8 * (more - 1 - i)));
    }
    struct iovec iov[] = {{head, 2 + more + 4}, {NULL, data.len}};
    memcpy(&iov[1].iov_base, &data.data, sizeof(data.data));
    send_all(c->fd, iov, 2);
}

void ws_client_receive(ws_client_t *c, kg_buf_t *out)
{
    kg_buf_clear(out);
    for (;;) {
        fill(c, 2);
        const unsigned char *p = (const unsigned char *)c->in.data + c->at;
        bool fin = p[0] & FIN;
        unsigned op = p[0] & 0x0f;
        uint64_t len = p[1] & 0x7f;
        size_t head = len == 126 ? 4 : len == 127 ? 10 : 2;
        fill(c, head);
        p = (const unsigned char *)c->in.data + c->at;
        if (head > 2) {
            len = 0;
            for (size_t i = 2; i < head; i++) {
                len = len << 8 | p[i];
            }
        }
        c->at += head;
        fill(c, len);
        if (op == OP_CLOSE) {
            bench_fail("closed by the server");
        }
        if (op < OP_CLOSE) {
            kg_buf_append(out, c->in.data + c->at, len);
        }
        c->at += len;
        c->bytes += len;
        if (op < OP_CLOSE && fin) {
            return;
        }
    }
}

bool ws_client_has_more(const ws_client_t *c)
{
    return c->in.len > c->at;
}
