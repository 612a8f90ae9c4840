/* run: where a log's bytes are: in a slot of a pack while they fit, then in a file of its own. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gateway/run/log_int.h"

uint64_t kg_log_end_off(const kg_run_log_t *log)
{
    return log->body ? log->body->win_off + log->body->win.len : log->published;
}

/* --- the place ----------------------------------------------------------------------------------
 */

kg_log_spot_t kg_log_spot(const kg_run_log_t *log)
{
    return log->slot.pack ? (kg_log_spot_t){kg_run_slot_fd(&log->slot), kg_run_slot_off(&log->slot)}
                          : (kg_log_spot_t){log->fd, 0};
}

static int spare_of(const kg_run_log_t *log, kg_run_spare_t *ret_spare)
{
    int rc = log->opts.spares ? kg_run_spares_get(log->opts.spares, ret_spare) : -ENOENT;
    return rc < 0 ? kg_run_spare_make(log->opts.dirfd, ret_spare) : 0;
}

static void use_spare(kg_run_log_t *log, const kg_run_spare_t *spare)
{
    log->fd = spare->fd;
    memcpy(log->name, spare->name, sizeof log->name);
}

/* The head of its first record comes last: without it a recovery takes the copy for no log, and
 * with it for the same one as is in the slot. */
static int copy_out(const kg_run_log_t *log, int fd)
{
    char bytes[KG_RUN_SLOT];
    size_t len = (size_t)log->body->written;
    const size_t head = len < sizeof(kg_rec_t) ? len : sizeof(kg_rec_t);
    const kg_log_spot_t from = kg_log_spot(log);
    int rc = kg_log_read_at(from.fd, bytes, len, from.off);
    const kg_slice_t tail = kg_slice(bytes + head, len - head);
    const kg_slice_t first = kg_slice(bytes, head);
    rc = rc < 0 ? rc : kg_log_write_parts(fd, &tail, 1, head);
    return rc < 0 ? rc : kg_log_write_parts(fd, &first, 1, 0);
}

static int move_out(kg_run_log_t *log)
{
    kg_run_spare_t spare;
    int rc = spare_of(log, &spare);
    if (rc < 0) {
        return rc;
    }
    rc = copy_out(log, spare.fd);
    if (rc < 0) {
        (void)unlinkat(log->opts.dirfd, spare.name, 0);
        (void)close(spare.fd);
        return rc;
    }
    use_spare(log, &spare);
    /* Of a log that broke there may be more than was written. */
    kg_run_slot_give(&log->slot, log->broken ? KG_RUN_SLOT : log->body->written);
    return 0;
}

