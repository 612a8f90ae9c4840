/* gateway/context: descriptors of files, read and written on the worker pool: a disk may be slow,
 * and the loop never waits. What comes from a sandbox is hostile: no mmap, no length is believed
 * but that of a read. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/context/files_priv.h"

typedef enum kind {
    JOB_STAT,
    JOB_READ,
    JOB_WRITE,
    JOB_SEND,
    JOB_CLOSE
} kind_t;

struct kg_io {
    int fd;
    int socket; /* of sends: a dup, for a worker may outlive the connection; or -1 */
    kg_workq_t *queue;
    kg_io_job_t *closing; /* made ahead, so that a close needs no memory */
};

struct kg_io_job {
    kg_io_t *io;
    kind_t kind;
    uint64_t offset;
    size_t max;
    kg_buf_t buf;
    struct stat st;
    ssize_t rc;
    kg_io_fn *fn;
    kg_io_stat_fn *stat_fn;
    void *user;
    kg_io_job_t **self;
};

int kg_io_open(kg_loop_t *loop, int fd_take, kg_io_t **ret_io)
{
    kg_io_t *io = calloc(1, sizeof(*io));
    kg_io_job_t *closing = calloc(1, sizeof(*closing));
    if (!io || !closing || kg_workq_create(loop, &io->queue) < 0) {
        free(io);
        free(closing);
        (void)close(fd_take);
        return -ENOMEM;
    }
    io->fd = fd_take;
    io->socket = -1;
    closing->io = io;
    closing->kind = JOB_CLOSE;
    io->closing = closing;
    *ret_io = io;
    return 0;
}

/* --- On the pool ---------------------------------------------------------------------------- */

