/* A real edge, fed over a socketpair in slices of at most 143 bytes, so that every state meets a
 * split read. */
#ifndef FUZZ_EDGE_H
#define FUZZ_EDGE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/utf8.h"
#include "gateway/edge/edge.h"

#define SLICE 143

typedef struct fuzz_edge {
    kg_loop_t *loop;
    kg_edge_t *edge;
    int fd; /* the client's end */
    kg_buf_t out;
} fuzz_edge_t;

static inline void fuzz_must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static inline void fuzz_stop(void *user)
{
    kg_loop_stop(user);
}

static inline void fuzz_turn(fuzz_edge_t *f)
{
    fuzz_must(kg_loop_later(f->loop, fuzz_stop, f->loop) == 0);
    kg_loop_run(f->loop);
}

static inline void fuzz_start(fuzz_edge_t *f, const kg_edge_handler_t *handler)
{
    if (f->edge) {
        return;
    }
    kg_log_init(KG_LOG_ERROR, false);
    kg_edge_opts_t opts = {
        .body_max = 4096,
        .ws_message_max = 4096,
        .ws_queue_max = 16384,
        /* longer than a busy machine takes from one turn to the next */
        .header_timeout_ms = 60000,
        .body_timeout_ms = 60000,
        .idle_timeout_ms = 60000,
    };
    kg_err_t err = {0};
    fuzz_must(kg_loop_create(&f->loop) == 0);
    fuzz_must(kg_edge_create(f->loop, &opts, handler, &f->edge, &err) == 0);
}

static inline void fuzz_connect(fuzz_edge_t *f)
{
    int fds[2];
    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    f->fd = fds[0];
    kg_buf_clear(&f->out);
    (void)kg_edge_adopt_take(f->edge, fds[1], 0);
}

static inline void fuzz_collect(fuzz_edge_t *f)
{
    char buf[16384];
    ssize_t n;
    while ((n = recv(f->fd, buf, sizeof(buf), 0)) > 0) {
        (void)kg_buf_append(&f->out, buf, (size_t)n);
    }
}

static inline void fuzz_feed(fuzz_edge_t *f, const uint8_t *data, size_t len)
{
    while (len > 0) {
        size_t n = len < SLICE ? len : SLICE;
        ssize_t sent = send(f->fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) {
            return;
        }
        if (sent > 0) {
            data += sent;
            len -= (size_t)sent;
        }
        fuzz_turn(f);
        fuzz_turn(f);
        fuzz_collect(f);
    }
    for (int i = 0; i < 6; i++) {
        fuzz_turn(f);
        fuzz_collect(f);
    }
}

static inline void fuzz_hang_up(fuzz_edge_t *f)
{
    close(f->fd);
    for (int i = 0; i < 3; i++) {
        fuzz_turn(f);
    }
}

#endif
