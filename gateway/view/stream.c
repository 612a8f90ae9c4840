/* gateway/view: the three bodies that a run's log can be. Events are JSON without raw line breaks,
 * so a line an event is all that NDJSON and SSE need. */
#include "gateway/view/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/clock.h"

#define TURN_NS (2 * KG_NS_PER_MS) /* what one fill may take where little is found in long */

void kg_stream_init(kg_stream_t *s, kg_stream_kind_t kind, kg_follower_t *follower, uint64_t *sent)
{
    *s = (kg_stream_t){.kind = kind, .follower = follower, .last_ns = kg_now_ns()};
    s->sent = sent;
}

void kg_stream_fini(kg_stream_t *s)
{
    kg_buf_fini(&s->first);
    kg_buf_fini(&s->last);
    s->follower = NULL;
}

bool kg_stream_silent(kg_stream_t *s, uint64_t now_ns, uint64_t silent_ns)
{
    s->sign = s->kind != KG_STREAM_TEXT && now_ns > s->last_ns && now_ns - s->last_ns >= silent_ns;
    return s->sign;
}

static int put_sign(kg_stream_t *s, kg_buf_t *out)
{
    s->sign = false;
    return kg_buf_append_cstr(out, s->kind == KG_STREAM_SSE ? ":\n\n" : "\n");
}

/* Takes back what was appended after start. */
static void cut(kg_buf_t *out, size_t start)
{
    if (out->len > start) {
        out->len = start;
        out->data[start] = '\0';
    }
}

/* "id: SEQ" and "data: " in front of an event that begins at start. */
static int put_id(kg_buf_t *out, size_t start, uint32_t seq)
{
    char id[40];
    size_t len = (size_t)snprintf(id, sizeof id, "id: %" PRIu32 "\ndata: ", seq);
    size_t event = out->len - start;
    int rc = kg_buf_append(out, id, len);
    if (rc < 0) {
        return rc;
    }
    memmove(out->data + start + len, out->data + start, event);
    memcpy(out->data + start, id, len);
    return 0;
}

/* One piece with what stands around it. */
static int put_piece(kg_stream_t *s, kg_buf_t *out, size_t max)
{
    kg_read_piece_t piece = {0};
    size_t start = out->len;
    int rc = kg_run_reader_next(s->follower->reader, out, max, &piece);
    if (rc != KG_READ_PIECE) {
        cut(out, start);
        return rc;
    }
    if (s->kind == KG_STREAM_SSE && !s->inside) {
        rc = put_id(out, start, piece.seq);
    }
    s->inside = !piece.end;
    if (rc == 0 && piece.end && s->kind != KG_STREAM_TEXT) {
        rc = kg_buf_append_cstr(out, s->kind == KG_STREAM_SSE ? "\n\n" : "\n");
    }
    return rc < 0 ? rc : KG_READ_PIECE;
}

static kg_pull_t pull_of(const kg_stream_t *s, int rc, bool some)
{
    switch (rc) {
    case KG_READ_PIECE:
        return KG_PULL_MORE;
    case KG_READ_WAIT:
        return some ? KG_PULL_MORE : KG_PULL_WAIT;
    case KG_READ_END:
        return KG_PULL_END;
    case KG_READ_EXPIRED:
        return s->late && !s->inside ? KG_PULL_END : KG_PULL_ABORT;
    default:
        return KG_PULL_ABORT;
    }
}

int kg_stream_write_failure(kg_stream_kind_t kind, const kg_err_t *err, kg_buf_t *out)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    bool sse = kind == KG_STREAM_SSE;
    int rc = kg_edge_error_body(err, &body);
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, sse ? "data: " : "");
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, "{\"type\":\"failure\",");
    /* The body is {"error":…}: its members follow ours. */
    rc = rc < 0 ? rc : kg_buf_append(out, body.data + 1, body.len - 1);
    return rc < 0 ? rc : kg_buf_append_cstr(out, sse ? "\n\n" : "\n");
}

static bool is_to_end(const kg_stream_t *s)
{
    return s->ends && !s->inside;
}

static kg_pull_t end_now(kg_stream_t *s, kg_buf_t *out)
{
    *s->sent += s->last.len;
    bool cut_off = s->last.len == 0 || kg_buf_append_slice(out, kg_buf_slice(&s->last)) < 0;
    return cut_off ? KG_PULL_ABORT : KG_PULL_END;
}

kg_pull_t kg_stream_fill(void *user, kg_buf_t *out, size_t max)
{
    kg_stream_t *s = user;
    size_t start = out->len;
    int rc = 0;
    if (is_to_end(s)) {
        return end_now(s, out);
    }
    if (!s->begun && s->kind == KG_STREAM_SSE) {
        rc = kg_buf_append_cstr(out, "retry: 1000\n\n");
    }
    s->begun = true;
    if (s->first.len > 0) {
        rc = kg_buf_append_slice(out, kg_buf_slice(&s->first));
        kg_buf_fini(&s->first);
    }
    rc = rc < 0 ? rc : KG_READ_PIECE;
    uint64_t begin_ns = kg_now_ns();
    while (rc == KG_READ_PIECE && out->len - start < max && !is_to_end(s)) {
        rc = put_piece(s, out, max - (out->len - start));
        if (kg_now_ns() - begin_ns > TURN_NS) {
            break;
        }
    }
    if (rc == KG_READ_WAIT && s->sign && !s->inside && out->len == start && put_sign(s, out) < 0) {
        rc = -1;
    }
    s->sign = false;
    if (out->len > start) {
        s->last_ns = kg_now_ns();
        *s->sent += out->len - start;
    }
    return pull_of(s, rc, out->len > start);
}
