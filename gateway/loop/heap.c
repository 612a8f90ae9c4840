/* loop: what the process holds, from /proc/self/statm, and malloc_trim when that is worth it. */
#include "gateway/loop/heap.h"

#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"

#define WORTH_BYTES (UINT64_C(4) << 20)
/* Above, a block is mapped for itself and goes back when it is freed. Left alone, glibc raises that
 * to 32 MiB at the first large block, and each thread's arena keeps what it had. */
#define MAP_BYTES (1 << 20)
#define TOP_BYTES (1 << 20)

/* 0 = unknown. The second number of the file is the resident pages. */
static uint64_t resident_bytes(void)
{
    char text[128];
    KG_AUTO_CLOSE int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    char *save = NULL;
    uint64_t pages = 0;
    (void)strtok_r(text, " ", &save);
    const char *word = strtok_r(NULL, " ", &save);
    if (!word || kg_parse_u64(word, 0, UINT64_MAX >> 16, &pages) < 0) {
        return 0;
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void kg_heap_tidy(kg_heap_t *heap)
{
    uint64_t now = resident_bytes();
    if (heap->last_bytes == 0) {
        /* glibc's takes its own lock. NOLINTBEGIN(concurrency-mt-unsafe) */
        (void)mallopt(M_MMAP_THRESHOLD, MAP_BYTES);
        (void)mallopt(M_TRIM_THRESHOLD, TOP_BYTES);
        /* NOLINTEND(concurrency-mt-unsafe) */
    }
    if (heap->floor_bytes == 0 || now < heap->floor_bytes) {
        heap->floor_bytes = now;
    }
    bool calm = now <= heap->last_bytes;
    heap->last_bytes = now;
    if (calm && now > heap->floor_bytes + WORTH_BYTES) {
        (void)malloc_trim(0);
        heap->floor_bytes = heap->last_bytes = resident_bytes();
    }
}