static ssize_t do_read(kg_io_job_t *job)
{
    if (kg_buf_reserve(&job->buf, job->max) < 0) {
        return -ENOMEM;
    }
    ssize_t n;
    do {
        n = pread(job->io->fd, job->buf.data, job->max, (off_t)job->offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return -errno;
    }
    job->buf.len = (size_t)n;
    return n;
}

static ssize_t do_write(kg_io_job_t *job)
{
    for (size_t done = 0; done < job->buf.len;) {
        ssize_t n = pwrite(job->io->fd, job->buf.data + done, job->buf.len - done,
                           (off_t)(job->offset + done));
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            return -EIO;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    kg_buf_clear(&job->buf);
    return 0;
}

/* Where the file system cannot lend its pages. */
static ssize_t send_copy(const kg_io_job_t *job, off_t at, size_t max)
{
    char piece[16384];
    ssize_t n = pread(job->io->fd, piece, max < sizeof(piece) ? max : sizeof(piece), at);
    return n > 0 ? send(job->io->socket, piece, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) : n;
}

/* A client that reads makes room sooner than the loop comes back here, so it is waited for, as long
 * as the job keeps KG_IO_PACE: slow clients must not hold the workers. */
static bool comes_room(const kg_io_job_t *job, size_t done, uint64_t begin_ns)
{
    uint64_t worth_ns = done * KG_NS_PER_S / KG_IO_PACE;
    uint64_t spent_ns = kg_now_ns() - begin_ns;
    if (spent_ns >= worth_ns) {
        return false;
    }
    const struct timespec patience = {.tv_nsec = (long)(worth_ns - spent_ns)};
    struct pollfd room = {.fd = job->io->socket, .events = POLLOUT};
    return ppoll(&room, 1, &patience, NULL) > 0;
}

/* The pages of the page cache themselves go to the socket. If the file is written meanwhile the
 * receiver may see either state, as with any read; if it is cut shorter the end comes early. */
static ssize_t do_send(const kg_io_job_t *job)
{
    const uint64_t begin_ns = kg_now_ns();
    size_t done = 0;
    while (done < job->max) {
        off_t at = (off_t)(job->offset + done);
        ssize_t n = sendfile(job->io->socket, job->io->fd, &at, job->max - done);
        if (n < 0 && errno == EINVAL) {
            n = send_copy(job, at, job->max - done);
        }
        bool waited = n < 0 && errno == EAGAIN && comes_room(job, done, begin_ns);
        if (n < 0 && errno != EINTR && !waited) {
            return done > 0 ? (ssize_t)done : -errno;
        }
        if (n == 0) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

static void work(void *user)
{
    kg_io_job_t *job = user;
    switch (job->kind) {
    case JOB_STAT:
        job->rc = fstat(job->io->fd, &job->st) < 0 ? -errno : 0;
        break;
    case JOB_READ:
        job->rc = do_read(job);
        break;
    case JOB_WRITE:
        job->rc = do_write(job);
        break;
    case JOB_SEND:
        job->rc = do_send(job);
        break;
    case JOB_CLOSE:
        (void)close(job->io->fd);
        kg_closep(&job->io->socket);
        break;
    }
}

/* --- On the loop ---------------------------------------------------------------------------- */

static void done(void *user)
{
    kg_io_job_t *job = user;
    if (job->self) {
        *job->self = NULL;
    }
    if (job->fn) {
        job->fn(job->user, job->rc, &job->buf);
    } else if (job->stat_fn) {
        job->stat_fn(job->user, (int)job->rc, &job->st);
    }
    if (job->kind == JOB_CLOSE) {
        free(job->io);
    }
    kg_buf_fini(&job->buf);
    free(job);
}

static int submit(kg_io_t *io, const kg_io_job_t *form, kg_io_job_t **ret_job)
{
    kg_io_job_t *job = calloc(1, sizeof(*job));
    if (!job) {
        return -ENOMEM;
    }
    *job = *form;
    job->io = io;
    job->self = ret_job;
    if (kg_workq_submit(io->queue, work, done, job) < 0) {
        free(job);
        return -ENOMEM;
    }
    *ret_job = job;
    return 0;
}

int kg_io_stat(kg_io_t *io, kg_io_stat_fn *fn, void *user, kg_io_job_t **ret_job)
{
    kg_io_job_t form = {.kind = JOB_STAT, .stat_fn = fn, .user = user};
    return submit(io, &form, ret_job);
}

int kg_io_read(kg_io_t *io,
               uint64_t offset,
               size_t max,
               kg_buf_t *spare,
               kg_io_fn *fn,
               void *user,
               kg_io_job_t **ret_job)
{
    kg_io_job_t form = {.kind = JOB_READ, .offset = offset, .max = max, .fn = fn, .user = user};
    if (spare) {
        form.buf = *spare;
        kg_buf_clear(&form.buf);
    }
    int rc = submit(io, &form, ret_job);
    if (rc == 0 && spare) {
        *spare = (kg_buf_t){0};
    }
    return rc;
}

/* TCP finds the size of its buffers by itself; a unix socket has 208 KiB, and hands over to the
 * reader and back for each piece of it. The system cuts it to net.core.wmem_max. */
static void widen(int socket)
{
    int domain = 0;
    int size = KG_IO_UNIX_BUFFER;
    socklen_t len = sizeof(domain);
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
        (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }
}

int kg_io_send(kg_io_t *io,
               int socket,
               uint64_t offset,
               size_t max,
               kg_io_fn *fn,
               void *user,
               kg_io_job_t **ret_job)
{
    kg_io_job_t form = {.kind = JOB_SEND, .offset = offset, .max = max, .fn = fn, .user = user};
    if (io->socket < 0) {
        io->socket = fcntl(socket, F_DUPFD_CLOEXEC, 3);
        widen(io->socket);
    }
    return io->socket < 0 ? -errno : submit(io, &form, ret_job);
}

int kg_io_write(
    kg_io_t *io, uint64_t offset, kg_buf_t *bytes, kg_io_fn *fn, void *user, kg_io_job_t **ret_job)
{
    kg_io_job_t form = {.kind = JOB_WRITE, .offset = offset, .buf = *bytes, .fn = fn, .user = user};
    int rc = submit(io, &form, ret_job);
    if (rc == 0) {
        *bytes = (kg_buf_t){0};
    }
    return rc;
}

void kg_io_forget(kg_io_job_t **job)
{
    if (*job) {
        (*job)->fn = NULL;
        (*job)->stat_fn = NULL;
        (*job)->self = NULL;
        *job = NULL;
    }
}

void kg_io_close(kg_io_t **io)
{
    kg_io_t *it = KG_TAKE(*io);
    if (!it) {
        return;
    }
    kg_workq_t *queue = it->queue;
    if (kg_workq_submit(queue, work, done, it->closing) < 0 && kg_workq_idle(queue)) {
        work(it->closing);
        done(it->closing);
    }
    kg_workq_close(&queue);
}
