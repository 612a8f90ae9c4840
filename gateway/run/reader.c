/* run: a cursor over a log. Whatever its size, an event leaves in pieces: plain parts of the file
 * go straight to the caller, text that must be filtered by way of a buffer of a few KiB. */
#include "gateway/run/reader.h"

#include <errno.h>
#include <unistd.h>

#include "gateway/run/budget.h"
#include "gateway/run/reader_int.h"
#include "gateway/run/text.h"

enum {
    CACHE = 16 * 1024,
    CHUNK = 8 * 1024,
    WALK_MAX = 2048 /* records that one piece of a result is made from: some 0.3 ms */
};

/* --- reading ------------------------------------------------------------------------------------
 */

int kg_reader_read(kg_run_reader_t *r, uint64_t off, void *dst, size_t len)
{
    const kg_run_log_t *log = r->log;
    if (off >= kg_log_win_off(log) || len >= CACHE / 2) {
        return kg_log_read(r->log, off, dst, len);
    }
    if (r->cache_len < len || off < r->cache_off || off - r->cache_off > r->cache_len - len) {
        uint64_t there = log->published - off;
        size_t n = there < CACHE ? (size_t)there : CACHE;
        if (!r->cache) {
            r->cache = malloc(CACHE);
        }
        r->cache_len = 0;
        if (!r->cache || n < len) {
            return kg_log_read(r->log, off, dst, len);
        }
        int rc = kg_log_read(r->log, off, r->cache, n);
        if (rc < 0) {
            return rc;
        }
        r->cache_off = off;
        r->cache_len = n;
    }
    memcpy(dst, r->cache + (off - r->cache_off), len);
    return 0;
}

int kg_reader_head(kg_run_reader_t *r, uint64_t off, kg_rec_t *ret_rec, kg_rich_t *ret_rich)
{
    int rc = kg_reader_read(r, off, ret_rec, sizeof *ret_rec);
    memset(ret_rich, 0, sizeof *ret_rich);
    if (rc == 0 && ret_rec->rich == sizeof *ret_rich) {
        rc = kg_reader_read(r, off + sizeof *ret_rec, ret_rich, sizeof *ret_rich);
    }
    if (rc < 0) {
        return rc;
    }
    return kg_rec_sane(ret_rec, ret_rich) && kg_rec_next(off, ret_rec) <= r->log->published ? 0
                                                                                            : -EIO;
}

static void drop_buffers(kg_run_reader_t *r)
{
    free(r->cache);
    r->cache = NULL;
    r->cache_len = 0;
    kg_buf_fini(&r->pend);
    r->pend_pos = 0;
}

/* --- segments -----------------------------------------------------------------------------------
 */

static void push(kg_run_reader_t *r, kg_seg_t seg)
{
    if (r->seg == r->segs_len) {
        r->seg = r->segs_len = 0;
    }
    if (seg.len > 0 && r->segs_len < KG_SEGS_MAX) {
        r->segs[r->segs_len++] = seg;
    }
}

void kg_reader_push(kg_run_reader_t *r, uint64_t off, size_t len, unsigned flags)
{
    push(r, (kg_seg_t){.off = off, .len = len, .flags = flags});
}

void kg_reader_push_literal(kg_run_reader_t *r, const char *text)
{
    push(r, (kg_seg_t){.literal = text, .len = strlen(text)});
}

void kg_reader_push_span(
    kg_run_reader_t *r, uint64_t off, const kg_rich_t *rich, uint32_t from, uint32_t to)
{
    if (rich->data_len > 0 && rich->data_at >= from && rich->data_at <= to) {
        kg_reader_push(r, off + from, rich->data_at - from, 0);
        kg_reader_push(r, off + rich->data_src, rich->data_len, 0);
        from = rich->data_at;
    }
    if (rich->text_at > 0 && rich->text_at >= from && rich->text_at <= to) {
        kg_reader_push(r, off + from, rich->text_at - from, 0);
        kg_reader_push(r, off + rich->text_src, rich->text_len, 0);
        from = rich->text_at;
    }
    kg_reader_push(r, off + from, to - from, 0);
}

/* --- filters ------------------------------------------------------------------------------------
 */

/* Runs a chunk through the filters into pend. */
static int filter(kg_run_reader_t *r, unsigned flags, const char *data, size_t len)
{
    KG_AUTO_BUF kg_buf_t joined = {0};
    int rc = 0;
    if (flags & KG_SEG_JOIN) {
        rc = kg_text_join(&r->join, &joined, data, len);
        data = joined.data ? joined.data : "";
        len = joined.len;
    }
    if (rc < 0) {
        return rc;
    }
    if (r->held_nl && (rc = kg_buf_append(&r->pend, "\\n", 2)) < 0) {
        return rc;
    }
    size_t before = r->pend.len;
    if (flags & KG_SEG_STRIP) {
        rc = kg_ansi_strip_escaped(&r->strip, &r->pend, data, len);
    } else {
        rc = kg_buf_append(&r->pend, data, len);
    }
    if (rc < 0) {
        return rc;
    }
    if (r->pend.len == before) { /* nothing is left of it: the newline is still the last */
        r->pend.len -= r->held_nl ? 2 : 0;
        return 0;
    }
    r->any = true;
    r->ends_nl = kg_text_ends_nl(r->pend.data + before, r->pend.len - before);
    r->held_nl = (flags & KG_SEG_TRIM) && r->ends_nl;
    r->pend.len -= r->held_nl ? 2 : 0;
    return 0;
}

