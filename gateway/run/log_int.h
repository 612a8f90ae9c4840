/* Inner header of the run room: how a log's file is laid out, and how events get into it.
 *
 * The file is a sequence of records {kg_rec, kg_rich if rec.rich, payload}, in the machine's byte
 * order, from offset 0 of the file or of its slot; the first is META, whose payload is JSON of our
 * own. The other payloads are the events as clients see them, but for two things that the reader
 * puts in: values that stand twice in a Result (data, text) are stored once, and the bulk of
 * `result` not at all. */
#ifndef KG_RUN_LOG_INT_H
#define KG_RUN_LOG_INT_H

#include "gateway/base/buf.h"
#include "gateway/run/log.h"
#include "gateway/run/mapper.h"

#define KG_REC_MAGIC UINT32_C(0x3152474B) /* "KGR1" */
#define KG_LOG_WINDOW 65536U
#define KG_LOG_WINDOW_READ                                                                         \
    8192U /* of this much a finished log that is being read keeps its window */
#define KG_LOG_INDEX_STEP 256U
#define KG_LOG_DISPLAYS_MAX                                                                        \
    65536U /* display ids of one log; further ones are displays without updates */
#define KG_LOG_PAYLOAD_MAX (UINT32_C(1) << 31)

enum {
    KG_REC_LATE = 1,  /* came after the result */
    KG_REC_TAIL = 2,  /* the tail of a cut stream */
    KG_REC_MAIN = 4,  /* the value of the last expression */
    KG_REC_VALUE = 8, /* R: a visible value; the last one is the main one */
    KG_REC_WAIT = 16, /* clear: when the next output comes */
};

typedef struct kg_rec {
    uint32_t magic;
    uint32_t check; /* of all that follows it: head, rich, payload */
    uint32_t len;   /* of the payload */
    uint32_t seq;   /* UINT32_MAX in META */
    uint8_t type;
    uint8_t flags;
    uint16_t rich;     /* sizeof(kg_rich_t) or 0 */
    uint32_t body_off; /* in the payload: text without quotes; a Result; the inside of a traceback
                          array */
    uint32_t body_len;
    uint32_t units; /* text: decoded bytes; Result: bytes counted; STARTED: execution_count + 1;
                       RESULT: status; TRUNCATED: what */
} kg_rec_t;

/* Places in the payload. DISPLAY, UPDATE: as named. ERROR: data_* is the message, text_* the name.
 * RESULT: data_at is where the bulk goes, text_src/len what the Execution alone leaves out (seq,
 * type), text_at the value of `truncated`, main_at that of `late`; data_src, data_len: low and high
 * half of the end's wall ns.
 */
typedef struct kg_rich {
    uint32_t data_at;  /* the value of "data" goes here … */
    uint32_t data_src; /* … from here */
    uint32_t data_len; /* 0 = it stands there already */
    uint32_t text_at;  /* the text's body goes here, 0 = it stands at text_src */
    uint32_t text_src;
    uint32_t text_len;
    uint32_t main_at; /* of the Result's true or false */
    uint32_t did;     /* the log's number for its display_id, 0 = none */
    uint32_t count;   /* RESULT: execution_count + 1 */
} kg_rich_t;

#define KG_REC_HEAD                                                                                \
    (sizeof(kg_rec_t) + sizeof(kg_rich_t)) /* the most that comes before a payload */

/* What a walk over the log sees: outputs from `from` on; main: the record of the main result or 0.
 */
typedef struct kg_log_view {
    uint64_t from;
    uint64_t main;
    bool pending; /* a clear that waits for output */
} kg_log_view_t;

/* Latest update of a display id: before the result, and of all. Offsets, 0 = none. */
typedef struct kg_log_update {
    uint64_t frozen;
    uint64_t live;
} kg_log_update_t;

/* A run of KG_LOG_INDEX_STEP events: where it begins and what is in it, so that a walk that looks
 * for something else leaves it out. */
typedef struct kg_log_block {
    uint64_t off;
    uint32_t has; /* kg_rec_bit of all its events */
} kg_log_block_t;

#define KG_CUT_UNKNOWN UINT64_MAX /* how much was cut was lost in a crash: null */

