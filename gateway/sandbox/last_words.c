/* The memory file of a process's last words: made by its minder, read by the gateway. */
#include "gateway/sandbox/last_words.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/base/mem.h"

_Static_assert(sizeof(kg_last_words_head_t) == 16, "head has no padding");

int kg_last_words_create(int *ret_fd)
{
    int fd = memfd_create("sandal-last-words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)KG_LAST_WORDS_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int r = -errno;
        kg_closep(&fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static int read_head(int fd, unsigned stream, kg_last_words_head_t *ret_head)
{
    if (stream >= KG_LAST_WORDS_STREAMS || fcntl(fd, F_GET_SEALS) < 0) {
        return -EBADMSG;
    }
    ssize_t n = pread(fd, ret_head, sizeof(*ret_head), (off_t)(stream * sizeof(*ret_head)));
    if (n < 0) {
        return -errno;
    }
    bool good = n == (ssize_t)sizeof(*ret_head) && ret_head->begin <= ret_head->end &&
                ret_head->end <= KG_LAST_WORDS_CAP;
    return good ? 0 : -EBADMSG;
}

bool kg_last_words_any(int fd)
{
    for (unsigned stream = 0; stream < KG_LAST_WORDS_STREAMS; stream++) {
        kg_last_words_head_t head;
        if (read_head(fd, stream, &head) == 0 && (head.begin < head.end || head.lost > 0)) {
            return true;
        }
    }
    return false;
}

int kg_last_words_read(
    int fd, unsigned stream, size_t at, char *ret_bytes, size_t cap, uint64_t *ret_lost)
{
    kg_last_words_head_t head;
    int r = read_head(fd, stream, &head);
    if (r < 0) {
        return r;
    }
    *ret_lost = head.lost;
    size_t left = head.end - head.begin;
    if (at >= left) {
        return 0;
    }
    left -= at;
    size_t from = KG_LAST_WORDS_FIRST + (size_t)stream * KG_LAST_WORDS_CAP + head.begin + at;
    ssize_t n = pread(fd, ret_bytes, cap < left ? cap : left, (off_t)from);
    return n < 0 ? -errno : (int)n;
}
