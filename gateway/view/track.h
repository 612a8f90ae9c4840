/* The runs that one socket follows, as one source of frames: each that has something gets its turn,
 * a whole event at a time. Pure but for the runs: the edge pulls from it, and is told when there is
 * something again. */
#ifndef KG_VIEW_TRACK_H
#define KG_VIEW_TRACK_H

#include "gateway/api/call.h"
#include "gateway/api/follower.h"
#include "gateway/edge/edge.h"

typedef enum kg_track_kind {
    KG_TRACK_EVENTS,   /* every event */
    KG_TRACK_RESULT,   /* the result event alone, when it is there */
    KG_TRACK_EXECUTION /* a response with the Execution of a run that has ended */
} kg_track_kind_t;

typedef struct kg_track kg_track_t;

/* Something is there again; legal inside a log's watch. */
typedef void kg_tracks_wake_fn(void *user);
/* One is over; err (or NULL) is to be told to the client under id. Not called by fini. */
typedef void kg_tracks_ended_fn(void *user, const char *id, const kg_err_t *err);

/* Embedded by its owner. */
typedef struct kg_tracks {
    kg_track_t *ready;   /* a ring: the first one is next */
    kg_track_t *waiting; /* for their logs */
    kg_track_t *current; /* in the middle of an event; among the ready ones */
    unsigned count;
    kg_tracks_wake_fn *wake;
    kg_tracks_ended_fn *ended;
    void *user;
} kg_tracks_t;

void kg_tracks_init(kg_tracks_t *t, kg_tracks_wake_fn *wake, kg_tracks_ended_fn *ended, void *user);
void kg_tracks_fini(kg_tracks_t *t); /* detaches from all */
/* id: JSON text, taken on success. run_expired, out_of_memory, internal. */
int kg_tracks_add(
    kg_tracks_t *t, const kg_follow_t *follow, kg_track_kind_t kind, char **id, kg_err_t *err);
/* The events of a source; a first frame of type "watching" tells that they are followed. Takes the
 * source, and id on success. out_of_memory. */
int kg_tracks_give(kg_tracks_t *t, kg_source_t *source_take, char **id, kg_err_t *err);
bool kg_tracks_have(const kg_tracks_t *t, const char *id);
/* As kg_ws_pull_fn: at most one event's piece, WAIT when no log has anything, ABORT when a begun
 * event cannot be ended. */
kg_pull_t kg_tracks_fill(kg_tracks_t *t, kg_buf_t *out, size_t max, bool *ret_message_end);

#endif