/* What was kept and cut of each kind, and of which kinds `truncated` told. */
typedef struct kg_log_account {
    uint64_t kept[KG_CUT_COUNT]; /* EVENTS is next_seq */
    uint64_t cut[KG_CUT_COUNT];
    bool said[KG_CUT_COUNT];
    const char *reason; /* why the log has no file any more, an error's name; NULL = it has one */
} kg_log_account_t;

/* Running checksum over bytes in any pieces. */
typedef struct kg_check {
    uint64_t hash;
    uint64_t word;
    unsigned have;
} kg_check_t;

/* A big record on its way: its first `done` bytes lie behind the end of the file already. */
typedef struct kg_log_stage {
    const void *token; /* whose it is, NULL = none */
    uint64_t off;
    uint32_t seq;
    size_t done;
    kg_check_t check; /* of what is done */
} kg_log_stage_t;

typedef struct kg_ahead kg_ahead_t; /* gateway/run/mapper.h */

/* What it takes to write a log, and to find what is in it. A log at rest has none: its file tells
 * all of that (log_rest.c). */
typedef struct kg_log_body {
    kg_run_meta_t meta;
    char *strings; /* meta's, in one block */

    kg_buf_t win; /* the file from win_off to its end; all of it, or since the last big record */
    uint64_t win_off;
    uint64_t written; /* on disk so far */
    uint32_t next_seq;
    uint64_t last;        /* where the last appended record begins */
    uint64_t open;        /* offset of the text record that can still grow, 0 = none */
    uint32_t open_suffix; /* bytes behind its text */

    kg_log_block_t *index; /* each KG_LOG_INDEX_STEP events */
    size_t index_len, index_cap;
    kg_log_update_t *updates; /* by did - 1 */
    size_t updates_len;
    uint32_t next_did; /* dids given so far */
    kg_log_view_t live, frozen;
    kg_log_account_t account;

    kg_log_stage_t stage;
    kg_ahead_t *ahead; /* what a worker writes, or has written, behind the end; NULL = nothing */
} kg_log_body_t;

/* A finished log's place in a budget (budget.c). */
typedef struct kg_log_charge {
    struct kg_log_place *place;            /* NULL = it is in none */
    kg_run_log_t *prev, *next;             /* of all, oldest end first */
    kg_run_log_t *place_prev, *place_next; /* of its sandbox, likewise */
    uint64_t bytes;
} kg_log_charge_t;

struct kg_run_log {
    kg_log_body_t *body; /* NULL = at rest */
    unsigned refs;
    unsigned writers;   /* of refs: those that may append (kg_log_hold) */
    unsigned readers;   /* keep the file open */
    int fd;             /* of a file of its own */
    kg_run_slot_t slot; /* in a pack, else without one */
    kg_run_log_opts_t opts;
    kg_run_watch_t *watches, *cursor;
    kg_log_charge_t charge;

    uint64_t published; /* visible so far */
    uint64_t result_off;
    uint64_t created_wall_ns, finished_wall_ns;
    int64_t execution_count; /* of `started`, < 0 = null */
    uint32_t published_seq;
    uint32_t retain_s;
    kg_run_status_t status;
    int error; /* what broke it */
    bool full; /* it is broken, and what of it may be held in memory is */
    bool dirty, started, finished, expired, late, broken;
    bool ended;    /* `result` was appended */
    bool asks;     /* `input_request` was, since the last flush */
    bool starts;   /* `queued` or `started` was, and is not written yet */
    bool tells;    /* anything else was, since the last flush */
    bool late_cut; /* something was cut after it */
    bool news;     /* the watchers were not called yet */
    bool retried;
    char run[KG_ID_SHORT_MAX];
    char name[KG_RUN_NAME_MAX]; /* of its own file */
};

/* --- at rest and awake (log_rest.c) -------------------------------------------------------------
 */

/* Without a body: what created_wall_ns and the like say is the caller's. NULL = no memory. */
kg_run_log_t *kg_log_new(const kg_run_log_opts_t *opts);
/* Whoever appends to a log, or may, holds it: it stays awake. The log must be so. */
kg_run_log_t *kg_log_hold(kg_run_log_t *log);
void kg_log_release(kg_run_log_t **log); /* NULL ok */
void kg_log_close(kg_run_log_t *log);    /* lets go of window and file when they are not needed */
/* That, and of all that the file tells. */
void kg_log_settle(kg_run_log_t *log);

