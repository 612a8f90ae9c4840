/* Bytes on their way between rooms that do not know each other: a source gives them piece by piece
 * to whoever sends them on, an intake brings those that somebody sends. One thread, one reader. */
#ifndef KG_BASE_SOURCE_H
#define KG_BASE_SOURCE_H

#include <stdint.h>

#include "gateway/base/buf.h"

typedef enum kg_source_state {
    KG_SOURCE_MORE,  /* appended something; ask again */
    KG_SOURCE_WAIT,  /* nothing now; wake is called when there is */
    KG_SOURCE_END,   /* that was all (what was appended counts) */
    KG_SOURCE_FAILED /* something is missing */
} kg_source_state_t;

/* Embedded at the begin of what gives; whoever got it closes it. */
typedef struct kg_source {
    /* Appends about max bytes at most; of a source of events exactly one event, a JSON object. */
    kg_source_state_t (*fill)(struct kg_source *source, kg_buf_t *out, size_t max);
    /* NULL, or another way to the bytes of a source that knows how many it gives: they go straight
     * into a stream socket (O_NONBLOCK), on another thread. *ret_sent: how many have gone since the
     * last call. WAIT: it is at work; MORE: the socket has no room, ask again when it has. Either
     * this or fill, from the first byte to the last. */
    kg_source_state_t (*pour)(struct kg_source *source, int socket, uint64_t *ret_sent);
    void (*close)(struct kg_source *source); /* frees it; wake is not called after it */
    void (*wake)(void *user);                /* set by the reader; never called inside fill */
    void *wake_user;
} kg_source_t;

static inline void kg_source_close(kg_source_t **source)
{
    if (source && *source) {
        kg_source_t *s = *source;
        *source = NULL;
        s->close(s);
    }
}

static inline void kg_source_wake(const kg_source_t *source)
{
    if (source->wake) {
        source->wake(source->wake_user);
    }
}

/* Where bytes come from that a peer sends. take swaps what has come with *out; *ret_end: nothing
 * comes after it. Whoever takes is told by the other side when there is something again. */
typedef struct kg_intake {
    void (*take)(void *user, kg_buf_t *out, bool *ret_end);
    void *user;
} kg_intake_t;

#endif
