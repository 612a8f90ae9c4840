/* run: a text of many MiB is written into the log's file by a worker, while the hash that decides
 * whether it may be is still being computed.
 *
 * What is written lies behind the end of the log, in chunks of whole records. The first record of
 * each chunk lacks its head until the loop takes the chunk in: a recovery ends there and cuts what
 * follows. The place is void as soon as anything else is appended (log_write.c), the log breaks,
 * goes or expires; the lock, which the worker holds while it writes, makes sure that nothing comes
 * behind that. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "gateway/run/mapper_int.h"

enum {
    CHUNK_EVENTS = 16 /* 1 MiB of plain text */
};

/* A chunk: where it ends in the file and in the text, and what it holds. */
typedef struct chunk {
    kg_rec_t head; /* of its first record, which is not in the file yet */
    uint64_t off, last, end;
    uint32_t events;
    size_t text;
    uint64_t units;
} chunk_t;

struct kg_ahead {
    atomic_uint refs; /* the log's while it is not void, the mapped's, and its maker's */
    pthread_mutex_t lock;
    bool is_void; /* under the lock */
    int fd;
    char run[KG_ID_MAX];
    kg_run_log_t *log; /* the loop's: until it is released */
    bool late;
    uint64_t off; /* of the next chunk: first the worker's, then the loop's */
    uint32_t seq;
    uint64_t left[2]; /* stdout, stderr */
    uint64_t events;
    chunk_t *chunks;
    size_t count, taken;
};

void kg_ahead_unref(kg_ahead_t **ahead)
{
    kg_ahead_t *a = *ahead;
    *ahead = NULL;
    if (!a || atomic_fetch_sub(&a->refs, 1) > 1) {
        return;
    }
    (void)close(a->fd);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->chunks);
    free(a);
}

static kg_ahead_t *ref(kg_ahead_t *a)
{
    atomic_fetch_add(&a->refs, 1);
    return a;
}

/* --- the loop: begin and end ---------------------------------------------------------------------
 */

static kg_ahead_t *ahead_new(kg_run_log_t *log)
{
    kg_ahead_t *a = calloc(1, sizeof *a);
    if (!a) {
        return NULL;
    }
    a->fd = fcntl(log->fd, F_DUPFD_CLOEXEC, 3);
    if (a->fd < 0 || pthread_mutex_init(&a->lock, NULL) != 0) {
        if (a->fd >= 0) {
            (void)close(a->fd);
        }
        free(a);
        return NULL;
    }
    atomic_init(&a->refs, 1);
    (void)snprintf(a->run, sizeof a->run, "%s", log->run);
    a->log = kg_log_hold(log);
    a->late = log->ended;
    a->off = kg_log_end_off(log);
    a->seq = log->body->next_seq;
    return a;
}

kg_ahead_t *kg_mapper_ahead(kg_mapper_t *m)
{
    kg_run_log_t *log = m->log;
    if (log->expired || log->broken || log->body->ahead || log->body->stage.token) {
        return NULL;
    }
    kg_log_seal(log);
    if (kg_log_open(log, KG_LOG_OWN) < 0 || kg_log_write_out(log) < 0) {
        return NULL; /* the append meets it and deals with it */
    }
    kg_ahead_t *a = ahead_new(log);
    if (!a) {
        return NULL;
    }
    a->left[0] = kg_mapper_text_left(m, false);
    a->left[1] = kg_mapper_text_left(m, true);
    uint64_t most = m->opts->limits.events;
    a->events = log->body->next_seq < most ? most - log->body->next_seq : 0;
    log->body->ahead = ref(a);
    return a;
}

void kg_log_void_ahead(kg_run_log_t *log)
{
    kg_ahead_t *a = KG_TAKE(log->body->ahead);
    if (!a) {
        return;
    }
    (void)pthread_mutex_lock(&a->lock);
    a->is_void = true;
    (void)pthread_mutex_unlock(&a->lock);
    if (ftruncate(a->fd, (off_t)log->body->written) < 0) { /* what is left has no head */
        (void)0;
    }
    kg_ahead_unref(&a);
}

void kg_ahead_release(kg_ahead_t **ahead)
{
    kg_ahead_t *a = KG_TAKE(*ahead);
    if (!a) {
        return;
    }
    kg_run_log_t *log = KG_TAKE(a->log);
    if (log->body->ahead == a && atomic_load(&a->refs) == 2) { /* no mapped has it */
        kg_log_void_ahead(log);
    }
    kg_ahead_unref(&a);
    kg_log_release(&log);
}

/* --- the worker ----------------------------------------------------------------------------------
 */

static int write_locked(kg_ahead_t *a, const kg_slice_t *parts, size_t count)
{
    (void)pthread_mutex_lock(&a->lock);
    int rc = a->is_void ? -ESTALE : kg_log_write_parts(a->fd, parts, count, a->off);
    (void)pthread_mutex_unlock(&a->lock);
    return rc;
}