/* --- appending (log.c, log_write.c). 0 or -ENOMEM; what a broken log loses is counted. ---------
 */

/* Text in canonical escaped form, units = its decoded bytes (<= KG_RUN_TEXT_MAX). */
int kg_log_append_text(
    kg_run_log_t *log, kg_event_type_t type, unsigned flags, kg_slice_t text, size_t units);
/* An event `{"run":…,"seq":…,"type":…` + fields + `}`; fields begin with a comma. `rec` gives
 * flags, units and, relative to fields, body_off; rich (NULL ok) is relative to fields likewise.
 * Fields may come in parts. */
typedef struct kg_log_event {
    kg_event_type_t type;
    unsigned flags;
    uint32_t body_off, body_len, units;
    const kg_rich_t *rich;
    const kg_slice_t *parts;
    size_t count;
    const void *token; /* of kg_log_stage, or NULL */
} kg_log_event_t;
int kg_log_append(kg_run_log_t *log, const kg_log_event_t *event);
/* For an event of many MiB: writes its next KG_RUN_APPLY_BYTES where kg_log_append will want them.
 * 1 = call again, in another turn, with the same event (token says which it is; fresh: that it
 * begins); 0 = now append it. Whatever is appended in between only makes this work for nothing. */
int kg_log_stage(kg_run_log_t *log, const kg_log_event_t *event, bool fresh);
/* `truncated`, once a kind; counts bytes (or events) as cut. */
int kg_log_cut(kg_run_log_t *log, kg_cut_t what, uint64_t amount);

/* --- written ahead (ahead.c) ---------------------------------------------------------------------
 */

/* Takes in what was written ahead, about max bytes of text, as if it was appended now. Returns how
 * many bytes of the text, and their units; 0 when there is no more of it, or it does not fit any
 * more: then it is gone. */
size_t kg_log_take_ahead(kg_run_log_t *log, kg_ahead_t *ahead, size_t max, uint64_t *ret_units);
/* What is behind the end of the file goes; no worker writes there after it. */
void kg_log_void_ahead(kg_run_log_t *log);

/* How a run ended, ready for the log. Slices are canonical escaped text; traceback: `"…","…"`. */
typedef struct kg_log_end {
    kg_run_status_t status;
    bool started, lost;
    kg_slice_t name, message, traceback;
    kg_run_usage_t usage;
    int64_t execution_count; /* < 0 = null */
    uint64_t wall_ns;
} kg_log_end_t;
int kg_log_append_end(kg_run_log_t *log, const kg_log_end_t *end);
/* The value of `truncated`. */
int kg_log_put_truncated(kg_buf_t *out, const kg_log_account_t *account);
#define KG_LOG_LATE_FIELD ",\"late\":" /* follows it in `result` */

/* --- inside of log*.c ----------------------------------------------------------------------------
 */

/* Whose event, and which. */
typedef struct kg_log_at {
    const char *run;
    uint32_t seq;
} kg_log_at_t;

#define KG_LOG_PREFIX_MAX 160U

/* The record of a text event, ready to be written: what its parts point to must stay where it is.
 */
typedef struct kg_log_text {
    kg_rec_t rec;
    char prefix[KG_LOG_PREFIX_MAX];
    kg_slice_t parts[8];
    size_t count;
} kg_log_text_t;
/* Pure. -E2BIG. */
int kg_log_lay_out_text(const kg_log_at_t *at,
                        kg_event_type_t type,
                        unsigned flags,
                        kg_slice_t text,
                        size_t units,
                        kg_log_text_t *ret);
/* At most KG_LOG_PARTS_MAX parts, one after the other. -errno. */
#define KG_LOG_PARTS_MAX 256
int kg_log_write_parts(int fd, const kg_slice_t *parts, size_t count, uint64_t off);
size_t kg_log_total_of(const kg_slice_t *parts, size_t count); /* bytes */
/* The bytes from..from+max of what the parts are together, into the log's own file, where they are
 * to lie when the parts stand at its end. -errno. */
