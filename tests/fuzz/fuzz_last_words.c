/* The memory file of last words, as a hostile process leaves it: heads of any content, a file of
 * any length. What is read stays in the region, and comes to an end. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/last_words.h"

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void read_all(int fd)
{
    char piece[5000];
    for (unsigned stream = 0; stream <= KG_LAST_WORDS_STREAMS; stream++) {
        uint64_t lost = 0;
        size_t at = 0;
        int n;
        while ((n = kg_last_words_read(fd, stream, at, piece, sizeof(piece), &lost)) > 0) {
            must(n <= (int)sizeof(piece));
            at += (size_t)n;
            must(at <= KG_LAST_WORDS_CAP);
        }
        must(n == 0 || stream == KG_LAST_WORDS_STREAMS || at == 0);
    }
    (void)kg_last_words_any(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KG_AUTO_CLOSE int fd = -1;
    KG_AUTO_CLOSE int other = memfd_create("fuzz", MFD_CLOEXEC); /* as long as the input */

    must(kg_last_words_create(&fd) == 0 && other >= 0);
    must(pwrite(fd, data, size < KG_LAST_WORDS_SIZE ? size : KG_LAST_WORDS_SIZE, 0) >= 0);
    must(write(other, data, size) == (ssize_t)size);
    read_all(fd);
    read_all(other);
    return 0;
}
