/* The process's own stdout and stderr. Always read: a full pipe blocks the kernel for ever. And
 * what it had printed when it ended, but not sent. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"
#include "gateway/sandbox/last_words.h"

#define READ_BYTES 16384
#define READS_A_TURN 4
#define READS_AT_END 64 /* more than a pipe holds; a child that lives on cannot keep us here */

static void pipe_close(kg_pipe_t *p)
{
    kg_fdwatch_close(&p->watch);
    kg_closep(&p->fd);
}

static void keep_tail(kg_kernel_t *k, const char *data, size_t len)
{
    if (len > sizeof(k->tail)) {
        data += len - sizeof(k->tail);
        len = sizeof(k->tail);
    }
    size_t keep = sizeof(k->tail) - len;
    keep = keep < k->tail_len ? keep : k->tail_len;
    memmove(k->tail, k->tail + k->tail_len - keep, keep);
    memcpy(k->tail + keep, data, len);
    k->tail_len = keep + len;
}

static void tell(kg_kernel_t *k, bool is_stderr, const char *bytes, size_t len)
{
    if (is_stderr) {
        keep_tail(k, bytes, len);
    }
    if (!k->closing && k->sink.on_output) {
        k->sink.on_output(k->user, is_stderr, kg_slice(bytes, len));
    }
}

static void read_some(kg_pipe_t *p, unsigned reads)
{
    kg_kernel_t *k = p->kernel;
    char bytes[READ_BYTES];
    while (p->fd >= 0 && reads-- > 0) {
        ssize_t n = read(p->fd, bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            pipe_close(p);
            return;
        }
        tell(k, p->is_stderr, bytes, (size_t)n);
    }
}

static void on_readable(void *user, bool readable, bool writable)
{
    (void)writable;
    if (readable) {
        read_some(user, READS_A_TURN);
    }
}

int kg_output_open(kg_kernel_t *k)
{
    const int fds[2] = {kg_proc_take_stdout(k->proc), kg_proc_take_stderr(k->proc)};
    for (unsigned i = 0; i < 2; i++) {
        k->pipes[i] = (kg_pipe_t){.kernel = k, .fd = fds[i], .is_stderr = i == 1};
    }
    for (unsigned i = 0; i < 2; i++) {
        kg_pipe_t *p = &k->pipes[i];
        if (p->fd < 0) {
            continue;
        }
        int rc = kg_fdwatch_create(k->loop, p->fd, on_readable, p, &p->watch);
        if (rc == 0) {
            rc = kg_fdwatch_set(p->watch, true, false);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void kg_output_drain(kg_kernel_t *k)
{
    read_some(&k->pipes[0], READS_AT_END);
    read_some(&k->pipes[1], READS_AT_END);
}

void kg_output_last_words(kg_kernel_t *k)
{
    KG_AUTO_CLOSE int fd = k->proc ? kg_proc_take_last_words(k->proc) : -1;
    char bytes[READ_BYTES];

    for (unsigned i = 0; fd >= 0 && i < KG_LAST_WORDS_STREAMS; i++) {
        uint64_t lost = 0;
        int n;
        for (size_t at = 0; at < KG_LAST_WORDS_CAP; at += (size_t)n) {
            n = kg_last_words_read(fd, i, at, bytes, sizeof(bytes), &lost);
            if (n <= 0) {
                break;
            }
            tell(k, i == 1, bytes, (size_t)n);
        }
        if (lost > 0) {
            (void)kg_format(bytes, sizeof(bytes),
                            "\n[%" PRIu64 " bytes of output were lost when the kernel died]\n",
                            lost);
            tell(k, i == 1, bytes, strlen(bytes));
        }
    }
}

void kg_output_close(kg_kernel_t *k)
{
    pipe_close(&k->pipes[0]);
    pipe_close(&k->pipes[1]);
}