int kg_log_open(kg_run_log_t *log, uint64_t room)
{
    if (log->slot.pack) {
        return room > KG_RUN_SLOT ? move_out(log) : 0;
    }
    if (log->fd >= 0) {
        return 0;
    }
    if (log->expired) {
        return -ESTALE;
    }
    if (log->name[0]) {
        log->fd = openat(log->opts.dirfd, log->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        return log->fd < 0 ? -errno : 0;
    }
    if (room == 0) {
        return -ENOENT;
    }
    if (room <= KG_RUN_SLOT && log->opts.packs &&
        kg_run_packs_take(log->opts.packs, &log->slot) == 0) {
        return 0;
    }
    kg_run_spare_t spare;
    int rc = spare_of(log, &spare);
    if (rc == 0) {
        use_spare(log, &spare);
    }
    return rc;
}

int kg_log_trim(kg_run_log_t *log, uint64_t from, uint64_t to)
{
    if (log->slot.pack) {
        return kg_run_slot_clear(&log->slot, from, to);
    }
    return ftruncate(log->fd, (off_t)from) < 0 ? -errno : 0;
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* All of iov at off; iov is used up. */
static int write_all(int fd, struct iovec *iov, size_t count, uint64_t off)
{
    while (count > 0) {
        ssize_t n = pwritev(fd, iov, (int)count, (off_t)off);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        off += (uint64_t)n;
        size_t left = (size_t)n;
        while (count > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (char *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return 0;
}

/* Takes back what a failed write left; where that fails too, recovery will find it torn. */
static int take_back(kg_run_log_t *log, uint64_t from, uint64_t to, int rc)
{
    (void)kg_log_trim(log, from, to);
    return rc;
}

int kg_log_write_out(kg_run_log_t *log)
{
    uint64_t end = kg_log_end_off(log);
    if (log->body->written == end) {
        return 0;
    }
    int rc = kg_log_open(log, end);
    if (rc < 0) {
        return rc;
    }
    const kg_log_spot_t spot = kg_log_spot(log);
    size_t skip = (size_t)(log->body->written - log->body->win_off);
    struct iovec iov = {log->body->win.data + skip, log->body->win.len - skip};
    rc = write_all(spot.fd, &iov, 1, spot.off + log->body->written);
    if (rc < 0) {
        return take_back(log, log->body->written, end, rc);
    }
    log->body->written = end;
    return 0;
}

size_t kg_log_total_of(const kg_slice_t *parts, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += parts[i].len;
    }
    return total;
}

/* The bytes from..from+max of what the parts are together. */
static int
write_range(int fd, const kg_slice_t *parts, size_t count, size_t from, size_t max, uint64_t off)
{
    struct iovec iov[KG_LOG_PARTS_MAX];
    size_t n = 0;
    off += from;
    for (size_t i = 0; i < count && max > 0; i++) {
        size_t skip = from < parts[i].len ? from : parts[i].len;
        size_t len = parts[i].len - skip < max ? parts[i].len - skip : max;
        from -= skip;
        max -= len;
        if (len > 0) { /* what is empty may be nowhere */
            union {
                const char *in;
                void *out;
            } base = {parts[i].data + skip}; /* pwritev only reads it */
            iov[n++] = (struct iovec){base.out, len};
        }
    }
    return write_all(fd, iov, n, off);
}

int kg_log_write_range(
    kg_run_log_t *log, const kg_slice_t *parts, size_t count, size_t from, size_t max)
{
    return write_range(log->fd, parts, count, from, max, kg_log_end_off(log));
}

int kg_log_write_parts(int fd, const kg_slice_t *parts, size_t count, uint64_t off)
{
    return count > KG_LOG_PARTS_MAX ? -E2BIG : write_range(fd, parts, count, 0, SIZE_MAX, off);
}

int kg_log_write_big(kg_run_log_t *log, const kg_slice_t *parts, size_t count, size_t staged)
{
    int rc = kg_log_open(log, KG_LOG_OWN);
    if (rc < 0) {
        return rc;
    }
    uint64_t off = kg_log_end_off(log);
    size_t total = kg_log_total_of(parts, count);
    if (staged > 0) { /* the head was not final when it was staged */
        rc = kg_log_write_range(log, parts, count, 0, parts[0].len);
    }
    rc = rc < 0 ? rc : kg_log_write_range(log, parts, count, staged, total - staged);
    if (rc < 0) {
        return take_back(log, off, off + total, rc);
    }
    kg_buf_clear(&log->body->win);
    log->body->win_off = log->body->written = off + total;
    return 0;
}

/* --- reading ------------------------------------------------------------------------------------
 */

int kg_log_read_at(int fd, void *dst, size_t len, uint64_t off)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (char *)dst + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        done += (size_t)n;
    }
    return 0;
}

static int read_window(const kg_log_body_t *body, uint64_t off, void *dst, size_t len)
{
    size_t skip = body ? (size_t)(off - body->win_off) : SIZE_MAX;
    if (!body || skip > body->win.len || len > body->win.len - skip) {
        return -EIO;
    }
    if (len > 0) {
        memcpy(dst, body->win.data + skip, len);
    }
    return 0;
}

int kg_log_read(kg_run_log_t *log, uint64_t off, void *dst, size_t len)
{
    uint64_t win_off = kg_log_win_off(log);
    if (off >= win_off) {
        return read_window(log->body, off, dst, len);
    }
    int rc = kg_log_open(log, 0);
    if (rc < 0) {
        return rc;
    }
    size_t disk = len;
    if (len > win_off - off) {
        disk = (size_t)(win_off - off);
    }
    const kg_log_spot_t spot = kg_log_spot(log);
    rc = kg_log_read_at(spot.fd, dst, disk, spot.off + off);
    if (rc < 0) {
        return rc;
    }
    return disk == len ? 0 : kg_log_read(log, off + disk, (char *)dst + disk, len - disk);
}
