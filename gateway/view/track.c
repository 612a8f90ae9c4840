/* gateway/view: many runs on one socket. The lists are small; a track moves between them as its log
 * gives and dries up. */
#include "gateway/view/track.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

struct kg_track {
    kg_tracks_t *owner;
    kg_follower_t follower;
    kg_source_t *source; /* instead of a run's log */
    bool begun;          /* its first frame is out */
    kg_track_kind_t kind;
    char *id;
    bool ready;
    bool late;
    bool done; /* its last event is out */
    kg_track_t *prev, *next;
};

void kg_tracks_init(kg_tracks_t *t, kg_tracks_wake_fn *wake, kg_tracks_ended_fn *ended, void *user)
{
    *t = (kg_tracks_t){.wake = wake, .ended = ended, .user = user};
}

static void set_ready(kg_track_t *track, bool ready)
{
    kg_tracks_t *t = track->owner;
    if (track->ready == ready) {
        return;
    }
    track->ready = ready;
    if (ready) {
        DL_DELETE(t->waiting, track);
        DL_APPEND(t->ready, track);
    } else {
        DL_DELETE(t->ready, track);
        DL_APPEND(t->waiting, track);
    }
}

static void track_free(kg_track_t *track)
{
    kg_tracks_t *t = track->owner;
    if (t->current == track) {
        t->current = NULL;
    }
    if (track->ready) {
        DL_DELETE(t->ready, track);
    } else {
        DL_DELETE(t->waiting, track);
    }
    t->count--;
    kg_follower_fini(&track->follower);
    kg_source_close(&track->source);
    free(track->id);
    free(track);
}

void kg_tracks_fini(kg_tracks_t *t)
{
    while (t->ready) {
        track_free(t->ready);
    }
    while (t->waiting) {
        track_free(t->waiting);
    }
}

static void end(kg_track_t *track, const kg_err_t *err)
{
    kg_tracks_t *t = track->owner;
    char *id = KG_TAKE(track->id);
    track_free(track);
    t->ended(t->user, id, err);
    free(id);
}

/* Inside the log's flush: only lists move. */
static void log_moved(void *user)
{
    kg_track_t *track = user;
    bool waits_for_end = track->kind == KG_TRACK_RESULT && !track->follower.reader;
    if (!waits_for_end || kg_run_log_finished(track->follower.log) ||
        kg_run_log_expired(track->follower.log)) {
        set_ready(track, true);
        track->owner->wake(track->owner->user);
    }
}