/* One chunk of a text segment through the filters. JOIN and the filters after it must not see half
 * an escape, so chunks end at whole characters. */
static int filter_chunk(kg_run_reader_t *r, kg_seg_t *seg)
{
    char chunk[CHUNK];
    size_t n = seg->len < CHUNK ? seg->len : CHUNK;
    int rc = kg_reader_read(r, seg->off, chunk, n);
    if (rc < 0) {
        return rc;
    }
    if (n < seg->len) {
        size_t cut = kg_json_escaped_floor(chunk, n, n - 8);
        n = cut > 0 ? cut : n;
    }
    kg_buf_clear(&r->pend);
    r->pend_pos = 0;
    rc = filter(r, seg->flags, chunk, n);
    seg->off += n;
    seg->len -= n;
    return rc;
}

/* --- yielding -----------------------------------------------------------------------------------
 */

/* Moves at most max bytes of pend or the current segment; *ret_n may be 0 (a filter ate all). */
static int move(kg_run_reader_t *r, kg_buf_t *out, size_t max, size_t *ret_n)
{
    *ret_n = 0;
    if (r->pend_pos < r->pend.len) {
        size_t n = r->pend.len - r->pend_pos < max ? r->pend.len - r->pend_pos : max;
        int rc = kg_buf_append(out, r->pend.data + r->pend_pos, n);
        r->pend_pos += rc == 0 ? n : 0;
        *ret_n = n;
        return rc;
    }
    kg_seg_t *seg = &r->segs[r->seg];
    if (seg->flags & KG_SEG_TEXT) {
        int rc = filter_chunk(r, seg);
        r->seg += seg->len == 0 ? 1 : 0;
        return rc;
    }
    size_t n = seg->len < max ? seg->len : max;
    int rc = kg_buf_reserve(out, n + 1);
    if (rc < 0) {
        return rc;
    }
    if (seg->literal) {
        (void)kg_buf_append(out, seg->literal, n);
        seg->literal += n;
    } else {
        rc = kg_reader_read(r, seg->off, out->data + out->len, n);
        if (rc < 0) {
            return rc;
        }
        out->len += n;
        out->data[out->len] = '\0';
        seg->off += n;
    }
    seg->len -= n;
    r->seg += seg->len == 0 ? 1 : 0;
    *ret_n = n;
    return 0;
}

static bool exhausted(const kg_run_reader_t *r)
{
    return r->pend_pos >= r->pend.len && r->seg == r->segs_len;
}

/* Appends at most max bytes of the event; r->inside turns false behind its last one. */
static int yield(kg_run_reader_t *r, kg_buf_t *out, size_t max)
{
    size_t start = out->len;
    r->walked = 0;
    for (;;) {
        if (exhausted(r)) {
            if (r->walked > WALK_MAX && out->len > start) {
                return 0; /* a short piece */
            }
            int more = r->rec.type == KG_EVENT_RESULT ? kg_view_next(r) : 0;
            if (more < 0) {
                return more;
            }
            if (more == 0) {
                r->inside = false;
                return 0;
            }
            continue;
        }
        size_t left = max - (out->len - start);
        if (left == 0) {
            return 0;
        }
        size_t n;
        int rc = move(r, out, left, &n);
        if (rc < 0) {
            return rc;
        }
    }
}

/* Makes the record at r->off the current event. */
static int begin(kg_run_reader_t *r)
{
    int rc = kg_reader_head(r, r->off, &r->rec, &r->rich);
    if (rc < 0) {
        return rc;
    }
    r->payload = kg_rec_payload(r->off, &r->rec);
    r->off = kg_rec_next(r->off, &r->rec);
    if (r->rec.type == KG_EVENT_META || r->rec.seq < r->skip) {
        r->ended = r->rec.type == KG_EVENT_RESULT && !r->late; /* the client has it, or claims to */
        return 0;
    }
    r->inside = true;
    r->begun = false;
    r->seg = r->segs_len = 0;
    if (r->rec.type == KG_EVENT_RESULT) {
        kg_view_begin(r);
    } else if (r->rec.type == KG_EVENT_DISPLAY || r->rec.type == KG_EVENT_UPDATE) {
        kg_reader_push_span(r, r->payload, &r->rich, 0, r->rec.len);
    } else {
        kg_reader_push(r, r->payload, r->rec.len, 0);
    }
    return 0;
}

