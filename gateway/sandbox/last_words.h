/* What a process had printed and not yet sent when it ended. It keeps that text in memory shared
 * with its minder (a sealed memory file, made by the minder, inherited as KG_LAST_WORDS_FD and
 * named by KG_LAST_WORDS_ENV), which outlives it however it ends. The file: two heads, of stdout
 * and of stderr, then a region each. A process alters one head by one store of 8 bytes, so that
 * what is read is whole at any moment. Readers trust nothing in it. No libraries. */
#ifndef KG_SANDBOX_LAST_WORDS_H
#define KG_SANDBOX_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_LAST_WORDS_ENV "SANDAL_LAST_WORDS"
#define KG_LAST_WORDS_FD 3
#define KG_LAST_WORDS_STREAMS 2
#define KG_LAST_WORDS_CAP ((size_t)256 * 1024) /* of one region */
#define KG_LAST_WORDS_FIRST 4096               /* where the first region begins */
#define KG_LAST_WORDS_SIZE (KG_LAST_WORDS_FIRST + KG_LAST_WORDS_STREAMS * KG_LAST_WORDS_CAP)

typedef struct kg_last_words_head {
    uint32_t begin; /* in the region */
    uint32_t end;
    uint64_t lost; /* bytes after these for which there was no room */
} kg_last_words_head_t;

/* Close-on-exec, sealed against any other size. 0 or -errno. */
int kg_last_words_create(int *ret_fd);
bool kg_last_words_any(int fd);
/* Bytes of a stream from `at` on; how many, 0 at the end, or -EBADMSG for what is no such file or
 * contradicts itself, else -errno. Never blocks: only memory files are read. */
int kg_last_words_read(
    int fd, unsigned stream, size_t at, char *ret_bytes, size_t cap, uint64_t *ret_lost);

#endif