static chunk_t *chunk_add(kg_ahead_t *a)
{
    if ((a->count & (a->count - 1)) == 0) { /* full at each power of two */
        chunk_t *grown = reallocarray(a->chunks, a->count ? a->count * 2 : 1, sizeof *grown);
        if (!grown) {
            return NULL;
        }
        a->chunks = grown;
    }
    return &a->chunks[a->count];
}

/* Lays out the next events of the text, as many as a chunk takes and the limits let in. */
static int
chunk_fill(const kg_ahead_t *a, bool is_stderr, kg_slice_t text, chunk_t *c, kg_log_text_t *events)
{
    kg_event_type_t type = is_stderr ? KG_EVENT_STDERR : KG_EVENT_STDOUT;
    uint64_t left = a->left[is_stderr];
    *c = (chunk_t){.off = a->off, .last = a->off, .end = a->off};
    while (c->events < CHUNK_EVENTS && c->events < a->events && c->text < text.len && left > 0) {
        kg_log_text_t *event = &events[c->events];
        const kg_log_at_t at = {.run = a->run, .seq = a->seq + c->events};
        size_t max = left < KG_RUN_TEXT_MAX ? (size_t)left : KG_RUN_TEXT_MAX;
        size_t units = 0;
        size_t n = kg_text_split(text.data + c->text, text.len - c->text, max, &units);
        if (n == 0) {
            break;
        }
        int rc = kg_log_lay_out_text(&at, type, a->late ? KG_REC_LATE : 0U,
                                     kg_slice(text.data + c->text, n), units, event);
        if (rc < 0) {
            return rc;
        }
        c->last = c->end;
        c->end = kg_rec_next(c->end, &event->rec);
        c->text += n;
        c->units += units;
        left -= units;
        c->events++;
    }
    return 0;
}

/* Whether there may be another. */
static bool chunk_write(kg_ahead_t *a, bool is_stderr, kg_slice_t *text)
{
    static const kg_rec_t no_head;
    kg_log_text_t events[CHUNK_EVENTS];
    kg_slice_t parts[CHUNK_EVENTS * KG_ARRAY_LEN(events[0].parts)];
    size_t count = 0;
    chunk_t *c = chunk_add(a);
    if (!c || chunk_fill(a, is_stderr, *text, c, events) < 0 || c->events == 0) {
        return false;
    }
    for (size_t i = 0; i < c->events; i++) {
        memcpy(parts + count, events[i].parts, events[i].count * sizeof *parts);
        count += events[i].count;
    }
    c->head = events[0].rec;
    parts[0] = kg_slice((const char *)&no_head, sizeof no_head);
    if (write_locked(a, parts, count) < 0) {
        return false; /* a full disk: apply meets it again */
    }
    a->count++;
    a->off = c->end;
    a->seq += c->events;
    a->left[is_stderr] -= c->units;
    a->events -= c->events;
    *text = kg_slice(text->data + c->text, text->len - c->text);
    return true;
}

void kg_ahead_write(kg_ahead_t *a, kg_mapped_t *mapped)
{
    if (mapped->kind != KG_MAPPED_TEXT || mapped->ahead) {
        return;
    }
    mapped->ahead = ref(a);
    kg_slice_t text = kg_buf_slice(&mapped->text);
    while (chunk_write(a, mapped->is_stderr, &text)) {
    }
}

/* --- the loop: taking it in ----------------------------------------------------------------------
 */

/* The chunk's first head makes it a part of the log. */
static bool take_chunk(kg_run_log_t *log, const kg_ahead_t *a, const chunk_t *c)
{
    const kg_slice_t head = kg_slice((const char *)&c->head, sizeof c->head);
    if (c->off != kg_log_end_off(log) || c->head.seq != log->body->next_seq ||
        kg_log_write_parts(a->fd, &head, 1, c->off) < 0) {
        return false;
    }
    kg_buf_clear(&log->body->win);
    log->body->win_off = log->body->written = c->end;
    log->body->last = c->last;
    log->body->next_seq += c->events;
    return true;
}

size_t kg_log_take_ahead(kg_run_log_t *log, kg_ahead_t *a, size_t max, uint64_t *ret_units)
{
    size_t text = 0;
    *ret_units = 0;
    if (log->body->ahead != a) {
        return 0;
    }
    while (a->taken < a->count && text < max && take_chunk(log, a, &a->chunks[a->taken])) {
        text += a->chunks[a->taken].text;
        *ret_units += a->chunks[a->taken].units;
        a->taken++;
    }
    if (text == 0) {
        kg_log_void_ahead(log);
    } else {
        kg_log_mark_dirty(log);
    }
    return text;
}