/* Whether the stream ends once the current event is out. */
static bool ends_here(const kg_run_reader_t *r)
{
    return r->execution || (r->rec.type == KG_EVENT_RESULT && !r->late);
}

static int next(kg_run_reader_t *r, kg_buf_t *out, size_t max, kg_read_piece_t *ret_piece)
{
    while (!r->inside) {
        if (r->ended) {
            return KG_READ_END;
        }
        if (r->off >= r->log->published) {
            drop_buffers(r);
            return KG_READ_WAIT;
        }
        int rc = begin(r);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = yield(r, out, max);
    if (rc < 0) {
        return rc;
    }
    *ret_piece = (kg_read_piece_t){.type = (kg_event_type_t)r->rec.type,
                                   .seq = r->rec.seq,
                                   .begin = !r->begun,
                                   .end = !r->inside};
    r->begun = true;
    r->skip = (uint64_t)r->rec.seq + (r->inside ? 0 : 1);
    if (!r->inside && ends_here(r)) {
        r->ended = true;
        drop_buffers(r);
    }
    return KG_READ_PIECE;
}

int kg_run_reader_next(kg_run_reader_t *reader,
                       kg_buf_t *out,
                       size_t max,
                       kg_read_piece_t *ret_piece)
{
    if (reader->error < 0) {
        return reader->error;
    }
    if (reader->log->expired && !(reader->ended && !reader->inside)) {
        drop_buffers(reader);
        return KG_READ_EXPIRED;
    }
    int rc = next(reader, out, max, ret_piece);
    reader->error = rc < 0 ? rc : 0;
    return rc;
}

uint64_t kg_run_reader_seq(const kg_run_reader_t *reader)
{
    return reader->skip;
}

/* --- birth and end ------------------------------------------------------------------------------
 */

/* slim: what is known of a log at rest will do. */
static int reader_new(kg_run_log_t *log, bool slim, kg_run_reader_t **ret_reader)
{
    KG_AUTO(kg_run_reader_destroy) kg_run_reader_t *r = calloc(1, sizeof *r);
    if (!r) {
        return -ENOMEM;
    }
    r->log = kg_run_log_ref(log);
    r->slim = slim;
    log->readers++;
    int rc = slim || log->expired ? 0 : kg_run_log_wake(log);
    if (rc < 0) {
        return rc;
    }
    *ret_reader = KG_TAKE(r);
    return 0;
}

int kg_run_reader_create(kg_run_log_t *log, int64_t after, bool late, kg_run_reader_t **ret_reader)
{
    KG_AUTO(kg_run_reader_destroy) kg_run_reader_t *r = NULL;
    int rc = reader_new(log, false, &r);
    if (rc < 0) {
        return rc;
    }
    r->late = late;
    r->skip = after < 0 ? 0 : (uint64_t)after + 1;
    if (!log->finished && r->skip > log->published_seq) {
        r->skip = log->published_seq;
    }
    if (!log->expired) {
        rc = kg_log_seek(log, r->skip, &r->off);
        r->ended = !late && log->finished && r->off > log->result_off;
    }
    if (rc < 0) {
        return rc;
    }
    *ret_reader = KG_TAKE(r);
    return 0;
}

static int execution_new(kg_run_log_t *log, bool slim, kg_run_reader_t **ret_reader)
{
    if (log->expired) {
        return -ESTALE;
    }
    if (!log->finished) {
        return -EAGAIN;
    }
    kg_run_reader_t *r = NULL;
    int rc = reader_new(log, slim, &r);
    if (rc < 0) {
        return rc;
    }
    r->execution = true;
    r->off = log->result_off;
    *ret_reader = r;
    return 0;
}

int kg_run_reader_execution(kg_run_log_t *log, kg_run_reader_t **ret_reader)
{
    return execution_new(log, false, ret_reader);
}

int kg_run_log_slim(kg_run_log_t *log, bool expired, kg_buf_t *out)
{
    KG_AUTO(kg_run_reader_destroy) kg_run_reader_t *r = NULL;
    int rc = execution_new(log, true, &r);
    if (rc == 0) {
        r->tells_expired = expired;
    }
    size_t before = out->len;
    while (rc >= 0 && rc != KG_READ_END) {
        kg_read_piece_t piece;
        rc = kg_run_reader_next(r, out, CACHE, &piece);
    }
    if (rc < 0) {
        out->len = before;
    }
    return rc < 0 ? rc : 0;
}

void kg_run_reader_destroy(kg_run_reader_t **reader)
{
    kg_run_reader_t *r = *reader;
    *reader = NULL;
    if (!r) {
        return;
    }
    drop_buffers(r);
    r->log->readers--;
    kg_log_settle(r->log);
    kg_run_log_unref(&r->log);
    free(r);
}