bool kg_tracks_have(const kg_tracks_t *t, const char *id)
{
    const kg_track_t *track;
    DL_FOREACH (t->ready, track) {
        if (strcmp(track->id, id) == 0) {
            return true;
        }
    }
    DL_FOREACH (t->waiting, track) {
        if (strcmp(track->id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* The result event is the last one, unless late output has come already. */
static int read_result(kg_track_t *track)
{
    kg_run_log_t *log = track->follower.log;
    int64_t last = (int64_t)kg_run_log_next_seq(log) - 1;
    return kg_follower_read_events(&track->follower,
                                   kg_run_log_late(log) ? KG_READ_FROM_START : last - 1, false);
}

static int open_reader(kg_track_t *track, const kg_follow_t *follow)
{
    switch (track->kind) {
    case KG_TRACK_EVENTS:
        return kg_follower_read_events(&track->follower, follow->after, follow->late);
    case KG_TRACK_EXECUTION:
        return kg_follower_read_execution(&track->follower);
    case KG_TRACK_RESULT:
        break;
    }
    return 0;
}

static int refuse(int rc, kg_err_t *err)
{
    if (rc == -ESTALE) {
        return kg_err_set(err, KG_ERR_RUN_EXPIRED, "The events of this run are no longer kept.");
    }
    return kg_err_set(err, kg_err_from_errno(rc), "The run's log cannot be read.");
}

int kg_tracks_add(
    kg_tracks_t *t, const kg_follow_t *follow, kg_track_kind_t kind, char **id, kg_err_t *err)
{
    kg_track_t *track = calloc(1, sizeof *track);
    if (!track) {
        return refuse(-ENOMEM, err);
    }
    track->owner = t;
    track->kind = kind;
    track->late = follow->late;
    DL_APPEND(t->waiting, track);
    t->count++;
    int rc = kg_follower_init(&track->follower, follow->run, log_moved, track);
    rc = rc < 0 ? rc : open_reader(track, follow);
    if (rc < 0) {
        track_free(track);
        return refuse(rc, err);
    }
    track->id = KG_TAKE(*id);
    set_ready(track, kind != KG_TRACK_RESULT || kg_run_log_finished(track->follower.log));
    return 0;
}

static void source_moved(void *user)
{
    kg_track_t *track = user;
    set_ready(track, true);
    track->owner->wake(track->owner->user);
}

int kg_tracks_give(kg_tracks_t *t, kg_source_t *source_take, char **id, kg_err_t *err)
{
    kg_track_t *track = calloc(1, sizeof *track);
    if (!track) {
        kg_source_close(&source_take);
        return refuse(-ENOMEM, err);
    }
    track->owner = t;
    track->source = source_take;
    track->id = KG_TAKE(*id);
    source_take->wake = source_moved;
    source_take->wake_user = track;
    DL_APPEND(t->waiting, track);
    t->count++;
    set_ready(track, true);
    return 0;
}

static int put_prefix(const kg_track_t *track, kg_buf_t *out)
{
    int rc = kg_buf_append_cstr(out, "{\"id\":");
    rc = rc < 0 ? rc : kg_buf_append_cstr(out, track->id);
    if (track->kind == KG_TRACK_EXECUTION) {
        rc = rc < 0 ? rc : kg_buf_append_cstr(out, ",\"type\":\"response\",\"data\":");
    }
    return rc;
}

static void splice(const kg_track_t *track, kg_buf_t *out, size_t at)
{
    if (track->kind != KG_TRACK_EXECUTION) {
        out->data[at] = ','; /* {"id":1 + {"run":… becomes one object */
    }
}

/* Takes back what was appended after start. */
static void cut(kg_buf_t *out, size_t start)
{
    if (out->len > start) {
        out->len = start;
        out->data[start] = '\0';
    }
}

/* One piece of the track's next event with its envelope; skips what a RESULT track does not show.
 */
static int put_piece(kg_track_t *track, kg_buf_t *out, size_t max, bool *ret_end)
{
    bool inside = track->owner->current == track;
    kg_read_piece_t piece = {0};
    for (;;) {
        size_t start = out->len;
        int rc = inside ? 0 : put_prefix(track, out);
        size_t at = out->len;
        rc = rc < 0 ? rc : kg_run_reader_next(track->follower.reader, out, max, &piece);
        if (rc != KG_READ_PIECE) {
            cut(out, start);
            return rc;
        }
        if (track->kind == KG_TRACK_RESULT && piece.type != KG_EVENT_RESULT) {
            cut(out, start);
            continue;
        }
        if (!inside) {
            splice(track, out, at);
        }
        track->done = piece.end && ((piece.type == KG_EVENT_RESULT && !track->late) ||
                                    track->kind == KG_TRACK_EXECUTION);
        *ret_end = piece.end;
        if (piece.end && track->kind == KG_TRACK_EXECUTION) {
            rc = kg_buf_append_char(out, '}');
            return rc < 0 ? rc : KG_READ_PIECE;
        }
        return KG_READ_PIECE;
    }
}

/* One event of a source, whole. */
static int put_source(kg_track_t *track, kg_buf_t *out, bool *ret_end)
{
    size_t start = out->len;
    int rc = put_prefix(track, out);
    size_t at = out->len;
    if (!track->begun) {
        track->begun = true;
        *ret_end = true;
        rc = rc < 0 ? rc : kg_buf_append_cstr(out, ",\"type\":\"watching\"}");
        return rc < 0 ? rc : KG_READ_PIECE;
    }
    kg_source_state_t state =
        rc < 0 ? KG_SOURCE_FAILED : track->source->fill(track->source, out, SIZE_MAX);
    if (out->len > at) {
        splice(track, out, at);
        track->done = state == KG_SOURCE_END;
        *ret_end = true;
        return state == KG_SOURCE_FAILED ? -EIO : KG_READ_PIECE;
    }
    cut(out, start);
    return state == KG_SOURCE_END ? KG_READ_END : state == KG_SOURCE_FAILED ? -EIO : KG_READ_WAIT;
}

/* After a piece: the track keeps its turn inside an event, and goes to the end of the ring after
 * one. */
static void advance(kg_track_t *track, bool message_end)
{
    kg_tracks_t *t = track->owner;
    t->current = message_end ? NULL : track;
    if (track->done) {
        end(track, NULL);
    } else if (message_end && t->ready->next) {
        DL_DELETE(t->ready, track);
        DL_APPEND(t->ready, track);
    }
}

/* What is no piece: dried up, over, or broken. false: the connection has to be cut. */
static bool settle(kg_track_t *track, int rc)
{
    kg_err_t err = {0};
    bool inside = track->owner->current == track;
    if (rc == KG_READ_WAIT) {
        set_ready(track, false);
    } else if (rc == KG_READ_END) {
        end(track, NULL);
    } else {
        if (track->source) {
            kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "What was followed has ended.");
        } else {
            refuse(rc == KG_READ_EXPIRED ? -ESTALE : rc, &err);
        }
        end(track, &err);
    }
    return !inside;
}

/* A run that is over and has nothing behind what the client has: a frame says so, as a 204 does
 * over HTTP. */
static bool put_nothing(kg_track_t *track, kg_buf_t *out)
{
    if (put_prefix(track, out) < 0 ||
        kg_buf_append_cstr(out, ",\"type\":\"response\",\"data\":null}") < 0) {
        return false;
    }
    end(track, NULL);
    return true;
}

kg_pull_t kg_tracks_fill(kg_tracks_t *t, kg_buf_t *out, size_t max, bool *ret_message_end)
{
    while (t->ready) {
        kg_track_t *track = t->current ? t->current : t->ready;
        int rc = 0;
        if (!track->source && !track->follower.reader) {
            rc = kg_run_log_expired(track->follower.log) ? -ESTALE : read_result(track);
        }
        rc = rc < 0          ? rc
             : track->source ? put_source(track, out, ret_message_end)
                             : put_piece(track, out, max, ret_message_end);
        if (rc == KG_READ_PIECE) {
            advance(track, *ret_message_end);
            return KG_PULL_MORE;
        }
        if (rc == KG_READ_END && !track->source) {
            *ret_message_end = true;
            return put_nothing(track, out) ? KG_PULL_MORE : KG_PULL_ABORT;
        }
        if (!settle(track, rc)) {
            return KG_PULL_ABORT;
        }
    }
    return KG_PULL_WAIT;
}