int kg_log_write_range(
    kg_run_log_t *log, const kg_slice_t *parts, size_t count, size_t from, size_t max);
int kg_log_read_at(int fd, void *dst, size_t len, uint64_t off); /* exactly. -EIO, -errno */

void kg_log_mark_dirty(kg_run_log_t *log);
/* Takes a published record into the log's knowledge. */
void kg_log_note(kg_run_log_t *log, uint64_t off, const kg_rec_t *rec, const kg_rich_t *rich);
/* Closes the text record that can grow. */
void kg_log_seal(kg_run_log_t *log);
/* Writes what is in the window. -errno. */
int kg_log_write_out(kg_run_log_t *log);
/* Writes a record that is too big for the window; parts[0] is its head. Of the rest, what lies in
 * the first `staged` bytes is there already. */
int kg_log_write_big(kg_run_log_t *log, const kg_slice_t *parts, size_t count, size_t staged);
/* The log cannot be written: forgets what was not published, counts it. */
void kg_log_break(kg_run_log_t *log, int error);
/* Opens it, and where there is too little room for its first `room` bytes, a place that has it; 0:
 * only what is there. KG_LOG_OWN: a file of its own. -ENOENT, -ESTALE, -errno. */
#define KG_LOG_OWN UINT64_MAX
int kg_log_open(kg_run_log_t *log, uint64_t room);
/* An open log's file, and where in it the log begins. */
typedef struct kg_log_spot {
    int fd;
    uint64_t off;
} kg_log_spot_t;
kg_log_spot_t kg_log_spot(const kg_run_log_t *log);
/* What is on disk from..to, which is no part of the log, goes. -errno. */
int kg_log_trim(kg_run_log_t *log, uint64_t from, uint64_t to);
uint64_t kg_log_end_off(const kg_run_log_t *log);
/* What is before it is in the file alone. */
static inline uint64_t kg_log_win_off(const kg_run_log_t *log)
{
    return log->body ? log->body->win_off : log->published;
}

/* Exactly len bytes at off (published or not). -EIO, -errno. */
int kg_log_read(kg_run_log_t *log, uint64_t off, void *dst, size_t len);
/* Head (and rich, zeroed when there is none) of the record at off; checked against the end. */
int kg_log_read_head(kg_run_log_t *log, uint64_t off, kg_rec_t *ret_rec, kg_rich_t *ret_rich);
static inline uint64_t kg_rec_payload(uint64_t off, const kg_rec_t *rec)
{
    return off + sizeof *rec + rec->rich;
}
static inline uint64_t kg_rec_next(uint64_t off, const kg_rec_t *rec)
{
    return kg_rec_payload(off, rec) + rec->len;
}
/* False when a place is outside of the payload, the type unknown or the like. */
bool kg_rec_sane(const kg_rec_t *rec, const kg_rich_t *rich);
/* Meta and all good records of the first size bytes (of body and log, which know nothing yet).
 * Where they end. -EBADMSG: it is no log. */
int kg_log_walk(kg_run_log_t *log, uint64_t size, uint64_t *ret_end);
static inline bool kg_rec_is_output(const kg_rec_t *rec)
{
    return rec->type == KG_EVENT_STDOUT || rec->type == KG_EVENT_STDERR ||
           rec->type == KG_EVENT_DISPLAY || rec->type == KG_EVENT_ERROR;
}
/* One bit for each type, and one more for a display that is or may be the main result. */
#define KG_REC_VALUE_BIT (1U << KG_EVENT_COUNT)
static inline uint32_t kg_rec_bit(const kg_rec_t *rec)
{
    bool value = rec->type == KG_EVENT_DISPLAY && (rec->flags & (KG_REC_MAIN | KG_REC_VALUE));
    return 1U << rec->type | (value ? KG_REC_VALUE_BIT : 0);
}
/* Offset of the first published event with a seq >= seq; published end when there is none. */
int kg_log_seek(kg_run_log_t *log, uint64_t seq, uint64_t *ret_off);

void kg_check_begin(kg_check_t *check, const kg_rec_t *rec); /* with rec's own fields */
void kg_check_push(kg_check_t *check, const void *data, size_t len);
uint32_t kg_check_end(kg_check_t *check);

#endif
